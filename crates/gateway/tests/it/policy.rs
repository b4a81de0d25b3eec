//! The Rural-PAWS example matches the policy of its paper.

use bentpipe_classify::{Named, Protocol, Subject};
use bentpipe_gateway::config::{AirConfig, GroundConfig};
use bentpipe_gateway::transports::link;
use bentpipe_link::{Class, ClassSettings, PerClass};
use bentpipe_schedule::Dscp;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

#[test]
fn public_services_are_assured_and_the_rest_is_lower_effort() {
    let folder = tempfile::tempdir().unwrap();
    for key in ["air.key", "ground.key"] {
        std::fs::write(folder.path().join(key), KEY).unwrap();
    }
    let text = include_str!("../../../../examples/rural-paws/air.toml");
    let air = AirConfig::parse(&folder.path().join("air.toml"), text).unwrap();
    let text = include_str!("../../../../examples/rural-paws/ground.toml");
    let ground = GroundConfig::parse(&folder.path().join("ground.toml"), text).unwrap();

    let class = |name: &str| {
        let subject = Subject {
            address: None,
            port: 443,
            protocol: Protocol::Tcp,
            dscp: Dscp::EF,
            passenger: "10.0.0.7".parse().unwrap(),
            mac: None,
            named: Named::Agreed(name.parse().unwrap()),
        };
        air.rules.decide(&subject).class
    };
    for name in [
        "www.abdn.ac.uk",
        "gov.uk",
        "www.judiciary.uk",
        "raf.mod.uk",
        "111.nhs.uk",
        "www.parliament.uk",
        "www.police.uk",
        "school.county.sch.uk",
        "www.bl.uk",
        "sounds.british-library.uk",
        "www.jpsc.uk",
        "maps.nls.uk",
        "www.supremecourt.uk",
    ] {
        assert_eq!(class(name), Class::Assured, "{name}");
    }
    for name in ["www.bbc.co.uk", "notgov.uk", "gov.uk.shop.test", "uk"] {
        assert_eq!(class(name), Class::LowerEffort, "{name}");
    }
    let ceils = |classes: &bentpipe_gateway::config::Classes| {
        [Class::Assured, Class::LowerEffort]
            .map(|class| classes.get(class).unwrap().ceil().unwrap().bps())
    };
    assert_eq!(ceils(&air.classes), [4_000_000, 256_000]);
    assert_eq!(ceils(&ground.aircraft[0].classes), [8_000_000, 2_000_000]);
    let floor = |classes: &bentpipe_gateway::config::Classes| {
        classes.get(Class::LowerEffort).unwrap().rate()
    };
    assert_eq!(floor(&air.classes).map(|rate| rate.bps()), Some(0));
    for (classes, rate) in
        [(&air.classes, air.link.rate), (&ground.aircraft[0].classes, ground.aircraft[0].rate)]
    {
        assert!(classes.remarks(rate).is_empty());
    }
    // The link gets the same settings.
    let up = link::air_config(&air, ([127, 0, 0, 1], 0).into(), 0).unwrap().settings.classes;
    let down = link::hub_config(&ground).unwrap().aircraft[0].settings.classes;
    let ceil = |classes: &PerClass<ClassSettings>, class: Class| {
        classes[class].limits.ceil.map(|ceil| ceil.bps())
    };
    assert_eq!(ceil(&up, Class::LowerEffort), Some(256_000));
    assert_eq!(ceil(&down, Class::Assured), Some(8_000_000));
    assert_eq!(up[Class::BestEffort], ClassSettings::default());
}

#[test]
fn the_aircraft_example_trusts_the_documented_marks() {
    let folder = tempfile::tempdir().unwrap();
    for key in ["air.key", "ground.key"] {
        std::fs::write(folder.path().join(key), KEY).unwrap();
    }
    let text = include_str!("../../../../examples/aircraft/air.toml");
    let air = AirConfig::parse(&folder.path().join("air.toml"), text).unwrap();
    let text = include_str!("../../../../examples/aircraft/ground.toml");
    let ground = GroundConfig::parse(&folder.path().join("ground.toml"), text).unwrap();
    link::air_config(&air, "127.0.0.1:1".parse().unwrap(), 1).unwrap();
    link::hub_config(&ground).unwrap();
    let class = |dscp, passenger: &str, mac: Option<&str>| {
        let subject = Subject {
            address: Some("192.0.2.7".parse().unwrap()),
            port: 5060,
            protocol: Protocol::Udp,
            dscp,
            passenger: passenger.parse().unwrap(),
            mac: mac.map(|mac| mac.parse().unwrap()),
            named: Named::Unknown,
        };
        air.rules.decide(&subject).class
    };
    let (seat, crew) = ("10.0.0.7", "10.9.1.3");
    assert_eq!(class(Dscp::DF, "10.9.0.4", None), Class::Operator);
    assert_eq!(class(Dscp::EF, seat, None), Class::Network);
    assert_eq!(class(Dscp::AF42, seat, None), Class::BestEffort, "nobody trusts it");
    assert_eq!(class(Dscp::AF42, crew, None), Class::Assured);
    assert_eq!(class(Dscp::AF42, seat, Some("a4:83:e7:01:02:03")), Class::Assured);
    assert_eq!(class(Dscp::CS6, crew, None), Class::Network, "no more than highest-class");
    let ceils = [air.classes.passenger_ceil(), ground.aircraft[0].classes.passenger_ceil()];
    assert!(ceils.iter().all(|ceil| ceil.is_some_and(|ceil| ceil.bps() == 128_000)));
}
