//! The Split HTTP protocol: one stream of the link for each page.
//!
//! The air gateway sends one [`Request`] and then cancellations. The ground gateway sends [`Frame`]s
//! inside one zstd stream. Streams of different pages share no compression state, so lengths do not
//! reveal what other passengers received. The byte layouts are in `docs/split-http.md`.

mod codec;
mod down;
mod head;
mod pack;
mod request;
#[cfg(test)]
mod tests;

pub use down::{Frame, FrameReader};
pub use head::{Head, MAX_HEAD_BYTES, MAX_HEAD_FIELDS};
pub use pack::{Packer, Unpacker};
pub use request::{MAX_REQUEST_BYTES, Request, UpMessage, UpReader};

/// First byte of a request without a condition. Every ground gateway reads it.
pub const VERSION: u8 = 1;

/// First byte of a request with the cache's own condition. A ground gateway that knows only
/// [`VERSION`] ends the stream with an error, and the page crosses the link as usual. 2 is the first
/// byte of a cancellation, so it cannot be a version.
pub const VERSION_CONDITIONAL: u8 = 3;

/// Maximum size of one [`Frame::Data`]. Urgent data waits for at most one of them: 60 ms at 2 Mbit/s.
pub const MAX_DATA_BYTES: usize = 16 << 10;

/// Number of the page itself among the objects of its stream.
pub const PAGE: u16 = 0;

/// Reason why received bytes are not valid in this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The layout is wrong.
    #[error("the peer's bytes are not the Split HTTP protocol's")]
    Malformed,
    /// Another version.
    #[error(
        "the peer speaks version {0} of the Split HTTP protocol, not {VERSION} or {VERSION_CONDITIONAL}: update one \
         of them"
    )]
    Version(u8),
    /// A limit of the protocol is exceeded.
    #[error("the peer sends more than the Split HTTP protocol allows")]
    Large,
    /// The frames are in a wrong order: data before its header, or after its end.
    #[error("the peer's frames are out of order")]
    Order,
    /// The compressed bytes are damaged.
    #[error("the peer's compressed bytes cannot be read")]
    Packed,
}

/// End of an object, or of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The object is complete.
    Complete,
    /// The object will not be sent. Clients that want it request it themselves. Comes instead of a header.
    Declined,
    /// The object broke off after its header.
    Aborted,
    /// The page is refused without asking its origin, and others would be for a while. An air gateway
    /// that does not know this code aborts the stream, and the page crosses the link as usual.
    Refused(Refusal),
}

/// Scope of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// This origin: the operator's rules exclude it, or it is not one of the operator's sites.
    Name,
    /// All pages for now: the ground gateway is at its limit.
    Busy,
}

impl End {
    const ALL: [Self; 5] = [
        Self::Complete,
        Self::Declined,
        Self::Aborted,
        Self::Refused(Refusal::Name),
        Self::Refused(Refusal::Busy),
    ];

    fn code(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::Declined => 1,
            Self::Aborted => 2,
            Self::Refused(Refusal::Name) => 3,
            Self::Refused(Refusal::Busy) => 4,
        }
    }

    fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|end| end.code() == code)
    }
}
