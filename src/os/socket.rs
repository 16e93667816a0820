//! System calls on sockets. Each function returns what the system call returns, or a negative errno
//! value; none of them waits, none raises SIGPIPE.

use super::file::Buffer;
use super::stand_in::{self, or};
use core::ffi::{CStr, c_char, c_void};
use core::net::SocketAddr;
use core::ptr;

pub type Address = libc::sockaddr;
pub type Message = libc::msghdr;

/// A message that consists only of buffers.
fn message(buffers: &[Buffer]) -> Message {
    // SAFETY: all bytes zero are an empty message.
    let mut m: Message = unsafe { core::mem::zeroed() };
    m.msg_iov = buffers.as_ptr().cast_mut();
    m.msg_iovlen = buffers.len() as _;
    m
}

/// recv(2) into several buffers.
///
/// # Safety
/// The buffers are writable.
pub unsafe fn recv(fd: i32, buffers: &[Buffer], flags: i32) -> isize {
    let flags = flags | libc::MSG_DONTWAIT;
    if let [b] = buffers {
        // SAFETY: the buffer is writable.
        return unsafe {
            or(libc::recv(fd, b.iov_base, b.iov_len, flags), |other| {
                (other.receive)(fd, buffers, flags, ptr::null_mut(), ptr::null_mut())
            })
        };
    }
    // SAFETY: the buffers are writable.
    unsafe {
        or(libc::recvmsg(fd, &mut message(buffers), flags), |other| {
            (other.receive)(fd, buffers, flags, ptr::null_mut(), ptr::null_mut())
        })
    }
}

/// send(2) from several buffers.
///
/// # Safety
/// The buffers are readable.
pub unsafe fn send(fd: i32, buffers: &[Buffer], flags: i32) -> isize {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if let [b] = buffers {
        // SAFETY: the buffer is readable.
        return unsafe {
            or(libc::send(fd, b.iov_base, b.iov_len, flags), |other| {
                (other.send)(fd, buffers, flags, ptr::null(), 0)
            })
        };
    }
    // SAFETY: the buffers are readable.
    unsafe {
        or(libc::sendmsg(fd, &message(buffers), flags), |other| {
            (other.send)(fd, buffers, flags, ptr::null(), 0)
        })
    }
}

/// recvfrom(2).
///
/// # Safety
/// The buffer is writable; the address is null, or writable for `*len`.
pub unsafe fn recv_from(
    fd: i32,
    b: Buffer,
    flags: i32,
    from: *mut Address,
    len: *mut u32,
) -> isize {
    let flags = flags | libc::MSG_DONTWAIT;
    // SAFETY: the buffer is writable, and so is the address unless it is null.
    unsafe {
        or(libc::recvfrom(fd, b.iov_base, b.iov_len, flags, from, len), |other| {
            (other.receive)(fd, &[b], flags, from, len)
        })
    }
}

/// sendto(2).
///
/// # Safety
/// The buffer is readable; the address is null, or readable for `len`.
pub unsafe fn send_to(fd: i32, b: Buffer, flags: i32, to: *const Address, len: u32) -> isize {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the buffer is readable, and so is the address unless it is null.
    unsafe {
        or(libc::sendto(fd, b.iov_base, b.iov_len, flags, to, len), |other| {
            (other.send)(fd, &[b], flags, to, len)
        })
    }
}

/// recvmsg(2).
///
/// # Safety
/// The message is one to receive into.
pub unsafe fn recv_message(fd: i32, message: *mut Message, flags: i32) -> isize {
    // SAFETY: a message to receive into, as the caller says.
    unsafe {
        or(libc::recvmsg(fd, message, flags | libc::MSG_DONTWAIT), |other| {
            let (name, len) = ((*message).msg_name.cast(), &raw mut (*message).msg_namelen);
            let n = (other.receive)(fd, stand_in::buffers_of(message), flags, name, len)?;
            ((*message).msg_controllen, (*message).msg_flags) = (0, 0);
            Some(n)
        })
    }
}

/// sendmsg(2).
///
/// # Safety
/// The message is one to send.
pub unsafe fn send_message(fd: i32, message: *const Message, flags: i32) -> isize {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: a message to send, as the caller says.
    unsafe {
        or(libc::sendmsg(fd, message, flags), |other| {
            let (name, len) = ((*message).msg_name.cast_const().cast(), (*message).msg_namelen);
            (other.send)(fd, stand_in::buffers_of(message), flags, name, len)
        })
    }
}

/// accept4(2): the new socket is non-blocking and close-on-exec. Waits if the listening socket
/// blocks.
///
/// # Safety
/// The address is null, or writable for `*len`.
pub unsafe fn accept(fd: i32, from: *mut Address, len: *mut u32) -> isize {
    // SAFETY: the address is null, or writable for `*len`.
    unsafe {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        or(libc::accept4(fd, from, len, flags) as isize, |other| (other.accept)(fd, from, len))
    }
}

/// connect(2). Waits if the socket blocks.
///
/// # Safety
/// The address is readable for `len`.
pub unsafe fn connect(fd: i32, to: *const Address, len: u32) -> isize {
    // SAFETY: the address is readable for `len`.
    unsafe { or(libc::connect(fd, to, len) as isize, |other| (other.connect)(fd, to, len)) }
}

/// Ends a connection or an attempt to connect, and clears the error that this leaves.
pub fn disconnect(fd: i32) {
    // SAFETY: all bytes zero are an address of no family.
    let nowhere: Address = unsafe { core::mem::zeroed() };
    // SAFETY: the address is readable.
    unsafe { libc::connect(fd, &raw const nowhere, size_of::<Address>() as u32) };
    take_error(fd);
}

/// Returns and clears the socket's error: 0 or a negative errno value.
pub fn take_error(fd: i32) -> i32 {
    let (mut error, mut len) = (0i32, 4u32);
    // SAFETY: four writable bytes.
    match unsafe { option(fd, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &mut len) }
    {
        0 => -error,
        e => e,
    }
}

/// Whether the socket is a TCP socket of the kernel. One of a bubble's network isn't: it may read less
/// than there is.
pub fn is_tcp(fd: i32) -> bool {
    let (mut protocol, mut len) = (0i32, 4u32);
    let at = (&raw mut protocol).cast();
    // SAFETY: four writable bytes.
    let r = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL, at, &mut len) };
    r == 0 && protocol == libc::IPPROTO_TCP
}

/// Whether this socket is both ends of a TCP connection to this port. TCP allows that: two ends may
/// connect to each other at the same time without either listening.
pub fn is_connected_to_itself(fd: i32, port: u16) -> bool {
    let own = address_by(fd, libc::getsockname).filter(|own| own.port() == port);
    own.is_some() && own == address_by(fd, libc::getpeername)
}

/// The socket's IP address and port according to `ask`. `None`: `ask` gives none.
fn address_by(
    fd: i32,
    ask: unsafe extern "C" fn(i32, *mut Address, *mut u32) -> i32,
) -> Option<SocketAddr> {
    // SAFETY: all bytes zero are valid, the address is writable for its length, and the kernel
    // fills in as much of it as its family says.
    unsafe {
        let mut storage: libc::sockaddr_storage = core::mem::zeroed();
        let (at, mut len) = (&raw mut storage, size_of::<libc::sockaddr_storage>() as u32);
        if ask(fd, at.cast(), &mut len) != 0 {
            return None;
        }
        ip_of(at.cast())
    }
}

/// The IP address and port of an address. `None`: it is of another family.
///
/// # Safety
/// The address is as long as its family says.
pub unsafe fn ip_of(at: *const Address) -> Option<SocketAddr> {
    // SAFETY: as the caller says.
    unsafe {
        match i32::from((*at).sa_family) {
            libc::AF_INET => {
                let a = &*at.cast::<libc::sockaddr_in>();
                let ip = core::net::Ipv4Addr::from(a.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(ip.into(), u16::from_be(a.sin_port)))
            }
            libc::AF_INET6 => {
                let a = &*at.cast::<libc::sockaddr_in6>();
                let ip = core::net::Ipv6Addr::from(a.sin6_addr.s6_addr);
                Some(SocketAddr::new(ip.into(), u16::from_be(a.sin6_port)))
            }
            _ => None,
        }
    }
}

/// An address of TCP or UDP, or of a socket in the file system, as the kernel wants it.
pub struct SocketAddress {
    storage: libc::sockaddr_storage,
    len: u32,
}

impl SocketAddress {
    pub fn new(address: SocketAddr) -> SocketAddress {
        // SAFETY: all bytes zero are valid, and each kind of address fits.
        unsafe {
            let mut storage: libc::sockaddr_storage = core::mem::zeroed();
            let at = &raw mut storage;
            let len = match address {
                SocketAddr::V4(a) => {
                    let v4 = &mut *at.cast::<libc::sockaddr_in>();
                    v4.sin_family = libc::AF_INET as u16;
                    v4.sin_port = a.port().to_be();
                    v4.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
                    size_of::<libc::sockaddr_in>()
                }
                SocketAddr::V6(a) => {
                    let v6 = &mut *at.cast::<libc::sockaddr_in6>();
                    v6.sin6_family = libc::AF_INET6 as u16;
                    v6.sin6_port = a.port().to_be();
                    v6.sin6_addr.s6_addr = a.ip().octets();
                    v6.sin6_scope_id = a.scope_id();
                    size_of::<libc::sockaddr_in6>()
                }
            };
            SocketAddress { storage, len: len as u32 }
        }
    }

    /// An address of getaddrinfo's, with another port. `None`: it is no IP address.
    ///
    /// # Safety
    /// The address is as long as its family says.
    pub unsafe fn from_raw(address: *const Address, port: u16) -> Option<SocketAddress> {
        // SAFETY: the address is as long as its family says.
        unsafe {
            match i32::from((*address).sa_family) {
                libc::AF_INET => {
                    let ip = (*address.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                    let ip = core::net::Ipv4Addr::from(ip.to_ne_bytes());
                    Some(SocketAddress::new((ip, port).into()))
                }
                libc::AF_INET6 => {
                    let a = &*address.cast::<libc::sockaddr_in6>();
                    let ip = core::net::Ipv6Addr::from(a.sin6_addr.s6_addr);
                    let a = core::net::SocketAddrV6::new(ip, port, 0, a.sin6_scope_id);
                    Some(SocketAddress::new(a.into()))
                }
                _ => None,
            }
        }
    }

    /// A path in the file system or, after a `@`, a name in Linux's abstract namespace, which is in
    /// no file system. `-EINVAL`: no name; `-ENAMETOOLONG`.
    pub fn unix(path: &CStr) -> Result<SocketAddress, i32> {
        let name = path.to_bytes();
        // SAFETY: all bytes zero are valid, and the address fits.
        unsafe {
            let mut storage: libc::sockaddr_storage = core::mem::zeroed();
            let un = &mut *(&raw mut storage).cast::<libc::sockaddr_un>();
            un.sun_family = libc::AF_UNIX as u16;
            // A path ends with a NUL; in an abstract name every byte counts.
            let (abstract_name, room) = (name.first() == Some(&b'@'), un.sun_path.len());
            let len = name.len() + usize::from(!abstract_name);
            if name.is_empty() || name == b"@" {
                return Err(-libc::EINVAL);
            }
            if len > room {
                return Err(-libc::ENAMETOOLONG);
            }
            for (to, &from) in un.sun_path.iter_mut().zip(name) {
                *to = from as _;
            }
            if abstract_name {
                un.sun_path[0] = 0;
            }
            let len = core::mem::offset_of!(libc::sockaddr_un, sun_path) + len;
            Ok(SocketAddress { storage, len: len as u32 })
        }
    }

    pub fn family(&self) -> i32 {
        i32::from(self.storage.ss_family)
    }

    pub fn is_v6(&self) -> bool {
        self.family() == libc::AF_INET6
    }

    pub fn as_raw(&self) -> (*const Address, u32) {
        ((&raw const self.storage).cast(), self.len)
    }
}

/// socket(2), non-blocking and close-on-exec. Protocol 0: the family's usual one.
pub fn new(family: i32, kind: i32, protocol: i32) -> Result<i32, i32> {
    if let Some(fd) = stand_in::get().and_then(|other| (other.socket)(family, kind)) {
        return if fd < 0 { Err(fd) } else { Ok(fd) };
    }
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    match unsafe { libc::socket(family, kind, protocol) } {
        -1 => Err(-super::errno()),
        fd => Ok(fd),
    }
}

/// Two Unix stream sockets that are connected to each other.
pub fn socket_pair() -> Result<[i32; 2], i32> {
    if let Some(fds) = stand_in::get().and_then(|other| (other.pair)()) {
        return if fds[0] < 0 { Err(fds[0]) } else { Ok(fds) };
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let mut fds = [0; 2];
    // SAFETY: room for two numbers.
    match unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) } {
        0 => Ok(fds),
        _ => Err(-super::errno()),
    }
}

/// Sets an option that is a number.
pub fn set_option(fd: i32, level: i32, option: i32, value: i32) -> i32 {
    // SAFETY: four readable bytes.
    unsafe { set_option_to(fd, level, option, (&raw const value).cast(), 4) }
}

/// setsockopt(2).
///
/// # Safety
/// The value is null, or readable for `len`.
pub unsafe fn set_option_to(
    fd: i32,
    level: i32,
    option: i32,
    value: *const c_void,
    len: u32,
) -> i32 {
    // SAFETY: null, or readable for `len`.
    unsafe {
        or(libc::setsockopt(fd, level, option, value, len) as isize, |other| {
            (other.set_option)(fd, level, option, bytes(value.cast(), len))
        }) as i32
    }
}

/// # Safety
/// The bytes are null, or readable for `len`.
unsafe fn bytes<'a>(at: *const u8, len: u32) -> &'a [u8] {
    // SAFETY: as the caller says.
    if at.is_null() { &[] } else { unsafe { core::slice::from_raw_parts(at, len as usize) } }
}

/// getsockopt(2).
///
/// # Safety
/// The value is null, or writable for `*len`.
pub unsafe fn option(fd: i32, level: i32, option: i32, value: *mut c_void, len: *mut u32) -> i32 {
    // SAFETY: null, or writable for `*len`.
    unsafe {
        or(libc::getsockopt(fd, level, option, value, len) as isize, |other| {
            Some(match (other.option)(fd, level, option)? {
                Err(e) => e as isize,
                Ok(_) if value.is_null() || len.is_null() => -libc::EFAULT as isize,
                Ok(bytes) => {
                    let n = bytes.len().min(*len as usize);
                    value.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), n);
                    *len = n as u32;
                    0
                }
            })
        }) as i32
    }
}

/// getsockname(2); getpeername(2) if `is_peer`.
///
/// # Safety
/// The address is writable for `*len`.
pub unsafe fn name(fd: i32, is_peer: bool, at: *mut Address, len: *mut u32) -> i32 {
    let ask = if is_peer { libc::getpeername } else { libc::getsockname };
    // SAFETY: writable for `*len`.
    unsafe { or(ask(fd, at, len) as isize, |other| (other.name)(fd, is_peer, at, len)) as i32 }
}

/// shutdown(2).
pub fn shut_down(fd: i32, how: i32) -> i32 {
    // SAFETY: no pointers.
    unsafe { or(libc::shutdown(fd, how) as isize, |other| (other.shut_down)(fd, how)) as i32 }
}

/// Lets only the owner connect to the Unix socket's path, which bind(2) makes.
pub fn keep_to_owner(fd: i32) {
    // SAFETY: no pointers.
    unsafe { libc::fchmod(fd, 0o600) };
}

/// The user at the other end of a Unix socket, as the kernel knows it. `None`: not known.
pub fn peer_user(fd: i32) -> Option<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as u32;
    let (at, len_at) = ((&raw mut peer).cast(), &raw mut len);
    // SAFETY: the record is writable for `len` bytes.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, at, len_at) };
    (result == 0).then_some(peer.uid)
}

/// bind(2). 0 or a negative errno value.
pub fn bind(fd: i32, address: &SocketAddress) -> i32 {
    let (at, len) = address.as_raw();
    // SAFETY: the address is readable for its length.
    unsafe { bind_to(fd, at, len) }
}

/// bind(2).
///
/// # Safety
/// The address is readable for `len`.
pub unsafe fn bind_to(fd: i32, at: *const Address, len: u32) -> i32 {
    // SAFETY: readable for `len`.
    unsafe { or(libc::bind(fd, at, len) as isize, |other| (other.bind)(fd, at, len)) as i32 }
}

/// listen(2).
pub fn listen(fd: i32, backlog: i32) -> i32 {
    // SAFETY: no pointers.
    unsafe { or(libc::listen(fd, backlog) as isize, |other| (other.listen)(fd, backlog)) as i32 }
}

/// Binds and listens. 0 or a negative errno value.
pub fn listen_on(fd: i32, address: &SocketAddress, backlog: i32) -> i32 {
    match bind(fd, address) {
        0 => listen(fd, backlog),
        e => e,
    }
}

/// The list that getaddrinfo(3) gives.
pub type Info = libc::addrinfo;

/// getaddrinfo(3). 0 and the list, or an `EAI_` code and errno.
///
/// # Safety
/// Each pointer is null or what getaddrinfo wants.
pub unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    hints: *const Info,
) -> (i32, i32, *mut Info) {
    let mut list = ptr::null_mut();
    // SAFETY: null or what getaddrinfo wants; the list is writable.
    let code = unsafe { libc::getaddrinfo(node, service, hints, &mut list) };
    match code {
        0 => (0, 0, list),
        _ => (code, super::errno(), ptr::null_mut()),
    }
}

/// Frees a list.
///
/// # Safety
/// The list is getaddrinfo's or null, and is used no more.
pub unsafe fn free_list(list: *mut Info) {
    if !list.is_null() {
        // SAFETY: the list is getaddrinfo's and used no more.
        unsafe { libc::freeaddrinfo(list) };
    }
}
