//! What the process itself costs, under the names that Prometheus' own clients give it.

use std::fs;

use dwell_socket::clock::process_cpu_ns;

use crate::{Family, Snapshot, seconds};

const CPU: Family =
    Family::counter("process_cpu_seconds_total", &[], "User and system CPU time of all threads of dwell.");
const MEMORY: Family = Family::gauge("process_resident_memory_bytes", &[], "Memory of dwell that is resident.");

/// Adds both. Memory is absent where /proc cannot be read.
pub fn collect(snapshot: &mut Snapshot) {
    snapshot.family(&CPU);
    snapshot.sample::<&str>(&CPU, &[], seconds(process_cpu_ns().into()));
    if let Some(bytes) = resident_bytes() {
        snapshot.family(&MEMORY);
        snapshot.sample::<&str>(&MEMORY, &[], bytes);
    }
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}
