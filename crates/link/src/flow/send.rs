//! The sending half of a stream: bytes that wait for the link, within the peer's credit.

use std::collections::VecDeque;
use std::time::Duration;

use crate::spare;
use bentpipe_flow::ResetCode;

/// Length of a burst up to which it counts as short, so that its bytes travel in the urgent lane. The
/// web's usual object of 100 KB fits.
pub const URGENT_BYTES: u64 = 128 << 10;

/// Result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// Number of bytes accepted; at least one, unless none were offered.
    Taken(usize),
    /// The buffer is full; the owner is woken when there is room.
    Blocked,
    /// The peer no longer reads.
    Stopped(ResetCode),
    /// The flow is over.
    Reset(ResetCode),
}

/// Bytes that were written and have not been sent yet.
#[derive(Debug)]
pub struct SendFlow {
    unsent: VecDeque<u8>,
    /// Offset of the first unsent byte.
    offset: u64,
    /// Offset up to which the peer permits sending.
    limit: u64,
    finish: Finish,
    stopped: Option<ResetCode>,
    burst_bytes: u64,
    last_sent: Duration,
    /// A writer found the buffer full.
    blocked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    Open,
    Requested,
    Sent,
}

impl SendFlow {
    pub fn new(limit: u64) -> Self {
        Self {
            unsent: VecDeque::new(),
            offset: 0,
            limit,
            finish: Finish::Open,
            stopped: None,
            burst_bytes: 0,
            last_sent: Duration::ZERO,
            blocked: false,
        }
    }

    /// Accepts up to `room` bytes of `data`.
    pub fn write(&mut self, data: &[u8], room: usize) -> Write {
        if let Some(code) = self.stopped {
            return Write::Stopped(code);
        }
        if self.finish != Finish::Open {
            return Write::Stopped(ResetCode::Aborted);
        }
        let taken = data.len().min(room);
        if taken == 0 && !data.is_empty() {
            self.blocked = true;
            return Write::Blocked;
        }
        if self.unsent.capacity() == 0 {
            self.unsent = spare::queue();
        }
        self.unsent.extend(&data[..taken]);
        Write::Taken(taken)
    }

    /// Returns `true` if a writer found the buffer full since the last call.
    pub fn take_blocked(&mut self) -> bool {
        std::mem::take(&mut self.blocked)
    }

    /// Ends the direction after what was written.
    pub fn finish(&mut self) {
        if self.finish == Finish::Open {
            self.finish = Finish::Requested;
        }
    }

    /// Ends the direction and discards what waits. Returns the number of bytes discarded.
    pub fn stop(&mut self, code: ResetCode) -> usize {
        let discarded = self.unsent.len();
        self.unsent = VecDeque::new();
        self.stopped = Some(code);
        self.finish = Finish::Sent;
        discarded
    }

    /// Returns `true` if nothing more will be sent.
    pub fn is_done(&self) -> bool {
        self.finish == Finish::Sent
    }

    /// Returns `true` if no more will be written; some of it may still have to be sent.
    pub fn is_finishing(&self) -> bool {
        self.finish != Finish::Open
    }

    pub fn unsent_bytes(&self) -> usize {
        self.unsent.len()
    }

    /// Bytes sent since the last pause of at least `pause`.
    pub fn burst_bytes(&self, now: Duration, pause: Duration) -> u64 {
        if now.saturating_sub(self.last_sent) > pause { 0 } else { self.burst_bytes }
    }

    /// Raises the credit; a lower limit is ignored.
    pub fn credit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Returns `true` if a STREAM frame could be sent now.
    pub fn is_ready(&self) -> bool {
        let bytes = !self.unsent.is_empty() && self.offset < self.limit;
        bytes || (self.unsent.is_empty() && self.finish == Finish::Requested)
    }

    /// Returns `true` if the bytes that would be sent now belong to a short burst.
    pub fn is_short(&self, now: Duration, pause: Duration) -> bool {
        self.burst_bytes(now, pause) < URGENT_BYTES
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Number of bytes in a frame of at most `room`, and `true` if it would end the flow.
    pub fn next_len(&self, room: usize) -> (usize, bool) {
        let credit = usize::try_from(self.limit.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let len = self.unsent.len().min(room).min(credit);
        (len, self.finish == Finish::Requested && len == self.unsent.len())
    }

    /// Moves the next `len` bytes into `out`. After a `pause` they begin a new burst.
    pub fn take(
        &mut self,
        len: usize,
        fin: bool,
        out: &mut Vec<u8>,
        now: Duration,
        pause: Duration,
    ) {
        let (front, back) = self.unsent.as_slices();
        let from_front = len.min(front.len());
        out.extend_from_slice(&front[..from_front]);
        out.extend_from_slice(&back[..len - from_front]);
        self.unsent.drain(..len);
        if self.unsent.is_empty() {
            spare::give_queue(std::mem::take(&mut self.unsent)); // an idle stream holds no buffer
        }
        self.offset += len as u64;
        self.burst_bytes = self.burst_bytes(now, pause) + len as u64;
        self.last_sent = now;
        if fin {
            self.finish = Finish::Sent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(10);
    const PAUSE: Duration = Duration::from_secs(1);

    #[test]
    fn credit_holds_bytes_back_and_the_end_comes_last() {
        let mut flow = SendFlow::new(4);
        assert_eq!(flow.write(b"abcdef", 100), Write::Taken(6));
        flow.finish();
        assert_eq!(flow.next_len(100), (4, false));
        let mut out = Vec::new();
        flow.take(4, false, &mut out, NOW, PAUSE);
        assert!(!flow.is_ready());
        flow.credit(3);
        assert!(!flow.is_ready(), "credit never falls");
        flow.credit(10);
        assert_eq!(flow.next_len(100), (2, true));
        flow.take(2, true, &mut out, NOW, PAUSE);
        assert_eq!(out, b"abcdef");
        assert!(flow.is_done() && !flow.is_ready());
    }

    #[test]
    fn an_empty_flow_can_end() {
        let mut flow = SendFlow::new(0);
        assert!(!flow.is_ready());
        flow.finish();
        assert!(flow.is_ready(), "the end needs no credit");
        assert_eq!(flow.next_len(10), (0, true));
    }

    #[test]
    fn a_full_buffer_blocks_and_a_stop_is_reported() {
        let mut flow = SendFlow::new(100);
        assert_eq!(flow.write(b"abc", 2), Write::Taken(2));
        assert_eq!(flow.write(b"c", 0), Write::Blocked);
        assert_eq!(flow.stop(ResetCode::Refused), 2);
        assert_eq!(flow.write(b"c", 9), Write::Stopped(ResetCode::Refused));
    }

    #[test]
    fn a_long_burst_is_not_short_until_a_pause() {
        let mut flow = SendFlow::new(u64::MAX);
        let bytes = vec![0; URGENT_BYTES as usize];
        flow.write(&bytes, bytes.len());
        assert!(flow.is_short(NOW, PAUSE));
        flow.take(bytes.len(), false, &mut Vec::new(), NOW, PAUSE);
        assert!(!flow.is_short(NOW, PAUSE));
        assert!(flow.is_short(NOW + PAUSE * 2, PAUSE));
    }
}
