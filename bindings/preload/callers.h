/* Who calls: a goroutine, libgosched, a malloc, or a runtime of OpenMP. */

#ifndef GOSCHED_PRELOAD_CALLERS_H
#define GOSCHED_PRELOAD_CALLERS_H

#include "base.h"

#include <link.h>

/* The objects whose calls are never taken over: libgosched.so, and a malloc that isn't libc's. */
struct range {
    uintptr_t from;
    size_t size;
};
extern struct range library, allocator;
/* Where an object is loaded. */
struct range range_of(const struct dl_phdr_info *object);
static inline bool is_within(const void *address, const struct range *r)
{
    return (uintptr_t)address - r->from < r->size;
}

/* For a call that seems to come from libgosched: whether it is the last call of a goroutine's function, which
 * returns to where that function would. Must not be called where libgosched may hold a lock. */
bool is_last_call(const void *caller);
/* As is_last_call, without the look at the stack that only its first call takes: false before that. */
bool is_known_last_call(const void *caller);

/* Says where in libgosched the function of a goroutine returns to: from here on is_known_last_call knows. */
void note_last_call(const void *address);

/* Whether libgosched is the caller. */
static inline bool is_librarys(const void *caller)
{
    return is_within(caller, &library) && !is_last_call(caller);
}

/* Whether a goroutine has called, and neither libgosched nor a malloc has called for it. */
static inline bool in_goroutine(const void *caller)
{
    if (LIKELY(!gs_self) || LIKELY(!gs_self()))
        return false;
    return !is_librarys(caller) && !is_within(caller, &allocator);
}

/* The runtimes of OpenMP that are loaded. What they keep is the thread's, and they don't expect another goroutine. */
enum { MOST_RUNTIMES = 16 };
extern struct range openmp_runtimes[MOST_RUNTIMES];
extern atomic_uint how_many_runtimes;
static inline bool is_in_openmp(const void *caller)
{
    for (unsigned i = 0, n = atomic_load_explicit(&how_many_runtimes, memory_order_acquire); i < n; i++)
        if (is_within(caller, &openmp_runtimes[i]))
            return true;
    return false;
}

/*
 * If a runtime of OpenMP has called, it is one of them from now on. For runtimes that are loaded later than this library: before
 * they call anything else that is taken over, they make a key or wait for a lock by sched_yield.
 */
void note_runtime(const void *caller, bool makes_key);

/* Whether the function that `caller` has called is to be taken over. */
static inline bool on_goroutine(const void *caller)
{
    return in_goroutine(caller) && !is_in_openmp(caller);
}
#define TAKEN on_goroutine(__builtin_return_address(0))

/* A look at the loaded objects by dl_iterate_phdr: which one has the address. */
struct search {
    const void *address;
    const char *name;
    struct range range;
    bool found, is_runtime;
};
/* For dl_iterate_phdr, with a struct search. */
int find_user(struct dl_phdr_info *object, size_t size, void *arg);
/* Notes the runtimes that are loaded already. */
void find_runtimes(void);
/* At the beginning: where libgosched and the malloc are loaded. */
void find_callers(void);

#endif
