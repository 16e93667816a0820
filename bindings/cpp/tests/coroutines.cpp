// co_await, from C++20 on.
#include "test.h"

#if GS_HPP_COROUTINES
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

using namespace std::chrono_literals;

static gs::task<int> add(gs::chan<int> a, gs::chan<int> b)
{
    const auto x = co_await gs::recv(a);
    const auto y = co_await gs::recv(b);
    co_return *x + *y;
}

static gs::task<int> twice(gs::chan<int> a, gs::chan<int> b)
{
    co_return 2 * co_await add(a, b);
}

GO_TEST("a coroutine receives what goroutines send, and awaits another one")
{
    gs::chan<int> a, b(1);
    auto sender = gs::go([=] {
        a.send(1);
        b.send(2);
    });
    CHECK(gs::sync_wait(twice(a, b)) == 6);
    sender.get();
}

TEST_CASE("on a plain thread")
{
    gs::chan<int> a(1), b;
    a.send(1);
    auto sender = gs::go([=] { b.send(2); });
    CHECK(gs::sync_wait(add(a, b)) == 3);
    sender.get();
}

static gs::task<std::vector<int>> some(bool any)
{
    if (!any)
        co_return {};
    co_return {1, 2, 3};
}

GO_TEST("a coroutine returns what is in braces")
{
    CHECK(gs::sync_wait(some(false)).empty());
    CHECK(gs::sync_wait(some(true)) == std::vector<int>{1, 2, 3});
}

static gs::task<> produce(gs::chan<std::string> out, int n)
{
    for (int i = 0; i < n; i++) {
        std::string s = std::to_string(i);
        if (i % 2)
            co_await gs::send(out, std::move(s));
        else
            co_await gs::send(out, s);
    }
    out.close();
}

static gs::task<> consume(gs::chan<std::string> in, int &sum)
{
    while (auto v = co_await gs::recv(in)) {
        sum += std::stoi(*v);
        if (sum % 7 == 0)
            co_await gs::sleep(10us);
    }
}

GO_TEST("coroutines of an executor run while others wait")
{
    gs::executor ex;
    int sums[5] = {};
    for (int &sum : sums) {
        gs::chan<std::string> c(static_cast<std::size_t>(&sum - sums));
        ex.go(consume(c, sum));
        ex.go(produce(c, 40));
    }
    ex.run();
    for (int sum : sums)
        CHECK(sum == 780);
    ex.run();
    ex.go(produce(gs::chan<std::string>(1), 1)); // which is not run
}

static gs::task<int> deep(int n)
{
    if (n == 0)
        throw std::runtime_error("at the bottom");
    co_await gs::sleep(0s);
    co_return co_await deep(n - 1) + 1;
}

static gs::task<std::string> catches()
{
    try {
        co_await deep(20);
    } catch (const std::runtime_error &e) {
        co_return e.what();
    }
    co_return "nothing";
}

static gs::task<int> returns_at_once(int n)
{
    co_return n;
}

static gs::task<long> adds_up(int n)
{
    long sum = 0;
    for (int i = 0; i < n; i++)
        sum += co_await returns_at_once(i);
    co_return sum;
}

static gs::task<int> nests(int n)
{
    if (n == 0)
        co_return 0;
    co_return 1 + co_await nests(n - 1);
}

// On a goroutine's small stack, also where the compiler makes no jumps of calls.
GO_TEST("co_await needs no stack, neither in a loop nor nested")
{
    CHECK(gs::sync_wait(adds_up(100'000)) == 4999950000);
    CHECK(gs::sync_wait(nests(20'000)) == 20'000);
}

GO_TEST("exceptions go through co_await")
{
    CHECK(gs::sync_wait(catches()) == "at the bottom");
    CHECK_THROWS_AS(gs::sync_wait(deep(3)), std::runtime_error);
}

static gs::task<> wait_for_ever(gs::chan<int> never, int &cancelled)
{
    try {
        co_await gs::recv(never);
    } catch (const gs::error &e) {
        if (e.code() == std::errc::operation_canceled)
            cancelled++;
        throw;
    }
}

static gs::task<> fail_after(std::chrono::microseconds d)
{
    co_await gs::sleep(d);
    throw std::runtime_error("first");
}

GO_TEST("the first exception cancels the other coroutines' waits")
{
    gs::executor ex;
    int cancelled = 0;
    gs::chan<int> never;
    for (int i = 0; i < 3; i++)
        ex.go(wait_for_ever(never, cancelled));
    ex.go(fail_after(100us));
    CHECK_THROWS_WITH_AS(ex.run(), "first", std::runtime_error);
    CHECK(cancelled == 3);
}

GO_TEST("a cancel of the goroutine ends its coroutines' waits")
{
    int cancelled = 0;
    auto g = gs::go([&cancelled] {
        gs::executor ex;
        gs::chan<int> never;
        ex.go(wait_for_ever(never, cancelled));
        ex.go(wait_for_ever(never, cancelled));
        ex.run();
    });
    gs::this_goroutine::yield();
    g.cancel();
    CHECK_THROWS_AS(g.get(), gs::error);
    CHECK(cancelled == 2);
    auto h = gs::go([&cancelled] { gs::sync_wait(wait_for_ever(gs::chan<int>(), cancelled)); });
    gs::this_goroutine::yield();
    h.cancel();
    CHECK_THROWS_AS(h.get(), gs::error);
    CHECK(cancelled == 3);
}

static gs::task<int> spawns(int n, int &done)
{
    gs::executor &ex = co_await gs::this_executor();
    if (n > 0)
        ex.go(spawns(n - 1, done));
    const int v = co_await gs::async([n] {
        gs::this_goroutine::yield();
        return n;
    });
    try {
        co_await gs::async([] { throw 5; });
    } catch (int five) {
        done += five / 5;
    }
    co_return v;
}

GO_TEST("async, and coroutines that start others")
{
    int done = 0;
    CHECK(gs::sync_wait(spawns(10, done)) == 10);
    CHECK(done == 11);
}

static gs::task<> closed_ones()
{
    gs::chan<int> c;
    c.close();
    const auto v = co_await gs::recv(c);
    CHECK(v.closed());
    CHECK_THROWS_AS(co_await gs::send(c, 1), gs::error);
    gs::chan<Counted> d(1);
    Counted x(3);
    co_await gs::send(d, std::move(x));
    CHECK(x.value == -1);
    d.close();
    Counted y(4);
    CHECK_THROWS_AS(co_await gs::send(d, std::move(y)), gs::error);
    CHECK(y.value == 4);
}

GO_TEST("closed channels, and values that aren't sent")
{
    const int before = Counted::alive;
    gs::sync_wait(closed_ones());
    CHECK(Counted::alive == before);
}

static gs::task<int &> by_reference(int &x)
{
    co_return x;
}

GO_TEST("a result by reference")
{
    int x = 0;
    CHECK(&gs::sync_wait(by_reference(x)) == &x);
}
static gs::task<int> after(std::chrono::milliseconds d, int v)
{
    co_await gs::sleep(d);
    co_return v;
}

static gs::task<> fails_after(std::chrono::milliseconds d, int v)
{
    co_await gs::sleep(d);
    throw v;
}

static gs::task<std::unique_ptr<int>> boxed(int v)
{
    co_return std::make_unique<int>(v);
}

static gs::task<> waits_for_all(int &ended)
{
    const auto [a, b, c] = co_await gs::when_all(after(2ms, 1), boxed(2), after(0ms, 3));
    CHECK(a + *b + c == 6);
    // They run beside each other: each waits for the other one.
    gs::chan<int> there, back;
    const auto asks = [](gs::chan<int> out, gs::chan<int> in) -> gs::task<int> {
        co_await gs::send(out, 20);
        co_return *co_await gs::recv(in);
    };
    const auto answers = [](gs::chan<int> in, gs::chan<int> out) -> gs::task<> {
        const auto v = co_await gs::recv(in);
        co_await gs::send(out, *v + 1);
    };
    const auto both = co_await gs::when_all(asks(there, back), answers(there, back));
    CHECK(std::get<0>(both) == 21);
    co_await gs::when_all();

    std::vector<gs::task<int>> many;
    for (int i = 0; i < 200; i++)
        many.push_back(after(std::chrono::milliseconds(i % 3), i));
    const auto found = co_await gs::when_all(std::move(many));
    CHECK(found.size() == 200);
    for (int i = 0; i < 200; i++)
        CHECK(found[static_cast<std::size_t>(i)] == i);
    CHECK((co_await gs::when_all(std::vector<gs::task<int>>())).empty());

    // The first in the order of the arguments is thrown, when all have ended.
    const auto counts = [](int &n) -> gs::task<> {
        co_await gs::sleep(4ms);
        n++;
    };
    int thrown = 0;
    try {
        co_await gs::when_all(counts(ended), fails_after(2ms, 1), fails_after(0ms, 2));
    } catch (int v) {
        thrown = v;
    }
    CHECK(thrown == 1);
    CHECK(ended == 1);
}

GO_TEST("when_all")
{
    int ended = 0;
    gs::sync_wait(waits_for_all(ended));
    CHECK(ended == 1);
}

static gs::task<> again_and_again(int n, int &sum)
{
    for (int i = 0; i < n; i++) {
        const auto [a, b] = co_await gs::when_all(boxed(i), boxed(1));
        sum += *a * *b;
    }
}

/// It can be moved, but not assigned.
struct Fixed {
    const int value;
};

static gs::task<Fixed> fixed(int n)
{
    co_await gs::sleep(10us);
    co_return Fixed{n};
}

static gs::task<int> fixed_ones()
{
    const auto [a, b] = co_await gs::when_all(fixed(1), fixed(2));
    std::vector<gs::task<Fixed>> more;
    more.push_back(fixed(3));
    more.push_back(fixed(4));
    int sum = a.value + b.value + (co_await fixed(10)).value;
    for (const Fixed &one : co_await gs::when_all(std::move(more)))
        sum += one.value;
    co_return sum;
}

/// Its move throws.
struct Stuck {
    static inline std::atomic<bool> all{false};
    bool moves = true;
    Stuck() = default;
    Stuck(Stuck &&o) : moves(o.moves)
    {
        if (!moves || all)
            throw std::runtime_error("stuck");
    }
};

static gs::task<Stuck> stuck(Stuck &where, bool moves)
{
    where.moves = moves;
    co_return std::move(where);
}

static gs::task<int> receives_stuck(gs::chan<Stuck> c)
{
    int arrived = 0;
    while (const auto v = co_await gs::recv(c))
        arrived += v->moves;
    co_return arrived;
}

GO_TEST("a receive doesn't move the value")
{
    gs::chan<Stuck> c(2);
    for (int i = 0; i < 2; i++)
        c.send(Stuck());
    c.close();
    Stuck::all = true;
    CHECK(gs::sync_wait(receives_stuck(c)) == 2);
    Stuck::all = false;
}

GO_TEST("results that can't be assigned, or not be moved")
{
    CHECK(gs::sync_wait(fixed(3)).value == 3);
    CHECK(gs::sync_wait(fixed_ones()) == 20);
    Stuck one;
    CHECK(gs::sync_wait(stuck(one, true)).moves);
    CHECK_THROWS_WITH_AS(gs::sync_wait(stuck(one, false)), "stuck", std::runtime_error);
}

/// How many more allocations succeed; below 0: all.
static std::atomic<int> allocations{-1};

/* Not inlined: g++ would warn of free(3) on what operator new has returned. */
__attribute__((noinline)) void *operator new(std::size_t n)
{
    if (allocations.load() >= 0 && allocations.fetch_sub(1) == 0) {
        allocations = -1;
        throw std::bad_alloc();
    }
    if (void *p = std::malloc(n))
        return p;
    throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void *p) noexcept
{
    std::free(p);
}
__attribute__((noinline)) void operator delete(void *p, std::size_t) noexcept
{
    std::free(p);
}

static gs::task<int> count(int &runs)
{
    runs++;
    co_return runs;
}

/// Whether when_all has thrown std::bad_alloc.
static gs::task<bool> without_memory(int &runs, int most, bool of_vector)
{
    auto a = count(runs), b = count(runs);
    std::vector<gs::task<int>> more;
    more.push_back(count(runs));
    more.push_back(count(runs));
    bool thrown = false;
    allocations = most;
    try {
        if (of_vector)
            co_await gs::when_all(std::move(more));
        else
            co_await gs::when_all(std::move(a), std::move(b));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    allocations = -1;
    co_await gs::sleep(1us); // what the executor still has runs now
    co_return thrown;
}

GO_TEST("when_all without memory runs all of the tasks, or none")
{
    for (const bool of_vector : {false, true}) {
        bool thrown = true;
        for (int most = 0; thrown; most++) {
            int runs = 0;
            thrown = gs::sync_wait(without_memory(runs, most, of_vector));
            CHECK((runs == 2 || (runs == 0 && thrown)));
            CHECK((thrown || most >= 2));
        }
    }
}

GO_TEST("when_all in a loop takes no more stack each time")
{
    int sum = 0;
    gs::sync_wait(again_and_again(50000, sum));
    CHECK(sum == 1249975000);
}

static gs::task<> cancelled_all(std::error_code &code)
{
    try {
        co_await gs::when_all(after(24h, 1), after(24h, 2));
    } catch (const gs::error &e) {
        code = e.code();
    }
}

GO_TEST("a cancel ends what when_all waits for")
{
    std::error_code code;
    auto g = gs::go([&] { gs::sync_wait(cancelled_all(code)); });
    gs::this_goroutine::sleep_for(1ms);
    g.cancel();
    g.get();
    CHECK(code == std::errc::operation_canceled);
}

#endif
