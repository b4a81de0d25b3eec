//! Messages of SOCKS5 (RFC 1928) and of its username/password step (RFC 1929). Pure parsing that
//! cannot panic or wait.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::BufMut;

use bentpipe_flow::{Host, Target};

/// Maximum size of a client's message: username and password of 255 bytes each.
pub const MAX_MESSAGE_BYTES: usize = 3 + 255 + 255;

/// No authentication.
pub const METHOD_NONE: u8 = 0;
/// Username and password.
pub const METHOD_PASSWORD: u8 = 2;
/// No acceptable method.
pub const METHOD_REFUSED: u8 = 0xff;

/// The reply codes in use (RFC 1928 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reply {
    /// Success.
    Succeeded = 0,
    /// General failure of this gateway.
    Failed = 1,
    /// The link to the ground is down.
    NetworkUnreachable = 3,
    /// The command, for example BIND, is not supported.
    CommandNotSupported = 7,
    /// The address is invalid.
    AddressNotSupported = 8,
}

/// Result of parsing the available bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// A complete message, and its length.
    Whole(T, usize),
    /// The message is incomplete.
    Partial,
    /// The bytes are not valid in this protocol.
    Garbage,
}

/// Received credentials.
#[derive(Debug, PartialEq, Eq)]
pub struct Credentials {
    pub username: Vec<u8>,
    pub password: Vec<u8>,
}

/// Reads a message field by field; returns [`None`] at the end of the data.
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

    /// Reads a string preceded by its length.
    fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.take(usize::from(length))
    }
}

/// Calls `read` with the fields of `bytes`. If it returns `None`, more bytes are needed.
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

/// Parses the methods that a client offers.
pub fn greeting(bytes: &[u8]) -> Parsed<Vec<u8>> {
    parse(bytes, 5, |fields| {
        let methods = fields.string()?.to_vec();
        Some(if methods.is_empty() { Err(()) } else { Ok(methods) })
    })
}

/// Parses a username and a password.
pub fn credentials(bytes: &[u8]) -> Parsed<Credentials> {
    parse(bytes, 1, |fields| {
        let username = fields.string()?.to_vec();
        let password = fields.string()?.to_vec();
        Some(Ok(Credentials { username, password }))
    })
}

/// Request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A TCP connection.
    Connect(Target),
    /// A relay for datagrams (RFC 1928 section 7). The client will send from this port, or from any
    /// port if it is 0.
    Associate(u16),
}

/// Parses a request. The inner error is the reply to an unsupported request.
pub fn request(bytes: &[u8]) -> Parsed<Result<Request, Reply>> {
    parse(bytes, 5, |fields| {
        let command = fields.byte()?;
        let _reserved = fields.byte()?;
        let target = target(fields)?;
        Some(match (command, target) {
            (_, Err(Unreadable::Type)) => Err(()),
            (1, Err(Unreadable::Host(_))) => Ok(Err(Reply::AddressNotSupported)),
            (1, Ok(target)) => Ok(Ok(Request::Connect(target))),
            // Only the port is used, because the address may be wrong behind a NAT.
            (3, Ok(Target { port, .. }) | Err(Unreadable::Host(port))) => {
                Ok(Ok(Request::Associate(port)))
            }
            (2, _) => Ok(Err(Reply::CommandNotSupported)),
            _ => Err(()),
        })
    })
}

/// Reason why an address is invalid.
enum Unreadable {
    /// The address type is unknown.
    Type,
    /// The host is invalid; this is the port.
    Host(u16),
}

/// Reads type, address and port.
fn target(fields: &mut Fields<'_>) -> Option<Result<Target, Unreadable>> {
    let host = match fields.byte()? {
        1 => Some(Host::Ip(Ipv4Addr::from(fields.array::<4>()?).into())),
        // Some clients also send addresses as text.
        3 => std::str::from_utf8(fields.string()?).ok().and_then(|name| name.parse().ok()),
        4 => Some(Host::Ip(Ipv6Addr::from(fields.array::<16>()?).into())),
        _ => return Some(Err(Unreadable::Type)),
    };
    let port = u16::from_be_bytes(fields.array()?);
    Some(host.map(|host| Target { host, port }).ok_or(Unreadable::Host(port)))
}

/// Parses a datagram to the relay, whose header is RSV, FRAG, type, address and port. Returns its
/// target and payload; `None` if it is invalid or a fragment (section 7 lets a relay drop
/// fragments).
pub fn datagram(bytes: &[u8]) -> Option<(Target, &[u8])> {
    let mut fields = Fields { bytes, at: 0 };
    let [_, _, 0] = fields.array()? else { return None };
    let target = target(&mut fields)?.ok()?;
    Some((target, &bytes[fields.at..]))
}

/// Appends the header of a datagram from `target` to `out`.
pub fn put_datagram_head(target: &Target, out: &mut Vec<u8>) {
    out.put_slice(&[0, 0, 0]);
    match &target.host {
        Host::Ip(IpAddr::V4(ip)) => {
            out.put_u8(1);
            out.put_slice(&ip.octets());
        }
        Host::Ip(IpAddr::V6(ip)) => {
            out.put_u8(4);
            out.put_slice(&ip.octets());
        }
        Host::Name(_) | Host::Service(_) => {
            // A name fits, because it was received with a length of one byte. Services never send
            // datagrams.
            let name = target.host.name().unwrap_or_default();
            let name = &name.as_bytes()[..name.len().min(255)];
            out.put_u8(3);
            out.put_u8(name.len() as u8);
            out.put_slice(name);
        }
    }
    out.put_u16(target.port);
}

/// Builds the reply to a request without a bound address, which clients do not need.
pub fn reply(code: Reply) -> Vec<u8> {
    reply_bound(code, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
}

/// Builds the reply to a request, with the bound address.
pub fn reply_bound(code: Reply, bound: SocketAddr) -> Vec<u8> {
    let mut out = vec![5, code as u8];
    // The format equals that of a datagram header without two of its leading bytes.
    put_datagram_head(&bound.into(), &mut out);
    out.drain(2..4);
    out
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
        let to = |text: &str| Ok(Request::Connect(text.parse().unwrap()));
        let name = b"\x05\x01\x00\x03\x0bexample.net\x01\xbbrest";
        assert_eq!(request(name), Parsed::Whole(to("example.net:443"), 18));
        let literal = b"\x05\x01\x00\x03\x0810.0.0.1\x00\x50";
        assert_eq!(request(literal), Parsed::Whole(to("10.0.0.1:80"), 15));
        let v4 = [5, 1, 0, 1, 192, 0, 2, 7, 0, 80];
        assert_eq!(request(&v4), Parsed::Whole(to("192.0.2.7:80"), 10));
        let bind = [5, 2, 0, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(request(&bind), Parsed::Whole(Err(Reply::CommandNotSupported), 10));
        let associate = [5, 3, 0, 1, 0, 0, 0, 0, 1, 2];
        assert_eq!(request(&associate), Parsed::Whole(Ok(Request::Associate(258)), 10));
        assert_eq!(reply(Reply::Failed), [5, 1, 0, 1, 0, 0, 0, 0, 0, 0]);
        let bound = reply_bound(Reply::Succeeded, "127.0.0.1:258".parse().unwrap());
        assert_eq!(bound, [5, 0, 0, 1, 127, 0, 0, 1, 1, 2]);
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
            let whole = Parsed::Whole(Ok(Request::Connect(target)), bytes.len());
            prop_assert_eq!(request(&bytes), whole);
        }

        #[test]
        fn datagrams_come_back(host in "[a-z]{1,60}|10\\.1\\.2\\.[1-9]|fd00::[1-9]", port: u16, payload: Vec<u8>) {
            let target = Target { host: host.parse().unwrap(), port };
            let mut bytes = Vec::new();
            put_datagram_head(&target, &mut bytes);
            let head = bytes.len();
            bytes.extend(&payload);
            prop_assert_eq!(datagram(&bytes), Some((target, &payload[..])));
            for cut in 0..head {
                prop_assert_eq!(datagram(&bytes[..cut]), None);
            }
            bytes[2] = 1;
            prop_assert_eq!(datagram(&bytes), None, "a fragment");
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = (greeting(&bytes), credentials(&bytes), request(&bytes), datagram(&bytes));
        }
    }
}
