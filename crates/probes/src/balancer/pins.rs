//! A data plane that outlives the process which runs it: its maps and its link are
//! pinned in a folder of bpffs, where the next process finds them.

use std::{
    fs::{self, File},
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use dwell_engine::abi;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, OpenMapMut, Program, query::LinkTypeInfo};
use nix::{
    fcntl::{Flock, FlockArg},
    sys::statfs::{BPF_FS_MAGIC, statfs},
};

use super::{
    carry::Carry,
    maps,
    options::PlaneOptions,
    plane::{CHAINED, PROGRAM, Plane, busy, load_object, open_object, opened},
};
use crate::{Chain, Error, Interface, error::io_error, load, vantage::failed};

/// Maps that hold what must not be lost. Others are of the process.
const PINNED: [&str; 20] = [
    "buckets",
    "seats",
    "pool",
    "counters",
    "events",
    "vips",
    "maybe",
    "reals",
    "tables",
    "vip_counts",
    "real_counts",
    "actives",
    "zero_vips",
    "zero_ids",
    "zero_names",
    "zero_loads",
    "zero_places",
    "zero_state",
    "heavies",
    "layout",
];
/// Without it, maps that are pinned may not be of one data plane.
const LAST: &str = "maybe";
const LINK: &str = "link";
/// Of a program that another calls: the program itself, and the other's array.
const CHAINED_PIN: &str = "program";
const CHAIN_PIN: &str = "chain";

/// What was found where a data plane is pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// Nothing: it begins now.
    New,
    /// One that runs: connections and tables are kept, and no packet was lost.
    /// Records of latency that nobody has read are forgotten.
    Over,
    /// One that cannot be gone on with. It was replaced, and its connections are
    /// forgotten: their packets go where the tables say. If it was loaded with
    /// other sizes or for another estimator, VIPs, backends, tables, connection IDs
    /// and counts are kept, and it balanced until it was replaced, at once; otherwise there are
    /// none ([`Plane::vips`] tells).
    Anew {
        /// In words, as in "it has room for another number of connections".
        why: String,
    },
}

/// The folder, while this process runs what is pinned there.
pub(super) struct Folder {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Plane {
    /// Pins maps and link in a folder of bpffs, made if need be, or goes on with
    /// those that are pinned there.
    ///
    /// # Errors
    ///
    /// If the folder is not in bpffs, another process runs what is there, or the
    /// interface has another XDP program.
    pub fn run_at(options: &PlaneOptions, interface: &Interface, folder: &Path) -> Result<(Plane, Taken), Error> {
        let folder = Folder::take(folder)?;
        let found = folder.find(options, interface)?;
        let mut options = options.seeded();
        let mut plane = if let Found::Usable { table_seed } = found {
            options.table_seed = table_seed;
            let object = load_object(&options, |name, map| folder.share(name, map))?;
            let mut plane = Plane::of(object, &options)?;
            folder.update(&plane, &options)?;
            plane.forget_records()?;
            plane
        } else {
            let object = load_object(&options, |_, _| Ok(()))?;
            if let Found::Changed { .. } = found {
                folder.carry(&object, &options)?;
            }
            let mut plane = Plane::of(object, &options)?;
            plane.write_layout()?;
            if let Found::Changed { .. } = found {
                folder.replace(&mut plane, &options)?;
            } else {
                folder.begin(&mut plane, &options, interface)?;
            }
            plane
        };
        plane.come_in_at(interface);
        plane.folder = Some(folder);
        let taken = match found {
            Found::Nothing => Taken::New,
            Found::Usable { .. } => Taken::Over,
            Found::Changed { why } | Found::Useless { why } => Taken::Anew { why },
        };
        Ok((plane, taken))
    }

    /// Detaches what is pinned in a folder, and removes it. False if there is
    /// nothing.
    ///
    /// # Errors
    ///
    /// If a process runs it, or it cannot be removed.
    pub fn detach_at(folder: &Path) -> Result<bool, Error> {
        if !folder.exists() {
            return Ok(false);
        }
        let taken = Folder::take(folder)?;
        let found = taken.remove()?;
        fs::remove_dir(folder).map_err(|io| pin_error("remove", folder, io))?;
        Ok(found)
    }
}

enum Found {
    Nothing,
    Usable {
        table_seed: u64,
    },
    /// All but its connections can be carried over.
    Changed {
        why: String,
    },
    Useless {
        why: String,
    },
}

impl Folder {
    /// Makes it, and keeps other processes out.
    fn take(path: &Path) -> Result<Folder, Error> {
        fs::create_dir_all(path).map_err(|io| pin_error("make", path, io))?;
        let file_system = statfs(path).map_err(|errno| pin_error("look at", path, errno.into()))?;
        if file_system.filesystem_type() != BPF_FS_MAGIC {
            return Err(Error::Pin {
                operation: "pin in",
                path: path.into(),
                io: io::Error::other("it is not in bpffs"),
                remedy: "name a folder below /sys/fs/bpf, and mount that if need be: mount -t bpf bpf /sys/fs/bpf",
            });
        }
        let file = File::open(path).map_err(|io| pin_error("open", path, io))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| Error::Pin {
            operation: "take over",
            path: path.into(),
            io: errno.into(),
            remedy: "another process runs the balancer that is pinned there: end it first",
        })?;
        Ok(Folder { path: path.into(), _lock: lock })
    }

    fn pin(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What is to take the place of a pin. Names with dots are the kernel's own.
    fn next(&self, name: &str) -> PathBuf {
        self.path.join(format!("next-{name}"))
    }

    fn map(&self, name: &str) -> Result<MapHandle, Error> {
        MapHandle::from_pinned_path(self.pin(name))
            .map_err(|error| pin_error("open", &self.pin(name), io_error(&error)))
    }

    /// Whether what is there can be gone on with.
    fn find(&self, options: &PlaneOptions, interface: &Interface) -> Result<Found, Error> {
        let names = PINNED.iter().chain(&[LINK, CHAINED_PIN]);
        if !names.into_iter().any(|name| self.pin(name).exists()) {
            return Ok(Found::Nothing);
        }
        let useless = |why: &str| Ok(Found::Useless { why: why.into() });
        if PINNED.iter().any(|name| !self.pin(name).exists()) {
            return useless("it is not whole: a process was ended while it made or removed it");
        }
        if !self.is_of_this_build()? {
            return useless("it is of another version");
        }
        let layout = self.layout()?;
        let wanted = options.layout();
        if (layout.layout, layout.slot_bytes) != (wanted.layout, wanted.slot_bytes) {
            return useless("it is of another version");
        }
        if layout.chain_slot != wanted.chain_slot || !self.is_chained_there(options)? {
            return useless("it was chained in another way");
        }
        if options.chain.is_none() {
            let link = Link::open(self.pin(LINK)).and_then(|link| link.info());
            match link.map(|link| link.info) {
                Ok(LinkTypeInfo::Xdp(xdp)) if xdp.ifindex == interface.index => {}
                Ok(LinkTypeInfo::Xdp(xdp)) if xdp.ifindex == 0 => {
                    return useless("its interface has gone");
                }
                Ok(LinkTypeInfo::Xdp(_)) => return useless("it is at another interface"),
                _ => return useless("it is attached nowhere"),
            }
        }
        let changed = |why: String| Ok(Found::Changed { why });
        if layout.estimator != wanted.estimator {
            return changed("its latencies are estimated in another way".into());
        }
        for name in PINNED {
            let wanted = options.entries(name);
            if wanted.is_some() && wanted != Some(self.map(name)?.max_entries()) {
                let what = what_it_holds(name);
                return changed(format!("it has room for another number of {what}"));
            }
        }
        Ok(Found::Usable { table_seed: layout.table_seed })
    }

    fn layout(&self) -> Result<abi::dwell_balance_layout, Error> {
        let layout = maps::read(&self.map("layout")?, "layout", &[0; 4])?;
        Ok(layout.unwrap_or_default())
    }

    /// Whether the pinned maps have the shape of ours.
    fn is_of_this_build(&self) -> Result<bool, Error> {
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

    /// Whether the chain's array is the one that the pinned program is in.
    fn is_chained_there(&self, options: &PlaneOptions) -> Result<bool, Error> {
        let Some(chain) = &options.chain else {
            return Ok(true);
        };
        if !self.pin(CHAIN_PIN).exists() {
            return Ok(false);
        }
        let id = |map: &MapHandle| Ok(map.info().map_err(failed("read", "chain"))?.info.id);
        Ok(id(&chain.open()?)? == id(&self.map(CHAIN_PIN)?)?)
    }

    /// Has a map of ours be the one that is pinned.
    fn share(&self, name: &str, map: &mut OpenMapMut<'_>) -> Result<(), Error> {
        if !PINNED.contains(&name) {
            return Ok(());
        }
        map.reuse_fd(self.map(name)?.as_fd()).map_err(|error| pin_error("share", &self.pin(name), io_error(&error)))
    }

    /// Puts our program in the place of the one that runs.
    fn update(&self, plane: &Plane, options: &PlaneOptions) -> Result<(), Error> {
        let Some(chain) = &options.chain else {
            let program = opened(plane.object.progs(), PROGRAM);
            return Link::open(self.pin(LINK))
                .and_then(|mut link| link.update_prog(&program))
                .map_err(|error| pin_error("update", &self.pin(LINK), io_error(&error)));
        };
        let program = load::program(&plane.object, CHAINED);
        let is_ours = self.slot_is_ours()?;
        // Whenever this process is ended, one of the pins is of what runs.
        self.finish_chained()?;
        pin_program(plane, &self.next(CHAINED_PIN))?;
        if is_ours {
            chain.replace(&program)?;
        } else {
            std::mem::forget(chain.enter(&program)?);
        }
        self.rename(CHAINED_PIN)
    }

    /// After a process that was ended as it updated: of two pins, the one of what
    /// runs is left.
    fn finish_chained(&self) -> Result<(), Error> {
        let next = self.next(CHAINED_PIN);
        let running = self.in_slot()?;
        if running.is_some() && program_id(&next)? == running {
            return self.rename(CHAINED_PIN);
        }
        unpin(&next).map(drop)
    }

    /// Has what is pinned as the next be what is pinned.
    fn rename(&self, name: &str) -> Result<(), Error> {
        fs::rename(self.next(name), self.pin(name)).map_err(|io| pin_error("replace", &self.pin(name), io))
    }

    /// Fills the maps of an object with what the pinned ones hold.
    fn carry(&self, object: &Object, options: &PlaneOptions) -> Result<(), Error> {
        let ours = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            let map = map.unwrap_or_else(|| panic!("the object has the map {name}"));
            MapHandle::try_from(&map).map_err(failed("read", "maps"))
        };
        Carry { from: |name: &str| self.map(name), to: ours }.all(options)
    }

    /// Has a program run that knows all already, and pins its maps in the place of
    /// those that were. A process that is ended on the way leaves the old maps, or
    /// a folder that is not whole.
    fn replace(&self, plane: &mut Plane, options: &PlaneOptions) -> Result<(), Error> {
        for name in PINNED {
            unpin(&self.next(name))?;
            pin_map(plane, name, &self.next(name))?;
        }
        self.update(plane, options)?;
        unpin(&self.pin(LAST))?;
        let others = PINNED.into_iter().filter(|name| *name != LAST);
        others.chain([LAST]).try_for_each(|name| self.rename(name))
    }

    /// Removes what there may be, attaches the program and pins it.
    fn begin(&self, plane: &mut Plane, options: &PlaneOptions, interface: &Interface) -> Result<(), Error> {
        self.remove()?;
        if let Some(chain) = &options.chain {
            // pinned first, so that the slot is known to be ours whatever happens
            let entered = self
                .pin_before_it_is_called(plane, chain)
                .and_then(|()| chain.enter(&load::program(&plane.object, CHAINED)));
            return match entered {
                Ok(slot) => {
                    // it stays when this process ends
                    std::mem::forget(slot);
                    Ok(())
                }
                Err(why) => self.remove().and(Err(why)),
            };
        }
        self.pin_maps(plane)?;
        let program = load::program(&plane.object, PROGRAM);
        let attached = program.attach_xdp(interface.index as i32);
        let pinned = attached.map_err(|error| busy(interface, io_error(&error))).and_then(|mut link| {
            link.pin(self.pin(LINK)).map_err(|error| pin_error("pin", &self.pin(LINK), io_error(&error)))
        });
        if pinned.is_err() {
            self.remove()?;
        }
        pinned
    }

    fn pin_before_it_is_called(&self, plane: &mut Plane, chain: &Chain) -> Result<(), Error> {
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

    /// The number of the program in our slot of the chain.
    fn in_slot(&self) -> Result<Option<u32>, Error> {
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
        let running = self.in_slot()?;
        let pins = [self.pin(CHAINED_PIN), self.next(CHAINED_PIN)];
        for pin in pins {
            if running.is_some() && program_id(&pin)? == running {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Detaches and unpins all. False if there was nothing.
    fn remove(&self) -> Result<bool, Error> {
        let mut found = false;
        if self.pin(LINK).exists() {
            let detached = Link::open(self.pin(LINK)).and_then(|link| link.detach());
            detached.map_err(|error| pin_error("detach", &self.pin(LINK), io_error(&error)))?;
        }
        if self.slot_is_ours()? {
            let slot = self.layout()?.chain_slot - 1;
            let _ = self.map(CHAIN_PIN)?.delete(&slot.to_ne_bytes());
        }
        let names = [LINK, CHAINED_PIN, CHAIN_PIN].into_iter().chain(PINNED);
        for name in names {
            found |= unpin(&self.pin(name))? | unpin(&self.next(name))?;
        }
        Ok(found)
    }
}

/// In words, what a map has room for.
fn what_it_holds(map: &str) -> &'static str {
    match map {
        "buckets" | "seats" => "connections",
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

/// None where no program is pinned.
fn program_id(path: &Path) -> Result<Option<u32>, Error> {
    if !path.exists() {
        return Ok(None);
    }
    Program::fd_from_pinned_path(path)
        .and_then(|fd| Program::id_from_fd(fd.as_fd()))
        .map(Some)
        .map_err(|error| pin_error("look at", path, io_error(&error)))
}

fn unpin(path: &Path) -> Result<bool, Error> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(io) if io.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(io) => Err(pin_error("remove", path, io)),
    }
}

fn pin_error(operation: &'static str, path: &Path, io: io::Error) -> Error {
    Error::Pin { operation, path: path.into(), io, remedy: "it needs root, and a bpffs: mount -t bpf bpf /sys/fs/bpf" }
}
