/*
 * Goroutines of all kinds that compute without end, drawn at random, beside waiters of all kinds: no waiter waits for
 * ever, whatever the P's are busy with. seed: R2, S4
 *
 *   hogs                  a second of rounds
 *   hogs SECONDS SEED     rounds for that long
 *
 * Each round has a seed, from which all its choices come. A failure prints it: CHECK_SEED=n repeats that round.
 * HOGS_SHOW=1 prints what each round draws, and how long the round takes.
 *
 * Parts (tester.h): 0 to 14: the kinds of hogs, in the order of `kinds`; 15 to 27: those of waiters, in the order of
 * `waiters`; 28: a thread of the host attaches itself and sleeps.
 */
#include "tester.h"
#include "io.h"

#define STEPS 10
#define BAND 40 /* hogs at most */

static int stop;

static void compute_for(int64_t ns)
{
    int64_t end = clock_now() + ns;
    while (clock_now() < end)
        ;
}

static void hog(void)
{
    while (!GET(stop))
        ;
}

/* ---- Hogs: what each does before its loop, or instead of a plain loop ---- */

static void hog_later(void *baton)
{
    CHECK_EQ(gs_chan_recv(baton, NULL, GS_FOREVER), 0);
    hog();
}

/* Wakes another hog, which inherits the turn. */
static void pass_baton(void)
{
    gs_chan *baton = gs_chan_make(0, 0);
    gs_g *other = go_ref(hog_later, baton);
    CHECK_EQ(gs_chan_send(baton, NULL, GS_FOREVER), 0);
    hog();
    join(other);
    CHECK_EQ(gs_chan_free(baton), 0);
}

static void overstay(void *baton)
{
    compute_for(12 * MS);
    gs_preempt_check();
    CHECK_EQ(gs_chan_send(baton, NULL, GS_FOREVER), 0);
}

/* A goroutine that is not to be preempted overstays its slice, and leaves the rest of its turn to another hog. */
static void inherit_late(void)
{
    gs_chan *baton = gs_chan_make(0, 0);
    gs_g *other = go_ref(hog_later, baton), *first;
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    o.flags = GS_SPAWN_NOPREEMPT;
    first = go_opts(overstay, baton, &o);
    join(first);
    join(other);
    CHECK_EQ(gs_chan_free(baton), 0);
}

static void overstay_unpreempted(void)
{
    gs_preempt_disable();
    compute_for(12 * MS);
    gs_preempt_check();
    gs_preempt_enable();
    hog();
}

static void after_a_call(void)
{
    gs_entersyscall();
    nap(MS);
    gs_exitsyscall();
    hog();
}

static void after_a_block(void)
{
    nap(MS);
    hog();
}

static void after_a_sleep(void)
{
    CHECK_EQ(gs_sleep(MS), 0);
    hog();
}

static void *nap_there(void *arg)
{
    nap(MS);
    return arg;
}

static void after_gs_blocking(void)
{
    gs_blocking(nap_there, NULL);
    hog();
}

static void on_a_locked_thread(void)
{
    /* The limit of locked threads may be reached. */
    int locked = gs_lock_os_thread() == 0;
    hog();
    if (locked)
        CHECK_EQ(gs_unlock_os_thread(), 0);
}

static void checking(void)
{
    while (!GET(stop))
        gs_preempt_check();
}

static void yielding(void)
{
    while (!GET(stop))
        gs_yield();
}

static void calling(void)
{
    while (!GET(stop)) {
        gs_entersyscall();
        gs_exitsyscall();
    }
}

static void allocating(void)
{
    while (!GET(stop)) {
        char *a = malloc(200000);
        CHECK(a != NULL);
        *(volatile char *)a = 1;
        free(a);
    }
}

static void echo(void *ch)
{
    while (gs_chan_recv(ch, NULL, GS_FOREVER) == 0)
        ;
}

static void handing_over(void)
{
    gs_chan *ch = gs_chan_make(0, 0);
    gs_g *other = go_ref(echo, ch);
    while (!GET(stop))
        CHECK_EQ(gs_chan_send(ch, NULL, GS_FOREVER), 0);
    CHECK_EQ(gs_chan_close(ch), 0);
    join(other);
    CHECK_EQ(gs_chan_free(ch), 0);
}

static void hog_child(void *arg)
{
    (void)arg;
    hog();
}

static void with_children(void)
{
    gs_g *a = go_ref(hog_child, NULL), *b = go_ref(hog_child, NULL);
    hog();
    join(a);
    join(b);
}

static const struct kind {
    const char *name;
    void (*run)(void);
} kinds[] = {
    {"plain", hog},
    {"pass_baton", pass_baton},
    {"inherit_late", inherit_late},
    {"overstay_unpreempted", overstay_unpreempted},
    {"after_a_call", after_a_call},
    {"after_a_block", after_a_block},
    {"after_a_sleep", after_a_sleep},
    {"after_gs_blocking", after_gs_blocking},
    {"on_a_locked_thread", on_a_locked_thread},
    {"checking", checking},
    {"yielding", yielding},
    {"calling", calling},
    {"allocating", allocating},
    {"handing_over", handing_over},
    {"with_children", with_children},
};

static void run_kind(void *kind)
{
    ((const struct kind *)kind)->run();
}

/* ---- Waiters: each waits STEPS times ---- */

struct waiter {
    const char *name;
    int (*wait)(struct waiter *w); /* 0: it has waited once */
    void (*wake)(struct waiter *w); /* on a plain thread, once a ms; NULL: it wakes by itself */
    gs_chan *ch;
    gs_sem sem;
    gs_mutex mutex;
    gs_cond cond;
    gs_g *g;
    int fds[2];
    int steps;
    int ended;
};

static int wait_sleep(struct waiter *w)
{
    (void)w;
    return gs_sleep(MS);
}

static int wait_chan(struct waiter *w)
{
    return gs_chan_recv(w->ch, NULL, GS_FOREVER);
}

static void wake_chan(struct waiter *w)
{
    gs_chan_send(w->ch, NULL, GS_NOWAIT);
}

static int wait_select(struct waiter *w)
{
    gs_case c = {.ch = w->ch, .op = GS_RECV};
    int r = gs_select(&c, 1, gs_after_ms(50));
    return r == -ETIMEDOUT || r >= 0 ? 0 : r;
}

static int wait_sem(struct waiter *w)
{
    return gs_sem_acquire(&w->sem, 1, GS_FOREVER);
}

static void wake_sem(struct waiter *w)
{
    CHECK_EQ(gs_sem_release(&w->sem, 1), 0);
}

static int wait_cond(struct waiter *w)
{
    CHECK_EQ(gs_mutex_lock(&w->mutex, GS_FOREVER), 0);
    CHECK_EQ(gs_cond_wait(&w->cond, &w->mutex, GS_FOREVER), 0);
    return gs_mutex_unlock(&w->mutex);
}

static void wake_cond(struct waiter *w)
{
    CHECK_EQ(gs_cond_signal(&w->cond), 0);
}

static int wait_park(struct waiter *w)
{
    int r;
    SET(w->g, gs_self());
    r = gs_park(NULL, NULL, gs_after_ms(50));
    SET(w->g, NULL);
    return r == -ETIMEDOUT ? 0 : r;
}

static void wake_park(struct waiter *w)
{
    /* The goroutine doesn't end before this thread does. */
    gs_g *g = GET(w->g);
    if (g)
        gs_ready(g);
}

static int wait_read(struct waiter *w)
{
    char c;
    return gs_read(w->fds[0], &c, 1, GS_FOREVER) == 1 ? 0 : -1;
}

static void wake_write(struct waiter *w)
{
    /* Without waiting: the reader may be behind, or have ended. */
    CHECK(send(w->fds[1], "x", 1, MSG_DONTWAIT) == 1 || errno == EAGAIN);
}

static int wait_plain_read(struct waiter *w)
{
    char c;
    return read(w->fds[0], &c, 1) == 1 ? 0 : -1;
}

static int wait_announced_read(struct waiter *w)
{
    int r;
    gs_entersyscall();
    r = wait_plain_read(w);
    gs_exitsyscall();
    return r;
}

static void *read_there(void *w)
{
    CHECK_EQ(wait_plain_read(w), 0);
    return NULL;
}

static int wait_blocking(struct waiter *w)
{
    gs_blocking(read_there, w);
    return 0;
}

static void do_nothing(void *arg)
{
    (void)arg;
}

static int wait_join(struct waiter *w)
{
    (void)w;
    join(go_ref(do_nothing, NULL));
    return 0;
}

static void set_flag(void *flag)
{
    SET(*(int *)flag, 1);
}

static int wait_timer(struct waiter *w)
{
    int fired = 0;
    struct gs_timer *t = gs_timer_start(MS, set_flag, &fired);
    (void)w;
    CHECK(t != NULL);
    while (!GET(fired))
        CHECK_EQ(gs_sleep(MS), 0);
    return gs_timer_free(t);
}

static int wait_locked(struct waiter *w)
{
    int locked = gs_lock_os_thread() == 0, r = wait_read(w);
    if (locked)
        CHECK_EQ(gs_unlock_os_thread(), 0);
    return r;
}

static struct waiter waiters[] = {
    {.name = "sleep", .wait = wait_sleep},
    {.name = "chan", .wait = wait_chan, .wake = wake_chan},
    {.name = "select", .wait = wait_select, .wake = wake_chan},
    {.name = "sem", .wait = wait_sem, .wake = wake_sem},
    {.name = "cond", .wait = wait_cond, .wake = wake_cond},
    {.name = "park", .wait = wait_park, .wake = wake_park},
    {.name = "read", .wait = wait_read, .wake = wake_write},
    {.name = "plain_read", .wait = wait_plain_read, .wake = wake_write},
    {.name = "announced_read", .wait = wait_announced_read, .wake = wake_write},
    {.name = "blocking", .wait = wait_blocking, .wake = wake_write},
    {.name = "join", .wait = wait_join},
    {.name = "timer", .wait = wait_timer},
    {.name = "locked", .wait = wait_locked, .wake = wake_write},
};

static void run_waiter(void *arg)
{
    struct waiter *w = arg;
    while (w->steps < STEPS) {
        CHECK_EQ(w->wait(w), 0);
        ADD(w->steps, 1);
    }
    SET(w->ended, 1);
}

/* A thread of the host attaches itself and sleeps. */
static void *attach_and_sleep(void *arg)
{
    int i;
    CHECK_EQ(gs_attach(0), 0);
    for (i = 0; i < STEPS; i++)
        CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_detach(), 0);
    return arg;
}

/* ---- A round ---- */

/* The number of the first part that is a kind of waiter, the part of the attached thread, and the number of parts. */
#define FIRST_WAITER ((int)LENGTH(kinds))
#define ATTACHED (FIRST_WAITER + (int)LENGTH(waiters))
#define PARTS (ATTACHED + 1)

static int takes_part(const struct waiter *w)
{
    return has_part(FIRST_WAITER + (int)(w - waiters));
}

static int all_ended(void)
{
    size_t i;
    for (i = 0; i < LENGTH(waiters) && (!takes_part(&waiters[i]) || GET(waiters[i].ended)); i++)
        ;
    return i == LENGTH(waiters);
}

/* Starts the hogs of a round, and gives their number. */
static size_t start_band(uint64_t rng, gs_g **gs)
{
    int shows = getenv("HOGS_SHOW") != NULL;
    size_t i, n = 0, hogs = 1 + random_next(&rng) % (2 * (size_t)gs_gomaxprocs(0) + 2);
    for (i = 0; i < hogs && n < BAND; i++) {
        int kind = (int)(random_next(&rng) % LENGTH(kinds));
        gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
        o.priority = random_next(&rng) % 4 == 0 ? GS_PRIO_LOW : GS_PRIO_NORMAL;
        o.flags = random_next(&rng) % 4 == 0 ? GS_SPAWN_PINNED : 0;
        if (!has_part(kind))
            continue;
        if (shows)
            fprintf(stderr, " %s%s%s", kinds[kind].name, o.priority ? "/low" : "", o.flags ? "/pinned" : "");
        gs[n++] = go_opts(run_kind, (void *)&kinds[kind], &o);
    }
    return n;
}

static void *wake_all(void *arg)
{
    size_t i;
    while (!all_ended()) {
        for (i = 0; i < LENGTH(waiters); i++)
            if (waiters[i].wake && takes_part(&waiters[i]) && !GET(waiters[i].ended))
                waiters[i].wake(&waiters[i]);
        nap(MS);
    }
    return arg;
}

static void play_round(void *rng)
{
    gs_g *gs[BAND], *waiting[LENGTH(waiters)] = {NULL};
    int64_t began = clock_now();
    pthread_t waker, attached = 0;
    size_t n, i;
    SET(stop, 0);
    for (i = 0; i < LENGTH(waiters); i++) {
        struct waiter *w = &waiters[i];
        w->steps = w->ended = 0;
        w->g = NULL;
        w->ch = gs_chan_make(0, 1);
        CHECK_EQ(gs_sem_init(&w->sem, 0), 0);
        make_pair(w->fds);
    }
    n = start_band(*(uint64_t *)rng, gs);
    for (i = 0; i < LENGTH(waiters); i++)
        if (takes_part(&waiters[i]))
            waiting[i] = go_ref(run_waiter, &waiters[i]);
    waker = start_thread(wake_all, NULL);
    if (has_part(ATTACHED))
        attached = start_thread(attach_and_sleep, NULL);
    for (i = 0; i < LENGTH(waiters); i++)
        if (waiting[i])
            join(waiting[i]);
    go_join_thread(waker);
    if (attached)
        go_join_thread(attached);
    SET(stop, 1);
    for (i = 0; i < n; i++)
        join(gs[i]);
    for (i = 0; i < LENGTH(waiters); i++) {
        CHECK_EQ(gs_chan_free(waiters[i].ch), 0);
        close_both(waiters[i].fds);
    }
    if (getenv("HOGS_SHOW"))
        fprintf(stderr, ": %lld ms; %s\n", (long long)((clock_now() - began) / MS), check_note);
}

/* Rounds for this time, in ns, or of one seed if that is given. Gives the seed of the next round. */
static uint64_t play_rounds(uint64_t seed, int64_t ns)
{
    int64_t end = clock_now() + ns;
    do {
        uint64_t rng = seed * 0x9e3779b97f4a7c15 | 1;
        alarm(check_seconds());
        random_next(&rng);
        snprintf(check_note, sizeof check_note, "CHECK_SEED=%llu", (unsigned long long)seed);
        CHECK_EQ(gs_run(play_round, &rng), 0);
        seed += getenv("CHECK_SEED") == NULL;
    } while (clock_now() < end);
    check_note[0] = 0;
    return seed;
}

TEST(hogs_of_all_kinds_keep_no_waiter_waiting)
{
    play_rounds(random_seed(), SEC);
}

int main(int argc, char **argv)
{
    uint64_t first, next;
    if (asked_for_parts(argc, argv, PARTS))
        return 0;
    if (argc != 3 || atol(argv[1]) <= 0)
        return check_main(argc, argv);
    prepare();
    current_test = "hogs";
    first = strtoull(argv[2], NULL, 0);
    next = play_rounds(first, atol(argv[1]) * SEC);
    printf("%llu rounds, the next seed is %llu\n", (unsigned long long)(next - first), (unsigned long long)next);
    return 0;
}
