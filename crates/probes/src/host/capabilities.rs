//! The privileges of this thread.

use std::fs;

/// What to do where one is missing.
pub(crate) const GRANT: &str = "use sudo, or once: sudo setcap \
     cap_bpf,cap_net_admin,cap_perfmon+ep \"$(command -v dwell)\"";

/// A capability that some verb wants (capabilities(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    NetAdmin = 12,
    SysAdmin = 21,
    SysResource = 24,
    Perfmon = 38,
    Bpf = 39,
}

impl Capability {
    /// What programs at a network hook need to be loaded.
    pub(crate) const TO_LOAD: [Capability; 3] = [Capability::Bpf, Capability::NetAdmin, Capability::Perfmon];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::SysResource => "CAP_SYS_RESOURCE",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::Bpf => "CAP_BPF",
        }
    }

    /// Whether this thread has it in effect.
    pub(crate) fn held(self) -> Option<bool> {
        Some(effective()? >> self as u32 & 1 == 1)
    }

    /// Those among `wanted` that this thread is known to lack. For bpf(2),
    /// CAP_SYS_ADMIN stands for each of them.
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
