// call.hpp: a place for what a function returns or throws, and a function with its arguments.
#pragma once

#include "error.hpp"

#include <cerrno>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

namespace detail {

/// A place for what a function returns, void and references included. The function constructs its result in place,
/// without a move.
template <class T>
struct box {
    union {
        T value;
    };
    bool is_full = false;

    box() noexcept {}
    box(const box &) = delete;
    box &operator=(const box &) = delete;
    ~box()
    {
        if (is_full)
            value.~T();
    }
    template <class F>
    void fill(F &&f)
    {
        ::new (const_cast<void *>(static_cast<const volatile void *>(std::addressof(value)))) T(std::forward<F>(f)());
        is_full = true;
    }
    bool full() const noexcept { return is_full; }
    T take() { return std::move(value); }
    const T &look() const noexcept { return value; }
    /// Takes the value of o, by construction and not by assignment: a T needn't be assignable.
    void take_from(box &o)
    {
        fill([&] { return o.take(); });
    }
};

template <class T>
struct box<T &> {
    T *value = nullptr;
    template <class F>
    void fill(F &&f)
    {
        value = std::addressof(std::forward<F>(f)());
    }
    bool full() const noexcept { return value != nullptr; }
    T &take() { return *value; }
    T &look() const noexcept { return *value; }
    void take_from(box &o) noexcept { value = o.value; }
};

template <>
struct box<void> {
    bool value = false;
    template <class F>
    void fill(F &&f)
    {
        std::forward<F>(f)();
        value = true;
    }
    bool full() const noexcept { return value; }
    void take() {}
    void look() const noexcept {}
    void take_from(box &o) noexcept { value = o.value; }
};

/// A result, or the exception in its place. One goroutine or thread fills it, and another takes from it.
template <class T>
struct outcome {
    box<T> value;
#if GS_HPP_EXCEPTIONS
    std::exception_ptr thrown;
#endif

    template <class F>
    void fill(F &&f) noexcept
    {
#if GS_HPP_EXCEPTIONS
        try {
            value.fill(std::forward<F>(f));
        } catch (...) {
            thrown = std::current_exception();
        }
#else
        value.fill(std::forward<F>(f));
#endif
    }

    /// Takes the contents of o. This outcome must be empty.
    void take_from(outcome &o) noexcept
    {
#if GS_HPP_EXCEPTIONS
        try {
            if (o.value.full())
                value.take_from(o.value);
            thrown = std::move(o.thrown);
        } catch (...) {
            thrown = std::current_exception();
        }
#else
        if (o.value.full())
            value.take_from(o.value);
#endif
    }

    /// Returns the result or throws the exception. Called once, and again only if T's move constructor has thrown.
    result<T> take(const char *where)
    {
#if GS_HPP_EXCEPTIONS
        if (thrown)
            std::rethrow_exception(std::exchange(thrown, nullptr));
#endif
        if (!value.full())
            return failed<T>(-EOWNERDEAD, where); // the function has ended by gs_exit
#if GS_HPP_EXCEPTIONS
        return value.take();
#else
        if constexpr (std::is_void_v<T>)
            return result<void>();
        else
            return result<T>(value.take());
#endif
    }
};

/// Calls f at the end of a scope that takes from an outcome, unless T's move constructor has thrown: then the outcome
/// keeps its value.
template <class T, class F>
class when_taken {
    static constexpr bool may_throw = std::is_object_v<T> && !std::is_nothrow_move_constructible_v<T>;
    const outcome<T> &out_;
    F f_;
    int in_flight_ = may_throw ? std::uncaught_exceptions() : 0;

public:
    when_taken(const outcome<T> &out, F f) : out_(out), f_(std::move(f)) {}
    when_taken(const when_taken &) = delete;
    when_taken &operator=(const when_taken &) = delete;
    ~when_taken()
    {
        if (!may_throw || !out_.value.full() || std::uncaught_exceptions() <= in_flight_)
            f_();
    }
};

#if GS_HPP_EXCEPTIONS
/// Whether the exception unwinds a cancelled goroutine.
inline bool is_cancel(const std::exception_ptr &thrown) noexcept
{
    try {
        std::rethrow_exception(thrown);
    } catch (const std::system_error &e) {
        return e.code() == std::errc::operation_canceled;
    } catch (...) {
        return false;
    }
}

/// Ends the program with the report of an exception that leaves main, with type and what().
[[noreturn]] inline void terminate_with(const std::exception_ptr &thrown) noexcept
{
    std::rethrow_exception(thrown);
}
#endif

template <class F, class... Args>
using result_of = std::invoke_result_t<std::decay_t<F>, std::decay_t<Args>...>;

template <class F, class... Args>
inline constexpr bool can_call = std::is_invocable_v<std::decay_t<F>, std::decay_t<Args>...>;

#if GS_HPP_EXCEPTIONS
template <class T, class... Args>
inline T *make(Args &&...args)
{
    return new T(std::forward<Args>(args)...);
}
#else
template <class T, class... Args>
inline T *make(Args &&...args)
{
    return new (std::nothrow) T(std::forward<Args>(args)...);
}
#endif

inline char *make_bytes(std::size_t n)
{
#if GS_HPP_EXCEPTIONS
    return new char[n];
#else
    return new (std::nothrow) char[n];
#endif
}

/// A function and its arguments. The goroutine destroys them when the function has returned.
template <class F, class... Args>
class call {
    union {
        std::tuple<F, Args...> what_;
    };

public:
    template <class G, class... As>
    explicit call(G &&g, As &&...as) : what_(std::forward<G>(g), std::forward<As>(as)...)
    {
    }
    ~call() {}
    void drop() noexcept { what_.~tuple(); }
    decltype(auto) operator()()
    {
        return std::apply(
            [](auto &...all) -> decltype(auto) { return std::invoke(std::move(all)...); }, what_);
    }
    call(const call &) = delete;
    call &operator=(const call &) = delete;
};

}  // namespace detail

GS_HPP_END_NAMESPACE
