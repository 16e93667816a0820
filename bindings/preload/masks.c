/*
 * Signal masks, jumps that restore them, and what inherits them: the children of fork, programs, threads. These inherit
 * the thread's CPUs too.
 *
 * A thread of libgosched blocks all signals. Neither a goroutine nor what it starts must have that mask: no signal
 * could end a program that inherited it. So on such a thread a goroutine has a mask of its own. This mask begins as the
 * program's, pthread_sigmask and its kin change it, and what the goroutine starts inherits it. The thread's own mask
 * stays, so no handler runs there. On other threads, of gs_run or attached, the functions are libc's.
 *
 * On a machine with several NUMA nodes libgosched binds threads to the CPUs of one node. What a goroutine starts must
 * not inherit that binding either: it may use the CPUs that the thread could use if it were not bound.
 */
#include "masks.h"
#include "parts.h"

#include <stdarg.h>

/* A mask in the kernel's form: bit n - 1 is signal n. A sigset_t begins with it. */
typedef uint64_t mask;
#define BIT(sig) (UINT64_C(1) << ((sig) - 1))
/* Signals that can't be blocked: the kernel's two, and the two that glibc keeps for itself. */
#define NEVER_BLOCKED (BIT(SIGKILL) | BIT(SIGSTOP) | BIT(32) | BIT(33))

static mask of_set(const sigset_t *set)
{
    mask m;
    memcpy(&m, set, sizeof m);
    return m;
}

static sigset_t set_of(mask m)
{
    sigset_t set;
    sigemptyset(&set);
    memcpy(&set, &m, sizeof m);
    return set;
}

/* The program's mask: that of a thread that libgosched did not make. */
static mask programs;
static atomic_int programs_state; /* 1: being written, 2: known */

/* State of the calling thread, used only in functions of their own, because a goroutine may change its thread. */
static __thread struct {
    bool librarys;               /* libgosched has made the thread, and the program's mask is known */
    const sigset_t *for_a_child; /* the mask for the child of the fork that the thread is in */
    struct taking *taking;       /* the innermost call in which handlers run */
} thread __attribute__((tls_model("initial-exec")));

EACH_CALL bool is_librarys_thread(void)
{
    return thread.librarys;
}

EACH_CALL static void note_librarys_thread(bool is)
{
    thread.librarys = is;
}

EACH_CALL static const sigset_t *mask_for_a_child(void)
{
    return thread.for_a_child;
}

EACH_CALL static void note_mask_for_a_child(const sigset_t *set)
{
    thread.for_a_child = set;
}

EACH_CALL static struct taking *taking_now(void)
{
    return thread.taking;
}

EACH_CALL static void note_taking(struct taking *t)
{
    thread.taking = t;
}

/* Whether the caller is a goroutine with a mask of its own. */
static bool has_own_mask(const void *caller)
{
    return in_goroutine(caller) && is_librarys_thread();
}
#define HAS_OWN_MASK has_own_mask(__builtin_return_address(0))

/* The key of a goroutine's mask. The value has the bit of SIGKILL, which no mask has, so that it isn't NULL. */
static gs_key own_key;

static mask own_mask(void)
{
    mask m = (mask)(uintptr_t)gs_getspecific(own_key);
    return m != 0 ? m & ~BIT(SIGKILL) : programs;
}

/* pthread_sigmask for a goroutine's mask. Returns 0 or an error number. */
static int change_own_mask(int how, const sigset_t *set, sigset_t *before)
{
    mask now = own_mask(), next = now;
    if (set != NULL) {
        mask given = of_set(set) & ~NEVER_BLOCKED;
        switch (how) {
        case SIG_BLOCK: next = now | given; break;
        case SIG_UNBLOCK: next = now & ~given; break;
        case SIG_SETMASK: next = given; break;
        default: return EINVAL;
        }
    }
    if (before != NULL)
        memcpy(before, &now, sizeof now);
    if (next == now)
        return 0;
    int error = errno, failure = -gs_setspecific(own_key, (void *)(uintptr_t)(next | BIT(SIGKILL)));
    errno = error;
    return failure;
}

void *exchange_mask(void *given)
{
    void *had = gs_getspecific(own_key);
    gs_setspecific(own_key, given);
    return had;
}

void masks_start(void)
{
    gs_key_create(&own_key, NULL);
}

/* Forgets the program's mask in the child of a fork: a runtime that the child makes finds it anew. */
void masks_in_child(void)
{
    atomic_store(&programs_state, 0);
    note_librarys_thread(false);
    note_taking(NULL);
}

/* Notes the program's mask when libgosched asks for the thread's, as it does before it makes a thread. */
static void note_programs_mask(void)
{
    int none = 0;
    sigset_t set;
    if (!atomic_compare_exchange_strong(&programs_state, &none, 1))
        return;
    real.pthread_sigmask(SIG_SETMASK, NULL, &set);
    programs = of_set(&set);
    atomic_store(&programs_state, 2);
}

EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    if (is_within(__builtin_return_address(0), &library)) {
        if (set == NULL && atomic_load_explicit(&programs_state, memory_order_relaxed) == 0)
            note_programs_mask();
        /* In the child of a fork libgosched sets the program's mask; the child gets the goroutine's instead. */
        if (set != NULL && how == SIG_SETMASK && mask_for_a_child() != NULL)
            set = mask_for_a_child();
    }
    return HAS_OWN_MASK ? change_own_mask(how, set, before) : real.pthread_sigmask(how, set, before);
}

EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *before)
{
    if (!HAS_OWN_MASK)
        return real.sigprocmask(how, set, before);
    int error = change_own_mask(how, set, before);
    return error == 0 ? 0 : failed(error);
}

/* Older functions */

static int change_one(int how, int sig)
{
    if (sig < 1 || sig > 64)
        return failed(EINVAL);
    sigset_t set = set_of(BIT(sig));
    int error = change_own_mask(how, &set, NULL);
    return error == 0 ? 0 : failed(error);
}

EXPORT int sighold(int sig)
{
    return HAS_OWN_MASK ? change_one(SIG_BLOCK, sig) : real.sighold(sig);
}

EXPORT int sigrelse(int sig)
{
    return HAS_OWN_MASK ? change_one(SIG_UNBLOCK, sig) : real.sigrelse(sig);
}

EXPORT __sighandler_t sigset(int sig, __sighandler_t handler)
{
    if (!HAS_OWN_MASK)
        return real.sigset(sig, handler);
    struct sigaction action = {.sa_handler = handler}, before;
    bool holds = handler == SIG_HOLD;
    if (handler == SIG_ERR || sig < 1 || sig > 64) {
        errno = EINVAL;
        return SIG_ERR;
    }
    bool held = own_mask() & BIT(sig);
    if (sigaction(sig, holds ? NULL : &action, &before) != 0 || change_one(holds ? SIG_BLOCK : SIG_UNBLOCK, sig) != 0)
        return SIG_ERR;
    return held ? SIG_HOLD : before.sa_handler;
}

/* sigblock and sigsetmask know 32 signals. */
static int change_first(int how, int given)
{
    sigset_t set = set_of((unsigned)given), before;
    change_own_mask(how, &set, &before);
    return (int)of_set(&before);
}

EXPORT int sigblock(int given)
{
    return HAS_OWN_MASK ? change_first(SIG_BLOCK, given) : real.sigblock(given);
}

EXPORT int sigsetmask(int given)
{
    return HAS_OWN_MASK ? change_first(SIG_SETMASK, given) : real.sigsetmask(given);
}

EXPORT int siggetmask(void)
{
    return HAS_OWN_MASK ? (int)own_mask() : real.siggetmask();
}

/*
 * raise: a signal that the goroutine doesn't block calls its handler, or ends the program, before raise returns. The
 * thread lets only this signal through, since others may be pending that must not come now.
 */
static int raise_now(int sig)
{
    sigset_t set = set_of(BIT(sig)), before;
    real.pthread_sigmask(SIG_UNBLOCK, &set, &before);
    int r = real.raise(sig);
    real.pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

void begin_taking(struct taking *t, const int *files, struct counts *c)
{
    t->announced = can_park();
    t->files = files;
    if (t->announced) {
        gs_entersyscall(); /* from here on the thread doesn't change */
        if (debug && c != NULL)
            count_handed_off(c);
    }
    t->outer = taking_now();
    t->librarys = is_librarys_thread();
    if (t->librarys)
        real.pthread_sigmask(SIG_SETMASK, NULL, &t->mask);
    note_taking(t);
}

void end_taking(struct taking *t)
{
    note_taking(t->outer);
    if (t->announced)
        gs_exitsyscall(); /* leaves errno as it is */
}

/* Ends the calls with handlers that a jump to this place of the stack leaves. */
static void end_by_jump(uintptr_t to)
{
    for (struct taking *t = taking_now(); t != NULL && (uintptr_t)t < to; t = taking_now()) {
        for (int i = 0; t->files != NULL && i < 2; i++)
            if (t->files[i] >= 0)
                real.close(t->files[i]);
        if (t->librarys)
            real.pthread_sigmask(SIG_SETMASK, &t->mask, NULL);
        end_taking(t);
    }
}

void end_all_taking(void)
{
    stack_t stack;
    if (taking_now() != NULL && !on_alternate_stack(&stack))
        end_by_jump(UINTPTR_MAX);
}

EXPORT int raise(int sig)
{
    COUNTED(raise);
    if (!HAS_OWN_MASK || sig < 1 || sig > 64 || (own_mask() & BIT(sig)))
        return real.raise(sig);
    return TAKING_SIGNALS(raise_now(sig), NULL, &counts);
}
ALIAS(gsignal, raise);

/*
 * sigsetjmp saves the thread's mask, and siglongjmp gives it back to the thread. A goroutine's own mask is saved beside
 * the thread's: the kernel's mask is one word of the sixteen that libc keeps for it. SIGKILL's bit says that an own
 * mask is saved.
 */
static unsigned long *saved_own_mask(struct __jmp_buf_tag *env)
{
    return &env->__saved_mask.__val[sizeof env->__saved_mask / sizeof(unsigned long) - 1];
}

/* Returns libc's function, to which the caller then jumps. */
__attribute__((used)) static void *save_own_mask(struct __jmp_buf_tag *env, int saves_mask, const void *caller)
{
    if (saves_mask)
        *saved_own_mask(env) = has_own_mask(caller) ? own_mask() | BIT(SIGKILL) : 0;
    find_all(); /* the caller may run before our constructor, and early_name has a frame of its own */
    return (void *)real.__sigsetjmp;
}

/* __sigsetjmp returns twice, so the call must leave no frame of its own. The function setjmp saves the mask, unlike the
   macro. */
__asm__(".text\n"
        ".globl setjmp\n"
        ".type setjmp, @function\n"
        "setjmp:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    mov $1, %esi\n"
        "    jmp 1f\n"
        "    .cfi_endproc\n"
        ".size setjmp, . - setjmp\n"
        ".globl __sigsetjmp\n"
        ".type __sigsetjmp, @function\n"
        "__sigsetjmp:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "1:  mov (%rsp), %rdx\n"
        "    push %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    push %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    sub $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call save_own_mask\n"
        "    add $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    pop %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    pop %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    jmp *%rax\n"
        "    .cfi_endproc\n"
        ".size __sigsetjmp, . - __sigsetjmp\n");

/* A copy of env for libc's function, with saved masks replaced where the thread must not get them. */
static struct __jmp_buf_tag for_thread(const struct __jmp_buf_tag *env, const void *caller)
{
    struct __jmp_buf_tag copy = *env;
    mask saved = *saved_own_mask(&copy);
    mask wanted = saved != 0 ? saved & ~BIT(SIGKILL) : copy.__saved_mask.__val[0];
    if (has_own_mask(caller)) {
        sigset_t set = set_of(wanted);
        change_own_mask(SIG_SETMASK, &set, NULL);
        copy.__mask_was_saved = 0;
    } else {
        copy.__saved_mask.__val[0] = wanted;
    }
    return copy;
}

typedef void jump(struct __jmp_buf_tag *env, int value);

/* Jumps by `to`, libc's function. */
static _Noreturn void jump_by(jump *to, struct __jmp_buf_tag *env, int value, const void *caller)
{
    if (env->__mask_was_saved) {
        struct __jmp_buf_tag copy = for_thread(env, caller);
        to(&copy, value);
    } else {
        to(env, value);
    }
    __builtin_unreachable();
}

/* Called on the part of the goroutine's stack that the jump leaves. */
__attribute__((noinline)) static _Noreturn void jump_out(jump *to, struct __jmp_buf_tag *env, int value, const void *caller,
                                                         uintptr_t stack)
{
    end_by_jump(stack);
    jump_by(to, env, value, caller);
}

/* The stack pointer that the jump restores, which libc mangles. */
static uintptr_t stack_of(const struct __jmp_buf_tag *env)
{
    uintptr_t stack = (uintptr_t)env->__jmpbuf[6];
    __asm__("rorq $17, %0\n\txorq %%fs:0x30, %0" : "+r"(stack));
    return stack;
}

/*
 * Whether the jump leads out of a handler and out of the call in which it runs. The handler may have a stack of its
 * own, and jump within that.
 */
static bool leaves(const struct taking *t, uintptr_t stack)
{
    stack_t own;
    if (t == NULL || stack < (uintptr_t)t)
        return false;
    return !on_alternate_stack(&own) || stack - (uintptr_t)own.ss_sp >= own.ss_size;
}

/*
 * gs_exitsyscall may switch, which must not happen on the stack of a handler. So the work before the jump is done on
 * the stack below the call that the jump leaves, where nothing is needed any more.
 */
static _Noreturn void jump_from(jump *to, struct __jmp_buf_tag *env, int value, const void *caller)
{
    struct taking *t = taking_now();
    uintptr_t stack = t != NULL ? stack_of(env) : 0;
    if (!leaves(t, stack))
        jump_by(to, env, value, caller);
    register uintptr_t fifth __asm__("r8") = stack;
    __asm__ volatile("movq %0, %%rsp\n\tcall *%1"
                     :
                     : "r"(((uintptr_t)t - 256) & ~(uintptr_t)15), "r"(jump_out), "D"(to), "S"(env), "d"((long)value),
                       "c"(caller), "r"(fifth)
                     : "memory");
    __builtin_unreachable();
}

#define JUMPS(name) \
    EXPORT _Noreturn void name(jmp_buf env, int value) \
    { \
        jump_from((jump *)real.name, env, value, __builtin_return_address(0)); \
    }
JUMPS(longjmp)
JUMPS(__longjmp_chk)
ALIAS(_longjmp, longjmp);
ALIAS(siglongjmp, longjmp);

/*
 * fork: the child has the goroutine's mask from the beginning, also while handlers of pthread_atfork run, since a
 * signal may come that early.
 */
#define FORKS(result, name, params, args) \
    EXPORT result name params \
    { \
        if (!HAS_OWN_MASK) \
            return real.name args; \
        sigset_t mask_ = set_of(own_mask()); \
        note_mask_for_a_child(&mask_); \
        result pid_ = real.name args; \
        note_mask_for_a_child(NULL); \
        return pid_; \
    }
FORKS(pid_t, fork, (void), ())
FORKS(int, forkpty, (int *pty, char *name, const struct termios *mode, const struct winsize *size), (pty, name, mode, size))
FORKS(int, daemon, (int stays, int open), (stays, open))
ALIAS(__fork, fork);

/*
 * CPUs. A new thread or child inherits the CPUs of the thread that starts it, so the starting thread is unbound for the
 * moment of the call. The new thread must not unbind itself: it could undo what its starter has set for it by then.
 * CPUs in a thread's attributes are set later, and so win.
 */

/* A set of as many CPUs as Linux can have, in words, as the kernel wants them. */
struct cpus {
    unsigned long of[8192 / (8 * sizeof(unsigned long))];
};

static bool get_cpus(struct cpus *cpus)
{
    int error = errno;
    bool got = sched_getaffinity(0, sizeof *cpus, (cpu_set_t *)cpus) == 0;
    errno = error;
    return got;
}

static bool set_cpus(const struct cpus *cpus)
{
    int error = errno;
    bool set = sched_setaffinity(0, sizeof *cpus, (const cpu_set_t *)cpus) == 0;
    errno = error;
    return set;
}

/* Whether libgosched has bound the calling thread to a node. An older libgosched doesn't tell: false. */
static bool is_bound(void)
{
    return gs_numa_unbound_cpus && gs_numa_unbound_cpus(0, NULL) > 0;
}

/* Gets the CPUs that the calling thread may use when not bound. False: it isn't bound. */
static bool unbound_cpus(struct cpus *cpus)
{
    return gs_numa_unbound_cpus && gs_numa_unbound_cpus(sizeof *cpus, cpus) > 0;
}

/* Makes the call while the thread may use the CPUs `given`, if `known`. */
#define WITH_CPUS(known, given, call) \
    __extension__({ \
        struct cpus had_; \
        bool changed_ = (known) && get_cpus(&had_) && set_cpus(given); \
        __typeof__(call) started_ = (call); \
        if (changed_) \
            set_cpus(&had_); \
        started_; \
    })

/* Makes the call while the thread is not bound. */
#define UNBOUND(call) \
    __extension__({ \
        struct cpus unbound_; \
        WITH_CPUS(unbound_cpus(&unbound_), &unbound_, call); \
    })

/* Whether a thread or child that a goroutine starts would be bound. An OpenMP runtime starts its threads where the
   goroutine can't park. */
static bool starts_bound(const void *caller)
{
    return in_goroutine(caller) && is_bound() && (!is_in_openmp(caller) || !can_park());
}

/*
 * Makes a call that starts a thread, child or program. The goroutine must stay on the thread while the thread is not
 * bound, hence KERNEL. gs_entersyscall may move the goroutine to another thread, so only the call itself checks whether
 * the goroutine has a mask of its own.
 */
#define STARTS(call) (starts_bound(__builtin_return_address(0)) ? KERNEL(UNBOUND(call)) : (call))

/*
 * exec: the program inherits the thread's mask, so the thread has the goroutine's mask for the moment before. Handlers
 * may run in this moment; after gs_entersyscall they call libc's functions. It has to be this thread, because the
 * program inherits its priority, processors and so on, too.
 */

/* Takes a pending SIGPIPE, left by a write to a closed pipe: it must not end the new program. */
static void drop_sigpipe(void)
{
    sigset_t pending, pipe = set_of(BIT(SIGPIPE));
    const struct timespec none = {0, 0};
    int error = errno;
    while (sigpending(&pending) == 0 && (of_set(&pending) & BIT(SIGPIPE)) && real.sigtimedwait(&pipe, NULL, &none) > 0)
        ;
    errno = error;
}

/* Makes the call while the thread has the mask `set`. */
#define WITH_MASK(set, call) \
    __extension__({ \
        sigset_t before_; \
        real.pthread_sigmask(SIG_SETMASK, set, &before_); \
        __typeof__(call) made_ = (call); \
        real.pthread_sigmask(SIG_SETMASK, &before_, NULL); \
        made_; \
    })

#define WITH_OWN_MASK(call) \
    __extension__({ \
        sigset_t mask_ = set_of(own_mask()); \
        drop_sigpipe(); \
        KERNEL(WITH_MASK(&mask_, call)); \
    })

#define EXECS(name, params, args) \
    EXPORT int name params \
    { \
        COUNTED(name); \
        return STARTS(HAS_OWN_MASK ? WITH_OWN_MASK(real.name args) : real.name args); \
    }
EXECS(execve, (const char *path, char *const argv[], char *const env[]), (path, argv, env))
EXECS(execv, (const char *path, char *const argv[]), (path, argv))
EXECS(execvp, (const char *file, char *const argv[]), (file, argv))
EXECS(execvpe, (const char *file, char *const argv[], char *const env[]), (file, argv, env))
EXECS(fexecve, (int fd, char *const argv[], char *const env[]), (fd, argv, env))
EXECS(execveat, (int dir, const char *path, char *const argv[], char *const env[], int flags), (dir, path, argv, env, flags))

/* Defines an exec function that takes its arguments up to NULL. They become an array on the stack, because the child of
   a vfork or a signal handler may call. */
#define EXECS_LIST(name, after, as, has_env) \
    EXPORT int name(const char *after, const char *first, ...) \
    { \
        COUNTED(name); \
        va_list list; \
        size_t n = 0; \
        va_start(list, first); \
        for (const char *arg = first; arg != NULL; arg = va_arg(list, const char *)) \
            n++; \
        va_end(list); \
        char *argv[n + 1]; \
        argv[0] = (char *)first; \
        va_start(list, first); \
        for (size_t i = 1; i <= n; i++) \
            argv[i] = va_arg(list, char *); \
        char **env = environ; \
        if (has_env) \
            env = va_arg(list, char **); \
        va_end(list); \
        return STARTS(HAS_OWN_MASK ? WITH_OWN_MASK(real.as(after, argv, env)) : real.as(after, argv, env)); \
    }
EXECS_LIST(execl, path, execve, false)
EXECS_LIST(execle, path, execve, true)
EXECS_LIST(execlp, file, execvpe, false)

/* Programs for which libc forks */

/* The attributes of a child that gets the goroutine's mask, unless the caller gives a mask. */
static posix_spawnattr_t with_own_mask(const posix_spawnattr_t *attr)
{
    posix_spawnattr_t own;
    short flags = 0;
    if (attr != NULL)
        own = *attr;
    else
        posix_spawnattr_init(&own);
    posix_spawnattr_getflags(&own, &flags);
    if (!(flags & POSIX_SPAWN_SETSIGMASK)) {
        sigset_t set = set_of(own_mask());
        posix_spawnattr_setsigmask(&own, &set);
        posix_spawnattr_setflags(&own, (short)(flags | POSIX_SPAWN_SETSIGMASK));
    }
    return own;
}

typedef int spawns(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
                   char *const argv[], char *const env[]);

/* Spawns by `spawn`, libc's function. */
static int spawn_by(spawns *spawn, pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                    const posix_spawnattr_t *attr, char *const argv[], char *const env[], const void *caller)
{
    if (!has_own_mask(caller))
        return spawn(pid, file, actions, attr, argv, env);
    posix_spawnattr_t own = with_own_mask(attr);
    return spawn(pid, file, actions, &own, argv, env);
}

#define SPAWNS(name) \
    EXPORT int name(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, \
                    const posix_spawnattr_t *attr, char *const argv[], char *const env[]) \
    { \
        COUNTED(name); \
        return STARTS(spawn_by(real.name, pid, file, actions, attr, argv, env, __builtin_return_address(0))); \
    }
SPAWNS(posix_spawn)
SPAWNS(posix_spawnp)

sigset_t callers_mask(void)
{
    sigset_t set;
    if (is_librarys_thread())
        return set_of(own_mask());
    real.pthread_sigmask(SIG_SETMASK, NULL, &set);
    return set;
}

/* What a program inherits that another thread starts for the caller. */
struct origin {
    sigset_t set;
    struct cpus cpus;
    bool knows_cpus;
};

static void note_origin(struct origin *o)
{
    o->set = callers_mask();
    o->knows_cpus = unbound_cpus(&o->cpus) || get_cpus(&o->cpus);
}

/* system on another thread. Handlers may run there, which they must not on a goroutine's stack. */
static int system_there(const char *command, const struct origin *o)
{
    return WITH_CPUS(o->knows_cpus, &o->cpus, WITH_MASK(&o->set, real.system(command)));
}

EXPORT int system(const char *command)
{
    COUNTED(system);
    if (!TAKEN)
        return real.system(command);
    struct origin origin;
    note_origin(&origin);
    return ELSEWHERE(system_there, (command, &origin));
}

static FILE *popen_there(const char *command, const char *type, const struct origin *o)
{
    return WITH_CPUS(o->knows_cpus, &o->cpus, WITH_MASK(&o->set, real.popen(command, type)));
}

EXPORT FILE *popen(const char *command, const char *type)
{
    COUNTED(popen);
    if (!TAKEN)
        return real.popen(command, type);
    struct origin origin;
    note_origin(&origin);
    return ELSEWHERE(popen_there, (command, type, &origin));
}

/* Waits for the command, which may wait for a goroutine pinned to the caller's thread. */
WAITS_ELSEWHERE(int, pclose, (FILE *f), (f))

/*
 * Threads. A thread that a goroutine makes begins with the goroutine's mask. pthread_create tells a thread of
 * libgosched by its start function, which is in libgosched.
 */
struct beginning {
    void *(*f)(void *);
    thrd_start_t thrd_f;
    void *arg;
    bool librarys;
    sigset_t set;
};

static struct beginning begun(void *arg)
{
    struct beginning b = *(struct beginning *)arg;
    free(arg);
    if (b.librarys)
        note_librarys_thread(true);
    else
        real.pthread_sigmask(SIG_SETMASK, &b.set, NULL);
    return b;
}

static void *begin_pthread(void *arg)
{
    struct beginning b = begun(arg);
    return b.f(b.arg);
}

static int begin_thrd(void *arg)
{
    struct beginning b = begun(arg);
    return b.thrd_f(b.arg);
}

static int create_pthread(pthread_t *t, const pthread_attr_t *attr, void *(*f)(void *), void *arg, const void *caller)
{
    sigset_t given;
    bool librarys = is_within((const void *)(uintptr_t)f, &library) && atomic_load(&programs_state) == 2;
    if (!librarys && (!has_own_mask(caller) || (attr != NULL && pthread_attr_getsigmask_np(attr, &given) == 0)))
        return real.pthread_create(t, attr, f, arg);
    struct beginning *b = malloc(sizeof *b);
    if (b == NULL)
        return EAGAIN;
    *b = (struct beginning){.f = f, .arg = arg, .librarys = librarys};
    if (!librarys)
        b->set = set_of(own_mask());
    int error = real.pthread_create(t, attr, begin_pthread, b);
    if (error != 0)
        free(b);
    return error;
}

EXPORT int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*f)(void *), void *arg)
{
    COUNTED(pthread_create);
    return STARTS(create_pthread(t, attr, f, arg, __builtin_return_address(0)));
}

static int create_thrd(thrd_t *t, thrd_start_t f, void *arg, const void *caller)
{
    if (!has_own_mask(caller))
        return real.thrd_create(t, f, arg);
    struct beginning *b = malloc(sizeof *b);
    if (b == NULL)
        return thrd_nomem;
    *b = (struct beginning){.thrd_f = f, .arg = arg, .set = set_of(own_mask())};
    int result = real.thrd_create(t, begin_thrd, b);
    if (result != thrd_success)
        free(b);
    return result;
}

EXPORT int thrd_create(thrd_t *t, thrd_start_t f, void *arg)
{
    COUNTED(thrd_create);
    return STARTS(create_thrd(t, f, arg, __builtin_return_address(0)));
}
