//! Passive round-trip times in the kernel.

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use dwell_engine::{
    abi,
    measure::{Event, Method, Tunnel},
    rtt::{Aggregate, Config, Counter, Counters, Figures, Group, GroupKey, Prefix},
};
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    Error, Hook, TcHookKind, load,
    vantage::{Spec, Vantage, failed, jiffy_ns, read_percpu},
};

static TC_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rtt_tc.bpf.o.z"));
static XDP_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rtt_xdp.bpf.o.z"));
/// Maps that the programs at both hooks share.
const SHARED_MAPS: [&str; 13] = [
    "pool",
    "flows",
    "cold",
    "matchers",
    "stamps",
    "groups",
    "histograms",
    "freed",
    "prefixes",
    GENERATION,
    GROUPS_USED,
    FREED_TAKEN,
    FREED_GIVEN,
];
const GENERATION: &str = ".data.generation";
const GROUPS_USED: &str = ".data.groups_used";
const FREED_TAKEN: &str = ".data.freed_taken";
const FREED_GIVEN: &str = ".data.freed_given";

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
    /// Reports each sample, and watches incoming packets at tc.
    pub fn new(config: Config) -> Options {
        Options { config, report: true, aggregate: None, ingress: Hook::TcIngress, tc: TcHookKind::Auto, replay: false }
    }

    fn to_program(&self) -> abi::dwell_rtt_program {
        let none = Aggregate { max_groups: 1, ..Aggregate::default() };
        let aggregate = self.aggregate.as_ref().unwrap_or(&none);
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
            prefixes: (aggregate.prefixes.iter().len() > 0).into(),
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
    /// When each group had its last sample, by its number.
    last_ns: HashMap<u32, u64>,
    /// The numbers that were given back to the programs so far: `freed_given` of the kernel.
    given: u32,
    /// The groups freed so far.
    freed: u64,
}

impl Probe {
    /// Loads the programs. Nothing is attached yet.
    pub fn load(options: &Options) -> Result<Probe, Error> {
        let program = options.to_program();
        let slots = options.config.slots();
        let spec = Spec {
            what: "the RTT program",
            tc: TC_OBJECT,
            xdp: XDP_OBJECT,
            ingress: options.ingress,
            chain: None,
            kind: options.tc,
            program: program.as_bytes(),
            buckets: options.config.buckets(),
            slots,
            ring_bytes: 1 << 22,
            event_bytes: 512,
            sizes: &[
                ("flows", slots),
                ("cold", slots),
                ("matchers", slots),
                ("stamps", options.config.stamps() / abi::DWELL_STAMP_WAYS),
                ("groups", program.max_groups),
                ("histograms", 2 * program.max_groups),
                ("freed", program.max_groups),
                ("prefixes", options.aggregate.as_ref().map_or(0, |it| it.prefixes.iter().len() as u32).max(1)),
            ],
            shared: &SHARED_MAPS,
        };
        let groups =
            Groups { aggregate: options.aggregate.clone(), generation: 0, last_ns: HashMap::new(), given: 0, freed: 0 };
        let mut probe: Probe = Vantage::open(&spec, Event::from_kernel, groups)?;
        if let Some(aggregate) = &options.aggregate {
            let prefixes = probe.map("prefixes");
            for prefix in aggregate.prefixes.iter() {
                let (key, value) = prefix.to_core();
                prefixes
                    .update(key.as_bytes(), value.as_bytes(), MapFlags::ANY)
                    .map_err(failed("write", "prefixes"))?;
            }
        }
        Ok(probe)
    }

    /// Ends an interval. Returns the groups that had samples in it, and the keys of those that are freed because they had
    /// none for too long. Programs that run meanwhile count in the other half of the histograms.
    pub fn take_groups(&mut self, now_ns: u64) -> Result<(Vec<Group>, Vec<GroupKey>), Error> {
        let Some(aggregate) = self.extension.aggregate.clone() else {
            return Ok((Vec::new(), Vec::new()));
        };
        let past = self.extension.generation;
        let mut unheld = self.numbers_in_use(&aggregate)?;
        self.extension.generation = load::flip(&self.map(GENERATION), past)?;

        let known = self.known_groups();
        let mut other = self.take_figures(0, past, &aggregate)?;
        // Programs that took a number before the flip have ended. It has no group if that was freed in the last interval,
        // or if another CPU made the group first.
        for (_, index) in &known {
            unheld.remove(index);
        }
        for &index in &unheld {
            other.merge(&self.take_figures(index, past, &aggregate)?);
        }
        self.give_back(unheld, &aggregate)?;
        let (mut with_samples, mut freed) = (Vec::new(), Vec::new());
        for (raw, index) in known {
            let Some(key) = group_key(&raw, &aggregate) else {
                continue;
            };
            let figures = self.take_figures(index, past, &aggregate)?;
            let last_ns = self.extension.last_ns.entry(index).or_insert(now_ns);
            if figures.histogram.count() > 0 {
                *last_ns = now_ns;
                with_samples.push(Group { key: Some(key), figures });
            } else if now_ns.saturating_sub(*last_ns) >= aggregate.idle_ns {
                self.extension.last_ns.remove(&index);
                self.map("groups").delete(&raw).map_err(failed("delete from", "groups"))?;
                freed.push(key);
            }
        }
        self.extension.freed += freed.len() as u64;
        with_samples.sort_by_key(|group| group.key);
        if other.histogram.count() > 0 {
            with_samples.insert(0, Group { key: None, figures: other });
        }
        Ok((with_samples, freed))
    }

    /// Returns what was counted so far, in the kernel and here.
    pub fn all_counters(&mut self) -> Result<Counters, Error> {
        let freed = self.extension.freed;
        Ok(self.counters()?.plus(Counter::GroupsFreed, freed))
    }

    /// Returns the groups of the kernel: the bytes of each key, and its number.
    fn known_groups(&mut self) -> Vec<(Vec<u8>, u32)> {
        let groups = self.map("groups");
        let index = |key: &[u8]| {
            let index = groups.lookup(key, MapFlags::ANY).ok()??;
            Some(u32::from_ne_bytes(index.try_into().ok()?))
        };
        groups.keys().filter_map(|key| index(&key).map(|index| (key, index))).collect()
    }

    /// Reads and clears what was counted in one half of a group.
    fn take_figures(&mut self, index: u32, half: u32, aggregate: &Aggregate) -> Result<Figures, Error> {
        let histograms = self.map("histograms");
        let index = index + half * aggregate.max_groups.max(1);
        let mut figures = Figures::default();
        for bytes in read_percpu(&histograms, "histograms", index)? {
            if let Ok((cpu, _)) = abi::dwell_group::ref_from_prefix(&bytes) {
                figures.merge_kernel(cpu);
            }
        }
        if figures.histogram.count() > 0 {
            let empty = vec![vec![0; size_of::<abi::dwell_group>()]; cpus()?];
            histograms
                .update_percpu(&index.to_ne_bytes(), &empty, MapFlags::ANY)
                .map_err(failed("write", "histograms"))?;
        }
        Ok(figures)
    }

    /// Returns the numbers of groups that programs have taken and that were not given back since.
    fn numbers_in_use(&mut self, aggregate: &Aggregate) -> Result<BTreeSet<u32>, Error> {
        let max_groups = aggregate.max_groups.max(1);
        let used = self.word(GROUPS_USED, 0)?.min(max_groups);
        let mut numbers: BTreeSet<u32> = (1..used).collect();
        let mut taken = self.word(FREED_TAKEN, 0)?;
        while taken != self.extension.given {
            numbers.remove(&self.word("freed", taken % max_groups)?);
            taken = taken.wrapping_add(1);
        }
        Ok(numbers)
    }

    /// Reads an entry of a map of 32-bit words.
    fn word(&mut self, map: &'static str, index: u32) -> Result<u32, Error> {
        let word = self.map(map).lookup(&index.to_ne_bytes(), MapFlags::ANY).map_err(failed("read", map))?;
        Ok(word
            .and_then(|bytes| u32::read_from_bytes(&bytes).ok())
            .expect("the map has words, and as many as its users"))
    }

    /// Lets programs use numbers of groups for other keys.
    fn give_back(&mut self, numbers: BTreeSet<u32>, aggregate: &Aggregate) -> Result<(), Error> {
        if numbers.is_empty() {
            return Ok(());
        }
        for index in numbers {
            let at = self.extension.given % aggregate.max_groups.max(1);
            let freed = self.map("freed");
            freed.update(&at.to_ne_bytes(), &index.to_ne_bytes(), MapFlags::ANY).map_err(failed("write", "freed"))?;
            self.extension.given = self.extension.given.wrapping_add(1);
        }
        let given = self.extension.given.to_ne_bytes();
        self.map(FREED_GIVEN).update(&[0; 4], &given, MapFlags::ANY).map_err(failed("write", "freed_given"))
    }
}

/// Decodes the key of a group; `None` of bytes that the kernel did not write.
fn group_key(bytes: &[u8], aggregate: &Aggregate) -> Option<GroupKey> {
    let raw = abi::dwell_group_key::read_from_bytes(bytes).ok()?;
    let address =
        Ipv6Addr::from(<[u8; 16]>::try_from(raw.prefix.as_bytes()).expect("an address is 16 bytes")).to_canonical();
    let length = match raw.listed {
        0 if address.is_ipv4() => aggregate.prefix4,
        0 => aggregate.prefix6,
        // A prefix above ::ffff:0:0/96 has an IPv4 address in it, but is not an IPv4 prefix.
        more if address.is_ipv4() => (more - 1).checked_sub(96)?,
        more => more - 1,
    };
    Some(GroupKey {
        interface: raw.interface,
        tunnel: Tunnel(raw.tunnel),
        method: *Method::ALL.get(usize::from(raw.method))?,
        prefix: Prefix { address, bits: length },
    })
}

fn cpus() -> Result<usize, Error> {
    libbpf_rs::num_possible_cpus().map_err(failed("size", "histograms"))
}

#[cfg(test)]
mod tests {
    use dwell_testbed::skip::lacks_root;
    use etherparse::PacketBuilder;

    use super::*;

    /// An echo request to each of these hosts and its reply, in the kernel.
    fn ping(probe: &mut Probe, hosts: std::ops::RangeInclusive<u8>, at_ns: u64) {
        for host in hosts {
            let ends = [[10, 0, 0, 1], [10, 0, 1, host]];
            for (is_reply, time_ns) in [(0, at_ns), (1, at_ns + 1_000_000)] {
                let link = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(ends[is_reply], ends[1 - is_reply], 64);
                let echo = match is_reply {
                    0 => link.icmpv4_echo_request(7, 1),
                    _ => link.icmpv4_echo_reply(7, 1),
                };
                let mut packet = Vec::new();
                echo.write(&mut packet, &[0; 56]).unwrap();
                probe.replay_packet(&packet, time_ns).unwrap();
            }
        }
    }

    #[test]
    fn root_numbers_of_groups_that_a_race_has_lost_come_back() {
        if lacks_root() {
            return;
        }
        const SECOND: u64 = 1_000_000_000;
        let aggregate = Aggregate { max_groups: 4, prefix4: 32, idle_ns: SECOND, ..Aggregate::default() };
        let options = Options::new(Config { methods: vec![Method::Icmp], ..Config::default() });
        let options = Options { report: false, replay: true, aggregate: Some(aggregate), ..options };
        let mut probe = Probe::load(&options).unwrap();
        // What is left where two CPUs make one group at the same moment: the slower one has taken a number for nothing.
        let lose = |probe: &mut Probe, map, numbers: u32| {
            let after = probe.word(map, 0).unwrap() + numbers;
            probe.map(map).update(&[0; 4], &after.to_ne_bytes(), MapFlags::ANY).unwrap();
        };
        let take = |probe: &mut Probe, at: u64| {
            let (groups, freed) = probe.take_groups(at * SECOND).unwrap();
            (groups.iter().filter(|group| group.key.is_some()).count(), freed.len())
        };
        lose(&mut probe, GROUPS_USED, 2);
        assert_eq!(take(&mut probe, 0), (0, 0));
        ping(&mut probe, 1..=3, SECOND);
        assert_eq!(take(&mut probe, 1), (3, 0), "numbers that were never used");

        assert_eq!(take(&mut probe, 3), (0, 3));
        assert_eq!(take(&mut probe, 4), (0, 0));
        lose(&mut probe, FREED_TAKEN, 2);
        assert_eq!(take(&mut probe, 5), (0, 0));
        ping(&mut probe, 4..=6, 5 * SECOND);
        assert_eq!(take(&mut probe, 6), (3, 0), "numbers that were freed before");
        let counters = probe.all_counters().unwrap();
        assert_eq!([Counter::AggregateOther, Counter::GroupsFreed].map(|it| counters.get(it)), [0, 3]);
    }
}
