//! The nodes and their CPUs as the kernel shows them at this moment, under /sys. hwloc is asked once
//! only.

use std::fs;

const NODES: &str = "/sys/devices/system/node";

/// The operating system's numbers of the nodes that are there; empty if /sys doesn't say.
pub fn nodes() -> Vec<usize> {
    let text = fs::read_to_string(format!("{NODES}/online")).unwrap_or_default();
    list(&text).unwrap_or_default()
}

/// The CPUs of a node that are there, ascending.
pub fn cpus(node: usize) -> Option<Vec<usize>> {
    list(&fs::read_to_string(format!("{NODES}/node{node}/cpulist")).ok()?)
}

/// The distances of a node to nodes 0, 1 and so on.
pub fn distances(node: usize) -> Vec<u64> {
    let text = fs::read_to_string(format!("{NODES}/node{node}/distance")).unwrap_or_default();
    text.split_whitespace().map_while(|number| number.parse().ok()).collect()
}

/// A list such as `0-3,8`. `None`: it is none.
fn list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers_are_read() {
        assert_eq!(list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(list("\n"), Some(vec![]));
        assert_eq!(list("0-x"), None);
    }
}
