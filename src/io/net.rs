//! TCP and UDP by the name of a host and a port, and Unix sockets by a path. Go's `net.Dial`,
//! `net.Listen` and `net.ListenPacket`.

use super::ops;
use super::resolve::resolve;
use super::wait::is_past;
use crate::os::file::FileKind;
use crate::os::socket::{self, SocketAddress};
use crate::os::{heap, time};
use crate::sched::run::park::{FOREVER, NOWAIT};
use core::ffi::CStr;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ptr;

/// A socket that listens on the port, on an address of the host; without a host, on all addresses
/// of the machine. A backlog of 0 or less: as long as the system allows.
pub fn tcp_listen(host: Option<&CStr>, port: u16, backlog: i32) -> i32 {
    let backlog = if backlog > 0 { backlog } else { libc::SOMAXCONN };
    first_to_bind(host, port, libc::SOCK_STREAM, |fd, address| {
        let options = [
            (libc::SOL_SOCKET, libc::SO_REUSEADDR, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0),
            // Accepted sockets inherit this option.
            (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
        ];
        for (level, option, value) in options {
            if level != libc::IPPROTO_IPV6 || address.is_v6() {
                socket::set_option(fd, level, option, value);
            }
        }
        socket::listen_on(fd, address, backlog)
    })
}

/// A socket that is connected to the port of the host, at the first of its addresses that answers.
pub fn tcp_connect(host: &CStr, port: u16, deadline: i64) -> i32 {
    let addresses = match addresses(host, port, deadline) {
        Ok(addresses) => addresses,
        Err(e) => return e,
    };
    first_that(&addresses, libc::SOCK_STREAM, deadline, |fd, address, left| {
        socket::set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        match connect(fd, address, share_of(deadline, left)) {
            // The kernel has given the socket the port that it connects to. So no socket listens
            // there.
            0 if socket::is_connected_to_itself(fd, port) => -libc::ECONNREFUSED,
            result => result,
        }
    })
}

/// Least time for an address to answer, in ns.
const LEAST_SHARE: i64 = 2_000_000_000;

/// The time at which to give up the first of `left` addresses. Each has a share of the time until
/// the deadline; otherwise an address that doesn't answer would leave no time for the others. Go's
/// `partialDeadline`.
fn share_of(deadline: i64, left: usize) -> i64 {
    if deadline == FOREVER || deadline == NOWAIT {
        return deadline;
    }
    let now = time::now();
    let share = (deadline - now).max(0) / left as i64;
    deadline.min(now.saturating_add(share.max(LEAST_SHARE)))
}

/// The first socket that `bind` makes for the port of an address of the host; `None` or "": of the
/// machine.
fn first_to_bind(
    host: Option<&CStr>,
    port: u16,
    kind: i32,
    bind: impl Fn(i32, &SocketAddress) -> i32,
) -> i32 {
    let bind = |fd: i32, address: &SocketAddress, _: usize| bind(fd, address);
    match host {
        Some(host) if !host.is_empty() => match addresses(host, port, FOREVER) {
            Ok(named) => first_that(&named, kind, FOREVER, bind),
            Err(e) => e,
        },
        _ => first_that(&all_addresses(port), kind, FOREVER, bind),
    }
}

/// Wildcard addresses, to be tried in turn: IPv6, whose socket serves both families, then IPv4.
fn all_addresses(port: u16) -> [SocketAddress; 2] {
    [
        SocketAddress::new((Ipv6Addr::UNSPECIFIED, port).into()),
        SocketAddress::new((Ipv4Addr::UNSPECIFIED, port).into()),
    ]
}

/// A UDP socket that receives at the port, on an address of the host; without a host, on all
/// addresses of the machine.
pub fn udp_bind(host: Option<&CStr>, port: u16) -> i32 {
    first_to_bind(host, port, libc::SOCK_DGRAM, |fd, address| {
        if address.is_v6() {
            socket::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0);
        }
        socket::bind(fd, address)
    })
}

/// A UDP socket that sends to the port of the host, and receives only from there.
pub fn udp_connect(host: &CStr, port: u16, deadline: i64) -> i32 {
    let addresses = match addresses(host, port, deadline) {
        Ok(addresses) => addresses,
        Err(e) => return e,
    };
    first_that(&addresses, libc::SOCK_DGRAM, deadline, |fd, address, _| {
        connect(fd, address, deadline)
    })
}

/// A Unix stream socket that listens at a path.
pub fn unix_listen(path: &CStr, backlog: i32) -> i32 {
    let backlog = if backlog > 0 { backlog } else { libc::SOMAXCONN };
    unix(path, |fd, address| socket::listen_on(fd, address, backlog))
}

/// A Unix socket that is connected to the path.
pub fn unix_connect(path: &CStr, deadline: i64) -> i32 {
    if is_past(deadline) {
        return -libc::ETIMEDOUT;
    }
    unix(path, |fd, address| connect(fd, address, deadline))
}

fn unix(path: &CStr, f: impl Fn(i32, &SocketAddress) -> i32) -> i32 {
    match SocketAddress::unix(path) {
        Ok(address) => {
            first_that(&[address], libc::SOCK_STREAM, FOREVER, |fd, address, _| f(fd, address))
        }
        Err(e) => e,
    }
}

/// Two Unix sockets that are connected to each other.
pub fn unix_pair() -> Result<[i32; 2], i32> {
    let fds = socket::socket_pair()?;
    fds.into_iter().for_each(|fd| ops::made(fd, FileKind::Socket));
    Ok(fds)
}

/// socket(2). Fails with a negative errno value.
pub fn new_socket(family: i32, kind: i32, protocol: i32) -> Result<i32, i32> {
    let fd = socket::new(family, kind, protocol)?;
    ops::made(fd, FileKind::Socket);
    Ok(fd)
}

fn connect(fd: i32, address: &SocketAddress, deadline: i64) -> i32 {
    let (at, len) = address.as_raw();
    // SAFETY: the address is readable for its length.
    unsafe { ops::connect(fd, at, len, deadline) as i32 }
}

/// A socket for the first address with which `f`, which waits until the deadline at most, gives 0;
/// else the first error. `f` also gets the number of addresses that are left, this one included.
fn first_that(
    addresses: &[SocketAddress],
    kind: i32,
    deadline: i64,
    f: impl Fn(i32, &SocketAddress, usize) -> i32,
) -> i32 {
    // Errors after which no other address is tried. EADDRINUSE is one: if the port is taken for
    // IPv6, a socket for IPv4 alone is not wanted.
    const FINAL: [i32; 4] = [-libc::ECANCELED, -libc::EAGAIN, -libc::EMFILE, -libc::EADDRINUSE];
    let mut first_error = -libc::EADDRNOTAVAIL;
    for (i, address) in addresses.iter().enumerate() {
        let e = match new_socket(address.family(), kind, 0) {
            Ok(fd) => match f(fd, address, addresses.len() - i) {
                0 => return fd,
                e => {
                    ops::close(fd);
                    e
                }
            },
            Err(e) => e,
        };
        if i == 0 {
            first_error = e;
        }
        // ETIMEDOUT before the deadline comes from the network, and another address may answer.
        let is_too_late = e == -libc::ETIMEDOUT && is_past(deadline);
        if is_too_late || FINAL.contains(&e) {
            return e;
        }
    }
    first_error
}

/// The addresses of a host's name, or the address that the name is. Fails as `gs_getaddrinfo` does.
fn addresses(host: &CStr, port: u16, deadline: i64) -> Result<Vec<SocketAddress>, i32> {
    if is_past(deadline) {
        return Err(-libc::ETIMEDOUT);
    }
    let mut all = Vec::new();
    if let Some(ip) = host.to_str().ok().and_then(|s| s.parse::<IpAddr>().ok()) {
        if !heap::reserve(&mut all, 1) {
            return Err(-libc::ENOMEM);
        }
        all.push(SocketAddress::new(SocketAddr::new(ip, port)));
        return Ok(all);
    }
    // SAFETY: a C string and hints; the list lives as long as the answer.
    unsafe {
        let mut hints: socket::Info = core::mem::zeroed();
        hints.ai_socktype = libc::SOCK_STREAM;
        hints.ai_flags = libc::AI_ADDRCONFIG;
        let answer = resolve(host.as_ptr(), ptr::null(), &raw const hints, deadline);
        match answer.result() {
            0 => {}
            e => return Err(e),
        }
        let mut at: *const socket::Info = answer.list;
        let mut has_room = true;
        while let Some(info) = at.as_ref() {
            has_room &= heap::reserve(&mut all, 1);
            if has_room {
                all.extend(SocketAddress::from_raw(info.ai_addr, port));
            }
            at = info.ai_next;
        }
        if has_room { Ok(all) } else { Err(-libc::ENOMEM) }
    }
}
