//! A video with deadlines, by servers that know more or less about their sockets.

use std::time::Duration;

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use dwell_app::{Exit, args::positive_duration, log::log};
use serde::Serialize;

use super::{Format, SCHEMA, judge, percent, queue};
use crate::{
    Programs,
    failure::Failure,
    socket::{
        goals,
        video::{self, Options, Outcome, Queue, Server},
    },
};

/// Send a video whose frames have deadlines, by a server that asks libdwell and by two that do not
///
/// Sends 30 frames per second over a TCP connection with cubic, at 10 Mbit/s and a round trip of 50 ms.
/// Each frame is due 200 ms after its capture. The server chooses the size of each frame, or skips it:
/// by the throughput of its writes, by whether its writes block, or by the delay that libdwell reports.
/// Without a bottleneck, runs all that this host supports. Exits with status 1 if 1 % or more of the
/// frames are late with libdwell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Bottlenecks:
  fifo   400 ms of packets, first in, first out
  codel  CoDel of the kernel; needs the package user-mode-linux

Examples:
  sudo dwell-lab socket video                    both, a minute of film by each of the servers
  sudo dwell-lab socket video codel --duration 10s   a short one behind CoDel")]
pub struct Video {
    /// The bottlenecks, see below [default: all]
    #[arg(value_name = "BOTTLENECK", hide_possible_values = true, value_parser = PossibleValuesParser::new(Queue::ALL.map(Queue::name)))]
    bottlenecks: Vec<String>,
    /// How long each server films
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_duration)]
    duration: Duration,
    /// Output format: text, or jsonl, one object per run
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// A frame is captured every 33 ms; shorter films have too few.
const SHORTEST: Duration = Duration::from_millis(100);

/// The result of a run.
#[derive(Serialize)]
struct Object<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    schema: &'a str,
    bottleneck: &'a str,
    server: &'a str,
    captured: u64,
    sent: u64,
    skipped: u64,
    late: u64,
    late_share: Option<f64>,
    in_time_share: Option<f64>,
    bytes: u64,
    rate_bps: Option<f64>,
    delay_p50_ns: Option<u64>,
    delay_p95_ns: Option<u64>,
    delay_p99_ns: Option<u64>,
    /// `null` where the bottleneck does not report it.
    dropped_packets: Option<u64>,
}

pub(super) fn run(args: &Video) -> Result<Exit, Failure> {
    if args.duration < SHORTEST {
        return Err(Failure::usage(anyhow!(
            "--duration {:?} is too short for frames: use {SHORTEST:?} or more",
            args.duration
        )));
    }
    let programs = Programs::find()?;
    let queues = select(&args.bottlenecks, |queue| queue.bottleneck().missing_requirement())?;
    args.format.say(&head())?;
    let mut goals = Vec::new();
    for behind in queues {
        for server in Server::ALL {
            let outcome = video::run(&Options::behind(behind, server, args.duration, &programs))?;
            if let Some(statistics) = &outcome.queue {
                log(format_args!("{}, {}: {}", behind.name(), server.name(), queue(statistics)));
            }
            let object = Object::of(behind, server, &outcome);
            args.format.print(&object, || object.line())?;
            if server == Server::Informed {
                goals.push(goals::video(behind.name(), outcome.late_share()));
            }
        }
    }
    args.format.say("")?;
    judge(args.format, &goals)
}

/// The bottlenecks to run: the requested ones, all of which this host must support, or all that it supports.
fn select(requested: &[String], lack: impl Fn(Queue) -> Option<String>) -> Result<Vec<Queue>, Failure> {
    let mut selected = Vec::new();
    for queue in Queue::ALL {
        let name = queue.name();
        if !requested.is_empty() && !requested.iter().any(|requested| requested == name) {
            continue;
        }
        match lack(queue) {
            None => selected.push(queue),
            Some(lack) if requested.is_empty() => log(format_args!("{name}: skipped: {lack}")),
            Some(lack) => {
                let error = anyhow!("cannot send a video behind {name}: {lack}");
                return Err(Failure::new(Exit::Host, error));
            }
        }
    }
    Ok(selected)
}

impl<'a> Object<'a> {
    fn of(behind: Queue, server: Server, outcome: &Outcome) -> Object<'a> {
        let delay = |share| outcome.quantile(share).map(|delay| delay.0);
        Object {
            kind: "lab.video",
            schema: SCHEMA,
            bottleneck: behind.name(),
            server: server.name(),
            captured: outcome.captured,
            sent: outcome.sent,
            skipped: outcome.skipped(),
            late: outcome.late(),
            late_share: outcome.late_share(),
            in_time_share: outcome.in_time_share(),
            bytes: outcome.bytes,
            rate_bps: outcome.bits_per_second(),
            delay_p50_ns: delay(0.5),
            delay_p95_ns: delay(0.95),
            delay_p99_ns: delay(0.99),
            dropped_packets: outcome.queue.map(|queue| queue.dropped),
        }
    }

    fn line(&self) -> String {
        let ms = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.0}", ns as f64 / 1e6));
        let rate = self.rate_bps.map_or_else(|| "-".to_owned(), |rate| format!("{:.2}", rate / 1e6));
        format!(
            "{:<6} {:<14}{:>6}{:>9}{:>8}{:>10}{:>8.1}{rate:>8}{:>8}{:>8}{:>8}",
            self.bottleneck,
            self.server,
            self.sent,
            self.skipped,
            percent(self.late_share),
            percent(self.in_time_share),
            self.bytes as f64 / 1e6,
            ms(self.delay_p50_ns),
            ms(self.delay_p95_ns),
            ms(self.delay_p99_ns),
        )
    }
}

fn head() -> String {
    format!(
        "{:<21}{:>6}{:>9}{:>8}{:>10}{:>8}{:>8}{:>8}{:>8}{:>8}",
        "", "sent", "skipped", "late %", "in time %", "MB", "Mbit/s", "p50 ms", "p95 ms", "p99 ms"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsupported_bottleneck_is_skipped_or_refused_by_name() {
        let lack = |queue| (queue == Queue::Codel).then(|| "no box".to_owned());
        assert_eq!(select(&[], lack).unwrap(), [Queue::Fifo]);
        let codel = ["codel".to_owned()];
        let refused = select(&codel, lack).unwrap_err();
        assert_eq!(refused.exit, Exit::Host);
        assert_eq!(refused.error.unwrap().to_string(), "cannot send a video behind codel: no box");
        assert_eq!(select(&codel, |_| None).unwrap(), [Queue::Codel]);
    }

    #[test]
    fn columns_stand_below_their_heads_and_unknown_figures_are_dashes() {
        let nothing = Outcome { captured: 9, ..Outcome::default() };
        let line = Object::of(Queue::Codel, Server::Naive, &nothing).line();
        assert_eq!(line.len(), head().len());
        let words: Vec<&str> = line.split_whitespace().skip(3).collect();
        assert_eq!(words, ["0", "9", "-", "0.0", "0.0", "-", "-", "-", "-"]);
    }
}
