// With -fno-exceptions -fno-rtti: errors are gs::result's.
#include <cstdio>
#include <cstdlib>

#include "gosched.hpp"

#include <string>
#include <vector>

#if GS_HPP_EXCEPTIONS
#error "this is the test without exceptions"
#endif

using namespace std::chrono_literals;

static int failures;
#define CHECK(...)                                                               \
    do {                                                                         \
        if (!(__VA_ARGS__)) {                                                    \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
            failures++;                                                          \
        }                                                                        \
    } while (0)

static void goroutines()
{
    gs::result<gs::goroutine<int>> g = gs::go([](int n) { return 2 * n; }, 4);
    CHECK(g);
    CHECK(*g->get() == 8);
    CHECK(g->get().error() == std::errc::invalid_argument); // the handle is empty now
    CHECK(g->join().error() == std::errc::invalid_argument);

    std::string s = "s";
    auto by_reference = gs::go([&]() -> std::string & { return s; });
    gs::result<std::string &> ref = by_reference->get();
    CHECK(ref);
    CHECK(!ref.error());
    CHECK(&*ref == &s);
    CHECK(ref->size() == 1);
    CHECK(by_reference->get().error() == std::errc::invalid_argument);
    auto const_one = gs::go([&]() -> const std::string & { return s; });
    CHECK(&const_one->get().value() == &s);

    gs::options o;
    o.node = 1000;
    auto bad = gs::go(o, [] {});
    CHECK(!bad);
    CHECK(bad.error() == std::errc::invalid_argument);
    CHECK(bad.error().category() == gs::category());
    CHECK(!bad.error().message().empty());

    auto slow = gs::go([] { return gs::this_goroutine::sleep_for(1h).error(); }).value();
    CHECK(slow.join_for(1ms).value() == false);
    slow.cancel();
    CHECK(slow.get().value() == std::errc::operation_canceled);
    CHECK(gs::run([] {}).error() == std::errc::device_or_resource_busy);
    CHECK(gs::blocking([](int a) { return a; }, 3) == 3);
}

static void channels()
{
    gs::chan<std::string> c(1);
    CHECK(c.send("a"));
    CHECK(c.try_send("b") == gs::status::again);
    CHECK(c.recv().value() == "a");
    CHECK(c.recv_for(1ms).status() == gs::status::timed_out);
    CHECK(c.close());
    CHECK(c.close().error() == std::errc::broken_pipe);
    std::string kept = "kept";
    CHECK(c.send(std::move(kept)).error() == std::errc::broken_pipe);
    CHECK(kept == "kept");
    CHECK(c.recv().closed());
    CHECK(gs::select(gs::recv(c, [](const std::string &) {})).error() == std::errc::broken_pipe);
    CHECK(gs::select(gs::recv(c, [](auto v) { CHECK(v.closed()); })).value() == 0);

    gs::chan<int> nil(nullptr);
    CHECK(nil.recv().status() == gs::status::invalid);
    CHECK(nil.send(1).error() == std::errc::invalid_argument);
    gs::chan<int> huge(static_cast<std::size_t>(-1));
    CHECK(!huge);
    CHECK(huge.try_send(1) == gs::status::invalid);
    CHECK(gs::select(gs::recv(nil, [](int) {}), gs::timeout(1ms, [] {})).value() == 1);

    auto g = gs::go([] {
        gs::chan<int> never;
        for (int v : never)
            (void)v;
        return never.recv().status();
    }).value();
    g.cancel();
    CHECK(g.get().value() == gs::status::cancelled);
}

static void locks()
{
    gs::mutex m;
    int n = 0;
    std::vector<gs::goroutine<void>> all;
    for (int i = 0; i < 10; i++)
        all.push_back(std::move(*gs::go([&] {
            std::lock_guard<gs::mutex> guard(m);
            gs::this_goroutine::yield();
            n++;
        })));
    all[3].cancel(); // which doesn't end a lock
    for (auto &g : all)
        CHECK(g.get());
    CHECK(n == 10);
    gs::condition_variable c;
    std::unique_lock<gs::mutex> lock(m);
    CHECK(c.wait_for(lock, 1ms).value() == std::cv_status::timeout);
    gs::condition_variable_any any;
    CHECK(any.wait_for(lock, 1ms).value() == std::cv_status::timeout);
    CHECK(any.wait_for(lock, 1ms, [] { return false; }).value() == false);
    CHECK(any.wait_for(lock, std::chrono::hours::max(), [] { return true; }).value());
    gs::once o;
    CHECK(o.call([&] { CHECK(o.call([] {}).error() == std::errc::resource_deadlock_would_occur); }));
    gs::semaphore s(1);
    CHECK(s.acquire());
    CHECK(*s.try_acquire() == false);
    gs::waitgroup wg;
    CHECK(wg.go([] {}));
    CHECK(wg.wait());
}

static void recursion()
{
    gs::recursive_mutex m;
    std::lock_guard<gs::recursive_mutex> one(m), two(m);
    CHECK(!gs::go([&] { return m.try_lock(); })->get().value());
}

static void meetings()
{
    gs::latch l(2);
    gs::barrier b(2, []() noexcept {});
    CHECK(l.wait_for(1ms).value() == false);
    auto g = gs::go([&] {
        CHECK(l.arrive_and_wait());
        CHECK(b.arrive_and_wait());
        return gs::latch(1).wait().error();
    }).value();
    CHECK(l.arrive_and_wait());
    CHECK(b.wait(b.arrive()));
    g.cancel();
    CHECK(g.get().value() == std::errc::operation_canceled);
}

static void locals()
{
    const gs::local<int> n([] { return 3; });
    *n = 4;
    CHECK(gs::go([&] { return *n; })->get().value() == 3);
    CHECK(*n == 4);
    n.reset();
    CHECK(n.get() == nullptr);
}

static void futures()
{
    gs::promise<std::string> p;
    gs::future<std::string> f = p.get_future().value();
    CHECK(p.get_future().error() == std::future_errc::future_already_retrieved);
    CHECK(f.wait_for(1ms).value() == std::future_status::timeout);
    auto g = gs::go([&] { CHECK(p.set_value("text")); }).value();
    CHECK(f.get().value() == "text");
    CHECK(g.get());
    CHECK(f.get().error() == std::future_errc::no_state);
    CHECK(f.wait().error() == std::future_errc::no_state);
    CHECK(p.set_value("again").error() == std::future_errc::promise_already_satisfied);

    gs::promise<int> fails;
    const gs::shared_future<int> s = fails.get_future().value().share();
    CHECK(fails.set_error(std::make_error_code(std::errc::io_error)));
    CHECK(s.get().error() == std::errc::io_error);
    fails = gs::promise<int>();
    const gs::shared_future<int> t = fails.get_future().value();
    CHECK(fails.set_value(5));
    const gs::result<const int &> five = t.get();
    CHECK(*five == 5);
    gs::future<void> broken = gs::promise<void>().get_future().value();
    CHECK(broken.get().error() == std::future_errc::broken_promise);

    gs::packaged_task<int(int)> task([](int n) { return n + 1; });
    f = gs::future<std::string>();
    gs::future<int> result = task.get_future().value();
    CHECK(task(4));
    CHECK(task(4).error() == std::future_errc::promise_already_satisfied);
    CHECK(result.get().value() == 5);
    CHECK(task.reset());
    auto waits = gs::go([&] { return task.get_future()->get().error(); }).value();
    waits.cancel();
    CHECK(waits.get().value() == std::errc::operation_canceled);
}

static void groups()
{
    gs::task_group tg;
    for (int i = 0; i < 3; i++)
        CHECK(tg.go([] { return gs::this_goroutine::sleep_for(1h); })); // a gs::result is looked at
    CHECK(tg.go([] { return std::make_error_code(std::errc::io_error); }));
    CHECK(tg.wait().error() == std::errc::io_error);
    CHECK(tg.go([] {}));
    CHECK(tg.wait());
}

static void inspects()
{
    gs::trace t{"/dev/null"};
    CHECK(t);
    gs::trace second{"/dev/null"};
    CHECK(!second);
    CHECK(second.stop().error() == std::errc::device_or_resource_busy);
    CHECK(t.stop());
    CHECK(gs::trace{"/there/is/nothing"}.stop().error() == std::errc::no_such_file_or_directory);
    gs::flight recorder{1s};
    CHECK(recorder);
    CHECK(recorder.write("/dev/null"));
    CHECK(recorder.stop());
    CHECK(recorder.write("/dev/null").error() == std::errc::invalid_argument);
    CHECK(!gs::dump().value().empty());
    CHECK(!gs::metrics().value().empty());
}

static void net()
{
    auto l = gs::tcp_listener::listen("127.0.0.1", 0).value();
    const auto port = l.port().value();
    auto server = gs::go([&] {
        gs::tcp_iostream io(l.accept().value());
        std::string line;
        while (std::getline(io, line))
            io << line << '\n';
    }).value();
    {
        gs::tcp_iostream io(gs::tcp_stream::connect("127.0.0.1", port).value());
        std::string line;
        io << "hello\n";
        CHECK(std::getline(io, line));
        CHECK(line == "hello");
    }
    CHECK(server.get());
    CHECK(l.stop());
    CHECK(l.accept().error() == std::errc::operation_canceled);
    CHECK(l.close());
    CHECK(gs::tcp_stream::connect("127.0.0.1", port).error() == std::errc::connection_refused);
    gs::ticker none(0s);
    CHECK(none.recv().status() == gs::status::invalid);

    auto u = gs::udp_socket::bind("127.0.0.1", 0).value();
    auto v = gs::udp_socket::connect("127.0.0.1", u.local_port().value()).value();
    u.set_deadline(60s);
    CHECK(v.send("x"));
    char room[8];
    CHECK(u.receive_from(room, sizeof room).value().size == 1);
    CHECK(u.send_to("x", gs::endpoint()).error() == std::errc::destination_address_required);
    auto two = gs::unix_stream::pair().value();
    CHECK(two.first.write("abc"));
    CHECK(two.second.read(room, 3).value() == 3);
    CHECK(gs::unix_stream::connect("/there/is/none").error() == std::errc::no_such_file_or_directory);
}

static void selectors()
{
    gs::chan<int> c(1), d;
    gs::selector s;
    int got = 0;
    CHECK(s.select().error() == std::errc::invalid_argument);
    s.recv(c, [&](gs::received<int> v) { got += v ? *v : 100; });
    s.send(d, 1, [] {});
    CHECK(!s.try_select().value());
    CHECK(c.send(5));
    CHECK(s.select().value() == 0);
    CHECK(c.close());
    CHECK(s.select().value() == 0);
    CHECK(got == 105);
    CHECK(s.active() == 1);
    CHECK(d.close());
    CHECK(s.select().error() == std::errc::broken_pipe);
}

#if GS_HPP_COROUTINES
static gs::task<int> add(gs::chan<int> a, gs::chan<int> b)
{
    CHECK(co_await gs::sleep(1ms));
    const auto x = co_await gs::recv(a);
    CHECK(co_await gs::send(b, *x));
    CHECK((co_await gs::async([] { return 5; })).value() == 5);
    (void)b.close();
    CHECK((co_await gs::send(b, 1)).error() == std::errc::broken_pipe);
    co_return *x + 1;
}

static gs::task<> none()
{
    co_return;
}

static gs::task<> all()
{
    gs::chan<int> a(1), b(1);
    CHECK(a.send(1));
    const gs::result<int> r = co_await add(a, b);
    CHECK(*r == 2);
    gs::chan<int> c(1), d(1);
    CHECK(c.send(10));
    auto [first, second] = co_await gs::when_all(add(c, d), gs::task<>(none()));
    CHECK(*first == 11);
    CHECK(second);
    const auto v = co_await gs::recv(gs::chan<int>(nullptr));
    CHECK(v.status() == gs::status::invalid);
}

/// A coroutine type that knows nothing of this library.
struct Foreign {
    struct promise_type {
        Foreign get_return_object() const noexcept { return {}; }
        std::suspend_never initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() const noexcept {}
    };
};

static Foreign foreign(gs::chan<std::string> in, gs::promise<std::size_t> &length)
{
    std::size_t n = 0;
    while (const auto v = co_await gs::recv(in))
        n += v->size();
    CHECK(co_await gs::sleep(1ms));
    CHECK((co_await gs::send(in, "")).error() == std::errc::broken_pipe);
    CHECK(length.set_value(n));
}

static void coroutines()
{
    CHECK(gs::sync_wait(all()));
    gs::chan<std::string> c;
    gs::promise<std::size_t> length;
    auto f = length.get_future().value();
    foreign(c, length);
    CHECK(c.send("four"));
    CHECK(c.send("six ch"));
    CHECK(c.close());
    CHECK(f.get().value() == 10);
}
#else
static void coroutines() {}
#endif

#if GS_HPP_STOP_TOKENS
static void stops()
{
    std::stop_source source;
    const std::stop_token st = source.get_token();
    gs::chan<std::string> c;
    gs::semaphore s(1);
    gs::recursive_mutex m;
    gs::condition_variable_any changed;
    gs::selector sel;
    sel.recv(c, [](gs::received<std::string>) {});
    auto stopper = gs::go([&] {
        CHECK(gs::this_goroutine::sleep_for(st, 1ms).value());
        source.request_stop();
    }).value();
    CHECK(c.recv(st).stopped());
    CHECK(stopper.join(st).has_value());
    CHECK(c.send(st, "kept") == gs::status::stopped);
    CHECK(s.acquire(st).value());
    CHECK(s.acquire(st).value() == false);
    std::unique_lock<gs::recursive_mutex> lock(m);
    CHECK(changed.wait(lock, st, [] { return false; }).value() == false);
    CHECK(gs::select(gs::recv(c, [](auto) {}), gs::stopped(st, [] {})).value() == 1);
    CHECK(!sel.select(st).value());
    gs::task_group tg;
    CHECK(tg.go([] { return gs::this_goroutine::sleep_for(1h); }));
    CHECK(tg.wait(st).value() == false);
    CHECK(gs::cancel_on_stop(st, [] { return gs::this_goroutine::sleep_for(1h).error(); }).value() ==
          std::errc::operation_canceled);
    auto waits = gs::go([&] {
        std::stop_source never;
        CHECK(c.recv(never.get_token()).status() == gs::status::cancelled);
        return s.acquire(never.get_token()).error();
    }).value();
    waits.cancel();
    CHECK(waits.get().value() == std::errc::operation_canceled);
}
#else
static void stops() {}
#endif

static void runs()
{
    gs::test::options o;
    o.quiet = true;
    CHECK(gs::test::run([] { (void)gs::this_goroutine::sleep_for(1h); }).value());
    CHECK(gs::test::run(o, [] { gs::test::fail("it must"); }).value() == gs::test::outcome::failed);
    CHECK(gs::test::explore(o, 10, [] { (void)gs::chan<int>().recv(); }).value() == gs::test::outcome::deadlock);
    o.log = -2;
    CHECK(gs::test::explore(o, 10, [] {}).error() == std::errc::invalid_argument);
}

int main()
{
    runs();
    CHECK(&gs::run([]() -> int & { return failures; }).value() == &failures);
    const auto r = gs::run([] {
        goroutines();
        channels();
        locks();
        recursion();
        meetings();
        locals();
        futures();
        groups();
        inspects();
        net();
        selectors();
        coroutines();
        stops();
        return 7;
    });
    CHECK(r.value() == 7);
    CHECK(gs::shutdown());
    std::puts(failures == 0 ? "all passed" : "failed");
    return failures != 0;
}
