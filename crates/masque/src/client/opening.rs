//! Requests for flows, and their answers.

use bytes::{Bytes, BytesMut};
use h3::error::StreamError;
use tokio::sync::{oneshot, watch};

use super::{Live, Response, State};
use crate::{
    CLAIM_HEADER, CLASS_HEADER, Claim, PASSENGER_HEADER, flow::Accepted, quic::Request,
    refusal::Refusal, stream::RawSend, wire,
};

/// The longest `authority` we send: a name of 253 bytes, a colon and a port, with room to spare.
const MAX_AUTHORITY_BYTES: usize = 300;

/// The two ends that a flow waits on while it is opened.
pub struct Opening {
    pub send: oneshot::Sender<Result<RawSend, Refusal>>,
    pub recv: oneshot::Sender<Result<Accepted, Refusal>>,
}

/// A CONNECT that has been sent.
pub struct Begun {
    request: Request,
    response: Response,
    send: RawSend,
}

impl Opening {
    /// Waits for the CONNECT and for its answer.
    pub async fn run<T>(mut self, begun: T, permit: tokio::sync::OwnedSemaphorePermit)
    where
        T: Future<Output = Result<Result<Begun, Refusal>, tokio::time::error::Elapsed>>,
    {
        let begun = tokio::select! {
            biased;
            // The flow was dropped or reset meanwhile.
            () = self.send.closed() => return,
            begun = begun => begun.unwrap_or(Err(Refusal::Unreachable)),
        };
        drop(permit);
        let Begun { request, mut response, send } = match begun {
            Ok(begun) => begun,
            Err(why) => return self.fail(why),
        };
        // A flow that is gone leaves the halves here, and dropping them resets the stream.
        let _ = self.send.send(Ok(send));
        let answer = tokio::select! {
            biased;
            () = self.recv.closed() => return,
            answer = final_response(&mut response) => answer,
        };
        let recv = answer.and_then(|class| {
            let stream = request.take_recv().ok_or(Refusal::Internal)?;
            Ok(Accepted { stream, class })
        });
        let _ = self.recv.send(recv);
    }

    /// There is no flow.
    pub fn fail(self, why: Refusal) {
        // A flow that is gone needs no reason.
        let _ = self.send.send(Err(why));
        let _ = self.recv.send(Err(why));
    }
}

/// Destination of a flow, and its owner.
pub struct Destination {
    authority: String,
    class: u8,
    passenger: u32,
    claim: Option<String>,
}

impl Destination {
    /// `None` when `authority` cannot stand in a request.
    pub fn new(
        authority: &str,
        class: u8,
        passenger: u32,
        claim: Option<&Claim>,
    ) -> Option<Destination> {
        let parsed: http::uri::Authority = authority.parse().ok()?;
        let whole = authority.len() <= MAX_AUTHORITY_BYTES && parsed.port_u16().is_some();
        // A claim that cannot be written is only not made.
        let claim = claim.and_then(Claim::write);
        whole.then(|| Destination { authority: authority.into(), class, passenger, claim })
    }
}

/// Sends the CONNECT and the first bytes as soon as there is a connection.
pub async fn begin(
    state: watch::Receiver<State>,
    to: Destination,
    first: Bytes,
) -> Result<Begun, Refusal> {
    let mut live = live(state).await?;
    let connect = http::Request::connect(&to.authority).body(()).map_err(|_| Refusal::Internal)?;
    let (response, request, mut send) = start(&mut live, connect).await?;
    let (class, passenger) = (to.class.to_string(), to.passenger.to_string());
    let mut fields = vec![
        (":method", "CONNECT"),
        (":authority", &*to.authority),
        (CLASS_HEADER, &class),
        (PASSENGER_HEADER, &passenger),
    ];
    fields.extend(to.claim.as_deref().map(|claim| (CLAIM_HEADER, claim)));
    let mut together = BytesMut::from(wire::headers(&fields));
    if !first.is_empty() {
        wire::data_header(first.len(), &mut together);
        together.extend_from_slice(&first);
    }
    send.write(together.freeze()).await?;
    Ok(Begun { request, response, send })
}

/// Waits for a connection.
pub(crate) async fn live(mut state: watch::Receiver<State>) -> Result<Live, Refusal> {
    match state.wait_for(|state| matches!(state, State::Up(_))).await.as_deref() {
        Ok(State::Up(live)) => Ok(live.clone()),
        _ => Err(Refusal::Unreachable),
    }
}

/// Waits for the answer to a request: an error where it is not 2xx, else the class in it, if it has
/// one.
pub(crate) async fn final_response(stream: &mut Response) -> Result<Option<u8>, Refusal> {
    loop {
        let response = stream.recv_response().await.map_err(stream_refusal)?;
        match response.status() {
            status if status.is_informational() => {}
            status if status.is_success() => {
                let class = response.headers().get(CLASS_HEADER);
                return Ok(class.and_then(|class| class.to_str().ok()?.parse().ok()));
            }
            status => {
                let proxy_status = response.headers().get("proxy-status");
                let proxy_status = proxy_status.and_then(|value| value.to_str().ok());
                return Err(Refusal::from_response(status, proxy_status));
            }
        }
    }
}

/// Has h3 open a stream for a request and await its response. What h3 would send is not sent: see
/// [`wire::headers`].
pub(crate) async fn start(
    live: &mut Live,
    request: http::Request<()>,
) -> Result<(Response, Request, RawSend), Refusal> {
    let response = live.requests.send_request(request).await.map_err(stream_refusal)?;
    let request = live.handed.take(response.id()).ok_or(Refusal::Internal)?;
    request.take_held();
    let send = request.take_send().ok_or(Refusal::Aborted)?;
    Ok((response, request, send))
}

fn stream_refusal(error: StreamError) -> Refusal {
    match error {
        StreamError::RemoteTerminate { code, .. } => Refusal::from_h3_code(code.value()),
        StreamError::ConnectionError { .. } => Refusal::Aborted,
        StreamError::RemoteClosing => Refusal::Unreachable,
        _ => Refusal::Internal,
    }
}
