//! What is on its way through the network in memory, and what happens when it arrives.

use super::Inner;
use super::sockets::{Endpoint, Id, Socket, State};
use crate::os::epoll::{ERR, HUP, IN, OUT, RDHUP};
use std::collections::BTreeMap;

/// What is on its way.
pub enum What {
    /// A client wants to connect to an address.
    Connect {
        from: Id,
        to: Endpoint,
    },
    /// The server's socket for a client is there.
    Accepted {
        to: Id,
        by: Id,
    },
    /// The attempt to connect has failed.
    Refused {
        to: Id,
        error: i32,
    },
    Data {
        to: Id,
        from: Id,
        bytes: Vec<u8>,
    },
    /// The other side sends no more.
    End {
        to: Id,
    },
    Reset {
        to: Id,
    },
    /// The other side has read this number of bytes.
    Read {
        to: Id,
        bytes: usize,
    },
    Datagram {
        to: Endpoint,
        from: Endpoint,
        by: Id,
        bytes: Vec<u8>,
    },
}

/// Something on its way.
pub struct Flight {
    pub what: What,
}

/// Everything that is on its way, by the time of its arrival and the order in which it has left.
pub struct Flights {
    all: BTreeMap<(i64, u64), Flight>,
    sent: u64,
}

impl Flights {
    pub fn new() -> Flights {
        Flights { all: BTreeMap::new(), sent: 0 }
    }

    pub fn send(&mut self, arrives: i64, what: What) {
        self.sent += 1;
        self.all.insert((arrives, self.sent), Flight { what });
    }

    /// When the next one arrives; `i64::MAX`: nothing is on its way.
    pub fn next(&self) -> i64 {
        self.all.first_key_value().map_or(i64::MAX, |((when, _), _)| *when)
    }

    pub fn pop(&mut self) -> Option<Flight> {
        self.all.pop_first().map(|(_, flight)| flight)
    }
}

/// How much a socket for datagrams holds before it drops further ones, in bytes.
pub const DATAGRAMS: usize = 208 << 10;

impl Inner {
    /// Tells the poller of a socket's event.
    pub fn event(&mut self, id: Id, events: u32) {
        if let Some(data) = self.sockets.get(id).and_then(|s| s.watch) {
            self.events.push((data, events));
        }
    }

    /// Sends something that must not overtake what was sent to that socket before.
    pub fn send_in_order(&mut self, to: Id, arrives: i64, what: What) {
        let mut when = arrives;
        if let Some(socket) = self.sockets.get_mut(to) {
            if socket.is_silent {
                return;
            }
            when = when.max(socket.last_arrival);
            socket.last_arrival = when;
        }
        self.flights.send(when, what);
    }

    pub fn arrives(&mut self, flight: Flight) {
        match flight.what {
            What::Connect { from, to } => self.wants_to_connect(from, to),
            What::Accepted { to, by } => self.is_accepted(to, by),
            What::Refused { to, error } => {
                self.with_stream(to, |socket| {
                    (socket.state, socket.error) = (State::New, error);
                    ERR | HUP | OUT | IN
                });
            }
            What::Data { to, from, bytes } => {
                if self.sockets.get(to).is_none() {
                    // The socket is closed.
                    self.send_in_order(from, self.now, What::Reset { to: from });
                }
                self.with_stream(to, |socket| {
                    // What comes behind a reset would follow a gap.
                    if socket.is_reset {
                        return 0;
                    }
                    socket.inbox.extend(bytes);
                    IN
                });
            }
            What::End { to } => self.with_stream(to, |socket| {
                socket.is_ended = true;
                IN | RDHUP
            }),
            What::Reset { to } => self.with_stream(to, |socket| {
                (socket.error, socket.is_reset) = (-libc::ECONNRESET, true);
                IN | OUT | RDHUP | ERR | HUP
            }),
            What::Read { to, bytes } => self.with_stream(to, |socket| {
                socket.unread -= bytes;
                OUT
            }),
            What::Datagram { to, from, by, bytes } => self.datagram(to, from, by, bytes),
        }
    }

    /// Changes a socket that has not fallen silent, and tells the poller of the events that `f` gives.
    fn with_stream(&mut self, id: Id, f: impl FnOnce(&mut Socket) -> u32) {
        if let Some(socket) = self.sockets.get_mut(id)
            && !socket.is_silent
        {
            match f(socket) {
                0 => {}
                events => self.event(id, events),
            }
        }
    }

    fn wants_to_connect(&mut self, from: Id, to: Endpoint) {
        let Some(client) = self.sockets.get(from) else { return };
        let (family, local) = (client.family, client.local.clone());
        let listener = self.sockets.find(libc::SOCK_STREAM, &to).filter(|&id| {
            let listener = self.sockets.get(id);
            listener.is_some_and(|l| l.backlog.len() < l.most_waiting)
        });
        let back = self.now + self.sockets.get(from).map_or(0, |s| s.round_trip);
        let Some(listener) = listener else {
            let error = -libc::ECONNREFUSED;
            return self.flights.send(back, What::Refused { to: from, error });
        };
        let server = self.sockets.add(family, libc::SOCK_STREAM);
        let options = self.sockets.get(listener).map(|l| l.options.clone());
        if let Some(socket) = self.sockets.get_mut(server) {
            socket.state = State::Connected;
            socket.options = options.unwrap_or_default();
            (socket.local, socket.remote, socket.peer) = (Some(to), local, Some(from));
        }
        if let Some(listener) = self.sockets.get_mut(listener) {
            listener.backlog.push_back(server);
        }
        self.event(listener, IN);
        self.flights.send(back, What::Accepted { to: from, by: server });
    }

    fn is_accepted(&mut self, to: Id, by: Id) {
        match self.sockets.get_mut(to) {
            Some(socket) if socket.state == State::Connecting => {
                (socket.state, socket.peer) = (State::Connected, Some(by));
                self.event(to, OUT);
            }
            // The client has given up.
            _ => self.send_in_order(by, self.now, What::Reset { to: by }),
        }
    }

    fn datagram(&mut self, to: Endpoint, from: Endpoint, by: Id, bytes: Vec<u8>) {
        let found = self.sockets.find(libc::SOCK_DGRAM, &to);
        let Some(id) = found else {
            if let Some(sender) = self.sockets.get_mut(by)
                && sender.remote.is_some()
            {
                sender.error = -libc::ECONNREFUSED;
                self.event(by, IN | OUT | ERR);
            }
            return;
        };
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let held: usize = socket.datagrams.iter().map(|(_, bytes)| bytes.len()).sum();
        let is_for = socket.remote.as_ref().is_none_or(|remote| *remote == from);
        if is_for && held + bytes.len() <= DATAGRAMS {
            socket.datagrams.push_back((from, bytes));
            self.event(id, IN);
        }
    }
}
