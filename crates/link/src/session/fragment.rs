//! Fragments of bodies that were made for larger packets than the path carries now.
//!
//! While symbols wait to be reported, the path may shrink, or the peer may move from IPv4 to IPv6.

use std::collections::VecDeque;

use crate::Class;
use crate::flow::Violation;
use crate::wire::frame::{self, Fragment, MAX_BODY_BYTES};

/// Maximum number of bodies being reassembled. The fragments of a body follow one another, so that
/// only reordering mixes bodies: 8 × [`MAX_BODY_BYTES`] = 512 KiB, or 12 KiB with bodies of 1,500
/// bytes. The oldest is dropped, as if it were lost.
const MAX_BODIES: usize = 8;
/// Maximum number of fragments of a body: 64 KiB in packets of 1,280 bytes are 55.
const MAX_FRAGMENTS: usize = 64;

/// A body being sent in fragments.
#[derive(Debug)]
pub struct Outgoing {
    body: Vec<u8>,
    first: u64,
    offset: usize,
    /// Class that pays for its packets.
    pub class: Class,
    /// Content length of each fragment except the last.
    step: usize,
}

impl Outgoing {
    /// Cuts `body` into equal fragments that fit into `room` with their headers. `first` is the
    /// packet of the first fragment.
    pub fn new(body: Vec<u8>, class: Class, first: u64, room: usize) -> Self {
        let max = room.saturating_sub(frame::fragment_head_len(first, body.len())).max(1);
        let parts = body.len().div_ceil(max);
        let step = body.len().div_ceil(parts.max(1));
        Self { body, first, offset: 0, class, step }
    }

    #[cfg(test)]
    fn parts(&self) -> usize {
        self.body.len().div_ceil(self.step.max(1))
    }

    /// Appends the next fragment. Returns `false` if it does not fit into `room`.
    pub fn put_next(&mut self, room: usize, out: &mut Vec<u8>) -> bool {
        let end = (self.offset + self.step).min(self.body.len());
        let head = frame::fragment_head_len(self.first, self.body.len());
        if head + end - self.offset > room {
            return false;
        }
        frame::put_fragment_head(out, self.first, self.body.len(), self.offset);
        out.extend_from_slice(&self.body[self.offset..end]);
        self.offset = end;
        true
    }

    /// Returns `true` if all fragments were sent.
    pub fn is_done(&self) -> bool {
        self.offset >= self.body.len()
    }
}

/// Bodies being reassembled.
#[derive(Debug, Default)]
pub struct Assembly(VecDeque<Body>);

#[derive(Debug)]
struct Body {
    path: u8,
    first: u64,
    bytes: Vec<u8>,
    /// Received ranges, ascending and not adjacent.
    have: Vec<(usize, usize)>,
}

impl Assembly {
    /// Adds a fragment that came on `path`. Returns the body when it is complete.
    pub fn take(&mut self, path: u8, fragment: Fragment<'_>) -> Result<Option<Vec<u8>>, Violation> {
        debug_assert!(fragment.total <= MAX_BODY_BYTES, "the parser checked it");
        let at = match self
            .0
            .iter()
            .position(|body| (body.path, body.first) == (path, fragment.first))
        {
            Some(at) => at,
            None => {
                if self.0.len() == MAX_BODIES {
                    self.0.pop_front();
                }
                let bytes = vec![0; fragment.total];
                let first = fragment.first;
                self.0.push_back(Body { path, first, bytes, have: Vec::new() });
                self.0.len() - 1
            }
        };
        let body = &mut self.0[at];
        if body.bytes.len() != fragment.total {
            return Err(Violation("fragments that disagree on their whole"));
        }
        if !body.add(fragment)? {
            return Ok(None);
        }
        Ok(self.0.remove(at).map(|body| body.bytes))
    }

    /// Bytes held.
    pub fn held_bytes(&self) -> usize {
        self.0.iter().map(|body| body.bytes.len()).sum()
    }
}

impl Body {
    /// Adds a fragment. Returns `true` if the body is complete.
    fn add(&mut self, fragment: Fragment<'_>) -> Result<bool, Violation> {
        let (start, end) = (fragment.offset, fragment.offset + fragment.content.len());
        let at = self.have.partition_point(|&(from, _)| from < start);
        let overlaps = |range: Option<&(usize, usize)>| {
            range.is_some_and(|&(from, to)| from < end && start < to)
        };
        if overlaps(at.checked_sub(1).and_then(|before| self.have.get(before)))
            || overlaps(self.have.get(at))
            || self.have.len() == MAX_FRAGMENTS
        {
            // Packets are received once, and every body is cut once.
            return Err(Violation("fragments that overlap, or too many of them"));
        }
        self.bytes[start..end].copy_from_slice(fragment.content);
        self.have.insert(at, (start, end));
        let here: usize = self.have.iter().map(|(from, to)| to - from).sum();
        Ok(here == self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::{Carried, Packet};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fragments_are_reassembled_in_any_order(
            len in 2usize..9000, room in 200usize..1400, first in 0u64..1 << 50, turn in 0usize..50,
        ) {
            let body: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let mut outgoing = Outgoing::new(body.clone(), Class::BestEffort, first, room);
            prop_assume!(outgoing.parts() > 1);
            let mut packets = Vec::new();
            while !outgoing.is_done() {
                let mut out = Vec::new();
                prop_assert!(!outgoing.put_next(10, &mut out), "it does not fit");
                prop_assert!(outgoing.put_next(room, &mut out));
                prop_assert!(out.len() <= room);
                packets.push(out);
            }
            prop_assert_eq!(packets.len(), outgoing.parts());
            let turn = turn % packets.len();
            packets.rotate_left(turn);
            let mut assembly = Assembly::default();
            for (index, packet) in packets.iter().enumerate() {
                let Some(Carried::Fragment(fragment)) = Packet::parse(packet).unwrap().carried else {
                    panic!("it is a fragment");
                };
                let whole = assembly.take(0, fragment).unwrap();
                prop_assert_eq!(whole.is_some(), index + 1 == packets.len());
                prop_assert!(whole.is_none_or(|whole| whole == body));
            }
            prop_assert_eq!(assembly.held_bytes(), 0);
        }
    }

    fn fragment(first: u64, total: usize, offset: usize, content: &[u8]) -> Fragment<'_> {
        Fragment { first, total, offset, content }
    }

    #[test]
    fn incomplete_bodies_are_dropped() {
        let mut assembly = Assembly::default();
        for first in 0..100 {
            assert_eq!(assembly.take(0, fragment(first, 60_000, 0, &[1; 1000])).unwrap(), None);
            assert!(assembly.held_bytes() <= MAX_BODIES * 60_000);
        }
        assert_eq!(assembly.take(0, fragment(500, 3, 0, &[1])).unwrap(), None);
        assert_eq!(assembly.take(0, fragment(500, 3, 1, &[2, 3])).unwrap(), Some(vec![1, 2, 3]));
    }

    #[test]
    fn contradictions_are_violations() {
        let begun = || {
            let mut assembly = Assembly::default();
            assembly.take(0, fragment(1, 10, 2, &[1; 4])).unwrap();
            assembly
        };
        assert!(begun().take(0, fragment(1, 11, 6, &[1; 4])).is_err());
        assert!(begun().take(0, fragment(1, 10, 5, &[1; 4])).is_err());
        assert!(begun().take(0, fragment(1, 10, 0, &[1; 3])).is_err());
        let mut crumbs = Assembly::default();
        let all = (0..65).map(|at| crumbs.take(0, fragment(1, 1000, 2 * at, &[1])));
        assert!(all.collect::<Result<Vec<_>, _>>().is_err());
    }
}
