//! Last address of each aircraft, stored over restarts of the ground.
//!
//! Handshakes from these addresses have priority over those of strangers. Without the file, the
//! fleet competes with every caller, which costs only time.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_link::PublicKey;
use bentpipe_link::io::{Hub, HubWatch};

use bentpipe_net::atomic_file::{self, OWNER_ONLY};

/// Interval of writes. An abrupt end loses at most the moves of this time.
const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum size of the file. A line has at most 85 bytes: 10,000 aircraft.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Passes the addresses in `file` to `hub`. A task of the current runtime updates the file while
/// `hub` is in use.
pub fn keep(hub: &Hub, file: &Path) {
    let text = load(file).unwrap_or_default();
    let homes: Vec<_> = text.lines().filter_map(parse).collect();
    tracing::debug!(homes = homes.len(), "the last addresses of aircraft");
    homes.iter().for_each(|(aircraft, home)| hub.remember_home(aircraft, *home));
    tokio::spawn(save_often(hub.watch(), file.to_owned(), text));
}

async fn save_often(hub: HubWatch, file: PathBuf, mut saved: String) {
    let mut failed = false;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(hub) = hub.hub() else { return };
        let text = written(&hub.homes());
        drop(hub);
        if text == saved {
            continue;
        }
        match atomic_file::replace_durably(&file, text.as_bytes(), OWNER_ONLY) {
            Ok(()) => (saved, failed) = (text, false),
            Err(error) => {
                if !std::mem::replace(&mut failed, true) {
                    let file = file.display();
                    tracing::warn!(
                        %file, %error,
                        "the addresses of aircraft cannot be kept over a restart: name a file that \
                         this user may write with state-file under [link]"
                    );
                }
            }
        }
    }
}

fn load(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// A line for each aircraft: its key and its address.
fn written(homes: &[(PublicKey, IpAddr)]) -> String {
    homes.iter().map(|(aircraft, home)| format!("{aircraft} {home}\n")).collect()
}

fn parse(line: &str) -> Option<(PublicKey, IpAddr)> {
    let (aircraft, home) = line.split_once(' ')?;
    Some((aircraft.parse().ok()?, home.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_link::{Aircraft, Class, HubConfig, SecretKey, Settings, io::UdpSocket};

    fn secret(first: u8) -> SecretKey {
        SecretKey::from_bytes(std::array::from_fn(|at| first + at as u8))
    }

    fn hub() -> Hub {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::from_std(socket).unwrap();
        let aircraft = [1, 2].map(|first| {
            let (key, settings) = (secret(first).public(), Settings::default());
            Aircraft { key, settings, highest_class: Class::BestEffort }
        });
        let config = HubConfig { secret: secret(9), aircraft: aircraft.to_vec() };
        Hub::start(Box::new(socket), config)
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_of_aircraft_outlive_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ground.state");
        let homes = [(1, "192.0.2.7"), (2, "2001:db8:1:2::"), (3, "192.0.2.9")]
            .map(|(first, home)| (secret(first).public(), home.parse().unwrap()));
        std::fs::write(&file, written(&homes) + "my notes\nx 192.0.2.1\n").unwrap();
        let hub = hub();
        keep(&hub, &file);
        let mut known = hub.homes();
        known.sort();
        let mut expected = homes[..2].to_vec();
        expected.sort();
        assert_eq!(known, expected, "the third is not served any more");
        // The next write contains only what is known now.
        tokio::time::sleep(INTERVAL * 3 / 2).await;
        assert_eq!(load(&file).unwrap(), written(&hub.homes()));
        drop(hub);
    }
}
