//! Which node a new P belongs to, and which CPUs the threads of a node run on.

/// The node of the next P for a total of `count` P's; `cpus` and `ps`: how many each node has. With
/// at most one P for each CPU, the nodes are filled one after the other; more P's are spread in
/// proportion.
pub fn node_of_next_p(cpus: &[usize], ps: &[usize], count: usize) -> usize {
    let all: usize = cpus.iter().sum();
    // The number of P's on the first CPUs.
    let within =
        |cpus: usize| if count <= all { cpus } else { (cpus * count).div_ceil(all.max(1)) };
    let mut before = 0;
    let has_room = |n: &usize| {
        let first = within(before);
        before += cpus[*n];
        ps[*n] < within(before) - first
    };
    (0..cpus.len()).find(has_room).unwrap_or(0)
}

/// Gives the CPUs of nodes without P's to nodes that have more P's than CPUs, the nearest such node
/// first, so that no CPU lies idle while P's share another. `cpus` and `ps`: the CPUs of each node,
/// and how many P's it has.
pub fn deal(cpus: &mut [Vec<usize>], ps: &[usize], distance: impl Fn(usize, usize) -> u64) {
    for from in (0..cpus.len()).filter(|&n| ps[n] == 0) {
        for cpu in std::mem::take(&mut cpus[from]) {
            let lacks = |&n: &usize| ps[n] > cpus[n].len();
            let to = (0..ps.len()).filter(lacks).min_by_key(|&n| distance(from, n));
            cpus[to.unwrap_or(from)].push(cpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_p_goes_where_cpus_have_come() {
        // Each node had one CPU and has a P; now each has two.
        assert_eq!(node_of_next_p(&[2, 2], &[1, 1], 4), 0);
        assert_eq!(node_of_next_p(&[2, 2], &[2, 1], 4), 1);
        assert_eq!(node_of_next_p(&[0, 2], &[1, 1], 3), 1);
        assert_eq!(node_of_next_p(&[0, 0], &[1, 1], 3), 0);
    }

    #[test]
    fn cpus_of_nodes_without_ps_go_where_ps_lack_them() {
        let distance = |a: usize, b: usize| a.abs_diff(b) as u64;
        let mut cpus = vec![vec![0], vec![2], vec![4], vec![6]];
        deal(&mut cpus, &[2, 2, 0, 0], distance);
        assert_eq!(cpus, [vec![0, 6], vec![2, 4], vec![], vec![]]);
        let mut cpus = vec![vec![0, 1], vec![2, 3]];
        deal(&mut cpus, &[1, 0], distance);
        assert_eq!(cpus, [vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn ps_fill_node_after_node_and_share_them_evenly_when_there_are_more() {
        // seed: N2
        let nodes = |n: usize| {
            let mut ps = [0; 4];
            let mut next = || {
                let node = node_of_next_p(&[2; 4], &ps, n);
                ps[node] += 1;
                node
            };
            (0..n).map(|_| next()).collect::<Vec<_>>()
        };
        assert_eq!(nodes(3), [0, 0, 1]);
        assert_eq!(nodes(8), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(nodes(16), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
    }
}
