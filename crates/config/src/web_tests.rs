//! Full error messages of sites and the preload.

use super::*;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A folder that contains keys and a certificate, for parsing files.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["portal.example".to_owned()]).unwrap();
        let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        for (name, text) in [("a.key", KEY), ("portal.pem", &pem), ("portal.key", &key)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    fn ground(&self, site: &str, dial: &str) -> Result<GroundConfig, String> {
        let text = format!(
            "[link]\nprivate-key-file = \"a.key\"\nlisten = \"127.0.0.1:0\"\n[split-http]\n\
             [dial]\n{dial}\n[[site]]\nname = \"portal.example\"\n{site}\n"
        );
        let parsed = GroundConfig::parse(&self.0.path().join("ground.toml"), &text);
        parsed.map_err(|error| error.to_string())
    }

    fn air(&self, more: &str) -> Result<AirConfig, String> {
        let text = format!(
            "[link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:4500\"\n\
             peer-public-key = \"{KEY}\"\nrate = \"1 Mbit/s\"\n[http-cache]\n\
             [listen]\nsocks5 = \"127.0.0.1:0\"\n{more}\n"
        );
        let parsed = AirConfig::parse(&self.0.path().join("air.toml"), &text);
        parsed.map_err(|error| error.to_string())
    }

    fn air_site(&self, site: &str) -> Result<AirConfig, String> {
        let pair = "certificate = \"portal.pem\"\nkey = \"portal.key\"";
        self.air(&format!("[[site]]\nname = \"portal.example\"\n{pair}\n{site}"))
    }
}

#[test]
fn an_origin_has_no_user_name() {
    let bench = Bench::new();
    for origin in
        ["http://me:secret@origin.example", "http://me@10.0.0.5:8080/", "http://:@x.example"]
    {
        let site = format!("origin = \"{origin}\"");
        let allow = "allow = [\"10.0.0.0/8\"]";
        for told in [bench.ground(&site, allow).err(), bench.air_site(&site).err()] {
            let told = told.expect(origin);
            assert!(
                told.contains("the origin of portal.example has a user's name in it"),
                "{told}"
            );
            assert!(told.contains("leave out what stands before the @"), "{told}");
        }
    }
    // An @ in the path is not a username, but an origin must not have a path.
    let told = bench.ground("origin = \"http://origin.example/@\"", "").err().unwrap();
    assert!(told.contains("is not where an origin is"), "{told}");
}

#[test]
fn an_origin_that_would_not_be_dialled_is_refused_at_once() {
    let bench = Bench::new();
    for (host, network) in [("10.0.0.5", "10.0.0.5/32"), ("[fd00::5]", "fd00::5/128")] {
        let site = format!("origin = \"http://{host}:8080\"");
        let told = bench.ground(&site, "").err().unwrap();
        assert!(told.contains("is not on the Internet, and [dial] does not allow it"), "{told}");
        assert!(told.contains(&format!("write allow = [\"{network}\"] under [dial]")), "{told}");
        bench.ground(&site, &format!("allow = [\"{network}\"]")).unwrap();
    }
    bench.ground("origin = \"http://93.184.216.34\"", "").unwrap();
    // A name's addresses are known only when it is dialled; air.toml does not know the ground's
    // rules.
    bench.ground("origin = \"http://origin.example\"", "").unwrap();
    bench.air_site("origin = \"http://10.0.0.5:8080\"").unwrap();
}

#[test]
fn an_origin_that_is_asked_in_clear_shows_no_certificate() {
    let bench = Bench::new();
    let site = "origin = \"http://origin.example\"\norigin-ca = \"portal.pem\"";
    for told in [bench.ground(site, "").err(), bench.air_site(site).err()] {
        let told = told.unwrap();
        assert!(told.contains("asked in clear shows no certificate"), "{told}");
        assert!(told.contains("leave out origin-ca"), "{told}");
    }
    bench.ground(&site.replace("http:", "https:"), "").unwrap();
}

#[test]
fn a_name_is_one_site() {
    let bench = Bench::new();
    let again = "origin = \"http://a.example\"\n[[site]]\nname = \"Portal.example\"\norigin = \"http://b.example\"";
    let told = bench.ground(again, "").err().unwrap();
    assert!(told.contains("portal.example is written twice"), "{told}");
    let many: String = (0..64)
        .map(|n| format!("[[site]]\nname = \"n{n}.example\"\norigin = \"http://x.example\"\n"))
        .collect();
    let told = bench.ground(&format!("origin = \"http://a.example\"\n{many}"), "").err().unwrap();
    assert!(told.contains("more than 64 sites"), "{told}");
}
