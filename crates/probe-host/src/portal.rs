//! The check for a captive portal: one request for a page that answers 204. A redirect is noted, not
//! followed.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bentpipe_probe::portal::{PortalCheck, PortalState, networkd_api};
use url::Url;

use crate::web::{self, Bounds};
use crate::{clock, failure};

/// Bounds of the request. A portal's page is not read.
const BOUNDS: Bounds = Bounds { patience: Duration::from_secs(10), read: 0, keep: 0 };

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
    let fetched = web::fetch(url, resolvers, BOUNDS)?;
    let location = fetched.fields.get("location");
    let text = location.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    Ok((fetched.status.as_u16(), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::tests::serve;

    /// Serves one response on loopback and returns the finding.
    fn served(response: &'static str) -> PortalCheck {
        let (url, server) = serve(response.as_bytes());
        let check = check(&url, &[]);
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
}
