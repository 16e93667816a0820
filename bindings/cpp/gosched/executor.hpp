// executor.hpp: gs::task, a C++20 coroutine, and gs::executor, which runs it.
#pragma once

#include "call.hpp"
#include "error.hpp"
#include "mutex.hpp"

#include <cerrno>
#include <cstddef>
#include <exception>
#include <mutex>
#include <type_traits>
#include <utility>

#if GS_HPP_COROUTINES

GS_HPP_BEGIN_NAMESPACE

template <class T>
class task;
class executor;

/// How a wait of this header continues a coroutine that isn't a gs::task, and has a promise of type Promise. To be
/// specialised for coroutines that may run only on certain threads. resume() is called once, on a goroutine of the
/// wait's own; the coroutine may be gone when resume() returns. An exception that leaves it ends the program.
template <class Promise>
struct resumer {
    static void resume(std::coroutine_handle<Promise> h) { h.resume(); }
};

namespace detail {

class joint;

/// The common base of the promises of an executor's coroutines.
class promise_base {
    executor *ex_ = nullptr;

public:
    executor *where() const noexcept { return ex_; }
    void set_where(executor *ex) noexcept { ex_ = ex; }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    /// Resumes h once this coroutine has suspended.
    void go_on_with(std::coroutine_handle<> h) const noexcept;
};

/// Whether coroutines with this promise run on an executor.
template <class Promise>
inline constexpr bool is_executors = std::is_base_of_v<promise_base, Promise>;

/// The coroutine around a task that an executor was given. Its frame is destroyed when it ends.
struct root {
    struct promise_type : promise_base {
        promise_type *next = nullptr;
        root get_return_object() noexcept { return {this}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); } // the task catches all
        std::coroutine_handle<promise_type> handle() noexcept
        {
            return std::coroutine_handle<promise_type>::from_promise(*this);
        }
    };
    promise_type *promise;
};

/// Coroutines that have not begun. Those left in the list never begin.
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
    /// The base of every wait of a coroutine. A gs::task continues on its executor; the wait's goroutine continues any
    /// other coroutine, as gs::resumer or gs::resume_on says. A coroutine must not be destroyed while it waits.
    class wait_base {
        friend class executor;
        executor *ex_ = nullptr;
        std::coroutine_handle<> waiter_;
        void (*resume_)(void *how, std::coroutine_handle<>) = nullptr; // for a coroutine without an executor
        void *how_ = nullptr;
        gs_g *g_ = nullptr;
        wait_base *prev_ = nullptr, *next_ = nullptr; // in waits_
        wait_base *after_ = nullptr;                  // in over_

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
        virtual ~wait_base() = default; // for -Wnon-virtual-dtor: no code deletes a wait
        /// Does the wait. Called on the wait's own goroutine.
        virtual void wait_now() noexcept = 0;
        /// Takes the error r (a negative errno value) because of which the wait's goroutine can't be started. The
        /// coroutine continues.
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
        /// Begins the wait of a coroutine without an executor. resume(how, h) continues it.
        bool suspend(std::coroutine_handle<> h, void *how, void (*resume)(void *, std::coroutine_handle<>)) noexcept
        {
            waiter_ = h;
            how_ = how;
            resume_ = resume;
            const int r = gs_spawn(entry_without, this);
            if (r == 0)
                return true; // the coroutine may already run, and the wait be gone
            not_started(r);
            return false;
        }
    };

    executor() noexcept = default;
    executor(const executor &) = delete;
    executor &operator=(const executor &) = delete;
    /// Coroutines that have not begun never begin.
    ~executor() = default;

    /// Adds a coroutine, which begins in run(). Called before run(), or in a coroutine of this executor.
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

    // The coroutine to continue when the running one has suspended. The executor resumes it, not the running one: only
    // with -O2 does GCC turn that into a jump, and otherwise a loop of co_awaits would need ever more stack.
    std::coroutine_handle<> next_;
    detail::root_list fresh_; // coroutines that have not begun
    std::size_t left_ = 0;    // the number of coroutines that have not ended
    wait_base *waits_ = nullptr;
    bool cancelled_ = false;
#if GS_HPP_EXCEPTIONS
    std::exception_ptr thrown_;
#endif
    mutex lock_;        // guards the following members, which the goroutines of the waits use too
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
    /// Returns the next wait that is over. r: -ECANCELED when the caller was cancelled.
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
    /// Runs the coroutine, and those it passes on to, until they wait.
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

/// A coroutine that returns a T by co_return. It begins when awaited, on the executor of the awaiting coroutine, or by
/// gs::sync_wait or executor::go. `co_await std::move(t)` gives its result, or throws its exception.
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
    promise_base *promise_ = nullptr; // the waiter's
    root_list tasks_;                 // tasks before begin()

protected:
    joint() noexcept = default;
    ~joint() = default;
    /// Adds a task. Throws if there is no memory. The executor learns of the task only in begin(): else it might run a
    /// task whose outcome is already gone.
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
    /// Notes the end of a task. The last one continues the waiter, whose frame contains this object.
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

/// Runs a coroutine on the calling goroutine (or plain thread), and returns its result or throws its exception. If the
/// caller is cancelled, the coroutine's waits are cancelled too.
template <class T>
result<T> sync_wait(task<T> t)
{
    executor ex;
    detail::outcome<T> out;
    ex.add(executor::deliver(std::move(t), &ex, &out).promise);
    (void)ex.loop();
    return out.take("gs::sync_wait");
}

GS_HPP_END_NAMESPACE

#endif  // GS_HPP_COROUTINES
