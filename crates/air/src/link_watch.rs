//! Logs that the ground gateway does not answer, with possible causes.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use bentpipe_config::AirLink;
use bentpipe_transport::{Connector, Reach, reach_changed};

/// Silence before the first log line: over a satellite, a handshake and its first repetition.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum interval of log lines; before that, the interval doubles each time.
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// Monitors the ground gateway's silence. Never returns.
pub async fn watch(link: &AirLink, connector: &dyn Connector) {
    let (began, mut silence) = (Instant::now(), Silence::since(Duration::ZERO));
    let mut reaches = connector.watch_reach();
    loop {
        let reach = *reaches.borrow_and_update();
        if let Some(silent) = silence.look(reach, began.elapsed()) {
            tracing::warn!("{}", complaint(link, reach, silent));
        }
        if reach == Reach::Up {
            reach_changed(&mut reaches).await;
            silence = Silence::since(began.elapsed());
        } else {
            // Either the time has come for the next line, or there is a change.
            let _ = timeout_at(began + silence.due_at(), reach_changed(&mut reaches)).await;
        }
    }
}

/// Start of the silence, and its duration at the next log line: 5, 10, 20 … 640 s, then every 600
/// s.
#[derive(Debug)]
struct Silence {
    since: Duration,
    due: Duration,
}

impl Silence {
    const fn since(since: Duration) -> Self {
        Self { since, due: PATIENCE }
    }

    /// Time of the next log line, if the silence lasts.
    fn due_at(&self) -> Duration {
        self.since + self.due
    }

    /// Returns the duration of the silence if it must be logged now. `now` is the time since the
    /// watch began.
    fn look(&mut self, reach: Reach, now: Duration) -> Option<Duration> {
        if reach == Reach::Up {
            *self = Self::since(now);
            return None;
        }
        let silent = now.saturating_sub(self.since);
        if silent < self.due {
            return None;
        }
        self.due += self.due.min(MAX_PAUSE);
        Some(silent)
    }
}

fn complaint(link: &AirLink, reach: Reach, silent: Duration) -> String {
    let (peer, seconds) = (&link.peer, silent.as_secs());
    if reach == Reach::Out {
        return format!(
            "nothing heard from the ground at {peer} for {seconds} s: the radio is out, the ground is \
             down, or another gateway runs with this one's key (the ground's log says so); flows wait"
        );
    }
    let listens = link.transport.listen_key();
    format!(
        "no answer from the ground at {peer} for {seconds} s: is that the address of its {listens}, \
         is UDP open on the way, does it know this aircraft's key ({}), does no other gateway run \
         with that key, and is peer-public-key its own?",
        link.private_key.public()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds at which a line is logged, with a check every second from `from` to `to`.
    fn said(silence: &mut Silence, reach: Reach, seconds: std::ops::Range<u64>) -> Vec<u64> {
        let look = |at: &u64| silence.look(reach, Duration::from_secs(*at)).is_some();
        seconds.filter(look).collect()
    }

    #[test]
    fn silence_is_told_after_five_seconds_and_then_ever_less_often() {
        let mut silence = Silence::since(Duration::ZERO);
        assert_eq!(
            said(&mut silence, Reach::Down, 0..2000),
            [5, 10, 20, 40, 80, 160, 320, 640, 1240, 1840]
        );
        assert_eq!(said(&mut silence, Reach::Up, 2000..2100), [0; 0]);
        // Counted from the last contact.
        assert_eq!(said(&mut silence, Reach::Out, 2100..2120), [2104, 2109, 2119]);
    }
}
