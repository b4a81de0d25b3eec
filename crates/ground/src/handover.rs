//! Flows of the previous process.
//!
//! A gateway that stops leaves its anchored TCP flows with the service manager. The next process
//! takes over their connections to servers, and each aircraft's session resumes its flows there.

use std::io;
use std::sync::Arc;

use bentpipe_net::Handover;
use bentpipe_net::handover::LeftFlow;
use bentpipe_relay::flows::{Flows, Kind};
use bentpipe_relay::left::Left;
use bentpipe_transport::Acceptor;

use super::Shared;
use super::left::Owner;

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
        left: LeftFlow,
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
        let owner = Owner { class: permit.class(owner.class), ..owner };
        let relay = left.resume(stream, |tcp, stream| self.relay_of(tcp, stream));
        let (shared, over, request) = (self.clone(), permit.over(), flows.handover().clone());
        flows.spawn(async move {
            over.run_until_cancelled_owned(shared.relay(relay, &owner, permit, &request)).await;
        });
        Ok(())
    }
}
