//! The model: what a reader of the trace knows of M's, P's and goroutines, and the events that
//! change it. README.md states why every trace is valid.

use super::batch::{self, Batch};
use super::clock;
use super::format::{MOST_NUMBER, NO_THREAD, event, proc_status};
use super::shapes::Shapes;
use super::{registry, stacks, strings};
use crate::os::biased::BiasedLock;
use crate::os::thread;
use core::cell::{Cell, UnsafeCell};
use core::ffi::CStr;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// The largest number of P's, without those of bubbles, which no trace shows.
pub const PROCS: usize = 1024;

/// The state of a goroutine in the model. The numbers are those of Go's format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum GoState {
    /// The reader has not heard of the goroutine.
    Unknown = 0,
    Runnable = 1,
    Running = 2,
    Syscall = 3,
    Waiting = 4,
    /// The goroutine has ended; its descriptor has no other goroutine yet.
    Ended = 5,
}

/// What the reader knows of a goroutine: one word of its descriptor.
///
/// The owner of the goroutine changes the word, with the lock of its own stream held. If the state
/// is `Running` or `Syscall`, a stream has the goroutine ([`Known::go`]), and the word changes with
/// that stream's lock held. The lister, which describes goroutines to each generation, only moves
/// words of an older generation to the present one.
#[derive(Default)]
pub struct GoWord(AtomicU64);

/// A [`GoWord`]'s value.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Go {
    state: GoState,
    /// The generation in which the reader last learnt of the goroutine.
    generation: u32,
    /// The number of sequenced events of the goroutine in that generation.
    sequence: u32,
}

impl Go {
    const STATE_BITS: u32 = 3;

    const fn word(self) -> u64 {
        (self.sequence as u64) << 32
            | (self.generation as u64) << Go::STATE_BITS
            | self.state as u64
    }

    fn of(word: u64) -> Go {
        let state = match word & 7 {
            1 => GoState::Runnable,
            2 => GoState::Running,
            3 => GoState::Syscall,
            4 => GoState::Waiting,
            5 => GoState::Ended,
            _ => GoState::Unknown,
        };
        Go { state, generation: word as u32 >> Go::STATE_BITS, sequence: (word >> 32) as u32 }
    }
}

impl GoWord {
    pub const fn new() -> GoWord {
        GoWord(AtomicU64::new(0))
    }

    /// For a descriptor that becomes another goroutine.
    #[inline(always)]
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn get(&self) -> Go {
        Go::of(self.0.load(Ordering::Acquire))
    }

    fn set(&self, go: Go) {
        // Release: pairs with the Acquire in `get`.
        self.0.store(go.word(), Ordering::Release);
    }

    fn change(&self, from: Go, to: Go) -> bool {
        // AcqRel: between the lister and the goroutine's owner.
        self.0.compare_exchange(from.word(), to.word(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// A goroutine, for an event.
#[derive(Clone, Copy)]
pub struct GoRef<'a> {
    pub id: u64,
    pub word: &'a GoWord,
    /// Asked when the reader first hears of the goroutine.
    pub names: &'a dyn Names,
}

/// What a goroutine is called.
pub trait Names {
    /// The address of the goroutine's function; 0: unknown, or no name for it.
    fn function(&self) -> usize;
    /// The goroutine's own name, if it has one.
    fn name(&self) -> Option<&CStr>;
}

/// A goroutine's first event in a generation that starts it has at most this number: 2 if it was
/// made ready before.
const FIRST_RUNS: u64 = 2;

impl GoRef<'_> {
    /// The id of a stack that has only the goroutine's function.
    fn function_stack(&self) -> u32 {
        stacks::of_function(self.names.function())
    }
}

/// What the reader knows of a P.
///
/// While a stream holds the P, that stream's lock guards the cells; else the P's owner in the
/// scheduler does.
struct Proc {
    holder: AtomicPtr<Stream>,
    generation: Cell<u32>,
    sequence: Cell<u64>,
}

// SAFETY: see above which thread uses the cells; `holder` passes them on.
unsafe impl Sync for Proc {}

static ALL_PROCS: [Proc; PROCS] = [const {
    Proc {
        holder: AtomicPtr::new(ptr::null_mut()),
        generation: Cell::new(0),
        sequence: Cell::new(0),
    }
}; PROCS];

/// The events of one M, in their order.
///
/// An M writes its events with the lock held, of which its thread is the owner. Other threads take
/// the lock to write what they did to the M (took its P), and to begin a generation.
pub struct Stream {
    lock: BiasedLock,
    known: UnsafeCell<Known>,
    /// The stacks that the M has traced.
    pub shapes: Shapes,
}

// SAFETY: only the thread that holds `lock` reaches `known`.
unsafe impl Sync for Stream {}
// SAFETY: the pointer to a goroutine's word is used with the lock held, by whichever thread.
unsafe impl Send for Stream {}

/// What the reader knows of an M, and where the M's events go.
struct Known {
    /// The generation of the events; 0: there is no trace.
    generation: u32,
    /// The first generation of the session, in which goroutines may be described that the reader
    /// has not seen.
    first: u32,
    batch: Option<Box<Batch>>,
    /// The time of the latest event, in ticks.
    last: u64,
    /// Of the operation: who does it, and when, in ticks.
    by: By,
    now: u64,
    /// The kernel's number of the thread.
    thread: u64,
    /// The P that the M holds, `Running` or, if `in_call`, `Syscall`.
    proc: Option<u16>,
    /// The goroutine that the M runs.
    go: Option<(u64, *const GoWord)>,
    /// Whether that goroutine is in a system call.
    in_call: bool,
    /// The key and the value of a log that the next goroutine to run writes; (0, 0): none.
    log: (u32, u32),
    /// When the length of the P's queue is to be logged next, in ticks.
    queue_at: u64,
}

/// About this time lies between two logs of a queue's length, in ticks: some ms.
const QUEUE_EVERY: u64 = 1 << 18;

/// Bytes that the events of one operation take at most.
const OPERATION: usize = 16 * (1 + 6 * MOST_NUMBER);

/// The thread that does an operation on a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The thread of the M whose stream it is.
    Own,
    /// Any thread.
    Other,
}

/// The stream whose lock the caller holds: an operation. One pointer, which stays in a register.
struct Held<'a>(&'a Stream);

impl Deref for Held<'_> {
    type Target = Known;

    #[inline(always)]
    fn deref(&self) -> &Known {
        // SAFETY: the lock is held.
        unsafe { &*self.0.known.get() }
    }
}

impl DerefMut for Held<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Known {
        // SAFETY: the lock is held, and there is one `Held` for it.
        unsafe { &mut *self.0.known.get() }
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `Stream::hold` has locked it so.
        unsafe {
            match self.by {
                By::Own => self.0.lock.unlock_as_owner(),
                By::Other => self.0.lock.unlock(),
            }
        }
    }
}

/// How a goroutine leaves its M.
#[derive(Clone, Copy)]
pub enum Leaves {
    /// The goroutine waits, for this reason (a string's id).
    Blocks(u32),
    /// The goroutine stays runnable, and gives way for this reason (a string's id).
    Stops(u32),
    Ends,
}

impl Stream {
    /// A stream for an M.
    pub const fn new() -> Stream {
        Stream::with(BiasedLock::new(), NO_THREAD)
    }

    /// A stream that has no M, for threads under this number.
    pub const fn without_m(thread: u64) -> Stream {
        Stream::with(BiasedLock::without_owner(), thread)
    }

    const fn with(lock: BiasedLock, thread: u64) -> Stream {
        Stream {
            lock,
            known: UnsafeCell::new(Known {
                generation: 0,
                first: 0,
                batch: None,
                last: 0,
                by: By::Other,
                now: 0,
                thread,
                proc: None,
                go: None,
                in_call: false,
                log: (0, 0),
                queue_at: 0,
            }),
            shapes: Shapes::new(),
        }
    }

    /// Locks the stream for an operation. `None`: there is no trace.
    #[inline(always)]
    fn hold(&self, by: By) -> Option<Held<'_>> {
        match by {
            // SAFETY: the caller is the M's thread.
            By::Own => unsafe { self.lock.lock_as_owner() },
            By::Other => self.lock.lock(),
        }
        let mut held = Held(self);
        debug_assert!(by == By::Other || held.thread == thread::id() as u64);
        held.by = by;
        if held.generation == 0 {
            return None;
        }
        held.now = clock::now().max(held.last);
        held.make_room();
        Some(held)
    }

    /// Locks streams, to change them as a whole. Undone by [`Stream::unlock`].
    pub(super) fn lock_all<'a>(streams: impl Iterator<Item = &'a Stream> + Clone) {
        BiasedLock::lock_all(streams.map(|stream| &stream.lock));
    }

    /// # Safety
    /// The caller has called [`Stream::lock_all`].
    pub(super) unsafe fn unlock(&self) {
        // SAFETY: as the caller says.
        unsafe { self.lock.unlock() };
    }

    /// In the child of a fork: forgets everything.
    ///
    /// # Safety
    /// The caller is the child's only thread.
    pub(super) unsafe fn forked(&self) {
        // SAFETY: no other thread is there. The batch belongs to lists that are forgotten, too.
        unsafe {
            self.lock.reset();
            let known = &mut *self.known.get();
            known.generation = 0;
            core::mem::forget(known.batch.take());
            (known.proc, known.go) = (None, None);
        }
    }

    /// Ends the generation of the stream, and begins the next. 0: the trace ends.
    ///
    /// # Safety
    /// The caller has locked this stream and all others.
    pub(super) unsafe fn begin_generation(&self, generation: u32, first: u32, now: u64) {
        // The caller unlocks the stream.
        let mut held = ManuallyDrop::new(Held(self));
        held.flush();
        held.now = now.max(held.last);
        let is_new = held.generation == 0 || generation == 0;
        held.generation = generation;
        held.first = first;
        // What the log refers to was of the generation before.
        held.log = (0, 0);
        if is_new {
            (held.proc, held.go, held.in_call) = (None, None, false);
        }
        if held.proc.is_some() || held.go.is_some() {
            held.make_room();
            held.describe();
        }
    }

    /// The M goes on as this thread.
    pub fn belongs_to(&self, thread: u64) {
        self.lock.lock();
        let mut held = Held(self);
        held.by = By::Other;
        held.flush();
        held.thread = thread;
    }

    /// The M's thread leaves: it has neither a P nor a goroutine.
    pub fn retire(&self) {
        if let Some(mut held) = self.hold(By::Other) {
            held.leave_proc();
            held.leave_go();
            held.flush();
        }
    }

    /// Locks the stream for an operation of the M, which runs `go` with the P `proc`. `None`: there
    /// is no trace, or another stream has the goroutine nevertheless.
    #[inline(always)]
    fn hold_with(&self, proc: u16, go: &GoRef) -> Option<Held<'_>> {
        let held = self.hold(By::Own)?;
        let as_told = held.proc == Some(proc) && held.is_running(go);
        if as_told { Some(held) } else { self.catch_up(held, proc, go) }
    }

    /// Brings the model to where [`Stream::hold_with`] wants it.
    #[cold]
    #[inline(never)]
    fn catch_up<'a>(&'a self, mut held: Held<'a>, proc: u16, go: &GoRef) -> Option<Held<'a>> {
        // Another stream may have the P, and then the goroutine.
        for _ in 0..3 {
            if !holds(proc, self) {
                drop(held);
                release_from_others(proc, self);
            } else if held.run(proc, go) {
                return Some(held);
            } else {
                drop(held);
                registry::take_from_streams(go.word);
            }
            held = self.hold(By::Own)?;
        }
        None
    }

    /// The M runs `go` with the P `proc` from now on. Go's `GoStart`, `GoSyscallExit`, and the
    /// events of P's and goroutines that must come before. Allowed for a goroutine that runs
    /// already.
    pub fn runs(&self, proc: u16, go: GoRef) {
        let _ = self.hold_with(proc, &go);
    }

    /// The M may go on with its goroutine and this P, which it had lost. For any thread: whether the M
    /// still has the goroutine, only the stream can tell, because an M that leaves a goroutine says so
    /// here, and until then the goroutine's word is the stream's.
    pub fn goes_on_with(&self, proc: u16) {
        let Some(mut held) = self.hold(By::Other) else { return };
        let Some((id, word)) = held.go.filter(|_| held.in_call && held.proc.is_none()) else {
            return;
        };
        if !holds(proc, self) {
            return;
        }
        held.leave_go();
        held.take_proc(proc);
        // SAFETY: the descriptor of a goroutine that this stream has stays mapped.
        held.start(id, unsafe { &*word });
    }

    /// The M's goroutine leaves the M. `proc`: the P that the M holds; `None`: it has lost its P, and
    /// the goroutine becomes runnable. `next`: the goroutine that the M runs next, if that is known.
    ///
    /// True: the length of the P's queue is due ([`Stream::logs_queue`]).
    pub fn leaves(
        &self,
        proc: Option<u16>,
        go: GoRef,
        how: Leaves,
        stack: u32,
        next: Option<GoRef>,
    ) -> bool {
        let Some(proc) = proc else {
            self.loses_go(go);
            return false;
        };
        let Some(mut held) = self.hold_with(proc, &go) else { return false };
        let stack = u64::from(stack);
        match how {
            Leaves::Blocks(reason) => {
                held.put(event::GO_BLOCK, [u64::from(reason), stack]);
                held.set_state(&go, GoState::Waiting);
            }
            Leaves::Stops(reason) => {
                held.put(event::GO_STOP, [u64::from(reason), stack]);
                held.set_state(&go, GoState::Runnable);
            }
            Leaves::Ends => {
                held.put(event::GO_DESTROY, []);
                held.set_state(&go, GoState::Ended);
            }
        }
        held.go = None;
        if let Some(next) = next
            && !held.run(proc, &next)
        {
            drop(held);
            self.runs(proc, next);
            return false;
        }
        held.now >= held.queue_at
    }

    /// The next goroutine to run on the M writes a log with this key and value: ids of strings.
    pub fn logs_next(&self, key: u32, value: u32) {
        if let Some(mut held) = self.hold(By::Own) {
            held.log = (key, value);
        }
    }

    /// Logs the length of the queue of the M's P. Not due again for some ms.
    pub fn logs_queue(&self, key: u32, value: u32) {
        if let Some(mut held) = self.hold(By::Own) {
            held.queue_at = held.now + QUEUE_EVERY;
            held.log = (key, value);
        }
    }

    /// The goroutine becomes ready. Go's `GoUnpark`.
    pub fn readies(&self, by: By, go: GoRef) {
        let Some(mut held) = self.hold(by) else { return };
        if held.state_of(&go, GoState::Waiting) == GoState::Waiting {
            held.unblock(&go);
        }
    }

    /// The M's goroutine has made `go`. `start`: a stack that names `go` in place of its function, or 0.
    /// Does nothing if the M has no P: then the M that runs `go` first writes the event. Go's
    /// `GoCreate`.
    pub fn creates(&self, go: GoRef, start: u32, stack: u32) {
        let Some(mut held) = self.hold(By::Own) else { return };
        if held.proc.is_some() && !held.in_call {
            held.create(&go, start, stack);
        }
    }

    /// The M's goroutine begins a system call. Go's `GoSysCall`.
    pub fn begins_call(&self, proc: u16, go: GoRef, stack: u32) {
        if let Some(mut held) = self.hold_with(proc, &go) {
            held.begin_call(stack);
        }
    }

    /// The M gives up its P.
    pub fn gives_up_proc(&self) {
        if let Some(mut held) = self.hold(By::Own) {
            held.leave_proc();
        }
    }

    /// The M's goroutine, which has no P, becomes runnable.
    pub fn loses_go(&self, go: GoRef) {
        if let Some(mut held) = self.hold(By::Own)
            && held.runs_go(&go)
        {
            held.leave_proc();
            held.leave_go();
        }
    }

    /// Writes an event that needs a P and a goroutine that runs, for the M's goroutine. If the goroutine
    /// is in a call, but has its P, the call is interrupted for the event. False: there is no P or no
    /// goroutine.
    pub fn notes<const N: usize>(&self, event: u8, numbers: [u64; N]) -> bool {
        let Some(mut held) = self.hold(By::Own) else { return false };
        if held.proc.is_none() || held.go.is_none() {
            return false;
        }
        let in_call = held.in_call;
        if in_call {
            held.end_call();
        }
        held.put(event, numbers);
        if in_call {
            held.begin_call(0);
        }
        true
    }

    /// Whether the stream has this goroutine; if so, takes it away.
    pub(super) fn gives_up(&self, word: *const GoWord) {
        if let Some(mut held) = self.hold(By::Other)
            && held.go.is_some_and(|(_, w)| ptr::eq(w, word))
        {
            held.leave_go();
        }
    }

    /// The M's goroutine, of which the reader has not heard, is in a call since before the trace.
    pub(super) fn has_in_call(&self, go: GoRef) {
        let Some(mut held) = self.hold(By::Other) else { return };
        if held.go.is_some() || held.proc.is_some() {
            return;
        }
        held.go = Some((go.id, ptr::from_ref(go.word)));
        held.in_call = true;
        held.describe();
    }

    /// Describes a goroutine of an older generation, or an unknown goroutine that is in `state`, to
    /// this generation, unless the goroutine's owner has done so. For the lister, in a stream without
    /// an M.
    pub(super) fn lists(&self, go: GoRef, state: GoState) {
        if let Some(mut held) = self.hold(By::Other) {
            held.state_of(&go, state);
        }
    }
}

/// Whether no stream but this holds the P.
fn holds(proc: u16, stream: &Stream) -> bool {
    // Acquire: pairs with the Release in `Held::leave_proc`.
    let holder = ALL_PROCS[usize::from(proc)].holder.load(Ordering::Acquire);
    holder.is_null() || ptr::eq(holder, stream)
}

/// Makes the P idle if a stream other than `but` holds it.
fn release_from_others(proc: u16, but: *const Stream) {
    let p = &ALL_PROCS[usize::from(proc)];
    loop {
        // Acquire: pairs with the Release in `Held::leave_proc`.
        let holder = p.holder.load(Ordering::Acquire);
        if holder.is_null() || ptr::eq(holder, but) {
            return;
        }
        // SAFETY: streams are never freed.
        let Some(mut held) = (unsafe { &*holder }).hold(By::Other) else { return };
        if held.proc == Some(proc) {
            held.leave_proc();
        }
    }
}

/// The number of P's, which the next goroutine that starts tells the reader; 0: it has been told.
static NEW_PROCS: AtomicUsize = AtomicUsize::new(0);

/// The number of P's is this from now on.
pub fn procs_are(procs: usize) {
    NEW_PROCS.store(procs, Ordering::Relaxed);
}

/// Another thread has taken the P from its M, or from a call.
pub fn proc_was_taken(proc: u16) {
    release_from_others(proc, ptr::null());
}

/// Forgets what the reader knew of P's, for a new session.
///
/// # Safety
/// The caller has locked all streams.
pub(super) unsafe fn forget_procs() {
    for p in &ALL_PROCS {
        p.holder.store(ptr::null_mut(), Ordering::Release);
        p.generation.set(0);
    }
}

impl Held<'_> {
    #[inline(always)]
    fn make_room(&mut self) {
        if !self.batch.as_ref().is_some_and(|batch| batch.has_room(OPERATION)) {
            self.new_batch();
        }
    }

    #[cold]
    fn new_batch(&mut self) {
        self.flush();
        self.batch = batch::take(self.generation, self.thread, self.now);
        self.last = self.now;
        if self.batch.is_none() {
            super::lost();
        }
    }

    fn flush(&mut self) {
        if let Some(batch) = self.batch.take() {
            if batch.data().is_empty() {
                batch::free(batch);
            } else if !batch::filled(batch) {
                super::lost();
            }
        }
    }

    /// Writes an event at `self.now`.
    #[inline(always)]
    fn put<const N: usize>(&mut self, event: u8, numbers: [u64; N]) {
        let dt = self.now - self.last;
        self.last = self.now;
        if let Some(batch) = &mut self.batch {
            batch.put(event, dt, numbers);
        }
    }

    /// Describes the M's P and goroutine to a new generation.
    fn describe(&mut self) {
        let (generation, thread) = (self.generation, self.thread);
        if let Some(id) = self.proc {
            let p = &ALL_PROCS[usize::from(id)];
            p.generation.set(generation);
            p.sequence.set(0);
            let in_call = self.in_call;
            let status = if in_call { proc_status::SYSCALL } else { proc_status::RUNNING };
            self.put(event::PROC_STATUS, [u64::from(id), status]);
        }
        if let Some((id, word)) = self.go {
            let state = if self.in_call { GoState::Syscall } else { GoState::Running };
            // SAFETY: the descriptor of a goroutine that this stream has stays mapped.
            unsafe { &*word }.set(Go { state, generation, sequence: 0 });
            self.put(event::GO_STATUS_STACK, [id, thread, state as u64, 0]);
        }
    }

    fn runs_go(&self, go: &GoRef) -> bool {
        self.go.is_some_and(|(_, word)| ptr::eq(word, go.word))
    }

    fn is_running(&self, go: &GoRef) -> bool {
        self.runs_go(go) && !self.in_call
    }

    /// The goroutine's state, after which the reader knows the goroutine in this generation, unless
    /// the result is `Unknown`. `assumed`: the state of a goroutine of which the reader has not
    /// heard.
    #[inline(always)]
    fn state_of(&mut self, go: &GoRef, assumed: GoState) -> GoState {
        let now = go.word.get();
        if now.generation == self.generation && now.state != GoState::Unknown {
            return now.state;
        }
        self.introduce(go, assumed)
    }

    /// [`Held::state_of`] for a goroutine of which the reader has not heard in this generation.
    #[cold]
    #[inline(never)]
    fn introduce(&mut self, go: &GoRef, assumed: GoState) -> GoState {
        let (generation, first) = (self.generation, self.first);
        loop {
            let now = go.word.get();
            let is_known = now.state != GoState::Unknown && now.generation >= first;
            if is_known && now.generation == generation {
                return now.state;
            }
            if !is_known && generation != first {
                return GoState::Unknown;
            }
            let state = if is_known { now.state } else { assumed };
            if !matches!(state, GoState::Runnable | GoState::Waiting) {
                // A stream has the goroutine, and has described it; or the goroutine has ended.
                return state;
            }
            if go.word.change(now, Go { state, generation, sequence: 0 }) {
                self.put(
                    event::GO_STATUS_STACK,
                    [go.id, NO_THREAD, state as u64, go.function_stack().into()],
                );
                return state;
            }
        }
    }

    fn set_state(&mut self, go: &GoRef, state: GoState) {
        let now = go.word.get();
        go.word.set(Go { state, generation: self.generation, ..now });
    }

    /// The number of the goroutine's next sequenced event, which takes it to `state`.
    fn next_of(&mut self, word: &GoWord, state: GoState) -> u64 {
        let now = word.get();
        let sequence = now.sequence + 1;
        word.set(Go { state, generation: self.generation, sequence });
        u64::from(sequence)
    }

    fn unblock(&mut self, go: &GoRef) {
        let sequence = self.next_of(go.word, GoState::Runnable);
        self.put(event::GO_UNBLOCK, [go.id, sequence, 0]);
    }

    /// `start`: a stack that names the goroutine, or 0.
    fn create(&mut self, go: &GoRef, start: u32, stack: u32) {
        let start = if start == 0 { go.function_stack() } else { stacks::mark(start) };
        let generation = self.generation;
        go.word.set(Go { state: GoState::Runnable, generation, sequence: 0 });
        self.put(event::GO_CREATE, [go.id, start.into(), stack.into()]);
    }

    /// Brings the model to where this M runs `go` with the P `proc`, which no other stream holds.
    /// False: another stream has the goroutine.
    #[inline(always)]
    fn run(&mut self, proc: u16, go: &GoRef) -> bool {
        if self.go.is_some() || self.proc != Some(proc) {
            if self.goes_on(proc, go) {
                return true;
            }
            self.leave_go();
            self.take_proc(proc);
        }
        match self.state_of(go, GoState::Runnable) {
            GoState::Runnable => {}
            GoState::Waiting => self.unblock(go),
            GoState::Unknown | GoState::Ended => self.create(go, 0, 0),
            GoState::Running | GoState::Syscall => return false,
        }
        let sequence = self.start(go.id, go.word);
        if sequence <= FIRST_RUNS
            && let Some(name) = go.names.name()
        {
            self.put(event::GO_LABEL, [strings::id_of(name.to_bytes()).into()]);
        }
        if NEW_PROCS.load(Ordering::Relaxed) != 0 {
            self.tell_procs();
        }
        if self.log.0 != 0 {
            let (key, value) = core::mem::take(&mut self.log);
            self.put(event::USER_LOG, [0, key.into(), value.into(), 0]);
        }
        true
    }

    /// The M, which has a P and no goroutine, starts the goroutine, which is runnable. Returns the
    /// number of the event.
    #[inline(always)]
    fn start(&mut self, id: u64, word: &GoWord) -> u64 {
        let sequence = self.next_of(word, GoState::Running);
        self.put(event::GO_START, [id, sequence]);
        self.go = Some((id, ptr::from_ref(word)));
        self.in_call = false;
        sequence
    }

    /// Writes the number of P's, which has changed. The M runs a goroutine.
    #[cold]
    fn tell_procs(&mut self) {
        let procs = NEW_PROCS.swap(0, Ordering::Relaxed);
        if procs != 0 {
            self.put(event::PROCS_CHANGE, [procs as u64, 0]);
        }
    }

    /// Whether the M has the goroutine and the P, perhaps in a call, which ends then. If the M has
    /// the goroutine with another P or without one, the M leaves that P.
    #[cold]
    #[inline(never)]
    fn goes_on(&mut self, proc: u16, go: &GoRef) -> bool {
        if !self.runs_go(go) {
            return false;
        }
        if self.proc != Some(proc) {
            self.leave_proc();
            return false;
        }
        if self.in_call {
            self.end_call();
        }
        true
    }

    /// The M's goroutine, which is in a call and has its P, runs.
    fn end_call(&mut self) {
        let Some((_, word)) = self.go else { return };
        self.put(event::GO_SYSCALL_END, []);
        self.in_call = false;
        // SAFETY: the descriptor of a goroutine that this stream has stays mapped.
        let word = unsafe { &*word };
        word.set(Go { state: GoState::Running, ..word.get() });
    }

    /// The M, which may have another P, holds this P from now on. No other stream holds it.
    fn take_proc(&mut self, proc: u16) {
        if self.proc == Some(proc) {
            return;
        }
        self.leave_proc();
        let p = &ALL_PROCS[usize::from(proc)];
        if p.generation.get() != self.generation {
            p.generation.set(self.generation);
            p.sequence.set(0);
            self.put(event::PROC_STATUS, [u64::from(proc), proc_status::IDLE]);
        }
        let sequence = self.next_of_proc(proc);
        self.put(event::PROC_START, [u64::from(proc), sequence]);
        // Release: pairs with the Acquire in `release_from_others`.
        p.holder.store(ptr::from_ref(self.0).cast_mut(), Ordering::Release);
        self.proc = Some(proc);
    }

    fn next_of_proc(&mut self, proc: u16) -> u64 {
        let sequence = &ALL_PROCS[usize::from(proc)].sequence;
        sequence.set(sequence.get() + 1);
        sequence.get()
    }

    /// The M's goroutine is in a call from now on.
    fn begin_call(&mut self, stack: u32) {
        let (Some(proc), Some((_, word)), false) = (self.proc, self.go, self.in_call) else {
            return;
        };
        let sequence = self.next_of_proc(proc);
        self.put(event::GO_SYSCALL_BEGIN, [sequence, u64::from(stack)]);
        self.in_call = true;
        // SAFETY: the descriptor of a goroutine that this stream has stays mapped.
        let word = unsafe { &*word };
        word.set(Go { state: GoState::Syscall, ..word.get() });
    }

    /// The M has no P from now on. A goroutine that it runs is in a call then: a goroutine without
    /// a P can be nothing else.
    fn leave_proc(&mut self) {
        let Some(proc) = self.proc else { return };
        self.begin_call(0);
        self.put(event::PROC_STOP, []);
        self.proc = None;
        // Release: pairs with the Acquire in `release_from_others`.
        ALL_PROCS[usize::from(proc)].holder.store(ptr::null_mut(), Ordering::Release);
    }

    /// The M runs no goroutine from now on; the goroutine that it ran becomes runnable.
    fn leave_go(&mut self) {
        let Some((_, word)) = self.go.take() else { return };
        if self.in_call {
            self.leave_proc();
            self.put(event::GO_SYSCALL_END_BLOCKED, []);
        } else {
            self.put(event::GO_STOP, [0, 0]);
        }
        self.in_call = false;
        // SAFETY: the descriptor of a goroutine that this stream has stays mapped.
        let word = unsafe { &*word };
        word.set(Go { state: GoState::Runnable, ..word.get() });
    }
}
