//! `dwell-lab stack`: scenarios of known truth, and where their time went.

mod sampling;

use std::{
    io::stderr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{ValueEnum, builder::PossibleValue};
use dwell_app::{
    Exit,
    args::{positive_duration, sample_bytes},
    log::log,
};
use dwell_engine::layers::{PathSegment, Segment};
use dwell_records::{Latency, Output, PathTable, Record, Sink, Source, entry};
use dwell_sim::report::table;
use dwell_testbed::Guest;

use super::{
    Options, Outcome, Scenario,
    goals::{self, PRINTED_FLOWS},
    paths::StoredPaths,
};
use crate::{
    Programs,
    failure::Failure,
    goal::Goal,
    print::{folders, say},
};

/// Send over links of known delay, with agents on both hosts, and print where the time went
///
/// Runs a sender, a receiver and a collector in network namespaces of their own. Prints the path of the
/// stamped bytes from socket to socket, checks that its segments add up, and compares it with the
/// application's own clock. Without a scenario, runs all of them. The scenario `vm` needs QEMU, and a
/// kernel package that is unpacked in a folder of the one that DWELL_KERNELS names; `make vm` does that.
#[derive(Debug, clap::Args)]
pub struct Stack {
    /// The scenarios to run [default: all]
    #[arg(value_enum)]
    scenarios: Vec<Named>,
    /// How long the application sends; with --sampling, at each size
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    duration: Duration,
    /// Stamp one in N bytes: a power of two from 64 to 16777216
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = sample_bytes)]
    sample_bytes: u32,
    /// Instead of scenarios: print the cost and the number of samples of stamping one of N bytes, for several N
    #[arg(long, conflicts_with_all = ["scenarios", "keep_in"])]
    sampling: bool,
    /// Folder to keep the stores and a page for each in: SCENARIO.db, SCENARIO.html
    #[arg(long, value_name = "FOLDER")]
    keep_in: Option<PathBuf>,
}

/// A scenario as an argument.
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

/// The environment variable that names a folder with kernels for virtual machines.
const KERNELS: &str = "DWELL_KERNELS";

pub fn run(args: &Stack) -> Result<Exit, Failure> {
    if args.sampling {
        return sampling::run(args.duration);
    }
    let folder = folders("dwell-stack-", args.keep_in.as_deref())?;
    let chosen: Vec<Scenario> = match args.scenarios.as_slice() {
        [] => Scenario::ALL.to_vec(),
        some => some.iter().map(|named| named.0).collect(),
    };
    let mut exit = Exit::Done;
    for scenario in chosen {
        let kernel = match scenario.is_emulated().then(kernel).transpose() {
            Ok(kernel) => kernel,
            Err(lack) if args.scenarios.is_empty() => {
                log(format_args!("{}: skipped: {lack}", scenario.name()));
                continue;
            }
            Err(lack) => {
                let failure = anyhow::anyhow!("cannot run {}: {lack}", scenario.name());
                return Err(Failure::new(Exit::Host, failure));
            }
        };
        let kept = args.keep_in.as_deref().unwrap_or(folder.path());
        let store = kept.join(format!("{}.db", scenario.name()));
        if store.exists() {
            return Err(Failure::usage(anyhow::anyhow!(
                "{} already exists: name another folder with --keep-in, or remove it",
                store.display()
            )));
        }
        log(format_args!("{}: {}, {:?}", scenario.name(), scenario.about(), args.duration));
        let outcome = super::run(&Options {
            scenario,
            time: args.duration,
            sample_bytes: args.sample_bytes,
            programs: Programs::find()?,
            folder: folder.path().to_owned(),
            store: store.clone(),
            kernel,
        })?;
        if !report(scenario, args, &store, &outcome)? {
            exit = Exit::False;
        }
        if args.keep_in.is_some() {
            page(&store)?;
        }
    }
    Ok(exit)
}

/// The newest kernel for virtual machines, or what this host lacks for them.
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

const EMULATED: &str = "emulated: a guest without hardware support; its times are not those of real hardware\n";

/// Prints the results of a scenario. False if a goal was missed.
fn report(scenario: Scenario, args: &Stack, store: &Path, outcome: &Outcome) -> Result<bool, Failure> {
    let paths = StoredPaths::read(store)?;
    let format = entry("text").expect("a format of this name");
    let mut output = Output::new((format.new)(), Sink::stdout()?, Source::default());
    output.lines(|text| {
        *text = format!("{}: {}, {:?}\n", scenario.name(), scenario.about(), args.duration);
        if scenario.is_emulated() {
            text.push_str(EMULATED);
        }
    })?;
    for ((flow, resent), path) in &paths.all {
        if flow.is_some() {
            continue;
        }
        output.write(&Record::Path(&PathTable {
            end_ns: paths.end_ns,
            length_ns: paths.span_ns,
            tx_host: scenario.sender(),
            rx_host: "receiver",
            flow: None,
            rx_flow: None,
            resent: *resent,
            path,
        }))?;
    }
    output.flush()?;
    drop(output);
    if outcome.flows.len() > 1 {
        say(&flows(&paths, outcome))?;
    }
    if let Some(devices) = &outcome.devices {
        let from = devices.find("devices");
        say(from.map_or("", |from| &devices[from..]).trim_end())?;
    }
    let goals = goals::judge(scenario, &paths, outcome, args.sample_bytes);
    say(&goals.iter().map(Goal::line).collect::<Vec<_>>().join("\n"))?;
    if let Some(report) = &outcome.emulator {
        say(&format!("the link emulator:\n{report}"))?;
    }
    for line in outcome.messages.iter().filter(|line| !is_expected(line)) {
        log(line);
    }
    Ok(Goal::exit(&goals) == Exit::Done)
}

/// A table of the first flows with the means of their longest segments.
fn flows(paths: &StoredPaths, outcome: &Outcome) -> String {
    let segments = [
        PathSegment::Host(Segment::SocketTcp),
        PathSegment::Host(Segment::IpDriver),
        PathSegment::Network,
        PathSegment::Host(Segment::Reordering),
        PathSegment::Host(Segment::Application),
        PathSegment::EndToEnd,
    ];
    let mut heading = vec!["flow (means)", "count"];
    heading.extend(segments.iter().map(|segment| segment.name()));
    let mut rows = Vec::new();
    for (flow, application) in outcome.flows.iter().take(PRINTED_FLOWS) {
        let Some(path) = paths.to_port(application.port) else {
            continue;
        };
        let mut row = vec![format!("port {} {}", application.port, flow.about()).trim_end().to_owned()];
        row.push(path.segment(PathSegment::EndToEnd).count().to_string());
        row.extend(segments.iter().map(|segment| {
            let mean = path.segment(*segment).mean_ns();
            mean.map_or("-".to_owned(), |ns| Latency(ns).to_string().trim().to_owned())
        }));
        rows.push(row);
    }
    table(&heading, &rows)
}

/// Whether a message reports that an agent or a collector connected or left, as expected.
fn is_expected(line: &str) -> bool {
    ["listening for agents", "connected"].iter().any(|expected| line.contains(expected))
}

fn page(store: &Path) -> Result<(), Failure> {
    let page = store.with_extension("html");
    let done = std::process::Command::new(Programs::find()?.dwell)
        .args(["report", "--read"])
        .arg(store)
        .arg("--output")
        .arg(&page)
        .stdout(stderr())
        .status()
        .map_err(|error| Failure::new(Exit::Host, error))?;
    if !done.success() {
        return Err(Failure::new(Exit::Incomplete, anyhow::anyhow!("dwell report could not write {}", page.display())));
    }
    log(format_args!("wrote {} and {}", store.display(), page.display()));
    Ok(())
}
