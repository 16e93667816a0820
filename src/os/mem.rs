//! Address space.

use super::PAGE;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// `MADV_GUARD_INSTALL` (Linux 6.13), which libc doesn't have: accesses to the range fault from now
/// on, without a mapping of its own.
const MADV_GUARD_INSTALL: i32 = 102;

/// Reserves `len` bytes of zeroed memory, aligned to `align` (a power of two); returns the address.
/// Pages take real memory when they are touched. `None`: there is no address space.
#[must_use]
pub fn reserve(len: usize, align: usize) -> Option<usize> {
    let _errno = super::KeepErrno::new();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // A mapping begins at a page of the system's, which may be smaller than `PAGE`.
    let page = super::page_size();
    let span = if align > page { len.checked_add(align)? } else { len };
    // SAFETY: a new mapping at an address of the kernel's choice.
    let p = unsafe {
        libc::mmap(ptr::null_mut(), span, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if p == libc::MAP_FAILED {
        return None;
    }
    let start = p as usize;
    let at = start.next_multiple_of(align.max(page));
    // The surplus that alignment needs goes back at once.
    // SAFETY: parts of the new mapping that nothing uses.
    unsafe {
        release(start, at - start);
        release(at + len, start + span - (at + len));
    }
    // With huge pages every touched stack would cost 2 MiB.
    small_pages(at, len);
    Some(at)
}

/// Keeps huge pages from this range. Kernels without huge pages answer with an error, which is
/// fine.
pub fn small_pages(at: usize, len: usize) {
    let _errno = super::KeepErrno::new();
    // SAFETY: whatever is in the range, no content changes.
    unsafe { libc::madvise(at as *mut _, len, libc::MADV_NOHUGEPAGE) };
}

/// Memory for a user: `len` bytes, zeroed, in pages of whatever size the system likes.
pub fn map(len: usize) -> Option<usize> {
    let _errno = super::KeepErrno::new();
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let p = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, -1, 0) };
    (p != libc::MAP_FAILED).then_some(p as usize)
}

/// Makes a range from [`map`] longer: `len` bytes instead of `old`. The range may move. `None`: there
/// is no memory, and the range is as before.
pub fn grow(at: usize, old: usize, len: usize) -> Option<usize> {
    let _errno = super::KeepErrno::new();
    // SAFETY: `map` gave the range; the caller uses the new address.
    let p = unsafe { libc::mremap(at as *mut _, old, len, libc::MREMAP_MAYMOVE) };
    (p != libc::MAP_FAILED).then_some(p as usize)
}

/// Copies memory of this process, which need not be mapped. False: it is not.
pub fn read_if_mapped(at: usize, to: &mut [u8]) -> bool {
    let _errno = super::KeepErrno::new();
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: at as *mut _, iov_len: to.len() };
    // SAFETY: the kernel checks `remote`; `local` is the caller's slice.
    let n = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    n == to.len() as isize || n < 0 && super::is_refused(super::errno()) && read_if_readable(at, to)
}

/// [`read_if_mapped`] where the system refuses process_vm_readv(2): asks first, so the memory must
/// not be unmapped just now.
fn read_if_readable(at: usize, to: &mut [u8]) -> bool {
    let Some(end) = at.checked_add(to.len()) else { return false };
    let page = super::page_size();
    if !(at & !(page - 1)..end).step_by(page).all(super::futex::can_read) {
        return false;
    }
    for (i, byte) in to.iter_mut().enumerate() {
        // SAFETY: the page was readable just now. Volatile, because anything may write there.
        *byte = unsafe { ((at + i) as *const u8).read_volatile() };
    }
    true
}

/// Asks for a range's memory to come from this NUMA node (the system's number) while the node has
/// any. Pages that were touched stay where they are.
pub fn prefer_node(at: usize, len: usize, node: usize) {
    set_policy(at, len, libc::MPOL_PREFERRED, core::iter::once(node));
}

/// Asks for a range's pages to come from these nodes in turn.
pub fn interleave(at: usize, len: usize, nodes: impl Iterator<Item = usize>) {
    set_policy(at, len, libc::MPOL_INTERLEAVE, nodes);
}

fn set_policy(at: usize, len: usize, policy: i32, nodes: impl Iterator<Item = usize>) {
    let _errno = super::KeepErrno::new();
    /// Linux has no more nodes than this.
    const NODES: usize = 1024;
    let mut mask = [0u64; NODES / 64];
    for node in nodes.filter(|&n| n < NODES) {
        mask[node / 64] |= 1 << (node % 64);
    }
    // The number of bits plus one, because the kernel subtracts one.
    let bits = NODES + 1;
    // SAFETY: no content of the range changes; the mask is readable. A node without memory, or a
    // filter, means an error, and then the memory comes from the default node.
    unsafe { libc::syscall(libc::SYS_mbind, at, len, policy, mask.as_ptr(), bits, 0) };
}

/// Moves the touched pages of a range to a NUMA node; addresses stay. Returns how many pages are on
/// that node afterwards.
pub fn move_to_node(at: usize, len: usize, node: usize) -> usize {
    const MPOL_MF_MOVE: i32 = 2;
    /// How many pages one system call moves.
    const BATCH: usize = 64;
    let _errno = super::KeepErrno::new();
    let page = super::page_size();
    let (first, end) = (at & !(page - 1), (at + len).next_multiple_of(page));
    let nodes = [node as i32; BATCH];
    let mut moved = 0;
    for batch in (first..end).step_by(BATCH * page) {
        let mut pages = [0usize; BATCH];
        let mut status = [-1i32; BATCH];
        let n = ((end - batch) / page).min(BATCH);
        pages[..n].iter_mut().enumerate().for_each(|(i, p)| *p = batch + i * page);
        // SAFETY: three arrays of `n` entries; moving pages changes no content. The status tells of
        // a page that was never touched, or can't be moved.
        unsafe {
            let (pages, nodes, status) = (pages.as_ptr(), nodes.as_ptr(), status.as_mut_ptr());
            libc::syscall(libc::SYS_move_pages, 0, n, pages, nodes, status, MPOL_MF_MOVE);
        }
        moved += status[..n].iter().filter(|&&s| s == node as i32).count();
    }
    moved
}

/// Moves a value into pages of its own, from this NUMA node if possible, until [`drop_placed`].
/// `None`: there is no memory.
pub fn place<T>(value: T, node: Option<usize>) -> Option<*mut T> {
    let len = size_of::<T>().next_multiple_of(PAGE);
    let at = reserve(len, PAGE)?;
    if let Some(node) = node {
        prefer_node(at, len, node);
    }
    let p = at as *mut T;
    // SAFETY: large enough, aligned to a page, and just reserved.
    unsafe { p.write(value) };
    Some(p)
}

/// Drops a value that [`place`] has placed, and frees its memory.
///
/// # Safety
/// [`place`] gave the value, which is used no more.
pub unsafe fn drop_placed<T>(p: *mut T) {
    // SAFETY: `place` has placed it, and the caller uses it no more.
    unsafe { p.drop_in_place() };
    // SAFETY: `place` has reserved as much there.
    unsafe { release(p as usize, size_of::<T>().next_multiple_of(PAGE)) };
}

/// Gives back a range from [`reserve`] or [`map`], or a part of it.
///
/// # Safety
/// It is such a range, in whole pages, and nothing uses it any more. `len` may be 0.
pub unsafe fn release(at: usize, len: usize) {
    if len > 0 {
        // SAFETY: such a range, which nothing uses any more, as the caller says.
        unsafe { libc::munmap(at as *mut _, len) };
    }
}

/// Gives the memory of a range back but keeps the addresses: the range reads as zero.
///
/// # Safety
/// [`reserve`] gave the range, and nothing needs its content any more.
pub unsafe fn discard(at: usize, len: usize) {
    let _errno = super::KeepErrno::new();
    // SAFETY: nothing needs the content, says the caller.
    unsafe { libc::madvise(at as *mut _, len, libc::MADV_DONTNEED) };
}

/// Makes each access to `at..at + len` a fault. False: this kernel can't.
///
/// # Safety
/// [`reserve`] gave the range, and nothing uses it.
unsafe fn install_guard(at: usize, len: usize) -> bool {
    // SAFETY: nothing uses the range, says the caller.
    unsafe { libc::madvise(at as *mut _, len, MADV_GUARD_INSTALL) == 0 }
}

/// Makes each access to `count` ranges of `len` bytes, `stride` apart, a fault, with one
/// system call for many of them. False: this kernel can't.
///
/// # Safety
/// [`reserve`] gave all these ranges, and nothing uses them.
pub unsafe fn install_guards(at: usize, len: usize, stride: usize, count: usize) -> bool {
    static BATCHES: Batches = Batches::new(MADV_GUARD_INSTALL);
    let ranges = (0..count).map(|i| (at + i * stride, len));
    // SAFETY: nothing uses the ranges, says the caller.
    let installed = unsafe { BATCHES.advise(ranges, |at, len| install_guard(at, len)) };
    installed && (count == 0 || guards_work(at))
}

/// Whether an access to a guard faults, as the first guard shows: qemu-user accepts all advice and
/// ignores what it doesn't know.
fn guards_work(guard: usize) -> bool {
    const UNKNOWN: u8 = 0;
    const YES: u8 = 1;
    const NO: u8 = 2;
    static WORK: AtomicU8 = AtomicU8::new(UNKNOWN);
    if WORK.load(Ordering::Relaxed) == UNKNOWN {
        // The kernel reads the word, which is 0 if it can be read.
        let works = !super::futex::can_read(guard);
        WORK.store(if works { YES } else { NO }, Ordering::Relaxed);
    }
    WORK.load(Ordering::Relaxed) == YES
}

/// [`discard`] for several ranges, address and length, with one system call for many
/// of them.
///
/// # Safety
/// [`reserve`] gave the ranges, and nothing needs their content any more.
pub unsafe fn discard_all(ranges: impl Iterator<Item = (usize, usize)>) {
    static BATCHES: Batches = Batches::new(libc::MADV_DONTNEED);
    let one = |at, len| {
        // SAFETY: nothing needs the content, says the caller.
        unsafe { discard(at, len) };
        true
    };
    // SAFETY: nothing needs the content of the ranges, says the caller.
    unsafe { BATCHES.advise(ranges, one) };
}

/// Advises the kernel on many ranges of memory with one system call (Linux 6.13). A tool such as
/// valgrind may print a warning each time, so this is tried only until it fails once.
struct Batches {
    advice: i32,
    cannot: AtomicBool,
}

impl Batches {
    const SIZE: usize = 64;
    /// `PIDFD_SELF`: the caller's own process.
    const SELF: libc::c_long = -10000;

    const fn new(advice: i32) -> Batches {
        Batches { advice, cannot: AtomicBool::new(false) }
    }

    /// `one` gives the advice for one range. False: `one` has given false.
    ///
    /// # Safety
    /// The advice may be given for the ranges.
    unsafe fn advise(
        &self,
        mut ranges: impl Iterator<Item = (usize, usize)>,
        one: impl Fn(usize, usize) -> bool,
    ) -> bool {
        let _errno = super::KeepErrno::new();
        loop {
            let mut batch = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; Self::SIZE];
            let (mut n, mut total) = (0, 0);
            for (at, len) in ranges.by_ref().take(Self::SIZE) {
                batch[n] = libc::iovec { iov_base: at as *mut _, iov_len: len };
                (n, total) = (n + 1, total + len);
            }
            if n == 0 {
                return true;
            }
            let at_once = || {
                // SAFETY: the advice may be given, as the caller says; the array is readable.
                let done = unsafe {
                    let call = libc::SYS_process_madvise;
                    libc::syscall(call, Self::SELF, batch.as_ptr(), n, self.advice, 0)
                };
                done == total as libc::c_long
            };
            if self.cannot.load(Ordering::Relaxed) || !at_once() {
                self.cannot.store(true, Ordering::Relaxed);
                if !batch[..n].iter().all(|r| one(r.iov_base as usize, r.iov_len)) {
                    return false;
                }
            }
        }
    }
}

/// Makes each access to the range a fault, at the price of a mapping. False:
/// the limit of mappings is reached.
///
/// # Safety
/// [`reserve`] gave the range, and nothing uses it.
pub unsafe fn protect_none(at: usize, len: usize) -> bool {
    // SAFETY: nothing uses the range, says the caller.
    unsafe { libc::mprotect(at as *mut _, len, libc::PROT_NONE) == 0 }
}

/// How many mappings the kernel allows this process.
pub fn max_map_count() -> usize {
    std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|s| s.trim().parse().ok())
        .unwrap_or(65530)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_ranges_all_give_their_memory_back_and_nothing_beside_them() {
        // Every second page, so there are more ranges than fit into one system call.
        const RANGES: usize = 150;
        let at = reserve(2 * RANGES * PAGE, PAGE).unwrap();
        let page = |i: usize| (at + i * PAGE) as *mut u8;
        // SAFETY: just reserved, and used by this test alone.
        unsafe { (0..2 * RANGES).for_each(|i| page(i).write(1)) };
        // SAFETY: ours, as is all that was reserved above.
        unsafe { discard_all((0..RANGES).map(|i| (at + 2 * i * PAGE, PAGE))) };
        for i in 0..2 * RANGES {
            // SAFETY: a page of the range that this test has reserved.
            assert_eq!(unsafe { page(i).read() }, (i % 2) as u8);
        }
        // SAFETY: this test has reserved the range, and uses it no longer.
        unsafe { release(at, 2 * RANGES * PAGE) };
    }
}
