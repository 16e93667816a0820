/* functions threads|goroutines: calls every function that the library takes over but those of stdio, and says what each gave. */
#include "say.h"

#include <aio.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <mqueue.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pty.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <threads.h>
#include <unwind.h>

static char buffer[1 << 20];
static void *volatile nowhere = (void *)16; /* an address with no memory */
static volatile int minus = -1, many_of_them = 5000;

/* ---- Files ---- */

static void write_soon(void *arg)
{
    soon();
    HOLDS(write(*(int *)arg, "0123456789", 10) == 10);
}

static void pipes(void)
{
    int p[2];
    char a[4], b[20];
    struct iovec two[2] = {{a, sizeof a}, {b, sizeof b}};
    task t;
    HOLDS(pipe(p) == 0);
    begin(&t, write_soon, &p[1]);
    SAY(read(p[0], b, sizeof b));
    end(&t);
    begin(&t, write_soon, &p[1]);
    SAY(readv(p[0], two, 2));
    end(&t);
    SAY(writev(p[1], two, 2));
    SAY(read(p[0], b, 0));
    SAY(read(p[0], b, 3));
    SAY(write(p[1], b, 0));
    SAY(read(-1, b, 1));
    SAY(read(p[1], b, 1));
    SAY(write(p[0], b, 1));
    SAY(read(p[0], nowhere, 1));
    SAY(write(p[1], nowhere, 1));
    SAY(readv(p[0], nowhere, 1));
    SAY(readv(p[0], two, minus));
    SAY(readv(p[0], two, many_of_them));
    HOLDS(read(p[0], buffer, sizeof buffer) == 21);
    SAY(fcntl(p[0], F_SETFL, O_NONBLOCK));
    SAY(read(p[0], b, sizeof b));
    SAY(fcntl(p[0], F_SETFL, 0));
    close(p[1]);
    SAY(read(p[0], b, sizeof b));
    close(p[0]);
}

static void read_all(void *arg)
{
    long n = 0, r;
    while (n < (long)sizeof buffer && (r = read(*(int *)arg, buffer + n, 30000)) > 0) {
        n += r;
        if (n % 5 == 0)
            usleep(500);
    }
    HOLDS(n == (long)sizeof buffer);
}

/* readv and writev with flags, at -1. */
static void vectors(void)
{
    int p[2], disk = open(in_directory("vectors"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    char b[20];
    struct iovec iov = {b, sizeof b}, all = {buffer, sizeof buffer / 2};
    task t;
    HOLDS(pipe(p) == 0 && disk >= 0);
    begin(&t, write_soon, &p[1]);
    SAY(preadv2(p[0], &iov, 1, -1, 0));
    end(&t);
    begin(&t, write_soon, &p[1]);
    SAY(preadv2(p[0], &iov, 1, -1, RWF_HIPRI));
    end(&t);
    SAY(preadv2(p[0], &iov, 1, -1, RWF_NOWAIT));
    SAY(preadv2(p[0], &iov, 1, 0, 0));
    SAY(preadv2(p[0], &iov, 1, -1, 1 << 30));
    SAY(preadv2(p[0], nowhere, 1, -1, 0));
    begin(&t, read_all, &p[0]);
    SAY(pwritev2(p[1], &all, 1, -1, 0));
    SAY(pwritev2(p[1], &all, 1, -1, RWF_DSYNC));
    close(p[1]);
    end(&t);
    SAY(pwritev2(p[0], &iov, 1, -1, 0));
    SAY(pwritev2(disk, &iov, 1, 100, RWF_DSYNC));
    SAY(pwritev2(disk, &iov, 1, -1, 0));
    SAY(preadv2(disk, &all, 1, -1, 0));
    SAY(preadv2(disk, &iov, 1, 90, 0));
    SAY(preadv2(disk, &iov, 1, -2, 0));
    close(p[0]), close(disk);
}

static void add_seven_soon(void *arg)
{
    soon();
    HOLDS(eventfd_write(*(int *)arg, 7) == 0);
}

static void take_event_soon(void *arg)
{
    eventfd_t value;
    soon();
    HOLDS(eventfd_read(*(int *)arg, &value) == 0);
}

static void events(void)
{
    int e = eventfd(0, 0), n = eventfd(0, EFD_NONBLOCK), p[2];
    eventfd_t value = 0;
    task t;
    begin(&t, add_seven_soon, &e);
    SAY(eventfd_read(e, &value));
    end(&t);
    SAY(value);
    SAY(eventfd_write(e, UINT64_MAX - 1));
    begin(&t, take_event_soon, &e);
    SAY(eventfd_write(e, 1));
    end(&t);
    SAY(eventfd_write(e, UINT64_MAX));
    SAY(eventfd_read(n, &value));
    SAY(eventfd_read(-1, &value));
    SAY(eventfd_write(-1, 1));
    HOLDS(pipe(p) == 0);
    begin(&t, write_soon, &p[1]);
    SAY(eventfd_read(p[0], &value)); /* any file will do */
    end(&t);
    SAY(eventfd_read(p[0], &value)); /* but not two bytes */
    close(e), close(n), close(p[0]), close(p[1]);
}

/* Reads that threads of libc make: the caller waits within libc. */
static void asynchronous(void)
{
    int p[2];
    char b[20];
    task t;
    HOLDS(pipe(p) == 0);
    struct aiocb one = {.aio_fildes = p[0], .aio_buf = b, .aio_nbytes = 10, .aio_lio_opcode = LIO_READ}, *all[] = {&one};
    const struct aiocb *waits_for[] = {&one, NULL};
    SAY(aio_read(&one));
    SAY(aio_suspend(waits_for, 2, &(struct timespec){0, 10000000}));
    begin(&t, write_soon, &p[1]);
    SAY(aio_suspend(waits_for, 2, NULL));
    end(&t);
    SAY(aio_error(&one));
    SAY(aio_return(&one));
    begin(&t, write_soon, &p[1]);
    SAY(lio_listio(LIO_WAIT, all, 1, NULL));
    end(&t);
    SAY(aio_return(&one));
    SAY(lio_listio(LIO_NOWAIT, all, 1, NULL));
    begin(&t, write_soon, &p[1]);
    SAY(aio_suspend64((const struct aiocb64 *const *)waits_for, 1, NULL));
    end(&t);
    SAY(aio_return(&one));
    SAY(lio_listio(99, all, 1, NULL));
    SAY(aio_suspend(waits_for, -1, NULL));
    close(p[0]), close(p[1]);
}

/* A write that waits writes all. */
static void large_writes(void)
{
    int p[2], i;
    task t;
    char *all = malloc(sizeof buffer);
    struct iovec two[2] = {{all, sizeof buffer / 2}, {all, sizeof buffer / 2}};
    struct msghdr msg = {.msg_iov = two, .msg_iovlen = 2};
    memset(all, 'x', sizeof buffer);
    for (i = 0; i < 3; i++) {
        if (i == 2) {
            HOLDS(mkfifo(in_directory("large"), 0600) == 0);
            p[0] = open(in_directory("large"), O_RDWR);
            p[1] = dup(p[0]);
        } else {
            HOLDS((i ? socketpair(AF_UNIX, SOCK_STREAM, 0, p) : pipe(p)) == 0);
        }
        begin(&t, read_all, &p[0]);
        SAY(write(p[1], all, sizeof buffer));
        end(&t);
        begin(&t, read_all, &p[0]);
        SAY(writev(p[1], two, 2));
        end(&t);
        if (i == 1) {
            begin(&t, read_all, &p[0]);
            SAY(send(p[1], all, sizeof buffer, 0));
            end(&t);
            begin(&t, read_all, &p[0]);
            SAY(sendmsg(p[1], &msg, 0));
            end(&t);
        }
        close(p[0]);
        close(p[1]);
    }
    free(all);
}

static void open_to_write(void *arg)
{
    soon();
    int fd = open(arg, O_WRONLY);
    HOLDS(fd >= 0);
    HOLDS(write(fd, "fifo", 4) == 4);
    close(fd);
}

static void write_two_soon(void *arg)
{
    int fd = *(int *)arg;
    soon();
    HOLDS(write(fd, "xy", 2) == 2);
}

/* A terminal without lines says itself how long a read waits. */
static void terminals(void)
{
    struct termios t;
    task w;
    char b[10];
    int fd = posix_openpt(O_RDWR | O_NOCTTY), end_;
    HOLDS(fd >= 0 && grantpt(fd) == 0 && unlockpt(fd) == 0);
    end_ = open(ptsname(fd), O_RDWR | O_NOCTTY);
    HOLDS(end_ >= 0 && tcgetattr(end_, &t) == 0);
    SAY(write(fd, "line\n", 5));
    SAY(read(end_, b, sizeof b));
    cfmakeraw(&t);
    for (int least = 0; least < 3; least++)
        for (int tenths = 0; tenths < 2; tenths++) {
            t.c_cc[VMIN] = (cc_t)least;
            t.c_cc[VTIME] = (cc_t)tenths;
            HOLDS(tcsetattr(end_, TCSANOW, &t) == 0);
            if (least == 0) {
                SAY(read(end_, b, sizeof b)); /* at once, or after a tenth of a second */
                HOLDS(write(fd, "xy", 2) == 2);
            } else {
                begin(&w, write_two_soon, &fd);
            }
            SAY(read(end_, b, 2));
            if (least > 0)
                end(&w);
        }
    t.c_cc[VMIN] = 5;
    t.c_cc[VTIME] = 0;
    HOLDS(tcsetattr(end_, TCSANOW, &t) == 0);
    begin(&w, write_two_soon, &fd);
    SAY(read(end_, b, 2)); /* fewer than poll waits for */
    end(&w);
    close(end_);
    close(fd);
}

/* What open and openat are with FORTIFY_SOURCE, where no mode is given. */
extern int __open_2(const char *path, int flags);
extern int __openat_2(int dir, const char *path, int flags);

static void directories(void)
{
    int fd;
    SAY((fd = open(directory, O_RDONLY | O_DIRECTORY)) >= 0);
    close(fd);
    SAY((fd = __open_2(directory, O_RDONLY | O_DIRECTORY)) >= 0);
    SAY(__openat_2(fd, "nowhere", O_RDONLY | O_DIRECTORY));
    close(fd);
    SAY((fd = open(directory, O_RDWR | O_TMPFILE, 0640)) >= 0);
    close(fd);
}

static void fifos(void)
{
    const char *path = in_directory("fifo");
    char b[10];
    task t;
    int fd;
    SAY(mkfifo(path, 0600));
    begin(&t, open_to_write, (void *)path);
    SAY((fd = open(path, O_RDONLY)) >= 0);
    SAY(read(fd, b, sizeof b));
    SAY(read(fd, b, sizeof b));
    close(fd);
    end(&t);
    begin(&t, open_to_write, (void *)path);
    SAY((fd = openat(AT_FDCWD, path, O_RDONLY)) >= 0);
    SAY(read(fd, b, sizeof b));
    close(fd);
    end(&t);
    SAY(open(path, O_WRONLY | O_NONBLOCK));
    /* No process has opened it for writing, nor does one later. */
    SAY((fd = open(path, O_RDONLY | O_NONBLOCK)) >= 0);
    SAY(read(fd, b, sizeof b));
    SAY(fcntl(fd, F_SETFL, 0));
    SAY(read(fd, b, sizeof b));
    SAY(readv(fd, &(struct iovec){b, sizeof b}, 1));
    close(fd);
    SAY((fd = open(path, O_RDWR)) >= 0);
    begin(&t, write_soon, &fd);
    SAY(read(fd, b, sizeof b));
    end(&t);
    close(fd);
    SAY(open("/nowhere/at/all", O_RDONLY));
    SAY(open(nowhere, O_RDONLY));
    SAY((fd = creat(in_directory("made"), 0600)) >= 0);
    close(fd);
}

static void open_and_write(void *path)
{
    soon();
    FILE *f = fopen(path, "w");
    HOLDS(f != NULL && fputs("7 8\n", f) >= 0 && fclose(f) == 0);
}

static void streams(void)
{
    const char *path = in_directory("streamed");
    int a = 0, b = 0;
    FILE *f;
    task t;
    HOLDS(mkfifo(path, 0600) == 0);
    begin(&t, open_and_write, (void *)path);
    SAY((f = fopen(path, "r")) != NULL);
    end(&t);
    SAY(fscanf(f, "%d%d", &a, &b));
    SAY(a * 10 + b);
    begin(&t, open_and_write, (void *)path);
    SAY(freopen(path, "r", f) == f);
    end(&t);
    SAY(fgetc(f));
    SAY(freopen("/dev/null", "r", f) == f);
    SAY(fgetc(f));
    SAY(freopen(NULL, "r", f) == f);
    fclose(f);
    SAY(fopen("/nowhere/at/all", "r") == NULL);
    SAY(fopen(path, "no mode") == NULL);
}

static void disks(void)
{
    int fd = open(in_directory("disk"), O_RDWR | O_CREAT | O_TRUNC, 0640), out = open(in_directory("out"), O_RDWR | O_CREAT, 0600);
    struct stat st;
    char b[20] = {0};
    struct iovec v = {b, 5};
    off_t at = 0;
    HOLDS(fd >= 0 && out >= 0 && fstat(fd, &st) == 0);
    SAY(st.st_mode & 0777);
    SAY(write(fd, "0123456789", 10));
    SAY(pwrite(fd, "ab", 2, 4));
    SAY(pread(fd, b, sizeof b, 3));
    SAY(strcmp(b, "3ab6789"));
    SAY(preadv(fd, &v, 1, 1));
    SAY(pwritev(fd, &v, 1, 10));
    SAY(pread(fd, b, 1, -1));
    int proc = open("/proc/self/stat", O_RDONLY); /* which can't be tried */
    SAY(pread(proc, b, 5, 0));
    close(proc);
    SAY(fsync(fd));
    SAY(fdatasync(fd));
    SAY(syncfs(fd));
    SAY(fsync(-1));
    SAY(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
    SAY(sendfile(out, fd, &at, 10));
    at = 0;
    SAY(copy_file_range(fd, &at, out, NULL, 5, 0));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(read(fd, b, sizeof b));
    SAY(read(fd, b, sizeof b));
    SAY(lockf(fd, F_LOCK, 0));
    SAY(lockf(fd, F_ULOCK, 0));
    SAY(tcdrain(fd));
    /* Of a file that memory has only the beginning of: the same bytes as if it had all. */
    static char large[1 << 20];
    struct iovec two[2] = {{large, sizeof large / 2}, {large + sizeof large / 2, sizeof large / 2}};
    HOLDS(pwrite(fd, large, sizeof large, 0) == sizeof large && fsync(fd) == 0);
    for (int way = 0; way < 4; way++) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
        HOLDS(pread(fd, b, 1, 0) == 1 && lseek(fd, 0, SEEK_SET) == 0);
        SAY(way == 0 ? read(fd, large, sizeof large) : way == 1 ? readv(fd, two, 2) :
            way == 2 ? pread(fd, large, sizeof large, 0) : preadv(fd, two, 2, 0));
        SAY(lseek(fd, 0, SEEK_CUR));
    }
    /* The kernel takes the processor away while it fills as much as this. */
    size_t much = 64 << 20;
    char *room = mmap(NULL, much, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const char *endless[] = {"/dev/zero", "/dev/urandom"};
    HOLDS(room != MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        int source = open(endless[i], O_RDONLY);
        struct iovec halves[2] = {{room, much / 2}, {room + much / 2, much / 2}};
        SAY(read(source, room, much >> i));
        SAY(i > 0 ? 0 : readv(source, halves, 2));
        close(source);
    }
    munmap(room, much);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, out, 0);
    SAY(msync(map, 4096, MS_SYNC));
    munmap(map, 4096);
    close(fd);
    close(out);
}

static void unlock_soon(void *arg)
{
    soon();
    HOLDS(flock(*(int *)arg, LOCK_UN) == 0);
}

static void unlock_range_soon(void *arg)
{
    struct flock l = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    soon();
    HOLDS(fcntl(*(int *)arg, F_OFD_SETLK, &l) == 0);
}

/* Locks of files whose owner is another goroutine of the same thread. */
static void file_locks(void)
{
    const char *path = in_directory("locked");
    int a = open(path, O_RDWR | O_CREAT, 0600), b = open(path, O_RDWR);
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    task t;
    SAY(flock(a, LOCK_EX));
    SAY(flock(b, LOCK_EX | LOCK_NB));
    begin(&t, unlock_soon, &a);
    SAY(flock(b, LOCK_EX));
    end(&t);
    SAY(flock(b, LOCK_UN));
    SAY(flock(-1, LOCK_EX));
    SAY(flock(b, 1234));
    SAY(fcntl(a, F_OFD_SETLKW, &l));
    SAY(fcntl(b, F_OFD_SETLK, &l));
    begin(&t, unlock_range_soon, &a);
    SAY(fcntl(b, F_OFD_SETLKW, &l));
    end(&t);
    l.l_type = F_UNLCK;
    SAY(fcntl(b, F_OFD_SETLK, &l));
    l.l_type = F_WRLCK;
    SAY(fcntl(b, F_SETLKW, &l));
    close(a);
    close(b);
}

static void copy_out(void *arg)
{
    int *fds = arg;
    soon();
    HOLDS(read(fds[0], buffer, 20) == 10);
}

/* What waits in the kernel for a socket or a pipe. */
static void copies(void)
{
    int p[2], q[2];
    task t;
    HOLDS(pipe(p) == 0 && pipe(q) == 0);
    begin(&t, write_soon, &p[1]);
    SAY(splice(p[0], NULL, q[1], NULL, 100, 0));
    end(&t);
    begin(&t, copy_out, q);
    end(&t);
    begin(&t, write_soon, &p[1]);
    SAY(tee(p[0], q[1], 100, 0));
    end(&t);
    HOLDS(read(p[0], buffer, 20) == 10);
    SAY(tee(p[0], q[1], 100, SPLICE_F_NONBLOCK));
    /* One page more fills the pipe, which has one page with 10 bytes. */
    struct iovec iov = {buffer, 1};
    SAY(fcntl(q[1], F_SETPIPE_SZ, 4096));
    begin(&t, copy_out, q);
    SAY(vmsplice(q[1], &iov, 1, 0));
    end(&t);
    close(p[0]), close(p[1]), close(q[0]), close(q[1]);
}

static void close_soon(void *arg)
{
    int *fds = arg;
    soon();
    HOLDS(close(fds[0]) == 0);
    HOLDS(write(fds[1], "late", 4) == 4);
}

static void replace_soon(void *arg)
{
    int *fds = arg, other = open("/dev/null", O_RDWR);
    soon();
    HOLDS(dup2(other, fds[0]) == fds[0]);
    HOLDS(write(fds[1], "late", 4) == 4);
    close(other);
}

/* The program's malloc, which closes a file when it is told to. */
static atomic_int closed_by_malloc = -1;
extern void *__libc_malloc(size_t n), *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
    int fd = atomic_load(&closed_by_malloc);
    if (fd >= 0 && atomic_compare_exchange_strong(&closed_by_malloc, &fd, -1))
        close(fd);
    return __libc_malloc(n);
}

/* The program's realloc, which takes a lock when it is told to. */
static atomic_bool realloc_locks;
static pthread_mutex_t in_realloc = PTHREAD_MUTEX_INITIALIZER;

void *realloc(void *p, size_t n)
{
    bool locks = atomic_load(&realloc_locks) && pthread_mutex_trylock(&in_realloc) == 0;
    void *more = __libc_realloc(p, n);
    if (locks)
        pthread_mutex_unlock(&in_realloc);
    return more;
}

/* The library allocates while a number is closed that is waited for. The file that malloc closes then has a number whose
 * waiters are kept with those of the other one. */
static void closing_in_malloc(void)
{
    enum { APART = 256 };
    int p[2];
    task t;
    HOLDS(pipe(p) == 0);
    HOLDS(dup2(p[1], p[0] + APART) == p[0] + APART);
    int also = p[1];
    begin(&t, close_soon, p);
    atomic_store(&closed_by_malloc, p[0] + APART);
    SAY(read(p[0], buffer, 10));
    end(&t);
    if (atomic_exchange(&closed_by_malloc, -1) >= 0)
        close(p[0] + APART); /* nothing was allocated */
    close(also);
}

/* A file that is closed goes on being read by who waits for it. */
static void closing(void)
{
    int i, p[2];
    char b[10];
    task t;
    for (i = 0; i < 4; i++) {
        HOLDS((i % 2 ? socketpair(AF_UNIX, SOCK_STREAM, 0, p) : pipe(p)) == 0);
        begin(&t, i < 2 ? close_soon : replace_soon, p);
        SAY(read(p[0], b, sizeof b));
        end(&t);
        SAY(read(p[0], b, sizeof b));
        if (i >= 2)
            close(p[0]);
        close(p[1]);
    }
    SAY(close(-1));
    SAY(close_range(900000, 900001, 0));
}

/* ---- Sockets ---- */

static void send_soon(void *arg)
{
    soon();
    HOLDS(send(*(int *)arg, "0123456789", 10, 0) == 10);
}

static void send_twice(void *arg)
{
    send_soon(arg);
    send_soon(arg);
}

static void drain(int fd)
{
    char b[100];
    while (recv(fd, b, sizeof b, MSG_DONTWAIT) > 0)
        ;
}

static void receiving(void)
{
    int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}, s[2], k;
    for (k = 0; k < 3; k++) {
        char a[20], b[20];
        struct iovec v = {a, sizeof a};
        struct msghdr msg = {.msg_iov = &v, .msg_iovlen = 1};
        struct mmsghdr many[2] = {{.msg_hdr = msg}, {.msg_hdr = msg}};
        struct sockaddr_un from;
        socklen_t len = sizeof from;
        task t;
        HOLDS(socketpair(AF_UNIX, types[k], 0, s) == 0);
        printf("    type %d\n", types[k]);
#define AFTER_SEND(call) \
    do { \
        begin(&t, send_soon, &s[1]); \
        SAY(call); \
        end(&t); \
    } while (0)
        AFTER_SEND(read(s[0], b, sizeof b));
        AFTER_SEND(read(s[0], b, 4)); /* of a stream 6 bytes are left */
        drain(s[0]);
        AFTER_SEND(recv(s[0], b, sizeof b, MSG_PEEK));
        SAY(recv(s[0], b, 5, MSG_TRUNC));
        drain(s[0]);
        SAY(recv(s[0], b, sizeof b, MSG_DONTWAIT));
        AFTER_SEND(recv(s[0], b, sizeof b, 0));
        AFTER_SEND(recvfrom(s[0], b, sizeof b, 0, (struct sockaddr *)&from, &len));
        AFTER_SEND(recvmsg(s[0], &msg, 0));
        AFTER_SEND(recvmmsg(s[0], many, 2, MSG_WAITFORONE, NULL));
        v.iov_len = 10;
        begin(&t, send_twice, &s[1]);
        SAY(recvmmsg(s[0], many, 2, 0, NULL));
        end(&t);
        begin(&t, send_twice, &s[1]);
        SAY(recv(s[0], b, 20, MSG_WAITALL));
        end(&t);
        drain(s[0]);
        setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 30000}, sizeof(struct timeval));
        HOLDS(write(s[1], "abc", 3) == 3);
        SAY(recv(s[0], b, 20, MSG_WAITALL)); /* the rest doesn't come in time */
        setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 0}, sizeof(struct timeval));
        SAY(recv(s[0], b, sizeof b, MSG_OOB));
        SAY(recv(s[0], nowhere, 1, MSG_DONTWAIT));
        SAY(recvmsg(s[0], nowhere, 0));
        struct timeval limit = {0, 30000};
        SAY(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
        SAY(recv(s[0], b, sizeof b, 0));
        SAY(read(s[0], b, sizeof b));
        SAY(recvmsg(s[0], &msg, 0));
        setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){60, 0}, sizeof limit);
        AFTER_SEND(read(s[0], b, sizeof b));
        setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        SAY(read(s[0], b, sizeof b)); /* the last read was short */
        SAY(fcntl(s[0], F_SETFL, O_NONBLOCK));
        SAY(recv(s[0], b, sizeof b, 0));
        SAY(read(s[0], b, sizeof b));
        close(s[1]);
        SAY(recv(s[0], b, sizeof b, 0));
        close(s[0]);
    }
    SAY(recv(-1, buffer, 1, 0));
    SAY(recv(0, buffer, 1, 0) < 0);
}

static int listen_on_loopback(void);
static struct sockaddr_in loopback;

/* What is urgent, and errors: a socket that blocks doesn't wait for these. */
static void urgent(void)
{
    int listener = listen_on_loopback(), s = socket(AF_INET, SOCK_STREAM, 0), u = socket(AF_INET, SOCK_DGRAM, 0), a, yes = 1;
    char b[20];
    struct iovec v = {b, sizeof b};
    struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};
    struct sockaddr_in from;
    socklen_t len = sizeof from;
    HOLDS(setsockopt(u, SOL_IP, IP_RECVERR, &yes, sizeof yes) == 0);
    SAY(recv(u, b, sizeof b, MSG_ERRQUEUE));
    SAY(recvfrom(u, b, sizeof b, MSG_ERRQUEUE, (struct sockaddr *)&from, &len));
    SAY(recvmsg(u, &m.msg_hdr, MSG_ERRQUEUE));
    SAY(recvmmsg(u, &m, 1, MSG_ERRQUEUE, NULL));
    HOLDS(connect(s, (struct sockaddr *)&loopback, sizeof loopback) == 0 && (a = accept(listener, NULL, NULL)) >= 0);
    SAY(recv(a, b, 1, MSG_OOB));
    HOLDS(send(s, "u", 1, MSG_OOB) == 1);
    SAY(poll(&(struct pollfd){a, POLLPRI, 0}, 1, -1));
    SAY(recv(a, b, 1, MSG_OOB));
    SAY(recv(a, b, 1, MSG_OOB));
    close(listener), close(s), close(u), close(a);
}

static void send_and_reset(void *arg)
{
    struct linger none = {1, 0};
    soon();
    HOLDS(send(*(int *)arg, "abc", 3, 0) == 3);
    soon();
    HOLDS(setsockopt(*(int *)arg, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
    close(*(int *)arg);
}

static void send_what_is_urgent(void *arg)
{
    soon();
    HOLDS(send(*(int *)arg, "abc", 3, 0) == 3);
    soon();
    HOLDS(send(*(int *)arg, "u", 1, MSG_OOB) == 1);
}

static void send_and_end(void *arg)
{
    soon();
    HOLDS(send(*(int *)arg, "abc", 3, 0) == 3);
    soon();
    HOLDS(send(*(int *)arg, "def", 3, 0) == 3 && shutdown(*(int *)arg, SHUT_WR) == 0);
}

/* What ends a receive of all before all has come: the next call tells of a lost connection. */
static void unfinished(void)
{
    void (*ways[])(void *) = {send_and_reset, send_what_is_urgent, send_and_end};
    int listener = listen_on_loopback();
    for (int i = 0; i < 3; i++)
        for (int flags = 0; flags <= MSG_TRUNC; flags += MSG_TRUNC) {
            char b[20];
            int s = socket(AF_INET, SOCK_STREAM, 0), a;
            task t;
            HOLDS(connect(s, (struct sockaddr *)&loopback, sizeof loopback) == 0 && (a = accept(listener, NULL, NULL)) >= 0);
            begin(&t, ways[i], &s);
            SAY(recv(a, b, sizeof b, MSG_WAITALL | flags));
            end(&t);
            SAY(recv(a, b, sizeof b, MSG_DONTWAIT));
            SAY(recv(a, b, sizeof b, MSG_DONTWAIT));
            close(s), close(a);
        }
    close(listener);
}

static void shut_soon(void *arg)
{
    soon();
    shutdown(*(int *)arg, SHUT_RD);
}

/* Where nothing follows a shutdown the kernel ends calls that wait; calls that don't wait would try for ever. */
static void shutting(void)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct sockaddr_storage from;
    socklen_t len;
    int s[2], k, call;
    task t;
    for (k = 0; k < 3; k++)
        for (call = 0; call < 6; call++) {
            char b[10];
            struct iovec v = {b, sizeof b};
            struct msghdr msg = {.msg_iov = &v, .msg_iovlen = 1};
            struct mmsghdr many[2] = {{.msg_hdr = msg}, {.msg_hdr = msg}};
            if (k < 2) {
                HOLDS(socketpair(AF_UNIX, k == 0 ? SOCK_DGRAM : SOCK_SEQPACKET, 0, s) == 0);
            } else {
                HOLDS((s[0] = socket(AF_INET, SOCK_DGRAM, 0)) >= 0 && (s[1] = dup(s[0])) >= 0);
                HOLDS(bind(s[0], (struct sockaddr *)&in, sizeof in) == 0);
            }
            begin(&t, shut_soon, &s[0]);
            len = sizeof from;
            for (int twice = 0; twice < 2; twice++)
                switch (call) {
                case 0: SAY(read(s[0], b, sizeof b)); break;
                case 1: SAY(readv(s[0], &v, 1)); break;
                case 2: SAY(recv(s[0], b, sizeof b, 0)); break;
                case 3: SAY(recvfrom(s[0], b, sizeof b, MSG_PEEK, (struct sockaddr *)&from, &len)); break;
                case 4: SAY(recvmsg(s[0], &msg, 0)); break;
                case 5: SAY(recvmmsg(s[0], many, 2, MSG_WAITFORONE, NULL)); break;
                }
            SAY(recv(s[0], b, sizeof b, MSG_DONTWAIT));
            end(&t);
            close(s[0]), close(s[1]);
        }
    snprintf(at.sun_path, sizeof at.sun_path, "%s/shut", directory);
    s[0] = socket(AF_UNIX, SOCK_STREAM, 0);
    HOLDS(bind(s[0], (struct sockaddr *)&at, sizeof at) == 0 && listen(s[0], 1) == 0);
    begin(&t, shut_soon, &s[0]);
    SAY(accept(s[0], NULL, NULL));
    SAY(accept(s[0], NULL, NULL));
    end(&t);
    close(s[0]);
}

/* Short reads and long ones in turn: what is kept of the last one is a hint. */
static void short_reads(void)
{
    int s[2], i;
    char b[8];
    task t;
    HOLDS(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    for (i = 0; i < 3; i++) {
        begin(&t, send_soon, &s[1]);
        SAY(read(s[0], b, sizeof b)); /* waits; all of b */
        SAY(read(s[0], b, sizeof b)); /* the rest at once */
        end(&t);
        HOLDS(write(s[1], "x", 1) == 1);
        SAY(read(s[0], b, sizeof b)); /* it is there, though the last read was short */
    }
    HOLDS(write(s[1], "abc", 3) == 3);
    shutdown(s[1], SHUT_WR);
    SAY(read(s[0], b, sizeof b));
    SAY(read(s[0], b, sizeof b));
    SAY(read(s[0], b, sizeof b));
    close(s[0]), close(s[1]);
    /* The number is another file now. */
    int p[2];
    HOLDS(pipe(p) == 0);
    HOLDS(write(p[1], "abc", 3) == 3);
    SAY(read(p[0], b, sizeof b));
    close(p[0]), close(p[1]);
}

static void take_datagrams(void *arg)
{
    char b[100];
    for (int i = 0; i < 40; i++) {
        usleep(300);
        HOLDS(recv(*(int *)arg, b, sizeof b, 0) == 30);
    }
}

static void sending(void)
{
    int s[2], i, sent = 0;
    task t;
    struct iovec v = {buffer, 30};
    struct mmsghdr many[3] = {{.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}},
                              {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}}};
    /* The peer's queue is full, which poll doesn't tell. */
    HOLDS(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
    begin(&t, take_datagrams, &s[0]);
    for (i = 0; i < 37; i++)
        sent += send(s[1], buffer, 30, 0) == 30;
    SAY(sent);
    SAY(sendmmsg(s[1], many, 3, 0));
    end(&t);
    close(s[0]), close(s[1]);
    HOLDS(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    struct timeval limit = {0, 30000};
    SAY(setsockopt(s[1], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    while (send(s[1], buffer, sizeof buffer, MSG_DONTWAIT) > 0)
        ;
    SAY(send(s[1], buffer, sizeof buffer, 0));
    SAY(write(s[1], buffer, sizeof buffer));
    SAY(send(s[1], buffer, 1, MSG_DONTWAIT));
    close(s[0]);
    SAY(send(s[1], buffer, 1, MSG_NOSIGNAL));
    SAY(sendto(s[1], buffer, 1, MSG_NOSIGNAL, NULL, 0));
    SAY(sendmsg(s[1], nowhere, 0));
    close(s[1]);
}

static struct sockaddr_in loopback;

static void connect_soon(void *arg)
{
    (void)arg;
    soon();
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    HOLDS(connect(fd, (struct sockaddr *)&loopback, sizeof loopback) == 0);
    HOLDS(write(fd, "hello", 5) == 5);
    char b[10];
    HOLDS(read(fd, b, sizeof b) == 0);
    close(fd);
}

static void accept_soon(void *arg)
{
    int *fds = arg;
    for (int i = 0; i < fds[1]; i++) {
        soon();
        int fd = accept(fds[0], NULL, NULL);
        HOLDS(fd >= 0);
        close(fd);
    }
}

static int listen_on_loopback(void)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof loopback;
    loopback = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    HOLDS(bind(listener, (struct sockaddr *)&loopback, sizeof loopback) == 0 && listen(listener, 10) == 0);
    HOLDS(getsockname(listener, (struct sockaddr *)&loopback, &len) == 0);
    return listener;
}

/* Reads some of what comes, then resets the connection. */
static void read_and_reset(void *arg)
{
    struct linger none = {1, 0};
    soon();
    HOLDS(recv(*(int *)arg, buffer, 100000, MSG_WAITALL) == 100000);
    soon();
    HOLDS(setsockopt(*(int *)arg, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
    close(*(int *)arg);
}

static void read_and_close(void *arg)
{
    soon();
    HOLDS(read(*(int *)arg, buffer, 20000) > 0);
    soon();
    close(*(int *)arg);
}

static bool sigpipe_is_pending(void)
{
    sigset_t pending, pipe;
    const struct timespec none = {0, 0};
    int before = errno;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    HOLDS(sigpending(&pending) == 0);
    bool yes = sigismember(&pending, SIGPIPE);
    while (sigtimedwait(&pipe, NULL, &none) > 0)
        ;
    errno = before;
    return yes;
}

/* The peer goes away while a call sends. The next call tells the error, and raises the signal. */
static void partial_sends(void)
{
    enum { ALL = 32 << 20 };
    char *all = calloc(1, ALL);
    struct iovec two[2] = {{all, ALL / 2}, {all, ALL / 2}};
    struct msghdr msg = {.msg_iov = two, .msg_iovlen = 2};
    sigset_t pipes, before;
    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    HOLDS(all != NULL && pthread_sigmask(SIG_BLOCK, &pipes, &before) == 0 && signal(SIGPIPE, SIG_DFL) == SIG_IGN);
    for (int kind = 0; kind < 3; kind++)
        for (int call = 0; call < 4; call++) {
            int s[2];
            task t;
            ssize_t n = 0;
            if (kind == 0) {
                int listener = listen_on_loopback();
                s[1] = socket(AF_INET, SOCK_STREAM, 0);
                HOLDS(connect(s[1], (struct sockaddr *)&loopback, sizeof loopback) == 0);
                HOLDS((s[0] = accept(listener, NULL, NULL)) >= 0);
                close(listener);
            } else if (kind == 1) {
                HOLDS(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
            } else if (call < 2) {
                HOLDS(pipe(s) == 0);
            } else {
                break;
            }
            begin(&t, kind == 0 ? read_and_reset : read_and_close, &s[0]);
            errno = 77; /* which stays */
            switch (call) {
            case 0: n = write(s[1], all, ALL); break;
            case 1: n = writev(s[1], two, 2); break;
            case 2: n = send(s[1], all, ALL, 0); break;
            case 3: n = sendmsg(s[1], &msg, 0); break;
            }
            HOLDS(errno == 77);
            SAY(n > 0 && n < ALL);
            SAY(sigpipe_is_pending());
            end(&t);
            for (int i = 0; i < 2; i++) {
                SAY(write(s[1], all, 1));
                SAY(sigpipe_is_pending());
            }
            close(s[1]);
        }
    HOLDS(signal(SIGPIPE, SIG_IGN) == SIG_DFL && pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    free(all);
}

static void take_empty_ones(void *arg)
{
    soon();
    while (recv(*(int *)arg, buffer, 10, MSG_DONTWAIT) >= 0)
        ;
}

static void make_file_soon(void *arg)
{
    soon();
    HOLDS(close(open(arg, O_WRONLY | O_CREAT, 0600)) == 0);
}

/* Each of the calls with no bytes to read or to write. */
static void say_nothing(int fd, bool reads, bool writes)
{
    char b[20];
    struct iovec v[2] = {{b, 0}, {b, 0}};
    if (reads) {
        SAY(read(fd, b, 0));
        SAY(read(fd, nowhere, 0));
        SAY(readv(fd, v, 1));
        SAY(readv(fd, v, 2));
        SAY(readv(fd, v, 0));
        SAY(readv(fd, NULL, 0));
        SAY(pread(fd, b, 0, 0));
        SAY(preadv(fd, v, 1, 0));
    }
    if (writes) {
        SAY(write(fd, b, 0));
        SAY(write(fd, nowhere, 0));
        SAY(writev(fd, v, 1));
        SAY(writev(fd, v, 2));
        SAY(writev(fd, v, 0));
        SAY(writev(fd, NULL, 0));
        SAY(pwrite(fd, b, 0, 0));
        SAY(pwritev(fd, v, 1, 0));
        SAY(sigpipe_is_pending());
    }
}

static void nothing(void)
{
    int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}, s[2], k, fd;
    char b[20];
    struct iovec v = {b, 0};
    struct msghdr empty = {.msg_iov = &v, .msg_iovlen = 1}, none = {0};
    struct mmsghdr many[2] = {{.msg_hdr = empty}, {.msg_hdr = none}};
    struct sockaddr_un from;
    socklen_t len = sizeof from;
    task t;
    sigset_t set, before;
    HOLDS(signal(SIGPIPE, SIG_DFL) == SIG_IGN && sigemptyset(&set) == 0 && sigaddset(&set, SIGPIPE) == 0);
    HOLDS(pthread_sigmask(SIG_BLOCK, &set, &before) == 0);
    for (k = 0; k < 3; k++) {
        printf("    type %d\n", types[k]);
        HOLDS(socketpair(AF_UNIX, types[k], 0, s) == 0);
#define SENT(call) \
    do { \
        SAY(call); \
        int got_ = 0; \
        while (recv(s[1], b, sizeof b, MSG_DONTWAIT) == 0 && types[k] != SOCK_STREAM) \
            got_++; \
        printf("    empty ones: %d\n", got_); \
    } while (0)
        SENT(write(s[0], b, 0));
        SENT(writev(s[0], &v, 1));
        SENT(writev(s[0], &v, 0));
        SENT(send(s[0], b, 0, 0));
        SENT(send(s[0], b, 0, MSG_DONTWAIT));
        SENT(sendto(s[0], NULL, 0, 0, NULL, 0));
        SENT(sendmsg(s[0], &empty, 0));
        SENT(sendmsg(s[0], &none, 0));
        SENT(sendmmsg(s[0], many, 2, 0));
        /* There is something, and nothing of it is asked for. */
#define OF_ONE(call) \
    do { \
        HOLDS(write(s[1], "ab", 2) == 2); \
        SAY(call); \
        SAY(recv(s[0], b, sizeof b, MSG_DONTWAIT)); \
    } while (0)
        OF_ONE(read(s[0], b, 0));
        OF_ONE(readv(s[0], &v, 1));
        OF_ONE(readv(s[0], &v, 0));
        OF_ONE(recv(s[0], b, 0, 0));
        OF_ONE(recv(s[0], b, 0, MSG_PEEK));
        OF_ONE(recv(s[0], b, 0, MSG_WAITALL));
        OF_ONE(recvfrom(s[0], NULL, 0, 0, (struct sockaddr *)&from, &len));
        OF_ONE(recvmsg(s[0], &empty, 0));
        OF_ONE(recvmsg(s[0], &none, 0));
        OF_ONE(recvmmsg(s[0], many, 2, MSG_WAITFORONE, NULL));
        /* There is nothing yet. */
        SAY(read(s[0], b, 0));
        SAY(readv(s[0], &v, 1));
        SAY(recv(s[0], b, 0, MSG_DONTWAIT));
        AFTER_SEND(recv(s[0], b, 0, 0));
        drain(s[0]);
        AFTER_SEND(recvfrom(s[0], b, 0, 0, (struct sockaddr *)&from, &len));
        drain(s[0]);
        AFTER_SEND(recvmsg(s[0], &empty, 0));
        drain(s[0]);
        AFTER_SEND(recvmsg(s[0], &none, 0));
        drain(s[0]);
        if (types[k] != SOCK_STREAM) {
            struct timeval limit = {0, 30000}, forever = {0, 0};
            while (send(s[0], b, 0, MSG_DONTWAIT) == 0)
                ;
            setsockopt(s[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
            SAY(write(s[0], b, 0)); /* the queue is full */
            setsockopt(s[0], SOL_SOCKET, SO_SNDTIMEO, &forever, sizeof limit);
            begin(&t, take_empty_ones, &s[1]);
            SAY(write(s[0], b, 0));
            end(&t);
            while (send(s[0], b, 0, MSG_DONTWAIT) == 0)
                ;
            SAY(fcntl(s[0], F_SETFL, O_NONBLOCK));
            SAY(write(s[0], b, 0));
        }
        SAY(shutdown(s[0], SHUT_WR));
        say_nothing(s[0], true, true);
        close(s[1]);
        say_nothing(s[0], true, true);
        close(s[0]);
        fd = socket(AF_UNIX, types[k], 0);
        say_nothing(fd, true, true); /* not connected */
        close(fd);
    }
    struct {
        const char *what;
        int fd;
        bool reads, writes;
    } files[] = {
        {"a socket that listens", listen_on_loopback(), true, true},
        {"a TCP socket that isn't connected", socket(AF_INET, SOCK_STREAM, 0), true, true},
        {"a UDP socket that isn't connected", socket(AF_INET, SOCK_DGRAM, 0), true, true},
        {"eventfd", eventfd(0, 0), true, true},
        {"eventfd with a value", eventfd(1, 0), true, true},
        {"timerfd", timerfd_create(CLOCK_MONOTONIC, 0), true, true},
        {"epoll", epoll_create1(0), true, true},
        {"inotify, written", inotify_init(), false, true},
        {"inotify that doesn't block", inotify_init1(IN_NONBLOCK), true, true},
        {"a directory", open("/", O_RDONLY), true, true},
        {"a disk file", open(in_directory("nothing"), O_RDWR | O_CREAT, 0600), true, true},
        {"a disk file, read only", open(in_directory("nothing"), O_RDONLY), true, true},
        {"a disk file, written only", open(in_directory("nothing"), O_WRONLY), true, true},
        {"/dev/null", open("/dev/null", O_RDWR), true, true},
        {"/dev/zero", open("/dev/zero", O_RDWR), true, true},
        {"/proc", open("/proc/self/stat", O_RDONLY), true, true},
        {"a terminal", posix_openpt(O_RDWR | O_NOCTTY), true, true},
        {"none", -1, true, true},
    };
    for (k = 0; k < (int)(sizeof files / sizeof files[0]); k++) {
        printf("    %s\n", files[k].what);
        say_nothing(files[k].fd, files[k].reads, files[k].writes);
        close(files[k].fd);
    }
    HOLDS(pipe(s) == 0);
    say_nothing(s[0], true, true);
    say_nothing(s[1], true, true);
    close(s[0]);
    say_nothing(s[1], false, true);
    close(s[1]);
    fd = inotify_init(); /* which waits all the same */
    HOLDS(inotify_add_watch(fd, directory, IN_CREATE) >= 0);
    begin(&t, make_file_soon, (void *)in_directory("event"));
    SAY(read(fd, b, 0));
    end(&t);
    close(fd);
    HOLDS(signal(SIGPIPE, SIG_IGN) == SIG_DFL && pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

static atomic_int accepts;

static void accept_on(void *arg)
{
    int listener = *(int *)arg;
    atomic_fetch_add(&accepts, 1);
    int fd = accept(listener, NULL, NULL);
    HOLDS(fd >= 0);
    close(fd);
}

static void connect_and_close(void *arg)
{
    (void)arg;
    soon();
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    HOLDS(connect(fd, (struct sockaddr *)&loopback, sizeof loopback) == 0);
    close(fd);
}

/* A task that waits for a connection holds up no other listener, whatever its number. */
static void several_listeners(void)
{
    int quiet = listen_on_loopback(), busy, fd, number = quiet + 1, was = quiet;
    struct sockaddr_in of_quiet = loopback, of_was;
    task waits, still_waits, t;
    atomic_store(&accepts, 0);
    begin(&waits, accept_on, &was);
    while (atomic_load(&accepts) < 1)
        usleep(100);
    soon();
    for (int i = 0; i < 64; i++, number++) {
        int at = listen_on_loopback();
        HOLDS((busy = fcntl(at, F_DUPFD, number)) >= 0);
        close(at);
        begin(&t, connect_and_close, NULL);
        HOLDS((fd = accept(busy, NULL, NULL)) >= 0);
        close(fd);
        end(&t);
        close(busy);
    }
    /* Nor after close: the number is another listener's now. */
    HOLDS((quiet = listen_on_loopback()) >= 0);
    of_was = loopback;
    begin(&still_waits, accept_on, &quiet);
    while (atomic_load(&accepts) < 2)
        usleep(100);
    soon();
    close(quiet);
    HOLDS((busy = listen_on_loopback()) == quiet);
    begin(&t, connect_and_close, NULL);
    SAY((fd = accept(busy, NULL, NULL)) >= 0);
    close(fd);
    end(&t);
    close(busy);
    for (int i = 0; i < 2; i++) {
        loopback = i == 0 ? of_quiet : of_was;
        fd = socket(AF_INET, SOCK_STREAM, 0);
        SAY(connect(fd, (struct sockaddr *)&loopback, sizeof loopback));
        close(fd);
    }
    end(&waits);
    end(&still_waits);
    close(was);
}

static atomic_int accepted;

static void accept_and_count(void *arg)
{
    accept_on(arg);
    atomic_fetch_add(&accepted, 1);
}

/* Tasks that accept keep their listener when its number becomes another's, also those whose turn has not come. */
static void closed_listeners(void)
{
    enum { TASKS = 3 };
    for (int way = 0; way < 2; way++) {
        task tasks[TASKS], t;
        int listener = listen_on_loopback(), other, spare;
        struct sockaddr_in first = loopback, second;
        atomic_store(&accepts, 0);
        atomic_store(&accepted, 0);
        for (int i = 0; i < TASKS; i++)
            begin(&tasks[i], accept_and_count, &listener);
        while (atomic_load(&accepts) < TASKS)
            usleep(100);
        soon();
        if (way == 0) {
            close(listener);
            HOLDS((other = listen_on_loopback()) == listener);
        } else {
            HOLDS((spare = listen_on_loopback()) >= 0);
            HOLDS((other = dup2(spare, listener)) == listener);
            close(spare);
        }
        second = loopback;
        loopback = first;
        for (int i = 0; i < TASKS; i++) {
            begin(&t, connect_and_close, NULL);
            end(&t);
        }
        for (int i = 0; i < 2000 && atomic_load(&accepted) < TASKS; i++)
            usleep(1000);
        SAY(atomic_load(&accepted));
        loopback = second;
        for (int i = atomic_load(&accepted); i < TASKS; i++) /* whoever accepts on it must not */
            connect_and_close(NULL);
        for (int i = 0; i < TASKS; i++)
            end(&tasks[i]);
        SAY(poll(&(struct pollfd){.fd = other, .events = POLLIN}, 1, 0));
        close(other);
    }
}

static socklen_t abstract_name(struct sockaddr_un *a, const char *name)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "preload-%d-%s", getpid(), name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int socket_named(const char *name)
{
    struct sockaddr_un a;
    socklen_t len = abstract_name(&a, name);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    HOLDS(fd >= 0 && bind(fd, (struct sockaddr *)&a, len) == 0);
    return fd;
}

static atomic_int sends;

static void send_last(void *arg)
{
    struct sockaddr_un to;
    socklen_t len = abstract_name(&to, "full");
    atomic_store(&sends, 1);
    HOLDS(sendto(*(int *)arg, "last", 4, 0, (struct sockaddr *)&to, len) == 4);
}

/* A task that sends keeps its socket when its number becomes another's. Its peer is full, which poll doesn't say. */
static void closed_senders(void)
{
    struct sockaddr_un to, from = {0}; /* recvfrom ends no name with a 0 */
    socklen_t len = abstract_name(&to, "full");
    int full = socket_named("full"), sender = socket_named("sender"), old = sender, other, n = 0;
    task t;
    while (sendto(sender, "x", 1, MSG_DONTWAIT, (struct sockaddr *)&to, len) == 1)
        n++;
    begin(&t, send_last, &old);
    while (atomic_load(&sends) == 0)
        usleep(100);
    soon();
    close(sender);
    HOLDS((other = socket_named("other")) == sender);
    for (int i = 0; i < n; i++)
        HOLDS(recv(full, buffer, 10, 0) == 1);
    len = sizeof from;
    SAY(recvfrom(full, buffer, 10, 0, (struct sockaddr *)&from, &len));
    SAY(strcmp(strrchr(from.sun_path + 1, '-'), "-sender"));
    end(&t);
    close(full), close(other);
}

static void connecting(void)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd;
    socklen_t len = sizeof loopback;
    struct sockaddr_in from;
    char b[10];
    task t;
    loopback = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    HOLDS(bind(listener, (struct sockaddr *)&loopback, sizeof loopback) == 0 && listen(listener, 10) == 0);
    HOLDS(getsockname(listener, (struct sockaddr *)&loopback, &len) == 0);
    begin(&t, connect_soon, NULL);
    SAY((fd = accept(listener, (struct sockaddr *)&from, &len)) >= 0);
    SAY(read(fd, b, sizeof b));
    SAY(fcntl(fd, F_GETFL) & O_NONBLOCK);
    close(fd);
    end(&t);
    begin(&t, connect_soon, NULL);
    SAY((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0);
    SAY((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    struct pollfd one = {fd, POLLIN, 0};
    SAY(poll(&one, 1, -1));
    SAY(read(fd, b, sizeof b));
    SAY(read(fd, b, sizeof b));
    close(fd);
    end(&t);
    SAY(accept4(listener, NULL, NULL, 1)); /* no such flag: doesn't wait */
    struct timeval limit = {0, 30000};
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    SAY(accept(listener, NULL, NULL));
    fcntl(listener, F_SETFL, O_NONBLOCK);
    SAY(accept(listener, NULL, NULL));
    close(listener);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(connect(fd, (struct sockaddr *)&loopback, sizeof loopback));
    SAY(connect(fd, nowhere, sizeof loopback));
    SAY(accept(fd, NULL, NULL));
    close(fd);
    SAY(connect(-1, (struct sockaddr *)&loopback, sizeof loopback));
    /* A listener whose queue is full: a connection is still being made when the time is over. */
    listener = listen_on_loopback();
    HOLDS(listen(listener, 0) == 0 && connect(fd = socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&loopback, sizeof loopback) == 0);
    int late = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(late, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    SAY(connect(late, (struct sockaddr *)&loopback, sizeof loopback));
    SAY(connect(late, (struct sockaddr *)&loopback, sizeof loopback));
    close(late), close(fd), close(listener);
    /* A local socket whose queue is full. */
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s/socket", directory);
    int accepting[2] = {socket(AF_UNIX, SOCK_STREAM, 0), 4};
    HOLDS(bind(accepting[0], (struct sockaddr *)&at, sizeof at) == 0 && listen(accepting[0], 1) == 0);
    begin(&t, accept_soon, accepting);
    for (int i = 0; i < 4; i++) {
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        SAY(connect(fd, (struct sockaddr *)&at, sizeof at));
        close(fd);
    }
    end(&t);
    close(accepting[0]);
}

static void accept_and_answer(void *arg)
{
    char b[10];
    soon();
    int fd = accept(*(int *)arg, NULL, NULL);
    HOLDS(fd >= 0 && recv(fd, b, 5, MSG_WAITALL) == 5 && memcmp(b, "hello", 5) == 0);
    HOLDS(send(fd, b, 5, 0) == 5);
    close(fd);
}

/* A connection that is made by its first bytes. */
static void opened_fast(void)
{
    int listener = listen_on_loopback(), yes = 1;
    struct iovec iov = {"hello", 5};
    struct msghdr msg = {.msg_name = &loopback, .msg_namelen = sizeof loopback, .msg_iov = &iov, .msg_iovlen = 1};
    struct timeval limit = {0, 30000};
    char b[10];
    task t;
    for (int i = 0; i < 6; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        begin(&t, accept_and_answer, &listener);
        if (i > 1) {
            SAY(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &yes, sizeof yes));
            SAY(connect(fd, (struct sockaddr *)&loopback, sizeof loopback));
        }
        switch (i) {
        case 0: SAY(sendto(fd, "hello", 5, MSG_FASTOPEN, (struct sockaddr *)&loopback, sizeof loopback)); break;
        case 1: SAY(sendmsg(fd, &msg, MSG_FASTOPEN)); break;
        case 2: SAY(write(fd, "hello", 5)); break;
        case 3: SAY(send(fd, "hello", 5, 0)); break;
        case 4: SAY(writev(fd, &iov, 1)); break;
        case 5: SAY(sendmsg(fd, &(struct msghdr){.msg_iov = &iov, .msg_iovlen = 1}, 0)); break;
        }
        SAY(recv(fd, b, sizeof b, 0));
        end(&t);
        SAY(sendto(fd, "hello", 5, MSG_FASTOPEN, (struct sockaddr *)&loopback, sizeof loopback));
        close(fd);
    }
    close(listener);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    SAY(sendto(fd, "hello", 5, MSG_FASTOPEN, (struct sockaddr *)&loopback, sizeof loopback)); /* no socket listens on this port */
    close(fd);
    /* A listener whose queue is full. */
    listener = listen_on_loopback();
    HOLDS(listen(listener, 0) == 0 && connect(fd = socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&loopback, sizeof loopback) == 0);
    int late = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(late, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    SAY(sendto(late, "hello", 5, MSG_FASTOPEN, (struct sockaddr *)&loopback, sizeof loopback));
    close(late), late = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SAY(sendto(late, "hello", 5, MSG_FASTOPEN, (struct sockaddr *)&loopback, sizeof loopback));
    close(late), close(fd), close(listener);
}

/* ---- Several files ---- */

static fd_set files;

static fd_set *only_file(int fd)
{
    FD_ZERO(&files);
    FD_SET(fd, &files);
    return &files;
}

/* A set that ends where the memory does. */
static fd_set *set_at_end(int fd)
{
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HOLDS(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    fd_set *set = (fd_set *)(pages + 4096 - sizeof(fd_set));
    FD_SET(fd, set);
    return set;
}

/* select is asked for all files that there might be: more than a set has room for. */
static void large_selects(void)
{
    struct rlimit limit, before;
    struct timeval ms20 = {0, 20000};
    int p[2], q[2];
    char b[20];
    task t;
    HOLDS(getrlimit(RLIMIT_NOFILE, &before) == 0);
    limit = before;
    limit.rlim_cur = limit.rlim_max;
    HOLDS(setrlimit(RLIMIT_NOFILE, &limit) == 0 && getdtablesize() > 2 * FD_SETSIZE);
    HOLDS(pipe(p) == 0 && pipe(q) == 0);
    fd_set *in = set_at_end(p[0]), *except = set_at_end(q[0]);
    SAY(select(getdtablesize(), in, NULL, except, &ms20));
    SAY(FD_ISSET(p[0], in) + FD_ISSET(q[0], except));
    for (int i = 0; i < 2; i++) {
        FD_SET(p[0], in);
        FD_SET(q[0], except);
        begin(&t, write_soon, &p[1]);
        SAY(i == 0 ? select(getdtablesize(), in, NULL, NULL, NULL) : pselect(INT_MAX, in, NULL, except, NULL, NULL));
        end(&t);
        SAY(FD_ISSET(p[0], in));
        HOLDS(read(p[0], b, sizeof b) == 10);
    }
    HOLDS(setrlimit(RLIMIT_NOFILE, &before) == 0);
    close(p[0]), close(p[1]), close(q[0]), close(q[1]);
}

static int select_one(int fd, bool with_p)
{
    struct timeval ms5 = {0, 5000};
    return with_p ? pselect(fd + 1, only_file(fd), NULL, NULL, &(struct timespec){0, 5000000}, NULL)
                  : select(fd + 1, only_file(fd), NULL, NULL, &ms5);
}

/*
 * Files that aren't open: below the end of the kernel's table of files select fails, and what is beyond it doesn't count.
 * The end moves up, and never back, when the program opens a file with a high number.
 */
static void beyond_the_table(void)
{
    int p[2], high[] = {0, 300, 600}, asked[] = {63, 64, 200, 255, 256, 400, 511, 640, 800, 1023}; /* libgosched's own begin at 512 */
    struct timeval none = {0, 0}, long_time = {60, 0};
    char b[20];
    task t;
    HOLDS(pipe(p) == 0);
    for (size_t i = 0; i < sizeof high / sizeof high[0]; i++) {
        if (high[i] > 0)
            HOLDS(dup2(p[0], high[i]) == high[i] && close(high[i]) == 0);
        for (size_t k = 0; k < sizeof asked / sizeof asked[0]; k++) {
            printf("    %d was open, %d isn't\n", high[i], asked[k]);
            SAY(select_one(asked[k], false));
            SAY(FD_ISSET(asked[k], &files)); /* stays as it was */
            SAY(select_one(asked[k], true));
            SAY(select(asked[k] + 1, only_file(asked[k]), NULL, NULL, &none));
        }
    }
    HOLDS(dup2(p[0], 700) == 700);
    SAY(select_one(1023, false)); /* below the end now */
    close(700);
    /* The table grows while select waits. */
    int beyond = 2000;
    size_t words = 3000 / (8 * sizeof(long));
    unsigned long *wide = calloc(words, sizeof *wide);
    for (int i = 0; i < 2; i++) {
        memset(wide, 0, words * sizeof *wide);
        wide[beyond / 64] = 1ul << beyond % 64;
        wide[p[0] / 64] |= 1ul << p[0] % 64;
        begin(&t, write_soon, &p[1]);
        SAY(i == 0 ? select(beyond + 1, (fd_set *)wide, NULL, NULL, &long_time)
                   : pselect(beyond + 1, (fd_set *)wide, NULL, NULL, NULL, NULL));
        end(&t);
        SAY(wide[p[0] / 64] >> p[0] % 64 & 1);
        SAY(wide[beyond / 64] >> beyond % 64 & 1);
        HOLDS(read(p[0], b, sizeof b) == 10);
    }
    free(wide);
    SAY(select(p[0] + 1, nowhere, NULL, NULL, &long_time));
    SAY(select(p[0] + 1, NULL, only_file(p[0]), nowhere, NULL));
    SAY(pselect(p[0] + 1, NULL, NULL, nowhere, NULL, NULL));
    SAY(pselect(-1, NULL, NULL, NULL, NULL, NULL));
    SAY(poll(nowhere, 1 << 30, 10)); /* more files than may be open */
    SAY(ppoll(nowhere, 1 << 30, NULL, NULL));
    close(p[0]), close(p[1]);
}

static void several(void)
{
    int p[2], q[2], e = epoll_create1(0), ready;
    task t;
    HOLDS(pipe(p) == 0 && pipe(q) == 0);
    struct pollfd f[3] = {{p[0], POLLIN, 0}, {-1, POLLIN, 99}, {q[0], POLLIN, 0}};
    struct timespec ms30 = {0, 30000000}, bad = {0, 1000000000};
    struct timeval tv = {0, 30000};
    sigset_t none;
    char b[20];
    sigemptyset(&none);
    SAY(poll(f, 1, 0));
    SAY(poll(f, 1, 30));
    SAY(poll(f, 3, 30));
    SAY(poll(NULL, 0, 10));
    SAY(poll(nowhere, 1, -1));
    SAY(poll(nowhere, 1, 10));
    SAY(ppoll(f, 3, &ms30, NULL));
    SAY(ppoll(f, 3, &ms30, &none));
    SAY(ppoll(f, 3, &bad, NULL));
#define AFTER_WRITE(call) \
    do { \
        begin(&t, write_soon, &p[1]); \
        SAY(call); \
        end(&t); \
        HOLDS(read(p[0], b, sizeof b) == 10); \
    } while (0)
    AFTER_WRITE(poll(f, 1, -1));
    SAY(f[0].revents);
    AFTER_WRITE(poll(f, 1, 60000));
    AFTER_WRITE(poll(f, 3, -1));
    SAY(f[0].revents + 100 * f[1].revents + 10000 * f[2].revents);
    AFTER_WRITE(ppoll(f, 2, NULL, NULL));
    f[0].events = POLLIN | POLLOUT;
    AFTER_WRITE(poll(f, 1, -1));
    f[0].fd = 987654;
    SAY(poll(f, 1, -1));
    SAY(f[0].revents == POLLNVAL);
    f[0].fd = p[1];
    f[0].events = POLLOUT;
    SAY(poll(f, 1, -1));
    /* A file that epoll can't have. */
    int disk = open("/etc/passwd", O_RDONLY);
    struct pollfd two[3] = {{disk, 0, 0}, {p[0], POLLIN, 0}, {p[0], POLLPRI, 0}};
    SAY(poll(two, 1, 10));
    SAY(poll(two, 2, 10));
    SAY(ppoll(two, 2, &(struct timespec){0, 10000000}, NULL));
    SAY(poll(two + 1, 2, 10)); /* one file twice */
    AFTER_WRITE(poll(two, 3, -1));
    SAY(two[0].revents + 100 * two[1].revents + 10000 * two[2].revents);
    SAY(select(disk + 1, NULL, NULL, only_file(disk), &(struct timeval){0, 10000}));
    SAY(pselect(disk + 1, NULL, NULL, only_file(disk), &(struct timespec){0, 10000000}, NULL));
    FD_SET(p[0], only_file(disk));
    SAY(select((disk > p[0] ? disk : p[0]) + 1, NULL, NULL, &files, &(struct timeval){0, 10000}));
    close(disk);
    /* To epoll a socket that isn't connected has something to say again and again, to select it has nothing. */
    int unconnected = socket(AF_INET, SOCK_STREAM, 0), end_of_both = (unconnected > p[0] ? unconnected : p[0]) + 1;
    SAY(select(unconnected + 1, NULL, NULL, only_file(unconnected), &(struct timeval){0, 10000}));
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(p[0], &readable);
    AFTER_WRITE(select(end_of_both, &readable, NULL, only_file(unconnected), NULL));
    SAY(FD_ISSET(p[0], &readable) && !FD_ISSET(unconnected, &files));
    AFTER_WRITE(select(end_of_both, &readable, NULL, only_file(unconnected), &(struct timeval){60, 0}));
    AFTER_WRITE(pselect(end_of_both, &readable, NULL, only_file(unconnected), NULL, NULL));
    close(unconnected);
    SAY(select(p[0] + 1, only_file(p[0]), NULL, NULL, &tv));
    SAY(tv.tv_sec == 0 && tv.tv_usec == 0);
    AFTER_WRITE(select(p[0] + 1, only_file(p[0]), NULL, NULL, NULL));
    SAY(FD_ISSET(p[0], &files));
    AFTER_WRITE(pselect(p[0] + 1, only_file(p[0]), NULL, NULL, NULL, NULL));
    SAY(pselect(p[0] + 1, only_file(p[0]), NULL, NULL, &ms30, &none));
    SAY(select(p[1] + 1, NULL, only_file(p[1]), NULL, NULL));
    SAY(select(-1, NULL, NULL, NULL, NULL));
    ready = dup(p[0]);
    close(ready);
    SAY(select(ready + 1, only_file(ready), NULL, NULL, NULL));
    SAY(select(0, NULL, NULL, NULL, &(struct timeval){0, 10000}));
    SAY(select(0, NULL, NULL, NULL, &(struct timeval){-1, 0}));
    struct epoll_event event = {.events = EPOLLIN, .data.fd = p[0]};
    SAY(epoll_ctl(e, EPOLL_CTL_ADD, p[0], &event));
    SAY(epoll_wait(e, &event, 1, 30));
    SAY(epoll_pwait(e, &event, 1, 10, &none));
    SAY(epoll_wait(e, &event, 0, -1));
    SAY(epoll_wait(p[0], &event, 1, -1));
    AFTER_WRITE(epoll_wait(e, &event, 1, -1));
    AFTER_WRITE(epoll_pwait(e, &event, 1, -1, NULL));
    AFTER_WRITE(epoll_pwait2(e, &event, 1, NULL, NULL));
    close(e), close(p[0]), close(p[1]), close(q[0]), close(q[1]);
}

/* ---- Time, children, names ---- */

static pid_t interrupted;
static atomic_bool looked;

/*
 * The library preempts by this signal, which is ignored by default: no call of a thread ends by it. Between two signals
 * the thread gets time to go on: a signal that is pending when a handler returns lets no instruction run before the next
 * handler.
 */
static void *interrupt(void *unused)
{
    const struct timespec pause = {0, 100000};
    (void)unused;
    while (!atomic_load(&looked)) {
        HOLDS(tgkill(getpid(), interrupted, SIGURG) == 0);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Calls that look and don't wait, and the looks of those that wait, are not interrupted. */
static void looking(void)
{
    enum { MANY = 1000 }; /* so that a look takes a while */
    struct pollfd many[MANY];
    int p[2], ep = epoll_create1(0), failures = 0;
    pthread_t thread;
    interrupted = gettid();
    atomic_store(&looked, false);
    HOLDS(pipe(p) == 0);
    HOLDS(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &(struct epoll_event){.events = EPOLLIN}) == 0);
    HOLDS(pthread_create(&thread, NULL, interrupt, NULL) == 0);
    for (int i = 0; i < MANY; i++)
        many[i] = (struct pollfd){p[0], POLLIN, 0};
    for (int i = 0; i < 2000; i++) {
        struct epoll_event e;
        struct timeval t = {0, i % 2 ? 0 : 100};
        int ms = i % 16 == 0;
        for (int k = 1; k < MANY; k++)
            many[k].fd = ms ? -1 : p[0];
        FD_ZERO(&files);
        FD_SET(p[0], &files);
        failures += poll(many, MANY, ms) != 0;
        failures += epoll_wait(ep, &e, 1, ms) != 0;
        failures += select(p[0] + 1, &files, NULL, NULL, &t) != 0;
    }
    atomic_store(&looked, true);
    pthread_join(thread, NULL);
    SAY(failures);
    close(p[0]), close(p[1]), close(ep);
}

static void sleeping(void)
{
    struct timespec ms5 = {0, 5000000}, bad = {0, -1}, left = {7, 7}, at;
    double before = seconds();
    SAY(nanosleep(&ms5, &left));
    SAY(left.tv_sec);
    SAY_ERROR(clock_nanosleep(CLOCK_MONOTONIC, 0, &ms5, NULL));
    SAY_ERROR(clock_nanosleep(CLOCK_BOOTTIME, 0, &ms5, NULL));
    at = from_now(CLOCK_MONOTONIC, 5);
    SAY_ERROR(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL));
    SAY_ERROR(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL));
    at = from_now(CLOCK_REALTIME, 5);
    SAY_ERROR(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL));
    SAY(usleep(5000));
    SAY(sleep(1));
    SAY(sleep(0));
    SAY(thrd_sleep(&ms5, NULL));
    HOLDS(seconds() - before > 1.03);
    SAY(nanosleep(&bad, NULL));
    SAY(nanosleep(nowhere, NULL));
    SAY_ERROR(clock_nanosleep(12345, 0, &ms5, NULL));
}

static atomic_int whose_turn;

/* Takes every other turn, and waits for it as a spin lock does. */
static void take_turns(void *arg)
{
    int me = arg != NULL;
    for (int i = 0; i < 6; i++) {
        while (atomic_load(&whose_turn) != me) {
            if (i % 2)
                thrd_yield();
            else if (sched_yield() != 0)
                abort();
        }
        atomic_store(&whose_turn, !me);
    }
}

static atomic_int told;
static void tell_soon(void *unused)
{
    (void)unused;
    soon();
    atomic_store(&told, 1);
}

/* Looks for events, of which there always are some, until another task has told it to stop. */
static void always_ready(void)
{
    int p[2], instance = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLOUT};
    task t;
    HOLDS(pipe(p) == 0 && instance >= 0 && epoll_ctl(instance, EPOLL_CTL_ADD, p[1], &e) == 0);
    for (int way = 0; way < 4; way++) {
        struct pollfd one = {p[1], POLLOUT, 0}, two[2] = {one, one};
        fd_set set;
        int n = 1;
        atomic_store(&told, 0);
        begin(&t, tell_soon, NULL);
        while (!atomic_load(&told) && n > 0) {
            FD_ZERO(&set);
            FD_SET(p[1], &set);
            n = way == 0 ? epoll_wait(instance, &e, 1, -1) : way == 1 ? poll(two, 2, -1)
                : way == 2 ? select(p[1] + 1, NULL, &set, NULL, NULL) : epoll_wait(instance, &e, 1, 0);
        }
        SAY(n);
        end(&t);
    }
    close(instance);
    close(p[0]);
    close(p[1]);
}

static void yielding(void)
{
    task t;
    begin(&t, take_turns, &t);
    take_turns(NULL);
    end(&t);
    SAY(whose_turn);
    SAY(sched_yield());
}

/* It ends soon after *lives has been closed. */
static pid_t child_while(int status, int *lives)
{
    int p[2];
    HOLDS(pipe(p) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char b; /* in the child of a goroutine there is no other: it reads as a thread */
        close(p[1]);
        if (read(p[0], &b, 1) == 0)
            usleep(15000);
        _exit(status);
    }
    close(p[0]);
    *lives = p[1];
    return pid;
}

static pid_t child(int status)
{
    int lives;
    pid_t pid = child_while(status, &lives);
    close(lives);
    return pid;
}

static void children(void)
{
    int status = 0, lives;
    struct rusage usage;
    siginfo_t info = {0};
    pid_t pid = child_while(3, &lives);
    SAY(waitpid(pid, &status, WNOHANG));
    close(lives);
    SAY(waitpid(pid, &status, 0) == pid);
    SAY(WEXITSTATUS(status));
    SAY(waitpid(pid, &status, 0));
    pid = child(4);
    SAY(wait4(pid, &status, 0, &usage) == pid);
    SAY(WEXITSTATUS(status));
    pid = child(5);
    SAY(waitid(P_PID, (id_t)pid, &info, WEXITED));
    SAY(info.si_status);
    pid = child(6);
    SAY(wait(&status) == pid);
    SAY(WEXITSTATUS(status));
    pid = child(7);
    SAY(wait3(&status, 0, NULL) == pid);
    pid = child(8);
    SAY(waitpid(-1, &status, 0) == pid);
    SAY(wait(&status));
    SAY(waitid(P_ALL, 0, &info, WEXITED));
    SAY(waitpid(-1, &status, 1 << 20));
    SAY(WEXITSTATUS(system("exit 9")));
    SAY(system(NULL) != 0);
    pid = vfork();
    if (pid == 0)
        _exit(11);
    SAY(waitpid(pid, &status, 0) == pid);
    SAY(WEXITSTATUS(status));
}

static void write_line_soon(void *arg)
{
    soon();
    HOLDS(write(*(int *)arg, "end\n", 4) == 4);
}

/*
 * The signals that a program blocks which a task starts: those that main has blocked, also on the library's threads.
 * Some shells clear the mask first: dash does, bash doesn't.
 */
static void starting(void)
{
    char command[300], line[100], *grep[] = {"grep", "SigBlk", "/proc/self/status", NULL};
    const char *path = in_directory("blocked");
    posix_spawn_file_actions_t into;
    posix_spawnattr_t attr;
    sigset_t set;
    FILE *f;
    pid_t pid;
    int status = 0;
    snprintf(command, sizeof command, "grep SigBlk /proc/self/status >%s", path);
    SAY(system(command));
    HOLDS((f = fopen(path, "r")) != NULL && fgets(line, sizeof line, f) != NULL);
    fclose(f);
    printf("    system: %s", line);
    SAY((f = popen("grep SigBlk /proc/self/status", "r")) != NULL);
    HOLDS(fgets(line, sizeof line, f) != NULL);
    SAY(pclose(f));
    printf("    popen: %s", line);
    SAY(popen("true", "nonsense") == NULL);
    /* The command's end is up to a task. */
    int to_command[2];
    task t;
    HOLDS(pipe(to_command) == 0);
    snprintf(command, sizeof command, "read line <&%d; exit 3", to_command[0]);
    SAY((f = popen(command, "w")) != NULL);
    begin(&t, write_line_soon, &to_command[1]);
    SAY(WEXITSTATUS(pclose(f)));
    end(&t);
    close(to_command[0]), close(to_command[1]);
    posix_spawnattr_init(&attr);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    posix_spawnattr_setsigmask(&attr, &set);
    posix_spawn_file_actions_init(&into);
    posix_spawn_file_actions_addopen(&into, 1, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 4; i++) {
        posix_spawnattr_setflags(&attr, i == 3 ? POSIX_SPAWN_SETSIGMASK : 0);
        if (i == 0)
            SAY(posix_spawn(&pid, "/bin/grep", &into, NULL, grep, environ));
        else
            SAY(posix_spawnp(&pid, "grep", &into, i == 1 ? NULL : &attr, grep, environ));
        SAY(waitpid(pid, &status, 0) == pid);
        HOLDS(status == 0 && (f = fopen(path, "r")) != NULL && fgets(line, sizeof line, f) != NULL);
        fclose(f);
        printf("    %d: %s", i, line);
    }
    SAY(posix_spawnp(&pid, "no-such-program", &into, NULL, grep, environ));
    posix_spawn_file_actions_destroy(&into);
    posix_spawnattr_destroy(&attr);
}

/* ---- Signal masks ---- */

static unsigned long mask_of(const sigset_t *set)
{
    unsigned long word;
    memcpy(&word, set, sizeof word);
    return word;
}

static unsigned long mask_now(void)
{
    sigset_t set;
    HOLDS(pthread_sigmask(SIG_SETMASK, NULL, &set) == 0);
    return mask_of(&set);
}

static sigset_t set_with(int sig)
{
    sigset_t set;
    sigemptyset(&set);
    if (sig != 0)
        sigaddset(&set, sig);
    return set;
}

static unsigned long mask_at_fork;

static void note_mask(void)
{
    mask_at_fork = mask_now();
}

/* The child of a fork says its mask, then sets another one and becomes grep, which says what it has. */
static void say_and_exec(pid_t pid, int out, const sigset_t *before, int how)
{
    char *grep[] = {"grep", "SigBlk", "/proc/self/status", NULL};
    const char *env[] = {"NOTHING=", NULL};
    int status;
    if (pid == 0) {
        dprintf(out, "    child: %lx, in its handler %lx\n", mask_now(), mask_at_fork);
        sigprocmask(SIG_SETMASK, before, NULL);
        dup2(out, 1);
        switch (how) {
        case 0: execl("/bin/grep", "grep", "SigBlk", "/proc/self/status", NULL); break;
        case 1: execlp("grep", "grep", "SigBlk", "/proc/self/status", NULL); break;
        case 2: execle("/bin/grep", "grep", "SigBlk", "/proc/self/status", NULL, env); break;
        case 3: execv("/bin/grep", grep); break;
        case 4: execvp("grep", grep); break;
        case 5: execve("/bin/grep", grep, environ); break;
        case 6: execvpe("grep", grep, environ); break;
        case 7: fexecve(open("/bin/grep", O_RDONLY | O_CLOEXEC), grep, environ); break;
        case 8: execveat(AT_FDCWD, "/bin/grep", grep, environ, 0); break;
        }
        _exit(127);
    }
    HOLDS(waitpid(pid, &status, 0) == pid && status == 0);
}

/* `functions WAY exec N`: a task becomes another program, without a fork. */
static int exec_how;

static void exec_it(void *unused)
{
    sigset_t set = set_with(SIGUSR2), old;
    int p[2];
    (void)unused;
    HOLDS(sigprocmask(SIG_BLOCK, &set, &old) == 0 && pipe(p) == 0 && close(p[0]) == 0);
    SAY(execl("/no/such/program", "program", NULL));
    SAY(execv("/no/such/program", (char *[]){"program", NULL}));
    printf("    mask: %lx\n", mask_now());
    HOLDS(write(p[1], "x", 1) == -1 && errno == EPIPE);
    /* A thread would have been ended by now. */
    if (!as_threads)
        HOLDS(signal(SIGPIPE, SIG_DFL) == SIG_IGN);
    fflush(stdout);
    say_and_exec(0, 1, exec_how < 8 ? &set : &old, exec_how);
}

static void *see_mask(void *seen)
{
    *(unsigned long *)seen = mask_now();
    return NULL;
}

static int see_mask_c11(void *seen)
{
    see_mask(seen);
    return 0;
}

static sem_t has_changed, may_end;

static void change_mask(void *seen)
{
    sigset_t all;
    sigfillset(&all);
    HOLDS(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
    HOLDS(sem_post(&has_changed) == 0);
    HOLDS(sem_wait(&may_end) == 0);
    see_mask(seen);
}

static void say_file(const char *path)
{
    char line[200];
    FILE *f = fopen(path, "r");
    HOLDS(f != NULL);
    while (fgets(line, sizeof line, f) != NULL)
        fputs(line, stdout);
    fclose(f);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static int old_pause(int sig)
{
    return sigpause(sig);
}

static void old_masks(void)
{
    SAY(sighold(SIGWINCH));
    SAY(mask_now());
    SAY(sigset(SIGWINCH, SIG_HOLD) == SIG_HOLD);
    SAY(sigrelse(SIGWINCH));
    SAY(sigset(SIGWINCH, SIG_IGN) == SIG_DFL);
    SAY(sigset(SIGWINCH, SIG_HOLD) == SIG_IGN);
    SAY(mask_now());
    SAY(sigset(SIGWINCH, SIG_DFL) == SIG_HOLD);
    SAY(sighold(0));
    SAY(sigrelse(65));
    SAY(sigset(-1, SIG_DFL) == SIG_ERR);
    SAY(sigblock(1 << (SIGTERM - 1)));
    SAY(sigblock(0));
    SAY(sigsetmask(1 << (SIGINT - 1)));
    SAY(sigblock(0));
    SAY(mask_now());
}
#pragma GCC diagnostic pop

static volatile sig_atomic_t handled;

static void count_signal(int sig)
{
    (void)sig;
    handled = handled + 1;
}

/* The function, which saves the mask; the macro doesn't. */
__attribute__((returns_twice)) int (setjmp)(jmp_buf env);

/* A jump back restores the mask if it was saved, in the child of a fork too. */
static void jumps(void)
{
    sigset_t usr2 = set_with(SIGUSR2), term = set_with(SIGTERM), before;
    volatile unsigned long in_child = 0;
    int p[2], value, status;
    pid_t pid;
    sigjmp_buf env;
    HOLDS(sigprocmask(SIG_BLOCK, &usr2, &before) == 0);
    if ((value = sigsetjmp(env, 1)) == 0) {
        HOLDS(sigprocmask(SIG_BLOCK, &term, NULL) == 0);
        siglongjmp(env, 0);
    }
    printf("    a jump with %d, mask: %lx\n", value, mask_now());
    if ((value = sigsetjmp(env, 0)) == 0) {
        HOLDS(sigprocmask(SIG_BLOCK, &term, NULL) == 0);
        siglongjmp(env, 7);
    }
    printf("    a jump with %d, mask not saved: %lx\n", value, mask_now());
    if ((value = (setjmp)(env)) == 0) {
        HOLDS(sigprocmask(SIG_SETMASK, &usr2, NULL) == 0);
        longjmp(env, 8);
    }
    printf("    a jump with %d, mask: %lx\n", value, mask_now());
    HOLDS(pipe(p) == 0);
    if ((value = sigsetjmp(env, 1)) == 0) {
        HOLDS((pid = fork()) >= 0);
        if (pid == 0) {
            sigprocmask(SIG_SETMASK, &before, NULL);
            siglongjmp(env, 9);
        }
        HOLDS(waitpid(pid, &status, 0) == pid && status == 0);
        HOLDS(read(p[0], (void *)&in_child, sizeof in_child) == sizeof in_child);
    } else {
        in_child = mask_now();
        _exit(write(p[1], (void *)&in_child, sizeof in_child) != sizeof in_child);
    }
    printf("    in a child: %lx\n", in_child);
    HOLDS(close(p[0]) == 0 && close(p[1]) == 0 && sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

static sigjmp_buf out_of_handler;

static void jump_out(int sig)
{
    siglongjmp(out_of_handler, sig);
}

/* A handler leaves by a jump the call in which it runs. Then the task waits as before, for a task of the same thread. */
static void jumps_out(void)
{
    sigset_t usr2 = set_with(SIGUSR2), before;
    struct timespec s10 = {10, 0};
    volatile int i;
    int p[2];
    char b[20];
    task t;
    HOLDS(pipe(p) == 0 && sigprocmask(SIG_BLOCK, NULL, &before) == 0);
    for (i = 0; i < 8; i++) {
        struct sigaction action = {.sa_handler = jump_out, .sa_flags = i < 4 ? 0 : SA_ONSTACK};
        HOLDS(sigaction(SIGUSR2, &action, NULL) == 0);
        int value = sigsetjmp(out_of_handler, 1);
        if (value == 0) {
            if (i % 4 != 0)
                HOLDS(sigprocmask(SIG_BLOCK, &usr2, NULL) == 0 && pthread_kill(pthread_self(), SIGUSR2) == 0);
            switch (i % 4) {
            case 0: raise(SIGUSR2); break;
            case 1: sigsuspend(&before); break;
            case 2: ppoll(NULL, 0, &s10, &before); break;
            default: pselect(0, NULL, NULL, NULL, &s10, &before);
            }
            HOLDS(!"the handler has jumped");
        }
        printf("    a jump with %d, mask: %lx\n", value, mask_now());
        begin(&t, write_soon, &p[1]);
        SAY(read(p[0], b, sizeof b));
        end(&t);
    }
    HOLDS(signal(SIGUSR2, SIG_DFL) == jump_out);
    close(p[0]), close(p[1]);
}

static void masks(void)
{
    const char *path = in_directory("masks");
    char *grep[] = {"grep", "SigBlk", "/proc/self/status", NULL}, command[300], line[100];
    sigset_t chld = set_with(SIGCHLD), usr2 = set_with(SIGUSR2), kill_ = set_with(SIGKILL), old, before;
    struct timespec s10 = {10, 0};
    unsigned long seen = 0;
    static bool notes;
    pthread_attr_t attr;
    pthread_t thread;
    thrd_t c11;
    task t;
    FILE *f;
    int out = open(path, O_RDWR | O_CREAT | O_APPEND, 0600), status;
    pid_t pid;
    HOLDS(out >= 0);
    if (!notes)
        HOLDS(pthread_atfork(NULL, NULL, note_mask) == 0);
    notes = true;
    SAY(sigprocmask(SIG_BLOCK, &chld, &old));
    SAY(mask_of(&old));
    SAY(mask_now());
    SAY(sigprocmask(SIG_BLOCK, NULL, &before));
    SAY(sigprocmask(17, NULL, &before));
    SAY(mask_of(&before));
    SAY(sigprocmask(17, &chld, NULL));
    SAY_ERROR(pthread_sigmask(17, &chld, NULL));
    SAY_ERROR(pthread_sigmask(SIG_BLOCK, &kill_, NULL));
    SAY(mask_now());
    HOLDS(sem_init(&has_changed, 0, 0) == 0 && sem_init(&may_end, 0, 0) == 0);
    begin(&t, change_mask, &seen);
    HOLDS(sem_wait(&has_changed) == 0);
    SAY(mask_now());
    HOLDS(sem_post(&may_end) == 0);
    end(&t);
    SAY(seen);
    SAY(mask_now());
    /* What begins has the task's mask. */
    for (int i = 0; i < 9; i++)
        say_and_exec(fork(), out, &old, i);
    mask_at_fork = mask_now(); /* vfork calls no handlers */
    say_and_exec(vfork(), out, &chld, 3);
    if ((pid = forkpty(&status, NULL, NULL, NULL)) == 0)
        say_and_exec(0, out, &old, 5);
    HOLDS(pid > 0 && waitpid(pid, NULL, 0) == pid);
    say_file(path);
    SAY(mask_now());
    SAY(pthread_create(&thread, NULL, see_mask, &seen));
    HOLDS(pthread_join(thread, NULL) == 0);
    SAY(seen);
    pthread_attr_init(&attr);
    HOLDS(pthread_attr_setsigmask_np(&attr, &usr2) == 0);
    SAY(pthread_create(&thread, &attr, see_mask, &seen));
    HOLDS(pthread_join(thread, NULL) == 0);
    SAY(seen);
    pthread_attr_destroy(&attr);
    SAY(thrd_create(&c11, see_mask_c11, &seen));
    HOLDS(thrd_join(c11, NULL) == thrd_success);
    SAY(seen);
    snprintf(command, sizeof command, "exec grep SigBlk /proc/self/status >%s", path);
    SAY(system(command));
    say_file(path);
    SAY((f = popen("exec grep SigBlk /proc/self/status", "r")) != NULL);
    HOLDS(fgets(line, sizeof line, f) != NULL && pclose(f) == 0);
    printf("    popen: %s", line);
    posix_spawn_file_actions_t into;
    posix_spawn_file_actions_init(&into);
    posix_spawn_file_actions_addopen(&into, 1, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    SAY(posix_spawnp(&pid, "grep", &into, NULL, grep, environ));
    HOLDS(waitpid(pid, &status, 0) == pid && status == 0);
    say_file(path);
    /* A task that becomes another program. */
    for (int i = 0; i < 9; i++) {
        char how[] = {(char)('0' + i), 0};
        char *again[] = {"functions", as_threads ? "threads" : "goroutines", "exec", how, NULL};
        HOLDS(posix_spawn(&pid, "/proc/self/exe", &into, NULL, again, environ) == 0);
        SAY(waitpid(pid, &status, 0) == pid);
        SAY(status);
        say_file(path);
    }
    posix_spawn_file_actions_destroy(&into);
    /* A wait with the former mask sees a signal that is pending for the thread. */
    HOLDS(sigprocmask(SIG_BLOCK, &usr2, &old) == 0 && signal(SIGUSR2, count_signal) == SIG_DFL);
    HOLDS(pthread_kill(pthread_self(), SIGUSR2) == 0 && handled == 0);
    SAY(ppoll(NULL, 0, &s10, &old));
    SAY(handled);
    HOLDS(pthread_kill(pthread_self(), SIGUSR2) == 0);
    SAY(sigsuspend(&old));
    SAY(handled);
    HOLDS(pthread_kill(pthread_self(), SIGUSR2) == 0);
    SAY(old_pause(SIGUSR2));
    SAY(handled);
    SAY(old_pause(65));
    signal(SIGUSR2, SIG_DFL);
    HOLDS(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    SAY(sigprocmask(SIG_UNBLOCK, &chld, NULL));
    SAY(mask_now());
    jumps();
    jumps_out();
    handled = 0;
    HOLDS(signal(SIGUSR2, count_signal) == SIG_DFL);
    SAY(raise(SIGUSR2));
    SAY(handled);
    HOLDS(sigprocmask(SIG_BLOCK, &usr2, &old) == 0);
    SAY(gsignal(SIGUSR2));
    SAY(handled);
    SAY(sigtimedwait(&usr2, NULL, &s10) == SIGUSR2);
    HOLDS(sigprocmask(SIG_SETMASK, &old, NULL) == 0 && signal(SIGUSR2, SIG_DFL) == count_signal);
    SAY(raise(0));
    SAY(raise(65));
    old_masks();
    sigemptyset(&old);
    sigaddset(&old, SIGUSR1);
    SAY(sigprocmask(SIG_SETMASK, &old, NULL));
    close(out);
}

static void note_turn(void *had_turn)
{
    *(bool *)had_turn = true;
}

static void names(void)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char host[100], service[100];
    SAY(getaddrinfo("127.0.0.1", "80", &hints, &found));
    SAY(ntohs(((struct sockaddr_in *)found->ai_addr)->sin_port));
    SAY(getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, service, sizeof service, NI_NUMERICHOST | NI_NUMERICSERV));
    SAY(strcmp(host, "127.0.0.1") + strcmp(service, "80"));
    /* Neither needs a wait: libraries do so between two uses of a thread-local buffer. */
    bool had_turn = false;
    task t;
    begin(&t, note_turn, &had_turn);
    SAY(getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, service, sizeof service, NI_NUMERICHOST | NI_NUMERICSERV));
    SAY(getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST));
    SAY(getnameinfo(found->ai_addr, found->ai_addrlen, NULL, 0, service, sizeof service, NI_NUMERICSERV));
    HOLDS(as_threads || !had_turn);
    end(&t);
    SAY(getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, service, sizeof service, NI_NUMERICHOST));
    SAY(getnameinfo(found->ai_addr, 3, host, sizeof host, service, sizeof service, 0));
    freeaddrinfo(found);
    SAY(getaddrinfo("localhost", NULL, &hints, &found));
    SAY(ntohl(((struct sockaddr_in *)found->ai_addr)->sin_addr.s_addr) >> 24);
    freeaddrinfo(found);
    SAY(getaddrinfo(NULL, NULL, &hints, &found) == EAI_NONAME);
    hints.ai_flags = AI_NUMERICHOST;
    SAY(getaddrinfo("localhost", NULL, &hints, &found) == EAI_NONAME);
    struct gaicb asked = {.ar_name = "localhost", .ar_service = "80"}, *questions[] = {&asked};
    SAY(getaddrinfo_a(GAI_WAIT, questions, 1, NULL));
    SAY(gai_error(&asked));
    SAY(getaddrinfo_a(GAI_NOWAIT, questions, 1, NULL));
    while (gai_error(&asked) == EAI_INPROGRESS)
        HOLDS(gai_suspend((const struct gaicb *const *)questions, 1, NULL) != EAI_AGAIN);
    SAY(gai_error(&asked));
    SAY(gai_suspend((const struct gaicb *const *)questions, 1, NULL) == EAI_ALLDONE);
    SAY(getaddrinfo_a(99, questions, 1, NULL) == EAI_SYSTEM);
    struct hostent *h = gethostbyname("localhost"), one, *res = NULL;
    SAY(h != NULL && h->h_length == 4);
    int error = 0;
    SAY_ERROR(gethostbyname_r("localhost", &one, buffer, sizeof buffer, &res, &error));
    SAY(res == &one && one.h_addrtype == AF_INET);
    SAY_ERROR(gethostbyname_r("localhost", &one, buffer, 1, &res, &error));
}

/* ---- Locks ---- */

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, recursive, checking, robust;

static atomic_int held;

static void until_held(void)
{
    while (!atomic_exchange(&held, 0))
        usleep(500);
}

static void hold_it_for_a_while(void *arg)
{
    HOLDS(pthread_mutex_lock(arg) == 0);
    atomic_fetch_add(&held, 1);
    while (!atomic_load(&realloc_locks))
        usleep(500);
    HOLDS(pthread_mutex_unlock(arg) == 0);
}

/* Many that have had a mutex end, where realloc uses one. */
static void many_owners(void)
{
    enum { OWNERS = 300 };
    static pthread_mutex_t mutexes[OWNERS];
    static task owners[OWNERS];
    for (int i = 0; i < OWNERS; i++) {
        HOLDS(pthread_mutex_init(&mutexes[i], NULL) == 0);
        begin(&owners[i], hold_it_for_a_while, &mutexes[i]);
    }
    while (atomic_load(&held) < OWNERS)
        usleep(500);
    atomic_store(&realloc_locks, true);
    for (int i = 0; i < OWNERS; i++)
        end(&owners[i]);
    atomic_store(&realloc_locks, false);
    SAY(atomic_exchange(&held, 0));
}

static void unlock_it_soon(void *arg)
{
    pthread_mutex_t *m = arg;
    HOLDS(pthread_mutex_lock(m) == 0);
    atomic_store(&held, 1);
    soon();
    soon();
    HOLDS(pthread_mutex_unlock(m) == 0);
}

static void try_it(void *arg)
{
    pthread_mutex_t *m = arg;
    struct timespec past = {0, 0}, later = from_now(CLOCK_REALTIME, 20), bad = {0, -1};
    SAY_ERROR(pthread_mutex_trylock(m));
    SAY_ERROR(pthread_mutex_timedlock(m, &past));
    SAY_ERROR(pthread_mutex_timedlock(m, &bad));
    SAY_ERROR(pthread_mutex_timedlock(m, &later));
    later = from_now(CLOCK_MONOTONIC, 20);
    SAY_ERROR(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &later));
    if (m != &plain) /* which may be unlocked by any thread, by chance */
        SAY_ERROR(pthread_mutex_unlock(m));
}

static void *hold_as_thread(void *arg)
{
    unlock_it_soon(arg);
    return NULL;
}

static void mutexes(void)
{
    pthread_mutexattr_t attr;
    pthread_mutex_t *all[] = {&plain, &recursive, &checking};
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checking, &attr);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attr);
    for (int i = 0; i < 3; i++) {
        pthread_mutex_t *m = all[i];
        pthread_t holder;
        task t;
        printf("    mutex %d\n", i);
        begin(&t, unlock_it_soon, m);
        until_held();
        SAY_ERROR(pthread_mutex_lock(m));
        end(&t);
        if (m == &recursive)
            SAY_ERROR(pthread_mutex_lock(m));
        if (m == &checking) {
            SAY_ERROR(pthread_mutex_lock(m));
            SAY_ERROR(pthread_mutex_trylock(m));
        }
        begin(&t, try_it, m);
        end(&t);
        SAY_ERROR(pthread_mutex_unlock(m));
        if (m == &recursive)
            SAY_ERROR(pthread_mutex_unlock(m));
        if (m != &plain)
            SAY_ERROR(pthread_mutex_unlock(m));
        /* A plain thread has it. */
        HOLDS(pthread_create(&holder, NULL, hold_as_thread, m) == 0);
        until_held();
        SAY_ERROR(pthread_mutex_lock(m));
        SAY_ERROR(pthread_mutex_unlock(m));
        SAY_ERROR(pthread_join(holder, NULL));
        SAY_ERROR(pthread_mutex_destroy(m));
    }
    SAY_ERROR(pthread_mutex_lock(&robust));
    SAY_ERROR(pthread_mutex_lock(&robust));
    SAY_ERROR(pthread_mutex_unlock(&robust));
}

static pthread_mutex_t cond_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn, awake;

static void signal_soon(void *arg)
{
    soon();
    pthread_mutex_lock(&cond_mutex);
    turn = 1;
    if (arg)
        pthread_cond_broadcast(&cond);
    else
        pthread_cond_signal(&cond);
    pthread_mutex_unlock(&cond_mutex);
}

static void *signal_as_thread(void *arg)
{
    signal_soon(arg);
    return NULL;
}

static void wait_for_turn(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&cond_mutex);
    while (turn == 0)
        pthread_cond_wait(&cond, &cond_mutex);
    awake++;
    pthread_mutex_unlock(&cond_mutex);
}

static void conditions(void)
{
    task t, many[10];
    pthread_t thread;
    struct timespec later;
    pthread_mutex_lock(&cond_mutex);
    begin(&t, signal_soon, NULL);
    turn = 0;
    SAY_ERROR(pthread_cond_wait(&cond, &cond_mutex));
    while (turn == 0)
        pthread_cond_wait(&cond, &cond_mutex);
    later = from_now(CLOCK_REALTIME, 20);
    SAY_ERROR(pthread_cond_timedwait(&cond, &cond_mutex, &later));
    later = from_now(CLOCK_MONOTONIC, 20);
    SAY_ERROR(pthread_cond_clockwait(&cond, &cond_mutex, CLOCK_MONOTONIC, &later));
    later.tv_nsec = -1;
    SAY_ERROR(pthread_cond_timedwait(&cond, &cond_mutex, &later));
    turn = 0;
    HOLDS(pthread_create(&thread, NULL, signal_as_thread, NULL) == 0);
    while (turn == 0)
        pthread_cond_wait(&cond, &cond_mutex);
    turn = 0;
    pthread_mutex_unlock(&cond_mutex);
    pthread_join(thread, NULL);
    end(&t);
    for (int i = 0; i < 10; i++)
        begin(&many[i], wait_for_turn, NULL);
    signal_soon(&turn);
    for (int i = 0; i < 10; i++)
        end(&many[i]);
    SAY(awake);
}

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static void write_for_a_while(void *arg)
{
    (void)arg;
    HOLDS(pthread_rwlock_wrlock(&rwlock) == 0);
    atomic_store(&held, 1);
    soon();
    soon();
    HOLDS(pthread_rwlock_unlock(&rwlock) == 0);
}

static void try_rwlock(void *arg)
{
    (void)arg;
    struct timespec later = from_now(CLOCK_REALTIME, 20);
    SAY_ERROR(pthread_rwlock_tryrdlock(&rwlock));
    SAY_ERROR(pthread_rwlock_trywrlock(&rwlock));
    SAY_ERROR(pthread_rwlock_timedrdlock(&rwlock, &later));
    later = from_now(CLOCK_MONOTONIC, 20);
    SAY_ERROR(pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &later));
}

static void rwlocks(void)
{
    task t;
    begin(&t, write_for_a_while, NULL);
    until_held();
    SAY_ERROR(pthread_rwlock_rdlock(&rwlock));
    SAY_ERROR(pthread_rwlock_rdlock(&rwlock));
    end(&t);
    SAY_ERROR(pthread_rwlock_unlock(&rwlock));
    SAY_ERROR(pthread_rwlock_unlock(&rwlock));
    begin(&t, write_for_a_while, NULL);
    until_held();
    SAY_ERROR(pthread_rwlock_wrlock(&rwlock));
    end(&t);
    SAY_ERROR(pthread_rwlock_wrlock(&rwlock));
    begin(&t, try_rwlock, NULL);
    end(&t);
    SAY_ERROR(pthread_rwlock_unlock(&rwlock));
}

static sem_t sem;

static void post_soon(void *arg)
{
    (void)arg;
    soon();
    HOLDS(sem_post(&sem) == 0);
}

static void semaphores_of(bool shared)
{
    task t;
    struct timespec later;
    SAY(sem_init(&sem, shared, 1));
    SAY(sem_wait(&sem));
    SAY(sem_trywait(&sem));
    begin(&t, post_soon, NULL);
    SAY(sem_wait(&sem));
    end(&t);
    later = from_now(CLOCK_REALTIME, 20);
    SAY(sem_timedwait(&sem, &later));
    later = from_now(CLOCK_MONOTONIC, 20);
    SAY(sem_clockwait(&sem, CLOCK_MONOTONIC, &later));
    later.tv_nsec = -1;
    SAY(sem_timedwait(&sem, &later));
    begin(&t, post_soon, NULL);
    later = from_now(CLOCK_REALTIME, 60000);
    SAY(sem_timedwait(&sem, &later));
    end(&t);
    begin(&t, post_soon, NULL);
    later = from_now(CLOCK_MONOTONIC, 60000);
    SAY(sem_clockwait(&sem, CLOCK_MONOTONIC, &later));
    end(&t);
    HOLDS(sem_destroy(&sem) == 0);
}

static void semaphores(void)
{
    semaphores_of(false);
    semaphores_of(true); /* shared between processes */
}

/* Code that has locks of its own waits by syscall. */
static unsigned word, second_word;
static atomic_int ended;

struct futex_wait {
    int op;
    unsigned bits;
};

static void wait_for_change(void *arg)
{
    struct futex_wait *w = arg;
    struct timespec long_after = from_now(CLOCK_MONOTONIC, 60000);
    while (atomic_load((atomic_uint *)&word) == 0)
        if (syscall(SYS_futex, &word, w->op, 0, w->bits ? &long_after : NULL, NULL, w->bits) == 0 && w->bits)
            break;
    atomic_fetch_add(&ended, 1);
}

static void change_soon(void *op)
{
    soon();
    atomic_store((atomic_uint *)&word, 1);
    syscall(SYS_futex, &word, *(int *)op, INT_MAX); /* a jump: it returns to the library's code */
}

/* Wakes again and again, until n waiters have been woken: a waiter may not have begun to wait yet. */
static long wake_in_all(int op, unsigned n, unsigned bits)
{
    long woken = 0;
    for (int i = 0; woken < n && i < 4000; i++) {
        woken += syscall(SYS_futex, &word, op, n - woken, NULL, NULL, bits);
        usleep(woken < n ? 5000 : 0);
    }
    return woken;
}

static void futexes_of(int flag)
{
    const int wait = FUTEX_WAIT | flag, wake = FUTEX_WAKE | flag;
    const int wait_bits = FUTEX_WAIT_BITSET | flag, wake_bits = FUTEX_WAKE_BITSET | flag;
    struct timespec none = {0, 0}, some = {0, 20000000}, wrong = {0, 1000000000}, at;
    struct futex_wait plain = {wait, 0}, first = {wait_bits, 1}, second = {wait_bits, 6};
    task t[3];
    word = 0;
    SAY(syscall(SYS_futex, &word, wait, 1, NULL));
    SAY(syscall(SYS_futex, &word, wait, 0, &none));
    SAY(syscall(SYS_futex, &word, wait, 0, &some));
    SAY(syscall(SYS_futex, &word, wait, 0, &wrong));
    SAY(syscall(SYS_futex, &word, wait, 0, nowhere));
    SAY(syscall(SYS_futex, (char *)&word + 1, wait, 0, NULL));
    SAY(syscall(SYS_futex, nowhere, wait, 0, NULL));
    SAY(syscall(SYS_futex, &word, wait | FUTEX_CLOCK_REALTIME, 0, &some));
    SAY(syscall(SYS_futex, &word, wait_bits, 0, &some, NULL, 0));
    at = from_now(CLOCK_MONOTONIC, 20);
    SAY(syscall(SYS_futex, &word, wait_bits, 0, &at, NULL, 1));
    at = from_now(CLOCK_REALTIME, 20);
    SAY(syscall(SYS_futex, &word, wait_bits | FUTEX_CLOCK_REALTIME, 0, &at, NULL, 1));
    SAY(syscall(SYS_futex, &word, wake, 1));
    SAY(syscall(SYS_futex, &word, wake_bits, 1, NULL, NULL, 0));
    SAY(syscall(SYS_futex, (char *)&word + 1, wake, 1));

    for (int i = 0; i < 3; i++)
        begin(&t[i], wait_for_change, &plain);
    change_soon((void *)&wake);
    for (int i = 0; i < 3; i++)
        end(&t[i]);
    word = 0, ended = 0;
    begin(&t[0], change_soon, (void *)&wake);
    wait_for_change(&plain);
    end(&t[0]);

    word = 0, ended = 0;
    begin(&t[0], wait_for_change, &first);
    begin(&t[1], wait_for_change, &second);
    SAY(wake_in_all(wake_bits, 1, 4));
    end(&t[1]);
    SAY(ended);
    SAY(syscall(SYS_futex, &word, wake_bits, INT_MAX, NULL, NULL, 2));
    SAY(wake_in_all(wake, 1, 0));
    end(&t[0]);

    /* Those that begin to wait for the second word, and those that are woken. */
    word = 0, second_word = 0, ended = 0;
    for (int i = 0; i < 3; i++)
        begin(&t[i], wait_for_change, &plain);
    soon();
    SAY(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE | flag, 0, INT_MAX, &second_word, 1));
    atomic_store((atomic_uint *)&word, 1);
    HOLDS(syscall(SYS_futex, &word, FUTEX_REQUEUE | flag, 1, INT_MAX, &second_word) >= 0);
    HOLDS(syscall(SYS_futex, &second_word, wake, INT_MAX) >= 0);
    for (int i = 0; i < 3; i++)
        end(&t[i]);
    SAY(ended);
    word = 0, second_word = 5, ended = 0;
    begin(&t[0], wait_for_change, &plain);
    soon();
    HOLDS(syscall(SYS_futex, &second_word, FUTEX_WAKE_OP | flag, 1, 1, &word, FUTEX_OP(FUTEX_OP_SET, 1, FUTEX_OP_CMP_EQ, 0)) >= 0);
    end(&t[0]);
    SAY(word);
}

static void *lock_pi_soon(void *unused)
{
    (void)unused;
    HOLDS(syscall(SYS_futex, &word, FUTEX_LOCK_PI_PRIVATE, 0, NULL) == 0);
    atomic_fetch_add(&ended, 1);
    soon();
    HOLDS(syscall(SYS_futex, &word, FUTEX_UNLOCK_PI_PRIVATE) == 0);
    return NULL;
}

static void futexes(void)
{
    futexes_of(FUTEX_PRIVATE_FLAG);
    futexes_of(0); /* shared between processes */
    pthread_t thread;
    word = 0, ended = 0;
    HOLDS(pthread_create(&thread, NULL, lock_pi_soon, NULL) == 0);
    while (ended == 0)
        usleep(1000);
    SAY(syscall(SYS_futex, &word, FUTEX_LOCK_PI_PRIVATE, 0, NULL));
    SAY(syscall(SYS_futex, &word, FUTEX_UNLOCK_PI_PRIVATE));
    HOLDS(pthread_join(thread, NULL) == 0);
    SAY(syscall(SYS_getppid) == getppid());
    SAY(syscall(SYS_close, -1));
    SAY(syscall(-1));
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static once_flag flag = ONCE_FLAG_INIT;
static int times;

static void do_once(void)
{
    soon();
    times++;
}

static void call_it_once(void *arg)
{
    (void)arg;
    pthread_once(&once, do_once);
    call_once(&flag, do_once); /* a jump: it returns to the library's code */
}

static pthread_once_t left_once = PTHREAD_ONCE_INIT;
static jmp_buf out_of_once;

static _Unwind_Reason_Code leave_once(int version, _Unwind_Action actions, _Unwind_Exception_Class class,
                                      struct _Unwind_Exception *exception, struct _Unwind_Context *context, void *frame)
{
    (void)version, (void)actions, (void)class, (void)exception;
    if (_Unwind_GetCFA(context) > (_Unwind_Word)frame)
        longjmp(out_of_once, 1);
    return _URC_NO_REASON;
}

static void *frame_of_once;

/* The first time it is left by an exception. */
static void fail_once(void)
{
    static struct _Unwind_Exception exception;
    if (times++ == 0)
        _Unwind_ForcedUnwind(&exception, leave_once, frame_of_once);
}

static void call_it_left(void *arg)
{
    (void)arg;
    frame_of_once = __builtin_frame_address(0);
    if (setjmp(out_of_once) == 0)
        pthread_once(&left_once, fail_once);
}

static void onces(void)
{
    task t[5];
    for (int i = 0; i < 5; i++)
        begin(&t[i], call_it_once, NULL);
    for (int i = 0; i < 5; i++)
        end(&t[i]);
    SAY(times);
    times = 0;
    for (int i = 0; i < 3; i++) {
        begin(&t[0], call_it_left, NULL);
        end(&t[0]);
        SAY(times);
    }
}

static pthread_barrier_t barrier;

static void meet_there(void *arg)
{
    int r = pthread_barrier_wait(&barrier);
    *(int *)arg += r == PTHREAD_BARRIER_SERIAL_THREAD;
    HOLDS(r == 0 || r == PTHREAD_BARRIER_SERIAL_THREAD);
}

static void *sleep_and_give(void *arg)
{
    soon();
    return arg;
}

static void *wait_until_held(void *arg)
{
    until_held();
    return arg;
}

static void threads(void)
{
    task t[3];
    pthread_t thread;
    void *given = NULL;
    int serial = 0;
    pthread_barrier_init(&barrier, NULL, 4);
    for (int i = 0; i < 3; i++)
        begin(&t[i], meet_there, &serial);
    meet_there(&serial);
    for (int i = 0; i < 3; i++)
        end(&t[i]);
    SAY(serial);
    HOLDS(pthread_create(&thread, NULL, sleep_and_give, &serial) == 0);
    SAY_ERROR(pthread_join(thread, &given));
    SAY(given == &serial);
    SAY_ERROR(pthread_join(pthread_self(), &given));
    struct timespec later = from_now(CLOCK_REALTIME, 5), much_later = from_now(CLOCK_REALTIME, 60000);
    HOLDS(pthread_create(&thread, NULL, wait_until_held, NULL) == 0);
    SAY_ERROR(pthread_timedjoin_np(thread, NULL, &later));
    atomic_store(&held, 1);
    SAY_ERROR(pthread_timedjoin_np(thread, NULL, &much_later));
}

/* What has been left, in order; each task has its own list. */
struct leaving {
    char order[32];
    int n;
    int c11, late;
    pthread_key_t key;
};

static void note_in(struct leaving *l, char what)
{
    l->order[l->n++] = what;
}

static void left_outer(void *arg)
{
    note_in(arg, 'o');
}

/* A handler may itself wait and push. */
static void left_inner(void *arg)
{
    pthread_cleanup_push(left_outer, arg);
    usleep(2000);
    note_in(arg, 'i');
    pthread_cleanup_pop(1);
}

static void left_key(void *arg)
{
    note_in(arg, 'k');
}

static void leave_deep(struct leaving *l)
{
    pthread_cleanup_push(left_inner, l);
    usleep(3000);
    if (l->c11)
        thrd_exit(0);
    pthread_exit(NULL);
    pthread_cleanup_pop(0);
}

static void leave_early(void *arg)
{
    struct leaving *l = arg;
    HOLDS(pthread_setspecific(l->key, l) == 0);
    pthread_cleanup_push(left_outer, l);
    note_in(l, '1');
    pthread_cleanup_pop(0);
    pthread_cleanup_push(left_outer, l);
    note_in(l, '2');
    pthread_cleanup_pop(1);
    usleep(l->late * 1000);
    pthread_cleanup_push(left_outer, l);
    leave_deep(l);
    pthread_cleanup_pop(0);
    note_in(l, '!');
}

/* Its handler is popped in the child of a fork, where it is the thread's, and run once in each process. */
static void fork_amid(void *arg)
{
    pid_t pid;
    int status;
    pthread_cleanup_push(left_outer, arg);
    HOLDS((pid = fork()) >= 0);
    pthread_cleanup_pop(1);
    if (pid == 0)
        _exit(strcmp(((struct leaving *)arg)->order, "o"));
    HOLDS(waitpid(pid, &status, 0) == pid);
    SAY(status);
}

static void leave_deferred(void *arg)
{
    pthread_cleanup_push_defer_np(left_inner, arg);
    pthread_cleanup_push_defer_np(left_outer, arg);
    pthread_cleanup_pop_restore_np(1);
    pthread_exit(NULL);
    pthread_cleanup_pop_restore_np(0);
}

static void leave_by_signal(int sig)
{
    (void)sig;
    pthread_exit(NULL);
}

/* The handler runs before raise returns. */
static void leave_raise(void *arg)
{
    pthread_cleanup_push(left_outer, arg);
    raise(SIGUSR2);
    note_in(arg, '!');
    pthread_cleanup_pop(0);
}

static void detach(void *arg)
{
    *(int *)arg = gs_detach();
}

/* A thread that is a goroutine for a while, and still ends as a thread. */
static void *leave_attached(void *arg)
{
    HOLDS(gs_attach(0) == 0);
    pthread_cleanup_push(detach, arg);
    usleep(1000);
    pthread_exit(arg);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *leave_attached_inside(void *arg)
{
    pthread_cleanup_push(detach, arg);
    HOLDS(gs_attach(0) == 0);
    pthread_exit(arg);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Tasks end by pthread_exit and thrd_exit while others of their threads are in the middle of theirs. */
static void exits(void)
{
    enum { TASKS = 6 };
    struct leaving l[TASKS];
    task t[TASKS];
    pthread_key_t key;
    HOLDS(pthread_key_create(&key, left_key) == 0);
    for (int i = 0; i < TASKS; i++) {
        l[i] = (struct leaving){.c11 = i % 2, .late = 1 + i % 3, .key = key};
        begin(&t[i], leave_early, &l[i]);
    }
    for (int i = 0; i < TASKS; i++) {
        end(&t[i]);
        printf("%s\n", l[i].order);
    }
    HOLDS(pthread_key_delete(key) == 0);
    void (*ways[])(void *) = {fork_amid, leave_deferred, leave_raise};
    struct sigaction leaves = {.sa_handler = leave_by_signal}, before;
    HOLDS(sigaction(SIGUSR2, &leaves, &before) == 0);
    for (int i = 0; i < 3; i++) {
        l[i] = (struct leaving){.n = 0};
        begin(&t[i], ways[i], &l[i]);
        end(&t[i]);
        printf("%s\n", l[i].order);
    }
    HOLDS(sigaction(SIGUSR2, &before, NULL) == 0);
    void *(*attached[])(void *) = {leave_attached, leave_attached_inside};
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        int detached = -1;
        void *given;
        HOLDS(pthread_create(&thread, NULL, attached[i], &detached) == 0);
        HOLDS(pthread_join(thread, &given) == 0);
        printf("attached %d %d\n", detached, given == &detached);
    }
}

static mtx_t mtx;
static cnd_t cnd;
static tss_t key;

static void c11_soon(void *arg)
{
    soon();
    HOLDS(tss_get(key) == NULL);
    HOLDS(tss_set(key, arg) == thrd_success && tss_get(key) == arg);
    HOLDS(mtx_lock(&mtx) == thrd_success);
    turn = 5;
    HOLDS(cnd_broadcast(&cnd) == thrd_success && cnd_signal(&cnd) == thrd_success);
    HOLDS(mtx_unlock(&mtx) == thrd_success);
}

static void c11(void)
{
    task t;
    struct timespec later = from_now(CLOCK_REALTIME, 20);
    SAY(mtx_init(&mtx, mtx_timed));
    SAY(cnd_init(&cnd));
    SAY(tss_create(&key, NULL));
    SAY(mtx_lock(&mtx));
    begin(&t, c11_soon, &key);
    SAY(cnd_wait(&cnd, &mtx));
    while (turn != 5)
        cnd_wait(&cnd, &mtx);
    SAY(cnd_timedwait(&cnd, &mtx, &later));
    SAY(mtx_trylock(&mtx) == thrd_busy);
    SAY(mtx_timedlock(&mtx, &later) == thrd_timedout);
    SAY(mtx_unlock(&mtx));
    end(&t);
    SAY(tss_get(key) == NULL);
    SAY(tss_set(key, &key));
    tss_delete(key);
    SAY(tss_get(key) == NULL);
    SAY(tss_set(key, &key) == thrd_error);
    pthread_key_t other;
    SAY_ERROR(pthread_key_create(&other, NULL));
    SAY_ERROR(pthread_setspecific(other, &key));
    SAY_ERROR(pthread_key_delete(other));
    SAY(pthread_getspecific(other) == NULL);
    SAY_ERROR(pthread_setspecific(other, &key));
    SAY_ERROR(pthread_key_delete(other));
    SAY_ERROR(pthread_setspecific(PTHREAD_KEYS_MAX, &key));
}

/* ---- Signals and messages ---- */

static void kill_soon(void *arg)
{
    soon();
    HOLDS(kill(getpid(), *(int *)arg) == 0);
}

static void signals(void)
{
    int which = SIGUSR1, got = 0;
    sigset_t set;
    siginfo_t info;
    task t;
    struct timespec ms20 = {0, 20000000};
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1); /* blocked in all threads: main */
    begin(&t, kill_soon, &which);
    SAY_ERROR(sigwait(&set, &got));
    SAY(got == SIGUSR1);
    end(&t);
    begin(&t, kill_soon, &which);
    SAY(sigwaitinfo(&set, &info) == SIGUSR1);
    end(&t);
    SAY(sigtimedwait(&set, &info, &ms20));
    /* Those that are pending for the thread alone. */
    HOLDS(raise(SIGUSR1) == 0);
    SAY_ERROR(sigwait(&set, &got));
    HOLDS(raise(SIGUSR1) == 0);
    SAY(sigwaitinfo(&set, &info) == SIGUSR1);
    HOLDS(raise(SIGUSR1) == 0);
    SAY(sigtimedwait(&set, &info, &ms20) == SIGUSR1);
    SAY(sigtimedwait(&set, &info, &(struct timespec){0, 0}));
}

/*
 * Waits with a mask: for files, and for a signal that is blocked elsewhere. A task that runs on the same thread ends
 * them.
 */
static void waits_with_mask(void)
{
    int p[2], which = SIGUSR1, e = epoll_create1(0);
    sigset_t through, before;
    char b[20];
    task t;
    HOLDS(pipe(p) == 0 && sigprocmask(SIG_BLOCK, NULL, &before) == 0 && sigismember(&before, SIGUSR1) == 1);
    through = before;
    sigdelset(&through, SIGUSR1);
    HOLDS(signal(SIGUSR1, count_signal) == SIG_DFL);
    handled = 0;
    struct pollfd f[2] = {{p[0], POLLIN, 0}, {-1, POLLIN, 99}};
    struct epoll_event event = {.events = EPOLLIN, .data.fd = p[0]};
    struct timespec ms20 = {0, 20000000}, s60 = {60, 0};
    HOLDS(epoll_ctl(e, EPOLL_CTL_ADD, p[0], &event) == 0);
#define WITH_MASK(call) \
    do { \
        AFTER_WRITE(call); \
        SAY(handled); \
        begin(&t, kill_soon, &which); \
        SAY(call); \
        end(&t); \
        SAY(handled); \
    } while (0)
    WITH_MASK(ppoll(f, 1, NULL, &through));
    SAY(f[0].revents);
    WITH_MASK(ppoll(f, 2, &s60, &through));
    SAY(f[1].revents);
    WITH_MASK(pselect(p[0] + 1, only_file(p[0]), NULL, NULL, &s60, &through));
    WITH_MASK(epoll_pwait(e, &event, 1, -1, &through));
    WITH_MASK(epoll_pwait2(e, &event, 1, &s60, &through));
    begin(&t, kill_soon, &which);
    SAY(ppoll(NULL, 0, NULL, &through));
    end(&t);
    SAY(handled);
    begin(&t, kill_soon, &which);
    SAY(sigsuspend(&through));
    end(&t);
    begin(&t, kill_soon, &which);
    SAY(old_pause(SIGUSR1));
    end(&t);
    SAY(sigsuspend(nowhere));
    HOLDS(sigprocmask(SIG_SETMASK, &through, NULL) == 0);
    begin(&t, kill_soon, &which);
    SAY(pause());
    end(&t);
    HOLDS(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    SAY(handled);
    SAY(ppoll(f, 1, &ms20, &through));
    SAY(pselect(0, NULL, NULL, NULL, &ms20, &through));
    SAY(epoll_pwait(e, &event, 1, 20, &through));
    SAY(epoll_pwait(p[0], &event, 1, 20, &through));
    SAY(ppoll(f, 1, &ms20, nowhere));
    SAY(ppoll(nowhere, 1, &ms20, &through));
    /* A mask that doesn't let the signal through. What has happened to a file comes before a signal. */
    HOLDS(kill(getpid(), SIGUSR1) == 0);
    SAY(ppoll(f, 1, &ms20, &before));
    HOLDS(write(p[1], "x", 1) == 1);
    SAY(ppoll(f, 1, NULL, &through));
    SAY(epoll_pwait(e, &event, 1, -1, &through));
    SAY(handled);
    HOLDS(read(p[0], b, sizeof b) == 1);
    SAY(pselect(p[0] + 1, only_file(p[0]), NULL, NULL, NULL, &through));
    SAY(FD_ISSET(p[0], &files));
    SAY(handled);
    signal(SIGUSR1, SIG_DFL);
    close(e), close(p[0]), close(p[1]);
}

struct message {
    long type;
    char text[10];
};

static int queue_id, set_id;
static mqd_t mq;

static void message_soon(void *arg)
{
    struct message m = {3, "msg"};
    struct sembuf up = {0, 1, 0};
    soon();
    switch (*(int *)arg) {
    case 0: HOLDS(msgsnd(queue_id, &m, sizeof m.text, 0) == 0); break;
    case 1: HOLDS(semop(set_id, &up, 1) == 0); break;
    default: HOLDS(mq_send(mq, "mq", 2, 1) == 0);
    }
}

static void messages(void)
{
    int what = 0;
    struct message m;
    struct sembuf down = {0, -1, 0};
    struct timespec ms20 = {0, 20000000}, later;
    task t;
    queue_id = msgget(IPC_PRIVATE, 0600);
    set_id = semget(IPC_PRIVATE, 1, 0600);
    HOLDS(queue_id >= 0 && set_id >= 0);
    begin(&t, message_soon, &what);
    SAY(msgrcv(queue_id, &m, sizeof m.text, 0, 0));
    SAY(m.type);
    end(&t);
    SAY(msgrcv(queue_id, &m, sizeof m.text, 0, IPC_NOWAIT));
    SAY(msgrcv(-1, &m, 1, 0, 0));
    what = 1;
    begin(&t, message_soon, &what);
    SAY(semop(set_id, &down, 1));
    end(&t);
    SAY(semtimedop(set_id, &down, 1, &ms20));
    HOLDS(msgctl(queue_id, IPC_RMID, NULL) == 0 && semctl(set_id, 0, IPC_RMID) == 0);
    char name[40];
    snprintf(name, sizeof name, "/preload-%d", getpid());
    struct mq_attr attr = {.mq_maxmsg = 2, .mq_msgsize = 16};
    mq = mq_open(name, O_CREAT | O_RDWR, 0600, &attr);
    if (mq == (mqd_t)-1) { /* the file system is not everywhere */
        fprintf(stderr, "functions: no POSIX message queues here (%s): not tried\n", strerror(errno));
        return;
    }
    mq_unlink(name);
    what = 2;
    begin(&t, message_soon, &what);
    HOLDS(mq_receive(mq, buffer, sizeof buffer, NULL) == 2);
    end(&t);
    later = from_now(CLOCK_REALTIME, 20);
    HOLDS(mq_timedreceive(mq, buffer, sizeof buffer, NULL, &later) == -1 && errno == ETIMEDOUT);
    mq_close(mq);
}

/* ---- Cancellation points: those of plain threads are libc's ---- */

static int cancelled_pipe[2], cleaned;

static void clean_up(void *arg)
{
    (void)arg;
    cleaned++;
    pthread_mutex_unlock(&cond_mutex); /* which a cancelled wait has locked again */
}

static void *be_cancelled(void *arg)
{
    char b;
    pthread_mutex_lock(&cond_mutex);
    pthread_cleanup_push(clean_up, NULL);
    switch (*(int *)arg) {
    case 0: HOLDS(read(cancelled_pipe[0], &b, 1) < 0); break;
    case 1: for (;;) pthread_cond_wait(&cond, &cond_mutex);
    case 2: poll(NULL, 0, -1); break;
    case 3: sem_wait(&sem); break;
    case 4: recv(cancelled_pipe[0], &b, 1, 0); break; /* fails at once, and the next one is a point too */
    }
    for (;;)
        sleep(100);
    pthread_cleanup_pop(0);
}

static void cancelling(void)
{
    HOLDS(pipe(cancelled_pipe) == 0);
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        void *given = NULL;
        HOLDS(pthread_create(&thread, NULL, be_cancelled, &i) == 0);
        soon();
        SAY_ERROR(pthread_cancel(thread));
        SAY_ERROR(pthread_join(thread, &given));
        SAY(given == PTHREAD_CANCELED);
    }
    SAY(cleaned);
    close(cancelled_pipe[0]), close(cancelled_pipe[1]);
}

static const struct test tests[] = {
    TEST(pipes), TEST(vectors), TEST(events), TEST(asynchronous), TEST(large_writes), TEST(fifos), TEST(streams), TEST(directories), TEST(terminals), TEST(disks), TEST(file_locks), TEST(copies), TEST(closing), TEST(closing_in_malloc),
    TEST(receiving), TEST(urgent), TEST(unfinished), TEST(shutting), TEST(short_reads), TEST(sending), TEST(partial_sends), TEST(nothing), TEST(connecting), TEST(opened_fast), TEST(several_listeners), TEST(closed_listeners), TEST(closed_senders), TEST(several), TEST(large_selects), TEST(beyond_the_table), TEST(looking), TEST(sleeping), TEST(yielding), TEST(always_ready), TEST(children), TEST(starting), TEST(masks),
    TEST(names), TEST(mutexes), TEST(many_owners), TEST(conditions), TEST(rwlocks), TEST(semaphores), TEST(futexes), TEST(onces), TEST(threads), TEST(exits), TEST(c11),
    TEST(signals), TEST(waits_with_mask), TEST(messages), TEST(cancelling),
};

int main(int argc, char **argv)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (argc > 3) {
        exec_how = atoi(argv[3]);
        run_tasks(argv[1][0] == 't', 1, exec_it);
    }
    return run_tests(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
