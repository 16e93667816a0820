/*
 * A bit of everything, then a shutdown: run under valgrind, nothing is left. Its only test runs on the
 * main thread, twice, because the second start uses what the first one has given back.
 */
#include "io.h"

static gs_chan *ch;
static gs_mutex mutex;
static gs_key key;
static long total, fired;

static void add(void *n)
{
    CHECK_EQ(gs_mutex_lock(&mutex, GS_FOREVER), 0);
    total += (intptr_t)n;
    CHECK_EQ(gs_mutex_unlock(&mutex), 0);
}

static void fire(void *arg)
{
    (void)arg;
    ADD(fired, 1);
}

static void send_one(void *n)
{
    CHECK_EQ(gs_setspecific(key, calloc(1, 16)), 0);
    gs_yield();
    send_int(ch, (intptr_t)n);
}

static void *spawn_from_thread(void *arg)
{
    intptr_t i;
    for (i = 0; i < 10; i++)
        go(send_one, (void *)i);
    return arg;
}

static void *nap_a_little(void *arg)
{
    nap(MS);
    return arg;
}

static void wait_for_ever(void *arg)
{
    CHECK_EQ(gs_chan_recv(arg, NULL, GS_FOREVER), -ECANCELED);
}

static void look_up(void)
{
    struct addrinfo *res = NULL;
    if (gs_getaddrinfo("localhost", NULL, NULL, &res, gs_after_us(50)) == 0)
        freeaddrinfo(res);
    res = NULL;
    CHECK_EQ(gs_getaddrinfo("127.0.0.1", "80", NULL, &res, GS_FOREVER), 0);
    freeaddrinfo(res);
}

static void use_files(void)
{
    size_t i;
    for (i = 0; i < LENGTH(all_pairs); i++) {
        int fds[2];
        struct reader r;
        gs_g *reader;
        char c;
        all_pairs[i](fds);
        CHECK_EQ(gs_read(fds[0], &c, 1, gs_after_ms(1)), -ETIMEDOUT);
        r = reader_of(fds[0], GS_FOREVER);
        reader = go_ref(read_byte, &r);
        gs_yield();
        CHECK_EQ(gs_write(fds[1], "x", 1, GS_FOREVER), 1);
        join(reader);
        CHECK_EQ(r.result, 1);
        r = reader_of(fds[0], GS_FOREVER);
        reader = go_ref(read_byte, &r);
        settle();
        CHECK_EQ(gs_close(fds[0]), 0);
        join(reader);
        CHECK_EQ(gs_close(fds[1]), 0);
    }
    look_up();
}

static void everything(void *arg)
{
    gs_chan *never = chan_of_ints(0), *after, *tick;
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    gs_timer *t;
    gs_g *g;
    intptr_t i;
    pthread_t thread;
    (void)arg;
    ch = chan_of_ints(3);
    for (i = 0; i < 100; i++)
        go(add, (void *)i);
    thread = start_thread(spawn_from_thread, NULL);
    for (i = 0; i < 10; i++)
        CHECK_GE(recv_int(ch), 0);
    go_join_thread(thread);

    o.name = "with a name and a large stack";
    o.stack_size = 4 << 20;
    o.priority = GS_PRIO_LOW;
    o.flags = GS_SPAWN_PINNED;
    join(go_opts(add, NULL, &o));

    g = go_ref(wait_for_ever, never);
    gs_yield();
    CHECK_EQ(gs_cancel(g), 0);
    join(g);

    t = gs_timer_start(MS, fire, NULL);
    CHECK(t != NULL);
    WAIT_UNTIL(GET(fired));
    CHECK_EQ(gs_timer_free(t), 0);
    after = gs_after(3600 * SEC); /* it is freed before it fires */
    tick = gs_ticker_start(MS);
    CHECK_EQ(gs_chan_recv(tick, NULL, GS_FOREVER), 0);
    free_chan(after);
    free_chan(tick);

    CHECK_EQ(gs_lock_os_thread(), 0);
    (void)gs_blocking(nap_a_little, NULL);
    CHECK_EQ(gs_unlock_os_thread(), 0);
    CHECK_GE(gs_gomaxprocs(4), 1);
    gs_yield();
    CHECK_EQ(gs_gomaxprocs(1), 4);
    use_files();
    free_chan(never);
    free_chan(ch);
}

TEST(everything_is_given_back)
{
    int round;
    CHECK_EQ(gs_key_create(&key, free), 0);
    for (round = 1; round <= 2; round++) {
        SET(fired, 0);
        CHECK_EQ(gs_run(everything, NULL), 0);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        CHECK_EQ(fired, 1);
        CHECK_EQ(total, round * 99 * 100 / 2);
    }
    CHECK_EQ(gs_key_delete(key), 0);
}
