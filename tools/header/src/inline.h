/* ---- Inline fast paths ---- */

#if defined(__GNUC__) && !defined(GS_NO_INLINE)
/*
 * The common cases, inlined into the caller: gs_mutex_lock, gs_mutex_trylock, gs_mutex_unlock and
 * the four functions of gs_rwmutex without contention, gs_once_do when it is done, gs_preempt_check.
 * All other cases call the function. With GS_NO_INLINE defined, and with other compilers, every case does; a name in
 * parentheses, such as (gs_mutex_lock), always means the function.
 *
 * This much of the objects' layout is part of the ABI. Words are those of 32 bits, little- or
 * big-endian as the machine.
 *
 * - gs_mutex, word 0: bit 0 is set while it is locked, bit 1 while others wait, bit 3 while it is
 *   handed over. Bits 0 and 3 clear: setting bit 0 (acquire) locks it. Bit 0 set and bit 1 clear:
 *   clearing bit 0 (release) unlocks it. All other bits stay as they are. opaque[1] says, as a hint,
 *   whether others wait (not 0). Then that exchange would fail, so it is not tried.
 * - gs_rwmutex, word 0: bit 0 is set while a writer has it, bit 1 while others wait; the bits from
 *   bit 2 on count the readers that have it. Bits 0 and 1 clear: adding 4 (acquire) locks it for
 *   reading. Bit 1 clear and at least one reader: subtracting 4 (release) undoes that. The word 0:
 *   setting bit 0 (acquire) locks it for writing. The word 1: clearing bit 0 (release) undoes that.
 * - gs_once, word 0: 2 when it is done (acquire). Then word 1: 0 when the library has left it.
 * - The word that gs_preempt_flag gives is not 0 while some goroutine is asked to give way.
 */
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wold-style-cast" /* C has no other */
#pragma clang diagnostic ignored "-Wzero-as-null-pointer-constant" /* NULL is C's */
#endif

typedef uint32_t __attribute__((__may_alias__)) gs_word;

/* Whether some goroutine may be asked to give way. */
static inline bool gs_preempt_asked(void)
{
    static const uint32_t yes = 1;
    static const volatile uint32_t *flag = &yes; /* until it is looked up */
    const volatile uint32_t *f = __atomic_load_n(&flag, __ATOMIC_RELAXED);
    if (__builtin_expect(__atomic_load_n(f, __ATOMIC_RELAXED) == 0, 1))
        return false;
    __atomic_store_n(&flag, gs_preempt_flag(), __ATOMIC_RELAXED);
    return true;
}

static inline void gs_preempt_check_inline(void)
{
    if (gs_preempt_asked())
        gs_preempt_check();
}

GS_MUST_CHECK static inline int gs_mutex_trylock_inline(gs_mutex *m)
{
    gs_word *word = (gs_word *)m, s;
    if (__builtin_expect(m != NULL, 1)) {
        s = __atomic_load_n(word, __ATOMIC_RELAXED); /* as in gs_mutex_lock_inline */
        if (__builtin_expect(s == 0, 1)
            && __builtin_expect(__atomic_compare_exchange_n(word, &s, UINT32_C(1), false,
                                                            __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_mutex_trylock(m);
}

static inline int gs_mutex_lock_inline(gs_mutex *m, gs_deadline deadline)
{
    gs_word *word = (gs_word *)m, s;
    if (__builtin_expect(m != NULL && !gs_preempt_asked(), 1)) {
        /* Measured: the load costs nothing here, and a failing exchange as much as a successful exchange. */
        s = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (__builtin_expect(s == 0, 1)
            && __builtin_expect(__atomic_compare_exchange_n(word, &s, UINT32_C(1), false,
                                                            __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_mutex_lock(m, deadline);
}

static inline int gs_mutex_unlock_inline(gs_mutex *m)
{
    gs_word *word = (gs_word *)m, s;
    if (__builtin_expect(m != NULL, 1)) {
        s = 1; /* loading it first would take longer: the lock's exchange is mostly just over */
        if (__builtin_expect(__atomic_load_n(&m->opaque[1], __ATOMIC_RELAXED) == 0, 1)
            && __builtin_expect(__atomic_compare_exchange_n(word, &s, UINT32_C(0), false,
                                                            __ATOMIC_RELEASE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_mutex_unlock(m);
}

static inline int gs_rwmutex_rlock_inline(gs_rwmutex *rw, gs_deadline deadline)
{
    gs_word *word = (gs_word *)rw, s;
    if (__builtin_expect(rw != NULL && !gs_preempt_asked(), 1)) {
        s = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (__builtin_expect((s & 3) == 0, 1)
            && __builtin_expect(__atomic_compare_exchange_n(word, &s, s + 4, false,
                                                            __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_rwmutex_rlock(rw, deadline);
}

static inline int gs_rwmutex_runlock_inline(gs_rwmutex *rw)
{
    gs_word *word = (gs_word *)rw, s;
    if (__builtin_expect(rw != NULL, 1)) {
        s = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (__builtin_expect((s & 2) == 0 && s >= 4, 1)
            && __builtin_expect(__atomic_compare_exchange_n(word, &s, s - 4, false,
                                                            __ATOMIC_RELEASE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_rwmutex_runlock(rw);
}

static inline int gs_rwmutex_lock_inline(gs_rwmutex *rw, gs_deadline deadline)
{
    gs_word *word = (gs_word *)rw, s;
    if (__builtin_expect(rw != NULL && !gs_preempt_asked(), 1)) {
        s = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (__builtin_expect(s == 0, 1)
            && __builtin_expect(__atomic_compare_exchange_n(word, &s, UINT32_C(1), false,
                                                            __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_rwmutex_lock(rw, deadline);
}

static inline int gs_rwmutex_unlock_inline(gs_rwmutex *rw)
{
    gs_word *word = (gs_word *)rw, s;
    if (__builtin_expect(rw != NULL, 1)) {
        s = 1; /* not loaded, as in gs_mutex_unlock_inline */
        if (__builtin_expect(__atomic_compare_exchange_n(word, &s, UINT32_C(0), false,
                                                         __ATOMIC_RELEASE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_rwmutex_unlock(rw);
}

static inline int gs_once_do_inline(gs_once *o, gs_fn f, void *arg)
{
    const gs_word *word = (const gs_word *)o;
    if (__builtin_expect(o != NULL && f != NULL, 1)
        && __builtin_expect(__atomic_load_n(word, __ATOMIC_ACQUIRE) == 2, 1)
        && __atomic_load_n(word + 1, __ATOMIC_ACQUIRE) == 0)
        return 0;
    return gs_once_do(o, f, arg);
}

#ifdef __clang__
#pragma clang diagnostic pop
#endif

/* Variadic, because an argument in C++ may have commas that are not in parentheses. */
#define gs_preempt_check(...) gs_preempt_check_inline(__VA_ARGS__)
#define gs_mutex_trylock(...) gs_mutex_trylock_inline(__VA_ARGS__)
#define gs_mutex_lock(...) gs_mutex_lock_inline(__VA_ARGS__)
#define gs_mutex_unlock(...) gs_mutex_unlock_inline(__VA_ARGS__)
#define gs_rwmutex_rlock(...) gs_rwmutex_rlock_inline(__VA_ARGS__)
#define gs_rwmutex_runlock(...) gs_rwmutex_runlock_inline(__VA_ARGS__)
#define gs_rwmutex_lock(...) gs_rwmutex_lock_inline(__VA_ARGS__)
#define gs_rwmutex_unlock(...) gs_rwmutex_unlock_inline(__VA_ARGS__)
#define gs_once_do(...) gs_once_do_inline(__VA_ARGS__)
#endif

/* A program that calls gs_init or gs_run by these names passes the version of its header. */
#define gs_init(...) gs_init_for(GS_VERSION, __VA_ARGS__)
#define gs_run(...) gs_run_for(GS_VERSION, __VA_ARGS__)

