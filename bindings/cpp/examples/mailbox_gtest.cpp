// mailbox_gtest: a test of a small class with GoogleTest, by seeds. With -DWITH_BUG the class loses a wake-up, and the
// test prints the shortest schedule in which it does.
//
//   g++ -std=c++17 mailbox_gtest.cpp -o mailbox_gtest -lgtest -lgtest_main $(pkg-config --cflags --libs gosched)
//   ./mailbox_gtest
#include <gosched.hpp>

#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>

using namespace std::chrono_literals;

/// A place for one letter.
class Mailbox {
    gs::mutex mutex_;
    gs::condition_variable changed_;
    std::optional<std::string> letter_;

public:
    void put(std::string letter)
    {
        const std::lock_guard<gs::mutex> lock(mutex_);
        letter_ = std::move(letter);
        changed_.notify_one();
    }

    std::string take()
    {
#ifdef WITH_BUG
        if (!letter_) { // the letter may come now, before there is someone to be woken
            std::unique_lock<gs::mutex> lock(mutex_);
            changed_.wait(lock);
        }
        std::unique_lock<gs::mutex> lock(mutex_);
#else
        std::unique_lock<gs::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return letter_.has_value(); });
#endif
        std::string letter = std::move(*letter_);
        letter_.reset();
        return letter;
    }

    std::optional<std::string> take_within(std::chrono::nanoseconds d)
    {
        std::unique_lock<gs::mutex> lock(mutex_);
        if (!changed_.wait_for(lock, d, [&] { return letter_.has_value(); }))
            return std::nullopt;
        return std::exchange(letter_, std::nullopt);
    }
};

// Each run makes its mailbox anew. A run that fails says why on standard error: who waits for what, and the switches
// that it takes.
TEST(Mailbox, GivesEachLetterToSomeone)
{
    EXPECT_TRUE(gs::test::explore(1000, [] {
        Mailbox box;
        auto reader = gs::go([&] { return box.take(); });
        auto writer = gs::go([&] { box.put("hello"); });
        writer.get();
        if (const std::string letter = reader.get(); letter != "hello")
            gs::test::fail("took '" + letter + "'"); // ends the run, so that its shortest schedule is looked for
    }));
}

// GoogleTest's macros work in a run, which is on the thread of the test. An EXPECT_ that fails is reported as ever, and
// the run goes on. So they suit a single run; in explore a failure is told by gs::test::fail or an exception.
TEST(Mailbox, WaitsAsLongAsItIsTold)
{
    const auto result = gs::test::run([] {
        Mailbox box;
        EXPECT_EQ(box.take_within(24h), std::nullopt); // takes no time: the clock jumps
        gs::go(gs::detached, [&] {
            gs::this_goroutine::sleep_for(1h);
            box.put("late");
        });
        EXPECT_EQ(box.take_within(2h), "late");
        gs::this_goroutine::sleep_for(1s); // until the writer has let go of the mailbox
    });
    EXPECT_EQ(result, gs::test::outcome::ok);
}
