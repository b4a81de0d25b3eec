//! Shares of the aircraft in a beam, and their checks.

use bentpipe_link::{IDLE_GRANT, Share};
use bentpipe_units::BitRate;

use super::aircraft::AircraftTable;
use super::{AircraftConfig, Beam, ConfigError, Placed, Source};

/// Maximum weight. With larger weights, a rate divided by the weight is less than an aircraft needs
/// to send a request.
const MAX_WEIGHT: u32 = 1_000;

/// Checks that the beam has a rate, and that the floors fit into it.
pub(super) fn check(
    beam: &Placed<Beam>,
    aircraft: &[AircraftConfig],
    source: &Source<'_>,
) -> Result<(), ConfigError> {
    let rates = [("forward", beam.forward), ("return", beam.return_)];
    let floors = aircraft.iter().fold(0u64, |sum, one| sum.saturating_add(one.share.floor.bps()));
    let floors = BitRate::from_bps(floors);
    if rates.iter().all(|(_, rate)| rate.is_none()) {
        let why = "the beam has no rate that could be shared";
        let help = "write forward = \"8 Mbit/s\" or return = \"2 Mbit/s\" under [beam], or both";
        return Err(beam.error(source, why, help));
    }
    for (name, rate) in rates {
        if let Some(rate) = rate.filter(|rate| floors > *rate) {
            let why = format!(
                "the floors of {} aircraft come to {floors}, more than the {name} rate of {rate}",
                aircraft.len()
            );
            let help = format!(
                "lower the floors ({IDLE_GRANT} each where none is written), or raise the rate"
            );
            return Err(beam.error(source, why, help));
        }
    }
    Ok(())
}

impl AircraftTable {
    /// Share of `beam` for this aircraft, which is sent at most `rate`.
    pub(super) fn share(
        &self,
        beam: Option<&Beam>,
        rate: BitRate,
        source: &Source<'_>,
    ) -> Result<Share, ConfigError> {
        let (weight, floor, back) = (&self.weight, &self.floor, &self.return_rate);
        let place = |rate: &Option<Placed<BitRate>>| rate.as_ref().map(|it| it.place.clone());
        let shares_return = beam.is_some_and(|beam| beam.return_.is_some());
        let keys = [
            ("weight", weight.as_ref().map(|it| it.place.clone()), beam.is_some()),
            ("floor", place(floor), beam.is_some()),
            ("return-rate", place(back), shares_return),
        ];
        for (name, place, counts) in keys {
            if place.is_some() && !counts {
                let why = format!("{name:?} is an aircraft's part of a beam, and there is none");
                let help =
                    "write the beam: [beam] with forward = \"8 Mbit/s\", return = \"2 Mbit/s\"";
                return Err(ConfigError::at(source, place, why, help));
            }
        }
        if let Some(weight) = weight.as_ref().filter(|it| !(1..=MAX_WEIGHT).contains(&***it)) {
            let why = format!("a weight of {} is out of range", **weight);
            let help = format!("write 1 to {MAX_WEIGHT}: twice the weight gets twice the rate");
            return Err(weight.error(source, why, help));
        }
        let is_too_low = |rate: &&Placed<BitRate>| ***rate < IDLE_GRANT;
        if let Some(rate) = [floor, back].into_iter().flatten().find(is_too_low) {
            let why = format!("{} is less than an aircraft needs to ask for more", **rate);
            return Err(rate.error(
                source,
                why,
                format!("write {IDLE_GRANT} or more, or leave it out"),
            ));
        }
        let default = Share::default();
        let back = back.as_deref().copied();
        if let (Some(beam), Some(floor)) = (beam, floor) {
            let most = [
                ("rate", beam.forward.map(|_| rate)),
                ("return-rate", back.filter(|_| shares_return)),
            ];
            for (key, most) in most {
                if let Some(most) = most.filter(|most| **floor > *most) {
                    let why = format!("a floor of {} is more than the {key} of {most}", **floor);
                    let help = format!("lower the floor to the {key} at most, or raise the {key}");
                    return Err(floor.error(source, why, help));
                }
            }
        }
        Ok(Share {
            weight: weight.as_deref().copied().unwrap_or(default.weight),
            floor: floor.as_deref().copied().unwrap_or(default.floor),
            max_return: back.unwrap_or(default.max_return),
        })
    }
}
