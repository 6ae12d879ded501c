//! Where bytes spend their time in the layers of this host.

mod baseline;
mod budget;
mod devices;
mod hooks;
mod kernel;
mod monitor;
mod namespaces;
mod trips;

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::BTreeMap,
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd},
        linux::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    rc::Rc,
};

use dwell_engine::{
    abi,
    histogram::Histogram,
    layers::{Config, Counters, Ends, FlowSide, Layer, Passage, PidNamespace, Segment, SegmentFigures, next_grid},
};
use hooks::Place;
use kernel::Kernel;
use libbpf_rs::{
    Link, MapCore, MapFlags, NF_INET_LOCAL_OUT, NFPROTO_IPV4, NFPROTO_IPV6, NetfilterOpts, Object, ProgramMut,
    RingBuffer, RingBufferBuilder,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    Error,
    error::io_error,
    load,
    vantage::{failed, read_percpu},
};

pub use baseline::{Baseline, BaselineError, Comparison, Recording, Settings};
pub use devices::Devices;
pub use hooks::{Candidate, Family, Hook, PROFILES, Profile, candidates, ends, missing, names};
pub use kernel::Lack;
pub use monitor::{Interval, Monitor, Observer};
pub use namespaces::NamespaceNames;
pub use trips::{Trip, trips};

/// Reads the kernel's memory by its types.
static TYPED_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stack_typed.bpf.o"));
/// The same, by a helper, which costs more: on kernels that do not let it otherwise, and for kprobes.
static PROBED_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stack_probed.bpf.o"));

const FLOWS: &str = "flows";
const GENERATION: &str = ".data.generation";
const GRID: &str = ".data.grid";
const PASSAGES: &str = "passages";

/// Flows that are known to be chosen at once; of more, the ones that were longest without
/// a byte are chosen anew when their process writes or reads.
const CHOSEN: u32 = 1 << 16;

/// Of the ring buffer: 29,000 passages, 0.3 s of 10 Gbit/s at 1 byte in 16384.
const PASSAGES_BYTES: u32 = 4 << 20;

/// What to load.
#[derive(Debug, Clone)]
pub struct Options {
    /// What to stamp. Which layers are is found out here.
    pub config: Config,
    /// Flows to keep apart, if they are to be.
    pub max_flows: Option<u32>,
    /// Whose flows are followed: numbers of processes, if [`Config::processes`].
    pub processes: Vec<u32>,
    /// And a cgroup with all below it, if [`Config::cgroup`].
    pub cgroup: Option<PathBuf>,
    /// Where.
    pub profile: &'static Profile,
}

impl Options {
    /// Everything that the configuration says, of all processes, flows not kept apart.
    pub fn new(config: Config, profile: &'static Profile) -> Options {
        Options { config, max_flows: None, processes: Vec::new(), cgroup: None, profile }
    }
}

/// The loaded programs. Dropping it detaches and unloads everything.
pub struct Probe {
    links: Vec<Link>,
    object: Object,
    hooks: Vec<&'static Hook>,
    generation: u32,
    grid: u32,
    passages: Passages,
}

/// What the ring buffer had.
struct Passages {
    ring: RingBuffer<'static>,
    arrived: Rc<RefCell<Vec<Passage>>>,
}

impl Probe {
    /// Loads the programs. Nothing is attached yet.
    pub fn load(options: &Options) -> Result<Probe, Error> {
        let kernel = Kernel::of_this_host();
        let hooks = options.profile.choose(&kernel)?;
        let at_kprobe = |hook: &&Hook| matches!(hook.place, Place::Kprobe(_));
        let bytes = if kernel.has_typed_reads() && !hooks.iter().any(at_kprobe) { TYPED_OBJECT } else { PROBED_OBJECT };
        let mut layers: Vec<Layer> = hooks.iter().map(|hook| hook.layer).collect();
        layers.dedup();
        let of_processes = !options.processes.is_empty();
        let config = Config {
            layers,
            flows: options.max_flows.is_some(),
            processes: of_processes.then(own_pid_namespace).transpose().map_err(Error::Namespace)?,
            cgroup: options.cgroup.is_some(),
            ..options.config.clone()
        };
        let is_picky = of_processes || config.cgroup || config.pace_ns > 0;
        let mut object = load::open("the stack programs", bytes)?;
        for mut program in object.progs_mut() {
            let wanted = |hook: &&Hook| program.name() == hook.program;
            let is_wanted = hooks.iter().any(wanted);
            program.set_autoload(is_wanted);
        }
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let entries = match name.as_str() {
                "rows" => Some(config.rows()),
                FLOWS => options.max_flows,
                "chosen" => is_picky.then_some(CHOSEN),
                "processes" => of_processes.then_some(options.processes.len() as u32),
                PASSAGES => config.passages.then_some(PASSAGES_BYTES),
                _ => None,
            };
            if let Some(entries) = entries {
                map.set_max_entries(entries).map_err(failed("size", "flow table"))?;
            }
            if name.ends_with(".rodata.program") {
                map.set_initial_value(config.to_core().as_bytes()).map_err(failed("write", "configuration"))?;
            }
        }
        let mut object = kernel::load("the stack programs", object)?;
        let passages = Passages::open(&mut object)?;
        for process in &options.processes {
            if !Path::new(&format!("/proc/{process}")).exists() {
                return Err(Error::NoProcess(*process));
            }
            load::map(&mut object, "processes")
                .update(&process.to_ne_bytes(), &[1], MapFlags::ANY)
                .map_err(failed("write", "processes"))?;
        }
        if let Some(path) = &options.cgroup {
            let cgroup = File::open(path).map_err(|io| no_cgroup(path, io))?;
            let fd = cgroup.as_fd().as_raw_fd();
            load::map(&mut object, "cgroup")
                .update(&[0; 4], &fd.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| no_cgroup(path, io_error(&error)))?;
        }
        Ok(Probe { links: Vec::new(), object, hooks, generation: 0, grid: 0, passages })
    }

    /// Begins to stamp: the last layer first, so that no byte is on its way to a
    /// layer that is not watched yet. Netfilter hooks are those of this thread's
    /// network namespace.
    pub fn attach(&mut self) -> Result<(), Error> {
        // What was on its way when they were last attached is not seen to its end.
        self.thin(self.grid & 31)?;
        for hook in self.hooks.iter().rev() {
            if hook.place == Place::Carried {
                continue;
            }
            let program = load::program(&self.object, hook.program);
            let attached = match hook.place {
                Place::Netfilter(number) => netfilter(&program, number).map(|links| self.links.extend(links)),
                _ => program.attach().map(|link| self.links.push(link)),
            };
            attached.map_err(|error| refused(hook.name, hook.layer.name(), &error))?;
        }
        Ok(())
    }

    /// Stops stamping. What was measured can still be read.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// Hands on the bytes that went all the way since the last call, if
    /// [`Config::passages`] asks for them. Nobody is woken: look at least ten times a
    /// second.
    pub fn drain(&mut self, emit: impl FnMut(Passage)) -> Result<(), Error> {
        let passages = &self.passages;
        passages.ring.consume().map_err(failed("read", PASSAGES))?;
        passages.arrived.borrow_mut().drain(..).for_each(emit);
        Ok(())
    }

    /// From now on, of the bytes that are on the grid only each 2^thin-th is stamped. Those
    /// that are on their way are left out.
    pub fn thin(&mut self, thin: u32) -> Result<(), Error> {
        self.grid = next_grid(self.grid, thin);
        load::map(&mut self.object, GRID)
            .update(&[0; 4], &self.grid.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed("write", GRID))
    }

    /// The hooks that are used.
    pub fn hooks(&self) -> &[&'static Hook] {
        &self.hooks
    }

    /// Ends an interval: what each segment took in it. Programs that run
    /// meanwhile count into the other half of the histograms.
    pub fn take(&mut self) -> Result<Vec<SegmentFigures>, Error> {
        let past = self.generation;
        self.generation = load::flip(&load::map(&mut self.object, GENERATION), past)?;
        let mut taken = Vec::new();
        for segment in Segment::ALL {
            let index = segment as u32 + past * 2 * abi::DWELL_SEGMENTS;
            taken.push(SegmentFigures {
                segment,
                first: self.take_histogram(index)?,
                again: self.take_histogram(index + abi::DWELL_SEGMENTS)?,
            });
        }
        Ok(taken)
    }

    /// Over all CPUs; what is taken is cleared.
    fn take_histogram(&mut self, index: u32) -> Result<Histogram, Error> {
        let histograms = load::map(&mut self.object, "histograms");
        let cpus = read_percpu(&histograms, "histograms", index)?;
        let mut histogram = Histogram::default();
        for bytes in &cpus {
            if let Ok((cpu, _)) = abi::dwell_histogram::ref_from_prefix(bytes) {
                histogram.merge_kernel(cpu);
            }
        }
        if histogram.count() > 0 {
            let empty = vec![vec![0; size_of::<abi::dwell_histogram>()]; cpus.len()];
            histograms
                .update_percpu(&index.to_ne_bytes(), &empty, MapFlags::ANY)
                .map_err(failed("write", "histograms"))?;
        }
        Ok(histogram)
    }

    /// What each flow's segments took in the interval that [`take`](Probe::take) ended,
    /// most bytes first: the two sides of a flow, where both are here, one after the
    /// other.
    pub fn take_flows(&mut self) -> Result<Vec<(Ends, Vec<SegmentFigures>)>, Error> {
        let past = 1 - self.generation;
        let flows = load::map(&mut self.object, FLOWS);
        let is_past = |key: &Vec<u8>| FlowSide::generation_of(key) == Some(past);
        let keys: Vec<_> = flows.keys().filter(is_past).collect();
        let mut sides = BTreeMap::<Ends, Vec<SegmentFigures>>::new();
        for key in keys {
            let value = flows.lookup_and_delete(&key).map_err(failed("read", FLOWS))?;
            let Some(side) = value.and_then(|value| FlowSide::from_kernel(&key, &value)) else {
                continue;
            };
            sides.entry(side.ends).or_default().extend(side.segments);
        }
        let bytes = |segments: &[SegmentFigures]| -> u64 {
            let totals = segments.iter().filter(|taken| taken.segment == taken.segment.total());
            totals.map(|taken| taken.first.count()).sum()
        };
        let mut taken: Vec<_> = sides.into_iter().collect();
        for (_, segments) in &mut taken {
            segments.sort_by_key(|taken| taken.segment);
        }
        taken.sort_by_key(|(ends, segments)| (Reverse(bytes(segments)), *ends));
        Ok(taken)
    }

    /// What was counted so far, over all CPUs.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        let cpus = read_percpu(&load::map(&mut self.object, "counters"), "counters", 0)?;
        Ok(Counters::sum(
            cpus.iter()
                .filter_map(|bytes| abi::dwell_stack_counters::read_from_prefix(bytes).ok())
                .map(|(counters, _)| counters)
                .collect::<Vec<_>>()
                .iter(),
        ))
    }

    /// How often each program ran and for how many nanoseconds, if the kernel
    /// keeps count (sysctl kernel.bpf_stats_enabled).
    pub fn run_times(&self) -> Vec<(&'static str, u64, u64)> {
        let programs = self.hooks.iter().map(|hook| hook.program);
        programs
            .filter(|name| !name.is_empty())
            .filter_map(|name| {
                let (runs, ns) = load::run_time(&load::program(&self.object, name))?;
                (runs > 0).then_some((name, runs, ns))
            })
            .collect()
    }
}

impl Passages {
    fn open(object: &mut Object) -> Result<Passages, Error> {
        let arrived = Rc::new(RefCell::new(Vec::new()));
        let queue = Rc::clone(&arrived);
        let map = load::map(object, PASSAGES);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, move |bytes| {
                queue.borrow_mut().extend(Passage::from_kernel(bytes));
                0
            })
            .map_err(failed("read", PASSAGES))?;
        let ring = builder.build().map_err(failed("read", PASSAGES))?;
        Ok(Passages { ring, arrived })
    }
}

/// The number of this thread's network namespace, as programs see it.
pub fn own_namespace() -> io::Result<u32> {
    let number = Path::new("/proc/thread-self/ns/net").metadata()?.st_ino();
    u32::try_from(number).map_err(io::Error::other)
}

fn own_pid_namespace() -> io::Result<PidNamespace> {
    let namespace = Path::new("/proc/self/ns/pid").metadata()?;
    Ok(PidNamespace { device: namespace.st_dev(), inode: namespace.st_ino() })
}

fn no_cgroup(path: &Path, io: io::Error) -> Error {
    Error::Cgroup { path: path.to_owned(), io }
}

/// Attaches to a hook of both IP versions; of one where the kernel has no IPv6.
fn netfilter(program: &ProgramMut<'_>, number: i32) -> libbpf_rs::Result<Vec<Link>> {
    let mut links = vec![netfilter_of(program, NFPROTO_IPV4, number)?];
    if Path::new("/proc/net/if_inet6").exists() {
        links.push(netfilter_of(program, NFPROTO_IPV6, number)?);
    }
    Ok(links)
}

/// Before other hooks on the way up, after them on the way down; beside other BPF
/// programs, of which the kernel takes one a priority.
fn netfilter_of(program: &ProgramMut<'_>, protocol_family: i32, hooknum: i32) -> libbpf_rs::Result<Link> {
    const TRIES: i32 = 64;

    let attach = |offset| {
        program.attach_netfilter_with_opts(NetfilterOpts {
            protocol_family,
            hooknum,
            // The kernel keeps the very first and last places for itself.
            priority: match hooknum {
                NF_INET_LOCAL_OUT => i32::MAX - 1 - offset,
                _ => i32::MIN + 1 + offset,
            },
            ..Default::default()
        })
    };
    (0..TRIES)
        .map(attach)
        .find(|result| match result {
            Err(error) => io_error(error).raw_os_error() != Some(nix::libc::EBUSY),
            Ok(_) => true,
        })
        .unwrap_or_else(|| attach(TRIES))
}

fn refused(hook: &'static str, layer: &'static str, error: &libbpf_rs::Error) -> Error {
    let io = io_error(error);
    Error::Hook {
        hook,
        layer,
        remedy: match io.kind() {
            io::ErrorKind::PermissionDenied => {
                "it needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN: run as root, or grant them with \
                 setcap"
            }
            _ => "`dwell doctor` tells what this kernel lacks",
        },
        io,
    }
}
