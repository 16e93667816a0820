//! Select: performs one of several channel operations, the first that can be done.
//!
//! First a select tries each case in a random order, one lock at a time. If no case can be done,
//! the select locks all channels, in the order of their addresses, tries each case once more, and
//! queues a waiter for each. Then the context that runs next releases all locks. Only one waker can
//! claim the select, so only one case wins. Afterwards the select takes the other cases' waiters
//! out of their queues.

use super::{Chan, unlock};
use crate::os::heap;
use crate::sched::run::park::{Block, sleep_until};
use crate::sched::types::m::random;
use crate::sched::types::waiter::{Cause, Parker, Waiter, Why};
use core::mem::MaybeUninit;
use core::ptr;

/// Whether a case sends or receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Op {
    Send,
    Recv,
}

/// One case.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// `None`: never ready.
    pub chan: Option<&'a Chan>,
    pub op: Op,
    /// The element, as for a send or receive.
    pub elem: *mut u8,
}

/// Number of cases up to which a select needs no memory from the heap.
const FEW: usize = 8;

/// Room for one `T` for each case: on the stack if the cases are few.
pub struct PerCase<T> {
    few: [MaybeUninit<T>; FEW],
    many: Vec<T>,
}

impl<T> PerCase<T> {
    #[inline(always)]
    pub fn new() -> PerCase<T> {
        PerCase { few: [const { MaybeUninit::uninit() }; FEW], many: Vec::new() }
    }

    /// Makes room for `n` T's. `-ENOMEM`.
    #[inline(always)]
    pub fn keep_room(&mut self, n: usize) -> Result<(), i32> {
        if n > FEW && !heap::reserve(&mut self.many, n) { Err(-libc::ENOMEM) } else { Ok(()) }
    }

    /// Makes `n` T's in their places, for which [`PerCase::keep_room`] has made room. Called once.
    /// The T's are not dropped.
    #[inline(always)]
    pub fn fill(
        &mut self,
        n: usize,
        mut make: impl for<'a> FnMut(usize, &'a mut MaybeUninit<T>) -> &'a mut T,
    ) -> &mut [T] {
        const { assert!(!core::mem::needs_drop::<T>()) };
        let places =
            if n > FEW { &mut self.many.spare_capacity_mut()[..n] } else { &mut self.few[..n] };
        places.iter_mut().enumerate().for_each(|(i, place)| _ = make(i, place));
        // SAFETY: all have just been made, as the references say.
        unsafe { &mut *(&raw mut *places as *mut [T]) }
    }
}

/// Performs one of the cases, chosen at random among those that can be done, each with the same
/// chance. Returns the case's number and the operation's result. Fails with a negative errno value
/// if no case is done. Go's `selectgo`.
///
/// # Safety
/// The elements are as for the single operations.
#[inline(always)]
pub unsafe fn select(cases: &[Case], deadline: i64) -> Result<(usize, i32), i32> {
    if cases.iter().all(|c| c.chan.is_none()) {
        return Err(match deadline {
            0 => -libc::EAGAIN,
            _ => sleep_until(deadline, Why::SelectNothing).errno(),
        });
    }
    let mut order = PerCase::new();
    order.keep_room(cases.len())?;
    let order = order.fill(cases.len(), |i, place| place.write(i as u32));
    shuffle(order);
    for &i in &*order {
        // SAFETY: the caller gives an element, or room for one, with each case.
        if let Some(result) = unsafe { cases[i as usize].try_now() } {
            return Ok((i as usize, result));
        }
    }
    if deadline == 0 && cases.len() == 1 {
        return Err(-libc::EAGAIN);
    }
    // Trying one channel at a time may miss an element that moves from one channel to another. With
    // all channels locked the select sees one moment; needed even if the select mustn't wait.
    // SAFETY: the caller gives an element, or room for one, with each case.
    unsafe { wait(cases, order, deadline) }
}

/// Puts the cases into a random order. One random number is enough for several draws: each draw
/// leaves its fraction to the next.
fn shuffle(order: &mut [u32]) {
    let mut fraction = random();
    for i in (1..order.len()).rev() {
        let product = u64::from(fraction) * (i as u64 + 1);
        fraction = if i > FEW { random() } else { product as u32 };
        order.swap(i, (product >> 32) as usize);
    }
}

impl Case<'_> {
    /// Performs the case if that needs no waiting.
    ///
    /// # Safety
    /// The element is as for the single operation.
    #[inline(always)]
    pub unsafe fn try_now(&self) -> Option<i32> {
        let chan = self.chan?;
        let would_wait = match self.op {
            Op::Send => chan.send_would_wait(),
            Op::Recv => chan.recv_would_wait(),
        };
        if would_wait {
            return None;
        }
        chan.lock.lock();
        // SAFETY: locked above; `try_locked` releases it only if it does the case.
        let unlock = || unsafe { chan.lock.unlock() };
        // SAFETY: the caller gives the element, and the lock is held.
        let done = unsafe { self.try_locked(chan, unlock) };
        if done.is_none() {
            unlock();
        }
        done
    }

    /// `try_now` with the channel's lock held.
    ///
    /// # Safety
    /// As `try_now`.
    unsafe fn try_locked(&self, chan: &Chan, unlock: impl FnOnce()) -> Option<i32> {
        // SAFETY: the caller gives the element, and holds the lock.
        unsafe {
            match self.op {
                Op::Send => chan.send_now(self.elem, unlock),
                Op::Recv => chan.recv_now(self.elem, unlock),
            }
        }
    }

    /// # Safety
    /// As for [`WaitingLine::push`].
    unsafe fn queue(&self, waiter: &Waiter) {
        if let Some(chan) = self.chan {
            waiter.elem.set(self.elem);
            // SAFETY: as the caller says.
            unsafe {
                match self.op {
                    Op::Send => chan.senders.push(waiter),
                    Op::Recv => chan.receivers.push(waiter),
                }
            }
        }
    }

    fn unqueue(&self, waiter: &Waiter) {
        if let Some(chan) = self.chan {
            chan.lock.with(|| match self.op {
                Op::Send => chan.senders.leave(waiter),
                Op::Recv => chan.receivers.leave(waiter),
            });
        }
    }
}

/// The channels of a select in locking order, each once.
struct LockedChans<'a> {
    chans: &'a [*const Chan],
}

impl LockedChans<'_> {
    fn lock(&self) {
        for &c in self.chans {
            // SAFETY: the cases' channels are alive.
            unsafe { &*c }.lock.lock();
        }
    }
}

/// Releases the locks of a [`LockedChans`]. The select may go on as soon as the last lock is
/// released, so its list is not read after that.
///
/// # Safety
/// `locked` is the address of a [`LockedChans`], whose locks the caller holds.
unsafe fn unlock_all(locked: usize) {
    // SAFETY: the list is on the select's stack, and the select can't go on while a lock is still
    // held.
    unsafe {
        let chans = (*(locked as *const LockedChans)).chans;
        let (mut at, mut left) = (chans.as_ptr(), chans.len());
        while left > 0 {
            let chan = *at;
            (at, left) = (at.add(1), left - 1);
            unlock(chan as usize);
        }
    }
}

/// Waits in all channels.
///
/// # Safety
/// As `select`.
#[inline(always)]
unsafe fn wait(cases: &[Case], order: &[u32], deadline: i64) -> Result<(usize, i32), i32> {
    let (mut chans, mut waiters) = (PerCase::new(), PerCase::new());
    chans.keep_room(cases.len())?;
    waiters.keep_room(cases.len())?;
    let chans = chans.fill(cases.len(), |i, place| {
        place.write(cases[i].chan.map_or(ptr::null(), ptr::from_ref))
    });
    chans.sort_unstable();
    // Each channel once, and null, which comes first, not at all.
    let (mut kept, mut last) = (0, ptr::null());
    for i in 0..chans.len() {
        if chans[i] != last {
            last = chans[i];
            chans[kept] = last;
            kept += 1;
        }
    }
    let locked = LockedChans { chans: &chans[..kept] };
    let unlock = || {
        // SAFETY: all locks are held where this is called.
        unsafe { unlock_all(&raw const locked as usize) }
    };
    locked.lock();
    for &i in order {
        let case = &cases[i as usize];
        let Some(chan) = case.chan else { continue };
        // SAFETY: all locks are held, and the caller gives an element with each case.
        if let Some(result) = unsafe { case.try_locked(chan, unlock) } {
            return Ok((i as usize, result));
        }
    }
    let thread = Parker::for_thread();
    let block = match Block::begin(&thread, deadline, true, Why::Select) {
        Ok(block) => block,
        Err(e) => {
            unlock();
            return Err(e);
        }
    };
    let waiters = waiters.fill(cases.len(), |i, place| {
        block.make_waiter(cases[i].chan.map_or(ptr::null(), ptr::from_ref), place)
    });
    let each = || cases.iter().zip(waiters.iter());
    // In the random order, because a partner serves the first queued of several cases on one
    // channel.
    for i in order.iter().map(|&i| i as usize) {
        // SAFETY: all locks are held. The waiters stay until this returns, and are out of their
        // lines then.
        unsafe { cases[i].queue(&waiters[i]) };
    }
    // SAFETY: all locks are held; `unlock_all` releases them.
    let cause = unsafe { block.park_inline(unlock_all, &raw const locked as usize) };
    for (case, waiter) in each() {
        // Also for a waiter that is out of its queue already: taking the channel's lock waits for
        // the thread that parked this select, which may not have released that lock yet
        // (`unlock_all`).
        if !waiter.won.get() {
            case.unqueue(waiter);
        }
    }
    if cause != Cause::Woken {
        return Err(cause.errno());
    }
    let winner = each().position(|(_, w)| w.won.get()).expect("a waker has claimed one");
    Ok((winner, if waiters[winner].ok.get() { 0 } else { -libc::EPIPE }))
}
