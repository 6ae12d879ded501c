//! The mean and quantiles of a list of values.

/// Returns the arithmetic mean, or `None` if there are no values.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum) = (0u64, 0.0);
    for value in values {
        count += 1;
        sum += value;
    }
    (count > 0).then(|| sum / count as f64)
}

/// Returns the values in ascending order.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the index of quantile `q` (0 to 1) among `count` values in ascending order, by nearest rank.
fn nearest_rank(count: usize, q: f64) -> usize {
    // Decimal fractions are inexact in binary: 0.1 of 30 values must be the third and not the fourth.
    let rank = (count as f64 * q - 1e-9).ceil() as usize;
    rank.saturating_sub(1)
}

/// Returns the value at quantile `q` (0 to 1) of values in ascending order, by nearest rank: the smallest value that
/// at least the fraction `q` of all values does not exceed. `None` if there are no values.
pub fn quantile<T: Copy>(sorted: &[T], q: f64) -> Option<T> {
    sorted.get(nearest_rank(sorted.len(), q)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks() {
        let values = [1, 2, 3, 4, 5];
        assert_eq!(quantile(&values, 0.0), Some(1));
        assert_eq!(quantile(&values, 0.2), Some(1));
        assert_eq!(quantile(&values, 0.5), Some(3));
        assert_eq!(quantile(&values, 0.99), Some(5));
        assert_eq!(quantile(&values, 1.0), Some(5));
        assert_eq!(quantile::<u64>(&[], 0.5), None);
    }

    #[test]
    fn decimal_quantiles_have_their_exact_rank() {
        let values: Vec<usize> = (1..=1000).collect();
        for count in [10, 20, 30, 100, 1000] {
            for tenth in 1..=10 {
                assert_eq!(quantile(&values[..count], tenth as f64 / 10.0), Some(count * tenth / 10));
            }
        }
    }

    #[test]
    fn the_mean_of_no_values_is_unknown() {
        assert_eq!(mean([]), None);
        assert_eq!(mean([1.0, 2.0, 6.0]), Some(3.0));
    }
}
