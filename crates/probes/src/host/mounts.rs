//! Where a file system of the kernel is mounted, and what hides it.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use super::{Answer, Fact};
use crate::stack::{named_namespace, own_namespace};

const OWN_MOUNTS: &str = "/proc/thread-self/mountinfo";
/// Below it are the file systems that a new /sys hides.
const SYS: &str = "/sys";
/// Where programs and tables are pinned unless a configuration names another place.
const BPF: &str = "/sys/fs/bpf";

/// Whether this process has a file system of this kind: one that is among its mounts.
pub(super) fn find(kind: &str, mounts: Option<&str>) -> Answer {
    let Some(mounts) = mounts else {
        return Answer::unknown("");
    };
    let is_usual = |path: &PathBuf| kind != "bpf" || path == Path::new(BPF);
    if let Some(path) = mount_points(mounts, kind).find(is_usual) {
        return Answer::yes(path.display().to_string());
    }
    let of_first = fs::read_to_string("/proc/1/mountinfo").ok();
    match of_first.and_then(|mounts| mount_point(&mounts, kind)) {
        Some(path) if path.starts_with(SYS) => {
            let lost = match kind {
                "bpf" => {
                    ", and what is pinned in a BPF file system that is mounted there is lost when the process ends"
                }
                _ => "",
            };
            Answer {
                remedy: Some(format!(
                    "sudo nsenter --net=/run/netns/{} dwell ... instead of ip netns exec",
                    own_name().unwrap_or_else(|| "NAME".into())
                )),
                ..Answer::no(format!("hidden from this process: `ip netns exec` mounts a new /sys{lost}"))
            }
        }
        _ => match mount_point(mounts, kind).map(|path| path.display().to_string()) {
            Some(path) => Answer {
                remedy: Some(format!("{}, or `pin = \"{path}/dwell\"`", Fact::BpfFilesystem.remedy())),
                ..Answer::no(format!("mounted at {path}, and not at {BPF}"))
            },
            None => Answer::no("not mounted"),
        },
    }
}

/// The name that `ip netns` gave this process's network namespace.
pub(super) fn own_name() -> Option<String> {
    own_namespace().ok().and_then(named_namespace)
}

/// Finds where a file system of a kind is mounted first.
pub(crate) fn mount_point(mounts: &str, kind: &str) -> Option<PathBuf> {
    mount_points(mounts, kind).next()
}

/// Finds where file systems of a kind are mounted, in a list of mounts (proc_pid_mountinfo(5)).
pub fn mount_points<'a>(mounts: &'a str, kind: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    mounts.lines().filter_map(move |line| {
        let (left, right) = line.split_once(" - ")?;
        let path = left.split(' ').nth(4).filter(|_| right.split(' ').next() == Some(kind))?;
        Some(unescape(path))
    })
}

/// Undoes how the kernel writes blanks, tabs, line feeds and backslashes: a backslash and three octal digits.
fn unescape(text: &str) -> PathBuf {
    let (mut path, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('\\') {
        path.extend_from_slice(before.as_bytes());
        let byte = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(byte.unwrap_or(b'\\'));
        rest = byte.and_then(|_| after.get(3..)).unwrap_or(after);
    }
    path.extend_from_slice(rest.as_bytes());
    PathBuf::from(OsString::from_vec(path))
}

/// What to do where this process has no BPF file system; `None` if it has one.
pub(crate) fn bpf_filesystem_remedy() -> Option<String> {
    let answer = find("bpf", fs::read_to_string(OWN_MOUNTS).ok().as_deref());
    (answer.holds == Some(false)).then(|| {
        let remedy = answer.remedy.unwrap_or_else(|| Fact::BpfFilesystem.remedy().to_owned());
        format!("the BPF file system is {}: {remedy}", answer.detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bpf_file_system_elsewhere_is_not_where_pins_are() {
        let at = |path| find("bpf", Some(&format!("27 30 0:24 / {path} rw - bpf bpf rw\n")));
        assert_eq!(at(BPF).holds, Some(true));
        let elsewhere = at("/mnt/own");
        assert_eq!(elsewhere.holds, Some(false));
    }

    #[test]
    fn finds_mount_points_with_optional_fields() {
        let mounts = "24 30 0:22 / /proc rw,relatime shared:5 - proc proc rw\n\
                      25 30 0:23 / /sys/fs/cgroup/unified rw,relatime shared:6 master:1 - cgroup2 cgroup2 rw\n\
                      26 30 0:24 / /sys/fs/cgroup rw - tmpfs cgroup2 rw\n\
                      27 30 0:25 / /mnt/my\\040own\\011\\134\\303\\244 rw - bpf bpf rw\n";
        assert_eq!(mount_point(mounts, "cgroup2"), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_point(mounts, "tracefs"), None);
        assert_eq!(mount_point(mounts, "bpf"), Some("/mnt/my own\t\\ä".into()));
    }
}
