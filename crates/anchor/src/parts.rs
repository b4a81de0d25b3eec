//! State of flows and of an egress as plain data, for the next process of a gateway.
//!
//! An orderly restart hands the flows to the next process: the sockets by the operating system, and
//! these parts as bytes. They contain the key of the tickets, so nobody else may read them.
//!
//! The first byte of each is the version of its encoding. Integers are in network order.

use std::time::Duration;

use bentpipe_flow::{Claim, Class, ResetCode};
use bytes::BytesMut;

use crate::end::{End, Identity};
use crate::ended::MAX_ENDED;
use crate::outgoing::MAX_UNCONFIRMED_BYTES;
use crate::registry::{MAX_AIRCRAFT, Memory, Remembered};
use crate::ticket::{EgressId, FlowId};
use crate::wire::{Left, put_code};

/// Maximum number of bytes of a flow that were read ahead of the user: everything that the peer may
/// have unconfirmed, and what came with the acceptance of other carriers.
pub const MAX_UNREAD_BYTES: usize = MAX_UNCONFIRMED_BYTES + (64 << 10);

/// Version of the encodings.
const VERSION: u8 = 1;

/// Maximum length of the parts of one flow, encoded.
pub const MAX_FLOW_BYTES: usize = MAX_UNCONFIRMED_BYTES + MAX_UNREAD_BYTES + 1024;

/// State of another process that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the state that the previous process handed over is invalid: {0}; its flows end, as they do \
     after a restart without a handover"
)]
pub struct InvalidParts(pub &'static str);

const SHORT: InvalidParts = InvalidParts("it is too short");

/// Both streams of one end of a flow, without a carrier.
#[derive(Debug, Default)]
pub struct StreamParts {
    /// The end, with its unconfirmed bytes.
    pub end: End,
    /// Data that was read ahead of the user.
    pub unread: BytesMut,
    /// Time without a carrier so far.
    pub unheard: Duration,
    /// Reason for the end of the flow.
    pub ended: Option<ResetCode>,
}

/// A flow at the egress, without the socket to its destination.
#[derive(Debug)]
pub struct FlowParts {
    /// Public key of the aircraft.
    pub aircraft: [u8; 32],
    /// The flow.
    pub id: FlowId,
    /// Number of its last carrier.
    pub attempt: u32,
    /// Its streams.
    pub streams: StreamParts,
}

/// A flow at the air, without the passenger's socket.
#[derive(Debug)]
pub struct AirParts {
    /// Its identity.
    pub identity: Identity,
    /// Class in which its carriers are opened.
    pub class: Class,
    /// Number of the passenger.
    pub passenger: u32,
    /// Class claim that is to be verified.
    pub claim: Option<Claim>,
    /// Its streams.
    pub streams: StreamParts,
}

/// An egress, without its open flows.
pub struct EgressParts {
    /// Key of its tickets.
    pub key: [u8; 32],
    /// Number of the egress.
    pub id: EgressId,
    /// Present time of its tickets.
    pub now: Duration,
    /// Sessions of the aircraft, and the flows that have ended.
    pub memory: Memory<StreamParts>,
}

impl StreamParts {
    fn put(&self, out: &mut Vec<u8>) {
        self.end.put(out);
        put_code(out, self.ended);
        out.extend((self.unheard.as_millis() as u64).to_be_bytes());
        out.extend((self.unread.len() as u32).to_be_bytes());
        out.extend(&self.unread);
    }

    fn read(left: &mut Left<'_>) -> Result<Self, InvalidParts> {
        let end = End::read(left).ok_or(InvalidParts("the position of a flow"))?;
        let ended = left.code().ok_or(SHORT)?;
        let unheard = Duration::from_millis(left.u64().ok_or(SHORT)?);
        let unread = left.counted(MAX_UNREAD_BYTES).ok_or(InvalidParts("the data of a flow"))?;
        Ok(Self { end, unread: unread.into(), unheard, ended })
    }
}

impl FlowParts {
    /// Encodes the parts.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend(self.aircraft);
        out.extend(self.id);
        out.extend(self.attempt.to_be_bytes());
        self.streams.put(&mut out);
        out
    }

    /// Decodes all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, InvalidParts> {
        whole(bytes, |left| {
            Ok(Self {
                aircraft: left.array().ok_or(SHORT)?,
                id: left.array().ok_or(SHORT)?,
                attempt: left.u32().ok_or(SHORT)?,
                streams: StreamParts::read(left)?,
            })
        })
    }
}

impl AirParts {
    /// Encodes the parts.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        self.identity.put(&mut out);
        out.push(self.class.to_u8());
        out.extend(self.passenger.to_be_bytes());
        let name = self.claim.as_ref().map_or("", Claim::name);
        out.push(self.claim.as_ref().map_or(self.class, |claim| claim.class).to_u8());
        out.extend((name.len() as u32).to_be_bytes());
        out.extend(name.as_bytes());
        self.streams.put(&mut out);
        out
    }

    /// Decodes all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, InvalidParts> {
        let class = |left: &mut Left<'_>| {
            left.u8().and_then(Class::from_u8).ok_or(InvalidParts("the class of a flow"))
        };
        whole(bytes, |left| {
            let identity = Identity::read(left).ok_or(InvalidParts("the identity of a flow"))?;
            let (flow_class, passenger) = (class(left)?, left.u32().ok_or(SHORT)?);
            let claimed = class(left)?;
            let invalid = InvalidParts("the claim of a flow");
            let name = left.counted(bentpipe_flow::MAX_NAME_BYTES).ok_or(invalid)?;
            let name = std::str::from_utf8(name).map_err(|_| invalid)?;
            let claim = match name {
                "" => None,
                name => Some(Claim::new(name, claimed).map_err(|_| invalid)?),
            };
            let streams = StreamParts::read(left)?;
            Ok(Self { identity, class: flow_class, passenger, claim, streams })
        })
    }
}

impl EgressParts {
    /// Encodes the parts.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend(self.key);
        out.extend(self.id);
        out.extend((self.now.as_millis() as u64).to_be_bytes());
        out.extend((self.memory.sessions.len() as u32).to_be_bytes());
        for (aircraft, session) in &self.memory.sessions {
            out.extend(aircraft);
            out.extend(session.to_be_bytes());
        }
        out.extend((self.memory.ended.len() as u32).to_be_bytes());
        for flow in &self.memory.ended {
            out.extend(flow.aircraft);
            out.extend(flow.id);
            out.extend(flow.attempt.to_be_bytes());
            put_code(&mut out, flow.outcome.as_ref().err().copied());
            if let Ok(streams) = &flow.outcome {
                streams.put(&mut out);
            }
        }
        out
    }

    /// Decodes all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, InvalidParts> {
        whole(bytes, |left| {
            let (key, id) = (left.array().ok_or(SHORT)?, left.array().ok_or(SHORT)?);
            let now = Duration::from_millis(left.u64().ok_or(SHORT)?);
            let (mut sessions, mut ended) = (Vec::new(), Vec::new());
            for _ in 0..count(left, MAX_AIRCRAFT)? {
                sessions.push((left.array().ok_or(SHORT)?, left.u64().ok_or(SHORT)?));
            }
            for _ in 0..count(left, MAX_ENDED)? {
                let (aircraft, id) = (left.array().ok_or(SHORT)?, left.array().ok_or(SHORT)?);
                let attempt = left.u32().ok_or(SHORT)?;
                let outcome = match left.code().ok_or(SHORT)? {
                    Some(code) => Err(code),
                    None => Ok(StreamParts::read(left)?),
                };
                ended.push(Remembered { aircraft, id, attempt, outcome });
            }
            Ok(Self { key, id, now, memory: Memory { sessions, ended } })
        })
    }
}

/// Decodes all of `bytes`, which begin with the version.
fn whole<T>(
    bytes: &[u8],
    read: impl FnOnce(&mut Left<'_>) -> Result<T, InvalidParts>,
) -> Result<T, InvalidParts> {
    let mut left = Left::of(bytes);
    if left.u8().ok_or(SHORT)? != VERSION {
        return Err(InvalidParts("it is of another version"));
    }
    let parts = read(&mut left)?;
    if left.is_empty() { Ok(parts) } else { Err(InvalidParts("it is too long")) }
}

fn count(left: &mut Left<'_>, max: usize) -> Result<usize, InvalidParts> {
    let count = left.u32().ok_or(SHORT)? as usize;
    if count <= max { Ok(count) } else { Err(InvalidParts("a list is too long")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_flow::Target;
    use proptest::prelude::*;

    fn streams() -> StreamParts {
        let mut end = End::default();
        end.outgoing.write(b"not confirmed");
        end.outgoing.finish();
        end.incoming.data(99).unwrap();
        end.incoming.fin().unwrap();
        end.class = Some(2);
        let unheard = Duration::from_millis(7);
        StreamParts { end, unread: BytesMut::from(&b"unread"[..]), unheard, ended: None }
    }

    fn air() -> AirParts {
        let target: Target = "server.test:80".parse().unwrap();
        let claim = Some(Claim::new("server.test", Class::ALL[1]).unwrap());
        let (identity, class) = (Identity::new([3; 16], target), Class::BestEffort);
        AirParts { identity, class, passenger: 5, claim, streams: streams() }
    }

    fn egress() -> EgressParts {
        let remembered =
            |id: u8, outcome| Remembered { aircraft: [1; 32], id: [id; 16], attempt: 2, outcome };
        let ended = vec![remembered(1, Err(ResetCode::Idle)), remembered(2, Ok(streams()))];
        let memory = Memory { sessions: vec![([1; 32], 9)], ended };
        EgressParts { key: [4; 32], id: [5; 8], now: Duration::from_secs(6), memory }
    }

    fn flow() -> FlowParts {
        FlowParts { aircraft: [1; 32], id: [2; 16], attempt: 3, streams: streams() }
    }

    #[test]
    fn all_parts_read_back() {
        let (flow, air, egress) = (flow().encode(), air().encode(), egress().encode());
        assert_eq!(FlowParts::decode(&flow).unwrap().encode(), flow);
        assert_eq!(AirParts::decode(&air).unwrap().encode(), air);
        assert_eq!(EgressParts::decode(&egress).unwrap().encode(), egress);
        let read = FlowParts::decode(&flow).unwrap().streams;
        assert_eq!(read.end.incoming.offset(), 100);
        assert_eq!(read.end.outgoing.unconfirmed_bytes(), 13);
        assert_eq!(&read.unread[..], b"unread");
        assert_eq!(AirParts::decode(&air).unwrap().claim, super::tests::air().claim);
    }

    #[test]
    fn no_other_length_and_no_other_version_is_read() {
        for mut bytes in [flow().encode(), air().encode(), egress().encode()] {
            for length in 0..bytes.len() {
                let part = &bytes[..length];
                assert!(FlowParts::decode(part).is_err() && AirParts::decode(part).is_err());
                assert!(EgressParts::decode(part).is_err());
            }
            bytes.push(0);
            assert!(FlowParts::decode(&bytes).is_err() && AirParts::decode(&bytes).is_err());
            bytes.pop();
            bytes[0] = 2;
            assert_eq!(
                FlowParts::decode(&bytes).err(),
                Some(InvalidParts("it is of another version"))
            );
        }
        let mut large = flow();
        large.streams.unread = BytesMut::zeroed(MAX_UNREAD_BYTES + 1);
        assert!(FlowParts::decode(&large.encode()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 1..300)) {
            bytes[0] = VERSION;
            let _ = (FlowParts::decode(&bytes), AirParts::decode(&bytes));
            let _ = EgressParts::decode(&bytes);
        }
    }
}
