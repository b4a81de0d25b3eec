//! The question for the public address of each family: STUN, and a page that echoes it if STUN is silent.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use bentpipe_probe::address::{AddressCheck, AsTable, Witness, echoed, network, stun};
use bentpipe_probe::record::Network;
use bentpipe_probe::target::Family;
use url::{Host, Url};

use crate::web::{self, Bounds};
use crate::{clock, failure, random};

/// Bounds of the echo page: an address has at most 45 characters.
const BOUNDS: Bounds = Bounds { patience: Duration::from_secs(10), read: 256, keep: 256 };

/// Servers that tell the public address.
#[derive(Clone, Debug)]
pub struct Servers {
    /// STUN server.
    pub stun: StunServer,
    /// Page that answers with the client's address.
    pub page: Url,
}

impl Servers {
    /// Families of which the address is asked for: that of a literal STUN server, or each that has a route.
    pub fn families(&self, network: &Network) -> Vec<Family> {
        match &self.stun.host {
            Host::Ipv4(_) => vec![Family::V4],
            Host::Ipv6(_) => vec![Family::V6],
            Host::Domain(_) => match (network.ipv4, network.ipv6) {
                (true, true) => vec![Family::V4, Family::V6],
                (false, true) => vec![Family::V6],
                (_, false) => vec![Family::V4],
            },
        }
    }
}

/// A STUN server: host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StunServer {
    host: Host,
    port: u16,
}

impl std::str::FromStr for StunServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || {
            format!(
                "`{text}` does not name a STUN server: write HOST or HOST:PORT, for example stun.example.net:3478"
            )
        };
        let url = Url::parse(&format!("stun://{text}")).map_err(|_| fault())?;
        let bare = url.path().is_empty() && url.username().is_empty() && url.query().is_none();
        let host = url.host_str().filter(|_| bare).ok_or_else(fault)?;
        let host = Host::parse(host).map_err(|_| fault())?;
        Ok(Self { host, port: url.port().unwrap_or(stun::PORT) })
    }
}

impl std::fmt::Display for StunServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The checks of a run.
#[derive(Debug)]
pub struct Checker {
    table: AsTable,
    /// The address of each family that was found last. It stays in memory.
    last: BTreeMap<Family, IpAddr>,
}

impl Checker {
    /// Before the first check.
    pub fn new() -> Self {
        Self { table: AsTable::built_in(), last: BTreeMap::new() }
    }

    /// Asks for the address of a family.
    pub fn check(
        &mut self,
        servers: &Servers,
        family: Family,
        resolvers: &[IpAddr],
    ) -> AddressCheck {
        if let Ok(address) = by_stun(&servers.stun, family, resolvers) {
            return self.found(Witness::Stun, family, servers.stun.to_string(), address);
        }
        match by_page(&servers.page, family, resolvers) {
            Ok(address) => self.found(Witness::Http, family, servers.page.to_string(), address),
            Err(error) => AddressCheck {
                family,
                method: Witness::Http,
                server: servers.page.to_string(),
                network: None,
                changed: false,
                system: None,
                failure: Some(failure::name(&error)),
            },
        }
    }

    fn found(
        &mut self,
        method: Witness,
        family: Family,
        server: String,
        address: IpAddr,
    ) -> AddressCheck {
        let changed = self.last.insert(family, address).is_some_and(|last| last != address);
        let system = self.table.find(address);
        let network = Some(network(address));
        AddressCheck { family, method, server, network, changed, system, failure: None }
    }
}

fn by_stun(server: &StunServer, family: Family, resolvers: &[IpAddr]) -> io::Result<IpAddr> {
    let address = address(&server.host, family, resolvers)?;
    let socket = UdpSocket::bind(SocketAddr::new(family.unspecified(), 0))?;
    socket.connect(SocketAddr::new(address, server.port))?;
    let (id, began) = (random::bytes()?, clock::boot());
    let mut ends = stun::RETRANSMISSIONS_MS.into_iter().chain([stun::PATIENCE_MS]);
    let mut buffer = [0; 576];
    socket.send(&stun::request(id))?;
    let mut end = began;
    loop {
        let left = end.saturating_sub(clock::boot());
        if left.is_zero() {
            let Some(next) = ends.next() else { return Err(io::ErrorKind::TimedOut.into()) };
            if end > began {
                socket.send(&stun::request(id))?;
            }
            end = began + Duration::from_millis(next);
            continue;
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut buffer) {
            Ok(length) => {
                if let Some(address) = stun::response(id, &buffer[..length]) {
                    return Ok(address);
                }
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
}

fn by_page(page: &Url, family: Family, resolvers: &[IpAddr]) -> io::Result<IpAddr> {
    let host = page.host().ok_or_else(|| io::Error::other("the URL has no host"))?;
    let fetched = web::fetch_from(address(&host, family, resolvers)?, page, BOUNDS)?;
    let fault = || io::Error::other("the page does not answer with an address");
    let usable = fetched.status.is_success() && !fetched.cut;
    echoed(&fetched.body).filter(|_| usable).ok_or_else(fault)
}

/// Address of a server of a family.
fn address(
    host: &Host<impl AsRef<str>>,
    family: Family,
    resolvers: &[IpAddr],
) -> io::Result<IpAddr> {
    let found = web::address_of(host, family, resolvers)?;
    let fault = || io::Error::other("the server's address is of the other version of IP");
    (Family::of(found) == family).then_some(found).ok_or_else(fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::tests::serve;

    #[test]
    fn ways_of_writing_a_stun_server() {
        let shown = |text: &str| text.parse::<StunServer>().map(|server| server.to_string());
        assert_eq!(shown("stun.example.net").as_deref(), Ok("stun.example.net:3478"));
        assert_eq!(shown("192.0.2.1:19302").as_deref(), Ok("192.0.2.1:19302"));
        assert_eq!(shown("[2001:db8::1]").as_deref(), Ok("[2001:db8::1]:3478"));
        for text in ["", "a b", "host/path", "host:99999", "user@host"] {
            assert!(shown(text).is_err_and(|why| why.contains("HOST:PORT")), "{text}");
        }
    }

    /// A STUN server on loopback that ignores the first requests, then answers with a fixed address each.
    fn stun_server(
        silent: usize,
        addresses: Vec<[u8; 4]>,
    ) -> (StunServer, std::thread::JoinHandle<()>) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = socket.local_addr().unwrap().to_string().parse().unwrap();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 100];
            for _ in 0..silent {
                socket.recv_from(&mut buffer).unwrap();
            }
            for address in addresses {
                let (length, from) = socket.recv_from(&mut buffer).unwrap();
                assert_eq!(length, 20);
                let cookie = [0x21, 0x12, 0xa4, 0x42];
                let mut answer = vec![1, 1, 0, 12];
                answer.extend(&buffer[4..20]);
                answer.extend([0, 0x20, 0, 8, 0, 1, 0, 0]);
                answer.extend(address.iter().zip(cookie).map(|(byte, key)| byte ^ key));
                socket.send_to(b"noise", from).unwrap();
                socket.send_to(&answer, from).unwrap();
            }
        });
        (server, thread)
    }

    #[test]
    fn a_change_is_noted_and_the_host_is_not() {
        let (stun, thread) = stun_server(
            1,
            vec![[98, 97, 12, 1], [98, 97, 12, 1], [98, 97, 12, 2], [203, 0, 113, 9]],
        );
        let servers = Servers { stun, page: Url::parse("http://127.0.0.1:9/").unwrap() };
        let mut checker = Checker::new();
        let checks: Vec<AddressCheck> =
            (0..4).map(|_| checker.check(&servers, Family::V4, &[])).collect();
        thread.join().unwrap();
        let changed: Vec<bool> = checks.iter().map(|check| check.changed).collect();
        assert_eq!(changed, [false, false, true, true]);
        assert_eq!(checks[2].network, Some(IpAddr::from([98, 97, 12, 0])));
        assert_eq!(checks[2].system.as_ref().map(|system| system.asn), Some(14593));
        assert_eq!(checks[3].system, None);
        let text = serde_json::to_string(&checks).unwrap();
        assert!(!text.contains("98.97.12.2") && !text.contains("203.0.113.9"), "{text}");
    }

    #[test]
    fn families_that_are_asked_for() {
        let page = Url::parse("http://127.0.0.1:9/").unwrap();
        let families = |stun: &str, ipv4: bool, ipv6: bool| {
            let servers = Servers { stun: stun.parse().unwrap(), page: page.clone() };
            servers.families(&Network { ipv4, ipv6, ..Network::default() })
        };
        use Family::{V4, V6};
        assert_eq!(families("stun.example.net", true, true), [V4, V6]);
        assert_eq!(families("stun.example.net", false, true), [V6]);
        assert_eq!(families("stun.example.net", false, false), [V4]);
        assert_eq!(families("192.0.2.1", true, true), [V4]);
        assert_eq!(families("[2001:db8::1]", true, true), [V6]);
        let servers = Servers { stun: "127.0.0.1:9".parse().unwrap(), page };
        let check = Checker::new().check(&servers, V6, &[]);
        assert_eq!((check.family, check.network), (V6, None));
        assert!(check.failure.unwrap().contains("the other version of IP"));
    }

    #[test]
    fn the_page_is_asked_if_stun_is_refused() {
        // Nothing listens on port 9 of loopback, so the kernel refuses at once.
        let stun: StunServer = "127.0.0.1:9".parse().unwrap();
        let (page, server) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n98.97.12.34\n");
        let mut checker = Checker::new();
        let check = checker.check(&Servers { stun: stun.clone(), page }, Family::V4, &[]);
        server.join().unwrap();
        assert_eq!(
            (check.method, check.network),
            (Witness::Http, Some(IpAddr::from([98, 97, 12, 0])))
        );
        let (page, server) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nlog in");
        let check = checker.check(&Servers { stun, page }, Family::V4, &[]);
        server.join().unwrap();
        assert_eq!(check.network, None);
        assert!(check.failure.unwrap().contains("does not answer with an address"));
    }
}
