//! What the benchmarks share. Each benchmark is a program of its own in `bin/`.

pub mod child;
pub mod driver;
pub mod figures;
pub mod forward;
pub mod kernel_objects;
pub mod stop;
pub mod traffic;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

/// The `dwell` that was built along with this program.
pub fn dwell() -> Result<PathBuf> {
    let dwell = std::env::current_exe()?.with_file_name("dwell");
    ensure!(dwell.exists(), "{} is missing: build it with `cargo build --release -p dwell-cli`", dwell.display());
    Ok(dwell)
}

/// Where a program is, if it is installed.
pub fn installed(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Keeps this process and all that it starts on one CPU, the last one it may use.
pub fn pin() -> Result<usize> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this)?;
    let cpu = (0..CpuSet::count())
        .rfind(|cpu| allowed.is_set(*cpu).unwrap_or(false))
        .context("this process may use no CPU")?;
    let mut one = CpuSet::new();
    one.set(cpu)?;
    sched_setaffinity(this, &one)?;
    Ok(cpu)
}
