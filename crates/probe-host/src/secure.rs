//! One HTTP request under TLS. Redirects are not followed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, HOST, LOCATION, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use url::Url;

use crate::channel::{self, CLIENT, Trust};
use crate::{clock, web};

/// Wait for an answer, with the handshake.
const PATIENCE: Duration = Duration::from_secs(15);

/// Longest answer.
const MAX_ANSWER: usize = 64 * 1024;

/// A response.
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// Address of a redirect.
    pub location: Option<String>,
    /// Body of a success. Of other responses it is not read.
    pub body: Bytes,
}

/// Requests `url` with the machine's own `resolvers`. `accept` is the type of the answer.
pub fn get(url: &Url, accept: &str, trust: &Trust, resolvers: &[IpAddr]) -> io::Result<Answer> {
    get_until(url, accept, trust, resolvers, Duration::MAX)
}

/// Requests `url`, until the boot time `end` at the latest.
pub fn get_until(
    url: &Url,
    accept: &str,
    trust: &Trust,
    resolvers: &[IpAddr],
    end: Duration,
) -> io::Result<Answer> {
    if url.scheme() != "https" {
        return Err(io::Error::other("the address does not begin with https://"));
    }
    let port = url.port_or_known_default().unwrap_or(443);
    let address = SocketAddr::new(web::address_until(url, resolvers, end)?, port);
    let patience = PATIENCE.min(end.saturating_sub(clock::boot()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(patience, exchange(url, address, accept, trust))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    })
}

async fn exchange(
    url: &Url,
    address: SocketAddr,
    accept: &str,
    trust: &Trust,
) -> io::Result<Answer> {
    let (channel, _) = channel::open(url, address, trust).await?;
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let request = Request::get(path)
        .header(HOST, &url[url::Position::BeforeHost..url::Position::AfterPort])
        .header(USER_AGENT, CLIENT)
        .header(ACCEPT, accept)
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(channel)).await.map_err(io::Error::other)?;
    // It ends with the runtime, which lives as long as this request.
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let location = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
    let location = location.map(str::to_owned);
    let body = match status {
        StatusCode::OK => {
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            body.map_err(io::Error::other)?.to_bytes()
        }
        _ => Bytes::new(),
    };
    Ok(Answer { status, location, body })
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;

    use super::*;

    #[test]
    fn a_request_without_time_ends() {
        // It says nothing, and closes a connection long after the end.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let trust = Trust::new(RootCertStore::empty());
        std::thread::spawn(move || {
            let connection = listener.accept();
            std::thread::sleep(Duration::from_secs(10));
            drop(connection);
        });
        let began = clock::boot();
        let end = began + Duration::from_millis(100);
        let answer = get_until(&Url::parse(&url).unwrap(), "text/html", &trust, &[], end);
        assert_eq!(answer.err().map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
        // A resolver that nobody asks, because there is no time.
        let named = Url::parse("https://name.example/").unwrap();
        let answer = get_until(&named, "text/html", &trust, &[[127, 0, 0, 1].into()], began);
        assert_eq!(answer.err().map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
    }
}
