/*
 * gc.c: goroutines whose memory a collector frees: the Boehm collector, by way of gosched_gc.h (copy that to use it).
 *
 *     gc [--incremental] [KEYS]
 *
 * An ordered set that is never changed: an insertion makes a new version, which shares all but some 20 nodes with the one
 * before. So writers replace the root under a lock, and readers take a version and read it for as long as they like,
 * without a lock. A node must be freed when no version that is still read contains it; the collector does that. The set is a treap:
 * a search tree by key, a heap by a hash of the key.
 *
 * Build it with -lgosched -lgc. docs/embedding-collector.md has the rest.
 */
#define _GNU_SOURCE
#define GOSCHED_GC_IMPLEMENTATION
#include "gosched_gc.h"
#include <stdio.h>
#include <stdlib.h>

enum { WRITERS = 8, READERS = 8 };

struct node {
    const struct node *left, *right;
    uint64_t key, size; /* nodes of the tree */
};

/* One version of the set. */
struct version {
    const struct node *root;
    uint64_t number;
};

static gs_mutex writing;
static struct version *current; /* replaced with the lock held, read at any time */
static uint64_t keys = 100000, looks, registered, finalized;
static bool written;

static void must(int r, const char *what)
{
    if (r < 0) {
        fprintf(stderr, "gc: %s: %s\n", what, gs_strerror(r));
        exit(1);
    }
}

static uint64_t rank_of(uint64_t key)
{
    key *= 0x9e3779b97f4a7c15u;
    return (key ^ key >> 29) * 0xbf58476d1ce4e5b9u;
}

static uint64_t size_of(const struct node *n)
{
    return n == NULL ? 0 : n->size;
}

static const struct node *node(uint64_t key, const struct node *left, const struct node *right)
{
    struct node *n = GC_malloc(sizeof *n);
    if (n == NULL)
        must(-ENOMEM, "GC_malloc");
    n->key = key;
    n->left = left;
    n->right = right;
    n->size = 1 + size_of(left) + size_of(right);
    return n;
}

/* The nodes of a tree with keys below a key, and those above. */
static void split(const struct node *n, uint64_t key, const struct node **below, const struct node **above)
{
    const struct node *rest;
    if (n == NULL) {
        *below = *above = NULL;
    } else if (n->key < key) {
        split(n->right, key, &rest, above);
        *below = node(n->key, n->left, rest);
    } else {
        split(n->left, key, below, &rest);
        *above = node(n->key, rest, n->right);
    }
}

/* A tree with one more key, which it doesn't have yet. */
static const struct node *with(const struct node *n, uint64_t key)
{
    const struct node *below, *above;
    if (n != NULL && rank_of(n->key) > rank_of(key))
        return key < n->key ? node(n->key, with(n->left, key), n->right) : node(n->key, n->left, with(n->right, key));
    split(n, key, &below, &above);
    return node(key, below, above);
}

/* Whether the tree is as it was made: its keys are in order, within (low, high), and its sizes right. */
static bool is_whole(const struct node *n, uint64_t low, uint64_t high)
{
    return n == NULL
        || (n->key > low && n->key < high && n->size == 1 + size_of(n->left) + size_of(n->right)
            && is_whole(n->left, low, n->key) && is_whole(n->right, n->key, high));
}

static void version_ends(void *version, void *unused)
{
    (void)version;
    (void)unused;
    __atomic_add_fetch(&finalized, 1, __ATOMIC_RELAXED);
}

static void write_keys(void *arg)
{
    for (uint64_t key = (uintptr_t)arg; key <= keys; key += WRITERS) {
        struct version *next = GC_malloc(sizeof *next);
        must(gs_mutex_lock(&writing, GS_FOREVER), "gs_mutex_lock");
        next->root = with(current->root, rank_of(key) >> 1 | 1);
        next->number = current->number + 1;
        if (next->number % 100 == 0) {
            GC_register_finalizer_no_order(next, version_ends, NULL, NULL, NULL);
            registered++;
        }
        __atomic_store_n(&current, next, __ATOMIC_RELEASE);
        must(gs_mutex_unlock(&writing), "gs_mutex_unlock");
    }
}

static void read_versions(void *failures)
{
    do {
        const struct version *v = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
        gs_sleep(1000 * 1000); /* the writers go on; this version stays */
        if (size_of(v->root) != v->number || !is_whole(v->root, 0, UINT64_MAX))
            __atomic_add_fetch((uint64_t *)failures, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED);
    } while (!__atomic_load_n(&written, __ATOMIC_ACQUIRE));
}

static void go_main(void *failures)
{
    gs_g *writers[WRITERS], *readers[READERS], *finalizers;

    current = GC_malloc(sizeof *current);
    must(gs_spawn_with(gs_gc_finalizers, NULL, NULL, &finalizers), "gs_spawn_with");
    for (uintptr_t i = 0; i < READERS; i++)
        must(gs_spawn_with(read_versions, failures, NULL, &readers[i]), "gs_spawn_with");
    for (uintptr_t i = 0; i < WRITERS; i++)
        must(gs_spawn_with(write_keys, (void *)(i + 1), NULL, &writers[i]), "gs_spawn_with");
    for (int i = 0; i < WRITERS; i++) {
        must(gs_join(writers[i], GS_FOREVER), "gs_join");
        gs_release(writers[i]);
    }
    __atomic_store_n(&written, true, __ATOMIC_RELEASE);
    for (int i = 0; i < READERS; i++) {
        must(gs_join(readers[i], GS_FOREVER), "gs_join");
        gs_release(readers[i]);
    }
    /* The collector is conservative: a word that looks like a pointer keeps what it points to. */
    for (int i = 0; i < 100 && __atomic_load_n(&finalized, __ATOMIC_RELAXED) < registered / 2; i++) {
        GC_gcollect();
        gs_sleep(10 * 1000 * 1000);
    }
    must(gs_cancel(finalizers), "gs_cancel");
    must(gs_join(finalizers, GS_FOREVER), "gs_join");
    gs_release(finalizers);
}

int main(int argc, char **argv)
{
    uint64_t failures = 0;
    uint32_t flags = 0;
    bool is_good;
    for (int i = 1; i < argc; i++) {
        char *end = argv[i];
        if (strcmp(argv[i], "--incremental") == 0)
            flags = GS_GC_INCREMENTAL;
        else if ((keys = strtoull(argv[i], &end, 10)) < 1 || *end != '\0' || argv[i][0] == '-') {
            fprintf(stderr, "usage: gc [--incremental] [KEYS]\n");
            return 2;
        }
    }
    must(gs_gc_init(flags), "gs_gc_init");
    must(gs_run(go_main, &failures), "gs_run");
    must(gs_gc_shutdown(GS_FOREVER), "gs_gc_shutdown");

    is_good = failures == 0 && current->number == keys && size_of(current->root) == keys
        && is_whole(current->root, 0, UINT64_MAX) && finalized >= registered / 2;
    printf("%llu versions of a set, the last with %llu keys; %s\n", (unsigned long long)current->number,
           (unsigned long long)size_of(current->root), is_good ? "all that were looked at are whole" : "SOMETHING IS LOST");
    fprintf(stderr, "%llu looks, %llu of %llu finalizers called, %lu collections, a heap of %zu KiB\n",
            (unsigned long long)looks, (unsigned long long)finalized, (unsigned long long)registered,
            (unsigned long)GC_get_gc_no(), GC_get_heap_size() / 1024);
    return !is_good;
}
