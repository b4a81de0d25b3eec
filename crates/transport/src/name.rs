//! Names of the transports.

use serde::Deserialize;

/// Transport of the flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// The radio transport.
    #[default]
    Link,
    /// HTTP/3 CONNECT.
    Masque,
    /// AeroTCP, as its paper describes it.
    #[serde(rename = "aerotcp")]
    AeroTcp,
}

impl Transport {
    /// Name in configurations and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Masque => "masque",
            Self::AeroTcp => "aerotcp",
        }
    }

    /// Setting under `[link]` of `ground.toml` with its listening address.
    pub const fn listen_key(self) -> &'static str {
        match self {
            Self::Link => "listen",
            Self::Masque => "masque-listen",
            Self::AeroTcp => "aerotcp-listen",
        }
    }
}
