//! Confidence intervals over runs.

use schemars::JsonSchema;
use serde::Serialize;

/// A mean over runs with its 95 % confidence interval by Student's t, which assumes that the values of runs are normally
/// distributed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "sim-mean")]
pub struct Estimate {
    /// Mean over runs.
    pub mean: f64,
    /// Half the width of the confidence interval; null for a single run.
    #[serde(rename = "within")]
    pub margin: Option<f64>,
}

/// The 0.975 quantile of Student's t for 1, 2, ... degrees of freedom.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

impl Estimate {
    /// Returns the estimate in another unit.
    pub fn scaled(self, factor: f64) -> Estimate {
        Estimate { mean: self.mean * factor, margin: self.margin.map(|margin| margin * factor) }
    }

    /// Estimates the mean of these values; `None` without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Estimate> {
        let values: Vec<f64> = values.into_iter().collect();
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let margin = (count > 1).then(|| {
            let t = T.get(count - 2).copied().unwrap_or(1.96 + 2.5 / count as f64);
            t * (squares / (count - 1) as f64 / count as f64).sqrt()
        });
        Some(Estimate { mean, margin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_students_t() {
        assert_eq!(Estimate::of([]), None);
        let one = Estimate::of([3.0]).unwrap();
        assert_eq!((one.mean, one.margin), (3.0, None));
        // 1, 2 and 3 have a standard deviation of 1.
        let three = Estimate::of([1.0, 2.0, 3.0]).unwrap();
        assert_eq!(three.mean, 2.0);
        assert!((three.margin.unwrap() - 4.303 / 3f64.sqrt()).abs() < 1e-9);
    }
}
