//! Link options of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The number is gs_abi_version().
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libgosched.so.1");
    // Threads and handlers of ours run its code until the process ends.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
