use std::path::Path;

use bentpipe_link::Class;

use crate::{ConfigError, GroundConfig, client_entry, client_token};

const LINK: &str = "[link]\nprivate-key-file = \"a.key\"\nmasque-listen = \"[::]:4433\"\n";
const MASQUE: &str = "[masque]\ncertificate = \"a.pem\"\nkey = \"a-key.pem\"\n";

/// A folder with keys and a certificate.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a.key", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n");
    let made = rcgen::generate_simple_self_signed(["proxy.example".to_owned()]).unwrap();
    write("a.pem", &made.cert.pem());
    write("a-key.pem", &made.signing_key.serialize_pem());
    let other = rcgen::generate_simple_self_signed(["proxy.example".to_owned()]).unwrap();
    write("other-key.pem", &other.signing_key.serialize_pem());
    folder
}

fn parse(folder: &Path, text: &str) -> Result<GroundConfig, ConfigError> {
    GroundConfig::parse(&folder.join("ground.toml"), text)
}

fn entry(name: &str, byte: u8) -> String {
    client_entry(name, &client_token(&[byte; 32])).unwrap()
}

#[test]
fn a_printed_entry_is_one_that_is_read() {
    let folder = folder();
    let more = "highest-class = \"lower-effort\"\nmax-flows = 7\nflows-per-second = 3\n";
    let text = [LINK, MASQUE, &entry("laptop", 1), &entry("O'Neil\"\\", 2), more].concat();
    let config = parse(folder.path(), &text).unwrap();
    let [laptop, other] = &config.clients[..] else { panic!("two clients") };
    assert_eq!((&*laptop.login.name, laptop.highest_class), ("laptop", Class::BestEffort));
    assert_eq!(other.login.name, "O'Neil\"\\");
    let bounds = (other.highest_class, other.max_flows, other.flows_per_second);
    assert_eq!(bounds, (Class::LowerEffort, 7, 3));
    let token = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
    assert_eq!(client_token(&[1; 32]), token);
    assert_eq!(laptop.login.token_hash, bentpipe_masque::token_hash(token));
}

#[test]
fn impossible_settings_are_reported() {
    let folder = folder();
    let said = |parts: &[&str]| parse(folder.path(), &parts.concat()).err().unwrap().to_string();
    let (one, two) = (entry("one", 1), entry("two", 2));
    let empty = client_entry("one", "").unwrap();
    let none = format!("{one}max-flows = 0\n");
    for (parts, wanted) in [
        (&[LINK, &one][..], "line 5: \"one\" has no certificate to verify"),
        (&[LINK, MASQUE, &empty], "line 9: the token of \"one\" is empty"),
        (&[LINK, MASQUE, &none], "line 10: 0 would let nothing through"),
        (&[LINK, MASQUE, &one, &one], "line 11: \"one\" is the name of another client"),
        (&[LINK, MASQUE, &one, &entry("two", 1)], "line 12: \"two\" has the token of another"),
        (&[LINK, MASQUE, &two.replace("two", "a:b")], "\"a:b\" cannot be a user's name"),
        (
            &[LINK, MASQUE, &two.replace("token-hash = \"", "token-hash = \"A")],
            "not a hash of a token",
        ),
        (&[LINK, MASQUE, "[[client]]\nname = \"a\"\n"], "prints the whole entry"),
        (&[LINK, &MASQUE.replace("a.pem", "b.pem")], "b.pem cannot be read"),
        (&[LINK, &MASQUE.replace("a.pem", "a.key")], "no CERTIFICATE in the certificate's file"),
        (&[LINK, &MASQUE.replace("a-key", "other-key")], "preparing TLS: "),
        (&[LINK, &MASQUE.replace("a-key.pem", "a.pem")], "reading the certificate's key"),
        (
            &[&LINK.replace("masque-listen", "listen"), MASQUE],
            "\"masque\" does nothing: only link is served",
        ),
    ] {
        let said = said(parts);
        assert!(said.contains(wanted), "{wanted:?} is not in: {said}");
    }
    for bad in ["", "a b", "a:b", "é", &"x".repeat(65)] {
        assert!(client_entry(bad, "token").is_err(), "{bad}");
    }
}
