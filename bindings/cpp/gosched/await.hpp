// await.hpp: the waits that C++20 coroutines can await: gs::recv, gs::send, gs::sleep, gs::async and gs::when_all.
#pragma once

#include "call.hpp"
#include "channel.hpp"
#include "element.hpp"
#include "error.hpp"
#include "executor.hpp"
#include "stop.hpp"
#include "time.hpp"

#include <cerrno>
#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#if GS_HPP_COROUTINES

GS_HPP_BEGIN_NAMESPACE

namespace detail {

/// A wait with or without an std::stop_token.
class stoppable {
#if GS_HPP_STOP_TOKENS
    std::stop_token st_;

public:
    stoppable() noexcept = default;
    explicit stoppable(const std::stop_token &st) noexcept : st_(st) {}
    bool is_asked() const noexcept { return st_.stop_requested(); }
    int chan_op(const gs_case &op) const noexcept { return chan_or_stop(st_, op, GS_FOREVER); }
    int sleep(gs_deadline at) const noexcept { return sleep_or_stop(st_, at); }
#else
public:
    bool is_asked() const noexcept { return false; }
    int chan_op(const gs_case &op) const noexcept
    {
        return op.op == GS_RECV ? gs_chan_recv(op.ch, op.elem, GS_FOREVER) : gs_chan_send(op.ch, op.elem, GS_FOREVER);
    }
    int sleep(gs_deadline at) const noexcept { return gs_sleep_until(at); }
#endif
};

template <class T>
class recv_wait final : public executor::wait_base {
    recv_chan<T> c_;
    stoppable stop_;
    received<T> in_{status::closed};
    int r_ = 0;

    void *elem() noexcept { return landing_access::data(in_); }
    void wait_now() noexcept override { r_ = stop_.chan_op(gs_case{c_.native_handle(), elem(), GS_RECV, 0}); }
    void not_started(int r) noexcept override { r_ = r; }

public:
    explicit recv_wait(recv_chan<T> c, stoppable stop = stoppable()) noexcept : c_(std::move(c)), stop_(std::move(stop)) {}
    bool await_ready() noexcept
    {
        r_ = gs_chan_recv(c_.native_handle(), elem(), GS_NOWAIT);
        if (r_ == -EAGAIN && stop_.is_asked())
            r_ = stop_asked;
        return r_ != -EAGAIN;
    }
    received<T> await_resume()
    {
        landing_access::set(in_, status_of(r_, "gs::recv"));
        return std::move(in_);
    }
};

/// Result: void, or status for a wait with a token.
template <class T, class Result>
class send_wait final : public executor::wait_base {
    send_chan<T> c_;
    stoppable stop_;
    outgoing<T> out_;
    int r_ = 0;

    void *elem() noexcept { return const_cast<void *>(out_.data()); }
    void sent(int r) noexcept
    {
        r_ = r;
        if (r_ == 0)
            out_.sent();
    }
    void wait_now() noexcept override { sent(stop_.chan_op(gs_case{c_.native_handle(), elem(), GS_SEND, 0})); }
    void not_started(int r) noexcept override { r_ = r; }

public:
    template <class V>
    send_wait(send_chan<T> c, V &&v, stoppable stop = stoppable())
        : c_(std::move(c)), stop_(std::move(stop)), out_(std::forward<V>(v))
    {
    }
    bool await_ready() noexcept
    {
        sent(out_.ok() ? gs_chan_send(c_.native_handle(), elem(), GS_NOWAIT) : -ENOMEM);
        if (r_ == -EAGAIN && stop_.is_asked())
            r_ = stop_asked;
        return r_ != -EAGAIN;
    }
    auto await_resume()
    {
        out_.restore();
        if constexpr (std::is_void_v<Result>)
            return done(r_, "gs::send");
        else
            return status_of(r_, "gs::send");
    }
};

/// Result: void, or bool for a wait with a token.
template <class Result>
class sleep_wait final : public executor::wait_base {
    deadline until_;
    stoppable stop_;
    int r_ = 0;

    void wait_now() noexcept override { r_ = stop_.sleep(until_.native()); }
    void not_started(int r) noexcept override { r_ = r; }

public:
    explicit sleep_wait(deadline until, stoppable stop = stoppable()) noexcept : until_(until), stop_(std::move(stop)) {}
    bool await_ready() noexcept
    {
        if (until_.native() != GS_FOREVER && until_.native() <= gs_now())
            return true;
        if (stop_.is_asked())
            r_ = stop_asked;
        return r_ != 0;
    }
    result<Result> await_resume() const
    {
        if constexpr (std::is_void_v<Result>)
            return done(r_, "gs::sleep");
        else
            return in_time(r_, "gs::sleep");
    }
};

/// A wait after which `post` continues the coroutine.
template <class Wait, class Post>
class resumed_wait {
    Wait &wait_;
    Post post_;

public:
    template <class P>
    resumed_wait(Wait &wait, P &&post) : wait_(wait), post_(std::forward<P>(post))
    {
    }
    resumed_wait(const resumed_wait &) = delete;
    resumed_wait &operator=(const resumed_wait &) = delete;
    bool await_ready() { return wait_.await_ready(); }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept
    {
        static_assert(!is_executors<Promise>, "a gs::task runs on its executor");
        return wait_.suspend(h, &post_, [](void *how, std::coroutine_handle<> waiter) {
            Post post(std::move(*static_cast<Post *>(how))); // this object may be gone before post returns
            std::invoke(post, waiter);
        });
    }
    decltype(auto) await_resume() { return wait_.await_resume(); }
};

template <class T, class F>
class async_wait final : public executor::wait_base {
    F f_;
    outcome<T> out_;
    int r_ = 0;

    void wait_now() noexcept override { out_.fill(std::move(f_)); }
    void not_started(int r) noexcept override { r_ = r; }

public:
    template <class G>
    explicit async_wait(G &&g) : f_(std::forward<G>(g))
    {
    }
    bool await_ready() const noexcept { return false; }
    result<T> await_resume()
    {
        if (r_ < 0)
            return failed<T>(r_, "gs::async");
        return out_.take("gs::async");
    }
};

#if GS_HPP_EXCEPTIONS
/// The tuple element for a task's result.
template <class T>
using part = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

template <class T>
inline part<T> take_part(outcome<T> &o)
{
    if constexpr (std::is_void_v<T>) {
        o.take("gs::when_all");
        return {};
    } else {
        return o.take("gs::when_all");
    }
}
#else
template <class T>
using part = result<T>;

template <class T>
inline part<T> take_part(outcome<T> &o)
{
    return o.take("gs::when_all");
}
#endif

template <class... T>
class all_wait final : public joint {
    std::tuple<task<T>...> tasks_;
    std::tuple<outcome<T>...> out_;

    template <std::size_t... I>
    void add_all(executor &ex, std::index_sequence<I...>)
    {
        (add(ex, std::move(std::get<I>(tasks_)), std::get<I>(out_)), ...);
    }
    template <std::size_t... I>
    std::tuple<part<T>...> take_all(std::index_sequence<I...>)
    {
        return std::tuple<part<T>...>{take_part(std::get<I>(out_))...};
    }

public:
    explicit all_wait(task<T> &&...t) noexcept : tasks_(std::move(t)...) {}
    bool await_ready() const noexcept { return sizeof...(T) == 0; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> h)
    {
        static_assert(is_executors<Promise>, "gs::when_all is for gs::tasks, in a gs::task");
        add_all(*h.promise().where(), std::index_sequence_for<T...>());
        begin(h);
    }
    std::tuple<part<T>...> await_resume() { return take_all(std::index_sequence_for<T...>()); }
};

template <class T>
class all_of_wait final : public joint {
    std::vector<task<T>> tasks_;
    std::vector<outcome<T>> out_;

public:
    explicit all_of_wait(std::vector<task<T>> &&t) : tasks_(std::move(t)), out_(tasks_.size()) {}
    bool await_ready() const noexcept { return tasks_.empty(); }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> h)
    {
        static_assert(is_executors<Promise>, "gs::when_all is for gs::tasks, in a gs::task");
        for (std::size_t i = 0; i < tasks_.size(); i++)
            add(*h.promise().where(), std::move(tasks_[i]), out_[i]);
        begin(h);
    }
    std::vector<part<T>> await_resume()
    {
        std::vector<part<T>> parts;
        parts.reserve(out_.size());
        for (auto &o : out_)
            parts.push_back(take_part(o));
        return parts;
    }
};

class where_wait {
    executor *ex_ = nullptr;

public:
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept
    {
        static_assert(is_executors<Promise>, "only a gs::task runs on a gs::executor");
        ex_ = h.promise().where();
        return false;
    }
    executor &await_resume() const noexcept { return *ex_; }
};

}  // namespace detail

/// `co_await gs::recv(ch)`: a gs::received<T>, as from ch.recv(). In any coroutine: see gs::resumer.
template <class C, std::enable_if_t<detail::can_recv<C>, int> = 0>
[[nodiscard]] inline auto recv(const C &c)
{
    return detail::recv_wait<typename C::value_type>(recv_chan<typename C::value_type>(c));
}
/// `co_await gs::send(ch, value)`: as ch.send(value).
template <class C, std::enable_if_t<detail::can_send<C>, int> = 0>
[[nodiscard]] inline auto send(const C &c, const typename C::value_type &value)
{
    return detail::send_wait<typename C::value_type, void>(send_chan<typename C::value_type>(c), value);
}
template <class C, std::enable_if_t<detail::can_send<C>, int> = 0>
[[nodiscard]] inline auto send(const C &c, typename C::value_type &&value)
{
    return detail::send_wait<typename C::value_type, void>(send_chan<typename C::value_type>(c), std::move(value));
}
/// `co_await gs::sleep(d)`, or until a time_point. (Without co_await: gs::this_goroutine::sleep_for.)
[[nodiscard]] inline auto sleep(deadline until)
{
    return detail::sleep_wait<void>(until);
}
#if GS_HPP_STOP_TOKENS
/// `co_await gs::recv(token, ch)`: as ch.recv(token).
template <class C, std::enable_if_t<detail::can_recv<C>, int> = 0>
[[nodiscard]] inline auto recv(const std::stop_token &st, const C &c)
{
    using T = typename C::value_type;
    return detail::recv_wait<T>(recv_chan<T>(c), detail::stoppable(st));
}
/// `co_await gs::send(token, ch, value)`: as ch.send(token, value).
template <class C, std::enable_if_t<detail::can_send<C>, int> = 0>
[[nodiscard]] inline auto send(const std::stop_token &st, const C &c, const typename C::value_type &value)
{
    using T = typename C::value_type;
    return detail::send_wait<T, status>(send_chan<T>(c), value, detail::stoppable(st));
}
template <class C, std::enable_if_t<detail::can_send<C>, int> = 0>
[[nodiscard]] inline auto send(const std::stop_token &st, const C &c, typename C::value_type &&value)
{
    using T = typename C::value_type;
    return detail::send_wait<T, status>(send_chan<T>(c), std::move(value), detail::stoppable(st));
}
/// `co_await gs::sleep(token, d)`: false if a stop was requested before the time was up.
[[nodiscard]] inline auto sleep(const std::stop_token &st, deadline until)
{
    return detail::sleep_wait<bool>(until, detail::stoppable(st));
}
#endif
/// `co_await gs::resume_on(post, gs::recv(ch))`, with the wait written in place, in a coroutine that isn't a gs::task.
/// When the wait is over, post(h) is called on a goroutine of the wait's own, with the std::coroutine_handle<> of the
/// coroutine. post resumes h, once, or has another thread do so. If the wait is over at once, the coroutine continues
/// at once, and post isn't called.
template <class Post, class Wait>
[[nodiscard]] inline auto resume_on(Post &&post, Wait &&wait)
{
    static_assert(!std::is_lvalue_reference_v<Wait>, "the wait is written in place");
    return detail::resumed_wait<Wait, std::decay_t<Post>>(wait, std::forward<Post>(post));
}
/// `co_await gs::async(f)`: runs f() as a goroutine, for waits of any kind, and gives what f returns.
template <class F>
[[nodiscard]] inline auto async(F &&f)
{
    return detail::async_wait<detail::result_of<F>, std::decay_t<F>>(std::forward<F>(f));
}
/// `auto [a, b] = co_await gs::when_all(f(), g())`: runs the tasks side by side on the executor, and gives a tuple of
/// what they return, with std::monostate for void. The wait is over when all tasks have ended. If several have thrown,
/// the exception of the first of these arguments is thrown. Without exceptions the tuple has a gs::result for each.
template <class... T>
[[nodiscard]] inline auto when_all(task<T>... t)
{
    return detail::all_wait<T...>(std::move(t)...);
}
/// gs::when_all of tasks whose number is known only at run time. Gives an std::vector of their results.
template <class T>
[[nodiscard]] inline auto when_all(std::vector<task<T>> t)
{
    return detail::all_of_wait<T>(std::move(t));
}
/// `co_await gs::this_executor()`: the executor that the coroutine runs on.
[[nodiscard]] inline detail::where_wait this_executor()
{
    return {};
}

GS_HPP_END_NAMESPACE

#endif  // GS_HPP_COROUTINES
