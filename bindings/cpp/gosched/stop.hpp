// stop.hpp: waits that an std::stop_token can end.
#pragma once

#include "call.hpp"
#include "error.hpp"
#include "mutex.hpp"
#include "scope.hpp"

#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>
#include <utility>

#if GS_HPP_STOP_TOKENS

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

GS_HPP_BEGIN_NAMESPACE

namespace detail {

/// Calls a function once when a stop is requested, until disarm(): an std::stop_callback that also works between
/// goroutines.
///
/// The destructor of an std::stop_callback waits while the call goes on, unless the destructor runs on the thread that
/// has requested the stop. But a goroutine may request a stop on one thread and continue on another, if a function that
/// the stop calls switches. Then a destructor on the first thread wouldn't wait, and would free memory that the request
/// still uses. So the destructor of the std::stop_callback runs
///
/// - at once, if no stop is requested yet: a request that comes meanwhile is on another thread, since no code between
///   the check and the destructor's end can switch;
/// - at once, if the function was called by a plain thread, which is in the request until its end;
/// - else on a thread of its own, on which no goroutine can have requested the stop.
class stop_guard {
    struct block {
        block *next = nullptr; // in the undertaker's list
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

    /// A thread that destroys blocks, and ends when none is left.
    class undertaker {
        std::atomic<block *> first_{nullptr};
        std::atomic<pid_t> process_{0}; // the process in which the thread runs; 0: no thread

        /// Whether the caller must start the thread. A thread of the process that forked this one doesn't count.
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
                // A block put there before this store may have found the thread running.
            } while (first_.load() != nullptr && begin());
        }

    public:
        static undertaker &the() noexcept
        {
            static undertaker it; // needs no destructor
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
                process_.store(0); // the next block tries again
        }
    };

    std::stop_token token_;
    block *b_;

public:
    /// If there is no memory, ok() is false, or std::bad_alloc is thrown.
    explicit stop_guard(const std::stop_token &token) : token_(token), b_(make<block>()) {}
    stop_guard(const stop_guard &) = delete;
    stop_guard &operator=(const stop_guard &) = delete;
    ~stop_guard() { disarm(); }
    bool ok() const noexcept { return b_ != nullptr; }

    /// Lets a request call f(arg) from now on, on the goroutine or thread that makes the request; calls f at once if
    /// the stop was already requested. f may lock mutexes that are never held for long.
    void arm(void (*f)(void *), void *arg) noexcept
    {
        b_->f = f;
        b_->arg = arg;
        if (token_.stop_requested())
            f(arg);
        else
            b_->callback.emplace(token_, typename block::caller{b_});
    }
    /// Ends the arming. After the return f doesn't run, now or later.
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

/// A channel that a requested stop closes.
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
    /// The channel; nullptr: no memory.
    gs_chan *get() const noexcept { return guard_.ok() ? c_ : nullptr; }
};

// The waits with a token. An operation that needs no wait is done even if a stop is requested.

/// Whether a wait ends without its token, with the result r: wait(d) need not wait, a stop is requested already, or none
/// is possible.
template <class Wait>
bool ends_without_token(const std::stop_token &st, gs_deadline at, Wait &wait, int &r)
{
    r = wait(GS_NOWAIT);
    if (r != -EAGAIN)
        return true;
    if (st.stop_requested())
        r = stop_asked;
    else if (!st.stop_possible())
        r = wait(at);
    else
        return false;
    return true;
}

inline int chan_or_stop(const std::stop_token &st, const gs_case &op, gs_deadline at)
{
    const auto wait = [&op](gs_deadline d) {
        return op.op == GS_RECV ? gs_chan_recv(op.ch, op.elem, d) : gs_chan_send(op.ch, op.elem, d);
    };
    int r;
    if (ends_without_token(st, at, wait, r))
        return r;
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

/// Joins a goroutine, and cancels it when a stop is requested or the caller is cancelled. The guard must not be armed
/// yet.
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

/// Waits for something that no select can wait for: wait(d) runs on a goroutine of its own.
template <class Wait>
int wait_or_stop(const std::stop_token &st, gs_deadline at, Wait &&wait)
{
    int r;
    if (ends_without_token(st, at, wait, r))
        return r;
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
    if (here.r != -ECANCELED) // a wait that got something isn't undone
        return here.r;
    return r < 0 ? r : stop_asked;
}

}  // namespace detail

GS_HPP_END_NAMESPACE

#endif  // GS_HPP_STOP_TOKENS
