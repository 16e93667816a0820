// socket.hpp: the common part of sockets of all kinds, gs::stream_socket and gs::socket_iostream.
#pragma once

#include "call.hpp"
#include "error.hpp"
#include "time.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <ostream>
#include <streambuf>
#include <string_view>
#include <system_error>
#include <utility>

GS_HPP_BEGIN_NAMESPACE

namespace detail {

/// A file descriptor that is closed once.
class file {
    int fd_ = -1;

public:
    file() noexcept = default;
    explicit file(int fd) noexcept : fd_(fd) {}
    file(file &&o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
    file &operator=(file &&o) noexcept
    {
        if (this != &o) {
            (void)close();
            fd_ = std::exchange(o.fd_, -1);
        }
        return *this;
    }
    ~file() { (void)close(); }
    int fd() const noexcept { return fd_; }
    int close() noexcept { return fd_ < 0 ? 0 : gs_close(std::exchange(fd_, -1)); }
    int release() noexcept { return std::exchange(fd_, -1); }
    int shutdown(int how) const noexcept { return ::shutdown(fd_, how) < 0 ? -errno : 0; }
};

/// The socket of fd, or its error. fd: the value of a function of gosched.h, a descriptor or a negative errno value.
template <class Socket>
inline result<Socket> opened(int fd, const char *where)
{
    if (fd < 0)
        return failed<Socket>(fd, where);
    return Socket(fd);
}

inline int port_of(int fd, bool peer) noexcept
{
    union {
        sockaddr any;
        sockaddr_in v4;
        sockaddr_in6 v6;
        sockaddr_storage room;
    } at{};
    socklen_t n = sizeof at;
    if ((peer ? ::getpeername(fd, &at.any, &n) : ::getsockname(fd, &at.any, &n)) < 0)
        return -errno;
    switch (at.any.sa_family) {
    case AF_INET:
        return ntohs(at.v4.sin_port);
    case AF_INET6:
        return ntohs(at.v6.sin6_port);
    default:
        return -EAFNOSUPPORT;
    }
}

inline result<std::uint16_t> port_result(int r, const char *where)
{
    if (r < 0)
        return failed<std::uint16_t>(r, where);
    return static_cast<std::uint16_t>(r);
}

inline result<std::size_t> bytes_result(ssize_t r, const char *where)
{
    if (__builtin_expect(r < 0, 0))
        return failed<std::size_t>(static_cast<long>(r), where);
    return static_cast<std::size_t>(r);
}

}  // namespace detail

/// A connection of any kind. Moved and not copied; closed when it is destroyed. One goroutine may read while another
/// writes.
class stream_socket {
    detail::file file_;
    gs_deadline read_by_ = GS_FOREVER, write_by_ = GS_FOREVER;
    friend class socket_streambuf;

    ssize_t read_raw(void *p, std::size_t n) const { return gs_read(file_.fd(), p, n, read_by_); }
    /// Writes n bytes. Returns 0 or the error, and counts in `written` the bytes written before it.
    int write_raw(const void *p, std::size_t n, std::size_t &written) const
    {
        for (written = 0; written < n;) {
            const ssize_t r = gs_write(file_.fd(), static_cast<const char *>(p) + written, n - written, write_by_);
            if (r < 0)
                return static_cast<int>(r);
            written += static_cast<std::size_t>(r);
        }
        return 0;
    }

public:
    stream_socket() noexcept = default;
    /// Takes over a connected socket.
    explicit stream_socket(int fd) noexcept : file_(fd) {}

    bool is_open() const noexcept { return file_.fd() >= 0; }
    int native_handle() const noexcept { return file_.fd(); }
    /// Returns the descriptor, which the caller now owns.
    int release() noexcept { return file_.release(); }

    /// Sets until when all reads, all writes, or both may wait. From then on they fail with std::errc::timed_out, as
    /// with Go's SetDeadline. To be called between reads or writes, by the goroutine that makes them.
    void set_read_deadline(deadline until) noexcept { read_by_ = until.native(); }
    void set_write_deadline(deadline until) noexcept { write_by_ = until.native(); }
    void set_deadline(deadline until) noexcept { read_by_ = write_by_ = until.native(); }

    /// Waits for data, and reads at most n bytes. 0: the other side has ended.
    result<std::size_t> read_some(void *p, std::size_t n) const
    {
        return detail::bytes_result(read_raw(p, n), "gs::stream_socket::read_some");
    }
    /// Reads n bytes, or fewer if the other side has ended.
    result<std::size_t> read(void *p, std::size_t n) const
    {
        std::size_t all = 0;
        while (all < n) {
            const ssize_t r = read_raw(static_cast<char *>(p) + all, n - all);
            if (r < 0)
                return detail::failed<std::size_t>(static_cast<long>(r), "gs::stream_socket::read");
            if (r == 0)
                break;
            all += static_cast<std::size_t>(r);
        }
        return all;
    }
    /// Waits until some bytes can be written, and writes at most n.
    result<std::size_t> write_some(const void *p, std::size_t n) const
    {
        return detail::bytes_result(gs_write(file_.fd(), p, n, write_by_), "gs::stream_socket::write_some");
    }
    /// Writes all n bytes. Fails with std::errc::broken_pipe if the other side no longer reads.
    result<void> write(const void *p, std::size_t n) const
    {
        std::size_t written = 0;
        return detail::done(write_raw(p, n, written), "gs::stream_socket::write");
    }
    result<void> write(std::string_view text) const { return write(text.data(), text.size()); }

    /// Tells the other side that no more data will come.
    result<void> shutdown_write() const
    {
        return detail::done(file_.shutdown(SHUT_WR), "gs::stream_socket::shutdown_write");
    }
    /// Ends both directions; a waiting read returns the end. Any goroutine may call this; the goroutine that owns the
    /// stream still closes it.
    result<void> shutdown() const { return detail::done(file_.shutdown(SHUT_RDWR), "gs::stream_socket::shutdown"); }
    /// Closes the stream. While other goroutines use it, call shutdown() instead.
    result<void> close() { return detail::done(file_.close(), "gs::stream_socket::close"); }
};

/// Buffers for both directions of a connection. Output is sent at a flush, when the buffer is full, and before a read
/// waits. An error looks like the end of the file to the iostream, as in Asio; error() has it.
class socket_streambuf : public std::streambuf {
    static constexpr std::size_t room = 8192;
    stream_socket *stream_;
    std::unique_ptr<char[]> in_, out_;
    std::error_code error_;

    bool write_out(const char *p, std::size_t n)
    {
        std::size_t written = 0;
        const int r = stream_->write_raw(p, n, written);
        if (r < 0)
            error_ = make_code(r);
        return r == 0;
    }
    bool flush_out()
    {
        const auto n = static_cast<std::size_t>(pptr() - pbase());
        if (n == 0)
            return true;
        setp(out_.get(), out_.get() + room); // even after an error: the output is not tried again
        return write_out(out_.get(), n);
    }
    bool allocate(std::unique_ptr<char[]> &b)
    {
        if (!b)
            b.reset(detail::make_bytes(room));
        if (!b)
            error_ = make_code(-ENOMEM);
        return b != nullptr;
    }

protected:
    int_type underflow() override
    {
        if (!allocate(in_) || !flush_out())
            return traits_type::eof();
        const ssize_t n = stream_->read_raw(in_.get(), room);
        if (n < 0)
            error_ = make_code(static_cast<long>(n));
        if (n <= 0)
            return traits_type::eof();
        setg(in_.get(), in_.get(), in_.get() + n);
        return traits_type::to_int_type(*gptr());
    }
    int_type overflow(int_type c) override
    {
        if (!allocate(out_))
            return traits_type::eof();
        if (pbase() == nullptr)
            setp(out_.get(), out_.get() + room);
        else if (!flush_out())
            return traits_type::eof();
        if (!traits_type::eq_int_type(c, traits_type::eof()))
            sputc(traits_type::to_char_type(c));
        return traits_type::not_eof(c);
    }
    std::streamsize xsputn(const char *p, std::streamsize n) override
    {
        if (n < static_cast<std::streamsize>(room))
            return std::streambuf::xsputn(p, n);
        return flush_out() && write_out(p, static_cast<std::size_t>(n)) ? n : 0;
    }
    int sync() override { return flush_out() ? 0 : -1; }

public:
    /// The stream stays the caller's, and must outlive this object.
    explicit socket_streambuf(stream_socket &stream) : stream_(&stream) {}
    /// Writes the rest of the output, if possible.
    ~socket_streambuf() override { (void)flush_out(); }
    /// The last error; none at an ordinary end.
    std::error_code error() const noexcept { return error_; }
};

namespace detail {
template <class Stream>
struct socket_parts {
    Stream stream;
    socket_streambuf buffer{stream};
    explicit socket_parts(Stream s) : stream(std::move(s)) {}
};
}  // namespace detail

/// A connection with <<, >> and std::getline. For one goroutine at a time.
template <class Stream>
class socket_iostream : private detail::socket_parts<Stream>, public std::iostream {
public:
    explicit socket_iostream(Stream s) : detail::socket_parts<Stream>(std::move(s)), std::iostream(nullptr)
    {
        rdbuf(&this->buffer);
    }
    /// The connection, for deadlines.
    Stream &socket() noexcept { return this->stream; }
    /// The last error, if the stream has eof() or bad().
    std::error_code error() const noexcept { return this->buffer.error(); }
};

GS_HPP_END_NAMESPACE
