//! The directory of one ground.

use std::collections::BTreeMap;
use std::mem::{replace, take};
use std::time::Duration;

use bentpipe_units::{BitRate, TokenBucket, TokenRate};

use crate::entry::{Claimed, Entry, EntryError, Statement};
use crate::frame::{Decoder, Frame, put_entry, put_knows};
use crate::own::Own;
use crate::peer::{Outcome, PeerState, Side, StoredEntry};
use crate::{HEADER_BYTES, Key, MAX_PEERS, Malformed, SEND_BURST_BYTES, SEND_RATE};

/// Origin of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The ground itself, which is in the own file.
    Directly {
        /// There is a stream to it now.
        is_connected: bool,
    },
    /// This neighbour passed it on.
    Through(Key),
}

/// A ground of the fleet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen<'a> {
    /// Its public key.
    pub key: Key,
    /// Origin of the statement.
    pub source: Source,
    /// Its last statement, with the time since it arrived. `None` if none counts any more.
    pub statement: Option<(&'a Statement, Duration)>,
}

/// Directory of one ground.
///
/// The caller has a stream to each neighbour, and gives the directory what it reads there. After each
/// [`receive`](Self::receive) that returns `true`, and once a second, it writes to each stream what
/// [`take`](Self::take) returns.
pub struct Directory {
    own: Own,
    /// The grounds in the own file.
    peers: BTreeMap<Key, PeerState>,
    links: BTreeMap<(Key, Side), Link>,
}

/// State of one stream.
#[derive(Default)]
struct Link {
    decoder: Decoder,
    /// The neighbour has the list of the grounds in the own file.
    is_greeted: bool,
    /// Grounds in the own file that are not in the neighbour's, once it has sent its list.
    relays: Vec<Key>,
    /// The one of them whose turn is next.
    next: usize,
    /// Revision of each entry that was sent.
    sent_revisions: BTreeMap<Key, u64>,
    /// The neighbour counts its versions from a lower number than before.
    is_behind: bool,
}

impl Directory {
    /// Creates the directory of the ground with these keys. `peers` are the grounds in its file, of which
    /// the first [`MAX_PEERS`] count. Versions follow `version`, which should not be lower than those of
    /// earlier processes. If it is, neighbours correct it.
    pub fn new((secret, key): ([u8; 32], Key), peers: &[Key], version: u64) -> Self {
        let others = peers.iter().filter(|peer| **peer != key).take(MAX_PEERS);
        let peers = others.map(|peer| (*peer, PeerState::default())).collect();
        Self { own: Own::new(secret, key, version), peers, links: BTreeMap::new() }
    }

    /// Signs `statement` if a version of it is due. Returns `true` if there is something to send.
    /// `random` has to be drawn for this call.
    pub fn state(&mut self, statement: &Statement, now: Duration, random: [u8; 64]) -> bool {
        self.own.state(statement, now, random)
    }

    /// Begins a stream, in place of an earlier one of the same side. Returns `false`, and changes nothing,
    /// if the neighbour is not in the own file, or if the last stream of this side began less than
    /// [`MIN_STREAM_INTERVAL`](crate::MIN_STREAM_INTERVAL) ago.
    pub fn connect(&mut self, peer: Key, side: Side, now: Duration) -> bool {
        let begins = self.peers.get_mut(&peer).is_some_and(|peer| peer.begin(side, now));
        if begins {
            self.links.insert((peer, side), Link::default());
        }
        begins
    }

    /// Ends a stream. The neighbour's entries stay until they expire.
    pub fn disconnect(&mut self, peer: Key, side: Side) {
        self.links.remove(&(peer, side));
    }

    /// Takes `bytes` that were read from a stream. Returns `true` if they changed something, so there may be
    /// something to send on any stream. After an error the stream is over.
    pub fn receive(
        &mut self,
        (peer, side): (Key, Side),
        bytes: &[u8],
        now: Duration,
    ) -> Result<bool, Malformed> {
        let Some(link) = self.links.get_mut(&(peer, side)) else { return Ok(false) };
        let mut decoder = take(&mut link.decoder);
        if let Some(state) = self.peers.get_mut(&peer) {
            state.read(bytes.len(), now);
        }
        let mut has_news = false;
        let decoded = decoder.decode(bytes, |frame| {
            has_news |= self.take_frame((peer, side), frame, now)?;
            Ok(())
        });
        if decoded.is_err() {
            self.disconnect(peer, side);
        } else if let Some(link) = self.links.get_mut(&(peer, side)) {
            link.decoder = decoder;
        }
        decoded.map(|()| has_news)
    }

    /// Time for which nothing more should be read of `peer`.
    pub fn pause(&self, peer: &Key, now: Duration) -> Duration {
        self.peers.get(peer).map(|state| state.pause(now)).unwrap_or_default()
    }

    fn take_frame(
        &mut self,
        (peer, side): (Key, Side),
        frame: Frame,
        now: Duration,
    ) -> Result<bool, Malformed> {
        let (Some(link), Some(state)) =
            (self.links.get_mut(&(peer, side)), self.peers.get_mut(&peer))
        else {
            return Ok(false);
        };
        state.charge_frame(frame.length());
        let claimed = match frame {
            Frame::Knows(keys) => {
                let relays = self.peers.keys().filter(|key| **key != peer && !keys.contains(*key));
                let relays: Vec<_> = relays.copied().collect();
                let has_changed = relays != link.relays;
                if has_changed {
                    (link.relays, link.next) = (relays, 0);
                }
                return Ok(has_changed);
            }
            Frame::Entry(claimed) => claimed,
            Frame::Invalid(key, _, error) if key == peer => return Err(error.into()),
            Frame::Invalid(..) => return Ok(false),
        };
        let key = claimed.unproven().key();
        if key != peer {
            // The neighbour may pass on in good faith what is invalid here.
            let _ = self.take_relayed(peer, claimed, now);
            return Ok(false);
        }
        Ok(match state.take_own(claimed, now)? {
            Outcome::Newest => true,
            // It gets the later entry once: a stream loses nothing.
            Outcome::Old if link.sent_revisions.get(&peer) != Some(&state.revision) => {
                !replace(&mut link.is_behind, true)
            }
            Outcome::Old | Outcome::Duplicate | Outcome::Refused => false,
        })
    }

    /// Takes an entry that neighbour `from` has about another ground, or about this one.
    fn take_relayed(
        &mut self,
        from: Key,
        claimed: Claimed,
        now: Duration,
    ) -> Result<(), EntryError> {
        let key = claimed.unproven().key();
        if key == self.own.key {
            // An earlier process has signed it.
            if self.own.is_before(claimed.unproven()) {
                self.own.note_later(&claimed.verify()?);
            }
            return Ok(());
        }
        if self.peers.contains_key(&key) {
            // It speaks for itself.
            return Ok(());
        }
        if let Some(state) = self.peers.get_mut(&from) {
            state.take_other(claimed, now)?;
        }
        Ok(())
    }

    /// Returns the bytes to write to a stream now; empty if there are none, or if they would be too many.
    pub fn take(&mut self, (peer, side): (Key, Side), now: Duration) -> Vec<u8> {
        let rate = share(self.connected());
        let Some(link) = self.links.get_mut(&(peer, side)) else { return Vec::new() };
        let Some(state) = self.peers.get_mut(&peer) else { return Vec::new() };
        let mut output = Output { budget: take(&mut state.output), rate, now, bytes: Vec::new() };
        if !link.is_greeted {
            link.is_greeted = output.put(|bytes| put_knows(self.peers.keys(), bytes));
        }
        if link.is_greeted {
            link.put_entries(&mut output, (&self.own, peer), &self.peers);
        }
        if !output.bytes.is_empty() {
            output.budget.spend(HEADER_BYTES * 8);
        }
        if let Some(state) = self.peers.get_mut(&peer) {
            state.output = output.budget;
        }
        output.bytes
    }

    /// Number of neighbours with a stream.
    fn connected(&self) -> usize {
        let mut last = None;
        self.links.keys().filter(|(peer, _)| last.replace(*peer) != Some(*peer)).count()
    }

    /// Every ground in the own file, and every other one that somebody tells of, in the order of the keys.
    pub fn seen(&self, now: Duration) -> Vec<Seen<'_>> {
        let mut others: BTreeMap<Key, (Key, &StoredEntry)> = BTreeMap::new();
        for (neighbour, state) in &self.peers {
            let alive = state.introduced.iter().filter(|(_, stored)| stored.is_alive(now));
            for (key, stored) in alive {
                let newest = others.entry(*key).or_insert((*neighbour, stored));
                if stored.entry.order(&newest.1.entry).is_gt() {
                    *newest = (*neighbour, stored);
                }
            }
        }
        let direct = self.peers.iter().map(|(key, state)| {
            let is_connected = [Side::Ours, Side::Theirs]
                .iter()
                .any(|side| self.links.contains_key(&(*key, *side)));
            let stored = state.own.as_ref().filter(|stored| stored.is_alive(now));
            Seen {
                key: *key,
                source: Source::Directly { is_connected },
                statement: stored.map(|it| it.statement(now)),
            }
        });
        let others = others.iter().map(|(key, (neighbour, stored))| Seen {
            key: *key,
            source: Source::Through(*neighbour),
            statement: Some(stored.statement(now)),
        });
        let mut all: Vec<_> = direct.chain(others).collect();
        all.sort_by_key(|seen| seen.key);
        all
    }
}

impl Link {
    /// Appends the entries that `peer` does not have: the own one, a later one of its own, and those of
    /// its relays.
    fn put_entries(
        &mut self,
        output: &mut Output,
        (own, peer): (&Own, Key),
        peers: &BTreeMap<Key, PeerState>,
    ) {
        if let Some(entry) = &own.entry {
            self.put_entry(entry, own.revision, output);
        }
        let of_peer = peers.get(&peer).filter(|_| self.is_behind);
        if let Some((stored, revision)) =
            of_peer.and_then(|it| Some((it.own.as_ref()?, it.revision)))
        {
            self.is_behind = !self.put_entry(&stored.entry, revision, output);
        }
        for step in 0..self.relays.len() {
            let at = (self.next + step) % self.relays.len();
            let Some(state) = peers.get(&self.relays[at]) else { continue };
            let stored = state.own.as_ref().filter(|stored| stored.is_alive(output.now));
            let Some(stored) = stored else { continue };
            if !self.put_entry(&stored.entry, state.revision, output) {
                self.next = at;
                break;
            }
        }
    }

    /// Appends `entry` unless the neighbour has it. Returns `false` if it has to wait.
    fn put_entry(&mut self, entry: &Entry, revision: u64, output: &mut Output) -> bool {
        if self.sent_revisions.get(&entry.key()) == Some(&revision) {
            return true;
        }
        let is_put = output.put(|bytes| put_entry(entry, bytes));
        if is_put {
            self.sent_revisions.insert(entry.key(), revision);
        }
        is_put
    }
}

/// Bytes for a stream, within the budget of its neighbour.
struct Output {
    budget: TokenBucket,
    rate: TokenRate,
    now: Duration,
    bytes: Vec<u8>,
}

impl Output {
    /// Appends what `put` appends. Returns `false` if the budget is used up.
    fn put(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> bool {
        let is_open = self.budget.is_open(self.rate, self.now);
        if is_open {
            let before = self.bytes.len();
            put(&mut self.bytes);
            self.budget.spend((self.bytes.len() - before) as u64 * 8);
        }
        is_open
    }
}

/// Rate of each of `count` neighbours.
fn share(count: usize) -> TokenRate {
    let count = count.max(1) as u64;
    TokenRate::bits(BitRate::from_bps(SEND_RATE.bps() / count), SEND_BURST_BYTES / count)
}

#[cfg(test)]
mod tests;
