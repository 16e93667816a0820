// C++ callers: exceptions inside goroutines, across switches and migrations, and those that escape.
#include "check.h"

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

// Anything that may move the goroutine to another thread.
static void go_elsewhere(int i)
{
    switch (i % 4) {
    case 0:
        CHECK_EQ(gs_sleep(20 * US), 0);
        break;
    case 1:
        gs_entersyscall();
        if (i % 8 == 1)
            nap(30 * US);
        gs_exitsyscall();
        break;
    default:
        gs_yield();
    }
}

static void many_of(gs_fn fn)
{
    gs_g *gs[40];
    for (intptr_t i = 0; i < 40; i++)
        gs[i] = go_ref(fn, reinterpret_cast<void *>(i));
    for (int i = 0; i < 40; i++)
        join(gs[i]);
}

static int number(void *arg)
{
    return static_cast<int>(reinterpret_cast<intptr_t>(arg));
}

// ---- Thrown and caught inside ----

static void throw_from(int depth, int value)
{
    std::string on_the_stack(100, 'x');
    if (depth == 0)
        throw value;
    throw_from(depth - 1, value);
}

static void throw_and_catch(void *arg)
{
    int me = number(arg), caught = -1;
    for (int i = 0; i < 50; i++) {
        try {
            throw_from(i % 10, me);
        } catch (int v) {
            caught = v;
        }
        CHECK_EQ(caught, me);
        gs_yield();
    }
}

GO_TEST(an_exception_is_caught_inside_its_goroutine)
{
    throw_and_catch(nullptr);
    many_of(throw_and_catch);
}

struct Guard {
    int *count;
    explicit Guard(int *c) : count(c) { ++*count; }
    ~Guard() { --*count; }
};

static void unwind_over_switches(void *arg)
{
    int alive = 0, me = number(arg);
    for (int i = 0; i < 20; i++) {
        try {
            Guard a(&alive);
            go_elsewhere(i);
            Guard b(&alive);
            go_elsewhere(i + me);
            throw std::runtime_error(std::to_string(me));
        } catch (const std::runtime_error &e) {
            CHECK_EQ(alive, 0);
            CHECK_EQ(std::stoi(e.what()), me);
        }
    }
}

GO_TEST(destructors_run_when_the_throw_is_after_a_switch)
{
    many_of(unwind_over_switches);
}

// ---- Switching inside a catch block: the exception in hand belongs to the goroutine ----

static int value_of(std::exception_ptr p)
{
    CHECK(p != nullptr);
    try {
        std::rethrow_exception(p);
    } catch (int v) {
        return v;
    }
    return -1;
}

static void switch_in_catch(void *arg)
{
    int me = number(arg);
    CHECK(std::current_exception() == nullptr);
    for (int i = 0; i < 20; i++) {
        try {
            throw me * 1000 + i;
        } catch (int v) {
            for (int k = 0; k < 6; k++) {
                go_elsewhere(k + me);
                CHECK_EQ(value_of(std::current_exception()), me * 1000 + i);
                CHECK_EQ(v, me * 1000 + i);
            }
        }
        CHECK(std::current_exception() == nullptr);
        go_elsewhere(i);
        CHECK(std::current_exception() == nullptr);
    }
}

GO_TEST(the_current_exception_belongs_to_the_goroutine)
{
    many_of(switch_in_catch);
}

static void rethrow_after_switch(void *arg)
{
    int me = number(arg), caught = 0;
    for (int i = 0; i < 20; i++) {
        try {
            try {
                throw me * 1000 + i;
            } catch (int) {
                go_elsewhere(i + me);
                throw; // the same one, wherever the goroutine is by now
            }
        } catch (int v) {
            go_elsewhere(i);
            CHECK_EQ(v, me * 1000 + i);
            caught++;
        }
    }
    CHECK_EQ(caught, 20);
}

GO_TEST(rethrow_after_a_switch_throws_the_same)
{
    many_of(rethrow_after_switch);
}

// Catch blocks of several goroutines that end in another order than they began.
static void nested_catches(void *arg)
{
    int me = number(arg);
    for (int i = 0; i < 10; i++) {
        try {
            throw me;
        } catch (int outer) {
            go_elsewhere(i);
            try {
                throw std::to_string(me + 7);
            } catch (const std::string &inner) {
                go_elsewhere(i + me);
                CHECK_EQ(std::stoi(inner), me + 7);
                try {
                    throw;
                } catch (const std::string &again) {
                    go_elsewhere(i + 1);
                    CHECK(again == inner);
                }
            }
            go_elsewhere(i + 2);
            CHECK_EQ(value_of(std::current_exception()), me);
            CHECK_EQ(outer, me);
        }
    }
}

GO_TEST(nested_catch_blocks_interleave_with_those_of_others)
{
    many_of(nested_catches);
}

// Two goroutines on one P: the goroutine that catches first leaves its block first, not in stack order.
static gs_chan *step_a, *step_b;

static void first_in_first_out(void *)
{
    try {
        throw 1;
    } catch (int v) {
        send_int(step_a, 1);
        (void)recv_int(step_b);
        CHECK_EQ(v, 1);
        CHECK_EQ(value_of(std::current_exception()), 1);
    }
    CHECK(std::current_exception() == nullptr);
    send_int(step_a, 2);
}

GO_TEST(catch_blocks_may_end_in_any_order)
{
    int procs = gs_gomaxprocs(1);
    step_a = chan_of_ints(0);
    step_b = chan_of_ints(0);
    for (int i = 0; i < 50; i++) {
        gs_g *g = go_ref(first_in_first_out, nullptr);
        (void)recv_int(step_a);
        try {
            throw 2;
        } catch (int v) {
            send_int(step_b, 1);
            (void)recv_int(step_a); // the other has left its block while this one is in its own
            CHECK_EQ(v, 2);
            CHECK_EQ(value_of(std::current_exception()), 2);
        }
        CHECK(std::current_exception() == nullptr);
        join(g);
    }
    free_chan(step_a);
    free_chan(step_b);
    gs_gomaxprocs(procs);
}

// ---- Switching while an exception is in flight: a destructor that blocks ----

struct SwitchingGuard {
    int me;
    bool in_flight;
    ~SwitchingGuard()
    {
        CHECK_EQ(std::uncaught_exception(), in_flight);
        for (int k = 0; k < 4; k++) {
            go_elsewhere(k + me);
            CHECK_EQ(std::uncaught_exception(), in_flight);
        }
    }
};

static void switch_while_unwinding(void *arg)
{
    int me = number(arg);
    for (int i = 0; i < 10; i++) {
        try {
            SwitchingGuard g = {me, true};
            throw me;
        } catch (int v) {
            CHECK_EQ(v, me);
        }
        SwitchingGuard quiet = {me, false};
        (void)quiet;
    }
}

GO_TEST(a_destructor_may_switch_while_an_exception_is_in_flight)
{
    many_of(switch_while_unwinding);
}

// ---- Exceptions carried from one goroutine to another ----

struct Parcel {
    std::exception_ptr what;
};

static gs_chan *parcels;

static void throw_into_parcel(void *arg)
{
    Parcel *p = new Parcel;
    try {
        throw std::runtime_error("from " + std::to_string(number(arg)));
    } catch (...) {
        p->what = std::current_exception();
    }
    CHECK_EQ(gs_chan_send(parcels, &p, GS_FOREVER), 0);
}

GO_TEST(an_exception_pointer_is_rethrown_by_another_goroutine)
{
    parcels = gs_chan_make(sizeof(Parcel *), 4);
    for (intptr_t i = 0; i < 40; i++)
        go(throw_into_parcel, reinterpret_cast<void *>(i));
    for (int i = 0; i < 40; i++) {
        Parcel *p = nullptr;
        CHECK_EQ(gs_chan_recv(parcels, &p, GS_FOREVER), 0);
        try {
            std::rethrow_exception(p->what);
        } catch (const std::runtime_error &e) {
            CHECK(std::string(e.what()).compare(0, 5, "from ") == 0);
        }
        delete p;
    }
    free_chan(parcels);
}

static void *throw_and_catch_inside(void *arg)
{
    throw_and_catch(arg);
    return arg;
}

GO_TEST(exceptions_inside_gs_blocking)
{
    int x = 0;
    CHECK(gs_blocking(throw_and_catch_inside, &x) == &x);
    try {
        throw 5;
    } catch (int) {
        CHECK(gs_blocking(throw_and_catch_inside, &x) == &x);
        CHECK_EQ(value_of(std::current_exception()), 5);
    }
}

static void *look_at_the_exception(void *arg)
{
    CHECK_EQ(value_of(std::current_exception()), 5);
    return throw_and_catch_inside(arg);
}

static void look_inside_gs_blocking(void *arg)
{
    int x = 0;
    (void)arg;
    try {
        throw 5;
    } catch (int) {
        for (int i = 0; i < 5; i++) {
            CHECK(gs_blocking(look_at_the_exception, &x) == &x);
            CHECK_EQ(value_of(std::current_exception()), 5);
            go_elsewhere(i);
        }
    }
    CHECK(std::current_exception() == nullptr);
}

GO_TEST(a_function_of_gs_blocking_sees_the_goroutines_exception)
{
    many_of(look_inside_gs_blocking);
}

static void see_no_exception(void *)
{
    CHECK(std::current_exception() == nullptr);
    CHECK(!std::uncaught_exception());
}

static void end_in_a_catch_block(void *arg)
{
    static std::exception_ptr kept[40]; // what such a goroutine handles is never freed
    try {
        throw number(arg);
    } catch (int) {
        kept[number(arg)] = std::current_exception();
        go(see_no_exception, nullptr);
        gs_exit();
    }
}

GO_TEST(what_a_goroutine_handles_at_its_end_is_no_others)
{
    many_of(end_in_a_catch_block);
    many_of(see_no_exception);
}

static void *throw_in_thread(void *arg)
{
    for (int i = 0; i < 200; i++) {
        try {
            throw i;
        } catch (int v) {
            CHECK_EQ(gs_sleep(US), 0); // a plain thread: it blocks inside its catch block
            CHECK_EQ(value_of(std::current_exception()), v);
        }
    }
    return arg;
}

TEST(plain_threads_keep_their_own_exceptions)
{
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        t[i] = start_thread(throw_in_thread, nullptr);
    CHECK_EQ(gs_run(switch_in_catch, reinterpret_cast<void *>(7)), 0);
    for (int i = 0; i < 3; i++)
        join_thread(t[i]);
}

static void run_many(void *)
{
    many_of(switch_in_catch);
}

TEST(run_inside_a_catch_block_keeps_the_callers_exception)
{
    try {
        throw 9;
    } catch (int v) {
        CHECK_EQ(gs_run(run_many, nullptr), 0);
        CHECK_EQ(v, 9);
        CHECK_EQ(value_of(std::current_exception()), 9);
    }
    CHECK(std::current_exception() == nullptr);
}

// ---- For tests/programs/plugin.c, which loads this file as a plugin ----

extern "C" void throw_and_switch(void *)
{
    many_of(switch_in_catch);
    many_of(nested_catches);
    many_of(switch_while_unwinding);
    many_of(end_in_a_catch_block);
}

extern "C" void call_in_catch_block(void (*f)(void *), void *arg)
{
    try {
        throw 77;
    } catch (int) {
        go_elsewhere(1);
        f(arg);
        go_elsewhere(2);
        CHECK_EQ(value_of(std::current_exception()), 77);
    }
    CHECK(std::current_exception() == nullptr);
}

// ---- Exceptions that escape end the process with a report ----

static void let_escape(void *)
{
    throw std::runtime_error("this is not caught");
}

CHILD(escape_from_a_goroutine)
{
    join(go_ref(let_escape, nullptr));
}

CHILD(escape_from_run)
{
    try {
        (void)gs_run(let_escape, nullptr);
    } catch (...) {
        _exit(3); // it must not come out at the other side of the library
    }
}

CHILD(escape_from_a_timer)
{
    CHECK(gs_timer_start(MS, let_escape, nullptr) != nullptr);
    nap(10 * SEC);
}

static void set_value_then_end(void *key)
{
    CHECK_EQ(gs_setspecific(*static_cast<gs_key *>(key), key), 0);
}

CHILD(escape_from_a_destructor_of_a_key)
{
    gs_key key;
    CHECK_EQ(gs_key_create(&key, let_escape), 0);
    join(go_ref(set_value_then_end, &key));
}

static void check_escape(const char *child)
{
    static struct outcome out;
    check_child_dies(child, SIGABRT, &out);
    if (!strcasestr(out.text, "terminate") && !strcasestr(out.text, "exception"))
        failed(__FILE__, __LINE__, "no report of the exception", out.text);
}

TEST(an_exception_that_escapes_is_reported_and_aborts)
{
    check_escape("escape_from_a_goroutine");
    check_escape("escape_from_run");
    check_escape("escape_from_a_timer");
    check_escape("escape_from_a_destructor_of_a_key");
}

// ---- The rest of C++ ----

static void use_the_library(void *arg)
{
    std::unique_ptr<std::string> s(new std::string(std::to_string(number(arg))));
    go_elsewhere(number(arg));
    *s += "!";
    go_elsewhere(number(arg) + 1);
    CHECK(*s == std::to_string(number(arg)) + "!");
}

GO_TEST(objects_live_on_goroutine_stacks)
{
    many_of(use_the_library);
}

// ---- Names in dumps ----

namespace shop
{
template <typename T> struct clerk
{
    __attribute__((noinline)) void serve(gs_chan *from, T *to)
    {
        (void)gs_chan_recv(from, to, GS_FOREVER);
        __asm__ volatile("" ::: "memory");
    }
};
} // namespace shop

static void serve_for_ever(void *ch)
{
    int64_t v;
    shop::clerk<int64_t>().serve(static_cast<gs_chan *>(ch), &v);
}

GO_TEST(a_dump_has_the_names_of_functions_in_cpp)
{
    gs_chan *ch = chan_of_ints(0);
    gs_g *g = go_ref(serve_for_ever, ch);
    static char text[1 << 16];
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    until_parked(g);
    CHECK_EQ(gs_dump(fds[1]), 0);
    CHECK_EQ(close(fds[1]), 0);
    read_all(fds[0], text, sizeof text);
    CHECK_EQ(close(fds[0]), 0);
    CHECK_HAS(text, "\nshop::clerk<long>::serve(gs_chan*, long*)\n");
    CHECK_EQ(gs_chan_close(ch), 0);
    join(g);
    free_chan(ch);
}
