//! The receiving half of a stream: bytes put back in order, within the credit given to the peer.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::Violation;
use crate::spare;
use bentpipe_flow::ResetCode;

/// Maximum number of pieces of one stream that wait for earlier bytes. Adjacent pieces are one, so
/// that there are hardly more than runs of symbols in the lanes. A correct peer stays below that.
const MAX_PIECES: usize = 16_384;

/// Maximum length of a piece that is copied to join the piece before it.
const JOIN_BYTES: usize = 16 << 10;

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// Number of bytes read; at least one, unless there was no room for any.
    Taken(usize),
    /// No bytes are ready; the owner is woken when some are.
    Blocked,
    /// The peer has ended the stream, and everything was read.
    Finished,
    /// The flow is over.
    Reset(ResetCode),
}

/// Bytes that were received and have not been read yet.
#[derive(Debug)]
pub struct RecvFlow {
    ready: VecDeque<u8>,
    pieces: BTreeMap<u64, Vec<u8>>,
    pieces_bytes: u64,
    /// Offset of the first unread byte.
    read: u64,
    /// Offset up to which the peer may send.
    limit: u64,
    /// The largest offset received.
    reached: u64,
    end: Option<u64>,
    /// The reader has stopped.
    stopped: bool,
    /// Time since which bytes have been waiting for the reader.
    pub unread_since: Option<Duration>,
}

impl RecvFlow {
    pub fn new(limit: u64) -> Self {
        Self {
            ready: VecDeque::new(),
            pieces: BTreeMap::new(),
            pieces_bytes: 0,
            read: 0,
            limit,
            reached: 0,
            end: None,
            stopped: false,
            unread_since: None,
        }
    }

    /// Inserts a STREAM frame. Returns `true` if bytes or the end are ready to be read.
    pub fn insert(
        &mut self,
        offset: u64,
        data: &[u8],
        fin: bool,
        now: Duration,
    ) -> Result<bool, Violation> {
        let end = offset + data.len() as u64;
        if end > self.limit {
            return Err(Violation("more bytes than the credit allows"));
        }
        if self.end.is_some_and(|known| end > known || (fin && end != known))
            || (fin && end < self.reached)
        {
            return Err(Violation("bytes past the end of the flow"));
        }
        self.reached = self.reached.max(end);
        if fin {
            self.end = Some(end);
        }
        if self.stopped {
            return Ok(false);
        }
        if !data.is_empty() {
            self.place(offset, data)?;
        }
        let news = self.readable() > 0 || self.is_at_end();
        if self.readable() > 0 && self.unread_since.is_none() {
            self.unread_since = Some(now);
        }
        Ok(news)
    }

    fn place(&mut self, offset: u64, data: &[u8]) -> Result<(), Violation> {
        let ordered = self.read + self.ready.len() as u64;
        let end = offset + data.len() as u64;
        let before = self.pieces.range(..=offset).next_back();
        let after = self.pieces.range(offset..).next();
        if offset < ordered
            || before.is_some_and(|(start, piece)| start + piece.len() as u64 > offset)
            || after.is_some_and(|(&start, _)| start < end)
        {
            return Err(Violation("the same bytes in two frames"));
        }
        if offset > ordered {
            // The number of pieces does not grow if it touches another.
            if self.pieces.len() > MAX_PIECES {
                return Err(Violation("a flow in too many pieces"));
            }
            self.pieces_bytes += data.len() as u64;
            self.store(offset, data);
            return Ok(());
        }
        if self.ready.capacity() == 0 {
            self.ready = spare::queue();
        }
        self.ready.extend(data);
        let mut ordered = end;
        while let Some(entry) = self.pieces.first_entry().filter(|entry| *entry.key() == ordered) {
            let piece = entry.remove();
            self.pieces_bytes -= piece.len() as u64;
            ordered += piece.len() as u64;
            self.ready.extend(piece);
        }
        Ok(())
    }

    /// Stores bytes that wait for earlier ones, joined with adjacent pieces. A long piece after them
    /// stays separate; otherwise bytes that arrive last to first would copy it each time.
    fn store(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let short = self.pieces.get(&end).is_some_and(|after| after.len() <= JOIN_BYTES);
        let after = if short { self.pieces.remove(&end) } else { None };
        let before = self.pieces.range_mut(..offset).next_back();
        let before = before.filter(|(start, piece)| *start + piece.len() as u64 == offset);
        let piece = match before {
            Some((_, piece)) => piece,
            None => self.pieces.entry(offset).or_default(),
        };
        piece.extend_from_slice(data);
        piece.extend_from_slice(after.as_deref().unwrap_or_default());
    }

    /// Number of pieces that wait for earlier bytes.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Moves bytes that are in order into `out`.
    pub fn read(&mut self, out: &mut [u8], now: Duration) -> Read {
        if self.ready.is_empty() {
            return if self.is_at_end() || self.stopped { Read::Finished } else { Read::Blocked };
        }
        let (front, back) = self.ready.as_slices();
        let from_front = out.len().min(front.len());
        let from_back = (out.len() - from_front).min(back.len());
        out[..from_front].copy_from_slice(&front[..from_front]);
        out[from_front..from_front + from_back].copy_from_slice(&back[..from_back]);
        let taken = from_front + from_back;
        self.ready.drain(..taken);
        self.read += taken as u64;
        self.unread_since = (!self.ready.is_empty()).then_some(now);
        if self.ready.is_empty() {
            spare::give_queue(std::mem::take(&mut self.ready)); // an idle stream holds no buffer
        }
        Read::Taken(taken)
    }

    /// Ends the direction: discards what was received, and what is yet to come.
    pub fn stop(&mut self) {
        self.ready = VecDeque::new();
        self.pieces.clear();
        self.pieces_bytes = 0;
        self.unread_since = None;
        self.stopped = true;
    }

    fn readable(&self) -> usize {
        self.ready.len()
    }

    fn is_at_end(&self) -> bool {
        self.end == Some(self.read)
    }

    /// Returns `true` if nothing more will be read.
    pub fn is_done(&self) -> bool {
        self.stopped || self.is_at_end()
    }

    /// Bytes held, in order or not.
    pub fn held_bytes(&self) -> u64 {
        self.ready.len() as u64 + self.pieces_bytes
    }

    /// Bytes that the peer may send beyond those that were read, received or not.
    pub fn window(&self) -> u64 {
        self.limit - self.read
    }

    /// Bytes that the peer may still send.
    pub fn left(&self) -> u64 {
        self.limit - self.reached
    }

    /// Returns `true` if the peer may need more credit.
    pub fn wants_credit(&self) -> bool {
        self.end.is_none() && !self.stopped
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Permits the peer to send up to `window` beyond what was read; never takes credit back.
    pub fn grant(&mut self, window: u64) {
        self.limit = self.limit.max(self.read + window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Duration = Duration::ZERO;

    proptest! {
        #[test]
        fn any_order_reads_back_in_order(cuts in proptest::collection::vec(1usize..50, 1..20), swaps in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..30)) {
            let total: usize = cuts.iter().sum();
            let bytes: Vec<u8> = (0..total).map(|i| (i * 7) as u8).collect();
            let mut at = 0;
            let mut frames: Vec<(usize, usize)> = cuts.iter().map(|len| { at += len; (at - len, *len) }).collect();
            for (a, b) in &swaps {
                let (a, b) = (a.index(frames.len()), b.index(frames.len()));
                frames.swap(a, b);
            }
            let mut flow = RecvFlow::new(total as u64);
            let (mut out, mut buffer) = (Vec::new(), [0; 33]);
            for (offset, len) in frames {
                flow.insert(offset as u64, &bytes[offset..offset + len], offset + len == total, NOW).unwrap();
                while let Read::Taken(n) = flow.read(&mut buffer, NOW) {
                    out.extend_from_slice(&buffer[..n]);
                }
            }
            prop_assert_eq!(flow.read(&mut buffer, NOW), Read::Finished);
            prop_assert_eq!(out, bytes);
            prop_assert_eq!(flow.held_bytes(), 0);
        }
    }

    #[test]
    fn input_that_no_correct_peer_sends_is_refused() {
        let fresh = || {
            let mut flow = RecvFlow::new(100);
            flow.insert(10, &[1; 10], false, NOW).unwrap();
            flow
        };
        assert!(fresh().insert(95, &[1; 6], false, NOW).is_err(), "past the credit");
        assert!(fresh().insert(15, &[1; 2], false, NOW).is_err(), "inside another piece");
        assert!(fresh().insert(5, &[1; 6], false, NOW).is_err(), "over another piece's front");
        assert!(fresh().insert(5, &[], true, NOW).is_err(), "an end before what came");
        let mut flow = fresh();
        flow.insert(20, &[], true, NOW).unwrap();
        assert!(flow.insert(20, &[1], false, NOW).is_err(), "bytes after the end");
        assert!(flow.insert(0, &[1; 10], false, NOW).unwrap());
    }

    #[test]
    fn bytes_that_touch_are_one_piece() {
        let mut flow = RecvFlow::new(100_000);
        for offset in (1..30_000).step_by(2).chain((1..15_000).rev().map(|half| 2 * half)) {
            flow.insert(offset, &[1], false, NOW).unwrap();
        }
        assert_eq!(flow.held_bytes(), 29_999);
        assert!(flow.pieces() <= 2, "{} pieces", flow.pieces());
    }

    #[test]
    fn a_stopped_reader_holds_nothing() {
        let mut flow = RecvFlow::new(100);
        flow.insert(0, &[1; 10], false, NOW).unwrap();
        flow.stop();
        assert!(!flow.insert(10, &[1; 10], false, NOW).unwrap());
        assert_eq!((flow.held_bytes(), flow.read(&mut [0; 4], NOW)), (0, Read::Finished));
    }
}
