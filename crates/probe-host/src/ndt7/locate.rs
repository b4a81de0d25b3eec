//! The choice of a public server, by M-Lab's own service.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, HOST, LOCATION, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use url::Url;

use crate::channel::{self, CLIENT, Trust};
use crate::web;

/// The service.
const SERVICE: &str =
    "https://locate.measurementlab.net/v2/nearest/ndt/ndt7?client_name=bentpipe-probe";

/// Most redirects that are followed.
const MAX_REDIRECTS: usize = 3;

/// Wait for an answer, with the handshake.
const PATIENCE: Duration = Duration::from_secs(15);

/// Longest answer.
const MAX_ANSWER: usize = 64 * 1024;

/// Addresses of the tests: downloads first.
pub fn nearest(trust: &Trust, resolvers: &[IpAddr]) -> io::Result<[Url; 2]> {
    let mut url = Url::parse(SERVICE).map_err(io::Error::other)?;
    for _ in 0..=MAX_REDIRECTS {
        let address = web::address(&url, resolvers)?;
        let address = SocketAddr::new(address, url.port_or_known_default().unwrap_or(443));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime.block_on(async {
            tokio::time::timeout(PATIENCE, get(&url, address, trust))
                .await
                .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        })?;
        match answer {
            Answer::Moved(to) => url = url.join(&to).map_err(io::Error::other)?,
            Answer::Body(body) => return parse(&body),
        }
        if url.scheme() != "https" {
            return Err(io::Error::other("the service redirects to an address in the clear"));
        }
    }
    Err(io::Error::other("the service redirects too often"))
}

enum Answer {
    Moved(String),
    Body(Bytes),
}

async fn get(url: &Url, address: SocketAddr, trust: &Trust) -> io::Result<Answer> {
    let (channel, _) = channel::open(url, address, trust).await?;
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let request = Request::get(path)
        .header(HOST, &url[url::Position::BeforeHost..url::Position::AfterPort])
        .header(USER_AGENT, CLIENT)
        .header(ACCEPT, "application/json")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(channel)).await.map_err(io::Error::other)?;
    // It ends with the runtime, which lives as long as this request.
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    if status.is_redirection() {
        let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
        return to.map(|to| Answer::Moved(to.into())).ok_or_else(|| refused(status));
    }
    match status {
        StatusCode::OK => {
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            Ok(Answer::Body(body.map_err(io::Error::other)?.to_bytes()))
        }
        StatusCode::NO_CONTENT => Err(io::Error::other("no_capacity")),
        status => Err(refused(status)),
    }
}

fn refused(status: StatusCode) -> io::Error {
    io::Error::other(format!("the service answers {status}"))
}

/// Addresses in the service's answer.
fn parse(body: &[u8]) -> io::Result<[Url; 2]> {
    let answer: Value = serde_json::from_slice(body).map_err(io::Error::other)?;
    let Some(urls) = answer.pointer("/results/0/urls") else {
        return Err(io::Error::other("no_capacity"));
    };
    let url = |test: &str| {
        let url = urls.get(test).and_then(Value::as_str).and_then(|url| Url::parse(url).ok());
        url.filter(|url| url.scheme() == "wss" && url.has_host())
            .ok_or_else(|| io::Error::other("the service names no server with TLS"))
    };
    Ok([url("wss:///ndt/v7/download")?, url("wss:///ndt/v7/upload")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_both_tests() {
        let body = br#"{"results":[{"machine":"m","urls":{
            "ws:///ndt/v7/download":"ws://a.example/ndt/v7/download?access_token=t",
            "wss:///ndt/v7/download":"wss://a.example/ndt/v7/download?access_token=t",
            "wss:///ndt/v7/upload":"wss://a.example/ndt/v7/upload?access_token=t"}}]}"#;
        let [down, up] = parse(body).unwrap();
        assert_eq!(down.as_str(), "wss://a.example/ndt/v7/download?access_token=t");
        assert_eq!(up.path(), "/ndt/v7/upload");
        assert_eq!(parse(b"{}").unwrap_err().to_string(), "no_capacity");
        assert_eq!(parse(b"{\"results\":[]}").unwrap_err().to_string(), "no_capacity");
        assert!(parse(b"{\"results\":[{\"urls\":{}}]}").is_err());
        assert!(parse(b"<html>").is_err());
    }
}
