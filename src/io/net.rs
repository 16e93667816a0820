//! TCP by the name of a host and a port. net.Dial, net.Listen.

use super::ops;
use super::resolve::resolve;
use crate::os::file::Kind;
use crate::os::heap;
use crate::os::socket::{self, SocketAddress};
use crate::sched::park::FOREVER;
use core::ffi::CStr;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ptr;

/// A socket that listens on the port, on all addresses of the host or of the
/// machine. A backlog that is not above 0: as long as the system lets it be.
pub fn tcp_listen(host: Option<&CStr>, port: u16, backlog: i32) -> i32 {
    let named = match host {
        Some(host) if !host.is_empty() => match addresses(host, port, FOREVER) {
            Ok(addresses) => Some(addresses),
            Err(e) => return e,
        },
        _ => None,
    };
    // One socket for both families, where there are both.
    let all = [
        SocketAddress::new((Ipv6Addr::UNSPECIFIED, port).into()),
        SocketAddress::new((Ipv4Addr::UNSPECIFIED, port).into()),
    ];
    let addresses = named.as_deref().unwrap_or(&all);
    let backlog = if backlog > 0 { backlog } else { libc::SOMAXCONN };
    first_that(addresses, |fd, address| {
        let options = [
            (libc::SOL_SOCKET, libc::SO_REUSEADDR, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0),
            // Sockets that are accepted inherit it.
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

/// A socket that is connected with the port of the host: of its addresses the
/// first that answers.
pub fn tcp_connect(host: &CStr, port: u16, deadline: i64) -> i32 {
    let addresses = match addresses(host, port, deadline) {
        Ok(addresses) => addresses,
        Err(e) => return e,
    };
    first_that(&addresses, |fd, address| {
        socket::set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        let (at, len) = address.as_raw();
        // SAFETY: the address is readable for its length.
        unsafe { ops::connect(fd, at, len, deadline) as i32 }
    })
}

/// A socket for the first address with which `f` gives 0; else the first error.
fn first_that(addresses: &[SocketAddress], f: impl Fn(i32, &SocketAddress) -> i32) -> i32 {
    let mut first_error = -libc::EADDRNOTAVAIL;
    for (i, address) in addresses.iter().enumerate() {
        let e = match socket::tcp(address.family()) {
            Ok(fd) => {
                ops::made(fd, Kind::Socket);
                match f(fd, address) {
                    0 => return fd,
                    e => {
                        ops::close(fd);
                        e
                    }
                }
            }
            Err(e) => e,
        };
        if i == 0 {
            first_error = e;
        }
        // No other address would do better.
        if [-libc::ETIMEDOUT, -libc::ECANCELED, -libc::EAGAIN, -libc::EMFILE].contains(&e) {
            return e;
        }
    }
    first_error
}

/// What a host's name stands for, or the address that it is.
fn addresses(host: &CStr, port: u16, deadline: i64) -> Result<Vec<SocketAddress>, i32> {
    if super::wait::is_past(deadline) {
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
    // SAFETY: a C string and hints; what comes back is freed.
    unsafe {
        let mut hints: socket::Info = core::mem::zeroed();
        hints.ai_socktype = libc::SOCK_STREAM;
        hints.ai_flags = libc::AI_ADDRCONFIG;
        let answer = resolve(host.as_ptr(), ptr::null(), &raw const hints, deadline);
        if answer.code != 0 {
            return Err(errno_of(answer.code, answer.error));
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
        socket::free_list(answer.list);
        if has_room { Ok(all) } else { Err(-libc::ENOMEM) }
    }
}

/// A host that isn't known is `-ENOENT`.
fn errno_of(code: i32, error: i32) -> i32 {
    match code {
        libc::EAI_SYSTEM if error != 0 => error,
        libc::EAI_MEMORY => -libc::ENOMEM,
        // The name server doesn't answer.
        libc::EAI_AGAIN => -libc::EHOSTUNREACH,
        _ => -libc::ENOENT,
    }
}
