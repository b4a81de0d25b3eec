//! AeroTCP behind the seam.

use std::net::SocketAddr;

use bentpipe_aerotcp::io::{Air, Flow, Ground};
use bentpipe_flow::ResetCode;
use bentpipe_net::BufferSizes;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::{
    Acceptor, Connector, FlowDatagrams, FlowStream, Incoming, Open, OpenDatagrams, OpenError,
    Reach, Transport,
};

impl Connector for Air {
    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        Box::pin(async move { Ok(Box::new(Air::open(self, open).await?) as Box<dyn FlowStream>) })
    }

    /// Streams alone.
    fn open_datagrams(
        &self,
        _: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
        Box::pin(std::future::ready(Err(OpenError::Unsupported)))
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        Air::watch_reach(self)
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(Air::failed(self))
    }

    fn pulse(&self) -> Option<u64> {
        Some(Air::pulse(self))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(Air::close(self))
    }
}

impl Acceptor for Ground {
    fn accept(&self) -> BoxFuture<'_, Option<Incoming>> {
        Box::pin(async move { Ground::accept(self).await.map(Incoming::from) })
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(Ground::failed(self))
    }

    fn pulse(&self) -> Option<u64> {
        Some(Ground::pulse(self))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(Ground::close(self))
    }

    fn transport(&self) -> Transport {
        Transport::AeroTcp
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Ground::local_addr(self)
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

    /// Section V.B of the paper: the aircraft's sender to the passenger, the ground's receiver from
    /// the server.
    fn local_buffers(&self) -> BufferSizes {
        let rules = self.look(|session| (session.is_air(), session.buffers()));
        match rules {
            Some((true, rules)) => BufferSizes { send: Some(rules.aircraft_send), receive: None },
            Some((false, rules)) => BufferSizes { send: None, receive: Some(rules.ground_receive) },
            None => BufferSizes::default(),
        }
    }
}
