//! Memory on a node, or spread over all nodes: whole pages, for large blocks.

use super::Topology;
use crate::os::mem;

/// The nodes that memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The node with this number in the topology, while it has memory.
    Node(usize),
    /// All nodes in turn, page by page. seed: N10
    Stripe,
}

/// Zeroed memory. `None`: there is no address space. On a synthetic machine, or with one node, a
/// page comes from the node that first touches it.
pub fn alloc(topology: &Topology, size: usize, policy: Policy) -> Option<usize> {
    let at = mem::map(size)?;
    if topology.is_real {
        let os_index = |n: usize| topology.nodes[n].os_index;
        match policy {
            Policy::Node(n) => mem::prefer_node(at, size, os_index(n)),
            Policy::Stripe => {
                // With huge pages a stripe would be 2 MiB wide.
                mem::small_pages(at, size);
                mem::interleave(at, size, (0..topology.nodes.len()).map(os_index));
            }
        }
    }
    Some(at)
}

/// Frees memory that [`alloc`] has returned for this size.
///
/// # Safety
/// [`alloc`] gave the memory, and nothing uses it any more.
pub unsafe fn free(at: usize, size: usize) {
    // SAFETY: `alloc` has mapped the memory, and nothing uses it any more, as the caller says.
    unsafe { mem::release(at, size) };
}
