//! Builds the library that the wheel carries, puts it beside the Python sources and links the
//! module with it.
//!
//! - `make -C ../.. library` gives `gosched.o`; with nothing to do it takes a moment.
//! - That object and Debian's `libhwloc.a` become `python/gosched/lib/libgosched.so.1`, which needs
//!   nothing but libc: who installs a wheel needs no hwloc.
//! - With `GOSCHED_LIBRARY_DIR` the module is linked with the `libgosched.so` of that directory, and
//!   nothing is built or put beside the sources: for packages of distributions, whose loader finds
//!   the library.
//! - For another target than this machine's, such as musl, the environment has `CC_target`,
//!   `CARGO_TARGET_target_LINKER` and pkg-config's variables (`tools/pythons` sets them).
//! - `python/gosched/lib/libgosched.so` is a linker script, for C extensions that link with
//!   `-L get_library_dir() -lgosched`. (A wheel can't hold a symbolic link, and a second copy could
//!   become a second scheduler.)

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io, process};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Its inputs, from the root of the repository.
const LIBRARY: [&str; 7] =
    ["src", "lib", "include", "Cargo.toml", "Cargo.lock", "Makefile", "cbindgen.toml"];

/// What else this script compiles, and itself, from here.
const C_INPUTS: [&str; 7] = [
    "build.rs",
    "src/hwloc.c",
    "src/interpreter.c",
    "src/interpreter.h",
    "src/cpython",
    "src/sys/gil/state.c",
    "src/sys/free/state.c",
];

/// The variable with the directory of a library that is there already.
const SYSTEM: &str = "GOSCHED_LIBRARY_DIR";

/// The data of libc that libhwloc.a refers to. Debian compiles that archive for programs, whose
/// linker copies such data into them; in a shared library it must be the library's own
/// (`src/hwloc.c` says what it is).
const HWLOC_DATA: [&str; 3] = ["stderr", "stdout", "program_invocation_name"];

/// Functions of libc that libhwloc.a calls by the names of C23, which glibc has from 2.38 on, where
/// it is compiled with that glibc; and names that older glibcs have. C23 adds numbers such as 0b1.
const HWLOC_C23: [(&str, &str); 6] = [
    ("__isoc23_fscanf", "__isoc99_fscanf"),
    ("__isoc23_sscanf", "__isoc99_sscanf"),
    ("__isoc23_strtol", "strtol"),
    ("__isoc23_strtoll", "strtoll"),
    ("__isoc23_strtoul", "strtoul"),
    ("__isoc23_strtoull", "strtoull"),
];

fn main() {
    if let Err(error) = build() {
        eprintln!("error: {error}");
        process::exit(1);
    }
}

fn build() -> Result<()> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // In the repository, and in an archive of the sources (backend.py).
    let inside = here.join("libgosched");
    let root = [here.ancestors().nth(2), Some(inside.as_path())]
        .into_iter()
        .flatten()
        .find(|root| root.join("include/gosched.h").exists() && root.join("src/capi").exists())
        .ok_or(
            "the sources of libgosched are missing: build in bindings/python of its repository, or an archive \
             that `python backend.py --sdist DIRECTORY` has made",
        )?;
    for input in LIBRARY {
        println!("cargo:rerun-if-changed={}", root.join(input).display());
    }
    for input in C_INPUTS {
        println!("cargo:rerun-if-changed={input}");
    }

    println!("cargo:rerun-if-env-changed={SYSTEM}");
    match env::var_os(SYSTEM) {
        Some(directory) => link_with_system(Path::new(&directory))?,
        None => carry_library(&here, root, &out)?,
    }

    pyo3_build_config::use_pyo3_cfgs();
    let has_gil = !pyo3_build_config::get().is_free_threaded();
    cc::Build::new()
        .file("src/interpreter.c")
        .file("src/frames.c")
        .file(if has_gil { "src/sys/gil/state.c" } else { "src/sys/free/state.c" })
        .include(root.join("include"))
        .includes(python_includes()?)
        .std("gnu11")
        // For what is to happen when a thread is ended.
        .flag("-fexceptions")
        .warnings(true)
        .extra_warnings(true)
        // Python's own headers don't pass.
        .flag_if_supported("-Wno-unused-parameter")
        .try_compile("gosched_python_state")?;
    Ok(())
}

/// Has the module linked with the library of a directory.
fn link_with_system(directory: &Path) -> Result<()> {
    if !directory.join("libgosched.so").exists() {
        return Err(format!("{SYSTEM}: no libgosched.so in {}", directory.display()).into());
    }
    println!("cargo:rustc-link-search=native={}", directory.display());
    println!("cargo:rustc-link-lib=dylib=gosched");
    Ok(())
}

/// Builds the library, puts it and its header beside the Python sources, and has the module linked
/// with it.
fn carry_library(here: &Path, root: &Path, out: &Path) -> Result<()> {
    let object = library(root, out)?;
    let glibc = of_old_glibc(&object)?;
    let shared = link(here, root, out, &object, &glibc)?;
    let (lib, include) = (here.join("python/gosched/lib"), here.join("python/gosched/include"));
    place(&fs::read(&shared)?, &lib.join("libgosched.so.1"))?;
    place(b"INPUT(-l:libgosched.so.1)\n", &lib.join("libgosched.so"))?;
    place(&fs::read(root.join("include/gosched.h"))?, &include.join("gosched.h"))?;
    // Who removes them gets them again.
    println!("cargo:rerun-if-changed={}", lib.join("libgosched.so.1").display());
    println!("cargo:rerun-if-changed={}", include.join("gosched.h").display());

    println!("cargo:rustc-link-search=native={}", lib.display());
    println!("cargo:rustc-link-lib=dylib=gosched");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--enable-new-dtags,-rpath,$ORIGIN/lib");
    for part in &glibc {
        let (name, directory) = (part.file_name().unwrap_or_default(), part.with_file_name(""));
        match part.extension().is_some_and(|extension| extension == "o") {
            true => println!("cargo:rustc-cdylib-link-arg={}", part.display()),
            // As an argument it would come behind libc, which has all that it has.
            false => {
                println!("cargo:rustc-link-search=native={}", directory.display());
                println!("cargo:rustc-link-lib=dylib:+verbatim={}", name.display());
            }
        }
    }
    Ok(())
}

/// Has the root's Makefile build the library; gives its `gosched.o`.
fn library(root: &Path, out: &Path) -> Result<PathBuf> {
    let mut make = Command::new(env::var_os("MAKE").unwrap_or_else(|| "make".into()));
    make.arg("-s").arg("-C").arg(root).arg("library");
    // What cargo tells build scripts would change what the inner cargo builds.
    let target = env::var("TARGET")?;
    let linker = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace(['-', '.'], "_"));
    for (name, _) in env::vars_os() {
        let name_ = name.to_string_lossy();
        let kept =
            [&linker, "CARGO_HOME", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR", "CARGO_SOURCE_"];
        if name_.starts_with("CARGO") && !kept.iter().any(|kept| name_.starts_with(kept)) {
            make.env_remove(&name);
        }
    }
    // The Makefile's folder for it, within the target directory.
    let mut folder = PathBuf::from("release");
    if target != env::var("HOST")? {
        make.env("CARGO_BUILD_TARGET", &target);
        make.arg(format!("CC={}", cc::Build::new().get_compiler().path().display()));
        folder = Path::new(&target).join(folder);
    }
    for name in [
        "MAKE",
        "MAKEFLAGS",
        "MFLAGS",
        "MAKELEVEL",
        "TARGET",
        "HOST",
        "OUT_DIR",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
        "RUSTC",
    ] {
        make.env_remove(name);
    }
    // Two cargos would wait for each other in one target directory.
    let mut directory = root.join("target");
    if fs::canonicalize(out)?
        .starts_with(fs::canonicalize(&directory).unwrap_or_default().join(&folder))
    {
        directory = out.join("library");
        make.arg(format!("CARGO_TARGET_DIR={}", directory.display()))
            .arg(format!("OUT={}", directory.join(&folder).display()));
    }
    run(
        &mut make,
        "building libgosched failed (it needs make, pkg-config, libhwloc-dev and libudev-dev)",
    )?;
    Ok(directory.join(folder).join("gosched.o"))
}

/// What the root's Makefile links the library with, so that it runs with older glibcs; nothing if the
/// C library is another.
fn of_old_glibc(object: &Path) -> Result<Vec<PathBuf>> {
    let parts = object.with_file_name("glibc");
    if !parts.exists() {
        return Ok(Vec::new());
    }
    let found: io::Result<Vec<_>> = parts.read_dir()?.map(|part| Ok(part?.path())).collect();
    let mut found = found?;
    found.sort();
    Ok(found)
}

/// Links the wheel's `libgosched.so.1`, with hwloc inside.
fn link(here: &Path, root: &Path, out: &Path, object: &Path, glibc: &[PathBuf]) -> Result<PathBuf> {
    let compiler = cc::Build::new().pic(true).get_compiler();
    let cc = || compiler.to_command();
    let tool =
        |name: &str| Command::new(env::var_os(name.to_uppercase()).unwrap_or_else(|| name.into()));

    let archive = static_hwloc(cc())?;
    let shared = out.join("libgosched.so.1");
    let mut parts: Vec<PathBuf> = vec![object.into()];
    if let Some(archive) = &archive {
        let (all, hwloc, stubs) =
            (out.join("hwloc.all.o"), out.join("hwloc.o"), out.join("hwloc.stubs.o"));
        run(
            tool("ld").args(["-r", "--whole-archive", "-o"]).arg(&all).arg(archive),
            "ld -r libhwloc.a failed",
        )?;
        let rename = HWLOC_DATA.iter().map(|name| format!("--redefine-sym={name}=gosched_{name}"));
        let older = HWLOC_C23.iter().map(|(c23, old)| format!("--redefine-sym={c23}={old}"));
        run(tool("objcopy").args(rename).args(older).arg(&all).arg(&hwloc), "objcopy failed")?;
        run(
            cc().args(["-O2", "-c"]).arg(here.join("src/hwloc.c")).arg("-o").arg(&stubs),
            "src/hwloc.c doesn't compile",
        )?;
        parts.extend([hwloc, stubs]);
    } else {
        println!(
            "cargo:warning=no libhwloc.a here: the wheel will need libhwloc.so on the machines where it runs"
        );
    }
    parts.extend(glibc.iter().cloned());
    let map = format!("-Wl,--version-script={}", root.join("lib/gosched.map").display());
    let mut ld = cc();
    ld.args(["-shared", "-Wl,--as-needed", "-o"]).arg(&shared).args(&parts);
    ld.args([
        "-Wl,-soname,libgosched.so.1",
        "-Wl,-z,nodelete",
        "-Wl,-z,relro,-z,now",
        "-Wl,-z,defs",
    ]);
    ld.args([&map, "-Wl,--gc-sections", "-Wl,--strip-debug"]);
    if archive.is_none() {
        ld.arg("-lhwloc");
    }
    ld.args(["-lgcc_s", "-lpthread", "-lm", "-ldl"]);
    run(&mut ld, "linking libgosched.so.1 failed")?;
    Ok(shared)
}

/// hwloc's archive, where pkg-config has hwloc or, if it has it nowhere, where the C compiler looks.
fn static_hwloc(mut cc: Command) -> Result<Option<PathBuf>> {
    let pkg_config = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let said = Command::new(pkg_config).args(["--variable=libdir", "hwloc"]).output();
    let said = said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    let found = match said {
        Ok(folder) if !folder.is_empty() => Path::new(&folder).join("libhwloc.a"),
        _ => run(cc.arg("-print-file-name=libhwloc.a"), "no C compiler")?.trim().into(),
    };
    Ok(Some(found).filter(|found| found.is_absolute() && found.exists()))
}

/// The directories of `Python.h`, for the interpreter that pyo3 builds for.
fn python_includes() -> Result<Vec<String>> {
    let config = pyo3_build_config::get();
    // For another target maturin tells pyo3 of none.
    let python = config
        .executable()
        .map(str::to_owned)
        .or_else(|| env::var("PYO3_PYTHON").ok())
        .ok_or("building needs the Python interpreter itself: set PYO3_PYTHON")?;
    let code = "import sys, sysconfig as s; no_gil = bool(s.get_config_var('Py_GIL_DISABLED')); \
                print(no_gil and sys.version_info[:2] != (3, 13), s.get_path('include'), s.get_path('platinclude'), sep='\\n')";
    let said = run(Command::new(python).args(["-c", code]), "the interpreter doesn't run")?;
    let mut said = said.lines();
    if said.next() == Some("True") {
        return Err(
            "3.13t is the only free-threaded Python that gosched supports (docs/python.md says why): build with a Python that has a GIL".into(),
        );
    }
    let mut found: Vec<String> = said.map(str::to_owned).collect();
    found.dedup();
    if !found.iter().any(|path| Path::new(path).join("Python.h").exists()) {
        return Err(format!(
            "no Python.h in {} (Debian: apt-get install python3-dev)",
            found.join(", ")
        )
        .into());
    }
    Ok(found)
}

/// Puts a file there in one step, unless it is there already: programs may have it mapped, and
/// builds for several Pythons run beside each other.
fn place(content: &[u8], to: &Path) -> Result<()> {
    if fs::read(to).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let new = to.with_extension(format!("new{}", process::id()));
    fs::create_dir_all(to.parent().ok_or("no directory")?)?;
    fs::write(&new, content)?;
    Ok(fs::rename(&new, to)?)
}

/// Runs a command and gives what it printed; what it says goes into cargo's output when it fails.
fn run(command: &mut Command, what: impl AsRef<OsStr>) -> Result<String> {
    let what = what.as_ref().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{what}: {:?}: {error}", command.get_program()))?;
    if !output.status.success() {
        eprintln!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        return Err(format!("{what} ({})", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
