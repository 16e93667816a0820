//! The names of code addresses.
//!
//! The crate `addr2line` reads DWARF: files, lines and inlined functions. It is what Rust's own
//! backtraces use, with `gimli` and `object` below it, and maps files instead of reading them whole.
//! `blazesym` can do more (it finds what is loaded in other processes, and reads kernels), but it
//! brings a cache of all of `/proc/PID/maps` and a second way to each of these, and a version that
//! shares its gimli with framehop was older than addr2line's.
//!
//! A loaded object's debug information is looked for in the object's file, and else in
//! `/usr/lib/debug/.build-id`. Without any, the symbol table or the dynamic symbols name the
//! function. A file whose build id is not that of the loaded object was replaced, and is not used.
//!
//! # The library's own frames
//!
//! A user has no use for the twenty frames between `gs_chan_recv` and the switch. [`Symbols::visible`]
//! shows one frame for each uninterrupted run of the library's frames: the function of
//! `gosched.h` that the user's code has called. Many of these functions have no frame of their own,
//! because they jump to another. So the call before the user's return address tells the name.
//!
//! The library's code is known by its addresses, from `gosched_text_begin` to `gosched_text_end`
//! (`lib/gosched.ld`): in a statically linked program it has no file of its own. In a Rust program
//! that depends on the crate, functions are known by their names.

use super::unwind::Frame;
use crate::arch;
use crate::os::{heap, mem, objects};
use addr2line::Loader;
use core::fmt::{self, Write};
use core::ops::Range;
use memmap2::Mmap;
use object::{Object as _, ObjectSymbol as _, SymbolKind};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A function at a code address, and the place in its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol<'a> {
    /// The address that was looked up.
    pub pc: usize,
    /// The name, demangled; empty: not known.
    pub function: &'a str,
    /// The source file; empty: not known.
    pub file: &'a str,
    /// The line in the file; 0: not known.
    pub line: u32,
    /// How far `pc` is from the function's begin in bytes, or from the module's if the function is
    /// not known; 0 for inlined functions.
    pub offset: usize,
    /// The path of the loaded object; empty: the address is in none.
    pub module: &'a str,
    /// Whether the code is libgosched's.
    pub is_library: bool,
    /// Whether the function is inlined into the function of the next symbol.
    pub is_inlined: bool,
}

impl Symbol<'_> {
    /// Writes the two lines that Go's tracebacks have for a function.
    pub fn write(&self, out: &mut dyn Write) -> fmt::Result {
        match self.function {
            "" => write!(out, "??()")?,
            // Names of C++ functions include the types of the parameters.
            name if name.contains('(') => write!(out, "{name}")?,
            name if self.is_inlined => write!(out, "{name}(...)")?,
            name => write!(out, "{name}()")?,
        }
        writeln!(out)?;
        self.write_place(out)
    }

    /// Writes the second of these lines: where the function is.
    fn write_place(&self, out: &mut dyn Write) -> fmt::Result {
        match (self.function, self.file) {
            ("", "") => return writeln!(out, "\t{}+{:#x}", self.module, self.offset),
            (_, "") => write!(out, "\t{}", self.module)?,
            (_, file) => write!(out, "\t{file}:{}", self.line)?,
        }
        match self.offset {
            0 => writeln!(out),
            offset => writeln!(out, " +{offset:#x}"),
        }
    }

    /// Writes that this function has created a goroutine, in the goroutine `id` (0: in a thread). Go's
    /// `printcreatedby1`.
    fn write_creator(&self, id: u64, out: &mut dyn Write) -> fmt::Result {
        let name = if self.function.is_empty() { "??" } else { self.function };
        write!(out, "created by {name}")?;
        if id != 0 {
            write!(out, " in goroutine {id}")?;
        }
        writeln!(out)?;
        self.write_place(out)
    }

    /// Whether the code is what C++ programs are put together with, and none of their own: a function of
    /// the standard library's headers or of `gosched.hpp`.
    pub fn is_plumbing(&self) -> bool {
        let name = ["void ", "decltype(auto) "]
            .iter()
            .find_map(|kind| self.function.strip_prefix(kind))
            .unwrap_or(self.function);
        match self.file {
            "" => ["std::", "__gnu_cxx::", "gs::v1::"].iter().any(|begin| name.starts_with(begin)),
            file => {
                file.contains("/c++/")
                    || file.ends_with("/gosched.hpp")
                    || (file.contains("/gosched/") && file.ends_with(".hpp"))
            }
        }
    }

    /// A description for a line of a report: `worker (prog.c:7)`, `worker+0x1d (prog)` or
    /// `prog+0x1d`.
    pub fn describe(&self) -> String {
        let Symbol { pc, function, file, line, offset, module, .. } = *self;
        match (function, file, module) {
            ("", "", "") => format!("{pc:#x}"),
            ("", "", module) => format!("{module}+{offset:#x}"),
            ("", file, _) => format!("{file}:{line}"),
            (name, "", module) if offset == 0 => format!("{name} ({module})"),
            (name, "", module) => format!("{name}+{offset:#x} ({module})"),
            (name, file, _) => format!("{name} ({file}:{line})"),
        }
    }
}

/// What is known of an address, without its module.
struct Known {
    function: String,
    file: String,
    line: u32,
    offset: usize,
    is_inlined: bool,
}

/// What was found for an address.
struct Answer {
    /// Index into `Symbols::objects`; `None`: no object has the address.
    object: Option<usize>,
    is_library: bool,
    /// From the innermost inlined function to the function itself; at least one.
    known: Vec<Known>,
}

/// What looking up names may need, in bytes, for a program of usual size.
const NEEDS: usize = 32 << 20;

/// Names of code addresses. Keeps what it has read: a dump of many goroutines asks for few
/// addresses.
///
/// It reads files, allocates without bounds, and needs up to 1 MiB of stack
/// ([`on_large`](crate::stack::on_large)). Never used with the world stopped.
pub struct Symbols {
    objects: Vec<LoadedObject>,
    /// The library's code; `None`: it is told by names.
    own: Option<Range<usize>>,
    answers: BTreeMap<(usize, bool), Answer>,
    /// The library's functions that the calls before these return addresses call, and their names.
    called: BTreeMap<usize, Option<String>>,
    shows_all: bool,
}

impl Symbols {
    /// Whether there is memory for looking up names: the crates end the process if there is none.
    pub fn have_memory() -> bool {
        let mut probe = Vec::<u8>::new();
        heap::reserve(&mut probe, NEEDS)
    }

    /// Knows the objects that are loaded now. Takes the loader's lock, as
    /// [`refresh_modules`](super::unwind::refresh_modules) does. `shows_all`: the library's own
    /// frames are visible too.
    pub fn new(shows_all: bool) -> Symbols {
        let mut found = Vec::new();
        objects::each(&mut |object, _| {
            found.push(LoadedObject::new(&object));
            true
        });
        Symbols { objects: found, shows_all, ..Symbols::none() }
    }

    /// Knows no object, and so no name: every address is described by its number.
    pub fn none() -> Symbols {
        Symbols {
            objects: Vec::new(),
            own: arch::own_code(),
            answers: BTreeMap::new(),
            called: BTreeMap::new(),
            shows_all: false,
        }
    }

    /// Calls `f` with the function at an address, after those that are inlined there. `exact`: `pc`
    /// is where the code goes on, not a return address.
    pub fn frames(&mut self, pc: usize, exact: bool, f: &mut dyn FnMut(&Symbol)) {
        self.look_up(pc, exact);
        let answer = &self.answers[&(pc, exact)];
        let module = answer.object.map_or("", |i| &self.objects[i].name);
        for known in &answer.known {
            f(&Symbol {
                pc,
                function: &known.function,
                file: &known.file,
                line: known.line,
                offset: known.offset,
                module,
                is_library: answer.is_library,
                is_inlined: known.is_inlined,
            });
        }
    }

    /// Calls `f` with each symbol of a backtrace that users see, the innermost first. The library's
    /// frames at the end of the stack, such as the entry of a goroutine, are left out.
    pub fn visible(&mut self, frames: &[Frame], f: &mut dyn FnMut(&Symbol)) {
        let mut rest = frames;
        while let Some((frame, outer)) = rest.split_first() {
            if self.shows_all || !self.is_library(frame) {
                self.frames(frame.pc, frame.slot == 0, f);
                rest = outer;
                continue;
            }
            let own = 1 + outer.iter().take_while(|frame| self.is_library(frame)).count();
            let Some(caller) = rest.get(own) else { return };
            self.called_function(&rest[own - 1], caller.pc, f);
            rest = &rest[own..];
        }
    }

    /// Calls `f` with the symbols that [`visible`](Symbols::visible) gives, without the
    /// [plumbing](Symbol::is_plumbing) of C++ if there is anything besides it.
    pub fn of_user(&mut self, frames: &[Frame], f: &mut dyn FnMut(&Symbol)) {
        let mut hides = false;
        if !self.shows_all {
            self.visible(frames, &mut |symbol| {
                hides |= !symbol.is_library && !symbol.is_plumbing();
            });
        }
        self.visible(frames, &mut |symbol| {
            if !hides || !symbol.is_plumbing() {
                f(symbol);
            }
        });
    }

    /// Calls `f` with the function that has called another, or the library, before a return address:
    /// not with functions that are inlined there, as Go says who created a goroutine.
    pub fn caller(&mut self, pc: usize, f: &mut dyn FnMut(&Symbol)) {
        self.frames(pc, false, &mut |symbol| {
            if !symbol.is_inlined {
                f(symbol);
            }
        });
    }

    /// Calls `f` with the [caller](Symbols::caller). If that function is [plumbing](Symbol::is_plumbing)
    /// of C++, calls `f` with the innermost function that is inlined there and is no plumbing, such as
    /// the function that has called `gs::go`.
    pub fn caller_of_user(&mut self, pc: usize, f: &mut dyn FnMut(&Symbol)) {
        let (mut n, mut users, mut caller) = (0, None, None);
        self.frames(pc, false, &mut |symbol| {
            if !symbol.is_plumbing() {
                users = users.or(Some(n));
            }
            if !symbol.is_inlined {
                caller = Some((n, symbol.is_plumbing()));
            }
            n += 1;
        });
        let shown = match caller {
            Some((n, true)) => users.unwrap_or(n),
            Some((n, false)) => n,
            None => return,
        };
        let mut n = 0;
        self.frames(pc, false, &mut |symbol| {
            if n == shown {
                f(symbol);
            }
            n += 1;
        });
    }

    /// Writes the end of a goroutine's traceback: whether the goroutine has more frames than those
    /// above, and which function has spawned it, by a return address in that function (0: unknown),
    /// in which goroutine (0: in a thread). Go's `traceback` and `printcreatedby`.
    pub fn write_end(
        &mut self,
        is_cut: bool,
        spawned_at: usize,
        creator: u64,
        out: &mut dyn Write,
    ) -> fmt::Result {
        if is_cut {
            writeln!(out, "...additional frames elided...")?;
        }
        if spawned_at != 0 {
            self.caller(spawned_at, &mut |by| {
                let _ = by.write_creator(creator, out);
            });
        }
        Ok(())
    }

    /// Whether the frame's code is libgosched's.
    fn is_library(&mut self, frame: &Frame) -> bool {
        let exact = frame.slot == 0;
        match &self.own {
            Some(own) => own.contains(&(frame.pc - usize::from(!exact))),
            None => {
                self.look_up(frame.pc, exact);
                self.answers[&(frame.pc, exact)].is_library
            }
        }
    }

    /// Calls `f` with the function of `gosched.h` whose outermost frame is `frame`, called before
    /// the return address `caller`.
    fn called_function(&mut self, frame: &Frame, caller: usize, f: &mut dyn FnMut(&Symbol)) {
        if !self.called.contains_key(&caller) {
            let target = arch::called_from(caller, &mem::read_if_mapped);
            let target = target.filter(|&pc| self.is_library(&Frame { pc, slot: 0 }));
            let name = target.and_then(|pc| Some(self.symbol(pc, true)?.0));
            let name = name.filter(|name| !name.is_empty());
            self.called.insert(caller, name);
        }
        // If the call doesn't name the function, the name is that of the frame's function.
        let mut of_frame = (String::new(), 0);
        let (function, offset) = match &self.called[&caller] {
            Some(name) => (name.as_str(), 0),
            None => {
                if let Some(found) = self.symbol(frame.pc, frame.slot == 0) {
                    of_frame = found;
                }
                (of_frame.0.as_str(), of_frame.1)
            }
        };
        let object = self.object_of(frame.pc, frame.slot == 0);
        f(&Symbol {
            pc: frame.pc,
            function,
            file: "",
            line: 0,
            offset,
            module: object.map_or("", |i| &self.objects[i].name),
            is_library: true,
            is_inlined: false,
        });
    }

    /// The function at an address by its symbol alone, and how far it is from the function's begin,
    /// or from the object's if there is no symbol. DWARF isn't asked: the library's own lines are
    /// of no use to users, and many to read.
    fn symbol(&mut self, pc: usize, exact: bool) -> Option<(String, usize)> {
        let object = self.object_of(pc, exact)?;
        let object = &mut self.objects[object];
        let symbol = object.symbol(pc - usize::from(!exact));
        let (name, start) = symbol.unwrap_or((String::new(), object.base));
        Some((name, pc - start))
    }

    /// The index of the object that has the code.
    fn object_of(&self, pc: usize, exact: bool) -> Option<usize> {
        // A call may be the last instruction of its function.
        let at = pc.wrapping_sub(usize::from(!exact));
        self.objects.iter().position(|o| o.code.iter().any(|c| c.contains(&at)))
    }

    /// Makes the answer for an address, if there is none yet.
    fn look_up(&mut self, pc: usize, exact: bool) {
        if self.answers.contains_key(&(pc, exact)) {
            return;
        }
        let at = pc.wrapping_sub(usize::from(!exact));
        let object = self.object_of(pc, exact);
        let known = match object {
            Some(i) => self.objects[i].find(at, pc),
            None => vec![Known::nothing(pc)],
        };
        let is_library = match &self.own {
            Some(own) => own.contains(&at),
            None => known.last().is_some_and(|known| is_library_name(&known.function)),
        };
        self.answers.insert((pc, exact), Answer { object, is_library, known });
    }
}

/// Whether a function of this name, demangled, is the library's, in a Rust program.
fn is_library_name(name: &str) -> bool {
    name.starts_with("gosched::") || name.starts_with("<gosched::") || name.starts_with("gs_")
}

impl Known {
    fn nothing(offset: usize) -> Known {
        Known { function: String::new(), file: String::new(), line: 0, offset, is_inlined: false }
    }

    /// Names the function by its symbol, which says more than DWARF: with line tables only, DWARF
    /// has no namespaces. The compiler's marks of partial copies, such as `.cold`, are left out.
    fn rename(&mut self, symbol: &str) {
        let is_copy = |rest: &str| !self.function.is_empty() && rest.starts_with('.');
        if symbol.strip_prefix(&*self.function).is_some_and(is_copy) {
            return;
        }
        // A C function named `m` would be taken for the C++ type `unsigned long`.
        let is_mangled = symbol.starts_with("_Z") || symbol.starts_with("_R");
        let name = match is_mangled {
            true => addr2line::demangle_auto(Cow::from(symbol), None),
            false => Cow::from(symbol),
        };
        let end = name.find(" [clone .").unwrap_or(name.len());
        self.function = name[..end].to_string();
    }
}

/// An object that the loader has loaded.
struct LoadedObject {
    /// The path, for users.
    name: String,
    path: PathBuf,
    base: usize,
    code: Vec<Range<usize>>,
    /// The build id in memory; empty: none.
    build_id: Vec<u8>,
    /// Read when it is first needed.
    file: Option<ObjectFile>,
}

impl LoadedObject {
    fn new(object: &objects::Object) -> LoadedObject {
        let name = object.name.to_string_lossy().into_owned();
        // Found in this way if it was removed too.
        let own = Path::new("/proc/self/exe");
        let (name, path) = match name.is_empty() {
            true => (link_target(own), own.to_path_buf()),
            false => (name.clone(), PathBuf::from(name)),
        };
        let range = |h: &libc::Elf64_Phdr| {
            let begin = object.base + h.p_vaddr as usize;
            begin..begin + h.p_memsz as usize
        };
        let code = |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0;
        let notes = object.headers.iter().filter(|h| h.p_type == libc::PT_NOTE).map(range);
        LoadedObject {
            name,
            path,
            base: object.base,
            code: object.headers.iter().filter(code).map(range).collect(),
            // SAFETY: the loader has mapped the object, and keeps it while this is called.
            build_id: notes.filter_map(|r| unsafe { build_id(r) }).next().unwrap_or_default(),
            file: None,
        }
    }

    fn file(&mut self) -> &ObjectFile {
        self.file.get_or_insert_with(|| ObjectFile::open(&self.path, &self.build_id))
    }

    /// The name of the function at an address, and the address where it begins.
    fn symbol(&mut self, at: usize) -> Option<(String, usize)> {
        let base = self.base;
        let file = self.file();
        let symbol = file.symbol((at - base) as u64)?;
        let mut known = Known::nothing(0);
        known.rename(&file.name_of(symbol));
        Some((known.function, base + symbol.address as usize))
    }

    /// What is known of the code at `at`, which was looked up for `pc`.
    fn find(&mut self, at: usize, pc: usize) -> Vec<Known> {
        let (at, pc) = (at - self.base, pc - self.base);
        let found = self.file().find(at as u64, pc as u64);
        if found.is_empty() { vec![Known::nothing(pc)] } else { found }
    }
}

fn link_target(path: &Path) -> String {
    fs::read_link(path).unwrap_or_else(|_| path.to_path_buf()).to_string_lossy().into_owned()
}

/// The build id in a segment of notes.
///
/// # Safety
/// The segment is mapped.
unsafe fn build_id(notes: Range<usize>) -> Option<Vec<u8>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    // SAFETY: as the caller says.
    let mut rest = unsafe { core::slice::from_raw_parts(notes.start as *const u8, notes.len()) };
    loop {
        let word =
            |i: usize| Some(u32::from_ne_bytes(rest.get(4 * i..4 * i + 4)?.try_into().ok()?));
        let (name, size, kind) = (word(0)? as usize, word(1)? as usize, word(2)?);
        let begin = 12 + name.next_multiple_of(4);
        let content = rest.get(begin..begin + size)?;
        if kind == NT_GNU_BUILD_ID && rest.get(12..16) == Some(b"GNU\0") {
            return Some(content.to_vec());
        }
        rest = rest.get(begin + size.next_multiple_of(4)..)?;
    }
}

/// A symbol of an object's symbol table.
struct TableEntry {
    address: u64,
    /// 0: not known.
    size: u64,
    /// Where the name is: the index into `ObjectFile::maps`, the offset and the length.
    map: usize,
    name: (u32, u32),
}

/// What an object's file says of its code.
#[derive(Default)]
struct ObjectFile {
    dwarf: Option<Loader>,
    /// By address.
    symbols: Vec<TableEntry>,
    /// The files that the symbols are from.
    maps: Vec<Mmap>,
}

impl ObjectFile {
    /// What can be had: nothing, if the file is missing or is not the file that was loaded.
    fn open(path: &Path, build_id: &[u8]) -> ObjectFile {
        let mut file = ObjectFile::default();
        let Some(map) = map(path) else { return file };
        let Ok(object) = object::File::parse(&*map) else { return file };
        let same = |object: &object::File| match object.build_id() {
            Ok(Some(id)) => build_id.is_empty() || id == build_id,
            _ => build_id.is_empty(),
        };
        if !same(&object) {
            return file;
        }
        file.add_symbols(&object, &map);
        if object.section_by_name(".debug_info").is_some() {
            file.dwarf = Loader::new(path).ok();
        }
        let has_dwarf = file.dwarf.is_some();
        file.maps.push(map);
        if !has_dwarf
            && let Some(path) = debug_file(build_id)
            && let Some(map) = self::map(&path)
            && let Ok(object) = object::File::parse(&*map)
            && same(&object)
        {
            file.add_symbols(&object, &map);
            // Distributions move what several debug files share into another one.
            let shared =
                object.gnu_debugaltlink().ok().flatten().and_then(|(name, _)| {
                    Some(path.parent()?.join(core::str::from_utf8(name).ok()?))
                });
            file.dwarf = Loader::new_with_sup(&path, shared).ok();
            file.maps.push(map);
        }
        file.symbols.sort_by_key(|s| s.address);
        file
    }

    /// Adds the symbols of a file that becomes the next of `maps`. Adds as many as there is memory
    /// for.
    fn add_symbols(&mut self, object: &object::File, map: &Mmap) {
        for symbol in object.symbols().chain(object.dynamic_symbols()) {
            if symbol.kind() != SymbolKind::Text || !symbol.is_definition() {
                continue;
            }
            let name = symbol.name_bytes().unwrap_or_default();
            let offset = (name.as_ptr() as usize).wrapping_sub(map.as_ptr() as usize);
            let (Ok(offset), Ok(len)) = (u32::try_from(offset), u32::try_from(name.len())) else {
                continue;
            };
            if !heap::reserve(&mut self.symbols, 1) {
                return;
            }
            self.symbols.push(TableEntry {
                address: symbol.address(),
                size: symbol.size(),
                map: self.maps.len(),
                name: (offset, len),
            });
        }
    }

    /// The name of a symbol, as it is in the file.
    fn name_of(&self, symbol: &TableEntry) -> Cow<'_, str> {
        let (offset, len) = (symbol.name.0 as usize, symbol.name.1 as usize);
        let name = self.maps.get(symbol.map).and_then(|map| map.get(offset..offset + len));
        String::from_utf8_lossy(name.unwrap_or_default())
    }

    /// The symbol at an address of the file.
    fn symbol(&self, at: u64) -> Option<&TableEntry> {
        /// The most symbols that are nested in another.
        const NESTED: usize = 8;
        let end = self.symbols.partition_point(|s| s.address <= at);
        let before = self.symbols[..end].iter().rev();
        let nearest = self.symbols[..end].last()?.address;
        before.take(NESTED).find(|s| match s.size {
            0 => s.address == nearest,
            size => at - s.address < size,
        })
    }

    fn find(&self, at: u64, pc: u64) -> Vec<Known> {
        let symbol = self.symbol(at);
        let offset = symbol.map_or(0, |s| (pc - s.address) as usize);
        let mut found = self.find_in_dwarf(at);
        if found.is_empty() && symbol.is_some() {
            found.push(Known::nothing(0));
        }
        if let Some(function) = found.last_mut() {
            function.is_inlined = false;
            function.offset = offset;
            if let Some(symbol) = symbol {
                function.rename(&self.name_of(symbol));
            }
        }
        found
    }

    /// The functions at an address, all as inlined and with offset 0. Empty: no debug information.
    fn find_in_dwarf(&self, at: u64) -> Vec<Known> {
        let mut found = Vec::new();
        let Some(Ok(mut frames)) = self.dwarf.as_ref().map(|dwarf| dwarf.find_frames(at)) else {
            return found;
        };
        while let Ok(Some(frame)) = frames.next() {
            let location = frame.location.as_ref();
            let name = frame.function.as_ref().and_then(|f| Some(f.demangle().ok()?.into_owned()));
            found.push(Known {
                function: name.unwrap_or_default(),
                file: location.and_then(|l| l.file).unwrap_or_default().to_string(),
                line: location.and_then(|l| l.line).unwrap_or_default(),
                offset: 0,
                is_inlined: true,
            });
        }
        found
    }
}

/// Maps a file to read it.
fn map(path: &Path) -> Option<Mmap> {
    let file = File::open(path).ok()?;
    // SAFETY: the file of a loaded object, which is not changed in place: that would change the
    // process's code too.
    unsafe { Mmap::map(&file) }.ok()
}

/// Where distributions put the debug information of the object with this build id.
fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug"));
    path.exists().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plumbing_of_cxx_is_told_by_its_file_or_else_by_its_name() {
        let is = |function, file| {
            let (pc, line, offset, module) = (0, 1, 0, "");
            let (is_library, is_inlined) = (false, false);
            Symbol { pc, function, file, line, offset, module, is_library, is_inlined }
                .is_plumbing()
        };
        assert!(is("operator()", "/usr/include/c++/12/functional"));
        assert!(is("operator()", "/usr/local/include/gosched.hpp"));
        assert!(is("operator()", "/src/bindings/cpp/gosched/channel.hpp"));
        assert!(is("void std::__invoke_impl<void, f>(f)", ""));
        assert!(is("gs::v1::mutex::lock()", ""));
        assert!(!is("std::vector<int> parts()", "/src/gosched/parts.cpp"));
        assert!(!is("consume", "/src/consume.c"));
        assert!(!is("app::consume()", ""));
    }
    use crate::backtrace::unwind::{self, Registers};
    use crate::os::thread;

    #[inline(never)]
    fn frames_here() -> Vec<Frame> {
        unwind::refresh_modules();
        let mut frames = Vec::new();
        // SAFETY: this thread's stack.
        unsafe {
            unwind::walk(Registers::here(), thread::stack_bounds(), &mut |frame| {
                frames.push(frame);
                true
            });
        }
        frames
    }

    #[test]
    fn a_function_has_its_name_file_line_and_module() {
        let frames = frames_here();
        let mut symbols = Symbols::new(true);
        let mut found = Vec::new();
        symbols.frames(frames[0].pc, true, &mut |s| {
            found.push((s.function.to_string(), s.file.to_string(), s.line, s.is_inlined));
            assert!(s.module.contains("gosched"), "{}", s.module);
            assert!(s.is_library);
        });
        assert!(found[0].1.ends_with(&format!("{}.rs", std::env::consts::ARCH)), "{found:?}");
        let (name, file, line, is_inlined) = found.last().unwrap();
        assert_eq!(name, "gosched::backtrace::symbols::tests::frames_here");
        assert!(file.ends_with("src/backtrace/symbols.rs") && *line > 0 && !is_inlined);
    }

    #[test]
    fn a_function_of_the_c_library_has_the_name_of_its_dynamic_symbol() {
        let start = libc::getpid as *const () as usize;
        let mut symbols = Symbols::new(true);
        let mut found = Vec::new();
        symbols.frames(start + 4, true, &mut |s| {
            found.push((s.function.to_string(), s.offset, s.is_library));
        });
        let (name, offset, is_library) = found.last().unwrap();
        assert!(name.ends_with("getpid") && *offset == 4 && !is_library, "{found:?}");
        let mut text = String::new();
        symbols.frames(8, true, &mut |s| text = s.describe());
        assert_eq!(text, "0x8");
    }

    #[test]
    fn names_of_cpp_and_rust_are_demangled() {
        let plain = |name| addr2line::demangle_auto(Cow::from(name), None).into_owned();
        assert_eq!(plain("_ZN4test6workerEi"), "test::worker(int)");
        assert_eq!(plain("_ZN7gosched4arch3run17h0123456789abcdefE"), "gosched::arch::run");
        assert_eq!(plain("worker"), "worker");
    }

    #[test]
    fn copies_of_a_function_that_the_compiler_makes_have_its_name() {
        let renamed = |dwarf: &str, symbol| {
            let mut known = Known::nothing(0);
            known.function = dwarf.to_string();
            known.rename(symbol);
            known.function
        };
        assert_eq!(renamed("worker", "worker.constprop.0"), "worker");
        assert_eq!(renamed("", "m"), "m");
        assert_eq!(renamed("worker", "_ZN4test6workerEi.cold"), "test::worker(int)");
        assert_eq!(
            renamed("run", "_ZN7gosched4arch3run17h0123456789abcdefE"),
            "gosched::arch::run"
        );
    }
}
