//! Present rate of the radio, from a modem or an operator's script.
//!
//! A source is a task that says what it knows in a [`watch`] channel. Another kind of modem needs
//! one more such task here, and a name in the config.

pub mod dlep;
mod file;
pub mod segment;

use std::path::PathBuf;
use std::time::Duration;

use bentpipe_units::BitRate;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::{ModemConfig, ModemSource};

/// The least rate a source passes on. A modem may say zero while its link is down; at nothing at
/// all, not even the probes that notice the link's return could leave: this is one of 100 bytes
/// every 0.1 s.
pub const MIN_RATE: BitRate = BitRate::from_bps(8_000);

/// The highest rate a source passes on. No radio is faster; sums with it do not overflow.
pub const MAX_RATE: BitRate = BitRate::from_bps(100_000_000_000);

/// Report of a modem about its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModemRates {
    /// From here into the air, from [`MIN_RATE`] to [`MAX_RATE`], in bits of whatever the modem
    /// counts: IP packets and `framing_bytes` each.
    pub transmit: BitRate,
    /// From the air to here, where the modem says.
    pub receive: Option<BitRate>,
    /// One way through the modem and its link, where the modem says.
    pub latency: Option<Duration>,
    /// Bytes that the modem counts for each packet beyond its IP bytes; from the configuration.
    pub framing_bytes: u16,
}

/// A running source of rates. Ends, and says goodbye to the modem, when it is dropped.
pub struct RateSource {
    rates: watch::Receiver<Option<ModemRates>>,
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl RateSource {
    /// Starts the source that `config` names, as a task of the current runtime. A modem that is
    /// not there is no error: it is looked for until it is.
    pub fn start(config: &ModemConfig) -> Self {
        let framing_bytes = config.framing_bytes;
        match &config.source {
            ModemSource::Dlep(finding) => {
                let settings = dlep::Settings::new(finding.clone());
                Self::spawn(framing_bytes, |said, stop| dlep::run(settings, said, stop))
            }
            ModemSource::File(path) => {
                let path: PathBuf = path.clone();
                Self::spawn(framing_bytes, |said, stop| file::run(path, said, stop))
            }
        }
    }

    /// Starts a router's end of DLEP with all its settings.
    pub fn dlep(settings: dlep::Settings, framing_bytes: u16) -> Self {
        Self::spawn(framing_bytes, |said, stop| dlep::run(settings, said, stop))
    }

    fn spawn<F>(framing_bytes: u16, run: impl FnOnce(Publisher, CancellationToken) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (said, rates) = watch::channel(None);
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(Publisher { said, framing_bytes }, stop.clone()));
        Self { rates, stop: stop.drop_guard(), task }
    }

    /// Rates of the source: `None` while it reports nothing. Only the newest counts.
    pub fn rates(&self) -> watch::Receiver<Option<ModemRates>> {
        self.rates.clone()
    }

    /// Ends the source in order; takes a modem's patience at most, some seconds.
    pub async fn close(self) {
        drop(self.stop);
        // Fails only where the task panicked, which was reported then.
        let _ = self.task.await;
    }
}

/// Interval at which a report is passed on again, changed or not: its user lets it lapse
/// ([`bentpipe_link::MODEM_LEASE`]), or may not have been there the first time.
const REPEAT: Duration = Duration::from_secs(10);

/// Gives `sink` what `source` says, now, whenever it changes and every ten seconds, for ever. When
/// the source itself is gone, `sink` is told `None` and this waits: the last rate must not stand.
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

/// Publisher of a source's knowledge.
pub(crate) struct Publisher {
    said: watch::Sender<Option<ModemRates>>,
    framing_bytes: u16,
}

impl Publisher {
    /// Says `rates`; true if they are news.
    fn say(&self, transmit: BitRate, receive: Option<BitRate>, latency: Option<Duration>) -> bool {
        let (transmit, framing_bytes) = (transmit.clamp(MIN_RATE, MAX_RATE), self.framing_bytes);
        let receive = receive.map(|rate| rate.min(MAX_RATE));
        self.replace(Some(ModemRates { transmit, receive, latency, framing_bytes }))
    }

    /// Returns `true` if nothing is reported at present.
    fn is_silent(&self) -> bool {
        self.said.borrow().is_none()
    }

    /// Takes back what was said; true if anything was.
    fn unsay(&self) -> bool {
        self.replace(None)
    }

    fn replace(&self, rates: Option<ModemRates>) -> bool {
        self.said.send_if_modified(|said| {
            let news = *said != rates;
            *said = rates;
            news
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rates_are_kept_within_what_can_be_worked_with() {
        let (said, mut rates) = watch::channel(None);
        let publisher = Publisher { said, framing_bytes: 9 };
        assert!(publisher.say(BitRate::from_bps(0), None, None));
        assert!(!publisher.say(BitRate::from_bps(1), None, None), "the same again is no news");
        assert_eq!(rates.borrow_and_update().unwrap().transmit, MIN_RATE);
        assert!(publisher.say(
            BitRate::from_bps(u64::MAX),
            Some(BitRate::from_bps(u64::MAX)),
            None
        ));
        let most = rates.borrow_and_update().unwrap();
        assert_eq!(
            (most.transmit, most.receive, most.framing_bytes),
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
