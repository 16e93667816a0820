/* gs_rwmutex: shared readers, exclusive writers, writer preference, misuse, deadlines. */
#include "check.h"

static gs_rwmutex zero; /* all bytes zero: valid */

static void rlock(gs_rwmutex *rw)
{
    CHECK_EQ(gs_rwmutex_rlock(rw, GS_FOREVER), 0);
}

static void runlock(gs_rwmutex *rw)
{
    CHECK_EQ(gs_rwmutex_runlock(rw), 0);
}

static void wlock(gs_rwmutex *rw)
{
    CHECK_EQ(gs_rwmutex_lock(rw, GS_FOREVER), 0);
}

static void wunlock(gs_rwmutex *rw)
{
    CHECK_EQ(gs_rwmutex_unlock(rw), 0);
}

static void check_free(gs_rwmutex *rw)
{
    CHECK_EQ(gs_rwmutex_lock(rw, GS_NOWAIT), 0);
    wunlock(rw);
}

/* ---- One caller ---- */

static void check_basics(void)
{
    gs_rwmutex rw;
    memset(&rw, 0, sizeof rw);
    rlock(&rw);
    CHECK_EQ(gs_rwmutex_rlock(&rw, GS_NOWAIT), 0); /* readers share */
    CHECK_EQ(gs_rwmutex_lock(&rw, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_rwmutex_lock(&rw, 1), -ETIMEDOUT);
    runlock(&rw);
    CHECK_EQ(gs_rwmutex_lock(&rw, GS_NOWAIT), -EAGAIN);
    runlock(&rw);
    CHECK_EQ(gs_rwmutex_lock(&rw, 1), 0); /* at once, though the deadline has passed */
    CHECK_EQ(gs_rwmutex_lock(&rw, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_rwmutex_rlock(&rw, GS_NOWAIT), -EAGAIN);
    CHECK_EQ(gs_rwmutex_rlock(&rw, 1), -ETIMEDOUT);
    wunlock(&rw);
    CHECK_EQ(gs_rwmutex_rlock(&rw, 1), 0);
    runlock(&rw);
    check_free(&rw);
}

GO_TEST(zero_bytes_are_an_unlocked_rwmutex)
{
    check_basics();
}

TEST(a_plain_thread_can_use_an_rwmutex)
{
    check_basics();
}

GO_TEST(unlocking_what_is_not_locked_is_EPERM)
{
    CHECK_EQ(gs_rwmutex_unlock(&zero), -EPERM);
    CHECK_EQ(gs_rwmutex_runlock(&zero), -EPERM);
    rlock(&zero);
    CHECK_EQ(gs_rwmutex_unlock(&zero), -EPERM); /* locked, but not for writing */
    runlock(&zero);
    CHECK_EQ(gs_rwmutex_runlock(&zero), -EPERM);
    wlock(&zero);
    CHECK_EQ(gs_rwmutex_runlock(&zero), -EPERM); /* locked, but not for reading */
    CHECK_EQ(gs_rwmutex_rlock(&zero, GS_NOWAIT), -EAGAIN);
    wunlock(&zero);
    CHECK_EQ(gs_rwmutex_unlock(&zero), -EPERM);
    check_free(&zero);
}

static void wunlock_it(void *rw)
{
    wunlock(rw);
}

static void runlock_it(void *rw)
{
    runlock(rw);
}

GO_TEST(any_goroutine_may_unlock)
{
    wlock(&zero);
    join(go_ref(wunlock_it, &zero));
    rlock(&zero);
    join(go_ref(runlock_it, &zero));
    check_free(&zero);
}

/* ---- Readers together, writers alone ---- */

static int readers, writers, most_readers, finished;
static long value[2];

static void read_once(void)
{
    rlock(&zero);
    ADD(readers, 1);
    CHECK_EQ(GET(writers), 0);
    CHECK_EQ(value[0], value[1]);
    gs_yield();
    CHECK_EQ(GET(writers), 0);
    CHECK_EQ(value[0], value[1]);
    ADD(readers, -1);
    runlock(&zero);
}

static void write_once(void)
{
    wlock(&zero);
    CHECK_EQ(ADD(writers, 1), 1);
    CHECK_EQ(GET(readers), 0);
    value[0]++;
    gs_yield();
    value[1]++;
    CHECK_EQ(GET(readers), 0);
    CHECK_EQ(ADD(writers, -1), 0);
    wunlock(&zero);
}

static void read_often(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 500; i++)
        read_once();
}

static void write_often(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 200; i++)
        write_once();
}

static void *read_often_in_thread(void *arg)
{
    read_often(arg);
    return NULL;
}

static void *write_often_in_thread(void *arg)
{
    write_often(arg);
    return NULL;
}

TEST(writers_exclude_readers_and_each_other)
{
    gs_g *gs[16];
    pthread_t t[4];
    int i;
    value[0] = value[1] = 0;
    for (i = 0; i < 16; i++)
        gs[i] = go_ref(i % 4 ? read_often : write_often, NULL);
    for (i = 0; i < 4; i++)
        t[i] = start_thread(i % 2 ? read_often_in_thread : write_often_in_thread, NULL);
    for (i = 0; i < 16; i++)
        join(gs[i]);
    for (i = 0; i < 4; i++)
        join_thread(t[i]);
    CHECK_EQ(value[0], 6 * 200);
    CHECK_EQ(value[1], 6 * 200);
    check_free(&zero);
}

static void read_and_wait_for_all(void *all)
{
    rlock(&zero);
    ADD(most_readers, 1);
    WAIT_UNTIL(GET(most_readers) == *(int *)all); /* hangs unless all hold it at once */
    runlock(&zero);
}

GO_TEST(any_number_of_readers_hold_it_at_once)
{
    gs_g *gs[100];
    int all = 100, i;
    SET(most_readers, 0);
    for (i = 0; i < all; i++)
        gs[i] = go_ref(read_and_wait_for_all, &all);
    for (i = 0; i < all; i++)
        join(gs[i]);
    check_free(&zero);
}

/* ---- Writer preference ---- */

static void write_and_finish(void *arg)
{
    (void)arg;
    wlock(&zero);
    CHECK_EQ(GET(finished), 0); /* the reader that came later has not been let in */
    SET(finished, 1);
    wunlock(&zero);
}

static void read_after_writer(void *arg)
{
    (void)arg;
    rlock(&zero);
    CHECK_EQ(GET(finished), 1);
    runlock(&zero);
}

/* Whether a writer waits: then a new reader is not let in. */
static int a_writer_waits(void)
{
    int r = gs_rwmutex_rlock(&zero, GS_NOWAIT);
    if (r == 0)
        runlock(&zero);
    else
        CHECK_EQ(r, -EAGAIN);
    return r != 0;
}

static void wait_for_waiting_writer(void)
{
    WAIT_UNTIL(a_writer_waits());
}

GO_TEST(new_readers_wait_while_a_writer_waits)
{
    gs_g *w, *r[5];
    int i;
    SET(finished, 0);
    rlock(&zero);
    w = go_ref(write_and_finish, NULL);
    wait_for_waiting_writer();
    CHECK_EQ(gs_rwmutex_rlock(&zero, 1), -ETIMEDOUT);
    for (i = 0; i < 5; i++)
        r[i] = go_ref(read_after_writer, NULL);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(GET(finished), 0);
    runlock(&zero);
    join(w);
    for (i = 0; i < 5; i++)
        join(r[i]);
    check_free(&zero);
}

static void write_impatiently(void *deadline)
{
    CHECK_EQ(gs_rwmutex_lock(&zero, *(int64_t *)deadline), -ETIMEDOUT);
    CHECK_GE(gs_now(), *(int64_t *)deadline);
}

static void just_read(void *arg)
{
    (void)arg;
    rlock(&zero);
    ADD(finished, 1);
    runlock(&zero);
}

GO_TEST(a_writer_that_times_out_lets_the_readers_in)
{
    gs_g *w, *r[5];
    int64_t deadline;
    int i;
    SET(finished, 0);
    rlock(&zero);
    deadline = gs_after_ms(20);
    w = go_ref(write_impatiently, &deadline);
    for (i = 0; i < 5; i++)
        r[i] = go_ref(just_read, NULL);
    join(w);
    for (i = 0; i < 5; i++)
        join(r[i]); /* while the first reader still holds it */
    CHECK_EQ(finished, 5);
    rlock(&zero);
    runlock(&zero);
    runlock(&zero);
    check_free(&zero);
}

static void write_until_cancelled(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_rwmutex_lock(&zero, GS_FOREVER), -ECANCELED);
}

GO_TEST(a_writer_that_is_cancelled_lets_the_readers_in)
{
    gs_g *w, *r[5];
    int i;
    SET(finished, 0);
    rlock(&zero);
    w = go_ref(write_until_cancelled, NULL);
    wait_for_waiting_writer();
    for (i = 0; i < 5; i++)
        r[i] = go_ref(just_read, NULL);
    CHECK_EQ(gs_cancel(w), 0);
    join(w);
    for (i = 0; i < 5; i++)
        join(r[i]);
    CHECK_EQ(finished, 5);
    runlock(&zero);
    check_free(&zero);
}

static void *write_impatiently_in_thread(void *deadline)
{
    write_impatiently(deadline);
    return NULL;
}

GO_TEST(a_thread_that_times_out_as_writer_lets_the_readers_in)
{
    int64_t deadline;
    pthread_t t;
    gs_g *r[5];
    int i;
    SET(finished, 0);
    rlock(&zero);
    deadline = gs_after_ms(20);
    t = start_thread(write_impatiently_in_thread, &deadline);
    for (i = 0; i < 5; i++)
        r[i] = go_ref(just_read, NULL);
    for (i = 0; i < 5; i++)
        join(r[i]);
    go_join_thread(t);
    runlock(&zero);
    check_free(&zero);
}

/* One of two waiting writers gives up: the readers go on waiting for the other. */
GO_TEST(readers_wait_for_the_writer_that_stays)
{
    gs_g *stays, *leaves, *r;
    SET(finished, 0);
    rlock(&zero);
    stays = go_ref(write_and_finish, NULL);
    wait_for_waiting_writer();
    leaves = go_ref(write_until_cancelled, NULL);
    CHECK_EQ(gs_sleep(MS), 0);
    r = go_ref(read_after_writer, NULL);
    CHECK_EQ(gs_cancel(leaves), 0);
    join(leaves);
    CHECK_EQ(gs_rwmutex_rlock(&zero, GS_NOWAIT), -EAGAIN);
    runlock(&zero);
    join(stays);
    join(r);
    check_free(&zero);
}

/* As in Go, the readers that wait when a writer unlocks go before the next writer: no waiter starves. */
static int stop;

static void write_until_stopped(void *arg)
{
    (void)arg;
    while (!GET(stop)) {
        wlock(&zero);
        gs_yield();
        wunlock(&zero);
    }
}

static void read_until_stopped(void *arg)
{
    (void)arg;
    while (!GET(stop)) {
        rlock(&zero);
        gs_yield();
        runlock(&zero);
    }
}

static void read_then_stop(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 10; i++)
        read_once();
    SET(stop, 1);
}

static void write_then_stop(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < 10; i++)
        write_once();
    SET(stop, 1);
}

static void starve(gs_fn many, gs_fn one)
{
    gs_g *gs[6];
    int i;
    SET(stop, 0);
    for (i = 0; i < 6; i++)
        gs[i] = go_ref(many, NULL);
    join(go_ref(one, NULL));
    for (i = 0; i < 6; i++)
        join(gs[i]);
    check_free(&zero);
}

GO_TEST(a_reader_is_not_starved_by_writers)
{
    starve(write_until_stopped, read_then_stop);
}

GO_TEST(a_writer_is_not_starved_by_readers)
{
    starve(read_until_stopped, write_then_stop);
}

/* With one P the reader never runs between an unlock and the next lock, so it would be overtaken for ever. */
GO_TEST(a_woken_reader_is_overtaken_a_few_times_only)
{
    int procs = gs_gomaxprocs(1), times = 0;
    gs_g *r;
    SET(finished, 0);
    wlock(&zero);
    r = go_ref(just_read, NULL);
    do {
        gs_yield(); /* the reader queues */
        wunlock(&zero);
        CHECK_LE(times, 100);
        times++;
    } while (gs_rwmutex_lock(&zero, GS_NOWAIT) == 0);
    join(r);
    CHECK_EQ(finished, 1);
    gs_gomaxprocs(procs);
    check_free(&zero);
}

/* ---- Deadlines under load ---- */

static void impatient(void *arg)
{
    uint64_t r = (uint64_t)(uintptr_t)arg + 1;
    int i;
    for (i = 0; i < 800; i++) {
        int64_t deadline = gs_after_us((int64_t)(random_next(&r) % 20));
        if (random_next(&r) % 4) {
            if (gs_rwmutex_rlock(&zero, deadline) != 0)
                continue;
            CHECK_EQ(value[0], value[1]);
            gs_yield();
            CHECK_EQ(value[0], value[1]);
            runlock(&zero);
        } else if (gs_rwmutex_lock(&zero, deadline) == 0) {
            value[0]++;
            gs_yield();
            value[1]++;
            wunlock(&zero);
        }
    }
}

static void *impatient_thread(void *arg)
{
    impatient(arg);
    return NULL;
}

TEST(deadlines_under_load_leave_it_whole)
{
    gs_g *gs[12];
    pthread_t t[2];
    intptr_t i;
    value[0] = value[1] = 0;
    for (i = 0; i < 12; i++)
        gs[i] = go_ref(impatient, (void *)i);
    for (i = 0; i < 2; i++)
        t[i] = start_thread(impatient_thread, (void *)(100 + i));
    for (i = 0; i < 12; i++)
        join(gs[i]);
    for (i = 0; i < 2; i++)
        join_thread(t[i]);
    CHECK_EQ(value[0], value[1]);
    check_free(&zero);
}

static int64_t soon;

static void write_until_soon(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_rwmutex_lock(&zero, soon), -ETIMEDOUT);
}

/* The writer has timed out, but doesn't run. The readers must get in while the first one reads. */
GO_TEST(a_writer_that_times_out_and_does_not_run_lets_the_readers_in)
{
    gs_g *w, *r[5];
    int i;
    SET(finished, 0);
    rlock(&zero);
    soon = gs_after_ms(50);
    w = go_idle(write_until_soon, NULL);
    WAIT_UNTIL(a_writer_waits() || gs_now() >= soon); /* else the machine stood still, and the readers get in anyway */
    for (i = 0; i < 5; i++)
        r[i] = go_ref(just_read, NULL);
    CHECK_EQ(gs_sleep(MS), 0);
    start_busy_loops();
    for (i = 0; i < 5; i++)
        join(r[i]);
    rlock(&zero);
    runlock(&zero);
    end_busy_loops();
    join(w);
    CHECK_EQ(finished, 5);
    runlock(&zero);
    check_free(&zero);
}

GO_TEST(a_writer_that_is_cancelled_and_does_not_run_lets_the_readers_in)
{
    gs_g *w, *r;
    SET(finished, 0);
    rlock(&zero);
    w = go_idle(write_until_cancelled, NULL);
    wait_for_waiting_writer();
    r = go_ref(just_read, NULL);
    CHECK_EQ(gs_sleep(MS), 0);
    start_busy_loops();
    CHECK_EQ(gs_cancel(w), 0);
    join(r);
    end_busy_loops();
    join(w);
    runlock(&zero);
    check_free(&zero);
}
