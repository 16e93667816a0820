/* Which code calls: a goroutine, libgosched, a malloc, or an OpenMP runtime. */

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
/* The addresses at which an object is loaded. */
struct range range_of(const struct dl_phdr_info *object);
static inline bool is_within(const void *address, const struct range *r)
{
    return (uintptr_t)address - r->from < r->size;
}

/* Whether a call that seems to come from libgosched is in fact the last call of a goroutine's function, which returns
 * where that function would. Must not be called where libgosched may hold a lock. */
bool is_last_call(const void *caller);
/* is_last_call without walking the stack, as its first call does: false before that. */
bool is_known_last_call(const void *caller);

/* Notes the address in libgosched to which goroutines' functions return: is_known_last_call knows it from now on. */
void note_last_call(const void *address);

/* Whether libgosched is the caller. */
static inline bool is_librarys(const void *caller)
{
    return is_within(caller, &library) && !is_last_call(caller);
}

/* Whether a goroutine has called directly, and not libgosched or a malloc for it. */
static inline bool in_goroutine(const void *caller)
{
    if (LIKELY(!gs_self) || LIKELY(!gs_self()))
        return false;
    return !is_librarys(caller) && !is_within(caller, &allocator);
}

/* The OpenMP runtimes that are loaded. Their state belongs to the thread, and they expect no second goroutine there. */
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
 * Adds the caller's object to the runtimes, if it is an OpenMP runtime. This finds runtimes loaded later than this
 * library: before any other function that is taken over they call one to make a key, or sched_yield to wait for a lock.
 */
void note_runtime(const void *caller, bool makes_key);

/* Whether to take over the function that `caller` has called. */
static inline bool on_goroutine(const void *caller)
{
    return in_goroutine(caller) && !is_in_openmp(caller);
}
#define TAKEN on_goroutine(__builtin_return_address(0))

/* A search of the loaded objects, by dl_iterate_phdr, for the one at an address. */
struct search {
    const void *address;
    const char *name;
    struct range range;
    bool found, is_runtime;
};
/* The callback of dl_iterate_phdr for a struct search. */
int find_user(struct dl_phdr_info *object, size_t size, void *arg);
/* Notes the runtimes that are already loaded. */
void find_runtimes(void);
/* Finds, at the start, where libgosched and the malloc are loaded. */
void find_callers(void);

#endif
