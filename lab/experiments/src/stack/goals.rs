//! The goals of `dwell-lab stack`: segments add up, and agree with the application's own clock.

use dwell_engine::{
    histogram::Histogram,
    layers::{PathSegment, Segment, join},
};
use dwell_records::Latency;
use dwell_testbed::Nanos;

use super::{ApplicationLatency, Outcome, Scenario, paths::StoredPaths};
use crate::goal::Goal;

/// Largest relative difference between the sum of the segments' means and the mean end to end; it is due to rounding.
const SUM_TOLERANCE: f64 = 0.01;
/// Largest relative difference between dwell's end-to-end mean and the application's, which are over different bytes.
const CLOCK_TOLERANCE: f64 = 0.05;
/// A flow with fewer expected samples than this may have none.
const FEW_SAMPLES: u64 = 16;
/// Flows whose goals are printed even where they are met.
pub const PRINTED_FLOWS: usize = 4;

/// Judges a run in which one of `sample_bytes` bytes was stamped.
pub fn judge(scenario: Scenario, paths: &StoredPaths, outcome: &Outcome, sample_bytes: u32) -> Vec<Goal> {
    let Some(all) = paths.all.get(&(None, false)) else {
        return vec![Goal { what: "no byte was seen on both hosts".into(), holds: Some(false) }];
    };
    let mut goals = vec![adds_up(all)];
    if scenario.is_emulated() {
        goals.push(exceeds_link_delay(all, scenario.delay()));
        return goals;
    }
    for (_, flow) in &outcome.flows {
        goals.push(match paths.end_to_end(flow.port) {
            Some(whole) => agrees(&whole, flow),
            None => Goal {
                what: format!("flow to port {}: of {} bytes none was seen on both hosts", flow.port, flow.bytes),
                holds: Some(flow.bytes < FEW_SAMPLES * u64::from(sample_bytes)),
            },
        });
    }
    let mut number = 0;
    goals.retain(|goal| {
        number += 1;
        number <= 1 + PRINTED_FLOWS || goal.holds != Some(true)
    });
    goals
}

fn latency(ns: f64) -> String {
    Latency(ns as u64).to_string().trim().to_owned()
}

fn mean(histogram: &Histogram) -> f64 {
    histogram.mean_ns().unwrap_or(0) as f64
}

/// A segment that only some bytes pass counts with its sum over all bytes.
fn adds_up(path: &join::Path) -> Goal {
    let whole = path.segment(PathSegment::EndToEnd);
    let is_named = |segment: &&PathSegment| segment.is_addend() && segment.name() != Segment::TxUnexplained.name();
    let sum: u128 = PathSegment::ALL.iter().filter(is_named).map(|segment| path.segment(*segment).sum_ns()).sum();
    let sum = sum as f64 / whole.count().max(1) as f64;
    let error = sum / mean(whole) - 1.0;
    Goal {
        what: format!(
            "segments add up to {}, end to end is {} ({:+.2} %)",
            latency(sum),
            latency(mean(whole)),
            error * 100.0
        ),
        holds: Some(error.abs() <= SUM_TOLERANCE),
    }
}

/// The sender's clock is not the receiver's, so the application's clock cannot judge; but no byte passes the link in
/// less time than its delay.
fn exceeds_link_delay(path: &join::Path, delay: Nanos) -> Goal {
    let network = mean(path.segment(PathSegment::Network));
    Goal {
        what: format!(
            "network {} on average, of which the link takes {}; the application's clock cannot judge, \
             as the sender's is the guest's",
            latency(network),
            latency(delay.0 as f64)
        ),
        holds: Some(network + path.bound_ns as f64 >= delay.0 as f64),
    }
}

/// A byte is stamped between the start and the end of the call that writes it.
fn agrees(whole: &Histogram, flow: &ApplicationLatency) -> Goal {
    let whole = mean(whole);
    let (Some(least), Some(most)) = (flow.least_ns, flow.most_ns) else {
        return Goal { what: format!("flow to port {}: nothing was read", flow.port), holds: Some(false) };
    };
    let (low, high) = (least.0 as f64 * (1.0 - CLOCK_TOLERANCE), most.0 as f64 * (1.0 + CLOCK_TOLERANCE));
    Goal {
        what: format!(
            "flow to port {}: end to end {} on average, by the application's clock {} to {}",
            flow.port,
            latency(whole),
            latency(least.0 as f64),
            latency(most.0 as f64)
        ),
        holds: Some((low..=high).contains(&whole)),
    }
}
