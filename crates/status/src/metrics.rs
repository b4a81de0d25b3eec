//! Metrics for Prometheus over HTTP: GET /metrics at an address of this host.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use super::{Document, exposition};

/// Maximum number of connections at once; others wait. Prometheus needs one.
const MAX_CONNECTIONS: usize = 8;
/// Maximum time of a connection. A scrape takes milliseconds.
const MAX_TIME: Duration = Duration::from_secs(30);
/// Wait after an error of the listener.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// The text format of Prometheus.
const CONTENT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A server that ends when this is dropped.
pub struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves the newest document. An address that cannot be used is logged; the file is written all the
/// same.
pub fn serve(listen: SocketAddr, newest: watch::Receiver<Arc<Document>>) -> Serving {
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

async fn accept_all(listener: TcpListener, newest: watch::Receiver<Arc<Document>>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(permit) = permits.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((tcp, _)) => {
                let newest = newest.clone();
                tokio::spawn(async move {
                    // A client that is slow or gone is not an error.
                    let _ = tokio::time::timeout(MAX_TIME, answer_all(tcp, newest)).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection for metrics");
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

async fn answer_all(tcp: TcpStream, newest: watch::Receiver<Arc<Document>>) {
    let answer = service_fn(|request: Request<Incoming>| {
        let response = answer(request.method(), request.uri().path(), &newest);
        async { Ok::<_, Infallible>(response) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(MAX_TIME);
    let _ = server.serve_connection(TokioIo::new(tcp), answer).await;
}

fn answer(
    method: &Method,
    path: &str,
    newest: &watch::Receiver<Arc<Document>>,
) -> Response<Full<Bytes>> {
    let with = |status: StatusCode, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(CONTENT));
        response
    };
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut response = with(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    if path != "/metrics" {
        return with(StatusCode::NOT_FOUND, "the metrics are at /metrics\n".to_owned());
    }
    let document = newest.borrow().clone();
    with(StatusCode::OK, exposition::of(&document))
}
