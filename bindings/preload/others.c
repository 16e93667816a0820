/* Sleeping, waiting for children, vfork, names, signals, messages. */
#include "files.h"
#include "times.h"

/* Sleeping */

/* clock_nanosleep for a goroutine. Returns 0 or an error number. */
static int sleep_on(clockid_t clock, int flags, const struct timespec *t, struct timespec *left, struct counts *c)
{
#define counts (*c)
    struct timespec time;
    int before = errno, error;
    bool absolute = flags & TIMER_ABSTIME;
    if ((clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME) || !can_park())
        return KERNEL(real.clock_nanosleep(clock, flags, t, left));
    bool readable = copy_in(&time, t, sizeof time);
    errno = before;
    if (!readable)
        return EFAULT;
    if (!is_time(&time))
        return EINVAL;
    PARKS;
    if (!absolute || clock == CLOCK_MONOTONIC) {
        gs_deadline deadline = absolute ? (ns_of(&time) > 0 ? ns_of(&time) : 1) : after(ns_of(&time));
        error = -gs_sleep_until(deadline);
        if (error == ENOMEM)
            error = KERNEL(real.clock_nanosleep(clock, flags, t, left));
        else if (error != 0 && !absolute && left != NULL)
            *left = time_left(deadline);
        return error;
    }
    /* In a loop, because the clock may be set meanwhile. */
    for (;;) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        int64_t remains = ns_of(&time) == INT64_MAX ? INT64_MAX : ns_of(&time) - ns_of(&now);
        if (remains <= 0)
            return 0;
        error = -gs_sleep(remains < NS_PER_S ? remains : NS_PER_S);
        if (error != 0)
            return error == ENOMEM ? KERNEL(real.clock_nanosleep(clock, flags, t, left)) : error;
    }
#undef counts
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *t, struct timespec *left)
{
    COUNTED(clock_nanosleep);
    return TAKEN ? sleep_on(clock, flags, t, left, &counts) : real.clock_nanosleep(clock, flags, t, left);
}

EXPORT int nanosleep(const struct timespec *t, struct timespec *left)
{
    COUNTED(nanosleep);
    if (!TAKEN)
        return real.nanosleep(t, left);
    int error = sleep_on(CLOCK_REALTIME, 0, t, left, &counts);
    return error == 0 ? 0 : failed(error);
}
ALIAS(__nanosleep, nanosleep);

EXPORT int usleep(useconds_t us)
{
    COUNTED(usleep);
    if (!TAKEN)
        return real.usleep(us);
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    int error = sleep_on(CLOCK_REALTIME, 0, &t, NULL, &counts);
    return error == 0 ? 0 : failed(error);
}

EXPORT unsigned sleep(unsigned s)
{
    COUNTED(sleep);
    if (!TAKEN)
        return real.sleep(s);
    struct timespec t = {s, 0}, left = {0, 0};
    return sleep_on(CLOCK_REALTIME, 0, &t, &left, &counts) == 0 ? 0 : (unsigned)left.tv_sec + (left.tv_nsec > 0);
}

EXPORT int thrd_sleep(const struct timespec *t, struct timespec *left)
{
    COUNTED(thrd_sleep);
    if (!TAKEN)
        return real.thrd_sleep(t, left);
    switch (sleep_on(CLOCK_REALTIME, 0, t, left, &counts)) {
    case 0: return 0;
    case EINTR: case ECANCELED: return -1;
    default: return -2;
    }
}

/*
 * Gives way, for a goroutine that does so in a loop. It waits for another goroutine, which may be pinned to the same
 * thread, or for a thread, to which the kernel may give the processor.
 */
static void give_way(struct counts *c)
{
#define counts (*c)
    if (can_park()) {
        PARKS;
        gs_yield();
    }
#undef counts
}

EXPORT int sched_yield(void)
{
    COUNTED(sched_yield);
    if (gs_self && gs_self())
        note_runtime(__builtin_return_address(0), false);
    if (TAKEN)
        give_way(&counts);
    return real.sched_yield();
}
ALIAS(__sched_yield, sched_yield);

EXPORT void thrd_yield(void)
{
    COUNTED(thrd_yield);
    if (TAKEN)
        give_way(&counts);
    real.thrd_yield();
}

/* Children */

/*
 * Waits until a child that is running may have ended. HOW_KERNEL: only the kernel can wait, because the child is not
 * named by its number, or the caller also wants to know when it stops.
 */
static enum how wait_for_child(pid_t pid, struct counts *c)
{
    int fd = pid > 0 && can_park() ? (int)raw_syscall(SYS_pidfd_open, pid, 0) : -1;
    if (fd < 0)
        return HOW_KERNEL;
    struct file f = {.fd = fd};
    if (debug)
        count_parked(c);
    int error = wait_for_file(&f, POLLIN, GS_FOREVER, NULL);
    real.close(f.fd);
    if (error == 0)
        return HOW_PARK;
    errno = error;
    return error == ECANCELED ? HOW_NOT : HOW_KERNEL;
}

static pid_t do_wait4(pid_t pid, int *status, int options, struct rusage *usage, struct counts *c)
{
#define counts (*c)
    int before = errno;
    /* The child is named by number, and only its end is waited for: see wait_for_child. */
    while (pid > 0 && !(options & ~__WALL)) {
        pid_t r = real.wait4(pid, status, options | WNOHANG, usage);
        if (r != 0) {
            if (r > 0)
                errno = before;
            return r;
        }
        switch (wait_for_child(pid, c)) {
        case HOW_PARK: continue;
        case HOW_NOT: return -1;
        case HOW_KERNEL: break;
        }
        errno = before;
        break;
    }
    return ELSEWHERE(real.wait4, (pid, status, options, usage));
#undef counts
}

#define WAITS(name, params, args, pid, options, usage) \
    EXPORT pid_t name params \
    { \
        COUNTED(name); \
        if (((options) & WNOHANG) || !TAKEN) \
            return real.name args; \
        return do_wait4(pid, status, options, usage, &counts); \
    }
WAITS(wait, (int *status), (status), -1, 0, NULL)
WAITS(waitpid, (pid_t pid, int *status, int options), (pid, status, options), pid, options, NULL)
WAITS(wait3, (int *status, int options, struct rusage *usage), (status, options, usage), -1, options, usage)
WAITS(wait4, (pid_t pid, int *status, int options, struct rusage *usage), (pid, status, options, usage), pid, options, usage)
ALIAS(__wait, wait);
ALIAS(__waitpid, waitpid);

EXPORT int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    COUNTED(waitid);
    if ((options & WNOHANG) || !TAKEN)
        return real.waitid(type, id, info, options);
    int before = errno;
    while (type == P_PID && info != NULL && !(options & ~(WEXITED | WNOWAIT | __WALL))) {
        siginfo_t seen = {0};
        int r = real.waitid(type, id, &seen, options | WNOHANG);
        if (r != 0)
            return r;
        if (seen.si_pid != 0) {
            errno = before;
            *info = seen;
            return 0;
        }
        switch (wait_for_child((pid_t)id, &counts)) {
        case HOW_PARK: continue;
        case HOW_NOT: return -1;
        case HOW_KERNEL: break;
        }
        errno = before;
        break;
    }
    return ELSEWHERE(real.waitid, (type, id, info, options));
}

/*
 * The child of a vfork runs in its parent's memory, on the parent's stack, so libgosched would take it for the
 * goroutine. So in a goroutine vfork is a fork. The call must leave no frame of its own, because the child returns
 * first.
 */
__attribute__((used)) static void *what_vfork_is(const void *caller)
{
    return on_goroutine(caller) ? (void *)fork : (void *)real.vfork;
}
__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    mov (%rsp), %rdi\n"
        "    sub $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call what_vfork_is\n"
        "    add $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    jmp *%rax\n"
        "    .cfi_endproc\n"
        ".size vfork, . - vfork\n"
        ".globl __vfork\n"
        ".set __vfork, vfork\n");

/* Names: looked up on a thread's own stack, which is deep enough for any module of /etc/nsswitch.conf */

struct lookup {
    const char *node, *service;
    const struct addrinfo *hints;
    struct addrinfo **res;
    int result;
    int error; /* errno, which EAI_SYSTEM refers to */
};

static void *look_up(void *arg)
{
    struct lookup *l = arg;
    errno = l->error;
    l->result = real.getaddrinfo(l->node, l->service, l->hints, l->res);
    l->error = errno;
    return NULL;
}

EXPORT int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res)
{
    COUNTED(getaddrinfo);
    if (!TAKEN || !can_park())
        return real.getaddrinfo(node, service, hints, res);
    /* A numeric address and service need no file and no server. */
    struct addrinfo numeric = hints ? *hints : (struct addrinfo){.ai_flags = AI_V4MAPPED | AI_ADDRCONFIG};
    bool number = service == NULL || (service[0] != 0 && strspn(service, "0123456789") == strlen(service));
    if (number && !(numeric.ai_flags & AI_CANONNAME)) {
        int before = errno;
        numeric.ai_flags |= AI_NUMERICHOST;
        int r = real.getaddrinfo(node, service, &numeric, res);
        if (r == 0 || (hints && (hints->ai_flags & AI_NUMERICHOST)) || r != EAI_NONAME)
            return r;
        errno = before;
    }
    struct lookup l = {node, service, hints, res, 0, errno};
    if (!call_elsewhere(look_up, &l, &counts))
        look_up(&l);
    errno = l.error;
    return l.result;
}

/*
 * These functions report errors in the thread's h_errno, which is copied to the caller's thread. `asks`: whether the
 * call needs a file or a server.
 */
#define ON_THREADS_STACK(result, none, name, asks, params, args, fields, values) \
    struct name##_call { \
        fields \
        result r; \
        int host_error, error; \
    }; \
    static void *name##_there(void *arg) \
    { \
        struct name##_call *c = arg; \
        errno = c->error; \
        c->r = real.name args; \
        c->host_error = h_errno; \
        c->error = errno; \
        return NULL; \
    } \
    EXPORT result name params \
    { \
        COUNTED(name); \
        struct name##_call call = {values none, 0, errno}, *c = &call; \
        if (!(asks) || !TAKEN || !call_elsewhere(name##_there, &call, &counts)) \
            return real.name args; \
        h_errno = call.host_error; \
        errno = call.error; \
        return call.r; \
    }
#define COMMA ,
#define P(...) __VA_ARGS__
ON_THREADS_STACK(int, 0, getnameinfo,
    P((host != NULL && host_n > 0 && !(flags & NI_NUMERICHOST)) || (service != NULL && service_n > 0 && !(flags & NI_NUMERICSERV))),
    (const struct sockaddr *sa, socklen_t len, char *host, socklen_t host_n, char *service, socklen_t service_n, int flags),
    (c->sa, c->len, c->host, c->host_n, c->service, c->service_n, c->flags),
    const struct sockaddr *sa; socklen_t len; char *host; socklen_t host_n; char *service; socklen_t service_n; int flags;,
    P(sa, len, host, host_n, service, service_n, flags,))
ON_THREADS_STACK(struct hostent *, NULL, gethostbyname, true, (const char *name), (c->name), const char *name;, P(name,))
ON_THREADS_STACK(struct hostent *, NULL, gethostbyname2, true, (const char *name, int family), (c->name, c->family),
    const char *name; int family;, P(name, family,))
ON_THREADS_STACK(int, 0, gethostbyname_r, true,
    (const char *name, struct hostent *ret, char *buf, size_t n, struct hostent **res, int *err),
    (c->name, c->ret, c->buf, c->n, c->res, c->err),
    const char *name; struct hostent *ret; char *buf; size_t n; struct hostent **res; int *err;,
    P(name, ret, buf, n, res, err,))
ON_THREADS_STACK(int, 0, gethostbyname2_r, true,
    (const char *name, int family, struct hostent *ret, char *buf, size_t n, struct hostent **res, int *err),
    (c->name, c->family, c->ret, c->buf, c->n, c->res, c->err),
    const char *name; int family; struct hostent *ret; char *buf; size_t n; struct hostent **res; int *err;,
    P(name, family, ret, buf, n, res, err,))
ON_THREADS_STACK(struct hostent *, NULL, gethostbyaddr, true, (const void *addr, socklen_t len, int family),
    (c->addr, c->len, c->family), const void *addr; socklen_t len; int family;, P(addr, len, family,))
ON_THREADS_STACK(int, 0, gethostbyaddr_r, true,
    (const void *addr, socklen_t len, int family, struct hostent *ret, char *buf, size_t n, struct hostent **res, int *err),
    (c->addr, c->len, c->family, c->ret, c->buf, c->n, c->res, c->err),
    const void *addr; socklen_t len; int family; struct hostent *ret; char *buf; size_t n; struct hostent **res; int *err;,
    P(addr, len, family, ret, buf, n, res, err,))

EXPORT int getaddrinfo_a(int mode, struct gaicb *list[], int n, struct sigevent *told)
{
    COUNTED(getaddrinfo_a);
    return mode == GAI_WAIT && TAKEN ? ELSEWHERE(real.getaddrinfo_a, (mode, list, n, told)) : real.getaddrinfo_a(mode, list, n, told);
}

WAITS_ELSEWHERE(int, gai_suspend, (const struct gaicb *const list[], int n, const struct timespec *t), (list, n, t))

/* Signals and messages: the kernel waits, on another thread */

/*
 * Takes a signal that is already pending. A signal pending for the caller's thread alone (from raise, or SIGPIPE of a
 * write) would be invisible to the thread that waits for the caller. 0: none is pending, or the arguments are wrong.
 */
static int pending_here(const sigset_t *set, siginfo_t *info)
{
    const struct timespec none = {0, 0};
    int before = errno, sig = real.sigtimedwait(set, info, &none);
    errno = before;
    return sig > 0 ? sig : 0;
}

EXPORT int sigwait(const sigset_t *set, int *sig)
{
    COUNTED(sigwait);
    int pending = TAKEN ? pending_here(set, NULL) : 0;
    if (pending != 0) {
        *sig = pending;
        return 0;
    }
    return TAKEN ? ELSEWHERE(real.sigwait, (set, sig)) : real.sigwait(set, sig);
}

EXPORT int sigwaitinfo(const sigset_t *set, siginfo_t *info)
{
    COUNTED(sigwaitinfo);
    int pending = TAKEN ? pending_here(set, info) : 0;
    if (pending != 0)
        return pending;
    return TAKEN ? ELSEWHERE(real.sigwaitinfo, (set, info)) : real.sigwaitinfo(set, info);
}

EXPORT int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *t)
{
    COUNTED(sigtimedwait);
    int pending = TAKEN ? pending_here(set, info) : 0;
    if (pending != 0)
        return pending;
    return TAKEN ? ELSEWHERE(real.sigtimedwait, (set, info, t)) : real.sigtimedwait(set, info, t);
}

WAITS_ELSEWHERE(ssize_t, msgrcv, (int id, void *msg, size_t n, long type, int flags), (id, msg, n, type, flags))
WAITS_ELSEWHERE(int, msgsnd, (int id, const void *msg, size_t n, int flags), (id, msg, n, flags))
WAITS_ELSEWHERE(int, semop, (int id, struct sembuf *ops, size_t n), (id, ops, n))
WAITS_ELSEWHERE(int, semtimedop, (int id, struct sembuf *ops, size_t n, const struct timespec *t), (id, ops, n, t))
WAITS_ELSEWHERE(ssize_t, mq_receive, (mqd_t q, char *msg, size_t n, unsigned *prio), (q, msg, n, prio))
WAITS_ELSEWHERE(int, mq_send, (mqd_t q, const char *msg, size_t n, unsigned prio), (q, msg, n, prio))
WAITS_ELSEWHERE(ssize_t, mq_timedreceive, (mqd_t q, char *msg, size_t n, unsigned *prio, const struct timespec *t), (q, msg, n, prio, t))
WAITS_ELSEWHERE(int, mq_timedsend, (mqd_t q, const char *msg, size_t n, unsigned prio, const struct timespec *t), (q, msg, n, prio, t))
