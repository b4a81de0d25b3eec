//! The sending direction of a flow: bytes that the peer has not confirmed.

use bentpipe_flow::ResetCode;

use crate::chunks::Chunks;
use crate::wire::{
    Control, Left, MARK, Malformed, find_mark, put_code, put_first_of_mark, put_mark,
};

/// Maximum number of unconfirmed bytes of a new flow. It must be more than the peer passes on before
/// it confirms ([`CONFIRM_BYTES`](crate::incoming::CONFIRM_BYTES)).
pub const MIN_UNCONFIRMED_BYTES: usize = 128 << 10;

/// Maximum number of unconfirmed bytes of any flow: 100 Mbit/s at 600 ms.
pub const MAX_UNCONFIRMED_BYTES: usize = 8 << 20;

/// Bytes to send, from the first that the peer has not confirmed.
#[derive(Debug)]
pub struct Outgoing {
    /// Bytes from offset `confirmed`.
    bytes: Chunks,
    confirmed: u64,
    /// Offset of the next byte for the carrier.
    sent: u64,
    max_bytes: usize,
    is_finished: bool,
    /// `true` if the carrier was given the FIN.
    is_fin_sent: bool,
    is_fin_confirmed: bool,
    /// Reason why the peer reads no more, once it has said so.
    stopped: Option<ResetCode>,
    /// Records, or data with a mark, that are being written.
    marked: Vec<u8>,
    marked_written: usize,
    /// Data bytes that `marked` stands for.
    marked_data: usize,
    /// Number of bytes after `sent` that are written as they are.
    plain: usize,
    /// Control records, which go before data.
    waiting: Vec<u8>,
    /// Confirmation, which goes with them. A later one replaces it.
    confirmation: Option<u64>,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self {
            bytes: Chunks::default(),
            confirmed: 0,
            sent: 0,
            max_bytes: MIN_UNCONFIRMED_BYTES,
            is_finished: false,
            is_fin_sent: false,
            is_fin_confirmed: false,
            stopped: None,
            marked: Vec::new(),
            marked_written: 0,
            marked_data: 0,
            plain: 0,
            waiting: Vec::new(),
            confirmation: None,
        }
    }
}

impl Outgoing {
    /// Takes as many of `bytes` as there is room for.
    ///
    /// If everything is with the carrier and only confirmations are missing, the room grows: the way
    /// to the peer holds more bytes than it.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let mut room = self.max_bytes.saturating_sub(self.bytes.len());
        if room == 0 && self.sent == self.end() && self.max_bytes < MAX_UNCONFIRMED_BYTES {
            self.max_bytes = (self.max_bytes * 2).min(MAX_UNCONFIRMED_BYTES);
            room = self.max_bytes - self.bytes.len();
        }
        let taken = bytes.len().min(room);
        self.bytes.extend(&bytes[..taken]);
        taken
    }

    /// Ends the stream.
    pub fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Returns `true` if the peer has confirmed the whole stream and its end, or wants no more of it.
    pub fn is_confirmed(&self) -> bool {
        self.is_fin_confirmed || self.stopped.is_some()
    }

    /// Notes that the peer reads no more.
    pub fn stop(&mut self, code: ResetCode) {
        self.stopped = Some(code);
    }

    /// Reason why the peer reads no more, once it has said so.
    pub fn stopped(&self) -> Option<ResetCode> {
        self.stopped
    }

    /// Returns `true` if no byte was ever given to a carrier.
    pub fn is_untouched(&self) -> bool {
        self.sent == 0 && !self.is_fin_sent
    }

    /// Number of bytes that were not given to the carrier.
    pub fn unsent_bytes(&self) -> usize {
        (self.end() - self.sent) as usize
    }

    /// Number of bytes that the peer has not confirmed.
    pub fn unconfirmed_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Offset after the last byte.
    fn end(&self) -> u64 {
        self.confirmed + self.bytes.len() as u64
    }

    /// Notes that the peer has everything before `offset`.
    pub fn confirm(&mut self, offset: u64) -> Result<(), Malformed> {
        let is_fin = self.is_fin_sent && offset == self.end() + 1;
        let to = if is_fin { self.end() } else { offset };
        if to > self.sent {
            return Err(Malformed("confirms what was not sent"));
        }
        self.confirmed_until(to, is_fin);
        Ok(())
    }

    fn confirmed_until(&mut self, offset: u64, is_fin: bool) {
        let gone = offset.saturating_sub(self.confirmed);
        self.bytes.take(gone as usize);
        self.confirmed += gone;
        self.is_fin_confirmed |= is_fin;
    }

    /// Continues on another carrier, for a peer that has everything before `received`, or before what
    /// it has confirmed since. Returns the offset of the first data on this carrier.
    pub fn attach(&mut self, received: u64) -> Result<u64, Malformed> {
        let end = self.end();
        let is_fin = self.is_fin_confirmed || self.is_finished && received == end + 1;
        let start = if is_fin { end } else { received.max(self.confirmed) };
        if start > end {
            return Err(Malformed("the peer has received what was not sent"));
        }
        self.confirmed_until(start, is_fin);
        (self.sent, self.is_fin_sent) = (start, is_fin);
        self.detach();
        Ok(start + u64::from(is_fin))
    }

    /// Forgets the records for the carrier, which is lost.
    pub fn detach(&mut self) {
        self.marked.clear();
        (self.marked_written, self.marked_data, self.plain) = (0, 0, 0);
        self.waiting.clear();
        self.confirmation = None;
    }

    /// Appends the state that outlives the carrier.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.confirmed.to_be_bytes());
        out.extend((self.max_bytes as u32).to_be_bytes());
        out.push(u8::from(self.is_finished) | u8::from(self.is_fin_confirmed) << 1);
        put_code(out, self.stopped);
        out.extend((self.bytes.len() as u32).to_be_bytes());
        self.bytes.parts().for_each(|part| out.extend(part));
    }

    /// Reads what [`put`](Self::put) wrote; `None` if it is invalid.
    pub fn read(left: &mut Left<'_>) -> Option<Self> {
        let (confirmed, max_bytes) = (left.u64()?, left.u32()? as usize);
        let (flags, stopped) = (left.u8()?, left.code()?);
        let bytes = left.counted(MAX_UNCONFIRMED_BYTES)?;
        // Offsets are far from their end.
        let is_valid = (MIN_UNCONFIRMED_BYTES..=MAX_UNCONFIRMED_BYTES).contains(&max_bytes)
            && flags < 4
            && confirmed < u64::MAX / 2;
        let mut chunks = Chunks::default();
        chunks.extend(bytes);
        is_valid.then(|| Self {
            bytes: chunks,
            confirmed,
            sent: confirmed,
            max_bytes,
            is_finished: flags & 1 != 0,
            is_fin_confirmed: flags & 2 != 0,
            stopped,
            ..Self::default()
        })
    }

    /// Queues a confirmation of the peer's bytes before `offset`.
    pub fn queue_confirmation(&mut self, offset: u64) {
        self.confirmation = Some(offset);
    }

    /// Queues a control record, before any data that was not given to the carrier.
    pub fn queue(&mut self, record: &Control) {
        record.put(&mut self.waiting);
    }

    /// Returns the next bytes for the carrier; none if there are none. [`written`](Self::written)
    /// takes them off.
    pub fn output(&mut self) -> &[u8] {
        if self.marked_written == self.marked.len() {
            self.marked.clear();
            self.marked_written = 0;
            self.mark_next();
            if self.marked.is_empty() {
                return self.plain();
            }
        }
        &self.marked[self.marked_written..]
    }

    /// Takes `count` of the bytes that [`output`](Self::output) returned.
    pub fn written(&mut self, count: usize) {
        if self.marked.is_empty() {
            self.plain -= count;
            self.sent += count as u64;
            return;
        }
        self.marked_written += count;
        if self.marked_written == self.marked.len() {
            self.sent += std::mem::take(&mut self.marked_data) as u64;
        }
    }

    /// Data for the carrier as it is, as far as it is contiguous. What follows a byte that may begin a
    /// mark has to be known.
    fn plain(&mut self) -> &[u8] {
        if self.stopped.is_some() {
            // The rest would be thrown away.
            return &[];
        }
        let data = self.bytes.from((self.sent - self.confirmed) as usize);
        if self.plain == 0 {
            self.plain = match find_mark(data) {
                Some(at) => at,
                None if data.len() > 1 && data.ends_with(&MARK[..1]) => data.len() - 1,
                None => data.len(),
            };
        }
        &data[..self.plain]
    }

    /// Begins what needs a mark, if that is next.
    fn mark_next(&mut self) {
        if let Some(offset) = self.confirmation.take() {
            Control::Confirm(offset).put(&mut self.waiting);
        }
        if !self.waiting.is_empty() {
            std::mem::swap(&mut self.marked, &mut self.waiting);
        } else if self.stopped.is_some() || self.plain > 0 {
            // No data, or data as it is.
        } else if self.sent < self.end() {
            self.mark_data();
        } else if self.is_finished && !self.is_fin_sent {
            self.is_fin_sent = true;
            Control::Fin.put(&mut self.marked);
        }
    }

    /// Marks data that would be taken for a mark, or for its beginning.
    fn mark_data(&mut self) {
        let at = (self.sent - self.confirmed) as usize;
        let byte = |at| self.bytes.from(at).first();
        if byte(at) != Some(&MARK[0]) {
            return;
        }
        match byte(at + 1) {
            Some(next) if *next == MARK[1] => {
                put_mark(&mut self.marked);
                self.marked_data = MARK.len();
            }
            Some(_) => {}
            None => {
                put_first_of_mark(&mut self.marked);
                self.marked_data = 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIN: [u8; 3] = [0xf7, 0x1d, 5];

    /// Gives everything to the carrier.
    fn send_all(outgoing: &mut Outgoing) -> Vec<u8> {
        let mut sent = Vec::new();
        loop {
            let next = outgoing.output();
            if next.is_empty() {
                return sent;
            }
            let count = next.len();
            sent.extend(next);
            outgoing.written(count);
        }
    }

    #[test]
    fn only_confirmed_bytes_are_forgotten() {
        let mut outgoing = Outgoing::default();
        assert_eq!(outgoing.write(b"hello"), 5);
        assert_eq!(send_all(&mut outgoing), b"hello");
        outgoing.confirm(3).unwrap();
        assert_eq!(outgoing.unconfirmed_bytes(), 2);
        assert!(outgoing.confirm(6).is_err(), "more than was sent");
        outgoing.attach(4).unwrap();
        assert_eq!(send_all(&mut outgoing), b"o");
        assert_eq!(outgoing.attach(3), Ok(4), "more was confirmed meanwhile");
        assert_eq!(send_all(&mut outgoing), b"o");
        assert!(outgoing.attach(6).is_err(), "more than there is");
        outgoing.finish();
        assert_eq!(send_all(&mut outgoing), FIN);
        outgoing.attach(5).unwrap();
        assert_eq!(send_all(&mut outgoing), FIN, "the FIN again");
        outgoing.confirm(6).unwrap();
        assert!(outgoing.is_confirmed());
    }

    #[test]
    fn the_room_grows_only_if_the_carrier_has_everything() {
        let mut outgoing = Outgoing::default();
        let block = vec![0; MIN_UNCONFIRMED_BYTES];
        assert_eq!(outgoing.write(&block), block.len());
        assert_eq!(outgoing.write(&block), 0, "the carrier is the bottleneck");
        send_all(&mut outgoing);
        assert_eq!(outgoing.write(&block), block.len(), "the path holds more than the bound");
        send_all(&mut outgoing);
        while outgoing.write(&block) > 0 {
            send_all(&mut outgoing);
        }
        assert_eq!(outgoing.unconfirmed_bytes(), MAX_UNCONFIRMED_BYTES);
    }

    #[test]
    fn control_records_go_before_data_that_was_not_given_to_the_carrier() {
        let mut outgoing = Outgoing::default();
        outgoing.write(b"abc");
        assert_eq!(outgoing.output(), b"abc");
        outgoing.written(1);
        outgoing.queue(&Control::Class(2));
        outgoing.write(b"d");
        assert_eq!(outgoing.output(), b"\xf7\x1d\x06\x02");
        outgoing.written(2);
        assert_eq!(send_all(&mut outgoing), b"\x06\x02bcd");
    }

    #[test]
    fn a_marked_byte_counts_as_sent_with_its_whole_mark() {
        let mut outgoing = Outgoing::default();
        outgoing.write(b"a\xf7");
        assert_eq!(outgoing.output(), b"a");
        outgoing.written(1);
        assert_eq!(outgoing.output(), b"\xf7\x1d\x0a");
        outgoing.written(2);
        assert!(outgoing.confirm(2).is_err());
        // More data comes too late for the byte before it.
        outgoing.write(b"\x1d");
        assert_eq!(send_all(&mut outgoing), b"\x0a\x1d");
        outgoing.attach(1).unwrap();
        assert_eq!(send_all(&mut outgoing), b"\xf7\x1d\0");
        outgoing.confirm(3).unwrap();
    }
}
