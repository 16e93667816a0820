//! Where an M without a P sleeps (on its note, in the epoll instance of a P that it attends to, or,
//! as the node's watcher, in the instance of a node), and what the M finds when it wakes.
//! `wait/POLLER.md` says why no event is lost.

use super::{requests, start};
use crate::os::bell::Bell;
use crate::os::epoll::{self, Event};
use crate::os::{oversleep, time};
use crate::sched::take::events::{self, Heir};
use crate::sched::types::m::MRef;
use crate::sched::types::node::Node;
use crate::sched::types::p::{PRef, PStatus};
use crate::sched::types::runtime::Runtime;
use crate::sched::wait::netpoll::{
    BELL, Events, arm, is_deserted, poll_after_queue, poll_into_inbox, stop_attending, take_events,
};
use core::sync::atomic::{Ordering, fence};
use core::{hint, ptr};

/// A watcher takes at most this number of P's with events out of its node's instance at once.
const FIRED: usize = 16;

/// Where an M without a P sleeps.
pub enum Post<'a> {
    /// The M sleeps on its note.
    Note,
    /// The M sleeps in the instance of the P that it ran last and now attends to.
    P(PRef),
    /// The M sleeps in the instance of a node, as the node's watcher.
    Node(&'a Node),
}

/// How a sleep has ended.
#[must_use]
pub struct Woken {
    /// Whether the M has been notified.
    pub notified: bool,
    /// Goroutines that events of files of the P `of` have made ready. Either this M attends to
    /// `of`, or another M runs `of`.
    found: Events,
    of: Option<PRef>,
    /// Ids of `n` P's that had events while no M attended to them. These P's are no longer armed.
    fired: [u16; FIRED],
    n: usize,
}

impl<'a> Post<'a> {
    /// Chooses where an M that attends to no P sleeps. The M becomes the watcher of a near node
    /// that needs a watcher, else of its own node. If these have watchers, the M sleeps on its
    /// note.
    pub fn find(rt: &'a Runtime, m: MRef) -> Post<'a> {
        if !rt.polls.load(Ordering::Acquire) {
            return Post::Note;
        }
        let own = &rt.nodes[m.node.get()];
        let near = || core::iter::once(own).chain(own.neighbours.iter().map(|&n| &rt.nodes[n]));
        let free = |n: &Node| n.poll.epoll().is_some() && !n.poll.has_watcher();
        let become_watcher = |n: &Node| {
            let (none, me) = (ptr::null_mut(), m.as_ptr());
            n.poll.watcher.compare_exchange(none, me, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        near()
            .find(|n| free(n) && needs_watcher(rt, n) && become_watcher(n))
            .or_else(|| Some(own).filter(|n| free(n) && become_watcher(n)))
            .map_or(Post::Note, Post::Node)
    }

    /// Whether an M at this post watches files. Such an M is taken out of its pool last.
    pub fn is_needed(&self) -> bool {
        !matches!(self, Post::Note)
    }

    /// Ends the M's watch at this post.
    pub fn leave(&self) {
        match self {
            Post::Note => {}
            Post::P(p) => stop_attending(*p),
            Post::Node(node) => node.poll.watcher.store(ptr::null_mut(), Ordering::Release),
        }
    }

    /// Finds another idle M to watch the node, if the node needs a watcher, when this M has left
    /// its post. If no M is idle, sysmon finds an M.
    pub fn pass_on(&self, rt: &Runtime) {
        let node = match self {
            Post::Note => return,
            Post::P(p) => p.of_node(),
            Post::Node(node) => node,
        };
        if !lacks_watcher(rt, node) {
            return;
        }
        match node.pop_idle_m() {
            Some(m) => start::give(m, None, None, false),
            // sysmon may have gone to sleep while this M was still at its post.
            None => rt.sysmon.wake_if_asleep(),
        }
    }

    /// Sleeps until the M is notified, the deadline (ns; negative: none) has passed or, unless the
    /// M sleeps on its note, a file has an event.
    pub fn sleep(&self, rt: &Runtime, m: MRef, deadline: i64) -> Woken {
        let began = time::now();
        let sleep = rt.oversleep.plan(began, deadline);
        let mut woken = self.sleep_until(m, sleep.until);
        let mut now = time::now();
        if !woken.has_cause() && began < sleep.until && sleep.until <= now {
            rt.oversleep.learn(sleep, now);
        }
        // `plan` ends the sleep a little early: spin until the deadline. If the deadline is still
        // far, another cause has ended the sleep.
        while !woken.has_cause() && now < deadline && deadline - now <= oversleep::MOST {
            woken = self.look(m);
            now = time::now();
        }
        woken
    }

    /// Checks once for what ends [`Post::sleep`], without sleeping.
    fn look(&self, m: MRef) -> Woken {
        match self {
            Post::Note => {
                hint::spin_loop();
                Woken { notified: m.take_note(), ..Woken::none() }
            }
            _ => self.sleep_until(m, 0),
        }
    }

    /// [`Post::sleep`] without making up for the kernel's late wake-ups.
    fn sleep_until(&self, m: MRef, deadline: i64) -> Woken {
        let mut woken = Woken::none();
        let bell = match self {
            Post::Note => None,
            Post::P(p) => p.poll.instance.bell(),
            Post::Node(node) => node.poll.instance.bell(),
        };
        if bell.is_none() {
            woken.notified = m.sleep(deadline);
            return woken;
        }
        m.sleeps_in(bell);
        woken.notified = m.take_note();
        if !woken.notified {
            match self {
                Post::P(p) => woken.found_at(*p, deadline),
                Post::Node(node) => woken.watch(node, deadline),
                Post::Note => {}
            }
            woken.notified = m.take_note();
        }
        m.sleeps_in(None);
        woken
    }
}

impl Woken {
    fn none() -> Woken {
        Woken { notified: false, found: Events::default(), of: None, fired: [0; FIRED], n: 0 }
    }

    /// A watcher's sleep that events of this P have ended.
    #[cfg(test)]
    pub fn for_events_of(p: PRef) -> Woken {
        let mut woken = Woken::none();
        (woken.fired[0], woken.n) = (p.id, 1);
        woken
    }

    /// A sleep after which these goroutines are in hand: events of the P's files have made them
    /// ready.
    #[cfg(test)]
    pub fn with_found(of: PRef, found: Events) -> Woken {
        Woken { found, of: Some(of), ..Woken::none() }
    }

    /// Whether something other than the time has ended the sleep.
    fn has_cause(&self) -> bool {
        self.notified || self.found.len() > 0 || self.n > 0
    }

    /// Waits for events of the P's files until the deadline (ns; 0: no wait), and takes them.
    fn found_at(&mut self, p: PRef, deadline: i64) {
        self.found = take_events(p, deadline);
        self.of = Some(p).filter(|_| self.found.len() > 0);
    }

    fn watch(&mut self, node: &Node, deadline: i64) {
        let Some(epoll) = node.poll.epoll() else { return };
        let mut events = [epoll::NONE; FIRED];
        let n = epoll::wait(epoll, &mut events, deadline);
        for &Event { u64: data, .. } in &events[..n] {
            match data {
                // The caller takes its note afterwards.
                BELL => node.poll.instance.bell().into_iter().for_each(Bell::heard),
                _ => {
                    self.fired[self.n] = data as u16;
                    self.n += 1;
                }
            }
        }
    }

    /// Takes a P for the events: one of the P's that have events, if it is idle or in a system
    /// call, else any idle P of the node. Takes the events of a P that another M runs, because its
    /// goroutine may compute or begin a call next. Arms the other idle P's with events for the next
    /// watcher.
    #[must_use]
    pub fn take_p(&mut self, rt: &Runtime) -> Option<PRef> {
        let take = |p: PRef| rt.take_idle_p(p) || p.take_from_call(PStatus::Idle);
        let mut taken = self.of.filter(|&p| take(p));
        for id in self.fired_ps() {
            let p = rt.p(id);
            disarm(p);
            if taken.is_none() && take(p) {
                taken = Some(p);
            } else if settle(p) == Settled::NotSeen {
                self.take_events_of(p);
            }
        }
        taken.or_else(|| self.of.and_then(|p| rt.take_idle_p_of(p.of_node())))
    }

    /// Takes the ids of the P's that had events. The caller disarms and settles each.
    fn fired_ps(&mut self) -> impl Iterator<Item = usize> + use<> {
        let n = core::mem::take(&mut self.n);
        self.fired.into_iter().take(n).map(usize::from)
    }

    /// Takes the events of a P that another M runs. Events already in hand go to the inbox of their
    /// P.
    fn take_events_of(&mut self, p: PRef) {
        if let Some(before) = self.of.take() {
            core::mem::take(&mut self.found).into_inbox(before);
        }
        self.found_at(p, 0);
    }

    /// If the goroutine of the P whose events are in hand computes, takes that P, or another P of
    /// the node.
    #[must_use]
    pub fn take_computing_p(&self, rt: &Runtime) -> Option<PRef> {
        let home = self.of.filter(|_| !requests::is_stopping())?;
        events::take_p(rt, home, time::now(), Heir::Taker)
    }

    /// Leaves the events to their P's: the M has something else to do.
    pub fn leave_events(mut self, rt: &Runtime) {
        for id in self.fired_ps() {
            let p = rt.p(id);
            disarm(p);
            if settle(p) == Settled::NotSeen {
                poll_into_inbox(p);
            }
        }
        self.deliver_to_inbox();
    }

    /// Queues the goroutines that events have made ready in the inbox of their P.
    pub fn deliver_to_inbox(self) {
        if let Some(p) = self.of {
            self.found.into_inbox(p);
        }
    }

    /// Queues the goroutines that events have made ready on the P that the M has taken for them. If
    /// that P serves the events of a P whose goroutine computes (`P::serves`), the goroutines go to
    /// the inbox of the latter.
    pub fn deliver(self, m: MRef) {
        let p = m.p();
        if self.of.is_some() && p.serves.load(Ordering::Relaxed) == 0 {
            self.found.into_queues(p);
            poll_after_queue(p);
        } else {
            self.deliver_to_inbox();
        }
    }
}

/// Marks the P as not armed: its event has come.
fn disarm(p: PRef) {
    // SeqCst, and the fence: see `arm`.
    p.poll.armed.store(false, Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// Which thread sees the events of a P that is not armed any more.
#[derive(PartialEq, Eq)]
enum Settled {
    /// The M that attends to the P, the next watcher, or this thread, which has taken them.
    Seen,
    /// Perhaps no thread: the M that runs the P polls if it makes decisions, but its goroutine may
    /// compute or begin a call.
    NotSeen,
}

/// Finds which thread sees the events of a P that is not armed any more. Arms an idle P again, for
/// the next watcher.
fn settle(p: PRef) -> Settled {
    match p.status() {
        _ if p.poll.is_attended() => {}
        PStatus::Idle => arm(p),
        PStatus::Dead => {
            poll_into_inbox(p);
            arm(p);
        }
        _ => return Settled::NotSeen,
    }
    Settled::Seen
}

/// Whether the node has a P to which no M attends, and goroutines wait for that P's files.
fn needs_watcher(rt: &Runtime, node: &Node) -> bool {
    let deserted =
        |p: &PRef| p.node as usize == node.id && p.poll.is_waited_for() && is_deserted(*p);
    rt.all_made_ps().any(|p| deserted(&p))
}

/// Whether P's of the node need a watcher, and the node has none.
pub fn lacks_watcher(rt: &Runtime, node: &Node) -> bool {
    node.poll.epoll().is_some() && !node.poll.has_watcher() && needs_watcher(rt, node)
}

/// Wakes or makes an M that watches the node of a P that was left idle, if the node lacks a
/// watcher. Returns false if no M is idle and none can be made.
pub fn ensure_watched(rt: &Runtime, node: &Node) -> bool {
    if !rt.polls.load(Ordering::Relaxed) || !lacks_watcher(rt, node) {
        return true;
    }
    let idle = || node.neighbours.iter().find_map(|&n| rt.nodes[n].pop_idle_m());
    let m = node.pop_idle_m().or_else(|| start::new_m(rt, node.id)).or_else(idle);
    if let Some(m) = m {
        start::give(m, None, None, false);
    }
    m.is_some()
}
