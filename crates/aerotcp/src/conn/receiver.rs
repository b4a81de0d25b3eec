//! Receiving half of a connection. Data in order waits for its reader. Data out of order is kept
//! until its gap is filled (section V.B), and reported in SACK blocks (section V.D).

use std::collections::{BTreeMap, VecDeque};

use bytes::{Buf, Bytes, BytesMut};

use crate::pool::Pool;
use crate::segment::{Ack, Block, Data, MAX_SACK_BLOCKS};

/// Maximum number of packets out of order: all those of a window of 4,096 packets. Another one is
/// dropped and retransmitted. With some 100 bytes of bookkeeping each, they take 400 KiB beside
/// their payload.
pub const MAX_EARLY_PACKETS: usize = 4096;

/// Maximum length to which unread data is joined, so that packets of a few bytes do not take a
/// buffer each.
const JOINED_BYTES: usize = 16 << 10;

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    /// Next expected number.
    next: u64,
    /// Data in order, not read.
    unread: VecDeque<BytesMut>,
    unread_bytes: usize,
    /// Data out of order, by first number.
    early: BTreeMap<u64, Early>,
    early_bytes: usize,
    /// Ranges in `early`. The block that grew last is first.
    blocks: Vec<Block>,
    /// Size of the buffer (section V.B).
    buffer: usize,
    /// `true` if the FIN was received in order.
    finished: bool,
    /// `true` if nobody reads any more. Data is then acknowledged and dropped.
    discards: bool,
}

/// A packet out of order.
#[derive(Debug)]
struct Early {
    end: u64,
    fin: bool,
    payload: Bytes,
}

impl Receiver {
    /// Creates a half that expects number `first`: 0 if a SYN comes first, otherwise 1.
    pub fn new(first: u64, buffer: usize) -> Self {
        Self {
            next: first,
            unread: VecDeque::new(),
            unread_bytes: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            blocks: Vec::new(),
            buffer,
            finished: false,
            discards: false,
        }
    }

    /// Receives the content of a packet. An acknowledgement is due in any case.
    pub fn take(&mut self, data: &Data<'_>, pool: &mut Pool) {
        let end = data.seq + data.numbers();
        let payload = data.payload;
        if end <= self.next || self.finished || !self.has_room(end - u64::from(data.fin)) {
            return;
        }
        if data.seq > self.next {
            self.take_early(data, end, pool);
        } else if data.seq == self.next {
            // The pool is not checked while the reader keeps up: data after the gap could not leave
            // without this packet.
            let stalled = self.unread_bytes > 0;
            if !stalled || self.discards || pool.admits(self.held_bytes(), payload.len()) {
                self.deliver(end, data.fin, payload, pool);
                self.deliver_early(pool);
            }
        }
        // Packets keep their boundaries when they are retransmitted, so our sender never makes one
        // that begins before `next` and ends after it.
    }

    /// Acknowledgement to send now.
    pub fn ack(&self) -> Ack {
        let blocks = self.blocks.iter().take(MAX_SACK_BLOCKS).copied().collect();
        Ack { number: self.next, window: self.window(), blocks }
    }

    /// Free bytes of the buffer. Data out of order lies within this window.
    pub fn window(&self) -> u64 {
        self.buffer.saturating_sub(self.unread_bytes) as u64
    }

    /// Moves data in order into `buffer`. Returns the number of bytes.
    pub fn read(&mut self, buffer: &mut [u8], pool: &mut Pool) -> usize {
        let mut taken = 0;
        while let Some(first) = self.unread.front_mut().filter(|_| taken < buffer.len()) {
            let bytes = first.len().min(buffer.len() - taken);
            first.copy_to_slice(&mut buffer[taken..taken + bytes]);
            taken += bytes;
            if first.is_empty() {
                self.unread.pop_front();
            }
        }
        self.unread_bytes -= taken;
        pool.give_back(taken);
        taken
    }

    /// Drops all unread data, now and later.
    pub fn discard(&mut self, pool: &mut Pool) {
        self.discards = true;
        self.unread.clear();
        pool.give_back(std::mem::take(&mut self.unread_bytes));
    }

    /// Drops all data.
    pub fn clear(&mut self, pool: &mut Pool) {
        pool.give_back(self.held_bytes());
        self.early.clear();
        self.blocks.clear();
        self.early_bytes = 0;
        self.unread.clear();
        self.unread_bytes = 0;
    }

    /// Returns `true` if everything has arrived.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Number of buffered bytes, in order or not.
    pub fn held_bytes(&self) -> usize {
        self.unread_bytes + self.early_bytes
    }

    fn has_room(&self, end: u64) -> bool {
        // The SYN takes no room.
        end <= self.next.max(1) + self.window()
    }

    fn take_early(&mut self, data: &Data<'_>, end: u64, pool: &mut Pool) {
        let block = Block { start: data.seq, end };
        if let Some(known) = self.blocks.iter().position(|known| overlap(*known, block)) {
            // A duplicate. SACK still reports the block of the latest packet first.
            let known = self.blocks.remove(known);
            return self.blocks.insert(0, known);
        }
        if self.early.len() >= MAX_EARLY_PACKETS
            || !pool.admits(self.held_bytes(), data.payload.len())
        {
            return;
        }
        let payload = Bytes::copy_from_slice(data.payload);
        pool.take(payload.len());
        self.early_bytes += payload.len();
        self.early.insert(data.seq, Early { end, fin: data.fin, payload });
        let mut grown = block;
        self.blocks.retain(|known| {
            let joins = known.end == block.start || known.start == block.end;
            if joins {
                grown =
                    Block { start: grown.start.min(known.start), end: grown.end.max(known.end) };
            }
            !joins
        });
        self.blocks.insert(0, grown);
    }

    fn deliver_early(&mut self, pool: &mut Pool) {
        while let Some(first) = self.early.first_entry().filter(|first| *first.key() <= self.next) {
            let (start, early) = first.remove_entry();
            self.early_bytes -= early.payload.len();
            pool.give_back(early.payload.len());
            if start == self.next && !self.finished {
                self.deliver(early.end, early.fin, &early.payload, pool);
            }
        }
        self.blocks.retain(|block| block.start > self.next);
    }

    fn deliver(&mut self, end: u64, fin: bool, payload: &[u8], pool: &mut Pool) {
        self.next = end;
        self.finished |= fin;
        if !self.discards && !payload.is_empty() {
            pool.take(payload.len());
            self.unread_bytes += payload.len();
            match self.unread.back_mut() {
                Some(last) if last.len() + payload.len() <= JOINED_BYTES => {
                    last.extend_from_slice(payload);
                }
                _ => self.unread.push_back(payload.into()),
            }
        }
    }
}

fn overlap(a: Block, b: Block) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(seq: u64, payload: &[u8]) -> Data<'_> {
        Data { seq, syn: None, fin: false, payload }
    }

    fn block(start: u64, end: u64) -> Block {
        Block { start, end }
    }

    /// A half that expects number 1, and its pool.
    fn half(buffer: usize) -> (Receiver, Pool) {
        (Receiver::new(1, buffer), Pool::new(1 << 20))
    }

    fn read(half: &mut Receiver, pool: &mut Pool) -> Vec<u8> {
        let mut buffer = [0; 64];
        let taken = half.read(&mut buffer, pool);
        buffer[..taken].to_vec()
    }

    #[test]
    fn the_latest_block_comes_first_and_earlier_ones_are_repeated() {
        let (mut half, mut pool) = half(1000);
        let blocks = |half: &Receiver| half.ack().blocks;
        half.take(&data(3, b"c"), &mut pool);
        assert_eq!(blocks(&half), [block(3, 4)]);
        half.take(&data(5, b"e"), &mut pool);
        assert_eq!(blocks(&half), [block(5, 6), block(3, 4)]);
        half.take(&data(7, b"g"), &mut pool);
        half.take(&data(9, b"i"), &mut pool);
        assert_eq!(blocks(&half), [block(9, 10), block(7, 8), block(5, 6)], "room for three");
        half.take(&data(4, b"d"), &mut pool);
        assert_eq!(blocks(&half), [block(3, 6), block(9, 10), block(7, 8)], "two grew together");
        half.take(&data(7, b"g"), &mut pool);
        assert_eq!(blocks(&half), [block(7, 8), block(3, 6), block(9, 10)], "a copy");
        half.take(&data(1, b"ab"), &mut pool);
        assert_eq!(half.ack().number, 6);
        assert_eq!(blocks(&half), [block(7, 8), block(9, 10)]);
        assert_eq!(read(&mut half, &mut pool), b"abcde");
        half.take(&data(6, b"f"), &mut pool);
        let fin = Data { seq: 8, syn: None, fin: true, payload: b"" };
        half.take(&fin, &mut pool);
        assert_eq!(read(&mut half, &mut pool), b"fg");
        assert!(half.is_finished() && half.held_bytes() == 0);
        half.clear(&mut pool);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn the_window_is_the_free_space_and_bounds_the_buffer() {
        let (mut half, mut pool) = half(10);
        half.take(&data(1, b"abcd"), &mut pool);
        assert_eq!((half.ack().number, half.ack().window), (5, 6));
        half.take(&data(7, b"ghij"), &mut pool);
        assert_eq!(half.ack().window, 6, "what is out of order lies within the window");
        half.take(&data(11, b"k"), &mut pool);
        assert_eq!(half.ack().blocks, [block(7, 11)], "beyond the window");
        half.take(&data(5, b"ef"), &mut pool);
        assert_eq!((half.ack().number, half.ack().window), (11, 0));
        half.take(&data(11, b"k"), &mut pool);
        assert_eq!(half.ack().number, 11);
        assert_eq!(read(&mut half, &mut pool), b"abcdefghij");
        assert_eq!(half.ack().window, 10);
    }

    #[test]
    fn packets_of_a_byte_share_buffers() {
        let (mut half, mut pool) = half(1 << 20);
        for seq in 1..=40_000 {
            half.take(&data(seq, b"x"), &mut pool);
        }
        assert_eq!((half.held_bytes(), half.unread.len()), (40_000, 3));
        let mut buffer = vec![0; 50_000];
        assert_eq!(half.read(&mut buffer, &mut pool), 40_000);
        assert_eq!((half.held_bytes(), pool.in_use()), (0, 0));
    }

    #[test]
    fn a_full_pool_never_drops_the_packet_that_fills_the_gap() {
        let (mut half, mut pool) = (Receiver::new(1, 1 << 20), Pool::new(0));
        let chunk = [7; 1000];
        for seq in (1001..40_000).step_by(1000) {
            half.take(&data(seq, &chunk), &mut pool);
        }
        assert!(half.held_bytes() <= crate::RESERVE_BYTES, "{}", half.held_bytes());
        half.take(&data(1, &chunk), &mut pool);
        assert!(half.ack().number > 10_000, "the gap is filled");
        let before = half.ack().number;
        half.take(&data(before, &chunk), &mut pool);
        assert_eq!(half.ack().number, before, "its reader does not keep up");
        half.discard(&mut pool);
        half.take(&data(before, &chunk), &mut pool);
        assert_eq!((half.ack().number, half.held_bytes()), (before + 1000, 0));
    }

    #[test]
    fn packets_that_our_sender_never_makes_are_ignored() {
        let (mut half, mut pool) = half(1000);
        half.take(&data(5, b"efgh"), &mut pool);
        half.take(&data(7, b"XX34"), &mut pool);
        half.take(&data(1, b"abcd"), &mut pool);
        half.take(&data(8, b"YYYY"), &mut pool);
        assert_eq!(read(&mut half, &mut pool), b"abcdefgh");
    }
}
