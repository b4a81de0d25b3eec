//! The aircraft a ground gateway serves, and how much each may hold.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_link::{Class, ResetCode};
use tokio::time::Instant;

use crate::config::AircraftConfig;

/// All aircraft by their keys.
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
    opening: Mutex<Bucket>,
}

/// Seconds of its average rate that an aircraft may open at a stretch.
const BURST_SECONDS: f64 = 2.0;

/// A token bucket: one token per new flow.
struct Bucket {
    tokens: f64,
    per_second: f64,
    filled_at: Option<Instant>,
}

/// The right to one flow, given back when dropped.
pub struct Permit {
    aircraft: Arc<Aircraft>,
    open: Arc<AtomicUsize>,
}

impl Fleet {
    /// The aircraft of a config, together at most `max_flows`.
    pub fn new(aircraft: &[AircraftConfig], max_flows: usize) -> Self {
        let entry = |config: &AircraftConfig| {
            let per_second = f64::from(config.flows_per_second);
            let aircraft = Aircraft {
                name: config.name.clone(),
                open: AtomicUsize::new(0),
                max_flows: config.max_flows,
                highest_class: config.highest_class,
                opening: Mutex::new(Bucket {
                    tokens: per_second * BURST_SECONDS,
                    per_second,
                    filled_at: None,
                }),
            };
            (*config.key().as_bytes(), Arc::new(aircraft))
        };
        let aircraft = aircraft.iter().map(entry).collect();
        Self { aircraft, open: Arc::default(), max_flows }
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
        if full || !aircraft.take_token() {
            return Err(ResetCode::Limit);
        }
        aircraft.open.fetch_add(1, Relaxed);
        self.open.fetch_add(1, Relaxed);
        Ok(Permit { aircraft: aircraft.clone(), open: self.open.clone() })
    }
}

impl Aircraft {
    fn take_token(&self) -> bool {
        // A panic cannot leave the bucket half-changed.
        let mut bucket = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let since = bucket.filled_at.map_or(0.0, |at| (now - at).as_secs_f64());
        bucket.filled_at = Some(now);
        let most = bucket.per_second * BURST_SECONDS;
        bucket.tokens = (bucket.tokens + since * bucket.per_second).min(most);
        let enough = bucket.tokens >= 1.0;
        if enough {
            bucket.tokens -= 1.0;
        }
        enough
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
        Fleet::new(&aircraft, 4)
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
