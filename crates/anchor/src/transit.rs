//! Watch over the paths to egresses, for the log.

use std::time::Duration;

use bentpipe_choice::{Transit, TransitWatch};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Interval of looks.
const LOOK: Duration = Duration::from_secs(5);

/// Looks at the paths to `egresses` periodically, until `look` returns `None`. It returns the round-trip
/// time to each, if there is a connection.
pub async fn watch_transit(
    egresses: Vec<String>,
    look: impl Fn() -> Option<Vec<Option<Duration>>>,
) {
    let mut watches = vec![TransitWatch::default(); egresses.len()];
    let began = Instant::now();
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(round_trips) = look() else { return };
        for ((egress, rtt), watch) in egresses.iter().zip(round_trips).zip(&mut watches) {
            let Some(rtt) = rtt else { continue };
            let rtt_ms = rtt.as_millis();
            match watch.look(rtt, began.elapsed()) {
                None => {}
                Some(Transit::Detour(usual)) => tracing::warn!(
                    egress,
                    rtt_ms,
                    usual_ms = usual.as_millis(),
                    "the path to the egress has become a detour: new flows to it count it; ask the network's operator"
                ),
                Some(Transit::Usual) => {
                    tracing::info!(egress, rtt_ms, "the path to the egress is as usual again");
                }
            }
        }
    }
}
