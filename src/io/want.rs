//! The side of a file on which a call waits, and the events that may end the wait. `README.md`,
//! "Takers and watchers".

use super::error::EINVAL;
use crate::os::epoll::{ERR, HUP, IN, OUT, PRI, RDHUP};
use crate::sched::types::waiter::Waiter;
use crate::sched::wait::netpoll::EventClass;

/// The two sides of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Read = 0,
    Write = 1,
}

pub const SIDES: [Side; 2] = [Side::Read, Side::Write];

/// Number of events on each side.
pub type EventCounts = [u32; 2];

/// The condition for which an operation waits.
#[derive(Clone, Copy)]
pub struct Want {
    pub(super) side: Side,
    class: EventClass,
    /// `side` and `class` as poll's events.
    pub(super) events: i16,
    /// For a read from a stream: the room in the buffer. A shorter result means that nothing may be
    /// left in the stream. 0: unknown.
    pub(super) room: usize,
    /// 0: the waiter is a taker. All takers of a side are after the same data or room, so an event
    /// wakes only one: if it finds nothing, the others would find nothing either. Not 0: the waiter
    /// is a watcher, which tries again after each of these epoll events, whatever the other waiters
    /// do.
    epoll_events: u32,
    /// Result of a waiting call once the file is shut down for reading (shutdown(2)) and nothing is
    /// left in it. (A system call that doesn't wait still returns `-EAGAIN` on datagram sockets and
    /// listening Unix sockets.) None: the shutdown doesn't end the call.
    pub(super) when_shut: Option<isize>,
}

impl Want {
    pub const READ: Want = Want {
        side: Side::Read,
        class: EventClass::Read,
        events: libc::POLLIN | libc::POLLRDHUP,
        room: 0,
        epoll_events: 0,
        when_shut: Some(0),
    };
    pub const WRITE: Want = Want {
        side: Side::Write,
        class: EventClass::Write,
        events: libc::POLLOUT,
        room: 0,
        epoll_events: 0,
        when_shut: None,
    };
    pub const ACCEPT: Want =
        Want { class: EventClass::Accept, when_shut: Some(EINVAL), ..Want::READ };
    /// For the end of an attempt to connect.
    pub const CONNECT: Want = Want { epoll_events: OUT | ERR | HUP, ..Want::WRITE };
    /// For a message to an address: another writer's success says nothing about it.
    pub const SEND_TO: Want = Want::CONNECT;

    /// Whether a waiter that wants this is a taker: see [`Want::epoll_events`].
    pub fn is_taker(&self) -> bool {
        self.epoll_events == 0
    }

    /// For a read that takes the data that it gives.
    pub fn to_read(room: usize) -> Want {
        Want { room, ..Want::READ }
    }

    /// For recv(2) and its kin with these flags: a special read (of urgent data, of errors) may
    /// find something where a common read finds nothing, and the other way round.
    pub fn to_receive(flags: i32, room: usize) -> Want {
        const COMMON: i32 = libc::MSG_DONTWAIT
            | libc::MSG_CMSG_CLOEXEC
            | libc::MSG_NOSIGNAL
            | libc::MSG_TRUNC
            | libc::MSG_WAITALL;
        match flags {
            0 => Want::to_read(room),
            _ if flags & !COMMON == 0 => Want::READ,
            _ if flags & libc::MSG_ERRQUEUE != 0 => Want::events(0),
            _ if flags & libc::MSG_OOB != 0 => Want::events(libc::POLLPRI | libc::POLLRDHUP),
            _ => Want { when_shut: Some(0), ..Want::events(libc::POLLIN | libc::POLLRDHUP) },
        }
    }

    /// For these events of poll's.
    pub fn events(events: i16) -> Want {
        let any = |wanted: i16, of_epoll: u32| if events & wanted != 0 { of_epoll } else { 0 };
        let readable = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND;
        let read = any(readable, IN)
            | any(libc::POLLPRI | libc::POLLRDBAND, PRI)
            | any(libc::POLLRDHUP, RDHUP);
        let write = any(libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND, OUT);
        let (side, class) = match (read, write) {
            (0, OUT) => (Side::Write, EventClass::Write),
            _ => (Side::Read, EventClass::Read),
        };
        // Every waiter tries again after an error.
        let epoll_events = read | write | ERR | HUP;
        Want { side, class, events, room: 0, epoll_events, when_shut: None }
    }
}

/// A waiter's tag: its class, and above [`WATCHED`] the events that it watches.
const WATCHED: u32 = 32;

pub fn tag_of(want: &Want) -> u64 {
    let class = match want.class {
        EventClass::Read => 0,
        EventClass::Write => 1,
        EventClass::Accept => 2,
    };
    u64::from(want.epoll_events) << WATCHED | class
}

pub fn class_of(waiter: &Waiter) -> EventClass {
    match waiter.tag.get() as u32 {
        0 => EventClass::Read,
        1 => EventClass::Write,
        _ => EventClass::Accept,
    }
}

pub fn epoll_events_of(waiter: &Waiter) -> u32 {
    (waiter.tag.get() >> WATCHED) as u32
}
