//! What the queue uses of the library's `os`.

#[path = "../../../src/os/spin.rs"]
pub mod spin;

pub mod time {
    /// Sleeps for `ns` nanoseconds.
    pub fn sleep(ns: i64) {
        std::thread::sleep(std::time::Duration::from_nanos(ns as u64));
    }
}
