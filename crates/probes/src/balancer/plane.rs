//! The program and its maps: loaded, attached, told of VIPs and backends, read.

use std::{collections::BTreeMap, net::IpAddr, os::fd::AsFd};

use dwell_engine::{
    abi,
    balance::{self, Counters, Decision, Load, NextHop, Real, Vip, VipKey},
    response::Record,
};
use libbpf_rs::{MapMut, Object, OpenObject, Program};
use zerocopy::IntoBytes;

use super::{maps, options::PlaneOptions, pins::Folder};
use crate::{
    Error, Hook, Interface, TcHookKind,
    attach::{Attachment, attach},
    chain::Slot,
    events::{self, Events},
    load, next_hop,
    vantage::failed,
};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/balancer_xdp.bpf.o"));

pub(super) const WHAT: &str = "the balancer";
pub(super) const PROGRAM: &str = "balance_xdp";
pub(super) const CHAINED: &str = "balance_xdp_chained";

/// Connections by backend. Active are those that a packet came of within the active
/// timeout, and whose client has not said that it is over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Actives(Vec<u64>);

impl Actives {
    /// Active ones of a backend, by its number.
    pub fn of(&self, real: u32) -> u64 {
        self.word(real) & u64::from(u32::MAX)
    }

    /// All that have a place in the table: packets of them still go to the backend.
    pub fn kept_by(&self, real: u32) -> u64 {
        self.word(real) >> 32
    }

    /// Active ones of all backends.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|word| word & u64::from(u32::MAX)).sum()
    }

    fn word(&self, real: u32) -> u64 {
        self.0.get(real as usize).copied().unwrap_or(0)
    }
}

/// What would become of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Where it would go, and why.
    pub decision: Decision,
    /// The frame as it would go out or on.
    pub frame: Vec<u8>,
}

/// What the kernel has of a VIP's key.
struct Told {
    vip: Vip,
    /// Never beyond its table.
    size: u32,
}

/// The loaded program. Dropping it detaches and unloads what is not pinned.
pub struct Plane {
    pub(super) attachment: Option<Attachment>,
    pub(super) slot: Option<Slot>,
    pub(super) object: Object,
    events: Events<Record>,
    options: PlaneOptions,
    vips: BTreeMap<VipKey, Told>,
    /// Of the tables, by their VIP's number.
    sizes: BTreeMap<u32, u32>,
    reals: BTreeMap<u32, Real>,
    /// The interface's number: where packets come in.
    ingress: u32,
    /// Where it is pinned, if it is.
    pub(super) folder: Option<Folder>,
}

impl Plane {
    /// Loads the program. Nothing is attached, nothing is pinned.
    ///
    /// # Errors
    ///
    /// If this host cannot load it, or a chain's slot cannot be taken.
    pub fn load(options: &PlaneOptions) -> Result<Plane, Error> {
        let options = &options.seeded();
        let object = load_object(options, |_, _| Ok(()))?;
        let mut plane = Plane::of(object, options)?;
        if let Some(chain) = &options.chain {
            plane.slot = Some(chain.enter(&load::program(&plane.object, CHAINED))?);
        }
        Ok(plane)
    }

    /// Of an object whose maps may hold what another process has put there.
    pub(super) fn of(mut object: Object, options: &PlaneOptions) -> Result<Plane, Error> {
        let events = Events::of(&load::map(&mut object, "events"), Record::from_kernel)?;
        let mut plane = Plane {
            attachment: None,
            slot: None,
            object,
            events,
            options: options.clone(),
            vips: BTreeMap::new(),
            sizes: BTreeMap::new(),
            reals: BTreeMap::new(),
            ingress: 0,
            folder: None,
        };
        for (key, vip) in maps::vips(&plane.map("vips"))? {
            if let Some(key) = VipKey::from_core(&key) {
                // where a process was ended between two keys, the smaller fits
                let size = plane.sizes.entry(vip.number).or_insert(vip.size);
                *size = vip.size.min(*size);
                let told = Told { vip: Vip::from_core(&vip), size: vip.size };
                plane.vips.insert(key, told);
            }
        }
        for number in 1..=options.max_reals {
            let found = maps::read(&plane.map("reals"), "reals", &number.to_ne_bytes())?;
            if let Some(real) = found.as_ref().and_then(Real::from_core) {
                plane.reals.insert(number, real);
            }
        }
        Ok(plane)
    }

    /// Attaches it to an interface, until it is dropped.
    ///
    /// # Errors
    ///
    /// If another XDP program is there, or the driver takes none.
    pub fn attach(&mut self, interface: &Interface) -> Result<(), Error> {
        self.ingress = interface.index;
        if self.slot.is_none() {
            let program = load::program(&self.object, PROGRAM);
            let attached = attach(&program, interface, Hook::Xdp, TcHookKind::Auto);
            self.attachment = Some(attached.map_err(|error| match error {
                Error::Attach { io, .. } => busy(interface, io),
                other => other,
            })?);
        }
        Ok(())
    }

    /// Latencies from before this process would be taken for those of now.
    pub(super) fn forget_records(&mut self) -> Result<(), Error> {
        self.events.discard()
    }

    pub(super) fn come_in_at(&mut self, interface: &Interface) {
        self.ingress = interface.index;
    }

    pub(super) fn write_layout(&mut self) -> Result<(), Error> {
        let layout = self.options.layout();
        maps::write(&self.map("layout"), "layout", &[0; 4], &layout)
    }

    /// Sets a backend. Its connections follow at once.
    ///
    /// # Errors
    ///
    /// If the number is 0, or beyond what was loaded for.
    pub fn set_real(&mut self, number: u32, real: &Real) -> Result<(), Error> {
        self.check("backend", number, self.options.max_reals)?;
        if !self.reals.contains_key(&number) {
            maps::zero_cpus(&self.map("real_counts"), "real_counts", number)?;
        }
        let map = self.map("reals");
        maps::write(&map, "reals", &number.to_ne_bytes(), &real.to_core())?;
        self.reals.insert(number, *real);
        Ok(())
    }

    /// Forgets a backend, and what was counted of its number: its connections go
    /// elsewhere.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn remove_real(&mut self, number: u32) -> Result<(), Error> {
        self.check("backend", number, self.options.max_reals)?;
        let nobody = abi::dwell_real::default();
        maps::write(&self.map("reals"), "reals", &number.to_ne_bytes(), &nobody)?;
        self.reals.remove(&number);
        maps::zero_cpus(&self.map("real_counts"), "real_counts", number)
    }

    /// Sets a VIP. Until its number has a table, its packets are dropped. The count
    /// of a number begins with its first key.
    ///
    /// # Errors
    ///
    /// If the number is 0, or beyond what was loaded for, or there is no room.
    pub fn set_vip(&mut self, key: &VipKey, vip: &Vip) -> Result<(), Error> {
        self.check("VIP", vip.number, self.options.max_vips)?;
        if !self.numbers().any(|number| number == vip.number) {
            // connections may have been counted after their VIP had gone
            maps::zero_cpus(&self.map("vip_counts"), "vip_counts", vip.number)?;
        }
        let size = self.sizes.get(&vip.number).copied().unwrap_or(0);
        let map = self.map("vips");
        maps::write(&map, "vips", key.to_core().as_bytes(), &vip.to_core(size))?;
        // A bit is never taken back: connections go on without their VIP.
        let map = self.map("maybe");
        let bits: Option<abi::dwell_vip_filter> = maps::read(&map, "maybe", &[0; 4])?;
        let bit = balance::maybe_bit(key.address);
        let mut bits = bits.unwrap_or_default();
        bits.word[bit / 64] |= 1 << (bit % 64);
        maps::write(&map, "maybe", &[0; 4], &bits)?;
        let map = self.map("vips");
        let icmp = key.to_core_icmp();
        maps::write(&map, "vips", icmp.as_bytes(), &abi::dwell_vip::default())?;
        match self.vips.insert(*key, Told { vip: *vip, size }) {
            Some(before) => self.free(before.vip.number),
            None => Ok(()),
        }
    }

    /// Forgets a VIP: new connections to it are no business of ours. Known ones go
    /// on until they are over. Table and counts of its number go with its last key.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn remove_vip(&mut self, key: &VipKey) -> Result<(), Error> {
        let Some(told) = self.vips.get(key) else {
            return Ok(());
        };
        let number = told.vip.number;
        let is_last = !self.vips.keys().any(|other| other != key && other.address == key.address);
        let map = self.map("vips");
        let mut keys = vec![key.to_core()];
        if is_last {
            keys.push(key.to_core_icmp());
        }
        for key in keys {
            maps::forget(&map, "vips", key.as_bytes())?;
        }
        self.vips.remove(key);
        self.free(number)
    }

    /// Forgets what belongs to a VIP's number that no key has.
    fn free(&mut self, number: u32) -> Result<(), Error> {
        if self.numbers().any(|used| used == number) {
            return Ok(());
        }
        if self.sizes.remove(&number).is_some() {
            maps::forget(&self.map("tables"), "tables", &number.to_ne_bytes())?;
        }
        maps::zero_cpus(&self.map("vip_counts"), "vip_counts", number)
    }

    /// Gives a VIP another Maglev table: `entries[i]` is the number of a backend.
    /// It is filled before it is swapped in, at once.
    ///
    /// # Errors
    ///
    /// If a number is beyond what was loaded for.
    pub fn set_table(&mut self, vip: u32, entries: &[u32]) -> Result<(), Error> {
        self.set_tables(&[(vip, entries)])
    }

    /// The same for many VIPs, each named once: the kernel waits for its CPUs once
    /// for hundreds of tables, and not once for each. If it fails, some may have
    /// their new tables and some part of the old: set them again.
    ///
    /// # Errors
    ///
    /// As for [`Plane::set_table`], and if there is no memory for a table.
    pub fn set_tables(&mut self, tables: &[(u32, &[u32])]) -> Result<(), Error> {
        for (vip, entries) in tables {
            self.check("VIP", *vip, self.options.max_vips)?;
            for real in entries.iter().copied() {
                self.check("backend", real, self.options.max_reals)?;
            }
        }
        tables.chunks(maps::SWAPPED_AT_ONCE).try_for_each(|some| self.swap(some))
    }

    fn swap(&mut self, tables: &[(u32, &[u32])]) -> Result<(), Error> {
        let with_entries = tables.iter().filter(|(_, entries)| !entries.is_empty());
        let made =
            with_entries.map(|(vip, entries)| Ok((*vip, maps::maglev(entries)?))).collect::<Result<Vec<_>, Error>>()?;
        let sizes = tables.iter().map(|(vip, entries)| (*vip, entries.len() as u32));
        let sizes: BTreeMap<u32, u32> = sizes.collect();
        // Whatever is looked at in between, no size goes beyond its table.
        let shrunk = self.resize(&sizes, |old, new| new < old);
        let swapped = shrunk.and_then(|()| maps::swap(&self.map("tables"), &made));
        for (vip, size) in &sizes {
            let known = self.sizes.entry(*vip).or_default();
            // the smaller fits whichever table there is
            *known = match swapped {
                Ok(()) => *size,
                Err(_) => *size.min(known),
            };
        }
        swapped.and_then(|()| self.resize(&sizes, |old, new| new != old))
    }

    /// Leaves a VIP without a backend: packets of new connections are dropped.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn clear_table(&mut self, vip: u32) -> Result<(), Error> {
        self.set_table(vip, &[])
    }

    /// Tells the keys of these numbers the sizes of their tables, where that `is_due`.
    fn resize(&mut self, sizes: &BTreeMap<u32, u32>, is_due: impl Fn(u32, u32) -> bool) -> Result<(), Error> {
        let map = load::map(&mut self.object, "vips");
        for (key, told) in &mut self.vips {
            let Some(size) = sizes.get(&told.vip.number).copied() else {
                continue;
            };
            if is_due(told.size, size) {
                let vip = told.vip.to_core(size);
                maps::write(&map, "vips", key.to_core().as_bytes(), &vip)?;
                told.size = size;
            }
        }
        Ok(())
    }

    /// The VIPs that there are.
    pub fn vips(&self) -> impl Iterator<Item = (&VipKey, &Vip)> {
        self.vips.iter().map(|(key, told)| (key, &told.vip))
    }

    /// The backends that there are, by number.
    pub fn reals(&self) -> impl Iterator<Item = (u32, &Real)> {
        self.reals.iter().map(|(number, real)| (*number, real))
    }

    /// Hands on the epochs that have ended. The kernel wakes nobody: call it
    /// often enough that the ring buffer does not fill.
    ///
    /// # Errors
    ///
    /// If the ring buffer cannot be read.
    pub fn drain(&mut self, emit: impl FnMut(Record)) -> Result<(), Error> {
        self.events.drain(emit)
    }

    /// Ends the epochs that are over though no packet said so, forgets connections
    /// that are idle, and counts the others by backend. What has ended is
    /// handed on as it goes, as by [`Plane::drain`], so that there is room for more.
    ///
    /// # Errors
    ///
    /// If the kernel does not run the program that does it.
    pub fn sweep(&mut self, mut emit: impl FnMut(Record)) -> Result<Actives, Error> {
        let numbers = self.reals.keys().next_back().copied().unwrap_or(0);
        let map = self.map("actives");
        for number in 1..=numbers {
            maps::write(&map, "actives", &number.to_ne_bytes(), &0u64)?;
        }
        let event_bytes = size_of::<abi::dwell_response_event>() as u32;
        let at_once = self.options.ring_bytes() / 2 / (abi::DWELL_WAYS * event_bytes);
        let buckets = self.options.buckets();
        for first in (0..buckets).step_by(at_once as usize) {
            self.events.drain(&mut emit)?;
            let part = at_once.min(buckets - first);
            let program = load::program(&self.object, "sweep");
            events::sweep(&program, first, part, abi::DWELL_CLOSE_IDLE)?;
        }
        self.events.drain(emit)?;
        let map = self.map("actives");
        let mut actives = vec![0];
        for number in 1..=numbers {
            let found = maps::read(&map, "actives", &number.to_ne_bytes())?;
            actives.push(found.unwrap_or(0));
        }
        Ok(Actives(actives))
    }

    /// What was counted so far, over all CPUs.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        let cpus: Vec<abi::dwell_balance_counters> = maps::read_cpus(&self.map("counters"), "counters", 0)?;
        Ok(Counters::sum(&cpus))
    }

    /// What each VIP was sent, by its number; 0 has nothing.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn load_of_vips(&mut self) -> Result<Vec<Load>, Error> {
        let numbers = self.numbers().max().unwrap_or(0);
        self.loads("vip_counts", numbers)
    }

    /// What each backend was sent, by its number; 0 has nothing.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn load_of_reals(&mut self) -> Result<Vec<Load>, Error> {
        let numbers = self.reals.keys().next_back().copied().unwrap_or(0);
        self.loads("real_counts", numbers)
    }

    fn numbers(&self) -> impl Iterator<Item = u32> {
        self.vips.values().map(|told| told.vip.number)
    }

    fn loads(&mut self, name: &'static str, numbers: u32) -> Result<Vec<Load>, Error> {
        let map = self.map(name);
        (0..=numbers).map(|number| Ok(Load::sum(maps::read_cpus(&map, name, number)?))).collect()
    }

    /// What would become of a frame that comes in now: the same code tells, run by
    /// BPF_PROG_TEST_RUN. No connection is opened, nothing is counted.
    ///
    /// # Errors
    ///
    /// If the kernel does not run it: frames have 14 bytes to about 3,500.
    pub fn ask(&mut self, frame: &[u8]) -> Result<Answer, Error> {
        let question = abi::dwell_decision { interface: self.ingress, ..Default::default() };
        maps::write(&self.map("answer"), "answer", &[0; 4], &question)?;
        let (_, frame) = maps::run_xdp(&load::program(&self.object, "ask"), frame)?;
        let decision: Option<abi::dwell_decision> = maps::read(&self.map("answer"), "answer", &[0; 4])?;
        let decision = decision.unwrap_or_default();
        let decision =
            Decision::from_core(&decision).unwrap_or_else(|| unreachable!("program and user space are of one build"));
        Ok(Answer { decision, frame })
    }

    /// Runs the program over a frame as if it had come in (BPF_PROG_TEST_RUN):
    /// connections are opened, packets counted. The verdict is that of linux/bpf.h;
    /// the frame as it would go out or on.
    ///
    /// # Errors
    ///
    /// As for [`Plane::ask`].
    pub fn replay_packet(&mut self, frame: &[u8]) -> Result<(u32, Vec<u8>), Error> {
        maps::run_xdp(&load::program(&self.object, PROGRAM), frame)
    }

    /// The way to an address: what the routing and neighbour tables say.
    ///
    /// # Errors
    ///
    /// If there is no route, or the next hop's MAC address is not known: that
    /// becomes known as this host sends something there.
    pub fn next_hop(to: IpAddr) -> Result<NextHop, Error> {
        next_hop::next_hop(to).map_err(|io| Error::NextHop { to, io })
    }

    pub(super) fn check(&self, what: &'static str, number: u32, most: u32) -> Result<(), Error> {
        match (1..=most).contains(&number) {
            true => Ok(()),
            false => Err(Error::NoNumber { what, number, most }),
        }
    }

    pub(super) fn options(&self) -> &PlaneOptions {
        &self.options
    }

    pub(super) fn map(&mut self, name: &str) -> MapMut<'_> {
        load::map(&mut self.object, name)
    }
}

/// What an interface says that takes no program of ours.
pub(super) fn busy(interface: &Interface, io: std::io::Error) -> Error {
    let remedy = match io.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "it needs CAP_BPF and CAP_NET_ADMIN: run as root, or grant them with setcap"
        }
        std::io::ErrorKind::ResourceBusy | std::io::ErrorKind::AlreadyExists => {
            "another XDP program holds it, another balancer's perhaps (`dwell doctor` shows it): \
             detach that, or have it call this one by tail call"
        }
        _ => "its driver takes no XDP program, or none with an MTU this large",
    };
    Error::Attach { hook: Hook::Xdp.name(), interface: interface.name.clone(), io, remedy }
}

/// One of the programs. The name is one of our own.
pub(super) fn opened<'a>(mut programs: impl Iterator<Item = Program<'a>>, name: &str) -> Program<'a> {
    programs.find(|program| program.name() == name).unwrap_or_else(|| panic!("the object has the program {name}"))
}

/// As it was built.
pub(super) fn open_object() -> Result<OpenObject, Error> {
    load::open(WHAT, OBJECT)
}

/// Opens, sizes, configures and loads the object. `share` may give a map another's
/// memory.
pub(super) fn load_object(
    options: &PlaneOptions,
    share: impl Fn(&str, &mut libbpf_rs::OpenMapMut<'_>) -> Result<(), Error>,
) -> Result<Object, Error> {
    let (program, balance) = (options.program(), options.config());
    let mut object = open_object()?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(entries) = options.entries(&name) {
            map.set_max_entries(entries).map_err(failed("size", "balancer"))?;
        }
        for (section, bytes) in [(".rodata.program", program.as_bytes()), (".rodata.balance", balance.as_bytes())] {
            if name.ends_with(section) {
                map.set_initial_value(bytes).map_err(failed("write", "configuration"))?;
            }
        }
        if let (Some(chain), "chain") = (&options.chain, name.as_str()) {
            map.reuse_fd(chain.open()?.as_fd()).map_err(failed("share", "chain"))?;
        }
        share(&name, &mut map)?;
    }
    if let Some(mut program) = object.progs_mut().find(|program| program.name() == CHAINED) {
        program.set_autoload(options.chain.is_some());
    }
    load::load(WHAT, object)
}
