/* The helpers of gs_getaddrinfo: each look-up blocks a helper's thread, and not that of the goroutine that asks. This
 * program defines a getaddrinfo of its own in place of the C library's, which answers when a test tells it to. */
#include "check.h"
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { AT_A_TIME = 64, MORE = 20 };

static int running, most, asked; /* look-ups */
static int lists;                /* that have not been freed */
static int held;                 /* look-ups don't end */

/* The answer to "two": an address that doesn't answer, and the loopback. */
struct two {
    struct addrinfo info[2];
    struct sockaddr_in address[2];
};

static const in_addr_t silent = INADDR_LOOPBACK + 1;
static int connect_error; /* for that address */

static struct addrinfo *make_two(void)
{
    struct two *two = calloc(1, sizeof *two);
    int i;
    CHECK(two != NULL);
    for (i = 0; i < 2; i++) {
        two->address[i].sin_family = AF_INET;
        two->address[i].sin_addr.s_addr = htonl(i == 0 ? silent : INADDR_LOOPBACK);
        two->info[i].ai_family = AF_INET;
        two->info[i].ai_addr = (struct sockaddr *)&two->address[i];
        two->info[i].ai_addrlen = sizeof two->address[i];
    }
    two->info[0].ai_next = &two->info[1];
    return two->info;
}

/* glibc declares a union of the pointers to all kinds of addresses. */
#ifdef __GLIBC__
#define TO(field) to.field
int connect(int fd, __CONST_SOCKADDR_ARG to, socklen_t len)
#else
#define TO(field) ((const void *)to)
int connect(int fd, const struct sockaddr *to, socklen_t len)
#endif
{
    const struct sockaddr_in *in = TO(__sockaddr_in__);
    if (in->sin_family == AF_INET && in->sin_addr.s_addr == htonl(silent)) {
        errno = connect_error;
        return -1;
    }
    return (int)syscall(SYS_connect, fd, in, len);
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res)
{
    int n, seen;
    (void)service;
    if (hints != NULL && (hints->ai_flags & AI_NUMERICHOST))
        return EAI_NONAME; /* no node of this program is an address */
    n = ADD(running, 1);
    seen = GET(most);
    while (n > seen && !__atomic_compare_exchange_n(&most, &seen, n, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    ADD(asked, 1);
    NAP_UNTIL(!GET(held));
    ADD(running, -1);
    if (strcmp(node, "unknown") == 0)
        return EAI_NONAME;
    if (strcmp(node, "two") == 0) {
        *res = make_two();
    } else {
        CHECK((*res = calloc(1, sizeof **res)) != NULL);
        (*res)->ai_family = AF_INET;
    }
    ADD(lists, 1);
    return 0;
}

void freeaddrinfo(struct addrinfo *list)
{
    if (list) {
        ADD(lists, -1);
        free(list);
    }
}

struct question {
    const char *node;
    gs_deadline deadline;
    int result;
};

static void ask(void *arg)
{
    struct question *q = arg;
    struct addrinfo *list = NULL;
    q->result = gs_getaddrinfo(q->node, "80", NULL, &list, q->deadline);
    CHECK_EQ(list != NULL, q->result == 0);
    freeaddrinfo(list);
}

static void start(int hold)
{
    SET(held, hold);
    SET(asked, 0);
    SET(most, 0);
}

/* The helpers that are left end by themselves. */
static void check_all_freed(void)
{
    SET(held, 0);
    WAIT_UNTIL(GET(running) == 0 && GET(lists) == 0 && gs_num_goroutines() == 1);
}

/* Asks for a name, with a deadline that passes, until a look-up has begun. */
static void ask_until_one_runs(struct question *q, size_t goroutines)
{
    do {
        q->deadline = gs_after_ms(2);
        ask(q);
        CHECK_EQ(q->result, -ETIMEDOUT);
        /* The helper asks, or has ended because its asker had gone before its turn came. */
        WAIT_UNTIL(GET(running) == 1 || gs_num_goroutines() == goroutines);
    } while (GET(running) == 0);
}

GO_TEST(as_many_names_as_there_are_helpers_are_looked_up_at_a_time)
{
    struct question q[AT_A_TIME + MORE];
    gs_g *g[AT_A_TIME + MORE];
    size_t i;
    start(1);
    for (i = 0; i < LENGTH(q); i++) {
        q[i] = (struct question){i % 2 ? "known" : "unknown", GS_FOREVER, 1};
        g[i] = go_ref(ask, &q[i]);
    }
    WAIT_UNTIL(GET(running) == AT_A_TIME);
    CHECK_EQ(gs_sleep(5 * MS), 0);
    CHECK_EQ(GET(asked), AT_A_TIME);
    SET(held, 0);
    for (i = 0; i < LENGTH(q); i++) {
        join(g[i]);
        CHECK_EQ(gs_eai(q[i].result), i % 2 ? 0 : EAI_NONAME);
    }
    CHECK_EQ(GET(asked), LENGTH(q));
    CHECK_EQ(GET(most), AT_A_TIME);
    check_all_freed();
}

GO_TEST(an_asker_goes_on_and_its_helper_frees_the_answer)
{
    struct question late = {"known", 0, 1}, cancelled = {"known", GS_FOREVER, 1};
    gs_g *g;
    start(1);
    ask_until_one_runs(&late, 1);
    g = go_ref(ask, &cancelled);
    WAIT_UNTIL(GET(running) == 2);
    CHECK_EQ(gs_cancel(g), 0);
    join(g);
    CHECK_EQ(cancelled.result, -ECANCELED);
    CHECK_EQ(GET(running), 2);
    check_all_freed();
}

/* The look-up has not begun, because too many run: then it never does, and its helper doesn't stay. A program whose
 * deadlines pass while the name server is slow had more and more of them. */
GO_TEST(what_an_asker_has_given_up_is_not_looked_up)
{
    struct question q[AT_A_TIME], late[MORE];
    gs_g *g[AT_A_TIME], *later[MORE];
    size_t i;
    start(1);
    for (i = 0; i < LENGTH(q); i++) {
        q[i] = (struct question){"known", GS_FOREVER, 1};
        g[i] = go_ref(ask, &q[i]);
    }
    WAIT_UNTIL(GET(running) == AT_A_TIME);
    for (i = 0; i < LENGTH(late); i++) {
        late[i] = (struct question){"known", i % 2 ? gs_after_ms(2) : GS_FOREVER, 1};
        later[i] = go_ref(ask, &late[i]);
    }
    for (i = 0; i < LENGTH(late); i++) {
        if (i % 2 == 0)
            CHECK_EQ(gs_cancel(later[i]), 0);
        join(later[i]);
        CHECK_EQ(late[i].result, i % 2 ? -ETIMEDOUT : -ECANCELED);
    }
    /* Only this goroutine, those that wait for an answer, and their helpers. */
    WAIT_UNTIL(gs_num_goroutines() == 1 + 2 * AT_A_TIME);
    SET(held, 0);
    for (i = 0; i < LENGTH(q); i++) {
        join(g[i]);
        CHECK_EQ(q[i].result, 0);
    }
    CHECK_EQ(GET(asked), AT_A_TIME);
    check_all_freed();
}

static void *ask_on_thread(void *arg)
{
    ask(arg);
    return NULL;
}

TEST(the_runtime_ends_after_the_helpers)
{
    struct question late = {"known", 0, 1};
    start(1);
    ask_until_one_runs(&late, 0);
    CHECK_EQ(gs_shutdown(gs_after_ms(5)), -ETIMEDOUT);
    SET(held, 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(GET(running), 0);
    CHECK_EQ(GET(lists), 0);
}

/* A plain thread without a deadline looks up itself. */
TEST(threads_ask_without_a_helper)
{
    struct question q[4];
    pthread_t t[4];
    int i;
    start(1);
    for (i = 0; i < 4; i++) {
        q[i] = (struct question){i % 2 ? "known" : "unknown", GS_FOREVER, 1};
        t[i] = start_thread(ask_on_thread, &q[i]);
    }
    NAP_UNTIL(GET(running) == 4);
    SET(held, 0);
    for (i = 0; i < 4; i++) {
        join_thread(t[i]);
        CHECK_EQ(gs_eai(q[i].result), i % 2 ? 0 : EAI_NONAME);
    }
    CHECK_EQ(GET(lists), 0);
}

/* The helpers of the parent are not there in the child. */
GO_TEST(the_child_of_a_fork_looks_up_while_the_parent_may_not)
{
    struct question q[AT_A_TIME];
    gs_g *g[AT_A_TIME];
    size_t i;
    int status;
    pid_t pid;
    start(1);
    for (i = 0; i < LENGTH(q); i++) {
        q[i] = (struct question){"known", GS_FOREVER, 1};
        g[i] = go_ref(ask, &q[i]);
    }
    WAIT_UNTIL(GET(running) == AT_A_TIME);
    CHECK((pid = fork()) >= 0);
    if (pid == 0) {
        struct question own = {"known", 0, 1};
        SET(held, 0);
        own.deadline = gs_after_ms(30000);
        ask(&own);
        _exit(own.result == 0 ? 0 : 1);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    SET(held, 0);
    for (i = 0; i < LENGTH(q); i++)
        join(g[i]);
    check_all_freed();
}

/* The next address has its turn when the network gives up, and when half of the time has passed. */
GO_TEST(an_address_that_does_not_answer_is_not_the_last)
{
    struct {
        gs_deadline deadline;
        int error;
    } tries[] = {{GS_FOREVER, ETIMEDOUT}, {gs_after_ms(60000), ETIMEDOUT}, {gs_after_ms(10000), EINPROGRESS}};
    int listener = gs_tcp_listen("127.0.0.1", 0, 0);
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    size_t i;
    CHECK_GE(listener, 0);
    CHECK_EQ(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    start(0);
    for (i = 0; i < LENGTH(tries); i++) {
        int fd;
        connect_error = tries[i].error;
        fd = gs_tcp_connect("two", ntohs(at.sin_port), tries[i].deadline);
        CHECK_GE(fd, 0);
        CHECK_EQ(gs_close(fd), 0);
    }
    CHECK_EQ(gs_close(listener), 0);
    check_all_freed();
}
