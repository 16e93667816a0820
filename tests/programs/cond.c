/* gs_cond: signal, broadcast, deadlines; a wait always returns with the mutex held. */
#include "check.h"

struct box {
    gs_mutex m;
    gs_cond c;
    int waiting, woken, go_on;
};

static void lock(struct box *b)
{
    CHECK_EQ(gs_mutex_lock(&b->m, GS_FOREVER), 0);
}

static void unlock(struct box *b)
{
    CHECK_EQ(gs_mutex_unlock(&b->m), 0);
}

static void check_held(struct box *b)
{
    CHECK_EQ(gs_mutex_trylock(&b->m), -EBUSY);
}

static int read_under_lock(struct box *b, const int *field)
{
    int v;
    lock(b);
    v = *field;
    unlock(b);
    return v;
}

static void wait_once(void *arg)
{
    struct box *b = arg;
    lock(b);
    b->waiting++; /* who sees this under the lock knows that it waits: wait unlocks as one step */
    CHECK_EQ(gs_cond_wait(&b->c, &b->m, GS_FOREVER), 0);
    check_held(b);
    b->woken++;
    unlock(b);
}

static void *wait_once_in_thread(void *arg)
{
    wait_once(arg);
    return NULL;
}

GO_TEST(signal_wakes_exactly_one)
{
    struct box b;
    gs_g *gs[10];
    int i;
    memset(&b, 0, sizeof b);
    for (i = 0; i < 10; i++)
        gs[i] = go_ref(wait_once, &b);
    WAIT_UNTIL(read_under_lock(&b, &b.waiting) == 10);
    for (i = 1; i <= 10; i++) {
        CHECK_EQ(gs_cond_signal(&b.c), 0);
        WAIT_UNTIL(read_under_lock(&b, &b.woken) == i);
        CHECK_EQ(gs_sleep(100 * US), 0);
        CHECK_EQ(read_under_lock(&b, &b.woken), i);
    }
    for (i = 0; i < 10; i++)
        join(gs[i]);
}

GO_TEST(broadcast_wakes_all)
{
    struct box b;
    gs_g *gs[100];
    pthread_t t[4];
    int i;
    memset(&b, 0, sizeof b);
    for (i = 0; i < 100; i++)
        gs[i] = go_ref(wait_once, &b);
    for (i = 0; i < 4; i++)
        t[i] = start_thread(wait_once_in_thread, &b);
    WAIT_UNTIL(read_under_lock(&b, &b.waiting) == 104);
    lock(&b);
    CHECK_EQ(b.woken, 0);
    CHECK_EQ(gs_cond_broadcast(&b.c), 0);
    unlock(&b);
    for (i = 0; i < 100; i++)
        join(gs[i]);
    for (i = 0; i < 4; i++)
        go_join_thread(t[i]);
    CHECK_EQ(b.woken, 104);
}

GO_TEST(signal_and_broadcast_without_waiters_are_forgotten)
{
    struct box b;
    memset(&b, 0, sizeof b);
    CHECK_EQ(gs_cond_signal(&b.c), 0);
    CHECK_EQ(gs_cond_broadcast(&b.c), 0);
    lock(&b);
    CHECK_EQ(gs_cond_wait(&b.c, &b.m, gs_after_ms(2)), -ETIMEDOUT);
    unlock(&b);
}

/* ---- The mutex is held after every wait ---- */

static void check_deadlines(void)
{
    struct box b;
    int64_t deadline;
    memset(&b, 0, sizeof b);
    lock(&b);
    CHECK_EQ(gs_cond_wait(&b.c, &b.m, GS_NOWAIT), -EAGAIN);
    check_held(&b);
    CHECK_EQ(gs_cond_wait(&b.c, &b.m, 1), -ETIMEDOUT);
    check_held(&b);
    deadline = gs_after_ms(3);
    CHECK_EQ(gs_cond_wait(&b.c, &b.m, deadline), -ETIMEDOUT);
    CHECK_GE(gs_now(), deadline);
    check_held(&b);
    unlock(&b);
    CHECK_EQ(gs_mutex_unlock(&b.m), -EPERM);
}

GO_TEST(a_wait_ends_at_its_deadline_with_the_mutex_held)
{
    check_deadlines();
}

TEST(a_wait_of_a_plain_thread_ends_at_its_deadline_with_the_mutex_held)
{
    check_deadlines();
}

static void hold_for_a_while(void *arg)
{
    struct box *b = arg;
    lock(b);
    SET(b->waiting, 1);
    CHECK_EQ(gs_sleep(10 * MS), 0);
    SET(b->woken, 1);
    unlock(b);
}

/* The deadline passes while another holds the mutex: the wait still takes it before it returns. */
GO_TEST(a_wait_that_times_out_waits_for_the_mutex)
{
    struct box b;
    gs_g *g;
    memset(&b, 0, sizeof b);
    lock(&b);
    g = go_ref(hold_for_a_while, &b);
    CHECK_EQ(gs_cond_wait(&b.c, &b.m, gs_after_ms(2)), -ETIMEDOUT);
    check_held(&b);
    CHECK(GET(b.waiting) == 0 || GET(b.woken) == 1); /* before the other or after it, never during */
    unlock(&b);
    join(g);
}

static void wait_until_cancelled(void *arg)
{
    struct box *b = arg;
    int r;
    lock(b);
    b->waiting = 1;
    r = gs_cond_wait(&b->c, &b->m, GS_FOREVER);
    check_held(b);
    CHECK_EQ(r, -ECANCELED);
    CHECK_EQ(b->go_on, 1);
    unlock(b);
}

GO_TEST(a_cancelled_wait_waits_for_the_mutex)
{
    struct box b;
    gs_g *g;
    memset(&b, 0, sizeof b);
    g = go_ref(wait_until_cancelled, &b);
    WAIT_UNTIL(read_under_lock(&b, &b.waiting) == 1);
    lock(&b);
    CHECK_EQ(gs_cancel(g), 0);
    CHECK_EQ(gs_sleep(2 * MS), 0); /* the cancelled one may not return before the unlock */
    b.go_on = 1;
    unlock(&b);
    join(g);
    CHECK_EQ(gs_mutex_trylock(&b.m), 0);
    unlock(&b);
}

/* A wait in which the mutex isn't locked: an error, and nothing is locked or unlocked. */
GO_TEST(waiting_with_an_unlocked_mutex_is_EPERM)
{
    struct box b;
    memset(&b, 0, sizeof b);
    CHECK_EQ(gs_cond_wait(&b.c, &b.m, GS_FOREVER), -EPERM);
    CHECK_EQ(gs_mutex_trylock(&b.m), 0);
    unlock(&b);
}

/* ---- No signal is lost, none is doubled ---- */

static void wait_impatiently(void *arg)
{
    struct box *b = arg;
    lock(b);
    b->waiting++;
    CHECK_EQ(gs_cond_wait(&b->c, &b->m, gs_after_ms(1)), -ETIMEDOUT);
    b->waiting--;
    unlock(b);
}

GO_TEST(a_signal_goes_to_one_that_still_waits)
{
    struct box b;
    gs_g *gs[21];
    int i;
    memset(&b, 0, sizeof b);
    for (i = 0; i < 20; i++)
        gs[i] = go_ref(wait_impatiently, &b);
    for (i = 0; i < 20; i++)
        join(gs[i]);
    CHECK_EQ(b.waiting, 0);
    gs[20] = go_ref(wait_once, &b);
    WAIT_UNTIL(read_under_lock(&b, &b.waiting) == 1);
    CHECK_EQ(gs_cond_signal(&b.c), 0);
    join(gs[20]);
}

/* A signal that meets a deadline is either taken, or still there for the next. */
static void take_a_permit(void *arg)
{
    struct box *b = arg;
    int i;
    for (i = 0; i < 300; i++) {
        lock(b);
        while (b->go_on == 0) {
            int r = gs_cond_wait(&b->c, &b->m, gs_after_us(50 + i % 30));
            CHECK(r == 0 || r == -ETIMEDOUT);
        }
        b->go_on--;
        b->woken++;
        unlock(b);
    }
}

GO_TEST(signals_and_deadlines_race)
{
    struct box b;
    gs_g *gs[4];
    int i;
    memset(&b, 0, sizeof b);
    for (i = 0; i < 4; i++)
        gs[i] = go_ref(take_a_permit, &b);
    for (i = 0; i < 1200; i++) {
        lock(&b);
        b.go_on++;
        unlock(&b);
        CHECK_EQ(gs_cond_signal(&b.c), 0);
        if (i % 10 == 0)
            gs_yield();
    }
    for (i = 0; i < 4; i++)
        join(gs[i]);
    CHECK_EQ(b.woken, 1200);
    CHECK_EQ(b.go_on, 0);
}

/* A bounded queue with two conditions, and waits without a deadline: a lost signal hangs it. */
struct queue {
    gs_mutex m;
    gs_cond not_empty, not_full;
    int items[8], head, len, closed;
    long sum;
};

static void put(struct queue *q, int v)
{
    CHECK_EQ(gs_mutex_lock(&q->m, GS_FOREVER), 0);
    while (q->len == 8)
        CHECK_EQ(gs_cond_wait(&q->not_full, &q->m, GS_FOREVER), 0);
    q->items[(q->head + q->len++) % 8] = v;
    CHECK_EQ(gs_cond_signal(&q->not_empty), 0);
    CHECK_EQ(gs_mutex_unlock(&q->m), 0);
}

static int get(struct queue *q, int *v)
{
    int have;
    CHECK_EQ(gs_mutex_lock(&q->m, GS_FOREVER), 0);
    while (q->len == 0 && !q->closed)
        CHECK_EQ(gs_cond_wait(&q->not_empty, &q->m, GS_FOREVER), 0);
    have = q->len > 0;
    if (have) {
        *v = q->items[q->head];
        q->head = (q->head + 1) % 8;
        q->len--;
        CHECK_EQ(gs_cond_signal(&q->not_full), 0);
    }
    CHECK_EQ(gs_mutex_unlock(&q->m), 0);
    return have;
}

static void producer(void *arg)
{
    int i;
    for (i = 1; i <= 1000; i++)
        put(arg, i);
}

static void consumer(void *arg)
{
    struct queue *q = arg;
    long sum = 0;
    int v = 0;
    while (get(q, &v))
        sum += v;
    ADD(q->sum, sum);
}

static void *producer_thread(void *arg)
{
    producer(arg);
    return NULL;
}

static void *consumer_thread(void *arg)
{
    consumer(arg);
    return NULL;
}

TEST(a_bounded_queue_between_goroutines_and_threads)
{
    static struct queue q;
    gs_g *producers[4], *consumers[4];
    pthread_t tp, tc;
    int i;
    for (i = 0; i < 4; i++) {
        consumers[i] = go_ref(consumer, &q);
        producers[i] = go_ref(producer, &q);
    }
    tc = start_thread(consumer_thread, &q);
    tp = start_thread(producer_thread, &q);
    for (i = 0; i < 4; i++)
        join(producers[i]);
    join_thread(tp);
    CHECK_EQ(gs_mutex_lock(&q.m, GS_FOREVER), 0);
    q.closed = 1;
    CHECK_EQ(gs_cond_broadcast(&q.not_empty), 0);
    CHECK_EQ(gs_mutex_unlock(&q.m), 0);
    for (i = 0; i < 4; i++)
        join(consumers[i]);
    join_thread(tc);
    CHECK_EQ(q.sum, 5L * 1000 * 1001 / 2);
}

/* Go's TestRace for Cond: one signals the other back and forth. */
static struct box duel;
static int turn;

static void take_turns(void *arg)
{
    int me = (int)(intptr_t)arg, i;
    for (i = 0; i < 1000; i++) {
        lock(&duel);
        while (turn != me)
            CHECK_EQ(gs_cond_wait(&duel.c, &duel.m, GS_FOREVER), 0);
        turn = !me;
        CHECK_EQ(gs_cond_signal(&duel.c), 0);
        unlock(&duel);
    }
}

GO_TEST(two_take_turns)
{
    gs_g *a = go_ref(take_turns, (void *)0), *b = go_ref(take_turns, (void *)1);
    join(a);
    join(b);
}
