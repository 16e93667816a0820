// tcp.hpp: gs::tcp_stream and gs::tcp_listener.
#pragma once

#include "error.hpp"
#include "socket.hpp"
#include "time.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <string>

GS_HPP_BEGIN_NAMESPACE

/// A TCP connection. net.TCPConn.
class tcp_stream : public stream_socket {
public:
    tcp_stream() noexcept = default;
    /// Takes over a connected socket.
    explicit tcp_stream(int fd) noexcept : stream_socket(fd) {}

    /// Connects to a port of a host, which is a name or an address. Fails as gs_tcp_connect, for instance with
    /// std::errc::connection_refused or std::errc::timed_out.
    static result<tcp_stream> connect(const std::string &host, std::uint16_t port, deadline until = deadline::forever())
    {
        const int fd = gs_tcp_connect(host.c_str(), port, until.native());
        return detail::opened<tcp_stream>(fd, "gs::tcp_stream::connect");
    }

    result<std::uint16_t> local_port() const
    {
        return detail::port_result(detail::port_of(native_handle(), false), "gs::tcp_stream::local_port");
    }
    result<std::uint16_t> remote_port() const
    {
        return detail::port_result(detail::port_of(native_handle(), true), "gs::tcp_stream::remote_port");
    }
};

/// A listening socket. net.TCPListener.
class tcp_listener {
    detail::file file_;

public:
    tcp_listener() noexcept = default;
    /// Takes over a listening socket.
    explicit tcp_listener(int fd) noexcept : file_(fd) {}

    /// Listens on a port of the host; host "": on all addresses of the machine; port 0: on a port that the system
    /// chooses. backlog: the connections that may wait; 0: the most that the system allows. Fails as gs_tcp_listen.
    static result<tcp_listener> listen(const std::string &host, std::uint16_t port, int backlog = 0)
    {
        return detail::opened<tcp_listener>(gs_tcp_listen(host.c_str(), port, backlog), "gs::tcp_listener::listen");
    }

    bool is_open() const noexcept { return file_.fd() >= 0; }
    int native_handle() const noexcept { return file_.fd(); }
    result<std::uint16_t> port() const
    {
        return detail::port_result(detail::port_of(file_.fd(), false), "gs::tcp_listener::port");
    }

    /// Waits for the next connection. Fails with std::errc::operation_canceled after stop(), and with
    /// std::errc::too_many_files_open until there is room again.
    result<tcp_stream> accept(deadline until = deadline::forever()) const
    {
        int fd = gs_accept(file_.fd(), nullptr, nullptr, until.native());
        if (fd == -EINVAL && file_.fd() >= 0) // it no longer listens
            fd = -ECANCELED;
        return detail::opened<tcp_stream>(fd, "gs::tcp_listener::accept");
    }
    /// Ends every accept(), now and later. Any goroutine may call this.
    result<void> stop() const { return detail::done(file_.shutdown(SHUT_RDWR), "gs::tcp_listener::stop"); }
    /// Closes the listener. While other goroutines use it, call stop() instead.
    result<void> close() { return detail::done(file_.close(), "gs::tcp_listener::close"); }
};

using tcp_iostream = socket_iostream<tcp_stream>;

GS_HPP_END_NAMESPACE
