//! `dwell-lab stack`: scenarios of known truth, and where their time went.

mod sampling;

use std::{
    collections::BTreeMap,
    io::stderr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{ValueEnum, builder::PossibleValue};
use dwell_app::{
    Exit,
    args::{positive_duration, sample_bytes},
    tell::tell,
};
use dwell_engine::{
    histogram::Histogram,
    layers::{Ends, PathSegment, Segment, join},
};
use dwell_records::{Latency, Output, PathTable, Record, Sink, Source, entry};
use dwell_store::{Place, Reader};
use dwell_testbed::{Guest, Nanos};

use crate::{
    Programs,
    goal::Goal,
    print::{folders, say},
};
use crate::{
    failure::Failure,
    stack::{Clocked, Options, Outcome, Scenario},
};

/// Send over links of known delay, with agents on both hosts, and print where the time went
///
/// A sender, a receiver and a collector in network namespaces of their own. Prints the way of the
/// stamped bytes from socket to socket, checks that its segments add up, and compares it with what the
/// application's own clock says. Without a scenario, runs all. That of a virtual machine needs QEMU, and
/// a kernel's package unpacked in a folder in the one that DWELL_KERNELS names, as `make vm` does it.
#[derive(Debug, clap::Args)]
pub struct Stack {
    /// Which to run
    #[arg(value_enum)]
    scenarios: Vec<Named>,
    /// For how long the application sends; with --sampling, at each size
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    time: Duration,
    /// One byte in so many is stamped: a power of two from 64 to 16777216
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = sample_bytes)]
    sample_bytes: u32,
    /// Instead of scenarios: what sampling one byte in so many costs, and how many samples it gives
    #[arg(long, conflicts_with_all = ["scenarios", "keep"])]
    sampling: bool,
    /// Keep the stores, and a page about each, in this folder: SCENARIO.db, SCENARIO.html
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

/// A scenario by its name.
#[derive(Debug, Clone, Copy)]
struct Named(Scenario);

impl ValueEnum for Named {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Named; Scenario::ALL.len()] = {
            let mut all = [Named(Scenario::Bulk); Scenario::ALL.len()];
            let mut index = 0;
            while index < all.len() {
                all[index] = Named(Scenario::ALL[index]);
                index += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.about()))
    }
}

/// A folder with kernels of virtual machines.
const KERNELS: &str = "DWELL_KERNELS";
/// The segments' means may differ from that of the whole by this part of it: of rounding.
const ADDS_UP: f64 = 0.01;
/// Of a flow with fewer samples than that none may be there.
const FEW: u64 = 16;
/// The application's clock and dwell's may differ by this part, as they look at other bytes.
const AGREES: f64 = 0.05;

pub fn run(args: &Stack) -> Result<Exit, Failure> {
    if args.sampling {
        return sampling::run(args.time);
    }
    let folder = folders("dwell-stack-", args.keep.as_deref())?;
    let chosen: Vec<Scenario> = match args.scenarios.as_slice() {
        [] => Scenario::ALL.to_vec(),
        some => some.iter().map(|named| named.0).collect(),
    };
    let mut exit = Exit::Done;
    for scenario in chosen {
        let kernel = match scenario.is_emulated().then(kernel).transpose() {
            Ok(kernel) => kernel,
            Err(lack) if args.scenarios.is_empty() => {
                tell(format_args!("{}: left out: {lack}", scenario.name()));
                continue;
            }
            Err(lack) => {
                let failure = anyhow::anyhow!("cannot run {}: {lack}", scenario.name());
                return Err(Failure::new(Exit::Host, failure));
            }
        };
        let kept = args.keep.as_deref().unwrap_or(folder.path());
        let store = kept.join(format!("{}.db", scenario.name()));
        if store.exists() {
            return Err(Failure::usage(anyhow::anyhow!(
                "{} is there already: name another folder with --keep, or remove it",
                store.display()
            )));
        }
        tell(format_args!("{}: {}, {:?}", scenario.name(), scenario.about(), args.time));
        let outcome = crate::stack::run(&Options {
            scenario,
            time: args.time,
            sample_bytes: args.sample_bytes,
            programs: Programs::find()?,
            folder: folder.path().to_owned(),
            store: store.clone(),
            kernel,
        })?;
        if !report(scenario, args, &store, &outcome)? {
            exit = Exit::False;
        }
        if args.keep.is_some() {
            page(&store)?;
        }
    }
    Ok(exit)
}

/// Of virtual machines; or what this host lacks for them.
fn kernel() -> Result<PathBuf, String> {
    if let Some(lack) = Guest::missing_requirement() {
        return Err(lack);
    }
    let folder = std::env::var_os(KERNELS);
    let kernel = folder.and_then(|folder| Guest::newest_kernel(folder.as_ref()));
    kernel.ok_or_else(|| {
        format!(
            "{KERNELS} names no folder with kernels for virtual machines; `make vm` fetches some, \
             into target/vm"
        )
    })
}

/// What the store has of the ways from the sender to the receiver.
struct Ways {
    span_ns: u64,
    end_ns: u64,
    all: BTreeMap<(Option<i64>, bool), join::Path>,
    flows: BTreeMap<i64, Ends>,
}

impl Ways {
    fn read(store: &Path) -> Result<Ways, Failure> {
        let wrong = |error| Failure::new(Exit::Incomplete, anyhow::Error::from(error));
        let reader = Reader::open(store).map_err(wrong)?;
        let span = reader.span().map_err(wrong)?.unwrap_or_default();
        let flows = reader.flows(span, &[]).map_err(wrong)?;
        let numbers: Vec<i64> = flows.iter().map(|(number, ..)| *number).collect();
        let mut all = BTreeMap::<_, join::Path>::new();
        let each = |read: dwell_store::Read| {
            if !matches!(read.place, Place::Way(Some(_), Some(_))) {
                return;
            }
            let path = all.entry((read.flow, read.resent)).or_default();
            let index = PathSegment::ALL.iter().position(|leg| *leg == read.leg);
            path.segments[index.expect("all legs are in the list")].merge(&read.histogram);
            if read.leg == PathSegment::Network {
                path.bound_ns = path.bound_ns.max(read.bound_ns.unwrap_or(0));
                path.clamped += read.clamped;
            }
        };
        reader.rows(span, &numbers, each).map_err(wrong)?;
        Ok(Ways {
            span_ns: (span.1 - span.0).unsigned_abs(),
            end_ns: span.1.unsigned_abs(),
            all,
            flows: flows.into_iter().map(|(number, ends, _)| (number, ends)).collect(),
        })
    }

    /// Of a flow to this port of the receiver: of bytes that were sent once.
    fn to_port(&self, port: u16) -> Option<&join::Path> {
        self.all.get(&(Some(self.flow_to(port)?), false))
    }

    /// What all its bytes took from end to end, also those that were sent again.
    fn end_to_end(&self, port: u16) -> Option<Histogram> {
        let flow = self.flow_to(port)?;
        let mut whole = Histogram::default();
        for resent in [false, true] {
            if let Some(path) = self.all.get(&(Some(flow), resent)) {
                whole.merge(path.segment(PathSegment::EndToEnd));
            }
        }
        (whole.count() > 0).then_some(whole)
    }

    fn flow_to(&self, port: u16) -> Option<i64> {
        let mut flows = self.flows.iter();
        let found = flows.find(|(_, ends)| ends.dst.port == port);
        found.map(|(number, _)| *number)
    }
}

const EMULATED: &str = "emulated: a guest without hardware support; its times mean nothing as speeds\n";

/// Prints it. False if a check failed.
fn report(scenario: Scenario, args: &Stack, store: &Path, outcome: &Outcome) -> Result<bool, Failure> {
    let ways = Ways::read(store)?;
    let format = entry("text").expect("a format of this name");
    let mut output = Output::new((format.new)(), Sink::stdout()?, Source::default());
    output.lines(|text| {
        *text = format!("{}: {}, {:?}\n", scenario.name(), scenario.about(), args.time);
        if scenario.is_emulated() {
            text.push_str(EMULATED);
        }
    })?;
    for ((flow, resent), path) in &ways.all {
        if flow.is_some() {
            continue;
        }
        output.write(&Record::Path(&PathTable {
            end_ns: ways.end_ns,
            length_ns: ways.span_ns,
            tx_host: scenario.sender(),
            rx_host: "receiver",
            flow: None,
            resent: *resent,
            path,
        }))?;
    }
    output.flush()?;
    drop(output);
    if outcome.flows.len() > 1 {
        say(&flows(&ways, outcome))?;
    }
    if let Some(devices) = &outcome.devices {
        let from = devices.find("devices");
        say(from.map_or("", |from| &devices[from..]).trim_end())?;
    }
    let checks = checks(scenario, &ways, outcome, args.sample_bytes);
    say(&checks.iter().map(Goal::line).collect::<Vec<_>>().join("\n"))?;
    if let Some(report) = &outcome.emulator {
        say(&format!("the link emulator:\n{report}"))?;
    }
    for line in outcome.said.iter().filter(|line| !is_usual(line)) {
        tell(line);
    }
    Ok(Goal::exit(&checks) == Exit::Done)
}

/// Flows that are told by themselves.
const FLOWS: usize = 4;

/// A line a flow with the means of its longest legs.
fn flows(ways: &Ways, outcome: &Outcome) -> String {
    let legs = [
        PathSegment::Host(Segment::SocketTcp),
        PathSegment::Host(Segment::IpDriver),
        PathSegment::Network,
        PathSegment::Host(Segment::Reordering),
        PathSegment::Host(Segment::Application),
        PathSegment::EndToEnd,
    ];
    let mut text = format!("{:<28}{:>8}", "flow (means)", "count");
    for leg in legs {
        text += &format!("{:>13}", leg.name());
    }
    text.push('\n');
    for (flow, clocked) in outcome.flows.iter().take(FLOWS) {
        let Some(path) = ways.to_port(clocked.port) else {
            continue;
        };
        let name = format!("port {} {}", clocked.port, flow.about());
        let count = path.segment(PathSegment::EndToEnd).count();
        text += &format!("{:<28}{count:>8}", name.trim_end());
        for leg in legs {
            let mean = path.segment(leg).mean_ns();
            let cell = mean.map_or("-".into(), |ns| Latency(ns).to_string());
            text += &format!("{cell:>13}");
        }
        text.push('\n');
    }
    text
}

/// That agents and collectors come and go as they shall.
fn is_usual(line: &str) -> bool {
    ["awaited", "is here", "is there", "is gone"].iter().any(|usual| line.contains(usual))
}

fn checks(scenario: Scenario, ways: &Ways, outcome: &Outcome, sample_bytes: u32) -> Vec<Goal> {
    let Some(all) = ways.all.get(&(None, false)) else {
        return vec![Goal { what: "no byte was seen on both hosts".into(), holds: Some(false) }];
    };
    let mut checks = vec![adds_up(all)];
    if scenario.is_emulated() {
        checks.push(is_late_enough(all, scenario.delay()));
        return checks;
    }
    for (_, clocked) in &outcome.flows {
        if let Some(whole) = ways.end_to_end(clocked.port) {
            checks.push(agrees(&whole, clocked));
        } else {
            checks.push(Goal {
                what: format!("flow to port {}: of {} bytes none was seen on both hosts", clocked.port, clocked.bytes),
                holds: Some(clocked.bytes < FEW * u64::from(sample_bytes)),
            });
        }
    }
    // Of many flows alike, the first ones and those that fail.
    let mut shown = 0;
    checks.retain(|check| {
        shown += 1;
        shown <= 1 + FLOWS || check.holds != Some(true)
    });
    checks
}

fn latency(ns: f64) -> String {
    Latency(ns as u64).to_string().trim().to_owned()
}

fn mean(histogram: &Histogram) -> f64 {
    histogram.mean_ns().unwrap_or(0) as f64
}

/// A segment that some bytes lack counts with what it took over all.
fn adds_up(path: &join::Path) -> Goal {
    let whole = path.segment(PathSegment::EndToEnd);
    let is_named = |leg: &&PathSegment| leg.is_addend() && leg.name() != Segment::TxUnexplained.name();
    let addends = PathSegment::ALL.iter().filter(is_named);
    let sum: u128 = addends.map(|leg| path.segment(*leg).sum_ns()).sum();
    let sum = sum as f64 / whole.count().max(1) as f64;
    let off = sum / mean(whole) - 1.0;
    Goal {
        what: format!(
            "segments add up to {}, end to end is {} ({:+.2} %)",
            latency(sum),
            latency(mean(whole)),
            off * 100.0
        ),
        holds: Some(off.abs() <= ADDS_UP),
    }
}

/// The sender's clock is not the receiver's, so no application can tell; but nothing passes the link in less time than
/// its delay.
fn is_late_enough(path: &join::Path, delay: Nanos) -> Goal {
    let network = mean(path.segment(PathSegment::Network));
    Goal {
        what: format!(
            "network {} on average, of which the link takes {}; the application's clock does not tell, \
             as the writer's is that of the guest",
            latency(network),
            latency(delay.0 as f64)
        ),
        holds: Some(network + path.bound_ns as f64 >= delay.0 as f64),
    }
}

/// The byte was stamped between the begin and the end of the call that wrote it.
fn agrees(whole: &Histogram, clocked: &Clocked) -> Goal {
    let whole = mean(whole);
    let (Some(least), Some(most)) = (clocked.least_ns, clocked.most_ns) else {
        return Goal { what: format!("flow to port {}: nothing was read", clocked.port), holds: Some(false) };
    };
    let (low, high) = (least.0 as f64 * (1.0 - AGREES), most.0 as f64 * (1.0 + AGREES));
    Goal {
        what: format!(
            "flow to port {}: end to end {} on average, by the application's clock {} to {}",
            clocked.port,
            latency(whole),
            latency(least.0 as f64),
            latency(most.0 as f64)
        ),
        holds: Some((low..=high).contains(&whole)),
    }
}

fn page(store: &Path) -> Result<(), Failure> {
    let page = store.with_extension("html");
    let done = std::process::Command::new(Programs::find()?.dwell)
        .args(["report", "--store"])
        .arg(store)
        .arg("--output")
        .arg(&page)
        .stdout(stderr())
        .status()
        .map_err(|error| Failure::new(Exit::Host, error))?;
    if !done.success() {
        return Err(Failure::new(Exit::Incomplete, anyhow::anyhow!("dwell report could not write {}", page.display())));
    }
    tell(format_args!("{} and {} are there", store.display(), page.display()));
    Ok(())
}
