// unix.hpp: gs::unix_stream and gs::unix_listener.
#pragma once

#include "error.hpp"
#include "socket.hpp"
#include "time.hpp"

#include <string>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

/// A connection within this machine. net.UnixConn.
class unix_stream : public stream_socket {
public:
    unix_stream() noexcept = default;
    /// Takes over a connected socket.
    explicit unix_stream(int fd) noexcept : stream_socket(fd) {}

    /// Connects to the listener at the path, or at "@name". Fails as gs_unix_connect.
    static result<unix_stream> connect(const std::string &path, deadline until = deadline::forever())
    {
        return detail::opened<unix_stream>(gs_unix_connect(path.c_str(), until.native()), "gs::unix_stream::connect");
    }
    /// Makes two streams connected to each other: socketpair.
    static result<std::pair<unix_stream, unix_stream>> pair()
    {
        using two = std::pair<unix_stream, unix_stream>;
        int fds[2] = {-1, -1};
        const int r = gs_unix_pair(fds);
        if (r < 0)
            return detail::failed<two>(r, "gs::unix_stream::pair");
        return two(unix_stream(fds[0]), unix_stream(fds[1]));
    }
};
using unix_iostream = socket_iostream<unix_stream>;

/// A listening socket within this machine. net.UnixListener.
class unix_listener {
    detail::file file_;

public:
    unix_listener() noexcept = default;
    /// Takes over a listening socket.
    explicit unix_listener(int fd) noexcept : file_(fd) {}

    /// Listens at a path in the file system, which stays when the socket is closed, or at "@name", which doesn't.
    /// backlog as for gs::tcp_listener::listen. Fails as gs_unix_listen.
    static result<unix_listener> listen(const std::string &path, int backlog = 0)
    {
        return detail::opened<unix_listener>(gs_unix_listen(path.c_str(), backlog), "gs::unix_listener::listen");
    }

    bool is_open() const noexcept { return file_.fd() >= 0; }
    int native_handle() const noexcept { return file_.fd(); }

    /// Waits for the next connection. Fails with std::errc::too_many_files_open until there is room again. To end it
    /// early, cancel the goroutine that accepts: unlike a TCP socket, a Unix socket can't be told to stop listening.
    result<unix_stream> accept(deadline until = deadline::forever()) const
    {
        const int fd = gs_accept(file_.fd(), nullptr, nullptr, until.native());
        return detail::opened<unix_stream>(fd, "gs::unix_listener::accept");
    }
    /// Closes the listener. No other goroutine may be in a call on it.
    result<void> close() { return detail::done(file_.close(), "gs::unix_listener::close"); }
};

GS_HPP_END_NAMESPACE
