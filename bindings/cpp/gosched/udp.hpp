// udp.hpp: gs::udp_socket, and gs::endpoint, an address.
#pragma once

#include "error.hpp"
#include "socket.hpp"
#include "time.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

GS_HPP_BEGIN_NAMESPACE

/// The address and port of a datagram's receiver or sender. net.UDPAddr.
class endpoint {
    union address {
        sockaddr any;
        sockaddr_in v4;
        sockaddr_in6 v6;
        sockaddr_storage room; // the first of an initialiser is zeroed, so this is done by hand
    };
    address at_;
    friend class udp_socket;

    /// Turns an IPv4-mapped IPv6 address into an IPv4 address.
    void unmap() noexcept
    {
        if (at_.any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&at_.v6.sin6_addr))
            return;
        sockaddr_in v4{};
        v4.sin_family = AF_INET;
        v4.sin_port = at_.v6.sin6_port;
        std::memcpy(&v4.sin_addr, at_.v6.sin6_addr.s6_addr + 12, 4);
        *this = endpoint();
        at_.v4 = v4;
    }
    /// The endpoint for an IPv6 socket: an IPv4 address is mapped.
    endpoint mapped() const noexcept
    {
        if (at_.any.sa_family != AF_INET)
            return *this;
        endpoint e;
        e.at_.v6 = sockaddr_in6{};
        e.at_.v6.sin6_family = AF_INET6;
        e.at_.v6.sin6_port = at_.v4.sin_port;
        e.at_.v6.sin6_addr.s6_addr[10] = e.at_.v6.sin6_addr.s6_addr[11] = 0xff;
        std::memcpy(e.at_.v6.sin6_addr.s6_addr + 12, &at_.v4.sin_addr, 4);
        return e;
    }

public:
    /// An empty endpoint, without an address.
    endpoint() noexcept { std::memset(&at_, 0, sizeof at_); }
    /// Makes an endpoint of an IPv4 or IPv6 address, and an empty one of any other.
    endpoint(const sockaddr *at, socklen_t n) noexcept : endpoint()
    {
        if (at == nullptr || !((at->sa_family == AF_INET && n >= sizeof at_.v4) || (at->sa_family == AF_INET6 && n >= sizeof at_.v6)))
            return;
        std::memcpy(&at_, at, at->sa_family == AF_INET ? sizeof at_.v4 : sizeof at_.v6);
        if (at_.any.sa_family == AF_INET)
            std::memset(at_.v4.sin_zero, 0, sizeof at_.v4.sin_zero); // no part of the address
        unmap();
    }
    /// Looks up a host, by name or address. Fails as gs_getaddrinfo.
    static result<endpoint> resolve(const std::string &host, std::uint16_t port, deadline until = deadline::forever())
    {
        addrinfo hints{}, *found = nullptr;
        hints.ai_socktype = SOCK_DGRAM;
        const int r = gs_getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found, until.native());
        if (r != 0)
            return detail::failed<endpoint>(r, "gs::endpoint::resolve");
        const endpoint e(found->ai_addr, found->ai_addrlen);
        ::freeaddrinfo(found);
        return e;
    }

    /// Whether the endpoint has an address.
    explicit operator bool() const noexcept { return at_.any.sa_family != AF_UNSPEC; }
    std::uint16_t port() const noexcept
    {
        return ntohs(at_.any.sa_family == AF_INET6 ? at_.v6.sin6_port : at_.v4.sin_port);
    }
    /// The address in numbers, such as "127.0.0.1" or "::1"; "" for an empty endpoint.
    std::string host() const
    {
        char text[INET6_ADDRSTRLEN] = "";
        if (at_.any.sa_family == AF_INET)
            (void)::inet_ntop(AF_INET, &at_.v4.sin_addr, text, sizeof text);
        else if (at_.any.sa_family == AF_INET6)
            (void)::inet_ntop(AF_INET6, &at_.v6.sin6_addr, text, sizeof text);
        return text;
    }
    /// The address for functions of the system.
    const sockaddr *data() const noexcept { return &at_.any; }
    socklen_t size() const noexcept
    {
        return static_cast<socklen_t>(at_.any.sa_family == AF_INET6 ? sizeof at_.v6
                                      : at_.any.sa_family == AF_INET ? sizeof at_.v4
                                                                     : 0);
    }
    friend bool operator==(const endpoint &a, const endpoint &b) noexcept
    {
        return a.size() == b.size() && std::memcmp(&a.at_, &b.at_, a.size()) == 0;
    }
    friend bool operator!=(const endpoint &a, const endpoint &b) noexcept { return !(a == b); }
};

/// A UDP socket. Moved and not copied; closed when it is destroyed. Any number of goroutines may send and receive.
/// net.UDPConn.
class udp_socket {
    detail::file file_;
    bool v6_ = false;
    gs_deadline read_by_ = GS_FOREVER, write_by_ = GS_FOREVER;

public:
    /// A received datagram's size and sender.
    struct datagram {
        std::size_t size = 0;   ///< of the part in the buffer
        bool truncated = false; ///< the datagram was larger than the buffer: the rest is lost
        endpoint from;
    };

    udp_socket() noexcept = default;
    /// Takes over a socket.
    explicit udp_socket(int fd) noexcept : file_(fd)
    {
        sockaddr_storage own{};
        socklen_t n = sizeof own;
        v6_ = ::getsockname(fd, reinterpret_cast<sockaddr *>(&own), &n) == 0 && own.ss_family == AF_INET6;
    }

    /// Makes a socket that receives on a port of the host; host "": on all addresses of the machine; port 0: on a port
    /// that the system chooses. Fails as gs_udp_bind.
    static result<udp_socket> bind(const std::string &host, std::uint16_t port)
    {
        return detail::opened<udp_socket>(gs_udp_bind(host.c_str(), port), "gs::udp_socket::bind");
    }
    /// Makes a socket that sends to a port of the host, and receives only from there. Fails as gs_udp_connect.
    static result<udp_socket> connect(const std::string &host, std::uint16_t port, deadline until = deadline::forever())
    {
        const int fd = gs_udp_connect(host.c_str(), port, until.native());
        return detail::opened<udp_socket>(fd, "gs::udp_socket::connect");
    }

    bool is_open() const noexcept { return file_.fd() >= 0; }
    int native_handle() const noexcept { return file_.fd(); }
    /// Returns the descriptor, which the caller now owns.
    int release() noexcept { return file_.release(); }
    result<std::uint16_t> local_port() const
    {
        return detail::port_result(detail::port_of(file_.fd(), false), "gs::udp_socket::local_port");
    }
    result<std::uint16_t> remote_port() const
    {
        return detail::port_result(detail::port_of(file_.fd(), true), "gs::udp_socket::remote_port");
    }

    /// Sets until when receives, or sends, may wait: as for gs::stream_socket.
    void set_read_deadline(deadline until) noexcept { read_by_ = until.native(); }
    void set_write_deadline(deadline until) noexcept { write_by_ = until.native(); }
    void set_deadline(deadline until) noexcept { read_by_ = write_by_ = until.native(); }

    /// Sends one datagram. Fails with std::errc::message_size if it is too large.
    result<void> send_to(const void *p, std::size_t n, const endpoint &to) const
    {
        const endpoint at = v6_ ? to.mapped() : to;
        const ssize_t r = at ? gs_sendto(file_.fd(), p, n, 0, at.data(), at.size(), write_by_) : -EDESTADDRREQ;
        return detail::done(static_cast<long>(r), "gs::udp_socket::send_to");
    }
    result<void> send_to(std::string_view text, const endpoint &to) const { return send_to(text.data(), text.size(), to); }
    /// Sends one datagram on a socket of connect(). std::errc::connection_refused: no socket has that port. Usually the
    /// next call reports it.
    result<void> send(const void *p, std::size_t n) const
    {
        return detail::done(static_cast<long>(gs_send(file_.fd(), p, n, 0, write_by_)), "gs::udp_socket::send");
    }
    result<void> send(std::string_view text) const { return send(text.data(), text.size()); }
    /// Receives the next datagram, at most n bytes of it, and its sender's address.
    result<datagram> receive_from(void *p, std::size_t n) const
    {
        sockaddr_storage from{};
        std::uint32_t len = sizeof from;
        const ssize_t r = gs_recvfrom(file_.fd(), p, n, MSG_TRUNC, reinterpret_cast<sockaddr *>(&from), &len, read_by_);
        if (r < 0)
            return detail::failed<datagram>(static_cast<long>(r), "gs::udp_socket::receive_from");
        datagram d;
        d.truncated = static_cast<std::size_t>(r) > n;
        d.size = d.truncated ? n : static_cast<std::size_t>(r);
        d.from = endpoint(reinterpret_cast<sockaddr *>(&from), len);
        return d;
    }
    /// Receives the next datagram, at most n bytes of it. Returns the number of bytes.
    result<std::size_t> receive(void *p, std::size_t n) const
    {
        return detail::bytes_result(gs_recv(file_.fd(), p, n, 0, read_by_), "gs::udp_socket::receive");
    }
    /// Closes the socket. No other goroutine may be in a call on it: first give such calls a deadline, or cancel them.
    result<void> close() { return detail::done(file_.close(), "gs::udp_socket::close"); }
};

GS_HPP_END_NAMESPACE
