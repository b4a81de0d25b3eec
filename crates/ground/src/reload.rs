//! Changes of the configuration while the gateway runs.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_config::{Changes, GroundConfig};
use bentpipe_flow::Target;
use bentpipe_status::{Asked, Command, Outcome};
use bentpipe_transport::{Acceptor, EgressStanding};
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
        self.shared.sources.set_aircraft(&new.aircraft);
        for acceptor in acceptors {
            if !acceptor.set_fleet(&fleet) && is_fleet_new {
                let name = acceptor.transport().name();
                changes.waiting.push(format!(
                    "aircraft of the transport {name}: new ones are served there after a restart"
                ));
            }
        }
        // The sessions of removed aircraft are over by now, so that none hears of single flows first.
        self.shared.fleet.remove_others(&new.aircraft);
        self.shared.known.set_table(&new.hosts);
        Ok(changes)
    }

    /// Follows each command that arrives. Never ends.
    pub(crate) async fn follow_commands(
        &self,
        config: &GroundConfig,
        acceptors: &[Arc<dyn Acceptor>],
        mut commands: mpsc::Receiver<Command<GroundConfig>>,
    ) {
        let mut before = config.clone();
        while let Some(command) = commands.recv().await {
            let outcome = match &command.asked {
                Asked::Config(config) => self.reload(&mut before, config, acceptors),
                Asked::Explain(target) => explain(target, acceptors),
            };
            command.answer(outcome);
        }
        std::future::pending().await
    }

    /// Applies a configuration, logs the outcome and returns it.
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

/// Explains the choice of the egress for a destination.
fn explain(target: &Target, acceptors: &[Arc<dyn Acceptor>]) -> Outcome {
    let egresses =
        acceptors.iter().map(|acceptor| acceptor.egresses(target)).find(|it| !it.is_empty());
    let Some(egresses) = egresses else {
        return Err("this ground has no choice: write several [[egress]] to have one".to_owned());
    };
    let width = egresses.iter().map(|it| it.name.len()).max().unwrap_or_default();
    let line = |it: &EgressStanding| {
        let EgressStanding { name, leg, dial, source, .. } = it;
        let chosen = if it.is_chosen { " <- new passengers" } else { "" };
        let [leg, dial] = [leg, dial].map(Duration::as_millis);
        match (it.is_up, it.fails) {
            (false, _) => match &it.trouble {
                Some(why) => format!("{name:width$}  down: {why}{chosen}"),
                None => format!("{name:width$}  down{chosen}"),
            },
            (true, true) => format!("{name:width$}  does not reach it{chosen}"),
            (true, false) => {
                format!("{name:width$}  {leg} ms there + {dial} ms to connect ({source}){chosen}")
            }
        }
    };
    Ok(egresses.iter().map(line).collect())
}
