//! The XDP program and its maps.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    os::fd::AsFd,
    time::Duration,
};

use dwell_engine::{
    abi,
    balance::{self, ActiveConnections, Counters, Heartbeat, Load, Real, Vip, VipKey},
    response::Record,
};
use libbpf_rs::{MapHandle, MapMut, Object, OpenObject, Program};
use zerocopy::IntoBytes;

use super::{
    dry_run::{self, Ask},
    maps,
    options::{PlaneOptions, TABLES_PER_VIP},
    pins::Folder,
};
use crate::{
    Error, Hook, Interface, XdpMode,
    attach::{self, Attachment},
    chain::Slot,
    events::{self, Events},
    host::{remedy_for_missing, xdp_mode},
    load,
    next_hop::{self, Device},
    vantage::{failed, read_cpus},
};

pub(super) static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/balancer_xdp.bpf.o.z"));

pub(super) const WHAT: &str = "the balancer";
pub(super) const PROGRAM: &str = "balance_xdp";
pub(super) const CHAINED: &str = "balance_xdp_chained";

/// The entry of a VIP in the kernel's map.
pub(super) struct VipEntry {
    pub(super) vip: Vip,
    /// The size of the table in the entry: never greater than the table itself.
    pub(super) size: u32,
    /// Whether this process has written it, with all that belongs to it.
    is_written: bool,
}

/// The loaded program. Dropping it detaches and unloads everything that is not pinned.
pub struct Plane {
    pub(super) attachment: Option<Attachment>,
    pub(super) slot: Option<Slot>,
    pub(super) object: Object,
    /// The program of [`Plane::dry_run`].
    pub(super) ask: Ask,
    /// The table that takes the place of those that are removed, once there was one.
    pub(super) zeros: Option<MapHandle>,
    events: Events<Record>,
    options: PlaneOptions,
    pub(super) vips: BTreeMap<VipKey, VipEntry>,
    /// The number of keys of each VIP's number.
    keys: BTreeMap<u32, usize>,
    /// The sizes of the tables, by the number of their VIP.
    pub(super) sizes: BTreeMap<u32, u32>,
    reals: BTreeMap<u32, Real>,
    /// The numbers below the second figure under which the last sweep has left something, and the first number that it did not
    /// reach. `None` before the first sweep.
    swept: Option<(Vec<u32>, u32)>,
    /// The number of the interface that receives packets.
    pub(super) ingress: u32,
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
            ask: Ask::default(),
            zeros: None,
            events,
            options: options.clone(),
            vips: BTreeMap::new(),
            keys: BTreeMap::new(),
            sizes: BTreeMap::new(),
            reals: BTreeMap::new(),
            swept: None,
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
                let entry = VipEntry { vip: Vip::from_core(&vip), size: vip.size, is_written: false };
                plane.vips.insert(key, entry);
                *plane.keys.entry(vip.number).or_default() += 1;
            }
        }
        let reals: Vec<abi::dwell_real> = maps::read_array(&plane.map("reals"), "reals", options.max_reals + 1)?;
        let found = (0..).zip(&reals).filter_map(|(number, real)| Some((number, Real::from_core(real)?)));
        plane.reals = found.filter(|(number, _)| *number != 0).collect();
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
            self.attachment = Some(link.map(Attachment::Descriptor).map_err(|io| busy(interface, io, IN_THE_WAY))?);
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
        self.set_reals(&[(number, *real)])
    }

    /// Writes several backends, each named once. Their connections follow at once.
    ///
    /// # Errors
    ///
    /// If a number is 0 or exceeds the options. If the maps cannot be written, some may have been.
    pub fn set_reals(&mut self, reals: &[(u32, Real)]) -> Result<(), Error> {
        let numbers: Vec<u32> = reals.iter().map(|(number, _)| *number).collect();
        self.check_reals(&numbers)?;
        let is_new = |number: &u32| !self.reals.contains_key(number);
        let new: Vec<u32> = numbers.iter().copied().filter(is_new).collect();
        maps::reset_counts(&self.map("real_counts"), "real_counts", &new)?;
        maps::write_array(&self.map("open"), "open", &new, &vec![0i64; new.len()])?;
        let values: Vec<abi::dwell_real> = reals.iter().map(|(_, real)| real.to_core()).collect();
        let written = maps::write_array(&self.map("reals"), "reals", &numbers, &values);
        for (number, real) in reals {
            match written {
                Ok(()) => self.reals.insert(*number, *real),
                // Which of them the kernel has is unknown, so that they are to be written again.
                Err(_) => self.reals.remove(number),
            };
        }
        written
    }

    /// Removes backends and their counts. Their connections go elsewhere.
    ///
    /// # Errors
    ///
    /// If a map cannot be written.
    pub fn remove_reals(&mut self, numbers: &[u32]) -> Result<(), Error> {
        self.check_reals(numbers)?;
        let nobody = vec![abi::dwell_real::default(); numbers.len()];
        maps::write_array(&self.map("reals"), "reals", numbers, &nobody)?;
        for number in numbers {
            self.reals.remove(number);
        }
        maps::reset_counts(&self.map("real_counts"), "real_counts", numbers)
    }

    /// Writes a VIP. Its packets are dropped until its number has a table. The counts of a number start with its first
    /// key.
    ///
    /// # Errors
    ///
    /// If the number is 0 or exceeds the options, or the map is full.
    pub fn set_vip(&mut self, key: &VipKey, vip: &Vip) -> Result<(), Error> {
        self.check("VIP", vip.number, self.options.max_vips)?;
        let size = self.sizes.get(&vip.number).copied().unwrap_or(0);
        let is_same = |entry: &VipEntry| entry.is_written && (entry.vip, entry.size) == (*vip, size);
        if self.vips.get(key).is_some_and(is_same) {
            return Ok(());
        }
        if self.keys.get(&vip.number).is_none_or(|keys| *keys == 0) {
            // Connections may have been counted after their VIP was removed.
            maps::reset_counts(&self.map("vip_counts"), "vip_counts", &[vip.number])?;
        }
        // Where the key is, the others are too, even if a process ends here. A bit is never cleared: connections outlive their
        // VIP.
        let map = self.map("maybe");
        let bits: Option<abi::dwell_vip_filter> = maps::read(&map, "maybe", &[0; 4])?;
        let bit = balance::maybe_bit(key.address);
        let mut bits = bits.unwrap_or_default();
        bits.word[bit / 64] |= 1 << (bit % 64);
        maps::write(&map, "maybe", &[0; 4], &bits)?;
        let map = self.map("vips");
        let icmp = key.to_core_icmp();
        maps::write(&map, "vips", icmp.as_bytes(), &abi::dwell_vip::default())?;
        maps::write(&map, "vips", key.to_core().as_bytes(), &vip.to_core(size))?;
        let before = self.vips.insert(*key, VipEntry { vip: *vip, size, is_written: true });
        let before = before.map(|entry| entry.vip.number);
        if before == Some(vip.number) {
            return Ok(());
        }
        *self.keys.entry(vip.number).or_default() += 1;
        self.drop_keys(before.as_slice())
    }

    /// Removes VIPs: new connections to them are no longer balanced, and known ones continue until they end. The table and the counts of
    /// a number are removed with its last key. The kernel waits for its CPUs once for hundreds of tables, not for each.
    /// What cannot be removed does not keep the others.
    ///
    /// # Errors
    ///
    /// The first one, if a map cannot be written.
    pub fn remove_vips(&mut self, keys: &[VipKey]) -> Result<(), Error> {
        // A process that ends meanwhile leaves the tables of a few.
        let mut done = Ok(());
        for some in keys.chunks(maps::SWAP_BATCH / TABLES_PER_VIP as usize) {
            done = done.and(self.remove_some(some));
        }
        done
    }

    fn remove_some(&mut self, keys: &[VipKey]) -> Result<(), Error> {
        let (mut done, mut numbers) = (Ok(()), Vec::new());
        for key in keys.iter().filter(|key| self.vips.contains_key(key)).copied().collect::<Vec<_>>() {
            match maps::delete(&self.map("vips"), "vips", key.to_core().as_bytes()) {
                Ok(()) => numbers.extend(self.vips.remove(&key).map(|entry| entry.vip.number)),
                Err(why) => done = done.and(Err(why)),
            }
        }
        let addresses: BTreeSet<IpAddr> = self.vips.keys().map(|key| key.address).collect();
        for key in keys.iter().filter(|key| !addresses.contains(&key.address)) {
            done = done.and(maps::delete(&self.map("vips"), "vips", key.to_core_icmp().as_bytes()));
        }
        done.and(self.drop_keys(&numbers))
    }

    /// Removes the tables and the counts of numbers that no key uses any more; each occurs once per key that is gone. What cannot
    /// be removed is tried again with the next.
    fn drop_keys(&mut self, gone: &[u32]) -> Result<(), Error> {
        for number in gone {
            self.keys.entry(*number).and_modify(|keys| *keys -= 1);
        }
        let free = self.keys.iter().filter(|(_, keys)| **keys == 0);
        let free: Vec<u32> = free.map(|(number, _)| *number).collect();
        let had_tables = free.iter().copied().filter(|number| self.sizes.contains_key(number));
        let most = self.options.max_vips;
        let tables: Vec<u32> =
            had_tables.flat_map(|number| (0..TABLES_PER_VIP).map(move |kind| number + kind * most)).collect();
        self.remove_tables(&tables)?;
        maps::reset_counts(&self.map("vip_counts"), "vip_counts", &free)?;
        for number in free {
            self.sizes.remove(&number);
            self.keys.remove(&number);
        }
        Ok(())
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
        let (mut left, below) = self.swept.take().unwrap_or_default();
        left.extend(below..count);
        maps::write_array(&self.map("actives"), "actives", &left, &vec![0u64; left.len()])?;
        let none = vec![abi::dwell_pending::default(); left.len()];
        maps::write_array(&self.map("pending"), "pending", &left, &none)?;
        let event_bytes = size_of::<abi::dwell_response_event>() as u32;
        let batch = self.options.ring_bytes() / 2 / (abi::DWELL_WAYS * event_bytes);
        let buckets = self.options.buckets();
        let taken = self.counters()?.table.slots_taken();
        let reason = balance::sweep_reason(taken, self.options.slots().into());
        for first in (0..buckets).step_by(batch as usize) {
            self.events.drain(&mut emit)?;
            let part = batch.min(buckets - first);
            let program = load::program(&self.object, "sweep");
            events::sweep(&program, first, part, reason, 0)?;
        }
        self.events.drain(emit)?;
        let words: Vec<u64> = maps::read_array(&self.map("actives"), "actives", count)?;
        // Where a request waits, there is a connection.
        let left: Vec<u32> = (0..).zip(&words).filter(|(_, word)| **word != 0).map(|(number, _)| number).collect();
        let pending: Vec<abi::dwell_pending> = match left.last() {
            Some(last) => maps::read_array(&self.map("pending"), "pending", last + 1)?,
            None => Vec::new(),
        };
        self.swept = Some((left, count));
        let found = ActiveConnections::from_core(words, &pending);
        self.correct_open(&before, &found)?;
        Ok(found)
    }

    /// Sets the open connections of backends to what a sweep has found. `before` is what the map said when the sweep began.
    fn correct_open(&mut self, before: &[i64], found: &ActiveConnections) -> Result<(), Error> {
        let now: Vec<i64> = maps::read_array(&self.map("open"), "open", before.len() as u32)?;
        let open = found.open(before, &now);
        let differs = (0..).zip(open.iter().zip(&now)).filter(|(_, (open, now))| open != now);
        let (numbers, open): (Vec<u32>, Vec<i64>) = differs.map(|(number, (open, _))| (number, *open)).unzip();
        maps::write_array(&self.map("open"), "open", &numbers, &open)
    }

    /// Takes connections that are probably over from those that backends have open, given by their numbers.
    ///
    /// # Errors
    ///
    /// If the map cannot be read or written.
    pub fn take_open(&mut self, over: &[(u32, u64)]) -> Result<(), Error> {
        let Some(last) = over.iter().map(|(number, _)| *number).max() else {
            return Ok(());
        };
        let open: Vec<i64> = maps::read_array(&self.map("open"), "open", last + 1)?;
        let left = |(number, over): &(u32, u64)| (open[*number as usize] - over.cast_signed()).max(0);
        let (numbers, left): (Vec<u32>, Vec<i64>) = over.iter().map(|it| (it.0, left(it))).unzip();
        maps::write_array(&self.map("open"), "open", &numbers, &left)
    }

    /// Returns the counters, summed over all CPUs.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        let cpus: Vec<abi::dwell_balance_counters> = read_cpus(&self.map("counters"), "counters", 0)?;
        Ok(Counters::sum(&cpus))
    }

    /// Returns the number of runs of the program that balances and their time in nanoseconds since it was loaded, if the kernel
    /// counts them (sysctl kernel.bpf_stats_enabled).
    pub fn run_time(&self) -> Option<(u64, u64)> {
        let program = |name| load::run_time(&load::find_program(&self.object, name)?);
        [PROGRAM, CHAINED].into_iter().filter_map(program).find(|(runs, _)| *runs > 0)
    }

    /// Returns the traffic of each VIP, by its number; index 0 is empty.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn vip_loads(&mut self) -> Result<Vec<Load>, Error> {
        let numbers = self.keys.keys().next_back().copied().unwrap_or(0);
        maps::read_loads(&self.map("vip_counts"), "vip_counts", numbers + 1)
    }

    /// Returns the traffic of each backend, by its number; index 0 is empty.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn real_loads(&mut self) -> Result<Vec<Load>, Error> {
        let numbers = self.reals.keys().next_back().copied().unwrap_or(0);
        maps::read_loads(&self.map("real_counts"), "real_counts", numbers + 1)
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

    /// Returns the number of connections that the connection table has room for.
    pub fn capacity(&self) -> u32 {
        self.options.slots()
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

pub(super) const IN_THE_WAY: &str = "another XDP program is attached, perhaps that of another balancer or of \
                                     `dwell response` (`dwell doctor` shows it): detach it, or let it call this one \
                                     by tail call";

/// Explains why an interface refused the program. `in_the_way` is the remedy if it has another one.
pub(super) fn busy(interface: &Interface, io: std::io::Error, in_the_way: &'static str) -> Error {
    let remedy = match io.kind() {
        std::io::ErrorKind::PermissionDenied => remedy_for_missing(),
        std::io::ErrorKind::ResourceBusy | std::io::ErrorKind::AlreadyExists => in_the_way,
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
    for mut program in object.progs_mut() {
        match program.name().to_str() {
            Some(CHAINED) => program.set_autoload(options.chain.is_some()),
            Some(PROGRAM) => program.set_autoload(options.chain.is_none()),
            Some(dry_run::ASK) => program.set_autoload(false),
            _ => {}
        }
    }
    load::load_looping(WHAT, object)
}
