//! The inspector: a thread that reads under /proc what the kernel knows of other threads. It has a table of file
//! descriptors of its own, so its open files take no number of the process. sysmon and the stopper of the world ask it,
//! and it stops strays that are not blocked. It is started when it is first needed.

use crate::os::thread::{self, State, Turns};
use crate::os::{file, futex, time};
use crate::sched::core::{preempt, world};
use crate::sched::types::inspector::{Inspector, answer_of};
use crate::sched::types::runtime::{Runtime, rt};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering;

impl Inspector {
    /// For sysmon: starts the thread if it is needed. This must come before a goroutine waits in the handler, because
    /// then only the template thread may make threads.
    pub fn start_if_needed(&self, rt: &Runtime) {
        let needed = self.needed.load(Ordering::Acquire) || rt.template.is_needed();
        if !needed || self.was_started() {
            return;
        }
        let Some(_alone) = rt.template.gate.begin_making() else { return };
        // If the system refuses the thread, no thread is asked for again: `state` then can't tell.
        let _ = self.service.start(main);
    }
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    thread::set_up_current(c"gosched-look");
    thread::ask_for_turns(0, Turns::Short);
    let has_own_table = file::use_own_table();
    // The CPU time comes before the state: if the thread is blocked then, and runs later, its CPU time differs from this.
    let look_at = |id| {
        let ran = thread::cpu_time(id).unwrap_or(0);
        (ran, if has_own_table { thread::state(id) } else { State::Runs })
    };
    let rt = rt();
    let this = &rt.inspector;
    loop {
        let note = this.service.note();
        // Acquire: pairs with the Release in `end`.
        if this.ends.load(Ordering::Acquire) {
            this.service.leave();
            return ptr::null_mut();
        }
        // Acquire: pairs with the Release in `Inspector::ask`.
        let id = this.thread.swap(0, Ordering::Acquire);
        if id != 0 {
            let (ran, state) = look_at(id);
            this.ran.store(ran, Ordering::Relaxed);
            this.answered_at.store(time::now(), Ordering::Relaxed);
            // SeqCst: pairs with `wait_for_answer`, which sees the answer or has noted before that it is late.
            this.answer.store(answer_of(state), Ordering::SeqCst);
            futex::wake(&this.answer, 1);
            if this.is_late.swap(false, Ordering::SeqCst) {
                rt.sysmon.wake();
            }
        }
        for m in this.take_strays() {
            let (ran, state) = look_at(m.tid.load(Ordering::Relaxed));
            if state == State::Runs || state == State::InFault && world::is_stopping() {
                preempt::interrupt_stray(rt, m);
            }
            m.was_seen(state, ran);
        }
        this.service.sleep(note, -1);
    }
}
