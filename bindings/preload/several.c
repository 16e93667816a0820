/*
 * poll, select, epoll_wait and sigsuspend. A first call without waiting also checks the arguments. Then gs_poll_fd
 * waits: for one file directly, for several files through an epoll instance made for the call. A second call without
 * waiting gives the result.
 *
 * With a signal mask the wait is for signals too. A thread of libgosched blocks all signals, so a signal to the process
 * that the mask lets through stays pending until a thread takes it. There a signalfd in the epoll instance reports the
 * signal, and the call without waiting takes it. On other threads, where signals are meant to arrive, the kernel waits.
 */
#include "files.h"
#include "masks.h"
#include "numbers.h"
#include "times.h"

#include <sys/signalfd.h>

/*
 * The number of false alarms that an instance may give. After that the kernel waits: with a signal mask on the caller's
 * thread, where handlers run; else on another thread, since a goroutine pinned to the caller's may have to end the
 * wait.
 */
enum { IN_VAIN = 16 };

/*
 * Calls without waiting, with a signal mask. EINTR is that of a handler, which has run. A handler calls libc's
 * functions, after gs_entersyscall.
 */
#define LOOK_WITH_MASK(s, call) TAKING_SIGNALS(call, (s)->own, NULL)

struct several {
    struct counts *tally;
    const sigset_t *mask; /* for a wait for signals too, else NULL */
    int (*look)(struct several *s); /* the call without waiting */
    int (*add)(struct several *s, int epoll); /* adds the files to an instance: 0, or an error number */
    int one, events; /* `one`: the only file, or -1 */
    bool none; /* there are no files */
    gs_deadline deadline;
    int own[2]; /* made for the wait, or -1: the epoll instance, the signalfd */
    /* For poll: */
    struct pollfd *fds, *only; /* `only`: the entry of `one` */
    nfds_t n;
    /* For select: */
    int max;
    fd_set *in[3], *asked[3];
    /* For epoll_pwait: */
    int instance, room;
    struct epoll_event *ready;
};

static const struct timespec no_time = {0, 0};

/*
 * A signalfd for the signals that the mask lets through, or -1. It leaves out signals that the kernel and the library
 * send to a thread: these may stay pending for the thread that looks.
 */
static int signals_let_through(const sigset_t *mask)
{
    sigset_t through;
    sigemptyset(&through);
    for (int sig = 1; sig <= 64; sig++)
        if (!sigismember(mask, sig) && sig != SIGPIPE && sig != SIGURG)
            sigaddset(&through, sig);
    return signalfd(-1, &through, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* A value of `wait_several` and its callers: the caller has to make the call as it is. errno is as before. */
enum { WAITED_IN_KERNEL = -2 };

/* Adds the signalfd as one more file. */
static void expect_signals(struct several *s)
{
    s->none = false;
    s->one = -1;
    s->only = NULL;
}

/* poll's value and results if its only file has these events. */
static int poll_has_found(struct pollfd *only, int events)
{
    only->revents = (short)(events & (only->events | POLLERR | POLLHUP | POLLNVAL));
    return only->revents != 0;
}

/*
 * Adds a file, which may be in the list several times with different events. EPERM comes from disk files: these can be
 * read and written at any time, as `look` has found if that was asked, and have no other events.
 */
static int add_file(int epoll, int fd, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0 || errno == EPERM)
        return 0;
    return errno;
}

/* Waits, after `look` has found nothing, or without a look if there is only one file. */
static int wait_several(struct several *s)
{
    if (!can_park())
        return WAITED_IN_KERNEL;
    int in_vain = 0, r = 0;
    struct file f = {.fd = s->one};
    while (r == 0) {
        if (s->deadline != GS_FOREVER && gs_now() >= s->deadline) {
            r = s->look(s);
            break;
        }
        if (debug)
            count_parked(s->tally);
        int error, found = 0;
        if (s->none) {
            error = -gs_sleep_until(s->deadline);
            if (error == 0)
                break;
        } else if (s->one >= 0) {
            error = wait_for_file(&f, s->events, s->deadline, &found);
        } else {
            if (s->own[0] < 0) {
                s->own[0] = epoll_create1(EPOLL_CLOEXEC);
                if (s->mask != NULL)
                    s->own[1] = signals_let_through(s->mask);
                if (s->own[0] < 0 || s->add(s, s->own[0]) != 0
                    || (s->mask != NULL && add_file(s->own[0], s->own[1], POLLIN) != 0)) {
                    r = WAITED_IN_KERNEL;
                    break;
                }
            }
            f.fd = s->own[0];
            error = wait_for_file(&f, POLLIN, s->deadline, NULL);
        }
        if (error == ETIMEDOUT) {
            r = s->look(s); /* the event may have come just before the deadline */
            break;
        }
        if (error == ECANCELED) {
            errno = ECANCELED;
            r = -1;
            break;
        }
        if (error != 0 && error != EBADF) { /* `look` reports a closed file */
            r = WAITED_IN_KERNEL;
            break;
        }
        r = error == 0 && s->only != NULL ? poll_has_found(s->only, found) : s->look(s);
        if (r == 0 && ++in_vain > IN_VAIN) {
            r = WAITED_IN_KERNEL;
            break;
        }
    }
    int error = errno;
    leave_file(&f);
    for (int i = 0; i < 2; i++)
        if (s->own[i] >= 0)
            real.close(s->own[i]);
    errno = error;
    return r;
}

/* The time left, in the form that the kernel's call wants. */
static int ms_left(gs_deadline deadline)
{
    if (deadline == GS_FOREVER)
        return -1;
    int64_t left = (deadline - gs_now() + 999999) / 1000000;
    return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

/* poll */

static int look_poll(struct several *s)
{
    if (s->mask != NULL)
        return LOOK_WITH_MASK(s, real.ppoll(s->fds, s->n, &no_time, s->mask));
    return LOOK(real.poll(s->fds, s->n, 0));
}

static int add_poll(struct several *s, int epoll)
{
    for (nfds_t i = 0; i < s->n; i++) {
        if (s->fds[i].fd < 0)
            continue;
        int error = add_file(epoll, s->fds[i].fd, (uint16_t)s->fds[i].events);
        if (error == EEXIST) {
            struct epoll_event e = {.data.fd = s->fds[i].fd};
            for (nfds_t k = 0; k <= i; k++)
                if (s->fds[k].fd == s->fds[i].fd)
                    e.events |= (uint16_t)s->fds[k].events;
            error = epoll_ctl(epoll, EPOLL_CTL_MOD, s->fds[i].fd, &e) == 0 ? 0 : errno;
        }
        if (error != 0)
            return error;
    }
    return 0;
}

/*
 * Whether an argument is in or near the frame of the caller's caller, as poll's array and select's sets mostly are.
 * Then it can be read without asking the kernel first.
 */
static bool is_near(const void *given, const char *frame)
{
    return (uintptr_t)given - (uintptr_t)frame < 1024;
}

static int do_poll(struct pollfd *fds, nfds_t n, gs_deadline deadline, const sigset_t *mask, struct counts *c)
{
    struct several s = {.tally = c, .own = {-1, -1}, .mask = mask, .look = look_poll, .add = add_poll, .one = -1, .none = true,
                        .deadline = deadline, .fds = fds, .n = n};
    int before = errno, r = 0;
    if (n != 1 || !is_near(fds, __builtin_frame_address(0)) || fds[0].fd < 0 || mask != NULL)
        r = look_poll(&s); /* the look checks the array before it is read */
    if (r != 0)
        return r;
    nfds_t files = 0;
    for (nfds_t i = 0; i < n; i++) {
        if (fds[i].fd < 0)
            continue;
        s.none = false;
        s.only = files++ == 0 ? &fds[i] : NULL;
        s.one = s.only != NULL ? fds[i].fd : -1;
        s.events = fds[i].events;
    }
    if (mask != NULL)
        expect_signals(&s);
    r = wait_several(&s);
    if (r != -1)
        errno = before;
    return r;
}

EXPORT int poll(struct pollfd *fds, nfds_t n, int ms)
{
    COUNTED(poll);
    if (ms == 0)
        return LOOK(real.poll(fds, n, 0));
    if (!TAKEN)
        return real.poll(fds, n, ms);
    gs_deadline deadline = ms < 0 ? GS_FOREVER : after((int64_t)ms * 1000000);
    int r = do_poll(fds, n, deadline, NULL, &counts);
    return r == WAITED_IN_KERNEL ? ELSEWHERE(real.poll, (fds, n, ms_left(deadline))) : r;
}
ALIAS(__poll, poll);

EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t room)
{
    COUNTED(poll);
    if (room / sizeof *fds < n)
        __chk_fail();
    if (ms == 0)
        return LOOK(real.poll(fds, n, 0));
    if (!TAKEN)
        return real.poll(fds, n, ms);
    gs_deadline deadline = ms < 0 ? GS_FOREVER : after((int64_t)ms * 1000000);
    int r = do_poll(fds, n, deadline, NULL, &counts);
    return r == WAITED_IN_KERNEL ? ELSEWHERE(real.poll, (fds, n, ms_left(deadline))) : r;
}

/* Whether the kernel waits whatever the files: for signals on other threads (see the top), or given an invalid time. */
static bool is_for_kernel(const struct timespec *t, const sigset_t *mask)
{
    return (mask != NULL && !is_librarys_thread()) || (t != NULL && !is_time(t));
}

static int do_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask, struct counts *c)
{
#define counts (*c)
    if (is_for_kernel(t, mask))
        return TAKING_SIGNALS(real.ppoll(fds, n, t, mask), NULL, &counts);
    gs_deadline deadline = t == NULL ? GS_FOREVER : after(ns_of(t));
    int r = do_poll(fds, n, deadline, mask, c);
    if (r != WAITED_IN_KERNEL)
        return r;
    struct timespec left = time_left(deadline);
    if (mask == NULL)
        return ELSEWHERE(real.ppoll, (fds, n, t == NULL ? NULL : &left, NULL));
    return TAKING_SIGNALS(real.ppoll(fds, n, t == NULL ? NULL : &left, mask), NULL, &counts);
#undef counts
}

EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
    COUNTED(ppoll);
    return TAKEN ? do_ppoll(fds, n, t, mask, &counts) : real.ppoll(fds, n, t, mask);
}

EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask, size_t room)
{
    COUNTED(ppoll);
    if (room / sizeof *fds < n)
        __chk_fail();
    return TAKEN ? do_ppoll(fds, n, t, mask, &counts) : real.ppoll(fds, n, t, mask);
}

/* select */

/* The words that hold the first n bits: a set may be longer or shorter than an fd_set. */
static size_t set_bytes(int n)
{
    return ((size_t)n + 63) / 64 * 8;
}

static bool is_in(const fd_set *set, int fd)
{
    return set != NULL && (((const uint64_t *)set)[fd / 64] >> fd % 64 & 1);
}

static int look_select(struct several *s)
{
    struct timeval now = {0, 0};
    for (int i = 0; i < 3; i++)
        if (s->in[i] != NULL)
            memcpy(s->in[i], s->asked[i], set_bytes(s->max));
    if (s->mask != NULL)
        return LOOK_WITH_MASK(s, real.pselect(s->max, s->in[0], s->in[1], s->in[2], &no_time, s->mask));
    return LOOK(real.select(s->max, s->in[0], s->in[1], s->in[2], &now));
}

static uint32_t select_events(struct several *s, int fd)
{
    return (is_in(s->asked[0], fd) ? POLLIN : 0) | (is_in(s->asked[1], fd) ? POLLOUT : 0)
           | (is_in(s->asked[2], fd) ? POLLPRI : 0);
}

static int add_select(struct several *s, int epoll)
{
    for (int fd = 0; fd < s->max; fd++) {
        uint32_t events = select_events(s, fd);
        int error = events != 0 ? add_file(epoll, fd, events) : 0;
        if (error != 0)
            return error;
    }
    return 0;
}

/* After a failed select: the number of bits to try again with. 0: it has failed for good. */
static int narrower(int n)
{
    if (errno != EBADF || n <= SMALLEST_TABLE || !gs_self)
        return 0;
    int size = programs_table_size();
    return size < n ? size : 0;
}

/* libc's functions, with the results that they have in a process whose only files are the program's. */

static int select_of_kernel(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *t)
{
    int before = errno, found = real.select(n, r, w, e, t);
    if (found == -1 && (n = narrower(n)) > 0) {
        errno = before;
        found = real.select(n, r, w, e, t);
    }
    return found;
}

static int pselect_of_kernel(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *t, const sigset_t *mask)
{
    int before = errno, found = real.pselect(n, r, w, e, t, mask);
    if (found == -1 && (n = narrower(n)) > 0) {
        errno = before;
        found = real.pselect(n, r, w, e, t, mask);
    }
    return found;
}

/* The file with the highest number below n that the sets ask for, or -1. */
static int highest_asked(struct several *s, int n)
{
    while (--n >= 0 && select_events(s, n) == 0)
        ;
    return n;
}

/*
 * Takes files beyond the table's end out of the sets, after a successful look: a file in the sets that isn't open can
 * only be there. The table may grow during the wait, and even then these files must not count.
 */
static void leave_out_what_is_beyond(struct several *s)
{
    int before = errno, fd;
    while ((fd = highest_asked(s, s->max)) >= SMALLEST_TABLE && real.fcntl64(fd, F_GETFD, 0L) < 0)
        s->max = fd / 64 * 64;
    errno = before;
}

/* Copies the sets. False: a pointer is bad. errno stays. */
static bool copy_sets(struct several *s, size_t bytes, const char *frame)
{
    struct iovec to[3], from[3];
    int before = errno, n = 0;
    for (int i = 0; i < 3; i++) {
        if (s->in[i] == NULL)
            continue;
        if (is_near(s->in[i], frame)) {
            memcpy(s->asked[i], s->in[i], bytes);
            continue;
        }
        to[n] = (struct iovec){s->asked[i], bytes};
        from[n++] = (struct iovec){s->in[i], bytes};
    }
    bool copied = n == 0 || bytes == 0 || copy_in_several(to, from, n);
    errno = before;
    return copied;
}

/* select for a goroutine. Returns WAITED_IN_KERNEL with the sets unchanged. */
static int do_select(int n, fd_set *r, fd_set *w, fd_set *e, gs_deadline deadline, const sigset_t *mask,
                     struct counts *c)
{
    if (n > FD_SETSIZE) { /* getdtablesize(), say: with a high limit far beyond the end of an fd_set */
        int size = table_size();
        if (size <= 0)
            return WAITED_IN_KERNEL;
        n = n < size ? n : size;
    }
    struct several s = {.tally = c, .own = {-1, -1}, .mask = mask, .look = look_select, .add = add_select, .one = -1, .none = true,
                        .deadline = deadline, .max = n, .in = {r, w, e}};
    uint64_t small[3][FD_SETSIZE / 64], *large = NULL;
    struct timeval now = {0, 0};
    size_t bytes = n > 0 ? set_bytes(n) : 0;
    int before = errno, found, narrow;
    if (n < 0)
        return real.select(n, r, w, e, &now);
    if (bytes > sizeof small[0] && (large = malloc(3 * bytes)) == NULL) {
        errno = before;
        return WAITED_IN_KERNEL;
    }
    for (int i = 0; i < 3; i++)
        if (s.in[i] != NULL)
            s.asked[i] = (fd_set *)(large ? large + (size_t)i * (bytes / 8) : small[i]);
    if (!copy_sets(&s, bytes, __builtin_frame_address(0))) {
        free(large);
        return failed(EFAULT);
    }
    found = look_select(&s);
    if (found == -1 && (narrow = narrower(n)) > 0) {
        s.max = narrow;
        found = look_select(&s);
    }
    if (found == 0) {
        int files = 0;
        leave_out_what_is_beyond(&s);
        for (int fd = 0; fd < s.max; fd++)
            if (select_events(&s, fd) != 0) {
                s.none = false;
                s.one = files++ == 0 ? fd : -1;
                s.events = (int)select_events(&s, fd);
            }
        if (mask != NULL)
            expect_signals(&s);
        found = wait_several(&s);
    }
    if (found == WAITED_IN_KERNEL || found < 0)
        for (int i = 0; i < 3; i++)
            if (s.in[i] != NULL)
                memcpy(s.in[i], s.asked[i], bytes);
    int error = found == -1 ? errno : before;
    free(large);
    errno = error;
    return found;
}

EXPORT int select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *t)
{
    COUNTED(select);
    if (t != NULL && t->tv_sec == 0 && t->tv_usec == 0)
        return LOOK(select_of_kernel(n, r, w, e, t));
    if (!TAKEN || (t != NULL && (t->tv_sec < 0 || t->tv_usec < 0)))
        return select_of_kernel(n, r, w, e, t);
    gs_deadline deadline = GS_FOREVER;
    if (t != NULL)
        deadline = after(t->tv_sec >= INT64_MAX / NS_PER_S / 2 ? INT64_MAX : t->tv_sec * NS_PER_S + t->tv_usec * INT64_C(1000));
    int found = do_select(n, r, w, e, deadline, NULL, &counts);
    struct timespec left = t != NULL ? time_left(deadline) : (struct timespec){0, 0};
    if (found == WAITED_IN_KERNEL) {
        if (t != NULL)
            *t = (struct timeval){left.tv_sec, left.tv_nsec / 1000};
        return ELSEWHERE(select_of_kernel, (n, r, w, e, t));
    }
    if (t != NULL) /* Linux writes the time that is left */
        *t = (struct timeval){left.tv_sec, left.tv_nsec / 1000};
    return found;
}
ALIAS(__select, select);

EXPORT int pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *t, const sigset_t *mask)
{
    COUNTED(pselect);
    if (!TAKEN)
        return pselect_of_kernel(n, r, w, e, t, mask);
    if (is_for_kernel(t, mask))
        return TAKING_SIGNALS(pselect_of_kernel(n, r, w, e, t, mask), NULL, &counts);
    gs_deadline deadline = t == NULL ? GS_FOREVER : after(ns_of(t));
    int found = do_select(n, r, w, e, deadline, mask, &counts);
    if (found != WAITED_IN_KERNEL)
        return found;
    struct timespec left = time_left(deadline);
    if (mask == NULL)
        return ELSEWHERE(pselect_of_kernel, (n, r, w, e, t == NULL ? NULL : &left, NULL));
    return TAKING_SIGNALS(pselect_of_kernel(n, r, w, e, t == NULL ? NULL : &left, mask), NULL, &counts);
}

/* epoll_wait: poll can wait for an epoll instance, which is a file */

static int do_epoll(int fd, struct epoll_event *events, int n, gs_deadline deadline, struct counts *c)
{
    struct file f = {.fd = fd};
    int before = errno, r, in_vain = 0;
    while ((r = LOOK(real.epoll_wait(f.fd, events, n, 0))) == 0) {
        if (deadline != GS_FOREVER && gs_now() >= deadline)
            break;
        if (++in_vain > IN_VAIN || !can_park()) {
            r = WAITED_IN_KERNEL;
            break;
        }
        if (debug)
            count_parked(c);
        int error = wait_for_file(&f, POLLIN, deadline, NULL);
        if (error != 0 && error != ETIMEDOUT) {
            errno = error;
            r = error == EPERM || error == EINVAL ? WAITED_IN_KERNEL : -1;
            break;
        }
    }
    leave_file(&f);
    if (r != -1)
        errno = before;
    return r;
}

/* Events of files come first, as in the kernel, which reports signals only if it has to wait. */
static int look_epoll(struct several *s)
{
    int r = LOOK_WITH_MASK(s, real.epoll_pwait(s->instance, s->ready, s->room, 0, s->mask));
    return r == 0 ? LOOK_WITH_MASK(s, real.ppoll(NULL, 0, &no_time, s->mask)) : r;
}

static int add_epoll(struct several *s, int epoll)
{
    return add_file(epoll, s->instance, POLLIN);
}

static int do_epoll_with_mask(int fd, struct epoll_event *events, int n, gs_deadline deadline, const sigset_t *mask,
                              struct counts *c)
{
    struct several s = {.tally = c, .own = {-1, -1}, .mask = mask, .look = look_epoll, .add = add_epoll, .deadline = deadline,
                        .instance = fd, .room = n, .ready = events};
    int before = errno, r;
    expect_signals(&s);
    r = look_epoll(&s);
    if (r == 0)
        r = wait_several(&s);
    if (r != -1)
        errno = before;
    return r;
}

EXPORT int epoll_wait(int fd, struct epoll_event *events, int n, int ms)
{
    COUNTED(epoll_wait);
    if (ms == 0)
        return LOOK(real.epoll_wait(fd, events, n, 0));
    if (!TAKEN)
        return real.epoll_wait(fd, events, n, ms);
    gs_deadline deadline = ms < 0 ? GS_FOREVER : after((int64_t)ms * 1000000);
    int r = do_epoll(fd, events, n, deadline, &counts);
    return r == WAITED_IN_KERNEL ? ELSEWHERE(real.epoll_wait, (fd, events, n, ms_left(deadline))) : r;
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int n, int ms, const sigset_t *mask)
{
    COUNTED(epoll_pwait);
    if (ms == 0 && mask == NULL)
        return LOOK(real.epoll_pwait(fd, events, n, 0, NULL));
    if (ms == 0 || !TAKEN)
        return real.epoll_pwait(fd, events, n, ms, mask);
    if (is_for_kernel(NULL, mask))
        return TAKING_SIGNALS(real.epoll_pwait(fd, events, n, ms, mask), NULL, &counts);
    gs_deadline deadline = ms < 0 ? GS_FOREVER : after((int64_t)ms * 1000000);
    int r = mask != NULL ? do_epoll_with_mask(fd, events, n, deadline, mask, &counts)
                         : do_epoll(fd, events, n, deadline, &counts);
    if (r != WAITED_IN_KERNEL)
        return r;
    if (mask == NULL)
        return ELSEWHERE(real.epoll_pwait, (fd, events, n, ms_left(deadline), NULL));
    return TAKING_SIGNALS(real.epoll_pwait(fd, events, n, ms_left(deadline), mask), NULL, &counts);
}

EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int n, const struct timespec *t, const sigset_t *mask)
{
    COUNTED(epoll_pwait2);
    if (!TAKEN)
        return real.epoll_pwait2(fd, events, n, t, mask);
    if (is_for_kernel(t, mask))
        return TAKING_SIGNALS(real.epoll_pwait2(fd, events, n, t, mask), NULL, &counts);
    gs_deadline deadline = t == NULL ? GS_FOREVER : after(ns_of(t));
    int r = mask != NULL ? do_epoll_with_mask(fd, events, n, deadline, mask, &counts)
                         : do_epoll(fd, events, n, deadline, &counts);
    if (r != WAITED_IN_KERNEL)
        return r;
    struct timespec left = time_left(deadline);
    if (mask == NULL)
        return ELSEWHERE(real.epoll_pwait2, (fd, events, n, t == NULL ? NULL : &left, NULL));
    return TAKING_SIGNALS(real.epoll_pwait2(fd, events, n, t == NULL ? NULL : &left, mask), NULL, &counts);
}

/* Waits for signals alone: ppoll without files. */
static int wait_for_signal(const sigset_t *mask, struct counts *c)
{
#define counts (*c)
    int r = do_poll(NULL, 0, GS_FOREVER, mask, c);
    return r == WAITED_IN_KERNEL ? TAKING_SIGNALS(real.sigsuspend(mask), NULL, &counts) : r;
#undef counts
}

EXPORT int sigsuspend(const sigset_t *mask)
{
    COUNTED(sigsuspend);
    if (!TAKEN)
        return real.sigsuspend(mask);
    const sigset_t *given = mask;
    __asm__("" : "+r"(given)); /* hides from the compiler that it isn't NULL */
    return given == NULL || !is_librarys_thread() ? TAKING_SIGNALS(real.sigsuspend(mask), NULL, &counts) : wait_for_signal(mask, &counts);
}

/* The name of POSIX's sigpause in programs: `sigpause` itself is BSD's. */
EXPORT int __xpg_sigpause(int sig)
{
    COUNTED(sigpause);
    if (!TAKEN)
        return real.__xpg_sigpause(sig);
    sigset_t mask = callers_mask();
    if (sigdelset(&mask, sig) != 0)
        return -1;
    return is_librarys_thread() ? wait_for_signal(&mask, &counts) : TAKING_SIGNALS(real.sigsuspend(&mask), NULL, &counts);
}

EXPORT int pause(void)
{
    COUNTED(pause);
    if (!TAKEN)
        return real.pause();
    if (!is_librarys_thread())
        return TAKING_SIGNALS(real.pause(), NULL, &counts);
    sigset_t mask = callers_mask();
    return wait_for_signal(&mask, &counts);
}
