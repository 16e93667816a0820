//! What answers system calls on descriptors that the kernel doesn't know: the network in memory of a
//! bubble. Its descriptors are numbers of the kernel all the same, of a file on which every call of a
//! socket fails with `EBADF` (`O_PATH`). Only then is the stand-in asked, so calls on real files cost
//! nothing.

use super::file::Buffer;
use super::socket::{Address, Message};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The value of a socket's option, or a negative errno value.
pub type OptionValue = Result<Vec<u8>, i32>;

/// The calls of a stand-in. Each returns what the system call does, or a negative errno value; `None`:
/// the stand-in doesn't know the descriptor, or the calling thread isn't in a bubble.
pub struct StandIn {
    /// socket(2) and socketpair(2): the kernel is not asked first.
    pub socket: fn(family: i32, kind: i32) -> Option<i32>,
    pub pair: fn() -> Option<[i32; 2]>,
    /// Copies into the buffers, and tells where it came from.
    ///
    /// # Safety
    /// As recvmsg(2).
    pub receive: unsafe fn(i32, &[Buffer], i32, from: *mut Address, len: *mut u32) -> Option<isize>,
    /// # Safety
    /// As sendmsg(2).
    pub send: unsafe fn(i32, &[Buffer], i32, to: *const Address, len: u32) -> Option<isize>,
    /// # Safety
    /// As accept(2).
    pub accept: unsafe fn(i32, from: *mut Address, len: *mut u32) -> Option<isize>,
    /// # Safety
    /// As connect(2).
    pub connect: unsafe fn(i32, to: *const Address, len: u32) -> Option<isize>,
    /// # Safety
    /// As bind(2).
    pub bind: unsafe fn(i32, to: *const Address, len: u32) -> Option<isize>,
    pub listen: fn(i32, backlog: i32) -> Option<isize>,
    pub shut_down: fn(i32, how: i32) -> Option<isize>,
    /// getsockname(2), or getpeername(2) if `is_peer`.
    ///
    /// # Safety
    /// As getsockname(2).
    pub name: unsafe fn(i32, is_peer: bool, at: *mut Address, len: *mut u32) -> Option<isize>,
    /// getsockopt(2), without the part that writes the value.
    pub option: fn(i32, level: i32, name: i32) -> Option<OptionValue>,
    pub set_option: fn(i32, level: i32, name: i32, value: &[u8]) -> Option<isize>,
    /// The descriptor has been closed.
    pub closed: fn(i32),
    /// The events of poll(2).
    pub poll: fn(i32, i16) -> Option<isize>,
    /// Whether the descriptor is the stand-in's.
    pub knows: fn(i32) -> bool,
    /// epoll_ctl(2): `Some(data)` adds or changes, `None` removes.
    pub watch: fn(i32, Option<u64>) -> Option<isize>,
}

static STAND_IN: AtomicPtr<StandIn> = AtomicPtr::new(ptr::null_mut());

/// Sets the stand-in; `None`: there is none.
pub fn set(stand_in: Option<&'static StandIn>) {
    let at = stand_in.map_or(ptr::null(), ptr::from_ref);
    // Release: pairs with the Acquire in `get`.
    STAND_IN.store(at.cast_mut(), Ordering::Release);
}

pub fn get() -> Option<&'static StandIn> {
    // SAFETY: null, or what `set` was given.
    unsafe { STAND_IN.load(Ordering::Acquire).as_ref() }
}

/// Whether the descriptor is the stand-in's.
pub fn knows(fd: i32) -> bool {
    get().is_some_and(|other| (other.knows)(fd))
}

/// The result of a system call that has returned `r`: if the kernel doesn't know the descriptor, the
/// stand-in's.
#[inline(always)]
pub fn or(r: isize, ask: impl FnOnce(&StandIn) -> Option<isize>) -> isize {
    if r >= 0 { r } else { failed(ask) }
}

#[cold]
#[inline(never)]
fn failed(ask: impl FnOnce(&StandIn) -> Option<isize>) -> isize {
    let e = super::errno();
    let asked = if e == libc::EBADF { get().and_then(ask) } else { None };
    asked.unwrap_or(-(e as isize))
}

/// The buffers of a message.
///
/// # Safety
/// A message with valid buffers.
#[allow(clippy::unnecessary_cast, reason = "the C libraries differ in the type of msg_iovlen")]
pub unsafe fn buffers_of<'a>(message: *const Message) -> &'a [Buffer] {
    // SAFETY: as the caller says.
    unsafe {
        match (*message).msg_iovlen {
            0 => &[],
            n => core::slice::from_raw_parts((*message).msg_iov, n as usize),
        }
    }
}
