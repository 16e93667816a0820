/*
 * A sync object may be freed once the caller's own last call on it has returned, while the partner is still
 * leaving its call. Each round uses objects of its own. What is freed is filled with a pattern first
 * and kept for a while: a partner that writes to it later is found out.
 */
#include "check.h"

#define ROUNDS 2000
#define GRAVES 64
#define PATTERN 0x5a

static struct grave {
    unsigned char *p;
    size_t size;
} graves[GRAVES];
static int next_grave;

static void open_grave(struct grave *g)
{
    size_t i;
    if (!g->p)
        return;
    for (i = 0; i < g->size; i++)
        if (g->p[i] != PATTERN)
            failed(__FILE__, __LINE__, "an object was written to after it was freed", NULL);
    free(g->p);
    g->p = NULL;
}

static void bury(void *p, size_t size)
{
    struct grave *g = &graves[next_grave];
    next_grave = (next_grave + 1) % GRAVES;
    open_grave(g);
    memset(p, PATTERN, size);
    g->p = p;
    g->size = size;
}

static void open_all_graves(void)
{
    int i;
    for (i = 0; i < GRAVES; i++)
        open_grave(&graves[i]);
}

static void *fresh(size_t size)
{
    void *p = calloc(1, size);
    CHECK(p != NULL);
    return p;
}

static void pause_a_little(int i)
{
    if (i % 3 == 0)
        gs_yield();
}

/* Plays many rounds: the partner is a goroutine, and now and then a plain thread. */
struct game {
    size_t size;
    void (*set_up)(void *);
    gs_fn partner;
    void (*play_and_free)(void *);
};

static const struct game *current;

static void *partner_in_thread(void *p)
{
    current->partner(p);
    return NULL;
}

static void play(const struct game *g)
{
    int i;
    current = g;
    for (i = 0; i < ROUNDS; i++) {
        void *p = fresh(g->size);
        g->set_up(p);
        if (i % 20 == 19) {
            pthread_t t = start_thread(partner_in_thread, p);
            g->play_and_free(p);
            bury(p, g->size);
            go_join_thread(t);
        } else {
            gs_g *partner = go_ref(g->partner, p);
            pause_a_little(i);
            g->play_and_free(p);
            bury(p, g->size);
            join(partner);
        }
    }
    open_all_graves();
}

static void as_it_is(void *p)
{
    (void)p;
}

/* ---- mutex: the last one to lock it frees it while the one before is still unlocking ---- */

struct mutex_game {
    gs_mutex m;
    int partner_done;
};

static void lock_mutex(void *p)
{
    CHECK_EQ(gs_mutex_lock(&((struct mutex_game *)p)->m, GS_FOREVER), 0);
}

static void mark_and_unlock(void *p)
{
    struct mutex_game *g = p;
    g->partner_done = 1;
    CHECK_EQ(gs_mutex_unlock(&g->m), 0);
}

static void lock_until_done(void *p)
{
    struct mutex_game *g = p;
    int seen;
    do {
        CHECK_EQ(gs_mutex_lock(&g->m, GS_FOREVER), 0);
        seen = g->partner_done;
        CHECK_EQ(gs_mutex_unlock(&g->m), 0);
    } while (!seen);
}

GO_TEST(a_mutex_is_freed_while_the_former_owner_leaves_unlock)
{
    /* Locked at the start, so that the player waits until the partner unlocks. */
    static const struct game g = {sizeof(struct mutex_game), lock_mutex, mark_and_unlock, lock_until_done};
    play(&g);
}

/* ---- rwmutex ---- */

struct rwmutex_game {
    gs_rwmutex rw;
};

static void rlock_it(void *p)
{
    CHECK_EQ(gs_rwmutex_rlock(&((struct rwmutex_game *)p)->rw, GS_FOREVER), 0);
}

static void runlock_it(void *p)
{
    CHECK_EQ(gs_rwmutex_runlock(&((struct rwmutex_game *)p)->rw), 0);
}

static void wlock_it(void *p)
{
    CHECK_EQ(gs_rwmutex_lock(&((struct rwmutex_game *)p)->rw, GS_FOREVER), 0);
}

static void wunlock_it(void *p)
{
    CHECK_EQ(gs_rwmutex_unlock(&((struct rwmutex_game *)p)->rw), 0);
}

static void write_and_leave(void *p)
{
    wlock_it(p);
    wunlock_it(p);
}

static void read_and_leave(void *p)
{
    rlock_it(p);
    runlock_it(p);
}

GO_TEST(an_rwmutex_is_freed_while_the_last_reader_leaves)
{
    static const struct game g = {sizeof(struct rwmutex_game), rlock_it, runlock_it, write_and_leave};
    play(&g);
}

GO_TEST(an_rwmutex_is_freed_while_the_writer_leaves)
{
    static const struct game g = {sizeof(struct rwmutex_game), wlock_it, wunlock_it, read_and_leave};
    play(&g);
}

/* ---- waitgroup: the one who waited frees it while the last `done` leaves ---- */

struct waitgroup_game {
    gs_waitgroup wg;
};

static void add_one(void *p)
{
    CHECK_EQ(gs_waitgroup_add(&((struct waitgroup_game *)p)->wg, 1), 0);
}

static void done_one(void *p)
{
    CHECK_EQ(gs_waitgroup_done(&((struct waitgroup_game *)p)->wg), 0);
}

static void wait_for_one(void *p)
{
    CHECK_EQ(gs_waitgroup_wait(&((struct waitgroup_game *)p)->wg, GS_FOREVER), 0);
}

GO_TEST(a_waitgroup_is_freed_while_done_leaves)
{
    static const struct game g = {sizeof(struct waitgroup_game), add_one, done_one, wait_for_one};
    play(&g);
}

/* ---- sem ---- */

struct sem_game {
    gs_sem s;
};

static void start_at_zero(void *p)
{
    CHECK_EQ(gs_sem_init(&((struct sem_game *)p)->s, 0), 0);
}

static void release_one(void *p)
{
    CHECK_EQ(gs_sem_release(&((struct sem_game *)p)->s, 1), 0);
}

static void acquire_one(void *p)
{
    CHECK_EQ(gs_sem_acquire(&((struct sem_game *)p)->s, 1, GS_FOREVER), 0);
}

GO_TEST(a_semaphore_is_freed_while_release_leaves)
{
    static const struct game g = {sizeof(struct sem_game), start_at_zero, release_one, acquire_one};
    play(&g);
}

/* ---- cond: the waiter frees both while the signaller leaves ---- */

struct cond_game {
    gs_mutex m;
    gs_cond c;
    int ready;
};

static void signal_and_unlock(void *p)
{
    struct cond_game *g = p;
    CHECK_EQ(gs_mutex_lock(&g->m, GS_FOREVER), 0);
    g->ready = 1;
    CHECK_EQ(gs_cond_signal(&g->c), 0);
    CHECK_EQ(gs_mutex_unlock(&g->m), 0);
}

static void broadcast_and_unlock(void *p)
{
    struct cond_game *g = p;
    CHECK_EQ(gs_mutex_lock(&g->m, GS_FOREVER), 0);
    g->ready = 1;
    CHECK_EQ(gs_cond_broadcast(&g->c), 0);
    CHECK_EQ(gs_mutex_unlock(&g->m), 0);
}

static void wait_until_ready(void *p)
{
    struct cond_game *g = p;
    CHECK_EQ(gs_mutex_lock(&g->m, GS_FOREVER), 0);
    while (!g->ready)
        CHECK_EQ(gs_cond_wait(&g->c, &g->m, GS_FOREVER), 0);
    CHECK_EQ(gs_mutex_unlock(&g->m), 0);
}

GO_TEST(a_cond_is_freed_while_the_signaller_leaves)
{
    static const struct game by_signal = {sizeof(struct cond_game), as_it_is, signal_and_unlock, wait_until_ready};
    static const struct game by_broadcast = {sizeof(struct cond_game), as_it_is, broadcast_and_unlock,
                                             wait_until_ready};
    play(&by_signal);
    play(&by_broadcast);
}

/* ---- once: who came second frees it while the first leaves ---- */

struct once_game {
    gs_once o;
    int entered;
};

static void enter_slowly(void *p)
{
    SET(((struct once_game *)p)->entered, 1);
    gs_yield();
}

static void never(void *p)
{
    (void)p;
    CHECK(!"the once ran twice");
}

static void do_first(void *p)
{
    CHECK_EQ(gs_once_do(&((struct once_game *)p)->o, enter_slowly, p), 0);
}

static void do_second(void *p)
{
    struct once_game *g = p;
    WAIT_UNTIL(GET(g->entered));
    CHECK_EQ(gs_once_do(&g->o, never, NULL), 0);
}

GO_TEST(a_once_is_freed_while_the_first_leaves)
{
    static const struct game g = {sizeof(struct once_game), as_it_is, do_first, do_second};
    play(&g);
}

/* ---- Objects on the stack of a goroutine that ends right after ---- */

static void wait_on_own_stack(void *arg)
{
    gs_waitgroup wg;
    memset(&wg, 0, sizeof wg);
    CHECK_EQ(gs_waitgroup_add(&wg, 1), 0);
    go(done_one, &wg);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    (void)arg;
}

GO_TEST(objects_may_live_on_a_stack_that_ends)
{
    gs_g *gs[8];
    int i, j;
    for (i = 0; i < 200; i++) {
        for (j = 0; j < 8; j++)
            gs[j] = go_ref(wait_on_own_stack, NULL);
        for (j = 0; j < 8; j++)
            join(gs[j]);
    }
}

/* ---- A reference is released while the goroutine is still leaving ---- */

static void end_at_once(void *arg)
{
    (void)arg;
}

GO_TEST(a_reference_is_released_right_after_join)
{
    int i;
    for (i = 0; i < 10 * ROUNDS; i++) {
        gs_g *g = go_ref(end_at_once, NULL);
        pause_a_little(i);
        join(g);
    }
}

/* ---- A timer is freed right after it has fired ---- */

static void fire(void *sem)
{
    CHECK_EQ(gs_sem_release(sem, 1), 0);
}

GO_TEST(a_timer_is_freed_while_its_function_leaves)
{
    int i;
    for (i = 0; i < ROUNDS; i++) {
        gs_sem *s = fresh(sizeof *s);
        gs_timer *t = gs_timer_start(i % 5 * 10 * US, fire, s);
        CHECK(t != NULL);
        CHECK_EQ(gs_sem_acquire(s, 1, GS_FOREVER), 0);
        CHECK_EQ(gs_timer_free(t), 0);
        bury(s, sizeof *s);
    }
    CHECK_EQ(gs_sleep(MS), 0);
    open_all_graves();
}
