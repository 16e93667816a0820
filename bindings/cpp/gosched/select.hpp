// select.hpp: gs::select, and gs::selector for cases whose number is known only at run time.
#pragma once

#include "channel.hpp"
#include "element.hpp"
#include "error.hpp"
#include "stop.hpp"
#include "time.hpp"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

GS_HPP_BEGIN_NAMESPACE

namespace detail {

/// Keeps the first exception of several calls, all of which are made.
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

/// The argument type of a function with only one signature; void for others, such as templates and overloads.
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

/// Whether a receive's function is called with a gs::received<T>, and not with a T.
template <class F, class T>
constexpr bool takes_received() noexcept
{
    if constexpr (!std::is_invocable_v<F &, received<T>>) {
        return false;
    } else if constexpr (!std::is_convertible_v<received<T>, T>) {
        return true;
    } else { // such as std::any: a function of a T could be called with a received<T> too, which the T would then hold
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

/// A case of gs::select: receives, then calls f with the value. If f can take a gs::received<T> (also as auto), it gets
/// one, without a value if the channel is closed and drained. If f takes only a T, select fails with
/// std::errc::broken_pipe for a closed channel.
template <class C, class F, std::enable_if_t<detail::can_recv<C>, int> = 0>
inline auto recv(const C &c, F &&f)
{
    return detail::recv_case<C, std::remove_reference_t<F>>(c, f);
}

/// A case of gs::select: sends, then calls f. If another case is chosen, a value given by move is moved back. select
/// fails with std::errc::broken_pipe if the channel is closed.
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

/// The case for when no other one can be done at once: default.
template <class F>
inline auto otherwise(F &&f)
{
    return detail::default_case<std::remove_reference_t<F>>(f);
}
/// The case for when no other one can be done in time.
template <class F>
inline auto timeout(deadline at, F &&f)
{
    return detail::timeout_case<std::remove_reference_t<F>>(at, f);
}
#if GS_HPP_STOP_TOKENS
/// The case for when a stop is requested.
template <class F>
inline auto stopped(const std::stop_token &st, F &&f)
{
    return detail::stop_case<std::remove_reference_t<F>>(st, f);
}
#endif

/// Carries out one of the cases, each written in place: gs::select(gs::recv(a, f), gs::send(b, 1, g),
/// gs::otherwise(h)). Of several cases that can be done, each has the same chance. Calls the chosen case's function,
/// and returns the case's index. Fails with std::errc::operation_canceled in a cancelled goroutine that would have to
/// wait. If the assignment that moves back an unsent value throws, select first calls the chosen case's function, and
/// then throws that exception.
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

    // All unsent values are moved back before a function runs or anything is thrown.
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
            struct last { // destroys the element when the function has returned
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
        std::optional<detail::send_case<send_chan<T>, F>> now; // gives back an unsent value when destroyed
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
    std::vector<std::size_t> number_; // for each of ops_, its entry's number

    std::size_t add(std::unique_ptr<entry> e)
    {
        entries_.push_back(std::move(e));
        return entries_.size() - 1;
    }
    /// Does a case, and returns 0 with the case in `which`, or the error. stop: a channel that a requested stop closes,
    /// or nullptr.
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
    /// Adds a case that receives, with f as for gs::recv. Returns its number: 0, 1, 2 ...
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

    /// The number of cases, disabled ones too.
    std::size_t size() const noexcept { return entries_.size(); }
    /// The number of cases that take part.
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
    /// Removes all cases, with their unsent values. Must not be called by a case's function.
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
    /// Does a case that can be done at once. The result is empty if there is none.
    result<std::optional<std::size_t>> try_select() { return run_until(GS_NOWAIT, "gs::selector::try_select"); }
    /// Does a case within a time. The result is empty if none could be done in time.
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
    /// Does a case until a stop is requested. The result is empty if the stop came first, or no case could be done in
    /// time.
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

GS_HPP_END_NAMESPACE
