//! Select: the first of several channel operations that can be done.
//!
//! First each case is tried in a random order, one lock at a time. If none can
//! be done all channels are locked, in the order of their addresses, tried once
//! more and waited in; then all locks are released together, by the context
//! that runs next. Whoever wakes the select has claimed it, so only one case
//! wins; the waiters of the others are taken out afterwards.

use super::{Chan, unlock};
use crate::sched::park::{Block, Cause, Parker, Waiter, Why, sleep_until};
use crate::sched::schedule::random;

/// Whether a case sends or receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// As for a send or receive.
    pub elem: *mut u8,
}

/// Cases that are kept on the stack; more are on the heap.
const FEW: usize = 8;

/// Does one of the cases, chosen with equal chances among those that can be
/// done; gives its number and the result of the operation. Fails with the
/// reason why it can't wait. selectgo.
///
/// # Safety
/// The elements are as for the single operations.
pub unsafe fn select(cases: &[Case], deadline: i64) -> Result<(usize, i32), i32> {
    if cases.iter().all(|c| c.chan.is_none()) {
        return Err(match deadline {
            0 => -libc::EAGAIN,
            _ => sleep_until(deadline, Why::SelectNothing).errno(),
        });
    }
    let mut few = [0u32; FEW];
    let mut many = Vec::new();
    let order = numbers(cases.len(), &mut few, &mut many);
    shuffle(order);
    for &i in &*order {
        // SAFETY: by contract.
        if let Some(result) = unsafe { cases[i as usize].try_now() } {
            return Ok((i as usize, result));
        }
    }
    if deadline == 0 && cases.len() == 1 {
        return Err(-libc::EAGAIN);
    }
    // One at a time may have missed what moved from one channel to another: with
    // all of them locked it sees one moment, even if it isn't to wait.
    // SAFETY: by contract.
    unsafe { wait(cases, order, deadline) }
}

/// The numbers below `n`, on the stack if they are few.
fn numbers<'a>(n: usize, few: &'a mut [u32; FEW], many: &'a mut Vec<u32>) -> &'a mut [u32] {
    let numbers = if n <= FEW {
        &mut few[..n]
    } else {
        many.resize(n, 0);
        &mut many[..]
    };
    for (i, number) in numbers.iter_mut().enumerate() {
        *number = i as u32;
    }
    numbers
}

fn shuffle(order: &mut [u32]) {
    for i in (1..order.len()).rev() {
        order.swap(i, ((u64::from(random()) * (i as u64 + 1)) >> 32) as usize);
    }
}

impl Case<'_> {
    /// Does it if it needs no waiting.
    ///
    /// # Safety
    /// The element is as for the single operation.
    unsafe fn try_now(&self) -> Option<i32> {
        let chan = self.chan?;
        let would_wait = match self.op {
            Op::Send => chan.send_would_wait(),
            Op::Recv => chan.recv_would_wait(),
        };
        if would_wait {
            return None;
        }
        chan.lock.lock();
        // SAFETY: by contract.
        let done = unsafe { self.try_locked(chan, || chan.lock.unlock()) };
        if done.is_none() {
            chan.lock.unlock();
        }
        done
    }

    /// The same with the channel's lock held.
    ///
    /// # Safety
    /// As `try_now`.
    unsafe fn try_locked(&self, chan: &Chan, unlock: impl FnOnce()) -> Option<i32> {
        // SAFETY: by contract.
        unsafe {
            match self.op {
                Op::Send => chan.send_now(self.elem, unlock),
                Op::Recv => chan.recv_now(self.elem, unlock),
            }
        }
    }

    fn queue(&self, waiter: &Waiter) {
        if let Some(chan) = self.chan {
            waiter.elem.set(self.elem);
            match self.op {
                Op::Send => chan.senders.push(waiter),
                Op::Recv => chan.receivers.push(waiter),
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
struct Locked<'a> {
    chans: &'a [*const Chan],
}

impl Locked<'_> {
    fn lock(&self) {
        for &c in self.chans {
            // SAFETY: the cases' channels are alive.
            unsafe { &*c }.lock.lock();
        }
    }
}

/// Releases the locks of a [`Locked`]. The select may go on as soon as the last
/// one is released, so its list is not looked at any more then.
///
/// # Safety
/// `locked` is the address of one, whose locks the caller holds.
unsafe fn unlock_all(locked: usize) {
    // SAFETY: the select waits for the locks that are still held; it is behind
    // them that the list is.
    unsafe {
        let chans = (*(locked as *const Locked)).chans;
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
unsafe fn wait(cases: &[Case], order: &[u32], deadline: i64) -> Result<(usize, i32), i32> {
    let (mut few, mut many) = ([core::ptr::null(); FEW], Vec::new());
    let chans: &mut [*const Chan] = if cases.len() <= FEW {
        &mut few[..]
    } else {
        many.resize(cases.len(), core::ptr::null());
        &mut many[..]
    };
    let mut n = 0;
    for chan in cases.iter().filter_map(|c| c.chan) {
        chans[n] = chan;
        n += 1;
    }
    chans[..n].sort_unstable();
    let mut kept = 1;
    for i in 1..n {
        if chans[i] != chans[kept - 1] {
            chans[kept] = chans[i];
            kept += 1;
        }
    }
    let locked = Locked { chans: &chans[..kept] };
    let unlock = || {
        // SAFETY: all locks are held where this is called.
        unsafe { unlock_all(&raw const locked as usize) }
    };
    locked.lock();
    for &i in order {
        let case = &cases[i as usize];
        let Some(chan) = case.chan else { continue };
        // SAFETY: by contract.
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
    let mut few_waiters = [const { None::<Waiter> }; FEW];
    let mut many_waiters = Vec::new();
    let waiters: &[Option<Waiter>] = if cases.len() <= FEW {
        few_waiters[..cases.len()].fill_with(|| Some(block.waiter()));
        &few_waiters[..cases.len()]
    } else {
        many_waiters.resize_with(cases.len(), || Some(block.waiter()));
        &many_waiters
    };
    let each = || cases.iter().zip(waiters).filter_map(|(c, w)| Some((c, w.as_ref()?)));
    each().for_each(|(case, waiter)| case.queue(waiter));
    // SAFETY: all locks are held; `unlock_all` releases them.
    let cause = unsafe { block.park(unlock_all, &raw const locked as usize) };
    for (case, waiter) in each() {
        // Even where ours is out already: see `unlock_all`.
        if !waiter.won.get() {
            case.unqueue(waiter);
        }
    }
    if cause != Cause::Woken {
        return Err(cause.errno());
    }
    let winner = each().position(|(_, w)| w.won.get()).expect("a waker has claimed one");
    let ok = waiters[winner].as_ref().is_some_and(|w| w.ok.get());
    Ok((winner, if ok { 0 } else { -libc::EPIPE }))
}
