//! CONNECT-UDP with an independent client, over both kinds of datagrams.
//!
//! `make test` installs the client (scripts/masque-client), and passes its Python in
//! BENTPIPE_MASQUE_CLIENT.

use std::{
    collections::HashSet,
    io::Write,
    net::{Ipv4Addr, SocketAddr},
    process::{Command, Output},
    sync::Arc,
    time::Duration,
};

use bentpipe_masque::{Certificate, Login, SecretKey, Server, ServerConfig, Socket, token_hash};
use tokio::time::timeout;

/// Longer than the client tries.
const LIMIT: Duration = Duration::from_secs(60);

/// A server that echoes each flow.
async fn echo(server: Server) {
    while let Some(incoming) = server.accept().await {
        assert_eq!(incoming.authority, "[2001:db8::1]:443");
        let flow = incoming.into_datagrams();
        tokio::spawn(async move {
            while let Ok(datagram) = flow.receive().await {
                let _ = flow.send(&datagram);
            }
        });
    }
}

#[tokio::test]
async fn datagrams_of_an_independent_client_come_back() {
    let Ok(python) = std::env::var("BENTPIPE_MASQUE_CLIENT") else {
        // Not by a macro, whose output the test harness captures.
        let why = "`make test` installs the client and names it in BENTPIPE_MASQUE_CLIENT";
        let mut seen = std::io::stderr();
        writeln!(seen, "SKIPPED: standard MASQUE clients are not tested: {why}").unwrap();
        return;
    };
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let made = rcgen::generate_simple_self_signed(["proxy.example".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let ca = folder.join("standard-ca.pem");
    std::fs::write(&ca, &chain).unwrap();
    let token = folder.join("standard.token");
    std::fs::write(&token, "token\n").unwrap();
    let mut config = ServerConfig::new(SecretKey::new([2; 32]), HashSet::new());
    let certificate = Certificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    config.certificate = Some(Arc::new(certificate));
    config.logins =
        vec![Login { name: "laptop".into(), token_hash: token_hash("token"), max_flows: 8 }];
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::start(config, Socket::bind(any).unwrap()).unwrap();
    let at = server.local_addr().unwrap().to_string();
    tokio::spawn(echo(server));
    for more in [&[][..], &["--capsules"]] {
        let mut client = Command::new(&python);
        client
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/masque-client/client.py"))
            .args(["--proxy", &at, "--server-name", "proxy.example", "--ca"])
            .arg(&ca)
            .arg("--token-file")
            .arg(&token)
            .args(more)
            .args(["connect-udp", "2001:db8::1", "443"]);
        let answer = timeout(LIMIT, tokio::task::spawn_blocking(|| with_input(client, "one\ntwo")));
        let Output { status, stdout, stderr } = answer.await.unwrap().unwrap();
        assert!(status.success(), "{more:?}: {}", String::from_utf8_lossy(&stderr));
        let said = String::from_utf8(stdout).unwrap();
        assert!(said.contains("\"status\": 200"), "{said}");
        assert!(said.contains("\"capsule-protocol\", \"?1\""), "{said}");
        assert!(said.contains("\"one\"") && said.contains("\"two\""), "{said}");
    }
}

fn with_input(mut command: Command, input: &str) -> Output {
    use std::process::Stdio;
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("BENTPIPE_MASQUE_CLIENT names a Python");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}
