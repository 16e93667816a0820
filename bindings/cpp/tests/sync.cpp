// Recursive mutexes, latches, barriers, goroutine-local values.
#include "test.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

using namespace std::chrono_literals;

// ---- Recursive mutexes ----

GO_TEST("recursive_mutex: its owner locks it again, also on another thread; all others wait")
{
    gs::recursive_mutex m;
    int n = 0;
    many_of([&](int i) {
        for (int k = 0; k < 20; k++) {
            std::lock_guard<gs::recursive_mutex> one(m);
            const int was = n;
            go_elsewhere(i + k);
            {
                std::unique_lock<gs::recursive_mutex> two(m, std::try_to_lock);
                CHECK(two);
                go_elsewhere(i + k + 1);
                std::unique_lock<gs::recursive_mutex> three(m, 1ms);
                CHECK(three);
                CHECK(m.try_lock_until(std::chrono::system_clock::now()));
                m.unlock();
            }
            go_elsewhere(i + k + 2);
            n = was + 1; // no other goroutine has been here
        }
    });
    CHECK(n == 600);

    m.lock();
    m.lock();
    m.unlock();
    gs::go([&] { // it is still locked
        CHECK_FALSE(m.try_lock());
        CHECK_FALSE(m.try_lock_for(1ms));
        CHECK_FALSE(m.try_lock_until(gs::clock::now()));
        CHECK(code_of([&] { m.unlock(); }) == std::errc::operation_not_permitted);
    }).get();
    m.unlock();
    CHECK(code_of([&] { m.unlock(); }) == std::errc::operation_not_permitted);
    gs::go([&] {
        CHECK(m.try_lock());
        m.unlock();
    }).get();
}

TEST_CASE("recursive_mutex between goroutines and plain threads")
{
    gs::recursive_mutex m;
    int n = 0;
    const auto add = [&] {
        for (int i = 0; i < 200; i++) {
            std::scoped_lock one(m);
            std::scoped_lock two(m);
            n++;
        }
    };
    std::thread threads[] = {std::thread(add), std::thread(add)};
    gs::run([&] {
        auto g = gs::go(add);
        add();
        g.get();
    });
    for (auto &t : threads)
        t.join();
    CHECK(n == 800);

    // A goroutine that runs on the thread which has locked it is not the owner.
    m.lock();
    CHECK_FALSE(gs::run([&] { return m.try_lock(); }));
    m.unlock();
}

GO_TEST("recursive_mutex: a cancel doesn't end a lock, and condition_variable_any waits with it")
{
    gs::recursive_mutex m;
    gs::condition_variable_any changed;
    bool is_true = false;
    m.lock();
    auto g = gs::go([&] {
        std::unique_lock<gs::recursive_mutex> lock(m);
        CHECK(gs::this_goroutine::cancelled());
        gs::no_cancel scope;
        changed.wait(lock, [&] { return is_true; });
    });
    g.cancel();
    CHECK_FALSE(g.join_for(1ms));
    m.unlock();
    while (!g.join_for(1ms)) {
        std::lock_guard<gs::recursive_mutex> guard(m);
        is_true = true;
        changed.notify_all();
    }
    g.get();
}

// ---- Latches and barriers ----

GO_TEST("latch")
{
    gs::latch l(30);
    std::atomic<int> n{0};
    gs::task_group waiters;
    for (int i = 0; i < 5; i++)
        waiters.go([&] {
            l.wait();
            CHECK(n == 30);
        });
    CHECK_FALSE(l.try_wait());
    CHECK_FALSE(l.wait_for(1ms));
    CHECK_FALSE(l.wait_until(gs::clock::now()));
    many_of([&](int i) {
        go_elsewhere(i);
        n++;
        if (i % 3)
            l.count_down();
        else
            l.arrive_and_wait();
    });
    waiters.wait();
    CHECK(l.try_wait());
    l.wait();
    CHECK(l.wait_for(0s));
    l.count_down(0);
    CHECK(code_of([&] { l.count_down(); }) == std::errc::invalid_argument);
    CHECK(code_of([&] { l.count_down(-1); }) == std::errc::invalid_argument);
    CHECK(code_of([] { gs::latch(-1); }) == std::errc::invalid_argument);
    gs::latch none(0);
    none.wait();
    CHECK(gs::latch::max() == std::numeric_limits<std::ptrdiff_t>::max());
}

TEST_CASE("latch between goroutines and plain threads, destroyed as soon as a wait is over")
{
    for (int round = 0; round < 100; round++) {
        std::thread counts;
        {
            auto l = std::make_unique<gs::latch>(2);
            counts = std::thread([p = l.get()] { p->count_down(); });
            gs::go(gs::detached, [p = l.get()] { p->count_down(); });
            if (round % 2)
                l->wait();
            else
                gs::run([&] { l->wait(); });
        }
        counts.join();
    }
}

GO_TEST("a cancel ends the wait for a latch, and for a barrier, after the arrival")
{
    gs::latch l(2);
    gs::barrier<> b(2);
    auto g = gs::go([&] {
        CHECK(code_of([&] { l.wait(); }) == std::errc::operation_canceled);
        CHECK(code_of([&] { (void)l.wait_for(1h); }) == std::errc::operation_canceled);
        CHECK(code_of([&] { l.arrive_and_wait(); }) == std::errc::operation_canceled);
        CHECK(code_of([&] { b.arrive_and_wait(); }) == std::errc::operation_canceled);
    });
    g.cancel();
    g.get();
    l.arrive_and_wait();
    b.arrive_and_wait();
}

GO_TEST("barrier: phases, with a completion function")
{
    int parts[30] = {};
    std::vector<int> sums; // changed only while all have arrived
    gs::barrier b(30, [&]() noexcept {
        int sum = 0;
        for (const int part : parts)
            sum += part;
        gs::this_goroutine::yield();
        sums.push_back(sum);
    });
    many_of([&](int i) {
        for (int phase = 1; phase <= 10; phase++) {
            parts[i] = phase;
            go_elsewhere(i + phase);
            if (i % 2) {
                b.arrive_and_wait();
            } else {
                auto token = b.arrive();
                gs::this_goroutine::yield();
                b.wait(std::move(token));
            }
            REQUIRE(sums.size() == static_cast<std::size_t>(phase));
            CHECK(sums.back() == 30 * phase);
        }
    });
}

GO_TEST("barrier: arrivals that drop, several arrivals at once, misuse")
{
    std::atomic<int> calls{0};
    gs::barrier b(3, [&] { calls++; });
    b.arrive_and_drop();
    auto token = b.arrive(2);
    b.wait(std::move(token));
    CHECK(calls == 1);
    auto first = b.arrive(); // of two now
    CHECK(code_of([&] { (void)b.arrive(2); }) == std::errc::invalid_argument);
    CHECK(code_of([&] { (void)b.arrive(0); }) == std::errc::invalid_argument);
    CHECK(code_of([&] { (void)b.arrive(-1); }) == std::errc::invalid_argument);
    auto second = b.arrive();
    CHECK(calls == 2);
    b.wait(std::move(first));
    b.wait(std::move(second));
    b.arrive_and_drop();
    b.arrive_and_drop();
    CHECK(calls == 3);
    CHECK(code_of([&] { b.arrive_and_wait(); }) == std::errc::invalid_argument); // none is expected any more
    CHECK(code_of([] { gs::barrier<>(-1); }) == std::errc::invalid_argument);
    CHECK(gs::barrier<>::max() > 1'000'000);
}

TEST_CASE("barrier between goroutines and plain threads")
{
    int phases = 0;
    gs::barrier b(4, [&]() noexcept { phases++; });
    const auto takes_part = [&] {
        for (int i = 1; i <= 50; i++) {
            b.arrive_and_wait();
            CHECK(phases >= i);
        }
    };
    std::thread threads[] = {std::thread(takes_part), std::thread(takes_part)};
    gs::run([&] {
        auto g = gs::go(takes_part);
        takes_part();
        g.get();
    });
    for (auto &t : threads)
        t.join();
    CHECK(phases == 50);
}

// ---- Goroutine-local values ----

static gs::local<std::string> request_name;

GO_TEST("local: each goroutine has a value of its own, on whatever thread it runs")
{
    const gs::local<int> n([] { return 100; });
    *request_name = "first";
    many_of([&](int i) {
        CHECK(n.get() == nullptr);
        CHECK(*n == 100);
        *n += i;
        CHECK(request_name->empty());
        *request_name = std::to_string(i);
        for (int k = 0; k < 10; k++) {
            go_elsewhere(i + k);
            CHECK(*n == 100 + i);
            CHECK(*request_name == std::to_string(i));
        }
        CHECK(n.get() == &*n);
        n.reset();
        CHECK(n.get() == nullptr);
        CHECK(n.emplace(7) == 7);
        CHECK(n.emplace(8) == 8);
        CHECK(*n == 8);
    });
    CHECK(*request_name == "first");
    CHECK(n.get() == nullptr);
}

GO_TEST("local: values are destroyed at the end of their goroutine, before a join returns")
{
    const int before = Counted::alive;
    {
        gs::local<Counted> c;
        gs::local<std::unique_ptr<Counted>> p;
        gs::go([&] {
            CHECK(c->value == 0);
            *p = std::make_unique<Counted>(4);
            c.emplace(5);
            CHECK(Counted::alive == before + 2);
        }).get();
        CHECK(Counted::alive == before);
        c.emplace(6);
        p.emplace(std::make_unique<Counted>(7));
        CHECK(Counted::alive == before + 2);
    }
    CHECK(Counted::alive == before);
}

GO_TEST("local: it may go before the goroutines that have values of it")
{
    const int before = Counted::alive;
    auto c = std::make_unique<gs::local<Counted>>();
    gs::chan<int> has, go_on;
    auto g = gs::go([&] {
        (**c).value = 3;
        has.send(1);
        go_on.recv();
        CHECK(Counted::alive == before + 1);
    });
    has.recv();
    c.reset();
    go_on.send(1);
    g.get();
    CHECK(Counted::alive == before);
    for (int i = 0; i < 70'000; i++) { // their keys are given back
        gs::local<int> another;
        CHECK_NOTHROW(*another = i);
        if (*another != i)
            FAIL("another value");
    }
}

TEST_CASE("local on plain threads")
{
    const int before = Counted::alive;
    gs::local<Counted> c;
    c->value = 1;
    std::thread([&] {
        CHECK(c.get() == nullptr);
        c->value = 2;
        gs::run([&] { CHECK(c.get() == nullptr); }); // a goroutine on this thread
        CHECK(c->value == 2);
    }).join();
    CHECK(Counted::alive == before + 1);
    CHECK(c->value == 1);
}

GO_TEST("local: what its function throws leaves the use, and there is no value")
{
    int calls = 0;
    gs::local<int> n([&]() -> int {
        if (++calls == 1)
            throw std::runtime_error("not yet");
        return calls;
    });
    CHECK_THROWS_WITH_AS(*n, "not yet", std::runtime_error);
    CHECK(n.get() == nullptr);
    CHECK(*n == 2);
    struct NoDefault {
        int n;
        explicit NoDefault(int v) : n(v) {}
    };
    gs::local<NoDefault> only_given;
    CHECK(code_of([&] { (void)*only_given; }) == std::errc::invalid_argument);
    only_given.emplace(3);
    CHECK(only_given->n == 3);
}
