//! Flows that a MASQUE proxy of any maker dials for a hub.
//!
//! Such a proxy knows no aircraft and no tickets. So the hub is the egress of these flows: it admits them,
//! resolves and permits their destinations, and keeps their unconfirmed bytes. The proxy has the place of
//! the hub's own sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::{ResetCode, Target};
use bentpipe_masque::Client;
use bentpipe_net::ip::UDP;
use bentpipe_transport::{Dialler, FlowDatagrams, FlowStream, OpenError};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::forward::{Counted, Egresses};
use crate::origin::Origin;
use crate::preference::Dialled;

/// Class and passenger in requests to a proxy, which gets neither.
const NOBODY: (u8, u32) = (0, 0);

/// A flow whose destination a proxy dials.
pub struct Proxied {
    egresses: Arc<Egresses>,
    /// Number of the proxy among the egresses.
    number: usize,
    who: bentpipe_choice::Passenger,
    target: Target,
    began: Instant,
    /// `true` if the passenger keeps the proxy at the destination after the flow.
    is_pinned: bool,
    _counted: Option<Counted>,
}

impl Proxied {
    /// A stream of `from` to `target` through proxy `number`.
    pub fn stream(
        egresses: &Arc<Egresses>,
        number: usize,
        from: &Origin,
        target: &Target,
    ) -> Arc<Self> {
        Self::new(egresses, number, from, target, true)
    }

    /// A flow of datagrams of `from` to `target` through proxy `number`.
    pub fn datagrams(
        egresses: &Arc<Egresses>,
        number: usize,
        from: &Origin,
        target: &Target,
    ) -> Arc<Self> {
        Self::new(egresses, number, from, target, false)
    }

    fn new(
        egresses: &Arc<Egresses>,
        number: usize,
        from: &Origin,
        target: &Target,
        is_pinned: bool,
    ) -> Arc<Self> {
        let (egresses, who, target) = (egresses.clone(), from.who(), target.clone());
        let (began, _counted) = (Instant::now(), egresses.count(number));
        Arc::new(Self { egresses, number, who, target, began, is_pinned, _counted })
    }

    fn client(&self) -> Option<Arc<Client>> {
        self.egresses.proxy(self.number)
    }

    /// Time of the dial without the way to the proxy, as other egresses report it.
    fn took(&self) -> Duration {
        let rtt = self.egresses.round_trip(self.number).unwrap_or_default();
        self.began.elapsed().saturating_sub(rtt)
    }
}

impl Dialler for Proxied {
    fn connect(
        &self,
        address: SocketAddr,
    ) -> BoxFuture<'_, Result<Box<dyn FlowStream>, ResetCode>> {
        Box::pin(async move {
            let client = self.client().ok_or(ResetCode::Unreachable)?;
            let (class, passenger) = NOBODY;
            let mut flow = client.open(&address.to_string(), class, passenger, Bytes::new());
            match flow.opened().await {
                Ok(()) => Ok(Box::new(flow) as Box<dyn FlowStream>),
                // The proxy is gone, and has no next process that goes on.
                Err(ResetCode::Lost) => Err(ResetCode::Unreachable),
                Err(code) => Err(code),
            }
        })
    }

    fn open_datagrams(&self, address: SocketAddr) -> Result<Box<dyn FlowDatagrams>, OpenError> {
        let down = || OpenError::Down("there is no connection to the proxy".to_owned());
        let (client, (class, passenger)) = (self.client().ok_or_else(down)?, NOBODY);
        let flow = client.open_datagrams(&address.to_string(), UDP, 0, class, passenger);
        Ok(Box::new(flow))
    }

    fn dialled(&self, outcome: Result<(), ResetCode>) {
        let millis = match outcome {
            Ok(()) => Some(u16::try_from(self.took().as_millis()).unwrap_or(u16::MAX)),
            // Nothing answered. Anything else says nothing of the way.
            Err(ResetCode::Timeout | ResetCode::Unreachable) => None,
            Err(_) => return,
        };
        self.egresses.dialled(self.number, Dialled { millis, target: self.target.clone() });
    }
}

impl Drop for Proxied {
    fn drop(&mut self) {
        if self.is_pinned {
            self.egresses.ended_at(self.who, &self.target);
        }
    }
}
