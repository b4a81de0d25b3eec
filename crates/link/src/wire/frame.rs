//! Frames of a packet's plaintext.
//!
//! A packet has two parts:
//!
//! - the uncoded part (REPORT, CURVE, LEASE, DEMAND, SLIDE, PING, CHALLENGE, RESPONSE, STANDBY, VOLUME,
//!   DOWN, CLOSE), where the latest message wins and nothing is retransmitted;
//! - at most one symbol, repair or fragment, which fills the rest. Everything that must arrive is
//!   in symbols.
//!
//! | tag | in the uncoded part | body |
//! |---|---|---|
//! | `0x00` | PADDING | none; makes a packet longer, without a meaning |
//! | `0x01` | REPORT | see [`Report`] |
//! | `0x02` | LEASE | to the aircraft: the rate granted to it, see [`super::lease`] |
//! | `0x03` | CHALLENGE | 8 bytes |
//! | `0x04` | RESPONSE | the challenge's 8 bytes |
//! | `0x05` | PING | none; requests a report |
//! | `0x06` | CLOSE | none; ends the session and all its flows |
//! | `0x07` | DEMAND | from the aircraft: waiting data and useful rate, see [`super::lease`] |
//! | `0x08` | SLIDE | lane u8, base varint; symbols below it will not be sent any more |
//! | `0x09` | CURVE | with a REPORT, to a sender that learns its rate, see [`Curve`] |
//! | `0x0a` | STANDBY | none; from the aircraft: this path carries data only if no other does |
//! | `0x0b` | VOLUME | u64; from the aircraft: total bytes that the hub may send on this path; from the hub: total that it has sent |
//! | `0x0c` | DOWN | u8, u8; from the aircraft: number of the news, and paths that it cannot use now, a bit for each |
//! | `0x10` + lane | SYMBOL | number varint, then frames to the end of the packet |
//! | `0x18` + lane | REPAIR | first symbol varint, number of symbols − 1 varint, then the repair symbol to the end |
//! | `0x20` | FRAGMENT | packet of the first fragment varint, total varint, offset varint, then bytes to the end of the packet |
//!
//! The fragments of one body follow one another. Together they are a SYMBOL with its tag, made for
//! larger packets than the path carries now. A lost fragment is not retransmitted alone; the whole
//! symbol is.
//!
//! | tag | in a symbol | body |
//! |---|---|---|
//! | `0x01` | OPEN | flow varint, class u8, passenger varint, credit varint, target |
//! | `0x02` + FIN + LEN | STREAM | flow varint, offset varint, \[length varint\], bytes |
//! | `0x08` | CREDIT | flow varint, limit varint (the offset that may not be exceeded) |
//! | `0x09` | RESET | flow varint, code u8; both directions end at once |
//! | `0x0a` | STOP | flow varint, code u8; the peer should send no more |
//! | `0x0b` | OPEN_DATAGRAMS | flow varint, class u8, passenger varint, protocol u8, source port varint, target |
//! | `0x0c` + LEN | DATAGRAM | flow varint, \[length varint\], payload |
//! | `0x0e` | CLAIM | flow varint, class u8, length u8, name; from the air, after the flow's OPEN |
//! | `0x0f` | CLASS | flow varint, class u8; from the ground: the claim is confirmed |

use bentpipe_coding::{PREFIX_BYTES, Span};
use bentpipe_flow::{Claim, OpenDatagrams, ResetCode, Target};
use bentpipe_schedule::Class;

use super::codec::{Malformed, Reader, put_varint, varint_len};
use super::curve::Curve;
use super::down::Down;
use super::lane::Lane;
use super::lease::{Demand, Grant};
use super::report::Report;
use super::{claim, open};

const REPORT: u8 = 0x01;
const LEASE: u8 = 0x02;
const CHALLENGE: u8 = 0x03;
const RESPONSE: u8 = 0x04;
const PING: u8 = 0x05;
const CLOSE: u8 = 0x06;
const DEMAND: u8 = 0x07;
const SLIDE: u8 = 0x08;
const CURVE: u8 = 0x09;
const STANDBY: u8 = 0x0a;
const VOLUME: u8 = 0x0b;
const DOWN: u8 = 0x0c;
const SYMBOL: u8 = 0x10;
const REPAIR: u8 = 0x18;
const FRAGMENT: u8 = 0x20;

/// PADDING frame, which may be repeated.
pub const PADDING: u8 = 0x00;
/// Maximum length of a fragmented body.
pub const MAX_BODY_BYTES: usize = 65_535;

const OPEN: u8 = 0x01;
const STREAM: u8 = 0x02;
const STREAM_FIN: u8 = 0x01;
const STREAM_LEN: u8 = 0x04;
const CREDIT: u8 = 0x08;
const RESET: u8 = 0x09;
const STOP: u8 = 0x0a;
const DATAGRAM: u8 = 0x0c;
const DATAGRAM_LEN: u8 = 0x0d;
const CLAIM: u8 = 0x0e;
const CLASS: u8 = 0x0f;

/// Lengths of a VOLUME and a path challenge.
pub const VOLUME_BYTES: usize = 9;
pub const CHALLENGE_BYTES: usize = 8;

/// Random bytes of a path challenge.
pub type Challenge = [u8; CHALLENGE_BYTES];

/// A parsed packet: the uncoded part, and its symbol, repair or fragment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Packet<'a> {
    pub report: Option<Report>,
    pub curve: Option<Curve>,
    pub grant: Option<Grant>,
    pub demand: Option<Demand>,
    pub slide: Option<Slide>,
    pub challenge: Option<Challenge>,
    pub response: Option<Challenge>,
    pub ping: bool,
    pub standby: bool,
    pub volume: Option<u64>,
    pub down: Option<Down>,
    pub close: bool,
    pub carried: Option<Carried<'a>>,
}

/// SLIDE: the sender gave up all symbols of a lane below `base`, and the receiver should not wait
/// for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slide {
    pub lane: Lane,
    pub base: u64,
}

impl Slide {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let lane = Lane::from_wire(reader.u8()?).ok_or(Malformed)?;
        Ok(Self { lane, base: reader.varint()? })
    }
}

/// Coded content of a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Carried<'a> {
    Symbol(Symbol<'a>),
    Repair(Repair<'a>),
    Fragment(Fragment<'a>),
}

/// A numbered symbol of a lane.
#[derive(Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    pub lane: Lane,
    pub number: u64,
    pub content: &'a [u8],
}

/// A combination of a span of a lane's symbols. Its coefficients follow from the packet's number.
#[derive(Debug, PartialEq, Eq)]
pub struct Repair<'a> {
    pub lane: Lane,
    pub span: Span,
    pub content: &'a [u8],
}

/// A part of a body too long for one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Packet of the first fragment, which identifies the body.
    pub first: u64,
    /// Length of the whole body, at most [`MAX_BODY_BYTES`].
    pub total: usize,
    /// Offset of `content` in the body.
    pub offset: usize,
    pub content: &'a [u8],
}

impl<'a> Fragment<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let first = reader.varint()?;
        let total = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let offset = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let content = reader.rest();
        let end = offset.checked_add(content.len()).ok_or(Malformed)?;
        if content.is_empty() || content.len() >= total || end > total || total > MAX_BODY_BYTES {
            return Err(Malformed);
        }
        Ok(Self { first, total, offset, content })
    }
}

impl<'a> Symbol<'a> {
    /// Reads a reassembled body.
    pub fn parse_body(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let tag = reader.u8()?;
        match Carried::parse(tag, &mut reader)? {
            Carried::Symbol(symbol) => Ok(symbol),
            _ => Err(Malformed),
        }
    }
}

impl<'a> Packet<'a> {
    pub fn parse(plaintext: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(plaintext);
        let mut packet = Packet::default();
        while !reader.is_empty() {
            match reader.u8()? {
                REPORT => packet.report = Some(Report::parse(&mut reader)?),
                CURVE => packet.curve = Some(Curve::parse(&mut reader)?),
                LEASE => packet.grant = Some(Grant::parse(&mut reader)?),
                DEMAND => packet.demand = Some(Demand::parse(&mut reader)?),
                SLIDE => packet.slide = Some(Slide::parse(&mut reader)?),
                CHALLENGE => packet.challenge = Some(reader.array()?),
                RESPONSE => packet.response = Some(reader.array()?),
                PING => packet.ping = true,
                STANDBY => packet.standby = true,
                VOLUME => packet.volume = Some(reader.u64()?),
                DOWN => packet.down = Some(Down::parse(&mut reader)?),
                CLOSE => packet.close = true,
                PADDING => {}
                tag => {
                    packet.carried = Some(Carried::parse(tag, &mut reader)?);
                    break;
                }
            }
        }
        Ok(packet)
    }

    /// Returns `true` if the packet requests a report.
    pub fn asks_for_report(&self) -> bool {
        self.carried.is_some() || self.ping || self.challenge.is_some()
    }
}

impl<'a> Carried<'a> {
    fn parse(tag: u8, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        if tag == FRAGMENT {
            return Fragment::parse(reader).map(Self::Fragment);
        }
        let lane = Lane::from_wire(tag & 0x07).ok_or(Malformed)?;
        let first = reader.varint()?;
        match tag & !0x07 {
            SYMBOL => Ok(Self::Symbol(Symbol { lane, number: first, content: reader.rest() })),
            REPAIR => {
                let more = u16::try_from(reader.varint()?).map_err(|_| Malformed)?;
                let count = more.checked_add(1).ok_or(Malformed)?;
                let span = Span::new(first, count).ok_or(Malformed)?;
                Ok(Self::Repair(Repair { lane, span, content: reader.rest() }))
            }
            _ => Err(Malformed),
        }
    }
}

pub fn put_report(out: &mut Vec<u8>, report: &Report) {
    out.push(REPORT);
    report.put(out);
}

pub fn put_curve(out: &mut Vec<u8>, curve: &Curve) {
    out.push(CURVE);
    curve.put(out);
}

pub fn put_grant(out: &mut Vec<u8>, grant: &Grant) {
    out.push(LEASE);
    grant.put(out);
}

pub fn put_demand(out: &mut Vec<u8>, demand: &Demand) {
    out.push(DEMAND);
    demand.put(out);
}

pub fn put_slide(out: &mut Vec<u8>, slide: Slide) {
    out.push(SLIDE);
    out.push(slide.lane as u8);
    put_varint(out, slide.base);
}

pub fn put_challenge(out: &mut Vec<u8>, challenge: &Challenge) {
    out.push(CHALLENGE);
    out.extend_from_slice(challenge);
}

pub fn put_response(out: &mut Vec<u8>, challenge: &Challenge) {
    out.push(RESPONSE);
    out.extend_from_slice(challenge);
}

pub fn put_ping(out: &mut Vec<u8>) {
    out.push(PING);
}

pub fn put_standby(out: &mut Vec<u8>) {
    out.push(STANDBY);
}

pub fn put_down(out: &mut Vec<u8>, down: Down) {
    out.extend([DOWN, down.number, down.paths]);
}

/// VOLUME, which begins every packet of a limited path.
pub fn volume(number: u64) -> [u8; VOLUME_BYTES] {
    let mut frame = [VOLUME; VOLUME_BYTES];
    frame[1..].copy_from_slice(&number.to_le_bytes());
    frame
}

pub fn put_close(out: &mut Vec<u8>) {
    out.push(CLOSE);
}

/// Appends a fragment's header; its content follows and ends the packet.
pub fn put_fragment_head(out: &mut Vec<u8>, first: u64, total: usize, offset: usize) {
    out.push(FRAGMENT);
    put_varint(out, first);
    put_varint(out, total as u64);
    put_varint(out, offset as u64);
}

/// Maximum number of bytes that [`put_fragment_head`] appends for a body of `total` bytes.
pub fn fragment_head_len(first: u64, total: usize) -> usize {
    1 + varint_len(first) + 2 * varint_len(total as u64)
}

/// Appends a symbol's header; its content follows and ends the packet.
pub fn put_symbol_head(out: &mut Vec<u8>, lane: Lane, number: u64) {
    out.push(SYMBOL + lane as u8);
    put_varint(out, number);
}

/// Number of bytes that [`put_symbol_head`] appends.
pub fn symbol_head_len(number: u64) -> usize {
    1 + varint_len(number)
}

/// Appends a repair's header; its content follows and ends the packet.
pub fn put_repair_head(out: &mut Vec<u8>, lane: Lane, span: Span) {
    out.push(REPAIR + lane as u8);
    put_varint(out, span.first);
    put_varint(out, u64::from(span.count) - 1);
}

/// Number of bytes that [`put_repair_head`] appends.
pub fn repair_head_len(span: Span) -> usize {
    1 + varint_len(span.first) + varint_len(u64::from(span.count) - 1)
}

/// Maximum excess of a repair packet over the longest packet of its symbols: the span's length and
/// the symbol's length are additional.
pub const REPAIR_EXTRA_BYTES: usize = 2 + PREFIX_BYTES;

/// A frame inside a symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'a> {
    Open { flow: u64, class: Class, passenger: u32, credit: u64, target: Target },
    Stream { flow: u64, offset: u64, fin: bool, data: &'a [u8] },
    Credit { flow: u64, limit: u64 },
    Reset { flow: u64, code: ResetCode },
    Stop { flow: u64, code: ResetCode },
    Claim { flow: u64, claim: Claim },
    Class { flow: u64, class: Class },
    OpenDatagrams { flow: u64, open: OpenDatagrams },
    Datagram { flow: u64, payload: &'a [u8] },
}

impl<'a> Frame<'a> {
    /// Reads the next frame of a symbol.
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let tag = reader.u8()?;
        let flow = reader.varint()?;
        match tag {
            OPEN => Self::parse_open(flow, reader),
            CREDIT => Ok(Frame::Credit { flow, limit: reader.varint()? }),
            RESET => Ok(Frame::Reset { flow, code: code(reader)? }),
            STOP => Ok(Frame::Stop { flow, code: code(reader)? }),
            open::TAG => open::parse(reader).map(|open| Frame::OpenDatagrams { flow, open }),
            DATAGRAM | DATAGRAM_LEN => Self::parse_datagram(tag, flow, reader),
            CLAIM => Ok(Frame::Claim { flow, claim: claim::parse(reader)? }),
            CLASS => Ok(Frame::Class { flow, class: class(reader)? }),
            tag if tag & !(STREAM_FIN | STREAM_LEN) == STREAM => {
                Self::parse_stream(tag, flow, reader)
            }
            _ => Err(Malformed),
        }
    }

    fn parse_open(flow: u64, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let class = class(reader)?;
        let passenger = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let credit = reader.varint()?;
        let (target, used) = Target::decode(reader.rest()).map_err(|_| Malformed)?;
        reader.take(used)?;
        Ok(Frame::Open { flow, class, passenger, credit, target })
    }

    fn parse_stream(tag: u8, flow: u64, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let offset = reader.varint()?;
        let length = if tag & STREAM_LEN != 0 {
            usize::try_from(reader.varint()?).map_err(|_| Malformed)?
        } else {
            reader.rest().len()
        };
        let data = reader.take(length)?;
        offset.checked_add(length as u64).ok_or(Malformed)?;
        Ok(Frame::Stream { flow, offset, fin: tag & STREAM_FIN != 0, data })
    }

    fn parse_datagram(tag: u8, flow: u64, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let length = if tag == DATAGRAM_LEN {
            usize::try_from(reader.varint()?).map_err(|_| Malformed)?
        } else {
            reader.rest().len()
        };
        Ok(Frame::Datagram { flow, payload: reader.take(length)? })
    }
}

fn class(reader: &mut Reader<'_>) -> Result<Class, Malformed> {
    Class::from_u8(reader.u8()?).ok_or(Malformed)
}

fn code(reader: &mut Reader<'_>) -> Result<ResetCode, Malformed> {
    reader.u8().map(ResetCode::from_u8)
}

/// Appends an OPEN frame. `target` is already encoded, so that a name too long is refused earlier.
pub fn put_open(
    out: &mut Vec<u8>,
    flow: u64,
    class: Class,
    passenger: u32,
    credit: u64,
    target: &[u8],
) {
    out.push(OPEN);
    put_varint(out, flow);
    out.push(class.to_u8());
    put_varint(out, u64::from(passenger));
    put_varint(out, credit);
    out.extend_from_slice(target);
}

pub fn put_credit(out: &mut Vec<u8>, flow: u64, limit: u64) {
    out.push(CREDIT);
    put_varint(out, flow);
    put_varint(out, limit);
}

pub fn put_reset(out: &mut Vec<u8>, flow: u64, code: ResetCode) {
    out.push(RESET);
    put_varint(out, flow);
    out.push(code.to_u8());
}

pub fn put_stop(out: &mut Vec<u8>, flow: u64, code: ResetCode) {
    out.push(STOP);
    put_varint(out, flow);
    out.push(code.to_u8());
}

pub fn put_claim(out: &mut Vec<u8>, flow: u64, claim: &Claim) {
    out.push(CLAIM);
    put_varint(out, flow);
    claim::put(claim, out);
}

pub fn put_class(out: &mut Vec<u8>, flow: u64, class: Class) {
    out.push(CLASS);
    put_varint(out, flow);
    out.push(class.to_u8());
}

/// Appends the header of a STREAM frame. `length` is omitted if the bytes end the symbol.
pub fn put_stream_head(out: &mut Vec<u8>, flow: u64, offset: u64, fin: bool, length: Option<u64>) {
    let fin = if fin { STREAM_FIN } else { 0 };
    out.push(STREAM | fin | if length.is_some() { STREAM_LEN } else { 0 });
    put_varint(out, flow);
    put_varint(out, offset);
    if let Some(length) = length {
        put_varint(out, length);
    }
}

/// Length of the header of a STREAM frame without length.
pub fn stream_head_len(flow: u64, offset: u64) -> usize {
    1 + varint_len(flow) + varint_len(offset)
}

/// Appends a DATAGRAM frame. It either `ends` the symbol or has a length.
pub fn put_datagram(out: &mut Vec<u8>, flow: u64, payload: &[u8], ends: bool) {
    out.push(if ends { DATAGRAM } else { DATAGRAM_LEN });
    put_varint(out, flow);
    if !ends {
        put_varint(out, payload.len() as u64);
    }
    out.extend_from_slice(payload);
}

/// Length of a DATAGRAM frame with further frames after it.
pub fn datagram_len(flow: u64, payload_len: usize) -> usize {
    datagram_head_len(flow) + varint_len(payload_len as u64) + payload_len
}

/// Number of bytes before the payload of a DATAGRAM that ends its symbol.
pub fn datagram_head_len(flow: u64) -> usize {
    1 + varint_len(flow)
}
