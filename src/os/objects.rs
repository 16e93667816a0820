//! The objects (the program and its shared libraries) that the loader has mapped.

use super::forking::Searching;
use core::ffi::{CStr, c_int, c_void};
use core::{mem, ptr, slice};

/// A loaded object, as the loader describes it.
pub struct Object<'a> {
    /// The path; empty for the program itself.
    pub name: &'a CStr,
    /// What is added to the addresses in the object's file.
    pub base: usize,
    pub headers: &'a [libc::Elf64_Phdr],
}

/// How often the loader has added and removed objects.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Changes {
    added: u64,
    removed: u64,
}

/// Calls `f` with each object, until `f` returns false. Takes the loader's lock, and calls `f` with
/// the lock held, so that no object is unloaded meanwhile.
pub fn each(f: &mut dyn FnMut(Object, Changes) -> bool) {
    type F<'a> = &'a mut dyn FnMut(Object, Changes) -> bool;
    extern "C" fn visit(object: *mut libc::dl_phdr_info, _: usize, f: *mut c_void) -> c_int {
        // SAFETY: the loader describes an object that stays until this returns, and passes on `f`,
        // which lives until the loader has finished.
        unsafe {
            let (f, object) = (&mut *f.cast::<F>(), &*object);
            let name = match object.dlpi_name.is_null() {
                true => c"",
                false => CStr::from_ptr(object.dlpi_name),
            };
            let headers = match object.dlpi_phdr.is_null() {
                true => &[][..],
                false => slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()),
            };
            let changes = Changes { added: object.dlpi_adds, removed: object.dlpi_subs };
            let object = Object { name, base: object.dlpi_addr as usize, headers };
            c_int::from(!f(object, changes))
        }
    }
    let mut f: F = f;
    let _searching = Searching::begin();
    // SAFETY: `visit` takes the pointer that is passed.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut f).cast()) };
}

/// How often objects were added and removed until now. Takes the loader's lock.
pub fn changes() -> Changes {
    let mut now = Changes::default();
    each(&mut |_, changes| {
        now = changes;
        false
    });
    now
}

/// glibc's `_dl_find_object` (2.35): finds the object of an address without a lock, in signal
/// handlers too.
#[derive(Clone, Copy)]
pub struct Finder(FindObject);

type FindObject = unsafe extern "C" fn(*mut c_void, *mut Found) -> c_int;

/// `struct dl_find_object`.
#[repr(C)]
struct Found {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *mut c_void,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

impl Finder {
    /// `None`: the C library doesn't have the function. May take the loader's lock.
    pub fn new() -> Option<Finder> {
        let f = super::symbol(c"_dl_find_object");
        // SAFETY: the function of this name has this type.
        (!f.is_null()).then(|| Finder(unsafe { mem::transmute::<*mut c_void, FindObject>(f) }))
    }

    /// The address of the object's `.eh_frame_hdr`; 0: no object is at `pc`, or it has none.
    pub fn unwind_header(self, pc: usize) -> usize {
        let mut found = Found {
            flags: 0,
            map_start: ptr::null_mut(),
            map_end: ptr::null_mut(),
            link_map: ptr::null_mut(),
            eh_frame: ptr::null_mut(),
            reserved: [0; 7],
        };
        // SAFETY: the function writes into `found`, and may be called with any address.
        match unsafe { (self.0)(pc as *mut c_void, &raw mut found) } {
            0 => found.eh_frame as usize,
            _ => 0,
        }
    }
}
