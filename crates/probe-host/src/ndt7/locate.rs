//! The choice of a public server, by M-Lab's own service.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::Value;
use url::Url;

use crate::channel::Trust;
use crate::secure;

/// The service.
const SERVICE: &str =
    "https://locate.measurementlab.net/v2/nearest/ndt/ndt7?client_name=bentpipe-probe";

/// Maximum number of redirects that are followed.
const MAX_REDIRECTS: usize = 3;

/// Addresses of the tests: downloads first. All requests end at the boot time `end`.
pub fn nearest(trust: &Trust, resolvers: &[IpAddr], end: Duration) -> io::Result<[Url; 2]> {
    let mut url = Url::parse(SERVICE).map_err(io::Error::other)?;
    for _ in 0..=MAX_REDIRECTS {
        let answer = secure::get_until(&url, "application/json", trust, resolvers, end)?;
        match (answer.status, answer.location) {
            (StatusCode::OK, _) => return parse(&answer.body),
            (StatusCode::NO_CONTENT, _) => return Err(io::Error::other("no_capacity")),
            (status, Some(to)) if status.is_redirection() => {
                url = url.join(&to).map_err(io::Error::other)?;
            }
            (status, _) => return Err(refused(status)),
        }
    }
    Err(io::Error::other("the service redirects too often"))
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
