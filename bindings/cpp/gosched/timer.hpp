// timer.hpp: gs::after, gs::ticker and gs::timer.
#pragma once

#include "call.hpp"
#include "channel.hpp"
#include "element.hpp"
#include "error.hpp"
#include "scope.hpp"
#include "time.hpp"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <type_traits>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

/// A channel to which the time is sent once, d from now. time.After.
template <class Rep, class Period>
inline recv_chan<time_point> after(const std::chrono::duration<Rep, Period> &d)
{
    return detail::access::adopt<time_point>(gs_after(detail::ns_of(d)));
}

/// Sends the time to a channel every d. A tick is dropped if the channel still has the previous one. The destructor
/// stops the ticker; the channel lives as long as it has handles, and is not closed. time.Ticker.
class ticker {
    recv_chan<time_point> c_;

public:
    /// d must be above 0; else this fails with std::errc::invalid_argument (without exceptions: the ticker is empty).
    template <class Rep, class Period>
    explicit ticker(const std::chrono::duration<Rep, Period> &d)
    {
        const std::int64_t ns = detail::ns_of(d);
#if GS_HPP_EXCEPTIONS
        if (ns <= 0)
            detail::raise(-EINVAL, "gs::ticker");
#endif
        c_ = detail::access::adopt<time_point>(gs_ticker_start(ns));
    }
    ticker(ticker &&) noexcept = default;
    ticker &operator=(ticker &&o) noexcept
    {
        if (this != &o) {
            stop();
            c_ = std::move(o.c_);
        }
        return *this;
    }
    ~ticker() { stop(); }
    const recv_chan<time_point> &chan() const noexcept { return c_; }
    received<time_point> recv() const { return c_.recv(); }
#if GS_HPP_STOP_TOKENS
    received<time_point> recv(const std::stop_token &st) const { return c_.recv(st); }
#endif
    void stop() noexcept
    {
        if (c_)
            (void)gs_ticker_stop(c_.native_handle());
    }
};

/// Calls f in a goroutine of its own, d from now. time.AfterFunc. An exception that leaves f ends the program.
class timer {
    struct base {
        gs_timer *t = nullptr;
        virtual void call() = 0;
        virtual ~base() = default;
    };
    template <class F>
    struct state final : base {
        F f;
        template <class G>
        explicit state(G &&g) : f(std::forward<G>(g))
        {
        }
        ~state() noexcept override {} // F's destructor may be noexcept(false)
        void call() override { (void)f(); }
    };
    base *state_ = nullptr;

    static void entry(void *p) noexcept { static_cast<base *>(p)->call(); }

public:
    template <class Rep, class Period, class F>
    timer(const std::chrono::duration<Rep, Period> &d, F &&f)
        : state_(detail::make<state<std::decay_t<F>>>(std::forward<F>(f)))
    {
        // A function that runs at once may not see t, which only this object uses.
        if (state_ != nullptr && (state_->t = gs_timer_start(detail::ns_of(d), entry, state_)) == nullptr) {
            delete std::exchange(state_, nullptr);
#if GS_HPP_EXCEPTIONS
            detail::raise(-ENOMEM, "gs::timer");
#endif
        }
    }
    timer(timer &&o) noexcept : state_(std::exchange(o.state_, nullptr)) {}
    timer &operator=(timer &&) = delete;
    /// Stops the timer and waits until f doesn't run. So f must not destroy the timer.
    ~timer()
    {
        if (state_ == nullptr)
            return;
        no_cancel guard;
        (void)gs_timer_stop_wait(state_->t, GS_FOREVER);
        (void)gs_timer_free(state_->t);
        delete state_;
    }
    explicit operator bool() const noexcept { return state_ != nullptr; }
    /// Stops the timer. True: it had yet to call f, and won't. False: f may still be running.
    bool stop() { return state_ != nullptr && gs_timer_stop(state_->t) == 1; }
    /// Makes the timer call f d from now. True: it had yet to call f before.
    template <class Rep, class Period>
    result<bool> reset(const std::chrono::duration<Rep, Period> &d)
    {
        const int r = state_ != nullptr ? gs_timer_reset(state_->t, detail::ns_of(d)) : -EINVAL;
        if (r < 0)
            return detail::failed<bool>(r, "gs::timer::reset");
        return r == 1;
    }
};

GS_HPP_END_NAMESPACE
