//! Estimates beside the truth.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// A request as its client saw it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) sent_ns: u64,
    pub(super) done_ns: u64,
    /// Its answer made the client send the next.
    pub(super) causal: bool,
}

/// An epoch as `dwell response` told it.
#[derive(Debug, Clone)]
pub(super) struct Epoch {
    /// The client's port.
    pub(super) connection: u16,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// None where there was none, or it was not to be believed.
    pub(super) estimate_ns: Option<u64>,
    pub(super) method: String,
    /// The estimate is of causal answers, else of all.
    pub(super) of_causal: bool,
}

/// Which answers a mean is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    /// Those that the estimate says it is of.
    Own,
    /// All of them.
    All,
    /// Those that made the client send the next request.
    Causal,
}

impl Truth {
    fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::All => "all",
            Self::Causal => "causal",
        }
    }
}

/// How far the estimates of a run are from the truth.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Epochs in which answers came.
    pub epochs: usize,
    /// Of these, epochs with an estimate.
    pub estimates: usize,
    /// How many estimates each method gave.
    pub methods: BTreeMap<String, usize>,
    /// Relative errors in ascending order, 0.01 is one percent, beside each truth.
    pub errors: BTreeMap<Truth, Vec<f64>>,
}

impl Comparison {
    pub(super) fn new(requests: &HashMap<u16, Vec<Request>>, epochs: &[Epoch]) -> Self {
        let mut comparison = Self {
            epochs: 0,
            estimates: 0,
            methods: BTreeMap::new(),
            errors: BTreeMap::new(),
        };
        for epoch in epochs {
            let Some(requests) = requests.get(&epoch.connection) else {
                continue;
            };
            let done = || {
                requests
                    .iter()
                    .filter(|request| (epoch.start_ns..epoch.end_ns).contains(&request.done_ns))
            };
            let (all, causal) = (mean(done()), mean(done().filter(|request| request.causal)));
            if all.is_none() {
                continue;
            }
            comparison.epochs += 1;
            let Some(estimate_ns) = epoch.estimate_ns else {
                continue;
            };
            comparison.estimates += 1;
            *comparison.methods.entry(epoch.method.clone()).or_default() += 1;
            let own = if epoch.of_causal { causal } else { all };
            for (truth, mean_ns) in [
                (Truth::Own, own),
                (Truth::All, all),
                (Truth::Causal, causal),
            ] {
                if let Some(mean_ns) = mean_ns {
                    let error = estimate_ns as f64 / mean_ns - 1.0;
                    comparison.errors.entry(truth).or_default().push(error);
                }
            }
        }
        for errors in comparison.errors.values_mut() {
            errors.sort_by(f64::total_cmp);
        }
        comparison
    }

    /// The share of estimates that are within so much of the truth.
    pub fn within(&self, truth: Truth, share: f64) -> Option<f64> {
        let errors = self.errors.get(&truth)?;
        let near = errors.iter().filter(|error| error.abs() <= share).count();
        Some(near as f64 / errors.len() as f64)
    }

    /// The median of the errors without their sign.
    pub fn median(&self, truth: Truth) -> Option<f64> {
        let mut sizes: Vec<f64> = self.errors.get(&truth)?.iter().map(|e| e.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.get(sizes.len() / 2).copied()
    }
}

fn mean<'a>(requests: impl Iterator<Item = &'a Request>) -> Option<f64> {
    let (mut count, mut sum) = (0u32, 0.0);
    for request in requests {
        count += 1;
        sum += request.done_ns.saturating_sub(request.sent_ns) as f64;
    }
    (count > 0).then(|| sum / f64::from(count))
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods: Vec<String> = self
            .methods
            .iter()
            .map(|(method, count)| format!("{method} {count}"))
            .collect();
        writeln!(
            f,
            "{} epochs with answers, {} with an estimate: {}\n\nerror in % beside the mean over these answers",
            self.epochs,
            self.estimates,
            methods.join(", ")
        )?;
        writeln!(
            f,
            "{:<8}{:>7}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}{:>8}{:>8}{:>8}",
            "truth", "n", "p5", "p10", "p50", "p90", "p95", "|p50|", "≤ 5 %", "≤ 10 %", "≤ 15 %"
        )?;
        for (truth, errors) in &self.errors {
            let at = |quantile: f64| {
                let index = (quantile * errors.len() as f64) as usize;
                errors[index.min(errors.len() - 1)] * 100.0
            };
            let within = |share| self.within(*truth, share).unwrap_or_default() * 100.0;
            writeln!(
                f,
                "{:<8}{:>7}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>11.2}{:>8.0}{:>8.0}{:>8.0}",
                truth.name(),
                errors.len(),
                at(0.05),
                at(0.1),
                at(0.5),
                at(0.9),
                at(0.95),
                self.median(*truth).unwrap_or_default() * 100.0,
                within(0.05),
                within(0.1),
                within(0.15),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_stands_beside_the_answers_of_its_epoch_and_connection() {
        let request = |sent_ns, done_ns, causal| Request {
            sent_ns,
            done_ns,
            causal,
        };
        let requests = HashMap::from([
            (
                1,
                vec![
                    request(0, 100, true),
                    request(0, 300, false),
                    request(900, 1500, true),
                ],
            ),
            (2, vec![request(0, 500, true)]),
        ]);
        let epoch = |connection, start_ns, estimate_ns, of_causal| Epoch {
            connection,
            start_ns,
            end_ns: start_ns + 1000,
            estimate_ns,
            method: "runs".to_owned(),
            of_causal,
        };
        let comparison = Comparison::new(
            &requests,
            &[
                epoch(1, 0, Some(220), false),
                epoch(1, 1000, Some(540), true),
                epoch(2, 0, None, false),
                epoch(2, 1000, Some(1), false),
                epoch(3, 0, Some(1), false),
            ],
        );
        assert_eq!((comparison.epochs, comparison.estimates), (3, 2));
        let rounded = |truth| -> Vec<i64> {
            let errors = &comparison.errors[&truth];
            errors
                .iter()
                .map(|error| (error * 1000.0).round() as i64)
                .collect()
        };
        assert_eq!(rounded(Truth::Own), [-100, 100]);
        assert_eq!(rounded(Truth::All), [-100, 100]);
        assert_eq!(rounded(Truth::Causal), [-100, 1200]);
        assert_eq!(comparison.within(Truth::Causal, 0.15), Some(0.5));
    }
}
