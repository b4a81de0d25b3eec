//! Token of a request (RFC 9110 section 11).
//!
//! Prometheus presents it as a bearer token (RFC 6750), and a browser as the password of any user (RFC
//! 7617).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use zeroize::Zeroizing;

use crate::config::Token;

/// Challenge to a request without the token. A browser asks for a password.
pub const CHALLENGE: &str = "Basic realm=\"bentpipe\", charset=\"UTF-8\"";

/// Returns `true` if the request presents `token`.
pub fn is_permitted(headers: &HeaderMap, token: &Token) -> bool {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    match (all.next(), all.next()) {
        (Some(only), None) => presented(only).is_some_and(|presented| token.is(&presented)),
        _ => false,
    }
}

/// Token or password in the header's value; `None` if it has neither.
fn presented(value: &HeaderValue) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, credentials) = value.to_str().ok()?.split_once(' ')?;
    let credentials = credentials.trim();
    if scheme.eq_ignore_ascii_case("Bearer") {
        return Some(Zeroizing::new(credentials.as_bytes().to_vec()));
    }
    if !scheme.eq_ignore_ascii_case("Basic") {
        return None;
    }
    let pair = Zeroizing::new(STANDARD.decode(credentials).ok()?);
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(Zeroizing::new(pair[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_a_bearer_token_or_a_password() {
        let token = Token::new("0123456789abcdef").expect("16 characters");
        let permits = |value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            is_permitted(&HeaderMap::from_iter([(AUTHORIZATION, value)]), &token)
        };
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        for good in ["Bearer 0123456789abcdef", "bearer  0123456789abcdef"] {
            assert!(permits(good), "{good}");
        }
        assert!(permits(&basic(":0123456789abcdef")) && permits(&basic("me:0123456789abcdef")));
        for bad in ["", "Bearer", "Bearer ", "Bearer 0123456789abcdeg", "Bearer 0123456789abcde"] {
            assert!(!permits(bad), "{bad}");
        }
        for bad in ["Basic 0123456789abcdef", "Basic %", "Digest 0123456789abcdef", "é"] {
            assert!(!permits(bad), "{bad}");
        }
        assert!(!permits(&basic("0123456789abcdef")) && !permits(&basic("0123456789abcdef:me")));
        assert!(!is_permitted(&HeaderMap::new(), &token));
        let twice = HeaderValue::from_static("Bearer 0123456789abcdef");
        let mut headers = HeaderMap::from_iter([(AUTHORIZATION, twice.clone())]);
        headers.append(AUTHORIZATION, twice);
        assert!(!is_permitted(&headers, &token));
    }
}
