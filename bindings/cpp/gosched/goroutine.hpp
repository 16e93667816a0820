// goroutine.hpp: gs::go, gs::goroutine, gs::this_goroutine and gs::cancel_on_stop.
#pragma once

#include "call.hpp"
#include "error.hpp"
#include "stop.hpp"
#include "time.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

// ---- The running goroutine ----

namespace this_goroutine {

/// Lets other goroutines run. Gosched.
inline void yield() noexcept
{
    gs_yield();
}

/// The number of the running goroutine; 0 on a plain thread.
inline std::uint64_t id() noexcept
{
    return gs_id(gs_self());
}

/// Whether the running goroutine was cancelled. For loops that compute without a call that would block.
inline bool cancelled() noexcept
{
    return gs_cancelled() != 0;
}

/// Fails with std::errc::operation_canceled if the running goroutine was cancelled.
inline result<void> check_cancelled()
{
    return detail::done(gs_cancelled() != 0 ? -ECANCELED : 0, "gs::this_goroutine::check_cancelled");
}

template <class Rep, class Period>
inline result<void> sleep_for(const std::chrono::duration<Rep, Period> &d)
{
    return detail::done(gs_sleep(detail::ns_of(d)), "gs::this_goroutine::sleep_for");
}

template <class Clock, class Duration>
inline result<void> sleep_until(const std::chrono::time_point<Clock, Duration> &at)
{
    return detail::done(gs_sleep_until(deadline(at).native()), "gs::this_goroutine::sleep_until");
}

#if GS_HPP_STOP_TOKENS
/// Sleeps. False: a stop was requested before the time was up.
template <class Rep, class Period>
inline result<bool> sleep_for(const std::stop_token &st, const std::chrono::duration<Rep, Period> &d)
{
    return detail::in_time(detail::sleep_or_stop(st, deadline(d).native()), "gs::this_goroutine::sleep_for");
}
template <class Clock, class Duration>
inline result<bool> sleep_until(const std::stop_token &st, const std::chrono::time_point<Clock, Duration> &at)
{
    return detail::in_time(detail::sleep_or_stop(st, deadline(at).native()), "gs::this_goroutine::sleep_until");
}
#endif

}  // namespace this_goroutine

// ---- Goroutines ----

/// Options for starting a goroutine. With C++20: gs::go({.name = "reader", .node = 1}, f).
struct options {
    const char *name = nullptr;       ///< for reports; copied
    std::size_t stack_size = 0;       ///< bytes, at most 1 GiB; 0: the runtime's
    int priority = GS_PRIO_NORMAL;    ///< GS_PRIO_...
    int node = -1;                    ///< the NUMA node on which the goroutine begins; -1: any
    bool pinned = false;              ///< the goroutine stays on one thread: GS_SPAWN_PINNED
    bool no_preempt = false;          ///< GS_SPAWN_NOPREEMPT
    bool no_signal = false;           ///< GS_SPAWN_NOSIGNAL
    gs_workers *workers = nullptr;    ///< the group on whose threads a pinned goroutine begins
};

/// An argument of gs::go, for a goroutine without a handle. An exception that leaves the goroutine ends the program.
struct detached_t {
    explicit detached_t() = default;
};
inline constexpr detached_t detached{};

namespace detail {

inline gs_spawn_opts native(const options &o) noexcept
{
    gs_spawn_opts n = GS_SPAWN_OPTS_INIT;
    n.name = o.name;
    n.stack_size = o.stack_size;
    n.priority = o.priority;
    n.node = o.node;
    n.flags = (o.pinned ? GS_SPAWN_PINNED : 0) | (o.no_preempt ? GS_SPAWN_NOPREEMPT : 0) |
              (o.no_signal ? GS_SPAWN_NOSIGNAL : 0);
    n.workers = o.workers;
    return n;
}

/// The state that a goroutine and its handle share. The side that is done last destroys it.
class go_base {
    std::atomic<unsigned> flags_{0};
    void (*destroy_)(go_base *);

protected:
    explicit go_base(void (*fn)(go_base *)) noexcept : destroy_(fn) {}
    ~go_base() = default;

public:
    enum : unsigned {
        ended = 1,     ///< the goroutine is done with the state
        dropped = 2,   ///< the handle is done with the state
        unheeded = 4,  ///< the handle was destroyed while an exception was in flight: don't report the goroutine's own
    };

    go_base(const go_base &) = delete;
    go_base &operator=(const go_base &) = delete;

    /// Notes that one side is done with this object. True: that side was the last.
    bool leave(unsigned as) noexcept
    {
        // Acquire-release: the side that destroys the object sees all that the other side has done to it.
        return flags_.fetch_or(as, std::memory_order_acq_rel) & (as & ended ? dropped : ended);
    }
    bool heeded() const noexcept { return !(flags_.load(std::memory_order_relaxed) & unheeded); }
    void destroy() noexcept { destroy_(this); }
};

template <class T>
class go_result : public go_base {
public:
    outcome<T> out;

    /// Destroys the state; called by the side that is done last. Ends the program if the goroutine's exception was
    /// never taken, unless that was a cancel, or the handle was destroyed during another exception.
    void end() noexcept
    {
#if GS_HPP_EXCEPTIONS
        if (__builtin_expect(out.thrown != nullptr, 0) && heeded() && !is_cancel(out.thrown))
            terminate_with(out.thrown);
#endif
        destroy();
    }

protected:
    using go_base::go_base;
};

template <class T, class F, class... Args>
class go_state final : public go_result<T> {
    call<F, Args...> call_;

public:
    template <class... As>
    explicit go_state(As &&...as)
        : go_result<T>([](go_base *b) { delete static_cast<go_state *>(b); }), call_(std::forward<As>(as)...)
    {
    }

    static void entry(void *p) noexcept
    {
        auto *s = static_cast<go_state *>(p);
        s->out.fill(s->call_);
        s->call_.drop();
        if (s->leave(go_base::ended))
            s->end();
    }
    /// Destroys the state of a goroutine that was never started.
    void unstarted() noexcept
    {
        call_.drop();
        delete this;
    }
};

}  // namespace detail

/// The handle of a goroutine that returns a T. Made by gs::go, moved and not copied.
///
/// Destroying the handle doesn't wait: it detaches the goroutine, as `go f()` in Go does. So gs::go(f) as a statement
/// doesn't wait for f. (gs::task_group waits.)
///
/// An exception must not get lost. If an exception leaves the goroutine and get() isn't called before the handle is
/// destroyed, the program ends by std::terminate, whichever comes first. It doesn't in two cases: the goroutine ended
/// because it was cancelled (std::errc::operation_canceled), or an exception in flight destroys the handle, and so
/// reports a failure already.
///
/// One goroutine or plain thread at a time may use a handle.
template <class T = void>
class goroutine {
    detail::go_result<T> *state_ = nullptr;
    gs_g *g_ = nullptr;

#if GS_HPP_STOP_TOKENS
    result<bool> join_by(const std::stop_token &st, gs_deadline at, const char *where) const
    {
        return detail::in_time(detail::wait_or_stop(st, at, [this](gs_deadline d) { return gs_join(g_, d); }), where);
    }
#endif

public:
    using value_type = T;

    /// A handle without a goroutine.
    goroutine() noexcept = default;
    goroutine(detail::go_result<T> *state, gs_g *g) noexcept : state_(state), g_(g) {} // for gs::go
    goroutine(goroutine &&o) noexcept : state_(std::exchange(o.state_, nullptr)), g_(std::exchange(o.g_, nullptr)) {}
    goroutine &operator=(goroutine &&o) noexcept
    {
        goroutine(std::move(o)).swap(*this);
        return *this;
    }
    goroutine(const goroutine &) = delete;
    goroutine &operator=(const goroutine &) = delete;
    ~goroutine() { detach(); }
    void swap(goroutine &o) noexcept
    {
        std::swap(state_, o.state_);
        std::swap(g_, o.g_);
    }

    /// Whether the handle has a goroutine: not after get(), detach() or a move.
    bool valid() const noexcept { return state_ != nullptr; }
    /// valid() under std::thread's name.
    bool joinable() const noexcept { return valid(); }

    /// Waits until the goroutine has ended. After that get() doesn't wait. Fails with
    /// std::errc::resource_deadlock_would_occur in the goroutine itself.
    result<void> join() const { return detail::done(gs_join(g_, GS_FOREVER), "gs::goroutine::join"); }
    /// Waits within a time. False: the goroutine hasn't ended yet.
    template <class Rep, class Period>
    result<bool> join_for(const std::chrono::duration<Rep, Period> &d) const
    {
        return detail::in_time(gs_join(g_, deadline(d).native()), "gs::goroutine::join_for");
    }
    template <class Clock, class Duration>
    result<bool> join_until(const std::chrono::time_point<Clock, Duration> &at) const
    {
        return detail::in_time(gs_join(g_, deadline(at).native()), "gs::goroutine::join_until");
    }
#if GS_HPP_STOP_TOKENS
    /// Waits until a stop is requested. False: the goroutine hadn't ended when the stop was requested, or the time was
    /// up.
    result<bool> join(const std::stop_token &st) const { return join_by(st, GS_FOREVER, "gs::goroutine::join"); }
    template <class Rep, class Period>
    result<bool> join_for(const std::stop_token &st, const std::chrono::duration<Rep, Period> &d) const
    {
        return join_by(st, deadline(d).native(), "gs::goroutine::join_for");
    }
    template <class Clock, class Duration>
    result<bool> join_until(const std::stop_token &st, const std::chrono::time_point<Clock, Duration> &at) const
    {
        return join_by(st, deadline(at).native(), "gs::goroutine::join_until");
    }
#endif

    /// Waits until the goroutine has ended, and returns its result or throws its exception. Afterwards the handle is
    /// empty, like an std::future. But it keeps the goroutine if the wait fails because the caller is cancelled, and
    /// the result if T's move constructor throws. Fails with std::errc::owner_dead if the goroutine has ended with
    /// gs_exit.
    result<T> get()
    {
        const int r = gs_join(g_, GS_FOREVER);
        if (__builtin_expect(r < 0, 0))
            return detail::failed<T>(r, "gs::goroutine::get");
        detail::when_taken at_end(state_->out, [this] {
            std::exchange(state_, nullptr)->destroy(); // the goroutine has ended, so this is the last side
            gs_release(std::exchange(g_, nullptr));
        });
        return state_->out.take("gs::goroutine::get");
    }

    /// Cancels the goroutine: each of its calls that would block, now or later, fails with
    /// std::errc::operation_canceled. The goroutine goes on until it returns or lets that exception through.
    void cancel() const { detail::must(gs_cancel(g_), "gs::goroutine::cancel"); }

    /// Gives up the handle, as the destructor does. Does nothing for an empty handle.
    void detach() noexcept
    {
        if (state_ == nullptr)
            return;
        unsigned as = detail::go_base::dropped;
#if GS_HPP_EXCEPTIONS
        if (std::uncaught_exceptions() > 0)
            as |= detail::go_base::unheeded;
#endif
        if (state_->leave(as))
            state_->end();
        state_ = nullptr;
        gs_release(std::exchange(g_, nullptr));
    }

    /// The goroutine's number, unique in the life of the runtime. 0: the goroutine has not run yet, or the handle is
    /// empty.
    std::uint64_t id() const noexcept { return gs_id(g_); }
    /// The goroutine's options::name.
    std::string name() const
    {
        const int n = gs_name(g_, nullptr, 0);
        std::string s(n > 0 ? static_cast<std::size_t>(n) + 1 : 1, '\0');
        (void)gs_name(g_, s.data(), s.size());
        s.pop_back();
        return s;
    }
    /// The goroutine for functions of gosched.h. Valid as long as the handle has the goroutine.
    gs_g *native_handle() const noexcept { return g_; }
};

namespace detail {

template <class F, class... Args>
inline result<goroutine<result_of<F, Args...>>> start(const gs_spawn_opts *opts, F &&f, Args &&...args)
{
    using T = result_of<F, Args...>;
    auto *s = make<go_state<T, std::decay_t<F>, std::decay_t<Args>...>>(std::forward<F>(f), std::forward<Args>(args)...);
    gs_g *g = nullptr;
    const int r = s == nullptr ? -ENOMEM : gs_spawn_with(s->entry, s, opts, &g);
    if (__builtin_expect(r < 0, 0)) {
        if (s != nullptr)
            s->unstarted();
        return failed<goroutine<T>>(r, "gs::go");
    }
    return goroutine<T>(s, g);
}

/// The function and arguments of a detached goroutine, if they don't fit into gs_spawn's argument.
template <class F, class... Args>
struct loose {
    call<F, Args...> fn;
    template <class... As>
    explicit loose(As &&...as) : fn(std::forward<As>(as)...)
    {
    }
    static void entry(void *p) noexcept // an exception ends the program
    {
        auto *s = static_cast<loose *>(p);
        (void)s->fn();
        s->fn.drop();
        delete s;
    }
};

template <class F, class... Args>
inline result<void> start_loose(const gs_spawn_opts *opts, F &&f, Args &&...args)
{
    using G = std::decay_t<F>;
    if constexpr (sizeof...(Args) == 0 && sizeof(G) <= sizeof(void *) && std::is_trivially_copyable_v<G>) {
        const G fn(std::forward<F>(f));
        void *word = nullptr;
        std::memcpy(&word, static_cast<const void *>(std::addressof(fn)), sizeof(G));
        const gs_fn entry = [](void *p) noexcept {
            alignas(G) unsigned char bytes[sizeof(G)];
            std::memcpy(bytes, &p, sizeof(G));
            (void)std::invoke(std::move(*std::launder(reinterpret_cast<G *>(bytes))));
        };
        return done(opts == nullptr ? gs_spawn(entry, word) : gs_spawn_with(entry, word, opts, nullptr), "gs::go");
    } else {
        auto *s = make<loose<G, std::decay_t<Args>...>>(std::forward<F>(f), std::forward<Args>(args)...);
        const int r = s == nullptr ? -ENOMEM
                      : opts == nullptr ? gs_spawn(s->entry, s)
                                        : gs_spawn_with(s->entry, s, opts, nullptr);
        if (__builtin_expect(r < 0, 0) && s != nullptr) {
            s->fn.drop();
            delete s;
        }
        return done(r, "gs::go");
    }
}

}  // namespace detail

/// Starts f(args...) as a goroutine: `go f(args...)`. f and args are copied or moved, as for std::thread (std::ref for
/// a reference), and destroyed on the goroutine when f has returned. Fails for lack of memory. For goroutines and plain
/// threads.
template <class F, class... Args, std::enable_if_t<detail::can_call<F, Args...>, int> = 0>
inline result<goroutine<detail::result_of<F, Args...>>> go(F &&f, Args &&...args)
{
    return detail::start(nullptr, std::forward<F>(f), std::forward<Args>(args)...);
}

/// gs::go with options. Fails with std::errc::invalid_argument for options that gs_spawn_with refuses, such as a node
/// that doesn't exist.
template <class F, class... Args, std::enable_if_t<detail::can_call<F, Args...>, int> = 0>
inline result<goroutine<detail::result_of<F, Args...>>> go(const options &o, F &&f, Args &&...args)
{
    const gs_spawn_opts n = detail::native(o);
    return detail::start(&n, std::forward<F>(f), std::forward<Args>(args)...);
}

/// gs::go without a handle. A lambda without captures, or with one pointer, takes no memory.
template <class F, class... Args, std::enable_if_t<detail::can_call<F, Args...>, int> = 0>
inline result<void> go(detached_t, F &&f, Args &&...args)
{
    return detail::start_loose(nullptr, std::forward<F>(f), std::forward<Args>(args)...);
}

template <class F, class... Args, std::enable_if_t<detail::can_call<F, Args...>, int> = 0>
inline result<void> go(detached_t, const options &o, F &&f, Args &&...args)
{
    const gs_spawn_opts n = detail::native(o);
    return detail::start_loose(&n, std::forward<F>(f), std::forward<Args>(args)...);
}

#if GS_HPP_STOP_TOKENS
/// Calls f(args...) on a goroutine of its own, which is cancelled when a stop is requested: each wait in f then fails
/// with std::errc::operation_canceled. A cancel of the caller cancels the goroutine too. Returns what f returns, or
/// throws what f throws. For waits that don't take a token, such as those for sockets.
template <class F, class... Args>
inline result<std::invoke_result_t<F, Args...>> cancel_on_stop(const std::stop_token &st, F &&f, Args &&...args)
{
    using T = std::invoke_result_t<F, Args...>;
    detail::stop_guard guard(st);
    if (!guard.ok())
        return detail::failed<T>(-ENOMEM, "gs::cancel_on_stop");
    result<goroutine<T>> g = go([&]() -> T { return std::invoke(std::forward<F>(f), std::forward<Args>(args)...); });
#if GS_HPP_EXCEPTIONS
    goroutine<T> &started = g;
#else
    if (!g)
        return unexpected{g.error()};
    goroutine<T> &started = *g;
#endif
    (void)detail::join_or_stop(guard, started.native_handle());
    return started.get();
}
#endif

GS_HPP_END_NAMESPACE
