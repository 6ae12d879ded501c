//! Interval by interval.

use std::{
    collections::hash_map::RandomState,
    fs,
    hash::BuildHasher,
    thread,
    time::{Duration, Instant},
};

use dwell_engine::{
    histogram::Histogram,
    layers::{Counters, Layer},
};
use dwell_probes::stack::{self, Devices, Options, Probe, Profile, Taken};
use dwell_records::{Output, Sink, Source, Stack, StackHop, StackRow, counted, entry};

use super::{Args, Format, budget::Keeper, places::Places};
use crate::{
    args::nanos,
    exit::{Exit, Failure},
    source::{clock, monotonic_ns},
    stop::Stop,
    tell::tell,
};

/// Between two looks whether to end.
const POLL: Duration = Duration::from_millis(20);

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let namespace = stack::own_namespace().map_err(|error| Failure::new(Exit::Host, error))?;
    let config = args.config(namespace, RandomState::new().hash_one(std::process::id()))?;
    let profile = Profile::find(&args.hooks).expect("clap takes names of profiles only");
    let format = match args.format {
        Format::Text => "text",
        Format::Jsonl => "jsonl",
    };
    let format = entry(format).expect("a format of this name");
    let source = Source {
        clock: clock()?,
        ..Source::default()
    };
    let output = Output::new((format.new)(), Sink::stdout()?, source);
    let stop = Stop::listen(args.duration)?;
    let mut probe = Probe::load(&Options {
        config: config.clone(),
        max_flows: args.flows.then_some(args.max_flows),
        processes: args.pid.clone(),
        cgroup: args.cgroup.clone(),
        profile,
    })?;
    let devices = args.devices.then(|| Devices::load(&config)).transpose()?;
    probe.attach()?;
    let mut live = Live {
        host: host_name(),
        sample_bytes: args.sample_bytes,
        keeper: args
            .cpu_budget
            .map(|share| Keeper::new(share, args.sample_bytes)),
        again: args.include_retransmissions,
        probe,
        devices,
        places: Places::new(namespace),
        output,
        begun: Instant::now(),
    };
    if let Some(devices) = &mut live.devices {
        devices.attach()?;
    }
    let ended = live.watch(args.interval, &stop);
    live.finish(ended)
}

fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".into(), |name| name.trim().to_owned())
}

struct Live {
    host: String,
    sample_bytes: u32,
    keeper: Option<Keeper>,
    again: bool,
    probe: Probe,
    devices: Option<Devices>,
    places: Places,
    output: Output,
    /// When the interval began.
    begun: Instant,
}

impl Live {
    fn watch(&mut self, interval: Duration, stop: &Stop) -> Result<(), Failure> {
        while !stop.is_asked() {
            let left = interval.saturating_sub(self.begun.elapsed());
            thread::sleep(POLL.min(left));
            self.tell_passages()?;
            if let Some(keeper) = &mut self.keeper {
                keeper.look(&mut self.probe)?;
            }
            if self.begun.elapsed() >= interval {
                self.end_interval()?;
            }
        }
        Ok(())
    }

    fn tell_passages(&mut self) -> Result<(), Failure> {
        let mut told = Ok(());
        let (output, host) = (&mut self.output, &self.host);
        self.probe.drain(|passage| {
            if told.is_ok() {
                told = output.passage(host, &passage);
            }
        })?;
        told?;
        Ok(self.output.flush()?)
    }

    fn end_interval(&mut self) -> Result<(), Failure> {
        self.tell_passages()?;
        let end_ns = monotonic_ns()?;
        let length = self.begun.elapsed();
        self.begun = Instant::now();
        self.output.source_mut().clock = clock()?;
        let taken = self.probe.take()?;
        let again = if self.again {
            self.rows(&taken, |taken| taken.again.clone())
        } else {
            Vec::new()
        };
        let rows = self.rows(&taken, |taken| taken.histogram.clone());
        let flows = self.probe.take_flows()?.into_iter();
        let flows: Vec<_> = flows
            .map(|(ends, taken)| (ends, self.rows(&taken, |taken| taken.histogram.clone())))
            .collect();
        let counters = self.probe.counters()?;
        let hops = self.take_hops()?;
        self.output.stack(&Stack {
            end_ns,
            length_ns: nanos(length),
            host: &self.host,
            sample_bytes: self.sample_bytes << self.keeper.as_ref().map_or(0, Keeper::thin),
            rows: &rows,
            again: &again,
            flows: &flows,
            hops: &hops,
            counters: &counters,
        })?;
        self.output.flush()?;
        Ok(())
    }

    fn take_hops(&mut self) -> Result<Vec<StackHop>, Failure> {
        let Some(devices) = &mut self.devices else {
            return Ok(Vec::new());
        };
        let taken = devices.take()?;
        let hops = taken.into_iter();
        hops.map(|time| self.places.hop(devices, time)).collect()
    }

    fn rows(&self, taken: &[Taken], of: impl Fn(&Taken) -> Histogram) -> Vec<StackRow> {
        let hooks = self.probe.hooks();
        let missing = stack::missing(hooks);
        let rows = taken.iter().map(|taken| {
            let (from, to) = stack::ends(hooks, taken.segment);
            StackRow {
                segment: taken.segment,
                histogram: of(taken),
                hook_from: stack::names(hooks, from),
                hook_to: stack::names(hooks, to),
                missing: missing
                    .iter()
                    .find(|(segment, _)| *segment == taken.segment)
                    .map(|(_, layer)| *layer),
            }
        });
        rows.collect()
    }

    /// Detaches, and tells what is left to tell, whatever ended the run.
    fn finish(mut self, ended: Result<(), Failure>) -> Result<Exit, Failure> {
        self.probe.detach();
        if let Some(devices) = &mut self.devices {
            devices.detach();
        }
        if matches!(&ended, Err(failure) if failure.exit == Exit::Done) {
            return ended.map(|()| Exit::Done);
        }
        let told = self.end_interval();
        let counters = self.probe.counters()?;
        if !matches!(&told, Err(failure) if failure.exit == Exit::Done) {
            describe(&counters).into_iter().for_each(tell);
            if let Some(devices) = &mut self.devices {
                let untold = devices.untold()?;
                (untold > 0).then(|| counted(untold, "hops")).into_iter().for_each(|hops| {
                    tell(format!(
                        "{hops} from device to device not told: there are more pairs of devices than are kept apart"
                    ));
                });
            }
            self.keeper.iter().filter_map(Keeper::rests).for_each(tell);
        }
        ended.and(told).map(|()| Exit::Done)
    }
}

/// What is in no segment, and why: a line for each reason that there is.
fn describe(counters: &Counters) -> Vec<String> {
    let reasons = [
        (
            counters.tx_unbegun,
            "sent of which the first stamp is missing, left out: written before the run began",
        ),
        (
            counters.rx_unbegun,
            "read of which the first stamps are missing, left out: there before the run began; \
             where addresses are translated (NAT), all of them",
        ),
        (
            counters.tx_again,
            "that TCP had sent again before they reached the driver, left out \
             (--include-retransmissions tells them apart)",
        ),
        (
            counters.rx_again,
            "that came in again as this host had dropped them, left out \
             (--include-retransmissions tells them apart)",
        ),
        (
            counters.tx_displaced,
            "that lost their place to others before they reached the driver, left out: take a \
             larger --sample-bytes",
        ),
        (
            counters.rx_displaced,
            "that lost their place to others before they were read, left out: take a larger \
             --sample-bytes",
        ),
        (
            counters.passages_lost,
            "not told one by one, as there were too many: take a larger --sample-bytes",
        ),
        (
            counters.flows_untold,
            "counted in no flow, as there are more flows than --max-flows",
        ),
    ];
    let reasons = reasons.map(|(bytes, what)| (bytes, what.to_owned()));
    let missed = Layer::ALL.map(|layer| {
        let what = format!(
            "without a stamp at {}, left out of the segments there",
            layer.name()
        );
        (counters.missed(layer), what)
    });
    let mut lines: Vec<_> = reasons
        .into_iter()
        .chain(missed)
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, what)| format!("{} {what}", counted(bytes, "bytes")))
        .collect();
    if counters.rx_unwalked > 0 {
        lines.push(format!(
            "{} more was read at once than is looked at, the rest left out: take a larger \
             --sample-bytes",
            counted(counters.rx_unwalked, "times")
        ));
    }
    lines
}
