//! Places, and the round trips of paths between them.

use std::time::Duration;

use rand::Rng;

const EARTH_RADIUS_KM: f64 = 6371.0;
/// Round-trip time for each 1000 km of the great circle. NetForecast found 30 ms at 2000 km of fibre on
/// average.
const RTT_PER_1000_KM: Duration = Duration::from_millis(15);

/// Latitude and longitude, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place(pub f64, pub f64);

impl Place {
    /// A place where people live.
    pub fn random(rng: &mut impl Rng) -> Self {
        Self(rng.random_range(-40.0..65.0), rng.random_range(-180.0..180.0))
    }

    /// Length of the great circle in km, by the haversine formula.
    pub fn distance_km(self, to: Self) -> f64 {
        let half = |angle: f64| (angle.to_radians() / 2.0).sin().powi(2);
        let across = self.0.to_radians().cos() * to.0.to_radians().cos() * half(to.1 - self.1);
        let chord = half(to.0 - self.0) + across;
        2.0 * EARTH_RADIUS_KM * chord.sqrt().min(1.0).asin()
    }
}

/// Round-trip time of a path of this length.
pub fn rtt(km: f64) -> Duration {
    RTT_PER_1000_KM.mul_f64(km / 1000.0)
}
