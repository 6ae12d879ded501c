//! The rows that the collector writes.

use dwell_engine::{
    histogram::Histogram,
    layers::{PathSegment, join::Window},
};
use dwell_fleet::{
    Agent,
    wire::{Batch, IntervalReport, LossCause, SegmentReport},
};
use dwell_store::{
    BatchState, ClockRow, IntervalRow, Loss, LostRow, PathMethod, PathRow, Unfinished, Writing, Written,
};

use crate::{clocks::ClockSample, estimates::Estimate, hosts::Hosts, time::possible_unix};

/// The end of an interval in Unix time, and whether that is what the agent reported.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) end_ns: i64,
    pub(super) is_clamped: bool,
}

/// Batches that are known to be lost: why, and how many if that is known.
pub(super) type Losses = Vec<(Loss, Option<u64>)>;

/// Records that a batch has arrived, with measurements of a time if it has any, and what was lost before it or is reported as
/// lost by it. False if it was here before.
pub(super) fn write_batch(
    to: &mut Writing<'_>,
    agent: &Agent,
    batch: &Batch,
    measured: Option<(i64, i64)>,
    now_ns: i64,
    losses: &mut Losses,
) -> Written<bool> {
    let (host, run) = (agent.name.as_str(), agent.run.as_slice());
    let reported = batch.content.lost;
    let from = reported.map_or(batch.number, |lost| lost.from.min(batch.number));
    let BatchState::New { first, gap, since_ns } = to.batch(host, run, (from, batch.number), now_ns)? else {
        return Ok(false);
    };
    // It may have waited for long, and what it lacks begins where its last interval has ended.
    if let Some((since_ns, until_ns)) = measured.or(since_ns.map(|until_ns| (now_ns, until_ns))) {
        to.measured(host, run, (since_ns, until_ns.min(now_ns)))?;
    }
    if let Some((from, through)) = gap {
        let times = (since_ns, Some(now_ns));
        write_loss(to, agent, Loss::Gap, (from, Some(through)), times, now_ns, losses)?;
    }
    if let Some(lost) = reported {
        let why = match lost.why {
            LossCause::BufferFull => Some(Loss::BufferFull),
            LossCause::TooLong => Some(Loss::TooLong),
            LossCause::Rejected => Some(Loss::Rejected),
            // Another collector has it.
            LossCause::Moved => None,
        };
        let times = (Some(lost.since_unix_ns), Some(lost.until_unix_ns));
        if let Some(why) = why {
            write_loss(to, agent, why, (first, Some(batch.number)), times, now_ns, losses)?;
        }
    }
    if batch.content.is_last {
        to.end_run(host, run, now_ns)?;
    }
    Ok(true)
}

/// Records what an agent's hello shows to be lost here: what others have confirmed, up to `last` of its run, and the ends of
/// runs that took no leave before it. Returns the number of the last batch that will not come any more, and whether there were such
/// runs.
pub(super) fn write_hello(
    to: &mut Writing<'_>,
    agent: &Agent,
    last: u64,
    now_ns: i64,
    losses: &mut Losses,
) -> Written<(u64, bool)> {
    let (host, run) = (agent.name.as_str(), agent.run.as_slice());
    if agent.confirmed > last {
        to.batch(host, run, (last + 1, agent.confirmed), now_ns)?;
        let batches = (last + 1, Some(agent.confirmed));
        write_loss(to, agent, Loss::Elsewhere, batches, (None, Some(now_ns)), now_ns, losses)?;
    }
    let unfinished = if agent.is_past { Vec::new() } else { to.unfinished(host, run)? };
    // Each measured until the next one did.
    let begun = unfinished.iter().skip(1).map(|next| next.measured_ns.0).chain([now_ns]);
    for (Unfinished { run, last, measured_ns: (_, last_ns) }, begun_ns) in unfinished.iter().zip(begun) {
        to.end_run(host, run, now_ns)?;
        let killed = Agent { run: run.as_slice().try_into().unwrap_or_default(), ..agent.clone() };
        let times = (Some(*last_ns), Some(begun_ns));
        write_loss(to, &killed, Loss::Killed, (last + 1, None), times, now_ns, losses)?;
    }
    Ok((last.max(agent.confirmed), !unfinished.is_empty()))
}

fn write_loss(
    to: &mut Writing<'_>,
    agent: &Agent,
    why: Loss,
    batches: (u64, Option<u64>),
    (since_ns, until_ns): (Option<i64>, Option<i64>),
    now_ns: i64,
    losses: &mut Losses,
) -> Written<()> {
    losses.push((why, batches.1.map(|through| through - batches.0 + 1)));
    let possible = |time_ns| possible_unix(time_ns, now_ns);
    let since_ns = since_ns.map(possible);
    to.lost(&LostRow {
        time_ns: now_ns,
        host: agent.name.as_str(),
        run: &agent.run,
        batches,
        since_ns,
        // A clock may have been set back in between.
        until_ns: until_ns.map(|until_ns| possible(until_ns).max(since_ns.unwrap_or(i64::MIN))),
        why,
    })
}

/// Writes an interval. A hook that `may_name` does not admit is left out; returns how often that was so.
pub(super) fn write_interval(
    to: &mut Writing<'_>,
    host: &str,
    interval: &IntervalReport,
    times: Times,
    mut may_name: impl FnMut(&str) -> bool,
) -> Written<u64> {
    let mut omitted = 0;
    let row = |segment, histogram| IntervalRow {
        time_ns: times.end_ns,
        time_clamped: times.is_clamped,
        length_ns: interval.length_ns,
        host,
        flow: None,
        namespace: None,
        segment,
        resent: false,
        histogram,
        hooks: None,
    };
    for SegmentReport { first, again, hooks } in &interval.segments {
        let mut hooks = hooks.clone();
        for hook in [&mut hooks.from, &mut hooks.to] {
            omitted += u64::from(hook.take_if(|hook| !may_name(hook)).is_some());
        }
        let hooks = Some(&hooks);
        to.interval(&IntervalRow { hooks, ..row(first.segment, &first.histogram) })?;
        if again.count() > 0 {
            to.interval(&IntervalRow { hooks, resent: true, ..row(first.segment, again) })?;
        }
    }
    for flow in &interval.flows {
        for figures in &flow.segments {
            let row = row(figures.segment, &figures.histogram);
            to.interval(&IntervalRow { flow: Some(flow.ends), namespace: flow.namespace.as_deref(), ..row })?;
        }
    }
    Ok(omitted)
}

/// Writes half of the least round trip as the time in the network, where only one host reports a flow.
pub(super) fn write_estimate(to: &mut Writing<'_>, host: &str, estimate: &Estimate) -> Written<()> {
    let trip = &estimate.trip;
    let mut histogram = Histogram::default();
    histogram.record(trip.min_ns / 2);
    to.path(&PathRow {
        time_ns: estimate.time_ns,
        length_ns: estimate.length_ns,
        tx_host: (!trip.is_received).then_some(host),
        rx_host: trip.is_received.then_some(host),
        flow: Some(trip.ends),
        rx_flow: None,
        segment: PathSegment::Network,
        resent: false,
        method: PathMethod::Estimated,
        histogram: &histogram,
        bound_ns: None,
        clamped: 0,
        doubtful: 0,
    })
}

pub(super) fn write_sample(to: &mut Writing<'_>, sample: &ClockSample, time_ns: i64) -> Written<()> {
    to.clock(&ClockRow {
        time_ns,
        host: &sample.host,
        offset_ns: sample.offset_ns,
        bound_ns: sample.bound_ns,
        drift_ppb: sample.drift_ppb.map(|(ppb, _)| ppb),
        drift_bound_ppb: sample.drift_ppb.map(|(_, bound)| bound),
        round_trip_ns: sample.round_trip_ns,
        method: sample.method,
        stepped: sample.stepped,
    })
}

pub(super) fn write_window(
    to: &mut Writing<'_>,
    hosts: &Hosts,
    window: &Window,
    length_ns: u64,
    time_ns: i64,
) -> Written<()> {
    for (key, path) in &window.paths {
        for (segment, histogram) in PathSegment::ALL.into_iter().zip(&path.segments) {
            let between = segment.direction().is_none();
            to.path(&PathRow {
                time_ns,
                length_ns,
                tx_host: Some(hosts.name(key.tx_host)),
                rx_host: Some(hosts.name(key.rx_host)),
                flow: key.flow,
                rx_flow: key.rx_flow,
                segment,
                resent: key.resent,
                method: PathMethod::Matched,
                histogram,
                bound_ns: between.then_some(path.bound_ns),
                clamped: if between { path.clamped } else { 0 },
                doubtful: if between { path.doubtful } else { 0 },
            })?;
        }
    }
    Ok(())
}
