//! Where the BPF file system is mounted, and what hides it.

use std::fs;

use super::{Answer, Fact, probe::mount_point};
use crate::stack::{named_namespace, own_namespace};

const OWN_MOUNTS: &str = "/proc/thread-self/mountinfo";

/// Whether this process has a BPF file system: one that is among its mounts.
pub(super) fn find(mounts: Option<&str>) -> Answer {
    let Some(mounts) = mounts else {
        return Answer::unknown("");
    };
    if let Some(path) = mount_point(mounts, "bpf") {
        return Answer::yes(path.display().to_string());
    }
    let of_first = fs::read_to_string("/proc/1/mountinfo").ok();
    match of_first.and_then(|mounts| mount_point(&mounts, "bpf")) {
        None => Answer::no("not mounted"),
        Some(_) => {
            let name = own_namespace().ok().and_then(named_namespace).unwrap_or_else(|| "NAME".into());
            Answer {
                remedy: Some(format!("sudo nsenter --net=/run/netns/{name} dwell ... instead of ip netns exec")),
                ..Answer::no(
                    "hidden from this process: `ip netns exec` mounts a new /sys, and what is pinned in a BPF file \
                     system that is mounted there is lost when the process ends",
                )
            }
        }
    }
}

/// What to do where this process has no BPF file system; `None` if it has one.
pub(crate) fn remedy() -> Option<String> {
    let answer = find(fs::read_to_string(OWN_MOUNTS).ok().as_deref());
    (answer.holds == Some(false)).then(|| {
        let remedy = answer.remedy.unwrap_or_else(|| Fact::BpfFilesystem.remedy().to_owned());
        format!("the BPF file system is {}: {remedy}", answer.detail)
    })
}
