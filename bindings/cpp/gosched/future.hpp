// future.hpp: gs::promise, gs::future, gs::shared_future and gs::packaged_task.
#pragma once

#include "call.hpp"
#include "error.hpp"
#include "mutex.hpp"
#include "stop.hpp"
#include "time.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

template <class R>
class future;
template <class R>
class shared_future;

namespace detail {

#if GS_HPP_EXCEPTIONS
template <class T>
[[noreturn]] __attribute__((noinline, cold)) inline T failed(std::future_errc why)
{
    throw std::future_error(why);
}
#else
template <class T>
inline result<T> failed(std::future_errc why)
{
    return unexpected{std::make_error_code(why)};
}
#endif

/// The result type of a shared_future.
template <class R>
using shared_result = std::conditional_t<std::is_object_v<R>, std::add_lvalue_reference_t<const R>, R>;

/// The state that a promise or task shares with its futures. The last owner destroys it.
template <class R>
class future_state {
    std::atomic<std::size_t> refs_{1};
    std::atomic<bool> retrieved_{false};
    void (*destroy_)(future_state *);
    mutex setting_; // held while the result is made
    bool set_ = false;
    gs_waitgroup unset_{}; // 1 until there is a result
    outcome<R> out_;
#if !GS_HPP_EXCEPTIONS
    std::error_code error_;
#endif

    template <class F>
    bool set_by(F &&f)
    {
        std::lock_guard<mutex> guard(setting_);
        if (set_)
            return false;
        f(); // if f throws, there is no result yet
        set_ = true;
        (void)gs_waitgroup_done(&unset_);
        return true;
    }

public:
    explicit future_state(void (*destroy)(future_state *)) noexcept : destroy_(destroy)
    {
        (void)gs_waitgroup_add(&unset_, 1);
    }
    future_state(const future_state &) = delete;
    future_state &operator=(const future_state &) = delete;

    void retain() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); } // the caller has a reference
    void release() noexcept
    {
        // Release: the uses of this reference come before the destruction, which acquires.
        if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            destroy_(this);
    }
    /// True for the first call only.
    bool retrieve() noexcept { return !retrieved_.exchange(true, std::memory_order_relaxed); }

    // Makes the result by f. False: there is a result already.
    template <class F>
    bool set_value(F &&f)
    {
        return set_by([&] { out_.value.fill(std::forward<F>(f)); });
    }
    /// Makes the result by f; an exception that f throws is the result too.
    template <class F>
    bool run(F &&f)
    {
        return set_by([&] { out_.fill(std::forward<F>(f)); });
    }
#if GS_HPP_EXCEPTIONS
    bool set_exception(std::exception_ptr thrown)
    {
        return set_by([&] { out_.thrown = std::move(thrown); });
    }
    /// Breaks the promise if there is no result.
    void abandon()
    {
        (void)set_by([&] { out_.thrown = std::make_exception_ptr(std::future_error(std::future_errc::broken_promise)); });
    }
#else
    bool set_error(std::error_code why)
    {
        return set_by([&] { error_ = why; });
    }
    void abandon() { (void)set_error(std::make_error_code(std::future_errc::broken_promise)); }
#endif

    int wait(gs_deadline at) noexcept { return gs_waitgroup_wait(&unset_, at); }

    // The result, after a wait:
    outcome<R> &out() noexcept { return out_; }
    result<R> take(const char *where)
    {
#if !GS_HPP_EXCEPTIONS
        if (error_)
            return unexpected{error_};
#endif
        return out_.take(where);
    }
    result<shared_result<R>> look() const
    {
#if GS_HPP_EXCEPTIONS
        if (out_.thrown)
            std::rethrow_exception(out_.thrown);
        return out_.value.look();
#else
        if (error_)
            return unexpected{error_};
        if constexpr (std::is_void_v<R>)
            return result<void>();
        else
            return result<shared_result<R>>(out_.value.look());
#endif
    }
};

/// A reference to a future_state. Without memory it is empty, or std::bad_alloc is thrown.
template <class R>
class future_ref {
    future_state<R> *s_ = nullptr;

public:
    future_ref() noexcept = default;
    static future_ref made()
    {
        using S = future_state<R>;
        future_ref ref;
        ref.s_ = make<S>([](S *s) { delete s; });
        return ref;
    }
    template <class Alloc>
    static future_ref made_by(const Alloc &alloc)
    {
        struct state;
        using state_alloc = typename std::allocator_traits<Alloc>::template rebind_alloc<state>;
        using traits = std::allocator_traits<state_alloc>;
        struct state final : future_state<R> {
            state_alloc own;
            explicit state(const state_alloc &a) noexcept
                : future_state<R>([](future_state<R> *s) {
                      auto *self = static_cast<state *>(s);
                      state_alloc last(std::move(self->own));
                      self->~state();
                      traits::deallocate(last, std::pointer_traits<typename traits::pointer>::pointer_to(*self), 1);
                  }),
                  own(a)
            {
            }
        };
        state_alloc own(alloc);
        future_ref ref;
        ref.s_ = ::new (static_cast<void *>(std::addressof(*traits::allocate(own, 1)))) state(own);
        return ref;
    }
    future_ref(const future_ref &o) noexcept : s_(o.s_)
    {
        if (s_ != nullptr)
            s_->retain();
    }
    future_ref(future_ref &&o) noexcept : s_(std::exchange(o.s_, nullptr)) {}
    future_ref &operator=(future_ref o) noexcept
    {
        std::swap(s_, o.s_);
        return *this;
    }
    ~future_ref()
    {
        if (s_ != nullptr)
            s_->release();
    }
    explicit operator bool() const noexcept { return s_ != nullptr; }
    future_state<R> &operator*() const noexcept { return *s_; }
    future_state<R> *operator->() const noexcept { return s_; }
};

/// Returns the only future of a state.
template <class R>
inline result<future<R>> future_of(const future_ref<R> &s)
{
    if (!s)
        return failed<future<R>>(std::future_errc::no_state);
    if (!s->retrieve())
        return failed<future<R>>(std::future_errc::future_already_retrieved);
    return future<R>(s);
}

/// The common part of gs::future and gs::shared_future.
template <class R>
class future_base {
protected:
    future_ref<R> s_;

    future_base() noexcept = default;
    explicit future_base(future_ref<R> s) noexcept : s_(std::move(s)) {}
    ~future_base() = default;
    future_base(const future_base &) noexcept = default;
    future_base(future_base &&) noexcept = default;
    future_base &operator=(const future_base &) noexcept = default;
    future_base &operator=(future_base &&) noexcept = default;

    template <class Wait>
    result<std::future_status> wait_by(Wait &&wait, const char *where) const
    {
        if (!s_)
            return failed<std::future_status>(std::future_errc::no_state);
        const int r = wait(*s_);
        if (r == 0)
            return std::future_status::ready;
        if (r == -ETIMEDOUT || r == -EAGAIN || r == stop_asked)
            return std::future_status::timeout;
        return failed<std::future_status>(r, where);
    }
    result<std::future_status> wait_by(gs_deadline at, const char *where) const
    {
        return wait_by([at](future_state<R> &s) { return s.wait(at); }, where);
    }
#if GS_HPP_STOP_TOKENS
    result<std::future_status> wait_by(const std::stop_token &st, gs_deadline at, const char *where) const
    {
        return wait_by(
            [&](future_state<R> &s) { return wait_or_stop(st, at, [&s](gs_deadline d) { return s.wait(d); }); }, where);
    }
#endif

public:
    /// Whether it has a shared state. Without one the other functions fail with std::future_errc::no_state.
    bool valid() const noexcept { return static_cast<bool>(s_); }
    /// Waits until there is a result.
    result<void> wait() const
    {
        if (!s_)
            return failed<void>(std::future_errc::no_state);
        return done(s_->wait(GS_FOREVER), "gs::future::wait");
    }
    /// Waits within a time: ready or timeout.
    template <class Rep, class Period>
    result<std::future_status> wait_for(const std::chrono::duration<Rep, Period> &d) const
    {
        return wait_by(deadline(d).native(), "gs::future::wait_for");
    }
    template <class Clock, class Duration>
    result<std::future_status> wait_until(const std::chrono::time_point<Clock, Duration> &at) const
    {
        return wait_by(deadline(at).native(), "gs::future::wait_until");
    }
#if GS_HPP_STOP_TOKENS
    /// Waits until a stop is requested: ready, or timeout if the stop comes first, or the time is up.
    result<std::future_status> wait(const std::stop_token &st) const { return wait_by(st, GS_FOREVER, "gs::future::wait"); }
    template <class Rep, class Period>
    result<std::future_status> wait_for(const std::stop_token &st, const std::chrono::duration<Rep, Period> &d) const
    {
        return wait_by(st, deadline(d).native(), "gs::future::wait_for");
    }
    template <class Clock, class Duration>
    result<std::future_status> wait_until(const std::stop_token &st, const std::chrono::time_point<Clock, Duration> &at) const
    {
        return wait_by(st, deadline(at).native(), "gs::future::wait_until");
    }
#endif
};

/// The common part of the three kinds of gs::promise.
template <class R>
class promise_common {
    future_ref<R> s_;

protected:
    template <class F>
    result<void> set(F &&f)
    {
        if (!s_)
            return failed<void>(std::future_errc::no_state);
        if (!std::forward<F>(f)(*s_))
            return failed<void>(std::future_errc::promise_already_satisfied);
        return result<void>();
    }
    template <class F>
    result<void> set_value_by(F &&f)
    {
        return set([&](future_state<R> &s) { return s.set_value(std::forward<F>(f)); });
    }

public:
    promise_common() : s_(future_ref<R>::made()) {}
    template <class Alloc>
    promise_common(std::allocator_arg_t, const Alloc &alloc) : s_(future_ref<R>::made_by(alloc))
    {
    }
    promise_common(promise_common &&) noexcept = default;
    promise_common &operator=(promise_common &&o) noexcept
    {
        promise_common(std::move(o)).swap(*this);
        return *this;
    }
    promise_common(const promise_common &) = delete;
    promise_common &operator=(const promise_common &) = delete;
    /// If there is no result, the futures fail with std::future_errc::broken_promise.
    ~promise_common()
    {
        if (s_)
            s_->abandon();
    }
    void swap(promise_common &o) noexcept { std::swap(s_, o.s_); }

    /// The future. A second call fails with std::future_errc::future_already_retrieved.
    result<future<R>> get_future() { return future_of(s_); }
#if GS_HPP_EXCEPTIONS
    /// Makes the exception the result. A null pointer is misuse.
    void set_exception(std::exception_ptr thrown)
    {
        if (thrown == nullptr)
            raise(-EINVAL, "gs::promise::set_exception");
        set([&](future_state<R> &s) { return s.set_exception(std::move(thrown)); });
    }
#else
    /// Makes an error the result, in place of set_exception(). A `why` that is no error is misuse.
    result<void> set_error(std::error_code why)
    {
        if (!why)
            raise(-EINVAL, "gs::promise::set_error");
        return set([&](future_state<R> &s) { return s.set_error(why); });
    }
#endif
};

}  // namespace detail

/// A result from another goroutine or plain thread: std::future. Made by gs::promise and gs::packaged_task. The
/// destructor doesn't wait.
///
/// A wait fails with std::errc::operation_canceled in a cancelled goroutine. Other failures are the standard's: an
/// std::future_error. Used by one goroutine or thread at a time.
template <class R>
class future : public detail::future_base<R> {
    friend class shared_future<R>;
    friend result<future> detail::future_of<R>(const detail::future_ref<R> &);
    explicit future(detail::future_ref<R> s) noexcept : detail::future_base<R>(std::move(s)) {}

public:
    future() noexcept = default;
    future(future &&) noexcept = default;
    future &operator=(future &&) noexcept = default;
    future(const future &) = delete;
    future &operator=(const future &) = delete;

    /// Waits, and returns the result or throws the exception. Afterwards the future has no state, unless a cancel has
    /// ended the wait, or R's move constructor has thrown.
    result<R> get()
    {
        if (!this->s_)
            return detail::failed<R>(std::future_errc::no_state);
        const int r = this->s_->wait(GS_FOREVER);
        if (__builtin_expect(r < 0, 0))
            return detail::failed<R>(r, "gs::future::get");
        detail::when_taken at_end(this->s_->out(), [this] { this->s_ = detail::future_ref<R>(); });
        return this->s_->take("gs::future::get");
    }
    /// Moves the state to a shared_future: this future has none afterwards.
    shared_future<R> share() noexcept { return shared_future<R>(std::move(*this)); }
};

/// A result for which any number of goroutines and plain threads wait, each through a copy of its own:
/// std::shared_future.
template <class R>
class shared_future : public detail::future_base<R> {
public:
    shared_future() noexcept = default;
    shared_future(future<R> &&o) noexcept : detail::future_base<R>(std::move(o.s_)) {}
    shared_future(const shared_future &) noexcept = default;
    shared_future(shared_future &&) noexcept = default;
    shared_future &operator=(const shared_future &) noexcept = default;
    shared_future &operator=(shared_future &&) noexcept = default;

    /// Waits, and returns a reference to the result or throws the exception, each time it is called.
    result<detail::shared_result<R>> get() const
    {
        using T = detail::shared_result<R>;
        if (!this->s_)
            return detail::failed<T>(std::future_errc::no_state);
        const int r = this->s_->wait(GS_FOREVER);
        if (__builtin_expect(r < 0, 0))
            return detail::failed<T>(r, "gs::shared_future::get");
        return this->s_->look();
    }
};

/// Gives a result to its future: std::promise, without the functions named ..._at_thread_exit. The result can be given
/// once; after that set_value and set_exception fail with std::future_errc::promise_already_satisfied. If R's
/// constructor throws in set_value, there is no result yet.
template <class R>
class promise : public detail::promise_common<R> {
public:
    using detail::promise_common<R>::promise_common;
    result<void> set_value(const R &value)
    {
        return this->set_value_by([&]() -> R { return value; });
    }
    result<void> set_value(R &&value)
    {
        return this->set_value_by([&]() -> R { return std::move(value); });
    }
};
template <class R>
class promise<R &> : public detail::promise_common<R &> {
public:
    using detail::promise_common<R &>::promise_common;
    result<void> set_value(R &value)
    {
        return this->set_value_by([&]() -> R & { return value; });
    }
};
template <>
class promise<void> : public detail::promise_common<void> {
public:
    using detail::promise_common<void>::promise_common;
    result<void> set_value()
    {
        return this->set_value_by([] {});
    }
};
template <class R>
inline void swap(promise<R> &a, promise<R> &b) noexcept
{
    a.swap(b);
}

/// A function whose result goes to a future: std::packaged_task, without make_ready_at_thread_exit. Moved and not
/// copied. For gs::go, among others: `gs::go(gs::detached, std::move(task), arguments...)`.
template <class>
class packaged_task;
template <class R, class... Args>
class packaged_task<R(Args...)> {
    struct callable {
        std::atomic<bool> called{false};
        callable() = default;
        callable(const callable &) = delete;
        callable &operator=(const callable &) = delete;
        virtual ~callable() = default;
        virtual void call(detail::future_state<R> &to, Args &&...args) = 0;
    };
    template <class F>
    struct callable_of final : callable {
        F f;
        template <class G>
        explicit callable_of(G &&g) : f(std::forward<G>(g))
        {
        }
        ~callable_of() noexcept override {} // F's destructor may be noexcept(false)
        void call(detail::future_state<R> &to, Args &&...args) override
        {
            (void)to.run([&]() -> R {
                if constexpr (std::is_void_v<R>)
                    (void)std::invoke(f, std::forward<Args>(args)...);
                else
                    return std::invoke(f, std::forward<Args>(args)...);
            });
        }
    };
    std::unique_ptr<callable> f_;
    detail::future_ref<R> s_;

public:
    /// A task without a function.
    packaged_task() noexcept = default;
    template <class F, std::enable_if_t<!std::is_same_v<std::decay_t<F>, packaged_task>, int> = 0>
    explicit packaged_task(F &&f)
    {
        static_assert(std::is_invocable_r_v<R, std::decay_t<F> &, Args...>, "the function has this signature");
        f_.reset(detail::make<callable_of<std::decay_t<F>>>(std::forward<F>(f)));
        if (f_ != nullptr)
            s_ = detail::future_ref<R>::made();
    }
    packaged_task(packaged_task &&) noexcept = default;
    packaged_task &operator=(packaged_task &&o) noexcept
    {
        packaged_task(std::move(o)).swap(*this);
        return *this;
    }
    packaged_task(const packaged_task &) = delete;
    packaged_task &operator=(const packaged_task &) = delete;
    /// If the function was not called, the future fails with std::future_errc::broken_promise.
    ~packaged_task()
    {
        if (s_)
            s_->abandon();
    }
    void swap(packaged_task &o) noexcept
    {
        std::swap(f_, o.f_);
        std::swap(s_, o.s_);
    }

    bool valid() const noexcept { return static_cast<bool>(s_); }
    /// The future. A second call fails with std::future_errc::future_already_retrieved.
    result<future<R>> get_future() { return detail::future_of(s_); }
    /// Calls the function, and gives the future what it returns or throws. A second call fails with
    /// std::future_errc::promise_already_satisfied.
    result<void> operator()(Args... args)
    {
        if (!s_)
            return detail::failed<void>(std::future_errc::no_state);
        if (f_->called.exchange(true, std::memory_order_relaxed))
            return detail::failed<void>(std::future_errc::promise_already_satisfied);
        f_->call(*s_, std::forward<Args>(args)...);
        return result<void>();
    }
    /// Makes a new shared state, so that the function can be called again. The old state is abandoned.
    result<void> reset()
    {
        if (!s_)
            return detail::failed<void>(std::future_errc::no_state);
        auto fresh = detail::future_ref<R>::made();
        if (!fresh)
            return detail::done(-ENOMEM, "gs::packaged_task::reset");
        s_->abandon();
        s_ = std::move(fresh);
        f_->called.store(false, std::memory_order_relaxed);
        return result<void>();
    }
};
template <class R, class... Args>
inline void swap(packaged_task<R(Args...)> &a, packaged_task<R(Args...)> &b) noexcept
{
    a.swap(b);
}

namespace detail {

/// The signature of a class's only operator().
template <class>
struct signature;
#define GS_HPP_SIGNATURE(qualifiers)                                  \
    template <class R, class C, class... Args>                        \
    struct signature<R (C::*)(Args...) qualifiers> {                  \
        using type = R(Args...);                                      \
    };
GS_HPP_SIGNATURE()
GS_HPP_SIGNATURE(const)
GS_HPP_SIGNATURE(&)
GS_HPP_SIGNATURE(const &)
GS_HPP_SIGNATURE(noexcept)
GS_HPP_SIGNATURE(const noexcept)
GS_HPP_SIGNATURE(& noexcept)
GS_HPP_SIGNATURE(const &noexcept)
#undef GS_HPP_SIGNATURE

}  // namespace detail

template <class R, class... Args>
packaged_task(R (*)(Args...)) -> packaged_task<R(Args...)>;
template <class F, class S = typename detail::signature<decltype(&F::operator())>::type>
packaged_task(F) -> packaged_task<S>;

GS_HPP_END_NAMESPACE

template <class R, class Alloc>
struct std::uses_allocator<gs::promise<R>, Alloc> : std::true_type {
};
