/* Sockets: receiving and sending, connect, accept. */
#include "tries.h"

#include "parts.h"

/* Flags of receives for urgent data and for errors. These don't wait: EAGAIN says that there are none. A socket without
 * an error queue ignores the flag for errors, and may wait. */
enum { NOT_FOR_DATA = MSG_OOB | MSG_ERRQUEUE };

/*
 * Receives the next part for MSG_WAITALL on an Internet socket; 0: the call ends with the bytes so far. After its first
 * bytes the kernel's call ends at urgent data, and leaves the connection's error to the next call. A receive that finds
 * no bytes would take that error.
 */
static ssize_t receive_more(int fd, void *at, size_t n, int flags)
{
    struct pollfd one = {fd, POLLRDHUP, 0};
    int marked = 0, there = 0;
    bool ended = poll_now(&one) > 0 && (one.revents & (POLLRDHUP | POLLHUP)); /* nothing follows these bytes */
    if (ioctl(fd, SIOCATMARK, &marked) == 0 && marked)
        return 0;
    if (ioctl(fd, FIONREAD, &there) == 0 && there == 0)
        return ended ? 0 : failed(EAGAIN);
    return real.recvfrom(fd, at, n, flags | MSG_DONTWAIT, NULL, NULL);
}

static ssize_t do_recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *len,
                           struct counts *c)
{
#define counts (*c)
    const struct iovec buffer = {buf, n};
    struct waiting w = WAITING(fd);
    int before = errno;
    if (flags & NOT_FOR_DATA)
        return KERNEL(real.recvfrom(fd, buf, n, flags, from, len));
    if (flags == 0 && from == NULL)
        w = (struct waiting)READING(fd, &buffer);
    if (!w.skips)
        w.kind = SOCKET; /* the kind if the call would have to wait */
    ssize_t r = UNTIL_DONE(ssize_t, &w, POLLIN, SO_RCVTIMEO,
                           real.recvfrom(w.file.fd, buf, n, flags | MSG_DONTWAIT, from, len),
                           real.recvfrom(w.file.fd, buf, n, flags, from, len));
    if (LIKELY(!(flags & MSG_WAITALL)) || r <= 0 || (size_t)r >= n || w.by_kernel) {
        leave_file(&w.file);
        return r;
    }
    /* MSG_WAITALL. Datagrams, and bytes at the stream's end, don't become more. */
    int type = 0, domain = 0;
    socklen_t size = sizeof type;
    getsockopt(w.file.fd, SOL_SOCKET, SO_TYPE, &type, &size);
    getsockopt(w.file.fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    bool internet = domain == AF_INET || domain == AF_INET6;
    if (type == SOCK_STREAM && (flags & MSG_PEEK))
        r = ELSEWHERE(real.recv, (w.file.fd, buf, n, flags)); /* the tries have taken nothing */
    while (type == SOCK_STREAM && !(flags & MSG_PEEK) && (size_t)r < n && !w.by_kernel) {
        /* With MSG_TRUNC nothing is written to the buffer. */
        char *at = flags & MSG_TRUNC ? buf : (char *)buf + r;
        ssize_t more = UNTIL_DONE(ssize_t, &w, internet ? POLLIN | POLLPRI : POLLIN, SO_RCVTIMEO,
                                  internet ? receive_more(w.file.fd, at, n - (size_t)r, flags)
                                           : real.recvfrom(w.file.fd, at, n - (size_t)r, flags | MSG_DONTWAIT, NULL, NULL),
                                  real.recvfrom(w.file.fd, at, n - (size_t)r, flags, NULL, NULL));
        if (more <= 0)
            break;
        r += more;
    }
    if (r >= 0)
        errno = before; /* errno before the tries, of which the last may have failed */
    leave_file(&w.file);
    return r;
#undef counts
}

EXPORT ssize_t recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from, socklen_t *len)
{
    COUNTED(recvfrom);
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.recvfrom(fd, buf, n, flags, from, len);
    return do_recvfrom(fd, buf, n, flags, from, len, &counts);
}

EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t room, int flags, struct sockaddr *from, socklen_t *len)
{
    COUNTED(recvfrom);
    if (n > room)
        __chk_fail();
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.recvfrom(fd, buf, n, flags, from, len);
    return do_recvfrom(fd, buf, n, flags, from, len, &counts);
}

EXPORT ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    COUNTED(recv);
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.recv(fd, buf, n, flags);
    return do_recvfrom(fd, buf, n, flags, NULL, NULL, &counts);
}

EXPORT ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags)
{
    COUNTED(recv);
    if (n > room)
        __chk_fail();
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.recv(fd, buf, n, flags);
    return do_recvfrom(fd, buf, n, flags, NULL, NULL, &counts);
}

static ssize_t do_recvmsg(int fd, struct msghdr *msg, int flags, struct counts *c)
{
#define counts (*c)
    struct waiting w = WAITING(fd);
    ssize_t r;
    if (flags & NOT_FOR_DATA) {
        r = KERNEL(real.recvmsg(fd, msg, flags));
    } else if (flags & MSG_WAITALL) {
        /* For several buffers and control data: the kernel collects them. */
        r = ELSEWHERE(real.recvmsg, (fd, msg, flags));
    } else {
        r = UNTIL_DONE(ssize_t, &w, POLLIN, SO_RCVTIMEO, real.recvmsg(w.file.fd, msg, flags | MSG_DONTWAIT),
                       real.recvmsg(w.file.fd, msg, flags));
    }
    leave_file(&w.file);
    return r;
#undef counts
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    COUNTED(recvmsg);
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.recvmsg(fd, msg, flags);
    return do_recvmsg(fd, msg, flags, &counts);
}

EXPORT int recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *t)
{
    COUNTED(recvmmsg);
    struct waiting w = WAITING(fd);
    int r;
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.recvmmsg(fd, msgs, n, flags, t);
    if (flags & NOT_FOR_DATA)
        return KERNEL(real.recvmmsg(fd, msgs, n, flags, t));
    if (t == NULL && ((flags & MSG_WAITFORONE) || n <= 1)) {
        r = UNTIL_DONE(int, &w, POLLIN, SO_RCVTIMEO, real.recvmmsg(w.file.fd, msgs, n, flags | MSG_DONTWAIT, NULL),
                       real.recvmmsg(w.file.fd, msgs, n, flags, NULL));
        leave_file(&w.file);
        return r;
    }
    return ELSEWHERE(real.recvmmsg, (fd, msgs, n, flags, t)); /* waits for all messages, in its own way */
}

static ssize_t do_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len,
                         struct counts *c)
{
#define counts (*c)
    struct waiting w = WAITING(fd);
    const struct iovec iov = {(void *)buf, n};
    w.kind = SOCKET;
    if (flags & MSG_FASTOPEN) /* waits for the connection, then for room */
        return ELSEWHERE(real.sendto, (fd, buf, n, flags, to, len));
    ssize_t r = UNTIL_DONE(ssize_t, &w, POLLOUT, SO_SNDTIMEO,
                           real.sendto(w.file.fd, buf, n, flags | MSG_DONTWAIT, to, len),
                           real.sendto(w.file.fd, buf, n, flags, to, len));
    if (rest_waits(&w, &iov, 1, r))
        SEND_THE_REST(&w, &iov, 1, r, flags);
    leave_file(&w.file);
    return r;
#undef counts
}

EXPORT ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    COUNTED(send);
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.send(fd, buf, n, flags);
    return do_sendto(fd, buf, n, flags, NULL, 0, &counts);
}
ALIAS(__send, send);

EXPORT ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
    COUNTED(sendto);
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.sendto(fd, buf, n, flags, to, len);
    return do_sendto(fd, buf, n, flags, to, len, &counts);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    COUNTED(sendmsg);
    struct waiting w = WAITING(fd);
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.sendmsg(fd, msg, flags);
    if (flags & MSG_FASTOPEN)
        return ELSEWHERE(real.sendmsg, (fd, msg, flags));
    ssize_t r = UNTIL_DONE(ssize_t, &w, POLLOUT, SO_SNDTIMEO, real.sendmsg(w.file.fd, msg, flags | MSG_DONTWAIT),
                           real.sendmsg(w.file.fd, msg, flags));
    if (r > 0 && rest_waits(&w, msg->msg_iov, msg->msg_iovlen, r)) /* control data has gone with the first bytes */
        SEND_THE_REST(&w, msg->msg_iov, msg->msg_iovlen, r, flags);
    leave_file(&w.file);
    return r;
}

EXPORT int sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
    if (!TAKEN || (flags & MSG_DONTWAIT))
        return real.sendmmsg(fd, msgs, n, flags);
    /* Sends one after the other, as the kernel does; the next call reports an error after the first message. */
    unsigned sent = 0;
    for (; sent < n && sent < IOV_MAX; sent++) {
        ssize_t r = sendmsg(fd, &msgs[sent].msg_hdr, flags);
        if (r < 0)
            return sent > 0 ? (int)sent : -1;
        msgs[sent].msg_len = (unsigned)r;
    }
    return (int)sent;
}

/*
 * Connects with the socket non-blocking for the instant of the system call. On an unconnected socket no other call can
 * notice that, except one which reads the flag. Then poll waits, and a second connect reports how the first has ended.
 */
static int connect_at_once(int fd, const struct sockaddr *to, socklen_t len)
{
    int yes = 1, no = 0;
    if (ioctl(fd, FIONBIO, &yes) != 0)
        return real.connect(fd, to, len);
    int r = real.connect(fd, to, len), error = errno;
    ioctl(fd, FIONBIO, &no);
    errno = error;
    return r;
}

EXPORT int connect(int fd, const struct sockaddr *to, socklen_t len)
{
    COUNTED(connect);
    if (!TAKEN)
        return real.connect(fd, to, len);
    struct waiting w = WAITING(fd);
    int before = errno, r;
    switch (may_wait(fd, SO_SNDTIMEO, &w.kind, &w.deadline)) {
    case HOW_NOT: return real.connect(fd, to, len);
    case HOW_KERNEL: return KERNEL(real.connect(fd, to, len));
    case HOW_PARK: break;
    }
    if (w.kind != SOCKET)
        return real.connect(fd, to, len);
    r = connect_at_once(fd, to, len);
    if (r != 0 && errno == EAGAIN) { /* a local socket with a full queue: poll doesn't tell when it has room */
        errno = before;
        return ELSEWHERE(real.connect, (fd, to, len));
    }
    int first = errno;
    while (r != 0 && (errno == EINPROGRESS || errno == EALREADY)) {
        PARKS;
        int error = wait_for_file(&w.file, POLLOUT, w.deadline, NULL);
        if (error != 0) {
            errno = error == ETIMEDOUT ? first : error; /* as for a socket with SO_SNDTIMEO */
            break;
        }
        r = connect_at_once(w.file.fd, to, len);
        if (r != 0 && errno == EISCONN)
            r = 0;
    }
    leave_file(&w.file);
    if (r == 0)
        errno = before;
    return r;
}
ALIAS(__connect, connect);

/*
 * accept can't be tried without setting a flag of the file, which other callers share. So goroutines that accept on one
 * socket take turns. The goroutine whose turn it is waits by poll, and no other goroutine takes its connection. Sockets
 * are told apart by inode: a number may be closed, and used again, while a goroutine still waits for the socket that
 * had it.
 */
struct turn {
    struct turn *next;
    ino_t inode;
    unsigned users;
    gs_mutex mutex;
};

enum { TURN_BUCKETS = 64 };
static struct turn_bucket {
    atomic_uint lock;
    struct turn *first;
} turns[TURN_BUCKETS];

/* Enters the queue for the socket's turn, and waits by the turn's mutex. NULL: there is no memory, or no such file. */
static struct turn *enter_turn(int fd)
{
    struct stat st;
    struct turn *t, *fresh = calloc(1, sizeof *fresh); /* allocated without the lock: malloc may be the program's */
    if (fresh == NULL || fstat(fd, &st) != 0) {
        free(fresh);
        return NULL;
    }
    struct turn_bucket *b = &turns[st.st_ino % TURN_BUCKETS];
    spin_lock(&b->lock);
    for (t = b->first; t != NULL && t->inode != st.st_ino; t = t->next)
        ;
    if (t == NULL) {
        t = fresh;
        fresh = NULL;
        t->inode = st.st_ino;
        t->next = b->first;
        b->first = t;
    }
    t->users++;
    spin_unlock(&b->lock);
    free(fresh);
    return t;
}

static void leave_turn(struct turn *t)
{
    struct turn_bucket *b = &turns[t->inode % TURN_BUCKETS];
    struct turn **at;
    spin_lock(&b->lock);
    if (--t->users > 0) {
        t = NULL;
    } else {
        for (at = &b->first; *at != t; at = &(*at)->next)
            ;
        *at = t->next;
    }
    spin_unlock(&b->lock);
    free(t);
}

void sockets_in_child(void)
{
    memset(turns, 0, sizeof turns);
}

static int do_accept(int fd, struct sockaddr *from, socklen_t *len, int flags, struct counts *c)
{
#define counts (*c)
    struct waiting w = WAITING(fd);
    int before = errno, r = -1, error;
    switch (may_wait(fd, SO_RCVTIMEO, &w.kind, &w.deadline)) {
    case HOW_NOT: return real.accept4(fd, from, len, flags);
    case HOW_KERNEL: return KERNEL(real.accept4(fd, from, len, flags));
    case HOW_PARK: break;
    }
    if (w.kind != SOCKET || (flags & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)))
        return real.accept4(fd, from, len, flags);
    struct turn *turn = enter_turn(fd);
    if (turn == NULL)
        return KERNEL(real.accept4(fd, from, len, flags));
    struct file_waiter for_turn; /* close may come before the turn */
    begin_to_wait(&w.file, &for_turn);
    error = -gs_mutex_lock(&turn->mutex, w.deadline);
    end_of_wait(&w.file, &for_turn);
    if (error == 0) {
        struct pollfd ready = {.fd = w.file.fd, .events = POLLIN};
        if (poll_now(&ready) == 0) {
            int listens = 1;
            socklen_t size = sizeof listens;
            getsockopt(w.file.fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
            if (listens) {
                PARKS;
                error = wait_for_file(&w.file, POLLIN, w.deadline, NULL);
            }
        }
        if (error == 0)
            r = KERNEL(real.accept4(w.file.fd, from, len, flags));
        int after = errno;
        gs_mutex_unlock(&turn->mutex);
        errno = after;
    }
    int after = errno;
    leave_turn(turn);
    errno = after;
    if (error != 0)
        errno = error == ETIMEDOUT ? EAGAIN : error;
    leave_file(&w.file);
    if (r >= 0)
        errno = before;
    return r;
#undef counts
}

EXPORT int accept(int fd, struct sockaddr *from, socklen_t *len)
{
    COUNTED(accept);
    return TAKEN ? do_accept(fd, from, len, 0, &counts) : real.accept(fd, from, len);
}

EXPORT int accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
    COUNTED(accept4);
    return TAKEN ? do_accept(fd, from, len, flags, &counts) : real.accept4(fd, from, len, flags);
}
