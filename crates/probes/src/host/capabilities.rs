//! The capabilities of this thread.

use std::fs;

/// The remedy for a missing capability.
pub(crate) const GRANT: &str = "use sudo, or once: sudo setcap \
     cap_bpf,cap_net_admin,cap_perfmon+ep \"$(command -v dwell)\"";

/// A capability that some verb needs, by its number in capabilities(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    NetAdmin = 12,
    NetRaw = 13,
    SysAdmin = 21,
    SysResource = 24,
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
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::SysResource => "CAP_SYS_RESOURCE",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::Bpf => "CAP_BPF",
        }
    }

    /// Whether the capability is effective in this thread; `None` if /proc does not show it.
    pub(crate) fn held(self) -> Option<bool> {
        Some(effective()? >> self as u32 & 1 == 1)
    }

    /// The names of those among `wanted` that this thread is known to lack. For bpf(2), CAP_SYS_ADMIN stands for each of
    /// them.
    pub(crate) fn missing(wanted: &[Capability]) -> Vec<&'static str> {
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
