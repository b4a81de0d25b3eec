//! `[dns]` of `ground.toml`: the name servers.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use bentpipe_prefetch::plan::NameList;
use bentpipe_units::BitRate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::from_text;
use super::split_http::names;

/// Name servers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Dns {
    /// Name servers; on-board resolvers use the first three of them. Empty: those of the system.
    #[schemars(
        with = "Vec<String>",
        title = "list of addresses, default port 53",
        extend("default" = [])
    )]
    pub servers: Vec<NameServer>,
    /// Send rate for an aircraft's usual names, if it asks by `warm-start`. Without it nothing is
    /// counted or sent.
    pub push_rate: Option<BitRate>,
    /// Name servers whose flag AD (authentic data) is passed on; servers on this machine always
    /// count. Only name servers that nobody in between can imitate.
    #[schemars(title = "list of addresses")]
    pub trusted: Vec<IpAddr>,
    /// Treatment of a name server's answer with a private, shared, link-local or loopback address
    /// that `[dial] allow` does not name: it is dropped or passed
    /// (docs/dns.md#protection-against-dns-rebinding).
    pub private: PrivateAddresses,
    /// Names that may have such addresses, each with all names below it; at most 4096.
    #[serde(deserialize_with = "names")]
    #[schemars(with = "Vec<String>", title = "list of names", extend("default" = []))]
    pub private_names: NameList,
}

/// Treatment of an answer with a private address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PrivateAddresses {
    /// Withholds the answer: the aircraft gets an empty one with the error "Blocked".
    #[default]
    Drop,
    /// Passes the address on.
    Pass,
}

/// A name server: `"9.9.9.9"` or `"127.0.0.1:5353"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameServer(pub SocketAddr);

impl<'de> Deserialize<'de> for NameServer {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from_text(from)
    }
}

impl FromStr for NameServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53));
        let address = bare.or_else(|_| text.parse()).ok().filter(|address| address.port() != 0);
        address.map(Self).ok_or_else(|| {
            format!("{text:?} is not the address of a name server: write it like \"9.9.9.9\"")
        })
    }
}
