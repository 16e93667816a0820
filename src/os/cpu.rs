//! CPUs.

use core::sync::atomic::{AtomicUsize, Ordering};

/// The CPUs of the calling thread's affinity mask, ascending.
pub fn affinity() -> Vec<usize> {
    // A mask of any size: the kernel says EINVAL while the mask is too small.
    let mut words = 16;
    loop {
        let mut mask = vec![0u64; words];
        // SAFETY: the mask is writable for its length.
        let r =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, words * 8, mask.as_mut_ptr()) };
        if r > 0 {
            let set = |i: &usize| mask[i / 64] >> (i % 64) & 1 == 1;
            return (0..words * 64).filter(set).collect();
        }
        if words > 1 << 14 {
            return vec![0];
        }
        words *= 2;
    }
}

/// The CPU that the calling thread is on right now.
pub fn current() -> Option<usize> {
    // SAFETY: no preconditions.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// A set of CPUs, ready for the system.
pub struct CpuSet(Vec<u64>);

impl CpuSet {
    pub fn new(cpus: &[usize]) -> CpuSet {
        let mut mask = vec![0u64; cpus.iter().max().map_or(1, |&last| last / 64 + 1)];
        cpus.iter().for_each(|&c| mask[c / 64] |= 1 << (c % 64));
        CpuSet(mask)
    }

    /// Binds the calling thread to these CPUs. False: the system refuses, because none of them may be used any more, or
    /// a filter forbids it.
    pub fn bind(&self) -> bool {
        Affinity::set(&self.0)
    }
}

/// The CPUs that a thread may use, as its owner has set them. Holds up to 1024 CPUs, and needs no memory besides.
pub struct Affinity([u64; Affinity::WORDS]);

impl Affinity {
    const WORDS: usize = 16;

    /// The calling thread's. `None`: the machine may have more CPUs, or a filter forbids the call.
    pub fn current() -> Option<Affinity> {
        let _errno = super::KeepErrno::new();
        let mut mask = [0; Affinity::WORDS];
        let len = size_of_val(&mask);
        // SAFETY: the mask is writable for its length.
        let r = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, len, mask.as_mut_ptr()) };
        (r > 0).then_some(Affinity(mask))
    }

    /// Makes it the calling thread's.
    pub fn apply(&self) {
        Affinity::set(&self.0);
    }

    /// Binds the calling thread to those CPUs of the set that are in this mask. False: there are none.
    pub fn bind_within(&self, cpus: &CpuSet) -> bool {
        let both = |i: usize| self.0[i] & cpus.0.get(i).copied().unwrap_or(0);
        let mask: [u64; Affinity::WORDS] = core::array::from_fn(both);
        mask != [0; Affinity::WORDS] && Affinity::set(&mask)
    }

    fn set(mask: &[u64]) -> bool {
        let _errno = super::KeepErrno::new();
        let len = size_of_val(mask);
        // SAFETY: the mask is readable for its length.
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, len, mask.as_ptr()) == 0 }
    }
}

/// Whether Linux knows of one NUMA node only, number 0, or of none: then it has no such file. A kernel without NUMA has
/// none, nor has a process without /sys.
pub fn one_node() -> bool {
    std::fs::read_to_string("/sys/devices/system/node/online").map_or(true, |s| s.trim() == "0")
}

/// How many CPUs the process could use when this was first called.
pub fn count() -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    match COUNT.load(Ordering::Relaxed) {
        0 => {
            // Two threads may ask the system; the first answer counts.
            let count = affinity().len().max(1);
            let first = COUNT.compare_exchange(0, count, Ordering::Relaxed, Ordering::Relaxed);
            first.err().unwrap_or(count)
        }
        count => count,
    }
}
