//! The latency that common tools report, compared with the latency of the application's bytes.

use std::time::Duration;

use dwell_app::{Exit, args::positive_duration, log::log};
use serde::Serialize;

use super::{Format, SCHEMA};
use crate::{
    Programs,
    failure::Failure,
    socket::tools::{ToolRow, compare},
};

/// Compare the latency that common tools report with the truth, while a send buffer is full
///
/// A bulk flow with cubic fills its send buffer and a FIFO of 400 ms, at 10 Mbit/s and a round trip of
/// 50 ms. Meanwhile ping, hping3, httping, ss, `dwell run --pid` and libdwell measure; then iperf3,
/// which is such a flow itself. The truth is the time of the application's blocks of 16 KB from write
/// to read. Needs these tools.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell-lab socket tools             20 s of each
  sudo dwell-lab socket tools --duration 5s   a quick look")]
pub struct Tools {
    /// How long the tools measure, after 6 s in which the flow fills buffer and queue
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = positive_duration)]
    duration: Duration,
    /// Output format: text, or jsonl, one object per tool
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The result of a tool.
#[derive(Serialize)]
struct Object<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    schema: &'a str,
    tool: &'a str,
    quantity: &'a str,
    /// `null` where the tool does not report it.
    answers: Option<usize>,
    latency_ns: Option<u64>,
    truth_ns: Option<u64>,
    share: Option<f64>,
}

pub(super) fn run(args: &Tools) -> Result<Exit, Failure> {
    log(format_args!(
        "10 Mbit/s, round trips of 50 ms, 400 ms of queue; {:?} with a bulk flow, then iperf3 by itself",
        args.duration
    ));
    let rows = compare(args.duration, &Programs::find()?)?;
    args.format.say(&head())?;
    for row in &rows {
        let object = Object::of(row);
        args.format.print(&object, || object.line())?;
    }
    Ok(exit(&rows))
}

/// Status 4 if a tool gave no answer or the truth is unknown.
fn exit(rows: &[ToolRow]) -> Exit {
    match rows.iter().all(|row| row.share().is_some()) {
        true => Exit::Done,
        false => Exit::Incomplete,
    }
}

impl<'a> Object<'a> {
    fn of(row: &ToolRow) -> Object<'a> {
        Object {
            kind: "lab.tools",
            schema: SCHEMA,
            tool: row.tool,
            quantity: row.quantity,
            answers: row.samples,
            latency_ns: row.mean.map(|mean| mean.0),
            truth_ns: row.truth.map(|truth| truth.0),
            share: row.share(),
        }
    }

    fn line(&self) -> String {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let ms = |ns: Option<u64>| or_dash(ns.map(|ns: u64| format!("{:.0}", ns as f64 / 1e6)));
        format!(
            "{:<10}{:<45}{:>8}{:>10}{:>8}{:>8}",
            self.tool,
            self.quantity,
            or_dash(self.answers.map(|answers| answers.to_string())),
            ms(self.latency_ns),
            ms(self.truth_ns),
            or_dash(self.share.map(|share| format!("{:.0}", share * 100.0))),
        )
    }
}

fn head() -> String {
    format!("{:<10}{:<45}{:>8}{:>10}{:>8}{:>8}", "", "", "answers", "ms, mean", "truth", "share %")
}

#[cfg(test)]
mod tests {
    use dwell_testbed::Nanos;

    use super::*;

    #[test]
    fn a_tool_without_an_answer_has_a_dash_and_makes_the_data_incomplete() {
        let ping = ToolRow {
            tool: "ping",
            quantity: "round trips",
            samples: Some(2),
            mean: Some(Nanos(390_000_000)),
            truth: Some(Nanos(780_000_000)),
        };
        let silent = ToolRow { samples: None, mean: None, ..ping.clone() };
        let words = |row: &ToolRow| -> Vec<String> {
            let line = Object::of(row).line();
            assert_eq!(line.len(), head().len());
            line.split_whitespace().skip(3).map(str::to_owned).collect()
        };
        assert_eq!(words(&ping), ["2", "390", "780", "50"]);
        assert_eq!(words(&silent), ["-", "-", "780", "-"]);
        assert_eq!(exit(std::slice::from_ref(&ping)), Exit::Done);
        assert_eq!(exit(&[ping, silent]), Exit::Incomplete);
    }
}
