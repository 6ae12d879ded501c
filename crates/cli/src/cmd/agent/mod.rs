//! `dwell agent`: sends the times of bytes in the layers of this host to a collector.

mod clock;
mod metrics;
mod send;

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::anyhow;
use dwell_engine::{filter::MAX_TERMS, layers::Config};
use dwell_fleet::{
    Backlog, CollectorAddress, Confinement, Event, Outbox, Uplink,
    wire::{AgentName, Hello},
};
use dwell_records::counted;
use dwell_socket::{
    clock::boot_id,
    privilege::{self, Capability},
};

use self::{clock::ClockReflector, send::Reporter};
use crate::{
    args::{positive_duration, sample_bytes},
    clock_mode::ClockModeArgs,
    confined::confine,
    exit::{Exit, Failure},
    identity::IdentityArgs,
    served::MetricsArgs,
    source::{StackArgs, host_name},
    stop::Stop,
    tell::tell,
};

/// How long to wait at the end for the collector to store what it has not.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

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
  dwell agent --collector 192.0.2.9:4790 --key-file fleet.key --port 443 --name web-1
  dwell agent --collector collector.example:4790 --cert web-1.pem --key web-1.key --ca ca.pem")]
#[group(skip)]
pub struct Args {
    /// The address where `dwell collect` listens
    #[arg(long, value_name = "HOST:PORT")]
    collector: CollectorAddress,

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

    /// Megabytes of results to keep for the collector
    #[arg(long, value_name = "MB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    buffer: u32,

    /// Folder that keeps these results on disk too, for the next agent to send if this one is killed; or none
    #[arg(long, value_name = "DIR", default_value = "/var/lib/dwell-agent")]
    buffer_dir: PathBuf,

    #[command(flatten)]
    clock_mode: ClockModeArgs,

    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    if let Some(token) = &args.token_file {
        args.identity.enroll(token, &args.collector)?;
    }
    let (identity, own_name) = args.identity.identity()?;
    args.clock_mode.check(&args.collector)?;
    let name = args.name(own_name)?;
    args.confine()?;
    let mut reflector = ClockReflector::start(args.clock_mode.mode());
    let hello = Hello {
        name,
        run: rand::random(),
        boot: boot_id().map_err(|error| Failure::new(Exit::Host, error))?,
        sync_port: reflector.port(),
        is_past: false,
        confirmed: 0,
    };
    let outbox = Outbox::new(args.buffer as usize * 1_000_000, &hello);
    let mut config = Config { traces: true, again: true, ..args.selection.config(args.sample_bytes)? };
    let given = config.filter.terms();
    if given == MAX_TERMS {
        let most = MAX_TERMS - 1;
        return Err(Failure::usage(anyhow!(
            "an agent's filter has at most {most} terms, and {given} were given: one place is for the rule that leaves out \
             its own connection to the collector; join or drop a rule"
        )));
    }
    config.filter.exclude_port(args.collector.port());
    let stop = Stop::listen(args.duration)?;
    let served = args.metrics.start("agent")?;
    args.keep_on_disk(&outbox, &hello.name);
    let mut monitor = args.selection.attach(config, Some(args.max_flows))?;
    // Those of its unit; threads that speak to the network keep fewer.
    privilege::keep(&[Capability::Bpf, Capability::NetAdmin, Capability::Perfmon])
        .map_err(|error| Failure::new(Exit::Host, anyhow!("cannot give up privileges: {error}")))?;
    let collector = args.collector.clone();
    let on_event = move |event| match event {
        Event::Authenticated { collector, secret } => reflector.admit(collector, &secret),
        Event::Connected { collector, is_past: false } => {
            tell(format_args!("connected to the collector at {collector}"));
        }
        Event::Connected { collector, is_past: true } => {
            tell(format_args!("sends what an earlier agent left to the collector at {collector}"));
        }
        Event::Rejected { reason } => {
            tell(format_args!(
                "the collector rejects a batch, which is given up: {reason}; use the same version of dwell"
            ));
        }
        Event::Disk(notice) => tell(notice),
        Event::Busy { reason, is_new: true } => tell(format_args!("{reason}; what is measured waits")),
        Event::Busy { .. } => {}
        Event::Disconnected { reason, is_new } => {
            reflector.dismiss();
            if !is_new {
                return;
            }
            tell(format_args!("no collector at {collector}: {reason}; what is measured waits"));
        }
    };
    let uplink = Uplink::start(args.collector.clone(), identity, hello, outbox, on_event)?;
    let mut reporter = Reporter::new(uplink, served);
    let ended = monitor.run(args.interval, || stop.is_asked(), &mut reporter);
    monitor.detach();
    let last = monitor.end_interval(&mut reporter);
    let left = reporter.finish(DRAIN_TIMEOUT);
    monitor.pauses().into_iter().for_each(tell);
    ended.and(last)?;
    args.report_left(left)
}

impl Args {
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
    fn keep_on_disk(&self, outbox: &Outbox, name: &AgentName) {
        if self.is_in_memory() {
            return;
        }
        // A name may be "..".
        let folder = self.buffer_dir.join(format!("agent-{name}"));
        match outbox.keep_in(&folder) {
            Ok(0) => {}
            Ok(bytes) => tell(format_args!(
                "{bytes} bytes that an earlier agent left in {} cannot be read, and are given up: they were cut off, or are \
                 of another version of dwell",
                folder.display()
            )),
            Err(error) => tell(format_args!(
                "{error}; what is measured waits in memory only, and is lost if this agent is killed: name another folder with \
                 --buffer-dir, or none"
            )),
        }
        let left = outbox.backlog().batches;
        if left > 0 {
            tell(format_args!("an earlier agent left {}, which are sent first", counted(left, "batch", "batches")));
        }
    }

    /// Reports what the collector has not stored at the end.
    fn report_left(&self, left: Backlog) -> Result<Exit, Failure> {
        let Backlog { batches: waiting, dropped, is_on_disk, .. } = left;
        if (waiting, dropped) == (0, 0) {
            return Ok(Exit::Done);
        }
        let kept = match (waiting, is_on_disk) {
            (0, _) => String::new(),
            (_, true) => format!(" (they are in {} for the next agent)", self.buffer_dir.display()),
            (_, false) => " (they are lost)".to_owned(),
        };
        Err(Failure::new(
            Exit::Incomplete,
            anyhow!(
                "the collector has not stored {waiting} batches of what was measured{kept}, and {dropped} more were dropped, \
                 mostly as --buffer was full"
            ),
        ))
    }
}
