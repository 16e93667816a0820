//! The values that a goroutine keeps under keys. `lifecycle::keys` has the protocol.

use core::ffi::c_void;

/// The values of one goroutine, by the index of the key: each with the key's number.
#[derive(Default)]
pub struct Values(pub Vec<(u32, *mut c_void)>);
