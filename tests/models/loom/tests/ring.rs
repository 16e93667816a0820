//! A P's ring: its owner at both ends, thieves that take halves.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use loom_models::check::check;
use loom_models::sched::prim::ring::Ring;

const MOST: usize = 8;

/// A ring and the tasks 1, 2, ... that get into it. Each has a content that is
/// written before the push and taken by whoever gets the task: loom reports two
/// that take it, and a third that doesn't see it.
struct Victim {
    ring: Ring,
    contents: [UnsafeCell<usize>; MOST + 1],
}

// SAFETY: that the contents are used by one thread at a time is what is checked.
unsafe impl Sync for Victim {}
// SAFETY: likewise.
unsafe impl Send for Victim {}

impl Victim {
    /// A ring that tasks have gone through before: `turned` of them.
    fn new(turned: usize, tasks: impl IntoIterator<Item = usize>) -> Arc<Victim> {
        let v =
            Victim { ring: Ring::new(4), contents: std::array::from_fn(|_| UnsafeCell::new(0)) };
        for _ in 0..turned {
            assert!(v.ring.push(usize::MAX));
            assert_eq!(v.ring.pop_front(true), Some(usize::MAX));
        }
        for task in tasks {
            assert!(v.push(task));
        }
        Arc::new(v)
    }

    fn push(&self, task: usize) -> bool {
        self.contents[task].with_mut(|c| {
            // SAFETY: loom reports it if it isn't ours.
            unsafe { *c = task * 10 }
        });
        self.ring.push(task)
    }

    /// Takes what is in the task, which was not taken before.
    fn take(&self, task: usize) -> usize {
        self.contents[task].with_mut(|c| {
            // SAFETY: loom reports it if it isn't ours.
            assert_eq!(
                unsafe { std::mem::take(&mut *c) },
                task * 10,
                "task {task} is taken twice or not visible"
            );
        });
        task
    }

    fn pop_back(&self) -> Option<usize> {
        self.ring.pop_back(false).map(|t| self.take(t))
    }

    fn pop_front(&self) -> Option<usize> {
        self.ring.pop_front(false).map(|t| self.take(t))
    }

    /// A thief with a ring of its own: what it gets, oldest first.
    fn steal(&self) -> Vec<usize> {
        let mine = Ring::new(4);
        let mut got = Vec::new();
        if let Some((first, n)) = self.ring.steal_half(&mine) {
            got.push(self.take(first));
            got.extend(std::iter::from_fn(|| mine.pop_front(true)).map(|t| self.take(t)));
            assert_eq!(got.len(), n);
        }
        got
    }

    fn drain(&self) -> Vec<usize> {
        let mut got = Vec::new();
        self.ring.drain_half(|t| got.push(t));
        got.into_iter().map(|t| self.take(t)).collect()
    }

    /// The rest, when the others are done; then everything was taken once.
    fn expect_all(&self, mut got: Vec<usize>, pushed: usize) {
        got.extend(std::iter::from_fn(|| self.pop_back()));
        assert!(self.ring.is_empty());
        got.sort_unstable();
        assert_eq!(got, (1..=pushed).collect::<Vec<_>>(), "a task is lost or doubled");
    }
}

fn ascends(tasks: &[usize]) -> bool {
    tasks.is_sorted()
}

/// Runs the owner against `thieves`.
fn owner_against(
    thieves: usize,
    v: Arc<Victim>,
    owner: impl FnOnce(&Victim) -> Vec<usize>,
) -> Vec<usize> {
    let threads: Vec<_> = (0..thieves)
        .map(|_| {
            let v = v.clone();
            thread::spawn(move || v.steal())
        })
        .collect();
    let mut got = owner(&v);
    for t in threads {
        let stolen = t.join().unwrap();
        assert!(ascends(&stolen), "a thief gets the oldest first");
        got.extend(stolen);
    }
    got
}

/// The owner pops the entry that a thief has just claimed: each must see the
/// other, else both have it.
#[test]
fn the_last_entry_goes_to_the_owner_or_to_a_thief() {
    check(4, || {
        let v = Victim::new(0, 1..=1);
        let got = owner_against(1, v.clone(), |v| v.pop_back().into_iter().collect());
        v.expect_all(got, 1);
    });
}

/// Two thieves and the owner at one entry: the second thief's claim begins
/// where the first one's has ended, with a tail that the owner moves.
#[test]
fn the_last_entry_goes_to_the_owner_or_to_one_of_two_thieves() {
    check(2, || {
        let v = Victim::new(0, 1..=1);
        let got = owner_against(2, v.clone(), |v| v.pop_back().into_iter().collect());
        v.expect_all(got, 1);
    });
}

/// The owner pops until the claim of a thief is all that is left, and has to
/// wait for it: an entry that the thief gives up must not be forgotten.
#[test]
fn popping_everything_against_a_thief_loses_nothing() {
    check(3, || {
        let v = Victim::new(0, 1..=3);
        let got = owner_against(1, v.clone(), |v| (0..3).filter_map(|_| v.pop_back()).collect());
        v.expect_all(got, 3);
    });
}

/// A popped entry's place is used again while a thief still copies what was
/// there: it must get the new entry whole, or not that one.
#[test]
fn a_push_after_a_pop_is_not_confused_with_what_was_popped() {
    check(3, || {
        let v = Victim::new(0, 1..=2);
        let got = owner_against(1, v.clone(), |v| {
            let mut got: Vec<_> = v.pop_back().into_iter().collect();
            assert!(v.push(3));
            got.extend(v.pop_back());
            got
        });
        v.expect_all(got, 3);
    });
}

/// A full ring that turns: the owner must not overwrite what a thief copies,
/// though it isn't in the ring any more.
#[test]
fn a_push_into_a_full_ring_waits_for_the_thief_that_copies() {
    check(3, || {
        let v = Victim::new(3, 1..=4);
        let got = owner_against(1, v.clone(), |v| {
            if !v.push(5) {
                return vec![v.take(5)];
            }
            v.pop_back().into_iter().collect()
        });
        v.expect_all(got, 5);
    });
}

/// FIFO: owner and thieves take at the same end, the owner without looking at
/// the tail again.
#[test]
fn the_owner_pops_the_oldest_against_two_thieves() {
    check(2, || {
        let v = Victim::new(2, 1..=3);
        let got = owner_against(2, v.clone(), |v| {
            let got: Vec<_> = (0..2).filter_map(|_| v.pop_front()).collect();
            assert!(ascends(&got));
            got
        });
        v.expect_all(got, 3);
    });
}

/// The owner takes the entry that a thief claims from the back, pushes others to its place, and takes what is oldest then:
/// the thief gets the new entry whole or not at all, and the owner takes nothing twice.
#[test]
fn the_owner_pops_the_oldest_behind_a_claim_that_it_has_cut_short() {
    check(3, || {
        let v = Victim::new(0, 1..=2);
        let got = owner_against(1, v.clone(), |v| {
            let mut got: Vec<_> = v.pop_back().into_iter().collect();
            assert!(v.push(3) && v.push(4));
            got.extend(v.pop_front());
            got.extend(v.pop_front());
            got
        });
        v.expect_all(got, 4);
    });
}

/// Two thieves, one after the other, and an owner that pops at the old end of a claim: the second claim begins where the
/// owner has got to.
#[test]
fn a_second_thief_begins_behind_what_the_owner_has_popped() {
    check(2, || {
        let v = Victim::new(1, 1..=4);
        let got = owner_against(2, v.clone(), |v| {
            let mut got: Vec<_> = v.pop_front().into_iter().collect();
            got.extend(v.pop_back());
            got
        });
        v.expect_all(got, 4);
    });
}

/// Both ends in turn, with a push between.
#[test]
fn an_owner_at_both_ends_and_two_thieves_share_everything() {
    check(2, || {
        let v = Victim::new(0, 1..=2);
        let got = owner_against(2, v.clone(), |v| {
            let mut got: Vec<_> = v.pop_front().into_iter().collect();
            assert!(v.push(3));
            got.extend(v.pop_back());
            got
        });
        v.expect_all(got, 3);
    });
}

/// The owner makes room by a claim of its own, which a thief may be faster with:
/// then it has no entries and no room yet.
#[test]
fn draining_half_against_two_thieves_loses_nothing() {
    check(2, || {
        let v = Victim::new(1, 1..=4);
        let got = owner_against(2, v.clone(), |v| {
            let mut got = v.drain();
            got.extend(v.pop_back());
            got
        });
        v.expect_all(got, 4);
    });
}

/// A thief that is robbed while it steals: its ring has room for everything it
/// takes, though the robber still copies from it.
#[test]
fn a_thief_that_is_robbed_itself_loses_nothing() {
    check(3, || {
        let victim = Victim::new(0, 1..=4);
        let middle = Victim::new(0, [1, 2, 3, 4]);
        let m = middle.clone();
        let robber = thread::spawn(move || m.steal());
        let stolen = victim.ring.steal_half(&middle.ring).map_or(0, |(_, n)| n);
        let rest = || std::iter::from_fn(|| middle.ring.pop_back(false)).count();
        let robbed = robber.join().unwrap().len();
        // One of those stolen was given back at once.
        assert_eq!(rest() + robbed, 4 + stolen.saturating_sub(1), "a task is lost");
    });
}
