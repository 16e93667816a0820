//! Gangs.

use super::goroutines::spawn_in;
use super::{EINVAL, gs_fn, gs_g, gs_spawn_opts};
use crate::arch::with_return_address;
use crate::sched::ext::gang;
use crate::sched::ext::gang::state::Gang;
use crate::sched::take::boundary::Entered;
use core::ffi::{c_int, c_void};
use core::ptr;

/// A gang: goroutines that exchange messages, or wait for each other, all the time. Its members run
/// at the same time, each on a P of its own (on one NUMA node if that has enough), for one time
/// slice. Then all other goroutines have their turn.
///
/// In its turn a gang has as many P's as it has members; if there are fewer P's than members, the
/// gang has all P's, for several slices. A P whose member has to wait is lent to other goroutines
/// after a while, and taken back when a member becomes ready. The other goroutines' turn lasts
/// until each of them has run once; meanwhile members run on P's that have nothing else to do. A
/// gang pays off if its members exchange messages many times in a slice (gs_config.time_slice_ns)
/// while other goroutines want their P's.
pub struct gs_gang {
    _private: [u8; 0],
}

/// Makes a gang without members.
///
/// A reference, to be given back with gs_gang_free. NULL: no memory. Goroutines and plain
/// threads.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn gs_gang_create() -> *mut gs_gang {
    let _entered = Entered::new();
    gang::create().map_or(ptr::null_mut(), |gang| ptr::from_ref(gang).cast_mut().cast())
}

/// Gives the reference back: no goroutine can be added any more. The members stay a gang until they
/// have ended. Does nothing for NULL.
///
/// # Safety
/// `gang` is null or a gang that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_gang_free(gang: *mut gs_gang) {
    let _entered = Entered::new();
    // SAFETY: `gang` is null or a gang.
    if let Some(gang) = unsafe { given(gang) } {
        gang::release(gang);
    }
}

/// # Safety
/// `gang` is null or a gang.
unsafe fn given(gang: *const gs_gang) -> Option<&'static Gang> {
    // SAFETY: null or a gang, which stays mapped.
    unsafe { gang.cast::<Gang>().as_ref() }
}

/// Starts f(arg) as a goroutine that is a member of the gang until it ends. A goroutine that a
/// member spawns with gs_spawn is not a member. opts and out are those of gs_spawn_with; a member
/// must have priority GS_PRIO_NORMAL and node -1, because it runs where its gang does.
///
/// 0; -EINVAL: gang or f is NULL, or an option is unknown, out of its range, or not for
/// members; -ENOMEM. Goroutines and plain threads.
///
/// # Safety
/// `gang` is null or a gang; the rest as `gs_spawn_with`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn gs_gang_spawn(
    gang: *mut gs_gang,
    f: gs_fn,
    arg: *mut c_void,
    opts: *const gs_spawn_opts,
    out: *mut *mut gs_g,
) -> c_int {
    with_return_address!(5, spawn_at)
}

unsafe extern "C" fn spawn_at(
    gang: *mut gs_gang,
    f: gs_fn,
    arg: *mut c_void,
    opts: *const gs_spawn_opts,
    out: *mut *mut gs_g,
    pc: usize,
) -> c_int {
    // SAFETY: the arguments are those of `gs_gang_spawn`.
    unsafe {
        match given(gang) {
            Some(gang) => spawn_in(Some(gang), f, arg, opts, out, pc),
            None => {
                if let Some(out) = out.as_mut() {
                    *out = ptr::null_mut();
                }
                EINVAL
            }
        }
    }
}
