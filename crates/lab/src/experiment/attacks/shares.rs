//! Shares of the link by device: a device with 1,000 addresses and hundreds of downloads, compared
//! with devices with one download each.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::{sleep, timeout};

use super::cabin::{Spoofer, connect_to};
use super::scene::{CHARGEN_PORT, Scene};
use super::tally::{self, Tally};
use crate::emu::{EmuError, Service, passenger};

/// Number of passengers with one download each, in addition to the attacker.
const HONEST: u32 = 4;
/// Datagrams with forged sources per second, in addition to the attacker's downloads.
const SPOOFED_PER_SECOND: u64 = 1_500;
/// New connections of the attacker per second: slightly more than one passenger may open.
const OPENED_PER_SECOND: u64 = 60;
/// Time for all downloads to start.
const BEGIN: Duration = Duration::from_secs(8);
/// Measured time.
const SPAN: Duration = Duration::from_secs(30);
/// Pause before a refused download is retried.
const AGAIN: Duration = Duration::from_secs(1);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const CHUNK_BYTES: usize = 64 << 10;

/// Runs `total` endless downloads concurrently, from all addresses of the attacker in turn, and
/// sends datagrams with forged sources at the same time.
pub fn download(
    scene: &Scene,
    total: u64,
    seed: u64,
    tally: Arc<Tally>,
) -> Result<Service, EmuError> {
    let addresses = scene.attacker.addresses.clone();
    let spoofer = Spoofer::new(scene, seed)?;
    tally::start(&scene.attacker.host, move || async move {
        tokio::spawn(spoofer.send(SPOOFED_PER_SECOND, Arc::default()));
        for number in 0..total {
            // Half of the downloads use IPv4 addresses, and half IPv6.
            let (at, half) = (number as usize / 2, addresses.len() / 4);
            let place =
                if number % 2 == 0 { at % half } else { half + at % (addresses.len() - half) };
            tally.tried.fetch_add(1, Relaxed);
            tokio::spawn(keep_downloading(addresses[place], tally.clone()));
            sleep(Duration::from_secs(1) / OPENED_PER_SECOND as u32).await;
        }
        tally.stands.store(true, Relaxed);
        std::future::pending().await
    })
}

async fn keep_downloading(from: IpAddr, tally: Arc<Tally>) {
    loop {
        tally.made.fetch_add(1, Relaxed);
        drain(from, &tally.bytes).await;
        tally.refused.fetch_add(1, Relaxed);
        sleep(AGAIN).await;
    }
}

/// Reads a download until it ends.
async fn drain(from: IpAddr, bytes: &AtomicU64) {
    let Ok(Ok(mut tcp)) = timeout(CONNECT_LIMIT, connect_to(from, CHARGEN_PORT)).await else {
        return;
    };
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = tcp.read(&mut buffer).await {
        bytes.fetch_add(read as u64, Relaxed);
    }
}

/// Bytes that each passenger received while all of them downloaded, with the attacker's device
/// first.
pub async fn measure(attacker: &AtomicU64) -> Vec<u64> {
    let honest: Vec<Arc<AtomicU64>> = (0..HONEST).map(|_| Arc::default()).collect();
    let downloads = honest.iter().zip(1..).map(|(bytes, number)| {
        let (bytes, from) = (bytes.clone(), IpAddr::from(passenger(number)));
        tokio::spawn(async move { drain(from, &bytes).await })
    });
    let downloads: Vec<_> = downloads.collect();
    let count = || -> Vec<u64> {
        let others = honest.iter().map(|bytes| bytes.load(Relaxed));
        std::iter::once(attacker.load(Relaxed)).chain(others).collect()
    };
    sleep(BEGIN).await;
    let before = count();
    sleep(SPAN).await;
    let after = count();
    downloads.iter().for_each(tokio::task::JoinHandle::abort);
    after.iter().zip(before).map(|(after, before)| after - before).collect()
}

/// Largest deviation of a share from the mean, as a fraction of the mean. `None` if no bytes were
/// received.
pub fn unfairness(shares: &[u64]) -> Option<f64> {
    let mean = shares.iter().sum::<u64>() as f64 / shares.len() as f64;
    let off = shares.iter().map(|share| (*share as f64 / mean - 1.0).abs());
    off.reduce(f64::max).filter(|off| off.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_deviation_counts() {
        let off = unfairness(&[100, 100, 100, 120, 80]).unwrap();
        assert!((off - 0.2).abs() < 1e-9, "{off}");
        assert_eq!(unfairness(&[7; 5]), Some(0.0));
        assert_eq!(unfairness(&[0; 5]), None);
        assert_eq!(unfairness(&[]), None);
    }
}
