//! The page that tells passengers what this gateway does with what they send.

mod words;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::strict::Strict;
use crate::air::intake::Intake;
use crate::air::passengers::Ticket;
use crate::air::stall::StallGuard;
use crate::config::AirConfig;

const FRAME: &str = include_str!("page.html");

/// The page, as the config makes it.
#[derive(Clone)]
pub struct Page(Bytes);

impl Page {
    /// The page for a gateway with this config.
    pub fn new(config: &AirConfig) -> Self {
        let parts = [
            ("{services}", words::services(config)),
            ("{kept}", words::kept(config)),
            ("{known}", words::known(config)),
            ("{except}", words::except(config)),
            ("{refuse}", words::refuse(config)),
            // Last, for it is the operator's own text.
            ("{ask}", words::ask(config)),
        ];
        let page =
            parts.iter().fold(FRAME.to_owned(), |page, (place, text)| page.replace(place, text));
        Self(page.into())
    }

    /// Serves one client.
    pub async fn serve(self, tcp: TcpStream, ticket: Ticket, intake: Arc<Intake>) {
        let limits = &intake.limits;
        let guard = StallGuard::new(tcp, limits.stall_timeout.into()).noting(ticket.activity());
        let (io, gate) = Strict::new(guard, Bytes::new());
        let mut server = http1::Builder::new();
        server
            .timer(TokioTimer::new())
            .header_read_timeout(limits.handshake_timeout.duration())
            // What is refused is followed by an end, and is answered all the same.
            .half_close(true);
        let (intake, ticket) = (&intake, &ticket);
        let answer = service_fn(|request| {
            let response = match gate.next() {
                Some(refused) => {
                    intake.garbage(ticket, refused.why());
                    plain(refused.status(), refused.why())
                }
                None => self.answer(&request),
            };
            async { Ok::<_, std::convert::Infallible>(response) }
        });
        // That a client goes is its own affair.
        let _ = server.serve_connection(TokioIo::new(io), answer).await;
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "This page can only be read.");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if request.uri().path() != "/" {
            return plain(StatusCode::NOT_FOUND, "There is one page here, at /.");
        }
        let mut response = Response::new(Full::new(self.0.clone()));
        let fields = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CACHE_CONTROL, "no-cache"),
            // It has a style of its own and nothing else.
            (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ];
        for (name, value) in fields {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(format!("{text}\n").into()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}
