//! `dwell why` on faults whose cause is known.

mod fault;
mod goals;
mod traffic;
pub(crate) mod verb;

use std::{thread, time::Duration};

use dwell_testbed::{
    Emulation, Error, Lab, LabOptions, Namespace, Result, Role, error::run, signals::Signals, workload::collect,
};
use fault::{Fault, Setting};
use serde_json::Value;
use traffic::{Application, PORT};

use crate::{Programs, loads::capture::Capture};

/// The verdict on one setting.
#[derive(Debug, Clone, PartialEq)]
struct Outcome {
    fault: Fault,
    strength: String,
    /// The cause that was named, or the outcome without one.
    verdict: String,
    certainty: Option<String>,
    /// The share of the time that the named cause explains.
    share: Option<f64>,
    /// The same verdict from a capture that was taken meanwhile at the same host.
    captured: Option<String>,
}

/// The time that TCP has to fill its window before dwell looks.
const WARM_UP: Duration = Duration::from_millis(1_500);

/// Asks dwell why one setting is slow.
fn measure(setting: &Setting, seconds: u64, captures: bool, programs: &Programs, signals: &Signals) -> Result<Outcome> {
    let lab = Lab::start(&LabOptions {
        name: "why".to_owned(),
        topology: setting.topology.clone(),
        emulation: Emulation::Process(programs.lab.clone()),
    })?;
    // The link's queue counts packets, so none may be longer than the link's.
    run(lab.client().command("ethtool").args(["-K", "vantage0", "tso", "off", "gso", "on"]), "")?;
    if let Some(qdisc) = &setting.qdisc {
        run(lab.client().command("tc").args(["qdisc", "add", "dev", "vantage0", "root"]).args(qdisc.split(' ')), "")?;
    }
    let application = Application::start(&lab, setting)?;
    thread::sleep(WARM_UP);
    let host: &Namespace = if setting.at_server { lab.server() } else { lab.client() };
    if setting.is_cut {
        let client = Lab::address_v4(Role::Client).to_string();
        run(lab.server().command("ip").args(["route", "add", "blackhole", &client]), "")?;
    }
    let seconds = seconds.max(setting.least_seconds);
    let why = |arguments: &str| -> Result<Value> {
        // Status 4 means that there is no verdict, which counts as one here.
        let script = format!(r#"'{}' {arguments} || [ $? -eq 4 ]"#, programs.dwell.display());
        let text = collect(host, "sh".as_ref(), &["-c".to_owned(), script], &signals.stop)?;
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
    };
    let folder = tempfile::tempdir().map_err(Error::io("make a folder for the capture"))?;
    let file = folder.path().join("why.pcap");
    let capture = captures.then(|| Capture::of_device(host, "vantage0", &file)).transpose()?;
    let verdict = why(&format!("why :{PORT} --duration {seconds}s --format jsonl"));
    capture.map(|capture| capture.finish(signals)).transpose()?;
    drop(application);
    let captured = captures.then(|| why(&format!("why -r {} :{PORT} --format jsonl", file.display()))).transpose();
    lab.stop()?;
    let verdict = verdict?;
    Ok(Outcome {
        fault: setting.fault,
        strength: setting.strength.clone(),
        verdict: named(&verdict)?,
        captured: captured?.as_ref().map(named).transpose()?,
        certainty: verdict["certainty"].as_str().map(str::to_owned),
        share: verdict["causes"][0]["share"].as_f64(),
    })
}

/// The cause that a verdict names, or its outcome without one.
fn named(verdict: &Value) -> Result<String> {
    let word = |key: &str| verdict[key].as_str().map(str::to_owned);
    word("cause").or(word("outcome")).ok_or_else(|| wrong(format!("it has no outcome: {verdict}")))
}

fn wrong(why: String) -> Error {
    Error::invalid("output of dwell why", why)
}
