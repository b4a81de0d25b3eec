//! A hub's way to egresses in other processes.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_choice::{Leg as LegTimes, Site};
use bentpipe_flow::{Reach, ResetCode, Target};
use bentpipe_net::ip::UDP;
use bentpipe_relay::Bridge;
use bentpipe_transport::datagram::Datagram;
use bentpipe_transport::quic::is_quic;
use bentpipe_transport::{EgressStanding, FlowDatagrams, FlowStream, OpenDatagrams};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::leg::{Connection, Leg};
use crate::origin::Origin;
use crate::preference::{Preference, Way, follow_dials};
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
    id: EgressId,
    leg: watch::Receiver<Option<Arc<dyn Leg>>>,
    /// First failed use since the egress was up.
    missed_at: Mutex<Option<Instant>>,
    /// Last connection that was used.
    connection: Mutex<Option<Box<dyn Connection>>>,
    loss: Mutex<PresentLoss>,
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
}

impl Egresses {
    /// Creates the list. The nearest is preferred while nothing is known of a destination. `quic_in_order`
    /// delivers the QUIC packets of aircraft in the order in which they were sent.
    pub fn new(all: Vec<OtherEgress>, quic_in_order: bool) -> Self {
        let sites: Vec<_> = all.iter().map(|it| &*it.sites).collect();
        let preference = (all.len() > 1).then(|| Preference::new(&sites));
        Self { all, preference, quic_in_order }
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
            let (leg, weak) = (egress.leg.clone(), Arc::downgrade(egresses));
            tokio::spawn(follow_dials(leg, move |dialled| {
                let egresses = weak.upgrade()?;
                egresses.preference.as_ref()?.dialled(number, dialled);
                Some(())
            }));
        }
    }

    /// Returns the egress for a carrier that begins with `record`; `None` if that is `here`.
    ///
    /// A flow that goes on needs its own egress. A new flow goes to the one that is best for its
    /// destination, of those that are up. If there is none, the air asks again for a while
    /// ([`ResetCode::Lost`]).
    pub fn choose(
        &self,
        from: &Origin,
        record: &Control,
        here: EgressId,
    ) -> Result<Option<&OtherEgress>, ResetCode> {
        self.first_up(match record {
            Control::Resume { ticket, .. } if ticket.egress() == here => return Ok(None),
            Control::Resume { ticket, .. } => {
                let own = self.all.iter().position(|it| it.id == ticket.egress());
                own.map_or(&[][..], |at| &self.all[at..=at])
            }
            _ if self.all.is_empty() => return Ok(None),
            Control::Open { target, .. } => match self.best(from, target) {
                Some(best) => return Ok(Some(best)),
                None => &self.all[..],
            },
            _ => &self.all[..],
        })
        .map(Some)
    }

    /// Notes the end of a carrier that began with `record`: the passenger keeps the egress at the
    /// destination for some time.
    pub fn ended(&self, from: &Origin, record: &Control) {
        if let (Some(preference), Control::Open { target, .. }) = (&self.preference, record) {
            preference.ended(from.who(), target);
        }
    }

    /// The egresses as ways to `target`; empty if there is no choice.
    pub fn explain(&self, target: &Target) -> Vec<EgressStanding> {
        let preference = self.preference.as_ref();
        preference.map(|it| it.explain(target, &self.ways())).unwrap_or_default()
    }

    fn best(&self, from: &Origin, target: &Target) -> Option<&OtherEgress> {
        let best = self.preference.as_ref()?.choose(from.who(), target, &self.ways())?;
        self.all.get(best)
    }

    fn ways(&self) -> Vec<Way<'_>> {
        self.all.iter().map(OtherEgress::way).collect()
    }

    /// Returns `true` if there are none: flows are dialled here.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Forwards a flow of datagrams to the first egress that is up, until it ends. All hubs with the
    /// same list choose the same, except while an egress is down.
    pub async fn forward_datagrams(&self, from: &Origin, sent: &SentDatagrams) {
        match self.first_up(&self.all) {
            Ok(egress) => egress.forward_datagrams(from, sent, self.quic_in_order).await,
            Err(code) => sent.flow.reset(code),
        }
    }

    fn first_up<'a>(&self, known: &'a [OtherEgress]) -> Result<&'a OtherEgress, ResetCode> {
        if let Some(up) = known.iter().find(|it| it.is_up()) {
            return Ok(up);
        }
        match known.iter().any(OtherEgress::is_awaited) {
            true => Err(ResetCode::Lost),
            false => Err(ResetCode::Unreachable),
        }
    }
}

impl OtherEgress {
    /// Reaches the egress with `public_key` over `leg`, once that is known.
    pub fn new(public_key: &[u8; 32], leg: watch::Receiver<Option<Arc<dyn Leg>>>) -> Self {
        let (name, sites, id) = (String::new(), Vec::new(), egress_id(public_key));
        let (missed_at, connection, loss) = Default::default();
        Self { name, sites, id, leg, missed_at, connection, loss }
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

    fn way(&self) -> Way<'_> {
        Way { name: &self.name, leg: self.leg(), is_up: self.is_up() }
    }

    /// The path to the egress; `None` while there is no connection.
    fn leg(&self) -> Option<LegTimes> {
        let path = self.leg.borrow().as_ref()?.path()?;
        let loss = self.loss.lock().of(path.packets, path.lost);
        Some(LegTimes { rtt: path.rtt, loss })
    }

    fn is_up(&self) -> bool {
        let leg = self.leg.borrow();
        let is_up = leg.as_ref().is_some_and(|it| *it.watch_reach().borrow() == Reach::Up);
        if is_up {
            *self.missed_at.lock() = None;
            *self.connection.lock() = leg.as_ref().and_then(|it| it.connection());
        }
        is_up
    }

    /// Returns `true` if the egress, which is down, may be up soon with its flows. Those of an egress
    /// that was silent are taken for dead.
    fn is_awaited(&self) -> bool {
        if self.connection.lock().as_ref().is_some_and(|it| it.is_dead()) {
            return false;
        }
        let missed_at = *self.missed_at.lock().get_or_insert_with(Instant::now);
        missed_at.elapsed() < EGRESS_PATIENCE
    }

    /// Forwards a carrier, of which `first` was read, until it ends.
    pub async fn forward(&self, mut stream: Box<dyn FlowStream>, from: &Origin, first: Bytes) {
        let leg = self.leg.borrow().clone();
        let Some(leg) = leg else { return stream.reset(ResetCode::Unreachable) };
        match leg.open(from, first).await {
            Ok(flow) => Bridge::new(stream, flow).await,
            Err(error) => stream.reset(error.code()),
        }
    }

    /// Forwards a flow of datagrams until it ends. With `quic_in_order`, a flow whose first payload is
    /// QUIC's keeps its order.
    async fn forward_datagrams(&self, from: &Origin, sent: &SentDatagrams, quic_in_order: bool) {
        let leg = self.leg.borrow().clone();
        let Some(leg) = leg else { return sent.flow.reset(ResetCode::Unreachable) };
        let connection = leg.connection();
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
