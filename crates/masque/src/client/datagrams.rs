//! Datagram flows of a client.

use std::sync::Arc;

use bentpipe_flow::ResetCode;
use bytes::Bytes;
use http::uri::Authority;
use tokio::{sync::watch, time::timeout};

use super::{
    Client,
    connection::{Live, Response, State, final_response, live, start},
};
use crate::{
    AIRCRAFT_HEADER, Behalf, CAPSULE_HEADER, CLASS_HEADER, CONNECT_UDP, PASSENGER_HEADER,
    PROTOCOL_HEADER, SOURCE_HEADER,
    datagrams::{Core, DatagramFlow, UDP, UNKNOWN_MAX_BYTES, router::Route},
    denials::Denials,
    quic::Request,
    stream::RawSend,
    template::Target,
    tls, wire,
};

impl Client {
    /// Opens a datagram flow to `authority` (`host:port`) and returns at once.
    ///
    /// `protocol` is the IP protocol number, 17 for UDP. Only Bentpipe gateways understand others.
    /// `source` is the sender's port, or 0. The request is sent as soon as there is a connection.
    /// Datagrams follow without waiting for the response, and a refusal ends the flow. `class` and
    /// `passenger` are for the peer's scheduler.
    pub fn open_datagrams(
        &self,
        authority: &str,
        protocol: u8,
        source: u16,
        class: u8,
        passenger: u32,
    ) -> DatagramFlow {
        self.request_datagrams(authority, (protocol, source), (class, passenger), None)
    }

    /// Opens a datagram flow like [`open_datagrams`](Self::open_datagrams) for an aircraft, of which
    /// this client is the hub. It carries datagrams of any size: those that exceed the path MTU travel
    /// as capsules.
    pub fn forward_datagrams(
        &self,
        authority: &str,
        (protocol, source): (u8, u16),
        (class, passenger): (u8, u32),
        behalf: &Behalf,
    ) -> DatagramFlow {
        let behalf = Some(behalf.write());
        self.request_datagrams(authority, (protocol, source), (class, passenger), behalf)
    }

    fn request_datagrams(
        &self,
        authority: &str,
        (protocol, source): (u8, u16),
        (class, passenger): (u8, u32),
        behalf: Option<String>,
    ) -> DatagramFlow {
        let core = Core::opening(self.budget.clone(), self.early_max_bytes(), behalf.is_some());
        let target = Target::from_authority(authority)
            .filter(|target| protocol != UDP || target.port() != 0);
        match (target, self.opening.clone().try_acquire_owned()) {
            (Some(target), Ok(permit)) => {
                let flow = DatagramRequest { target, protocol, source, class, passenger, behalf };
                let (state, limit, core) = (self.state.clone(), self.open_timeout, core.clone());
                tokio::spawn(async move {
                    let begun = tokio::select! {
                        biased;
                        _ = core.closed() => Err(ResetCode::Aborted),
                        begun = timeout(limit, begin(state, &flow, &core)) =>
                            begun.unwrap_or(Err(ResetCode::Unreachable)),
                    };
                    drop(permit);
                    match begun {
                        Ok(begun) => begun.carry(&core).await,
                        Err(why) => core.end(why),
                    }
                });
            }
            (None, _) => core.end(ResetCode::Internal),
            (_, Err(_)) => core.end(ResetCode::Limit),
        }
        DatagramFlow::new(core)
    }

    /// Number of datagrams of all flows that were dropped, because a queue was full or they were
    /// malformed.
    pub fn datagrams_dropped(&self) -> u64 {
        self.budget.dropped()
    }

    /// Maximum size before the flow's stream is open: the path's present maximum, minus the longest
    /// stream id.
    fn early_max_bytes(&self) -> usize {
        match &*self.state.borrow() {
            State::Up(live) => live
                .conn
                .max_datagram_size()
                .map_or(UNKNOWN_MAX_BYTES, |most| most.saturating_sub(8)),
            State::Down(_) => UNKNOWN_MAX_BYTES,
        }
    }
}

/// A request for a datagram flow.
struct DatagramRequest {
    target: Target,
    protocol: u8,
    source: u16,
    class: u8,
    passenger: u32,
    behalf: Option<String>,
}

impl DatagramRequest {
    fn headers(&self, live: &Live) -> Bytes {
        let (path, server) = (self.target.path(), live.server_authority());
        let (class, passenger) = (self.class.to_string(), self.passenger.to_string());
        let (protocol, source) = (self.protocol.to_string(), self.source.to_string());
        let mut fields = vec![
            (":method", "CONNECT"),
            (":protocol", CONNECT_UDP),
            (":scheme", "https"),
            (":authority", &server),
            (":path", &path),
            (CAPSULE_HEADER, "?1"),
        ];
        fields.extend(live.authorization());
        if live.proxy.is_some() {
            return wire::headers(&fields);
        }
        fields.extend([(CLASS_HEADER, &*class), (PASSENGER_HEADER, &*passenger)]);
        if self.protocol != UDP {
            fields.push((PROTOCOL_HEADER, &protocol));
        }
        if self.source != 0 {
            fields.push((SOURCE_HEADER, &source));
        }
        fields.extend(self.behalf.as_deref().map(|behalf| (AIRCRAFT_HEADER, behalf)));
        wire::headers(&fields)
    }
}

/// A sent request.
struct SentRequest {
    request: Request,
    response: Response,
    send: RawSend,
    route: Route,
    denials: Arc<Denials>,
}

async fn begin(
    state: watch::Receiver<State>,
    flow: &DatagramRequest,
    core: &Core,
) -> Result<SentRequest, ResetCode> {
    let mut live = live(state).await?;
    if live.proxy.is_some() && flow.protocol != UDP {
        return Err(ResetCode::Forbidden);
    }
    // The server must have announced support (RFC 9220 §3).
    let peer = &mut live.peer;
    peer.wait_for(|peer| peer.extended_connect).await.map_err(|_| ResetCode::Unreachable)?;
    let authority = Authority::from_static(tls::SERVER_NAME);
    let connect = http::Request::connect(authority).body(()).map_err(|_| ResetCode::Internal)?;
    let (response, request, mut send) = start(&mut live, connect).await?;
    let route = live.router.register(response.id().into_inner(), core.inbox.clone());
    send.write(flow.headers(&live)).await?;
    Ok(SentRequest { request, response, send, route, denials: live.denials })
}

impl SentRequest {
    async fn carry(self, core: &Core) {
        let SentRequest { request, mut response, send, route, denials } = self;
        let recv = async {
            final_response(&mut response, &denials).await?;
            request.take_recv().ok_or(ResetCode::Internal)
        };
        core.carry(route, send, recv).await;
    }
}
