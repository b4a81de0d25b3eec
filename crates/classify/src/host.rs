//! Host of a plaintext HTTP/1 request.

use http::Uri;

use super::{Name, Visible};

/// Maximum number of header fields. A request with more counts as one without a name.
const MAX_FIELDS: usize = 64;

/// Host of the request at the start of `first` (RFC 9112 §3.2).
pub(super) fn visible(first: &[u8]) -> Visible {
    let whole = parse(first);
    if whole != Visible::Partial {
        return whole;
    }
    // The Host field usually precedes the long fields, so the complete lines often suffice.
    let lines = first.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let ended = [&first[..lines], b"\r\n"].concat();
    match parse(&ended) {
        Visible::Name(name) => Visible::Name(name),
        _ => Visible::Partial,
    }
}

fn parse(bytes: &[u8]) -> Visible {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Visible::Partial,
        Err(_) => return Visible::Nothing,
    }
    name(&request).map_or(Visible::Nothing, Visible::Name)
}

fn name(request: &httparse::Request<'_, '_>) -> Option<Name> {
    let path = request.path?;
    // RFC 9112 §3.2.2: in absolute form the target's host applies, and the Host field is ignored.
    if !path.starts_with('/') && path != "*" {
        return path.parse::<Uri>().ok()?.host()?.parse().ok();
    }
    let is_host = |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case("host");
    let mut hosts = request.headers.iter().filter(is_host);
    let host = hosts.next()?;
    // §3.2: a request with two Host fields is invalid, so it has no name.
    if hosts.next().is_some() {
        return None;
    }
    let text = std::str::from_utf8(host.value).ok()?.trim();
    text.parse::<http::uri::Authority>().ok()?.host().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str) -> Visible {
        visible(text.as_bytes())
    }

    fn name(text: &str) -> Visible {
        Visible::Name(text.parse().unwrap())
    }

    #[test]
    fn the_host_of_a_request() {
        assert_eq!(says("GET / HTTP/1.1\r\nHost: WWW.gov.uk\r\n\r\n"), name("www.gov.uk"));
        assert_eq!(says("GET / HTTP/1.1\r\nhost: gov.uk:8080\r\n\r\nbody"), name("gov.uk"));
        assert_eq!(says("GET http://gov.uk/ HTTP/1.1\r\nHost: x.test\r\n\r\n"), name("gov.uk"));
        assert_eq!(says("OPTIONS * HTTP/1.1\r\nHost: gov.uk\r\n\r\n"), name("gov.uk"));
    }

    #[test]
    fn hosts_without_a_name() {
        for nothing in [
            "GET / HTTP/1.0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: gov.uk\r\nHost: gov.uk\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: 192.0.2.7\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n",
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "SSH-2.0-OpenSSH_9.9\r\n",
            "EHLO gov.uk\r\n",
        ] {
            assert_eq!(says(nothing), Visible::Nothing, "{nothing}");
        }
    }

    #[test]
    fn a_request_in_pieces() {
        let request = "GET / HTTP/1.1\r\nHost: gov.uk\r\nCookie: long\r\n\r\n";
        let known = request.find("Cookie").unwrap();
        for cut in 1..request.len() {
            let wanted = if cut < known { Visible::Partial } else { name("gov.uk") };
            assert_eq!(says(&request[..cut]), wanted, "{}", &request[..cut]);
        }
    }
}
