//! The network poller: goroutines that wait for files, and the threads that look
//! whether something has happened. seed: N6, N8, B2
//!
//! A P has an epoll instance, in which the files are that were first waited for on
//! it; its owner looks there when it has nothing else to do, and now and then, and
//! sleeps in it when it gives the P up. A node has one that holds those of its P's:
//! an idle M, the node's watcher, sleeps in it for P's that no other M attends to. All
//! are made when they are first needed. Which file an event is for, and
//! who waits for it, is the business of the room above (`io`), which gives its
//! functions to [`set_hooks`]. `POLLER.md` says why no event is lost.

use super::ready;
use super::start;
use crate::os::bell::{AtomicBell, Bell};
use crate::os::epoll::{self, Event};
use crate::os::time;
use crate::sched::who::g::{GRef, Status};
use crate::sched::who::m::MRef;
use crate::sched::who::node::Node;
use crate::sched::who::p::{self, PRef, status};
use crate::sched::who::runtime::{Runtime, rt};
use crate::sched::who::task::{Batch, Kind, Task};
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering, fence};

/// Events taken with one look.
const EVENTS: usize = 128;
/// A busy P looks at its files once in this number of scheduling decisions at least.
const TICKS: u32 = 128;
/// And not before this number of decisions after the last look.
const LEAST_TICKS: u32 = 4;
/// How long a busy P aims to go without a look at its files, in ns, within `LEAST_TICKS` and `TICKS`.
const LOOK_GAP: i64 = 40_000;
/// What a look finds queues behind what waits already, so the next look may wait until this part of the queue has run.
const PART_OF_QUEUE: u32 = 4;
/// The data of an instance's bell; other numbers are files', or P's.
const BELL: u64 = u64::MAX;
/// P's that a watcher takes note of at once.
const FIRED: usize = 16;

/// What the room above does.
pub struct Hooks {
    /// An event of a file: the data that it was added with, and what has happened.
    /// Gives whoever is to run for it to `found`.
    pub event: fn(data: u64, events: u32, found: &mut Found),
    /// Called by sysmon each few ms while the poller is in use. True: it has to be
    /// called once more.
    pub verify: fn() -> bool,
    /// The runtime has ended.
    pub ended: fn(),
}

static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(ptr::null_mut());

/// Tells the poller what to do with events; always the same.
pub fn set_hooks(hooks: &'static Hooks) {
    HOOKS.store(ptr::from_ref(hooks).cast_mut(), Ordering::Release);
}

fn hooks() -> Option<&'static Hooks> {
    // SAFETY: null or what `set_hooks` was given; Acquire: pairs with its Release.
    unsafe { HOOKS.load(Ordering::Acquire).as_ref() }
}

/// The runtime has ended: the room above gives back what it has kept for it.
pub fn ended() {
    if let Some(hooks) = hooks() {
        (hooks.ended)();
    }
}

/// Who is made ready by one look at an instance.
#[derive(Default)]
pub struct Found {
    writes: Batch,
    reads: Batch,
    accepts: Batch,
}

/// What a goroutine has waited for: how soon it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Write,
    Read,
    Accept,
}

impl Found {
    /// The goroutine is the poller's from here on.
    pub fn add(&mut self, g: GRef, class: Class) {
        g.set_status(Status::Runnable);
        match class {
            Class::Write => self.writes.push(Task::goroutine(g)),
            Class::Read => self.reads.push(Task::goroutine(g)),
            Class::Accept => self.accepts.push(Task::goroutine(g)),
        }
    }

    fn len(&self) -> usize {
        self.writes.len() + self.reads.len() + self.accepts.len()
    }

    /// Into the queues of the caller's P: those who write run first, then those who
    /// read. But behind whatever waits already, which might never have its turn
    /// else. seed: N8
    pub(super) fn into_queues(self, p: PRef) {
        // One alone is the caller's own next work.
        let for_others = self.len() > 1 || p.has_work();
        let runq = &p.of_node().runq;
        let (mut in_order, accepts) = ([self.writes, self.reads], self.accepts);
        if !runq.is_empty() {
            in_order.into_iter().chain([accepts]).for_each(|b| push_each(b, |t| runq.push(t)));
        } else {
            if p.has_work() {
                in_order.into_iter().for_each(|b| push_each(b, |t| ready::push_shared(p, t)));
            } else {
                // What is pushed last runs first.
                in_order.reverse();
                let push = |task| ready::push_private_quietly(p, task);
                in_order.into_iter().for_each(|b| push_each(b.reversed(), push));
            }
            push_each(accepts, |task| ready::push_shared(p, task));
        }
        if for_others && !p.alone.get() {
            start::work_added(None, p.node as usize);
        }
    }

    /// Into the inbox of a P that another M runs.
    pub(super) fn into_inbox(self, p: PRef) {
        for batch in [self.writes, self.reads, self.accepts] {
            push_each(batch, |task| {
                if !p.inbox.try_push(task) {
                    ready::push_global(task, crate::sched::who::node::priority::NORMAL);
                }
            });
        }
        ready::event_added(rt(), p);
    }
}

/// Pushes each, or makes it ready as its own properties ask for.
fn push_each(mut batch: Batch, push: impl Fn(Task)) {
    let mut n = 0;
    while let Some(task) = batch.pop() {
        // The first and each eighth: of a batch some, of single events all.
        if n % 8 == 0
            && let Kind::Goroutine(g) = task.kind()
        {
            ready::measure_wait(g, time::now());
        }
        n += 1;
        if !ready::ready_if_special(task) {
            push(task);
        }
    }
}

// Files that are waited for

/// The P whose instance a file is added to that is waited for on `p`: this one,
/// or one that has an instance if there is none to be had. A negative errno value
/// if there is no such.
pub fn home_for(rt: &Runtime, p: PRef) -> Result<PRef, i32> {
    if p.poll.epoll() >= 0 {
        return Ok(p);
    }
    match rt.making_polls.with(|| make_instance(rt, p)) {
        Ok(()) => Ok(p),
        Err(e) => rt.ps().find(|p| p.poll.epoll() >= 0).ok_or(e),
    }
}

/// The lock of those who make some is held.
fn make_instance(rt: &Runtime, p: PRef) -> Result<(), i32> {
    if p.poll.epoll() >= 0 {
        return Ok(());
    }
    let node = p.of_node();
    let of_node = match node.poll.epoll() {
        Some(fd) => fd,
        None => {
            let (fd, bell) = make_epoll_with_bell()?;
            node.poll.bell.store(Some(bell));
            // Release: the bell goes along.
            node.poll.epoll.store(fd, Ordering::Release);
            fd
        }
    };
    let (fd, bell) = make_epoll_with_bell()?;
    if let Err(e) = epoll::add(of_node, fd, epoll::ONCE, u64::from(p.id)) {
        bell.close();
        epoll::close(fd);
        return Err(e);
    }
    p.poll.bell.store(Some(bell));
    // Release: pairs with the Acquire of those who use it; the bell goes along.
    p.poll.epoll.store(fd, Ordering::Release);
    rt.polls.store(true, Ordering::Release);
    Ok(())
}

fn make_epoll_with_bell() -> Result<(i32, Bell), i32> {
    let fd = epoll::create()?;
    let bell = Bell::new().inspect_err(|_| epoll::close(fd))?;
    // Each ring is told, see `Bell::heard`.
    if let Err(e) = epoll::add(fd, bell.to_poll(), epoll::IN | epoll::EDGE, BELL) {
        bell.close();
        epoll::close(fd);
        return Err(e);
    }
    Ok((fd, bell))
}

/// Closes everything: no M polls any more.
pub fn close_all(rt: &Runtime) {
    let close = |instance: &AtomicI32, bell: &AtomicBell| {
        let fd = instance.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            epoll::close(fd);
        }
        if let Some(made) = bell.load() {
            bell.store(None);
            made.close();
        }
    };
    rt.all_made_ps().for_each(|p| close(&p.poll.epoll, &p.poll.bell));
    rt.nodes.iter().for_each(|n| close(&n.poll.epoll, &n.poll.bell));
}

/// A goroutine is about to wait for a file of this P's instance; it holds the
/// file's lock, so it can't be woken yet.
pub fn wait_begins(home: PRef) {
    if home.poll.waiting.fetch_add(1, Ordering::SeqCst) == 0 {
        p::look_at_the_clock(home);
    }
    // Pairs with the fences in `make_idle` and `stop_attending`: either who leaves the
    // P sees that it is waited for, or we see that nobody attends to it.
    fence(Ordering::SeqCst);
    if is_deserted(home) {
        arm(home);
    }
}

/// No M runs the P or sleeps in its instance.
fn is_deserted(p: PRef) -> bool {
    matches!(p.status(), status::IDLE | status::DEAD) && !p.poll.is_attended()
}

/// It runs again.
pub fn wait_ends(home: PRef) {
    home.poll.waiting.fetch_sub(1, Ordering::Relaxed);
}

/// Whether any goroutine waits for a file.
pub fn anybody_waits(rt: &Runtime) -> bool {
    rt.polls.load(Ordering::Relaxed) && rt.all_made_ps().any(|p| p.poll.is_waited_for())
}

/// The P has become idle, or will never run again: from here on the next event of
/// its files, also one that is there already, ends the sleep of whoever attends to
/// it, or of its node's watcher.
#[inline]
pub fn nobody_runs(p: PRef) {
    if p.poll.is_waited_for() && !p.poll.is_attended() {
        arm(p);
    }
}

/// The M that runs the P is about to make it idle and will sleep in its instance;
/// it says so by [`Post::leave`] when it doesn't, or no longer. False: nobody waits
/// there, or another M sleeps there already.
pub fn attend(p: PRef) -> bool {
    p.poll.is_waited_for() && !p.poll.attended.swap(true, Ordering::Relaxed)
}

/// The M doesn't sleep in the instance of the P any more.
fn stop_attending(p: PRef) {
    p.poll.attended.store(false, Ordering::Relaxed);
    // Pairs with those in `wait_begins` and `make_idle`.
    fence(Ordering::SeqCst);
    if p.poll.is_waited_for() && is_deserted(p) {
        arm(p);
    }
}

fn arm(p: PRef) {
    // SeqCst: pairs with the clearing in `sleep`: either we see it cleared, or the
    // watcher that has cleared it sees that the P is idle.
    if !p.poll.armed.swap(true, Ordering::SeqCst)
        && let Some(of_node) = p.of_node().poll.epoll()
    {
        let wanted = epoll::IN | epoll::ONCE;
        let _ = epoll::change(of_node, p.poll.epoll(), wanted, u64::from(p.id));
    }
}

// Looking

/// Whether it is time that the busy owner looks.
#[inline(always)]
pub fn is_due(p: PRef) -> bool {
    p.poll.is_waited_for()
        && p.tick.load(Ordering::Relaxed).wrapping_sub(p.poll.looked_at.get()) >= p.poll.ticks.get()
}

/// Whether the owner of a P is late with its look at the files, so that a thief looks instead. Each look is a system
/// call. (The watcher looks for P's that no M runs.)
pub fn is_neglected(p: PRef) -> bool {
    p.poll.is_waited_for()
        && p.status() == status::RUNNING
        && time::now() - p.poll.last_look() >= LOOK_GAP
}

/// After how many decisions it is time for a look, if a goroutine waits for a file.
pub fn ticks_between_looks(p: PRef) -> u32 {
    if p.poll.is_waited_for() { p.poll.ticks.get() } else { TICKS }
}

/// Makes ready on the caller's P whoever waits for what has happened in the
/// instance of `of`, its own P or another. On g0. Gives how many there are.
pub fn look(m: MRef, of: PRef) -> usize {
    let p = m.p();
    let before = of.poll.last_look();
    let found = take_events(of, 0);
    if of == p {
        let tick = p.tick.load(Ordering::Relaxed);
        let decisions = i64::from(tick.wrapping_sub(p.poll.looked_at.replace(tick)));
        let took = (of.poll.last_look() - before).max(1);
        let ticks = (decisions * LOOK_GAP / took).clamp(i64::from(LEAST_TICKS), i64::from(TICKS));
        p.poll.ticks.set(ticks as u32);
    }
    let n = found.len();
    if n > 0 {
        found.into_queues(p);
        if of == p {
            let waiting = p.shared.len() as u32 / PART_OF_QUEUE;
            p.poll.ticks.set(p.poll.ticks.get().max(waiting.min(TICKS)));
        }
    }
    n
}

/// The same for those who have no P: whoever is found goes to the P's inbox.
pub fn look_from_outside(of: PRef) -> bool {
    let found = take_events(of, 0);
    let any = found.len() > 0;
    if any {
        found.into_inbox(of);
    }
    any
}

/// Waits for events until the deadline (ns; negative: none; 0: only looks).
fn take_events(of: PRef, deadline: i64) -> Found {
    let mut found = Found::default();
    let epoll = of.poll.epoll();
    if epoll >= 0
        && let Some(hooks) = hooks()
    {
        let mut events = [epoll::NONE; EVENTS];
        let n = epoll::wait(epoll, &mut events, deadline);
        of.poll.last_look.store(time::now(), Ordering::Relaxed);
        for &Event { events, u64: data } in &events[..n] {
            match data {
                // Not for the one who looks, but for the M that sleeps here.
                BELL => hear(of, deadline == 0),
                _ => (hooks.event)(data, events, &mut found),
            }
        }
    }
    found
}

/// The bell of the P's instance was rung, and the caller was told. If it only looks this was
/// not for the caller, but for the M that sleeps there.
fn hear(of: PRef, only_looks: bool) {
    let Some(bell) = of.poll.bell.load() else { return };
    bell.heard();
    // After `heard`, which may have taken a later ring: who rang it for an M has seen that the
    // M sleeps here, and so it is attended.
    if only_looks && of.poll.is_attended() {
        bell.ring();
    }
}

// Sleeping

/// Where an M without a P sleeps.
pub enum Post<'a> {
    /// On its note.
    Note,
    /// In the instance of the P that it ran last and now attends to.
    P(PRef),
    /// In that of a node: it is the watcher.
    Node(&'a Node),
}

/// How a sleep has ended.
#[must_use]
pub struct Woken {
    /// The M has been notified.
    pub notified: bool,
    /// Who is made ready by the events of the P that the M attends to.
    found: Found,
    /// P's that had events when no M attended to them. They are not armed any more.
    fired: [u16; FIRED],
    n: usize,
}

impl<'a> Post<'a> {
    /// Where an M sleeps that attends to no P: it is the watcher of a node that has
    /// none, its own or one that needs somebody, or sleeps as others do.
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

    /// Whether others need the M where it is.
    pub fn is_needed(&self) -> bool {
        !matches!(self, Post::Note)
    }

    /// The M leaves it.
    pub fn leave(&self) {
        match self {
            Post::Note => {}
            Post::P(p) => stop_attending(*p),
            Post::Node(node) => node.poll.watcher.store(ptr::null_mut(), Ordering::Release),
        }
    }

    /// The M has left it to do other work, or for good: another idle M watches the node
    /// now, if somebody must; if there is none sysmon sees to that.
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
            // It may have gone to sleep while the M was still there.
            None => rt.sysmon.wake_if_asleep(),
        }
    }

    /// The M sleeps until it is notified, the deadline (ns; negative: none) has passed
    /// or, unless it sleeps on its note, something has happened with a file.
    pub fn sleep(&self, m: MRef, deadline: i64) -> Woken {
        let mut woken = Woken { notified: false, found: Found::default(), fired: [0; FIRED], n: 0 };
        let bell = match self {
            Post::Note => {
                woken.notified = m.sleep(deadline);
                return woken;
            }
            Post::P(p) => &p.poll.bell,
            Post::Node(node) => &node.poll.bell,
        };
        m.sleeps_in(bell.load());
        woken.notified = m.take_note();
        if !woken.notified {
            match self {
                Post::P(p) => woken.found = take_events(*p, deadline),
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
    fn watch(&mut self, node: &Node, deadline: i64) {
        let Some(epoll) = node.poll.epoll() else { return };
        let mut events = [epoll::NONE; FIRED];
        let n = epoll::wait(epoll, &mut events, deadline);
        for &Event { u64: data, .. } in &events[..n] {
            match data {
                // The caller looks at its note after this.
                BELL => node.poll.bell.load().into_iter().for_each(Bell::heard),
                _ => {
                    self.fired[self.n] = data as u16;
                    self.n += 1;
                }
            }
        }
    }

    fn ps<'a>(&'a self, rt: &'a Runtime) -> impl Iterator<Item = PRef> + 'a {
        self.fired[..self.n].iter().map(|&id| rt.p(id as usize))
    }

    /// Takes one of the idle P's that have events; sees to the others.
    pub fn take_p(&self, rt: &Runtime, post: &Post) -> Option<PRef> {
        let take = |p: PRef| rt.take_idle_p(p);
        let mut taken = match post {
            Post::P(p) if self.found.len() > 0 && take(*p) => Some(*p),
            _ => None,
        };
        for p in self.ps(rt) {
            disarm(p);
            if taken.is_none() && take(p) {
                taken = Some(p);
            } else {
                settle(p);
            }
        }
        taken
    }

    /// The M has something else to do: others see to the P's that had events.
    pub fn leave_ps(&self, rt: &Runtime) {
        for p in self.ps(rt) {
            disarm(p);
            settle(p);
        }
    }

    /// Whoever is ready runs: on the M's P, if that is the one it has attended to, else
    /// where that one is.
    pub fn deliver(self, m: MRef, post: &Post) {
        match post {
            Post::P(p) if self.found.len() > 0 => match m.p.get() == p.as_ptr() {
                true => self.found.into_queues(*p),
                false => self.found.into_inbox(*p),
            },
            _ => {}
        }
    }
}

/// The event that it was armed for has come.
fn disarm(p: PRef) {
    // SeqCst, and the fence: see `arm`.
    p.poll.armed.store(false, Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// A P with events, not armed any more: if it is idle the next watcher is to see
/// them, if it is run its owner does, and who attends to it sees them anyway.
fn settle(p: PRef) {
    match p.status() {
        _ if p.poll.is_attended() => {}
        status::IDLE => arm(p),
        status::DEAD => {
            look_from_outside(p);
            arm(p);
        }
        _ => {}
    }
}

/// Whether P's that no M attends to have files that are waited for.
fn needs_watcher(rt: &Runtime, node: &Node) -> bool {
    let deserted =
        |p: &PRef| p.node as usize == node.id && p.poll.is_waited_for() && is_deserted(*p);
    rt.all_made_ps().any(|p| deserted(&p))
}

fn lacks_watcher(rt: &Runtime, node: &Node) -> bool {
    node.poll.epoll().is_some() && !node.poll.has_watcher() && needs_watcher(rt, node)
}

/// Somebody has left an idle P alone: an M sleeps for its node, a new one if need
/// be. False: there is none to be had.
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

// sysmon

/// What sysmon remembers.
pub struct Sysmon {
    /// Since when a node lacks a watcher, in ns; 0: it doesn't.
    lacking: Vec<i64>,
    verify_at: i64,
}

/// A node may be without a watcher for so long, in ns: one is on its way as a rule.
const PATIENCE: i64 = 1_000_000;
/// How often waits are verified.
const VERIFY_EVERY: i64 = 50_000_000;

impl Sysmon {
    pub fn new() -> Sysmon {
        Sysmon { lacking: Vec::new(), verify_at: 0 }
    }

    /// Looks for nodes without a watcher. True: an M was found for one.
    pub fn look(&mut self, rt: &Runtime, now: i64) -> bool {
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
                if p.poll.is_waited_for() && is_deserted(p) {
                    found |= look_from_outside(p);
                }
            }
            if *since == 0 {
                *since = now;
            } else if now - *since >= PATIENCE {
                ensure_watched(rt, node);
                *since = 0;
            }
        }
        if now >= self.verify_at
            && let Some(hooks) = hooks()
        {
            (hooks.verify)();
            self.verify_at = now + VERIFY_EVERY.max(10 * (time::now() - now));
        }
        found
    }

    /// Whether every file that is waited for is looked after without sysmon.
    pub fn may_sleep(rt: &Runtime) -> bool {
        rt.nodes.iter().all(|n| ensure_watched(rt, n) && !lacks_watcher(rt, n))
            && !hooks().is_some_and(|hooks| rt.polls.load(Ordering::Acquire) && (hooks.verify)())
    }
}
