/*
 * The servers of examples-c: httpd, or respd (-DRESPD). The input is what a client sends on one connection, over
 * the network of a bubble: once as a whole, and once in pieces, whose sizes come from the first byte; then the server's reads
 * and writes do less than they could, too. Neither the parsers nor what they call may touch memory that isn't theirs,
 * and both answers are the same. FUZZ_ROOT is the directory that httpd serves.
 */
#define main example_main
#ifdef RESPD
#include "../../examples-c/respd.c"
#else
#include "../../examples-c/httpd.c"
#endif
#undef main
#include "fuzz.h"

enum { ANSWER_MAX = 4 * 1024 * 1024, PORT = 7007 };

static struct conversation {
    const uint8_t *data;
    size_t n;
    uint64_t pieces;    /* 0: one piece */
    char *answer;       /* ANSWER_MAX bytes, of which the first `length` are there */
    size_t length;
} conversation;

static int listener, client_fd;

static void serve_one(void *arg)
{
    (void)arg;
    connection c = {.fd = gs_accept(listener, NULL, NULL, GS_FOREVER), .peer = -1};
    CHECK(c.fd >= 0);
    serve(&c);
    CHECK(gs_close(c.fd) == 0);
}

static void send_input(void *arg)
{
    struct conversation *v = arg;
    for (size_t at = 0; at < v->n;) {
        size_t n = v->n - at;
        if (v->pieces) {
            v->pieces = v->pieces * 6364136223846793005u + 1442695040888963407u;
            size_t piece = 1 + (size_t)(v->pieces >> 33) % 40;
            n = piece < n ? piece : n;
        }
        ssize_t sent = gs_write(client_fd, v->data + at, n, GS_FOREVER);
        if (sent < 0)
            return; /* the server has ended the connection */
        at += (size_t)sent;
        if (v->pieces)
            CHECK(gs_sleep(1000 * 1000) == 0);
    }
    (void)gs_shutdown_fd(client_fd, SHUT_WR);
}

static void converse(void *arg)
{
    struct conversation *v = arg;
    gs_g *server, *sender;
    char rest[4096];
    listener = gs_tcp_listen("127.0.0.1", PORT, 0);
    CHECK(listener >= 0);
    CHECK(gs_spawn_with(serve_one, NULL, NULL, &server) == 0);
    client_fd = gs_tcp_connect("127.0.0.1", PORT, GS_FOREVER);
    CHECK(client_fd >= 0);
    CHECK(gs_spawn_with(send_input, v, NULL, &sender) == 0);
    for (;;) {
        bool fits = v->length < ANSWER_MAX;
        ssize_t n = fits ? gs_read(client_fd, v->answer + v->length, ANSWER_MAX - v->length, GS_FOREVER)
                         : gs_read(client_fd, rest, sizeof rest, GS_FOREVER);
        if (n <= 0)
            break;
        v->length += fits ? (size_t)n : 0;
    }
    CHECK(gs_join(sender, GS_FOREVER) == 0);
    CHECK(gs_close(client_fd) == 0);
    CHECK(gs_join(server, GS_FOREVER) == 0);
    gs_release(sender);
    gs_release(server);
    CHECK(gs_close(listener) == 0);
}

/* What a client gets. */
static size_t answer_to(const uint8_t *data, size_t n, uint64_t pieces, char *answer)
{
    gs_test_opts opts = {.size = sizeof opts, .seed = 1 + pieces, .max_steps = 10000000};
    opts.schedule = pieces ? GS_TEST_RANDOM : GS_TEST_ROUND_ROBIN;
    opts.net.short_io = pieces ? 200 : 0;
    conversation = (struct conversation){.data = data, .n = n, .pieces = pieces, .answer = answer};
#ifdef RESPD
    store_clear();
    last_id = 0;
#endif
    requests = 0;
    int err = gs_test_run(converse, &conversation, &opts);
    if (err != 0)
        FAIL("gs_test_run: %d (%s)", err, gs_strerror(err));
#ifndef RESPD
    /* The time. */
    for (size_t i = 0; i + 37 < conversation.length; i++)
        if (memcmp(answer + i, "\r\nDate: ", 8) == 0)
            memset(answer + i + 8, '#', 29);
#endif
    return conversation.length;
}

static char whole[ANSWER_MAX], in_pieces[ANSWER_MAX];

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    char *help_me[] = {(char *)(uintptr_t)"example", (char *)(uintptr_t)"--help", NULL};
    CHECK(example_main(2, help_me) == 0); /* sets the_server */
    optind = 1;
#ifdef RESPD
    store_init((const uint64_t[2]){1, 2});
    index_commands();
#else
    const char *directory = getenv("FUZZ_ROOT");
    root = open(directory ? directory : ".", O_RDONLY | O_DIRECTORY);
    CHECK(root >= 0);
#endif
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    size_t first = answer_to(data + 1, n - 1, 0, whole);
    size_t second = answer_to(data + 1, n - 1, 1 + (uint64_t)data[0], in_pieces);
    size_t same = 0;
    while (same < first && same < second && whole[same] == in_pieces[same])
        same++;
    if (first != second || same < first)
        FAIL("answers of %zu and %zu bytes differ at %zu:\n%.*s\n---\n%.*s", first, second, same, (int)(first - same),
             whole + same, (int)(second - same), in_pieces + same);
    return 0;
}
