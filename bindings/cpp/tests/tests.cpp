// Goroutines, channels, select, locks, groups, timers and sockets.
#include "test.h"

#include <any>
#include <cmath>
#include <numeric>
#if __cplusplus >= 202002L
#include <algorithm>
#include <ranges>
#endif
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;

/// How f ends in a process of its own: its wait status, and what it has written to standard error.
template <class F>
static int status_of_child(F &&f, std::string *text = nullptr)
{
    int fds[2];
    REQUIRE(::pipe(fds) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
        ::dup2(fds[1], 2);
        signal(SIGABRT, SIG_DFL);
        f();
        ::_exit(0);
    }
    ::close(fds[1]);
    char buffer[512];
    for (ssize_t n; (n = ::read(fds[0], buffer, sizeof buffer)) > 0;)
        if (text != nullptr)
            text->append(buffer, static_cast<std::size_t>(n));
    ::close(fds[0]);
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    return status;
}

static bool aborts(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

// ---- Errors ----

TEST_CASE("a gs::error says which function failed and why, and compares with std::errc")
{
    const gs::error e(-EPIPE, "gs::chan::send");
    CHECK(e.code() == std::errc::broken_pipe);
    CHECK(e.code().category().name() == std::string("gosched"));
    CHECK(std::string(e.what()).find("gs::chan::send: ") == 0);
    CHECK(std::string(e.what()).find(gs_strerror(-EPIPE)) != std::string::npos);
    CHECK(dynamic_cast<const std::system_error *>(&e) != nullptr);
    CHECK_FALSE(gs::make_code(0));
    CHECK_FALSE(gs::make_code(7));
}

TEST_CASE("a failed look-up has a message of its own, and is no errno value")
{
    const auto code = code_of([] { gs::tcp_stream::connect("256.256.256.256.invalid.", 1); });
    CHECK(code);
    CHECK(code.message() == gs_strerror(-code.value()));
    CHECK(code.default_error_condition().category() == gs::category());
}

// ---- Start ----

TEST_CASE("run gives the function's result")
{
    CHECK(gs::run([](int a, int b) { return a + b; }, 2, 3) == 5);
    int x = 1;
    int &r = gs::run([&x]() -> int & { return x; });
    CHECK(&r == &x);
    gs::run([&x] { x = 2; });
    CHECK(x == 2);
    auto p = gs::run([](std::unique_ptr<int> q) { return q; }, std::make_unique<int>(7));
    CHECK(*p == 7);
}

TEST_CASE("run throws what the function throws")
{
    CHECK_THROWS_WITH_AS(gs::run([] { throw std::runtime_error("out"); }), "out", std::runtime_error);
}

GO_TEST("run in a goroutine is an error")
{
    CHECK(code_of([] { gs::run([] {}); }) == std::errc::device_or_resource_busy);
    CHECK(code_of([] { gs::init(); }) == std::errc::device_or_resource_busy);
    CHECK(code_of([] { gs::shutdown(); }) == std::errc::resource_deadlock_would_occur);
}

TEST_CASE("shutdown, and start again")
{
    gs::shutdown();
    gs::config c;
    c.procs = 3;
    gs::init(c);
    CHECK(gs_gomaxprocs(0) == 3);
    gs::shutdown(gs::deadline(10s));
    gs::config bad;
    bad.topology = "nonsense";
    CHECK(code_of([&] { gs::init(bad); }) == std::errc::invalid_argument);
}

// ---- Goroutines ----

static int twice(int n)
{
    return 2 * n;
}

struct Adder {
    int base = 0;
    int add(int n) const { return base + n; }
};

GO_TEST("go: functions, lambdas, members, arguments that are moved, results of every kind")
{
    CHECK(gs::go(twice, 4).get() == 8);
    CHECK(gs::go([] { return std::string("text"); }).get() == "text");
    const Adder a{10};
    CHECK(gs::go(&Adder::add, a, 5).get() == 15);
    CHECK(gs::go(&Adder::add, &a, 6).get() == 16);
    CHECK(*gs::go([](std::unique_ptr<int> p) { return p; }, std::make_unique<int>(3)).get() == 3);
    int x = 0;
    CHECK(&gs::go([](int &r) -> int & { return r = 5; }, std::ref(x)).get() == &x);
    CHECK(x == 5);
    gs::goroutine<void> v = gs::go([&x] { x = 6; });
    v.join();
    v.get();
    CHECK(x == 6);
    CHECK_FALSE(v.valid());
}

GO_TEST("what a goroutine was given is destroyed on it, before a join returns")
{
    const int before = Counted::alive;
    auto g = gs::go([c = Counted(1)](const Counted &d) { return c.value + d.value; }, Counted(2));
    g.join();
    CHECK(Counted::alive == before);
    CHECK(g.get() == 3);
    {
        auto h = gs::go([] { return Counted(4); });
        h.join();
        CHECK(Counted::alive == before + 1);
    }
    CHECK(Counted::alive == before);
}

GO_TEST("get rethrows the exception, once")
{
    auto g = gs::go([]() -> int { throw std::runtime_error("inside"); });
    g.join();
    CHECK_THROWS_WITH_AS(g.get(), "inside", std::runtime_error);
    CHECK_FALSE(g.valid());
    CHECK(code_of([&] { g.get(); }) == std::errc::invalid_argument);
    CHECK(code_of([&] { g.join(); }) == std::errc::invalid_argument);
    CHECK(code_of([&] { g.cancel(); }) == std::errc::invalid_argument);
}

/// It can be moved, but the move throws if the object says so.
struct Reluctant {
    bool *throws;
    explicit Reluctant(bool *t) : throws(t) {}
    Reluctant(Reluctant &&o) : throws(o.throws)
    {
        if (*throws)
            throw std::runtime_error("it can't be moved");
    }
};

GO_TEST("a get whose result can't be moved keeps the result")
{
    bool throws = true;
    auto g = gs::go([&] { return Reluctant(&throws); });
    for (int i = 0; i < 2; i++) {
        CHECK_THROWS_WITH_AS(g.get(), "it can't be moved", std::runtime_error);
        CHECK(g.valid());
    }
    throws = false;
    CHECK(g.get().throws == &throws);
    CHECK_FALSE(g.valid());
    auto fails = gs::go([]() -> Reluctant { throw 5; });
    CHECK_THROWS_AS(fails.get(), int);
    CHECK_FALSE(fails.valid());
}

GO_TEST("join with a limit")
{
    gs::chan<int> go_on;
    auto g = gs::go([go_on] { return *go_on.recv(); });
    CHECK_FALSE(g.join_for(1ms));
    CHECK_FALSE(g.join_for(0ms));
    CHECK_FALSE(g.join_for(-5h));
    CHECK_FALSE(g.join_until(gs::clock::now()));
    CHECK_FALSE(g.join_until(std::chrono::system_clock::now() + 1ms));
    go_on.send(9);
    CHECK(g.join_for(std::chrono::hours::max()));
    CHECK(g.join_until(std::chrono::system_clock::time_point::max()));
    CHECK(g.get() == 9);
}

TEST_CASE("plain threads start goroutines and wait for them")
{
    std::vector<std::thread> threads;
    std::atomic<int> sum{0};
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&sum, i] { sum += gs::go(twice, i).get(); });
    for (auto &t : threads)
        t.join();
    CHECK(sum == 12);
}

GO_TEST("a handle can be moved, swapped, detached")
{
    gs::chan<int> out(2);
    gs::goroutine<int> a = gs::go([out] { out.send(1); return 1; });
    gs::goroutine<int> b;
    CHECK_FALSE(b.valid());
    b = std::move(a);
    CHECK_FALSE(a.valid());
    CHECK(b.joinable());
    b = gs::go([out] { out.send(2); return 2; }); // detaches the first
    CHECK(b.get() == 2);
    CHECK(*out.recv() + *out.recv() == 3);
    a.detach();
}

GO_TEST("cancel ends waits with operation_canceled, and the goroutine unwinds by it")
{
    int destroyed = 0;
    struct Guard {
        int *n;
        ~Guard() { ++*n; }
    };
    auto g = gs::go([&destroyed] {
        Guard guard{&destroyed};
        gs::this_goroutine::sleep_for(1h);
    });
    g.cancel();
    CHECK(code_of([&] { g.get(); }) == std::errc::operation_canceled);
    CHECK(destroyed == 1);

    auto computing = gs::go([] {
        while (!gs::this_goroutine::cancelled())
            gs::this_goroutine::yield();
        {
            gs::no_cancel guard;
            gs::this_goroutine::sleep_for(1us);
        }
        CHECK(code_of([] { gs::this_goroutine::check_cancelled(); }) == std::errc::operation_canceled);
        return 3;
    });
    computing.cancel();
    CHECK(computing.get() == 3);
}

GO_TEST("a get that is ended by a cancel keeps the goroutine")
{
    gs::chan<int> go_on;
    auto g = gs::go([go_on] { return *go_on.recv(); });
    auto waiter = gs::go([&g] {
        CHECK(code_of([&] { g.get(); }) == std::errc::operation_canceled);
        CHECK(g.valid());
    });
    waiter.cancel();
    waiter.get();
    go_on.send(4);
    CHECK(g.get() == 4);
}

GO_TEST("options")
{
    gs::options o;
    o.name = "reader of lines";
    o.stack_size = 1 << 20;
    o.priority = GS_PRIO_LOW;
    o.node = 0;
    o.pinned = true;
    auto g = gs::go(o, [] {
        const auto me = gs_self();
        char name[32];
        gs_name(me, name, sizeof name);
        volatile char deep[512 * 1024];
        deep[0] = 1;
        deep[sizeof deep - 1] = 1;
        return std::string(name) + std::to_string(deep[0]);
    });
    CHECK(g.name() == "reader of lines");
    CHECK(g.get() == "reader of lines1");
    o.node = 1000;
    const int before = Counted::alive;
    CHECK(code_of([&] { (void)gs::go(o, [c = Counted()] {}); }) == std::errc::invalid_argument);
    CHECK(code_of([&] { gs::go(gs::detached, o, [c = Counted()] {}); }) == std::errc::invalid_argument);
    CHECK(Counted::alive == before);
}

GO_TEST("detached goroutines, small and large")
{
    static gs::waitgroup wg;
    static std::atomic<int> n{0};
    wg.add(5);
    gs::go(gs::detached, [] { n++; wg.done(); });
    int *p = new int(1);
    gs::go(gs::detached, [p] { n += *p; delete p; wg.done(); });
    gs::go(gs::detached, [c = Counted(1), s = std::string(100, 'x')] { n += c.value; wg.done(); });
    gs::go(gs::detached, [](std::unique_ptr<int> q) { n += *q; wg.done(); }, std::make_unique<int>(1));
    static auto *const function = +[] { n++; wg.done(); };
    gs::go(gs::detached, *function); // a function, not a pointer to it
    wg.wait();
    CHECK(n == 5);
}

TEST_CASE("a handle that is destroyed doesn't wait")
{
    gs::run([] {
        gs::chan<int> never;
        { auto g = gs::go([never] { (void)never.recv(); }); }
        never.close();
    });
    gs::shutdown();
}

TEST_CASE("an exception that nothing can take ends the program with a report")
{
    gs::shutdown();
    std::string text;
    const auto fail = [] { throw std::runtime_error("nothing takes this"); };
    SUBCASE("the handle goes before") {
        CHECK(aborts(status_of_child([&] { gs::run([&] { (void)gs::go([&] { gs::this_goroutine::yield(); fail(); }); gs::this_goroutine::sleep_for(10s); }); }, &text)));
    }
    SUBCASE("the handle goes after") {
        CHECK(aborts(status_of_child([&] { gs::run([&] { auto g = gs::go(fail); g.join(); }); }, &text)));
    }
    SUBCASE("there is no handle") {
        CHECK(aborts(status_of_child([&] { gs::run([&] { gs::go(gs::detached, fail); gs::this_goroutine::sleep_for(10s); }); }, &text)));
    }
    SUBCASE("there is no handle, and much to carry") {
        CHECK(aborts(status_of_child([&] { gs::run([&] { gs::go(gs::detached, [&, s = std::string()] { fail(); }); gs::this_goroutine::sleep_for(10s); }); }, &text)));
    }
    SUBCASE("a timer") {
        CHECK(aborts(status_of_child([&] { gs::run([&] { gs::timer t(0s, fail); gs::this_goroutine::sleep_for(10s); }); }, &text)));
    }
    CHECK(text.find("nothing takes this") != std::string::npos);
}

TEST_CASE("an exception whose handle another exception has destroyed, and a cancel, are no reason to end")
{
    gs::shutdown();
    CHECK(status_of_child([] {
        gs::run([] {
            for (int i = 0; i < 2; i++) {
                try {
                    auto g = gs::go([] { throw 1; });
                    if (i == 0)
                        g.join();
                    throw 2;
                } catch (int n) {
                    if (n != 2)
                        ::_exit(3);
                }
            }
            auto g = gs::go([] { gs::this_goroutine::sleep_for(1h); });
            g.cancel();
        });
        gs::shutdown();
    }) == 0);
}

// ---- Exceptions, yields and migrations ----

GO_TEST("throw, catch and rethrow around switches")
{
    many_of([](int me) {
        for (int i = 0; i < 10; i++) {
            int caught = 0;
            try {
                try {
                    go_elsewhere(i + me);
                    throw me * 1000 + i;
                } catch (int) {
                    go_elsewhere(i + me + 1);
                    throw;
                }
            } catch (int v) {
                go_elsewhere(i);
                CHECK(v == me * 1000 + i);
                caught++;
            }
            CHECK(caught == 1);
        }
    });
}

GO_TEST("current_exception and uncaught_exceptions belong to the goroutine")
{
    struct Switching {
        int me, in_flight;
        ~Switching()
        {
            for (int k = 0; k < 4; k++) {
                CHECK(std::uncaught_exceptions() == in_flight);
                go_elsewhere(k + me);
            }
            CHECK(std::uncaught_exceptions() == in_flight);
        }
    };
    many_of([](int me) {
        for (int i = 0; i < 10; i++) {
            CHECK(std::current_exception() == nullptr);
            try {
                Switching during{me, 1};
                throw std::to_string(me);
            } catch (const std::string &) {
                for (int k = 0; k < 4; k++) {
                    go_elsewhere(k + me);
                    try {
                        std::rethrow_exception(std::current_exception());
                    } catch (const std::string &s) {
                        CHECK(s == std::to_string(me));
                    }
                    CHECK(std::uncaught_exceptions() == 0);
                }
            }
            Switching quiet{me, 0};
            (void)quiet;
        }
    });
}

GO_TEST("exceptions go from goroutine to goroutine through get, nested")
{
    const auto outer = gs::go([] {
        try {
            gs::go([] { throw std::invalid_argument("deep"); }).get();
        } catch (...) {
            gs::this_goroutine::yield();
            std::throw_with_nested(std::runtime_error("outer"));
        }
    });
    try {
        const_cast<gs::goroutine<void> &>(outer).get();
        FAIL("nothing was thrown");
    } catch (const std::runtime_error &e) {
        CHECK(std::string(e.what()) == "outer");
        CHECK_THROWS_AS(std::rethrow_if_nested(e), std::invalid_argument);
    }
}

GO_TEST("blocking carries results and exceptions, and the exception in hand")
{
    CHECK(gs::blocking([](int a) { return a + 1; }, 4) == 5);
    int x = 0;
    CHECK(&gs::blocking([&x]() -> int & { return x; }) == &x);
    CHECK_THROWS_AS(gs::blocking([] { throw std::runtime_error("on the large stack"); }), std::runtime_error);
    CHECK(*gs::blocking([] { return std::make_unique<int>(6); }) == 6);
    try {
        throw 5;
    } catch (int) {
        gs::blocking([] {
            CHECK(std::current_exception() != nullptr);
            CHECK_THROWS_AS(throw 6, int);
        });
        CHECK_THROWS_AS(std::rethrow_exception(std::current_exception()), int);
    }
}

// ---- Channels ----

GO_TEST("unbuffered and buffered channels, in order, with range-for")
{
    for (std::size_t cap : {0, 1, 7}) {
        gs::chan<int> c(cap);
        CHECK(c.capacity() == cap);
        auto sender = gs::go([c] {
            for (int i = 0; i < 50; i++)
                c.send(i);
            c.close();
        });
        int next = 0;
        for (int v : c)
            CHECK(v == next++);
        CHECK(next == 50);
        sender.get();
        CHECK_FALSE(c.recv());
        CHECK(c.recv().closed());
    }
}

GO_TEST("closed channels, nil channels, empty ones")
{
    gs::chan<std::string> c(1);
    CHECK(c.try_recv().status() == gs::status::again);
    CHECK(c.recv_for(1ms).timed_out());
    CHECK(c.recv_for(0s).timed_out());
    CHECK(c.recv_until(gs::clock::now()).timed_out());
    CHECK(code_of([&] { (void)c.try_recv().value(); }) == std::errc::resource_unavailable_try_again);
    CHECK(c.try_send("a") == gs::status::ok);
    CHECK(c.size() == 1);
    CHECK(c.try_send("b") == gs::status::again);
    CHECK(c.send_for("b", 1ms) == gs::status::timed_out);
    CHECK(c.send_until("b", std::chrono::system_clock::now()) == gs::status::timed_out);
    c.close();
    CHECK(code_of([&] { c.close(); }) == std::errc::broken_pipe);
    CHECK(code_of([&] { c.send("c"); }) == std::errc::broken_pipe);
    CHECK(c.try_send("c") == gs::status::closed);
    const auto last = c.recv();
    CHECK(*last == "a");
    CHECK(last->size() == 1);
    CHECK(last.value() == "a");
    CHECK(last.value_or("none") == "a");
    CHECK(c.recv().status() == gs::status::closed);
    CHECK(c.recv().value_or("none") == "none");

    const gs::chan<int> nil(nullptr);
    CHECK_FALSE(nil);
    CHECK(nil.capacity() == 0);
    CHECK(code_of([&] { nil.send(1); }) == std::errc::invalid_argument);
    CHECK(code_of([&] { (void)nil.recv(); }) == std::errc::invalid_argument);
    CHECK(code_of([&] { (void)nil.try_recv(); }) == std::errc::invalid_argument);
    CHECK(code_of([&] { nil.close(); }) == std::errc::invalid_argument);
    CHECK(code_of([] { gs::chan<int> huge(std::numeric_limits<std::size_t>::max()); }) ==
          std::errc::not_enough_memory);
}

struct Large {
    char bytes[5000];
    int n;
};
struct alignas(64) Aligned {
    int n;
};
struct NoDefault {
    explicit NoDefault(int v) : n(v) {}
    const int n; // not assignable
};
struct Message {
    int n;
    gs::chan<Message> reply; // a channel of its own type
};

template <class T, class Make, class Value>
static void through(Make make, Value value)
{
    for (std::size_t cap : {0, 3}) {
        gs::chan<T> c(cap);
        auto g = gs::go([c, make] {
            for (int i = 0; i < 10; i++)
                c.send(make(i));
            c.close();
        });
        int n = 0;
        for (T &v : c)
            CHECK(value(v) == n++);
        CHECK(n == 10);
        g.get();
    }
}

GO_TEST("elements of every kind")
{
    through<std::unique_ptr<int>>([](int i) { return std::make_unique<int>(i); }, [](auto &p) { return *p; });
    through<std::shared_ptr<int>>([](int i) { return std::make_shared<int>(i); }, [](auto &p) { return *p; });
    through<std::string>([](int i) { return std::to_string(i); }, [](auto &s) { return std::stoi(s); });
    through<std::vector<int>>([](int i) { return std::vector<int>(100, i); }, [](auto &v) { return v[99]; });
    through<Large>([](int i) { return Large{{}, i}; }, [](auto &l) { return l.n; });
    through<Aligned>([](int i) { return Aligned{i}; }, [](auto &a) {
        CHECK(reinterpret_cast<std::uintptr_t>(&a) % 64 == 0);
        return a.n;
    });
    through<NoDefault>([](int i) { return NoDefault(i); }, [](auto &a) { return a.n; });
    through<Counted>([](int i) { return Counted(i); }, [](auto &a) { return a.value; });
    through<std::function<int()>>([](int i) { return [i] { return i; }; }, [](auto &f) { return f(); });
    gs::chan<bool> bits(2);
    bits.send(true);
    bits.send(false);
    CHECK(*bits.recv());
    CHECK_FALSE(*bits.recv());
    gs::chan<Message> requests;
    gs::go(gs::detached, [requests] {
        for (auto &m : requests)
            m.reply.send({m.n + 1, nullptr});
    });
    gs::chan<Message> reply;
    requests.send({4, reply});
    CHECK(reply.recv()->n == 5);
    requests.close();
    gs::chan<gs::chan<int>> channels(1);
    channels.send(gs::chan<int>(3));
    CHECK(channels.recv()->capacity() == 3);
}

#if defined(__cpp_lib_ranges)
static_assert(std::ranges::input_range<gs::chan<int>> && std::ranges::input_range<const gs::recv_chan<std::string>>);
static_assert(std::ranges::input_range<gs::chan<std::unique_ptr<int>>>);

GO_TEST("channels are ranges")
{
    gs::chan<std::unique_ptr<int>> c;
    auto producer = gs::go([=] {
        for (int i = 0; i < 10; i++)
            c.send(std::make_unique<int>(i));
        c.close();
    });
    int sum = 0;
    std::ranges::for_each(c, [&](std::unique_ptr<int> &p) { sum += *p; });
    CHECK(sum == 45);
    producer.get();
#if !defined(__clang_major__) || __clang_major__ >= 16 // before that clang can't compile libstdc++'s views
    gs::chan<int> n(10);
    for (int i = 0; i < 10; i++)
        n.send(i);
    int squares = 0;
    for (int square : n | std::views::take(4) | std::views::transform([](int i) { return i * i; }))
        squares += square;
    CHECK(squares == 14);
#endif
}
#endif

TEST_CASE_TEMPLATE("each value is destroyed once: received, left in the channel, not sent", T, Counted,
                   std::unique_ptr<Counted>)
{
    const auto make = [](int i) {
        if constexpr (std::is_same_v<T, Counted>)
            return Counted(i);
        else
            return std::make_unique<Counted>(i);
    };
    gs::run([make] {
        REQUIRE(Counted::alive == 0);
        {
            gs::chan<T> c(5);
            for (int i = 0; i < 4; i++)
                c.send(make(i));
            CHECK(Counted::alive == 4);
            (void)c.recv();
            CHECK(Counted::alive == 3);
            c.close();
            T kept = make(9);
            CHECK(c.try_send(std::move(kept)) == gs::status::closed);
            CHECK_THROWS_AS(c.send(std::move(kept)), gs::error);
            CHECK(c.send_for(std::move(kept), 1ms) == gs::status::closed);
            if constexpr (std::is_same_v<T, Counted>)
                CHECK(kept.value == 9);
            else
                CHECK(kept->value == 9);
            CHECK(Counted::alive == 4);
        }
        CHECK(Counted::alive == 0);
        {
            gs::chan<T> c; // senders that wait when it is closed
            std::vector<gs::goroutine<void>> senders;
            for (int i = 0; i < 5; i++)
                senders.push_back(gs::go([c, make, i] {
                    try {
                        c.send(make(i));
                    } catch (const gs::error &e) {
                        CHECK(e.code() == std::errc::broken_pipe);
                    }
                }));
            (void)c.recv();
            c.close();
            for (auto &g : senders)
                g.get();
        }
        CHECK(Counted::alive == 0);
    });
}

/// Its copies throw while `fails` is above 0, which is also how many may still throw. It can't be moved otherwise.
struct Failing {
    static inline int fails = 0, alive = 0;
    int value;
    explicit Failing(int v) : value(v) { alive++; }
    Failing(const Failing &o) : value(o.value)
    {
        check();
        alive++;
    }
    Failing &operator=(const Failing &o)
    {
        check();
        value = o.value;
        return *this;
    }
    ~Failing() { alive--; }

private:
    static void check()
    {
        if (fails > 0 && fails-- > 0)
            throw std::runtime_error("it can't be copied");
    }
};

/// It goes over a channel by its bytes, and can't be assigned.
struct FailingBytes : Failing {
    using Failing::Failing;
    FailingBytes(FailingBytes &&o) noexcept : Failing(o.value) {}
    FailingBytes &operator=(FailingBytes &&o)
    {
        Failing::operator=(o);
        return *this;
    }
};
/// It goes over a channel by its bytes, and its moves throw.
struct FailingMoves : Failing {
    using Failing::Failing;
};
namespace gs {
template <>
struct is_trivially_relocatable<FailingBytes> : std::true_type {
};
template <>
struct is_trivially_relocatable<FailingMoves> : std::true_type {
};
}  // namespace gs

TEST_CASE_TEMPLATE("what a value's move throws leaves the send, and no receive moves the value", T, Failing, FailingMoves)
{
    gs::run([] {
        gs::chan<T> c(9);
        T kept(9);
        Failing::fails = 1;
        CHECK_THROWS_AS(c.send(std::move(kept)), std::runtime_error);
        Failing::fails = 0;
        CHECK(kept.value == 9);
        CHECK(c.size() == 0);
        for (int n = 0; n < 9; n++)
            c.send(T(n));
        c.close();
        Failing::fails = 100; // each copy and each move throws
        int next = 0;
        const auto arrives = [&](const gs::received<T> &v) {
            REQUIRE(v);
            CHECK(v->value == next++);
        };
        arrives(c.recv());
        arrives(c.try_recv());
        arrives(c.recv_for(1min));
        gs::select(gs::recv(c, [&](gs::received<T> v) { arrives(v); }));
        gs::select(gs::recv(c, [&](const T &v) { CHECK(v.value == next++); }));
        gs::selector s;
        s.recv(c, [&](gs::received<T> v) {
            CHECK(Failing::alive == 1 + 9 - next); // kept, this value, and those in the channel
            arrives(v);
        });
        s.select();
        CHECK(Failing::alive == 1 + 9 - next);

        // The exception comes where the value is moved out, and the value stays.
        gs::received<T> v = c.recv(), w = std::move(v);
        CHECK_FALSE(v);
        arrives(w);
        CHECK_THROWS_AS((void)*std::move(w).optional(), std::runtime_error);
        CHECK_THROWS_AS((void)std::move(w).value_or(T(1)), std::runtime_error);
        CHECK_THROWS_AS(gs::received<T>{w}, std::runtime_error);
        CHECK(w->value == 6);
        Failing::fails = 0;
        const T moved = *std::move(w);
        CHECK(moved.value == 6);

        // The function's own parameter is moved. That exception leaves select.
        Failing::fails = 1;
        CHECK_THROWS_AS(gs::select(gs::recv(c, [](T) { CHECK(false); })), std::runtime_error);
        next++;
        Failing::fails = 100;
        for (T &left : c)
            CHECK(left.value == next++);
        CHECK(next == 9);
        Failing::fails = 0;
    });
    CHECK(Failing::alive == 0);
}

GO_TEST("a gs::received is copied, moved and assigned as its value is")
{
    gs::chan<std::string> c(3);
    c.send("a string that is too long to lie within the object");
    c.send("two");
    gs::received<std::string> a = c.recv(), b = a, none(gs::status::closed);
    CHECK(*b == *a);
    none = a;
    CHECK(*none == *a);
    a = c.recv();
    CHECK(*a == "two");
    b = std::move(a);
    CHECK(*b == "two");
    CHECK_FALSE(a);
    CHECK(code_of([&] { (void)a.value(); }) == std::errc::invalid_argument);
    a = c.try_recv();
    CHECK(a.status() == gs::status::again);
    b = a;
    CHECK(b.status() == gs::status::again);
    CHECK(*gs::received<std::string>(std::optional<std::string>("given")) == "given");
    CHECK(gs::received<std::string>(std::optional<std::string>()).closed());
    CHECK_FALSE(gs::received<int>(gs::status::ok));

    gs::chan<std::shared_ptr<int>> d(1);
    d.send(std::make_shared<int>(4));
    gs::received<std::shared_ptr<int>> p = d.recv(), q = p, r = d.try_recv();
    CHECK(p->use_count() == 2);
    r = q;
    CHECK(q->use_count() == 3);
    p = std::move(r);
    CHECK(q->use_count() == 2);
    CHECK_FALSE(r);
    q = gs::received<std::shared_ptr<int>>(gs::status::closed);
    CHECK(p->use_count() == 1);
    CHECK(*p.value().get() == 4);

    using copied = gs::received<Counted>;
    static_assert(!std::is_copy_constructible_v<copied> && !std::is_copy_assignable_v<copied>);
    static_assert(std::is_nothrow_move_constructible_v<copied> && std::is_nothrow_move_assignable_v<copied>);
    static_assert(!std::is_copy_constructible_v<gs::received<std::unique_ptr<int>>>);
    static_assert(std::is_trivially_copyable_v<gs::received<int>>);
}

/// Bytes of an element that a goroutine's stack of 240 KiB has room for once, with the calls.
struct Huge {
    char bytes[150'000];
    int n;
};

GO_TEST("a stack that has room for one element is enough for a receive")
{
    gs::chan<Huge> c(6);
    auto sender = gs::go([c] {
        auto h = std::make_unique<Huge>();
        for (h->n = 0; h->n < 6; h->n++)
            c.send(*h);
        c.close();
    });
    int next = 0;
    gs::go([&] {
        const auto v = c.recv();
        CHECK(v->n == next++);
    }).get();
    gs::go([&] {
        const auto v = c.recv_for(1min);
        CHECK(v->n == next++);
    }).get();
    gs::go([&] { gs::select(gs::recv(c, [&](const Huge &h) { CHECK(h.n == next++); })); }).get();
    gs::go([&] {
        gs::selector s;
        s.recv(c, [&](gs::received<Huge> &&v) { CHECK(v->n == next++); });
        s.select();
    }).get();
    gs::go([&] {
        for (const Huge &h : c)
            CHECK(h.n == next++);
    }).get();
    CHECK(next == 6);
    sender.get();
    auto result = gs::go([] { return Huge{{}, 7}; });
    gs::go([&] {
        const Huge h = result.get();
        CHECK(h.n == 7);
    }).get();
}

TEST_CASE("values left in a channel are destroyed without being copied")
{
    gs::run([] {
        gs::chan<Failing> c(2);
        c.send(Failing(1));
        c.send(Failing(2));
        Failing::fails = 1;
    });
    CHECK(Failing::fails == 1);
    Failing::fails = 0;
    CHECK(Failing::alive == 0);
}

TEST_CASE_TEMPLATE("what a value's assignment throws leaves the send that moves it back", T, Failing, FailingBytes)
{
    gs::run([] {
        gs::chan<T> none, full(1);
        full.send(T(1));
        T kept(9);
        // The first copy of a Failing goes into the channel.
        const auto fails = [&](auto &&send) {
            Failing::fails = 0;
            CHECK_THROWS_WITH_AS(send(), "it can't be copied", std::runtime_error);
            CHECK(Failing::fails == 0);
            CHECK(kept.value == 9);
            CHECK(Failing::alive == 2);
        };
        struct FailsLater {
            gs::goroutine<void> g;
            explicit FailsLater(gs::chan<T> c) : g(gs::go([c] {
                gs::this_goroutine::sleep_for(1ms);
                Failing::fails = 1;
                c.close();
            }))
            {
            }
            ~FailsLater() { g.get(); }
        };
        const auto closed = [] { return gs::chan<T>(); };
        fails([&] { // while it waits
            const auto c = closed();
            FailsLater later(c);
            c.send(std::move(kept));
        });
        fails([&] {
            const auto c = closed();
            FailsLater later(c);
            (void)c.send_for(std::move(kept), 1min);
        });
        fails([&] {
            const auto c = closed();
            FailsLater later(c);
            gs::select(gs::send(none, std::move(kept), [] { CHECK(false); }), gs::recv(c, [](gs::received<T> v) { CHECK(v.closed()); }));
        });
        int called = 0;
        fails([&] {
            const auto c = closed();
            FailsLater later(c);
            gs::selector s;
            s.send(none, T(3), [] { CHECK(false); });
            s.recv(c, [&](gs::received<T> v) { called += v.closed(); });
            s.select();
        });
        CHECK(called == 1); // the function of the case that was done
        CHECK(full.try_send(std::move(kept)) == gs::status::again); // without an exception
        CHECK(kept.value == 9);
    });
    CHECK(Failing::alive == 0);
}

GO_TEST("0 is a capacity, and nullptr is a nil channel")
{
    gs::chan<int> c(0), d{0}, nil = nullptr, also_nil(nullptr);
    CHECK(c);
    CHECK(c.capacity() == 0);
    CHECK(d);
    CHECK_FALSE(nil);
    CHECK_FALSE(also_nil);
    c = nullptr;
    CHECK_FALSE(c);
    const auto is_nil = [](gs::send_chan<int> to, gs::chan<int> ch) { return !to && !ch; };
    CHECK(is_nil(gs::chan<int>(nullptr), nullptr));
    static_assert(std::is_nothrow_constructible_v<gs::chan<int>, std::nullptr_t>);
    static_assert(!std::is_convertible_v<int, gs::chan<int>> && !std::is_convertible_v<void *, gs::chan<int>>);
}

GO_TEST("direction types, and handles that share a channel")
{
    gs::chan<int> c(2);
    gs::send_chan<int> in = c;
    gs::recv_chan<int> out = c;
    in.send(1);
    in.send(2);
    CHECK(out.size() == 2);
    CHECK(in.native_handle() == out.native_handle());
    gs::chan<int> other = c;
    CHECK(other == c);
    CHECK(other != gs::chan<int>());
    c = gs::chan<int>(); // the other handles still have the old one
    CHECK(*out.recv() == 1);
    in.close();
    int n = 0;
    for (int v : out)
        n += v;
    CHECK(n == 2);
    static_assert(!std::is_convertible_v<gs::recv_chan<int>, gs::send_chan<int>>);
    static_assert(!std::is_convertible_v<gs::send_chan<int>, gs::recv_chan<int>>);
    static_assert(!std::is_convertible_v<gs::send_chan<int>, gs::chan<int>>);
    static_assert(!gs::detail::can_send<gs::recv_chan<int>>);
}

TEST_CASE("goroutines and threads share a channel")
{
    gs::chan<std::string> c;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; t++)
        threads.emplace_back([c] {
            for (int i = 0; i < 100; i++)
                c.send(std::string(50, 'x'));
        });
    const auto n = gs::run([c] {
        std::size_t sum = 0;
        for (int i = 0; i < 300; i++)
            sum += c.recv()->size();
        return sum;
    });
    for (auto &t : threads)
        t.join();
    CHECK(n == 15000);
}

GO_TEST("a receive is ended by a cancel")
{
    auto g = gs::go([] {
        gs::chan<int> never;
        CHECK(code_of([&] { (void)never.recv(); }) == std::errc::operation_canceled);
        CHECK(code_of([&] { never.send(1); }) == std::errc::operation_canceled);
        CHECK(code_of([&] { (void)never.recv_for(1h); }) == std::errc::operation_canceled);
        CHECK(code_of([&] { for (int v : never) (void)v; }) == std::errc::operation_canceled);
        CHECK(code_of([&] { gs::select(gs::recv(never, [](int) {})); }) == std::errc::operation_canceled);
    });
    g.cancel();
    g.get();
}

// ---- Select ----

/// Of a select: takes a std::any, as a function.
static int taken_by_function = 0;
static void take_any(std::any v)
{
    taken_by_function += std::any_cast<int>(v);
}

/// Can be made of anything, as a std::any can.
struct Anything {
    bool of_received = false;
    Anything() = default;
    template <class T, std::enable_if_t<!std::is_same_v<T, Anything>, int> = 0>
    Anything(const T &) : of_received(true)
    {
    }
};

GO_TEST("select: elements that anything converts to")
{
    gs::chan<std::any> c(8);
    int sum = 0, calls = 0;
    const auto next = [&](auto &&f) {
        c.send(std::any(5));
        gs::select(gs::recv(c, f));
        gs::selector s;
        s.recv(c, f);
        c.send(std::any(5));
        s.select();
        calls += 2;
    };
    next([&](gs::received<std::any> v) { sum += std::any_cast<int>(*v); });
    next([&](const gs::received<std::any> &v) { sum += std::any_cast<int>(*v); });
    next([&](gs::received<std::any> &&v) mutable { sum += std::any_cast<int>(*v); });
    next([&](std::any v) { sum += std::any_cast<int>(v); });
    next([&](const std::any &v) noexcept { sum += std::any_cast<int>(v); });
    next([&](auto v) { sum += std::any_cast<int>(*v); });
    next([&](auto &&v) { sum += std::any_cast<int>(*v); });
    next(std::function<void(std::any)>([&](std::any v) { sum += std::any_cast<int>(v); }));
    next(std::function<void(gs::received<std::any>)>([&](gs::received<std::any> v) { sum += std::any_cast<int>(*v); }));
    next(take_any);
    next(&take_any);
    CHECK(sum + taken_by_function == 5 * calls);
    CHECK(taken_by_function == 20);

    gs::chan<Anything> d(1);
    d.send(Anything());
    gs::select(gs::recv(d, [](Anything v) { CHECK_FALSE(v.of_received); }));
    c.close();
    d.close();
    bool told = false;
    gs::select(gs::recv(c, [&](auto v) { told = !v.has_value(); }));
    CHECK(told);
    told = false;
    gs::select(gs::recv(d, [&](gs::received<Anything> v) { told = v.closed(); }));
    CHECK(told);
    CHECK(code_of([&] { gs::select(gs::recv(c, [](std::any) {})); }) == std::errc::broken_pipe);
}

GO_TEST("select: send, receive, otherwise, timeout")
{
    gs::chan<int> a(1);
    gs::chan<std::string> b(1);
    std::string log;
    const auto step = [&] {
        return gs::select(gs::recv(a, [&](int v) { log += std::to_string(v); }),
                          gs::send(b, std::string("s"), [&] { log += "sent"; }),
                          gs::otherwise([&] { log += "none"; }));
    };
    CHECK(step() == 1);
    CHECK(step() == 2);
    a.send(5);
    CHECK(step() == 0);
    CHECK(log == "sentnone5");
    CHECK(gs::select(gs::recv(a, [](int) {}), gs::timeout(1ms, [&] { log = "late"; })) == 1);
    CHECK(log == "late");
    CHECK(gs::select(gs::timeout(gs::clock::now() + 1ms, [] {})) == 0);
    CHECK(gs::select(gs::otherwise([] {}), gs::recv(gs::recv_chan<std::string>(b), [&](std::string s) { log = s; })) == 1);
    CHECK(log == "s");
    // nil channels are never ready
    CHECK(gs::select(gs::recv(gs::chan<int>(nullptr), [](int) {}), gs::otherwise([] {})) == 1);
}

GO_TEST("select on closed channels")
{
    gs::chan<int> c;
    c.close();
    bool told = false;
    gs::select(gs::recv(c, [&](gs::received<int> v) { told = v.closed(); }));
    CHECK(told);
    told = false;
    gs::select(gs::recv(c, [&](auto v) { told = !v.has_value(); }));
    CHECK(told);
    CHECK(code_of([&] { gs::select(gs::recv(c, [](int) {})); }) == std::errc::broken_pipe);
    try { // the message is for a reader as well
        gs::select(gs::recv(c, [](int) {}));
    } catch (const gs::error &e) {
        CHECK(std::string(e.what()).find("The channel is closed") != std::string::npos);
        CHECK(std::string(e.what()).find("writ") == std::string::npos);
    }
    auto p = std::make_unique<int>(3);
    gs::chan<std::unique_ptr<int>> d;
    d.close();
    CHECK(code_of([&] { gs::select(gs::send(d, std::move(p), [] {})); }) == std::errc::broken_pipe);
    REQUIRE(p);
    CHECK(*p == 3);
}

GO_TEST("a value that select doesn't send is as before when the other case runs")
{
    gs::chan<std::unique_ptr<int>> a;
    gs::chan<Counted> b;
    gs::chan<int> ready(1);
    ready.send(1);
    auto p = std::make_unique<int>(1);
    Counted c(7);
    bool ran = false;
    gs::select(gs::send(a, std::move(p), [] {}), gs::send(b, std::move(c), [] {}), gs::recv(ready, [&](int) {
                   ran = true;
                   CHECK(p != nullptr);
                   CHECK(c.value == 7);
               }));
    CHECK(ran);
    CHECK_THROWS_AS(gs::select(gs::send(b, std::move(c), [] {}), gs::otherwise([] { throw 4; })), int);
    CHECK(c.value == 7);
    CHECK(Counted::alive == 1);
    auto receiver = gs::go([b] { return b.recv().value().value; });
    gs::select(gs::send(b, std::move(c), [] {}));
    CHECK(receiver.get() == 7);
}

GO_TEST("select takes what many send, each once")
{
    gs::chan<int> a, b(2);
    gs::chan<std::string> c;
    std::vector<gs::goroutine<void>> senders;
    for (int i = 0; i < 3; i++)
        senders.push_back(gs::go([=] {
            for (int k = 0; k < 50; k++) {
                if (i == 0)
                    a.send(1);
                else if (i == 1)
                    b.send(1);
                else
                    c.send("1");
            }
        }));
    int sum = 0;
    for (int i = 0; i < 150; i++)
        gs::select(gs::recv(a, [&](int v) { sum += v; }), gs::recv(b, [&](int v) { sum += v; }),
                   gs::recv(c, [&](const std::string &s) { sum += std::stoi(s); }));
    CHECK(sum == 150);
    for (auto &g : senders)
        g.get();
}

// ---- Locks ----

GO_TEST("mutex with lock_guard, unique_lock and scoped_lock")
{
    gs::mutex a, b;
    int n = 0;
    many_of([&](int i) {
        for (int k = 0; k < 20; k++) {
            std::scoped_lock both(i % 2 ? a : b, i % 2 ? b : a);
            int was = n;
            if (k % 4 == 0)
                gs::this_goroutine::yield();
            n = was + 1;
        }
    });
    CHECK(n == 600);
    {
        std::lock_guard<gs::mutex> guard(a);
        CHECK_FALSE(a.try_lock());
        CHECK_FALSE(a.try_lock_for(1ms));
        CHECK_FALSE(a.try_lock_until(gs::clock::now() - 1h));
        std::unique_lock<gs::mutex> late(a, 1ms);
        CHECK_FALSE(late);
    }
    std::unique_lock<gs::mutex> lock(a, std::try_to_lock);
    CHECK(lock);
    lock.unlock();
    CHECK(code_of([&] { a.unlock(); }) == std::errc::operation_not_permitted);
}

GO_TEST("a lock isn't ended by a cancel")
{
    gs::mutex m;
    gs::shared_mutex s;
    m.lock();
    s.lock();
    auto g = gs::go([&] {
        std::lock_guard<gs::mutex> one(m);
        std::shared_lock<gs::shared_mutex> two(s);
        CHECK(gs::this_goroutine::cancelled());
        return 1;
    });
    g.cancel();
    CHECK_FALSE(g.join_for(1ms));
    m.unlock();
    CHECK_FALSE(g.join_for(1ms));
    s.unlock();
    CHECK(g.get() == 1);
}

GO_TEST("shared_mutex with shared_lock and unique_lock")
{
    gs::shared_mutex m;
    int n = 0;
    many_of([&](int i) {
        for (int k = 0; k < 20; k++) {
            if (i % 3 == 0) {
                std::unique_lock<gs::shared_mutex> write(m);
                int was = n;
                gs::this_goroutine::yield();
                n = was + 1;
            } else {
                std::shared_lock<gs::shared_mutex> read(m);
                int was = n;
                gs::this_goroutine::yield();
                CHECK(n == was);
            }
        }
    });
    CHECK(n == 200);
    std::shared_lock<gs::shared_mutex> a(m), b(m, std::try_to_lock);
    CHECK(b);
    CHECK_FALSE(m.try_lock());
    CHECK_FALSE(m.try_lock_for(1ms));
    CHECK(m.try_lock_shared_for(1ms));
    m.unlock_shared();
    a.unlock();
    b.unlock();
    CHECK(code_of([&] { m.unlock_shared(); }) == std::errc::operation_not_permitted);
    CHECK(code_of([&] { m.unlock(); }) == std::errc::operation_not_permitted);
    std::unique_lock<gs::shared_mutex> w(m, 1ms);
    CHECK(w);
    CHECK_FALSE(m.try_lock_shared());
    CHECK_FALSE(m.try_lock_shared_until(std::chrono::system_clock::now() + 1ms));
}

template <class Cond, class Mutex>
static void exchange_by()
{
    Cond changed;
    Mutex m;
    int turn = 0;
    many_of([&](int me) {
        std::unique_lock<Mutex> lock(m);
        changed.wait(lock, [&] { return turn == me; });
        turn++;
        changed.notify_all();
    });
    CHECK(turn == 30);
    std::unique_lock<Mutex> lock(m);
    CHECK(changed.wait_for(lock, 1ms) == std::cv_status::timeout);
    CHECK(changed.wait_until(lock, std::chrono::system_clock::now() + 1ms) == std::cv_status::timeout);
    CHECK(lock.owns_lock());
    auto g = gs::go([&] {
        std::unique_lock<Mutex> own(m);
        try {
            changed.wait(own);
            FAIL_CHECK("not cancelled");
        } catch (const gs::error &e) {
            CHECK(e.code() == std::errc::operation_canceled);
            CHECK(own.owns_lock());
            CHECK_FALSE(m.try_lock());
        }
    });
    g.cancel();
    lock.unlock();
    g.get();
}

GO_TEST("condition variables")
{
    exchange_by<gs::condition_variable, gs::mutex>();
    exchange_by<gs::condition_variable_any, gs::shared_mutex>();
    gs::condition_variable c;
    gs::mutex m;
    std::unique_lock<gs::mutex> lock(m);
    CHECK_FALSE(c.wait_for(lock, 1ms, [] { return false; }));
    CHECK(c.wait_until(lock, gs::clock::now(), [] { return true; }));
}

GO_TEST("waitgroup, semaphore, once")
{
    gs::waitgroup wg;
    std::atomic<int> n{0};
    for (int i = 0; i < 20; i++)
        wg.go([&n](std::unique_ptr<int> p) { n += *p; }, std::make_unique<int>(1));
    wg.wait();
    CHECK(n == 20);
    for (int i = 0; i < 20; i++) { // what it was given is destroyed before done()
        const int before = Counted::alive;
        wg.go([c = Counted(1)](const Counted &) { gs::this_goroutine::yield(); }, Counted(2));
        wg.wait();
        n += Counted::alive - before;
    }
    CHECK(n == 20);
    CHECK(code_of([&] { wg.done(); }) == std::errc::invalid_argument);
    wg.add(1);
    CHECK_FALSE(wg.wait_for(1ms));
    CHECK_FALSE(wg.wait_until(std::chrono::system_clock::now()));
    wg.done();
    CHECK(wg.wait_for(1ms));

    gs::semaphore s(2);
    s.acquire(2);
    CHECK_FALSE(s.try_acquire());
    CHECK_FALSE(s.try_acquire_for(1ms));
    s.release();
    CHECK(s.try_acquire_until(gs::clock::now() + 1s));
    CHECK(code_of([&] { s.release(-1); }) == std::errc::invalid_argument);
    CHECK(code_of([] { gs::semaphore bad(-1); }) == std::errc::invalid_argument);

    gs::once o;
    std::atomic<int> calls{0};
    CHECK_THROWS_AS(o.call([] { throw 1; }), int);
    CHECK_FALSE(o.done());
    many_of([&](int) {
        o.call([&](int d) {
            calls += d;
            gs::this_goroutine::yield();
            CHECK(code_of([&] { o.call([] {}); }) == std::errc::resource_deadlock_would_occur);
        }, 1);
        CHECK(calls == 1);
    });
    CHECK(o.done());
}

// ---- Task groups ----

GO_TEST("a task group waits for all, and none is left")
{
    const std::size_t before = gs_num_goroutines();
    std::atomic<int> n{0};
    gs::task_group tg;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 10; i++)
            tg.go([&](int k) {
                go_elsewhere(k);
                if (k < 3)
                    tg.go([&n] { n++; });
                n++;
            }, i);
        tg.wait();
        CHECK(gs_num_goroutines() == before);
    }
    CHECK(n == 260);
    tg.wait();
}

GO_TEST("wait returns when the members have ended, the destructors of their goroutine-local values included")
{
    static std::atomic<int> ended{0};
    gs_key key;
    REQUIRE(gs_key_create(&key, [](void *) {
        gs::no_cancel guard; // the group's destructor cancels a member that hasn't left it yet
        gs::this_goroutine::sleep_for(500us);
        ended++;
    }) == 0);
    for (int round = 1; round <= 3; round++) {
        gs::task_group tg;
        for (int i = 0; i < 5; i++)
            tg.go([&] { gs_setspecific(key, &key); });
        if (round < 3)
            tg.wait();
        else
            while (ended < 11) // the destructor of the group waits, too
                gs::this_goroutine::yield();
        if (round < 3)
            CHECK(ended == 5 * round);
    }
    CHECK(ended == 15);
    gs_key_delete(key);
}

GO_TEST("the first exception cancels the others and is thrown by wait")
{
    gs::task_group tg;
    std::atomic<int> cancelled{0};
    for (int i = 0; i < 5; i++)
        tg.go([&] {
            try {
                gs::this_goroutine::sleep_for(1h);
            } catch (const gs::error &) {
                cancelled++;
                throw;
            }
        });
    tg.go([] {
        gs::this_goroutine::yield();
        throw std::runtime_error("first");
    });
    CHECK_THROWS_WITH_AS(tg.wait(), "first", std::runtime_error);
    CHECK(cancelled == 5);
    CHECK_FALSE(tg.cancelled());
    tg.go([] {}); // it can be used again
    tg.wait();
    tg.go([] { return std::make_error_code(std::errc::io_error); });
    try {
        tg.wait();
        FAIL("no error");
    } catch (const std::system_error &e) {
        CHECK(e.code() == std::errc::io_error);
    }
}

GO_TEST("a task group that is left by an exception leaves no goroutine behind")
{
    const std::size_t before = gs_num_goroutines();
    bool ended = false;
    try {
        gs::task_group tg;
        tg.go([&] {
            struct Last {
                bool *b;
                ~Last() { *b = true; }
            } last{&ended};
            gs::this_goroutine::sleep_for(1h);
        });
        gs::this_goroutine::yield();
        throw 1;
    } catch (int) {
        CHECK(gs_num_goroutines() == before);
    }
    CHECK(ended);
}

GO_TEST("cancelling the waiting goroutine cancels the group")
{
    const std::size_t before = gs_num_goroutines();
    auto parent = gs::go([] {
        gs::task_group tg;
        for (int i = 0; i < 3; i++)
            tg.go([] { gs::this_goroutine::sleep_for(1h); });
        CHECK(code_of([&] { tg.wait(); }) == std::errc::operation_canceled);
        CHECK(gs_num_goroutines() <= 3);
    });
    gs::this_goroutine::yield();
    parent.cancel();
    parent.get();
    CHECK(gs_num_goroutines() == before);
    gs::task_group tg;
    tg.go([&] { CHECK(code_of([&] { tg.wait(); }) == std::errc::resource_deadlock_would_occur); });
    tg.wait();
    tg.cancel();
    bool was_cancelled = false;
    tg.go([&] { was_cancelled = gs::this_goroutine::cancelled() || code_of([] { gs::this_goroutine::sleep_for(1h); }); });
    tg.wait();
    CHECK(was_cancelled);
}

// ---- Time ----

TEST_CASE("lengths of time are rounded up and don't overflow")
{
    using gs::detail::ns_of;
    CHECK(ns_of(3s) == 3000000000);
    CHECK(ns_of(-3s) == -3000000000);
    CHECK(ns_of(std::chrono::hours::max()) == std::numeric_limits<std::int64_t>::max());
    CHECK(ns_of(std::chrono::hours::min()) < -9000000000000000000);
    CHECK(ns_of(std::chrono::duration<double>(0.5)) == 500000000);
    CHECK(ns_of(std::chrono::duration<double>(1e30)) == std::numeric_limits<std::int64_t>::max());
    CHECK(ns_of(std::chrono::duration<double>(-1e30)) < 0);
    CHECK(ns_of(std::chrono::duration<double>(std::nan(""))) == 0);
    CHECK(ns_of(std::chrono::duration<int, std::ratio<1, 3>>(1)) == 333333334);
    CHECK(ns_of(std::chrono::duration<long, std::pico>(1001)) == 2);
    CHECK(gs::deadline(gs::time_point::min()).native() == 1);
    CHECK(gs::deadline(std::chrono::system_clock::time_point::min()).native() == 1);
    CHECK(gs::deadline(std::chrono::system_clock::time_point::max()).native() > gs::deadline(1h).native());
    // Neither does the nanosecond count of a clock that ticks in hours.
    using hours_of_system = std::chrono::time_point<std::chrono::system_clock, std::chrono::hours>;
    CHECK(gs::deadline(hours_of_system(std::chrono::hours(24L * 365 * 500))).native() > gs::deadline(1h).native());
    CHECK(gs::deadline(hours_of_system(std::chrono::hours(-24L * 365 * 500))).native() == 1);
}

GO_TEST("condition_variable_any waits with a limit and a predicate")
{
    gs::shared_mutex m;
    gs::condition_variable_any changed;
    bool is_true = false;
    std::shared_lock<gs::shared_mutex> lock(m);
    CHECK(changed.wait_for(lock, 1ms) == std::cv_status::timeout);
    CHECK_FALSE(changed.wait_for(lock, 1ms, [&] { return is_true; }));
    CHECK_FALSE(changed.wait_until(lock, std::chrono::system_clock::now() - 1h, [&] { return is_true; }));
    auto setter = gs::go([&] {
        std::lock_guard<gs::shared_mutex> guard(m);
        is_true = true;
        changed.notify_all();
    });
    // A length of time to which now can't be added is as long as there is.
    CHECK(changed.wait_for(lock, std::chrono::hours::max(), [&] { return is_true; }));
    CHECK(changed.wait_until(lock, std::chrono::steady_clock::time_point::max(), [&] { return is_true; }));
    CHECK(lock.owns_lock());
    lock.unlock();
    setter.get();
}

GO_TEST("condition_variable_any may be destroyed once all waiters are notified")
{
    for (int round = 0; round < 300; round++) {
        gs::mutex m;
        bool is_true = false;
        int waiting = 0;
        alignas(gs::condition_variable_any) unsigned char room[sizeof(gs::condition_variable_any)];
        auto *changed = ::new (static_cast<void *>(room)) gs::condition_variable_any;
        std::vector<gs::goroutine<void>> waiters;
        for (int i = 0; i < 3; i++)
            waiters.push_back(gs::go([&, i] {
                std::unique_lock<gs::mutex> lock(m);
                waiting++;
                while (!is_true)
                    if (i < 2)
                        changed->wait(lock);
                    else
                        (void)changed->wait_for(lock, 1min);
            }));
        for (bool all = false; !all;) {
            go_elsewhere(round);
            std::lock_guard<gs::mutex> guard(m);
            all = waiting == 3;
        }
        {
            std::lock_guard<gs::mutex> guard(m);
            is_true = true;
            changed->notify_all();
        }
        changed->~condition_variable_any();
        std::memset(room, 0x55, sizeof room);
        for (auto &g : waiters)
            if (!g.join_for(1min)) {
                std::fputs("a waiter of a condition variable that is gone doesn't return\n", stderr);
                std::abort();
            }
    }
}

/// A lock with a condition variable of its own.
class LockWithWaiters {
    gs::mutex m_;
    gs::condition_variable_any changed_;
    bool locked_ = false;

public:
    bool fails = false;
    void lock()
    {
        std::unique_lock<gs::mutex> guard(m_);
        changed_.wait(guard, [&] { return !locked_; });
        locked_ = true;
    }
    void unlock()
    {
        if (std::exchange(fails, false))
            throw std::runtime_error("can't be unlocked");
        std::lock_guard<gs::mutex> guard(m_);
        locked_ = false;
        changed_.notify_all();
    }
};

GO_TEST("condition_variable_any waits with locks that use one themselves, and that throw")
{
    constexpr int n = 200; // some share what guards their waiters
    LockWithWaiters lock;
    std::vector<gs::condition_variable_any> turns(n + 1);
    int turn = -1;
    gs::task_group tg;
    for (int i = 0; i < n; i++)
        tg.go([&, i] {
            std::lock_guard<LockWithWaiters> guard(lock);
            turns[i].wait(lock, [&] { return turn == i; });
            turn++;
            turns[i + 1].notify_one();
        });
    {
        std::lock_guard<LockWithWaiters> guard(lock);
        turn = 0;
        turns[0].notify_one();
        turns[n].wait(lock, [&] { return turn == n; });
        lock.fails = true;
        CHECK_THROWS_WITH_AS(turns[0].wait(lock), "can't be unlocked", std::runtime_error);
        CHECK(turns[0].wait_for(lock, 1ms) == std::cv_status::timeout);
    }
    tg.wait();
    turns[0].notify_all(); // no goroutine waits
}

GO_TEST("a cancel ends the wait of a condition_variable_any, and a notify goes to who still waits")
{
    gs::mutex m;
    gs::condition_variable_any changed;
    int waiting = 0, woken = 0;
    const auto wait = [&] {
        std::unique_lock<gs::mutex> lock(m);
        waiting++;
        const auto code = code_of([&] { changed.wait(lock); });
        CHECK(lock.owns_lock());
        woken += !code;
        return code;
    };
    auto first = gs::go(wait), second = gs::go(wait), third = gs::go(wait);
    for (bool all = false; !all;) {
        gs::this_goroutine::yield();
        std::lock_guard<gs::mutex> guard(m);
        all = waiting == 3;
    }
    first.cancel();
    CHECK(first.get() == std::errc::operation_canceled);
    changed.notify_one();
    changed.notify_one();
    CHECK_FALSE(second.get());
    CHECK_FALSE(third.get());
    CHECK(woken == 2);
}

/// Its destructor might throw.
struct Noisy {
    int value = 0;
    explicit Noisy(int v = 0) : value(v) {}
    Noisy(const Noisy &) = default;
    Noisy &operator=(const Noisy &) = default;
    ~Noisy() noexcept(false) { value = -1; }
};

GO_TEST("values and functions with destructors that are not noexcept")
{
    const Noisy one(1);
    gs::chan<Noisy> c(3);
    int sum = 0;
    const auto add = [&sum, one](const Noisy &v) { sum += one.value * v.value; };
    c.send(one);
    (void)c.try_send(Noisy(2));
    add(*c.recv());
    for (int i = 0; i < 2; i++)
        gs::select(gs::recv(c, add), gs::send(c, Noisy(10), [one] {}));
    while (auto v = c.try_recv())
        add(*v);
    CHECK((sum == 3 || sum == 13 || sum == 23));
    sum = 0;
    gs::selector s;
    s.send(c, Noisy(5), [one] {});
    s.send(gs::chan<Noisy>(), one, [one] {}); // never sent
    s.recv(c, add);
    s.select();
    s.select();
    CHECK(sum == 5);
    s.clear();
    std::atomic<int> calls{0};
    gs::chan<int> fired;
    gs::timer t(1us, [&, one] { fired.send(one.value); });
    CHECK(*fired.recv() == 1);
    CHECK(gs::go([one](Noisy v) { return Noisy(one.value + v.value); }, one).get().value == 2);
    gs::waitgroup wg;
    gs::task_group tg;
    wg.go([&, one] { calls++; });
    tg.go([&](const Noisy &) { calls++; }, one);
    wg.wait();
    tg.wait();
    CHECK(calls == 2);
}

GO_TEST("after, ticker, timer, sleep")
{
    const auto start = gs::clock::now();
    CHECK(*gs::after(2ms).recv() >= start + 2ms);
    gs::this_goroutine::sleep_for(1ms);
    gs::this_goroutine::sleep_until(std::chrono::system_clock::now() + 1ms);
    CHECK(gs::clock::now() >= start + 4ms);
    gs::ticker t(1ms);
    gs::time_point last{};
    for (int i = 0; i < 3; i++) {
        const auto at = *t.recv();
        CHECK(at > last);
        last = at;
    }
    t.stop();
    gs::ticker u(1h);
    u = std::move(t);
    gs::ticker v(1ms), &same = v;
    v = std::move(same);
    for (int i = 0; i < 3; i++)
        CHECK(v.recv().has_value());
    CHECK(code_of([] { gs::ticker bad(0s); }) == std::errc::invalid_argument);

    gs::chan<int> fired(4);
    gs::timer once(0s, [fired, c = Counted(1)] { fired.send(1); });
    CHECK(*fired.recv() == 1);
    CHECK_FALSE(once.stop());
    CHECK_FALSE(once.reset(1h));
    CHECK(once.reset(0s));
    CHECK(*fired.recv() == 1);
    {
        gs::timer never(1h, [fired] { fired.send(2); });
        CHECK(never.stop());
    }
    {
        gs::timer waited(0s, [fired] {
            gs::this_goroutine::sleep_for(1ms);
            fired.send(3);
        });
        gs::this_goroutine::sleep_for(500us);
    } // it has returned, or will never be called
    CHECK(fired.size() <= 1);
}

// ---- TCP ----

static void echo(gs::tcp_stream s)
{
    char buffer[4096];
    while (const std::size_t n = s.read_some(buffer, sizeof buffer))
        s.write(buffer, n);
}

GO_TEST("tcp: streams, deadlines, ends")
{
    auto listener = gs::tcp_listener::listen("127.0.0.1", 0);
    const auto port = listener.port();
    auto server = gs::go([&] {
        gs::task_group tg;
        try {
            for (;;)
                tg.go(echo, listener.accept());
        } catch (const gs::error &e) {
            CHECK(e.code() == std::errc::operation_canceled);
        }
        tg.wait();
    });
    auto s = gs::tcp_stream::connect("127.0.0.1", port, 10s);
    CHECK(s.remote_port() == port);
    const std::string big(300000, 'y');
    auto writer = gs::go([&] {
        s.write(big);
        s.shutdown_write();
    });
    std::string got(big.size() + 1, '\0');
    CHECK(s.read(got.data(), got.size()) == big.size());
    got.pop_back();
    CHECK(got == big);
    writer.get();
    s = gs::tcp_stream::connect("localhost", port);
    s.set_read_deadline(1ms);
    char c;
    CHECK(code_of([&] { (void)s.read_some(&c, 1); }) == std::errc::timed_out);
    s.set_deadline(gs::deadline::forever());
    s.write("z");
    CHECK(s.read_some(&c, 1) == 1);
    auto reader = gs::go([&] { return s.read_some(&c, 1); });
    s.shutdown();
    CHECK(reader.get() == 0);
    CHECK(code_of([&] { s.write("more"); }) == std::errc::broken_pipe);
    listener.stop();
    server.get();
    listener.close();
    CHECK(code_of([&] { (void)listener.accept(); }) == std::errc::bad_file_descriptor);
    CHECK(code_of([&] { (void)gs::tcp_stream::connect("127.0.0.1", port); }) == std::errc::connection_refused);
    CHECK(code_of([] { (void)gs::tcp_stream().read_some(nullptr, 1); }));
    CHECK(code_of([] { (void)gs::tcp_listener().port(); }) == std::errc::bad_file_descriptor);
}

GO_TEST("tcp: an iostream")
{
    auto listener = gs::tcp_listener::listen("", 0);
    auto server = gs::go([&] {
        gs::tcp_iostream io(listener.accept());
        int a = 0, b = 0;
        while (io >> a >> b)
            io << a + b << '\n'; // goes out before the next read waits
        CHECK(io.eof());
        CHECK_FALSE(io.error());
        io.clear();
        io << std::string(20000, 'e');
    });
    {
        gs::tcp_iostream io(gs::tcp_stream::connect("localhost", listener.port()));
        for (int i = 0; i < 10; i++) {
            io << i << ' ' << 2 * i << '\n';
            int sum = -1;
            io >> sum;
            CHECK(sum == 3 * i);
        }
        io.flush();
        io.socket().set_read_deadline(1ms);
        std::string line;
        std::getline(io, line); // the newline of the last answer
        CHECK_FALSE(std::getline(io, line));
        CHECK(io.error() == std::errc::timed_out);
        io.clear();
        io.socket().set_read_deadline(10s);
        io.socket().shutdown_write();
        io >> line;
        CHECK(line.size() == 20000);
    }
    server.get();
    gs::tcp_iostream closed{gs::tcp_stream()};
    closed << "x" << std::flush;
    CHECK(closed.bad());
    CHECK(closed.error());
}

GO_TEST("selector: cases whose number is known only at run time")
{
    std::vector<gs::chan<int>> all;
    gs::selector s;
    int sum = 0, closed = 0;
    for (int i = 0; i < 50; i++) {
        gs::chan<int> c(i % 3);
        all.push_back(c);
        CHECK(s.recv(c, [&](gs::received<int> v) { v ? sum += *v : closed++; }) == static_cast<std::size_t>(i));
        gs::go(gs::detached, [=] {
            for (int k = 1; k <= 10; k++)
                c.send(k);
            c.close();
        });
    }
    int turns = 0;
    for (; s.active() > 0; turns++)
        CHECK(s.select() < 50);
    CHECK(sum == 50 * 55);
    CHECK(closed == 50);
    CHECK(turns == 550);
    CHECK(s.size() == 50);
    CHECK(code_of([&] { s.select(); }) == std::errc::invalid_argument);
    CHECK(code_of([] { gs::selector().try_select(); }) == std::errc::invalid_argument);
}

GO_TEST("selector: sends are done once, values that aren't sent stay, limits in time")
{
    const int alive = Counted::alive;
    {
        gs::chan<Counted> c, d(1);
        gs::chan<std::unique_ptr<int>> p(1);
        gs::selector s;
        int sent = 0;
        const auto first = s.send(c, Counted(1), [&] { sent++; });
        CHECK_FALSE(s.try_select());
        CHECK_FALSE(s.select_for(1ms));
        CHECK_FALSE(s.select_until(gs::clock::now() + 1ms));
        const auto second = s.send(d, Counted(2), [&] { sent++; });
        CHECK(s.select() == second);
        CHECK(d.recv()->value == 2);
        CHECK_FALSE(s.enabled(second));
        s.enable(second); // it is done, and stays so
        CHECK(s.active() == 1);
        auto receiver = gs::go([=] { return c.recv()->value; });
        CHECK(s.select() == first);
        CHECK(receiver.get() == 1);
        CHECK(sent == 2);
        s.send(p, std::make_unique<int>(7), [&] { sent++; });
        CHECK(s.try_select() == std::optional<std::size_t>(2));
        CHECK(**p.recv() == 7);
        s.send(c, Counted(3), [] {}); // goes with the selector
    }
    CHECK(Counted::alive == alive);
}

GO_TEST("selector: closed channels, exceptions, disabled cases, functions that add cases")
{
    gs::chan<int> c, many(100);
    c.close();
    gs::selector s;
    s.recv(c, [](int) {}); // can't be told of the end
    CHECK(code_of([&] { s.select(); }) == std::errc::broken_pipe);
    CHECK(s.active() == 0);
    s.send(c, 1, [] {});
    CHECK(code_of([&] { s.select(); }) == std::errc::broken_pipe);
    CHECK(s.active() == 0);
    s.clear();
    const auto fails = s.recv(many, [](int v) { throw v; });
    many.send(5);
    CHECK_THROWS_AS(s.select(), int);
    many.send(6);
    s.disable(fails);
    int got = 0, added = 0;
    s.recv(many, [&](int v) {
        got += v;
        for (int i = 0; i < 100; i++, added++)
            s.recv(gs::chan<int>(nullptr), [](int) {});
    });
    CHECK(s.select() == 1);
    CHECK(got == 6);
    CHECK(s.size() == 102);
    CHECK_FALSE(s.try_select()); // those of nil channels are never ready
    CHECK_THROWS_AS(s.disable(102), std::out_of_range);
    gs::go([&] {
        auto waits = gs::go([] {
            gs::chan<int> never;
            gs::selector t;
            t.recv(never, [](int) {});
            t.select();
        });
        gs::this_goroutine::sleep_for(1ms);
        waits.cancel();
        CHECK(code_of([&] { waits.get(); }) == std::errc::operation_canceled);
    }).get();
}

GO_TEST("UDP: both directions, addresses, what doesn't fit, deadlines")
{
    auto server = gs::udp_socket::bind("127.0.0.1", 0);
    auto echo = gs::go([&] {
        char room[64];
        for (;;) {
            const auto d = server.receive_from(room, sizeof room);
            if (d.size == 0)
                return d.from;
            server.send_to({room, d.size}, d.from);
        }
    });
    auto client = gs::udp_socket::connect("127.0.0.1", server.local_port(), 10s);
    client.set_deadline(60s);
    char room[100];
    for (int i = 0; i < 100; i++) {
        const auto text = "datagram " + std::to_string(i);
        client.send(text);
        CHECK(std::string(room, client.receive(room, sizeof room)) == text);
    }
    CHECK(client.remote_port() == server.local_port());
    client.send("");
    const gs::endpoint from = echo.get();
    CHECK(from.host() == "127.0.0.1");
    CHECK(from.port() == client.local_port());
    CHECK(from == gs::endpoint::resolve("127.0.0.1", client.local_port()));
    CHECK(from != gs::endpoint::resolve("127.0.0.1", 1));

    server.send_to(std::string(80, 'x'), from);
    const auto cut = client.receive_from(room, 10);
    CHECK(cut.size == 10);
    CHECK(cut.truncated);
    CHECK(cut.from.port() == server.local_port());
    client.set_read_deadline(1ms);
    CHECK(code_of([&] { client.receive(room, 1); }) == std::errc::timed_out);
    CHECK(code_of([&] { server.send_to(std::string(100000, 'x'), from); }) == std::errc::message_size);
    CHECK(code_of([&] { server.send_to("x", gs::endpoint()); }) == std::errc::destination_address_required);
    CHECK(code_of([&] { (void)gs::udp_socket::bind("127.0.0.1", server.local_port()); }) == std::errc::address_in_use);
    CHECK(code_of([&] { gs::udp_socket().send("x"); }));
    CHECK(code_of([] { (void)gs::endpoint::resolve("256.256.256.256.invalid.", 1); }));
    server.close();
    CHECK_FALSE(server.is_open());
}

GO_TEST("UDP: a socket of all addresses sends to both families")
{
    auto all = gs::udp_socket::bind("", 0);
    auto one = gs::udp_socket::bind("127.0.0.1", 0);
    one.set_read_deadline(60s);
    all.set_read_deadline(60s);
    all.send_to("to one", gs::endpoint::resolve("127.0.0.1", one.local_port()));
    char room[100];
    auto d = one.receive_from(room, sizeof room);
    CHECK(std::string(room, d.size) == "to one");
    one.send_to("back", d.from);
    d = all.receive_from(room, sizeof room);
    CHECK(std::string(room, d.size) == "back");
    CHECK(d.from == gs::endpoint::resolve("127.0.0.1", one.local_port()));
    CHECK(gs::endpoint().host().empty());
    CHECK_FALSE(gs::endpoint());
    CHECK_FALSE(gs::endpoint(nullptr, 0));
    sockaddr_in padded{};
    padded.sin_family = AF_INET;
    padded.sin_port = htons(1);
    padded.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::memset(padded.sin_zero, 1, sizeof padded.sin_zero);
    CHECK(gs::endpoint(reinterpret_cast<sockaddr *>(&padded), sizeof padded) == gs::endpoint::resolve("127.0.0.1", 1));
    CHECK(gs::endpoint::resolve("::1", 53).host() == "::1");
}

GO_TEST("Unix sockets: a path, an abstract name, a pair, an iostream")
{
    const auto number = std::to_string(gs::this_goroutine::id()) + "-" + std::to_string(::getpid());
    for (const auto &name : {"@gosched-test-" + number, "/tmp/gosched-test-" + number}) {
        auto listener = gs::unix_listener::listen(name);
        CHECK(code_of([&] { (void)gs::unix_listener::listen(name); }) == std::errc::address_in_use);
        auto server = gs::go([&] {
            gs::unix_iostream io(listener.accept());
            for (int a, b; io >> a >> b;)
                io << a + b << '\n';
        });
        {
            gs::unix_iostream io(gs::unix_stream::connect(name, 10s));
            int sum = 0;
            io << "40 2\n";
            io >> sum;
            CHECK(sum == 42);
        }
        server.get();
        auto waits = gs::go([&] { return code_of([&] { (void)listener.accept(); }); });
        gs::this_goroutine::sleep_for(1ms);
        waits.cancel();
        CHECK(waits.get() == std::errc::operation_canceled);
        CHECK(code_of([&] { (void)listener.accept(1ms); }) == std::errc::timed_out);
        listener.close();
        if (name[0] == '@') {
            CHECK(code_of([&] { (void)gs::unix_stream::connect(name); }) == std::errc::connection_refused);
        } else {
            CHECK(::unlink(name.c_str()) == 0);
            CHECK(code_of([&] { (void)gs::unix_stream::connect(name); }) == std::errc::no_such_file_or_directory);
        }
    }
    CHECK(code_of([] { (void)gs::unix_listener::listen("/" + std::string(200, 'x')); }) == std::errc::filename_too_long);
    auto [a, b] = gs::unix_stream::pair();
    auto reader = gs::go([&b = b] {
        std::string text(1000000, ' ');
        return b.read(text.data(), text.size());
    });
    a.write(std::string(1000000, 'x'));
    CHECK(reader.get() == 1000000);
    a.set_read_deadline(1ms);
    char byte;
    CHECK(code_of([&a = a, &byte] { a.read_some(&byte, 1); }) == std::errc::timed_out);
    b.close();
    CHECK(code_of([&a = a] { a.write("x"); }) == std::errc::broken_pipe);
}
