//! Figures of a cell from the samples of its sessions.

use bentpipe_results::statistics::percentile;

use super::{Cell, Outcome, Play};
use crate::experiment::pages::Page;

/// Samples of one session.
#[derive(Debug, Default)]
pub struct Part {
    /// One for each measurement; `None` if it did not end.
    pub samples: Vec<Option<f64>>,
    /// Bytes sent towards the aircraft on all paths.
    pub sent_bytes: u64,
    /// Bytes that arrived there.
    pub delivered_bytes: u64,
}

impl Part {
    /// A session that broke.
    pub fn broken() -> Self {
        Self { samples: vec![None], ..Self::default() }
    }
}

/// Figures of a cell from its sessions, and from those of its first path alone.
pub fn outcome(cell: &Cell, [parts, alone]: &[Vec<Part>; 2]) -> Outcome {
    let (values, reference) = (sorted(parts), sorted(alone));
    let p95 = |values: &[f64]| percentile(values, 0.95).unwrap_or(f64::INFINITY);
    let p50 = |values: &[f64]| percentile(values, 0.5).unwrap_or(f64::INFINITY);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let median = match cell.play {
        Play::Object(bytes) => p50(&values) / cell.bundle.limit_s(bytes),
        Play::ObjectBesideBulk(bytes) => p50(&values) / cell.bundle.limit_of_share_s(bytes, 0.5),
        Play::UselessForObject(_) | Play::PageAgainstOne => p50(&values) / p50(&reference),
        Play::Page => p50(&values) / cell.bundle.limit_of_page_s(Page::LARGE),
        Play::PageSlower => slower(parts, alone),
        Play::Bulk | Play::BulkAfter(..) | Play::BulkThroughEdges | Play::BulkInFlight => {
            p50(&values) / cell.bundle.capacity_bps()
        }
        Play::UselessForBulk => p50(&values) / p50(&reference),
        _ => p50(&values),
    };
    let figure = match cell.play {
        Play::Object(bytes) => p95(&values) / cell.bundle.limit_s(bytes),
        Play::ObjectBesideBulk(bytes) => p95(&values) / cell.bundle.limit_of_share_s(bytes, 0.5),
        Play::Reports | Play::ReportsOn(_) | Play::CallLost(_) => mean(&values),
        Play::UselessForObject(_) | Play::PageAgainstOne => p95(&values) / p95(&reference),
        Play::Page => p95(&values) / cell.bundle.limit_of_page_s(Page::LARGE),
        Play::PageSlower => slower(parts, alone),
        Play::DiesAfterRequest(_) | Play::CallDelay(_) => p95(&values),
        Play::Bulk | Play::BulkAfter(..) | Play::BulkThroughEdges | Play::BulkInFlight => {
            mean(&values) / cell.bundle.capacity_bps()
        }
        Play::UselessForBulk => mean(&values) / mean(&reference),
        Play::DiesUnderBulk(..)
        | Play::Edges
        | Play::Flight
        | Play::Memory
        | Play::Returns(..)
        | Play::Recovers(_)
        | Play::ReturnsUnnoticed(_) => values.last().copied().unwrap_or(f64::INFINITY),
    };
    let sent: u64 = parts.iter().map(|part| part.sent_bytes).sum();
    let delivered: u64 = parts.iter().map(|part| part.delivered_bytes).sum();
    Outcome {
        cell: cell.clone(),
        figure: Some(figure).filter(|figure| figure.is_finite()),
        median: Some(median).filter(|median| median.is_finite()),
        overhead: sent as f64 / delivered.max(1) as f64,
        samples: values.len(),
    }
}

/// Samples of all sessions, ascending. One that did not end is infinite.
fn sorted(parts: &[Part]) -> Vec<f64> {
    let samples = parts.iter().flat_map(|part| &part.samples);
    let mut values: Vec<f64> = samples.map(|sample| sample.unwrap_or(f64::INFINITY)).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Share of sessions that take longer than with the first path alone and the same seed.
fn slower(parts: &[Part], alone: &[Part]) -> f64 {
    let first = |part: &Part| part.samples.first().copied().flatten().unwrap_or(f64::INFINITY);
    let is_slower =
        |(both, one): &(&Part, &Part)| first(both) > first(one) || first(both).is_infinite();
    parts.iter().zip(alone).filter(is_slower).count() as f64 / parts.len() as f64
}
