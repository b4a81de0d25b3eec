//! Headers of messages at a proxy: reading and rewriting.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bentpipe_flow::Target;
use http::Uri;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use bentpipe_config::Auth;

/// Fields that concern one connection only (RFC 9110 section 7.6.1).
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Target of an absolute-form request, or a description of the fault.
pub fn target(uri: &Uri) -> Result<Target, &'static str> {
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err("This is a proxy: ask it for http://host/path, or CONNECT host:443.");
    };
    if scheme != "http" {
        return Err("This proxy fetches only http:// addresses; use CONNECT for the others.");
    }
    let host = authority.host().parse().map_err(|_| "There is no valid host in this address.")?;
    Ok(Target { host, port: authority.port_u16().unwrap_or(80) })
}

/// Target in the form that origins expect (RFC 9112 section 3.2.1).
pub fn origin_form(uri: &Uri) -> Uri {
    uri.path_and_query().cloned().map_or(Uri::from_static("/"), Uri::from)
}

/// Host field for `uri`: its authority without user information.
pub fn host(uri: &Uri) -> Option<HeaderValue> {
    let authority = uri.authority()?.as_str();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    HeaderValue::from_str(host).ok()
}

/// Removes the fields that concern only the message's own connection.
pub fn strip(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in listed.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Declares the body of a request as chunked, unless its length is known. Otherwise hyper would
/// omit the framing for methods that usually have no body.
pub fn name_framing(headers: &mut HeaderMap) {
    if !headers.contains_key(header::CONTENT_LENGTH) {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Reduces the Content-Length fields, of which there is at least one, to a single one. Several
/// fields, or a list, with the same number are equivalent (RFC 9110 §8.6). Returns `false` if the
/// numbers differ or are invalid.
pub fn collapse_length(headers: &mut HeaderMap) -> bool {
    let lines = headers.get_all(header::CONTENT_LENGTH).iter().map(HeaderValue::as_bytes);
    let mut numbers = lines.flat_map(|line| line.split(|byte| *byte == b',')).map(|number| {
        let number = str::from_utf8(number.trim_ascii()).ok()?;
        // A sign is not allowed.
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse::<u64>().ok())?
    });
    let first = numbers.next().flatten();
    let Some(length) = first.filter(|_| numbers.all(|number| number == first)) else {
        return false;
    };
    headers.insert(header::CONTENT_LENGTH, length.into());
    true
}

/// Returns `true` if the request has the right Basic credentials (RFC 7617).
pub fn authorized(headers: &HeaderMap, auth: &Auth) -> bool {
    let given = headers.get(header::PROXY_AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some((scheme, encoded)) = given.and_then(|value| value.split_once(' ')) else {
        return false;
    };
    let Ok(decoded) = STANDARD.decode(encoded.trim()) else { return false };
    let Some(colon) = decoded.iter().position(|byte| *byte == b':') else { return false };
    scheme.eq_ignore_ascii_case("basic") && auth.admits(&decoded[..colon], &decoded[colon + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn absolute_form_names_the_origin() {
        let to = |text| target(&uri(text)).map(|target| target.to_string());
        assert_eq!(to("http://example.net/a"), Ok("example.net:80".into()));
        assert_eq!(to("http://u:p@example.net:8080/"), Ok("example.net:8080".into()));
        assert_eq!(to("http://[2001:db8::1]/"), Ok("[2001:db8::1]:80".into()));
        assert!(to("/a").is_err() && to("https://example.net/").is_err());
        assert_eq!(host(&uri("http://u:p@example.net:8080/")).unwrap(), "example.net:8080");
    }

    #[test]
    fn origin_form_is_what_origins_expect() {
        let form = |text| origin_form(&uri(text)).to_string();
        assert_eq!(form("http://example.net/a?b=c"), "/a?b=c");
        assert_eq!(form("http://example.net"), "/");
    }

    #[test]
    fn hop_by_hop_headers_stay_here() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
            ("proxy-authorization", "Basic x"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("accept", "*/*"),
            ("via", "1.0 other"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        strip(&mut headers);
        bentpipe_origin::via::add_via(&mut headers, http::Version::HTTP_11);
        let left: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let value = HeaderValue::from_static;
        let (other, ours) = (value("1.0 other"), value("1.1 bentpipe"));
        assert_eq!(left, [("accept", &value("*/*")), ("via", &other), ("via", &ours)]);
    }

    #[test]
    fn equal_lengths_are_one() {
        for (lines, one) in [
            (&["5"][..], Some("5")),
            (&["5, 5"], Some("5")),
            (&["5", "5 , 5"], Some("5")),
            (&["05"], Some("5")),
            (&["5, 6"], None),
            (&["5", "6"], None),
            (&["5,"], None),
            (&["+5"], None),
            (&["-5"], None),
            (&[""], None),
            (&["99999999999999999999999"], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::CONTENT_LENGTH, HeaderValue::from_static(line));
            }
            assert_eq!(collapse_length(&mut headers), one.is_some(), "{lines:?}");
            let left: Vec<_> = headers.get_all(header::CONTENT_LENGTH).iter().collect();
            assert!(one.is_none_or(|one| left == [one]), "{lines:?}: {left:?}");
        }
    }

    #[test]
    fn basic_credentials() {
        let auth = Auth { username: "crew".into(), password: "a:b".into() };
        let with = |text: String| {
            let value = HeaderValue::from_str(&text).unwrap();
            let headers = HeaderMap::from_iter([(header::PROXY_AUTHORIZATION, value)]);
            authorized(&headers, &auth)
        };
        assert!(with(format!("basic {}", STANDARD.encode("crew:a:b"))));
        assert!(!with(format!("Basic {}", STANDARD.encode("crew:a"))));
        assert!(!with("Basic !!".into()) && !with("Bearer".into()));
    }
}
