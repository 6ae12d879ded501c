//! Bytes have arrived and the local application has not read them.

use super::*;

/// Shorter waits are those of any reader that sleeps until data arrives.
const MIN_WAIT_NS: f64 = 2e6;

pub(super) const RULE: Rule = Rule {
    name: "slow-reader",
    sentence: "The local application reads too slowly: bytes waited for it",
    parts: &[Part::Reader],
    assess,
    remedies: application_remedies,
};

fn assess(evidence: &Evidence) -> Assessment {
    let waited = evidence.sums.times.share(Part::Reader);
    let stamped = evidence.layers.and_then(|layers| layers.application_ns).map(|ns| ns as f64);
    let counted = evidence.receive_buffer.mean_ns().map(|ns| ns as f64);
    // Nobody may have read at all.
    let mean = stamped.or(counted).unwrap_or(f64::INFINITY);
    let mut facts = vec![
        share("bytes were there to read", Some(waited), "sock_diag rqueue"),
        time("mean wait to be read", counted, "byte counts"),
    ];
    if stamped.is_some() {
        facts.push(time("mean wait of stamped bytes to be read", stamped, "byte stamps"));
    }
    let stops = &evidence.sums.reading_stops;
    facts.extend(stops.mean_ns().map(|ns| time("mean of longer times in which nothing was read", Some(ns), "polls")));
    facts.extend(process_facts(evidence));
    // Most bytes may have been read at once, and some were waited for.
    let stopped = stops.sum_ns as f64 / evidence.sums.times.total().max(1.0);
    let stops_long = stopped >= MIN_SHARE && reaches_by_polls(evidence, stops.mean_ns(), MIN_WAIT_NS);
    let is_long = match stamped {
        // However far apart polls are.
        Some(_) => mean >= MIN_WAIT_NS,
        None => reaches_by_polls(evidence, Some(mean), MIN_WAIT_NS),
    };
    Assessment { share: waited, holds: waited >= MIN_SHARE && (is_long || stops_long), facts }
}
