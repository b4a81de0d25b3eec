//! CUBIC's window (RFC 9438): a number that acknowledgements raise and congestion lowers.
//!
//! All arithmetic is in segments, as in the RFC; bytes come in and go out.

use std::time::Duration;

/// The window after a congestion event, as a share of the one before (RFC 9438, section 4.6).
const BETA: f64 = 0.7;
/// Steepness of the window's growth, in segments per second cubed (section 5.1).
const C: f64 = 0.4;
/// Segments per window of acknowledgements in the Reno-friendly region (section 4.3), until the
/// window before the last congestion event is reached again.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The window grows by no more than half of itself a round trip (section 4.2).
const MOST_GROWTH: f64 = 1.5;
/// Segments in flight at the beginning (RFC 6928; RFC 9002, section 7.2).
const INITIAL_SEGMENTS: f64 = 10.0;
/// The smallest window, in segments (RFC 9002, section 7.2).
const LEAST_SEGMENTS: f64 = 2.0;

/// The window, and what its growth follows.
#[derive(Debug, Clone)]
pub struct Cubic {
    segment_bytes: f64,
    window: f64,
    threshold: f64,
    /// The window at which the cubic has its plateau; `None` until a congestion event names one.
    plateau: Option<f64>,
    /// The window before the last congestion event.
    prior: f64,
    epoch: Option<Epoch>,
}

/// A time of congestion avoidance.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    start: Duration,
    /// Seconds from the start to the plateau: K of the RFC.
    to_plateau_s: f64,
    plateau: f64,
    /// Window that Reno would have.
    reno: f64,
}

impl Cubic {
    /// The initial window, in slow start.
    pub fn new(segment_bytes: usize) -> Self {
        Self {
            segment_bytes: segment_bytes as f64,
            window: INITIAL_SEGMENTS,
            threshold: f64::INFINITY,
            plateau: None,
            prior: INITIAL_SEGMENTS,
            epoch: None,
        }
    }

    /// Bytes that may be in flight.
    pub fn window_bytes(&self) -> u64 {
        (self.window * self.segment_bytes).round() as u64
    }

    /// The window at the beginning, in bytes.
    pub fn initial_bytes(&self) -> u64 {
        (INITIAL_SEGMENTS * self.segment_bytes) as u64
    }

    /// Returns `true` if the window grows by the delivered bytes.
    pub fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// `bytes` were delivered in slow start, a `divisor`-th of which the window grows by.
    pub fn grow_exponentially(&mut self, bytes: u64, divisor: u32) {
        let grown = self.window + bytes as f64 / self.segment_bytes / f64::from(divisor);
        self.window = grown.min(self.threshold.max(self.window));
    }

    /// Slow start ends although nothing was lost: the queue has begun to fill.
    pub fn leave_slow_start(&mut self) {
        self.threshold = self.window;
    }

    /// `bytes` were delivered in congestion avoidance.
    pub fn avoid(&mut self, bytes: u64, rtt: Duration, now: Duration) {
        let (window, plateau, prior) = (self.window, self.plateau, self.prior);
        let epoch = self.epoch.get_or_insert_with(|| Epoch::new(now, window, plateau));
        let acked = bytes as f64 / self.segment_bytes;
        let alpha = if epoch.reno >= prior { 1.0 } else { ALPHA };
        epoch.reno += alpha * acked / window;
        let target = epoch.cubic(now + rtt).clamp(window, window * MOST_GROWTH);
        self.window = if epoch.cubic(now) < epoch.reno {
            window.max(epoch.reno)
        } else {
            window + (target - window) * (acked / window).min(1.0)
        };
    }

    /// Congestion was seen with `flight_bytes` still on their way: lowers the window, once per
    /// round trip as the caller sees to.
    pub fn reduce(&mut self, flight_bytes: u64) {
        // Fast convergence (section 4.7): who could not come back to the last plateau leaves room.
        let could_not = self.plateau.is_some_and(|plateau| self.window < plateau);
        let share = if could_not { (1.0 + BETA) / 2.0 } else { 1.0 };
        self.plateau = Some(self.window * share);
        self.prior = self.window;
        // Of what is in flight, not of the window (section 4.6): with reports that tell of many
        // packets at once, a full window is always partly one that has arrived already.
        let flight = (flight_bytes as f64 / self.segment_bytes).min(self.window);
        self.window = (flight * BETA).max(LEAST_SEGMENTS);
        self.threshold = self.window;
        self.epoch = None;
    }

    /// Nothing came through for so long that what was known no longer holds (section 4.8):
    /// starts again from the smallest window.
    pub fn collapse(&mut self) {
        // A second time in a row says nothing new (RFC 5681, section 3.1).
        if self.window > LEAST_SEGMENTS {
            self.threshold = (self.window * BETA).max(LEAST_SEGMENTS);
            self.prior = self.window;
        }
        self.plateau = None;
        self.window = LEAST_SEGMENTS;
        self.epoch = None;
    }

    /// The window was not used for so long that it says little (RFC 7661, section 4.4.3).
    pub fn halve_unused(&mut self) {
        self.threshold = self.threshold.max(self.window * 0.75);
        self.window = self.window.min((self.window / 2.0).max(INITIAL_SEGMENTS));
        self.epoch = None;
    }

    /// Nothing limited by the window was sent for `idle`: that time does not count (section 5.8).
    pub fn pause(&mut self, idle: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += idle;
        }
    }

    /// Sets the window, as Careful Resume asks.
    pub fn set_window(&mut self, bytes: u64) {
        self.window = (bytes as f64 / self.segment_bytes).max(LEAST_SEGMENTS);
        self.epoch = None;
    }

    /// Sets where slow start ends, as Careful Resume asks.
    pub fn set_threshold(&mut self, bytes: u64) {
        self.threshold = (bytes as f64 * BETA / self.segment_bytes).max(LEAST_SEGMENTS);
        self.plateau = None;
    }
}

impl Epoch {
    fn new(start: Duration, window: f64, plateau: Option<f64>) -> Self {
        // Without a plateau this one is it (section 4.2: K is 0).
        let plateau = plateau.unwrap_or(window);
        let to_plateau_s = ((plateau - window).max(0.0) / C).cbrt();
        Self { start, to_plateau_s, plateau: plateau.max(window), reno: window }
    }

    /// The cubic function at `at` (Figure 1 of the RFC).
    fn cubic(&self, at: Duration) -> f64 {
        let since_s = at.saturating_sub(self.start).as_secs_f64();
        C * (since_s - self.to_plateau_s).powi(3) + self.plateau
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: usize = 1000;
    const RTT: Duration = Duration::from_millis(600);

    /// A controller in congestion avoidance after an event at 1,000 segments.
    fn reduced() -> Cubic {
        let mut cubic = Cubic::new(SEGMENT);
        cubic.set_window(1_000_000);
        cubic.reduce(1_000_000);
        cubic
    }

    /// Acknowledges whole windows, in eighths, until `span` has passed; the window each second.
    fn run(cubic: &mut Cubic, span: Duration) -> Vec<u64> {
        let (mut now, mut each_second) = (Duration::ZERO, Vec::new());
        while now < span {
            cubic.avoid(cubic.window_bytes() / 8, RTT, now);
            now += RTT / 8;
            if now.as_secs() as usize > each_second.len() {
                each_second.push(cubic.window_bytes());
            }
        }
        each_second
    }

    #[test]
    fn the_window_comes_back_to_the_plateau_when_the_rfc_says() {
        let mut cubic = reduced();
        assert_eq!(cubic.window_bytes(), 700_000);
        assert!(!cubic.in_slow_start());
        // K = cbrt(300 / 0.4) = 9.09 s; the window lags its target by about a round trip.
        let windows = run(&mut cubic, Duration::from_secs(14));
        assert!((985_000..=1_000_000).contains(&windows[8]), "{}", windows[8]);
        assert!((1_000_000..1_020_000).contains(&windows[11]), "{}", windows[11]);
        assert!(windows[12] > windows[11], "beyond the plateau it probes");
        assert!(windows.is_sorted());
    }

    #[test]
    fn a_small_window_grows_as_reno_would() {
        let mut cubic = Cubic::new(SEGMENT);
        cubic.set_window(20_000);
        cubic.reduce(20_000);
        let rtt = Duration::from_millis(10);
        for step in 0..100 {
            cubic.avoid(cubic.window_bytes(), rtt, rtt * step);
        }
        // 0.53 segments a round trip up to 20, then one: about 11 + 89 round trips.
        assert!((100_000..110_000).contains(&cubic.window_bytes()), "{}", cubic.window_bytes());
    }

    #[test]
    fn who_does_not_come_back_to_the_plateau_leaves_room() {
        let mut cubic = reduced();
        cubic.reduce(600_000);
        assert_eq!(cubic.plateau, Some(700.0 * 0.85));
        assert_eq!(cubic.window_bytes(), 420_000, "of what was in flight");
    }

    #[test]
    fn growth_is_bounded_however_long_the_pause() {
        let mut cubic = reduced();
        cubic.avoid(10_000, RTT, Duration::ZERO);
        cubic.avoid(cubic.window_bytes(), RTT, Duration::from_secs(3600));
        assert!(cubic.window_bytes() <= 1_060_000, "{}", cubic.window_bytes());
        let mut paused = reduced();
        paused.avoid(10_000, RTT, Duration::ZERO);
        let before = paused.window_bytes();
        paused.pause(Duration::from_secs(3600));
        paused.avoid(10_000, RTT, Duration::from_secs(3600));
        assert!(paused.window_bytes() - before < 5_000, "idle time does not count");
    }

    #[test]
    fn a_collapse_remembers_where_to_be_careful() {
        let mut cubic = reduced();
        cubic.collapse();
        cubic.collapse();
        assert_eq!(cubic.window_bytes(), 2_000);
        assert!(cubic.in_slow_start());
        cubic.grow_exponentially(10_000_000, 1);
        assert_eq!(cubic.window_bytes(), 490_000);
        assert!(!cubic.in_slow_start());
        let mut long_idle = Cubic::new(SEGMENT);
        long_idle.set_window(100_000);
        long_idle.halve_unused();
        assert_eq!(long_idle.window_bytes(), 50_000);
        long_idle.set_window(12_000);
        long_idle.halve_unused();
        assert_eq!(long_idle.window_bytes(), 10_000);
    }
}
