// channel.hpp: gs::chan, gs::send_chan and gs::recv_chan.
#pragma once

#include "call.hpp"
#include "element.hpp"
#include "error.hpp"
#include "stop.hpp"
#include "time.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

namespace detail {

/// The state that the handles of a channel share. The last handle destroys the channel's values and frees the channel.
struct chan_block {
    gs_chan *c;
    std::atomic<std::size_t> handles{1};
    void (*drain)(gs_chan *); // nullptr: elements have no destructor

    chan_block(gs_chan *chan, void (*d)(gs_chan *)) noexcept : c(chan), drain(d) {}
    void retain() noexcept { handles.fetch_add(1, std::memory_order_relaxed); } // the caller has a handle
    void release() noexcept
    {
        // Release: the uses of this handle come before the destruction, which acquires.
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
        // Asserted here, so that a T may have channels of T's as members.
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

    /// Whether the handle refers to a channel. A handle without one, a nil channel, is never ready in a select; other
    /// uses of it fail.
    explicit operator bool() const noexcept { return block_ != nullptr; }
    /// How many elements are buffered now.
    std::size_t size() const noexcept { return gs_chan_len(native_handle()); }
    /// How many elements the buffer holds.
    std::size_t capacity() const noexcept { return gs_chan_cap(native_handle()); }
    /// The channel for functions of gosched.h. Valid as long as the channel has a handle. Its elements are T's if
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
            out.restore(); // not in the destructor, which an exception can't leave
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
    /// value given by move is then moved back. If T's move assignment throws, send throws that exception, and the value
    /// is as the assignment has left it. All this holds for every kind of send.
    result<void> send(const T &value) const { return done(detail::send<T>(c(), value, GS_FOREVER), "gs::chan::send"); }
    result<void> send(T &&value) const
    {
        return done(detail::send<T>(c(), std::move(value), GS_FOREVER), "gs::chan::send");
    }
    /// Sends if that needs no wait. ok, again or closed.
    [[nodiscard]] status try_send(const T &value) const
    {
        return status_of(detail::send<T>(c(), value, GS_NOWAIT), "gs::chan::try_send");
    }
    [[nodiscard]] status try_send(T &&value) const
    {
        return status_of(detail::send<T>(c(), std::move(value), GS_NOWAIT), "gs::chan::try_send");
    }
    /// Sends within the time. ok, timed_out or closed.
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
    /// Sends until a stop is requested. ok, closed, stopped; with a limit also timed_out.
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
    /// Closes the channel: from now on sends fail, and so do receives once the channel is drained. Fails with
    /// std::errc::broken_pipe if the channel is closed already.
    result<void> close() const { return done(gs_chan_close(c()), "gs::chan::close"); }
};

/// Size of an iterator, in bytes, above which a range's end isn't an iterator: see sentinel.
inline constexpr std::size_t large_iterator = 16384;

/// The operations of a channel that can be received from.
template <class Self, class T>
class receiving {
    gs_chan *c() const noexcept { return static_cast<const Self *>(this)->native_handle(); }

public:
    /// `v, ok := <-ch`. The result has no value if the channel is closed and drained.
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
    /// Receives until a stop is requested. The result then has no value, and is stopped().
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
    /// The iterator of `for (T v : ch)`, which receives until the channel is closed and drained. (Without exceptions it
    /// also ends if the goroutine is cancelled.) With C++20 a channel of assignable elements is an
    /// std::ranges::input_range.
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
            // Constructed anew, not assigned: elements needn't be assignable.
            value_.~received<T>();
            struct refill { // constructs the value even if the receive throws
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
    /// The end of a range whose iterators can't be copied, as C++20's ranges want of an end, because the elements
    /// can't. Also the end of a range with large iterators: an iterator has room for an element, and a goroutine's
    /// stack is small.
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

/// A channel of T's: a shared reference, copied as std::shared_ptr is. T must be movable; it needs neither a copy nor a
/// default constructor. Any number of goroutines and plain threads may use a channel at once, each through its own
/// handle, or through a shared handle that is not assigned to. When the last handle goes, the values left in it are
/// destroyed.
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
    /// A handle for a channel of gosched.h. The handle owns the channel from here on.
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

GS_HPP_END_NAMESPACE
