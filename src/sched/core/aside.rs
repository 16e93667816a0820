//! Tasks that no P can run for now: there is no address space for their stack, or no thread of the library's own for a
//! goroutine that needs such a thread. They wait here, in no run queue, so that the P's go on at full speed with
//! everything else. Each comes back to the run queues when a stack is given back or a thread goes idle. Memory and
//! threads also come free outside the library, without its notice, so sysmon lets tasks try again at intervals, and
//! doesn't sleep until woken while a task waits here.

use super::ready;
use crate::os::futex;
use crate::sched::prim::forking::is_forking;
use crate::sched::types::aside::Aside;
use crate::sched::types::m::MRef;
use crate::sched::types::node::priority;
use crate::sched::types::p::PRef;
use crate::sched::types::runtime::{Runtime, ends, rt};
use crate::sched::types::task::{Fifo, Task, TaskKind};
use core::sync::atomic::Ordering;

/// How often one task of each kind tries again although no stack or thread came free, in ns.
const RETRY: i64 = 1_000_000;

impl Aside {
    /// There is no memory for a stack of the default size, or of another size. The task waits until goroutines give
    /// stacks back.
    #[cold]
    pub fn wait_for_stack(&self, task: Task, is_default: bool) {
        let rt = rt();
        rt.warn_no_stack();
        if is_default { &self.default_stacks } else { &self.other_stacks }.push(task);
        // After the push. A goroutine that ends before it sees this bit retries no task; sysmon does.
        rt.watch_ends_for_stacks();
        rt.sysmon.wake_if_asleep();
    }

    /// There is no thread for a goroutine that needs one of the library's own.
    #[cold]
    pub fn wait_for_thread(&self, task: Task) {
        self.threads.push(task);
        rt().sysmon.wake();
    }

    /// A stack is about to be free on this P, or was found: one task of each size tries again.
    #[cold]
    pub fn stack_is_free(&self, p: PRef) {
        for task in [&self.default_stacks, &self.other_stacks].into_iter().filter_map(Fifo::pop) {
            match priority_of(&task) {
                priority::NORMAL => ready::push_shared(p, task),
                other => drop(rt().push_quietly(p.node as usize, task, other)),
            }
        }
    }

    /// This M goes to sleep. If its thread is not borrowed a goroutine that waits for a thread can have it: sysmon is
    /// woken, which finds a P for the two.
    pub fn thread_is_idle(&self, rt: &Runtime, m: MRef) {
        if self.lacks_threads() && !m.is_runner() {
            rt.sysmon.wake();
        }
    }

    /// For sysmon: puts tasks back into the run queues to try again. True: it has put back at least one.
    pub fn retry(&self, rt: &Runtime, now: i64) -> bool {
        if self.is_empty() {
            return false;
        }
        let may_retry = now >= self.next_try.load(Ordering::Relaxed);
        if may_retry {
            self.next_try.store(now + RETRY, Ordering::Relaxed);
        }
        let mut some = false;
        let mut try_again = |queue: &Fifo| {
            if let Some(task) = queue.pop() {
                let priority = priority_of(&task);
                rt.push(rt.any_node(), task, priority);
                some = true;
            }
        };
        if may_retry {
            try_again(&self.default_stacks);
            try_again(&self.other_stacks);
        }
        if !is_forking() && (may_retry || rt.has_idle_own_m()) {
            try_again(&self.threads);
        }
        some
    }
}

fn priority_of(task: &Task) -> i8 {
    match task.kind() {
        TaskKind::Goroutine(g) => g.priority.get(),
        TaskKind::Newborn(_) => priority::NORMAL,
    }
}

impl Runtime {
    /// A goroutine that this P runs ends, and gives its stack back soon.
    #[cold]
    pub fn goroutine_ended(&self, p: PRef) {
        let told = self.ends.load(Ordering::Relaxed);
        if told & ends::STACKS != 0 {
            self.aside.stack_is_free(p);
            if !self.aside.lacks_stacks() {
                self.ends.fetch_and(!ends::STACKS, Ordering::SeqCst);
            }
            if self.aside.lacks_stacks() {
                self.watch_ends_for_stacks();
            }
        }
        if told & ends::DRAIN != 0 && self.goroutines() == 0 {
            self.drained.fetch_add(1, Ordering::Release);
            futex::wake(&self.drained, i32::MAX);
        }
    }
}
