//! The system calls of the network in memory.

use super::flights::What;
use super::sockets::{Endpoint, Id, State};
use super::{Inner, Network};
use crate::os::epoll::{ERR, HUP, IN, OUT, RDHUP};
use crate::os::file::{self, Buffer};
use crate::os::socket::Address;
use crate::os::stand_in::StandIn;
use crate::sched::run::ordered;

pub static CALLS: StandIn = StandIn {
    socket,
    pair,
    receive,
    send,
    accept,
    connect,
    bind,
    closed,
    take_error,
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

fn socket(family: i32, kind: i32) -> Option<i32> {
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

unsafe fn bind(fd: i32, to: *const Address, len: u32, backlog: Option<i32>) -> Option<isize> {
    // SAFETY: as bind(2).
    let at = unsafe { Endpoint::from_raw(to, len) };
    with_socket(fd, |_, inner, id| {
        let bound = at.and_then(|at| inner.sockets.bind(id, at));
        if let Err(e) = bound {
            return e as isize;
        }
        if let (Some(backlog), Some(socket)) = (backlog, inner.sockets.get_mut(id)) {
            socket.state = State::Listening;
            socket.most_waiting = backlog.max(1) as usize;
        }
        0
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
            Ok(to) if to.is_local() => to,
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
        let to = match to.or_else(|| socket.remote.clone().map(Ok)) {
            Some(Ok(to)) if to.is_local() => to,
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
                return -libc::EAGAIN as isize;
            };
            let family = socket.family;
            if !peeks {
                socket.datagrams.pop_front();
            }
            // SAFETY: as recvmsg(2).
            let n = unsafe {
                sender.write(family, from, len);
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
        for waiting in socket.backlog {
            inner.end_stream(net, waiting, true);
        }
        if let Some(peer) = socket.peer {
            let way = net.way(socket.family != libc::AF_UNIX);
            inner.tell_end(peer, way, !socket.inbox.is_empty(), socket.is_silent);
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
            return events | OUT | if s.datagrams.is_empty() { 0 } else { IN };
        }
        if !s.inbox.is_empty() || !s.backlog.is_empty() || s.is_ended || s.is_reset || s.error < 0 {
            events |= IN;
        }
        if s.is_ended || s.is_reset {
            events |= RDHUP;
        }
        if s.is_reset || (s.state == State::New && s.error < 0) {
            events |= HUP;
        }
        let has_room = s.state == State::Connected && s.unread < WINDOW;
        if has_room || s.is_reset || s.error < 0 {
            events |= OUT;
        }
        events
    }
}

fn take_error(fd: i32) -> Option<isize> {
    with_socket(fd, |_, inner, id| {
        inner.sockets.get_mut(id).map_or(0, |s| core::mem::take(&mut s.error)) as isize
    })
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
