//! A name stated by a client determines the class of its flow only if the address belongs to the
//! name.

use std::net::SocketAddr;

use bentpipe_link::Class;
use tokio::io::AsyncWriteExt;

use crate::bench::{echo, free_address, read_exactly, socks_client, soon, until};
use crate::transports::{
    Configs, Ends, configs_with, over_aerotcp, over_http3, over_link, start_air, start_ground,
};
use crate::udp::{Client, echo as udp_echo, head};

const POLICY: &str =
    "default-class = 'lower-effort'\nrule = [{ domain = 'gov.uk', class = 'assured' }]";

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: www.gov.uk\r\n\r\n";

/// A client that requests www.gov.uk at `origin`; its connection stays open.
async fn says_gov_uk(socks: SocketAddr, origin: SocketAddr) -> tokio::net::TcpStream {
    let mut client = socks_client(socks, origin).await;
    client.write_all(REQUEST).await.unwrap();
    assert_eq!(soon("the echo", read_exactly(&mut client, REQUEST.len())).await, REQUEST);
    client
}

async fn names_are_verified(over: impl Fn(&Configs) -> Ends, carried: bool) {
    let configs = configs_with(POLICY, "hosts = { \"www.gov.uk\" = \"127.0.0.1\" }");
    let (connector, acceptor) = over(&configs);
    let (socks, air) = start_air(&configs, connector);
    let ground = start_ground(&configs, acceptor);
    let (honest, liar) = (echo("127.0.0.1:0").await, echo("127.0.0.2:0").await);
    let classes = || [ground.flows_in(Class::Assured), ground.flows_in(Class::LowerEffort)];

    // The false origin's address never belongs to the name.
    let mut held = vec![says_gov_uk(socks, liar).await];
    held.push(says_gov_uk(socks, liar).await);
    assert_eq!((air.claims.get(), air.claims_held.get()), (2, 0));
    assert_eq!(classes(), [0, 2]);

    held.push(says_gov_uk(socks, honest).await);
    assert_eq!(air.claims.get(), 3);
    if !carried {
        assert_eq!((ground.claims.get(), air.claims_held.get()), (0, 0));
        return;
    }
    until("the ground has confirmed it", || air.claims_held.get() == 1).await;
    assert_eq!((ground.claims.get(), ground.claims_held.get()), (3, 1));
    // Now the air gateway knows the pair, so the next flow has its class from the start.
    held.push(says_gov_uk(socks, honest).await);
    assert_eq!((air.claims.get(), classes()), (3, [1, 3]));
    assert_eq!(air.flows_in(Class::Assured), 1);
    held.push(says_gov_uk(socks, liar).await);
    assert_eq!((air.claims.get(), air.claims_held.get(), classes()), (4, 1, [1, 4]));
}

#[tokio::test]
async fn names_are_verified_over_the_radio_transport() {
    names_are_verified(over_link, true).await;
}

#[tokio::test]
async fn names_are_verified_over_http3() {
    names_are_verified(over_http3, true).await;
}

#[tokio::test]
async fn over_aerotcp_only_what_is_known_counts() {
    names_are_verified(over_aerotcp, false).await;
}

#[tokio::test]
async fn the_usage_of_a_passenger_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let top = format!("{POLICY}\nusage = {{ directory = {:?}, interval = '1 s' }}", folder.path());
    let mut configs = configs_with(&top, "hosts = { \"www.gov.uk\" = \"127.0.0.1\" }");
    // A free port, so that the client knows the address.
    let socks = free_address();
    configs.air.listen.socks5 = Some(socks);
    configs.ground.link.listen = Some("127.0.0.1:0".parse().unwrap());
    let inherited = &mut bentpipe_net::Inherited::default();
    let acceptor = bentpipe_gateway::transports::acceptor(&configs.ground, inherited).unwrap();
    configs.air.link.peer = acceptor[0].local_addr().unwrap().into();
    start_ground(&configs, acceptor[0].clone());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let air = configs.air.clone();
    let task = tokio::spawn(async move {
        bentpipe_gateway::air::run(&air, async { drop(stopped.await) }).await.unwrap();
    });
    let origin = echo("127.0.0.1:0").await;
    soon("the listener", async {
        while tokio::net::TcpStream::connect(socks).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(says_gov_uk(socks, origin).await);
    let client = Client::of(socks).await;
    client.echoes(&head(udp_echo("127.0.0.1:0").await), b"by UDP").await;
    drop(client);
    stop.send(()).unwrap();
    soon("the stop", task).await.unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let text: String = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sum = |name: &str| lines.iter().map(|line| line[name].as_u64().unwrap()).sum::<u64>();
    let bytes = (REQUEST.len() + b"by UDP".len()) as u64;
    assert_eq!((sum("up_bytes"), sum("down_bytes"), sum("flows")), (bytes, bytes, 2), "{text}");
    assert!(lines.iter().all(|line| line["passenger"] == "127.0.0.1"), "{text}");
}
