//! Ceiling of one passenger in the network's class, while flows come and go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bentpipe_link::{Class, ResetCode};
use bentpipe_units::BitRate;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::classify::Policer;
use crate::far::{DatagramError, FarDatagrams};

/// The bound of all passengers of one link in one direction, where there is one.
pub struct Ceil {
    policer: Mutex<Option<Policer>>,
    began: Instant,
}

/// A flow's part in its passenger's bound.
pub struct Police {
    ceil: Arc<Ceil>,
    passenger: u32,
}

impl Ceil {
    /// Each passenger may send `rate`; any where there is none.
    pub fn new(rate: Option<BitRate>) -> Arc<Self> {
        let policer = Mutex::new(rate.map(Policer::new));
        Arc::new(Self { policer, began: Instant::now() })
    }

    /// From now on it is this.
    pub fn set(&self, rate: Option<BitRate>) {
        *self.lock() = rate.map(Policer::new);
    }

    /// The bound on a flow of `class`; only the network's class has one.
    pub fn of(self: &Arc<Self>, class: Class, passenger: u32) -> Option<Police> {
        (class == Class::Network).then(|| Police { ceil: self.clone(), passenger })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Policer>> {
        // Nothing in here panics half-way.
        self.policer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Police {
    /// Returns `true` if so many bytes may pass in the network's class now.
    pub fn admit(&self, bytes: usize) -> bool {
        let now = self.ceil.began.elapsed();
        let mut policer = self.ceil.lock();
        policer.as_mut().is_none_or(|policer| policer.admit(self.passenger, bytes, now))
    }
}

/// `flow`, which sends no more than `police` admits.
pub fn policed(flow: Box<dyn FarDatagrams>, police: Option<Police>) -> Arc<dyn FarDatagrams> {
    match police {
        Some(police) => Arc::new(Policed { flow, police }),
        None => flow.into(),
    }
}

struct Policed {
    flow: Box<dyn FarDatagrams>,
    police: Police,
}

impl FarDatagrams for Policed {
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        if self.police.admit(datagram.len()) {
            self.flow.send(datagram)
        } else {
            Err(DatagramError::Policed)
        }
    }

    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        self.flow.receive()
    }

    fn most_bytes(&self) -> usize {
        self.flow.most_bytes()
    }

    fn hoped_bytes(&self) -> usize {
        self.flow.hoped_bytes()
    }

    fn keep_order(&self) {
        self.flow.keep_order();
    }

    fn reset(&self, code: ResetCode) {
        self.flow.reset(code);
    }

    fn connected(&self) {
        self.flow.connected();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_network_s_class_is_policed_and_the_bound_may_change() {
        let ceil = Ceil::new(Some(BitRate::from_bps(8_000)));
        assert!(ceil.of(Class::Operator, 1).is_none() && ceil.of(Class::BestEffort, 1).is_none());
        let police = ceil.of(Class::Network, 1).unwrap();
        let other = ceil.of(Class::Network, 1).unwrap();
        assert!(police.admit(7_500) && !other.admit(1), "they share a passenger's bound");
        tokio::time::advance(std::time::Duration::from_millis(10)).await;
        assert!(police.admit(10) && !police.admit(1));
        ceil.set(None);
        assert!(police.admit(1 << 30));
        ceil.set(Some(BitRate::from_bps(8_000)));
        assert!(police.admit(7_500) && !police.admit(1));
    }
}
