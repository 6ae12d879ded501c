//! Nanoseconds per packet in the kernel, measured with BPF_PROG_TEST_RUN.

use std::os::fd::AsFd;

use anyhow::{Context, Result, bail};
use dwell_engine::rtt::{Counter, Counters};
use dwell_probes::{Hook, response, rtt};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};

use super::kernel_objects;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/driver.bpf.o"));

/// The maximum number of packets per run. The ring buffer holds some 35,000 samples, and nobody reads it during a run:
/// a full one would make the program look cheap.
pub const MOST_PACKETS: u32 = 60_000;

/// How the driver changes the packet before each run. The numbers are the same as in driver.bpf.c.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewrite {
    /// The packet stays as it is.
    AsIs,
    /// Data of many flows without samples: TSval and sequence number stay the same.
    Same,
    /// Data with new TSvals or sequence numbers, without answers.
    Stream,
    /// Data with new TSvals or sequence numbers, each followed by the ACK that answers it.
    Pairs,
}

/// The program under test.
pub enum Tested {
    /// Passive round-trip times.
    Rtt(rtt::Probe),
    /// Response latency.
    Response(response::Probe),
}

impl Tested {
    fn discard(&mut self) -> Result<()> {
        match self {
            Tested::Rtt(probe) => probe.drain(drop)?,
            Tested::Response(probe) => probe.drain(drop)?,
        }
        Ok(())
    }

    fn counters(&mut self) -> Result<Counters> {
        Ok(match self {
            Tested::Rtt(probe) => probe.counters()?,
            Tested::Response(probe) => probe.counters()?,
        })
    }
}

/// The program under test and an empty one, run over the same packets.
pub struct Driver {
    object: Object,
    tested: Tested,
    xdp: bool,
    rewrite: Rewrite,
    flows: u32,
    /// The numbers of packets that the program under test has seen, the empty one, and that of a peer.
    seen: [u64; 3],
}

impl Driver {
    /// Prepares to run a program, which is loaded for `ingress`.
    pub fn new(tested: Tested, ingress: Hook, rewrite: Rewrite, flows: u32) -> Result<Driver> {
        Ok(Driver { object: load()?, tested, xdp: ingress == Hook::Xdp, rewrite, flows, seen: [0; 3] })
    }

    /// Returns the mean nanoseconds per packet over `packets` packets, including the driver's own work.
    pub fn program_ns(&mut self, packet: &[u8], packets: u32) -> Result<f64> {
        let name = if self.xdp { "observe_xdp" } else { "observe_tc" };
        let target = kernel_objects::program(name)?;
        self.run(packet, packets, kernel_objects::number_of(&target), 0)
    }

    /// Returns the mean nanoseconds per packet of a peer's program.
    pub fn peer_ns(&mut self, packet: &[u8], packets: u32, peer: &impl AsFd) -> Result<f64> {
        self.run(packet, packets, kernel_objects::number_of(peer), 2)
    }

    /// Returns the mean nanoseconds per packet of a program that does nothing.
    pub fn empty_ns(&mut self, packet: &[u8], packets: u32) -> Result<f64> {
        let name = if self.xdp { "empty_xdp" } else { "empty_tc" };
        let target = kernel_objects::number_of(&program(&self.object, name)?);
        self.run(packet, packets, target, 1)
    }

    fn run(&mut self, packet: &[u8], packets: u32, target: [u8; 4], which: usize) -> Result<f64> {
        let (targets, driver) = if self.xdp { ("target_xdp", "drive_xdp") } else { ("target_tc", "drive_tc") };
        map(&self.object, targets)?.update(&[0; 4], &target, MapFlags::ANY)?;
        let mut state = [0u8; 16];
        state[..4].copy_from_slice(&(self.rewrite as u32).to_ne_bytes());
        state[4..8].copy_from_slice(&self.flows.to_ne_bytes());
        let (mut left, mut total_ns) = (packets, 0.0);
        while left > 0 {
            let repeat = left.min(MOST_PACKETS);
            state[8..].copy_from_slice(&self.seen[which].to_ne_bytes());
            map(&self.object, ".data.state")?.update(&[0; 4], &state, MapFlags::ANY)?;
            let ran = program(&self.object, driver)?.test_run(ProgramInput {
                data_in: Some(packet),
                repeat,
                ..Default::default()
            })?;
            if matches!(ran.return_value.cast_signed(), -2 | 0) {
                bail!("the driver did not reach the program under test");
            }
            self.tested.discard()?;
            self.seen[which] += u64::from(repeat);
            total_ns += ran.duration.as_nanos() as f64 * f64::from(repeat);
            left -= repeat;
        }
        Ok(total_ns / f64::from(packets))
    }

    /// Returns the counters of the program under test, which show whether it did what the row says.
    pub fn counters(&mut self) -> Result<Counters> {
        self.tested.counters()
    }

    /// Returns the share of its packets that one of its counters counted.
    pub fn share(&mut self, counter: Counter) -> Result<f64> {
        let counters = self.counters()?;
        Ok(counters.get(counter) as f64 / counters.get(Counter::Packets) as f64)
    }
}

/// Loads the programs of the driver.
pub fn load() -> Result<Object> {
    let opened = ObjectBuilder::default().open_memory(OBJECT);
    opened.and_then(libbpf_rs::OpenObject::load).context("cannot load the benchmark's driver")
}

/// The driver's program with this name.
pub fn program<'a>(object: &'a Object, name: &str) -> Result<libbpf_rs::ProgramMut<'a>> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .with_context(|| format!("the driver has no program {name}"))
}

fn map<'a>(object: &'a Object, name: &str) -> Result<libbpf_rs::Map<'a>> {
    object.maps().find(|map| map.name() == name).with_context(|| format!("the driver has no map {name}"))
}
