//! A hub whose egresses are standard MASQUE proxies: this project's server, which sees a standard client.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bentpipe_flow::{Class, ResetCode, Target};
use bentpipe_gateway::config::{Dial, client_entry, client_token};
use bentpipe_gateway::transport::{Connector, EgressStanding, FlowStream, Open, OpenDatagrams};
use bentpipe_gateway::transports;
use bentpipe_net::{Inherited, ip};
use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::net::UdpSocket;

use crate::bench::{echo, soon, until};
use crate::hub_datagrams::{pushed, sender};
use crate::hubs::{Path1, Running, aircraft, ground, transfer};

const HUB: u8 = 2;
const PROXIES: [u8; 2] = [4, 5];

/// Settings of the first proxy that differ from good ones.
#[derive(Default)]
struct Faults {
    /// The hub trusts another authority.
    authority: bool,
    /// The hub has another token.
    token: bool,
    /// It has another one for the second proxy too.
    tokens: bool,
    /// The proxy dials nothing on loopback.
    policy: bool,
    /// The hub lets nobody reach loopback.
    denied: bool,
}

/// An aircraft, a hub, and two proxies, of which the first has all addresses on loopback as its sites.
struct World {
    _folder: tempfile::TempDir,
    hub: Running,
    proxies: [Running; 2],
    /// Path to the first proxy.
    path: Path1,
    connector: Arc<dyn Connector>,
}

impl World {
    async fn new(faults: Faults) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let [first, second] = PROXIES.map(|number| proxy(folder, number, &faults));
        let path = Path1::to(first.address).await;
        let other = certificate(folder, "other");
        let authority = if faults.authority { other } else { format!("{}.pem", PROXIES[0]) };
        let token = if faults.token || faults.tokens { 9 } else { PROXIES[0] };
        let second_token = if faults.tokens { 9 } else { PROXIES[1] };
        let egress = |at: SocketAddr, authority: &str, token: u8| {
            let file = format!("{token}.token");
            let value = format!("Bearer {}\n", client_token(&[token; 32]));
            std::fs::write(folder.join(&file), value).unwrap();
            format!(
                "[[egress]]\npeer = \"{at}\"\nca = \"{authority}\"\nauthorization-file = \"{file}\"\n"
            )
        };
        let rest = format!(
            "{}sites = [\"127.0.0.0/8\"]\n{}",
            egress(path.address, &authority, token),
            egress(second.address, &format!("{}.pem", PROXIES[1]), second_token)
        );
        let mut config = ground(folder, HUB, "listen = \"127.0.0.1:0\"", &rest);
        if faults.denied {
            let denies: Dial = toml::from_str("deny = [\"127.0.0.0/8\"]").unwrap();
            config.dial.deny = denies.deny;
        }
        let hub = Running::start(config);
        let air = aircraft(folder, (HUB, hub.address), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let connector = transports::connector(&air, &mut Inherited::default()).unwrap();
        Self { _folder: temporary, hub, proxies: [first, second], path, connector }
    }

    /// The ways to `target`, in the order of the file.
    fn ways(&self, target: &Target) -> Vec<EgressStanding> {
        self.hub.acceptors[0].egresses(target)
    }

    /// Waits until proxies are up or down like this.
    async fn until_up(&self, target: &Target, are_up: [bool; 2]) {
        let are = || self.ways(target).iter().map(|it| it.is_up).collect::<Vec<_>>();
        until("the state of both proxies", || are() == are_up).await;
    }

    /// Opens a flow, and returns it or the reason of its end.
    async fn open(&self, target: &Target) -> Result<Box<dyn FlowStream>, ResetCode> {
        let (class, first) = (Class::BestEffort, Bytes::from_static(b"here"));
        let open = Open { target: target.clone(), class, passenger: 1, claim: None, first };
        let mut flow = self.connector.open(open).await.unwrap();
        match soon("an answer", flow.read_exact(&mut [0; 4])).await {
            Ok(_) => Ok(flow),
            Err(_) => Err(flow.reset_code().unwrap()),
        }
    }

    fn flows(&self) -> [usize; 3] {
        let [first, second] = &self.proxies;
        [&self.hub, first, second].map(|it| it.gateway.open_flows())
    }
}

/// Writes a certificate for 127.0.0.1 and its key. Returns the name of its file.
fn certificate(folder: &Path, name: &str) -> String {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(folder.join(format!("{name}.pem")), made.cert.pem()).unwrap();
    let key = made.signing_key.serialize_pem();
    std::fs::write(folder.join(format!("{name}-key.pem")), key).unwrap();
    format!("{name}.pem")
}

/// A ground gateway for standard clients alone.
fn proxy(folder: &Path, number: u8, faults: &Faults) -> Running {
    let file = certificate(folder, &number.to_string());
    let client = client_entry("hub", &client_token(&[number; 32])).unwrap();
    let rest = format!("[masque]\ncertificate = \"{file}\"\nkey = \"{number}-key.pem\"\n{client}");
    let mut config = ground(folder, number, "masque-listen = \"127.0.0.1:0\"", &rest);
    if faults.policy && number == PROXIES[0] {
        config.dial.allow.clear();
    }
    Running::start(config)
}

async fn destination() -> Target {
    echo("127.0.0.1:0").await.to_string().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_go_through_a_proxy_and_end_with_it() {
    let world = World::new(Faults::default()).await;
    let address = echo("127.0.0.1:0").await;
    let target: Target = address.to_string().parse().unwrap();
    world.until_up(&target, [true; 2]).await;

    // Both directions, with their ends.
    let is_over = Arc::new(AtomicBool::new(true));
    soon("a transfer", transfer(world.connector.clone(), address, is_over, Arc::default())).await;
    until("the end of its flow", || world.flows() == [0; 3]).await;

    let mut stream = world.open(&target).await.map_err(|code| code.to_string()).unwrap();
    until("the hub admits, and the first proxy dials", || world.flows() == [1, 1, 0]).await;
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let udp = OpenDatagrams {
        target: server.local_addr().unwrap().to_string().parse().unwrap(),
        protocol: ip::UDP,
        source: 5_000,
        class: Class::BestEffort,
        passenger: 1,
    };
    let datagrams = world.connector.open_datagrams(udp.clone()).await.unwrap();
    let port = sender(&*datagrams, &server, b"question").await;
    pushed(&*datagrams, &server, port, b"answer").await;
    until("the flow of datagrams too", || world.flows() == [2, 2, 0]).await;
    let through =
        || world.hub.acceptors[0].egress_states().into_iter().map(|it| (it.is_proxy, it.flows));
    assert!(through().eq([(true, 2), (true, 0)]));

    // The proxy is silent, as if it were killed. Its flows end at once, and new ones go elsewhere.
    world.path.is_cut.store(true, Ordering::Relaxed);
    let ended = soon("the end of the stream", stream.read(&mut [0; 4])).await;
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!(stream.reset_code(), Some(ResetCode::Unreachable));
    let ended = soon("the end of the datagrams", async {
        loop {
            if let Err(code) = datagrams.receive().await {
                return code;
            }
        }
    })
    .await;
    assert_eq!(ended, ResetCode::Unreachable);
    world.until_up(&target, [false, true]).await;
    let trouble = world.ways(&target)[0].trouble.clone().unwrap();
    assert!(trouble.contains("no connection to the proxy"), "{trouble}");
    let _stream = world.open(&target).await.map_err(|code| code.to_string()).unwrap();
    let datagrams = world.connector.open_datagrams(udp).await.unwrap();
    sender(&*datagrams, &server, b"another question").await;
    until("flows through the second proxy", || {
        let [hub, _, second] = world.flows();
        (hub, second) == (2, 2)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_another_authority_is_reported() {
    let world = World::new(Faults { authority: true, ..Faults::default() }).await;
    let target = destination().await;
    world.until_up(&target, [false, true]).await;
    let reported = || world.ways(&target)[0].trouble.clone().unwrap_or_default();
    until("the report", || reported().contains("invalid peer certificate")).await;
    world.open(&target).await.map_err(|code| code.to_string()).unwrap();
    assert_eq!(world.proxies[0].gateway.open_flows(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_refuses_the_authorization_gets_no_more_flows() {
    let world = World::new(Faults { token: true, ..Faults::default() }).await;
    let target = destination().await;
    world.until_up(&target, [true; 2]).await;
    assert_eq!(world.open(&target).await.err(), Some(ResetCode::Forbidden));
    world.until_up(&target, [false, true]).await;
    let trouble = world.ways(&target)[0].trouble.clone().unwrap();
    assert!(trouble.contains("authorization-file"), "{trouble}");
    world.open(&target).await.map_err(|code| code.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_do_not_wait_for_proxies_that_refuse_the_authorization() {
    let world = World::new(Faults { tokens: true, ..Faults::default() }).await;
    let target = destination().await;
    world.until_up(&target, [true; 2]).await;
    for are_up in [[false, true], [false; 2]] {
        assert_eq!(world.open(&target).await.err(), Some(ResetCode::Forbidden));
        world.until_up(&target, are_up).await;
    }
    assert_eq!(world.open(&target).await.err(), Some(ResetCode::Unreachable));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_that_the_proxy_refuses_is_refused() {
    let world = World::new(Faults { policy: true, ..Faults::default() }).await;
    let target = destination().await;
    world.until_up(&target, [true; 2]).await;
    assert_eq!(world.open(&target).await.err(), Some(ResetCode::Forbidden));
    assert!(world.ways(&target)[0].is_up, "other destinations may be permitted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hub_permits_destinations_before_a_proxy_gets_them() {
    let world = World::new(Faults { denied: true, ..Faults::default() }).await;
    let target = destination().await;
    world.until_up(&target, [true; 2]).await;
    assert_eq!(world.open(&target).await.err(), Some(ResetCode::Forbidden));
    for proxy in &world.proxies {
        assert_eq!(proxy.gateway.counters().accepted.get(), 0, "no request reaches a proxy");
    }
}
