//! CONNECT requests and their responses.

use std::sync::Arc;

use bentpipe_flow::{Claim, ResetCode};
use bytes::{Bytes, BytesMut};
use tokio::sync::watch;

use super::connection::{Response, State, final_response, live, start};
use crate::{
    AIRCRAFT_HEADER, Behalf, CLAIM_HEADER, CLASS_HEADER, PASSENGER_HEADER,
    denials::Denials,
    flow::{Accepted, Opening},
    quic::Request,
    stream::RawSend,
    wire,
};

/// Maximum length of an `authority`: a name of 253 bytes, a colon, a port, and some margin.
const MAX_AUTHORITY_BYTES: usize = 300;

/// A sent CONNECT.
pub struct SentConnect {
    request: Request,
    response: Response,
    send: RawSend,
    denials: Arc<Denials>,
}

/// Waits until the CONNECT is sent, and for its response.
pub async fn run<T>(mut flow: Opening, begun: T, permit: tokio::sync::OwnedSemaphorePermit)
where
    T: Future<Output = Result<Result<SentConnect, ResetCode>, tokio::time::error::Elapsed>>,
{
    let begun = tokio::select! {
        biased;
        // The flow was dropped or reset.
        () = flow.send.closed() => return,
        begun = begun => begun.unwrap_or(Err(ResetCode::Unreachable)),
    };
    drop(permit);
    let SentConnect { request, mut response, send, denials } = match begun {
        Ok(begun) => begun,
        Err(why) => return flow.fail(why),
    };
    // If the flow is gone, dropping the halves resets the stream.
    let _ = flow.send.send(Ok(send));
    let answer = tokio::select! {
        biased;
        () = flow.recv.closed() => return,
        answer = final_response(&mut response, &denials) => answer,
    };
    let recv = answer.and_then(|class| {
        let stream = request.take_recv().ok_or(ResetCode::Internal)?;
        Ok(Accepted { stream, class })
    });
    let _ = flow.recv.send(recv);
}

/// Destination, class and owner of a flow.
pub struct Destination {
    authority: String,
    class: u8,
    passenger: u32,
    claim: Option<String>,
    behalf: Option<String>,
}

impl Destination {
    /// Returns `None` if `authority` is not valid in a request.
    pub fn new(
        authority: &str,
        class: u8,
        passenger: u32,
        claim: Option<&Claim>,
        behalf: Option<&Behalf>,
    ) -> Option<Destination> {
        let parsed: http::uri::Authority = authority.parse().ok()?;
        let whole = authority.len() <= MAX_AUTHORITY_BYTES && parsed.port_u16().is_some();
        // An unencodable claim is left out.
        let claim = claim.and_then(crate::claim::write);
        let behalf = behalf.map(Behalf::write);
        whole.then(|| Destination { authority: authority.into(), class, passenger, claim, behalf })
    }
}

/// Sends the CONNECT and the first bytes as soon as there is a connection.
pub async fn begin(
    state: watch::Receiver<State>,
    to: Destination,
    first: Bytes,
) -> Result<SentConnect, ResetCode> {
    let mut live = live(state).await?;
    let connect =
        http::Request::connect(&to.authority).body(()).map_err(|_| ResetCode::Internal)?;
    let (response, request, mut send) = start(&mut live, connect).await?;
    let (class, passenger) = (to.class.to_string(), to.passenger.to_string());
    let mut fields = vec![(":method", "CONNECT"), (":authority", &*to.authority)];
    fields.extend(live.authorization());
    if live.proxy.is_none() {
        fields.extend([(CLASS_HEADER, &*class), (PASSENGER_HEADER, &*passenger)]);
        fields.extend(to.claim.as_deref().map(|claim| (CLAIM_HEADER, claim)));
        fields.extend(to.behalf.as_deref().map(|behalf| (AIRCRAFT_HEADER, behalf)));
    }
    let mut together = BytesMut::from(wire::headers(&fields));
    if !first.is_empty() {
        wire::data_header(first.len(), &mut together);
        together.extend_from_slice(&first);
    }
    send.write(together.freeze()).await?;
    Ok(SentConnect { request, response, send, denials: live.denials })
}
