/* gs_cancel: a cancelled goroutine gets -ECANCELED from every call that would block, and stays cancelled. */
#include "check.h"

/* One object of each kind, in a state in which a call on it waits. */
struct scene {
    gs_chan *ch;
    gs_mutex locked;
    gs_rwmutex written, read;
    gs_cond cond;
    gs_mutex cond_mutex;
    gs_waitgroup wg;
    gs_sem sem;
    gs_once once;
    gs_g *waiting, *in_once;
    int once_entered, end;
    int impatient; /* they wait with a deadline */
};

static void wait_for_end(void *arg)
{
    WAIT_UNTIL(GET(((struct scene *)arg)->end));
}

static void once_that_waits(void *arg)
{
    SET(((struct scene *)arg)->once_entered, 1);
    wait_for_end(arg);
}

static void enter_once(void *arg)
{
    CHECK_EQ(gs_once_do(&((struct scene *)arg)->once, once_that_waits, arg), 0);
}

static void set_up(struct scene *s)
{
    memset(s, 0, sizeof *s);
    s->ch = chan_of_ints(0);
    CHECK_EQ(gs_mutex_lock(&s->locked, GS_FOREVER), 0);
    CHECK_EQ(gs_rwmutex_lock(&s->written, GS_FOREVER), 0);
    CHECK_EQ(gs_rwmutex_rlock(&s->read, GS_FOREVER), 0);
    CHECK_EQ(gs_waitgroup_add(&s->wg, 1), 0);
    CHECK_EQ(gs_sem_init(&s->sem, 0), 0);
    s->waiting = go_ref(wait_for_end, s);
    s->in_once = go_ref(enter_once, s);
    WAIT_UNTIL(GET(s->once_entered));
}

/* There are no waiters any more, and each object does its work. */
static void tear_down(struct scene *s)
{
    free_chan(s->ch);
    CHECK_EQ(gs_mutex_unlock(&s->locked), 0);
    CHECK_EQ(gs_mutex_lock(&s->locked, GS_NOWAIT), 0);
    CHECK_EQ(gs_rwmutex_unlock(&s->written), 0);
    CHECK_EQ(gs_rwmutex_lock(&s->written, GS_NOWAIT), 0);
    CHECK_EQ(gs_rwmutex_runlock(&s->read), 0);
    CHECK_EQ(gs_rwmutex_lock(&s->read, GS_NOWAIT), 0);
    CHECK_EQ(gs_mutex_lock(&s->cond_mutex, GS_NOWAIT), 0);
    CHECK_EQ(gs_waitgroup_done(&s->wg), 0);
    CHECK_EQ(gs_waitgroup_wait(&s->wg, GS_NOWAIT), 0);
    CHECK_EQ(gs_sem_release(&s->sem, 1), 0);
    CHECK_EQ(gs_sem_acquire(&s->sem, 1, GS_NOWAIT), 0);
    SET(s->end, 1);
    join(s->waiting);
    join(s->in_once);
    CHECK_EQ(gs_once_do(&s->once, once_that_waits, s), 0);
}

/* ---- The calls that wait ---- */

/* How long they wait for what doesn't come. */
static int64_t until(const struct scene *s)
{
    return s->impatient ? gs_after_ms(1) : GS_FOREVER;
}

static int wait_in_send(struct scene *s)
{
    int64_t v = 1;
    return gs_chan_send(s->ch, &v, until(s));
}

static int wait_in_recv(struct scene *s)
{
    int64_t v;
    return gs_chan_recv(s->ch, &v, until(s));
}

static int wait_in_recv_with_deadline(struct scene *s)
{
    int64_t v;
    return gs_chan_recv(s->ch, &v, gs_after_ms(s->impatient ? 1 : 3600000));
}

static int wait_in_select(struct scene *s)
{
    int64_t v = 1, w;
    gs_case c[3];
    c[0] = send_case(s->ch, &v);
    c[1] = recv_case(s->ch, &w);
    c[2] = recv_case(NULL, &w);
    return gs_select(c, 3, until(s));
}

static int wait_in_empty_select(struct scene *s)
{
    return gs_select(NULL, 0, until(s));
}

static int wait_in_mutex(struct scene *s)
{
    return gs_mutex_lock(&s->locked, until(s));
}

static int wait_in_rlock(struct scene *s)
{
    return gs_rwmutex_rlock(&s->written, until(s));
}

static int wait_in_wlock(struct scene *s)
{
    return gs_rwmutex_lock(&s->read, until(s));
}

/* Whatever the answer, the mutex is held after it. */
static int wait_in_cond(struct scene *s)
{
    int r;
    CHECK_EQ(gs_mutex_lock(&s->cond_mutex, GS_NOWAIT), 0);
    r = gs_cond_wait(&s->cond, &s->cond_mutex, until(s));
    CHECK_EQ(gs_mutex_trylock(&s->cond_mutex), -EBUSY);
    CHECK_EQ(gs_mutex_unlock(&s->cond_mutex), 0);
    return r;
}

static int wait_in_waitgroup(struct scene *s)
{
    return gs_waitgroup_wait(&s->wg, until(s));
}

static int wait_in_sem(struct scene *s)
{
    return gs_sem_acquire(&s->sem, 1, until(s));
}

static int wait_in_once(struct scene *s)
{
    return gs_once_do(&s->once, once_that_waits, s);
}

static int wait_in_join(struct scene *s)
{
    return gs_join(s->waiting, until(s));
}

static int wait_in_sleep(struct scene *s)
{
    return gs_sleep(s->impatient ? MS : 3600 * SEC);
}

static const struct call {
    const char *name;
    int (*fn)(struct scene *);
} calls[] = {
    {"send", wait_in_send},
    {"recv", wait_in_recv},
    {"recv with a deadline", wait_in_recv_with_deadline},
    {"select", wait_in_select},
    {"select of nothing", wait_in_empty_select},
    {"mutex_lock", wait_in_mutex},
    {"rwmutex_rlock", wait_in_rlock},
    {"rwmutex_lock", wait_in_wlock},
    {"cond_wait", wait_in_cond},
    {"waitgroup_wait", wait_in_waitgroup},
    {"sem_acquire", wait_in_sem},
    {"once_do", wait_in_once},
    {"join", wait_in_join},
    {"sleep", wait_in_sleep},
};

struct victim {
    struct scene *scene;
    const struct call *call;
    int may_call, calling, result;
};

static void be_victim(void *arg)
{
    struct victim *v = arg;
    YIELD_UNTIL(GET(v->may_call)); /* yield does not block: it works in a cancelled goroutine too */
    SET(v->calling, 1);
    v->result = v->call->fn(v->scene);
}

static void finish_victim(struct victim *v, gs_g *g)
{
    join(g);
    snprintf(check_note, sizeof check_note, "in %s", v->call->name);
    CHECK_EQ(v->result, -ECANCELED);
    check_note[0] = 0;
}

GO_TEST(cancel_ends_every_wait)
{
    struct scene s;
    size_t i;
    set_up(&s);
    for (i = 0; i < LENGTH(calls); i++) {
        struct victim v = {&s, &calls[i], 1, 0, 0};
        gs_g *g = go_ref(be_victim, &v);
        WAIT_UNTIL(GET(v.calling));
        CHECK_EQ(gs_sleep(MS), 0); /* most likely it waits by now; either way the answer is the same */
        CHECK_EQ(gs_cancel(g), 0);
        finish_victim(&v, g);
    }
    tear_down(&s);
}

GO_TEST(a_cancelled_goroutine_does_not_start_to_wait)
{
    struct scene s;
    size_t i;
    set_up(&s);
    for (i = 0; i < LENGTH(calls); i++) {
        struct victim v = {&s, &calls[i], 0, 0, 0};
        gs_g *g = go_ref(be_victim, &v);
        CHECK_EQ(gs_cancel(g), 0);
        SET(v.may_call, 1);
        finish_victim(&v, g);
    }
    tear_down(&s);
}

static void cancel_self_then_wait(void *arg)
{
    struct scene *s = arg;
    size_t i;
    CHECK_EQ(gs_cancel(gs_self()), 0);
    for (i = 0; i < LENGTH(calls); i++) {
        snprintf(check_note, sizeof check_note, "in %s", calls[i].name);
        CHECK_EQ(calls[i].fn(s), -ECANCELED);
        CHECK_EQ(calls[i].fn(s), -ECANCELED); /* it stays cancelled */
    }
    check_note[0] = 0;
}

GO_TEST(a_goroutine_may_cancel_itself_and_stays_cancelled)
{
    struct scene s;
    set_up(&s);
    join(go_ref(cancel_self_then_wait, &s));
    tear_down(&s);
}

static void cancelled_in_run(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_cancel(gs_self()), 0);
    CHECK_EQ(gs_sleep(3600 * SEC), -ECANCELED);
}

TEST(the_goroutine_of_run_can_be_cancelled)
{
    int i;
    for (i = 0; i < 3; i++)
        CHECK_EQ(gs_run(cancelled_in_run, NULL), 0);
}

static void set_flag(void *flag)
{
    SET(*(int *)flag, 1);
}

/* Everything that needs no wait is done. */
static void do_what_can_be_done(void *arg)
{
    gs_chan *ch = chan_of_ints(2);
    gs_mutex m;
    gs_rwmutex rw;
    gs_waitgroup wg;
    gs_sem sem;
    gs_once once;
    int64_t v = 5, w = 0;
    int ran = 0;
    gs_case c;
    (void)arg;
    memset(&m, 0, sizeof m);
    memset(&rw, 0, sizeof rw);
    memset(&wg, 0, sizeof wg);
    memset(&once, 0, sizeof once);
    CHECK_EQ(gs_cancel(gs_self()), 0);
    CHECK_EQ(gs_chan_send(ch, &v, GS_FOREVER), 0);
    CHECK_EQ(gs_chan_recv(ch, &w, GS_FOREVER), 0);
    CHECK_EQ(w, 5);
    c = send_case(ch, &v);
    CHECK_EQ(gs_select(&c, 1, GS_FOREVER), 0);
    c = recv_case(ch, &w);
    CHECK_EQ(gs_select(&c, 1, GS_FOREVER), 0);
    CHECK_EQ(gs_mutex_lock(&m, GS_FOREVER), 0);
    CHECK_EQ(gs_mutex_unlock(&m), 0);
    CHECK_EQ(gs_rwmutex_rlock(&rw, GS_FOREVER), 0);
    CHECK_EQ(gs_rwmutex_runlock(&rw), 0);
    CHECK_EQ(gs_rwmutex_lock(&rw, GS_FOREVER), 0);
    CHECK_EQ(gs_rwmutex_unlock(&rw), 0);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    CHECK_EQ(gs_sem_init(&sem, 2), 0);
    CHECK_EQ(gs_sem_acquire(&sem, 2, GS_FOREVER), 0);
    CHECK_EQ(gs_once_do(&once, set_flag, &ran), 0);
    CHECK_EQ(ran, 1);
    CHECK_EQ(gs_sleep(0), 0);
    CHECK_EQ(gs_sleep(-1), 0);
    CHECK_EQ(gs_chan_close(ch), 0);
    CHECK_EQ(gs_chan_recv(ch, &w, GS_FOREVER), -EPIPE);
    free_chan(ch);
    gs_yield();
}

GO_TEST(what_can_be_done_at_once_is_done_in_a_cancelled_goroutine)
{
    join(go_ref(do_what_can_be_done, NULL));
}

static void join_ended(void *g)
{
    CHECK_EQ(gs_cancel(gs_self()), 0);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
}

GO_TEST(a_cancelled_goroutine_can_join_an_ended_one)
{
    int ran = 0;
    gs_g *g = go_ref(set_flag, &ran);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    join(go_ref(join_ended, g));
    gs_release(g);
}

static void note_and_sleep(void *ran)
{
    CHECK_EQ(gs_sleep(3600 * SEC), -ECANCELED);
    SET(*(int *)ran, 1);
}

GO_TEST(cancelled_before_its_first_run_it_still_runs)
{
    int procs = gs_gomaxprocs(1), i;
    for (i = 0; i < 50; i++) {
        int ran = 0;
        gs_g *g = go_ref(note_and_sleep, &ran);
        CHECK_EQ(gs_cancel(g), 0);
        CHECK_EQ(gs_cancel(g), 0);
        join(g);
        CHECK_EQ(ran, 1);
    }
    gs_gomaxprocs(procs);
}

GO_TEST(cancelling_an_ended_one_gives_0)
{
    int ran = 0;
    gs_g *g = go_ref(set_flag, &ran);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    CHECK_EQ(gs_cancel(g), 0);
    CHECK_EQ(gs_cancel(g), 0);
    join(g);
}

TEST(cancel_from_a_plain_thread)
{
    int i;
    for (i = 0; i < 100; i++) {
        int ran = 0;
        gs_g *g = go_ref(note_and_sleep, &ran);
        if (i % 2)
            nap(100 * US);
        CHECK_EQ(gs_cancel(g), 0);
        join(g);
        CHECK_EQ(ran, 1);
    }
}

/* A goroutine spawned by a cancelled one is not cancelled itself. */
static void sleep_shortly(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_sleep(MS), 0);
}

static void spawn_from_cancelled(void *out)
{
    CHECK_EQ(gs_cancel(gs_self()), 0);
    *(gs_g **)out = go_ref(sleep_shortly, NULL);
}

GO_TEST(cancel_is_not_inherited)
{
    gs_g *child = NULL;
    join(go_ref(spawn_from_cancelled, &child));
    join(child);
}

/* ---- Disabled ---- */

/* -ETIMEDOUT from each call that waits, however often the goroutine is cancelled. */
static void wait_in_vain(struct scene *s)
{
    size_t i;
    for (i = 0; i < LENGTH(calls); i++) {
        int want = calls[i].fn == wait_in_sleep ? 0 : -ETIMEDOUT;
        if (calls[i].fn == wait_in_once)
            continue; /* it has no deadline */
        snprintf(check_note, sizeof check_note, "in %s", calls[i].name);
        CHECK_EQ(calls[i].fn(s), want);
    }
    check_note[0] = 0;
}

static void wait_while_disabled(void *arg)
{
    struct scene *s = arg;
    gs_mutex m;
    memset(&m, 0, sizeof m);
    CHECK_EQ(gs_cancelled(), 0);
    CHECK_EQ(gs_cancel_enable(), -EPERM);
    CHECK_EQ(gs_cancel_disable(), 0);
    CHECK_EQ(gs_cancel_disable(), 0);
    SET(s->impatient, 2);
    wait_in_vain(s); /* cancelled while it waits */
    CHECK_EQ(gs_cancel(gs_self()), 0);
    CHECK_EQ(gs_cancelled(), 1);
    wait_in_vain(s); /* cancelled before */
    CHECK_EQ(gs_cancel_enable(), 0);
    wait_in_vain(s); /* still disabled once */
    CHECK_EQ(gs_cancel_enable(), 0);
    CHECK_EQ(gs_cancelled(), 1);
    CHECK_EQ(gs_mutex_lock(&m, GS_FOREVER), 0); /* no wait */
    CHECK_EQ(gs_sleep(3600 * SEC), -ECANCELED);
    CHECK_EQ(gs_cancel_enable(), -EPERM);
    CHECK_EQ(gs_sleep(3600 * SEC), -ECANCELED);
    CHECK_EQ(gs_cancel_disable(), 0);
    wait_in_vain(s);
    SET(s->impatient, 3); /* it ends without gs_cancel_enable */
}

GO_TEST(no_wait_is_cancelled_while_that_is_disabled)
{
    struct scene s;
    gs_g *g;
    set_up(&s);
    s.impatient = 1;
    g = go_ref(wait_while_disabled, &s);
    WAIT_UNTIL(GET(s.impatient) == 2); /* it waits with cancelling disabled */
    while (gs_join(g, gs_after_us(300)) != 0)
        CHECK_EQ(gs_cancel(g), 0);
    CHECK_EQ(s.impatient, 3);
    join(g);
    tear_down(&s);
}

struct cleanup {
    gs_mutex m;
    gs_chan *never;
    int disabled, cleaned;
};

/* What one has gs_cancel_disable for. */
static void clean_up_after_a_cancel(void *arg)
{
    struct cleanup *c = arg;
    int64_t v;
    CHECK_EQ(gs_chan_recv(c->never, &v, GS_FOREVER), -ECANCELED);
    CHECK_EQ(gs_mutex_lock(&c->m, GS_FOREVER), -ECANCELED);
    CHECK_EQ(gs_cancel_disable(), 0);
    SET(c->disabled, 1);
    CHECK_EQ(gs_mutex_lock(&c->m, GS_FOREVER), 0);
    SET(c->cleaned, 1);
    CHECK_EQ(gs_mutex_unlock(&c->m), 0);
    CHECK_EQ(gs_cancel_enable(), 0);
    CHECK_EQ(gs_chan_recv(c->never, &v, GS_FOREVER), -ECANCELED);
}

GO_TEST(a_cancelled_goroutine_takes_a_contended_lock_to_clean_up)
{
    int i;
    for (i = 0; i < 50; i++) {
        struct cleanup c;
        gs_g *g;
        memset(&c, 0, sizeof c);
        c.never = chan_of_ints(0);
        CHECK_EQ(gs_mutex_lock(&c.m, GS_FOREVER), 0);
        g = go_ref(clean_up_after_a_cancel, &c);
        CHECK_EQ(gs_cancel(g), 0);
        WAIT_UNTIL(GET(c.disabled));
        CHECK_EQ(gs_sleep(100 * US), 0);
        CHECK_EQ(gs_cancel(g), 0); /* it waits for the lock, and goes on doing so */
        CHECK_EQ(gs_sleep(100 * US), 0);
        CHECK_EQ(GET(c.cleaned), 0);
        CHECK_EQ(gs_mutex_unlock(&c.m), 0);
        join(g);
        CHECK_EQ(c.cleaned, 1);
        free_chan(c.never);
    }
}

/* Waits by turns with cancelling disabled and enabled, until it is cancelled. */
static void wait_by_turns(void *arg)
{
    gs_chan *never = arg;
    int64_t v;
    int r;
    do {
        CHECK_EQ(gs_cancel_disable(), 0);
        CHECK_EQ(gs_chan_recv(never, &v, gs_after_us(20)), -ETIMEDOUT);
        CHECK_EQ(gs_cancel_enable(), 0);
        r = gs_chan_recv(never, &v, gs_after_us(20));
        CHECK(r == -ETIMEDOUT || r == -ECANCELED);
    } while (r == -ETIMEDOUT);
    CHECK_EQ(gs_cancelled(), 1);
}

GO_TEST(a_cancel_that_meets_disable_and_enable_is_not_lost)
{
    gs_chan *never = chan_of_ints(0);
    uint64_t rng = random_seed();
    int i;
    for (i = 0; i < 200; i++) {
        gs_g *g = go_ref(wait_by_turns, never);
        CHECK_EQ(gs_sleep((int64_t)(random_next(&rng) % 100) * US), 0);
        CHECK_EQ(gs_cancel(g), 0);
        join(g);
    }
    check_note[0] = 0;
    free_chan(never);
}

static void end_while_disabled(void *arg)
{
    CHECK_EQ(gs_cancel_disable(), 0);
    CHECK_EQ(gs_cancel_disable(), 0);
    if (arg)
        gs_exit();
}

/* The descriptor is used again. */
GO_TEST(disabling_ends_with_the_goroutine)
{
    int procs = gs_gomaxprocs(1), i;
    for (i = 0; i < 200; i++) {
        int ran = 0;
        gs_g *g;
        if (i % 3 == 0)
            join(go_ref(end_while_disabled, i % 2 ? &ran : NULL));
        else
            go(end_while_disabled, i % 2 ? &ran : NULL);
        gs_yield();
        g = go_ref(note_and_sleep, &ran);
        gs_yield();
        CHECK_EQ(gs_cancel(g), 0);
        join(g);
        CHECK_EQ(ran, 1);
    }
    gs_gomaxprocs(procs);
}

static void not_disabled_here(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_cancel_enable(), -EPERM);
    CHECK_EQ(gs_cancelled(), 0);
    CHECK_EQ(gs_sleep(MS), 0);
}

TEST(a_plain_thread_may_disable_it_too)
{
    CHECK_EQ(gs_cancelled(), 0);
    CHECK_EQ(gs_cancel_enable(), 0);
    CHECK_EQ(gs_cancel_disable(), 0);
    CHECK_EQ(gs_run(not_disabled_here, NULL), 0); /* and the goroutine knows nothing of it */
    CHECK_EQ(gs_cancelled(), 0);
    CHECK_EQ(gs_cancel_enable(), 0);
    CHECK_EQ(gs_cancel_enable(), 0);
}

/* ---- Races: a value is handed over or it is not; it is never lost ---- */

struct race {
    gs_chan *ch;
    int result;
    int64_t got;
    int by_select;
};

static void receive_or_be_cancelled(void *arg)
{
    struct race *r = arg;
    gs_case c = recv_case(r->ch, &r->got);
    r->result = r->by_select ? gs_select(&c, 1, GS_FOREVER) : gs_chan_recv(r->ch, &r->got, GS_FOREVER);
}

static void cancel_it(void *g)
{
    CHECK_EQ(gs_cancel(g), 0);
}

static void race_once(int i, int by_select)
{
    struct race r = {chan_of_ints(0), 1, -1, by_select};
    gs_g *receiver = go_ref(receive_or_be_cancelled, &r), *canceller;
    int64_t v = i;
    int sent;
    if (i % 4 == 0)
        gs_yield();
    canceller = go_ref(cancel_it, receiver);
    if (i % 2)
        gs_yield();
    sent = gs_chan_send(r.ch, &v, gs_after_us(i % 8 * 10));
    join(canceller);
    join(receiver);
    CHECK(sent == 0 || sent == -ETIMEDOUT);
    CHECK(r.result == 0 || r.result == -ECANCELED);
    CHECK_EQ(sent == 0, r.result == 0);
    CHECK(sent != 0 || r.got == i);
    free_chan(r.ch);
}

/* ---- A cancel that comes while a goroutine is about to wait in line ---- */

enum { IN_LINE = 3000 };

static struct {
    gs_sem sem;
    gs_rwmutex rw;
    gs_g *g;
    int round, about, over;
} line;

static void wait_in_line(void *arg)
{
    int in_sem = GET(line.round) % 2;
    (void)arg;
    line.g = gs_self(); /* its maker has a reference */
    SET(line.about, 1);
    CHECK_EQ(in_sem ? gs_sem_acquire(&line.sem, 1, GS_FOREVER) : gs_rwmutex_lock(&line.rw, GS_FOREVER), -ECANCELED);
}

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() __asm__ volatile("" ::: "memory")
#endif

static void *cancel_those_in_line(void *arg)
{
    int round, i;
    for (round = 1; round <= IN_LINE; round++) {
        while (GET(line.round) != round || !GET(line.about))
            sched_yield();
        for (i = 0; i < round % 100; i++)
            RELAX();
        CHECK_EQ(gs_cancel(line.g), 0);
        SET(line.over, round);
    }
    return arg;
}

/* It has left the line by the time it returns. */
GO_TEST(a_cancel_just_before_a_wait_leaves_nobody_in_line)
{
    pthread_t t = start_thread(cancel_those_in_line, NULL);
    gs_g *g;
    int round;
    memset(&line.sem, 0, sizeof line.sem);
    CHECK_EQ(gs_rwmutex_rlock(&line.rw, GS_FOREVER), 0);
    for (round = 1; round <= IN_LINE; round++) {
        SET(line.about, 0);
        SET(line.round, round);
        g = go_ref(wait_in_line, NULL);
        YIELD_UNTIL(GET(line.over) == round);
        join(g);
        CHECK_EQ(gs_sem_release(&line.sem, 1), 0);
        CHECK_EQ(gs_sem_acquire(&line.sem, 1, GS_NOWAIT), 0);
        CHECK_EQ(gs_rwmutex_rlock(&line.rw, GS_NOWAIT), 0);
        CHECK_EQ(gs_rwmutex_runlock(&line.rw), 0);
    }
    CHECK_EQ(gs_rwmutex_runlock(&line.rw), 0);
    go_join_thread(t);
}

GO_TEST(cancel_races_with_a_send_to_the_receiver)
{
    int i;
    for (i = 0; i < 1500; i++)
        race_once(i, 0);
}

GO_TEST(cancel_races_with_a_send_to_a_select)
{
    int i;
    for (i = 0; i < 1500; i++)
        race_once(i, 1);
}

/* A lock that goes to a goroutine while it is being cancelled is either held or passed on. */
static gs_mutex contended;

static void lock_or_be_cancelled(void *result)
{
    int r = gs_mutex_lock(&contended, GS_FOREVER);
    if (r == 0)
        CHECK_EQ(gs_mutex_unlock(&contended), 0);
    *(int *)result = r;
}

GO_TEST(cancel_races_with_unlock)
{
    int i, result;
    for (i = 0; i < 1500; i++) {
        gs_g *g;
        CHECK_EQ(gs_mutex_lock(&contended, GS_FOREVER), 0);
        g = go_ref(lock_or_be_cancelled, &result);
        gs_yield();
        if (i % 2)
            CHECK_EQ(gs_cancel(g), 0);
        CHECK_EQ(gs_mutex_unlock(&contended), 0);
        CHECK_EQ(gs_cancel(g), 0);
        join(g);
        CHECK(result == 0 || result == -ECANCELED);
        CHECK_EQ(gs_mutex_trylock(&contended), 0);
        CHECK_EQ(gs_mutex_unlock(&contended), 0);
    }
}
