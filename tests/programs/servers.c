/*
 * The code of examples-c/echod.c and examples-c/respd.c (-DRESPD) with clients that try again, over a network that
 * loses, delays, cuts, resets and refuses: a connection that has fallen silent is closed in time, and what comes back is
 * what was asked for. Most of an hour passes in each of 10,000 runs (SERVERS_RUNS).
 */
#define main example_main
#ifdef RESPD
#include "../../examples-c/respd.c"
#else
#include "../../examples-c/echod.c"
#endif
#undef main
#define fail test_fail
#define number test_number
#define server test_server
#define all test_all
#include "check.h"
#undef server
#undef all

enum { CLIENTS = 4, REQUESTS = 5, PORT = 7007 };
#ifdef RESPD
enum { CUT = 0 };
#else
enum { CUT = 5 };
#endif

static int listener;
static int answered, tried;

static void serve_it(void *arg)
{
    connection c = {.fd = (int)(intptr_t)arg, .peer = -1};
    the_server.serve(&c);
    gs_close(c.fd);
}

static void accept_them(void *arg)
{
    int fd;
    (void)arg;
    while ((fd = gs_accept(listener, NULL, NULL, GS_FOREVER)) >= 0)
        go(serve_it, (void *)(intptr_t)fd);
    CHECK_EQ(fd, -ECANCELED);
}

static int write_out(int fd, const char *text, size_t n, int64_t deadline)
{
    while (n > 0) {
        ssize_t w = gs_write(fd, text, n, deadline);
        if (w < 0)
            return (int)w;
        text += w;
        n -= (size_t)w;
    }
    return 0;
}

static int read_in(int fd, char *text, size_t n, int64_t deadline)
{
    while (n > 0) {
        ssize_t r = gs_read(fd, text, n, deadline);
        if (r <= 0)
            return r < 0 ? (int)r : -EPIPE;
        text += r;
        n -= (size_t)r;
    }
    return 0;
}

/* One request on a connection. 0, or why there was no answer. */
static int ask_once(int fd, int client, int nth)
{
    char request[100], wanted[100], reply[100];
    int64_t deadline = gs_after_ms(20 * 1000);
    int n, w, r;
#ifdef RESPD
    char key[20], value[20];
    int k = snprintf(key, sizeof key, "key%d", client), v = snprintf(value, sizeof value, "value%d", nth);
    n = snprintf(request, sizeof request, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", k, key,
                 v, value, k, key);
    w = snprintf(wanted, sizeof wanted, "+OK\r\n$%d\r\n%s\r\n", v, value);
#else
    n = snprintf(request, sizeof request, "client %d, request %d\n", client, nth);
    w = snprintf(wanted, sizeof wanted, "%s", request);
#endif
    if ((r = write_out(fd, request, (size_t)n, deadline)) < 0 || (r = read_in(fd, reply, (size_t)w, deadline)) < 0)
        return r;
    if (memcmp(reply, wanted, (size_t)w) != 0)
        gs_test_fail("another answer");
    answered++;
    return 0;
}

/* A request that gets no answer is made again, on a new connection and after a pause. */
static void keep_asking(void *arg)
{
    int id = (int)(intptr_t)arg, fd = -1, nth = 0;
    int64_t pause = 10 * MS;
    while (nth < REQUESTS) {
        int r;
        tried++;
        if (fd < 0)
            fd = gs_tcp_connect("127.0.0.1", PORT, gs_after_ms(10 * 1000));
        r = fd < 0 ? fd : ask_once(fd, id, nth);
        if (r == 0) {
            nth++;
            continue;
        }
        if (fd >= 0)
            CHECK_EQ(gs_close(fd), 0);
        fd = -1;
        CHECK_EQ(gs_sleep(pause), 0);
        pause = pause < 100 * SEC ? 2 * pause : pause;
    }
    CHECK_EQ(gs_close(fd), 0);
}

static void server_and_clients(void *arg)
{
    gs_g *g[CLIENTS], *acceptor;
    int i;
    (void)arg;
    listener = gs_tcp_listen("127.0.0.1", PORT, 0);
    CHECK_GE(listener, 0);
    acceptor = go_ref(accept_them, NULL);
    for (i = 0; i < CLIENTS; i++)
        g[i] = go_ref(keep_asking, (void *)(intptr_t)i);
    for (i = 0; i < CLIENTS; i++)
        join(g[i]);
    CHECK_EQ(gs_close(listener), 0);
    join(acceptor);
    /* Connections that have fallen silent are left to the server's timeout. */
    CHECK_EQ(gs_sleep(3600 * SEC), 0);
}

TEST(a_server_outlives_its_network)
{
    const char *given = getenv("SERVERS_RUNS");
    uint64_t runs = given ? strtoull(given, NULL, 10) : 10000;
    gs_test_opts o = {.size = sizeof o, .max_steps = 10000000};
    /* respd leaves idle connections open, as Redis does by default: a connection that falls silent stays. */
    o.net = (gs_test_net){.jitter = 50 * MS, .loss = 30, .cut = CUT, .reset = 20, .refuse = 100, .short_io = 200};
    char *argv[] = {(char *)(uintptr_t)"example", (char *)(uintptr_t)"--help", NULL};
    CHECK_EQ(example_main(2, argv), 0); /* sets the_server */
#ifdef RESPD
    store_init((const uint64_t[2]){1, 2});
    index_commands();
#endif
    CHECK_EQ(gs_test_explore(server_and_clients, NULL, &o, runs), (int64_t)runs);
    printf("%d answers, %d attempts\n", answered, tried);
    CHECK_GE(tried, answered);
    CHECK_EQ((uint64_t)answered, runs * CLIENTS * REQUESTS);
}
