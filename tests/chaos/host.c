/* The process around the runtime: forks, signals, threads that come and go, loaded objects, C++. */
#include "chaos.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- Forks: the child starts a runtime of its own ---- */

static void echo_once(void *arg)
{
    gs_chan **c = arg;
    long v = 0;
    if (gs_chan_recv(c[0], &v, GS_FOREVER) == 0)
        (void)gs_chan_send(c[1], &v, GS_FOREVER);
}

static void life_in_child(void *arg)
{
    gs_chan *c[2] = {gs_chan_make(sizeof(long), 0), gs_chan_make(sizeof(long), 1)};
    long v = 5;
    if (gs_spawn(echo_once, c) != 0 || gs_sleep(100 * US) != 0)
        return;
    (void)gs_chan_send(c[0], &v, GS_FOREVER);
    v = 0;
    (void)gs_chan_recv(c[1], &v, GS_FOREVER);
    gs_chan_free(c[0]);
    gs_chan_free(c[1]);
    *(long *)arg = v;
}

static __attribute__((noinline)) pid_t fork_child(void)
{
    pid_t child = fork();
    if (child == 0) {
        long v = 0;
        alarm(60); /* a child that hangs ends by a signal, which the parent reports */
        if (gs_run(life_in_child, &v) != 0 || v != 5)
            _exit(9);
        _exit(gs_shutdown(gs_after_ms(20000)) == 0 ? 0 : 8);
    }
    return child;
}

static void op_fork(struct actor *a)
{
    static atomic_int children;
    if (atomic_fetch_add(&children, 1) < 2 && one_in(a, 12)) {
        pid_t child = fork_child(), r;
        int status = 0;
        MUST(child > 0);
        gs_entersyscallblock();
        while ((r = waitpid(child, &status, 0)) < 0 && errno == EINTR)
            ;
        gs_exitsyscall();
        MUST(r == child);
        if (status != 0)
            WRONG("a forked child ended with wait status 0x%x (0xe: it hung)", status);
    }
    atomic_fetch_sub(&children, 1);
}

/* ---- Threads of the host ---- */

static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;

/* Runs when the thread ends. */
static void call_at_thread_end(void *actor)
{
    struct actor *a = actor;
    gs_yield();
    (void)gs_num_goroutines();
    MUST_BE(gs_spawn(short_life, (void *)(uintptr_t)rnd32(a)), 0);
    free_actor(a);
}

static void make_thread_key(void)
{
    MUST(pthread_key_create(&thread_key, call_at_thread_end) == 0);
}

static void *brief_thread(void *arg)
{
    struct actor *a = arg;
    pthread_setspecific(thread_key, a);
    take_signals();
    for (int i = 0; i < a->steps; i++)
        one_operation(a, 1);
    return NULL;
}

static void op_thread(struct actor *a)
{
    static atomic_int threads;
    struct actor *child;
    pthread_t t;
    pthread_once(&thread_key_once, make_thread_key);
    if (!enabled("threads"))
        return;
    if (atomic_fetch_add(&threads, 1) < 4 && (child = new_actor(false, 1, rnd32(a)))) {
        child->steps = 1 + rnd(a, 5);
        MUST(pthread_create(&t, NULL, brief_thread, child) == 0);
        if (a->go && one_in(a, 2)) {
            pthread_detach(t);
        } else {
            gs_entersyscall();
            pthread_join(t, NULL);
            gs_exitsyscall();
        }
    }
    atomic_fetch_sub(&threads, 1);
}

/* ---- Signals of the host ---- */

static void mask_signals(int how)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(how, &one, NULL);
}

/* A thread inherits a mask that blocks them when a goroutine has made it. */
void take_signals(void)
{
    mask_signals(SIG_UNBLOCK);
}

/* For threads that serve the test: others take the host's signals. The library's signal must get through, or gs_leaks
   can't halt the thread. */
void leave_signals_to_others(void)
{
    mask_signals(SIG_BLOCK);
}

static atomic_long signals;
static atomic_bool stop_signals;
static pthread_t signal_thread;
static bool signals_sent;

static void on_signal(int sig)
{
    (void)sig;
    atomic_fetch_add(&signals, 1);
}

/* Alternately to the process and to the thread that an operation has named last. */
static _Atomic pid_t some_thread;

static void *send_signals(void *arg)
{
    (void)arg;
    leave_signals_to_others();
    for (int i = 0; !atomic_load(&stop_signals); i++) {
        pid_t tid = atomic_load(&some_thread);
        if (i % 2 && tid)
            (void)syscall(SYS_tgkill, getpid(), tid, SIGUSR1);
        else
            kill(getpid(), SIGUSR1);
        block_for(400 * US);
    }
    return NULL;
}

static void op_signal(struct actor *a)
{
    sigset_t mask;
    atomic_store(&some_thread, (pid_t)syscall(SYS_gettid));
    /* The library's own threads leave the host's signals to others. */
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (one_in(a, 4) && signals_sent && !sigismember(&mask, SIGUSR1)) {
        long before = atomic_load(&signals);
        raise(SIGUSR1);
        MUST(atomic_load(&signals) > before);
    }
}

/* ---- Loaded objects and C++ ---- */

static char plugin_path[2][4096];

static void op_dlopen(struct actor *a)
{
    static atomic_int at_once;
    void *object;
    int (*entry)(unsigned);
    int r;
    if (atomic_fetch_add(&at_once, 1) < 3 && one_in(a, 4)) {
        const char *path = plugin_path[rnd(a, 2)];
        if (access(path, R_OK) == 0) {
            object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (!object)
                WRONG("dlopen: %s", dlerror());
            *(void **)&entry = dlsym(object, "plugin_entry");
            MUST(entry != NULL);
            MUST_BE(r = entry(rnd32(a)), 0);
            gs_yield();
            MUST(dlclose(object) == 0);
        }
    }
    atomic_fetch_sub(&at_once, 1);
}

static void op_throw(struct actor *a)
{
#ifdef CHAOS_NO_CXX
    (void)a;
#else
    int r = throw_and_catch(rnd32(a));
    if (r != 0)
        WRONG("C++ exceptions: throw_and_catch says %d", r);
#endif
}

/* ---- The process ---- */

void host_start(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    ssize_t n = readlink("/proc/self/exe", plugin_path[0], sizeof plugin_path[0] - 32);
    char *slash;
    MUST(n > 0 && (slash = strrchr(plugin_path[0], '/')) != NULL);
    slash[1] = 0;
    strcpy(plugin_path[1], plugin_path[0]);
    strcat(plugin_path[0], "chaos-plugin.so");
    strcat(plugin_path[1], "chaos-plugin-static.so");
    signals_sent = enabled("signals");
    if (!signals_sent)
        return;
    sigaction(SIGUSR1, &sa, NULL);
    MUST(pthread_create(&signal_thread, NULL, send_signals, NULL) == 0);
}

void host_stop(void)
{
    if (!signals_sent)
        return;
    atomic_store(&stop_signals, true);
    pthread_join(signal_thread, NULL);
}

const struct op ops_host[] = {
    {"fork", op_fork, 1, REAL},
    {"thread", op_thread, 1, SHALLOW | REAL},
    {"signal", op_signal, 2, NO_LOCKS | REAL},
    {"dlopen", op_dlopen, 1, REAL},
    {"throw", op_throw, 3, 0},
    {NULL, NULL, 0, 0},
};
