//! How streams to the ground's half of Split HTTP begin.

use std::io;

use bentpipe_link::{MAX_NAME_BYTES, Target, TargetError};
use bentpipe_prefetch::wire::WireError;
use bentpipe_prefetch::wire::single::VERSION_SINGLE;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest target: a name, its kind and its length, and the port.
const MAX_TARGET_BYTES: usize = MAX_NAME_BYTES + 4;

/// What is read at once; what came behind the opening with it is kept until it is asked for.
const READ_BYTES: usize = 4096;

/// What a stream is for.
#[derive(Debug, PartialEq, Eq)]
pub enum Opening {
    /// Single requests to an origin; packed bytes that came with it.
    Single(Target, Bytes),
    /// A page, of which that much has been read.
    Page(Bytes),
}

/// What a stream begins with that should lead to `target`.
pub fn opening(target: &Target) -> Result<Vec<u8>, TargetError> {
    let mut bytes = vec![VERSION_SINGLE];
    target.encode(&mut bytes)?;
    Ok(bytes)
}

impl Opening {
    /// Reads what `stream` begins with.
    pub async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Self> {
        let mut read = BytesMut::with_capacity(READ_BYTES);
        loop {
            if stream.read_buf(&mut read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some(target) = read.strip_prefix(&[VERSION_SINGLE]) else {
                return Ok(Self::Page(read.freeze()));
            };
            match Target::decode(target) {
                Ok((target, taken)) => {
                    let packed = read.split_off(1 + taken);
                    return Ok(Self::Single(target, packed.freeze()));
                }
                Err(TargetError::Short) if target.len() < MAX_TARGET_BYTES => {}
                Err(_) => return Err(io::Error::other(WireError::Malformed)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_link::{Host, Service};
    use std::io::ErrorKind;
    use tokio::io::AsyncWriteExt;

    async fn read(parts: &[&[u8]]) -> io::Result<Opening> {
        let (mut to, mut from) = tokio::io::duplex(READ_BYTES);
        let writing = async move {
            for part in parts {
                to.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(Opening::read(&mut from), writing).0
    }

    #[tokio::test]
    async fn an_opening_is_read_in_whatever_pieces_it_comes() {
        let longest = format!("{0}.{0}.{0}.{0}:80", "a".repeat(63));
        for text in ["192.0.2.7:80", "[2001:db8::1]:8080", "www.site.test:80", &longest] {
            let target: Target = text.parse().unwrap();
            let mut bytes = opening(&target).unwrap();
            bytes.extend(b"packed");
            let single = |packed: &'static [u8]| Opening::Single(target.clone(), packed.into());
            assert_eq!(read(&[&bytes]).await.unwrap(), single(b"packed"));
            let cut = bytes.split_at(bytes.len() - 6);
            for at in 1..cut.0.len() {
                let (first, second) = cut.0.split_at(at);
                assert_eq!(read(&[first, second]).await.unwrap(), single(b""), "{text} at {at}");
                assert_eq!(read(&[first]).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
            }
        }
        for page in [&b"\x01abc"[..], b"\x03", b"\x00"] {
            assert_eq!(read(&[page]).await.unwrap(), Opening::Page(page.to_vec().into()));
        }
    }

    #[tokio::test]
    async fn what_is_no_target_is_refused() {
        let service = Target { host: Host::Service(Service::Pages), port: 80 };
        // It is one; the policy of who dials says no.
        let read_back = read(&[&opening(&service).unwrap()]).await.unwrap();
        assert_eq!(read_back, Opening::Single(service, Bytes::new()));
        for wrong in [
            &b"\x04\x00"[..],
            b"\x04\x05\x00\x00",
            b"\x04\x03\x01 \x00\x50",
            b"\x04\x04\x09\x00\x50",
        ] {
            let error = read(&[wrong]).await.unwrap_err();
            assert!(error.get_ref().is_some_and(|it| it.is::<WireError>()), "{wrong:?}: {error}");
        }
    }
}
