//! The contents of a carrier, in both directions: data, and control records between it.
//!
//! Data has no header, so small pieces cost nothing. Two bytes are the mark
//! `f7 1d`, which no UTF-8 text contains. The byte after a mark tells what it is:
//!
//! | code | record | contents |
//! |---|---|---|
//! | 0 | none: the mark is data | |
//! | 1 | OPEN | flow id (16 bytes), attempt (4), target |
//! | 2 | RESUME | flow id (16), attempt (4), ticket (40), receive offset (8) |
//! | 3 | ACCEPT | receive offset (8), offset of the first data to come (8), ticket (40), class (1) |
//! | 4 | CONFIRM | receive offset (8) |
//! | 5 | FIN | nothing |
//! | 6 | CLASS | class (1) |
//! | 7 | END | reset code (1) |
//! | 8 | STOP | reset code (1): the sender reads no more |
//! | 9 | WATCH | nothing: the stream carries no flow, and the hub finishes it before it stops |
//! | 10 | none: the first byte of the mark is data, and there is none after it for now | |
//! | 11 | DIALS | nothing: the stream carries no flow, and the egress reports its dials on it |
//! | 12 | DIALLED | milliseconds (2) or 65,535 if nothing answered, target |
//! | 13 | DIRECTORY | nothing: frames of the fleet's directory follow, in both directions |
//!
//! Integers are in network order. The end of a stream counts as one byte of it: an offset after the
//! last byte confirms the FIN too. Targets and reset codes are those of the radio protocol.

use bentpipe_flow::{ResetCode, Target};

use crate::ticket::{FlowId, TICKET_BYTES, Ticket};

/// Maximum length of a control record: an OPEN with the longest name has 280 bytes.
pub const MAX_CONTROL_BYTES: usize = 320;

/// Beginning of everything that is not data. Its two bytes differ, so that marks do not overlap.
pub const MARK: [u8; 2] = [0xf7, 0x1d];

/// Room that a [`Decoder`] needs at least: bytes that it left before, and one more.
pub const MIN_ROOM_BYTES: usize = MARK.len() + 1;

/// Code of a mark that is data.
const MARK_IS_DATA: u8 = 0;
/// Code of the mark's first byte alone as data.
const FIRST_IS_DATA: u8 = 10;
/// Class of a flow whose claim is not confirmed.
const NO_CLASS: u8 = 0xff;
/// No reset code.
const NO_CODE: u8 = 0xff;
/// Time of a dial that nothing answered.
const NO_ANSWER: u16 = 0xffff;

/// A control record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// Air to egress, first in its carrier: opens a flow.
    Open {
        /// The flow.
        id: FlowId,
        /// Number of this carrier of the flow. Data follows at once only if it is 0.
        attempt: u32,
        /// Destination.
        target: Target,
    },
    /// Air to egress, first in its carrier: goes on with a flow.
    Resume {
        /// The flow.
        id: FlowId,
        /// Number of this carrier of the flow.
        attempt: u32,
        /// The egress's ticket for the flow.
        ticket: Ticket,
        /// Offset of the first byte that the air has not received.
        received: u64,
    },
    /// Egress to air, first in the carrier.
    Accept {
        /// Offset of the first byte that the egress has not received.
        received: u64,
        /// Offset of the first data on this carrier.
        start: u64,
        /// Ticket for the flow from now on.
        ticket: Ticket,
        /// Class that the ground has confirmed for the flow's claim.
        class: Option<u8>,
    },
    /// Offset of the first byte that has not been passed on.
    Confirm(u64),
    /// The sender's stream ends here.
    Fin,
    /// Egress to air: class that the ground has confirmed for the flow's claim.
    Class(u8),
    /// The flow is over for this reason.
    End(ResetCode),
    /// The sender reads no more of the stream.
    Stop(ResetCode),
    /// Air to hub, alone on its stream: the hub finishes the stream when it is about to stop.
    Watch,
    /// Hub to egress, alone on its stream: the egress reports its dials from now on.
    Dials,
    /// Egress to hub: a dial for a flow that a hub has forwarded.
    Dialled {
        /// Milliseconds that it took; `None` if nothing answered.
        millis: Option<u16>,
        /// Destination.
        target: Target,
    },
    /// Hub to egress, alone on its stream: frames of [`bentpipe_directory`] follow in both directions.
    Directory,
}

/// A carrier whose bytes violate the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the carrier of a flow violates its protocol: {0}")]
pub struct Malformed(pub &'static str);

/// Appends the mark, as data.
pub fn put_mark(out: &mut Vec<u8>) {
    out.extend(MARK);
    out.push(MARK_IS_DATA);
}

/// Appends the first byte of the mark, as data that nothing follows for now.
pub fn put_first_of_mark(out: &mut Vec<u8>) {
    out.extend(MARK);
    out.push(FIRST_IS_DATA);
}

/// Returns the position of the first mark.
pub fn find_mark(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, &MARK)
}

impl Control {
    /// Appends the record.
    ///
    /// # Panics
    ///
    /// If the target of an OPEN or a DIALLED has no encoding. Check it with [`Target::encode`] before.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend(MARK);
        match self {
            Self::Open { id, attempt, target } => {
                out.push(1);
                out.extend(id);
                out.extend(attempt.to_be_bytes());
                target.encode(out).expect("the target was checked");
            }
            Self::Resume { id, attempt, ticket, received } => {
                out.push(2);
                out.extend(id);
                out.extend(attempt.to_be_bytes());
                out.extend(ticket.as_bytes());
                out.extend(received.to_be_bytes());
            }
            Self::Accept { received, start, ticket, class } => {
                out.push(3);
                out.extend(received.to_be_bytes());
                out.extend(start.to_be_bytes());
                out.extend(ticket.as_bytes());
                out.push(class.unwrap_or(NO_CLASS));
            }
            Self::Confirm(offset) => {
                out.push(4);
                out.extend(offset.to_be_bytes());
            }
            Self::Fin => out.push(5),
            Self::Class(class) => out.extend([6, *class]),
            Self::End(code) => out.extend([7, code.to_u8()]),
            Self::Stop(code) => out.extend([8, code.to_u8()]),
            Self::Watch => out.push(9),
            Self::Dials => out.push(11),
            Self::Dialled { millis, target } => {
                out.push(12);
                out.extend(millis.unwrap_or(NO_ANSWER).to_be_bytes());
                target.encode(out).expect("the target was checked");
            }
            Self::Directory => out.push(13),
        }
    }

    /// Reads the record with which a carrier begins. Returns it with its length; `None` if `bytes` are
    /// too few.
    pub fn first(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        if !bytes.starts_with(&MARK[..bytes.len().min(MARK.len())]) {
            return Err(Malformed("data before the first record"));
        }
        let Some((code, rest)) = bytes.get(MARK.len()..).and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        let mut left = Left(rest);
        match Self::read(*code, &mut left)? {
            Some(record) => Ok(Some((record, bytes.len() - left.0.len()))),
            None if rest.len() < MAX_CONTROL_BYTES => Ok(None),
            None => Err(ENDLESS),
        }
    }

    /// Reads the record with `code`; `None` if there are too few bytes.
    fn read(code: u8, left: &mut Left<'_>) -> Result<Option<Self>, Malformed> {
        let record = match code {
            1 => left.open()?,
            2 => left.resume(),
            3 => left.accept(),
            4 => left.u64().map(Self::Confirm),
            5 => Some(Self::Fin),
            6 => left.array().map(|[class]| Self::Class(class)),
            7 => left.array().map(|[code]| Self::End(ResetCode::from_u8(code))),
            8 => left.array().map(|[code]| Self::Stop(ResetCode::from_u8(code))),
            9 => Some(Self::Watch),
            11 => Some(Self::Dials),
            12 => left.dialled()?,
            13 => Some(Self::Directory),
            _ => return Err(Malformed("unknown record")),
        };
        Ok(record)
    }
}

/// Appends a reset code, or that there is none.
pub fn put_code(out: &mut Vec<u8>, code: Option<ResetCode>) {
    out.push(code.map_or(NO_CODE, ResetCode::to_u8));
}

/// Bytes that are left to read. Everything returns `None` if they are too few.
pub struct Left<'a>(&'a [u8]);

impl<'a> Left<'a> {
    /// Reads `bytes`.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns `true` if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    /// Reads a byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    /// Reads an integer.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads an integer.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads what [`put_code`] wrote.
    pub fn code(&mut self) -> Option<Option<ResetCode>> {
        let byte = self.u8()?;
        Some((byte != NO_CODE).then(|| ResetCode::from_u8(byte)))
    }

    /// Reads at most `max` bytes after their number (4 bytes).
    pub fn counted(&mut self, max: usize) -> Option<&'a [u8]> {
        let count = self.u32()? as usize;
        if count > max {
            return None;
        }
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a target.
    pub fn target(&mut self) -> Option<Target> {
        let (target, length) = Target::decode(self.0).ok()?;
        self.0 = self.0.get(length..)?;
        Some(target)
    }

    /// Reads a ticket.
    pub fn ticket(&mut self) -> Option<Ticket> {
        self.array::<TICKET_BYTES>().map(Ticket::from)
    }

    fn open(&mut self) -> Result<Option<Control>, Malformed> {
        let (Some(id), Some(attempt)) = (self.array(), self.array().map(u32::from_be_bytes)) else {
            return Ok(None);
        };
        Ok(self.whole_target()?.map(|target| Control::Open { id, attempt, target }))
    }

    fn dialled(&mut self) -> Result<Option<Control>, Malformed> {
        let Some(millis) = self.array().map(u16::from_be_bytes) else { return Ok(None) };
        let millis = (millis != NO_ANSWER).then_some(millis);
        Ok(self.whole_target()?.map(|target| Control::Dialled { millis, target }))
    }

    /// Reads the target at the end of a record; `None` if there are too few bytes.
    fn whole_target(&mut self) -> Result<Option<Target>, Malformed> {
        match Target::decode(self.0) {
            Ok((target, length)) => {
                self.0 = &self.0[length..];
                Ok(Some(target))
            }
            Err(bentpipe_flow::TargetError::Short) => Ok(None),
            Err(_) => Err(Malformed("invalid target")),
        }
    }

    fn resume(&mut self) -> Option<Control> {
        let (id, attempt) = (self.array()?, self.array().map(u32::from_be_bytes)?);
        Some(Control::Resume { id, attempt, ticket: self.ticket()?, received: self.u64()? })
    }

    fn accept(&mut self) -> Option<Control> {
        let (received, start, ticket) = (self.u64()?, self.u64()?, self.ticket()?);
        let [class] = self.array()?;
        let class = (class != NO_CLASS).then_some(class);
        Some(Control::Accept { received, start, ticket, class })
    }
}

/// Receiver of decoded records.
pub trait Sink {
    /// Takes the next `bytes` of data, and returns how many of them, from the front, to drop.
    fn data(&mut self, bytes: usize) -> Result<usize, Malformed>;

    /// Takes a control record.
    fn control(&mut self, record: Control) -> Result<(), Malformed>;
}

/// A record that is longer than any.
const ENDLESS: Malformed = Malformed("endless record");

/// Decoder of the contents of one carrier, in pieces of any size.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Code and contents of a record that has not come as a whole.
    partial: Vec<u8>,
    /// Number of bytes at the end of the last piece that may be a mark.
    left: usize,
}

impl Decoder {
    /// Bytes of the last piece that were not decoded. The next piece has to begin with them.
    pub fn left(&self) -> &'static [u8] {
        &MARK[..self.left]
    }

    /// Gives the records in `bytes` to `sink`, and moves the data that it keeps to the front. Returns
    /// the number of these bytes.
    pub fn decode(&mut self, bytes: &mut [u8], sink: &mut dyn Sink) -> Result<usize, Malformed> {
        let (mut at, mut kept) = (0, 0);
        self.left = 0;
        while at < bytes.len() {
            if !self.partial.is_empty() {
                self.partial.push(bytes[at]);
                at += 1;
                self.end_record(sink)?;
                continue;
            }
            let (data, skipped) = match Next::of(&bytes[at..]) {
                Next::Data { bytes, skipped } => (bytes, skipped),
                Next::Record(code) => {
                    at += MARK.len() + 1;
                    self.partial.push(code);
                    self.end_record(sink)?;
                    continue;
                }
                Next::Incomplete => {
                    self.left = bytes.len() - at;
                    break;
                }
            };
            let dropped = sink.data(data)?;
            bytes.copy_within(at + dropped..at + data, kept);
            kept += data - dropped;
            at += data + skipped;
        }
        Ok(kept)
    }

    /// Takes the record in `partial` if it is whole.
    fn end_record(&mut self, sink: &mut dyn Sink) -> Result<(), Malformed> {
        match Control::read(self.partial[0], &mut Left(&self.partial[1..]))? {
            Some(record) => {
                self.partial.clear();
                sink.control(record)
            }
            None if self.partial.len() < MAX_CONTROL_BYTES => Ok(()),
            None => Err(ENDLESS),
        }
    }

    /// Returns `true` if nothing is left of a record or a mark.
    pub fn is_between_records(&self) -> bool {
        self.left == 0 && self.partial.is_empty()
    }
}

/// Beginning of some bytes.
enum Next {
    /// Data, and bytes after it that are none.
    Data { bytes: usize, skipped: usize },
    /// A record with this code.
    Record(u8),
    /// All bytes are the beginning of a mark with its code.
    Incomplete,
}

impl Next {
    /// Returns what `bytes`, which are not empty and not within a record, begin with.
    fn of(bytes: &[u8]) -> Self {
        let data = |bytes| Self::Data { bytes, skipped: 0 };
        match find_mark(bytes) {
            Some(0) => match bytes.get(MARK.len()) {
                None => Self::Incomplete,
                Some(&MARK_IS_DATA) => Self::Data { bytes: MARK.len(), skipped: 1 },
                Some(&FIRST_IS_DATA) => Self::Data { bytes: 1, skipped: MARK.len() },
                Some(code) => Self::Record(*code),
            },
            Some(at) => data(at),
            None if bytes.ends_with(&MARK[..1]) => match bytes.len() - 1 {
                0 => Self::Incomplete,
                before => data(before),
            },
            None => data(bytes.len()),
        }
    }
}

#[cfg(test)]
mod tests;
