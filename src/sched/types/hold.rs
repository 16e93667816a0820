//! Whether an M has its P and, if not, why. `take/SYSCALLS.md` draws the states.

use core::sync::atomic::{AtomicU32, Ordering};

/// Whether an M has its P: one word of the M. Only the M's own thread stores it plainly, inside the
/// library; other threads compare and swap, with `Runtime::taking` held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// The M has its P, or is on g0, where it has nothing to answer.
    Held,
    /// Another thread asks for the P. To `Held` by an M that comes inside; to `Taken` or `Lent` by
    /// the asker.
    Asked,
    /// The asker has the P. To `Held` by the M, once the M has a P or its goroutine is queued.
    Taken,
    /// The P with this number is on loan. To `Held` by the borrower, which gives the P back; to
    /// `Taken` by the M, if it comes inside first. The number keeps a borrower of another P from
    /// ending this loan.
    Lent(u16),
    /// An announced call is under way: the M has left its P, or has begun the call without a P. Also
    /// the word of a thread on its way into `gs_run`, and of an M whose hook runs on g0.
    InCall,
    /// The goroutine has found no P after an announced call, and goes on without a P until its next
    /// call.
    GoesOn,
}

impl Hold {
    pub const fn word(self) -> u32 {
        match self {
            Hold::Held => 0,
            Hold::Asked => 1,
            Hold::Taken => 2,
            Hold::Lent(p) => (p as u32) << 8 | 3,
            Hold::InCall => 4,
            Hold::GoesOn => 5,
        }
    }

    fn of(word: u32) -> Hold {
        match word & 0xff {
            0 => Hold::Held,
            1 => Hold::Asked,
            2 => Hold::Taken,
            3 => Hold::Lent((word >> 8) as u16),
            4 => Hold::InCall,
            _ => Hold::GoesOn,
        }
    }

    /// Whether the M has no P although its goroutine runs the user's code, outside announced calls.
    pub fn is_lost(self) -> bool {
        matches!(self, Hold::Taken | Hold::Lent(_) | Hold::GoesOn)
    }
}

/// A [`Hold`] that threads exchange. Each method that changes the word is a step of the protocol.
pub struct AtomicHold(AtomicU32);

impl AtomicHold {
    pub const fn new() -> AtomicHold {
        AtomicHold(AtomicU32::new(Hold::Held.word()))
    }

    /// Acquire: pairs with the Release of each step, such as that of a borrower that has given the
    /// P back, or of an M that has queued its goroutine.
    #[inline(always)]
    pub fn get(&self) -> Hold {
        Hold::of(self.0.load(Ordering::Acquire))
    }

    /// For an M inside: whether its word is `Held`, so that it has nothing to answer.
    #[inline(always)]
    pub fn is_held(&self) -> bool {
        // Acquire: as in `get`.
        self.0.load(Ordering::Acquire) == Hold::Held.word()
    }

    /// Asks for the P. False: the M has no P, or another thread asks already.
    pub fn ask(&self) -> bool {
        self.change(Hold::Held, Hold::Asked)
    }

    /// For the asker: takes the P (`Taken`, `Lent`) or gives up (`Held`). False: the M has answered
    /// meanwhile, and keeps the P.
    pub fn settle(&self, to: Hold) -> bool {
        self.change(Hold::Asked, to)
    }

    /// For the borrower of the P with this number: gives the P back. False: the M has found out
    /// that it has no P.
    pub fn end_loan(&self, p: u16) -> bool {
        self.change(Hold::Lent(p), Hold::Held)
    }

    /// For an M inside: whether another thread has taken its P. If not, the M keeps its P, or is in
    /// an announced call and has no P to lose.
    #[inline(always)]
    pub fn has_lost_p(&self) -> bool {
        !self.is_held() && !self.keep()
    }

    /// For an M inside: keeps its P if no thread has taken it. A single exchange decides: between a
    /// load and an exchange an asker that has found the M inside could give up, and ask again.
    #[cold]
    fn keep(&self) -> bool {
        let found = self.0.compare_exchange(
            Hold::Asked.word(),
            Hold::Held.word(),
            // Pair with the asker's AcqRel.
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match found.map_or_else(Hold::of, |_| Hold::Held) {
            Hold::Held | Hold::InCall => true,
            // The borrower may give the P back at this moment.
            lent @ Hold::Lent(_) => !self.change(lent, Hold::Taken) && self.keep(),
            _ => false,
        }
    }

    /// For an M inside that begins an announced call, with a P that it leaves or without a P. A
    /// thread that asks for the P just now fails to settle, and takes nothing.
    #[inline(always)]
    pub fn begin_call(&self) {
        self.0.store(Hold::InCall.word(), Ordering::Relaxed);
    }

    /// For an M inside that has a P again or has queued its goroutine. Release: pairs with the
    /// Acquire in `get`: a thread that sees `Held` also sees the goroutine in its queue.
    #[inline(always)]
    pub fn end(&self) {
        self.0.store(Hold::Held.word(), Ordering::Release);
    }

    /// For an M inside without a P, whose goroutine is about to run the user's code.
    pub fn lose(&self, to: Hold) {
        debug_assert!(to.is_lost());
        // Release: pairs with the Acquire in `get`.
        self.0.store(to.word(), Ordering::Release);
    }

    fn change(&self, from: Hold, to: Hold) -> bool {
        // AcqRel: what one side did with the P before its change, the other side sees after its
        // own.
        self.0.compare_exchange(from.word(), to.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
