/*
 * The functions that gosched.h lists as those that never switch: none of them lets another goroutine run, or waits for
 * another goroutine, even when another goroutine is due. tests/programs.rs compares the list with what is here. Each call may be made many times.
 */
#include "check.h"

struct call {
    const char *name;
    void (*fn)(void);
    struct call *next;
};

static struct call *calls, **last_call = &calls;

/* The code that calls the function of this name, in the state that a test has made. They are run in the order in which
 * they stand here. */
#define NEVER(name)                                                          \
    static void call_##name(void);                                           \
    static struct call name##_call = {#name, call_##name, NULL};             \
    __attribute__((constructor)) static void add_##name(void)                \
    {                                                                        \
        *last_call = &name##_call;                                           \
        last_call = &name##_call.next;                                       \
    }                                                                        \
    static void call_##name(void)

static gs_g *waiter;   /* waits for chan */
static gs_chan *chan;  /* of one int64_t, full */
static gs_key key;
static gs_mutex held, free_1, free_2;
static bool locked;   /* the two that were free */
static int references; /* to waiter, beside its first */

/* ---- The calls ---- */

NEVER(gs_abi_version)
{
    CHECK_EQ(gs_abi_version(), 1);
}

NEVER(gs_after_ns)
{
    CHECK_GE(gs_after_ns(5), 5);
}

NEVER(gs_after_us)
{
    CHECK_GE(gs_after_us(5), 5);
}

NEVER(gs_after_ms)
{
    CHECK_GE(gs_after_ms(5), 5);
}

NEVER(gs_cancelled)
{
    CHECK_EQ(gs_cancelled(), 1);
}

NEVER(gs_cancel_disable)
{
    CHECK_EQ(gs_cancel_disable(), 0);
    CHECK_EQ(gs_cancel_disable(), 0);
    CHECK_EQ(gs_cancelled(), 1);
    CHECK_EQ(gs_cancel_enable(), 0);
    CHECK_EQ(gs_cancel_enable(), 0);
}

NEVER(gs_cancel_enable)
{
    CHECK_EQ(gs_cancel_enable(), -EPERM);
    CHECK_EQ(gs_cancel_disable(), 0);
    CHECK_EQ(gs_cancel_enable(), 0);
}

/* After those that want the goroutine cancelled. */
NEVER(gs_uncancel)
{
    CHECK_GE(gs_uncancel(), gs_cancelled());
    CHECK_EQ(gs_cancelled(), 0);
    CHECK_EQ(gs_uncancel(), 0);
}

NEVER(gs_chan_cap)
{
    CHECK_EQ(gs_chan_cap(chan), 1);
    CHECK_EQ(gs_chan_cap(NULL), 0);
}

NEVER(gs_chan_len)
{
    CHECK_EQ(gs_chan_len(chan), 1);
    CHECK_EQ(gs_chan_len(NULL), 0);
}

/* Full, and a goroutine waits for room. */
NEVER(gs_chan_put)
{
    int64_t v = 7;
    CHECK_EQ(gs_chan_put(chan, &v), -EAGAIN);
    CHECK_EQ(gs_chan_put(chan, NULL), -EINVAL);
    CHECK_EQ(gs_chan_put(NULL, &v), -EINVAL);
}

NEVER(gs_chan_take)
{
    int64_t v = 7;
    CHECK_EQ(gs_chan_take(chan, &v), -EAGAIN);
    CHECK_EQ(v, 7);
    CHECK_EQ(gs_chan_take(NULL, &v), -EINVAL);
}

NEVER(gs_set_data)
{
    CHECK_EQ(gs_set_data(gs_self(), &key), 0);
    CHECK_EQ(gs_set_data(NULL, &key), -EINVAL);
}

NEVER(gs_data)
{
    CHECK(gs_data(gs_self()) == &key);
    CHECK(gs_data(waiter) == NULL);
}

NEVER(gs_eai)
{
    CHECK_EQ(gs_eai(-EINVAL), 0);
}

NEVER(gs_g_info_read)
{
    gs_g_info info;
    CHECK_EQ(gs_g_info_read(gs_self(), &info, sizeof info), 0);
    CHECK(info.id == gs_id(gs_self()));
    CHECK_EQ(gs_g_info_read(waiter, &info, sizeof info), 0);
    CHECK_EQ(gs_g_info_read(NULL, &info, sizeof info), -EINVAL);
}

NEVER(gs_getspecific)
{
    CHECK(gs_getspecific(key) == &held);
    CHECK(gs_getspecific((gs_key)0) == NULL);
}

NEVER(gs_hold)
{
    CHECK_EQ(gs_hold(), 0);
    CHECK_EQ(gs_unhold(), 0);
}

NEVER(gs_unhold)
{
    CHECK_EQ(gs_unhold(), -EPERM);
    CHECK_EQ(gs_hold(), 0);
    CHECK_EQ(gs_unhold(), 0);
}

NEVER(gs_id)
{
    CHECK(gs_id(gs_self()) != gs_id(waiter));
    CHECK(gs_id(NULL) == 0);
}

NEVER(gs_mutex_trylock)
{
    CHECK_EQ(gs_mutex_trylock(&held), -EBUSY);
    CHECK_EQ((gs_mutex_trylock)(&held), -EBUSY);
    CHECK_EQ(gs_mutex_trylock(&free_1), locked ? -EBUSY : 0);
    CHECK_EQ((gs_mutex_trylock)(&free_2), locked ? -EBUSY : 0);
    locked = true;
}

NEVER(gs_own_threads)
{
    int ids[2];
    CHECK_EQ(gs_own_threads(NULL, 2), -EINVAL);
    CHECK_GE(gs_own_threads(ids, 2), 1);
}

NEVER(gs_name)
{
    char name[16] = "";
    CHECK_EQ(gs_name(gs_self(), name, sizeof name), 6);
    CHECK(strcmp(name, "tester") == 0);
    CHECK_EQ(gs_name(waiter, NULL, 0), 0);
}

NEVER(gs_now)
{
    CHECK_GE(gs_now(), 1);
}

NEVER(gs_numa_unbound_cpus)
{
    CHECK_GE(gs_numa_unbound_cpus(0, NULL), 0);
}

/* No goroutine has this function. */
static void no_entry(void *arg)
{
    (void)arg;
}

static size_t no_frames(void *ctx, gs_g *g, gs_frame *frames, size_t room)
{
    (void)ctx;
    (void)g;
    (void)frames;
    (void)room;
    return 0;
}

NEVER(gs_add_frames)
{
    CHECK_EQ(gs_add_frames(no_entry, no_frames, NULL), 0);
}

NEVER(gs_preempt_flag)
{
    CHECK(gs_preempt_flag() == gs_preempt_flag());
}

NEVER(gs_retain)
{
    CHECK(gs_retain(waiter) == waiter);
    references++;
    CHECK(gs_retain(NULL) == NULL);
}

NEVER(gs_self)
{
    CHECK(gs_self() != NULL);
}

static void log_line(void *ctx, const char *line)
{
    (void)ctx;
    (void)line;
}

NEVER(gs_set_log)
{
    CHECK_EQ(gs_set_log(log_line, NULL), 0);
    CHECK_EQ(gs_set_log(NULL, NULL), 0);
}

NEVER(gs_strerror)
{
    CHECK_HAS(gs_strerror(-EPIPE), "closed");
    CHECK(gs_strerror(123456) != NULL);
}

NEVER(gs_test_seed)
{
    CHECK_EQ(gs_test_seed(), 0);
}

NEVER(gs_version)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", GS_VERSION_MAJOR, GS_VERSION_MINOR, GS_VERSION_PATCH);
    CHECK(strcmp(gs_version(), version) == 0);
}

/* The last one: gs_preempt_enable may switch, so the caller does that. */
NEVER(gs_preempt_disable)
{
    gs_preempt_disable();
}

/* ---- The states ---- */

static int64_t steps;
static int done, occupied;

/* Counts how often it was its turn. */
static void count(void *arg)
{
    (void)arg;
    for (; !GET(done); gs_yield())
        ADD(steps, 1);
}

static void wait_for_chan(void *arg)
{
    int64_t value = 2;
    (void)arg;
    CHECK_EQ(gs_chan_send(chan, &value, GS_FOREVER), 0);
}

static void set_up(void)
{
    SET(done, 0);
    SET(occupied, 0);
    CHECK_EQ(gs_key_create(&key, NULL), 0);
    CHECK_EQ(gs_setspecific(key, &held), 0);
    CHECK_EQ(gs_mutex_lock(&held, GS_FOREVER), 0);
    chan = chan_of_ints(1);
    send_int(chan, 1);
    waiter = go_ref(wait_for_chan, NULL);
    /* Its first turn. */
    gs_yield();
    CHECK_EQ(gs_cancel(gs_self()), 0);
}

static void tear_down(void)
{
    gs_preempt_enable();
    SET(done, 1);
    CHECK_EQ(gs_cancel_disable(), 0);
    CHECK_EQ(recv_int(chan), 1);
    CHECK_EQ(recv_int(chan), 2);
    for (; references > 0; references--)
        gs_release(waiter);
    join(waiter);
    free_chan(chan);
    CHECK_EQ(gs_mutex_unlock(&held), 0);
    CHECK_EQ(gs_mutex_unlock(&free_1), 0);
    CHECK_EQ(gs_mutex_unlock(&free_2), 0);
    locked = false;
    CHECK_EQ(gs_key_delete(key), 0);
    check_note[0] = 0;
}

static void call_it(const struct call *call)
{
    uint64_t id = gs_id(gs_self());
    pid_t thread = thread_id();
    snprintf(check_note, sizeof check_note, "%s", call->name);
    call->fn();
    CHECK(gs_id(gs_self()) == id);
    CHECK_EQ(thread_id(), thread);
}

/* Another goroutine is ready on the only P, and the caller, whose slice is over, is asked to give way. */
static void when_asked(void *arg)
{
    const volatile uint32_t *flag = gs_preempt_flag();
    const struct call *call;
    (void)arg;

    set_up();
    go(count, NULL);
    for (call = calls; call; call = call->next) {
        int64_t before;
        do {
            while (*flag == 0)
                ;
            before = GET(steps);
            call_it(call);
            CHECK_EQ(GET(steps), before);
            if (call->next)
                gs_preempt_check();
            else
                gs_preempt_enable();
            /* Once more if the other one was not due: the word may be set for nothing. */
        } while (GET(steps) == before);
    }
    gs_preempt_disable();
    tear_down();
}

/* Keeps its P until the others are done. */
static void occupy(void *arg)
{
    (void)arg;
    SET(occupied, 1);
    while (!GET(done))
        ;
}

/* The caller has lost the only P while its thread slept, and there is none to be had. */
static void without_a_p(void *arg)
{
    const struct call *call;
    gs_g *occupier;
    (void)arg;

    set_up();
    occupier = go_steady(occupy, NULL);
    NAP_UNTIL(GET(occupied));
    for (call = calls; call->next; call = call->next)
        call_it(call);
    CHECK(!GET(done));
    SET(done, 1);
    /* The last one is gs_preempt_disable. It waits on its thread for the P that it is to keep. */
    call_it(call);
    tear_down();
    CHECK_EQ(gs_cancel_disable(), 0);
    join(occupier);
}

static void run_both(void *arg)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    (void)arg;
    opts.name = "tester";
    opts.flags = GS_SPAWN_NOSIGNAL;
    join(go_opts(when_asked, NULL, &opts));
    join(go_opts(without_a_p, NULL, &opts));
}

static void run_with_one_p(void)
{
    gs_config config = {0};
    config.size = sizeof config;
    config.gomaxprocs = 1;
    config.time_slice_ns = MS;
    CHECK_EQ(gs_init(&config), 0);
    CHECK_EQ(gs_run(run_both, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

TEST(functions_that_never_switch_do_not)
{
    run_with_one_p();
}

/* Leaving and entering goroutines is done elsewhere then. */
static void hook(void *ctx, gs_g *g)
{
    (void)ctx;
    (void)g;
}

TEST(functions_that_never_switch_do_not_with_hooks_either)
{
    gs_hooks hooks = {0};
    hooks.size = sizeof hooks;
    hooks.switch_in = hook;
    hooks.switch_out = hook;
    CHECK_EQ(gs_set_hooks(&hooks), 0);
    run_with_one_p();
    CHECK_EQ(gs_set_hooks(NULL), 0);
}
