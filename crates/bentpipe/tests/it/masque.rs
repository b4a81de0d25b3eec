//! An independent MASQUE client against the command's ground gateway on loopback.
//!
//! `make test` installs it (scripts/masque-client) and sets BENTPIPE_MASQUE_CLIENT to its Python.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use rcgen::{CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;

/// Time limit far above the duration of any step.
const PATIENCE: Duration = Duration::from_secs(60);

/// Exit status of the client if the proxy refuses.
const REFUSED: i32 = 3;

const SERVER_NAME: &str = "proxy.example";

/// Python of the client. If the tests were not started by `make test`, prints a notice and returns
/// `None`.
fn python() -> Option<String> {
    let python = std::env::var("BENTPIPE_MASQUE_CLIENT").ok();
    if python.is_none() {
        // Not by a macro, because the test harness captures its output.
        let why = "`make test` installs the client and names it in BENTPIPE_MASQUE_CLIENT";
        let mut seen = std::io::stderr();
        writeln!(seen, "SKIPPED: standard MASQUE clients are not tested: {why}").unwrap();
    }
    python
}

/// A ground gateway with one standard client, `laptop`, that may reach only 127.0.0.1.
struct Ground {
    child: Child,
    at: SocketAddr,
    python: String,
    folder: tempfile::TempDir,
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Fails only if the process has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bentpipe(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
    command.args(arguments).current_dir(folder);
    command
}

/// Output of the command.
fn said(mut command: Command) -> String {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A certificate authority and a certificate signed by it, as files.
fn certificates(folder: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    // A certificate whose subject equals its issuer would count as self-signed.
    params.distinguished_name.push(DnType::CommonName, "the tests' authority");
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![SERVER_NAME.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    std::fs::write(folder.join("proxy.pem"), certificate.pem()).unwrap();
    std::fs::write(folder.join("proxy-key.pem"), key.serialize_pem()).unwrap();
}

impl Ground {
    fn start(python: String) -> Ground {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        certificates(at);
        said(bentpipe(&["keys", "--out", "ground.key"], at));
        let keys = ["keys", "--client", "laptop", "--out", "laptop.token"];
        let entry = said(bentpipe(&keys, at));
        std::fs::write(at.join("wrong.token"), "wrong").unwrap();
        let config = format!(
            "[link]\nprivate-key-file = \"ground.key\"\nmasque-listen = \"127.0.0.1:0\"\n\
             [masque]\ncertificate = \"proxy.pem\"\nkey = \"proxy-key.pem\"\n\
             [dial]\nallow = [\"127.0.0.1/32\"]\n[dns]\nservers = [\"127.0.0.1:9\"]\n\
             [hosts]\n\"origin.test\" = \"127.0.0.1\"\n{entry}"
        );
        std::fs::write(at.join("ground.toml"), config).unwrap();
        let described = said(bentpipe(&["check", "ground.toml"], at));
        assert!(described.contains("client        laptop (token)"), "{described}");
        let mut child = bentpipe(&["ground", "--config", "ground.toml"], at)
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let listens = listening(child.stderr.take().unwrap());
        Ground { child, at: listens, python, folder }
    }

    /// Makes one request and returns the client's answer; each line of `input` is one datagram.
    fn ask(&self, credentials: &[&str], what: &[&str], to: (&str, u16), input: &str) -> Value {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/masque-client/client.py");
        let mut child = Command::new(&self.python)
            .current_dir(self.folder.path())
            .arg(script)
            .args(["--proxy", &self.at.to_string(), "--server-name", SERVER_NAME, "--ca"])
            .arg(self.folder.path().join("ca.pem"))
            .args(credentials)
            .args(what)
            .args([to.0, &to.1.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("BENTPIPE_MASQUE_CLIENT names a Python");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        // The client ends after 20 s at the latest.
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        assert!(matches!(code, Some(0 | REFUSED)), "{what:?} {to:?}: {said}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let carried = answer["status"].as_u64().is_some_and(|status| status / 100 == 2);
        assert_eq!(code, Some(if carried { 0 } else { REFUSED }), "{answer}");
        answer
    }
}

/// The right token, as Bearer credentials.
const BEARER: [&str; 2] = ["--token-file", "laptop.token"];

/// Listening address from the log on `stderr`. The rest is read too, so that the process does not
/// block.
fn listening(stderr: impl Read + Send + 'static) -> SocketAddr {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let place =
                line.split("serving address=\"").nth(1).and_then(|rest| rest.split('"').next());
            if let Some(address) = place.and_then(|place| place.parse().ok()) {
                // The receiver takes only the first address.
                let _ = tell.send(address);
            }
        }
    });
    told.recv_timeout(PATIENCE).expect("the ground gateway listens")
}

/// An origin that echoes one client's data.
fn tcp_echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for tcp in listener.incoming().map_while(Result::ok) {
            let mut tcp = &tcp;
            let mut bytes = Vec::new();
            let _ = tcp.read_to_end(&mut bytes).and_then(|_| tcp.write_all(&bytes));
        }
    });
    port
}

fn udp_echo() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut bytes = [0; 65_536];
        while let Ok((len, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..len], from);
        }
    });
    port
}

fn field<'a>(answer: &'a Value, name: &str) -> Vec<&'a str> {
    let fields = answer["fields"].as_array().unwrap().iter();
    fields.filter(|field| field[0] == name).map(|field| field[1].as_str().unwrap()).collect()
}

#[test]
fn connect_is_carried() {
    let Some(python) = python() else { return };
    let ground = Ground::start(python);
    for credentials in [&BEARER[..], &["--user", "laptop", "--token-file", "laptop.token"]] {
        for host in ["127.0.0.1", "origin.test"] {
            let answer = ground.ask(credentials, &["connect"], (host, tcp_echo()), "hello\nworld");
            assert_eq!(answer["status"], 200, "{answer}");
            assert_eq!(answer["received"][0], "helloworld");
        }
    }
}

#[test]
fn connect_udp_is_carried() {
    let Some(python) = python() else { return };
    let ground = Ground::start(python);
    for what in [&["connect-udp"][..], &["--capsules", "connect-udp"]] {
        for host in ["127.0.0.1", "origin.test"] {
            let answer = ground.ask(&BEARER, what, (host, udp_echo()), "one\ntwo\nthree");
            assert_eq!(answer["status"], 200, "{answer}");
            assert_eq!(field(&answer, "capsule-protocol"), ["?1"]);
            let mut received: Vec<&str> = answer["received"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one.as_str().unwrap())
                .collect();
            received.sort_unstable();
            assert_eq!(received, ["one", "three", "two"]);
        }
    }
}

#[test]
fn wrong_credentials_are_refused() {
    let Some(python) = python() else { return };
    let ground = Ground::start(python);
    for credentials in [
        &[][..],
        &["--token-file", "wrong.token"],
        &["--user", "other", "--token-file", "laptop.token"],
        &["--user", "laptop", "--token-file", "wrong.token"],
    ] {
        for what in ["connect", "connect-udp"] {
            let answer = ground.ask(credentials, &[what], ("127.0.0.1", tcp_echo()), "x");
            assert_eq!(answer["status"], 407, "{answer}");
            let offers = field(&answer, "proxy-authenticate").join(", ");
            assert!(offers.contains("Basic realm=") && offers.contains("Bearer"), "{offers}");
        }
    }
}

#[test]
fn forbidden_destinations_are_refused() {
    let Some(python) = python() else { return };
    let ground = Ground::start(python);
    for what in ["connect", "connect-udp"] {
        for host in ["127.0.0.2", "169.254.169.254"] {
            let answer = ground.ask(&BEARER, &[what], (host, 80), "x");
            assert_eq!(answer["status"], 403, "{answer}");
            assert_eq!(
                field(&answer, "proxy-status"),
                ["bentpipe; error=destination_ip_prohibited"]
            );
        }
    }
}
