//! `[listen]` of `air.toml`: listeners for clients.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use serde::Deserialize;

use super::{ConfigError, Quic, Source, applies, key, least};

/// Listeners for clients.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Listen {
    /// SOCKS5 (RFC 1928).
    pub socks5: Option<SocketAddr>,
    /// HTTP CONNECT and absolute-form requests.
    pub http_proxy: Option<SocketAddr>,
    /// Transparent interception.
    pub tproxy: Option<Tproxy>,
    /// `"carry"` or `"reject"`: treatment of the clients' QUIC.
    #[serde(default)]
    pub quic: Quic,
    /// Credentials of SOCKS5 and HTTP clients.
    pub auth: Option<Auth>,
    /// Networks of SOCKS5 and HTTP clients; empty for any. Clients on this machine are always
    /// accepted.
    #[serde(default)]
    pub clients: Vec<IpNet>,
}

/// Maximum number of intercepted interfaces: each needs an nftables rule and two policy routing
/// rules.
const MAX_INTERFACES: usize = 64;

/// Transparent interception by nftables.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tproxy {
    /// Local port to which intercepted connections are redirected.
    pub port: u16,
    /// Interfaces that clients are connected to.
    pub interfaces: Vec<toml::Spanned<String>>,
    /// `true` drops packets that are not carried, even while the gateway is stopped.
    #[serde(default)]
    pub fail_closed: bool,
}

/// Credentials for the proxies.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Auth {
    /// At most 255 bytes, as RFC 1929 allows.
    #[serde(deserialize_with = "least::credential")]
    pub username: String,
    /// At most 255 bytes, as RFC 1929 allows.
    #[serde(default, deserialize_with = "least::credential")]
    pub password: String,
    /// File that contains the password, as an alternative to `password`.
    pub password_file: Option<toml::Spanned<PathBuf>>,
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
        let place = applies::place_of(source, "listen", key)?;
        Err(ConfigError::at(source, place, why, help.to_owned()))
    }

    pub(super) fn check(&mut self, source: &Source<'_>) -> Result<(), ConfigError> {
        if let Some(auth) = &mut self.auth {
            auth.check(source)?;
        }
        if self.socks5.is_none() && self.http_proxy.is_none() && self.tproxy.is_none() {
            let why = "nothing to listen on".to_owned();
            let help = "write at least one of socks5 = \"127.0.0.1:1080\", \
                        http-proxy = \"127.0.0.1:8080\", \
                        tproxy = { port = 1081, interfaces = [\"eth1\"] } under [listen]";
            return Err(ConfigError::at(source, None, why, help.to_owned()));
        }
        self.tproxy.as_ref().map_or(Ok(()), |tproxy| tproxy.check(source))?;
        let intercepts = |it: &Tproxy| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), it.port);
        let addresses = [
            ("socks5", self.socks5),
            ("http-proxy", self.http_proxy),
            ("tproxy", self.tproxy.as_ref().map(intercepts)),
        ];
        source.listen_apart("listen", &addresses)?;
        self.check_open(source)?;
        match &self.auth {
            Some(auth) if self.http_proxy.is_some() && auth.username.contains(':') => {
                let why = "a user's name in HTTP ends at the first colon (RFC 7617)".to_owned();
                let help = "write a username without a colon, or leave out http-proxy".to_owned();
                let place = applies::place_of(source, "listen", "auth")?;
                Err(ConfigError::at(source, place, why, help))
            }
            _ => Ok(()),
        }
    }
}

impl Tproxy {
    fn check(&self, source: &Source<'_>) -> Result<(), ConfigError> {
        if self.port == 0 || self.interfaces.is_empty() {
            let why = "transparent interception needs a port and an interface".to_owned();
            let help = "write tproxy = { port = 1081, interfaces = [\"eth1\"] }".to_owned();
            let place = applies::place_of(source, "listen", "tproxy")?;
            return Err(ConfigError::at(source, place, why, help));
        }
        if self.interfaces.len() > MAX_INTERFACES {
            let why = format!("more than {MAX_INTERFACES} interfaces");
            let help = "name a bridge of them".to_owned();
            let place = applies::place_of(source, "listen", "tproxy")?;
            return Err(ConfigError::at(source, place, why, help));
        }
        for name in &self.interfaces {
            let text = name.get_ref();
            source.interface_name(name, "interfaces = [\"eth1\"]")?;
            if text == "lo" {
                let why = "intercepting \"lo\" would catch this machine's own connections";
                let help = "name the interface the clients come in by: interfaces = [\"eth1\"]";
                return Err(ConfigError::at(source, Some(name.span()), why.into(), help.into()));
            }
        }
        Ok(())
    }
}

impl Auth {
    /// Reads the password if it is in a file.
    fn check(&mut self, source: &Source<'_>) -> Result<(), ConfigError> {
        let Some(file) = &self.password_file else {
            if self.password.is_empty() {
                let why = "the setting \"password\" is missing".to_owned();
                let help = "write password = \"…\", or password-file = \"FILE\"".to_owned();
                let place = applies::place_of(source, "listen", "auth")?;
                return Err(ConfigError::at(source, place, why, help));
            }
            return Ok(());
        };
        let wrong = |why: String, help: &str| {
            Err(ConfigError::at(source, Some(file.span()), why, help.to_owned()))
        };
        if !self.password.is_empty() {
            return wrong(
                "there is a password beside this file".to_owned(),
                "leave one of them out",
            );
        }
        let path = source.beside(file.get_ref());
        let text = match key::secret(&path) {
            Ok(text) => text,
            Err(error) => {
                let why = format!("the password in {} cannot be read: {error}", path.display());
                return wrong(why, "name a file that this user may read");
            }
        };
        let password = text.strip_suffix('\n').unwrap_or(&text);
        match least::is_credential(password) {
            true => self.password = password.to_owned(),
            false => {
                let why = format!("{} holds no password", path.display());
                return wrong(why, "write it on one line of 1 to 255 bytes");
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Auth({:?}, hidden)", self.username)
    }
}
