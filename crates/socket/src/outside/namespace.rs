//! Network namespaces of processes, and the processes of cgroups.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
};

use nix::sched::{CloneFlags, setns};

use super::Error;

/// Runs `body` in the network namespace of a process, on a thread of its own: a netlink socket belongs to the namespace
/// of the thread that creates it.
///
/// # Errors
///
/// If the namespace cannot be entered, or as `body`.
pub(super) fn enter<T: Send>(pid: u32, body: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let inaccessible = |_: io::Error| Error::Namespace { pid };
    let file = File::open(format!("/proc/{pid}/ns/net")).map_err(inaccessible)?;
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            setns(file, CloneFlags::CLONE_NEWNET).map_err(|errno| inaccessible(errno.into()))?;
            body()
        });
        inside.join().unwrap_or_else(|_| Err(Error::Namespace { pid }))
    })
}

/// Returns the number of a process's network namespace.
///
/// # Errors
///
/// If there is no such process, or it is one of another user.
pub fn number_of(process: &str) -> io::Result<u64> {
    Ok(fs::metadata(format!("/proc/{process}/ns/net"))?.ino())
}

/// Lists the processes of cgroups and of those below them.
///
/// # Errors
///
/// If none of them is a cgroup any more.
pub fn members_of(cgroups: &[PathBuf]) -> io::Result<Vec<u32>> {
    let (mut all, mut failed) = (Vec::new(), None);
    for cgroup in cgroups {
        match members(cgroup) {
            Ok(found) => all.push(found),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all.concat()),
    }
}

/// Lists the processes of a cgroup and of those below it.
///
/// # Errors
///
/// If it is not a cgroup.
pub fn members(cgroup: &Path) -> io::Result<Vec<u32>> {
    let mut members = Vec::new();
    let mut folders = vec![cgroup.to_owned()];
    while let Some(folder) = folders.pop() {
        let listed = fs::read_to_string(folder.join("cgroup.procs"));
        match listed {
            Ok(pids) => members.extend(pids.lines().filter_map(|pid| pid.parse::<u32>().ok())),
            Err(error) if folder == cgroup => return Err(error),
            // The cgroup was removed in the meantime, or is a threaded one, whose processes are listed above.
            Err(_) => continue,
        }
        let Ok(below) = fs::read_dir(&folder) else { continue };
        let below = below.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(below.map(|entry| entry.path()));
    }
    Ok(members)
}
