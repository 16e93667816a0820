/* Goroutines as such: spawn, join, cancel, exit, keys, locked threads, gangs, park, GOMAXPROCS. */
#include "chaos.h"

#include <sys/syscall.h>

enum { REFS = 16, PARKED = 8, LOCKED_AT_ONCE = 4, TURNS_OF_A_GANG = 200, GANGS = 16 };

static atomic_long exits, exited;       /* gs_exit called; the destructor that it runs */
static gs_g *_Atomic refs[REFS];        /* references that pass from actor to actor */
static gs_g *_Atomic parked[PARKED];    /* goroutines in gs_park, each with a reference */
static atomic_long readied, refused, woken;
static atomic_int locked_at_once, gangs;
static gs_key mark_key;
static int first_procs;

static void op_yield(struct actor *a)
{
    (void)a;
    gs_yield();
}

static void op_sleep(struct actor *a)
{
    if (one_in(a, 2))
        MUST_BE(gs_sleep(rnd(a, 2000) * US - 10 * US), 0, -ECANCELED);
    else
        MUST_BE(gs_sleep_until(gs_after_us(rnd(a, 2000))), 0, -ECANCELED);
    if (*gs_preempt_flag() != 0)
        gs_preempt_now();
}

/* ---- Spawn, join, cancel ---- */

static void random_options(struct actor *a, gs_spawn_opts *o, struct actor *child)
{
    static const size_t stacks[] = {0, 0, 1, 32 << 10, 512 << 10, 8 << 20};
    if (enabled("priorities"))
        child->priority = o->priority = (int[]){0, 0, 0, GS_PRIO_HIGH, GS_PRIO_LOW, GS_PRIO_IDLE}[rnd(a, 6)];
    if (enabled("pinned") && one_in(a, 5)) {
        o->flags |= GS_SPAWN_PINNED;
        child->pinned = true;
    }
    if (enabled("steady") && one_in(a, 8)) {
        o->flags |= GS_SPAWN_NOPREEMPT;
        child->steady = child->nopreempt = true;
    }
    if (enabled("nodes") && one_in(a, 3))
        o->node = rnd(a, gs_numa_nodes());
    /* The operations need some stack. */
    if (enabled("stacks"))
        o->stack_size = stacks[rnd(a, LENGTH(stacks))] ? 24 << 10 | stacks[rnd(a, LENGTH(stacks))] : 0;
    if (one_in(a, 3))
        o->name = "chaos";
}

/* Of a goroutine that may end just now. */
static void look_at(gs_g *g)
{
    gs_g_info info;
    char name[8] = "x";
    MUST_BE(gs_g_info_read(g, &info, sizeof info), 0);
    MUST(info.id == gs_id(g) && info.stack_lo == NULL);
    MUST(info.state >= GS_G_ENDED && info.state <= GS_G_SYSCALL);
    MUST((info.wait_reason != NULL) == (info.state == GS_G_WAITING));
    MUST(info.since <= gs_now());
    MUST_BE(gs_name(g, name, sizeof name), 0, 5);
    MUST(strcmp(name, "") == 0 || strcmp(name, "chaos") == 0);
}

/* What may be done with a reference: of several holders at once. */
static void play_with(struct actor *a, gs_g *g)
{
    if (one_in(a, 3) && enabled("cancel"))
        MUST_BE(gs_cancel(g), 0);
    if (one_in(a, 3)) {
        gs_g *again = gs_retain(g);
        MUST(again == g && gs_id(g) != 0);
        gs_release(again);
        look_at(g);
    }
    if (one_in(a, 2))
        MUST_BE(gs_join(g, soon(a, 3000)), 0, -EAGAIN, -ETIMEDOUT, -ECANCELED,
                gs_self() == g ? -EDEADLK : 0);
}

static void op_spawn_with(struct actor *a)
{
    for (int n = rnd(a, 4); n > 0; n--) {
        gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
        struct actor *child = new_actor(true, a->depth + 1, rnd32(a));
        gs_g *g = NULL;
        if (!child)
            return;
        child->steps = 1 + rnd(a, 6);
        random_options(a, &o, child);
        bool keeps = one_in(a, 2);
        MUST_BE(AGAIN(gs_spawn_with(actor_body, child, &o, keeps ? &g : NULL)), 0);
        if (!g)
            continue;
        play_with(a, g);
        if (one_in(a, 3))
            g = atomic_exchange(&refs[rnd(a, REFS)], g);
        gs_release(g);
    }
}

static void op_reference(struct actor *a)
{
    gs_g *g = atomic_exchange(&refs[rnd(a, REFS)], NULL);
    if (!g)
        return;
    play_with(a, g);
    gs_release(atomic_exchange(&refs[rnd(a, REFS)], g));
}

static void op_spawn(struct actor *a)
{
    void *random = (void *)(uintptr_t)rnd32(a);
    MUST_BE(AGAIN(gs_spawn(short_life, random)), 0);
}

/* A child that the caller waits for: what it did is visible then. */
static void add_to_three(void *n)
{
    gs_yield();
    *(int *)n += 3;
}

/* A goroutine of a group: on one thread from its beginning to its end. */
static void stay_on_thread(void *n)
{
    pid_t here = gettid();
    for (int i = 0; i < 3; i++) {
        gs_yield();
        MUST(gettid() == here);
        (void)gs_sleep(20 * US);
        MUST(gettid() == here);
    }
    atomic_fetch_add((atomic_int *)n, 1);
}

/* Without the flag for gs_run's thread: all such groups would wait for the same one. Not on plain threads:
   a goroutine may block the member's thread until that plain thread has ended. */
static void op_workers(struct actor *a)
{
    enum { MOST = 5 };
    gs_workers *w;
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    gs_g *g[MOST];
    atomic_int n = 0;
    int count = 1 + rnd(a, MOST);
    MUST(gs_workers_create(0, 0) == NULL);
    MUST_BE(gs_workers_free(NULL), 0);
    if (!one_in(a, 4))
        return;
    MUST((w = POINTER_AGAIN(gs_workers_create(1 + rnd(a, 3), 0))) != NULL);
    o.flags = GS_SPAWN_PINNED;
    o.workers = w;
    for (int i = 0; i < count; i++)
        MUST_BE(AGAIN(gs_spawn_with(stay_on_thread, &n, &o, &g[i])), 0);
    for (int i = 0; i < count; i++) {
        while (gs_join(g[i], GS_FOREVER) == -ECANCELED)
            before_it_waits_again(a);
        gs_release(g[i]);
    }
    MUST(atomic_load(&n) == count);
    MUST_BE(gs_workers_free(w), 0);
}

static void op_join(struct actor *a)
{
    volatile int n = 0;
    gs_g *g;
    int r;
    MUST_BE(AGAIN(gs_spawn_with(add_to_three, (void *)(uintptr_t)&n, NULL, &g)), 0);
    /* A cancelled caller may not wait, and may not leave its variable behind. */
    while ((r = gs_join(g, GS_FOREVER)) == -ECANCELED)
        before_it_waits_again(a);
    MUST_BE(r, 0);
    MUST_BE(n, 3);
    gs_release(g);
}

/* Whoever cancels the caller meanwhile. */
static void op_uncancelled(struct actor *a)
{
    gs_sem s;
    int depth = 1 + rnd(a, 2), was = gs_cancelled();
    MUST_BE(gs_sem_init(&s, 0), 0);
    for (int i = 0; i < depth; i++)
        MUST_BE(gs_cancel_disable(), 0);
    MUST_BE(gs_sleep(rnd(a, 500) * US), 0);
    MUST_BE(gs_sem_acquire(&s, 1, soon(a, 500)), -EAGAIN, -ETIMEDOUT);
    MUST(gs_cancelled() >= was);
    for (int i = 0; i < depth; i++)
        MUST_BE(gs_cancel_enable(), 0);
    MUST_BE(gs_cancel_enable(), a->go ? -EPERM : 0);
    if (gs_cancelled())
        MUST_BE(gs_sleep(SEC), -ECANCELED);
    if (one_in(a, 4))
        (void)gs_uncancel();
}

static void op_self(struct actor *a)
{
    gs_g *g = gs_self();
    uint64_t id = gs_id(g);
    MUST((g != NULL) == a->go);
    gs_yield();
    MUST(gs_self() == g && gs_id(gs_self()) == id);
    if (g && one_in(a, 8))
        MUST_BE(gs_join(g, GS_FOREVER), -EDEADLK);
    MUST(gs_num_goroutines() >= 1);
}

/* ---- Ends ---- */

static void count_exit(void *value)
{
    MUST(value == &exits);
    gs_yield();
    atomic_fetch_add(&exited, 1);
}

static __attribute__((noinline)) void leave_from_below(int frames)
{
    volatile char room[100];
    room[0] = (char)frames;
    if (frames > 0)
        leave_from_below(frames - 1);
    else
        gs_exit();
    room[1] = room[0];
}

static void exits_early(void *arg)
{
    uint64_t random = (uintptr_t)arg;
    MUST_BE(AGAIN(gs_setspecific(mark_key, &exits)), 0);
    if (random % 3 == 0)
        gs_yield();
    if (random % 5 == 0 && enabled("locked_end"))
        gs_lock_os_thread(); /* its thread ends with it */
    leave_from_below((int)(random % 7));
    WRONG("gs_exit returns");
}

static void op_exit(struct actor *a)
{
    atomic_fetch_add(&exits, 1);
    void *random = (void *)(uintptr_t)rnd32(a);
    MUST_BE(AGAIN(gs_spawn(exits_early, random)), 0);
}

/* ---- Keys ---- */

static void op_keys(struct actor *a)
{
    gs_key k[3];
    int n = 1 + rnd(a, 3);
    for (int i = 0; i < n; i++) {
        MUST_BE(AGAIN(gs_key_create(&k[i], NULL)), 0);
        MUST(gs_getspecific(k[i]) == NULL);
        MUST_BE(AGAIN(gs_setspecific(k[i], &k[i])), 0);
    }
    gs_yield();
    for (int i = 0; i < n; i++) {
        MUST(gs_getspecific(k[i]) == &k[i]);
        MUST_BE(gs_key_delete(k[i]), 0);
    }
}

/* ---- Threads ---- */

static void op_lock_thread(struct actor *a)
{
    pid_t tid;
    /* Each keeps a thread for itself; with too many the limit of threads leaves none for others. */
    if (atomic_fetch_add(&locked_at_once, 1) < LOCKED_AT_ONCE) {
        int nested = 1 + rnd(a, 2);
        bool outer = a->locked;
        for (int i = 0; i < nested; i++)
            MUST_BE(gs_lock_os_thread(), 0);
        a->locked = true;
        tid = (pid_t)syscall(SYS_gettid);
        for (int i = 0; i < 3; i++) {
            one_operation(a, 2);
            MUST_BE(syscall(SYS_gettid), tid);
        }
        a->locked = outer;
        for (int i = 0; i < nested; i++)
            MUST_BE(gs_unlock_os_thread(), 0);
    }
    atomic_fetch_sub(&locked_at_once, 1);
}

static void op_gomaxprocs(struct actor *a)
{
    int n = gs_gomaxprocs(0);
    MUST(n >= 1 && n <= GS_MAX_PROCS);
    if (one_in(a, 40) && !in_bubble)
        n = one_in(a, 8) ? gs_set_default_gomaxprocs() : gs_gomaxprocs(one_in(a, 3) ? first_procs : 1 + rnd(a, 9));
    MUST(n >= 1 && n <= GS_MAX_PROCS);
}

static void op_max_threads(struct actor *a)
{
    int n = gs_set_max_threads(0);
    MUST(n >= 24);
    if (one_in(a, 20))
        MUST(gs_set_max_threads(one_in(a, 2) ? 10000 : 24 + rnd(a, 40)) >= 24);
}

static void op_own_threads(struct actor *a)
{
    int32_t ids[64];
    int room = rnd(a, 64), n = gs_own_threads(ids, (size_t)room);
    MUST(n >= 1);
    for (int i = 0; i < n && i < room; i++)
        MUST(ids[i] > 0);
}

static void op_preempt(struct actor *a)
{
    int nested = 1 + rnd(a, 2);
    for (int i = 0; i < nested; i++)
        gs_preempt_disable();
    compute_for(rnd(a, 100) * US);
    if (one_in(a, 2))
        gs_yield();
    for (int i = 0; i < nested; i++)
        gs_preempt_enable();
    for (int i = 0; i < 50; i++)
        gs_preempt_check();
    if (one_in(a, 4))
        gs_preempt_now();
    if (one_in(a, 4))
        gs_preempt_enable(); /* a surplus one */
}

static void op_run(struct actor *a)
{
    struct actor *child;
    if (a->go) {
        MUST_BE(gs_run(short_life, NULL), -EBUSY);
        MUST_BE(gs_shutdown(GS_NOWAIT), -EDEADLK);
        return;
    }
    if (!(child = new_actor(true, 1, rnd32(a))))
        return;
    child->steps = 1 + rnd(a, 8);
    child->runner = true;
    if (one_in(a, 2)) {
        MUST_BE(gs_run(actor_body, child), 0);
        return;
    }
    child->pinned = true;
    MUST_BE(gs_attach(one_in(a, 2) ? GS_SPAWN_NOSIGNAL : 0), 0);
    actor_body(child);
    MUST_BE(gs_detach(), 0);
}

/* While the round's first goroutine is there. */
static void op_shutdown(struct actor *a)
{
    if (!a->go)
        MUST_BE(gs_shutdown(soon(a, 300)), -EAGAIN, -ETIMEDOUT);
    MUST_BE(gs_init(NULL), -EBUSY);
}

/* ---- Gangs ---- */

struct pair {
    gs_chan *there, *back;
    atomic_int members;
    int turns;
};

static void leave_pair(struct pair *p)
{
    if (atomic_fetch_sub(&p->members, 1) != 1)
        return;
    MUST_BE(gs_chan_free(p->there), 0);
    MUST_BE(gs_chan_free(p->back), 0);
    free(p);
    atomic_fetch_sub(&gangs, 1);
}

static void serves(void *arg)
{
    struct pair *p = arg;
    int n = 0;
    for (int i = 0; i < p->turns; i++) {
        MUST_BE(gs_chan_send(p->there, &n, GS_FOREVER), 0);
        MUST_BE(gs_chan_recv(p->back, &n, GS_FOREVER), 0);
    }
    MUST_BE(n, p->turns);
    leave_pair(p);
}

static void returns(void *arg)
{
    struct pair *p = arg;
    for (int n, i = 0; i < p->turns; i++) {
        MUST_BE(gs_chan_recv(p->there, &n, GS_FOREVER), 0);
        n++;
        MUST_BE(gs_chan_send(p->back, &n, GS_FOREVER), 0);
    }
    leave_pair(p);
}

static void op_gang(struct actor *a)
{
    gs_gang *gang;
    struct pair *p;
    if (!one_in(a, 8) || atomic_load(&gangs) >= GANGS)
        return;
    MUST((gang = POINTER_AGAIN(gs_gang_create())) != NULL);
    p = malloc(sizeof *p);
    *p = (struct pair){NULL, NULL, 2, rnd(a, in_bubble ? TURNS_OF_A_GANG / 20 : TURNS_OF_A_GANG)};
    p->there = POINTER_AGAIN(gs_chan_make(sizeof(int), 0));
    p->back = POINTER_AGAIN(gs_chan_make(sizeof(int), 0));
    MUST(p->there && p->back);
    atomic_fetch_add(&gangs, 1);
    MUST_BE(AGAIN(gs_gang_spawn(gang, serves, p, NULL, NULL)), 0);
    MUST_BE(AGAIN(gs_gang_spawn(gang, returns, p, NULL, NULL)), 0);
    gs_gang_free(gang);
}

/* ---- Park and ready ---- */

struct parking {
    gs_g *_Atomic *place;
    bool refuse;
    bool entered;
};

static bool enter_parking(gs_g *g, void *arg)
{
    struct parking *p = arg;
    gs_g *none = NULL;
    p->entered = !p->refuse && atomic_compare_exchange_strong(p->place, &none, g);
    return p->entered;
}

/* A place holds a reference, so that a late gs_ready meets the same goroutine: in gs_park again, or not. */
static void op_park(struct actor *a)
{
    struct parking p = {&parked[rnd(a, PARKED)], one_in(a, 10), false};
    gs_g *me = gs_retain(gs_self()), *there = me;
    int r = gs_park(enter_parking, &p, gs_after_ns(US + rnd(a, 1000000)));
    MUST_BE(r, 0, -ETIMEDOUT, -ECANCELED);
    if (r == 0)
        atomic_fetch_add(&woken, 1);
    /* A refusal that a cancel has overtaken is none. */
    if (r == 0 && !p.entered)
        atomic_fetch_add(&refused, 1);
    if (p.entered && !atomic_compare_exchange_strong(p.place, &there, NULL))
        return; /* op_ready has taken it, and gives the reference back */
    gs_release(me);
}

static void op_ready(struct actor *a)
{
    gs_g *g = atomic_exchange(&parked[rnd(a, PARKED)], NULL);
    if (!g)
        return;
    int r = gs_ready(g);
    MUST_BE(r, 0, -EINVAL);
    if (r == 0)
        atomic_fetch_add(&readied, 1);
    gs_release(g);
}

/* ---- The round ---- */

void sched_begin(void)
{
    if (in_bubble) {
        memset(refs, 0, sizeof refs);
        memset(parked, 0, sizeof parked);
        locked_at_once = gangs = 0;
    }
    first_procs = gs_gomaxprocs(0);
    exits = exited = readied = refused = woken = 0;
    MUST_BE(AGAIN(gs_key_create(&mark_key, count_exit)), 0);
}

void sched_end(void)
{
    for (int i = 0; i < REFS; i++) {
        gs_g *g = atomic_exchange(&refs[i], NULL);
        if (g)
            MUST_BE(gs_join(g, GS_FOREVER), 0);
        gs_release(g);
    }
    while (atomic_load(&gangs) > 0 || atomic_load(&exited) != atomic_load(&exits))
        gs_sleep(MS);
    for (int i = 0; i < PARKED; i++)
        MUST(parked[i] == NULL);
    if (woken != readied + refused)
        WRONG("%ld gs_park were woken, but there were %ld gs_ready and %ld refusals", woken, readied, refused);
    MUST_BE(gs_key_delete(mark_key), 0);
    if (in_bubble)
        return;
    gs_gomaxprocs(first_procs);
    gs_set_max_threads(10000);
}

const struct op ops_sched[] = {
    {"yield", op_yield, 4, NO_LOCKS},
    {"sleep", op_sleep, 4, NO_LOCKS},
    {"spawn_with", op_spawn_with, 6, SHALLOW},
    {"reference", op_reference, 4, 0},
    {"spawn", op_spawn, 3, SHALLOW},
    {"workers", op_workers, 2, SHALLOW | GO_ONLY},
    {"join", op_join, 2, NOT_IDLE},
    {"self", op_self, 2, NO_LOCKS},
    {"uncancelled", op_uncancelled, 3, NO_LOCKS},
    {"exit", op_exit, 2, SHALLOW},
    {"keys", op_keys, 2, 0},
    {"lock_thread", op_lock_thread, 2, GO_ONLY},
    {"gomaxprocs", op_gomaxprocs, 1, NO_LOCKS},
    {"max_threads", op_max_threads, 1, REAL},
    {"own_threads", op_own_threads, 1, 0},
    {"preempt", op_preempt, 2, NO_LOCKS},
    {"run", op_run, 2, SHALLOW},
    {"shutdown", op_shutdown, 1, REAL},
    {"gang", op_gang, 2, SHALLOW},
    {"park", op_park, 3, GO_ONLY | NO_LOCKS},
    {"ready", op_ready, 4, NO_LOCKS},
    {NULL, NULL, 0, 0},
};
