//! Configuration of HTTP/3 CONNECT.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_link::PublicKey;
use bentpipe_masque::{ClientConfig, Proxy, ServerConfig};

use bentpipe_config::{AirConfig, GroundConfig};

/// Configuration for [`bentpipe_masque::Client::connect`]. HTTP/3 finds its own rate; the configured one does not
/// apply.
pub fn client_config(config: &AirConfig, address: SocketAddr) -> ClientConfig {
    let secret = config.link.private_key.as_bytes().to_owned().into();
    ClientConfig::new(address, *config.link.peer_public_key.as_bytes(), secret)
}

/// Silence after which a hub takes an egress for dead. Its flows end then, and new ones go elsewhere.
const EGRESS_TIMEOUT: Duration = Duration::from_millis(1_400);
/// Interval of the probes of an idle egress. The silence counts from the first unanswered one.
const EGRESS_KEEP_ALIVE: Duration = Duration::from_millis(100);
/// Bytes of one flow that an egress sends before its hub reads them: 28 Mbit/s at 150 ms.
const EGRESS_FLOW_BYTES: u32 = 512 << 10;
/// The same for all aircraft of a hub, so that 2,048 flows may wait for their radios at once.
const EGRESS_CONNECTION_BYTES: u32 = 1 << 30;
/// Maximum pause between two attempts to reach an egress.
const EGRESS_PAUSE: Duration = Duration::from_secs(5);

/// Configuration of a hub's connection to the gateway with `public_key`, which is at `address`.
pub fn egress_config(
    config: &GroundConfig,
    public_key: &PublicKey,
    address: SocketAddr,
) -> ClientConfig {
    let secret = config.link.private_key.as_bytes().to_owned().into();
    on_the_ground(ClientConfig::new(address, *public_key.as_bytes(), secret))
}

/// Configuration of a hub's connection to `proxy`, which is at `address`.
pub fn proxy_config(proxy: &Proxy, address: SocketAddr) -> ClientConfig {
    on_the_ground(ClientConfig::proxy(address, proxy.clone()))
}

/// Changes the settings for the Internet, which is between hub and egress instead of the radio.
fn on_the_ground(mut client: ClientConfig) -> ClientConfig {
    client.transport.idle_timeout = EGRESS_TIMEOUT;
    client.transport.keep_alive = EGRESS_KEEP_ALIVE;
    client.transport.flow_window_bytes = EGRESS_FLOW_BYTES;
    client.transport.connection_window_bytes = EGRESS_CONNECTION_BYTES;
    client.transport.initial_rtt = Duration::from_millis(100);
    client.reconnect_max = EGRESS_PAUSE;
    client
}

/// Configuration for [`bentpipe_masque::Server::start`].
pub fn server_config(config: &GroundConfig) -> ServerConfig {
    let clients: HashSet<_> =
        config.aircraft.iter().map(|aircraft| *aircraft.key.as_bytes()).collect();
    let secret = config.link.private_key.as_bytes().to_owned().into();
    let mut server = ServerConfig::new(secret, clients);
    server.hubs = config.hubs.iter().map(|key| *key.as_bytes()).collect();
    if let Some(masque) = &config.masque {
        server.certificate = Some(masque.clone());
        server.logins = config.clients.iter().map(|client| client.login.clone()).collect();
    }
    server
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_config::{client_entry, client_token};

    const LINK: &str = "[link]\nprivate-key-file = \"a.key\"\nmasque-listen = \"[::]:4433\"\n";
    const MASQUE: &str = "[masque]\ncertificate = \"a.pem\"\nkey = \"a-key.pem\"\n";

    #[test]
    fn standard_clients_need_the_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("a.key", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n");
        let made = rcgen::generate_simple_self_signed(["proxy.example".to_owned()]).unwrap();
        write("a.pem", &made.cert.pem());
        write("a-key.pem", &made.signing_key.serialize_pem());
        let server = |text: &str| {
            let file = folder.path().join("ground.toml");
            server_config(&GroundConfig::parse(&file, text).unwrap())
        };
        let entry = |name, byte| client_entry(name, &client_token(&[byte; 32])).unwrap();
        let with = server(&[LINK, MASQUE, &entry("laptop", 1), &entry("other", 2)].concat());
        assert!(with.certificate.is_some());
        assert_eq!(with.logins.len(), 2);
        assert!(server(LINK).certificate.is_none());
    }
}
