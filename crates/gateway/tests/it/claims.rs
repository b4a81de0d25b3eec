//! A name that a client says gives its flow a class only where the address is the name's.

use std::net::SocketAddr;

use bentpipe_link::Class;
use tokio::io::AsyncWriteExt;

use crate::bench::{echo, read_exactly, socks_client, soon, until};
use crate::transports::{
    Configs, Ends, configs_with, over_aerotcp, over_http3, over_link, start_air, start_ground,
};

const POLICY: &str =
    "default-class = 'lower-effort'\nrule = [{ domain = 'gov.uk', class = 'assured' }]";

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: www.gov.uk\r\n\r\n";

/// A client that says it wants www.gov.uk, at `origin`; its connection stays open.
async fn says_gov_uk(socks: SocketAddr, origin: SocketAddr) -> tokio::net::TcpStream {
    let mut client = socks_client(socks, origin).await;
    client.write_all(REQUEST).await.unwrap();
    assert_eq!(soon("the echo", read_exactly(&mut client, REQUEST.len())).await, REQUEST);
    client
}

async fn names_are_verified(over: impl Fn(&Configs) -> Ends, carried: bool) {
    let configs = configs_with(POLICY, "hosts = { \"www.gov.uk\" = \"127.0.0.1\" }");
    let (far, arrivals) = over(&configs);
    let (socks, air) = start_air(&configs, far);
    let ground = start_ground(&configs, arrivals);
    let (honest, liar) = (echo("127.0.0.1:0").await, echo("127.0.0.2:0").await);
    let classes = || [ground.flows_in(Class::Assured), ground.flows_in(Class::LowerEffort)];

    // The liar's address is not one of the name's, now or ever.
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
    // Now the air knows the pair: the next flow has its class from the start.
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
