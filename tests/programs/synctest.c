/*
 * The examples of Go's testing/synctest (example_test.go), in bubbles. What synctest.Wait does, a sleep of a nanosecond
 * does here: the clock moves only when all others wait.
 */
#include "check.h"

static void wait_for_others(void)
{
    CHECK_EQ(gs_sleep(1), 0);
}

static void in_bubbles(gs_fn f)
{
    gs_test_opts o = {.size = sizeof o};
    CHECK_EQ(gs_test_explore(f, NULL, &o, 200), 200);
}

/* ---- Example_contextAfterFunc ---- */

static int is_called;

static void after_cancel(void *done)
{
    int64_t v;
    CHECK_EQ(gs_chan_recv(done, &v, GS_FOREVER), -EPIPE);
    is_called = 1;
}

static void after_func(void *arg)
{
    gs_chan *done = chan_of_ints(0);
    gs_g *g;
    (void)arg;
    is_called = 0;
    g = go_ref(after_cancel, done);
    wait_for_others();
    CHECK(!is_called); /* before the context is cancelled */
    CHECK_EQ(gs_chan_close(done), 0);
    wait_for_others();
    CHECK(is_called); /* after it was cancelled */
    join(g);
    free_chan(done);
}

TEST(context_after_func)
{
    in_bubbles(after_func);
}

/* ---- Example_contextWithTimeout ---- */

static int has_expired;

static void expire(void *arg)
{
    (void)arg;
    has_expired = 1;
}

static void with_timeout(void *arg)
{
    const int64_t timeout = 5 * SEC;
    gs_timer *t;
    (void)arg;
    has_expired = 0;
    t = gs_timer_start(timeout, expire, NULL);
    CHECK(t != NULL);
    CHECK_EQ(gs_sleep(timeout - 1), 0); /* just less than the timeout */
    CHECK(!has_expired);
    CHECK_EQ(gs_sleep(1), 0); /* the rest of the way */
    wait_for_others();
    CHECK(has_expired);
    CHECK_EQ(gs_timer_free(t), 0);
}

TEST(context_with_timeout)
{
    in_bubbles(with_timeout);
}

/* ---- Example_httpTransport100Continue: the client sends its body only once the server wants it ---- */

static int ends[2];
static char got[256];
static size_t got_bytes;

static void write_all(int fd, const char *text)
{
    size_t n = strlen(text);
    CHECK_EQ(gs_write(fd, text, n, GS_FOREVER), (ssize_t)n);
}

static void client(void *arg)
{
    char answer[64];
    ssize_t n;
    (void)arg;
    write_all(ends[0], "PUT / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n");
    n = gs_read(ends[0], answer, sizeof answer, gs_after_ms(5000));
    CHECK(n > 0 && memcmp(answer, "HTTP/1.1 100", 12) == 0);
    write_all(ends[0], "request body");
    n = gs_read(ends[0], answer, sizeof answer, GS_FOREVER);
    CHECK(n > 0 && memcmp(answer, "HTTP/1.1 200", 12) == 0);
    CHECK_EQ(gs_close(ends[0]), 0);
}

static void server(void *arg)
{
    ssize_t n;
    (void)arg;
    while ((n = gs_read(ends[1], got + got_bytes, sizeof got - 1 - got_bytes, GS_FOREVER)) > 0)
        got[got_bytes += (size_t)n] = 0;
    CHECK_EQ(gs_close(ends[1]), 0);
}

static void expect_continue(void *arg)
{
    gs_g *c, *s;
    (void)arg;
    got_bytes = 0;
    CHECK_EQ(gs_unix_pair(ends), 0);
    c = go_ref(client, NULL);
    s = go_ref(server, NULL);
    wait_for_others();
    CHECK(strstr(got, "\r\n\r\n") != NULL);
    CHECK(strstr(got, "body") == NULL); /* not yet */
    write_all(ends[1], "HTTP/1.1 100 Continue\r\n\r\n");
    wait_for_others();
    CHECK(strstr(got, "request body") != NULL);
    write_all(ends[1], "HTTP/1.1 200 OK\r\n\r\n");
    join(c);
    join(s);
}

TEST(http_100_continue)
{
    in_bubbles(expect_continue);
}

/* ---- What its documentation says of time ---- */

static void starts_over(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_now(), SEC);
    CHECK_EQ(gs_sleep(24 * 3600 * SEC), 0);
    CHECK_EQ(gs_now(), SEC + 24 * 3600 * SEC);
}

TEST(each_bubble_begins_at_the_same_time)
{
    in_bubbles(starts_over);
}

/* Goroutines that sleep for the same time wake at the same time, in any order; those that sleep less come first. */
static int64_t woke[3];
static int order[3], woken;

static void sleep_for(void *arg)
{
    int i = (int)(intptr_t)arg;
    CHECK_EQ(gs_sleep((i + 1) * SEC), 0);
    woke[i] = gs_now();
    order[woken++] = i;
}

static void three_sleepers(void *arg)
{
    gs_g *g[3];
    int i;
    (void)arg;
    woken = 0;
    for (i = 2; i >= 0; i--)
        g[i] = go_ref(sleep_for, (void *)(intptr_t)i);
    for (i = 0; i < 3; i++)
        join(g[i]);
    for (i = 0; i < 3; i++) {
        CHECK_EQ(woke[i], (i + 2) * SEC);
        CHECK_EQ(order[i], i);
    }
}

TEST(time_is_in_order)
{
    in_bubbles(three_sleepers);
}

/* ---- Mutexes and files count, unlike Go's ---- */

static void hold_and_sleep(void *m)
{
    CHECK_EQ(gs_mutex_lock(m, GS_FOREVER), 0);
    CHECK_EQ(gs_sleep(3600 * SEC), 0);
    CHECK_EQ(gs_mutex_unlock(m), 0);
}

static void a_mutex_counts(void *arg)
{
    static gs_mutex m;
    int64_t before = gs_now();
    memset(&m, 0, sizeof m);
    (void)arg;
    go(hold_and_sleep, &m);
    wait_for_others();
    CHECK_EQ(gs_mutex_lock(&m, GS_FOREVER), 0);
    CHECK_EQ(gs_now() - before, 3600 * SEC);
}

TEST(waiting_for_a_mutex_lets_time_pass)
{
    in_bubbles(a_mutex_counts);
}
