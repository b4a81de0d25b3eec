//! A hub's way to egresses in other processes: HTTP/3 CONNECT.

use bentpipe_flow::{Claim, Class, Reach, ResetCode, Service};
use bentpipe_masque::{Behalf, Client};
use bentpipe_relay::Bridge;
use bentpipe_transport::FlowStream;
use bytes::Bytes;
use tokio::sync::watch;

use crate::registry::Caller;
use crate::ticket::EgressId;
use crate::wire::Control;

/// Origin of a carrier, and what its flow asks for.
pub struct From {
    /// The aircraft and its session.
    pub caller: Caller,
    /// Requested class.
    pub class: Class,
    /// Number of the passenger.
    pub passenger: u32,
    /// Class claim that is to be verified.
    pub claim: Option<Claim>,
}

/// An egress in another process.
pub struct OtherEgress {
    id: EgressId,
    client: watch::Receiver<Option<Client>>,
}

/// Egresses in other processes, the preferred first. New flows are dialled here if there are none.
#[derive(Default)]
pub struct Egresses(Vec<OtherEgress>);

impl Egresses {
    /// Creates the list.
    pub fn new(egresses: Vec<OtherEgress>) -> Self {
        Self(egresses)
    }

    /// Returns the egress for a carrier that begins with `record`; `None` if that is `here`.
    ///
    /// A flow that goes on needs its own egress. A new flow goes to the first that is up.
    pub fn choose(
        &self,
        record: &Control,
        here: EgressId,
    ) -> Result<Option<&OtherEgress>, ResetCode> {
        let found = match record {
            Control::Resume { ticket, .. } if ticket.egress() == here => return Ok(None),
            Control::Resume { ticket, .. } => self.0.iter().find(|it| it.id == ticket.egress()),
            _ if self.0.is_empty() => return Ok(None),
            _ => self.0.iter().find(|it| it.is_up()),
        };
        // An egress that a ticket only pretends to be from is as unreachable as one that is down.
        let found = found.filter(|it| it.is_up());
        found.map(Some).ok_or(ResetCode::Unreachable)
    }
}

impl OtherEgress {
    /// Reaches the egress with `public_key` through `client`, once that is known.
    pub fn new(public_key: &[u8; 32], client: watch::Receiver<Option<Client>>) -> Self {
        Self { id: egress_id(public_key), client }
    }

    fn is_up(&self) -> bool {
        let client = self.client.borrow();
        client.as_ref().is_some_and(|client| *client.watch_reach().borrow() == Reach::Up)
    }

    /// Forwards a carrier, of which `first` was read, until it ends.
    pub async fn forward(&self, mut stream: Box<dyn FlowStream>, from: &From, first: Bytes) {
        let client = self.client.borrow().clone();
        let Some(client) = client else { return stream.reset(ResetCode::Unreachable) };
        let authority = format!("{}:0", Service::Anchor.name());
        let Caller { aircraft, session } = from.caller;
        let flow = client.forward(
            &authority,
            (from.class.to_u8(), from.passenger),
            from.claim.as_ref(),
            &Behalf { aircraft, session },
            first,
        );
        Bridge::new(stream, Box::new(flow)).await;
    }
}

/// Number of the egress with this public key.
pub fn egress_id(public_key: &[u8; 32]) -> EgressId {
    let mut id = [0; 8];
    id.copy_from_slice(&public_key[..8]);
    id
}
