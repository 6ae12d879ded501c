//! What stamps of bytes show of the layers of this host, while `dwell why` looks. They need root.

use std::{
    collections::hash_map::RandomState,
    fs::File,
    hash::BuildHasher,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use dwell_engine::{
    filter::{Filter, MAX_TERMS},
    layers::{ByteTrace, Config, Segment},
    why::{Evidence, Layers, Unseen},
};
use dwell_probes::{
    Error,
    stack::{self, Interval, Monitor, Observer, Options, PROFILES},
};
use dwell_socket::outside::{Scope, Selected, namespace};
use nix::sched::{CloneFlags, setns};

/// One byte in so many is stamped, unless that costs more than the budget.
const SAMPLE_BYTES: u32 = 1024;
/// The share of the host's processor time that stamping may use.
const CPU_BUDGET: f64 = 0.005;
/// The most processes whose bytes are stamped, of several cgroups or of one of version 1.
const MAX_PROCESSES: usize = 1024;
/// Longer than any look: there is one interval.
const INTERVAL: Duration = Duration::from_secs(1 << 30);

/// Stamps bytes until it is ended.
pub struct Stamping {
    thread: JoinHandle<Result<Layers, String>>,
    is_over: Arc<AtomicBool>,
}

impl Stamping {
    /// Starts to stamp bytes of the target.
    pub fn start(selected: &Selected) -> Stamping {
        let is_over = Arc::new(AtomicBool::new(false));
        let (stop, selected) = (Arc::clone(&is_over), selected.clone());
        let thread = thread::spawn(move || stamp(&selected, &stop));
        Stamping { thread, is_over }
    }

    /// Ends it, and adds what it showed to the evidence, or why it showed nothing.
    pub fn end(self, evidence: &mut Evidence) {
        self.is_over.store(true, Ordering::Relaxed);
        let result = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match result {
            Ok(layers) => evidence.set_layers(layers),
            Err(why) => evidence.unseen.push(Unseen {
                what: format!("queues and waits in the layers of this host: {why}"),
                remedy: match nix::unistd::geteuid().is_root() {
                    true => "dwell doctor shows what this kernel lacks".into(),
                    false => "run dwell as root".into(),
                },
            }),
        }
    }
}

fn stamp(selected: &Selected, is_over: &AtomicBool) -> Result<Layers, String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("stamping bytes needs privilege".into());
    }
    go_to(selected)?;
    let mut options = Options::new(config(selected)?, &PROFILES[0]);
    match selected {
        Selected::Ends { .. } => {}
        // Workers have the connections of many services. Those that start later are not stamped.
        Selected::Process(pid) => {
            let mut tree = Scope::Tree(*pid).processes();
            // None would stand for all processes.
            tree.sort_by_key(|other| other != pid);
            tree.truncate(MAX_PROCESSES);
            if tree.is_empty() {
                return Err(format!("process {pid} has ended"));
            }
            options.processes = tree;
        }
        Selected::Cgroups(paths) => match &paths[..] {
            [path] if path.join("cgroup.controllers").exists() => options.cgroup = Some(path.clone()),
            // The kernel's programs know one cgroup, and none of version 1.
            _ => options.processes = members(paths)?,
        },
    }
    let mut monitor = Monitor::attach(&options, Some(CPU_BUDGET)).map_err(|error| error.to_string())?;
    let mut means = Means::default();
    let run = monitor.run(INTERVAL, || is_over.load(Ordering::Relaxed), &mut means);
    monitor.detach();
    run.and_then(|()| monitor.end_interval(&mut means)).map_err(|error| error.to_string())?;
    Ok(means.0)
}

/// Moves this thread into the network namespace of the target's processes; of the first one's where there are several.
fn go_to(selected: &Selected) -> Result<(), String> {
    let pid = match selected {
        Selected::Ends { .. } => return Ok(()),
        Selected::Process(pid) => *pid,
        Selected::Cgroups(paths) => *members(paths)?.first().ok_or("the cgroup has no process")?,
    };
    let number = |process: &str| namespace::number_of(process).map_err(|error| error.to_string());
    if number(&pid.to_string())? == number("thread-self")? {
        return Ok(());
    }
    let namespace = File::open(format!("/proc/{pid}/ns/net")).map_err(|error| error.to_string())?;
    setns(namespace, CloneFlags::CLONE_NEWNET).map_err(|error| format!("its network namespace: {error}"))
}

fn members(cgroups: &[PathBuf]) -> Result<Vec<u32>, String> {
    let mut members = namespace::members_of(cgroups).map_err(|error| error.to_string())?;
    members.truncate(MAX_PROCESSES);
    Ok(members)
}

fn config(selected: &Selected) -> Result<Config, String> {
    let (mut port, mut filter) = (None, Filter::default());
    if let Selected::Ends { addresses, port: wanted } = selected {
        port = *wanted;
        if addresses.len() > MAX_TERMS {
            return Err(format!("the host has {} addresses, more than the {MAX_TERMS} of a filter", addresses.len()));
        }
        let terms: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        filter = Filter::parse(&terms).map_err(|error| error.to_string())?;
    }
    let namespace = stack::own_namespace().map_err(|error| error.to_string())?;
    Ok(Config {
        sample_bytes: SAMPLE_BYTES,
        port,
        filter,
        namespace: Some(namespace),
        seed: RandomState::new().hash_one(std::process::id()),
        ..Config::default()
    })
}

/// The means of the only interval.
#[derive(Default)]
struct Means(Layers);

impl Observer for Means {
    type Error = Error;

    fn passage(&mut self, _: &ByteTrace) -> Result<(), Error> {
        Ok(())
    }

    fn end_poll(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn interval(&mut self, interval: &Interval) -> Result<(), Error> {
        let mean = |segment| {
            let figures = interval.segments.iter().find(|figures| figures.segment == segment);
            figures.and_then(|figures| figures.histogram.mean_ns())
        };
        self.0 = Layers {
            socket_tcp_ns: mean(Segment::SocketTcp),
            queueing_ns: mean(Segment::Queueing),
            application_ns: mean(Segment::Application),
        };
        Ok(())
    }
}
