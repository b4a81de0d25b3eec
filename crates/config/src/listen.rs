//! `[listen]` of `air.toml`: listeners for clients.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Deserialize;

use super::least::Credential;
use super::{ConfigError, Placed, Quic, Source, applies, key, least, network};

/// Listeners for passengers.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ListenTable {
    /// SOCKS5 proxy with CONNECT and UDP ASSOCIATE.
    #[schemars(title = "address")]
    socks5: Option<SocketAddr>,
    /// HTTP proxy: CONNECT, and requests for `http://` addresses.
    #[schemars(title = "address")]
    http_proxy: Option<SocketAddr>,
    /// Transparent interception of TCP and UDP.
    tproxy: Option<Placed<TproxyTable>>,
    /// Treatment of passengers' QUIC. If it is rejected, browsers use TCP at once.
    #[serde(default)]
    quic: Quic,
    /// Credentials for clients of the two proxies.
    auth: Option<Placed<AuthTable>>,
    /// Networks of the two proxies' clients; this machine is always served. A proxy that listens on
    /// another address than loopback needs `clients` or `auth`.
    #[serde(default, deserialize_with = "network::list")]
    #[schemars(with = "Vec<String>", title = "list of networks", extend("default" = []))]
    clients: Vec<IpNet>,
}

/// Transparent interception.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TproxyTable {
    /// Local port for intercepted traffic.
    port: u16,
    /// Interfaces of the passengers, at most 64; never `lo`.
    #[schemars(title = "list of names")]
    interfaces: Vec<Placed<String>>,
    /// Drops packets from these interfaces that are not carried, even while no gateway runs:
    /// docs/operations.md#when-the-gateway-stops.
    #[serde(default)]
    fail_closed: bool,
}

/// Credentials for the proxies.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct AuthTable {
    /// User name, at most 255 bytes.
    username: Credential,
    /// Password, at most 255 bytes; this or `password-file` is required.
    password: Option<Credential>,
    /// File with the password: one line, readable by its owner only.
    #[schemars(title = "path")]
    password_file: Option<Placed<PathBuf>>,
}

/// Listeners for clients.
#[derive(Debug, Clone, Default)]
pub struct Listen {
    /// SOCKS5 (RFC 1928).
    pub socks5: Option<SocketAddr>,
    /// HTTP CONNECT and absolute-form requests.
    pub http_proxy: Option<SocketAddr>,
    /// Transparent interception.
    pub tproxy: Option<Tproxy>,
    /// Treatment of the clients' QUIC.
    pub quic: Quic,
    /// Credentials of SOCKS5 and HTTP clients.
    pub auth: Option<Auth>,
    /// Networks of SOCKS5 and HTTP clients; empty for any. Clients on this machine are always
    /// accepted.
    pub clients: Vec<IpNet>,
}

/// Transparent interception by nftables.
#[derive(Debug, Clone)]
pub struct Tproxy {
    /// Local port to which intercepted connections are redirected.
    pub port: u16,
    /// Interfaces that clients are connected to.
    pub interfaces: Vec<String>,
    /// `true` drops packets that are not carried, even while the gateway is stopped.
    pub fail_closed: bool,
}

/// Credentials for the proxies: at most 255 bytes each, as RFC 1929 allows.
#[derive(Clone)]
pub struct Auth {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
}

/// Maximum number of intercepted interfaces: each needs an nftables rule and two policy routing
/// rules.
const MAX_INTERFACES: usize = 64;

impl ListenTable {
    pub fn check(self, source: &Source<'_>) -> Result<Listen, ConfigError> {
        let auth = self.auth.as_ref().map(|auth| auth.check(source)).transpose()?;
        if self.socks5.is_none() && self.http_proxy.is_none() && self.tproxy.is_none() {
            let help = "write at least one of socks5 = \"127.0.0.1:1080\", \
                        http-proxy = \"127.0.0.1:8080\", \
                        tproxy = { port = 1081, interfaces = [\"eth1\"] } under [listen]";
            return Err(ConfigError::at(source, None, "nothing to listen on", help));
        }
        let listen = Listen {
            socks5: self.socks5,
            http_proxy: self.http_proxy,
            tproxy: self.tproxy.map(|tproxy| TproxyTable::check(tproxy, source)).transpose()?,
            quic: self.quic,
            auth,
            clients: self.clients,
        };
        let intercepts = |it: &Tproxy| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), it.port);
        let addresses = [
            ("socks5", listen.socks5),
            ("http-proxy", listen.http_proxy),
            ("tproxy", listen.tproxy.as_ref().map(intercepts)),
        ];
        source.listen_apart("listen", &addresses)?;
        listen.check_open(source)?;
        match &self.auth {
            Some(auth) if listen.http_proxy.is_some() && auth.username.0.contains(':') => {
                let why = "a user's name in HTTP ends at the first colon (RFC 7617)";
                let help = "write a username without a colon, or leave out http-proxy";
                Err(auth.error(source, why, help))
            }
            _ => Ok(listen),
        }
    }
}

impl Listen {
    /// Returns whether a SOCKS5 or HTTP client at `ip` is served.
    pub fn admits(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let listed = || self.clients.iter().any(|network| network.contains(&ip));
        self.clients.is_empty() || ip.is_loopback() || listed()
    }

    /// Rejects a proxy that anyone who reaches it can use.
    fn check_open(&self, source: &Source<'_>) -> Result<(), ConfigError> {
        let proxies = [("socks5", self.socks5), ("http-proxy", self.http_proxy)];
        let reached = |address: Option<SocketAddr>| address.filter(|it| !it.ip().is_loopback());
        let found = proxies.iter().find_map(|(key, address)| Some((*key, reached(*address)?)));
        let Some((key, address)) = found else { return Ok(()) };
        if self.auth.is_some() || !self.clients.is_empty() {
            return Ok(());
        }
        let why = format!("whoever reaches {address} could use the link by this proxy");
        let help = "write your passengers' networks under [listen], clients = [\"10.0.0.0/24\"], or \
                    auth, or let it listen at 127.0.0.1";
        Err(ConfigError::at(source, applies::place_of(source, "listen", key)?, why, help))
    }
}

impl TproxyTable {
    fn check(placed: Placed<Self>, source: &Source<'_>) -> Result<Tproxy, ConfigError> {
        if placed.port == 0 || placed.interfaces.is_empty() {
            let why = "transparent interception needs a port and an interface";
            let help = "write tproxy = { port = 1081, interfaces = [\"eth1\"] }";
            return Err(placed.error(source, why, help));
        }
        if placed.interfaces.len() > MAX_INTERFACES {
            let why = format!("more than {MAX_INTERFACES} interfaces");
            return Err(placed.error(source, why, "name a bridge of them"));
        }
        for name in &placed.interfaces {
            source.check_interface(name, "interfaces = [\"eth1\"]")?;
            if **name == "lo" {
                let why = "intercepting \"lo\" would catch this machine's own connections";
                let help = "name the interface the clients come in by: interfaces = [\"eth1\"]";
                return Err(name.error(source, why, help));
            }
        }
        let Self { port, interfaces, fail_closed } = placed.into_inner();
        let interfaces = interfaces.into_iter().map(Placed::into_inner).collect();
        Ok(Tproxy { port, interfaces, fail_closed })
    }
}

impl Placed<AuthTable> {
    /// Reads the password if it is in a file.
    fn check(&self, source: &Source<'_>) -> Result<Auth, ConfigError> {
        let username = self.username.0.clone();
        let file = match (&self.password, &self.password_file) {
            (Some(password), None) => return Ok(Auth { username, password: password.0.clone() }),
            (None, None) => {
                let help = "write password = \"…\", or password-file = \"FILE\"";
                return Err(self.error(source, "the setting \"password\" is missing", help));
            }
            (Some(_), Some(file)) => {
                let why = "there is a password beside this file";
                return Err(file.error(source, why, "leave one of them out"));
            }
            (None, Some(file)) => file,
        };
        let path = source.beside(file);
        let text = key::secret(&path).map_err(|error| {
            let why = format!("the password in {} cannot be read: {error}", path.display());
            file.error(source, why, "name a file that this user may read")
        })?;
        let password = text.strip_suffix('\n').unwrap_or(&text);
        if !least::is_credential(password) {
            let why = format!("{} holds no password", path.display());
            return Err(file.error(source, why, "write it on one line of 1 to 255 bytes"));
        }
        Ok(Auth { username, password: password.to_owned() })
    }
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Auth({:?}, hidden)", self.username)
    }
}
