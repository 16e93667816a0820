//! The system calls of the network in memory.

use super::flights::What;
use super::sockets::{Endpoint, Id, Socket, State};
use super::{Inner, Network};
use crate::os::epoll::{ERR, HUP, IN, OUT, RDHUP};
use crate::os::file::{self, Buffer};
use crate::os::socket::Address;
use crate::os::stand_in::{OptionValue, StandIn};
use crate::sched::run::ordered;

pub static CALLS: StandIn = StandIn {
    socket,
    pair,
    receive,
    send,
    accept,
    connect,
    bind,
    listen,
    shut_down,
    name,
    option,
    set_option,
    closed,
    poll,
    knows: |fd| with(|net| net.inner.borrow().sockets.id(fd)).flatten().is_some(),
    watch,
};

/// The most bytes of a stream that are sent and not read.
const WINDOW: usize = 128 << 10;
/// A part of a stream that is lost comes after this time, in ns: Linux' shortest.
const SENT_AGAIN: i64 = 200_000_000;
/// After this time, in ns, an attempt to connect that nothing answers fails: Linux' usual.
const NO_ANSWER: i64 = 127_000_000_000;
/// The longest datagram, in bytes.
const LONGEST: usize = 65507;

/// Calls `f` with the network of the caller's bubble.
fn with<R>(f: impl FnOnce(&Network) -> R) -> Option<R> {
    let net = ordered::current_bubble()?.net.as_ref()?;
    net.as_any().downcast_ref::<Network>().map(f)
}

/// Calls `f` with the network and the socket of a descriptor, if it is the network's.
fn with_socket(fd: i32, f: impl FnOnce(&Network, &mut Inner, Id) -> isize) -> Option<isize> {
    with(|net| {
        let mut inner = net.inner.borrow_mut();
        inner.now = crate::os::time::now();
        let id = inner.sockets.id(fd)?;
        Some(f(net, &mut inner, id))
    })
    .flatten()
}

/// `None` for sockets that are none of the network's.
fn socket(family: i32, kind: i32) -> Option<i32> {
    let is_known = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX].contains(&family)
        && [libc::SOCK_STREAM, libc::SOCK_DGRAM].contains(&(kind & 0xf));
    if !is_known {
        return None;
    }
    with(|net| {
        let inner = &mut net.inner.borrow_mut();
        match file::open_path() {
            fd @ 0.. => {
                let id = inner.sockets.add(family, kind & 0xf);
                inner.sockets.name(fd, id);
                fd
            }
            e => e,
        }
    })
}

fn pair() -> Option<[i32; 2]> {
    let kind = libc::SOCK_STREAM;
    let fds = [socket(libc::AF_UNIX, kind)?, socket(libc::AF_UNIX, kind)?];
    if let Some(&e) = fds.iter().find(|&&fd| fd < 0) {
        fds.into_iter().filter(|&fd| fd >= 0).for_each(|fd| {
            file::close(fd);
        });
        return Some([e, e]);
    }
    with(|net| {
        let inner = &mut net.inner.borrow_mut();
        let ids = fds.map(|fd| inner.sockets.id(fd));
        for (own, other) in [(ids[0], ids[1]), (ids[1], ids[0])] {
            if let Some(socket) = own.and_then(|id| inner.sockets.get_mut(id)) {
                (socket.state, socket.peer, socket.is_told) = (State::Connected, other, true);
            }
        }
    });
    Some(fds)
}

unsafe fn bind(fd: i32, to: *const Address, len: u32) -> Option<isize> {
    // SAFETY: as bind(2).
    let at = unsafe { Endpoint::from_raw(to, len) };
    with_socket(fd, |_, inner, id| match at.and_then(|at| inner.sockets.bind(id, at)) {
        Ok(()) => 0,
        Err(e) => e as isize,
    })
}

fn listen(fd: i32, backlog: i32) -> Option<isize> {
    with_socket(fd, |_, inner, id| {
        let Some(socket) = inner.sockets.get(id) else { return -libc::EBADF as isize };
        if socket.kind == libc::SOCK_DGRAM {
            return -libc::EOPNOTSUPP as isize;
        }
        let nowhere = Endpoint::nowhere(socket.family);
        let is_free = matches!(socket.state, State::New | State::Listening);
        let can_bind = socket.local.is_some() || socket.family != libc::AF_UNIX;
        if !is_free || !can_bind {
            return -libc::EINVAL as isize;
        }
        if socket.local.is_none()
            && let Err(e) = inner.sockets.bind(id, nowhere)
        {
            return e as isize;
        }
        if let Some(socket) = inner.sockets.get_mut(id) {
            socket.state = State::Listening;
            socket.most_waiting = backlog.max(1) as usize;
        }
        0
    })
}

unsafe fn name(fd: i32, is_peer: bool, at: *mut Address, len: *mut u32) -> Option<isize> {
    with_socket(fd, |_, inner, id| {
        let Some(socket) = inner.sockets.get(id) else { return -libc::EBADF as isize };
        if at.is_null() || len.is_null() {
            return -libc::EFAULT as isize;
        }
        let named = if is_peer { &socket.remote } else { &socket.local };
        let is_connected = match socket.kind {
            libc::SOCK_DGRAM => named.is_some(),
            _ => socket.state == State::Connected && !socket.is_reset,
        };
        if is_peer && !is_connected {
            return -libc::ENOTCONN as isize;
        }
        let named = named.clone().unwrap_or(Endpoint::nowhere(socket.family));
        // SAFETY: as getsockname(2).
        unsafe { named.write(socket.family, at, len) };
        0
    })
}

fn shut_down(fd: i32, how: i32) -> Option<isize> {
    let (reads, writes) = match how {
        libc::SHUT_RD => (true, false),
        libc::SHUT_WR => (false, true),
        libc::SHUT_RDWR => (true, true),
        _ => return with_socket(fd, |_, _, _| -libc::EINVAL as isize),
    };
    with_socket(fd, |net, inner, id| {
        let Some(socket) = inner.sockets.get_mut(id) else { return -libc::EBADF as isize };
        let (peer, is_inet) = (socket.peer, socket.family != libc::AF_UNIX);
        let (is_silent, is_unix_stream) = (socket.is_silent, !is_inet && peer.is_some());
        match socket.state {
            State::Listening if reads => {
                socket.state = State::New;
                for waiting in core::mem::take(&mut socket.backlog) {
                    inner.end_stream(net, waiting, true);
                }
                inner.event(id, IN | HUP | RDHUP);
                return 0;
            }
            State::Listening => return 0,
            State::Connecting => {
                (socket.state, socket.error) = (State::New, -libc::ECONNABORTED);
                inner.event(id, IN | OUT | ERR | HUP);
                return 0;
            }
            State::New if socket.kind == libc::SOCK_STREAM => return -libc::ENOTCONN as isize,
            _ if socket.is_reset => return -libc::ENOTCONN as isize,
            State::New | State::Connected => {}
        }
        // As in Linux, where waits of such a socket end all the same.
        let has_no_peer = is_inet && socket.state == State::New && socket.remote.is_none();
        let was_ended = socket.sends_no_more;
        socket.sends_no_more |= writes;
        socket.is_ended |= reads;
        let is_closed = socket.is_ended && socket.sends_no_more;
        let mut events = if reads { IN | RDHUP } else { 0 };
        events |= if writes { OUT } else { 0 } | if is_closed { HUP } else { 0 };
        inner.event(id, events);
        if let Some(peer) = peer {
            if writes && !was_ended {
                let way = net.way(is_inet);
                inner.tell_end(peer, way, false, is_silent);
            }
            if is_unix_stream
                && reads
                && let Some(other) = inner.sockets.get_mut(peer)
            {
                other.sends_no_more = true;
                inner.event(peer, OUT);
            }
        }
        if has_no_peer { -libc::ENOTCONN as isize } else { 0 }
    })
}

/// The value of an option that was not set, of those that are numbers and have another than 0.
fn usual(socket: &Socket, level: i32, name: i32) -> i32 {
    let is_stream = socket.kind == libc::SOCK_STREAM;
    let protocol = match socket.family {
        libc::AF_UNIX => 0,
        _ if is_stream => libc::IPPROTO_TCP,
        _ => libc::IPPROTO_UDP,
    };
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_TYPE) => socket.kind,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => socket.family,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => protocol,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => i32::from(socket.state == State::Listening),
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => WINDOW as i32,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) if is_stream => WINDOW as i32,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => super::flights::DATAGRAMS as i32,
        _ => 0,
    }
}

/// Whether a socket of the network has options of this level.
fn has_level(socket: &Socket, level: i32) -> bool {
    let is_inet = socket.family != libc::AF_UNIX;
    match level {
        libc::SOL_SOCKET => true,
        libc::IPPROTO_IP => is_inet,
        libc::IPPROTO_IPV6 => socket.family == libc::AF_INET6,
        libc::IPPROTO_TCP => is_inet && socket.kind == libc::SOCK_STREAM,
        libc::IPPROTO_UDP => is_inet && socket.kind == libc::SOCK_DGRAM,
        _ => false,
    }
}

fn option(fd: i32, level: i32, name: i32) -> Option<OptionValue> {
    let mut value = Err(-libc::EBADF);
    with_socket(fd, |_, inner, id| {
        let Some(socket) = inner.sockets.get_mut(id) else { return 0 };
        value = match (level, name) {
            _ if !has_level(socket, level) => Err(-libc::EOPNOTSUPP),
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                Ok((-core::mem::take(&mut socket.error)).to_ne_bytes().to_vec())
            }
            // Not numbers, and nothing that is so here.
            (libc::SOL_SOCKET, libc::SO_PEERCRED | libc::SO_PEERSEC)
            | (libc::IPPROTO_TCP, libc::TCP_INFO) => Err(-libc::ENOPROTOOPT),
            _ => Ok(match socket.options.get(&(level, name)) {
                Some(bytes) => bytes.clone(),
                None if (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) => vec![0; 8],
                None => usual(socket, level, name).to_ne_bytes().to_vec(),
            }),
        };
        0
    })?;
    Some(value)
}

/// Notes the value. Of all options only `IPV6_V6ONLY`, and `SO_LINGER` with a time of 0, have an
/// effect.
fn set_option(fd: i32, level: i32, name: i32, value: &[u8]) -> Option<isize> {
    with_socket(fd, |_, inner, id| {
        let Some(socket) = inner.sockets.get_mut(id) else { return -libc::EBADF as isize };
        if !has_level(socket, level) {
            return -libc::ENOPROTOOPT as isize;
        }
        if value.is_empty() {
            return -libc::EINVAL as isize;
        }
        socket.options.insert((level, name), value.to_vec());
        0
    })
}

/// Whether a close resets the connection: `SO_LINGER` is on, with a time of 0.
fn resets_when_closed(socket: &Socket) -> bool {
    let value = socket.options.get(&(libc::SOL_SOCKET, libc::SO_LINGER));
    value.is_some_and(|value| {
        value.iter().take(4).any(|&b| b != 0) && value.iter().skip(4).all(|&b| b == 0)
    })
}

unsafe fn connect(fd: i32, to: *const Address, len: u32) -> Option<isize> {
    // SAFETY: as connect(2).
    let to = unsafe { Endpoint::from_raw(to, len) };
    with_socket(fd, |net, inner, id| {
        let Some(socket) = inner.sockets.get_mut(id) else { return -libc::EBADF as isize };
        match socket.state {
            State::Connecting => return -libc::EALREADY as isize,
            State::Connected if !core::mem::replace(&mut socket.is_told, true) => return 0,
            State::Connected => return -libc::EISCONN as isize,
            State::Listening => return -libc::EINVAL as isize,
            State::New => {}
        }
        if let e @ ..0 = core::mem::take(&mut socket.error) {
            return e as isize;
        }
        let to = match to {
            Ok(to) if !to.is_of(socket.family) => return -libc::EAFNOSUPPORT as isize,
            Ok(to) if to.is_local() => to.reached(),
            Ok(_) => return -libc::ENETUNREACH as isize,
            Err(e) => return e as isize,
        };
        if let Err(e) = inner.sockets.bind_for(id, &to) {
            return e as isize;
        }
        net.begin_to_connect(inner, id, to)
    })
}

impl Network {
    fn begin_to_connect(&self, inner: &mut Inner, id: Id, to: Endpoint) -> isize {
        let Some(socket) = inner.sockets.get_mut(id) else { return -libc::EBADF as isize };
        let is_inet = matches!(to, Endpoint::Ip(_));
        socket.remote = Some(to.clone());
        if socket.kind == libc::SOCK_DGRAM {
            return 0;
        }
        socket.state = State::Connecting;
        let (there, back) = if is_inet { (self.delay(), self.delay()) } else { (0, 0) };
        socket.round_trip = back;
        let now = inner.now;
        if is_inet && Network::fault("the connection is refused", self.options.refuse, 1) > 0 {
            let error = -libc::ECONNREFUSED;
            inner.flights.send(now + there + back, What::Refused { to: id, error });
        } else if is_inet && Network::fault("the connection falls silent", self.options.cut, 1) > 0
        {
            let error = -libc::ETIMEDOUT;
            inner.flights.send(now + NO_ANSWER, What::Refused { to: id, error });
        } else {
            inner.flights.send(now + there, What::Connect { from: id, to });
        }
        -libc::EINPROGRESS as isize
    }

    /// How long a part of a stream, or a datagram that isn't lost, is on its way.
    fn way(&self, is_inet: bool) -> i64 {
        if is_inet { self.delay() } else { 0 }
    }
}

unsafe fn accept(fd: i32, from: *mut Address, len: *mut u32) -> Option<isize> {
    with_socket(fd, |_, inner, id| {
        let Some(listener) = inner.sockets.get_mut(id) else { return -libc::EBADF as isize };
        if listener.state != State::Listening {
            return -libc::EINVAL as isize;
        }
        let family = listener.family;
        let Some(&new) = listener.backlog.front() else { return -libc::EAGAIN as isize };
        let new_fd = file::open_path();
        if new_fd < 0 {
            return new_fd as isize;
        }
        listener.backlog.pop_front();
        inner.sockets.name(new_fd, new);
        if let Some(socket) = inner.sockets.get_mut(new) {
            (socket.family, socket.is_told) = (family, true);
            let remote = socket.remote.clone().unwrap_or(Endpoint::Unix(Vec::new()));
            // SAFETY: as accept(2).
            unsafe { remote.write(family, from, len) };
        }
        new_fd as isize
    })
}

unsafe fn send(
    fd: i32,
    buffers: &[Buffer],
    _flags: i32,
    to: *const Address,
    len: u32,
) -> Option<isize> {
    with_socket(fd, |net, inner, id| {
        let Some(socket) = inner.sockets.get(id) else { return -libc::EBADF as isize };
        // SAFETY: as sendmsg(2).
        let bytes = unsafe { gather(buffers, usize::MAX) };
        if socket.kind == libc::SOCK_DGRAM {
            // SAFETY: as sendmsg(2).
            let to = (!to.is_null()).then(|| unsafe { Endpoint::from_raw(to, len) });
            return net.send_datagram(inner, id, bytes, to);
        }
        net.send_to_stream(inner, id, bytes)
    })
}

impl Network {
    fn send_to_stream(&self, inner: &mut Inner, id: Id, mut bytes: Vec<u8>) -> isize {
        let now = inner.now;
        let Some(socket) = inner.sockets.get_mut(id) else { return -libc::EBADF as isize };
        if socket.is_reset {
            let e = core::mem::take(&mut socket.error);
            return if e < 0 { e as isize } else { -libc::EPIPE as isize };
        }
        if socket.sends_no_more {
            return -libc::EPIPE as isize;
        }
        let peer = match (socket.state, socket.peer) {
            (State::Connected, Some(peer)) => peer,
            _ => return -libc::ENOTCONN as isize,
        };
        let room = WINDOW.saturating_sub(socket.unread);
        if room == 0 {
            return -libc::EAGAIN as isize;
        }
        let is_inet = socket.family != libc::AF_UNIX;
        bytes.truncate(room);
        if bytes.len() > 1
            && Network::fault("a call does less than it could", self.options.short, 1) > 0
        {
            bytes.truncate(
                1 + Network::fault("by so much", 1000, bytes.len() as u32 - 1) as usize / 2,
            );
        }
        if is_inet && Network::fault("the connection is reset", self.options.reset, 1) > 0 {
            for (to, when) in [(id, now), (peer, now + self.way(true))] {
                inner.send_in_order(to, when, What::Reset { to });
            }
            return bytes.len() as isize;
        }
        if is_inet && Network::fault("the connection falls silent", self.options.cut, 1) > 0 {
            for id in [id, peer] {
                if let Some(socket) = inner.sockets.get_mut(id) {
                    socket.is_silent = true;
                }
            }
        }
        let n = bytes.len();
        let lost = if is_inet {
            Network::fault("a part is lost and sent again", self.options.loss, 3)
        } else {
            0
        };
        let when = now + self.way(is_inet) + SENT_AGAIN * i64::from(lost);
        if let Some(socket) = inner.sockets.get_mut(id) {
            socket.unread += n;
        }
        inner.send_in_order(peer, when, What::Data { to: peer, from: id, bytes });
        n as isize
    }

    fn send_datagram(
        &self,
        inner: &mut Inner,
        id: Id,
        bytes: Vec<u8>,
        to: Option<Result<Endpoint, i32>>,
    ) -> isize {
        let now = inner.now;
        let Some(socket) = inner.sockets.get_mut(id) else { return -libc::EBADF as isize };
        if let e @ ..0 = core::mem::take(&mut socket.error) {
            return e as isize;
        }
        if socket.sends_no_more {
            return -libc::EPIPE as isize;
        }
        let to = match to.or_else(|| socket.remote.clone().map(Ok)) {
            Some(Ok(to)) if !to.is_of(socket.family) => return -libc::EAFNOSUPPORT as isize,
            Some(Ok(to)) if to.is_local() => to.reached(),
            Some(Ok(_)) => return -libc::ENETUNREACH as isize,
            Some(Err(e)) => return e as isize,
            None => return -libc::EDESTADDRREQ as isize,
        };
        if bytes.len() > LONGEST {
            return -libc::EMSGSIZE as isize;
        }
        if let Err(e) = inner.sockets.bind_for(id, &to) {
            return e as isize;
        }
        let from = inner.sockets.get(id).and_then(|s| s.local.clone());
        let from = from.unwrap_or(Endpoint::Unix(Vec::new()));
        let n = bytes.len();
        let copies = match Network::fault("the datagram is lost", self.options.loss, 1) {
            0 => 1 + Network::fault("the datagram comes twice", self.options.twice, 1),
            _ => 0,
        };
        for _ in 0..copies {
            let (to, from, bytes) = (to.clone(), from.clone(), bytes.clone());
            let when = now + self.way(true);
            inner.flights.send(when, What::Datagram { to, from, by: id, bytes });
        }
        n as isize
    }
}

unsafe fn receive(
    fd: i32,
    buffers: &[Buffer],
    flags: i32,
    from: *mut Address,
    len: *mut u32,
) -> Option<isize> {
    with_socket(fd, |net, inner, id| {
        let now = inner.now;
        let peeks = flags & libc::MSG_PEEK != 0;
        let Some(socket) = inner.sockets.get_mut(id) else { return -libc::EBADF as isize };
        if socket.kind == libc::SOCK_DGRAM {
            if let e @ ..0 = core::mem::take(&mut socket.error) {
                return e as isize;
            }
            let Some((sender, bytes)) = socket.datagrams.front().cloned() else {
                return if socket.is_ended { 0 } else { -libc::EAGAIN as isize };
            };
            let family = socket.family;
            if !peeks {
                socket.datagrams.pop_front();
            }
            // SAFETY: as recvmsg(2): an unnamed socket gives no address.
            let n = unsafe {
                match &sender {
                    Endpoint::Unix(name) if name.is_empty() && !len.is_null() => *len = 0,
                    named => named.write(family, from, len),
                }
                scatter(buffers, &bytes)
            };
            return if flags & libc::MSG_TRUNC != 0 { bytes.len() } else { n } as isize;
        }
        if !len.is_null() {
            // SAFETY: as recvmsg(2): a stream gives no address.
            unsafe { *len = 0 };
        }
        let room: usize = buffers.iter().map(|b| b.iov_len).sum();
        if socket.inbox.is_empty() {
            return match (core::mem::take(&mut socket.error), socket.state) {
                (e @ ..0, _) => e as isize,
                _ if socket.is_ended || socket.is_reset => 0,
                (_, State::Connected) => -libc::EAGAIN as isize,
                _ => -libc::ENOTCONN as isize,
            };
        }
        let mut n = room.min(socket.inbox.len());
        if n > 1 && Network::fault("a call does less than it could", net.options.short, 1) > 0 {
            n = 1 + Network::fault("by so much", 1000, n as u32 - 1) as usize / 2;
        }
        let bytes: Vec<u8> = match peeks {
            true => socket.inbox.iter().take(n).copied().collect(),
            false => socket.inbox.drain(..n).collect(),
        };
        let (peer, is_inet) = (socket.peer, socket.family != libc::AF_UNIX);
        if !peeks && let Some(peer) = peer {
            let when = now + if is_inet { net.options.delay } else { 0 };
            inner.send_in_order(peer, when, What::Read { to: peer, bytes: n });
        }
        // SAFETY: as recvmsg(2).
        unsafe { scatter(buffers, &bytes) as isize }
    })
}

fn closed(fd: i32) {
    with(|net| {
        let mut inner = net.inner.borrow_mut();
        inner.now = crate::os::time::now();
        let Some(id) = inner.sockets.forget(fd) else { return };
        let Some(socket) = inner.sockets.remove(id) else { return };
        for &waiting in &socket.backlog {
            inner.end_stream(net, waiting, true);
        }
        if let Some(peer) = socket.peer {
            let way = net.way(socket.family != libc::AF_UNIX);
            let resets = !socket.inbox.is_empty() || resets_when_closed(&socket);
            inner.tell_end(peer, way, resets, socket.is_silent);
        }
    });
}

impl Inner {
    /// Ends a connection that was not accepted.
    fn end_stream(&mut self, net: &Network, id: Id, resets: bool) {
        if let Some(socket) = self.sockets.remove(id)
            && let Some(peer) = socket.peer
        {
            self.tell_end(peer, net.way(socket.family != libc::AF_UNIX), resets, socket.is_silent);
        }
    }

    fn tell_end(&mut self, peer: Id, way: i64, resets: bool, is_silent: bool) {
        if !is_silent {
            let what = if resets { What::Reset { to: peer } } else { What::End { to: peer } };
            self.send_in_order(peer, self.now + way, what);
        }
    }

    /// What epoll would report of the socket.
    fn readiness(&self, id: Id) -> u32 {
        let Some(s) = self.sockets.get(id) else { return 0 };
        let mut events = 0;
        if s.error < 0 || s.is_reset {
            events |= ERR;
        }
        if s.kind == libc::SOCK_DGRAM {
            events |= if s.is_ended { IN | RDHUP } else { 0 };
            return events | OUT | if s.datagrams.is_empty() { 0 } else { IN };
        }
        if !s.inbox.is_empty() || !s.backlog.is_empty() || s.is_ended || s.is_reset || s.error < 0 {
            events |= IN;
        }
        if s.is_ended || s.is_reset {
            events |= RDHUP;
        }
        if s.is_reset || (s.state == State::New && s.error < 0) || (s.is_ended && s.sends_no_more) {
            events |= HUP;
        }
        let has_room = s.state == State::Connected && s.unread < WINDOW;
        if has_room || s.is_reset || s.error < 0 || s.sends_no_more {
            events |= OUT;
        }
        events
    }
}

fn poll(fd: i32, events: i16) -> Option<isize> {
    with_socket(fd, |_, inner, id| {
        let always = ERR | HUP;
        let wanted = u32::from(events as u16) | always;
        (inner.readiness(id) & wanted) as isize
    })
}

fn watch(fd: i32, data: Option<u64>) -> Option<isize> {
    with_socket(fd, |_, inner, id| {
        if let Some(socket) = inner.sockets.get_mut(id) {
            socket.watch = data;
        }
        let ready = inner.readiness(id);
        if ready != 0 {
            inner.event(id, ready);
        }
        0
    })
}

/// The first `most` bytes of the buffers.
///
/// # Safety
/// The buffers are readable.
unsafe fn gather(buffers: &[Buffer], most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for b in buffers.iter().filter(|b| b.iov_len > 0) {
        let n = b.iov_len.min(most - bytes.len());
        // SAFETY: as the caller says.
        bytes.extend_from_slice(unsafe { core::slice::from_raw_parts(b.iov_base.cast(), n) });
    }
    bytes
}

/// Copies bytes into the buffers. Returns how many there was room for.
///
/// # Safety
/// The buffers are writable.
unsafe fn scatter(buffers: &[Buffer], bytes: &[u8]) -> usize {
    let mut rest = bytes;
    for b in buffers {
        let n = b.iov_len.min(rest.len());
        // SAFETY: as the caller says.
        unsafe { b.iov_base.cast::<u8>().copy_from_nonoverlapping(rest.as_ptr(), n) };
        rest = &rest[n..];
    }
    bytes.len() - rest.len()
}
