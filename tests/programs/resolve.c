/* The helpers of gs_getaddrinfo: each look-up blocks a helper's thread, and not that of the goroutine that asks. This
 * program defines a getaddrinfo of its own in place of the C library's, which answers when a test tells it to. */
#include "check.h"
#include <netdb.h>
#include <sys/socket.h>

enum { AT_A_TIME = 64, MORE = 20 };

static int running, most, asked; /* look-ups */
static int lists;                /* that have not been freed */
static int held;                 /* look-ups don't end */

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
    CHECK((*res = calloc(1, sizeof **res)) != NULL);
    (*res)->ai_family = AF_INET;
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
