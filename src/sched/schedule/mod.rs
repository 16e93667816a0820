//! The loop of an M: find a goroutine, run it, sleep. `README.md` lists the files.

pub mod g0;
pub mod ordered;
pub mod stop;

#[cfg(test)]
mod tests;
