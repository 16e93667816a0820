// element.hpp: how a value passes through a channel, and gs::received, in which it arrives.
#pragma once

#include "call.hpp"
#include "error.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

/// Whether a T may be moved to another place by copying its bytes, without its move constructor and destructor. A
/// channel carries such values directly, and others as pointers to values on the heap. May be specialised.
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

/// The final place of a received element, where the channel writes it: it isn't moved. data() is for the channel. There
/// is an element if status_ is ok.
template <class T, passing = passing_of<T>>
class landing { // the element as bytes
    union {
        T value_;
    };

protected:
    gs::status status_;
    landing() noexcept {} // status_ is set before any other use
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

/// A base class that can't be copied, for a T that can't.
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
/// Constructs a gs::received whose status is set before any other use.
struct landing_begun {
};

}  // namespace detail

/// The result of a receive: a value, or why there is none. Like std::optional, with a status. No receive calls T's move
/// constructor, so that its exception can't lose the value. Only the program calls it, when moving the value out of
/// this object, which keeps the value if that fails. A gs::received that was moved from may have no value.
template <class T>
class received : private detail::copy_gate<std::is_copy_constructible_v<T>>, private detail::landing<T> {
    using place = detail::landing<T>;
    friend struct detail::landing_access;

public:
    using value_type = T;
    explicit received(detail::landing_begun) noexcept {} // for receives
    explicit received(gs::status why) noexcept : place(why == gs::status::ok ? gs::status::invalid : why) {}
    /// Makes a received value of the optional's. std::nullopt: a closed channel.
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
    /// How the receive ended: ok, closed, again (try_recv), timed_out, stopped; without exceptions also cancelled,
    /// invalid, no_memory.
    gs::status status() const noexcept { return this->status_; }
    bool closed() const noexcept { return status() == gs::status::closed; }
    bool timed_out() const noexcept { return status() == gs::status::timed_out; }
    bool stopped() const noexcept { return status() == gs::status::stopped; }

    T &operator*() & noexcept { return *this->get(); }
    const T &operator*() const & noexcept { return *this->get(); }
    T &&operator*() && noexcept { return std::move(*this->get()); }
    T *operator->() noexcept { return this->get(); }
    const T *operator->() const noexcept { return this->get(); }
    /// The value. Fails with the error of the status if there is none.
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
        if (!has_value()) // a stop is not received
            detail::raise(stopped() ? -ECANCELED : -static_cast<int>(status()), "gs::received::value");
    }
};

namespace detail {

/// Access for a receive to the place of its result.
struct landing_access {
    template <class T>
    static void *data(received<T> &to) noexcept
    {
        return to.data();
    }
    /// The result of a receive that ended with r.
    template <class T>
    static void set(received<T> &to, gs::status s) noexcept
    {
        to.status_ = s;
    }
};

}  // namespace detail

namespace detail {

/// An element on its way into a channel. A moved value that isn't sent goes back to where it was.
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
        // An exception here would leave the old place without a value, so it ends the program.
        to.~T();
        ::new (static_cast<void *>(std::addressof(to))) T(std::move(value));
    }
}

/// Called by the destructor of an outgoing that was neither sent nor restored, usually while an exception unwinds the
/// stack: so it throws nothing.
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
    T *from_ = nullptr; // the place that the value was moved from
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

}  // namespace detail

GS_HPP_END_NAMESPACE
