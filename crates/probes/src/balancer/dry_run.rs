//! What the balancer's program does with a packet, without a device.

use std::{
    mem,
    panic::resume_unwind,
    thread::{self, JoinHandle},
};

use dwell_engine::{abi, balance::Decision};
use libbpf_rs::Object;

use super::{
    maps,
    plane::{OBJECT, PROGRAM, Plane, WHAT},
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

/// The program that decides about a packet without changing anything.
pub(super) const ASK: &str = "ask";

/// What has become of that program, which the kernel takes nearly as long to verify as the balancer's own.
#[derive(Default)]
pub(super) enum Ask {
    #[default]
    Missing,
    Loading(JoinHandle<Result<Object, Error>>),
    Loaded(Object),
}

impl Plane {
    /// Loads the program of [`Plane::dry_run`] in a thread of its own, so that the first call need not wait for the kernel to
    /// verify it. Where that cannot start, the first call loads it.
    pub fn prepare_dry_run(&mut self) {
        let Ok(maps) = load::handles(&self.object) else { return };
        let load = move || load::load_more(WHAT, OBJECT, &maps, ASK);
        if let Ok(thread) = thread::Builder::new().name("verify".into()).spawn(load) {
            self.ask = Ask::Loading(thread);
        }
    }

    /// Returns the program of [`Plane::dry_run`], after it was loaded.
    fn ask(&mut self) -> Result<&Object, Error> {
        let loaded = match mem::take(&mut self.ask) {
            Ask::Missing => load::load_more(WHAT, OBJECT, &load::handles(&self.object)?, ASK)?,
            Ask::Loading(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic))?,
            Ask::Loaded(loaded) => loaded,
        };
        self.ask = Ask::Loaded(loaded);
        match &self.ask {
            Ask::Loaded(loaded) => Ok(loaded),
            _ => unreachable!("it was loaded"),
        }
    }

    /// Returns what would happen to a frame that arrives now, by running the same code with BPF_PROG_TEST_RUN. No
    /// connection is opened, and nothing is counted.
    ///
    /// # Errors
    ///
    /// If the kernel does not load or run the program: a frame has 14 to about 3,500 bytes.
    pub fn dry_run(&mut self, frame: &[u8]) -> Result<DryRun, Error> {
        let input = abi::dwell_decision { interface: self.ingress, ..Default::default() };
        maps::write(&self.map("answer"), "answer", &[0; 4], &input)?;
        let (_, frame) = maps::run_xdp(&load::program(self.ask()?, ASK), frame)?;
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
