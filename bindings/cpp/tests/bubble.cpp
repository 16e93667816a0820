// gs::test: runs by seeds.
#include "test.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

using namespace std::chrono_literals;
namespace gt = gs::test;

#if defined(__SANITIZE_ADDRESS__)
#define HAS_LEAK_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_LEAK_SANITIZER 1
#endif
#endif

#ifdef HAS_LEAK_SANITIZER
#include <sanitizer/lsan_interface.h>

/// What goroutines have that are given up when a run fails is never destroyed, and no leak.
struct given_up {
    given_up() { __lsan_disable(); }
    ~given_up() { __lsan_enable(); }
};
#undef TEST_CASE
#define TEST_CASE(name) DOCTEST_TEST_CASE_FIXTURE(given_up, name)
#else
struct given_up {
    given_up() {}
};
#endif

static gt::options quiet()
{
    gt::options o;
    o.quiet = true;
    return o;
}

/// What f writes to standard error.
template <class F>
static std::string report_of(F &&f)
{
    std::string path = "/tmp/gosched-report-XXXXXX";
    const int fd = ::mkstemp(path.data()), kept = ::dup(2);
    REQUIRE(fd >= 0);
    REQUIRE(kept >= 0);
    ::dup2(fd, 2);
    f();
    ::dup2(kept, 2);
    ::close(kept);
    ::close(fd);
    std::ifstream in(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    ::unlink(path.c_str());
    return text;
}

static bool has(const std::string &text, const std::string &part)
{
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
    return text.find(part) != std::string::npos;
}

/// The order in which three goroutines have come to their two steps.
static std::string order_of(std::uint64_t seed, gt::schedule schedule = gt::schedule::random)
{
    gt::options o = quiet();
    o.seed = seed;
    o.schedule = schedule;
    std::string order;
    const auto r = gt::run(o, [&] {
        for (const char c : {'a', 'b', 'c'})
            gs::go(gs::detached, [&order, c] {
                for (int i = 0; i < 2; i++) {
                    order += c;
                    gs::this_goroutine::yield();
                }
            });
    });
    CHECK(r == gt::outcome::ok);
    return order;
}

/// Waits on a flag that is read before the lock is taken.
static void lose_a_wake_up()
{
    struct shared {
        gs::mutex mutex;
        gs::condition_variable changed;
        bool ready = false;
    };
    const auto s = std::make_shared<shared>();
    gs::go(gs::detached, [s] {
        if (!s->ready) { // the bug
            std::unique_lock<gs::mutex> lock(s->mutex);
            s->changed.wait(lock);
        }
    });
    gs::go(gs::detached, [s] {
        const std::lock_guard<gs::mutex> lock(s->mutex);
        s->ready = true;
        s->changed.notify_one();
    });
}

TEST_CASE("a run ends when its goroutines have ended")
{
    int ended = 0;
    const gt::result r = gt::run([&] {
        for (int i = 0; i < 5; i++)
            gs::go(gs::detached, [&] {
                gs::this_goroutine::sleep_for(1h);
                ended++;
            });
    });
    CHECK(static_cast<bool>(r));
    CHECK(r == gt::outcome::ok);
    CHECK(r.outcome() == gt::outcome::ok);
    CHECK(r.good_runs() == 1);
    CHECK(ended == 5);
}

TEST_CASE("the seed decides the order, and is told")
{
    std::set<std::string> orders;
    for (std::uint64_t seed = 1; seed <= 50; seed++) {
        CHECK(order_of(seed) == order_of(seed));
        CHECK(order_of(seed, gt::schedule::pct) == order_of(seed, gt::schedule::pct));
        orders.insert(order_of(seed));
    }
    CHECK(orders.size() > 10);
    CHECK(order_of(1, gt::schedule::round_robin) == order_of(2, gt::schedule::round_robin));

    CHECK(gt::seed() == 0);
    std::uint64_t seen = 0;
    gt::options o;
    o.seed = 77;
    CHECK(gt::run(o, [&] { seen = gt::seed(); }));
    CHECK(seen == 77);
}

TEST_CASE("the clock is the bubble's")
{
    gs_deadline begin = 0, end = 0;
    CHECK(gt::run([&] {
        begin = gs_now();
        gs::chan<int> never;
        CHECK(never.recv_for(24h).status() == gs::status::timed_out);
        gs::mutex m;
        gs::condition_variable c;
        std::unique_lock<gs::mutex> lock(m);
        CHECK_FALSE(c.wait_for(lock, 1h, [] { return false; }));
        end = gs_now();
    }));
    CHECK(begin == 1'000'000'000);
    CHECK(end - begin == std::chrono::nanoseconds(25h).count());
}

TEST_CASE("times are of the bubble's clock")
{
    CHECK(gt::run([&] {
        const gs::time_point begin = gs::clock::now();
        CHECK(begin.time_since_epoch() == 1s);
        gs::chan<int> never;
        CHECK(never.recv_until(begin + 24h).status() == gs::status::timed_out);
        CHECK(gs::clock::now() - begin == 24h);
        CHECK(gs::after(1h).recv().value() - begin == 25h);
        gs::ticker t(1min);
        CHECK(t.recv().value() - begin == 25h + 1min);
        // A time of another clock is as far away as that clock says.
        const auto before = gs::clock::now();
        CHECK(never.recv_until(std::chrono::steady_clock::now() + 24h).status() == gs::status::timed_out);
        CHECK(never.recv_until(std::chrono::system_clock::now() + 24h).status() == gs::status::timed_out);
        const auto took = gs::clock::now() - before;
        CHECK(took > 47h);
        CHECK(took <= 48h);
    }));
    // Outside it is the system's.
    const auto steady = std::chrono::steady_clock::now().time_since_epoch(), own = gs::clock::now().time_since_epoch();
    CHECK(own >= steady);
    CHECK(own - steady < 1h);
}

static void wait_for_another(gs::chan<int> c)
{
    c.recv();
}

TEST_CASE("reports name the functions of the program, and none of the headers")
{
    const std::string text = report_of([] {
        CHECK(gt::run([] {
                  gs::chan<int> c;
                  const std::function<void(gs::chan<int>)> f = wait_for_another;
                  auto g = gs::go(std::bind(f, c));
                  g.get();
              }) == gt::outcome::deadlock);
    });
    has(text, "wait_for_another");
    has(text, "gs_chan_recv");
    INFO(text);
    for (const char *part : {"std::", "__invoke", "gs::v1::", "/c++/"}) {
        // Types of what is called may be part of a name.
        for (std::size_t at = text.find("    "); at != std::string::npos; at = text.find("\n    ", at + 1)) {
            const std::string line = text.substr(at, text.find('\n', at + 1) - at);
            if (line.find("wait_for_another") == std::string::npos)
                CHECK(line.find(part) == std::string::npos);
        }
    }
}

TEST_CASE("each outcome")
{
    CHECK(gt::run(quiet(), [] { gs::chan<int>().recv(); }) == gt::outcome::deadlock);
    gt::options o = quiet();
    o.max_steps = 1000;
    CHECK(gt::run(o, [] {
              for (;;)
                  gs::this_goroutine::yield();
          }) == gt::outcome::too_long);
    CHECK(gt::run(quiet(), [] { gt::fail("it must"); }) == gt::outcome::failed);
    gs::chan<int> outside;
    auto waits = gs::go([=] { outside.recv(); });
    gs_g_info info = {};
    do
        CHECK(gs_g_info_read(waits.native_handle(), &info, sizeof info) == 0);
    while (info.state != GS_G_WAITING);
    o.max_steps = 10000;
    CHECK(gt::run(o, [&] {
              outside.send(1);
              for (;;)
                  gs::this_goroutine::yield();
          }) == gt::outcome::disturbed);
    gs::run([&] { waits.get(); });
}

TEST_CASE("results as text")
{
    std::ostringstream to;
    to << gt::outcome::too_long << ", " << gt::result(gt::outcome::deadlock, 1) << ", " << gt::result(gt::outcome::ok, 20);
    CHECK(to.str() == "too long, deadlock after 1 good run, ok after 20 good runs");
    CHECK(std::string(gt::to_string(gt::outcome::failed)) == "failed");
    CHECK(std::string(gt::to_string(gt::outcome::disturbed)) == "disturbed");
    CHECK(gt::result(gt::outcome::ok, 1) == gt::result(gt::outcome::ok, 1));
    CHECK(gt::result(gt::outcome::ok, 1) != gt::result(gt::outcome::ok, 2));
    CHECK(gt::result(gt::outcome::failed, 1) != gt::outcome::ok);
}

TEST_CASE("explore finds a lost wake-up, and its report's string gives it again")
{
    gt::result r{gt::outcome::ok, 0};
    const std::string text = report_of([&] { r = gt::explore(1000, lose_a_wake_up); });
    CHECK(r == gt::outcome::deadlock);
    CHECK(r.good_runs() < 1000);
    has(text, "seed " + std::to_string(r.good_runs() + 1) + ", run " + std::to_string(r.good_runs() + 1) + " of 1000");
    has(text, "waits for a condition");
    has(text, "has 1 choice");
    const std::string before = "GOSCHED_TEST=replay=";
    REQUIRE(has(text, before));
    gt::options o = quiet();
    const std::size_t at = text.find(before) + before.size();
    o.replay = text.substr(at, text.find('\n', at) - at);
    for (int i = 0; i < 20; i++)
        CHECK(gt::run(o, lose_a_wake_up) == gt::outcome::deadlock);
    o.replay = "";
    CHECK(gt::run(o, lose_a_wake_up));
    o.replay = std::nullopt;
    o.schedule = gt::schedule::pct;
    o.depth = 2;
    o.seed = 5;
    CHECK(gt::explore(o, 1000, lose_a_wake_up) == gt::outcome::deadlock);
}

TEST_CASE("explore counts the good runs")
{
    int calls = 0;
    const auto all = gt::explore(200, [&] { calls++; });
    CHECK(static_cast<bool>(all));
    CHECK(all.good_runs() == 200);
    CHECK(calls == 200);
    CHECK(gt::explore(0, [] {}).good_runs() == 0);

    gt::options o = quiet();
    o.seed = 10;
    const auto some = gt::explore(o, 100, [] {
        if (gt::seed() == 17)
            gt::fail(std::string("seventeen"));
    });
    CHECK(some == gt::outcome::failed);
    CHECK(some.good_runs() == 7);
}

TEST_CASE("gs::test::fail ends the run at once, and only there")
{
    gt::fail("outside of a run");
    bool after = false;
    const std::string text = report_of([&] {
        CHECK(gt::run([&] {
                  gs::go([&] {
                      gt::fail(std::string("as it ") + "must");
                      after = true;
                  }).get();
                  after = true;
              }) == gt::outcome::failed);
    });
    has(text, "as it must");
    CHECK_FALSE(after);
}

TEST_CASE("a check sees each step")
{
    int a = 100, b = 0;
    gt::options o = quiet();
    const auto move = [&] {
        a = 100;
        b = 0;
        gs::go(gs::detached, [&] {
            a -= 10;
            gs::this_goroutine::yield();
            b += 10;
        });
    };
    CHECK(gt::run(o, move));
    o.check = [&] { return a + b <= 100; };
    CHECK(gt::run(o, move));
    o.check = [&] { return a + b == 100; };
    CHECK(gt::run(o, move) == gt::outcome::failed);
    CHECK(gt::explore(o, 10, move) == gt::outcome::failed);
    o.check = [&]() -> bool { throw std::runtime_error("in the check"); };
    CHECK(gt::run(o, move) == gt::outcome::failed);
}

TEST_CASE("options that aren't valid")
{
    const auto code = [](const gt::options &o) { return code_of([&] { (void)gt::run(o, [] { FAIL("ran"); }); }); };
    gt::options o = quiet();
    o.schedule = static_cast<gt::schedule>(99);
    CHECK(code(o) == std::errc::invalid_argument);
    CHECK(code_of([&] { (void)gt::explore(o, 10, [] {}); }) == std::errc::invalid_argument);
    o = quiet();
    o.replay = "no schedule";
    CHECK(code(o) == std::errc::invalid_argument);
    o = quiet();
    o.log = -2;
    CHECK(code(o) == std::errc::invalid_argument);
    o = quiet();
    o.network.delay = -1ns;
    CHECK(code(o) == std::errc::invalid_argument);
    o = quiet();
    o.network.jitter = -1ns;
    CHECK(code(o) == std::errc::invalid_argument);
    for (auto chance : {&gt::network::loss, &gt::network::duplicate, &gt::network::cut, &gt::network::reset,
                        &gt::network::refuse, &gt::network::short_io}) {
        o = quiet();
        o.network.*chance = 1001;
        CHECK(code(o) == std::errc::invalid_argument);
    }
    for (auto chance : {&gt::options::cancel, &gt::options::no_memory}) {
        o = quiet();
        o.*chance = 1001;
        CHECK(code(o) == std::errc::invalid_argument);
    }
    CHECK(code_of([] { (void)gt::explore(~std::uint64_t{0}, [] {}); }) == std::errc::invalid_argument);
}

TEST_CASE("strict runs fail if something else has a say, and faults come by options")
{
    gt::options o = quiet();
    o.strict = true;
    CHECK(gt::explore(o, 10, [] { gs::this_goroutine::sleep_for(1h); }));
    CHECK(gt::run(o, [] { std::random_device{}(); (void)std::chrono::system_clock::now(); }) == gt::outcome::disturbed);
    int runs = 0;
    CHECK(gt::run(o, [&] { gs::this_goroutine::sleep_for(runs++ * 1ms); }) == gt::outcome::disturbed);
    o = quiet();
    o.cancel = 1000;
    bool was_cancelled = false;
    (void)gt::run(o, [&] {
        auto g = gs::go([&] { was_cancelled = code_of([] { gs::this_goroutine::sleep_for(1h); }) == std::errc::operation_canceled; });
        (void)code_of([&] { g.join(); });
    });
    CHECK(was_cancelled);
    o = quiet();
    o.no_memory = 1000;
    bool had_memory = true;
    CHECK(gt::run(o, [&] { had_memory = gs_chan_make(8, 1) != nullptr; }));
    CHECK(!had_memory);
}

GO_TEST("a goroutine can't make runs")
{
    CHECK(code_of([] { (void)gt::run([] {}); }) == std::errc::device_or_resource_busy);
    CHECK(code_of([] { (void)gt::explore(1, [] {}); }) == std::errc::device_or_resource_busy);
}

TEST_CASE("runs aren't nested")
{
    std::error_code code;
    CHECK(gt::run([&] { code = code_of([] { (void)gt::run([] {}); }); }));
    CHECK(code == std::errc::device_or_resource_busy);
}

TEST_CASE("exceptions that nobody catches fail the run")
{
    struct odd {
    };
    const auto fails = [](const char *why, auto &&f) {
        const std::string text = report_of([&] { CHECK(gt::run(f) == gt::outcome::failed); });
        has(text, why);
        const auto r = gt::explore(quiet(), 10, f);
        CHECK(r == gt::outcome::failed);
        CHECK(r.good_runs() == 0);
    };
    fails("from the callable", [] { throw std::runtime_error("from the callable"); });
    fails("of the type int", [] { throw 7; });
    fails("odd", [] { throw odd(); });
    fails("detached", [] {
        gs::go(gs::detached, [] {
            gs::this_goroutine::yield();
            throw std::runtime_error("detached");
        });
    });
    fails("with a large state", [] {
        gs::go(gs::detached, [text = std::string("with a large state")] { throw std::runtime_error(text); });
    });
    fails("from get()", [] { gs::go([] { throw std::runtime_error("from get()"); }).get(); });
    fails("without a handle", [] {
        (void)gs::go([] { throw std::runtime_error("without a handle"); });
    });
    fails("in a group", [] {
        gs::task_group all;
        all.go([] { throw std::runtime_error("in a group"); });
        all.wait();
    });
    fails("while another", [] {
        try {
            throw std::logic_error("is handled");
        } catch (...) {
            gs::this_goroutine::yield();
            throw std::runtime_error("while another");
        }
    });
    fails("gs::chan::close", [] {
        gs::chan<int> ch;
        ch.close();
        ch.close();
    });
}

TEST_CASE("exceptions that are caught, and cancels, fail nothing")
{
    const auto r = gt::explore(100, [] {
        auto g = gs::go([] { throw std::runtime_error("caught"); });
        CHECK_THROWS_WITH(g.get(), "caught");
        auto waits = gs::go([] { gs::this_goroutine::sleep_for(1h); });
        gs::this_goroutine::yield();
        waits.cancel();
        try {
            throw std::logic_error("handled across a wait");
        } catch (const std::logic_error &e) {
            gs::this_goroutine::sleep_for(1ms);
            CHECK(std::string(e.what()) == "handled across a wait");
        }
    });
    CHECK(r.good_runs() == 100);
}

TEST_CASE("what the callable has made is destroyed when its exception leaves it")
{
    CHECK(gt::run(quiet(), [] {
              const Counted counted;
              throw std::runtime_error("after counted");
          }) == gt::outcome::failed);
    CHECK(Counted::alive == 0);
    const auto before = std::get_terminate();
    CHECK(gt::run(quiet(), [] { throw 1; }) == gt::outcome::failed);
    CHECK((std::get_terminate() == before));
    CHECK(std::uncaught_exceptions() == 0);
    CHECK_FALSE(static_cast<bool>(std::current_exception()));
}

TEST_CASE("runs of several threads at once")
{
    std::vector<std::thread> threads;
    std::atomic<int> good{0};
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&good] {
            const given_up too;
            for (int n = 0; n < 20; n++) {
                if (gt::run([] { gs::go([] { gs::this_goroutine::sleep_for(1s); }).get(); }))
                    good++;
                if (gt::run(quiet(), [] { gs::go(gs::detached, [] { throw 1; }); }) == gt::outcome::failed)
                    good++;
            }
        });
    for (auto &t : threads)
        t.join();
    CHECK(good == 8 * 40);
}

TEST_CASE("the log has the same bytes for the same seed")
{
    const auto log_of = [](std::uint64_t seed) {
        std::string path = "/tmp/gosched-log-XXXXXX";
        gt::options o = quiet();
        o.seed = seed;
        o.log = ::mkstemp(path.data());
        REQUIRE(o.log > 0);
        CHECK(gt::run(o, [] {
            for (int i = 0; i < 3; i++)
                gs::go(gs::detached, gs::this_goroutine::yield);
        }));
        ::close(o.log);
        std::ifstream in(path, std::ios::binary);
        std::string text{std::istreambuf_iterator<char>(in), {}};
        ::unlink(path.c_str());
        return text;
    };
    has(log_of(3), "goroutine 1 spawns goroutine 2");
    CHECK(log_of(3) == log_of(3));
}

TEST_CASE("a network in memory, with faults")
{
    const auto exchange = [] {
        auto listener = gs::tcp_listener::listen("127.0.0.1", 80);
        auto server = gs::go([&] {
            gs::tcp_iostream io(listener.accept());
            for (int a, b; io >> a >> b;)
                io << a + b << '\n';
        });
        {
            gs::tcp_iostream io(gs::tcp_stream::connect("127.0.0.1", 80, 10s));
            int sum = 0;
            io << "40 2\n";
            io >> sum;
            if (sum != 42)
                gt::fail("it can't add: " + std::to_string(sum));
        }
        server.get();
    };
    CHECK(gt::explore(50, exchange));
    gt::options o = quiet();
    o.network.delay = 0ns;
    o.network.short_io = 500;
    o.network.loss = 100;
    o.network.jitter = 5ms;
    CHECK(gt::explore(o, 50, exchange));
    o.network.refuse = 1000;
    CHECK(gt::explore(o, 50, exchange) == gt::outcome::failed);
    o = quiet();
    o.network.delay = 1s;
    CHECK(gt::run(o, [] {
        auto a = gs::udp_socket::bind("127.0.0.1", 9);
        auto b = gs::udp_socket::connect("127.0.0.1", 9);
        const auto begin = gs_now();
        b.send("late");
        char room[10];
        CHECK(a.receive_from(room, sizeof room).size == 4);
        CHECK(gs_now() - begin >= 1'000'000'000);
    }));
}

#if __cplusplus >= 202002L
TEST_CASE("designated options")
{
    CHECK(gt::run({.seed = 3, .quiet = true}, [] {}));
    CHECK(gt::explore({.schedule = gt::schedule::pct, .quiet = true, .network = {.loss = 5}}, 20, [] {}).good_runs() == 20);
}
#endif

#if GS_HPP_COROUTINES
static gs::task<int> twice(int n)
{
    co_await gs::sleep(1h);
    if (n == 13)
        throw std::runtime_error("thirteen");
    co_return 2 * n;
}

TEST_CASE("coroutines in a run")
{
    int got = 0;
    CHECK(gt::explore(20, [&] { got = gs::sync_wait(twice(21)); }));
    CHECK(got == 42);
    CHECK(gt::run(quiet(), [] { gs::sync_wait(twice(13)); }) == gt::outcome::failed);
}
#endif
