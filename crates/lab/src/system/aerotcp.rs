//! AeroTCP's settings for both engines: division of the satellite's bandwidth and sizes of buffers,
//! after section V of its paper.
//!
//! An experiment may declare, among its grid's settings:
//!
//! | key | meaning |
//! |---|---|
//! | `aerotcp-connections` | N of a static window SatBW/N × SatRTT (V.C); if absent, N is the number of open connections |
//! | `aerotcp-peak-rate` | PR, the maximum rate of one connection (V.B); if absent, the whole bandwidth |
//! | `aerotcp-buffers` | buffers in products of peak rate and round trip (V.B), at low and at high error rates; if absent, `[2, 4]` |

use std::time::Duration;

use bentpipe_aerotcp::{BUFFER_FACTORS, Settings, Window};
use bentpipe_units::BitRate;

use super::SystemError;
use crate::profile::Profile;

/// Fraction of lost full packets, in either direction, above which error rates count as high. The
/// paper only describes their effect (retransmissions are lost again); the number is ours.
pub const HIGH_LOSS: f64 = 0.01;

/// Buffer factors of the paper: about two products, and three to four at high error rates.
const BUFFERS: [u32; 2] = [*BUFFER_FACTORS.start(), *BUFFER_FACTORS.end()];

const CONNECTIONS: &str = "aerotcp-connections";
const PEAK_RATE: &str = "aerotcp-peak-rate";
const BUFFERS_KEY: &str = "aerotcp-buffers";

/// Settings of both ends in addition to the link's rates and round trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AeroTcp {
    /// N of a static window. If `None`, windows follow the number of open connections.
    pub connections: Option<u32>,
    /// Maximum rate of one connection, if it is limited.
    pub peak_rate: Option<BitRate>,
    /// Buffers, in products of peak rate and round trip.
    pub buffer_factor: u32,
}

impl AeroTcp {
    /// Settings for an unknown number of connections: adaptive windows, no peak rate.
    pub fn adaptive(profile: &Profile) -> Self {
        let buffer_factor = factor(profile, BUFFERS);
        Self { connections: None, peak_rate: None, buffer_factor }
    }

    /// Settings that a grid declares for the link of `profile`.
    pub fn declared(settings: &toml::Table, profile: &Profile) -> Result<Self, SystemError> {
        let positive = |value: &toml::Value| whole(value).filter(|number| *number > 0);
        let rate = |value: &toml::Value| value.as_str()?.parse::<BitRate>().ok();
        let buffers = read(settings, BUFFERS_KEY, "[2, 4]", factors)?.unwrap_or(BUFFERS);
        Ok(Self {
            connections: read(settings, CONNECTIONS, "10", positive)?,
            peak_rate: read(settings, PEAK_RATE, "\"400 kbit/s\"", rate)?,
            buffer_factor: factor(profile, buffers),
        })
    }

    /// Converts to the settings of the `aerotcp` crate. The caller sets the rates and the round
    /// trip.
    pub fn settings(&self) -> Settings {
        Settings {
            window: match self.connections {
                Some(connections) => Window::Static { connections },
                None => Window::Adaptive,
            },
            peak_rate: self.peak_rate,
            buffer_factor: self.buffer_factor,
            ..Settings::default()
        }
    }

    /// Formats the settings for the gateways' configuration files.
    pub(super) fn toml(&self, rtt: Duration) -> String {
        let window = match self.connections {
            Some(connections) => format!("window = \"static\"\nconnections = {connections}\n"),
            None => "window = \"adaptive\"\n".to_owned(),
        };
        let peak = self.peak_rate.map(|rate| format!("peak-rate = \"{} bit/s\"\n", rate.bps()));
        format!(
            "\n[aerotcp]\nrtt = \"{} ms\"\n{window}{}buffer-factor = {}\n",
            rtt.as_secs_f64() * 1e3,
            peak.unwrap_or_default(),
            self.buffer_factor
        )
    }
}

/// Value of the setting `key`, if present, converted by `parse`.
fn read<T>(
    settings: &toml::Table,
    key: &'static str,
    example: &'static str,
    parse: impl Fn(&toml::Value) -> Option<T>,
) -> Result<Option<T>, SystemError> {
    let Some(value) = settings.get(key) else { return Ok(None) };
    let wrong = || SystemError::Setting { key, value: value.to_string(), example };
    parse(value).map(Some).ok_or_else(wrong)
}

fn whole(value: &toml::Value) -> Option<u32> {
    u32::try_from(value.as_integer()?).ok()
}

fn factors(value: &toml::Value) -> Option<[u32; 2]> {
    let both: Option<Vec<u32>> = value.as_array()?.iter().map(whole).collect();
    let both: [u32; 2] = both?.try_into().ok()?;
    both.iter().all(|factor| BUFFER_FACTORS.contains(factor)).then_some(both)
}

/// Chooses the factor for the link's losses.
fn factor(profile: &Profile, [low, high]: [u32; 2]) -> u32 {
    if profile.forward_loss().max(profile.return_loss()) > HIGH_LOSS { high } else { low }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_units::Ratio;

    fn profile(ber: f64) -> Profile {
        Profile::named("aero").unwrap().with_ber(Ratio::new(ber).unwrap())
    }

    #[test]
    fn buffers_follow_the_losses_and_windows_what_is_declared() {
        let declared: toml::Table =
            "aerotcp-connections = 10\naerotcp-peak-rate = \"400 kbit/s\"".parse().unwrap();
        let of = |ber| AeroTcp::declared(&declared, &profile(ber)).unwrap();
        assert_eq!((of(1e-8).buffer_factor, of(1e-5).buffer_factor), (2, 4));
        assert_eq!(of(1e-8).peak_rate, Some(BitRate::from_bps(400_000)));
        assert_eq!(of(1e-5).settings().window, Window::Static { connections: 10 });
        let nothing = AeroTcp::declared(&toml::Table::new(), &profile(1e-5)).unwrap();
        assert_eq!(nothing, AeroTcp::adaptive(&profile(1e-5)));
        let three: toml::Table = "aerotcp-buffers = [3, 3]".parse().unwrap();
        assert_eq!(AeroTcp::declared(&three, &profile(1e-5)).unwrap().buffer_factor, 3);
    }

    #[test]
    fn a_setting_that_cannot_be_used_is_named() {
        for (text, key) in [
            ("aerotcp-connections = 0", "aerotcp-connections"),
            ("aerotcp-peak-rate = 400", "aerotcp-peak-rate"),
            ("aerotcp-buffers = [2]", "aerotcp-buffers"),
            ("aerotcp-buffers = [1, 4]", "aerotcp-buffers"),
        ] {
            let settings: toml::Table = text.parse().unwrap();
            let error = AeroTcp::declared(&settings, &profile(0.0)).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains("write it like"), "{error}");
        }
    }
}
