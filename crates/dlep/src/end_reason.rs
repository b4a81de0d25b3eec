//! Reasons for the end of a session, in words.

use std::fmt;

use dlep_core::{CodecError, Message, MessageType, StatusCode};

use crate::wire;

/// Side that ended a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// This side.
    Local,
    /// The peer.
    Peer,
}

/// Reason for the end of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndReason {
    /// Side that ended the session.
    pub by: Side,
    /// Status code that was or would have been sent (section 13.1).
    pub code: StatusCode,
    /// Exact fault.
    pub detail: String,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = match self.code {
            StatusCode::SUCCESS => "success",
            StatusCode::UNKNOWN_MESSAGE => "unknown message",
            StatusCode::UNEXPECTED_MESSAGE => "unexpected message",
            StatusCode::INVALID_DATA => "invalid data",
            StatusCode::INVALID_DESTINATION => "invalid destination",
            StatusCode::TIMED_OUT => "timed out",
            StatusCode::SHUTTING_DOWN => "shutting down",
            _ => "other",
        };
        write!(f, "{} (status {}, {code})", self.detail, self.code.0)
    }
}

impl EndReason {
    pub(crate) fn ours(code: StatusCode, detail: impl Into<String>) -> Self {
        Self { by: Side::Local, code, detail: detail.into() }
    }

    pub(crate) fn theirs(code: StatusCode, detail: impl Into<String>) -> Self {
        Self { by: Side::Peer, code, detail: detail.into() }
    }

    /// Reason for bytes that cannot be decoded.
    pub(crate) fn unreadable(error: &CodecError) -> Self {
        Self::ours(StatusCode::INVALID_DATA, format!("a message cannot be read: {error}"))
    }

    /// Reason for a message that the state machine answered by ending the session with `code`.
    pub(crate) fn refused(message: &Message, code: StatusCode) -> Self {
        let name = wire::name(message.message_type);
        let why = match code {
            StatusCode::UNKNOWN_MESSAGE => "is not known".to_owned(),
            StatusCode::UNEXPECTED_MESSAGE => "is unexpected here".to_owned(),
            StatusCode::INVALID_DESTINATION => "is about a destination that is not up".to_owned(),
            StatusCode::INVALID_DATA => {
                let items: Vec<_> = message.data_items.iter().map(|i| i.type_id().0).collect();
                let shown = &items[..items.len().min(32)];
                format!("lacks, repeats or misplaces data items, it has types {shown:?}")
            }
            _ => "reports a failure".to_owned(),
        };
        Self::ours(code, format!("a {name} {why}"))
    }

    /// Reason in a received Session Termination; `None` for other messages.
    pub(crate) fn from_termination(message: &Message) -> Option<Self> {
        use dlep_core::DataItem;
        if message.message_type != MessageType::SESSION_TERMINATION {
            return None;
        }
        let status = message.data_items.iter().find_map(|item| match item {
            DataItem::Status { code, text } => Some((*code, crate::sanitize(text))),
            _ => None,
        });
        let (code, text) = status.unwrap_or((StatusCode::SHUTTING_DOWN, String::new()));
        let text = if text.is_empty() { String::new() } else { format!(": {text:?}") };
        Some(Self::theirs(code, format!("the peer terminated the session{text}")))
    }
}
