// subscription_catch2: a test of a small class with Catch2, by seeds. With -DWITH_BUG the class closes its channel twice,
// and the test prints the shortest schedule in which it does.
//
//   g++ -std=c++17 subscription_catch2.cpp -o subscription_catch2 $(pkg-config --cflags --libs gosched)
//   ./subscription_catch2
#include <gosched.hpp>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp> // link with Catch2Main, Catch2
#else
#define CATCH_CONFIG_MAIN
#define CATCH_CONFIG_NO_POSIX_SIGNALS // the library handles SIGSEGV: stack overflows of goroutines
#include <catch2/catch.hpp>
#endif

#include <mutex>

/// Numbers for a reader, until someone has had enough: the reader or the writer.
class Subscription {
    gs::chan<int> numbers_{4};
    gs::mutex mutex_;
    bool closed_ = false;

public:
    gs::recv_chan<int> numbers() const { return numbers_; }

    bool publish(int n)
    {
        const std::lock_guard<gs::mutex> lock(mutex_);
        return !closed_ && numbers_.try_send(n) == gs::status::ok;
    }

    void close()
    {
        std::unique_lock<gs::mutex> lock(mutex_);
        if (closed_)
            return;
#ifdef WITH_BUG
        lock.unlock(); // someone else may close it now
        numbers_.close();
        lock.lock();
#else
        numbers_.close();
#endif
        closed_ = true;
    }
};

// The second close throws. An exception that nobody catches ends the run, with its what() in the report.
TEST_CASE("a subscription is closed from both sides")
{
    CHECK(gs::test::explore(1000, [] {
        Subscription s;
        auto writer = gs::go([&] {
            for (int n = 1; s.publish(n); n++)
                continue;
            s.close();
        });
        auto reader = gs::go([&] {
            (void)s.numbers().recv();
            s.close();
        });
        writer.get();
        reader.get();
    }));
}

// Catch2's macros work in a run, which is on the thread of the test. A CHECK that fails is reported as ever, and the run
// goes on. A REQUIRE that fails also throws, which ends the run.
TEST_CASE("a closed subscription takes no numbers")
{
    const auto result = gs::test::run([] {
        Subscription s;
        REQUIRE(s.publish(7));
        gs::go([&] { s.close(); }).get();
        CHECK_FALSE(s.publish(8));
        CHECK(s.numbers().recv().value() == 7);
        CHECK_FALSE(s.numbers().recv().has_value());
    });
    CHECK(result == gs::test::outcome::ok);
}
