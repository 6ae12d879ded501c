//! Passive round-trip times in the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dwell_engine::{
    abi,
    histogram::Histogram,
    measure::{Event, Method},
    rtt::{Aggregate, Config, Group, GroupKey, Prefix},
};
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    Error, Hook, TcHookKind, load,
    vantage::{Spec, Vantage, failed, jiffy_ns, read_percpu},
};

static TC_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rtt_tc.bpf.o"));
static XDP_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rtt_xdp.bpf.o"));
/// Maps that the programs at both hooks share.
const SHARED_MAPS: [&str; 7] = ["flows", "cold", "stamps", "groups", "histograms", GENERATION, GROUPS_USED];
const GENERATION: &str = ".data.generation";
const GROUPS_USED: &str = ".data.groups_used";

/// What to load, and how to attach it.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// What to measure.
    pub config: Config,
    /// Report each sample to user space.
    pub report: bool,
    /// Count samples in the kernel.
    pub aggregate: Option<Aggregate>,
    /// The hook that watches incoming packets.
    pub ingress: Hook,
    /// How to attach at tc.
    pub tc: TcHookKind,
    /// Take the time from the packet, for [`Probe::replay_packet`] only.
    pub replay: bool,
}

impl Options {
    fn to_program(&self) -> abi::dwell_rtt_program {
        let aggregate = self.aggregate.unwrap_or(Aggregate { prefix4: 0, prefix6: 0, max_groups: 1 });
        let mask4 = Prefix::of(Ipv4Addr::BROADCAST.into(), aggregate.prefix4).address;
        let mask6 = Prefix::of(Ipv6Addr::from(u128::MAX).into(), aggregate.prefix6).address;
        abi::dwell_rtt_program {
            config: self.config.to_core(),
            prefix6_mask: abi::dwell_address::read_from_bytes(&octets(mask6)).expect("16 bytes"),
            prefix4_mask: u32::read_from_bytes(&octets(mask4)).expect("4 bytes"),
            max_groups: aggregate.max_groups.max(1),
            jiffy_ns: jiffy_ns(),
            report: self.report.into(),
            aggregate: self.aggregate.is_some().into(),
            replay: self.replay.into(),
            ..Default::default()
        }
    }
}

/// The bytes of an address in network byte order.
fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The loaded programs. Dropping it detaches and unloads everything.
///
/// A full ring buffer loses events: it has room for some 43,000 (4 MiB).
pub type Probe = Vantage<Event, Groups>;

/// The histograms that the programs count samples in.
pub struct Groups {
    /// How samples are grouped; `None` if they are not counted in the kernel.
    aggregate: Option<Aggregate>,
    /// Which half of the histograms the programs count in, 0 or 1.
    generation: u32,
}

impl Probe {
    /// Loads the programs. Nothing is attached yet.
    pub fn load(options: &Options) -> Result<Probe, Error> {
        let program = options.to_program();
        let buckets = options.config.buckets();
        let slots = buckets * abi::DWELL_WAYS;
        let spec = Spec {
            what: "the RTT program",
            tc: TC_OBJECT,
            xdp: XDP_OBJECT,
            ingress: options.ingress,
            chain: None,
            kind: options.tc,
            program: program.as_bytes(),
            buckets,
            ring_bytes: 1 << 22,
            event_bytes: 512,
            sizes: &[
                ("flows", slots),
                ("cold", slots),
                ("stamps", options.config.stamps()),
                ("groups", program.max_groups),
                ("histograms", 2 * program.max_groups),
            ],
            shared: &SHARED_MAPS,
        };
        Vantage::open(&spec, Event::from_kernel, Groups { aggregate: options.aggregate, generation: 0 })
    }

    /// Ends an interval, and returns the groups that had samples in it. Programs that run meanwhile count in the other
    /// half of the histograms.
    pub fn take_groups(&mut self) -> Result<Vec<Group>, Error> {
        let Some(aggregate) = self.extension.aggregate else {
            return Ok(Vec::new());
        };
        let past = self.extension.generation;
        self.extension.generation = load::flip(&self.map(GENERATION), past)?;

        let keys = self.map("groups");
        let mut groups = vec![(0, None)];
        for key in keys.keys() {
            let Ok(Some(index)) = keys.lookup(&key, MapFlags::ANY) else {
                continue;
            };
            let Ok(index) = <[u8; 4]>::try_from(index) else {
                continue;
            };
            let Some(key) = group_key(&key, &aggregate) else {
                continue;
            };
            groups.push((u32::from_ne_bytes(index), Some(key)));
        }
        let histograms = self.map("histograms");
        let empty = vec![vec![0; size_of::<abi::dwell_histogram>()]; cpus()?];
        let mut with_samples = Vec::new();
        for (index, key) in groups {
            let index = index + past * aggregate.max_groups.max(1);
            let mut histogram = Histogram::default();
            for bytes in read_percpu(&histograms, "histograms", index)? {
                if let Ok((cpu, _)) = abi::dwell_histogram::ref_from_prefix(&bytes) {
                    histogram.merge_kernel(cpu);
                }
            }
            if histogram.count() == 0 {
                continue;
            }
            histograms
                .update_percpu(&index.to_ne_bytes(), &empty, MapFlags::ANY)
                .map_err(failed("write", "histograms"))?;
            with_samples.push(Group { key, histogram });
        }
        with_samples.sort_by_key(|group| group.key);
        Ok(with_samples)
    }
}

/// Decodes the key of a group; `None` of bytes that the kernel did not write.
fn group_key(bytes: &[u8], aggregate: &Aggregate) -> Option<GroupKey> {
    let raw = abi::dwell_group_key::read_from_bytes(bytes).ok()?;
    let address =
        Ipv6Addr::from(<[u8; 16]>::try_from(raw.prefix.as_bytes()).expect("an address is 16 bytes")).to_canonical();
    let length = if address.is_ipv4() { aggregate.prefix4 } else { aggregate.prefix6 };
    Some(GroupKey {
        interface: raw.interface,
        method: *Method::ALL.get(usize::from(raw.method))?,
        prefix: Prefix { address, bits: length },
    })
}

fn cpus() -> Result<usize, Error> {
    libbpf_rs::num_possible_cpus().map_err(failed("size", "histograms"))
}
