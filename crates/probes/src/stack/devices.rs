//! How long packets take from device to device, through all network namespaces of this host.

use std::{cmp::Reverse, collections::BTreeMap};

use dwell_engine::layers::{Config, DevicePoint, HopTime};
use libbpf_rs::{Link, MapCore, MapFlags, Object};
use zerocopy::IntoBytes;

use super::{GENERATION, kernel::Kernel, refused};
use crate::{
    Error, load,
    vantage::{failed, read_percpu},
};

static TYPED_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/devices_typed.bpf.o.z"));
static PROBED_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/devices_probed.bpf.o.z"));

const WHAT: &str = "the device programs";
const HOPS: &str = "hops";
const NAMES: &str = "names";
const ROWS: &str = "hop_rows";
const UNTOLD: &str = "hops_lost";

/// Programs by hook; those at the end of a path first, so that no byte is under way to a hook that is not watched yet.
const PROGRAMS: [(&str, &str); 6] = [
    ("tp_btf/netif_receive_skb_entry", "device_in_at_once"),
    ("tp_btf/netif_rx", "device_in"),
    ("tp_btf/napi_gro_receive_entry", "device_in_napi"),
    ("tp_btf/napi_gro_frags_entry", "device_in_frags"),
    ("tp_btf/net_dev_start_xmit", "device_out"),
    ("tp_btf/net_dev_queue", "device_queue"),
];

/// The loaded programs. Dropping it detaches and unloads everything.
pub struct Devices {
    links: Vec<Link>,
    object: Object,
    generation: u32,
}

impl Devices {
    /// Loads the programs for the flows of a configuration, but in all network namespaces. Nothing is attached yet.
    pub fn load(config: &Config) -> Result<Devices, Error> {
        let config = Config { namespace: None, rows: config.rows.min(1 << 15), ..config.clone() };
        let bytes = if Kernel::of_this_host().has_typed_reads() { TYPED_OBJECT } else { PROBED_OBJECT };
        let mut object = load::open(WHAT, bytes)?;
        let entries = |name: &str| (name == ROWS).then(|| config.rows());
        load::configure(&mut object, entries, &[(".rodata.program", config.to_core().as_bytes())])?;
        Ok(Devices { links: Vec::new(), object: load::load_looping(WHAT, object)?, generation: 0 })
    }

    /// Starts to watch.
    pub fn attach(&mut self) -> Result<(), Error> {
        for (hook, program) in PROGRAMS {
            let program = load::program(&self.object, program);
            let link = program.attach();
            self.links.push(link.map_err(|error| refused(hook, "devices", &error))?);
        }
        Ok(())
    }

    /// Stops watching. What was measured can still be read.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// Ends an interval, and returns the time of each hop in it. Hops of one origin stay together, in the order of the
    /// path; the origin with the most bytes comes first.
    pub fn take(&mut self) -> Result<Vec<HopTime>, Error> {
        let past = self.generation;
        self.generation = load::flip(&load::map(&mut self.object, GENERATION), past)?;
        let hops = load::map(&mut self.object, HOPS);
        let keys: Vec<_> = hops.keys().collect();
        let mut times = Vec::new();
        for key in keys {
            let value = hops.lookup(&key, MapFlags::ANY).map_err(failed("read", HOPS))?;
            let time = value.and_then(|value| HopTime::from_kernel(&key, &value));
            let Some(time) = time.filter(|time| time.generation == u64::from(past)) else {
                continue;
            };
            hops.delete(&key).map_err(failed("write", HOPS))?;
            times.push(time);
        }
        let mut bytes = BTreeMap::<DevicePoint, u64>::new();
        for time in &times {
            let most = bytes.entry(time.hop.origin).or_default();
            *most = time.histogram.count().max(*most);
        }
        times.sort_by_key(|time| {
            let origin = time.hop.origin;
            (Reverse(bytes[&origin]), origin, time.since_ns, time.hop)
        });
        Ok(times)
    }

    /// The name of the device at a point, if a packet has passed it.
    pub fn name(&mut self, place: DevicePoint) -> Result<Option<String>, Error> {
        let key = place.to_core();
        let name =
            load::map(&mut self.object, NAMES).lookup(key.as_bytes(), MapFlags::ANY).map_err(failed("read", NAMES))?;
        Ok(name.map(|name| {
            let text = name.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        }))
    }

    /// The number of hops that are not reported, as there was no room for them.
    pub fn dropped_hops(&mut self) -> Result<u64, Error> {
        let cpus = read_percpu(&load::map(&mut self.object, UNTOLD), UNTOLD, 0)?;
        let count = |bytes: &Vec<u8>| bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Ok(cpus.iter().map(count).sum())
    }
}
