//! What the BPF programs of a process cost, as the kernel counts it.

use std::{
    collections::{HashMap, HashSet},
    fs,
};

use dwell_testbed::Nanos;
use serde::Serialize;

/// Of all programs that are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// How often they ran: once a packet.
    pub runs: u64,
    /// Time in them.
    pub ran_ns: Nanos,
}

impl Cost {
    /// None where nothing is attached, or the kernel does not count (sysctl `kernel.bpf_stats_enabled`).
    pub(crate) fn of(process: u32) -> Option<Self> {
        let folder = fs::read_dir(format!("/proc/{process}/fdinfo")).ok()?;
        let files = folder.flatten();
        let texts: Vec<String> = files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
        sum(&texts)
    }

    /// Time of one run in nanoseconds.
    pub fn run_ns(&self) -> f64 {
        self.ran_ns.0 as f64 / self.runs as f64
    }
}

/// Over the programs that links are of. Others run by request, not for packets.
fn sum(fdinfo: &[String]) -> Option<Cost> {
    let mut attached = HashSet::new();
    let mut programs = HashMap::new();
    for text in fdinfo {
        let number = |key: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.strip_prefix(':')?.trim().parse().ok()
        };
        let Some(id) = number("prog_id") else {
            continue;
        };
        match (number("run_cnt"), number("run_time_ns")) {
            (Some(runs), Some(ns)) => {
                programs.insert(id, (runs, ns));
            }
            _ => {
                attached.insert(id);
            }
        }
    }
    let (mut runs, mut ns) = (0, 0);
    for (_, (own_runs, own_ns)) in programs.iter().filter(|(id, _)| attached.contains(id)) {
        runs += own_runs;
        ns += own_ns;
    }
    (runs > 0).then_some(Cost { runs, ran_ns: Nanos(ns) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attached_programs_count_and_each_once() {
        let program =
            |id, runs, ns| format!("pos:\t0\nprog_type:\t6\nprog_id:\t{id}\nrun_time_ns:\t{ns}\nrun_cnt:\t{runs}\n");
        let link = |id| format!("link_type:\txdp\nlink_id:\t5\nprog_tag:\ta8\nprog_id:\t{id}\n");
        let cost = sum(&[
            "pos:\t0\nflags:\t02\n".to_owned(),
            program(7, 10, 900),
            program(7, 10, 900),
            link(7),
            program(8, 1000, 5),
            program(9, 5, 600),
            link(9),
        ]);
        let cost = cost.unwrap();
        assert_eq!((cost.runs, cost.ran_ns), (15, Nanos(1500)));
        assert_eq!(cost.run_ns(), 100.0);
        // what does not count, or is not attached
        assert_eq!(sum(&[program(7, 0, 0), link(7)]), None);
        assert_eq!(sum(&[program(7, 10, 900)]), None);
    }
}
