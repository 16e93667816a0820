// Recursive mutexes.
#include "test.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

using namespace std::chrono_literals;

// ---- Recursive mutexes ----

GO_TEST("recursive_mutex: its owner locks it again, also on another thread; all others wait")
{
    gs::recursive_mutex m;
    int n = 0;
    many_of([&](int i) {
        for (int k = 0; k < 20; k++) {
            std::lock_guard<gs::recursive_mutex> one(m);
            const int was = n;
            go_elsewhere(i + k);
            {
                std::unique_lock<gs::recursive_mutex> two(m, std::try_to_lock);
                CHECK(two);
                go_elsewhere(i + k + 1);
                std::unique_lock<gs::recursive_mutex> three(m, 1ms);
                CHECK(three);
                CHECK(m.try_lock_until(std::chrono::system_clock::now()));
                m.unlock();
            }
            go_elsewhere(i + k + 2);
            n = was + 1; // no other goroutine has been here
        }
    });
    CHECK(n == 600);

    m.lock();
    m.lock();
    m.unlock();
    gs::go([&] { // it is still locked
        CHECK_FALSE(m.try_lock());
        CHECK_FALSE(m.try_lock_for(1ms));
        CHECK_FALSE(m.try_lock_until(gs::clock::now()));
        CHECK(code_of([&] { m.unlock(); }) == std::errc::operation_not_permitted);
    }).get();
    m.unlock();
    CHECK(code_of([&] { m.unlock(); }) == std::errc::operation_not_permitted);
    gs::go([&] {
        CHECK(m.try_lock());
        m.unlock();
    }).get();
}

TEST_CASE("recursive_mutex between goroutines and plain threads")
{
    gs::recursive_mutex m;
    int n = 0;
    const auto add = [&] {
        for (int i = 0; i < 200; i++) {
            std::scoped_lock one(m);
            std::scoped_lock two(m);
            n++;
        }
    };
    std::thread threads[] = {std::thread(add), std::thread(add)};
    gs::run([&] {
        auto g = gs::go(add);
        add();
        g.get();
    });
    for (auto &t : threads)
        t.join();
    CHECK(n == 800);

    // A goroutine that runs on the thread which has locked it is not the owner.
    m.lock();
    CHECK_FALSE(gs::run([&] { return m.try_lock(); }));
    m.unlock();
}

GO_TEST("recursive_mutex: a cancel doesn't end a lock, and condition_variable_any waits with it")
{
    gs::recursive_mutex m;
    gs::condition_variable_any changed;
    bool is_true = false;
    m.lock();
    auto g = gs::go([&] {
        std::unique_lock<gs::recursive_mutex> lock(m);
        CHECK(gs::this_goroutine::cancelled());
        gs::no_cancel scope;
        changed.wait(lock, [&] { return is_true; });
    });
    g.cancel();
    CHECK_FALSE(g.join_for(1ms));
    m.unlock();
    while (!g.join_for(1ms)) {
        std::lock_guard<gs::recursive_mutex> guard(m);
        is_true = true;
        changed.notify_all();
    }
    g.get();
}
