//! The topology of the machine, real or synthetic: NUMA nodes, their CPUs and distances; and the
//! node of each P.

mod alloc;
mod deal;
mod sysfs;

pub use alloc::{Policy, alloc, free};
pub use deal::{deal, node_of_next_p};

use crate::os::cpu;
use hwlocality::Topology as Hwloc;
use hwlocality::object::types::ObjectType;
use hwlocality::topology::builder::BuildFlags;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The distance of a node from itself, in hwloc and Linux.
const LOCAL_DISTANCE: u64 = 10;
/// The distance of two nodes when the machine doesn't say.
const REMOTE_DISTANCE: u64 = 20;

/// The most CPUs of a synthetic machine. For larger ones hwloc takes seconds, or never returns.
const MOST_CPUS: usize = 4096;

/// Number of CPUs of a machine in hwloc's notation: the product of the counts of its levels, such
/// as `core:2` or `2`. Brackets hold a level's attributes. `None`: too many to be counted.
fn cpus_described(description: &str) -> Option<usize> {
    let outside = description.split('(').filter_map(|s| s.rsplit(')').next());
    let counts =
        outside.flat_map(str::split_whitespace).filter_map(|level| level.rsplit(':').next());
    let is_count = |n: &&str| n.bytes().all(|b| b.is_ascii_digit()) && !n.is_empty();
    counts.filter(is_count).map(|n| n.parse().unwrap_or(usize::MAX)).try_fold(1, usize::checked_mul)
}

/// One NUMA node with CPUs that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// The operating system's number of the node.
    pub(super) os_index: usize,
    /// The node's CPUs that the process may use, ascending.
    pub(super) cpus: Vec<usize>,
}

/// The part of the machine that this process may use.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(super) nodes: Vec<NumaNode>,
    /// `distances[a][b]`, in the operating system's scale: 10 is local.
    pub(super) distances: Vec<Vec<u64>>,
    /// Not synthetic: threads and memory can be bound to the nodes.
    pub(super) is_real: bool,
}

impl Topology {
    /// The machine as hwloc sees it. `description` may be `flat` (one node) or
    /// hwloc's notation for a synthetic machine (`node:4 core:2 pu:1`). `None`
    /// when the description can't be understood.
    pub fn detect(description: Option<&str>) -> Option<Topology> {
        match description {
            None | Some("") => Some(Topology::real().unwrap_or_else(Topology::flat)),
            Some("flat") => Some(Topology::flat()),
            Some(text) => Topology::synthetic(text),
        }
    }

    /// One node with every CPU of the affinity mask.
    pub fn flat() -> Topology {
        let node = NumaNode { os_index: 0, cpus: cpu::affinity() };
        Topology { nodes: vec![node], distances: vec![vec![LOCAL_DISTANCE]], is_real: false }
    }

    /// This machine's topology. `None`: there is only one node. Then hwloc isn't asked, because its
    /// plugins load dozens of libraries (X11, OpenCL, C++) into the process.
    fn real() -> Option<Topology> {
        if cpu::one_node() { None } else { Topology::by_hwloc() }
    }

    fn by_hwloc() -> Option<Topology> {
        let machine = Known::find_or("", || {
            // hwloc may bind the calling thread, and gives it the CPUs back that are there now: of
            // CPUs that come later the thread would learn nothing.
            let flags = BuildFlags::INCLUDE_DISALLOWED | BuildFlags::DONT_CHANGE_BINDING;
            let builder = Hwloc::builder().with_flags(flags).ok()?;
            Some(Topology::from_hwloc(&builder.build().ok()?))
        })?;
        let allowed = cpu::affinity();
        let mut t = machine.only(|cpu| allowed.binary_search(&cpu).is_ok());
        t.is_real = true;
        // A CPU that belongs to no node must not be lost.
        (t.cpus() == allowed.len()).then_some(t)
    }

    fn synthetic(description: &str) -> Option<Topology> {
        if cpus_described(description)? > MOST_CPUS {
            return None;
        }
        let t = Known::find_or(description, || {
            let builder = Hwloc::builder().from_synthetic(description).ok()?;
            Some(Topology::from_hwloc(&builder.build().ok()?))
        })?;
        (!t.nodes.is_empty()).then(|| t.clone())
    }

    /// The nodes with CPUs.
    fn from_hwloc(hwloc: &Hwloc) -> Topology {
        let nodes: Vec<NumaNode> = hwloc
            .objects_with_type(ObjectType::NUMANode)
            .filter_map(|object| {
                let cpus: Vec<usize> = object.cpuset()?.iter_set().map(usize::from).collect();
                (!cpus.is_empty()).then_some(NumaNode { os_index: object.os_index()?, cpus })
            })
            .collect();
        let distances = distances(hwloc, &nodes);
        Topology { nodes, distances, is_real: false }
    }

    /// The part of the machine whose CPUs are `allowed`.
    fn only(&self, allowed: impl Fn(usize) -> bool) -> Topology {
        let mut t = self.clone();
        t.nodes.iter_mut().for_each(|node| node.cpus.retain(|&cpu| allowed(cpu)));
        let left: Vec<usize> =
            (0..t.nodes.len()).filter(|&n| !t.nodes[n].cpus.is_empty()).collect();
        t.reorder(&left);
        t
    }

    /// Reorders the nodes (`order[new] = old`). Processes that all filled the first node first
    /// would overload it, so each has an order of its own. seed: N10
    pub fn reorder(&mut self, order: &[usize]) {
        self.nodes = order.iter().map(|&i| self.nodes[i].clone()).collect();
        self.distances =
            order.iter().map(|&a| order.iter().map(|&b| self.distances[a][b]).collect()).collect();
    }

    /// Whether threads and memory can be bound to the nodes: the topology is the machine's.
    pub fn is_real(&self) -> bool {
        self.is_real
    }

    /// The CPUs of each node, as they were when the topology was read.
    pub fn cpus_of_nodes(&self) -> Vec<Vec<usize>> {
        self.nodes.iter().map(|node| node.cpus.clone()).collect()
    }

    /// How many CPUs the process may use.
    pub fn cpus(&self) -> usize {
        self.nodes.iter().map(|n| n.cpus.len()).sum()
    }

    /// The CPUs of each node that the process may use now, and all of them. `None`: they can't be
    /// told by node, because the topology is synthetic or the system doesn't say. A node that had
    /// no CPU when the topology was read is none here: its CPUs count to the nearest node. Reads
    /// files.
    pub fn cpus_now(&self) -> Option<(Vec<Vec<usize>>, Vec<usize>)> {
        if !self.is_real {
            return None;
        }
        let allowed = cpu::affinity();
        let mut of_nodes = vec![Vec::new(); self.nodes.len()];
        for node in sysfs::nodes() {
            let at = self.nodes.iter().position(|n| n.os_index == node).or_else(|| {
                let distances = sysfs::distances(node);
                let distance =
                    |n: &usize| distances.get(self.nodes[*n].os_index).copied().unwrap_or(u64::MAX);
                (0..self.nodes.len()).min_by_key(distance)
            })?;
            of_nodes[at].extend(
                sysfs::cpus(node)?.into_iter().filter(|c| allowed.binary_search(c).is_ok()),
            );
        }
        let all: usize = of_nodes.iter().map(Vec::len).sum();
        (all == allowed.len()).then_some((of_nodes, allowed))
    }

    /// The other nodes as seen from `node`, nearest first.
    pub fn by_distance(&self, node: usize) -> Vec<usize> {
        let mut others: Vec<usize> = (0..self.nodes.len()).filter(|&n| n != node).collect();
        others.sort_by_key(|&n| self.distances[node][n]);
        others
    }
}

/// An answer of hwloc, kept until the process ends, because hwloc loads plugins each time. The
/// child of a fork uses the parent's answers: its loader's lock may be stuck, held by a thread of
/// the parent.
struct Known {
    /// Empty: this machine.
    description: String,
    topology: Topology,
    next: *const Known,
}

/// The newest entry of a list that only grows, by compare-and-swap: a lock could be held by another
/// thread during a fork.
static KNOWN: AtomicPtr<Known> = AtomicPtr::new(ptr::null_mut());

impl Known {
    fn find(description: &str) -> Option<&'static Topology> {
        // Acquire: pairs with the Release in `find_or`; with the entry comes its content.
        let mut at = KNOWN.load(Ordering::Acquire).cast_const();
        // SAFETY: entries are never freed, and never change once they are in the list.
        while let Some(known) = unsafe { at.as_ref() } {
            if known.description == description {
                return Some(&known.topology);
            }
            at = known.next;
        }
        None
    }

    /// The answer of `ask` for the description, from now or before. `None`: it has found nothing.
    fn find_or(
        description: &str,
        ask: impl FnOnce() -> Option<Topology>,
    ) -> Option<&'static Topology> {
        if let Some(topology) = Known::find(description) {
            return Some(topology);
        }
        let topology = ask()?;
        let next = KNOWN.load(Ordering::Relaxed);
        let entry =
            Box::into_raw(Box::new(Known { description: description.into(), topology, next }));
        let mut newest = next;
        // Release: pairs with the Acquire in `find`. Two threads may add one description: the
        // entries are equal.
        while let Err(now) =
            KNOWN.compare_exchange(newest, entry, Ordering::Release, Ordering::Relaxed)
        {
            newest = now;
            // SAFETY: no other thread knows the entry yet.
            unsafe { (*entry).next = now };
        }
        // SAFETY: never freed.
        Some(unsafe { &(*entry).topology })
    }
}

/// The distances between `nodes`, as far as hwloc knows them.
fn distances(hwloc: &Hwloc, nodes: &[NumaNode]) -> Vec<Vec<u64>> {
    let n = nodes.len();
    let mut result: Vec<Vec<u64>> = (0..n)
        .map(|a| (0..n).map(|b| if a == b { LOCAL_DISTANCE } else { REMOTE_DISTANCE }).collect())
        .collect();
    let known = hwloc.distances_with_type(None, ObjectType::NUMANode).unwrap_or_default();
    let Some(matrix) = known.first() else { return result };
    let index_of = |object: Option<&hwlocality::object::TopologyObject>| {
        let os_index = object?.os_index()?;
        nodes.iter().position(|node| node.os_index == os_index)
    };
    for ((from, to), distance) in matrix.object_distances() {
        if let (Some(a), Some(b)) = (index_of(from), index_of(to)) {
            result[a][b] = distance;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synthetic_machine_has_the_nodes_it_describes() {
        let t = Topology::detect(Some("node:4 core:2 pu:1")).expect("valid");
        assert_eq!(t.nodes.len(), 4);
        assert_eq!(t.cpus(), 8);
        assert_eq!(t.distances[1][1], LOCAL_DISTANCE);
        assert!(t.distances[1][2] > LOCAL_DISTANCE);
    }

    #[test]
    fn the_real_machine_has_every_cpu_of_the_affinity_mask() {
        let t = Topology::detect(None).expect("always");
        assert_eq!(t.cpus(), cpu::affinity().len());
    }

    #[test]
    fn hwloc_and_the_affinity_mask_agree() {
        let t = Topology::by_hwloc().expect("hwloc knows every CPU");
        assert_eq!(t.cpus(), cpu::affinity().len());
    }

    #[test]
    fn hwloc_is_asked_once_for_each_description() {
        let found = || Topology::detect(Some("node:3 core:1 pu:1")).expect("valid");
        assert_eq!(found().nodes.len(), 3);
        let known = Known::find("node:3 core:1 pu:1").expect("kept");
        let again = Known::find_or("node:3 core:1 pu:1", || panic!("hwloc was asked again"));
        assert!(std::ptr::eq(again.expect("kept"), known));
        assert!(Known::find("node:5").is_none());
    }

    #[test]
    fn nodes_without_an_allowed_cpu_are_left_out_with_their_distances() {
        let mut t = Topology::detect(Some("node:3 core:2 pu:1")).expect("valid");
        t.distances = vec![vec![10, 21, 31], vec![21, 10, 22], vec![31, 22, 10]];
        let t = t.only(|cpu| !(1..=3).contains(&cpu));
        let cpus: Vec<_> = t.nodes.iter().map(|n| n.cpus.clone()).collect();
        assert_eq!(cpus, [vec![0], vec![4, 5]]);
        assert_eq!(t.distances, [[10, 31], [31, 10]]);
    }

    #[test]
    fn a_description_that_makes_no_sense_is_refused() {
        assert!(Topology::detect(Some("three bananas")).is_none());
        assert!(Topology::detect(Some("node:999 core:99 pu:1")).is_none());
        assert!(Topology::detect(Some("node:99999999999 core:99999999999 pu:1")).is_none());
        assert!(Topology::detect(Some("999 99 9")).is_none());
    }

    #[test]
    fn attributes_count_no_cpus() {
        assert_eq!(cpus_described("node:2(memory=1GB indexes=2*2:9999*2) core:3 pu:1"), Some(6));
        assert!(Topology::detect(Some("node:2(memory=1GB) core:2 pu:1")).is_some());
    }

    #[test]
    fn nearer_nodes_come_first() {
        let mut t = Topology::detect(Some("node:4 core:2 pu:1")).expect("valid");
        t.distances[0] = vec![10, 31, 21, 22];
        assert_eq!(t.by_distance(0), [2, 3, 1]);
        t.reorder(&[0, 2, 3, 1]);
        assert_eq!(t.by_distance(0), [1, 2, 3]);
    }
}
