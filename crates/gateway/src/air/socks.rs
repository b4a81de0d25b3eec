//! SOCKS5 (RFC 1928): CONNECT and UDP ASSOCIATE, with or without username and password (RFC 1929).
//!
//! The reply says "connected" as soon as there is a link; when the far dial fails, the client sees a
//! reset, exactly as an intercepted client does.

mod udp;
mod wire;

use std::io;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::intake::Intake;
use super::passengers::Ticket;
use crate::config::{Auth, Quic};
use wire::{
    MAX_MESSAGE_BYTES, METHOD_NONE, METHOD_PASSWORD, METHOD_REFUSED, Parsed, Reply, Request,
};

/// Reason for which a handshake stopped.
enum Refusal {
    /// Not SOCKS5, or not all of it.
    Garbage,
    /// No or wrong credentials.
    Unauthorized,
    /// Something SOCKS5 has and this gateway has not; the client was told.
    Unsupported,
}

impl From<io::Error> for Refusal {
    fn from(_: io::Error) -> Self {
        Self::Garbage
    }
}

pub(super) async fn serve(
    tcp: TcpStream,
    ticket: Ticket,
    auth: Option<Arc<Auth>>,
    quic: Quic,
    intake: Arc<Intake>,
) {
    let mut handshake = Handshake { tcp, read: BytesMut::new() };
    let limit = intake.limits.handshake_timeout.duration();
    // Boxed, so that only clients still shaking hands hold what that needs.
    match timeout(limit, Box::pin(handshake.run(auth.as_deref()))).await {
        Ok(Ok(Request::Connect(target))) => {
            let linked = intake.has_link().await;
            let code = if linked { Reply::Succeeded } else { Reply::NetworkUnreachable };
            if handshake.tcp.write_all(&wire::reply(code)).await.is_err() || !linked {
                return;
            }
            let read = handshake.read.freeze();
            super::web::carry(handshake.tcp, target, ticket.into(), intake, read).await;
        }
        Ok(Ok(Request::Associate(port))) => {
            udp::serve(handshake.tcp, ticket.client, port, quic, intake).await;
        }
        Ok(Err(Refusal::Garbage)) => intake.garbage(&ticket, "it does not speak SOCKS5"),
        Ok(Err(Refusal::Unauthorized)) => intake.unauthorized(&ticket),
        Ok(Err(Refusal::Unsupported)) => {
            intake.quiet.refused(ticket.client, "only CONNECT and UDP ASSOCIATE work");
        }
        Err(_) => intake.garbage(&ticket, "its SOCKS5 handshake took too long"),
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

    /// The next whole message; what follows it stays for later.
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
