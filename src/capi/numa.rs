//! NUMA nodes.

use super::EINVAL;
use crate::numa::{self, Policy};
use crate::sched::take::boundary::Entered;
use crate::sched::types::m;
use crate::sched::types::runtime::{Guest, Runtime, rt};
use core::ffi::{c_int, c_void};
use core::ptr;

/// gs_numa_alloc: memory of the caller's node.
pub const GS_NUMA_LOCAL: c_int = -1;
/// gs_numa_alloc: pages from all nodes in turn, for data that all nodes use alike.
pub const GS_NUMA_STRIPE: c_int = -2;

/// Calls `f` with the runtime, started if need be. `-ENOMEM`, `-EAGAIN`: the runtime can't be
/// started.
fn with(f: impl FnOnce(&Runtime) -> c_int) -> c_int {
    try_with(f).unwrap_or_else(|e| e)
}

fn try_with<R>(f: impl FnOnce(&Runtime) -> R) -> Result<R, c_int> {
    let _entered = Entered::new();
    let _inside = match m::current() {
        Some(_) => None,
        None => Some(Guest::enter()?),
    };
    Ok(f(rt()))
}

fn caller_node(rt: &Runtime) -> usize {
    match m::current() {
        Some(m) => m.node.get(),
        None => rt.node_here(),
    }
}

/// Returns the number of NUMA nodes with CPUs that this process may use; at least 1. As with any
/// function here, -ENOMEM or -EAGAIN if the runtime can't be started (see gs_init). Each process
/// numbers the nodes in an order of its own, so that not all processes fill the same node first.
/// Goroutines and plain threads. seed: N10.
#[unsafe(no_mangle)]
pub extern "C" fn gs_numa_nodes() -> c_int {
    with(|rt| rt.nodes.len() as c_int)
}

/// Returns the node that the caller runs on. A goroutine may be on another node after any call that
/// can switch, a plain thread at any time.
#[unsafe(no_mangle)]
pub extern "C" fn gs_numa_node() -> c_int {
    with(|rt| caller_node(rt) as c_int)
}

/// Returns the distance of node b's memory from node a's CPUs, in the system's scale: 10 is a
/// node's own memory; at 20 an access takes twice as long. -EINVAL: there is no such node.
/// Goroutines and plain threads.
#[unsafe(no_mangle)]
pub extern "C" fn gs_numa_distance(a: c_int, b: c_int) -> c_int {
    with(|rt| {
        let index = |n| usize::try_from(n).ok().filter(|&n| n < rt.nodes.len());
        match (index(a), index(b)) {
            (Some(a), Some(b)) => rt.topology.distances[a][b] as c_int,
            _ => EINVAL,
        }
    })
}

/// Gets the CPUs of a node that this process may use, as a mask like sched_getaffinity(2)'s: bit c
/// % 8 of byte c / 8 is CPU c. All size bytes of set are written; set may be NULL with size 0, to
/// ask for the number only. On a synthetic machine the CPUs are made up.
///
/// How many CPUs the node has; -EINVAL: there is no such node, or size is too small.
/// Goroutines and plain threads.
///
/// # Safety
/// `set` is null, or writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_numa_cpus(node: c_int, size: usize, set: *mut c_void) -> c_int {
    with(|rt| {
        let node = usize::try_from(node).ok().and_then(|n| rt.nodes.get(n));
        let Some(node) = node else { return EINVAL };
        // SAFETY: as the caller says.
        node.cpus.with(|cpus| unsafe { write_set(cpus.iter(), size, set) })
    })
}

/// Writes a set of CPUs as a mask of the system's. Returns their number; `-EINVAL`: they don't fit.
///
/// # Safety
/// `set` is null, or writable for `size` bytes.
unsafe fn write_set(
    cpus: impl Iterator<Item = usize> + Clone,
    size: usize,
    set: *mut c_void,
) -> c_int {
    let fits = cpus.clone().all(|cpu| cpu / 8 < size);
    match set.is_null() {
        true if size == 0 => {}
        false if fits => {
            let set = set.cast::<u8>();
            // SAFETY: not null, so it is writable for `size` bytes; each CPU is within them.
            unsafe {
                set.write_bytes(0, size);
                cpus.clone().for_each(|cpu| *set.add(cpu / 8) |= 1 << (cpu % 8));
            }
        }
        _ => return EINVAL,
    }
    cpus.count() as c_int
}

/// Gets the CPUs that the calling thread may use while the library doesn't bind it to a node: its
/// own when it called gs_run or, for a thread that the library has started, the process's when the
/// runtime started. Threads and programs that a goroutine starts inherit the binding, unless they
/// get this set: by pthread_attr_setaffinity_np(3), or by sched_setaffinity(2) in the child. set
/// and size as in gs_numa_cpus.
///
/// The number of CPUs; 0: the calling thread isn't bound (as on a machine with one node, or while a
/// goroutine locks it), so its children inherit the right CPUs, and set is left as it is; -EINVAL:
/// size is too small. Goroutines and plain threads.
///
/// # Safety
/// `set` is null, or writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_numa_unbound_cpus(size: usize, set: *mut c_void) -> c_int {
    let entered = Entered::without_giving_way();
    let count = entered.m().and_then(|m| {
        m.with_unbound_cpus(|words| {
            let is_in = |cpu: &usize| words[cpu / 64] >> (cpu % 64) & 1 == 1;
            // SAFETY: as the caller says.
            unsafe { write_set((0..words.len() * 64).filter(is_in), size, set) }
        })
    });
    count.unwrap_or(0)
}

/// Allocates size bytes, zeroed, at the start of a page. policy: GS_NUMA_LOCAL, GS_NUMA_STRIPE or
/// the number of a node. If that node has no memory left, the memory comes from another node. On a
/// synthetic machine, and with one node, policies make no difference.
///
/// For large blocks: each call makes one or two system calls. NULL: size is 0, policy is none of
/// these, or there is no memory. Free the memory with gs_numa_free. Goroutines and plain threads.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn gs_numa_alloc(size: usize, policy: c_int) -> *mut c_void {
    let memory = try_with(|rt| {
        let policy = match policy {
            GS_NUMA_LOCAL => Policy::Node(caller_node(rt)),
            GS_NUMA_STRIPE => Policy::Stripe,
            n => match usize::try_from(n) {
                Ok(n) if n < rt.nodes.len() => Policy::Node(n),
                _ => return ptr::null_mut(),
            },
        };
        if size == 0 {
            return ptr::null_mut();
        }
        numa::alloc(&rt.topology, size, policy).map_or(ptr::null_mut(), |at| at as *mut c_void)
    });
    memory.unwrap_or(ptr::null_mut())
}

/// Frees memory that gs_numa_alloc has returned for this size; does nothing for NULL.
/// From anywhere, also after gs_shutdown.
///
/// # Safety
/// `p` is null, or was given by `gs_numa_alloc` for `size` and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_numa_free(p: *mut c_void, size: usize) {
    let _entered = Entered::new();
    if !p.is_null() {
        // SAFETY: `gs_numa_alloc` gave it for this size, and it is not used any more.
        unsafe { numa::free(p as usize, size) };
    }
}
