//! The check for a captive portal: one request for a page that answers 204, and the network's own API if it
//! named one. A redirect is noted, not followed.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bentpipe_probe::portal::{Api, ApiSchedule, PortalCheck, PortalState, networkd_api};
use hyper::StatusCode;
use url::Url;

use crate::channel::Trust;
use crate::web::{self, Bounds};
use crate::{clock, failure, secure};

/// Bounds of the request. A portal's page is not read.
const BOUNDS: Bounds = Bounds { patience: Duration::from_secs(10), read: 0, keep: 0 };

/// State files of systemd-networkd, one an interface.
const NETWORKD: &str = "/run/systemd/netif/links";

/// The checks of a run.
pub struct Checker {
    /// Address of the API that the user named.
    named: Option<String>,
    schedule: ApiSchedule,
    trust: Trust,
}

impl Checker {
    /// Before the first check. An API that the user named replaces the network's word.
    pub fn new(named: Option<&Url>, trust: Trust) -> Self {
        Self { named: named.map(Url::to_string), schedule: ApiSchedule::default(), trust }
    }

    /// Checks `url` with the machine's own `resolvers`, and the API if it is due.
    pub fn check(&mut self, url: &Url, resolvers: &[IpAddr]) -> PortalCheck {
        let mut check = page(url, resolvers);
        check.api = self.named.clone().or_else(networks_api);
        if let Some(api) = &check.api
            && self.schedule.is_due(api, &check.state, clock::boot())
        {
            match ask(api, &self.trust, resolvers) {
                Ok(answer) => check.api_answer = Some(answer),
                Err(error) => check.api_failure = Some(failure::name(&error)),
            }
        }
        check
    }
}

/// Requests the page.
fn page(url: &Url, resolvers: &[IpAddr]) -> PortalCheck {
    let began = clock::boot();
    let (api, api_answer, api_failure) = (None, None, None);
    match request(url, resolvers) {
        Ok((status, location)) => PortalCheck {
            url: url.to_string(),
            state: PortalState::of_response(status, location.as_deref()),
            status: Some(status),
            rtt_us: Some(bentpipe_probe::micros(clock::boot().saturating_sub(began))),
            failure: None,
            api,
            api_answer,
            api_failure,
        },
        Err(error) => PortalCheck {
            url: url.to_string(),
            state: PortalState::Unknown,
            status: None,
            rtt_us: None,
            failure: Some(failure::name(&error)),
            api,
            api_answer,
            api_failure,
        },
    }
}

/// The API's answer.
fn ask(api: &str, trust: &Trust, resolvers: &[IpAddr]) -> io::Result<Api> {
    let url = Url::parse(api).map_err(io::Error::other)?;
    let answer = secure::get(&url, Api::TYPE, trust, resolvers)?;
    if answer.status != StatusCode::OK {
        return Err(io::Error::other(format!("the API answers {}", answer.status)));
    }
    Api::parse(&answer.body).map_err(io::Error::other)
}

/// The API that a network named by RFC 8910.
fn networks_api() -> Option<String> {
    let links = fs::read_dir(NETWORKD).ok()?;
    // A laptop has a few interfaces; a machine of containers may have thousands.
    links.take(32).find_map(|link| networkd_api(&fs::read_to_string(link.ok()?.path()).ok()?))
}

fn request(url: &Url, resolvers: &[IpAddr]) -> io::Result<(u16, Option<String>)> {
    let fetched = web::fetch(url, resolvers, BOUNDS)?;
    let location = fetched.fields.get("location");
    let text = location.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    Ok((fetched.status.as_u16(), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel;
    use crate::web::tests::serve;

    /// Serves one response on loopback and returns the finding.
    fn served(response: &'static str) -> PortalCheck {
        let (url, server) = serve(response.as_bytes());
        let check = page(&url, &[]);
        server.join().unwrap();
        check
    }

    #[test]
    fn the_state_follows_from_the_response() {
        assert_eq!(served("HTTP/1.1 204 No Content\r\n\r\n").state, PortalState::Open);
        let redirected = served("HTTP/1.1 302 Found\r\nlocation: http://login.example/\r\n\r\n");
        let expected = PortalState::Captive { location: Some("http://login.example/".into()) };
        assert_eq!((redirected.state, redirected.status), (expected, Some(302)));
        let page = served("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(page.state, PortalState::Captive { location: None });
        let cut = served("HTTP/1.1 302 Fou");
        assert_eq!(cut.state, PortalState::Unknown);
        assert!(cut.failure.is_some());
    }

    /// Serves one response under TLS, with a certificate that only the returned trust accepts.
    fn under_tls(response: &'static str) -> (Url, Trust, std::thread::JoinHandle<String>) {
        use rustls::pki_types::PrivateKeyDer;
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let acceptor = channel::server(vec![made.cert.der().clone()], key).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("https://{}/captive", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut channel) = channel::accept(stream, Some(&acceptor)).await else {
                    return String::new();
                };
                let mut request = vec![0; 1024];
                let length = channel.read(&mut request).await.unwrap();
                channel.write_all(response.as_bytes()).await.unwrap();
                channel.shutdown().await.unwrap();
                String::from_utf8_lossy(&request[..length]).into_owned()
            })
        });
        (Url::parse(&url).unwrap(), Trust::new(roots), server)
    }

    fn asked(response: &'static str) -> (io::Result<Api>, String) {
        let (url, trust, server) = under_tls(response);
        let answer = ask(url.as_str(), &trust, &[]);
        (answer, server.join().unwrap())
    }

    #[test]
    fn the_api_is_asked_under_tls() {
        let (answer, request) = asked(
            "HTTP/1.1 200 OK\r\nContent-Type: application/captive+json\r\nContent-Length: 43\r\n\r\n\
             {\"captive\":false, \"seconds-remaining\": 600}",
        );
        let answer = answer.unwrap();
        assert_eq!((answer.captive, answer.seconds_remaining), (false, Some(600)));
        assert!(request.contains("accept: application/captive+json"), "{request}");
        let (page, _) = asked("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html/>");
        assert!(page.is_err());
        let (refused, _) = asked("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        assert!(refused.unwrap_err().to_string().contains("404"));
        let (url, _, server) = under_tls("");
        let stranger = Trust::new(rustls::RootCertStore::empty());
        let error = ask(url.as_str(), &stranger, &[]).unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
        server.join().unwrap();
        let clear = ask("http://127.0.0.1:9/", &stranger, &[]).unwrap_err();
        assert!(clear.to_string().contains("https://"), "{clear}");
    }

    #[test]
    fn a_check_has_the_answer_when_the_api_is_due() {
        let (api, trust, server) =
            under_tls("HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{\"captive\": true}");
        let mut checker = Checker::new(Some(&api), trust);
        let mut checked = || {
            let (url, page) = serve(b"HTTP/1.1 302 Found\r\n\r\n");
            let check = checker.check(&url, &[]);
            page.join().unwrap();
            check
        };
        let first = checked();
        server.join().unwrap();
        assert_eq!(first.api.as_deref(), Some(api.as_str()));
        assert!(first.api_answer.is_some_and(|answer| answer.captive), "{:?}", first.api_failure);
        // The server has ended, so a second question would fail.
        let second = checked();
        assert_eq!((second.api_answer, second.api_failure), (None, None));
    }
}
