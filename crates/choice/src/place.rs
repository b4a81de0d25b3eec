//! Distances on the globe.

use std::time::Duration;

const EARTH_RADIUS_KM: f64 = 6371.0;
/// Round-trip time for each 1000 km of the great circle. Light in glass needs 10 ms, and cables are
/// longer than the great circle.
const RTT_PER_1000_KM: Duration = Duration::from_millis(15);

/// A place, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east.
    pub longitude: f64,
}

impl Place {
    /// Length of the great circle between the two, in kilometres (haversine formula).
    pub fn distance_km(&self, other: &Self) -> f64 {
        let [from, to] = [self, other].map(|it| it.latitude.to_radians());
        let half = |a: f64| (a / 2.0).sin().powi(2);
        let east = (other.longitude - self.longitude).to_radians();
        let chord = half(to - from) + from.cos() * to.cos() * half(east);
        2.0 * EARTH_RADIUS_KM * chord.sqrt().min(1.0).asin()
    }

    /// Round-trip time between the two on a usual path.
    pub fn rtt(&self, other: &Self) -> Duration {
        RTT_PER_1000_KM.mul_f64(self.distance_km(other) / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_an_atlas() {
        let place = |latitude, longitude| Place { latitude, longitude };
        let (paris, washington) = (place(48.857, 2.352), place(38.907, -77.037));
        assert!((paris.distance_km(&washington) - 6160.0).abs() < 20.0);
        assert_eq!(paris.distance_km(&paris), 0.0);
        let date_line = place(0.0, 179.0).distance_km(&place(0.0, -179.0));
        assert!((date_line - 222.0).abs() < 1.0);
    }
}
