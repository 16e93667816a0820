/*
 * Calls on a file that are tried without waiting, until they succeed or fail for good. README.md says which calls can be
 * tried.
 */

#ifndef GOSCHED_PRELOAD_TRIES_H
#define GOSCHED_PRELOAD_TRIES_H

#include "files.h"

enum kind { UNKNOWN, SOCKET, DISK, OTHER };

/*
 * Whether, and until when, a call waits whose try would have had to wait, because of the file's own flag or of ours.
 * The file's flag is read once in each call, and never changed. `kind` may be known to be SOCKET.
 */
enum how may_wait(int fd, int timeout_option, enum kind *kind, gs_deadline *deadline);

struct waiting {
    struct file file;
    struct counts *tally;
    const struct iovec *into; /* for a plain read into one buffer, else NULL */
    ssize_t got;              /* the call's value once it is over */
    gs_deadline deadline;
    enum kind kind;
    int in_vain;
    bool begun;
    bool skips;     /* skips the first try: see expects_wait */
    bool by_kernel; /* the call was made untried, and may have waited */
};

/*
 * For each file number: whether the last read waited and then got less than it had room for. Such a read has left no
 * bytes, so the next read will mostly have to wait and doesn't try first. A hint, which may be about a former file of
 * that number.
 */
enum { HINTS = 1 << 16 };
extern atomic_bool drained[HINTS];

static inline bool expects_wait(int fd)
{
    return (unsigned)fd < HINTS && atomic_load_explicit(&drained[fd], memory_order_relaxed);
}

/*
 * Waits after a try that would have had to wait, as errno says. HOW_PARK: the caller tries again. HOW_KERNEL: the
 * caller makes the call as it is. HOW_NOT: the call is over with the value `got`.
 */
enum how wait_again(struct waiting *w, int events, int timeout_option);

/* Whether a call could not be finished without waiting, as errno says. A connection that its first bytes open
 * (TCP_FASTOPEN_CONNECT) gives EINPROGRESS, and has not taken the bytes. */
static inline bool would_wait(int events)
{
    return errno == EAGAIN || ((events & POLLOUT) && errno == EINPROGRESS);
}

/* Repeats `call`, which doesn't wait, until it succeeds or fails for good. Its value is the call's. `plain` is the call
 * without the flag that keeps it from waiting. */
#define UNTIL_DONE(type, w, events, option, call, plain) \
    __extension__({ \
        type done_; \
        int errno_ = errno; \
        for (;;) { \
            done_ = (w)->skips ? failed(EAGAIN) : (call); \
            if (LIKELY(done_ >= 0) || !would_wait(events)) \
                break; \
            enum how how_ = wait_again(w, events, option); \
            if (how_ == HOW_PARK) \
                continue; \
            if (how_ == HOW_KERNEL) \
                done_ = KERNEL(plain); \
            else \
                done_ = (type)(w)->got; \
            break; \
        } \
        if (done_ >= 0) \
            errno = errno_; /* errno before the tries */ \
        done_; \
    })
#define WAITING(number) {.file = {.fd = (number)}, .tally = &counts, .got = -1}
/* The struct waiting of a plain read into one buffer. */
#define READING(number, buffer) \
    {.file = {.fd = (number)}, .tally = &counts, .got = -1, .into = (buffer)->iov_len > 0 ? (buffer) : NULL, \
     .skips = (buffer)->iov_len > 0 && expects_wait(number)}

/*
 * Waits by poll before a call that can't be tried. If the call has to wait nevertheless, other goroutines have the P.
 * HOW_NOT: no call is to be made, and errno says why. HOW_PARK, of a read: poll can't wait for the file, and the call
 * may wait for long.
 */
enum how wait_first(struct waiting *w, int events, int option);

/* For calls in which libc itself reads or writes a file. errno may change */

/* Whether such a call doesn't wait for others: the file is on a disk, or was made non-blocking. */
bool never_waits(int fd);
/* Whether poll says now that one read, or one write of a little, doesn't wait. */
bool is_ready(int fd, int events);
/* Waits until is_ready may say so. ENDED: gs_cancel has ended the wait. */
enum ready { READY, NEVER_WAITS, ONLY_CALL_WAITS, ENDED };
enum ready wait_until_ready(int fd, int events, struct counts *c);

/* The most bytes that the kernel takes in one call. */
#define MOST ((size_t)0x7ffff000)

/* The buffers that are left after `done` bytes, at most as many as there is room for. */
enum { AT_ONCE = 64 };
static inline int rest_of(const struct iovec *iov, size_t n, size_t done, struct iovec rest[AT_ONCE])
{
    int k = 0;
    for (size_t i = 0; i < n && k < AT_ONCE; i++) {
        if (done >= iov[i].iov_len) {
            done -= iov[i].iov_len;
            continue;
        }
        rest[k++] = (struct iovec){(char *)iov[i].iov_base + done, iov[i].iov_len - done};
        done = 0;
    }
    return k;
}

/* Whether a write that has taken `done` bytes goes on. It doesn't for a caller that has asked not to wait. */
bool rest_waits(struct waiting *w, const struct iovec *iov, size_t n, ssize_t done);

/*
 * Writes the rest, as a call that waits would, after a tried write has taken `done` bytes. A failure shows only in the
 * number of bytes written. errno stays.
 */
#define WRITE_THE_REST(w, iov, n, done, call, plain) \
    do { \
        int before_ = errno; \
        while ((done) > 0 && !(w)->by_kernel) { \
            struct iovec rest_[AT_ONCE]; \
            int k_ = rest_of(iov, n, (size_t)(done), rest_); \
            if (k_ == 0 || (size_t)(done) >= MOST) \
                break; \
            struct iovec *of = rest_; \
            int parts = k_; \
            ssize_t more_ = UNTIL_DONE(ssize_t, w, POLLOUT, SO_SNDTIMEO, call, plain); \
            if (more_ <= 0) \
                break; \
            (done) += more_; \
        } \
        errno = before_; \
    } while (0)

/*
 * Sends the rest to a socket. In the kernel a call that has sent something raises no SIGPIPE, and leaves the socket's
 * error to the next call. A send would take the error, so poll checks first that the connection is there. POLLERR
 * doesn't tell: a message in the socket's error queue sets it too.
 */
ssize_t send_rest(struct waiting *w, struct iovec *of, int parts, int flags);
#define SEND_THE_REST(w, iov, n, done, flags) \
    WRITE_THE_REST(w, iov, n, done, send_rest(w, of, parts, (flags) | MSG_DONTWAIT), send_rest(w, of, parts, flags))

#endif
