// Waits in coroutines that are no gs::tasks, from C++20 on.
#include "test.h"

#if GS_HPP_COROUTINES
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

using namespace std::chrono_literals;

/// A coroutine type that knows nothing of this library: it begins at once, and its result is a future.
template <class T>
struct Eager {
    struct promise_base {
        gs::promise<T> result;
        gs::future<T> future = result.get_future();
        Eager get_return_object() { return {std::move(future)}; }
        std::suspend_never initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void unhandled_exception() { result.set_exception(std::current_exception()); }
    };
    struct promise_type : promise_base {
        void return_value(T v) { this->result.set_value(std::move(v)); }
    };
    gs::future<T> future;
};

/// Begins when it is awaited, by a coroutine of any type, and continues that coroutine directly.
template <class T>
struct Lazy {
    struct promise_type {
        std::optional<T> value;
        std::exception_ptr thrown;
        std::coroutine_handle<> next;
        Lazy get_return_object() { return Lazy{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        struct last {
            bool await_ready() const noexcept { return false; }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> me) const noexcept { return me.promise().next; }
            void await_resume() const noexcept {}
        };
        last final_suspend() const noexcept { return {}; }
        void return_value(T v) { value = std::move(v); }
        void unhandled_exception() { thrown = std::current_exception(); }
    };
    std::coroutine_handle<promise_type> h;
    explicit Lazy(std::coroutine_handle<promise_type> handle) : h(handle) {}
    Lazy(Lazy &&o) noexcept : h(std::exchange(o.h, nullptr)) {}
    ~Lazy()
    {
        if (h)
            h.destroy();
    }
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) noexcept
    {
        h.promise().next = caller;
        return h;
    }
    T await_resume()
    {
        if (h.promise().thrown)
            std::rethrow_exception(h.promise().thrown);
        return std::move(*h.promise().value);
    }
};

static Lazy<int> adds(gs::chan<int> in)
{
    int sum = 0;
    while (const auto v = co_await gs::recv(in))
        sum += *v;
    co_return sum;
}

static Lazy<int> sends(gs::chan<int> out, int n)
{
    for (int i = 0; i < n; i++) {
        co_await gs::send(out, i);
        if (i % 16 == 0)
            co_await gs::sleep(10us);
    }
    out.close();
    co_return n;
}

template <class T>
static Eager<T> begin(Lazy<T> lazy)
{
    co_return co_await lazy;
}

GO_TEST("any coroutine receives and sends, and is continued on goroutines")
{
    for (std::size_t cap : {0, 3}) {
        gs::chan<int> c(cap);
        auto sum = begin(adds(c));
        auto sent = begin(sends(c, 200));
        CHECK(sum.future.get() == 19900);
        CHECK(sent.future.get() == 200);
    }
}

TEST_CASE("any coroutine, begun on a plain thread")
{
    gs::chan<int> c;
    auto sum = begin(adds(c));
    std::thread t([c] {
        for (int i = 0; i < 100; i++)
            c.send(i);
        c.close();
    });
    CHECK(sum.future.get() == 4950);
    t.join();
}

static Eager<std::string> waits_in_all_ways(gs::chan<Counted> c)
{
    Counted kept(4);
    CHECK_THROWS_AS(co_await gs::send(c, std::move(kept)), gs::error); // it is closed
    CHECK(kept.value == 4);
    CHECK((co_await gs::recv(c)).closed());
    const auto name = co_await gs::async([] {
        gs::this_goroutine::sleep_for(1ms);
        return std::string("a goroutine's result");
    });
    CHECK_THROWS_AS(co_await gs::async([] { throw 5; }), int);
    const auto id = gs::this_goroutine::id();
    co_await gs::sleep(1ms);
    CHECK(gs::this_goroutine::id() != 0);
    CHECK(gs::this_goroutine::id() != id);
    gs::mutex m; // it may wait as a goroutine does
    std::lock_guard<gs::mutex> guard(m);
    gs::this_goroutine::sleep_for(1ms);
    co_return name;
}

TEST_CASE("waits of all kinds, in a coroutine that ends on a goroutine")
{
    const int before = Counted::alive;
    {
        gs::chan<Counted> c;
        c.close();
        CHECK(waits_in_all_ways(c).future.get() == "a goroutine's result");
    }
    gs::shutdown(); // the goroutine that has set the result ends, with the frame
    CHECK(Counted::alive == before);
}

static Eager<int> fails(gs::chan<int> c)
{
    co_await gs::recv(c);
    throw 5;
}

GO_TEST("an exception after a wait is the coroutine's own")
{
    gs::chan<int> c;
    auto f = fails(c);
    c.send(1);
    CHECK_THROWS_AS(f.future.get(), int);
}

// ---- Coroutines that belong to a thread ----

/// Runs coroutines on the thread that calls run().
class Loop {
    std::mutex lock_;
    std::condition_variable more_;
    std::deque<std::coroutine_handle<>> ready_;

public:
    std::thread::id thread = std::this_thread::get_id();
    int left = 0; // coroutines
    void post(std::coroutine_handle<> h)
    {
        std::lock_guard<std::mutex> guard(lock_);
        ready_.push_back(h);
        more_.notify_one();
    }
    void run()
    {
        while (left > 0) {
            std::unique_lock<std::mutex> lock(lock_);
            more_.wait(lock, [this] { return !ready_.empty(); });
            const auto h = ready_.front();
            ready_.pop_front();
            lock.unlock();
            h.resume();
        }
    }
};

/// A coroutine of a Loop, which is its first argument.
struct OnLoop {
    struct promise_type {
        Loop &loop;
        template <class... Args>
        explicit promise_type(Loop &l, const Args &...) : loop(l)
        {
            loop.left++;
        }
        ~promise_type() { loop.left--; }
        OnLoop get_return_object() const { return {}; }
        std::suspend_never initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const {}
        [[noreturn]] void unhandled_exception() const { std::terminate(); }
    };
};
template <>
struct gs::resumer<OnLoop::promise_type> {
    static void resume(std::coroutine_handle<OnLoop::promise_type> h) { h.promise().loop.post(h); }
};

static OnLoop adds_on_loop(Loop &loop, gs::chan<int> in, int &sum)
{
    while (const auto v = co_await gs::recv(in)) {
        CHECK(std::this_thread::get_id() == loop.thread);
        sum += *v; // without a lock: all is on one thread
    }
}

static OnLoop sends_on_loop(Loop &loop, gs::chan<int> out, gs::waitgroup &senders)
{
    for (int i = 0; i < 50; i++) {
        co_await gs::send(out, i);
        CHECK(std::this_thread::get_id() == loop.thread);
        co_await gs::sleep(1us);
        CHECK(std::this_thread::get_id() == loop.thread);
    }
    senders.done();
}

TEST_CASE("gs::resumer: coroutines continue on the thread of their loop")
{
    Loop loop;
    gs::chan<int> c;
    gs::waitgroup senders;
    int sum = 0;
    for (int i = 0; i < 3; i++) {
        adds_on_loop(loop, c, sum);
        senders.add();
        sends_on_loop(loop, c, senders);
    }
    auto closer = gs::go([&] {
        senders.wait();
        c.close();
    });
    loop.run();
    CHECK(sum == 3 * 1225);
    closer.get();
}

/// Still runs when the coroutine that it has posted has ended. (Not an aggregate: in co_await expressions g++ 12 destroys
/// those twice.)
class Post {
    Loop *loop;
    std::shared_ptr<std::atomic<int>> count;

public:
    Post(Loop &l, std::shared_ptr<std::atomic<int>> c) : loop(&l), count(std::move(c)) {}
    void operator()(std::coroutine_handle<> h) const
    {
        loop->post(h);
        gs::this_goroutine::sleep_for(1ms); // the coroutine has ended meanwhile
        ++*count;
    }
};

static Eager<int> posted(Loop &loop, gs::chan<std::string> c, std::shared_ptr<std::atomic<int>> count)
{
    const auto v = co_await gs::resume_on(Post(loop, count), gs::recv(c));
    CHECK(std::this_thread::get_id() == loop.thread);
    co_await gs::resume_on([&](std::coroutine_handle<> h) { loop.post(h); }, gs::sleep(1us));
    CHECK(std::this_thread::get_id() == loop.thread);
    const int n = co_await gs::resume_on(Post(loop, count), gs::async([] { return 40; }));
    loop.left = 0;
    co_return n + static_cast<int>(v->size());
}

TEST_CASE("gs::resume_on: a wait that is continued elsewhere")
{
    const auto count = std::make_shared<std::atomic<int>>(0);
    Loop loop;
    loop.left = 1;
    gs::chan<std::string> c;
    auto f = posted(loop, c, count);
    gs::go(gs::detached, [c] { c.send("ab"); });
    loop.run();
    CHECK(f.future.get() == 42);
    gs::shutdown();
    CHECK(*count == 2);
    CHECK(count.use_count() == 1);
}

#if GS_HPP_STOP_TOKENS
static Eager<int> stops(std::stop_token st)
{
    gs::chan<int> never, full(1);
    full.send(1);
    int stopped = (co_await gs::recv(st, never)).stopped();
    stopped += co_await gs::send(st, full, 1) == gs::status::stopped;
    stopped += !co_await gs::sleep(st, 1h);
    co_return stopped + *co_await gs::recv(st, full); // what can be done at once is done
}

GO_TEST("a stop token ends the waits of any coroutine")
{
    std::stop_source source;
    auto f = stops(source.get_token());
    CHECK(f.future.wait_for(1ms) == std::future_status::timeout);
    source.request_stop();
    CHECK(f.future.get() == 4);
    CHECK(stops(source.get_token()).future.get() == 4);
}

static gs::task<int> stops_in_task(std::stop_token st)
{
    gs::chan<std::string> c;
    std::string kept = "kept";
    const auto sent = co_await gs::send(st, c, std::move(kept));
    CHECK(kept == "kept");
    const bool slept = co_await gs::sleep(st, 1h);
    const auto v = co_await gs::recv(st, c);
    co_return (sent == gs::status::stopped) + !slept + v.stopped();
}

GO_TEST("a stop token ends the waits of a gs::task")
{
    std::stop_source source;
    auto g = gs::go([&] { return gs::sync_wait(stops_in_task(source.get_token())); });
    CHECK_FALSE(g.join_for(1ms));
    source.request_stop();
    CHECK(g.get() == 3);
}

static Eager<int> races(std::stop_token st, gs::chan<std::unique_ptr<int>> c)
{
    int sum = 0;
    while (auto v = co_await gs::recv(st, c))
        sum += **v;
    co_return sum;
}

GO_TEST("a stop that races with a send to a coroutine loses no value")
{
    for (int round = 0; round < 200; round++) {
        gs::chan<std::unique_ptr<int>> c;
        std::stop_source source;
        auto f = races(source.get_token(), c);
        auto stopper = gs::go([&] {
            for (int i = 0; i < round % 7; i++)
                gs::this_goroutine::yield();
            source.request_stop();
        });
        int sent = 0;
        for (int i = 0; i < 3; i++)
            sent += c.send(source.get_token(), std::make_unique<int>(1)) == gs::status::ok;
        CHECK(f.future.get() == sent);
        stopper.get();
    }
}
#endif
#endif
