//! What the machine looks like: NUMA nodes, their CPUs, their distances; and
//! which P belongs to which node. The topology may be synthetic.

mod alloc;

pub use alloc::{Policy, alloc, free};

use crate::os::cpu;
use hwlocality::Topology as Hwloc;
use hwlocality::object::types::ObjectType;
use hwlocality::topology::builder::BuildFlags;

/// What hwloc and Linux call the distance of a node to itself.
const LOCAL_DISTANCE: u64 = 10;
/// The distance of two nodes when the machine doesn't say.
const REMOTE_DISTANCE: u64 = 20;

/// One NUMA node with CPUs that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The number the operating system gives it.
    pub os_index: usize,
    /// The CPUs of it that the process may use, ascending.
    pub cpus: Vec<usize>,
}

/// The part of the machine that this process may use.
#[derive(Clone, Debug)]
pub struct Topology {
    pub nodes: Vec<Node>,
    /// `distances[a][b]`, in the operating system's scale: 10 is local.
    pub distances: Vec<Vec<u64>>,
    /// It is this machine's: threads and memory can be bound to its nodes.
    pub is_real: bool,
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
        let node = Node { os_index: 0, cpus: cpu::affinity() };
        Topology { nodes: vec![node], distances: vec![vec![LOCAL_DISTANCE]], is_real: false }
    }

    /// `None`: there is nothing to find out. With one node hwloc isn't asked: its
    /// plugins load dozens of libraries (X11, OpenCL, C++) into the process.
    fn real() -> Option<Topology> {
        if cpu::one_node() { None } else { Topology::by_hwloc() }
    }

    fn by_hwloc() -> Option<Topology> {
        let hwloc =
            Hwloc::builder().with_flags(BuildFlags::INCLUDE_DISALLOWED).ok()?.build().ok()?;
        let allowed = cpu::affinity();
        let mut t = Topology::from_hwloc(&hwloc, |cpu| allowed.binary_search(&cpu).is_ok());
        t.is_real = true;
        // A CPU that no node has must not be lost.
        let known: usize = t.nodes.iter().map(|n| n.cpus.len()).sum();
        (known == allowed.len()).then_some(t)
    }

    fn synthetic(description: &str) -> Option<Topology> {
        let hwloc = Hwloc::builder().from_synthetic(description).ok()?.build().ok()?;
        let t = Topology::from_hwloc(&hwloc, |_| true);
        (!t.nodes.is_empty()).then_some(t)
    }

    /// The nodes with CPUs that may be used.
    fn from_hwloc(hwloc: &Hwloc, allowed: impl Fn(usize) -> bool) -> Topology {
        let nodes: Vec<Node> = hwloc
            .objects_with_type(ObjectType::NUMANode)
            .filter_map(|object| {
                let cpus: Vec<usize> =
                    object.cpuset()?.iter_set().map(usize::from).filter(|&c| allowed(c)).collect();
                (!cpus.is_empty()).then_some(Node { os_index: object.os_index()?, cpus })
            })
            .collect();
        let distances = distances(hwloc, &nodes);
        Topology { nodes, distances, is_real: false }
    }

    /// Reorders the nodes (`order[new] = old`). Seed 003: processes that all
    /// filled the first node first would overload it, so each has an order of
    /// its own.
    pub fn reorder(&mut self, order: &[usize]) {
        self.nodes = order.iter().map(|&i| self.nodes[i].clone()).collect();
        self.distances =
            order.iter().map(|&a| order.iter().map(|&b| self.distances[a][b]).collect()).collect();
    }

    /// How many CPUs the process may use.
    pub fn cpus(&self) -> usize {
        self.nodes.iter().map(|n| n.cpus.len()).sum()
    }

    /// The node of P number `p` out of `count`. Up to one P for each CPU the
    /// nodes are filled one after the other; more P's are spread in proportion.
    pub fn node_of_p(&self, p: usize, count: usize) -> usize {
        let cpus = self.cpus();
        let cpu = if count <= cpus { p } else { p * cpus / count };
        let mut before = 0;
        self.nodes
            .iter()
            .position(|n| {
                before += n.cpus.len();
                cpu < before
            })
            .unwrap_or(0)
    }

    /// The node that the calling thread is on right now; 0 if the machine isn't the
    /// real one.
    pub fn here(&self) -> usize {
        let cpu = if self.is_real { cpu::current() } else { None };
        let has = |cpu| self.nodes.iter().position(|n| n.cpus.contains(&cpu));
        cpu.and_then(has).unwrap_or(0)
    }

    /// The other nodes as seen from `node`, nearest first.
    pub fn by_distance(&self, node: usize) -> Vec<usize> {
        let mut others: Vec<usize> = (0..self.nodes.len()).filter(|&n| n != node).collect();
        others.sort_by_key(|&n| self.distances[node][n]);
        others
    }
}

/// The distances between `nodes`, as far as hwloc knows them.
fn distances(hwloc: &Hwloc, nodes: &[Node]) -> Vec<Vec<u64>> {
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
    fn a_description_that_makes_no_sense_is_refused() {
        assert!(Topology::detect(Some("three bananas")).is_none());
    }

    #[test]
    fn ps_fill_node_after_node_and_share_them_evenly_when_there_are_more() {
        // seed: N2
        let t = Topology::detect(Some("node:4 core:2 pu:1")).expect("valid");
        let nodes = |n: usize| (0..n).map(|p| t.node_of_p(p, n)).collect::<Vec<_>>();
        assert_eq!(nodes(3), [0, 0, 1]);
        assert_eq!(nodes(8), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(nodes(16), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
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
