//! Records: the contents of a carrier, in both directions.
//!
//! The first byte of a record tells its kind and length:
//!
//! | first byte | record |
//! |---|---|
//! | 0 and 7 bits | data of that many bytes, at least 1 |
//! | 10 and 6 bits, with the next byte | data of that many bytes |
//! | 11 and 6 bits | a control record with that code |
//!
//! | code | record | contents |
//! |---|---|---|
//! | 1 | OPEN | flow id (16 bytes), attempt (4), target |
//! | 2 | RESUME | flow id (16), attempt (4), ticket (40), receive offset (8) |
//! | 3 | ACCEPT | receive offset (8), offset of the first data to come (8), ticket (40), class (1) |
//! | 4 | CONFIRM | receive offset (8) |
//! | 5 | FIN | nothing |
//! | 6 | CLASS | class (1) |
//! | 7 | END | reset code (1) |
//! | 8 | STOP | reset code (1): the sender reads no more |
//! | 9 | WATCH | nothing: the stream carries no flow, and the hub finishes it before it stops |
//! | 10 | DIALS | nothing: the stream carries no flow, and the egress reports its dials on it |
//! | 11 | DIALLED | milliseconds (2) or 65,535 if nothing answered, target |
//!
//! Integers are in network order. The end of a stream counts as one byte of it: an offset after the
//! last byte confirms the FIN too. Targets and reset codes are those of the radio protocol.

use bentpipe_flow::{ResetCode, Target};

use crate::ticket::{FlowId, TICKET_BYTES, Ticket};

/// Maximum number of bytes in one data record.
pub const MAX_DATA_BYTES: usize = (1 << 14) - 1;

/// Maximum length of a control record: an OPEN with the longest name has 280 bytes.
pub const MAX_CONTROL_BYTES: usize = 320;

/// Maximum number of data bytes with a header of one byte.
const MAX_SHORT_BYTES: usize = (1 << 7) - 1;
const LONG: u8 = 0b1000_0000;
const CONTROL: u8 = 0b1100_0000;
const LOW_BITS: u8 = 0b0011_1111;
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
}

/// A carrier whose bytes violate the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the carrier of a flow violates its protocol: {0}")]
pub struct Malformed(pub &'static str);

/// Appends the header of a data record of `bytes`, between 1 and [`MAX_DATA_BYTES`].
pub fn put_data_header(out: &mut Vec<u8>, bytes: usize) {
    if bytes <= MAX_SHORT_BYTES {
        out.push(bytes as u8);
    } else {
        out.extend([LONG | (bytes >> 8) as u8, bytes as u8]);
    }
}

impl Control {
    /// Appends the record.
    ///
    /// # Panics
    ///
    /// If the target of an OPEN or a DIALLED has no encoding. Check it with [`Target::encode`] before.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Open { id, attempt, target } => {
                out.push(CONTROL | 1);
                out.extend(id);
                out.extend(attempt.to_be_bytes());
                target.encode(out).expect("the target was checked");
            }
            Self::Resume { id, attempt, ticket, received } => {
                out.push(CONTROL | 2);
                out.extend(id);
                out.extend(attempt.to_be_bytes());
                out.extend(ticket.as_bytes());
                out.extend(received.to_be_bytes());
            }
            Self::Accept { received, start, ticket, class } => {
                out.push(CONTROL | 3);
                out.extend(received.to_be_bytes());
                out.extend(start.to_be_bytes());
                out.extend(ticket.as_bytes());
                out.push(class.unwrap_or(NO_CLASS));
            }
            Self::Confirm(offset) => {
                out.push(CONTROL | 4);
                out.extend(offset.to_be_bytes());
            }
            Self::Fin => out.push(CONTROL | 5),
            Self::Class(class) => out.extend([CONTROL | 6, *class]),
            Self::End(code) => out.extend([CONTROL | 7, code.to_u8()]),
            Self::Stop(code) => out.extend([CONTROL | 8, code.to_u8()]),
            Self::Watch => out.push(CONTROL | 9),
            Self::Dials => out.push(CONTROL | 10),
            Self::Dialled { millis, target } => {
                out.push(CONTROL | 11);
                out.extend(millis.unwrap_or(NO_ANSWER).to_be_bytes());
                target.encode(out).expect("the target was checked");
            }
        }
    }

    /// Reads the record with `code` from all of `bytes`; `None` if they are too few.
    fn read(code: u8, bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut left = Left(bytes);
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
            10 => Some(Self::Dials),
            11 => left.dialled()?,
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
            Ok((target, _)) => Ok(Some(target)),
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

/// Decoder of the records of one carrier, in pieces of any size.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Bytes of the present data record that have not come yet.
    data_left: usize,
    /// Beginning of a record that has not come as a whole.
    partial: Vec<u8>,
}

impl Decoder {
    /// Gives the records in `bytes` to `sink`, and moves the data that it keeps to the front. Returns
    /// the number of these bytes.
    pub fn decode(&mut self, bytes: &mut [u8], sink: &mut dyn Sink) -> Result<usize, Malformed> {
        let (mut at, mut kept) = (0, 0);
        while at < bytes.len() {
            if self.data_left > 0 {
                let part = self.data_left.min(bytes.len() - at);
                let dropped = sink.data(part)?;
                bytes.copy_within(at + dropped..at + part, kept);
                kept += part - dropped;
                at += part;
                self.data_left -= part;
                continue;
            }
            self.partial.push(bytes[at]);
            at += 1;
            if let Some(record) = self.next()? {
                sink.control(record)?;
            }
        }
        Ok(kept)
    }

    /// Takes the record in `partial` if it is whole: returns a control record, and begins a data
    /// record.
    fn next(&mut self) -> Result<Option<Control>, Malformed> {
        let (first, rest) = (self.partial[0], &self.partial[1..]);
        let record = match first {
            0 => return Err(Malformed("empty data")),
            short if short & LONG == 0 => {
                self.data_left = usize::from(short);
                None
            }
            control if control & CONTROL == CONTROL => {
                match Control::read(control & LOW_BITS, rest)? {
                    Some(record) => Some(record),
                    None if self.partial.len() < MAX_CONTROL_BYTES => return Ok(None),
                    None => return Err(Malformed("endless record")),
                }
            }
            long => match rest {
                [] => return Ok(None),
                [low, ..] => {
                    self.data_left = usize::from(long & LOW_BITS) << 8 | usize::from(*low);
                    if self.data_left <= MAX_SHORT_BYTES {
                        return Err(Malformed("a length that is not the shortest"));
                    }
                    None
                }
            },
        };
        self.partial.clear();
        Ok(record)
    }

    /// Bytes of the present data record that have not come yet.
    pub fn data_left(&self) -> usize {
        self.data_left
    }

    /// Returns `true` if nothing is left of a record.
    pub fn is_between_records(&self) -> bool {
        self.data_left == 0 && self.partial.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sink that notes everything.
    #[derive(Default)]
    struct Noted {
        records: Vec<Control>,
        data: usize,
    }

    impl Sink for Noted {
        fn data(&mut self, bytes: usize) -> Result<usize, Malformed> {
            self.data += bytes;
            Ok(0)
        }

        fn control(&mut self, record: Control) -> Result<(), Malformed> {
            self.records.push(record);
            Ok(())
        }
    }

    fn ticket() -> impl Strategy<Value = Ticket> {
        any::<[u8; TICKET_BYTES]>().prop_map(Ticket::from)
    }

    fn control() -> impl Strategy<Value = Control> {
        prop_oneof![
            (any::<FlowId>(), any::<u32>(), "[a-z]{1,60}", any::<u16>()).prop_map(
                |(id, attempt, name, port)| {
                    let host = bentpipe_flow::Host::Name(name);
                    Control::Open { id, attempt, target: Target { host, port } }
                }
            ),
            (any::<FlowId>(), any::<u32>(), ticket(), any::<u64>()).prop_map(
                |(id, attempt, ticket, received)| Control::Resume { id, attempt, ticket, received }
            ),
            (any::<u64>(), any::<u64>(), ticket(), prop::option::of(0_u8..8)).prop_map(
                |(received, start, ticket, class)| Control::Accept {
                    received,
                    start,
                    ticket,
                    class
                }
            ),
            any::<u64>().prop_map(Control::Confirm),
            Just(Control::Fin),
            any::<u8>().prop_map(Control::Class),
            prop::sample::select(&ResetCode::ALL[..]).prop_map(Control::End),
            prop::sample::select(&ResetCode::ALL[..]).prop_map(Control::Stop),
            Just(Control::Watch),
        ]
    }

    proptest! {
        #[test]
        fn records_read_back_in_pieces_of_any_size(
            records in prop::collection::vec((control(), 0_usize..300), 0..8),
            pieces in prop::collection::vec(1_usize..200, 1..20),
        ) {
            let (mut bytes, mut data) = (Vec::new(), Vec::new());
            for (record, length) in &records {
                record.put(&mut bytes);
                if *length > 0 {
                    put_data_header(&mut bytes, *length);
                    let from = data.len();
                    data.extend((from..from + length).map(|at| at as u8));
                    bytes.extend(&data[from..]);
                }
            }
            let (mut decoder, mut noted) = (Decoder::default(), Noted::default());
            let mut read = Vec::<u8>::new();
            let (mut rest, mut sizes) = (&mut bytes[..], pieces.iter().cycle());
            while !rest.is_empty() {
                let size = rest.len().min(*sizes.next().unwrap());
                let (piece, after) = rest.split_at_mut(size);
                let kept = decoder.decode(piece, &mut noted).unwrap();
                read.extend(&piece[..kept]);
                rest = after;
            }
            prop_assert!(decoder.is_between_records());
            prop_assert_eq!(read, data);
            prop_assert_eq!(noted.records, records.into_iter().map(|(it, _)| it).collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut decoder = Decoder::default();
            let _ = decoder.decode(&mut bytes, &mut Noted::default());
        }
    }

    #[test]
    fn lengths_have_one_encoding() {
        for (bytes, header) in
            [(1, &[1_u8][..]), (127, &[127]), (128, &[0x80, 128]), (MAX_DATA_BYTES, &[0xbf, 0xff])]
        {
            let mut out = Vec::new();
            put_data_header(&mut out, bytes);
            assert_eq!(out, header);
        }
        for mut wrong in [vec![0], vec![0x80, 127], vec![0xc0], vec![0xff]] {
            assert!(Decoder::default().decode(&mut wrong, &mut Noted::default()).is_err());
        }
    }
}
