//! Settings of each transport, and of a shared beam.

use super::*;

#[test]
fn aerotcp_has_a_table_of_its_own_in_either_file() {
    let bench = Bench::new();
    let table = "[aerotcp]\nrtt = \"480 ms\"\nwindow = \"static\"\nconnections = 10\n";
    let text = format!("{AIR}{table}").replacen("[link]\n", "[link]\ntransport = \"aerotcp\"\n", 1);
    let air = AirConfig::parse(&bench.0.path().join("air.toml"), &text).unwrap();
    assert_eq!(air.link.transport, Transport::AeroTcp);
    let aerotcp = air.aerotcp.unwrap();
    assert_eq!((aerotcp.window, aerotcp.connections), (WindowKind::Static, Some(10)));
    assert_eq!((aerotcp.buffer_factor, aerotcp.peak_rate), (2, None));

    let text = format!("{GROUND}{table}").replacen("masque-listen", "aerotcp-listen", 1);
    let ground = GroundConfig::parse(&bench.0.path().join("ground.toml"), &text).unwrap();
    assert_eq!(ground.link.aerotcp_listen.unwrap().port(), 4433);
    assert_eq!(ground.aerotcp.unwrap().rtt, Span::new(Duration::from_millis(480)));

    let missing = bench.air("[limits]\n", "[aerotcp]\nwindow = \"adaptive\"\n[limits]\n");
    assert_eq!(
        missing,
        "air.toml, line 11: the setting \"rtt\" is missing\n    [aerotcp]\n\
         write the round trip between the gateways: rtt = \"480 ms\""
    );
    let unknown =
        bench.air("[limits]\n", "[aerotcp]\nrtt = \"1 s\"\npeek-rate = \"1 Mbit/s\"\n[limits]\n");
    assert!(
        unknown.contains("line 13") && unknown.contains("did you mean \"peak-rate\"?"),
        "{unknown}"
    );
    let kind =
        bench.air("[limits]\n", "[aerotcp]\nrtt = \"1 s\"\nwindow = \"adaptiv\"\n[limits]\n");
    assert!(kind.contains("did you mean \"adaptive\"?"), "{kind}");
}

#[test]
fn a_lease_is_one_of_those_there_are() {
    let bench = Bench::new();
    let text = AIR.replace("rate = ", "lease = \"granted\"\nrate = ");
    let air = AirConfig::parse(&bench.0.path().join("air.toml"), &text).unwrap();
    assert_eq!(air.link.lease, LeaseSource::Granted);
    let wrong = bench.air("rate = ", "lease = \"grant\"\nrate = ");
    assert!(wrong.contains("did you mean \"granted\"?"), "{wrong}");
}

#[test]
fn without_a_rate_the_rate_is_learned() {
    let bench = Bench::new();
    let (air, ground) = (bench.0.path().join("air.toml"), bench.0.path().join("ground.toml"));
    let without = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("rate = "));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    let radio = GROUND;
    let typed = AirConfig::parse(&air, AIR).unwrap();
    assert_eq!(typed.link.lease, LeaseSource::Static);
    let config = AirConfig::parse(&air, &without(AIR)).unwrap();
    assert_eq!(
        (config.link.lease, config.link.learn_bytes.bytes()),
        (LeaseSource::Learned, 24_000)
    );
    let config = GroundConfig::parse(&ground, radio).unwrap();
    assert_eq!(config.aircraft[0].lease, LeaseSource::Static);
    let config = GroundConfig::parse(&ground, &without(radio)).unwrap();
    assert_eq!(config.aircraft[0].lease, LeaseSource::Learned);

    // A rate with lease = "learned" is a maximum.
    let capped = AIR.replace("rate = ", "lease = \"learned\"\nrate = ");
    let config = AirConfig::parse(&air, &capped).unwrap();
    assert_eq!((config.link.lease, config.link.rate.bps()), (LeaseSource::Learned, 1_890_000));

    // A beam has the rate.
    let beam = format!("{}[beam]\nforward = \"8 Mbit/s\"\n", without(radio));
    let config = GroundConfig::parse(&ground, &beam).unwrap();
    assert_eq!(config.aircraft[0].lease, LeaseSource::Static);
}

#[test]
fn a_lease_that_needs_a_rate_says_so() {
    let bench = Bench::new();
    let wrong = bench.air("rate = \"1.89 Mbit/s\"", "lease = \"granted\"");
    assert!(wrong.contains("lease = \"granted\" needs a rate"), "{wrong}");
    assert!(wrong.contains("then the rate is learned"), "{wrong}");
    let aerotcp = bench.air("rate = \"1.89 Mbit/s\"", "transport = \"aerotcp\"");
    assert!(aerotcp.contains("AeroTCP does not learn its rate"), "{aerotcp}");
    let radio = GROUND;
    let file = bench.0.path().join("ground.toml");
    for (lease, beam) in [("granted", ""), ("learned", "[beam]\nforward = \"8 Mbit/s\"\n")] {
        let text = radio.replacen("rate = ", &format!("lease = {lease:?}\nrate = "), 1) + beam;
        let wrong = GroundConfig::parse(&file, &text).unwrap_err().to_string();
        assert!(wrong.contains("lease"), "{wrong}");
    }
}

#[test]
fn settings_without_effect_at_the_ground_are_refused() {
    let bench = Bench::new();
    let (link, aircraft) = ("[[aircraft]]\n", "max-flows = ");
    let radio = "leave it out, or serve the radio link: listen = \"[::]:4500\" under [link]";
    let aerotcp = "leave it out, or serve AeroTCP: aerotcp-listen = \"[::]:4501\" under [link]";
    let cases = [
        (link, "mtu = 1400", 4, "mtu", radio),
        (link, "memory.send = \"64 MiB\"", 4, "memory", radio),
        (link, "dscp = false", 4, "dscp", radio),
        (link, "coding = false", 4, "coding", radio),
        (link, "quic-in-order = false", 4, "quic-in-order", radio),
        (link, "total-memory = \"1 GiB\"", 4, "total-memory", radio),
        (link, "session-lifetime = \"20 min\"", 4, "session-lifetime", radio),
        (link, "[beam]\nreturn = \"2 Mbit/s\"", 4, "beam", radio),
        (link, "[aerotcp]\nrtt = \"480 ms\"", 4, "aerotcp", aerotcp),
        (aircraft, "mtu = 1400", 8, "mtu", radio),
        (aircraft, "memory = { code = \"4 MiB\" }", 8, "memory", radio),
        (aircraft, "lease = \"static\"", 8, "lease", radio),
        (aircraft, "weight = 3", 8, "weight", radio),
        (aircraft, "floor = \"64 kbit/s\"", 8, "floor", radio),
        (aircraft, "return-rate = \"1 Mbit/s\"", 8, "return-rate", radio),
    ];
    let file = bench.0.path().join("ground.toml");
    let over_http = GROUND.replacen("listen = \"0.0.0.0:4500\"\n", "", 1);
    assert!(GroundConfig::parse(&file, &over_http).is_ok(), "without all of these it is served");
    for (before, setting, line, name, help) in cases {
        let text = over_http.replacen(before, &format!("{setting}\n{before}"), 1);
        let first = setting.lines().next().unwrap_or_default();
        let expected = format!(
            "ground.toml, line {line}: {name:?} does nothing: only masque is served\n    \
             {first}\n{help}"
        );
        assert_eq!(bench.message(GroundConfig::parse(&file, &text)), expected);
    }
    let aerotcp = over_http.replacen("masque-listen", "aerotcp-listen", 1);
    let with_mtu = aerotcp.replacen(aircraft, &format!("mtu = 1400\n{aircraft}"), 1);
    assert!(GroundConfig::parse(&file, &with_mtu).is_ok(), "AeroTCP has an MTU");
    let weight = aerotcp.replacen(aircraft, &format!("weight = 3\n{aircraft}"), 1);
    let weight = bench.message(GroundConfig::parse(&file, &weight));
    assert!(weight.contains("only aerotcp is served"), "{weight}");
}

#[test]
fn settings_without_effect_at_the_air_are_refused() {
    let bench = Bench::new();
    let file = bench.0.path().join("air.toml");
    let modem = "[link.modem]\nprotocol = \"file\"\nfile = \"rate\"\n[listen]";
    let cases = [
        ("rate = ", "lease = \"granted\"\nrate = ", "lease", 5, "lease = \"granted\""),
        ("rate = ", "mtu = 1400\nrate = ", "mtu", 5, "mtu = 1400"),
        ("rate = ", "dscp = false\nrate = ", "dscp", 5, "dscp = false"),
        ("rate = ", "memory.code = \"4 MiB\"\nrate = ", "memory", 5, "memory.code = \"4 MiB\""),
        ("rate = ", "state-file = \"s\"\nrate = ", "state-file", 5, "state-file = \"s\""),
        ("[listen]", modem, "modem", 6, "[link.modem]"),
    ];
    for (from, to, name, line, shown) in cases {
        let expected = |line, help| {
            format!(
                "air.toml, line {line}: {name:?} does nothing: the transport is masque\n    {shown}\n{help}"
            )
        };
        let text = AIR.replacen(from, to, 1);
        std::fs::write(&file, &text).unwrap();
        assert!(AirConfig::load(&file, None).is_ok(), "{name}");
        assert!(AirConfig::load(&file, Some(Transport::Link)).is_ok(), "{name}");
        assert_eq!(
            bench.message(AirConfig::load(&file, Some(Transport::Masque))),
            expected(line, "leave it out, or do without --transport masque")
        );
        let written = text.replacen("[link]\n", "[link]\ntransport = \"masque\"\n", 1);
        assert_eq!(
            bench.message(AirConfig::parse(&file, &written)),
            expected(line + 1, "leave it out, or write transport = \"link\"")
        );
        std::fs::write(&file, &written).unwrap();
        assert!(AirConfig::load(&file, Some(Transport::Link)).is_ok(), "the command has its way");
        let aerotcp = AirConfig::load(&file, Some(Transport::AeroTcp));
        assert_eq!(aerotcp.is_ok(), ["mtu", "state-file"].contains(&name), "{name}");
    }
}

#[test]
fn a_beam_is_shared_by_weight_over_floors() {
    let bench = Bench::new();
    let parse = |beam: &str, part: &str| {
        let text = GROUND.replace("[dial]", &format!("{part}\n{beam}\n[dial]"));
        GroundConfig::parse(&bench.0.path().join("ground.toml"), &text)
    };
    let beam = "[beam]\nforward = \"8 Mbit/s\"\nreturn = \"2 Mbit/s\"";
    let ground = parse(beam, "weight = 3\nfloor = \"64 kbit/s\"").unwrap();
    assert_eq!(ground.beam.unwrap().return_.unwrap().bps(), 2_000_000);
    let share = ground.aircraft[0].share;
    assert_eq!((share.weight, share.floor.bps()), (3, 64_000));
    let wrong = |beam: &str, part: &str| bench.message(parse(beam, part));
    assert_eq!(
        wrong("", "weight = 3"),
        "ground.toml, line 10: \"weight\" is an aircraft's part of a beam, and there is none\n    \
         weight = 3\nwrite the beam: [beam] with forward = \"8 Mbit/s\", return = \"2 Mbit/s\""
    );
    let some = wrong("[beam]\nforward = \"8 Mbit/s\"", "return-rate = \"1 Mbit/s\"");
    assert!(some.contains("\"return-rate\" is an aircraft's part"), "{some}");
    assert!(wrong(beam, "weight = 0").contains("write 1 to 1000"));
    assert_eq!(
        wrong(beam, "floor = \"1.9 Mbit/s\""),
        "ground.toml, line 10: a floor of 1.9 Mbit/s is more than the rate of 1.89 Mbit/s\n    \
         floor = \"1.9 Mbit/s\"\nlower the floor to the rate at most, or raise the rate"
    );
    let back = "floor = \"64 kbit/s\"\nreturn-rate = \"32 kbit/s\"";
    let said = wrong(beam, back);
    assert!(said.contains("line 10: a floor of 64 kbit/s is more than the return-rate"), "{said}");
    let back_only = "[beam]\nreturn = \"2 Mbit/s\"";
    assert!(parse(back_only, "floor = \"1.9 Mbit/s\"").is_ok(), "the rate is not shared");
    assert!(wrong(beam, "floor = \"1 kbit/s\"").contains("less than an aircraft needs"));
    let much = wrong(back_only, "floor = \"3 Mbit/s\"");
    assert!(much.contains("come to 3 Mbit/s, more than the return rate of 2 Mbit/s"), "{much}");
    assert!(wrong("[beam]", "").contains("no rate that could be shared"));
}

#[test]
fn an_egress_has_a_transport_and_hubs_have_no_part_of_a_beam() {
    let bench = Bench::new();
    let file = bench.0.path().join("ground.toml");
    let key = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
    let listen = GROUND.replacen("masque-listen = \"0.0.0.0:4433\"\n", "", 1);
    let egress = |transport: &str| {
        let table = format!("[[egress]]\npeer = \"192.0.2.1:4500\"\npublic-key = \"{key}\"\n");
        GroundConfig::parse(&file, &format!("{listen}{table}{transport}"))
    };
    let transport = |text: &str| match &egress(text).unwrap().egresses[0].kind {
        EgressKind::Gateway { transport, .. } => *transport,
        EgressKind::Proxy(proxy) => panic!("{proxy:?}"),
    };
    assert_eq!(transport(""), LegTransport::Masque);
    assert_eq!(transport("transport = \"link\"\n"), LegTransport::Link);
    let wrong = egress("transport = \"aerotcp\"\n").unwrap_err().to_string();
    assert!(wrong.contains("aerotcp"), "{wrong}");

    let hub = format!("[[hub]]\npublic-key = \"{key}\"\n");
    let beam = "[beam]\nforward = \"8 Mbit/s\"\n";
    let parse = |text: &str| GroundConfig::parse(&file, text).map(|config| config.hubs.len());
    assert_eq!(parse(&format!("{listen}{hub}")).unwrap(), 1, "hubs come by the radio transport");
    let alone = parse(&format!("{listen}{hub}{beam}")).unwrap_err().to_string();
    assert!(alone.contains("masque-listen"), "{alone}");
    assert_eq!(parse(&format!("{GROUND}{hub}{beam}")).unwrap(), 1);
}
