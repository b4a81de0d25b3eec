//! The air gateway's handle on the link.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{DatagramFlow, Flow, Handle, Open, Socket};
use crate::endpoint::{AirConfig, AirCore, Core};
use crate::lease::ModemRate;
use crate::memory::Remembered;
use crate::session::OpenError;
use crate::settings::SettingsError;
use crate::status::Counters;
use crate::{Class, ClassCounters, ClassSettings, Most, OpenDatagrams, PerClass, Traffic};

/// The link, seen from the air. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub struct Air(Arc<Handle<AirCore>>);

/// Looks at the link without keeping it open.
#[derive(Clone)]
pub struct AirWatch(Weak<Handle<AirCore>>);

impl AirWatch {
    /// The link, while anybody else holds it.
    pub fn air(&self) -> Option<Air> {
        self.0.upgrade().map(Air)
    }
}

impl Air {
    /// Begins calling the hub over `socket`, in a task of the current tokio runtime.
    pub fn start(socket: Box<dyn Socket>, config: AirConfig) -> Self {
        Self::start_seeded(socket, config, super::seed())
    }

    /// The same with known randomness, for simulations.
    pub fn start_seeded(socket: Box<dyn Socket>, config: AirConfig, seed: [u8; 32]) -> Self {
        Self(Handle::start(AirCore::new(config, seed), socket))
    }

    /// The hub may also be found at these addresses: each is called in turn where those before do
    /// not answer. The socket has to reach them.
    pub fn also_at(&self, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.0.look(|core, _| core.also_at(addresses));
    }

    /// Opens a flow. Whether its target can be reached shows later, as a reset. Waits a while for
    /// the first session, so that clients that come before the ground does are served, and for
    /// memory for its first bytes.
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

    /// Opens a flow of datagrams. Whether its target can be reached shows later, as a reset. Waits a
    /// while for the first session. The opening leaves together with the first datagram, if that is
    /// handed over at once.
    pub async fn open_datagrams(&self, open: OpenDatagrams) -> Result<DatagramFlow, OpenError> {
        let begin = |core: &mut AirCore, now| core.open_datagrams(&open, now);
        let key = self.0.connected(|| self.0.look(begin)).await?;
        Ok(DatagramFlow::new(self.0.shared.clone(), key))
    }

    /// For how long no handshake was answered, where some were sent.
    pub fn unanswered_for(&self) -> Option<Duration> {
        self.0.look(|core, now| core.unanswered_since().map(|since| now.saturating_sub(since)))
    }

    /// Goes on with handshake counters from `first` on, if that is above: another gateway with this
    /// one's key may have used those that are next.
    pub fn raise_counter(&self, first: u64) {
        self.0.look(|core, _| core.raise_counter(first));
    }

    /// Knowledge of the path to the hub that is worth storing, and its age.
    pub fn remembered(&self) -> Option<(Remembered, Duration)> {
        self.0.look(|core, now| {
            core.remembered().map(|remembered| (remembered, now.saturating_sub(remembered.at)))
        })
    }

    /// Tells what an earlier process learned of the path, `age` ago. It counts as learned since this
    /// end was started at the earliest, so it is used for up to its age longer than its lifetime.
    pub fn remember(&self, remembered: Remembered, age: Duration) {
        self.0.look(|core, now| {
            core.remember(Remembered { at: now.saturating_sub(age), ..remembered });
        });
    }

    /// A look at the link that does not keep it open.
    pub fn watch(&self) -> AirWatch {
        AirWatch(Arc::downgrade(&self.0))
    }

    /// The modem tells what it sends at, or (`None`) that nothing is known of it any more. Counts
    /// for [`MODEM_LEASE`](crate::MODEM_LEASE); tell it again before that, changed or not.
    pub fn set_modem_rate(&self, told: Option<ModemRate>) {
        self.0.act(|core, now| core.set_modem_rate(told, now));
    }

    /// From now on each class gets this of what this end sends.
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
    pub fn traffic(&self, most: Most) -> Option<Traffic> {
        self.0.look(|core, now| core.current().map(|(_, session)| session.traffic(most, now)))
    }

    /// The number of the session: of two the later has the larger. `None` while there is none.
    pub fn session(&self) -> Option<u64> {
        self.0.look(|core, _| core.current().map(|(id, _)| id))
    }

    /// Returns `true` if the hub's packets arrive at the moment; `None` while there is no session.
    pub fn is_heard(&self) -> Option<bool> {
        self.0.look(|core, _| core.current().map(|(_, session)| !session.is_quiet()))
    }

    /// Length of the outage that lasts now, and of all outages of the session until now. Both are zero while
    /// there is no session.
    pub fn outages(&self) -> (Duration, Duration) {
        let outages = self.0.look(|core, now| {
            core.current().map(|(_, session)| (session.outage(now), session.unheard(now)))
        });
        outages.unwrap_or_default()
    }

    /// The measured round trip; `None` before the first session.
    pub fn round_trip(&self) -> Option<Duration> {
        self.0.look(|core, _| core.current().map(|(_, session)| session.round_trip()))
    }

    /// Waits until the task that moves datagrams has ended although nobody closed this end; for ever
    /// while all is well.
    pub async fn failed(&self) {
        self.0.failed().await;
    }

    /// Turns of that task so far, which is asked for another: unless it hangs, the next call gives more.
    pub fn pulse(&self) -> u64 {
        self.0.pulse()
    }

    /// Closes the session and waits until the hub has been told.
    pub async fn close(&self) {
        self.0.close().await;
    }
}
