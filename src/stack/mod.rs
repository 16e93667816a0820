//! Stacks: reserved large, committed as touched, guarded at the low end.
//!
//! A stack comes from a slab: a big mapping cut into stacks of one size class,
//! so that page tables are shared and the mappings stay few.
//!
//! ```text
//!   slab   | stack 0             | stack 1             | ...
//!          | guard |      <-- sp | guard |      <-- sp |
//! ```
//!
//! The guard faults on access (`MADV_GUARD_INSTALL`, which needs no mapping of
//! its own). On a kernel without it a guard is a mapping, and the kernel limits
//! those: once a share of that limit is used up, a whole slab has one guard.

mod large;
mod overflow;

pub use large::on_large;
pub use overflow::report as report_overflow;

use crate::arch::{self, sanitizer};
use crate::os::locked::Locked;
use crate::os::{PAGE, heap, log, mem};
use core::iter;
use core::mem::offset_of;
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::VecDeque;

/// Size of the guard below each stack, in bytes: a frame of up to this size can't jump over it.
pub const GUARD: usize = if PAGE > 16 << 10 { PAGE } else { 16 << 10 };
/// The largest stack that may be asked for, in bytes.
pub const MAX: usize = 1 << 30;
/// Default size of a stack in bytes, guard included.
pub const DEFAULT: usize = 256 << 10;
/// Log2 of the bytes of the smallest stack, guard included. It has as many bytes as its guard: 16 KiB
/// are enough for a signal frame and a `printf`.
const MIN_CLASS: u32 = GUARD.ilog2() + 1;
/// Log2 of the bytes of the largest stack: [`MAX`] and its guard, rounded up.
const MAX_CLASS: u32 = 31;
const CLASSES: usize = (MAX_CLASS - MIN_CLASS + 1) as usize;
/// Stacks in the first slab of a class; later slabs are larger.
const FIRST_SLAB: usize = 16;
const LARGEST_SLAB: usize = 256;
/// Free stacks of up to this size, in bytes, keep their memory for a while.
const KEEP_WARM: usize = 1 << 20;
/// Number of free stacks that always keep their memory.
const FEW: usize = 128;

/// A size class: stacks of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeClass(u8);

impl SizeClass {
    /// The class whose stacks have at least `usable` bytes above the guard;
    /// `None` for more than [`MAX`].
    pub fn for_usable(usable: usize) -> Option<SizeClass> {
        if usable > MAX {
            return None;
        }
        let bits = (usable + GUARD).next_power_of_two().trailing_zeros();
        Some(SizeClass(bits.max(MIN_CLASS) as u8))
    }

    /// The class of stacks of about `bytes`, guard included.
    pub fn for_reserved(bytes: usize) -> Option<SizeClass> {
        SizeClass::for_usable(bytes.max(2 * GUARD) - GUARD)
    }

    /// Bytes of address space of a stack.
    pub fn size(self) -> usize {
        1 << self.0
    }

    fn index(self) -> usize {
        self.0 as usize - MIN_CLASS as usize
    }
}

/// A stack. The holder of the value owns the memory.
#[derive(Clone, Copy)]
pub struct Stack {
    /// The lowest byte of the reserved range: the guard's.
    base: NonZeroUsize,
    class: SizeClass,
    /// The node whose pool the stack comes from, and the node where its memory is.
    home: u16,
    node: u16,
    /// 1: pages that are touched from now on come from `node` too. Not a `bool`, so that all bytes
    /// zero are the `None` of an `Option<Stack>`, which new descriptors need.
    rebound: u8,
}

// SAFETY: every field but `base` takes any bits, and without `base` the option is `None`.
const _: () = assert!(unsafe { core::mem::zeroed::<Option<Stack>>() }.is_none());

/// Size class and node of a stack, as one word to compare.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StackKind(u32);

impl StackKind {
    #[inline(always)]
    pub fn new(class: SizeClass, node: u16) -> StackKind {
        StackKind(u32::from(class.0) << 16 | u32::from(node))
    }
}

impl Stack {
    /// Offsets in bytes of the lowest address and of the size class, for debuggers.
    pub const BASE: usize = offset_of!(Stack, base);
    pub const CLASS: usize = offset_of!(Stack, class);

    /// The lowest byte that may be used.
    pub fn lo(&self) -> usize {
        self.base.get() + GUARD
    }

    /// One past the highest byte.
    pub fn hi(&self) -> usize {
        self.base.get() + self.class.size()
    }

    /// The lowest byte that may be used, and the size in bytes.
    pub fn bounds(&self) -> (usize, usize) {
        (self.lo(), self.hi() - self.lo())
    }

    /// Upper end of the first frame, 16-byte aligned. The offset in the page differs by up to 1 KiB
    /// from stack to stack: with equal offsets a thousand goroutines would share a few lines of the
    /// cache.
    pub fn top(&self) -> usize {
        let colour = (self.base.get() >> self.class.0) & 15;
        self.hi() - 64 - colour * 64
    }

    pub fn class(&self) -> SizeClass {
        self.class
    }

    #[inline(always)]
    pub fn kind(&self) -> StackKind {
        StackKind::new(self.class, self.node)
    }

    /// The node whose pool the stack comes from.
    pub fn home(&self) -> usize {
        self.home as usize
    }

    /// The node where the stack's memory is.
    #[inline(always)]
    pub fn node(&self) -> u16 {
        self.node
    }

    /// Whether an access to this address has run into the guard.
    pub fn guards(&self, address: usize) -> bool {
        (self.base.get()..self.lo()).contains(&address)
    }
}

/// Counts free objects that keep memory, and those of them that were not needed lately. These give
/// their memory back, more and more slowly. Giving memory back and getting it again takes more than
/// 1 us, which a program would otherwise pay for each of thousands of goroutines that come and go.
#[derive(Default)]
pub struct Warm {
    len: AtomicUsize,
    /// The least value of `len` since the last [`Warm::assess`].
    least: AtomicUsize,
    /// Number of objects that must still give their memory back.
    surplus: AtomicUsize,
}

impl Warm {
    /// How many free objects there are; may be out of date at once.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub fn added(&self, n: usize) {
        self.len.fetch_add(n, Ordering::Relaxed);
    }

    pub fn taken(&self, n: usize) {
        let left = self.len.fetch_sub(n, Ordering::Relaxed) - n;
        self.least.fetch_min(left, Ordering::Relaxed);
    }

    /// For sysmon: decides how many of the objects that were not needed since the last call give
    /// their memory back.
    pub fn assess(&self) {
        let spare = self.least.swap(self.len(), Ordering::Relaxed).saturating_sub(FEW);
        self.surplus.store(spare / 4 + spare.min(64), Ordering::Relaxed);
    }

    /// For sysmon: reserves up to `most` of the objects that must give their memory back, and
    /// returns how many.
    pub fn take_surplus(&self, most: usize) -> usize {
        let surplus = self.surplus.load(Ordering::Relaxed);
        let n = surplus.min(most);
        self.surplus.store(surplus - n, Ordering::Relaxed);
        n
    }

    /// Whether there will be a surplus if no object is needed until the next call of
    /// [`Warm::assess`].
    pub fn has_spare(&self) -> bool {
        self.len() > FEW
    }
}

/// Free stacks of one node and the slabs they come from.
pub struct StackPool {
    /// The node; and its number in the system, if memory can be bound to it.
    node: u16,
    memory: Option<usize>,
    /// How many stacks have memory from another node, and how many may.
    rebound: AtomicUsize,
    most_rebound: usize,
    /// Bytes of address space in all slabs.
    reserved: AtomicUsize,
    inner: Locked<StackPoolState>,
}

#[derive(Default)]
struct StackPoolState {
    free: [Free; CLASSES],
    slabs: Vec<Slab>,
}

/// Free stacks of one class: with memory, the last freed at the end, and without.
#[derive(Default)]
struct Free {
    warm: VecDeque<Stack>,
    cold: Vec<Stack>,
    count: Warm,
}

impl Free {
    #[must_use]
    fn pop(&mut self) -> Option<Stack> {
        let Some(stack) = self.warm.pop_back() else { return self.cold.pop() };
        self.count.taken(1);
        Some(stack)
    }

    /// Makes room for all stacks of the class, so that a push never allocates. False: there
    /// is no memory.
    #[must_use]
    fn keep_room(&mut self, count: usize) -> bool {
        if self.warm.capacity() < count {
            let mut larger = Vec::new();
            if !heap::reserve(&mut larger, count.max(2 * self.warm.capacity())) {
                return false;
            }
            larger.extend(self.warm.drain(..));
            self.warm = larger.into();
        }
        let more = count.saturating_sub(self.cold.len());
        heap::reserve(&mut self.cold, more)
    }

    fn push_warm(&mut self, stack: Stack) {
        self.warm.push_back(stack);
        self.count.added(1);
    }
}

struct Slab {
    class: SizeClass,
    at: usize,
    len: usize,
    /// How many guards in the slab are mappings.
    mapped: usize,
    valgrind: Vec<usize>,
}

impl StackPool {
    pub fn new(node: u16, memory: Option<usize>) -> StackPool {
        let most_rebound = memory.map_or(0, |_| mem::max_map_count() / 64);
        let (rebound, reserved) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let inner = Locked::new(StackPoolState::default());
        StackPool { node, memory, rebound, most_rebound, reserved, inner }
    }

    fn with<R>(&self, f: impl FnOnce(&mut StackPoolState) -> R) -> R {
        self.inner.with(f)
    }

    /// Calls `f` with the address and the size of each slab. `None`: the lock is taken, perhaps by a
    /// thread that is halted.
    #[must_use]
    pub fn try_each_slab(&self, mut f: impl FnMut(usize, usize)) -> Option<()> {
        self.inner.try_with(|p| p.slabs.iter().for_each(|slab| f(slab.at, slab.len)))
    }

    /// A stack of this class, the most recently freed first. `None`: there is no address space for
    /// another.
    #[must_use]
    pub fn get(&self, class: SizeClass) -> Option<Stack> {
        self.with(|p| {
            if let Some(stack) = p.free[class.index()].pop() {
                return Some(stack);
            }
            let more = p.carve(class, self.node, self.memory)?;
            self.reserved.fetch_add(more, Ordering::Relaxed);
            p.free[class.index()].pop()
        })
    }

    /// Bytes of address space that stacks have been cut from, guards included.
    pub fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Takes back a stack.
    ///
    /// # Safety
    /// The stack comes from this pool, and nothing is on it. No copy of the value is used any more.
    pub unsafe fn put(&self, stack: Stack) {
        debug_assert_eq!(stack.home, self.node);
        if stack.class.size() > KEEP_WARM {
            // SAFETY: as the caller says.
            unsafe { self.put_cold(iter::once(stack)) };
            return;
        }
        let stack = self.at_home(stack);
        self.with(|p| p.free[stack.class.index()].push_warm(stack));
    }

    /// Takes back several stacks, and gives their memory to the system. The stacks stay usable and
    /// their guards armed. Returns how many there were.
    ///
    /// # Safety
    /// As for [`StackPool::put`], for each of them.
    pub unsafe fn put_cold(&self, mut stacks: impl Iterator<Item = Stack>) -> usize {
        const AT_ONCE: usize = 64;
        let mut count = 0;
        loop {
            let mut some = [None; AT_ONCE];
            let n = (some.iter_mut().zip(&mut stacks))
                .map(|(place, stack)| {
                    debug_assert_eq!(stack.home, self.node);
                    *place = Some(self.at_home(stack));
                })
                .count();
            let some = || some.into_iter().flatten();
            // The system call is made without the lock.
            // SAFETY: nothing is on the stacks, and no other thread has them, as the caller says.
            unsafe { mem::discard_all(some().map(|s| (s.lo(), s.hi() - s.lo()))) };
            self.with(|p| some().for_each(|s| p.free[s.class.index()].cold.push(s)));
            count += n;
            if n < AT_ONCE {
                return count;
            }
        }
    }

    /// [`Warm::assess`] for the pool's free stacks.
    pub fn assess(&self) {
        self.with(|p| p.free.iter().for_each(|f| f.count.assess()));
    }

    /// Whether free stacks could give memory back later.
    pub fn has_spare(&self) -> bool {
        self.with(|p| p.free.iter().any(|f| f.count.has_spare()))
    }

    /// Gives the memory of up to `most` of these stacks back, least recently used first. Returns
    /// how many.
    pub fn trim(&self, most: usize) -> usize {
        let coldest = || {
            self.with(|p| {
                let has_one = |f: &&mut Free| !f.warm.is_empty() && f.count.take_surplus(1) == 1;
                let free = p.free.iter_mut().find(has_one)?;
                free.count.taken(1);
                free.warm.pop_front()
            })
        };
        // SAFETY: these stacks were in the pool's own lists.
        unsafe { self.put_cold((0..most).map_while(|_| coldest())) }
    }
}

impl StackPool {
    /// Moves the memory of a stack of this pool, from `from` up, to the node `node`, which is
    /// `os_node` for the system. Addresses stay. Returns the moved stack, and how many pages had
    /// been touched.
    pub fn migrate(&self, stack: Stack, from: usize, node: u16, os_node: usize) -> (Stack, usize) {
        let pages = mem::move_to_node(from, stack.hi() - from, os_node);
        (self.bound_to(Stack { node, ..stack }, os_node), pages)
    }

    /// Makes pages that are touched from now on come from the stack's node, `os_node`. Takes two
    /// more mappings, of which a process has a limited number.
    fn bound_to(&self, stack: Stack, os_node: usize) -> Stack {
        let away = stack.node != self.node;
        let full = self.rebound.load(Ordering::Relaxed) >= self.most_rebound;
        if away && stack.rebound == 0 && full {
            return stack;
        }
        mem::prefer_node(stack.lo(), stack.hi() - stack.lo(), os_node);
        match (away, stack.rebound != 0) {
            (true, false) => drop(self.rebound.fetch_add(1, Ordering::Relaxed)),
            (false, true) => drop(self.rebound.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        Stack { rebound: u8::from(away), ..stack }
    }

    /// A stack that comes back to the pool: if its memory was moved to another node, without
    /// memory.
    fn at_home(&self, stack: Stack) -> Stack {
        if stack.node != self.node {
            // SAFETY: a free stack, whose content nothing needs.
            unsafe { mem::discard(stack.lo(), stack.hi() - stack.lo()) };
        }
        let stack = Stack { node: self.node, ..stack };
        match self.memory {
            Some(memory) if stack.rebound != 0 => self.bound_to(stack, memory),
            _ => stack,
        }
    }
}

impl StackPoolState {
    /// Cuts a new slab into stacks.
    fn carve(&mut self, class: SizeClass, node: u16, memory: Option<usize>) -> Option<usize> {
        let size = class.size();
        let before = self.slabs.iter().filter(|s| s.class == class).count();
        let most = (1usize << 26).div_ceil(size).min(LARGEST_SLAB);
        let count = (FIRST_SLAB << before.min(8)).min(most).max(1);
        let len = count * size;
        let of_class = self.slabs.iter().filter(|s| s.class == class).map(|s| s.len / size);
        if !self.free[class.index()].keep_room(of_class.sum::<usize>() + count)
            || !heap::reserve(&mut self.slabs, 1)
        {
            return None;
        }
        let at = mem::reserve(len, size.min(2 << 20))?;
        if let Some(memory) = memory {
            mem::prefer_node(at, len, memory);
        }
        // SAFETY: just reserved for these stacks.
        let mapped = unsafe { guard(at, size, count) };
        let base = |i| NonZeroUsize::new(at + i * size).expect("memory is mapped above 0");
        let stack = |i| Stack { base: base(i), class, home: node, node, rebound: 0 };
        sanitizer::search((0..count).map(|i| stack(i).bounds()));
        let cold = &mut self.free[class.index()].cold;
        cold.extend((0..count).rev().map(stack));
        let ids =
            cold.iter().map(|s| arch::valgrind_register(s.lo(), s.hi())).filter(|&id| id != 0);
        let valgrind = ids.collect();
        self.slabs.push(Slab { class, at, len, mapped, valgrind });
        Some(len)
    }
}

impl Drop for StackPool {
    fn drop(&mut self) {
        for slab in &self.inner.get_mut().slabs {
            slab.valgrind.iter().for_each(|&id| arch::valgrind_forget(id));
            let size = slab.class.size();
            let stacks = (slab.at..slab.at + slab.len).step_by(size);
            sanitizer::forget(stacks.map(|at| (at + GUARD, size - GUARD)));
            // SAFETY: reserved for the slab; no stack of it is in use when the pool ends.
            unsafe { mem::release(slab.at, slab.len) };
            MPROTECTED.fetch_sub(slab.mapped, Ordering::Relaxed);
        }
    }
}

/// How many guards are mappings, in the whole process.
static MPROTECTED: AtomicUsize = AtomicUsize::new(0);
static WARNED: AtomicBool = AtomicBool::new(false);
/// Debugging: whether to do without `MADV_GUARD_INSTALL`, and how many guards may be mappings (0: a
/// share of the kernel's limit).
static FORCE_MPROTECT: AtomicBool = AtomicBool::new(false);
static BUDGET: AtomicUsize = AtomicUsize::new(0);

/// Takes the settings of `GOSCHED_DEBUG` for guards, at the start of a runtime. `budget` 0: a share
/// of the kernel's limit, which is read from a file now: a later read would use a descriptor, and
/// so change the number that the program's own open gets at that moment.
pub fn configure(force_mprotect: bool, budget: usize) {
    let budget = match budget {
        // A guard splits a mapping in two, and the host needs mappings as well.
        0 => mem::max_map_count() / 4,
        n => n,
    };
    FORCE_MPROTECT.store(force_mprotect, Ordering::Relaxed);
    BUDGET.store(budget, Ordering::Relaxed);
}

/// Arms the guards of a new slab; returns how many of them are mappings.
///
/// # Safety
/// `count` stacks of `size` bytes are reserved there, and not used yet.
unsafe fn guard(at: usize, size: usize, count: usize) -> usize {
    // SAFETY: new stacks, as the caller says, whose lowest part is never used.
    let install = || unsafe { mem::install_guards(at, GUARD, size, count) };
    if !FORCE_MPROTECT.load(Ordering::Relaxed) && install() {
        return 0;
    }
    let budget = BUDGET.load(Ordering::Relaxed);
    let room = MPROTECTED.load(Ordering::Relaxed) + count <= budget;
    // SAFETY: the guard's place in each new stack, which is never used.
    if room && (0..count).all(|i| unsafe { mem::protect_none(at + i * size, GUARD) }) {
        MPROTECTED.fetch_add(count, Ordering::Relaxed);
        return count;
    }
    // SAFETY: the guard's place in the first new stack, which is never used.
    unsafe { mem::protect_none(at, GUARD) };
    if !WARNED.swap(true, Ordering::Relaxed) {
        log::say(format_args!(
            "gosched: more than {budget} stacks: from now on one guard page range protects {count} \
             stacks, because this kernel has no MADV_GUARD_INSTALL (Linux 6.13) and limits \
             mappings; raise vm.max_map_count for a guard each"
        ));
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_what_was_asked_for_above_its_guard() {
        for usable in [0, 1, 4096, 16384, 100_000, 1 << 20, MAX] {
            let c = SizeClass::for_usable(usable).expect("not too large");
            assert!(c.size() - GUARD >= usable, "{usable}");
        }
        assert!(SizeClass::for_usable(MAX + 1).is_none());
        assert_eq!(SizeClass::for_reserved(DEFAULT).map(SizeClass::size), Some(DEFAULT));
    }

    #[test]
    fn a_freed_stack_is_given_out_first_and_keeps_its_content() {
        let pool = StackPool::new(0, None);
        let class = SizeClass::for_reserved(DEFAULT).expect("fits");
        let a = pool.get(class).expect("memory");
        let word = (a.top() - 8) as *mut u64;
        // SAFETY: the test owns the stack.
        unsafe { word.write(42) };
        // SAFETY: it is from this pool, and the test uses it no more.
        unsafe { pool.put(a) };
        let b = pool.get(class).expect("memory");
        assert_eq!(a.lo(), b.lo());
        // SAFETY: the test owns the stack again.
        assert_eq!(unsafe { word.read() }, 42);
    }

    #[test]
    fn first_frames_of_neighbours_lie_at_different_offsets() {
        let pool = StackPool::new(0, None);
        let class = SizeClass::for_reserved(DEFAULT).expect("fits");
        let offsets: std::collections::HashSet<_> =
            (0..16).map(|_| pool.get(class).expect("memory").top() % PAGE).collect();
        assert_eq!(offsets.len(), 16);
    }
}
