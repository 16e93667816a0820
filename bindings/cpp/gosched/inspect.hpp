// inspect.hpp: what a running program shows of itself: gs::trace, gs::flight, gs::dump, gs::leaks, gs::metrics.
#pragma once

#include "error.hpp"
#include "time.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <ostream>
#include <string>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

namespace detail {

/// As in <unistd.h>, whose names, such as read, many programs have too.
extern "C" int close(int fd);

/// A file to be written, which is made or emptied. Its descriptor, or a negative errno value.
inline int create_file(const std::string &path) noexcept
{
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return fd < 0 ? -errno : fd;
}

/// What `write` writes to the descriptor that it is given, as text.
inline result<std::string> text_of(int (*write)(int), const char *where)
{
    std::string text;
    const int fd = ::memfd_create("gosched", MFD_CLOEXEC);
    int r = fd < 0 ? -errno : write(fd);
    struct stat info = {};
    if (r >= 0 && ::fstat(fd, &info) == 0) {
        const auto size = static_cast<std::size_t>(info.st_size);
        void *const all = size == 0 ? nullptr : ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (all == MAP_FAILED) {
            r = -errno;
        } else if (size != 0) {
            text.assign(static_cast<const char *>(all), size);
            ::munmap(all, size);
        }
    }
    if (fd >= 0)
        detail::close(fd);
    if (r < 0)
        return failed<std::string>(r, where);
    return text;
}

}  // namespace detail

/// Writes an event trace, which `go tool trace` and gosched-trace read, from its construction to its end: gs_trace_start.
/// A process has one trace at a time. trace.Start.
class trace {
    int fd_ = -1;         // to be closed; -1: the caller's, or none
    int state_ = -EINVAL; // 0: the trace goes on; below: why there is none

    void start(int fd)
    {
        state_ = fd < 0 ? fd : gs_trace_start(fd);
#if GS_HPP_EXCEPTIONS
        if (state_ < 0) {
            close();
            detail::raise(state_, "gs::trace");
        }
#endif
    }
    void close() noexcept
    {
        if (fd_ >= 0)
            detail::close(std::exchange(fd_, -1));
    }
    int finish() noexcept
    {
        const int r = state_ < 0 ? state_ : gs_trace_stop();
        state_ = -EINVAL;
        close();
        return r;
    }

public:
    /// Writes the trace to this file, which is made or emptied. Fails with the error of open(2), with
    /// std::errc::device_or_resource_busy if there is a trace already, or as gs_trace_start. (Without exceptions the
    /// object is empty then, and stop() gives the error.)
    explicit trace(const std::string &path)
    {
        // A trace that goes on may be in this file.
        const int r = gs_trace_start(-1);
        fd_ = r == -EBADF ? detail::create_file(path) : r;
        start(fd_);
    }
    /// Writes the trace to a file, pipe or socket that stays the caller's, and open until the trace ends.
    explicit trace(int fd) { start(fd < 0 ? -EBADF : fd); }
    trace(trace &&o) noexcept : fd_(std::exchange(o.fd_, -1)), state_(std::exchange(o.state_, -EINVAL)) {}
    trace &operator=(trace &&o) noexcept
    {
        if (this != &o) {
            (void)finish();
            fd_ = std::exchange(o.fd_, -1);
            state_ = std::exchange(o.state_, -EINVAL);
        }
        return *this;
    }
    /// Ends the trace. Call stop() to learn whether all of it was written.
    ~trace() { (void)finish(); }

    /// Whether the trace goes on.
    explicit operator bool() const noexcept { return state_ == 0; }
    /// Ends the trace, and returns when all of it is written. Fails as gs_trace_stop, for instance with
    /// std::errc::no_space_on_device, and with std::errc::invalid_argument if the trace has ended.
    result<void> stop() { return detail::done(finish(), "gs::trace::stop"); }
};

/// Keeps the latest events in memory, as long as it lives, to be written when something has gone wrong: gs_flight_start.
/// A process has one flight recorder at a time. trace.FlightRecorder.
class flight {
    int state_ = -EINVAL; // 0: events are kept; below: why not

    int finish() noexcept
    {
        const int r = state_ < 0 ? state_ : gs_flight_stop();
        state_ = -EINVAL;
        return r;
    }

public:
    /// Keeps the events of at least the last `length`. Fails as gs_flight_start. (Without exceptions the object is empty
    /// then, and its functions give the error.)
    template <class Rep, class Period>
    explicit flight(const std::chrono::duration<Rep, Period> &length) : state_(gs_flight_start(detail::ns_of(length)))
    {
#if GS_HPP_EXCEPTIONS
        detail::must(state_, "gs::flight");
#endif
    }
    flight(flight &&o) noexcept : state_(std::exchange(o.state_, -EINVAL)) {}
    flight &operator=(flight &&o) noexcept
    {
        if (this != &o) {
            (void)finish();
            state_ = std::exchange(o.state_, -EINVAL);
        }
        return *this;
    }
    /// Forgets the events.
    ~flight() { (void)finish(); }

    /// Whether events are kept.
    explicit operator bool() const noexcept { return state_ == 0; }
    /// Writes the events that are kept to this file as a trace; the file is made or emptied. More events are kept
    /// afterwards. Fails with the error of open(2), or as gs_flight_write.
    result<void> write(const std::string &path) const
    {
        int fd = -1;
        int r = state_;
        if (r == 0)
            r = fd = detail::create_file(path);
        if (r >= 0)
            r = gs_flight_write(fd);
        if (fd >= 0)
            detail::close(fd);
        return detail::done(r, "gs::flight::write");
    }
    /// Writes the events to a file, pipe or socket.
    result<void> write(int fd) const { return detail::done(state_ < 0 ? state_ : gs_flight_write(fd), "gs::flight::write"); }
    /// Keeps events no longer, and forgets them. Fails as gs_flight_stop.
    result<void> stop() { return detail::done(finish(), "gs::flight::stop"); }
};

/// The state and the backtrace of each goroutine, as Go's tracebacks show them: gs_dump.
inline result<std::string> dump()
{
    return detail::text_of(gs_dump, "gs::dump");
}

/// The state and the backtrace of each goroutine as a JSON object, for tools: gs_dump_json.
inline result<std::string> dump_json()
{
    return detail::text_of(gs_dump_json, "gs::dump_json");
}

/// Writes the state and the backtrace of each goroutine to a stream.
inline result<void> dump(std::ostream &to)
{
#if GS_HPP_EXCEPTIONS
    to << dump();
#else
    const auto text = dump();
    if (!text)
        return unexpected{text.error()};
    to << *text;
    return {};
#endif
}

/// The goroutines that wait for an object which no live goroutine can reach, as text: gs_leaks. Stops all threads for a
/// moment.
inline result<std::string> leaks()
{
    return detail::text_of(gs_leaks, "gs::leaks");
}

/// The runtime's statistics as OpenMetrics text, which a Prometheus server reads: gs_stats_write.
inline result<std::string> metrics()
{
    return detail::text_of(gs_stats_write, "gs::metrics");
}

GS_HPP_END_NAMESPACE
