//! How the runtime begins and ends: `gs_init` and `gs_shutdown`.

use super::fault::on_fault;
use super::fork::{after_fork, before_fork, in_child};
use super::goroutine::{goroutine_begin, goroutine_end};
use super::{crash, orphans, stopping, tracing};
use crate::arch::{self, FpControl, sanitizer};
use crate::os::cpu::{self, CpuSet};
use crate::os::locked::Locked;
use crate::os::oversleep::Oversleep;
use crate::os::spin::{LongLock, SpinLock, backoff};
use crate::os::thread::{self, NoCancel, SignalMask, Thread};
use crate::os::{self, failing, file, futex, heap, log, mem, signal, time};
use crate::sched::ext::gang::state::Gangs;
use crate::sched::ext::hooks::{self, IN_THREAD_HOOKS};
use crate::sched::ext::{self};
use crate::sched::prim::clock;
use crate::sched::prim::config::{Config, ConfigRequest};
use crate::sched::prim::debug::Debug;
use crate::sched::prim::draws::{Draws, Schedule};
use crate::sched::prim::follower::Follower;
use crate::sched::prim::idle::Idle;
use crate::sched::prim::limits::{BUBBLES, PROCS as MAX, RING as CAPACITY};
use crate::sched::run::aside::Aside;
use crate::sched::run::requests::World;
use crate::sched::run::{group, owner, requests};
use crate::sched::schedule::g0;
use crate::sched::services::inspector::Inspector;
use crate::sched::services::sysmon::state::Sysmon;
use crate::sched::services::workers::Workers;
use crate::sched::services::{quit, sysmon};
use crate::sched::take::preempt;
use crate::sched::take::template::Template;
use crate::sched::types::blocked::{self, Counted};
use crate::sched::types::course::Course;
use crate::sched::types::m;
use crate::sched::types::node::Node;
use crate::sched::types::runtime::{
    CHANGING, GUESTS, Guest, LIFE, Ms, NUMBER, RUNTIME, Runtime, SHORTEST_THEFT, ends, rt, try_rt,
};
use crate::sched::types::slots::Slots;
use crate::sched::wait::netpoll;
use crate::{cxx, stack};
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

impl Guest {
    /// Enters the runtime, which is made with the defaults if there is none. `-ENOMEM`, `-EAGAIN`:
    /// the system gives no memory or thread for a new runtime.
    pub fn enter() -> Result<Guest, i32> {
        loop {
            if let Some(inside) = Guest::try_enter().or_else(Guest::enter_by_the_door) {
                return Ok(inside);
            }
            init_default()?;
        }
    }

    /// Enters for a caller that may be a goroutine. `None`: the caller is a goroutine, which is
    /// inside already. Fails as [`Guest::enter`].
    pub fn enter_or_start() -> Result<Option<Guest>, i32> {
        if m::with_p().is_some() { Ok(None) } else { Guest::enter().map(Some) }
    }
}

/// Makes the runtime with the defaults, if there is none. Fails with `-ENOMEM` or
/// `-EAGAIN`.
#[cold]
fn init_default() -> Result<(), i32> {
    let e = match init(&ConfigRequest::default()) {
        // Of the environment's settings only the topology can be refused.
        Err(e) if e == -libc::EINVAL => {
            log::say(format_args!(
                "gosched: GOSCHED_TOPOLOGY is not valid, so one node is assumed"
            ));
            init(&ConfigRequest { topology: Some("flat"), ..ConfigRequest::default() })
        }
        e => e,
    };
    if e == Err(-libc::EBUSY) { Ok(()) } else { e }
}

/// What a room above does with each runtime.
pub struct Attendants {
    /// Called when the runtime has begun, with `LIFE` held, before `init` returns.
    pub start: fn(),
    /// Called when the runtime ends: ends what `start` has started. Gives the threads that use the
    /// runtime no more to its argument, which joins them later.
    pub end: fn(&mut dyn FnMut(Thread)),
}

static ATTENDANTS: AtomicPtr<Attendants> = AtomicPtr::new(ptr::null_mut());

/// Sets what a room above does with each runtime. Called when the library is loaded.
pub fn attend(attendants: &'static Attendants) {
    ATTENDANTS.store(ptr::from_ref(attendants).cast_mut(), Ordering::Relaxed);
}

fn attendants() -> Option<&'static Attendants> {
    // SAFETY: null, or what `attend` has got.
    unsafe { ATTENDANTS.load(Ordering::Relaxed).as_ref() }
}

/// Functions of the rooms above that `init` and `shutdown` call.
pub struct Above {
    /// A thread has made a runtime.
    pub has_made: fn(),
    /// A shutdown has found goroutines and gives up.
    pub gives_up: fn(),
}

/// Null: the library is not loaded yet.
static ABOVE: AtomicPtr<Above> = AtomicPtr::new(ptr::null_mut());

/// Sets these functions. Called when the library is loaded.
pub fn set_above(above: &'static Above) {
    // Release: pairs with the Acquire in `above`.
    ABOVE.store(ptr::from_ref(above).cast_mut(), Ordering::Release);
}

fn above() -> Option<&'static Above> {
    // SAFETY: null, or what `on_load` was given, which stays.
    unsafe { ABOVE.load(Ordering::Acquire).as_ref() }
}

/// Registers the fork handlers, once, when the library is loaded. From then on a fork's child finds
/// no lock taken, even if another thread forks during the first `init`.
pub fn on_load() {
    thread::at_fork(before_fork, after_fork, in_child);
    tracing::on_load();
}

/// Makes the runtime. `-EBUSY`: there is a runtime already; `-EINVAL`: a value is out of its range;
/// `-ENOMEM`, `-EAGAIN`: the system gives no memory or thread.
pub fn init(request: &ConfigRequest) -> Result<(), i32> {
    init_with(|| request.resolve())
}

/// [`init`] with the configuration that `resolve` returns. `resolve` is called only if there is no
/// runtime. Fails as `init` and as `resolve`.
pub fn init_with(resolve: impl FnOnce() -> Result<Config, i32>) -> Result<(), i32> {
    if try_rt().is_some() {
        return Err(-libc::EBUSY);
    }
    // `resolve` reads files while `LIFE` is held, so the thread must not be cancelled there.
    let _no_cancel = NoCancel::new();
    // Before `LIFE` is taken, because `Copies::new` waits for the loader's lock.
    let copies = cxx::Copies::new();
    let made = LIFE.with(|| {
        if try_rt().is_some() {
            return Err(-libc::EBUSY);
        }
        let config = resolve()?;
        clock::set(time::now());
        arch::set_body(goroutine_begin, goroutine_end);
        signal::on_fault(on_fault);
        // The CPUs are counted with the lock held: a fork during the first count would leave the
        // result half written in the child.
        cpu::count();
        if !heap::has_room(Runtime::size(&config)) {
            return Err(-libc::ENOMEM);
        }
        let rt = Box::into_raw(Box::new(Runtime::new(config, copies)));
        // SeqCst: pairs with `Guest::try_enter`. A thread that counted itself before, and found
        // `CHANGING` not set, must not find this runtime before it is whole.
        CHANGING.store(true, Ordering::SeqCst);
        wait_until_none_is_inside();
        // Release: pairs with the Acquire in `try_rt`.
        RUNTIME.store(rt, Ordering::Release);
        // SAFETY: `Box::into_raw` has made `rt`, and only `Runtime::free` below, or the next
        // shutdown, frees it.
        let started = unsafe { (*rt).start() };
        if started.is_err() {
            RUNTIME.store(ptr::null_mut(), Ordering::Release);
            // SAFETY: plain threads have been kept out, and the runtime has no thread of its own.
            unsafe { Runtime::free(&*rt) };
        }
        CHANGING.store(false, Ordering::SeqCst);
        started
    });
    if made.is_ok() {
        tracing::start_by_environment();
        if let Some(above) = above() {
            (above.has_made)();
        }
    }
    made
}

/// Waits until no thread is inside. `CHANGING` is set and there is no runtime, so threads that are
/// inside leave at once.
fn wait_until_none_is_inside() {
    let mut round = 0;
    while !GUESTS.is_zero() {
        backoff(round);
        round += 1;
    }
}

/// Waits until every goroutine has ended, then ends all threads and frees everything. `-ETIMEDOUT`,
/// or `-EAGAIN` for a deadline of 0: goroutines are left, or threads are in a call, and nothing has
/// changed. `-EDEADLK`: called by a goroutine, or by the thread that has stopped the world.
pub fn shutdown(deadline: i64) -> i32 {
    // A goroutine can't shut the runtime down: shutdown joins threads, and waits for goroutines.
    if m::current().is_some() || stopping::has_stopped() {
        return -libc::EDEADLK;
    }
    // pthread_cancel(3) must not end this thread during the shutdown.
    let _no_cancel = NoCancel::new();
    let mut round = 0;
    loop {
        match try_to_begin_end(&mut round, deadline) {
            Ok(Attempt::Claimed(rt)) => {
                end(rt);
                return 0;
            }
            Ok(Attempt::NoRuntime) => return 0,
            Ok(Attempt::Again) => {}
            Err(e) => {
                if let Some(above) = above() {
                    (above.gives_up)();
                }
                return e;
            }
        }
    }
}

/// The outcome of an attempt to begin the shutdown.
enum Attempt {
    /// The caller ends this runtime: `CHANGING` is set, and neither goroutines nor threads are
    /// inside.
    Claimed(&'static Runtime),
    NoRuntime,
    /// Another shutdown or a start is under way, a thread is in a hook where it may call the
    /// library, or a goroutine was spawned at the last moment.
    Again,
}

/// Waits until every goroutine has ended and every plain thread has left, and claims the runtime's
/// end.
fn try_to_begin_end(round: &mut u32, deadline: i64) -> Result<Attempt, i32> {
    if CHANGING.load(Ordering::SeqCst) || !IN_THREAD_HOOKS.is_zero() {
        return wait_briefly(round, deadline).map(|()| Attempt::Again);
    }
    let Some(inside) = Guest::try_enter() else {
        return Ok(if try_rt().is_none() { Attempt::NoRuntime } else { Attempt::Again });
    };
    let e = rt().wait_for_goroutines(deadline);
    drop(inside);
    if e != 0 {
        return Err(e);
    }
    Guest::let_in();
    LIFE.lock();
    // SAFETY: locked above.
    unsafe {
        let attempt = begin_end(deadline);
        LIFE.unlock();
        attempt
    }
}

/// Claims the runtime's end: the last part of [`try_to_begin_end`].
///
/// # Safety
/// The caller holds `LIFE`.
unsafe fn begin_end(deadline: i64) -> Result<Attempt, i32> {
    let Some(rt) = try_rt() else { return Ok(Attempt::NoRuntime) };
    // The shutdown that has set `CHANGING` gives `LIFE` up while it waits, so another shutdown may
    // come here.
    if CHANGING.swap(true, Ordering::SeqCst) {
        return Ok(Attempt::Again);
    }
    // SAFETY: as the caller says.
    let left = unsafe { rt.all_have_left(deadline) };
    if left == Ok(true) {
        return Ok(Attempt::Claimed(rt));
    }
    CHANGING.store(false, Ordering::SeqCst);
    left.map(|_| Attempt::Again)
}

/// Ends the threads of the claimed runtime, and frees the runtime. `LIFE` is not held meanwhile,
/// because the hooks `shutdown` and `thread_stop` may fork. While `CHANGING` is set and there is a
/// runtime, no other thread starts or ends a runtime.
fn end(rt: &'static Runtime) {
    hooks::shuts_down();
    if try_rt().is_none() {
        // This is the child of a fork in the hook.
        return;
    }
    let threads = rt.end_threads();
    LIFE.lock();
    RUNTIME.store(ptr::null_mut(), Ordering::SeqCst);
    // SAFETY: the runtime's threads use it no more, and plain threads find no runtime.
    unsafe { Runtime::free(rt) };
    // Cleared only when the chunks that stay are orphans: a reference released from here on is in
    // such a chunk.
    CHANGING.store(false, Ordering::SeqCst);
    // SAFETY: locked above.
    unsafe { LIFE.unlock() };
    // Joined without the lock: a destructor of a thread-specific value may call the library.
    threads.into_iter().for_each(Thread::join);
}

/// How long shutdown sleeps before it counts the goroutines again, in ns.
const DRAIN_RECHECK: i64 = 10_000_000;
/// For this number of rounds of `backoff` a shutdown waits for threads in a call, even if the
/// shutdown's deadline has passed: most calls end sooner.
const BRIEF_CALL: u32 = 60;

/// Fails if a wait must end: `-EAGAIN` if the caller doesn't wait at all, `-ETIMEDOUT` once the
/// deadline has passed.
fn may_wait(deadline: i64) -> Result<(), i32> {
    match deadline {
        -1 => Ok(()),
        0 => Err(-libc::EAGAIN),
        when if time::now() >= when => Err(-libc::ETIMEDOUT),
        _ => Ok(()),
    }
}

/// Waits one more round for a thread that is in a call. Fails as [`may_wait`] does, but not in the
/// first `BRIEF_CALL` rounds.
fn wait_briefly(round: &mut u32, deadline: i64) -> Result<(), i32> {
    if *round >= BRIEF_CALL {
        may_wait(deadline)?;
    }
    backoff(*round);
    *round += 1;
    Ok(())
}

impl Runtime {
    /// An upper bound of the bytes that [`Runtime::new`] allocates.
    fn size(config: &Config) -> usize {
        let nodes = config.topology.nodes.len();
        let cpus: usize = config.topology.nodes.iter().map(|node| node.cpus.len()).sum();
        // For each node: lists of its P's, its CPUs, its neighbours and their distances.
        let node = size_of::<Node>() + 8 * (MAX + 8 * nodes + cpus);
        size_of::<Runtime>() + 8 * (MAX + 2 * BUBBLES) + nodes * node
    }

    fn new(config: Config, copies: cxx::Copies) -> Runtime {
        let debug = Debug::from_env();
        sanitizer::find_by_name(os::symbol);
        stack::configure(debug.mprotect, debug.guard_budget);
        let course = debug.seed.map(|seed| {
            let draws = Draws::new(seed, Schedule::Random, 0, None);
            if debug.is_random_seed {
                let line =
                    format!("gosched: to have this order again: GOSCHED_DEBUG=seed={seed}\n");
                failing::say(line);
                crash::begin();
            }
            Box::new(Course::new(draws, None))
        });
        let mut topology = config.topology;
        if !debug.no_shuffle {
            topology.reorder(&shuffled(topology.nodes.len()));
        }
        let may_follow = config.follows && !debug.fixed_procs && debug.seed.is_none();
        let binds = topology.is_real && topology.nodes.len() > 1 && config.bind;
        let nodes = topology.nodes.iter().enumerate().map(|(n, node)| {
            let memory = binds.then_some(node.os_index);
            Node::new(n, topology.by_distance(n), &node.cpus, memory)
        });
        let nodes = nodes.collect();
        Runtime {
            number: NUMBER.fetch_add(1, Ordering::Relaxed) + 1,
            topology,
            nodes,
            all_ps: (0..MAX + BUBBLES).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            procs: AtomicUsize::new(if course.is_some() { 1 } else { config.procs }),
            made_ps: AtomicUsize::new(0),
            bubble_ps: Locked::new((Vec::new(), 0)),
            idle: Idle::new(),
            world: World::new(),
            sysmon: Sysmon::new(),
            workers: Workers::new(),
            template: Template::new(),
            inspector: Inspector::new(),
            follower: Follower::new(config.has_default_procs, may_follow),
            observers: AtomicUsize::new(0),
            aside: Aside::new(),
            gangs: Gangs::new(),
            debug,
            course,
            points: &ext::POINTS,
            ring_capacity: if debug.tiny_queues { 4 } else { CAPACITY },
            fp: FpControl::current(),
            stack_class: config.stack_class,
            ms: Locked::new(Ms::default()),
            m_count: AtomicUsize::new(0),
            own_ms: AtomicUsize::new(0),
            between: AtomicUsize::new(0),
            locked: Slots::new(),
            max_ms: AtomicUsize::new(config.max_threads),
            thread_limit_hits: AtomicU64::new(0),
            ms_wanted: AtomicBool::new(false),
            lacks_threads: AtomicBool::new(false),
            runners: AtomicUsize::new(0),
            exiting: AtomicBool::new(false),
            slice: config.slice,
            preempt_signal: if debug.seed.is_some() { 0 } else { config.preempt_signal },
            cooperative: config.cooperative || debug.seed.is_some(),
            thread_main: g0::thread_main,
            taking: LongLock::new(),
            warned_thread: AtomicBool::new(false),
            warned_stack: AtomicBool::new(false),
            back_from_call: AtomicBool::new(false),
            created_without_p: AtomicU64::new(0),
            next_id: AtomicU64::new(1),
            next_node: AtomicUsize::new(0),
            next_root: AtomicUsize::new(0),
            theft_time: AtomicI64::new(SHORTEST_THEFT),
            ends: AtomicU32::new(0),
            drained: AtomicU32::new(0),
            polls: AtomicBool::new(false),
            making_polls: LongLock::new(),
            watch: SpinLock::new(),
            watcher: AtomicPtr::new(ptr::null_mut()),
            watching_until: AtomicI64::new(i64::MAX),
            oversleep: Oversleep::new(),
            copies,
            host_mask: SignalMask::current(),
            binds,
            binds_runners: binds && !config.keep_affinity,
            host_cpus: Locked::new(CpuSet::new(&cpu::affinity())),
            cpu_changes: AtomicUsize::new(0),
        }
    }

    /// Makes the P's, and starts sysmon.
    fn start(&self) -> Result<(), i32> {
        preempt::set_up(self);
        self.make_ps()?;
        if self.course.is_some() {
            self.p(0).spawns_carefully.set(true);
            requests::ordered_run_begins();
        }
        file::make_room_for_library();
        sysmon::start(self)?;
        if self.debug.sigquit {
            quit::start();
        }
        if let Some(attendants) = attendants() {
            (attendants.start)();
        }
        Ok(())
    }

    /// Makes the first P's, all idle.
    fn make_ps(&self) -> Result<(), i32> {
        let n = self.procs();
        for id in 0..n {
            let p = self.make_p(id, n).ok_or(-libc::ENOMEM)?;
            p.alone.set(n == 1);
            p.become_idle();
        }
        self.set_proc_count(n);
        for p in self.ps() {
            owner::make_idle(self, p);
        }
        Ok(())
    }

    /// Waits, with `CHANGING` set, until no plain thread is inside. `Ok(false)`: a goroutine was
    /// spawned at the last moment, or a thread of the runtime has entered a hook. Then a thread
    /// inside, or in the hook, may wait for a thread outside. `-ETIMEDOUT`, `-EAGAIN`: a thread is
    /// still inside. A thread that has stopped the world stays inside for as long as it likes.
    ///
    /// # Safety
    /// The caller holds `LIFE`.
    unsafe fn all_have_left(&self, deadline: i64) -> Result<bool, i32> {
        let mut round = 0;
        while self.goroutines() == 0 && IN_THREAD_HOOKS.is_zero() {
            if GUESTS.is_zero() && self.runners.load(Ordering::SeqCst) == 0 {
                return Ok(self.goroutines() == 0);
            }
            // A thread inside may be about to fork, which takes `LIFE`. No other thread can end the
            // runtime meanwhile, because none comes in.
            // SAFETY: the caller holds `LIFE`, and each round locks it again.
            unsafe { LIFE.unlock() };
            let waited = wait_briefly(&mut round, deadline);
            LIFE.lock();
            waited?;
        }
        Ok(false)
    }

    /// Waits until no goroutine is left.
    fn wait_for_goroutines(&self, deadline: i64) -> i32 {
        self.ends.fetch_or(ends::DRAIN, Ordering::SeqCst);
        let counted = if deadline == -1 { blocked::thread_blocks() } else { Counted::Not };
        let result = loop {
            let seen = self.drained.load(Ordering::Acquire);
            if self.goroutines() == 0 {
                break 0;
            }
            if let Err(e) = may_wait(deadline) {
                break e;
            }
            // Checked again by then: a goroutine that ended before it could see the flag wakes no
            // waiter.
            let recheck = time::now() + DRAIN_RECHECK;
            let until = if deadline == -1 { recheck } else { recheck.min(deadline) };
            futex::wait(&self.drained, seen, until);
        };
        blocked::thread_wakes(counted);
        self.ends.fetch_and(!ends::DRAIN, Ordering::SeqCst);
        result
    }

    /// Ends every thread; no goroutine is left. Returns the threads that no longer use the runtime
    /// but may still run destructors of the user's thread-specific values.
    fn end_threads(&self) -> Vec<Thread> {
        self.workers.stop();
        self.exiting.store(true, Ordering::SeqCst);
        let mut watchers = Vec::new();
        if let Some(attendants) = attendants() {
            (attendants.end)(&mut |thread| watchers.push(thread));
        }
        let services = [quit::end(), self.sysmon.end(), self.follower.end(), self.template.end()];
        // An M that is being started now is counted already.
        while self.m_count.load(Ordering::Acquire) != 0 {
            self.ms_that(|_| true).into_iter().for_each(|m| m.notify());
            thread::yield_now();
        }
        let left = self.ms.with(|ms| core::mem::take(&mut ms.left));
        let ms = left.into_iter().filter_map(|m| m.thread.take());
        let workers = self.workers.lock.with(|| self.workers.with_left(core::mem::take));
        // The inspector ends last, because sysmon and the M's ask it and wait for its answer.
        let inspector = self.inspector.end();
        let own = services.into_iter().flatten().chain(inspector).chain(watchers);
        own.chain(ms).chain(workers).collect()
    }

    /// # Safety
    /// No thread uses `rt` any more; `Box::into_raw` has made it.
    unsafe fn free(rt: &'static Runtime) {
        // SAFETY: `rt` came from `Box::into_raw` and no thread uses it, as the caller says.
        let mut rt = unsafe { Box::from_raw(ptr::from_ref(rt).cast_mut()) };
        if rt.course.is_some() {
            requests::ordered_run_ends();
        }
        netpoll::close_all(&rt);
        netpoll::ended();
        hooks::ended();
        group::ended(rt.number);
        for p in rt.all_made_ps().chain(rt.made_bubble_ps()) {
            p.timers.close(true, None);
            // SAFETY: `make_p` has placed the P, and no M has it any more.
            unsafe { mem::drop_placed(p.as_ptr()) };
        }
        for node in rt.nodes.drain(..) {
            orphans::add(node.gs.end(|g| g.refs.load(Ordering::Acquire) > 0));
        }
    }
}

/// The numbers below `n` in an order that is random in each process. seed: N10
fn shuffled(n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut x = (time::now() as u64) ^ (u64::from(std::process::id()) << 32);
    for i in (1..n).rev() {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (x >> 33) as usize % (i + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n10_nodes_are_numbered_in_any_order() {
        // seed: N10
        let mut first_ones = [false; 4];
        for _ in 0..100_000 {
            let order = shuffled(4);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
            first_ones[order[0]] = true;
        }
        assert_eq!(first_ones, [true; 4]);
    }
}
