/* Finding the caller of a function. */
#include "callers.h"

#include "real.h"

#include <dlfcn.h>
#include <unwind.h>

/* From libgcc_s, which this library needs anyway. */
#pragma weak _Unwind_Backtrace
#pragma weak _Unwind_GetIP

struct range library, allocator;

struct range range_of(const struct dl_phdr_info *object)
{
    uintptr_t from = UINTPTR_MAX, to = 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type != PT_LOAD)
            continue;
        uintptr_t begin = object->dlpi_addr + part->p_vaddr;
        if (begin < from)
            from = begin;
        if (begin + part->p_memsz > to)
            to = begin + part->p_memsz;
    }
    return (struct range){from, to - from};
}

struct place {
    uintptr_t address;
    struct range *range;
    bool first; /* the next object is the program */
    bool not_program;
};

static int find_object(struct dl_phdr_info *object, size_t size, void *arg)
{
    struct place *s = arg;
    struct range range = range_of(object);
    bool program = s->first;
    (void)size;
    s->first = false;
    if (!is_within((const void *)s->address, &range))
        return 0;
    if (!(program && s->not_program))
        *s->range = range;
    return 1;
}

void find_callers(void)
{
    struct place of_library = {.address = (uintptr_t)gs_self, .range = &library, .first = true};
    dl_iterate_phdr(find_object, &of_library);
    /*
     * A malloc that isn't libc's locks mutexes, and keeps values of threads, by functions that are taken over here. For
     * such a malloc these must work on the thread, because libgosched allocates on every stack. A malloc in the program
     * itself can't be told from the rest of the program.
     */
    struct place of_malloc = {.address = (uintptr_t)dlsym(RTLD_DEFAULT, "malloc"), .range = &allocator, .first = true,
                               .not_program = true};
    if (of_malloc.address != (uintptr_t)dlsym(RTLD_NEXT, "__libc_malloc"))
        dl_iterate_phdr(find_object, &of_malloc);
}

/*
 * Compilers turn the last call of a function into a jump (pthread_mutex_unlock at the end of a goroutine's function,
 * say), so that the call returns to libgosched. The functions of all goroutines return to one address, in the outermost
 * frame of a goroutine.
 */
static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *outermost)
{
    uintptr_t at = _Unwind_GetIP(context);
    if (at != 0)
        *(uintptr_t *)outermost = at;
    return _URC_NO_REASON;
}

static _Atomic uintptr_t last_calls_return_to; /* 0: not yet known */

bool is_last_call(const void *caller)
{
    uintptr_t found = atomic_load_explicit(&last_calls_return_to, memory_order_relaxed);
    if (found == 0 && _Unwind_Backtrace && gs_self()) {
        _Unwind_Backtrace(note_frame, &found);
        if (!is_within((const void *)found, &library))
            return false; /* on the thread's own stack */
        atomic_store_explicit(&last_calls_return_to, found, memory_order_relaxed);
    }
    return (uintptr_t)caller == found;
}

bool is_known_last_call(const void *caller)
{
    return (uintptr_t)caller == atomic_load_explicit(&last_calls_return_to, memory_order_relaxed);
}

void note_last_call(const void *address)
{
    atomic_store_explicit(&last_calls_return_to, (uintptr_t)address, memory_order_relaxed);
}

static bool is_runtime(const struct dl_phdr_info *object)
{
    return defined_in(object, "GOMP_parallel") != NULL || defined_in(object, "__kmpc_fork_call") != NULL;
}

int find_user(struct dl_phdr_info *object, size_t size, void *arg)
{
    struct search *s = arg;
    (void)size;
    s->range = range_of(object);
    s->found = is_within(s->address, &s->range);
    s->name = object->dlpi_name;
    s->is_runtime = s->found && is_runtime(object);
    return s->found;
}

/* Objects known to be OpenMP runtimes, and some libraries known to be none. */

struct range openmp_runtimes[MOST_RUNTIMES];
atomic_uint how_many_runtimes;
static struct range others[32];
static atomic_uint how_many_others;

static bool is_among(const void *address, const struct range *of, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (is_within(address, &of[i]))
            return true;
    return false;
}

static void note(struct range range, struct range *among, atomic_uint *n, unsigned most)
{
    static atomic_uint lock;
    while (atomic_exchange_explicit(&lock, 1, memory_order_acquire))
        spin();
    unsigned i = atomic_load(n);
    if (i < most && !is_among((const void *)range.from, among, i)) {
        among[i] = range;
        atomic_store_explicit(n, i + 1, memory_order_release);
    }
    atomic_store_explicit(&lock, 0, memory_order_release);
}

void note_runtime(const void *caller, bool makes_key)
{
    unsigned n = atomic_load_explicit(&how_many_others, memory_order_acquire);
    struct search s = {.address = caller};
    if (!gs_self || is_in_openmp(caller) || (!makes_key && is_among(caller, others, n)))
        return;
    dl_iterate_phdr(find_user, &s);
    if (s.is_runtime)
        note(s.range, openmp_runtimes, &how_many_runtimes, MOST_RUNTIMES);
    else if (s.found)
        note(s.range, others, &how_many_others, sizeof others / sizeof others[0]);
}

static int note_if_runtime(struct dl_phdr_info *object, size_t size, void *own)
{
    struct range range = range_of(object);
    (void)size;
    if (!is_within(own, &range) && object->dlpi_name[0] != 0 && is_runtime(object))
        note(range, openmp_runtimes, &how_many_runtimes, MOST_RUNTIMES);
    return 0;
}

void find_runtimes(void)
{
    dl_iterate_phdr(note_if_runtime, (void *)find_runtimes); /* this library has functions of such names too */
}
