//! What an M finds when it wakes: a P, perhaps a task, and whether the M spins.

use super::p::PRef;
use super::task::Task;
use core::cell::Cell;

/// The gift of one M. The thread that is about to notify the M puts it there, and the M takes it
/// afterwards: the notification orders the two.
pub struct Gift {
    p: Cell<Option<PRef>>,
    task: Cell<Option<Task>>,
    spins: Cell<bool>,
    /// When the gift was put there, in ns; known where there is more than one node.
    put_at: Cell<i64>,
}

impl Gift {
    pub fn none() -> Gift {
        Gift {
            p: Cell::new(None),
            task: Cell::new(None),
            spins: Cell::new(false),
            put_at: Cell::new(0),
        }
    }

    /// For the thread that alone may notify the M. `spins`: the M is counted as spinning. `now`: in
    /// ns, or 0.
    pub fn put(&self, p: Option<PRef>, task: Option<Task>, spins: bool, now: i64) {
        self.p.set(p);
        self.task.set(task);
        self.spins.set(spins);
        self.put_at.set(now);
    }

    /// Takes the P out; `None`: there is none.
    #[must_use]
    pub fn take_p(&self) -> Option<PRef> {
        self.p.take()
    }

    /// Takes the task out.
    #[must_use]
    pub fn take_task(&self) -> Option<Task> {
        self.task.take()
    }

    /// Whether the M that has taken the P spins.
    pub fn spins(&self) -> bool {
        self.spins.get()
    }

    /// When the gift was put there, in ns; 0: unknown.
    pub fn put_at(&self) -> i64 {
        self.put_at.get()
    }
}
