//! The clocks of this host, in nanoseconds, and the boot that they belong to.

use std::{fs, io};

pub use crate::sys::{monotonic_ns, process_cpu_ns, realtime_ns, thread_cpu_ns};

/// Unix time less CLOCK_MONOTONIC, now: NTP moves them apart.
pub fn unix_offset_ns() -> i64 {
    realtime_ns().cast_signed().wrapping_sub(monotonic_ns().cast_signed())
}

/// The random identifier that the kernel drew when it booted: CLOCK_MONOTONIC starts anew with each. An error names the
/// file.
pub fn boot_id() -> io::Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let boot = fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot read {path}: {error}")))?;
    Ok(boot.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_clocks_advance_and_realtime_is_unix_time() {
        let (monotonic, cpu) = (monotonic_ns(), thread_cpu_ns());
        assert!(monotonic > 0 && cpu > 0);
        assert!(monotonic_ns() >= monotonic && thread_cpu_ns() >= cpu);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        assert!(unix.abs_diff(realtime_ns().into()) < 1_000_000_000);
    }
}
