use bentpipe_link::SecretKey;

use super::*;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn described(name: &str, text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own.key"), KEY).unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, text).unwrap();
    let text = describe(&file).unwrap().to_string();
    let folder = format!("{}/", folder.path().display());
    for line in text.lines().filter(|line| !line.contains(&folder)) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    without_descriptors(&text.replace(&folder, ""))
}

/// Removes the note about descriptors, which depends on the machine.
fn without_descriptors(text: &str) -> String {
    let mut is_note = false;
    let is_kept = |line: &&str| {
        if !line.starts_with("                ") {
            is_note = line.starts_with("  note          this process may open");
        }
        !is_note
    };
    text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
}

#[test]
fn an_air_gateway_is_described() {
    let text = described(
        "air.toml",
        &format!(
            "[link]\nprivate-key-file = \"own.key\"\npeer = \"hub.example.net:4500\"\n\
                 peer-public-key = \"{KEY}\"\nrate = \"1.89 Mbit/s\"\nmtu = 9000\n\
                 lease = \"granted\"\n[listen]\nsocks5 = \"127.0.0.1:1080\"\nquic = \"reject\"\n\
                 tproxy = {{ port = 1081, interfaces = [\"no-such-if0\"] }}\n\
                 auth = {{ username = \"crew\", password = \"secret\" }}\n"
        ),
    );
    let expected = format!(
        "air gateway
  own key       j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=
  calls         hub.example.net:4500
  its key       {KEY}
  over          the radio transport, sending what the ground grants, up to 1.89
                Mbit/s (16 kbit/s until then; the ground needs a [beam]); to the
                ground's listen
  packets       up to 9000 bytes, IP header included, if the path carries them
  note          an mtu of 9000 is more than Ethernet's 1500: write what the path
                is provisioned for
  state         kept in own.state
  memory        512 MiB received, 256 MiB to send, 16 MiB for repairs
  SOCKS5        127.0.0.1:1080
  password      asked for by the proxies, of user \"crew\"
  intercepts    TCP and UDP from no-such-if0 (port 1081)
  note          this machine has no interface \"no-such-if0\" now: `ip link` lists
                them
  QUIC          rejected: browsers use TCP
  rules         0; best-effort for what none matches
  flows         4096 of TCP, 1024 a passenger
                4096 of UDP, 1024 a passenger
"
    );
    assert_eq!(text, expected);
}

#[test]
fn a_ground_gateway_is_described() {
    let text = described(
        "ground.toml",
        &format!(
            "[link]\nprivate-key-file = \"own.key\"\nlisten = \"[::]:4500\"\n\
                 total-memory = \"512 MiB\"\n[[aircraft]]\n\
                 name = \"D-ABCD\"\npublic-key = \"{KEY}\"\nrate = \"1.89 Mbit/s\"\n\
                 highest-class = \"network\"\nmemory = {{ send = \"32 MiB\" }}\n\
                 [dns]\nservers = [\"9.9.9.9\"]\npush-rate = \"32 kbit/s\"\n"
        ),
    );
    let expected = format!(
        "ground gateway
  own key       j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=
  radio link    [::]:4500/udp
  aircraft      D-ABCD, key {KEY}
                1.89 Mbit/s; 4096 flows, 4096 of UDP, up to network
  memory        512 MiB received, 32 MiB to send, 16 MiB for repairs
  packets       up to 1500 bytes, IP header included, if the path carries them
  all sessions  512 MiB of memory; their own bounds come to 560 MiB
                one ends after 900 s of silence
                where that is short, nothing more is lent, and silent sessions
                end first
  dials         public addresses only, and no neighbours
                never 168.63.129.16/32, 25/tcp
  name servers  9.9.9.9:53
  pushes        at 32 kbit/s, names that an aircraft used to ask for, where it
                takes them
"
    );
    assert_eq!(text, expected);
}

#[test]
fn a_kernel_with_too_few_ports_is_told() {
    // More flows than any range has ports.
    let text = described(
        "ground.toml",
        &format!(
            "[link]\nprivate-key-file = \"own.key\"\nlisten = \"[::]:4500\"\n\
                 [limits.udp]\nmax-flows = 100000\n[[aircraft]]\nname = \"D-ABCD\"\n\
                 public-key = \"{KEY}\"\nrate = \"1.89 Mbit/s\"\nmax-datagram-flows = 100000\n"
        ),
    );
    let row = "  note          passengers may open 100000 flows of UDP, and the kernel has";
    assert!(text.contains(row), "{text}");
}

/// The cabin example in its own folder, with keys and certificates.
fn cabin() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    for key in ["air.key", "ground.key"] {
        write(key, KEY);
    }
    for (file, name) in [("portal", "portal.example"), ("resolver", "dns.portal.example")] {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        write(&format!("{file}.pem"), &made.cert.pem());
        write(&format!("{file}.key"), &made.signing_key.serialize_pem());
    }
    // The trust store of this machine is irrelevant to the example.
    let air = include_str!("../../../../examples/cabin/air.toml");
    let ground = include_str!("../../../../examples/cabin/ground.toml");
    let origin = "origin = \"https://portal.example\"\n";
    assert!(air.contains(origin));
    write("air.toml", &air.replace(origin, &format!("{origin}origin-ca = \"portal.pem\"\n")));
    let name = "[[site]]\nname = \"portal.example\"\n";
    assert!(ground.contains(name));
    write("ground.toml", &ground.replace(name, &format!("{name}origin-ca = \"portal.pem\"\n")));
    write("portal.txt", include_str!("../../../../examples/cabin/portal.txt"));
    folder
}

#[test]
fn the_example_of_a_cabin_is_without_errors() {
    let folder = cabin();
    let air = describe(&folder.path().join("air.toml")).unwrap().to_string();
    for says in [
        "preloads      5 addresses, 512 MiB a run at most, in",
        "when `bentpipe preload` asks at /run/bentpipe-air/preload.sock",
        "answers for   portal.example",
        "DNS           answered on board at 10.0.0.1:53",
        "HTTP cache    128 MiB in memory, 4 GiB in /var/cache/bentpipe",
        "passengers' page http://10.0.0.1:80/",
    ] {
        assert!(air.contains(says), "{says}: {air}");
    }
    let ground = describe(&folder.path().join("ground.toml")).unwrap().to_string();
    assert!(ground.contains("pages"), "{ground}");
}

/// Each example is a pair: with keys of its own and the folder for its records, both files are good,
/// and they fit together.
#[test]
fn the_examples_are_pairs() {
    for example in ["aircraft", "rural-paws", "ship", "village"] {
        let folder = tempfile::tempdir().unwrap();
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let public = |seed| SecretKey::from_bytes([seed; 32]).public().to_string();
        let records = format!("directory = \"{}\"", folder.path().display());
        for (which, own, peer) in [("air", 1, 2), ("ground", 2, 1)] {
            let file = format!("{which}.toml");
            let text = std::fs::read_to_string(examples.join(example).join(&file)).unwrap();
            assert!(text.contains(KEY), "{example}: a key to replace");
            let text = text.replace(KEY, &public(peer));
            let text = text.replace("directory = \"/var/lib/bentpipe-air\"", &records);
            std::fs::write(folder.path().join(file), text).unwrap();
            let key = SecretKey::from_bytes([own; 32]).to_base64();
            std::fs::write(folder.path().join(format!("{which}.key")), &*key).unwrap();
        }
        let [air, ground] = ["air.toml", "ground.toml"].map(|name| folder.path().join(name));
        for file in [&air, &ground] {
            describe(file).unwrap();
        }
        let air = AirConfig::load(&air, None).unwrap();
        let found = pair::compare(&air, &GroundConfig::load(&ground).unwrap());
        assert_eq!((found.faults, found.notes), (vec![], vec![]), "{example}");
    }
}

#[test]
fn a_manifest_that_cannot_be_followed_is_told_with_its_line() {
    let folder = cabin();
    let file = folder.path().join("air.toml");
    let complaint = || describe(&file).err().unwrap().to_string();
    let manifest = folder.path().join("portal.txt");
    std::fs::write(&manifest, "# films\nhttps://elsewhere.example/\n").unwrap();
    let told = complaint();
    assert!(told.contains("portal.txt, line 2: elsewhere.example is not a [[site]]"), "{told}");
    std::fs::remove_file(&manifest).unwrap();
    let told = complaint();
    assert!(told.contains("cannot be read") && told.contains("one address a line"), "{told}");
    let text = std::fs::read_to_string(&file).unwrap();
    let few = "manifest = \"portal.txt\"\n";
    std::fs::write(&file, text.replace(few, &format!("{few}concurrency = 33\n"))).unwrap();
    let told = complaint();
    assert!(told.contains("concurrency = 33 under [preload] is more than 32"), "{told}");
}

#[test]
fn the_wrong_says_where() {
    let error = describe(Path::new("/none/air.toml")).err().unwrap().to_string();
    assert!(error.starts_with("cannot read /none/air.toml: No such file"), "{error}");
}

#[test]
fn egresses_are_described() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["proxy.example".to_owned()]).unwrap();
    let other = SecretKey::from_bytes([9; 32]).public();
    let text = format!(
        "[link]\nprivate-key-file = \"own.key\"\nlisten = \"[::]:4500\"\n\
         [[egress]]\npeer = \"lon.example.net:4433\"\npublic-key = \"{other}\"\n\
         [[egress]]\npeer = \"proxy.example:443\"\nca = \"ca.pem\"\n\
         authorization-file = \"token\"\n"
    );
    for (name, text) in [
        ("own.key", KEY),
        ("ca.pem", &made.cert.pem()),
        ("token", "Bearer confidential\n"),
        ("ground.toml", &text),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let described = describe(&folder.path().join("ground.toml")).unwrap().to_string();
    let words = described.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        format!("egress lon.example.net:4433, by HTTP/3, key {other}"),
        "egress proxy.example:443, a MASQUE proxy, with authorization: TCP of aircraft that keep flows, and UDP"
            .to_owned(),
    ] {
        assert!(words.contains(&line), "{described}");
    }
    assert!(!described.contains("confidential"));
}
