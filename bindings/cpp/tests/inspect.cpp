// Traces, the flight recorder, dumps.
#include "test.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <unistd.h>

using namespace std::chrono_literals;

/// The name of a file that does not exist yet, and no longer once this is destroyed.
struct TemporaryFile {
    std::string path = "/tmp/gosched-inspect-XXXXXX";
    TemporaryFile()
    {
        const int fd = ::mkstemp(path.data());
        REQUIRE(fd >= 0);
        ::close(fd);
    }
    ~TemporaryFile() { ::unlink(path.c_str()); }
    std::string text() const
    {
        std::ifstream in(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    bool has_trace() const { return text().find("go 1.") == 0 && text().size() > 100; }
};

static void make_events()
{
    many_of(go_elsewhere);
}

GO_TEST("a trace is written to a path, and ends in the destructor")
{
    const TemporaryFile file;
    {
        const gs::trace t{file.path};
        CHECK(static_cast<bool>(t));
        make_events();
    }
    CHECK(file.has_trace());
    CHECK(code_of([&] { gs::trace(file.path).stop(); }) == std::error_code());
}

GO_TEST("a trace is written to a descriptor, which stays open")
{
    const TemporaryFile file;
    const int fd = ::open(file.path.c_str(), O_WRONLY);
    gs::trace t{fd};
    make_events();
    t.stop();
    CHECK_FALSE(static_cast<bool>(t));
    CHECK(file.has_trace());
    CHECK(::close(fd) == 0);
}

GO_TEST("there is one trace at a time, and it ends once")
{
    const TemporaryFile file, other;
    gs::trace t{file.path};
    CHECK(code_of([&] { gs::trace{other.path}; }) == std::errc::device_or_resource_busy);
    CHECK(code_of([&] { gs::trace{file.path}; }) == std::errc::device_or_resource_busy);
    gs::trace moved = std::move(t);
    CHECK_FALSE(static_cast<bool>(t));
    CHECK(code_of([&] { t.stop(); }) == std::errc::invalid_argument);
    moved.stop();
    CHECK(file.has_trace()); // the second one has not emptied it
    CHECK(code_of([&] { moved.stop(); }) == std::errc::invalid_argument);
    moved = gs::trace{other.path};
    moved.stop();
    CHECK(other.has_trace());
}

TEST_CASE("a trace that can't be written says why")
{
    CHECK(code_of([] { gs::trace{"/there/is/nothing"}; }) == std::errc::no_such_file_or_directory);
    CHECK(code_of([] { gs::trace{-1}; }) == std::errc::bad_file_descriptor);
    CHECK(code_of([] { gs::trace{999999}; }) == std::errc::bad_file_descriptor);
    gs::trace full{"/dev/full"};
    gs::run(make_events);
    CHECK(code_of([&] { full.stop(); }) == std::errc::no_space_on_device);
}

GO_TEST("the flight recorder writes what it keeps as often as it is asked")
{
    const TemporaryFile file, other;
    gs::flight recorder{10s};
    CHECK(code_of([] { gs::flight{1s}; }) == std::errc::device_or_resource_busy);
    make_events();
    recorder.write(file.path);
    make_events();
    const int fd = ::open(other.path.c_str(), O_WRONLY);
    recorder.write(fd);
    ::close(fd);
    CHECK(file.has_trace());
    CHECK(other.has_trace());
    CHECK(code_of([&] { recorder.write("/there/is/nothing"); }) == std::errc::no_such_file_or_directory);
    gs::flight moved = std::move(recorder);
    moved.stop();
    CHECK(code_of([&] { moved.write(file.path); }) == std::errc::invalid_argument);
    CHECK(code_of([&] { moved.stop(); }) == std::errc::invalid_argument);
    CHECK(code_of([] { gs::flight{0s}; }) == std::errc::invalid_argument);
}

GO_TEST("a dump shows the goroutines and what they wait for")
{
    gs::chan<int> never;
    auto waits = gs::go([&] { never.recv(); });
    std::string text;
    while ((text = gs::dump()).find("chan receive") == std::string::npos)
        gs::this_goroutine::yield();
    CHECK(text.find("goroutine ") != std::string::npos);
    CHECK(gs::dump_json().find("\"wait_reason\"") != std::string::npos);
    std::ostringstream to;
    gs::dump(to);
    CHECK(to.str().find("chan receive") != std::string::npos);
    never.close();
    waits.get();
}

GO_TEST("the metrics are OpenMetrics text")
{
    const std::string text = gs::metrics();
    CHECK(text.find("\ngo_sched_gomaxprocs_threads ") != std::string::npos);
    CHECK(text.rfind("# EOF\n") == text.size() - 6);
}

TEST_CASE("a plain thread can dump, with and without a runtime")
{
    gs::shutdown();
    CHECK_NOTHROW(gs::dump());
    gs::run([] {});
    CHECK_NOTHROW(gs::dump());
}
