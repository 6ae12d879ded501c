//! Where errors come from: the steps between latency and estimate one by one, and what each heuristic brings.

use std::collections::HashMap;

use dwell_engine::stats::mean;
use serde::Serialize;

use super::{
    compare::{Compared, Comparison, Errors, Truth},
    pairs::{Pair, Pairs},
};

/// Of the true latency: a longer gap between requests parts two batches.
const THRESHOLD: f64 = 0.6;
/// Epochs with larger errors are asked for their cause.
const LARGE: f64 = 0.1;

/// One figure over another, epoch by epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Which over which.
    pub name: String,
    /// How far from one the ratios are.
    pub errors: Errors,
}

/// Why estimates are far from the truth that they say they are of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Causes {
    /// What made the estimates.
    pub estimator: String,
    /// Epochs with an estimate and its truth.
    pub epochs: usize,
    /// Of these, epochs with an error above 10 %. Each of them is in one of the following.
    pub large: usize,
    /// The next request went out late after the answer, or with others in one packet.
    pub late: usize,
    /// Another answer triggered requests while this one was waited for.
    pub staggered: usize,
    /// Both.
    pub both: usize,
    /// Neither.
    pub neither: usize,
}

/// The steps from latency to estimate: each ratio is one error, their product is that of the estimate beside the
/// causal answers.
pub(super) fn steps(comparisons: &[Comparison], pairs: &HashMap<u16, Pairs>) -> Vec<Step> {
    let Some(first) = comparisons.first() else {
        return Vec::new();
    };
    let epochs = |comparison: &Comparison, ratio: &dyn Fn(&Figures) -> Option<(f64, f64)>| {
        let figures = comparison.epochs.iter().filter_map(|epoch| Figures::of(epoch, pairs.get(&epoch.connection)?));
        Errors::new(figures.filter_map(|figures| ratio(&figures)))
    };
    let step = |name: String, errors| Step { name, errors };
    let mut steps = vec![
        step(
            "request to request / latency".to_owned(),
            epochs(first, &|of| Some((of.request_to_request_ns, of.latency_ns))),
        ),
        step(
            format!("threshold of {THRESHOLD} latencies / request to request"),
            epochs(first, &|of| Some((of.batch_ns?, of.request_to_request_ns))),
        ),
    ];
    steps.extend(comparisons.iter().map(|comparison| {
        step(
            format!("{} / threshold of {THRESHOLD} latencies", comparison.estimator),
            epochs(comparison, &|of| Some((of.estimate_ns?, of.batch_ns?))),
        )
    }));
    steps
}

/// Of one epoch: means over causal answers, and the estimate.
struct Figures {
    latency_ns: f64,
    request_to_request_ns: f64,
    batch_ns: Option<f64>,
    estimate_ns: Option<f64>,
}

impl Figures {
    fn of(epoch: &Compared, pairs: &Pairs) -> Option<Self> {
        let span = (epoch.start_ns, epoch.end_ns);
        let answered = pairs.answered(span);
        let latency_ns = mean(answered.iter().map(Pair::request_to_response_ns))?;
        Some(Self {
            latency_ns,
            request_to_request_ns: mean(answered.iter().map(Pair::request_to_request_ns))?,
            batch_ns: mean(pairs.batches_ns(span, THRESHOLD * latency_ns)),
            estimate_ns: epoch.estimate.as_ref().map(|estimate| estimate.ns as f64),
        })
    }
}

/// What large errors go with.
pub(super) fn causes(comparison: &Comparison, pairs: &HashMap<u16, Pairs>) -> Causes {
    let mut causes = Causes { estimator: comparison.estimator.clone(), ..Causes::default() };
    for epoch in &comparison.epochs {
        let Some((estimate_ns, truth_ns)) = epoch.pair(Truth::Own) else {
            continue;
        };
        causes.epochs += 1;
        let error = (estimate_ns / truth_ns - 1.0).abs();
        if error <= LARGE {
            continue;
        }
        causes.large += 1;
        let pairs = pairs.get(&epoch.connection);
        let (late, staggered) = pairs.map_or((0.0, 0.0), |pairs| disorder(epoch, pairs));
        // A cause is one that may account for half of the error.
        let share = error.min(1.0) / 2.0;
        match (late >= share, staggered >= share) {
            (true, true) => causes.both += 1,
            (true, false) => causes.late += 1,
            (false, true) => causes.staggered += 1,
            (false, false) => causes.neither += 1,
        }
    }
    causes
}

/// By how much requests went late, or which share of them went in company; and which share of pairs was staggered.
fn disorder(epoch: &Compared, pairs: &Pairs) -> (f64, f64) {
    let span = (epoch.start_ns, epoch.end_ns);
    let answered = pairs.answered(span);
    let latency_ns = mean(answered.iter().map(Pair::request_to_response_ns));
    let interval_ns = mean(answered.iter().map(Pair::request_to_request_ns));
    let late = match (latency_ns, interval_ns) {
        (Some(latency_ns), Some(interval_ns)) => interval_ns / latency_ns - 1.0,
        _ => 0.0,
    };
    let staggered = mean(answered.iter().map(|pair| f64::from(u8::from(pair.staggered))));
    (late.max(pairs.share_in_company(span)), staggered.unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::log::{Epoch, Estimate, Log, Request},
        *,
    };

    /// One request outstanding, answered in 100, the next sent so much later: ten epochs of 1000, and an estimate for
    /// each.
    fn one_outstanding(late_ns: u64, estimate_ns: u64) -> (Log, Comparison) {
        let stride = 100 + late_ns;
        let requests = (0..10_000 / stride).map(|id| Request {
            id,
            sent_ns: 5000 + id * stride,
            done_ns: 5100 + id * stride,
            triggers: Some(id + 1),
        });
        let log = Log { requests: HashMap::from([(1, requests.collect())]), ..Log::default() };
        let told: Vec<Epoch> = (0..10)
            .map(|n| Epoch {
                connection: 1,
                end_ns: 6000 + n * 1000,
                estimate: Some(Estimate { ns: estimate_ns, method: "modes".to_owned(), of_causal: true }),
                reason: None,
            })
            .collect();
        let comparison = Comparison::new("pirate", &log, &told, Duration::from_nanos(1000));
        (log, comparison)
    }

    #[test]
    fn the_steps_multiply_to_the_error() {
        let (log, comparison) = one_outstanding(25, 150);
        let steps = steps(&[comparison], &Pairs::of_each(&log));
        let medians: Vec<f64> = steps.iter().map(|step| step.errors.relative(0.5).unwrap()).collect();
        let expected = [0.25, 0.0, 0.2];
        for (median, expected) in medians.iter().zip(expected) {
            assert!((median - expected).abs() < 1e-9, "{medians:?}");
        }
    }

    #[test]
    fn late_requests_are_the_cause_where_they_make_half_of_the_error() {
        let causes_of = |late_ns, estimate_ns| {
            let (log, comparison) = one_outstanding(late_ns, estimate_ns);
            let causes = causes(&comparison, &Pairs::of_each(&log));
            assert_eq!(causes.epochs, 10);
            (causes.large, causes.late, causes.staggered, causes.neither)
        };
        assert_eq!(causes_of(25, 125), (10, 10, 0, 0));
        assert_eq!(causes_of(25, 180), (10, 0, 0, 10));
        assert_eq!(causes_of(25, 105), (0, 0, 0, 0));
    }

    #[test]
    fn staggered_answers_are_the_cause_where_pairs_overlap() {
        let (mut log, comparison) = one_outstanding(0, 50);
        // as many requests between them, whose answers trigger others
        let requests = log.requests.get_mut(&1).unwrap();
        let between: Vec<Request> = requests
            .iter()
            .map(|request| Request {
                id: request.id + 1000,
                sent_ns: request.sent_ns + 50,
                done_ns: request.done_ns + 50,
                triggers: request.triggers.map(|id| id + 1000),
            })
            .collect();
        requests.extend(between);
        let causes = causes(&comparison, &Pairs::of_each(&log));
        assert_eq!((causes.large, causes.staggered), (10, 10));
    }
}
