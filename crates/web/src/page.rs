//! Page that explains to passengers how this gateway handles their traffic.

mod words;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::message::respond::http1_server;
use crate::message::sanitizer::sanitize;
use bentpipe_config::AirConfig;
use bentpipe_uplink::Uplink;
use bentpipe_uplink::passengers::FlowPermit;
use bentpipe_uplink::write_timeout::client_stream;

const FRAME: &str = include_str!("page.html");

/// The page, generated from the configuration.
#[derive(Clone)]
pub struct Page(Bytes);

impl Page {
    /// Generates the page for this configuration.
    pub fn new(config: &AirConfig) -> Self {
        let parts = [
            ("{services}", words::services(config)),
            ("{kept}", words::kept(config)),
            ("{known}", words::known(config)),
            ("{except}", words::except(config)),
            ("{refuse}", words::refuse(config)),
            // Last, because the operator's text may contain placeholders.
            ("{ask}", words::ask(config)),
        ];
        let page =
            parts.iter().fold(FRAME.to_owned(), |page, (place, text)| page.replace(place, text));
        Self(page.into())
    }

    /// The page in HTML.
    pub fn html(&self) -> &Bytes {
        &self.0
    }

    /// Serves one client.
    pub async fn serve(self, tcp: TcpStream, permit: FlowPermit, uplink: Arc<Uplink>) {
        let limits = &uplink.limits;
        let guard = client_stream(tcp, limits.stall_timeout.into(), permit.activity());
        let (io, gate) = sanitize(guard, Bytes::new());
        let server = http1_server(limits.handshake_timeout.duration());
        let (uplink, permit) = (&uplink, &permit);
        let answer = service_fn(|request| {
            let response = match gate.next() {
                Some(refused) => {
                    uplink.garbage(permit, refused.why());
                    plain(refused.status(), refused.why())
                }
                None => self.answer(&request),
            };
            async { Ok::<_, std::convert::Infallible>(response) }
        });
        // A client that disconnects is not an error.
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
        let mut response = Response::new(Full::new(self.html().clone()));
        let fields = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CACHE_CONTROL, "no-cache"),
            // The page contains only its own style sheet.
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
