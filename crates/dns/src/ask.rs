//! Questions under way to the ground, how long each may take, and who waits for it.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use crate::key::Key;
use crate::limit::{self, network, part_of_network};
use crate::query::{Query, Room};
use crate::share::{Held, Holders, Holding, Source};

/// Time for the first question's answer, before it is sent again.
const FIRST_WAIT: Duration = Duration::from_millis(1500);

/// However quick answers are, and however slow.
const LEAST_WAIT: Duration = Duration::from_millis(300);
const MOST_WAIT: Duration = Duration::from_secs(3);

/// A question is sent this often in all: with one packet in ten lost each way, one question in
/// 800 is lost for good. The ground answers what it has got already once.
const TRIES: u32 = 4;

/// A question is given up after this: the ground's ten seconds for names whose servers are slow,
/// and two round trips.
pub const GIVE_UP: Duration = Duration::from_secs(12);

/// One whose answer did not fit into a datagram has at least so much left to come over a stream,
/// which is not sent again: the transport sees to it.
const STREAM_WAIT: Duration = Duration::from_secs(3);

/// Clients that wait for one question; the next is told that there is no room. All of a cabin may
/// when the link comes up and each device looks for its portal. Of one network of IPv6 768 may.
const MOST_WAITING: usize = 1024;

/// Waiters of one client among them. An address of IPv4 is often a whole cabin behind NAT, all of whose
/// devices ask for the same portal when the link comes up. A waiter costs some 600 bytes and no question.
const MAX_OF_ONE: usize = MOST_WAITING / 2;

/// Memory of all waiting clients: some 13,000 of them, each with its name twice, its return path
/// and, on a stream, the waiting task. Beyond it, the client with most gives up its oldest.
const MOST_WAITING_BYTES: usize = 8 << 20;

/// Memory of one waiting client in addition to its names.
const WAITING_BYTES: usize = 512;

/// Questions of one client, a page's, of which none ends for another's while its answer may be under way.
/// What it has beyond them may.
const PROTECTED: usize = 32;

/// The same of what it waits with.
const PROTECTED_BYTES: usize = PROTECTED * WAITING_BYTES;

/// Client that waits for an answer.
pub struct Waiting<C> {
    /// Identifier of the client.
    pub client: C,
    /// Source of its question.
    pub source: Source,
    /// Its question.
    pub query: Query,
    /// Maximum size of its answer.
    pub room: Room,
    /// Since when it waits.
    pub since: Duration,
}

impl<C> Waiting<C> {
    fn held(&self) -> Held {
        Held { questions: 0, bytes: self.bytes() }
    }

    fn bytes(&self) -> usize {
        WAITING_BYTES + self.query.spelled.len() + self.query.key.as_bytes().len()
    }

    /// Address that counts as the client.
    fn client(&self) -> IpAddr {
        limit::client(self.source.ip())
    }

    /// Returns `true` if this is the same datagram once more.
    fn repeats(&self, earlier: &Self) -> bool {
        matches!(self.source, Source::Datagram { .. })
            && (self.source, &self.query) == (earlier.source, &earlier.query)
    }
}

/// A question under way.
const ONE: Held = Held { questions: 1, bytes: 0 };

/// Place in which a client may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// There is room for it.
    Free,
    /// It waits already.
    Taken,
    /// Too many wait for its question.
    None,
}

/// A question under way.
pub struct Ask<C> {
    pub key: Key,
    /// Clients that wait for it.
    pub waiting: Vec<Waiting<C>>,
    /// Client that began it; `None` if it was asked ahead of any query.
    asker: Option<IpAddr>,
    over_stream: bool,
    tries: u32,
    began: Duration,
    /// Until then its answer may well be under way.
    young_until: Duration,
    due: Duration,
}

impl<C> Ask<C> {
    /// Returns `true` if it was asked ahead of any query.
    pub fn is_ahead(&self) -> bool {
        self.asker.is_none()
    }

    /// Client that began it.
    pub fn asker(&self) -> Option<IpAddr> {
        self.asker
    }

    /// The client that has most waiters here, if it still has no less than one that has `own` and takes a
    /// place of it.
    fn richest(&self, own: usize) -> Option<IpAddr> {
        let mut counts = HashMap::<IpAddr, usize>::new();
        for waiting in &self.waiting {
            *counts.entry(waiting.client()).or_default() += 1;
        }
        // By address too, so that the same one gives whatever the order of the table.
        let (richest, most) = counts.into_iter().max_by_key(|(ip, count)| (*count, *ip))?;
        (most >= own + 2).then_some(richest)
    }
}

/// All of them.
pub struct Asks<C> {
    asks: HashMap<u16, Ask<C>>,
    by_key: HashMap<Key, u16>,
    timers: BTreeSet<(Duration, u16)>,
    next_id: u16,
    round_trip: RoundTrip,
    holders: Holders,
}

/// Result of a timer.
pub enum Late<C> {
    /// It is to be sent again.
    Again(u16),
    /// Nothing came.
    Over(Ask<C>),
}

impl<C> Asks<C> {
    pub fn new() -> Self {
        let (asks, by_key, timers, next_id, holders) = Default::default();
        let round_trip = RoundTrip::default();
        Self { asks, by_key, timers, next_id, round_trip, holders }
    }

    /// Returns `true` if there is a question about `key`.
    pub fn is_about(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    pub fn get(&self, id: u16) -> Option<&Ask<C>> {
        self.asks.get(&id)
    }

    /// Any one that is under way.
    pub fn any(&self) -> Option<u16> {
        self.timers.first().map(|(_, id)| *id)
    }

    /// Returns `true` if `asker` may begin one, with `most` in all. Questions without a client
    /// leave half of the places to those with one.
    pub fn may_begin(&self, asker: Option<IpAddr>, most: usize) -> bool {
        let free = most.saturating_sub(self.asks.len());
        let Some(asker) = asker else { return free > most / 2 };
        free > 0 && !self.is_network_full(asker, most)
    }

    /// Returns `true` if the network of `asker` has its full part of `most` questions.
    fn is_network_full(&self, asker: IpAddr, most: usize) -> bool {
        let held = network(asker).map_or(0, |network| self.holders.of_network(network).questions);
        held >= part_of_network(most)
    }

    /// Ends a question so that `client` may begin one, where there may be `most`: of whoever has most under
    /// way, and more than `client`; and where its network has all that it may, one of that network else, as
    /// addresses cost nothing there. The oldest, and none whose answer may be under way, but of who has
    /// more than [`PROTECTED`].
    pub fn oust(&mut self, client: IpAddr, most: usize, now: Duration) -> Option<Ask<C>> {
        let within = network(client).filter(|_| self.is_network_full(client, most));
        let own = self.holders.of(client).questions;
        let may_end_any = within.is_some() && own < PROTECTED;
        let has_greedy = self.holders.most(|held| held.questions) > PROTECTED;
        // How much the asker has, where that is what it is ended for.
        let rank = |ask: &Ask<C>| {
            let is_old = ask.young_until <= now;
            let asker = ask.asker.filter(|_| is_old || has_greedy)?;
            if within.is_some() && network(asker) != within {
                return None;
            }
            let held = self.holders.of(asker).questions;
            let is_richer = held >= own + 2;
            match is_old || held > PROTECTED {
                true if is_richer => Some(held),
                true if is_old && may_end_any => Some(0),
                _ => None,
            }
        };
        let ranked = self.asks.iter();
        let ranked = ranked.filter_map(|(id, ask)| Some((rank(ask)?, Reverse((ask.began, *id)))));
        let (_, Reverse((_, id))) = ranked.max()?;
        self.end(id, None)
    }

    /// Begins one about `key`, of which there is none, and gives its id. There have to be fewer than
    /// 65,536.
    pub fn begin(&mut self, key: Key, asker: Option<IpAddr>, now: Duration) -> u16 {
        while self.asks.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let due = now + self.round_trip.patience();
        let (waiting, over_stream, tries) = (Vec::new(), false, 1);
        let (began, young_until) = (now, due);
        let ask =
            Ask { key: key.clone(), waiting, asker, over_stream, tries, began, young_until, due };
        self.asks.insert(id, ask);
        self.by_key.insert(key, id);
        self.timers.insert((due, id));
        if let Some(client) = asker {
            self.holders.take(client, ONE);
        }
        id
    }

    /// Place in which `waiting` may wait, if or if not its question is in progress.
    pub fn place(&self, waiting: &Waiting<C>) -> Place {
        let id = self.by_key.get(&waiting.query.key);
        let Some(ask) = id.and_then(|id| self.asks.get(id)) else { return Place::Free };
        let of_one = |earlier: &&Waiting<C>| earlier.client() == waiting.client();
        if ask.waiting.iter().any(|earlier| waiting.repeats(earlier)) {
            return Place::Taken;
        }
        let network = network(waiting.source.ip());
        let of_network = |earlier: &&Waiting<C>| limit::network(earlier.source.ip()) == network;
        let count_network = || ask.waiting.iter().filter(of_network).count();
        let own = ask.waiting.iter().filter(of_one).count();
        let is_full = own >= MAX_OF_ONE
            || network.is_some() && count_network() >= part_of_network(MOST_WAITING)
            || ask.waiting.len() >= MOST_WAITING && ask.richest(own).is_none();
        if is_full { Place::None } else { Place::Free }
    }

    /// `waiting` has a place, and waits for the question about its key, which is under way. Gives back
    /// who waits no more for want of memory: others, as many as its name is longer than theirs, or
    /// `waiting` itself; and who gave up its place, if all are taken.
    pub fn join(&mut self, waiting: Waiting<C>) -> Vec<Waiting<C>> {
        let mut ousted = Vec::from_iter(self.make_place(&waiting));
        let ip = waiting.source.ip();
        while let Some(within) = self.full(&waiting) {
            let Some(one) = self.oust_waiting(&waiting, within) else {
                ousted.push(waiting);
                return ousted;
            };
            ousted.push(one);
        }
        let id = self.by_key.get(&waiting.query.key);
        if let Some(ask) = id.and_then(|id| self.asks.get_mut(id)) {
            self.holders.take(ip, waiting.held());
            ask.waiting.push(waiting);
        }
        ousted
    }

    /// Takes a place for `waiting` from the client that has most of the same question, if all are taken.
    fn make_place(&mut self, waiting: &Waiting<C>) -> Option<Waiting<C>> {
        let id = self.by_key.get(&waiting.query.key)?;
        let ask = self.asks.get_mut(id).filter(|ask| ask.waiting.len() >= MOST_WAITING)?;
        let own = ask.waiting.iter().filter(|earlier| earlier.client() == waiting.client());
        let richest = ask.richest(own.count())?;
        // They stand as they have come.
        let oldest = ask.waiting.iter().position(|earlier| earlier.client() == richest)?;
        let ousted = ask.waiting.remove(oldest);
        self.holders.give(ousted.source.ip(), ousted.held());
        Some(ousted)
    }

    /// Checks the memory for `waiting`. If there is none, returns the network in which, or `None`
    /// inside for all.
    fn full(&self, waiting: &Waiting<C>) -> Option<Option<u64>> {
        let more = |held: usize, most: usize| held + waiting.bytes() > most;
        let network = network(waiting.source.ip());
        let is_full = |network: &u64| {
            more(self.holders.of_network(*network).bytes, part_of_network(MOST_WAITING_BYTES))
        };
        match network.filter(is_full) {
            None if !more(self.holders.bytes(), MOST_WAITING_BYTES) => None,
            within => Some(within),
        }
    }

    /// Takes the place of who has waited longest for `waiting`: in a network that has all that it may, of
    /// all in it that have waited as long as an answer takes, where `waiting` is not of a client that has
    /// much; else of those of the client that has most, and more. Who has waited less long than that stays,
    /// but of a client with more than [`PROTECTED_BYTES`].
    fn oust_waiting(&mut self, waiting: &Waiting<C>, within: Option<u64>) -> Option<Waiting<C>> {
        let (ip, patience) = (waiting.source.ip(), self.round_trip.patience());
        let is_old = |it: &Waiting<C>| it.since + patience <= waiting.since;
        let among = |ip: IpAddr| within.is_none() || network(ip) == within;
        let may_end_any = within.is_some() && self.holders.of(ip).bytes < PROTECTED_BYTES;
        let is_due = |it: &Waiting<C>| is_old(it) && among(it.source.ip());
        let oldest = may_end_any.then(|| self.longest_waiting(is_due)).flatten();
        let (id, place) = oldest.or_else(|| {
            let richest = self.holders.richest(ip, among, waiting.bytes(), |held| held.bytes)?;
            let has_much = self.holders.of(richest).bytes > PROTECTED_BYTES;
            self.longest_waiting(|it| it.client() == richest && (has_much || is_old(it)))
        })?;
        let ousted = self.asks.get_mut(&id)?.waiting.remove(place);
        self.holders.give(ousted.source.ip(), ousted.held());
        Some(ousted)
    }

    /// Client that has waited longest among those that are `among`: its question, and its place
    /// there.
    fn longest_waiting(&self, among: impl Fn(&Waiting<C>) -> bool) -> Option<(u16, usize)> {
        // For one question they stand as they have come.
        let of_one = |(id, ask): (&u16, &Ask<C>)| {
            let place = ask.waiting.iter().position(&among)?;
            Some((ask.waiting[place].since, *id, place))
        };
        let (_, id, place) = self.asks.iter().filter_map(of_one).min()?;
        Some((id, place))
    }

    /// It did not fit into a datagram: it is asked over a stream now. False where it is already.
    pub fn over_stream(&mut self, id: u16, now: Duration) -> bool {
        let patience = self.round_trip.patience();
        let Some(ask) = self.asks.get_mut(&id).filter(|ask| !ask.over_stream) else { return false };
        ask.over_stream = true;
        self.timers.remove(&(ask.due, id));
        ask.due = (ask.began + GIVE_UP).max(now + STREAM_WAIT);
        ask.young_until = now + patience;
        self.timers.insert((ask.due, id));
        true
    }

    /// It is over. `answered` tells how long answers take.
    pub fn end(&mut self, id: u16, answered: Option<Duration>) -> Option<Ask<C>> {
        let ask = self.asks.remove(&id)?;
        self.by_key.remove(&ask.key);
        self.timers.remove(&(ask.due, id));
        if let Some(client) = ask.asker {
            self.holders.give(client, ONE);
        }
        for waiting in &ask.waiting {
            self.holders.give(waiting.source.ip(), waiting.held());
        }
        // Which of several an answer is to, nobody knows (Karn).
        if let Some(now) = answered.filter(|_| ask.tries == 1 && !ask.over_stream) {
            self.round_trip.took(now.saturating_sub(ask.began));
        }
        Some(ask)
    }

    /// Holdings of the client at `ip` and of the largest holder, with `most` questions in all.
    pub fn holding(&self, ip: IpAddr, most: usize) -> Holding {
        let (own, largest) = (self.holders.of(ip).questions, self.holders.largest());
        Holding { own, all: self.asks.len(), most, largest }
    }

    pub fn next_timer(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// One that has taken too long.
    pub fn late(&mut self, now: Duration) -> Option<Late<C>> {
        let (at, id) = self.timers.first().copied().filter(|(at, _)| *at <= now)?;
        let patience = self.round_trip.patience();
        let ask = self.asks.get_mut(&id)?;
        let over = ask.began + GIVE_UP;
        if ask.over_stream || ask.tries >= TRIES || at >= over {
            return self.end(id, None).map(Late::Over);
        }
        self.timers.remove(&(at, id));
        // Twice as long each time; what was sent last has all the time that is left.
        let wait = (patience * (1 << ask.tries)).min(MOST_WAIT);
        ask.tries += 1;
        ask.due = if ask.tries >= TRIES { over } else { over.min(now + wait) };
        self.timers.insert((ask.due, id));
        Some(Late::Again(id))
    }

    /// Number of questions.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.asks.len()
    }

    /// Clients that wait, and the bytes they take.
    #[cfg(test)]
    pub fn waiting(&self) -> (usize, usize) {
        (self.asks.values().map(|ask| ask.waiting.len()).sum(), self.holders.bytes())
    }
}

/// Estimate of the round trip: RFC 6298, with bounds of our own.
#[derive(Default)]
struct RoundTrip {
    /// The smoothed time and its deviation.
    known: Option<(Duration, Duration)>,
}

impl RoundTrip {
    fn took(&mut self, time: Duration) {
        self.known = Some(match self.known {
            None => (time, time / 2),
            Some((mean, deviation)) => {
                ((mean * 7 + time) / 8, (deviation * 3 + mean.abs_diff(time)) / 4)
            }
        });
    }

    fn patience(&self) -> Duration {
        let wait = self.known.map_or(FIRST_WAIT, |(mean, deviation)| mean + 4 * deviation);
        wait.clamp(LEAST_WAIT, MOST_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{key, query};
    use hickory_proto::rr::RecordType;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn patience_follows_the_link() {
        let mut asks = Asks::<()>::new();
        for n in 0..50 {
            let key = key(&query(&format!("n{n}.test."), RecordType::A));
            let id = asks.begin(key, None, ms(n * 1000));
            asks.end(id, Some(ms(n * 1000 + 760)));
        }
        let patience = asks.round_trip.patience();
        assert!((ms(760)..ms(800)).contains(&patience), "{patience:?}");
        assert_eq!((asks.len(), asks.timers.len(), asks.by_key.len()), (0, 0, 0));
    }

    #[test]
    fn what_is_lost_is_sent_again_and_given_up() {
        let mut asks = Asks::<()>::new();
        let id = asks.begin(key(&query("a.test.", RecordType::A)), None, ms(0));
        let mut sent_at = vec![];
        let over = loop {
            let now = asks.next_timer().unwrap();
            match asks.late(now) {
                Some(Late::Again(again)) => {
                    assert_eq!(again, id);
                    sent_at.push(now);
                }
                Some(Late::Over(_)) => break now,
                None => panic!("a timer that is not due"),
            }
        };
        assert_eq!((sent_at, over), (vec![ms(1500), ms(4500), ms(7500)], ms(12_000)));
    }
}
