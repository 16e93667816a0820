/*
 * store.h: the keys and values of respd.c, in memory. Any number of goroutines may use it at once.
 *
 * A key belongs to one of SHARDS hash tables by its hash, and each table has a mutex. An operation on
 * several keys locks all their tables, in ascending order so that two of them never wait for each
 * other in a circle; thus MSET and MGET are as atomic as GET. Values are blobs that never change: a
 * reader takes a reference under the lock and copies or sends the bytes after it, so a large value
 * holds up no other request.
 */
#ifndef STORE_H
#define STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gosched.h"

enum {
    SHARDS = 256,     /* enough that each table is small: it grows in one go, under its lock */
    FIRST_SLOTS = 16, /* of a table; a power of two, as SHARDS */
};

/* Bytes that the caller does not own. */
typedef struct slice { const char *data; size_t length; } slice;

/* A value. */
typedef struct blob {
    atomic_uint refs;
    size_t length; /* bytes of data */
    char data[];
} blob;

/* A key with its value, in the list of its slot. */
typedef struct entry {
    struct entry *next;
    blob *value;
    uint64_t hash;
    size_t key_length;
    char key[];
} entry;

typedef struct shard {
    _Alignas(64) gs_mutex lock; /* a cache line each */
    entry **slots;              /* NULL: none yet */
    size_t slot_count, count;
} shard;

/* Tables to lock, a bit each. */
typedef struct shard_set { uint64_t bits[SHARDS / 64]; } shard_set;

static shard shards[SHARDS];
static uint64_t hash_key[2]; /* random, set by store_init */

/* A blob with room for length bytes, and one reference, the caller's. NULL: no memory. */
static blob *blob_alloc(size_t length)
{
    blob *b = malloc(sizeof *b + length);
    if (b) {
        atomic_init(&b->refs, 1);
        b->length = length;
    }
    return b;
}

/* As blob_alloc, with these bytes in it. */
static blob *blob_make(slice bytes)
{
    blob *b = blob_alloc(bytes.length);
    if (b)
        memcpy(b->data, bytes.data, bytes.length);
    return b;
}

/* One reference more; the caller has one, or the lock of the table that has one. */
static blob *blob_retain(blob *b)
{
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

/* Gives a reference back; the last one frees the blob. NULL is nothing. */
static void blob_release(blob *b)
{
    /* Release: what its users did with the bytes is over. Acquire: before they are freed. */
    if (b && atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1)
        free(b);
}

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
    v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
}

/* SipHash-1-3: who doesn't know the random key can't make up keys that all fall into one slot. */
static uint64_t store_hash(slice key)
{
    uint64_t v[4] = {hash_key[0] ^ 0x736f6d6570736575u, hash_key[1] ^ 0x646f72616e646f6du,
                     hash_key[0] ^ 0x6c7967656e657261u, hash_key[1] ^ 0x7465646279746573u};
    const char *p = key.data;
    size_t left = key.length;
    uint64_t word;
    for (; left >= 8; left -= 8, p += 8) {
        memcpy(&word, p, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = (uint64_t)key.length << 56;
    for (size_t i = 0; i < left; i++)
        word |= (uint64_t)(unsigned char)p[i] << (8 * i);
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The number of the table that a key with this hash belongs to: the hash's upper bits, because the
 * lower ones choose the slot. */
static size_t shard_of(uint64_t hash)
{
    return hash >> 56 & (SHARDS - 1);
}

static void shard_lock(shard *s)
{
    int err = gs_mutex_lock(&s->lock, GS_FOREVER);
    if (err < 0)
        abort(); /* only a goroutine that is cancelled gets an error, and this program cancels none */
}

static void shard_unlock(shard *s)
{
    if (gs_mutex_unlock(&s->lock) < 0)
        abort(); /* it is not locked */
}

static void set_add(shard_set *set, uint64_t hash)
{
    size_t i = shard_of(hash);
    set->bits[i / 64] |= UINT64_C(1) << i % 64;
}

static const shard_set all_shards = {{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}};

static void each_shard(const shard_set *set, void (*f)(shard *s))
{
    for (size_t word = 0; word < SHARDS / 64; word++)
        for (uint64_t bits = set->bits[word]; bits != 0; bits &= bits - 1)
            f(&shards[word * 64 + (size_t)__builtin_ctzll(bits)]);
}

static void set_lock(const shard_set *set)
{
    each_shard(set, shard_lock);
}

static void set_unlock(const shard_set *set)
{
    each_shard(set, shard_unlock);
}

/* All below: the caller has the lock of the key's table. */

/* Where the pointer to the key's entry is, or would be appended (then it is NULL there). NULL: the
 * table has no slots yet. */
static entry **store_find(uint64_t hash, slice key)
{
    shard *s = &shards[shard_of(hash)];
    if (!s->slots)
        return NULL;
    entry **at = &s->slots[hash & (s->slot_count - 1)];
    for (; *at; at = &(*at)->next)
        if ((*at)->hash == hash && (*at)->key_length == key.length &&
            memcmp((*at)->key, key.data, key.length) == 0)
            break;
    return at;
}

/* The key's value, which is the table's; NULL: there is no such key. */
static blob *store_get(uint64_t hash, slice key)
{
    entry **at = store_find(hash, key);
    return at && *at ? (*at)->value : NULL;
}

/* Doubles the slots. Without memory the table stays as it is, if it has slots at all. */
static bool shard_grow(shard *s)
{
    size_t n = s->slots ? s->slot_count * 2 : FIRST_SLOTS;
    entry **slots = calloc(n, sizeof(entry *));
    if (!slots)
        return s->slots != NULL;
    for (size_t i = 0; s->slots && i < s->slot_count; i++) {
        for (entry *e = s->slots[i], *next; e; e = next) {
            next = e->next;
            entry **at = &slots[e->hash & (n - 1)];
            e->next = *at;
            *at = e;
        }
    }
    free(s->slots);
    s->slots = slots;
    s->slot_count = n;
    return true;
}

/* Sets the key's value, and takes over the caller's reference to it. *old: the value before, which
 * the caller releases after the lock; NULL: there was none. False: no memory, and nothing has
 * changed. */
static bool store_put(uint64_t hash, slice key, blob *value, blob **old)
{
    shard *s = &shards[shard_of(hash)];
    *old = NULL;
    if (s->count >= s->slot_count && !store_get(hash, key) && !shard_grow(s))
        return false;
    entry **at = store_find(hash, key);
    if (*at) {
        *old = (*at)->value;
        (*at)->value = value;
        return true;
    }
    entry *e = malloc(sizeof *e + key.length);
    if (!e)
        return false;
    *e = (entry){.value = value, .hash = hash, .key_length = key.length};
    memcpy(e->key, key.data, key.length);
    *at = e;
    s->count++;
    return true;
}

/* Takes the key away: its value, which is the caller's from now on; NULL: there was none. */
static blob *store_remove(uint64_t hash, slice key)
{
    entry **at = store_find(hash, key);
    if (!at || !*at)
        return NULL;
    entry *e = *at;
    blob *value = e->value;
    *at = e->next;
    free(e);
    shards[shard_of(hash)].count--;
    return value;
}

/* All below: without locks. */

static size_t store_count(void)
{
    size_t n = 0;
    set_lock(&all_shards);
    for (size_t i = 0; i < SHARDS; i++)
        n += shards[i].count;
    set_unlock(&all_shards);
    return n;
}

/* Takes all keys away at one moment, and frees them after it. */
static void store_clear(void)
{
    shard old[SHARDS];
    set_lock(&all_shards);
    for (size_t i = 0; i < SHARDS; i++) {
        old[i].slots = shards[i].slots;
        old[i].slot_count = shards[i].slot_count;
        shards[i].slots = NULL;
        shards[i].slot_count = shards[i].count = 0;
    }
    set_unlock(&all_shards);
    for (size_t i = 0; i < SHARDS; i++) {
        for (size_t slot = 0; old[i].slots && slot < old[i].slot_count; slot++) {
            for (entry *e = old[i].slots[slot], *next; e; e = next) {
                next = e->next;
                blob_release(e->value);
                free(e);
            }
        }
        free(old[i].slots);
    }
}

static void store_init(const uint64_t random[2])
{
    hash_key[0] = random[0];
    hash_key[1] = random[1];
}

#endif
