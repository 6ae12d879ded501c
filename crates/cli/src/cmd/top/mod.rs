//! `dwell top`: flows, peers, prefixes, processes, units and backends on a live screen, the worst first.

mod app;
mod backends;
mod columns;
mod detail;
mod draw;
mod label;
mod look;
mod print;
mod shown;
mod sources;
#[cfg(test)]
mod tests;
mod units;
mod verdict;

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use clap::ValueEnum;
use dwell_balancer::config::DEFAULT_SOCKET;
use dwell_engine::{
    filter::Filter,
    top::{Metric, Settings, View},
};

use self::{
    app::{Action, App, Page},
    backends::{Backends, Balancer, By},
    shown::Screenful,
    sources::{Sources, replay},
};
use crate::{
    args::{FormatOrNone, positive_duration},
    exit::{Exit, Failure},
    fail_if::{self, Conditions},
    log::log,
    names::NamesArgs,
    screen::{Input, Screen},
    source::{FilterArgs, is_store},
    stop::Stop,
};

/// Show flows, peers, prefixes, processes and units live, the slowest first
///
/// A screen of the TCP connections of this host with their round trips, waits in the send buffer, retransmissions and
/// rates, updated until q. `?` shows the keys: Enter asks `dwell why` about a row. Watches the network namespace that it
/// is run in, and needs no privilege; as root it also names the processes of other users, and shows how long servers take to
/// respond, for which it attaches a program to each interface while it runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dwell top                             all connections, those with the longest round trip first
  dwell top --view peers --by rate      who moves the most
  dwell top -f 10.0.0.0/8 -f '!:22'     some of them
  dwell top --once --format jsonl       one table, for scripts
  dwell top --once --fail-if 'rtt max>50ms'
  dwell top -r capture.pcapng           the flows of a capture
  dwell top -r web.db              what other runs have stored last
  dwell top --once --view processes --by send-buffer --top 5
  sudo dwell top --view units           services of systemd, and containers
  sudo dwell top --view backends        those of the balancer that runs on this host

More: docs/guide/top.md in the source.")]
#[group(skip)]
pub struct Args {
    /// Capture to read instead: pcap or pcapng, also gzipped; - for a pipe. Its flows are shown as they are at its end. Or a
    /// store, the SQLite file of --store of other verbs or of a collector: its last interval is shown, and the screen follows what
    /// is written to it
    #[arg(short, long, value_name = "FILE")]
    read: Option<PathBuf>,

    /// What a row stands for
    #[arg(long, value_enum, value_name = "VIEW", default_value_t = ViewName::Flows)]
    view: ViewName,

    /// Sort the lines by this, the largest first [default: rtt, and of backends response]
    #[arg(long, value_enum, value_name = "FIGURE")]
    by: Option<FigureName>,

    /// Socket of the balancer whose backends are a view: api.socket of its configuration
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET, conflicts_with = "read")]
    socket: PathBuf,

    #[command(flatten)]
    flows: FilterArgs,

    /// Length of an interval, after which the screen is drawn again [default: 1s; of a
    /// capture, all of it; of a store, the longest of those that are stored]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    interval: Option<Duration>,

    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    duration: Option<Duration>,

    #[command(flatten)]
    names: NamesArgs,

    /// Show no response latency of live flows, for which programs are attached to the interfaces
    #[arg(long, conflicts_with = "read")]
    no_response: bool,

    /// Print one table of one interval instead of a screen
    #[arg(long)]
    once: bool,

    /// Output format: text, jsonl, or none, which prints nothing
    #[arg(long, value_enum, default_value_t = FormatOrNone::Text, requires = "once")]
    format: FormatOrNone,

    /// Fail (exit status 1) if this holds for the rows of --once, also for those that --top leaves out, or cannot be judged
    /// because none has the figure: [METRIC] FIGURE>TIME, as in 'rtt max>50ms' or 'response p90>=1s'; METRIC is rtt, response
    /// or send-buffer, without it rtt; FIGURE is count, mean, min, max, p50, p90, p95, p99 or p99.9; may be given several times
    #[arg(long, value_name = "CONDITION", value_parser = verdict::conditions, requires = "once")]
    fail_if: Vec<Conditions>,

    /// Only the first N rows of --once; the number of the others is shown
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "once")]
    top: Option<u32>,

    /// Prefix length of IPv4 groups
    #[arg(long, value_name = "BITS", default_value_t = 24, value_parser = clap::value_parser!(u8).range(0..=32))]
    prefix4: u8,

    /// Prefix length of IPv6 groups
    #[arg(long, value_name = "BITS", default_value_t = 48, value_parser = clap::value_parser!(u8).range(0..=128))]
    prefix6: u8,

    /// Maximum number of flows to keep apart at once; further flows are counted
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(4..=16_000_000))]
    max_flows: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ViewName {
    Flows,
    Peers,
    Prefixes,
    Processes,
    Units,
    Backends,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FigureName {
    Rtt,
    Response,
    SendBuffer,
    Retransmitted,
    Rate,
}

/// What to do without a terminal.
const TO_SCRIPTS: &str = "print one table with --once";
/// The time until the first figures are shown, if an interval is longer.
const FIRST: Duration = Duration::from_millis(500);
/// The length of an interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest time between two checks whether to end.
const TURN: Duration = Duration::from_millis(200);
/// Time without a packet after which a flow without a socket is forgotten.
const IDLE_NS: u64 = 30_000_000_000;

impl Args {
    /// The capture to read.
    fn capture(&self) -> Option<&Path> {
        self.read.as_deref().filter(|path| !is_store(path))
    }

    /// The store to read.
    fn store(&self) -> Option<&Path> {
        self.read.as_deref().filter(|path| is_store(path))
    }

    /// The view of flows; where backends are wanted, the one that the keys lead back to.
    fn view(&self) -> View {
        View::ALL.get(self.view as usize).copied().unwrap_or(View::Flows)
    }

    fn metric(&self) -> Metric {
        self.by.map_or(Metric::Rtt, |by| Metric::ALL[by as usize])
    }

    /// Whether response latency of live flows is to be measured.
    fn has_responses(&self) -> bool {
        let shows_flows = !self.once || self.view != ViewName::Backends;
        shows_flows && !self.no_response
    }

    /// The most rows of `--once`.
    fn limit(&self) -> usize {
        self.top.map_or(usize::MAX, |top| top as usize)
    }

    /// What backends are ranked by; `None` if the view is another one.
    fn backends(&self) -> Result<Option<By>, Failure> {
        Ok(match (self.view, self.by) {
            (ViewName::Backends, _) if self.capture().is_some() => {
                return Err(Failure::usage(anyhow!(
                    "a capture has no balancer: choose another --view, or leave out --read"
                )));
            }
            (ViewName::Backends, _) if self.store().is_some() && self.format == FormatOrNone::Jsonl => {
                return Err(Failure::usage(anyhow!(
                    "backends of a store are printed as text only: query its table `backends` instead"
                )));
            }
            (ViewName::Backends, _) if !self.fail_if.is_empty() => {
                return Err(Failure::usage(anyhow!(
                    "--fail-if is about flows: choose another --view, or judge what `dwell lb status` says of backends"
                )));
            }
            (ViewName::Backends, None | Some(FigureName::Response)) => Some(By::Response),
            (ViewName::Backends, Some(FigureName::Rate)) => Some(By::Packets),
            (ViewName::Backends, Some(_)) => {
                return Err(Failure::usage(anyhow!(
                    "backends are sorted by response or rate; < and > choose other columns"
                )));
            }
            _ => None,
        })
    }

    fn settings(&self) -> Settings {
        let max_flows = self.max_flows as usize;
        let (prefix4, prefix6, is_capture) = (self.prefix4, self.prefix6, self.capture().is_some());
        // Of an interval that is the whole capture, no flow is forgotten.
        let idle_ns = if is_capture && self.interval.is_none() { u64::MAX } else { IDLE_NS };
        Settings { max_flows, idle_ns, is_capture, prefix4, prefix6 }
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let filter = args.flows.with_port()?;
    let backends = args.backends()?;
    let stop = Stop::listen(args.duration)?;
    if let Some(path) = args.capture() {
        if args.duration.is_some() {
            return Err(Failure::usage(anyhow!("a capture is read to its end: leave out --duration")));
        }
        return of_capture(args, path, &filter, &stop);
    }
    if let Some(path) = args.store() {
        return of_store(args, path, filter, backends, &stop);
    }
    if args.once {
        return once(args, open(args, filter)?, backends, &stop);
    }
    // A wrong terminal is known before anything is attached.
    let mut screen = Screen::open(TO_SCRIPTS)?;
    let mut sources = open(args, filter)?;
    watch(args, backends, &mut screen, &mut sources, &stop)
}

/// Opens what a live screen shows.
fn open(args: &Args, filter: Filter) -> Result<Sources, Failure> {
    let mut sources = Sources::open(args, filter)?;
    sources.shown.balancer = Some(Balancer::at(args.socket.clone()));
    Ok(sources)
}

/// Shows the flows of a capture, once it was read.
fn of_capture(args: &Args, path: &Path, filter: &Filter, stop: &Stop) -> Result<Exit, Failure> {
    if args.once {
        let (shown, exit) = replay::read(args, path, filter, stop)?;
        let printed = print(args, &shown)?;
        return exit.map(|exit| if exit == Exit::Done { printed } else { exit });
    }
    // A wrong terminal is known before anything is read.
    Screen::check(TO_SCRIPTS)?;
    let (shown, exit) = replay::read(args, path, filter, stop)?;
    let mut screen = Screen::open(TO_SCRIPTS)?;
    watch(args, None, &mut screen, &mut Sources::of_capture(shown), stop)?;
    drop(screen);
    exit
}

/// Shows the last interval of a store, and what is written to it.
fn of_store(args: &Args, path: &Path, filter: Filter, backends: Option<By>, stop: &Stop) -> Result<Exit, Failure> {
    if !args.once {
        // A wrong terminal is known before anything is read.
        Screen::check(TO_SCRIPTS)?;
    }
    let mut sources = Sources::of_store(args, path, filter)?;
    match (args.once, backends, &sources.shown.balancer) {
        (true, Some(by), Some(balancer)) => print::backends(balancer, by, args.limit(), args.format),
        (true, ..) => print(args, &sources.shown),
        (false, ..) => watch(args, backends, &mut Screen::open(TO_SCRIPTS)?, &mut sources, stop),
    }
}

fn print(args: &Args, shown: &Screenful) -> Result<Exit, Failure> {
    let (view, by) = (args.view(), args.metric());
    let rows = shown.rows(view, by);
    let verdict = verdict::of(&args.fail_if, &rows);
    print::once(shown, view, by, (&rows, args.limit()), args.format, verdict.clone())?;
    if let Some(verdict) = &verdict {
        fail_if::announce(verdict, ("row", "rows"));
    }
    Ok(fail_if::exit(verdict.as_ref(), Exit::Done))
}

/// Prints the table of one interval.
fn once(args: &Args, mut sources: Sources, backends: Option<By>, stop: &Stop) -> Result<Exit, Failure> {
    sources.notice.take().into_iter().for_each(log);
    sources.end_interval()?;
    let end = Instant::now() + args.interval.unwrap_or(INTERVAL);
    while Instant::now() < end && !stop.is_asked() {
        thread::sleep(TURN.min(end.saturating_duration_since(Instant::now())));
    }
    sources.end_interval()?;
    let (Some(by), Some(balancer)) = (backends, sources.shown.balancer.take()) else {
        return print(args, &sources.shown);
    };
    match balancer.answering() {
        Ok(balancer) => print::backends(&balancer, by, args.limit(), args.format),
        Err(error) => Err(error.into()),
    }
}

/// Ends an interval of the screen. A store that can no longer be read is complained of, and its last figures stay.
fn end_interval(args: &Args, sources: &mut Sources, app: &mut App) -> Result<(), Failure> {
    match sources.end_interval() {
        Err(failure) if args.store().is_some() => {
            app.message = failure.error.map(|error| error.to_string());
            Ok(())
        }
        ended => ended,
    }
}

fn watch(
    args: &Args,
    backends: Option<By>,
    screen: &mut Screen,
    sources: &mut Sources,
    stop: &Stop,
) -> Result<Exit, Failure> {
    let mut app = App::new(args.view(), args.metric());
    if let Some(by) = backends {
        app.page = Page::Backends(Backends::new(by));
    }
    app.message = sources.notice.take();
    sources.end_interval()?;
    let interval = args.interval.filter(|_| args.store().is_none()).unwrap_or(INTERVAL);
    let mut next = Instant::now() + FIRST.min(interval);
    app.update(&sources.shown);
    while !stop.is_asked() {
        screen.draw(|frame| draw::page(&mut app, &sources.shown, frame))?;
        let timeout = next.saturating_duration_since(Instant::now()).min(TURN);
        let action = match screen.wait(timeout) {
            Input::Key(key) => app.key(key),
            Input::Interrupt | Input::Closed => Action::Quit,
            Input::Resized | Input::Nothing => Action::Nothing,
        };
        match action {
            Action::Quit => break,
            Action::Nothing => {}
            Action::Update => app.update(&sources.shown),
            Action::Save => app.message = Some(print::save(&sources.shown, &app)),
            Action::Filter(text) => {
                app.message = sources.set_filter(&text).err();
                app.update(&sources.shown);
            }
            Action::ToggleNames => sources.shown.toggle_names(),
        }
        sources.read_responses(app.is_frozen)?;
        if Instant::now() >= next {
            next = Instant::now() + interval;
            if !app.is_frozen {
                end_interval(args, sources, &mut app)?;
                app.update(&sources.shown);
            }
        }
    }
    Ok(Exit::Done)
}
