//! The BPF programs and maps that this process has loaded, by any library.

use std::{
    fs,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use anyhow::{Context, Result};
use libbpf_rs::{
    Program,
    query::{MapInfoIter, ProgInfoIter},
};

/// Returns the newest program with that name. Another process may have loaded one with the same name.
pub fn program(name: &str) -> Result<OwnedFd> {
    let own = own("prog_id");
    let newest = ProgInfoIter::default()
        .filter(|program| program.name.to_string_lossy() == name)
        .map(|program| program.id)
        .filter(|id| own.iter().any(|(own, _)| own == id))
        .max()
        .with_context(|| format!("this process has not loaded the program {name}"))?;
    Ok(Program::fd_from_id(newest)?)
}

/// A map, and the memory that the kernel charges for it.
#[derive(Debug, Clone)]
pub struct Map {
    /// Its name, of which the kernel keeps 15 characters.
    pub name: String,
    /// The memory that the kernel has allocated, in bytes.
    pub memory_bytes: u64,
}

/// Returns all maps of this process.
pub fn maps() -> Vec<Map> {
    let own = own("map_id");
    let mut maps: Vec<Map> = MapInfoIter::default()
        .filter_map(|map| {
            let (_, memory_bytes) = own.iter().find(|(id, _)| *id == map.id)?;
            Some(Map { name: map.name.to_string_lossy().into_owned(), memory_bytes: *memory_bytes })
        })
        .collect();
    maps.sort_by(|a, b| b.memory_bytes.cmp(&a.memory_bytes).then(a.name.cmp(&b.name)));
    maps
}

/// Returns the program's descriptor, for a program array.
pub fn number_of(program: &impl AsFd) -> [u8; 4] {
    program.as_fd().as_raw_fd().to_ne_bytes()
}

/// Returns the number of BPF links that a process holds.
pub fn links_of(pid: u32) -> usize {
    objects_of(&pid.to_string(), "link_id").len()
}

/// Returns the nanoseconds that the programs of these processes have run, as far as the kernel counts them.
pub fn run_ns_of(pids: &[u32]) -> u64 {
    let held: Vec<u32> =
        pids.iter().flat_map(|pid| objects_of(&pid.to_string(), "prog_id")).map(|(id, _)| id).collect();
    ProgInfoIter::default().filter(|program| held.contains(&program.id)).map(|program| program.run_time_ns).sum()
}

fn own(key: &str) -> Vec<(u32, u64)> {
    objects_of("self", key)
}

/// Returns identifier and memory of the BPF objects that a process has open.
fn objects_of(pid: &str, key: &str) -> Vec<(u32, u64)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path()).ok())
        .filter_map(|text| {
            let field = |key: &str| text.lines().find_map(|line| line.split_once(':').filter(|(name, _)| *name == key));
            let id = field(key)?.1.trim().parse().ok()?;
            let memory = field("memlock").and_then(|(_, bytes)| bytes.trim().parse().ok());
            Some((id, memory.unwrap_or(0)))
        })
        .collect()
}
