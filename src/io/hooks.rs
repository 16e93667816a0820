//! What the poller calls.

use super::{bell, file, table};
use crate::sched::core::netpoll::{self, Found, Hooks};
use crate::sched::who::runtime::rt;

static HOOKS: Hooks = Hooks { event, verify, ended: bell::close_free };

/// Once, when the library is loaded, so before the first wait for a file.
pub fn set() {
    netpoll::set_hooks(&HOOKS);
}

fn event(data: u64, events: u32, found: &mut Found) {
    if let Some(file) = table::known(data as u32 as i32) {
        file.event((data >> 32) as u32, events, found);
    }
}

/// sysmon's look at waits that rely on what the library knows of its own files.
/// True: there are some that it will look at only next time.
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
