//! How what agents send is stored.

use dwell_engine::layers::join::HostTrace;
use dwell_fleet::{
    Agent,
    wire::{self, Batch, ByteTraces, Content, Version},
};
use dwell_store::{Writing, Written};

use super::{
    Aside, Collector,
    gray::Gray,
    halves,
    left_out::LeftOut,
    rows::{Losses, Times, write_batch, write_interval, write_sample},
    unix,
};
use crate::{
    Error,
    clocks::{ClockSample, Clocks},
    estimates::Estimate,
    hosts::{CounterValue, Hosts},
    time::{Time, possible, possible_unix},
};

/// Byte traces in one pending row of the store, at most 200 bytes each.
const MAX_TRACES_PER_ROW: usize = 1 << 14;

impl Collector {
    /// Stores batches that are not stored yet, and clock samples. When it returns, everything is on disk.
    pub fn store(&mut self, batches: &[(Agent, Batch)], samples: &[ClockSample]) -> Result<(), Error> {
        let samples = match self.gate.is_full() {
            true => {
                self.left_out.clock_samples += samples.len() as u64;
                &[]
            }
            false => samples,
        };
        if batches.is_empty() && samples.is_empty() {
            return Ok(());
        }
        let (now_ns, to_unix_ns) = (self.time.now_ns(), self.time.to_unix_ns());
        let Collector { store, time, clocks, hosts, gray, .. } = self;
        let intake =
            Intake { time, clocks, hosts, gray: gray.as_mut(), now_ns, to_unix_ns, taken: IntakeResult::default() };
        let taken = store.write(|to| {
            for sample in samples {
                write_sample(to, sample, unix(intake.time.at(sample.at_ns), to_unix_ns))?;
            }
            intake.take(to, batches)
        })?;
        self.stored += batches.len() as u64;
        self.clockless += taken.clockless;
        self.edgeless += taken.edgeless;
        self.left_out.add(taken.left_out);
        taken.losses.iter().for_each(|(host, losses)| self.losses.add(host, losses));
        taken.estimates.into_iter().for_each(|estimate| self.estimates.push(estimate));
        for (host, (arrived_ns, traces, edges)) in &taken.asides {
            halves(*host, *arrived_ns, traces, edges).for_each(|half| self.joiner.add(half));
        }
        Ok(())
    }
}

/// The time of which a batch has measurements, in Unix time.
fn measured(batch: &Batch, ends: &[(Option<u64>, Times)]) -> Option<(i64, i64)> {
    let begins = batch.content.intervals.iter().zip(ends).map(|(interval, (_, times))| {
        let length_ns = i64::try_from(interval.length_ns).unwrap_or(i64::MAX);
        times.end_ns.saturating_sub(length_ns)
    });
    Some((begins.min()?, ends.iter().map(|(_, times)| times.end_ns).max()?))
}

/// What one transaction takes in, which counts once that is on disk.
#[derive(Default)]
struct IntakeResult<'a> {
    /// Byte traces by host.
    asides: Vec<(u32, Aside)>,
    estimates: Vec<Estimate>,
    losses: Vec<(&'a str, Losses)>,
    left_out: LeftOut,
    clockless: u64,
    edgeless: u64,
}

/// Takes in batches at one moment.
struct Intake<'a> {
    time: &'a Time,
    clocks: &'a Clocks,
    hosts: &'a mut Hosts,
    gray: Option<&'a mut Gray>,
    now_ns: u64,
    to_unix_ns: i64,
    taken: IntakeResult<'a>,
}

impl<'a> Intake<'a> {
    fn now_unix_ns(&self) -> i64 {
        unix(self.now_ns, self.to_unix_ns)
    }

    fn take(mut self, to: &mut Writing<'_>, batches: &'a [(Agent, Batch)]) -> Written<IntakeResult<'a>> {
        let now_unix_ns = self.now_unix_ns();
        for (agent, batch) in batches {
            let name = agent.name.as_str();
            let ends = self.ends(name, batch);
            let measured = measured(batch, &ends);
            let mut lost = Vec::new();
            let is_new = write_batch(to, agent, batch, measured, now_unix_ns, &mut lost)?;
            if let (Some((since_ns, _)), false) = (measured, agent.is_past)
                && let Some(found_ns) = self.hosts.take_awaited(name)
            {
                to.shorten_killed(name, found_ns, since_ns)?;
            }
            if !lost.is_empty() {
                self.taken.losses.push((name, lost));
            }
            if is_new {
                let host = self.hosts.number(name);
                self.take_intervals(to, (host, name), &batch.content, &ends)?;
                self.take_counters(to, (host, name), &batch.content)?;
                self.take_traces(to, (host, name), &batch.content.traces)?;
            }
        }
        Ok(self.taken)
    }

    /// The end of each interval on the collector's time, where the agent's clock is known, and as it is stored.
    fn ends(&self, name: &str, batch: &Batch) -> Vec<(Option<u64>, Times)> {
        let now_unix_ns = self.now_unix_ns();
        let ends = batch.content.intervals.iter().map(|interval| {
            let ended = self.clocks.convert(name, interval.end_ns).map(|ended| self.time.at(ended.ns));
            let reported_ns = ended.map_or(interval.end_unix_ns, |ended| unix(ended, self.to_unix_ns));
            let end_ns = possible_unix(reported_ns, now_unix_ns);
            (ended, Times { end_ns, is_clamped: end_ns != reported_ns })
        });
        ends.collect()
    }

    fn take_intervals(
        &mut self,
        to: &mut Writing<'_>,
        (host, name): (u32, &str),
        content: &Content,
        ends: &[(Option<u64>, Times)],
    ) -> Written<()> {
        let Intake { hosts, gray, taken, now_ns, .. } = self;
        for (interval, (ended, times)) in content.intervals.iter().zip(ends) {
            taken.left_out.times_clamped += u64::from(times.is_clamped);
            let may_name = |hook: &str| hosts.note_hook(host, hook);
            taken.left_out.hooks += write_interval(to, name, interval, *times, may_name)?;
            if let (Some(gray), Some(ended_ns)) = (gray.as_deref_mut(), *ended) {
                gray.add_host((host, name), ended_ns.min(*now_ns), interval);
            }
            taken.estimates.extend(interval.rtts.iter().map(|trip| Estimate {
                host,
                trip: *trip,
                end_ns: ended.unwrap_or(*now_ns).min(*now_ns),
                time_ns: times.end_ns,
                length_ns: interval.length_ns,
            }));
        }
        Ok(())
    }

    fn take_counters(&mut self, to: &mut Writing<'_>, (host, name): (u32, &str), content: &Content) -> Written<()> {
        let now_unix_ns = self.now_unix_ns();
        for (counter, value) in &content.counters {
            match self.hosts.note_counter(host, counter, *value) {
                CounterValue::Changed => to.counter(now_unix_ns, Some(name), counter, *value)?,
                CounterValue::Same => {}
                CounterValue::Excess => self.taken.left_out.counters += 1,
            }
        }
        Ok(())
    }

    /// Puts byte traces aside until their other half comes.
    fn take_traces(&mut self, to: &mut Writing<'_>, (host, name): (u32, &str), traces: &ByteTraces) -> Written<()> {
        let mut known = Vec::new();
        for trace in &traces.0 {
            let Some(edge_ns) = HostTrace::edge_of(trace) else {
                self.taken.edgeless += 1;
                continue;
            };
            let Some(edge) = self.clocks.convert(name, edge_ns) else {
                self.taken.clockless += 1;
                continue;
            };
            let edge_ns = self.time.at(edge.ns);
            if possible(edge_ns, self.now_ns) != edge_ns {
                self.taken.left_out.misdated += 1;
                continue;
            }
            known.push((*trace, (edge_ns, edge.bound_ns)));
        }
        for some in known.chunks(MAX_TRACES_PER_ROW) {
            let (some, edges) = some.iter().copied().unzip();
            let aside: Aside = (self.now_ns, ByteTraces(some), edges);
            let body = wire::encode(Version::NEWEST, &aside).expect("so few fit into a frame");
            to.put_aside(name, self.now_ns, &body)?;
            self.taken.asides.push((host, aside));
        }
        Ok(())
    }
}
