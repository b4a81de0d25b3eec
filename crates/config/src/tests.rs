//! Full error messages for faulty files.

use super::ModemDiscovery;
use bentpipe_link::{PublicKey, SecretKey};

use super::*;
use bentpipe_link::Class;

mod classes;
mod lines;
mod paths;
mod proxies;
mod status;
mod transports;

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

/// A folder that contains a key, for parsing files.
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
    assert_eq!(air.link.private_key.as_bytes()[31], 31);
    assert_eq!(air.link.state_file, bench.0.path().join("air.state"));
    assert_eq!(air.limits.relay().idle, Duration::from_secs(3600));
    assert!(!format!("{air:?}").contains("secret"));
    let ground = GroundConfig::parse(&bench.0.path().join("ground.toml"), GROUND).unwrap();
    assert_eq!(ground.aircraft[0].key.to_string(), KEY);
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
         peer-public-key, rate, mtu, dscp, coding, quic-in-order, memory, lease, learn-bytes, state-file, keep-flows, modem"
    );
    assert_eq!(
        bench.ground("max-flows", "colour"),
        "ground.toml, line 9: there is no setting \"colour\" here\n    colour = 4096\n\
         what may stand here: name, public-key, rate, mtu, memory, lease, highest-class, classes, \
         weight, floor, return-rate, country, max-flows, max-datagram-flows, max-ip-flows, flows-per-second"
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
fn link_limits_are_read_and_wrong_ones_refused_with_reasons() {
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
    assert!(class.contains("\"royal\" is not a class: write one of \"operator\", "), "{class}");
    let key = bench.air("rate = ", "memory = { recieve = \"1 MiB\" }\nrate = ");
    assert!(key.contains("did you mean \"receive\"?"), "{key}");
    let text = AIR.replacen("rate = ", "mtu = 1400\nmemory.send = \"1 MiB\"\nrate = ", 1);
    let air = AirConfig::parse(&bench.0.path().join("air.toml"), &text).unwrap();
    assert_eq!((air.link.mtu, air.link.memory.send.bytes()), (1400, 1 << 20));
    assert_eq!(air.link.memory.code.bytes(), 16 << 20);
    let text = AIR.replacen("rate = ", "memory = { code = \"2 MiB\" }\nrate = ", 1);
    let air = AirConfig::parse(&bench.0.path().join("air.toml"), &text).unwrap();
    assert_eq!(air.link.memory.code.bytes(), 2 << 20);
}

#[test]
fn an_invalid_key_error_names_the_keys_command() {
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
    assert!(bad.contains("move it away, and make a key"), "{bad}");
    let inline =
        bench.air("\"air.key\"", &format!("\"{}\"", SecretKey::from_bytes([9; 32]).to_base64()));
    assert!(inline.contains("holds a key, and not the name of a file"), "{inline}");
    assert!(!inline.contains("CQkJ"), "{inline}");
    assert_eq!(
        bench.air("private-key-file = \"air.key\"\n", ""),
        "air.toml, line 1: the setting \"private-key-file\" is missing\n    [link]\n\
         make one with `bentpipe keys --out FILE` and name that file here"
    );
    assert_eq!(
        bench.ground(KEY, "AAEC"),
        "ground.toml, line 7: \"AAEC\" is not a key: a key is 32 bytes in base64 (44 characters)\n    \
         public-key = \"AAEC\"\ncopy the public key that `bentpipe keys --show FILE` or `bentpipe check` \
         prints on the other gateway"
    );
    let two = format!(
        "[[aircraft]]\nname = \"D-B\"\npublic-key = \"{KEY}\"\nrate = \"1 Mbit/s\"\n[dial]\n"
    );
    assert_eq!(
        bench.ground("[dial]\n", &two),
        "ground.toml, line 12: \"D-B\" has the key of another aircraft\n    \
         public-key = \"…\"\nevery aircraft has its own: make one with `bentpipe keys`"
    );
}

#[test]
fn ones_own_key_is_not_the_peers() {
    let bench = Bench::new();
    let own = KEY.parse::<SecretKey>().unwrap().public().to_string();
    assert_eq!(
        bench.air(KEY, &own),
        "air.toml, line 4: this is the aircraft's own public key\n    \
         peer-public-key = \"…\"\n\
         write the ground's; `bentpipe check ground.toml` on the ground shows it"
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
         auth = …\nwrite a username without a colon, or leave out http-proxy"
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

/// Line of [`AIR`] with the credentials.
const AUTH: &str = "auth = { username = \"crew\", password = \"secret\" }";

#[test]
fn a_proxy_for_everybody_is_refused() {
    let bench = Bench::new();
    let parse = |text: &str| AirConfig::parse(&bench.0.path().join("air.toml"), text);
    for (from, to) in [("127.0.0.1:1080", "10.0.0.1:1080"), ("127.0.0.1:8080", "[::]:8080")] {
        let text = AIR.replacen(from, to, 1);
        parse(&text).expect("it asks for a password");
        parse(&text.replacen(AUTH, "clients = [\"10.0.0.0/24\"]", 1)).expect("it has clients");
        let open = bench.message(parse(&text.replacen(AUTH, "", 1)));
        assert!(open.contains(&format!("whoever reaches {to} could use the link by this proxy")));
        assert!(open.contains("clients = [\"10.0.0.0/24\"]"), "{open}");
    }
}

#[test]
fn only_listed_networks_are_clients() {
    let mut listen = Listen::default();
    let admits = |listen: &Listen, ip: &str| listen.admits(ip.parse().unwrap());
    assert!(admits(&listen, "203.0.113.9"));
    listen.clients = ["10.0.0.0/24", "fd09::/64"].map(|net| net.parse().unwrap()).to_vec();
    for ip in ["10.0.0.7", "::ffff:10.0.0.7", "fd09::7", "127.0.0.1", "::1"] {
        assert!(admits(&listen, ip), "{ip}");
    }
    for ip in ["10.0.1.7", "::ffff:10.0.1.7", "fd0a::7", "203.0.113.9"] {
        assert!(!admits(&listen, ip), "{ip}");
    }
}

#[test]
fn a_password_may_be_in_a_file() {
    let bench = Bench::new();
    std::fs::write(bench.0.path().join("word"), "hunter2\n").unwrap();
    std::fs::write(bench.0.path().join("empty"), "\n").unwrap();
    let parse = |more: &str| {
        let auth = format!("auth = {{ username = \"crew\"{more} }}");
        AirConfig::parse(&bench.0.path().join("air.toml"), &AIR.replacen(AUTH, &auth, 1))
    };
    let auth = parse(", password-file = \"word\"").unwrap().listen.auth.unwrap();
    assert_eq!(auth.password, "hunter2");
    for (more, why) in [
        ("", "the setting \"password\" is missing"),
        (", password-file = \"none\"", "cannot be read: No such file"),
        (", password-file = \"empty\"", "holds no password"),
        (", password = \"x\", password-file = \"word\"", "there is a password beside"),
    ] {
        let error = bench.message(parse(more));
        assert!(error.contains(why), "{more}: {error}");
    }
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
    let at = |address: &str| ModemSource::Dlep(ModemDiscovery::At(address.parse().unwrap()));
    let found = modem("protocol = \"dlep\"\naddress = \"192.0.2.2\"\nper-packet-overhead = 18");
    assert_eq!(found, ModemConfig { source: at("192.0.2.2:854"), per_packet_overhead: 18 });
    let found = modem("protocol = \"dlep\"\naddress = \"[2001:db8::2]:8540\"");
    assert_eq!(found, ModemConfig { source: at("[2001:db8::2]:8540"), per_packet_overhead: 0 });
    let found = modem("protocol = \"dlep\"\ninterface = \"eth2\"").source;
    assert_eq!(found, ModemSource::Dlep(ModemDiscovery::On("eth2".into())));
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
        ("protocol = \"dlep\"\naddress = \"modem\"", "line 8: \"modem\" is not an address"),
        ("protocol = \"dlep\"\ninterface = \"a b\"", "line 8: \"a b\" is not the name of"),
        ("protocol = \"dlep\"\naddress = \"::1\"\ninterface = \"lo\"", "line 9: the modem has"),
        ("protocol = \"dlep\"\nfile = \"x\"", "line 8: \"file\" is for protocol = \"file\""),
        ("protocol = \"file\"", "line 7: nothing says which file"),
        ("protocol = \"file\"\nfile = \"x\"\ninterface = \"lo\"", "line 9: this is for"),
        (
            "protocol = \"file\"\nfile = \"x\"\nper-packet-overhead = 257",
            "line 9: 257 bytes on top",
        ),
        ("protocol = \"file\"\nfile = \"x\"\nper-packet-overhead = -1", "line 9: invalid value"),
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
    assert_eq!((dns.settings.max_stale, dns.listen.len()), (Duration::ZERO, 1));
}
