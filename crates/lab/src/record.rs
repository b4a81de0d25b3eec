//! Record of a run in either engine: every passage through the bottleneck, readings at an interval,
//! and the figures that follow from them.

use std::time::Duration;

use bentpipe_channel::{DirectionSpec, Fate};

use crate::profile::FULL_PACKET_BYTES;

/// Window over which a sender's rate counts as its rate: 0.2 s, or longer for slow links.
const RATE_WINDOW: Duration = Duration::from_millis(200);
/// Minimum full packets in that window.
const RATE_WINDOW_PACKETS: u64 = 40;
/// Step of windows that slide, and of the truth.
const STEP: Duration = Duration::from_millis(10);
/// Window in which a sender may not send more than what is delivered explains.
pub const EXCESS_WINDOW: Duration = Duration::from_secs(30);
/// Step of these windows.
const EXCESS_STEP: Duration = Duration::from_secs(1);
/// Minimum bytes sent in such a window. With fewer, one lost packet moves the figure.
const MIN_EXCESS_BYTES: u64 = 1_000_000;

/// Flow of the packets of the system under test.
pub const OWN_FLOW: u64 = 0;
/// Flow of the first other sender. In the emulator all others have this flow.
pub const OTHERS_FLOW: u64 = 1;

/// Passage of a packet: what it met on the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Passage {
    /// Flow of the packet.
    pub flow: u64,
    /// Time at which it was offered.
    pub at: Duration,
    /// IP bytes.
    pub bytes: usize,
    /// Time that it waited in the queue before its transmission. In front of a full queue, the
    /// time that it would have waited.
    pub waited: Duration,
    /// Fate, never [`Fate::Waiting`].
    pub fate: Fate,
}

/// Reading of a sender at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Time of the reading.
    pub at: Duration,
    /// Rate at which the sender paces its packets, in bit/s.
    pub rate_bps: f64,
    /// Payload bytes that had reached their reader.
    pub read_bytes: u64,
    /// IP bytes offered to the link in both directions, by anybody.
    pub link_bytes: u64,
}

/// Times from which and until which a figure is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Beginning.
    pub from: Duration,
    /// End, excluded.
    pub to: Duration,
}

impl Span {
    /// Interval between two times in seconds.
    pub fn of_seconds(from: f64, to: f64) -> Self {
        Self { from: Duration::from_secs_f64(from), to: Duration::from_secs_f64(to) }
    }

    fn contains(&self, at: Duration) -> bool {
        (self.from..self.to).contains(&at)
    }

    fn seconds(&self) -> f64 {
        self.to.saturating_sub(self.from).as_secs_f64()
    }
}

/// Row of a trace: one interval of a run.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct TraceRow {
    /// End of the interval, in seconds since the beginning.
    pub at_s: f64,
    /// Rate of the link × (1−p), in bit/s: the truth that a sender has to find.
    pub capacity_bps: f64,
    /// Rate at which the sender paces its packets.
    pub rate_bps: f64,
    /// IP bytes sent.
    pub sent_bps: f64,
    /// IP bytes delivered.
    pub delivered_bps: f64,
    /// Payload read in order.
    pub goodput_bps: f64,
    /// Longest time that a packet sent in the interval waited in the queue.
    pub queue_s: f64,
    /// Packets dropped by a queue or a policer.
    pub dropped: u64,
}

/// Record of one direction of a run. Times are since the beginning of the run.
#[derive(Debug, Clone)]
pub struct Record {
    spec: DirectionSpec,
    /// Passages of all flows, in the order in which their fates were decided.
    passages: Vec<Passage>,
    readings: Vec<Reading>,
}

impl Record {
    /// Record of a direction.
    pub fn new(spec: DirectionSpec, passages: Vec<Passage>, readings: Vec<Reading>) -> Self {
        Self { spec, passages, readings }
    }

    /// Rate of the direction at a time × (1−p), in bit/s. Zero if the direction has no rate.
    pub fn truth_bps(&self, at: Duration) -> f64 {
        let rate = self.spec.sustained_rate_at(at).map_or(0.0, |rate| rate.bps() as f64);
        rate * (1.0 - self.loss())
    }

    /// Mean of the truth.
    pub fn mean_truth_bps(&self, span: Span) -> f64 {
        let steps = (span.seconds() / STEP.as_secs_f64()).ceil().max(1.0) as u32;
        let at = |step: u32| span.from + STEP * step;
        (0..steps).map(|step| self.truth_bps(at(step))).sum::<f64>() / f64::from(steps)
    }

    /// Share of packets that the channel itself loses.
    pub fn loss(&self) -> f64 {
        self.spec.mean_loss(FULL_PACKET_BYTES)
    }

    /// Time at which a flow sent its first full packet, from a time on.
    pub fn first_full_packet(&self, flow: u64, from: Duration) -> Option<Duration> {
        let is_full = |one: &&Passage| one.bytes >= 1_000 && one.at >= from;
        self.of(flow).filter(is_full).map(|one| one.at).min()
    }

    /// IP bytes per second that a flow sent, in bit/s.
    pub fn sent_bps(&self, flow: u64, span: Span) -> f64 {
        let bytes: usize =
            self.of(flow).filter(|one| span.contains(one.at)).map(|one| one.bytes).sum();
        8.0 * bytes as f64 / span.seconds()
    }

    /// IP bytes per second of a flow that arrived, in bit/s.
    pub fn delivered_bps(&self, flow: u64, span: Span) -> f64 {
        let arrived = |one: &Passage| match one.fate {
            Fate::Delivered { at } if span.contains(at) => one.bytes,
            _ => 0,
        };
        8.0 * self.of(flow).map(arrived).sum::<usize>() as f64 / span.seconds()
    }

    /// Payload per second that reached its reader, in bit/s, between the readings next to the ends
    /// of the span.
    pub fn goodput_bps(&self, span: Span) -> f64 {
        match self.ends(span) {
            Some((from, to)) if to.at > from.at => {
                let bytes = to.read_bytes.saturating_sub(from.read_bytes);
                8.0 * bytes as f64 / (to.at - from.at).as_secs_f64()
            }
            _ => 0.0,
        }
    }

    /// IP bytes that anybody offered to the link in both directions. Those before the first reading
    /// count if the span begins at zero.
    pub fn link_bytes(&self, span: Span) -> u64 {
        let Some((from, to)) = self.ends(span) else { return 0 };
        let before = if span.from.is_zero() { 0 } else { from.link_bytes };
        to.link_bytes.saturating_sub(before)
    }

    /// Readings at the ends of a span, or next to them.
    fn ends(&self, span: Span) -> Option<(&Reading, &Reading)> {
        let next = |at: Duration| self.readings.iter().find(|reading| reading.at >= at);
        next(span.from).zip(next(span.to).or(self.readings.last()))
    }

    /// Goodput ÷ ((1−p) × rate).
    pub fn utilisation(&self, span: Span) -> f64 {
        self.goodput_bps(span) / self.mean_truth_bps(span).max(f64::MIN_POSITIVE)
    }

    /// Time from `from` until a flow first sends so that `share` of the truth is delivered, over a
    /// window. `None` if it never does by the end of the span.
    pub fn time_to(&self, flow: u64, share: f64, span: Span) -> Option<Duration> {
        let windows = self.windows(flow, span);
        let (start, _) = windows.iter().find(|(_, found)| *found >= share)?;
        Some(*start - span.from)
    }

    /// Lowest share of the truth in any window.
    pub fn lowest_share(&self, flow: u64, span: Span) -> Option<f64> {
        let windows = self.windows(flow, span);
        windows.into_iter().map(|(_, share)| share).min_by(f64::total_cmp)
    }

    /// Percentile of the time that packets of a flow waited in the queue. `None` without packets.
    pub fn queue(&self, flow: u64, percentile: f64, span: Span) -> Option<Duration> {
        let mut waits: Vec<Duration> =
            self.of(flow).filter(|one| span.contains(one.at)).map(|one| one.waited).collect();
        waits.sort_unstable();
        let rank = (percentile * waits.len() as f64).ceil() as usize;
        waits.get(rank.clamp(1, waits.len().max(1)) - 1).copied()
    }

    /// Time from the beginning of the span until the first packet after the longest wait that
    /// waits less than `below`. Zero if none waits as long, `None` if that packet does not exist.
    pub fn queue_drained(&self, flow: u64, below: Duration, span: Span) -> Option<Duration> {
        let mut seen: Vec<&Passage> = self.of(flow).filter(|one| span.contains(one.at)).collect();
        seen.sort_by_key(|one| one.at);
        let peak = seen.iter().enumerate().max_by_key(|(_, one)| one.waited)?.0;
        if seen[peak].waited < below {
            return Some(Duration::ZERO);
        }
        let drained = seen[peak..].iter().find(|one| one.waited < below)?;
        Some(drained.at - span.from)
    }

    /// Share of a flow's packets that a queue or a policer dropped.
    pub fn drop_share(&self, flow: u64, span: Span) -> f64 {
        let (mut all, mut dropped) = (0u64, 0u64);
        for one in self.of(flow).filter(|one| span.contains(one.at)) {
            all += 1;
            dropped += u64::from(is_dropped(one.fate));
        }
        dropped as f64 / all.max(1) as f64
    }

    /// Largest (sent × (1−p)) ÷ delivered in any window of [`EXCESS_WINDOW`], by the times of
    /// sending. `None` if no window has enough bytes.
    pub fn excess(&self, flow: u64) -> Option<f64> {
        let last = self.of(flow).map(|one| one.at).max()?;
        let seconds = last.as_secs() as usize + 1;
        let mut by_second = vec![(0u64, 0u64); seconds];
        for one in self.of(flow) {
            let (sent, delivered) = &mut by_second[one.at.as_secs() as usize];
            *sent += one.bytes as u64;
            if matches!(one.fate, Fate::Delivered { .. }) {
                *delivered += one.bytes as u64;
            }
        }
        let window = (EXCESS_WINDOW.as_secs() as usize).min(seconds);
        let step = EXCESS_STEP.as_secs() as usize;
        let sums = by_second
            .windows(window)
            .step_by(step)
            .map(|seconds| seconds.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)));
        let enough = sums.filter(|(sent, _)| *sent >= MIN_EXCESS_BYTES);
        let excess = enough.map(|(sent, delivered)| {
            sent as f64 * (1.0 - self.loss()) / (delivered as f64).max(f64::MIN_POSITIVE)
        });
        excess.max_by(f64::total_cmp)
    }

    /// Rows of a flow, one for each reading after the first.
    pub fn trace(&self, flow: u64) -> Vec<TraceRow> {
        let mut passages: Vec<&Passage> = self.of(flow).collect();
        passages.sort_by_key(|one| one.at);
        let mut arrivals: Vec<(Duration, usize)> = passages
            .iter()
            .filter_map(|one| match one.fate {
                Fate::Delivered { at } => Some((at, one.bytes)),
                _ => None,
            })
            .collect();
        arrivals.sort_unstable();
        let rows = self.readings.windows(2).map(|pair| {
            let (from, to) = (pair[0], pair[1]);
            let span = Span { from: from.at, to: to.at };
            let seconds = span.seconds();
            let index = |at: Duration| passages.partition_point(|one| one.at < at);
            let sent = &passages[index(span.from)..index(span.to)];
            let index = |at: Duration| arrivals.partition_point(|one| one.0 < at);
            let arrived = &arrivals[index(span.from)..index(span.to)];
            let bps = |bytes: usize| 8.0 * bytes as f64 / seconds;
            let queue = sent.iter().map(|one| one.waited).max().unwrap_or_default();
            TraceRow {
                at_s: to.at.as_secs_f64(),
                capacity_bps: self.mean_truth_bps(span),
                rate_bps: to.rate_bps,
                sent_bps: bps(sent.iter().map(|one| one.bytes).sum()),
                delivered_bps: bps(arrived.iter().map(|one| one.1).sum()),
                goodput_bps: bps(to.read_bytes.saturating_sub(from.read_bytes) as usize),
                queue_s: queue.as_secs_f64(),
                dropped: sent.iter().filter(|one| is_dropped(one.fate)).count() as u64,
            }
        });
        rows.collect()
    }

    fn of(&self, flow: u64) -> impl Iterator<Item = &Passage> {
        self.passages.iter().filter(move |one| one.flow == flow)
    }

    /// Starts of sliding windows, and the share of the truth that a flow sent in each so that it
    /// was delivered.
    fn windows(&self, flow: u64, span: Span) -> Vec<(Duration, f64)> {
        let step_ns = STEP.as_nanos();
        let steps = (span.to.saturating_sub(span.from).as_nanos() / step_ns) as usize;
        let mut delivered = vec![0u64; steps];
        for one in self.of(flow).filter(|one| span.contains(one.at)) {
            let place = ((one.at - span.from).as_nanos() / step_ns) as usize;
            if let (Fate::Delivered { .. }, Some(bytes)) = (one.fate, delivered.get_mut(place)) {
                *bytes += one.bytes as u64;
            }
        }
        let rate = self.spec.sustained_rate_at(span.from);
        let packets = rate.map_or(Duration::ZERO, |rate| rate.time_for(1500 * RATE_WINDOW_PACKETS));
        let length = RATE_WINDOW.max(packets);
        let width = (length.as_nanos() / step_ns) as usize;
        let seconds = (STEP * width as u32).as_secs_f64();
        let windows = delivered.windows(width.max(1)).enumerate().map(|(place, window)| {
            let start = span.from + STEP * place as u32;
            let truth = self.mean_truth_bps(Span { from: start, to: start + length });
            let bps = 8.0 * window.iter().sum::<u64>() as f64 / seconds;
            (start, bps / truth.max(f64::MIN_POSITIVE))
        });
        windows.collect()
    }
}

fn is_dropped(fate: Fate) -> bool {
    matches!(fate, Fate::QueueDropped | Fate::Policed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn spec() -> DirectionSpec {
        let text = "rate = { series = { steps = [['0 s', '8 Mbit/s'], ['20 s', '4 Mbit/s']] } }\n\
                    queue = '1 MB'\nloss = '10 %'";
        toml::from_str(text).unwrap()
    }

    /// A packet of 1000 bytes every millisecond from 1 s to 40 s: the rate of the first 20 s. Every
    /// tenth is lost. From 20 s on, every second one is dropped and the queue is 100 ms.
    fn record() -> Record {
        let passage = |number: u64| {
            let at = ms(1_000 + number);
            let late = at >= ms(20_000);
            let fate = match number {
                number if number % 10 == 0 => Fate::Lost,
                number if late && number % 2 == 0 => Fate::QueueDropped,
                _ => Fate::Delivered { at: at + ms(500) },
            };
            let waited = if late { ms(100) } else { ms(number % 10) };
            Passage { flow: 0, at, bytes: 1000, waited, fate }
        };
        let reading = |second| {
            let at = Duration::from_secs(second);
            Reading { at, rate_bps: 8e6, read_bytes: 800_000 * second, link_bytes: 0 }
        };
        let passages = (0..39_000).map(passage).collect();
        Record::new(spec(), passages, (0..=40).map(reading).collect())
    }

    #[test]
    fn rates_are_compared_with_the_truth_at_their_time() {
        let record = record();
        assert!((record.truth_bps(ms(0)) - 7.2e6).abs() < 1.0);
        assert!((record.mean_truth_bps(Span::of_seconds(10.0, 30.0)) - 5.4e6).abs() < 1e4);
        assert!((record.sent_bps(0, Span::of_seconds(5.0, 10.0)) - 8e6).abs() < 1e4);
        assert!((record.delivered_bps(0, Span::of_seconds(5.0, 10.0)) - 7.2e6).abs() < 1e4);
        assert_eq!(record.sent_bps(1, Span::of_seconds(5.0, 10.0)), 0.0);
        let found = record.utilisation(Span::of_seconds(5.0, 10.0));
        assert!((found - 6.4 / 7.2).abs() < 1e-3, "{found}");
    }

    #[test]
    fn the_time_to_a_share_counts_from_the_beginning_of_the_span() {
        let record = record();
        let whole = Span::of_seconds(0.0, 20.0);
        // The first window that holds 90 % begins a tenth of its length before the first packet:
        // a window of 40 packets of 1,500 bytes is 60 ms, so it is 200 ms.
        assert_eq!(record.time_to(0, 0.899, whole), Some(ms(980)));
        assert_eq!(record.time_to(0, 1.1, whole), None);
        assert!(record.lowest_share(0, Span::of_seconds(2.0, 19.0)).unwrap() > 0.97);
        assert_eq!(record.lowest_share(0, whole), Some(0.0));
    }

    #[test]
    fn queues_and_drops_are_those_of_the_span() {
        let record = record();
        let (early, late) = (Span::of_seconds(5.0, 10.0), Span::of_seconds(25.0, 30.0));
        assert_eq!(record.queue(0, 0.5, early), Some(ms(4)));
        assert_eq!(record.queue(0, 1.0, early), Some(ms(9)));
        assert_eq!(record.queue(0, 0.95, late), Some(ms(100)));
        assert_eq!(record.queue(1, 0.5, early), None);
        assert_eq!(record.drop_share(0, early), 0.0);
        assert!((record.drop_share(0, late) - 0.4).abs() < 1e-3);
        // The last packet that waits 9 ms is the last of the span. The one before it waits 8 ms, and
        // the first of the next ten does not wait.
        assert_eq!(record.queue_drained(0, ms(9), early), None);
        let longer = Span::of_seconds(5.0, 10.001);
        assert_eq!(record.queue_drained(0, ms(9), longer), Some(ms(5_000)));
        assert_eq!(record.queue_drained(0, ms(10), early), Some(ms(0)));
        assert_eq!(record.queue_drained(0, ms(30), late), None);
    }

    #[test]
    fn more_sent_than_delivered_explains_is_an_excess() {
        // Half of the packets of the worst 30 s arrive, and the channel loses a tenth.
        let excess = record().excess(0).unwrap();
        assert!((1.35..1.8).contains(&excess), "{excess}");
    }

    #[test]
    fn a_trace_has_a_row_for_each_interval() {
        let rows = record().trace(0);
        assert_eq!(rows.len(), 40);
        let row = rows[24];
        assert_eq!((row.at_s, row.queue_s), (25.0, 0.1));
        assert!((row.capacity_bps - 3.6e6).abs() < 1.0 && (row.goodput_bps - 6.4e6).abs() < 1.0);
        assert_eq!(row.dropped, 400);
    }
}
