//! Clients' connections of the previous process.

use std::io;
use std::sync::Arc;

use bentpipe_flow::ResetCode;
use bentpipe_net::Handover;
use bentpipe_net::handover::LeftFlow;
use bentpipe_relay::Relay;
use bentpipe_relay::left::Left;
use bentpipe_schedule::Class;

use crate::Uplink;
use crate::passengers::Kind;

impl Uplink {
    /// Goes on with the connections that the previous process has left. Those of clients that have
    /// gone are reset.
    pub fn take_over(self: &Arc<Self>, previous: Handover) {
        let (all, mut taken) = (previous.flows.len(), 0);
        for left in previous.flows {
            match self.take_over_flow(left) {
                Ok(()) => taken += 1,
                Err(error) => tracing::warn!(%error, "a flow of the previous process ends"),
            }
        }
        tracing::info!(flows = taken, of = all, "taken over from the previous process");
    }

    fn take_over_flow(self: &Arc<Self>, left: LeftFlow) -> io::Result<()> {
        let left = Left::take(left)?;
        let class = left.owner.first().and_then(|byte| Class::from_u8(*byte));
        let class = class.ok_or_else(|| io::Error::other("no such class"))?;
        let client = left.socket().peer_addr()?.ip();
        let flow = self.connector.take_over(&left.flow);
        let mut flow = flow.ok_or_else(|| io::Error::other("its state is not usable"))?;
        // It was admitted before, so it counts for no rate.
        let newcomer = self.newcomer(client, true).without_rate();
        let permit = self.passengers.admit(newcomer, Kind::Streams);
        let Some(permit) = permit else {
            flow.reset(ResetCode::Limit);
            return Err(io::Error::other("its client has too many flows"));
        };
        let owner = left.owner.clone();
        let relay = left.resume(flow, |tcp, flow| {
            Relay::new(tcp, flow, Vec::new(), self.limits.relay(), self.counters.clone())
        });
        let relay = relay
            .with_meter(self.meter(&permit, class))
            .with_police(self.ceiling.of(class, permit.number))
            .with_activity(permit.activity());
        let (uplink, over) = (self.clone(), permit.over());
        self.flows.spawn(async move {
            over.run_until_cancelled_owned(uplink.relay(relay, &owner, &permit)).await;
        });
        Ok(())
    }
}
