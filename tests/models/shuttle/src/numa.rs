//! Machines for the models: `flat`, or the number of nodes with one CPU each.

#[derive(Clone)]
pub struct NumaNode {
    pub os_index: usize,
    pub cpus: Vec<usize>,
}

#[derive(Clone)]
pub struct Topology {
    pub nodes: Vec<NumaNode>,
    pub is_real: bool,
}

impl Topology {
    pub fn detect(description: Option<&str>) -> Option<Topology> {
        let nodes = match description {
            None | Some("flat") => 1,
            Some(n) => n.parse().ok()?,
        };
        let cpus = |node: usize| if nodes == 1 { vec![0, 1] } else { vec![node] };
        let nodes = (0..nodes).map(|n| NumaNode { os_index: n, cpus: cpus(n) }).collect();
        Some(Topology { nodes, is_real: false })
    }

    pub fn reorder(&mut self, _order: &[usize]) {}

    pub fn node_of_p(&self, p: usize, _count: usize) -> usize {
        p % self.nodes.len()
    }

    pub fn by_distance(&self, node: usize) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&n| n != node).collect()
    }
}
