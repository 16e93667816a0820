// Recursive mutexes, latches, barriers, promises and futures, goroutine-local values.
#include "test.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

using namespace std::chrono_literals;

/// The code of the std::future_error that f throws.
template <class F>
static std::error_code future_code_of(F &&f)
{
    try {
        f();
    } catch (const std::future_error &e) {
        return e.code();
    }
    return {};
}

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

// ---- Promises and futures ----

GO_TEST("promise and future: values of every kind, from goroutines and plain threads")
{
    gs::promise<std::string> p;
    gs::future<std::string> f = p.get_future();
    CHECK(f.valid());
    CHECK(f.wait_for(1ms) == std::future_status::timeout);
    CHECK(f.wait_for(0s) == std::future_status::timeout);
    CHECK(f.wait_until(std::chrono::system_clock::now() + 1ms) == std::future_status::timeout);
    std::thread t([&] { p.set_value("from a thread"); });
    f.wait();
    CHECK(f.wait_for(0s) == std::future_status::ready);
    CHECK(f.wait_until(gs::clock::now() - 1h) == std::future_status::ready);
    CHECK(f.get() == "from a thread");
    CHECK_FALSE(f.valid());
    t.join();

    gs::promise<std::unique_ptr<int>> moved;
    auto moves = moved.get_future();
    auto g = gs::go([p = std::move(moved)]() mutable { p.set_value(std::make_unique<int>(5)); });
    CHECK(*moves.get() == 5);
    g.get();

    int x = 0;
    gs::promise<int &> by_reference;
    auto refers = by_reference.get_future();
    by_reference.set_value(x);
    CHECK(&refers.get() == &x);

    gs::promise<void> done;
    auto told = done.get_future();
    gs::go(gs::detached, [&] { done.set_value(); });
    told.get();

    std::string text = "copied";
    gs::promise<std::string> copies;
    copies.set_value(text);
    CHECK(text == "copied");
    CHECK(copies.get_future().get() == "copied");

}

GO_TEST("promise and future: the errors of the standard")
{
    using errc = std::future_errc;
    gs::promise<int> p;
    gs::future<int> f = p.get_future(), none;
    CHECK(future_code_of([&] { (void)p.get_future(); }) == errc::future_already_retrieved);
    p.set_value(1);
    CHECK(future_code_of([&] { p.set_value(2); }) == errc::promise_already_satisfied);
    CHECK(future_code_of([&] { p.set_exception(std::make_exception_ptr(3)); }) == errc::promise_already_satisfied);
    CHECK(f.get() == 1);
    for (const gs::future<int> *empty : {&f, &none}) {
        CHECK_FALSE(empty->valid());
        CHECK(future_code_of([&] { empty->wait(); }) == errc::no_state);
        CHECK(future_code_of([&] { (void)empty->wait_for(1h); }) == errc::no_state);
        CHECK(future_code_of([&] { (void)empty->wait_until(gs::clock::now()); }) == errc::no_state);
    }
    CHECK(future_code_of([&] { f.get(); }) == errc::no_state);
    CHECK_FALSE(f.share().valid());
    CHECK(future_code_of([] { (void)gs::shared_future<int>().get(); }) == errc::no_state);

    gs::promise<int> other = std::move(p);
    CHECK(future_code_of([&] { p.set_value(2); }) == errc::no_state);
    CHECK(future_code_of([&] { (void)p.get_future(); }) == errc::no_state);
    CHECK(future_code_of([&] { p.set_exception(std::make_exception_ptr(3)); }) == errc::no_state);
    CHECK(code_of([&] { other.set_exception(nullptr); }) == std::errc::invalid_argument);

    gs::future<int> broken;
    {
        gs::promise<int> goes;
        broken = goes.get_future();
        CHECK(broken.wait_for(0s) == std::future_status::timeout);
    }
    CHECK(broken.wait_for(0s) == std::future_status::ready);
    CHECK(future_code_of([&] { broken.get(); }) == errc::broken_promise);
    CHECK_FALSE(broken.valid());
    gs::promise<int> assigned;
    broken = assigned.get_future();
    assigned = gs::promise<int>(); // breaks the former promise
    CHECK(future_code_of([&] { broken.get(); }) == errc::broken_promise);
    assigned.set_value(4);
    gs::promise<int> swapped;
    swap(swapped, assigned);
    CHECK(swapped.get_future().get() == 4);
}

GO_TEST("promise and future: exceptions")
{
    gs::promise<int> p;
    auto f = p.get_future();
    auto g = gs::go([&] { CHECK_THROWS_AS(f.get(), int); });
    gs::this_goroutine::yield();
    p.set_exception(std::make_exception_ptr(4));
    g.get();
    CHECK_FALSE(f.valid());
    gs::promise<void> with_text;
    with_text.set_exception(std::make_exception_ptr(std::runtime_error("given")));
    CHECK_THROWS_WITH_AS(with_text.get_future().get(), "given", std::runtime_error);

    gs::promise<int &> q;
    gs::shared_future<int &> s = q.get_future().share();
    q.set_exception(std::make_exception_ptr(5));
    for (int i = 0; i < 2; i++)
        CHECK_THROWS_AS((void)s.get(), int);
    CHECK(s.valid());
}

/// Its copies and moves throw while `fails` says so.
struct Fragile {
    const bool *fails;
    explicit Fragile(const bool *f) : fails(f) {}
    Fragile(const Fragile &o) : fails(o.fails)
    {
        if (*fails)
            throw std::runtime_error("it broke");
    }
};

GO_TEST("a set_value that throws can be repeated, and so can a get")
{
    bool fails = true;
    const Fragile value(&fails);
    gs::promise<Fragile> p;
    auto f = p.get_future();
    CHECK_THROWS_WITH_AS(p.set_value(value), "it broke", std::runtime_error);
    CHECK_THROWS_WITH_AS(p.set_value(Fragile(&fails)), "it broke", std::runtime_error);
    CHECK(f.wait_for(0s) == std::future_status::timeout);
    fails = false;
    p.set_value(value);
    fails = true;
    CHECK_THROWS_WITH_AS(f.get(), "it broke", std::runtime_error);
    CHECK(f.valid());
    fails = false;
    CHECK(f.get().fails == &fails);
    CHECK_FALSE(f.valid());
}

GO_TEST("a cancel ends a wait for a future, which keeps its state")
{
    gs::promise<int> p;
    auto f = p.get_future();
    auto g = gs::go([&] {
        CHECK(code_of([&] { f.get(); }) == std::errc::operation_canceled);
        CHECK(code_of([&] { f.wait(); }) == std::errc::operation_canceled);
        CHECK(code_of([&] { (void)f.wait_for(1h); }) == std::errc::operation_canceled);
        p.set_value(6);
        const auto s = f.share();
        CHECK(s.get() == 6); // what can be done at once is done
    });
    g.cancel();
    g.get();
}

GO_TEST("one of many set_values succeeds, and all copies of a shared_future get its value")
{
    for (int round = 0; round < 20; round++) {
        gs::promise<std::string> p;
        const gs::shared_future<std::string> s = p.get_future();
        std::atomic<int> successes{0};
        gs::task_group readers;
        for (int i = 0; i < 5; i++)
            readers.go([s] {
                const std::string &v = s.get();
                CHECK(v == "the value");
                CHECK(&v == &s.get());
            });
        many_of([&](int i) {
            go_elsewhere(i);
            successes += !future_code_of([&] { p.set_value("the value"); });
        });
        CHECK(successes == 1);
        readers.wait();
    }
}

TEST_CASE("a promise may go as soon as its value is set, and a future as soon as it is ready")
{
    for (int round = 0; round < 200; round++) {
        auto p = std::make_unique<gs::promise<int>>();
        gs::future<int> f = p->get_future();
        std::thread sets([p = std::move(p), round]() mutable {
            p->set_value(round);
            p.reset();
        });
        CHECK(f.get() == round);
        sets.join();
    }
}

GO_TEST("get takes the value out, and the last one to go destroys what is left")
{
    const int before = Counted::alive;
    {
        gs::promise<Counted> p;
        auto f = p.get_future();
        p.set_value(Counted(1));
        CHECK(Counted::alive == before + 1);
        CHECK(f.get().value == 1);
        gs::promise<Counted> q;
        gs::shared_future<Counted> s = q.get_future(), t = s;
        q.set_value(Counted(2));
        CHECK(s.get().value + t.get().value == 4);
        CHECK(Counted::alive == before + 2); // what was moved from lives as long as p
    }
    CHECK(Counted::alive == before);
}

/// Counts what it has given and not got back.
template <class T>
struct CountingAllocator {
    using value_type = T;
    int *bytes;
    explicit CountingAllocator(int *b) noexcept : bytes(b) {}
    template <class U>
    CountingAllocator(const CountingAllocator<U> &o) noexcept : bytes(o.bytes)
    {
    }
    T *allocate(std::size_t n)
    {
        *bytes += static_cast<int>(n * sizeof(T));
        return std::allocator<T>().allocate(n);
    }
    void deallocate(T *p, std::size_t n)
    {
        *bytes -= static_cast<int>(n * sizeof(T));
        std::allocator<T>().deallocate(p, n);
    }
    friend bool operator==(const CountingAllocator &a, const CountingAllocator &b) { return a.bytes == b.bytes; }
    friend bool operator!=(const CountingAllocator &a, const CountingAllocator &b) { return !(a == b); }
};
static_assert(std::uses_allocator_v<gs::promise<int>, CountingAllocator<int>>);

GO_TEST("a promise with an allocator")
{
    int bytes = 0;
    gs::future<std::string> f;
    {
        gs::promise<std::string> p(std::allocator_arg, CountingAllocator<char>(&bytes));
        f = p.get_future();
        CHECK(bytes > 0);
        p.set_value("kept by the future");
    }
    CHECK(bytes > 0);
    CHECK(f.get() == "kept by the future");
    CHECK(bytes == 0);
}

static int plus(int a, int b)
{
    return a + b;
}

GO_TEST("packaged_task")
{
    gs::packaged_task<int(int, int)> t(plus);
    CHECK(t.valid());
    auto f = t.get_future();
    CHECK(f.wait_for(0s) == std::future_status::timeout);
    auto g = gs::go(std::move(t), 40, 2);
    CHECK_FALSE(t.valid());
    CHECK(f.get() == 42);
    g.get();

    int x = 0;
    gs::packaged_task<int &()> refers([&]() -> int & { return x; });
    auto by_reference = refers.get_future();
    refers();
    CHECK(&by_reference.get() == &x);
    gs::packaged_task<void(std::unique_ptr<int>, int &)> moves([](std::unique_ptr<int> p, int &to) { return to = *p; });
    moves(std::make_unique<int>(7), x);
    moves.get_future().get();
    CHECK(x == 7);
    gs::packaged_task<int()> throws([]() -> int { throw std::runtime_error("inside"); });
    auto fails = throws.get_future();
    throws();
    CHECK_THROWS_WITH_AS(fails.get(), "inside", std::runtime_error);

    gs::packaged_task deduced(plus);
    static_assert(std::is_same_v<decltype(deduced), gs::packaged_task<int(int, int)>>);
    gs::packaged_task lambda([n = std::make_unique<int>(5)](char) mutable noexcept { return ++*n; });
    static_assert(std::is_same_v<decltype(lambda), gs::packaged_task<int(char)>>);
    swap(deduced, t);
    CHECK(t.valid());
    CHECK_FALSE(deduced.valid());
    std::thread thread(std::move(t), 1, 2);
    thread.join();

    lambda('a');
    CHECK(lambda.get_future().get() == 6);
    lambda.reset(); // the same function, with its state
    auto second = lambda.get_future();
    lambda('a');
    CHECK(second.get() == 7);
}

GO_TEST("packaged_task: the errors of the standard")
{
    using errc = std::future_errc;
    gs::packaged_task<int()> none;
    CHECK_FALSE(none.valid());
    CHECK(future_code_of([&] { none(); }) == errc::no_state);
    CHECK(future_code_of([&] { none.reset(); }) == errc::no_state);
    CHECK(future_code_of([&] { (void)none.get_future(); }) == errc::no_state);

    int calls = 0;
    gs::packaged_task<int()> t([&] { return ++calls; });
    gs::future<int> f = t.get_future();
    CHECK(future_code_of([&] { (void)t.get_future(); }) == errc::future_already_retrieved);
    t.reset();
    CHECK(future_code_of([&] { f.get(); }) == errc::broken_promise);
    f = t.get_future();
    t();
    CHECK(future_code_of([&] { t(); }) == errc::promise_already_satisfied);
    CHECK(calls == 1);
    CHECK(f.get() == 1);
    gs::packaged_task<void()> recursive([&] {
        CHECK(future_code_of([&] { recursive(); }) == errc::promise_already_satisfied);
        calls++;
    });
    recursive();
    CHECK(calls == 2);
    {
        gs::packaged_task<int()> goes([] { return 1; });
        f = goes.get_future();
    }
    CHECK(future_code_of([&] { f.get(); }) == errc::broken_promise);
    gs::packaged_task<int()> replaced([] { return 1; });
    f = replaced.get_future();
    replaced = gs::packaged_task<int()>([] { return 2; });
    CHECK(future_code_of([&] { f.get(); }) == errc::broken_promise);
    replaced();
    CHECK(replaced.get_future().get() == 2);
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
