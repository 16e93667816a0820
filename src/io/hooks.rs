//! The functions of this room that the poller calls.

use super::{bell, file, table};
use crate::os::time;
use crate::sched::types::runtime::rt;
use crate::sched::wait::netpoll::{self, Events, FileHooks};

static HOOKS: FileHooks =
    FileHooks { event, verify, is_to_verify: file::is_any_to_be_verified, ended: bell::close_free };

/// Called once, when the library is loaded, and so before the first wait for a file.
pub fn set() {
    netpoll::set_hooks(&HOOKS);
}

fn event(data: u64, events: u32, found: &mut Events) {
    if let Some(file) = table::known(data as u32 as i32) {
        file.event((data >> 32) as u32, events, found);
    }
}

/// Number of entries after which `verify` checks the time.
const AT_ONCE: usize = 16;

/// For sysmon: verifies waits that rely on the library's knowledge of its own files, from number
/// `from` on, until the time `until` (ns). Returns the number with which to go on; `None`: all
/// done.
fn verify(from: i32, until: i64) -> Option<i32> {
    if from == 0 && !file::begin_verifying() {
        return None;
    }
    let rt = rt();
    for (n, (fd, file)) in table::entries_from(from).enumerate() {
        if n % AT_ONCE == AT_ONCE - 1 && time::now() >= until {
            return Some(fd);
        }
        if file.is_to_be_verified() && file.verify(fd, rt) {
            file::verify_again();
        }
    }
    None
}
