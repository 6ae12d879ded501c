//! What `dwell collect` does: it listens for agents, stores their batches before it acknowledges them, compares the
//! clocks of their hosts, and joins the byte traces of two hosts to the time in the network between them.
//!
//! One thread per agent receives; one thread writes ([`Collector`](collector::Collector)). Between them is a bounded
//! queue, so agents wait while the store is slow.

#![deny(clippy::print_stderr, reason = "messages go through dwell_app::log")]

mod clocks;
mod collector;
mod descriptors;
mod error;
mod estimates;
mod forward;
mod hosts;
mod metrics;
mod pace;
mod queue;
mod quota;
mod time;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, mpsc::RecvTimeoutError},
    time::{Duration, Instant},
};

use dwell_app::{log::log, stop::Stop};
use dwell_engine::{
    gray,
    histogram::Histogram,
    layers::{PathSegment, join::Config},
};
use dwell_fleet::{Identity, Limits, Server};
use dwell_metrics::Registry;
use dwell_probes::clock::ClockMode;
use dwell_records::{Output, Verdict};
use dwell_socket::{
    clock::boot_id,
    privilege::{self, Capability},
};
use dwell_store::{Address, Login, Retain, Server as ClickHouse, Store};

use self::{
    clocks::Clocks,
    collector::Collector,
    forward::Forward,
    queue::{Gate, Job, Jobs, queue},
};

pub use error::Error;

/// Time between two checks whether to end, or whether an interval is over.
const POLL: Duration = Duration::from_millis(50);
/// Batches that are stored in one transaction at most.
const MAX_JOBS: usize = 64;

/// How to collect.
pub struct Options {
    /// The address to listen on for agents.
    pub listen: SocketAddr,
    /// What agents know the collector by, and it them.
    pub identity: Identity,
    /// Where rows are kept.
    pub destination: Destination,
    /// How bytes are joined, and over which intervals.
    pub join: Config,
    /// Time between two comparisons of a host's clock; the first ones follow faster.
    pub sync_interval: Duration,
    /// What may take the timestamps at devices.
    pub clock_mode: ClockMode,
    /// Bytes per second that each agent may send, and ten times as many at once.
    pub agent_rate: u64,
    /// How gray failures are found, if they are.
    pub gray: Option<gray::Config>,
    /// Where tables of paths are printed, if they are.
    pub print: Option<Print>,
    /// Judges the paths, if they are judged.
    pub judge: Option<Box<dyn Judge>>,
    /// Where metrics are registered, if they are served.
    pub registry: Option<Arc<Registry>>,
    /// Capabilities that this process needs for its files, if it has them. It gives up all others once it listens, but for the
    /// threads that compare clocks.
    pub capabilities: &'static [Capability],
}

/// Where rows are kept.
pub enum Destination {
    /// A file of SQLite, created if it does not exist.
    File {
        /// The file.
        path: PathBuf,
        /// What of it is kept; `None` keeps all.
        retain: Option<Retain>,
    },
    /// A ClickHouse server. What is acknowledged waits in the spool, a file of SQLite, until the server has it.
    Server {
        /// The server and its database.
        address: Address,
        /// User and password.
        login: Login,
        /// The spool.
        spool: PathBuf,
        /// Bytes of rows that may wait in the spool.
        spool_bytes: u64,
    },
}

/// Tables of the paths between hosts.
pub struct Print {
    /// Where they go.
    pub output: Output,
    /// Print each flow separately as well.
    pub flows: bool,
}

/// Judges the paths of a run.
pub trait Judge: Send {
    /// Adds the bytes of an interval in a segment of the path from one host to another, but for those that TCP sent again.
    fn add(&mut self, segment: PathSegment, histogram: &Histogram);

    /// Returns the verdict on all of them at the end of the run; `None` if nothing was asked.
    fn judge(&mut self) -> Option<Verdict>;
}

/// Collects until it is asked to stop, then finishes the open intervals. Raises the process's limit on descriptors.
pub fn run(options: Options, stop: &Stop) -> Result<(), Error> {
    run_within(options, descriptors::limits(), stop, |_| {})
}

/// The same within these limits; `on_listening` receives the address at which it listens for agents.
fn run_within(
    options: Options,
    limits: Limits,
    stop: &Stop,
    on_listening: impl FnOnce(SocketAddr),
) -> Result<(), Error> {
    let Options {
        listen,
        identity,
        destination,
        join,
        sync_interval,
        clock_mode,
        agent_rate,
        gray,
        print,
        judge,
        registry,
        capabilities,
    } = options;
    let retain = match destination {
        Destination::File { retain, .. } => retain,
        Destination::Server { .. } => None,
    };
    let (store, forward) = open(destination)?;
    let clocks = Clocks::new(sync_interval, boot_id().map_err(Error::Boot)?, clock_mode);
    let (front, jobs, gate) = queue(clocks.clone(), agent_rate);
    let gate_of_collector = Arc::clone(&gate);
    let mut collector = Collector::open(store, forward, &join, clocks, print, registry.as_deref(), gate_of_collector)?;
    collector.set_retain(retain)?;
    collector.set_gray(gray);
    collector.set_judge(judge);
    collector.set_gate()?;
    let server = Server::start(listen, identity, limits, Arc::clone(&front), capabilities)?;
    privilege::keep(capabilities).map_err(Error::Privileges)?;
    log(format_args!("listening for agents at {}", server.address()));
    on_listening(server.address());
    let ended = work(&mut collector, &jobs, &gate, stop, &server);
    let refusals = server.refusals();
    // Agents that wait for an answer learn that there will be none.
    drop(jobs);
    drop(server);
    let ended = match ended {
        Err(error) if error.is_final() => Err(error),
        ended => {
            let finished = collector.finish(&refusals);
            ended.and(finished)
        }
    };
    collector.complete(ended)
}

fn open(destination: Destination) -> Result<(Store, Option<Forward>), Error> {
    match destination {
        Destination::File { path, .. } => Ok((Store::open(&path)?, None)),
        Destination::Server { address, login, spool, spool_bytes } => {
            let authorities = address.is_tls().then(dwell_metrics::tls::of_the_host).transpose();
            let tls = authorities.map_err(|source| Error::Authorities { server: address.to_string(), source })?;
            let mut store = Store::open(&spool)?;
            let (number, is_used) = (store.spool()?, store.progress()?.is_some());
            let mut server = ClickHouse::new(address, login, tls.unwrap_or_default());
            // A wrong address is known at once. One that was right may be away just when the collector starts again.
            let is_ready = match server.prepare() {
                Err(error) if error.is_away() && is_used => false,
                prepared => prepared.map(|()| true)?,
            };
            Ok((store, Some(Forward::start(server, is_ready, number, spool_bytes)?)))
        }
    }
}

/// Stores what arrives, many batches at once, until asked to stop.
fn work(collector: &mut Collector, jobs: &Jobs, gate: &Gate, stop: &Stop, server: &Server) -> Result<(), Error> {
    let mut polled = Instant::now();
    while !stop.is_asked() {
        match jobs.next(POLL, MAX_JOBS) {
            Ok(jobs) => serve(collector, gate, jobs)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        if polled.elapsed() >= POLL {
            polled = Instant::now();
            collector.poll(server)?;
            collector.delete_oldest()?;
            collector.forward()?;
        }
        collector.set_gate()?;
    }
    Ok(())
}

/// Does what agents asked for. While the spool is full, everything but storing their batches.
fn serve(collector: &mut Collector, gate: &Gate, jobs: Vec<Job>) -> Result<(), Error> {
    let (mut batches, mut samples) = (Vec::new(), Vec::new());
    for job in jobs {
        match job {
            Job::Hello(agent, answer) => {
                let admitted = collector.hello(&agent)?;
                let is_here = admitted.is_ok();
                // Whoever has waited too long was refused meanwhile, and is never said to have disconnected.
                if answer.send(admitted).is_err() && is_here {
                    collector.leave(&agent, "it was refused, as the collector took too long to admit it")?;
                }
            }
            Job::Disconnected(agent, reason) => collector.leave(&agent, &reason)?,
            Job::Clock(sample) => samples.push(sample),
            Job::Store(_, _, answer) if gate.is_full() => {
                let _ = answer.send(Err(gate.full()));
            }
            Job::Store(agent, batch, answer) => batches.push((agent, batch, answer)),
        }
    }
    let (batches, answers): (Vec<_>, Vec<_>) =
        batches.into_iter().map(|(agent, batch, answer)| ((agent, batch), answer)).unzip();
    collector.store(&batches, &samples)?;
    for answer in answers {
        let _ = answer.send(Ok(()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
