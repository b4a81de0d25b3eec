//! Descriptors: the number of clients' connections that fits into the process's limit.
//!
//! A connection takes one descriptor; if SOCKS5 is served, a second one for its datagrams. Flows of
//! UDP and of other protocols share sockets.

use bentpipe_config::AirConfig;
use bentpipe_net::descriptors::{self, Pool};

/// Number of clients' connections that fits.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// Connections of all passengers.
    pub connections: usize,
    /// Connections that wait until their client's device is known.
    pub unknown: usize,
    /// Warning, if a limit is lower than configured.
    pub shortage: Option<String>,
}

/// Maximum number of connections that wait until their client's device is known: half of the
/// descriptors reserved by [`descriptors::reserved`].
const MAX_UNKNOWN: usize = 256;

impl Fitted {
    /// Limits of `config` for this process. Logs a warning about a limit that is lowered.
    pub fn of_process(config: &AirConfig) -> Self {
        let fitted = Self::of(config, descriptors::descriptor_limit());
        if let Some(shortage) = &fitted.shortage {
            tracing::warn!("{shortage}");
        }
        fitted
    }

    /// Limits of `config` for a process that may open `limit` descriptors.
    pub fn of(config: &AirConfig, limit: usize) -> Self {
        let reserved = descriptors::reserved(limit);
        let each = if config.listen.socks5.is_some() { 2 } else { 1 };
        let wanted = Pool { name: "limits.max-flows", most: config.limits.max_flows, each };
        let fitted = descriptors::fit([wanted], limit - reserved);
        Self {
            connections: fitted[0].most,
            unknown: MAX_UNKNOWN.min(reserved / 2),
            shortage: descriptors::shortage(&[wanted], &fitted, limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socks_needs_a_second_descriptor_for_a_connection() {
        let fitted = |listen: &str, limit| {
            let folder = tempfile::tempdir().unwrap();
            let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
            std::fs::write(folder.path().join("a.key"), key).unwrap();
            let text = format!(
                "[link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:4500\"\n\
                 peer-public-key = \"{key}\"\nrate = \"1 Mbit/s\"\n[listen]\n{listen}\n"
            );
            let config = AirConfig::parse(&folder.path().join("air.toml"), &text).unwrap();
            Fitted::of(&config, limit)
        };
        let (proxy, socks) = ("http-proxy = \"127.0.0.1:0\"", "socks5 = \"127.0.0.1:0\"");
        for (listen, limit, connections, unknown) in [
            (proxy, 1_024, 512, 256),
            (socks, 1_024, 256, 256),
            (socks, 256, 64, 64),
            (socks, 8_703, 4_095, 256),
            (socks, 8_704, 4_096, 256),
        ] {
            let fitted = fitted(listen, limit);
            assert_eq!((fitted.connections, fitted.unknown), (connections, unknown), "{limit}");
            assert_eq!(fitted.shortage.is_some(), connections < 4_096, "{limit}");
        }
    }
}
