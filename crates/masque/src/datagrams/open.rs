//! A client's datagram flows.

use bytes::Bytes;
use http::uri::Authority;
use tokio::{sync::watch, time::timeout};

use super::{Core, DatagramFlow, UDP, UNKNOWN_MOST, router::Way};
use crate::{
    CAPSULE_HEADER, CLASS_HEADER, CONNECT_UDP, PASSENGER_HEADER, PROTOCOL_HEADER, SOURCE_HEADER,
    client::{Client, Response, State, final_response, live, start},
    quic::Request,
    refusal::Refusal,
    stream::RawSend,
    template::Target,
    tls, wire,
};

impl Client {
    /// Opens a flow of datagrams to `authority` (`host:port`) and returns at once.
    ///
    /// `protocol` is the IP protocol number, 17 for UDP; others are understood by gateways of ours
    /// only. `source` is the sender's own port, or 0. The request leaves as soon as there is a
    /// connection, and datagrams follow it without awaiting the answer; a refusal ends the flow.
    /// `class` and `passenger` are for the far end's scheduler.
    pub fn open_datagrams(
        &self,
        authority: &str,
        protocol: u8,
        source: u16,
        class: u8,
        passenger: u32,
    ) -> DatagramFlow {
        let core = Core::opening(self.ledger.clone(), self.early_most());
        let target = Target::from_authority(authority)
            .filter(|target| protocol != UDP || target.port() != 0);
        match (target, self.opening.clone().try_acquire_owned()) {
            (Some(target), Ok(permit)) => {
                let asked = Asked { target, protocol, source, class, passenger };
                let (state, limit, core) = (self.state.clone(), self.open_timeout, core.clone());
                tokio::spawn(async move {
                    let begun = tokio::select! {
                        biased;
                        _ = core.told() => Err(Refusal::Aborted),
                        begun = timeout(limit, begin(state, &asked, &core)) =>
                            begun.unwrap_or(Err(Refusal::Unreachable)),
                    };
                    drop(permit);
                    match begun {
                        Ok(begun) => begun.carry(&core).await,
                        Err(why) => core.end(why),
                    }
                });
            }
            (None, _) => core.end(Refusal::Internal),
            (_, Err(_)) => core.end(Refusal::Limit),
        }
        DatagramFlow::new(core)
    }

    /// Datagrams of all flows that were dropped here for want of room, or because they made no
    /// sense.
    pub fn datagrams_dropped(&self) -> u64 {
        self.ledger.dropped()
    }

    /// Maximum size before the flow's stream is open: the path's present maximum, less the longest
    /// stream id.
    fn early_most(&self) -> usize {
        match &*self.state.borrow() {
            State::Up(live) => {
                live.conn.max_datagram_size().map_or(UNKNOWN_MOST, |most| most.saturating_sub(8))
            }
            State::Down(_) => UNKNOWN_MOST,
        }
    }
}

/// Content of a request.
struct Asked {
    target: Target,
    protocol: u8,
    source: u16,
    class: u8,
    passenger: u32,
}

impl Asked {
    fn headers(&self) -> Bytes {
        let path = self.target.path();
        let (class, passenger) = (self.class.to_string(), self.passenger.to_string());
        let (protocol, source) = (self.protocol.to_string(), self.source.to_string());
        let mut fields = vec![
            (":method", "CONNECT"),
            (":protocol", CONNECT_UDP),
            (":scheme", "https"),
            (":authority", tls::SERVER_NAME),
            (":path", &path),
            (CAPSULE_HEADER, "?1"),
            (CLASS_HEADER, &class),
            (PASSENGER_HEADER, &passenger),
        ];
        if self.protocol != UDP {
            fields.push((PROTOCOL_HEADER, &protocol));
        }
        if self.source != 0 {
            fields.push((SOURCE_HEADER, &source));
        }
        wire::headers(&fields)
    }
}

/// A request that has been sent.
struct Begun {
    request: Request,
    response: Response,
    send: RawSend,
    way: Way,
}

async fn begin(
    state: watch::Receiver<State>,
    asked: &Asked,
    core: &Core,
) -> Result<Begun, Refusal> {
    let mut live = live(state).await?;
    // RFC 9220 §3: not before the server has said that it knows this.
    let peer = &mut live.peer;
    peer.wait_for(|peer| peer.extended_connect).await.map_err(|_| Refusal::Unreachable)?;
    let authority = Authority::from_static(tls::SERVER_NAME);
    let connect = http::Request::connect(authority).body(()).map_err(|_| Refusal::Internal)?;
    let (response, request, mut send) = start(&mut live, connect).await?;
    let way = live.router.register(response.id().into_inner(), core.inbox.clone());
    send.write(asked.headers()).await?;
    Ok(Begun { request, response, send, way })
}

impl Begun {
    async fn carry(self, core: &Core) {
        let Begun { request, mut response, send, way } = self;
        let recv = async {
            final_response(&mut response).await?;
            request.take_recv().ok_or(Refusal::Internal)
        };
        core.carry(way, send, recv).await;
    }
}
