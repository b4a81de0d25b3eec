//! A hub's way to egresses in other processes: HTTP/3 CONNECT.

use std::time::Duration;

use bentpipe_flow::{Claim, Class, Reach, ResetCode, Service, Target};
use bentpipe_masque::{Behalf, Client, ConnectionWatch};
use bentpipe_net::ip::UDP;
use bentpipe_relay::Bridge;
use bentpipe_transport::datagram::Datagram;
use bentpipe_transport::quic::is_quic;
use bentpipe_transport::{FlowDatagrams, FlowStream};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::at_egress::AtEgress;
use crate::registry::Caller;
use crate::ticket::EgressId;
use crate::wire::Control;

/// Origin of a carrier, and what its flow asks for.
pub struct Origin {
    /// The aircraft and its session.
    pub caller: Caller,
    /// `true` if another hub forwards the flow. It is not forwarded again, so that grounds that name
    /// each other as hub and egress do not pass a flow back and forth.
    pub is_forwarded: bool,
    /// Requested class.
    pub class: Class,
    /// Number of the passenger.
    pub passenger: u32,
    /// Class claim that is to be verified.
    pub claim: Option<Claim>,
}

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
    id: EgressId,
    client: watch::Receiver<Option<Client>>,
    /// First failed use since the egress was up.
    missed_at: Mutex<Option<Instant>>,
    /// Last connection that was used.
    connection: Mutex<Option<ConnectionWatch>>,
}

/// Time for which a flow waits for a connection to its egress, as after a restart of either. Its air
/// asks again twice a second meanwhile.
const EGRESS_PATIENCE: Duration = Duration::from_secs(2);

/// Egresses in other processes, the preferred first. New flows are dialled here if there are none.
#[derive(Default)]
pub struct Egresses {
    all: Vec<OtherEgress>,
    quic_in_order: bool,
}

impl Egresses {
    /// Creates the list. `quic_in_order` delivers the QUIC packets of aircraft in the order in which
    /// they were sent.
    pub fn new(all: Vec<OtherEgress>, quic_in_order: bool) -> Self {
        Self { all, quic_in_order }
    }

    /// Returns the egress for a carrier that begins with `record`; `None` if that is `here`.
    ///
    /// A flow that goes on needs its own egress. A new flow goes to the first that is up. If there is
    /// none, the air asks again for a while ([`ResetCode::Lost`]).
    pub fn choose(
        &self,
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
            _ => &self.all[..],
        })
        .map(Some)
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
    /// Reaches the egress with `public_key` through `client`, once that is known.
    pub fn new(public_key: &[u8; 32], client: watch::Receiver<Option<Client>>) -> Self {
        let (missed_at, connection) = (Mutex::default(), Mutex::default());
        Self { id: egress_id(public_key), client, missed_at, connection }
    }

    fn is_up(&self) -> bool {
        let client = self.client.borrow();
        let is_up = client.as_ref().is_some_and(|it| *it.watch_reach().borrow() == Reach::Up);
        if is_up {
            *self.missed_at.lock() = None;
            *self.connection.lock() = client.as_ref().and_then(Client::watch_connection);
        }
        is_up
    }

    /// Returns `true` if the egress, which is down, may be up soon with its flows. Those of an egress
    /// that was silent are taken for dead.
    fn is_awaited(&self) -> bool {
        if self.connection.lock().as_ref().is_some_and(ConnectionWatch::is_dead) {
            return false;
        }
        let missed_at = *self.missed_at.lock().get_or_insert_with(Instant::now);
        missed_at.elapsed() < EGRESS_PATIENCE
    }

    /// Forwards a carrier, of which `first` was read, until it ends.
    pub async fn forward(&self, mut stream: Box<dyn FlowStream>, from: &Origin, first: Bytes) {
        let client = self.client.borrow().clone();
        let Some(client) = client else { return stream.reset(ResetCode::Unreachable) };
        let connection = client.watch_connection();
        let authority = format!("{}:0", Service::Anchor.name());
        let Caller { aircraft, session } = from.caller;
        let flow = client.forward(
            &authority,
            (from.class.to_u8(), from.passenger),
            from.claim.as_ref(),
            &Behalf { aircraft, session },
            first,
        );
        Bridge::new(stream, Box::new(AtEgress::new(flow, connection))).await;
    }
}

impl OtherEgress {
    /// Forwards a flow of datagrams until it ends. With `quic_in_order`, a flow whose first payload is
    /// QUIC's keeps its order.
    async fn forward_datagrams(&self, from: &Origin, sent: &SentDatagrams, quic_in_order: bool) {
        let client = self.client.borrow().clone();
        let Some(client) = client else { return sent.flow.reset(ResetCode::Unreachable) };
        let connection = client.watch_connection();
        let Caller { aircraft, session } = from.caller;
        let far = client.forward_datagrams(
            &sent.target.to_string(),
            (sent.protocol, sent.source),
            (from.class.to_u8(), from.passenger),
            &Behalf { aircraft, session },
        );
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
                            }
                        }
                        let _ = FlowDatagrams::send(&far, &datagram);
                    }
                    Err(code) => return far.reset(code),
                },
                received = FlowDatagrams::receive(&far) => match received {
                    Ok(datagram) => drop(near.send(&datagram)),
                    Err(ResetCode::Lost) if connection.as_ref().is_some_and(|it| it.is_dead()) => {
                        return near.reset(ResetCode::Unreachable);
                    }
                    Err(code) => return near.reset(code),
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
