//! What devices do with the frames of XDP programs: counts of those that they refused, and test frames that show whether
//! a device takes any.

use std::collections::BTreeMap;

use dwell_engine::{abi, balance::NextHop};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ProgramInput};
use zerocopy::{FromBytes, IntoBytes};

use super::maps;
use crate::{Error, error::io_error, load, stack::own_namespace, vantage::failed};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/balancer_transmit.bpf.o.z"));

const WHAT: &str = "the programs that count refused frames";
const COUNTS: &str = "transmits";
/// Those that count; the last sends test frames.
const PROGRAMS: [&str; 4] = ["sent_back", "not_sent_back", "redirected", "not_redirected"];
const SEND_TEST: &str = "send_test";
/// linux/bpf.h: the frames of a test run really leave. Since Linux 5.18.
const LIVE_FRAMES: u32 = 1 << 1;
/// The EtherType of test frames: for local experiments (IEEE 802), so that no host takes them for anything.
const TEST_ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// The number of test frames that a device has to refuse: its ring may be full for a moment.
const TEST_FRAMES: u32 = 3;

/// The frames that XDP programs gave to a device since it is watched. Test frames that it refused are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransmitCounts {
    /// Frames that the driver took, where it reports that.
    pub taken: u64,
    /// Frames that were sent back where they arrived, and that the driver refused.
    pub refused_tx: u64,
    /// Frames that were redirected to the device, and that it refused.
    pub refused_redirect: u64,
}

impl TransmitCounts {
    /// The number of refused frames.
    pub fn refused(&self) -> u64 {
        self.refused_tx + self.refused_redirect
    }
}

/// Whether a device takes frames of XDP programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It took a test frame.
    Taken,
    /// It refused all test frames, for this reason if it gave one.
    Refused(Option<i32>),
}

/// Programs that watch devices of this network namespace. Dropping it ends that.
pub struct Transmits {
    object: Object,
    _links: Vec<Link>,
    /// The test frames that devices have refused, by the index of the device.
    refused_tests: BTreeMap<u32, u64>,
}

impl Transmits {
    /// Loads and attaches the programs. No device is watched yet.
    ///
    /// # Errors
    ///
    /// If the kernel lacks the tracepoints or its types, or this process the privileges.
    pub fn start() -> Result<Transmits, Error> {
        let mut object = load::open(WHAT, OBJECT)?;
        let network = own_namespace().map_err(|io| Error::Map { operation: "configure", map: COUNTS, io })?;
        load::configure(&mut object, |_| None, &[(".rodata.network", &network.to_ne_bytes())])?;
        let object = load::load(WHAT, object)?;
        let attach = |name: &&str| {
            load::program(&object, name).attach().map_err(|error| Error::Attach {
                hook: "the tracepoints",
                interface: "xdp".into(),
                io: io_error(&error),
                remedy: "`dwell doctor` shows what this kernel lacks",
            })
        };
        let links = PROGRAMS.iter().map(attach).collect::<Result<_, Error>>()?;
        Ok(Transmits { object, _links: links, refused_tests: BTreeMap::new() })
    }

    /// Starts to watch a device, by its index.
    ///
    /// # Errors
    ///
    /// If too many devices are watched.
    pub fn watch(&mut self, device: u32) -> Result<(), Error> {
        self.refused_tests.remove(&device);
        let map = load::map(&mut self.object, COUNTS);
        let zeros = abi::dwell_transmit::default();
        let cpus = libbpf_rs::num_possible_cpus().map_err(failed("size", COUNTS))?;
        let values = vec![zeros.as_bytes().to_vec(); cpus];
        map.update_percpu(&device.to_ne_bytes(), &values, MapFlags::ANY).map_err(failed("write", COUNTS))
    }

    /// Stops watching a device.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn forget(&mut self, device: u32) -> Result<(), Error> {
        maps::delete(&load::map(&mut self.object, COUNTS), COUNTS, &device.to_ne_bytes())
    }

    /// Returns the counts of a device; zeros if it is not watched.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn counts(&mut self, device: u32) -> Result<TransmitCounts, Error> {
        let mut counts = TransmitCounts::default();
        for cpu in self.by_cpu(device)? {
            counts.taken += cpu.taken;
            counts.refused_tx += cpu.refused_tx;
            counts.refused_redirect += cpu.refused_redirect;
        }
        let tests = self.refused_tests.get(&device).copied().unwrap_or(0);
        counts.refused_redirect = counts.refused_redirect.saturating_sub(tests);
        Ok(counts)
    }

    /// Returns what each CPU has counted of a device, test frames included; nothing if it is not watched.
    fn by_cpu(&mut self, device: u32) -> Result<Vec<abi::dwell_transmit>, Error> {
        let map = load::map(&mut self.object, COUNTS);
        let cpus = map.lookup_percpu(&device.to_ne_bytes(), MapFlags::ANY).map_err(failed("read", COUNTS))?;
        let read = |bytes: &Vec<u8>| abi::dwell_transmit::read_from_prefix(bytes).ok().map(|(counts, _)| counts);
        Ok(cpus.unwrap_or_default().iter().filter_map(read).collect())
    }

    /// Redirects frames without content to a next hop, until the driver of its device takes one. The device has to be
    /// watched. `None` if the kernel cannot send test frames, or the driver does not report what it takes.
    ///
    /// # Errors
    ///
    /// If the maps cannot be used.
    pub fn test(&mut self, hop: &NextHop) -> Result<Option<Delivery>, Error> {
        let device = hop.interface;
        maps::write(&load::map(&mut self.object, "target"), "target", &[0; 4], &device)?;
        let before = self.by_cpu(device)?;
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&hop.destination);
        frame[6..12].copy_from_slice(&hop.source);
        frame[12..14].copy_from_slice(&TEST_ETHERTYPE);
        for _ in 0..TEST_FRAMES {
            let so_far = self.by_cpu(device)?;
            let input = ProgramInput { data_in: Some(&frame), flags: LIVE_FRAMES, repeat: 1, ..Default::default() };
            if load::program(&self.object, SEND_TEST).test_run(input).is_err() {
                return Ok(None);
            }
            let now = self.by_cpu(device)?;
            if now.iter().zip(&so_far).any(|(now, so_far)| now.taken > so_far.taken) {
                return Ok(Some(Delivery::Taken));
            }
            if refusal(&so_far, &now).is_some() {
                *self.refused_tests.entry(device).or_default() += 1;
            }
        }
        Ok(refusal(&before, &self.by_cpu(device)?).map(Delivery::Refused))
    }
}

/// Returns the errno of a redirected frame that was refused between two readings of each CPU's counts, if it was
/// reported; none at all if no frame was refused. Errors of CPUs that refused none in between are older.
fn refusal(before: &[abi::dwell_transmit], after: &[abi::dwell_transmit]) -> Option<Option<i32>> {
    let mut cpus = before.iter().zip(after);
    let (_, refusing) = cpus.find(|(before, after)| after.refused_redirect > before.refused_redirect)?;
    Some((refusing.error != 0).then_some(-refusing.error))
}
