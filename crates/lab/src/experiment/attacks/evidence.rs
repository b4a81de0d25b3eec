//! Evidence of the gateways' refusals: their counters, and the lines of their logs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use bentpipe_gateway::status;
use tokio::time::sleep;

use super::Attack;
use super::files::STATUS_FILES;
use super::scene::Scene;

/// Interval at which the gateways write their status, plus a margin.
const STATUS_INTERVAL: Duration = Duration::from_millis(1_500);

/// Refusals during an attack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Number of refusals since the attack began.
    pub counted: u64,
    /// Log line that names the heaviest user, if the attack reaches a limit.
    pub logged: Option<String>,
}

/// Counters of a gateway before an attack.
pub struct Before {
    attack: Attack,
    file: PathBuf,
    counted: u64,
}

impl Before {
    /// Reads the counters of the gateway in which `attack` must leave its trace.
    pub async fn read(attack: Attack, folder: &Path) -> anyhow::Result<Self> {
        // A status file from before the victim's pages is equally valid, because none of the
        // victim's requests are refused.
        sleep(STATUS_INTERVAL).await;
        let file = folder.join(STATUS_FILES[attack.trace().gateway]);
        let counted = counted(attack, &file)?;
        Ok(Self { attack, file, counted })
    }

    /// Evidence since the counters were read.
    pub async fn since(&self, scene: &Scene) -> anyhow::Result<Evidence> {
        sleep(STATUS_INTERVAL).await;
        let counted = counted(self.attack, &self.file)?.saturating_sub(self.counted);
        let trace = self.attack.trace();
        let gateway = [&scene.pair.air, &scene.pair.ground][trace.gateway];
        Ok(Evidence { counted, logged: line(&gateway.output(), trace.limits) })
    }
}

fn counted(attack: Attack, file: &Path) -> anyhow::Result<u64> {
    let status = status::read(file).map_err(|error| anyhow!("{error}"))?;
    let of = |name: &&str| status.counters.get(*name).copied().unwrap_or(0);
    Ok(attack.trace().counters.iter().map(of).sum())
}

/// First line of `log` that names the heaviest user, or the user with the highest rate, for one of
/// `limits`.
fn line(log: &str, limits: &[&str]) -> Option<String> {
    let is_one = |line: &&str| {
        let named = limits.iter().any(|limit| line.contains(&format!("limit={limit} ")));
        let who = [" holds most (", "(too many queries per second)"];
        named && who.iter().any(|who| line.contains(who))
    };
    log.lines().find(is_one).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_gateway::counters::Counters;

    #[test]
    fn traces_are_counters_that_gateways_have() {
        let all: Vec<_> = Counters::default().all().into_iter().collect();
        for attack in Attack::ALL {
            for name in attack.trace().counters {
                let known = all.iter().any(|(known, _)| known.replace('-', "_") == *name);
                assert!(known, "{attack}: {name}");
            }
        }
    }

    #[test]
    fn a_line_names_the_limit_and_who_holds_most() {
        let log = "WARN a limit was reached, the newcomer was refused: … limit=tcp-opens unsaid=0\n\
                   WARN a limit was reached, the newcomer was refused: a holds 3 of 9, the limit is 9, \
                   b holds most (6) limit=tcp-flows unsaid=0\n";
        assert_eq!(line(log, &["tcp-opens"]), None);
        assert!(line(log, &["tcp-opens", "tcp-flows"]).unwrap().contains("b holds most (6)"));
        assert_eq!(line(log, &[]), None);
    }
}
