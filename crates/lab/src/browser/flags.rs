//! Chromium flags that make it load the lab's sites over exactly one protocol.

use crate::loader::Protocol;
use crate::site::Site;

/// Browsers cannot be restricted to this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Chromium cannot be made to load a page over {0} only")]
pub struct NotInBrowsers(&'static str);

/// Chromium's flags for `site`: the addresses of its names, the hash of the key that signs its
/// certificates (`key_hash`, from [`Authority`](crate::site::Authority)), and the allowed protocol.
pub fn flags(
    site: &Site,
    protocol: Protocol,
    key_hash: &str,
) -> Result<Vec<String>, NotInBrowsers> {
    let hosts = site.hosts();
    let maps: Vec<String> =
        hosts.iter().map(|(name, address)| format!("MAP {name} {address}")).collect();
    let mut flags = vec![
        format!("--host-resolver-rules={}", maps.join(", ")),
        format!("--ignore-certificate-errors-spki-list={key_hash}"),
        // Requests in plain HTTP stay in plain HTTP.
        "--disable-features=HttpsUpgrades,HttpsFirstBalancedModeAutoEnable".to_owned(),
    ];
    match protocol {
        Protocol::Http1 | Protocol::Http2 => flags.push("--disable-quic".to_owned()),
        Protocol::Http1Tls => {
            flags.extend(["--disable-quic".to_owned(), "--disable-http2".to_owned()]);
        }
        Protocol::Http3 => {
            let all: Vec<String> = hosts.iter().map(|(name, _)| format!("{name}:443")).collect();
            flags.push(format!("--origin-to-force-quic-on={}", all.join(",")));
        }
        other => return Err(NotInBrowsers(other.name())),
    }
    Ok(flags)
}
