//! The radio transport behind the seam.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_flow::{ResetCode, Traffic};
use bentpipe_link::io::{
    self, Air, Arrived, DatagramFlow, Flow, Hub, IncomingDatagrams, SendError,
};
use bentpipe_link::{
    Class, ClassSettings, Flows, ModemRate, OpenError as LinkError, PerClass, PublicKey, Refused,
    SettingsError, SnapshotLimits,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::{
    Acceptor, Carried, Connector, DatagramError, Fleet, FlowDatagrams, FlowStream, Incoming, Open,
    OpenDatagrams, OpenError, Outages, Reach, Standing, Transport,
};

impl From<LinkError> for OpenError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::TooManyFlows(_) => Self::Full,
            LinkError::Target(error) => Self::Target(error),
            LinkError::NotConnected => Self::Down(error.to_string()),
        }
    }
}

impl Connector for Air {
    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        Box::pin(async move { Ok(Box::new(Air::open(self, open).await?) as Box<dyn FlowStream>) })
    }

    fn open_datagrams(
        &self,
        open: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
        Box::pin(async move {
            let opened = Air::open_datagrams(self, open).await?;
            Ok(Box::new(opened) as Box<dyn FlowDatagrams>)
        })
    }

    fn modem_rate(&self, path: u8, reported: Option<ModemRate>) {
        self.set_modem_rate(path, reported);
    }

    fn set_classes(&self, classes: PerClass<ClassSettings>) -> Result<(), SettingsError> {
        Air::set_classes(self, classes)
    }

    fn traffic(&self, most: SnapshotLimits) -> Option<Traffic> {
        Air::traffic(self, most)
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        Air::watch_reach(self)
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(Air::failed(self))
    }

    fn take_refused(&self) -> Refused {
        Air::take_refused(self)
    }

    fn pulse(&self) -> Option<u64> {
        Some(Air::pulse(self))
    }

    fn round_trip(&self) -> Option<Duration> {
        Air::round_trip(self)
    }

    fn is_doubtful(&self) -> bool {
        Air::is_doubtful(self)
    }

    fn packets(&self) -> Option<(u64, u64)> {
        Air::counters(self).map(|counters| (counters.packets_judged, counters.packets_lost))
    }

    fn outages(&self) -> Outages {
        let (now, all) = Air::outages(self);
        Outages { now, all }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(Air::close(self))
    }
}

impl FlowStream for Flow {
    fn reset(&mut self, code: ResetCode) {
        Flow::reset(self, code);
    }

    fn stop_reading(&mut self, code: ResetCode) {
        Flow::stop_reading(self, code);
    }

    fn reset_code(&self) -> Option<ResetCode> {
        Flow::reset_code(self)
    }

    fn standing(&self) -> Standing {
        let (unheard, unsent_bytes) = (self.unheard(), self.unsent_bytes());
        Standing { unheard, unsent_bytes, unopened: self.unopened() }
    }

    fn confirm_class(&mut self, class: Class) {
        self.confirm(class);
    }

    fn demote(&mut self, class: Class) {
        Flow::demote(self, class);
    }

    fn class(&self) -> Option<Class> {
        self.confirmed()
    }
}

impl FlowDatagrams for DatagramFlow {
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        DatagramFlow::send(self, datagram).map_err(|error| match error {
            SendError::TooLarge { max } => DatagramError::TooLarge { max_bytes: max },
            SendError::Ended(_) => DatagramError::Ended,
        })
    }

    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        Box::pin(DatagramFlow::receive(self))
    }

    fn max_bytes(&self) -> usize {
        self.max_bytes()
    }

    fn provisioned_max_bytes(&self) -> usize {
        DatagramFlow::provisioned_max_bytes(self)
    }

    fn keep_order(&self) {
        DatagramFlow::keep_order(self);
    }

    fn reset(&self, code: ResetCode) {
        DatagramFlow::reset(self, code);
    }
}

impl From<IncomingDatagrams> for Incoming {
    fn from(incoming: IncomingDatagrams) -> Self {
        let IncomingDatagrams { aircraft, session, open, flow } = incoming;
        let OpenDatagrams { target, protocol, source, class, passenger } = open;
        let carries =
            Carried::Datagrams { protocol, source, is_gateway: true, flow: Box::new(flow) };
        let aircraft = *aircraft.as_bytes();
        Self {
            aircraft,
            session,
            is_forwarded: false,
            target,
            class,
            passenger,
            claim: None,
            dialler: None,
            carries,
        }
    }
}

impl<S: Flows> From<io::Incoming<S>> for Incoming
where
    io::Flow<S>: FlowStream,
{
    fn from(incoming: io::Incoming<S>) -> Self {
        let io::Incoming { aircraft, session, target, class, passenger, claim, flow } = incoming;
        let aircraft = *aircraft.as_bytes();
        let carries = Carried::Stream(Box::new(flow));
        let dialler = None;
        Self {
            aircraft,
            session,
            is_forwarded: false,
            target,
            class,
            passenger,
            claim,
            dialler,
            carries,
        }
    }
}

impl Acceptor for Hub {
    fn accept(&self) -> BoxFuture<'_, Option<Incoming>> {
        Box::pin(async move {
            Some(match Hub::accept(self).await? {
                Arrived::Stream(incoming) => incoming.into(),
                Arrived::Datagrams(incoming) => incoming.into(),
            })
        })
    }

    fn set_fleet(&self, fleet: &Fleet) -> bool {
        self.set_memory(fleet.memory);
        let peers = [&fleet.aircraft[..], &fleet.hubs].concat();
        Hub::set_fleet(self, peers, fleet.beam);
        true
    }

    fn traffic(&self, aircraft: &PublicKey, most: SnapshotLimits) -> Option<Traffic> {
        Hub::traffic(self, aircraft, most)
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(Hub::failed(self))
    }

    fn take_refused(&self) -> Refused {
        Hub::take_refused(self)
    }

    fn pulse(&self) -> Option<u64> {
        Some(Hub::pulse(self))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(Hub::close(self))
    }

    fn transport(&self) -> Transport {
        Transport::Link
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Hub::local_addr(self)
    }
}
