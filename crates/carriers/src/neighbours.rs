//! The directory of the fleet, if the file names other grounds.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bentpipe_anchor::forward::Egresses;
use bentpipe_anchor::neighbours::Neighbours;
use bentpipe_config::GroundConfig;
use bentpipe_directory::{Key, Statement};

/// Versions in a millisecond: a process never signs as many.
const PER_MILLISECOND: u64 = 1 << 20;

/// Starts the directory, in tasks of the current runtime. `None` if the file names no other ground.
pub fn start(config: &GroundConfig, egresses: &Egresses) -> Option<Arc<Neighbours>> {
    let key = |key: &bentpipe_link::PublicKey| *key.as_bytes();
    let dialled = config
        .egresses
        .iter()
        .zip(egresses.legs())
        .filter_map(|(egress, leg)| Some((key(egress.kind.public_key()?), leg?)));
    let dialled: Vec<_> = dialled.collect();
    let gateways = dialled.iter().map(|(key, _)| *key);
    let peers: Vec<Key> = config.hubs.iter().map(key).chain(gateways).collect();
    if peers.is_empty() {
        return None;
    }
    let statement = Statement {
        // Not `[[aircraft]]`: an egress has it too, for the limits of each aircraft.
        is_hub: !config.egresses.is_empty(),
        is_egress: !config.hubs.is_empty(),
        ..Statement::default()
    };
    let own = &config.link.private_key;
    // The clock goes on over restarts. If it goes back, the neighbours correct the version.
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let version = (clock.as_millis() as u64).saturating_mul(PER_MILLISECOND);
    let keys = (*own.as_bytes(), key(&own.public()));
    let neighbours = Neighbours::start(keys, &peers, statement, version);
    for (peer, leg) in dialled {
        neighbours.call(peer, leg);
    }
    Some(neighbours)
}
