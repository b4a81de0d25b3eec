//! Message framing of the TCP stream (section 11.2).

use bytes::{Buf, Bytes, BytesMut};
use dlep_core::codec::MESSAGE_HEADER_LEN;
use dlep_core::{CodecError, Message, MessageType};

/// Maximum size of a message: its length field has 16 bits.
pub const MAX_MESSAGE_BYTES: usize = MESSAGE_HEADER_LEN + u16::MAX as usize;

/// Received bytes of incomplete messages: at most [`MAX_MESSAGE_BYTES`], plus those of one read.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: BytesMut,
}

impl Inbox {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete message, or the reason why it cannot be decoded. An undecodable
    /// message is skipped, because its length is known.
    pub fn next(&mut self) -> Option<Result<Message, CodecError>> {
        let header = self.bytes.get(..MESSAGE_HEADER_LEN)?;
        let length = MESSAGE_HEADER_LEN + usize::from(u16::from_be_bytes([header[2], header[3]]));
        if self.bytes.len() < length {
            return None;
        }
        let message: Bytes = self.bytes.copy_to_bytes(length);
        Some(Message::decode(message))
    }

    /// Discards all buffered bytes.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// Name of a message type in the registry (section 15.3).
pub(crate) fn name(kind: MessageType) -> String {
    let name = match kind {
        MessageType::SESSION_INITIALIZATION => "Session Initialization",
        MessageType::SESSION_INITIALIZATION_RESPONSE => "Session Initialization Response",
        MessageType::SESSION_UPDATE => "Session Update",
        MessageType::SESSION_UPDATE_RESPONSE => "Session Update Response",
        MessageType::SESSION_TERMINATION => "Session Termination",
        MessageType::SESSION_TERMINATION_RESPONSE => "Session Termination Response",
        MessageType::DESTINATION_UP => "Destination Up",
        MessageType::DESTINATION_UP_RESPONSE => "Destination Up Response",
        MessageType::DESTINATION_ANNOUNCE => "Destination Announce",
        MessageType::DESTINATION_ANNOUNCE_RESPONSE => "Destination Announce Response",
        MessageType::DESTINATION_DOWN => "Destination Down",
        MessageType::DESTINATION_DOWN_RESPONSE => "Destination Down Response",
        MessageType::DESTINATION_UPDATE => "Destination Update",
        MessageType::LINK_CHARACTERISTICS_REQUEST => "Link Characteristics Request",
        MessageType::LINK_CHARACTERISTICS_RESPONSE => "Link Characteristics Response",
        MessageType::HEARTBEAT => "Heartbeat",
        MessageType(other) => return format!("message of type {other}"),
    };
    format!("{name} message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_wherever_the_stream_is_split() {
        // Two heartbeats (section 12.20) around a Session Termination with status 255.
        let stream = [0, 16, 0, 0, 0, 5, 0, 5, 0, 1, 0, 1, 255, 0, 16, 0, 0];
        for cut in 0..=stream.len() {
            let mut inbox = Inbox::default();
            let mut kinds = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                inbox.push(part);
                kinds
                    .extend(std::iter::from_fn(|| inbox.next()).map(|m| m.unwrap().message_type.0));
            }
            assert_eq!(kinds, [16, 5, 16], "cut at {cut}");
            assert!(inbox.bytes.is_empty());
        }
    }

    #[test]
    fn an_invalid_message_is_skipped() {
        let mut inbox = Inbox::default();
        // A Latency item (section 13.16) of four bytes instead of eight.
        inbox.push(&[0, 3, 0, 8, 0, 16, 0, 4, 0, 0, 0, 1]);
        inbox.push(&[0, 16, 0, 0]);
        let error = inbox.next().unwrap().unwrap_err();
        assert!(matches!(error, CodecError::InvalidDataItemLength { got: 4, .. }), "{error}");
        assert_eq!(inbox.next().unwrap().unwrap().message_type, MessageType::HEARTBEAT);
        assert!(inbox.next().is_none());
    }
}
