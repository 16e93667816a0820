/* Finding libc's own functions. */
#include "real.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

static _Noreturn void die(const char *name);

/* The last argument of functions that declare it as `...`. */
#define LAST_ARGUMENT(name, after) \
    va_list list_; \
    va_start(list_, after); \
    long name = va_arg(list_, long); \
    va_end(list_)

/*
 * A function's pointer is first early_name, which looks up all functions. It is called, for instance, by another
 * library's constructor that runs before ours. During the lookup dlsym may itself call one of the functions: it
 * allocates, and the program's malloc (jemalloc in redis-server) makes a key, locks a mutex or opens a file. Then
 * raw_name does the work. A reference to libc's name would not do: even with a version it finds the function that this
 * library exports.
 */
static struct {
    int (*pthread_key_create)(pthread_key_t *, void (*)(void *));
    void *(*pthread_getspecific)(pthread_key_t);
    int (*pthread_setspecific)(pthread_key_t, const void *);
    int (*pthread_mutex_lock)(pthread_mutex_t *);
    int (*pthread_mutex_trylock)(pthread_mutex_t *);
    int (*pthread_mutex_unlock)(pthread_mutex_t *);
} raw;

#define raw_pthread_mutex_lock raw.pthread_mutex_lock
#define raw_pthread_mutex_trylock raw.pthread_mutex_trylock
#define raw_pthread_mutex_unlock raw.pthread_mutex_unlock
#define raw_pthread_key_create raw.pthread_key_create
#define raw_pthread_getspecific raw.pthread_getspecific
#define raw_pthread_setspecific raw.pthread_setspecific
#define raw_read(fd, buf, n) raw_syscall(SYS_read, fd, buf, n)
#define raw_write(fd, buf, n) raw_syscall(SYS_write, fd, buf, n)
#define raw_pread64(fd, buf, n, at) raw_syscall(SYS_pread64, fd, buf, n, at)
#define raw_pthread_sigmask(how, set, before) (int)raw_syscall(SYS_rt_sigprocmask, how, set, before, 8)
#define raw_close(fd) (int)raw_syscall(SYS_close, fd)

#define F(result, name, params, args) \
    static result early_##name params \
    { \
        find_all(); \
        if (real.name == early_##name) \
            die(#name); \
        return real.name args; \
    }
#define R(result, name, params, args) \
    static result early_##name params \
    { \
        find_all(); \
        if (real.name == early_##name) \
            return raw_##name args; \
        return real.name args; \
    }
#define V(result, name, params, args) static result early_##name params;
#include "functions.h"
#undef F
#undef R
#undef V

struct real real = {
#define F(result, name, params, args) .name = early_##name,
#define R F
#define V F
#include "functions.h"
#undef F
#undef R
#undef V
};

static int early_open64(const char *path, int flags, ...)
{
    LAST_ARGUMENT(mode, flags);
    find_all();
    return real.open64 == early_open64 ? (int)raw_syscall(SYS_openat, AT_FDCWD, path, flags, mode)
                                       : real.open64(path, flags, mode);
}

static int early_openat64(int dir, const char *path, int flags, ...)
{
    LAST_ARGUMENT(mode, flags);
    find_all();
    return real.openat64 == early_openat64 ? (int)raw_syscall(SYS_openat, dir, path, flags, mode)
                                           : real.openat64(dir, path, flags, mode);
}

static int early_fcntl64(int fd, int cmd, ...)
{
    LAST_ARGUMENT(arg, cmd);
    find_all();
    return real.fcntl64 == early_fcntl64 ? (int)raw_syscall(SYS_fcntl, fd, cmd, arg) : real.fcntl64(fd, cmd, arg);
}

/* The hash of a name in a GNU hash table. */
static uint32_t hash_of(const char *name)
{
    uint32_t h = 5381;
    for (; *name; name++)
        h = h * 33 + (unsigned char)*name;
    return h;
}

void *defined_in(const struct dl_phdr_info *object, const char *name)
{
    const ElfW(Dyn) *dyn = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *table = NULL;
    const ElfW(Half) *versions = NULL;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dyn = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (; dyn != NULL && dyn->d_tag != DT_NULL; dyn++) {
        uintptr_t at = dyn->d_un.d_ptr;
        if (at < object->dlpi_addr) /* the kernel's object: the dynamic linker has not relocated its addresses */
            at += object->dlpi_addr;
        switch (dyn->d_tag) {
        case DT_SYMTAB: symbols = (const void *)at; break;
        case DT_STRTAB: strings = (const void *)at; break;
        case DT_GNU_HASH: table = (const void *)at; break;
        case DT_VERSYM: versions = (const void *)at; break;
        }
    }
    if (!symbols || !strings || !table || table[0] == 0)
        return NULL;
    const uint32_t *buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table), *chains = buckets + table[0];
    uint32_t hash = hash_of(name), i = buckets[hash % table[0]];
    if (i < table[1])
        return NULL;
    for (;; i++) {
        uint32_t found = chains[i - table[1]];
        const ElfW(Sym) *s = &symbols[i];
        bool hidden = versions && versions[i] & 0x8000; /* an older version */
        if ((found | 1) == (hash | 1) && !hidden && s->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(s->st_info) == STT_FUNC &&
            strcmp(strings + s->st_name, name) == 0)
            return (void *)(object->dlpi_addr + s->st_value);
        if (found & 1)
            return NULL;
    }
}

/* Searches libc, and libpthread where that is a library of its own. */
static int find_raw(struct dl_phdr_info *object, size_t size, void *arg)
{
    const char *file = strrchr(object->dlpi_name, '/');
    (void)size;
    (void)arg;
    if (!file || (strcmp(file, "/libc.so.6") != 0 && strcmp(file, "/libpthread.so.0") != 0))
        return 0;
#define RAW(name) \
    do { \
        void *f = defined_in(object, #name); \
        if (f) \
            memcpy(&raw.name, &f, sizeof f); \
    } while (0)
    RAW(pthread_key_create);
    RAW(pthread_getspecific);
    RAW(pthread_setspecific);
    RAW(pthread_mutex_lock);
    RAW(pthread_mutex_trylock);
    RAW(pthread_mutex_unlock);
#undef RAW
    return 0;
}

/* Whether the function may be missing because glibc is too old. */
static bool is_newer_than_libc(const char *name)
{
    int minor = atoi(gnu_get_libc_version() + strlen("2."));
    if (strncmp(name, "__isoc23_", 9) == 0)
        return minor < 38;
    return strcmp(name, "epoll_pwait2") == 0 && minor < 35;
}

/* For a missing name dlsym allocates. The program's malloc may be in use just then, and wait for itself. */
static void find(const char *name, void **at)
{
    if (is_newer_than_libc(name))
        return;
    /* Without a version dlsym may find the condition variables of 2002, which have another layout. */
    bool is_old = strncmp(name, "pthread_cond_", 13) == 0 && strcmp(name, "pthread_cond_clockwait") != 0;
    void *f = is_old ? dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2") : dlsym(RTLD_NEXT, name);
    if (f != NULL)
        __atomic_store_n(at, f, __ATOMIC_RELEASE);
}

void find_all(void)
{
    static atomic_uint state; /* 1: being done, 2: done */
    static _Atomic pid_t by;
    unsigned none = 0;
    if (atomic_load(&state) == 2)
        return;
    if (atomic_compare_exchange_strong(&state, &none, 1)) {
        int error = errno;
        atomic_store(&by, (pid_t)raw_syscall(SYS_gettid));
        dl_iterate_phdr(find_raw, NULL);
#define F(result, name, params, args) find(#name, (void **)&real.name);
#define R F
#define V F
#include "functions.h"
#undef F
#undef R
#undef V
        atomic_store(&state, 2);
        errno = error;
    } else if (atomic_load(&by) != (pid_t)raw_syscall(SYS_gettid)) {
        while (atomic_load(&state) != 2)
            spin();
    }
}

static _Noreturn void die(const char *name)
{
    static const char before[] = "gosched-preload: libc has no ", after[] = ", or it was called while it was looked for\n";
    (void)!raw_syscall(SYS_write, 2, before, sizeof before - 1);
    (void)!raw_syscall(SYS_write, 2, name, strlen(name));
    (void)!raw_syscall(SYS_write, 2, after, sizeof after - 1);
    abort();
}
