/*
 * Files that goroutines wait for, and close.
 */
#include "files.h"

#include "numbers.h"
#include "parts.h"

/*
 * In libc a read that waits keeps its file: close frees the number, and the read goes on waiting for the file that had
 * the number. So close first gives a file for which goroutines wait another number. The goroutines go on with that
 * number, and the last of them closes it.
 */
struct moved {
    int fd;
    atomic_uint users;
};

enum { FILE_BUCKETS = 256 };
static struct file_bucket {
    atomic_uint lock;
    atomic_uint waiting;
    struct file_waiter *first;
} __attribute__((aligned(64))) file_buckets[FILE_BUCKETS];

static struct file_bucket *file_bucket(int fd)
{
    return &file_buckets[(unsigned)fd % FILE_BUCKETS];
}

void begin_to_wait(struct file *f, struct file_waiter *w)
{
    struct file_bucket *b = file_bucket(f->fd);
    *w = (struct file_waiter){.fd = f->fd};
    spin_lock(&b->lock);
    w->next = b->first;
    b->first = w;
    atomic_fetch_add(&b->waiting, 1);
    spin_unlock(&b->lock);
}

bool end_of_wait(struct file *f, struct file_waiter *w)
{
    struct file_bucket *b = file_bucket(w->fd);
    struct file_waiter **at;
    spin_lock(&b->lock);
    for (at = &b->first; *at != NULL && *at != w; at = &(*at)->next)
        ;
    if (*at != NULL) {
        *at = w->next;
        atomic_fetch_sub(&b->waiting, 1);
    }
    spin_unlock(&b->lock);
    if (w->moved == NULL)
        return false;
    leave_file(f);
    f->moved = w->moved;
    f->fd = w->moved->fd;
    return true;
}

ssize_t wait_as_waiter(struct file *f, int events, const struct iovec *into, gs_deadline deadline)
{
    for (;;) {
        struct file_waiter w;
        begin_to_wait(f, &w);
        ssize_t r = into != NULL ? gs_recv(f->fd, into->iov_base, into->iov_len, 0, deadline)
                                 : gs_poll_fd(f->fd, events, deadline);
        if (!end_of_wait(f, &w) || (r != -ECANCELED && (r < 0 || into != NULL)))
            return r;
        /* The number was closed, or something else has happened too: try again. */
    }
}

int wait_for_file(struct file *f, int events, gs_deadline deadline, int *found)
{
    ssize_t r = wait_as_waiter(f, events, NULL, deadline);
    if (r < 0)
        return (int)-r;
    if (found != NULL)
        *found = (int)r;
    return 0;
}

void leave_moved_file(struct file *f)
{
    if (atomic_fetch_sub(&f->moved->users, 1) == 1) {
        int error = errno;
        real.close(f->moved->fd);
        free(f->moved);
        errno = error;
    }
    f->moved = NULL;
}

/* The number of goroutines that wait for the file with this number. Called with the lock held. */
static unsigned waiters_of(const struct file_bucket *b, int fd)
{
    unsigned n = 0;
    for (const struct file_waiter *w = b->first; w != NULL; w = w->next)
        n += w->fd == fd;
    return n;
}

/* Makes the goroutines that wait for the number, if any, wait for a duplicate from now on. False: there are none. */
static bool move_waiters(int fd)
{
    struct file_bucket *b = file_bucket(fd);
    struct file_waiter **at;
    spin_lock(&b->lock);
    unsigned n = waiters_of(b, fd);
    spin_unlock(&b->lock);
    if (n == 0)
        return false;
    struct moved *moved = malloc(sizeof *moved); /* allocated without the lock: malloc may be the program's */
    spin_lock(&b->lock);
    n = waiters_of(b, fd);
    int to = moved && n > 0 ? real.fcntl64(fd, F_DUPFD_CLOEXEC, 0L) : -1;
    if (to >= 0) {
        moved->fd = to;
        atomic_init(&moved->users, n);
        for (at = &b->first; *at != NULL;) {
            struct file_waiter *w = *at;
            if (w->fd == fd) {
                w->moved = moved;
                *at = w->next;
                atomic_fetch_sub(&b->waiting, 1);
            } else {
                at = &w->next;
            }
        }
    } /* else there is no number or no memory: the waiters learn that the file is closed */
    spin_unlock(&b->lock);
    if (to < 0)
        free(moved);
    return n > 0;
}

static inline bool may_be_waited_for(int fd)
{
    return gs_self && fd >= 0 && atomic_load_explicit(&file_bucket(fd)->waiting, memory_order_relaxed) != 0;
}

/* Closes a file for which goroutines may wait. */
static int close_waited_for(int fd)
{
    if (!move_waiters(fd))
        return real.close(fd);
    int r = gs_close(fd);
    return r < 0 ? failed(-r) : r;
}

EXPORT int close(int fd)
{
    if (is_within(__builtin_return_address(0), &library) && is_librarys(__builtin_return_address(0)))
        return real.close(fd);
    int r = LIKELY(!may_be_waited_for(fd)) ? real.close(fd) : close_waited_for(fd);
    if (r == 0)
        note_closed(fd);
    return r;
}
ALIAS(__close, close);

EXPORT int dup2(int fd, int to)
{
    if (!LIKELY(!may_be_waited_for(to)) && fd != to && real.fcntl64(fd, F_GETFD, 0L) >= 0 && move_waiters(to))
        gs_close(to);
    return real.dup2(fd, to);
}
ALIAS(__dup2, dup2);

EXPORT int dup3(int fd, int to, int flags)
{
    if (!LIKELY(!may_be_waited_for(to)) && fd != to && !(flags & ~O_CLOEXEC) && real.fcntl64(fd, F_GETFD, 0L) >= 0
        && move_waiters(to))
        gs_close(to);
    return real.dup3(fd, to, flags);
}

static void close_range_waited_for(unsigned from, unsigned to)
{
    if (!gs_self)
        return;
    int highest = highest_file();
    note_closed(highest >= 0 && (unsigned)highest > to ? (int)to : highest);
    for (unsigned i = 0; i < FILE_BUCKETS; i++) {
        struct file_bucket *b = &file_buckets[i];
        while (atomic_load_explicit(&b->waiting, memory_order_relaxed) != 0) {
            int found = -1;
            spin_lock(&b->lock);
            for (struct file_waiter *w = b->first; w != NULL && found < 0; w = w->next)
                if ((unsigned)w->fd >= from && (unsigned)w->fd <= to)
                    found = w->fd;
            spin_unlock(&b->lock);
            if (found < 0)
                break;
            if (move_waiters(found))
                gs_close(found);
        }
    }
}

EXPORT int close_range(unsigned from, unsigned to, int flags)
{
    if (from <= to && flags == 0)
        close_range_waited_for(from, to);
    return real.close_range(from, to, flags);
}

EXPORT void closefrom(int from)
{
    close_range_waited_for(from > 0 ? (unsigned)from : 0, UINT_MAX);
    real.closefrom(from);
}

void files_in_child(void)
{
    memset(file_buckets, 0, sizeof file_buckets);
}
