//! The trace of a synthetic radio link: its rate walks at random, and now and then it is gone.

use dwell_testbed::Trace;

/// How long the trace is before it repeats.
const LENGTH_MS: u64 = 60_000;
/// The rate changes at this distance.
const STEP_MS: u64 = 20;
/// The least and greatest rate.
const RATES_BPS: (f64, f64) = (1e6, 24e6);
/// The mean rate, to which it is drawn back.
const MEAN_BPS: f64 = 8e6;
/// The spread of a step, and the share of the way back to the mean, both of the rate's logarithm.
const SPREAD: f64 = 0.18;
const RETURN: f64 = 0.03;
/// The chance of an outage in a step, and its length.
const OUTAGE: f64 = 0.002;
const OUTAGE_MS: u64 = 300;
/// What an opportunity of a trace delivers.
const OPPORTUNITY_BITS: f64 = 1504.0 * 8.0;

/// Makes the trace, always the same.
pub(super) fn trace() -> Trace {
    let mut random = Random(1);
    let mut rate = MEAN_BPS;
    let mut outage_until = 0;
    let mut credit = 0.0;
    let mut times = Vec::new();
    for ms in 1..=LENGTH_MS {
        if ms % STEP_MS == 0 {
            let noise = (0..3).map(|_| random.next() * 2.0 - 1.0).sum::<f64>();
            let back = RETURN * (MEAN_BPS / rate).ln();
            rate = (rate * (back + SPREAD * noise).exp()).clamp(RATES_BPS.0, RATES_BPS.1);
            if random.next() < OUTAGE {
                outage_until = ms + OUTAGE_MS;
            }
        }
        if ms >= outage_until {
            credit += rate / 1000.0;
        }
        while credit >= OPPORTUNITY_BITS {
            credit -= OPPORTUNITY_BITS;
            times.push(ms);
        }
    }
    Trace::try_from(times).expect("it has opportunities, in their order")
}

/// A linear congruential generator (Knuth's MMIX): the trace must not change with a library.
struct Random(u64);

impl Random {
    /// Returns a number from 0 to below 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_varies_around_its_mean_and_there_are_outages() {
        let times: Vec<u64> = trace().into();
        let mean = times.len() as f64 * OPPORTUNITY_BITS / LENGTH_MS as f64 * 1000.0;
        assert!((5e6..12e6).contains(&mean), "{mean}");
        let second = |n: u64| times.iter().filter(|&&ms| ms / 1000 == n).count() as f64;
        let rates: Vec<f64> = (0..LENGTH_MS / 1000).map(second).collect();
        let (least, most) =
            rates.iter().fold((f64::MAX, 0_f64), |(least, most), &rate| (least.min(rate), most.max(rate)));
        assert!(most > 4.0 * least, "{least} {most}");
        let gap = times.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(gap >= Some(OUTAGE_MS), "{gap:?}");
    }
}
