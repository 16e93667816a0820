// Waits with an std::stop_token, from C++20 on.
#include "test.h"

#if GS_HPP_STOP_TOKENS
#include <deque>
#include <memory>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>

using namespace std::chrono_literals;

/// Requests a stop a little later, from a goroutine or a plain thread.
class StopsLater {
    std::stop_source source_;
    gs::goroutine<void> goroutine_;
    std::thread thread_;

public:
    StopsLater(std::stop_source source, bool by_thread) : source_(std::move(source))
    {
        const auto stop = [this] {
            gs::this_goroutine::sleep_for(1ms);
            source_.request_stop();
        };
        if (by_thread)
            thread_ = std::thread(stop);
        else
            goroutine_ = gs::go(stop);
    }
    ~StopsLater()
    {
        if (thread_.joinable())
            thread_.join();
        else
            goroutine_.get();
    }
};

/// Calls f(token) with a token whose stop is requested before, or meanwhile by a goroutine or a plain thread: f ends by it.
template <class F>
static void stops(F f)
{
    std::stop_source before;
    before.request_stop();
    f(before.get_token());
    for (const bool by_thread : {false, true}) {
        std::stop_source source;
        StopsLater later(source, by_thread);
        f(source.get_token());
        CHECK(source.stop_requested());
    }
}

/// Calls f(token) with tokens whose stop is not requested, of which one can't be.
template <class F>
static void stops_not(F f)
{
    std::stop_source source;
    f(source.get_token());
    f(std::stop_token());
}

/// f(token) waits: it fails in a goroutine that is cancelled.
template <class F>
static void is_cancelled(F f)
{
    stops_not([&](std::stop_token st) {
        auto g = gs::go([&] { CHECK(code_of([&] { f(st); }) == std::errc::operation_canceled); });
        gs::this_goroutine::yield();
        g.cancel();
        g.get();
    });
}

GO_TEST("receive and send with a stop token")
{
    const gs::chan<std::string> c, full(1);
    full.send("it is full");
    stops([&](std::stop_token st) {
        const auto v = c.recv(st);
        CHECK_FALSE(v);
        CHECK(v.stopped());
        CHECK(v.status() == gs::status::stopped);
        CHECK(code_of([&] { (void)v.value(); }) == std::errc::operation_canceled);
    });
    stops([&](std::stop_token st) { CHECK(c.recv_for(st, 1h).stopped()); });
    stops([&](std::stop_token st) { CHECK(c.recv_until(st, gs::clock::now() + 1h).stopped()); });
    stops([&](std::stop_token st) {
        std::string kept = "a value that isn't sent stays";
        CHECK(c.send(st, kept) == gs::status::stopped);
        CHECK(full.send(st, std::move(kept)) == gs::status::stopped);
        CHECK(full.send_for(st, std::move(kept), 1h) == gs::status::stopped);
        CHECK(full.send_until(st, std::move(kept), std::chrono::system_clock::now() + 1h) == gs::status::stopped);
        CHECK(kept == "a value that isn't sent stays");
    });
    stops_not([&](std::stop_token st) {
        CHECK(c.recv_for(st, 1ms).timed_out());
        CHECK(c.recv_for(st, -1ms).timed_out());
        CHECK(c.recv_until(st, gs::clock::now()).timed_out());
        CHECK(full.send_for(st, "", 1ms) == gs::status::timed_out);
        auto sender = gs::go([&] { CHECK(c.send(st, "sent") == gs::status::ok); });
        CHECK(*c.recv(st) == "sent");
        sender.get();
        gs::chan<int> closes;
        auto closer = gs::go([&] { closes.close(); });
        CHECK(closes.recv(st).closed());
        CHECK(closes.send(st, 1) == gs::status::closed);
        closer.get();
    });
    is_cancelled([&](std::stop_token st) { (void)c.recv(st); });
    is_cancelled([&](std::stop_token st) { (void)full.send(st, ""); });

    std::stop_source stopped;
    stopped.request_stop();
    CHECK(*full.recv(stopped.get_token()) == "it is full"); // what can be done at once is done
    CHECK(full.send(stopped.get_token(), "again") == gs::status::ok);
    const gs::chan<int> nil(nullptr);
    CHECK(code_of([&] { (void)nil.recv(stopped.get_token()); }) == std::errc::invalid_argument);
    CHECK(code_of([&] { (void)nil.send(stopped.get_token(), 1); }) == std::errc::invalid_argument);
    gs::ticker t(1ms);
    CHECK(t.recv(std::stop_token()));
}

TEST_CASE("plain threads wait with a stop token, too")
{
    const gs::chan<int> c;
    std::jthread receives([&](std::stop_token st) { CHECK(c.recv(st).stopped()); });
    std::jthread waits([&](std::stop_token st) { CHECK_FALSE(gs::semaphore().acquire(st)); });
    std::jthread sleeps([&](std::stop_token st) { CHECK_FALSE(gs::this_goroutine::sleep_for(st, 1h)); });
}

GO_TEST("sleep and join with a stop token")
{
    stops([](std::stop_token st) { CHECK_FALSE(gs::this_goroutine::sleep_for(st, 1h)); });
    stops([](std::stop_token st) { CHECK_FALSE(gs::this_goroutine::sleep_until(st, std::chrono::system_clock::now() + 1h)); });
    stops([](std::stop_token st) { CHECK_FALSE(gs::this_goroutine::sleep_for(st, std::chrono::hours::max())); });
    stops_not([](std::stop_token st) {
        const auto before = gs::clock::now();
        CHECK(gs::this_goroutine::sleep_for(st, 2ms));
        CHECK(gs::clock::now() - before >= 2ms);
        CHECK(gs::this_goroutine::sleep_for(st, -1s));
    });
    is_cancelled([](std::stop_token st) { (void)gs::this_goroutine::sleep_for(st, 1h); });

    const gs::chan<int> go_on;
    auto g = gs::go([&] { return *go_on.recv(); });
    stops([&](std::stop_token st) { CHECK_FALSE(g.join(st)); });
    stops([&](std::stop_token st) { CHECK_FALSE(g.join_for(st, 1h)); });
    stops_not([&](std::stop_token st) { CHECK_FALSE(g.join_until(st, gs::clock::now() + 1ms)); });
    is_cancelled([&](std::stop_token st) { (void)g.join(st); });
    go_on.send(3);
    stops_not([&](std::stop_token st) { CHECK(g.join(st)); });
    CHECK(g.get() == 3);
}

GO_TEST("semaphore, waitgroup and latch with a stop token")
{
    gs::semaphore s(1);
    stops([&](std::stop_token st) { CHECK_FALSE(s.acquire(st, 2)); });
    stops([&](std::stop_token st) { CHECK_FALSE(s.try_acquire_for(st, 1h, 2)); });
    stops_not([&](std::stop_token st) {
        CHECK_FALSE(s.try_acquire_for(st, 1ms, 2));
        CHECK_FALSE(s.try_acquire_until(st, gs::clock::now() + 1ms, 2));
        CHECK(s.acquire(st));
        auto giver = gs::go([&] { s.release(); });
        CHECK(s.acquire(st));
        giver.get();
        s.release();
    });
    is_cancelled([&](std::stop_token st) { (void)s.acquire(st, 2); });
    CHECK(s.try_acquire(1)); // each unit is still there
    CHECK_FALSE(s.try_acquire(1));

    gs::waitgroup wg;
    wg.add();
    gs::latch l(1);
    stops([&](std::stop_token st) { CHECK_FALSE(wg.wait(st)); });
    stops([&](std::stop_token st) { CHECK_FALSE(wg.wait_for(st, 1h)); });
    stops([&](std::stop_token st) { CHECK_FALSE(l.wait(st)); });
    stops([&](std::stop_token st) { CHECK_FALSE(l.wait_until(st, gs::clock::now() + 1h)); });
    stops_not([&](std::stop_token st) {
        CHECK_FALSE(wg.wait_until(st, gs::clock::now() + 1ms));
        CHECK_FALSE(l.wait_for(st, 1ms));
    });
    is_cancelled([&](std::stop_token st) { (void)wg.wait(st); });
    is_cancelled([&](std::stop_token st) { (void)l.wait(st); });
    auto g = gs::go([&] {
        l.count_down();
        wg.done();
    });
    stops_not([&](std::stop_token st) {
        CHECK(wg.wait(st));
        CHECK(l.wait(st));
    });
    g.get();
}

GO_TEST("future with a stop token")
{
    gs::promise<int> p;
    auto f = p.get_future();
    stops([&](std::stop_token st) { CHECK(f.wait(st) == std::future_status::timeout); });
    stops([&](std::stop_token st) { CHECK(f.wait_for(st, 1h) == std::future_status::timeout); });
    stops_not([&](std::stop_token st) { CHECK(f.wait_until(st, gs::clock::now() + 1ms) == std::future_status::timeout); });
    is_cancelled([&](std::stop_token st) { (void)f.wait(st); });
    auto g = gs::go([&] { p.set_value(4); });
    stops_not([&](std::stop_token st) { CHECK(f.wait(st) == std::future_status::ready); });
    const auto s = f.share();
    stops([&](std::stop_token st) { CHECK(s.wait(st) == std::future_status::ready); gs::this_goroutine::sleep_for(st, 1h); });
    g.get();
    CHECK_THROWS_AS((void)f.wait(std::stop_token()), std::future_error);
}

GO_TEST("condition_variable_any with a stop token")
{
    gs::shared_mutex m;
    gs::condition_variable_any changed;
    bool is_true = false;
    const auto pred = [&] { return is_true; };
    std::unique_lock<gs::shared_mutex> lock(m);
    stops([&](std::stop_token st) {
        CHECK_FALSE(changed.wait(lock, st, pred));
        CHECK(lock.owns_lock());
    });
    stops([&](std::stop_token st) { CHECK_FALSE(changed.wait_for(lock, st, 1h, pred)); });
    stops([&](std::stop_token st) { CHECK_FALSE(changed.wait_until(lock, st, gs::clock::now() + 1h, pred)); });
    stops_not([&](std::stop_token st) { CHECK_FALSE(changed.wait_for(lock, st, 1ms, pred)); });
    lock.unlock();
    is_cancelled([&](std::stop_token st) {
        std::unique_lock<gs::shared_mutex> own(m);
        (void)changed.wait(own, st, pred);
    });
    lock.lock();
    stops_not([&](std::stop_token st) {
        is_true = false;
        auto g = gs::go([&] {
            std::lock_guard<gs::shared_mutex> guard(m);
            is_true = true;
            changed.notify_one();
        });
        CHECK(changed.wait(lock, st, pred));
        lock.unlock();
        g.get();
        lock.lock();
    });
    stops([&](std::stop_token st) { // the condition counts at the end
        CHECK(changed.wait(lock, st, pred));
        lock.unlock();
        gs::this_goroutine::sleep_for(st, 1h);
        lock.lock();
    });
    // A stop that is requested with the lock held.
    std::stop_source source;
    is_true = false;
    auto waits = gs::go([&] {
        std::unique_lock<gs::shared_mutex> own(m);
        CHECK_FALSE(changed.wait(own, source.get_token(), pred));
    });
    lock.unlock();
    gs::this_goroutine::yield();
    lock.lock();
    source.request_stop();
    lock.unlock();
    waits.get();
}

GO_TEST("select and selector with a stop token")
{
    const gs::chan<int> c, d;
    int stops_seen = 0;
    stops([&](std::stop_token st) {
        CHECK(gs::select(gs::recv(c, [](int) { CHECK(false); }), gs::stopped(st, [&] { stops_seen++; }),
                         gs::send(d, 1, [] { CHECK(false); })) == 1);
    });
    CHECK(stops_seen == 3);
    stops_not([&](std::stop_token st) {
        CHECK(gs::select(gs::stopped(st, [] { CHECK(false); }), gs::recv(c, [](int) {}), gs::timeout(1ms, [] {})) == 2);
        auto g = gs::go([&] { c.send(5); });
        int got = 0;
        CHECK(gs::select(gs::recv(c, [&](int v) { got = v; }), gs::stopped(st, [] { CHECK(false); })) == 0);
        CHECK(got == 5);
        g.get();
    });

    gs::selector s;
    int got = 0;
    s.recv(c, [&](gs::received<int> v) { got += *v; });
    s.send(d, 7, [] { CHECK(false); });
    stops([&](std::stop_token st) { CHECK_FALSE(s.select(st)); });
    stops([&](std::stop_token st) { CHECK_FALSE(s.select_for(st, 1h)); });
    stops_not([&](std::stop_token st) {
        CHECK_FALSE(s.select_until(st, gs::clock::now() + 1ms));
        auto g = gs::go([&] { c.send(5); });
        CHECK(s.select(st) == std::size_t{0});
        g.get();
    });
    CHECK(got == 10);
    CHECK(s.active() == 2);
    is_cancelled([&](std::stop_token st) { (void)s.select(st); });
}

GO_TEST("task_group with a stop token")
{
    stops([](std::stop_token st) {
        gs::task_group tg;
        std::atomic<int> cancelled{0};
        for (int i = 0; i < 3; i++)
            tg.go([&] {
                try {
                    gs::this_goroutine::sleep_for(1h);
                } catch (const gs::error &) {
                    cancelled++;
                    throw;
                }
            });
        CHECK_FALSE(tg.wait(st));
        CHECK(cancelled == 3);
        tg.go([] {}); // it can be used again
        tg.wait();
    });
    stops_not([](std::stop_token st) {
        gs::task_group tg;
        tg.go([] { gs::this_goroutine::yield(); });
        CHECK(tg.wait(st));
        tg.go([] { throw 5; });
        CHECK_THROWS_AS((void)tg.wait(st), int);
    });
    is_cancelled([](std::stop_token st) {
        gs::task_group tg;
        tg.go([] { gs::this_goroutine::sleep_for(1h); });
        (void)tg.wait(st);
    });
}

GO_TEST("cancel_on_stop ends waits of any kind")
{
    auto listener = gs::tcp_listener::listen("127.0.0.1", 0);
    stops([&](std::stop_token st) {
        CHECK(code_of([&] { gs::cancel_on_stop(st, [&] { (void)listener.accept(); }); }) == std::errc::operation_canceled);
    });
    is_cancelled([&](std::stop_token st) { gs::cancel_on_stop(st, [&] { (void)listener.accept(); }); });
    stops_not([&](std::stop_token st) {
        auto client = gs::go([&] { (void)gs::tcp_stream::connect("127.0.0.1", listener.port()); });
        gs::tcp_stream stream = gs::cancel_on_stop(st, [&] { return listener.accept(); });
        CHECK(stream.is_open());
        client.get();
        int x = 0;
        CHECK(&gs::cancel_on_stop(st, [](int &r) -> int & { return r; }, x) == &x);
        CHECK_THROWS_AS(gs::cancel_on_stop(st, [] { throw 5; }), int);
        CHECK(*gs::cancel_on_stop(st, [](std::unique_ptr<int> p) { return p; }, std::make_unique<int>(6)) == 6);
    });
}

// ---- Stops that race with what is waited for ----

GO_TEST("a stop that races with a send and a receive loses no value")
{
    for (int round = 0; round < 300; round++) {
        const gs::chan<std::unique_ptr<int>> c(static_cast<std::size_t>(round % 2));
        std::stop_source source;
        int received = 0, kept = 0;
        gs::task_group tg;
        tg.go([&] {
            for (int i = 0; i < 3; i++) {
                auto p = std::make_unique<int>(1);
                if (c.send(source.get_token(), std::move(p)) == gs::status::ok)
                    CHECK(p == nullptr);
                else
                    kept += *p;
            }
        });
        tg.go([&] {
            while (auto v = c.recv(source.get_token()))
                received += **v;
        });
        tg.go([&] {
            for (int i = 0; i < round % 7; i++)
                gs::this_goroutine::yield();
            source.request_stop();
        });
        tg.wait();
        while (auto v = c.try_recv())
            received += **v;
        CHECK(received + kept == 3);
    }
}

GO_TEST("a stop that races with a release loses no unit")
{
    for (int round = 0; round < 200; round++) {
        gs::semaphore s;
        std::stop_source source;
        std::atomic<int> acquired{0};
        gs::task_group tg;
        for (int i = 0; i < 3; i++)
            tg.go([&] { acquired += s.acquire(source.get_token()); });
        tg.go([&] {
            for (int i = 0; i < 3; i++) {
                gs::this_goroutine::yield();
                s.release();
            }
        });
        tg.go([&] {
            for (int i = 0; i < round % 7; i++)
                gs::this_goroutine::yield();
            source.request_stop();
        });
        tg.wait();
        while (s.try_acquire())
            acquired++;
        CHECK(acquired == 3);
    }
}

GO_TEST("a stop that races with a notify: each item is taken, or left")
{
    for (int round = 0; round < 200; round++) {
        gs::recursive_mutex m;
        gs::condition_variable_any changed;
        std::stop_source source;
        int items = 0, taken = 0;
        gs::task_group tg;
        for (int i = 0; i < 3; i++)
            tg.go([&] {
                std::unique_lock<gs::recursive_mutex> lock(m);
                if (changed.wait(lock, source.get_token(), [&] { return items > 0; })) {
                    items--;
                    taken++;
                }
            });
        tg.go([&] {
            for (int i = 0; i < 3; i++) {
                {
                    std::lock_guard<gs::recursive_mutex> guard(m);
                    items++;
                }
                changed.notify_one();
            }
        });
        tg.go([&] {
            for (int i = 0; i < round % 5; i++)
                gs::this_goroutine::yield();
            source.request_stop();
        });
        tg.wait();
        CHECK(items + taken == 3);
    }
}

/// Called by a stop before the functions of the waits, or after: the goroutine that requests the stop may go on on another
/// thread, while the thread where the request has begun runs those that waited.
struct Moves {
    std::atomic<bool> *begun;
    void operator()() const noexcept
    {
        *begun = true;
        gs::this_goroutine::sleep_for(20us);
    }
};

GO_TEST("a stop that is requested by a goroutine which moves to another thread meanwhile")
{
    for (int round = 0; round < 100; round++) {
        std::stop_source source;
        const std::stop_token st = source.get_token();
        const gs::chan<int> c;
        gs::semaphore none;
        gs::condition_variable_any never;
        gs::mutex m;
        std::atomic<int> waiting{0}, stopped{0};
        gs::task_group tg;
        for (int i = 0; i < 12; i++)
            tg.go([&, i] {
                waiting++;
                if (i % 4 == 0) {
                    stopped += c.recv(st).stopped();
                } else if (i % 4 == 1) {
                    stopped += !none.acquire(st);
                } else if (i % 4 == 2) {
                    std::unique_lock<gs::mutex> lock(m);
                    stopped += !never.wait(lock, st, [] { return false; });
                } else {
                    stopped += !gs::this_goroutine::sleep_for(st, 1h);
                }
            });
        while (waiting < 12)
            gs::this_goroutine::yield();
        std::atomic<bool> begun{false};
        std::stop_callback moves(st, Moves{&begun});
        auto g = gs::go([&] { source.request_stop(); });
        tg.wait();
        CHECK(stopped == 12);
        g.get();
    }
}

// A request goes from one stop_guard to the next, while another goroutine disarms them, on the thread where the request has
// begun. When disarm() has returned, the function isn't called, and (under AddressSanitizer) the request uses nothing that
// was freed.
GO_TEST("stop_guards that are disarmed during a request which has moved to another thread")
{
    struct Guarded {
        std::atomic<bool> over{false};
        gs::detail::stop_guard guard;
        explicit Guarded(const std::stop_token &st) : guard(st)
        {
            guard.arm([](void *p) { CHECK_FALSE(*static_cast<std::atomic<bool> *>(p)); }, &over);
        }
    };
    for (int round = 0; round < 500; round++) {
        std::stop_source source;
        const std::stop_token st = source.get_token();
        std::atomic<int> armed{0};
        std::atomic<bool> begun{false};
        gs::task_group tg;
        for (int i = 0; i < 2; i++)
            tg.go([&] {
                std::deque<Guarded> guards;
                for (int k = 0; k < 100; k++)
                    guards.emplace_back(st);
                armed++;
                while (!begun)
                    gs::this_goroutine::yield();
                for (const auto until = gs::clock::now() + std::chrono::microseconds(20 + round % 60); gs::clock::now() < until;) {
                }
                for (auto g = guards.rbegin(); g != guards.rend(); ++g) { // as libstdc++ calls them
                    g->guard.disarm();
                    g->over = true;
                }
            });
        while (armed < 2)
            gs::this_goroutine::yield();
        std::stop_callback moves(st, Moves{&begun});
        gs::go([&] { source.request_stop(); }).get();
        tg.wait();
    }
}
#endif
