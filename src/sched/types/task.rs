//! Tasks, which run queues hold, and the queues that have a lock.
//!
//! A task is a goroutine, or a [`Newborn`]: a goroutine that has not run yet,
//! which is only a function and its argument. A newborn takes a descriptor and
//! a stack when it first runs. seed: S11

use super::g::{G, GRef};
use crate::atomic::{Ordering, RelaxedCell};
use crate::os::locked::Locked;
use crate::sched::prim::pool::Pooled;
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
    /// `None` in a free record. `embed::for_each` reads this field and the fields below in all
    /// records, even while a plain thread fills them in.
    pub f: RelaxedCell<Option<GoFn>>,
    pub arg: RelaxedCell<*mut c_void>,
    /// The return address of the call that spawned the goroutine.
    pub pc: RelaxedCell<usize>,
    /// The id of the goroutine that spawned this goroutine; 0: a plain thread did.
    pub creator: RelaxedCell<u64>,
}

// SAFETY: all bytes zero are null and `None`. Threads that visit all records use only
// `RelaxedCell::seen`; `link` belongs to the owner of the queue.
unsafe impl Pooled for Newborn {}

/// An entry of a run queue: a pointer, with the lowest bit set for a newborn. The thread that takes
/// the task out of the queue owns it. A task is neither copied nor cloned: a thread that queues or
/// runs a task has it no longer.
#[derive(PartialEq, Eq)]
#[must_use = "a task that is dropped never runs"]
pub struct Task(NonZeroUsize);

/// The two kinds of tasks.
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

    /// The task as a word for lock-free queues; never 0.
    #[inline(always)]
    pub fn into_word(self) -> usize {
        self.word()
    }

    /// Offers the task's word to a lock-free queue. `push` returns whether the queue has taken it;
    /// if not, the caller gets the task back.
    #[inline(always)]
    pub fn offer(self, push: impl FnOnce(usize) -> bool) -> Result<(), Task> {
        if push(self.word()) { Ok(()) } else { Err(self) }
    }

    /// [`Task::into_word`] of a task that stays with the caller.
    #[inline(always)]
    pub fn word(&self) -> usize {
        self.0.get()
    }

    /// The task of a word from [`Task::into_word`]; `None` for 0.
    ///
    /// # Safety
    /// The word is 0, or [`Task::into_word`] has given it in this runtime, whose memory is still
    /// mapped.
    #[inline(always)]
    pub unsafe fn from_word(word: usize) -> Option<Task> {
        NonZeroUsize::new(word).map(Task)
    }

    #[inline(always)]
    pub fn kind(&self) -> TaskKind {
        // SAFETY: only the two constructors make words of tasks, from pointers that are not null.
        unsafe {
            let word = self.word();
            if word & 1 == 0 {
                TaskKind::Goroutine(GRef::from_ptr(word as *mut G))
            } else {
                TaskKind::Newborn(NonNull::new_unchecked((word & !1) as *mut Newborn))
            }
        }
    }

    /// Whether the task is a goroutine that has run. (A task that has not begun may be a whole tree
    /// of work.) A hint, unless the caller owns the queue.
    pub fn has_run(&self) -> bool {
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
    /// The words of the oldest and of the newest task; 0: the batch is empty.
    head: usize,
    tail: usize,
    len: usize,
}

/// Calls `f` with the task of a word in a batch; `None`: the word is 0.
fn with_task<R>(word: usize, f: impl FnOnce(&Task) -> R) -> Option<R> {
    // SAFETY: the words of a batch are those of its tasks, and 0.
    unsafe { Task::from_word(word) }.map(|task| f(&task))
}

impl Batch {
    pub fn push(&mut self, task: Task) {
        task.link().set(0);
        let word = task.into_word();
        if with_task(self.tail, |last| last.link().set(word)).is_none() {
            self.head = word;
        }
        self.tail = word;
        self.len += 1;
    }

    #[must_use]
    pub fn pop(&mut self) -> Option<Task> {
        // SAFETY: the words of a batch are those of its tasks, and 0; this one leaves the batch.
        let task = unsafe { Task::from_word(self.head) }?;
        self.head = task.link().get();
        if self.head == 0 {
            self.tail = 0;
        }
        self.len -= 1;
        Some(task)
    }

    /// Takes the task at this place; the oldest task is at 0.
    fn remove(&mut self, at: usize) -> Option<Task> {
        let Some(before) = at.checked_sub(1) else { return self.pop() };
        let mut words = self.words().skip(before);
        let (older, word) = (words.next()?, words.next()?);
        // SAFETY: the words of a batch are those of its tasks; this one leaves the batch.
        let task = unsafe { Task::from_word(word) }?;
        with_task(older, |older| older.link().set(task.link().get()));
        if self.tail == word {
            self.tail = older;
        }
        self.len -= 1;
        Some(task)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The words of these tasks, oldest first.
    fn words(&self) -> impl Iterator<Item = usize> + use<> {
        let next =
            |word: &usize| with_task(*word, |task| task.link().get()).filter(|next| *next != 0);
        iter::successors(Some(self.head).filter(|head| *head != 0), next)
    }

    /// The place of the oldest task that `is_it` accepts, among the oldest `most` tasks.
    fn position(&self, most: usize, is_it: impl Fn(&Task) -> bool) -> Option<usize> {
        self.words().take(most).position(|word| with_task(word, &is_it) == Some(true))
    }

    /// These tasks, newest first.
    pub fn reversed(mut self) -> Batch {
        let mut out = Batch::default();
        while let Some(task) = self.pop() {
            task.link().set(out.head);
            out.head = task.into_word();
            if out.len == 0 {
                out.tail = out.head;
            }
            out.len += 1;
        }
        out
    }

    fn append(&mut self, other: Batch) {
        if other.head == 0 {
            return;
        }
        if with_task(self.tail, |last| last.link().set(other.head)).is_none() {
            self.head = other.head;
        }
        self.tail = other.tail;
        self.len += other.len;
    }
}

/// A FIFO with a lock, for many producers: a node's global queue, a P's inbox.
pub struct Fifo {
    queue: Locked<Queue>,
    /// A copy of the length, for readers without the lock.
    len: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    tasks: Batch,
    /// Refuses tasks, because the P is above GOMAXPROCS or the node has no P's.
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

    /// [`Fifo::push`] that gives the task back if the queue is closed.
    pub fn try_push(&self, task: Task) -> Result<(), Task> {
        self.with_queue(|q| {
            if q.closed {
                return Err(task);
            }
            q.tasks.push(task);
            Ok(())
        })
    }

    pub fn push_batch(&self, batch: Batch) {
        self.with(|q| q.append(batch));
    }

    #[must_use]
    pub fn pop(&self) -> Option<Task> {
        if self.is_empty() { None } else { self.with(Batch::pop) }
    }

    /// Takes the oldest task, if `is_it` accepts it.
    #[must_use]
    pub fn pop_if(&self, is_it: impl FnOnce(&Task) -> bool) -> Option<Task> {
        if self.is_empty() {
            return None;
        }
        self.with(|q| if with_task(q.head, is_it) == Some(true) { q.pop() } else { None })
    }

    /// Takes the oldest task that `is_it` accepts; the others stay in order.
    #[must_use]
    pub fn pop_that(&self, is_it: impl Fn(&Task) -> bool) -> Option<Task> {
        if self.is_empty() {
            return None;
        }
        self.with(|q| q.position(usize::MAX, is_it).and_then(|at| q.remove(at)))
    }

    /// Whether `is_it` agrees to one of the tasks.
    pub fn has(&self, is_it: impl Fn(&Task) -> bool) -> bool {
        !self.is_empty() && self.with(|q| q.position(usize::MAX, is_it).is_some())
    }

    /// In the child of a fork: empties the queue, even if a thread held its lock.
    ///
    /// # Safety
    /// No other thread uses the queue, and its tasks are not needed any more.
    pub unsafe fn forget(&self) {
        // SAFETY: no other thread uses the queue, as the caller says.
        unsafe { self.queue.reset() };
        self.with(|tasks| *tasks = Batch::default());
    }

    /// Takes the `most(length)` oldest tasks.
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

    /// Closes the queue, which then refuses tasks, or opens it again. Returns the tasks in it.
    pub fn close(&self, closed: bool) -> Batch {
        self.with_queue(|q| {
            q.closed = closed;
            core::mem::take(&mut q.tasks)
        })
    }
}
