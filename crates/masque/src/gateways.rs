//! Connections of gateways that have proved a key: a few each, the newest ones.

use std::collections::{HashMap, HashSet, VecDeque};

use parking_lot::{Mutex, MutexGuard};

use crate::auth::PublicKey;

/// Maximum number of connections with one key: one in use, and one that was lost silently and not
/// noticed yet. With 16 MiB of received and 16 MiB of sent bytes each, 64 MiB.
pub(crate) const MAX_CONNECTIONS: usize = 2;

/// Connections by the keys of their clients, oldest first.
#[derive(Default)]
pub(crate) struct Gateways(Mutex<HashMap<PublicKey, VecDeque<quinn::Connection>>>);

impl Gateways {
    /// Adds a connection of `client`. Returns the one that it replaces if there are too many.
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

    /// Removes a connection of `client`.
    pub(crate) fn leave(&self, client: &PublicKey, connection: &quinn::Connection) {
        let mut table = self.lock();
        let Some(open) = table.get_mut(client) else { return };
        open.retain(|it| it.stable_id() != connection.stable_id());
        if open.is_empty() {
            table.remove(client);
        }
    }

    /// Removes the connections of all others than `clients`, and returns them.
    pub(crate) fn remove_except(&self, clients: &HashSet<PublicKey>) -> Vec<quinn::Connection> {
        let mut table = self.lock();
        table.extract_if(|client, _| !clients.contains(client)).flat_map(|(_, open)| open).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PublicKey, VecDeque<quinn::Connection>>> {
        self.0.lock()
    }
}
