//! What lets two gateways know each other and hides their packets, for other transports to stand on.
//!
//! A transport that is not [`Session`](crate::Session) gets the same protection without a protocol
//! of its own: the Noise IK handshake behind mac1, mac2 and cookies, packet keys with a replay
//! window, and the cleartext header of every datagram. It chooses a prologue
//! ([`Initiator::start_as`], [`ReceivedInit::read_as`]), so that no message of one transport means
//! anything to another, and puts what it likes into the plaintext.
//!
//! On the ground the order of checks matters: length, mac1, then [`Load`] and mac2, and only then
//! the curve ([`ReceivedInit::read_as`]); then whether the key is known and the counter has risen.
//! What fails is met with silence. Keys count from the first packet that they open.

pub use crate::crypto::{
    CookieError, CookieJar, CookieMonitor, InitPayload, Initiator, Keys, MAC_BYTES,
    MAX_PACKETS_PER_KEY, MacKey, ReceivedInit, ResponsePayload, Rng, respond,
};
pub use crate::endpoint::Load;
pub use crate::wire::codec::{Malformed, Reader, put_varint, varint_len};
pub use crate::wire::header::{
    COOKIE, COOKIE_BYTES, DATA, DATA_OVERHEAD_BYTES, DataHeader, INIT, INIT_BYTES,
    MAX_PACKET_NUMBER, RESPONSE, RESPONSE_BYTES, TAG_BYTES,
};
