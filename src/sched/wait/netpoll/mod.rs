//! The network poller: goroutines that wait for files, and the M's that poll for events.
//! seed: N6, N8, B2
//!
//! A P has an epoll instance with the files for which goroutines first waited on that P. The P's
//! owner polls the instance when it has nothing else to do, and at intervals while it is busy; it
//! sleeps in the instance when it gives the P up. A node has an epoll instance with the instances
//! of its P's: an idle M, the node's watcher, sleeps there for P's that no other M attends to
//! (`run::post`). Instances are made when they are first needed. The room above (`io`) knows which
//! file an event is for and which goroutines wait for it, and gives its functions to [`set_hooks`].
//! `POLLER.md` says why no event is lost.

pub mod state;

use crate::os::bell::Bell;
use crate::os::epoll::{self, Event};
use crate::os::time;
use crate::sched::run::{ready, start};
use crate::sched::types::g::{GRef, Status};
use crate::sched::types::m::MRef;
use crate::sched::types::node::priority;
use crate::sched::types::p::{self, PRef, PStatus};
use crate::sched::types::runtime::{Runtime, rt};
use crate::sched::types::task::{Batch, Task, TaskKind};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering, fence};

/// The most events that one poll takes.
const EVENTS: usize = 128;
/// The most scheduling decisions that a busy P makes between two polls.
const TICKS: u32 = 128;
/// The fewest scheduling decisions that a busy P makes between two polls.
const LEAST_TICKS: u32 = 4;
/// The time between two polls that a busy P aims for, in ns, within `LEAST_TICKS` and `TICKS`.
const POLL_GAP: i64 = 40_000;
/// The epoll data of an instance's bell; other numbers stand for files (in a P's instance) or P's
/// (in a node's).
pub const BELL: u64 = u64::MAX;

/// The functions of the room above.
pub struct FileHooks {
    /// Handles an event of a file. `data`: as the file was added; `events`: what has happened.
    /// Gives the goroutines that are to run for the event to `found`.
    pub event: fn(data: u64, events: u32, found: &mut Events),
    /// Verifies waits for files: see [`verify`].
    pub verify: fn(from: i32, until: i64) -> Option<i32>,
    /// Whether there are waits to verify that the present pass may have missed.
    pub is_to_verify: fn() -> bool,
    /// See [`ended`].
    pub ended: fn(),
}

static HOOKS: AtomicPtr<FileHooks> = AtomicPtr::new(ptr::null_mut());

/// Sets the functions of the room above. All calls pass the same table.
pub fn set_hooks(hooks: &'static FileHooks) {
    HOOKS.store(ptr::from_ref(hooks).cast_mut(), Ordering::Release);
}

fn hooks() -> Option<&'static FileHooks> {
    // SAFETY: null or the table that `set_hooks` was given; Acquire: pairs with its Release.
    unsafe { HOOKS.load(Ordering::Acquire).as_ref() }
}

/// For sysmon, which verifies in passes: verifies the waits of the room above, from the file with
/// the number `from` (0 begins a pass) on, until the time `until` (ns). Returns the `from` of the
/// next call; `None`: the pass is over.
pub fn verify(from: i32, until: i64) -> Option<i32> {
    hooks().and_then(|hooks| (hooks.verify)(from, until))
}

/// Whether another pass has to begin.
pub fn is_to_verify() -> bool {
    hooks().is_some_and(|hooks| (hooks.is_to_verify)())
}

/// Makes the room above give back what it has kept for the runtime, which has ended.
pub fn ended() {
    if let Some(hooks) = hooks() {
        (hooks.ended)();
    }
}

/// The goroutines that one poll of an instance makes ready.
#[derive(Default)]
pub struct Events {
    writes: Batch,
    reads: Batch,
    accepts: Batch,
}

/// The kind of a goroutine's wait, which decides how soon the goroutine runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EventClass {
    Write,
    Read,
    Accept,
}

impl Events {
    /// Takes a goroutine, which the caller owns.
    pub fn add(&mut self, g: GRef, class: EventClass) {
        g.set_status(Status::Runnable);
        match class {
            EventClass::Write => self.writes.push(Task::goroutine(g)),
            EventClass::Read => self.reads.push(Task::goroutine(g)),
            EventClass::Accept => self.accepts.push(Task::goroutine(g)),
        }
    }

    pub fn len(&self) -> usize {
        self.writes.len() + self.reads.len() + self.accepts.len()
    }

    /// Moves the goroutines into the queues of the caller's P: those that waited to write run
    /// first, then those that waited to read. All run after the tasks that wait already, which
    /// might never have their turn otherwise. seed: N8
    pub fn into_queues(self, p: PRef) {
        // A single goroutine is the caller's own next work.
        let for_others = self.len() > 1 || p.has_work();
        let runq = &p.of_node().runq;
        let (mut in_order, accepts) = ([self.writes, self.reads], self.accepts);
        if !runq.is_empty() {
            in_order.into_iter().chain([accepts]).for_each(|b| push_each(b, |t| runq.push(t)));
        } else {
            if p.has_work() {
                in_order.into_iter().for_each(|b| push_each(b, |t| ready::push_shared(p, t)));
            } else {
                // The task that is pushed last runs first.
                in_order.reverse();
                let push = |task| ready::push_private_quietly(p, task);
                in_order.into_iter().for_each(|b| push_each(b.reversed(), push));
            }
            push_each(accepts, |task| ready::push_shared(p, task));
        }
        if for_others && !p.alone.get() {
            start::work_added_on(p);
        }
    }

    /// Moves the goroutines into the inbox of a P that another M runs.
    pub fn into_inbox(self, p: PRef) {
        for batch in [self.writes, self.reads, self.accepts] {
            push_each(batch, |task| {
                if let Err(task) = p.inbox.try_push(task) {
                    ready::push_global(task, priority::NORMAL);
                }
            });
        }
        ready::event_added(rt(), p);
    }
}

/// Calls `push` with each task, but puts tasks that belong in a special queue there.
fn push_each(mut batch: Batch, push: impl Fn(Task)) {
    let mut n = 0;
    while let Some(task) = batch.pop() {
        // Measures the first task of a batch and every eighth: all single events, and a part of
        // long batches.
        if n % 8 == 0
            && let TaskKind::Goroutine(g) = task.kind()
        {
            ready::measure_wait(g, time::now());
        }
        n += 1;
        if !ready::ready_if_special(&task) {
            push(task);
        }
    }
}

// Files that are waited for

/// The P whose instance gets a file for which a goroutine waits on `p`: `p`, or another P with an
/// instance if `p` can't have one. A negative errno value if no P has an instance.
pub fn home_for(rt: &Runtime, p: PRef) -> Result<PRef, i32> {
    if p.poll.epoll() >= 0 {
        return Ok(p);
    }
    match rt.making_polls.with(|| make_instance(rt, p)) {
        Ok(()) => Ok(p),
        Err(e) => rt.ps().find(|p| p.poll.epoll() >= 0).ok_or(e),
    }
}

/// Makes the P's instance, and its node's, if they are not there. The caller holds `making_polls`.
fn make_instance(rt: &Runtime, p: PRef) -> Result<(), i32> {
    if p.poll.epoll() >= 0 {
        return Ok(());
    }
    let node = p.of_node();
    let of_node = match node.poll.epoll() {
        Some(fd) => fd,
        None => {
            let (fd, bell) = make_epoll_with_bell()?;
            node.poll.instance.publish(fd, bell);
            fd
        }
    };
    let (fd, bell) = make_epoll_with_bell()?;
    if let Err(e) = epoll::add(of_node, fd, epoll::ONCE, u64::from(p.id)) {
        bell.close();
        epoll::close(fd);
        return Err(e);
    }
    p.poll.instance.publish(fd, bell);
    // Release: pairs with the Acquire loads of `polls` in `Post::find` and `PollerCheck::check`.
    rt.polls.store(true, Ordering::Release);
    Ok(())
}

fn make_epoll_with_bell() -> Result<(i32, Bell), i32> {
    let fd = epoll::create()?;
    let bell = Bell::new().inspect_err(|_| epoll::close(fd))?;
    // Edge-triggered, so that the kernel reports each ring: see `Bell::heard`.
    if let Err(e) = epoll::add(fd, bell.to_poll(), epoll::IN | epoll::EDGE, BELL) {
        bell.close();
        epoll::close(fd);
        return Err(e);
    }
    Ok((fd, bell))
}

/// Closes all instances and bells. No M may poll any more.
pub fn close_all(rt: &Runtime) {
    rt.all_made_ps().chain(rt.made_bubble_ps()).for_each(|p| p.poll.instance.close());
    rt.nodes.iter().for_each(|n| n.poll.instance.close());
}

/// Counts the calling goroutine, which is about to wait for a file of this P's instance. It holds
/// the file's lock, so it can't be woken yet.
pub fn wait_begins(home: PRef) {
    if home.poll.waiting.fetch_add(1, Ordering::SeqCst) == 0 {
        p::read_clock_next(home);
    }
    // Pairs with the fences in `make_idle` and `stop_attending`: either the M that leaves the P
    // sees this goroutine's count, or this goroutine sees that no M attends to the P.
    fence(Ordering::SeqCst);
    if is_deserted(home) {
        arm(home);
    }
}

/// Whether no M runs the P or sleeps in its instance.
pub fn is_deserted(p: PRef) -> bool {
    matches!(p.status(), PStatus::Idle | PStatus::Dead) && !p.poll.is_attended()
}

/// Undoes [`wait_begins`]: the goroutine runs again.
pub fn wait_ends(home: PRef) {
    home.poll.waiting.fetch_sub(1, Ordering::Relaxed);
}

/// Whether any goroutine waits for a file.
pub fn any_file_is_waited_for(rt: &Runtime) -> bool {
    rt.polls.load(Ordering::Relaxed) && rt.all_made_ps().any(|p| p.poll.is_waited_for())
}

/// For a P that has become idle, or will never run again. From here on the next event of its files,
/// or an event that is there already, ends the sleep of the M that attends to the P, or of the
/// node's watcher.
#[inline]
pub fn runner_left(p: PRef) {
    if p.poll.is_waited_for() && !p.poll.is_attended() {
        arm(p);
    }
}

/// For the M that runs the P and is about to leave it (idle, or back to a goroutine that computes)
/// and sleep in its instance; `Post::leave` undoes this. False: no goroutine waits for its files,
/// or another M sleeps there already.
pub fn attend(p: PRef) -> bool {
    p.poll.is_waited_for() && !p.poll.attended.swap(true, Ordering::Relaxed)
}

/// Undoes [`attend`].
pub fn stop_attending(p: PRef) {
    p.poll.attended.store(false, Ordering::Relaxed);
    // Pairs with the fences in `wait_begins` and `make_idle`: the thread that fences last sees the
    // stores that the others made before.
    fence(Ordering::SeqCst);
    if p.poll.is_waited_for() && is_deserted(p) {
        arm(p);
    }
}

/// Lets the next event of the P's files, or an event that is there already, wake the node's
/// watcher, once.
pub fn arm(p: PRef) {
    // SeqCst: pairs with `disarm`: either this thread sees `armed` cleared, or the watcher that has
    // cleared it sees that the P is idle.
    if !p.poll.armed.swap(true, Ordering::SeqCst)
        && let Some(of_node) = p.of_node().poll.epoll()
    {
        let wanted = epoll::IN | epoll::ONCE;
        let _ = epoll::change(of_node, p.poll.epoll(), wanted, u64::from(p.id));
    }
}

// Polling

/// Whether it is time for the P's busy owner to poll.
#[inline(always)]
pub fn is_due(p: PRef) -> bool {
    p.poll.is_waited_for()
        && p.tick.load(Ordering::Relaxed).wrapping_sub(p.poll.polled_at.get()) >= p.poll.ticks.get()
}

/// Whether the owner of a running P is late with its poll, so that another M polls instead. (Each
/// poll is a system call. The node's watcher polls for P's that no M runs.)
pub fn is_neglected(p: PRef) -> bool {
    p.poll.is_waited_for()
        && p.status() == PStatus::Running
        && time::now() - p.poll.last_poll() >= POLL_GAP
}

/// The number of decisions between two polls; `TICKS` if no goroutine waits for a file.
pub fn ticks_between_polls(p: PRef) -> u32 {
    if p.poll.is_waited_for() { p.poll.ticks.get() } else { TICKS }
}

/// Polls the instance of `of`, the caller's own P or another, on g0. The goroutines for which
/// events have come become ready on the caller's P. Returns their number.
pub fn poll(m: MRef, of: PRef) -> usize {
    let p = m.p();
    let before = of.poll.last_poll();
    let found = take_events(of, 0);
    let n = found.len();
    if n > 0 {
        found.into_queues(p);
    }
    if of == p {
        let tick = p.tick.load(Ordering::Relaxed);
        let decisions = i64::from(tick.wrapping_sub(p.poll.polled_at.replace(tick)));
        let took = (p.poll.last_poll() - before).max(1);
        let ticks = (decisions * POLL_GAP / took).clamp(i64::from(LEAST_TICKS), i64::from(TICKS));
        p.poll.ticks.set(ticks as u32);
        poll_after_queue(p);
    }
    n
}

/// For the owner of a P: plans the next poll for when the tasks that wait now have run, since
/// goroutines that the poll finds queue behind these.
pub fn poll_after_queue(p: PRef) {
    let since = p.tick.load(Ordering::Relaxed).wrapping_sub(p.poll.polled_at.get());
    let ticks = since.saturating_add(p.queued() as u32).min(TICKS);
    p.poll.ticks.set(p.poll.ticks.get().max(ticks));
}

/// For the owner of a P that has nothing to do: polls its files, unless such polls mostly find
/// nothing. Then the M goes idle at once: its sleep in the instance ends at once if an event is
/// there. Returns the number of goroutines that have become ready.
pub fn poll_before_idle(m: MRef, p: PRef) -> usize {
    if !p.poll.is_waited_for() || !p.poll.own_odds.is_worth_it() {
        return 0;
    }
    let found = poll(m, p);
    p.poll.own_odds.learn(found > 0);
    found
}

/// The most other P's that a P polls before it goes idle.
const NEIGHBOURS: usize = 4;

/// For the owner of a P that has nothing to do: polls idle P's, because its goroutines have written
/// data that may be for goroutines whose files are in their instances. An M that sleeps there would
/// need some us to wake; this M is awake. Returns the number of goroutines that have become ready
/// on the caller's P. `POLLER.md`, "Writers and readers".
pub fn poll_after_writes(m: MRef, p: PRef) -> usize {
    if !p.poll.wrote.replace(false) || p.alone.get() {
        return 0;
    }
    if !p.poll.others_odds.is_worth_it() {
        return 0;
    }
    let is_idle = |q: &PRef| {
        q.node == p.node && q.poll.is_waited_for() && q.status() == PStatus::Idle && *q != p
    };
    let mut others = rt().ps_after(p, NEIGHBOURS).filter(is_idle);
    let found = others.find_map(|q| Some(poll(m, q)).filter(|&n| n > 0)).unwrap_or(0);
    p.poll.others_odds.learn(found > 0);
    found
}

/// For a thread without a P: polls the P's instance, and puts the goroutines that become ready into
/// the P's inbox. True: a goroutine has become ready.
pub fn poll_into_inbox(of: PRef) -> bool {
    let found = take_events(of, 0);
    let any = found.len() > 0;
    if any {
        found.into_inbox(of);
    }
    any
}

/// Polls the P's instance; waits for events until the deadline (ns; negative: none; 0: doesn't
/// wait).
pub fn take_events(of: PRef, deadline: i64) -> Events {
    let mut found = Events::default();
    let epoll = of.poll.epoll();
    if epoll >= 0
        && let Some(hooks) = hooks()
    {
        let mut events = [epoll::NONE; EVENTS];
        let n = epoll::wait(epoll, &mut events, deadline);
        of.poll.last_poll.store(time::now(), Ordering::Relaxed);
        for &Event { events, u64: data } in &events[..n] {
            match data {
                BELL => hear(of, deadline == 0),
                _ => (hooks.event)(data, events, &mut found),
            }
        }
    }
    found
}

/// For the owner of a bubble's P: handles events of its network, which are the data of registrations
/// and what has happened.
pub fn deliver(p: PRef, events: &[(u64, u32)]) {
    let mut found = Events::default();
    if let Some(hooks) = hooks() {
        events.iter().for_each(|&(data, events)| (hooks.event)(data, events, &mut found));
    }
    found.into_queues(p);
}

/// Handles a ring of the bell in the P's instance, which is for an M that sleeps there: a caller
/// that only polls passes the ring on.
fn hear(of: PRef, only_polls: bool) {
    let Some(bell) = of.poll.instance.bell() else { return };
    bell.heard();
    // Read after `heard`, which may have taken a later ring: a thread that rings for an M has seen
    // that the M sleeps here, so the P is attended then.
    if only_polls && of.poll.is_attended() {
        bell.ring();
    }
}
