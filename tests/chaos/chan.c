/* Channels and select: what is sent is received once, or is still there at the end. */
#include "chaos.h"

enum { CHANS = 12, CASES = 6, SHORT = 16 };

static gs_chan *chans[CHANS];
static atomic_long sent, received;
static _Atomic uint64_t sent_sum, received_sum;
static atomic_int short_lives;

static void count_sent(uint64_t v)
{
    atomic_fetch_add(&sent, 1);
    atomic_fetch_add(&sent_sum, v);
}

static void count_received(uint64_t v)
{
    if (v >> 32 != 0xc4a05)
        WRONG("received %#llx, which was never sent", (unsigned long long)v);
    atomic_fetch_add(&received, 1);
    atomic_fetch_add(&received_sum, v);
}

static uint64_t a_value(struct actor *a)
{
    return 0xc4a05ULL << 32 | rnd32(a);
}

static void op_send(struct actor *a)
{
    uint64_t v = a_value(a);
    int r = gs_chan_send(chans[rnd(a, CHANS)], &v, soon(a, 2000));
    MUST_BE(r, 0, -EAGAIN, -ETIMEDOUT, -ECANCELED);
    if (r == 0)
        count_sent(v);
}

static void op_recv(struct actor *a)
{
    uint64_t v = 0;
    int r = gs_chan_recv(chans[rnd(a, CHANS)], &v, soon(a, 2000));
    MUST_BE(r, 0, -EAGAIN, -ETIMEDOUT, -ECANCELED);
    if (r == 0)
        count_received(v);
}

static void op_select(struct actor *a)
{
    uint64_t v[CASES];
    gs_case c[CASES];
    int n = 1 + rnd(a, CASES), r;
    for (int i = 0; i < n; i++) {
        v[i] = a_value(a);
        c[i] = (gs_case){one_in(a, 12) ? NULL : chans[rnd(a, CHANS)], &v[i], one_in(a, 2) ? GS_SEND : GS_RECV, 7};
        if (c[i].op == GS_RECV)
            v[i] = 0;
    }
    r = gs_select(c, (size_t)n, soon(a, 3000));
    if (r < 0) {
        MUST_BE(r, -EAGAIN, -ETIMEDOUT, -ECANCELED);
        return;
    }
    MUST(r < n && c[r].ch && c[r].result == 0);
    if (c[r].op == GS_SEND)
        count_sent(v[r]);
    else
        count_received(v[r]);
}

/* A channel of its own, closed by one side while the other is at it, and freed by the last. */
struct brief {
    gs_chan *c;
    atomic_int users;
    atomic_long sum; /* sent minus received */
    bool receiver_closes;
    int n;
};

static void leave_brief(struct brief *b)
{
    int64_t v;
    if (atomic_fetch_sub(&b->users, 1) != 1)
        return;
    while (gs_chan_recv(b->c, &v, GS_NOWAIT) == 0)
        atomic_fetch_sub(&b->sum, v);
    if (b->sum != 0)
        WRONG("a closed channel has lost %ld", (long)b->sum);
    MUST_BE(gs_chan_free(b->c), 0);
    free(b);
    atomic_fetch_sub(&short_lives, 1);
}

static void brief_receiver(void *arg)
{
    struct brief *b = arg;
    int64_t v;
    for (int i = 0; !b->receiver_closes || i < b->n / 2; i++) {
        int r = gs_chan_take(b->c, &v);
        if (r == -EAGAIN)
            r = gs_chan_recv(b->c, &v, GS_FOREVER);
        MUST_BE(r, 0, -EPIPE);
        if (r != 0)
            break;
        atomic_fetch_sub(&b->sum, v);
    }
    if (b->receiver_closes)
        MUST_BE(gs_chan_close(b->c), 0, -EPIPE);
    leave_brief(b);
}

static void op_close(struct actor *a)
{
    struct brief *b;
    if (atomic_fetch_add(&short_lives, 1) >= SHORT) {
        atomic_fetch_sub(&short_lives, 1);
        return;
    }
    b = calloc(1, sizeof *b);
    b->c = POINTER_AGAIN(gs_chan_make(sizeof(int64_t), (size_t)rnd(a, 4)));
    b->users = 2;
    b->n = rnd(a, 20);
    b->receiver_closes = one_in(a, 2);
    MUST(b->c != NULL);
    MUST_BE(AGAIN(gs_spawn(brief_receiver, b)), 0);
    for (int64_t i = 1; i <= b->n; i++) {
        int r;
        atomic_fetch_add(&b->sum, i);
        r = gs_chan_put(b->c, &i);
        MUST_BE(r, 0, -EPIPE, -EAGAIN);
        if (r == -EAGAIN)
            r = gs_chan_send(b->c, &i, gs_after_us(500));
        MUST_BE(r, 0, -EPIPE, -ETIMEDOUT, -ECANCELED);
        if (r == 0)
            continue;
        atomic_fetch_sub(&b->sum, i);
        if (r == -EPIPE)
            break;
    }
    MUST(gs_chan_len(b->c) <= gs_chan_cap(b->c));
    /* What the receiver waits for may not have been sent. */
    MUST_BE(gs_chan_close(b->c), 0, b->receiver_closes ? -EPIPE : 0);
    leave_brief(b);
}

static void op_misuse(struct actor *a)
{
    uint64_t v = 0;
    MUST_BE(gs_chan_send(NULL, &v, GS_NOWAIT), -EINVAL);
    MUST_BE(gs_chan_recv(NULL, &v, GS_NOWAIT), -EINVAL);
    MUST_BE(gs_chan_send(chans[0], NULL, GS_NOWAIT), -EINVAL);
    MUST(gs_chan_make((size_t)2 << 30, 1) == NULL);
    MUST(gs_chan_len(NULL) == 0 && gs_chan_cap(NULL) == 0);
    MUST(strlen(gs_strerror(-rnd(a, 200))) > 0);
    MUST(strlen(gs_version()) > 0 && gs_abi_version() >= 1);
}

void chan_begin(void)
{
    sent = received = short_lives = 0;
    sent_sum = received_sum = 0;
    for (int i = 0; i < CHANS; i++)
        MUST((chans[i] = POINTER_AGAIN(gs_chan_make(sizeof(uint64_t), (size_t)(i % 4 ? i : 0)))) != NULL);
}

void chan_end(void)
{
    uint64_t v;
    while (atomic_load(&short_lives) > 0)
        gs_sleep(MS);
    for (int i = 0; i < CHANS; i++) {
        while (gs_chan_recv(chans[i], &v, GS_NOWAIT) == 0)
            count_received(v);
        MUST_BE(gs_chan_free(chans[i]), 0);
    }
    if (sent != received || sent_sum != received_sum)
        WRONG("%ld values were sent and %ld received; their sums differ by %lld", sent, received,
              (long long)(sent_sum - received_sum));
}

const struct op ops_chan[] = {
    {"send", op_send, 6, NO_LOCKS},
    {"recv", op_recv, 6, NO_LOCKS},
    {"select", op_select, 6, NO_LOCKS},
    {"close", op_close, 3, SHALLOW | NOT_IDLE},
    {"misuse", op_misuse, 1, 0},
    {NULL, NULL, 0, 0},
};
