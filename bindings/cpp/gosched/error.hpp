// error.hpp: gs::error, for throwing; gs::result, for returning; gs::status.
#pragma once

#include "compiler.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

namespace detail {

class category_type final : public std::error_category {
public:
    const char *name() const noexcept override { return "gosched"; }
    std::string message(int value) const override { return gs_strerror(-value); }
    std::error_condition default_error_condition(int value) const noexcept override
    {
        if (gs_eai(-value) != 0)
            return {value, *this};
        return {value, std::generic_category()};
    }
};

}  // namespace detail

/// The category of the library's errors. Its values are errno.h's, or those of a failed look-up (gs_getaddrinfo); its
/// messages are gs_strerror's. A code of this category equals the std::errc of its value.
inline const std::error_category &category() noexcept
{
    // Never destroyed: goroutines may go on while the program ends.
    alignas(detail::category_type) static unsigned char place[sizeof(detail::category_type)];
    static const detail::category_type *the = ::new (place) detail::category_type;
    return *the;
}

/// The error code for r, a result of gosched.h: a negative errno value, or 0 and above for no error.
inline std::error_code make_code(long r) noexcept
{
    return r < 0 ? std::error_code(static_cast<int>(-r), category()) : std::error_code();
}

/// The exception that this header throws. Its what() begins with the name of the function that failed.
class error : public std::system_error {
public:
    /// r: the value below 0 of a function of gosched.h. where: the function that failed.
    error(long r, const char *where) : std::system_error(make_code(r), where) {}
    /// An error of another category, which a member of a gs::task_group may return, for example.
    error(std::error_code code, const char *where) : std::system_error(code, where) {}
};

namespace detail {

/// Reports misuse, or an error in a function that can't return one.
[[noreturn]] __attribute__((noinline, cold)) inline void raise(long r, const char *where)
{
#if GS_HPP_EXCEPTIONS
    throw error(r, where);
#else
    std::fprintf(stderr, "%s: %s\n", where, gs_strerror(static_cast<int>(r)));
    std::abort();
#endif
}

inline void must(long r, const char *where)
{
    if (__builtin_expect(r < 0, 0))
        raise(r, where);
}

}  // namespace detail

#if GS_HPP_EXCEPTIONS

/// The return type of functions that may fail: T itself, because errors are thrown.
template <class T>
using result = T;

namespace detail {

template <class T>
[[noreturn]] inline T failed(long r, const char *where)
{
    raise(r, where);
}

inline void done(long r, const char *where)
{
    must(r, where);
}

}  // namespace detail

#else

namespace detail {

/// Ends the program, with the error on standard error. what: the fault of the gs::result.
[[noreturn]] __attribute__((noinline, cold)) inline void no_value(const char *what, std::error_code why)
{
    std::fprintf(stderr, "gs::result %s: %s\n", what, why.message().c_str());
    std::abort();
}

}  // namespace detail

/// An error to return in place of a gs::result's value: `return gs::unexpected{code};`.
struct unexpected {
    std::error_code code;
};

/// The return type of functions that may fail, without exceptions: a T or an std::error_code.
template <class T>
class [[nodiscard]] result {
    std::optional<T> value_;
    std::error_code error_;

public:
    using value_type = T;
    result(T value) : value_(std::move(value)) {}
    result(unexpected why) noexcept : error_(why.code) {}

    bool has_value() const noexcept { return value_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }
    /// The reason for a missing value; std::error_code() if there is a value.
    std::error_code error() const noexcept { return error_; }

    /// The value. Without one the program aborts, with the error on standard error.
    T &value() &
    {
        check();
        return *value_;
    }
    const T &value() const &
    {
        check();
        return *value_;
    }
    T &&value() &&
    {
        check();
        return std::move(*value_);
    }
    T &operator*() & { return value(); }
    const T &operator*() const & { return value(); }
    T &&operator*() && { return std::move(*this).value(); }
    T *operator->() { return &value(); }
    const T *operator->() const { return &value(); }
    template <class U>
    T value_or(U &&other) &&
    {
        return value_ ? std::move(*value_) : static_cast<T>(std::forward<U>(other));
    }

private:
    void check() const
    {
        if (!value_)
            detail::no_value("has no value", error_);
    }
};

/// A reference, or an std::error_code.
template <class T>
class [[nodiscard]] result<T &> {
    T *value_ = nullptr;
    std::error_code error_;

public:
    using value_type = T &;
    result(T &value) noexcept : value_(std::addressof(value)) {}
    result(unexpected why) noexcept : error_(why.code) {}
    bool has_value() const noexcept { return value_ != nullptr; }
    explicit operator bool() const noexcept { return has_value(); }
    std::error_code error() const noexcept { return error_; }
    /// The reference. Without one the program aborts, with the error on standard error.
    T &value() const
    {
        if (value_ == nullptr)
            detail::no_value("has no reference", error_);
        return *value_;
    }
    T &operator*() const { return value(); }
    T *operator->() const { return std::addressof(value()); }
};

/// Success, or an std::error_code.
template <>
class [[nodiscard]] result<void> {
    std::error_code error_;

public:
    using value_type = void;
    result() noexcept = default;
    result(unexpected why) noexcept : error_(why.code) {}
    bool has_value() const noexcept { return !error_; }
    explicit operator bool() const noexcept { return !error_; }
    std::error_code error() const noexcept { return error_; }
    /// Aborts the program, with the error on standard error, if there is an error.
    void value() const
    {
        if (error_)
            detail::no_value("is an error", error_);
    }
};

namespace detail {

template <class T>
inline result<T> failed(long r, const char *)
{
    return unexpected{make_code(r)};
}

inline result<void> done(long r, const char *)
{
    return unexpected{make_code(r)}; // no error for 0 and above
}

}  // namespace detail

#endif

/// How an operation with a time limit ended. The numbers are errno.h's.
enum class status : int {
    ok = 0,
    closed = EPIPE,         ///< the channel is closed (and, for a receive, drained)
    again = EAGAIN,         ///< the operation can't be done at once
    timed_out = ETIMEDOUT,  ///< the operation could not be done before the deadline
    stopped = EINTR,        ///< a stop was requested, by the std::stop_token of the call
    cancelled = ECANCELED,  ///< the goroutine is cancelled. Only without exceptions, else gs::error is thrown
    invalid = EINVAL,       ///< the object is empty. Only without exceptions
    no_memory = ENOMEM,     ///< there is no memory to wait with a deadline. Only without exceptions
};

namespace detail {

/// The value of a wait with an std::stop_token if a stop is requested. No function of gosched.h that such a wait calls
/// returns it.
inline constexpr int stop_asked = -EINTR;

/// The status for results that a program expects; others are thrown where exceptions exist.
inline status status_of(int r, const char *where)
{
#if GS_HPP_EXCEPTIONS
    if (__builtin_expect(r < 0 && r != -EPIPE && r != -EAGAIN && r != -ETIMEDOUT && r != stop_asked, 0))
        raise(r, where);
#else
    (void)where;
#endif
    return static_cast<status>(-r);
}

/// The result of a wait with a limit. True: success; false: the time was up, or a stop was requested.
inline result<bool> in_time(int r, const char *where)
{
    if (r == 0)
        return true;
    if (r == -ETIMEDOUT || r == -EAGAIN || r == -EBUSY || r == stop_asked)
        return false;
    return failed<bool>(r, where);
}

}  // namespace detail

GS_HPP_END_NAMESPACE
