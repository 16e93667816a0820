/* Goroutine-local values and their destructors. */
#include "check.h"

static gs_key key_with(void (*dtor)(void *))
{
    gs_key k;
    CHECK_EQ(gs_key_create(&k, dtor), 0);
    return k;
}

static void drop(gs_key k)
{
    CHECK_EQ(gs_key_delete(k), 0);
}

static gs_key plain_key;

static void own_value(void *arg)
{
    int i;
    CHECK(gs_getspecific(plain_key) == NULL);
    CHECK_EQ(gs_setspecific(plain_key, arg), 0);
    for (i = 0; i < 20; i++) {
        if (i % 5 == 0)
            CHECK_EQ(gs_sleep(50 * US), 0);
        else
            gs_yield();
        CHECK(gs_getspecific(plain_key) == arg);
    }
    CHECK_EQ(gs_setspecific(plain_key, NULL), 0);
    CHECK(gs_getspecific(plain_key) == NULL);
}

GO_TEST(each_goroutine_has_its_own_value)
{
    static int values[100];
    gs_g *gs[100];
    int i;
    plain_key = key_with(NULL);
    for (i = 0; i < 100; i++)
        gs[i] = go_ref(own_value, &values[i]);
    own_value(&i);
    for (i = 0; i < 100; i++)
        join(gs[i]);
    drop(plain_key);
}

/* ---- Destructors ---- */

static gs_key key;
static int calls;
static uint64_t owner;

static void note_call(void *value)
{
    CHECK_EQ(gs_id(gs_self()), owner); /* on the goroutine itself */
    ADD(*(int *)value, 1);
    ADD(calls, 1);
}

static void set_value(void *value)
{
    owner = gs_id(gs_self());
    CHECK_EQ(gs_setspecific(key, value), 0);
}

GO_TEST(the_destructor_has_run_when_join_returns)
{
    int i;
    key = key_with(note_call);
    for (i = 0; i < 300; i++) {
        int value = 0;
        join(go_ref(set_value, &value));
        CHECK_EQ(value, 1);
    }
    drop(key);
}

static void set_value_and_exit(void *value)
{
    set_value(value);
    gs_exit();
}

static void set_value_cancelled(void *value)
{
    CHECK_EQ(gs_cancel(gs_self()), 0);
    set_value(value);
}

GO_TEST(the_destructor_runs_after_exit_and_cancel_too)
{
    int value = 0;
    key = key_with(note_call);
    join(go_ref(set_value_and_exit, &value));
    CHECK_EQ(value, 1);
    join(go_ref(set_value_cancelled, &value));
    CHECK_EQ(value, 2);
    drop(key);
}

TEST(the_destructor_of_run_runs_before_it_returns)
{
    int value = 0;
    key = key_with(note_call);
    CHECK_EQ(gs_run(set_value, &value), 0);
    CHECK_EQ(value, 1);
    CHECK_EQ(gs_run(set_value_and_exit, &value), 0);
    CHECK_EQ(value, 2);
    drop(key);
}

static void set_and_clear(void *value)
{
    set_value(value);
    CHECK_EQ(gs_setspecific(key, NULL), 0);
}

/* ---- A value without a destructor is there until all destructors have run ---- */

static gs_key without, with_first, with_last;
static int seen_by;

static void ask_for_the_other(void *value)
{
    CHECK(gs_getspecific(without) == &seen_by);
    ADD(*(int *)value, 1);
}

static void set_all_three(void *arg)
{
    CHECK_EQ(gs_setspecific(with_first, arg), 0);
    CHECK_EQ(gs_setspecific(without, &seen_by), 0);
    CHECK_EQ(gs_setspecific(with_last, arg), 0);
}

GO_TEST(a_destructor_sees_values_of_keys_without_one)
{
    seen_by = 0;
    with_first = key_with(ask_for_the_other);
    without = key_with(NULL);
    with_last = key_with(ask_for_the_other);
    join(go_ref(set_all_three, &seen_by));
    CHECK_EQ(seen_by, 2);
    drop(with_first);
    drop(without);
    drop(with_last);
}

GO_TEST(there_is_no_destructor_for_NULL)
{
    int value = 0;
    key = key_with(note_call);
    join(go_ref(set_and_clear, &value));
    CHECK_EQ(value, 0);
    drop(key);
}

static void set_again(void *value)
{
    ADD(calls, 1);
    CHECK_EQ(gs_setspecific(key, value), 0);
}

GO_TEST(destructors_repeat_for_at_most_4_rounds)
{
    int value = 0;
    key = key_with(set_again);
    SET(calls, 0);
    join(go_ref(set_value, &value));
    CHECK_EQ(calls, 4);
    drop(key);
}

static gs_key second_key;
static int second_calls;

static void set_the_second(void *value)
{
    ADD(calls, 1);
    CHECK_EQ(gs_setspecific(second_key, value), 0);
}

static void note_second(void *value)
{
    (void)value;
    ADD(second_calls, 1);
}

GO_TEST(a_value_set_by_a_destructor_is_destroyed_too)
{
    int value = 0;
    key = key_with(set_the_second);
    second_key = key_with(note_second);
    SET(calls, 0);
    SET(second_calls, 0);
    join(go_ref(set_value, &value));
    CHECK_EQ(calls, 1);
    CHECK_EQ(second_calls, 1);
    drop(key);
    drop(second_key);
}

static gs_chan *to_dtor, *from_dtor;

static void block_in_destructor(void *value)
{
    CHECK_EQ(gs_sleep(MS), 0);
    send_int(from_dtor, recv_int(to_dtor) + 1);
    gs_yield();
    ADD(*(int *)value, 1);
}

static void feed_destructor(void *arg)
{
    (void)arg;
    send_int(to_dtor, 5);
    CHECK_EQ(recv_int(from_dtor), 6);
}

GO_TEST(destructors_may_block)
{
    int i;
    to_dtor = chan_of_ints(0);
    from_dtor = chan_of_ints(0);
    key = key_with(block_in_destructor);
    for (i = 0; i < 20; i++) {
        int value = 0;
        gs_g *g = go_ref(set_value, &value);
        go(feed_destructor, NULL);
        join(g);
        CHECK_EQ(value, 1);
    }
    drop(key);
    free_chan(to_dtor);
    free_chan(from_dtor);
}

static void spawn_in_destructor(void *value)
{
    join(go_ref(own_value, value));
}

GO_TEST(destructors_may_spawn_and_join)
{
    int value = 0;
    plain_key = key_with(NULL);
    key = key_with(spawn_in_destructor);
    join(go_ref(set_value, &value));
    drop(key);
    drop(plain_key);
}

GO_TEST(a_join_with_a_deadline_ends_while_a_destructor_blocks)
{
    int value = 0;
    gs_g *g;
    to_dtor = chan_of_ints(0);
    from_dtor = chan_of_ints(0);
    key = key_with(block_in_destructor);
    g = go_ref(set_value, &value);
    CHECK_EQ(gs_join(g, gs_after_ms(5)), -ETIMEDOUT);
    feed_destructor(NULL);
    join(g);
    CHECK_EQ(value, 1);
    drop(key);
    free_chan(to_dtor);
    free_chan(from_dtor);
}

/* ---- Creating and deleting ---- */

static void delete_before_the_end(void *value)
{
    set_value(value);
    drop(key);
}

GO_TEST(a_deleted_key_has_no_destructor)
{
    int value = 0;
    key = key_with(note_call);
    join(go_ref(delete_before_the_end, &value));
    CHECK_EQ(value, 0);
}

GO_TEST(a_new_key_never_shows_the_value_of_a_deleted_one)
{
    int i, value = 0;
    for (i = 0; i < 200; i++) {
        gs_key k = key_with(NULL);
        CHECK(gs_getspecific(k) == NULL);
        CHECK_EQ(gs_setspecific(k, &value), 0);
        CHECK(gs_getspecific(k) == &value);
        drop(k);
    }
}

/* A place for keys has a last one: the next key is in another place. */
GO_TEST(a_key_never_has_the_number_of_an_earlier_one)
{
    int i, value = 0;
    gs_key first = key_with(NULL);
    CHECK_EQ(gs_setspecific(first, &value), 0);
    drop(first);
    for (i = 0; i < 70000; i++) {
        gs_key k = key_with(NULL);
        CHECK(k != first);
        drop(k);
    }
    CHECK(gs_getspecific(first) == NULL);
}

GO_TEST(a_deleted_key_is_unknown)
{
    int value = 0;
    gs_key k = key_with(NULL);
    drop(k);
    CHECK_EQ(gs_key_delete(k), -EINVAL);
    CHECK_EQ(gs_setspecific(k, &value), -EINVAL);
    CHECK(gs_getspecific(k) == NULL);
}

GO_TEST(an_unknown_key_is_EINVAL)
{
    int value = 0;
    CHECK_EQ(gs_key_delete((gs_key)0x7fffffff), -EINVAL);
    CHECK_EQ(gs_key_delete((gs_key)-1), -EINVAL);
    CHECK_EQ(gs_setspecific((gs_key)0x7fffffff, &value), -EINVAL);
    CHECK(gs_getspecific((gs_key)0x7fffffff) == NULL);
    CHECK(gs_getspecific((gs_key)-1) == NULL);
    CHECK_EQ(gs_key_create(NULL, NULL), -EINVAL);
}

#define MANY_KEYS 100

static gs_key many[MANY_KEYS];

static void use_many(void *arg)
{
    int i;
    (void)arg;
    for (i = 0; i < MANY_KEYS; i++)
        CHECK_EQ(gs_setspecific(many[i], &many[i]), 0);
    gs_yield();
    for (i = 0; i < MANY_KEYS; i++)
        CHECK(gs_getspecific(many[i]) == &many[i]);
}

static void count_call(void *value)
{
    (void)value;
    ADD(calls, 1);
}

GO_TEST(a_hundred_keys_each_with_a_destructor)
{
    int i;
    SET(calls, 0);
    for (i = 0; i < MANY_KEYS; i++)
        many[i] = key_with(count_call);
    join(go_ref(use_many, NULL));
    CHECK_EQ(calls, MANY_KEYS);
    join(go_ref(use_many, NULL));
    CHECK_EQ(calls, 2 * MANY_KEYS);
    for (i = 0; i < MANY_KEYS; i++)
        drop(many[i]);
}

static void set_many_times(void *arg)
{
    int i;
    for (i = 0; i < 100; i++) {
        CHECK_EQ(gs_setspecific(key, arg), 0);
        if (i % 10 == 0)
            gs_yield();
    }
}

GO_TEST(setting_again_replaces_without_a_destructor)
{
    int value = 0;
    key = key_with(count_call);
    SET(calls, 0);
    join(go_ref(set_many_times, &value));
    CHECK_EQ(calls, 1);
    drop(key);
}

static void create_and_delete(void *arg)
{
    int i;
    for (i = 0; i < 200; i++) {
        gs_key k = key_with(NULL);
        CHECK(gs_getspecific(k) == NULL);
        CHECK_EQ(gs_setspecific(k, arg), 0);
        if (i % 7 == 0)
            gs_yield();
        CHECK(gs_getspecific(k) == arg);
        drop(k);
    }
}

GO_TEST(keys_are_created_and_deleted_by_many_at_once)
{
    gs_g *gs[16];
    int values[16], i;
    for (i = 0; i < 16; i++)
        gs[i] = go_ref(create_and_delete, &values[i]);
    for (i = 0; i < 16; i++)
        join(gs[i]);
}

static void leave_a_call_open(void *value)
{
    (void)value;
    gs_entersyscall();
}

static void set_a_value(void *key)
{
    CHECK_EQ(gs_setspecific(*(gs_key *)key, key), 0);
}

static int left_at_the_end;

static void note_whether_in_a_call(void *value)
{
    (void)value;
    SET(left_at_the_end, gs_exitsyscall());
}

static void end_in_two_calls(void *key)
{
    set_a_value(key);
    gs_entersyscall();
    gs_entersyscall();
}

GO_TEST(a_goroutine_that_ends_in_a_call_has_left_it_when_its_destructors_run)
{
    gs_key key;
    CHECK_EQ(gs_key_create(&key, note_whether_in_a_call), 0);
    join(go_ref(end_in_two_calls, &key));
    CHECK_EQ(GET(left_at_the_end), -EPERM);
    CHECK_EQ(gs_key_delete(key), 0);
}

/* The goroutine ended without a P. */
GO_TEST(a_destructor_forgets_to_leave_a_call)
{
    gs_key key;
    CHECK_EQ(gs_key_create(&key, leave_a_call_open), 0);
    for (int i = 0; i < 20; i++)
        join(go_steady(set_a_value, &key));
    CHECK_EQ(gs_key_delete(key), 0);
}
