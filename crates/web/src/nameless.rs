//! Names that the ground gateway cannot reach although the address that a client dialled answers.

use std::collections::HashMap;
use std::time::Duration;

use bentpipe_flow::Target;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time for which the address is tried before such a name.
const NAMELESS_FOR: Duration = Duration::from_secs(60);

/// Maximum number of names: 1,024 × at most 400 bytes = 400 KiB. Beyond that, the oldest is
/// forgotten. An attacker who fills the table costs others one more round trip.
const MAX_NAMELESS: usize = 1024;

/// The names, each with its port.
#[derive(Default)]
pub struct Nameless(Mutex<HashMap<Target, Instant>>);

impl Nameless {
    /// Returns whether the address must be tried before `named`.
    pub fn has(&self, named: &Target) -> bool {
        self.with(|all| all.get(named).is_some_and(|until| *until > Instant::now()))
    }

    /// Records that `named` was unreachable, but the address answered.
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

    /// Records that the address is unreachable too.
    pub fn remove(&self, named: &Target) {
        self.with(|all| all.remove(named));
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<Target, Instant>) -> T) -> T {
        work(&mut self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_flow::Host;

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
