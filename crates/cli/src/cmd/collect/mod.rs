//! `dwell collect`: what agents on many hosts measured, in one store.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::anyhow;
use dwell_collector::{Destination, Judge, Options, Print};
use dwell_engine::{
    gray,
    histogram::Histogram,
    layers::{PathSegment, join::Config},
    units::nanos,
};
use dwell_fleet::{Confinement, Key, folder_of, wire::AgentName};
use dwell_records::{Output, Source, Verdict};
use dwell_socket::privilege::Capability;
use dwell_store::{Address, Retain};
use nix::unistd::geteuid;

use crate::{
    args::{FormatOrNone, megabytes, positive_duration, socket},
    clock_mode::ClockModeArgs,
    confined::confine,
    exit::{Exit, Failure},
    identity::IdentityArgs,
    log::log,
    secret::clickhouse_login,
    segments::{self, PathConditions, Segments},
    served::MetricsArgs,
    source::host_name,
    stored,
    written::WriteArgs,
};

/// Collect the measurements of agents on many hosts
///
/// Listens for `dwell agent`, stores its measurements, and joins those of two hosts about the same
/// bytes: the time in the network between them, and from socket to socket. Measurements are
/// acknowledged to an agent once they are on disk.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell collect --new-key fleet.key          the collector's key
  dwell collect --new-agent web-1 --key-file fleet.key --agents agents
                                             web-1.key, which names the agent and is good for no other
  dwell collect --new-token db-1 --key-file fleet.key --agents agents | ssh db-1 'umask 077; cat > token'
                                             db-1 gets its key itself: dwell agent --token-file token
  dwell collect --listen 0.0.0.0:4790 --store fleet.db --key-file fleet.key --agents agents
  dwell collect --listen 0.0.0.0:4790 --store fleet.db --key-file fleet.key
                                             for trying out: agents share the key
  dwell collect --listen [::]:4790 --store fleet.db --key-file fleet.key --format text
  dwell collect --listen [::]:4790 --store fleet.db --key-file fleet.key -w paths.jsonl --rotate 100M
  dwell collect --listen [::]:4790 --store clickhouse://db.example:8123/dwell \\
    --spool fleet.spool --key-file fleet.key")]
#[group(skip)]
pub struct Args {
    /// Address and port to listen on for agents
    #[arg(long, value_name = "ADDRESS", value_parser = socket, required_unless_present_any = ["new_key", "new_agent", "new_token"])]
    listen: Option<SocketAddr>,

    /// Store for the measurements: an SQLite file, created if it does not exist, or
    /// clickhouse://HOST:PORT/DATABASE, or clickhouses:// for TLS
    #[arg(long, value_name = "FILE", value_parser = place, required_unless_present_any = ["new_key", "new_agent", "new_token"])]
    store: Option<Place>,

    /// Delete rows of the store that are older than AGE, as in 30d or 12h, and the oldest ones while they take more than SIZE, as
    /// in 4G; or `all` to keep them [default: 30d,4G; on a ClickHouse server all]
    #[arg(long, value_name = "AGE,SIZE", value_parser = stored::retention)]
    retain: Option<Retain>,

    /// With ClickHouse, an SQLite file for acknowledged measurements that the server does not have yet
    #[arg(long, value_name = "FILE")]
    spool: Option<PathBuf>,

    /// How much may wait in the spool; while it is full, agents keep their measurements [default: 2G]
    #[arg(long, value_name = "SIZE", value_parser = megabytes)]
    spool_limit: Option<u64>,

    /// File with the password of the ClickHouse user, which other users of this host cannot read
    #[arg(long, value_name = "FILE")]
    clickhouse_password_file: Option<PathBuf>,

    #[command(flatten)]
    identity: IdentityArgs,

    /// List of agents that have keys of their own, one name per line; it may change at any time
    #[arg(long, value_name = "FILE")]
    agents: Option<PathBuf>,

    /// Create a file with a new key, and exit
    #[arg(long, value_name = "FILE", exclusive = true)]
    new_key: Option<PathBuf>,

    /// Create the key of an agent, NAME.key next to the list of --agents, add it to that list, and exit; a former key
    /// of that name is no longer valid
    #[arg(long, value_name = "NAME", requires_all = ["agents", "key_file"])]
    new_agent: Option<String>,

    /// Print a token by which the agent NAME gets its key from this collector itself, once, note it next to the list
    /// of --agents, and exit; a former token of that name is no longer valid, and its key once this one is used
    #[arg(long, value_name = "NAME", requires_all = ["agents", "key_file"], conflicts_with = "new_agent")]
    new_token: Option<String>,

    /// Time after which such a token is no longer valid
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = positive_duration, requires = "new_token")]
    token_lifetime: Duration,

    /// Bytes per second that each agent may send; ten times as many at once
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = megabytes)]
    agent_rate: u64,

    /// Length of an interval, over which the segments between hosts are aggregated
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    interval: Duration,

    /// Time between two comparisons of a host's clock; the first ones follow faster
    #[arg(long, value_name = "TIME", default_value = "64s", value_parser = positive_duration)]
    sync_interval: Duration,

    #[command(flatten)]
    clock_mode: ClockModeArgs,

    /// Flag bytes whose time between two hosts may be wrong by more than this
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = positive_duration)]
    max_clock_error: Duration,

    /// Search for gray failures (hosts, paths and services that have become slower than their peers, or lose more),
    /// with at most COUNT false alarms per week on average; 0 turns the search off
    #[arg(long, value_name = "COUNT", default_value_t = 1.0, value_parser = budget)]
    gray_budget: f64,

    /// Length of the intervals over which they are compared, no shorter than --interval
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    gray_interval: Duration,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,

    /// Output format: text or jsonl, the path of bytes between each pair of hosts, interval by interval; or none, which prints
    /// nothing
    #[arg(long, value_enum, default_value_t = FormatOrNone::None)]
    format: FormatOrNone,

    #[command(flatten)]
    conditions: PathConditions,

    #[command(flatten)]
    write: WriteArgs,

    /// Also report each flow separately, with --format or --write
    #[arg(long)]
    flows: bool,

    #[command(flatten)]
    metrics: MetricsArgs,
}

/// How much may wait in the spool, unless the user says otherwise.
const SPOOL_BYTES: u64 = 2_000_000_000;

/// The store.
#[derive(Debug, Clone)]
enum Place {
    File(PathBuf),
    Server(Address),
}

fn place(text: &str) -> Result<Place, String> {
    if Address::is_meant_by(text) {
        let address: Result<Address, _> = text.parse();
        return address.map(Place::Server).map_err(str::to_owned);
    }
    Ok(Place::File(text.into()))
}

fn budget(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(budget @ 0.0..=1e6) => Ok(budget),
        _ => Err("write a number from 0 to 1,000,000, as in 0.1".to_owned()),
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    if let Some(path) = &args.new_key {
        Key::create(path)?;
        return Ok(Exit::Done);
    }
    if let (Some(name), Some(list)) = (&args.new_agent, &args.agents) {
        let path = args.identity.collector_key()?.enroll(&AgentName::try_from(name.clone())?, list)?;
        log(format_args!("the key of {name} is in {}: bring it to that host, and delete it here", path.display()));
        return Ok(Exit::Done);
    }
    if let (Some(name), Some(list)) = (&args.new_token, &args.agents) {
        let name = AgentName::try_from(name.clone())?;
        let token = args.identity.collector_key()?.issue_token(&name, list, args.token_lifetime)?;
        dwell_records::print(format!("{token}\n"))?;
        return Ok(Exit::Done);
    }
    let (Some(listen), Some(place)) = (args.listen, &args.store) else {
        unreachable!("clap requires both");
    };
    let identity = args.identity.of_collector(args.agents.as_deref())?;
    let destination = args.destination(place)?;
    args.confine()?;
    let stop = args.write.listen(args.duration)?;
    let served = args.metrics.start("collect")?;
    let segments = Arc::new(Mutex::new(args.conditions.segments()));
    let options = Options {
        listen,
        identity,
        destination,
        join: args.join(),
        sync_interval: args.sync_interval,
        clock_mode: args.clock_mode.mode(),
        agent_rate: args.agent_rate,
        gray: args.gray(),
        print: args.print()?,
        judge: Some(Box::new(PathJudge(Arc::clone(&segments)))),
        registry: served.as_ref().map(|served| Arc::clone(&served.registry)),
        capabilities: args.capabilities(),
    };
    dwell_collector::run(options, &stop)?;
    let verdict = PathJudge(segments).judge();
    Ok(segments::exit(verdict.as_ref()))
}

/// Judges all paths of a run together.
struct PathJudge(Arc<Mutex<Segments>>);

impl PathJudge {
    fn segments(&self) -> MutexGuard<'_, Segments> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Judge for PathJudge {
    fn add(&mut self, segment: PathSegment, histogram: &Histogram) {
        self.segments().add(segment, histogram);
    }

    fn judge(&mut self) -> Option<Verdict> {
        self.segments().judge()
    }
}

impl Args {
    /// Leaves to this process and its threads, which strangers speak to, no files but those that it changes from now on.
    fn confine(&self) -> Result<(), Failure> {
        let kept = Confinement { reads: self.metrics.files().collect(), writes: Vec::new() };
        let kept = self.identity.keep_files(kept);
        confine(self.changed_files().fold(kept, |kept, file| kept.beside(file)))
    }

    /// The files that are changed while it runs.
    fn changed_files(&self) -> impl Iterator<Item = &Path> {
        let store = match &self.store {
            Some(Place::File(path)) => Some(path),
            _ => self.spool.as_ref(),
        };
        [store, self.agents.as_ref(), self.write.write.as_ref()].into_iter().flatten().map(PathBuf::as_path)
    }

    /// What this process needs for its files: root, which owns them, needs nothing. Those of another user are kept that user's.
    fn capabilities(&self) -> &'static [Capability] {
        let own = geteuid().as_raw();
        let is_of_another = |file: &Path| fs::metadata(file).is_ok_and(|metadata| metadata.uid() != own);
        let files = self.changed_files().chain(self.identity.files());
        match files.flat_map(|file| [file, folder_of(file)]).any(is_of_another) {
            true => &[Capability::Chown, Capability::DacOverride],
            false => &[],
        }
    }

    fn destination(&self, place: &Place) -> Result<Destination, Failure> {
        match (place, &self.spool) {
            (Place::File(_), _) if self.clickhouse_password_file.is_some() => {
                Err(stored::for_server("--clickhouse-password-file"))
            }
            (Place::File(_), Some(_)) => Err(stored::for_server("--spool")),
            (Place::File(_), None) if self.spool_limit.is_some() => Err(stored::for_server("--spool-limit")),
            (Place::File(path), None) => {
                Ok(Destination::File { path: path.clone(), retain: Some(self.retain.unwrap_or(stored::RETAIN)) })
            }
            (Place::Server(_), _) if self.retain.is_some() => Err(Failure::usage(anyhow!(
                "--retain is for a --store that is a file: drop old partitions on the server"
            ))),
            (Place::Server(address), Some(spool)) => Ok(Destination::Server {
                address: address.clone(),
                login: clickhouse_login(self.clickhouse_password_file.as_deref())?,
                spool: spool.clone(),
                spool_bytes: self.spool_limit.unwrap_or(SPOOL_BYTES),
            }),
            (Place::Server(_), None) => {
                Err(Failure::usage(anyhow!("name a file with --spool: rows for the server wait there")))
            }
        }
    }

    fn join(&self) -> Config {
        Config { window_ns: nanos(self.interval), doubt_ns: nanos(self.max_clock_error), ..Config::default() }
    }

    fn gray(&self) -> Option<gray::Config> {
        let config = gray::Config { interval_ns: nanos(self.gray_interval), budget: self.gray_budget };
        (self.gray_budget > 0.0).then_some(config)
    }

    fn print(&self) -> Result<Option<Print>, Failure> {
        let Some(format) = self.write.format(self.format.name()) else {
            return match self.flows {
                true => Err(Failure::usage(anyhow!(
                    "--flows is for what --format prints or --write keeps: give one of them"
                ))),
                false => Ok(None),
            };
        };
        let source = Source { host: Some(host_name()), ..Source::default() };
        let output = Output::new((format.new)(), self.write.open()?, source);
        Ok(Some(Print { output, flows: self.flows }))
    }
}
