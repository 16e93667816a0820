/* boostbench: Boost.Fiber's side of the benchmarks, as a user of Boost.Fiber would write each workload.
 *
 * With one thread the scheduler is round_robin, else work_stealing on each thread. There a thread without work either
 * sleeps, and then no other thread wakes it to steal, or spins. Sleeping is quicker wherever fibers hand over to each other, so
 * only in the trees (skynet, fib) threads spin. Stacks are 16 KiB from malloc: the usual 128 KiB would be a system call
 * or two for each fiber. */
#include <boost/fiber/all.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace fibers = boost::fibers;
using fibers::launch;
using clock_type = std::chrono::steady_clock;
using time_point = clock_type::time_point;

[[noreturn]] static void fail(const char *what)
{
    std::fprintf(stderr, "boostbench: wrong result: %s\n", what);
    std::_Exit(1);
}

static void check(bool ok, const char *what)
{
    if (!ok)
        fail(what);
}

struct figure {
    std::string name;
    double value;
    const char *unit;
};
static std::vector<figure> figures;

static void report(const std::string &name, double value, const char *unit)
{
    figures.push_back({name, value, unit});
}

static double ns_since(time_point start)
{
    return std::chrono::duration<double, std::nano>(clock_type::now() - start).count();
}

static void report_ns_each(const std::string &name, time_point start, int64_t n)
{
    report(name, ns_since(start) / static_cast<double>(n), "ns");
}

static void report_late(const std::string &name, std::vector<double> late_ns)
{
    std::sort(late_ns.begin(), late_ns.end());
    report(name + ".p50", late_ns[late_ns.size() / 2] / 1e3, "us");
    report(name + ".p99", late_ns[late_ns.size() * 99 / 100] / 1e3, "us");
}

static int64_t share(int64_t n, int64_t parts)
{
    return std::max<int64_t>(1, n / parts);
}

static int64_t sum_of(int64_t senders, int64_t each)
{
    return senders * (each * (each + 1) / 2);
}

static double cpu_seconds()
{
    rusage usage;
    check(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage");
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double resident_bytes()
{
    double pages = 0;
    std::ifstream statm("/proc/self/statm");
    statm >> pages >> pages;
    check(pages > 0, "/proc/self/statm");
    return pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

/* dispatch: the new fiber runs at once and the fiber that starts it is queued (and may be stolen), so that of a tree or a
 * crowd of short fibers few exist at a time; post: the new one is queued. */
template <typename F> static fibers::fiber start(launch policy, F &&f)
{
    return fibers::fiber(policy, std::allocator_arg, fibers::fixedsize_stack(16 * 1024), std::forward<F>(f));
}

/* Go's wait group: counts down and wakes who waits. */
class countdown {
public:
    explicit countdown(int64_t n) : left(n) {}

    void done()
    {
        if (left.fetch_sub(1, std::memory_order_acq_rel) == 1)
            zero.set_value();
    }

    void wait() { zero.get_future().wait(); }

private:
    std::atomic<int64_t> left;
    fibers::promise<void> zero;
};

using channel = fibers::unbuffered_channel<int64_t>;
using buffer = fibers::buffered_channel<int64_t>;

template <typename C> static void send(C &ch, int64_t value)
{
    check(ch.push(value) == fibers::channel_op_status::success, "push");
}

template <typename C> static int64_t receive(C &ch)
{
    return ch.value_pop(); /* throws, and so ends the program, when it is closed */
}

/* Gives false when it is closed and empty. */
template <typename C> static bool receive(C &ch, int64_t &value)
{
    return ch.pop(value) == fibers::channel_op_status::success;
}

static void spawn_and_wait(int64_t n)
{
    auto all = std::make_shared<countdown>(n);
    for (int64_t i = 0; i < n; i++)
        start(launch::dispatch, [all] { all->done(); }).detach();
    all->wait();
}

static void spawn_join(int64_t n)
{
    auto begin = clock_type::now();
    spawn_and_wait(n);
    report_ns_each("spawn_join", begin, n);
}

static void spawn_batch(int64_t n)
{
    const int64_t batch = 1000, batches = share(n, batch);
    auto begin = clock_type::now();
    for (int64_t i = 0; i < batches; i++)
        spawn_and_wait(batch);
    report_ns_each("spawn_batch", begin, batches * batch);
}

static void yield_among(const char *name, int64_t count, int64_t n)
{
    int64_t each = share(n, count);
    std::vector<fibers::fiber> all;
    auto begin = clock_type::now();
    for (int64_t i = 0; i < count; i++)
        all.push_back(start(launch::post, [each] {
            for (int64_t y = 0; y < each; y++)
                boost::this_fiber::yield();
        }));
    for (auto &fiber : all)
        fiber.join();
    report_ns_each(name, begin, each * count);
}

static void pingpong(int64_t n)
{
    channel ping, pong;
    auto ponger = start(launch::post, [&] {
        for (int64_t ball; receive(ping, ball);)
            send(pong, ball + 1);
        pong.close();
    });
    int64_t ball = 0;
    auto begin = clock_type::now();
    for (int64_t i = 0; i < n; i++) {
        send(ping, ball);
        ball = receive(pong);
    }
    report_ns_each("pingpong", begin, n);

    check(ball == n, "pingpong");
    ping.close();
    ponger.join();
    check(!receive(pong, ball), "pingpong's end");
}

static void produce_and_consume(const char *name, int64_t on_each_side, size_t capacity, int64_t n)
{
    int64_t each = share(n, on_each_side);
    std::atomic<int64_t> sum{0};
    buffer items(capacity);
    std::vector<fibers::fiber> producers, consumers;
    auto begin = clock_type::now();
    for (int64_t i = 0; i < on_each_side; i++) {
        producers.push_back(start(launch::post, [&] {
            for (int64_t item = 1; item <= each; item++)
                send(items, item);
        }));
        consumers.push_back(start(launch::post, [&] {
            int64_t part = 0;
            for (int64_t item; receive(items, item);)
                part += item;
            sum += part;
        }));
    }
    for (auto &fiber : producers)
        fiber.join();
    items.close();
    for (auto &fiber : consumers)
        fiber.join();
    report_ns_each(name, begin, each * on_each_side);
    check(sum == sum_of(on_each_side, each), name);
}

static void mutex(int64_t n)
{
    int64_t each = share(n, 8), value = 0;
    fibers::mutex lock;
    std::vector<fibers::fiber> all;
    auto begin = clock_type::now();
    for (int i = 0; i < 8; i++)
        all.push_back(start(launch::post, [&] {
            for (int64_t step = 0; step < each; step++) {
                lock.lock();
                value++;
                lock.unlock();
            }
        }));
    for (auto &fiber : all)
        fiber.join();
    report_ns_each("mutex", begin, each * 8);
    check(value == each * 8, "mutex");
}

/* The channel has room for all children, and they are not joined: a leaf is gone at once and takes its stack with it. */
static void grow(std::shared_ptr<buffer> up, int64_t number, int64_t size)
{
    if (size == 1)
        return send(*up, number);
    auto down = std::make_shared<buffer>(16);
    for (int i = 0; i < 10; i++)
        start(launch::dispatch, [=] { grow(down, number + i * (size / 10), size / 10); }).detach();
    int64_t sum = 0;
    for (int i = 0; i < 10; i++)
        sum += receive(*down);
    send(*up, sum);
}

static void skynet(int64_t n)
{
    const int64_t leaves = 1000000;
    auto begin = clock_type::now();
    for (int64_t i = 0; i < n; i++) {
        auto top = std::make_shared<buffer>(2);
        start(launch::dispatch, [top] { grow(top, 0, leaves); }).detach();
        check(receive(*top) == leaves * (leaves - 1) / 2, "skynet");
    }
    report("skynet", ns_since(begin) / 1e6 / static_cast<double>(n), "ms");
}

static void ring(int64_t n)
{
    const int count = 1000;
    int64_t laps = share(n, count), token = 0;
    std::vector<channel> channels(count);
    std::vector<fibers::fiber> all;
    auto begin = clock_type::now();
    for (int i = 1; i < count; i++)
        all.push_back(start(launch::post, [&in = channels[i - 1], &out = channels[i], laps] {
            for (int64_t lap = 0; lap < laps; lap++)
                send(out, receive(in) + 1);
        }));
    for (int64_t lap = 0; lap < laps; lap++) {
        send(channels[0], token + 1);
        token = receive(channels[count - 1]);
    }
    report_ns_each("ring", begin, laps * count);
    for (auto &fiber : all)
        fiber.join();
    check(token == laps * count, "ring");
}

static void find_primes()
{
    const int64_t primes = 2000, last_prime = 17389;
    std::vector<std::shared_ptr<channel>> channels{std::make_shared<channel>()};
    std::vector<fibers::fiber> all;
    all.push_back(start(launch::post, [out = channels[0]] {
        for (int64_t i = 2; i <= last_prime; i++)
            send(*out, i);
        out->close();
    }));
    int64_t prime, last = 0, found = 0;
    while (receive(*channels.back(), prime)) {
        auto in = channels.back(), out = std::make_shared<channel>();
        channels.push_back(out);
        all.push_back(start(launch::post, [in, out, prime] {
            for (int64_t i; receive(*in, i);)
                if (i % prime != 0)
                    send(*out, i);
            out->close();
        }));
        found++;
        last = prime;
    }
    check(found == primes && last == last_prime, "sieve");
    for (auto &fiber : all)
        fiber.join();
}

static void sieve(int64_t n)
{
    auto begin = clock_type::now();
    for (int64_t i = 0; i < n; i++)
        find_primes();
    report("sieve", ns_since(begin) / 1e6 / static_cast<double>(n), "ms");
}

static int64_t fib(int64_t n)
{
    if (n < 2)
        return n;
    int64_t left;
    auto branch = start(launch::dispatch, [&left, n] { left = fib(n - 1); });
    int64_t right = fib(n - 2);
    branch.join();
    return left + right;
}

static void fib27(int64_t n)
{
    auto begin = clock_type::now();
    for (int64_t i = 0; i < n; i++)
        check(fib(27) == 196418, "fib");
    report("fib", ns_since(begin) / 1e6 / static_cast<double>(n), "ms");
}

static void timers(int64_t n)
{
    auto all = std::make_shared<countdown>(n);
    double cpu = cpu_seconds();
    auto begin = clock_type::now();
    for (int64_t index = 0; index < n; index++)
        start(launch::post, [all, index] {
            for (int64_t i = 0; i < 10; i++)
                boost::this_fiber::sleep_for(std::chrono::milliseconds(1 + (index * 7 + i * 3) % 10));
            all->done();
        }).detach();
    all->wait();
    report("timers", ns_since(begin) / 1e6, "ms");
    report("timers.cpu", cpu_seconds() - cpu, "s");
}

struct crowd {
    channel gate;
    countdown ready, gone;
    std::atomic<int64_t> started{0};

    explicit crowd(int64_t n) : ready(n), gone(n) {}
};

static std::shared_ptr<crowd> spawn_parked(launch policy, int64_t n)
{
    auto all = std::make_shared<crowd>(n);
    for (int64_t i = 0; i < n; i++)
        start(policy, [all] {
            all->started++;
            all->ready.done();
            int64_t nothing;
            check(!receive(all->gate, nothing), "gate");
            all->gone.done();
        }).detach();
    return all;
}

static void memory(int64_t n, int threads)
{
    std::shared_ptr<crowd> first;
    double unstarted = 0;
    if (threads == 1) { /* else others would start them */
        int64_t batch = share(n, 100);
        double before = resident_bytes();
        first = spawn_parked(launch::post, batch);
        unstarted = (resident_bytes() - before) / static_cast<double>(batch);
        check(first->started == 0, "memory.unstarted");
        first->ready.wait();
    }

    double before = resident_bytes();
    auto begin = clock_type::now();
    auto all = spawn_parked(launch::dispatch, n);
    all->ready.wait();
    double create = ns_since(begin) / 1e6;
    report("memory", (resident_bytes() - before) / static_cast<double>(n), "bytes");
    report("memory.create", create, "ms");
    all->gate.close();
    all->gone.wait();
    if (first) {
        report("memory.unstarted", unstarted, "bytes");
        first->gate.close();
        first->gone.wait();
    }
}

static void timer(int64_t n)
{
    const auto sleep = std::chrono::milliseconds(2);
    std::vector<double> late;
    for (int64_t i = 0; i < n; i++) {
        auto begin = clock_type::now();
        boost::this_fiber::sleep_for(sleep);
        late.push_back(ns_since(begin) - 2e6);
        check(late.back() >= 0, "timer");
    }
    report_late("timer", late);
}

/* A plain thread sends to a fiber. */
static void wake(int64_t n)
{
    fibers::buffered_channel<time_point> times(2);
    std::mutex lock;
    std::condition_variable heard;
    int64_t answered = 0;
    std::thread waker([&] {
        for (int64_t i = 0; i < n; i++) {
            std::this_thread::sleep_for(std::chrono::microseconds(500));
            times.push(clock_type::now());
            std::unique_lock<std::mutex> locked(lock);
            heard.wait(locked, [&] { return answered > i; });
        }
    });
    std::vector<double> late;
    for (int64_t i = 0; i < n; i++) {
        late.push_back(ns_since(times.value_pop()));
        std::lock_guard<std::mutex> locked(lock);
        answered++;
        heard.notify_one();
    }
    waker.join();
    report_late("wake", late);
}

static void idle(int64_t n)
{
    std::vector<fibers::fiber> passed; /* so that every thread has been awake before */
    for (int i = 0; i < 1000; i++)
        passed.push_back(start(launch::post, [] { boost::this_fiber::yield(); }));
    for (auto &fiber : passed)
        fiber.join();

    double cpu = cpu_seconds();
    auto begin = clock_type::now();
    boost::this_fiber::sleep_for(std::chrono::milliseconds(n));
    report("idle", (cpu_seconds() - cpu) * 1e9 / ns_since(begin) * 100, "%");
}

struct workload {
    const char *name;
    std::function<void(int64_t n, int threads)> run;
    int64_t count; /* default for -n */
    const char *unit_of_count;
    bool cold; /* measured without a warm-up */
    bool spin; /* threads without work spin and steal, instead of sleeping */
};

static const workload workloads[] = {
    {"spawn_join", [](int64_t n, int) { spawn_join(n); }, 1000000, "fibers", false, false},
    {"spawn_batch", [](int64_t n, int) { spawn_batch(n); }, 5000000, "fibers", false, false},
    {"yield2", [](int64_t n, int) { yield_among("yield2", 2, n); }, 10000000, "yields", false, false},
    {"yield1k", [](int64_t n, int) { yield_among("yield1k", 1000, n); }, 10000000, "yields", false, false},
    {"pingpong", [](int64_t n, int) { pingpong(n); }, 3000000, "round trips", false, false},
    {"chan_buf", [](int64_t n, int) { produce_and_consume("chan_buf", 1, 1024, n); }, 20000000, "items", false, false},
    {"mpmc", [](int64_t n, int) { produce_and_consume("mpmc", 4, 128, n); }, 20000000, "items", false, false},
    {"mutex", [](int64_t n, int) { mutex(n); }, 40000000, "locks", false, false},
    {"skynet", [](int64_t n, int) { skynet(n); }, 2, "trees of 1,000,000 leaves", false, true},
    {"ring", [](int64_t n, int) { ring(n); }, 5000000, "hops", false, false},
    {"sieve", [](int64_t n, int) { sieve(n); }, 2, "sieves to the 2000th prime", false, false},
    {"fib", [](int64_t n, int) { fib27(n); }, 5, "times fib(27)", false, true},
    {"timers", [](int64_t n, int) { timers(n); }, 100000, "fibers", false, false},
    {"memory", memory, 1000000, "fibers", true, false},
    {"timer", [](int64_t n, int) { timer(n); }, 1000, "sleeps", false, false},
    {"wake", [](int64_t n, int) { wake(n); }, 2000, "wakes", false, false},
    {"idle", [](int64_t n, int) { idle(n); }, 3000, "ms", false, false},
};

static void usage(FILE *out)
{
    std::fputs("Usage: boostbench [-p PROCS] [-n COUNT] WORKLOAD\n"
               "       boostbench list\n"
               "\n"
               "Runs a workload on Boost.Fiber and prints a line for each figure: name value unit.\n"
               "A tenth of COUNT is run first as a warm-up, except for memory.\n"
               "\n"
               "  -p PROCS  number of threads (default: one for each CPU)\n"
               "  -n COUNT  amount of work\n"
               "\n"
               "Workloads and what COUNT is by default:\n",
               out);
    for (const auto &w : workloads)
        std::fprintf(out, "  %-12s %8lld %s\n", w.name, static_cast<long long>(w.count), w.unit_of_count);
}

[[noreturn]] static void misuse(const char *what)
{
    std::fprintf(stderr, "boostbench: %s; try boostbench -h\n", what);
    std::exit(2);
}

static int64_t number(const char *text)
{
    char *end;
    long long n = std::strtoll(text, &end, 10);
    if (end == text || *end != '\0' || n < 1 || n > INT64_C(1) << 40)
        misuse("a number is out of range");
    return n;
}

static void run(const workload &w, int64_t n, int threads)
{
    for (int i = 1; i < threads; i++)
        std::thread([&w, threads] {
            fibers::use_scheduling_algorithm<fibers::algo::work_stealing>(static_cast<uint32_t>(threads), !w.spin);
            fibers::promise<void>().get_future().wait(); /* runs the fibers that it steals, until the program ends */
        }).detach();
    if (threads > 1) /* waits for the other threads */
        fibers::use_scheduling_algorithm<fibers::algo::work_stealing>(static_cast<uint32_t>(threads), !w.spin);

    start(launch::post, [&w, n, threads] {
        if (!w.cold) {
            w.run(share(n, 10), threads);
            figures.clear();
        }
        w.run(n, threads);
    }).join();
    for (const auto &f : figures)
        std::printf("%s %.3f %s\n", f.name.c_str(), f.value, f.unit);
    std::fflush(stdout);
    std::_Exit(0); /* the other threads still run */
}

int main(int argc, char **argv)
{
    int64_t threads = std::max(1u, std::thread::hardware_concurrency()), n = 0;
    for (int option; (option = getopt(argc, argv, "p:n:h")) != -1;) {
        switch (option) {
        case 'p':
            threads = number(optarg);
            break;
        case 'n':
            n = number(optarg);
            break;
        case 'h':
            usage(stdout);
            return 0;
        default:
            return 2;
        }
    }
    if (optind + 1 != argc)
        misuse("one workload is needed");
    if (std::strcmp(argv[optind], "list") == 0) {
        for (const auto &w : workloads)
            std::printf("%s %lld\n", w.name, static_cast<long long>(w.count));
        return 0;
    }
    for (const auto &w : workloads)
        if (std::strcmp(argv[optind], w.name) == 0)
            run(w, n > 0 ? n : w.count, static_cast<int>(threads));
    misuse("no such workload");
}
