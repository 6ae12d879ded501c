//! `dwell lb top`.

use std::{
    io::{IsTerminal, stdout},
    thread,
    time::{Duration, Instant},
};

use dwell_balancer::api::{Client, Request, Status};
use dwell_engine::units::nanos;

use super::{RefreshArgs, SocketArgs, print, status::text};
use crate::{
    args::positive_duration,
    exit::{Exit, Failure},
    stop::Stop,
};

/// Show the status with rates, updated until Ctrl-C
///
/// If the output is not a terminal, the tables are printed one after the other.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell lb top
  dwell lb top --interval 5s --duration 1m > steering.txt")]
pub struct Args {
    #[command(flatten)]
    socket: SocketArgs,

    #[command(flatten)]
    refresh: RefreshArgs,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,
}

/// The time between two checks whether to end.
const POLL: Duration = Duration::from_millis(50);

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let stop = Stop::listen(args.duration)?;
    let is_terminal = stdout().is_terminal();
    let mut client = Client::connect(&args.socket.path)?;
    let mut before: Option<(Status, Instant)> = None;
    while !stop.is_asked() {
        let mut status: Status = client.request(&Request::Status {})?;
        let now = Instant::now();
        if let Some((_, then)) = &before {
            // Rates refer to the time between the two requests.
            status.interval_ns = nanos(now.duration_since(*then)).max(1_000_000);
        }
        let page = text(&status, before.as_ref().map(|(status, _)| status));
        print(frame(&page, is_terminal))?;
        before = Some((status, now));
        let next = now + args.refresh.interval;
        while Instant::now() < next && !stop.is_asked() {
            thread::sleep(POLL.min(next.saturating_duration_since(Instant::now())));
        }
    }
    Ok(Exit::Done)
}

/// On a terminal, overwrites the previous page without clearing it first, which would flicker.
fn frame(page: &str, is_terminal: bool) -> String {
    if !is_terminal {
        return format!("{page}\n");
    }
    let lines: Vec<_> = page.lines().map(|line| format!("{line}\x1b[K")).collect();
    format!("\x1b[H{}\r\n\x1b[J", lines.join("\r\n"))
}
