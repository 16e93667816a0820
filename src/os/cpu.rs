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

/// A set of CPUs, in the form of the system calls.
pub struct CpuSet(Vec<u64>);

impl CpuSet {
    pub fn new(cpus: &[usize]) -> CpuSet {
        let mut mask = vec![0u64; cpus.iter().max().map_or(1, |&last| last / 64 + 1)];
        cpus.iter().for_each(|&c| mask[c / 64] |= 1 << (c % 64));
        CpuSet(mask)
    }

    /// A bit for each CPU.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + Clone {
        let has = |cpu: &usize| self.has(*cpu);
        (0..self.0.len() * 64).filter(has)
    }

    pub fn has(&self, cpu: usize) -> bool {
        self.0.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Binds the calling thread to these CPUs. False: the system refuses, because none of them may
    /// be used any more, or a filter forbids it.
    pub fn bind(&self) -> bool {
        Affinity::set(&self.0)
    }
}

/// A thread's affinity mask, as the thread's owner has set it. Up to 1024 CPUs, without heap
/// memory.
pub struct Affinity([u64; Affinity::WORDS]);

impl Affinity {
    const WORDS: usize = 16;

    /// The calling thread's mask. `None`: the machine may have more CPUs, or a filter forbids the
    /// call.
    pub fn current() -> Option<Affinity> {
        let _errno = super::KeepErrno::new();
        let mut mask = [0; Affinity::WORDS];
        let len = size_of_val(&mask);
        // SAFETY: the mask is writable for its length.
        let r = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, len, mask.as_mut_ptr()) };
        (r > 0).then_some(Affinity(mask))
    }

    /// A bit for each CPU.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// Sets the calling thread's mask.
    pub fn apply(&self) {
        Affinity::set(&self.0);
    }

    /// Binds the calling thread to the CPUs that are both in `cpus` and in this mask. False: there
    /// are none.
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

/// Whether node 0 is the only NUMA node. A kernel without NUMA, or a process without /sys, doesn't
/// have the file: also true.
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
