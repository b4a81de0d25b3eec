//! Outages of a path: their probes, and what interfaces and modems report of it.

use std::time::Duration;

use super::volume::Volume;

/// Interval of probes in an outage, as a part of its length, so that a return is noticed soon …
const PROBE_INTERVAL_PART: u32 = 10;
/// … its minimum on short paths; on long ones it is a round trip …
const MIN_PROBE_INTERVAL: Duration = Duration::from_millis(20);
/// … and its maximum.
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// Report of the interface or the modem of a path.
#[derive(Debug, Clone, Copy, Default)]
pub struct News {
    /// The aircraft cannot use the path.
    pub is_down: bool,
    /// Number of packets of this path that still have to report news of the session's paths …
    pub left: u8,
    /// … and the earliest time of the next.
    pub next_at: Duration,
    /// Time of the last news that the path may work again …
    pub returned_at: Duration,
    /// … and of the last probe that such news caused.
    pub probed_at: Duration,
}

/// An outage: data has stopped, and probes are sent, less and less often.
#[derive(Debug, Clone, Copy)]
pub struct Outage {
    pub since: Duration,
    pub probe_at: Duration,
    pub min_interval: Duration,
    /// The last probe carried no symbol, so that it was small.
    pub bare: bool,
}

impl Outage {
    /// Begins an outage of a path with the round trip `rtt`.
    pub fn new(rtt: Duration, now: Duration) -> Self {
        let min_interval = rtt.max(MIN_PROBE_INTERVAL);
        Self { since: now, probe_at: now, min_interval, bare: true }
    }

    /// Sets the time of the probe after that of `now`. After news that the path may work again, probes
    /// are as frequent as in a new outage.
    pub fn next_probe(&mut self, news: &mut News, volume: &Volume, now: Duration) {
        let max = volume.max_probe_interval(MAX_PROBE_INTERVAL);
        let since = self.since.max(news.returned_at);
        let interval = (now.saturating_sub(since) / PROBE_INTERVAL_PART).min(max);
        if since > self.since && interval < self.min_interval {
            news.probed_at = now;
        }
        self.probe_at = now + interval.max(self.min_interval);
    }
}
