//! The leg between a hub and one egress, over either transport.
//!
//! HTTP/3 has fields for the aircraft of a flow, and any MASQUE server understands the rest. The radio
//! transport has no fields: a [statement](crate::statement) goes before the flow's bytes.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_flow::{Class, Reach, ResetCode};
use bentpipe_masque::{Behalf, Client, ConnectionWatch};
use bentpipe_net::BufferSizes;
use bentpipe_relay::layer::{DatagramLayer, LayeredDatagrams};
use bentpipe_transport::{
    Connector, FlowDatagrams, FlowStream, Open, OpenDatagrams, OpenError, Standing,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use crate::air::anchor;
use crate::origin::Origin;
use crate::registry::Caller;
use crate::statement::{Statement, Stating};

/// A hub's connection to an egress.
pub trait Leg: Send + Sync + 'static {
    /// Opens a stream for the aircraft of `from`, whose first bytes are `first`. If the egress is dead,
    /// the stream ends with [`ResetCode::Unreachable`]: the aircraft need not ask again.
    fn open<'a>(
        &'a self,
        from: &'a Origin,
        first: Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn FlowStream>, OpenError>>;

    /// Opens a stream for the hub itself, whose first bytes are `first`.
    fn open_own(&self, first: Bytes) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>>;

    /// Opens a flow of datagrams for the aircraft of `from`. Its class and passenger are those of
    /// `from`.
    fn open_datagrams<'a>(
        &'a self,
        from: &'a Origin,
        open: OpenDatagrams,
    ) -> BoxFuture<'a, Result<Box<dyn FlowDatagrams>, OpenError>>;

    /// Reachability of the egress.
    fn watch_reach(&self) -> watch::Receiver<Reach>;

    /// State of the path; `None` while there is no connection.
    fn path(&self) -> Option<LegPath>;

    /// Observer of the present connection, also after its end.
    fn connection(&self) -> Option<Box<dyn Connection>>;
}

/// State of the path to an egress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegPath {
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Packets of the connection so far …
    pub packets: u64,
    /// … and those that were lost.
    pub lost: u64,
}

/// One connection.
pub trait Connection: Send + Sync {
    /// Returns `true` if the connection is lost because the egress is silent or has forgotten it. An
    /// egress that closes its connection may hand its flows to the next process.
    fn is_dead(&self) -> bool;
}

impl Connection for ConnectionWatch {
    fn is_dead(&self) -> bool {
        ConnectionWatch::is_dead(self)
    }
}

impl Leg for Client {
    fn open<'a>(
        &'a self,
        from: &'a Origin,
        first: Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn FlowStream>, OpenError>> {
        let (authority, claim) = (anchor().to_string(), from.claim.as_ref());
        let how = (from.class.to_u8(), from.passenger);
        let flow = self.forward(&authority, how, claim, &behalf(from), first);
        Box::pin(async move { Ok(Box::new(flow) as Box<dyn FlowStream>) })
    }

    fn open_own(&self, first: Bytes) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        let authority = anchor().to_string();
        let flow = self.open_claiming(&authority, Class::Network.to_u8(), 0, None, first);
        Box::pin(async move { Ok(Box::new(flow) as Box<dyn FlowStream>) })
    }

    fn open_datagrams<'a>(
        &'a self,
        from: &'a Origin,
        open: OpenDatagrams,
    ) -> BoxFuture<'a, Result<Box<dyn FlowDatagrams>, OpenError>> {
        let (authority, how) = (open.target.to_string(), (from.class.to_u8(), from.passenger));
        let ports = (open.protocol, open.source);
        let flow = self.forward_datagrams(&authority, ports, how, &behalf(from));
        Box::pin(async move { Ok(Box::new(flow) as Box<dyn FlowDatagrams>) })
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        Client::watch_reach(self)
    }

    fn path(&self) -> Option<LegPath> {
        let path = self.stats()?.path;
        Some(LegPath { rtt: path.rtt, packets: path.sent_packets, lost: path.lost_packets })
    }

    fn connection(&self) -> Option<Box<dyn Connection>> {
        self.watch_connection().map(|it| Box::new(it) as Box<dyn Connection>)
    }
}

fn behalf(from: &Origin) -> Behalf {
    let Caller { aircraft, session } = from.caller;
    Behalf { aircraft, session }
}

/// The leg over a transport without fields. Its connector reports silence as [`Reach::Out`].
pub struct StatedLeg {
    connector: Arc<dyn Connector>,
    /// Public key of the hub.
    own: [u8; 32],
    /// Spreads the passengers of all aircraft over the numbers of the leg.
    numbers: RandomState,
}

impl StatedLeg {
    /// Forwards flows of the hub with the public key `own` over `connector`.
    pub fn new(connector: Arc<dyn Connector>, own: [u8; 32]) -> Self {
        Self { connector, own, numbers: RandomState::new() }
    }

    /// Number of the passenger on the leg, where flows of several aircraft take turns.
    fn passenger(&self, from: &Origin) -> u32 {
        self.numbers.hash_one((from.caller.aircraft, from.passenger)) as u32
    }

    /// Ready once the egress is silent.
    fn silence(&self) -> BoxFuture<'static, ()> {
        let mut reach = self.connector.watch_reach();
        Box::pin(async move {
            if reach.wait_for(|reach| *reach == Reach::Out).await.is_err() {
                // The flow ends with the connector.
                std::future::pending().await
            }
        })
    }
}

fn statement(from: &Origin) -> Statement {
    Statement { caller: from.caller, passenger: from.passenger }
}

impl Leg for StatedLeg {
    fn open<'a>(
        &'a self,
        from: &'a Origin,
        first: Bytes,
    ) -> BoxFuture<'a, Result<Box<dyn FlowStream>, OpenError>> {
        let mut bytes = Vec::new();
        statement(from).put(&mut bytes);
        bytes.extend_from_slice(&first);
        let open = Open {
            target: anchor(),
            class: from.class,
            passenger: self.passenger(from),
            claim: from.claim.clone(),
            first: bytes.into(),
        };
        Box::pin(async move {
            let silence = self.silence();
            let flow = self.connector.open(open).await?;
            Ok(Box::new(LegStream { flow, silence, is_dead: false }) as Box<dyn FlowStream>)
        })
    }

    fn open_own(&self, first: Bytes) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        let from = Origin::own(self.own);
        Box::pin(async move { self.open(&from, first).await })
    }

    fn open_datagrams<'a>(
        &'a self,
        from: &'a Origin,
        open: OpenDatagrams,
    ) -> BoxFuture<'a, Result<Box<dyn FlowDatagrams>, OpenError>> {
        let open = OpenDatagrams { class: from.class, passenger: self.passenger(from), ..open };
        Box::pin(async move {
            let reach = self.connector.watch_reach();
            let flow = self.connector.open_datagrams(open).await?;
            let flow = LayeredDatagrams::new(flow, Stating::new(&statement(from)));
            Ok(Box::new(LayeredDatagrams::new(Box::new(flow), Silence(reach))) as _)
        })
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        self.connector.watch_reach()
    }

    fn path(&self) -> Option<LegPath> {
        let rtt = self.connector.round_trip()?;
        let (packets, lost) = self.connector.packets().unwrap_or_default();
        Some(LegPath { rtt, packets, lost })
    }

    fn connection(&self) -> Option<Box<dyn Connection>> {
        Some(Box::new(Silence(self.connector.watch_reach())))
    }
}

/// The silence of an egress: the end of a connection, and a layer that ends a flow of datagrams.
struct Silence(watch::Receiver<Reach>);

impl DatagramLayer for Silence {
    fn receive<'a>(
        &'a self,
        flow: &'a dyn FlowDatagrams,
    ) -> BoxFuture<'a, Result<Bytes, ResetCode>> {
        Box::pin(async {
            let mut reach = self.0.clone();
            tokio::select! {
                received = flow.receive() => received,
                Ok(_) = reach.wait_for(|reach| *reach == Reach::Out) => {
                    flow.reset(ResetCode::Unreachable);
                    Err(ResetCode::Unreachable)
                }
            }
        })
    }
}

impl Connection for Silence {
    fn is_dead(&self) -> bool {
        *self.0.borrow() == Reach::Out
    }
}

/// A stream that ends when the egress is silent.
struct LegStream {
    flow: Box<dyn FlowStream>,
    silence: BoxFuture<'static, ()>,
    is_dead: bool,
}

impl LegStream {
    /// Returns the flow, unless the egress is dead.
    fn alive(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut Box<dyn FlowStream>>> {
        if !self.is_dead && self.silence.as_mut().poll(cx).is_ready() {
            self.is_dead = true;
            self.flow.reset(ResetCode::Unreachable);
        }
        match self.is_dead {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(Pin::new(&mut self.flow)),
        }
    }
}

impl AsyncRead for LegStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.alive(cx)?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for LegStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.alive(cx)?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.alive(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.alive(cx)?.poll_shutdown(cx)
    }
}

impl FlowStream for LegStream {
    fn reset(&mut self, code: ResetCode) {
        self.flow.reset(code);
    }

    fn stop_reading(&mut self, code: ResetCode) {
        self.flow.stop_reading(code);
    }

    fn reset_code(&self) -> Option<ResetCode> {
        if self.is_dead { Some(ResetCode::Unreachable) } else { self.flow.reset_code() }
    }

    fn standing(&self) -> Standing {
        self.flow.standing()
    }

    fn local_buffers(&self) -> BufferSizes {
        self.flow.local_buffers()
    }

    fn demote(&mut self, class: Class) {
        self.flow.demote(class);
    }

    fn class(&self) -> Option<Class> {
        self.flow.class()
    }
}
