//! The protocol between the halves: one stream of the link for each page.
//!
//! Single requests go beside them, a stream each: see [`single`].
//!
//! Of a page up go one [`Request`] and then cancellations; down come [`Frame`]s inside one zstd stream. What is
//! learned for the compression of one page's stream is never used for another's, so no passenger can
//! tell from lengths what somebody else was sent. Byte layouts are in `docs/split-http.md`.

mod codec;
mod down;
mod head;
mod pack;
mod request;
pub mod single;
#[cfg(test)]
mod tests;

pub use down::{Frame, Frames};
pub use head::{Head, MAX_HEAD_BYTES, MAX_HEAD_FIELDS};
pub use pack::{Packer, Unpacker};
pub use request::{MAX_REQUEST_BYTES, Request, Up, Ups};

/// The first byte of a request without a condition, which every ground reads.
pub const VERSION: u8 = 1;

/// The first byte of a request that may bear the cache's own condition. A ground that knows only
/// [`VERSION`] ends the stream with an error that says so, and the page crosses as ever. 2 begins a
/// cancellation, which must not pass for a request.
pub const VERSION_CONDITIONAL: u8 = 3;

/// The most bytes of one [`Frame::Data`]: what is urgent waits for no more than one of them, 60 ms at
/// 2 Mbit/s.
pub const MAX_DATA_BYTES: usize = 16 << 10;

/// The number of the page itself among its stream's objects.
pub const PAGE: u16 = 0;

/// Reason for which received bytes are not this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// It is none of the layouts.
    #[error("the peer's bytes are not the Split HTTP protocol's")]
    Malformed,
    /// Another version.
    #[error(
        "the peer speaks version {0} of the Split HTTP protocol, not {VERSION}, {VERSION_CONDITIONAL}, {single} or \
         {site}: update one of them",
        single = single::VERSION_SINGLE,
        site = single::VERSION_SITE
    )]
    Version(u8),
    /// Larger than this protocol has it.
    #[error("the peer sends more than the Split HTTP protocol allows")]
    Large,
    /// In an order that makes no sense: data before its head, or after its end.
    #[error("the peer's frames are out of order")]
    Order,
    /// The compressed bytes are damaged.
    #[error("the peer's compressed bytes cannot be read")]
    Packed,
}

/// End of an object, or of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All of it has been sent.
    Complete,
    /// Nothing of it will be: the cabin asks for it itself, if it wants it. Before any head.
    Declined,
    /// It broke off after its head.
    Aborted,
    /// The page is declined before its origin was asked, and so would others be for a while. A cabin that
    /// does not know this end breaks the stream off, and the page crosses as ever.
    Refused(Refusal),
}

/// Scope of a ground's refusal of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// This origin: the operator's rules leave its name out, or it is not one of their sites.
    Name,
    /// Any page at the moment: the ground works on as many as it may.
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
