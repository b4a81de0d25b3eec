//! The aircraft a ground gateway serves, and how much each may hold. A standard client counts as
//! one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bentpipe_link::{Class, ResetCode};

use crate::bucket::Bucket;
use crate::config::{AircraftConfig, StandardClient};

/// All aircraft by their keys, and standard clients by their identities.
pub struct Fleet {
    aircraft: HashMap<[u8; 32], Arc<Aircraft>>,
    open: Arc<AtomicUsize>,
    max_flows: usize,
}

struct Aircraft {
    name: String,
    open: AtomicUsize,
    max_flows: usize,
    highest_class: Class,
    opening: Bucket,
}

/// Seconds of its average rate that an aircraft may open at a stretch.
const BURST_SECONDS: f64 = 2.0;

/// The right to one flow, given back when dropped.
pub struct Permit {
    aircraft: Arc<Aircraft>,
    open: Arc<AtomicUsize>,
}

impl Fleet {
    /// The aircraft and standard clients of a config, together with at most `max_flows`.
    pub fn new(aircraft: &[AircraftConfig], clients: &[StandardClient], max_flows: usize) -> Self {
        let aircraft = aircraft.iter().map(|one| {
            let bounds = (one.max_flows, one.flows_per_second, one.highest_class);
            (*one.key().as_bytes(), Aircraft::new(&one.name, bounds))
        });
        let clients = clients.iter().map(|one| {
            let bounds = (one.max_flows, one.flows_per_second, one.highest_class);
            (one.login().identity(), Aircraft::new(one.name(), bounds))
        });
        Self { aircraft: aircraft.chain(clients).collect(), open: Arc::default(), max_flows }
    }

    /// Flows open now, over all aircraft.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Takes a new flow of the aircraft `key`, or says why not.
    pub fn admit(&self, key: &[u8; 32]) -> Result<Permit, ResetCode> {
        let aircraft = self.aircraft.get(key).ok_or(ResetCode::Forbidden)?;
        let full =
            aircraft.open.load(Relaxed) >= aircraft.max_flows || self.open() >= self.max_flows;
        if full || !aircraft.opening.take() {
            return Err(ResetCode::Limit);
        }
        aircraft.open.fetch_add(1, Relaxed);
        self.open.fetch_add(1, Relaxed);
        Ok(Permit { aircraft: aircraft.clone(), open: self.open.clone() })
    }
}

impl Aircraft {
    /// `bounds` are the flows at once, new ones per second, and the most favoured class.
    fn new(
        name: &str,
        (max_flows, flows_per_second, highest_class): (usize, u32, Class),
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            open: AtomicUsize::new(0),
            max_flows,
            highest_class,
            opening: Bucket::new(f64::from(flows_per_second), BURST_SECONDS),
        })
    }
}

impl Permit {
    /// Whose flow this is.
    pub fn aircraft(&self) -> &str {
        &self.aircraft.name
    }

    /// The class that this flow has: what it `asked` for, or the most favoured that its aircraft
    /// may have.
    pub fn class(&self, asked: Class) -> Class {
        asked.max(self.aircraft.highest_class) // the most favoured is the least
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.aircraft.open.fetch_sub(1, Relaxed);
        self.open.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn fleet() -> Fleet {
        let one = |name: &str, key: &str| {
            format!(
                "name = {name:?}\npublic-key = {key:?}\nrate = \"1 Mbit/s\"\n\
                 max-flows = 3\nflows-per-second = 2\nhighest-class = \"assured\"\n"
            )
        };
        let one = |name, key| toml::from_str(&one(name, key)).unwrap();
        let aircraft = [
            one("D-A", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
            one("D-B", "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="),
        ];
        Fleet::new(&aircraft, &[], 4)
    }

    fn refused(admitted: Result<Permit, ResetCode>) -> Option<ResetCode> {
        admitted.err()
    }

    #[tokio::test(start_paused = true)]
    async fn each_aircraft_has_its_own_bounds() {
        let fleet = fleet();
        let (a, b) = ([0; 32], [1; 32]);
        assert_eq!(refused(fleet.admit(&[7; 32])), Some(ResetCode::Forbidden));
        let held: Vec<Permit> =
            (0..3).map(|_| fleet.admit(&a).unwrap_or_else(|_| panic!())).collect();
        assert_eq!(refused(fleet.admit(&a)), Some(ResetCode::Limit), "three flows are open");
        assert_eq!(held[0].aircraft(), "D-A");
        let classes = Class::ALL.map(|asked| held[0].class(asked));
        let mut wanted = Class::ALL;
        wanted[..2].fill(Class::Assured);
        assert_eq!(classes, wanted);
        let other = fleet.admit(&b);
        assert!(other.is_ok());
        assert_eq!(refused(fleet.admit(&b)), Some(ResetCode::Limit), "four in all");
        drop((held, other));
        assert_eq!(fleet.open(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn opening_is_paced() {
        let fleet = fleet();
        for _ in 0..4 {
            assert!(fleet.admit(&[0; 32]).is_ok());
        }
        assert_eq!(refused(fleet.admit(&[0; 32])), Some(ResetCode::Limit));
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(fleet.admit(&[0; 32]).is_ok());
        assert_eq!(refused(fleet.admit(&[0; 32])), Some(ResetCode::Limit));
    }
}
