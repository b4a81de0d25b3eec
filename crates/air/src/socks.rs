//! SOCKS5 (RFC 1928): CONNECT and UDP ASSOCIATE, with or without username and password (RFC 1929).
//!
//! The reply reports success as soon as there is a link. If the dial on the ground fails, the
//! client sees a reset, exactly as an intercepted client does.

mod udp;
mod wire;

use std::io;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::passengers::FlowPermit;
use super::services::Services;
use bentpipe_config::{Auth, Quic};
use wire::{
    MAX_MESSAGE_BYTES, METHOD_NONE, METHOD_PASSWORD, METHOD_REFUSED, Parsed, Reply, Request,
};

/// Reason why a handshake ended.
enum Refusal {
    /// Not SOCKS5, or incomplete.
    Garbage,
    /// Missing or wrong credentials.
    Unauthorized,
    /// A feature of SOCKS5 that this gateway does not support; the client has been told.
    Unsupported,
}

impl From<io::Error> for Refusal {
    fn from(_: io::Error) -> Self {
        Self::Garbage
    }
}

pub(super) async fn serve(
    tcp: TcpStream,
    permit: FlowPermit,
    auth: Option<Arc<Auth>>,
    quic: Quic,
    services: Arc<Services>,
) {
    let uplink = &services.uplink;
    let mut handshake = Handshake { tcp, read: BytesMut::new() };
    let limit = uplink.limits.handshake_timeout.duration();
    // Boxed, so that the memory is used only during the handshake.
    match timeout(limit, Box::pin(handshake.run(auth.as_deref()))).await {
        Ok(Ok(Request::Connect(target))) => {
            let linked = uplink.has_link().await;
            let code = if linked { Reply::Succeeded } else { Reply::NetworkUnreachable };
            if handshake.tcp.write_all(&wire::reply(code)).await.is_err() || !linked {
                return;
            }
            let read = handshake.read.freeze();
            services.carry(handshake.tcp, target, permit.into(), read).await;
        }
        Ok(Ok(Request::Associate(port))) => {
            udp::serve(handshake.tcp, permit.client, port, quic, uplink.clone()).await;
        }
        Ok(Err(Refusal::Garbage)) => uplink.garbage(&permit, "it does not speak SOCKS5"),
        Ok(Err(Refusal::Unauthorized)) => uplink.unauthorized(&permit),
        Ok(Err(Refusal::Unsupported)) => {
            uplink.log.refused(permit.client, "only CONNECT and UDP ASSOCIATE work");
        }
        Err(_) => uplink.garbage(&permit, "its SOCKS5 handshake took too long"),
    }
}

struct Handshake {
    tcp: TcpStream,
    read: BytesMut,
}

impl Handshake {
    async fn run(&mut self, auth: Option<&Auth>) -> Result<Request, Refusal> {
        let methods = self.message(wire::greeting).await?;
        let wanted = if auth.is_some() { METHOD_PASSWORD } else { METHOD_NONE };
        if !methods.contains(&wanted) {
            self.tcp.write_all(&[5, METHOD_REFUSED]).await?;
            return Err(Refusal::Unauthorized);
        }
        self.tcp.write_all(&[5, wanted]).await?;
        if let Some(auth) = auth {
            let given = self.message(wire::credentials).await?;
            let good = auth.admits(&given.username, &given.password);
            self.tcp.write_all(&[1, u8::from(!good)]).await?;
            if !good {
                return Err(Refusal::Unauthorized);
            }
        }
        match self.message(wire::request).await? {
            // Answered once there is a link, or a socket.
            Ok(request) => Ok(request),
            Err(reply) => {
                self.tcp.write_all(&wire::reply(reply)).await?;
                Err(Refusal::Unsupported)
            }
        }
    }

    /// Reads the next complete message; following bytes stay in the buffer.
    async fn message<T>(&mut self, parse: impl Fn(&[u8]) -> Parsed<T>) -> Result<T, Refusal> {
        loop {
            match parse(&self.read) {
                Parsed::Whole(message, length) => {
                    self.read.advance(length);
                    return Ok(message);
                }
                Parsed::Garbage => return Err(Refusal::Garbage),
                Parsed::Partial => {}
            }
            self.read.reserve(MAX_MESSAGE_BYTES);
            if self.tcp.read_buf(&mut self.read).await? == 0 {
                return Err(Refusal::Garbage);
            }
        }
    }
}
