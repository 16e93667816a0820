//! Machines for the models: `flat`, or the number of nodes with one CPU each.

#[path = "../../../../src/numa/deal.rs"]
mod deal;

pub use deal::{deal, node_of_next_p};

#[derive(Clone)]
pub struct NumaNode {
    pub os_index: usize,
    pub cpus: Vec<usize>,
}

#[derive(Clone)]
pub struct Topology {
    pub nodes: Vec<NumaNode>,
    pub distances: Vec<Vec<u64>>,
    pub is_real: bool,
}

impl Topology {
    pub fn detect(description: Option<&str>) -> Option<Topology> {
        let nodes = match description {
            None | Some("flat") => 1,
            Some(n) => n.parse().ok()?,
        };
        let cpus = |node: usize| if nodes == 1 { vec![0, 1] } else { vec![node] };
        let distances = vec![vec![10; nodes]; nodes];
        let nodes = (0..nodes).map(|n| NumaNode { os_index: n, cpus: cpus(n) }).collect();
        Some(Topology { nodes, distances, is_real: false })
    }

    pub fn reorder(&mut self, _order: &[usize]) {}

    pub fn is_real(&self) -> bool {
        self.is_real
    }

    pub fn cpus_now(&self) -> Option<(Vec<Vec<usize>>, Vec<usize>)> {
        None
    }

    pub fn cpus_of_nodes(&self) -> Vec<Vec<usize>> {
        self.nodes.iter().map(|node| node.cpus.clone()).collect()
    }

    pub fn by_distance(&self, node: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&n| n != node).collect()
    }
}
