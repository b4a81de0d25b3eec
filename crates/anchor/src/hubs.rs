//! The air's path to the ground: one hub after another.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bentpipe_flow::{Host, Traffic};
use bentpipe_transport::{
    ClassSettings, Connector, FlowDatagrams, FlowStream, ModemRate, Open, OpenDatagrams, OpenError,
    Outages, PerClass, Reach, Refused, SettingsError, SnapshotLimits, reach_changed,
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::air::AirFlow;
use crate::current::{Hub, Present};
use crate::datagrams::AirDatagrams;
use crate::parts::AirParts;

/// A connector whose flows outlive a change of the hub. Clones share it.
#[derive(Clone)]
pub struct Hubs(Arc<Shared>);

struct Shared {
    present: Arc<Present>,
    reach: watch::Sender<Reach>,
    settings: Mutex<Settings>,
    /// `true` if there is more than one hub, so that flows of datagrams are opened again.
    has_others: AtomicBool,
}

/// Settings that the next hub gets too.
#[derive(Default)]
struct Settings {
    classes: Option<PerClass<ClassSettings>>,
    /// Reports by path. At most as many as the configuration has paths.
    modem_rates: BTreeMap<u8, Option<ModemRate>>,
}

impl Hubs {
    /// Starts with `hub`. Must be called within a tokio runtime.
    pub fn new(hub: Arc<dyn Connector>) -> Self {
        let (reach, _) = watch::channel(hub.reach());
        let present = Arc::new(Present::new(hub));
        let (settings, has_others) = (Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { present, reach, settings, has_others });
        tokio::spawn(follow(Arc::downgrade(&shared), shared.present.watch()));
        Self(shared)
    }

    /// Notes that there is more than one hub.
    pub(crate) fn note_others(&self) {
        self.0.has_others.store(true, Ordering::Relaxed);
    }

    /// The present hub.
    pub fn hub(&self) -> Arc<dyn Connector> {
        self.0.present.get().hub
    }

    /// Moves all flows to `hub`. A stream uses the old hub until its egress has accepted the new one,
    /// and the old hub is released with the last of them. Flows of datagrams are opened again at once.
    /// Flows to the ground's services stay with the old hub, and end with it.
    pub fn change_to(&self, hub: Arc<dyn Connector>) {
        // Held, so that no later setting goes to the old hub.
        let settings = self.0.settings.lock();
        if let Some(classes) = settings.classes
            && let Err(error) = hub.set_classes(classes)
        {
            tracing::error!(%error, "the classes stay as they were");
        }
        settings.modem_rates.iter().for_each(|(path, rate)| hub.modem_rate(*path, *rate));
        self.0.present.change_to(hub);
    }

    /// Continues a flow of the previous process.
    pub fn resume(&self, parts: AirParts) -> AirFlow {
        AirFlow::from_parts(self.0.present.clone(), parts)
    }

    /// Returns an observer that does not keep the hubs.
    pub fn watch(&self) -> HubsWatch {
        HubsWatch(Arc::downgrade(&self.0))
    }
}

/// Observer of the hubs that does not keep them.
pub struct HubsWatch(Weak<Shared>);

impl HubsWatch {
    /// Returns the hubs while they are in use.
    pub fn hubs(&self) -> Option<Hubs> {
        self.0.upgrade().map(Hubs)
    }
}

/// Repeats the reachability of the present hub.
async fn follow(shared: Weak<Shared>, mut hubs: watch::Receiver<Hub>) {
    loop {
        let mut reach = hubs.borrow_and_update().hub.watch_reach();
        loop {
            let Some(shared) = shared.upgrade() else { return };
            shared.reach.send_replace(*reach.borrow_and_update());
            drop(shared);
            tokio::select! {
                () = reach_changed(&mut reach) => {}
                changed = hubs.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
            }
        }
    }
}

impl Connector for Hubs {
    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        Box::pin(async move {
            if let Host::Service(_) = open.target.host {
                return self.hub().open(open).await;
            }
            let flow = AirFlow::open(self.0.present.clone(), open).await?;
            Ok(Box::new(flow) as Box<dyn FlowStream>)
        })
    }

    fn open_datagrams(
        &self,
        open: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
        Box::pin(async move {
            let is_service = matches!(open.target.host, Host::Service(_));
            if is_service || !self.0.has_others.load(Ordering::Relaxed) {
                return self.hub().open_datagrams(open).await;
            }
            let flow = AirDatagrams::open(self.0.present.clone(), open).await?;
            Ok(Box::new(flow) as Box<dyn FlowDatagrams>)
        })
    }

    fn modem_rate(&self, path: u8, reported: Option<ModemRate>) {
        let mut settings = self.0.settings.lock();
        settings.modem_rates.insert(path, reported);
        self.hub().modem_rate(path, reported);
    }

    fn set_classes(&self, classes: PerClass<ClassSettings>) -> Result<(), SettingsError> {
        let mut settings = self.0.settings.lock();
        self.hub().set_classes(classes)?;
        settings.classes = Some(classes);
        Ok(())
    }

    fn traffic(&self, max: SnapshotLimits) -> Option<Traffic> {
        self.hub().traffic(max)
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        self.0.reach.subscribe()
    }

    fn take_refused(&self) -> Refused {
        self.hub().take_refused()
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut hubs = self.0.present.watch();
            loop {
                let hub = hubs.borrow_and_update().hub.clone();
                tokio::select! {
                    () = hub.failed() => return,
                    _ = hubs.changed() => {}
                }
            }
        })
    }

    fn pulse(&self) -> Option<u64> {
        self.hub().pulse()
    }

    fn outages(&self) -> Outages {
        self.hub().outages()
    }

    fn round_trip(&self) -> Option<Duration> {
        self.hub().round_trip()
    }

    fn take_over(&self, flow: &[u8]) -> Option<Box<dyn FlowStream>> {
        let parts = AirParts::decode(flow);
        let parts = parts.inspect_err(|error| tracing::warn!(%error)).ok()?;
        Some(Box::new(self.resume(parts)))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.hub().close().await })
    }
}
