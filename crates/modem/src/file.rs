//! A rate in a file, for modems that only an operator's script can query.
//!
//! The first line of the file is a rate in the format of the configuration: `1.89 Mbit/s`. To
//! update it atomically, write another file and rename it over this one. A file that is missing,
//! empty or invalid reports no rate.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_units::BitRate;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::report::Publisher;

/// Interval of reads.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of bytes read.
const MAX_BYTES: u64 = 256;

/// Reads `path` until `stop`.
pub(super) async fn run(path: PathBuf, said: Publisher, stop: CancellationToken) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut complaint = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => return,
        }
        let from = path.clone();
        // Fails only if the read panicked.
        let Ok(found) = tokio::task::spawn_blocking(move || read(&from)).await else { return };
        match found {
            Ok(rate) => {
                complaint = None;
                if said.say(rate, None, None) {
                    tracing::info!(%rate, "the rate file says");
                }
            }
            Err(why) => {
                said.unsay();
                if complaint.as_ref() != Some(&why) {
                    let path = path.display();
                    tracing::warn!(%path, "no rate from the rate file: {why}");
                    complaint = Some(why);
                }
            }
        }
    }
}

fn read(path: &Path) -> Result<BitRate, String> {
    let read = || -> io::Result<Vec<u8>> {
        // Opening a FIFO must not wait for a writer.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    text.lines()
        .next()
        .unwrap_or_default()
        .trim()
        .parse()
        .map_err(|error: bentpipe_units::ParseQuantityError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RateSource;
    use crate::config::{ModemConfig, ModemSource};

    #[tokio::test]
    async fn the_file_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rate");
        let source = ModemSource::File(path.clone());
        let source = RateSource::start(&ModemConfig { source, per_packet_overhead: 4 });
        let mut rates = source.rates();
        let write = |text: &str| {
            let new = folder.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(&new, &path).unwrap();
        };
        for (text, bps) in [
            ("4 Mbit/s\n", Some(4_000_000)),
            ("4 MB/s\n", None),
            ("1 Mbit/s\nsince 12:00\n", Some(1_000_000)),
        ] {
            write(text);
            rates.changed().await.unwrap();
            assert_eq!(rates.borrow_and_update().map(|rates| rates.transmit.bps()), bps);
        }
        std::fs::remove_file(&path).unwrap();
        rates.changed().await.unwrap();
        assert_eq!(*rates.borrow_and_update(), None);
        source.close().await;
    }

    #[test]
    fn an_invalid_rate_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(&folder.path().join("none")).unwrap_err().contains("No such file"));
        let long = folder.path().join("long");
        std::fs::write(&long, "1".repeat(1 << 20)).unwrap();
        assert!(read(&long).is_err());
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(read(&fifo).is_err(), "and it comes back");
    }
}
