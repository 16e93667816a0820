//! M's and P's find each other: starting, stopping and handing over.

use super::gang;
use super::group;
use super::hooks;
use super::netpoll::{self, Post};
use super::preempt;
use super::ready;
use super::switch::{self, acquire_p, make_idle, release_p};
use super::timers;
use crate::os::signal::AltStack;
use crate::os::thread::{self, Thread};
use crate::os::time;
use crate::sched::who::g::{GRef, flags};
use crate::sched::who::m::{self, M, MRef};
use crate::sched::who::node::Node;
use crate::sched::who::p::{PRef, count, status};
use crate::sched::who::runtime::{Runtime, is_forking, rt};
use crate::sched::who::task::{Kind, Task};
use crate::sched::words::idle::StartOne;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{Ordering, fence};

/// M's that are created at once, for each P; more come by sysmon, one a tick.
/// seed: S11
const PROMPT: usize = 2;

/// Lets an M look for work on an idle P: `near` if it is idle, else one of the
/// node, else any.
pub fn start_one(_one: StartOne, near: Option<PRef>, node: usize) {
    let rt = rt();
    if let Some(p) = take_idle_p(rt, near, node) {
        return start_m(rt, p, true);
    }
    // Others have taken them all and will look for work. But a P may have become
    // idle since, and whoever added work since then has relied on us.
    rt.idle.spin_ended();
    if switch::work_anywhere(rt)
        && let Some(p) = take_idle_p(rt, near, node)
    {
        rt.idle.spin_begins();
        start_m(rt, p, true);
    }
}

/// Takes an idle P out of its set: this one, one of the node, or the nearest.
pub fn take_idle_p(rt: &Runtime, near: Option<PRef>, node: usize) -> Option<PRef> {
    let taken = near.filter(|&p| p.of_node().take_idle_p(p)).or_else(|| {
        let procs = rt.procs();
        rt.nodes_from(node).find_map(|n| n.take_any_idle_p(procs)).map(|id| rt.p(id))
    })?;
    rt.idle.p_taken();
    Some(taken)
}

/// Runs a P, which is the caller's and in no set: on the M that ran it last, on
/// an idle one of its node, or on a new one if there are few. Else sysmon looks
/// for one. seed: N1, N3
pub fn start_m(rt: &Runtime, p: PRef, spinning: bool) {
    match m_for(rt, p, may_create(rt)) {
        Some(m) => {
            give(m, Some(p), None, spinning);
        }
        None => {
            if spinning {
                rt.idle.spin_ended();
            }
            match waiting_in_handler(rt, p) {
                Some((m, task)) => give(m, Some(p), task, false),
                None => leave_to_sysmon(rt, p),
            }
        }
    }
}

/// The same with a task to begin with.
pub fn start_with(rt: &Runtime, p: PRef, task: Task) {
    match m_for(rt, p, may_create(rt)) {
        Some(m) => give(m, Some(p), Some(task), false),
        None => {
            // Where the nodes that it was not meant for don't find it at once.
            let kept = rt.nodes.len() > 1 && p.of_node().place(task);
            if !kept && !p.inbox.try_push(task) {
                ready::push_global(task, crate::sched::who::node::priority::NORMAL);
            }
            start_m(rt, p, false);
        }
    }
}

/// Whether an M may be made at once.
fn may_create(rt: &Runtime) -> bool {
    rt.m_count.load(Ordering::Relaxed) < PROMPT * rt.procs() + 1
}

/// The same for sysmon: a new M in any case. False: there is none to be had yet.
pub fn start_m_patiently(rt: &Runtime, p: PRef) -> bool {
    if let Some(m) = m_for(rt, p, true) {
        // Several may have asked for one each. When it finds work and there is more it
        // wakes the next.
        rt.idle.spin_begins();
        give(m, Some(p), None, true);
        return true;
    }
    if let Some((m, task)) = waiting_in_handler(rt, p) {
        // The others still want one.
        rt.ms_wanted.store(true, Ordering::SeqCst);
        give(m, Some(p), task, false);
        return true;
    }
    make_idle(rt, p);
    rt.ms_wanted.store(true, Ordering::SeqCst);
    // Pairs with the fence in `stop`: either an M that goes to sleep sees it, or we see
    // the M.
    fence(Ordering::SeqCst);
    if rt.nodes.iter().any(Node::has_idle_m) {
        rt.sysmon.wake();
    }
    false
}

pub(super) fn m_for(rt: &Runtime, p: PRef, may_create: bool) -> Option<MRef> {
    let node = p.of_node();
    let last = p.last_m.load(Ordering::Relaxed);
    // SAFETY: null or an M.
    let last = (!last.is_null()).then(|| unsafe { MRef::from_ptr(last) });
    last.filter(|&m| node.take_idle_m(m))
        .or_else(|| node.pop_idle_m())
        .or_else(|| if may_create { another(rt, node) } else { None })
        .or_else(|| node.neighbours.iter().find_map(|&n| rt.nodes[n].pop_idle_m()))
}

/// A new M where none is idle; `None`: see `new_m`, or one is about to be idle.
fn another(rt: &Runtime, node: &Node) -> Option<MRef> {
    if rt.is_any_m_between() {
        return None;
    }
    // One may have gone to sleep just before we looked.
    node.pop_idle_m().or_else(|| new_m(rt, node.id))
}

/// Ends the sleep of an M that the caller has taken out of its pool.
pub fn give(m: MRef, p: Option<PRef>, task: Option<Task>, spinning: bool) {
    if p.is_none() {
        m.set_between(true);
    }
    m.next_p.store(p.map_or(ptr::null_mut(), PRef::as_ptr), Ordering::Relaxed);
    m.handed.set(task);
    m.next_spinning.set(spinning);
    if rt().nodes.len() > 1 {
        m.given_at.store(time::now(), Ordering::Relaxed);
    }
    m.notify();
    // Or the M would have to, before it runs anything.
    if p.is_some() {
        rt().sysmon.wake_if_long_asleep();
    }
}

/// Notifies an idle M without giving it anything: it looks around.
pub fn nudge(m: MRef) {
    if rt().nodes[m.node.seen()].take_idle_m(m) {
        give(m, None, None, false);
    }
}

/// Takes what came with a notification.
fn take_gift(m: MRef) {
    let p = m.next_p.swap(ptr::null_mut(), Ordering::Relaxed);
    m.stash.set(m.handed.take());
    if !p.is_null() {
        if rt().nodes.len() > 1 {
            rt().learn_theft_time(time::now() - m.given_at.load(Ordering::Relaxed));
        }
        // SAFETY: the M that notified us gave us this P.
        acquire_p(m, unsafe { PRef::from_ptr(p) });
        m.spinning.set(m.next_spinning.get());
    }
}

/// The M has no P and nothing to do: sleeps until somebody gives it a P, or until
/// a timer or a file of an idle P is ready. `attended`: the P that it attends to.
/// stopm.
pub fn stop(m: MRef, mut attended: Option<PRef>) {
    let rt = rt();
    let node = &rt.nodes[m.node.get()];
    loop {
        m.set_between(true);
        let post = attended.take().map_or_else(|| Post::find(rt, m), Post::P);
        node.add_idle_m(m, post.is_needed());
        // Pairs with the fences of those who look for an idle M after they have
        // published something for it.
        fence(Ordering::SeqCst);
        rt.aside.thread_is_idle(rt, m);
        let called = !m.pinned.is_empty() || switch::must_leave(m);
        if called && node.leave_idle_ms(m) {
            post.leave();
            if answer_call(m) {
                post.pass_on(rt);
                return;
            }
            continue;
        }
        // Work may wait for any M. If it is taken meanwhile, or no P is idle, so be
        // it: sysmon asks again.
        if rt.ms_wanted.load(Ordering::Relaxed)
            && let Some(p) = take_idle_p(rt, None, m.node.get())
        {
            if node.leave_idle_ms(m) {
                acquire_p(m, p);
                post.leave();
                post.pass_on(rt);
                return;
            }
            make_idle(rt, p);
        }
        let deadline = rt.watch(m);
        let woken = post.sleep(m, deadline);
        rt.unwatch(m);
        if woken.notified || !node.leave_idle_ms(m) {
            if !woken.notified {
                // Somebody has taken us out just now: it comes.
                m.sleep(-1);
            }
            take_gift(m);
            woken.leave_ps(rt);
            woken.deliver(m, &post);
            post.leave();
            if !m.p.get().is_null() || switch::must_leave(m) {
                post.pass_on(rt);
            }
            return;
        }
        // Something has happened, or a timer is due. Its P, if it is still idle, is ours.
        if let Some(p) = woken.take_p(rt, &post).or_else(|| take_p_with_timer(rt)) {
            acquire_p(m, p);
            woken.deliver(m, &post);
            post.leave();
            post.pass_on(rt);
            return;
        }
        woken.deliver(m, &post);
        match post {
            Post::P(p) if p.status() == status::IDLE => attended = Some(p),
            _ => post.leave(),
        }
    }
}

/// Takes an idle P that has a timer that is due.
fn take_p_with_timer(rt: &Runtime) -> Option<PRef> {
    let now = time::now();
    let due = rt.ps().find(|p| p.timers.next() <= now && p.of_node().take_idle_p(*p))?;
    rt.idle.p_taken();
    Some(due)
}

/// The M is not in its pool. True: it has a P, or is to leave.
fn answer_call(m: MRef) -> bool {
    let rt = rt();
    if switch::must_leave(m) {
        return true;
    }
    if let Some(p) = take_idle_p(rt, None, m.node.get()) {
        acquire_p(m, p);
        return true;
    }
    give_pinned_away(m);
    false
}

/// The goroutines that are bound to this locked M wait, and it has no P: sleeps until another M
/// hands it a P for one of them. `README.md` has the protocol. seed: S9
pub fn stop_locked(m: MRef) {
    let rt = rt();
    m.set_between(false);
    loop {
        m.sleeps_locked.store(true, Ordering::Relaxed);
        // Pairs with the fence in `hand_over`: either that M sees that we sleep, or we see the
        // task it has pushed.
        fence(Ordering::SeqCst);
        let notified = m.pinned.is_empty() && !switch::must_leave(m) && m.sleep(-1);
        if !m.sleeps_locked.swap(false, Ordering::Acquire) {
            // Another M gives it a P, and notifies it once.
            return if notified {
                take_gift(m)
            } else {
                wait_for_gift(m, || {
                    m.sleep(-1);
                })
            };
        }
        // Nobody has given it a P: there is a task, or the runtime ends.
        if switch::must_leave(m) {
            return;
        }
        if let Some(p) = take_idle_p(rt, None, m.node.get()) {
            return acquire_p(m, p);
        }
        // The M's that have the P's hand them over.
        give_pinned_away(m);
    }
}

/// A P is on its way to this M, or will be: calls `sleep`, which returns when the M has been
/// notified, and takes the P.
pub fn wait_for_gift(m: MRef, sleep: impl FnOnce()) {
    m.set_between(false);
    sleep();
    take_gift(m);
}

/// What is pinned to this M, which finds no P, goes to where an M with a P finds it.
fn give_pinned_away(m: MRef) {
    while let Some(task) = m.pinned.pop() {
        ready::push_global(task, crate::sched::who::node::priority::NORMAL);
    }
}

/// Hands the goroutine, which is bound to `owner`, over to that M, together with the P of `m` if
/// `owner` sleeps. seed: S9
fn hand_over(m: MRef, owner: MRef, g: GRef) {
    let task = Task::goroutine(g);
    // One that waits in the handler is the only task for which its M may get a P.
    if g.has(flags::INTERRUPTED) || owner.sleeps_locked.swap(false, Ordering::AcqRel) {
        return give_own_p(m, owner, Some(task));
    }
    owner.pinned.push(task);
    wake_owner(m, owner);
}

/// Gives the P of `m` to the owner of a task that was pushed to its `pinned`, if the owner sleeps.
/// False: the owner is awake.
pub fn wake_owner(m: MRef, owner: MRef) -> bool {
    // Pairs with the fences in `stop` and `stop_locked`: either the owner, which is about to
    // sleep, sees the task, or we see that it sleeps.
    fence(Ordering::SeqCst);
    let sleeps = owner.sleeps_locked.swap(false, Ordering::AcqRel)
        || rt().nodes[owner.node.seen()].take_idle_m(owner);
    if sleeps {
        give_own_p(m, owner, None);
    }
    sleeps
}

/// Gives the P of `m` to an M that sleeps and is the caller's to wake.
fn give_own_p(m: MRef, to: MRef, task: Option<Task>) {
    let p = release_p(m);
    count(&p.stats.handoffs, 1);
    give(to, Some(p), task, false);
}

/// The goroutine belongs on another M: hands it and the own P over. seed: S9
pub fn pass_on(m: MRef, g: GRef) {
    if g.has(flags::BOUND) && g.bound_m.get() != m.as_ptr().cast_const() {
        // SAFETY: `bound_m` of a bound goroutine is an M, and M's stay mapped until shutdown.
        return hand_over(m, unsafe { MRef::from_ptr(g.bound_m.get()) }, g);
    }
    if group::is_elsewhere(m, g) {
        return group::pass_on(m, g);
    }
    move_off(m, g);
}

/// The task is for any other M than that of an attached thread: a goroutine that computes, and is stopped
/// there by the preemption signal, would keep those from running that are bound to the thread. It goes
/// along with the P of `m`, or waits aside for a thread. False: there is no such M, and never will be.
pub fn move_away(m: MRef, task: Task) -> bool {
    let rt = rt();
    let node = m.p().node as usize;
    let mut nodes = rt.nodes_from(node);
    let idle = nodes.find_map(|n| n.pop_idle_m_that(|other| !other.is_attached()));
    match idle.or_else(|| new_m(rt, node)) {
        Some(other) => {
            hooks::leave_entered(m);
            hooks::idle(m);
            give(other, Some(release_p(m)), Some(task), false);
        }
        None if rt.lacks_threads.load(Ordering::Relaxed) && rt.own_ms() == 0 => return false,
        None => rt.aside.wait_for_thread(task),
    }
    true
}

/// The goroutine wants another thread than that of `m`: see `switch::avoids`. It goes along
/// with the P to an M that will do. Without one it waits aside, and `m` keeps its P.
fn move_off(m: MRef, g: GRef) {
    let rt = rt();
    let task = Task::goroutine(g);
    let find = || {
        let mut nodes = rt.nodes_from(m.p().node as usize);
        nodes.find_map(|n| n.pop_idle_m_that(|m| !switch::avoids(g, m)))
    };
    let give_it = |other| give(other, Some(release_p(m)), Some(task), false);
    if let Some(other) = find().or_else(|| new_m(rt, m.p().node as usize)) {
        return give_it(other);
    }
    let is_to_stay = g.has(flags::UNBORN | flags::AVOID_PINNED);
    if rt.lacks_threads.load(Ordering::Relaxed) && !is_forking() {
        // There will be no new thread. Beside pinned goroutines it can stay: they run while it is
        // parked.
        let beside = g.has(flags::AVOID_PINNED);
        g.set_flag(flags::AVOID_PINNED, false);
        if !switch::avoids(g, m) {
            return m.stash.set(Some(task));
        }
        if let Some(other) = find() {
            return give_it(other);
        }
        g.set_flag(flags::AVOID_PINNED, beside);
    }
    // A goroutine that only blocks the borrowed thread keeps its owner waiting for that long. A
    // goroutine that is to stay on its thread would be lost when that goes back.
    let gives_none = rt.lacks_threads.load(Ordering::Relaxed) || is_forking();
    let has_none = rt.lacks_threads.load(Ordering::Relaxed) && rt.own_ms() == 0;
    if if is_to_stay { has_none } else { gives_none } {
        g.set_flag(flags::AVOID_RUNNER | flags::AVOID_PINNED, false);
        m.stash.set(Some(task));
    } else {
        rt.aside.wait_for_thread(task);
    }
}

/// Makes sure that an M is idle, before a P is taken from one that runs: making a
/// thread takes the C library's heap, whose lock that one may have. False: not yet.
/// If there can be no more threads, or somebody forks, one that waits in the handler
/// will do.
pub fn keep_a_spare(rt: &Runtime, p: PRef) -> bool {
    if rt.nodes_from(p.node as usize).any(Node::has_idle_m) {
        return true;
    }
    if is_forking() {
        return true;
    }
    if rt.is_any_m_between() {
        return false;
    }
    rt.template.want_spare(rt, p.node as usize);
    rt.lacks_threads.load(Ordering::Relaxed) || rt.template.is_stuck()
}

/// Who can have the P at once: an idle M, already out of its pool; if there can be
/// no more threads, one whose goroutine waits in the handler, which comes along.
pub fn heir_for(rt: &Runtime, p: PRef) -> Option<(MRef, Option<Task>)> {
    m_for(rt, p, false).map(|m| (m, None)).or_else(|| waiting_in_handler(rt, p))
}

/// Takes a goroutine that waits in the signal handler out of its queue, if there can
/// be no more threads for now. (It may have the lock that who makes one waits for.)
fn waiting_in_handler(rt: &Runtime, p: PRef) -> Option<(MRef, Option<Task>)> {
    if !rt.lacks_threads.load(Ordering::Relaxed) && !is_forking() && !rt.template.is_stuck() {
        return None;
    }
    let others = || rt.nodes_from(p.node as usize).find_map(|n| n.preempted.pop());
    let (m, task) = with_its_m(gang::waiting_in_handler(rt, p, others)?);
    Some((m, Some(task)))
}

/// Any goroutine that waits in the signal handler, taken out of its queue, and its M.
pub fn any_in_handler(rt: &Runtime) -> Option<(MRef, Task)> {
    let task = rt.nodes.iter().find_map(|n| n.preempted.pop());
    task.or_else(|| gang::any_in_handler(rt)).map(with_its_m)
}

/// Ends the wait of a goroutine in the signal handler without a P.
pub fn let_go(m: MRef, task: Task) {
    m.next_p.store(ptr::null_mut(), Ordering::Relaxed);
    m.handed.set(Some(task));
    m.notify();
}

/// One that waits in the handler, with the M that it waits on.
fn with_its_m(task: Task) -> (MRef, Task) {
    match task.kind() {
        // SAFETY: it is bound to that M.
        Kind::Goroutine(g) => (unsafe { MRef::from_ptr(g.bound_m.get()) }, task),
        Kind::Newborn(_) => unreachable!("what has not run was not preempted"),
    }
}

/// The P, which is the caller's and in no set, waits for a thread that sysmon is
/// to find or make.
fn leave_to_sysmon(rt: &Runtime, p: PRef) {
    make_idle(rt, p);
    ask_for_m(rt);
}

/// Work waits, and perhaps an idle P: sysmon finds or makes an M.
pub fn ask_for_m(rt: &Runtime) {
    // SeqCst: pairs with the fence in `stop`: either an M that goes idle now sees
    // it, or sysmon finds the M.
    rt.ms_wanted.store(true, Ordering::SeqCst);
    rt.sysmon.wake();
}

/// A P, which is the caller's and in no set, whose M can't run it: somebody
/// else does if there is work, else it is idle. handoffp.
pub fn hand_off(p: PRef) {
    let rt = rt();
    count(&p.stats.handoffs, 1);
    if let Some((m, task)) = only_preempted(p) {
        give(m, Some(p), Some(task), false);
        return;
    }
    if p.has_work() || switch::work_anywhere(rt) {
        start_m(rt, p, false);
        return;
    }
    make_idle(rt, p);
    // Work that came in between was not announced to this P.
    if switch::work_anywhere(rt)
        && let Some(one) = rt.idle.work_added()
    {
        start_one(one, Some(p), p.node as usize);
    }
    // Not only its own: its M may have been the one that was to see to those of others.
    rt.timer_added(timers::next_of_idle_ps());
    netpoll::ensure_watched(rt, p.of_node());
}

/// If nothing waits before it: a goroutine that was preempted, taken out of its queue, and
/// the M that it waits on. It needs no other thread to get the P.
fn only_preempted(p: PRef) -> Option<(MRef, Task)> {
    let node = p.of_node();
    let others = p.attention.load(Ordering::Relaxed) != 0
        || p.has_work()
        || !node.high.is_empty()
        || !node.runq.is_empty()
        || node.placed() > 0
        || node.preempted.is_empty()
        || p.timers.next() <= time::now();
    if others { None } else { node.preempted.pop().map(with_its_m) }
}

/// A new M with a thread of its own, not yet notified. `None`: the limit is
/// reached, the system gives no thread, somebody forks (sysmon makes it afterwards),
/// the caller's is locked by a goroutine: what
/// that may have done to it (a table of files of its own, a namespace) would be the new
/// one's too, so sysmon has to make it; or somebody waits in the signal handler: then an
/// idle one will come.
pub fn new_m(rt: &Runtime, node: usize) -> Option<MRef> {
    if is_locked() || is_forking() {
        return None;
    }
    match rt.template.gate.make() {
        Some(_alone) => new_m_as(rt, node, false),
        None => {
            rt.template.want_spare(rt, node);
            None
        }
    }
}

/// Whether the caller's thread is locked by a goroutine.
pub fn is_locked() -> bool {
    m::current().is_some_and(|m| m.is_locked())
}

/// An M that goes into its pool as soon as its thread runs. False: see `new_m`.
pub fn make_spare(rt: &Runtime, node: usize) -> bool {
    new_m_as(rt, node, true).is_some()
}

fn new_m_as(rt: &Runtime, node: usize, is_spare: bool) -> Option<MRef> {
    let m = make_m(rt, node, is_spare);
    rt.lacks_threads.store(m.is_none(), Ordering::Relaxed);
    m
}

fn make_m(rt: &Runtime, node: usize, is_spare: bool) -> Option<MRef> {
    if !rt.count_m_in() {
        return None;
    }
    let Some(m) = rt.add_m(node) else {
        rt.m_count.fetch_sub(1, Ordering::Relaxed);
        rt.warn_no_thread(-libc::ENOMEM);
        return None;
    };
    m.is_spare.set(is_spare);
    match Thread::start(thread_main, m.as_ptr().cast()) {
        // It notes itself for whoever joins it.
        Ok(_) => Some(m),
        Err(e) => {
            rt.forget_m(m);
            rt.warn_no_thread(e);
            None
        }
    }
}

/// The life of a thread that this library has started.
extern "C" fn thread_main(arg: *mut c_void) -> *mut c_void {
    // SAFETY: `new_m` has passed an M.
    let m = unsafe { MRef::from_ptr(arg.cast::<M>()) };
    m.thread.set(Some(Thread::current()));
    thread::set_up_current(c"gosched");
    let alt = AltStack::set_up();
    m.bind_to_thread();
    // SAFETY: just bound to it.
    unsafe { m::set_current(Some(m)) };
    m.bind_to(m.node.get());
    preempt::allow();
    if m.is_spare.replace(false) {
        rt().nodes[m.node.get()].add_idle_m(m, false);
        rt().template.has_come(rt());
    }
    m.sleep(-1);
    take_gift(m);
    switch::run(m);
    // SAFETY: it has left its last goroutine.
    unsafe { m::set_current(None) };
    drop(alt);
    rt().thread_leaves(m);
    ptr::null_mut()
}
