//! Standard clients: they hold no key of ours but a token, and show it with each request, as the
//! password of Basic (RFC 7617) or as a Bearer token (RFC 6750).
//!
//! Tokens are made by us, 256 random bits, and the server stores only their hashes. So a hash need
//! not be slow to be safe, and a server that hashes one per request cannot be worn down by that.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use blake2::{Blake2s256, Digest};
use http::{HeaderMap, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::PublicKey;

/// Connections one standard client may have at once: with 16 MiB of received bytes each, 256 MiB.
pub const MAX_CONNECTIONS: usize = 16;

/// The longest token that is hashed: those we make have 43 characters.
const MAX_TOKEN_BYTES: usize = 256;

/// Schemes that `proxy-authenticate` offers (RFC 9110 §11.7.1) in addition to our own.
pub(crate) const CHALLENGES: &str = "Basic realm=\"bentpipe\", Bearer realm=\"bentpipe\"";

/// A standard client that is served.
#[derive(Clone, Debug)]
pub struct Login {
    /// The user's name in Basic; Bearer needs none.
    pub name: String,
    /// [`token_hash`] of its token.
    pub token_hash: [u8; 32],
    /// Requests it may have open at once, over all its connections.
    pub max_flows: u32,
}

/// Stored form of a token at a server: its BLAKE2s-256.
pub fn token_hash(token: &str) -> [u8; 32] {
    Blake2s256::digest(token).into()
}

impl Login {
    /// Identity of this client in places that know aircraft by their keys. It is a hash whose
    /// secret key nobody knows, and it stays when the token is changed.
    pub fn identity(&self) -> PublicKey {
        let mut hash = Blake2s256::new();
        hash.update(b"bentpipe masque standard client v1");
        hash.update(&self.name);
        hash.finalize().into()
    }
}

/// All standard clients, by the hashes of their tokens.
pub(crate) struct Logins(HashMap<[u8; 32], Known>);

struct Known {
    name: String,
    identity: PublicKey,
    connections: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    max_flows: u32,
}

impl Logins {
    pub fn new(logins: &[Login]) -> Logins {
        let known = |login: &Login| Known {
            name: login.name.clone(),
            identity: login.identity(),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            requests: Arc::new(Semaphore::new(login.max_flows as usize)),
            max_flows: login.max_flows,
        };
        Logins(logins.iter().map(|login| (login.token_hash, known(login))).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Owner of the token in these fields.
    pub fn find(&self, fields: &HeaderMap) -> Option<Found<'_>> {
        let shown = Shown::read(fields.get(header::PROXY_AUTHORIZATION)?.to_str().ok()?)?;
        // A table of hashes tells nothing by its timing: who can steer a hash knows the token.
        let known = self.0.get(&token_hash(&shown.token))?;
        shown.name.is_none_or(|name| name == known.name).then_some(Found(known))
    }
}

/// A client whose token is right.
pub(crate) struct Found<'a>(&'a Known);

impl Found<'_> {
    pub fn identity(&self) -> PublicKey {
        self.0.identity
    }

    /// A place for one more connection.
    pub fn connect(&self) -> Option<OwnedSemaphorePermit> {
        self.0.connections.clone().try_acquire_owned().ok()
    }

    /// A place for one more request.
    pub fn request(&self) -> Option<OwnedSemaphorePermit> {
        self.0.requests.clone().try_acquire_owned().ok()
    }

    /// Streams that one connection may have: one could hold all the requests.
    pub fn max_flows(&self) -> u32 {
        self.0.max_flows
    }
}

/// Content of a `proxy-authorization` field.
struct Shown {
    name: Option<String>,
    token: String,
}

impl Shown {
    fn read(field: &str) -> Option<Shown> {
        let (scheme, value) = field.split_once(' ')?;
        let value = value.trim();
        let shown = if scheme.eq_ignore_ascii_case("bearer") {
            Shown { name: None, token: value.to_owned() }
        } else if scheme.eq_ignore_ascii_case("basic") {
            // The field's own bound, of the whole field section, bounds this.
            let pair = String::from_utf8(STANDARD.decode(value).ok()?).ok()?;
            let (name, token) = pair.split_once(':')?;
            Shown { name: Some(name.to_owned()), token: token.to_owned() }
        } else {
            return None;
        };
        (shown.token.len() <= MAX_TOKEN_BYTES).then_some(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(logins: &Logins, field: &str) -> Option<PublicKey> {
        let mut fields = HeaderMap::new();
        fields.insert(header::PROXY_AUTHORIZATION, field.parse().unwrap());
        logins.find(&fields).map(|found| found.identity())
    }

    fn basic(pair: &str) -> String {
        format!("Basic {}", STANDARD.encode(pair))
    }

    #[test]
    fn tokens_are_known_in_both_schemes() {
        let login = |name: &str, token| Login {
            name: name.into(),
            token_hash: token_hash(token),
            max_flows: 1,
        };
        let (a, b) = (login("a", "one"), login("b", "two:with colon"));
        let logins = Logins::new(&[a.clone(), b.clone()]);
        assert_ne!(a.identity(), b.identity());
        for (field, who) in [
            (basic("a:one"), &a),
            (basic("b:two:with colon"), &b),
            ("Bearer one".into(), &a),
            ("bearer  one ".into(), &a),
        ] {
            assert_eq!(found(&logins, &field), Some(who.identity()), "{field}");
        }
        for bad in [
            basic("b:one"),
            basic("a:two"),
            basic("a:"),
            basic("one"),
            basic(&format!("a:{}", "x".repeat(MAX_TOKEN_BYTES + 1))),
            "Basic %%%".into(),
            "Bearer".into(),
            "Bearer ".into(),
            "Bearer two".into(),
            "Digest one".into(),
        ] {
            assert_eq!(found(&logins, &bad), None, "{bad}");
        }
        assert!(logins.find(&HeaderMap::new()).is_none());
    }

    /// RFC 7693, appendix B.
    #[test]
    fn the_hash_is_blake2s() {
        assert_eq!(token_hash("abc")[..4], [0x50, 0x8c, 0x5e, 0x8c]);
    }
}
