//! Queue over the time of sending, to compare it with that of other sessions.
//!
//! Packets of one sender that are sent at the same time through one bottleneck meet the same queue,
//! whatever session they belong to.

use std::time::Duration;

/// Length of a bin. A train lasts 20 to 60 ms …
const BIN: Duration = Duration::from_millis(50);
/// … and number of bins: 3.2 s × 8 bytes.
const BINS: usize = 64;
/// Minimum number of bins in which both have packets.
const MIN_COMMON: usize = 24;
/// Minimum standard deviation of a queue that is compared.
const MIN_DEVIATION_S: f64 = 0.001;

/// Mean queue in each bin.
#[derive(Debug, Clone)]
pub struct Trace {
    bins: [Bin; BINS],
    /// Number of the newest bin since the beginning of time.
    newest: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    queue_s: f32,
    packets: u32,
}

impl Default for Trace {
    fn default() -> Self {
        Self { bins: [Bin::default(); BINS], newest: 0 }
    }
}

impl Trace {
    /// Adds the queue that a packet sent at `sent` met.
    pub fn note(&mut self, sent: Duration, queue: Duration) {
        let number = number(sent);
        if number + BINS as u64 <= self.newest {
            return;
        }
        let passed = number.saturating_sub(self.newest).min(BINS as u64);
        for unused in 0..passed {
            self.bins[at(number - unused)] = Bin::default();
        }
        self.newest = self.newest.max(number);
        let bin = &mut self.bins[at(number)];
        bin.packets += 1;
        bin.queue_s += (queue.as_secs_f32() - bin.queue_s) / bin.packets as f32;
    }

    /// Shortest and longest mean queue of the bins since `from`.
    pub fn range_since(&self, from: Duration) -> (Duration, Duration) {
        let oldest = (number(from) + 1).max((self.newest + 1).saturating_sub(BINS as u64));
        let queues = (oldest..=self.newest).filter_map(|number| self.get(number));
        let (least, most) =
            queues.fold((f64::MAX, 0.0_f64), |(least, most), it| (least.min(it), most.max(it)));
        (Duration::from_secs_f64(least.min(most)), Duration::from_secs_f64(most))
    }

    /// Correlation of two queues, −1 to 1. `None` if too little is known of them.
    pub fn correlation(&self, other: &Self) -> Option<f64> {
        let newest = self.newest.min(other.newest);
        let oldest = (newest + 1).saturating_sub(BINS as u64);
        let pairs = (oldest..=newest).filter_map(|number| self.get(number).zip(other.get(number)));
        let (mut count, mut sums, mut squares, mut product) = (0usize, [0.0; 2], [0.0; 2], 0.0);
        for (a, b) in pairs {
            count += 1;
            for (index, value) in [a, b].into_iter().enumerate() {
                sums[index] += value;
                squares[index] += value * value;
            }
            product += a * b;
        }
        if count < MIN_COMMON {
            return None;
        }
        let n = count as f64;
        let deviation =
            |index: usize| (squares[index] / n - (sums[index] / n).powi(2)).max(0.0).sqrt();
        let (a, b) = (deviation(0), deviation(1));
        if a < MIN_DEVIATION_S || b < MIN_DEVIATION_S {
            return None;
        }
        Some((product / n - sums[0] * sums[1] / (n * n)) / (a * b))
    }

    fn get(&self, number: u64) -> Option<f64> {
        let is_known = number <= self.newest && number + BINS as u64 > self.newest;
        let bin = self.bins[at(number)];
        (is_known && bin.packets > 0).then_some(f64::from(bin.queue_s))
    }
}

fn number(sent: Duration) -> u64 {
    u64::try_from(sent.as_nanos() / BIN.as_nanos()).unwrap_or(u64::MAX - BINS as u64)
}

fn at(number: u64) -> usize {
    (number % BINS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Packets every 10 ms from `from`, with a queue of 10 ms for 100 ms in every `period`.
    fn trace(from: u64, until: u64, period: u64) -> Trace {
        let mut trace = Trace::default();
        for at in (from..until).step_by(10) {
            trace.note(ms(at), ms(if at % period < 100 { 10 } else { 1 }));
        }
        trace
    }

    #[test]
    fn one_queue_correlates_and_two_do_not() {
        let (a, b) = (trace(0, 10_000, 700), trace(3, 9_000, 700));
        assert!(a.correlation(&b).unwrap() > 0.9);
        let other = trace(0, 10_000, 1130);
        assert!(a.correlation(&other).unwrap().abs() < 0.3);
        assert_eq!(a.correlation(&trace(0, 5_000, 700)), None, "no common time");
        assert_eq!(a.correlation(&trace(0, 10_000, 10)), None, "a queue that does not change");
        assert_eq!(a.correlation(&Trace::default()), None);
    }

    #[test]
    fn late_and_strange_times_are_ignored() {
        let mut trace = trace(0, 10_000, 700);
        let before = trace.get(number(ms(9_000)));
        trace.note(ms(10), ms(500));
        assert_eq!(trace.get(number(ms(9_000))), before);
        trace.note(Duration::MAX, ms(1));
        trace.note(Duration::MAX, ms(1));
        assert_eq!(trace.get(number(ms(9_000))), None);
    }
}
