//! What dwell itself uses.

use dwell_records::Cost;
use dwell_socket::clock::process_cpu_ns;

/// Returns the processor time of this process and of its BPF programs, given the name, the number of runs and the run
/// time in nanoseconds of each of them that the kernel has counted.
pub fn cost(programs: &[(&str, u64, u64)]) -> Cost {
    let sum = |of: fn(&(&str, u64, u64)) -> u64| (!programs.is_empty()).then(|| programs.iter().map(of).sum());
    Cost {
        cpu_ns: Some(process_cpu_ns()),
        bpf_ns: sum(|(_, _, ns)| *ns),
        bpf_runs: sum(|(_, runs, _)| *runs),
        ..Cost::default()
    }
}
