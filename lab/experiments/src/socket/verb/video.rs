//! A video with deadlines, by servers that know more and less of their sockets.

use std::time::Duration;

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use dwell_app::{Exit, args::positive_duration, tell::tell};
use serde::Serialize;

use super::{Format, Goal, SCHEMA, percent, queue};
use crate::{
    Programs,
    failure::Failure,
    socket::video::{self, Options, Outcome, Queue, Server},
};

/// Send a video whose frames have deadlines, by a server that asks libdwell and by two that do not
///
/// 30 frames a second over a connection of cubic's, at 10 Mbit/s and round trips of 50 ms. Each is due
/// 200 ms after its capture. A server decides before each frame how large it is, or to skip it: by the
/// throughput that its writes show, by whether its writes wait, or by what libdwell says waits. Without
/// a bottleneck, runs all that this host can. Ends with status 1 if by libdwell 1 % or more are late.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Bottlenecks:
  fifo   400 ms of packets, first in, first out
  codel  the kernel's CoDel; needs the package user-mode-linux

Examples:
  sudo dwell-lab socket video                    both, a minute of film by each of the servers
  sudo dwell-lab socket video codel --time 10s   a short one behind CoDel")]
pub struct Video {
    /// Behind which, see below
    #[arg(value_name = "BOTTLENECK", hide_possible_values = true, value_parser = PossibleValuesParser::new(Queue::ALL.map(Queue::name)))]
    bottlenecks: Vec<String>,
    /// For how long each server films
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_duration)]
    time: Duration,
    /// How to print: text, or jsonl, an object a run
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Of frames by the server that asks libdwell, fewer shall be late.
const LATE: f64 = 0.01;
/// A frame is captured each 33 ms; no figure is of none.
const SHORTEST: Duration = Duration::from_millis(100);

/// What a run came to.
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
    /// `null` where the bottleneck does not tell.
    dropped_packets: Option<u64>,
}

pub(super) fn run(args: &Video) -> Result<Exit, Failure> {
    if args.time < SHORTEST {
        return Err(Failure::usage(anyhow!(
            "--time {:?} is too short for frames: give {SHORTEST:?} or more",
            args.time
        )));
    }
    let programs = Programs::find()?;
    let queues = choose(&args.bottlenecks, |queue| queue.bottleneck().missing_requirement())?;
    args.format.say(&head())?;
    let mut checks = Vec::new();
    for behind in queues {
        for server in Server::ALL {
            let outcome = video::run(&Options::behind(behind, server, args.time, &programs))?;
            if let Some(did) = &outcome.queue {
                tell(format_args!("{}, {}: {}", behind.name(), server.name(), queue(did)));
            }
            let object = Object::of(behind, server, &outcome);
            args.format.print(&object, || object.line())?;
            if server == Server::Informed {
                checks.push(check(behind, outcome.late_share()));
            }
        }
    }
    args.format.say("")?;
    for check in &checks {
        args.format.say(&check.line())?;
    }
    Ok(Goal::exit(&checks))
}

/// Those that are asked for, which must be possible here; or of all those that are.
fn choose(asked: &[String], lack: impl Fn(Queue) -> Option<String>) -> Result<Vec<Queue>, Failure> {
    let mut chosen = Vec::new();
    for queue in Queue::ALL {
        let name = queue.name();
        if !asked.is_empty() && !asked.iter().any(|asked| asked == name) {
            continue;
        }
        match lack(queue) {
            None => chosen.push(queue),
            Some(lack) if asked.is_empty() => tell(format_args!("{name}: left out: {lack}")),
            Some(lack) => {
                let error = anyhow!("cannot send a video behind {name}: {lack}");
                return Err(Failure::new(Exit::Host, error));
            }
        }
    }
    Ok(chosen)
}

impl<'a> Object<'a> {
    fn of(behind: Queue, server: Server, outcome: &Outcome) -> Object<'a> {
        let delay = |share| outcome.quantile(share).map(|delay| delay.0);
        Object {
            kind: "lab_video",
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

fn check(behind: Queue, late: Option<f64>) -> Goal {
    Goal {
        holds: late.map(|late| late < LATE),
        what: format!(
            "{}: by libdwell {} % of the frames sent are late, wanted: below {} %",
            behind.name(),
            percent(late),
            LATE * 100.0
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_frame_in_a_hundred_is_too_many_and_none_at_all_is_unknown() {
        let holds = |late| check(Queue::Fifo, late).holds;
        assert_eq!(holds(Some(0.009)), Some(true));
        assert_eq!(holds(Some(0.01)), Some(false));
        assert_eq!(holds(None), None);
    }

    #[test]
    fn a_bottleneck_that_cannot_be_is_left_out_or_refused_by_name() {
        let lack = |queue| (queue == Queue::Codel).then(|| "no box".to_owned());
        assert_eq!(choose(&[], lack).unwrap(), [Queue::Fifo]);
        let codel = ["codel".to_owned()];
        let refused = choose(&codel, lack).unwrap_err();
        assert_eq!(refused.exit, Exit::Host);
        assert_eq!(refused.error.unwrap().to_string(), "cannot send a video behind codel: no box");
        assert_eq!(choose(&codel, |_| None).unwrap(), [Queue::Codel]);
    }

    #[test]
    fn columns_stand_below_their_heads_and_what_is_unknown_is_a_dash() {
        let nothing = Outcome { captured: 9, ..Outcome::default() };
        let line = Object::of(Queue::Codel, Server::Naive, &nothing).line();
        assert_eq!(line.len(), head().len());
        let words: Vec<&str> = line.split_whitespace().skip(3).collect();
        assert_eq!(words, ["0", "9", "-", "0.0", "0.0", "-", "-", "-", "-"]);
    }
}
