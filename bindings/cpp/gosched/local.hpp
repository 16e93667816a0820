// local.hpp: gs::local, a variable with a value for each goroutine.
#pragma once

#include "call.hpp"
#include "error.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

/// A variable of which each goroutine, and each plain thread, has a value of its own: what thread_local is for threads.
/// At a goroutine's first use `*var` makes the value, by T() or by the constructor's function. The value is destroyed
/// on the goroutine at its end, before a join returns, or on the plain thread at its end. Like a pointer, a const
/// variable gives a T that isn't const.
///
/// A variable may be destroyed before the goroutines that have values of it: the destructor destroys the caller's
/// value, and each other goroutine destroys its own at its end. There are 65,536 variables at most, in all of the
/// program.
template <class T>
class local {
    struct slot;
    /// The state that the variable and its values share. The last of them destroys it.
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
        ~block_of() noexcept override {} // F's destructor may be noexcept(false)
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

    /// Destroys a value at the end of its goroutine or thread.
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
    /// init() gives a goroutine's first value. Several goroutines may call it at the same time.
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

    /// The caller's value, made if need be. Misuse if there is no value yet, and T has no default constructor.
    T &operator*() const
    {
        if (slot *s = find())
            return s->value;
        return put(block_ == nullptr ? nullptr : block_->make_slot(), "gs::local");
    }
    T *operator->() const { return std::addressof(**this); }
    /// The caller's value; nullptr: none yet.
    T *get() const noexcept
    {
        slot *s = find();
        return s == nullptr ? nullptr : std::addressof(s->value);
    }
    /// Makes a new value in place of the caller's.
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

GS_HPP_END_NAMESPACE
