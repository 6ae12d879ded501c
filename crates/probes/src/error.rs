//! What can go wrong between user space and the kernel.

use std::io;

use thiserror::Error;

/// A failure, with what to do about it.
#[derive(Debug, Error)]
pub enum Error {
    /// There is no such interface here.
    #[error("there is no interface '{name}' in this network namespace; there are: {}", known.join(", "))]
    NoInterface {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The kernel did not take a program or a map.
    #[error("cannot load {what}: {io}{detail}; {remedy}")]
    Load {
        /// Which program.
        what: &'static str,
        /// The kernel's answer.
        io: io::Error,
        /// The last thing that libbpf said about it, or nothing.
        detail: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A program could not be attached.
    #[error("cannot attach to {hook} of '{interface}': {io}; {remedy}")]
    Attach {
        /// Which hook.
        hook: &'static str,
        /// Of which interface.
        interface: String,
        /// The kernel's answer.
        io: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A map could not be read or written.
    #[error("cannot {operation} the map '{map}': {io}")]
    Map {
        /// Read, write.
        operation: &'static str,
        /// Which map.
        map: &'static str,
        /// The kernel's answer.
        io: io::Error,
    },
}

impl Error {
    /// True if the request was wrong, and not the host unable.
    pub fn is_usage(&self) -> bool {
        matches!(self, Error::NoInterface { .. })
    }
}

pub(crate) fn io_error(error: &libbpf_rs::Error) -> io::Error {
    use libbpf_rs::ErrorKind;

    io::Error::from(match error.kind() {
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
        ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
        ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
        _ => return io::Error::other(error.to_string()),
    })
}

/// What to do about the kernel's refusal to load a program.
pub(crate) fn load_remedy(io: &io::Error) -> &'static str {
    match io.kind() {
        io::ErrorKind::PermissionDenied => {
            "it needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON: run as root, or grant them with \
             `setcap cap_bpf,cap_net_admin,cap_perfmon+ep` on the executable"
        }
        io::ErrorKind::OutOfMemory => "lower --max-flows or --max-groups",
        _ => "`dwell doctor` tells what this kernel lacks",
    }
}
