//! The ground's side: admits carriers of flows, or forwards them to the egress that they need.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bentpipe_directory::Side;
use bentpipe_flow::{Host, ResetCode, Service, Target, Traffic};
use bentpipe_transport::{
    Acceptor, Carried, Dialler, EgressStanding, EgressState, Fleet, FlowStream, GroundStanding,
    Incoming, PublicKey, Refused, SnapshotLimits, Transport,
};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use tokio::io::AsyncReadExt;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

use crate::departure::Departure;
use crate::egress::{Admitted, Egress};
use crate::forward::{Chosen, Egresses, SentDatagrams};
use crate::from_hubs::FromHubs;
use crate::neighbours::Neighbours;
use crate::origin::Origin;
use crate::parts::FlowParts;
use crate::proxied::Proxied;
use crate::wire::{Control, MARK, MAX_CONTROL_BYTES};

/// Time within which the first record of a carrier has to arrive. It usually comes with the opening.
const FIRST_RECORD_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of new flows that wait to be accepted. The carriers before them are flows of the
/// transport, whose limits for each aircraft bound them too.
const MAX_WAITING: usize = 1024;

/// An acceptor whose streams may be anchored flows.
///
/// A carrier for this egress is attached to its flow; a new flow is accepted as one of its target. A
/// carrier for another egress is forwarded there.
pub struct AnchorAcceptor {
    inner: Arc<dyn Acceptor>,
    egress: Arc<Egress>,
    egresses: Arc<Egresses>,
    opened: mpsc::Sender<Incoming>,
    waiting: Mutex<mpsc::Receiver<Incoming>>,
    hubs: FromHubs,
    departure: Departure,
    /// Directory of the fleet; `None` if there are no other grounds.
    neighbours: Option<Arc<Neighbours>>,
}

impl AnchorAcceptor {
    /// Accepts what `inner` accepts. `egress` has the flows of this process, and `egresses` are the
    /// others.
    pub fn new(inner: Arc<dyn Acceptor>, egress: Arc<Egress>, egresses: Arc<Egresses>) -> Self {
        let (opened, waiting) = mpsc::channel(MAX_WAITING);
        let (waiting, departure) = (Mutex::new(waiting), Departure::default());
        let (hubs, neighbours) = (FromHubs::new(HashSet::new()), None);
        Self { inner, egress, egresses, opened, waiting, hubs, departure, neighbours }
    }

    /// Takes flows of the peers with these keys for flows that a hub forwards: each begins with a
    /// [statement](crate::statement).
    #[must_use]
    pub fn with_hubs(self, keys: HashSet<[u8; 32]>) -> Self {
        Self { hubs: FromHubs::new(keys), ..self }
    }

    /// Exchanges the directory of the fleet with grounds that ask for it.
    #[must_use]
    pub fn with_neighbours(self, neighbours: Option<Arc<Neighbours>>) -> Self {
        Self { neighbours, ..self }
    }

    /// Reads the first record of a carrier, and attaches or forwards it.
    fn admit(&self, from: Origin, stream: Box<dyn FlowStream>) {
        let (egress, egresses) = (self.egress.clone(), self.egresses.clone());
        let (opened, departure) = (self.opened.clone(), self.departure.clone());
        let neighbours = self.neighbours.as_ref().map(Arc::downgrade).unwrap_or_default();
        self.departure.spawn(async move {
            let rooms = (&egresses, &departure, neighbours);
            let admitted = admit(&egress, rooms, from, stream).await;
            let Some(new) = admitted else { return };
            // Fails only if the gateway ends. Dropping the flow resets it.
            let _ = opened.send(new).await;
        });
    }

    /// Returns the egress for a flow of datagrams.
    fn egress_of(&self, incoming: &Incoming) -> Result<Chosen, ResetCode> {
        let is_service = matches!(incoming.target.host, Host::Service(_));
        match &incoming.carries {
            Carried::Datagrams { protocol, is_gateway: true, .. }
                if !incoming.is_forwarded && !is_service =>
            {
                self.egresses.choose_for_datagrams(*protocol)
            }
            _ => Ok(Chosen::Here),
        }
    }

    /// Forwards a flow of datagrams to gateway `number`.
    fn forward(&self, number: usize, from: Origin, sent: SentDatagrams) {
        let egresses = self.egresses.clone();
        self.departure.spawn(async move { egresses.forward_datagrams(number, &from, &sent).await });
    }

    /// Returns a flow of datagrams if this gateway carries it, by itself or through a proxy.
    fn datagrams(&self, incoming: Incoming) -> Option<Incoming> {
        let (chosen, from) = (self.egress_of(&incoming), Origin::of(&incoming));
        let Carried::Datagrams { protocol, source, flow, .. } = &incoming.carries else {
            return Some(incoming);
        };
        match chosen {
            Ok(Chosen::Here) => Some(incoming),
            Ok(Chosen::Proxy(number)) => {
                let dialler = Proxied::datagrams(&self.egresses, number, &from, &incoming.target);
                Some(Incoming { dialler: Some(dialler), ..incoming })
            }
            Ok(Chosen::Gateway(number)) => {
                let (protocol, source) = (*protocol, *source);
                let Incoming { target, carries: Carried::Datagrams { flow, .. }, .. } = incoming
                else {
                    return None;
                };
                self.forward(number, from, SentDatagrams { target, protocol, source, flow });
                None
            }
            Err(code) => {
                flow.reset(code);
                None
            }
        }
    }
}

/// Returns the flow that a carrier opens, if it opens one here.
async fn admit(
    egress: &Arc<Egress>,
    (egresses, departure, neighbours): (&Arc<Egresses>, &Departure, Weak<Neighbours>),
    mut from: Origin,
    mut stream: Box<dyn FlowStream>,
) -> Option<Incoming> {
    let (record, first, rest) = begun(&mut *stream).await?;
    if record == Control::Watch {
        departure.watch(stream).await;
        return None;
    }
    if record == Control::Dials {
        report_dials(egress, &from, stream);
        return None;
    }
    if record == Control::Directory {
        exchange_directory(neighbours, &from, stream, rest);
        return None;
    }
    let mut dialler = None;
    if !from.is_forwarded {
        let chosen = egresses.choose(&from, &record, egress.id());
        match (chosen.inspect_err(|code| stream.reset(*code)).ok()?, &record) {
            (Chosen::Gateway(number), _) => {
                let whole = Bytes::from([&first[..], &rest[..]].concat());
                egresses.forward(number, stream, (&from, &record), whole).await;
                return None;
            }
            (Chosen::Proxy(number), Control::Open { target, .. }) => {
                let proxied = Proxied::stream(egresses, number, &from, target);
                dialler = Some(proxied as Arc<dyn Dialler>);
            }
            _ => {}
        }
    }
    let mut flow = match egress.admit(&from.caller, &record, stream, rest) {
        Ok(Admitted::New(flow)) => flow,
        Ok(Admitted::Attached) => return None,
        Err((refusal, mut stream)) => {
            stream.reset(refusal.code());
            return None;
        }
    };
    let Control::Open { target, .. } = record else { return None };
    if from.is_forwarded {
        flow.report_dial(target.clone());
    }
    if let Host::Service(_) = target.host {
        // The ground's own services need no anchor.
        flow.reset(ResetCode::Forbidden);
        return None;
    }
    Some(Incoming {
        aircraft: from.caller.aircraft,
        session: from.caller.session,
        is_forwarded: from.is_forwarded,
        target,
        class: from.class,
        passenger: from.passenger,
        claim: from.claim.take(),
        dialler,
        carries: Carried::Stream(Box::new(flow)),
    })
}

/// Waits for the first record of a carrier. Resets the carrier if there is none.
async fn begun(stream: &mut dyn FlowStream) -> Option<(Control, BytesMut, BytesMut)> {
    match timeout(FIRST_RECORD_TIMEOUT, first_record(stream)).await {
        Ok(Ok(read)) => Some(read),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a carrier without a first record");
            stream.reset(stream.reset_code().unwrap_or(ResetCode::Internal));
            None
        }
        Err(_) => {
            stream.reset(ResetCode::Timeout);
            None
        }
    }
}

/// Reports dials to the hub that asks. It has to be a hub of this egress: an aircraft learns nothing of
/// others' destinations.
fn report_dials(egress: &Arc<Egress>, from: &Origin, mut stream: Box<dyn FlowStream>) {
    if !from.is_forwarded {
        return stream.reset(ResetCode::Forbidden);
    }
    let egress = egress.clone();
    // The hub stays until this process has ended, so nobody waits for this task.
    tokio::spawn(async move { egress.report_dials(stream).await });
}

/// Exchanges the directory with the ground that asks. It speaks for itself, not for an aircraft, so the
/// transport has proven its key.
fn exchange_directory(
    neighbours: Weak<Neighbours>,
    from: &Origin,
    mut stream: Box<dyn FlowStream>,
    rest: BytesMut,
) {
    if from.is_forwarded {
        return stream.reset(ResetCode::Forbidden);
    }
    let at = (from.caller.aircraft, Side::Theirs);
    // It stays until this process has ended, so nobody waits for this task.
    tokio::spawn(async move { Neighbours::talk(neighbours, at, stream, &rest).await });
}

/// Reads the first record of a carrier. Returns it with its bytes, and those that came after it.
async fn first_record(stream: &mut dyn FlowStream) -> io::Result<(Control, BytesMut, BytesMut)> {
    let mut read = BytesMut::with_capacity(MAX_CONTROL_BYTES);
    loop {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        match Control::first(&read).map_err(invalid)? {
            None => {}
            Some((record, length)) if begins(&record) => {
                let rest = read.split_off(length);
                return Ok((record, read, rest));
            }
            Some(_) => {
                let code = read[MARK.len()];
                let why = format!("a carrier does not begin with record {code}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Returns `true` if a carrier may begin with `record`.
fn begins(record: &Control) -> bool {
    use Control::{Dials, Directory, Open, Resume, Watch};
    matches!(record, Open { .. } | Resume { .. } | Watch | Dials | Directory)
}

impl Acceptor for AnchorAcceptor {
    fn accept(&self) -> BoxFuture<'_, Option<Incoming>> {
        Box::pin(async move {
            let mut waiting = self.waiting.lock().await;
            loop {
                let incoming = tokio::select! {
                    incoming = self.inner.accept() => match self.hubs.take(incoming?) {
                        Some(incoming) => incoming,
                        None => continue,
                    },
                    Some(stated) = self.hubs.next() => stated,
                    Some(opened) = waiting.recv() => return Some(opened),
                };
                let is_anchor = incoming.target.host == Host::Service(Service::Anchor);
                let from = Origin::of(&incoming);
                match incoming {
                    Incoming { carries: Carried::Stream(stream), .. } if is_anchor => {
                        self.admit(from, stream);
                    }
                    Incoming { carries: Carried::Datagrams { flow, .. }, .. } if is_anchor => {
                        flow.reset(ResetCode::Forbidden);
                    }
                    incoming => {
                        if let Some(incoming) = self.datagrams(incoming) {
                            return Some(incoming);
                        }
                    }
                }
            }
        })
    }

    fn set_fleet(&self, fleet: &Fleet) -> bool {
        self.inner.set_fleet(fleet)
    }

    fn traffic(&self, aircraft: &PublicKey, max: SnapshotLimits) -> Option<Traffic> {
        self.inner.traffic(aircraft, max)
    }

    fn egresses(&self, target: &Target) -> Vec<EgressStanding> {
        self.egresses.explain(target)
    }

    fn egress_states(&self) -> Vec<EgressState> {
        self.egresses.states()
    }

    fn grounds(&self) -> Vec<GroundStanding> {
        self.neighbours.as_ref().map(|it| it.seen()).unwrap_or_default()
    }

    fn set_load(&self, load: u8) {
        if let Some(neighbours) = &self.neighbours {
            neighbours.set_load(load);
        }
    }

    fn take_refused(&self) -> Refused {
        self.inner.take_refused()
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        self.inner.failed()
    }

    fn pulse(&self) -> Option<u64> {
        self.inner.pulse()
    }

    fn keeps_flows(&self) -> bool {
        self.egress.flows() > 0
    }

    fn begin_handover(&self) {
        self.egress.close();
    }

    fn hand_over(&self) -> Option<Vec<u8>> {
        Some(self.egress.parts().encode())
    }

    fn take_over(&self, flow: &[u8]) -> Option<Box<dyn FlowStream>> {
        let parts = FlowParts::decode(flow);
        let parts = parts.inspect_err(|error| tracing::warn!(%error)).ok()?;
        Some(Box::new(self.egress.adopt(parts)?))
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        if let Some(neighbours) = &self.neighbours {
            neighbours.leave();
        }
        Box::pin(self.departure.begin())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }

    fn transport(&self) -> Transport {
        self.inner.transport()
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.local_addr()
    }
}
