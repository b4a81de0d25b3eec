//! Content of one packet: a segment, the plaintext under the packet's keys.
//!
//! Integers are LEB128 varints unless a size is given. Fields are in this order. Those in brackets
//! are present if their bit in the first byte is set:
//!
//! | field | size | |
//! |---|---|---|
//! | bits | 1 | below; the top two bits are the number of SACK blocks, 0 to 3 |
//! | connection | varint | 0 is the association itself |
//! | acknowledgement | varint | the next expected sequence number (`A` of the paper's Figure 4) |
//! | window | varint | bytes from there on for which there is room (rwnd) |
//! | SACK blocks | 2 varints each | start − acknowledgement, length; in the receiver's order |
//! | \[`RST` or `STOP`\] code | 1 | a [`ResetCode`] |
//! | \[`SYN`\] class, passenger, target | 1, varint, [`Target`]'s own | like the link's OPEN |
//! | \[`DATA`\] sequence number | varint | of the SYN or the first byte |
//! | payload | the rest | only after a sequence number |
//!
//! Sequence numbers are 64 bits wide and never wrap. The SYN takes number 0 and the FIN the number
//! after the last byte. The ground's half of a connection has no SYN and begins at 1.

use bentpipe_flow::{ResetCode, Target};
use bentpipe_link::Class;
use bentpipe_link::secure::{Malformed, Reader, put_varint, varint_len};

/// Section V.D: "each SACK option is assumed to have room for three SACK blocks".
pub const MAX_SACK_BLOCKS: usize = 3;

/// Opens a connection. Target, class and passenger follow.
const SYN: u8 = 0x01;
/// Ends this direction.
const FIN: u8 = 0x02;
/// Ends both directions. A request if [`ASK`] is set, otherwise its confirmation.
const RST: u8 = 0x04;
/// The receiver stops reading. Its own direction goes on.
const STOP: u8 = 0x08;
/// Requests an acknowledgement without data: a probe of the window or of the peer.
const ASK: u8 = 0x10;
/// A sequence number follows, with bytes, a SYN or a FIN.
const DATA: u8 = 0x20;
/// Shift of the number of SACK blocks.
const BLOCKS_SHIFT: u32 = 6;

/// Largest sequence number, so that the sum of two never overflows.
pub const MAX_NUMBER: u64 = 1 << 62;

/// Largest number of a connection.
pub const MAX_CONNECTION: u64 = u32::MAX as u64;

/// A range of received sequence numbers, half open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// First number.
    pub start: u64,
    /// Number after the last one.
    pub end: u64,
}

/// Description of the connection in a SYN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// Destination that the ground gateway dials.
    pub target: Target,
    /// Class of the flow.
    pub class: Class,
    /// Number of the passenger.
    pub passenger: u32,
}

/// Acknowledgement and receive window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ack {
    /// Next expected sequence number.
    pub number: u64,
    /// Bytes from there on for which there is room.
    pub window: u64,
    /// Received ranges beyond it, at most [`MAX_SACK_BLOCKS`]. First the block of the packet
    /// received last, then earlier reports, most recent first.
    pub blocks: Vec<Block>,
}

/// Content with sequence numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data<'a> {
    /// Number of the SYN, of the first byte, or of the FIN.
    pub seq: u64,
    /// Content of the SYN, at number 0.
    pub syn: Option<Opening>,
    /// `true` if a FIN follows the bytes.
    pub fin: bool,
    /// The bytes.
    pub payload: &'a [u8],
}

/// Purpose of a segment, in addition to the acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind<'a> {
    /// An acknowledgement only.
    Plain {
        /// `true` if an acknowledgement is requested.
        ask: bool,
    },
    /// Content.
    Data(Data<'a>),
    /// End of both directions.
    Reset {
        /// Reason.
        code: ResetCode,
        /// `true` in a request, `false` in its confirmation.
        ask: bool,
    },
}

/// One segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Number of the connection, at most [`MAX_CONNECTION`], or 0.
    pub connection: u64,
    /// Acknowledgement.
    pub ack: Ack,
    /// Reason why the sender of this segment has stopped reading, if it has. Absent in a reset.
    pub stop: Option<ResetCode>,
    /// Other content.
    pub kind: Kind<'a>,
}

impl Data<'_> {
    /// Number of sequence numbers that the content takes.
    pub fn numbers(&self) -> u64 {
        self.payload.len() as u64 + u64::from(self.syn.is_some()) + u64::from(self.fin)
    }
}

impl Opening {
    /// Length in a segment, bytes. `None` if the name cannot be encoded.
    pub fn encoded_len(&self) -> Option<usize> {
        let mut target = Vec::new();
        self.target.encode(&mut target).ok()?;
        Some(1 + varint_len(self.passenger.into()) + target.len())
    }
}

/// Maximum number of bytes before the payload at `seq`, in a segment without a SYN and SACK blocks.
/// Holds for retransmissions too, however far the acknowledgement has advanced.
pub fn max_header_bytes(connection: u64, seq: u64) -> usize {
    const CODE_BYTES: usize = 1;
    let numbers = varint_len(connection) + varint_len(seq) + 2 * varint_len(MAX_NUMBER);
    1 + numbers + CODE_BYTES
}

impl<'a> Segment<'a> {
    /// Parses a segment. All bytes must be used and in range.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let bits = reader.u8()?;
        let connection = reader.varint()?;
        if connection > MAX_CONNECTION {
            return Err(Malformed);
        }
        let (expected, window) = (number(&mut reader)?, number(&mut reader)?);
        let mut ack = Ack { number: expected, window, blocks: Vec::new() };
        for _ in 0..bits >> BLOCKS_SHIFT {
            let start = ack.number + number(&mut reader)?;
            let end = start + number(&mut reader)?;
            if start <= ack.number || end <= start || end > MAX_NUMBER {
                return Err(Malformed);
            }
            ack.blocks.push(Block { start, end });
        }
        let (reset, stops) = (bits & RST != 0, bits & STOP != 0);
        let code = if reset || stops { Some(ResetCode::from_u8(reader.u8()?)) } else { None };
        let stop = code.filter(|_| stops);
        let ask = bits & ASK != 0;
        let kind = match (reset, bits & DATA != 0, code) {
            (true, false, Some(code)) if !stops && bits & (SYN | FIN) == 0 => {
                Kind::Reset { code, ask }
            }
            (false, false, _) if bits & (SYN | FIN) == 0 => Kind::Plain { ask },
            (false, true, _) if !ask => Kind::Data(data(bits, &mut reader)?),
            _ => return Err(Malformed),
        };
        if !matches!(kind, Kind::Data(_)) && !reader.is_empty() {
            return Err(Malformed);
        }
        Ok(Self { connection, ack, stop, kind })
    }

    /// Appends the encoded segment. Returns `false`, with `out` unchanged, if the name cannot be
    /// encoded.
    pub fn put(&self, out: &mut Vec<u8>) -> bool {
        let blocks = &self.ack.blocks[..self.ack.blocks.len().min(MAX_SACK_BLOCKS)];
        let kind = match &self.kind {
            Kind::Plain { ask } => ask_bit(*ask),
            Kind::Data(data) => {
                let syn = if data.syn.is_some() { SYN } else { 0 };
                DATA | syn | if data.fin { FIN } else { 0 }
            }
            Kind::Reset { ask, .. } => RST | ask_bit(*ask),
        };
        let code = match (&self.kind, self.stop) {
            (Kind::Reset { code, .. }, _) => Some(*code),
            (_, stop) => stop,
        };
        let stop = if code.is_some() && kind & RST == 0 { STOP } else { 0 };
        let begin = out.len();
        out.push(kind | stop | (blocks.len() as u8) << BLOCKS_SHIFT);
        put_varint(out, self.connection);
        put_varint(out, self.ack.number);
        put_varint(out, self.ack.window);
        for block in blocks {
            put_varint(out, block.start - self.ack.number);
            put_varint(out, block.end - block.start);
        }
        out.extend(code.map(ResetCode::to_u8));
        if let Kind::Data(data) = &self.kind {
            if let Some(opening) = &data.syn {
                out.push(opening.class.to_u8());
                put_varint(out, opening.passenger.into());
                if opening.target.encode(out).is_err() {
                    out.truncate(begin);
                    return false;
                }
            }
            put_varint(out, data.seq);
            out.extend_from_slice(data.payload);
        }
        true
    }
}

fn ask_bit(ask: bool) -> u8 {
    if ask { ASK } else { 0 }
}

fn data<'a>(bits: u8, reader: &mut Reader<'a>) -> Result<Data<'a>, Malformed> {
    let syn = if bits & SYN != 0 { Some(opening(reader)?) } else { None };
    let seq = number(reader)?;
    let data = Data { seq, syn, fin: bits & FIN != 0, payload: reader.rest() };
    // Number 0 is the SYN and nothing else. Content must take a number.
    if data.syn.is_some() != (seq == 0) || data.numbers() == 0 {
        return Err(Malformed);
    }
    Ok(data)
}

fn opening(reader: &mut Reader<'_>) -> Result<Opening, Malformed> {
    let class = Class::from_u8(reader.u8()?).ok_or(Malformed)?;
    let passenger = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
    let (target, taken) = Target::decode(reader.rest()).map_err(|_| Malformed)?;
    reader.take(taken)?;
    Ok(Opening { target, class, passenger })
}

fn number(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    reader.varint().ok().filter(|number| *number <= MAX_NUMBER).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ack() -> impl Strategy<Value = Ack> {
        let blocks = proptest::collection::vec((1..1u64 << 40, 1..1u64 << 40), 0..=3);
        (0..1u64 << 50, 0..1u64 << 40, blocks).prop_map(|(number, window, blocks)| Ack {
            number,
            window,
            blocks: (blocks.into_iter())
                .map(|(start, length)| (number + start, number + start + length))
                .map(|(start, end)| Block { start, end })
                .collect(),
        })
    }

    fn code() -> impl Strategy<Value = ResetCode> {
        (0..ResetCode::ALL.len()).prop_map(|at| ResetCode::ALL[at])
    }

    proptest! {
        #[test]
        fn segments_read_back(
            connection in 0..=MAX_CONNECTION,
            passenger: u32,
            ack in ack(),
            stop in proptest::option::of(code()),
            code in code(),
            ask: bool,
            seq in 1..MAX_NUMBER,
            fin: bool,
            payload in proptest::collection::vec(any::<u8>(), 1..50),
            which in 0..4,
        ) {
            let opening = Opening {
                target: "origin.example:443".parse().unwrap(),
                class: Class::Assured,
                passenger,
            };
            let kind = match which {
                0 => Kind::Plain { ask },
                1 => Kind::Reset { code, ask },
                2 => Kind::Data(Data { seq, syn: None, fin, payload: &payload }),
                _ => Kind::Data(Data { seq: 0, syn: Some(opening), fin, payload: &payload }),
            };
            let stop = stop.filter(|_| which != 1);
            let segment = Segment { connection, ack, stop, kind };
            let mut bytes = Vec::new();
            prop_assert!(segment.put(&mut bytes));
            prop_assert_eq!(Segment::parse(&bytes), Ok(segment.clone()));
            if which == 2 && segment.ack.blocks.is_empty() {
                let header = bytes.len() - payload.len();
                prop_assert!(header <= max_header_bytes(connection, seq));
            }
        }
    }

    #[test]
    fn meaningless_segments_are_refused() {
        let refused = |bytes: &[u8]| Segment::parse(bytes).is_err();
        assert!(!refused(&[ASK, 1, 0, 0]));
        assert!(refused(&[ASK, 1, 0, 0, 9]), "trailing bytes");
        assert!(refused(&[DATA, 1, 0, 0, 5]), "content that takes no number");
        assert!(refused(&[DATA, 1, 0, 0, 0, 9]), "number 0 without a SYN");
        assert!(refused(&[RST | STOP, 1, 0, 0, 3]));
        assert!(refused(&[SYN, 1, 0, 0]));
        assert!(refused(&[1 << BLOCKS_SHIFT, 1, 7, 0, 0, 5]), "a block of what is acknowledged");
    }
}
