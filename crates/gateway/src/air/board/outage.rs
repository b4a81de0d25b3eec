//! Condition under which the link counts as gone.

use std::time::Duration;

use tokio::time::Instant;

use crate::far::Reach;

/// Whoever asks meanwhile waits: most fades are shorter, and the handshake at the start is.
const GRACE: Duration = Duration::from_secs(2);

/// Since when the ground is not heard.
#[derive(Debug, Default)]
pub struct Outage {
    since: Option<Instant>,
}

impl Outage {
    /// Returns `true` if it lasts too long for anybody to wait for its end.
    pub fn lasts(&mut self, reach: Reach, now: Instant) -> bool {
        match reach {
            Reach::Up => self.since = None,
            Reach::Out | Reach::Down => {
                self.since.get_or_insert(now);
            }
        }
        self.since.is_some_and(|since| now.saturating_duration_since(since) >= GRACE)
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
