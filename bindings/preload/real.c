/* Finding libc's own functions; finding the caller of a function; debug output; fork. */
#include "preload.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <unwind.h>

/* Of libgcc_s, which the library needs too. */
#pragma weak _Unwind_Backtrace
#pragma weak _Unwind_GetIP

int *errno_here(void)
{
    return __errno_location();
}

/* Finding libc's functions */

static _Noreturn void die(const char *name);

/* The last argument of functions that declare it as `...`. */
#define LAST_ARGUMENT(name, after) \
    va_list list_; \
    va_start(list_, after); \
    long name = va_arg(list_, long); \
    va_end(list_)

/*
 * Until a function has been found its pointer is early_name, which looks for all functions. Calls may come that
 * early: from the constructor of another library, for instance, before ours has run. While functions are looked for,
 * dlsym may itself call one of them: it allocates, and a malloc that the program brings (jemalloc in redis-server)
 * makes a key, locks a mutex or opens a file. Then raw_name does the work. A reference to libc's name would not do:
 * even with a version it finds the function that this library exports.
 */
static struct {
    int (*pthread_key_create)(pthread_key_t *, void (*)(void *));
    void *(*pthread_getspecific)(pthread_key_t);
    int (*pthread_setspecific)(pthread_key_t, const void *);
    int (*pthread_mutex_lock)(pthread_mutex_t *);
    int (*pthread_mutex_trylock)(pthread_mutex_t *);
    int (*pthread_mutex_unlock)(pthread_mutex_t *);
} raw;

#define raw_pthread_mutex_lock raw.pthread_mutex_lock
#define raw_pthread_mutex_trylock raw.pthread_mutex_trylock
#define raw_pthread_mutex_unlock raw.pthread_mutex_unlock
#define raw_pthread_key_create raw.pthread_key_create
#define raw_pthread_getspecific raw.pthread_getspecific
#define raw_pthread_setspecific raw.pthread_setspecific
#define raw_read(fd, buf, n) raw_syscall(SYS_read, fd, buf, n)
#define raw_write(fd, buf, n) raw_syscall(SYS_write, fd, buf, n)
#define raw_pread64(fd, buf, n, at) raw_syscall(SYS_pread64, fd, buf, n, at)
#define raw_pthread_sigmask(how, set, before) (int)raw_syscall(SYS_rt_sigprocmask, how, set, before, 8)
#define raw_close(fd) (int)raw_syscall(SYS_close, fd)

#define F(result, name, params, args) \
    static result early_##name params \
    { \
        find_all(); \
        if (real.name == early_##name) \
            die(#name); \
        return real.name args; \
    }
#define R(result, name, params, args) \
    static result early_##name params \
    { \
        find_all(); \
        if (real.name == early_##name) \
            return raw_##name args; \
        return real.name args; \
    }
#define V(result, name, params, args) static result early_##name params;
#include "functions.h"
#undef F
#undef R
#undef V

struct real real = {
#define F(result, name, params, args) .name = early_##name,
#define R F
#define V F
#include "functions.h"
#undef F
#undef R
#undef V
};

static int early_open64(const char *path, int flags, ...)
{
    LAST_ARGUMENT(mode, flags);
    find_all();
    return real.open64 == early_open64 ? (int)raw_syscall(SYS_openat, AT_FDCWD, path, flags, mode)
                                       : real.open64(path, flags, mode);
}

static int early_openat64(int dir, const char *path, int flags, ...)
{
    LAST_ARGUMENT(mode, flags);
    find_all();
    return real.openat64 == early_openat64 ? (int)raw_syscall(SYS_openat, dir, path, flags, mode)
                                           : real.openat64(dir, path, flags, mode);
}

static int early_fcntl64(int fd, int cmd, ...)
{
    LAST_ARGUMENT(arg, cmd);
    find_all();
    return real.fcntl64 == early_fcntl64 ? (int)raw_syscall(SYS_fcntl, fd, cmd, arg) : real.fcntl64(fd, cmd, arg);
}

/* The hash of a name in a GNU hash table. */
static uint32_t hash_of(const char *name)
{
    uint32_t h = 5381;
    for (; *name; name++)
        h = h * 33 + (unsigned char)*name;
    return h;
}

void *defined_in(const struct dl_phdr_info *object, const char *name)
{
    const ElfW(Dyn) *dyn = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *table = NULL;
    const ElfW(Half) *versions = NULL;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dyn = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (; dyn != NULL && dyn->d_tag != DT_NULL; dyn++) {
        uintptr_t at = dyn->d_un.d_ptr;
        if (at < object->dlpi_addr) /* the kernel's object, which the dynamic linker leaves as it is */
            at += object->dlpi_addr;
        switch (dyn->d_tag) {
        case DT_SYMTAB: symbols = (const void *)at; break;
        case DT_STRTAB: strings = (const void *)at; break;
        case DT_GNU_HASH: table = (const void *)at; break;
        case DT_VERSYM: versions = (const void *)at; break;
        }
    }
    if (!symbols || !strings || !table || table[0] == 0)
        return NULL;
    const uint32_t *buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table), *chains = buckets + table[0];
    uint32_t hash = hash_of(name), i = buckets[hash % table[0]];
    if (i < table[1])
        return NULL;
    for (;; i++) {
        uint32_t found = chains[i - table[1]];
        const ElfW(Sym) *s = &symbols[i];
        bool hidden = versions && versions[i] & 0x8000; /* an older version */
        if ((found | 1) == (hash | 1) && !hidden && s->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(s->st_info) == STT_FUNC &&
            strcmp(strings + s->st_name, name) == 0)
            return (void *)(object->dlpi_addr + s->st_value);
        if (found & 1)
            return NULL;
    }
}

/* Looks into libc, and into libpthread where that is a library of its own. */
static int find_raw(struct dl_phdr_info *object, size_t size, void *arg)
{
    const char *file = strrchr(object->dlpi_name, '/');
    (void)size;
    (void)arg;
    if (!file || (strcmp(file, "/libc.so.6") != 0 && strcmp(file, "/libpthread.so.0") != 0))
        return 0;
#define RAW(name) \
    do { \
        void *f = defined_in(object, #name); \
        if (f) \
            memcpy(&raw.name, &f, sizeof f); \
    } while (0)
    RAW(pthread_key_create);
    RAW(pthread_getspecific);
    RAW(pthread_setspecific);
    RAW(pthread_mutex_lock);
    RAW(pthread_mutex_trylock);
    RAW(pthread_mutex_unlock);
#undef RAW
    return 0;
}

/* Whether glibc is too old to have the function. */
static bool is_newer_than_libc(const char *name)
{
    int minor = atoi(gnu_get_libc_version() + strlen("2."));
    if (strncmp(name, "__isoc23_", 9) == 0)
        return minor < 38;
    return strcmp(name, "epoll_pwait2") == 0 && minor < 35;
}

/* Of a name that isn't there, dlsym allocates. A malloc of the program's may be at work just now, and wait for itself. */
static void find(const char *name, void **at)
{
    if (is_newer_than_libc(name))
        return;
    /* Without a version dlsym may give the condition variables of 2002, which are something else. */
    bool is_old = strncmp(name, "pthread_cond_", 13) == 0 && strcmp(name, "pthread_cond_clockwait") != 0;
    void *f = is_old ? dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2") : dlsym(RTLD_NEXT, name);
    if (f != NULL)
        __atomic_store_n(at, f, __ATOMIC_RELEASE);
}

void find_all(void)
{
    static atomic_uint state; /* 1: being done, 2: done */
    static _Atomic pid_t by;
    unsigned none = 0;
    if (atomic_load(&state) == 2)
        return;
    if (atomic_compare_exchange_strong(&state, &none, 1)) {
        int error = errno;
        atomic_store(&by, (pid_t)raw_syscall(SYS_gettid));
        dl_iterate_phdr(find_raw, NULL);
#define F(result, name, params, args) find(#name, (void **)&real.name);
#define R F
#define V F
#include "functions.h"
#undef F
#undef R
#undef V
        atomic_store(&state, 2);
        errno = error;
    } else if (atomic_load(&by) != (pid_t)raw_syscall(SYS_gettid)) {
        while (atomic_load(&state) != 2)
            spin();
    }
}

static _Noreturn void die(const char *name)
{
    static const char before[] = "gosched-preload: libc has no ", after[] = ", or it was called while it was looked for\n";
    (void)!raw_syscall(SYS_write, 2, before, sizeof before - 1);
    (void)!raw_syscall(SYS_write, 2, name, strlen(name));
    (void)!raw_syscall(SYS_write, 2, after, sizeof after - 1);
    abort();
}

/* Who calls */

struct range library, allocator;
static pid_t process; /* the process whose memory this is: not a vfork's child */

struct search {
    uintptr_t address;
    struct range *range;
    bool first; /* the next object is the program */
    bool not_program;
};

struct range range_of(const struct dl_phdr_info *object)
{
    uintptr_t from = UINTPTR_MAX, to = 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type != PT_LOAD)
            continue;
        uintptr_t begin = object->dlpi_addr + part->p_vaddr;
        if (begin < from)
            from = begin;
        if (begin + part->p_memsz > to)
            to = begin + part->p_memsz;
    }
    return (struct range){from, to - from};
}

static int find_object(struct dl_phdr_info *object, size_t size, void *arg)
{
    struct search *s = arg;
    struct range range = range_of(object);
    bool program = s->first;
    (void)size;
    s->first = false;
    if (!is_within((const void *)s->address, &range))
        return 0;
    if (!(program && s->not_program))
        *s->range = range;
    return 1;
}

static void find_callers(void)
{
    struct search of_library = {.address = (uintptr_t)gs_self, .range = &library, .first = true};
    dl_iterate_phdr(find_object, &of_library);
    /*
     * A malloc that isn't libc's locks, and keeps a thread's memory, by the functions that are taken over here. For
     * such a malloc they must stay the thread's, because libgosched allocates on every stack. A malloc in the program
     * itself can't be told from the rest of the program.
     */
    struct search of_malloc = {.address = (uintptr_t)dlsym(RTLD_DEFAULT, "malloc"), .range = &allocator, .first = true,
                               .not_program = true};
    if (of_malloc.address != (uintptr_t)dlsym(RTLD_NEXT, "__libc_malloc"))
        dl_iterate_phdr(find_object, &of_malloc);
}

/*
 * Compilers turn the last call of a function into a jump (pthread_mutex_unlock at the end of a goroutine's function,
 * say), so that the call returns to libgosched. The functions of all goroutines return to one place: the outermost
 * frame of a goroutine.
 */
static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *outermost)
{
    uintptr_t at = _Unwind_GetIP(context);
    if (at != 0)
        *(uintptr_t *)outermost = at;
    return _URC_NO_REASON;
}

static _Atomic uintptr_t last_calls_return_to; /* 0: not known yet */

bool is_last_call(const void *caller)
{
    uintptr_t found = atomic_load_explicit(&last_calls_return_to, memory_order_relaxed);
    if (found == 0 && _Unwind_Backtrace && gs_self()) {
        _Unwind_Backtrace(note_frame, &found);
        if (!is_within((const void *)found, &library))
            return false; /* on the thread's own stack */
        atomic_store_explicit(&last_calls_return_to, found, memory_order_relaxed);
    }
    return (uintptr_t)caller == found;
}

bool is_known_last_call(const void *caller)
{
    return (uintptr_t)caller == atomic_load_explicit(&last_calls_return_to, memory_order_relaxed);
}

bool on_alternate_stack(stack_t *stack)
{
    return raw_syscall(SYS_sigaltstack, NULL, stack) == 0 && (stack->ss_flags & SS_ONSTACK);
}

bool can_park(void)
{
    gs_g_info info;
    stack_t stack;
    gs_g *g = gs_self();
    /* GS_G_SYSCALL: in gs_blocking, or after gs_entersyscall, where the thread counts as a plain one. */
    if (g == NULL || gs_g_info_read(g, &info, sizeof info) != 0 || info.state != GS_G_RUNNING)
        return false;
    /* The child of a vfork runs in its parent's memory: to the library it seems to be the goroutine. */
    if (getpid() != process)
        return false;
    return !on_alternate_stack(&stack);
}

/* Calls on another thread */

struct errand {
    void *(*f)(void *);
    void *arg;
};

static void run_errand(void *arg)
{
    struct errand *e = arg;
    /* Surely the place, also where the goroutines of the program have no unwind tables. */
    atomic_store_explicit(&last_calls_return_to, (uintptr_t)__builtin_return_address(0), memory_order_relaxed);
    gs_lock_os_thread(); /* moves to a thread that no goroutine is pinned to */
    gs_blocking(e->f, e->arg);
    gs_unlock_os_thread();
}

bool call_elsewhere(void *(*f)(void *), void *arg, struct counts *c)
{
    struct errand e = {f, arg};
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_g *g;
    opts.name = c->name;
    if (!can_park() || gs_spawn_with(run_errand, &e, &opts, &g) != 0)
        return false;
    if (debug)
        count_handed_off(c);
    gs_cancel_disable();
    gs_join(g, GS_FOREVER);
    gs_cancel_enable();
    gs_release(g);
    return true;
}

static void *nothing(void *arg)
{
    return arg;
}

void find_last_call(void)
{
    static struct counts counts = {.name = "syscall"};
    if (atomic_load_explicit(&last_calls_return_to, memory_order_relaxed) == 0)
        call_elsewhere(nothing, NULL, &counts); /* run_errand finds it */
}

struct kernel_call {
    void (*f)(void);
    const long *args;
    locale_t locale; /* the thread's */
    long result;
    int error;
};

/* Numbers and pointers are passed in the same registers, whatever their types. */
static void *make_call(void *arg)
{
    struct kernel_call *c = arg;
    const long *a = c->args;
    locale_t before = uselocale(c->locale);
    errno = c->error;
    c->result = ((long (*)(long, long, long, long, long, long))c->f)(a[0], a[1], a[2], a[3], a[4], a[5]);
    c->error = errno;
    uselocale(before);
    return NULL;
}

long wait_elsewhere(void (*f)(void), const long args[6], struct counts *c)
{
    struct kernel_call call = {f, args, uselocale(NULL), 0, errno};
    if (!call_elsewhere(make_call, &call, c))
        make_call(&call); /* as libc does */
    errno = call.error;
    return call.result;
}

/* GOSCHED_PRELOAD_DEBUG: 1: each function that is taken over, once, and the counts at the end; 2: each time. */

int debug;
static _Atomic(struct counts *) all_counts;

static void say(const char *format, ...)
{
    char line[300] = "gosched-preload: ";
    va_list list;
    va_start(list, format);
    int error = errno, n = 17 + vsnprintf(line + 17, sizeof line - 18, format, list);
    va_end(list);
    n = n > (int)sizeof line - 2 ? (int)sizeof line - 2 : n;
    line[n] = '\n';
    (void)!raw_syscall(SYS_write, 2, line, n + 1);
    errno = error;
}

static void count(struct counts *c, atomic_ulong *n, const char *what)
{
    atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
    if (!atomic_exchange(&c->listed, true)) {
        struct counts *head = atomic_load(&all_counts);
        do
            c->next = head;
        while (!atomic_compare_exchange_weak(&all_counts, &head, c));
        say("%s is taken over", c->name);
    }
    if (debug > 1)
        say("%s %s goroutine %llu", c->name, what, (unsigned long long)gs_id(gs_self()));
}

void count_parked(struct counts *c)
{
    count(c, &c->parked, "parks");
}

void count_handed_off(struct counts *c)
{
    count(c, &c->handed_off, "may block the thread of");
}

static void say_counts(void)
{
    for (struct counts *c = atomic_load(&all_counts); c != NULL; c = c->next)
        say("%s: goroutines have parked %lu times, and given up their P for a call of the kernel %lu times",
            c->name, atomic_load(&c->parked), atomic_load(&c->handed_off));
}

/* Beginning, and fork */

static const uint32_t never;
const volatile uint32_t *asked_to_give_way = &never;

static void in_child(void)
{
    process = getpid();
    if (gs_self) {
        waiters_in_child();
        files_in_child();
        streams_in_child();
        masks_in_child();
        sync_in_child();
    }
}

__attribute__((constructor(101))) static void begin(void)
{
    find_all();
    futex_start();
    process = getpid();
    const char *wanted = getenv("GOSCHED_PRELOAD_DEBUG");
    debug = wanted ? atoi(wanted) : 0;
    if (gs_self) {
        find_callers();
        asked_to_give_way = gs_preempt_flag();
        several_start();
        streams_start();
        sync_start();
        keys_start();
        exits_start();
        openmp_start();
        masks_start();
    }
    pthread_atfork(NULL, NULL, in_child);
    if (debug > 0) {
        if (gs_self)
            say("takes over blocking calls of goroutines; libgosched %s, glibc %s", gs_version(), gnu_get_libc_version());
        else
            say("takes over nothing: the program is not linked with libgosched.so");
        atexit(say_counts);
    }
}

/* Times */

gs_deadline after(int64_t ns)
{
    int64_t now = gs_now(), end;
    if (ns < 0 || __builtin_add_overflow(now, ns, &end))
        return GS_FOREVER;
    return end > 0 ? end : 1;
}

gs_deadline deadline_on(clockid_t clock, const struct timespec *t)
{
    struct timespec now;
    int64_t left;
    if (clock_gettime(clock, &now) != 0)
        return GS_FOREVER;
    if (t->tv_sec < 0)
        return 1; /* long ago */
    left = ns_of(t) == INT64_MAX ? INT64_MAX : ns_of(t) - ns_of(&now);
    return left <= 0 ? 1 : after(left);
}

struct timespec time_left(gs_deadline deadline)
{
    int64_t left = deadline == GS_FOREVER ? INT64_MAX : deadline - gs_now();
    if (left < 0)
        left = 0;
    return (struct timespec){.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
}
