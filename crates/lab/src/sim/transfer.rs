//! One long transfer over the radio transport in virtual time: its goodput and overhead.

use std::time::{Duration, Instant};

use bentpipe_channel::Counters;
use bentpipe_link::{Read, Settings};

use super::pair::Pair;
use super::trace::Digest;
use crate::profile::Profile;

/// Maximum time until the session is up.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
/// Bytes per read or write.
const CHUNK_BYTES: usize = 16 << 10;

/// Result of a transfer.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// Bytes that reached their reader, in order, from the first byte to the end.
    pub bytes: u64,
    /// Virtual time from the first byte to the end.
    pub took: Duration,
    /// Payload per virtual time, bit/s.
    pub goodput_bps: f64,
    /// (1−p) × rate in bit/s, with the loss p of this run. `None` if the rate is unlimited.
    pub capacity_bps: Option<f64>,
    /// IP bytes sent towards the aircraft per byte delivered.
    pub wire_per_byte: f64,
    /// IP bytes sent back per IP byte sent towards the aircraft.
    pub back_per_forward: f64,
    /// Digest of all datagrams of the run.
    pub digest: Digest,
    /// Real time of the run.
    pub real: Duration,
}

/// No session came up.
#[derive(Debug, thiserror::Error)]
#[error("no session over {profile} within {limit:?} of virtual time")]
pub struct NoSession {
    profile: String,
    limit: Duration,
}

impl NoSession {
    pub(crate) fn over(profile: &Profile, limit: Duration) -> Self {
        Self { profile: profile.name.clone(), limit }
    }
}

/// Downloads for `length` of virtual time, as fast as the link allows.
pub fn run(profile: &Profile, length: Duration, seed: u64) -> Result<Transfer, NoSession> {
    let began = Instant::now();
    let mut pair = Pair::new(profile, &Settings::default(), seed);
    let mut air = None;
    let mut hub = None;
    let up = pair.run(CONNECT_LIMIT, |pair| {
        air = air.or_else(|| pair.open(b"GET"));
        hub = hub.or_else(|| pair.accept());
        air.is_some() && hub.is_some()
    });
    let (Some(air), Some(hub), true) = (air, hub, up) else {
        return Err(NoSession::over(profile, CONNECT_LIMIT));
    };
    let chunk = [0x5a; CHUNK_BYTES];
    let mut buffer = [0; CHUNK_BYTES];
    let (before, _) = pair.counters();
    let (mut bytes, mut first_at) = (0, None);
    let end = pair.now() + length;
    pair.run(length, |pair| {
        while pair.serve(hub, &chunk) > 0 {}
        while let Some(Read::Taken(taken)) = pair.fetch(air, &mut buffer) {
            first_at.get_or_insert(pair.now());
            bytes += taken as u64;
        }
        pair.now() >= end
    });
    let took = pair.now().saturating_sub(first_at.unwrap_or(pair.now()));
    let (forward, back) = pair.counters();
    let sent = forward.offered.bytes - before.offered.bytes;
    let lost = (forward.lost.bytes - before.lost.bytes) as f64;
    let refused = |counters: &Counters| counters.queue_dropped.bytes + counters.too_long.bytes;
    let dropped = refused(&forward) - refused(&before);
    let loss = lost / (sent - dropped).max(1) as f64;
    Ok(Transfer {
        bytes,
        took,
        goodput_bps: 8.0 * bytes as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE),
        capacity_bps: profile.link.forward.rate().map(|rate| rate.bps() as f64 * (1.0 - loss)),
        wire_per_byte: sent as f64 / bytes.max(1) as f64,
        back_per_forward: back.offered.bytes as f64 / sent.max(1) as f64,
        digest: pair.digest(),
        real: began.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_over_mss_fills_the_link_and_repeats_to_the_byte() {
        let mss = Profile::named("mss").unwrap();
        let minute = Duration::from_secs(60);
        let first = run(&mss, minute, 7).unwrap();
        let again = run(&mss, minute, 7).unwrap();
        let other = run(&mss, minute, 8).unwrap();
        assert_eq!(first.digest, again.digest);
        assert_ne!(first.digest, other.digest);
        let (capacity, rate) = (first.capacity_bps.unwrap(), mss.link.forward.rate().unwrap());
        let share = first.goodput_bps / capacity;
        assert!(share > 0.90, "goodput is {share:.3} of (1-p) x rate");
        // Packets lost on the link have to be sent again by any transport, so they do not count
        // here.
        let through = first.wire_per_byte * capacity / rate.bps() as f64;
        assert!(through < 1.10, "{through:.3} bytes came through the link per byte");
    }

    #[test]
    fn every_profile_carries_a_transfer() {
        for profile in Profile::all().unwrap() {
            // An unlimited link is limited only by the processor, so a short transfer is enough.
            let limited = profile.link.forward.rate().is_some();
            let length = if limited { Duration::from_secs(60) } else { Duration::from_millis(20) };
            let transfer = run(&profile, length, 3).unwrap();
            assert!(transfer.bytes > 100_000, "{}: {} bytes", profile.name, transfer.bytes);
            // During an outage of data, capacity is lost that no transport could use.
            if let Some(capacity) = transfer.capacity_bps.filter(|_| profile.name != "mss-rough") {
                let share = transfer.goodput_bps / capacity;
                // If two of five packets are lost, retransmission alone leaves gaps in the window.
                let least = if profile.forward_loss() > 0.2 { 0.6 } else { 0.85 };
                assert!(share > least, "{}: {share:.3} of (1-p) x rate", profile.name);
            }
        }
    }
}
