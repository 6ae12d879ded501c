//! `dwell collect`: what agents on many hosts measured, in one store.

mod clocks;
mod desk;
mod forward;
mod ledger;
mod metrics;
mod time;

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, mpsc::RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use clap::ValueEnum;
use dwell_engine::layers::join::Config;
use dwell_fleet::{Key, Server};
use dwell_records::{Output, Sink, Source, entry};
use dwell_store::{Address, Login, Server as ClickHouse, Store};

use self::{
    clocks::Clocks,
    desk::{Job, Jobs, desk},
    forward::Forward,
    ledger::Ledger,
};
use crate::{
    args::{nanos, positive_duration, socket},
    exit::{Exit, Failure},
    identity::IdentityArgs,
    served::Served,
    source::boot_id,
    stop::Stop,
    tell::tell,
};

/// Between two looks whether to end, or whether an interval is over.
const POLL: Duration = Duration::from_millis(50);
/// Batches that are stored at once.
const MOST_JOBS: usize = 64;

/// Gather what agents on many hosts measured
///
/// Listens for `dwell agent`, writes what it tells into a store, and joins what two hosts tell of
/// the same bytes: the time in the network between them, and from socket to socket. What was
/// acknowledged to an agent is on the disk.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell collect --new-key fleet.key          a key for agents and collector
  dwell collect --listen 0.0.0.0:4790 --store fleet.db --key-file fleet.key
  dwell collect --listen [::]:4790 --store fleet.db --key-file fleet.key --format text
  dwell collect --listen [::]:4790 --store clickhouse://db.example:8123/dwell \\
    --spool fleet.spool --key-file fleet.key")]
#[group(skip)]
pub struct Args {
    /// Where to listen for agents
    #[arg(long, value_name = "ADDRESS", value_parser = socket, required_unless_present = "new_key")]
    listen: Option<SocketAddr>,

    /// Where to keep it: a file of SQLite, made if it is not there, or
    /// clickhouse://HOST:PORT/DATABASE
    #[arg(long, value_name = "FILE", value_parser = place, required_unless_present = "new_key")]
    store: Option<Place>,

    /// With ClickHouse, the file where what is acknowledged waits until the server has it: SQLite
    #[arg(long, value_name = "FILE")]
    spool: Option<PathBuf>,

    #[command(flatten)]
    identity: IdentityArgs,

    /// Make a file with a new key, and end
    #[arg(long, value_name = "FILE", exclusive = true)]
    new_key: Option<PathBuf>,

    /// Time over which the way between hosts is summed up
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    interval: Duration,

    /// Time between two comparisons of a host's clock; the first ones follow faster
    #[arg(long, value_name = "TIME", default_value = "64s", value_parser = positive_duration)]
    sync_interval: Duration,

    /// Flag bytes whose time between two hosts may be wrong by more than this
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = positive_duration)]
    max_clock_error: Duration,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,

    /// Print the way of bytes between each two hosts, an interval at a time
    #[arg(long, value_enum, default_value_t = Format::None)]
    format: Format,

    /// With --format, each flow by itself too
    #[arg(long)]
    flows: bool,

    /// Serve metrics for Prometheus at http://ADDRESS/metrics
    #[arg(long, value_name = "ADDRESS", value_parser = socket)]
    metrics: Option<SocketAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    None,
    Text,
    Jsonl,
}

/// What rows end in.
#[derive(Debug, Clone)]
enum Place {
    File(PathBuf),
    Server(Address),
}

fn place(text: &str) -> Result<Place, String> {
    if text.starts_with(Address::SCHEME) {
        let address: Result<Address, _> = text.parse();
        return address.map(Place::Server).map_err(str::to_owned);
    }
    Ok(Place::File(text.into()))
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    if let Some(path) = &args.new_key {
        Key::create(path)?;
        return Ok(Exit::Done);
    }
    let (Some(listen), Some(place)) = (args.listen, &args.store) else {
        unreachable!("clap requires both");
    };
    let identity = args.identity.identity()?;
    let stop = Stop::listen(args.duration)?;
    let served = args.metrics.map(Served::start).transpose()?;
    let (store, forward) = open(place, args.spool.as_deref())?;
    let clocks = Clocks::new(args.sync_interval, boot_id()?);
    let mut ledger = Ledger::open(store, forward, &args.told(), clocks.clone(), args.output()?, served)?;
    let (desk, jobs) = desk(clocks);
    let server = Server::start(listen, identity, Arc::clone(&desk))?;
    tell(format_args!("agents are awaited at {}", server.address()));
    let ended = work(&mut ledger, &jobs, &stop, &server);
    let refusals = server.refusals();
    // Who waits for an answer is told that there is none.
    drop(jobs);
    drop(server);
    match ended {
        Err(failure) if failure.exit == Exit::Incomplete => Err(failure),
        ended => {
            let finished = ledger.finish(&refusals);
            ended.and(finished).map(|()| Exit::Done)
        }
    }
}

fn open(place: &Place, spool: Option<&Path>) -> Result<(Store, Option<Forward>), Failure> {
    match (place, spool) {
        (Place::File(path), None) => Ok((Store::open(path)?, None)),
        (Place::Server(address), Some(path)) => {
            let login = Login {
                user: env::var("CLICKHOUSE_USER").unwrap_or_else(|_| "default".into()),
                password: env::var("CLICKHOUSE_PASSWORD").ok(),
            };
            let mut store = Store::open(path)?;
            let number = store.spool()?;
            let server = ClickHouse::open(address.clone(), login)?;
            Ok((store, Some(Forward::start(server, number)?)))
        }
        (Place::File(_), Some(_)) => {
            Err(Failure::usage(anyhow!("--spool is for a --store on a server, clickhouse://HOST:PORT/DATABASE")))
        }
        (Place::Server(_), None) => {
            Err(Failure::usage(anyhow!("name a file with --spool: what is on its way to the server waits there")))
        }
    }
}

/// Stores what comes, many batches at once, until it is to end.
fn work(ledger: &mut Ledger, jobs: &Jobs, stop: &Stop, server: &Server) -> Result<(), Failure> {
    let mut looked = Instant::now();
    while !stop.is_asked() {
        if ledger.is_full()? {
            thread::sleep(POLL);
        } else {
            match jobs.next(POLL, MOST_JOBS) {
                Ok(some) => serve(ledger, some)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
        if looked.elapsed() >= POLL {
            looked = Instant::now();
            ledger.look(server)?;
            ledger.forward()?;
        }
    }
    Ok(())
}

fn serve(ledger: &mut Ledger, jobs: Vec<Job>) -> Result<(), Failure> {
    let (mut batches, mut sights) = (Vec::new(), Vec::new());
    for job in jobs {
        match job {
            Job::Hello(agent, answer) => {
                let _ = answer.send(ledger.hello(&agent)?);
            }
            Job::Gone(agent, why) => tell(format_args!("{} is gone: {why}", agent.name)),
            Job::Clock(sight) => sights.push(sight),
            Job::Store(agent, batch, answer) => batches.push((agent, batch, answer)),
        }
    }
    let (told, answers): (Vec<_>, Vec<_>) =
        batches.into_iter().map(|(agent, batch, answer)| ((agent, batch), answer)).unzip();
    ledger.store(&told, &sights)?;
    for answer in answers {
        let _ = answer.send(());
    }
    Ok(())
}

impl Args {
    fn told(&self) -> Config {
        Config { window_ns: nanos(self.interval), doubt_ns: nanos(self.max_clock_error), ..Config::default() }
    }

    fn output(&self) -> Result<Option<ledger::Print>, Failure> {
        let name = match self.format {
            Format::None => return Ok(None),
            Format::Text => "text",
            Format::Jsonl => "jsonl",
        };
        let format = entry(name).expect("a format of this name");
        let output = Output::new((format.new)(), Sink::stdout()?, Source::default());
        Ok(Some(ledger::Print { output, flows: self.flows }))
    }
}
