/*
 * Dumps: gs_dump, gs_dump_json, gs_dump_pprof, and the dump on SIGQUIT. Each goroutine's functions have their
 * names, wherever it waits or runs, with and without frame pointers and debug information, and the world
 * goes on meanwhile.
 */
#include "check.h"
#include "io.h"
#include <sys/mman.h>

/* A function with a frame and a name of its own, whatever the compiler does. */
#define OWN __attribute__((noinline, noclone))
/* At the end of such a function: its last call is no jump. */
#define NO_TAIL_CALL __asm__ volatile("" ::: "memory")

/* ---- A dump as text ---- */

static char *take_text(int (*dump)(int fd), size_t *size)
{
    int fd = memfd_create("dump", MFD_CLOEXEC);
    char *text;
    off_t len;
    CHECK(fd >= 0);
    CHECK_EQ(dump(fd), 0);
    len = lseek(fd, 0, SEEK_END);
    CHECK(len > 0 && (text = malloc((size_t)len + 1)) != NULL);
    CHECK_EQ(pread(fd, text, (size_t)len, 0), len);
    text[len] = 0;
    if (size)
        *size = (size_t)len;
    CHECK_EQ(close(fd), 0);
    return text;
}

/* The part of the dump about the goroutine with this name, up to the blank line; in a buffer of the caller's. */
static bool part_of(const char *text, const char *name, char *part, size_t size)
{
    char label[64];
    const char *at, *begin, *end;
    snprintf(label, sizeof label, "{name: %s}:\n", name);
    if ((at = strstr(text, label)) == NULL)
        return false;
    for (begin = at; begin > text && begin[-1] != '\n'; begin--)
        ;
    end = strstr(at, "\n\n");
    end = end ? end + 1 : at + strlen(at);
    CHECK((size_t)(end - begin) < size);
    memcpy(part, begin, (size_t)(end - begin));
    part[end - begin] = 0;
    return true;
}

/* Checks that the lines that begin with these words come in this order. */
static void check_order(const char *part, const char *const *lines, size_t n)
{
    const char *at = part;
    size_t i;
    for (i = 0; i < n; i++) {
        char line[128];
        snprintf(line, sizeof line, "\n%s", lines[i]);
        if ((at = strstr(at, line)) == NULL)
            failed(__FILE__, __LINE__, lines[i], part);
        at++;
    }
}

/* ---- Goroutines in every state ---- */

static gs_chan *never;
static gs_mutex held;
static int sockets[2], pipes[2], ends, spinning, blocked;

OWN static void wait_in_channel(void)
{
    int64_t v;
    (void)gs_chan_recv(never, &v, GS_FOREVER);
    NO_TAIL_CALL;
}

OWN static void wait_in_select(void)
{
    int64_t v;
    gs_case c = recv_case(never, &v);
    (void)gs_select(&c, 1, GS_FOREVER);
    NO_TAIL_CALL;
}

OWN static void wait_for_mutex(void)
{
    CHECK_EQ(gs_mutex_lock(&held, GS_FOREVER), 0);
    CHECK_EQ(gs_mutex_unlock(&held), 0);
    NO_TAIL_CALL;
}

OWN static void sleep_long(void)
{
    while (!GET(ends))
        (void)gs_sleep(20 * MS);
    NO_TAIL_CALL;
}

OWN static void read_socket(void)
{
    char c;
    (void)gs_read(sockets[0], &c, 1, GS_FOREVER);
    NO_TAIL_CALL;
}

OWN static void compute(void)
{
    SET(spinning, 1);
    while (!GET(ends))
        ;
    NO_TAIL_CALL;
}

OWN static void read_unannounced(void)
{
    char c;
    SET(blocked, 1);
    CHECK_EQ(read(pipes[0], &c, 1), 1);
    NO_TAIL_CALL;
}

OWN static void lock_the_thread(void)
{
    gs_lock_os_thread();
    wait_in_channel();
    CHECK_EQ(gs_unlock_os_thread(), 0);
    NO_TAIL_CALL;
}

struct way {
    const char *name;
    void (*fn)(void);
    const char *state;
    /* The lines that its part has, in this order. */
    const char *lines[4];
    unsigned flags;
};

static struct way ways[] = {
    {"in_channel", wait_in_channel, "[chan receive, ", {"gs_chan_recv()", "wait_in_channel()", "go_this_way()"}, 0},
    {"in_select", wait_in_select, "[select, ", {"gs_select()", "wait_in_select()", "go_this_way()"}, 0},
    {"in_mutex", wait_for_mutex, "[sync.Mutex.Lock, ", {"gs_mutex_lock", "wait_for_mutex()", "go_this_way()"}, 0},
    {"in_sleep", sleep_long, "[", {"sleep_long()", "go_this_way()"}, 0},
    {"in_socket", read_socket, "[IO wait, ", {"gs_read()", "read_socket()", "go_this_way()"}, 0},
    {"computes", compute, "[", {"compute()", "go_this_way()"}, 0},
    {"in_read", read_unannounced, "[", {"read_unannounced()", "go_this_way()"}, 0},
    {"locked", lock_the_thread, "locked to thread", {"gs_chan_recv()", "wait_in_channel()", "lock_the_thread()"}, 0},
};

OWN static void go_this_way(void *way)
{
    ((struct way *)way)->fn();
    NO_TAIL_CALL;
}

OWN static void start_all(gs_g **all)
{
    size_t i;
    for (i = 0; i < LENGTH(ways); i++) {
        gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
        opts.name = ways[i].name;
        all[i] = go_opts(go_this_way, &ways[i], &opts);
    }
    NO_TAIL_CALL;
}

/* musl has no unwind tables, so a walk that begins in its read(2) ends there. */
#ifdef __GLIBC__
static const bool can_walk_from_read = true;
#else
static const bool can_walk_from_read = false;
#endif

static void check_ways(const char *text)
{
    size_t i;
    for (i = 0; i < LENGTH(ways); i++) {
        static const char *const created[] = {"created by start_all in goroutine "};
        char part[8192];
        size_t lines = 0;
        if (!part_of(text, ways[i].name, part, sizeof part))
            failed(__FILE__, __LINE__, ways[i].name, text);
        CHECK_HAS(part, ways[i].state);
        if (ways[i].fn == read_unannounced && !can_walk_from_read)
            continue;
        while (lines < LENGTH(ways[i].lines) && ways[i].lines[lines])
            lines++;
        check_order(part, ways[i].lines, lines);
        check_order(part, created, 1);
#ifndef WITHOUT_DEBUG_INFORMATION
        CHECK_HAS(part, "/dump.c:");
#endif
        CHECK_HAS(part, " +0x");
        /* Of the library's own frames only the function is shown that was called. */
        CHECK(strstr(part, "gosched::") == NULL);
        CHECK(strstr(part, "??") == NULL);
    }
}

static const int all_ways = LENGTH(ways);

static void with_all_ways(void (*look)(void))
{
    gs_g *all[LENGTH(ways)];
    size_t i;
    SET(ends, 0);
    SET(spinning, 0);
    SET(blocked, 0);
    never = chan_of_ints(0);
    CHECK_EQ(gs_mutex_lock(&held, GS_FOREVER), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    CHECK_EQ(pipe(pipes), 0);
    start_all(all);
    WAIT_UNTIL(GET(spinning) && GET(blocked));
    for (i = 0; i < LENGTH(ways); i++)
        if (ways[i].fn != compute && ways[i].fn != read_unannounced)
            until_parked(all[i]);
    look();
    SET(ends, 1);
    CHECK_EQ(write(pipes[1], "x", 1), 1);
    CHECK_EQ(write(sockets[1], "x", 1), 1);
    CHECK_EQ(gs_chan_close(never), 0);
    CHECK_EQ(gs_mutex_unlock(&held), 0);
    for (i = 0; i < LENGTH(ways); i++)
        join(all[i]);
    free_chan(never);
    for (i = 0; i < 2; i++) {
        CHECK_EQ(gs_close(sockets[i]), 0);
        CHECK_EQ(close(pipes[i]), 0);
    }
}

OWN static void look_at_text(void)
{
    static const char *const own[] = {"gs_dump()", "take_text()", "look_at_text()"};
    char part[16384], *text = take_text(gs_dump, NULL);
    const char *me = strstr(text, "\ngoroutine 1 [running, ");
    CHECK_HAS(text, "goroutines: ");
    check_ways(text);
    CHECK(me != NULL);
    snprintf(part, sizeof part, "%s", me);
    check_order(part, own, LENGTH(own));
    free(text);
    NO_TAIL_CALL;
}

GO_TEST(every_goroutine_of_a_dump_has_the_names_of_its_functions)
{
    with_all_ways(look_at_text);
}

static void *takes_it_on_a_thread(void *arg)
{
    char *text = take_text(gs_dump, NULL);
    check_ways(text);
    free(text);
    return arg;
}

static void look_on_a_thread(void)
{
    go_join_thread(start_thread(takes_it_on_a_thread, NULL));
}

GO_TEST(a_plain_thread_takes_a_dump)
{
    with_all_ways(look_on_a_thread);
}

static void look_with_the_world_stopped(void)
{
    char *text;
    CHECK_EQ(gs_stop_the_world(), 0);
    text = take_text(gs_dump, NULL);
    CHECK_EQ(gs_start_the_world(), 0);
    check_ways(text);
    free(text);
}

GO_TEST(a_caller_that_has_stopped_the_world_takes_a_dump)
{
    with_all_ways(look_with_the_world_stopped);
}

/* ---- Goroutines that have not begun, and names ---- */

OWN static void begins_late(void *arg)
{
    (void)arg;
    NO_TAIL_CALL;
}

OWN static void spawn_and_look(void *arg)
{
    static const char *const lines[] = {"begins_late()", "created by spawn_and_look in goroutine "};
    char *text, part[8192];
    const char *at;
    int i;
    for (i = 0; i < 100; i++)
        go(begins_late, NULL);
    text = take_text(gs_dump, NULL);
    /* Another P may have taken them all. */
    if ((at = strstr(text, "\ngoroutine 0 [runnable, not begun, node ")) != NULL) {
        snprintf(part, sizeof part, "%s", at);
        check_order(part, lines, LENGTH(lines));
    } else {
        CHECK(gs_gomaxprocs(0) > 1);
    }
    free(text);
    (void)arg;
    NO_TAIL_CALL;
}

GO_TEST(a_goroutine_that_has_not_begun_shows_its_function)
{
    join(go_steady(spawn_and_look, NULL));
}

GO_TEST(a_name_stays_on_its_line)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_g *g;
    char *text;
    never = chan_of_ints(0);
    opts.name = "two\nlines, \"quoted\"";
    g = go_opts(go_this_way, &ways[0], &opts);
    until_parked(g);
    text = take_text(gs_dump, NULL);
    CHECK_HAS(text, "] {name: \"two\\nlines, \\\"quoted\\\"\"}:\n");
    free(text);
    CHECK_EQ(gs_chan_close(never), 0);
    join(g);
    free_chan(never);
}

/* ---- Deep stacks ---- */

OWN static int64_t recurse(int depth)
{
    int64_t v = 0;
    if (depth > 0)
        v = recurse(depth - 1) + 1;
    else
        (void)gs_chan_recv(never, &v, GS_FOREVER);
    NO_TAIL_CALL;
    return v;
}

static void recurse_far(void *arg)
{
    (void)recurse(300);
    (void)arg;
}

GO_TEST(a_deep_stack_is_cut)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_g *g;
    char *text, part[32768];
    never = chan_of_ints(0);
    opts.name = "deep";
    g = go_opts(recurse_far, NULL, &opts);
    until_parked(g);
    text = take_text(gs_dump, NULL);
    CHECK(part_of(text, "deep", part, sizeof part));
    CHECK_HAS(part, "\nrecurse()\n");
    CHECK_HAS(part, "\n...additional frames elided...\ncreated by ");
    free(text);
    CHECK_EQ(gs_chan_close(never), 0);
    join(g);
    free_chan(never);
}

/* ---- Many goroutines, while others run ---- */

#define MANY 10000

static gs_waitgroup group;
static long turns;

OWN static void park_here(void *arg)
{
    int64_t v;
    (void)gs_chan_recv(never, &v, GS_FOREVER);
    CHECK_EQ(gs_waitgroup_done(&group), 0);
    (void)arg;
    NO_TAIL_CALL;
}

OWN static void take_turns(void *arg)
{
    while (!GET(ends)) {
        ADD(turns, 1);
        gs_yield();
    }
    CHECK_EQ(gs_waitgroup_done(&group), 0);
    (void)arg;
    NO_TAIL_CALL;
}

/* Without strstr: AddressSanitizer's reads the whole text in each call. */
static long occurrences(const char *text, const char *word)
{
    size_t len = strlen(word);
    long n = 0;
    for (; *text; text++)
        n += *text == *word && strncmp(text, word, len) == 0;
    return n;
}

GO_TEST(a_dump_of_many_goroutines_while_they_run_has_all_of_them)
{
    char *text;
    int64_t begin;
    int i;
    SET(ends, 0);
    SET(turns, 0);
    never = chan_of_ints(0);
    CHECK_EQ(gs_waitgroup_add(&group, MANY + 20), 0);
    for (i = 0; i < MANY; i++)
        go(park_here, NULL);
    for (i = 0; i < 20; i++)
        go(take_turns, NULL);
    WAIT_UNTIL(GET(turns) > 1000);
    begin = gs_now();
    text = take_text(gs_dump, NULL);
    printf("a dump of %d goroutines: %.1f ms, %zu bytes\n", MANY, (double)(gs_now() - begin) / MS, strlen(text));
    CHECK_GE(occurrences(text, "\ngoroutine "), MANY + 21);
    CHECK_GE(occurrences(text, "\npark_here()\n"), MANY);
    CHECK_GE(occurrences(text, "\ntake_turns()\n"), 20);
    free(text);
    for (i = 0; i < 5; i++) {
        text = take_text(i % 2 ? gs_dump_json : gs_dump, NULL);
        CHECK_GE(occurrences(text, "park_here"), MANY);
        free(text);
    }
    SET(ends, 1);
    CHECK_EQ(gs_chan_close(never), 0);
    CHECK_EQ(gs_waitgroup_wait(&group, GS_FOREVER), 0);
    free_chan(never);
}

/* ---- JSON and pprof ---- */

static bool there_is(const char *command)
{
    char line[256];
    snprintf(line, sizeof line, "command -v %s >/dev/null 2>&1", command);
    return system(line) == 0;
}

/* Writes the dump to a file and lets a program read it. */
static int read_by(int (*dump)(int fd), const char *format)
{
    char path[] = "/tmp/gosched-dump-XXXXXX", command[4096];
    int status, fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_EQ(dump(fd), 0);
    CHECK_EQ(close(fd), 0);
    snprintf(command, sizeof command, format, path);
    status = system(command);
    CHECK_EQ(unlink(path), 0);
    return status;
}

static void look_at_json(void)
{
    setenv("WALKS_FROM_READ", can_walk_from_read ? "1" : "", 1);
    CHECK_EQ(read_by(gs_dump_json,
        "python3 - %s <<'END'\n"
        "import json, os, sys\n"
        "all = json.load(open(sys.argv[1]))['goroutines']\n"
        "named = {g['name']: g for g in all}\n"
        "def functions(name): return [f['function'] for f in named[name]['frames']]\n"
        "g = named['in_channel']\n"
        "assert functions('in_channel')[:3] == ['gs_chan_recv', 'wait_in_channel', 'go_this_way'], g\n"
        "assert g['state'] == 'waiting' and g['wait_reason'] == 'chan receive' and g['wait_ns'] >= 0, g\n"
        "assert not g['locked'] and named['locked']['locked'] and g['node'] >= 0 and not g['cut'], g\n"
        "assert g['creator']['function'] == 'start_all' and g['creator']['id'] >= 1, g\n"
        "assert int(g['frames'][1]['pc'], 16) > 0 and g['frames'][1]['offset'] > 0, g\n"
        "assert g['frames'][1]['module'].startswith('/'), g\n"
        "assert 'compute' in functions('computes')\n"
        "assert not os.environ['WALKS_FROM_READ'] or 'read_unannounced' in functions('in_read')\n"
        "END\n"), 0);
}

GO_TEST(a_dump_in_json_is_read_by_python)
{
    if (!there_is("python3"))
        SKIP("no python3");
    with_all_ways(look_at_json);
}

/* A field's number and kind, and its value or length. */
static uint64_t varint(const unsigned char **at, const unsigned char *end)
{
    uint64_t value = 0;
    int shift = 0;
    do {
        CHECK(*at < end && shift < 64);
        value |= (uint64_t)(**at & 0x7f) << shift;
        shift += 7;
    } while (*(*at)++ & 0x80);
    return value;
}

static void look_at_pprof(void)
{
    size_t size;
    char *profile = take_text(gs_dump_pprof, &size);
    const unsigned char *at = (unsigned char *)profile, *end = at + size;
    long fields[16] = {0}, found = 0;
    while (at < end) {
        uint64_t key = varint(&at, end), value = varint(&at, end);
        CHECK(key >> 3 < LENGTH(fields));
        fields[key >> 3]++;
        if ((key & 7) == 0)
            continue;
        CHECK_EQ(key & 7, 2);
        CHECK(value <= (uint64_t)(end - at));
        if (key >> 3 == 6)
            found += value == strlen("wait_in_channel") && memcmp(at, "wait_in_channel", value) == 0;
        at += value;
    }
    CHECK_EQ(found, 1);
    CHECK_EQ(fields[1], 1);
    CHECK_GE(fields[2], all_ways);
    CHECK_GE(fields[3], 2);
    CHECK_GE(fields[4], all_ways);
    CHECK_GE(fields[5], all_ways);
    free(profile);
}

GO_TEST(a_dump_for_pprof_has_the_messages_of_its_format)
{
    with_all_ways(look_at_pprof);
}

static void look_by_pprof(void)
{
    CHECK_EQ(read_by(gs_dump_pprof, "go tool pprof -top -cum %s 2>/dev/null | grep -q ' wait_in_channel$'"), 0);
    CHECK_EQ(read_by(gs_dump_pprof, "go tool pprof -tags %s 2>/dev/null | grep -q 'chan receive'"), 0);
}

GO_TEST(a_dump_for_pprof_is_read_by_go)
{
    if (!there_is("go"))
        SKIP("no go");
    with_all_ways(look_by_pprof);
}

/* ---- Errors ---- */

GO_TEST(a_dump_into_a_file_that_cannot_be_written_fails)
{
    int fds[2];
    CHECK_EQ(gs_dump(-1), -EBADF);
    CHECK_EQ(gs_dump_json(-1), -EBADF);
    CHECK_EQ(gs_dump_pprof(-1), -EBADF);
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(gs_dump(fds[0]), -EBADF);
    CHECK_EQ(close(fds[0]), 0);
    signal(SIGPIPE, SIG_IGN);
    CHECK_EQ(gs_dump(fds[1]), -EPIPE);
    signal(SIGPIPE, SIG_DFL);
    CHECK_EQ(close(fds[1]), 0);
}

/* ---- Frames of an interpreter ---- */

static int known_gs;

static size_t two_frames(void *ctx, gs_g *g, gs_frame *frames, size_t room)
{
    CHECK(ctx == &known_gs && g != NULL && room >= 2);
    if (gs_data(g) != &known_gs)
        return 0;
    frames[0] = (gs_frame){"inner", "script.py", 3};
    frames[1] = (gs_frame){"outer", NULL, 0};
    return 2;
}

static void interpret(void *arg)
{
    wait_in_channel();
    (void)arg;
}

static void check_frames_hook(void *arg)
{
    static const char *const lines[] = {"inner()", "\tscript.py:3", "outer()", "gs_chan_recv()", "wait_in_channel()"};
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_g *g;
    char *text, part[8192];
    never = chan_of_ints(0);
    opts.name = "script";
    opts.data = &known_gs;
    g = go_opts(interpret, NULL, &opts);
    until_parked(g);
    text = take_text(gs_dump, NULL);
    CHECK(part_of(text, "script", part, sizeof part));
    check_order(part, lines, LENGTH(lines));
    CHECK_EQ(occurrences(text, "\ninner()\n"), 1);
    free(text);
    CHECK_EQ(gs_chan_close(never), 0);
    join(g);
    free_chan(never);
    (void)arg;
}

TEST(frames_of_an_interpreter_come_before_those_of_c)
{
    gs_hooks hooks;
    memset(&hooks, 0, sizeof hooks);
    hooks.size = sizeof hooks;
    hooks.ctx = &known_gs;
    hooks.frames = two_frames;
    CHECK_EQ(gs_set_hooks(&hooks), 0);
    CHECK_EQ(gs_run(check_frames_hook, NULL), 0);
    CHECK_EQ(gs_set_hooks(NULL), 0);
}

/* ---- On SIGQUIT ---- */

/* Gets the signal, and passes on what is written to standard error until a whole dump has come. */
static void quit_once(int from, int to)
{
    static char text[1 << 16];
    size_t n = 0;
    CHECK_EQ(kill(getpid(), SIGQUIT), 0);
    do {
        ssize_t r = read(from, text + n, sizeof text - 1 - n);
        CHECK_GE(r, 1);
        CHECK_EQ(write(to, text + n, (size_t)r), r);
        n += (size_t)r;
        text[n] = 0;
    } while (!strstr(text, "\nwait_in_channel()\n") || !strstr(text, "\ncreated by quit_twice in goroutine 1\n"));
}

static void quit_twice(void *arg)
{
    int fds[2], err = dup(2);
    gs_g *g;
    CHECK(err >= 0);
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(dup2(fds[1], 2), 2);
    never = chan_of_ints(0);
    g = go_ref(go_this_way, &ways[0]);
    until_parked(g);
    quit_once(fds[0], err);
    CHECK_EQ(gs_sleep(MS), 0);
    quit_once(fds[0], err);
    CHECK_EQ(dup2(err, 2), 2);
    CHECK_EQ(gs_chan_close(never), 0);
    join(g);
    free_chan(never);
    printf("goes on\n");
    (void)arg;
}

CHILD(gets_sigquit)
{
    CHECK_EQ(gs_run(quit_twice, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    printf("shut down\n");
}

CHILD(gets_sigquit_after_shutdown)
{
    CHECK_EQ(gs_run(begins_late, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(kill(getpid(), SIGQUIT), 0);
    nap(10 * SEC);
}

TEST(sigquit_makes_a_dump_and_the_program_goes_on)
{
    struct outcome out;
    CHECK_EQ(setenv("GOSCHED_DEBUG", "sigquit=1", 1), 0);
    run_child("gets_sigquit", &out);
    CHECK(WIFEXITED(out.status) && WEXITSTATUS(out.status) == 0);
    CHECK_GE(occurrences(out.text, "goroutines: "), 2);
    CHECK_HAS(out.text, "\nwait_in_channel()\n");
    CHECK_HAS(out.text, "goes on");
    CHECK_HAS(out.text, "shut down");
    /* The signal is the host's again. */
    check_child_dies("gets_sigquit_after_shutdown", SIGQUIT, &out);
    CHECK_EQ(unsetenv("GOSCHED_DEBUG"), 0);
    check_child_dies("gets_sigquit_after_shutdown", SIGQUIT, &out);
}
