//! Tasks that no P can run for now: there is no address space for their stack, or no thread of the
//! library's own for a goroutine that needs such a thread. They wait here, in no run queue, so that
//! the P's go on at full speed with everything else.
//!
//! There is one queue, whatever a task lacks. The oldest task goes back to the run queues, to try
//! again, when a goroutine ends or a newborn has found a stack. The [`TRIES`] oldest tasks do so
//! once per [`RETRY`], when sysmon puts them back: memory and threads also come free outside the
//! library, without its notice.
//!
//! Why nothing is lost: a task that still lacks something goes to the end of the queue, so no task
//! stays before the others, and each of `n` tasks tries again within `n / TRIES` rounds of sysmon.
//! sysmon doesn't sleep until woken while a task waits here. So sysmon makes up for what ending
//! goroutines miss, and there is no protocol between them.

use super::ready;
use crate::os::futex;
use crate::sched::types::node::priority;
use crate::sched::types::p::PRef;
use crate::sched::types::runtime::{Runtime, ends, rt};
use crate::sched::types::task::{Fifo, Task, TaskKind};
use core::sync::atomic::{AtomicI64, Ordering};

/// The queue of tasks that wait aside.
pub struct Aside {
    pub tasks: Fifo,
    /// The time at which sysmon next lets tasks try again, in ns.
    next_try: AtomicI64,
}

impl Aside {
    pub fn new() -> Aside {
        Aside { tasks: Fifo::new(), next_try: AtomicI64::new(0) }
    }
}

/// The interval at which sysmon lets tasks try again, in ns.
const RETRY: i64 = 1_000_000;
/// The number of tasks that sysmon lets try again at once. A task that fails costs up to tens of
/// us: the system refuses memory or a thread.
const TRIES: usize = 8;

impl Aside {
    /// Puts a task aside because there is no memory for its stack.
    #[cold]
    pub fn wait_for_stack(&self, task: Task) {
        rt().warn_no_stack();
        self.wait(task);
    }

    /// Puts a task aside until it can try again.
    #[cold]
    pub fn wait(&self, task: Task) {
        let rt = rt();
        self.tasks.push(task);
        // After the push: a goroutine that ends and sees this bit finds the task.
        rt.ends.fetch_or(ends::ASIDE, Ordering::SeqCst);
        rt.sysmon.wake_if_asleep();
    }

    /// Lets the oldest task try again on this P, which has found a stack or is about to be given
    /// one. Not by way of a global queue, because another P might not find the stack. Not on the P
    /// of a bubble, whose M runs nothing else. Returns false if no task waits.
    #[cold]
    pub fn try_next(&self, p: PRef) -> bool {
        if p.is_of_bubble() {
            return !self.tasks.is_empty();
        }
        let task = self.tasks.pop();
        let some = task.is_some();
        if let Some(task) = task.filter(|task| !ready::ready_if_special(task)) {
            ready::push_shared(p, task);
        }
        some
    }

    /// Puts tasks back into the run queues to try again, for sysmon. Returns true if it has put
    /// back any.
    pub fn retry(&self, rt: &Runtime, now: i64) -> bool {
        if self.tasks.is_empty() || now < self.next_try.load(Ordering::Relaxed) {
            return false;
        }
        self.next_try.store(now + RETRY, Ordering::Relaxed);
        // In one batch: a task that fails meanwhile comes back to the queue, and tries again in the
        // next round.
        let mut tasks = self.tasks.pop_batch(|_| TRIES);
        while let Some(task) = tasks.pop() {
            let priority = match task.kind() {
                TaskKind::Goroutine(g) => g.priority.get(),
                TaskKind::Newborn(_) => priority::NORMAL,
            };
            rt.push(rt.any_node(), task, priority);
        }
        true
    }
}

impl Runtime {
    /// Does what `Runtime::ends` asks for when a goroutine ends: this P runs the goroutine, whose
    /// stack is free soon.
    #[cold]
    pub fn goroutine_ended(&self, p: PRef) {
        let told = self.ends.load(Ordering::Relaxed);
        if told & ends::ASIDE != 0 && !self.aside.try_next(p) {
            // A task that was pushed just now waits for sysmon. If the task fails again it sets the
            // bit.
            self.ends.fetch_and(!ends::ASIDE, Ordering::SeqCst);
        }
        if told & ends::DRAIN != 0 && self.goroutines() == 0 {
            self.drained.fetch_add(1, Ordering::Release);
            futex::wake(&self.drained, i32::MAX);
        }
    }
}
