//! Ceiling of each passenger in the network class, for its current flows.

use std::sync::Arc;

use bentpipe_classify::Policer;
use bentpipe_link::Class;
use bentpipe_units::BitRate;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::layer::{DatagramLayer, LayeredDatagrams};
use crate::transport::{DatagramError, FlowDatagrams};

/// Ceiling of all passengers of one link in one direction, if configured.
pub struct PassengerCeiling {
    policer: Mutex<Option<Policer>>,
    began: Instant,
}

/// Policer of one flow, which shares its passenger's ceiling.
pub struct PolicerHandle {
    ceiling: Arc<PassengerCeiling>,
    passenger: u32,
}

impl PassengerCeiling {
    /// Creates a ceiling of `rate` for each passenger; `None` for no ceiling.
    pub fn new(rate: Option<BitRate>) -> Arc<Self> {
        let policer = Mutex::new(rate.map(Policer::new));
        Arc::new(Self { policer, began: Instant::now() })
    }

    /// Changes the ceiling.
    pub fn set(&self, rate: Option<BitRate>) {
        *self.lock() = rate.map(Policer::new);
    }

    /// Returns the policer of a flow of `class`; only the network class has one.
    pub fn of(self: &Arc<Self>, class: Class, passenger: u32) -> Option<PolicerHandle> {
        (class == Class::Network).then(|| PolicerHandle { ceiling: self.clone(), passenger })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Policer>> {
        self.policer.lock()
    }
}

impl PolicerHandle {
    /// Returns `true` if this number of bytes may now pass in the network class.
    pub fn admit(&self, bytes: usize) -> bool {
        let now = self.ceiling.began.elapsed();
        let mut policer = self.ceiling.lock();
        policer.as_mut().is_none_or(|policer| policer.admit(self.passenger, bytes, now))
    }
}

/// Wraps `flow` so that it sends only what `police` admits.
pub fn policed(
    flow: Box<dyn FlowDatagrams>,
    police: Option<PolicerHandle>,
) -> Arc<dyn FlowDatagrams> {
    match police {
        Some(police) => Arc::new(LayeredDatagrams::new(flow, police)),
        None => flow.into(),
    }
}

impl DatagramLayer for PolicerHandle {
    fn send(&self, flow: &dyn FlowDatagrams, datagram: &[u8]) -> Result<(), DatagramError> {
        if self.admit(datagram.len()) { flow.send(datagram) } else { Err(DatagramError::Policed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_network_s_class_is_policed_and_the_bound_may_change() {
        let ceiling = PassengerCeiling::new(Some(BitRate::from_bps(8_000)));
        assert!(
            ceiling.of(Class::Operator, 1).is_none() && ceiling.of(Class::BestEffort, 1).is_none()
        );
        let police = ceiling.of(Class::Network, 1).unwrap();
        let other = ceiling.of(Class::Network, 1).unwrap();
        assert!(police.admit(7_500) && !other.admit(1), "they share a passenger's bound");
        tokio::time::advance(std::time::Duration::from_millis(10)).await;
        assert!(police.admit(10) && !police.admit(1));
        ceiling.set(None);
        assert!(police.admit(1 << 30));
        ceiling.set(Some(BitRate::from_bps(8_000)));
        assert!(police.admit(7_500) && !police.admit(1));
    }
}
