//! The network in memory of a bubble: TCP, UDP and Unix sockets that need no kernel, take virtual
//! time, and can lose, delay, cut and reset what they carry, as draws decide.
//!
//! The rest of `io` doesn't know of it: it answers the system calls that the kernel refuses
//! (`os::stand_in`), as the kernel would. So tests run the code that real sockets run.
//!
//! What is on its way is a [`Flight`], with the time of its arrival. The loop of the bubble lets the
//! clock jump to the next arrival, and gives the events to the poller.

mod calls;
mod flights;
mod sockets;

use crate::os::locked::Locked;
use crate::os::{file, stand_in};
use crate::sched::types::course::{self, Net};
use core::any::Any;
use core::cell::RefCell;
use flights::Flights;
use sockets::Sockets;

/// How the network behaves. Chances are out of 1000.
#[derive(Clone, Copy, Default, Debug)]
pub struct Options {
    /// How long everything takes in one direction, and by how much longer it may take, in ns.
    pub delay: i64,
    pub jitter: i64,
    /// A datagram is lost, or a part of a stream comes only after it was sent again.
    pub loss: u32,
    /// A datagram comes twice.
    pub twice: u32,
    /// With a call that sends, a connection falls silent for good.
    pub cut: u32,
    /// With a call that sends, a connection is reset.
    pub reset: u32,
    /// An attempt to connect is refused.
    pub refuse: u32,
    /// A call reads or writes less than it could.
    pub short: u32,
}

/// The number of networks, with whose first and last the stand-in comes and goes.
static NETWORKS: Locked<usize> = Locked::new(0);

/// In the child of a fork, which has no bubble.
///
/// # Safety
/// The caller is the child's only thread.
pub unsafe fn forked() {
    // SAFETY: as the caller says.
    unsafe { NETWORKS.reset() };
    NETWORKS.with(|n| *n = 0);
    stand_in::set(None);
}

/// The network of one bubble.
pub struct Network {
    options: Options,
    inner: RefCell<Inner>,
}

struct Inner {
    sockets: Sockets,
    flights: Flights,
    /// Events for the poller: the data of the registration, and what has happened.
    events: Vec<(u64, u32)>,
    now: i64,
}

impl Network {
    pub fn new(options: Options) -> Network {
        NETWORKS.with(|n| {
            *n += 1;
            stand_in::set(Some(&calls::CALLS));
        });
        let inner =
            Inner { sockets: Sockets::new(), flights: Flights::new(), events: Vec::new(), now: 0 };
        Network { options, inner: RefCell::new(inner) }
    }

    /// A draw with these odds; 0: it is plain.
    fn fault(what: &'static str, odds: u32, most: u32) -> u32 {
        course::fault(what, odds, most)
    }

    /// How long something takes from now on, in ns.
    fn delay(&self) -> i64 {
        // In sixteenths, so that a schedule is short to write.
        let jitter = if self.options.jitter > 0 {
            Network::fault("the network takes longer", 500, 16)
        } else {
            0
        };
        self.options.delay + self.options.jitter / 16 * i64::from(jitter)
    }
}

impl Net for Network {
    fn next(&self) -> i64 {
        let inner = self.inner.borrow();
        if inner.events.is_empty() { inner.flights.next() } else { inner.now }
    }

    fn run(&self, now: i64) -> Vec<(u64, u32)> {
        let mut inner = self.inner.borrow_mut();
        inner.now = now;
        while inner.flights.next() <= now {
            if let Some(flight) = inner.flights.pop() {
                inner.arrives(flight);
            }
        }
        core::mem::take(&mut inner.events)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Network {
    /// The bubble is over: closes what its goroutines have left open.
    fn drop(&mut self) {
        let left = self.inner.borrow().sockets.descriptors();
        for fd in left {
            if file::is_only_path(fd) {
                super::ops::close(fd);
            }
        }
        NETWORKS.with(|n| {
            *n -= 1;
            if *n == 0 {
                stand_in::set(None);
            }
        });
    }
}
