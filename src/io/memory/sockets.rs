//! The sockets of the network in memory.

use crate::os::socket::{self, Address, SocketAddress};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

/// The number of a socket, which no other socket of the network has.
pub type Id = u64;

/// Where a socket is, or what it is connected to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Endpoint {
    /// IPv4 addresses are not mapped to IPv6.
    Ip(SocketAddr),
    /// A path, or a name in the abstract namespace with its zero; empty: no name.
    Unix(Vec<u8>),
}

impl Endpoint {
    /// The endpoint of an address of a system call. `-EINVAL`, `-EAFNOSUPPORT`.
    ///
    /// # Safety
    /// The address is readable for `len`.
    pub unsafe fn from_raw(at: *const Address, len: u32) -> Result<Endpoint, i32> {
        if at.is_null() || (len as usize) < size_of::<u16>() {
            return Err(-libc::EINVAL);
        }
        // SAFETY: the family is within `len`.
        let family = i32::from(unsafe { (*at).sa_family });
        let least = match family {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>() - size_of::<u32>(),
            libc::AF_UNIX => {
                let from = core::mem::offset_of!(libc::sockaddr_un, sun_path);
                let room = (len as usize).saturating_sub(from);
                // SAFETY: the rest of the address is readable.
                let name = unsafe { core::slice::from_raw_parts(at.cast::<u8>().add(from), room) };
                let is_path = name.first().is_some_and(|&b| b != 0);
                let end = name.iter().position(|&b| b == 0).filter(|_| is_path);
                return Ok(Endpoint::Unix(name[..end.unwrap_or(room)].to_vec()));
            }
            _ => return Err(-libc::EAFNOSUPPORT),
        };
        if (len as usize) < least {
            return Err(-libc::EINVAL);
        }
        // SAFETY: the address is as long as its family says.
        let ip = unsafe { socket::ip_of(at) }.ok_or(-libc::EINVAL)?;
        Ok(Endpoint::Ip(SocketAddr::new(ip.ip().to_canonical(), ip.port())))
    }

    /// Where a socket of this family is that is not bound.
    pub fn nowhere(family: i32) -> Endpoint {
        let ip: IpAddr = match family {
            libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
            libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
            _ => return Endpoint::Unix(Vec::new()),
        };
        Endpoint::Ip(SocketAddr::new(ip, 0))
    }

    /// What a client reaches by this endpoint: the wildcard address is the loopback address.
    pub fn reached(self) -> Endpoint {
        match self {
            Endpoint::Ip(at) if at.ip().is_unspecified() => {
                let ip: IpAddr = match at.ip() {
                    IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                    IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
                };
                Endpoint::Ip(SocketAddr::new(ip, at.port()))
            }
            other => other,
        }
    }

    /// Whether a socket of this family can be there.
    pub fn is_of(&self, family: i32) -> bool {
        match self {
            Endpoint::Ip(at) => {
                family == libc::AF_INET6 || (family == libc::AF_INET && at.is_ipv4())
            }
            Endpoint::Unix(_) => family == libc::AF_UNIX,
        }
    }

    /// Writes the endpoint as an address of this family, as accept(2) does.
    ///
    /// # Safety
    /// The address is null, or writable for `*len`.
    pub unsafe fn write(&self, family: i32, to: *mut Address, len: *mut u32) {
        if to.is_null() || len.is_null() {
            return;
        }
        let put = |from: *const u8, full: usize| {
            // SAFETY: the callers below give what is readable; writable for `*len`, as the caller of
            // `write` says.
            unsafe {
                to.cast::<u8>().copy_from_nonoverlapping(from, full.min(*len as usize));
                *len = full as u32;
            }
        };
        match self {
            Endpoint::Ip(at) => {
                let ip = match at.ip() {
                    IpAddr::V4(v4) if family == libc::AF_INET6 => match v4.is_unspecified() {
                        true => Ipv6Addr::UNSPECIFIED.into(),
                        false => v4.to_ipv6_mapped().into(),
                    },
                    ip => ip,
                };
                let address = SocketAddress::new(SocketAddr::new(ip, at.port()));
                let (from, full) = address.as_raw();
                put(from.cast(), full as usize);
            }
            Endpoint::Unix(name) => {
                let mut bytes = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
                bytes.extend(name);
                if name.first().is_some_and(|&b| b != 0) {
                    bytes.push(0);
                }
                put(bytes.as_ptr(), bytes.len());
            }
        }
    }

    /// Whether it is on this machine: nothing else is in the network.
    pub fn is_local(&self) -> bool {
        match self {
            Endpoint::Ip(at) => at.ip().is_loopback() || at.ip().is_unspecified(),
            Endpoint::Unix(_) => true,
        }
    }

    /// Whether what is sent to `to` reaches a socket that is bound here. `is_v6_only`: the socket has
    /// `IPV6_V6ONLY`.
    fn takes(&self, is_v6_only: bool, to: &Endpoint) -> bool {
        match (self, to) {
            (Endpoint::Ip(own), Endpoint::Ip(to)) if own.ip().is_unspecified() => {
                let is_any = own.is_ipv6() && !is_v6_only;
                own.port() == to.port() && (is_any || own.is_ipv6() == to.is_ipv6())
            }
            _ => self == to,
        }
    }
}

/// A socket's options that were set, by their levels and names.
pub type SocketOptions = BTreeMap<(i32, i32), Vec<u8>>;

/// Whether the option of `IPV6_V6ONLY` is on.
fn is_v6_only(options: &SocketOptions) -> bool {
    let value = options.get(&(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY));
    value.is_some_and(|value| value.iter().any(|&b| b != 0))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    New,
    Listening,
    Connecting,
    Connected,
}

pub struct Socket {
    pub family: i32,
    /// `SOCK_STREAM` or `SOCK_DGRAM`.
    pub kind: i32,
    pub state: State,
    pub local: Option<Endpoint>,
    pub remote: Option<Endpoint>,
    /// The data of its registration with the poller.
    pub watch: Option<u64>,
    /// What `SO_ERROR` gives.
    pub error: i32,
    pub options: SocketOptions,
    // A socket that listens.
    pub backlog: VecDeque<Id>,
    pub most_waiting: usize,
    // A stream.
    pub peer: Option<Id>,
    /// How long an answer to the attempt to connect takes, in ns.
    pub round_trip: i64,
    /// Whether connect(2) has told that the socket is connected.
    pub is_told: bool,
    pub inbox: VecDeque<u8>,
    /// The number of bytes that were sent and that the other side has not read yet.
    pub unread: usize,
    /// When what was sent here last arrives, in ns.
    pub last_arrival: i64,
    /// Nothing comes after the inbox: the other side has ended the stream, or it is shut down here.
    pub is_ended: bool,
    /// It is shut down for sending.
    pub sends_no_more: bool,
    pub is_reset: bool,
    /// Nothing comes through any more, in either direction.
    pub is_silent: bool,
    // For datagrams.
    pub datagrams: VecDeque<(Endpoint, Vec<u8>)>,
}

impl Socket {
    /// Whether what is sent to the endpoint reaches the socket.
    fn is_reached_by(&self, to: &Endpoint) -> bool {
        self.local.as_ref().is_some_and(|own| own.takes(is_v6_only(&self.options), to))
    }
}

pub struct Sockets {
    all: BTreeMap<Id, Socket>,
    by_fd: BTreeMap<i32, Id>,
    next_id: Id,
    next_port: u16,
}

/// The first port that a socket gets that isn't bound.
const FIRST_PORT: u16 = 32768;

impl Sockets {
    pub fn new() -> Sockets {
        Sockets { all: BTreeMap::new(), by_fd: BTreeMap::new(), next_id: 1, next_port: FIRST_PORT }
    }

    pub fn add(&mut self, family: i32, kind: i32) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        let socket = Socket {
            family,
            kind,
            state: State::New,
            local: None,
            remote: None,
            watch: None,
            error: 0,
            options: SocketOptions::new(),
            backlog: VecDeque::new(),
            most_waiting: 0,
            peer: None,
            round_trip: 0,
            is_told: false,
            inbox: VecDeque::new(),
            unread: 0,
            last_arrival: 0,
            is_ended: false,
            sends_no_more: false,
            is_reset: false,
            is_silent: false,
            datagrams: VecDeque::new(),
        };
        self.all.insert(id, socket);
        id
    }

    pub fn remove(&mut self, id: Id) -> Option<Socket> {
        self.all.remove(&id)
    }

    pub fn get(&self, id: Id) -> Option<&Socket> {
        self.all.get(&id)
    }

    pub fn get_mut(&mut self, id: Id) -> Option<&mut Socket> {
        self.all.get_mut(&id)
    }

    pub fn name(&mut self, fd: i32, id: Id) {
        self.by_fd.insert(fd, id);
    }

    pub fn forget(&mut self, fd: i32) -> Option<Id> {
        self.by_fd.remove(&fd)
    }

    pub fn id(&self, fd: i32) -> Option<Id> {
        self.by_fd.get(&fd).copied()
    }

    pub fn descriptors(&self) -> Vec<i32> {
        self.by_fd.keys().copied().collect()
    }

    /// The socket of this kind that gets what is sent to the endpoint.
    pub fn find(&self, kind: i32, to: &Endpoint) -> Option<Id> {
        let gets = |s: &Socket| {
            let is_open = kind == libc::SOCK_DGRAM || s.state == State::Listening;
            s.kind == kind && is_open && s.is_reached_by(to)
        };
        self.all.iter().find(|(_, socket)| gets(socket)).map(|(&id, _)| id)
    }

    /// Whether a socket of this kind is bound so that it and a socket at this endpoint would get the
    /// same. `is_v6_only`: the option of the latter.
    fn is_taken(&self, kind: i32, at: &Endpoint, is_v6_only: bool) -> bool {
        self.all.values().any(|s| {
            let holds = kind == libc::SOCK_DGRAM || s.state != State::Connected;
            let meets = |own| s.is_reached_by(at) || at.takes(is_v6_only, own);
            s.kind == kind && holds && s.local.as_ref().is_some_and(meets)
        })
    }

    /// Binds a socket. Port 0: to a free port. `-EADDRINUSE`, `-EADDRNOTAVAIL`; `-EAFNOSUPPORT`;
    /// `-EINVAL`: it is bound already.
    pub fn bind(&mut self, id: Id, at: Endpoint) -> Result<(), i32> {
        let Some(socket) = self.get(id) else { return Err(-libc::EBADF) };
        let (kind, v6_only) = (socket.kind, is_v6_only(&socket.options));
        if !at.is_of(socket.family) {
            return Err(-libc::EAFNOSUPPORT);
        }
        if !at.is_local() {
            return Err(-libc::EADDRNOTAVAIL);
        }
        if socket.local.is_some() {
            return Err(-libc::EINVAL);
        }
        let at = match at {
            Endpoint::Ip(at) if at.port() == 0 => self.free_port(kind, at.ip(), v6_only)?,
            at if self.is_taken(kind, &at, v6_only) => return Err(-libc::EADDRINUSE),
            at => at,
        };
        if let Some(socket) = self.get_mut(id) {
            socket.local = Some(at);
        }
        Ok(())
    }

    fn free_port(&mut self, kind: i32, ip: IpAddr, v6_only: bool) -> Result<Endpoint, i32> {
        for _ in FIRST_PORT..=u16::MAX {
            let at = Endpoint::Ip(SocketAddr::new(ip, self.next_port));
            self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
            if !self.is_taken(kind, &at, v6_only) {
                return Ok(at);
            }
        }
        Err(-libc::EADDRINUSE)
    }

    /// Gives a socket that isn't bound an address from which it can reach the endpoint.
    pub fn bind_for(&mut self, id: Id, to: &Endpoint) -> Result<(), i32> {
        if self.get(id).is_some_and(|s| s.local.is_some()) {
            return Ok(());
        }
        match to {
            Endpoint::Ip(to) => self.bind(id, Endpoint::Ip(SocketAddr::new(to.ip(), 0))),
            Endpoint::Unix(_) => Ok(()),
        }
    }
}
