//! `dwell why` on faults whose cause is known.

mod fault;
mod goals;
mod traffic;
pub(crate) mod verb;

use std::{thread, time::Duration};

use dwell_testbed::{
    Emulation, Error, Lab, LabOptions, Namespace, Result, error::run, signals::Signals, workload::collect,
};
use fault::{Fault, Setting};
use serde_json::Value;
use traffic::{Application, PORT};

use crate::Programs;

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
}

/// The time that TCP has to fill its window before dwell looks.
const WARM_UP: Duration = Duration::from_millis(1_500);

/// Asks dwell why one setting is slow.
fn measure(setting: &Setting, seconds: u64, programs: &Programs, signals: &Signals) -> Result<Outcome> {
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
    let words = format!("why :{PORT} --duration {seconds}s --format jsonl");
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let text = collect(host, programs.dwell.as_os_str(), &words, &signals.stop);
    drop(application);
    lab.stop()?;
    let wrong = |why: String| Error::invalid("output of dwell why", why);
    let verdict: Value = serde_json::from_str(&text?).map_err(|error| wrong(error.to_string()))?;
    let word = |key: &str| verdict[key].as_str().map(str::to_owned);
    Ok(Outcome {
        fault: setting.fault,
        strength: setting.strength.clone(),
        verdict: word("cause").or(word("outcome")).ok_or_else(|| wrong(format!("it has no outcome: {verdict}")))?,
        certainty: word("certainty"),
        share: verdict["causes"][0]["share"].as_f64(),
    })
}
