//! Waiting times of passengers in the status file.

use bentpipe_metering::experience::{BUCKETS_S, Group, Waits};
use bentpipe_units::micros;
use serde::{Deserialize, Serialize};

/// Waiting times of a class and a rule. The buckets of the histograms end at
/// [`BUCKETS_S`](bentpipe_metering::experience::BUCKETS_S); the last has no end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExperienceEntry {
    /// Name of the class.
    pub class: String,
    /// Name of the rule that decided the class; empty if none matched.
    pub rule: String,
    /// Histogram of the times to the first byte of an answer.
    pub first_byte_histogram: Vec<u64>,
    /// Sum of those times.
    pub first_byte_sum_us: u64,
    /// Histogram of the times to the last byte of an answer.
    pub completion_histogram: Vec<u64>,
    /// Sum of those times.
    pub completion_sum_us: u64,
    /// Exchanges without an answer.
    pub failed: u64,
    /// Index of satisfaction (Apdex), in thousandths; `None` without exchanges.
    pub index_permille: Option<u64>,
}

impl ExperienceEntry {
    /// Converts the experience of a group.
    pub fn of((group, waits): &(Group, Waits)) -> Self {
        Self {
            class: group.class.name().to_owned(),
            rule: group.rule.to_string(),
            first_byte_histogram: waits.first_byte.counts.to_vec(),
            first_byte_sum_us: micros(waits.first_byte.sum),
            completion_histogram: waits.completion.counts.to_vec(),
            completion_sum_us: micros(waits.completion.sum),
            failed: waits.failed,
            index_permille: waits.index().map(|index| (index * 1e3).round() as u64),
        }
    }

    /// Number of exchanges, with those that nobody answered.
    pub fn exchanges(&self) -> u64 {
        self.completion_histogram.iter().sum::<u64>().saturating_add(self.failed)
    }

    /// Time to the first byte within which half of the answers began, as the end of its bucket in
    /// seconds; `None` if it is beyond the last, or without answers.
    pub fn first_byte_p50_s(&self) -> Option<f64> {
        quantile(&self.first_byte_histogram, 0.5)
    }

    /// Time within which 95 % of the answers were complete, like [`Self::first_byte_p50_s`].
    pub fn completion_p95_s(&self) -> Option<f64> {
        quantile(&self.completion_histogram, 0.95)
    }
}

fn quantile(counts: &[u64], share: f64) -> Option<f64> {
    let wanted = (counts.iter().sum::<u64>() as f64 * share).ceil() as u64;
    let mut so_far = 0;
    let bucket = counts.iter().position(|count| {
        so_far += count;
        so_far >= wanted.max(1)
    });
    BUCKETS_S.get(bucket?).copied()
}
