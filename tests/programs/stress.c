/*
 * A random mixture of everything, for a bounded number of steps. Tokens travel through channels,
 * selects, timers, new goroutines and a bank under a mutex; at the end each token is there exactly once.
 * Meant also for GOSCHED_DEBUG=migrate=1,randomorder=1,tinyqueues=1. CHECK_SEED repeats a run's choices.
 *
 * "stress bubbles SEED RUNS" runs fewer workers for fewer steps in bubbles (tester.h).
 */
#include "tester.h"

#define TOKENS 300
#define CHANS 6
#define WORKERS 40
#define THREADS 3
#define STEPS 400
#define HANDS 8

static int tokens = TOKENS, step_count = STEPS;

static gs_chan *chans[CHANS];
static const size_t caps[CHANS] = {0, 0, 1, 3, 8, 64};

/* ---- The bank: a stack of tokens under a mutex, with a condition and a semaphore that count them ---- */

static gs_mutex bank_lock;
static gs_cond bank_changed;
static int64_t bank[TOKENS];
static int in_bank;
static gs_rwmutex table_lock;
static long table[2];
static gs_sem turnstile;
static gs_waitgroup errands;

static void lock_bank(void)
{
    CHECK_EQ(gs_mutex_lock(&bank_lock, GS_FOREVER), 0);
}

static void unlock_bank(void)
{
    CHECK_EQ(gs_mutex_unlock(&bank_lock), 0);
}

static void deposit(int64_t token)
{
    lock_bank();
    CHECK(in_bank < tokens);
    bank[in_bank++] = token;
    if (token % 2)
        CHECK_EQ(gs_cond_signal(&bank_changed), 0);
    else
        CHECK_EQ(gs_cond_broadcast(&bank_changed), 0);
    unlock_bank();
}

/* -1 when there is none, also after waiting a little. */
static int64_t withdraw(int wait)
{
    int64_t token = -1;
    lock_bank();
    if (in_bank == 0 && wait) {
        int r = gs_cond_wait(&bank_changed, &bank_lock, gs_after_us(100));
        CHECK(r == 0 || r == -ETIMEDOUT);
    }
    if (in_bank > 0)
        token = bank[--in_bank];
    unlock_bank();
    return token;
}

/* ---- Errands: goroutines and timers that carry one token ---- */

static void carry_to_bank(void *token)
{
    if ((intptr_t)token % 3 == 0)
        gs_yield();
    deposit((intptr_t)token);
    CHECK_EQ(gs_waitgroup_done(&errands), 0);
}

static void send_by_goroutine(int64_t token, uint64_t r)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    CHECK_EQ(gs_waitgroup_add(&errands, 1), 0);
    o.priority = (int)(r % 4) - 2;
    o.flags = r / 4 % 8 == 0 ? GS_SPAWN_PINNED : 0;
    CHECK_EQ(gs_spawn_with(carry_to_bank, (void *)(intptr_t)token, r / 32 % 2 ? &o : NULL, NULL), 0);
}

/* By a timer; if it can be stopped in time, the token is still in one's hands. */
static int64_t send_by_timer(int64_t token, uint64_t r)
{
    gs_timer *t;
    int stopped = 0;
    CHECK_EQ(gs_waitgroup_add(&errands, 1), 0);
    t = gs_timer_start((int64_t)(r % 200) * US, carry_to_bank, (void *)(intptr_t)token);
    CHECK(t != NULL);
    if (r / 200 % 2)
        gs_yield();
    stopped = gs_timer_stop(t);
    if (stopped)
        CHECK_EQ(gs_waitgroup_done(&errands), 0);
    CHECK_EQ(gs_timer_free(t), 0);
    return stopped ? token : -1;
}

/* ---- What a worker does in one step ---- */

struct worker {
    uint64_t r;
    int64_t hands[HANDS];
    int n;
    int is_thread;
};

static void take(struct worker *w, int64_t token)
{
    CHECK(token >= 0 && token < tokens && w->n < HANDS);
    w->hands[w->n++] = token;
}

static int64_t give(struct worker *w)
{
    CHECK(w->n > 0);
    return w->hands[--w->n];
}

static int64_t some_deadline(struct worker *w)
{
    uint64_t r = random_next(&w->r);
    return r % 3 == 0 ? GS_NOWAIT : gs_after_us((int64_t)(r % 100));
}

static gs_chan *some_chan(struct worker *w)
{
    return chans[random_next(&w->r) % CHANS];
}

static void step_send(struct worker *w)
{
    int64_t token = give(w);
    int r = gs_chan_send(some_chan(w), &token, some_deadline(w));
    CHECK(r == 0 || r == -EAGAIN || r == -ETIMEDOUT);
    if (r != 0)
        take(w, token);
}

static void step_recv(struct worker *w)
{
    int64_t token = -1;
    int r = gs_chan_recv(some_chan(w), &token, some_deadline(w));
    CHECK(r == 0 || r == -EAGAIN || r == -ETIMEDOUT);
    if (r == 0)
        take(w, token);
}

/* Two receives and, with a token in hand, two sends of it: duplicates and self-meetings included. */
static void step_select(struct worker *w)
{
    int64_t in[2] = {-1, -1}, out = -1;
    gs_case c[4];
    size_t n = 2;
    int k;
    c[0] = recv_case(some_chan(w), &in[0]);
    c[1] = recv_case(some_chan(w), &in[1]);
    if (w->n > 0) {
        out = give(w);
        c[2] = send_case(some_chan(w), &out);
        c[3] = send_case(some_chan(w), &out);
        n = 4;
    }
    k = gs_select(c, n, some_deadline(w));
    CHECK(k >= 0 || k == -EAGAIN || k == -ETIMEDOUT);
    if (k < 2 && out >= 0)
        take(w, out);
    if (k == 0 || k == 1)
        take(w, in[k]);
}

static void *nap_shortly(void *arg)
{
    nap(30 * US);
    return arg;
}

static void step_block(struct worker *w)
{
    switch (random_next(&w->r) % 5) {
    case 0:
        gs_entersyscall();
        nap(20 * US);
        gs_exitsyscall();
        break;
    case 1:
        gs_entersyscallblock();
        gs_exitsyscall();
        break;
    case 2:
        (void)gs_blocking(nap_shortly, NULL);
        break;
    case 3:
        CHECK_EQ(gs_sleep((int64_t)(random_next(&w->r) % 50) * US), 0);
        break;
    default:
        gs_yield();
    }
}

static void step_table(struct worker *w)
{
    if (random_next(&w->r) % 4) {
        CHECK_EQ(gs_rwmutex_rlock(&table_lock, GS_FOREVER), 0);
        CHECK_EQ(table[0], table[1]);
        gs_yield();
        CHECK_EQ(table[0], table[1]);
        CHECK_EQ(gs_rwmutex_runlock(&table_lock), 0);
    } else if (gs_rwmutex_lock(&table_lock, gs_after_us(200)) == 0) {
        table[0]++;
        gs_yield();
        table[1]++;
        CHECK_EQ(gs_rwmutex_unlock(&table_lock), 0);
    }
}

static void step_turnstile(struct worker *w)
{
    int64_t n = (int64_t)(random_next(&w->r) % 4) + 1;
    if (gs_sem_acquire(&turnstile, n, gs_after_us(200)) != 0)
        return;
    gs_yield();
    CHECK_EQ(gs_sem_release(&turnstile, n), 0);
}

static void step_locked(struct worker *w)
{
    pid_t tid;
    if (w->is_thread)
        return;
    CHECK_EQ(gs_lock_os_thread(), 0);
    tid = thread_id();
    gs_yield();
    step_recv(w);
    CHECK_EQ(thread_id(), tid);
    CHECK_EQ(gs_unlock_os_thread(), 0);
}

static void step_with_token(struct worker *w, uint64_t r)
{
    int64_t token;
    switch (r % 6) {
    case 0:
        deposit(give(w));
        break;
    case 1:
        send_by_goroutine(give(w), r / 6);
        break;
    case 2:
        token = send_by_timer(give(w), r / 6);
        if (token >= 0)
            take(w, token);
        break;
    default:
        step_send(w);
    }
}

static void step_empty_handed(struct worker *w, uint64_t r)
{
    int64_t token;
    if (r % 3) {
        step_recv(w);
    } else if ((token = withdraw(r % 2 == 0)) >= 0) {
        take(w, token);
    }
}

static void one_step(struct worker *w)
{
    uint64_t r = random_next(&w->r);
    switch (r % 10) {
    case 0:
        step_block(w);
        break;
    case 1:
        step_table(w);
        break;
    case 2:
        step_turnstile(w);
        break;
    case 3:
        step_locked(w);
        break;
    case 4:
    case 5:
        step_select(w);
        break;
    default:
        if (w->n > 0 && (w->n >= HANDS - 2 || r / 10 % 2))
            step_with_token(w, r / 20);
        else
            step_empty_handed(w, r / 20);
    }
    while (w->n >= HANDS - 1)
        deposit(give(w));
}

static void work(void *arg)
{
    struct worker *w = arg;
    int i;
    for (i = 0; i < step_count; i++)
        one_step(w);
    while (w->n > 0)
        deposit(give(w));
}

static void *work_in_thread(void *arg)
{
    work(arg);
    return NULL;
}

/* ---- The whole ---- */

static void collect(void)
{
    static char seen[TOKENS];
    int64_t token;
    int i;
    memset(seen, 0, sizeof seen);
    CHECK_EQ(gs_waitgroup_wait(&errands, GS_FOREVER), 0);
    for (i = 0; i < CHANS; i++) {
        while (gs_chan_recv(chans[i], &token, GS_NOWAIT) == 0)
            deposit(token);
        free_chan(chans[i]);
    }
    CHECK_EQ(in_bank, tokens);
    for (i = 0; i < tokens; i++) {
        CHECK(bank[i] >= 0 && bank[i] < tokens && !seen[bank[i]]);
        seen[bank[i]] = 1;
    }
    CHECK_EQ(table[0], table[1]);
    CHECK_EQ(gs_sem_acquire(&turnstile, 5, GS_NOWAIT), 0);
    CHECK_EQ(gs_sem_acquire(&turnstile, 1, GS_NOWAIT), -EAGAIN);
}

static void set_up(void)
{
    int i;
    for (i = 0; i < CHANS; i++)
        chans[i] = chan_of_ints(caps[i]);
    in_bank = 0;
    for (i = 0; i < tokens; i++)
        deposit(i);
    CHECK_EQ(gs_sem_init(&turnstile, 5), 0);
}

static void start_workers(struct worker *all, int n, uint64_t *seed)
{
    int i;
    memset(all, 0, (size_t)n * sizeof *all);
    for (i = 0; i < n; i++)
        all[i].r = random_next(seed) | 1;
}

TEST(tokens_are_neither_lost_nor_doubled)
{
    static struct worker all[WORKERS + THREADS];
    uint64_t seed = random_seed();
    gs_g *gs[WORKERS];
    pthread_t t[THREADS];
    int i;
    set_up();
    start_workers(all, WORKERS + THREADS, &seed);
    for (i = 0; i < WORKERS; i++)
        gs[i] = go_ref(work, &all[i]);
    for (i = 0; i < THREADS; i++) {
        all[WORKERS + i].is_thread = 1;
        t[i] = start_thread(work_in_thread, &all[WORKERS + i]);
    }
    for (i = 0; i < WORKERS; i++)
        join(gs[i]);
    for (i = 0; i < THREADS; i++)
        join_thread(t[i]);
    collect();
}

/* All of it while GOMAXPROCS changes and some workers are run by gs_run on threads of the host. */
static int stop;

static void change_procs(void *arg)
{
    uint64_t *r = arg;
    while (!GET(stop)) {
        CHECK_GE(gs_gomaxprocs((int)(random_next(r) % 6) + 1), 1);
        CHECK_EQ(gs_sleep(500 * US), 0);
    }
}

static void *work_in_run(void *arg)
{
    CHECK_EQ(gs_run(work, arg), 0);
    return NULL;
}

TEST(tokens_survive_changes_of_gomaxprocs)
{
    static struct worker all[WORKERS];
    uint64_t seed = random_seed(), r = random_next(&seed);
    int procs = gs_gomaxprocs(0), i;
    gs_g *gs[WORKERS], *changer;
    pthread_t t[2];
    set_up();
    start_workers(all, WORKERS, &seed);
    SET(stop, 0);
    changer = go_ref(change_procs, &r);
    for (i = 0; i < 2; i++)
        t[i] = start_thread(work_in_run, &all[i]);
    for (i = 2; i < WORKERS; i++)
        gs[i] = go_ref(work, &all[i]);
    for (i = 2; i < WORKERS; i++)
        join(gs[i]);
    for (i = 0; i < 2; i++)
        join_thread(t[i]);
    SET(stop, 1);
    join(changer);
    gs_gomaxprocs(procs);
    collect();
}

/* Workers that are cancelled at a random moment put what they hold into the bank and end. */
static void work_until_cancelled(void *arg)
{
    struct worker *w = arg;
    int i;
    for (i = 0; i < step_count; i++) {
        int64_t token = -1;
        int r = w->n < HANDS - 1 ? gs_chan_recv(some_chan(w), &token, gs_after_us(50)) : -EAGAIN;
        if (r == 0)
            take(w, token);
        if (r == -ECANCELED)
            break;
        if (w->n > 0) {
            token = give(w);
            r = gs_chan_send(some_chan(w), &token, gs_after_us(50));
            if (r != 0)
                take(w, token);
            if (r == -ECANCELED)
                break;
        }
    }
}

TEST(tokens_survive_cancels)
{
    static struct worker all[WORKERS];
    uint64_t seed = random_seed();
    gs_g *gs[WORKERS];
    int i;
    set_up();
    start_workers(all, WORKERS, &seed);
    for (i = 0; i < WORKERS; i++) {
        take(&all[i], withdraw(0));
        take(&all[i], withdraw(0));
    }
    for (i = 0; i < WORKERS; i++)
        gs[i] = go_ref(work_until_cancelled, &all[i]);
    for (i = 0; i < WORKERS; i++) {
        nap((int64_t)(random_next(&seed) % 300) * US);
        CHECK_EQ(gs_cancel(gs[i]), 0);
    }
    for (i = 0; i < WORKERS; i++) {
        join(gs[i]);
        while (all[i].n > 0)
            deposit(give(&all[i]));
    }
    collect();
}

/* ---- In bubbles ---- */

#define FEW 6

static void forget_all(void)
{
    memset(&bank_lock, 0, sizeof bank_lock);
    memset(&bank_changed, 0, sizeof bank_changed);
    memset(&table_lock, 0, sizeof table_lock);
    memset(&turnstile, 0, sizeof turnstile);
    memset(&errands, 0, sizeof errands);
    table[0] = table[1] = 0;
}

static void play(void *of_seed)
{
    static struct worker all[FEW];
    uint64_t seed = (*(uint64_t *)of_seed * 0x9e3779b97f4a7c15ull) | 1;
    gs_g *g[FEW];
    int i, cancels, n;
    for (i = 0; i < 8; i++)
        (void)random_next(&seed);
    forget_all();
    cancels = random_next(&seed) >> 33 & 1;
    n = 2 + (int)((random_next(&seed) >> 33) % (FEW - 1));
    tokens = 2 * n + (int)((random_next(&seed) >> 33) % 20);
    step_count = sized(5 + (int)((random_next(&seed) >> 33) % 40));
    set_up();
    start_workers(all, n, &seed);
    for (i = 0; i < n; i++)
        take(&all[i], withdraw(0));
    for (i = 0; i < n; i++)
        g[i] = go_ref(cancels ? work_until_cancelled : work, &all[i]);
    for (i = 0; cancels && i < n; i++) {
        nap((int64_t)(random_next(&seed) % 300) * US);
        CHECK_EQ(gs_cancel(g[i]), 0);
    }
    for (i = 0; i < n; i++) {
        join(g[i]);
        while (all[i].n > 0)
            deposit(give(&all[i]));
    }
    collect();
}

int main(int argc, char **argv)
{
    static const struct bubble_play bubble = {.play = play, .most = {.max_steps = 200000}};
    int status = play_in_bubbles(argc, argv, &bubble);
    return status >= 0 ? status : check_main(argc, argv);
}
