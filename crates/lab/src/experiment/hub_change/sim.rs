//! Scripts in virtual time. Programs die without a word: their hosts become silent.

use std::sync::Arc;

use super::bounds::{FLOWS, REST};
use super::script::{Played, Script, Stage};
use super::traffic::{Load, Log, PACE};
use super::world::World;
use crate::experiment::virtual_link::virtually;
use crate::profile::Profile;

/// Virtual time over the link of a profile.
pub struct Sim<'a> {
    /// The radio link.
    pub profile: &'a Profile,
    /// Seed of all losses.
    pub seed: u64,
}

impl Stage for Sim<'_> {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn play(&self, script: &Script) -> anyhow::Result<Played> {
        virtually(async {
            let log = Arc::new(Log::new(script.load, script.until));
            let world = Arc::new(World::start(self.profile, self.seed, script.roles, &log)?);
            let (opening, opened) = (world.clone(), log.clone());
            let openings = script.openings.clone();
            tokio::spawn(async move {
                for (at, flows) in openings {
                    opened.reach(at).await;
                    flows.for_each(|number| opening.open(number, &opened));
                }
            });
            for (at, event) in &script.events {
                log.reach(*at).await;
                world.happen(*event)?;
            }
            log.reach(script.until).await;
            let all = 2 * script.openings.iter().map(|(_, flows)| flows.len()).sum::<usize>();
            debug_assert!(all <= 2 * usize::from(FLOWS));
            while script.load == Load::Paced && !log.is_over(all) && log.now() < script.until + REST
            {
                log.reach(log.now() + PACE).await;
            }
            Ok(Played { course: log.course(), radio_bytes: world.radio_bytes() })
        })
    }
}
