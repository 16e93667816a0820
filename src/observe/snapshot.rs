//! A line of JSON with the state of the runtime, for `gosched-top` and other viewers.
//! `TOP.md` describes its members.
//!
//! Nothing is stopped while the state is read, so figures may be of different moments.

use super::json::Json;
use crate::os::{process, time};
use crate::sched::inspect::stats::{self, Stats};
use crate::sched::prim::histogram::Times;
use crate::sched::types::g::{G, Status};
use crate::sched::types::node::Node;
use crate::sched::types::p::{PRef, PStatus};
use crate::sched::types::runtime::Runtime;
use crate::sched::types::waiter::Why;
use core::sync::atomic::Ordering;

/// The version of the line's form. A new member doesn't change it.
const FORM: u32 = 1;

/// The longest name of a goroutine that is shown, in bytes.
const LONGEST_NAME: usize = 64;

/// The state now. `begun`: when the runtime began, in ns. `None`: there is no memory.
pub fn take(rt: &Runtime, begun: i64) -> Option<Vec<u8>> {
    let mut json = Json::default();
    let now = time::now();
    let of_nodes = stats::of_nodes(rt);
    json.object(|o| {
        o.member("gosched_top", FORM);
        o.member_string("version", env!("CARGO_PKG_VERSION").as_bytes());
        o.member("pid", process::id());
        o.member("now_ns", now);
        o.member("uptime_ns", now - begun);
        o.member("gomaxprocs", rt.procs());
        let all = stats::whole(rt, of_nodes);
        o.member_object("stats", |o| add_stats(o, &all));
        o.member_object("waits", |o| add_waits(o, rt));
        o.member_list("nodes", |l| rt.nodes.iter().for_each(|n| l.object(|o| add_node(o, rt, n))));
        o.member_list("ps", |l| rt.ps().for_each(|p| l.object(|o| add_p(o, p))));
    });
    json.end()
}

fn add_times(o: &mut Json, name: &str, times: &Times) {
    o.member_list(name, |l| times.classes.iter().for_each(|n| l.element(n)));
}

/// The members of `gs_stats`, under its names.
fn add_stats(o: &mut Json, s: &Stats) {
    o.member("goroutines", s.goroutines);
    o.member("created", s.created);
    o.member("ended", s.ended);
    o.member("procs", s.procs);
    o.member("idle_procs", s.idle_procs);
    o.member("threads", s.threads);
    o.member("switches", s.switches);
    o.member("handoffs", s.handoffs);
    o.member("steals_near", s.steals_near);
    o.member("steals_remote_queue", s.steals_remote_queue);
    o.member("steals_remote_p", s.steals_remote_p);
    o.member("stacks_sent_home", s.stacks_sent_home);
    o.member("migrations", s.migrations);
    o.member("pages_moved", s.pages_moved);
    add_times(o, "run_waits", &s.run_waits);
    o.member("runnable", s.runnable);
    o.member("running", s.running);
    o.member("in_calls", s.in_calls);
    o.member("waiting", s.waiting);
    o.member("calls", s.calls);
    o.member("loans", s.loans);
    o.member("stack_bytes", s.stack_bytes);
    o.member("thread_limit_hits", s.thread_limit_hits);
    o.member("run_wait_ns", s.run_waits.sum);
    o.member("lock_wait_ns", s.lock_wait);
    o.member("stop_ns", s.stops.sum);
    o.member("pause_ns", s.pauses.sum);
    add_times(o, "stops", &s.stops);
    add_times(o, "pauses", &s.pauses);
}

/// How many goroutines wait for what.
fn add_waits(o: &mut Json, rt: &Runtime) {
    let mut counts = [0u64; Why::ALL.len()];
    rt.for_each_g(|g| {
        if g.status() == Status::Waiting {
            counts[g.why.seen() as usize] += 1;
        }
    });
    for (why, n) in Why::ALL.iter().zip(counts).filter(|(_, n)| *n > 0) {
        o.member(why.reason().to_str().unwrap_or("waiting"), n);
    }
}

fn add_node(o: &mut Json, rt: &Runtime, node: &Node) {
    let s = stats::read_node(node.id).unwrap_or_default();
    o.member("node", node.id);
    o.member("procs", s.procs);
    o.member("idle_procs", s.idle_procs);
    o.member("queued", node.queued());
    o.member("runnable", s.runnable);
    o.member("running", s.running);
    o.member("idle_threads", node.idle_m_count());
    o.member("handoffs", s.handoffs);
    o.member("loans", s.loans);
    o.member("calls", s.calls);
    o.member("migrations", s.migrations);
    o.member("stack_bytes", s.stack_bytes);
    o.member_list("steals_from", |l| {
        node.steals_from.iter().for_each(|n| l.element(n.load(Ordering::Relaxed)));
    });
    o.member_list("distances", |l| {
        rt.topology.distances[node.id].iter().for_each(|d| l.element(d));
    });
}

fn add_p(o: &mut Json, p: PRef) {
    o.member("p", p.id);
    o.member("node", p.node);
    let status = match p.status() {
        PStatus::Idle => "idle",
        PStatus::Running => "running",
        PStatus::Syscall => "syscall",
        PStatus::Stopped => "stopped",
        PStatus::Dead => "dead",
    };
    o.member_string("status", status.as_bytes());
    let m = p.runner();
    match &m {
        Some(m) => o.member("tid", m.tid.load(Ordering::Relaxed)),
        None => o.member("tid", "null"),
    }
    let g = m.map_or(core::ptr::null(), |m| m.curg.seen());
    // SAFETY: null, or a descriptor, which stays mapped until shutdown; the runtime waits for this
    // thread.
    match unsafe { g.as_ref() } {
        Some(g) => add_g(o, g),
        None => o.member("g", "null"),
    }
    o.member("runnext", u8::from(p.runnext.load(Ordering::Relaxed) != 0));
    o.member("private", p.private.len());
    o.member("shared", p.shared.len());
    o.member("inbox", p.inbox.len());
    o.member("timers", p.timers.len());
    o.member("on_loan", p.loan.is_open());
    o.member("decisions", p.tick.load(Ordering::Relaxed));
    o.member("calls", p.syscall_tick.load(Ordering::Relaxed));
}

/// The goroutine that a P runs. It may end meanwhile: then the members are of different goroutines,
/// or the name is missing.
fn add_g(o: &mut Json, g: &G) {
    let id = g.id.load(Ordering::Relaxed);
    o.member("g", id);
    let name = g.name.load(Ordering::Relaxed);
    let mut text = [0; LONGEST_NAME];
    let len = if name.is_null() { 0 } else { process::peek(name as usize, &mut text) };
    // The name is freed after the descriptor has forgotten it, and ids are not used again.
    if g.name.load(Ordering::Relaxed) == name && g.id.load(Ordering::Relaxed) == id {
        let len = text[..len].iter().position(|&c| c == 0).unwrap_or(len);
        o.member_string("name", &text[..len]);
    }
    // A string, because numbers of JSON have 53 bits.
    o.member("spawned_at", format_args!("\"{:#x}\"", g.pc.seen()));
}
