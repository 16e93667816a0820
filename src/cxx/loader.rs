//! The objects that the dynamic loader has loaded, and the functions that they define.

use core::ffi::{CStr, c_int, c_void};
use core::{ptr, slice};

/// An entry of an object's dynamic section.
#[repr(C)]
struct Dyn {
    tag: i64,
    value: usize,
}

const DT_NULL: i64 = 0;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

/// A function that a loaded object defines, and the object's thread-local storage.
pub struct Definition {
    pub(super) function: *mut c_void,
    /// The object's number among those with thread-local storage; 0: it has none.
    pub(super) tls_module: usize,
    /// The address of the object's block on the calling thread; 0: the thread has none yet.
    pub(super) tls_block: usize,
    /// The size of a block in bytes.
    pub(super) tls_size: usize,
}

/// Calls `f` with each function of this name that a loaded object exports, even if another object's
/// symbol hides it, and with the function at `also` (null: none), which may be among them. Takes
/// the loader's lock, and calls `f` with the lock held, so that no object is unloaded meanwhile.
pub fn each_definition_of(name: &CStr, also: *mut c_void, f: &mut dyn FnMut(Definition)) {
    struct Search<'a> {
        name: &'a CStr,
        also: *mut c_void,
        f: &'a mut dyn FnMut(Definition),
    }
    extern "C" fn visit(object: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: the loader describes an object that stays until this returns, and passes on the
        // search, which lives until the loader has finished.
        unsafe {
            let (search, object) = (&mut *search.cast::<Search>(), &*object);
            let found = Symbols::of(object).and_then(|s| s.find(search.name));
            let also = (!search.also.is_null() && has_loaded(object, search.also as usize))
                .then_some(search.also);
            if let Some(function) = found.or(also) {
                let headers = slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
                let tls = headers.iter().find(|h| h.p_type == libc::PT_TLS);
                (search.f)(Definition {
                    function,
                    tls_module: object.dlpi_tls_modid,
                    tls_block: object.dlpi_tls_data as usize,
                    tls_size: tls.map_or(0, |h| h.p_memsz as usize),
                });
            }
        }
        0
    }
    let mut search = Search { name, also, f };
    // SAFETY: `visit` takes the pointer that is passed.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
}

/// Takes the loader's lock, and releases it.
pub fn take_lock_once() {
    extern "C" fn end(_: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        1
    }
    // SAFETY: `end` ignores its arguments.
    unsafe { libc::dl_iterate_phdr(Some(end), ptr::null_mut()) };
}

/// Whether the address is in one of the object's segments.
///
/// # Safety
/// The object is loaded.
unsafe fn has_loaded(object: &libc::dl_phdr_info, at: usize) -> bool {
    // SAFETY: the headers of a loaded object are in memory.
    let headers = unsafe { slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    headers.iter().filter(|h| h.p_type == libc::PT_LOAD).any(|h| {
        let lo = object.dlpi_addr as usize + h.p_vaddr as usize;
        (lo..lo + h.p_memsz as usize).contains(&at)
    })
}

/// The dynamic symbols of a loaded object.
struct Symbols {
    base: usize,
    table: *const libc::Elf64_Sym,
    names: *const libc::c_char,
    /// The hash tables in GNU's format and in the old format. An object has at least one of them,
    /// or no symbols.
    gnu_hash: *const u32,
    hash: *const u32,
}

impl Symbols {
    /// # Safety
    /// The object is loaded.
    unsafe fn of(object: &libc::dl_phdr_info) -> Option<Symbols> {
        let base = object.dlpi_addr as usize;
        // SAFETY: the loader keeps these headers, and the section that they name, in memory; the
        // section's last entry is DT_NULL.
        unsafe {
            let headers = slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
            let section = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC)?;
            let mut entry = (base + section.p_vaddr as usize) as *const Dyn;
            let mut found = Symbols {
                base,
                table: ptr::null(),
                names: ptr::null(),
                gnu_hash: ptr::null(),
                hash: ptr::null(),
            };
            while (*entry).tag != DT_NULL {
                // The C library has relocated most of these addresses, but not all.
                let value = (*entry).value;
                let at = if value < base { base + value } else { value };
                match (*entry).tag {
                    DT_SYMTAB => found.table = at as *const _,
                    DT_STRTAB => found.names = at as *const _,
                    DT_GNU_HASH => found.gnu_hash = at as *const _,
                    DT_HASH => found.hash = at as *const _,
                    _ => {}
                }
                entry = entry.add(1);
            }
            (!found.table.is_null() && !found.names.is_null()).then_some(found)
        }
    }

    /// The function of this name, if the object defines it.
    ///
    /// # Safety
    /// The object is still loaded.
    unsafe fn find(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the tables are the object's, in the format that their tags say.
        unsafe {
            if !self.gnu_hash.is_null() {
                self.find_by_gnu_hash(name)
            } else if !self.hash.is_null() {
                self.find_by_hash(name)
            } else {
                None
            }
        }
    }

    /// # Safety
    /// As for `find`; the object has this hash table.
    unsafe fn find_by_gnu_hash(&self, name: &CStr) -> Option<*mut c_void> {
        let hash =
            name.to_bytes().iter().fold(5381u32, |h, &c| h.wrapping_mul(33).wrapping_add(c.into()));
        // SAFETY: the table has four words, `filter` double words, the buckets, and for each symbol
        // from `first` on a word of its hash, whose lowest bit ends a bucket.
        unsafe {
            let word = |i: usize| self.gnu_hash.add(i).read();
            let (buckets, first, filter) = (word(0), word(1) as usize, word(2) as usize);
            if buckets == 0 {
                return None;
            }
            let bucket = 4 + 2 * filter + (hash % buckets) as usize;
            let chains = 4 + 2 * filter + buckets as usize;
            let mut symbol = word(bucket) as usize;
            if symbol < first {
                return None;
            }
            loop {
                let of_symbol = word(chains + symbol - first);
                if of_symbol | 1 == hash | 1
                    && let Some(at) = self.defined(symbol, name)
                {
                    return Some(at);
                }
                if of_symbol & 1 != 0 {
                    return None;
                }
                symbol += 1;
            }
        }
    }

    /// # Safety
    /// As for `find`; the object has this hash table.
    unsafe fn find_by_hash(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the table begins with the number of buckets and the number of all symbols.
        unsafe { (0..self.hash.add(1).read() as usize).find_map(|i| self.defined(i, name)) }
    }

    /// The address of symbol number `i`, if that is a function of this name which the object
    /// defines.
    ///
    /// # Safety
    /// As for `find`; the object has a symbol number `i`.
    unsafe fn defined(&self, i: usize, name: &CStr) -> Option<*mut c_void> {
        const STT_FUNC: u8 = 2;
        // SAFETY: the table has a symbol `i`, as the caller says; names end with a 0.
        unsafe {
            let symbol = &*self.table.add(i);
            let is = symbol.st_shndx != 0
                && symbol.st_info & 0xf == STT_FUNC
                && CStr::from_ptr(self.names.add(symbol.st_name as usize)) == name;
            is.then(|| (self.base + symbol.st_value as usize) as *mut c_void)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definitions(name: &CStr) -> Vec<usize> {
        let mut found = Vec::new();
        each_definition_of(name, ptr::null_mut(), &mut |d| found.push(d.function as usize));
        found
    }

    #[test]
    fn a_function_of_the_c_library_is_found_where_the_linker_finds_it() {
        let found = definitions(c"gnu_get_libc_version");
        assert_eq!(found, [libc::gnu_get_libc_version as *const () as usize]);
    }

    #[test]
    fn what_no_object_defines_is_not_found() {
        assert!(definitions(c"gosched_no_such_function").is_empty());
        assert!(definitions(c"").is_empty());
    }
}
