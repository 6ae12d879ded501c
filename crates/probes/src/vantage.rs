//! A vantage point: programs with a flow table, loaded, attached, and read.

use std::os::fd::AsFd;

use dwell_engine::{abi, rtt::Counters};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapMut, Object};
use nix::time::{ClockId, clock_getres};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::{
    Error, Hook, Interface, TcHookKind,
    attach::{Attachment, attach},
    chain::{Chain, Slot},
    error::io_error,
    events::{self, Events, SK_BUFF_BYTES, SK_BUFF_TSTAMP},
    load,
};

/// The XDP program for another's tail calls.
const CHAINED: &str = "observe_xdp_chained";

/// For interfaces without a link header: loaded once there is one.
const RAW: &str = "observe_tc_raw";

/// What to load: one object per hook, with the programs `observe_tc`, `observe_tc_raw` and `sweep`, or `observe_xdp`.
pub(crate) struct Spec<'a> {
    /// The name of the programs in error messages.
    pub what: &'static str,
    /// The object with the programs for tc.
    pub tc: &'static [u8],
    /// The object with the programs for XDP.
    pub xdp: &'static [u8],
    /// The hook that watches incoming packets.
    pub ingress: Hook,
    /// The slot of another's program array for `observe_xdp_chained`, which then replaces `observe_xdp`.
    pub chain: Option<&'a Chain>,
    /// How to attach at tc.
    pub kind: TcHookKind,
    /// The content of `.rodata.program`.
    pub program: &'a [u8],
    /// Buckets of the flow table.
    pub buckets: u32,
    /// Its slots.
    pub slots: u32,
    /// The size of the ring buffer: a power of two.
    pub ring_bytes: u32,
    /// The most that the end of one flow writes to the ring buffer.
    pub event_bytes: u32,
    /// Entries of the other maps.
    pub sizes: &'a [(&'static str, u32)],
    /// Maps that both objects use, in addition to `buckets`, `counters` and `events`: there is one flow table,
    /// whichever hook saw the packet.
    pub shared: &'a [&'static str],
}

/// Loaded programs that watch packets and report events `E`, with the state `X` of what only some of them do. Dropping
/// it detaches and unloads everything.
pub struct Vantage<E, X = ()> {
    attachments: Vec<Attachment>,
    slot: Option<Slot>,
    events: Events<E>,
    what: &'static str,
    tc_bytes: &'static [u8],
    tc: Object,
    raw: Option<Object>,
    xdp: Option<Object>,
    kind: TcHookKind,
    buckets: u32,
    slots: u32,
    /// Buckets whose events are sure to fit into half the ring buffer.
    buckets_per_sweep: u32,
    /// When the newest replayed packet passed; 0 if none did.
    replayed_ns: u64,
    pub(crate) extension: X,
}

impl<E: 'static, X> Vantage<E, X> {
    /// Loads the programs. Nothing is attached yet.
    pub(crate) fn open(
        spec: &Spec<'_>,
        decode: impl Fn(&[u8]) -> Option<E> + 'static,
        extension: X,
    ) -> Result<Vantage<E, X>, Error> {
        let mut tc = load_object(spec, spec.tc, None)?;
        let xdp = (spec.ingress == Hook::Xdp).then(|| load_object(spec, spec.xdp, Some(&mut tc))).transpose()?;
        let slot = match (spec.chain, &xdp) {
            (Some(chain), Some(xdp)) => Some(chain.enter(&load::program(xdp, CHAINED))?),
            _ => None,
        };
        let events = Events::open(&load::map(&mut tc, "events"), decode)?;
        Ok(Vantage {
            attachments: Vec::new(),
            slot,
            events,
            what: spec.what,
            tc_bytes: spec.tc,
            tc,
            raw: None,
            xdp,
            kind: spec.kind,
            buckets: spec.buckets,
            slots: spec.slots,
            buckets_per_sweep: spec.ring_bytes / 2 / (abi::DWELL_WAYS * spec.event_bytes),
            replayed_ns: 0,
            extension,
        })
    }

    /// Watches both directions of an interface; only ingress of loopback, whose packets pass twice.
    pub fn attach(&mut self, interface: &Interface) -> Result<(), Error> {
        let is_raw = !interface.has_link_header();
        if is_raw && self.raw.is_none() {
            self.raw = Some(load::load_more(self.what, self.tc_bytes, &load::handles(&self.tc)?, RAW)?);
        }
        let (object, name) = match &self.raw {
            Some(raw) if is_raw => (raw, RAW),
            _ => (&self.tc, "observe_tc"),
        };
        let program = load::program(object, name);
        let ingress = match (&self.slot, &self.xdp) {
            (Some(_), _) => None,
            (None, Some(xdp)) => Some((load::program(xdp, "observe_xdp"), Hook::Xdp)),
            (None, None) => Some((load::program(object, name), Hook::TcIngress)),
        };
        if let Some((program, hook)) = ingress {
            self.attachments.push(attach(&program, interface, hook, self.kind)?);
        }
        if !interface.is_loopback() {
            self.attachments.push(attach(&program, interface, Hook::TcEgress, self.kind)?);
        }
        Ok(())
    }

    /// Stops watching. What was measured can still be read.
    pub fn detach(&mut self) {
        self.attachments.clear();
        self.slot = None;
    }

    /// Hands on the events that have arrived, in the order of the kernel's ring buffer. The kernel does not wake its
    /// reader: poll several times per second, so that the ring buffer does not fill.
    pub fn drain(&mut self, emit: impl FnMut(E)) -> Result<(), Error> {
        self.events.drain(emit)
    }

    /// What was counted since the start, over all CPUs.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        let cpus: Vec<abi::dwell_counters> = read_cpus(&load::map(&mut self.tc, "counters"), "counters", 0)?;
        Ok(Counters::sum(cpus.iter()))
    }

    /// A map of the programs. Panics on a name that they do not have.
    pub(crate) fn map(&mut self, name: &str) -> MapMut<'_> {
        load::map(&mut self.tc, name)
    }

    /// The number of slots in the flow table.
    pub fn slots(&self) -> u64 {
        self.slots.into()
    }

    /// The name, the number of runs and the run time in nanoseconds of each program that has run, if the kernel counts
    /// them (sysctl kernel.bpf_stats_enabled).
    pub fn run_times(&self) -> Vec<(&'static str, u64, u64)> {
        let tc = [("observe_tc", Some(&self.tc)), (RAW, self.raw.as_ref())];
        tc.into_iter()
            .chain(["observe_xdp", CHAINED].map(|name| (name, self.xdp.as_ref())))
            .filter_map(|(name, object)| {
                let (runs, ns) = load::run_time(&load::find_program(object?, name)?)?;
                (runs > 0).then_some((name, runs, ns))
            })
            .collect()
    }

    /// Ends idle flows, and epochs that are over though no packet has ended them.
    pub fn sweep(&mut self) -> Result<(), Error> {
        self.sweep_for(abi::DWELL_CLOSE_IDLE)
    }

    /// Ends idle flows if fewer than an eighth of the slots are free. A new flow takes the place of an idle one only where that
    /// is in one of its own two buckets.
    pub fn make_room(&mut self) -> Result<(), Error> {
        match 8 * self.counters()?.slots_taken() > 7 * self.slots() {
            true => self.sweep(),
            false => Ok(()),
        }
    }

    /// Ends all flows, as the run is over.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.sweep_for(abi::DWELL_CLOSE_END)
    }

    fn sweep_for(&mut self, reason: u32) -> Result<(), Error> {
        for first in (0..self.buckets).step_by(self.buckets_per_sweep as usize) {
            self.events.consume()?;
            let buckets = self.buckets_per_sweep.min(self.buckets - first);
            events::sweep(&load::program(&self.tc, "sweep"), first, buckets, reason, self.replayed_ns)?;
        }
        Ok(())
    }

    /// The number of events that could not be decoded: always 0 unless kernel and user space come from different builds.
    pub fn unreadable_events(&self) -> u64 {
        self.events.unreadable()
    }

    /// Runs the program for tc on one packet as if it had passed at `time_ns` (BPF_PROG_TEST_RUN). The programs must have
    /// been loaded with `replay`.
    pub fn replay_packet(&mut self, data: &[u8], time_ns: u64) -> Result<(), Error> {
        let mut context = [0; SK_BUFF_BYTES];
        context[SK_BUFF_TSTAMP..SK_BUFF_TSTAMP + 8].copy_from_slice(&time_ns.to_ne_bytes());
        events::run(&load::program(&self.tc, "observe_tc"), data, &mut context)?;
        self.replayed_ns = time_ns;
        Ok(())
    }
}

/// The length of the kernel's tick, which is the resolution of its coarse clock; 0 if it is unknown.
pub(crate) fn jiffy_ns() -> u32 {
    clock_getres(ClockId::CLOCK_MONOTONIC_COARSE)
        .ok()
        .filter(|tick| tick.tv_sec() == 0)
        .and_then(|tick| u32::try_from(tick.tv_nsec()).ok())
        .unwrap_or(0)
}

/// Turns a failed operation on a map into an error.
pub(crate) fn failed(operation: &'static str, map: &'static str) -> impl Fn(libbpf_rs::Error) -> Error {
    move |error| Error::Map { operation, map, io: io_error(&error) }
}

/// Reads the values of all CPUs under an index.
pub(crate) fn read_cpus<V: FromBytes + KnownLayout + Immutable>(
    map: &dyn MapCore,
    name: &'static str,
    index: u32,
) -> Result<Vec<V>, Error> {
    let cpus = read_percpu(map, name, index)?;
    Ok(cpus.iter().filter_map(|bytes| V::read_from_prefix(bytes).ok()).map(|(value, _)| value).collect())
}

/// Reads the values of all CPUs at an index of a per-CPU array.
pub(crate) fn read_percpu(map: &dyn MapCore, name: &'static str, index: u32) -> Result<Vec<Vec<u8>>, Error> {
    map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).map(Option::unwrap_or_default).map_err(failed("read", name))
}

fn load_object(spec: &Spec<'_>, bytes: &[u8], shared: Option<&mut Object>) -> Result<Object, Error> {
    let mut object = load::open(spec.what, bytes)?;
    let entries = |name: &str| match name {
        "buckets" => Some(spec.buckets),
        "events" => Some(spec.ring_bytes),
        name => spec.sizes.iter().find(|(sized, _)| *sized == name).map(|(_, entries)| *entries),
    };
    load::configure(&mut object, entries, &[(".rodata.program", spec.program)])?;
    for mut program in object.progs_mut() {
        match program.name().to_str() {
            Some(CHAINED) => program.set_autoload(spec.chain.is_some()),
            Some(RAW) => program.set_autoload(false),
            _ => {}
        }
    }
    if let Some(other) = shared {
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let all = ["buckets", "counters", "events"];
            let Some(name) = all.iter().chain(spec.shared).find(|one| **one == name) else {
                continue;
            };
            let handle = MapHandle::try_from(&load::map(other, name)).map_err(failed("share", name))?;
            map.reuse_fd(handle.as_fd()).map_err(failed("share", name))?;
        }
    }
    // Last, as it takes the array's name.
    if let (Some(chain), Some(mut map)) = (spec.chain, object.maps_mut().find(|map| map.name() == "chain")) {
        map.reuse_fd(chain.open()?.as_fd()).map_err(failed("share", "chain"))?;
    }
    load::load_looping(spec.what, object)
}
