//! Reactions of the learner to a queue and to losses.

use std::time::Duration;

use super::arrivals::Passage;
use super::cross_traffic::MIN_NOISE;
use super::loss::Excess;
use super::packets::{PACKET_BYTES, bytes_in};
use super::{AFTER_QUEUE, Learner, trains};
use crate::lease::Observation;

/// Share after losses beyond the channel's.
const AFTER_CUT: f64 = 0.985;
/// The same once a policer is suspected: its bucket makes the arrival rate too high.
const AFTER_POLICER: f64 = 0.965;
/// Round trips without such losses after which the first share is used again.
const QUIET_ROUND_TRIPS: u32 = 20;
/// Time and packets over which the arrival rate in a queue is measured.
const QUEUE_SPAN: Duration = Duration::from_millis(60);
const QUEUE_PACKETS: u64 = 12;
/// Share of the capacity below which packets say nothing about it …
const MIN_BUSY: f64 = 0.5;
/// … unless they were sent this much faster than they arrived …
const GROWING: f64 = 1.15;
/// … for this time.
const GROWING_SPAN: Duration = Duration::from_secs(1);
/// Maximum wait of data for a drain, in round trips beyond the queue.
const MAX_DRAIN: f64 = 1.5;

impl Learner {
    /// Lowers the capacity to what arrives in a queue, and lets the queue drain.
    pub(super) fn drain(&mut self, now: Duration) {
        let Some(capacity) = self.capacity_bps else { return };
        self.cross_traffic.note_capacity(capacity, now);
        let packets = Duration::from_secs_f64((QUEUE_PACKETS * PACKET_BYTES * 8) as f64 / capacity);
        let span = QUEUE_SPAN.max(packets);
        // A pause of ours before would look like a low rate.
        let Some(passage) = self.arrivals.last_sent_from(span, self.resumed_at) else { return };
        let arrived = if passage.sent_bps < MIN_BUSY * capacity {
            // Little data arrives slowly on any path: an end was late, or others have a queue. It grows
            // for long if the path carries even less.
            let grows = |it: &Passage| it.sent_bps > GROWING * it.arrived_bps;
            self.arrivals.last(GROWING_SPAN).filter(grows).map_or(capacity, |it| it.arrived_bps)
        } else {
            passage.arrived_bps
        };
        let arrived = arrived.min(capacity);
        self.capacity_bps = Some(arrived);
        self.measured_at = now;
        self.share = AFTER_QUEUE;
        let fits = bytes_in(arrived, self.loaded_rtt());
        let excess = self.flight.unreported_bytes().saturating_sub(fits);
        let most = self.queue.newest() + self.rtt.mul_f64(MAX_DRAIN);
        let wait = Duration::from_secs_f64(8.0 * excess as f64 / arrived);
        // Jitter makes the arrival rate too high at times, so that too little would be waited for.
        let least = if self.noise() > MIN_NOISE { self.queue.newest() } else { Duration::ZERO };
        let wait = wait.max(least).min(most);
        let until = now + wait;
        tracing::debug!(queue = ?self.queue.newest(), arrived, ?wait, "a queue");
        self.pause_until(until);
        self.settled_at = until;
        self.queue.drained(until);
        self.postpone_train(until);
        self.siblings.drain_began = true;
    }

    /// Lowers the capacity because more was lost than the channel loses.
    pub(super) fn cut(&mut self, excess: Excess, seen: &Observation) {
        let Some(capacity) = self.capacity_bps else { return };
        tracing::debug!(?excess, capacity, "losses beyond the channel's");
        self.capacity_bps = Some(excess.capacity_bps.min(capacity));
        self.is_confirmed = true;
        self.measured_at = seen.now;
        let is_known = self.policer.is_suspected(seen.now);
        self.share = if is_known { AFTER_POLICER } else { AFTER_CUT };
        self.settled_at = seen.now;
        self.loss.skip_until(seen.now);
        self.grants.interrupt(self.rtt, seen.now);
        self.postpone_train(seen.now);
        self.trains.next_at(self.policer.cut(excess.capacity_bps, self.rtt, seen.now));
    }

    /// Sends a little more once a cut has ended the losses.
    pub(super) fn relax_after_cut(&mut self, now: Duration) {
        let is_quiet = now > self.settled_at + self.rtt * QUIET_ROUND_TRIPS;
        if self.is_confirmed && self.share <= AFTER_POLICER && is_quiet {
            self.share = AFTER_CUT;
        }
    }

    /// Gives the present train up. The next one is sent an interval after `from`.
    fn postpone_train(&mut self, from: Duration) {
        self.trains.give_up();
        self.trains.be_careful();
        self.trains.next_at(from + trains::interval(self.rtt));
    }
}
