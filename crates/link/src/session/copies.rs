//! Copies of what goes on one path, on the others: of a request's end, and of classes that go on each.

use std::time::Duration;

use bentpipe_schedule::Spread;

use super::Session;
use super::copy_queue::{Copied, Original};
use super::outage::Outage;
use super::path::Path;
use super::sent::{PacketContents, SentContents};
use crate::Class;
use crate::flow::PacketCharge;
use crate::lane::Lane;
use crate::wire::frame;

/// Time for which a silent path still gets the copies of classes that go on each path: it may be the
/// report that is lost, or the path of the report. A session with one path waits as long.
const MAX_SILENCE: Duration = Duration::from_secs(2);

impl Session {
    /// Returns `true` if what `class` sends goes on each path.
    pub(super) fn goes_on_each(&self, class: Class) -> bool {
        self.settings.classes[class].paths.spread == Spread::Each
    }

    /// Queues copies of what `class` has just sent on the path in hand, if it goes on each.
    pub(super) fn copy_if_redundant(
        &mut self,
        lane: Lane,
        what: Original,
        class: Class,
        now: Duration,
    ) {
        if !self.others.is_empty() && self.goes_on_each(class) {
            self.copy_elsewhere(Copied { lane, what, class }, now);
        }
    }

    /// Queues a copy for all other live paths that the class may use. For a class that goes on each,
    /// a doubted path is as good as any, and so is one that has just become silent: the judgement may
    /// be wrong, and it may be the other path that is dead.
    pub(super) fn copy_elsewhere(&mut self, copied: Copied, now: Duration) {
        let on_each = self.goes_on_each(copied.class);
        for at in 0..self.others.len() {
            let path = &self.others[at];
            let may_use = path.is_live() || (on_each && path.may_be_alive(now));
            if may_use && self.may_pay(path, copied.class, copied.lane) {
                self.others[at].copies.push(copied);
            }
        }
    }

    /// Drops the copies on the path in hand, which may be dead, except those of classes that go on each
    /// path.
    pub(super) fn drop_copies(&mut self) {
        let classes = &self.settings.classes;
        let stays = |copied: &Copied| classes[copied.class].paths.spread == Spread::Each;
        self.path.copies.retain(stays);
    }

    /// Puts the next copy that waits for the path in hand, unless a more favoured class has data. The
    /// outcome of its packet is not the symbol's, except that its arrival is.
    pub(super) fn put_copy(&mut self, room: usize, now: Duration) -> Option<PacketContents> {
        while let Some((place, copied)) = self.path.copies.next() {
            if self.path.is_live() && self.has_more_favoured(copied.class, now) {
                return None;
            }
            let len = self.len_of(&copied);
            if len.is_some_and(|len| len > room) && !self.plaintext.is_empty() {
                // It fits into a packet of its own.
                return Some(PacketContents::default());
            }
            self.path.copies.remove(place);
            let Some(len) = len.filter(|len| *len <= room) else { continue };
            let contents = self.put_original(&copied);
            // Of a path that may be dead, losses say nothing about the channel.
            let contents = SentContents { padding: !self.path.is_live(), ..contents };
            self.counters.copies_sent += 1;
            self.counters.copy_bytes += len as u64;
            return Some((contents, Some(PacketCharge::of(copied.class))));
        }
        None
    }

    /// Returns `true` if new data of a class before `class` waits for the path in hand.
    fn has_more_favoured(&mut self, class: Class, now: Duration) -> bool {
        self.next_lane(now).is_some() && self.flows.next_class(now).is_some_and(|new| new < class)
    }

    /// Length of a copy, or `None` if the peer has reported all of it.
    fn len_of(&self, copied: &Copied) -> Option<usize> {
        match copied.what {
            Original::Symbol(number) => {
                let content = self.send.content_of(copied.lane, number)?;
                Some(frame::symbol_head_len(number) + content.len())
            }
            Original::Repair(span) => {
                let len = self.send.repair_len(copied.lane, span)?;
                Some(frame::repair_head_len(span) + len)
            }
        }
    }

    fn put_original(&mut self, copied: &Copied) -> SentContents {
        match copied.what {
            Original::Symbol(number) => {
                frame::put_symbol_head(&mut self.plaintext, copied.lane, number);
                let content = self.send.content_of(copied.lane, number).unwrap_or_default();
                self.plaintext.extend_from_slice(content);
                SentContents::of(copied.lane, number)
            }
            Original::Repair(span) => {
                frame::put_repair_head(&mut self.plaintext, copied.lane, span);
                let packet = self.path.next_id();
                self.send.repair_again(copied.lane, span, packet, &mut self.plaintext);
                SentContents { asks: true, ..SentContents::default() }
            }
        }
    }
}

impl Path {
    /// Returns `true` if the path is live, doubted, or silent for a short time.
    fn may_be_alive(&self, now: Duration) -> bool {
        let is_closed = self.volume.has_quota() && self.is_spent();
        let is_short = |outage: &Outage| now.saturating_sub(outage.since) < MAX_SILENCE;
        self.validation.is_none() && !is_closed && self.outage.as_ref().is_none_or(is_short)
    }

    /// Returns `true` if a copy waits that the path may carry now.
    pub fn has_copy(&self, now: Duration) -> bool {
        !self.copies.is_empty() && self.takes_more(now)
    }
}
