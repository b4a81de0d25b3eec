//! Names by which the ground reaches nobody although the address that a client dialled answers.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bentpipe_link::Target;
use tokio::time::Instant;

/// Time for which the address is tried before such a name.
const NAMELESS_FOR: Duration = Duration::from_secs(60);

/// Names that are remembered: at 400 bytes at most, 400 KiB. Beyond it the oldest is tried again. Whoever fills
/// it makes others wait for one more round trip, as they would without it.
const MAX_NAMELESS: usize = 1024;

/// The names, each with its port.
#[derive(Default)]
pub struct Nameless(Mutex<HashMap<Target, Instant>>);

impl Nameless {
    /// Returns whether the address is to be tried before `named`.
    pub fn has(&self, named: &Target) -> bool {
        self.with(|all| all.get(named).is_some_and(|until| *until > Instant::now()))
    }

    /// `named` led nowhere, and the address answered.
    pub fn add(&self, named: Target) {
        let now = Instant::now();
        self.with(|all| {
            all.retain(|_, until| *until > now);
            if all.len() >= MAX_NAMELESS && !all.contains_key(&named) {
                let oldest = all.iter().min_by_key(|(_, until)| **until);
                if let Some(oldest) = oldest.map(|(named, _)| named.clone()) {
                    all.remove(&oldest);
                }
            }
            all.insert(named, now + NAMELESS_FOR);
        });
    }

    /// The address leads nowhere either.
    pub fn remove(&self, named: &Target) {
        self.with(|all| all.remove(named));
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<Target, Instant>) -> T) -> T {
        // Nothing in there panics half-way.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_link::Host;

    fn named(number: usize) -> Target {
        Target { host: Host::Name(format!("n{number}.test")), port: 80 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_remembered_for_a_while_with_its_port() {
        let nameless = Nameless::default();
        nameless.add(named(1));
        assert!(nameless.has(&named(1)) && !nameless.has(&named(2)));
        assert!(!nameless.has(&Target { port: 8080, ..named(1) }));
        tokio::time::advance(NAMELESS_FOR).await;
        assert!(!nameless.has(&named(1)));
        nameless.add(named(2));
        nameless.remove(&named(2));
        assert!(!nameless.has(&named(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_names_are_remembered() {
        let nameless = Nameless::default();
        for number in 0..MAX_NAMELESS + 1 {
            nameless.add(named(number));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(!nameless.has(&named(0)) && nameless.has(&named(1)));
        assert_eq!(nameless.with(|all| all.len()), MAX_NAMELESS);
    }
}
