//! `dwell why` on faults whose cause is known.

mod crowd;
mod fault;
mod goals;
mod matrix;
mod names;
mod pair;
mod secure;
mod setting;
mod traffic;
pub(crate) mod verb;

use std::{path::Path, thread, time::Duration};

use dwell_testbed::{
    Emulation, Error, Lab, LabOptions, Namespace, Result, Role, error::run, signals::Signals, workload::collect,
};
use fault::Fault;
use serde_json::Value;
use setting::Setting;
use traffic::Application;

use crate::{Programs, loads::capture::Capture};

/// The verdicts on one setting.
#[derive(Debug, Clone, PartialEq)]
struct Outcome {
    fault: Fault,
    /// A second fault at the same time.
    also: Option<Fault>,
    strength: String,
    /// Whether it is the weakest strength of the fault.
    is_weakest: bool,
    /// Live, at one host.
    live: Verdict,
    /// The same from captures that were taken meanwhile at the same host.
    captured: Option<Captured>,
}

impl Outcome {
    fn whole(&self) -> Option<&Verdict> {
        Some(&self.captured.as_ref()?.whole)
    }

    fn late(&self) -> Option<&Verdict> {
        Some(&self.captured.as_ref()?.late)
    }
}

/// Verdicts from two captures of the same traffic.
#[derive(Debug, Clone, PartialEq)]
struct Captured {
    /// From one that began before the connections.
    whole: Verdict,
    /// From one that began after them, so that it lacks their handshakes.
    late: Verdict,
}

/// A verdict.
#[derive(Debug, Clone, PartialEq, Default)]
struct Verdict {
    /// The cause that was named, or the outcome without one.
    cause: String,
    /// Whether a cause was named.
    is_slow: bool,
    certainty: Option<String>,
    /// The share of the time that the named cause explains.
    share: Option<f64>,
    /// All causes that hold, the first one first.
    causes: Vec<String>,
}

/// What is measured of each setting.
struct Look<'a> {
    seconds: u64,
    /// The folder into which captures are written, if there are to be any.
    captures: Option<&'a Path>,
}

/// The time that TCP has to fill its window before dwell looks.
const WARM_UP: Duration = Duration::from_millis(1_500);

/// Asks dwell why one setting is slow. Captures have the `name` of the run.
fn measure(setting: &Setting, name: &str, look: &Look<'_>, programs: &Programs, signals: &Signals) -> Result<Outcome> {
    let lab = Lab::start(&LabOptions {
        name: "why".to_owned(),
        topology: setting.topology.clone(),
        emulation: Emulation::Process(programs.lab.clone()),
    })?;
    // The link's queue counts packets, so none may be longer than the link's.
    lab.client().offload("vantage0", "tso", "off")?;
    if let Some(qdisc) = &setting.qdisc {
        run(lab.client().command("tc").args(["qdisc", "add", "dev", "vantage0", "root"]).args(qdisc.split(' ')), "")?;
    }
    if let Some(policer) = &setting.policer {
        run(lab.vantage().command("tc").args(["qdisc", "add", "dev", "server0", "root"]).args(policer.split(' ')), "")?;
    }
    let host: &Namespace = if setting.at_server { lab.server() } else { lab.client() };
    let files = look.captures.map(|folder| ["whole", "late"].map(|kind| folder.join(format!("{name}-{kind}.pcap"))));
    let capture = |index: usize| -> Result<Option<Capture>> {
        files.as_ref().map(|files| Capture::of_device(host, "vantage0", &files[index])).transpose()
    };
    let whole = capture(0)?;
    let application = Application::start(&lab, setting)?;
    thread::sleep(WARM_UP);
    if setting.is_cut {
        let client = Lab::address_v4(Role::Client).to_string();
        run(lab.server().command("ip").args(["route", "add", "blackhole", &client]), "")?;
    }
    let seconds = look.seconds.max(setting.least_seconds);
    let late = capture(1)?;
    let why = |arguments: &str| why(host, arguments, programs, signals);
    let live = why(&format!("why {} --duration {seconds}s --format jsonl", application.target()));
    let of_capture = application.target_in_captures();
    for capture in [whole, late].into_iter().flatten() {
        capture.finish(signals)?;
    }
    drop(application);
    let captured = files.map(|files| -> Result<Captured> {
        let [whole, late] = files.map(|file| why(&format!("why -r '{}' {of_capture} --format jsonl", file.display())));
        Ok(Captured { whole: whole?, late: late? })
    });
    let captured = captured.transpose();
    lab.stop()?;
    let Setting { fault, also, is_weakest, .. } = *setting;
    Ok(Outcome { fault, also, strength: setting.strength.clone(), is_weakest, live: live?, captured: captured? })
}

/// Runs dwell at a host.
fn why(host: &Namespace, arguments: &str, programs: &Programs, signals: &Signals) -> Result<Verdict> {
    // Status 4 means that there is no verdict, which counts as one here.
    let script = format!(r#"'{}' {arguments} || [ $? -eq 4 ]"#, programs.dwell.display());
    let text = collect(host, "sh".as_ref(), &["-c".to_owned(), script], &signals.stop)?;
    let verdict: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let word = |key: &str| verdict[key].as_str().map(str::to_owned);
    let causes = verdict["causes"].as_array().into_iter().flatten();
    Ok(Verdict {
        is_slow: word("cause").is_some(),
        cause: word("cause").or(word("outcome")).ok_or_else(|| wrong(format!("it has no outcome: {verdict}")))?,
        certainty: word("certainty"),
        share: verdict["causes"][0]["share"].as_f64(),
        causes: causes.filter_map(|cause| cause["cause"].as_str().map(str::to_owned)).collect(),
    })
}

fn wrong(why: String) -> Error {
    Error::invalid("output of dwell why", why)
}
