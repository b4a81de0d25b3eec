//! The memory of a hub, which all its sessions borrow from.
//!
//! Each session has bounds of its own, which suit an aircraft that is alone. Of all together the hub
//! has less. What a session holds is counted here. Before all is lent nobody is lent more: writers and
//! peers wait, and each flow still has its reserve. If that is not enough, sessions give back what they
//! keep for repairs alone; then those that are silent end, the longest silent one first.

use std::time::Duration;

use crate::flow::Pressure;

/// Beyond this part of the memory nobody is lent more: seven eighths.
const PRESSURE: (u64, u64) = (7, 8);

/// The interval at which silent sessions are looked for while there is too little memory.
const INTERVAL: Duration = Duration::from_secs(1);

/// The account of it.
#[derive(Debug)]
pub struct Budget {
    most: u64,
    used: u64,
    pressure: Pressure,
    next_look: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self { most: u64::MAX, used: 0, pressure: Pressure::default(), next_look: Duration::ZERO }
    }
}

impl Budget {
    /// All sessions together may hold `most` bytes from now on.
    pub fn set_most(&mut self, most: u64) {
        self.most = most;
        self.settle(0, 0);
    }

    /// A session that held `before` bytes holds `now`.
    pub fn settle(&mut self, before: u64, now: u64) {
        self.used = self.used - before + now;
        self.pressure.set(self.used > self.most / PRESSURE.1 * PRESSURE.0);
    }

    /// The flag that sessions heed.
    pub fn pressure(&self) -> Pressure {
        self.pressure.clone()
    }

    /// Returns whether more is held than there is.
    pub fn is_exceeded(&self) -> bool {
        self.used > self.most
    }

    /// The next time to look for silent sessions, if there is need.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.is_exceeded().then_some(self.next_look)
    }

    /// Returns whether it is time to look for silent sessions.
    pub fn looks(&mut self, now: Duration) -> bool {
        let looks = self.next_timeout().is_some_and(|at| at <= now);
        if looks {
            self.next_look = now + INTERVAL;
        }
        looks
    }
}
