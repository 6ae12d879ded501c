//! What people call the places that packets cross.

use std::{collections::HashMap, fs, os::linux::fs::MetadataExt, path::Path};

use dwell_engine::layers::{HopTime, Place};
use dwell_probes::stack::Devices;
use dwell_records::{StackHop, StackPlace};

use crate::exit::Failure;

/// Where `ip netns` keeps the names of namespaces.
const NAMED: &str = "/run/netns";

/// Names of network namespaces by their numbers, found once an interval each.
pub struct Places {
    own: u32,
    namespaces: HashMap<u32, String>,
}

impl Places {
    /// Seen from the namespace of this number, which needs no name.
    pub fn new(own: u32) -> Places {
        Places { own, namespaces: HashMap::new() }
    }

    /// Forgets names: numbers of namespaces that are gone are given again.
    pub fn forget(&mut self) {
        self.namespaces.clear();
    }

    /// A hop as it is told.
    pub fn hop(&mut self, devices: &mut Devices, time: HopTime) -> Result<StackHop, Failure> {
        Ok(StackHop {
            origin: self.place(devices, time.hop.origin)?,
            from: self.place(devices, time.hop.from)?,
            to: self.place(devices, time.hop.to)?,
            histogram: time.histogram,
        })
    }

    fn place(&mut self, devices: &mut Devices, place: Place) -> Result<StackPlace, Failure> {
        let name = devices.name(place)?;
        Ok(StackPlace {
            device: name.unwrap_or_else(|| format!("device {}", place.device)),
            namespace: (place.namespace != self.own).then(|| self.namespace(place.namespace)),
            point: place.point.name(),
        })
    }

    fn namespace(&mut self, number: u32) -> String {
        let find = || named(number).or_else(|| process_in(number)).unwrap_or_else(|| format!("netns:{number}"));
        self.namespaces.entry(number).or_insert_with(find).clone()
    }
}

fn named(number: u32) -> Option<String> {
    let names = fs::read_dir(NAMED).ok()?;
    let mut names = names.filter_map(Result::ok);
    let found = names.find(|name| is_namespace(&name.path(), number))?;
    Some(found.file_name().to_string_lossy().into_owned())
}

/// The first process in it, as in "nginx(1234)": the container's, mostly.
fn process_in(number: u32) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?;
    let pids = processes.filter_map(|process| {
        let name = process.ok()?.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    let pid = pids.filter(|pid| is_namespace(Path::new(&format!("/proc/{pid}/ns/net")), number)).min()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("{}({pid})", name.trim()))
}

fn is_namespace(path: &Path, number: u32) -> bool {
    path.metadata().is_ok_and(|namespace| namespace.st_ino() == u64::from(number))
}
