// runtime.hpp: gs::init, gs::shutdown, gs::run and gs::blocking.
#pragma once

#include "call.hpp"
#include "error.hpp"
#include "time.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <type_traits>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

/// The settings with which gs::init starts the runtime. A setting of 0 or null comes from the environment, or else is
/// the default: see gs_config.
struct config {
    std::uint32_t procs = 0;             ///< the most goroutines that run at the same time
    std::uint32_t max_threads = 0;       ///< the most threads that are started for goroutines
    std::size_t stack_size = 0;          ///< a goroutine's stack, in bytes
    const char *topology = nullptr;      ///< NUMA nodes, in hwloc's notation
    std::chrono::nanoseconds time_slice{0};
    std::uint32_t flags = 0;             ///< GS_CONFIG_...
    std::int32_t preempt_signal = 0;     ///< -1: none
};

/// Starts the runtime. Without gs::init, the first call that needs a runtime starts it. Fails with
/// std::errc::device_or_resource_busy if a runtime exists already.
inline result<void> init(const config &c = config{})
{
    gs_config native = GS_CONFIG_INIT;
    native.gomaxprocs = c.procs;
    native.max_threads = c.max_threads;
    native.stack_size = c.stack_size;
    native.topology = c.topology;
    native.time_slice_ns = static_cast<std::uint64_t>(c.time_slice.count());
    native.flags = c.flags;
    native.preempt_signal = c.preempt_signal;
    return detail::done(gs_init(&native), "gs::init");
}

/// Waits until every goroutine has ended, ends all threads of the library and frees all that the library has. For plain
/// threads. Fails with std::errc::timed_out, and changes nothing, if goroutines are left at the deadline.
inline result<void> shutdown(deadline until = deadline::forever())
{
    return detail::done(gs_shutdown(until.native()), "gs::shutdown");
}

/// Runs f(args...) as a goroutine, on the calling thread to begin with, and returns what f returns, or throws what f
/// throws. Other goroutines may still run then: gs::shutdown waits for them. For plain threads; in a goroutine it fails
/// with std::errc::device_or_resource_busy.
template <class F, class... Args>
inline result<std::invoke_result_t<F, Args...>> run(F &&f, Args &&...args)
{
    using T = std::invoke_result_t<F, Args...>;
    auto call = [&]() -> T { return std::invoke(std::forward<F>(f), std::forward<Args>(args)...); };
    struct frame {
        decltype(call) &fn;
        detail::outcome<T> out;
    } here{call, {}};
    const int r = gs_run([](void *p) { static_cast<frame *>(p)->out.fill(static_cast<frame *>(p)->fn); }, &here);
    if (r < 0)
        return detail::failed<T>(r, "gs::run");
    return here.out.take("gs::run");
}

/// Calls f(args...) on the thread's own large stack with the P given up: gs_blocking. For code that needs a deep stack,
/// or that blocks in a call of another library. Returns what f returns, or throws what f throws.
template <class F, class... Args>
inline std::invoke_result_t<F, Args...> blocking(F &&f, Args &&...args)
{
    using T = std::invoke_result_t<F, Args...>;
    auto call = [&]() -> T { return std::invoke(std::forward<F>(f), std::forward<Args>(args)...); };
    struct frame {
        decltype(call) &fn;
        detail::outcome<T> out;
    } here{call, {}};
    (void)gs_blocking(
        [](void *p) -> void * {
            static_cast<frame *>(p)->out.fill(static_cast<frame *>(p)->fn);
            return p;
        },
        &here);
#if GS_HPP_EXCEPTIONS
    if (here.out.thrown)
        std::rethrow_exception(std::move(here.out.thrown));
#endif
    return here.out.value.take();
}

GS_HPP_END_NAMESPACE
