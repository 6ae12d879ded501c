//! Control groups that limit the processor time of threads of this process.
//!
//! On version 2 of control groups, the process moves into a group of its own at the root, whose threaded children have
//! limits. On version 1, which some hosts have for the controller `cpu`, groups hold threads anyway.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::unistd::gettid;
use serde::{Deserialize, Serialize};

use crate::{Error, ProcessId, Result};

/// The time in which a group may use its share, after which its threads wait for the next period: the kernel's default,
/// which container engines keep.
const PERIOD: Duration = Duration::from_millis(100);

/// The groups of this process. They are removed when this is dropped, by when their threads must have ended.
#[derive(Debug)]
pub struct CpuGroups {
    folder: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Version {
    One,
    /// With the group from which the process came.
    Two(PathBuf),
}

/// A group whose threads share a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuGroup {
    folder: PathBuf,
    is_v2: bool,
}

impl CpuGroups {
    /// Creates a group for this process, and removes those of killed processes.
    ///
    /// # Errors
    ///
    /// If this host has no controller `cpu` that this process may use.
    pub fn create() -> Result<CpuGroups> {
        let (root, version) = find_controller()?;
        remove_abandoned(&root);
        let own = ProcessId::own()?;
        let groups = CpuGroups { folder: root.join(format!("dwell-lab-{}-{}", own.pid, own.start_ticks)), version };
        fs::create_dir(&groups.folder).map_err(no_controller(&groups.folder))?;
        if groups.version != Version::One {
            fs::write(root.join("cgroup.subtree_control"), "+cpu").map_err(no_controller(&root))?;
        }
        groups.go_first(&groups.folder)?;
        if groups.version != Version::One {
            write(&groups.folder.join("cgroup.procs"), &own.pid.to_string())?;
        }
        Ok(groups)
    }

    /// Adds a group with a limit: a share of one processor.
    pub fn add(&self, name: &str, share: f64) -> Result<CpuGroup> {
        let is_v2 = self.version != Version::One;
        let group = CpuGroup { folder: self.folder.join(name), is_v2 };
        fs::create_dir(&group.folder).map_err(Error::file("make", &group.folder))?;
        if is_v2 {
            write(&group.folder.join("cgroup.type"), "threaded")?;
            write(&self.folder.join("cgroup.subtree_control"), "+cpu")?;
        }
        self.go_first(&group.folder)?;
        group.limit(share)?;
        Ok(group)
    }

    /// Gives a group the greatest weight, so that other work on this host does not lower what its limit allows.
    fn go_first(&self, folder: &Path) -> Result<()> {
        match self.version {
            Version::One => write(&folder.join("cpu.shares"), "262144"),
            Version::Two(_) => write(&folder.join("cpu.weight"), "10000"),
        }
    }
}

impl Drop for CpuGroups {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next experiment.
        let children = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for child in children.filter(|child| child.path().is_dir()) {
            let _ = fs::remove_dir(child.path());
        }
        if let Version::Two(home) = &self.version {
            let _ = fs::write(home.join("cgroup.procs"), std::process::id().to_string());
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

impl CpuGroup {
    /// Changes the limit: a share of one processor.
    pub fn limit(&self, share: f64) -> Result<()> {
        let period = PERIOD.as_micros();
        // The kernel refuses less than a millisecond.
        let quota = ((period as f64 * share) as u128).max(1_000);
        match self.is_v2 {
            true => write(&self.folder.join("cpu.max"), &format!("{quota} {period}")),
            false => {
                write(&self.folder.join("cpu.cfs_period_us"), &period.to_string())?;
                write(&self.folder.join("cpu.cfs_quota_us"), &quota.to_string())
            }
        }
    }

    /// Moves the calling thread, and those that it starts from now on, into the group. The thread must not be a
    /// real-time one, to which no limit applies.
    pub fn join(&self) -> Result<()> {
        let file = if self.is_v2 { "cgroup.threads" } else { "tasks" };
        write(&self.folder.join(file), &gettid().to_string())
    }
}

/// Returns the hierarchy with the controller `cpu`.
fn find_controller() -> Result<(PathBuf, Version)> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(Error::io("read the mounts"))?;
    let own = fs::read_to_string("/proc/self/cgroup").map_err(Error::io("read the groups of this process"))?;
    let lists_cpu = |root: &Path| {
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        controllers.split_whitespace().any(|name| name == "cpu")
    };
    find_in(&mounts, &own, lists_cpu)
        .ok_or_else(|| no_controller(Path::new("/sys/fs/cgroup"))(io::ErrorKind::NotFound.into()))
}

fn find_in(mounts: &str, own: &str, lists_cpu: impl Fn(&Path) -> bool) -> Option<(PathBuf, Version)> {
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((PathBuf::from(words.next()?), words.next()?, words.next()?))
    });
    mounted.into_iter().find_map(|(root, kind, options)| match kind {
        "cgroup2" if lists_cpu(&root) => {
            let home = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
            Some((root.clone(), Version::Two(root.join(home))))
        }
        "cgroup" if options.split(',').any(|option| option == "cpu") => Some((root, Version::One)),
        _ => None,
    })
}

fn no_controller(folder: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let folder = folder.display().to_string();
    move |error| Error::Host {
        wanted: "limit the processor time of servers",
        fact: format!("there is no control group with the controller cpu at {folder} that can be written ({error})"),
        remedy: "run as root on a host, or in a container, with a writable cgroup file system (cgroup v2 with cpu)",
    }
}

/// Removes the groups of processes that were killed.
fn remove_abandoned(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix("dwell-lab-").and_then(|process| {
            let (pid, start) = process.split_once('-')?;
            Some(ProcessId { pid: pid.parse().ok()?, start_ticks: start.parse().ok()? })
        });
        if process.is_some_and(|process| !process.is_alive()) {
            drop(CpuGroups { folder: entry.path(), version: Version::One });
        }
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(Error::io(format!("write {text} to {}", file.display())))
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Instant};

    use nix::{
        sys::time::TimeValLike,
        time::{ClockId, clock_gettime},
    };

    use super::*;
    use crate::skip;

    #[test]
    fn the_controller_is_found_on_hosts_of_both_versions() {
        let v2 = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let own = "0::/user.slice/session-1.scope\n";
        let home = PathBuf::from("/sys/fs/cgroup/user.slice/session-1.scope");
        assert_eq!(find_in(v2, own, |_| true), Some(("/sys/fs/cgroup".into(), Version::Two(home))));
        let both = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/cpuacct cgroup rw,cpuacct 0 0\n\
                    cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n";
        assert_eq!(find_in(both, "0::/\n", |_| false), Some(("/sys/fs/cgroup/cpu".into(), Version::One)));
        assert_eq!(find_in(v2, own, |_| false), None);
    }

    #[test]
    fn root_a_thread_gets_no_more_than_the_share_of_its_group() {
        if skip::lacks_root() {
            return;
        }
        let groups = match CpuGroups::create() {
            Ok(groups) => groups,
            Err(error) => return skip::skip(error),
        };
        let group = groups.add("one", 0.2).unwrap();
        let used = thread::spawn(move || {
            group.join().unwrap();
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(2) {}
            clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().num_milliseconds()
        });
        let used = used.join().unwrap();
        // 0.4 s, and what a period has at the beginning and at the end.
        assert!((50..=450).contains(&used), "{used} ms");
        let folder = groups.folder.clone();
        drop(groups);
        assert!(!folder.exists());
    }
}
