//! The kind of access in the course of each session.

use std::collections::BTreeMap;

use super::Addresses;
use crate::orbit::{Sample, Segment, WINDOW_S, segments, weigh};

/// Replies by session, window and target.
#[derive(Debug, Default)]
pub struct Access {
    windows: BTreeMap<(usize, u64), Vec<Sample>>,
    targets: BTreeMap<String, usize>,
}

impl Access {
    /// Adds a reply of a target beyond the radio.
    pub(super) fn add(&mut self, session: usize, since_start_us: u64, target: &str, rtt_us: u64) {
        let next = self.targets.len();
        let target = *self.targets.entry(target.to_owned()).or_insert(next);
        let number = since_start_us / (WINDOW_S * 1_000_000);
        let at_s = since_start_us as f64 / 1e6;
        self.windows.entry((session, number)).or_default().push(Sample { at_s, rtt_us, target });
    }

    /// Segments of a session, given the providers.
    pub(super) fn segments(&self, session: usize, addresses: &Addresses) -> Vec<Segment> {
        let own = self.windows.range((session, 0)..=(session, u64::MAX));
        let windows: Vec<_> =
            own.map(|((_, number), samples)| (*number, samples.clone())).collect();
        let mut evidence = weigh(&windows);
        for window in &mut evidence {
            // The middle of the window, so that a change near its edge counts where most pings are.
            let middle_us = (2 * window.window + 1) * WINDOW_S * 500_000;
            window.sold_as(addresses.kinds(session, middle_us));
        }
        segments(&evidence)
    }
}
