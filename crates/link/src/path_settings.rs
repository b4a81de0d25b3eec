//! Settings of a path of a session.

use bentpipe_units::BitRate;

use crate::lease::LeaseMode;
use crate::quota::PathQuota;
use crate::settings_error::{MIN_MTU_BYTES, MIN_RATE, SettingsError};

/// Largest IP packet.
const MAX_MTU_BYTES: usize = 65_535;

/// Settings of a path besides the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathSettings {
    /// Name in the status.
    pub name: String,
    /// Rate that the operator lets this side use on the path, as that of the first one.
    pub rate: BitRate,
    /// Origin of the rate.
    pub lease: LeaseMode,
    /// Largest IP packet on the path, as that of the first one, which also limits it.
    pub mtu_bytes: usize,
    /// The path's bytes cost money: it carries data only while no other path does. The air says so
    /// to the ground.
    pub metered: bool,
    /// At the air: bytes that the path may still carry, if they are limited, in both directions.
    pub quota: Option<PathQuota>,
}

impl PathSettings {
    /// Checks the settings.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        check_path(self.rate, self.mtu_bytes).map_err(|error| SettingsError::OfPath {
            name: self.name.clone(),
            error: Box::new(error),
        })
    }
}

/// Checks the settings of a path.
pub(crate) fn check_path(rate: BitRate, mtu_bytes: usize) -> Result<(), SettingsError> {
    match (rate, mtu_bytes) {
        (rate, _) if rate.bps() == 0 => Err(SettingsError::NoRate),
        (rate, _) if rate < MIN_RATE => Err(SettingsError::LowRate(rate)),
        (_, mtu) if mtu < MIN_MTU_BYTES => Err(SettingsError::SmallMtu(mtu)),
        (_, mtu) if mtu > MAX_MTU_BYTES => Err(SettingsError::LargeMtu(mtu)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn a_path_that_cannot_work_is_named() {
        let path = PathSettings {
            name: "LTE".to_owned(),
            rate: BitRate::from_bps(1_000_000),
            lease: LeaseMode::Static,
            mtu_bytes: 1500,
            metered: false,
            quota: None,
        };
        let with = |path: &PathSettings, count| {
            Settings { paths: vec![path.clone(); count], ..Settings::default() }.check()
        };
        assert_eq!(with(&path, 7), Ok(()));
        assert_eq!(with(&path, 8), Err(SettingsError::TooManyPaths(9)));
        let slow = PathSettings { rate: BitRate::from_bps(100), ..path.clone() };
        let error = with(&slow, 1).unwrap_err().to_string();
        assert!(error.starts_with("path \"LTE\": a rate of 100 bit/s is too low"), "{error}");
        let small = PathSettings { mtu_bytes: 576, ..path };
        let error = with(&small, 1).unwrap_err().to_string();
        assert!(error.starts_with("path \"LTE\": an MTU of 576 bytes is too small"), "{error}");
    }
}
