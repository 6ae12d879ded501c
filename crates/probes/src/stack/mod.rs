//! How long bytes spend in the layers of this host.

mod budget;
mod devices;
mod hooks;
mod kernel;
mod monitor;
mod namespaces;

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd},
        linux::fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

use dwell_engine::{
    abi,
    histogram::Histogram,
    layers::{ByteTrace, Config, Counters, Ends, FlowFigures, Layer, PidNamespace, Segment, SegmentFigures, next_grid},
};
use hooks::Attach;
use kernel::Kernel;
use libbpf_rs::{
    Link, MapCore, MapFlags, NF_INET_LOCAL_OUT, NFPROTO_IPV4, NFPROTO_IPV6, NetfilterOpts, Object, ProgramMut,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    Error,
    error::io_error,
    events::Events,
    host::remedy_for_missing,
    load,
    vantage::{failed, read_cpus, read_percpu},
};

pub use devices::Devices;
pub use hooks::{Candidate, Family, Hook, PROFILES, Profile, candidates, missing, names};
pub use kernel::Lack;
pub use monitor::{Interval, Monitor, Observer};
pub use namespaces::NamespaceNames;
pub(crate) use namespaces::named as named_namespace;

/// The programs that read kernel memory by its types.
static TYPED_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stack_typed.bpf.o.z"));
/// The programs that read kernel memory by a helper, which costs more: for kernels that do not allow typed reads, and
/// for kprobes.
static PROBED_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stack_probed.bpf.o.z"));

const WHAT: &str = "the stack programs";
const FLOWS: &str = "flows";
const GENERATION: &str = ".data.generation";
const GRID: &str = ".data.grid";
const PASSAGES: &str = "traces";

/// The most flows that are known to be selected. If there are more, the ones that were idle longest are forgotten, and
/// selected anew when their process writes or reads.
const SELECTED: u32 = 1 << 16;

/// The size of the ring buffer: 27,000 byte traces, or 0.3 s of 10 Gbit/s at one byte in 16384.
const PASSAGES_BYTES: u32 = 4 << 20;

/// What to stamp, and with which hooks.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which bytes to stamp. Its layers, processes and cgroup are filled in when the programs are loaded.
    pub config: Config,
    /// The number of flows to keep apart; `None` for sums only.
    pub max_flows: Option<u32>,
    /// The processes whose flows are followed; empty for all processes.
    pub processes: Vec<u32>,
    /// A cgroup whose flows are followed, with those of the cgroups below it.
    pub cgroup: Option<PathBuf>,
    /// The hooks to use.
    pub profile: &'static Profile,
}

impl Options {
    /// Follows the flows of all processes, without keeping them apart.
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
    passages: Events<ByteTrace>,
}

impl Probe {
    /// Loads the programs. Nothing is attached yet.
    pub fn load(options: &Options) -> Result<Probe, Error> {
        Probe::load_with(options, ByteTrace::from_kernel)
    }

    fn load_with(options: &Options, decode: fn(&[u8]) -> Option<ByteTrace>) -> Result<Probe, Error> {
        let kernel = Kernel::of_this_host();
        let hooks = options.profile.select(&kernel, options.config.namespace.is_none())?;
        let at_kprobe = |hook: &&Hook| matches!(hook.attach, Attach::Kprobe(_));
        let bytes = if kernel.has_typed_reads() && !hooks.iter().any(at_kprobe) { TYPED_OBJECT } else { PROBED_OBJECT };
        let mut layers: Vec<Layer> = hooks.iter().map(|hook| hook.layer).collect();
        layers.dedup();
        let of_processes = !options.processes.is_empty();
        let config = Config {
            layers,
            flows: options.max_flows.is_some(),
            processes: of_processes.then(own_pid_namespace).transpose().map_err(Error::Namespace)?,
            cgroup: options.cgroup.is_some(),
            ip_at_queue: hooks.iter().any(|hook| hook.attach == Attach::AtQueue),
            ..options.config.clone()
        };
        let is_picky = of_processes || config.cgroup || config.pace_ns > 0;
        let mut object = load::open(WHAT, bytes)?;
        for mut program in object.progs_mut() {
            let wanted = |hook: &&Hook| program.name() == hook.program;
            let is_wanted = hooks.iter().any(wanted);
            program.set_autoload(is_wanted);
        }
        let entries = |name: &str| match name {
            "rows" => Some(config.rows()),
            FLOWS => options.max_flows,
            "chosen" => is_picky.then_some(SELECTED),
            "processes" => of_processes.then_some(options.processes.len() as u32),
            PASSAGES => config.traces.then_some(PASSAGES_BYTES),
            _ => None,
        };
        load::configure(&mut object, entries, &[(".rodata.program", config.to_core().as_bytes())])?;
        let mut object = load::load_looping(WHAT, object)?;
        let passages = Events::open(&load::map(&mut object, PASSAGES), decode)?;
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

    /// Starts to stamp: the last layer first, so that no byte is under way to a layer that is not watched yet. Where one
    /// network namespace is observed, the netfilter hooks are those of this thread's.
    pub fn attach(&mut self) -> Result<(), Error> {
        // Bytes that were under way when the programs were last detached are not seen to their end.
        self.thin(self.grid & 31)?;
        for hook in self.hooks.iter().rev() {
            if matches!(hook.attach, Attach::Carried | Attach::AtQueue) {
                continue;
            }
            let program = load::program(&self.object, hook.program);
            let attached = match hook.attach {
                Attach::Netfilter(number) => netfilter(&program, number).map(|links| self.links.extend(links)),
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

    /// Hands on the bytes that have passed all layers of a direction since the last call, if [`Config::traces`] asks
    /// for them. The kernel does not wake its reader: poll at least ten times per second.
    pub fn drain(&mut self, emit: impl FnMut(ByteTrace)) -> Result<(), Error> {
        self.passages.drain(emit)
    }

    /// Stamps only one byte in 2^thin of the sampling grid from now on. Bytes that are under way are left out.
    pub fn thin(&mut self, thin: u32) -> Result<(), Error> {
        self.grid = next_grid(self.grid, thin);
        load::map(&mut self.object, GRID)
            .update(&[0; 4], &self.grid.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed("write", GRID))
    }

    /// The hooks that stamp.
    pub fn hooks(&self) -> &[&'static Hook] {
        &self.hooks
    }

    /// Ends an interval, and returns how long bytes spent in each segment. Programs that run meanwhile count in the
    /// other half of the histograms. Where bytes that TCP sent or received again are counted separately, they are left
    /// out.
    pub fn take(&mut self) -> Result<Vec<SegmentFigures>, Error> {
        let past = self.generation;
        self.generation = load::flip(&load::map(&mut self.object, GENERATION), past)?;
        self.take_segments(past * 2)
    }

    /// Returns how long bytes that TCP sent or received again spent in each segment in the interval that
    /// [`take`](Probe::take) ended. Empty distributions if they are not counted separately.
    pub fn take_again(&mut self) -> Result<Vec<SegmentFigures>, Error> {
        let past = 1 - self.generation;
        self.take_segments(past * 2 + 1)
    }

    fn take_segments(&mut self, part: u32) -> Result<Vec<SegmentFigures>, Error> {
        let figures = Segment::ALL.into_iter().map(|segment| {
            let histogram = self.take_histogram(segment as u32 + part * abi::DWELL_SEGMENTS)?;
            Ok(SegmentFigures { segment, histogram })
        });
        figures.collect()
    }

    /// Reads a histogram over all CPUs, and clears it.
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

    /// Returns how long bytes of each flow spent in its segments in the interval that [`take`](Probe::take) ended, the
    /// flow with the most bytes first. A flow whose two ends are in one namespace has the segments of both.
    pub fn take_flows(&mut self) -> Result<Vec<FlowFigures>, Error> {
        let past = 1 - self.generation;
        let flows = load::map(&mut self.object, FLOWS);
        let is_past = |key: &Vec<u8>| FlowFigures::generation_of(key) == Some(past);
        let keys: Vec<_> = flows.keys().filter(is_past).collect();
        let mut sides = BTreeMap::<(Ends, u32), Vec<SegmentFigures>>::new();
        for key in keys {
            let value = flows.lookup_and_delete(&key).map_err(failed("read", FLOWS))?;
            let Some(side) = value.and_then(|value| FlowFigures::from_kernel(&key, &value)) else {
                continue;
            };
            sides.entry((side.ends, side.namespace)).or_default().extend(side.segments);
        }
        let bytes = |segments: &[SegmentFigures]| -> u64 {
            let totals = segments.iter().filter(|taken| taken.segment == taken.segment.total());
            totals.map(|taken| taken.histogram.count()).sum()
        };
        let flows = sides.into_iter().map(|((ends, namespace), mut segments)| {
            segments.sort_by_key(|taken| taken.segment);
            FlowFigures { ends, namespace, segments }
        });
        let mut flows: Vec<_> = flows.collect();
        flows.sort_by_key(|flow| (Reverse(bytes(&flow.segments)), flow.ends, flow.namespace));
        Ok(flows)
    }

    /// What was counted since the start, over all CPUs.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        let cpus: Vec<abi::dwell_stack_counters> = read_cpus(&load::map(&mut self.object, "counters"), "counters", 0)?;
        Ok(Counters::sum(cpus.iter()))
    }

    /// The number of byte traces that could not be decoded: always 0 unless kernel and user space come from different
    /// builds.
    pub fn unreadable_passages(&self) -> u64 {
        self.passages.unreadable()
    }

    /// The name, the number of runs and the run time in nanoseconds of each program that has run, if the kernel counts
    /// them (sysctl kernel.bpf_stats_enabled).
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

/// The inode number of this thread's network namespace, by which programs know it.
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

/// Attaches to a netfilter hook of both IP versions, or of IPv4 alone where the kernel has no IPv6.
fn netfilter(program: &ProgramMut<'_>, number: i32) -> libbpf_rs::Result<Vec<Link>> {
    let mut links = vec![netfilter_of(program, NFPROTO_IPV4, number)?];
    if Path::new("/proc/net/if_inet6").exists() {
        links.push(netfilter_of(program, NFPROTO_IPV6, number)?);
    }
    Ok(links)
}

/// Attaches before other hooks on receive and after them on send. The kernel allows one BPF program per priority, so
/// the next ones are tried where others are attached.
fn netfilter_of(program: &ProgramMut<'_>, protocol_family: i32, hooknum: i32) -> libbpf_rs::Result<Link> {
    const TRIES: i32 = 64;

    let attach = |offset| {
        program.attach_netfilter_with_opts(NetfilterOpts {
            protocol_family,
            hooknum,
            // The kernel reserves the very first and last priorities.
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
            io::ErrorKind::PermissionDenied => remedy_for_missing(),
            _ => "`dwell doctor` shows what this kernel lacks",
        },
        io,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        process::Command,
        thread,
    };

    use dwell_testbed::skip::lacks_root;
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn root_byte_traces_that_cannot_be_decoded_are_counted() {
        if lacks_root() {
            return;
        }
        let body = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
            let namespace = Some(own_namespace().unwrap());
            let config = Config { sample_bytes: 64, traces: true, namespace, ..Config::default() };
            let mut probe = Probe::load_with(&Options::new(config, &PROFILES[0]), |_| None).unwrap();
            probe.attach().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(&[1; 640]).unwrap();
            server.read_exact(&mut [0; 640]).unwrap();
            probe.drain(|passage| panic!("{passage:?} was not decoded")).unwrap();
            assert!(probe.unreadable_passages() >= 10, "{}", probe.unreadable_passages());
        };
        thread::scope(|scope| scope.spawn(body).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}
