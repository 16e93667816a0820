//! sysmon's part of the poller: nodes that lack a watcher, and waits that must be verified.

use crate::os::time;
use crate::sched::core::netpoll;
use crate::sched::core::post::{ensure_watched, lacks_watcher};
use crate::sched::who::runtime::Runtime;
use core::sync::atomic::Ordering;

/// What sysmon does for the poller, and what it remembers of that.
pub struct PollerWatch {
    /// Since when each node lacks a watcher, in ns; 0: it has one.
    lacking: Vec<i64>,
    verify_at: i64,
}

/// sysmon calls a watcher for a node that has lacked one for this time, in ns: as a rule an M is on its way.
const PATIENCE: i64 = 1_000_000;
/// How often waits are verified, in ns.
const VERIFY_EVERY: i64 = 50_000_000;

impl PollerWatch {
    pub fn new() -> PollerWatch {
        PollerWatch { lacking: Vec::new(), verify_at: 0 }
    }

    /// Polls for nodes without a watcher, and calls a watcher for them. True: a goroutine has become ready.
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
            netpoll::verify();
            self.verify_at = now + VERIFY_EVERY.max(10 * (time::now() - now));
        }
        found
    }

    /// Whether every file that is waited for is looked after without sysmon.
    pub fn may_sleep(rt: &Runtime) -> bool {
        rt.nodes.iter().all(|n| ensure_watched(rt, n) && !lacks_watcher(rt, n))
            && !(rt.polls.load(Ordering::Acquire) && netpoll::verify())
    }
}
