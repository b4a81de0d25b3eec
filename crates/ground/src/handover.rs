//! Flows of the previous process, and those for the next.
//!
//! A gateway that stops leaves its anchored TCP flows with the service manager. The next process
//! takes over their connections to servers, and each aircraft's session resumes its flows there.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bentpipe_flow::Target;
use bentpipe_link::Class;
use bentpipe_net::Handover;
use bentpipe_relay::Relay;
use bentpipe_relay::flows::{Flows, Kind};
use bentpipe_relay::handover::{self, Left, Store};
use bentpipe_transport::{Acceptor, FlowStream};
use bytes::{Buf, BufMut, TryGetError};
use tokio::net::TcpStream;

use super::Shared;

/// Owner of a flow.
#[derive(Debug, PartialEq, Eq)]
pub struct Owner {
    pub aircraft: [u8; 32],
    pub passenger: u32,
    pub class: Class,
    pub target: Target,
}

impl Owner {
    /// Encodes the owner for the next process.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoded = self.aircraft.to_vec();
        encoded.put_u32(self.passenger);
        encoded.put_u8(self.class as u8);
        // A target that was dialled has an encoding.
        let _ = self.target.encode(&mut encoded);
        encoded
    }

    fn decode(mut bytes: &[u8]) -> io::Result<Self> {
        let short = |error: TryGetError| io::Error::other(error);
        let mut aircraft = [0; 32];
        bytes.try_copy_to_slice(&mut aircraft).map_err(short)?;
        let passenger = bytes.try_get_u32().map_err(short)?;
        let class = Class::from_u8(bytes.try_get_u8().map_err(short)?);
        let class = class.ok_or_else(|| io::Error::other("no such class"))?;
        let (target, _) = Target::decode(bytes).map_err(io::Error::other)?;
        Ok(Self { aircraft, passenger, class, target })
    }
}

/// Leaves all anchored flows with the service manager by `store`. All others are reset.
pub async fn leave(acceptors: &[Arc<dyn Acceptor>], flows: &Flows, store: &Store) {
    acceptors.iter().for_each(|from| from.begin_handover());
    let flows = flows.hand_over().await;
    if let Some(gateway) = acceptors.iter().find_map(|from| from.hand_over()) {
        handover::leave(gateway, flows, store);
    }
}

impl Shared {
    /// Goes on with what the previous process has left.
    pub(super) fn take_over(
        self: &Arc<Self>,
        handover: Handover,
        acceptors: &[Arc<dyn Acceptor>],
        flows: &Flows,
    ) {
        // Any of them reaches the egress, which they share.
        let Some(from) = acceptors.first() else { return };
        let (all, mut taken) = (handover.flows.len(), 0);
        for left in handover.flows {
            match self.take_over_flow(left, from.as_ref(), flows) {
                Ok(()) => taken += 1,
                Err(error) => tracing::warn!(%error, "a flow of the previous process ends"),
            }
        }
        tracing::info!(flows = taken, of = all, "taken over from the previous process");
    }

    fn take_over_flow(
        self: &Arc<Self>,
        left: (OwnedFd, Vec<u8>),
        from: &dyn Acceptor,
        flows: &Flows,
    ) -> io::Result<()> {
        let left = Left::take(left)?;
        let owner = Owner::decode(&left.owner)?;
        let stream = from.take_over(&left.flow);
        let mut stream = stream.ok_or_else(|| io::Error::other("its state is not usable"))?;
        let permit = match self.fleet.admit_again(&owner.aircraft, Kind::Streams, owner.passenger) {
            Ok(permit) => permit,
            Err(code) => {
                stream.reset(code);
                return Err(io::Error::other(code));
            }
        };
        let class = permit.class(owner.class);
        let (shared, over, request) = (self.clone(), permit.over(), flows.handover().clone());
        let police = permit.police(class, owner.passenger);
        let activity = permit.activity();
        let relay = move |tcp: TcpStream, stream: Box<dyn FlowStream>| {
            Relay::new(tcp, stream, Vec::new(), shared.relay, shared.counters.clone())
                .with_police(police)
                .with_activity(activity)
        };
        let relay = left.resume(stream, relay);
        let owner = Owner { class, ..owner };
        flows.spawn(async move {
            let owner = owner.encode();
            let relaying = relay.run(&request, &owner);
            over.run_until_cancelled_owned(relaying).await;
            drop(permit);
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_flow_is_read_as_it_was_written() {
        let target: Target = "origin.test:443".parse().unwrap();
        let owner = Owner { aircraft: [7; 32], passenger: 9, class: Class::BestEffort, target };
        let encoded = owner.encode();
        for short in 0..encoded.len() {
            assert!(Owner::decode(&encoded[..short]).is_err(), "{short} bytes");
        }
        assert_eq!(Owner::decode(&encoded).unwrap(), owner);
    }
}
