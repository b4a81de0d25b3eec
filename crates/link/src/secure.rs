//! Authentication of two gateways and encryption of their packets, as a base for other transports.
//!
//! A transport that is not [`Session`](crate::Session) gets the same protection without a protocol
//! of its own: a [`Caller`] at the air's end, a [`Reception`] at the ground's, and the [`Keys`] that
//! they agree on (a [`Keychain`] of them for a session), with the cleartext header of every datagram ([`DataHeader`]). It chooses a
//! prologue, so that no message of one transport means anything to another, and puts what it likes
//! into the plaintext.
//!
//! What the two do is the Noise IK handshake behind mac1, mac2 and cookies. The ground checks length
//! and mac1, whether it has read the same of late, then the load and mac2, then what the address and
//! all together have cost of late, and only then does the curve; then whether the key is known and the
//! counter has risen. What fails is met with silence. Keys, and counters, count from the first
//! packet that the keys open.

pub use crate::crypto::{
    Aged, InitPayload, Initiator, Keychain, Keys, MAC_BYTES, MAX_PACKETS_PER_KEY, MacKey,
    ResponsePayload, Rng, reject_after,
};
pub use crate::endpoint::{
    Answer, Caller, Confirmed, MAX_PLACES, Packet, Places, Reception, Terms,
};
pub use crate::wire::codec::{Malformed, Reader, put_varint, varint_len};
pub use crate::wire::header::{
    COOKIE, DATA, DATA_OVERHEAD_BYTES, DataHeader, INIT, INIT_BYTES, MAX_PACKET_NUMBER, RESPONSE,
    TAG_BYTES,
};
