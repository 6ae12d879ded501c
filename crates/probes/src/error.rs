//! Errors between user space and the kernel.

use std::{borrow::Cow, error, io, iter, net::IpAddr, path::PathBuf};

use nix::libc;
use thiserror::Error;

use crate::host;

/// A failure, with what to do about it.
#[derive(Debug, Error)]
pub enum Error {
    /// There is no such interface in this network namespace.
    #[error("there is no interface '{name}' in this network namespace; there are: {}", known.join(", "))]
    NoInterface {
        /// The requested name.
        name: String,
        /// The names of the interfaces that there are.
        known: Vec<String>,
    },
    /// The kernel refused a program or a map.
    #[error("cannot load {what}: {io}{detail}; {remedy}")]
    Load {
        /// The program.
        what: &'static str,
        /// The kernel's answer.
        io: io::Error,
        /// The missing capabilities, or libbpf's first message, or nothing.
        detail: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A program could not be attached.
    #[error("cannot attach to {hook} of '{interface}': {io}; {remedy}")]
    Attach {
        /// The hook.
        hook: &'static str,
        /// The interface.
        interface: String,
        /// The kernel's answer.
        io: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A program could not be attached to a hook that does not belong to an interface.
    #[error("cannot attach to {hook}, where '{layer}' is stamped: {io}; {remedy}")]
    Hook {
        /// The hook.
        hook: &'static str,
        /// The layer that it stamps.
        layer: &'static str,
        /// The kernel's answer.
        io: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The namespaces of this process could not be read.
    #[error("cannot read /proc/self/ns: {0}; is /proc mounted?")]
    Namespace(io::Error),
    /// There is no such process.
    #[error("there is no process {0} in this PID namespace")]
    NoProcess(u32),
    /// A cgroup could not be used.
    #[error("cannot use '{}' as a cgroup: {io}; name a directory of the cgroup v2 hierarchy, as in /sys/fs/cgroup/system.slice/nginx.service", path.display())]
    Cgroup {
        /// The path.
        path: PathBuf,
        /// The kernel's answer.
        io: io::Error,
    },
    /// The kernel is too old for some programs.
    #[error("this kernel has no bpf_loop, without which it cannot load {what}: Linux 5.17 or later has it")]
    NoLoop {
        /// The programs.
        what: &'static str,
    },
    /// No hook of the requested family can be used.
    #[error(
        "this kernel allows no programs at {family} hooks, so --hooks {family} cannot be used; --hooks auto uses what there is: see `dwell doctor`"
    )]
    Family {
        /// The name of the family.
        family: &'static str,
    },
    /// A slot of another's program array could not be used.
    #[error("cannot use the slot {chain}: {io}; {remedy}")]
    Chain {
        /// The array and the slot.
        chain: String,
        /// The kernel's answer.
        io: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The kernel refused to run a program on request (BPF_PROG_TEST_RUN).
    #[error("cannot run a loaded program: {0}; `dwell doctor` shows what this kernel lacks")]
    Run(io::Error),
    /// The kernel does not account for the run time of programs.
    #[error(
        "the kernel does not count what programs cost (BPF_ENABLE_STATS, Linux 5.8, needs CAP_SYS_ADMIN): leave out --cpu-budget, and set a larger --sample-bytes"
    )]
    RunTimes,
    /// A step that the comparison of clocks needs has failed.
    #[error("cannot {operation} to compare clocks: {io}")]
    Clock {
        /// The step, a verb.
        operation: String,
        /// The kernel's answer.
        io: io::Error,
    },
    /// The next hop to an address could not be found.
    #[error(
        "cannot find the next hop to {to}: {io}; it needs a route and, in the neighbour table, the MAC address of the next hop (`ip route get {to}`, `ip neigh`)"
    )]
    NextHop {
        /// The address.
        to: IpAddr,
        /// The kernel's answer.
        io: io::Error,
    },
    /// A number is above the limit that a balancer was loaded with.
    #[error(
        "{what} {number} is above the {most} that this balancer has room for: raise the limit, or use a number from 1 to {most}"
    )]
    NoNumber {
        /// What is numbered: a VIP, a backend, or a VIP's table.
        what: &'static str,
        /// The number.
        number: u32,
        /// The limit.
        most: u32,
    },
    /// Something in bpffs could not be used.
    #[error("cannot {operation} '{}': {io}; {remedy}", path.display())]
    Pin {
        /// The operation, a verb.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's answer.
        io: io::Error,
        /// What to do.
        remedy: Cow<'static, str>,
    },
    /// A map could not be used.
    #[error("cannot {operation} the map '{map}': {io}")]
    Map {
        /// The operation, a verb: read, write, size, share.
        operation: &'static str,
        /// The map.
        map: &'static str,
        /// The kernel's answer.
        io: io::Error,
    },
}

impl Error {
    /// True if the request was wrong; false if the host cannot do it.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Error::NoInterface { .. }
                | Error::Chain { .. }
                | Error::NoNumber { .. }
                | Error::NoProcess(_)
                | Error::Cgroup { .. }
        )
    }
}

/// Extracts the kernel's answer from an error of libbpf-rs, which shows it only as text, at the end of its chain.
pub(crate) fn io_error(error: &libbpf_rs::Error) -> io::Error {
    let chain = iter::successors(Some(error as &dyn error::Error), |error| error.source());
    let deepest = chain.last().map(ToString::to_string).unwrap_or_default();
    let number = deepest
        .strip_suffix(')')
        .and_then(|text| text.rsplit_once("(os error "))
        .and_then(|(_, number)| number.parse().ok());
    match number {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other(format!("{error:#}")),
    }
}

/// What to do about the kernel's refusal to load a program or a map. `lacks_capability` is true if this process lacks
/// a capability for it.
pub(crate) fn load_remedy(io: &io::Error, lacks_capability: bool) -> &'static str {
    match io.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if lacks_capability => host::remedy_for_missing(),
        Some(libc::EPERM) => {
            "no capability is missing, so a seccomp filter, as of a container, a security module or \
             lockdown forbids it: let the filter allow bpf(2); `dwell doctor` shows the others"
        }
        Some(libc::EACCES | libc::EINVAL) => {
            "the verifier of this kernel refuses it: please report this with the output of \
             `dwell doctor`"
        }
        Some(libc::E2BIG) => {
            "too large for the verifier of this kernel, or for a table: lower --max-flows; if that \
             does not help, please report this with the output of `dwell doctor`"
        }
        Some(libc::ENOMEM) => {
            "this host, or the limit of this service, has too little memory for its maps: free some, or make them \
             smaller by --max-flows, --max-groups or the [limits] of a balancer, where the verb has them"
        }
        _ => "`dwell doctor` shows what this kernel lacks",
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::ErrorExt;

    use super::*;

    #[test]
    fn the_kernels_number_survives_any_context() {
        for number in [libc::EPERM, libc::EACCES, libc::E2BIG, libc::ENOTSUP, 524] {
            let bare = libbpf_rs::Error::from_raw_os_error(number);
            assert_eq!(io_error(&bare).raw_os_error(), Some(number));
            let wrapped = libbpf_rs::Error::from_raw_os_error(number)
                .context("failed to attach (really)")
                .context("again".to_owned());
            assert_eq!(io_error(&wrapped).raw_os_error(), Some(number));
        }
    }

    #[test]
    fn an_error_without_a_number_keeps_its_words() {
        let error = libbpf_rs::Error::from(io::Error::other("no such section"));
        let error = io_error(&error.context("opening"));
        assert_eq!(error.raw_os_error(), None);
        assert_eq!(error.to_string(), "opening: no such section");
    }

    #[test]
    fn each_refusal_has_its_own_remedy() {
        let remedy = |number, lacks| load_remedy(&io::Error::from_raw_os_error(number), lacks);
        assert!(remedy(libc::EPERM, true).contains("setcap"));
        // Without CAP_PERFMON the verifier is stricter, and says EACCES.
        assert!(remedy(libc::EACCES, true).contains("setcap"));
        assert!(remedy(libc::EPERM, false).contains("lockdown"));
        assert!(remedy(libc::EACCES, false).contains("verifier"));
        assert!(remedy(libc::EINVAL, true).contains("verifier"));
        assert!(remedy(libc::E2BIG, false).contains("too large"));
        assert!(remedy(libc::ENOMEM, false).contains("too little memory"));
        assert!(remedy(libc::ENOSYS, false).contains("dwell doctor"));
    }
}
