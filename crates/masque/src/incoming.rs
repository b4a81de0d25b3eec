//! Requests that reached the server, and their responses.

use std::{io, sync::Arc, time::Duration};

use bentpipe_flow::{Claim, ResetCode};
use bytes::Bytes;
use h3::error::Code;
use http::{HeaderValue, StatusCode};
use tokio::time::timeout;

use crate::{
    CAPSULE_HEADER, CLASS_HEADER,
    auth::PublicKey,
    datagrams::{Core, DatagramFlow, router::Route},
    flow::{Accepted, Flow},
    quic::Request,
    stream::{RawRecv, RawSend},
};

/// Maximum time that a response waits for the client's credit, most of which is granted at the
/// start. Equal to the limit for HEADERS in the other direction.
const RESPOND_TIMEOUT: Duration = Duration::from_secs(120);

/// A CONNECT or CONNECT-UDP request that awaits its response. Dropping it resets the flow.
pub struct Incoming {
    /// Identity of the client: its proven key, or the identity of its [`crate::Login`]. For a request
    /// that a hub forwards, the key of the aircraft.
    pub client: PublicKey,
    /// Counter of the aircraft's session with the hub that forwards the request; otherwise 0.
    pub session: u64,
    /// `true` if a hub forwards the request for an aircraft.
    pub is_forwarded: bool,
    /// `true` for a gateway: it has proved a key, and understands our extensions.
    pub is_gateway: bool,
    /// Destination as the client wrote it: `host:port`.
    pub authority: String,
    /// Payload of the flow.
    pub payload: Payload,
    /// Class that the client asks for.
    pub class: u8,
    /// Passenger, numbered by the client.
    pub passenger: u32,
    /// Class claim of the client. The authority is then an address.
    pub claim: Option<Claim>,
    /// The whole request.
    pub request: http::Request<()>,
    pub(crate) exchange: Exchange,
    /// Our name in `proxy-status`.
    pub(crate) server_name: Arc<str>,
    /// Received datagrams of the flow.
    pub(crate) datagrams: Option<(Arc<Core>, Route)>,
}

/// Payload of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A byte stream over TCP: CONNECT.
    Stream,
    /// Datagrams: CONNECT-UDP.
    Datagrams {
        /// IP protocol number: 17 for UDP, the only one that standard clients can request.
        protocol: u8,
        /// Source port of the sender, or 0.
        source: u16,
    },
}

impl Incoming {
    /// Responds with 200. The rest of the stream carries the flow's bytes. Fails if the connection
    /// is lost, or if the request is for datagrams.
    pub async fn accept(self) -> io::Result<Flow> {
        if self.datagrams.is_some() {
            let why = "this request is for datagrams: take it with `into_datagrams`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        match self.respond(None).await {
            Ok((send, recv)) => Ok(Flow::open(send, recv)),
            Err(_) => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// Responds with 200, and with the class that was confirmed.
    async fn respond(self, class: Option<u8>) -> Result<(RawSend, RawRecv), ResetCode> {
        let mut response = answer(StatusCode::OK);
        if let Some(class) = class {
            response.headers_mut().insert(CLASS_HEADER, u16::from(class).into());
        }
        let request = self.exchange.request.clone();
        let send = self.exchange.respond(response).await?;
        Ok((send, request.take_recv().ok_or(ResetCode::Aborted)?))
    }

    /// Turns the request into a flow that is not answered yet. [`Flow::accept`] or its first use
    /// responds with 200; a reset before that refuses it. The payload has to be a stream.
    pub fn into_stream(self) -> Flow {
        let (flow, mut opening, answered) = Flow::unanswered();
        tokio::spawn(async move {
            let class = match answered.await {
                Ok(Ok(class)) => class,
                Ok(Err(why)) => return self.refuse(why).await,
                // The flow was dropped. Dropping the request resets it.
                Err(_) => return,
            };
            let responded = tokio::select! {
                biased;
                () = opening.send.closed() => return,
                responded = self.respond(class) => responded,
            };
            match responded {
                Ok((send, stream)) => {
                    // If the flow is gone, dropping the halves resets the stream.
                    let _ = opening.send.send(Ok(send));
                    let _ = opening.recv.send(Ok(Accepted { stream, class }));
                }
                Err(_) => opening.fail(ResetCode::Lost),
            }
        });
        flow
    }

    /// Turns the request into a datagram flow that is not answered yet. [`DatagramFlow::accept`] or
    /// its first use responds with 200; a reset before that refuses it. A request for a stream is
    /// refused, and the returned flow has ended.
    pub fn into_datagrams(mut self) -> DatagramFlow {
        let Some((core, way)) = self.datagrams.take() else {
            tokio::spawn(self.refuse(ResetCode::Internal));
            return DatagramFlow::ended(ResetCode::Internal);
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
                _ = core.closed() => Err(ResetCode::Aborted),
                responded = self.exchange.respond(response) => responded,
            };
            match responded {
                Ok(send) => {
                    let recv = async { request.take_recv().ok_or(ResetCode::Aborted) };
                    core.carry(way, send, recv).await;
                }
                Err(why) => core.end(why),
            }
        });
        flow
    }

    /// Refuses the request.
    pub async fn refuse(self, why: ResetCode) {
        let response = refusal(why, &self.server_name);
        self.exchange.finish(response).await;
    }
}

/// A request, and the stream for its response.
pub(crate) struct Exchange {
    pub request: Request,
    pub stream: h3::server::RequestStream<Request, Bytes>,
}

impl Exchange {
    /// Sends the response's HEADERS. Gives up if the client grants no credit for them. The body is
    /// left to the caller.
    async fn respond(self, response: http::Response<()>) -> Result<RawSend, ResetCode> {
        timeout(RESPOND_TIMEOUT, self.send(response)).await.unwrap_or(Err(ResetCode::Aborted))
    }

    async fn send(mut self, response: http::Response<()>) -> Result<RawSend, ResetCode> {
        let sent = self.stream.send_response(response).await;
        sent.map_err(|_| ResetCode::Aborted)?;
        let mut send = self.request.take_send().ok_or(ResetCode::Aborted)?;
        send.write(self.request.take_held().freeze()).await?;
        Ok(send)
    }

    /// Sends a response without a body, and stops reading the request (RFC 9114 §4.1).
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

/// A refusal with `proxy-status` (RFC 9209). `name` is our name in it.
pub(crate) fn refusal(why: ResetCode, name: &str) -> http::Response<()> {
    let mut response = answer(crate::refusal::status(why));
    if let Ok(value) = format!("{name}; error={}", why.proxy_error()).try_into() {
        response.headers_mut().insert("proxy-status", value);
    }
    response
}
