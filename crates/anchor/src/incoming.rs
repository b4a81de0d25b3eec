//! The receiving direction of a flow: what was passed on, and what of it is confirmed.

use crate::wire::{Left, Malformed};

/// Bytes passed on after which they are confirmed at once.
pub const CONFIRM_AT_ONCE_BYTES: u64 = 256 << 10;

/// Bytes passed on after which they are confirmed when the carrier has nothing more for now. A
/// confirmation in a packet of its own is then 0.2 % of them.
pub const CONFIRM_BYTES: u64 = 48 << 10;

/// Bytes passed on after which they are confirmed with data, which shares its packet.
const CONFIRM_WITH_DATA_BYTES: u64 = 16 << 10;

/// Occasion for a confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// More may come on the carrier at once.
    More,
    /// The carrier has nothing more for now.
    Dry,
    /// This end is about to send data.
    Data,
}

impl Occasion {
    /// Bytes passed on after which they are confirmed.
    fn enough(self) -> u64 {
        match self {
            Self::More => CONFIRM_AT_ONCE_BYTES,
            Self::Dry => CONFIRM_BYTES,
            Self::Data => CONFIRM_WITH_DATA_BYTES,
        }
    }
}

/// Position in the peer's stream.
#[derive(Debug, Default)]
pub struct Incoming {
    received: u64,
    is_finished: bool,
    /// Offset in the last confirmation.
    told: u64,
    /// Bytes to come on this carrier that came on an earlier one.
    repeated: u64,
    /// `true` if the end is to come on this carrier and came on an earlier one.
    is_end_repeated: bool,
}

impl Incoming {
    /// Offset of the first byte that was not received. The end counts as a byte.
    pub fn offset(&self) -> u64 {
        self.received + u64::from(self.is_finished)
    }

    /// Returns `true` if the whole stream was received.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Returns `true` if the whole stream was received and its end was confirmed.
    pub fn is_end_confirmed(&self) -> bool {
        self.is_finished && self.told == self.offset()
    }

    /// Continues on another carrier, whose data begins at `start`. The peer knows the received data as
    /// far as `told`.
    pub fn attach(&mut self, start: u64, told: u64) -> Result<(), Malformed> {
        if start > self.offset() {
            return Err(Malformed("the peer leaves out data"));
        }
        self.told = told;
        self.repeated = self.received.saturating_sub(start);
        self.is_end_repeated = self.is_finished && start <= self.received;
        Ok(())
    }

    /// Appends the state that outlives the carrier.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.received.to_be_bytes());
        out.push(self.is_finished.into());
    }

    /// Reads what [`put`](Self::put) wrote; `None` if it is invalid.
    pub fn read(left: &mut Left<'_>) -> Option<Self> {
        let (received, is_finished) = (left.u64()?, left.u8()?);
        let is_valid = received < u64::MAX / 2 && is_finished < 2;
        is_valid.then(|| Self { received, is_finished: is_finished == 1, ..Self::default() })
    }

    /// Takes `bytes` of data, and returns how many of them came before.
    pub fn data(&mut self, bytes: usize) -> Result<usize, Malformed> {
        let bytes = bytes as u64;
        let old = bytes.min(self.repeated);
        self.repeated -= old;
        if bytes > old && self.is_finished {
            return Err(Malformed("data after the end"));
        }
        self.received += bytes - old;
        Ok(old as usize)
    }

    /// Takes the end of the stream.
    pub fn fin(&mut self) -> Result<(), Malformed> {
        if self.repeated > 0 {
            return Err(Malformed("the stream became shorter"));
        }
        self.is_finished = true;
        self.is_end_repeated = false;
        Ok(())
    }

    /// Returns the offset to confirm, if it is time. The last `unread` bytes were not passed on yet.
    /// Nothing is confirmed that was not received on this carrier: the peer has not sent it there yet.
    pub fn confirmation(&mut self, occasion: Occasion, unread: usize) -> Option<u64> {
        if self.repeated > 0 || self.is_end_repeated {
            return None;
        }
        let passed_on = match unread {
            0 => self.offset(),
            unread => self.received.saturating_sub(unread as u64),
        };
        let unconfirmed = passed_on.saturating_sub(self.told);
        let is_end = self.is_finished && unread == 0;
        let is_due = unconfirmed >= occasion.enough() || is_end && unconfirmed > 0;
        is_due.then(|| {
            self.told = passed_on;
            passed_on
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_bytes_are_dropped() {
        let mut incoming = Incoming::default();
        assert_eq!(incoming.data(10), Ok(0));
        incoming.attach(4, 4).unwrap();
        assert_eq!(incoming.data(2), Ok(2));
        assert_eq!(incoming.data(6), Ok(4));
        assert_eq!(incoming.offset(), 12);
        incoming.fin().unwrap();
        assert_eq!(incoming.offset(), 13);
        assert!(incoming.data(1).is_err());
        incoming.attach(11, 11).unwrap();
        assert!(incoming.fin().is_err(), "a byte is missing");
        assert_eq!(incoming.data(1), Ok(1));
        incoming.fin().unwrap();
        assert!(incoming.attach(14, 14).is_err(), "a gap");
    }

    #[test]
    fn confirmations_are_few_but_the_end_is_confirmed_at_once() {
        let mut incoming = Incoming::default();
        incoming.data(CONFIRM_BYTES as usize).unwrap();
        assert_eq!(incoming.confirmation(Occasion::More, 0), None);
        assert_eq!(incoming.confirmation(Occasion::Dry, 0), Some(CONFIRM_BYTES));
        assert_eq!(incoming.confirmation(Occasion::Dry, 0), None);
        incoming.data(CONFIRM_AT_ONCE_BYTES as usize).unwrap();
        assert!(incoming.confirmation(Occasion::More, 0).is_some());
        incoming.fin().unwrap();
        assert!(!incoming.is_end_confirmed());
        assert!(incoming.confirmation(Occasion::More, 0).is_some());
        assert!(incoming.is_end_confirmed());
        assert_eq!(incoming.confirmation(Occasion::Dry, 0), None);
    }

    #[test]
    fn data_takes_confirmations_along() {
        let mut incoming = Incoming::default();
        incoming.data(CONFIRM_WITH_DATA_BYTES as usize).unwrap();
        assert_eq!(incoming.confirmation(Occasion::Dry, 0), None);
        assert_eq!(incoming.confirmation(Occasion::Data, 0), Some(CONFIRM_WITH_DATA_BYTES));
        assert_eq!(incoming.confirmation(Occasion::Data, 0), None);
    }

    #[test]
    fn bytes_that_wait_for_the_user_are_not_confirmed() {
        let mut incoming = Incoming::default();
        let unread = 3 * CONFIRM_AT_ONCE_BYTES as usize;
        incoming.data(unread).unwrap();
        incoming.fin().unwrap();
        assert_eq!(incoming.confirmation(Occasion::Dry, unread), None);
        let rest = CONFIRM_BYTES as usize;
        assert_eq!(incoming.confirmation(Occasion::Dry, rest), Some((unread - rest) as u64));
        assert_eq!(incoming.confirmation(Occasion::Dry, 1), None);
        assert_eq!(incoming.confirmation(Occasion::Dry, 0), Some(unread as u64 + 1), "and the end");
    }
}
