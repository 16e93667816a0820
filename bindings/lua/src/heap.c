/* The memory of a state of the pool.

   malloc has about one arena for each thread. A state that moves between threads takes memory from one arena
   after another, and freed memory stays in each arena: a process would end up with as many times the memory as
   there are arenas. So a state has a heap of its own. One thread at a time uses the state, so the heap needs no
   lock.

   A heap is made of chunks, a chunk of cells. A slab is one cell or a few, with blocks of one size. Lua tells
   the size of a block that it frees, so blocks have no headers. A block too large for slabs has cells of its
   own, a larger one has chunks of its own, and a very large one comes from malloc. A slab without blocks in use
   returns its cells to the chunk; a chunk without cells in use returns to the chunks that all heaps share. */

#include "lgs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CELL ((size_t)1024)       /* bytes */
#define CHUNK (64 * CELL)         /* bytes; a chunk's address is a multiple of it */
#define REGION (32 * CHUNK)       /* bytes; a region's address is a multiple of it */
#define CELLS ((int)(CHUNK / CELL))
#define HEADER 2                  /* cells of a chunk that have its header */
#define UNIT 16                   /* bytes; sizes of blocks, and their addresses, are multiples of it */
#define MOST (CHUNK - HEADER * CELL) /* bytes of the largest block with cells of its own */
#define VERY_LARGE (REGION - CHUNK)  /* bytes of the largest block with chunks of its own */
/* The most unused chunks that keep their memory. Others keep only their addresses. */
#define WARM 256
/* The most chunks that a heap searches for cells before it gets another chunk. */
#define TRIES 8

/* For a class of blocks: the size in bytes, and the cells of a slab in a small heap and in a larger one. */
static const struct {
    uint16_t size;
    uint8_t cells, many;
} classes[LGS_CLASSES] = {{16, 1, 4},  {32, 1, 4},  {48, 1, 4},  {64, 1, 4},  {80, 1, 4},  {96, 1, 4},  {112, 1, 4}, {128, 1, 4},
                          {160, 1, 4}, {192, 1, 4}, {224, 2, 4}, {256, 1, 4}, {320, 1, 4}, {384, 3, 6}, {448, 4, 8}, {512, 1, 4}};
#define LARGEST 512
/* A heap is small up to this number of chunks. */
#define SMALL 1

/* The class of a block of n units. */
static const uint8_t class_of[LARGEST / UNIT + 1] = {0,  0,  1,  2,  3,  4,  5,  6,  7,  8,  8,  9,  9,  10, 10, 11, 11,
                                                     12, 12, 12, 12, 13, 13, 13, 13, 14, 14, 14, 14, 15, 15, 15, 15};

/* A cell's fields; those of a slab's first cell apply to the slab. */
struct slab {
    void *free;              /* freed blocks, each pointing to the next */
    struct slab *next, *prev; /* of the same class and with room */
    uint16_t live;           /* blocks in use; for a block with cells of its own: the number of cells */
    uint16_t fresh, end;     /* blocks not used yet, in units from the chunk's beginning */
    uint8_t kind;            /* the class, and MANY; or OWN */
    uint8_t first;           /* the first cell of the slab that has this one */
};
enum { MANY = 0x40, OWN = 0x80 };

struct chunk {
    union {
        struct {
            struct chunk *next, *prev; /* the heap's other chunks: those with free cells first */
            uint64_t free;             /* free cells, a bit each */
        };
        struct slab slabs[CELLS];
    };
};
_Static_assert(sizeof(struct chunk) == HEADER * CELL, "the header of a chunk");
#define ALL_FREE (~UINT64_C(0) << HEADER)

/* The first of n set bits in a row, or -1. */
static int find_row(uint64_t bits, int n)
{
    for (int have = 1; have < n;) {
        int more = have < n - have ? have : n - have;
        bits &= bits >> more;
        have += more;
    }
    return bits ? __builtin_ctzll(bits) : -1;
}

static uint64_t row(int first, int n)
{
    return ((UINT64_C(1) << n) - 1) << first;
}

/* ---- Chunks ---- */

/* Memory from the system; the struct is in its first chunk. */
struct region {
    struct region *next, *prev; /* regions with unused chunks: those with warm ones first */
    uint32_t warm, cold;        /* unused chunks, with and without memory, a bit each */
};
#define ALL_COLD (~UINT32_C(0) << 1)

static _Atomic bool locked;
static struct region *first_region, *last_region;
static int how_many_warm;

static void unlink_region(struct region *r)
{
    *(r->prev ? &r->prev->next : &first_region) = r->next;
    *(r->next ? &r->next->prev : &last_region) = r->prev;
}

/* Puts a region into its place in the list. */
static void link_region(struct region *r)
{
    bool front = r->warm != 0;
    r->prev = front ? NULL : last_region;
    r->next = front ? first_region : NULL;
    *(r->prev ? &r->prev->next : &first_region) = r;
    *(r->next ? &r->next->prev : &last_region) = r;
}

/* Takes n chunks in a row; NULL: there are none. Called with the lock held. */
static void *find_chunks(int n)
{
    for (struct region *r = first_region; r; r = r->next) {
        int first = find_row(n == 1 && r->warm ? r->warm : r->warm | r->cold, n);
        if (first < 0)
            continue;
        uint32_t taken = (uint32_t)row(first, n);
        how_many_warm -= __builtin_popcount(r->warm & taken);
        unlink_region(r);
        r->warm &= ~taken;
        r->cold &= ~taken;
        if (r->warm | r->cold)
            link_region(r);
        return (char *)r + (size_t)first * CHUNK;
    }
    return NULL;
}

static struct region *new_region(void)
{
    char *p = mmap(NULL, 2 * REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)p % REGION;
    if (before > 0)
        munmap(p, before);
    munmap(p + before + REGION, REGION - before);
    struct region *r = (struct region *)(p + before);
    madvise(r, REGION, MADV_NOHUGEPAGE); /* most chunks are used only in part */
    r->cold = ALL_COLD;
    return r;
}

/* Takes n chunks in a row. NULL: no memory. */
static void *get_chunks(int n)
{
    lgs_spin_lock(&locked);
    void *p = find_chunks(n);
    lgs_spin_unlock(&locked);
    if (p)
        return p;
    struct region *r = new_region();
    if (!r)
        return NULL;
    lgs_spin_lock(&locked);
    link_region(r);
    p = find_chunks(n); /* the new region has some */
    lgs_spin_unlock(&locked);
    return p;
}

static void put_chunks(void *p, int n)
{
    struct region *r = (struct region *)((uintptr_t)p & -REGION);
    uint32_t bits = (uint32_t)row((int)((uintptr_t)p % REGION / CHUNK), n);
    lgs_spin_lock(&locked);
    bool stay = how_many_warm + n <= WARM;
    if (!stay) {
        lgs_spin_unlock(&locked);
        madvise(p, (size_t)n * CHUNK, MADV_DONTNEED);
        lgs_spin_lock(&locked);
    }
    if (r->warm | r->cold)
        unlink_region(r);
    *(stay ? &r->warm : &r->cold) |= bits;
    how_many_warm += stay ? n : 0;
    bool unused = r->cold == ALL_COLD;
    if (!unused)
        link_region(r);
    lgs_spin_unlock(&locked);
    if (unused)
        munmap(r, REGION);
}

/* ---- Cells ---- */

static struct chunk *chunk_of(const void *p)
{
    return (struct chunk *)((uintptr_t)p & -CHUNK);
}

static int index_of(const void *p)
{
    return (int)((uintptr_t)p % CHUNK / CELL);
}

static void unlink_chunk(struct lgs_heap *h, struct chunk *c)
{
    *(c->prev ? &c->prev->next : &h->chunks) = c->next;
    *(c->next ? &c->next->prev : &h->last) = c->prev;
}

static void push_front(struct lgs_heap *h, struct chunk *c)
{
    c->prev = NULL;
    c->next = h->chunks;
    *(c->next ? &c->next->prev : &h->last) = c;
    h->chunks = c;
}

static void push_back(struct lgs_heap *h, struct chunk *c)
{
    c->next = NULL;
    c->prev = h->last;
    *(c->prev ? &c->prev->next : &h->chunks) = c;
    h->last = c;
}

/* Takes n cells; NULL: no memory. */
static struct slab *take_cells(struct lgs_heap *h, int n)
{
    struct chunk *c = h->chunks;
    int first = -1;
    for (int tries = 0; c && c->free && tries < TRIES; c = c->next, tries++)
        if ((first = find_row(c->free, n)) >= 0)
            break;
    if (first < 0) {
        if (!(c = get_chunks(1)))
            return NULL;
        c->free = ALL_FREE;
        push_front(h, c);
        h->size += CHUNK;
        first = HEADER;
    }
    c->free &= ~row(first, n);
    for (int i = first; i < first + n; i++)
        c->slabs[i].first = (uint8_t)first;
    if (!c->free) {
        unlink_chunk(h, c);
        push_back(h, c);
    }
    return &c->slabs[first];
}

static void give_cells(struct lgs_heap *h, struct slab *s, int n)
{
    struct chunk *c = chunk_of(s);
    bool was_full = !c->free;
    c->free |= row(s->first, n);
    if (c->free == ALL_FREE && (c->next || c->prev)) {
        unlink_chunk(h, c);
        h->size -= CHUNK;
        put_chunks(c, 1);
    } else if (was_full) {
        unlink_chunk(h, c);
        push_front(h, c);
    }
}

/* ---- Blocks ---- */

static int cells_of(const struct slab *s)
{
    return s->kind & MANY ? classes[s->kind & ~MANY].many : classes[s->kind].cells;
}

static void list(struct lgs_heap *h, struct slab *s)
{
    struct slab **head = &h->with_room[s->kind & ~MANY];
    s->prev = NULL;
    s->next = *head;
    if (*head)
        (*head)->prev = s;
    *head = s;
}

static void unlist(struct lgs_heap *h, struct slab *s)
{
    *(s->prev ? &s->prev->next : &h->with_room[s->kind & ~MANY]) = s->next;
    if (s->next)
        s->next->prev = s->prev;
}

static struct slab *new_slab(struct lgs_heap *h, int class)
{
    int many = h->size > SMALL * CHUNK ? MANY : 0, n = many ? classes[class].many : classes[class].cells;
    struct slab *s = take_cells(h, n);
    if (!s)
        return NULL;
    s->free = NULL;
    s->live = 0;
    s->fresh = (uint16_t)(s->first * CELL / UNIT);
    s->end = (uint16_t)(s->fresh + (size_t)n * CELL / classes[class].size * classes[class].size / UNIT);
    s->kind = (uint8_t)(class | many);
    list(h, s);
    return s;
}

static inline bool is_full(const struct slab *s)
{
    return !s->free && s->fresh == s->end;
}

static int chunks_for(size_t size)
{
    return (int)((size + CHUNK - 1) / CHUNK);
}

/* A block of more than MOST bytes in a heap that may be freed while blocks are in use: malloc's, in a list. */
struct large {
    _Alignas(16) struct large *next;
    struct large **at; /* what points to this one */
};

static void *list_large(struct lgs_heap *h, struct large *b)
{
    if (!b)
        return NULL;
    b->next = h->large;
    b->at = &h->large;
    if (b->next)
        b->next->at = &b->next;
    h->large = b;
    return b + 1;
}

static struct large *unlist_large(void *p)
{
    struct large *b = (struct large *)p - 1;
    *b->at = b->next;
    if (b->next)
        b->next->at = b->at;
    return b;
}

static void *resize_large(struct lgs_heap *h, void *p, size_t size)
{
    struct large *old = unlist_large(p), *b = realloc(old, sizeof *b + size);
    list_large(h, b ? b : old);
    return b ? b + 1 : NULL;
}

static void *get(struct lgs_heap *h, size_t size)
{
    if (size > MOST && h->keeps_list)
        return list_large(h, malloc(sizeof(struct large) + size));
    if (size > VERY_LARGE)
        return malloc(size);
    if (size > MOST) {
        void *p = get_chunks(chunks_for(size));
        h->size += p ? (size_t)chunks_for(size) * CHUNK : 0;
        return p;
    }
    if (size > LARGEST) {
        int n = (int)((size + CELL - 1) / CELL);
        struct slab *s = take_cells(h, n);
        if (!s)
            return NULL;
        s->kind = OWN;
        s->live = (uint16_t)n;
        return (char *)chunk_of(s) + s->first * CELL;
    }
    int class = class_of[(size + UNIT - 1) / UNIT];
    struct slab *s = h->with_room[class];
    if (!s && !(s = new_slab(h, class)))
        return NULL;
    void *p = s->free;
    if (p) {
        s->free = *(void **)p;
    } else {
        p = (char *)chunk_of(s) + (size_t)s->fresh * UNIT;
        s->fresh = (uint16_t)(s->fresh + classes[class].size / UNIT);
    }
    s->live++;
    if (is_full(s))
        unlist(h, s);
    return p;
}

static void give_back(struct lgs_heap *h, void *p, size_t size)
{
    if (size > MOST && h->keeps_list) {
        free(unlist_large(p));
        return;
    }
    if (size > VERY_LARGE) {
        free(p);
        return;
    }
    if (size > MOST) {
        h->size -= (size_t)chunks_for(size) * CHUNK;
        put_chunks(p, chunks_for(size));
        return;
    }
    if (h->closing)
        return;
    struct chunk *c = chunk_of(p);
    struct slab *s = &c->slabs[c->slabs[index_of(p)].first];
    if (s->kind == OWN) {
        give_cells(h, s, s->live);
        return;
    }
    if (is_full(s))
        list(h, s);
    *(void **)p = s->free;
    s->free = p;
    if (--s->live == 0 && (s->next || s->prev)) { /* not the last slab with room: another block may come */
        unlist(h, s);
        give_cells(h, s, cells_of(s));
    }
}

/* The kind of place for a block of this size: a block keeps its place if its new size has the same kind. */
static size_t kind_of(size_t size)
{
    if (size <= LARGEST)
        return class_of[(size + UNIT - 1) / UNIT];
    if (size <= MOST)
        return LGS_CLASSES + (size + CELL - 1) / CELL;
    return size <= VERY_LARGE ? LGS_CLASSES + CELLS + (size_t)chunks_for(size) : SIZE_MAX;
}

void *lgs_allocate(struct lgs_heap *h, void *p, size_t old, size_t size)
{
    if (!p)
        return size > 0 ? get(h, size) : NULL;
    if (size == 0) {
        give_back(h, p, old);
        return NULL;
    }
    if (old > MOST && size > MOST && h->keeps_list)
        return resize_large(h, p, size);
    if (old > VERY_LARGE && size > VERY_LARGE)
        return realloc(p, size);
    if (kind_of(old) == kind_of(size))
        return p;
    void *moved = get(h, size);
    if (moved) {
        memcpy(moved, p, old < size ? old : size);
        give_back(h, p, old);
    }
    return moved;
}

void lgs_heap_trim(struct lgs_heap *h)
{
    for (int class = 0; class < LGS_CLASSES; class++) {
        struct slab *s = h->with_room[class];
        if (s && s->live == 0 && !s->next) {
            unlist(h, s);
            give_cells(h, s, cells_of(s));
        }
    }
}

void lgs_heap_free(struct lgs_heap *h)
{
    while (h->large)
        free(unlist_large(h->large + 1));
    for (struct chunk *c = h->chunks, *next; c; c = next) {
        next = c->next;
        put_chunks(c, 1);
    }
    *h = (struct lgs_heap){0};
}
