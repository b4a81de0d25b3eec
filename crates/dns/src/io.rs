//! DNS messages on streams, each preceded by its length in two bytes (RFC 1035 section 4.2.2).

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Port of name servers.
pub const PORT: u16 = 53;

/// Maximum size of a query. One with a name of 255 bytes and padding (RFC 8467) takes 512.
pub const MAX_QUERY_BYTES: usize = 4096;

/// Maximum size of an answer: that of any message.
pub const MAX_ANSWER_BYTES: usize = 65_535;

/// Bytes reserved for a message before they arrive. The sender pays for the rest.
const AT_ONCE_BYTES: usize = 512;

/// Reads the next message of at most `most` bytes; returns `None` at the end of the stream.
pub async fn read_message<S: AsyncRead + Unpin>(
    stream: &mut S,
    most: usize,
) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 2];
    if stream.read(&mut length[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut length[1..]).await?;
    let length = u16::from_be_bytes(length);
    if usize::from(length) > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = Vec::with_capacity(AT_ONCE_BYTES.min(length.into()));
    let read = stream.take(length.into()).read_to_end(&mut message).await?;
    if read < length.into() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(Some(message)) }
}

/// Writes `message`, which must have at most 65,535 bytes.
pub async fn write_message<S: AsyncWrite + Unpin>(
    stream: &mut S,
    message: &[u8],
) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    // A single write, so that it is sent in one packet.
    stream.write_all(&[&length.to_be_bytes(), message].concat()).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_come_one_after_another() {
        let mut out = Vec::new();
        for message in [&b"one"[..], b"", b"three"] {
            write_message(&mut out, message).await.unwrap();
        }
        let mut rest = &out[..];
        let read = async |from: &mut &[u8], most| read_message(from, most).await.ok();
        assert_eq!(read(&mut rest, 3).await, Some(Some(b"one".to_vec())));
        assert_eq!(read(&mut rest, 0).await, Some(Some(Vec::new())));
        let mut cut = &rest[..4];
        assert_eq!(read(&mut cut, 5).await, None);
        assert_eq!(read(&mut &*rest, 4).await, None, "too long");
        assert_eq!(read(&mut rest, 5).await, Some(Some(b"three".to_vec())));
        assert_eq!(read(&mut rest, 5).await, Some(None));
        assert!(write_message(&mut out, &[0; 65_536]).await.is_err());
    }
}
