// mutex.hpp: gs::mutex, gs::shared_mutex, gs::recursive_mutex and gs::once.
#pragma once

#include "error.hpp"
#include "scope.hpp"
#include "time.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

/// sync.Mutex, for std::lock_guard, std::unique_lock and std::scoped_lock. Any goroutine may unlock it, not only the
/// one that locked it. For goroutines and plain threads.
class mutex {
    gs_mutex m_{};

public:
    using native_handle_type = gs_mutex *;
    constexpr mutex() noexcept = default;
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    /// Locks the mutex. A cancel never ends the wait.
    void lock()
    {
        if (__builtin_expect(gs_mutex_lock(&m_, GS_FOREVER) != 0, 0))
            lock_cancelled();
    }
    [[nodiscard]] bool try_lock() noexcept { return gs_mutex_trylock(&m_) == 0; }
    /// Locks the mutex within a time. False: the time is up. A cancel never ends the wait.
    template <class Rep, class Period>
    [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period> &d)
    {
        return lock_by(deadline(d).native());
    }
    template <class Clock, class Duration>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration> &at)
    {
        return lock_by(deadline(at).native());
    }
    /// Unlocking a mutex that isn't locked is misuse.
    void unlock() { detail::must(gs_mutex_unlock(&m_), "gs::mutex::unlock"); }
    native_handle_type native_handle() noexcept { return &m_; }

private:
    __attribute__((noinline, cold)) void lock_cancelled()
    {
        no_cancel guard;
        detail::must((gs_mutex_lock)(&m_, GS_FOREVER), "gs::mutex::lock");
    }
    bool lock_by(gs_deadline at)
    {
        no_cancel guard;
        const int r = gs_mutex_lock(&m_, at);
        if (r != -ETIMEDOUT)
            detail::must(r, "gs::mutex::try_lock_until");
        return r == 0;
    }
};

/// sync.RWMutex, for std::shared_lock too. New readers wait while a writer waits. A cancel never ends a wait.
class shared_mutex {
    gs_rwmutex m_{};

    template <class F>
    static bool by(F &&f, gs_deadline at, const char *where)
    {
        no_cancel guard;
        const int r = f(at);
        if (r == -ETIMEDOUT || r == -EAGAIN)
            return false;
        detail::must(r, where);
        return true;
    }
    bool write(gs_deadline at, const char *where)
    {
        return by([this](gs_deadline d) { return gs_rwmutex_lock(&m_, d); }, at, where);
    }
    bool read(gs_deadline at, const char *where)
    {
        return by([this](gs_deadline d) { return gs_rwmutex_rlock(&m_, d); }, at, where);
    }

public:
    using native_handle_type = gs_rwmutex *;
    constexpr shared_mutex() noexcept = default;
    shared_mutex(const shared_mutex &) = delete;
    shared_mutex &operator=(const shared_mutex &) = delete;

    void lock() { (void)write(GS_FOREVER, "gs::shared_mutex::lock"); }
    [[nodiscard]] bool try_lock() { return write(GS_NOWAIT, "gs::shared_mutex::try_lock"); }
    template <class Rep, class Period>
    [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period> &d)
    {
        return write(deadline(d).native(), "gs::shared_mutex::try_lock_for");
    }
    template <class Clock, class Duration>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration> &at)
    {
        return write(deadline(at).native(), "gs::shared_mutex::try_lock_until");
    }
    void unlock() { detail::must(gs_rwmutex_unlock(&m_), "gs::shared_mutex::unlock"); }

    void lock_shared() { (void)read(GS_FOREVER, "gs::shared_mutex::lock_shared"); }
    [[nodiscard]] bool try_lock_shared() { return read(GS_NOWAIT, "gs::shared_mutex::try_lock_shared"); }
    template <class Rep, class Period>
    [[nodiscard]] bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &d)
    {
        return read(deadline(d).native(), "gs::shared_mutex::try_lock_shared_for");
    }
    template <class Clock, class Duration>
    [[nodiscard]] bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &at)
    {
        return read(deadline(at).native(), "gs::shared_mutex::try_lock_shared_until");
    }
    void unlock_shared() { detail::must(gs_rwmutex_runlock(&m_), "gs::shared_mutex::unlock_shared"); }
    native_handle_type native_handle() noexcept { return &m_; }
};

namespace detail {

/// A number that only the running goroutine, or plain thread, has. Not inlined: the compiler would keep the address of
/// the thread-local across a switch to another thread.
__attribute__((noinline)) inline std::uint64_t who() noexcept
{
    alignas(2) static thread_local char place;
    const gs_g *g = gs_self();
    return g != nullptr ? gs_id(g) * 2 + 1 : static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&place));
}

}  // namespace detail

/// A mutex that the goroutine which has locked it may lock again: std::recursive_mutex, and its timed kind. It is free
/// once unlocked as often as locked. Its owner is a goroutine, on whatever thread, or a plain thread. A cancel never
/// ends a wait.
class recursive_mutex {
    mutex m_;
    std::atomic<std::uint64_t> owner_{0};
    std::uint32_t times_ = 0; // how often the owner has locked

    /// Whether the caller owns the mutex. Only the caller itself writes its own number, so no order is needed.
    bool is_mine() const noexcept { return owner_.load(std::memory_order_relaxed) == detail::who(); }
    bool again() noexcept { return times_ != std::numeric_limits<std::uint32_t>::max() && ++times_ != 0; }
    bool first(bool locked) noexcept
    {
        if (locked) {
            owner_.store(detail::who(), std::memory_order_relaxed);
            times_ = 1;
        }
        return locked;
    }

public:
    using native_handle_type = gs_mutex *;
    constexpr recursive_mutex() noexcept = default;
    recursive_mutex(const recursive_mutex &) = delete;
    recursive_mutex &operator=(const recursive_mutex &) = delete;

    /// Locks. Fails with std::errc::resource_unavailable_try_again if the owner has locked the mutex 4,294,967,295
    /// times already.
    void lock()
    {
        if (is_mine()) {
            if (!again())
                detail::raise(-EAGAIN, "gs::recursive_mutex::lock");
            return;
        }
        m_.lock();
        (void)first(true);
    }
    [[nodiscard]] bool try_lock() noexcept { return is_mine() ? again() : first(m_.try_lock()); }
    /// Locks within a time. False: the time is up.
    template <class Rep, class Period>
    [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period> &d)
    {
        return is_mine() ? again() : first(m_.try_lock_for(d));
    }
    template <class Clock, class Duration>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration> &at)
    {
        return is_mine() ? again() : first(m_.try_lock_until(at));
    }
    /// Unlocks once. Misuse if the caller isn't the owner.
    void unlock()
    {
        if (!is_mine())
            detail::raise(-EPERM, "gs::recursive_mutex::unlock");
        if (--times_ > 0)
            return;
        owner_.store(0, std::memory_order_relaxed);
        m_.unlock();
    }
    native_handle_type native_handle() noexcept { return m_.native_handle(); }
};

/// Runs a function once: the first call() calls f, and other calls wait until f has returned. If f throws, call()
/// throws that exception, and the next call() calls f again, as std::call_once does. A cancel never ends the wait.
class once {
    mutex m_;
    std::atomic<bool> done_{false};
    std::atomic<std::uint64_t> by_{0}; // the caller that runs f

public:
    constexpr once() noexcept = default;
    once(const once &) = delete;
    once &operator=(const once &) = delete;

    /// Calls f, or waits for it. Fails with std::errc::resource_deadlock_would_occur if f itself calls this.
    template <class F, class... Args>
    result<void> call(F &&f, Args &&...args)
    {
        if (done_.load(std::memory_order_acquire)) // pairs with the store below: f's work is visible
            return result<void>();
        if (by_.load(std::memory_order_relaxed) == detail::who()) // only the caller itself writes its own number
            return detail::failed<void>(-EDEADLK, "gs::once::call");
        std::lock_guard<mutex> guard(m_);
        if (done_.load(std::memory_order_relaxed))
            return result<void>();
        struct leave {
            std::atomic<std::uint64_t> &by;
            ~leave() { by.store(0, std::memory_order_relaxed); }
        } at_end{by_};
        by_.store(detail::who(), std::memory_order_relaxed);
        (void)std::invoke(std::forward<F>(f), std::forward<Args>(args)...);
        done_.store(true, std::memory_order_release);
        return result<void>();
    }
    /// Whether f was called and has returned.
    bool done() const noexcept { return done_.load(std::memory_order_acquire); }
};

GS_HPP_END_NAMESPACE
