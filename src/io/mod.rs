//! Files that goroutines and plain threads wait for: sockets, pipes, terminals and all others that
//! epoll takes; also files on disks and names of hosts, which only keep a thread. `README.md`
//! states the protocol. seed: B2, N6

mod bell;
mod copy;
mod disk;
mod error;
pub(crate) mod file;
mod hooks;
mod known;
pub mod memory;
mod net;
mod ops;
mod process;
mod resolve;
pub(crate) mod table;
pub(crate) mod wait;
pub(crate) mod want;

pub use copy::{open, send_file, splice, sync};
pub use net::{
    new_socket, tcp_connect, tcp_listen, udp_bind, udp_connect, unix_connect, unix_listen,
    unix_pair,
};
pub use ops::*;
pub use process::{wait, wait_for_signal};
pub use resolve::{eai, last_error, resolve, set_last_error};

/// Called once, when the library is loaded: see `sched::lifecycle::init::on_load`.
pub fn on_load() {
    crate::os::thread::at_fork(nothing, nothing, forget_all);
    hooks::set();
}

extern "C" fn nothing() {}

/// In the child of a fork: forgets the threads and goroutines that waited, which are the parent's.
extern "C" fn forget_all() {
    table::forget_all();
    bell::forget_all();
    disk::forget_users();
    // SAFETY: the child of a fork has one thread.
    unsafe { memory::forked() };
    resolve::forget_helpers();
}
