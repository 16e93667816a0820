// sync.hpp: gs::waitgroup, gs::semaphore, gs::latch and gs::barrier.
#pragma once

#include "call.hpp"
#include "error.hpp"
#include "mutex.hpp"
#include "stop.hpp"
#include "time.hpp"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <type_traits>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

/// sync.WaitGroup. For goroutines and plain threads.
class waitgroup {
    gs_waitgroup w_{};

#if GS_HPP_STOP_TOKENS
    result<bool> wait_by(const std::stop_token &st, gs_deadline at, const char *where)
    {
        return detail::in_time(
            detail::wait_or_stop(st, at, [this](gs_deadline d) { return gs_waitgroup_wait(&w_, d); }), where);
    }
#endif

    template <class F, class... Args>
    struct state {
        waitgroup *group;
        detail::call<F, Args...> fn;
        template <class... As>
        explicit state(waitgroup *w, As &&...as) : group(w), fn(std::forward<As>(as)...)
        {
        }
        static void entry(void *p) noexcept // an exception ends the program
        {
            auto *s = static_cast<state *>(p);
            (void)s->fn();
            s->fn.drop(); // before done(): the function's references may dangle after that
            waitgroup *w = s->group;
            delete s;
            w->done();
        }
    };

public:
    constexpr waitgroup() noexcept = default;
    waitgroup(const waitgroup &) = delete;
    waitgroup &operator=(const waitgroup &) = delete;

    /// Adds delta to the counter. Misuse if the counter would become negative.
    void add(std::int64_t delta = 1) { detail::must(gs_waitgroup_add(&w_, delta), "gs::waitgroup::add"); }
    void done() { detail::must(gs_waitgroup_done(&w_), "gs::waitgroup::done"); }
    /// Waits until the counter is 0.
    result<void> wait() { return detail::done(gs_waitgroup_wait(&w_, GS_FOREVER), "gs::waitgroup::wait"); }
    /// Waits within a time. False: the counter isn't 0 yet.
    template <class Rep, class Period>
    result<bool> wait_for(const std::chrono::duration<Rep, Period> &d)
    {
        return detail::in_time(gs_waitgroup_wait(&w_, deadline(d).native()), "gs::waitgroup::wait_for");
    }
    template <class Clock, class Duration>
    result<bool> wait_until(const std::chrono::time_point<Clock, Duration> &at)
    {
        return detail::in_time(gs_waitgroup_wait(&w_, deadline(at).native()), "gs::waitgroup::wait_until");
    }
#if GS_HPP_STOP_TOKENS
    /// Waits until a stop is requested. False: the counter isn't 0 yet, and the stop was requested, or the time is up.
    result<bool> wait(const std::stop_token &st) { return wait_by(st, GS_FOREVER, "gs::waitgroup::wait"); }
    template <class Rep, class Period>
    result<bool> wait_for(const std::stop_token &st, const std::chrono::duration<Rep, Period> &d)
    {
        return wait_by(st, deadline(d).native(), "gs::waitgroup::wait_for");
    }
    template <class Clock, class Duration>
    result<bool> wait_until(const std::stop_token &st, const std::chrono::time_point<Clock, Duration> &at)
    {
        return wait_by(st, deadline(at).native(), "gs::waitgroup::wait_until");
    }
#endif
    /// Adds 1, and starts f(args...) as a detached goroutine with a done() at its end. WaitGroup.Go.
    template <class F, class... Args>
    result<void> go(F &&f, Args &&...args)
    {
        using S = state<std::decay_t<F>, std::decay_t<Args>...>;
        S *s = detail::make<S>(this, std::forward<F>(f), std::forward<Args>(args)...);
        if (s == nullptr)
            return detail::done(-ENOMEM, "gs::waitgroup::go");
        add();
        const int r = gs_spawn(s->entry, s);
        if (__builtin_expect(r < 0, 0)) {
            s->fn.drop();
            delete s;
            done();
        }
        return detail::done(r, "gs::waitgroup::go");
    }
    gs_waitgroup *native_handle() noexcept { return &w_; }
};

/// A semaphore with n units at first, first come first served. std::counting_semaphore.
class semaphore {
    gs_sem s_{};

#if GS_HPP_STOP_TOKENS
    result<bool> acquire_by(const std::stop_token &st, gs_deadline at, std::int64_t n, const char *where)
    {
        return detail::in_time(
            detail::wait_or_stop(st, at, [this, n](gs_deadline d) { return gs_sem_acquire(&s_, n, d); }), where);
    }
#endif

public:
    /// Misuse if n is negative.
    explicit semaphore(std::int64_t n = 0) { detail::must(gs_sem_init(&s_, n), "gs::semaphore"); }
    semaphore(const semaphore &) = delete;
    semaphore &operator=(const semaphore &) = delete;

    result<void> acquire(std::int64_t n = 1)
    {
        return detail::done(gs_sem_acquire(&s_, n, GS_FOREVER), "gs::semaphore::acquire");
    }
    result<bool> try_acquire(std::int64_t n = 1)
    {
        return detail::in_time(gs_sem_acquire(&s_, n, GS_NOWAIT), "gs::semaphore::try_acquire");
    }
    template <class Rep, class Period>
    result<bool> try_acquire_for(const std::chrono::duration<Rep, Period> &d, std::int64_t n = 1)
    {
        return detail::in_time(gs_sem_acquire(&s_, n, deadline(d).native()), "gs::semaphore::try_acquire_for");
    }
    template <class Clock, class Duration>
    result<bool> try_acquire_until(const std::chrono::time_point<Clock, Duration> &at, std::int64_t n = 1)
    {
        return detail::in_time(gs_sem_acquire(&s_, n, deadline(at).native()), "gs::semaphore::try_acquire_until");
    }
#if GS_HPP_STOP_TOKENS
    /// Acquires n units until a stop is requested. False: none acquired, because the stop was requested, or the time is
    /// up. The wait begins on another goroutine, so of two callers that come at nearly the same time, the second may be
    /// served first.
    result<bool> acquire(const std::stop_token &st, std::int64_t n = 1)
    {
        return acquire_by(st, GS_FOREVER, n, "gs::semaphore::acquire");
    }
    template <class Rep, class Period>
    result<bool> try_acquire_for(const std::stop_token &st, const std::chrono::duration<Rep, Period> &d, std::int64_t n = 1)
    {
        return acquire_by(st, deadline(d).native(), n, "gs::semaphore::try_acquire_for");
    }
    template <class Clock, class Duration>
    result<bool> try_acquire_until(const std::stop_token &st, const std::chrono::time_point<Clock, Duration> &at,
                                   std::int64_t n = 1)
    {
        return acquire_by(st, deadline(at).native(), n, "gs::semaphore::try_acquire_until");
    }
#endif
    /// Releases n units. Misuse if n is negative.
    void release(std::int64_t n = 1) { detail::must(gs_sem_release(&s_, n), "gs::semaphore::release"); }
    gs_sem *native_handle() noexcept { return &s_; }
};

/// A counter that goes down to 0 once, for which any number of goroutines and plain threads wait: std::latch. May be
/// destroyed as soon as a wait has returned, even if the count_down that ended the wait has not returned yet.
class latch {
    mutable mutex m_;
    mutable gs_cond zero_{};
    std::ptrdiff_t left_;

    int wait_by(gs_deadline at) const
    {
        std::lock_guard<mutex> guard(m_);
        int r = 0;
        while (r == 0 && left_ > 0)
            r = gs_cond_wait(&zero_, m_.native_handle(), at);
        return left_ > 0 ? r : 0;
    }
#if GS_HPP_STOP_TOKENS
    result<bool> wait_by(const std::stop_token &st, gs_deadline at, const char *where) const
    {
        return detail::in_time(detail::wait_or_stop(st, at, [this](gs_deadline d) { return wait_by(d); }), where);
    }
#endif

public:
    static constexpr std::ptrdiff_t max() noexcept { return std::numeric_limits<std::ptrdiff_t>::max(); }
    /// Misuse if expected is negative.
    constexpr explicit latch(std::ptrdiff_t expected) : left_(expected)
    {
        if (expected < 0)
            detail::raise(-EINVAL, "gs::latch");
    }
    latch(const latch &) = delete;
    latch &operator=(const latch &) = delete;

    /// Takes n off the counter. Misuse if n is negative or above the counter.
    void count_down(std::ptrdiff_t n = 1)
    {
        std::lock_guard<mutex> guard(m_);
        if (n < 0 || n > left_)
            detail::raise(-EINVAL, "gs::latch::count_down");
        left_ -= n;
        if (left_ == 0)
            (void)gs_cond_broadcast(&zero_);
    }
    /// Whether the counter is 0. Unlike std::latch's, never wrongly false.
    [[nodiscard]] bool try_wait() const noexcept
    {
        std::lock_guard<mutex> guard(m_);
        return left_ == 0;
    }
    /// Waits until the counter is 0.
    result<void> wait() const { return detail::done(wait_by(GS_FOREVER), "gs::latch::wait"); }
    /// Waits within a time. False: the counter isn't 0 yet.
    template <class Rep, class Period>
    result<bool> wait_for(const std::chrono::duration<Rep, Period> &d) const
    {
        return detail::in_time(wait_by(deadline(d).native()), "gs::latch::wait_for");
    }
    template <class Clock, class Duration>
    result<bool> wait_until(const std::chrono::time_point<Clock, Duration> &at) const
    {
        return detail::in_time(wait_by(deadline(at).native()), "gs::latch::wait_until");
    }
#if GS_HPP_STOP_TOKENS
    /// Waits until a stop is requested. False: the counter isn't 0 yet, and the stop was requested, or the time is up.
    result<bool> wait(const std::stop_token &st) const { return wait_by(st, GS_FOREVER, "gs::latch::wait"); }
    template <class Rep, class Period>
    result<bool> wait_for(const std::stop_token &st, const std::chrono::duration<Rep, Period> &d) const
    {
        return wait_by(st, deadline(d).native(), "gs::latch::wait_for");
    }
    template <class Clock, class Duration>
    result<bool> wait_until(const std::stop_token &st, const std::chrono::time_point<Clock, Duration> &at) const
    {
        return wait_by(st, deadline(at).native(), "gs::latch::wait_until");
    }
#endif
    /// Takes n off the counter, and waits. The counter has gone down even if the wait fails because the caller is
    /// cancelled.
    result<void> arrive_and_wait(std::ptrdiff_t n = 1)
    {
        count_down(n);
        return detail::done(wait_by(GS_FOREVER), "gs::latch::arrive_and_wait");
    }
};

namespace detail {
struct no_completion {
    void operator()() const noexcept {}
};
}  // namespace detail

/// A point where a fixed number of goroutines and plain threads meet again and again: std::barrier. Each phase waits
/// for `expected` arrivals. Then the last to arrive calls the completion function, the waits end, and the next phase
/// begins. If the completion function throws, the program ends.
template <class Completion = detail::no_completion>
class barrier {
    mutable mutex m_;
    mutable gs_cond next_{};
    std::uint64_t phase_ = 0;
    std::ptrdiff_t expected_, left_; // of each phase; of this phase
    Completion completion_;

    void complete() noexcept { (void)std::invoke(completion_); }
    std::uint64_t arrive_by(std::ptrdiff_t n, std::ptrdiff_t drop, const char *where)
    {
        std::unique_lock<mutex> guard(m_);
        if (n <= 0 || n > left_)
            detail::raise(-EINVAL, where);
        const std::uint64_t phase = phase_;
        expected_ -= drop;
        left_ -= n;
        if (left_ == 0) {
            guard.unlock();
            complete();
            guard.lock();
            left_ = expected_;
            phase_++;
            (void)gs_cond_broadcast(&next_);
        }
        return phase;
    }
    int wait_by(std::uint64_t phase) const
    {
        std::lock_guard<mutex> guard(m_);
        int r = 0;
        while (r == 0 && phase_ == phase)
            r = gs_cond_wait(&next_, m_.native_handle(), GS_FOREVER);
        return phase_ == phase ? r : 0;
    }

public:
    /// The phase in which an arrive() has arrived.
    class arrival_token {
        std::uint64_t phase_;
        friend class barrier;
        explicit arrival_token(std::uint64_t phase) noexcept : phase_(phase) {}

    public:
        arrival_token(arrival_token &&) noexcept = default;
        arrival_token &operator=(arrival_token &&) noexcept = default;
    };

    static constexpr std::ptrdiff_t max() noexcept { return std::numeric_limits<std::ptrdiff_t>::max(); }
    /// Misuse if expected is negative.
    constexpr explicit barrier(std::ptrdiff_t expected, Completion f = Completion())
        : expected_(expected), left_(expected), completion_(std::move(f))
    {
        static_assert(std::is_invocable_v<Completion &>, "the completion function has no arguments");
        if (expected < 0)
            detail::raise(-EINVAL, "gs::barrier");
    }
    barrier(const barrier &) = delete;
    barrier &operator=(const barrier &) = delete;

    /// Arrives n times, without waiting. Misuse if n isn't above 0, or is more than the arrivals that this phase still
    /// waits for.
    [[nodiscard]] arrival_token arrive(std::ptrdiff_t n = 1)
    {
        return arrival_token(arrive_by(n, 0, "gs::barrier::arrive"));
    }
    /// Waits until the phase of the token is over.
    result<void> wait(arrival_token &&token) const { return detail::done(wait_by(token.phase_), "gs::barrier::wait"); }
    /// Arrives and waits. The caller has arrived even if the wait fails because the caller is cancelled.
    result<void> arrive_and_wait()
    {
        return detail::done(wait_by(arrive_by(1, 0, "gs::barrier::arrive_and_wait")), "gs::barrier::arrive_and_wait");
    }
    /// Arrives, and leaves the barrier: later phases wait for one arrival less.
    void arrive_and_drop() { (void)arrive_by(1, 1, "gs::barrier::arrive_and_drop"); }
};

GS_HPP_END_NAMESPACE
