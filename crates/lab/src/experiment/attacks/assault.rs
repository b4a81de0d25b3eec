//! A running attack.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::bail;

use super::scene::Scene;
use super::tally::Tally;
use super::{Attack, cabin, shares, site, stranger};
use crate::emu::Service;

/// Connections that are opened concurrently.
const OPENING: usize = 256;
/// The same for `addresses`. The gateway's kernel drops most of their first packets, so each takes
/// 3 s: 683 connections per second.
const OPENING_OF_ADDRESSES: usize = 2_048;

/// An attack that continues until it is dropped.
pub struct Assault {
    tally: Arc<Tally>,
    /// Stated strength times the factor.
    demanded: u64,
    _services: Vec<Service>,
}

impl Assault {
    /// Starts `attack` at `factor` times its stated strength. `seed` decides all random bytes.
    pub fn start(scene: &Scene, attack: Attack, factor: u32, seed: u64) -> anyhow::Result<Self> {
        bentpipe_net::raise_descriptor_limit();
        let tally = Arc::<Tally>::default();
        let size = u64::from(attack.stated()) * u64::from(factor);
        let one = match attack {
            Attack::SybilTcp => cabin::hold_connections(scene, size, OPENING, tally.clone())?,
            Attack::Addresses => {
                cabin::hold_connections(scene, size, OPENING_OF_ADDRESSES, tally.clone())?
            }
            Attack::SpoofedUdp => cabin::spoof(scene, size, seed, tally.clone())?,
            Attack::OpenRate => cabin::open(scene, size, tally.clone())?,
            Attack::HubPorts => cabin::take_ports(scene, size, tally.clone())?,
            Attack::InstantPool => cabin::ask_names(scene, size, tally.clone())?,
            Attack::SiteFlows | Attack::SiteHold | Attack::SiteReset => {
                site::start(scene, attack, size, tally.clone())?
            }
            Attack::ResponseFlood | Attack::HubJunk | Attack::InitFlood => {
                // A single thread does not reach the highest rates.
                let halves = [seed, !seed].map(|seed| {
                    let (rate, tally) = (size / 2, tally.clone());
                    match attack {
                        Attack::ResponseFlood => stranger::responses(scene, rate, seed, tally),
                        Attack::HubJunk => Ok(stranger::junk(scene, rate, seed, tally)?),
                        _ => Ok(stranger::inits(scene, rate, seed, tally)?),
                    }
                });
                let _services = halves.into_iter().collect::<Result<_, _>>()?;
                return Ok(Self { tally, demanded: size, _services });
            }
            Attack::Shares => shares::download(scene, size, seed, tally.clone())?,
            Attack::Hoard | Attack::Vanish => {
                bail!("{attack} is played in virtual time")
            }
        };
        Ok(Self { tally, demanded: size, _services: vec![one] })
    }

    /// Returns `true` once the attack is established.
    pub fn stands(&self) -> bool {
        self.tally.stands.load(Relaxed)
    }

    /// Bytes that a downloading attacker has received so far.
    pub fn bytes(&self) -> &AtomicU64 {
        &self.tally.bytes
    }

    /// Attempts so far ÷ attempts of the stated strength times the factor.
    pub fn strength(&self) -> f64 {
        self.tally.strength(self.demanded)
    }

    /// Attempts so far, and those that the attacker saw refused.
    pub fn counts(&self) -> [u64; 2] {
        [&self.tally.made, &self.tally.refused].map(|count| count.load(Relaxed))
    }
}
