//! Handle on the link at the ground.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bentpipe_flow::{OpenDatagrams, ResetCode, Traffic};
use bentpipe_units::{BitRate, ByteSize};
use parking_lot::RwLock;

use super::shards::Shards;
use super::{DatagramFlow, Flow, Handle, Incoming, Socket};
use crate::endpoint::{
    Aircraft, Core, HubConfig, HubCore, MAX_SHARDS, Refused, SessionId, ShardFleet,
    shard_of_session, shards_of_aircraft,
};
use crate::flow::FlowEvent;
use crate::key::PublicKey;
use crate::lease::{BeamError, ModemRate};
use crate::settings::SettingsError;
use crate::status::Counters;
use crate::{Class, ClassCounters, ClassSettings, PerClass, SnapshotLimits};

/// Handle on the link at the ground, with many aircraft. Clones share it; the last one dropped
/// closes it.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    shards: Shards<HubCore>,
    /// Number of each aircraft's shard.
    shard_of: RwLock<BTreeMap<PublicKey, usize>>,
}

/// Observer of the link that does not keep it open.
#[derive(Clone)]
pub struct HubWatch(Weak<Inner>);

impl HubWatch {
    /// Returns the handle while another one exists.
    pub fn hub(&self) -> Option<Hub> {
        self.0.upgrade().map(Hub)
    }
}

/// A flow that an aircraft opened.
pub enum Arrived {
    /// A byte stream.
    Stream(Incoming),
    /// A flow of datagrams.
    Datagrams(IncomingDatagrams),
}

/// A flow of datagrams that an aircraft opened.
pub struct IncomingDatagrams {
    /// The aircraft's key.
    pub aircraft: PublicKey,
    /// Counter of the handshake that began the aircraft's session.
    pub session: u64,
    /// Requested flow, with a class no more favoured than the aircraft's highest.
    pub open: OpenDatagrams,
    /// The flow; its first datagrams may have arrived.
    pub flow: DatagramFlow,
}

impl Arrived {
    /// Returns the stream, for servers without datagrams: a datagram flow is reset as forbidden.
    pub fn stream(self) -> Option<Incoming> {
        match self {
            Self::Stream(incoming) => Some(incoming),
            Self::Datagrams(incoming) => {
                incoming.flow.reset(ResetCode::Forbidden);
                None
            }
        }
    }
}

/// One aircraft's session.
#[derive(Debug, Clone)]
pub struct SessionStatus {
    /// The aircraft's key.
    pub aircraft: PublicKey,
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// Counters of the session.
    pub counters: Counters,
}

impl Hub {
    /// Starts to serve on `socket`, in a task of the current tokio runtime.
    pub fn start(socket: Box<dyn Socket>, config: HubConfig) -> Self {
        Self::start_seeded(socket, config, super::seed())
    }

    /// Starts with a known seed, for simulations.
    pub fn start_seeded(socket: Box<dyn Socket>, config: HubConfig, seed: [u8; 32]) -> Self {
        Self::start_with(socket, &config, [seed].into_iter())
    }

    /// Starts to serve in tasks for this many shards, so that the hub can use as many processor
    /// cores. There are no more than [`MAX_SHARDS`], and no more than aircraft.
    pub fn start_sharded(socket: Box<dyn Socket>, config: HubConfig, shards: usize) -> Self {
        let count = shards.min(config.aircraft.len()).clamp(1, MAX_SHARDS);
        Self::start_with(socket, &config, (0..count).map(|_| super::seed()))
    }

    fn start_with(
        socket: Box<dyn Socket>,
        config: &HubConfig,
        seeds: impl ExactSizeIterator<Item = [u8; 32]>,
    ) -> Self {
        let keys = config.aircraft.iter().map(|aircraft| aircraft.key);
        let shard_of = shards_of_aircraft(keys, seeds.len()).collect();
        let shards = Shards::start(HubCore::shards(config, seeds), socket);
        Self(Arc::new(Inner { shards, shard_of: RwLock::new(shard_of) }))
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.0.shards.all().len()
    }

    /// Local address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.shards.local_addr()
    }

    /// The first shard, for what all share.
    fn first(&self) -> &Handle<HubCore> {
        &self.0.shards.all()[0]
    }

    /// The shard of an aircraft; any for an unknown one, which it ignores.
    fn of(&self, aircraft: &PublicKey) -> &Handle<HubCore> {
        let shard = self.0.shard_of.read().get(aircraft).copied();
        &self.0.shards.all()[shard.unwrap_or(0)]
    }

    /// Returns an observer that does not keep the link open.
    pub fn watch(&self) -> HubWatch {
        HubWatch(Arc::downgrade(&self.0))
    }

    /// Takes the counts of refusals since the last call: strangers' packets, handshakes, memory,
    /// and datagrams that a shard was too slow for.
    pub fn take_refused(&self) -> Refused {
        let all = self.0.shards.all().iter().map(|it| it.look(|core, _| core.take_refused()));
        let refused = all.reduce(Refused::and).unwrap_or_default();
        Refused { overflow: self.0.shards.take_overflow(), ..refused }
    }

    /// Address of each aircraft's last handshake, for the next process.
    pub fn homes(&self) -> Vec<(PublicKey, IpAddr)> {
        self.first().look(|core, _| core.homes())
    }

    /// Sets an aircraft's address in the previous process: handshakes from there go before
    /// strangers'.
    pub fn remember_home(&self, aircraft: &PublicKey, home: IpAddr) {
        self.of(aircraft).look(|core, _| core.remember_home(aircraft, home));
    }

    /// Waits for the next flow that an aircraft opens; `None` once the hub is closed.
    pub async fn accept(&self) -> Option<Arrived> {
        loop {
            let opened = self.0.shards.next_opened(HubCore::aircraft_of).await?;
            let (shard, aircraft, session, event) = opened;
            let shared = shard.shared.clone();
            match event {
                FlowEvent::Opened { flow, target, class, passenger } => {
                    let (claim, counter) = shard.look(|core, _| {
                        let claim = core.session(session).and_then(|it| it.claim_of(flow).cloned());
                        (claim, core.counter_of(&aircraft).unwrap_or_default())
                    });
                    let (flow, session) = (Flow::new(shared, (session, flow)), counter);
                    let incoming =
                        Incoming { aircraft, session, target, class, passenger, claim, flow };
                    return Some(Arrived::Stream(incoming));
                }
                FlowEvent::OpenedDatagrams { flow, open } => {
                    let counter =
                        shard.look(|core, _| core.counter_of(&aircraft).unwrap_or_default());
                    let (flow, session) = (DatagramFlow::new(shared, (session, flow)), counter);
                    let incoming = IncomingDatagrams { aircraft, session, open, flow };
                    return Some(Arrived::Datagrams(incoming));
                }
                FlowEvent::Wake(_) => {}
            }
        }
    }

    /// Sets the rates of a beam that the aircraft share, towards them and from them; `None` for a
    /// direction without one. May be called again when the rates change.
    ///
    /// Fails if a direction begins to be shared and the aircraft's floors do not fit into it, or if
    /// the hub has several shards. If the beam shrinks below the floors later, all are cut in
    /// proportion.
    pub fn set_beam(
        &self,
        forward: Option<BitRate>,
        back: Option<BitRate>,
    ) -> Result<(), BeamError> {
        self.first().act(|core, now| core.set_beam(forward, back, now))
    }

    /// Serves these aircraft from now on, see [`HubCore::set_fleet`]. `beam` has the rates of a beam
    /// that [`Self::set_beam`] began. Aircraft stay in their shards; a new one goes to the shard with
    /// the fewest.
    pub fn set_fleet(&self, aircraft: Vec<Aircraft>, beam: (Option<BitRate>, Option<BitRate>)) {
        // Held until every shard has changed, so that two changes do not mix.
        let mut shard_of = self.0.shard_of.write();
        let keys: BTreeSet<PublicKey> = aircraft.iter().map(|it| it.key).collect();
        shard_of.retain(|key, _| keys.contains(key));
        let mut held = vec![0_usize; self.shards()];
        shard_of.values().for_each(|shard| held[*shard] += 1);
        for key in keys {
            shard_of.entry(key).or_insert_with(|| {
                let fewest = (0..held.len()).min_by_key(|shard| held[*shard]).unwrap_or(0);
                held[fewest] += 1;
                fewest
            });
        }
        let mut fleets = vec![ShardFleet { beam, ..ShardFleet::default() }; held.len()];
        fleets[0].elsewhere = shard_of
            .iter()
            .filter(|(_, shard)| **shard != 0)
            .map(|(key, it)| (*key, *it))
            .collect();
        for one in aircraft {
            fleets[shard_of[&one.key]].aircraft.push(one);
        }
        for (shard, fleet) in self.0.shards.all().iter().zip(fleets) {
            shard.act(|core, now| core.set_fleet(fleet, now));
        }
    }

    /// Sets the rate that the modem towards an aircraft reports; `None` if nothing is known of it.
    /// Counts for [`MODEM_LEASE`](crate::MODEM_LEASE) and has to be repeated before that.
    pub fn set_modem_rate(&self, aircraft: &PublicKey, reported: Option<ModemRate>) {
        self.of(aircraft).act(|core, now| core.set_modem_rate(aircraft, reported, now));
    }

    /// Sets the memory of all sessions together, in addition to the reserves of their flows.
    pub fn set_memory(&self, max: ByteSize) {
        // All have one account; each looks at it now.
        self.0.shards.all().iter().for_each(|shard| shard.act(|core, _| core.set_memory(max)));
    }

    /// Sets the limits of each class for what is sent to an aircraft.
    pub fn set_classes(
        &self,
        aircraft: &PublicKey,
        classes: PerClass<ClassSettings>,
    ) -> Result<(), SettingsError> {
        self.of(aircraft).act(|core, now| core.set_classes(aircraft, classes, now))
    }

    /// Status of every session.
    pub fn status(&self) -> Vec<(SessionId, SessionStatus)> {
        let status = |(id, aircraft, session): (SessionId, PublicKey, &mut crate::Session)| {
            let (round_trip, counters) = (session.round_trip(), session.counters());
            (id, SessionStatus { aircraft, round_trip, counters })
        };
        let of = |shard: &Arc<Handle<HubCore>>| {
            shard.look(|core, _| core.sessions().map(status).collect::<Vec<_>>())
        };
        let mut all: Vec<_> = self.0.shards.all().iter().flat_map(of).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all
    }

    /// Counters of a class in a session; `None` if the session is over.
    pub fn class_counters(&self, id: SessionId, class: Class) -> Option<ClassCounters> {
        let shard = &self.0.shards.all()[shard_of_session(id, self.shards())];
        shard.look(|core, _| core.session(id).map(|session| session.class_counters(class)))
    }

    /// Traffic of an aircraft's session, in total and since the last call; `None` if it has none.
    pub fn traffic(&self, aircraft: &PublicKey, max: SnapshotLimits) -> Option<Traffic> {
        self.of(aircraft).look(|core, now| core.traffic(aircraft, max, now))
    }

    /// Waits until any of the tasks that move datagrams has ended without a close; forever in normal
    /// operation.
    pub async fn failed(&self) {
        self.0.shards.failed().await;
    }

    /// Number that rises only if every one of these tasks has taken a turn since the last rise. The
    /// call requests another turn of each, so that the next call returns more unless one hangs.
    pub fn pulse(&self) -> u64 {
        self.0.shards.pulse()
    }

    /// Closes every session and waits until the aircraft have been reported.
    pub async fn close(&self) {
        self.0.shards.close().await;
    }
}
