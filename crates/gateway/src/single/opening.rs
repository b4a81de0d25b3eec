//! Opening of streams to the ground's half of Split HTTP.

use std::io;

use bentpipe_link::{MAX_NAME_BYTES, Target, TargetError};
use bentpipe_prefetch::wire::WireError;
use bentpipe_prefetch::wire::single::{VERSION_SINGLE, VERSION_SITE};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::classify::Name;

/// The longest target: a name, its kind and its length, and the port. A site's name is shorter.
const MAX_TARGET_BYTES: usize = MAX_NAME_BYTES + 4;

/// Bytes per read; bytes after the opening are kept until they are requested.
const READ_BYTES: usize = 4096;

/// Purpose of a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Opening {
    /// Single requests to an origin; packed bytes that came with it.
    Single(Target, Bytes),
    /// Single requests to a site, to whose origin the ground speaks as it knows it; likewise.
    Site(Name, Bytes),
    /// A page, of which that much has been read.
    Page(Bytes),
}

/// Opening of a stream that should lead to `target`.
pub fn opening(target: &Target) -> Result<Vec<u8>, TargetError> {
    let mut bytes = vec![VERSION_SINGLE];
    target.encode(&mut bytes)?;
    Ok(bytes)
}

/// Opening of a stream that should lead to the site `name`.
pub fn opening_of_site(name: &Name) -> Vec<u8> {
    let name = name.as_str().as_bytes();
    // A name has at most 253 bytes.
    [&[VERSION_SITE, name.len() as u8], name].concat()
}

impl Opening {
    /// Reads what `stream` begins with.
    pub async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Self> {
        let mut read = BytesMut::with_capacity(READ_BYTES);
        loop {
            if stream.read_buf(&mut read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some((leads, taken)) = Leads::parse(&read).map_err(io::Error::other)? {
                let packed = read.split_off(taken).freeze();
                return Ok(match leads {
                    Leads::To(target) => Self::Single(target, packed),
                    Leads::ToSite(name) => Self::Site(name, packed),
                    Leads::Nowhere => Self::Page(packed),
                });
            }
        }
    }
}

/// Destination of a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Leads {
    To(Target),
    ToSite(Name),
    /// It is a page's, which says so itself.
    Nowhere,
}

impl Leads {
    /// Parses the opening in `read`, and returns its length; `None` if more has to come first.
    pub fn parse(read: &[u8]) -> Result<Option<(Self, usize)>, WireError> {
        match read {
            [] => Ok(None),
            [VERSION_SINGLE, target @ ..] => match Target::decode(target) {
                Ok((target, taken)) => Ok(Some((Self::To(target), 1 + taken))),
                Err(TargetError::Short) if target.len() < MAX_TARGET_BYTES => Ok(None),
                Err(_) => Err(WireError::Malformed),
            },
            [VERSION_SITE] => Ok(None),
            [VERSION_SITE, length, rest @ ..] => {
                let Some(name) = rest.get(..usize::from(*length)) else { return Ok(None) };
                let name = str::from_utf8(name).ok().and_then(|name| name.parse().ok());
                let name = name.ok_or(WireError::Malformed)?;
                Ok(Some((Self::ToSite(name), 2 + usize::from(*length))))
            }
            _ => Ok(Some((Self::Nowhere, 0))),
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
    async fn a_site_is_read_in_whatever_pieces_it_comes() {
        let longest = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(61));
        for text in ["portal.test", &longest] {
            let name: Name = text.parse().unwrap();
            let bytes = opening_of_site(&name);
            let site = |packed: &'static [u8]| Opening::Site(name.clone(), packed.into());
            let with_more = [&bytes, &b"packed"[..]].concat();
            assert_eq!(read(&[&with_more]).await.unwrap(), site(b"packed"));
            for at in 1..bytes.len() {
                let (first, second) = bytes.split_at(at);
                assert_eq!(read(&[first, second]).await.unwrap(), site(b""), "{text} at {at}");
                assert_eq!(read(&[first]).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
            }
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
            b"\x05\x00",
            b"\x05\x03a b",
            b"\x05\x0810.0.0.1",
            b"\x05\x02\xff\xfe",
        ] {
            let error = read(&[wrong]).await.unwrap_err();
            assert!(error.get_ref().is_some_and(|it| it.is::<WireError>()), "{wrong:?}: {error}");
        }
    }
}
