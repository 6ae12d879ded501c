//! What the threads of a process did: ran, waited for a processor, or waited for a disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use dwell_engine::why::Process;

use super::processes::task_state;
use crate::clock::monotonic_ns;

/// Threads of a process that are watched.
const MAX_THREADS: usize = 1024;

/// The threads of a process since the first look.
pub(super) struct Tasks {
    pid: u32,
    /// When the first look was.
    start_ns: u64,
    threads: BTreeMap<u32, Thread>,
    looks: u64,
}

/// What one thread did.
#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    first: Scheduled,
    last: Scheduled,
    /// Looks at which it waited for a disk, and those at which it slept otherwise.
    disk: u64,
    asleep: u64,
    /// Looks at which it was stopped.
    stopped: u64,
    /// Looks that found it.
    looks: u64,
}

impl Thread {
    /// Returns how much more of a time it has spent since the first look.
    fn grown(&self, of: fn(&Scheduled) -> u64) -> u64 {
        of(&self.last).saturating_sub(of(&self.first))
    }

    /// Returns the share of the time in which it waited for a disk: of what it neither ran nor waited for a processor, the
    /// share of looks. A look at a thread that is just woken finds neither.
    fn disk(&self, elapsed_ns: f64, looks: u64) -> f64 {
        if self.disk == 0 {
            return 0.0;
        }
        let alive = self.looks as f64 / looks.max(1) as f64;
        let ready_ns = self.grown(|it| it.ran_ns) + self.grown(|it| it.waited_ns);
        let blocked = (alive - ready_ns as f64 / elapsed_ns).max(0.0);
        blocked * self.disk as f64 / (self.disk + self.asleep + self.stopped) as f64
    }
}

/// Returns the share of the time in which threads waited for a disk: of those that take turns, as at a lock or in a pool, in sum.
fn disk<'a>(threads: impl Iterator<Item = &'a Thread> + Clone, elapsed_ns: f64, looks: u64) -> f64 {
    /// Fewer looks may be chance.
    const LEAST: u64 = 4;
    let is_chance = threads.clone().map(|thread| thread.disk).sum::<u64>() < LEAST;
    if is_chance { 0.0 } else { threads.map(|thread| thread.disk(elapsed_ns, looks)).sum::<f64>().min(1.0) }
}

/// Whether the thread that waited longest for a processor never slept, and another one did between what it ran.
fn may_be_background<'a>(threads: impl Iterator<Item = &'a Thread> + Clone) -> bool {
    let longest = threads.clone().max_by_key(|thread| thread.grown(|it| it.waited_ns));
    let serves = |thread: &Thread| thread.asleep > 0 && thread.grown(|it| it.ran_ns) > 0;
    longest.is_some_and(|longest| longest.asleep == 0) && threads.into_iter().any(serves)
}

/// Times of a thread as in /proc/PID/schedstat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Scheduled {
    ran_ns: u64,
    waited_ns: u64,
}

impl Tasks {
    pub(super) fn new(pid: u32) -> Tasks {
        Tasks { pid, start_ns: 0, threads: BTreeMap::new(), looks: 0 }
    }

    /// Reads the times and states of all threads. Those of a process that has ended stay as they were.
    pub(super) fn look(&mut self) {
        let Ok(folder) = fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            return;
        };
        self.looks += 1;
        let is_first = self.threads.is_empty();
        if is_first {
            self.start_ns = monotonic_ns();
        }
        let alive: BTreeSet<u32> = folder.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok()).collect();
        if self.threads.len() == MAX_THREADS {
            self.threads.retain(|thread, _| alive.contains(thread));
        }
        for thread in alive.into_iter().take(MAX_THREADS) {
            let path = format!("/proc/{}/task/{thread}", self.pid);
            let state = task_state(&format!("{path}/stat"));
            let Some(now) = fs::read_to_string(format!("{path}/schedstat")).ok().and_then(|text| scheduled(&text))
            else {
                continue;
            };
            if self.threads.len() < MAX_THREADS || self.threads.contains_key(&thread) {
                // A thread that began meanwhile has done nothing before.
                let first = if is_first { now } else { Scheduled::default() };
                let thread = self.threads.entry(thread).or_insert(Thread { first, ..Thread::default() });
                thread.last = now;
                thread.looks += 1;
                thread.disk += u64::from(state == Some('D'));
                thread.asleep += u64::from(state == Some('S'));
                thread.stopped += u64::from(matches!(state, Some('T' | 't')));
            }
        }
    }

    /// Returns the shares of the time since the first look; `None` if the kernel counts none, or nothing was seen.
    pub(super) fn figures(&self) -> Option<Process> {
        let elapsed = monotonic_ns().saturating_sub(self.start_ns) as f64;
        if self.threads.is_empty() || self.looks < 2 || elapsed <= 0.0 {
            return None;
        }
        let most = |of: fn(&Scheduled) -> u64| {
            let longest = self.threads.values().map(|it| it.grown(of)).max();
            (longest.unwrap_or(0) as f64 / elapsed).min(1.0)
        };
        Some(Process {
            busiest_thread: most(|it| it.ran_ns),
            waiting_thread: most(|it| it.waited_ns),
            may_be_background: may_be_background(self.threads.values()),
            disk: disk(self.threads.values(), elapsed, self.looks),
            stopped: self.threads.values().map(|it| it.stopped).max().unwrap_or(0) as f64 / self.looks as f64,
            look_interval_ns: elapsed / (self.looks - 1) as f64,
        })
    }
}

fn scheduled(text: &str) -> Option<Scheduled> {
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
    Some(Scheduled { ran_ns: fields.next()??, waited_ns: fields.next()?? })
}

#[cfg(test)]
mod tests {
    use dwell_testbed::harness::eventually;

    use super::*;

    #[test]
    fn times_of_a_thread_are_read_and_damaged_ones_are_not() {
        assert_eq!(scheduled("12 34 5\n"), Some(Scheduled { ran_ns: 12, waited_ns: 34 }));
        assert_eq!(scheduled("12\n"), None);
        assert_eq!(scheduled("x 1 2"), None);
    }

    #[test]
    fn what_a_thread_neither_ran_nor_was_ready_for_is_the_disks_as_often_as_looks_say() {
        let last = Scheduled { ran_ns: 20, waited_ns: 10 };
        let thread = |disk, asleep| Thread { last, disk, asleep, looks: 50, ..Thread::default() };
        let share = |threads: &[Thread], looks| disk(threads.iter(), 100.0, looks);
        assert!((share(&[thread(10, 0)], 50) - 0.7).abs() < 1e-9, "it sleeps for nothing else");
        assert!((share(&[thread(10, 30)], 50) - 0.175).abs() < 1e-9);
        assert!((share(&[thread(10, 0)], 100) - 0.2).abs() < 1e-9, "it lived for half of the time");
        assert_eq!(share(&[thread(3, 0)], 50), 0.0, "three looks are chance");
        assert!((share(&[thread(10, 30); 4], 50) - 0.7).abs() < 1e-9, "they take turns");
        assert_eq!(share(&[thread(30, 0); 4], 50), 1.0);
    }

    #[test]
    fn a_thread_that_never_sleeps_may_be_one_that_nobody_waits_for_if_another_one_serves() {
        let thread =
            |waited_ns, asleep| Thread { last: Scheduled { ran_ns: 5, waited_ns }, asleep, ..Thread::default() };
        let is_doubtful = |threads: &[Thread]| may_be_background(threads.iter());
        assert!(is_doubtful(&[thread(90, 0), thread(1, 40)]));
        assert!(!is_doubtful(&[thread(90, 3), thread(1, 40)]), "it sleeps between two requests");
        assert!(!is_doubtful(&[thread(90, 0)]), "it is the only one");
        assert!(
            !is_doubtful(&[thread(90, 0), Thread { asleep: 40, ..Thread::default() }]),
            "the other one does nothing"
        );
    }

    #[test]
    fn what_was_before_the_first_look_does_not_count() {
        let mut own = Tasks::new(std::process::id());
        std::thread::sleep(std::time::Duration::from_millis(100));
        let before_ns = monotonic_ns();
        (0..3).for_each(|_| own.look());
        let figures = own.figures().unwrap();
        let elapsed_ns = (monotonic_ns() - before_ns) as f64;
        assert!(figures.look_interval_ns > 0.0 && figures.look_interval_ns * 2.0 <= elapsed_ns, "{figures:?}");
    }

    #[test]
    fn a_process_that_is_stopped_is_told() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let stopped = |child: u32| {
            let mut tasks = Tasks::new(child);
            (0..2).for_each(|_| tasks.look());
            tasks.figures().unwrap().stopped
        };
        assert_eq!(stopped(child.id()), 0.0);
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::SIGSTOP).unwrap();
        // The signal arrives a moment later.
        eventually("it has stopped", || task_state(&format!("/proc/{}/stat", child.id())) == Some('T'));
        assert_eq!(stopped(child.id()), 1.0);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_thread_that_computes_is_busy() {
        let mut own = Tasks::new(std::process::id());
        own.look();
        let begun = crate::clock::thread_cpu_ns();
        while crate::clock::thread_cpu_ns() - begun < 20_000_000 {}
        own.look();
        let figures = own.figures().unwrap();
        assert!(figures.busiest_thread > 0.0 && figures.busiest_thread <= 1.0, "{figures:?}");
    }
}
