//! Functions of the C library that are replaced in the whole process, as LD_PRELOAD does, but later.
//!
//! Every loaded object calls a function of another object by an entry of its global offset table.
//! [`replace`] writes the replacements into these entries. What it doesn't see: calls within the C
//! library, addresses that a program has taken before or takes from dlsym(3), and programs that
//! are linked statically with the C library.
//!
//! The crate plt-rs finds such entries too; it writes them when the loader's lock is free again, and
//! the object may be unloaded meanwhile.

use super::locked::Locked;
use super::objects::{self, Changes, Object};
use super::{page_size, symbol};
use crate::arch;
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::{ptr, slice};

/// A function of the C library and its replacement, which stays in place for good.
pub struct Replacement {
    pub name: &'static CStr,
    /// Has the function's type.
    pub by: *const (),
    /// The address of the function itself; 0: it is not replaced.
    pub real: &'static AtomicUsize,
}

// SAFETY: the address of a function.
unsafe impl Sync for Replacement {}

/// Replaces the functions in all objects that are loaded now. Does nothing if that has been done
/// and no object was added since. One set of replacements a process.
pub fn replace(all: &[Replacement]) {
    static DONE: Locked<Option<Changes>> = Locked::new(None);
    for one in all {
        if one.real.load(Ordering::Relaxed) == 0 {
            one.real.store(symbol(one.name) as usize, Ordering::Relaxed);
        }
    }
    let now = objects::changes();
    if DONE.with(|done| done.replace(now)) == Some(now) {
        return;
    }
    let here = replace as *const () as usize;
    objects::each(&mut |object, _| {
        // The library's own calls stay as they are, unless it is linked into the program.
        if object.name.is_empty() || !has(&object, libc::PT_LOAD, here) {
            replace_in(&object, all);
        }
        true
    });
}

/// Whether the address is in one of the object's segments of this kind.
fn has(object: &Object, kind: u32, at: usize) -> bool {
    object.headers.iter().filter(|header| header.p_type == kind).any(|header| {
        let lo = object.base + header.p_vaddr as usize;
        (lo..lo + header.p_memsz as usize).contains(&at)
    })
}

/// Tags of entries of the dynamic section.
mod tag {
    pub const PLTRELSZ: u64 = 2;
    pub const STRTAB: u64 = 5;
    pub const SYMTAB: u64 = 6;
    pub const RELA: u64 = 7;
    pub const RELASZ: u64 = 8;
    pub const JMPREL: u64 = 23;
    /// Tags from here on are not needed.
    pub const END: usize = 24;
}

/// An object's dynamic section.
struct Dynamic {
    base: usize,
    values: [usize; tag::END],
}

impl Dynamic {
    fn of(object: &Object) -> Option<Dynamic> {
        let header = object.headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let at = (object.base + header.p_vaddr as usize) as *const [u64; 2];
        let mut values = [0; tag::END];
        // SAFETY: the loader has mapped the section, which ends with the tag 0.
        let entries = (0..).map(|i| unsafe { at.add(i).read() });
        for [tag, value] in entries.take_while(|[tag, _]| *tag != 0) {
            if let Some(place) = values.get_mut(tag as usize) {
                *place = value as usize;
            }
        }
        Some(Dynamic { base: object.base, values })
    }

    fn size(&self, tag: u64) -> usize {
        self.values[tag as usize]
    }

    /// The address that the entry has; 0: none. musl leaves it as it is in the file, glibc adds the
    /// object's base.
    fn address(&self, tag: u64) -> usize {
        match self.values[tag as usize] {
            0 => 0,
            at if at < self.base => self.base + at,
            at => at,
        }
    }

    /// # Safety
    /// `at` is 0 or the address of relocations of this many bytes.
    unsafe fn relocations(&self, at: usize, bytes: usize) -> &[libc::Elf64_Rela] {
        if at == 0 {
            return &[];
        }
        // SAFETY: as the caller says.
        unsafe { slice::from_raw_parts(at as *const _, bytes / size_of::<libc::Elf64_Rela>()) }
    }
}

fn replace_in(object: &Object, all: &[Replacement]) {
    let Some(dynamic) = Dynamic::of(object) else { return };
    let (symbols, strings) = (dynamic.address(tag::SYMTAB), dynamic.address(tag::STRTAB));
    if symbols == 0 || strings == 0 {
        return;
    }
    for (at, bytes) in [(tag::JMPREL, tag::PLTRELSZ), (tag::RELA, tag::RELASZ)] {
        // SAFETY: as the dynamic section says.
        let list = unsafe { dynamic.relocations(dynamic.address(at), dynamic.size(bytes)) };
        for entry in list {
            if !arch::FUNCTION_RELOCATIONS.contains(&(entry.r_info as u32)) {
                continue;
            }
            let nth = (entry.r_info >> 32) as usize;
            // SAFETY: the relocation's symbol, and its name.
            let name = unsafe {
                let symbol = &*(symbols as *const libc::Elf64_Sym).add(nth);
                CStr::from_ptr((strings + symbol.st_name as usize) as *const _)
            };
            let with = all.iter().find(|one| one.name == name);
            if let Some(with) = with.filter(|one| one.real.load(Ordering::Relaxed) != 0) {
                write(object, object.base + entry.r_offset as usize, with.by as usize);
            }
        }
    }
}

/// Writes an entry of the object's global offset table, which the loader may have made read-only.
fn write(object: &Object, at: usize, value: usize) {
    let is_read_only = has(object, libc::PT_GNU_RELRO, at);
    let size = page_size();
    let page = (at & !(size - 1)) as *mut _;
    // SAFETY: an entry of a table that nothing else writes while the loader's lock is held; readers
    // read the whole word. What the loader has made read-only is read-only again afterwards.
    unsafe {
        if is_read_only && libc::mprotect(page, size, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return;
        }
        (*ptr::with_exposed_provenance::<AtomicUsize>(at)).store(value, Ordering::Relaxed);
        if is_read_only {
            libc::mprotect(page, size, libc::PROT_READ);
        }
    }
}
