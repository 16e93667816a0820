//! A P's record of its loan.

use crate::sched::types::m::{M, MRef};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, Ordering};

/// The M that lends the P, and how the loan began.
pub struct Loan {
    /// Null: the P isn't lent.
    lender: AtomicPtr<M>,
    /// When the loan began, in ns.
    since: AtomicI64,
    /// Whether the lender's goroutine was asked to end its turn.
    is_asked: AtomicBool,
    /// `P::stands_since` when the loan began.
    stands_since: AtomicI64,
}

impl Loan {
    pub fn new() -> Loan {
        Loan {
            lender: AtomicPtr::new(ptr::null_mut()),
            since: AtomicI64::new(0),
            is_asked: AtomicBool::new(false),
            stands_since: AtomicI64::new(i64::MAX),
        }
    }

    /// Opens a loan from `lender` to the P's new owner, at `now` (ns). `stands_since`:
    /// `P::stands_since` just before (ns; `i64::MAX`: unknown).
    pub fn begin(&self, lender: MRef, now: i64, is_asked: bool, stands_since: i64) {
        self.since.store(now, Ordering::Relaxed);
        self.stands_since.store(stands_since, Ordering::Relaxed);
        self.is_asked.store(is_asked, Ordering::Relaxed);
        // Release: pairs with the Acquire in `began_before`.
        self.lender.store(lender.as_ptr(), Ordering::Release);
    }

    #[inline(always)]
    pub fn is_open(&self) -> bool {
        !self.lender.load(Ordering::Relaxed).is_null()
    }

    /// Whether the loan is open, and began before `begun` (ns).
    pub fn began_before(&self, begun: i64) -> bool {
        // Acquire: pairs with the Release in `begin`.
        !self.lender.load(Ordering::Acquire).is_null() && self.since.load(Ordering::Relaxed) < begun
    }

    /// Whether the lender's goroutine was asked to end its turn. Only the P's owner may call this.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// `P::stands_since` when the latest loan began, in ns; `i64::MAX`: unknown.
    pub fn stands_since(&self) -> i64 {
        self.stands_since.load(Ordering::Relaxed)
    }

    /// Ends the loan; returns the lender, to the first caller only.
    #[must_use]
    pub fn end(&self) -> Option<MRef> {
        let lender = self.lender.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: `begin` has put an M there, and M's stay mapped until shutdown.
        (!lender.is_null()).then(|| unsafe { MRef::from_ptr(lender) })
    }
}
