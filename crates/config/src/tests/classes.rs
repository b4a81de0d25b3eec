//! `[classes]` and `[[rule]]`.

use super::*;

/// Parses the air's file with `top` at its start.
fn with_top(bench: &Bench, top: &str) -> Result<AirConfig, ConfigError> {
    AirConfig::parse(&bench.0.path().join("air.toml"), &format!("{top}\n{AIR}"))
}

#[test]
fn classes_and_rules_parse() {
    let bench = Bench::new();
    let air = with_top(
        &bench,
        "default-class = 'lower-effort'\nencrypted-hello = 'outer-name'\n\
         rule = [\n\
           { domain = 'gov.uk', class = 'assured' },\n\
           { name = 'crew', passenger = ['10.9.0.0/24', 'mac:02:00:00:00:00:01'], port = [443, '8000-8080'],\n\
             prefix = '192.0.2.9/24', protocol = ['udp', 50], dscp = 'EF', class = 'operator' },\n\
         ]\n\
         classes.assured = { rate = '1 Mbit/s', ceil = '1 Mbit/s' }\n\
         classes.lower-effort = { rate = '0 kbit/s' }",
    )
    .unwrap();
    assert_eq!(air.rules.default, Class::LowerEffort);
    assert_eq!(air.rules.encrypted_hello, bentpipe_classify::EncryptedHello::OuterName);
    let crew = &air.rules.rules[1];
    assert_eq!((crew.ports.len(), crew.protocols.len(), crew.passengers.len()), (2, 2, 2));
    assert_eq!(crew.prefixes[0].to_string(), "192.0.2.0/24");
    assert_eq!(air.classes.get(Class::LowerEffort).unwrap().rate().unwrap().bps(), 0);
    assert_eq!(air.classes.get(Class::Assured).unwrap().ceil().unwrap().bps(), 1_000_000);
    assert!(air.classes.get(Class::BestEffort).is_none());
    assert_eq!(air.classes.remarks(air.link.rate), [""; 0]);
    let low = air.classes.remarks("900 kbit/s".parse().unwrap());
    assert!(low.len() == 2 && low[0].contains("together"), "{low:?}");
    let ground = GROUND.replace(
        "max-flows = 4096",
        "classes.assured = { rate = '2 Mbit/s' }\n[classes]\nassured = { ceil = '8 Mbit/s' }\n\
         best-effort = { ceil = '4 Mbit/s' }",
    );
    let ground = GroundConfig::parse(&bench.0.path().join("ground.toml"), &ground).unwrap();
    let classes = &ground.aircraft[0].classes;
    assert_eq!(classes.get(Class::Assured).unwrap().ceil(), None, "it has its own");
    assert_eq!(classes.get(Class::BestEffort).unwrap().ceil().unwrap().bps(), 4_000_000);
}

#[test]
fn wrong_classes_and_rules_say_what_to_write() {
    let bench = Bench::new();
    for (top, said) in [
        ("classes.asured = {}", "\"asured\" is not a class: write one of \"operator\""),
        ("classes.assured = { rate = '2 Mbit/s', ceil = '1 Mbit/s' }", "raise ceil"),
        ("classes.assured = { ceil = '0 kbit/s' }", "shut the class assured out"),
        ("classes.assured = { sealing = '1 Mbit/s' }", "no setting \"sealing\""),
        ("classes.assured = { paths = 'both' }", "fastest, all, each"),
        ("classes.assured = { metered = 'often' }", "never, standby"),
        ("default-class = 'best'", "\"best\" is not a class"),
        ("rule = [{ domain = 'gov.uk' }]", "class = \"assured\""),
        ("rule = [{ domain = 'gov uk', class = 'assured' }]", "\"gov uk\" is not a domain"),
        ("rule = [{ domain = [], class = 'assured' }]", "leave the condition out"),
        ("rule = [{ port = ['x'], class = 'assured' }]", "\"x\" is not a port"),
        ("rule = [{ port = 70000, class = 'assured' }]", "\"70000\" is not a port"),
        ("rule = [{ prefix = '1.2.3', class = 'assured' }]", "\"1.2.3\" is not a network"),
        ("rule = [{ dscp = 'EFF', class = 'assured' }]", "AF42"),
        ("rule = [{ protocol = 'spx', class = 'assured' }]", "\"spx\" is not a protocol"),
        ("rule = [{ protocol = 'spx', class = 'assured' }]", "ipcomp, l2tp, sctp"),
        ("rule = [{ passenger = 'bob', class = 'assured' }]", "\"bob\" is not a passenger"),
        ("rule = [{ class = 'assured' }]", "default-class"),
        ("rule = [{ port = 22, class = 'operator' }]", "any passenger could get"),
        ("rule = [{ host = 'gov.uk', class = 'assured' }]", "no setting \"host\""),
        ("usage = { directory = 'missing' }", "missing is not a directory"),
        ("usage = { }", "\"directory\" is missing"),
        ("status = { file = '/' }", "/ is a directory"),
        ("status = { file = 'a.json', interval = '10 ms' }", "would be all that is done"),
        ("status = { file = 'a.json', detail = 'all' }", "classes, passengers, flows"),
        ("status = { }", "\"file\" is missing"),
        ("encrypted-hello = 'outer'", "did you mean \"outer-name\""),
    ] {
        let message = bench.message(with_top(&bench, top));
        assert!(message.contains(said) && message.contains("line 1"), "{top}: {message}");
    }
    let masque = "[link]\ntransport = \"masque\"";
    let top = "classes.assured = { ceil = '1 Mbit/s' }";
    let text = format!("{top}\n{}", AIR.replace("[link]", masque));
    let message = bench.message(AirConfig::parse(&bench.0.path().join("air.toml"), &text));
    assert!(message.contains("\"ceil\" does nothing: the transport is masque"), "{message}");
}

#[test]
fn classes_choose_their_radios() {
    use bentpipe_schedule::{ClassPaths, Metered, Spread};
    let bench = Bench::new();
    let of =
        |top: &str, class: Class| with_top(&bench, top).unwrap().classes.settings()[class].paths;
    let usual = ClassPaths::default();
    let each = ClassPaths { spread: Spread::Each, ..usual };
    assert_eq!(of("", Class::Operator), each, "redundant without a setting");
    assert_eq!(of("", Class::Network), usual);
    assert_eq!(of("classes.operator = { paths = 'all' }", Class::Operator), usual);
    let top = "classes.network = { paths = 'fastest', metered = 'urgent' }";
    let fast = ClassPaths { spread: Spread::Fastest, metered: Metered::Urgent };
    assert_eq!(of(top, Class::Network), fast);
    let never = ClassPaths { metered: Metered::Never, ..usual };
    assert_eq!(of("classes.lower-effort = { metered = 'never' }", Class::LowerEffort), never);
}
