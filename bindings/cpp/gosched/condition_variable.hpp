// condition_variable.hpp: gs::condition_variable and gs::condition_variable_any.
#pragma once

#include "error.hpp"
#include "mutex.hpp"
#include "stop.hpp"
#include "time.hpp"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

GS_HPP_BEGIN_NAMESPACE

namespace detail {

/// The result of a wait with a limit on a condition variable. r: the wait's value, a negative errno value or 0.
inline result<std::cv_status> cv_result(int r, const char *where)
{
    if (r == 0)
        return std::cv_status::no_timeout;
    if (r == -ETIMEDOUT)
        return std::cv_status::timeout;
    return failed<std::cv_status>(r, where);
}

/// Calls wait() until pred(), or until wait() returns -ETIMEDOUT. Returns the last pred().
template <class Pred, class Wait>
inline result<bool> wait_for_true(Pred &pred, Wait &&wait, const char *where)
{
    while (!pred()) {
        const int r = wait();
        if (r == -ETIMEDOUT)
            return static_cast<bool>(pred());
        if (r < 0)
            return failed<bool>(r, where);
    }
    return true;
}

}  // namespace detail

/// sync.Cond, for std::unique_lock<gs::mutex>. The lock is held again when a wait returns or throws. A wait fails
/// with std::errc::operation_canceled in a cancelled goroutine.
class condition_variable {
    gs_cond c_{};

    result<std::cv_status> by(std::unique_lock<mutex> &lock, gs_deadline at, const char *where)
    {
        return detail::cv_result(gs_cond_wait(&c_, lock.mutex()->native_handle(), at), where);
    }
    template <class Pred>
    result<bool> by(std::unique_lock<mutex> &lock, gs_deadline at, Pred &pred, const char *where)
    {
        const auto wait_once = [&] { return gs_cond_wait(&c_, lock.mutex()->native_handle(), at); };
        return detail::wait_for_true(pred, wait_once, where);
    }

public:
    using native_handle_type = gs_cond *;
    constexpr condition_variable() noexcept = default;
    condition_variable(const condition_variable &) = delete;
    condition_variable &operator=(const condition_variable &) = delete;

    void notify_one() noexcept { (void)gs_cond_signal(&c_); }
    void notify_all() noexcept { (void)gs_cond_broadcast(&c_); }

    result<void> wait(std::unique_lock<mutex> &lock)
    {
        return detail::done(gs_cond_wait(&c_, lock.mutex()->native_handle(), GS_FOREVER), "gs::condition_variable::wait");
    }
    /// Waits until pred().
    template <class Pred>
    result<void> wait(std::unique_lock<mutex> &lock, Pred pred)
    {
        int r = 0;
        while (r == 0 && !pred())
            r = gs_cond_wait(&c_, lock.mutex()->native_handle(), GS_FOREVER);
        return detail::done(r, "gs::condition_variable::wait");
    }
    template <class Rep, class Period>
    result<std::cv_status> wait_for(std::unique_lock<mutex> &lock, const std::chrono::duration<Rep, Period> &d)
    {
        return by(lock, deadline(d).native(), "gs::condition_variable::wait_for");
    }
    /// Waits until pred(), or until the time is up. Returns the last pred().
    template <class Rep, class Period, class Pred>
    result<bool> wait_for(std::unique_lock<mutex> &lock, const std::chrono::duration<Rep, Period> &d, Pred pred)
    {
        return by(lock, deadline(d).native(), pred, "gs::condition_variable::wait_for");
    }
    template <class Clock, class Duration>
    result<std::cv_status> wait_until(std::unique_lock<mutex> &lock, const std::chrono::time_point<Clock, Duration> &at)
    {
        return by(lock, deadline(at).native(), "gs::condition_variable::wait_until");
    }
    template <class Clock, class Duration, class Pred>
    result<bool> wait_until(std::unique_lock<mutex> &lock, const std::chrono::time_point<Clock, Duration> &at, Pred pred)
    {
        return by(lock, deadline(at).native(), pred, "gs::condition_variable::wait_until");
    }
    native_handle_type native_handle() noexcept { return &c_; }
};

namespace detail {

/// Guards the lists of waiters of gs::condition_variable_any. Not a member of that class: a notified waiter takes the
/// mutex once more, when the condition variable may be gone.
struct alignas(64) list_mutex {
    mutex m;
};
inline list_mutex list_mutexes[64];

inline mutex &list_mutex_of(const void *p) noexcept
{
    const auto at = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(p)) >> 4;
    return list_mutexes[at * UINT64_C(0x9e3779b97f4a7c15) >> 58].m;
}

}  // namespace detail

/// gs::condition_variable for locks of any type with lock() and unlock(), such as std::shared_lock<gs::shared_mutex>.
/// May be destroyed as soon as all waiters are notified, even if they still have to lock.
class condition_variable_any {
    /// An entry of the list, on the waiter's stack. It is in the list before the waiter unlocks, so a later notify
    /// finds it. The mutex of the list isn't held while the lock's functions run: a lock may have a condition variable
    /// of its own.
    class waiter {
        condition_variable_any &of_;
        mutex &m_;
        waiter *next_ = nullptr, *prev_ = nullptr;
        gs_cond woken_{};
        bool notified_ = false, stopped_ = false;
        bool over_ = false; // used only by the waiter itself
        friend class condition_variable_any;

        void leave() noexcept
        {
            if (!notified_) // a notified waiter's condition variable may be gone
                of_.remove(this);
            over_ = true;
        }

    public:
        explicit waiter(condition_variable_any &of) : of_(of), m_(detail::list_mutex_of(&of))
        {
            std::lock_guard<mutex> guard(m_);
            prev_ = of_.last_;
            (prev_ != nullptr ? prev_->next_ : of_.first_) = this;
            of_.last_ = this;
        }
        waiter(const waiter &) = delete;
        waiter &operator=(const waiter &) = delete;
        ~waiter()
        {
            if (over_)
                return;
            std::lock_guard<mutex> guard(m_);
            leave();
        }
        int wait(gs_deadline at)
        {
            std::lock_guard<mutex> guard(m_);
            int r = 0;
            while (r == 0 && !notified_ && !stopped_)
                r = gs_cond_wait(&woken_, m_.native_handle(), at);
            leave();
            return notified_ ? 0 : stopped_ ? detail::stop_asked : r;
        }
        void stop()
        {
            std::lock_guard<mutex> guard(m_);
            stopped_ = true;
            (void)gs_cond_signal(&woken_);
        }
    };
    template <class Lock>
    struct relock {
        Lock &lock;
        ~relock() { lock.lock(); }
    };
    waiter *first_ = nullptr, *last_ = nullptr;

    // Called with the mutex of the list held:
    void remove(waiter *w) noexcept
    {
        (w->prev_ != nullptr ? w->prev_->next_ : first_) = w->next_;
        (w->next_ != nullptr ? w->next_->prev_ : last_) = w->prev_;
    }
    void notify_first() noexcept
    {
        waiter *w = first_;
        remove(w);
        w->notified_ = true;
        (void)gs_cond_signal(&w->woken_);
    }

    template <class Lock>
    int wait_by(Lock &lock, gs_deadline at)
    {
        waiter self(*this);
        lock.unlock();
        relock<Lock> last{lock};
        return self.wait(at);
    }
    template <class Lock>
    result<std::cv_status> by(Lock &lock, gs_deadline at, const char *where)
    {
        return detail::cv_result(wait_by(lock, at), where);
    }
#if GS_HPP_STOP_TOKENS
    template <class Lock>
    int wait_by(Lock &lock, gs_deadline at, const std::stop_token &st)
    {
        waiter self(*this);
        detail::stop_guard guard(st); // destroyed before the waiter
        if (!guard.ok())
            return -ENOMEM;
        guard.arm([](void *w) { static_cast<waiter *>(w)->stop(); }, &self);
        lock.unlock();
        relock<Lock> last{lock};
        return self.wait(at);
    }
    template <class Lock, class Pred>
    result<bool> by(Lock &lock, const std::stop_token &st, gs_deadline at, Pred &pred, const char *where)
    {
        while (!st.stop_requested()) {
            if (pred())
                return true;
            const int r = wait_by(lock, at, st);
            if (r == -ETIMEDOUT)
                break;
            if (r < 0 && r != detail::stop_asked)
                return detail::failed<bool>(r, where);
        }
        return static_cast<bool>(pred());
    }
#endif
    template <class Lock, class Pred>
    result<bool> by(Lock &lock, gs_deadline at, Pred &pred, const char *where)
    {
        return detail::wait_for_true(pred, [&] { return wait_by(lock, at); }, where);
    }

public:
    condition_variable_any() noexcept = default;
    condition_variable_any(const condition_variable_any &) = delete;
    condition_variable_any &operator=(const condition_variable_any &) = delete;

    void notify_one()
    {
        std::lock_guard<mutex> guard(detail::list_mutex_of(this));
        if (first_ != nullptr)
            notify_first();
    }
    void notify_all()
    {
        std::lock_guard<mutex> guard(detail::list_mutex_of(this));
        while (first_ != nullptr)
            notify_first();
    }
    template <class Lock>
    result<void> wait(Lock &lock)
    {
        return detail::done(wait_by(lock, GS_FOREVER), "gs::condition_variable_any::wait");
    }
    template <class Lock, class Pred>
    result<void> wait(Lock &lock, Pred pred)
    {
        int r = 0;
        while (r == 0 && !pred())
            r = wait_by(lock, GS_FOREVER);
        return detail::done(r, "gs::condition_variable_any::wait");
    }
    template <class Lock, class Rep, class Period>
    result<std::cv_status> wait_for(Lock &lock, const std::chrono::duration<Rep, Period> &d)
    {
        return by(lock, deadline(d).native(), "gs::condition_variable_any::wait_for");
    }
    /// Waits until pred(), or until the time is up. Returns the last pred().
    template <class Lock, class Rep, class Period, class Pred>
    result<bool> wait_for(Lock &lock, const std::chrono::duration<Rep, Period> &d, Pred pred)
    {
        return by(lock, deadline(d).native(), pred, "gs::condition_variable_any::wait_for");
    }
    template <class Lock, class Clock, class Duration>
    result<std::cv_status> wait_until(Lock &lock, const std::chrono::time_point<Clock, Duration> &at)
    {
        return by(lock, deadline(at).native(), "gs::condition_variable_any::wait_until");
    }
    template <class Lock, class Clock, class Duration, class Pred>
    result<bool> wait_until(Lock &lock, const std::chrono::time_point<Clock, Duration> &at, Pred pred)
    {
        return by(lock, deadline(at).native(), pred, "gs::condition_variable_any::wait_until");
    }
#if GS_HPP_STOP_TOKENS
    /// Waits until pred(), or until a stop is requested. Returns the last pred().
    template <class Lock, class Pred>
    result<bool> wait(Lock &lock, std::stop_token st, Pred pred)
    {
        return by(lock, st, GS_FOREVER, pred, "gs::condition_variable_any::wait");
    }
    template <class Lock, class Rep, class Period, class Pred>
    result<bool> wait_for(Lock &lock, std::stop_token st, const std::chrono::duration<Rep, Period> &d, Pred pred)
    {
        return by(lock, st, deadline(d).native(), pred, "gs::condition_variable_any::wait_for");
    }
    template <class Lock, class Clock, class Duration, class Pred>
    result<bool> wait_until(Lock &lock, std::stop_token st, const std::chrono::time_point<Clock, Duration> &at, Pred pred)
    {
        return by(lock, st, deadline(at).native(), pred, "gs::condition_variable_any::wait_until");
    }
#endif
};

GS_HPP_END_NAMESPACE
