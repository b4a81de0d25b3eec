//! A hub of one or several shards as one core, with messages between shards carried at once.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bentpipe_link::{
    BeamError, Core, FlowEvent, HubConfig, HubCore, PublicKey, Refused, Session, SessionId,
    ShardMessage, shard_of_packet,
};
use bentpipe_units::{BitRate, ByteSize};

pub struct Sharded {
    shards: Vec<HubCore>,
    /// Number of handshakes that a shard handed to another.
    pub handed: u64,
}

impl Sharded {
    /// One shard for each seed.
    pub fn new(config: &HubConfig, seeds: &[[u8; 32]]) -> Self {
        Self { shards: HubCore::shards(config, seeds.iter().copied()), handed: 0 }
    }

    fn carry(&mut self, now: Duration) {
        for from in 0..self.shards.len() {
            while let Some((to, message)) = self.shards[from].next_message() {
                self.handed += u64::from(from == 0);
                assert_ne!(to, from);
                self.shards[to].handle_message(message, now);
            }
        }
    }

    fn of(&mut self, id: SessionId) -> &mut HubCore {
        let count = self.shards.len() as u64;
        &mut self.shards[((id - 1) % count) as usize]
    }

    /// Numbers of sessions of each shard.
    pub fn sessions_by_shard(&mut self) -> Vec<usize> {
        self.shards.iter_mut().map(|shard| shard.sessions().count()).collect()
    }

    pub fn sessions(&mut self) -> impl Iterator<Item = (SessionId, PublicKey, &mut Session)> {
        self.shards.iter_mut().flat_map(HubCore::sessions)
    }

    pub fn held_bytes(&self) -> u64 {
        self.shards.iter().map(HubCore::held_bytes).sum()
    }

    pub fn visits(&self) -> u64 {
        self.shards.iter().map(HubCore::visits).sum()
    }

    pub fn curve_operations(&self) -> u64 {
        self.shards.iter().map(HubCore::curve_operations).sum()
    }

    pub fn take_refused(&mut self) -> Refused {
        self.shards.iter_mut().map(HubCore::take_refused).reduce(Refused::and).unwrap()
    }

    pub fn homes(&self) -> Vec<(PublicKey, IpAddr)> {
        self.shards[0].homes()
    }

    pub fn remember_home(&mut self, aircraft: &PublicKey, home: IpAddr) {
        self.shards.iter_mut().for_each(|shard| shard.remember_home(aircraft, home));
    }

    pub fn set_memory(&mut self, max: ByteSize) {
        self.shards[0].set_memory(max);
    }

    pub fn set_beam(
        &mut self,
        forward: Option<BitRate>,
        back: Option<BitRate>,
        now: Duration,
    ) -> Result<(), BeamError> {
        self.shards[0].set_beam(forward, back, now)
    }
}

impl Core for Sharded {
    type Session = Session;

    fn handle_datagram(&mut self, datagram: &[u8], from: SocketAddr, ce: bool, now: Duration) {
        let shard = shard_of_packet(datagram, self.shards.len());
        self.shards[shard].handle_datagram(datagram, from, ce, now);
        self.carry(now);
    }

    fn transmit(&mut self, now: Duration, out: &mut Vec<u8>) -> Option<SocketAddr> {
        self.shards.iter_mut().find_map(|shard| shard.transmit(now, out))
    }

    fn next_timeout(&mut self, now: Duration) -> Duration {
        self.shards.iter_mut().map(|shard| shard.next_timeout(now)).min().unwrap()
    }

    fn handle_timeout(&mut self, now: Duration) {
        self.shards.iter_mut().for_each(|shard| shard.handle_timeout(now));
        self.carry(now);
    }

    fn next_event(&mut self) -> Option<(SessionId, FlowEvent)> {
        self.shards.iter_mut().find_map(HubCore::next_event)
    }

    fn sessions_begun(&self) -> u64 {
        self.shards.iter().map(HubCore::sessions_begun).sum()
    }

    fn next_message(&mut self) -> Option<(usize, ShardMessage)> {
        None
    }

    fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.of(id).session(id)
    }

    fn close(&mut self) {
        self.shards.iter_mut().for_each(HubCore::close);
    }
}
