//! USDT probes: points of the scheduler at which tools such as bpftrace, perf and gdb stop or count,
//! provider `gosched`. `docs/observability.md` lists the probes and their arguments.
//!
//! A tool that attaches to a probe raises a count in this process, and sysmon then lets the
//! scheduler call [`traced`](super::traced), as for a trace (`trace::probes`). So a probe costs
//! nothing while no tool is attached: not even the `nop`, because the code is never reached.

use crate::arch::usdt;
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::m::MRef;
use crate::sched::types::p::PRef;
use crate::trace::probes::ATTACHED;
use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::Ordering;

/// The number that stands for no goroutine, or no P.
const NONE: i64 = -1;

fn id(g: GRef) -> u64 {
    g.id.load(Ordering::Relaxed)
}

/// The id of the M's goroutine, or 0.
fn own_id(m: Option<MRef>) -> u64 {
    // SAFETY: null or a descriptor, which stays mapped.
    m.and_then(|m| unsafe { GRef::from_nullable(m.curg.get()) }).map_or(0, id)
}

fn number(p: Option<PRef>) -> i64 {
    p.map_or(NONE, |p| i64::from(p.id))
}

/// `spawn(goroutine, spawning goroutine or 0, function)`
pub fn spawn(m: Option<MRef>, g: GRef) {
    let f = g.f.get().map_or(0, |f| f as usize);
    usdt!(ATTACHED, "spawn", id(g), own_id(m), f);
}

/// `run(goroutine, P, node)`: once for each time that the goroutine gets the M.
pub fn run(m: MRef, p: PRef, g: GRef) {
    if ptr::eq(m.shown.replace(g.as_ptr()), g.as_ptr()) {
        return;
    }
    usdt!(ATTACHED, "run", id(g), p.id, p.node);
}

/// `migrate(goroutine, old P, P, node of the P)`: the goroutine runs on another P than last.
pub fn migrate(p: PRef, g: GRef) {
    let last = g.last_p.get();
    if last != p.id && p.rt().p_if_made(last.into()).is_some() {
        usdt!(ATTACHED, "migrate", id(g), last, p.id, p.node);
    }
}

/// `park(goroutine, P or -1, reason)`: the reason is a C string.
pub fn park(m: MRef, p: Option<PRef>, g: GRef, reason: &CStr) {
    m.shown.set(ptr::null());
    usdt!(ATTACHED, "park", id(g), number(p), reason.as_ptr());
}

/// `end(goroutine, P or -1)`
pub fn end(m: MRef, p: Option<PRef>, g: GRef) {
    m.shown.set(ptr::null());
    usdt!(ATTACHED, "end", id(g), number(p));
}

/// `preempt(goroutine, P or -1, by the signal)`: the goroutine gives the P up because it has had it
/// for a time slice, or because the world stops. 1: the signal has interrupted it, 0: it has come to
/// a call of the library.
pub fn preempt(m: MRef, p: Option<PRef>, g: GRef) {
    m.shown.set(ptr::null());
    usdt!(ATTACHED, "preempt", id(g), number(p), u32::from(g.has(flags::INTERRUPTED)));
}

/// `yield(goroutine, P or -1)`
pub fn yields(m: MRef, p: Option<PRef>, g: GRef) {
    m.shown.set(ptr::null());
    usdt!(ATTACHED, "yield", id(g), number(p));
}

/// `ready(goroutine, waking goroutine or 0)`
pub fn ready(m: Option<MRef>, g: GRef) {
    usdt!(ATTACHED, "ready", id(g), own_id(m));
}

/// `syscall_begin(goroutine, P or -1)`: a call that was announced, or `gs_blocking`.
pub fn syscall_begin(p: Option<PRef>, g: GRef) {
    usdt!(ATTACHED, "syscall_begin", id(g), number(p));
}

/// `syscall_end(goroutine, P or -1)`: -1: the goroutine has no P after the call.
pub fn syscall_end(p: Option<PRef>, g: GRef) {
    usdt!(ATTACHED, "syscall_end", id(g), number(p));
}

/// `steal(P, its node, the node from which it has stolen)`
pub fn steal(p: PRef, from: usize) {
    usdt!(ATTACHED, "steal", p.id, p.node, from);
}
