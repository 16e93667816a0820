//! What a run queue holds, and the queues with a lock.
//!
//! A task is a goroutine, or a [`Newborn`]: a goroutine that has not run yet,
//! which is only a function and its argument. A newborn takes a descriptor and
//! a stack when it first runs. seed: S11

use super::g::{G, GRef};
use crate::atomic::{Ordering, RelaxedCell};
use crate::os::locked::Locked;
use crate::sched::words::pool::Pooled;
use crate::word;
use core::cell::Cell;
use core::ffi::c_void;
use core::iter;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;

/// The function of a goroutine.
pub type GoFn = unsafe extern "C" fn(*mut c_void);

word!([] Option<GoFn>, std::sync::atomic::AtomicPtr<()>);

/// A goroutine without options that has not run yet: five words.
#[repr(C)]
#[cfg_attr(test, derive(Default))]
pub struct Newborn {
    link: Cell<usize>,
    /// `None` in a free record. `embed::for_each` reads it, and what follows, of every record, also while a
    /// plain thread fills it in.
    pub f: RelaxedCell<Option<GoFn>>,
    pub arg: RelaxedCell<*mut c_void>,
    /// The return address of the call that spawned it.
    pub pc: RelaxedCell<usize>,
    /// The id of the goroutine that spawned it; 0: a plain thread.
    pub creator: RelaxedCell<u64>,
}

// SAFETY: all bytes zero are null and `None`. Threads that visit all records use only `RelaxedCell::seen`; `link`
// belongs to the owner of the queue.
unsafe impl Pooled for Newborn {}

/// An entry of a run queue: a pointer, its lowest bit set for a newborn. The thread that takes it out of the queue owns
/// it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use = "a task that is dropped never runs"]
pub struct Task(NonZeroUsize);

/// A task, told apart.
pub enum TaskKind {
    Goroutine(GRef),
    Newborn(NonNull<Newborn>),
}

impl Task {
    #[inline(always)]
    pub fn goroutine(g: GRef) -> Task {
        // SAFETY: no null pointer.
        Task(unsafe { NonZeroUsize::new_unchecked(g.as_ptr() as usize) })
    }

    #[inline(always)]
    pub fn newborn(n: NonNull<Newborn>) -> Task {
        Task(n.addr() | 1)
    }

    /// The word that lock-free queues keep; never 0.
    #[inline(always)]
    pub fn to_word(self) -> usize {
        self.0.get()
    }

    /// The task of a word from [`Task::to_word`]; `None` for 0.
    ///
    /// # Safety
    /// The word is 0, or [`Task::to_word`] has given it in this runtime, whose memory is still mapped.
    #[inline(always)]
    pub unsafe fn from_word(word: usize) -> Option<Task> {
        NonZeroUsize::new(word).map(Task)
    }

    #[inline(always)]
    pub fn kind(self) -> TaskKind {
        // SAFETY: only the two constructors make words of tasks, from pointers that are not null.
        unsafe {
            let word = self.to_word();
            if word & 1 == 0 {
                TaskKind::Goroutine(GRef::from_ptr(word as *mut G))
            } else {
                TaskKind::Newborn(NonNull::new_unchecked((word & !1) as *mut Newborn))
            }
        }
    }

    /// Whether the task is a goroutine that has run. A task that has not begun may be a whole tree of work. A hint,
    /// unless the caller owns the queue.
    pub fn has_run(self) -> bool {
        match self.kind() {
            TaskKind::Goroutine(g) => g.context.load(Ordering::Relaxed) != 0,
            TaskKind::Newborn(_) => false,
        }
    }

    /// The link of the queue that the task is in; the queue's owner uses it.
    fn link(&self) -> &Cell<usize> {
        match self.kind() {
            // SAFETY: descriptors stay mapped until shutdown.
            TaskKind::Goroutine(g) => unsafe { &(*g.as_ptr()).run_link },
            // SAFETY: records of newborns stay mapped until shutdown.
            TaskKind::Newborn(n) => unsafe { &(*n.as_ptr()).link },
        }
    }
}

/// Tasks linked through themselves, oldest first.
#[derive(Default)]
#[must_use = "tasks that are dropped never run"]
pub struct Batch {
    head: Option<Task>,
    tail: Option<Task>,
    len: usize,
}

impl Batch {
    pub fn push(&mut self, task: Task) {
        task.link().set(0);
        match self.tail {
            Some(last) => last.link().set(task.to_word()),
            None => self.head = Some(task),
        }
        self.tail = Some(task);
        self.len += 1;
    }

    #[must_use]
    pub fn pop(&mut self) -> Option<Task> {
        let task = self.head?;
        // SAFETY: the links of a batch hold tasks, and 0 at its end.
        self.head = unsafe { Task::from_word(task.link().get()) };
        if self.head.is_none() {
            self.tail = None;
        }
        self.len -= 1;
        Some(task)
    }

    /// Takes the task that has `at` older ones.
    fn remove(&mut self, at: usize) -> Option<Task> {
        let Some(before) = at.checked_sub(1) else { return self.pop() };
        let mut tasks = self.tasks().skip(before);
        let (older, task) = (tasks.next()?, tasks.next()?);
        older.link().set(task.link().get());
        if self.tail == Some(task) {
            self.tail = Some(older);
        }
        self.len -= 1;
        Some(task)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// These tasks, oldest first. They stay.
    fn tasks(&self) -> impl Iterator<Item = Task> + use<> {
        // SAFETY: the links of a batch hold tasks, and 0 at its end.
        iter::successors(self.head, |task| unsafe { Task::from_word(task.link().get()) })
    }

    /// These tasks, newest first.
    pub fn reversed(mut self) -> Batch {
        let mut out = Batch::default();
        while let Some(task) = self.pop() {
            task.link().set(out.head.map_or(0, Task::to_word));
            if out.len == 0 {
                out.tail = Some(task);
            }
            out.head = Some(task);
            out.len += 1;
        }
        out
    }

    fn append(&mut self, other: Batch) {
        match (self.tail, other.head) {
            (_, None) => return,
            (Some(last), Some(first)) => last.link().set(first.to_word()),
            (None, first) => self.head = first,
        }
        self.tail = other.tail;
        self.len += other.len;
    }
}

/// A FIFO with a lock, for many producers: a node's global queue, a P's inbox.
pub struct Fifo {
    queue: Locked<Queue>,
    /// A copy of the length that is read without the lock.
    len: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    tasks: Batch,
    /// Tasks that are pushed after this go elsewhere, because the P is gone.
    closed: bool,
}

impl Fifo {
    pub fn new() -> Fifo {
        Fifo { queue: Locked::new(Queue::default()), len: AtomicUsize::new(0) }
    }

    fn with_queue<R>(&self, f: impl FnOnce(&mut Queue) -> R) -> R {
        self.queue.with(|queue| {
            let r = f(queue);
            // Relaxed: a hint; the wake-up protocol has fences of its own.
            self.len.store(queue.tasks.len, Ordering::Relaxed);
            r
        })
    }

    fn with<R>(&self, f: impl FnOnce(&mut Batch) -> R) -> R {
        self.with_queue(|queue| f(&mut queue.tasks))
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn push(&self, task: Task) {
        self.with(|q| q.push(task));
    }

    /// Like `push`; false when the queue is closed.
    #[must_use]
    pub fn try_push(&self, task: Task) -> bool {
        self.with_queue(|q| {
            if !q.closed {
                q.tasks.push(task);
            }
            !q.closed
        })
    }

    pub fn push_batch(&self, batch: Batch) {
        self.with(|q| q.append(batch));
    }

    #[must_use]
    pub fn pop(&self) -> Option<Task> {
        if self.is_empty() { None } else { self.with(Batch::pop) }
    }

    /// Takes the oldest task, if `is_it` agrees to it.
    #[must_use]
    pub fn pop_if(&self, is_it: impl FnOnce(&Task) -> bool) -> Option<Task> {
        if self.is_empty() {
            return None;
        }
        self.with(|q| q.head.filter(is_it).and_then(|_| q.pop()))
    }

    /// Takes the oldest task that `is_it` agrees to; the others stay in order.
    #[must_use]
    pub fn pop_that(&self, is_it: impl Fn(&Task) -> bool) -> Option<Task> {
        if self.is_empty() {
            return None;
        }
        self.with(|q| {
            let at = q.tasks().position(|task| is_it(&task))?;
            q.remove(at)
        })
    }

    /// Takes the first of the oldest `most` tasks that `is_it` agrees to, else the oldest task.
    #[must_use]
    pub fn pop_among(&self, most: usize, is_it: impl Fn(&Task) -> bool) -> Option<Task> {
        if self.is_empty() {
            return None;
        }
        self.with(|q| {
            let at = q.tasks().take(most).position(|task| is_it(&task));
            q.remove(at.unwrap_or(0))
        })
    }

    /// Whether `is_it` agrees to one of the tasks.
    pub fn has(&self, is_it: impl Fn(&Task) -> bool) -> bool {
        !self.is_empty() && self.with(|q| q.tasks().any(|task| is_it(&task)))
    }

    /// In the child of a fork: empties the queue, whatever state it is in.
    ///
    /// # Safety
    /// No other thread uses the queue, and its tasks are not needed any more.
    pub unsafe fn forget(&self) {
        // SAFETY: no other thread uses the queue, as the caller says.
        unsafe { self.queue.reset() };
        self.with(|tasks| *tasks = Batch::default());
    }

    /// Takes the oldest `most(length)` tasks.
    pub fn pop_batch(&self, most: impl FnOnce(usize) -> usize) -> Batch {
        let mut out = Batch::default();
        if !self.is_empty() {
            self.with(|q| {
                for _ in 0..most(q.len) {
                    match q.pop() {
                        Some(task) => out.push(task),
                        None => break,
                    }
                }
            });
        }
        out
    }

    /// Takes all tasks. `closed`: refuses tasks that come later; else accepts them again.
    pub fn close(&self, closed: bool) -> Batch {
        self.with_queue(|q| {
            q.closed = closed;
            core::mem::take(&mut q.tasks)
        })
    }
}
