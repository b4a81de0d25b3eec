//! The air gateway's handle on the link.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{DatagramFlow, Flow, Handle, Open, ReachWatch, Socket};
use crate::endpoint::{AirConfig, AirCore, Core, Refused};
use crate::lease::ModemRate;
use crate::memory::Remembered;
use crate::session::OpenError;
use crate::settings::SettingsError;
use crate::status::Counters;
use crate::{Class, ClassCounters, ClassSettings, PerClass, SnapshotLimits};
use bentpipe_flow::{OpenDatagrams, Traffic};

/// Handle on the link at the air. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub struct Air(Arc<Handle<AirCore>>);

/// Observer of the link that does not keep it open.
#[derive(Clone)]
pub struct AirWatch(Weak<Handle<AirCore>>);

impl AirWatch {
    /// Returns the handle while another one exists.
    pub fn air(&self) -> Option<Air> {
        self.0.upgrade().map(Air)
    }
}

impl Air {
    /// Starts to call the hub over `socket`, in a task of the current tokio runtime.
    pub fn start(socket: Box<dyn Socket>, config: AirConfig) -> Self {
        Self::start_seeded(socket, config, super::seed())
    }

    /// Starts with a known seed, for simulations.
    pub fn start_seeded(socket: Box<dyn Socket>, config: AirConfig, seed: [u8; 32]) -> Self {
        Self(Handle::start(AirCore::new(config, seed), socket))
    }

    /// Adds addresses at which the hub may be found: each is called in turn if the earlier ones do
    /// not answer. The socket has to reach them.
    pub fn also_at(&self, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.0.look(|core, _| core.also_at(addresses));
    }

    /// Sets the hub's address on a path. Other paths do not use it.
    pub fn set_path_address(&self, path: u8, address: SocketAddr) {
        self.0.look(|core, _| core.set_path_address(path, address));
    }

    /// Opens a flow. If its target cannot be reached, the flow is reset later. Waits a while for
    /// the first session, so that early clients are served, and for memory for the first bytes.
    pub async fn open(&self, open: Open) -> Result<Flow, OpenError> {
        let Open { target, class, passenger, claim, first } = &open;
        let begin = |core: &mut AirCore, now| {
            let (key, taken) = core.open(target, *class, *passenger, first, now)?;
            if let (Some(claim), Some(session)) = (claim, core.session(key.0)) {
                session.claim(key.1, claim.clone());
            }
            Ok((key, taken))
        };
        self.0.open(first, begin).await
    }

    /// Opens a flow of datagrams. If its target cannot be reached, the flow is reset later. Waits a
    /// while for the first session. The opening shares a packet with the first datagram if that is
    /// sent at once.
    pub async fn open_datagrams(&self, open: OpenDatagrams) -> Result<DatagramFlow, OpenError> {
        let begin = |core: &mut AirCore, now| core.open_datagrams(&open, now);
        let key = self.0.connected(|| self.0.look(begin)).await?;
        Ok(DatagramFlow::new(self.0.shared.clone(), key))
    }

    /// Time since the first unanswered handshake, if there is one.
    pub fn unanswered_for(&self) -> Option<Duration> {
        self.0.look(|core, now| core.unanswered_since().map(|since| now.saturating_sub(since)))
    }

    /// Takes the counts of strangers' packets since the last call.
    pub fn take_refused(&self) -> Refused {
        self.0.look(|core, _| core.take_refused())
    }

    /// Raises the handshake counter to `first` if that is above, because another gateway with this
    /// key may have used the next ones.
    pub fn raise_counter(&self, first: u64) {
        self.0.look(|core, _| core.raise_counter(first));
    }

    /// Measurements of the path to the hub that are worth storing, and their age.
    pub fn remembered(&self) -> Option<(Remembered, Duration)> {
        self.0.look(|core, now| {
            core.remembered().map(|remembered| (remembered, now.saturating_sub(remembered.at)))
        })
    }

    /// Sets an earlier process's measurements of the path, made `age` ago. They count from the
    /// start of this end at the earliest, so that they are used for up to their age longer than
    /// their lifetime.
    pub fn remember(&self, remembered: Remembered, age: Duration) {
        self.0.look(|core, now| {
            core.remember(Remembered { at: now.saturating_sub(age), ..remembered });
        });
    }

    /// Sets the address from which packets to the hub are sent, if it is known: the attachment for
    /// which a learned rate is remembered.
    pub fn set_own_address(&self, address: Option<IpAddr>) {
        self.0.look(|core, _| core.set_own_address(address));
    }

    /// Returns an observer that does not keep the link open.
    pub fn watch(&self) -> AirWatch {
        AirWatch(Arc::downgrade(&self.0))
    }

    /// Sets the rate that a path's modem reports; `None` if nothing is known of it. Counts for
    /// [`MODEM_LEASE`](crate::MODEM_LEASE) and has to be repeated before that.
    pub fn set_modem_rate(&self, path: u8, reported: Option<ModemRate>) {
        self.0.act(|core, now| core.set_modem_rate(path, reported, now));
    }

    /// Sets the limits of each class for what this end sends.
    pub fn set_classes(&self, classes: PerClass<ClassSettings>) -> Result<(), SettingsError> {
        self.0.act(|core, now| core.set_classes(classes, now))
    }

    /// Counters of the session; `None` before the first.
    pub fn counters(&self) -> Option<Counters> {
        self.0.look(|core, _| core.current().map(|(_, session)| session.counters()))
    }

    /// Counters of a class in the session; `None` before the first.
    pub fn class_counters(&self, class: Class) -> Option<ClassCounters> {
        self.0.look(|core, _| core.current().map(|(_, session)| session.class_counters(class)))
    }

    /// Traffic of the session, in total and since the last call; `None` before the first session.
    pub fn traffic(&self, max: SnapshotLimits) -> Option<Traffic> {
        self.0.look(|core, now| core.current().map(|(_, session)| session.traffic(max, now)))
    }

    /// Number of the session, which increases with every new session; `None` while there is none.
    pub fn session(&self) -> Option<u64> {
        self.0.look(|core, _| core.current().map(|(id, _)| id))
    }

    /// Reachability of the hub: [out](bentpipe_flow::Reach::Out) in an outage.
    pub fn watch_reach(&self) -> ReachWatch {
        self.0.watch_reach()
    }

    /// Length of the present outage, and of all outages of the session. Both are zero while there
    /// is no session.
    pub fn outages(&self) -> (Duration, Duration) {
        let outages = self.0.look(|core, now| {
            core.current().map(|(_, session)| (session.outage(now), session.unheard(now)))
        });
        outages.unwrap_or_default()
    }

    /// Returns `true` if the hub is silent, and the session will be out in a round trip.
    pub fn is_doubtful(&self) -> bool {
        self.0.look(|core, now| core.current().is_some_and(|(_, session)| session.is_doubtful(now)))
    }

    /// Smoothed round trip; `None` before the first session.
    pub fn round_trip(&self) -> Option<Duration> {
        self.0.look(|core, _| core.current().map(|(_, session)| session.round_trip()))
    }

    /// Waits until the task that moves datagrams has ended without a close; forever in normal
    /// operation.
    pub async fn failed(&self) {
        self.0.failed().await;
    }

    /// Number of turns of that task. The call requests another turn, so that the next call returns
    /// more unless the task hangs.
    pub fn pulse(&self) -> u64 {
        self.0.pulse()
    }

    /// Closes the session and waits until the hub has been reported.
    pub async fn close(&self) {
        self.0.close().await;
    }
}
