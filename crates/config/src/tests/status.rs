//! Settings of the status, its address and its token.

use super::*;

/// Configuration of the status in `air.toml` with `lines` below `[status]`.
fn status(bench: &Bench, lines: &str) -> Result<StatusConfig, ConfigError> {
    let text = format!("{AIR}[status]\nfile = \"status.json\"\n{lines}\n");
    let parsed = AirConfig::parse(&bench.0.path().join("air.toml"), &text);
    parsed.map(|config| config.status.expect("the table is there"))
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
    let bench = Bench::new();
    let file = bench.0.path().join("status.token");
    std::fs::write(&file, "0123456789abcdef\n").unwrap();
    for address in ["127.0.0.1:9464", "[::1]:9464"] {
        let alone = status(&bench, &format!("listen = \"{address}\"")).unwrap();
        assert!(alone.listen.is_some() && alone.token.is_none());
    }
    for address in ["[::]:9464", "192.0.2.1:9464"] {
        let alone = bench.message(status(&bench, &format!("listen = \"{address}\"")));
        assert!(alone.contains("can be reached by others, and no token is configured"), "{alone}");
        let lines = format!("listen = \"{address}\"\ntoken-file = \"status.token\"");
        let token = status(&bench, &lines).unwrap().token.unwrap();
        assert!(token.is(b"0123456789abcdef") && !token.is(b"0123456789abcdef\n"));
        assert_eq!(format!("{token:?}"), "Token(..)");
    }
    let alone = bench.message(status(&bench, "token-file = \"status.token\""));
    assert!(alone.contains("no address is served that the token could protect"), "{alone}");
}

#[test]
fn a_token_that_can_be_guessed_is_none() {
    let bench = Bench::new();
    let lines = "listen = \"[::]:9464\"\ntoken-file = \"status.token\"";
    let message = || bench.message(status(&bench, lines));
    assert!(message().contains("status.token cannot be read: "), "{}", message());
    for bad in ["", "0123456789abcde", "0123456789 abcdef", "0123456789abcdeé", &"a".repeat(257)] {
        std::fs::write(bench.0.path().join("status.token"), bad).unwrap();
        let message = message();
        assert!(message.contains("has no token of 16 to 256 printable characters"), "{message}");
        assert!(message.contains("make one with `openssl rand -hex 16 > "), "{message}");
        assert!(!message.contains(bad) || bad.is_empty(), "{message}");
    }
}
