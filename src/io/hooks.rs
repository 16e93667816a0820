//! The functions of this room that the poller calls.

use super::{bell, file, table};
use crate::sched::core::netpoll::{self, FileHooks, Found};
use crate::sched::who::runtime::rt;

static HOOKS: FileHooks = FileHooks { event, verify, ended: bell::close_free };

/// Called once, when the library is loaded, and so before the first wait for a file.
pub fn set() {
    netpoll::set_hooks(&HOOKS);
}

fn event(data: u64, events: u32, found: &mut Found) {
    if let Some(file) = table::known(data as u32 as i32) {
        file.event((data >> 32) as u32, events, found);
    }
}

/// For sysmon: verifies the waits that rely on what the library knows of its own files. True: some must be verified
/// next time.
fn verify() -> bool {
    let rt = rt();
    let mut left = false;
    if !file::begin_verifying() {
        return false;
    }
    table::each_chunk(|first, files| {
        for (fd, file) in (first..).zip(files) {
            if file.is_to_be_verified() {
                left |= file.verify(fd, rt);
            }
        }
    });
    if left {
        file::verify_again();
    }
    left
}
