//! Goroutines that own their thread. seed: S9
//!
//! A locked thread runs its owner and, while the owner is parked, the goroutines pinned to the
//! thread. When none of these is ready, the thread gives its P up and sleeps, so it fires no timers
//! that would wake them. Therefore one of the library's threads is never locked: a goroutine that
//! wants to lock the last one waits until another is unlocked.

use crate::sched::run::park::{self, Block};
use crate::sched::run::requests;
use crate::sched::take::call;
use crate::sched::types::attention::TO_G0;
use crate::sched::types::g::flags;
use crate::sched::types::m::{self, MRef};
use crate::sched::types::runtime::rt;
use crate::sched::types::slots::Slots;
use crate::sched::types::waiter::{Parker, Waiter, When, Why};
use core::cell::Cell;

thread_local! {
    /// Locks less unlocks of a plain thread: they have no effect, but must pair.
    static PLAIN: Cell<u32> = const { Cell::new(0) };
}

impl Slots {
    fn take(&self) {
        self.lock.lock();
        if self.taken.get() < rt().lockable_threads() {
            self.taken.set(self.taken.get() + 1);
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            return;
        }
        rt().thread_limit_hit();
        let thread = Parker::for_thread();
        let block = Block::begin_uncancellable(&thread, Why::Thread);
        let waiter = block.waiter(core::ptr::null::<()>());
        // SAFETY: the lock was taken above. The waiter stays until this returns, after a waker has
        // taken it out.
        unsafe { self.queue.push(&waiter) };
        // A slot that is given back passes to the waiter without being counted down.
        // SAFETY: the lock is held, and `unlock` releases it.
        let _ = unsafe { block.park(park::unlock, &raw const self.lock as usize) };
    }

    /// Lets waiting goroutines lock a thread, as many as the limit of threads now allows.
    fn let_in(&self) {
        let next = || {
            self.lock.with(|| {
                let has_room = self.taken.get() < rt().lockable_threads();
                let next = if has_room { self.queue.pop() } else { None };
                next.inspect(|_| self.taken.set(self.taken.get() + 1))
            })
        };
        while let Some(waiter) = next() {
            // SAFETY: `pop` has taken the waiter out of its queue and claimed it, so only this
            // thread wakes it.
            unsafe { Waiter::ready(waiter, When::Soon) };
        }
    }

    fn give_back(&self) {
        let next = self.lock.with(|| {
            let next = self.queue.pop();
            if next.is_none() {
                debug_assert!(self.taken.get() > 0);
                self.taken.set(self.taken.get() - 1);
            }
            next
        });
        if let Some(waiter) = next {
            // SAFETY: `pop` has taken the waiter out of its queue and claimed it, so only this
            // thread wakes it.
            unsafe { Waiter::ready(waiter, When::Soon) };
        }
    }
}

/// Lets waiting goroutines lock threads, if the changed limit of threads allows it.
pub fn limit_changed() {
    rt().locked.let_in();
}

/// Counts one more goroutine that keeps the thread of this M for itself.
fn add_lock(m: MRef) {
    m.by_g0.set(m.by_g0.get() + 1);
}

/// Undoes one [`add_lock`], when the goroutine unlocks the thread or ends.
pub fn remove_lock(m: MRef) {
    m.by_g0.set(m.by_g0.get() - 1);
    if !m.is_locked() && needs_slot(m) {
        rt().locked.give_back();
    }
}

/// Whether locking this thread takes a slot. A thread that `gs_run` has borrowed needs none: only
/// the function of `gs_run` locks it, which leaves the library's own threads to others.
fn needs_slot(m: MRef) -> bool {
    !m.is_runner()
}

/// Locks the calling goroutine to its thread: no other thread runs the goroutine, and the thread
/// runs no goroutine that isn't bound to it. Nests. Go's `LockOSThread`.
pub fn lock() {
    let Some(g) = m::current_g() else {
        PLAIN.set(PLAIN.get() + 1);
        return;
    };
    let depth = g.lock_depth.get();
    g.lock_depth.set(depth + 1);
    // All goroutines of a bubble share one thread.
    if depth == 0 && !g.has(flags::BUBBLE) {
        // SAFETY: there is a current goroutine, so this is an M's thread.
        let here = unsafe { m::must_current() };
        // A locked thread has one of the slots that bound how many threads are locked. A goroutine
        // that stays on this thread takes no slot if the thread needs none or has one already. A
        // goroutine that moves takes a slot first, because it may have to wait for the slot.
        let stays = g.has(flags::BOUND) || here.root.get() == g.as_ptr().cast_const();
        let took = !(stays && (here.is_locked() || !needs_slot(here)));
        if took {
            rt().locked.take();
        }
        // The function of `gs_run` stays on its thread too. Goroutines that are pinned there run
        // while it is parked.
        if !stays && let Some(m) = m::on_goroutine() {
            call::find_own_thread(m, g);
        }
        // The goroutine may be on another thread by now.
        // SAFETY: a goroutine runs this, so this is an M's thread.
        let m = unsafe { m::must_current() };
        // No slot is needed here: a goroutine pinned to this thread locked it meanwhile, or there
        // was no other thread.
        if took && (m.is_locked() || !needs_slot(m)) {
            rt().locked.give_back();
        }
        g.set_flag(flags::BOUND, true);
        g.bound_m.set(m.as_ptr());
        add_lock(m);
        m.unbind();
    }
}

/// Undoes one [`lock`]. `-EPERM`: there is none. Go's `UnlockOSThread`.
pub fn unlock() -> i32 {
    let Some(g) = m::current_g() else {
        return match PLAIN.get() {
            0 => -libc::EPERM,
            n => {
                PLAIN.set(n - 1);
                0
            }
        };
    };
    match g.lock_depth.get() {
        0 => return -libc::EPERM,
        1 if !g.has(flags::BUBBLE) => {
            // SAFETY: there is a current goroutine, so this is an M's thread.
            let m = unsafe { m::must_current() };
            remove_lock(m);
            if !m.is_locked() {
                m.learn_own_affinity();
            }
            if !m.p.get().is_null() {
                m.bind_to(m.p().node as usize);
            }
            g.set_flag(flags::BOUND, g.has(flags::PINNED));
            if m.is_wanted_back() && !m.p.get().is_null() {
                requests::ask(m.p(), TO_G0);
            }
        }
        _ => {}
    }
    g.lock_depth.set(g.lock_depth.get() - 1);
    0
}
