//! The flows of a capture.

use std::path::Path;

use dwell_engine::{
    filter::Filter,
    layers::Ends,
    measure::{Event, FlowChange},
    observe::Observation,
    replay::Intervals,
    response::{self, Record},
    roles::Role,
    rtt,
    top::{FlowKey, Table},
    units::nanos,
};
use dwell_records::Source;

use super::responses::response_of;
use crate::{
    cmd::top::{Args, shown::Screenful},
    exit::{Exit, Failure},
    source::{Capture, NoInput, interrupted},
    stop::Stop,
};

/// Reads a capture to its end, or until a signal arrives. Returns its flows, and the exit status of the run.
pub fn read(
    args: &Args,
    path: &Path,
    filter: &Filter,
    stop: &Stop,
) -> Result<(Screenful, Result<Exit, Failure>), Failure> {
    let mut shown = Screenful::new(args.settings(), filter.clone(), &args.names, Source::default())?;
    // Neither the standard input nor another pipe has anything left.
    shown.path = path.is_file().then(|| path.to_owned());
    let mut replay = Replay::new(args, filter);
    let mut capture = match Capture::open(path, stop, || true) {
        Ok(capture) => capture,
        Err(NoInput::Failed(error)) => return Err(error.into()),
        Err(NoInput::Stopped) => return Err(interrupted(path, 0)),
    };
    let read = capture.read(
        stop,
        |_| (),
        |packet| {
            replay.observe(packet, &mut shown);
            true
        },
    );
    replay.finish(&mut shown);
    let counters = replay.rtt.counters();
    shown.losses = capture.losses(&read, &counters);
    let exit = capture.verdict(read, &counters);
    Ok((shown, exit))
}

struct Replay {
    rtt: rtt::Tracker,
    response: response::Tracker,
    config: response::Config,
    /// `None` where the whole capture is one interval.
    intervals: Option<Intervals>,
    last_ns: Option<u64>,
}

impl Replay {
    fn new(args: &Args, filter: &Filter) -> Replay {
        let rtt = rtt::Config {
            tcp_auto: true,
            filter: filter.clone(),
            max_flows: args.max_flows,
            flow_events: true,
            ..rtt::Config::default()
        };
        let watch = response::Watch { filter: filter.clone(), max_flows: args.max_flows, ..response::Watch::default() };
        Replay {
            rtt: rtt::Tracker::new(&rtt),
            response: response::Tracker::new(&watch),
            config: watch.config,
            intervals: args.interval.map(|interval| Intervals::new(nanos(interval))),
            last_ns: None,
        }
    }

    fn observe(&mut self, packet: &Observation<'_>, shown: &mut Screenful) {
        let now_ns = packet.time_ns;
        if self.last_ns.is_none() {
            shown.end_interval(now_ns);
        }
        self.last_ns = self.last_ns.max(Some(now_ns));
        if let Some(end_ns) = self.intervals.as_mut().and_then(|intervals| intervals.advance(now_ns)) {
            shown.end_interval(end_ns);
        }
        shown.names.observe(packet);
        let (table, config) = (&mut shown.table, &self.config);
        self.response.sweep(now_ns, |record| respond(&record, config, now_ns, table));
        self.response.observe(packet, |record| respond(&record, config, now_ns, table));
        self.rtt.observe(packet, |event| measure(&event, table));
    }

    fn finish(&mut self, shown: &mut Screenful) {
        if let Some(last_ns) = self.last_ns {
            self.response.finish(last_ns, |record| respond(&record, &self.config, last_ns, &mut shown.table));
            self.rtt.finish(last_ns, |event| measure(&event, &mut shown.table));
            shown.end_interval(last_ns);
        }
        shown.end_capture();
    }
}

/// Takes round trips, and at the end of a flow what has passed since the last one.
fn measure(event: &Event, table: &mut Table) {
    match event {
        Event::Sample(sample) => table.sample(sample),
        Event::Flow(event) if matches!(event.change, FlowChange::Close(_)) => table.close(event),
        Event::Flow(_) => {}
    }
}

fn respond(record: &Record, config: &response::Config, now_ns: u64, table: &mut Table) {
    if let Some(response) = response_of(record, config) {
        let ends = Ends { src: record.src, dst: record.dst };
        table.response(now_ns, FlowKey { ends, protocol: record.protocol }, Role::Client, response);
    }
}
