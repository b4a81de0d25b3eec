//! Changes of a hub's fleet while it serves.
//!
//! An aircraft whose settings stay the same is not touched: neither its session nor its timers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bentpipe_units::BitRate;

use super::aircraft::{Aircraft, Entry};
use super::{Core, HubCore, SessionId};
use crate::key::PublicKey;

/// Aircraft of one shard, after a change.
#[derive(Debug, Clone, Default)]
pub struct ShardFleet {
    /// The shard's aircraft.
    pub aircraft: Vec<Aircraft>,
    /// Aircraft of other shards, with the numbers of these. Only shard 0 needs them.
    pub elsewhere: BTreeMap<PublicKey, usize>,
    /// Rates of the beam towards the aircraft and from them, see [`HubCore::set_beam`].
    pub beam: (Option<BitRate>, Option<BitRate>),
}

impl HubCore {
    /// Serves `fleet` from now on.
    ///
    /// - The session of a missing aircraft ends: its flows are reset, its keys are erased, and it is
    ///   told so.
    /// - A new aircraft may call.
    /// - A changed one has its rate, share and classes now. All else counts from its next session.
    ///
    /// The settings have to be checked. A beam only changes its rates; beginning and end of sharing
    /// need a new hub.
    pub fn set_fleet(&mut self, fleet: ShardFleet, now: Duration) {
        let stay: BTreeSet<PublicKey> = fleet.aircraft.iter().map(|it| it.key).collect();
        let gone: Vec<_> = self.aircraft.keys().filter(|it| !stay.contains(it)).copied().collect();
        for key in &gone {
            self.remove(key, now);
        }
        self.responder.set_elsewhere(fleet.elsewhere);
        for aircraft in fleet.aircraft {
            self.put(aircraft, now);
        }
        self.set_shares(fleet.beam, now);
    }

    fn remove(&mut self, key: &PublicKey, now: Duration) {
        if let Some(id) = self.responder.session_of(key) {
            self.say_farewell(id, now);
            self.drop_session(id);
        }
        self.aircraft.remove(key);
        self.responder.remove(key);
    }

    /// Composes the packets that tell a session's aircraft of its end, while there are keys.
    fn say_farewell(&mut self, id: SessionId, now: Duration) {
        let Some(session) = self.session(id) else { return };
        session.close();
        let (mut packets, mut packet) = (Vec::new(), Vec::new());
        while let Some(to) = session.transmit(now, &mut packet) {
            packets.push((std::mem::take(&mut packet), to));
        }
        self.farewells.extend(packets);
    }

    fn put(&mut self, aircraft: Aircraft, now: Duration) {
        let Aircraft { key, settings, highest_class } = aircraft;
        let current = self.responder.session_of(&key);
        let Some(entry) = self.aircraft.get_mut(&key) else {
            self.responder.add(key);
            self.aircraft.insert(key, Entry::new(settings, highest_class));
            return;
        };
        if *entry.newest() == settings && entry.highest_class == highest_class {
            return;
        }
        entry.highest_class = highest_class;
        let adopted = match current {
            Some(_) => entry.settings.adopting(&settings),
            None => settings.clone(),
        };
        entry.next = (adopted != settings).then(|| Box::new(settings));
        entry.settings = adopted.clone();
        // Answers with the parameters of before would begin a session with those of now.
        self.responder.forget_pending(&key);
        if let Some(session) = current.and_then(|id| self.session(id)) {
            session.limit_class(highest_class);
            session.adopt(adopted, now);
        }
    }

    /// Sets the rates of a beam in use, and the shares of the present aircraft in it.
    fn set_shares(&mut self, (forward, back): (Option<BitRate>, Option<BitRate>), now: Duration) {
        let shares = self.aircraft.iter().map(|(key, entry)| (*key, entry.settings.share));
        self.sharing.change(forward, back, shares, now);
        self.share_out(now);
    }
}
