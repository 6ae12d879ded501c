//! What stamps of bytes show of the layers of this host, while `dwell why` looks. They need the capabilities of `dwell stack`.

use std::{
    fs::File,
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
    Error, count_run_times,
    host::lacking_to_load,
    stack::{self, Interval, Monitor, Observer, Options, PROFILES},
};
use dwell_socket::outside::{Scope, Selection, namespace};
use nix::sched::{CloneFlags, setns};

/// One byte in so many is stamped, unless that costs more than the budget.
const SAMPLE_BYTES: u32 = 1024;
/// The same where nobody knows what that costs: the kernel counts it with CAP_SYS_ADMIN only.
const UNCOUNTED_SAMPLE_BYTES: u32 = 65_536;
/// The share of the host's processor time that stamping may use.
const CPU_BUDGET: f64 = 0.005;
/// The most processes whose bytes are stamped, of several cgroups or of one of version 1.
const MAX_PROCESSES: usize = 1024;
/// Longer than any look: there is one interval.
const INTERVAL: Duration = Duration::from_secs(1 << 30);

/// Why bytes cannot be stamped, and what to do.
struct Blind {
    why: String,
    remedy: String,
}

impl From<String> for Blind {
    fn from(why: String) -> Blind {
        let remedy = match nix::unistd::geteuid().is_root() {
            true => "dwell doctor shows what this kernel lacks",
            false => "run dwell as root",
        };
        Blind { why, remedy: remedy.into() }
    }
}

/// Stamps bytes until it is ended.
pub struct Stamping {
    thread: JoinHandle<Result<Layers, Blind>>,
    is_over: Arc<AtomicBool>,
}

impl Stamping {
    /// Starts to stamp bytes of the target.
    pub fn start(selected: &Selection) -> Stamping {
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
            Err(Blind { why, remedy }) => {
                let what = format!("queues and waits in the layers of this host: {why}");
                evidence.unseen.push(Unseen { what, remedy });
            }
        }
    }
}

fn stamp(selected: &Selection, is_over: &AtomicBool) -> Result<Layers, Blind> {
    if let Some((lacking, remedy)) = lacking_to_load() {
        return Err(Blind { why: format!("stamping bytes needs {}", lacking.join(", ")), remedy: remedy.into() });
    }
    go_to(selected)?;
    let mut options = Options::new(config(selected)?, &PROFILES[0]);
    match selected {
        Selection::Ends { .. } => {}
        // Workers have the connections of many services. Those that start later are not stamped.
        Selection::Process(pid) => {
            let mut tree = Scope::Tree(*pid).processes();
            // None would stand for all processes.
            tree.sort_by_key(|other| other != pid);
            tree.truncate(MAX_PROCESSES);
            if tree.is_empty() {
                return Err(format!("process {pid} has ended").into());
            }
            options.processes = tree;
        }
        Selection::Cgroups(paths) => match &paths[..] {
            [path] if path.join("cgroup.controllers").exists() => options.cgroup = Some(path.clone()),
            // The kernel's programs know one cgroup, and none of version 1.
            _ => options.processes = members(paths)?,
        },
    }
    let budget = count_run_times().is_some().then_some(CPU_BUDGET);
    if budget.is_none() {
        options.config.sample_bytes = UNCOUNTED_SAMPLE_BYTES;
    }
    let mut monitor = Monitor::attach(&options, budget).map_err(|error| error.to_string())?;
    let mut means = Means::default();
    let run = monitor.run(INTERVAL, || is_over.load(Ordering::Relaxed), &mut means);
    monitor.detach();
    run.and_then(|()| monitor.end_interval(&mut means)).map_err(|error| error.to_string())?;
    Ok(means.0)
}

/// Moves this thread into the network namespace of the target's processes; of the first one's where there are several.
fn go_to(selected: &Selection) -> Result<(), Blind> {
    let pid = match selected {
        Selection::Ends { .. } => return Ok(()),
        Selection::Process(pid) => *pid,
        Selection::Cgroups(paths) => members(paths)?[0],
    };
    let number = |process: &str| namespace::number_of(process).map_err(|error| error.to_string());
    if number(&pid.to_string())? == number("thread-self")? {
        return Ok(());
    }
    let namespace = File::open(format!("/proc/{pid}/ns/net")).map_err(|error| error.to_string())?;
    setns(namespace, CloneFlags::CLONE_NEWNET).map_err(|error| format!("its network namespace: {error}"))?;
    Ok(())
}

/// The processes of cgroups: at least one, because none would stand for all processes.
fn members(cgroups: &[PathBuf]) -> Result<Vec<u32>, String> {
    let mut members = namespace::members_of(cgroups).map_err(|error| error.to_string())?;
    members.truncate(MAX_PROCESSES);
    match members.is_empty() {
        true => Err("the cgroup has no process".to_owned()),
        false => Ok(members),
    }
}

fn config(selected: &Selection) -> Result<Config, String> {
    let (mut port, mut filter) = (None, Filter::default());
    if let Selection::Ends { addresses, port: wanted } = selected {
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
        seed: crate::source::seed(),
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
