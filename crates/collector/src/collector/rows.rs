//! The rows that the collector writes.

use dwell_engine::{
    histogram::Histogram,
    layers::{PathSegment, join::Window},
};
use dwell_fleet::wire::{IntervalReport, SegmentReport};
use dwell_store::{ClockRow, IntervalRow, PathMethod, PathRow, Writing, Written};

use crate::{clocks::ClockSample, estimates::Estimate, hosts::Hosts};

/// The end of an interval in Unix time, and whether that is what the agent reported.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) end_ns: i64,
    pub(super) is_clamped: bool,
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
            to.interval(&IntervalRow { flow: Some(flow.ends), ..row(figures.segment, &figures.histogram) })?;
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
        leg: PathSegment::Network,
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
        for (leg, histogram) in PathSegment::ALL.into_iter().zip(&path.segments) {
            let between = leg.direction().is_none();
            to.path(&PathRow {
                time_ns,
                length_ns,
                tx_host: Some(hosts.name(key.tx_host)),
                rx_host: Some(hosts.name(key.rx_host)),
                flow: key.flow,
                leg,
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
