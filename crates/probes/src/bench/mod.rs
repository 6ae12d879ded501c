//! Nanoseconds a packet in the kernel, by BPF_PROG_TEST_RUN. For `make bench`.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};

use crate::{
    Error,
    error::io_error,
    load,
    rtt::{Options, Probe},
};

static DRIVER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bench_driver.bpf.o"));

/// What the driver makes of the packet before each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewrite {
    /// The packet as it is.
    AsIs,
    /// TCP data of many flows whose TSvals stay: nothing to sample.
    SameTsval,
    /// TCP data with a new TSval, then the ACK that echoes it, flow by flow.
    Pairs,
}

/// The RTT program and an empty one, run over the same packets.
pub struct Bench {
    driver: Object,
    probe: Probe,
}

impl Bench {
    /// Loads the program under test.
    pub fn new(options: &Options) -> Result<Bench, Error> {
        const WHAT: &str = "the benchmark driver";
        Ok(Bench {
            driver: load::load(WHAT, load::open(WHAT, DRIVER)?)?,
            probe: Probe::load(options)?,
        })
    }

    /// Mean nanoseconds of `repeat` packets, the driver's own work included,
    /// through the RTT program or, to compare, through an empty one.
    pub fn run(
        &mut self,
        packet: &[u8],
        rewrite: Rewrite,
        flows: u32,
        repeat: u32,
        empty: bool,
    ) -> Result<u64, Error> {
        let failed = |map| {
            move |error: libbpf_rs::Error| Error::Map {
                operation: "write",
                map,
                io: io_error(&error),
            }
        };
        let target = if empty {
            load::program(&self.driver, "empty").as_fd().as_raw_fd()
        } else {
            self.probe.tc_program().as_fd().as_raw_fd()
        };
        load::map(&mut self.driver, "target")
            .update(&[0; 4], &target.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed("target"))?;
        let mut state = [0u8; 16];
        state[..4].copy_from_slice(&(rewrite as u32).to_ne_bytes());
        state[4..8].copy_from_slice(&flows.to_ne_bytes());
        load::map(&mut self.driver, ".data.bench")
            .update(&[0; 4], &state, MapFlags::ANY)
            .map_err(failed(".data.bench"))?;
        let ran = load::program(&self.driver, "drive")
            .test_run(ProgramInput {
                data_in: Some(packet),
                repeat,
                ..Default::default()
            })
            .map_err(|error| Error::Load {
                what: "a test run",
                io: io_error(&error),
                detail: String::new(),
                remedy: "`dwell doctor` tells what this kernel lacks",
            })?;
        self.probe.drain(drop)?;
        Ok(ran.duration.as_nanos() as u64)
    }

    /// The program under test, for its counters and groups.
    pub fn probe(&mut self) -> &mut Probe {
        &mut self.probe
    }
}
