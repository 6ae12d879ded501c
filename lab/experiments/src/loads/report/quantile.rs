//! Percentiles of values in ascending order.

/// The value below or at which that share lies (nearest rank); None without any.
pub(super) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    // Decimal shares are a little off in binary: 0.1 of 20 values is the second of them.
    let rank = (sorted.len() as f64 * share - 1e-9).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The mean; None without any.
pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum) = (0u64, 0.0);
    for value in values {
        count += 1;
        sum += value;
    }
    (count > 0).then(|| sum / count as f64)
}

/// In ascending order.
pub(super) fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.05), Some(1.0));
        assert_eq!(quantile(&values, 0.1), Some(2.0));
        assert_eq!(quantile(&values, 0.5), Some(10.0));
        assert_eq!(quantile(&values, 0.99), Some(20.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[7.0], 0.0), Some(7.0));
    }
}
