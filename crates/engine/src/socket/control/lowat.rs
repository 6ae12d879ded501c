//! Makes the kernel keep the unsent part of the send buffer short: `core/socket/lowat.h`.
#![allow(unsafe_code)]

use super::{Controller, Setting, State};
use crate::abi;

/// Sets `TCP_NOTSENT_LOWAT` to the least value that does not starve the connection, but to no more than is sent within
/// the target delay. The kernel then holds the application back by readiness, and nothing sleeps.
#[derive(Debug, Clone)]
pub struct Lowat {
    target_us: u32,
    next_ns: u64,
    core: abi::dwell_lowat,
}

/// The least time between two steps, regardless of the polling interval.
const STEP_NS: u64 = 9_000_000;
/// The most bytes that the kernel puts into one piece by itself: it need not be cut for a greater limit.
const WHOLE_BYTES: u32 = 64 << 10;

impl Lowat {
    /// Creates a controller for a socket without history. Its bytes should not wait longer than the target.
    pub fn new(target_ns: u64) -> Lowat {
        Lowat {
            target_us: u32::try_from(target_ns / 1000).unwrap_or(u32::MAX),
            next_ns: 0,
            core: abi::dwell_lowat::default(),
        }
    }
}

impl Controller for Lowat {
    fn update(&mut self, state: &State<'_>) -> Setting {
        if state.reading.time_ns < self.next_ns {
            return Setting::default();
        }
        self.next_ns = state.reading.time_ns.saturating_add(STEP_NS);
        let info = &state.reading.info;
        let poll = abi::dwell_lowat_sample {
            rate: info.delivery_rate.unwrap_or_default(),
            mss: info.send_mss,
            app_limited: info.app_limited.into(),
            target_us: self.target_us,
            rtt_us: info.rtt_us,
            queue_us: info.min_rtt_us.map_or(0, |least| info.rtt_us.saturating_sub(least)),
            now_us: (state.reading.time_ns / 1000) as u32,
        };
        // SAFETY: both are whole and aligned; the core keeps no pointer.
        let bytes = unsafe { abi::dwell_lowat_next(&mut self.core, &poll) };
        if bytes == 0 {
            return Setting::default();
        }
        Setting { notsent_lowat: Some(bytes), piece_bytes: Some(piece(bytes, info.send_mss)), ..Setting::default() }
    }
}

/// Returns the size of pieces for a limit of unsent bytes: half of it, in whole segments, as the kernel wakes a writer
/// once half of the limit is free. 0 if writes need not be cut.
fn piece(lowat: u32, segment: u32) -> u32 {
    if lowat >= WHOLE_BYTES || segment == 0 {
        return 0;
    }
    (lowat / 2 / segment).max(1) * segment
}
