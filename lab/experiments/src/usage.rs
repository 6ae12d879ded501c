//! What running processes use: processor time, memory; and whether they have attached.

use std::{
    fs,
    time::{Duration, Instant},
};

use dwell_testbed::{Result, harness::links, signals::Signals};
use nix::{
    time::{ClockId, clock_gettime},
    unistd::{SysconfVar, sysconf},
};

/// What a process has used since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// The processor time of its threads in user space and kernel.
    pub(crate) cpu: Duration,
    /// Its maximum resident size; `None` if the process has ended.
    pub(crate) memory_bytes: Option<u64>,
}

impl Usage {
    /// Reads the usage of a process that still runs.
    pub(crate) fn of(process: u32) -> Usage {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        Usage { cpu: cpu_time(process), memory_bytes: peak_memory(&status) }
    }
}

/// Returns the processor time of all threads of a process that have not ended.
pub(crate) fn cpu_time(process: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let ns = tasks
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    Duration::from_nanos(ns)
}

/// Returns the processor time of a process with those of its threads that have ended, in steps of 10 ms.
pub(crate) fn process_cpu_time(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    Duration::from_secs_f64(ticks(&stat).unwrap_or(0) as f64 / per_second as f64)
}

/// The time in user space and in the kernel, the twelfth and the thirteenth field after the name.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Computes until this thread has used that much more processor time.
pub(crate) fn compute(time: Duration) {
    // Linux always knows it.
    let used = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::MAX, Duration::from);
    let begun = used();
    while used().saturating_sub(begun) < time {}
}

/// Returns the processor time of a process and of all that it started which still run, if it leads a process group.
pub(crate) fn group_cpu_time(leader: u32) -> Duration {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_of_group = |number: &u32| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        process_group(&stat) == Some(leader)
    };
    numbers.filter(is_of_group).map(cpu_time).sum()
}

/// The third field after the name, which is in parentheses and may contain any character.
fn process_group(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// Waits until a process has attached: it holds a BPF link for each direction. Returns false if it has not within `limit`; fails as `check` does, which is asked
/// again and again.
pub(crate) fn attaches(
    process: u32,
    limit: Duration,
    signals: &Signals,
    mut check: impl FnMut() -> Result<()>,
) -> Result<bool> {
    let begun = Instant::now();
    while links(process) < 2 {
        check()?;
        if begun.elapsed() > limit {
            return Ok(false);
        }
        signals.pause(Duration::from_millis(20))?;
    }
    Ok(true)
}

/// Returns the resident size of a process; `None` if it has ended.
pub(crate) fn resident_memory(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    memory(&status, "VmRSS:")
}

fn peak_memory(status: &str) -> Option<u64> {
    memory(status, "VmHWM:")
}

fn memory(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_and_the_present_size_is_not() {
        let status = "Name:\tdwell\nVmPeak:\t  900 kB\nVmHWM:\t    1024 kB\nVmRSS:\t     512 kB\n";
        assert_eq!(peak_memory(status), Some(1 << 20));
        assert_eq!(memory(status, "VmRSS:"), Some(1 << 19));
        assert_eq!(peak_memory("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_group() {
        assert_eq!(process_group("17 (a) b) S 4 99 1 0 -1"), Some(99));
        assert_eq!(process_group(""), None);
        assert_eq!(ticks("17 (a) b) S 4 99 1 0 -1 4194304 9 9 9 9 30 12 7 7 20"), Some(42));
    }

    #[test]
    fn computing_takes_processor_time() {
        let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        let begun = used();
        compute(Duration::from_millis(5));
        assert!(used() - begun >= Duration::from_millis(5));
    }

    #[test]
    fn this_process_has_used_something() {
        let usage = Usage::of(std::process::id());
        assert!(usage.cpu > Duration::ZERO && usage.memory_bytes > Some(0));
    }
}
