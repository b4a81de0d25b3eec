//! This ground in the directory of the fleet, and the others.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_config::GroundConfig;
use bentpipe_status::GroundEntry;
use bentpipe_transport::Acceptor;
use tokio::time::sleep;

/// Interval of looks at the load.
const LOOK: Duration = Duration::from_secs(1);

/// The load of a ground with `open` flows, of at most `max`; 255 is full.
fn load(open: usize, max: usize) -> u8 {
    (open.saturating_mul(255) / max.max(1)).min(255) as u8
}

/// Tells the fleet the load: `open` flows of at most `max`. Never returns.
pub async fn tell_load(open: impl Fn() -> usize, max: usize, acceptors: &[Arc<dyn Acceptor>]) {
    loop {
        let load = load(open(), max);
        acceptors.iter().for_each(|it| it.set_load(load));
        sleep(LOOK).await;
    }
}

/// The other grounds, for the status file.
pub fn entries(config: &GroundConfig, acceptors: &[Arc<dyn Acceptor>]) -> Vec<GroundEntry> {
    // All acceptors share one directory.
    let Some(first) = acceptors.first() else { return Vec::new() };
    let name = |key: &[u8; 32]| {
        let egress = config
            .egresses
            .iter()
            .find(|it| it.kind.public_key().is_some_and(|public| public.as_bytes() == key));
        egress.map(|it| it.peer.to_string())
    };
    let entry = |ground| GroundEntry::of(&ground, name(&ground.key).as_deref());
    first.grounds().into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ground_has_the_highest_load() {
        let loads = [(0, 10), (5, 10), (10, 10), (11, 10), (1, 0), (usize::MAX, 1)];
        assert_eq!(loads.map(|(open, max)| load(open, max)), [0, 127, 255, 255, 255, 255]);
    }
}
