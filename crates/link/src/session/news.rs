//! News of paths: what interfaces and modems report, and which paths lose at the same times.

use std::time::Duration;

use super::Session;
use super::path::Path;
use super::paths::terms_of;
use super::sent::Outcomes;
use crate::wire::down::{DOWN_BYTES, Down};
use crate::wire::frame;
use crate::wire::header::MAX_PATHS;

/// Number of packets that report news on each path, because packets are lost …
const NEWS_PACKETS: u8 = 3;
/// … and their number in a round trip, because losses come in bursts.
const NEWS_PER_ROUND_TRIP: u32 = 4;

impl Session {
    /// Notes that a path cannot send, so that no timer has to expire. The next packets on other paths tell
    /// the ground.
    pub(crate) fn path_failed(&mut self, id: u8, now: Duration) {
        if self.select(id) {
            let ends = self.is_in_use() && self.has_other_live();
            if ends {
                self.begin_outage(now);
            }
            // The ground may still use a path that is silent here.
            if ends || self.path.outage.is_some() && !self.path.news.is_down {
                self.report_news(true, now);
            }
        }
        self.select_first();
    }

    /// Notes that a path may work again, so that both ends probe it at once, or that its address may be
    /// another one, which the ground learns from the next packet.
    pub(crate) fn path_returned(&mut self, id: u8, now: Duration) {
        if self.select(id) {
            self.probe_now(now);
            self.path.ping |= self.path.is_live();
            if let Some(validation) = &mut self.path.validation {
                validation.next_try = now;
            }
            if self.path.news.is_down {
                self.report_news(false, now);
            }
        }
        self.select_first();
    }

    /// Notes that the path in hand carries again, whatever was reported of it.
    pub(super) fn correct_news(&mut self, now: Duration) {
        if self.opens && self.path.news.is_down {
            self.report_news(false, now);
        }
    }

    fn probe_now(&mut self, now: Duration) {
        let (path, opens) = (&mut *self.path, self.opens);
        let Some(outage) = &mut path.outage else { return };
        path.news.returned_at = now;
        // An aircraft cannot make the ground probe more often by frequent news.
        let wait = if opens { Duration::ZERO } else { outage.min_interval };
        let at = now.max(path.news.probed_at + wait);
        if at < outage.probe_at {
            outage.probe_at = at;
            path.news.probed_at = at;
        }
    }

    /// Reports to the ground that the aircraft can use the path in hand again, or no longer.
    fn report_news(&mut self, is_down: bool, now: Duration) {
        self.path.news.is_down = is_down;
        if !self.opens || self.max_paths == 1 {
            return;
        }
        self.news_number = self.news_number.wrapping_add(1);
        self.others.iter_mut().for_each(|path| path.ping |= path.is_live());
        let others = self.others.iter_mut().map(|path| &mut **path);
        for path in others.chain([&mut *self.path]) {
            (path.news.left, path.news.next_at) = (NEWS_PACKETS, now);
        }
    }

    /// Time at which the path in hand has to report news, if it can.
    pub(super) fn news_at(&self) -> Option<Duration> {
        let path = &self.path;
        (path.news.left > 0 && path.is_live() && !path.ping).then_some(path.news.next_at)
    }

    /// Maximum length of the DOWN that [`Self::put_down`] puts.
    pub(super) fn down_bytes(&self) -> usize {
        if self.path.news.left > 0 { DOWN_BYTES } else { 0 }
    }

    /// Puts a DOWN, if it is time to report news of a path. The path in hand is not down if the packet
    /// arrives. A path that is silent carries one next to its probe only.
    pub(super) fn put_down(&mut self, now: Duration) {
        // A path that a probe has revived carries again, whatever its interface reported.
        let is_down = |path: &Path| path.news.is_down && path.outage.is_some();
        let path = &mut *self.path;
        let may_carry = !is_down(path) && (path.is_live() || path.ping);
        if !may_carry || path.news.left == 0 || now < path.news.next_at {
            return;
        }
        path.news.left -= 1;
        path.news.next_at = now + path.rtt.get() / NEWS_PER_ROUND_TRIP;
        let down = self.others.iter().filter(|path| is_down(path));
        let paths = down.fold(0, |bits, path| bits | 1_u8.checked_shl(path.id.into()).unwrap_or(0));
        frame::put_down(&mut self.plaintext, Down { number: self.news_number, paths });
    }

    /// Stops data on the paths that the aircraft cannot use, and probes those that it can use again.
    pub(super) fn take_down(&mut self, down: Down, now: Duration) {
        if down.number.wrapping_sub(self.news_number) > u8::MAX / 2 {
            return;
        }
        self.news_number = down.number;
        let here = self.path.id;
        for id in 0..self.max_paths {
            if !self.select(id) {
                continue;
            }
            let is_down = id != here && down.paths & (1 << id) != 0;
            let was_down = std::mem::replace(&mut self.path.news.is_down, is_down);
            if is_down && self.is_in_use() {
                self.begin_reported_outage(now);
            } else if was_down && !is_down {
                self.probe_now(now);
            }
        }
        self.select(here);
    }

    /// Begins an outage that the aircraft has reported. It cannot make the ground probe more often by
    /// ending it and reporting it again.
    fn begin_reported_outage(&mut self, now: Duration) {
        self.begin_outage(now);
        let path = &mut *self.path;
        if let Some(outage) = &mut path.outage {
            outage.probe_at = now.max(path.news.probed_at + outage.min_interval);
            path.news.probed_at = outage.probe_at;
        }
    }

    /// Returns `true` if the path in hand is live or doubted.
    fn is_in_use(&self) -> bool {
        self.path.outage.is_none() && (self.path.is_live() || self.path.is_doubted)
    }

    /// Notes the outcomes of packets on the path in hand.
    pub(super) fn note_losses(&mut self, outcomes: &Outcomes, now: Duration) {
        self.settle_coincidence(now);
        let (id, later) = (self.path.id, self.later_at_aircraft());
        let Some(coincidence) = &mut self.coincidence else { return };
        for packet in outcomes.judged.iter().filter(|it| !it.sent.contents.probe) {
            coincidence.note(id, packet.lost, (packet.sent.at + later).min(now));
        }
    }

    /// Notes that the path in hand has become silent.
    pub(super) fn note_silence(&mut self, now: Duration) {
        self.settle_coincidence(now);
        let (id, later) = (self.path.id, self.later_at_aircraft());
        let since = self.path.waiting_since.unwrap_or(now);
        if let Some(coincidence) = &mut self.coincidence {
            coincidence.silent(id, (since + later).min(now));
        }
    }

    /// Time from sending a packet on the path in hand until it is at the aircraft: radios fade there.
    fn later_at_aircraft(&self) -> Duration {
        if self.opens { Duration::ZERO } else { self.path.rtt.get() / 2 }
    }

    fn settle_coincidence(&mut self, now: Duration) {
        let settings = &self.settings;
        let Some(coincidence) = &mut self.coincidence else { return };
        coincidence.settle(now, |paths, are| {
            let [one, other] = paths.map(|path| terms_of(settings, path as u8).0);
            match are {
                true => tracing::info!(
                    one,
                    other,
                    ?paths,
                    "two radios lose at the same times: repairs do not prefer the other one"
                ),
                false => tracing::info!(one, other, ?paths, "two radios lose at different times"),
            }
        });
    }

    /// The first path that loses at the same times as `path`.
    pub(super) fn loses_with(&self, path: u8) -> Option<u8> {
        (0..MAX_PATHS).find(|other| self.lose_together(path, *other))
    }

    /// Returns `true` if the two paths lose at the same times.
    pub(super) fn lose_together(&self, a: u8, b: u8) -> bool {
        let coincidence = self.coincidence.as_ref();
        coincidence.is_some_and(|it| it.is_correlated(usize::from(a), usize::from(b)))
    }
}
