//! Standard clients. They have no key but a token, and show it with each request: as the password
//! of Basic (RFC 7617), or as a Bearer token (RFC 6750).
//!
//! The operator's tokens have 256 random bits, and the server stores only their hashes. A fast hash
//! is therefore safe, and one hash per request cannot overload the server.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use blake2::{Blake2s256, Digest};
use http::{HeaderMap, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::PublicKey;

/// Maximum number of connections of one standard client: 16 × 16 MiB of received bytes = 256 MiB.
pub const MAX_CONNECTIONS: usize = 16;

/// Longest token that is hashed. Our tokens have 43 characters.
const MAX_TOKEN_BYTES: usize = 256;

/// Challenges in `proxy-authenticate` (RFC 9110 §11.7.1) in addition to our own scheme.
pub(crate) const CHALLENGES: &str = "Basic realm=\"bentpipe\", Bearer realm=\"bentpipe\"";

/// A standard client that is served.
#[derive(Clone, Debug)]
pub struct Login {
    /// User name for Basic. Bearer needs none.
    pub name: String,
    /// [`token_hash`] of its token.
    pub token_hash: [u8; 32],
    /// Maximum number of open requests on all its connections.
    pub max_flows: u32,
}

/// Hashes a token with BLAKE2s-256. A server stores only the hash.
pub fn token_hash(token: &str) -> [u8; 32] {
    Blake2s256::digest(token).into()
}

impl Login {
    /// Identity of this client in the role of an aircraft's key. It is a hash whose secret key
    /// nobody knows, and it does not change with the token.
    pub fn identity(&self) -> PublicKey {
        let mut hash = Blake2s256::new();
        hash.update(b"bentpipe masque standard client v1");
        hash.update(&self.name);
        hash.finalize().into()
    }
}

/// Standard clients by the hashes of their tokens.
pub(crate) struct Logins(HashMap<[u8; 32], ClientEntry>);

struct ClientEntry {
    name: String,
    identity: PublicKey,
    connections: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    max_flows: u32,
    /// Connections and requests refused since the last call of [`Logins::take_refused`].
    refused: AtomicU64,
}

/// Connections and requests of a standard client beyond its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequests {
    /// Name of the client.
    pub client: String,
    /// Number refused.
    pub count: u64,
    /// Open requests of the client.
    pub held: u32,
    /// Maximum number of open requests of the client.
    pub max: u32,
}

impl Logins {
    pub fn new(logins: &[Login]) -> Logins {
        let known = |login: &Login| ClientEntry {
            name: login.name.clone(),
            identity: login.identity(),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            requests: Arc::new(Semaphore::new(login.max_flows as usize)),
            max_flows: login.max_flows,
            refused: AtomicU64::new(0),
        };
        Logins(logins.iter().map(|login| (login.token_hash, known(login))).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the clients of which something was refused since the previous call.
    pub fn take_refused(&self) -> Vec<RefusedRequests> {
        let of_client = |one: &ClientEntry| {
            let count = one.refused.swap(0, Ordering::Relaxed);
            // Cannot truncate: the semaphore began with the 32-bit limit.
            let free = one.requests.available_permits() as u32;
            (count > 0).then(|| RefusedRequests {
                client: one.name.clone(),
                count,
                held: one.max_flows.saturating_sub(free),
                max: one.max_flows,
            })
        };
        self.0.values().filter_map(of_client).collect()
    }

    /// Finds the client whose token is in these fields.
    pub fn find(&self, fields: &HeaderMap) -> Option<AuthorizedClient<'_>> {
        let shown = Credentials::read(fields.get(header::PROXY_AUTHORIZATION)?.to_str().ok()?)?;
        // The lookup's timing reveals nothing, because only the token's owner can choose its hash.
        let known = self.0.get(&token_hash(&shown.token))?;
        shown.name.is_none_or(|name| name == known.name).then_some(AuthorizedClient(known))
    }
}

/// A client with a right token.
pub(crate) struct AuthorizedClient<'a>(&'a ClientEntry);

impl AuthorizedClient<'_> {
    pub fn identity(&self) -> PublicKey {
        self.0.identity
    }

    /// Takes a permit for one more connection.
    pub fn connect(&self) -> Option<OwnedSemaphorePermit> {
        self.0.counted(&self.0.connections)
    }

    /// Takes a permit for one more request.
    pub fn request(&self) -> Option<OwnedSemaphorePermit> {
        self.0.counted(&self.0.requests)
    }

    /// Maximum number of streams on one connection, which may hold all the client's requests.
    pub fn max_flows(&self) -> u32 {
        self.0.max_flows
    }
}

impl ClientEntry {
    /// Takes a permit, or counts the refusal.
    fn counted(&self, permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        let permit = permits.clone().try_acquire_owned().ok();
        if permit.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        permit
    }
}

/// Content of a `proxy-authorization` field.
struct Credentials {
    name: Option<String>,
    token: String,
}

impl Credentials {
    fn read(field: &str) -> Option<Credentials> {
        let (scheme, value) = field.split_once(' ')?;
        let value = value.trim();
        let shown = if scheme.eq_ignore_ascii_case("bearer") {
            Credentials { name: None, token: value.to_owned() }
        } else if scheme.eq_ignore_ascii_case("basic") {
            // The limit of the field section bounds this.
            let pair = String::from_utf8(STANDARD.decode(value).ok()?).ok()?;
            let (name, token) = pair.split_once(':')?;
            Credentials { name: Some(name.to_owned()), token: token.to_owned() }
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
    fn tokens_are_accepted_in_both_schemes() {
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
