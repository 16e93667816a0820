//! Writes the traces of the tests into DIR/good and DIR/bad, for other readers to judge.

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let Some(folder) = env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("usage: cases DIR"));
    };
    let write = |kind: &str, name: &str, data: &[u8]| {
        fs::create_dir_all(folder.join(kind))?;
        fs::write(folder.join(kind).join(format!("{name}.trace")), data)
    };
    for (name, data) in common::good() {
        write("good", name, &data)?;
    }
    for (name, data, _) in common::bad() {
        write("bad", name, &data)?;
    }
    Ok(())
}
