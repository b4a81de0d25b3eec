//! A request that reached the server, and the ways to answer it.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use h3::error::Code;
use http::{HeaderValue, StatusCode};
use tokio::time::timeout;

use crate::{
    CAPSULE_HEADER, CLASS_HEADER, Claim,
    auth::PublicKey,
    datagrams::{Core, DatagramFlow, router::Way},
    flow::Flow,
    quic::Request,
    refusal::Refusal,
    stream::RawSend,
};

/// Time for which a response may wait for the client's credit, most of which is there from the
/// start: as long as HEADERS may take the other way.
const RESPOND_TIMEOUT: Duration = Duration::from_secs(120);

/// A CONNECT or CONNECT-UDP that awaits its answer; dropping it resets the flow.
pub struct Incoming {
    /// Identity of the client: its proven key, or the identity of its [`crate::Login`].
    pub client: PublicKey,
    /// `true` for a gateway of ours: it has proved a key, and knows our contexts.
    pub is_gateway: bool,
    /// Destination: `host:port`, as the client wrote it.
    pub authority: String,
    /// Payload of the flow.
    pub carries: Carries,
    /// The class the client asks for.
    pub class: u8,
    /// The passenger, by the client's own numbering.
    pub passenger: u32,
    /// Claim of the client about the authority, which is then an address.
    pub claim: Option<Claim>,
    /// The class to answer with, where the claim holds.
    pub confirmed: Option<u8>,
    /// The whole request.
    pub request: http::Request<()>,
    pub(crate) exchange: Exchange,
    /// Our name in `proxy-status`.
    pub(crate) server_name: Arc<str>,
    /// Queue of its datagrams meanwhile.
    pub(crate) datagrams: Option<(Arc<Core>, Way)>,
}

/// Payload of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// A TCP connection's bytes: CONNECT.
    Stream,
    /// Datagrams: CONNECT-UDP.
    Datagrams {
        /// The IP protocol number: 17 for UDP, which is all that a standard client can ask for.
        protocol: u8,
        /// The sender's own port, or 0.
        source: u16,
    },
}

impl Incoming {
    /// Answers 200; the flow's bytes are the body from here on. Fails where the connection is lost,
    /// or where the request is for datagrams.
    pub async fn accept(self) -> io::Result<Flow> {
        if self.datagrams.is_some() {
            let why = "this request is for datagrams: take it with `into_datagrams`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let lost = |_| io::Error::from(io::ErrorKind::ConnectionReset);
        let mut response = answer(StatusCode::OK);
        if let Some(class) = self.confirmed {
            response.headers_mut().insert(CLASS_HEADER, u16::from(class).into());
        }
        let request = self.exchange.request.clone();
        let send = self.exchange.respond(response).await.map_err(lost)?;
        let recv = request.take_recv().ok_or(io::ErrorKind::ConnectionReset)?;
        Ok(Flow::open(send, recv))
    }

    /// The flow of a request for datagrams, not yet answered: [`DatagramFlow::accept`] or its first
    /// use answers 200, a reset before that refuses it. A request for a stream is refused here, and
    /// the flow is over.
    pub fn into_datagrams(mut self) -> DatagramFlow {
        let Some((core, way)) = self.datagrams.take() else {
            tokio::spawn(self.refuse(Refusal::Internal));
            return DatagramFlow::ended(Refusal::Internal);
        };
        let flow = DatagramFlow::new(core.clone());
        tokio::spawn(async move {
            if let Err(why) = core.answered().await {
                core.end(why);
                return self.refuse(why).await;
            }
            let mut response = answer(StatusCode::OK);
            response.headers_mut().insert(CAPSULE_HEADER, HeaderValue::from_static("?1"));
            let request = self.exchange.request.clone();
            let responded = tokio::select! {
                biased;
                _ = core.told() => Err(Refusal::Aborted),
                responded = self.exchange.respond(response) => responded,
            };
            match responded {
                Ok(send) => {
                    let recv = async { request.take_recv().ok_or(Refusal::Aborted) };
                    core.carry(way, send, recv).await;
                }
                Err(why) => core.end(why),
            }
        });
        flow
    }

    /// Refuses the flow.
    pub async fn refuse(self, why: Refusal) {
        let response = refusal(why, &self.server_name);
        self.exchange.finish(response).await;
    }
}

/// A request and the way to answer it.
pub(crate) struct Exchange {
    pub request: Request,
    pub stream: h3::server::RequestStream<Request, Bytes>,
}

impl Exchange {
    /// Sends the response's HEADERS; the body is the caller's. A client that gives its stream no
    /// credit for them is given up.
    async fn respond(self, response: http::Response<()>) -> Result<RawSend, Refusal> {
        timeout(RESPOND_TIMEOUT, self.send(response)).await.unwrap_or(Err(Refusal::Aborted))
    }

    async fn send(mut self, response: http::Response<()>) -> Result<RawSend, Refusal> {
        let sent = self.stream.send_response(response).await;
        sent.map_err(|_| Refusal::Aborted)?;
        let mut send = self.request.take_send().ok_or(Refusal::Aborted)?;
        send.write(self.request.take_held().freeze()).await?;
        Ok(send)
    }

    /// Sends a response without a body and asks for no more of the request (RFC 9114 §4.1).
    pub async fn finish(self, response: http::Response<()>) {
        let request = self.request.clone();
        if let Ok(mut send) = self.respond(response).await {
            send.finish();
            if let Some(mut recv) = request.take_recv() {
                recv.stop(Code::H3_NO_ERROR.value());
            }
        }
    }
}

/// A response without fields.
pub(crate) fn answer(status: StatusCode) -> http::Response<()> {
    let mut response = http::Response::new(());
    *response.status_mut() = status;
    response
}

/// A refusal with its `proxy-status` (RFC 9209), in which we are `name`.
pub(crate) fn refusal(why: Refusal, name: &str) -> http::Response<()> {
    let mut response = answer(why.status());
    if let Ok(value) = format!("{name}; error={}", why.proxy_error()).try_into() {
        response.headers_mut().insert("proxy-status", value);
    }
    response
}
