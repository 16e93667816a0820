/*
 * gosched_mpi.h: MPI from goroutines. A goroutine that waits for a message parks, and its P runs others.
 *
 *   #include <gosched_mpi.h>           cc or mpicc, C11 or C++11 and later, MPI 3.0 and later
 *
 *   gs_mpi_init(&argc, &argv);         before or in gs_run: MPI_Init_thread with MPI_THREAD_MULTIPLE
 *   gs_mpi_recv(buf, n, MPI_INT, MPI_ANY_SOURCE, tag, comm, &status, gs_after_ms(100));
 *   MPI_Finalize();                    after gs_run
 *
 * Every function gives an int:
 *
 *   0 (MPI_SUCCESS)   done
 *   above 0           an error code of MPI, as MPI's own function would return it
 *   below 0           the call did not do its work, for a reason outside of MPI:
 *                     -EAGAIN, -ETIMEDOUT, -ECANCELED as in gosched.h; -ENOMEM;
 *                     -EPERM      MPI is not initialised
 *                     -ENOTSUP    MPI was initialised with less than MPI_THREAD_MULTIPLE
 *                     -ESHUTDOWN  MPI_Finalize was called
 *
 * gs_mpi_strerror explains all of them. Goroutines and plain threads may call everything; a plain thread
 * blocks. All MPI_I... functions, MPI_Test and their kin never wait, so programs call them directly, and
 * wait for the request with gs_mpi_wait.
 *
 * Each blocking function starts the MPI_I... function of its name, and parks until the request is complete.
 * One goroutine per process, "mpi progress", tests the requests of all waiting goroutines at once. The first
 * call that has to wait starts it. It ends when no call waits.
 */
#ifndef GOSCHED_MPI_H
#define GOSCHED_MPI_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include <gosched.h>

#ifndef __cplusplus
extern int setenv(const char *name, const char *value, int overwrite); /* hidden by -std=c11 */
#endif

#if !defined(MPI_VERSION) || MPI_VERSION < 3
#error "gosched_mpi.h needs MPI 3.0 or later: nonblocking collectives and matched probes"
#endif

/* After an event (a completed request, a new wait) MPI is polled for this long without sleeping, in ns, while other
 * goroutines run between two polls: by the call that waits if it is the only one, else by the progress goroutine.
 * Define it before the #include, alike in all files of a program. */
#ifndef GS_MPI_SPIN_NS
#define GS_MPI_SPIN_NS 50000
#endif

/* The longest sleep between two polls, in ns. A sleep is an eighth of the time since the last event, so a message
 * that took t to come is seen by 1.125 t, and after a long silence at most this much late. Each sleep costs the
 * wake-up of a thread. Define it before the #include, alike in all files of a program. */
#ifndef GS_MPI_SLEEP_MAX_NS
#define GS_MPI_SLEEP_MAX_NS 10000000
#endif

/* ---- Inside: nothing down to "Start" is for programs ---- */

enum { GS_MPI_ALL_, GS_MPI_ANY_, GS_MPI_SOME_, GS_MPI_PROBE_, GS_MPI_MPROBE_ };

/* A request that a call waits for, and its place in the call's array. */
typedef struct gs_mpi_entry_ {
    MPI_Request request;
    int index;
} gs_mpi_entry_;

/* A call that waits, on the caller's stack. From its submission until `done` is released it belongs to the
 * progress goroutine, except for `withdraw`. */
typedef struct gs_mpi_waiter_ {
    struct gs_mpi_waiter_ *next;
    int kind;
    bool each;           /* of several requests, even if there is but one: each status has its own error */
    bool must;           /* a send or collective: neither MPI_Finalize nor anything else ends the wait */
    bool finished;       /* by MPI, with `result`; else it was withdrawn */
    bool withdraw;       /* atomic: the caller's deadline has passed, or the caller was cancelled */
    bool gave_back;      /* a request that has not completed is the caller's again: the wait can't finish any more */
    int result;
    int count;           /* of requests, and where they and their statuses (or NULL) are */
    MPI_Request *requests;
    MPI_Status *statuses;
    gs_mpi_entry_ *entries; /* GS_MPI_ALL_: the active ones among them */
    int left;               /* entries that have not completed */
    int *index, *indices;   /* GS_MPI_ANY_, GS_MPI_SOME_: out */
    int source, tag;        /* GS_MPI_PROBE_, GS_MPI_MPROBE_ */
    MPI_Comm comm;
    MPI_Message *message;
    gs_sem done;
} gs_mpi_waiter_;

/* What there is once per process. */
typedef struct gs_mpi_state_type_ {
    gs_mutex start;          /* for the first call */
    gs_mutex lock;           /* around calls of MPI: see gs_mpi_lock_ */
    bool ready, closed;      /* atomic: MPI is initialised as needed; MPI_Finalize was called */
    bool running, sleeping;  /* atomic: the progress goroutine */
    bool withdrawn;          /* atomic: some waiter's `withdraw` was set since the last look */
    int64_t inside;          /* atomic: calls that are using MPI */
    uint64_t polls, started; /* atomic: for gs_mpi_stats */
    gs_mpi_waiter_ *news;    /* atomic: a stack of waiters that the progress goroutine has not seen */
    gs_sem kick;             /* ends the progress goroutine's sleep */
    /* The progress goroutine's own: `n` requests of those in GS_MPI_ALL_, and the list of the others. */
    int n, room;
    MPI_Request *requests;
    MPI_Status *statuses;
    int *completed, *index;
    gs_mpi_waiter_ **owners;
    gs_mpi_waiter_ *polled;
} gs_mpi_state_type_;

/* Weak: the linker makes one of the definitions in all files. */
#ifdef __cplusplus
extern "C" {
#endif
__attribute__((__weak__)) gs_mpi_state_type_ gs_mpi_state_;
#ifdef __cplusplus
}
#endif

#define GS_MPI_GET_(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define GS_MPI_SET_(x, v) __atomic_store_n(&(x), (v), __ATOMIC_SEQ_CST)
#define GS_MPI_SWAP_(x, v) __atomic_exchange_n(&(x), (v), __ATOMIC_SEQ_CST)
#define GS_MPI_ADD_(x, v) __atomic_add_fetch(&(x), (v), __ATOMIC_SEQ_CST)

/* Wakes the progress goroutine if it sleeps. SEQ_CST pairs with its store of `sleeping` before its last look:
 * either it sees what was set before this call, or this call sees that it sleeps. */
static inline void gs_mpi_kick_(void)
{
    if (GS_MPI_GET_(gs_mpi_state_.sleeping) && GS_MPI_SWAP_(gs_mpi_state_.sleeping, false))
        gs_sem_release(&gs_mpi_state_.kick, 1);
}

/* MPI_Finalize deletes the attributes of MPI_COMM_SELF first, while MPI still works. So this runs at its
 * beginning, and returns when no call uses MPI any more. */
static inline int gs_mpi_closing_(MPI_Comm comm, int keyval, void *value, void *extra)
{
    gs_mpi_state_type_ *m = &gs_mpi_state_;
    int64_t begun = gs_now();
    bool said = false;
    (void)comm, (void)keyval, (void)value, (void)extra;
    GS_MPI_SET_(m->closed, true);
    GS_MPI_SET_(m->withdrawn, true);
    gs_mpi_kick_();
    if (GS_MPI_GET_(m->inside) != 0 || GS_MPI_GET_(m->running)) {
        gs_cancel_disable();
        gs_lock_os_thread(); /* MPI_Finalize's caller must stay on its thread */
        while (GS_MPI_GET_(m->inside) != 0 || GS_MPI_GET_(m->running)) {
            gs_sleep(100000);
            if (!said && gs_now() - begun > 1000000000) {
                said = true;
                fprintf(stderr, "gosched_mpi: MPI_Finalize waits for %lld calls whose sends or collectives other "
                                "ranks have not completed\n", (long long)GS_MPI_GET_(m->inside));
            }
        }
        gs_unlock_os_thread();
        gs_cancel_enable();
    }
    free(m->requests), free(m->statuses), free(m->completed), free(m->index), free(m->owners);
    m->requests = NULL, m->statuses = NULL, m->completed = NULL, m->index = NULL, m->owners = NULL;
    m->room = 0;
    return MPI_SUCCESS;
}

/* Before the first use: is MPI there, as this header needs it? */
static inline int gs_mpi_check_(void)
{
    gs_mpi_state_type_ *m = &gs_mpi_state_;
    int yes = 0, level = MPI_THREAD_SINGLE, keyval = MPI_KEYVAL_INVALID, r;
    if ((r = gs_mutex_lock(&m->start, GS_FOREVER)) < 0)
        return r;
    if (!m->ready) {
        MPI_Initialized(&yes);
        if (!yes) {
            r = -EPERM;
        } else if (MPI_Finalized(&yes), yes) {
            r = -ESHUTDOWN;
        } else if (MPI_Query_thread(&level), level < MPI_THREAD_MULTIPLE) {
            r = -ENOTSUP;
        } else if ((r = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, gs_mpi_closing_, &keyval, NULL)) == MPI_SUCCESS
                   && (r = MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL)) == MPI_SUCCESS) {
            MPI_Comm_free_keyval(&keyval); /* the attribute stays */
            GS_MPI_SET_(m->ready, true);
        }
    }
    (void)gs_mutex_unlock(&m->start);
    return r;
}

/* Around every use of MPI. SEQ_CST pairs with gs_mpi_closing_: it sees the caller inside, or the caller sees
 * that MPI is closed. */
static inline int gs_mpi_enter_(void)
{
    gs_mpi_state_type_ *m = &gs_mpi_state_;
    int r = 0;
    GS_MPI_ADD_(m->inside, 1);
    if (GS_MPI_GET_(m->closed))
        r = -ESHUTDOWN;
    else if (!GS_MPI_GET_(m->ready))
        r = gs_mpi_check_();
    if (r != 0)
        GS_MPI_ADD_(m->inside, -1);
    return r;
}

static inline int gs_mpi_leave_(int r)
{
    GS_MPI_ADD_(gs_mpi_state_.inside, -1);
    return r;
}

/* Goroutines take turns to call MPI. With MPI_THREAD_MULTIPLE it would lock by itself, but then the threads of
 * waiting goroutines would block, and the library would start others in their place. Programs that call MPI
 * directly need not take this lock. */
static inline void gs_mpi_lock_(void)
{
    if (gs_mutex_trylock(&gs_mpi_state_.lock) != 0) {
        gs_cancel_disable();
        gs_mutex_lock(&gs_mpi_state_.lock, GS_FOREVER);
        gs_cancel_enable();
    }
}

/* Gives the result of what was done under the lock. */
static inline int gs_mpi_unlock_(int r)
{
    (void)gs_mutex_unlock(&gs_mpi_state_.lock);
    return r;
}

#define GS_MPI_LOCKED_(call) (gs_mpi_lock_(), gs_mpi_unlock_(call))

/* ---- The progress goroutine ---- */

static inline bool gs_mpi_reserve_(gs_mpi_state_type_ *m, int more)
{
    size_t room = (size_t)m->room;
    void *p;
    if (more <= m->room - m->n)
        return true;
    while (room < (size_t)m->n + (size_t)more)
        room = room == 0 ? 64 : 2 * room;
    if (room > INT32_MAX)
        return false;
#define GS_MPI_GROW_(array, type)                                      \
    if ((p = realloc((void *)(array), room * sizeof *(array))) == NULL) \
        return false;                                                  \
    (array) = (type *)p
    GS_MPI_GROW_(m->requests, MPI_Request);
    GS_MPI_GROW_(m->statuses, MPI_Status);
    GS_MPI_GROW_(m->completed, int);
    GS_MPI_GROW_(m->index, int);
    GS_MPI_GROW_(m->owners, gs_mpi_waiter_ *);
#undef GS_MPI_GROW_
    m->room = (int)room;
    return true;
}

static inline void gs_mpi_finish_waiter_(gs_mpi_waiter_ *w, gs_mpi_waiter_ **over, int result)
{
    w->finished = true;
    w->result = result;
    w->next = *over;
    *over = w;
}

/* One of a waiter's requests is not tested any more. `withdraw` may be set while gs_mpi_sweep_ looks at the requests of
 * one waiter, so it may give back some of them, and the others may complete before its next look. */
static inline void gs_mpi_one_less_(gs_mpi_waiter_ *w, gs_mpi_waiter_ **over, int result)
{
    if (--w->left > 0)
        return;
    if (!w->gave_back) {
        gs_mpi_finish_waiter_(w, over, result);
    } else {
        w->next = *over;
        *over = w;
    }
}

/* Takes over the waiters that were submitted since the last call. False: there were none. A waiter that can't be
 * taken over goes to those that are over. */
static inline bool gs_mpi_take_news_(gs_mpi_state_type_ *m, gs_mpi_waiter_ **over)
{
    gs_mpi_waiter_ *w = GS_MPI_GET_(m->news) == NULL ? NULL : GS_MPI_SWAP_(m->news, (gs_mpi_waiter_ *)NULL), *next;
    bool any = w != NULL;
    for (; w != NULL; w = next) {
        next = w->next;
        if (GS_MPI_GET_(m->closed) && !w->must) {
            gs_mpi_finish_waiter_(w, over, -ESHUTDOWN);
        } else if (w->kind != GS_MPI_ALL_) {
            w->next = m->polled;
            m->polled = w;
        } else if (!gs_mpi_reserve_(m, w->left)) {
            gs_mpi_finish_waiter_(w, over, -ENOMEM);
        } else {
            for (int i = 0; i < w->left; i++) {
                m->requests[m->n] = w->entries[i].request;
                m->index[m->n] = w->entries[i].index;
                m->owners[m->n++] = w;
            }
        }
    }
    return any;
}

/* One of a waiter's requests is complete. */
static inline void gs_mpi_completed_(gs_mpi_waiter_ *w, int i, MPI_Request request, const MPI_Status *status, int error)
{
    w->requests[i] = request; /* MPI_REQUEST_NULL, or a persistent request that is inactive now */
    if (w->statuses != NULL) {
        /* Functions for one request leave MPI_ERROR as it is. */
        int kept = w->statuses[i].MPI_ERROR;
        w->statuses[i] = *status;
        w->statuses[i].MPI_ERROR = w->each ? error : kept;
    }
    if (error != MPI_SUCCESS && w->result == MPI_SUCCESS)
        w->result = error;
}

/* Tests all requests at once. The number of requests that have completed. */
static inline int gs_mpi_test_(gs_mpi_state_type_ *m, gs_mpi_waiter_ **over)
{
    int done = 0, r;
    if (m->n == 0)
        return 0;
    r = MPI_Testsome(m->n, m->requests, &done, m->completed, m->statuses);
    if (r != MPI_SUCCESS && r != MPI_ERR_IN_STATUS) {
        /* Not the fault of one request, so all waits end with it. */
        for (int k = 0; k < m->n; k++) {
            gs_mpi_waiter_ *w = m->owners[k];
            w->requests[m->index[k]] = m->requests[k];
            gs_mpi_one_less_(w, over, r);
        }
        m->n = 0;
        return 1;
    }
    if (done == MPI_UNDEFINED)
        return 0;
    for (int k = 0; k < done; k++) {
        int at = m->completed[k];
        gs_mpi_waiter_ *w = m->owners[at];
        int error = r == MPI_ERR_IN_STATUS ? m->statuses[k].MPI_ERROR : MPI_SUCCESS;
        m->owners[at] = NULL;
        gs_mpi_completed_(w, m->index[at], m->requests[at], &m->statuses[k], error);
        gs_mpi_one_less_(w, over, w->result);
    }
    return done;
}

/* Whether a wait is to end before MPI ends it. */
static inline bool gs_mpi_ends_early_(gs_mpi_state_type_ *m, gs_mpi_waiter_ *w)
{
    return GS_MPI_GET_(w->withdraw) || (GS_MPI_GET_(m->closed) && !w->must);
}

/* Closes the gaps in the arrays, and with `withdrawn` takes out waiters that don't want to wait any more. */
static inline void gs_mpi_sweep_(gs_mpi_state_type_ *m, bool withdrawn, gs_mpi_waiter_ **over)
{
    int kept = 0;
    for (int k = 0; k < m->n; k++) {
        gs_mpi_waiter_ *w = m->owners[k];
        if (w == NULL)
            continue;
        if (withdrawn && gs_mpi_ends_early_(m, w)) {
            w->gave_back = true;
            gs_mpi_one_less_(w, over, 0);
            continue;
        }
        m->requests[kept] = m->requests[k];
        m->index[kept] = m->index[k];
        m->owners[kept++] = w;
    }
    m->n = kept;
}

/* Probes, and waits for any or some of several requests, each by a call of its own. Gives how many are over. */
static inline int gs_mpi_poll_each_(gs_mpi_state_type_ *m, bool withdrawn, gs_mpi_waiter_ **over)
{
    int ended = 0;
    for (gs_mpi_waiter_ **at = &m->polled, *w; (w = *at) != NULL;) {
        int yes = 0, r = MPI_SUCCESS;
        MPI_Status *status = w->statuses == NULL ? MPI_STATUS_IGNORE : w->statuses;
        switch (w->kind) {
        case GS_MPI_PROBE_: r = MPI_Iprobe(w->source, w->tag, w->comm, &yes, status); break;
        case GS_MPI_MPROBE_: r = MPI_Improbe(w->source, w->tag, w->comm, &yes, w->message, status); break;
        case GS_MPI_ANY_: r = MPI_Testany(w->count, w->requests, w->index, &yes, status); break;
        default:
            r = MPI_Testsome(w->count, w->requests, w->index, w->indices, w->statuses == NULL ? MPI_STATUSES_IGNORE : w->statuses);
            yes = *w->index != 0;
        }
        if (yes || r != MPI_SUCCESS) {
            *at = w->next;
            gs_mpi_finish_waiter_(w, over, r);
            ended++;
        } else if (withdrawn && gs_mpi_ends_early_(m, w)) {
            *at = w->next;
            w->next = *over;
            *over = w;
        } else {
            at = &w->next;
        }
    }
    return ended;
}

/* Wakes those that are over. They may be gone as soon as their semaphore is released. */
static inline void gs_mpi_wake_(gs_mpi_waiter_ *over)
{
    for (gs_mpi_waiter_ *next; over != NULL; over = next) {
        next = over->next;
        gs_sem_release(&over->done, 1);
    }
}

static inline void gs_mpi_doze_(gs_mpi_state_type_ *m, int64_t ns)
{
    GS_MPI_SET_(m->sleeping, true);
    if (GS_MPI_GET_(m->news) == NULL && !GS_MPI_GET_(m->withdrawn)
        && gs_sem_acquire(&m->kick, 1, gs_after_ns(ns)) == -ENOMEM)
        gs_yield(); /* no memory for the timer: poll on */
    GS_MPI_SET_(m->sleeping, false);
}

static inline void gs_mpi_progress_(void *arg)
{
    gs_mpi_state_type_ *m = &gs_mpi_state_;
    int64_t last = gs_now(); /* when something happened */
    (void)arg;
    for (;;) {
        gs_mpi_waiter_ *over = NULL;
        /* In this order: a request that has set `withdrawn` was submitted before. */
        bool withdrawn = GS_MPI_GET_(m->withdrawn) && GS_MPI_SWAP_(m->withdrawn, false);
        bool news = gs_mpi_take_news_(m, &over);
        gs_mpi_lock_();
        int ended = gs_mpi_test_(m, &over);
        if (ended > 0 || withdrawn)
            gs_mpi_sweep_(m, withdrawn, &over);
        ended += gs_mpi_poll_each_(m, withdrawn, &over);
        gs_mpi_unlock_(0);
        __atomic_add_fetch(&m->polls, 1, __ATOMIC_RELAXED);
        gs_mpi_wake_(over);

        if (m->n == 0 && m->polled == NULL) {
            /* A caller that submits from here on starts the next progress goroutine, or is seen here. */
            bool no = false;
            GS_MPI_SET_(m->running, false);
            if (GS_MPI_GET_(m->news) == NULL
                || !__atomic_compare_exchange_n(&m->running, &no, true, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
                return;
            continue;
        }
        int64_t now = gs_now();
        if (news || ended > 0)
            last = now;
        int64_t ns = (now - last) / 8;
        if (now - last < GS_MPI_SPIN_NS)
            gs_yield();
        else
            gs_mpi_doze_(m, ns < GS_MPI_SLEEP_MAX_NS ? ns : GS_MPI_SLEEP_MAX_NS);
    }
}

/* Starts the progress goroutine unless it runs. If it can't be started, all waiting calls get the error. */
static inline void gs_mpi_start_progress_(gs_mpi_state_type_ *m)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    int r;
    opts.name = "mpi progress";
    opts.stack_size = 1024 * 1024; /* functions of MPI_Op_create may run on it */
    for (;;) {
        bool no = false;
        if (!__atomic_compare_exchange_n(&m->running, &no, true, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return;
        if ((r = gs_spawn_with(gs_mpi_progress_, NULL, &opts, NULL)) == 0) {
            __atomic_add_fetch(&m->started, 1, __ATOMIC_RELAXED);
            return;
        }
        gs_mpi_waiter_ *over = GS_MPI_SWAP_(m->news, (gs_mpi_waiter_ *)NULL);
        for (gs_mpi_waiter_ *w = over; w != NULL; w = w->next) {
            w->finished = true;
            w->result = r;
        }
        gs_mpi_wake_(over);
        GS_MPI_SET_(m->running, false);
        if (GS_MPI_GET_(m->news) == NULL)
            return;
    }
}

/* Parks until the waiter is over. A negative result: its requests are as before, and are not tested any more. */
static inline int gs_mpi_park_(gs_mpi_waiter_ *w, gs_deadline deadline)
{
    gs_mpi_state_type_ *m = &gs_mpi_state_;
    int r;
    if (deadline == GS_NOWAIT)
        return -EAGAIN;
    if (deadline != GS_FOREVER && gs_now() >= deadline)
        return -ETIMEDOUT;
    gs_sem_init(&w->done, 0);
    gs_mpi_waiter_ *top = GS_MPI_GET_(m->news);
    do
        w->next = top;
    while (!__atomic_compare_exchange_n(&m->news, &top, w, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    gs_mpi_start_progress_(m);
    gs_mpi_kick_();
    if (w->must)
        gs_cancel_disable();
    r = gs_sem_acquire(&w->done, 1, deadline);
    if (w->must)
        gs_cancel_enable();
    if (r < 0) {
        /* The progress goroutine may be testing the requests: it gives them back. */
        GS_MPI_SET_(w->withdraw, true);
        GS_MPI_SET_(m->withdrawn, true);
        gs_mpi_kick_();
        gs_cancel_disable();
        gs_sem_acquire(&w->done, 1, GS_FOREVER);
        gs_cancel_enable();
        if (!w->finished)
            return r;
    } else if (!w->finished) {
        return -ESHUTDOWN;
    }
    return w->result;
}

/* Whether the call that has just looked is to look again before it parks. `begun`: 0 at the first call. Where others
 * wait too the progress goroutine polls for all of them. */
static inline bool gs_mpi_polls_on_(gs_deadline deadline, int64_t *begun)
{
    int64_t now;
    if (deadline == GS_NOWAIT || GS_MPI_GET_(gs_mpi_state_.running))
        return false;
    now = gs_now();
    if (*begun == 0)
        *begun = now;
    return now - *begun < GS_MPI_SPIN_NS && (deadline == GS_FOREVER || now < deadline);
}

static inline int gs_mpi_wait_one_(MPI_Request *request, MPI_Status *status, gs_deadline deadline, bool must)
{
    int64_t begun = 0;
    int yes = 0, r;
    for (;; gs_yield()) {
        r = GS_MPI_LOCKED_(MPI_Test(request, &yes, status));
        if (r != MPI_SUCCESS || yes)
            return r;
        if (!gs_mpi_polls_on_(deadline, &begun))
            break;
    }
    gs_mpi_entry_ entry;
    gs_mpi_waiter_ w;
    memset(&w, 0, sizeof w);
    entry.request = *request;
    entry.index = 0;
    w.kind = GS_MPI_ALL_;
    w.must = must;
    w.count = w.left = 1;
    w.requests = request;
    w.statuses = status == MPI_STATUS_IGNORE ? NULL : status;
    w.entries = &entry;
    return gs_mpi_park_(&w, deadline);
}

/* Waits to the end for a request that can't be taken back. `r` is what has started it. */
static inline int gs_mpi_complete_(int r, MPI_Request *request, MPI_Status *status)
{
    if (r != MPI_SUCCESS)
        return r;
    while ((r = gs_mpi_wait_one_(request, status, GS_FOREVER, true)) < 0)
        gs_yield(); /* no memory, in the progress goroutine or for it: poll here */
    return r;
}

/* Parks until there is a message. `message`: takes it; NULL: only looks. */
static inline int gs_mpi_park_for_message_(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status,
                                           gs_deadline deadline)
{
    gs_mpi_waiter_ w;
    memset(&w, 0, sizeof w);
    w.kind = message == NULL ? GS_MPI_PROBE_ : GS_MPI_MPROBE_;
    w.statuses = status == MPI_STATUS_IGNORE ? NULL : status;
    w.source = source, w.tag = tag, w.comm = comm, w.message = message;
    return gs_mpi_park_(&w, deadline);
}

/* Waits for a message, and takes it. */
static inline int gs_mpi_take_(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status,
                               gs_deadline deadline)
{
    int64_t begun = 0;
    int yes = 0, r;
    if (comm == MPI_COMM_NULL)
        return MPI_ERR_COMM; /* Open MPI 4.1 ends the program, whatever the error handler */
    for (;; gs_yield()) {
        gs_mpi_lock_();
        r = MPI_Improbe(source, tag, comm, &yes, message, status);
        if (r == MPI_SUCCESS && !yes) /* Open MPI fetches what has come after it has looked */
            r = MPI_Improbe(source, tag, comm, &yes, message, status);
        gs_mpi_unlock_(0);
        if (r != MPI_SUCCESS || yes)
            return r;
        if (!gs_mpi_polls_on_(deadline, &begun))
            break;
    }
    return gs_mpi_park_for_message_(source, tag, comm, message, status, deadline);
}

typedef struct gs_mpi_args_ {
    int *argc;
    char ***argv;
    int level;
} gs_mpi_args_;

static inline void *gs_mpi_init_thread_(void *arg)
{
    gs_mpi_args_ *a = (gs_mpi_args_ *)arg;
    return (void *)(intptr_t)MPI_Init_thread(a->argc, a->argv, MPI_THREAD_MULTIPLE, &a->level);
}

/* A call that has to be seen to its end: MPI can't take back sends and collectives. */
#define GS_MPI_CALL_(started, status)                          \
    MPI_Request request = MPI_REQUEST_NULL;                    \
    int r = gs_mpi_enter_();                                   \
    if (r != 0)                                                \
        return r;                                              \
    return gs_mpi_leave_(gs_mpi_complete_(GS_MPI_LOCKED_(started), &request, (status)))

/* ---- Start ---- */

/* MPI_Init_thread with MPI_THREAD_MULTIPLE; also sets MPI_ERRORS_RETURN as the error handler of MPI_COMM_WORLD and
 * MPI_COMM_SELF, which communicators made from them inherit, so that errors are returned. argc and argv may be
 * NULL. A program that calls MPI_Init_thread itself need not call this, but then sets its error handlers itself.
 *
 * 0, also if MPI is initialised already, with MPI_THREAD_MULTIPLE; -ENOTSUP: MPI is initialised, but with less (a
 * line on standard error says with what); -ESHUTDOWN; an error code of MPI. Goroutines and plain threads. */
static inline int gs_mpi_init(int *argc, char ***argv)
{
    static const char *const levels[] = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED"};
    gs_mpi_args_ a;
    int yes = 0, r;
    a.argc = argc, a.argv = argv, a.level = MPI_THREAD_SINGLE;
    MPI_Initialized(&yes);
    /* Where ranks share CPUs Open MPI gives up the CPU in each poll. On a busy machine that takes many ms, and the
     * progress goroutine sleeps between polls anyway. A setting of the user's stays. */
    if (!yes)
        setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
    /* On the thread's own stack: it starts much. */
    if (!yes && (r = (int)(intptr_t)gs_blocking(gs_mpi_init_thread_, &a)) != MPI_SUCCESS)
        return r;
    if ((r = gs_mpi_enter_()) != 0) {
        if (r == -ENOTSUP) {
            MPI_Query_thread(&a.level);
            int i = a.level == MPI_THREAD_SERIALIZED ? 2 : a.level == MPI_THREAD_FUNNELED ? 1 : 0;
            fprintf(stderr, "gosched_mpi: MPI runs with %s, but goroutines of several threads need MPI_THREAD_MULTIPLE\n", levels[i]);
        }
        return r;
    }
    if ((r = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)) == MPI_SUCCESS)
        r = MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    return gs_mpi_leave_(r);
}

/* One line that says what a result means, in `text` or a static string: an error code of MPI by MPI_Error_string,
 * a negative one by gs_strerror or in words of its own. */
static inline const char *gs_mpi_strerror(int err, char text[MPI_MAX_ERROR_STRING])
{
    int n = 0;
    switch (err) {
    case 0: return "Success";
    case -EPERM: return "MPI is not initialised: call gs_mpi_init first";
    case -ENOTSUP: return "MPI was initialised with less than MPI_THREAD_MULTIPLE: call gs_mpi_init, or MPI_Init_thread with it";
    case -ESHUTDOWN: return "MPI_Finalize was called";
    }
    if (err < 0)
        return gs_strerror(err);
    if (gs_mpi_enter_() != 0 || gs_mpi_leave_(MPI_Error_string(err, text, &n)) != MPI_SUCCESS)
        snprintf(text, MPI_MAX_ERROR_STRING, "error %d of MPI", err);
    return text;
}

/* What the progress goroutine has done. */
typedef struct gs_mpi_stats {
    uint64_t polls;   /* how often it has asked MPI */
    uint64_t started; /* how often it was started */
    bool running;     /* some call waits, or has just ended */
} gs_mpi_stats;

/* Reads them; for a report, and never an error. */
static inline void gs_mpi_stats_read(gs_mpi_stats *out)
{
    out->polls = __atomic_load_n(&gs_mpi_state_.polls, __ATOMIC_RELAXED);
    out->started = __atomic_load_n(&gs_mpi_state_.started, __ATOMIC_RELAXED);
    out->running = GS_MPI_GET_(gs_mpi_state_.running);
}

/* ---- Waiting for requests ----
 *
 * A request is waited for by one call at a time. After -EAGAIN, -ETIMEDOUT, -ECANCELED, -ENOMEM and -ESHUTDOWN a
 * request that has not completed is active as before: the buffer is still MPI's, and the program waits again or
 * calls MPI_Cancel (for a receive) and then waits again. */

/* MPI_Wait. 0; an error code; -EAGAIN, -ETIMEDOUT, -ECANCELED, -ENOMEM, -ESHUTDOWN: not complete. */
static inline int gs_mpi_wait(MPI_Request *request, MPI_Status *status, gs_deadline deadline)
{
    int r = gs_mpi_enter_();
    return r != 0 ? r : gs_mpi_leave_(gs_mpi_wait_one_(request, status, deadline, false));
}

/* MPI_Waitall. Also after an error it waits for all. 0; MPI_ERR_IN_STATUS: statuses[i].MPI_ERROR says what became
 * of each; with MPI_STATUSES_IGNORE the first error's code. MPI_ERR_COUNT: count is negative. After -EAGAIN,
 * -ETIMEDOUT, -ECANCELED, -ENOMEM and -ESHUTDOWN those that have completed are MPI_REQUEST_NULL (persistent ones:
 * inactive), with their statuses; a further call sets these statuses to empty ones, as MPI_Waitall does. */
static inline int gs_mpi_waitall(int count, MPI_Request requests[], MPI_Status *statuses, gs_deadline deadline)
{
    gs_mpi_entry_ few[16], *entries = few;
    gs_mpi_waiter_ w;
    int r = gs_mpi_enter_();
    if (r != 0)
        return r;
    if (count < 0)
        return gs_mpi_leave_(MPI_ERR_COUNT);
    if (count > 16 && (entries = (gs_mpi_entry_ *)malloc((size_t)count * sizeof *entries)) == NULL)
        return gs_mpi_leave_(-ENOMEM);
    memset(&w, 0, sizeof w);
    w.kind = GS_MPI_ALL_;
    w.each = true;
    w.count = count;
    w.requests = requests;
    w.statuses = statuses == MPI_STATUSES_IGNORE ? NULL : statuses;
    w.entries = entries;
    gs_mpi_lock_();
    for (int i = 0; i < count; i++) {
        MPI_Status status;
        int yes = 0;
        memset(&status, 0, sizeof status);
        r = MPI_Test(&requests[i], &yes, &status);
        if (r != MPI_SUCCESS || yes) {
            gs_mpi_completed_(&w, i, requests[i], &status, r);
        } else {
            entries[w.left].request = requests[i];
            entries[w.left++].index = i;
        }
    }
    gs_mpi_unlock_(0);
    r = w.left > 0 ? gs_mpi_park_(&w, deadline) : w.result;
    if (entries != few)
        free(entries);
    if (r > 0 && w.statuses != NULL)
        r = MPI_ERR_IN_STATUS;
    return gs_mpi_leave_(r);
}

/* MPI_Waitany: *index is the request that has completed; MPI_UNDEFINED: none of them is active. */
static inline int gs_mpi_waitany(int count, MPI_Request requests[], int *index, MPI_Status *status, gs_deadline deadline)
{
    gs_mpi_waiter_ w;
    int yes = 0, r = gs_mpi_enter_();
    if (r != 0)
        return r;
    r = GS_MPI_LOCKED_(MPI_Testany(count, requests, index, &yes, status));
    if (r != MPI_SUCCESS || yes)
        return gs_mpi_leave_(r);
    memset(&w, 0, sizeof w);
    w.kind = GS_MPI_ANY_;
    w.count = count;
    w.requests = requests;
    w.statuses = status == MPI_STATUS_IGNORE ? NULL : status;
    w.index = index;
    return gs_mpi_leave_(gs_mpi_park_(&w, deadline));
}

/* MPI_Waitsome: the requests at indices[0] to indices[*done - 1] have completed; MPI_UNDEFINED: none is active. */
static inline int gs_mpi_waitsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status *statuses,
                                  gs_deadline deadline)
{
    gs_mpi_waiter_ w;
    int r = gs_mpi_enter_();
    if (r != 0)
        return r;
    *done = 0;
    r = GS_MPI_LOCKED_(MPI_Testsome(count, requests, done, indices, statuses));
    if (r != MPI_SUCCESS || *done != 0)
        return gs_mpi_leave_(r);
    memset(&w, 0, sizeof w);
    w.kind = GS_MPI_SOME_;
    w.count = count;
    w.requests = requests;
    w.statuses = statuses == MPI_STATUSES_IGNORE ? NULL : statuses;
    w.index = done;
    w.indices = indices;
    return gs_mpi_leave_(gs_mpi_park_(&w, deadline));
}

/* ---- Messages ----
 *
 * A send that has begun can't be taken back in MPI, and its buffer is MPI's until it is complete. So sends have no
 * deadline, and gs_cancel doesn't end them: they return when the buffer is free again. To give up waiting for a
 * send: MPI_Isend, gs_mpi_wait with a deadline, and keep the buffer. */

/* MPI_Send. 0; an error code; -EPERM, -ENOTSUP, -ESHUTDOWN: nothing was sent. */
static inline int gs_mpi_send(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Isend(buf, count, type, dest, tag, comm, &request), MPI_STATUS_IGNORE);
}

/* MPI_Ssend: returns when the receive has begun. As gs_mpi_send. */
static inline int gs_mpi_ssend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Issend(buf, count, type, dest, tag, comm, &request), MPI_STATUS_IGNORE);
}

/* A receive that waits for ever: posted, so that MPI writes into buf at once, and all such receives cost one test. */
static inline int gs_mpi_recv_posted_(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                                      MPI_Status *status)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status own;
    int cancelled = 0, why, r;
    if (status == MPI_STATUS_IGNORE)
        status = &own;
    r = GS_MPI_LOCKED_(MPI_Irecv(buf, count, type, source, tag, comm, &request));
    if (r == MPI_SUCCESS)
        r = gs_mpi_wait_one_(&request, status, GS_FOREVER, false);
    if (r >= 0)
        return r;
    why = r;
    GS_MPI_LOCKED_(MPI_Cancel(&request));
    r = gs_mpi_complete_(MPI_SUCCESS, &request, status);
    return r == MPI_SUCCESS && MPI_Test_cancelled(status, &cancelled) == MPI_SUCCESS && cancelled ? why : r;
}

/* A receive with a deadline takes a message that has come, and then receives it. It posts nothing, so there is nothing
 * to take back. Open MPI 4.1 (pml ob1) loses a message that another thread matches with a posted receive while
 * MPI_Cancel takes the receive back: the matching thread unlocks the queues before it marks the receive as matched. */
static inline int gs_mpi_recv_taken_(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                                     MPI_Status *status, gs_deadline deadline)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Message message = MPI_MESSAGE_NULL;
    /* Wrong arguments show before a message is taken. From MPI_PROC_NULL this is complete at once, so it needs no lock. */
    int r = MPI_Recv(buf, count, type, MPI_PROC_NULL, tag, comm, MPI_STATUS_IGNORE);
    if (r == MPI_SUCCESS)
        r = gs_mpi_take_(source, tag, comm, &message, MPI_STATUS_IGNORE, deadline);
    if (r == MPI_SUCCESS)
        r = gs_mpi_complete_(GS_MPI_LOCKED_(MPI_Imrecv(buf, count, type, &message, &request)), &request, status);
    return r;
}

/* MPI_Recv. When the deadline passes, or the goroutine is cancelled, nothing is received and no message is lost: a
 * message that has begun to arrive by then is received all the same.
 *
 * With GS_FOREVER the receive is posted, and gs_cancel takes it back with MPI_Cancel. Open MPI 4.1 then loses
 * a message if the program's own MPI_Isend to this rank is matched with the receive on another thread in that moment.
 * A program that does both gives a deadline, however far: such a receive is never posted.
 *
 * 0; an error code, such as MPI_ERR_TRUNCATE; -EAGAIN, -ETIMEDOUT, -ECANCELED, -ENOMEM, -ESHUTDOWN: nothing was
 * received, and buf is free. */
static inline int gs_mpi_recv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                              MPI_Status *status, gs_deadline deadline)
{
    int r = gs_mpi_enter_();
    if (r != 0)
        return r;
    if (deadline == GS_FOREVER)
        return gs_mpi_leave_(gs_mpi_recv_posted_(buf, count, type, source, tag, comm, status));
    return gs_mpi_leave_(gs_mpi_recv_taken_(buf, count, type, source, tag, comm, status, deadline));
}

/* MPI_Mrecv: receives the message that gs_mpi_mprobe has taken. No other call can get it, so this returns as soon as
 * all of it has arrived; as gs_mpi_send. */
static inline int gs_mpi_mrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status)
{
    GS_MPI_CALL_(MPI_Imrecv(buf, count, type, message, &request), status);
}

/* MPI_Sendrecv. Returns when both are done; as gs_mpi_send. */
static inline int gs_mpi_sendrecv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                                  void *recvbuf, int recvcount, MPI_Datatype recvtype, int source, int recvtag,
                                  MPI_Comm comm, MPI_Status *status)
{
    MPI_Request sent = MPI_REQUEST_NULL, got = MPI_REQUEST_NULL;
    MPI_Status own;
    int s, r = gs_mpi_enter_();
    if (r != 0)
        return r;
    if (status == MPI_STATUS_IGNORE)
        status = &own;
    r = GS_MPI_LOCKED_(MPI_Irecv(recvbuf, recvcount, recvtype, source, recvtag, comm, &got));
    if (r != MPI_SUCCESS)
        return gs_mpi_leave_(r);
    s = GS_MPI_LOCKED_(MPI_Isend(sendbuf, sendcount, sendtype, dest, sendtag, comm, &sent));
    if (s != MPI_SUCCESS)
        GS_MPI_LOCKED_(MPI_Cancel(&got)); /* nothing was sent: the answer may never come */
    r = gs_mpi_complete_(MPI_SUCCESS, &got, status);
    s = gs_mpi_complete_(s, &sent, MPI_STATUS_IGNORE);
    return gs_mpi_leave_(s != MPI_SUCCESS ? s : r);
}

/* MPI_Probe. Another goroutine may receive the message first: with several receivers use gs_mpi_mprobe. 0; an error
 * code; -EAGAIN, -ETIMEDOUT, -ECANCELED, -ESHUTDOWN: there is none. */
static inline int gs_mpi_probe(int source, int tag, MPI_Comm comm, MPI_Status *status, gs_deadline deadline)
{
    int yes = 0, r = gs_mpi_enter_();
    if (r != 0)
        return r;
    r = GS_MPI_LOCKED_(MPI_Iprobe(source, tag, comm, &yes, status));
    if (r != MPI_SUCCESS || yes)
        return gs_mpi_leave_(r);
    return gs_mpi_leave_(gs_mpi_park_for_message_(source, tag, comm, NULL, status, deadline));
}

/* MPI_Mprobe: takes the message, for gs_mpi_mrecv. As gs_mpi_probe. */
static inline int gs_mpi_mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status,
                                gs_deadline deadline)
{
    int r = gs_mpi_enter_();
    return r != 0 ? r : gs_mpi_leave_(gs_mpi_take_(source, tag, comm, message, status, deadline));
}

/* ---- Collectives ----
 *
 * MPI demands that all ranks start the collectives of a communicator in the same order. So two goroutines may be in
 * collectives at the same time on two communicators, but not on one: gs_mpi_comm_dup makes one for each. MPI has no
 * way to take back a collective, and the other ranks rely on this one: no deadline, and gs_cancel doesn't end it.
 * 0; an error code; -EPERM, -ENOTSUP, -ESHUTDOWN: it was not begun. */

/* MPI_Barrier. */
static inline int gs_mpi_barrier(MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Ibarrier(comm, &request), MPI_STATUS_IGNORE);
}

/* MPI_Bcast. */
static inline int gs_mpi_bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Ibcast(buf, count, type, root, comm, &request), MPI_STATUS_IGNORE);
}

/* MPI_Reduce. */
static inline int gs_mpi_reduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, int root,
                                MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Ireduce(sendbuf, recvbuf, count, type, op, root, comm, &request), MPI_STATUS_IGNORE);
}

/* MPI_Allreduce. */
static inline int gs_mpi_allreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                                   MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Iallreduce(sendbuf, recvbuf, count, type, op, comm, &request), MPI_STATUS_IGNORE);
}

/* MPI_Reduce_scatter_block. */
static inline int gs_mpi_reduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype type,
                                              MPI_Op op, MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Ireduce_scatter_block(sendbuf, recvbuf, recvcount, type, op, comm, &request), MPI_STATUS_IGNORE);
}

/* MPI_Scan. */
static inline int gs_mpi_scan(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Iscan(sendbuf, recvbuf, count, type, op, comm, &request), MPI_STATUS_IGNORE);
}

/* MPI_Gather. */
static inline int gs_mpi_gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                                MPI_Datatype recvtype, int root, MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Igather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, &request),
                 MPI_STATUS_IGNORE);
}

/* MPI_Gatherv. */
static inline int gs_mpi_gatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                                 const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root,
                                 MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Igatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm, &request),
                 MPI_STATUS_IGNORE);
}

/* MPI_Scatter. */
static inline int gs_mpi_scatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                                 MPI_Datatype recvtype, int root, MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Iscatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, &request),
                 MPI_STATUS_IGNORE);
}

/* MPI_Scatterv. */
static inline int gs_mpi_scatterv(const void *sendbuf, const int sendcounts[], const int displs[], MPI_Datatype sendtype,
                                  void *recvbuf, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Iscatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm, &request),
                 MPI_STATUS_IGNORE);
}

/* MPI_Allgather. */
static inline int gs_mpi_allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                                   int recvcount, MPI_Datatype recvtype, MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Iallgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, &request),
                 MPI_STATUS_IGNORE);
}

/* MPI_Allgatherv. */
static inline int gs_mpi_allgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                                    const int recvcounts[], const int displs[], MPI_Datatype recvtype, MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Iallgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm, &request),
                 MPI_STATUS_IGNORE);
}

/* MPI_Alltoall. */
static inline int gs_mpi_alltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                                  MPI_Datatype recvtype, MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Ialltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, &request),
                 MPI_STATUS_IGNORE);
}

/* MPI_Alltoallv. */
static inline int gs_mpi_alltoallv(const void *sendbuf, const int sendcounts[], const int sdispls[],
                                   MPI_Datatype sendtype, void *recvbuf, const int recvcounts[], const int rdispls[],
                                   MPI_Datatype recvtype, MPI_Comm comm)
{
    GS_MPI_CALL_(MPI_Ialltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm,
                                &request),
                 MPI_STATUS_IGNORE);
}

/* MPI_Comm_dup: a communicator of its own for a goroutine, or for a library. Free it with MPI_Comm_free. It counts
 * among the collectives of comm. */
static inline int gs_mpi_comm_dup(MPI_Comm comm, MPI_Comm *out)
{
    GS_MPI_CALL_(MPI_Comm_idup(comm, out, &request), MPI_STATUS_IGNORE);
}

#undef GS_MPI_CALL_

#endif /* GOSCHED_MPI_H */
