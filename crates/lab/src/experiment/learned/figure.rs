//! Figures of a cell, and their bounds.

use std::time::Duration;

use crate::experiment::report::Bound;
use crate::record::OWN_FLOW;
use crate::record::{Record, Span};

/// Share of the truth at which a sender has found the rate.
const FOUND: f64 = 0.9;
/// Delay below which a queue counts as drained.
const DRAINED: Duration = Duration::from_millis(30);

/// Figure of a cell. Times are in seconds, shares are ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    /// Payload ÷ ((1−p) × rate).
    Utilisation(Span),
    /// IP bytes that arrived ÷ ((1−p) × rate).
    Delivered(Span),
    /// Time from the first full packet until 90 % of (1−p) × rate.
    TimeTo90(Span),
    /// Time from the beginning of the span until 90 % of (1−p) × rate.
    Back(Span),
    /// Lowest share of (1−p) × rate in any window.
    Lowest(Span),
    /// 95th percentile of the wait in the queue.
    QueueP95(Span),
    /// Longest wait in the queue.
    QueuePeak(Span),
    /// Time from the beginning of the span until the queue is below 30 ms after its peak.
    Drained(Span),
    /// Share of packets that a queue or a policer dropped.
    Dropped(Span),
    /// Largest (sent × (1−p)) ÷ delivered over 30 s.
    Excess,
    /// Part of the fair share of all senders.
    Share(Span),
    /// Lowest part of the fair share that any sender has.
    LowestOfAll(Span),
    /// Highest part of the fair share that any sender has.
    HighestOfAll(Span),
    /// Part of the fair share that the rival has.
    RivalShare(Span),
    /// Rate of the rival ÷ its rate beside another of its kind instead of us.
    RivalKept(Span),
    /// 95th percentile of the wait of the call's packets.
    CallP95(Span),
    /// 99th percentile of the wait of the call's packets.
    CallP99(Span),
    /// Share of the call's packets that the queue dropped.
    CallDropped(Span),
    /// 95th percentile of completion ÷ limit.
    ObjectP95,
    /// 95th percentile of completion ÷ that with a typed rate.
    ObjectOfTyped,
    /// IP bytes sent in both directions.
    Bytes(Span),
}

/// A figure with a bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// The figure.
    pub figure: Figure,
    /// Its bound.
    pub bound: Bound,
}

/// A target, and what was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// The target.
    pub target: Target,
    /// The value. `None` if it does not exist, for example a rate that was never reached.
    pub value: Option<f64>,
}

impl Found {
    /// Returns `true` if the target is met.
    pub fn holds(&self) -> bool {
        self.value.is_some_and(|value| self.target.bound.holds(value))
    }

    /// The worse of two findings of the same target.
    pub fn worse(self, other: Self) -> Self {
        let (Some(a), Some(b)) = (self.value, other.value) else {
            return Self { value: None, ..self };
        };
        let worse = match self.target.bound {
            Bound::AtLeast(_) => a.min(b),
            Bound::AtMost(_) => a.max(b),
        };
        Self { value: Some(worse), ..self }
    }
}

/// Everything that figures are computed from.
pub struct Evidence<'a> {
    /// The direction towards the aircraft.
    pub record: &'a Record,
    /// Time at which the download began.
    pub start: Duration,
    /// Number of rivals.
    pub rivals: u64,
    /// Rate of a rival beside another of its kind, in bit/s.
    pub reference_bps: Option<f64>,
}

impl Figure {
    /// Value of the figure in one run.
    pub fn of(self, evidence: &Evidence<'_>) -> Option<f64> {
        let record = evidence.record;
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        match self {
            Self::Utilisation(span) => Some(record.utilisation(span)),
            Self::Delivered(span) => {
                Some(record.delivered_bps(OWN_FLOW, span) / record.mean_truth_bps(span))
            }
            Self::TimeTo90(span) => {
                let from = record.first_full_packet(OWN_FLOW, evidence.start)?;
                seconds(record.time_to(OWN_FLOW, FOUND, Span { from, ..span }))
            }
            Self::Back(span) => seconds(record.time_to(OWN_FLOW, FOUND, span)),
            Self::Lowest(span) => record.lowest_share(OWN_FLOW, span),
            Self::QueueP95(span) => seconds(record.queue(OWN_FLOW, 0.95, span)),
            Self::QueuePeak(span) => seconds(record.queue(OWN_FLOW, 1.0, span)),
            Self::Drained(span) => seconds(record.queue_drained(OWN_FLOW, DRAINED, span)),
            Self::Dropped(span) => Some(record.drop_share(OWN_FLOW, span)),
            // Without a window of enough bytes nothing was sent in excess.
            Self::Excess => Some(record.excess(OWN_FLOW).unwrap_or(0.0)),
            Self::Share(span) => evidence.shares(span).first().copied(),
            Self::LowestOfAll(span) => evidence.shares(span).into_iter().min_by(f64::total_cmp),
            Self::HighestOfAll(span) => evidence.shares(span).into_iter().max_by(f64::total_cmp),
            Self::RivalShare(span) => evidence.shares(span).get(1).copied(),
            Self::RivalKept(span) => Some(record.delivered_bps(1, span) / evidence.reference_bps?),
            Self::CallP95(span) => seconds(record.queue(1, 0.95, span)),
            Self::CallP99(span) => seconds(record.queue(1, 0.99, span)),
            Self::CallDropped(span) => Some(record.drop_share(1, span)),
            // The objects of all runs together give them.
            Self::ObjectP95 | Self::ObjectOfTyped => None,
            Self::Bytes(span) => Some(record.link_bytes(span) as f64),
        }
    }

    /// Returns `true` if the figure is a time.
    fn is_time(self) -> bool {
        matches!(
            self,
            Self::TimeTo90(_)
                | Self::Back(_)
                | Self::QueueP95(_)
                | Self::QueuePeak(_)
                | Self::Drained(_)
                | Self::CallP95(_)
                | Self::CallP99(_)
        )
    }

    /// Unit of the figure, as in result rows.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Bytes(_) => "bytes",
            figure if figure.is_time() => "s",
            _ => "ratio",
        }
    }

    /// Name of the figure, as in result rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Utilisation(_) => "utilisation",
            Self::Delivered(_) => "delivered",
            Self::TimeTo90(_) => "time-to-90",
            Self::Back(_) => "back-at-90",
            Self::Lowest(_) => "lowest",
            Self::QueueP95(_) => "queue-p95",
            Self::QueuePeak(_) => "queue-peak",
            Self::Drained(_) => "queue-drained",
            Self::Dropped(_) => "dropped",
            Self::Excess => "excess",
            Self::Share(_) => "share",
            Self::LowestOfAll(_) => "lowest-share",
            Self::HighestOfAll(_) => "highest-share",
            Self::RivalShare(_) => "rival-share",
            Self::RivalKept(_) => "rival-kept",
            Self::CallP95(_) => "call-queue-p95",
            Self::CallP99(_) => "call-queue-p99",
            Self::CallDropped(_) => "call-dropped",
            Self::ObjectP95 => "object-p95",
            Self::ObjectOfTyped => "object-of-typed",
            Self::Bytes(_) => "sent-bytes",
        }
    }
}

impl Evidence<'_> {
    /// Parts of the fair share: ours, then those of the rivals.
    fn shares(&self, span: Span) -> Vec<f64> {
        let rates: Vec<f64> =
            (0..=self.rivals).map(|flow| self.record.delivered_bps(flow, span)).collect();
        crate::sim::share::of_fair(&rates)
    }
}
