//! The check for a captive portal: one request for a page that answers 204. A redirect is noted, not
//! followed.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use bentpipe_probe::portal::{PortalCheck, PortalState, networkd_api};
use url::Url;

use crate::{clock, failure, resolver};

/// Wait for the connection, and for the response.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most bytes of a response header.
const MAX_HEADER: usize = 8192;

/// Most header fields.
const MAX_FIELDS: usize = 64;

/// State files of systemd-networkd, one an interface.
const NETWORKD: &str = "/run/systemd/netif/links";

/// Checks `url` with the machine's own `resolvers`.
pub fn check(url: &Url, resolvers: &[IpAddr]) -> PortalCheck {
    let began = clock::boot();
    let api = api();
    match request(url, resolvers) {
        Ok((status, location)) => PortalCheck {
            url: url.to_string(),
            state: PortalState::of_response(status, location.as_deref()),
            status: Some(status),
            rtt_us: Some(bentpipe_probe::micros(clock::boot().saturating_sub(began))),
            failure: None,
            api,
        },
        Err(error) => PortalCheck {
            url: url.to_string(),
            state: PortalState::Unknown,
            status: None,
            rtt_us: None,
            failure: Some(failure::name(&error)),
            api,
        },
    }
}

/// The API that a network named by RFC 8910.
fn api() -> Option<String> {
    let links = fs::read_dir(NETWORKD).ok()?;
    // A laptop has a few interfaces; a machine of containers may have thousands.
    links.take(32).find_map(|link| networkd_api(&fs::read_to_string(link.ok()?.path()).ok()?))
}

fn request(url: &Url, resolvers: &[IpAddr]) -> io::Result<(u16, Option<String>)> {
    let host = url.host_str().ok_or_else(|| io::Error::other("the URL has no host"))?;
    let port = url.port_or_known_default().unwrap_or(80);
    let mut stream = TcpStream::connect_timeout(
        &SocketAddr::new(address(url, host, resolvers)?, port),
        PATIENCE,
    )?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
    // One segment, however slow the path.
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: bentpipe-probe\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    header(&mut stream)
}

fn address(url: &Url, host: &str, resolvers: &[IpAddr]) -> io::Result<IpAddr> {
    match url.host() {
        Some(url::Host::Ipv4(v4)) => return Ok(v4.into()),
        Some(url::Host::Ipv6(v6)) => return Ok(v6.into()),
        _ => {}
    }
    let mut last = io::Error::other("the machine has no resolver");
    for resolver in resolvers {
        match resolver::addresses(*resolver, host) {
            Ok(found) => match found.first() {
                Some(address) => return Ok((*address).into()),
                None => last = io::Error::other("dns_no_answer"),
            },
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Reads the header of a response: status and `Location`.
fn header(stream: &mut impl Read) -> io::Result<(u16, Option<String>)> {
    let began = clock::boot();
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let length = stream.read(&mut piece)?;
        bytes.extend(&piece[..length]);
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let state = response.parse(&bytes).map_err(io::Error::other)?;
        if state.is_complete() {
            let location =
                response.headers.iter().find(|field| field.name.eq_ignore_ascii_case("location"));
            let text = location.map(|field| String::from_utf8_lossy(field.value).into_owned());
            return Ok((response.code.unwrap_or_default(), text));
        }
        // A server that sends a byte at a time must not hold the lane.
        if length == 0 || bytes.len() > MAX_HEADER || clock::boot() > began + PATIENCE {
            return Err(io::Error::other("the header of the response does not end"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Serves one response on loopback and returns the finding.
    fn served(response: &'static str) -> PortalCheck {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/generate_204", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(response.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let check = check(&Url::parse(&url).unwrap(), &[]);
        assert!(
            server.join().unwrap().starts_with("GET /generate_204 HTTP/1.1\r\nHost: 127.0.0.1:")
        );
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
}
