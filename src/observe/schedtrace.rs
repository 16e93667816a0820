//! `GOSCHED_DEBUG=schedtrace=1000,scheddetail=1`: a thread prints the scheduler's state to standard
//! error at intervals, in the lines of Go's `schedtrace`. Fields that Go lacks come behind Go's, so a
//! program that reads Go's lines reads these.
//!
//! Nothing is stopped meanwhile, so figures of one line may be of different moments.

use super::observer::Observer;
use crate::os::{heap, log, thread, time};
use crate::sched::inspect::out::Out;
use crate::sched::run::requests;
use crate::sched::types::g::{G, Status, flags};
use crate::sched::types::hold::Hold;
use crate::sched::types::m::{M, OUTSIDE};
use crate::sched::types::p::{P, PRef, PStatus};
use crate::sched::types::runtime::{Runtime, rt};
use core::ffi::c_void;
use core::fmt::{self, Display, Write};
use core::ptr;
use core::sync::atomic::Ordering;

static PRINTER: Observer = Observer::new();

/// Starts the thread, if the environment asks for it.
pub fn start(rt: &Runtime) {
    if rt.debug.schedtrace == 0 {
        return;
    }
    if let Err(e) = PRINTER.start(main) {
        log::say(format_args!("gosched: no thread for schedtrace (errno {})", -e));
    }
}

/// Ends the thread: see [`Observer::end`].
pub fn end() -> Option<thread::Thread> {
    PRINTER.end()
}

/// In the child of a fork.
pub fn forked() {
    PRINTER.forked();
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    thread::set_up_current(c"gosched-sched");
    let rt = rt();
    let period = i64::from(rt.debug.schedtrace) * 1_000_000;
    let begun = time::now();
    while !PRINTER.must_end() {
        let now = time::now();
        let mut out = Out::new(|text| PRINTER.write(2, text));
        let _ = print(&mut out, rt, (now - begun) / 1_000_000);
        out.end();
        PRINTER.sleep(now + period);
    }
    PRINTER.leave();
    ptr::null_mut()
}

/// A value, or `nil`.
struct OrNil<T>(Option<T>);

impl<T: Display> Display for OrNil<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("nil"),
        }
    }
}

/// Prints `name=[ 1 2 3 ]`, the values of all P's.
fn list<T: Display>(
    out: &mut impl Write,
    name: &str,
    rt: &Runtime,
    value: impl Fn(PRef) -> T,
) -> fmt::Result {
    write!(out, " {name}[ ")?;
    for p in rt.ps() {
        write!(out, "{} ", value(p))?;
    }
    write!(out, "]")
}

/// The tasks in a P's queues, without `runnext`, as Go counts them.
fn queued(p: &P) -> usize {
    p.private.len() + p.shared.len() + p.inbox.len()
}

/// Prints the state, `ms` after the first time.
fn print(out: &mut impl Write, rt: &Runtime, ms: i64) -> fmt::Result {
    let procs = rt.procs();
    let idle_ms: usize = rt.nodes.iter().map(|node| node.idle_m_count()).sum();
    let queued_in_nodes: usize = rt.nodes.iter().map(|node| node.queued()).sum();
    write!(
        out,
        "SCHED {ms}ms: gomaxprocs={procs} idleprocs={} threads={} spinningthreads={} \
         needspinning={} idlethreads={idle_ms} runqueue={queued_in_nodes}",
        (rt.idle.ps() as usize).min(procs),
        rt.threads(),
        rt.idle.spinning(),
        u8::from(rt.ms_wanted.load(Ordering::Relaxed)),
    )?;
    if rt.debug.scheddetail {
        return print_details(out, rt);
    }
    list(out, "", rt, |p| queued(&p))?;
    list(out, "schedticks=", rt, |p| p.tick.load(Ordering::Relaxed))?;
    list(out, "nodes=", rt, |p| p.node)?;
    list(out, "private=", rt, |p| p.private.len())?;
    list(out, "shared=", rt, |p| p.shared.len())?;
    list(out, "inbox=", rt, |p| p.inbox.len())?;
    list(out, "onloan=", rt, |p| u8::from(p.loan.is_open()))?;
    write_nodes(out, rt)
}

/// Prints the lengths of the nodes' queues, and ends the line.
fn write_nodes(out: &mut impl Write, rt: &Runtime) -> fmt::Result {
    write!(out, " nodequeues=[ ")?;
    for node in &rt.nodes {
        write!(out, "{} ", node.queued())?;
    }
    writeln!(out, "]")
}

/// What M's and goroutines are printed with: who runs and binds whom, by the addresses of
/// goroutines and M's.
#[derive(Default)]
struct Links {
    /// A goroutine, and the number of the M that runs it.
    run_by: Vec<(usize, u32)>,
    /// An M, and the id of a goroutine that only this M may run.
    bound_to: Vec<(usize, u64)>,
}

impl Links {
    /// Without memory some links are missing.
    fn read(rt: &Runtime) -> Links {
        let mut links = Links::default();
        rt.for_each_m(|m| {
            let g = m.curg.seen();
            if !g.is_null() && heap::reserve(&mut links.run_by, 1) {
                links.run_by.push((g as usize, m.id));
            }
        });
        rt.for_each_g(|g| {
            let m = bound_m(g);
            if !m.is_null() && heap::reserve(&mut links.bound_to, 1) {
                links.bound_to.push((m as usize, g.id.load(Ordering::Relaxed)));
            }
        });
        links.run_by.sort_unstable();
        links.bound_to.sort_unstable();
        links
    }

    fn m_of(&self, g: &G) -> Option<u32> {
        let at = self.run_by.partition_point(|&(other, _)| other < ptr::from_ref(g) as usize);
        self.run_by.get(at).filter(|link| link.0 == ptr::from_ref(g) as usize).map(|link| link.1)
    }

    /// The first goroutine that is bound to the M.
    fn bound_g_of(&self, m: &M) -> Option<u64> {
        let at = self.bound_to.partition_point(|&(other, _)| other < ptr::from_ref(m) as usize);
        self.bound_to.get(at).filter(|link| link.0 == ptr::from_ref(m) as usize).map(|link| link.1)
    }
}

/// The M to which the goroutine is bound, or null.
fn bound_m(g: &G) -> *const M {
    if g.flags.seen() & flags::BOUND != 0 { g.bound_m.seen() } else { ptr::null() }
}

fn print_details(out: &mut impl Write, rt: &Runtime) -> fmt::Result {
    let is_stopping = requests::is_stopping();
    let running = || rt.ps().filter(|p| p.status() != PStatus::Stopped).count();
    let mut idle_locked = 0;
    rt.for_each_m(|m| idle_locked += usize::from(m.sleeps_locked.load(Ordering::Relaxed)));
    write!(
        out,
        " gcwaiting={is_stopping} nmidlelocked={idle_locked} stopwait={} sysmonwait={} nodes={}",
        if is_stopping { running() } else { 0 },
        rt.sysmon.sleeps_deeply(),
        rt.nodes.len(),
    )?;
    write_nodes(out, rt)?;
    for p in rt.ps() {
        print_p(out, p)?;
    }
    let links = Links::read(rt);
    let mut result = Ok(());
    rt.for_each_m(|m| result = result.and_then(|()| print_m(out, &m, &links)));
    rt.for_each_g(|g| result = result.and_then(|()| print_g(out, rt, g, &links)));
    result
}

fn print_p(out: &mut impl Write, p: PRef) -> fmt::Result {
    write!(
        out,
        "  P{}: status={} schedtick={} syscalltick={} m={} runqsize={} gfreecnt={} timerslen={}",
        p.id,
        // The numbers are those of Go's `_Pidle` and so on.
        p.status() as u32,
        p.tick.load(Ordering::Relaxed),
        p.syscall_tick.load(Ordering::Relaxed),
        OrNil(p.runner().map(|m| m.id)),
        queued(&p),
        p.free_gs.len_seen(),
        p.timers.len(),
    )?;
    writeln!(
        out,
        " node={} runnext={} private={} shared={} inbox={} onloan={}",
        p.node,
        u8::from(p.runnext.load(Ordering::Relaxed) != 0),
        p.private.len(),
        p.shared.len(),
        p.inbox.len(),
        p.loan.is_open(),
    )
}

fn print_m(out: &mut impl Write, m: &M, links: &Links) -> fmt::Result {
    let (p, g) = (m.p.seen(), m.curg.seen());
    // SAFETY: null, or a P, which stays mapped until shutdown; the runtime waits for this thread.
    let p_id = unsafe { p.as_ref() }.map(|p| p.id);
    // SAFETY: null, or a descriptor, which stays mapped until shutdown.
    let g = unsafe { g.as_ref() };
    let is_off = g.is_some_and(|g| g.preempt_off.load(Ordering::Relaxed) != 0);
    write!(
        out,
        "  M{}: p={} curg={} mallocing=0 throwing=0 preemptoff={} locks={} dying=0 spinning={} \
         blocked={} lockedg={}",
        m.id,
        OrNil(p_id),
        OrNil(g.map(|g| g.id.load(Ordering::Relaxed))),
        if is_off { "gs_preempt_disable" } else { "" },
        // Inside the library no thread takes the P.
        u8::from(g.is_some() && m.outside.load(Ordering::Relaxed) != OUTSIDE),
        m.spinning.seen(),
        g.is_none() && p.is_null(),
        OrNil(links.bound_g_of(m)),
    )?;
    let hold = match m.hold.get() {
        Hold::Held => "held",
        Hold::Asked => "asked",
        Hold::Taken => "taken",
        Hold::Lent(_) => "lent",
        Hold::InCall => "incall",
        Hold::GoesOn => "goeson",
    };
    writeln!(out, " node={} tid={} hold={hold}", m.node.seen(), m.tid.load(Ordering::Relaxed))
}

/// Go's number of the status: `_Grunnable` and so on.
fn number_of(status: Status) -> u32 {
    match status {
        Status::Runnable => 1,
        Status::Running => 2,
        Status::Syscall => 3,
        Status::Waiting => 4,
        Status::Dead => 6,
    }
}

fn print_g(out: &mut impl Write, rt: &Runtime, g: &G, links: &Links) -> fmt::Result {
    let status = g.status();
    let why = if status == Status::Waiting { g.why.seen().reason() } else { c"" };
    let bound = bound_m(g);
    // SAFETY: null, or an M, which stays mapped until shutdown.
    let bound = unsafe { bound.as_ref() };
    write!(
        out,
        "  G{}: status={}({}) m={} lockedm={}",
        g.id.load(Ordering::Relaxed),
        number_of(status),
        why.to_str().unwrap_or(""),
        OrNil(links.m_of(g)),
        OrNil(bound.map(|m| m.id)),
    )?;
    let p = rt.p_if_made(usize::from(g.last_p.seen()));
    writeln!(out, " lastp={} node={}", g.last_p.seen(), OrNil(p.map(|p| p.node)))
}
