// What the tests share: GO_TEST(name) is a test that runs as a goroutine, TEST_CASE(name) one on a plain thread.
#pragma once

#define DOCTEST_CONFIG_NO_POSIX_SIGNALS // the library handles SIGSEGV: stack overflows of goroutines
#include <doctest/doctest.h>

#include "gosched.hpp"

#include <vector>

#define GO_TEST_OF(name, function)     \
    static void function();            \
    TEST_CASE(name)                    \
    {                                  \
        (void)gs::run(function);       \
    }                                  \
    static void function()
#define GO_TEST_AT(name, line) GO_TEST_OF(name, line)
#define GO_TEST(name) GO_TEST_AT(name, DOCTEST_ANONYMOUS(go_test_))

/// Counts how many are alive, and how many there ever were.
struct Counted {
    static inline std::atomic<int> alive{0}, made{0};
    int value;
    explicit Counted(int v = 0) : value(v)
    {
        alive++;
        made++;
    }
    Counted(Counted &&o) noexcept : value(o.value)
    {
        o.value = -1;
        alive++;
    }
    Counted &operator=(Counted &&o) noexcept
    {
        value = o.value;
        o.value = -1;
        return *this;
    }
    ~Counted() { alive--; }
};

/// The code of the gs::error that f throws.
template <class F>
std::error_code code_of(F &&f)
{
    try {
        f();
    } catch (const gs::error &e) {
        CHECK(e.code().category() == gs::category());
        return e.code();
    }
    return {};
}

/// Runs f(0) to f(29) as goroutines, and waits for them.
template <class F>
void many_of(F f)
{
    std::vector<gs::goroutine<void>> all;
    for (int i = 0; i < 30; i++)
        all.push_back(gs::go(f, i));
    for (auto &g : all)
        g.get();
}

/// Anything that may move the goroutine to another thread.
inline void go_elsewhere(int i)
{
    switch (i % 4) {
    case 0:
        (void)gs::this_goroutine::sleep_for(std::chrono::microseconds(20));
        break;
    case 1: {
        gs::syscall_section section;
        break;
    }
    default:
        gs::this_goroutine::yield();
    }
}
