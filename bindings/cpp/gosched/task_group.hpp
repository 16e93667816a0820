// task_group.hpp: gs::task_group, goroutines that end together.
#pragma once

#include "call.hpp"
#include "error.hpp"
#include "goroutine.hpp"
#include "mutex.hpp"
#include "scope.hpp"
#include "stop.hpp"

#include <cerrno>
#include <exception>
#include <mutex>
#include <system_error>
#include <type_traits>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

/// Goroutines that end together: all have ended when wait() has returned or the group is destroyed. The first exception
/// that leaves a member cancels the others, and wait() throws it. A member may also return an std::error_code (or,
/// without exceptions, a gs::result): an error cancels the others too, and wait() then fails with it.
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
    gs_g *leaver_ = nullptr; // the member that left last, which may not have ended yet
    bool cancelled_ = false;
    std::error_code code_;
#if GS_HPP_EXCEPTIONS
    std::exception_ptr thrown_;

    void fail(std::exception_ptr thrown, std::error_code code)
    {
        std::lock_guard<mutex> guard(lock_);
        // An error caused by the cancel itself doesn't count as the first.
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
    /// Each member waits for the end of the member that left before it, so wait() waits for the last one only.
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
    /// Cancels the remaining members and waits for them. Drops their exceptions if wait() was not called: most likely
    /// another exception is in flight.
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

    /// Cancels all members, and new ones until the next wait().
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
    /// wait(), except that a requested stop cancels the members: wait() then waits for them, and returns false.
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

GS_HPP_END_NAMESPACE
