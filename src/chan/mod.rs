//! Channels: a lock, a ring of elements, and two queues of waiters. seed: B4
//!
//! Invariants under the lock: a channel with elements has no waiting receivers, a channel with room
//! has no waiting senders, and a closed channel has no waiters.

mod select;

pub use select::{Case, Op, PerCase, select};

use crate::os::{heap, spin::SpinLock};
use crate::sched::run::park::{Block, ready_all};
use crate::sched::types::waiter::{Cause, Claimed, Parker, WaitQueue, Waiter, When, Why};
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::alloc::{Layout, dealloc};

/// A channel of elements of a fixed size. Go's `hchan`.
pub struct Chan {
    lock: SpinLock,
    /// Written under the lock; read without it as a hint.
    closed: AtomicBool,
    len: AtomicUsize,
    elem_size: usize,
    capacity: usize,
    /// Index in the ring for the next element; index of the oldest element.
    send_at: Cell<usize>,
    recv_at: Cell<usize>,
    buffer: *mut u8,
    receivers: WaitingLine,
    senders: WaitingLine,
    /// The timer that sends on the channel, or null. Only rooms above use it.
    pub(super) timer: Cell<*const ()>,
}

/// All waiting senders, or all waiting receivers. Used with the channel's lock held.
#[derive(Default)]
struct WaitingLine {
    queue: WaitQueue,
    /// Number of waiters that have not been served and will come back to the channel, including
    /// those that a cancel or a deadline has taken out of the queue.
    inside: Cell<u32>,
}

impl WaitingLine {
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// # Safety
    /// As for [`WaitQueue::push`].
    #[inline(always)]
    unsafe fn push(&self, waiter: &Waiter) {
        // SAFETY: as the caller says.
        unsafe { self.queue.push(waiter) };
        self.inside.set(self.inside.get() + 1);
    }

    /// Takes the first waiter that no other waker has claimed.
    #[inline(always)]
    #[must_use]
    fn pop(&self) -> Option<&Waiter> {
        let waiter = self.queue.pop()?;
        self.inside.set(self.inside.get() - 1);
        Some(waiter)
    }

    /// Takes all waiters that no other waker has claimed.
    fn pop_all(&self) -> Claimed {
        let list = self.queue.pop_all();
        list.iter().for_each(|_| self.inside.set(self.inside.get() - 1));
        list
    }

    /// Called by a waiter that leaves without having been served.
    fn leave(&self, waiter: &Waiter) {
        self.queue.remove(waiter);
        self.inside.set(self.inside.get() - 1);
    }
}

/// The largest size of an element, in bytes.
pub const MAX_ELEM: usize = 1 << 30;

impl Chan {
    /// A new channel; `None` when it would be too large or there is no memory.
    pub fn new(elem_size: usize, capacity: usize) -> Option<Box<Chan>> {
        let layout = Chan::layout(elem_size, capacity)?;
        let buffer = match layout.size() {
            0 => ptr::null_mut(),
            // SAFETY: the size is not 0.
            _ => unsafe { heap::alloc(layout) }?.as_ptr(),
        };
        // From here on `drop` frees the buffer.
        heap::boxed(Chan {
            lock: SpinLock::new(),
            closed: AtomicBool::new(false),
            len: AtomicUsize::new(0),
            elem_size,
            capacity,
            send_at: Cell::new(0),
            recv_at: Cell::new(0),
            buffer,
            receivers: WaitingLine::default(),
            senders: WaitingLine::default(),
            timer: Cell::new(ptr::null()),
        })
    }

    fn layout(elem_size: usize, capacity: usize) -> Option<Layout> {
        if elem_size > MAX_ELEM {
            return None;
        }
        Layout::from_size_align(elem_size.checked_mul(capacity)?, 16).ok()
    }

    pub fn elem_size(&self) -> usize {
        self.elem_size
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many elements are in the buffer; may be out of date at once.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether a goroutine or thread waits in the channel, or was woken and has not left its call
    /// yet.
    pub fn is_waited_for(&self) -> bool {
        self.lock.with(|| self.receivers.inside.get() > 0 || self.senders.inside.get() > 0)
    }

    /// Puts an element at the end of the buffer.
    ///
    /// # Safety
    /// `elem` has the element size; the lock is held.
    #[inline(always)]
    unsafe fn buffer_in(&self, elem: *const u8) {
        let at = self.send_at.get();
        // SAFETY: `at` is below the capacity.
        unsafe { copy(self.buffer.wrapping_add(at * self.elem_size), elem, self.elem_size) };
        self.send_at.set(if at + 1 == self.capacity { 0 } else { at + 1 });
        self.len.store(self.len() + 1, Ordering::Relaxed);
    }

    /// Takes the oldest element out of the buffer, which isn't empty.
    ///
    /// # Safety
    /// `elem` has room for one, or is null; the lock is held.
    #[inline(always)]
    unsafe fn buffer_out(&self, elem: *mut u8) {
        let at = self.recv_at.get();
        // SAFETY: `at` is below the capacity.
        unsafe { copy(elem, self.buffer.wrapping_add(at * self.elem_size), self.elem_size) };
        self.recv_at.set(if at + 1 == self.capacity { 0 } else { at + 1 });
        self.len.store(self.len() - 1, Ordering::Relaxed);
    }

    /// Takes the oldest element out of the full buffer, and puts another at its end. `len` never
    /// changes meanwhile: the channel is never empty, and no thread that reads `len` without the
    /// lock may find it so.
    ///
    /// # Safety
    /// `out` has room for an element, or is null; `next` has the element size; the lock is held.
    #[inline(never)] // Inlined, it costs every receive the saving of two registers.
    unsafe fn buffer_through(&self, out: *mut u8, next: *const u8) {
        let at = self.recv_at.get();
        debug_assert!(self.len() == self.capacity && at == self.send_at.get());
        let place = self.buffer.wrapping_add(at * self.elem_size);
        // SAFETY: `at` is below the capacity.
        unsafe {
            copy(out, place, self.elem_size);
            copy(place, next, self.elem_size);
        }
        let behind = if at + 1 == self.capacity { 0 } else { at + 1 };
        self.recv_at.set(behind);
        self.send_at.set(behind);
    }

    /// Sends if that needs no waiting; then releases the lock, which the caller holds.
    ///
    /// # Safety
    /// `elem` has the element size.
    #[inline(always)]
    unsafe fn send_now(&self, elem: *const u8, unlock: impl FnOnce()) -> Option<i32> {
        if self.is_closed() {
            unlock();
            return Some(-libc::EPIPE);
        }
        if let Some(receiver) = self.receivers.pop() {
            // SAFETY: the receiver waits with room for an element, and this thread has claimed it.
            unsafe {
                copy(receiver.elem.get(), elem, self.elem_size);
                receiver.ok.set(true);
                unlock();
                Waiter::ready(receiver, When::Next);
            }
            return Some(0);
        }
        if self.len() < self.capacity {
            // SAFETY: there is room, and the caller holds the lock and gives an element.
            unsafe { self.buffer_in(elem) };
            unlock();
            return Some(0);
        }
        None
    }

    /// Receives if that needs no waiting; then releases the lock, which the caller holds.
    ///
    /// # Safety
    /// `elem` has room for an element, or is null.
    #[inline(always)]
    unsafe fn recv_now(&self, elem: *mut u8, unlock: impl FnOnce()) -> Option<i32> {
        if self.len() > 0 {
            match self.senders.pop() {
                // SAFETY: a sender waits, so the buffer is full. This thread has claimed the
                // sender, holds the lock, and has been given room for an element.
                Some(sender) => unsafe {
                    self.buffer_through(elem, sender.elem.get());
                    sender.ok.set(true);
                    unlock();
                    Waiter::ready(sender, When::NextIfFree);
                },
                // SAFETY: there is an element, and the caller holds the lock and gives room for it.
                None => unsafe {
                    self.buffer_out(elem);
                    unlock();
                },
            }
            return Some(0);
        }
        if let Some(sender) = self.senders.pop() {
            // SAFETY: the sender waits with its element, and this thread has claimed it.
            unsafe {
                copy(elem, sender.elem.get(), self.elem_size);
                sender.ok.set(true);
                unlock();
                Waiter::ready(sender, When::NextIfFree);
            }
            return Some(0);
        }
        if self.is_closed() {
            // SAFETY: `elem` has room for an element, as the caller says.
            unsafe { zero(elem, self.elem_size) };
            unlock();
            return Some(-libc::EPIPE);
        }
        None
    }

    /// Whether a send would have to wait; a hint without the lock.
    #[inline(always)]
    fn send_would_wait(&self) -> bool {
        self.len() >= self.capacity && self.receivers.is_empty() && !self.is_closed()
    }

    #[inline(always)]
    fn recv_would_wait(&self) -> bool {
        self.len() == 0 && self.senders.is_empty() && !self.is_closed()
    }

    /// Sends a copy of `*elem`: 0, or `-EPIPE` (closed). `None`: [`Chan::wait`] is next,
    /// and the lock is held. Go's `chansend`.
    ///
    /// # Safety
    /// `elem` has the element size.
    #[inline(always)]
    pub unsafe fn try_send(&self, elem: *const u8, deadline: i64) -> Option<i32> {
        if deadline == 0 && self.send_would_wait() {
            return Some(-libc::EAGAIN);
        }
        self.lock.lock();
        // SAFETY: the caller gives an element, and the lock is held.
        unsafe { self.send_now(elem, || self.lock.unlock()) }
    }

    /// Receives into `*elem`, or drops the element if it is null: 0, or `-EPIPE` (closed
    /// and drained; `*elem` is zeroed). `None`: as [`Chan::try_send`]. Go's `chanrecv`.
    ///
    /// # Safety
    /// `elem` has room for an element, or is null.
    #[inline(always)]
    pub unsafe fn try_recv(&self, elem: *mut u8, deadline: i64) -> Option<i32> {
        if deadline == 0 && self.recv_would_wait() {
            return Some(-libc::EAGAIN);
        }
        self.lock.lock();
        // SAFETY: the caller gives room for an element, and the lock is held.
        unsafe { self.recv_now(elem, || self.lock.unlock()) }
    }

    /// Waits until a partner has done the operation, and releases the lock. 0,
    /// `-EPIPE` (closed), or why it can't wait.
    ///
    /// # Safety
    /// The caller holds the lock, and has just tried with this `elem` and `deadline`.
    #[inline(always)]
    pub unsafe fn wait(&self, op: Op, elem: *mut u8, deadline: i64) -> i32 {
        let (line, why) = match op {
            Op::Send => (&self.senders, Why::Send),
            Op::Recv => (&self.receivers, Why::Receive),
        };
        let thread = Parker::for_thread();
        let block = match Block::begin(&thread, deadline, false, why) {
            Ok(block) => block,
            Err(e) => {
                // SAFETY: the caller has handed the lock over.
                unsafe { self.lock.unlock() };
                return e;
            }
        };
        let waiter = block.waiter(self);
        waiter.elem.set(elem);
        // SAFETY: the caller holds the lock. The waiter stays until this returns, and is out of the
        // line then.
        unsafe { line.push(&waiter) };
        // SAFETY: the lock is held; `unlock` releases it.
        match unsafe { block.park_inline(unlock, ptr::from_ref(self) as usize) } {
            Cause::Woken if waiter.ok.get() => 0,
            Cause::Woken => -libc::EPIPE,
            cause => {
                self.lock.with(|| line.leave(&waiter));
                cause.errno()
            }
        }
    }

    /// Closes the channel and wakes all waiters. `-EPIPE`: it was closed already. Go's `closechan`.
    pub fn close(&self) -> i32 {
        self.lock.lock();
        if self.is_closed() {
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            return -libc::EPIPE;
        }
        self.closed.store(true, Ordering::Relaxed);
        let receivers = self.receivers.pop_all();
        let senders = self.senders.pop_all();
        for receiver in receivers.iter() {
            // SAFETY: the receiver waits with room for an element.
            unsafe { zero(receiver.elem.get(), self.elem_size) };
        }
        // The last access: a thread that sees that the channel is closed may free it.
        // SAFETY: locked above.
        unsafe { self.lock.unlock() };
        ready_all(receivers);
        ready_all(senders);
        0
    }

    /// Sends a copy of `*elem` if that neither waits nor wakes a receiver: 0, `-EPIPE` (closed) or
    /// `-EAGAIN`.
    ///
    /// # Safety
    /// `elem` has the element size.
    pub unsafe fn put(&self, elem: *const u8) -> i32 {
        self.lock.with(|| {
            if self.is_closed() {
                return -libc::EPIPE;
            }
            if self.len() >= self.capacity || !self.receivers.is_empty() {
                return -libc::EAGAIN;
            }
            // SAFETY: there is room, the lock is held, and the caller gives an element.
            unsafe { self.buffer_in(elem) };
            0
        })
    }

    /// Receives into `*elem` if that neither waits nor wakes a sender: 0, `-EPIPE` (closed and
    /// drained; `*elem` is zeroed) or `-EAGAIN`.
    ///
    /// # Safety
    /// `elem` has room for an element, or is null.
    pub unsafe fn take(&self, elem: *mut u8) -> i32 {
        self.lock.with(|| {
            if !self.senders.is_empty() {
                return -libc::EAGAIN;
            }
            if self.len() > 0 {
                // SAFETY: there is an element, the lock is held, and the caller gives room for it.
                unsafe { self.buffer_out(elem) };
                return 0;
            }
            if self.is_closed() {
                // SAFETY: the caller gives room for an element.
                unsafe { zero(elem, self.elem_size) };
                return -libc::EPIPE;
            }
            -libc::EAGAIN
        })
    }

    /// Sends a copy of `*elem` if there is a receiver or room; else drops the element. Returns the
    /// receiver, claimed, for the caller to make ready.
    ///
    /// # Safety
    /// `elem` has the element size.
    pub unsafe fn offer(&self, elem: *const u8) -> Option<*const Waiter> {
        self.lock.with(|| {
            if self.is_closed() {
                return None;
            }
            let receiver = self.receivers.pop();
            if let Some(receiver) = receiver {
                // SAFETY: the receiver waits with room for an element, and this thread has claimed
                // it.
                unsafe { copy(receiver.elem.get(), elem, self.elem_size) };
                receiver.ok.set(true);
            } else if self.len() < self.capacity {
                // SAFETY: there is room, and the element has its size.
                unsafe { self.buffer_in(elem) };
            }
            receiver.map(ptr::from_ref)
        })
    }
}

impl Drop for Chan {
    fn drop(&mut self) {
        if let Some(layout) = Chan::layout(self.elem_size, self.capacity)
            && !self.buffer.is_null()
        {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.buffer, layout) };
        }
    }
}

/// # Safety
/// `chan` is the address of a channel whose lock the caller holds.
unsafe fn unlock(chan: usize) {
    // SAFETY: a channel whose lock is held is not freed.
    unsafe { (*(chan as *const Chan)).lock.unlock() };
}

/// Copies an element; nothing if `to` is null. Fast for a word, the usual size.
///
/// # Safety
/// Both have `n` bytes and don't overlap, or `to` is null.
#[inline(always)]
unsafe fn copy(to: *mut u8, from: *const u8, n: usize) {
    if to.is_null() {
        return;
    }
    // SAFETY: the caller gives `n` bytes of each, which may be unaligned.
    unsafe {
        if n == 8 {
            to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
        } else if n != 0 {
            ptr::copy_nonoverlapping(from, to, n);
        }
    }
}

/// # Safety
/// `to` has `n` bytes, or is null.
unsafe fn zero(to: *mut u8, n: usize) {
    if !to.is_null() {
        // SAFETY: the caller gives `n` bytes.
        unsafe { ptr::write_bytes(to, 0, n) };
    }
}
