//! `dwell-lab quic replay`: recorded 0-RTT data sent again.

use dwell_app::Exit;
use serde::Serialize;

use super::SCHEMA;
use crate::{
    failure::Failure,
    print::Columns,
    quic::{self, ReplayOptions, ReplayResult, Theft, goals},
    star::Common,
};

/// First flights with 0-RTT data that are recorded in transit and sent again from other addresses
///
/// In the end, an attacker seizes the sessions that each server still holds and tries to decrypt the
/// recordings. With a copy of the state from before each request the attacker can.
#[derive(Debug, clap::Args)]
pub struct Replay {
    /// Requests of 0-RTT that are recorded
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    requests: u16,
    /// Replays of each request
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    times: u16,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct ReplayRecord {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    recorded: usize,
    tries: usize,
    #[serde(rename = "looked_for")]
    missed: u64,
    repeated: usize,
    elsewhere: usize,
}

#[derive(Serialize)]
struct TheftRecord<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    sessions_of: &'a str,
    sessions: usize,
    requests: usize,
    found: u64,
    read: usize,
}

const COLUMNS: Columns<5> =
    Columns([("attacker's sessions", -27), ("sessions", 9), ("requests", 9), ("found", 7), ("read", 7)]);

impl Replay {
    pub fn run(&self) -> Result<Exit, Failure> {
        let scene = self.common.scene(None)?;
        let options = ReplayOptions { requests: self.requests.into(), times: self.times.into() };
        let run = quic::replay((&scene).into(), &options)?;
        let ReplayResult { recorded, tries, missed, repeated, elsewhere, .. } = run;
        let record =
            ReplayRecord { kind: "lab.quic-replay", schema: SCHEMA, recorded, tries, missed, repeated, elsewhere };
        self.common.format.print(&record, || {
            format!(
                "{recorded} requests recorded, {tries} first flights sent again; servers looked up {missed} of their \
                 tickets in vain; {repeated} requests were executed again"
            )
        })?;
        self.common.format.say(&format!("\n{}", COLUMNS.heading()))?;
        self.print_theft("copies from before each", &run.copied)?;
        for (theft, number) in run.stolen.iter().zip(1..) {
            self.print_theft(&format!("server{number}, afterwards"), theft)?;
        }
        self.common.judge(&goals::replay(&run))
    }

    fn print_theft(&self, sessions_of: &str, theft: &Theft) -> Result<(), Failure> {
        let Theft { sessions, tries: requests, found, read } = *theft;
        let record =
            TheftRecord { kind: "lab.quic-theft", schema: SCHEMA, sessions_of, sessions, requests, found, read };
        self.common.format.print(&record, || COLUMNS.row([&sessions_of, &sessions, &requests, &found, &read]))
    }
}
