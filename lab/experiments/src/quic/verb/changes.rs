//! `dwell-lab quic changes`: keys and servers that change under load.

use std::time::Duration;

use dwell_app::{Exit, args::positive_duration};
use serde::Serialize;

use super::SCHEMA;
use crate::{
    failure::Failure,
    print::Columns,
    quic::{self, Change, ChangeOptions, ChangeResult, goals},
    star::Common,
};

/// Rotate keys, and remove and add a server, while connections last and clients return
#[derive(Debug, clap::Args)]
pub struct Changes {
    /// Connections that last from start to end
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(2..=200))]
    lasting: u16,
    /// Clients that return again and again
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(2..=200))]
    returning: u16,
    /// Pause between two changes; the old key is removed later if connections still use it
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    pause: Duration,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct ChangeRecord<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    change: &'static str,
    lasting_requests: usize,
    broken: usize,
    connections: usize,
    eligible: usize,
    early: usize,
    failed: usize,
    at_removed: usize,
    #[serde(rename = "why")]
    error: Option<&'a str>,
}

const COLUMNS: Columns<9> = Columns([
    ("since", -15),
    ("requests", 9),
    ("broken", 7),
    ("conns", 8),
    ("eligible", 9),
    ("0-RTT", 7),
    ("failed", 7),
    ("at server4", 11),
    ("", 0),
]);

impl Changes {
    pub fn run(&self) -> Result<Exit, Failure> {
        let scene = self.common.scene(None)?;
        let format = self.common.format;
        let options =
            ChangeOptions { lasting: self.lasting.into(), returning: self.returning.into(), pause: self.pause };
        format.say(&COLUMNS.heading())?;
        let all = quic::changes((&scene).into(), &options)?;
        for (change, result) in &all {
            format.print(&record(*change, result), || line(*change, result))?;
        }
        self.common.judge(&goals::changes(self.lasting, &all))
    }
}

fn record(change: Change, result: &ChangeResult) -> ChangeRecord<'_> {
    ChangeRecord {
        kind: "lab.quic-change",
        schema: SCHEMA,
        change: change.name(),
        lasting_requests: result.lasting,
        broken: result.broken,
        connections: result.connections,
        eligible: result.eligible,
        early: result.early,
        failed: result.failed,
        at_removed: result.at_removed,
        error: result.error.as_deref(),
    }
}

fn line(change: Change, result: &ChangeResult) -> String {
    COLUMNS.row([
        &change.name(),
        &result.lasting,
        &result.broken,
        &result.connections,
        &result.eligible,
        &result.early,
        &result.failed,
        &result.at_removed,
        &format!("  {}", result.error.as_deref().unwrap_or_default()),
    ])
}
