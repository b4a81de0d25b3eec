//! Authentication of two gateways and encryption of their packets, for other transports.
//!
//! A transport other than [`Session`](crate::Session) gets the same protection from these parts:
//!
//! - a [`Initiator`] at the air's end and a [`Responder`] at the ground's;
//! - the [`Keys`] that they agree on, in a [`Keychain`] for a session;
//! - the cleartext header of every datagram, [`DataHeader`].
//!
//! The transport chooses a prologue, so that its messages mean nothing to other transports, and the
//! contents of the plaintext.
//!
//! The protocol is the Noise IK handshake behind mac1, mac2 and cookies. The ground checks a first
//! message in this order, and does not answer one that fails:
//!
//! 1. its length and mac1;
//! 2. whether the same message was read recently;
//! 3. the load, and mac2 if the load is high;
//! 4. the recent cost of its address, and of all addresses;
//! 5. the message itself, with curve arithmetic;
//! 6. whether the key is known and the counter has increased.
//!
//! Keys and counters take effect with the first packet under the keys.

pub use crate::crypto::{
    Aead, Aeads, Aged, InitPayload, Keychain, Keys, MAC_BYTES, MacKey, ResponsePayload, Rng,
    SentInit, reject_after,
};
pub use crate::endpoint::{
    Answer, AnswerParams, Confirmed, Initiator, MAX_PEER_ADDRESSES, Packet, PeerAddresses,
    Responder,
};
pub use crate::wire::codec::{Malformed, Reader, put_varint, varint_len};
pub use crate::wire::header::{
    COOKIE, DATA, DATA_OVERHEAD_BYTES, DataHeader, INIT, INIT_BYTES, MAX_PACKET_NUMBER, RESPONSE,
    TAG_BYTES,
};
