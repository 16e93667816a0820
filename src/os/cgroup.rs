//! The CPU quota of the process's cgroup, versions 1 and 2.

use std::fs;
use std::path::{Path, PathBuf};

/// The lowest quota of the cgroup and its parents, in CPUs, if there is a quota.
pub fn cpu_quota() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    quota_below(Path::new("/sys/fs/cgroup"), &groups)
}

/// [`cpu_quota`], from the content of `/proc/self/cgroup` and a mount point.
fn quota_below(mount: &Path, groups: &str) -> Option<f64> {
    let mut lowest: Option<f64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let quota: fn(&Path) -> Option<f64> = if controllers.is_empty() {
            quota_v2
        } else if controllers.split(',').any(|c| c == "cpu") {
            quota_v1
        } else {
            continue;
        };
        let root =
            if controllers.is_empty() { mount.to_path_buf() } else { mount.join(controllers) };
        let mut dir: PathBuf = root.join(path.trim_start_matches('/'));
        loop {
            if let Some(q) = quota(&dir) {
                lowest = Some(lowest.map_or(q, |l| l.min(q)));
            }
            if dir == root || !dir.pop() {
                break;
            }
        }
    }
    lowest
}

/// `cpu.max`: `quota period`, both in us, or `max period`.
fn quota_v2(dir: &Path) -> Option<f64> {
    let text = fs::read_to_string(dir.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    ratio(quota, period)
}

fn quota_v1(dir: &Path) -> Option<f64> {
    let quota = fs::read_to_string(dir.join("cpu.cfs_quota_us")).ok()?;
    let period = fs::read_to_string(dir.join("cpu.cfs_period_us")).ok()?;
    ratio(&quota, &period)
}

/// The quota, if both are positive numbers.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.trim().parse().ok()?;
    let period: f64 = period.trim().parse().ok()?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root =
            std::env::temp_dir().join(format!("gosched-cgroup-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("has a parent")).expect("create");
            fs::write(path, text).expect("write");
        }
        root
    }

    #[test]
    fn the_lowest_quota_of_a_v2_group_and_its_parents_counts() {
        let t = tree(
            "v2",
            &[
                ("a/cpu.max", "150000 100000\n"),
                ("a/b/cpu.max", "400000 100000\n"),
                ("cpu.max", "max 100000\n"),
            ],
        );
        assert_eq!(quota_below(&t, "0::/a/b\n"), Some(1.5));
        fs::remove_dir_all(t).expect("remove");
    }

    #[test]
    fn a_v1_group_is_read_and_minus_one_is_no_quota() {
        let t = tree(
            "v1",
            &[
                ("cpu,cpuacct/x/cpu.cfs_quota_us", "250000"),
                ("cpu,cpuacct/x/cpu.cfs_period_us", "100000"),
                ("cpu,cpuacct/y/cpu.cfs_quota_us", "-1"),
                ("cpu,cpuacct/y/cpu.cfs_period_us", "100000"),
            ],
        );
        assert_eq!(quota_below(&t, "3:cpu,cpuacct:/x\n1:name=systemd:/\n"), Some(2.5));
        assert_eq!(quota_below(&t, "3:cpu,cpuacct:/y\n"), None);
        fs::remove_dir_all(t).expect("remove");
    }
}
