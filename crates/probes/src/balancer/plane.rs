//! The XDP program and its maps.

use std::{collections::BTreeMap, net::IpAddr, os::fd::AsFd, time::Duration};

use dwell_engine::{
    abi,
    balance::{self, ActiveConnections, Counters, Decision, Heartbeat, Load, NextHop, Real, Vip, VipKey},
    response::Record,
};
use libbpf_rs::{MapMut, Object, OpenObject, Program};
use zerocopy::IntoBytes;

use super::{maps, options::PlaneOptions, pins::Folder};
use crate::{
    Error, Hook, Interface, XdpMode,
    attach::{self, Attachment},
    chain::Slot,
    events::{self, Events},
    host::xdp_mode,
    load,
    next_hop::{self, Device},
    vantage::failed,
};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/balancer_xdp.bpf.o.z"));

pub(super) const WHAT: &str = "the balancer";
pub(super) const PROGRAM: &str = "balance_xdp";
pub(super) const CHAINED: &str = "balance_xdp_chained";

/// What the program would do with a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRun {
    /// The decision, with its reason.
    pub decision: Decision,
    /// The frame as it would be sent or passed on.
    pub frame: Vec<u8>,
}

/// The entry of a VIP in the kernel's map.
pub(super) struct VipEntry {
    pub(super) vip: Vip,
    /// The size of the table in the entry: never greater than the table itself.
    pub(super) size: u32,
}

/// The loaded program. Dropping it detaches and unloads everything that is not pinned.
pub struct Plane {
    pub(super) attachment: Option<Attachment>,
    pub(super) slot: Option<Slot>,
    pub(super) object: Object,
    events: Events<Record>,
    options: PlaneOptions,
    pub(super) vips: BTreeMap<VipKey, VipEntry>,
    /// The sizes of the tables, by the number of their VIP.
    pub(super) sizes: BTreeMap<u32, u32>,
    reals: BTreeMap<u32, Real>,
    /// The number of the interface that receives packets.
    ingress: u32,
    /// The folder where it is pinned, if it is.
    pub(super) folder: Option<Folder>,
    /// The last sign of life of this process.
    pub(super) heartbeat: Option<Heartbeat>,
    /// The age of the last process's sign of life when this one took over.
    pub(super) inherited_age: Option<Duration>,
}

impl Plane {
    /// Loads the program. It is neither attached nor pinned.
    ///
    /// # Errors
    ///
    /// If this host cannot load it, or the slot of a chain cannot be entered.
    pub fn load(options: &PlaneOptions) -> Result<Plane, Error> {
        let options = &options.seeded();
        let object = load_object(options, |_, _| Ok(()))?;
        let mut plane = Plane::from_object(object, options)?;
        if let Some(chain) = &options.chain {
            plane.slot = Some(chain.enter(&load::program(&plane.object, CHAINED))?);
        }
        Ok(plane)
    }

    /// Reads the contents that another process may have left in the maps of a loaded object.
    pub(super) fn from_object(mut object: Object, options: &PlaneOptions) -> Result<Plane, Error> {
        let events = Events::open(&load::map(&mut object, "events"), Record::from_kernel)?;
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
            heartbeat: None,
            inherited_age: None,
        };
        for (key, vip) in maps::vips(&plane.map("vips"))? {
            if let Some(key) = VipKey::from_core(&key) {
                // If a process ended between two keys, the smaller size fits.
                let size = plane.sizes.entry(vip.number).or_insert(vip.size);
                *size = vip.size.min(*size);
                let entry = VipEntry { vip: Vip::from_core(&vip), size: vip.size };
                plane.vips.insert(key, entry);
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

    /// Attaches the program to an interface until it is dropped.
    ///
    /// # Errors
    ///
    /// If another XDP program is attached, or the driver does not support XDP.
    pub fn attach(&mut self, interface: &Interface) -> Result<(), Error> {
        self.ingress = interface.index;
        if self.slot.is_none() {
            let program = load::program(&self.object, PROGRAM);
            let link = attach::xdp(program.as_fd(), interface.index, self.options.mode);
            self.attachment = Some(link.map(Attachment::Descriptor).map_err(|io| busy(interface, io))?);
        }
        Ok(())
    }

    /// Discards latency records from before this process, which would be taken for current ones.
    pub(super) fn discard_records(&mut self) -> Result<(), Error> {
        self.events.discard()
    }

    pub(super) fn set_ingress(&mut self, interface: &Interface) {
        self.ingress = interface.index;
    }

    pub(super) fn write_layout(&mut self) -> Result<(), Error> {
        let layout = self.options.layout();
        maps::write(&self.map("layout"), "layout", &[0; 4], &layout)
    }

    /// Writes a backend. Its connections follow at once.
    ///
    /// # Errors
    ///
    /// If the number is 0 or exceeds the options.
    pub fn set_real(&mut self, number: u32, real: &Real) -> Result<(), Error> {
        self.check("backend", number, self.options.max_reals)?;
        if !self.reals.contains_key(&number) {
            maps::reset_counts(&self.map("real_counts"), "real_counts", number)?;
            maps::write(&self.map("open"), "open", &number.to_ne_bytes(), &0i64)?;
        }
        let map = self.map("reals");
        maps::write(&map, "reals", &number.to_ne_bytes(), &real.to_core())?;
        self.reals.insert(number, *real);
        Ok(())
    }

    /// Removes a backend and its counts. Its connections go elsewhere.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn remove_real(&mut self, number: u32) -> Result<(), Error> {
        self.check("backend", number, self.options.max_reals)?;
        let nobody = abi::dwell_real::default();
        maps::write(&self.map("reals"), "reals", &number.to_ne_bytes(), &nobody)?;
        self.reals.remove(&number);
        maps::reset_counts(&self.map("real_counts"), "real_counts", number)
    }

    /// Writes a VIP. Its packets are dropped until its number has a table. The counts of a number start with its first
    /// key.
    ///
    /// # Errors
    ///
    /// If the number is 0 or exceeds the options, or the map is full.
    pub fn set_vip(&mut self, key: &VipKey, vip: &Vip) -> Result<(), Error> {
        self.check("VIP", vip.number, self.options.max_vips)?;
        if !self.numbers().any(|number| number == vip.number) {
            // Connections may have been counted after their VIP was removed.
            maps::reset_counts(&self.map("vip_counts"), "vip_counts", vip.number)?;
        }
        let size = self.sizes.get(&vip.number).copied().unwrap_or(0);
        let map = self.map("vips");
        maps::write(&map, "vips", key.to_core().as_bytes(), &vip.to_core(size))?;
        // A bit is never cleared: connections outlive their VIP.
        let map = self.map("maybe");
        let bits: Option<abi::dwell_vip_filter> = maps::read(&map, "maybe", &[0; 4])?;
        let bit = balance::maybe_bit(key.address);
        let mut bits = bits.unwrap_or_default();
        bits.word[bit / 64] |= 1 << (bit % 64);
        maps::write(&map, "maybe", &[0; 4], &bits)?;
        let map = self.map("vips");
        let icmp = key.to_core_icmp();
        maps::write(&map, "vips", icmp.as_bytes(), &abi::dwell_vip::default())?;
        match self.vips.insert(*key, VipEntry { vip: *vip, size }) {
            Some(before) => self.free_number(before.vip.number),
            None => Ok(()),
        }
    }

    /// Removes a VIP: new connections to it are no longer balanced, and known ones continue until they end. The table
    /// and the counts of its number are removed with its last key.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn remove_vip(&mut self, key: &VipKey) -> Result<(), Error> {
        let Some(entry) = self.vips.get(key) else {
            return Ok(());
        };
        let number = entry.vip.number;
        let is_last = !self.vips.keys().any(|other| other != key && other.address == key.address);
        let map = self.map("vips");
        let mut keys = vec![key.to_core()];
        if is_last {
            keys.push(key.to_core_icmp());
        }
        for key in keys {
            maps::delete(&map, "vips", key.as_bytes())?;
        }
        self.vips.remove(key);
        self.free_number(number)
    }

    /// Removes the table and the counts of a number that no key uses.
    fn free_number(&mut self, number: u32) -> Result<(), Error> {
        if self.numbers().any(|used| used == number) {
            return Ok(());
        }
        if self.sizes.remove(&number).is_some() {
            maps::delete(&self.map("tables"), "tables", &number.to_ne_bytes())?;
            self.set_equal_tables(&[(number, &[])])?;
            self.set_recent_tables(&[(number, &[])])?;
            self.set_members(&[(number, &[])])?;
        }
        maps::reset_counts(&self.map("vip_counts"), "vip_counts", number)
    }

    /// Returns all VIPs.
    pub fn vips(&self) -> impl Iterator<Item = (&VipKey, &Vip)> {
        self.vips.iter().map(|(key, entry)| (key, &entry.vip))
    }

    /// Returns all backends, by number.
    pub fn reals(&self) -> impl Iterator<Item = (u32, &Real)> {
        self.reals.iter().map(|(number, real)| (*number, real))
    }

    /// Returns a backend by its number.
    pub fn real(&self, number: u32) -> Option<&Real> {
        self.reals.get(&number)
    }

    /// Reads the epochs that have ended. The kernel wakes nobody: call it often enough that the ring buffer does not
    /// fill.
    ///
    /// # Errors
    ///
    /// If the ring buffer cannot be read.
    pub fn drain(&mut self, emit: impl FnMut(Record)) -> Result<(), Error> {
        self.events.drain(emit)
    }

    /// Ends the epochs that are over but had no packet to end them, forgets idle connections, and counts the others by
    /// backend. Epochs are emitted meanwhile, as by [`Plane::drain`], to make room for more.
    ///
    /// # Errors
    ///
    /// If the kernel does not run the program.
    pub fn sweep(&mut self, mut emit: impl FnMut(Record)) -> Result<ActiveConnections, Error> {
        let numbers = self.reals.keys().next_back().copied().unwrap_or(0);
        let count = numbers + 1;
        let before: Vec<i64> = maps::read_array(&self.map("open"), "open", count)?;
        maps::write_array(&self.map("actives"), "actives", &vec![0u64; count as usize])?;
        let none = vec![abi::dwell_pending::default(); count as usize];
        maps::write_array(&self.map("pending"), "pending", &none)?;
        let event_bytes = size_of::<abi::dwell_response_event>() as u32;
        let batch = self.options.ring_bytes() / 2 / (abi::DWELL_WAYS * event_bytes);
        let buckets = self.options.buckets();
        let taken = self.counters()?.table.slots_taken();
        let reason = balance::sweep_reason(taken, self.options.places().into());
        for first in (0..buckets).step_by(batch as usize) {
            self.events.drain(&mut emit)?;
            let part = batch.min(buckets - first);
            let program = load::program(&self.object, "sweep");
            events::sweep(&program, first, part, reason, 0)?;
        }
        self.events.drain(emit)?;
        let words: Vec<u64> = maps::read_array(&self.map("actives"), "actives", count)?;
        let pending: Vec<abi::dwell_pending> = maps::read_array(&self.map("pending"), "pending", count)?;
        let found = ActiveConnections::from_core(words, &pending);
        self.correct_open(&before, &found)?;
        Ok(found)
    }

    /// Sets the open connections of backends to what a sweep has found. `before` is of the sweep's begin.
    fn correct_open(&mut self, before: &[i64], found: &ActiveConnections) -> Result<(), Error> {
        let now: Vec<i64> = maps::read_array(&self.map("open"), "open", before.len() as u32)?;
        maps::write_array(&self.map("open"), "open", &found.open(before, &now))
    }

    /// Returns the counters, summed over all CPUs.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        let cpus: Vec<abi::dwell_balance_counters> = maps::read_cpus(&self.map("counters"), "counters", 0)?;
        Ok(Counters::sum(&cpus))
    }

    /// Returns the traffic of each VIP, by its number; index 0 is empty.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn vip_loads(&mut self) -> Result<Vec<Load>, Error> {
        let numbers = self.numbers().max().unwrap_or(0);
        self.loads("vip_counts", numbers)
    }

    /// Returns the traffic of each backend, by its number; index 0 is empty.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn real_loads(&mut self) -> Result<Vec<Load>, Error> {
        let numbers = self.reals.keys().next_back().copied().unwrap_or(0);
        self.loads("real_counts", numbers)
    }

    fn numbers(&self) -> impl Iterator<Item = u32> {
        self.vips.values().map(|entry| entry.vip.number)
    }

    fn loads(&mut self, name: &'static str, numbers: u32) -> Result<Vec<Load>, Error> {
        let map = self.map(name);
        (0..=numbers).map(|number| Ok(Load::sum(maps::read_cpus(&map, name, number)?))).collect()
    }

    /// Returns what would happen to a frame that arrives now, by running the same code with BPF_PROG_TEST_RUN. No
    /// connection is opened, and nothing is counted.
    ///
    /// # Errors
    ///
    /// If the kernel does not run the program: a frame has 14 to about 3,500 bytes.
    pub fn dry_run(&mut self, frame: &[u8]) -> Result<DryRun, Error> {
        let input = abi::dwell_decision { interface: self.ingress, ..Default::default() };
        maps::write(&self.map("answer"), "answer", &[0; 4], &input)?;
        let (_, frame) = maps::run_xdp(&load::program(&self.object, "ask"), frame)?;
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
    /// As for [`Plane::ask`].
    pub fn replay_packet(&mut self, frame: &[u8]) -> Result<(u32, Vec<u8>), Error> {
        maps::run_xdp(&load::program(&self.object, PROGRAM), frame)
    }

    /// Returns what runs the XDP program of an interface, which may be one that calls the balancer's; `None` if there is
    /// none, or that is unknown.
    pub fn mode_at(interface: &Interface) -> Option<XdpMode> {
        xdp_mode(interface.index)
    }

    /// Returns the index of the interface by which packets to an address leave.
    ///
    /// # Errors
    ///
    /// If there is no route.
    pub fn interface_to(to: IpAddr) -> std::io::Result<u32> {
        Ok(next_hop::route(to, None)?.interface)
    }

    /// Returns what the kernel tells of a device that has Ethernet frames.
    ///
    /// # Errors
    ///
    /// If there is no such device.
    pub fn device(index: u32) -> std::io::Result<Device> {
        next_hop::device(index)
    }

    /// Returns the next hop to an address from the routing and neighbour tables.
    ///
    /// # Errors
    ///
    /// If there is no route, or the MAC address of the next hop is not known. It becomes known when this host sends a
    /// packet there.
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

/// Explains why an interface refused the program.
pub(super) fn busy(interface: &Interface, io: std::io::Error) -> Error {
    let remedy = match io.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "this needs CAP_BPF and CAP_NET_ADMIN: run as root, or grant them with setcap"
        }
        std::io::ErrorKind::ResourceBusy | std::io::ErrorKind::AlreadyExists => {
            "another XDP program is attached, perhaps that of another balancer or of `dwell response` (`dwell doctor` \
             shows it): detach it, or let it call this one by tail call"
        }
        _ => "its driver does not support XDP, or not with an MTU this large",
    };
    Error::Attach { hook: Hook::Xdp.name(), interface: interface.name.clone(), io, remedy }
}

/// Returns a program of the object by its name, which is a constant of this crate.
pub(super) fn opened<'a>(mut programs: impl Iterator<Item = Program<'a>>, name: &str) -> Program<'a> {
    programs.find(|program| program.name() == name).unwrap_or_else(|| panic!("the object has the program {name}"))
}

/// Opens the object as it was built.
pub(super) fn open_object() -> Result<OpenObject, Error> {
    load::open(WHAT, OBJECT)
}

/// Opens, sizes, configures and loads the object. `share` may replace a map by another one.
pub(super) fn load_object(
    options: &PlaneOptions,
    share: impl Fn(&str, &mut libbpf_rs::OpenMapMut<'_>) -> Result<(), Error>,
) -> Result<Object, Error> {
    let (program, balance) = (options.program(), options.config());
    let mut object = open_object()?;
    let constants = [(".rodata.program", program.as_bytes()), (".rodata.balance", balance.as_bytes())];
    load::configure(&mut object, |name| options.entries(name), &constants)?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
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
