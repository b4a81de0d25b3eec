//! Establishes the connection, proves both keys, and reconnects after a loss.

use std::{future::poll_fn, net::SocketAddr, sync::Arc};

use bentpipe_flow::Reach;
use bytes::Bytes;
use h3::error::Code;
use http::{Uri, header};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use super::{
    config::ClientConfig,
    connection::{CONNECT_TIMEOUT, ConnectError, Live, State, start},
};
use crate::{
    INFO_HEADER, SESSION_PATH,
    auth::{self, Proofs, PublicKey, SecretKey, Side},
    datagrams::{
        queue::QueueBudget,
        router::{Peer, Router},
    },
    denials::Denials,
    quic::{self, MAX_HEADERS_BYTES},
    stream::var_int,
    tls,
    trust::Trust,
    wire,
};

/// Keeps the connection up.
pub struct Reconnector {
    pub config: ClientConfig,
    pub quic: quinn::ClientConfig,
    pub endpoint: quinn::Endpoint,
    pub state: watch::Sender<State>,
    pub reach: watch::Sender<Reach>,
    pub budget: Arc<QueueBudget>,
    pub denials: Arc<Denials>,
}

impl Reconnector {
    /// Runs until the last clone of the client is dropped.
    pub async fn run(self, mut dropped: mpsc::Receiver<()>) {
        tokio::select! {
            biased;
            _ = dropped.recv() => {}
            () = self.keep() => {}
        }
        self.publish(State::Down(ConnectError::Closed));
        self.endpoint.close(var_int(Code::H3_NO_ERROR.value()), b"");
    }

    fn publish(&self, state: State) {
        let reach = if matches!(state, State::Up(_)) { Reach::Up } else { Reach::Down };
        self.state.send_replace(state);
        self.reach.send_replace(reach);
    }

    async fn keep(&self) {
        let mut pause = self.config.reconnect_min;
        let addresses: Vec<_> =
            [self.config.server].iter().chain(&self.config.others).copied().collect();
        let mut next = 0;
        for number in 1.. {
            let server = addresses[next];
            let attempt = timeout(CONNECT_TIMEOUT, self.establish(server, number)).await;
            let late = || match &self.config.trust {
                Trust::Keys { .. } => ConnectError::Timeout,
                Trust::Certificate(_) => self.no_connection(&"it did not answer in time"),
            };
            let why = match attempt.unwrap_or_else(|_| Err(late())) {
                Ok(live) => {
                    let since = Instant::now();
                    let conn = live.conn.clone();
                    self.publish(State::Up(live));
                    tracing::info!(server = %self.config.server, "the link is up, over HTTP/3");
                    let lost = conn.closed().await;
                    if lost == quinn::ConnectionError::LocallyClosed {
                        return;
                    }
                    // A connection that is lost at once does not count as a success.
                    if since.elapsed() > self.config.reconnect_max {
                        pause = self.config.reconnect_min;
                    }
                    self.no_connection(&lost)
                }
                Err(ConnectError::Closed) => return,
                Err(why) => {
                    next = (next + 1) % addresses.len();
                    why
                }
            };
            let is_new = !matches!(&*self.state.borrow(), State::Down(before) if *before == why);
            // A wrong certificate is an error of the operator; a gateway's keys are checked elsewhere.
            match &why {
                ConnectError::Proxy(_) if is_new => tracing::warn!(%server, "{why}"),
                _ => tracing::info!(%server, %why, "no connection"),
            }
            self.publish(State::Down(why));
            sleep(pause).await;
            pause = (pause * 2).min(self.config.reconnect_max);
        }
    }

    fn no_connection(&self, error: &dyn std::fmt::Display) -> ConnectError {
        match &self.config.trust {
            Trust::Keys { .. } => ConnectError::Quic(error.to_string()),
            Trust::Certificate(_) => ConnectError::Proxy(error.to_string()),
        }
    }

    async fn establish(&self, server: SocketAddr, number: u64) -> Result<Live, ConnectError> {
        let failed = |error: &dyn std::fmt::Display| self.no_connection(error);
        let proxy = match &self.config.trust {
            Trust::Keys { .. } => None,
            Trust::Certificate(proxy) => Some(Arc::new(proxy.clone())),
        };
        let name = proxy.as_ref().map_or_else(|| tls::SERVER_NAME.to_owned(), |it| it.name());
        let conn = self
            .endpoint
            .connect_with(self.quic.clone(), server, &name)
            .map_err(|error| match error {
                quinn::ConnectError::EndpointStopping => ConnectError::Closed,
                other => failed(&other),
            })?
            .await
            .map_err(|error| match error {
                quinn::ConnectionError::LocallyClosed => ConnectError::Closed,
                other => failed(&other),
            })?;
        let (connection, h3_requests) = quic::Connection::new(conn.clone());
        let (mut driver, requests) = h3::client::builder()
            // Grease is random, so seeded runs would differ.
            .send_grease(false)
            .max_field_section_size(MAX_HEADERS_BYTES)
            .enable_datagram(self.config.transport.datagrams)
            .build::<_, _, Bytes>(connection)
            .await
            .map_err(|error| failed(&error))?;
        let (settings, peer) = watch::channel(Peer::default());
        let transport = self.config.transport.clone();
        tokio::spawn(async move {
            poll_fn(|cx| {
                let closed = driver.poll_close(cx);
                Peer::publish(&settings, &driver, &transport);
                closed
            })
            .await
        });
        let router = Router::new(conn.clone(), peer.clone(), self.budget.clone());
        let denials = self.denials.clone();
        let mut live = Live { number, conn, peer, router, requests, h3_requests, proxy, denials };
        if let Trust::Keys { server_key, secret } = &self.config.trust {
            prove(&mut live, server_key, secret).await?;
        }
        tokio::spawn(live.router.clone().run());
        Ok(live)
    }
}

/// Proves our key and checks the server's proof. Passengers' data is sent only afterwards.
async fn prove(
    live: &mut Live,
    server_key: &PublicKey,
    secret: &SecretKey,
) -> Result<(), ConnectError> {
    let mut exporter = [0; 32];
    live.conn
        .export_keying_material(&mut exporter, auth::EXPORTER_LABEL, b"")
        .map_err(|_| ConnectError::Quic("the TLS session has no exporter".into()))?;
    let proofs =
        Proofs::new(secret, Side::Client, server_key, exporter).ok_or(ConnectError::UnusableKey)?;
    let own = auth::public_key(secret);
    let authorization = auth::write_authorization(&own, &proofs.prove(Side::Client));
    let headers = wire::headers(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", tls::SERVER_NAME),
        (":path", SESSION_PATH),
        (header::PROXY_AUTHORIZATION.as_str(), &authorization),
    ]);
    let answer = async {
        let uri = Uri::builder().scheme("https").authority(tls::SERVER_NAME).path_and_query("/");
        let request = http::Request::get(uri.build().ok()?).body(()).ok()?;
        let (mut stream, _request, mut send) = start(live, request).await.ok()?;
        send.write(headers).await.ok()?;
        send.finish();
        let response = stream.recv_response().await.ok()?;
        let info = response.headers().get(INFO_HEADER)?.to_str().ok()?;
        auth::read_info(info).filter(|_| response.status().is_success())
    };
    match answer.await {
        Some(proof) if proofs.verify(Side::Server, &proof) => Ok(()),
        Some(_) => {
            live.conn.close(var_int(Code::H3_REQUEST_REJECTED.value()), b"");
            Err(ConnectError::Impostor)
        }
        None => Err(match live.conn.close_reason() {
            Some(quinn::ConnectionError::ApplicationClosed(close))
                if close.error_code.into_inner() == Code::H3_REQUEST_REJECTED.value() =>
            {
                ConnectError::Refused
            }
            Some(other) => ConnectError::Quic(other.to_string()),
            None => {
                live.conn.close(var_int(Code::H3_REQUEST_REJECTED.value()), b"");
                ConnectError::Refused
            }
        }),
    }
}
