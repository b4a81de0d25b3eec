//! Quantiles and cumulative distributions.

/// The q-quantile of sorted values by nearest rank: the smallest value that at least a share q does not
/// exceed.
pub fn quantile(sorted: &[u64], q: f64) -> Option<u64> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// Points (value, share not above it) of the empirical distribution of sorted values, thinned to at most
/// `most` points. The first and the last value stay.
pub fn cumulative(sorted: &[u64], most: usize) -> Vec<(u64, f64)> {
    let n = sorted.len();
    let steps = most.max(2).min(n);
    let at = |step: usize| match steps {
        0 | 1 => 0,
        _ => step * (n - 1) / (steps - 1),
    };
    (0..steps).map(at).map(|i| (sorted[i], (i + 1) as f64 / n as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_by_nearest_rank() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(quantile(&values, 0.5), Some(50));
        assert_eq!(quantile(&values, 0.95), Some(95));
        assert_eq!(quantile(&values, 0.0), Some(1));
        assert_eq!(quantile(&values, 1.0), Some(100));
        assert_eq!(quantile(&[7], 0.5), Some(7));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_thinned_distribution_keeps_its_ends() {
        let values: Vec<u64> = (1..=1000).collect();
        let points = cumulative(&values, 50);
        assert_eq!(points.len(), 50);
        assert_eq!(points[0], (1, 0.001));
        assert_eq!(points[49], (1000, 1.0));
        assert!(cumulative(&[], 50).is_empty());
        assert_eq!(cumulative(&[4], 50), [(4, 1.0)]);
    }
}
