//! A hub's way to egresses in other processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bentpipe_choice::{Leg as LegTimes, Passenger, Site};
use bentpipe_flow::{Reach, ResetCode, Target};
use bentpipe_masque::{Client, ConnectError};
use bentpipe_net::ip::UDP;
use bentpipe_relay::Bridge;
use bentpipe_transport::datagram::Datagram;
use bentpipe_transport::quic::is_quic;
use bentpipe_transport::{EgressStanding, EgressState, FlowDatagrams, FlowStream, OpenDatagrams};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::leg::{Connection, Leg};
use crate::origin::Origin;
use crate::preference::{Dialled, Preference, Way, follow_dials};
use crate::present_loss::PresentLoss;
use crate::ticket::EgressId;
use crate::transit::watch_transit;
use crate::wire::Control;

/// A flow of datagrams that an aircraft opened.
pub struct SentDatagrams {
    /// Destination.
    pub target: Target,
    /// The IP protocol.
    pub protocol: u8,
    /// The client's own port, or 0.
    pub source: u16,
    /// The flow.
    pub flow: Box<dyn FlowDatagrams>,
}

/// An egress in another process.
pub struct OtherEgress {
    /// Address in the configuration.
    name: String,
    /// Sites that it dials whenever it is up.
    sites: Vec<Site>,
    to: To,
    /// First failed use since the egress was up.
    missed_at: Mutex<Option<Instant>>,
    /// Last connection that was used.
    connection: Mutex<Option<Box<dyn Connection>>>,
    loss: Mutex<PresentLoss>,
    /// Flows that it dials for this hub.
    flows: Arc<AtomicUsize>,
}

/// Another egress, once there is an address to call.
enum To {
    /// A gateway, which knows aircraft and keeps their flows.
    Gateway { id: EgressId, leg: watch::Receiver<Option<Arc<dyn Leg>>> },
    /// A MASQUE proxy of any maker, which only dials.
    Proxy(watch::Receiver<Option<Arc<Client>>>),
}

impl To {
    fn leg(&self) -> Option<Arc<dyn Leg>> {
        match self {
            Self::Gateway { leg, .. } => leg.borrow().clone(),
            Self::Proxy(client) => client.borrow().clone().map(|it| it as Arc<dyn Leg>),
        }
    }

    fn gateway(&self) -> Option<EgressId> {
        match self {
            Self::Gateway { id, .. } => Some(*id),
            Self::Proxy(_) => None,
        }
    }

    fn proxy(&self) -> Option<Arc<Client>> {
        match self {
            Self::Gateway { .. } => None,
            Self::Proxy(client) => client.borrow().clone(),
        }
    }
}

/// Place at which a new flow leaves for its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// This gateway.
    Here,
    /// The gateway with this number among the other egresses.
    Gateway(usize),
    /// The proxy with this number among the other egresses. This gateway keeps the flow.
    Proxy(usize),
}

/// Time for which a flow waits for a connection to its egress, as after a restart of either. Its air
/// asks again twice a second meanwhile.
const EGRESS_PATIENCE: Duration = Duration::from_secs(2);

/// Egresses in other processes. New flows are dialled here if there are none.
#[derive(Default)]
pub struct Egresses {
    all: Vec<OtherEgress>,
    /// Choice for each destination; `None` if there is nothing to choose.
    preference: Option<Preference>,
    quic_in_order: bool,
    /// Ends the tasks that follow the egresses.
    end: CancellationToken,
}

impl Drop for Egresses {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl Egresses {
    /// Creates the list. The nearest is preferred while nothing is known of a destination. `quic_in_order`
    /// delivers the QUIC packets of aircraft in the order in which they were sent.
    pub fn new(all: Vec<OtherEgress>, quic_in_order: bool) -> Self {
        let sites: Vec<_> = all.iter().map(|it| &*it.sites).collect();
        let preference = (all.len() > 1).then(|| Preference::new(&sites));
        Self { all, preference, quic_in_order, end: CancellationToken::new() }
    }

    /// Watches the paths to the egresses, and learns the times of their dials, in tasks of the current
    /// runtime, while `egresses` is used.
    pub fn watch(egresses: &Arc<Self>) {
        if egresses.is_empty() {
            return;
        }
        let weak = Arc::downgrade(egresses);
        let names = egresses.all.iter().map(|it| it.name.clone()).collect();
        tokio::spawn(watch_transit(names, move || {
            let egresses = weak.upgrade()?;
            Some(egresses.all.iter().map(|it| it.leg().map(|leg| leg.rtt)).collect())
        }));
        if egresses.preference.is_none() {
            return;
        }
        for (number, egress) in egresses.all.iter().enumerate() {
            // Dials of a proxy are timed here.
            let To::Gateway { leg, .. } = &egress.to else { continue };
            let (weak, end) = (Arc::downgrade(egresses), egresses.end.clone());
            let following = follow_dials(leg.clone(), move |dialled| {
                if let Some(egresses) = weak.upgrade() {
                    egresses.dialled(number, dialled);
                }
            });
            tokio::spawn(async move { end.run_until_cancelled(following).await });
        }
    }

    /// Chooses the egress for a carrier that begins with `record`. The egress of this gateway has the
    /// number `here`.
    ///
    /// A flow that goes on needs its own egress. A new flow goes to the one that is best for its
    /// destination, of those that are up. If there is none, the air asks again for a while
    /// ([`ResetCode::Lost`]).
    pub fn choose(
        &self,
        from: &Origin,
        record: &Control,
        here: EgressId,
    ) -> Result<Chosen, ResetCode> {
        match record {
            Control::Resume { ticket, .. } if ticket.egress() == here => Ok(Chosen::Here),
            Control::Resume { ticket, .. } => {
                self.first_up(|it| it.to.gateway() == Some(ticket.egress()))
            }
            _ if self.all.is_empty() => Ok(Chosen::Here),
            Control::Open { target, .. } => match self.best(from, target) {
                Some(best) => Ok(self.chosen(best)),
                None => self.first_up(|_| true),
            },
            _ => self.first_up(|_| true),
        }
    }

    /// Chooses the egress for a flow of datagrams of this IP protocol: the first that is up. All hubs with
    /// the same list choose the same, except while an egress is down. A proxy carries UDP alone, so without
    /// a gateway among the egresses this one sends the rest.
    pub fn choose_for_datagrams(&self, protocol: u8) -> Result<Chosen, ResetCode> {
        let carries = |it: &OtherEgress| protocol == UDP || it.to.gateway().is_some();
        match self.all.iter().any(carries) {
            true => self.first_up(carries),
            false => Ok(Chosen::Here),
        }
    }

    fn chosen(&self, number: usize) -> Chosen {
        match self.all[number].to {
            To::Gateway { .. } => Chosen::Gateway(number),
            To::Proxy(_) => Chosen::Proxy(number),
        }
    }

    /// Notes the end of a carrier that began with `record`: the passenger keeps the egress at the
    /// destination for some time.
    fn ended(&self, from: &Origin, record: &Control) {
        if let Control::Open { target, .. } = record {
            self.ended_at(from.who(), target);
        }
    }

    /// Notes the end of a flow of `who` to `target`.
    pub(crate) fn ended_at(&self, who: Passenger, target: &Target) {
        if let Some(preference) = &self.preference {
            preference.ended(who, target);
        }
    }

    /// Notes a dial of egress `number`.
    pub(crate) fn dialled(&self, number: usize, dialled: Dialled) {
        if let Some(preference) = &self.preference {
            preference.dialled(number, dialled);
        }
    }

    /// Connection to proxy `number`, once its name is resolved.
    pub(crate) fn proxy(&self, number: usize) -> Option<Arc<Client>> {
        self.all.get(number)?.to.proxy()
    }

    /// Counts a flow of egress `number`.
    pub(crate) fn count(&self, number: usize) -> Option<Counted> {
        Some(Counted::new(&self.all.get(number)?.flows))
    }

    /// Round-trip time to egress `number`; `None` while there is no connection.
    pub(crate) fn round_trip(&self, number: usize) -> Option<Duration> {
        Some(self.all.get(number)?.to.leg()?.path()?.rtt)
    }

    /// The egresses as ways to `target`; empty if there is no choice.
    pub fn explain(&self, target: &Target) -> Vec<EgressStanding> {
        let preference = self.preference.as_ref();
        preference.map(|it| it.explain(target, &self.ways())).unwrap_or_default()
    }

    /// State of each egress, in the order of the configuration.
    pub fn states(&self) -> Vec<EgressState> {
        self.all.iter().map(OtherEgress::state).collect()
    }

    /// Leg to each egress, in the order of the configuration; `None` for a proxy.
    pub fn legs(&self) -> impl Iterator<Item = Option<watch::Receiver<Option<Arc<dyn Leg>>>>> {
        self.all.iter().map(|egress| match &egress.to {
            To::Gateway { leg, .. } => Some(leg.clone()),
            To::Proxy(_) => None,
        })
    }

    fn best(&self, from: &Origin, target: &Target) -> Option<usize> {
        self.preference.as_ref()?.choose(from.who(), target, &self.ways())
    }

    fn ways(&self) -> Vec<Way<'_>> {
        self.all.iter().map(OtherEgress::way).collect()
    }

    /// Returns `true` if there are none: flows are dialled here.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Forwards a carrier that began with `record`, whose bytes are `first`, to gateway `number` until it
    /// ends.
    pub async fn forward(
        &self,
        number: usize,
        stream: Box<dyn FlowStream>,
        (from, record): (&Origin, &Control),
        first: Bytes,
    ) {
        self.all[number].forward(stream, from, first).await;
        self.ended(from, record);
    }

    /// Forwards a flow of datagrams to gateway `number` until it ends.
    pub async fn forward_datagrams(&self, number: usize, from: &Origin, sent: &SentDatagrams) {
        self.all[number].forward_datagrams(from, sent, self.quic_in_order).await;
    }

    fn first_up(&self, may: impl Fn(&OtherEgress) -> bool) -> Result<Chosen, ResetCode> {
        let possible = || self.all.iter().enumerate().filter(|(_, it)| may(it));
        if let Some((up, _)) = possible().find(|(_, it)| it.is_up()) {
            return Ok(self.chosen(up));
        }
        match possible().any(|(_, it)| it.is_awaited()) {
            true => Err(ResetCode::Lost),
            false => Err(ResetCode::Unreachable),
        }
    }
}

impl OtherEgress {
    /// Reaches the egress with `public_key` over `leg`, once that is known.
    pub fn new(public_key: &[u8; 32], leg: watch::Receiver<Option<Arc<dyn Leg>>>) -> Self {
        Self::reached(To::Gateway { id: egress_id(public_key), leg })
    }

    /// Reaches a MASQUE proxy of any maker by `client`, once its name is resolved.
    pub fn proxy(client: watch::Receiver<Option<Arc<Client>>>) -> Self {
        Self::reached(To::Proxy(client))
    }

    fn reached(to: To) -> Self {
        let (name, sites, missed_at, connection, loss, flows) = Default::default();
        Self { name, sites, to, missed_at, connection, loss, flows }
    }

    /// Names the egress, for people.
    #[must_use]
    pub fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// Gives these sites to the egress whenever it is up.
    #[must_use]
    pub fn with_sites(self, sites: Vec<Site>) -> Self {
        Self { sites, ..self }
    }

    fn state(&self) -> EgressState {
        let rtt = self.to.leg().and_then(|leg| leg.path()).map(|path| path.rtt);
        let (name, flows) = (self.name.clone(), self.flows.load(Ordering::Relaxed));
        let is_proxy = self.to.gateway().is_none();
        EgressState { name, is_proxy, is_up: self.is_up(), rtt, flows }
    }

    fn way(&self) -> Way<'_> {
        let trouble = self.to.proxy().and_then(|proxy| trouble(&proxy));
        Way { name: &self.name, leg: self.leg(), is_up: self.is_up(), trouble }
    }

    /// The path to the egress; `None` while there is no connection.
    fn leg(&self) -> Option<LegTimes> {
        let path = self.to.leg()?.path()?;
        let loss = self.loss.lock().of(path.packets, path.lost);
        Some(LegTimes { rtt: path.rtt, loss })
    }

    fn is_up(&self) -> bool {
        let leg = self.to.leg();
        let is_connected = leg.as_ref().is_some_and(|it| *it.watch_reach().borrow() == Reach::Up);
        if is_connected {
            *self.missed_at.lock() = None;
            *self.connection.lock() = leg.as_ref().and_then(|it| it.connection());
        }
        is_connected && !self.is_unauthorized()
    }

    /// Returns `true` if this is a proxy that refuses the authorization, so that it is of no use for a
    /// while.
    fn is_unauthorized(&self) -> bool {
        self.to.proxy().is_some_and(|proxy| proxy.is_unauthorized())
    }

    /// Returns `true` if the egress, which is down, may be up soon with its flows. Those of an egress
    /// that was silent are taken for dead.
    fn is_awaited(&self) -> bool {
        let is_dead = self.connection.lock().as_ref().is_some_and(|it| it.is_dead());
        if is_dead || self.is_unauthorized() {
            return false;
        }
        let missed_at = *self.missed_at.lock().get_or_insert_with(Instant::now);
        missed_at.elapsed() < EGRESS_PATIENCE
    }

    /// Forwards a carrier, of which `first` was read, until it ends.
    async fn forward(&self, mut stream: Box<dyn FlowStream>, from: &Origin, first: Bytes) {
        let Some(leg) = self.to.leg() else { return stream.reset(ResetCode::Unreachable) };
        let _counted = Counted::new(&self.flows);
        match leg.open(from, first).await {
            Ok(flow) => Bridge::new(stream, flow).await,
            Err(error) => stream.reset(error.code()),
        }
    }

    /// Forwards a flow of datagrams until it ends. With `quic_in_order`, a flow whose first payload is
    /// QUIC's keeps its order.
    async fn forward_datagrams(&self, from: &Origin, sent: &SentDatagrams, quic_in_order: bool) {
        let Some(leg) = self.to.leg() else { return sent.flow.reset(ResetCode::Unreachable) };
        let (connection, _counted) = (leg.connection(), Counted::new(&self.flows));
        let open = OpenDatagrams {
            target: sent.target.clone(),
            protocol: sent.protocol,
            source: sent.source,
            class: from.class,
            passenger: from.passenger,
        };
        let far = match leg.open_datagrams(from, open).await {
            Ok(far) => far,
            Err(error) => return sent.flow.reset(error.code()),
        };
        let near = &*sent.flow;
        let mut may_be_quic = quic_in_order && sent.protocol == UDP;
        loop {
            tokio::select! {
                received = near.receive() => match received {
                    Ok(datagram) => {
                        if may_be_quic && let Some(payload) = payload(&datagram) {
                            may_be_quic = false;
                            if is_quic(sent.target.port, payload) {
                                near.keep_order();
                                far.keep_order();
                            }
                        }
                        let _ = far.send(&datagram);
                    }
                    Err(code) => return far.reset(code),
                },
                received = far.receive() => match received {
                    Ok(datagram) => drop(near.send(&datagram)),
                    Err(code) => {
                        let is_dead = connection.as_ref().is_some_and(|it| it.is_dead());
                        let is_over = code == ResetCode::Lost && is_dead;
                        return near.reset(if is_over { ResetCode::Unreachable } else { code });
                    }
                },
            }
        }
    }
}

/// Reason why no new flow goes through `proxy`.
fn trouble(proxy: &Client) -> Option<String> {
    match proxy.status() {
        Err(ConnectError::Connecting) => Some("it is being called".to_owned()),
        Err(error) => Some(error.to_string()),
        Ok(()) if proxy.is_unauthorized() => {
            Some("it refuses the authorization: check authorization-file".to_owned())
        }
        Ok(()) => None,
    }
}

/// A flow that counts while it is used.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(flows: &Arc<AtomicUsize>) -> Self {
        flows.fetch_add(1, Ordering::Relaxed);
        Self(flows.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Payload for the destination, if the datagram has one.
fn payload(datagram: &[u8]) -> Option<&[u8]> {
    match Datagram::parse(datagram) {
        Ok(Datagram::Payload(payload) | Datagram::HopLimit(_, payload)) => Some(payload),
        _ => None,
    }
}

/// Number of the egress with this public key.
pub fn egress_id(public_key: &[u8; 32]) -> EgressId {
    let mut id = [0; 8];
    id.copy_from_slice(&public_key[..8]);
    id
}

#[cfg(test)]
mod tests;
