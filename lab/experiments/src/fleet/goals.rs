//! Goals of a collector with many agents.

use std::time::Duration;

use super::Outcome;
use crate::goal::Goal;

/// Processors that a collector may use, on average.
const MAX_CORES: f64 = 1.0;
/// Resident memory of a collector at most.
const MAX_MEMORY_BYTES: u64 = 1 << 30;
/// How long after an interval has ended its last row may come.
const MAX_DELAY: Duration = Duration::from_secs(15);
/// The same while the collector is killed, or strangers hold connections.
const MAX_DELAY_WITH_FAULTS: Duration = Duration::from_secs(30);

/// Judges a run.
pub(super) fn judge(outcome: &Outcome) -> Vec<Goal> {
    let Outcome { sent, seen, delays, load, .. } = outcome;
    let has_faults = load.kills + load.strangers > 0;
    let max_delay = match (has_faults, load.collectors) {
        (false, _) => MAX_DELAY,
        (true, 1) => MAX_DELAY_WITH_FAULTS,
        // A batch that one of several may have stored waits for it.
        (true, _) => MAX_DELAY_WITH_FAULTS + outcome.down.last().copied().unwrap_or_default(),
    };
    let unstored = sent.left + sent.dropped + sent.rejected;
    let complete = (delays.len() == sent.intervals()).then(|| delays.last()).flatten();
    let mut goals = vec![
        Goal::decided(
            (unstored, seen.missing, seen.lost) == (0, 0, 0),
            format!(
                "{unstored} batches are not acknowledged, {} of {} rows are not in the store, and {} losses are noted; \
                 wanted: none",
                seen.missing,
                sent.rows(),
                seen.lost
            ),
        ),
        Goal::decided(
            (seen.doubled, seen.foreign) == (0, 0),
            format!("{} rows are there twice, and {} that nobody sent; wanted: none", seen.doubled, seen.foreign),
        ),
        Goal::decided(
            complete.is_some_and(|worst| *worst <= max_delay),
            match complete {
                Some(worst) => format!(
                    "the slowest interval is in the store {:.1} s after its end, wanted: at most {} s",
                    worst.as_secs_f64(),
                    max_delay.as_secs()
                ),
                None => format!(
                    "{} of {} intervals were not seen in the store, wanted: all within {} s",
                    sent.intervals() - delays.len(),
                    sent.intervals(),
                    max_delay.as_secs()
                ),
            },
        ),
        Goal::decided(
            outcome.memory_bytes[2] <= MAX_MEMORY_BYTES,
            format!(
                "the collector has at most {:.0} MiB of memory, wanted: at most {} MiB",
                outcome.memory_bytes[2] as f64 / f64::from(1 << 20),
                MAX_MEMORY_BYTES >> 20
            ),
        ),
        Goal::decided(
            seen.clocks == sent.reported.len() as u64,
            format!("the clocks of {} of {} agents were compared, wanted: all", seen.clocks, sent.reported.len()),
        ),
    ];
    if !has_faults {
        goals.push(Goal::decided(
            outcome.cores() < MAX_CORES,
            format!("the collector uses {:.2} processors, wanted: less than {MAX_CORES:.0}", outcome.cores()),
        ));
    }
    goals
}
