//! Connections of gateways, which hold a key: a few each, and the newest stay.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::auth::PublicKey;

/// Connections that one key may have at once: one in use, and one that was lost without a word and that
/// nobody has noticed yet. With 16 MiB of received and 16 MiB of sent bytes each, 64 MiB.
pub(crate) const MAX_CONNECTIONS: usize = 2;

/// Connections by the keys of their clients, the oldest first.
#[derive(Default)]
pub(crate) struct Gateways(Mutex<HashMap<PublicKey, VecDeque<quinn::Connection>>>);

impl Gateways {
    /// Notes a connection of `client`; gives the one that it takes the place of, if there are too many.
    pub(crate) fn arrive(
        &self,
        client: PublicKey,
        connection: &quinn::Connection,
    ) -> Option<quinn::Connection> {
        let mut table = self.lock();
        let open = table.entry(client).or_default();
        open.retain(|it| it.close_reason().is_none());
        open.push_back(connection.clone());
        if open.len() > MAX_CONNECTIONS { open.pop_front() } else { None }
    }

    /// Forgets a connection of `client`.
    pub(crate) fn leave(&self, client: &PublicKey, connection: &quinn::Connection) {
        let mut table = self.lock();
        let Some(open) = table.get_mut(client) else { return };
        open.retain(|it| it.stable_id() != connection.stable_id());
        if open.is_empty() {
            table.remove(client);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PublicKey, VecDeque<quinn::Connection>>> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
