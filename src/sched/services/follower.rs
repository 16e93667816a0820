//! GOMAXPROCS follows the affinity mask and the cgroup's quota while the program runs. Go's
//! `sysmonUpdateGOMAXPROCS`, since 1.25.
//!
//! A thread of its own looks, because sysmon can't stop the world, and because the files that are
//! read must take no number of the process. sysmon wakes the thread, once a second at most and only
//! while goroutines run.

use crate::os::{file, thread};
use crate::sched::prim::config;
use crate::sched::prim::follower::Follower;
use crate::sched::take::world::{self, Machine};
use crate::sched::types::runtime::{Runtime, rt};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering;

/// The time from one look to the next, in ns.
const PAUSE: i64 = 1_000_000_000;

/// What sysmon keeps of it.
pub struct Following {
    /// When to look next, in ns; 0: at the first check the time is noted only.
    next: i64,
}

impl Following {
    pub fn new() -> Following {
        Following { next: 0 }
    }

    /// Has the thread look if it is time.
    pub fn look_if_due(&mut self, rt: &Runtime, now: i64) {
        // Threads are bound to the CPUs that are there, whatever the host has chosen.
        let follows = rt.follower.is_on() || rt.binds && rt.follower.may;
        if now < self.next || !follows {
            return;
        }
        if self.next != 0 {
            look(rt);
        }
        self.next = now + PAUSE;
    }
}

/// Has the thread look; starts it if need be. For sysmon, while it may allocate.
fn look(rt: &Runtime) {
    let Follower { is_due, service, .. } = &rt.follower;
    // Release: pairs with the Acquire in `main`.
    is_due.store(true, Ordering::Release);
    if service.is_there() {
        service.wake();
    } else if !service.was_started()
        && let Some(_alone) = rt.template.gate.begin_making()
    {
        // If the system refuses the thread, it is not asked again: GOMAXPROCS stays.
        let _ = service.start(main);
    }
}

/// Sets GOMAXPROCS to its default, and lets it follow from now on. Returns the former number, or
/// `-ENOMEM`.
pub fn set_default() -> i32 {
    let rt = rt();
    if rt.course.is_some() {
        return rt.procs() as i32;
    }
    let now = machine(rt);
    // Also where GOMAXPROCS must not follow: it does for this moment.
    rt.follower.turn(true);
    let before = world::follow(now);
    if !rt.follower.may {
        rt.follower.turn(false);
    }
    before
}

fn machine(rt: &Runtime) -> Machine {
    let cpus = if rt.nodes.len() > 1 { rt.topology.cpus_now() } else { None };
    Machine { procs: config::default_procs(), cpus }
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    thread::set_up_current(c"gosched-procs");
    // Without a table of its own the thread's files take numbers of the process for a moment.
    let _ = file::use_own_table();
    let rt = rt();
    let this = &rt.follower;
    let mut seen = Some(rt.topology.cpus_of_nodes());
    loop {
        let note = this.service.note();
        if rt.exiting.load(Ordering::Acquire) {
            this.service.leave();
            return ptr::null_mut();
        }
        // Acquire: pairs with the Release in `look`.
        if this.is_due.swap(false, Ordering::Acquire) {
            let now = machine(rt);
            let cpus = now.cpus.as_ref().map(|(of_nodes, _)| of_nodes.clone());
            let has_moved = cpus.is_some() && cpus != seen;
            if this.is_on() && now.procs != rt.procs() || has_moved {
                // Without memory: again at the next look.
                let _ = world::follow(now);
            }
            seen = cpus.or(seen);
        }
        this.service.sleep(note, -1);
    }
}
