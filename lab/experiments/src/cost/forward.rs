//! Runs a balancer on packets of many connections, with BPF_PROG_TEST_RUN.

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, OpenObject, ProgramInput};

use super::kernel_objects;

static DRIVER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forward.bpf.o"));

/// The loaded driver of forward.bpf.c.
pub struct Driven {
    driver: Object,
    /// The number of connections.
    flows: u32,
    /// The number of bytes that the balancer under test prepends.
    grown: u32,
    /// How far TCP's sequence and acknowledgement numbers advance from packet to packet of a connection.
    steps: [u32; 2],
    /// The number of packets so far, which determines the connection of the next one.
    pub count: u64,
}

impl Driven {
    /// # Errors
    ///
    /// If the kernel refuses it.
    pub fn load(flows: u32, grown: u32, steps: [u32; 2]) -> Result<Driven> {
        let driver = ObjectBuilder::default()
            .open_memory(DRIVER)
            .and_then(OpenObject::load)
            .context("cannot load the benchmark's driver")?;
        Ok(Driven { driver, flows, grown, steps, count: 0 })
    }

    /// Returns the number of a program that does nothing.
    ///
    /// # Errors
    ///
    /// If the driver does not have it.
    pub fn nothing(&self) -> Result<[u8; 4]> {
        Ok(kernel_objects::number_of(&self.program("nothing")?))
    }

    fn program(&self, name: &str) -> Result<libbpf_rs::ProgramMut<'_>> {
        self.driver
            .progs_mut()
            .find(|program| program.name() == name)
            .with_context(|| format!("the driver has no program {name}"))
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>> {
        self.driver.maps().find(|map| map.name() == name).with_context(|| format!("the driver has no map {name}"))
    }

    /// Returns the mean nanoseconds per packet. The target prepends this many bytes to each packet.
    ///
    /// # Errors
    ///
    /// If a map or program cannot be used, or the target was not reached.
    pub fn run(&mut self, packet: &[u8], target: [u8; 4], packets: u32, grown: u32) -> Result<f64> {
        debug_assert!(grown == self.grown || grown == 0);
        self.map("target")?.update(&[0; 4], &target, MapFlags::ANY)?;
        // as struct state of forward.bpf.c
        let mut state = [0u8; 32];
        state[..4].copy_from_slice(&self.flows.to_ne_bytes());
        state[4..8].copy_from_slice(&grown.to_ne_bytes());
        state[12..16].copy_from_slice(&7919u32.to_ne_bytes());
        state[16..24].copy_from_slice(&self.count.to_ne_bytes());
        state[24..28].copy_from_slice(&self.steps[0].to_ne_bytes());
        state[28..].copy_from_slice(&self.steps[1].to_ne_bytes());
        self.map(".data.state")?.update(&[0; 4], &state, MapFlags::ANY)?;
        let ran = self.program("drive")?.test_run(ProgramInput {
            data_in: Some(packet),
            repeat: packets,
            ..Default::default()
        })?;
        if ran.return_value == 0 {
            bail!("the driver did not reach the program under test");
        }
        self.count += u64::from(packets);
        Ok(ran.duration.as_nanos() as f64)
    }
}
