/* Very many goroutines at once, and programs that are made of them. seed: B6 (no limit on goroutines) */
#include "check.h"

#define MANY 100000

static gs_chan *gate;
static gs_waitgroup wg;
static long parked, ended;

static void wait_at_the_gate(void *arg)
{
    int64_t v = 1;
    (void)arg;
    ADD(parked, 1);
    CHECK_EQ(gs_chan_recv(gate, &v, GS_FOREVER), -EPIPE);
    CHECK_EQ(v, 0);
    ADD(ended, 1);
}

GO_TEST(a_hundred_thousand_wait_for_one_close)
{
    long i;
    gate = chan_of_ints(0);
    SET(parked, 0);
    SET(ended, 0);
    for (i = 0; i < MANY; i++)
        go(wait_at_the_gate, NULL);
    WAIT_UNTIL(GET(parked) == MANY);
    CHECK_EQ(gs_num_goroutines(), MANY + 1);
    CHECK_EQ(GET(ended), 0);
    CHECK_EQ(gs_chan_close(gate), 0);
    WAIT_UNTIL(gs_num_goroutines() == 1);
    CHECK_EQ(GET(ended), MANY);
    free_chan(gate);
}

static gs_chan *numbers;

static void send_number(void *arg)
{
    send_int(numbers, (intptr_t)arg);
}

static void sum_of_numbers(size_t cap)
{
    int64_t sum = 0;
    intptr_t i;
    numbers = chan_of_ints(cap);
    for (i = 1; i <= MANY; i++)
        go(send_number, (void *)i);
    for (i = 0; i < MANY; i++)
        sum += recv_int(numbers);
    CHECK_EQ(sum, (int64_t)MANY * (MANY + 1) / 2);
    CHECK_EQ(gs_chan_recv(numbers, NULL, GS_NOWAIT), -EAGAIN);
    free_chan(numbers);
}

GO_TEST(a_hundred_thousand_send_over_one_channel)
{
    sum_of_numbers(0);
    sum_of_numbers(100);
}

struct link {
    gs_chan *from, *to;
};

static void pass_on(void *arg)
{
    struct link *l = arg;
    send_int(l->to, recv_int(l->from) + 1);
}

#define CHAIN 10000

GO_TEST(a_daisy_chain_of_ten_thousand)
{
    struct link *links = calloc(CHAIN, sizeof *links);
    gs_chan *first = chan_of_ints(0), *last = first;
    int i;
    for (i = 0; i < CHAIN; i++) {
        links[i].from = last;
        links[i].to = last = chan_of_ints(0);
        go(pass_on, &links[i]);
    }
    send_int(first, 0);
    CHECK_EQ(recv_int(last), CHAIN);
    free_chan(first);
    for (i = 0; i < CHAIN; i++)
        free_chan(links[i].to);
    WAIT_UNTIL(gs_num_goroutines() == 1);
    free(links);
}

struct node {
    gs_chan *up;
    int64_t num, size;
};

/* Skynet: each node has ten below it; the leaves send their number up. */
static void skynet(void *arg)
{
    struct node *n = arg, below[10];
    gs_chan *ch;
    int64_t sum = 0;
    int i;
    if (n->size == 1) {
        send_int(n->up, n->num);
        return;
    }
    ch = chan_of_ints(10);
    for (i = 0; i < 10; i++) {
        below[i].up = ch;
        below[i].size = n->size / 10;
        below[i].num = n->num + i * below[i].size;
        go(skynet, &below[i]);
    }
    for (i = 0; i < 10; i++)
        sum += recv_int(ch);
    free_chan(ch);
    send_int(n->up, sum);
}

GO_TEST(skynet_adds_up)
{
    struct node root = {chan_of_ints(0), 0, MANY};
    go(skynet, &root);
    CHECK_EQ(recv_int(root.up), (int64_t)MANY * (MANY - 1) / 2);
    free_chan(root.up);
}

static void sleep_some(void *arg)
{
    int64_t ns = (intptr_t)arg % 50 * MS, start = gs_now();
    CHECK_EQ(gs_sleep(ns), 0);
    CHECK_GE(gs_now(), start + ns);
    CHECK_EQ(gs_waitgroup_done(&wg), 0);
}

GO_TEST(many_sleep_at_once)
{
    intptr_t i;
    CHECK_EQ(gs_waitgroup_add(&wg, 20000), 0);
    for (i = 0; i < 20000; i++)
        go(sleep_some, (void *)i);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
}

static gs_mutex lock;
static long counter;

static void count_under_lock(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_mutex_lock(&lock, GS_FOREVER), 0);
    counter++;
    if (counter % 1000 == 0)
        gs_yield();
    CHECK_EQ(gs_mutex_unlock(&lock), 0);
    CHECK_EQ(gs_waitgroup_done(&wg), 0);
}

GO_TEST(many_take_one_mutex)
{
    int i;
    counter = 0;
    CHECK_EQ(gs_waitgroup_add(&wg, MANY), 0);
    for (i = 0; i < MANY; i++)
        go(count_under_lock, NULL);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    CHECK_EQ(counter, MANY);
}

/* The concurrent prime sieve: a chain of filters that grows while it works. */
struct filter {
    gs_chan *in, *out;
    int64_t prime;
};

static void generate(void *arg)
{
    gs_chan *ch = arg;
    int64_t i;
    for (i = 2; gs_chan_send(ch, &i, GS_FOREVER) == 0; i++)
        ;
    CHECK_EQ(gs_waitgroup_done(&wg), 0);
}

static void filter(void *arg)
{
    struct filter *f = arg;
    int64_t i;
    while (gs_chan_recv(f->in, &i, GS_FOREVER) == 0)
        if (i % f->prime != 0 && gs_chan_send(f->out, &i, GS_FOREVER) != 0)
            break;
    (void)gs_chan_close(f->in); /* ends the one before */
    CHECK_EQ(gs_waitgroup_done(&wg), 0);
}

#define PRIMES 150

GO_TEST(the_prime_sieve_finds_primes)
{
    static struct filter filters[PRIMES];
    gs_chan *ch = chan_of_ints(0);
    int64_t prime = 0;
    int i;
    CHECK_EQ(gs_waitgroup_add(&wg, PRIMES + 1), 0);
    go(generate, ch);
    for (i = 0; i < PRIMES; i++) {
        prime = recv_int(ch);
        filters[i].in = ch;
        filters[i].out = ch = chan_of_ints(0);
        filters[i].prime = prime;
        go(filter, &filters[i]);
    }
    CHECK_EQ(prime, 863); /* the 150th prime */
    CHECK_EQ(gs_chan_close(ch), 0);
    CHECK_EQ(gs_waitgroup_wait(&wg, GS_FOREVER), 0);
    for (i = 0; i < PRIMES; i++)
        free_chan(filters[i].in);
    free_chan(ch);
}
