//! `GOSCHED_DEBUG`: switches that make races likely, switches for tests, and what users see.

use crate::os::time;

/// The switches: `name=value` pairs separated by commas; unknown names are ignored.
#[derive(Clone, Copy, Default, Debug)]
pub struct Debug {
    /// Goroutines that become runnable go to a global queue, and so usually to another P.
    pub migrate: bool,
    /// A P serves its queues in a random order.
    pub random_order: bool,
    /// Local queues hold 4 tasks.
    pub tiny_queues: bool,
    /// Nodes keep the machine's order.
    pub no_shuffle: bool,
    /// Guard pages are mappings of their own, as on kernels before 6.13, at most `guard_budget` of
    /// them.
    pub mprotect: bool,
    pub guard_budget: usize,
    /// How often to print the scheduler's state to standard error, in ms; 0: never.
    pub schedtrace: u32,
    /// Whether to print each P, M and goroutine then.
    pub scheddetail: bool,
    /// Backtraces show the library's own frames too.
    pub all_frames: bool,
    /// SIGQUIT makes a dump.
    pub sigquit: bool,
    /// The whole runtime is an ordered run with this seed (`types::course`): one P, no preemption.
    pub seed: Option<u64>,
    /// The seed was to be chosen here.
    pub is_random_seed: bool,
    /// GOMAXPROCS stays as it was at the start, until the host changes it.
    pub fixed_procs: bool,
    /// A report of leaked goroutines when the process exits, and when a shutdown finds goroutines.
    pub leaks: bool,
}

impl Debug {
    pub fn from_env() -> Debug {
        Debug::parse(&std::env::var("GOSCHED_DEBUG").unwrap_or_default())
    }

    fn parse(text: &str) -> Debug {
        let mut d = Debug::default();
        for pair in text.split(',') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, "1"));
            let on = value != "0";
            match name.trim() {
                "migrate" => d.migrate = on,
                "randomorder" => d.random_order = on,
                "tinyqueues" => d.tiny_queues = on,
                "noshuffle" => d.no_shuffle = on,
                "leaks" => d.leaks = on,
                "seed" if value == "random" => {
                    (d.seed, d.is_random_seed) = (Some(random_seed()), true);
                }
                "seed" => d.seed = value.parse().ok(),
                "mprotect" => d.mprotect = on,
                "allframes" => d.all_frames = on,
                "sigquit" => d.sigquit = on,
                "updatemaxprocs" => d.fixed_procs = !on,
                "guardbudget" => d.guard_budget = value.parse().unwrap_or(0),
                "schedtrace" => d.schedtrace = value.parse().unwrap_or(0),
                "scheddetail" => d.scheddetail = on,
                _ => {}
            }
        }
        d
    }
}

/// A seed that is short to write.
fn random_seed() -> u64 {
    let mixed = (time::now() as u64 ^ u64::from(std::process::id()) << 32)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    1 + mixed % 999_999_999
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_on_by_name_and_off_by_zero() {
        let d = Debug::parse(
            "migrate=1,randomorder=0,tinyqueues,nonsense=7,guardbudget=12,schedtrace=1000",
        );
        assert!(d.migrate && !d.random_order && d.tiny_queues);
        assert_eq!(d.guard_budget, 12);
        assert_eq!((d.schedtrace, d.scheddetail), (1000, false));
        assert_eq!((d.seed, Debug::parse("seed=17").seed), (None, Some(17)));
        assert_eq!(Debug::parse("seed=soon").seed, None);
        assert!(Debug::parse("seed=random").seed.is_some_and(|seed| seed > 0));
    }
}
