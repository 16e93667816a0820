// test.hpp: tests of concurrent code by seeds: gs::test::run, gs::test::explore, gs::test::fail and gs::test::seed.
#pragma once

#include "error.hpp"
#include "time.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#if GS_HPP_EXCEPTIONS
#include <cxxabi.h>
#endif

GS_HPP_BEGIN_NAMESPACE

namespace test {

/// Which goroutine goes on at each step.
enum class schedule : std::uint32_t {
    random = GS_TEST_RANDOM,            ///< any that can run
    pct = GS_TEST_PCT,                  ///< that of the highest priority; priorities are random, and change a few times
    round_robin = GS_TEST_ROUND_ROBIN,  ///< the next one: one order, whatever the seed
};

/// The network of a bubble. Chances are out of 1000.
struct network {
    std::chrono::nanoseconds delay = std::chrono::microseconds(100); ///< how long everything takes in one direction
    std::chrono::nanoseconds jitter{0}; ///< by how much longer it may take; datagrams overtake each other then
    std::uint32_t loss = 0;             ///< a datagram is lost; a part of a stream comes 200 ms late or more
    std::uint32_t duplicate = 0;        ///< a datagram comes twice
    std::uint32_t cut = 0;              ///< of the sends: the connection falls silent for good
    std::uint32_t reset = 0;            ///< of the sends: the connection is reset
    std::uint32_t refuse = 0;           ///< of the attempts to connect: it is refused
    std::uint32_t short_io = 0;         ///< of the reads and writes: it does less than it could
};

/// Options of gs::test::run and gs::test::explore. With C++20: gs::test::run({.seed = 17}, f).
struct options {
    std::uint64_t seed = 1;                        ///< decides the run; gs::test::explore: the first run
    test::schedule schedule = test::schedule::random;
    std::uint32_t depth = 0;                       ///< of schedule::pct; 0: 3
    std::uint64_t max_steps = 0;                   ///< of a run; 0: a million
    /// Called after each step. False, or an exception: the run has failed. It looks at what the goroutines share, and
    /// calls nothing of this header.
    std::function<bool()> check = nullptr;
    std::optional<std::string> replay = std::nullopt; ///< a schedule that a report has printed, in place of a seed
    int log = -1;                                  ///< a descriptor to which what happens is written; -1: none
    bool quiet = false;                            ///< nothing is printed
    /// A run fails, as outcome::disturbed, if not only the seed decides it: GS_TEST_STRICT.
    bool strict = false;
    test::network network = {};
    std::uint32_t cancel = 0;                      ///< out of 1000: a goroutine is cancelled before a call
    std::uint32_t no_memory = 0;                   ///< out of 1000: a call finds no memory
};

/// How a run has ended.
enum class outcome : int {
    ok,         ///< all goroutines have ended
    deadlock,   ///< all goroutines wait, and no timer is left
    too_long,   ///< after options::max_steps there was no end
    failed,     ///< by options::check, gs::test::fail, or an exception that nobody has caught
    disturbed,  ///< a thread or a goroutine outside has woken a goroutine of the run, or has been woken by one;
                ///< options::strict
};

/// The name of an outcome, such as "deadlock".
inline const char *to_string(outcome o) noexcept
{
    switch (o) {
    case outcome::ok:
        return "ok";
    case outcome::deadlock:
        return "deadlock";
    case outcome::too_long:
        return "too long";
    case outcome::failed:
        return "failed";
    case outcome::disturbed:
        return "disturbed";
    }
    return "unknown";
}

inline std::ostream &operator<<(std::ostream &to, outcome o)
{
    return to << to_string(o);
}

/// What gs::test::run and gs::test::explore return: true if all runs have ended well.
class [[nodiscard]] result {
    test::outcome outcome_;
    std::uint64_t good_runs_;

public:
    constexpr result(test::outcome o, std::uint64_t good_runs) noexcept : outcome_(o), good_runs_(good_runs) {}
    constexpr explicit operator bool() const noexcept { return outcome_ == test::outcome::ok; }
    /// How the last run has ended, which is the one that failed, if any.
    constexpr test::outcome outcome() const noexcept { return outcome_; }
    /// How many runs have ended well before it.
    constexpr std::uint64_t good_runs() const noexcept { return good_runs_; }

    friend constexpr bool operator==(const result &a, test::outcome b) noexcept { return a.outcome_ == b; }
    friend constexpr bool operator!=(const result &a, test::outcome b) noexcept { return a.outcome_ != b; }
    friend constexpr bool operator==(const result &a, const result &b) noexcept
    {
        return a.outcome_ == b.outcome_ && a.good_runs_ == b.good_runs_;
    }
    friend constexpr bool operator!=(const result &a, const result &b) noexcept { return !(a == b); }
};

/// Such as "deadlock after 12 good runs".
inline std::string to_string(const result &r)
{
    const std::uint64_t n = r.good_runs();
    return std::string(to_string(r.outcome())) + " after " + std::to_string(n) + (n == 1 ? " good run" : " good runs");
}

inline std::ostream &operator<<(std::ostream &to, const result &r)
{
    return to << to_string(r);
}

/// The seed of the run that the caller is in; 0: the caller is in none.
inline std::uint64_t seed() noexcept
{
    return gs_test_seed();
}

/// Ends the run that the caller is in as failed; the report has the message. The caller goes on no more, and nothing of
/// it is destroyed. Outside of a run this does nothing.
inline void fail(const char *message) noexcept
{
    gs_test_fail(message);
}
inline void fail(const std::string &message) noexcept
{
    gs_test_fail(message.c_str());
}

}  // namespace test

namespace detail {

#if GS_HPP_EXCEPTIONS
/// Ends the run that the caller is in because of the exception that is being handled.
inline void fail_by_exception() noexcept
{
    try {
        throw;
    } catch (const std::exception &e) {
        gs_test_fail(e.what());
    } catch (...) {
        const std::type_info *const type = abi::__cxa_current_exception_type();
        int status = -1;
        char *const name = type == nullptr ? nullptr : abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
        char text[200] = "an exception that is no std::exception";
        if (name != nullptr)
            std::snprintf(text, sizeof text, "an exception of the type %s", name);
        std::free(name);
        gs_test_fail(text);
    }
}

/// While one lives, an exception that would end the program ends the run that it is in. The program has one handler, and
/// several threads may make runs.
class exceptions_fail_runs {
    static inline std::mutex mutex_;
    static inline unsigned count_ = 0;
    static inline std::atomic<std::terminate_handler> before_{nullptr};

    static void handler()
    {
        if (gs_test_seed() != 0 && abi::__cxa_current_exception_type() != nullptr)
            fail_by_exception();
        if (const std::terminate_handler before = before_.load())
            before();
        std::abort();
    }

public:
    exceptions_fail_runs()
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (count_++ == 0)
            before_ = std::set_terminate(handler);
    }
    exceptions_fail_runs(const exceptions_fail_runs &) = delete;
    exceptions_fail_runs &operator=(const exceptions_fail_runs &) = delete;
    ~exceptions_fail_runs()
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (--count_ == 0 && std::get_terminate() == handler)
            std::set_terminate(before_);
    }
};
#else
struct exceptions_fail_runs {
};
#endif

/// A function to be run many times, and the seeds that it has seen.
template <class F>
struct test_runs {
    F &fn;
    bool any = false;
    std::uint64_t first = 0, most = 0; // the first seed, and how far from it the last is

    static void entry(void *p) noexcept
    {
        auto *const s = static_cast<test_runs *>(p);
        const std::uint64_t now = gs_test_seed();
        if (!std::exchange(s->any, true))
            s->first = now;
        if (now - s->first > s->most)
            s->most = now - s->first;
#if GS_HPP_EXCEPTIONS
        try {
            (void)std::invoke(s->fn);
        } catch (...) {
            fail_by_exception();
        }
#else
        (void)std::invoke(s->fn);
#endif
    }
};

inline int check_of_test(void *p) noexcept
{
    const auto &check = *static_cast<const std::function<bool()> *>(p);
#if GS_HPP_EXCEPTIONS
    try {
        return check() ? 0 : 1;
    } catch (...) {
        return 1;
    }
#else
    return check() ? 0 : 1;
#endif
}

/// The options for gosched.h. They refer to o.
inline gs_test_opts native(const test::options &o) noexcept
{
    gs_test_opts n = {};
    n.size = sizeof n;
    n.seed = o.seed;
    n.schedule = static_cast<std::uint32_t>(o.schedule);
    n.depth = o.depth;
    n.max_steps = o.max_steps;
    if (o.check) {
        n.check = check_of_test;
        n.check_arg = const_cast<std::function<bool()> *>(&o.check);
    }
    n.replay = o.replay ? o.replay->c_str() : nullptr;
    n.flags = (o.quiet ? GS_TEST_QUIET : 0) | (o.strict ? GS_TEST_STRICT : 0);
    n.cancel = o.cancel;
    n.no_memory = o.no_memory;
    n.log = o.log == -1 ? 0 : o.log;
    const std::int64_t delay = o.network.delay.count();
    n.net.delay = delay == 0 ? 1 : delay; // 0 is gosched.h's default
    n.net.jitter = o.network.jitter.count();
    n.net.loss = o.network.loss;
    n.net.duplicate = o.network.duplicate;
    n.net.cut = o.network.cut;
    n.net.reset = o.network.reset;
    n.net.refuse = o.network.refuse;
    n.net.short_io = o.network.short_io;
    return n;
}

/// The result for r, a value of gosched.h, with as many good runs before a failure.
inline result<test::result> test_result(std::int64_t r, std::uint64_t good_runs, const char *where)
{
    switch (r) {
    case -EDEADLK:
        return test::result(test::outcome::deadlock, good_runs);
    case -ETIMEDOUT:
        return test::result(test::outcome::too_long, good_runs);
    case -EPROTO:
        return test::result(test::outcome::failed, good_runs);
    case -EPERM:
        return test::result(test::outcome::disturbed, good_runs);
    default:
        if (r < 0)
            return failed<test::result>(static_cast<long>(r), where);
        return test::result(test::outcome::ok, static_cast<std::uint64_t>(r));
    }
}

}  // namespace detail

namespace test {

/// Runs f() and all goroutines that it starts in a bubble, and returns when all of them have ended: gs_test_run. They
/// run on the calling thread, in an order that the seed decides, with a virtual clock and a network in memory. An
/// exception that leaves f, or that would end the program in one of the goroutines, ends the run as failed, with its
/// what() in the report; it isn't thrown again. For plain threads. Fails with std::errc::invalid_argument for options
/// that gs_test_run refuses, with std::errc::device_or_resource_busy in a goroutine or in gs::run, with
/// std::errc::resource_unavailable_try_again if 64 threads make runs already, or for lack of memory.
template <class F, std::enable_if_t<std::is_invocable_v<F &>, int> = 0>
inline gs::result<result> run(const options &o, F &&f)
{
    [[maybe_unused]] const detail::exceptions_fail_runs guard{};
    const gs_test_opts n = detail::native(o);
    detail::test_runs<std::remove_reference_t<F>> all{f};
    const int r = gs_test_run(all.entry, &all, &n);
    return detail::test_result(r == 0 ? 1 : r, 0, "gs::test::run");
}
template <class F, std::enable_if_t<std::is_invocable_v<F &>, int> = 0>
inline gs::result<result> run(F &&f)
{
    return run(options(), std::forward<F>(f));
}

/// gs::test::run with `runs` seeds, from options::seed on, until one of the runs fails. Then it looks for the shortest
/// schedule that fails, and prints it: gs_test_explore. f is called for each run, and must make its objects anew. Fails as
/// gs::test::run.
template <class F, std::enable_if_t<std::is_invocable_v<F &>, int> = 0>
inline gs::result<result> explore(const options &o, std::uint64_t runs, F &&f)
{
    [[maybe_unused]] const detail::exceptions_fail_runs guard{};
    const gs_test_opts n = detail::native(o);
    detail::test_runs<std::remove_reference_t<F>> all{f};
    const std::int64_t r = gs_test_explore(all.entry, &all, &n, runs);
    return detail::test_result(r, all.most, "gs::test::explore");
}
template <class F, std::enable_if_t<std::is_invocable_v<F &>, int> = 0>
inline gs::result<result> explore(std::uint64_t runs, F &&f)
{
    return explore(options(), runs, std::forward<F>(f));
}

}  // namespace test

GS_HPP_END_NAMESPACE
