//! Paths of a class: its spread, and its use of metered paths.

use std::cell::OnceCell;
use std::time::Duration;

use bentpipe_schedule::{Metered, PerClass, Spread};

use super::Session;
use super::path::Path;
use super::paths::Rivals;
use crate::Class;
use crate::flow::Rooms;
use crate::lane::Lane;

/// The path in hand against the others, computed once for all that goes into a packet.
pub(super) struct Race {
    /// The others for bulk of a class that uses no metered path beside them.
    pub usual: Rivals,
    /// They are the same for all classes and lanes, because no path is metered.
    is_common: bool,
}

impl Session {
    /// Returns `true` if a path carries symbols of some class: it is live, and not on standby for
    /// another one.
    pub(super) fn is_used(&self, path: &Path) -> bool {
        let uses = |metered| matches!(metered, Metered::Urgent | Metered::Always);
        let is_used_beside =
            || self.settings.classes.iter().any(|(_, class)| uses(class.paths.metered));
        self.carries(path, Metered::Standby, Lane::Bulk)
            || (path.is_live() && path.is_standby && is_used_beside())
    }

    /// Round trip of the longest live path; of the path in hand if there is none.
    pub(super) fn longest_round_trip(&self) -> Duration {
        let used = self.paths().filter(|path| self.is_used(path));
        used.map(|path| path.rtt.get()).max().unwrap_or(self.path.rtt.get())
    }

    /// Largest packet that all live paths carry.
    pub(super) fn symbol_mtu(&self) -> usize {
        let used = self.paths().filter(|path| self.is_used(path));
        used.map(|path| path.mtu.current()).min().unwrap_or(self.path.mtu.current())
    }

    /// Returns `true` if a path carries `lane` of a class with this use of metered paths.
    pub(super) fn carries(&self, path: &Path, metered: Metered, lane: Lane) -> bool {
        path.is_live() && self.pays(path, metered, lane)
    }

    /// Returns `true` if `lane` of `class` may use a path, as far as its price is concerned.
    pub(super) fn may_pay(&self, path: &Path, class: Class, lane: Lane) -> bool {
        self.pays(path, self.settings.classes[class].paths.metered, lane)
    }

    fn pays(&self, path: &Path, metered: Metered, lane: Lane) -> bool {
        let is_free = |other: &Path| other.is_live() && !other.is_standby;
        !path.is_standby
            || match metered {
                Metered::Never => false,
                Metered::Urgent if lane != Lane::Bulk => true,
                Metered::Standby | Metered::Urgent => !self.paths().any(is_free),
                Metered::Always => true,
            }
    }

    /// Returns `true` if another live path carries `lane` of `class`.
    pub(super) fn others_carry(&self, class: Class, lane: Lane) -> bool {
        let metered = self.settings.classes[class].paths.metered;
        self.others.iter().any(|path| self.carries(path, metered, lane))
    }

    /// Classes whose symbols of `lane` the path in hand or another live one may carry.
    pub(super) fn carried(&self, lane: Lane) -> PerClass<bool> {
        PerClass::new(|class| {
            self.may_pay(&self.path, class, lane) || self.others_carry(class, lane)
        })
    }

    /// Classes of which the path in hand may carry retransmissions and repairs in `lane`.
    pub(super) fn allowed(&self, lane: Lane, now: Duration) -> PerClass<bool> {
        let several = self.has_other_live();
        PerClass::new(|class| {
            let paths = self.settings.classes[class].paths;
            let is_first = || !self.rivals((paths.metered, lane), |_| 0.0, now).overtake(1);
            self.pays(&self.path, paths.metered, lane)
                && (!several || paths.spread != Spread::Fastest || is_first())
        })
    }

    /// The other live paths now; `None` if there are none.
    pub(super) fn race(&self, now: Duration) -> Option<Race> {
        self.has_other_live().then(|| Race {
            usual: self.rivals((Metered::Standby, Lane::Bulk), |_| 0.0, now),
            is_common: !self.paths().any(|path| path.is_standby),
        })
    }

    /// Lanes that accept another symbol on the path in hand, by class. `open` are those that accept
    /// one on any path.
    pub(super) fn rooms(
        &self,
        open: [bool; Lane::ALL.len()],
        race: Option<&Race>,
        now: Duration,
    ) -> Rooms {
        let is_free = match race {
            Some(race) => race.is_common && race.usual.are_later(),
            None => !self.path.is_standby,
        };
        if is_free {
            return Rooms::of_lanes(open);
        }
        let waiting = OnceCell::new();
        let wins = |choice, lane| {
            let waiting = || *waiting.get_or_init(|| self.waiting_bytes());
            open[lane as usize] && self.wins(choice, lane, race, waiting, now)
        };
        let lane_of = |lane: Lane| {
            let mut known: Option<((Spread, Metered), bool)> = None;
            PerClass::new(|class| {
                let paths = self.settings.classes[class].paths;
                let choice = (paths.spread, paths.metered);
                // Most classes have the same choice.
                match known {
                    Some((before, has_room)) if before == choice => has_room,
                    _ => {
                        let has_room = wins(choice, lane);
                        known = Some((choice, has_room));
                        has_room
                    }
                }
            })
        };
        let lanes = Lane::ALL.map(lane_of);
        let control = wins((Spread::All, Metered::Standby), Lane::Urgent);
        Rooms { lanes, control }
    }

    /// Returns `true` if the next new symbol of a class with this choice should go on the path in
    /// hand, because the other paths would not have delivered all that waits before it arrives.
    /// `waiting` returns the urgent bytes and all.
    fn wins(
        &self,
        (spread, metered): (Spread, Metered),
        lane: Lane,
        race: Option<&Race>,
        waiting: impl FnOnce() -> (u64, u64),
        now: Duration,
    ) -> bool {
        if !self.pays(&self.path, metered, lane) {
            return false;
        }
        let Some(race) = race.filter(|_| spread != Spread::Each) else { return true };
        let rivals = match race.is_common {
            true => race.usual,
            false => self.rivals((metered, lane), |_| 0.0, now),
        };
        !rivals.overtake_all(|| match (spread, lane) {
            // Datagrams have no end that others could wait for, and their order matters.
            (Spread::Fastest, _) | (_, Lane::Datagram) => 1,
            (_, Lane::Urgent) => waiting().0,
            (_, Lane::Bulk) => waiting().1,
        })
    }
}
