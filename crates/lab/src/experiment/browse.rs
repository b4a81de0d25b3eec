//! Browsing "from the aircraft" with this machine's own programs. The gateways run on this machine,
//! and only the link between them is in the lab.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::emu::Service;
use crate::emu::{AIR, GROUND, Testbed, hand_over};
use crate::profile::Profile;
use crate::scratch::no_folder;
use crate::system::pair::{Pair, PairError, PairSpec};
use crate::workload::origin::serve;
use anyhow::anyhow;

/// Usual ports of proxies. If they are in use, any free ones.
const SOCKS_PORT: u16 = 1080;
const HTTP_PORT: u16 = 8080;
const LINK_PORT: u16 = 4500;

/// Address of the lab's page on this machine. It is a loopback address that hardly any other
/// program uses, so the ground gateway may safely be allowed to dial it.
const PAGE_IP: Ipv4Addr = Ipv4Addr::new(127, 198, 18, 1);

/// Name of the page, which the ground gateway resolves to that address.
const PAGE_NAME: &str = "page.test";

/// Polling interval of the gateways' state.
const LOOK: Duration = Duration::from_millis(500);

/// An open path to the Internet over the emulated link, until it is dropped.
pub struct Browse {
    /// SOCKS5 address for this machine's programs.
    pub socks5: SocketAddr,
    /// HTTP proxy address for this machine's programs.
    pub http_proxy: SocketAddr,
    /// URL of the lab's page through either proxy.
    pub page: String,
    // Fields drop in order: the gateways before their link.
    pair: Pair,
    _page: Service,
    _testbed: Testbed,
}

impl Browse {
    /// Opens the path over `profile` with the gateways of `program`, with their files in `folder`.
    /// The gateways end with the calling thread.
    pub fn start(
        profile: &Profile,
        seed: u64,
        program: &Path,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let testbed = Testbed::new(&profile.link, None, seed)?;
        testbed.measure()?;
        let failed = |error: io::Error| anyhow!("the proxy: {error}");
        let (socks5, http) =
            (listen(SOCKS_PORT).map_err(failed)?, listen(HTTP_PORT).map_err(failed)?);
        let page = TcpListener::bind((PAGE_IP, 0)).map_err(failed)?;
        page.set_nonblocking(true).map_err(failed)?;
        let page_port = page.local_addr().map_err(failed)?.port();
        let _page = Service::start_here(|| serve(page, Default::default()))?;

        let peer = SocketAddr::new(GROUND.v4.into(), LINK_PORT);
        let from = SocketAddr::new(AIR.v4.into(), 0);
        let spec = PairSpec {
            http_proxy: Some(http.local_addr().map_err(failed)?),
            allow: vec![format!("{PAGE_IP}/32")],
            hosts: vec![(PAGE_NAME.into(), PAGE_IP.into())],
            // Even a machine without name servers can show the page.
            name_servers: if knows_name_servers() { Vec::new() } else { vec![PAGE_IP.into()] },
            ..PairSpec::new(profile, socks5.local_addr().map_err(failed)?, peer)
        };
        let (socks5_addr, http_addr) = (spec.socks5, spec.http_proxy.unwrap_or(spec.socks5));
        let (mut air, mut ground) = (Command::new(program), Command::new(program));
        let air_link = testbed.air.udp_socket(from)?;
        let sockets =
            vec![("link", air_link.into()), ("socks5", socks5.into()), ("http-proxy", http.into())];
        hand_over(&mut air, sockets).map_err(failed)?;
        let ground_link = testbed.ground.udp_socket(peer)?;
        hand_over(&mut ground, vec![("link", ground_link.into())]).map_err(failed)?;
        fs::create_dir(folder).map_err(no_folder)?;
        let pair = Pair::start(&spec, folder, air, ground);
        let pair = pair.map_err(|error| anyhow!("the proxy: {error}"))?;
        Ok(Self {
            socks5: socks5_addr,
            http_proxy: http_addr,
            page: format!("http://{PAGE_NAME}:{page_port}/"),
            pair,
            _page,
            _testbed: testbed,
        })
    }

    /// Blocks as long as both gateways run.
    pub fn serve(&mut self) -> Result<(), PairError> {
        loop {
            self.pair.check()?;
            thread::sleep(LOOK);
        }
    }
}

/// Listens on this machine's loopback, at `port` if it is free.
fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
}

fn knows_name_servers() -> bool {
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    text.lines().any(|line| line.trim_start().starts_with("nameserver"))
}
