//! An attack under way: its thread, its pace and its progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::scene::Scene;
use super::{Attack, cabin, site, stranger};
use crate::experiment::ExperimentError;
use crate::workload::service::Service;

/// Distance of two looks at what is due.
const TICK: Duration = Duration::from_millis(1);

/// An attack that goes on until it is dropped.
pub struct Assault {
    tally: Arc<Tally>,
    _service: Service,
}

/// Progress of an attack.
#[derive(Default)]
pub struct Tally {
    /// Connections, streams or datagrams so far.
    pub made: AtomicU64,
    /// Attempts among these that the attacker saw refused or broken off.
    pub refused: AtomicU64,
    /// The attack stands: what it holds is held, or its rate is reached.
    pub stands: AtomicBool,
}

impl Assault {
    /// Begins `attack`, `factor` times as large as it is stated; random bytes follow from `seed`.
    pub fn start(
        scene: &Scene,
        attack: Attack,
        factor: u32,
        seed: u64,
    ) -> Result<Self, ExperimentError> {
        bentpipe_gateway::net::raise_descriptor_limit();
        let tally = Arc::<Tally>::default();
        let size = u64::from(attack.stated()) * u64::from(factor);
        let _service = match attack {
            Attack::SybilTcp | Attack::Addresses => {
                cabin::hold_connections(scene, size, tally.clone())?
            }
            Attack::SpoofedUdp => cabin::spoof(scene, size, seed, tally.clone())?,
            Attack::OpenRate => cabin::open(scene, size, tally.clone())?,
            Attack::HubPorts => cabin::take_ports(scene, size, tally.clone())?,
            Attack::InstantPool => cabin::ask_names(scene, size, tally.clone())?,
            Attack::SiteFlows | Attack::SiteHold | Attack::SiteReset => {
                site::start(scene, attack, size, tally.clone())?
            }
            Attack::ResponseFlood => stranger::responses(scene, size, seed, tally.clone())?,
            Attack::HubJunk => stranger::junk(scene, size, seed, tally.clone())?,
            Attack::InitFlood => stranger::inits(scene, size, seed, tally.clone())?,
        };
        Ok(Self { tally, _service })
    }

    /// Returns `true` once the attack stands.
    pub fn stands(&self) -> bool {
        self.tally.stands.load(Relaxed)
    }

    /// Attempts so far, and how many the attacker saw refused.
    pub fn counts(&self) -> [u64; 2] {
        [&self.tally.made, &self.tally.refused].map(|count| count.load(Relaxed))
    }
}

/// Calls `act` `rate` times a second for ever, with the number of each call.
pub async fn paced(rate: u64, tally: &Tally, mut act: impl FnMut(u64)) {
    let began = Instant::now();
    let mut done = 0;
    loop {
        let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
        // Whatever this machine has no time for is not made up for later.
        let first = done.max(due.saturating_sub(rate.div_ceil(10)));
        for number in first..due {
            act(number);
        }
        tally.made.fetch_add(due.saturating_sub(first), Relaxed);
        done = due;
        if due >= rate {
            tally.stands.store(true, Relaxed);
        }
        sleep(TICK).await;
    }
}
