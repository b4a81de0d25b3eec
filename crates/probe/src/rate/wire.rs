//! Messages between probe and origin, over UDP.
//!
//! An origin sends a train only to an address that returned its cookie, and answers the question for a cookie with
//! less than it received. So it cannot be used to flood another address.
//!
//! | message | sender | contents |
//! |---|---|---|
//! | hello | probe | a nonce, and padding |
//! | cookie | origin | the nonce, and a cookie that is valid for this address |
//! | request | probe | the cookie and a train to send |
//! | packet | both | the train, the packet's number and its time of sending, and padding |
//! | question | probe | the cookie, and the first packet of which the arrival is wanted |
//! | report | origin | arrivals of packets |
//! | refusal | origin | the train that is not sent: the address had its share |

use super::plan::{Part, Plan};

/// Bytes of every message's first field, with the version.
const MAGIC: [u8; 4] = *b"bpt1";

/// Bytes of a hello. The cookie that answers it is shorter.
pub const HELLO_BYTES: usize = 64;

/// Maximum number of arrivals of a report: 1,121 bytes.
pub const MAX_ARRIVALS: usize = 180;

/// Proof that a message comes from the address that it names.
pub type Cookie = [u8; 16];

/// A train of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrainId {
    /// Random number of the run.
    pub run: u64,
    /// Number of the train.
    pub train: u8,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Question for a cookie.
    Hello {
        /// Number that the answer repeats.
        nonce: u64,
    },
    /// Answer to a hello.
    Cookie {
        /// Number of the hello.
        nonce: u64,
        /// The cookie.
        cookie: Cookie,
    },
    /// Question for a train.
    Request {
        /// Proof of the address.
        cookie: Cookie,
        /// The train.
        id: TrainId,
        /// Its packets.
        plan: Plan,
    },
    /// A packet of a train.
    Packet {
        /// Proof of the address; zero from the origin.
        cookie: Cookie,
        /// The train.
        id: TrainId,
        /// Number of the packet.
        number: u16,
        /// Time since the train's start.
        sent_us: u32,
    },
    /// Question for the arrivals of a train.
    Question {
        /// Proof of the address.
        cookie: Cookie,
        /// The train.
        id: TrainId,
        /// Arrivals to leave out.
        skip: u16,
    },
    /// Arrivals of a train.
    Report {
        /// The train.
        id: TrainId,
        /// Arrivals left out.
        skip: u16,
        /// All arrivals.
        total: u16,
        /// Numbers and times of arrival in microseconds.
        arrivals: Vec<(u16, u32)>,
    },
    /// A train is not sent, or its arrivals are not kept.
    Refusal {
        /// The train.
        id: TrainId,
    },
}

impl Message {
    /// Bytes of the message, with padding up to `length`.
    pub fn encode(&self, length: usize) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        match self {
            Self::Hello { nonce } => {
                out.push(1);
                out.extend(nonce.to_be_bytes());
            }
            Self::Cookie { nonce, cookie } => {
                out.push(2);
                out.extend(nonce.to_be_bytes());
                out.extend(cookie);
            }
            Self::Request { cookie, id, plan } => {
                begin(&mut out, 3, cookie, *id);
                for part in [plan.drain, plan.steady] {
                    out.extend(part.bps.to_be_bytes());
                    out.extend(part.bytes.to_be_bytes());
                    out.extend(part.count.to_be_bytes());
                }
            }
            Self::Packet { cookie, id, number, sent_us } => {
                begin(&mut out, 4, cookie, *id);
                out.extend(number.to_be_bytes());
                out.extend(sent_us.to_be_bytes());
            }
            Self::Question { cookie, id, skip } => {
                begin(&mut out, 5, cookie, *id);
                out.extend(skip.to_be_bytes());
            }
            Self::Report { id, skip, total, arrivals } => {
                begin(&mut out, 6, &[0; 16], *id);
                out.extend(skip.to_be_bytes());
                out.extend(total.to_be_bytes());
                out.push(arrivals.len() as u8);
                for (number, arrived_us) in arrivals {
                    out.extend(number.to_be_bytes());
                    out.extend(arrived_us.to_be_bytes());
                }
            }
            Self::Refusal { id } => begin(&mut out, 7, &[0; 16], *id),
        }
        out.resize(out.len().max(length), 0);
        out
    }

    /// Reads a message. Padding is allowed.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        if rest.take::<4>()? != MAGIC {
            return None;
        }
        let kind = rest.u8()?;
        if let 1 | 2 = kind {
            let nonce = u64::from_be_bytes(rest.take()?);
            return match kind {
                1 => (bytes.len() >= HELLO_BYTES).then_some(Self::Hello { nonce }),
                _ => Some(Self::Cookie { nonce, cookie: rest.take()? }),
            };
        }
        let cookie = rest.take()?;
        let id = TrainId { run: u64::from_be_bytes(rest.take()?), train: rest.u8()? };
        match kind {
            3 => {
                let (drain, steady) = (rest.part()?, rest.part()?);
                Some(Self::Request { cookie, id, plan: Plan { drain, steady } })
            }
            4 => Some(Self::Packet { cookie, id, number: rest.u16()?, sent_us: rest.u32()? }),
            5 => Some(Self::Question { cookie, id, skip: rest.u16()? }),
            6 => {
                let (skip, total, count) = (rest.u16()?, rest.u16()?, rest.u8()?);
                let arrivals = (0..usize::from(count).min(MAX_ARRIVALS))
                    .map(|_| Some((rest.u16()?, rest.u32()?)));
                Some(Self::Report { id, skip, total, arrivals: arrivals.collect::<Option<_>>()? })
            }
            7 => Some(Self::Refusal { id }),
            _ => None,
        }
    }
}

fn begin(out: &mut Vec<u8>, kind: u8, cookie: &Cookie, id: TrainId) {
    out.push(kind);
    out.extend(cookie);
    out.extend(id.run.to_be_bytes());
    out.push(id.train);
}

/// Bytes not read yet.
struct Rest<'b>(&'b [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn part(&mut self) -> Option<Part> {
        Some(Part { bps: self.u32()?, bytes: self.u16()?, count: self.u16()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_read_as_it_was_written() {
        let (cookie, id) = ([7; 16], TrainId { run: 1 << 60, train: 3 });
        let part = Part { bps: 200_000, bytes: 200, count: 96 };
        let messages = [
            Message::Hello { nonce: 5 },
            Message::Cookie { nonce: 5, cookie },
            Message::Request { cookie, id, plan: Plan { drain: part, steady: part } },
            Message::Packet { cookie, id, number: 9, sent_us: 10 },
            Message::Question { cookie, id, skip: 180 },
            Message::Report { id, skip: 0, total: 2, arrivals: vec![(0, 1), (1, u32::MAX)] },
            Message::Refusal { id },
        ];
        for message in messages {
            let bytes = message.encode(HELLO_BYTES);
            assert_eq!(Message::decode(&bytes), Some(message.clone()));
            assert!((0..29).all(|length| Message::decode(&bytes[..length]).is_none()));
        }
        let cookie = Message::Cookie { nonce: 5, cookie }.encode(0);
        assert!(cookie.len() < HELLO_BYTES, "no amplification");
        assert!(Message::decode(&Message::Hello { nonce: 5 }.encode(0)).is_none(), "too short");
        let arrivals = vec![(0, 0); MAX_ARRIVALS];
        let report = Message::Report { id, skip: 0, total: 999, arrivals }.encode(0);
        assert!(report.len() <= 1121, "{}", report.len());
    }
}
