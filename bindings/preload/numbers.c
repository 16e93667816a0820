/*
 * The kernel's table of files. select reads no more bits of a set than the table has entries, whatever its first
 * argument, and fails with EBADF if one of these bits is set for a file which isn't open.
 */
#include "numbers.h"

#include "parts.h"
#include "real.h"

atomic_int highest_closed = -1;

void note_closed(int fd)
{
    int highest = atomic_load_explicit(&highest_closed, memory_order_relaxed);
    while (fd > highest && !atomic_compare_exchange_weak(&highest_closed, &highest, fd))
        ;
}

int table_size(void)
{
    char text[1024], *at = NULL; /* the line is among the first */
    int before = errno, fd = real.open64("/proc/thread-self/status", O_RDONLY | O_CLOEXEC, 0L);
    ssize_t n = fd >= 0 ? real.read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        real.close(fd);
    errno = before;
    if (n > 0) {
        text[n] = 0;
        at = strstr(text, "\nFDSize:");
    }
    return at != NULL ? atoi(at + strlen("\nFDSize:")) : -1;
}

/* The first number of libgosched's own files. */
enum { FIRST_OF_LIBRARY = 512 };

static int table_at_start = SMALLEST_TABLE;

void numbers_start(void)
{
    int size = table_size();
    if (size > table_at_start)
        table_at_start = size;
}

/* Whether the number is that of an open file which isn't libgosched's. libgosched's are epoll instances and eventfds,
 * which have no type. */
static bool is_programs_file(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (fd < FIRST_OF_LIBRARY || (st.st_mode & S_IFMT) != 0);
}

int highest_file(void)
{
    struct entry { /* of getdents64 */
        uint64_t inode;
        int64_t offset;
        uint16_t size;
        uint8_t type;
        char name[];
    };
    _Alignas(struct entry) char entries[2048];
    int highest = -1, dir = real.open64("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0L);
    long n;
    while (dir >= 0 && (n = raw_syscall(SYS_getdents64, dir, entries, sizeof entries)) > 0)
        for (long at = 0; at < n; at += ((struct entry *)&entries[at])->size) {
            const char *name = ((struct entry *)&entries[at])->name;
            int fd = name[0] == '.' ? -1 : atoi(name);
            if (fd > highest && fd != dir && is_programs_file(fd))
                highest = fd;
        }
    if (dir >= 0)
        real.close(dir);
    return highest;
}

int programs_table_size(void)
{
    int before = errno, highest = highest_file(), size = 2 * SMALLEST_TABLE;
    if (atomic_load(&highest_closed) > highest)
        highest = atomic_load(&highest_closed);
    errno = before;
    if (highest < table_at_start)
        return table_at_start;
    while (size <= highest && size <= INT_MAX / 2)
        size *= 2;
    return size;
}
