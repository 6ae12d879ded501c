//! How many connections the process has descriptors for.

use dwell_fleet::Limits;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors for everything but agents: the store with its log, the server that rows go to, metrics, BPF programs.
const RESERVED: u64 = 96;
/// Descriptors of an agent's connection: the stream, its copy in the registry, and the sockets that compare its clock.
const PER_CONNECTION: u64 = 5;
/// Descriptors of a connection that has not authenticated: the stream and two copies.
const PER_UNAUTHENTICATED: u64 = 3;
/// Descriptors that are of use at most.
const MOST: u64 = 65_536;

/// Raises the limit on descriptors as far as the system lets this process, and shares them out.
pub fn limits() -> Limits {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return shared_out(1024);
    };
    let wanted = hard.min(MOST).max(soft);
    let raised = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard);
    shared_out(if raised.is_ok() { wanted } else { soft })
}

/// Divides `descriptors` between connections of agents and connections that have not authenticated yet.
fn shared_out(descriptors: u64) -> Limits {
    let most = Limits::default();
    let for_agents = descriptors.saturating_sub(RESERVED);
    let unauthenticated = (for_agents / 4 / PER_UNAUTHENTICATED).clamp(1, most.unauthenticated as u64);
    let left = for_agents.saturating_sub(unauthenticated * PER_UNAUTHENTICATED);
    let connections = (left / PER_CONNECTION).clamp(1, most.connections as u64);
    Limits { connections: connections as usize, unauthenticated: unauthenticated as usize, ..most }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_take_what_is_reserved() {
        for descriptors in [256, 1024, 4096, MOST] {
            let limits = shared_out(descriptors);
            let taken =
                limits.connections as u64 * PER_CONNECTION + limits.unauthenticated as u64 * PER_UNAUTHENTICATED;
            assert!(taken + RESERVED <= descriptors, "{descriptors}: {limits:?}");
            assert!(limits.connections >= 20, "{descriptors}: {limits:?}");
        }
        assert_eq!(shared_out(MOST), Limits::default());
    }

    /// Each connection has a thread, and another one that compares the clock.
    #[test]
    fn the_unit_has_descriptors_and_threads_for_five_thousand_agents() {
        let unit = include_str!("../../../dist/systemd/dwell-collect.service");
        let limit = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.parse::<u64>().ok()).unwrap();
        let limits = shared_out(limit("LimitNOFILE="));
        assert!(limits.connections >= 5_000, "{limits:?}");
        let threads = 2 * limits.connections + limits.unauthenticated + 16;
        assert!(limit("TasksMax=") >= threads as u64, "{threads}");
    }

    #[test]
    fn the_limit_is_raised() {
        limits();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert!(soft == hard || soft >= MOST, "{soft} of {hard}");
    }
}
