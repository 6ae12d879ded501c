//! Passive round-trip times in the kernel.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd,
    rc::Rc,
};

use dwell_engine::{
    abi,
    histogram::Histogram,
    measure::{Event, Method},
    rtt::{Aggregate, Config, Counters, Group, GroupKey, Prefix},
};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, Object, ProgramInput, RingBuffer, RingBufferBuilder,
};
use nix::time::{ClockId, clock_getres};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    Error, Hook, Interface, TcHookKind,
    attach::{Attachment, attach},
    error::io_error,
    load,
};

const TC: &str = "the RTT program for tc";
const XDP: &str = "the RTT program for XDP";
static TC_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rtt_tc.bpf.o"));
static XDP_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rtt_xdp.bpf.o"));
/// Maps that both programs use: one table, whichever hook saw the packet.
const SHARED_MAPS: [&str; 10] = [
    "buckets",
    "flows",
    "memories",
    "stamps",
    "counters",
    "events",
    "groups",
    "histograms",
    GENERATION,
    GROUPS_USED,
];
/// Buckets whose flow events are sure to fit into the ring buffer: less than
/// half of it.
const SWEPT_AT_ONCE: u32 = 4096;
const GENERATION: &str = ".data.generation";
const GROUPS_USED: &str = ".data.groups_used";

/// What to load.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// What to measure.
    pub config: Config,
    /// Deliver each sample to user space.
    pub report: bool,
    /// Count samples in the kernel.
    pub aggregate: Option<Aggregate>,
    /// Where to watch packets that come in.
    pub ingress: Hook,
    /// How to attach at tc.
    pub tc: TcHookKind,
    /// Packets bring their time with them: for `replay_packet` only.
    pub replay: bool,
}

impl Options {
    fn to_program(&self) -> abi::dwell_rtt_program {
        let aggregate = self.aggregate.unwrap_or(Aggregate {
            prefix4: 0,
            prefix6: 0,
            max_groups: 1,
        });
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

/// In network byte order.
fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The loaded program. Dropping it detaches and unloads everything.
pub struct Probe {
    options: Options,
    attachments: Vec<Attachment>,
    ring: RingBuffer<'static>,
    arrived: Rc<RefCell<Vec<Event>>>,
    unreadable: Rc<RefCell<u64>>,
    tc: Object,
    xdp: Option<Object>,
    generation: u32,
}

impl Probe {
    /// Loads the programs. Nothing is attached yet.
    pub fn load(options: &Options) -> Result<Probe, Error> {
        let mut tc = load_object(TC, TC_OBJECT, options, None)?;
        let xdp = (options.ingress == Hook::Xdp)
            .then(|| load_object(XDP, XDP_OBJECT, options, Some(&mut tc)))
            .transpose()?;
        let arrived = Rc::new(RefCell::new(Vec::new()));
        let unreadable = Rc::new(RefCell::new(0));
        let (queue, strange) = (Rc::clone(&arrived), Rc::clone(&unreadable));
        let events = load::map(&mut tc, "events");
        let mut builder = RingBufferBuilder::new();
        let ring_error = |error: libbpf_rs::Error| Error::Map {
            operation: "read",
            map: "events",
            io: io_error(&error),
        };
        builder
            .add(&events, move |bytes| {
                match Event::from_kernel(bytes) {
                    Some(event) => queue.borrow_mut().push(event),
                    None => *strange.borrow_mut() += 1,
                }
                0
            })
            .map_err(ring_error)?;
        let ring = builder.build().map_err(ring_error)?;
        Ok(Probe {
            options: options.clone(),
            attachments: Vec::new(),
            ring,
            arrived,
            unreadable,
            tc,
            xdp,
            generation: 0,
        })
    }

    /// Watches both directions of an interface; of loopback one, as its
    /// packets pass twice.
    pub fn attach(&mut self, interface: &Interface) -> Result<(), Error> {
        let name = if interface.has_link_header() {
            "observe_tc"
        } else {
            "observe_tc_raw"
        };
        let program = load::program(&self.tc, name);
        let ingress = match &self.xdp {
            Some(xdp) => attach(
                &load::program(xdp, "observe_xdp"),
                interface,
                Hook::Xdp,
                self.options.tc,
            )?,
            None => attach(&program, interface, Hook::TcIngress, self.options.tc)?,
        };
        self.attachments.push(ingress);
        if !interface.is_loopback() {
            self.attachments.push(attach(
                &program,
                interface,
                Hook::TcEgress,
                self.options.tc,
            )?);
        }
        Ok(())
    }

    /// Stops watching. What was measured can still be read.
    pub fn detach(&mut self) {
        self.attachments.clear();
    }

    /// Hands on the events that have arrived, in the order of the kernel's
    /// ring buffer. The kernel wakes nobody: call it often enough that the
    /// ring (4 MiB, some 43,000 events) does not fill.
    pub fn drain(&mut self, mut emit: impl FnMut(Event)) -> Result<(), Error> {
        self.consume()?;
        self.arrived.borrow_mut().drain(..).for_each(&mut emit);
        Ok(())
    }

    fn consume(&self) -> Result<(), Error> {
        self.ring.consume().map_err(|error| Error::Map {
            operation: "read",
            map: "events",
            io: io_error(&error),
        })
    }

    /// What was counted so far, over all CPUs.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        let cpus = read_percpu(&load::map(&mut self.tc, "counters"), "counters", 0)?;
        Ok(Counters::sum(
            cpus.iter()
                .filter_map(|bytes| abi::dwell_counters::read_from_prefix(bytes).ok())
                .map(|(counters, _)| counters)
                .collect::<Vec<_>>()
                .iter(),
        ))
    }

    /// Ends an interval: the groups that had samples in it. Programs that run
    /// meanwhile count into the other half of the histograms.
    pub fn take_groups(&mut self) -> Result<Vec<Group>, Error> {
        let Some(aggregate) = self.options.aggregate else {
            return Ok(Vec::new());
        };
        let past = self.generation;
        let write_error = |map| {
            move |error: libbpf_rs::Error| Error::Map {
                operation: "write",
                map,
                io: io_error(&error),
            }
        };
        load::map(&mut self.tc, GENERATION)
            .update(&[0; 4], &(1 - past).to_ne_bytes(), MapFlags::ANY)
            .map_err(write_error(GENERATION))?;
        self.generation = 1 - past;
        load::wait_for_running_programs();

        let keys = load::map(&mut self.tc, "groups");
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
        let histograms = load::map(&mut self.tc, "histograms");
        let empty = vec![vec![0; size_of::<abi::dwell_histogram>()]; cpus()?];
        let mut taken = Vec::new();
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
                .map_err(write_error("histograms"))?;
            taken.push(Group { key, histogram });
        }
        taken.sort_by_key(|group| group.key);
        Ok(taken)
    }

    /// Places in the flow table.
    pub fn places(&self) -> u64 {
        u64::from(self.options.config.buckets() * abi::DWELL_WAYS)
    }

    /// How often each program ran and for how many nanoseconds, if the kernel
    /// keeps count (sysctl kernel.bpf_stats_enabled).
    pub fn run_times(&self) -> Vec<(&'static str, u64, u64)> {
        let tc = ["observe_tc", "observe_tc_raw"].map(|name| (name, Some(&self.tc)));
        tc.into_iter()
            .chain([("observe_xdp", self.xdp.as_ref())])
            .filter_map(|(name, object)| {
                let (runs, ns) = load::run_time(&load::program(object?, name))?;
                (runs > 0).then_some((name, runs, ns))
            })
            .collect()
    }

    /// Closes idle flows, so that those who follow flow events hear of it.
    pub fn sweep(&mut self) -> Result<(), Error> {
        self.sweep_all(abi::DWELL_CLOSE_IDLE)
    }

    /// Closes all flows: the run is over.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.sweep_all(abi::DWELL_CLOSE_END)
    }

    fn sweep_all(&mut self, reason: u32) -> Result<(), Error> {
        for first in (0..self.options.config.buckets()).step_by(SWEPT_AT_ONCE as usize) {
            self.consume()?;
            let buckets = SWEPT_AT_ONCE.min(self.options.config.buckets() - first);
            let mut context = [0; SK_BUFF_BYTES];
            for (at, word) in [
                (SK_BUFF_MARK, reason),
                (SK_BUFF_CB, first),
                (SK_BUFF_CB + 4, buckets),
            ] {
                context[at..at + 4].copy_from_slice(&word.to_ne_bytes());
            }
            self.run("sweep", &[0; 64], &mut context)?;
        }
        Ok(())
    }

    /// Events that could not be read: always 0 unless kernel and user space
    /// come from different builds.
    pub fn unreadable_events(&self) -> u64 {
        *self.unreadable.borrow()
    }

    /// Runs the program over one packet as if it had passed at `time_ns`
    /// (BPF_PROG_TEST_RUN). The program must be loaded with `replay`.
    pub fn replay_packet(&mut self, data: &[u8], time_ns: u64) -> Result<(), Error> {
        let mut context = [0; SK_BUFF_BYTES];
        context[SK_BUFF_TSTAMP..SK_BUFF_TSTAMP + 8].copy_from_slice(&time_ns.to_ne_bytes());
        self.run("observe_tc", data, &mut context)
    }

    fn run(&mut self, name: &str, data: &[u8], context: &mut [u8]) -> Result<(), Error> {
        load::program(&self.tc, name)
            .test_run(ProgramInput {
                data_in: Some(data),
                context_in: Some(context),
                ..Default::default()
            })
            .map(drop)
            .map_err(|error| Error::Run(io_error(&error)))
    }
}

/// The kernel's tick: the resolution of its coarse clock. 0 if it does not say.
fn jiffy_ns() -> u32 {
    clock_getres(ClockId::CLOCK_MONOTONIC_COARSE)
        .ok()
        .filter(|tick| tick.tv_sec() == 0)
        .and_then(|tick| u32::try_from(tick.tv_nsec()).ok())
        .unwrap_or(0)
}

/// Size of struct __sk_buff, and where its fields are (linux/bpf.h, stable ABI).
const SK_BUFF_BYTES: usize = 192;
const SK_BUFF_MARK: usize = 8;
const SK_BUFF_CB: usize = 48;
const SK_BUFF_TSTAMP: usize = 152;

fn load_object(
    what: &'static str,
    bytes: &[u8],
    options: &Options,
    shared: Option<&mut Object>,
) -> Result<Object, Error> {
    let mut object = load::open(what, bytes)?;
    let program = options.to_program();
    let sizes = [
        ("buckets", options.config.buckets()),
        ("flows", options.config.buckets() * abi::DWELL_WAYS),
        ("memories", options.config.buckets() * abi::DWELL_WAYS),
        ("stamps", options.config.stamps()),
        ("groups", program.max_groups),
        ("histograms", 2 * program.max_groups),
    ];
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let failed = |error: libbpf_rs::Error| Error::Map {
            operation: "size",
            map: "rtt",
            io: io_error(&error),
        };
        if let Some((_, entries)) = sizes.iter().find(|(sized, _)| *sized == name) {
            map.set_max_entries(*entries).map_err(failed)?;
        }
        if name.ends_with(".rodata.program") {
            map.set_initial_value(program.as_bytes()).map_err(failed)?;
        }
    }
    if let Some(other) = shared {
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let Some(name) = SHARED_MAPS.iter().find(|shared| **shared == name) else {
                continue;
            };
            let handle =
                MapHandle::try_from(&load::map(other, name)).map_err(|error| Error::Map {
                    operation: "share",
                    map: name,
                    io: io_error(&error),
                })?;
            map.reuse_fd(handle.as_fd()).map_err(|error| Error::Map {
                operation: "share",
                map: name,
                io: io_error(&error),
            })?;
        }
    }
    load::load(what, object)
}

fn group_key(bytes: &[u8], aggregate: &Aggregate) -> Option<GroupKey> {
    let raw = abi::dwell_group_key::read_from_bytes(bytes).ok()?;
    let address = Ipv6Addr::from(
        <[u8; 16]>::try_from(raw.prefix.as_bytes()).expect("an address is 16 bytes"),
    )
    .to_canonical();
    let length = if address.is_ipv4() {
        aggregate.prefix4
    } else {
        aggregate.prefix6
    };
    Some(GroupKey {
        interface: raw.interface,
        method: *Method::ALL.get(usize::from(raw.method))?,
        prefix: Prefix {
            address,
            bits: length,
        },
    })
}

fn cpus() -> Result<usize, Error> {
    libbpf_rs::num_possible_cpus().map_err(|error| Error::Map {
        operation: "size",
        map: "histograms",
        io: io_error(&error),
    })
}

fn read_percpu(map: &dyn MapCore, name: &'static str, index: u32) -> Result<Vec<Vec<u8>>, Error> {
    map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)
        .map(Option::unwrap_or_default)
        .map_err(|error| Error::Map {
            operation: "read",
            map: name,
            io: io_error(&error),
        })
}
