//! The per-packet part run in user space.
#![allow(unsafe_code)]

use crate::{abi, response::Config};

/// What an epoch of a flow leaves behind.
pub type Epoch = abi::dwell_epoch;

/// What is remembered of one flow. In the kernel the same bytes lie in a map.
#[derive(Clone, Copy)]
pub struct Flow {
    state: abi::dwell_response_state,
    config: abi::dwell_response_config,
}

impl Flow {
    /// A flow of which nothing was seen yet.
    pub fn new(config: &Config) -> Flow {
        Flow { state: abi::dwell_response_state::default(), config: config.to_core() }
    }

    /// Steps one packet; returns the past epoch if it begins another.
    pub fn step(&mut self, arrival: &abi::dwell_arrival) -> Option<Epoch> {
        let mut ended = Epoch::default();
        // SAFETY: all four are valid, and the core keeps no pointer.
        let ends = unsafe { abi::dwell_native_response_step(&mut self.state, &self.config, arrival, &mut ended) };
        (ends != 0).then_some(ended)
    }

    /// Ends the epoch if it is over at `now_ns`; `u64::MAX` ends it in any case.
    /// None if it is not over, or was empty.
    pub fn end(&mut self, now_ns: u64) -> Option<Epoch> {
        let mut ended = Epoch::default();
        // SAFETY: as above.
        let ends = unsafe { abi::dwell_native_response_end(&mut self.state, &self.config, now_ns, &mut ended) };
        (ends != 0).then_some(ended)
    }
}

/// A duration as the edges of a mode hold it: rounded down and up.
pub fn brief_edges(ns: u64) -> (u64, u64) {
    // SAFETY: pure functions of their arguments.
    unsafe {
        (
            abi::dwell_native_float16_ns(abi::dwell_native_float16_floor(ns)),
            abi::dwell_native_float16_ns(abi::dwell_native_float16_ceil(ns)),
        )
    }
}
