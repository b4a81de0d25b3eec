//! CUBIC's window (RFC 9438), which acknowledgements raise and congestion lowers.
//!
//! All arithmetic is in segments, as in the RFC; the interface is in bytes.

use std::time::Duration;

/// Window after a congestion event, relative to the one before (RFC 9438, section 4.6).
const BETA: f64 = 0.7;
/// Steepness of the window's growth, in segments per second cubed (section 5.1).
const C: f64 = 0.4;
/// Segments per window of acknowledgements in the Reno-friendly region (section 4.3), up to the
/// window before the last congestion event.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Maximum growth of the window in a round trip (section 4.2).
const MAX_GROWTH: f64 = 1.5;
/// Initial window in segments (RFC 6928; RFC 9002, section 7.2).
const INITIAL_SEGMENTS: f64 = 10.0;
/// Minimum window in segments (RFC 9002, section 7.2).
const MIN_SEGMENTS: f64 = 2.0;

/// The window, and the state of its growth.
#[derive(Debug, Clone)]
pub struct Cubic {
    segment_bytes: f64,
    window: f64,
    threshold: f64,
    /// Window at the cubic's plateau; `None` before the first congestion event.
    plateau: Option<f64>,
    /// Window before the last congestion event.
    prior: f64,
    epoch: Option<Epoch>,
}

/// An epoch of congestion avoidance.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    start: Duration,
    /// Seconds from the start to the plateau: K in the RFC.
    to_plateau_s: f64,
    plateau: f64,
    /// Window that Reno would have.
    reno: f64,
}

impl Cubic {
    /// Creates the initial window, in slow start.
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

    /// Initial window in bytes.
    pub fn initial_bytes(&self) -> u64 {
        (INITIAL_SEGMENTS * self.segment_bytes) as u64
    }

    /// Returns `true` in slow start.
    pub fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Grows the window in slow start by `bytes` delivered, divided by `divisor`.
    pub fn grow_exponentially(&mut self, bytes: u64, divisor: u32) {
        let grown = self.window + bytes as f64 / self.segment_bytes / f64::from(divisor);
        self.window = grown.min(self.threshold.max(self.window));
    }

    /// Ends slow start without a loss, because the queue has begun to fill.
    pub fn leave_slow_start(&mut self) {
        self.threshold = self.window;
    }

    /// Returns to slow start, because earlier losses were not congestion.
    pub fn resume_slow_start(&mut self) {
        self.threshold = f64::INFINITY;
        self.plateau = None;
        self.epoch = None;
    }

    /// Grows the window in congestion avoidance for `bytes` delivered.
    pub fn avoid(&mut self, bytes: u64, rtt: Duration, now: Duration) {
        let (window, plateau, prior) = (self.window, self.plateau, self.prior);
        let epoch = self.epoch.get_or_insert_with(|| Epoch::new(now, window, plateau));
        let acked = bytes as f64 / self.segment_bytes;
        let alpha = if epoch.reno >= prior { 1.0 } else { ALPHA };
        epoch.reno += alpha * acked / window;
        let target = epoch.cubic(now + rtt).clamp(window, window * MAX_GROWTH);
        self.window = if epoch.cubic(now) < epoch.reno {
            window.max(epoch.reno)
        } else {
            window + (target - window) * (acked / window).min(1.0)
        };
    }

    /// Lowers the window after congestion with `flight_bytes` in flight. The caller calls it once
    /// per round trip.
    pub fn reduce(&mut self, flight_bytes: u64) {
        // Fast convergence (section 4.7): a flow that did not return to the last plateau leaves
        // room.
        let could_not = self.plateau.is_some_and(|plateau| self.window < plateau);
        let share = if could_not { (1.0 + BETA) / 2.0 } else { 1.0 };
        self.plateau = Some(self.window * share);
        self.prior = self.window;
        // Relative to the bytes in flight, not to the window (section 4.6). Because a report covers
        // many packets, part of a full window has always arrived already.
        let flight = (flight_bytes as f64 / self.segment_bytes).min(self.window);
        self.window = (flight * BETA).max(MIN_SEGMENTS);
        self.threshold = self.window;
        self.epoch = None;
    }

    /// Starts again from the minimum window after persistent congestion or a timeout (section 4.8).
    pub fn collapse(&mut self) {
        // A second collapse in a row shows nothing new (RFC 5681, section 3.1).
        if self.window > MIN_SEGMENTS {
            self.threshold = (self.window * BETA).max(MIN_SEGMENTS);
            self.prior = self.window;
        }
        self.plateau = None;
        self.window = MIN_SEGMENTS;
        self.epoch = None;
    }

    /// Halves a window that was not used for a long time (RFC 7661, section 4.4.3).
    pub fn halve_unused(&mut self) {
        self.threshold = self.threshold.max(self.window * 0.75);
        self.window = self.window.min((self.window / 2.0).max(INITIAL_SEGMENTS));
        self.epoch = None;
    }

    /// Excludes `idle` from the growth, because the window did not limit sending (section 5.8).
    pub fn pause(&mut self, idle: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += idle;
        }
    }

    /// Keeps a window of at least `bytes`.
    pub fn keep_window(&mut self, bytes: u64) {
        self.window = self.window.max(bytes as f64 / self.segment_bytes);
    }

    /// Sets the window, for Careful Resume.
    pub fn set_window(&mut self, bytes: u64) {
        self.window = (bytes as f64 / self.segment_bytes).max(MIN_SEGMENTS);
        self.epoch = None;
    }

    /// Sets the slow-start threshold, for Careful Resume.
    pub fn set_threshold(&mut self, bytes: u64) {
        self.threshold = (bytes as f64 * BETA / self.segment_bytes).max(MIN_SEGMENTS);
        self.plateau = None;
    }
}

impl Epoch {
    fn new(start: Duration, window: f64, plateau: Option<f64>) -> Self {
        // Without a plateau, this window is the plateau (section 4.2: K is 0).
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

    /// Returns a controller in congestion avoidance after an event at 1,000 segments.
    fn reduced() -> Cubic {
        let mut cubic = Cubic::new(SEGMENT);
        cubic.set_window(1_000_000);
        cubic.reduce(1_000_000);
        cubic
    }

    /// Acknowledges whole windows, in eighths, for `span`. Returns the window at each second.
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
    fn the_window_returns_to_the_plateau_after_k_seconds() {
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
    fn a_flow_that_does_not_return_to_the_plateau_leaves_room() {
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
    fn a_collapse_keeps_the_slow_start_threshold() {
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
