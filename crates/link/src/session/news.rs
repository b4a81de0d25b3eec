//! News of paths: what interfaces and modems report, and which paths lose at the same times.

use std::time::Duration;

use super::Session;
use super::path::Outage;
use super::paths::terms_of;
use super::sent::Outcomes;
use crate::wire::down::{DOWN_BYTES, Down};
use crate::wire::frame;
use crate::wire::header::MAX_PATHS;

/// Number of packets that report news of a path, because packets are lost.
const NEWS_PACKETS: u8 = 3;

impl Session {
    /// Notes that a path cannot send, so that no timer has to expire. The next packets on other paths tell
    /// the ground.
    pub(crate) fn path_failed(&mut self, id: u8, now: Duration) {
        if self.select(id) && self.has_other_live() && self.is_in_use() {
            self.begin_outage(now);
            self.report_news(true);
        }
        self.select_first();
    }

    /// Notes that a path may work again, so that both ends probe it at once.
    pub(crate) fn path_returned(&mut self, id: u8, now: Duration) {
        if self.select(id) {
            self.probe_now(now);
            if let Some(validation) = &mut self.path.validation {
                validation.next_try = now;
            }
            if self.path.news.is_down {
                self.report_news(false);
            }
        }
        self.select_first();
    }

    fn probe_now(&mut self, now: Duration) {
        // An aircraft cannot make the ground probe more often.
        let wait = |outage: &Outage| if self.opens { Duration::ZERO } else { outage.min_interval };
        if let Some(outage) = &mut self.path.outage {
            outage.probe_at = now.max(outage.probed_at + wait(outage));
        }
    }

    /// Reports to the ground that the aircraft can use the path in hand again, or no longer.
    fn report_news(&mut self, is_down: bool) {
        self.path.news.is_down = is_down;
        if self.opens && self.max_paths > 1 {
            self.news_number = self.news_number.wrapping_add(1);
            self.path.news.left = NEWS_PACKETS;
            self.others.iter_mut().for_each(|path| path.ping |= path.is_live());
        }
    }

    /// Length of the DOWN that [`Self::put_down`] puts.
    pub(super) fn down_bytes(&self) -> usize {
        if self.paths().any(|path| path.news.left > 0) { DOWN_BYTES } else { 0 }
    }

    /// Puts a DOWN, if there is news of a path. The path in hand is not down if the packet arrives. A
    /// path that is silent carries one next to its probe only.
    pub(super) fn put_down(&mut self) {
        let may_carry = self.path.is_live() || self.path.ping;
        // A path that a probe has revived carries again, whatever its interface reported.
        let is_down = self.path.news.is_down && self.path.outage.is_some();
        if is_down || !may_carry || self.down_bytes() == 0 {
            return;
        }
        let mut down = 0_u8;
        self.path.news.left = self.path.news.left.saturating_sub(1);
        for path in &mut self.others {
            path.news.left = path.news.left.saturating_sub(1);
            if path.news.is_down && path.outage.is_some() {
                down |= 1_u8.checked_shl(path.id.into()).unwrap_or_default();
            }
        }
        frame::put_down(&mut self.plaintext, Down { number: self.news_number, paths: down });
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
                self.begin_outage(now);
            } else if was_down && !is_down {
                self.probe_now(now);
            }
        }
        self.select(here);
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
