//! Goals of the comparison of round trips.

use dwell_testbed::Nanos;

use super::{
    figures::Row,
    readers::{DWELL, DWELL_HANDSHAKES, DWELL_SEQ, DWELL_TIMESTAMP, TCPTRACE, TSHARK, TSHARK_ACK},
    samples::Agreement,
    verb::{LIVE, Reading},
};
use crate::{
    demo::Scope,
    goal::Goal,
    print::{millis_to, ms, percent, ratio},
};

/// The most by which a median may differ from the emulated truth, in either direction: what the hosts' kernels add.
const MAX_P50_ERROR: Nanos = Nanos::from_micros(250);
/// The most by which the medians of `tcp-seq` and of tshark, which have the same definition without loss, may differ.
const MAX_P50_FROM_TSHARK: Nanos = Nanos::from_micros(50);
/// The most by which the 99th percentile of `tcp-seq` may exceed that of tshark, as a ratio.
const MAX_P99_TO_TSHARK: f64 = 1.1;
/// The number of samples of `tcp-seq` as a ratio to those of tcptrace, which drops ambiguous ones too.
const SAMPLES_TO_TCPTRACE: [f64; 2] = [0.8, 1.1];
/// The least share of samples that a live run and a replay have in common, and the most by which they may differ at p99.
const MIN_PAIRED: f64 = 0.99;
const MAX_LIVE_DIFFERENCE: Nanos = Nanos::from_micros(100);
/// The most that a reading by `dwell rtt` may take of tshark's time, and of its memory.
const MAX_WALL_TO_TSHARK: f64 = 0.5;
const MAX_MEMORY_TO_TSHARK: f64 = 0.25;

/// The true round trips of a part of the path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Truth {
    /// The configured delays: no round trip is shorter.
    pub(super) least: Nanos,
    /// With the median error of the emulator.
    pub(super) usual: Nanos,
}

/// The figures of each program and part of the path, each with the truth.
pub(super) fn judge_round_trips(when: &str, rows: &[(Row, Truth)]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let medians = [LIVE, DWELL, DWELL_TIMESTAMP, DWELL_SEQ];
    for (row, truth) in rows {
        let name = format!("{when}: {}, {}", row.tool, row.scope.name());
        if medians.contains(&row.tool.as_str()) {
            let error = Row::error_ns(row.p50, truth.usual);
            goals.push(Goal {
                holds: error.map(|error| error.abs() <= MAX_P50_ERROR.0 as f64),
                what: format!(
                    "{name}: p50 differs by {} ms from the truth, wanted: at most {}",
                    millis_to(3, error),
                    millis_to(3, Some(MAX_P50_ERROR.0 as f64))
                ),
            });
        }
        if medians.contains(&row.tool.as_str()) || row.tool == DWELL_HANDSHAKES {
            goals.push(Goal {
                holds: row.min.map(|min| min >= truth.least),
                what: format!(
                    "{name}: the shortest sample has {} ms, wanted: no less than the path's {}",
                    ms(row.min),
                    ms(Some(truth.least))
                ),
            });
        }
    }
    for scope in Scope::ALL {
        let row = |tool: &str| rows.iter().map(|(row, _)| row).find(|row| row.scope == scope && row.tool == tool);
        if let Some(own) = row(DWELL_SEQ) {
            goals.extend(against_others(when, own, row(TSHARK_ACK), row(TCPTRACE)));
        }
    }
    goals
}

fn against_others(when: &str, own: &Row, tshark: Option<&Row>, tcptrace: Option<&Row>) -> [Goal; 3] {
    let name = format!("{when}: {}, {}", own.tool, own.scope.name());
    let p50 = tshark.and_then(|tshark| Row::error_ns(own.p50, tshark.p50?));
    let p99 = tshark.and_then(|tshark| Some(own.p99?.0 as f64 / tshark.p99?.0 as f64));
    let samples = tcptrace.filter(|row| row.samples > 0).map(|row| own.samples as f64 / row.samples as f64);
    let [least, most] = SAMPLES_TO_TCPTRACE;
    [
        Goal {
            holds: p50.map(|difference| difference.abs() <= MAX_P50_FROM_TSHARK.0 as f64),
            what: format!(
                "{name}: p50 differs by {} ms from tshark's, wanted: at most {}",
                millis_to(3, p50),
                ms(Some(MAX_P50_FROM_TSHARK))
            ),
        },
        Goal {
            holds: p99.map(|p99| p99 <= MAX_P99_TO_TSHARK),
            what: format!("{name}: p99 is {} of tshark's, wanted: at most {MAX_P99_TO_TSHARK}", ratio(p99)),
        },
        Goal {
            holds: samples.map(|samples| (least..=most).contains(&samples)),
            what: format!("{name}: {} as many samples as tcptrace, wanted: {least} to {most}", ratio(samples)),
        },
    ]
}

/// A live run and a replay of the same packets.
pub(super) fn judge_agreement(when: &str, agreement: &Agreement) -> [Goal; 2] {
    let (paired, difference) = (agreement.paired(), agreement.difference_ns(0.99));
    [
        Goal {
            holds: paired.map(|paired| paired >= MIN_PAIRED),
            what: format!(
                "{when}: {} % of samples are in live run and replay, wanted: at least {} %",
                percent(paired),
                percent(Some(MIN_PAIRED))
            ),
        },
        Goal {
            holds: difference.map(|ns| ns <= MAX_LIVE_DIFFERENCE.0),
            what: format!(
                "{when}: live run and replay differ by {} ms at p99, wanted: at most {}",
                millis_to(3, difference.map(|ns| ns as f64)),
                ms(Some(MAX_LIVE_DIFFERENCE))
            ),
        },
    ]
}

/// The costs of a reading of the capture, by program.
pub(super) fn judge_costs(when: &str, costs: &[(&'static str, Reading)]) -> [Goal; 2] {
    let of = |tool: &str| costs.iter().find(|(name, _)| *name == tool).map(|(_, reading)| *reading);
    let both = of(DWELL).zip(of(TSHARK));
    let wall = both.map(|(own, tshark)| own.wall.as_secs_f64() / tshark.wall.as_secs_f64());
    let memory = both.map(|(own, tshark)| own.memory_bytes as f64 / tshark.memory_bytes as f64);
    let goal = |what: &str, found: Option<f64>, most: f64| Goal {
        holds: found.map(|found| found <= most),
        what: format!("{when}: dwell rtt takes {} of tshark's {what}, wanted: at most {most}", ratio(found)),
    };
    [goal("time", wall, MAX_WALL_TO_TSHARK), goal("memory", memory, MAX_MEMORY_TO_TSHARK)]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dwell_testbed::Side;

    use super::*;

    const TRUTH: Truth = Truth { least: Nanos::from_millis(5), usual: Nanos::from_micros(5_050) };

    fn row(tool: &str, micros: &[u64]) -> (Row, Truth) {
        let all = micros.iter().map(|micros| Nanos::from_micros(*micros)).collect();
        (Row::of(tool, Scope::Side(Side::Server), all), TRUTH)
    }

    fn missed(goals: &[Goal]) -> Vec<&str> {
        goals.iter().filter(|goal| goal.holds == Some(false)).map(|goal| goal.what.as_str()).collect()
    }

    #[test]
    fn a_median_may_lie_neither_below_nor_above_the_truth() {
        assert_eq!(missed(&judge_round_trips("x", &[row(DWELL, &[5_010, 5_100])])), [] as [&str; 0]);
        for micros in [4_700, 5_400] {
            let goals = judge_round_trips("x", &[row(DWELL, &[micros])]);
            assert!(missed(&goals)[0].contains("p50 differs"), "{goals:?}");
        }
    }

    #[test]
    fn no_sample_may_be_shorter_than_the_path_and_other_programs_are_not_judged() {
        let goals = judge_round_trips("x", &[row(DWELL_HANDSHAKES, &[4_999, 5_050]), row(TSHARK_ACK, &[400])]);
        assert_eq!(missed(&goals).len(), 1);
        assert!(missed(&goals)[0].contains("4.999 ms, wanted: no less than the path's 5.000"));
    }

    #[test]
    fn what_is_not_installed_leaves_goals_undecided() {
        let alone = judge_round_trips("x", &[row(DWELL_SEQ, &[5_050])]);
        assert_eq!(alone.iter().filter(|goal| goal.holds.is_none()).count(), 3);
        let all = [row(DWELL_SEQ, &[5_050]), row(TSHARK_ACK, &[5_120]), row(TCPTRACE, &[5_000; 2])];
        let goals = judge_round_trips("x", &all);
        let words: Vec<_> = missed(&goals).iter().map(|what| what.split(": ").nth(2).unwrap_or_default()).collect();
        assert_eq!(
            words,
            ["p50 differs by -0.070 ms from tshark's, wanted", "0.50 as many samples as tcptrace, wanted"]
        );
    }

    #[test]
    fn costs_are_ratios_to_tshark() {
        let reading = |ms, memory_bytes| Reading { wall: Duration::from_millis(ms), cpu: Duration::ZERO, memory_bytes };
        let goals = judge_costs("x", &[(DWELL, reading(10, 50)), (TSHARK, reading(100, 100))]);
        assert_eq!(goals.map(|goal| goal.holds), [Some(true), Some(false)]);
        assert_eq!(judge_costs("x", &[(DWELL, reading(10, 50))]).map(|goal| goal.holds), [None; 2]);
    }
}
