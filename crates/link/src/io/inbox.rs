//! Datagrams on their way from the reader to a shard.
//!
//! Every sender may hold four times as much of an inbox as it leaves free: a lone aircraft four
//! fifths, each of two four ninths. So several that send too much leave room for everybody else. All
//! strangers together are one sender, with a small share: nobody knows who they are, and their
//! handshakes are repeated.

use std::task::{Context, Waker};

use parking_lot::Mutex;

use super::receive::Origin;
use crate::endpoint::Sender;

/// Maximum cost of what waits in an inbox: 16 ms of 1 Gbit/s while the shard is busy. A shard has
/// another of this size at work, so that 16 shards take 64 MiB at most.
const MAX_INBOX_BYTES: usize = 2 << 20;
/// A sender's maximum cost, relative to what is free.
const MAX_OF_FREE: usize = 4;
/// Maximum cost of strangers' handshakes that wait: some 600.
const MAX_STRANGERS_BYTES: usize = MAX_INBOX_BYTES / 16;
/// Cost of an entry in addition to its bytes.
const ENTRY_BYTES: usize = size_of::<Entry>();

/// Datagrams of equal length from one address; the last may be shorter.
#[derive(Debug, Clone, Copy)]
struct Entry {
    bytes: usize,
    stride: usize,
    origin: Origin,
}

/// Datagrams in order. The bytes of all entries lie in one buffer, which is used again.
#[derive(Debug, Default)]
pub struct Mail {
    entries: Vec<Entry>,
    contents: Vec<u8>,
}

impl Mail {
    /// Every datagram, with its origin.
    pub fn datagrams(&self) -> impl Iterator<Item = (&[u8], Origin)> {
        let mut rest = &self.contents[..];
        self.entries.iter().flat_map(move |entry| {
            let (these, others) = rest.split_at(entry.bytes);
            rest = others;
            these.chunks(entry.stride).map(|datagram| (datagram, entry.origin))
        })
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.contents.clear();
    }

    fn cost(&self) -> usize {
        self.contents.len() + self.entries.len() * ENTRY_BYTES
    }
}

/// Inbox of a shard. The shard's own lock, which flows wait for, is not needed for it.
#[derive(Debug, Default)]
pub struct Inbox(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    mail: Mail,
    /// Cost of each aircraft's datagrams, by its number.
    of_aircraft: Vec<usize>,
    of_strangers: usize,
    driver: Option<Waker>,
}

impl State {
    /// Cost of the sender's datagrams, and what it may add.
    fn share(&mut self, sender: Sender) -> (&mut usize, usize) {
        let free = MAX_INBOX_BYTES.saturating_sub(self.mail.cost());
        let (held, max) = match sender {
            Sender::Stranger => (&mut self.of_strangers, free.min(MAX_STRANGERS_BYTES)),
            Sender::Known(number) => {
                if self.of_aircraft.len() <= number {
                    self.of_aircraft.resize(number + 1, 0);
                }
                (&mut self.of_aircraft[number], MAX_OF_FREE * free)
            }
        };
        let rest = max.saturating_sub(*held).min(free);
        (held, rest)
    }
}

impl Inbox {
    /// Adds datagrams of `stride` bytes, as far as the sender's share permits, and wakes the shard's
    /// driver if the inbox was empty. Returns the number of datagrams that there was no room for.
    pub fn put(&self, datagrams: &[u8], stride: usize, sender: Sender, origin: Origin) -> usize {
        let mut state = self.0.lock();
        let (held, rest) = state.share(sender);
        let rest = rest.saturating_sub(ENTRY_BYTES);
        // Only whole datagrams.
        let bytes = if datagrams.len() <= rest { datagrams.len() } else { rest - rest % stride };
        if bytes > 0 {
            *held += bytes + ENTRY_BYTES;
            let State { mail, driver, .. } = &mut *state;
            if mail.entries.is_empty()
                && let Some(driver) = driver
            {
                driver.wake_by_ref();
            }
            mail.entries.push(Entry { bytes, stride, origin });
            mail.contents.extend_from_slice(&datagrams[..bytes]);
        }
        (datagrams.len() - bytes).div_ceil(stride)
    }

    /// Moves all datagrams to `mail`, which is empty, and notes who waits for the next one.
    pub fn take(&self, mail: &mut Mail, cx: &Context<'_>) {
        let mut state = self.0.lock();
        if !state.mail.entries.is_empty() {
            std::mem::swap(&mut state.mail, mail);
            state.of_aircraft.fill(0);
            state.of_strangers = 0;
        }
        if !state.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
            state.driver = Some(cx.waker().clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AIRCRAFT: Sender = Sender::Known(0);
    const LEN: usize = 1_200;

    fn from(port: u16) -> Origin {
        Origin { from: ([192, 0, 2, 1], port).into(), ce: false, timestamp: None }
    }

    /// Puts single datagrams until one is refused. Returns their number.
    fn flood(inbox: &Inbox, sender: Sender, len: usize) -> usize {
        let datagram = vec![7; len];
        (0..).take_while(|_| inbox.put(&datagram, len, sender, from(1)) == 0).count()
    }

    fn emptied(inbox: &Inbox) -> Mail {
        let mut mail = Mail::default();
        inbox.take(&mut mail, &Context::from_waker(Waker::noop()));
        mail
    }

    #[test]
    fn datagrams_arrive_in_order_with_their_senders_and_marks() {
        let inbox = Inbox::default();
        let marked = Origin { ce: true, ..from(2) };
        assert_eq!(inbox.put(b"aabbc", 2, AIRCRAFT, from(1)), 0);
        assert_eq!(inbox.put(b"dddd", 4, Sender::Stranger, marked), 0);
        let mail = emptied(&inbox);
        let all: Vec<_> = mail.datagrams().collect();
        let first = [b"aa".as_slice(), b"bb", b"c"].map(|it| (it, from(1)));
        assert_eq!(all[..3], first);
        assert_eq!(all[3..], [(b"dddd".as_slice(), marked)]);
        assert_eq!(emptied(&inbox).datagrams().count(), 0);
    }

    #[test]
    fn a_lone_aircraft_may_fill_most_of_the_inbox_until_it_is_emptied() {
        let inbox = Inbox::default();
        for _ in 0..2 {
            let most = MAX_INBOX_BYTES * 4 / 5 / (LEN + ENTRY_BYTES);
            assert!(flood(&inbox, AIRCRAFT, LEN).abs_diff(most) <= 1, "{most}");
            emptied(&inbox);
        }
        let entries = flood(&inbox, AIRCRAFT, 1);
        let most = MAX_INBOX_BYTES * 4 / 5 / (1 + ENTRY_BYTES);
        assert!(entries.abs_diff(most) <= 1, "{entries}, not {most}: small ones cost too");
    }

    #[test]
    fn floods_leave_room_for_everybody_else() {
        let inbox = Inbox::default();
        assert!(flood(&inbox, Sender::Stranger, 148) > 500);
        let mut put = [0; 7];
        for turn in 0..7 * 1_000 {
            let (number, datagram) = (turn % 7, [7; LEN]);
            put[number] += 1 - inbox.put(&datagram, LEN, Sender::Known(number), from(1));
        }
        let share = MAX_INBOX_BYTES * 15 / 16 * 4 / 29 / (LEN + ENTRY_BYTES);
        assert!(put.iter().all(|put| put.abs_diff(share) <= 2), "{share}: {put:?}");
        // A report, and a full GRO buffer of another aircraft.
        assert_eq!(inbox.put(&[7; 60], 60, Sender::Known(7), from(1)), 0);
        assert_eq!(inbox.put(&[7; 4 * LEN], LEN, Sender::Known(8), from(1)), 0);
        let mail = emptied(&inbox);
        assert!(mail.cost() <= MAX_INBOX_BYTES);
        assert!(flood(&inbox, Sender::Stranger, 148) > 500, "their share is free again");
    }

    #[test]
    fn the_part_of_a_run_that_fits_is_queued() {
        let inbox = Inbox::default();
        let run = vec![7; 45 * LEN];
        let refused: usize = (0..60).map(|_| inbox.put(&run, LEN, AIRCRAFT, from(1))).sum();
        let put = emptied(&inbox).datagrams().count();
        assert_eq!(put + refused, 60 * 45);
        assert!(put * LEN > MAX_INBOX_BYTES * 4 / 5 - 8 * LEN, "{put}");
        assert!(emptied(&inbox).datagrams().all(|(datagram, ..)| datagram.len() == LEN));
    }
}
