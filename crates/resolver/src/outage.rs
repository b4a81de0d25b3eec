//! Decides when the link counts as down.

use std::time::Duration;

use tokio::time::Instant;

use bentpipe_transport::Reach;

/// Outage up to which queries wait; most fades, and the initial handshake, are shorter.
const GRACE: Duration = Duration::from_secs(2);

/// Start of the current outage.
#[derive(Debug, Default)]
pub struct Outage {
    since: Option<Instant>,
}

impl Outage {
    /// Returns `true` if the outage is too long for queries to wait for its end.
    pub fn lasts(&mut self, reach: Reach, now: Instant) -> bool {
        match reach {
            Reach::Up => self.since = None,
            Reach::Out | Reach::Down => {
                self.since.get_or_insert(now);
            }
        }
        self.since.is_some_and(|since| now.saturating_duration_since(since) >= GRACE)
    }

    /// End of the time for which queries wait, in an outage.
    pub fn tolerated_until(&self) -> Option<Instant> {
        self.since.map(|since| since + GRACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fades_are_waited_out() {
        let mut outage = Outage::default();
        let began = Instant::now();
        let mut lasts = |reach, ms| outage.lasts(reach, began + Duration::from_millis(ms));
        assert!(!lasts(Reach::Down, 0) && !lasts(Reach::Out, 1999) && !lasts(Reach::Up, 2000));
        assert!(!lasts(Reach::Out, 2500) && !lasts(Reach::Out, 4499) && lasts(Reach::Down, 4500));
        assert!(!lasts(Reach::Up, 9000));
    }
}
