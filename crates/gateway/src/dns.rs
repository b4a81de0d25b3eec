//! DNS messages on streams: each behind its length in two bytes (RFC 1035 section 4.2.2).

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The next message, or none at the end of the stream.
pub async fn read_message<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 2];
    if stream.read(&mut length[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut length[1..]).await?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message).await?;
    Ok(Some(message))
}

/// Writes `message`, which has at most 65,535 bytes.
pub async fn write_message<S: AsyncWrite + Unpin>(
    stream: &mut S,
    message: &[u8],
) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    // In one write, so that it goes in one packet.
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
        assert_eq!(read_message(&mut rest).await.unwrap().as_deref(), Some(&b"one"[..]));
        assert_eq!(read_message(&mut rest).await.unwrap().as_deref(), Some(&b""[..]));
        let mut cut = &rest[..4];
        assert!(read_message(&mut cut).await.is_err());
        assert_eq!(read_message(&mut rest).await.unwrap().as_deref(), Some(&b"three"[..]));
        assert_eq!(read_message(&mut rest).await.unwrap(), None);
        assert!(write_message(&mut out, &[0; 65_536]).await.is_err());
    }
}
