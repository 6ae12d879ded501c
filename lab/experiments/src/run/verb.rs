//! `dwell-lab run`.

use dwell_app::Exit;
use dwell_testbed::Nanos;
use serde::Serialize;

use super::{ONE_WAY, figures::Figures, goals, measure};
use crate::{
    Programs,
    failure::Failure,
    goal::Goal,
    print::{Columns, Format, SCHEMA, folders, millis_to},
    values::whole_seconds,
};

/// What iperf3, ss and `dwell run` report of one connection
///
/// iperf3 runs under `dwell run` over 10 Mbit/s, a round trip of 50 ms and a FIFO of 400 ms, while ss reads its sockets
/// four times per second. The exit status is 1 if `dwell run` differs from the others by more than its goals allow.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell-lab run                      20 s
  sudo dwell-lab run --duration 5s        a quick look")]
pub struct Run {
    /// How long iperf3 sends
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = whole_seconds)]
    duration: u64,
    /// Output format: text, or jsonl with one object per program
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// What a program reports.
#[derive(Serialize)]
struct Record {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    tool: &'static str,
    rtt_ns: Option<u64>,
    min_rtt_ns: Option<u64>,
    bytes: Option<u64>,
    retransmitted: Option<u64>,
    send_buffer_ns: Option<u64>,
}

const COLUMNS: Columns<6> = Columns([
    ("", -10),
    ("rtt, mean ms", 13),
    ("least ms", 10),
    ("bytes", 12),
    ("again", 7),
    ("send buffer, mean ms", 22),
]);

pub(crate) fn run(args: &Run) -> Result<Exit, Failure> {
    let folder = folders("dwell-run-", None)?;
    let outcome = measure(args.duration, &Programs::find()?, folder.path())?;
    args.format.say(&COLUMNS.heading())?;
    for (tool, figures) in [("iperf3", &outcome.iperf3), ("ss -ti", &outcome.ss), ("dwell run", &outcome.dwell)] {
        let record = Record::of(tool, figures);
        args.format.print(&record, || record.line())?;
    }
    if let Some(link) = outcome.link.direction("client to vantage") {
        args.format.say(&format!("packets that the full queue dropped: {}\n", link.dropped_queue_full))?;
    }
    let goals = goals::judge(&outcome.dwell, &outcome.iperf3, &outcome.ss, ONE_WAY + ONE_WAY);
    for goal in &goals {
        args.format.say(&goal.line())?;
    }
    Ok(Goal::exit(&goals))
}

impl Record {
    fn of(tool: &'static str, figures: &Figures) -> Record {
        let ns = |time: Option<Nanos>| time.map(|time| time.0);
        Record {
            kind: "lab.run-tools",
            schema: SCHEMA,
            tool,
            rtt_ns: ns(figures.rtt),
            min_rtt_ns: ns(figures.min_rtt),
            bytes: figures.bytes,
            retransmitted: figures.retransmissions,
            send_buffer_ns: ns(figures.send_buffer),
        }
    }

    fn line(&self) -> String {
        let ms = |ns: Option<u64>| millis_to(2, ns.map(|ns| ns as f64));
        let count = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
        COLUMNS.row([
            &self.tool,
            &ms(self.rtt_ns),
            &ms(self.min_rtt_ns),
            &count(self.bytes),
            &count(self.retransmitted),
            &ms(self.send_buffer_ns),
        ])
    }
}
