//! The messages of SOCKS5 (RFC 1928) and of its username/password step (RFC 1929).
//! Bytes in, values out; nothing here can panic or wait.

use std::net::{Ipv4Addr, Ipv6Addr};

use bentpipe_link::{Host, Target};

/// The longest message a client may send: username and password of 255 bytes each.
pub const MAX_MESSAGE_BYTES: usize = 3 + 255 + 255;

/// No authentication.
pub const METHOD_NONE: u8 = 0;
/// Username and password.
pub const METHOD_PASSWORD: u8 = 2;
/// Nothing the client offered will do.
pub const METHOD_REFUSED: u8 = 0xff;

/// The reply codes in use (RFC 1928 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reply {
    /// Go ahead.
    Succeeded = 0,
    /// BIND and UDP ASSOCIATE.
    CommandNotSupported = 7,
    /// Neither an address nor a name that can be asked for.
    AddressNotSupported = 8,
}

/// How far the bytes at hand go.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// A whole message, and how many bytes it took.
    Whole(T, usize),
    /// The message has not ended yet.
    Partial,
    /// No client of this protocol says this.
    Garbage,
}

/// Credentials as they came.
#[derive(Debug, PartialEq, Eq)]
pub struct Credentials {
    pub username: Vec<u8>,
    pub password: Vec<u8>,
}

/// Reads a message field by field; running out is [`None`].
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    /// A string behind its length.
    fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.take(usize::from(length))
    }
}

/// Runs `read` over `bytes`: its `None` means that more bytes are needed.
fn parse<T>(
    bytes: &[u8],
    version: u8,
    read: impl FnOnce(&mut Fields<'_>) -> Option<Result<T, ()>>,
) -> Parsed<T> {
    if bytes.first().is_some_and(|first| *first != version) {
        return Parsed::Garbage;
    }
    let mut fields = Fields { bytes, at: 1 };
    match read(&mut fields) {
        None if bytes.len() > MAX_MESSAGE_BYTES => Parsed::Garbage,
        None => Parsed::Partial,
        Some(Err(())) => Parsed::Garbage,
        Some(Ok(value)) => Parsed::Whole(value, fields.at),
    }
}

/// The methods a client offers.
pub fn greeting(bytes: &[u8]) -> Parsed<Vec<u8>> {
    parse(bytes, 5, |fields| {
        let methods = fields.string()?.to_vec();
        Some(if methods.is_empty() { Err(()) } else { Ok(methods) })
    })
}

/// A username and a password.
pub fn credentials(bytes: &[u8]) -> Parsed<Credentials> {
    parse(bytes, 1, |fields| {
        let username = fields.string()?.to_vec();
        let password = fields.string()?.to_vec();
        Some(Ok(Credentials { username, password }))
    })
}

/// Where to connect to, or the reply that says why not.
pub fn request(bytes: &[u8]) -> Parsed<Result<Target, Reply>> {
    parse(bytes, 5, |fields| {
        let command = fields.byte()?;
        let _reserved = fields.byte()?;
        let host = match fields.byte()? {
            1 => Ok(Host::Ip(Ipv4Addr::from(fields.array::<4>()?).into())),
            3 => std::str::from_utf8(fields.string()?)
                .map_err(|_| Reply::AddressNotSupported)
                // Clients also send addresses in text here.
                .and_then(|name| name.parse().map_err(|_| Reply::AddressNotSupported)),
            4 => Ok(Host::Ip(Ipv6Addr::from(fields.array::<16>()?).into())),
            _ => return Some(Err(())),
        };
        let port = u16::from_be_bytes(fields.array()?);
        Some(match command {
            1 => Ok(host.map(|host| Target { host, port })),
            2 | 3 => Ok(Err(Reply::CommandNotSupported)),
            _ => Err(()),
        })
    })
}

/// The reply to a request; the bound address is not known and not needed.
pub fn reply(code: Reply) -> [u8; 10] {
    [5, code as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_of_the_rfcs() {
        assert_eq!(greeting(&[5, 2, 0, 2, 9]), Parsed::Whole(vec![0, 2], 4));
        assert_eq!(greeting(&[5, 0]), Parsed::Garbage);
        assert_eq!(greeting(b"GET / HTTP/1.1"), Parsed::Garbage);
        assert_eq!(greeting(&[4, 1]), Parsed::Garbage);
        let known = Credentials { username: b"crew".into(), password: b"w".into() };
        assert_eq!(credentials(b"\x01\x04crew\x01w"), Parsed::Whole(known, 8));
        let to = |text: &str| Ok(text.parse::<Target>().unwrap());
        let name = b"\x05\x01\x00\x03\x0bexample.net\x01\xbbrest";
        assert_eq!(request(name), Parsed::Whole(to("example.net:443"), 18));
        let literal = b"\x05\x01\x00\x03\x0810.0.0.1\x00\x50";
        assert_eq!(request(literal), Parsed::Whole(to("10.0.0.1:80"), 15));
        let v4 = [5, 1, 0, 1, 192, 0, 2, 7, 0, 80];
        assert_eq!(request(&v4), Parsed::Whole(to("192.0.2.7:80"), 10));
        for command in [2, 3] {
            let other = [5, command, 0, 1, 0, 0, 0, 0, 0, 0];
            assert_eq!(request(&other), Parsed::Whole(Err(Reply::CommandNotSupported), 10));
        }
        let spaced = b"\x05\x01\x00\x03\x03a b\x00\x50";
        assert_eq!(request(spaced), Parsed::Whole(Err(Reply::AddressNotSupported), 10));
        assert_eq!(request(&[5, 1, 0, 9]), Parsed::Garbage);
        assert_eq!(request(&[5, 7, 0, 1, 0, 0, 0, 0, 0, 0]), Parsed::Garbage);
    }

    proptest! {
        #[test]
        fn every_cut_waits_for_more(host in "[a-z]{1,60}", port: u16) {
            let mut bytes = vec![5, 1, 0, 3, host.len() as u8];
            bytes.extend(host.as_bytes());
            bytes.extend(port.to_be_bytes());
            for cut in 0..bytes.len() {
                prop_assert_eq!(request(&bytes[..cut]), Parsed::Partial);
            }
            let target = Target { host: Host::Name(host), port };
            prop_assert_eq!(request(&bytes), Parsed::Whole(Ok(target), bytes.len()));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = (greeting(&bytes), credentials(&bytes), request(&bytes));
        }
    }
}
