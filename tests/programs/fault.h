/*
 * Makes calls of the operating system fail for the library, and for it alone: this program defines the
 * functions itself, so the library's calls come here, and whoever else calls them gets the real ones.
 *
 * A fault is a kind of call (fault_kinds), and which of them fail: the n-th one, or all from now on.
 */
#ifndef FAULT_H
#define FAULT_H

#include "check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum fault_kind {
    ALLOC, /* malloc and its kin, which the library's heap is with GOSCHED_DEBUG=systemheap=1 */
    MMAP,
    MADVISE,
    MPROTECT,
    THREAD,
    EPOLL,
    EPOLL_ADD,
    EVENTFD,
    OPEN,
    MEMBARRIER,
    SIGQUEUE,
    SLACK,
    ALTSTACK,
    RESOLVE,
    AFFINITY,
    KINDS
};

static const struct {
    const char *name;
    int error;
} fault_kinds[KINDS] = {
    [ALLOC] = {"alloc", ENOMEM},       [MMAP] = {"mmap", ENOMEM},
    [MADVISE] = {"madvise", EINVAL},   [MPROTECT] = {"mprotect", ENOMEM},
    [THREAD] = {"thread", EAGAIN},     [EPOLL] = {"epoll", EMFILE},
    [EPOLL_ADD] = {"epoll_add", ENOSPC}, [EVENTFD] = {"eventfd", EMFILE},
    [OPEN] = {"open", EMFILE},         [MEMBARRIER] = {"membarrier", ENOSYS},
    [SIGQUEUE] = {"sigqueue", EPERM},  [SLACK] = {"slack", EPERM},
    [ALTSTACK] = {"altstack", ENOMEM}, [RESOLVE] = {"resolve", ENOMEM},
    [AFFINITY] = {"affinity", EPERM},
};

static struct {
    uintptr_t lo, hi; /* the library's code */
    int armed;
    enum fault_kind kind;
    long first, last; /* the calls that fail, counted from 1 */
    long seen[KINDS]; /* calls while armed */
    long failed;
} fault;

static inline int fault_find_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    int i;
    (void)size;
    (void)arg;
    if (!strstr(info->dlpi_name, "libgosched"))
        return 0;
    for (i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
            fault.lo = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            fault.hi = fault.lo + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

/* From now on the calls first..last of this kind fail. */
static inline void fault_arm(enum fault_kind kind, long first, long last)
{
    if (!fault.lo)
        CHECK_EQ(dl_iterate_phdr(fault_find_library, NULL), 1);
    memset(fault.seen, 0, sizeof fault.seen);
    fault.kind = kind;
    fault.first = first;
    fault.last = last;
    SET(fault.failed, 0);
    SET(fault.armed, 1);
}

static inline void fault_end(void)
{
    SET(fault.armed, 0);
}

static inline bool fails(enum fault_kind kind, void *caller)
{
    long n;
    if (!GET(fault.armed) || (uintptr_t)caller - fault.lo >= fault.hi - fault.lo)
        return false;
    n = ADD(fault.seen[kind], 1);
    if (kind != fault.kind || n < fault.first || n > fault.last)
        return false;
    ADD(fault.failed, 1);
    return true;
}

static inline void *fault_real(void **at, const char *name)
{
    void *f = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    if (!f) {
        f = dlsym(RTLD_NEXT, name);
        __atomic_store_n(at, f, __ATOMIC_RELEASE);
    }
    return f;
}

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))
#define REAL(name)              \
    static void *real_##name;   \
    __typeof__(name) *f = (__typeof__(name) *)fault_real(&real_##name, #name)
#define FAIL(kind, with)                            \
    do {                                            \
        if (fails(kind, CALLER)) {                  \
            errno = fault_kinds[kind].error;        \
            return with;                            \
        }                                           \
    } while (0)

/* ---- The functions ---- */

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t n)
{
    FAIL(ALLOC, NULL);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    FAIL(ALLOC, NULL);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    FAIL(ALLOC, NULL);
    return __libc_realloc(p, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    FAIL(ALLOC, ENOMEM);
    *out = __libc_memalign(align, n);
    return *out ? 0 : ENOMEM;
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    REAL(mmap);
    FAIL(MMAP, MAP_FAILED);
    return f(at, n, prot, flags, fd, offset);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t offset)
{
    REAL(mmap64);
    FAIL(MMAP, MAP_FAILED);
    return f(at, n, prot, flags, fd, offset);
}

void *mremap(void *at, size_t n, size_t new_n, int flags, ...)
{
    REAL(mremap);
    FAIL(MMAP, MAP_FAILED);
    return f(at, n, new_n, flags);
}

int madvise(void *at, size_t n, int advice)
{
    REAL(madvise);
    FAIL(MADVISE, -1);
    return f(at, n, advice);
}

int mprotect(void *at, size_t n, int prot)
{
    REAL(mprotect);
    FAIL(MPROTECT, -1);
    return f(at, n, prot);
}

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    REAL(pthread_create);
    FAIL(THREAD, EAGAIN);
    return f(t, attr, fn, arg);
}

int epoll_create1(int flags)
{
    REAL(epoll_create1);
    FAIL(EPOLL, -1);
    return f(flags);
}

int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    REAL(epoll_ctl);
    if (op == EPOLL_CTL_ADD)
        FAIL(EPOLL_ADD, -1);
    return f(epoll, op, fd, event);
}

int eventfd(unsigned n, int flags)
{
    REAL(eventfd);
    FAIL(EVENTFD, -1);
    return f(n, flags);
}

#define OPEN_LIKE(name)                                     \
    int name(const char *path, int flags, ...)              \
    {                                                       \
        va_list args;                                       \
        int mode;                                           \
        REAL(name);        \
        va_start(args, flags);                              \
        mode = va_arg(args, int);                           \
        va_end(args);                                       \
        FAIL(OPEN, -1);                                     \
        return f(path, flags, mode);                        \
    }
OPEN_LIKE(open)
OPEN_LIKE(open64)

int prctl(int what, ...)
{
    va_list args;
    unsigned long a[4];
    int i;
    REAL(prctl);
    va_start(args, what);
    for (i = 0; i < 4; i++)
        a[i] = va_arg(args, unsigned long);
    va_end(args);
    if (what == PR_SET_TIMERSLACK || what == PR_GET_TIMERSLACK)
        FAIL(SLACK, -1);
    return f(what, a[0], a[1], a[2], a[3]);
}

int sigaltstack(const stack_t *new, stack_t *old)
{
    REAL(sigaltstack);
    /* To ask, and to end the use of one, can't fail. */
    if (new && !(new->ss_flags & SS_DISABLE))
        FAIL(ALTSTACK, -1);
    return f(new, old);
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res)
{
    REAL(getaddrinfo);
    FAIL(RESOLVE, EAI_MEMORY);
    return f(node, service, hints, res);
}

long syscall(long nr, ...)
{
    va_list args;
    long a[6];
    int i;
    REAL(syscall);
    va_start(args, nr);
    for (i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (nr == SYS_membarrier)
        FAIL(MEMBARRIER, -1);
    if (nr == SYS_rt_tgsigqueueinfo || nr == SYS_tgkill)
        FAIL(SIGQUEUE, -1);
    if (nr == SYS_process_madvise)
        FAIL(MADVISE, -1);
    if (nr == SYS_sched_setaffinity)
        FAIL(AFFINITY, -1);
    return f(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

#endif
