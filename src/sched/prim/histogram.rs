//! Histograms of times, in classes that double.

use core::sync::atomic::{AtomicU64, Ordering};

/// The number of classes.
pub const CLASSES: usize = 20;

/// How often times of each class were counted. One thread at a time counts; any thread may read, so
/// a reading is no exact snapshot.
#[derive(Default)]
pub struct Histogram {
    classes: [AtomicU64; CLASSES],
    /// The sum of the times, in ns.
    sum: AtomicU64,
}

/// The values of a [`Histogram`], or the sums of several.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Times {
    /// Element 0 counts times of less than 1 us, element i of less than 2^i us, the last all longer
    /// times.
    pub classes: [u64; CLASSES],
    /// The sum of the times, in ns.
    pub sum: u64,
}

/// The class of a time in ns.
fn class_of(ns: u64) -> usize {
    let us = ns / 1000;
    ((u64::BITS - us.leading_zeros()) as usize).min(CLASSES - 1)
}

/// Adds to a counter that only the caller writes.
#[inline(always)]
pub fn count(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl Histogram {
    /// Counts a time in ns; below 0 counts as 0.
    pub fn note(&self, ns: i64) {
        let ns = ns.max(0) as u64;
        count(&self.sum, ns);
        count(&self.classes[class_of(ns)], 1);
    }

    pub fn read(&self) -> Times {
        let mut times = Times { sum: self.sum.load(Ordering::Relaxed), ..Times::default() };
        for (to, from) in times.classes.iter_mut().zip(&self.classes) {
            *to = from.load(Ordering::Relaxed);
        }
        times
    }
}

impl Times {
    #[must_use]
    pub fn plus(mut self, other: Times) -> Times {
        self.sum += other.sum;
        for (to, from) in self.classes.iter_mut().zip(other.classes) {
            *to += from;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_in_the_first_class_that_is_longer() {
        let h = Histogram::default();
        for ns in [-1, 0, 999, 1000, 1999, 2000, i64::MAX] {
            h.note(ns);
        }
        let times = h.read();
        assert_eq!(times.classes[..4], [3, 2, 1, 0]);
        assert_eq!(times.classes[CLASSES - 1], 1);
        assert_eq!(times.sum, 999 + 1000 + 1999 + 2000 + i64::MAX as u64);
    }
}
