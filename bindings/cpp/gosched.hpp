// gosched.hpp: libgosched for C++17 and later. One header, nothing to link but the library.
//
// What gosched.h says of goroutines, deadlines and cancelling holds here too. What is added:
//
// - Values of any type over channels, and functions with arguments and results as goroutines.
// - Lengths of time and points in time are those of std::chrono, of any clock. A time of another clock
//   than std::chrono::steady_clock is converted when the call begins.
// - Objects that clean up: locks for std::lock_guard and the like, task groups that wait.
//
// Errors. gs::error, an std::system_error, is thrown for each error of the library; its code() is of gs::category() and
// compares with std::errc: `e.code() == std::errc::operation_canceled`. What a program expects to happen isn't an
// error: a receive from a closed channel returns an empty gs::received, and a wait with a limit says by its result that
// the time was up.
//
// With -fno-exceptions nothing is thrown. A function that is declared with gs::result<T> returns a T where exceptions
// are on. Where they are off it returns an object that has a T or an std::error_code. An object that can't be
// constructed for lack of memory is then empty, and every call on it gives EINVAL. Misuse that no program can recover
// from (unlocking a mutex that isn't locked) is reported, and the program aborts. Without exceptions everything is in
// another inline namespace, so that a program can't mix objects of the two kinds by mistake.
//
// Cancelling. In a goroutine that is cancelled every call that would block throws gs::error with
// std::errc::operation_canceled, which unwinds the goroutine. Locks are the exception: a cancel never ends lock(),
// because destructors lock, too.
//
// Stop tokens, from C++20 on. A wait with an std::stop_token, which is its first argument, ends when a stop is requested.
// That is no error: the result says so. What can be done at once is done, also after the stop.
//
// gs_exit() runs no destructors: a C++ goroutine ends by returning.
#ifndef GOSCHED_HPP
#define GOSCHED_HPP

#include <gosched.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <istream>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#if __cplusplus >= 202002L && defined(__has_include)
#if __has_include(<coroutine>)
#include <coroutine>
#endif
#if __has_include(<stop_token>)
#include <pthread.h>
#include <signal.h>
#include <stop_token>
#include <unistd.h>
#endif
#endif

/* Whether this translation unit is compiled with exceptions. */
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
#define GS_HPP_EXCEPTIONS 1
#else
#define GS_HPP_EXCEPTIONS 0
#endif

/* Whether there are coroutines: gs::task, gs::executor, co_await. */
#if defined(__cpp_impl_coroutine) && defined(__cpp_lib_coroutine)
#define GS_HPP_COROUTINES 1
#else
#define GS_HPP_COROUTINES 0
#endif

/* Whether there is std::stop_token. */
#if defined(__cpp_lib_jthread)
#define GS_HPP_STOP_TOKENS 1
#else
#define GS_HPP_STOP_TOKENS 0
#endif

// Visible also with -fvisibility=hidden: a program and its shared libraries must have one gs::category() and one table of
// mutexes for gs::condition_variable_any, and a gs::error that one throws must be caught in the other.
namespace gs __attribute__((visibility("default"))) {
#if GS_HPP_EXCEPTIONS
inline namespace v1 {
#else
inline namespace v1_noexcept {
#endif

// ---- Errors ----

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

/// The category of the library's errors. Its values are those of errno.h, or of a failed look-up (gs_getaddrinfo); its
/// messages are those of gs_strerror. A code of this category equals the std::errc of its value.
inline const std::error_category &category() noexcept
{
    // Never destroyed: goroutines may go on while the program ends.
    alignas(detail::category_type) static unsigned char place[sizeof(detail::category_type)];
    static const detail::category_type *the = ::new (place) detail::category_type;
    return *the;
}

/// The error code for a result of a function of gosched.h. r: a negative errno value, or 0 and above for no error.
inline std::error_code make_code(long r) noexcept
{
    return r < 0 ? std::error_code(static_cast<int>(-r), category()) : std::error_code();
}

/// The exception that this header throws. Its what() begins with the name of the function that failed.
class error : public std::system_error {
public:
    /// r: what a function of gosched.h has returned, below 0. where: the function that failed.
    error(long r, const char *where) : std::system_error(make_code(r), where) {}
    /// An error of another category, such as a member of a gs::task_group may return.
    error(std::error_code code, const char *where) : std::system_error(code, where) {}
};

namespace detail {

/// Misuse, or an error in a function that can't return one.
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

/// The return type of functions that may fail. With exceptions it is T itself, since errors are thrown.
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

/// What a function with a gs::result returns in place of a value: `return gs::unexpected{code};`.
struct unexpected {
    std::error_code code;
};

/// The return type of functions that may fail. Without exceptions it is a T or an std::error_code.
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
    /// Why there is no value; std::error_code() if there is one.
    std::error_code error() const noexcept { return error_; }

    /// The value. Without one the program is aborted, with the error on standard error.
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
        if (!value_) {
            std::fprintf(stderr, "gs::result has no value: %s\n", error_.message().c_str());
            std::abort();
        }
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
    /// Without a reference the program is aborted, with the error on standard error.
    T &value() const
    {
        if (value_ == nullptr) {
            std::fprintf(stderr, "gs::result has no reference: %s\n", error_.message().c_str());
            std::abort();
        }
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
    /// Aborts the program, with the error on standard error, if there is one.
    void value() const
    {
        if (error_) {
            std::fprintf(stderr, "gs::result is an error: %s\n", error_.message().c_str());
            std::abort();
        }
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
    return unexpected{make_code(r)}; // of 0 and above: none
}

}  // namespace detail

#endif

/// How an operation with a time limit ended. The numbers are those of errno.h.
enum class status : int {
    ok = 0,
    closed = EPIPE,         ///< the channel is closed (and, for a receive, drained)
    again = EAGAIN,         ///< the operation can't be done at once
    timed_out = ETIMEDOUT,  ///< the operation could not be done before the deadline
    stopped = EINTR,        ///< a stop was requested, by the std::stop_token of the call
    cancelled = ECANCELED,  ///< the goroutine is cancelled: only without exceptions, which throw gs::error
    invalid = EINVAL,       ///< the object is empty: only without exceptions
    no_memory = ENOMEM,     ///< there is no memory to wait with a deadline: only without exceptions
};

namespace detail {

/// What a wait with an std::stop_token gives if a stop is requested. No function of gosched.h that such a wait calls gives it.
inline constexpr int stop_asked = -EINTR;

/// What a program expects to happen is a status; all else is thrown where it can be.
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

/// The result of a wait with a limit: true if it succeeded, false if the time was up or a stop was requested.
inline result<bool> in_time(int r, const char *where)
{
    if (r == 0)
        return true;
    if (r == -ETIMEDOUT || r == -EAGAIN || r == -EBUSY || r == stop_asked)
        return false;
    return failed<bool>(r, where);
}

}  // namespace detail

// ---- Time ----

/// The clock of the library's deadlines, CLOCK_MONOTONIC.
using clock = std::chrono::steady_clock;
using time_point = std::chrono::time_point<clock, std::chrono::nanoseconds>;
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

/// Until when a call may wait. Made from a length of time, which begins now, or from a time of any clock.
class deadline {
    gs_deadline at_;
    struct raw {
    };
    constexpr deadline(raw, gs_deadline at) noexcept : at_(at) {}

public:
    /// This long from now. A length of 0 or below has passed already.
    template <class Rep, class Period>
    deadline(const std::chrono::duration<Rep, Period> &d) noexcept : at_(gs_after_ns(detail::ns_of(d)))
    {
    }
    template <class Clock, class Duration>
    deadline(const std::chrono::time_point<Clock, Duration> &at) noexcept
    {
        if constexpr (std::is_same_v<Clock, clock>) {
            const std::int64_t ns = detail::ns_of(at.time_since_epoch());
            at_ = ns < 1 ? 1 : ns; // below are GS_NOWAIT and GS_FOREVER
        } else {
            const std::int64_t to = detail::ns_of(at.time_since_epoch());
            const std::int64_t now = detail::ns_of(Clock::now().time_since_epoch());
            std::int64_t left = 0;
            if (__builtin_sub_overflow(to, now, &left)) // more than 292 years
                left = to < now ? 0 : std::numeric_limits<std::int64_t>::max();
            at_ = left <= 0 ? 1 : gs_after_ns(left);
        }
    }
    /// Wait without end.
    static constexpr deadline forever() noexcept { return {raw{}, GS_FOREVER}; }
    /// Don't wait.
    static constexpr deadline now() noexcept { return {raw{}, GS_NOWAIT}; }
    /// A deadline of gosched.h.
    static constexpr deadline from_native(gs_deadline at) noexcept { return {raw{}, at}; }
    /// For functions of gosched.h.
    constexpr gs_deadline native() const noexcept { return at_; }
};

/// While an object of this class lives, a cancel doesn't end calls of the running goroutine: gs_cancel_disable. Nests.
class no_cancel {
public:
    no_cancel() noexcept { (void)gs_cancel_disable(); }
    ~no_cancel() { (void)gs_cancel_enable(); }
    no_cancel(const no_cancel &) = delete;
    no_cancel &operator=(const no_cancel &) = delete;
};

/// While an object of this class lives, the running goroutine is not preempted: gs_preempt_disable, with its caveats.
/// Nests.
class no_preempt {
public:
    no_preempt() noexcept { gs_preempt_disable(); }
    ~no_preempt() { gs_preempt_enable(); }
    no_preempt(const no_preempt &) = delete;
    no_preempt &operator=(const no_preempt &) = delete;
};

#if GS_HPP_STOP_TOKENS
namespace detail {
// Defined in the section on stop tokens:
template <class Wait>
int wait_or_stop(const std::stop_token &st, gs_deadline at, Wait &&wait);
inline int sleep_or_stop(const std::stop_token &st, gs_deadline at);
inline int chan_or_stop(const std::stop_token &st, const gs_case &op, gs_deadline at);
}  // namespace detail
#endif

// ---- The running goroutine ----

namespace this_goroutine {

/// Lets others run. Gosched.
inline void yield() noexcept
{
    gs_yield();
}

/// The number of the running goroutine; 0 on a plain thread.
inline std::uint64_t id() noexcept
{
    return gs_id(gs_self());
}

/// Whether the running goroutine was cancelled. For loops that compute and make no call that would block.
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
/// false: a stop was requested before the time was up.
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

// ---- Start and stop ----

/// The settings with which gs::init starts the runtime. A setting that is 0 or null is taken from the environment, or
/// else has its default: see gs_config.
struct config {
    std::uint32_t procs = 0;             ///< how many goroutines run at the same time
    std::uint32_t max_threads = 0;       ///< how many threads are started for goroutines, at most
    std::size_t stack_size = 0;          ///< bytes of stack for a goroutine
    const char *topology = nullptr;      ///< of NUMA nodes, in hwloc's notation
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

namespace detail {

struct nothing {
};

/// A place for what a function returns, void and references included. The function makes its result here: it isn't moved.
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
    /// Not an assignment: a T needn't have one.
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

/// A result, or the exception in its place. One goroutine or thread fills it and another takes it.
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

    /// Into an empty one.
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

    /// For one call; again if T's move constructor has thrown.
    result<T> take(const char *where)
    {
#if GS_HPP_EXCEPTIONS
        if (thrown)
            std::rethrow_exception(std::exchange(thrown, nullptr));
#endif
        if (!value.full())
            return failed<T>(-EOWNERDEAD, where); // gs_exit
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

/// Calls f at the end of a scope that takes what is in an outcome, unless T's move constructor has thrown: it stays then.
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
/// Whether the exception is the one that unwinds a cancelled goroutine.
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

/// Ends the program with the report of an exception that leaves main, type and what() included.
[[noreturn]] inline void terminate_with(const std::exception_ptr &thrown) noexcept
{
    std::rethrow_exception(thrown);
}
#endif

template <class F, class... Args>
using result_of = std::invoke_result_t<std::decay_t<F>, std::decay_t<Args>...>;

template <class F, class... Args>
inline constexpr bool can_call = std::is_invocable_v<std::decay_t<F>, std::decay_t<Args>...>;

}  // namespace detail

/// Runs f(args...) as a goroutine, on the calling thread to begin with, and returns what f returns, or throws what f
/// throws. Other goroutines may be left then: gs::shutdown waits for them. For plain threads; in a goroutine it fails
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

/// While an object of this class lives, others may use the goroutine's P: gs_entersyscall. For system calls
/// that may block. A call of this library that blocks meanwhile blocks the thread.
class syscall_section {
public:
    syscall_section() noexcept { (void)gs_entersyscall(); }
    ~syscall_section() { (void)gs_exitsyscall(); }
    syscall_section(const syscall_section &) = delete;
    syscall_section &operator=(const syscall_section &) = delete;
};

// ---- Goroutines ----

/// How to start a goroutine. With C++20: gs::go({.name = "reader", .node = 1}, f).
struct options {
    const char *name = nullptr;       ///< for reports; copied
    std::size_t stack_size = 0;       ///< bytes, at most 1 GiB; 0: the runtime's
    int priority = GS_PRIO_NORMAL;    ///< GS_PRIO_...
    int node = -1;                    ///< the NUMA node that it begins on; -1: any
    bool pinned = false;              ///< it stays on one thread: GS_SPAWN_PINNED
    bool no_preempt = false;          ///< GS_SPAWN_NOPREEMPT
    bool no_signal = false;           ///< GS_SPAWN_NOSIGNAL
    gs_workers *workers = nullptr;    ///< on whose threads it begins, if it is pinned
};

/// An argument of gs::go: the goroutine has no handle. An exception that leaves the goroutine ends the program.
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

/// What a goroutine and its handle share. Of the two, the side that is done last destroys it.
class go_base {
    std::atomic<unsigned> flags_{0};
    void (*destroy_)(go_base *);

protected:
    explicit go_base(void (*fn)(go_base *)) noexcept : destroy_(fn) {}
    ~go_base() = default;

public:
    enum : unsigned {
        ended = 1,     ///< the goroutine is done with it
        dropped = 2,   ///< the handle is done with it
        unheeded = 4,  ///< the handle was destroyed while an exception was in flight: don't report the goroutine's own
    };

    go_base(const go_base &) = delete;
    go_base &operator=(const go_base &) = delete;

    /// One side is done with this object. True: that side was the last.
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

    /// Called by the side that is done last. Ends the program if the goroutine's exception was never taken,
    /// unless that was a cancel, or the handle was destroyed during another exception.
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
    /// The goroutine was never started.
    void unstarted() noexcept
    {
        call_.drop();
        delete this;
    }
};

}  // namespace detail

/// A goroutine that returns a T; it can be waited for. Made by gs::go, moved and not copied.
///
/// Destroying the handle doesn't wait: it detaches the goroutine, as `go f()` in Go does. So gs::go(f) as a
/// statement doesn't wait for f. (gs::task_group waits.)
///
/// An exception must not get lost. If an exception leaves the goroutine and get() isn't called before the
/// handle is destroyed, the program ends by std::terminate, whichever comes first. There are two cases in
/// which it doesn't: the goroutine ended because it was cancelled (std::errc::operation_canceled), or the
/// handle is destroyed by an exception in flight, which reports the failure already.
///
/// A handle is used by one goroutine or thread at a time. Goroutines and plain threads.
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

    /// No goroutine.
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

    /// Whether the handle has a goroutine: not after get() and detach(), nor when it was moved from.
    bool valid() const noexcept { return state_ != nullptr; }
    /// As valid(), in std::thread's word.
    bool joinable() const noexcept { return valid(); }

    /// Waits until the goroutine has ended. get() then gives the result, or the exception, without waiting. Fails with
    /// std::errc::resource_deadlock_would_occur in the goroutine itself.
    result<void> join() const { return detail::done(gs_join(g_, GS_FOREVER), "gs::goroutine::join"); }
    /// false: it hasn't ended yet.
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
    /// false: it hadn't ended when a stop was requested, or when the time was up.
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

    /// Waits until the goroutine has ended, and returns its result or throws its exception. The handle is empty then,
    /// as an std::future is. The handle keeps the goroutine if the wait fails because the caller is cancelled, and the
    /// result if T's move constructor throws. Fails with std::errc::owner_dead if the goroutine has ended with gs_exit.
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

    /// What the destructor does. Nothing for an empty handle.
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

    /// The goroutine's number, which is unique in the life of the runtime. 0: the goroutine has not run yet, or the
    /// handle is empty.
    std::uint64_t id() const noexcept { return gs_id(g_); }
    /// What options::name was.
    std::string name() const
    {
        const int n = gs_name(g_, nullptr, 0);
        std::string s(n > 0 ? static_cast<std::size_t>(n) + 1 : 1, '\0');
        (void)gs_name(g_, s.data(), s.size());
        s.pop_back();
        return s;
    }
    /// For functions of gosched.h. Valid as long as the handle has the goroutine.
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

/// What a detached goroutine runs, if it doesn't fit into the argument.
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

/// Starts f(args...) as a goroutine: `go f(args...)`. f and args are copied or moved, as for std::thread (std::ref
/// for a reference), and destroyed on the goroutine when f has returned. Fails for lack of memory. Goroutines
/// and plain threads.
template <class F, class... Args, std::enable_if_t<detail::can_call<F, Args...>, int> = 0>
inline result<goroutine<detail::result_of<F, Args...>>> go(F &&f, Args &&...args)
{
    return detail::start(nullptr, std::forward<F>(f), std::forward<Args>(args)...);
}

/// With options. Fails with std::errc::invalid_argument for options that gs_spawn_with refuses, such as a node that
/// doesn't exist.
template <class F, class... Args, std::enable_if_t<detail::can_call<F, Args...>, int> = 0>
inline result<goroutine<detail::result_of<F, Args...>>> go(const options &o, F &&f, Args &&...args)
{
    const gs_spawn_opts n = detail::native(o);
    return detail::start(&n, std::forward<F>(f), std::forward<Args>(args)...);
}

/// Without a handle. A lambda without captures, or with one pointer, takes no memory.
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

// ---- Mutexes ----

/// sync.Mutex, for std::lock_guard, std::unique_lock and std::scoped_lock. Not tied to a goroutine: any goroutine may
/// unlock it. Goroutines and plain threads.
class mutex {
    gs_mutex m_{};

public:
    using native_handle_type = gs_mutex *;
    constexpr mutex() noexcept = default;
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    /// Never ended by a cancel.
    void lock()
    {
        if (__builtin_expect(gs_mutex_lock(&m_, GS_FOREVER) != 0, 0))
            lock_cancelled();
    }
    [[nodiscard]] bool try_lock() noexcept { return gs_mutex_trylock(&m_) == 0; }
    /// false: not locked, the time is up. Never ended by a cancel.
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

/// sync.RWMutex, for std::shared_lock too. New readers wait while a writer waits. Never ended by a cancel.
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

/// Who runs: a number that only this goroutine, or this plain thread, has. Not inlined: the compiler would keep the
/// address of the thread-local across a switch to another thread.
__attribute__((noinline)) inline std::uint64_t who() noexcept
{
    alignas(2) static thread_local char place;
    const gs_g *g = gs_self();
    return g != nullptr ? gs_id(g) * 2 + 1 : static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&place));
}

}  // namespace detail

/// A mutex that the goroutine which has locked it may lock again: std::recursive_mutex, and its timed kind. It is free
/// when it was unlocked as often as it was locked. Owned by a goroutine, on whatever thread that runs, or by a plain
/// thread. Never ended by a cancel.
class recursive_mutex {
    mutex m_;
    std::atomic<std::uint64_t> owner_{0};
    std::uint32_t times_ = 0; // of the owner

    /// Whether the caller has locked it already. Only the caller itself writes its own number, so no order is needed.
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

    /// Fails with std::errc::resource_unavailable_try_again if its owner has locked it 4,294,967,295 times already.
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
    /// false: not locked, the time is up.
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
    /// Misuse if the caller isn't the owner.
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

// ---- Stop tokens ----

#if GS_HPP_STOP_TOKENS

namespace detail {

/// Calls a function once when a stop is requested, until disarm(): what std::stop_callback does, but between goroutines
/// too.
///
/// The destructor of an std::stop_callback waits while the call goes on, unless the destructor runs on the thread that has
/// requested the stop. But a goroutine may request a stop on one thread and go on on another one, if a function that the
/// stop calls switches. Then a destructor on the first thread wouldn't wait, and would free what the request still uses.
/// So the destructor runs
///
/// - at once, if no stop is requested yet: a request that comes meanwhile is on another thread, since nothing between the
///   question and the destructor's end can switch;
/// - at once, if the function was called by a plain thread, which is in the request until its end;
/// - else on a thread of its own, on which no goroutine can have requested the stop.
class stop_guard {
    struct block {
        block *next = nullptr; // of the undertaker
        mutex m;
        void (*f)(void *) = nullptr; // nullptr: not to be called
        void *arg = nullptr;
        bool by_thread = false; // a plain thread has called the function
        struct caller {
            block *of;
            void operator()() const noexcept { of->call(); }
        };
        std::optional<std::stop_callback<caller>> callback;

        void call() noexcept
        {
            std::lock_guard<mutex> guard(m);
            by_thread = gs_self() == nullptr;
            if (f != nullptr)
                f(arg);
        }
    };

    /// A thread that destroys blocks, and ends when it has destroyed all.
    class undertaker {
        std::atomic<block *> first_{nullptr};
        std::atomic<pid_t> process_{0}; // in which the thread runs; 0: there is no thread

        /// Whether the caller is to run the thread. A thread of the process that has forked this one doesn't count.
        bool begin() noexcept
        {
            const pid_t self = ::getpid();
            pid_t seen = process_.load();
            return seen != self && process_.compare_exchange_strong(seen, self);
        }
        void run() noexcept
        {
            do {
                for (block *b = first_.exchange(nullptr); b != nullptr;)
                    delete std::exchange(b, b->next);
                process_.store(0);
                // A block that was put there before this store may have found the thread running.
            } while (first_.load() != nullptr && begin());
        }

    public:
        static undertaker &the() noexcept
        {
            static undertaker it; // which needs no destructor
            return it;
        }
        void bury(block *b) noexcept
        {
            b->next = first_.load();
            while (!first_.compare_exchange_weak(b->next, b)) {
            }
            if (!begin())
                return;
            sigset_t all, former;
            ::sigfillset(&all);
            (void)::pthread_sigmask(SIG_SETMASK, &all, &former);
            pthread_t id{};
            const auto entry = [](void *p) -> void * {
                static_cast<undertaker *>(p)->run();
                return nullptr;
            };
            const int r = ::pthread_create(&id, nullptr, entry, this);
            (void)::pthread_sigmask(SIG_SETMASK, &former, nullptr);
            if (r == 0)
                (void)::pthread_detach(id);
            else
                process_.store(0); // the next burial tries again
        }
    };

    std::stop_token token_;
    block *b_;

public:
    /// Without memory ok() is false, or std::bad_alloc is thrown.
    explicit stop_guard(const std::stop_token &token) : token_(token), b_(make<block>()) {}
    stop_guard(const stop_guard &) = delete;
    stop_guard &operator=(const stop_guard &) = delete;
    ~stop_guard() { disarm(); }
    bool ok() const noexcept { return b_ != nullptr; }

    /// From here on a request calls f(arg), on the goroutine or thread that makes the request; at once if the stop was
    /// requested before. f may lock mutexes that are never held for long.
    void arm(void (*f)(void *), void *arg) noexcept
    {
        b_->f = f;
        b_->arg = arg;
        if (token_.stop_requested())
            f(arg);
        else
            b_->callback.emplace(token_, typename block::caller{b_});
    }
    /// When this has returned, f doesn't run and won't run.
    void disarm() noexcept
    {
        block *b = std::exchange(b_, nullptr);
        if (b == nullptr)
            return;
        bool at_once = !b->callback;
        {
            std::lock_guard<mutex> guard(b->m);
            b->f = nullptr;
            at_once = at_once || b->by_thread;
        }
        if (at_once || !token_.stop_requested())
            delete b;
        else
            undertaker::the().bury(b);
    }
};

/// A channel that is closed when a stop is requested.
class stop_chan {
    stop_guard guard_;
    gs_chan *c_;

public:
    explicit stop_chan(const std::stop_token &st) : guard_(st), c_(gs_chan_make(0, 0))
    {
        if (c_ != nullptr && guard_.ok())
            guard_.arm([](void *c) { (void)gs_chan_close(static_cast<gs_chan *>(c)); }, c_);
    }
    stop_chan(const stop_chan &) = delete;
    stop_chan &operator=(const stop_chan &) = delete;
    ~stop_chan()
    {
        guard_.disarm();
        if (c_ != nullptr)
            (void)gs_chan_free(c_);
    }
    /// nullptr: no memory.
    gs_chan *get() const noexcept { return guard_.ok() ? c_ : nullptr; }
};

// The waits with a token. What can be done at once is done, also if a stop is requested.

inline int chan_or_stop(const std::stop_token &st, const gs_case &op, gs_deadline at)
{
    const auto wait = [&op](gs_deadline d) {
        return op.op == GS_RECV ? gs_chan_recv(op.ch, op.elem, d) : gs_chan_send(op.ch, op.elem, d);
    };
    int r = wait(GS_NOWAIT);
    if (r != -EAGAIN)
        return r;
    if (st.stop_requested())
        return stop_asked;
    if (!st.stop_possible())
        return wait(at);
    stop_chan stop(st);
    if (stop.get() == nullptr)
        return -ENOMEM;
    gs_case both[2] = {op, gs_case{stop.get(), nullptr, GS_RECV, 0}};
    r = gs_select(both, 2, at);
    return r == 0 ? both[0].result : r == 1 ? stop_asked : r;
}

inline int sleep_or_stop(const std::stop_token &st, gs_deadline at)
{
    if (at != GS_FOREVER && at <= gs_now())
        return 0;
    if (st.stop_requested())
        return stop_asked;
    if (!st.stop_possible())
        return gs_sleep_until(at);
    stop_chan stop(st);
    const int r = stop.get() == nullptr ? -ENOMEM : gs_chan_recv(stop.get(), nullptr, at);
    return r == -EPIPE ? stop_asked : r == -ETIMEDOUT ? 0 : r;
}

/// Joins a goroutine, which is cancelled when a stop is requested, or the caller is cancelled. The guard isn't armed yet.
inline int join_or_stop(stop_guard &guard, gs_g *g) noexcept
{
    guard.arm([](void *p) { (void)gs_cancel(static_cast<gs_g *>(p)); }, g);
    const int r = gs_join(g, GS_FOREVER);
    if (r < 0) {
        (void)gs_cancel(g);
        no_cancel scope;
        (void)gs_join(g, GS_FOREVER);
    }
    guard.disarm();
    return r;
}

/// For what no select can wait for: wait(d) runs on a goroutine of its own.
template <class Wait>
int wait_or_stop(const std::stop_token &st, gs_deadline at, Wait &&wait)
{
    int r = wait(GS_NOWAIT);
    if (r != -EAGAIN)
        return r;
    if (st.stop_requested())
        return stop_asked;
    if (!st.stop_possible())
        return wait(at);
    struct frame {
        Wait &wait;
        gs_deadline at;
        int r;
    } here{wait, at, 0};
    const auto entry = [](void *p) {
        auto *f = static_cast<frame *>(p);
        f->r = f->wait(f->at);
    };
    stop_guard guard(st);
    gs_g *g = nullptr;
    r = guard.ok() ? gs_spawn_with(entry, &here, nullptr, &g) : -ENOMEM;
    if (r < 0)
        return r;
    r = join_or_stop(guard, g);
    gs_release(g);
    if (here.r != -ECANCELED) // what the wait has got isn't lost
        return here.r;
    return r < 0 ? r : stop_asked;
}

}  // namespace detail

/// Calls f(args...) on a goroutine of its own, which is cancelled when a stop is requested: each wait in f then fails with
/// std::errc::operation_canceled. Returns what f returns, or throws what f throws. For waits that don't take a token, such
/// as those for sockets. The goroutine is cancelled too if the caller is cancelled.
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

#endif  // GS_HPP_STOP_TOKENS

// ---- Condition variables, wait groups, semaphores, once ----

/// sync.Cond, for std::unique_lock<gs::mutex>. The lock is held again when a wait returns or throws. A wait fails
/// with std::errc::operation_canceled in a cancelled goroutine.
class condition_variable {
    gs_cond c_{};

    result<std::cv_status> by(std::unique_lock<mutex> &lock, gs_deadline at, const char *where)
    {
        const int r = gs_cond_wait(&c_, lock.mutex()->native_handle(), at);
        if (r == 0)
            return std::cv_status::no_timeout;
        if (r == -ETIMEDOUT)
            return std::cv_status::timeout;
        return detail::failed<std::cv_status>(r, where);
    }
    template <class Pred>
    result<bool> by(std::unique_lock<mutex> &lock, gs_deadline at, Pred &pred, const char *where)
    {
        while (!pred()) {
            const int r = gs_cond_wait(&c_, lock.mutex()->native_handle(), at);
            if (r == -ETIMEDOUT)
                return static_cast<bool>(pred());
            if (r < 0)
                return detail::failed<bool>(r, where);
        }
        return true;
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
    /// Until pred().
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
    /// Returns pred() as it is at the end.
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

/// Guards the lists of waiters of gs::condition_variable_any. It isn't a member of that class: a waiter that was notified
/// takes the mutex once more, and the condition variable may be gone then.
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

/// As gs::condition_variable, for locks of any type with lock() and unlock(): std::shared_lock<gs::shared_mutex>. It may
/// be destroyed as soon as all waiters are notified: they may still have to lock.
class condition_variable_any {
    /// Lies on the waiter's stack, and is in the list from before the waiter unlocks, so a notify after that finds it. The
    /// mutex of the list isn't held while the lock's functions run: a lock may have a condition variable of its own.
    class waiter {
        condition_variable_any &of_;
        mutex &m_;
        waiter *next_ = nullptr, *prev_ = nullptr;
        gs_cond woken_{};
        bool notified_ = false, stopped_ = false;
        bool over_ = false; // only the waiter itself uses it
        friend class condition_variable_any;

        void leave() noexcept
        {
            if (!notified_) // else its condition variable may be gone
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

    // With the mutex of the list held:
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
        const int r = wait_by(lock, at);
        if (r == 0)
            return std::cv_status::no_timeout;
        if (r == -ETIMEDOUT)
            return std::cv_status::timeout;
        return detail::failed<std::cv_status>(r, where);
    }
#if GS_HPP_STOP_TOKENS
    template <class Lock>
    int wait_by(Lock &lock, gs_deadline at, const std::stop_token &st)
    {
        waiter self(*this);
        detail::stop_guard guard(st); // goes before the waiter
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
        while (!pred()) {
            const int r = wait_by(lock, at);
            if (r == -ETIMEDOUT)
                return static_cast<bool>(pred());
            if (r < 0)
                return detail::failed<bool>(r, where);
        }
        return true;
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
    /// Returns pred() as it is at the end.
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
    /// Until pred(), or until a stop is requested. Returns pred() as it is at the end.
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

/// sync.WaitGroup. Goroutines and plain threads.
class waitgroup {
    gs_waitgroup w_{};

#if GS_HPP_STOP_TOKENS
    result<bool> wait_by(const std::stop_token &st, gs_deadline at, const char *where)
    {
        return detail::in_time(
            detail::wait_or_stop(st, at, [this](gs_deadline d) { return gs_waitgroup_wait(&w_, d); }), where);
    }
#endif

    template <class F, class... Args>
    struct state {
        waitgroup *group;
        detail::call<F, Args...> fn;
        template <class... As>
        explicit state(waitgroup *w, As &&...as) : group(w), fn(std::forward<As>(as)...)
        {
        }
        static void entry(void *p) noexcept // an exception ends the program
        {
            auto *s = static_cast<state *>(p);
            (void)s->fn();
            s->fn.drop(); // before done(): what it refers to may be gone after that
            waitgroup *w = s->group;
            delete s;
            w->done();
        }
    };

public:
    constexpr waitgroup() noexcept = default;
    waitgroup(const waitgroup &) = delete;
    waitgroup &operator=(const waitgroup &) = delete;

    /// Misuse if the counter would be negative.
    void add(std::int64_t delta = 1) { detail::must(gs_waitgroup_add(&w_, delta), "gs::waitgroup::add"); }
    void done() { detail::must(gs_waitgroup_done(&w_), "gs::waitgroup::done"); }
    /// Until the counter is 0.
    result<void> wait() { return detail::done(gs_waitgroup_wait(&w_, GS_FOREVER), "gs::waitgroup::wait"); }
    /// false: it isn't yet.
    template <class Rep, class Period>
    result<bool> wait_for(const std::chrono::duration<Rep, Period> &d)
    {
        return detail::in_time(gs_waitgroup_wait(&w_, deadline(d).native()), "gs::waitgroup::wait_for");
    }
    template <class Clock, class Duration>
    result<bool> wait_until(const std::chrono::time_point<Clock, Duration> &at)
    {
        return detail::in_time(gs_waitgroup_wait(&w_, deadline(at).native()), "gs::waitgroup::wait_until");
    }
#if GS_HPP_STOP_TOKENS
    /// false: it isn't yet, and a stop was requested, or the time is up.
    result<bool> wait(const std::stop_token &st) { return wait_by(st, GS_FOREVER, "gs::waitgroup::wait"); }
    template <class Rep, class Period>
    result<bool> wait_for(const std::stop_token &st, const std::chrono::duration<Rep, Period> &d)
    {
        return wait_by(st, deadline(d).native(), "gs::waitgroup::wait_for");
    }
    template <class Clock, class Duration>
    result<bool> wait_until(const std::stop_token &st, const std::chrono::time_point<Clock, Duration> &at)
    {
        return wait_by(st, deadline(at).native(), "gs::waitgroup::wait_until");
    }
#endif
    /// Adds 1, and starts f(args...) as a detached goroutine with a done() at its end. WaitGroup.Go.
    template <class F, class... Args>
    result<void> go(F &&f, Args &&...args)
    {
        using S = state<std::decay_t<F>, std::decay_t<Args>...>;
        S *s = detail::make<S>(this, std::forward<F>(f), std::forward<Args>(args)...);
        if (s == nullptr)
            return detail::done(-ENOMEM, "gs::waitgroup::go");
        add();
        const int r = gs_spawn(s->entry, s);
        if (__builtin_expect(r < 0, 0)) {
            s->fn.drop();
            delete s;
            done();
        }
        return detail::done(r, "gs::waitgroup::go");
    }
    gs_waitgroup *native_handle() noexcept { return &w_; }
};

/// A semaphore with n units to begin with, first come first served. std::counting_semaphore.
class semaphore {
    gs_sem s_{};

#if GS_HPP_STOP_TOKENS
    result<bool> acquire_by(const std::stop_token &st, gs_deadline at, std::int64_t n, const char *where)
    {
        return detail::in_time(
            detail::wait_or_stop(st, at, [this, n](gs_deadline d) { return gs_sem_acquire(&s_, n, d); }), where);
    }
#endif

public:
    /// Misuse if n is negative.
    explicit semaphore(std::int64_t n = 0) { detail::must(gs_sem_init(&s_, n), "gs::semaphore"); }
    semaphore(const semaphore &) = delete;
    semaphore &operator=(const semaphore &) = delete;

    result<void> acquire(std::int64_t n = 1)
    {
        return detail::done(gs_sem_acquire(&s_, n, GS_FOREVER), "gs::semaphore::acquire");
    }
    result<bool> try_acquire(std::int64_t n = 1)
    {
        return detail::in_time(gs_sem_acquire(&s_, n, GS_NOWAIT), "gs::semaphore::try_acquire");
    }
    template <class Rep, class Period>
    result<bool> try_acquire_for(const std::chrono::duration<Rep, Period> &d, std::int64_t n = 1)
    {
        return detail::in_time(gs_sem_acquire(&s_, n, deadline(d).native()), "gs::semaphore::try_acquire_for");
    }
    template <class Clock, class Duration>
    result<bool> try_acquire_until(const std::chrono::time_point<Clock, Duration> &at, std::int64_t n = 1)
    {
        return detail::in_time(gs_sem_acquire(&s_, n, deadline(at).native()), "gs::semaphore::try_acquire_until");
    }
#if GS_HPP_STOP_TOKENS
    /// false: none acquired, because a stop was requested, or the time is up. Such a wait begins on another goroutine. So
    /// of callers that come at nearly the same time, the second may be served first.
    result<bool> acquire(const std::stop_token &st, std::int64_t n = 1)
    {
        return acquire_by(st, GS_FOREVER, n, "gs::semaphore::acquire");
    }
    template <class Rep, class Period>
    result<bool> try_acquire_for(const std::stop_token &st, const std::chrono::duration<Rep, Period> &d, std::int64_t n = 1)
    {
        return acquire_by(st, deadline(d).native(), n, "gs::semaphore::try_acquire_for");
    }
    template <class Clock, class Duration>
    result<bool> try_acquire_until(const std::stop_token &st, const std::chrono::time_point<Clock, Duration> &at,
                                   std::int64_t n = 1)
    {
        return acquire_by(st, deadline(at).native(), n, "gs::semaphore::try_acquire_until");
    }
#endif
    /// Misuse if n is negative.
    void release(std::int64_t n = 1) { detail::must(gs_sem_release(&s_, n), "gs::semaphore::release"); }
    gs_sem *native_handle() noexcept { return &s_; }
};

/// Does something once: the first call() calls f, and other calls wait until f has returned. If f throws, call() throws
/// that exception, and the next call() calls f again, as std::call_once does. A cancel never ends the wait.
class once {
    mutex m_;
    std::atomic<bool> done_{false};
    std::atomic<std::uint64_t> by_{0}; // the caller that runs f

public:
    constexpr once() noexcept = default;
    once(const once &) = delete;
    once &operator=(const once &) = delete;

    /// Fails with std::errc::resource_deadlock_would_occur if f itself calls it.
    template <class F, class... Args>
    result<void> call(F &&f, Args &&...args)
    {
        if (done_.load(std::memory_order_acquire)) // with the store below: what f did is visible
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

// ---- Latches and barriers ----

/// A counter that goes down to 0 once, and that any number of goroutines and plain threads wait for: std::latch. May be
/// destroyed as soon as a wait has returned, even if the count_down that ended the wait has not returned yet.
class latch {
    mutable mutex m_;
    mutable gs_cond zero_{};
    std::ptrdiff_t left_;

    int wait_by(gs_deadline at) const
    {
        std::lock_guard<mutex> guard(m_);
        int r = 0;
        while (r == 0 && left_ > 0)
            r = gs_cond_wait(&zero_, m_.native_handle(), at);
        return left_ > 0 ? r : 0;
    }
#if GS_HPP_STOP_TOKENS
    result<bool> wait_by(const std::stop_token &st, gs_deadline at, const char *where) const
    {
        return detail::in_time(detail::wait_or_stop(st, at, [this](gs_deadline d) { return wait_by(d); }), where);
    }
#endif

public:
    static constexpr std::ptrdiff_t max() noexcept { return std::numeric_limits<std::ptrdiff_t>::max(); }
    /// Misuse if expected is negative.
    constexpr explicit latch(std::ptrdiff_t expected) : left_(expected)
    {
        if (expected < 0)
            detail::raise(-EINVAL, "gs::latch");
    }
    latch(const latch &) = delete;
    latch &operator=(const latch &) = delete;

    /// Takes n off the counter. Misuse if n is negative or more than is left.
    void count_down(std::ptrdiff_t n = 1)
    {
        std::lock_guard<mutex> guard(m_);
        if (n < 0 || n > left_)
            detail::raise(-EINVAL, "gs::latch::count_down");
        left_ -= n;
        if (left_ == 0)
            (void)gs_cond_broadcast(&zero_);
    }
    /// Whether the counter is 0. Never wrong, unlike std::latch's.
    [[nodiscard]] bool try_wait() const noexcept
    {
        std::lock_guard<mutex> guard(m_);
        return left_ == 0;
    }
    /// Until the counter is 0.
    result<void> wait() const { return detail::done(wait_by(GS_FOREVER), "gs::latch::wait"); }
    /// false: it isn't yet.
    template <class Rep, class Period>
    result<bool> wait_for(const std::chrono::duration<Rep, Period> &d) const
    {
        return detail::in_time(wait_by(deadline(d).native()), "gs::latch::wait_for");
    }
    template <class Clock, class Duration>
    result<bool> wait_until(const std::chrono::time_point<Clock, Duration> &at) const
    {
        return detail::in_time(wait_by(deadline(at).native()), "gs::latch::wait_until");
    }
#if GS_HPP_STOP_TOKENS
    /// false: it isn't yet, and a stop was requested, or the time is up.
    result<bool> wait(const std::stop_token &st) const { return wait_by(st, GS_FOREVER, "gs::latch::wait"); }
    template <class Rep, class Period>
    result<bool> wait_for(const std::stop_token &st, const std::chrono::duration<Rep, Period> &d) const
    {
        return wait_by(st, deadline(d).native(), "gs::latch::wait_for");
    }
    template <class Clock, class Duration>
    result<bool> wait_until(const std::stop_token &st, const std::chrono::time_point<Clock, Duration> &at) const
    {
        return wait_by(st, deadline(at).native(), "gs::latch::wait_until");
    }
#endif
    /// If the wait fails because the caller is cancelled, the counter has gone down all the same.
    result<void> arrive_and_wait(std::ptrdiff_t n = 1)
    {
        count_down(n);
        return detail::done(wait_by(GS_FOREVER), "gs::latch::arrive_and_wait");
    }
};

namespace detail {
struct no_completion {
    void operator()() const noexcept {}
};
}  // namespace detail

/// Where a fixed number of goroutines and plain threads meet again and again: std::barrier. In each phase it waits for
/// `expected` arrivals. Then the last to arrive calls the completion function, the waits end, and the next phase begins.
/// If the completion function throws, the program ends.
template <class Completion = detail::no_completion>
class barrier {
    mutable mutex m_;
    mutable gs_cond next_{};
    std::uint64_t phase_ = 0;
    std::ptrdiff_t expected_, left_; // in a phase; in this phase
    Completion completion_;

    void complete() noexcept { (void)std::invoke(completion_); }
    std::uint64_t arrive_by(std::ptrdiff_t n, std::ptrdiff_t drop, const char *where)
    {
        std::unique_lock<mutex> guard(m_);
        if (n <= 0 || n > left_)
            detail::raise(-EINVAL, where);
        const std::uint64_t phase = phase_;
        expected_ -= drop;
        left_ -= n;
        if (left_ == 0) {
            guard.unlock();
            complete();
            guard.lock();
            left_ = expected_;
            phase_++;
            (void)gs_cond_broadcast(&next_);
        }
        return phase;
    }
    int wait_by(std::uint64_t phase) const
    {
        std::lock_guard<mutex> guard(m_);
        int r = 0;
        while (r == 0 && phase_ == phase)
            r = gs_cond_wait(&next_, m_.native_handle(), GS_FOREVER);
        return phase_ == phase ? r : 0;
    }

public:
    /// The phase in which an arrive() has arrived.
    class arrival_token {
        std::uint64_t phase_;
        friend class barrier;
        explicit arrival_token(std::uint64_t phase) noexcept : phase_(phase) {}

    public:
        arrival_token(arrival_token &&) noexcept = default;
        arrival_token &operator=(arrival_token &&) noexcept = default;
    };

    static constexpr std::ptrdiff_t max() noexcept { return std::numeric_limits<std::ptrdiff_t>::max(); }
    /// Misuse if expected is negative.
    constexpr explicit barrier(std::ptrdiff_t expected, Completion f = Completion())
        : expected_(expected), left_(expected), completion_(std::move(f))
    {
        static_assert(std::is_invocable_v<Completion &>, "the completion function has no arguments");
        if (expected < 0)
            detail::raise(-EINVAL, "gs::barrier");
    }
    barrier(const barrier &) = delete;
    barrier &operator=(const barrier &) = delete;

    /// Arrives n times, and doesn't wait. Misuse if n isn't above 0, or is more than this phase still waits for.
    [[nodiscard]] arrival_token arrive(std::ptrdiff_t n = 1)
    {
        return arrival_token(arrive_by(n, 0, "gs::barrier::arrive"));
    }
    /// Until the phase of the token is over.
    result<void> wait(arrival_token &&token) const { return detail::done(wait_by(token.phase_), "gs::barrier::wait"); }
    /// If the wait fails because the caller is cancelled, it has arrived all the same.
    result<void> arrive_and_wait()
    {
        return detail::done(wait_by(arrive_by(1, 0, "gs::barrier::arrive_and_wait")), "gs::barrier::arrive_and_wait");
    }
    /// Arrives, and isn't waited for in the phases after this one.
    void arrive_and_drop() { (void)arrive_by(1, 1, "gs::barrier::arrive_and_drop"); }
};

// ---- Goroutine-local values ----

/// A variable of which each goroutine, and each plain thread, has a value of its own: what thread_local is for threads.
/// `*var` makes the value when the goroutine first uses it, by T() or by the function that the constructor was given. The
/// value is destroyed on the goroutine at its end, before a join returns, or on the plain thread at its end. Like a pointer,
/// a const variable gives a T that isn't const.
///
/// A variable may be destroyed before the goroutines that have values of it: the destructor destroys the caller's value,
/// and each other goroutine destroys its own at its end. There are 65,536 variables at most, in all of the program.
template <class T>
class local {
    struct slot;
    /// What the variable and its values share. The last one destroys it.
    struct block {
        gs_key key = 0;
        std::atomic<std::size_t> refs{1};
        block() = default;
        block(const block &) = delete;
        block &operator=(const block &) = delete;
        virtual ~block() = default;
        virtual slot *make_slot() = 0; // nullptr: no memory

        void release() noexcept
        {
            if (refs.fetch_sub(1, std::memory_order_acq_rel) != 1)
                return;
            (void)gs_key_delete(key);
            delete this;
        }
    };
    struct slot {
        block *of;
        T value;
        struct by {
        };
        template <class F>
        slot(by, block *b, F &&f) : of(b), value(std::forward<F>(f)())
        {
            of->refs.fetch_add(1, std::memory_order_relaxed);
        }
    };
    template <class F>
    struct block_of final : block {
        F init;
        template <class G>
        explicit block_of(G &&g) : init(std::forward<G>(g))
        {
        }
        ~block_of() noexcept override {} // F's may be noexcept(false)
        slot *make_slot() override
        {
            return detail::make<slot>(typename slot::by(), this, [this]() -> T { return std::invoke(init); });
        }
    };
    struct by_default {
        T operator()() const
        {
            if constexpr (std::is_default_constructible_v<T>)
                return T();
            else
                detail::raise(-EINVAL, "gs::local: it has no value, nor a default one");
        }
    };
    block *block_;

    /// At the end of a goroutine, or thread.
    static void ended(void *p) noexcept
    {
        auto *s = static_cast<slot *>(p);
        block *b = s->of;
        delete s;
        b->release();
    }
    template <class F>
    static block *make_block(F &&init)
    {
        std::unique_ptr<block> b(detail::make<block_of<std::decay_t<F>>>(std::forward<F>(init)));
        if (b == nullptr)
            return nullptr;
        detail::must(gs_key_create(&b->key, ended), "gs::local");
        return b.release();
    }
    slot *find() const noexcept { return block_ == nullptr ? nullptr : static_cast<slot *>(gs_getspecific(block_->key)); }
    T &put(slot *fresh, const char *where) const
    {
        slot *old = find();
        const int r = fresh == nullptr ? -ENOMEM : gs_setspecific(block_->key, fresh);
        if (__builtin_expect(r < 0, 0)) {
            if (fresh != nullptr)
                ended(fresh);
            detail::raise(r, where);
        }
        if (old != nullptr)
            ended(old);
        return fresh->value;
    }

public:
    using value_type = T;
    local() : block_(make_block(by_default())) {}
    /// init() is a goroutine's first value. Goroutines call it side by side.
    template <class F, std::enable_if_t<std::is_invocable_r_v<T, std::decay_t<F> &>, int> = 0>
    explicit local(F &&init) : block_(make_block(std::forward<F>(init)))
    {
    }
    local(const local &) = delete;
    local &operator=(const local &) = delete;
    ~local()
    {
        reset();
        if (block_ != nullptr)
            block_->release();
    }

    /// The caller's value. Misuse if there is none yet, and T has no default constructor.
    T &operator*() const
    {
        if (slot *s = find())
            return s->value;
        return put(block_ == nullptr ? nullptr : block_->make_slot(), "gs::local");
    }
    T *operator->() const { return std::addressof(**this); }
    /// The caller's value; nullptr: none yet. Doesn't make one.
    T *get() const noexcept
    {
        slot *s = find();
        return s == nullptr ? nullptr : std::addressof(s->value);
    }
    /// Makes a value in place of the caller's.
    template <class... Args>
    T &emplace(Args &&...args) const
    {
        const auto make_value = [&]() -> T { return T(std::forward<Args>(args)...); };
        return put(block_ == nullptr ? nullptr : detail::make<slot>(typename slot::by(), block_, make_value),
                   "gs::local::emplace");
    }
    /// Destroys the caller's value.
    void reset() const noexcept
    {
        if (slot *s = find()) {
            (void)gs_setspecific(block_->key, nullptr);
            ended(s);
        }
    }
};

// ---- Promises and futures ----

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

/// What a shared_future gives.
template <class R>
using shared_result = std::conditional_t<std::is_object_v<R>, std::add_lvalue_reference_t<const R>, R>;

/// What a promise, or a task, and its futures share. The last of them destroys it.
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
        f(); // if it throws, there is no result yet
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

    void retain() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); } // the caller has one
    void release() noexcept
    {
        // Release: what was done by this reference is over before the destruction, which acquires it.
        if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            destroy_(this);
    }
    /// Whether this call is the first.
    bool retrieve() noexcept { return !retrieved_.exchange(true, std::memory_order_relaxed); }

    // false: there is a result already.
    template <class F>
    bool set_value(F &&f)
    {
        return set_by([&] { out_.value.fill(std::forward<F>(f)); });
    }
    /// Also what f throws is a result.
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
    /// At the end of the promise.
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

    // After a wait:
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

/// What gs::future and gs::shared_future have in common.
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
    /// Until there is a result.
    result<void> wait() const
    {
        if (!s_)
            return failed<void>(std::future_errc::no_state);
        return done(s_->wait(GS_FOREVER), "gs::future::wait");
    }
    /// ready or timeout.
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
    /// ready, or timeout if a stop was requested before, or the time is up.
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

/// What the three kinds of gs::promise have in common.
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
    /// Without a result the futures fail with std::future_errc::broken_promise.
    ~promise_common()
    {
        if (s_)
            s_->abandon();
    }
    void swap(promise_common &o) noexcept { std::swap(s_, o.s_); }

    /// Once; then it fails with std::future_errc::future_already_retrieved.
    result<future<R>> get_future()
    {
        if (!s_)
            return failed<future<R>>(std::future_errc::no_state);
        if (!s_->retrieve())
            return failed<future<R>>(std::future_errc::future_already_retrieved);
        return future<R>(s_);
    }
#if GS_HPP_EXCEPTIONS
    /// Misuse if there is no exception.
    void set_exception(std::exception_ptr thrown)
    {
        if (thrown == nullptr)
            raise(-EINVAL, "gs::promise::set_exception");
        set([&](future_state<R> &s) { return s.set_exception(std::move(thrown)); });
    }
#else
    /// In place of set_exception(). Misuse if `why` is no error.
    result<void> set_error(std::error_code why)
    {
        if (!why)
            raise(-EINVAL, "gs::promise::set_error");
        return set([&](future_state<R> &s) { return s.set_error(why); });
    }
#endif
};

}  // namespace detail

/// A result that another goroutine or plain thread gives: std::future. Made by gs::promise and gs::packaged_task. The
/// destructor doesn't wait.
///
/// A wait fails with std::errc::operation_canceled in a cancelled goroutine. Other failures are those of the standard: an
/// std::future_error. Used by one goroutine or thread at a time.
template <class R>
class future : public detail::future_base<R> {
    friend class detail::promise_common<R>;
    friend class shared_future<R>;
    template <class>
    friend class packaged_task;
    explicit future(detail::future_ref<R> s) noexcept : detail::future_base<R>(std::move(s)) {}

public:
    future() noexcept = default;
    future(future &&) noexcept = default;
    future &operator=(future &&) noexcept = default;
    future(const future &) = delete;
    future &operator=(const future &) = delete;

    /// Waits, and returns the result or throws the exception. The future has no state then; it keeps the state if the wait
    /// is ended by a cancel, or R's move constructor throws.
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
    /// The future has no state then.
    shared_future<R> share() noexcept { return shared_future<R>(std::move(*this)); }
};

/// A result that any number of goroutines and plain threads wait for, each through a copy of its own: std::shared_future.
template <class R>
class shared_future : public detail::future_base<R> {
public:
    shared_future() noexcept = default;
    shared_future(future<R> &&o) noexcept : detail::future_base<R>(std::move(o.s_)) {}
    shared_future(const shared_future &) noexcept = default;
    shared_future(shared_future &&) noexcept = default;
    shared_future &operator=(const shared_future &) noexcept = default;
    shared_future &operator=(shared_future &&) noexcept = default;

    /// Waits, and gives a reference to the result or throws the exception, as often as it is called.
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

/// Gives a result to its future: std::promise, without the functions that end in at_thread_exit. The result is given once;
/// then set_value and set_exception fail with std::future_errc::promise_already_satisfied. If R's constructor throws in
/// set_value, there is no result yet.
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

/// A function whose result goes to a future: std::packaged_task, without make_ready_at_thread_exit. Moved and not copied.
/// For gs::go, among others: `gs::go(gs::detached, std::move(task), arguments...)`.
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
        ~callable_of() noexcept override {} // F's may be noexcept(false)
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
    /// No function.
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
    /// Once; then it fails with std::future_errc::future_already_retrieved.
    result<future<R>> get_future()
    {
        if (!s_)
            return detail::failed<future<R>>(std::future_errc::no_state);
        if (!s_->retrieve())
            return detail::failed<future<R>>(std::future_errc::future_already_retrieved);
        return future<R>(s_);
    }
    /// Calls the function: what it returns or throws is the future's result. Once; then it fails with
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
    /// Makes a new shared state, with which the function can be called again. The former one is abandoned.
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

// ---- Channels ----

/// Whether a T may be moved to another place by copying its bytes, without its move constructor and destructor.
/// Such values go over a channel directly; for others the channel carries a pointer to one on the heap.
/// May be specialised.
template <class T>
struct is_trivially_relocatable : std::is_trivially_copyable<T> {
};
template <class T>
struct is_trivially_relocatable<std::unique_ptr<T, std::default_delete<T>>> : std::true_type {
};
#if defined(__GLIBCXX__) || defined(_LIBCPP_VERSION)
template <class T>
struct is_trivially_relocatable<std::shared_ptr<T>> : std::true_type {
};
#endif

namespace detail {

enum class passing { bytes, relocated, on_heap };

template <class T>
inline constexpr passing passing_of = std::is_trivially_copyable_v<T>    ? passing::bytes
                                      : is_trivially_relocatable<T>::value ? passing::relocated
                                                                           : passing::on_heap;

template <class T>
inline constexpr std::size_t wire_size = passing_of<T> == passing::on_heap ? sizeof(T *) : sizeof(T);

/// Where a received element goes, and stays: the channel writes it here, and it isn't moved. data() is for the channel.
/// There is an element if status_ is ok.
template <class T, passing = passing_of<T>>
class landing { // bytes
    union {
        T value_;
    };

protected:
    gs::status status_;
    landing() noexcept {} // the status is set before anything else is done
    explicit landing(gs::status why) noexcept : status_(why) {}
    void *data() noexcept { return std::addressof(value_); }
    void put(T &&value) { ::new (data()) T(std::move(value)); }
    T *get() const noexcept { return std::launder(const_cast<T *>(std::addressof(value_))); }
};

template <class T>
class landing<T, passing::relocated> {
    union {
        T value_;
    };

    void take(landing &o) noexcept
    {
        status_ = o.status_;
        if (status_ == gs::status::ok) {
            std::memcpy(data(), o.data(), sizeof(T));
            o.status_ = gs::status::invalid;
        }
    }
    void drop() noexcept
    {
        if (status_ == gs::status::ok)
            get()->~T();
    }

protected:
    gs::status status_;
    landing() noexcept {}
    explicit landing(gs::status why) noexcept : status_(why) {}
    landing(const landing &o) : status_(o.status_)
    {
        if (status_ == gs::status::ok)
            ::new (data()) T(static_cast<const T &>(*o.get()));
    }
    landing(landing &&o) noexcept { take(o); }
    landing &operator=(const landing &o)
    {
        landing copy(o);
        return *this = std::move(copy);
    }
    landing &operator=(landing &&o) noexcept
    {
        if (this != &o) {
            drop();
            take(o);
        }
        return *this;
    }
    ~landing() { drop(); }
    void *data() noexcept { return std::addressof(value_); }
    void put(T &&value) { ::new (data()) T(std::move(value)); }
    T *get() const noexcept { return std::launder(const_cast<T *>(std::addressof(value_))); }
};

template <class T>
class landing<T, passing::on_heap> {
    T *value_ = nullptr;

protected:
    gs::status status_;
    landing() noexcept {}
    explicit landing(gs::status why) noexcept : status_(why) {}
    landing(const landing &o) : status_(o.status_)
    {
        if (status_ == gs::status::ok && (value_ = make<T>(static_cast<const T &>(*o.value_))) == nullptr)
            status_ = gs::status::no_memory;
    }
    landing(landing &&o) noexcept : value_(std::exchange(o.value_, nullptr)), status_(o.status_)
    {
        if (o.status_ == gs::status::ok)
            o.status_ = gs::status::invalid;
    }
    landing &operator=(const landing &o)
    {
        landing copy(o);
        return *this = std::move(copy);
    }
    landing &operator=(landing &&o) noexcept
    {
        landing other(std::move(o));
        std::swap(value_, other.value_);
        std::swap(status_, other.status_);
        return *this;
    }
    ~landing() { delete value_; }
    void *data() noexcept { return &value_; }
    void put(T &&value)
    {
        if ((value_ = make<T>(std::move(value))) == nullptr)
            status_ = gs::status::no_memory;
    }
    T *get() const noexcept { return value_; }
};

/// A base without copies, for a T that has none.
template <bool may_copy>
struct copy_gate {
};
template <>
struct copy_gate<false> {
    copy_gate() = default;
    copy_gate(const copy_gate &) = delete;
    copy_gate(copy_gate &&) = default;
    copy_gate &operator=(const copy_gate &) = delete;
    copy_gate &operator=(copy_gate &&) = default;
};

struct landing_access;
/// Of a gs::received whose status is set before anything else is done with it.
struct landing_begun {
};

}  // namespace detail

/// The result of a receive: a value, or why there is none. Like std::optional, with a status. No receive calls T's move
/// constructor, so an exception of that constructor can't lose the value: the constructor is called where the program
/// moves the value out of this object, which still has the value if that fails. A gs::received that was moved from may
/// have no value.
template <class T>
class received : private detail::copy_gate<std::is_copy_constructible_v<T>>, private detail::landing<T> {
    using place = detail::landing<T>;
    friend struct detail::landing_access;

public:
    using value_type = T;
    explicit received(detail::landing_begun) noexcept {} // for receives
    explicit received(gs::status why) noexcept : place(why == gs::status::ok ? gs::status::invalid : why) {}
    /// std::nullopt becomes a closed channel.
    explicit received(std::optional<T> &&value) : place(gs::status::closed)
    {
        if (!value)
            return;
        this->put(std::move(*value));
        if (this->status_ == gs::status::closed)
            this->status_ = gs::status::ok;
    }

    bool has_value() const noexcept { return this->status_ == gs::status::ok; }
    explicit operator bool() const noexcept { return has_value(); }
    /// ok, closed, again (try_recv), timed_out, stopped; without exceptions also cancelled, invalid, no_memory.
    gs::status status() const noexcept { return this->status_; }
    bool closed() const noexcept { return status() == gs::status::closed; }
    bool timed_out() const noexcept { return status() == gs::status::timed_out; }
    bool stopped() const noexcept { return status() == gs::status::stopped; }

    T &operator*() & noexcept { return *this->get(); }
    const T &operator*() const & noexcept { return *this->get(); }
    T &&operator*() && noexcept { return std::move(*this->get()); }
    T *operator->() noexcept { return this->get(); }
    const T *operator->() const noexcept { return this->get(); }
    /// The value; fails with the error of the status if there is none.
    T &value() &
    {
        check();
        return *this->get();
    }
    const T &value() const &
    {
        check();
        return *this->get();
    }
    T &&value() &&
    {
        check();
        return std::move(*this->get());
    }
    template <class U>
    T value_or(U &&other) const &
    {
        return has_value() ? **this : static_cast<T>(std::forward<U>(other));
    }
    template <class U>
    T value_or(U &&other) &&
    {
        return has_value() ? std::move(*this->get()) : static_cast<T>(std::forward<U>(other));
    }
    /// The value as an std::optional.
    std::optional<T> optional() &&
    {
        return has_value() ? std::optional<T>(std::move(*this->get())) : std::optional<T>();
    }

private:
    void check() const
    {
        if (!has_value()) // a stop is no signal
            detail::raise(stopped() ? -ECANCELED : -static_cast<int>(status()), "gs::received::value");
    }
};

namespace detail {

/// For a receive: into where the result will be.
struct landing_access {
    template <class T>
    static void *data(received<T> &to) noexcept
    {
        return to.data();
    }
    /// What has become of the receive.
    template <class T>
    static void set(received<T> &to, gs::status s) noexcept
    {
        to.status_ = s;
    }
};

}  // namespace detail

template <class T>
class chan;
template <class T>
class send_chan;
template <class T>
class recv_chan;

namespace detail {

/// An element on its way into a channel. If it isn't sent, a value that was moved goes back to where it was.
template <class T, passing = passing_of<T>>
class outgoing {
    const T *value_;

public:
    explicit outgoing(const T &v) noexcept : value_(std::addressof(v)) {}
    const void *data() const noexcept { return value_; }
    bool ok() const noexcept { return true; }
    void sent() noexcept {}
    void restore() noexcept {}
};

/// Whether an exception may leave give_back.
template <class T>
inline constexpr bool may_not_go_back = std::is_move_assignable_v<T> && !std::is_nothrow_move_assignable_v<T>;

template <class T>
inline void give_back(T &to, T &&value) noexcept(!may_not_go_back<T>)
{
    if constexpr (std::is_move_assignable_v<T>) {
        to = std::move(value);
    } else {
        // An exception would leave no value in place of the old one: it ends the program.
        to.~T();
        ::new (static_cast<void *>(std::addressof(to))) T(std::move(value));
    }
}

/// Called by the destructor of an outgoing that was neither sent nor restored, usually while an exception unwinds the
/// stack: so this function throws none.
template <class Out>
inline void restore_quietly(Out &out) noexcept
{
#if GS_HPP_EXCEPTIONS
    try {
        out.restore();
    } catch (...) {
    }
#else
    out.restore();
#endif
}

template <class T>
class outgoing<T, passing::relocated> {
    union {
        T value_;
    };
    T *from_ = nullptr; // moved from there
    bool full_ = true;

public:
    explicit outgoing(const T &v) : value_(v) {}
    explicit outgoing(T &&v) noexcept(std::is_nothrow_move_constructible_v<T>)
        : value_(std::move(v)), from_(std::addressof(v))
    {
    }
    ~outgoing() noexcept { restore_quietly(*this); }
    outgoing(const outgoing &) = delete;
    outgoing &operator=(const outgoing &) = delete;
    const void *data() const noexcept { return std::addressof(value_); }
    bool ok() const noexcept { return true; }
    void sent() noexcept { full_ = false; }
    void restore() noexcept(!may_not_go_back<T>)
    {
        if (!std::exchange(full_, false))
            return;
        struct last {
            T &value;
            ~last() { value.~T(); }
        } at_end{value_};
        if (from_ != nullptr)
            give_back(*from_, std::move(value_));
    }
};

template <class T>
class outgoing<T, passing::on_heap> {
    T *value_;
    T *from_ = nullptr;

public:
    explicit outgoing(const T &v) : value_(make<T>(v)) {}
    explicit outgoing(T &&v) : value_(make<T>(std::move(v))), from_(std::addressof(v)) {}
    ~outgoing() noexcept { restore_quietly(*this); }
    outgoing(const outgoing &) = delete;
    outgoing &operator=(const outgoing &) = delete;
    const void *data() const noexcept { return &value_; }
    bool ok() const noexcept { return value_ != nullptr; }
    void sent() noexcept { value_ = nullptr; }
    void restore() noexcept(!may_not_go_back<T>)
    {
        const std::unique_ptr<T> back(std::exchange(value_, nullptr));
        if (back && from_ != nullptr)
            give_back(*from_, std::move(*back));
    }
};

/// What the handles of a channel share. The last one destroys what is in the channel, and frees it.
struct chan_block {
    gs_chan *c;
    std::atomic<std::size_t> handles{1};
    void (*drain)(gs_chan *); // nullptr: elements have no destructor

    chan_block(gs_chan *chan, void (*d)(gs_chan *)) noexcept : c(chan), drain(d) {}
    void retain() noexcept { handles.fetch_add(1, std::memory_order_relaxed); } // the caller has one
    void release() noexcept
    {
        // Release: what was done through this handle is over before the destruction, which acquires it.
        if (handles.fetch_sub(1, std::memory_order_acq_rel) != 1)
            return;
        if (drain != nullptr)
            drain(c);
        (void)gs_chan_free(c);
        delete this;
    }
};

template <class T, class Op>
inline received<T> recv_by(const char *where, Op &&op)
{
    received<T> in{landing_begun()};
    const int r = op(landing_access::data(in));
    if (__builtin_expect(r == 0, 1)) {
        landing_access::set(in, status::ok);
        return in;
    }
    landing_access::set(in, status::invalid);
    landing_access::set(in, status_of(r, where));
    return in;
}

template <class T>
inline received<T> recv(gs_chan *c, gs_deadline at, const char *where)
{
    return recv_by<T>(where, [&](void *elem) { return gs_chan_recv(c, elem, at); });
}

#if GS_HPP_STOP_TOKENS
template <class T>
inline received<T> recv(const std::stop_token &st, gs_chan *c, gs_deadline at, const char *where)
{
    return recv_by<T>(where, [&](void *elem) { return chan_or_stop(st, gs_case{c, elem, GS_RECV, 0}, at); });
}
#endif

template <class T>
inline void drain(gs_chan *c)
{
    while (recv<T>(c, GS_NOWAIT, "gs::chan").has_value()) {
    }
}

/// A shared reference to a channel.
template <class T>
class chan_handle {
    chan_block *block_ = nullptr;

protected:
    explicit chan_handle(chan_block *block) noexcept : block_(block) {}
    static chan_block *adopt(gs_chan *c)
    {
        // Here, so that a T may have channels of T's as members.
        static_assert(std::is_object_v<T> && !std::is_const_v<T> && !std::is_array_v<T>, "the elements are values");
        static_assert(std::is_move_constructible_v<T>, "the elements can be moved");
        if (c == nullptr) {
#if GS_HPP_EXCEPTIONS
            raise(-ENOMEM, "gs::chan");
#else
            return nullptr;
#endif
        }
        void (*d)(gs_chan *) = passing_of<T> == passing::bytes ? nullptr : drain<T>;
#if GS_HPP_EXCEPTIONS
        try {
            return new chan_block(c, d);
        } catch (...) {
            (void)gs_chan_free(c);
            throw;
        }
#else
        auto *b = make<chan_block>(c, d);
        if (b == nullptr)
            (void)gs_chan_free(c);
        return b;
#endif
    }
    ~chan_handle()
    {
        if (block_ != nullptr)
            block_->release();
    }

public:
    using value_type = T;
    chan_handle() noexcept = default;
    chan_handle(const chan_handle &o) noexcept : block_(o.block_)
    {
        if (block_ != nullptr)
            block_->retain();
    }
    chan_handle(chan_handle &&o) noexcept : block_(std::exchange(o.block_, nullptr)) {}
    chan_handle &operator=(const chan_handle &o) noexcept
    {
        chan_handle(o).swap(*this);
        return *this;
    }
    chan_handle &operator=(chan_handle &&o) noexcept
    {
        chan_handle(std::move(o)).swap(*this);
        return *this;
    }
    void swap(chan_handle &o) noexcept { std::swap(block_, o.block_); }

    /// Whether the handle refers to a channel. A nil channel is never ready in a select, and an error elsewhere.
    explicit operator bool() const noexcept { return block_ != nullptr; }
    /// How many elements are buffered now.
    std::size_t size() const noexcept { return gs_chan_len(native_handle()); }
    /// How many elements the buffer holds.
    std::size_t capacity() const noexcept { return gs_chan_cap(native_handle()); }
    /// For functions of gosched.h. Valid as long as the channel has a handle. Its elements are T's if
    /// is_trivially_relocatable<T>, else pointers to T's on the heap.
    gs_chan *native_handle() const noexcept { return block_ != nullptr ? block_->c : nullptr; }
    /// Whether both refer to the same channel.
    friend bool operator==(const chan_handle &a, const chan_handle &b) noexcept { return a.block_ == b.block_; }
    friend bool operator!=(const chan_handle &a, const chan_handle &b) noexcept { return a.block_ != b.block_; }
};

template <class T, class V, class Op>
inline int send_by(V &&v, Op &&op)
{
    if constexpr (passing_of<T> == passing::bytes) {
        return op(static_cast<const void *>(std::addressof(v)));
    } else {
        outgoing<T> out(std::forward<V>(v));
        if (!out.ok())
            return -ENOMEM;
        const int r = op(out.data());
        if (r == 0)
            out.sent();
        else if constexpr (may_not_go_back<T>)
            out.restore(); // not by the destructor, which an exception can't leave
        return r;
    }
}

template <class T, class V>
inline int send(gs_chan *c, V &&v, gs_deadline at)
{
    return send_by<T>(std::forward<V>(v), [&](const void *elem) { return gs_chan_send(c, elem, at); });
}

#if GS_HPP_STOP_TOKENS
template <class T, class V>
inline int send(const std::stop_token &st, gs_chan *c, V &&v, gs_deadline at)
{
    return send_by<T>(std::forward<V>(v), [&](const void *elem) {
        return chan_or_stop(st, gs_case{c, const_cast<void *>(elem), GS_SEND, 0}, at);
    });
}
#endif

/// The operations of a channel that can be sent to.
template <class Self, class T>
class sending {
    gs_chan *c() const noexcept { return static_cast<const Self *>(this)->native_handle(); }

public:
    /// `ch <- value`. Fails with std::errc::broken_pipe if the channel is closed, or is closed while the send waits. A
    /// value that was to be moved is then moved back. If T's move assignment throws, that exception leaves the send,
    /// and the value is in the state in which the assignment has left it. This holds for all sends.
    result<void> send(const T &value) const { return done(detail::send<T>(c(), value, GS_FOREVER), "gs::chan::send"); }
    result<void> send(T &&value) const
    {
        return done(detail::send<T>(c(), std::move(value), GS_FOREVER), "gs::chan::send");
    }
    /// ok, again or closed.
    [[nodiscard]] status try_send(const T &value) const
    {
        return status_of(detail::send<T>(c(), value, GS_NOWAIT), "gs::chan::try_send");
    }
    [[nodiscard]] status try_send(T &&value) const
    {
        return status_of(detail::send<T>(c(), std::move(value), GS_NOWAIT), "gs::chan::try_send");
    }
    /// ok, timed_out or closed.
    template <class Rep, class Period>
    [[nodiscard]] status send_for(const T &value, const std::chrono::duration<Rep, Period> &d) const
    {
        return status_of(detail::send<T>(c(), value, deadline(d).native()), "gs::chan::send_for");
    }
    template <class Rep, class Period>
    [[nodiscard]] status send_for(T &&value, const std::chrono::duration<Rep, Period> &d) const
    {
        return status_of(detail::send<T>(c(), std::move(value), deadline(d).native()), "gs::chan::send_for");
    }
    template <class Clock, class Duration>
    [[nodiscard]] status send_until(const T &value, const std::chrono::time_point<Clock, Duration> &at) const
    {
        return status_of(detail::send<T>(c(), value, deadline(at).native()), "gs::chan::send_until");
    }
    template <class Clock, class Duration>
    [[nodiscard]] status send_until(T &&value, const std::chrono::time_point<Clock, Duration> &at) const
    {
        return status_of(detail::send<T>(c(), std::move(value), deadline(at).native()), "gs::chan::send_until");
    }
#if GS_HPP_STOP_TOKENS
    /// ok, closed, stopped; with a limit also timed_out.
    [[nodiscard]] status send(const std::stop_token &st, const T &value) const
    {
        return status_of(detail::send<T>(st, c(), value, GS_FOREVER), "gs::chan::send");
    }
    [[nodiscard]] status send(const std::stop_token &st, T &&value) const
    {
        return status_of(detail::send<T>(st, c(), std::move(value), GS_FOREVER), "gs::chan::send");
    }
    template <class Rep, class Period>
    [[nodiscard]] status send_for(const std::stop_token &st, const T &value, const std::chrono::duration<Rep, Period> &d) const
    {
        return status_of(detail::send<T>(st, c(), value, deadline(d).native()), "gs::chan::send_for");
    }
    template <class Rep, class Period>
    [[nodiscard]] status send_for(const std::stop_token &st, T &&value, const std::chrono::duration<Rep, Period> &d) const
    {
        return status_of(detail::send<T>(st, c(), std::move(value), deadline(d).native()), "gs::chan::send_for");
    }
    template <class Clock, class Duration>
    [[nodiscard]] status send_until(const std::stop_token &st, const T &value, const std::chrono::time_point<Clock, Duration> &at) const
    {
        return status_of(detail::send<T>(st, c(), value, deadline(at).native()), "gs::chan::send_until");
    }
    template <class Clock, class Duration>
    [[nodiscard]] status send_until(const std::stop_token &st, T &&value, const std::chrono::time_point<Clock, Duration> &at) const
    {
        return status_of(detail::send<T>(st, c(), std::move(value), deadline(at).native()), "gs::chan::send_until");
    }
#endif
    /// From now on sends fail, and so do receives once the channel is drained. Fails with std::errc::broken_pipe if the
    /// channel is closed already.
    result<void> close() const { return done(gs_chan_close(c()), "gs::chan::close"); }
};

/// Bytes of an iterator up to which the end of a channel's range is an iterator too.
inline constexpr std::size_t large_iterator = 16384;

/// The operations of a channel that can be received from.
template <class Self, class T>
class receiving {
    gs_chan *c() const noexcept { return static_cast<const Self *>(this)->native_handle(); }

public:
    /// `v, ok := <-ch`. Without a value if the channel is closed and drained.
    received<T> recv() const { return detail::recv<T>(c(), GS_FOREVER, "gs::chan::recv"); }
    received<T> try_recv() const { return detail::recv<T>(c(), GS_NOWAIT, "gs::chan::try_recv"); }
    template <class Rep, class Period>
    received<T> recv_for(const std::chrono::duration<Rep, Period> &d) const
    {
        return detail::recv<T>(c(), deadline(d).native(), "gs::chan::recv_for");
    }
    template <class Clock, class Duration>
    received<T> recv_until(const std::chrono::time_point<Clock, Duration> &at) const
    {
        return detail::recv<T>(c(), deadline(at).native(), "gs::chan::recv_until");
    }
#if GS_HPP_STOP_TOKENS
    /// Without a value and stopped() if a stop is requested before there is one.
    received<T> recv(const std::stop_token &st) const { return detail::recv<T>(st, c(), GS_FOREVER, "gs::chan::recv"); }
    template <class Rep, class Period>
    received<T> recv_for(const std::stop_token &st, const std::chrono::duration<Rep, Period> &d) const
    {
        return detail::recv<T>(st, c(), deadline(d).native(), "gs::chan::recv_for");
    }
    template <class Clock, class Duration>
    received<T> recv_until(const std::stop_token &st, const std::chrono::time_point<Clock, Duration> &at) const
    {
        return detail::recv<T>(st, c(), deadline(at).native(), "gs::chan::recv_until");
    }
#endif

    struct sentinel;
    /// Of `for (T v : ch)`, which receives until the channel is closed and drained. (Without exceptions also until
    /// the goroutine is cancelled.) With C++20 a channel of assignable elements is an std::ranges::input_range.
    class iterator {
        gs_chan *c_ = nullptr;
        mutable received<T> value_{status::closed}; // for *it of a const iterator, as C++20's ranges ask for
        friend class receiving;
        friend struct sentinel;
        explicit iterator(gs_chan *c) : c_(c), value_(detail::recv<T>(c, GS_FOREVER, "gs::chan::recv")) {}

    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = T;
        using difference_type = std::ptrdiff_t;
        using pointer = T *;
        using reference = T &;
        iterator() = default;
        T &operator*() const noexcept { return *value_; }
        T *operator->() const noexcept { return &*value_; }
        iterator &operator++()
        {
            // Not by assignment: elements needn't be assignable.
            value_.~received<T>();
            struct refill { // if the receive throws
                received<T> *place;
                ~refill()
                {
                    if (place != nullptr)
                        ::new (static_cast<void *>(place)) received<T>(status::closed);
                }
            } on_throw{&value_};
            ::new (static_cast<void *>(&value_)) received<T>(detail::recv<T>(c_, GS_FOREVER, "gs::chan::recv"));
            on_throw.place = nullptr;
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const iterator &a, const iterator &b) noexcept
        {
            return a.value_.has_value() == b.value_.has_value();
        }
        friend bool operator!=(const iterator &a, const iterator &b) noexcept { return !(a == b); }
    };
    /// The end of a range whose elements can't be copied, since C++20's ranges want an end that can be copied. Also the end
    /// of a range whose elements are large: an iterator has room for an element, and a goroutine's stack is small.
    struct sentinel {
        friend bool operator==(const iterator &it, sentinel) noexcept { return at_end(it); }
        friend bool operator!=(const iterator &it, sentinel) noexcept { return !at_end(it); }

    private:
        static bool at_end(const iterator &it) noexcept { return !it.value_.has_value(); }
    };
    iterator begin() const { return iterator(c()); }
    auto end() const // deduced at its use: T may be incomplete until then
    {
        return std::conditional_t<std::is_copy_constructible_v<T> && sizeof(iterator) <= large_iterator, iterator, sentinel>();
    }
};

struct access; // to the constructors below

}  // namespace detail

/// A channel of T's: a shared reference, copied as std::shared_ptr is. T can be moved; it needs neither a copy nor a
/// default constructor. Any number of goroutines and plain threads use a channel at once, each through a handle
/// of its own, or a variable that is not assigned to. When the last handle goes, the values left in it are destroyed.
template <class T>
class chan : public detail::chan_handle<T>, public detail::sending<chan<T>, T>, public detail::receiving<chan<T>, T> {
public:
    /// make(chan T, capacity). 0: a send waits for its receive.
    explicit chan(std::size_t capacity)
        : detail::chan_handle<T>(chan::adopt(gs_chan_make(detail::wire_size<T>, capacity)))
    {
    }
    chan() : chan(std::size_t{0}) {}
    /// A nil channel. Only from nullptr: 0 is a capacity.
    template <class Null, std::enable_if_t<std::is_same_v<Null, std::nullptr_t>, int> = 0>
    chan(Null) noexcept
    {
    }
};

/// A channel that can only be sent to: chan<- T.
template <class T>
class send_chan : public detail::chan_handle<T>, public detail::sending<send_chan<T>, T> {
public:
    send_chan() noexcept = default;
    send_chan(const chan<T> &c) noexcept : detail::chan_handle<T>(c) {}
    send_chan(chan<T> &&c) noexcept : detail::chan_handle<T>(std::move(c)) {}
};

/// A channel that can only be received from: <-chan T.
template <class T>
class recv_chan : public detail::chan_handle<T>, public detail::receiving<recv_chan<T>, T> {
    friend struct detail::access;
    explicit recv_chan(detail::chan_block *b) noexcept : detail::chan_handle<T>(b) {}

public:
    recv_chan() noexcept = default;
    recv_chan(const chan<T> &c) noexcept : detail::chan_handle<T>(c) {}
    recv_chan(chan<T> &&c) noexcept : detail::chan_handle<T>(std::move(c)) {}
};

template <class T>
struct is_trivially_relocatable<chan<T>> : std::true_type {
};
template <class T>
struct is_trivially_relocatable<send_chan<T>> : std::true_type {
};
template <class T>
struct is_trivially_relocatable<recv_chan<T>> : std::true_type {
};

namespace detail {

struct access {
    /// A handle for a channel of gosched.h, which the handle owns from here on.
    template <class T>
    static recv_chan<T> adopt(gs_chan *c)
    {
        return recv_chan<T>(recv_chan<T>::adopt(c));
    }
};

template <class C, class T = typename C::value_type>
inline constexpr bool can_send = std::is_convertible_v<const C &, send_chan<T>>;
template <class C, class T = typename C::value_type>
inline constexpr bool can_recv = std::is_convertible_v<const C &, recv_chan<T>>;

}  // namespace detail

// ---- Select ----

namespace detail {

/// Keeps the first exception of several calls, of which all are to be made.
template <bool may_throw>
class first_thrown {
public:
    template <class F>
    void by(F &&f) noexcept
    {
        f();
    }
    void rethrow() noexcept {}
};
#if GS_HPP_EXCEPTIONS
template <>
class first_thrown<true> {
    std::exception_ptr thrown_;

public:
    template <class F>
    void by(F &&f) noexcept
    {
        try {
            f();
        } catch (...) {
            if (!thrown_)
                thrown_ = std::current_exception();
        }
    }
    void rethrow()
    {
        if (__builtin_expect(thrown_ != nullptr, 0))
            std::rethrow_exception(std::move(thrown_));
    }
};
#endif

struct case_base {
    case_base() = default;
    case_base(const case_base &) = delete;
    case_base &operator=(const case_base &) = delete;

    static constexpr bool is_op = false, is_default = false, is_timeout = false, may_throw = false;
    void fill(gs_case &) noexcept {}
    void settle(bool, int) noexcept {}
    void limit(gs_deadline &) noexcept {}
    bool ok() const noexcept { return true; }
};

/// The type of the argument of a function that has only one signature; void for a template, say, or overloads.
template <class R, class Arg>
Arg argument_of_pointer(R (*)(Arg));
template <class R, class C, class Arg>
Arg argument_of_pointer(R (C::*)(Arg));
template <class R, class C, class Arg>
Arg argument_of_pointer(R (C::*)(Arg) const);
template <class R, class C, class Arg>
Arg argument_of_pointer(R (C::*)(Arg) &);
template <class R, class C, class Arg>
Arg argument_of_pointer(R (C::*)(Arg) const &);

template <class F, class = void>
struct argument {
    using type = void;
};
template <class F>
struct argument<F *, std::void_t<decltype(argument_of_pointer(std::declval<F *>()))>> {
    using type = decltype(argument_of_pointer(std::declval<F *>()));
};
template <class F>
struct argument<F, std::void_t<decltype(argument_of_pointer(&F::operator()))>> {
    using type = decltype(argument_of_pointer(&F::operator()));
};

/// Whether a function of a receive is called with a gs::received<T>, and not with a T.
template <class F, class T>
constexpr bool takes_received() noexcept
{
    if constexpr (!std::is_invocable_v<F &, received<T>>) {
        return false;
    } else if constexpr (!std::is_convertible_v<received<T>, T>) {
        return true;
    } else { // a std::any, say: also a function of a T can be called with a received<T>, which it would hold then
        using Arg = typename argument<std::decay_t<F>>::type;
        return std::is_void_v<Arg> || std::is_same_v<std::decay_t<Arg>, received<T>>;
    }
}

template <class C, class F>
class recv_case : public case_base {
    using T = typename C::value_type;
    gs_chan *c_;
    received<T> in_{status::closed};
    F &f_;

public:
    static constexpr bool is_op = true;
    recv_case(const C &c, F &f) noexcept : c_(c.native_handle()), f_(f) {}
    void fill(gs_case &k) noexcept { k = gs_case{c_, landing_access::data(in_), GS_RECV, 0}; }
    int finish(int r)
    {
        if (r == 0)
            landing_access::set(in_, status::ok);
        if constexpr (takes_received<F, T>()) {
            f_(std::move(in_));
        } else {
            static_assert(std::is_invocable_v<F &, T>, "the function takes a T or a gs::received<T>");
            if (r < 0)
                return r;
            f_(*std::move(in_));
        }
        return 0;
    }
};

template <class C, class F>
class send_case : public case_base {
    using T = typename C::value_type;
    gs_chan *c_;
    outgoing<T> out_;
    F &f_;

public:
    static constexpr bool is_op = true, may_throw = may_not_go_back<T>; // in settle()
    template <class V>
    send_case(const C &c, V &&v, F &f) : c_(c.native_handle()), out_(std::forward<V>(v)), f_(f)
    {
    }
    bool ok() const noexcept { return out_.ok(); }
    void fill(gs_case &k) noexcept { k = gs_case{c_, const_cast<void *>(out_.data()), GS_SEND, 0}; }
    void settle(bool chosen, int r) noexcept(!may_not_go_back<T>)
    {
        if (chosen && r == 0)
            out_.sent();
        else
            out_.restore();
    }
    int finish(int r)
    {
        if (r == 0)
            f_();
        return r;
    }
};

template <class F>
class default_case : public case_base {
    F &f_;

public:
    static constexpr bool is_default = true;
    explicit default_case(F &f) noexcept : f_(f) {}
    void limit(gs_deadline &at) noexcept { at = GS_NOWAIT; }
    int finish(int)
    {
        f_();
        return 0;
    }
};

template <class F>
class timeout_case : public case_base {
    deadline at_;
    F &f_;

public:
    static constexpr bool is_timeout = true;
    timeout_case(deadline at, F &f) noexcept : at_(at), f_(f) {}
    void limit(gs_deadline &at) noexcept { at = at_.native(); }
    int finish(int)
    {
        f_();
        return 0;
    }
};

#if GS_HPP_STOP_TOKENS
template <class F>
class stop_case : public case_base {
    std::optional<stop_chan> stop_;
    F &f_;

public:
    static constexpr bool is_op = true;
    stop_case(const std::stop_token &st, F &f) : f_(f)
    {
        if (st.stop_possible())
            stop_.emplace(st);
    }
    bool ok() const noexcept { return !stop_ || stop_->get() != nullptr; }
    void fill(gs_case &k) noexcept { k = gs_case{stop_ ? stop_->get() : nullptr, nullptr, GS_RECV, 0}; }
    int finish(int)
    {
        f_();
        return 0;
    }
};
#endif

}  // namespace detail

/// A case of gs::select: receives, then calls f with the value. If f can be called with a gs::received<T> (also with
/// auto), it gets that, without a value if the channel is closed and drained. An f that takes only a T can't be told of
/// a closed channel: then select fails with std::errc::broken_pipe.
template <class C, class F, std::enable_if_t<detail::can_recv<C>, int> = 0>
inline auto recv(const C &c, F &&f)
{
    return detail::recv_case<C, std::remove_reference_t<F>>(c, f);
}

/// A case of gs::select: sends, then calls f. A value that was to be moved is as before if another case was chosen.
/// select fails with std::errc::broken_pipe if the channel is closed.
template <class C, class F, std::enable_if_t<detail::can_send<C>, int> = 0>
inline auto send(const C &c, const typename C::value_type &value, F &&f)
{
    return detail::send_case<C, std::remove_reference_t<F>>(c, value, f);
}
template <class C, class F, std::enable_if_t<detail::can_send<C>, int> = 0>
inline auto send(const C &c, typename C::value_type &&value, F &&f)
{
    return detail::send_case<C, std::remove_reference_t<F>>(c, std::move(value), f);
}

/// The case that is chosen if no other one can be done at once: default.
template <class F>
inline auto otherwise(F &&f)
{
    return detail::default_case<std::remove_reference_t<F>>(f);
}
/// The case that is chosen if no other one can be done in time.
template <class F>
inline auto timeout(deadline at, F &&f)
{
    return detail::timeout_case<std::remove_reference_t<F>>(at, f);
}
#if GS_HPP_STOP_TOKENS
/// The case that can be done once a stop is requested.
template <class F>
inline auto stopped(const std::stop_token &st, F &&f)
{
    return detail::stop_case<std::remove_reference_t<F>>(st, f);
}
#endif

/// Carries out one of the cases, each written in place: gs::select(gs::recv(a, f), gs::send(b, 1, g),
/// gs::otherwise(h)). Of several cases that can be done, each has the same chance. Calls the function of the case that
/// was chosen, and returns the case's index. Fails with std::errc::operation_canceled in a cancelled goroutine that
/// would have to wait. If a value that was not sent can't be moved back because its assignment throws, select calls the
/// function of the case and then throws that exception.
template <class... Cases>
inline result<std::size_t> select(Cases &&...cases)
{
    static_assert((!std::is_lvalue_reference_v<Cases> && ...), "cases are written in place");
    static_assert((std::size_t{Cases::is_default || Cases::is_timeout} + ... + 0) <= 1,
                  "there is one otherwise or timeout at most");
    constexpr std::size_t n = (std::size_t{Cases::is_op} + ... + 0);
    gs_case ops[n + 1] = {};
    gs_deadline at = GS_FOREVER;
    int op = 0, r = (cases.ok() && ...) ? 0 : -ENOMEM;
    ((Cases::is_op ? cases.fill(ops[op++]) : cases.limit(at)), ...);
    if (r == 0)
        r = gs_select(ops, n, at);
    op = 0;
    detail::first_thrown<(Cases::may_throw || ...)> lost;
    ((Cases::is_op ? (lost.by([&] { cases.settle(op == r, ops[op].result); }), void(op++)) : void()), ...);

    // All that goes back has gone back before a function runs or anything is thrown.
    int done = r == -EAGAIN || r == -ETIMEDOUT ? 0 : r, index = 0, chosen = -1;
    op = 0;
    const auto visit = [&](auto &c) {
        using C = std::remove_reference_t<decltype(c)>;
        const bool is_it = C::is_op ? op == r : r == (C::is_default ? -EAGAIN : -ETIMEDOUT);
        if (chosen < 0 && is_it) {
            chosen = index;
            done = c.finish(C::is_op ? ops[op].result : 0);
        }
        op += C::is_op;
        index++;
    };
    (visit(cases), ...);
    lost.rethrow();
    if (__builtin_expect(chosen < 0 || done < 0, 0))
        return detail::failed<std::size_t>(done, "gs::select");
    return static_cast<std::size_t>(chosen);
}

/// Cases of a select whose number is known only at run time: for a set of channels that grows and shrinks. Each case takes part
/// until it is disabled. A receive is disabled by itself once its channel is closed and drained, before its function is
/// called; a send, once it is done. reflect.Select.
///
///     gs::selector s;
///     for (auto &c : channels)
///         s.recv(c, [&](gs::received<int> v) { ... });
///     while (s.active() > 0)
///         s.select();
///
/// For one goroutine at a time. A function of a case may add, enable and disable cases. Without memory for a case
/// std::bad_alloc is thrown; without exceptions the program ends.
class selector {
    struct entry {
        bool on = true, spent = false;
        entry() = default;
        entry(const entry &) = delete;
        entry &operator=(const entry &) = delete;
        virtual ~entry() = default;
        virtual bool fill(gs_case &k) = 0; // false: no memory
        virtual void settle(bool chosen, int r) = 0; // throws if a value can't be moved back
        virtual int finish(int r) = 0;
    };
    template <class T, class F>
    struct receiving final : entry {
        recv_chan<T> c;
        F f;
        std::optional<detail::recv_case<recv_chan<T>, F>> now;
        template <class G>
        receiving(recv_chan<T> ch, G &&g) : c(std::move(ch)), f(std::forward<G>(g))
        {
        }
        ~receiving() noexcept override {} // F's destructor may be noexcept(false)
        bool fill(gs_case &k) override
        {
            now.emplace(c, f);
            now->fill(k);
            return true;
        }
        void settle(bool, int) override {}
        int finish(int r) override
        {
            if (r < 0)
                this->on = false;
            struct last { // the element goes when the function has returned
                decltype(now) &op;
                ~last() { op.reset(); }
            } at_end{now};
            return now->finish(r);
        }
    };
    template <class T, class F>
    struct sending final : entry {
        send_chan<T> c;
        T value;
        F f;
        std::optional<detail::send_case<send_chan<T>, F>> now; // gives the value back when it goes
        template <class V, class G>
        sending(send_chan<T> ch, V &&v, G &&g) : c(std::move(ch)), value(std::forward<V>(v)), f(std::forward<G>(g))
        {
        }
        ~sending() noexcept override {}
        bool fill(gs_case &k) override
        {
            now.emplace(c, std::move(value), f);
            now->fill(k);
            return now->ok();
        }
        void settle(bool chosen, int r) override
        {
            if (now)
                now->settle(chosen, r);
        }
        int finish(int r) override
        {
            this->on = false;
            this->spent = true;
            return now->finish(r);
        }
    };
    std::vector<std::unique_ptr<entry>> entries_;
    std::vector<gs_case> ops_;
    std::vector<std::size_t> number_; // of the entry, for each of ops_

    std::size_t add(std::unique_ptr<entry> e)
    {
        entries_.push_back(std::move(e));
        return entries_.size() - 1;
    }
    /// 0, and which case was done; or the error. stop: a channel that is closed if a stop is requested; nullptr: none.
    int run(gs_deadline at, std::size_t &which, gs_chan *stop = nullptr)
    {
        ops_.clear();
        number_.clear();
        for (std::size_t i = 0; i < entries_.size(); i++)
            if (entries_[i]->on)
                number_.push_back(i);
        if (number_.empty())
            return -EINVAL;
        const std::size_t n = number_.size();
        ops_.resize(n);
        int r = 0;
        for (std::size_t k = 0; k < n && r == 0; k++)
            r = entries_[number_[k]]->fill(ops_[k]) ? 0 : -ENOMEM;
        if (stop != nullptr)
            ops_.push_back(gs_case{stop, nullptr, GS_RECV, 0});
        if (r == 0)
            r = gs_select(ops_.data(), ops_.size(), at);
        detail::first_thrown<true> lost;
        for (std::size_t k = 0; k < n; k++)
            lost.by([&] { entries_[number_[k]]->settle(r >= 0 && k == static_cast<std::size_t>(r), ops_[k].result); });
        if (r >= 0 && static_cast<std::size_t>(r) == n) {
            r = detail::stop_asked;
        } else if (r >= 0) {
            which = number_[static_cast<std::size_t>(r)];
            // The function may add cases, which moves the vectors.
            entry *e = entries_[which].get();
            r = e->finish(ops_[static_cast<std::size_t>(r)].result);
        }
        lost.rethrow();
        return r;
    }
#if GS_HPP_STOP_TOKENS
    result<std::optional<std::size_t>> run_until(const std::stop_token &st, gs_deadline at, const char *where)
    {
        if (!st.stop_possible())
            return run_until(at, where);
        detail::stop_chan stop(st);
        if (stop.get() == nullptr)
            return detail::failed<std::optional<std::size_t>>(-ENOMEM, where);
        return run_until(at, where, stop.get());
    }
#endif
    result<std::optional<std::size_t>> run_until(gs_deadline at, const char *where, gs_chan *stop = nullptr)
    {
        std::size_t which = 0;
        const int r = run(at, which, stop);
        if (r == -EAGAIN || r == -ETIMEDOUT || r == detail::stop_asked)
            return std::optional<std::size_t>();
        if (r < 0)
            return detail::failed<std::optional<std::size_t>>(r, where);
        return std::optional<std::size_t>(which);
    }

public:
    /// Adds a case that receives, and returns its number: 0, 1, 2 ... f is as for gs::recv.
    template <class C, class F, std::enable_if_t<detail::can_recv<C>, int> = 0>
    std::size_t recv(const C &c, F &&f)
    {
        using T = typename C::value_type;
        return add(std::make_unique<receiving<T, std::decay_t<F>>>(recv_chan<T>(c), std::forward<F>(f)));
    }
    /// Adds a case that sends the value once and then calls f. Returns its number.
    template <class C, class V, class F, std::enable_if_t<detail::can_send<C>, int> = 0>
    std::size_t send(const C &c, V &&value, F &&f)
    {
        using T = typename C::value_type;
        return add(std::make_unique<sending<T, std::decay_t<F>>>(send_chan<T>(c), std::forward<V>(value), std::forward<F>(f)));
    }

    /// How many cases there are, disabled ones too.
    std::size_t size() const noexcept { return entries_.size(); }
    /// How many cases take part.
    std::size_t active() const noexcept
    {
        std::size_t n = 0;
        for (const auto &e : entries_)
            n += e->on;
        return n;
    }
    bool enabled(std::size_t i) const { return entries_.at(i)->on; }
    void disable(std::size_t i) { entries_.at(i)->on = false; }
    /// Lets the case take part again, unless it is a send that is done.
    void enable(std::size_t i) { entries_.at(i)->on = !entries_.at(i)->spent; }
    /// Removes all cases, with the values that were not sent. Not from the function of a case.
    void clear() noexcept { entries_.clear(); }

    /// Waits until one of the cases can be done, does it, and returns its number. Fails as gs::select does, and with
    /// std::errc::invalid_argument if no case takes part.
    result<std::size_t> select()
    {
        std::size_t which = 0;
        const int r = run(GS_FOREVER, which);
        if (__builtin_expect(r < 0, 0))
            return detail::failed<std::size_t>(r, "gs::selector::select");
        return which;
    }
    /// Does a case that can be done at once. Empty if there is none.
    result<std::optional<std::size_t>> try_select() { return run_until(GS_NOWAIT, "gs::selector::try_select"); }
    /// Empty if no case could be done in time.
    template <class Rep, class Period>
    result<std::optional<std::size_t>> select_for(const std::chrono::duration<Rep, Period> &d)
    {
        return run_until(deadline(d).native(), "gs::selector::select_for");
    }
    template <class Clock, class Duration>
    result<std::optional<std::size_t>> select_until(const std::chrono::time_point<Clock, Duration> &at)
    {
        return run_until(deadline(at).native(), "gs::selector::select_until");
    }
#if GS_HPP_STOP_TOKENS
    /// Empty if a stop was requested, or no case could be done in time.
    result<std::optional<std::size_t>> select(const std::stop_token &st)
    {
        return run_until(st, GS_FOREVER, "gs::selector::select");
    }
    template <class Rep, class Period>
    result<std::optional<std::size_t>> select_for(const std::stop_token &st, const std::chrono::duration<Rep, Period> &d)
    {
        return run_until(st, deadline(d).native(), "gs::selector::select_for");
    }
    template <class Clock, class Duration>
    result<std::optional<std::size_t>> select_until(const std::stop_token &st,
                                                    const std::chrono::time_point<Clock, Duration> &at)
    {
        return run_until(st, deadline(at).native(), "gs::selector::select_until");
    }
#endif
};

// ---- Timers ----

/// A channel on which the time is sent once, d from now. time.After.
template <class Rep, class Period>
inline recv_chan<time_point> after(const std::chrono::duration<Rep, Period> &d)
{
    return detail::access::adopt<time_point>(gs_after(detail::ns_of(d)));
}

/// Sends the time on a channel every d. A tick is dropped if the channel still has the last one. The destructor stops
/// the ticker; the channel lives as long as it has handles, and is not closed. time.Ticker.
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
        ~state() noexcept override {} // F's may be noexcept(false)
        void call() override { (void)f(); }
    };
    base *state_ = nullptr;

    static void entry(void *p) noexcept { static_cast<base *>(p)->call(); }

public:
    template <class Rep, class Period, class F>
    timer(const std::chrono::duration<Rep, Period> &d, F &&f)
        : state_(detail::make<state<std::decay_t<F>>>(std::forward<F>(f)))
    {
        // A function that runs at once may not see t: only this object uses it.
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
    /// True: the timer had yet to call f, and won't. False: f may still be running.
    bool stop() { return state_ != nullptr && gs_timer_stop(state_->t) == 1; }
    /// The timer calls f d from now. True: it had yet to call f before.
    template <class Rep, class Period>
    result<bool> reset(const std::chrono::duration<Rep, Period> &d)
    {
        const int r = state_ != nullptr ? gs_timer_reset(state_->t, detail::ns_of(d)) : -EINVAL;
        if (r < 0)
            return detail::failed<bool>(r, "gs::timer::reset");
        return r == 1;
    }
};

// ---- Task groups ----

/// Goroutines that end together: none of them is left when wait() has returned or the group is destroyed. The first
/// exception that leaves a member cancels the others, and wait() throws it. A member may also return an std::error_code
/// (or, without exceptions, a gs::result): an error cancels the others too, and wait() then fails with it.
class task_group {
    struct member {
        task_group *group;
        gs_g *g = nullptr;
        member *prev = nullptr, *next = nullptr;
        explicit member(task_group *tg) noexcept : group(tg) {}
    };
    template <class F, class... Args>
    struct member_of final : member {
        detail::call<F, Args...> fn;
        template <class... As>
        explicit member_of(task_group *tg, As &&...as) : member(tg), fn(std::forward<As>(as)...)
        {
        }
        static void entry(void *p) noexcept
        {
            auto *m = static_cast<member_of *>(p);
#if GS_HPP_EXCEPTIONS
            std::exception_ptr thrown;
#endif
            std::error_code code;
#if GS_HPP_EXCEPTIONS
            try {
                code = m->run();
            } catch (...) {
                thrown = std::current_exception();
            }
            m->fn.drop();
            task_group *tg = m->group;
            if (thrown || code)
                tg->fail(std::move(thrown), code);
#else
            code = m->run();
            m->fn.drop();
            task_group *tg = m->group;
            if (code)
                tg->fail(code);
#endif
            tg->leave(m);
            delete m;
            (void)gs_waitgroup_done(&tg->left_); // the group may be gone after this
        }
        std::error_code run()
        {
            using R = decltype(fn());
            if constexpr (std::is_same_v<std::decay_t<R>, std::error_code>) {
                return fn();
#if !GS_HPP_EXCEPTIONS
            } else if constexpr (is_result<std::decay_t<R>>::value) {
                return fn().error();
#endif
            } else {
                (void)fn();
                return {};
            }
        }
    };
#if !GS_HPP_EXCEPTIONS
    template <class R>
    struct is_result : std::false_type {
    };
    template <class U>
    struct is_result<result<U>> : std::true_type {
    };
#endif

    mutex lock_;
    gs_waitgroup left_{};
    member *first_ = nullptr;
    gs_g *leaver_ = nullptr; // the member that has left last, which may not have ended yet
    bool cancelled_ = false;
    std::error_code code_;
#if GS_HPP_EXCEPTIONS
    std::exception_ptr thrown_;

    void fail(std::exception_ptr thrown, std::error_code code)
    {
        std::lock_guard<mutex> guard(lock_);
        // An error that the cancel itself brings about isn't the cause.
        if (thrown_ || code_ || (cancelled_ && (thrown ? detail::is_cancel(thrown) : is_cancel(code))))
            return;
        thrown_ = std::move(thrown);
        code_ = code;
        cancel_all();
    }
#else
    void fail(std::error_code code)
    {
        std::lock_guard<mutex> guard(lock_);
        if (code_ || (cancelled_ && is_cancel(code)))
            return;
        code_ = code;
        cancel_all();
    }
#endif
    static bool is_cancel(std::error_code code) noexcept { return code == std::errc::operation_canceled; }

    void cancel_all()
    {
        cancelled_ = true;
        for (member *m = first_; m != nullptr; m = m->next)
            (void)gs_cancel(m->g);
    }
    /// Each member waits for the end of the member that left before it, so that a wait has to wait for the last only.
    void leave(member *m)
    {
        gs_g *before = nullptr;
        {
            std::lock_guard<mutex> guard(lock_);
            (m->prev != nullptr ? m->prev->next : first_) = m->next;
            if (m->next != nullptr)
                m->next->prev = m->prev;
            before = std::exchange(leaver_, m->g);
        }
        join(before);
    }
    static void join(gs_g *g)
    {
        if (g == nullptr)
            return;
        no_cancel guard;
        (void)gs_join(g, GS_FOREVER);
        gs_release(g);
    }
    void reap()
    {
        gs_g *last = nullptr;
        {
            std::lock_guard<mutex> guard(lock_);
            last = std::exchange(leaver_, nullptr);
        }
        join(last);
    }
    bool is_member()
    {
        const gs_g *self = gs_self();
        if (self == nullptr)
            return false;
        std::lock_guard<mutex> guard(lock_);
        for (const member *m = first_; m != nullptr; m = m->next)
            if (m->g == self)
                return true;
        return false;
    }
    template <class F, class... Args>
    result<void> start(const gs_spawn_opts *opts, F &&f, Args &&...args)
    {
        using M = member_of<std::decay_t<F>, std::decay_t<Args>...>;
        M *m = detail::make<M>(this, std::forward<F>(f), std::forward<Args>(args)...);
        int r = -ENOMEM;
        if (m != nullptr) {
            std::lock_guard<mutex> guard(lock_);
            (void)gs_waitgroup_add(&left_, 1);
            r = gs_spawn_with(m->entry, m, opts, &m->g);
            if (r == 0) {
                m->next = first_;
                if (first_ != nullptr)
                    first_->prev = m;
                first_ = m;
                if (cancelled_)
                    (void)gs_cancel(m->g);
            } else {
                (void)gs_waitgroup_done(&left_);
            }
        }
        if (__builtin_expect(r < 0, 0) && m != nullptr) {
            m->fn.drop();
            delete m;
        }
        return detail::done(r, "gs::task_group::go");
    }

public:
    task_group() noexcept = default;
    task_group(const task_group &) = delete;
    task_group &operator=(const task_group &) = delete;
    /// Cancels the members that are left and waits for them. Drops their exceptions if wait() was not called:
    /// most likely another exception is in flight.
    ~task_group()
    {
        cancel();
        no_cancel guard;
        (void)gs_waitgroup_wait(&left_, GS_FOREVER);
        reap();
    }

    /// Starts f(args...) as a member. Members may start members. In a cancelled group a new member is cancelled at
    /// once.
    template <class F, class... Args, std::enable_if_t<detail::can_call<F, Args...>, int> = 0>
    result<void> go(F &&f, Args &&...args)
    {
        return start(nullptr, std::forward<F>(f), std::forward<Args>(args)...);
    }
    template <class F, class... Args, std::enable_if_t<detail::can_call<F, Args...>, int> = 0>
    result<void> go(const options &o, F &&f, Args &&...args)
    {
        const gs_spawn_opts n = detail::native(o);
        return start(&n, std::forward<F>(f), std::forward<Args>(args)...);
    }

    /// Cancels all members, and those to come until the next wait().
    void cancel()
    {
        std::lock_guard<mutex> guard(lock_);
        cancel_all();
    }
    /// Whether the group was cancelled, by cancel() or by the first exception.
    bool cancelled()
    {
        std::lock_guard<mutex> guard(lock_);
        return cancelled_;
    }

    /// Waits until all members have ended, and throws the first exception. Then the group can be used again. If the
    /// caller is cancelled meanwhile, wait() cancels the members too, waits for them, and fails with
    /// std::errc::operation_canceled. In a member it fails with std::errc::resource_deadlock_would_occur.
    result<void> wait()
    {
        return wait_by([this] { return gs_waitgroup_wait(&left_, GS_FOREVER); });
    }
#if GS_HPP_STOP_TOKENS
    /// If a stop is requested, wait() cancels the members, waits for them, and returns false.
    result<bool> wait(const std::stop_token &st)
    {
        bool stopped = false;
        const auto until = [&] {
            const int r = detail::wait_or_stop(st, GS_FOREVER, [this](gs_deadline d) { return gs_waitgroup_wait(&left_, d); });
            stopped = r == detail::stop_asked;
            return r;
        };
#if GS_HPP_EXCEPTIONS
        wait_by(until);
#else
        if (const result<void> r = wait_by(until); !r)
            return unexpected{r.error()};
#endif
        return !stopped;
    }
#endif

private:
    template <class Wait>
    result<void> wait_by(Wait &&wait)
    {
        if (is_member())
            return detail::done(-EDEADLK, "gs::task_group::wait");
        int r = wait();
        if (r < 0) {
            cancel();
            no_cancel guard;
            (void)gs_waitgroup_wait(&left_, GS_FOREVER);
            if (r == detail::stop_asked)
                r = 0;
        }
        reap();
        std::unique_lock<mutex> guard(lock_);
        cancelled_ = false;
        const std::error_code code = std::exchange(code_, std::error_code());
#if GS_HPP_EXCEPTIONS
        std::exception_ptr thrown = std::exchange(thrown_, nullptr);
        guard.unlock();
        if (thrown)
            std::rethrow_exception(std::move(thrown));
        if (code)
            throw error(code, "gs::task_group::wait");
#else
        guard.unlock();
        if (code)
            return unexpected{code};
#endif
        return detail::done(r, "gs::task_group::wait");
    }
};

// ---- TCP ----

namespace detail {

/// A file that is closed once.
class file {
    int fd_ = -1;

public:
    file() noexcept = default;
    explicit file(int fd) noexcept : fd_(fd) {}
    file(file &&o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
    file &operator=(file &&o) noexcept
    {
        if (this != &o) {
            (void)close();
            fd_ = std::exchange(o.fd_, -1);
        }
        return *this;
    }
    ~file() { (void)close(); }
    int fd() const noexcept { return fd_; }
    int close() noexcept { return fd_ < 0 ? 0 : gs_close(std::exchange(fd_, -1)); }
    int release() noexcept { return std::exchange(fd_, -1); }
    int shutdown(int how) const noexcept { return ::shutdown(fd_, how) < 0 ? -errno : 0; }
};

inline int port_of(int fd, bool peer) noexcept
{
    union {
        sockaddr any;
        sockaddr_in v4;
        sockaddr_in6 v6;
        sockaddr_storage room;
    } at{};
    socklen_t n = sizeof at;
    if ((peer ? ::getpeername(fd, &at.any, &n) : ::getsockname(fd, &at.any, &n)) < 0)
        return -errno;
    switch (at.any.sa_family) {
    case AF_INET:
        return ntohs(at.v4.sin_port);
    case AF_INET6:
        return ntohs(at.v6.sin6_port);
    default:
        return -EAFNOSUPPORT;
    }
}

inline result<std::uint16_t> port_result(int r, const char *where)
{
    if (r < 0)
        return failed<std::uint16_t>(r, where);
    return static_cast<std::uint16_t>(r);
}

inline result<std::size_t> bytes_result(ssize_t r, const char *where)
{
    if (__builtin_expect(r < 0, 0))
        return failed<std::size_t>(static_cast<long>(r), where);
    return static_cast<std::size_t>(r);
}

}  // namespace detail

/// A connection of any kind. Moved and not copied; closed when it is destroyed. One goroutine may read while another one writes.
class stream_socket {
    detail::file file_;
    gs_deadline read_by_ = GS_FOREVER, write_by_ = GS_FOREVER;
    friend class socket_streambuf;

    ssize_t read_raw(void *p, std::size_t n) const { return gs_read(file_.fd(), p, n, read_by_); }
    /// Returns 0 or the error, and counts the bytes that were written before it.
    int write_raw(const void *p, std::size_t n, std::size_t &written) const
    {
        for (written = 0; written < n;) {
            const ssize_t r = gs_write(file_.fd(), static_cast<const char *>(p) + written, n - written, write_by_);
            if (r < 0)
                return static_cast<int>(r);
            written += static_cast<std::size_t>(r);
        }
        return 0;
    }

public:
    stream_socket() noexcept = default;
    /// Takes a connected socket over.
    explicit stream_socket(int fd) noexcept : file_(fd) {}

    bool is_open() const noexcept { return file_.fd() >= 0; }
    int native_handle() const noexcept { return file_.fd(); }
    /// Gives the socket to the caller.
    int release() noexcept { return file_.release(); }

    /// Until when all reads, all writes, or both may wait. From then on they fail with std::errc::timed_out, as with
    /// Go's SetDeadline. For the goroutine that reads or writes, between its calls.
    void set_read_deadline(deadline until) noexcept { read_by_ = until.native(); }
    void set_write_deadline(deadline until) noexcept { write_by_ = until.native(); }
    void set_deadline(deadline until) noexcept { read_by_ = write_by_ = until.native(); }

    /// Waits until there is something to read, and reads n bytes at most. 0: the other side has ended.
    result<std::size_t> read_some(void *p, std::size_t n) const
    {
        return detail::bytes_result(read_raw(p, n), "gs::stream_socket::read_some");
    }
    /// Reads n bytes, or fewer if the other side has ended.
    result<std::size_t> read(void *p, std::size_t n) const
    {
        std::size_t all = 0;
        while (all < n) {
            const ssize_t r = read_raw(static_cast<char *>(p) + all, n - all);
            if (r < 0)
                return detail::failed<std::size_t>(static_cast<long>(r), "gs::stream_socket::read");
            if (r == 0)
                break;
            all += static_cast<std::size_t>(r);
        }
        return all;
    }
    /// Writes n bytes at most, and waits until some can be written.
    result<std::size_t> write_some(const void *p, std::size_t n) const
    {
        return detail::bytes_result(gs_write(file_.fd(), p, n, write_by_), "gs::stream_socket::write_some");
    }
    /// Writes everything. Fails with std::errc::broken_pipe if the other side doesn't read any more.
    result<void> write(const void *p, std::size_t n) const
    {
        std::size_t written = 0;
        return detail::done(write_raw(p, n, written), "gs::stream_socket::write");
    }
    result<void> write(std::string_view text) const { return write(text.data(), text.size()); }

    /// Tells the other side that nothing more will be written.
    result<void> shutdown_write() const
    {
        return detail::done(file_.shutdown(SHUT_WR), "gs::stream_socket::shutdown_write");
    }
    /// Ends both directions; a read that waits returns the end. Any goroutine may call it; the goroutine that owns the
    /// stream still closes it.
    result<void> shutdown() const { return detail::done(file_.shutdown(SHUT_RDWR), "gs::stream_socket::shutdown"); }
    /// Closes the stream. While others use it, call shutdown() instead.
    result<void> close() { return detail::done(file_.close(), "gs::stream_socket::close"); }
};

/// A TCP connection. net.TCPConn.
class tcp_stream : public stream_socket {
public:
    tcp_stream() noexcept = default;
    /// Takes a connected socket over.
    explicit tcp_stream(int fd) noexcept : stream_socket(fd) {}

    /// Connects to a port of a host, which is a name or an address. Fails as gs_tcp_connect, for instance with
    /// std::errc::connection_refused or std::errc::timed_out.
    static result<tcp_stream> connect(const std::string &host, std::uint16_t port, deadline until = deadline::forever())
    {
        const int fd = gs_tcp_connect(host.c_str(), port, until.native());
        if (fd < 0)
            return detail::failed<tcp_stream>(fd, "gs::tcp_stream::connect");
        return tcp_stream(fd);
    }

    result<std::uint16_t> local_port() const
    {
        return detail::port_result(detail::port_of(native_handle(), false), "gs::tcp_stream::local_port");
    }
    result<std::uint16_t> remote_port() const
    {
        return detail::port_result(detail::port_of(native_handle(), true), "gs::tcp_stream::remote_port");
    }
};

/// A socket that listens. net.TCPListener.
class tcp_listener {
    detail::file file_;

public:
    tcp_listener() noexcept = default;
    /// Takes a listening socket over.
    explicit tcp_listener(int fd) noexcept : file_(fd) {}

    /// Listens on a port of the host, or of all addresses of the machine if that is ""; port 0: the system
    /// chooses one. backlog: connections that may wait; 0: as many as the system allows. Fails as gs_tcp_listen.
    static result<tcp_listener> listen(const std::string &host, std::uint16_t port, int backlog = 0)
    {
        const int fd = gs_tcp_listen(host.c_str(), port, backlog);
        if (fd < 0)
            return detail::failed<tcp_listener>(fd, "gs::tcp_listener::listen");
        return tcp_listener(fd);
    }

    bool is_open() const noexcept { return file_.fd() >= 0; }
    int native_handle() const noexcept { return file_.fd(); }
    result<std::uint16_t> port() const
    {
        return detail::port_result(detail::port_of(file_.fd(), false), "gs::tcp_listener::port");
    }

    /// The next connection. Fails with std::errc::operation_canceled after stop(), and with
    /// std::errc::too_many_files_open until there is room again.
    result<tcp_stream> accept(deadline until = deadline::forever()) const
    {
        int fd = gs_accept(file_.fd(), nullptr, nullptr, until.native());
        if (fd == -EINVAL && file_.fd() >= 0) // it doesn't listen any more
            fd = -ECANCELED;
        if (fd < 0)
            return detail::failed<tcp_stream>(fd, "gs::tcp_listener::accept");
        return tcp_stream(fd);
    }
    /// Ends every accept(), now and later. Any goroutine may call it.
    result<void> stop() const { return detail::done(file_.shutdown(SHUT_RDWR), "gs::tcp_listener::stop"); }
    /// Closes the listener. While others use it, call stop() instead.
    result<void> close() { return detail::done(file_.close(), "gs::tcp_listener::close"); }
};

/// Buffers for both directions of a connection. What was written goes out with a flush, when the buffer is full,
/// and before a read waits. An error is the end of file to the iostream, as Asio has it; error() says which.
class socket_streambuf : public std::streambuf {
    static constexpr std::size_t room = 8192;
    stream_socket *stream_;
    std::unique_ptr<char[]> in_, out_;
    std::error_code error_;

    bool write_out(const char *p, std::size_t n)
    {
        std::size_t written = 0;
        const int r = stream_->write_raw(p, n, written);
        if (r < 0)
            error_ = make_code(r);
        return r == 0;
    }
    bool flush_out()
    {
        const auto n = static_cast<std::size_t>(pptr() - pbase());
        if (n == 0)
            return true;
        setp(out_.get(), out_.get() + room); // also after an error: what can't be written is not tried again
        return write_out(out_.get(), n);
    }
    bool allocate(std::unique_ptr<char[]> &b)
    {
        if (!b)
            b.reset(detail::make_bytes(room));
        if (!b)
            error_ = make_code(-ENOMEM);
        return b != nullptr;
    }

protected:
    int_type underflow() override
    {
        if (!allocate(in_) || !flush_out())
            return traits_type::eof();
        const ssize_t n = stream_->read_raw(in_.get(), room);
        if (n < 0)
            error_ = make_code(static_cast<long>(n));
        if (n <= 0)
            return traits_type::eof();
        setg(in_.get(), in_.get(), in_.get() + n);
        return traits_type::to_int_type(*gptr());
    }
    int_type overflow(int_type c) override
    {
        if (!allocate(out_))
            return traits_type::eof();
        if (pbase() == nullptr)
            setp(out_.get(), out_.get() + room);
        else if (!flush_out())
            return traits_type::eof();
        if (!traits_type::eq_int_type(c, traits_type::eof()))
            sputc(traits_type::to_char_type(c));
        return traits_type::not_eof(c);
    }
    std::streamsize xsputn(const char *p, std::streamsize n) override
    {
        if (n < static_cast<std::streamsize>(room))
            return std::streambuf::xsputn(p, n);
        return flush_out() && write_out(p, static_cast<std::size_t>(n)) ? n : 0;
    }
    int sync() override { return flush_out() ? 0 : -1; }

public:
    /// The stream stays the caller's, and must stay.
    explicit socket_streambuf(stream_socket &stream) : stream_(&stream) {}
    /// Writes what is left, if it can be written.
    ~socket_streambuf() override { (void)flush_out(); }
    /// What went wrong last; none at an ordinary end.
    std::error_code error() const noexcept { return error_; }
};

namespace detail {
template <class Stream>
struct socket_parts {
    Stream stream;
    socket_streambuf buffer{stream};
    explicit socket_parts(Stream s) : stream(std::move(s)) {}
};
}  // namespace detail

/// A connection with <<, >> and std::getline. For one goroutine at a time.
template <class Stream>
class socket_iostream : private detail::socket_parts<Stream>, public std::iostream {
public:
    explicit socket_iostream(Stream s) : detail::socket_parts<Stream>(std::move(s)), std::iostream(nullptr)
    {
        rdbuf(&this->buffer);
    }
    /// The connection, for deadlines.
    Stream &socket() noexcept { return this->stream; }
    /// What went wrong last, where the stream has eof() or bad().
    std::error_code error() const noexcept { return this->buffer.error(); }
};
using tcp_iostream = socket_iostream<tcp_stream>;

// ---- Unix sockets ----

/// A connection within this machine. net.UnixConn.
class unix_stream : public stream_socket {
public:
    unix_stream() noexcept = default;
    /// Takes a connected socket over.
    explicit unix_stream(int fd) noexcept : stream_socket(fd) {}

    /// Connects to the listener at the path, or at "@name". Fails as gs_unix_connect.
    static result<unix_stream> connect(const std::string &path, deadline until = deadline::forever())
    {
        const int fd = gs_unix_connect(path.c_str(), until.native());
        if (fd < 0)
            return detail::failed<unix_stream>(fd, "gs::unix_stream::connect");
        return unix_stream(fd);
    }
    /// Two streams that are connected to each other: socketpair.
    static result<std::pair<unix_stream, unix_stream>> pair()
    {
        using two = std::pair<unix_stream, unix_stream>;
        int fds[2] = {-1, -1};
        const int r = gs_unix_pair(fds);
        if (r < 0)
            return detail::failed<two>(r, "gs::unix_stream::pair");
        return two(unix_stream(fds[0]), unix_stream(fds[1]));
    }
};
using unix_iostream = socket_iostream<unix_stream>;

/// A socket that listens within this machine. net.UnixListener.
class unix_listener {
    detail::file file_;

public:
    unix_listener() noexcept = default;
    /// Takes a listening socket over.
    explicit unix_listener(int fd) noexcept : file_(fd) {}

    /// Listens at a path in the file system, which stays when the socket is closed, or at "@name", which doesn't. backlog as
    /// for gs::tcp_listener::listen. Fails as gs_unix_listen.
    static result<unix_listener> listen(const std::string &path, int backlog = 0)
    {
        const int fd = gs_unix_listen(path.c_str(), backlog);
        if (fd < 0)
            return detail::failed<unix_listener>(fd, "gs::unix_listener::listen");
        return unix_listener(fd);
    }

    bool is_open() const noexcept { return file_.fd() >= 0; }
    int native_handle() const noexcept { return file_.fd(); }

    /// The next connection. Fails with std::errc::too_many_files_open until there is room again. To end it early,
    /// cancel the goroutine that accepts: unlike a TCP socket, a Unix socket can't be told to stop listening.
    result<unix_stream> accept(deadline until = deadline::forever()) const
    {
        const int fd = gs_accept(file_.fd(), nullptr, nullptr, until.native());
        if (fd < 0)
            return detail::failed<unix_stream>(fd, "gs::unix_listener::accept");
        return unix_stream(fd);
    }
    /// Closes it. No other goroutine may be in a call on it.
    result<void> close() { return detail::done(file_.close(), "gs::unix_listener::close"); }
};

// ---- UDP ----

/// An address and a port that datagrams are sent to or come from. net.UDPAddr.
class endpoint {
    union address {
        sockaddr any;
        sockaddr_in v4;
        sockaddr_in6 v6;
        sockaddr_storage room; // the first of an initialiser is zeroed, so this is done by hand
    };
    address at_;
    friend class udp_socket;

    /// An IPv4-mapped IPv6 address becomes an IPv4 address.
    void unmap() noexcept
    {
        if (at_.any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&at_.v6.sin6_addr))
            return;
        sockaddr_in v4{};
        v4.sin_family = AF_INET;
        v4.sin_port = at_.v6.sin6_port;
        std::memcpy(&v4.sin_addr, at_.v6.sin6_addr.s6_addr + 12, 4);
        *this = endpoint();
        at_.v4 = v4;
    }
    /// As an IPv6 socket takes it: an IPv4 address is mapped.
    endpoint mapped() const noexcept
    {
        if (at_.any.sa_family != AF_INET)
            return *this;
        endpoint e;
        e.at_.v6 = sockaddr_in6{};
        e.at_.v6.sin6_family = AF_INET6;
        e.at_.v6.sin6_port = at_.v4.sin_port;
        e.at_.v6.sin6_addr.s6_addr[10] = e.at_.v6.sin6_addr.s6_addr[11] = 0xff;
        std::memcpy(e.at_.v6.sin6_addr.s6_addr + 12, &at_.v4.sin_addr, 4);
        return e;
    }

public:
    /// An empty endpoint, without an address.
    endpoint() noexcept { std::memset(&at_, 0, sizeof at_); }
    /// From an address of IPv4 or IPv6; any other makes an empty endpoint.
    endpoint(const sockaddr *at, socklen_t n) noexcept : endpoint()
    {
        if (at == nullptr || !((at->sa_family == AF_INET && n >= sizeof at_.v4) || (at->sa_family == AF_INET6 && n >= sizeof at_.v6)))
            return;
        std::memcpy(&at_, at, at->sa_family == AF_INET ? sizeof at_.v4 : sizeof at_.v6);
        if (at_.any.sa_family == AF_INET)
            std::memset(at_.v4.sin_zero, 0, sizeof at_.v4.sin_zero); // no part of the address
        unmap();
    }
    /// Looks a host up, by its name or address. Fails as gs_getaddrinfo.
    static result<endpoint> resolve(const std::string &host, std::uint16_t port, deadline until = deadline::forever())
    {
        addrinfo hints{}, *found = nullptr;
        hints.ai_socktype = SOCK_DGRAM;
        const int r = gs_getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found, until.native());
        if (r != 0)
            return detail::failed<endpoint>(r, "gs::endpoint::resolve");
        const endpoint e(found->ai_addr, found->ai_addrlen);
        ::freeaddrinfo(found);
        return e;
    }

    /// Whether it is an address.
    explicit operator bool() const noexcept { return at_.any.sa_family != AF_UNSPEC; }
    std::uint16_t port() const noexcept
    {
        return ntohs(at_.any.sa_family == AF_INET6 ? at_.v6.sin6_port : at_.v4.sin_port);
    }
    /// The address in numbers, such as "127.0.0.1" or "::1"; "" of an empty one.
    std::string host() const
    {
        char text[INET6_ADDRSTRLEN] = "";
        if (at_.any.sa_family == AF_INET)
            (void)::inet_ntop(AF_INET, &at_.v4.sin_addr, text, sizeof text);
        else if (at_.any.sa_family == AF_INET6)
            (void)::inet_ntop(AF_INET6, &at_.v6.sin6_addr, text, sizeof text);
        return text;
    }
    /// For functions of the system.
    const sockaddr *data() const noexcept { return &at_.any; }
    socklen_t size() const noexcept
    {
        return static_cast<socklen_t>(at_.any.sa_family == AF_INET6 ? sizeof at_.v6
                                      : at_.any.sa_family == AF_INET ? sizeof at_.v4
                                                                     : 0);
    }
    friend bool operator==(const endpoint &a, const endpoint &b) noexcept
    {
        return a.size() == b.size() && std::memcmp(&a.at_, &b.at_, a.size()) == 0;
    }
    friend bool operator!=(const endpoint &a, const endpoint &b) noexcept { return !(a == b); }
};

/// A UDP socket. Moved and not copied; closed when it is destroyed. Any number of goroutines may send and receive. net.UDPConn.
class udp_socket {
    detail::file file_;
    bool v6_ = false;
    gs_deadline read_by_ = GS_FOREVER, write_by_ = GS_FOREVER;

public:
    /// What was received.
    struct datagram {
        std::size_t size = 0;   ///< of what is in the buffer
        bool truncated = false; ///< it was larger than the buffer: the rest is lost
        endpoint from;
    };

    udp_socket() noexcept = default;
    /// Takes a socket over.
    explicit udp_socket(int fd) noexcept : file_(fd)
    {
        sockaddr_storage own{};
        socklen_t n = sizeof own;
        v6_ = ::getsockname(fd, reinterpret_cast<sockaddr *>(&own), &n) == 0 && own.ss_family == AF_INET6;
    }

    /// Receives what is sent to a port of the host, or of all addresses of the machine if that is ""; port 0: the system
    /// chooses one. Fails as gs_udp_bind.
    static result<udp_socket> bind(const std::string &host, std::uint16_t port)
    {
        const int fd = gs_udp_bind(host.c_str(), port);
        if (fd < 0)
            return detail::failed<udp_socket>(fd, "gs::udp_socket::bind");
        return udp_socket(fd);
    }
    /// send() sends to a port of the host, and receive() takes only what comes from there. Fails as gs_udp_connect.
    static result<udp_socket> connect(const std::string &host, std::uint16_t port, deadline until = deadline::forever())
    {
        const int fd = gs_udp_connect(host.c_str(), port, until.native());
        if (fd < 0)
            return detail::failed<udp_socket>(fd, "gs::udp_socket::connect");
        return udp_socket(fd);
    }

    bool is_open() const noexcept { return file_.fd() >= 0; }
    int native_handle() const noexcept { return file_.fd(); }
    /// Gives the socket to the caller.
    int release() noexcept { return file_.release(); }
    result<std::uint16_t> local_port() const
    {
        return detail::port_result(detail::port_of(file_.fd(), false), "gs::udp_socket::local_port");
    }
    result<std::uint16_t> remote_port() const
    {
        return detail::port_result(detail::port_of(file_.fd(), true), "gs::udp_socket::remote_port");
    }

    /// Until when receives, or sends, may wait: as for gs::stream_socket.
    void set_read_deadline(deadline until) noexcept { read_by_ = until.native(); }
    void set_write_deadline(deadline until) noexcept { write_by_ = until.native(); }
    void set_deadline(deadline until) noexcept { read_by_ = write_by_ = until.native(); }

    /// Sends one datagram. Fails with std::errc::message_size if it is too large.
    result<void> send_to(const void *p, std::size_t n, const endpoint &to) const
    {
        const endpoint at = v6_ ? to.mapped() : to;
        const ssize_t r = at ? gs_sendto(file_.fd(), p, n, 0, at.data(), at.size(), write_by_) : -EDESTADDRREQ;
        return detail::done(static_cast<long>(r), "gs::udp_socket::send_to");
    }
    result<void> send_to(std::string_view text, const endpoint &to) const { return send_to(text.data(), text.size(), to); }
    /// On a socket of connect(). std::errc::connection_refused: no socket has that port. Usually the next call reports it.
    result<void> send(const void *p, std::size_t n) const
    {
        return detail::done(static_cast<long>(gs_send(file_.fd(), p, n, 0, write_by_)), "gs::udp_socket::send");
    }
    result<void> send(std::string_view text) const { return send(text.data(), text.size()); }
    /// The next datagram, n bytes of it at most, and the address of its sender.
    result<datagram> receive_from(void *p, std::size_t n) const
    {
        sockaddr_storage from{};
        std::uint32_t len = sizeof from;
        const ssize_t r = gs_recvfrom(file_.fd(), p, n, MSG_TRUNC, reinterpret_cast<sockaddr *>(&from), &len, read_by_);
        if (r < 0)
            return detail::failed<datagram>(static_cast<long>(r), "gs::udp_socket::receive_from");
        datagram d;
        d.truncated = static_cast<std::size_t>(r) > n;
        d.size = d.truncated ? n : static_cast<std::size_t>(r);
        d.from = endpoint(reinterpret_cast<sockaddr *>(&from), len);
        return d;
    }
    /// The next datagram, n bytes of it at most. Returns how many.
    result<std::size_t> receive(void *p, std::size_t n) const
    {
        return detail::bytes_result(gs_recv(file_.fd(), p, n, 0, read_by_), "gs::udp_socket::receive");
    }
    /// Closes it. No other goroutine may be in a call on it: give these a deadline, or cancel them, before.
    result<void> close() { return detail::done(file_.close(), "gs::udp_socket::close"); }
};

#if GS_HPP_COROUTINES

// ---- C++20 coroutines ----

template <class T>
class task;
class executor;

/// How a wait of this header continues a coroutine that isn't a gs::task: its promise is of type Promise. To be specialised
/// for coroutines that may run only on certain threads. resume() is called on a goroutine of the wait's own, once; the
/// coroutine may be gone when it returns. An exception that leaves it ends the program.
template <class Promise>
struct resumer {
    static void resume(std::coroutine_handle<Promise> h) { h.resume(); }
};

namespace detail {

class joint;

/// What the promises of an executor's coroutines have in common.
class promise_base {
    executor *ex_ = nullptr;

public:
    executor *where() const noexcept { return ex_; }
    void set_where(executor *ex) noexcept { ex_ = ex; }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    /// Lets h go on once this coroutine has suspended.
    void go_on_with(std::coroutine_handle<> h) const noexcept;
};

/// Whether coroutines with this promise run on an executor.
template <class Promise>
inline constexpr bool is_executors = std::is_base_of_v<promise_base, Promise>;

/// The coroutine around a task that an executor was given. Its frame goes when it ends.
struct root {
    struct promise_type : promise_base {
        promise_type *next = nullptr;
        root get_return_object() noexcept { return {this}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); } // the task has caught it
        std::coroutine_handle<promise_type> handle() noexcept
        {
            return std::coroutine_handle<promise_type>::from_promise(*this);
        }
    };
    promise_type *promise;
};

/// Coroutines that have not begun. Those that are left in it never begin.
class root_list {
    root::promise_type *first_ = nullptr, **last_ = &first_;

public:
    root_list() noexcept = default;
    root_list(const root_list &) = delete;
    root_list &operator=(const root_list &) = delete;
    ~root_list()
    {
        while (root::promise_type *p = pop())
            p->handle().destroy();
    }
    void push(root::promise_type *p) noexcept
    {
        p->next = nullptr;
        *last_ = p;
        last_ = &p->next;
    }
    /// Takes out the coroutine that was pushed first; nullptr: the list is empty.
    root::promise_type *pop() noexcept
    {
        root::promise_type *p = first_;
        if (p != nullptr && (first_ = p->next) == nullptr)
            last_ = &first_;
        return p;
    }
};

}  // namespace detail

/// Runs gs::tasks on one goroutine or plain thread: the caller of run(). While a coroutine waits by co_await, the
/// others of its executor run; an ordinary call that waits holds up all of them. A wait by co_await that isn't over at
/// once has a goroutine of its own as long as it lasts.
class executor {
public:
    /// The wait of a coroutine: what is awaited derives from it. In a gs::task the coroutine continues on its executor. Any
    /// other coroutine is continued by the goroutine of the wait, as gs::resumer or gs::resume_on says. It must not be
    /// destroyed while it waits.
    class wait_base {
        friend class executor;
        executor *ex_ = nullptr;
        std::coroutine_handle<> waiter_;
        void (*resume_)(void *how, std::coroutine_handle<>) = nullptr; // of a coroutine without an executor
        void *how_ = nullptr;
        gs_g *g_ = nullptr;
        wait_base *prev_ = nullptr, *next_ = nullptr; // of waits_
        wait_base *after_ = nullptr;                  // of over_

        static void entry(void *p) noexcept
        {
            auto *w = static_cast<wait_base *>(p);
            w->wait_now();
            w->ex_->post(w);
        }
        static void entry_without(void *p) noexcept
        {
            auto *w = static_cast<wait_base *>(p);
            w->wait_now();
            w->resume_(w->how_, w->waiter_); // the wait may be gone after this
        }

    protected:
        wait_base() noexcept = default;
        virtual ~wait_base() = default; // for -Wnon-virtual-dtor: nothing deletes a wait
        /// Waits. Called on the wait's own goroutine.
        virtual void wait_now() noexcept = 0;
        /// The wait's goroutine can't be started, for the reason r (a negative errno value). The coroutine continues.
        virtual void not_started(int r) noexcept = 0;

    public:
        wait_base(const wait_base &) = delete;
        wait_base &operator=(const wait_base &) = delete;
        template <class Promise>
        bool await_suspend(std::coroutine_handle<Promise> h) noexcept
        {
            if constexpr (detail::is_executors<Promise>) {
                ex_ = h.promise().where();
                waiter_ = h;
                return ex_->begin(this);
            } else {
                return suspend(h, nullptr, [](void *, std::coroutine_handle<> waiter) {
                    resumer<Promise>::resume(std::coroutine_handle<Promise>::from_address(waiter.address()));
                });
            }
        }
        /// Without an executor. resume(how, h) continues the coroutine.
        bool suspend(std::coroutine_handle<> h, void *how, void (*resume)(void *, std::coroutine_handle<>)) noexcept
        {
            waiter_ = h;
            how_ = how;
            resume_ = resume;
            const int r = gs_spawn(entry_without, this);
            if (r == 0)
                return true; // the coroutine may be running already, and the wait be gone
            not_started(r);
            return false;
        }
    };

    executor() noexcept = default;
    executor(const executor &) = delete;
    executor &operator=(const executor &) = delete;
    /// Coroutines that have not begun never begin.
    ~executor() = default;

    /// Adds a coroutine, which begins in run(): before run(), or in a coroutine of this executor.
    template <class T>
    void go(task<T> t)
    {
        add(supervise(std::move(t), this).promise);
    }

    /// Runs until all coroutines have ended. The first exception that leaves a coroutine added with go() cancels the
    /// waits of the others, and is thrown. If the caller is cancelled, the waits are cancelled too; run() continues
    /// until all coroutines have ended, and fails with std::errc::operation_canceled.
    result<void> run()
    {
        const int r = loop();
#if GS_HPP_EXCEPTIONS
        if (thrown_)
            std::rethrow_exception(std::exchange(thrown_, nullptr));
#endif
        return detail::done(r, "gs::executor::run");
    }

private:
    template <class T>
    friend result<T> sync_wait(task<T> t);
    friend class detail::joint;

    friend class detail::promise_base;

    // The coroutine that continues when the running one has suspended. It is resumed here and not by the running one:
    // GCC turns that into a jump only with -O2, and otherwise a loop of co_awaits would need ever more stack.
    std::coroutine_handle<> next_;
    detail::root_list fresh_; // have not begun
    std::size_t left_ = 0;    // have not ended
    wait_base *waits_ = nullptr;
    bool cancelled_ = false;
#if GS_HPP_EXCEPTIONS
    std::exception_ptr thrown_;
#endif
    mutex lock_;        // of what follows, where the goroutines of the waits come in
    gs_cond woken_{};
    wait_base *over_ = nullptr, **last_over_ = &over_;

    template <class T>
    static detail::root supervise(task<T> t, executor *ex);
    template <class T>
    static detail::root deliver(task<T> t, executor *ex, detail::outcome<T> *to, detail::joint *of = nullptr);

    void add(detail::root::promise_type *p) noexcept
    {
        p->set_where(this);
        fresh_.push(p);
        left_++;
    }
    bool begin(wait_base *w) noexcept
    {
        const int r = gs_spawn_with(w->entry, w, nullptr, &w->g_);
        if (r < 0) {
            w->not_started(r);
            return false;
        }
        w->next_ = waits_;
        if (waits_ != nullptr)
            waits_->prev_ = w;
        waits_ = w;
        if (cancelled_)
            (void)gs_cancel(w->g_);
        return true;
    }
    /// Called on the goroutine of the wait, which uses neither the wait nor the executor afterwards.
    void post(wait_base *w) noexcept
    {
        std::lock_guard<mutex> guard(lock_);
        *last_over_ = w;
        last_over_ = &w->after_;
        (void)gs_cond_signal(&woken_);
    }
    void cancel_all() noexcept
    {
        cancelled_ = true;
        for (wait_base *w = waits_; w != nullptr; w = w->next_)
            (void)gs_cancel(w->g_);
    }
    /// The next wait that is over. r: -ECANCELED when the caller was cancelled.
    wait_base *next_over(int &r)
    {
        std::lock_guard<mutex> guard(lock_);
        while (over_ == nullptr) {
            if (gs_cond_wait(&woken_, lock_.native_handle(), GS_FOREVER) != -ECANCELED || r != 0)
                continue;
            r = -ECANCELED;
            cancel_all();
            (void)gs_cancel_disable(); // until loop() ends
        }
        wait_base *w = over_;
        if ((over_ = w->after_) == nullptr)
            last_over_ = &over_;
        return w;
    }
    void end(wait_base *w) noexcept
    {
        (w->prev_ != nullptr ? w->prev_->next_ : waits_) = w->next_;
        if (w->next_ != nullptr)
            w->next_->prev_ = w->prev_;
        gs_release(std::exchange(w->g_, nullptr));
        resume(w->waiter_);
    }
    /// Until the coroutine, and those that it has passed on to, wait.
    void resume(std::coroutine_handle<> h)
    {
        for (; h; h = std::exchange(next_, nullptr))
            h.resume();
    }
    int loop()
    {
        int r = 0;
        while (left_ > 0) {
            if (detail::root::promise_type *p = fresh_.pop()) {
                resume(p->handle());
            } else {
                end(next_over(r));
            }
        }
        if (r != 0)
            (void)gs_cancel_enable();
        cancelled_ = false;
        return r;
    }
};

inline void detail::promise_base::go_on_with(std::coroutine_handle<> h) const noexcept
{
    ex_->next_ = h;
}

/// A coroutine that returns a T by co_return. It begins when it is awaited, on the executor of the coroutine that awaits it;
/// or by gs::sync_wait, or executor::go. `co_await std::move(t)` gives its result, or throws its exception.
template <class T = void>
class [[nodiscard]] task {
    class promise_common : public detail::promise_base {
        struct to_next {
            bool await_ready() const noexcept { return false; }
            template <class P>
            void await_suspend(std::coroutine_handle<P> h) const noexcept
            {
                h.promise().go_on_with(h.promise().next);
            }
            void await_resume() const noexcept {}
        };

    public:
        std::coroutine_handle<> next;
        detail::outcome<T> out;
        to_next final_suspend() const noexcept { return {}; }
        void unhandled_exception() noexcept
        {
#if GS_HPP_EXCEPTIONS
            out.thrown = std::current_exception();
#else
            std::terminate();
#endif
        }
    };
    template <class U>
    struct promise_of : promise_common {
        template <class V = U> // for co_return {...}
        void return_value(V &&v)
        {
            this->out.value.fill([&]() -> U { return static_cast<U>(std::forward<V>(v)); });
        }
    };

public:
    struct promise_type;

private:
    std::coroutine_handle<promise_type> h_;
    friend class executor;
    explicit task(std::coroutine_handle<promise_type> h) noexcept : h_(h) {}

    struct end_of {
        std::coroutine_handle<promise_type> h;
        bool await_ready() const noexcept { return false; }
        template <class P>
        void await_suspend(std::coroutine_handle<P> caller) const noexcept
        {
            static_assert(detail::is_executors<P>, "a gs::task is awaited in a gs::task: in other coroutines "
                                                   "co_await gs::async([&] { return gs::sync_wait(std::move(t)); })");
            h.promise().next = caller;
            h.promise().set_where(caller.promise().where());
            caller.promise().go_on_with(h);
        }
        void await_resume() const noexcept {}
    };
    struct result_of : end_of {
        result<T> await_resume() const { return this->h.promise().out.take("gs::task"); }
    };

public:
    using value_type = T;
    task(task &&o) noexcept : h_(std::exchange(o.h_, {})) {}
    task &operator=(task &&o) noexcept
    {
        std::swap(h_, o.h_);
        return *this;
    }
    ~task()
    {
        if (h_)
            h_.destroy();
    }
    /// A task is awaited once.
    auto operator co_await() && noexcept { return result_of{{h_}}; }
};

namespace detail {
template <class Common>
struct promise_of_void : Common {
    void return_void() noexcept
    {
        this->out.value.fill([] {});
    }
};
}  // namespace detail

template <class T>
struct task<T>::promise_type
    : std::conditional_t<std::is_void_v<T>, detail::promise_of_void<promise_common>, promise_of<T>> {
    task get_return_object() noexcept
    {
        return task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
};

namespace detail {

/// Tasks that a coroutine waits for together.
class joint {
    std::size_t left_ = 0;
    std::coroutine_handle<> waiter_;
    promise_base *promise_ = nullptr; // of the waiter
    root_list tasks_;                 // until begin()

protected:
    joint() noexcept = default;
    ~joint() = default;
    /// Without memory it throws. The executor doesn't know of the task before begin(): it would run a task whose
    /// outcome is gone by then.
    template <class T>
    void add(executor &ex, task<T> &&t, outcome<T> &to)
    {
        tasks_.push(executor::deliver(std::move(t), &ex, &to, this).promise);
        left_++;
    }
    template <class Promise>
    void begin(std::coroutine_handle<Promise> waiter) noexcept
    {
        waiter_ = waiter;
        promise_ = &waiter.promise();
        while (root::promise_type *p = tasks_.pop())
            promise_->where()->add(p);
    }

public:
    joint(const joint &) = delete;
    joint &operator=(const joint &) = delete;
    /// The last task continues the waiter, whose frame this object is in.
    void one_ended()
    {
        if (--left_ == 0)
            promise_->go_on_with(waiter_);
    }
};

}  // namespace detail

template <class T>
detail::root executor::supervise(task<T> t, executor *ex)
{
    co_await typename task<T>::end_of{t.h_};
#if GS_HPP_EXCEPTIONS
    if (std::exception_ptr &thrown = t.h_.promise().out.thrown; thrown && !ex->thrown_) {
        if (!ex->cancelled_ || !detail::is_cancel(thrown))
            ex->thrown_ = std::move(thrown);
        ex->cancel_all();
    }
#endif
    ex->left_--;
}

template <class T>
detail::root executor::deliver(task<T> t, executor *ex, detail::outcome<T> *to, detail::joint *of)
{
    co_await typename task<T>::end_of{t.h_};
    to->take_from(t.h_.promise().out);
    ex->left_--;
    if (of != nullptr)
        of->one_ended();
}

/// Runs a coroutine on the calling goroutine (or plain thread) and returns what it returns, or throws what it throws.
/// If the caller is cancelled, the coroutine's waits are cancelled too.
template <class T>
result<T> sync_wait(task<T> t)
{
    executor ex;
    detail::outcome<T> out;
    ex.add(executor::deliver(std::move(t), &ex, &out).promise);
    (void)ex.loop();
    return out.take("gs::sync_wait");
}

namespace detail {

/// A wait with an std::stop_token, or without.
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

/// A wait whose coroutine is continued by post.
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
/// What a task gives in a tuple.
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

/// `co_await gs::recv(ch)`: a gs::received<T>, as ch.recv() gives. In any coroutine: see gs::resumer.
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
/// `co_await gs::sleep(d)`, or of a time_point. (Without co_await: gs::this_goroutine::sleep_for.)
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
/// `co_await gs::resume_on(post, gs::recv(ch))`, with the wait written in place, and in a coroutine that isn't a gs::task:
/// when the wait is over, post(h) is called on a goroutine of the wait's own, with the std::coroutine_handle<> of the
/// coroutine. It resumes h, once, or sees to it that another thread does. If the wait is over at once, the coroutine
/// continues at once, and post isn't called.
template <class Post, class Wait>
[[nodiscard]] inline auto resume_on(Post &&post, Wait &&wait)
{
    static_assert(!std::is_lvalue_reference_v<Wait>, "the wait is written in place");
    return detail::resumed_wait<Wait, std::decay_t<Post>>(wait, std::forward<Post>(post));
}
/// `co_await gs::async(f)`: what f() returns, which runs as a goroutine, for waits of any kind.
template <class F>
[[nodiscard]] inline auto async(F &&f)
{
    return detail::async_wait<detail::result_of<F>, std::decay_t<F>>(std::forward<F>(f));
}
/// `auto [a, b] = co_await gs::when_all(f(), g())`: runs the tasks side by side on the executor, and gives a tuple of
/// what they return, with std::monostate for void. The wait is over when all have ended. If several have thrown, the
/// exception of the first in the order of the arguments is thrown. Without exceptions the tuple has a gs::result for
/// each.
template <class... T>
[[nodiscard]] inline auto when_all(task<T>... t)
{
    return detail::all_wait<T...>(std::move(t)...);
}
/// For tasks whose number is known only at run time. Gives an std::vector of what they return.
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

#endif  // GS_HPP_COROUTINES

}  // inline namespace
}  // namespace gs

template <class R, class Alloc>
struct std::uses_allocator<gs::promise<R>, Alloc> : std::true_type {
};

#endif  // GOSCHED_HPP
