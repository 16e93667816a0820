/*
 * OpenMP: the runtimes of GCC (libgomp) and of LLVM (libomp). A runtime keeps a thread's team in variables of the
 * thread, and waits within its own code. So two goroutines of one thread can't both be in a region, and a region that
 * waits for a goroutine must not keep the goroutine's thread.
 *
 * - A region that a goroutine starts runs on another thread, and the goroutine parks. In the region all functions are
 *   libc's. - Outside of regions a goroutine can't park between the beginning and the end of a loop, of sections or of
 *   a task. - critical is a mutex of goroutines and threads. For a lock that isn't free, another thread waits.
 */
#include "calls.h"
#include "keys.h"
#include "masks.h"
#include "parts.h"

#include <locale.h>

#include <dlfcn.h>

/* The functions of a runtime. After a function of the first list a goroutine can't park until a call of the second: see
   `keep`. */
#define BEGINNINGS(X) \
    X(GOMP_loop_start) X(GOMP_loop_static_start) X(GOMP_loop_dynamic_start) X(GOMP_loop_guided_start) \
    X(GOMP_loop_runtime_start) X(GOMP_loop_nonmonotonic_dynamic_start) X(GOMP_loop_nonmonotonic_guided_start) \
    X(GOMP_loop_nonmonotonic_runtime_start) X(GOMP_loop_maybe_nonmonotonic_runtime_start) X(GOMP_loop_ordered_start) \
    X(GOMP_loop_ordered_static_start) X(GOMP_loop_ordered_dynamic_start) X(GOMP_loop_ordered_guided_start) \
    X(GOMP_loop_ordered_runtime_start) X(GOMP_loop_doacross_start) X(GOMP_loop_doacross_static_start) \
    X(GOMP_loop_doacross_dynamic_start) X(GOMP_loop_doacross_guided_start) X(GOMP_loop_doacross_runtime_start) \
    X(GOMP_loop_ull_start) X(GOMP_loop_ull_static_start) X(GOMP_loop_ull_dynamic_start) X(GOMP_loop_ull_guided_start) \
    X(GOMP_loop_ull_runtime_start) X(GOMP_loop_ull_nonmonotonic_dynamic_start) X(GOMP_loop_ull_nonmonotonic_guided_start) \
    X(GOMP_loop_ull_nonmonotonic_runtime_start) X(GOMP_loop_ull_maybe_nonmonotonic_runtime_start) \
    X(GOMP_loop_ull_ordered_start) X(GOMP_loop_ull_ordered_static_start) X(GOMP_loop_ull_ordered_dynamic_start) \
    X(GOMP_loop_ull_ordered_guided_start) X(GOMP_loop_ull_ordered_runtime_start) X(GOMP_loop_ull_doacross_start) \
    X(GOMP_loop_ull_doacross_static_start) X(GOMP_loop_ull_doacross_dynamic_start) X(GOMP_loop_ull_doacross_guided_start) \
    X(GOMP_loop_ull_doacross_runtime_start) X(GOMP_sections_start) X(GOMP_sections2_start) X(GOMP_parallel_start) \
    X(GOMP_parallel_loop_static_start) X(GOMP_parallel_loop_dynamic_start) X(GOMP_parallel_loop_guided_start) \
    X(GOMP_parallel_loop_runtime_start) X(GOMP_parallel_sections_start) X(__kmpc_dispatch_init_4) X(__kmpc_dispatch_init_4u) \
    X(__kmpc_dispatch_init_8) X(__kmpc_dispatch_init_8u) X(__kmpc_serialized_parallel) X(__kmpc_omp_task_begin_if0)
#define FORKS(X) X(__kmpc_fork_call) X(__kmpc_fork_teams)
#define OTHERS(X) \
    X(GOMP_parallel) X(GOMP_parallel_loop_static) X(GOMP_parallel_loop_dynamic) X(GOMP_parallel_loop_guided) \
    X(GOMP_parallel_loop_runtime) X(GOMP_parallel_loop_nonmonotonic_dynamic) X(GOMP_parallel_loop_nonmonotonic_guided) \
    X(GOMP_parallel_loop_nonmonotonic_runtime) X(GOMP_parallel_loop_maybe_nonmonotonic_runtime) X(GOMP_parallel_sections) \
    X(GOMP_parallel_reductions) X(GOMP_teams_reg) X(GOMP_task) X(GOMP_taskloop) X(GOMP_taskloop_ull) X(GOMP_target) \
    X(GOMP_target_ext) X(GOMP_single_copy_start) X(GOMP_single_copy_end) X(GOMP_loop_end) X(GOMP_loop_end_nowait) \
    X(GOMP_loop_end_cancel) X(GOMP_sections_end) X(GOMP_sections_end_nowait) X(GOMP_sections_end_cancel) X(GOMP_parallel_end) \
    X(__kmpc_fork_call_if) X(__kmpc_push_num_threads) X(__kmpc_push_proc_bind) X(__kmpc_push_num_teams) \
    X(__kmpc_push_num_teams_51) X(__kmpc_global_thread_num) X(__kmpc_end_serialized_parallel) X(__kmpc_omp_task) \
    X(__kmpc_omp_task_with_deps) X(__kmpc_omp_task_complete_if0) X(__kmpc_taskloop) X(__kmpc_taskloop_5) \
    X(__kmpc_dispatch_next_4) X(__kmpc_dispatch_next_4u) X(__kmpc_dispatch_next_8) X(__kmpc_dispatch_next_8u) X(omp_set_lock) \
    X(omp_set_lock_) X(omp_test_lock) X(omp_test_lock_) X(omp_get_max_threads) X(omp_set_num_threads) X(omp_get_dynamic) \
    X(omp_set_dynamic) X(omp_get_max_active_levels) X(omp_set_max_active_levels) X(omp_get_schedule) X(omp_set_schedule) \
    X(omp_get_default_device) X(omp_set_default_device)
#define X(name) NO_##name,
enum function { BEGINNINGS(X) FORKS(X) OTHERS(X) FUNCTIONS };
#undef X
#define X(name) #name,
static const char *const names[] = {BEGINNINGS(X) FORKS(X) OTHERS(X)};
#undef X

/* Which runtime a library or program uses: several copies may be loaded, each by another library */

struct user {
    struct user *next;
    struct range code_and_data;
    void *library; /* dlopen's value, or NULL */
    void *_Atomic functions[FUNCTIONS];
};
static struct user *_Atomic users;

static _Noreturn void die(const char *format, ...)
{
    char line[300] = "gosched-preload: OpenMP: ";
    size_t n = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + n, sizeof line - n - 1, format, args);
    va_end(args);
    strcat(line, "\n");
    (void)!raw_syscall(SYS_write, 2, line, strlen(line));
    abort();
}

/* The user to which the address belongs: that of a function, of data, or a return address. */
static struct user *user_of(const void *address)
{
    struct user *u = atomic_load_explicit(&users, memory_order_acquire), *first = u;
    for (; u != NULL; u = u->next)
        if (is_within(address, &u->code_and_data))
            return u;
    struct search s = {.address = address};
    int before = errno;
    dl_iterate_phdr(find_user, &s);
    if ((u = calloc(1, sizeof *u)) == NULL)
        die("no memory");
    /* In no library: code made at run time, in a page of its own. */
    u->code_and_data = s.found ? s.range : (struct range){(uintptr_t)address & -(uintptr_t)4096, 4096};
    u->library = s.found && s.name[0] != 0 ? dlopen(s.name, RTLD_LAZY | RTLD_NOLOAD) : NULL; /* stays loaded now */
    u->next = first;
    while (!atomic_compare_exchange_weak(&users, &u->next, u))
        ;
    errno = before;
    return u;
}

/* The function that the user would call without this library, as the dynamic linker finds it, or NULL. */
static void *look_up(struct user *u, enum function no)
{
    void *f = atomic_load_explicit(&u->functions[no], memory_order_relaxed);
    if (LIKELY(f != NULL))
        return f;
    int before = errno;
    f = dlsym(RTLD_NEXT, names[no]);
    if (f == NULL && u->library != NULL)
        f = dlsym(u->library, names[no]);
    errno = before;
    atomic_store_explicit(&u->functions[no], f, memory_order_relaxed);
    return f;
}

/* look_up for the user at an address. After a caller's last call the address is its own caller's, where any user's
   function will do. */
static void *function_of(const void *address, enum function no)
{
    void *f = look_up(user_of(address), no);
    for (struct user *u = atomic_load(&users); f == NULL && u != NULL; u = u->next)
        f = look_up(u, no);
    if (f == NULL)
        die("no library that the program or its library needs has %s", names[no]);
    return f;
}
#define CALL(type, address, name) ((type)function_of(address, NO_##name))

/* Numbers and pointers are passed the same way, whatever their types, and a function ignores arguments beyond its
   parameters. */
typedef long any(long, long, long, long, long, long, long, long, long, long, long, long);
struct arguments {
    long of[12];
};
#define ARGUMENTS(...) ((struct arguments){.of = {__VA_ARGS__}})

static long call_any(void *f, const struct arguments *a)
{
    const long *of = a->of;
    return ((any *)f)(of[0], of[1], of[2], of[3], of[4], of[5], of[6], of[7], of[8], of[9], of[10], of[11]);
}

/* Regions */

/* A thread's settings in a runtime, which a region inherits. */
struct settings {
    int threads, dynamic, levels, device, kind, chunk;
};

static void get_setting(struct user *u, enum function no, int *value)
{
    int (*get)(void) = (int (*)(void))look_up(u, no);
    if (get != NULL)
        *value = get();
}

static struct settings get_settings(struct user *u)
{
    struct settings s = {0};
    get_setting(u, NO_omp_get_max_threads, &s.threads);
    get_setting(u, NO_omp_get_dynamic, &s.dynamic);
    get_setting(u, NO_omp_get_max_active_levels, &s.levels);
    get_setting(u, NO_omp_get_default_device, &s.device);
    void (*get_schedule)(int *, int *) = (void (*)(int *, int *))look_up(u, NO_omp_get_schedule);
    if (get_schedule != NULL)
        get_schedule(&s.kind, &s.chunk);
    return s;
}

static void set_setting(struct user *u, enum function no, int now, int value)
{
    void (*set)(int) = (void (*)(int))look_up(u, no);
    if (set != NULL && value != now)
        set(value);
}

static void set_settings(struct user *u, const struct settings *now, const struct settings *s)
{
    set_setting(u, NO_omp_set_num_threads, now->threads, s->threads);
    set_setting(u, NO_omp_set_dynamic, now->dynamic, s->dynamic);
    set_setting(u, NO_omp_set_max_active_levels, now->levels, s->levels);
    set_setting(u, NO_omp_set_default_device, now->device, s->device);
    void (*set_schedule)(int, int) = (void (*)(int, int))look_up(u, NO_omp_set_schedule);
    if (set_schedule != NULL && (s->kind != now->kind || s->chunk != now->chunk))
        set_schedule(s->kind, s->chunk);
}

/* The modes and flags of floating-point arithmetic. */
struct arithmetic {
    uint32_t x87[7], sse;
};

static struct arithmetic get_arithmetic(void)
{
    struct arithmetic a;
    __asm__ volatile("fnstenv %0\n fldenv %0\n stmxcsr %1" : "=m"(a.x87), "=m"(a.sse));
    return a;
}

static void set_arithmetic(const struct arithmetic *a)
{
    __asm__ volatile("fldenv %0\n ldmxcsr %1" : : "m"(a->x87), "m"(a->sse));
}

/* The clauses of a region. A compiler for libomp passes them in calls of their own before the region. */
struct clauses {
    bool threads, bind, teams, bounds;
    int n_threads, how_bound, n_teams, limit, lower, upper;
};
static gs_key clauses_key;

void openmp_start(void)
{
    gs_key_create(&clauses_key, free);
    find_runtimes();
}

static void pass_clauses(struct user *u, const struct clauses *c, void *place)
{
    if (!c->threads && !c->bind && !c->teams && !c->bounds)
        return;
    long thread = ((int (*)(void *))look_up(u, NO___kmpc_global_thread_num))(place);
    if (c->threads)
        call_any(look_up(u, NO___kmpc_push_num_threads), &ARGUMENTS((long)place, thread, c->n_threads));
    if (c->bind)
        call_any(look_up(u, NO___kmpc_push_proc_bind), &ARGUMENTS((long)place, thread, c->how_bound));
    if (c->teams)
        call_any(look_up(u, NO___kmpc_push_num_teams), &ARGUMENTS((long)place, thread, c->n_teams, c->limit));
    if (c->bounds)
        call_any(look_up(u, NO___kmpc_push_num_teams_51), &ARGUMENTS((long)place, thread, c->lower, c->upper, c->limit));
}

/* This library's values for a goroutine. */
struct own_values {
    void *of_keys, *mask;
};

static struct own_values exchange_own_values(struct own_values given)
{
    return (struct own_values){exchange_values(given.of_keys), exchange_mask(given.mask)};
}

struct region {
    struct user *user;
    long (*call)(void *f, const struct arguments *args);
    void *f;
    const struct arguments *args;
    struct clauses clauses;
    void *place; /* where the clauses are */
    /* The thread's or the goroutine's state that the region needs: */
    struct settings settings;
    struct arithmetic arithmetic;
    locale_t locale;
    struct own_values own;
    int error;
    long result;
};

static void *run_region(void *arg)
{
    struct region *r = arg;
    struct settings settings = get_settings(r->user);
    struct arithmetic arithmetic = get_arithmetic();
    locale_t locale = uselocale(r->locale);
    struct own_values own = exchange_own_values(r->own);
    set_settings(r->user, &settings, &r->settings);
    pass_clauses(r->user, &r->clauses, r->place);
    set_arithmetic(&r->arithmetic);
    errno = r->error;
    r->result = r->call(r->f, r->args);
    r->error = errno;
    r->arithmetic = get_arithmetic();
    set_arithmetic(&arithmetic);
    set_settings(r->user, &r->settings, &settings);
    r->own = exchange_own_values(own);
    uselocale(locale);
    return NULL;
}

/* Runs a region on another thread. */
static long run_elsewhere(struct region r, struct counts *c)
{
    r.settings = get_settings(r.user);
    r.arithmetic = get_arithmetic();
    r.locale = uselocale(NULL);
    r.own = exchange_own_values((struct own_values){0});
    r.error = errno;
    if (!call_elsewhere(run_region, &r, c))
        run_region(&r);
    exchange_own_values(r.own);
    set_arithmetic(&r.arithmetic);
    errno = r.error;
    return r.result;
}

/* Defines a function that starts a region. `code` is an address in the user's code. */
#define REGION(result, name, params, list, code) \
    EXPORT result name params \
    { \
        COUNTED(name); \
        struct arguments all = ARGUMENTS list; \
        void *function = function_of((const void *)(code), NO_##name); \
        if (!TAKEN || !can_park()) \
            return (result)call_any(function, &all); \
        struct region region = {.user = user_of((const void *)(code)), .call = call_any, .f = function, .args = &all}; \
        return (result)run_elsewhere(region, &counts); \
    }
typedef void body(void *);
#define LOOP(name, type) \
    REGION(void, name, (body *f, void *data, unsigned n, type start, type end, type step, type chunk, unsigned flags), \
        ((long)f, (long)data, (long)n, start, end, step, chunk, (long)flags), f)
#define LOOP_OF_RUNTIME(name) \
    REGION(void, name, (body *f, void *data, unsigned n, long start, long end, long step, unsigned flags), \
        ((long)f, (long)data, (long)n, start, end, step, (long)flags), f)
REGION(void, GOMP_parallel, (body *f, void *data, unsigned n, unsigned flags), ((long)f, (long)data, (long)n, (long)flags), f)
REGION(unsigned, GOMP_parallel_reductions, (body *f, void *data, unsigned n, unsigned flags),
    ((long)f, (long)data, (long)n, (long)flags), f)
REGION(void, GOMP_parallel_sections, (body *f, void *data, unsigned n, unsigned count, unsigned flags),
    ((long)f, (long)data, (long)n, (long)count, (long)flags), f)
REGION(void, GOMP_teams_reg, (body *f, void *data, unsigned n, unsigned limit, unsigned flags),
    ((long)f, (long)data, (long)n, (long)limit, (long)flags), f)
LOOP(GOMP_parallel_loop_static, long)
LOOP(GOMP_parallel_loop_dynamic, long)
LOOP(GOMP_parallel_loop_guided, long)
LOOP(GOMP_parallel_loop_nonmonotonic_dynamic, long)
LOOP(GOMP_parallel_loop_nonmonotonic_guided, long)
LOOP_OF_RUNTIME(GOMP_parallel_loop_runtime)
LOOP_OF_RUNTIME(GOMP_parallel_loop_nonmonotonic_runtime)
LOOP_OF_RUNTIME(GOMP_parallel_loop_maybe_nonmonotonic_runtime)

/* libomp's functions take a pointer to each variable of the region as further arguments. */
typedef void forks(void *place, int n, void *f, ...);
enum { MOST_VARIABLES = 256 };

struct variables {
    struct arguments args; /* place, n, f */
    void *of[MOST_VARIABLES];
};

#define FOUR(v, i) (v)[i], (v)[(i) + 1], (v)[(i) + 2], (v)[(i) + 3]
#define SIXTEEN(v, i) FOUR(v, i), FOUR(v, (i) + 4), FOUR(v, (i) + 8), FOUR(v, (i) + 12)
#define SIXTY_FOUR(v, i) SIXTEEN(v, i), SIXTEEN(v, (i) + 16), SIXTEEN(v, (i) + 32), SIXTEEN(v, (i) + 48)

static long call_fork(void *f, const struct arguments *args)
{
    const struct variables *v = (const struct variables *)args;
    void *place = (void *)args->of[0], *code = (void *)args->of[2];
    int n = (int)args->of[1];
    if (n <= 16)
        ((forks *)f)(place, n, code, SIXTEEN(v->of, 0));
    else
        ((forks *)f)(place, n, code, SIXTY_FOUR(v->of, 0), SIXTY_FOUR(v->of, 64), SIXTY_FOUR(v->of, 128), SIXTY_FOUR(v->of, 192));
    return 0;
}

static struct clauses take_clauses(void)
{
    struct clauses *c = gs_getspecific(clauses_key), taken = {0};
    if (c != NULL) {
        taken = *c;
        *c = (struct clauses){0};
    }
    return taken;
}

static void fork_elsewhere(enum function no, void *place, int n, void *code, va_list list, struct counts *c)
{
    struct variables v = {.args = ARGUMENTS((long)place, n, (long)code)};
    if (n > MOST_VARIABLES)
        die("a region of a goroutine has more than %d variables", MOST_VARIABLES);
    for (int i = 0; i < n; i++)
        v.of[i] = va_arg(list, void *);
    run_elsewhere((struct region){.user = user_of(code), .call = call_fork, .f = function_of(code, no), .args = &v.args,
                                  .clauses = take_clauses(), .place = place}, c);
}

#define FORK(name) \
    static void name##_elsewhere(void *place, int n, void *code, ...) \
    { \
        COUNTED(name); \
        va_list list; \
        va_start(list, code); \
        fork_elsewhere(NO_##name, place, n, code, list, &counts); \
        va_end(list); \
    }
FORK(__kmpc_fork_call)
FORK(__kmpc_fork_teams)

EXPORT void __kmpc_fork_call_if(void *place, int n, void *code, int condition, void *variables)
{
    COUNTED(__kmpc_fork_call_if);
    struct arguments all = ARGUMENTS((long)place, n, (long)code, condition, (long)variables);
    void *f = function_of(code, NO___kmpc_fork_call_if);
    if (TAKEN && can_park())
        run_elsewhere((struct region){.user = user_of(code), .call = call_any, .f = f, .args = &all, .clauses = take_clauses(),
                                      .place = place}, &counts);
    else
        call_any(f, &all);
}

/* The goroutine's struct clauses. NULL: the clause is not for a region that runs elsewhere, or there is no memory. */
static struct clauses *clauses_of(const void *caller)
{
    if (!on_goroutine(caller) || !can_park())
        return NULL;
    struct clauses *c = gs_getspecific(clauses_key);
    if (c == NULL && (c = calloc(1, sizeof *c)) != NULL && gs_setspecific(clauses_key, c) != 0) {
        free(c);
        c = NULL;
    }
    return c;
}

#define CLAUSE(name, params, args, note) \
    EXPORT void name params \
    { \
        struct clauses *c = clauses_of(__builtin_return_address(0)); \
        struct arguments all = ARGUMENTS args; \
        if (c != NULL) \
            note; \
        else \
            call_any(function_of(place, NO_##name), &all); \
    }
CLAUSE(__kmpc_push_num_threads, (void *place, int thread, int n), ((long)place, thread, n), (c->threads = true, c->n_threads = n))
CLAUSE(__kmpc_push_proc_bind, (void *place, int thread, int how), ((long)place, thread, how), (c->bind = true, c->how_bound = how))
CLAUSE(__kmpc_push_num_teams, (void *place, int thread, int n, int limit), ((long)place, thread, n, limit),
    (c->teams = true, c->n_teams = n, c->limit = limit))
CLAUSE(__kmpc_push_num_teams_51, (void *place, int thread, int lower, int upper, int limit),
    ((long)place, thread, lower, upper, limit), (c->bounds = true, c->lower = lower, c->upper = upper, c->limit = limit))

/* Outside of regions: a thread's state in a runtime from one call to the next */

static __thread unsigned depth_of_thread;   /* beginnings without an end of a goroutine on the thread */
static __thread struct user *last_of_thread; /* the user that made the last beginning */

EACH_CALL static unsigned *depth(void)
{
    return &depth_of_thread;
}

EACH_CALL static struct user **last_user(void)
{
    return &last_of_thread;
}

/* Keeps the thread for the goroutine, which can't park from here on. Others have its P meanwhile. */
static void keep(const void *caller)
{
    if (*depth() == 0) {
        if (!on_goroutine(caller) || !can_park())
            return;
        gs_entersyscall();
    }
    ++*depth();
}

/* Ends the keeping. An end without a beginning does nothing: a region, or gs_blocking, keeps the thread anyway. */
static void end_of_keeping(void)
{
    if (*depth() > 0 && --*depth() == 0)
        gs_exitsyscall(); /* leaves errno as it is */
}

/* The function for a call that the code below passes on. `third` is the third argument. */
__attribute__((used)) static void *where_openmp_goes(enum function no, const void *caller, const void *third)
{
    switch (no) {
    case NO___kmpc_fork_call:
        return on_goroutine(caller) && can_park() ? (void *)__kmpc_fork_call_elsewhere : function_of(third, no);
    case NO___kmpc_fork_teams:
        return on_goroutine(caller) && can_park() ? (void *)__kmpc_fork_teams_elsewhere : function_of(third, no);
    default: break;
    }
    void *f = function_of(caller, no);
    keep(caller);
    *last_user() = user_of(caller);
    return f;
}

/* Passes the arguments on as they are: some are on the stack. */
__asm__(".text\n"
        ".type enter_openmp, @function\n"
        "enter_openmp:\n"
        "    .cfi_startproc\n"
        "    push %rdi\n"
        "    push %rsi\n"
        "    push %rdx\n"
        "    push %rcx\n"
        "    push %r8\n"
        "    push %r9\n"
        "    push %rax\n"
        "    .cfi_adjust_cfa_offset 56\n"
        "    mov %r11d, %edi\n"
        "    mov 56(%rsp), %rsi\n"
        "    call where_openmp_goes\n"
        "    mov %rax, %r11\n"
        "    pop %rax\n"
        "    pop %r9\n"
        "    pop %r8\n"
        "    pop %rcx\n"
        "    pop %rdx\n"
        "    pop %rsi\n"
        "    pop %rdi\n"
        "    .cfi_adjust_cfa_offset -56\n"
        "    jmp *%r11\n"
        "    .cfi_endproc\n"
        ".size enter_openmp, . - enter_openmp\n"
        ".set openmp_number, 0\n");
#define X(name) \
    __asm__(".globl " #name "\n" \
            ".type " #name ", @function\n" \
            #name ":\n" \
            "    .cfi_startproc\n" \
            "    endbr64\n" \
            "    mov $openmp_number, %r11d\n" \
            "    jmp enter_openmp\n" \
            "    .cfi_endproc\n" \
            ".size " #name ", . - " #name "\n" \
            ".set openmp_number, openmp_number + 1\n");
BEGINNINGS(X)
FORKS(X)
#undef X

/* The end may be the last call of its function: then the return address doesn't tell the user. */
static void *end_function(const void *caller, enum function no)
{
    struct user *u = *last_user();
    void *f = u != NULL ? look_up(u, no) : NULL;
    return f != NULL ? f : function_of(caller, no);
}

#define END(result, name, params, args) \
    EXPORT result name params \
    { \
        struct arguments all = ARGUMENTS args; \
        long value = call_any(end_function(__builtin_return_address(0), NO_##name), &all); \
        end_of_keeping(); \
        return (result)value; \
    }
END(void, GOMP_loop_end, (void), (0))
END(void, GOMP_loop_end_nowait, (void), (0))
END(bool, GOMP_loop_end_cancel, (void), (0))
END(void, GOMP_sections_end, (void), (0))
END(void, GOMP_sections_end_nowait, (void), (0))
END(bool, GOMP_sections_end_cancel, (void), (0))
END(void, GOMP_parallel_end, (void), (0))
END(void, GOMP_single_copy_end, (void *data), ((long)data))
END(void, __kmpc_end_serialized_parallel, (void *place, int thread), ((long)place, thread))
END(void, __kmpc_omp_task_complete_if0, (void *place, int thread, void *task), ((long)place, thread, (long)task))

EXPORT void *GOMP_single_copy_start(void)
{
    const void *caller = __builtin_return_address(0);
    void *(*start)(void) = (void *(*)(void))function_of(caller, NO_GOMP_single_copy_start);
    keep(caller);
    *last_user() = user_of(caller);
    void *copied = start();
    if (copied != NULL) /* another thread of the team copies */
        end_of_keeping();
    return copied;
}

/* 0: the loop has ended. */
#define NEXT(name) \
    EXPORT int name(void *place, int thread, void *last, void *lower, void *upper, void *step) \
    { \
        struct arguments all = ARGUMENTS((long)place, thread, (long)last, (long)lower, (long)upper, (long)step); \
        int more = (int)call_any(function_of(place, NO_##name), &all); \
        if (more == 0) \
            end_of_keeping(); \
        return more; \
    }
NEXT(__kmpc_dispatch_next_4)
NEXT(__kmpc_dispatch_next_4u)
NEXT(__kmpc_dispatch_next_8)
NEXT(__kmpc_dispatch_next_8u)

/* Defines a function for a task, which outside of regions runs within the call. `address` is in the user's code or
   data. */
#define TASK(result, name, params, args, address) \
    EXPORT result name params \
    { \
        struct arguments all = ARGUMENTS args; \
        void *function = function_of((const void *)(address), NO_##name); \
        keep(__builtin_return_address(0)); \
        long value = call_any(function, &all); \
        end_of_keeping(); \
        return (result)value; \
    }
typedef void copies(void *, void *);
TASK(void, GOMP_task, (body *f, void *data, copies *copy, long size, long align, bool deferred, unsigned flags, void **depend, int priority, void *detach),
    ((long)f, (long)data, (long)copy, size, align, deferred, (long)flags, (long)depend, priority, (long)detach), f)
TASK(void, GOMP_taskloop, (body *f, void *data, copies *copy, long size, long align, unsigned flags, unsigned long n, int priority, long start, long end, long step),
    ((long)f, (long)data, (long)copy, size, align, (long)flags, (long)n, priority, start, end, step), f)
TASK(void, GOMP_taskloop_ull, (body *f, void *data, copies *copy, long size, long align, unsigned flags, unsigned long n, int priority, unsigned long start, unsigned long end, unsigned long step),
    ((long)f, (long)data, (long)copy, size, align, (long)flags, (long)n, priority, (long)start, (long)end, (long)step), f)
TASK(void, GOMP_target, (int device, body *f, const void *unused, size_t n, void **addresses, size_t *sizes, unsigned char *kinds),
    (device, (long)f, (long)unused, (long)n, (long)addresses, (long)sizes, (long)kinds), f)
TASK(void, GOMP_target_ext, (int device, body *f, size_t n, void **addresses, size_t *sizes, unsigned short *kinds, unsigned flags, void **depend, void **args),
    (device, (long)f, (long)n, (long)addresses, (long)sizes, (long)kinds, (long)flags, (long)depend, (long)args), f)
TASK(int, __kmpc_omp_task, (void *place, int thread, void *task), ((long)place, thread, (long)task), place)
TASK(int, __kmpc_omp_task_with_deps, (void *place, int thread, void *task, int n, void *deps, int m, void *others),
    ((long)place, thread, (long)task, n, (long)deps, m, (long)others), place)
TASK(void, __kmpc_taskloop, (void *place, int thread, void *task, int condition, void *lower, void *upper, long step, int nogroup, int sched, long grain, void *dup),
    ((long)place, thread, (long)task, condition, (long)lower, (long)upper, step, nogroup, sched, grain, (long)dup), place)
TASK(void, __kmpc_taskloop_5, (void *place, int thread, void *task, int condition, void *lower, void *upper, long step, int nogroup, int sched, long grain, int modifier, void *dup),
    ((long)place, thread, (long)task, condition, (long)lower, (long)upper, step, nogroup, sched, grain, modifier, (long)dup), place)

/* Locks */

/*
 * critical, for goroutines and threads of a team. The place for a name's lock is 0 at first. In libgomp it has the size
 * of a pointer, in libomp it is larger.
 */
static pthread_mutex_t unnamed = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t *named(void *place)
{
    pthread_mutex_t **at = (pthread_mutex_t **)(((uintptr_t)place + sizeof at - 1) & -sizeof at);
    pthread_mutex_t *m = __atomic_load_n(at, __ATOMIC_ACQUIRE), *fresh;
    if (LIKELY(m != NULL))
        return m;
    if ((fresh = calloc(1, sizeof *fresh)) == NULL || pthread_mutex_init(fresh, NULL) != 0)
        die("no memory");
    if (__atomic_compare_exchange_n(at, &m, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return fresh;
    free(fresh);
    return m;
}

EXPORT void GOMP_critical_start(void)
{
    pthread_mutex_lock(&unnamed);
}

EXPORT void GOMP_critical_end(void)
{
    pthread_mutex_unlock(&unnamed);
}

EXPORT void GOMP_critical_name_start(void **name)
{
    pthread_mutex_lock(named(name));
}

EXPORT void GOMP_critical_name_end(void **name)
{
    pthread_mutex_unlock(named(name));
}

EXPORT void __kmpc_critical(void *place, int thread, void *name)
{
    (void)place, (void)thread;
    pthread_mutex_lock(named(name));
}

EXPORT void __kmpc_critical_with_hint(void *place, int thread, void *name, unsigned hint)
{
    (void)hint;
    __kmpc_critical(place, thread, name);
}

EXPORT void __kmpc_end_critical(void *place, int thread, void *name)
{
    (void)place, (void)thread;
    pthread_mutex_unlock(named(name));
}

/* Defines a function that takes a lock. The lock has no owner, so another thread may take it. Names with a final _ are
   Fortran's. */
#define LOCK(name, test) \
    EXPORT void name(void *lock) \
    { \
        COUNTED(name); \
        const void *caller = __builtin_return_address(0); \
        void (*set)(void *) = (void (*)(void *))function_of(caller, NO_##name); \
        if (!TAKEN || !can_park()) \
            set(lock); \
        else if (CALL(int (*)(void *), caller, test)(lock) == 0) \
            ELSEWHERE(set, (lock)); \
    }
LOCK(omp_set_lock, omp_test_lock)
LOCK(omp_set_lock_, omp_test_lock_)
