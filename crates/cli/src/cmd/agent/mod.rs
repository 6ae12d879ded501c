//! `dwell agent`: sends the times of bytes in the layers of this host to a collector.

mod clock;
mod metrics;
mod send;

use std::{
    collections::BTreeSet,
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::anyhow;
use dwell_engine::{filter::MAX_TERMS, layers::Config};
use dwell_fleet::{
    Backlog, BufferError, CollectorAddress, Confinement, Event, Lane, Lanes, MAX_COLLECTORS, Outbox, Unread,
    VERSION_REMEDY,
    wire::{AgentName, Hello, RunId},
};
use dwell_metrics::Shared;
use dwell_records::{Source, counted};
use dwell_socket::{
    clock::boot_id,
    privilege::{self, Capability},
};

use self::{clock::ClockReflector, metrics::ConnectionMetrics, send::Reporter};
use crate::{
    args::{megabytes, positive_duration, sample_bytes},
    clock_mode::ClockModeArgs,
    confined::confine,
    exit::{Exit, Failure},
    identity::IdentityArgs,
    log::log,
    segments::{self, HostConditions},
    served::MetricsArgs,
    source::{Namespaces, StackArgs, clock, host_name},
    statuses::{StatusArgs, Statuses},
    stop::Stop,
};

/// How long to wait at the end for the collector to store what it has not.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The smallest part of the buffer, in megabytes, that one of several collectors has: some batches of the largest size.
const MIN_BUFFER_MB: u64 = 4;

/// Send the times of bytes in the layers of this host to a collector
///
/// Measures like `dwell stack`, and sends the results to `dwell collect`, which joins those that
/// several hosts have of the same bytes. While the collector is unreachable, results are kept up to
/// --buffer, in memory and in --buffer-dir, and the oldest are dropped first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell agent --collector collector.example:4790 --key-file web-1.key
  dwell agent --collector collector.example:4790 --key-file web-1.key --token-file token
                                             at the first start; later ones have the key
  dwell agent --collector a.example:4790,b.example:4790,c.example:4790 --key-file web-1.key
  dwell agent --collector 192.0.2.9:4790 --key-file fleet.key --port 443 --name web-1
  dwell agent --collector collector.example:4790 --cert web-1.pem --key web-1.key --ca ca.pem")]
#[group(skip)]
pub struct Args {
    /// The address where `dwell collect` listens; or several, up to 16 separated by commas, in the same spelling at all
    /// agents: each flow is sent to one of them, and to another one while that is down
    #[arg(long, value_name = "HOST:PORT,...", required = true, value_delimiter = ',')]
    collector: Vec<CollectorAddress>,

    #[command(flatten)]
    identity: IdentityArgs,

    /// File with a token that `dwell collect --new-token NAME` has printed: if --key-file does not exist yet, get the key
    /// from the collector, and write it there
    #[arg(long, value_name = "FILE", requires = "key_file")]
    token_file: Option<PathBuf>,

    /// Name of the agent, different from that of any other agent of the collector [default: that of its key, or the host's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    selection: StackArgs,

    /// Length of an interval, over which segments are aggregated
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    interval: Duration,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,

    /// Stamp one in N bytes of each connection: a power of two from 64 to 16777216, the same on all
    /// hosts
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = sample_bytes)]
    sample_bytes: u32,

    /// Maximum number of flows to keep apart in an interval; others count in the sums only
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_flows: u32,

    /// Size of the results to keep for the collector
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = megabytes)]
    buffer: u64,

    /// Folder that keeps these results on disk too, for the next agent to send if this one is killed; or none
    #[arg(long, value_name = "DIR", default_value = "/var/lib/dwell-agent")]
    buffer_dir: PathBuf,

    #[command(flatten)]
    clock_mode: ClockModeArgs,

    #[command(flatten)]
    conditions: HostConditions,

    #[command(flatten)]
    statuses: StatusArgs,

    #[command(flatten)]
    metrics: MetricsArgs,
}

/// The name of the folder for a collector's batches: its address, with all but letters, digits, dots and dashes as numbers.
fn folder_name(collector: &CollectorAddress) -> String {
    let address = collector.to_string();
    let escaped = address.bytes().map(|byte| match byte {
        byte if byte.is_ascii_alphanumeric() || b".-".contains(&byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    format!("to-{}", escaped.collect::<String>())
}

fn report_unread(folder: &Path, Unread { damaged, newer, older }: Unread) {
    let folder = folder.display();
    if damaged > 0 {
        log(format_args!(
            "{damaged} bytes that an earlier agent left in {folder} cannot be read, and are discarded: they were cut off"
        ));
    }
    if newer > 0 {
        log(format_args!("{newer} bytes in {folder} are of a newer dwell, and stay there for it"));
    }
    if older > 0 {
        log(format_args!(
            "{older} bytes in {folder} are of a dwell too old for this one to read, and stay there: start a version between the \
             two once to send them, or delete its files"
        ));
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    args.check()?;
    if let Some(token) = &args.token_file {
        args.identity.enroll(token, &args.collector[0])?;
    }
    let (identity, own_name) = args.identity.identity()?;
    args.collector.iter().try_for_each(|collector| args.clock_mode.check(collector))?;
    let name = args.name(own_name)?;
    args.confine()?;
    let reflector = ClockReflector::start(args.clock_mode.mode());
    let hello = Hello {
        name,
        run: RunId::default(),
        boot: boot_id().map_err(|error| Failure::new(Exit::Host, error))?,
        sync_port: reflector.port(),
        is_past: false,
        confirmed: 0,
    };
    let config = args.config()?;
    let stop = Stop::listen(args.duration)?;
    let served = args.metrics.start("agent")?;
    let lanes = args.lanes(&hello);
    let mut monitor = args.selection.attach(config, Some(args.max_flows))?;
    // Those of its unit; threads that speak to the network keep fewer.
    privilege::keep(&[Capability::Bpf, Capability::NetAdmin, Capability::Perfmon])
        .map_err(|error| Failure::new(Exit::Host, anyhow!("cannot give up privileges: {error}")))?;
    let connections = served.as_ref().map(|served| served.registry.register(ConnectionMetrics::default()));
    let lanes = Lanes::start(lanes, &identity, args.on_event(reflector, connections))?;
    let source = Source { clock: clock(), host: Some(host_name()), ..Source::default() };
    let statuses = Statuses::new(args.statuses, source)?;
    let segments = args.conditions.segments();
    let mut reporter = Reporter::new(lanes, served, Namespaces::of_this_host()?, statuses, segments);
    let ended = monitor.run(args.interval, || stop.is_asked(), &mut reporter);
    monitor.detach();
    let last = monitor.end_interval(&mut reporter);
    let (left, verdict) = reporter.finish(DRAIN_TIMEOUT);
    monitor.pauses().into_iter().for_each(log);
    ended.and(last)?;
    let exit = segments::exit(verdict.as_ref());
    args.report_left(left).map(|()| exit)
}

impl Args {
    fn check(&self) -> Result<(), Failure> {
        let collectors = &self.collector;
        let is_repeated = |(number, one): &(usize, &CollectorAddress)| collectors[..*number].contains(one);
        if collectors.len() > MAX_COLLECTORS {
            return Err(Failure::usage(anyhow!(
                "an agent has at most {MAX_COLLECTORS} collectors, and {} were given",
                collectors.len()
            )));
        }
        if let Some((_, repeated)) = collectors.iter().enumerate().find(is_repeated) {
            return Err(Failure::usage(anyhow!("the collector {repeated} was given twice: name it once")));
        }
        let least = MIN_BUFFER_MB * collectors.len() as u64;
        if collectors.len() > 1 && self.buffer < least * 1_000_000 {
            return Err(Failure::usage(anyhow!(
                "each collector has its part of --buffer: give it {least}M for {} of them",
                collectors.len()
            )));
        }
        Ok(())
    }

    /// What is measured: all that is selected but for the agent's own connections.
    fn config(&self) -> Result<Config, Failure> {
        let mut config = Config { traces: true, again: true, ..self.selection.config(self.sample_bytes)? };
        let ports: BTreeSet<u16> = self.collector.iter().map(CollectorAddress::port).collect();
        let (given, own) = (config.filter.terms(), ports.len());
        if given + own > MAX_TERMS {
            let most = MAX_TERMS - own;
            return Err(Failure::usage(anyhow!(
                "an agent's filter has at most {most} terms, and {given} were given: one term excludes its own \
                 connection to the collector, and one more is for each further port of collectors; merge or drop a rule"
            )));
        }
        ports.into_iter().for_each(|port| config.filter.exclude_port(port));
        Ok(config)
    }

    /// Makes the queue for each collector, each with its part of the buffer.
    fn lanes(&self, hello: &Hello) -> Vec<Lane> {
        let bytes = self.buffer as usize / self.collector.len();
        let lanes = self.collector.iter().map(|collector| {
            let hello = Hello { run: rand::random(), ..hello.clone() };
            Lane { collector: collector.clone(), outbox: Outbox::new(bytes, &hello), hello }
        });
        let lanes: Vec<_> = lanes.collect();
        self.keep_on_disk(&lanes, &hello.name);
        lanes
    }

    /// Returns what is done about changes of the connections to collectors, by their number.
    fn on_event(
        &self,
        mut reflector: ClockReflector,
        connections: Option<Shared<ConnectionMetrics>>,
    ) -> impl FnMut(usize, Event) + Send + 'static {
        let collectors = self.collector.clone();
        let note = move |number, is_connected| {
            if let Some(connections) = &connections {
                connections.lock().note(number, is_connected);
            }
        };
        move |number, event| match event {
            Event::Authenticated { collector, secret } => reflector.admit(number, collector, &secret),
            Event::Connected { collector, is_past: false } => {
                note(number, true);
                log(format_args!("connected to the collector at {collector}"));
            }
            Event::Connected { collector, is_past: true } => {
                log(format_args!("sends what an earlier agent left to the collector at {collector}"));
            }
            Event::Rejected { reason } => {
                log(format_args!("the collector rejected a batch, which is discarded: {reason}; {VERSION_REMEDY}"));
            }
            Event::GivenUp { reason } => {
                log(format_args!(
                    "a batch cannot be sent and is discarded: {reason}; it was damaged on disk, or is too long for the \
                     collector's version"
                ));
            }
            Event::Unusable(reason) => log(format_args!(
                "{reason}; until that is fixed, the previous content of the files stays in use, and no collector accepts \
                 this agent once it expires"
            )),
            Event::Disk(notice) => log(notice),
            Event::Busy { reason, is_new: true } => log(format_args!("{reason}; measurements wait")),
            Event::Busy { .. } => {}
            Event::Disconnected { reason, is_new } => {
                note(number, false);
                reflector.dismiss(number);
                if !is_new {
                    return;
                }
                let others = if collectors.len() > 1 { ", and others get it if that lasts" } else { "" };
                log(format_args!("no collector at {}: {reason}; measurements wait{others}", collectors[number]));
            }
        }
    }

    /// Returns the agent's name. Its key may be good for one name only.
    fn name(&self, own: Option<AgentName>) -> Result<AgentName, Failure> {
        match (self.name.clone().map(AgentName::try_from).transpose()?, own) {
            (Some(wanted), Some(own)) if wanted != own => Err(Failure::usage(anyhow!(
                "the key is that of '{own}', and so the agent cannot be '{wanted}': leave out --name"
            ))),
            (Some(name), _) | (None, Some(name)) => Ok(name),
            (None, None) => Ok(AgentName::try_from(host_name())?),
        }
    }

    /// Leaves to this process and its threads, which strangers speak to, no files but its buffer, and those by which older
    /// kernels attach probes.
    fn confine(&self) -> Result<(), Failure> {
        let mut writes = vec!["/sys/kernel/tracing".into(), "/sys/kernel/debug/tracing".into()];
        if !self.is_in_memory() {
            // Where this fails, keep_on_disk tells.
            let _ = DirBuilder::new().recursive(true).mode(0o700).create(&self.buffer_dir);
            writes.push(self.buffer_dir.clone());
        }
        confine(self.identity.keep_files(Confinement { reads: self.metrics.files().collect(), writes }))
    }

    fn is_in_memory(&self) -> bool {
        self.buffer_dir == Path::new("none")
    }

    /// Keeps results on disk too, if that is wanted and possible.
    fn keep_on_disk(&self, lanes: &[Lane], name: &AgentName) {
        if self.is_in_memory() {
            return;
        }
        // A name may be "..".
        let own = self.buffer_dir.join(format!("agent-{name}"));
        let folders: Vec<PathBuf> = match lanes {
            [_] => vec![own.clone()],
            several => several.iter().map(|lane| own.join(folder_name(&lane.collector))).collect(),
        };
        let warn = |error: BufferError| {
            let remedy = match error {
                BufferError::Taken(_) => "end that agent, or ",
                BufferError::Exposed(_) => "chmod 700 it, or ",
                BufferError::File { .. } => "",
            };
            log(format_args!(
                "{error}; measurements wait in memory only, and are lost if this agent is killed: {remedy}name another folder \
                 with --buffer-dir, or none"
            ));
        };
        // Of collectors that are no longer in the list.
        if let Err(error) = dwell_fleet::adopt(&own, &folders, &folders[0]) {
            return warn(error);
        }
        for (lane, folder) in lanes.iter().zip(&folders) {
            match lane.outbox.keep_in(folder) {
                Ok(unread) => report_unread(folder, unread),
                Err(error) => warn(error),
            }
        }
        let left = lanes.iter().map(|lane| lane.outbox.backlog().batches).sum();
        if left > 0 {
            log(format_args!("an earlier agent left {}, to be sent first", counted(left, "batch", "batches")));
        }
    }

    /// Reports what the collector has not stored at the end.
    fn report_left(&self, left: Backlog) -> Result<(), Failure> {
        let Backlog { batches: waiting, dropped, is_on_disk, .. } = left;
        if (waiting, dropped) == (0, 0) {
            return Ok(());
        }
        let kept = match is_on_disk {
            true => format!("they are in {} for the next agent", self.buffer_dir.display()),
            false => "they are lost".to_owned(),
        };
        let batches = |count| counted(count, "batch", "batches");
        let waiting =
            (waiting > 0).then(|| format!("has not stored {} of what was measured ({kept})", batches(waiting)));
        let dropped = (dropped > 0)
            .then(|| format!("was not sent {} that were dropped, mostly as --buffer was full", batches(dropped)));
        let what: Vec<_> = waiting.into_iter().chain(dropped).collect();
        Err(Failure::new(Exit::Incomplete, anyhow!("the collector {}", what.join(", and "))))
    }
}
