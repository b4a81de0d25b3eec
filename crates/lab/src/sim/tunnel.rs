//! A tunnel in virtual time, with a client in front of it and a server behind it, kept up for many
//! downloads.
//!
//! The server answers at once: it writes a flow's whole object as soon as the flow reaches the hub.
//! So the duration of a download depends only on the radio transport.

use std::time::Duration;

use bentpipe_channel as channel;
use bentpipe_flow::ResetCode;
use bentpipe_link::{Class, Core, Counters, Read, SessionId, Settings, Write};

use super::pair::{FlowKey, Pair};
use super::trace::Digest;
use super::transfer::NoSession;
use crate::profile::Profile;
use crate::result::Sample;
use crate::traffic::REQUEST_BYTES;

/// Maximum time until the session is up. If two of five packets are lost in each direction, two of
/// three handshakes fail, and the retry interval grows.
const CONNECT_LIMIT: Duration = Duration::from_secs(600);
/// Bytes per read or write.
const CHUNK_BYTES: usize = 16 << 10;
const REQUEST: [u8; REQUEST_BYTES as usize] = [b'q'; REQUEST_BYTES as usize];
/// Passenger who requests objects.
const READER: u32 = 1;
/// Passenger with an endless download.
const NEIGHBOUR: u32 = 2;

/// Both ends, and the current downloads.
pub struct Tunnel {
    pair: Pair,
    downloads: Vec<Download>,
    hub_session: Option<SessionId>,
    buffer: Vec<u8>,
}

/// Counters of both ends of a tunnel and the link between them.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Time of the snapshot.
    pub at: Duration,
    /// The hub's session, which sends towards the aircraft.
    pub hub: Counters,
    /// The air's session, which sends back.
    pub air: Counters,
    /// The link towards the aircraft.
    pub forward: channel::Counters,
    /// The link back.
    pub back: channel::Counters,
}

/// A flow and the object that it downloads.
struct Download {
    flow: FlowKey,
    at_hub: Option<FlowKey>,
    /// Bytes to write at the hub.
    left: u64,
    /// Bytes read at the air, in order.
    read: u64,
    /// `true` once the server has released the flow: all was written, and the client has closed.
    is_served: bool,
}

impl Tunnel {
    /// A tunnel over `profile`'s radio link, with its session up.
    pub fn new(profile: &Profile, digest: Digest, seed: u64) -> Result<Self, NoSession> {
        let pair = Pair::new(profile, &Settings::default(), seed).with_digest(digest);
        Self::over(pair, profile)
    }

    /// A tunnel over `pair`, whose link is that of `profile`, with its session up.
    pub fn over(pair: Pair, profile: &Profile) -> Result<Self, NoSession> {
        let buffer = vec![0; CHUNK_BYTES];
        let mut tunnel = Self { pair, downloads: Vec::new(), hub_session: None, buffer };
        let up = tunnel.run_until(CONNECT_LIMIT, |tunnel| tunnel.pair.air.current().is_some());
        if up { Ok(tunnel) } else { Err(NoSession::over(profile, CONNECT_LIMIT)) }
    }

    /// Fetches one object of `bytes`. Returns the time from the flow's opening to the last byte
    /// read, or the time waited without success.
    pub fn fetch(&mut self, bytes: u64, patience: Duration) -> Sample {
        let began = self.pair.now();
        let mut flow = None;
        let came = self.run_until(patience, |tunnel| {
            let opened = flow.or_else(|| tunnel.start(READER, bytes));
            flow = opened;
            opened.is_some_and(|flow| tunnel.is_read(flow, bytes))
        });
        let took = (self.pair.now() - began).as_secs_f64();
        if let Some(flow) = flow {
            self.end(flow, came);
        }
        if came { Sample::Finished(took) } else { Sample::Cut(took) }
    }

    /// The ends and their link.
    pub fn pair(&mut self) -> &mut Pair {
        &mut self.pair
    }

    /// Rate at which the hub paces its packets, in bit/s. `None` before the first flow reached the
    /// hub, and if the session ended.
    pub fn hub_rate_bps(&mut self) -> Option<f64> {
        let now = self.pair.now();
        let session = self.pair.hub.session(self.hub_session?)?;
        let lease_bps = session.lease(now).rate.bps() as f64;
        let window = session.congestion_window_bytes();
        let window_bps = window.map_or(f64::INFINITY, |bytes| {
            8.0 * bytes as f64 / session.round_trip().as_secs_f64().max(f64::MIN_POSITIVE)
        });
        Some(lease_bps.min(window_bps))
    }

    /// Starts an endless download of another passenger than that of the fetches.
    pub fn start_bulk(&mut self) -> Option<FlowKey> {
        self.start(NEIGHBOUR, u64::MAX)
    }

    /// Bytes of a download that the client has read.
    pub fn bytes_read(&self, flow: FlowKey) -> u64 {
        let download = self.downloads.iter().find(|download| download.flow == flow);
        download.map_or(0, |download| download.read)
    }

    /// Advances the time by `length`.
    pub fn pass(&mut self, length: Duration) {
        self.run_until(length, |_| false);
    }

    /// Counters so far. `None` before the first flow reached the hub, and if the session ended.
    pub fn seen(&mut self) -> Option<Seen> {
        let (forward, back) = self.pair.counters();
        let hub = self.pair.hub.session(self.hub_session?)?.counters();
        let air = self.pair.air.current()?.1.counters();
        Some(Seen { at: self.pair.now(), hub, air, forward, back })
    }

    /// Digest over every datagram so far, of the kind given to the tunnel.
    pub fn digest(&self) -> Digest {
        self.pair.digest()
    }

    /// Starts the download of `bytes` for a passenger. `None` if there is no session.
    pub fn start(&mut self, passenger: u32, bytes: u64) -> Option<FlowKey> {
        self.start_in(Class::BestEffort, passenger, bytes)
    }

    /// The same in `class`.
    pub fn start_in(&mut self, class: Class, passenger: u32, bytes: u64) -> Option<FlowKey> {
        let flow = self.pair.open_in(class, passenger, &REQUEST)?;
        let download = Download { flow, at_hub: None, left: bytes, read: 0, is_served: false };
        self.downloads.push(download);
        Some(flow)
    }

    fn is_read(&self, flow: FlowKey, bytes: u64) -> bool {
        self.bytes_read(flow) >= bytes
    }

    /// Closes the flow at the client: normally if the object is complete, otherwise with a reset.
    fn end(&mut self, flow: FlowKey, came: bool) {
        if let Some(session) = self.pair.air.session(flow.0) {
            if came {
                session.finish(flow.1);
            } else {
                session.reset(flow.1, ResetCode::Aborted);
            }
            session.release(flow.1);
        }
    }

    /// Steps until `done`. Returns `false` if that takes longer than `limit`.
    fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.pair.now() + limit;
        loop {
            self.tend();
            if done(self) {
                return true;
            }
            if self.pair.now() >= end {
                return false;
            }
            self.pair.step_within(end);
        }
    }

    /// Lets server and client read and write as much as possible.
    fn tend(&mut self) {
        while let Some(flow) = self.pair.accept() {
            self.hub_session = Some(flow.0);
            // A flow has one number at both ends.
            let known = self.downloads.iter_mut().find(|download| download.flow.1 == flow.1);
            known.into_iter().for_each(|download| download.at_hub = Some(flow));
        }
        for download in &mut self.downloads {
            download.serve(&mut self.pair, &mut self.buffer);
            download.read(&mut self.pair, &mut self.buffer);
        }
        self.downloads.retain(|download| !download.is_served);
    }
}

impl Download {
    fn serve(&mut self, pair: &mut Pair, buffer: &mut [u8]) {
        let Some(flow) = self.at_hub else { return };
        let now = pair.now();
        let Some(session) = pair.hub.session(flow.0) else {
            self.is_served = true; // the client is gone
            return;
        };
        while self.left > 0 {
            let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            match session.write(flow.1, &buffer[..most], now) {
                Write::Taken(bytes) => self.left -= bytes as u64,
                Write::Blocked => return,
                Write::Stopped(_) | Write::Reset(_) => break,
            }
        }
        session.finish(flow.1);
        while let Read::Taken(_) = session.read(flow.1, buffer, now) {}
        if !matches!(session.read(flow.1, buffer, now), Read::Blocked) {
            session.release(flow.1);
            self.is_served = true;
        }
    }

    fn read(&mut self, pair: &mut Pair, buffer: &mut [u8]) {
        while let Some(Read::Taken(bytes)) = pair.fetch(self.flow, buffer) {
            self.read += bytes as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean() -> Profile {
        let mss = Profile::named("mss").unwrap();
        mss.with_loss(bentpipe_units::Ratio::ZERO, 1.0).unwrap()
    }

    #[test]
    fn on_a_clean_link_an_object_takes_its_round_trip_and_its_sending_time() {
        let mut tunnel = Tunnel::new(&clean(), Digest::of_contents(), 1).unwrap();
        tunnel.pass(Duration::from_secs(5));
        let Sample::Finished(took) = tunnel.fetch(100_000, CONNECT_LIMIT) else { panic!("cut") };
        let limit = clean().forward_limit(100_000).unwrap().as_secs_f64();
        assert!((1.0..1.1).contains(&(took / limit)), "{took} s of at least {limit} s");
        let seen = tunnel.seen().unwrap();
        assert!(seen.hub.symbols_sent >= 70 && seen.forward.offered.bytes >= 100_000);
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_on_the_link() {
        let mss = Profile::named("mss").unwrap();
        let digest = |seed| {
            let mut tunnel = Tunnel::new(&mss, Digest::of_contents(), seed).unwrap();
            let took = tunnel.fetch(30_000, CONNECT_LIMIT);
            tunnel.start_bulk().unwrap();
            tunnel.pass(Duration::from_secs(10));
            (tunnel.digest(), took)
        };
        assert_eq!(digest(1), digest(1));
        assert_ne!(digest(1), digest(2));
    }

    #[test]
    fn impatience_is_not_a_figure_and_the_tunnel_goes_on() {
        let mut tunnel = Tunnel::new(&clean(), Digest::of_sizes(), 1).unwrap();
        let cut = tunnel.fetch(1_000_000, Duration::from_secs(1));
        assert_eq!(cut, Sample::Cut(1.0));
        tunnel.pass(Duration::from_secs(10));
        assert!(matches!(tunnel.fetch(10_000, CONNECT_LIMIT), Sample::Finished(_)));
        tunnel.pass(Duration::from_secs(10));
        assert_eq!(tunnel.seen().unwrap().hub.flows, 0, "nothing is left behind");
    }

    #[test]
    fn bulk_of_another_passenger_continues_during_fetches() {
        let mut tunnel = Tunnel::new(&clean(), Digest::of_sizes(), 1).unwrap();
        let bulk = tunnel.start_bulk().unwrap();
        tunnel.pass(Duration::from_secs(20));
        let before = tunnel.bytes_read(bulk);
        assert!(matches!(tunnel.fetch(100_000, CONNECT_LIMIT), Sample::Finished(_)));
        assert!(tunnel.bytes_read(bulk) > before && before > 2_000_000);
    }
}
