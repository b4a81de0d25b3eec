//! Changes of the configuration while the gateway runs.

use std::sync::Arc;

use bentpipe_config::{Changes, GroundConfig};
use bentpipe_status::{Outcome, Reload};
use bentpipe_transport::Acceptor;
use tokio::sync::mpsc;

use crate::Ground;

impl Ground {
    /// Puts `new` into effect in place of `before`, as far as that is possible while flows are open:
    /// aircraft, the beam's rates, classes and the table of hosts. Returns what it changed, and what
    /// waits. Changes nothing if `new` has an error.
    ///
    /// Sessions and flows of aircraft that stay the same do not notice. Those of an aircraft whose
    /// key is gone end.
    pub fn apply(
        &self,
        before: &GroundConfig,
        new: &GroundConfig,
        acceptors: &[Arc<dyn Acceptor>],
    ) -> Result<Changes, String> {
        let fleet = bentpipe_carriers::fleet(new).map_err(|error| error.to_string())?;
        let mut changes = before.changes(new)?;
        let is_fleet_new = changes.added + changes.removed + changes.changed > 0;
        // New aircraft are known here before their first flow arrives.
        self.shared.fleet.set_aircraft(&new.aircraft);
        for from in acceptors {
            if !from.set_fleet(&fleet) && is_fleet_new {
                let name = from.transport().name();
                changes.waiting.push(format!(
                    "aircraft of the transport {name}: new ones are served there after a restart"
                ));
            }
        }
        self.shared.known.set_table(&new.hosts);
        Ok(changes)
    }

    /// Applies each configuration that arrives, logs the outcome and returns it. Never ends.
    pub(crate) async fn follow_configs(
        &self,
        config: &GroundConfig,
        acceptors: &[Arc<dyn Acceptor>],
        mut again: mpsc::Receiver<Reload<GroundConfig>>,
    ) {
        let mut before = config.clone();
        while let Some(request) = again.recv().await {
            let outcome = self.reload(&mut before, &request.config, acceptors);
            request.answer(outcome);
        }
        std::future::pending().await
    }

    fn reload(
        &self,
        before: &mut GroundConfig,
        new: &GroundConfig,
        acceptors: &[Arc<dyn Acceptor>],
    ) -> Outcome {
        match self.apply(before, new, acceptors) {
            Ok(Changes { added, removed, changed, waiting }) => {
                for line in &waiting {
                    tracing::warn!("{line}");
                }
                tracing::info!(
                    added,
                    removed,
                    changed,
                    "aircraft, classes and hosts are those of the file now"
                );
                before.adopt(new);
                let mut lines = waiting;
                lines
                    .push(format!("aircraft: {added} added, {removed} removed, {changed} changed"));
                Ok(lines)
            }
            Err(error) => {
                tracing::error!(%error, "the configuration stays as it was");
                Err(format!("the configuration stays as it was: {error}"))
            }
        }
    }
}
