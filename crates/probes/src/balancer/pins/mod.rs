//! A data plane that outlives its process: its maps and its link are pinned in a folder of bpffs, where the next
//! process finds them.

mod folder;
mod migrate;

use std::{
    borrow::Cow,
    fs::{self, File},
    io,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
};

use dwell_engine::abi;
use dwell_socket::clock::monotonic_ns;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, Object, OpenMapMut, Program, query::LinkTypeInfo};
use nix::{
    fcntl::{Flock, FlockArg},
    sys::statfs::{BPF_FS_MAGIC, fstatfs, statfs},
};

use self::{folder::open_private, migrate::Migration};
use super::{
    maps,
    options::PlaneOptions,
    plane::{CHAINED, IN_THE_WAY, PROGRAM, Plane, busy, load_object, open_object, opened},
};
use crate::{
    Chain, Error, Interface, XdpMode, attach,
    error::io_error,
    host::{bpf_filesystem_remedy, program_by_id, xdp_mode},
    load,
    vantage::failed,
};

/// The maps whose contents must not be lost. The others belong to the process.
const PINNED: [&str; 24] = [
    "buckets",
    "slots",
    "pool",
    "states",
    "state_pool",
    "counters",
    "events",
    "vips",
    "maybe",
    "reals",
    "tables",
    "vip_counts",
    "real_counts",
    "actives",
    "open",
    "zero_vips",
    "zero_ids",
    "zero_names",
    "zero_loads",
    "zero_numbers",
    "zero_state",
    "heavies",
    "heartbeat",
    "layout",
];
/// The map that is pinned last. Without it, the pinned maps may belong to different data planes.
const LAST_PIN: &str = "maybe";
const LINK_PIN: &str = "link";
/// The pins of a program that another program calls: the program itself, and the other's array.
const CHAINED_PIN: &str = "program";
const CHAIN_PIN: &str = "chain";

/// How a data plane was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartKind {
    /// Nothing was pinned: the data plane is new.
    New,
    /// A running data plane was taken over: connections and tables are kept, and no packet was lost. Latency records
    /// that nobody has read are discarded.
    TakenOver,
    /// A data plane that cannot be taken over was replaced, and its connections are forgotten: their packets go where
    /// the tables say. If only its sizes or its estimator differ, VIPs, backends, tables, connection IDs and counts are
    /// kept, and it balanced until the moment of its replacement. Otherwise there are none ([`Plane::vips`] shows
    /// which).
    Replaced {
        /// The reason, as in "it has room for a different number of connections".
        why: String,
    },
}

/// A folder of pins, locked by this process.
pub(super) struct Folder {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Plane {
    /// Starts the data plane that is pinned in a folder of bpffs: takes it over, replaces it, or creates it along with
    /// the folder.
    ///
    /// # Errors
    ///
    /// If the folder is not in bpffs, if another process runs the data plane, or if the interface has another XDP
    /// program.
    pub fn run_at(options: &PlaneOptions, interface: &Interface, folder: &Path) -> Result<(Plane, StartKind), Error> {
        let locked = Folder::lock(folder)?;
        Plane::run_in(locked, options, interface).inspect_err(|_| {
            // One that has anything in it stays.
            let _ = fs::remove_dir(folder);
        })
    }

    fn run_in(folder: Folder, options: &PlaneOptions, interface: &Interface) -> Result<(Plane, StartKind), Error> {
        let found = folder.inspect(options, interface)?;
        // What another version left there may not be readable.
        let inherited = Plane::heartbeat_at(&folder.path).unwrap_or_default();
        let inherited_age = inherited.map(|heartbeat| heartbeat.age(monotonic_ns()));
        let mut options = options.seeded();
        let mut plane = if let PinnedState::Usable { table_seed } = found {
            options.table_seed = table_seed;
            let object = load_object(&options, |name, map| folder.share(name, map))?;
            let mut plane = Plane::from_object(object, &options)?;
            folder.update(&plane, &options, interface)?;
            plane.discard_records()?;
            plane
        } else {
            let object = load_object(&options, |_, _| Ok(()))?;
            if let PinnedState::Changed { .. } = found {
                folder.migrate(&object, &options)?;
            }
            let mut plane = Plane::from_object(object, &options)?;
            plane.write_layout()?;
            if let PinnedState::Changed { .. } = found {
                folder.replace(&mut plane, &options, interface)?;
            } else {
                folder.start(&mut plane, &options, interface)?;
            }
            plane
        };
        plane.set_ingress(interface);
        plane.folder = Some(folder);
        plane.inherited_age = inherited_age;
        let start = match found {
            PinnedState::Nothing => StartKind::New,
            PinnedState::Usable { .. } => StartKind::TakenOver,
            PinnedState::Changed { why } | PinnedState::Unusable { why } => StartKind::Replaced { why },
        };
        Ok((plane, start))
    }

    /// Detaches the data plane that is pinned in a folder, and removes it. False if there is none.
    ///
    /// # Errors
    ///
    /// If a process runs it, or it cannot be removed.
    pub fn detach_at(folder: &Path) -> Result<bool, Error> {
        if !folder.exists() {
            return Ok(false);
        }
        let locked = Folder::lock(folder)?;
        let found = locked.remove()?;
        fs::remove_dir(folder).map_err(|io| pin_error("remove", folder, io))?;
        Ok(found)
    }

    /// Returns whether a folder is in a BPF file system, or would be if it were made. `None` if that cannot be read.
    pub fn may_be_pinned_in(folder: &Path) -> Option<bool> {
        let there = folder.ancestors().find(|above| above.exists())?;
        statfs(there).ok().map(|there| there.filesystem_type() == BPF_FS_MAGIC)
    }

    /// Returns whether the data plane that is pinned in a folder is attached to an interface: not once that is gone. `None` where
    /// another program calls it, or that cannot be read.
    pub fn is_attached_at(folder: &Path) -> Option<bool> {
        let link = Link::open(folder.join(LINK_PIN)).and_then(|link| link.info()).ok()?;
        match link.info {
            LinkTypeInfo::Xdp(xdp) => Some(xdp.ifindex != 0),
            _ => None,
        }
    }
}

enum PinnedState {
    Nothing,
    Usable {
        table_seed: u64,
    },
    /// Everything except its connections can be migrated.
    Changed {
        why: String,
    },
    Unusable {
        why: String,
    },
}

impl Folder {
    /// Creates the folder, and locks it against other processes. Only its owner can open it, so that nobody else can hold
    /// the lock.
    fn lock(path: &Path) -> Result<Folder, Error> {
        let file = open_private(path)?;
        let file_system = fstatfs(&file).map_err(|errno| pin_error("inspect", path, errno.into()))?;
        if file_system.filesystem_type() != BPF_FS_MAGIC {
            return Err(Error::Pin {
                operation: "pin in",
                path: path.into(),
                io: io::Error::other("it is not in a BPF file system"),
                remedy: pin_remedy("name a folder below /sys/fs/bpf"),
            });
        }
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| Error::Pin {
            operation: "take over",
            path: path.into(),
            io: errno.into(),
            remedy: "another process runs the balancer that is pinned there: stop it first".into(),
        })?;
        Ok(Folder { path: path.into(), _lock: lock })
    }

    fn pin(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the path of the pin that is to replace another one. bpffs reserves names with dots.
    fn next_pin(&self, name: &str) -> PathBuf {
        self.path.join(format!("next-{name}"))
    }

    fn map(&self, name: &str) -> Result<MapHandle, Error> {
        MapHandle::from_pinned_path(self.pin(name))
            .map_err(|error| pin_error("open", &self.pin(name), io_error(&error)))
    }

    /// Decides whether the pinned data plane can be taken over.
    fn inspect(&self, options: &PlaneOptions, interface: &Interface) -> Result<PinnedState, Error> {
        let names = PINNED.iter().chain(&[LINK_PIN, CHAINED_PIN]);
        if !names.into_iter().any(|name| self.pin(name).exists()) {
            return Ok(PinnedState::Nothing);
        }
        let unusable = |why: &str| Ok(PinnedState::Unusable { why: why.into() });
        if PINNED.iter().any(|name| !self.pin(name).exists()) {
            return unusable("it is incomplete: a process ended while it created or removed it");
        }
        if !self.matches_this_build()? {
            return unusable("it belongs to another version");
        }
        let layout = self.layout()?;
        let wanted = options.layout();
        if (layout.layout, layout.slot_bytes) != (wanted.layout, wanted.slot_bytes) {
            return unusable("it belongs to another version");
        }
        if layout.chain_slot != wanted.chain_slot || !self.is_in_chain(options)? {
            return unusable("it is chained differently");
        }
        if options.chain.is_none() {
            let link = Link::open(self.pin(LINK_PIN)).and_then(|link| link.info());
            match link.map(|link| link.info) {
                Ok(LinkTypeInfo::Xdp(xdp)) if xdp.ifindex == interface.index => {}
                Ok(LinkTypeInfo::Xdp(xdp)) if xdp.ifindex == 0 => {
                    return unusable("its interface is gone");
                }
                Ok(LinkTypeInfo::Xdp(_)) => return unusable("it is attached to another interface"),
                _ => return unusable("it is not attached"),
            }
        }
        let changed = |why: String| Ok(PinnedState::Changed { why });
        if layout.estimator != wanted.estimator {
            return changed("its latency estimator has other settings".into());
        }
        for name in PINNED {
            let wanted = options.entries(name);
            if wanted.is_some() && wanted != Some(self.map(name)?.max_entries()) {
                let what = contents_of(name);
                return changed(format!("it has room for a different number of {what}"));
            }
        }
        Ok(PinnedState::Usable { table_seed: layout.table_seed })
    }

    fn layout(&self) -> Result<abi::dwell_balance_layout, Error> {
        let layout = maps::read(&self.map("layout")?, "layout", &[0; 4])?;
        Ok(layout.unwrap_or_default())
    }

    /// Whether the pinned maps have the types and sizes of this build.
    fn matches_this_build(&self) -> Result<bool, Error> {
        let object = open_object()?;
        for ours in object.maps() {
            let Some(name) = PINNED.into_iter().find(|name| ours.name() == *name) else {
                continue;
            };
            let pinned = self.map(name)?;
            let is_same = pinned.map_type() == ours.map_type()
                && (pinned.key_size(), pinned.value_size()) == (ours.key_size(), ours.value_size());
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the configured chain is the one that the pinned program is in.
    fn is_in_chain(&self, options: &PlaneOptions) -> Result<bool, Error> {
        let Some(chain) = &options.chain else {
            return Ok(true);
        };
        if !self.pin(CHAIN_PIN).exists() {
            return Ok(false);
        }
        let id = |map: &MapHandle| Ok(map.info().map_err(failed("read", "chain"))?.info.id);
        Ok(id(&chain.open()?)? == id(&self.map(CHAIN_PIN)?)?)
    }

    /// Makes a map of an object that is being loaded share the pinned one.
    fn share(&self, name: &str, map: &mut OpenMapMut<'_>) -> Result<(), Error> {
        if !PINNED.contains(&name) {
            return Ok(());
        }
        map.reuse_fd(self.map(name)?.as_fd()).map_err(|error| pin_error("share", &self.pin(name), io_error(&error)))
    }

    /// Replaces the running program with that of this process.
    fn update(&self, plane: &Plane, options: &PlaneOptions, interface: &Interface) -> Result<(), Error> {
        let Some(chain) = &options.chain else {
            if !is_in_mode(options.mode, interface) {
                return self.change_mode(plane, options.mode, interface);
            }
            let program = opened(plane.object.progs(), PROGRAM);
            return Link::open(self.pin(LINK_PIN))
                .and_then(|mut link| link.update_prog(&program))
                .map_err(|error| pin_error("update", &self.pin(LINK_PIN), io_error(&error)));
        };
        let program = load::program(&plane.object, CHAINED);
        let is_ours = self.slot_is_ours()?;
        // Whenever this process may end, one of the two pins belongs to the running program.
        self.finish_chained()?;
        pin_program(plane, &self.next_pin(CHAINED_PIN))?;
        if is_ours {
            chain.replace(&program)?;
        } else {
            std::mem::forget(chain.enter(&program)?);
        }
        self.rename(CHAINED_PIN)
    }

    /// Replaces the running program with that of this process, in another mode. A device has one mode at a time, so that
    /// nothing balances in between. If the device refuses, the former program runs on in its mode.
    fn change_mode(&self, plane: &Plane, mode: XdpMode, interface: &Interface) -> Result<(), Error> {
        let former_mode = xdp_mode(interface.index).unwrap_or_default();
        let former = Link::open(self.pin(LINK_PIN))
            .and_then(|link| link.info())
            .map_err(|error| io_error(&error))
            .and_then(|link| program_by_id(link.prog_id))
            .map_err(|io| pin_error("inspect", &self.pin(LINK_PIN), io))?;
        self.detach()?;
        unpin(&self.pin(LINK_PIN))?;
        let program = load::program(&plane.object, PROGRAM);
        self.attach(program.as_fd(), mode, interface)
            .or_else(|why| self.attach(former.as_fd(), former_mode, interface).and(Err(why)))
    }

    /// Cleans up after a process that ended during an update: of the two pins, the one of the running program is kept.
    fn finish_chained(&self) -> Result<(), Error> {
        let next = self.next_pin(CHAINED_PIN);
        let running = self.program_in_slot()?;
        if running.is_some() && program_id(&next)? == running {
            return self.rename(CHAINED_PIN);
        }
        unpin(&next).map(drop)
    }

    /// Replaces a pin with its successor.
    fn rename(&self, name: &str) -> Result<(), Error> {
        fs::rename(self.next_pin(name), self.pin(name)).map_err(|io| pin_error("replace", &self.pin(name), io))
    }

    /// Copies the contents of the pinned maps to those of an object.
    fn migrate(&self, object: &Object, options: &PlaneOptions) -> Result<(), Error> {
        let ours = |name: &str| {
            let map = object.maps().find(|map| map.name() == name && map.map_type() != MapType::ProgArray);
            let map = map.unwrap_or_else(|| panic!("the object has the map {name}"));
            MapHandle::try_from(&map).map_err(failed("read", "maps"))
        };
        Migration { from: |name: &str| self.map(name), to: ours }.all(options)
    }

    /// Runs a program whose maps are already filled, and replaces the pins. A process that ends meanwhile leaves either
    /// the old maps or an incomplete folder.
    fn replace(&self, plane: &mut Plane, options: &PlaneOptions, interface: &Interface) -> Result<(), Error> {
        for name in PINNED {
            unpin(&self.next_pin(name))?;
            pin_map(plane, name, &self.next_pin(name))?;
        }
        self.update(plane, options, interface)?;
        unpin(&self.pin(LAST_PIN))?;
        let others = PINNED.into_iter().filter(|name| *name != LAST_PIN);
        others.chain([LAST_PIN]).try_for_each(|name| self.rename(name))
    }

    /// Removes what is pinned, attaches the program and pins it.
    fn start(&self, plane: &mut Plane, options: &PlaneOptions, interface: &Interface) -> Result<(), Error> {
        self.remove()?;
        if let Some(chain) = &options.chain {
            // The program is pinned first, so that the slot is recognized as ours in any case.
            let entered = self
                .pin_before_entering(plane, chain)
                .and_then(|()| chain.enter(&load::program(&plane.object, CHAINED)));
            return match entered {
                Ok(slot) => {
                    // The program stays in the slot when this process ends.
                    std::mem::forget(slot);
                    Ok(())
                }
                Err(why) => self.remove().and(Err(why)),
            };
        }
        self.pin_maps(plane)?;
        let pinned = self.attach(load::program(&plane.object, PROGRAM).as_fd(), options.mode, interface);
        if pinned.is_err() {
            self.remove()?;
        }
        pinned
    }

    /// Attaches a program, and pins its link.
    fn attach(&self, program: BorrowedFd<'_>, mode: XdpMode, interface: &Interface) -> Result<(), Error> {
        let link = attach::xdp(program, interface.index, mode).map_err(|io| busy(interface, io, IN_THE_WAY))?;
        attach::pin_link(&link, &self.pin(LINK_PIN)).map_err(|io| pin_error("pin", &self.pin(LINK_PIN), io))
    }

    /// Detaches the program whose link is pinned.
    fn detach(&self) -> Result<(), Error> {
        let detached = Link::open(self.pin(LINK_PIN)).and_then(|link| link.detach());
        detached.map_err(|error| pin_error("detach", &self.pin(LINK_PIN), io_error(&error)))
    }

    fn pin_before_entering(&self, plane: &mut Plane, chain: &Chain) -> Result<(), Error> {
        self.pin_maps(plane)?;
        chain
            .open()?
            .pin(self.pin(CHAIN_PIN))
            .map_err(|error| pin_error("pin", &self.pin(CHAIN_PIN), io_error(&error)))?;
        pin_program(plane, &self.pin(CHAINED_PIN))
    }

    fn pin_maps(&self, plane: &mut Plane) -> Result<(), Error> {
        PINNED.into_iter().try_for_each(|name| pin_map(plane, name, &self.pin(name)))
    }

    /// Returns the ID of the program in the slot of the chain.
    fn program_in_slot(&self) -> Result<Option<u32>, Error> {
        if !self.pin(CHAIN_PIN).exists() || !self.pin("layout").exists() {
            return Ok(None);
        }
        let Some(slot) = self.layout()?.chain_slot.checked_sub(1) else {
            return Ok(None);
        };
        let found = self.map(CHAIN_PIN)?.lookup(&slot.to_ne_bytes(), MapFlags::ANY);
        let id = found.ok().flatten().and_then(|id| id.try_into().ok());
        Ok(id.map(u32::from_ne_bytes))
    }

    /// Whether the slot of the chain holds a program that is pinned here.
    fn slot_is_ours(&self) -> Result<bool, Error> {
        let running = self.program_in_slot()?;
        let pins = [self.pin(CHAINED_PIN), self.next_pin(CHAINED_PIN)];
        for pin in pins {
            if running.is_some() && program_id(&pin)? == running {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Detaches and unpins everything. False if there was nothing.
    fn remove(&self) -> Result<bool, Error> {
        let mut found = false;
        if self.pin(LINK_PIN).exists() {
            self.detach()?;
        }
        if self.slot_is_ours()? {
            let slot = self.layout()?.chain_slot - 1;
            maps::delete(&self.map(CHAIN_PIN)?, CHAIN_PIN, &slot.to_ne_bytes())?;
        }
        let names = [LINK_PIN, CHAINED_PIN, CHAIN_PIN].into_iter().chain(PINNED);
        for name in names {
            found |= unpin(&self.pin(name))? | unpin(&self.next_pin(name))?;
        }
        Ok(found)
    }
}

/// Whether the program of an interface is run by what is wanted. A link keeps its mode, and whether the driver would take it now
/// shows only once it is gone.
fn is_in_mode(wanted: XdpMode, interface: &Interface) -> bool {
    wanted == XdpMode::Any || xdp_mode(interface.index).is_none_or(|running| running == wanted)
}

/// Describes the contents of a map, in the plural.
fn contents_of(map: &str) -> &'static str {
    match map {
        "buckets" | "slots" => "connections",
        "states" => "connections that are measured",
        "events" => "records of latency",
        "vips" | "tables" | "vip_counts" => "VIPs",
        "zero_vips" | "zero_ids" | "zero_loads" => "VIPs with the policy zero-rtt",
        "heavies" | "zero_names" => "backends of VIPs with the policy zero-rtt",
        _ => "backends",
    }
}

fn pin_map(plane: &mut Plane, name: &str, path: &Path) -> Result<(), Error> {
    let pinned = plane.map(name).pin(path);
    pinned.map_err(|error| pin_error("pin", path, io_error(&error)))
}

fn pin_program(plane: &Plane, path: &Path) -> Result<(), Error> {
    let pinned = load::program(&plane.object, CHAINED).pin(path);
    pinned.map_err(|error| pin_error("pin", path, io_error(&error)))
}

/// Returns the ID of a pinned program; none if no program is pinned.
fn program_id(path: &Path) -> Result<Option<u32>, Error> {
    if !path.exists() {
        return Ok(None);
    }
    Program::fd_from_pinned_path(path)
        .and_then(|fd| Program::id_from_fd(fd.as_fd()))
        .map(Some)
        .map_err(|error| pin_error("inspect", path, io_error(&error)))
}

fn unpin(path: &Path) -> Result<bool, Error> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(io) if io.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(io) => Err(pin_error("remove", path, io)),
    }
}

fn pin_error(operation: &'static str, path: &Path, io: io::Error) -> Error {
    Error::Pin { operation, path: path.into(), io, remedy: pin_remedy("this needs root") }
}

/// What to do where nothing can be pinned: `otherwise` if there is a BPF file system.
pub(super) fn pin_remedy(otherwise: &'static str) -> Cow<'static, str> {
    bpf_filesystem_remedy().map_or(otherwise.into(), Cow::Owned)
}
