//! What the balancer's program does with a packet, without a device.

use dwell_engine::{abi, balance::Decision};

use super::{
    maps,
    plane::{ASK, OBJECT, PROGRAM, Plane, WHAT},
};
use crate::{Error, load};

/// What the program would do with a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRun {
    /// The decision, with its reason.
    pub decision: Decision,
    /// The frame as it would be sent or passed on.
    pub frame: Vec<u8>,
}

impl Plane {
    /// Returns what would happen to a frame that arrives now, by running the same code with BPF_PROG_TEST_RUN. No
    /// connection is opened, and nothing is counted.
    ///
    /// # Errors
    ///
    /// If the kernel does not load or run the program: a frame has 14 to about 3,500 bytes.
    pub fn dry_run(&mut self, frame: &[u8]) -> Result<DryRun, Error> {
        let input = abi::dwell_decision { interface: self.ingress, ..Default::default() };
        maps::write(&self.map("answer"), "answer", &[0; 4], &input)?;
        let ask = match self.ask.take() {
            Some(loaded) => loaded,
            None => load::load_more(WHAT, OBJECT, &self.object, ASK)?,
        };
        let ask = self.ask.insert(ask);
        let (_, frame) = maps::run_xdp(&load::program(ask, ASK), frame)?;
        let decision: Option<abi::dwell_decision> = maps::read(&self.map("answer"), "answer", &[0; 4])?;
        let decision = decision.unwrap_or_default();
        let decision =
            Decision::from_core(&decision).unwrap_or_else(|| unreachable!("program and user space are of one build"));
        Ok(DryRun { decision, frame })
    }

    /// Runs the program over a frame as if it had arrived (BPF_PROG_TEST_RUN): connections are opened, packets are
    /// counted. Returns the verdict of linux/bpf.h, and the frame as it would be sent or passed on.
    ///
    /// # Errors
    ///
    /// As for [`Plane::dry_run`].
    pub fn replay_packet(&mut self, frame: &[u8]) -> Result<(u32, Vec<u8>), Error> {
        maps::run_xdp(&load::program(&self.object, PROGRAM), frame)
    }
}
