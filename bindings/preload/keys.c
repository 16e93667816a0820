/*
 * pthread_key_create and its kin: in a goroutine the values belong to the goroutine instead of the thread. Libraries
 * keep state in them that goroutines must not share, such as OpenSSL's queue of errors.
 */
#include "callers.h"
#include "keys.h"
#include "parts.h"
#include "real.h"

/*
 * Keys are numbers below PTHREAD_KEYS_MAX. The number of a deleted key is used again, with another generation. The
 * generation is odd while the key exists.
 */
static struct key {
    atomic_uint generation;
    void (*_Atomic destroy)(void *);
} keys[PTHREAD_KEYS_MAX];

struct value {
    void *value;
    unsigned generation;
};

struct values {
    unsigned n;
    struct value of[];
};

static gs_key values_key;

static struct value *value_of(pthread_key_t key)
{
    struct values *values = gs_getspecific(values_key);
    if (values == NULL || key >= values->n)
        return NULL;
    struct value *v = &values->of[key];
    return v->generation == atomic_load_explicit(&keys[key].generation, memory_order_relaxed) ? v : NULL;
}

static void *get(pthread_key_t key)
{
    struct value *v = value_of(key);
    return v ? v->value : NULL;
}

static int set(pthread_key_t key, const void *value)
{
    if (key >= PTHREAD_KEYS_MAX || atomic_load(&keys[key].generation) % 2 == 0)
        return EINVAL;
    struct values *values = gs_getspecific(values_key);
    if (values == NULL || key >= values->n) {
        if (value == NULL)
            return 0;
        unsigned old = values ? values->n : 0, n = (key + 16) / 16 * 16;
        struct values *more = realloc(values, sizeof *more + n * sizeof more->of[0]);
        if (more == NULL)
            return ENOMEM;
        memset(&more->of[old], 0, (n - old) * sizeof more->of[0]);
        more->n = n;
        values = more;
        if (gs_setspecific(values_key, values) != 0)
            return ENOMEM;
    }
    values->of[key] = (struct value){(void *)value, atomic_load(&keys[key].generation)};
    return 0;
}

/* Runs the destructors at the end of the goroutine, on its stack. */
static void destroy_values(void *arg)
{
    gs_setspecific(values_key, arg); /* the destructors may ask for the values, and may add some */
    bool again = true;
    for (int round = 0; again && round < PTHREAD_DESTRUCTOR_ITERATIONS; round++) {
        again = false;
        for (unsigned key = 0; key < ((struct values *)gs_getspecific(values_key))->n; key++) {
            struct value *v = value_of(key);
            void (*destroy)(void *) = atomic_load(&keys[key].destroy);
            if (v == NULL || v->value == NULL || destroy == NULL)
                continue;
            void *value = v->value;
            v->value = NULL;
            again = true;
            destroy(value);
        }
    }
    free(gs_getspecific(values_key));
    gs_setspecific(values_key, NULL);
}

void *exchange_values(void *given)
{
    void *had = gs_getspecific(values_key);
    gs_setspecific(values_key, given);
    return had;
}

void keys_start(void)
{
    gs_key_create(&values_key, destroy_values);
}

static void made(pthread_key_t key, void (*destroy)(void *))
{
    if (key >= PTHREAD_KEYS_MAX)
        return;
    atomic_store(&keys[key].destroy, destroy);
    /* Odd: this library has not seen the key's deletion. */
    unsigned before = atomic_load(&keys[key].generation);
    atomic_store(&keys[key].generation, before + (before % 2 == 0 ? 1 : 2));
}

/* Ends a key before libc deletes it, and makes another key with its number. */
static void unmade(pthread_key_t key)
{
    if (key < PTHREAD_KEYS_MAX && atomic_load(&keys[key].generation) % 2 != 0)
        atomic_fetch_add(&keys[key].generation, 1);
}

EXPORT int pthread_key_create(pthread_key_t *key, void (*destroy)(void *))
{
    int error = real.pthread_key_create(key, destroy);
    if (error == 0)
        made(*key, destroy);
    note_runtime(__builtin_return_address(0), true);
    return error;
}
ALIAS(__pthread_key_create, pthread_key_create);

EXPORT int pthread_key_delete(pthread_key_t key)
{
    unmade(key);
    return real.pthread_key_delete(key);
}

EXPORT void *pthread_getspecific(pthread_key_t key)
{
    return TAKEN ? get(key) : real.pthread_getspecific(key);
}
ALIAS(__pthread_getspecific, pthread_getspecific);

EXPORT int pthread_setspecific(pthread_key_t key, const void *value)
{
    return TAKEN ? set(key, value) : real.pthread_setspecific(key, value);
}
ALIAS(__pthread_setspecific, pthread_setspecific);

EXPORT int tss_create(tss_t *key, tss_dtor_t destroy)
{
    int result = real.tss_create(key, destroy);
    if (result == thrd_success)
        made(*key, destroy);
    return result;
}

EXPORT void tss_delete(tss_t key)
{
    unmade(key);
    real.tss_delete(key);
}

EXPORT void *tss_get(tss_t key)
{
    return TAKEN ? get(key) : real.tss_get(key);
}

EXPORT int tss_set(tss_t key, void *value)
{
    if (!TAKEN)
        return real.tss_set(key, value);
    switch (set(key, value)) {
    case 0: return thrd_success;
    case ENOMEM: return thrd_nomem;
    default: return thrd_error;
    }
}
