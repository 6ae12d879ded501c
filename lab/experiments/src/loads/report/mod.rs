//! How near `dwell response` comes to what a load's client knows: estimators side by side, on the same traffic.

mod ablation;
mod compare;
mod distribution;
mod json;
mod log;
mod pairs;
mod plot;
mod round_trips;
mod sweep;
mod tcptrace;
mod text;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use dwell_testbed::{Error, Result, Topology, signals::Signals};
use log::{Epoch, Log};
use pairs::Pairs;
use round_trips::AtClient;

use super::{
    Cost, LoadOptions, LoadReport, load_observed,
    watch::{Watch, replay},
};

pub use ablation::{Causes, Step};
pub use compare::{Comparison, Errors, Truth};
pub use round_trips::Latencies;
pub use sweep::sweep;

/// What to run and to compare.
#[derive(Debug, Clone)]
pub struct ReportOptions {
    /// The load. Its truth log and capture are kept where it says so.
    pub load: LoadOptions,
    /// As `dwell response` calls them, each with more of its options if need be. The first runs at the vantage point,
    /// the others over a capture taken there.
    pub estimators: Vec<String>,
    /// Length of an epoch.
    pub epoch: Duration,
    /// Whether to tell what round-trip times say of the same connections.
    pub round_trips: bool,
    /// Whether to tell where errors come from.
    pub ablations: bool,
    /// For files that nobody asked for.
    pub folder: PathBuf,
}

/// How near the estimators came.
#[derive(Debug, Clone)]
pub struct Report {
    /// What the client measured.
    pub load: LoadReport,
    /// Latency of the requests.
    pub truth: Latencies,
    /// What the programs of the live run cost, where that is known.
    pub cost: Option<Cost>,
    /// In the order asked for.
    pub comparisons: Vec<Comparison>,
    /// The truth, and what round-trip times say; nothing if not asked for.
    pub round_trips: Vec<Latencies>,
    /// Where errors come from, if asked for.
    pub ablations: Option<Ablations>,
    options: LoadOptions,
    ended: jiff::Timestamp,
}

/// Where errors come from.
#[derive(Debug, Clone)]
pub struct Ablations {
    /// Between latency and estimate.
    pub steps: Vec<Step>,
    /// `pirate` with both heuristics, one of them, or none.
    pub heuristics: Vec<Comparison>,
    /// What large errors go with, for each estimator.
    pub causes: Vec<Causes>,
}

/// Runs a load with `dwell response` beside it, then what else is asked for over the capture.
pub fn respond(options: &ReportOptions) -> Result<Report> {
    let signals = Signals::watch()?;
    let (first, others) =
        options.estimators.split_first().ok_or_else(|| Error::invalid("estimators", "none is named"))?;
    let mut run = Run { options, asked: options.load.clone(), signals, log: Log::default() };
    let truth = run.file("truth.jsonl");
    let truth = run.asked.truth.get_or_insert(truth).clone();
    if !others.is_empty() || options.round_trips || options.ablations {
        let capture = run.file("vantage.pcap");
        run.asked.pcap.get_or_insert(capture);
    }
    let (load, live) = run.watched(first)?;
    run.log = Log::read(&truth, way_ns(&options.load.network.topology), options.load.network.tunnel.is_some())?;
    let mut comparisons = vec![run.compare(first, &run.log.epochs(&live.records)?)];
    for other in others {
        comparisons.push(run.compare(other, &run.estimate(&options.arguments(other))?));
    }
    let ablations = options.ablations.then(|| run.ablations(&comparisons));
    Ok(Report {
        load,
        truth: Latencies::truth(&run.log),
        cost: live.cost,
        comparisons,
        ablations: ablations.transpose()?,
        round_trips: match live.at_client {
            Some(at_client) => run.round_trips(at_client)?,
            None => Vec::new(),
        },
        options: run.asked,
        ended: jiff::Timestamp::now(),
    })
}

/// From the client to the vantage point, without what packets wait in queues.
fn way_ns(topology: &Topology) -> u64 {
    match topology {
        Topology::Triangle { client_to_vantage, .. } => client_to_vantage.delay_ns.0,
        Topology::Line { client, .. } => client.to_vantage.delay_ns.0,
    }
}

/// As the report calls them, and as `dwell response` does.
const HEURISTICS: [(&str, &str); 4] = [
    ("pirate, both heuristics", "acks,mtu"),
    ("pirate, only acks", "acks"),
    ("pirate, only mtu", "mtu"),
    ("pirate, no heuristics", "none"),
];

/// A load and what is made of it.
struct Run<'a> {
    options: &'a ReportOptions,
    /// With the files that it needs.
    asked: LoadOptions,
    signals: Signals,
    log: Log,
}

/// What was seen while the load ran.
struct Live {
    records: PathBuf,
    cost: Option<Cost>,
    at_client: Option<Vec<Latencies>>,
}

impl Run<'_> {
    fn file(&self, name: &str) -> PathBuf {
        self.options.folder.join(name)
    }

    fn watched(&self, estimator: &str) -> Result<(LoadReport, Live)> {
        let records = self.file("response.jsonl");
        let arguments = self.options.arguments(estimator);
        let (exe, signals) = (&self.asked.programs.dwell, &self.signals);
        load_observed(
            &self.asked,
            signals,
            |lab| {
                let at_client = match self.options.round_trips {
                    true => Some(AtClient::start(lab, self.file("client.pcap"))?),
                    false => None,
                };
                let watch = Watch::start(lab.vantage(), exe, &arguments, &records, signals)?;
                Ok((watch, at_client))
            },
            |(watch, at_client)| {
                let cost = watch.finish(signals)?;
                let at_client = at_client.map(|at_client| at_client.finish(signals));
                Ok((cost, at_client.transpose()?))
            },
        )
        .map(|(load, (cost, at_client))| {
            let live = Live { records, cost, at_client };
            (load, live)
        })
    }

    /// Over the capture.
    fn estimate(&self, arguments: &[String]) -> Result<Vec<Epoch>> {
        let records = self.replay("response", arguments)?;
        self.log.epochs(&records)
    }

    fn replay(&self, verb: &str, arguments: &[String]) -> Result<PathBuf> {
        let records = self.file("replay.jsonl");
        let capture = self.asked.pcap.as_deref().unwrap_or(Path::new(""));
        replay(&self.asked.programs.dwell, verb, capture, arguments, &records, &self.signals)?;
        Ok(records)
    }

    fn compare(&self, estimator: &str, epochs: &[Epoch]) -> Comparison {
        Comparison::new(estimator, &self.log, epochs, self.options.epoch)
    }

    fn ablations(&self, comparisons: &[Comparison]) -> Result<Ablations> {
        let pairs = Pairs::of_each(&self.log);
        let heuristics = HEURISTICS.map(|(name, heuristics)| {
            let mut arguments = self.options.arguments("pirate");
            arguments.extend(["--set".to_owned(), format!("heuristics={heuristics}")]);
            Ok(self.compare(name, &self.estimate(&arguments)?))
        });
        let causes = comparisons.iter();
        Ok(Ablations {
            steps: ablation::steps(comparisons, &pairs),
            heuristics: heuristics.into_iter().collect::<Result<_>>()?,
            causes: causes.map(|comparison| ablation::causes(comparison, &pairs)).collect(),
        })
    }

    fn round_trips(&self, at_client: Vec<Latencies>) -> Result<Vec<Latencies>> {
        let handshakes = self.estimate(&self.options.arguments("syn-ack"))?;
        let mut found = vec![Latencies::truth(&self.log), Latencies::handshakes(&handshakes)];
        found.extend(at_client);
        let records = self.replay("rtt", &[])?;
        found.push(Latencies::dwell_rtt(&records)?);
        Ok(found)
    }
}

impl Report {
    /// As many as were answered.
    pub fn requests_a_second(&self) -> f64 {
        let lasted = Duration::from(self.load.lasted_ns).as_secs_f64();
        self.load.requests as f64 / lasted.max(f64::MIN_POSITIVE)
    }

    /// Of one processor, while requests were sent; taken by the programs of the live run.
    pub fn processor_share(&self) -> Option<f64> {
        Some(self.cost?.ran_ns.0 as f64 / self.load.lasted_ns.0.max(1) as f64)
    }
}

impl ReportOptions {
    fn arguments(&self, estimator: &str) -> Vec<String> {
        let epoch = format!("{}ns", self.epoch.as_nanos());
        ["--interval", &epoch, "--estimator"]
            .into_iter()
            .chain(estimator.split_whitespace())
            .map(str::to_owned)
            .collect()
    }
}
