//! The files of the room `io` that wait, without the system calls.

#[path = "../../../../src/io/bell.rs"]
pub mod bell;
#[path = "../../../../src/io/error.rs"]
pub mod error;
#[path = "../../../../src/io/file.rs"]
pub mod file;
#[path = "../../../../src/io/hooks.rs"]
pub mod hooks;
#[path = "../../../../src/io/known.rs"]
mod known;
#[path = "../../../../src/io/table.rs"]
pub mod table;
#[path = "../../../../src/io/wait.rs"]
pub mod wait;
#[path = "../../../../src/io/want.rs"]
pub mod want;

/// As the room's own, without the parts that are not here.
pub fn on_load() {
    crate::os::thread::at_fork(nothing, nothing, forget_all);
    hooks::set();
}

extern "C" fn nothing() {}

extern "C" fn forget_all() {
    table::forget_all();
    bell::forget_all();
}
