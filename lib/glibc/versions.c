/*
 * What the library is linked with in place of glibc, for functions that glibc 2.34 has moved from
 * libpthread and libdl into libc under new versions: the library asks for the versions that all
 * glibcs have, so it runs with those before 2.34, too. Compiled as libpthread.so.0, and with DL as
 * libdl.so.2. No code: at run time glibc's is there.
 */
#if defined(__x86_64__)
#define HAS_SINCE(name, version)  \
    void old_##name(void) {}      \
    __asm__(".symver old_" #name ", " #name "@@GLIBC_" version)
#define FIRST "2.2.5"
#elif defined(__aarch64__)
/* All of them have been there from glibc's first version for this CPU on. */
#define HAS_SINCE(name, version)  \
    void old_##name(void) {}      \
    __asm__(".symver old_" #name ", " #name "@@GLIBC_2.17")
#else
#error "lib/glibc/versions.c: what is glibc's first version for this CPU?"
#endif

#define HAS(name) HAS_SINCE(name, FIRST)

#ifdef DL
HAS(dlclose);
HAS(dlerror);
HAS(dlopen);
HAS(dlsym);
#else
HAS(pthread_attr_getstack);
HAS(pthread_attr_setstacksize);
HAS(pthread_create);
HAS(pthread_detach);
HAS(pthread_getattr_np);
HAS(pthread_getspecific);
HAS(pthread_join);
HAS(pthread_key_create);
HAS(pthread_key_delete);
HAS(pthread_rwlock_rdlock);
HAS(pthread_rwlock_unlock);
HAS(pthread_rwlock_wrlock);
HAS(pthread_setspecific);
HAS(pthread_sigmask);
HAS(sem_post);
HAS(sem_timedwait);
HAS_SINCE(pthread_tryjoin_np, "2.3.3");
HAS_SINCE(pthread_getaffinity_np, "2.3.4");
HAS_SINCE(pthread_setaffinity_np, "2.3.4");
HAS_SINCE(pthread_setname_np, "2.12");
#endif
