//! Current rate of the radio, reported by a modem or an operator's script.
//!
//! A source is a task that publishes its rates in a [`watch`] channel. Support for another kind of
//! modem needs one more such task here, and a name in the configuration.
//!
//! | module | contents |
//! |---|---|
//! | [`dlep`] | a modem that speaks DLEP |
//! | `file` | a file that an operator's script writes |
//! | [`segment`] | sockets limited to the local segment |
//! | `report` | rates, and their publication |

pub mod dlep;
mod file;
mod report;
pub mod segment;

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use report::Publisher;
pub use report::{MAX_RATE, MIN_RATE, ModemRates};

use bentpipe_config as config;

use crate::config::{ModemConfig, ModemSource};

/// A running source of rates. Dropping it stops the task and closes the modem's session.
pub struct RateSource {
    rates: watch::Receiver<Option<ModemRates>>,
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl RateSource {
    /// Starts the configured source as a task of the current runtime. A missing modem is not an
    /// error; the task keeps trying to reach it.
    pub fn start(config: &ModemConfig) -> Self {
        let per_packet_overhead = config.per_packet_overhead;
        match &config.source {
            ModemSource::Dlep(finding) => {
                let settings = dlep::Settings::new(finding.clone());
                Self::spawn(per_packet_overhead, |said, stop| dlep::run(settings, said, stop))
            }
            ModemSource::File(path) => {
                let path: PathBuf = path.clone();
                Self::spawn(per_packet_overhead, |said, stop| file::run(path, said, stop))
            }
        }
    }

    /// Starts a DLEP router with explicit settings.
    pub fn dlep(settings: dlep::Settings, per_packet_overhead: u16) -> Self {
        Self::spawn(per_packet_overhead, |said, stop| dlep::run(settings, said, stop))
    }

    fn spawn<F>(
        per_packet_overhead: u16,
        run: impl FnOnce(Publisher, CancellationToken) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (said, rates) = watch::channel(None);
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(Publisher { said, per_packet_overhead }, stop.clone()));
        Self { rates, stop: stop.drop_guard(), task }
    }

    /// Rates of the source, or `None` while there is no report. Only the latest value is kept.
    pub fn rates(&self) -> watch::Receiver<Option<ModemRates>> {
        self.rates.clone()
    }

    /// Stops the source in an orderly way; waits a few seconds at most for a modem.
    pub async fn close(self) {
        drop(self.stop);
        // Fails only if the task panicked, which has been reported.
        let _ = self.task.await;
    }
}

/// Interval at which a report is repeated even if it has not changed. The receiver lets a report
/// expire ([`bentpipe_link::MODEM_LEASE`]), or may not have existed at the first report.
const REPEAT: Duration = Duration::from_secs(10);

/// Passes the reports of `source` to `sink`: now, at each change, and every ten seconds. If the
/// source ends, passes `None`, because the last rate must not persist, and then waits forever.
pub async fn follow(source: &RateSource, mut sink: impl FnMut(Option<ModemRates>)) {
    let mut rates = source.rates();
    loop {
        let newest = *rates.borrow_and_update();
        sink(newest);
        if let Ok(Err(_)) = timeout(REPEAT, rates.changed()).await {
            sink(None);
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::BitRate;

    use super::*;

    #[tokio::test]
    async fn rates_are_kept_within_what_can_be_worked_with() {
        let (said, mut rates) = watch::channel(None);
        let publisher = Publisher { said, per_packet_overhead: 9 };
        let mut say = |bps| {
            let is_news = publisher.say(BitRate::from_bps(bps), None, None);
            let rates = rates.borrow_and_update().unwrap();
            (is_news, rates.transmit, rates.is_down)
        };
        assert_eq!(say(0), (true, MIN_RATE, true));
        assert_eq!(say(1), (true, MIN_RATE, false));
        assert_eq!(say(2), (false, MIN_RATE, false), "the same again is not news");
        assert!(publisher.say(
            BitRate::from_bps(u64::MAX),
            Some(BitRate::from_bps(u64::MAX)),
            None
        ));
        let most = rates.borrow_and_update().unwrap();
        assert_eq!(
            (most.transmit, most.receive, most.per_packet_overhead),
            (MAX_RATE, Some(MAX_RATE), 9)
        );
        assert!(publisher.unsay() && !publisher.unsay());
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_hears_of_every_change_and_of_the_end() {
        let source = RateSource::spawn(0, |said, stop| async move {
            for bps in [4_000_000, 1_000_000] {
                said.say(BitRate::from_bps(bps), None, None);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            stop.cancelled().await;
        });
        let (heard, mut hearing) = tokio::sync::mpsc::unbounded_channel();
        let stop = async {
            let mut all = Vec::new();
            for _ in 0..3 {
                all.push(hearing.recv().await.unwrap());
            }
            all
        };
        let told = |rates: Option<ModemRates>| {
            heard.send(rates.map(|rates| rates.transmit.bps())).unwrap();
        };
        let all = tokio::select! {
            all = stop => all,
            () = follow(&source, told) => unreachable!("following never ends by itself"),
        };
        assert_eq!(all, [None, Some(4_000_000), Some(1_000_000)]);
        let mut rates = source.rates();
        rates.mark_unchanged();
        source.close().await;
        assert!(rates.changed().await.is_err());
    }
}
