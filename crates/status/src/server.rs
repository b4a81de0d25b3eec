//! Metrics for Prometheus and the operator's page over HTTP, at an address of this host.

mod access;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::places::Places;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
    REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Document;
use super::exposition;
use super::history::History;
use super::view::View;
use crate::config::Token;

/// Maximum number of connections at once. A host alone may have a fifth of them, so that no single
/// stranger takes the places of others; many together can, and a firewall is for that. Prometheus needs
/// one, and a page up to six.
const MAX_CONNECTIONS: usize = 64;
/// Maximum time of a connection. An answer takes milliseconds; a page connects again.
const MAX_TIME: Duration = Duration::from_secs(30);
/// Maximum wait for the head of a request.
const MAX_HEAD_TIME: Duration = Duration::from_secs(10);
/// Wait after an error of the listener.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// The text format of Prometheus.
const CONTENT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The operator's page; its data are in [`View`].
const HTML: &[u8] = include_bytes!("page/operator.html");
const CSS: &[u8] = include_bytes!("page/operator.css");
const JS: &[u8] = include_bytes!("page/operator.js");

/// Headers of every answer: nothing is loaded from elsewhere, framed, guessed or stored.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The newest document, the last day, and who may see them.
#[derive(Clone)]
pub struct Newest {
    pub document: watch::Receiver<Arc<Document>>,
    pub history: Arc<Mutex<History>>,
    /// Token that every request has to present; `None` if this host's users may see everything.
    pub token: Option<Token>,
}

impl Newest {
    fn view(&self) -> View {
        let document = self.document.borrow().clone();
        View::of(&document, &self.history.lock())
    }
}

/// A server that ends when this is dropped.
pub struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves the newest document. An address that cannot be used is logged; the file is written all the
/// same.
pub fn serve(listen: SocketAddr, newest: Newest) -> Serving {
    Serving(tokio::spawn(async move {
        match TcpListener::bind(listen).await {
            Ok(listener) => accept_all(listener, newest).await,
            Err(error) => tracing::error!(
                %listen, %error,
                "metrics cannot be served: write another address under [status] listen"
            ),
        }
    }))
}

async fn accept_all(listener: TcpListener, newest: Newest) {
    let places = Places::new(MAX_CONNECTIONS).exempt_loopback();
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => {
                let Some(place) = places.admit(peer.ip()) else { continue };
                let newest = newest.clone();
                tokio::spawn(async move {
                    // A client that is slow or gone is not an error.
                    let _ = tokio::time::timeout(MAX_TIME, answer_all(tcp, newest)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection for metrics");
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

async fn answer_all(tcp: TcpStream, newest: Newest) {
    let answer = service_fn(|request: Request<Incoming>| {
        let response = answer(&request, &newest);
        async { Ok::<_, Infallible>(response) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(MAX_HEAD_TIME);
    let _ = server.serve_connection(TokioIo::new(tcp), answer).await;
}

fn answer(request: &Request<Incoming>, newest: &Newest) -> Response<Full<Bytes>> {
    let text = |status: StatusCode, text: &'static str| with(status, CONTENT, Bytes::from(text));
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    if !newest.token.as_ref().is_none_or(|token| access::is_permitted(request.headers(), token)) {
        let mut response = text(StatusCode::UNAUTHORIZED, "present the token of token-file\n");
        response
            .headers_mut()
            .insert(WWW_AUTHENTICATE, HeaderValue::from_static(access::CHALLENGE));
        return response;
    }
    let ok = |content, body| with(StatusCode::OK, content, body);
    let path = request.uri().path();
    if path == "/metrics" {
        let document = newest.document.borrow().clone();
        return ok(CONTENT, exposition::of(&document).into());
    }
    if newest.token.is_none() && !is_of_this_host(request.headers().get(HOST)) {
        return text(StatusCode::FORBIDDEN, "ask for this page by an IP address or localhost\n");
    }
    match path {
        "/" => ok("text/html; charset=utf-8", Bytes::from_static(HTML)),
        "/operator.css" => ok("text/css; charset=utf-8", Bytes::from_static(CSS)),
        "/operator.js" => ok("text/javascript; charset=utf-8", Bytes::from_static(JS)),
        "/operator.json" => ok("application/json", newest.view().to_json().into()),
        _ => text(StatusCode::NOT_FOUND, "the page is at /, the metrics are at /metrics\n"),
    }
}

/// Returns `true` for an address or `localhost`. Another name may be a stranger's page in the
/// operator's browser, whose name leads here now (DNS rebinding). A browser presents the token only to
/// the name that it was entered for.
fn is_of_this_host(host: Option<&HeaderValue>) -> bool {
    let host = host.and_then(|host| host.to_str().ok());
    let Some(host) = host.and_then(|host| host.parse::<Authority>().ok()) else { return false };
    let ip = host.host().trim_start_matches('[').trim_end_matches(']');
    host.host().eq_ignore_ascii_case("localhost") || ip.parse::<IpAddr>().is_ok()
}

fn with(status: StatusCode, content: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_this_host() {
        let of = |host: &'static str| is_of_this_host(Some(&HeaderValue::from_static(host)));
        for host in ["127.0.0.1:9464", "127.0.0.1", "[::1]:9464", "[::1]", "LOCALHOST:1"] {
            assert!(of(host), "{host}");
        }
        for host in ["evil.example", "evil.example:9464", "localhost.evil.example", ""] {
            assert!(!of(host), "{host}");
        }
        assert!(!is_of_this_host(None));
    }

    #[test]
    fn the_page_asks_nobody_else_and_has_no_script_of_its_own() {
        let [html, css, js] = [HTML, CSS, JS].map(|file| std::str::from_utf8(file).unwrap());
        for (file, text) in [("html", html), ("css", css), ("js", js)] {
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("http:") && !text.contains("https:"), "{file}");
        }
        assert!(!html.contains("<style") && !html.contains(" on") && !html.contains(" style="));
        assert_eq!(html.matches("<script").count(), 1);
        for unsafe_call in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("] {
            assert!(!js.contains(unsafe_call), "{unsafe_call}");
        }
    }
}
