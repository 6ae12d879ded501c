//! Capabilities that a thread gives up as soon as it does not need them any more.

use std::io;

use crate::sys;

/// A capability, by its number in linux/capability.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Capability {
    /// Give files to other users.
    Chown = 0,
    /// Read and write files of other users, whatever their mode.
    DacOverride = 1,
    /// Attach programs to network devices.
    NetAdmin = 12,
    /// Load and attach programs that trace the kernel.
    Perfmon = 38,
    /// Load programs; on kernels before 5.19 also to use maps.
    Bpf = 39,
}

/// Gives up all capabilities of this thread but these, for good, and for the threads and programs that it starts. It gets
/// none that it did not have. Threads that run already keep theirs.
///
/// # Errors
///
/// The system's error; then the thread may have what it had.
pub fn keep(capabilities: &[Capability]) -> io::Result<()> {
    let numbers: Vec<_> = capabilities.iter().map(|capability| *capability as u32).collect();
    sys::keep_capabilities(&numbers).map_err(|error| io::Error::from_raw_os_error(error.0))
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;

    fn status(name: &str) -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(value.trim(), 16).unwrap()
    }

    #[test]
    fn what_is_given_up_is_gone_for_the_threads_that_follow_too() {
        let before = status("CapPrm:");
        let check = || {
            keep(&[Capability::Bpf, Capability::NetAdmin]).unwrap();
            let kept = before & (1 << 39 | 1 << 12);
            let after = || ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"].map(status);
            assert_eq!(after(), [kept, kept, 0, 0]);
            assert_eq!(thread::spawn(after).join().unwrap(), [kept, kept, 0, 0]);
            assert_eq!(status("NoNewPrivs:"), 1);
            keep(&[]).unwrap();
            assert_eq!(after(), [0; 4]);
            keep(&[Capability::Bpf]).unwrap();
            assert_eq!(after(), [0; 4], "it does not come back");
        };
        thread::scope(|scope| scope.spawn(check).join().unwrap());
        assert_eq!(status("CapPrm:"), before, "other threads keep theirs");
    }
}
