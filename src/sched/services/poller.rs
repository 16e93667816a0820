//! sysmon's part of the poller: nodes that lack a watcher, and waits that must be verified.

use crate::os::time;
use crate::sched::run::post::{ensure_watched, lacks_watcher};
use crate::sched::types::runtime::Runtime;
use crate::sched::wait::netpoll;
use core::sync::atomic::Ordering;

/// What sysmon remembers, between its checks, of the poller.
pub struct PollerCheck {
    /// When each node began to lack a watcher, in ns; 0: it has one.
    lacking: Vec<i64>,
    /// When sysmon verifies next, in ns, and from which file on; file 0: a new pass begins.
    verify_at: i64,
    verify_from: i32,
}

/// The time, in ns, for which a node may lack a watcher before sysmon calls one: as a rule an M is
/// on its way.
const PATIENCE: i64 = 1_000_000;
/// How often sysmon begins a pass that verifies all waits, in ns. It verifies for `PIECE` ns at
/// once, with one epoll_ctl(2) for each wait, so as not to keep its CPU and its other work for
/// long. The pause between two pieces is `PAUSES` times as long as a piece.
const VERIFY_EVERY: i64 = 50_000_000;
const PIECE: i64 = 50_000;
const PAUSES: i64 = 10;

impl PollerCheck {
    pub fn new() -> PollerCheck {
        PollerCheck { lacking: Vec::new(), verify_at: 0, verify_from: 0 }
    }

    /// Polls for nodes without a watcher, and calls a watcher for them. True: a goroutine has
    /// become ready.
    pub fn check(&mut self, rt: &Runtime, now: i64) -> bool {
        if !rt.polls.load(Ordering::Acquire) {
            return false;
        }
        self.lacking.resize(rt.nodes.len(), 0);
        let mut found = false;
        for (node, since) in rt.nodes.iter().zip(&mut self.lacking) {
            if !lacks_watcher(rt, node) {
                *since = 0;
                continue;
            }
            for p in rt.all_made_ps().filter(|p| p.node as usize == node.id) {
                if p.poll.is_waited_for() && netpoll::is_deserted(p) {
                    found |= netpoll::poll_into_inbox(p);
                }
            }
            if *since == 0 {
                *since = now;
            } else if now - *since >= PATIENCE {
                ensure_watched(rt, node);
                *since = 0;
            }
        }
        if now >= self.verify_at {
            self.verify();
        }
        found
    }

    /// Verifies for `PIECE` ns.
    fn verify(&mut self) {
        let began = time::now();
        let next = netpoll::verify(self.verify_from, began + PIECE);
        self.verify_from = next.unwrap_or(0);
        let now = time::now();
        let pause = PAUSES * (now - began);
        self.verify_at = now + if next.is_some() { pause } else { VERIFY_EVERY.max(pause) };
    }

    /// When sysmon goes on verifying, in ns; `i64::MAX`: no pass is under way.
    pub fn next(&self) -> i64 {
        if self.verify_from == 0 { i64::MAX } else { self.verify_at }
    }

    /// Whether every awaited file is looked after without sysmon. If there are waits to verify,
    /// sysmon begins the next pass at its next check.
    pub fn may_sleep(&mut self, rt: &Runtime) -> bool {
        let is_watched = rt.nodes.iter().all(|n| ensure_watched(rt, n) && !lacks_watcher(rt, n));
        let verifies =
            rt.polls.load(Ordering::Acquire) && (self.verify_from != 0 || netpoll::is_to_verify());
        if !verifies {
            return is_watched;
        }
        if self.verify_from == 0 {
            self.verify_at = 0;
        }
        false
    }
}
