//! The connection to a server: its state, and requests on it.

use std::{sync::Arc, time::Duration};

use bentpipe_flow::ResetCode;
use bytes::Bytes;
use h3::error::StreamError;
use tokio::sync::watch;

use crate::{
    CLASS_HEADER,
    datagrams::router::{Peer, Router},
    denials::Denials,
    quic::{H3Requests, Opener, Request},
    stream::RawSend,
    tls,
    trust::Proxy,
};

/// Time within which an attempt must connect and prove both keys: about 40 round trips, so that 40 %
/// of loss does not end it early.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Reason why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The first attempt is in progress.
    #[error("connecting to the ground gateway")]
    Connecting,
    /// QUIC could not connect, or the connection was lost.
    #[error("no connection to the ground gateway: {0}; check its address and that it runs")]
    Quic(String),
    /// The server refused our key, or gave no proof.
    #[error(
        "the ground gateway refused our key, or holds another key than the one configured: \
         check its public key here and that it knows ours"
    )]
    Refused,
    /// The server's proof does not match the key we have for it.
    #[error("the server at the ground gateway's address does not hold its key")]
    Impostor,
    /// The configured key is a low-order point.
    #[error(
        "the ground gateway's configured public key is not usable: copy it again from `bentpipe keys`"
    )]
    UnusableKey,
    /// A proxy that need not be a gateway cannot be reached, or is not the one that is configured.
    #[error(
        "no connection to the proxy: {0}; check its address, that it serves HTTP/3 there, and that its \
         certificate is for this name and of an authority that is trusted here"
    )]
    Proxy(String),
    /// [`crate::Client::close`] was called.
    #[error("the connection to the ground gateway was closed here")]
    Closed,
    /// The attempt took too long.
    #[error("the ground gateway did not answer within {} s", CONNECT_TIMEOUT.as_secs())]
    Timeout,
}

#[derive(Clone)]
pub enum State {
    Down(ConnectError),
    Up(Live),
}

/// A connection with proved keys.
#[derive(Clone)]
pub struct Live {
    /// Number of the connection. Later connections have higher numbers.
    pub number: u64,
    pub conn: quinn::Connection,
    pub peer: watch::Receiver<Peer>,
    pub router: Router,
    pub requests: Requests,
    pub h3_requests: H3Requests,
    /// The server, if it need not be a gateway.
    pub proxy: Option<Arc<Proxy>>,
    pub denials: Arc<Denials>,
}

impl Live {
    /// The server as `:authority` of requests to itself.
    pub fn server_authority(&self) -> String {
        let port = self.conn.remote_address().port();
        self.proxy.as_ref().map_or_else(|| tls::SERVER_NAME.to_owned(), |it| it.authority(port))
    }

    /// `proxy-authorization` for each request.
    pub fn authorization(&self) -> Option<(&'static str, &str)> {
        let value = self.proxy.as_ref()?.authorization()?;
        Some(("proxy-authorization", value))
    }
}

pub type Requests = h3::client::SendRequest<Opener, Bytes>;
pub type Response = h3::client::RequestStream<Request, Bytes>;

/// Waits for a connection.
pub async fn live(mut state: watch::Receiver<State>) -> Result<Live, ResetCode> {
    match state.wait_for(|state| matches!(state, State::Up(_))).await.as_deref() {
        Ok(State::Up(live)) => Ok(live.clone()),
        _ => Err(ResetCode::Unreachable),
    }
}

/// Waits for the final response to a request. Returns the class in a 2xx response, if any, and an
/// error for any other response.
pub async fn final_response(
    stream: &mut Response,
    denials: &Denials,
) -> Result<Option<u8>, ResetCode> {
    loop {
        let response = stream.recv_response().await.map_err(stream_refusal)?;
        match response.status() {
            status if status.is_informational() => {}
            status if status.is_success() => {
                denials.note(status);
                let class = response.headers().get(CLASS_HEADER);
                return Ok(class.and_then(|class| class.to_str().ok()?.parse().ok()));
            }
            status => {
                denials.note(status);
                let proxy_status = response.headers().get("proxy-status");
                let proxy_status = proxy_status.and_then(|value| value.to_str().ok());
                return Err(crate::refusal::from_response(status, proxy_status));
            }
        }
    }
}

/// Opens a stream through h3, which will read the response. Discards the HEADERS that h3 wrote: see
/// [`crate::wire::headers`].
pub async fn start(
    live: &mut Live,
    request: http::Request<()>,
) -> Result<(Response, Request, RawSend), ResetCode> {
    let response = live.requests.send_request(request).await.map_err(stream_refusal)?;
    let request = live.h3_requests.take(response.id()).ok_or(ResetCode::Internal)?;
    request.take_held();
    let send = request.take_send().ok_or(ResetCode::Aborted)?;
    Ok((response, request, send))
}

fn stream_refusal(error: StreamError) -> ResetCode {
    match error {
        StreamError::RemoteTerminate { code, .. } => crate::refusal::from_h3_code(code.value()),
        StreamError::ConnectionError { .. } => ResetCode::Lost,
        StreamError::RemoteClosing => ResetCode::Unreachable,
        _ => ResetCode::Internal,
    }
}
