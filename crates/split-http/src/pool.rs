//! Idle connections to origins, kept for further requests.

use std::time::Duration;

use bentpipe_origin::idle_pool::{IdlePool, PoolLimits};
use bentpipe_prefetch::address::Origin;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1::SendRequest;

/// A connection that takes one request after another.
pub type Sender = SendRequest<Empty<Bytes>>;

/// Idle connections by origin. They carry no cookies or authorization, so all passengers may share
/// them.
pub type Pool = IdlePool<Origin, Sender>;

/// Limits of idle connections: 256 × about 20 KiB = 5 MiB, and per origin as many as a page may use
/// in parallel. Servers close theirs after 5 to 75 s, and a closed one costs a retry.
const LIMITS: PoolLimits =
    PoolLimits { max: 256, max_per_key: 6, lifetime: Duration::from_secs(15) };

/// Creates an empty pool.
pub fn pool() -> Pool {
    IdlePool::new(LIMITS, SendRequest::is_closed)
}
