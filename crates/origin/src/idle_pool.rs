//! Idle connections to origins, kept for further requests.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// Limits of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    /// Maximum number of connections. The oldest is closed for another.
    pub max: usize,
    /// Maximum number of connections with one key. Further ones are closed.
    pub max_per_key: usize,
    /// Lifetime of an idle connection.
    pub lifetime: Duration,
}

/// Idle connections by key: an origin, and an owner if there are several.
pub struct IdlePool<K, C> {
    limits: PoolLimits,
    is_closed: fn(&C) -> bool,
    state: Mutex<State<K, C>>,
}

struct State<K, C> {
    /// Connections in the order of their last use.
    idle: VecDeque<Idle<K, C>>,
    /// `true` if no further connection is kept.
    is_over: bool,
}

struct Idle<K, C> {
    key: K,
    connection: C,
    since: Instant,
}

impl<K: PartialEq, C> IdlePool<K, C> {
    /// Creates an empty pool. `is_closed` says if the peer has closed a connection.
    pub fn new(limits: PoolLimits, is_closed: fn(&C) -> bool) -> Self {
        let state = Mutex::new(State { idle: VecDeque::new(), is_over: false });
        Self { limits, is_closed, state }
    }

    /// Takes the most recently used connection with this key, because it is the likeliest to be
    /// open.
    pub fn take(&self, key: &K) -> Option<C> {
        let mut state = self.open_ones();
        let at = state.idle.iter().rposition(|one| one.key == *key)?;
        state.idle.remove(at).map(|one| one.connection)
    }

    /// Keeps a connection whose last response has been read to its end.
    pub fn put(&self, key: K, connection: C) {
        let mut state = self.open_ones();
        let with_key = state.idle.iter().filter(|one| one.key == key).count();
        if state.is_over || with_key >= self.limits.max_per_key {
            return;
        }
        if state.idle.len() >= self.limits.max {
            state.idle.pop_front();
        }
        state.idle.push_back(Idle { key, connection, since: Instant::now() });
    }

    /// Closes the connections whose lifetime is over. Every other call does so as well.
    pub fn expire(&self) {
        drop(self.open_ones());
    }

    /// Closes all connections, and keeps no further ones.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.idle.clear();
    }

    /// The pool without connections that are closed or whose lifetime is over.
    fn open_ones(&self) -> MutexGuard<'_, State<K, C>> {
        let mut state = self.state.lock();
        let (lifetime, is_closed) = (self.limits.lifetime, self.is_closed);
        state.idle.retain(|one| one.since.elapsed() < lifetime && !is_closed(&one.connection));
        state
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::time::advance;

    use super::*;

    /// A connection with a number, and whether its peer has closed it.
    type Numbered = (u32, Rc<Cell<bool>>);

    const LIMITS: PoolLimits =
        PoolLimits { max: 3, max_per_key: 2, lifetime: Duration::from_secs(20) };

    fn pool() -> IdlePool<&'static str, Numbered> {
        IdlePool::new(LIMITS, |(_, is_closed)| is_closed.get())
    }

    fn put(pool: &IdlePool<&'static str, Numbered>, key: &'static str, n: u32) -> Rc<Cell<bool>> {
        let is_closed = Rc::<Cell<bool>>::default();
        pool.put(key, (n, is_closed.clone()));
        is_closed
    }

    fn take(pool: &IdlePool<&'static str, Numbered>, key: &'static str) -> Option<u32> {
        pool.take(&key).map(|(n, _)| n)
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_open_connection_is_used_again() {
        let pool = pool();
        let _ = put(&pool, "a", 1);
        advance(Duration::from_secs(1)).await;
        put(&pool, "a", 2).set(true);
        assert_eq!((take(&pool, "b"), take(&pool, "a"), take(&pool, "a")), (None, Some(1), None));
        let _ = put(&pool, "a", 3);
        advance(LIMITS.lifetime).await;
        assert_eq!(take(&pool, "a"), None, "its lifetime is over");
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_makes_room_and_no_key_has_all() {
        let pool = pool();
        for (n, key) in ["a", "b", "b", "b", "c"].into_iter().enumerate() {
            let _ = put(&pool, key, n as u32);
        }
        assert_eq!(take(&pool, "a"), None);
        assert_eq!(
            (take(&pool, "b"), take(&pool, "b"), take(&pool, "c")),
            (Some(2), Some(1), Some(4))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_with_its_lifetime_and_with_the_pool() {
        let pool = pool();
        let first = put(&pool, "a", 1);
        advance(LIMITS.lifetime).await;
        pool.expire();
        assert_eq!(Rc::strong_count(&first), 1);
        let second = put(&pool, "a", 2);
        pool.close();
        let third = put(&pool, "a", 3);
        assert_eq!((Rc::strong_count(&second), Rc::strong_count(&third)), (1, 1));
    }
}
