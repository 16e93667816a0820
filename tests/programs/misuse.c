/* NULL and nonsense for every function: an error, no crash, and nothing half done. */
#include "check.h"

static void nothing(void *arg)
{
    (void)arg;
}

/* Each block of checks runs on a plain thread and in a goroutine. */
#define BOTH(name)                     \
    static void check_##name(void);    \
    TEST(name##_on_a_thread)           \
    {                                  \
        check_##name();                \
    }                                  \
    GO_TEST(name##_in_a_goroutine)     \
    {                                  \
        check_##name();                \
    }                                  \
    static void check_##name(void)

BOTH(goroutine_calls)
{
    gs_g *g = NULL;
    CHECK_EQ(gs_spawn(NULL, NULL), -EINVAL);
    CHECK_EQ(gs_spawn_with(NULL, NULL, NULL, &g), -EINVAL);
    CHECK_EQ(gs_join(NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_join(NULL, GS_NOWAIT), -EINVAL);
    CHECK_EQ(gs_cancel(NULL), -EINVAL);
    CHECK(gs_retain(NULL) == NULL);
    gs_release(NULL);
    CHECK_EQ(gs_id(NULL), 0);
    CHECK_EQ(gs_key_create(NULL, NULL), -EINVAL);
    CHECK_EQ(gs_key_create(NULL, nothing), -EINVAL);
    CHECK_EQ(gs_key_delete((gs_key)-1), -EINVAL);
    CHECK_EQ(gs_setspecific((gs_key)-1, NULL), -EINVAL);
    CHECK(gs_getspecific((gs_key)-1) == NULL);
}

TEST(run_without_a_function)
{
    CHECK_EQ(gs_run(NULL, NULL), -EINVAL);
}

static void *exit_on_a_thread(void *arg)
{
    gs_exit(); /* there is no goroutine to end */
    return arg;
}

TEST(exit_on_a_plain_thread_does_no_harm)
{
    join_thread(start_thread(exit_on_a_thread, NULL));
    join(go_ref(nothing, NULL));
}

BOTH(channel_calls)
{
    gs_chan *ch = chan_of_ints(1);
    int64_t v = 1;
    CHECK_EQ(gs_chan_send(NULL, &v, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_chan_send(NULL, &v, GS_NOWAIT), -EINVAL);
    CHECK_EQ(gs_chan_send(NULL, NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_chan_recv(NULL, &v, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_chan_recv(NULL, NULL, 1), -EINVAL);
    CHECK_EQ(gs_chan_close(NULL), -EINVAL);
    CHECK_EQ(gs_chan_free(NULL), -EINVAL);
    CHECK_EQ(gs_chan_len(NULL), 0);
    CHECK_EQ(gs_chan_cap(NULL), 0);
    CHECK_EQ(gs_chan_send(ch, NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_chan_send(ch, NULL, GS_NOWAIT), -EINVAL);
    CHECK_EQ(gs_chan_len(ch), 0);
    CHECK_EQ(gs_chan_close(ch), 0);
    CHECK_EQ(gs_chan_send(ch, NULL, GS_NOWAIT), -EINVAL); /* bad input comes before the state */
    free_chan(ch);
}

BOTH(select_calls)
{
    gs_chan *ch = chan_of_ints(1);
    int64_t v = 1;
    gs_case c[2];
    CHECK_EQ(gs_select(NULL, 1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_select(NULL, 5, GS_NOWAIT), -EINVAL);
    c[0] = send_case(ch, &v);
    c[1] = send_case(ch, NULL);
    CHECK_EQ(gs_select(c, 2, GS_FOREVER), -EINVAL);
    c[1] = recv_case(ch, &v);
    c[1].op = 0;
    CHECK_EQ(gs_select(c, 2, GS_FOREVER), -EINVAL);
    c[1].op = INT_MIN;
    CHECK_EQ(gs_select(c, 2, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_chan_len(ch), 0);
    free_chan(ch);
}

BOTH(mutex_calls)
{
    CHECK_EQ(gs_mutex_lock(NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_mutex_lock(NULL, GS_NOWAIT), -EINVAL);
    CHECK_EQ(gs_mutex_trylock(NULL), -EINVAL);
    CHECK_EQ(gs_mutex_unlock(NULL), -EINVAL);
    CHECK_EQ(gs_rwmutex_lock(NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_rwmutex_rlock(NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_rwmutex_unlock(NULL), -EINVAL);
    CHECK_EQ(gs_rwmutex_runlock(NULL), -EINVAL);
}

BOTH(cond_calls)
{
    gs_mutex m;
    gs_cond c;
    memset(&m, 0, sizeof m);
    memset(&c, 0, sizeof c);
    CHECK_EQ(gs_mutex_lock(&m, GS_FOREVER), 0);
    CHECK_EQ(gs_cond_wait(NULL, &m, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_cond_wait(&c, NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_cond_wait(NULL, NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_mutex_trylock(&m), -EBUSY); /* still held */
    CHECK_EQ(gs_mutex_unlock(&m), 0);
    CHECK_EQ(gs_cond_signal(NULL), -EINVAL);
    CHECK_EQ(gs_cond_broadcast(NULL), -EINVAL);
}

BOTH(waitgroup_sem_and_once_calls)
{
    gs_sem s;
    gs_once o;
    memset(&o, 0, sizeof o);
    CHECK_EQ(gs_waitgroup_add(NULL, 1), -EINVAL);
    CHECK_EQ(gs_waitgroup_done(NULL), -EINVAL);
    CHECK_EQ(gs_waitgroup_wait(NULL, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_sem_init(NULL, 1), -EINVAL);
    CHECK_EQ(gs_sem_acquire(NULL, 1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_sem_release(NULL, 1), -EINVAL);
    CHECK_EQ(gs_sem_init(&s, -1), -EINVAL);
    CHECK_EQ(gs_sem_init(&s, 1), 0);
    CHECK_EQ(gs_sem_acquire(&s, -1, GS_FOREVER), -EINVAL);
    CHECK_EQ(gs_sem_release(&s, -1), -EINVAL);
    CHECK_EQ(gs_sem_acquire(&s, 1, GS_NOWAIT), 0);
    CHECK_EQ(gs_once_do(NULL, nothing, NULL), -EINVAL);
    CHECK_EQ(gs_once_do(NULL, NULL, NULL), -EINVAL);
    CHECK_EQ(gs_once_do(&o, NULL, NULL), -EINVAL);
}

BOTH(timer_calls)
{
    CHECK(gs_timer_start(MS, NULL, NULL) == NULL);
    CHECK_EQ(gs_timer_stop(NULL), -EINVAL);
    CHECK_EQ(gs_timer_reset(NULL, MS), -EINVAL);
    CHECK_EQ(gs_timer_free(NULL), -EINVAL);
    CHECK_EQ(gs_ticker_stop(NULL), -EINVAL);
    CHECK(gs_ticker_start(0) == NULL);
}

BOTH(thread_calls)
{
    int x;
    CHECK(gs_blocking(NULL, &x) == NULL);
    CHECK_GE(gs_gomaxprocs(INT_MIN), 1);
    CHECK_GE(gs_set_max_threads(INT_MIN), 1);
}

/* Any number below 0 that isn't GS_FOREVER is a deadline that has passed, or bad input; it never waits. */
BOTH(negative_deadlines)
{
    static const int64_t odd[] = {-2, -1000, INT64_MIN};
    gs_chan *ch = chan_of_ints(0);
    int64_t v;
    size_t i;
    for (i = 0; i < LENGTH(odd); i++) {
        int r = gs_chan_recv(ch, &v, odd[i]);
        CHECK(r == -EINVAL || r == -ETIMEDOUT);
        r = gs_select(NULL, 0, odd[i]);
        CHECK(r == -EINVAL || r == -ETIMEDOUT);
    }
    free_chan(ch);
}
