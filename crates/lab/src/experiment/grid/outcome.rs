//! Result of one work in one cell, and its rows.

use super::traffic::Traffic;
use super::{Cell, CellError, Work};
use crate::profile::Profile;
use crate::result::{Percentile, Row, Sample, Samples};
use crate::system::{BENTPIPE, SystemUnderTest};

/// Result of one work in one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The cell.
    pub cell: Cell,
    /// The work.
    pub work: Work,
    /// Time to the last byte of each object in seconds, or goodput of each bulk period in bit/s.
    pub samples: Samples,
    /// Objects: samples ÷ limit. Bulk: goodput ÷ ((1−p)·rate), with the loss p of the run if known.
    pub ratios: Samples,
    /// RTT + 8·bytes/((1−p)·rate) in seconds, with half the rate next to bulk. For bulk, (1−p)·rate
    /// in bit/s.
    pub limit: f64,
    /// Bytes by kind, if they were counted.
    pub traffic: Option<Both>,
    /// Descriptions of the sessions that broke.
    pub broken: Vec<String>,
}

/// Traffic of both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Both {
    /// Towards the aircraft.
    pub forward: Traffic,
    /// From the aircraft.
    pub back: Traffic,
}

/// Result of one session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Part {
    /// Samples as in [`Outcome::samples`].
    pub samples: Vec<Sample>,
    /// Fraction of bytes lost on the link towards the aircraft. Only for bulk.
    pub drawn_loss: Option<f64>,
    /// Traffic towards the aircraft.
    pub forward: Traffic,
    /// Traffic from the aircraft.
    pub back: Traffic,
    /// Reason why the session broke, if it did.
    pub broken: Option<String>,
}

impl Outcome {
    /// Outcome of all sessions together.
    pub fn of_parts(
        cell: Cell,
        work: Work,
        link: &Profile,
        parts: Vec<Part>,
    ) -> Result<Self, CellError> {
        let limit = limit(link, &work)?;
        let mut outcome = Self::of_samples(cell, work, limit, Samples::default(), None);
        let mut traffic = Both::default();
        for part in parts {
            let kept = part.drawn_loss.map(|loss| (1.0 - loss) / (1.0 - link.forward_loss()));
            let samples = Samples(part.samples);
            outcome.ratios.0.extend(samples.scaled(1.0 / (limit * kept.unwrap_or(1.0))).0);
            outcome.samples.0.extend(samples.0);
            traffic.forward = traffic.forward.and(part.forward);
            traffic.back = traffic.back.and(part.back);
            outcome.broken.extend(part.broken);
        }
        Ok(Self { traffic: Some(traffic), ..outcome })
    }

    /// Outcome of samples without traffic counts. The limit has the same unit as the samples.
    pub fn of_samples(
        cell: Cell,
        work: Work,
        limit: f64,
        samples: Samples,
        traffic: Option<Both>,
    ) -> Self {
        let ratios = samples.scaled(1.0 / limit);
        Self { cell, work, samples, ratios, limit, traffic, broken: Vec::new() }
    }

    /// Returns `true` for bulk, which has a rate. Everything else has a time.
    pub fn is_bulk(&self) -> bool {
        self.work.workload.bytes().is_none()
    }

    /// Mean fraction of the limit that bulk reached. `None` for everything else.
    pub fn utilization(&self) -> Option<f64> {
        self.ratios.mean().filter(|_| self.is_bulk())
    }

    /// Percentile `q` of completion ÷ limit. `None` for bulk.
    pub fn completion(&self, q: f64) -> Option<Percentile> {
        self.ratios.percentile(q).filter(|_| !self.is_bulk())
    }

    /// Number of objects that never arrived.
    pub fn failures(&self) -> usize {
        self.samples.0.iter().filter(|sample| matches!(sample, Sample::Cut(_))).count()
    }

    /// Rows of the outcome. Fractions of bytes refer to the bytes sent in the same direction. `ack`
    /// is about reports, and `-return` about data from the aircraft.
    pub fn rows(&self, engine: &str, seed: u64) -> Vec<Row> {
        let row = |metric: &str, unit: &str, limit| Row {
            experiment: "grid".into(),
            engine: engine.into(),
            system: Some(BENTPIPE.name().into()),
            profile: Some(self.cell.profile.clone()),
            workload: Some(self.work.to_string()),
            metric: metric.into(),
            unit: unit.into(),
            limit,
            seed: Some(seed),
            loss: Some(self.cell.loss.get()),
            burst: Some(self.cell.burst),
            ..Row::default()
        };
        let limit = Some(self.limit);
        let mut rows = if self.is_bulk() {
            let nominal = self.samples.scaled(1.0 / self.limit);
            vec![
                self.samples.fill(row("goodput", "bit/s", limit)),
                self.ratios.fill(row("utilization", "ratio", Some(1.0))),
                nominal.fill(row("utilization-nominal", "ratio", Some(1.0))),
            ]
        } else {
            vec![
                self.samples.fill(row("completion", "s", limit)),
                self.ratios.fill(row("completion-ratio", "ratio", Some(1.0))),
            ]
        };
        let n = self.samples.len();
        for (metric, value) in self.traffic.iter().flat_map(Both::figures) {
            let value = Some(value);
            rows.push(Row { n, p50: value, mean: value, ..row(metric, "ratio", None) });
        }
        rows
    }
}

impl Both {
    /// Figures by name.
    pub fn figures(&self) -> Vec<(&'static str, f64)> {
        let Self { forward, back } = self;
        vec![
            ("overhead", forward.bytes as f64 / forward.payload_bytes.max(1) as f64),
            ("header", forward.header()),
            ("repair", forward.repair()),
            ("retransmission", forward.retransmission()),
            ("ack", forward.ack()),
            ("header-return", back.header()),
            ("repair-return", back.repair()),
            ("retransmission-return", back.retransmission()),
            ("ack-return", back.ack()),
            ("repairs-per-source", forward.redundancy()),
            ("back-per-forward", back.bytes as f64 / forward.bytes.max(1) as f64),
            ("reports-of-downlink", self.reports_of_downlink()),
            ("reports-of-uplink", self.reports_of_uplink()),
        ]
    }

    /// Bytes of the aircraft's reports ÷ the bytes sent to it.
    pub fn acks_per_forward(&self) -> f64 {
        self.back.kinds.report_bytes / self.forward.bytes.max(1) as f64
    }

    /// Bytes of the aircraft's reports ÷ the capacity of the forward link in that time.
    pub fn reports_of_downlink(&self) -> f64 {
        self.back.kinds.report_bytes / self.forward.possible_bytes.max(1.0)
    }

    /// Bytes of the aircraft's reports ÷ the capacity of the return link in that time.
    pub fn reports_of_uplink(&self) -> f64 {
        self.back.kinds.report_bytes / self.back.possible_bytes.max(1.0)
    }
}

/// Physical limit.
pub fn limit(link: &Profile, work: &Work) -> Result<f64, CellError> {
    let rate = link.link.forward.rate().ok_or_else(|| CellError::NoRate(link.name.clone()))?;
    let possible_bps = (1.0 - link.forward_loss()) * rate.bps() as f64;
    Ok(match work.workload.bytes() {
        None => possible_bps,
        Some(bytes) => {
            let share = if work.beside_bulk { 0.5 } else { 1.0 };
            link.rtt().as_secs_f64() + 8.0 * bytes as f64 / (possible_bps * share)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_units::Ratio;

    fn outcome(work: &str, samples: Vec<Sample>, drawn_loss: Option<f64>) -> Outcome {
        let cell = Cell { profile: "mss".into(), loss: Ratio::new(0.06).unwrap(), burst: 1.0 };
        let parts = vec![Part { samples, drawn_loss, ..Part::default() }];
        let link = cell.link().unwrap();
        Outcome::of_parts(cell, work.parse().unwrap(), &link, parts).unwrap()
    }

    #[test]
    fn a_neighbour_takes_half_of_the_rate_but_none_of_the_round_trip() {
        let alone = outcome("object-100k", Vec::new(), None).limit;
        let beside = outcome("object-100k-beside-bulk", Vec::new(), None).limit;
        let rtt = 0.761;
        assert!((alone - 1.2113).abs() < 1e-4, "{alone}");
        assert!((beside - rtt - 2.0 * (alone - rtt)).abs() < 1e-9, "{beside}");
    }

    #[test]
    fn bulk_is_held_against_the_loss_that_was_drawn() {
        let half = 0.5 * 1.89e6;
        let outcome = outcome("bulk", vec![Sample::Finished(half * 0.9)], Some(0.1));
        assert!((outcome.utilization().unwrap() - 0.5).abs() < 1e-9);
        let rows = outcome.rows("sim", 3);
        let mean = |metric: &str| {
            rows.iter().find(|row| row.metric == metric).and_then(|row| row.mean).unwrap()
        };
        assert!((mean("utilization-nominal") - 0.45 / 0.94).abs() < 1e-9);
        assert!((mean("goodput") - half * 0.9).abs() < 1e-3);
        assert!(rows.iter().all(|row| (row.loss, row.burst) == (Some(0.06), Some(1.0))));
    }

    #[test]
    fn lost_transfers_are_failures_and_not_percentiles() {
        let samples = vec![Sample::Finished(1.0), Sample::Cut(60.0)];
        let outcome = outcome("object-10k", samples, None);
        assert_eq!(outcome.failures(), 1);
        assert_eq!(outcome.completion(0.95).and_then(Percentile::known), None);
        assert_eq!(outcome.utilization(), None);
    }
}
