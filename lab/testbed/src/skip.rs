//! Reports of tests that are skipped because this host lacks something.
//!
//! Tests of crates that do not depend on this one include the file by its path.

#![allow(dead_code, reason = "who includes this file needs a part of it")]
#![allow(clippy::print_stderr, reason = "a skipped test says so on standard error")]

use std::{
    env,
    fmt::Display,
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::MetadataExt,
    path::Path,
    process::Command,
    sync::Once,
    thread,
};

/// Reports that the calling test is skipped, and why: on standard error, and as a line `BINARY TEST: REASON` of the
/// file that the environment variable DWELL_SKIPS names. `make test` prints a table of them at its end.
pub fn skip(reason: impl Display) {
    let binary = env::current_exe().unwrap_or_default();
    let binary = binary.file_stem().unwrap_or_default().to_string_lossy();
    // cargo appends a hash
    let binary = binary.rsplit_once('-').map_or(&*binary, |(name, _)| name);
    let thread = thread::current();
    // A reason is one line of the file.
    let reason = reason.to_string().trim().replace('\n', " ");
    let line = format!("{binary} {}: {reason}\n", thread.name().unwrap_or("-"));
    eprint!("skipped: {line}");
    if let Some(path) = env::var_os("DWELL_SKIPS")
        && let Ok(mut file) = OpenOptions::new().append(true).open(path)
    {
        // The table at the end is for information.
        let _ = file.write_all(line.as_bytes());
    }
}

/// Returns whether the calling test is skipped because this process is not root.
///
/// # Panics
/// In CI (`CI=true`), where every test that needs root runs as root.
pub fn lacks_root() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|of_process| of_process.uid() == 0);
    if is_root {
        mount_bpffs();
    }
    !is_root && required("this process is not root")
}

/// Mounts the BPF file system if this host has none, as systemd does at boot: tests pin maps and programs in it.
fn mount_bpffs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if !mounts.lines().any(|line| line.split(' ').nth(1) == Some("/sys/fs/bpf")) {
            // A host that cannot mount it fails the tests that need it, with their own words.
            let _ = Command::new("mount").args(["-t", "bpf", "bpf", "/sys/fs/bpf"]).status();
        }
    });
}

/// Returns whether the calling test is skipped because the program is not on the search path.
///
/// # Panics
/// In CI (`CI=true`), where every program is installed.
pub fn lacks_program(program: &str) -> bool {
    let search = env::var_os("PATH").unwrap_or_default();
    let is_there = env::split_paths(&search)
        .chain(["/usr/sbin", "/sbin"].map(Into::into))
        .any(|folder| Path::new(&folder).join(program).is_file());
    !is_there && required(&format!("there is no program {program}"))
}

/// Reports that something is missing which `make test` would have installed. Always returns true.
///
/// # Panics
/// In CI (`CI=true`).
pub fn required(lack: &str) -> bool {
    assert!(env::var_os("CI").is_none_or(|value| value != "true"), "in CI nothing may be missing: {lack}");
    skip(lack);
    true
}
