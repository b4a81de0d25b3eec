//! `[[egress]]` for MASQUE proxies of any maker.

use super::*;

const PROXY: &str = "[[egress]]\npeer = \"proxy.example:443\"\nca = \"ca.pem\"\n";
const SECRET: &str = "Bearer confidential";

fn bench() -> Bench {
    let bench = Bench::new();
    let made = rcgen::generate_simple_self_signed(["proxy.example".to_owned()]).unwrap();
    for (name, text) in [
        ("ca.pem", &*made.cert.pem()),
        ("empty.pem", ""),
        ("token", &format!("{SECRET}\n")),
        ("two-lines", &format!("{SECRET}\n{SECRET}\n")),
        ("control", &format!("{SECRET}\u{1}")),
        ("empty", "\n"),
    ] {
        std::fs::write(bench.0.path().join(name), text).unwrap();
    }
    bench
}

fn parse(bench: &Bench, text: &str) -> Result<GroundConfig, ConfigError> {
    GroundConfig::parse(&bench.0.path().join("ground.toml"), &format!("{GROUND}{text}"))
}

#[test]
fn an_egress_without_a_key_is_a_proxy() {
    let bench = bench();
    for (authorization, is_authorized) in [("", false), ("authorization-file = \"token\"\n", true)]
    {
        let text = format!("{PROXY}{authorization}sites = [\"example.com\"]\n");
        let config = parse(&bench, &text).unwrap();
        let EgressConfig { peer, kind: EgressKind::Proxy(proxy), sites } = &config.egresses[0]
        else {
            panic!("{:?}", config.egresses);
        };
        assert_eq!((peer.to_string(), sites.len()), ("proxy.example:443".to_owned(), 1));
        assert_eq!(proxy.is_authorized(), is_authorized);
        assert!(!format!("{config:?}").contains("confidential"));
    }
}

#[test]
fn wrong_combinations_are_refused_and_no_secret_is_shown() {
    let bench = bench();
    let key = "public-key = \"ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=\"\n";
    let with = |more: &str| format!("{PROXY}{more}");
    // No error shows a line that may hold a secret, as that of an authorization-file.
    let cases = [
        (with(key), "ca = \"ca.pem\"", "a Bentpipe gateway is known by its public-key"),
        (
            with(&format!("{key}authorization-file = \"token\"\n"))
                .replace("ca = \"ca.pem\"\n", ""),
            "line 21",
            "leave this out, or public-key",
        ),
        (with("transport = \"link\"\n"), "transport = \"link\"", "needs the public-key"),
        (PROXY.replace("ca.pem", "none.pem"), "ca = \"none.pem\"", "cannot be read"),
        (
            PROXY.replace("ca.pem", "empty.pem"),
            "ca = \"empty.pem\"",
            "no certificate of an authority",
        ),
        (with("authorization-file = \"none\"\n"), "line 21", "cannot be read"),
        (with("authorization-file = \"empty\"\n"), "line 21", "is not one line of text"),
        (with("authorization-file = \"two-lines\"\n"), "line 21", "is not one line of text"),
        (with("authorization-file = \"control\"\n"), "line 21", "no field of HTTP may have"),
    ];
    for (text, quoted, why) in cases {
        let message = bench.message(parse(&bench, &text));
        assert!(message.contains(quoted) && message.contains(why), "{message}");
        assert!(!message.contains("confidential"), "{message}");
    }
    let by_http = with("transport = \"masque\"\n");
    assert!(parse(&bench, &by_http).is_ok(), "it says what a proxy speaks anyway");
}

#[test]
fn two_egresses_with_one_peer_are_refused() {
    let bench = bench();
    let key = |byte: u8| SecretKey::from_bytes([byte; 32]).public();
    let gateway = |byte: u8, transport: &str| {
        let key = key(byte);
        format!(
            "[[egress]]\npeer = \"proxy.example:443\"\npublic-key = \"{key}\"\n\
             transport = \"{transport}\"\n"
        )
    };
    for (first, second) in [
        (PROXY.to_owned(), PROXY.to_owned()),
        (gateway(1, "masque"), gateway(2, "masque")),
        (gateway(1, "masque"), gateway(2, "link")),
        (PROXY.to_owned(), gateway(1, "link")),
        (gateway(1, "link"), PROXY.to_owned()),
    ] {
        let text = format!("{first}{second}");
        let message = bench.message(parse(&bench, &text));
        let line = (GROUND.lines().count() + first.lines().count() + 2).to_string();
        for part in [
            &*format!("line {line}: another [[egress]] has this peer too"),
            "peer = \"proxy.example:443\"",
            "remove one of them",
        ] {
            assert!(message.contains(part), "{message}");
        }
        let other = format!("{first}{}", second.replace(":443", ":444"));
        assert_eq!(parse(&bench, &other).unwrap().egresses.len(), 2);
    }
}
