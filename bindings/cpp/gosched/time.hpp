// time.hpp: gs::deadline and its clock.
#pragma once

#include "compiler.hpp"

#include <chrono>
#include <cstdint>
#include <limits>
#include <type_traits>

GS_HPP_BEGIN_NAMESPACE

/// The clock of the library's deadlines: CLOCK_MONOTONIC, as std::chrono::steady_clock; in a bubble (gs::test::run) the
/// bubble's.
struct clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<clock>;
    static constexpr bool is_steady = true;

    static time_point now() noexcept { return time_point(duration(gs_now())); }
};
using time_point = clock::time_point;
static_assert(sizeof(time_point) == sizeof(std::int64_t), "the elements of gs_after and gs_ticker_start");

namespace detail {

/// The length in ns, rounded up. A length above 292 years becomes 292 years.
template <class Rep, class Period>
constexpr std::int64_t ns_of(const std::chrono::duration<Rep, Period> &d) noexcept
{
    using per = std::ratio_divide<Period, std::nano>;
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    if constexpr (std::is_integral_v<Rep> && per::den == 1) {
        std::int64_t ns = 0;
        if (!__builtin_mul_overflow(d.count(), static_cast<std::int64_t>(per::num), &ns))
            return ns;
        return d.count() < 0 ? -most : most;
    } else {
        const long double ns = static_cast<long double>(d.count()) * per::num / per::den;
        if (!(ns > -9.2e18L)) // or not a number
            return ns < 0 ? -most : 0;
        if (ns > 9.2e18L)
            return most;
        const auto whole = static_cast<std::int64_t>(ns);
        return static_cast<long double>(whole) < ns ? whole + 1 : whole;
    }
}

}  // namespace detail

/// The time until which a call may wait. Made from a length of time, which begins now, or from a time of any clock.
class deadline {
    gs_deadline at_;
    struct raw {
    };
    constexpr deadline(raw, gs_deadline at) noexcept : at_(at) {}

public:
    /// A length of time from now. If it is 0 or below, the deadline has passed already.
    template <class Rep, class Period>
    deadline(const std::chrono::duration<Rep, Period> &d) noexcept : at_(gs_after_ns(detail::ns_of(d)))
    {
    }
    template <class Clock, class Duration>
    deadline(const std::chrono::time_point<Clock, Duration> &at) noexcept
    {
        // In a bubble a time of steady_clock is none of the bubble's.
        if (std::is_same_v<Clock, clock> || (std::is_same_v<Clock, std::chrono::steady_clock> && gs_test_seed() == 0)) {
            const std::int64_t ns = detail::ns_of(at.time_since_epoch());
            at_ = ns < 1 ? 1 : ns; // smaller values are GS_NOWAIT and GS_FOREVER
        } else {
            const std::int64_t to = detail::ns_of(at.time_since_epoch());
            const std::int64_t now = detail::ns_of(Clock::now().time_since_epoch());
            std::int64_t left = 0;
            if (__builtin_sub_overflow(to, now, &left)) // more than 292 years
                left = to < now ? 0 : std::numeric_limits<std::int64_t>::max();
            at_ = left <= 0 ? 1 : gs_after_ns(left);
        }
    }
    /// A deadline that never comes: the call waits without end.
    static constexpr deadline forever() noexcept { return {raw{}, GS_FOREVER}; }
    /// A deadline that has passed: the call doesn't wait.
    static constexpr deadline now() noexcept { return {raw{}, GS_NOWAIT}; }
    /// A deadline of gosched.h.
    static constexpr deadline from_native(gs_deadline at) noexcept { return {raw{}, at}; }
    /// The deadline for functions of gosched.h.
    constexpr gs_deadline native() const noexcept { return at_; }
};

GS_HPP_END_NAMESPACE
