//! Messages that name the line and the value that the operator wrote.

use bentpipe_classify::Protocol;

use super::*;

/// Message about `air.toml` with `more` at its end.
fn air_with(bench: &Bench, more: &str) -> Result<AirConfig, ConfigError> {
    AirConfig::parse(&bench.0.path().join("air.toml"), &format!("{AIR}{more}"))
}

#[test]
fn an_mtu_that_no_link_has_is_shown_with_its_line() {
    let bench = Bench::new();
    for mtu in ["1279", "65536"] {
        let file = bench.0.path().join("air.toml");
        let text = AIR.replace("[link]", &format!("[link]\nmtu = {mtu}"));
        let message = bench.message(AirConfig::parse(&file, &text));
        assert!(message.contains("air.toml, line 2: an mtu of"), "{message}");
        assert!(message.contains("write 1280 to 65535"), "{message}");
        for (place, line) in [("[link]", 2), ("name = \"D-ABCD\"", 7)] {
            let text = GROUND.replace(place, &format!("{place}\nmtu = {mtu}"));
            let message = bench.message(GroundConfig::parse(&file, &text));
            assert!(message.contains(&format!("line {line}: an mtu of {mtu}")), "{message}");
        }
    }
    for mtu in ["1280", "65535"] {
        let text = GROUND.replace("rate = ", &format!("mtu = {mtu}\nrate = "));
        let ground = GroundConfig::parse(&bench.0.path().join("ground.toml"), &text).unwrap();
        assert_eq!(ground.aircraft[0].mtu, Some(mtu.parse().unwrap()));
    }
}

#[test]
fn a_name_that_another_aircraft_has_is_shown_with_its_line() {
    let bench = Bench::new();
    let key = SecretKey::from_bytes([9; 32]).public();
    let second = format!("[[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{key}\"\n[dial]");
    let text = GROUND.replace("[dial]", &second);
    let message = bench.message(GroundConfig::parse(&bench.0.path().join("ground.toml"), &text));
    let shown = "line 11: \"D-ABCD\" is the name of another aircraft\n    name = \"D-ABCD\"";
    assert!(message.contains(shown), "{message}");
}

#[test]
fn a_small_http_cache_has_a_small_largest_object() {
    let bench = Bench::new();
    for (memory, object) in [("8 MiB", 2 << 20), ("64MB", 16_000_000), ("1 GiB", 16 << 20)] {
        let more = format!("[http-cache]\nmemory = \"{memory}\"\n");
        let cache = air_with(&bench, &more).unwrap().http_cache.unwrap();
        assert_eq!(cache.settings.object_bytes, object, "{memory}");
    }
    let more = "[http-cache]\nmemory = \"8 MiB\"\nlargest-object = \"4 MiB\"\n";
    let message = bench.message(air_with(&bench, more));
    assert!(message.contains("line 15: largest-object = \"4 MiB\" is more than"), "{message}");
}

#[test]
fn a_rule_knows_the_protocols_of_raw_by_name() {
    let bench = Bench::new();
    let more = "[[rule]]\nprotocol = [\"esp\", \"udp\", 132]\nclass = \"assured\"\n";
    let air = air_with(&bench, more).unwrap();
    let expected = [Protocol::Other(50), Protocol::Udp, Protocol::Other(132)];
    assert_eq!(air.rules.rules[0].protocols, expected);
}

#[test]
fn a_time_of_two_numbers_is_asked_for_in_one_unit() {
    let said = Bench::new().air("\"1 h\"", "\"2 h 4 min\"");
    assert!(said.contains("it has more than one number: convert it to one unit"), "{said}");
}
