//! What runs say together.

use serde::Serialize;

/// A mean over runs, and how far from it the truth may be: it is within with 95 % probability, as far
/// as runs are like draws of a normal distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// Over runs.
    pub mean: f64,
    /// Half the width of the interval; none of one run.
    pub within: Option<f64>,
}

/// Quantiles 0.975 of Student's t by degrees of freedom, from 1 on.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

impl Estimate {
    /// None of no run.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Estimate> {
        let values: Vec<f64> = values.into_iter().collect();
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let within = (count > 1).then(|| {
            let t = T.get(count - 2).copied().unwrap_or(1.96 + 2.5 / count as f64);
            t * (squares / (count - 1) as f64 / count as f64).sqrt()
        });
        Some(Estimate { mean, within })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        assert_eq!(Estimate::of([]), None);
        let one = Estimate::of([3.0]).unwrap();
        assert_eq!((one.mean, one.within), (3.0, None));
        // of 1, 2, 3: standard deviation 1
        let three = Estimate::of([1.0, 2.0, 3.0]).unwrap();
        assert_eq!(three.mean, 2.0);
        assert!((three.within.unwrap() - 4.303 / 3f64.sqrt()).abs() < 1e-9);
    }
}
