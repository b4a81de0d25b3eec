//! Shares of the aircraft in a beam, and their checks.

use bentpipe_link::{IDLE_GRANT, Share};
use bentpipe_units::BitRate;

use super::beam::Beam;
use super::{AircraftConfig, ConfigError, Source};

/// Maximum weight. With larger weights, a rate divided by the weight is less than an aircraft needs
/// to send a request.
const MAX_WEIGHT: u32 = 1_000;

impl Beam {
    pub(super) fn check(
        &self,
        aircraft: &[AircraftConfig],
        source: &Source<'_>,
        span: std::ops::Range<usize>,
    ) -> Result<(), ConfigError> {
        let rates = [("forward", self.forward), ("return", self.return_)];
        let floors: u64 =
            aircraft.iter().fold(0, |sum, one| sum.saturating_add(one.share().floor.bps()));
        let floors = BitRate::from_bps(floors);
        if rates.iter().all(|(_, rate)| rate.is_none()) {
            let help =
                "write forward = \"8 Mbit/s\" or return = \"2 Mbit/s\" under [beam], or both";
            let why = "the beam has no rate that could be shared".to_owned();
            return Err(ConfigError::at(source, Some(span), why, help.to_owned()));
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
                return Err(ConfigError::at(source, Some(span), why, help));
            }
        }
        Ok(())
    }
}

impl AircraftConfig {
    /// Share of the beam for this aircraft.
    pub fn share(&self) -> Share {
        let default = Share::default();
        let rate = |rate: &Option<toml::Spanned<BitRate>>| rate.as_ref().map(|it| *it.get_ref());
        Share {
            weight: self.weight.as_ref().map_or(default.weight, |weight| *weight.get_ref()),
            floor: rate(&self.floor).unwrap_or(default.floor),
            max_return: rate(&self.return_rate).unwrap_or(default.max_return),
        }
    }

    pub(super) fn check_share(
        &self,
        beam: Option<&Beam>,
        source: &Source<'_>,
    ) -> Result<(), ConfigError> {
        let (weight, floor, back) = (&self.weight, &self.floor, &self.return_rate);
        let spans = [
            ("weight", weight.as_ref().map(toml::Spanned::span), beam.is_some()),
            ("floor", floor.as_ref().map(toml::Spanned::span), beam.is_some()),
            (
                "return-rate",
                back.as_ref().map(toml::Spanned::span),
                beam.is_some_and(|beam| beam.return_.is_some()),
            ),
        ];
        for (name, span, counts) in spans {
            if span.is_some() && !counts {
                let why = format!("{name:?} is an aircraft's part of a beam, and there is none");
                let help =
                    "write the beam: [beam] with forward = \"8 Mbit/s\", return = \"2 Mbit/s\"";
                return Err(ConfigError::at(source, span, why, help.to_owned()));
            }
        }
        if let Some(weight) = weight.as_ref().filter(|it| !(1..=MAX_WEIGHT).contains(it.get_ref()))
        {
            let why = format!("a weight of {} is out of range", weight.get_ref());
            let help = format!("write 1 to {MAX_WEIGHT}: twice the weight gets twice the rate");
            return Err(ConfigError::at(source, Some(weight.span()), why, help));
        }
        let too_low = |rate: &&toml::Spanned<BitRate>| *rate.get_ref() < IDLE_GRANT;
        if let Some(rate) = [floor, back].into_iter().flatten().find(too_low) {
            let why = format!("{} is less than an aircraft needs to ask for more", rate.get_ref());
            let help = format!("write {IDLE_GRANT} or more, or leave it out");
            return Err(ConfigError::at(source, Some(rate.span()), why, help));
        }
        self.check_floor(beam, source)
    }

    /// Rejects a floor above the aircraft's maximum rate.
    fn check_floor(&self, beam: Option<&Beam>, source: &Source<'_>) -> Result<(), ConfigError> {
        let (Some(beam), Some(floor)) = (beam, &self.floor) else { return Ok(()) };
        let back = self.return_rate.as_ref().map(|rate| *rate.get_ref());
        let most = [
            ("rate", beam.forward.map(|_| self.rate)),
            ("return-rate", back.filter(|_| beam.return_.is_some())),
        ];
        for (key, most) in most {
            if let Some(most) = most.filter(|most| floor.get_ref() > most) {
                let why =
                    format!("a floor of {} is more than the {key} of {most}", floor.get_ref());
                let help = format!("lower the floor to the {key} at most, or raise the {key}");
                return Err(ConfigError::at(source, Some(floor.span()), why, help));
            }
        }
        Ok(())
    }
}
