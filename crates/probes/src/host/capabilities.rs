//! The capabilities of this thread.

use std::fs;

/// The remedy for a missing capability.
pub(crate) const GRANT: &str = "use sudo, or once: sudo setcap \
     cap_bpf,cap_net_admin,cap_perfmon+ep \"$(command -v dwell)\"";

/// The remedy where a user namespace is in the way: what is granted there does not count.
pub(crate) const OUTSIDE: &str = "run it outside of the user namespace (a container: without one), as root";

/// Whether capabilities of this process are those of the host; `None` if /proc does not show it.
pub(super) fn is_in_initial_user_namespace() -> Option<bool> {
    let map = fs::read_to_string("/proc/thread-self/uid_map").ok()?;
    Some(map.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
}

/// What grants this process the capabilities that it lacks.
pub(crate) fn remedy_for_missing() -> &'static str {
    if is_in_initial_user_namespace() == Some(false) { OUTSIDE } else { GRANT }
}

/// The capabilities for loading programs for network hooks that this process lacks, and what grants them; `None` if it has all.
pub fn lacking_to_load() -> Option<(Vec<&'static str>, &'static str)> {
    let lacking = Capability::missing(&Capability::TO_LOAD);
    (!lacking.is_empty()).then(|| (lacking, remedy_for_missing()))
}

/// A capability that some verb needs, by its number in capabilities(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    NetAdmin = 12,
    NetRaw = 13,
    SysPtrace = 19,
    SysAdmin = 21,
    Perfmon = 38,
    Bpf = 39,
}

impl Capability {
    /// The capabilities that loading a program for a network hook needs.
    pub(crate) const TO_LOAD: [Capability; 3] = [Capability::Bpf, Capability::NetAdmin, Capability::Perfmon];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::NetRaw => "CAP_NET_RAW",
            Capability::SysPtrace => "CAP_SYS_PTRACE",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::Bpf => "CAP_BPF",
        }
    }

    /// Whether the capability is effective in this thread; `None` if /proc does not show it.
    pub(crate) fn held(self) -> Option<bool> {
        Some(effective()? >> self as u32 & 1 == 1)
    }

    /// The names of those among `wanted` that this thread is known to lack. For bpf(2), CAP_SYS_ADMIN stands for each of
    /// them. In a user namespace all are lacking, whichever this thread holds there.
    pub(crate) fn missing(wanted: &[Capability]) -> Vec<&'static str> {
        if is_in_initial_user_namespace() == Some(false) {
            return vec!["capabilities of the initial user namespace"];
        }
        if Capability::SysAdmin.held() == Some(true) {
            return Vec::new();
        }
        wanted
            .iter()
            .filter(|capability| capability.held() == Some(false))
            .map(|capability| capability.name())
            .collect()
    }
}

fn effective() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let hexadecimal = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hexadecimal.trim(), 16).ok()
}
