/*
 * Random histories on what goroutines block on, checked against models of what must hold.
 *
 *   semantics                  a short run of each test
 *   semantics SECONDS SEED     rounds of all tests in turn for that long
 *   semantics bubbles SEED RUNS  rounds in bubbles (tester.h), without plain threads
 *
 * Each round has a seed, from which all its choices come. A failure prints it: CHECK_SEED=n repeats
 * that round, many times, since the order in which threads run is not part of it.
 *
 * Parts (tester.h): 0: histories of channels, 1: scripts, 2 to 7: what a storm uses, in the order of `storm`,
 * 8: goroutines are cancelled.
 */
#include "tester.h"

static uint64_t rng;

/* Below n. Used by the thread that sets a round up. */
static int pick(int n)
{
    return (int)(random_next(&rng) >> 33) % n;
}

static void begin_round(uint64_t seed)
{
    int i;
    snprintf(check_note, sizeof check_note, "CHECK_SEED=%llu", (unsigned long long)seed);
    rng = (seed * 0x9e3779b97f4a7c15ull) | 1;
    for (i = 0; i < 8; i++)
        (void)random_next(&rng);
    alarm(check_seconds());
}

/* ---- Actors: goroutines, of any priority, and plain threads ---- */

#define MOST_ACTORS 8

struct actor {
    void (*act)(int me);
    int me, is_thread;
    gs_g *g;
    pthread_t thread;
};

static struct actor actors[MOST_ACTORS];
static int n_actors, begun;

static void act_as_goroutine(void *arg)
{
    struct actor *a = arg;
    YIELD_UNTIL(GET(begun));
    a->act(a->me);
}

static void *act_as_thread(void *arg)
{
    struct actor *a = arg;
    NAP_UNTIL(GET(begun));
    a->act(a->me);
    return NULL;
}

static void storm(int me);

/* Runs n actors at once until all of them have ended; some goroutines are cancelled meanwhile. */
static void play(int n, void (*act)(int), int cancels)
{
    int i, threads = is_in_bubble() ? 0 : pick(3), victim = cancels && pick(3) == 0 ? pick(n) : -1, pause = pick(200);
    n = act == storm ? sized(n) : n;
    n_actors = n;
    SET(begun, 0);
    for (i = 0; i < n; i++) {
        struct actor *a = &actors[i];
        gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
        static const int priorities[] = {GS_PRIO_NORMAL, GS_PRIO_NORMAL, GS_PRIO_NORMAL, GS_PRIO_HIGH,
                                         GS_PRIO_LOW, GS_PRIO_IDLE};
        a->act = act;
        a->me = i;
        a->is_thread = threads == 2 || (threads == 1 && pick(2));
        opts.priority = priorities[pick((int)LENGTH(priorities))];
        opts.flags = pick(4) == 0 ? GS_SPAWN_PINNED : 0;
        if (a->is_thread)
            a->thread = start_thread(act_as_thread, a);
        else
            a->g = go_opts(act_as_goroutine, a, &opts);
    }
    SET(begun, 1);
    if (victim >= 0 && victim < n && !actors[victim].is_thread && has_part(8)) {
        nap(pause * US);
        CHECK_EQ(gs_cancel(actors[victim].g), 0);
    }
    for (i = 0; i < n; i++) {
        if (actors[i].is_thread)
            join_thread(actors[i].thread);
        else
            join(actors[i].g);
    }
}

/* ---- Histories of channels: is there an order of the operations that explains all results? ---- */

#define CHANS 2
#define MOST_OPS 16

enum kind { SEND, RECV, CLOSE };

struct op {
    int actor, n; /* n: 1, or 2 in a select of two cases */
    enum kind kind[2];
    int ch[2];
    int64_t value[2]; /* sent, or received */
    int wait; /* 0: not at all; else for how long, in us */
    int chosen, result;
    uint64_t began, ended;
};

struct state {
    int8_t closed[CHANS], len[CHANS];
    int64_t queue[CHANS][3];
};

static struct op ops[MOST_OPS];
static int n_ops, caps[CHANS];
static gs_chan *chans[CHANS];
static uint64_t moment;

static void do_op(struct op *o)
{
    int64_t deadline = o->wait ? gs_after_us(o->wait) : GS_NOWAIT;
    gs_case cases[2];
    int i;
    o->began = ADD(moment, 1);
    if (o->n == 1) {
        gs_chan *c = chans[o->ch[0]];
        o->chosen = 0;
        o->result = o->kind[0] == SEND   ? gs_chan_send(c, &o->value[0], deadline)
                    : o->kind[0] == RECV ? gs_chan_recv(c, &o->value[0], deadline)
                                         : gs_chan_close(c);
    } else {
        for (i = 0; i < 2; i++)
            cases[i] = o->kind[i] == SEND ? send_case(chans[o->ch[i]], &o->value[i])
                                          : recv_case(chans[o->ch[i]], &o->value[i]);
        o->chosen = gs_select(cases, 2, deadline);
        o->result = o->chosen < 0 ? o->chosen : cases[o->chosen].result;
    }
    o->ended = ADD(moment, 1);
}

static void do_own_ops(int me)
{
    int i;
    for (i = 0; i < n_ops; i++)
        if (ops[i].actor == me)
            do_op(&ops[i]);
}

static int is_blocked(const struct state *s, enum kind kind, int ch)
{
    return !s->closed[ch] && (kind == SEND ? s->len[ch] == caps[ch] : s->len[ch] == 0);
}

/* Does the operation to the state if that gives the result it had. */
static int applies(struct state *s, const struct op *o)
{
    int k = o->chosen, ch, i;
    if (o->result == -EAGAIN || o->result == -ETIMEDOUT || o->result == -ECANCELED) {
        for (i = 0; i < o->n; i++)
            if (!is_blocked(s, o->kind[i], o->ch[i]))
                return 0;
        return 1;
    }
    ch = o->ch[k];
    if (o->result == -EPIPE)
        return s->closed[ch] && (o->kind[k] != RECV || (s->len[ch] == 0 && o->value[k] == 0));
    if (o->result != 0)
        return 0;
    if (o->kind[k] == CLOSE) {
        if (s->closed[ch])
            return 0;
        s->closed[ch] = 1;
    } else if (o->kind[k] == SEND) {
        if (s->closed[ch] || s->len[ch] >= caps[ch])
            return 0;
        s->queue[ch][s->len[ch]++] = o->value[k];
    } else {
        if (s->len[ch] == 0 || s->queue[ch][0] != o->value[k])
            return 0;
        s->len[ch]--;
        for (i = 0; i < 2; i++)
            s->queue[ch][i] = s->queue[ch][i + 1];
        s->queue[ch][2] = 0;
    }
    return 1;
}

/* Whether two operations are the two sides of one rendezvous. */
static int meet(const struct state *s, const struct op *from, const struct op *to)
{
    int ch = from->ch[from->chosen < 0 ? 0 : from->chosen];
    return from->result == 0 && to->result == 0 && from->kind[from->chosen] == SEND
           && to->kind[to->chosen] == RECV && to->ch[to->chosen] == ch && caps[ch] == 0 && !s->closed[ch]
           && from->value[from->chosen] == to->value[to->chosen];
}

#define SEEN 4096
static struct seen {
    uint32_t done;
    struct state s;
} seen[SEEN];

/* Whether this was tried before, without success. */
static int was_seen(uint32_t done, const struct state *s)
{
    uint64_t h = done * 0x9e3779b97f4a7c15ull;
    size_t i;
    for (i = 0; i < sizeof *s; i++)
        h = (h ^ ((const uint8_t *)s)[i]) * 0x100000001b3ull;
    i = h >> 52;
    if (seen[i].done == done && memcmp(&seen[i].s, s, sizeof *s) == 0)
        return 1;
    seen[i].done = done;
    seen[i].s = *s;
    return 0;
}

/* Whether the operations that are not done yet have an order, from this state on. */
static int has_order(uint32_t done, const struct state *s)
{
    uint64_t first_end = UINT64_MAX;
    int i, j;
    if (done == (1u << n_ops) - 1)
        return 1;
    if (was_seen(done, s))
        return 0;
    for (i = 0; i < n_ops; i++)
        if (!(done >> i & 1) && ops[i].ended < first_end)
            first_end = ops[i].ended;
    for (i = 0; i < n_ops; i++) {
        struct state next = *s;
        if (done >> i & 1 || ops[i].began > first_end)
            continue;
        if (applies(&next, &ops[i]) && has_order(done | 1u << i, &next))
            return 1;
        for (j = 0; j < n_ops; j++)
            if (j != i && !(done >> j & 1) && ops[j].began < first_end && meet(s, &ops[i], &ops[j])
                && has_order(done | 1u << i | 1u << j, s))
                return 1;
    }
    return 0;
}

static void print_history(void)
{
    static const char *const names[] = {"send", "recv", "close"};
    int i, k;
    for (i = 0; i < n_ops; i++) {
        const struct op *o = &ops[i];
        fprintf(stderr, "%s %d, %2llu to %2llu:", actors[o->actor].is_thread ? "thread" : "goroutine", o->actor,
                (unsigned long long)o->began, (unsigned long long)o->ended);
        for (k = 0; k < o->n; k++)
            fprintf(stderr, " %s%s %c (cap %d) %lld", k == o->chosen ? "*" : "", names[o->kind[k]],
                    'a' + o->ch[k], caps[o->ch[k]], (long long)o->value[k]);
        fprintf(stderr, " = %d\n", o->result);
    }
}

static void check_history(void)
{
    struct state s;
    memset(&s, 0, sizeof s);
    memset(seen, 0xff, sizeof seen);
    if (has_order(0, &s))
        return;
    print_history();
    failed(__FILE__, __LINE__, "no order of these operations explains their results", NULL);
}

static void round_of_channels(void)
{
    int i, k, n = 2 + pick(4), value = 1;
    for (i = 0; i < CHANS; i++) {
        caps[i] = pick(4) == 0 ? 2 : pick(2);
        chans[i] = chan_of_ints((size_t)caps[i]);
    }
    n_ops = sized(4 + pick(MOST_OPS - 4));
    moment = 0;
    for (i = 0; i < n_ops; i++) {
        struct op *o = &ops[i];
        memset(o, 0, sizeof *o);
        o->actor = pick(n);
        o->n = pick(3) == 0 ? 2 : 1;
        o->wait = pick(3) == 0 ? 0 : 1 + pick(pick(4) == 0 ? 2000 : 50);
        for (k = 0; k < o->n; k++) {
            o->kind[k] = o->n == 1 && pick(12) == 0 ? CLOSE : pick(2) ? SEND : RECV;
            o->ch[k] = pick(3) == 0;
            o->value[k] = o->kind[k] == SEND ? value++ : -1;
        }
    }
    play(n, do_own_ops, 1);
    check_history();
    for (i = 0; i < CHANS; i++)
        free_chan(chans[i]);
}

/* ---- Scripts: one waiter comes at a time, and the model says who goes on after each step ---- */

/* On one P, and not preempted: a goroutine that has announced itself waits in the queue when the test runs again. */

#define WAITERS 24

enum object { A_SEM, AN_RWMUTEX, A_CHAN, A_COND, OBJECTS };

static struct waiter {
    gs_g *g;
    int what; /* units; 1: writes, or sends */
    int64_t value;
    int came, result, done; /* as it was */
    int waits, expected; /* as the model says */
} waiters[WAITERS];

static enum object object;
static int n_waiters;
static gs_sem sem;
static gs_rwmutex rw;
static gs_mutex mutex;
static gs_cond cond;
static gs_chan *chan;

static void wait_in_object(void *arg)
{
    struct waiter *w = arg;
    int r = 1;
    SET(w->came, 1);
    if (object == A_SEM) {
        r = gs_sem_acquire(&sem, w->what, GS_FOREVER);
    } else if (object == AN_RWMUTEX) {
        r = w->what ? gs_rwmutex_lock(&rw, GS_FOREVER) : gs_rwmutex_rlock(&rw, GS_FOREVER);
    } else if (object == A_CHAN) {
        r = w->what ? gs_chan_send(chan, &w->value, GS_FOREVER) : gs_chan_recv(chan, &w->value, GS_FOREVER);
    } else {
        CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
        r = gs_cond_wait(&cond, &mutex, GS_FOREVER);
        CHECK_EQ(gs_mutex_unlock(&mutex), 0);
    }
    w->result = r;
    SET(w->done, 1);
}

static struct model {
    int units, readers, writing, closed, cap, len;
    int64_t queue[4];
} model;

/* The first that waits, of one kind (-1: any). */
static struct waiter *first_waiting(int what)
{
    int i;
    for (i = 0; i < n_waiters; i++)
        if (waiters[i].waits && (what < 0 || waiters[i].what == what))
            return &waiters[i];
    return NULL;
}

static void goes_on(struct waiter *w, int result)
{
    w->waits = 0;
    w->expected = result;
}

static void grant_units(void)
{
    struct waiter *w;
    while ((w = first_waiting(-1)) != NULL && w->what <= model.units) {
        model.units -= w->what;
        goes_on(w, 0);
    }
}

static void admit_readers(void)
{
    struct waiter *w;
    while ((w = first_waiting(0)) != NULL) {
        model.readers++;
        goes_on(w, 0);
    }
}

static void admit_writer(void)
{
    struct waiter *w = first_waiting(1);
    model.writing = w != NULL;
    if (w)
        goes_on(w, 0);
}

static void push_value(int64_t v)
{
    model.queue[model.len++] = v;
}

static int64_t pop_value(void)
{
    int64_t v = model.queue[0];
    memmove(model.queue, model.queue + 1, 3 * sizeof v);
    model.len--;
    return v;
}

static int64_t received[WAITERS];

/* A waiter has come to the channel. */
static void comes_to_chan(struct waiter *w)
{
    struct waiter *other = first_waiting(!w->what);
    w->waits = 1;
    if (w->what) {
        if (model.closed) {
            goes_on(w, -EPIPE);
        } else if (other) {
            received[other - waiters] = w->value;
            goes_on(other, 0);
            goes_on(w, 0);
        } else if (model.len < model.cap) {
            push_value(w->value);
            goes_on(w, 0);
        }
        return;
    }
    if (model.len > 0) {
        received[w - waiters] = pop_value();
        goes_on(w, 0);
        if (other) {
            push_value(other->value);
            goes_on(other, 0);
        }
    } else if (other) {
        received[w - waiters] = other->value;
        goes_on(other, 0);
        goes_on(w, 0);
    } else if (model.closed) {
        received[w - waiters] = 0;
        goes_on(w, -EPIPE);
    }
}

static void comes(struct waiter *w)
{
    int must_wait;
    switch (object) {
    case A_SEM:
        must_wait = first_waiting(-1) != NULL;
        w->waits = 1;
        if (!must_wait)
            grant_units();
        break;
    case AN_RWMUTEX:
        must_wait = model.writing || first_waiting(1) || (w->what && model.readers > 0);
        w->waits = 1;
        if (must_wait)
            break;
        goes_on(w, 0);
        if (w->what)
            model.writing = 1;
        else
            model.readers++;
        break;
    case A_CHAN:
        comes_to_chan(w);
        break;
    default:
        w->waits = 1;
    }
}

/* What the waiter that has given up was in the way of. */
static void gave_up(const struct waiter *w)
{
    if (object == A_SEM)
        grant_units();
    else if (object == AN_RWMUTEX && w->what && !model.writing && !first_waiting(1))
        admit_readers();
}

/* Something else than a waiter. */
static void change(void)
{
    struct waiter *w;
    int n = 1 + pick(3), all = pick(4) == 0;
    switch (object) {
    case A_SEM:
        CHECK_EQ(gs_sem_release(&sem, n), 0);
        model.units += n;
        grant_units();
        break;
    case AN_RWMUTEX:
        CHECK_EQ(gs_rwmutex_runlock(&rw), model.readers > 0 ? 0 : -EPERM);
        if (model.readers > 0 && --model.readers == 0)
            admit_writer();
        else if (model.readers == 0) {
            CHECK_EQ(gs_rwmutex_unlock(&rw), model.writing ? 0 : -EPERM);
            if (model.writing) {
                model.writing = 0;
                admit_readers();
                if (model.readers == 0)
                    admit_writer();
            }
        }
        break;
    case A_CHAN:
        if (pick(8))
            break;
        CHECK_EQ(gs_chan_close(chan), model.closed ? -EPIPE : 0);
        model.closed = 1;
        while ((w = first_waiting(-1)) != NULL) {
            received[w - waiters] = 0;
            goes_on(w, -EPIPE);
        }
        break;
    default:
        CHECK_EQ(all ? gs_cond_broadcast(&cond) : gs_cond_signal(&cond), 0);
        while ((w = first_waiting(-1)) != NULL) {
            goes_on(w, 0);
            if (!all)
                break;
        }
    }
}

/* All that the model says have gone on, and no other has. */
static void compare(void)
{
    int i;
    for (i = 0; i < n_waiters; i++)
        if (!waiters[i].waits)
            YIELD_UNTIL(GET(waiters[i].done));
    for (i = 0; i < 3; i++)
        gs_yield();
    for (i = 0; i < n_waiters; i++) {
        const struct waiter *w = &waiters[i];
        CHECK_EQ(GET(w->done), !w->waits);
        if (w->waits)
            continue;
        CHECK_EQ(w->result, w->expected);
        if (object == A_CHAN && !w->what && w->expected != -ECANCELED)
            CHECK_EQ(w->value, received[i]);
    }
    if (object == A_CHAN)
        CHECK_EQ(gs_chan_len(chan), model.len);
}

static void step(void)
{
    int action = pick(8), i;
    if (action < 5 && n_waiters < WAITERS) {
        gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
        struct waiter *w = &waiters[n_waiters++];
        memset(w, 0, sizeof *w);
        w->what = object == A_SEM ? 1 + pick(4) : pick(2);
        w->value = w->what ? 1000 + n_waiters : -1;
        opts.flags = GS_SPAWN_NOPREEMPT;
        w->g = go_opts(wait_in_object, w, &opts);
        YIELD_UNTIL(GET(w->came));
        comes(w);
    } else if (action < 7) {
        change();
    } else if (n_waiters > 0) {
        i = pick(n_waiters);
        CHECK_EQ(gs_cancel(waiters[i].g), 0);
        if (waiters[i].waits) {
            goes_on(&waiters[i], -ECANCELED);
            gave_up(&waiters[i]);
        }
    }
    compare();
}

static void play_script(void *arg)
{
    int i, steps = 10 + pick(50);
    (void)arg;
    for (i = 0; i < steps; i++)
        step();
    for (i = 0; i < n_waiters; i++) {
        CHECK_EQ(gs_cancel(waiters[i].g), 0);
        if (waiters[i].waits) {
            goes_on(&waiters[i], -ECANCELED);
            gave_up(&waiters[i]);
        }
        compare();
    }
    for (i = 0; i < n_waiters; i++)
        join(waiters[i].g);
}

static void round_of_scripts(void)
{
    int procs = is_in_bubble() ? 1 : gs_gomaxprocs(1);
    object = (enum object)pick(OBJECTS);
    n_waiters = 0;
    memset(&model, 0, sizeof model);
    memset(&rw, 0, sizeof rw);
    memset(&mutex, 0, sizeof mutex);
    memset(&cond, 0, sizeof cond);
    memset(&sem, 0, sizeof sem);
    CHECK_EQ(gs_sem_init(&sem, model.units = pick(4)), 0);
    chan = chan_of_ints((size_t)(model.cap = pick(4)));
    if (is_in_bubble())
        play_script(NULL);
    else
        CHECK_EQ(gs_run(play_script, NULL), 0);
    free_chan(chan);
    (void)(is_in_bubble() || gs_gomaxprocs(procs));
}

/* ---- Storms: what must hold at any moment, and when all is over ---- */

#define VALUES 4096

static gs_mutex storm_mutex;
static gs_rwmutex storm_rw;
static gs_sem storm_sem;
static gs_once onces[4];
static gs_chan *storm_chan;
static int in_mutex, writers, readers, units, once_runs[4], n_values, fired, to_fire, storm_ops;
static int sent[VALUES], got[VALUES];
static uint64_t storm_seed;

static void run_once_only(void *n)
{
    ADD(*(int *)n, 1);
}

static void count_fired(void *arg)
{
    (void)arg;
    ADD(fired, 1);
}

static int64_t some_deadline(uint64_t *s)
{
    switch (random_next(s) % 4) {
    case 0:
        return GS_NOWAIT;
    case 1:
        return gs_after_ns((int64_t)(random_next(s) % 50000));
    default:
        return gs_after_ms(20);
    }
}

/* Whether it was had. */
static int had(int r)
{
    CHECK(r == 0 || r == -EAGAIN || r == -ETIMEDOUT || r == -ECANCELED);
    return r == 0;
}

static void under_mutex(uint64_t *s)
{
    if (!had(gs_mutex_lock(&storm_mutex, some_deadline(s))))
        return;
    CHECK_EQ(ADD(in_mutex, 1), 1);
    if (random_next(s) % 4 == 0)
        gs_yield();
    CHECK_EQ(ADD(in_mutex, -1), 0);
    CHECK_EQ(gs_mutex_unlock(&storm_mutex), 0);
}

static void under_rwmutex(uint64_t *s)
{
    if (random_next(s) % 3 == 0) {
        if (!had(gs_rwmutex_lock(&storm_rw, some_deadline(s))))
            return;
        CHECK_EQ(ADD(writers, 1), 1);
        CHECK_EQ(GET(readers), 0);
        gs_yield();
        CHECK_EQ(ADD(writers, -1), 0);
        CHECK_EQ(gs_rwmutex_unlock(&storm_rw), 0);
    } else if (had(gs_rwmutex_rlock(&storm_rw, some_deadline(s)))) {
        ADD(readers, 1);
        CHECK_EQ(GET(writers), 0);
        if (random_next(s) % 2)
            gs_yield();
        ADD(readers, -1);
        CHECK_EQ(gs_rwmutex_runlock(&storm_rw), 0);
    }
}

static void with_units(uint64_t *s)
{
    int n = 1 + (int)(random_next(s) % 3);
    if (!had(gs_sem_acquire(&storm_sem, n, some_deadline(s))))
        return;
    CHECK_LE(ADD(units, n), 3);
    gs_yield();
    ADD(units, -n);
    CHECK_EQ(gs_sem_release(&storm_sem, n), 0);
}

static void with_values(uint64_t *s)
{
    int64_t v;
    gs_case one;
    int chooses = random_next(s) % 2 == 0, r;
    if (random_next(s) % 2) {
        v = ADD(n_values, 1) - 1;
        if (v >= VALUES)
            return;
        one = send_case(storm_chan, &v);
        r = chooses ? gs_select(&one, 1, some_deadline(s)) : gs_chan_send(storm_chan, &v, some_deadline(s));
        if (had(r))
            ADD(sent[v], 1);
    } else {
        one = recv_case(storm_chan, &v);
        r = chooses ? gs_select(&one, 1, some_deadline(s)) : gs_chan_recv(storm_chan, &v, some_deadline(s));
        if (had(r))
            ADD(got[v], 1);
    }
}

static void with_timers(uint64_t *s)
{
    gs_timer *t = gs_timer_start((int64_t)(random_next(s) % 100000), count_fired, NULL);
    gs_chan *after = gs_after((int64_t)(random_next(s) % 20000));
    int64_t v;
    int stopped;
    CHECK(t && after);
    (void)gs_sleep((int64_t)(random_next(s) % 30000));
    stopped = gs_timer_stop(t);
    if (stopped && random_next(s) % 2) {
        CHECK_EQ(gs_timer_reset(t, 1000), 0);
        (void)gs_sleep(2000);
        stopped = gs_timer_stop(t);
    }
    ADD(to_fire, !stopped);
    CHECK_EQ(gs_timer_free(t), 0);
    if (random_next(s) % 2)
        (void)had(gs_chan_recv(after, &v, gs_after_ms(20)));
    free_chan(after);
}

static void storm(int me)
{
    uint64_t s = (storm_seed + (uint64_t)me * 77) | 1;
    int i, k;
    for (i = 0; i < storm_ops; i++) {
        int part = (int)(random_next(&s) % 6);
        switch (has_part(2 + part) ? part : -1) {
        case -1:
            break;
        case 0:
            under_mutex(&s);
            break;
        case 1:
            under_rwmutex(&s);
            break;
        case 2:
            with_units(&s);
            break;
        case 3:
            with_timers(&s);
            break;
        case 4:
            k = (int)(random_next(&s) % 4);
            if (had(gs_once_do(&onces[k], run_once_only, &once_runs[k])))
                CHECK_EQ(GET(once_runs[k]), 1);
            break;
        default:
            with_values(&s);
        }
    }
}

static void round_of_storms(void)
{
    int64_t v;
    int i, n = 2 + pick(MOST_ACTORS - 2);
    memset(&storm_mutex, 0, sizeof storm_mutex);
    memset(&storm_rw, 0, sizeof storm_rw);
    memset(&storm_sem, 0, sizeof storm_sem);
    memset(onces, 0, sizeof onces);
    memset(once_runs, 0, sizeof once_runs);
    memset(sent, 0, sizeof sent);
    memset(got, 0, sizeof got);
    CHECK_EQ(gs_sem_init(&storm_sem, 3), 0);
    storm_chan = chan_of_ints((size_t)pick(4));
    n_values = fired = to_fire = 0;
    storm_ops = sized(5 + pick(60));
    storm_seed = random_next(&rng);
    play(n, storm, 1);
    CHECK_EQ(gs_mutex_trylock(&storm_mutex), 0);
    CHECK_EQ(gs_rwmutex_lock(&storm_rw, GS_NOWAIT), 0);
    CHECK_EQ(gs_sem_acquire(&storm_sem, 3, GS_NOWAIT), 0);
    while (gs_chan_recv(storm_chan, &v, GS_NOWAIT) == 0)
        got[v]++;
    for (i = 0; i < VALUES; i++)
        CHECK_EQ(got[i], sent[i]);
    free_chan(storm_chan);
    NAP_UNTIL(GET(fired) == to_fire);
    nap(200 * US);
    CHECK_EQ(GET(fired), to_fire);
}

/* ---- How long ---- */

static void (*const rounds[])(void) = {round_of_channels, round_of_scripts, round_of_storms};

static int is_wanted(void (*play_round)(void))
{
    int part, any = 0;
    for (part = 2; part < 8; part++)
        any |= has_part(part);
    return play_round == round_of_channels ? has_part(0) : play_round == round_of_scripts ? has_part(1) : any;
}

/* Rounds of one kind for so long, or of one seed if that is given. */
static void play_rounds(void (*play_round)(void), int64_t ns)
{
    int64_t end = clock_now() + ns;
    uint64_t seed = random_seed();
    do {
        begin_round(seed);
        if (is_wanted(play_round))
            play_round();
        seed += getenv("CHECK_SEED") == NULL;
    } while (clock_now() < end);
    check_note[0] = 0;
}

TEST(channels_behave_as_if_one_operation_came_after_the_other)
{
    play_rounds(round_of_channels, 200 * MS);
}

TEST(waiters_are_served_as_the_models_say)
{
    play_rounds(round_of_scripts, 100 * MS);
}

TEST(locks_exclude_and_values_and_timers_are_not_lost_in_a_storm)
{
    play_rounds(round_of_storms, 300 * MS);
}

static void play_in_a_bubble(void *of_seed)
{
    uint64_t seed = *(uint64_t *)of_seed;
    begin_round(seed);
    if (is_wanted(rounds[seed % LENGTH(rounds)]))
        rounds[seed % LENGTH(rounds)]();
}

/* The models of the scripts know who is cancelled. */
static int may_cancel(uint64_t seed)
{
    return rounds[seed % LENGTH(rounds)] != round_of_scripts;
}

int main(int argc, char **argv)
{
    static const struct bubble_play bubble = {
        .play = play_in_a_bubble, .most = {.max_steps = 200000}, .cancels = 50, .may_cancel = may_cancel};
    int64_t end;
    uint64_t seed;
    long done = 0;
    int status = play_in_bubbles(argc, argv, &bubble);
    if (status >= 0)
        return status;
    if (asked_for_parts(argc, argv, 9))
        return 0;
    if (argc != 3 || atol(argv[1]) <= 0)
        return check_main(argc, argv);
    prepare();
    current_test = "semantics";
    end = clock_now() + atol(argv[1]) * SEC;
    for (seed = strtoull(argv[2], NULL, 0); clock_now() < end; seed++, done++) {
        begin_round(seed);
        if (is_wanted(rounds[seed % LENGTH(rounds)]))
            rounds[seed % LENGTH(rounds)]();
    }
    printf("%ld rounds, the next seed is %llu\n", done, (unsigned long long)seed);
    return 0;
}
