//! The messages a wrong file gives, in full.

use super::*;
use crate::rate::dlep::Finding;
use bentpipe_link::Class;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

const AIR: &str = r#"[link]
private-key-file = "air.key"
peer = "hub.example.net:4500"
peer-public-key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
rate = "1.89 Mbit/s"
[listen]
socks5 = "127.0.0.1:1080"
http-proxy = "127.0.0.1:8080"
tproxy = { port = 1081, interfaces = ["eth1"] }
auth = { username = "crew", password = "secret" }
[limits]
idle-timeout = "1 h"
"#;

const GROUND: &str = r#"[link]
private-key-file = "air.key"
listen = "0.0.0.0:4500"
masque-listen = "0.0.0.0:4433"
[[aircraft]]
name = "D-ABCD"
public-key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
rate = "1.89 Mbit/s"
max-flows = 4096
[dial]
allow = ["10.0.0.0/8"]
connect-timeout = "10 s"
[dns]
servers = ["9.9.9.9", "[::1]:5353"]
[hosts]
"origin.test" = "192.0.2.7"
"dual.test" = ["192.0.2.7", "2001:db8::7"]
"#;

/// A folder with a key in it, and what parsing there says.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("air.key"), format!("{KEY}\n")).unwrap();
        Self(folder)
    }

    fn message<T>(&self, parsed: Result<T, ConfigError>) -> String {
        let folder = format!("{}/", self.0.path().display());
        parsed.err().expect("must not parse").to_string().replace(&folder, "")
    }

    fn air(&self, from: &str, to: &str) -> String {
        assert!(AIR.contains(from), "{from:?}");
        self.message(AirConfig::parse(&self.0.path().join("air.toml"), &AIR.replacen(from, to, 1)))
    }

    fn ground(&self, from: &str, to: &str) -> String {
        assert!(GROUND.contains(from), "{from:?}");
        let text = GROUND.replacen(from, to, 1);
        self.message(GroundConfig::parse(&self.0.path().join("ground.toml"), &text))
    }
}

#[test]
fn good_files_parse() {
    let bench = Bench::new();
    let air = AirConfig::parse(&bench.0.path().join("air.toml"), AIR).unwrap();
    assert_eq!(air.link.transport, Transport::Link);
    assert_eq!(air.link.rate.bps(), 1_890_000);
    assert_eq!(air.link.private_key().as_bytes()[31], 31);
    assert_eq!(air.link.state_file(), bench.0.path().join("air.state"));
    assert_eq!(air.limits.relay().idle, Duration::from_secs(3600));
    assert!(!format!("{air:?}").contains("secret"));
    let ground = GroundConfig::parse(&bench.0.path().join("ground.toml"), GROUND).unwrap();
    assert_eq!(ground.aircraft[0].key().to_string(), KEY);
    assert_eq!(ground.dns.servers[0].0.to_string(), "9.9.9.9:53");
    assert_eq!(ground.hosts["dual.test"].as_slice().len(), 2);
}

#[test]
fn unknown_keys_name_the_nearest() {
    let bench = Bench::new();
    assert_eq!(
        bench.air("rate = ", "ratte = "),
        "air.toml, line 5: there is no setting \"ratte\" here\n    \
         ratte = \"1.89 Mbit/s\"\n\
         did you mean \"rate\"? What may stand here: transport, private-key-file, peer, \
         peer-public-key, rate, mtu, dscp, coding, quic-in-order, memory, lease, state-file, modem"
    );
    assert_eq!(
        bench.ground("max-flows", "colour"),
        "ground.toml, line 9: there is no setting \"colour\" here\n    colour = 4096\n\
         what may stand here: name, public-key, rate, mtu, memory, lease, highest-class, classes, \
         weight, floor, return-rate, max-flows, max-datagram-flows, max-ip-flows, flows-per-second"
    );
}

#[test]
fn rates_below_what_the_link_works_at_are_refused() {
    let bench = Bench::new();
    let air = bench.air("1.89 Mbit/s", "7.9 kbit/s");
    assert!(air.starts_with("air.toml, line 5: a rate of 7.9 kbit/s is too low"), "{air}");
    assert!(air.contains("from 8 kbit/s on"), "{air}");
    let ground = bench.ground("rate = \"1.89 Mbit/s\"", "rate = \"0 bit/s\"");
    assert!(ground.contains("is too low: the link works from 8 kbit/s on"), "{ground}");
}

#[test]
fn wrong_units_say_what_to_write() {
    let bench = Bench::new();
    assert_eq!(
        bench.air("1.89 Mbit/s", "2 MB/s"),
        "air.toml, line 5: \"2 MB/s\" is not a rate: \"MB/s\" counts bytes: multiply by 8 and \
         write \"Mbit/s\"; write it like \"1.89 Mbit/s\"\n    rate = \"2 MB/s\""
    );
    assert_eq!(
        bench.ground("\"10 s\"", "10"),
        "ground.toml, line 12: invalid type: integer `10`, expected a string\n    \
         connect-timeout = 10\n\
         write it as text, quantities with their unit: \"10 s\", \"1.89 Mbit/s\""
    );
}

#[test]
fn what_the_link_may_take_is_read_and_refused_with_reasons() {
    let bench = Bench::new();
    let file = bench.0.path().join("ground.toml");
    let text = GROUND
        .replacen("[[aircraft]]", "mtu = 1400\nmemory = { receive = \"64 MiB\" }\n[[aircraft]]", 1)
        .replacen("max-flows", "mtu = 1300\nhighest-class = \"network\"\nmax-flows", 1);
    let ground = GroundConfig::parse(&file, &text).unwrap();
    assert_eq!((ground.link.mtu, ground.aircraft[0].mtu), (1400, Some(1300)));
    assert_eq!(ground.link.memory.receive.bytes(), 64 << 20);
    assert_eq!(ground.link.memory.send, Memory::default().send);
    assert_eq!(ground.aircraft[0].highest_class, Class::Network);
    let class = bench.ground("max-flows", "highest-class = \"royal\"\nmax-flows");
    assert!(class.contains("\"royal\" is no class: write one of \"operator\", "), "{class}");
    let key = bench.air("rate = ", "memory = { recieve = \"1 MiB\" }\nrate = ");
    assert!(key.contains("did you mean \"receive\"?"), "{key}");
    let text = AIR.replacen("rate = ", "mtu = 1400\nmemory.send = \"1 MiB\"\nrate = ", 1);
    let air = AirConfig::parse(&bench.0.path().join("air.toml"), &text).unwrap();
    assert_eq!((air.link.mtu, air.link.memory.send.bytes()), (1400, 1 << 20));
    assert_eq!(air.link.memory.code.bytes(), 16 << 20);
    let text = AIR.replacen("rate = ", "memory = { code = \"2 MiB\" }\nrate = ", 1);
    let air = AirConfig::parse(&bench.0.path().join("air.toml"), &text).unwrap();
    assert_eq!(air.link.memory.code.bytes(), 2 << 20);
    let link = crate::far::link::air_config(&air, ([127, 0, 0, 1], 1).into(), 0).unwrap();
    assert_eq!(link.settings.code_memory.bytes(), 2 << 20);
}

#[test]
fn keys_say_how_to_make_one() {
    let bench = Bench::new();
    assert_eq!(
        bench.air("air.key", "none.key"),
        "air.toml, line 2: the private key in none.key cannot be read: No such file or directory \
         (os error 2)\n    private-key-file = \"none.key\"\n\
         make one with `bentpipe keys --out none.key`"
    );
    std::fs::write(bench.0.path().join("bad.key"), "hunter2").unwrap();
    let bad = bench.air("air.key", "bad.key");
    assert!(bad.contains("bad.key holds no private key") && !bad.contains("hunter2"), "{bad}");
    assert_eq!(
        bench.air("private-key-file = \"air.key\"\n", ""),
        "air.toml, line 1: the setting \"private-key-file\" is missing\n    [link]\n\
         make one with `bentpipe keys --out FILE` and name that file here"
    );
    assert_eq!(
        bench.ground(KEY, "AAEC"),
        "ground.toml, line 7: \"AAEC\" is not a key: a key is 32 bytes in base64 (44 characters); make one \
         with `bentpipe keys`\n    public-key = \"AAEC\""
    );
    let two = format!(
        "[[aircraft]]\nname = \"D-B\"\npublic-key = \"{KEY}\"\nrate = \"1 Mbit/s\"\n[dial]\n"
    );
    assert_eq!(
        bench.ground("[dial]\n", &two),
        format!(
            "ground.toml, line 12: \"D-B\" has the key of another aircraft\n    \
             public-key = \"{KEY}\"\nevery aircraft has its own: make one with `bentpipe keys`"
        )
    );
}

#[test]
fn ones_own_key_is_not_the_peers() {
    let bench = Bench::new();
    let own = KEY.parse::<SecretKey>().unwrap().public().to_string();
    assert_eq!(
        bench.air(KEY, &own),
        format!(
            "air.toml, line 4: this is the aircraft's own public key\n    \
             peer-public-key = \"{own}\"\n\
             write the ground's; `bentpipe check ground.toml` on the ground shows it"
        )
    );
    let ground = bench.ground(KEY, &own);
    assert!(ground.contains("line 7: this is the ground's own public key"), "{ground}");
}

#[test]
fn a_key_that_no_handshake_succeeds_with_is_nobodys() {
    let bench = Bench::new();
    let zeros = PublicKey::from_bytes([0; 32]).to_string();
    let said = "is nobody's key: write the one that `bentpipe keys` made for that gateway";
    let air = bench.air(KEY, &zeros);
    assert!(air.starts_with("air.toml, line 4: ") && air.contains(said), "{air}");
    let ground = bench.ground(KEY, &zeros);
    assert!(ground.starts_with("ground.toml, line 7: ") && ground.contains(said), "{ground}");
}

#[test]
fn clients_of_the_http_proxy_can_say_their_name() {
    let bench = Bench::new();
    assert_eq!(
        bench.air("\"crew\"", "\"crew:1\""),
        "air.toml, line 10: a user's name in HTTP ends at the first colon (RFC 7617)\n    \
         auth = { username = \"crew:1\", password = \"secret\" }\n\
         write a username without a colon, or leave out http-proxy"
    );
    let socks = AIR.replacen("\"crew\"", "\"crew:1\"", 1);
    let socks = socks.replacen("http-proxy = \"127.0.0.1:8080\"\n", "", 1);
    assert!(AirConfig::parse(&bench.0.path().join("air.toml"), &socks).is_ok());
    let empty = bench.air("password = \"secret\"", "password = \"\"");
    assert!(empty.contains("line 10: 0 bytes that no client could say"), "{empty}");
    let nowhere = bench.air("[\"eth1\"]", "[]");
    assert!(nowhere.contains("line 9: transparent interception needs"), "{nowhere}");
    let long = bench.air("\"secret\"", &format!("\"{}\"", "secret".repeat(43)));
    let why = long.lines().next().unwrap();
    assert!(why.contains("258 bytes that no client") && !why.contains("secret"), "{long}");
}

#[test]
fn the_file_of_the_other_gateway_is_named_as_such() {
    let bench = Bench::new();
    let (air, ground) = (bench.0.path().join("air.toml"), bench.0.path().join("ground.toml"));
    assert_eq!(
        bench.message(AirConfig::parse(&ground, GROUND)),
        "ground.toml: this is the configuration of a ground gateway\n\
         name the file of the air gateway; this one is for `bentpipe ground`"
    );
    let policy = bench.message(AirConfig::parse_policy(&ground, GROUND));
    assert!(policy.contains("of a ground gateway"), "{policy}");
    let other = bench.message(GroundConfig::parse(&air, AIR));
    assert!(other.contains("of an air gateway") && other.contains("`bentpipe air`"), "{other}");
}

#[test]
fn a_policy_needs_no_other_file() {
    let text = AIR.replacen("air.key", "none.key", 1)
        + "[usage]\ndirectory = \"none\"\n[[rule]]\nport = 22\nclass = \"assured\"\n";
    let policy = AirConfig::parse_policy(Path::new("air.toml"), &text).unwrap();
    assert_eq!(policy.rules.rules[0].class, Class::Assured);
}

#[test]
fn nothing_listens_twice_at_one_address() {
    let bench = Bench::new();
    assert_eq!(
        bench.air("127.0.0.1:8080", "0.0.0.0:1080"),
        "air.toml, line 8: http-proxy and socks5 would listen at the same address\n    \
         http-proxy = \"0.0.0.0:1080\"\ngive one of them another port"
    );
    let tproxy = bench.air("port = 1081", "port = 8080");
    assert!(tproxy.contains("line 9: tproxy and http-proxy would listen"), "{tproxy}");
    let ground = bench.ground("0.0.0.0:4433", "0.0.0.0:4500");
    assert!(ground.contains("line 4: masque-listen and listen would"), "{ground}");
}

#[test]
fn places_are_checked() {
    let bench = Bench::new();
    assert_eq!(
        bench.air("hub.example.net:4500", "hub.example.net"),
        "air.toml, line 3: \"hub.example.net\" has no valid port: write \"host:port\" or \
         \"[IPv6 address]:port\"\n    peer = \"hub.example.net\""
    );
    assert!(bench.air("eth1", "lo").contains("line 9: intercepting \"lo\""));
    assert!(bench.air("eth1", "eth1; flush").contains("not the name of a network interface"));
    assert!(bench.ground("9.9.9.9", "nine").contains("write it like \"9.9.9.9\""));
    assert!(bench.ground("= \"192.0.2.7\"", "= \"x\"").contains("line 16: expected an address"));
    let none = bench.ground("listen = \"0.0.0.0:4500\"\nmasque-listen = \"0.0.0.0:4433\"\n", "");
    assert!(none.starts_with("ground.toml: nothing to listen on\nwrite listen ="), "{none}");
    let choice = bench.air("[link]\n", "[link]\ntransport = \"masq\"\n");
    assert!(choice.contains("did you mean \"masque\"?"), "{choice}");
    assert!(bench.air("rate = ", "rate ").contains("line 5"));
}

#[test]
fn a_modem_is_found_by_address_or_interface_or_is_a_file() {
    let bench = Bench::new();
    let parse = |table: &str| {
        let text = AIR.replacen("[listen]", &format!("[link.modem]\n{table}\n[listen]"), 1);
        AirConfig::parse(&bench.0.path().join("air.toml"), &text)
    };
    let modem = |table: &str| parse(table).unwrap().link.modem.unwrap();
    let at = |address: &str| ModemSource::Dlep(Finding::At(address.parse().unwrap()));
    let found = modem("protocol = \"dlep\"\naddress = \"192.0.2.2\"\nframing-bytes = 18");
    assert_eq!(found, ModemConfig { source: at("192.0.2.2:854"), framing_bytes: 18 });
    let found = modem("protocol = \"dlep\"\naddress = \"[2001:db8::2]:8540\"");
    assert_eq!(found, ModemConfig { source: at("[2001:db8::2]:8540"), framing_bytes: 0 });
    let found = modem("protocol = \"dlep\"\ninterface = \"eth2\"").source;
    assert_eq!(found, ModemSource::Dlep(Finding::On("eth2".into())));
    let found = modem("protocol = \"file\"\nfile = \"rate\"").source;
    assert_eq!(found, ModemSource::File(bench.0.path().join("rate")));
    assert_eq!(AirConfig::parse(&bench.0.path().join("air.toml"), AIR).unwrap().link.modem, None);

    let wrong = |table: &str| bench.message(parse(table));
    assert_eq!(
        wrong("protocol = \"dlep\""),
        "air.toml, line 7: nothing says where the modem is\n    protocol = \"dlep\"\n\
         write interface = \"eth2\", where it is looked for, or address = \"192.0.2.2\", where it is"
    );
    assert_eq!(
        wrong("protocol = \"dlpe\""),
        "air.toml, line 7: \"dlpe\" is none of the choices\n    protocol = \"dlpe\"\n\
         did you mean \"dlep\"? What may stand here: dlep, file"
    );
    let cases = [
        ("address = \"192.0.2.2\"", "the setting \"protocol\" is missing"),
        ("protocol = \"dlep\"\naddress = \"modem\"", "line 8: \"modem\" is no address"),
        ("protocol = \"dlep\"\ninterface = \"a b\"", "line 8: \"a b\" is not the name of"),
        ("protocol = \"dlep\"\naddress = \"::1\"\ninterface = \"lo\"", "line 9: the modem has"),
        ("protocol = \"dlep\"\nfile = \"x\"", "line 8: \"file\" is for protocol = \"file\""),
        ("protocol = \"file\"", "line 7: nothing says which file"),
        ("protocol = \"file\"\nfile = \"x\"\ninterface = \"lo\"", "line 9: this is for"),
        ("protocol = \"file\"\nfile = \"x\"\nframing-bytes = 257", "line 9: 257 bytes on top"),
        ("protocol = \"file\"\nfile = \"x\"\nframing-bytes = -1", "line 9: invalid value"),
    ];
    for (table, message) in cases {
        let found = wrong(table);
        assert!(found.contains(message), "{found}");
    }
}

#[test]
fn the_resolver_on_board_has_to_make_sense() {
    let bench = Bench::new();
    let wrong = |table: &str| bench.air("[limits]\n", &format!("[dns]\n{table}\n[limits]\n"));
    let listen = "listen = [\"10.0.0.1:53\"]";
    for (table, message) in [
        ("intercept = false", "nowhere to be asked"),
        ("listen = [\"0.0.0.0:53\"]", "line 12: answers must come from the address"),
        (&*format!("{listen}\nmemory = \"1 KiB\""), "line 13: this holds hardly"),
        (&*format!("{listen}\nmin-ttl = \"2 d\"\nmax-ttl = \"1 d\""), "line 14: max-ttl is below"),
        (&*format!("{listen}\nfailure-ttl = \"1 h\""), "RFC 9520"),
        (&*format!("{listen}\nqueries-per-second-per-passenger = 0"), "line 13: nobody could ask"),
        (&*format!("{listen}\nmax-questions = 100000"), "line 13: questions have ids"),
        (&*format!("{listen}\ninstant-names = {{ v4 = \"100.64.0.0/10\" }}"), "lead elsewhere"),
        (
            &*format!("{listen}\ncache-file = \"c\"\ninstant-names = {{ v4 = \"10.1.0.0/16\" }}"),
            "line 14: a pool needs",
        ),
        (&*format!("{listen}\ncache-fil = \"c\""), "did you mean \"cache-file\"?"),
    ] {
        let found = wrong(table);
        assert!(found.contains(message), "{table}: {found}");
    }
    let text = format!("{AIR}\n[dns]\n{listen}\ncache-file = \"c\"\nmax-stale = \"0 s\"\n");
    let air = AirConfig::parse(&bench.0.path().join("air.toml"), &text).unwrap();
    let dns = air.dns.unwrap();
    assert_eq!(dns.cache_file, Some(bench.0.path().join("c")));
    assert_eq!((dns.settings().max_stale, dns.listen().count()), (Duration::ZERO, 1));
}

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
fn what_would_do_nothing_at_the_ground_is_refused() {
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
fn what_would_do_nothing_at_the_air_is_refused_whoever_names_the_transport() {
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
    assert_eq!(ground.beam().unwrap().return_.unwrap().bps(), 2_000_000);
    let share = ground.aircraft[0].share();
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

/// The air's file with this at its top.
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
    assert_eq!(air.rules.encrypted_hello, crate::classify::EncryptedHello::OuterName);
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
        ("classes.asured = {}", "\"asured\" is no class: write one of \"operator\""),
        ("classes.assured = { rate = '2 Mbit/s', ceil = '1 Mbit/s' }", "raise ceil"),
        ("classes.assured = { ceil = '0 kbit/s' }", "shut the class assured out"),
        ("classes.assured = { sealing = '1 Mbit/s' }", "no setting \"sealing\""),
        ("default-class = 'best'", "\"best\" is no class"),
        ("rule = [{ domain = 'gov.uk' }]", "class = \"assured\""),
        ("rule = [{ domain = 'gov uk', class = 'assured' }]", "\"gov uk\" is not a domain"),
        ("rule = [{ domain = [], class = 'assured' }]", "leave the condition out"),
        ("rule = [{ port = ['x'], class = 'assured' }]", "\"x\" is not a port"),
        ("rule = [{ port = 70000, class = 'assured' }]", "\"70000\" is not a port"),
        ("rule = [{ prefix = '1.2.3', class = 'assured' }]", "\"1.2.3\" is not a network"),
        ("rule = [{ dscp = 'EFF', class = 'assured' }]", "AF42"),
        ("rule = [{ protocol = 'sctp', class = 'assured' }]", "\"sctp\" is not a protocol"),
        ("rule = [{ passenger = 'bob', class = 'assured' }]", "\"bob\" is no passenger"),
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
