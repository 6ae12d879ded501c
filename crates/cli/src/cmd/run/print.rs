//! Writes figures to standard error or a file, after each interval or at the end.

use std::time::Duration;

use dwell_engine::{histogram::Figure, measure::Protocol, units::nanos};
use dwell_records::{
    Output, Record, SinkError, Socket, SocketEnd, SocketOrder, SocketSummary, SocketTotal, Sockets, Source, Status,
    Verb, Verdict,
};
use dwell_socket::clock::monotonic_ns;

use super::{Args, live_line::LiveLine, metrics::Exporter};
use crate::{
    args::FormatOrNone,
    exit::{Exit, Failure},
    fail_if::{self, Conditions, Subject},
    log::log,
    names::Namer,
    source::{clock, cost, host_name},
};

/// Most connections that the summary distinguishes.
const KEPT: usize = 20_000;

/// Writes the measurement. A write error ends the output, not the program.
pub struct Printer {
    output: Output,
    exporter: Option<Exporter>,
    names: Namer,
    is_to_file: bool,
    live: LiveLine,
    summary: SocketSummary,
    conditions: Vec<Conditions>,
    /// What became of the conditions, once the run is over.
    verdict: Option<Verdict>,
    /// Whether rows are missing in the store.
    is_incomplete: bool,
    only_summary: bool,
    /// Whether names of connections are needed later that no line of this interval asks for.
    notes_names: bool,
    order: SocketOrder,
    is_minimized: bool,
    is_outside: bool,
    poll: Duration,
    has_tenths: bool,
    started_ns: u64,
    /// Start of the current interval.
    since_ns: u64,
}

impl Printer {
    /// Opens the output.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn open(args: &Args) -> Result<Printer, Failure> {
        let has_flows = args.write.format(args.format.name()).is_some() || args.store.is_given();
        let names = args.names.live(has_flows, &args.write, args.format.name())?;
        let source = Source { clock: clock(), host: Some(host_name()), names: names.of_source(), ..Source::default() };
        let store = args.store.open(args.interval, false)?;
        let now_ns = monotonic_ns();
        Ok(Printer {
            output: args.write.output_beside_program(args.format.name(), source)?.keeping(store),
            exporter: args.metrics.start("run")?.map(Exporter::new),
            names,
            is_to_file: args.write.write.is_some(),
            live: LiveLine::new(args),
            summary: SocketSummary::new(KEPT),
            conditions: args.fail_if.clone(),
            verdict: None,
            is_incomplete: false,
            only_summary: args.summary,
            notes_names: args.summary || args.top.is_some() || args.format != FormatOrNone::Jsonl,
            order: SocketOrder { by: args.by.unwrap_or_default(), top: args.top.map(|top| top as usize) },
            is_minimized: args.minimize,
            is_outside: false,
            poll: args.poll,
            has_tenths: args.interval < Duration::from_secs(1),
            started_ns: now_ns,
            since_ns: now_ns,
        })
    }

    /// Whether records go to the file of `--write`.
    pub fn is_to_file(&self) -> bool {
        self.is_to_file
    }

    /// Notes that connections are watched only from outside.
    pub fn set_outside(&mut self) {
        self.is_outside = true;
    }

    /// Writes the figures of the interval that ends now.
    pub fn interval(&mut self, sockets: &[Socket]) -> Result<(), Failure> {
        let end_ns = monotonic_ns();
        let length_ns = end_ns.saturating_sub(self.since_ns);
        self.since_ns = end_ns;
        for socket in sockets {
            self.summary.add(end_ns, length_ns, socket);
            if self.notes_names {
                let ends = &socket.account.ends;
                self.names.note(&ends.src, &ends.dst, Protocol::TCP);
            }
        }
        if let Some(exporter) = &self.exporter {
            exporter.interval(&self.summary, sockets);
        }
        self.live.show(sockets, length_ns);
        let (has_tenths, order) = (self.has_tenths, self.order);
        let sockets = Sockets { end_ns, length_ns, sockets, order, has_tenths };
        self.output.source_mut().clock = clock();
        if self.only_summary {
            self.output.keep(&Record::Sockets(&sockets));
            return Ok(());
        }
        self.write(|output| {
            output.write(&Record::Sockets(&sockets))?;
            output.flush()
        });
        Ok(())
    }

    /// Writes the summary of the whole run.
    pub fn end(&mut self) -> Result<(), Failure> {
        let end_ns = monotonic_ns();
        self.summary.set_length(end_ns.saturating_sub(self.started_ns));
        let summary = std::mem::replace(&mut self.summary, SocketSummary::new(0));
        let (remedy, is_outside) = ((!self.is_minimized).then_some("try --minimize"), self.is_outside);
        let order = self.order;
        let look_ns = nanos(self.poll);
        self.verdict = fail_if::judge(&self.conditions, |name| vec![subject(summary.all(), name)]);
        let mut counters = vec![("connections".into(), summary.connections())];
        self.names.count(&mut counters);
        self.output.count_kept(&mut counters);
        let status = Status {
            verb: Verb::Run,
            time_ns: Some(end_ns),
            last: true,
            lost: summary.untold(),
            cost: cost(&[]),
            counters,
            verdict: self.verdict.clone(),
        };
        self.live.clear();
        self.write(|output| {
            let end = SocketEnd { end_ns, summary: &summary, order, remedy, is_outside, look_ns };
            output.write(&Record::SocketEnd(&end))?;
            output.write(&Record::Status(&status))?;
            output.flush()
        });
        if let Some(verdict) = &self.verdict {
            self.live.around(|| fail_if::announce(verdict, ("sample", "samples")));
        }
        for missing in self.output.finish() {
            self.is_incomplete = true;
            self.note(&missing);
        }
        Ok(())
    }

    /// Returns the exit status of a run that has finished with `exit`.
    pub fn exit(&self, exit: Exit) -> Exit {
        let exit = if self.is_incomplete { exit.max(Exit::Incomplete) } else { exit };
        fail_if::exit(self.verdict.as_ref(), exit)
    }

    /// Prints a note about the measurement itself.
    pub fn note(&self, text: &str) {
        self.live.around(|| log(text));
    }

    fn write(&mut self, write: impl FnOnce(&mut Output) -> Result<(), SinkError>) {
        let output = &mut self.output;
        // After an error nothing more is printed, but what is stored goes on.
        if let Err(error @ SinkError::Failed { .. }) = self.live.around(|| write(output)) {
            self.is_incomplete = true;
            self.note(&error.to_string());
        }
    }
}

/// Returns what is known of the connections of a run at the send buffer, or where a condition names another place.
fn subject(all: &SocketTotal, name: Option<&str>) -> Subject {
    let name = name.unwrap_or("sender");
    let (sum, max_ns) = match name {
        "receiver" => (&all.receiver, all.receiver_max_ns),
        "network" => (&all.network, None),
        _ => (&all.sender, all.sender_max_ns),
    };
    let known = [(Figure::Count, Some(sum.samples)), (Figure::Mean, sum.mean_ns()), (Figure::Max, max_ns)];
    let figures = known.into_iter().filter_map(|(figure, value)| Some((figure, value?))).collect();
    Subject { of: Some(name.to_owned()), figures }
}
