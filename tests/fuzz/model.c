/*
 * Sequences of calls on what goroutines block on, against a model. The input's bytes are steps. Each step begins one
 * operation in a goroutine of its own, or does one at once; then all goroutines run until they wait, and the model says
 * which operations are over by now, and with which results. The clock is the bubble's: a microsecond passes with each
 * step, and deadlines expire when the model says so.
 *
 * Where the library may choose (which case of a select, which of several woken goroutines gets a mutex), the model
 * takes what the library chose, if that was one of the choices.
 */
#include "fuzz.h"

enum {
    OPS = 40,          /* operations that may be under way */
    STEPS = 300,       /* of an input */
    CHANS = 3, MUTEXES = 2, TIMERS = 3,
    BUFFER = 4,        /* the largest capacity of a channel */
    STEP = 1000,       /* ns of the virtual clock */
    ANY = -1,
};

enum kind {
    SEND, RECV, SELECT, LOCK, COND_WAIT, RLOCK, WLOCK, ACQUIRE, WG_WAIT, SLEEP, JOIN, ONCE, KINDS,
};

static const char *const names[] = {"send", "receive", "select", "lock", "wait for a condition", "lock for reading",
                                    "lock for writing", "acquire", "wait for a group", "sleep", "join", "once"};

struct op {
    enum kind kind;
    int at;                  /* the object's number; of a join the other operation's; of an acquire the units */
    int ops[CHANS];          /* of a select: GS_SEND, GS_RECV or 0 for each channel */
    gs_deadline deadline;
    bool is_cancelled, is_shielded;
    uint64_t value[CHANS];   /* to send */
    /* What has come of it: */
    gs_g *g;
    bool is_over;
    int result, chosen;
    uint64_t got[CHANS];
    /* What the model says: */
    bool is_used, waits, relocks, is_known;
    int wanted, wanted_choice;
    uint64_t wanted_value;
    int joiners;             /* joins that wait for it */
    int batch;               /* those that were woken at once have the same: any of them may get the mutex; 0: none */
};

static struct op ops[OPS];

/* ---- The library's objects, and the model's ---- */

/* A queue of operations that wait, in order. */
struct queue { int n, op[OPS]; };

static struct channel {
    gs_chan *c;
    size_t cap, n;
    uint64_t buffer[BUFFER];
    bool is_closed;
    struct queue senders, receivers;
} chans[CHANS];

static struct { gs_mutex m; bool is_locked; struct queue waiters; } mutexes[MUTEXES];
static struct { gs_cond c; struct queue waiters; } cond; /* with the first mutex */
static struct { gs_rwmutex rw; int readers; bool is_writing; struct queue waiting_readers, waiting_writers; } rw;
static struct { gs_sem s; int64_t units; struct queue waiters; } sem;
static struct { gs_waitgroup wg; int64_t count; } group;
static struct { gs_once o; int runs; bool is_done; } once;
static struct { gs_timer *t; gs_deadline when; bool is_pending; int fired, wanted; } timers[TIMERS];
static struct { gs_chan *c; gs_duration every; gs_deadline next; bool has_tick; gs_deadline tick; } ticker;

static gs_deadline now; /* a multiple of STEP */
static int serial;
static uint64_t last_value;

#define SAY(...) fuzz_say(__VA_ARGS__)

static void push(struct queue *q, int op)
{
    q->op[q->n++] = op;
}

static bool drop(struct queue *q, int op)
{
    for (int i = 0; i < q->n; i++) {
        if (q->op[i] == op) {
            memmove(&q->op[i], &q->op[i + 1], sizeof q->op[0] * (size_t)(--q->n - i));
            return true;
        }
    }
    return false;
}

/* ---- The goroutines ---- */

static void once_function(void *arg)
{
    (void)arg;
    once.runs++;
    gs_yield();
}

static void timer_function(void *arg)
{
    ++*(int *)arg;
}

static void act(void *arg)
{
    struct op *o = arg;
    if (o->is_shielded)
        CHECK(gs_cancel_disable() == 0);
    if (o->is_cancelled)
        CHECK(gs_cancel(gs_self()) == 0);
    switch (o->kind) {
    case SEND: o->result = gs_chan_send(chans[o->at].c, &o->value[o->at], o->deadline); break;
    case RECV: o->result = gs_chan_recv(chans[o->at].c, &o->got[o->at], o->deadline); break;
    case SELECT: {
        gs_case cases[CHANS];
        int n = 0, numbers[CHANS];
        for (int i = 0; i < CHANS; i++) {
            if (!o->ops[i])
                continue;
            void *elem = o->ops[i] == GS_SEND ? &o->value[i] : &o->got[i];
            numbers[n] = i;
            cases[n++] = (gs_case){.ch = chans[i].c, .elem = elem, .op = o->ops[i], .result = 1};
        }
        int i = gs_select(cases, (size_t)n, o->deadline);
        CHECK(i < n);
        o->chosen = i < 0 ? ANY : numbers[i];
        o->result = i < 0 ? i : cases[i].result;
        break;
    }
    case LOCK: o->result = gs_mutex_lock(&mutexes[o->at].m, o->deadline); break;
    case COND_WAIT: o->result = gs_cond_wait(&cond.c, &mutexes[0].m, o->deadline); break;
    case RLOCK: o->result = gs_rwmutex_rlock(&rw.rw, o->deadline); break;
    case WLOCK: o->result = gs_rwmutex_lock(&rw.rw, o->deadline); break;
    case ACQUIRE: o->result = gs_sem_acquire(&sem.s, o->at, o->deadline); break;
    case WG_WAIT: o->result = gs_waitgroup_wait(&group.wg, o->deadline); break;
    case SLEEP: o->result = gs_sleep_until(o->deadline); break;
    case JOIN: o->result = gs_join(ops[o->at].g, o->deadline); break;
    case ONCE: o->result = gs_once_do(&once.o, once_function, NULL); break;
    case KINDS: break;
    }
    o->is_over = true;
    if (o->is_shielded)
        CHECK(gs_cancel_enable() == 0);
    CHECK(gs_cancelled() == 0 || o->is_cancelled);
}

/* ---- The model ---- */

static void ends(int op, int result, int choice, uint64_t value);

/* Those that wait for a goroutine which has ended. */
static void wake_joiners(int target)
{
    for (int i = 0; i < OPS; i++)
        if (ops[i].is_used && ops[i].waits && ops[i].kind == JOIN && ops[i].at == target)
            ends(i, 0, ANY, 0);
}

static void leave_channels(int op)
{
    for (int i = 0; i < CHANS; i++) {
        drop(&chans[i].senders, op);
        drop(&chans[i].receivers, op);
    }
}

static void ends(int op, int result, int choice, uint64_t value)
{
    struct op *o = &ops[op];
    CHECK(!o->is_known);
    o->waits = false;
    o->is_known = true;
    o->wanted = result;
    o->wanted_choice = choice;
    o->wanted_value = value;
    leave_channels(op);
    if (o->kind == JOIN)
        ops[o->at].joiners--;
    wake_joiners(op);
}

/* The mutex is free: the first in the queue gets it. Of those that were woken at once the library chooses. */
static void grant_mutex(int m)
{
    struct queue *q = &mutexes[m].waiters;
    mutexes[m].is_locked = q->n > 0;
    if (q->n == 0)
        return;
    int first = q->op[0];
    for (int i = 1; ops[first].batch && !ops[first].is_over && i < q->n; i++)
        if (ops[q->op[i]].batch == ops[first].batch && ops[q->op[i]].is_over)
            first = q->op[i];
    drop(q, first);
    ends(first, ops[first].relocks ? ops[first].wanted : 0, ANY, 0);
}

/* A goroutine whose wait for the condition is over takes the mutex again. */
static void relock(int op, int result)
{
    struct op *o = &ops[op];
    o->relocks = true;
    o->wanted = result;
    if (mutexes[0].is_locked) {
        push(&mutexes[0].waiters, op);
    } else {
        mutexes[0].is_locked = true;
        ends(op, result, ANY, 0);
    }
}

static void grant_sem(void)
{
    while (sem.waiters.n > 0 && ops[sem.waiters.op[0]].at <= sem.units) {
        int op = sem.waiters.op[0];
        sem.units -= ops[op].at;
        drop(&sem.waiters, op);
        ends(op, 0, ANY, 0);
    }
}

static int admit_readers(void)
{
    int n = 0;
    for (; rw.waiting_readers.n > 0; n++) {
        int op = rw.waiting_readers.op[0];
        drop(&rw.waiting_readers, op);
        rw.readers++;
        ends(op, 0, ANY, 0);
    }
    return n;
}

static void admit_writer(void)
{
    if (rw.waiting_writers.n > 0) {
        int op = rw.waiting_writers.op[0];
        drop(&rw.waiting_writers, op);
        rw.is_writing = true;
        ends(op, 0, ANY, 0);
    }
}

/* The operation waits no longer, because of its deadline or because it was cancelled. */
static void gives_up(int op, int why)
{
    struct op *o = &ops[op];
    switch (o->kind) {
    case COND_WAIT:
        if (drop(&cond.waiters, op))
            relock(op, why);
        return;
    case LOCK: drop(&mutexes[o->at].waiters, op); break;
    case RLOCK: drop(&rw.waiting_readers, op); break;
    case WLOCK: drop(&rw.waiting_writers, op); break;
    case ACQUIRE: drop(&sem.waiters, op); break;
    case SLEEP: why = why == -ETIMEDOUT ? 0 : why; break;
    default: break;
    }
    ends(op, why, ANY, 0);
    if (o->kind == WLOCK && !rw.is_writing && rw.waiting_writers.n == 0)
        admit_readers();
    if (o->kind == ACQUIRE)
        grant_sem();
}

/* Whether a send or a receive can be done at once. */
static bool is_ready(const struct channel *c, int op)
{
    if (op == GS_SEND)
        return c->is_closed || c->receivers.n > 0 || c->n < c->cap;
    return c->is_closed || c->n > 0 || c->senders.n > 0;
}

static uint64_t value_of(int op, const struct channel *c)
{
    return ops[op].value[c - chans];
}

/* Does what can be done at once. */
static void transfer(int op, int number, bool is_select)
{
    struct channel *c = &chans[number];
    struct op *o = &ops[op];
    int choice = is_select ? number : ANY;
    if ((is_select ? o->ops[number] : o->kind == SEND ? GS_SEND : GS_RECV) == GS_SEND) {
        if (c->is_closed) {
            ends(op, -EPIPE, choice, 0);
        } else if (c->receivers.n > 0) {
            int other = c->receivers.op[0];
            ends(other, 0, ops[other].kind == SELECT ? number : ANY, o->value[number]);
            ends(op, 0, choice, 0);
        } else {
            c->buffer[c->n++] = o->value[number];
            ends(op, 0, choice, 0);
        }
        return;
    }
    uint64_t value = 0;
    int sender = c->senders.n > 0 ? c->senders.op[0] : ANY;
    if (c->n > 0) {
        value = c->buffer[0];
        memmove(c->buffer, c->buffer + 1, sizeof c->buffer[0] * --c->n);
        if (sender >= 0)
            c->buffer[c->n++] = value_of(sender, c);
    } else if (sender >= 0) {
        value = value_of(sender, c);
    } else {
        ends(op, -EPIPE, choice, 0);
        return;
    }
    if (sender >= 0)
        ends(sender, 0, ops[sender].kind == SELECT ? number : ANY, 0);
    ends(op, 0, choice, value);
}

/* The operation can't be done at once: it waits, unless something is against that. */
static bool has_to_wait(int op)
{
    struct op *o = &ops[op];
    bool is_late = o->deadline != GS_FOREVER && o->deadline <= now;
    if (o->is_cancelled && !o->is_shielded) {
        /* Both are right if the deadline has passed, too. */
        bool says_late = is_late && o->is_over && o->result != -ECANCELED;
        ends(op, !says_late ? -ECANCELED : o->deadline == GS_NOWAIT ? -EAGAIN : -ETIMEDOUT, ANY, 0);
        return false;
    }
    if (is_late) {
        ends(op, o->deadline == GS_NOWAIT ? -EAGAIN : -ETIMEDOUT, ANY, 0);
        return false;
    }
    o->waits = true;
    return true;
}

/* What becomes of an operation that has just begun. */
static void begins(int op)
{
    struct op *o = &ops[op];
    switch (o->kind) {
    case SEND: case RECV: {
        struct channel *c = &chans[o->at];
        if (is_ready(c, o->kind == SEND ? GS_SEND : GS_RECV))
            transfer(op, o->at, false);
        else if (has_to_wait(op))
            push(o->kind == SEND ? &c->senders : &c->receivers, op);
        break;
    }
    case SELECT: {
        int ready = 0;
        for (int i = 0; i < CHANS; i++)
            if (o->ops[i] && is_ready(&chans[i], o->ops[i]))
                ready |= 1 << i;
        if (ready) {
            if (!o->is_over || o->chosen < 0 || !(ready >> o->chosen & 1))
                FAIL("operation %d: a select chose %d of the channels %#x", op, o->is_over ? o->chosen : -2, ready);
            transfer(op, o->chosen, true);
        } else if (has_to_wait(op)) {
            for (int i = 0; i < CHANS; i++)
                if (o->ops[i])
                    push(o->ops[i] == GS_SEND ? &chans[i].senders : &chans[i].receivers, op);
        }
        break;
    }
    case LOCK:
        if (!mutexes[o->at].is_locked) {
            mutexes[o->at].is_locked = true;
            ends(op, 0, ANY, 0);
        } else if (has_to_wait(op)) {
            push(&mutexes[o->at].waiters, op);
        }
        break;
    case COND_WAIT:
        if (!mutexes[0].is_locked) {
            ends(op, -EPERM, ANY, 0);
        } else if (has_to_wait(op)) {
            push(&cond.waiters, op);
            grant_mutex(0);
        } /* else the wait is over at once, and op holds the mutex as before */
        break;
    case RLOCK:
        if (!rw.is_writing && rw.waiting_writers.n == 0) {
            rw.readers++;
            ends(op, 0, ANY, 0);
        } else if (has_to_wait(op)) {
            push(&rw.waiting_readers, op);
        }
        break;
    case WLOCK:
        if (!rw.is_writing && rw.readers == 0) {
            rw.is_writing = true;
            ends(op, 0, ANY, 0);
        } else if (has_to_wait(op)) {
            push(&rw.waiting_writers, op);
        }
        break;
    case ACQUIRE:
        if (sem.waiters.n == 0 && o->at <= sem.units) {
            sem.units -= o->at;
            ends(op, 0, ANY, 0);
        } else if (has_to_wait(op)) {
            push(&sem.waiters, op);
        }
        break;
    case WG_WAIT:
        if (group.count == 0)
            ends(op, 0, ANY, 0);
        else
            (void)has_to_wait(op);
        break;
    case SLEEP:
        if (o->deadline != GS_FOREVER && o->deadline <= now)
            ends(op, 0, ANY, 0);
        else
            (void)has_to_wait(op);
        break;
    case JOIN:
        if (ops[o->at].is_known && !ops[o->at].waits) {
            ops[o->at].joiners++;
            ends(op, 0, ANY, 0);
        } else {
            ops[o->at].joiners++;
            (void)has_to_wait(op);
        }
        break;
    case ONCE:
        once.is_done = true;
        ends(op, 0, ANY, 0);
        break;
    case KINDS:
        break;
    }
}

static bool waits_with_deadline(const struct op *o)
{
    return o->is_used && o->waits && !o->relocks && o->deadline != GS_FOREVER;
}

/* Time has passed: deadlines expire in their order, and timers fire. */
static void expire(void)
{
    for (;;) {
        int first = ANY;
        for (int i = 0; i < OPS; i++)
            if (waits_with_deadline(&ops[i]) && ops[i].deadline <= now
                && (first < 0 || ops[i].deadline < ops[first].deadline))
                first = i;
        if (first < 0)
            break;
        gives_up(first, -ETIMEDOUT);
    }
    for (int i = 0; i < TIMERS; i++) {
        if (timers[i].is_pending && timers[i].when <= now) {
            timers[i].is_pending = false;
            timers[i].wanted++;
        }
    }
    while (ticker.c && ticker.every > 0 && ticker.next <= now) {
        if (!ticker.has_tick)
            ticker.tick = ticker.next;
        ticker.has_tick = true;
        ticker.next += ticker.every;
    }
}

/* ---- Comparing ---- */

static void compare(void)
{
    size_t waiting = 0;
    for (int i = 0; i < OPS; i++) {
        const struct op *o = &ops[i];
        if (!o->is_used)
            continue;
        waiting += o->waits;
        const char *name = names[o->kind];
        if (o->waits == o->is_over)
            FAIL("operation %d (%s): it %s", i, name,
                 o->is_over ? "is over, and should wait" : "waits, and should be over");
        if (o->waits)
            continue;
        if (o->result != o->wanted)
            FAIL("operation %d (%s): %d instead of %d", i, name, o->result, o->wanted);
        if (o->kind == SELECT && o->chosen != o->wanted_choice)
            FAIL("operation %d (%s): channel %d instead of %d", i, name, o->chosen, o->wanted_choice);
        bool chose_receive = o->kind == SELECT && o->chosen >= 0 && o->ops[o->chosen] == GS_RECV;
        int from = o->kind == RECV ? o->at : chose_receive ? o->chosen : ANY;
        if (from >= 0 && (o->result == 0 || o->result == -EPIPE) && o->got[from] != o->wanted_value)
            FAIL("operation %d (%s): got %llu instead of %llu", i, name, (unsigned long long)o->got[from],
                 (unsigned long long)o->wanted_value);
    }
    for (int i = 0; i < CHANS; i++) {
        CHECK(gs_chan_len(chans[i].c) == chans[i].n);
        CHECK(gs_chan_cap(chans[i].c) == chans[i].cap);
    }
    for (int i = 0; i < TIMERS; i++)
        if (timers[i].fired != timers[i].wanted)
            FAIL("timer %d has fired %d times instead of %d", i, timers[i].fired, timers[i].wanted);
    CHECK(once.runs == once.is_done);
    if (gs_num_goroutines() != 1 + waiting)
        FAIL("%zu goroutines instead of %zu", gs_num_goroutines(), 1 + waiting);
}

/* All goroutines run until they wait. Time passes for `steps` steps; `effect` comes before that. */
static void settle(int steps)
{
    now += (gs_deadline)steps * STEP;
    CHECK(gs_sleep_until(now) == 0);
    CHECK(gs_now() == now);
}

/* ---- Steps ---- */

static gs_deadline some_deadline(int byte)
{
    switch (byte & 7) {
    case 0: case 1: return GS_FOREVER;
    case 2: return GS_NOWAIT;
    case 3: return 1; /* has passed */
    default: return now + (gs_duration)(byte >> 3) * STEP * 3 + 1 + serial % (STEP - 2); /* each another */
    }
}

/* A place for an operation, or ANY. */
static int place(void)
{
    for (int i = 0; i < OPS; i++) {
        struct op *o = &ops[i];
        if (o->is_used && (o->waits || o->joiners > 0))
            continue;
        if (o->g) {
            CHECK(gs_join(o->g, GS_NOWAIT) == 0);
            gs_release(o->g);
        }
        *o = (struct op){.is_used = false};
        return i;
    }
    return ANY;
}

static void begin_op(enum kind kind, int more)
{
    int i = place();
    if (i < 0)
        return;
    struct op *o = &ops[i];
    int how = input_byte(), when = input_byte();
    serial++;
    o->kind = kind;
    o->chosen = ANY;
    o->is_cancelled = (how & 15) == 15;
    o->is_shielded = (how & 0x30) == 0x30;
    o->deadline = some_deadline(when);
    if (o->is_shielded && o->deadline == GS_FOREVER)
        o->deadline = now + 5 * STEP + 1 + serial % (STEP - 2);
    for (int c = 0; c < CHANS; c++) {
        o->value[c] = ++last_value;
        o->got[c] = ~UINT64_C(0);
    }
    switch (kind) {
    case SEND: case RECV: o->at = more % CHANS; break;
    case LOCK: o->at = more % MUTEXES; break;
    case ACQUIRE: o->at = more % 4; break;
    case SELECT:
        for (int c = 0; c < CHANS; c++)
            o->ops[c] = (int[]){0, GS_SEND, GS_RECV, GS_RECV}[more >> 2 * c & 3];
        break;
    case JOIN:
        o->at = more % OPS;
        if (o->at == i || !ops[o->at].is_used)
            return;
        break;
    case COND_WAIT:
        /* Otherwise it and the others compete for the mutex. */
        if (mutexes[0].waiters.n > 0 && (o->is_cancelled || (o->deadline != GS_FOREVER && o->deadline <= now)))
            return;
        break;
    default: break;
    }
    o->is_used = true;
    SAY("%d: %s %d, deadline %lld%s%s", i, names[kind], o->at, (long long)o->deadline,
        o->is_cancelled ? ", cancelled" : "", o->is_shielded ? ", shielded" : "");
    CHECK(gs_spawn_with(act, o, NULL, &o->g) == 0);
    gs_deadline at = now;
    settle(1);
    gs_deadline then = now;
    now = at;
    begins(i);
    now = then;
}

static void cancel(int i)
{
    struct op *o = &ops[i];
    if (!o->is_used)
        return;
    SAY("%d: cancel", i);
    CHECK(gs_cancel(o->g) == 0);
    o->is_cancelled = true;
    if (o->waits && !o->is_shielded && !o->relocks)
        gives_up(i, -ECANCELED);
}

static void close_channel(int i)
{
    struct channel *c = &chans[i];
    SAY("close %d", i);
    CHECK(gs_chan_close(c->c) == (c->is_closed ? -EPIPE : 0));
    c->is_closed = true;
    while (c->receivers.n > 0)
        ends(c->receivers.op[0], -EPIPE, ops[c->receivers.op[0]].kind == SELECT ? i : ANY, 0);
    while (c->senders.n > 0)
        ends(c->senders.op[0], -EPIPE, ops[c->senders.op[0]].kind == SELECT ? i : ANY, 0);
}

static void make_channel(int i, size_t cap)
{
    struct channel *c = &chans[i];
    if (c->c) {
        bool is_busy = c->senders.n + c->receivers.n > 0;
        CHECK(gs_chan_free(c->c) == (is_busy ? -EBUSY : 0));
        if (is_busy)
            return;
    }
    SAY("make %d with %zu", i, cap);
    *c = (struct channel){.c = gs_chan_make(sizeof(uint64_t), cap), .cap = cap};
    CHECK(c->c != NULL);
}

/* gs_chan_put and gs_chan_take, which wake no goroutine. */
static void put(int i)
{
    struct channel *c = &chans[i];
    uint64_t value = ++last_value;
    bool fits = !c->is_closed && c->receivers.n == 0 && c->n < c->cap;
    SAY("put %d", i);
    CHECK(gs_chan_put(c->c, &value) == (fits ? 0 : c->is_closed ? -EPIPE : -EAGAIN));
    if (fits)
        c->buffer[c->n++] = value;
}

static void take(int i)
{
    struct channel *c = &chans[i];
    uint64_t value = 1;
    bool is_there = c->n > 0 && c->senders.n == 0, is_drained = c->is_closed && c->n == 0;
    SAY("take %d", i);
    CHECK(gs_chan_take(c->c, &value) == (is_there ? 0 : is_drained ? -EPIPE : -EAGAIN));
    CHECK(value == (is_there ? c->buffer[0] : is_drained ? 0 : 1));
    if (is_there)
        memmove(c->buffer, c->buffer + 1, sizeof c->buffer[0] * --c->n);
}

static void unlock(int m)
{
    SAY("unlock %d", m);
    CHECK(gs_mutex_unlock(&mutexes[m].m) == (mutexes[m].is_locked ? 0 : -EPERM));
    if (!mutexes[m].is_locked)
        return;
    settle(1);
    grant_mutex(m);
}

static void trylock(int m)
{
    CHECK(gs_mutex_trylock(&mutexes[m].m) == (mutexes[m].is_locked ? -EBUSY : 0));
    mutexes[m].is_locked = true;
}

static void signal_cond(bool all)
{
    SAY("%s", all ? "broadcast" : "signal");
    CHECK((all ? gs_cond_broadcast(&cond.c) : gs_cond_signal(&cond.c)) == 0);
    settle(1);
    int n = all ? cond.waiters.n : cond.waiters.n > 0;
    serial++;
    bool was_free = !mutexes[0].is_locked;
    for (int k = 0; k < n; k++) {
        int op = cond.waiters.op[0];
        drop(&cond.waiters, op);
        ops[op].relocks = true;
        ops[op].wanted = 0;
        ops[op].batch = serial;
        push(&mutexes[0].waiters, op);
    }
    if (n > 0 && was_free)
        grant_mutex(0);
}

static void unlock_rw(bool is_writer)
{
    bool is_held = is_writer ? rw.is_writing : rw.readers > 0;
    SAY("unlock for %s", is_writer ? "writing" : "reading");
    CHECK((is_writer ? gs_rwmutex_unlock(&rw.rw) : gs_rwmutex_runlock(&rw.rw)) == (is_held ? 0 : -EPERM));
    if (!is_held)
        return;
    if (is_writer)
        rw.is_writing = false;
    else
        rw.readers--;
    if (is_writer ? admit_readers() == 0 : rw.readers == 0)
        admit_writer();
}

static void add_to_group(int delta)
{
    SAY("add %d", delta);
    bool fits = group.count + delta >= 0;
    CHECK(gs_waitgroup_add(&group.wg, delta) == (fits ? 0 : -EINVAL));
    group.count += fits ? delta : 0;
    for (int i = 0; group.count == 0 && i < OPS; i++)
        if (ops[i].is_used && ops[i].waits && ops[i].kind == WG_WAIT)
            ends(i, 0, ANY, 0);
}

static void release(int n)
{
    SAY("release %d", n);
    CHECK(gs_sem_release(&sem.s, n) == (n < 0 ? -EINVAL : 0));
    sem.units += n < 0 ? 0 : n;
    grant_sem();
}

static void set_timer(int i, int how)
{
    /* Never when a step ends. */
    gs_duration ns = (how >> 3) * 2 * STEP + 1 + serial++ % (STEP - 2);
    SAY("timer %d: %d", i, how & 7);
    if (!timers[i].t) {
        timers[i].t = gs_timer_start(ns, timer_function, &timers[i].fired);
        CHECK(timers[i].t != NULL);
    } else if ((how & 7) < 3) {
        CHECK(gs_timer_reset(timers[i].t, ns) == timers[i].is_pending);
    } else {
        int was = (how & 7) < 5 ? gs_timer_stop(timers[i].t) : gs_timer_stop_wait(timers[i].t, GS_FOREVER);
        CHECK(was == timers[i].is_pending);
        timers[i].is_pending = false;
        if ((how & 7) == 7) {
            CHECK(gs_timer_free(timers[i].t) == 0);
            timers[i].t = NULL;
        }
        return;
    }
    timers[i].is_pending = true;
    timers[i].when = now + ns;
}

static void set_ticker(int how)
{
    gs_duration ns = (20 + (how >> 2)) * STEP + 1;
    SAY("ticker: %d", how & 3);
    if (!ticker.c) {
        ticker.every = how & 1 ? ns : 0;
        ticker.next = now + ns;
        ticker.c = how & 1 ? gs_ticker_start(ns) : gs_after(ns);
        CHECK(ticker.c != NULL);
        if (!ticker.every)
            ticker.every = INT64_MAX / 2; /* once */
    } else if ((how & 3) == 0) {
        CHECK(gs_ticker_stop(ticker.c) == 0);
        ticker.every = 0;
    } else if ((how & 3) == 1) {
        CHECK(gs_chan_free(ticker.c) == 0);
        ticker.c = NULL;
        ticker.has_tick = false;
    } else {
        int64_t tick = 0;
        CHECK(gs_chan_recv(ticker.c, &tick, GS_NOWAIT) == (ticker.has_tick ? 0 : -EAGAIN));
        CHECK(tick == (ticker.has_tick ? ticker.tick : 0));
        ticker.has_tick = false;
    }
}

static void play_step(void)
{
    int what = input_byte(), more = input_byte();
    if (what < 128) {
        begin_op((enum kind)(what % KINDS), more);
    } else {
        switch (what % 18) {
        case 0: close_channel(more % CHANS); break;
        case 1: make_channel(more % CHANS, (size_t)(more >> 2) % (BUFFER + 1)); break;
        case 2: put(more % CHANS); break;
        case 3: take(more % CHANS); break;
        case 4: case 5: unlock(more % MUTEXES); break;
        case 6: trylock(more % MUTEXES); break;
        case 7: signal_cond(false); break;
        case 8: signal_cond(true); break;
        case 9: unlock_rw(true); break;
        case 10: unlock_rw(false); break;
        case 11: add_to_group(more % 7 - 3); break;
        case 12: release(more % 6 - 1); break;
        case 13: case 14: cancel(more % OPS); break;
        case 15: set_timer(more % TIMERS, more >> 2); break;
        case 16: set_ticker(more); break;
        default: settle(more >> 2); break;
        }
        settle(1);
    }
    expire();
    compare();
}

/* Ends what is under way, and gives everything back. */
static void finish(void)
{
    for (int i = 0; i < OPS; i++) {
        if (ops[i].is_used && ops[i].waits && !ops[i].is_shielded) {
            cancel(i);
            settle(1);
            expire();
            compare();
        }
    }
    settle(200);
    expire();
    compare();
    while (mutexes[0].waiters.n > 0) {
        unlock(0);
        settle(1);
        expire();
        compare();
    }
    for (int i = 0; i < OPS; i++) {
        CHECK(!(ops[i].is_used && ops[i].waits));
        if (ops[i].g) {
            CHECK(gs_join(ops[i].g, GS_NOWAIT) == 0);
            gs_release(ops[i].g);
        }
    }
    for (int i = 0; i < CHANS; i++)
        CHECK(gs_chan_free(chans[i].c) == 0);
    for (int i = 0; i < TIMERS; i++)
        CHECK(gs_timer_free(timers[i].t) == (timers[i].t ? 0 : -EINVAL));
    CHECK(gs_chan_free(ticker.c) == (ticker.c ? 0 : -EINVAL));
}

static void play(void *arg)
{
    (void)arg;
    memset(ops, 0, sizeof ops);
    memset(chans, 0, sizeof chans);
    memset(mutexes, 0, sizeof mutexes);
    memset(&cond, 0, sizeof cond);
    memset(&rw, 0, sizeof rw);
    memset(&sem, 0, sizeof sem);
    memset(&group, 0, sizeof group);
    memset(&once, 0, sizeof once);
    memset(timers, 0, sizeof timers);
    memset(&ticker, 0, sizeof ticker);
    serial = 0;
    last_value = 0;
    now = gs_now();
    CHECK(now % STEP == 0);
    int caps = input_byte();
    for (int i = 0; i < CHANS; i++)
        make_channel(i, (size_t)(caps >> 2 * i & 3));
    sem.units = input_byte() % 4;
    CHECK(gs_sem_init(&sem.s, sem.units) == 0);
    for (int i = 0; i < STEPS && input_left() > 0; i++)
        play_step();
    finish();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    input_begin(data, n);
    gs_test_opts opts = {.size = sizeof opts};
    int how = input_byte();
    opts.schedule = (uint32_t)how % 3;
    opts.seed = 1 + (uint64_t)how / 3;
    opts.depth = 3;
    int err = gs_test_run(play, NULL, &opts);
    if (err != 0)
        FAIL("gs_test_run: %d (%s)", err, gs_strerror(err));
    return 0;
}
