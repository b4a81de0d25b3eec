//! Several radio links between the air and the ground host, for sessions that use all of them.

use std::time::Duration;

use bentpipe_channel::LinkSpec;

use super::error::EmuError;
use super::net::{self, Route};
use super::plan::{AIR, AIR_ELSEWHERE, further_radio};
use super::testbed::{EmulatedLink, LinkCounters, Testbed, direction_seed};

/// Interfaces of the radio links, the same on the air and the ground host.
pub const RADIO_INTERFACES: [&str; 8] =
    ["radio", "radio2", "radio3", "radio4", "radio5", "radio6", "radio7", "radio8"];

/// Mixed into the seed of each further link, times its number.
const FURTHER_SEED: u64 = 0x6675_7274_6865_7200;

/// Metric of the route over the second link. Each further one has one more. The first link has 0, so
/// that it carries everything that is not bound to an interface.
const METRIC: u32 = 100;

impl Testbed {
    /// Brings up a testbed with a radio link for each of `links`, which are one to eight. Its
    /// terrestrial path is a cable.
    pub fn bundle(links: &[&LinkSpec], seed: u64) -> Result<Self, EmuError> {
        let mut testbed = Self::new(links[0], None, seed)?;
        for (number, (link, name)) in (1..).zip(links.iter().zip(RADIO_INTERFACES).skip(1)) {
            let own_seed = seed ^ FURTHER_SEED.wrapping_mul(u64::from(number));
            testbed.add_radio(number, name, link, own_seed)?;
        }
        Ok(testbed)
    }

    fn add_radio(
        &mut self,
        number: u8,
        name: &'static str,
        link: &LinkSpec,
        seed: u64,
    ) -> Result<(), EmuError> {
        let [air, ground] = further_radio(number).map(|addresses| addresses.on(name));
        let radio = EmulatedLink::new(
            name,
            self.radio.epoch,
            (&self.air, air),
            (&self.ground, ground.clone()),
            link,
            direction_seed(seed, 0),
        )?;
        let metric = METRIC + u32::from(number);
        net::route_with(&self.air, &Route::default(&ground), Some(metric))?;
        self.further.push(radio);
        Ok(())
    }

    /// Number of radio links.
    pub fn radios(&self) -> usize {
        1 + self.further.len()
    }

    fn radio_of(&self, path: usize) -> &EmulatedLink {
        path.checked_sub(1).map_or(&self.radio, |further| &self.further[further])
    }

    /// Counters of the radio link of this path.
    pub fn counters_of(&self, path: usize) -> Result<LinkCounters, EmuError> {
        self.radio_of(path).counters()
    }

    /// The radio link of this path loses every packet offered from now on, or carries them again.
    pub fn cut(&self, path: usize, is_cut: bool) {
        self.radio_of(path).wire.cut([is_cut; 2]);
    }

    /// The radio link of this path loses every packet from the aircraft from now on, and carries the
    /// others.
    pub fn cut_uplink(&self, path: usize) {
        self.radio_of(path).wire.cut([true, false]);
    }

    /// The air host's interface of this path loses its carrier, or has one again. Its addresses and
    /// routes stay.
    pub fn set_carrier(&self, path: usize, has_carrier: bool) -> Result<(), EmuError> {
        net::set_carrier(&self.air, RADIO_INTERFACES[path], has_carrier)
    }

    /// Time of the links' models.
    pub fn now(&self) -> Duration {
        self.radio.epoch.elapsed()
    }

    /// Gives the air host another IPv4 address on the first radio link.
    pub fn move_air(&self) -> Result<(), EmuError> {
        net::replace_address(&self.air, RADIO_INTERFACES[0], (AIR.v4, AIR_ELSEWHERE.v4))
    }
}
