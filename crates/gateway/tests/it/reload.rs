//! Configuration changes while gateways run.

use std::sync::Arc;

use bentpipe_gateway::air::Live;
use bentpipe_gateway::config::GroundConfig;
use bentpipe_gateway::ground::Ground;
use bentpipe_gateway::transport::Acceptor;
use bentpipe_link::Class;
use bentpipe_units::BitRate;

use crate::bench::{LOOPBACK, config_of_air, start_with, until};
use crate::udp::{Client, echo, head};
use crate::wire;

fn ceil(kbps: u64) -> Option<BitRate> {
    Some(BitRate::from_bps(1_000 * kbps))
}

#[tokio::test]
async fn rules_and_classes_change_and_open_flows_go_on() {
    let mut live: Option<Live> = None;
    let bench = start_with("default-class = 'assured'", LOOPBACK, |air| live = Some(air.live()));
    let live = live.unwrap();
    let client = Client::of(bench.socks).await;
    let (one, two) = (head(echo("127.0.0.1:0").await), head(echo("127.0.0.1:0").await));
    client.echoes(&one, b"before").await;
    let apply = |top: &str| live.apply(&config_of_air(top));
    apply("default-class = 'lower-effort'\nclasses = { lower-effort = { ceil = '64 kbit/s' } }")
        .unwrap();
    let classes = bench.up.classes().expect("the link was told");
    assert_eq!(classes[Class::LowerEffort].limits.ceil, ceil(64));
    assert_eq!(classes[Class::Assured].limits.ceil, None);
    client.echoes(&one, b"after").await;
    client.echoes(&two, b"another").await;
    let opened: Vec<_> = bench.up.opened_datagrams().iter().map(|open| open.class).collect();
    assert_eq!(opened, [Class::Assured, Class::LowerEffort]);
    // The limit on passengers also changes for open flows.
    let policed = "rule = [{ port = '1-65535', class = 'network' }]\nclasses.network.";
    apply(&format!("{policed}ceil = '1 Mbit/s'")).unwrap();
    let three = head(echo("127.0.0.1:0").await);
    for _ in 0..20 {
        client.echoes(&three, &[0; 1000]).await;
    }
    assert_eq!(bench.air.datagrams_policed.get(), 0);
    apply(&format!("{policed}passenger-ceil = '1 kbit/s'")).unwrap();
    for _ in 0..20 {
        client.send(&three, &[0; 1000]).await;
    }
    until("some were dropped", || bench.air.datagrams_policed.get() >= 10).await;
}

#[tokio::test]
async fn each_aircraft_has_its_classes_and_a_link_that_cannot_work_is_left_as_it_was() {
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.key"), key).unwrap();
    let parse = |kbps: u64| {
        let text = format!(
            "classes = {{ best-effort = {{ ceil = \"{kbps} kbit/s\" }} }}\n\
             [link]\nprivate-key-file = \"a.key\"\nlisten = \"127.0.0.1:0\"\n\
             [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{key}\"\nrate = \"2 Mbit/s\"\n\
             [dns]\nservers = [\"127.0.0.1:9\"]\n"
        );
        GroundConfig::parse(&folder.path().join("ground.toml"), &text).unwrap()
    };
    let config = parse(64);
    let aircraft = config.aircraft[0].key;
    let (_up, down) = wire::link(*aircraft.as_bytes());
    let acceptor: Vec<Arc<dyn Acceptor>> = vec![down.clone()];
    let ground = Ground::new(&config).unwrap();
    ground.apply(&config, &parse(128), &acceptor).unwrap();
    let told = || {
        let told = down.classes();
        told.map(|(of, classes)| (of, classes[Class::BestEffort].limits.ceil))
    };
    assert_eq!(told(), Some((aircraft, ceil(128))));
    let mut wrong = parse(256);
    wrong.aircraft[0].mtu = Some(576);
    assert!(ground.apply(&config, &wrong, &acceptor).is_err(), "the link's packets are larger");
    assert_eq!(told(), Some((aircraft, ceil(128))));
}
