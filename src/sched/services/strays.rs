//! sysmon's search for strays: goroutines that have no P and run the user's code.
//! `take/PREEMPTION.md`, "Strays", says how they come about.

use crate::os::thread;
use crate::sched::run::requests;
use crate::sched::take::preempt;
use crate::sched::types::m::MRef;
use crate::sched::types::runtime::Runtime;
use core::sync::atomic::Ordering;

/// The least time between two checks, in ns.
const EVERY: i64 = 2_000_000;
/// The most threads that a check looks at.
const AT_ONCE: usize = 32;
/// A thread computes if it uses at least this CPU time between two checks, in ns.
const COMPUTES: i64 = 300_000;

/// What sysmon remembers of strays from one check to the next.
pub struct Strays {
    /// When the last check was, in ns.
    checked: i64,
    /// The index, among the threads without a P, of the next one to look at.
    next: usize,
    suspects: Vec<Suspect>,
}

/// A thread without a P that was blocked and has run since.
struct Suspect {
    m: MRef,
    /// The thread's CPU time at the check, in ns.
    ran: i64,
    /// [`M::calls_without_p`](crate::sched::types::m::M::calls_without_p) at the check.
    calls: u64,
}

impl Suspect {
    fn new(m: MRef) -> Option<Suspect> {
        let ran = thread::cpu_time(m.tid.load(Ordering::Relaxed))?;
        Some(Suspect { m, ran, calls: m.calls_without_p.load(Ordering::Relaxed) })
    }

    /// Whether the thread has computed since the check, without a call in between.
    fn computes(&self) -> bool {
        Suspect::new(self.m)
            .is_some_and(|now| now.calls == self.calls && now.ran - self.ran >= COMPUTES)
    }
}

impl Strays {
    pub fn new() -> Strays {
        Strays { checked: 0, next: 0, suspects: Vec::new() }
    }

    /// Sends the signal to threads that compute without a P: strays have no claim to a CPU, and
    /// must not run while the world is stopped. A thread that mostly blocks, as a server's client
    /// does, is stopped only once it has computed between two checks. Stopped earlier, it would
    /// wait for a P in the handler, block again at once, and keep that P from others until sysmon
    /// takes it.
    pub fn check(&mut self, rt: &Runtime, now: i64) {
        if now - self.checked < EVERY {
            return;
        }
        self.checked = now;
        if requests::is_stopping() {
            return preempt::strays(rt)
                .into_iter()
                .filter(preempt::has_run)
                .for_each(|m| preempt::stop_stray(rt, m));
        }
        for Suspect { m, .. } in self.suspects.drain(..).filter(Suspect::computes) {
            m.was_blocked.store(false, Ordering::Relaxed);
        }
        let mut strays = preempt::strays(rt);
        let first = self.next % strays.len().max(1);
        strays.rotate_left(first);
        self.next = first + AT_ONCE;
        for m in strays.into_iter().take(AT_ONCE).filter(preempt::has_run) {
            if m.was_blocked.load(Ordering::Relaxed) {
                self.suspects.extend(Suspect::new(m));
            } else {
                preempt::stop_stray(rt, m);
            }
        }
    }
}
