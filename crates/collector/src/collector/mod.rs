//! The thread that writes: what agents report, and what follows from it across hosts.

mod batches;
mod counts;
mod gray;
mod left_out;
mod losses;
mod rows;

use std::{collections::HashMap, sync::Arc, time::Duration};

use dwell_app::log::log;
use dwell_engine::layers::{
    Ends, PathSegment,
    join::{Checkpoint, Config, HostTrace, Joiner, Window},
};
use dwell_fleet::{
    Agent, Refusals, Server,
    wire::{self, ByteTraces, FrameError},
};
use dwell_metrics::{Registry, Shared};
use dwell_records::{AgentEvent, Clock, PathTable, Record};
use dwell_store::{Origin, Progress, Retain, Retention, Store};

pub use self::gray::GrayCounts;
use self::{
    gray::Gray,
    left_out::LeftOut,
    losses::LossCounts,
    rows::{write_estimate, write_hello, write_window},
};
use crate::{
    Error, Judge, Print, clocks::Clocks, estimates::Estimates, forward::Forward, hosts::Hosts,
    metrics::CollectorMetrics, queue::Gate, time::Time,
};

/// How long after its end an interval is reported: agents gather before they send, and bytes settle.
const GRACE_NS: u64 = 2_000_000_000;
/// Counters are written at most once in this time, and only if they changed.
const COUNTED_NS: u64 = 10_000_000_000;
/// Time between two updates of the metrics of counters.
const SERVED_NS: u64 = 1_000_000_000;

/// Time between the deletion of old rows and the next, and how long new transactions of one may begin.
const DELETE_NS: u64 = 500_000_000;
const DELETE_TIME: Duration = Duration::from_millis(500);

/// How long a flow counts as matched after both hosts last saw it.
const MATCHED_NS: u64 = 60_000_000_000;
/// Flows that are remembered as matched at most, some 100 bytes each. Estimates are stored of further ones too.
const MAX_MATCHED: usize = 1 << 18;

/// Hosts in a store at most, some 200 bytes each with their numbers: names have 64 bytes at most.
const MAX_STORED_HOSTS: u64 = 1 << 16;
/// How long a host stays in the store of which nothing is left, so that what its agent may still have is not taken for new.
const KEEP_HOST_NS: i64 = 24 * 3_600 * 1_000_000_000;
/// Time between two looks for such hosts: each reads some tables as a whole.
const LOOK_NS: u64 = 600 * 1_000_000_000;

/// The state of a collector.
pub struct Collector {
    store: Store,
    retention: Retention,
    /// When rows were last deleted.
    deleted_ns: u64,
    /// Sends rows to a server, if they are kept there.
    forward: Option<Forward>,
    time: Time,
    config: Config,
    joiner: Joiner,
    clocks: Clocks,
    hosts: Hosts,
    print: Option<Print>,
    judge: Option<Box<dyn Judge>>,
    metrics: Option<Shared<CollectorMetrics>>,
    /// When the next interval ends.
    due_ns: u64,
    counted_ns: u64,
    served_ns: u64,
    /// When a byte of a flow was last seen on both hosts: nothing is estimated for such a flow.
    matched: HashMap<Ends, u64>,
    estimates: Estimates,
    /// The collector's own counters and their last values in the store.
    counted: HashMap<String, u64>,
    /// Byte traces of hosts whose clock was not known.
    clockless: u64,
    /// Byte traces without a time at the driver.
    edgeless: u64,
    /// Byte traces that were pending when the collector's host rebooted.
    outlived: u64,
    /// Batches stored.
    stored: u64,
    left_out: LeftOut,
    /// When hosts were last looked for of which nothing is left.
    looked_ns: Option<u64>,
    losses: LossCounts,
    /// Judges gray failures, if that is asked for.
    gray: Option<Gray>,
    gate: Arc<Gate>,
}

/// A pending row: when it arrived, byte traces, and for each its time at the driver on the collector's time with the
/// bound of that time's error.
type Aside = (u64, ByteTraces, Vec<(u64, u64)>);

impl Collector {
    /// Continues where the store's last collector ended.
    pub fn open(
        store: Store,
        forward: Option<Forward>,
        config: &Config,
        clocks: Clocks,
        print: Option<Print>,
        registry: Option<&Registry>,
        gate: Arc<Gate>,
    ) -> Result<Collector, Error> {
        let (before, config) = (store.progress()?, *config);
        let time = Time::new(before.as_ref())?;
        let had_rows = before.is_some();
        // Another boot has another time, which may have been ahead of this one.
        let before = before.filter(|before| before.boot == time.boot);
        let is_anew = had_rows && before.is_none();
        let told = before.map_or(Checkpoint::default(), |before| Checkpoint {
            settled_ns: before.told_at_ns,
            end_ns: before.told_until_ns,
        });
        let now_ns = time.now_ns();
        let mut hosts = Hosts::default();
        hosts.add_hooks(store.hooks()?);
        let mut collector = Collector {
            time,
            config,
            joiner: Joiner::new(config, told),
            clocks,
            hosts,
            print,
            judge: None,
            metrics: registry.map(|registry| registry.register(CollectorMetrics::new())),
            due_ns: config.next_end(now_ns),
            counted_ns: now_ns,
            served_ns: 0,
            matched: HashMap::new(),
            estimates: Estimates::default(),
            counted: HashMap::new(),
            clockless: 0,
            edgeless: 0,
            outlived: 0,
            stored: 0,
            left_out: LeftOut::default(),
            looked_ns: None,
            losses: LossCounts::default(),
            gray: None,
            gate,
            forward,
            retention: Retention::new(&store, None, Origin::Live)?,
            store,
            deleted_ns: 0,
        };
        match is_anew {
            true => collector.discard_pending()?,
            false => collector.resume_pending()?,
        }
        Ok(collector)
    }

    /// Discards pending byte traces of another boot: they cannot be compared with new ones.
    fn discard_pending(&mut self) -> Result<(), Error> {
        let mut traces = 0;
        self.store.pending(|_, body| {
            traces += read_aside(&body).map_or(0, |(_, ByteTraces(some), _)| some.len() as u64);
        })?;
        self.store.write(|to| to.forget(u64::MAX))?;
        self.outlived = traces;
        if traces > 0 {
            log(format_args!(
                "this host has rebooted: {traces} bytes that were waiting for their other half are discarded"
            ));
        }
        Ok(())
    }

    /// Reads pending byte traces again, in the order in which they arrived.
    fn resume_pending(&mut self) -> Result<(), Error> {
        let Collector { store, hosts, joiner, time, .. } = self;
        let (mut damaged, now_ns) = (0, time.now_ns());
        store.pending(|host, body| match read_aside(&body) {
            Ok((arrived_ns, traces, edges)) => {
                hosts.leave(&host, now_ns);
                let host = hosts.number(&host);
                halves(host, arrived_ns, &traces, &edges).for_each(|half| joiner.add(half));
            }
            Err(_) => damaged += 1,
        })?;
        if damaged > 0 {
            log(format_args!("{damaged} rows of the store's table 'pending' are damaged, and left out"));
        }
        Ok(())
    }

    /// Greets an agent; returns the number of its last stored batch, 0 if there is none, or why it cannot come.
    pub fn hello(&mut self, agent: &Agent) -> Result<Result<u64, String>, Error> {
        let now_ns = self.time.now_ns();
        let Collector { hosts, clocks, gray, .. } = self;
        let forget = |number, name: &str| {
            clocks.forget(name);
            gray.iter_mut().for_each(|gray| gray.forget_host(number));
        };
        if !hosts.may_come(agent.name.as_str(), now_ns, forget) {
            return Ok(Err("the collector has had too many agents with different names in the last minutes: try again later, under the name that this \
                 host always has".into()));
        }
        let name = agent.name.as_str();
        if !self.has_room_for(name, now_ns)? {
            self.left_out.hosts += 1;
            return Ok(Err("the collector's store has rows of as many hosts as it keeps apart: let it forget older ones (`dwell collect --retain`)".into()));
        }
        let last = self.store.last_batch(name, &agent.run)?;
        let again = match last {
            _ if agent.is_past => " with what an earlier run has left",
            Some(_) => " again",
            None => "",
        };
        log(format_args!("{name} connected{again}, from {}", agent.address));
        self.hosts.arrive(name);
        let (now_ns, mut losses) = (unix(now_ns, self.time.to_unix_ns()), Vec::new());
        let mut is_resumed = false;
        let (last, has_killed) = self.store.write(|to| {
            is_resumed = !agent.is_past && to.resume_run(name, &agent.run)?;
            write_hello(to, agent, last.unwrap_or(0), now_ns, &mut losses)
        })?;
        if is_resumed {
            log(format_args!("{name} was not killed, but frozen or cut off: its row of table 'lost' is deleted"));
        }
        self.losses.add(name, &losses);
        if has_killed {
            self.hosts.await_interval(name, now_ns);
        }
        self.print_agent(agent, None)?;
        Ok(Ok(last))
    }

    /// Returns whether the store has a host, or room for another one, for which it may forget some.
    fn has_room_for(&mut self, name: &str, now_ns: u64) -> Result<bool, Error> {
        let Collector { store, hosts, looked_ns, .. } = self;
        if store.has_host(name)? || store.hosts()? < MAX_STORED_HOSTS {
            return Ok(true);
        }
        if looked_ns.is_some_and(|looked_ns| now_ns < looked_ns + LOOK_NS) {
            return Ok(false);
        }
        *looked_ns = Some(now_ns);
        let before_ns = unix(now_ns, self.time.to_unix_ns()) - KEEP_HOST_NS;
        store.forget_hosts(before_ns, |name| !hosts.is_connected(name))?;
        Ok(store.hosts()? < MAX_STORED_HOSTS)
    }

    /// Notes that an agent has left.
    pub fn leave(&mut self, agent: &Agent, reason: &str) -> Result<(), Error> {
        self.hosts.leave(agent.name.as_str(), self.time.now_ns());
        log(format_args!("{} disconnected: {reason}", agent.name));
        self.print_agent(agent, Some(reason))
    }

    /// Prints that an agent has come, or why it left.
    fn print_agent(&mut self, agent: &Agent, left: Option<&str>) -> Result<(), Error> {
        let (time_ns, to_unix_ns) = (self.time.now_ns(), self.time.to_unix_ns());
        let Some(print) = &mut self.print else {
            return Ok(());
        };
        print.output.source_mut().clock = Clock::with_offset(to_unix_ns.into());
        print.output.write(&Record::Agent(&AgentEvent {
            time_ns,
            agent: agent.name.as_str(),
            address: agent.address,
            is_past: agent.is_past,
            left,
        }))?;
        Ok(print.output.flush()?)
    }

    /// Reports counters, at times of their own, and the intervals that are over.
    pub fn poll(&mut self, server: &Server) -> Result<(), Error> {
        let now_ns = self.time.now_ns();
        if now_ns - self.counted_ns >= COUNTED_NS {
            self.counted_ns = now_ns;
            self.count(&server.refusals())?;
        }
        if now_ns - self.served_ns >= SERVED_NS {
            self.served_ns = now_ns;
            self.serve_counts(server);
        }
        if now_ns < self.due_ns + GRACE_NS {
            return Ok(());
        }
        let until_ns = self.due_ns;
        self.due_ns = self.config.next_end(now_ns - GRACE_NS);
        self.report_until(now_ns, until_ns)
    }

    /// Sets what of the store is kept; without that, all is.
    pub fn set_retain(&mut self, retain: Option<Retain>) -> Result<(), Error> {
        self.retention = Retention::new(&self.store, retain, Origin::Live)?;
        Ok(())
    }

    /// Sets what judges the paths of the run.
    pub fn set_judge(&mut self, judge: Option<Box<dyn Judge>>) {
        self.judge = judge;
    }

    /// Deletes rows that are not to be kept, once per [`DELETE_NS`] and as long as [`DELETE_TIME`]: agents wait meanwhile, so that
    /// not more arrives than is deleted.
    pub fn delete_oldest(&mut self) -> Result<(), Error> {
        let now_ns = self.time.now_ns();
        if now_ns < self.deleted_ns + DELETE_NS {
            return Ok(());
        }
        let unix_ns = unix(now_ns, self.time.to_unix_ns());
        let notice = self.retention.apply(&mut self.store, unix_ns, DELETE_TIME)?;
        notice.into_iter().for_each(log);
        // From its end: storing has as much time as deleting, and a row costs it more.
        self.deleted_ns = self.time.now_ns();
        Ok(())
    }

    /// Reports everything that is left, at the end of a run.
    pub fn finish(&mut self, refusals: &Refusals) -> Result<(), Error> {
        let now_ns = self.time.now_ns();
        self.count(refusals)?;
        // As if all bytes had settled.
        let settled_ns = now_ns + self.config.settle_ns;
        self.report_until(settled_ns, now_ns + self.config.window_ns)?;
        self.stop_gray(now_ns)?;
        self.print_status(now_ns)?;
        match &mut self.forward {
            Some(forward) => forward.finish(&mut self.store),
            None => Ok(()),
        }
    }

    /// Adds lines that are missing in the file of `--write` to the outcome of a run: they are an error, and
    /// reported also beside another one.
    pub fn complete(&self, ended: Result<(), Error>) -> Result<(), Error> {
        let missing = self.print.as_ref().and_then(|print| print.output.missing_lines());
        match (missing, ended) {
            (None, ended) => ended,
            (Some(missing), Ok(())) => Err(Error::Incomplete(missing)),
            (Some(missing), Err(waiting @ Error::Waiting { .. })) => {
                Err(Error::Incomplete(format!("{missing}; {waiting}")))
            }
            (Some(missing), Err(error)) => {
                log(missing);
                Err(error)
            }
        }
    }

    /// Forwards waiting rows to the server, if there is one.
    pub fn forward(&mut self) -> Result<(), Error> {
        match &mut self.forward {
            Some(forward) => forward.poll(&mut self.store),
            None => Ok(()),
        }
    }

    /// Lets agents know whether the spool has room for their batches.
    pub fn set_gate(&mut self) -> Result<(), Error> {
        let Some(forward) = &mut self.forward else {
            return Ok(());
        };
        let (was_full, is_full) = (self.gate.is_full(), forward.is_full(&self.store));
        self.gate.set(is_full, forward.crowding(&self.store)?);
        match (was_full, is_full) {
            (false, true) => log(format_args!("the spool is full: agents keep what they measure")),
            (true, false) => log(format_args!("the spool has room again")),
            _ => {}
        }
        Ok(())
    }

    fn report_until(&mut self, now_ns: u64, until_ns: u64) -> Result<(), Error> {
        let config = self.config;
        let windows = self.joiner.take_finished(now_ns, until_ns);
        let to_unix_ns = self.time.to_unix_ns();
        let progress = Progress {
            boot: self.time.boot.clone(),
            offset_ns: self.time.offset_ns,
            told_at_ns: now_ns,
            // The next collector may have other intervals: up to here these are reported in full.
            told_until_ns: until_ns - until_ns % self.config.window_ns,
        };
        // The first half of a byte in an interval that is not reported yet may have arrived this long before the
        // interval's end.
        let Config { window_ns, wait_ns, settle_ns, .. } = config;
        let needed_ns = until_ns.saturating_sub(window_ns + wait_ns + settle_ns + GRACE_NS);
        self.note_matched(&windows, now_ns);
        let mut due = self.estimates.take(|estimate| config.next_end(estimate.end_ns) <= until_ns);
        due.retain(|estimate| !self.matched.contains_key(&estimate.trip.ends));
        let events = self.judge_gray(&windows, until_ns);
        let Collector { store, hosts, .. } = self;
        store.write(|to| {
            for window in &windows {
                write_window(to, hosts, window, window_ns, unix(window.end_ns, to_unix_ns))?;
            }
            for estimate in &due {
                write_estimate(to, hosts.name(estimate.host), estimate)?;
            }
            to.progress(&progress)?;
            to.forget(needed_ns)
        })?;
        self.charge(&windows);
        self.serve(&windows);
        self.judge(&windows);
        self.print(&windows, to_unix_ns)?;
        self.report_gray(&events)
    }

    fn note_matched(&mut self, windows: &[Window], now_ns: u64) {
        let since_ns = now_ns.saturating_sub(MATCHED_NS);
        self.matched.retain(|_, seen_ns| *seen_ns > since_ns);
        let paths = windows.iter().flat_map(|window| &window.paths);
        for flow in paths.flat_map(|(key, _)| [key.flow, key.rx_flow]).flatten() {
            if self.matched.len() < MAX_MATCHED || self.matched.contains_key(&flow) {
                self.matched.insert(flow, now_ns);
            } else {
                self.left_out.matched_flows += 1;
            }
        }
    }

    /// Counts the rows of paths against both hosts whose agents caused them.
    fn charge(&self, windows: &[Window]) {
        let mut rows: HashMap<u32, usize> = HashMap::new();
        for (key, _) in windows.iter().flat_map(|window| &window.paths) {
            for host in [key.tx_host, key.rx_host] {
                *rows.entry(host).or_default() += PathSegment::ALL.len();
            }
        }
        rows.into_iter().for_each(|(host, rows)| self.gate.charge_rows(self.hosts.name(host), rows));
    }

    /// Updates the metrics of paths.
    fn serve(&self, windows: &[Window]) {
        let Some(metrics) = &self.metrics else {
            return;
        };
        let mut metrics = metrics.lock();
        let paths = windows.iter().flat_map(|window| &window.paths);
        for (key, path) in paths.filter(|(key, _)| key.flow.is_none()) {
            let (tx, rx) = (self.hosts.name(key.tx_host), self.hosts.name(key.rx_host));
            for (segment, histogram) in PathSegment::ALL.into_iter().zip(&path.segments) {
                metrics.path(tx, rx, segment, histogram);
            }
        }
    }

    /// Hands the paths between hosts to what judges them.
    fn judge(&mut self, windows: &[Window]) {
        let Some(judge) = &mut self.judge else {
            return;
        };
        let paths = windows.iter().flat_map(|window| &window.paths);
        for (_, path) in paths.filter(|(key, _)| key.flow.is_none() && !key.resent) {
            for (segment, histogram) in PathSegment::ALL.into_iter().zip(&path.segments) {
                judge.add(segment, histogram);
            }
        }
    }

    fn print(&mut self, windows: &[Window], to_unix_ns: i64) -> Result<(), Error> {
        let Some(print) = &mut self.print else {
            return Ok(());
        };
        print.output.source_mut().clock = Clock::with_offset(to_unix_ns.into());
        for window in windows {
            for (key, path) in &window.paths {
                if key.flow.is_some() && !print.flows {
                    continue;
                }
                print.output.write(&Record::Path(&PathTable {
                    end_ns: window.end_ns,
                    length_ns: self.config.window_ns,
                    tx_host: self.hosts.name(key.tx_host),
                    rx_host: self.hosts.name(key.rx_host),
                    flow: key.flow,
                    rx_flow: key.rx_flow,
                    resent: key.resent,
                    path,
                }))?;
            }
        }
        Ok(print.output.flush()?)
    }
}

/// Reads a pending row, which an older dwell may have written.
fn read_aside(body: &[u8]) -> Result<Aside, FrameError> {
    wire::decode(wire::version_of(body)?, body)
}

fn halves(host: u32, arrived_ns: u64, traces: &ByteTraces, edges: &[(u64, u64)]) -> impl Iterator<Item = HostTrace> {
    let each = traces.0.iter().zip(edges);
    each.map(move |(trace, (edge_ns, bound_ns))| HostTrace {
        host,
        trace: *trace,
        edge_ns: *edge_ns,
        bound_ns: *bound_ns,
        arrived_ns,
    })
}

fn unix(time_ns: u64, to_unix_ns: i64) -> i64 {
    time_ns.cast_signed().saturating_add(to_unix_ns)
}

#[cfg(test)]
mod tests;
