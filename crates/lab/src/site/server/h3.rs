//! HTTP/3, with 0-RTT for returning clients.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{TransportConfig, VarInt};

use super::answer::Answer;
use super::{SESSIONS, ServerSettings};
use crate::emu::Congestion;
use crate::site::AuthorityError;
use crate::site::authority::Certified;

/// Maximum unacknowledged bytes of one connection, equal to the client's window.
const SEND_WINDOW_BYTES: u64 = crate::site::QUIC_WINDOW_BYTES;

type Error = Box<dyn std::error::Error + Send + Sync>;

pub(super) fn config(
    certified: &Certified,
    settings: &ServerSettings,
) -> Result<quinn::ServerConfig, AuthorityError> {
    let mut tls = certified.server(&[&rustls::version::TLS13], SESSIONS)?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    // QUIC allows only this value and 0 (RFC 9001, section 4.6.1).
    tls.max_early_data_size = u32::MAX;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(VarInt::from_u32(settings.max_streams));
    transport.send_window(SEND_WINDOW_BYTES);
    if settings.congestion == Congestion::Bbr {
        transport.congestion_controller_factory(Arc::new(BbrConfig::default()));
    } else {
        transport.congestion_controller_factory(Arc::new(CubicConfig::default()));
    }
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// Serves every connection to `socket`.
pub async fn serve<A: Answer>(
    socket: std::net::UdpSocket,
    config: quinn::ServerConfig,
    answers: Arc<A>,
) {
    let runtime = Arc::new(quinn::TokioRuntime);
    let endpoint = quinn::Endpoint::new(Default::default(), Some(config), socket, runtime);
    let Ok(endpoint) = endpoint else { return };
    while let Some(incoming) = endpoint.accept().await {
        let answers = answers.clone();
        // It is not an error if a client disconnects.
        tokio::spawn(async move { drop(serve_connection(incoming, answers).await) });
    }
}

async fn serve_connection<A: Answer>(
    incoming: quinn::Incoming,
    answers: Arc<A>,
) -> Result<(), Error> {
    let mut connecting = incoming.accept()?;
    // A ClientHello may span several packets. Until it is complete, the client's stream limit is
    // unknown, and a stream that is requested before that would wait forever.
    connecting.handshake_data().await?;
    // Requests in the first packets are answered at once, because replaying a GET is harmless here.
    let connection = match connecting.into_0rtt() {
        Ok((connection, _)) => connection,
        Err(connecting) => connecting.await?,
    };
    let connection = h3_quinn::Connection::new(connection);
    let mut h3 = h3::server::Connection::<_, Bytes>::new(connection).await?;
    while let Some(resolver) = h3.accept().await? {
        let answers = answers.clone();
        tokio::spawn(async move { drop(serve_request(resolver, &*answers).await) });
    }
    Ok(())
}

async fn serve_request<A: Answer>(
    resolver: h3::server::RequestResolver<h3_quinn::Connection, Bytes>,
    answers: &A,
) -> Result<(), h3::error::StreamError> {
    let (request, mut stream) = resolver.resolve_request().await?;
    let (head, mut body) = answers.answer(&request).into_parts();
    stream.send_response(http::Response::from_parts(head, ())).await?;
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(slice) = frame.into_data() {
            stream.send_data(slice).await?;
        }
    }
    stream.finish().await
}
