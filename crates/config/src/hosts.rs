//! `[hosts]` of `ground.toml`: names that the ground gateway resolves itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bentpipe_flow::Host;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ConfigError, Source, applies};

/// Addresses of a name in `[hosts]`: one address or a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected an address or a list of addresses: \"192.0.2.7\"")]
pub enum HostAddresses {
    /// One address.
    One(IpAddr),
    /// Several addresses, in the order to try them.
    Many(Vec<IpAddr>),
}

impl HostAddresses {
    /// Returns the addresses in the order to try them.
    pub fn as_slice(&self) -> &[IpAddr] {
        match self {
            Self::One(ip) => std::slice::from_ref(ip),
            Self::Many(ips) => ips,
        }
    }
}

/// Rejects names that cannot be queried and addresses that cannot be reached.
pub(super) fn check(
    hosts: &BTreeMap<String, HostAddresses>,
    source: &Source<'_>,
) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for (name, addresses) in hosts {
        let addresses = addresses.as_slice();
        let nowhere = addresses.iter().find(|ip| ip.is_unspecified() || ip.is_multicast());
        let (why, help) = if !matches!(name.parse(), Ok(Host::Name(_))) {
            let help = "write a host's name, of letters, digits, '-', '_' and dots";
            (format!("nobody can ask for {name:?}"), help)
        } else if addresses.is_empty() {
            let help = "write its addresses, or leave the name out";
            (format!("{name:?} has no address"), help)
        } else if let Some(ip) = nowhere {
            (format!("nothing can be reached at {ip}"), "write the address of a host")
        } else if !seen.insert(plain(name)) {
            let help = "write its addresses as one list: case and a dot at the end do not count";
            (format!("{name:?} is there twice"), help)
        } else {
            continue;
        };
        let place = applies::place_of(source, "hosts", name)?;
        return Err(ConfigError::at(source, place, why, help));
    }
    Ok(())
}

/// Normalizes a name as the resolver does for comparison.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::GroundConfig;

    /// Error message for a file that lacks only the key.
    fn said(hosts: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.key"), "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
            .unwrap();
        let text = format!(
            "[link]\nprivate-key-file = \"a.key\"\nlisten = \"[::]:4500\"\n[hosts]\n{hosts}\n"
        );
        match GroundConfig::parse(&folder.path().join(Path::new("g.toml")), &text) {
            Ok(_) => "no errors".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn names_can_be_asked_for_and_lead_somewhere() {
        for (hosts, why) in [
            ("\"a b\" = \"192.0.2.7\"", "line 5: nobody can ask for \"a b\""),
            ("\"\" = \"192.0.2.7\"", "nobody can ask for \"\""),
            ("\"a..b\" = \"192.0.2.7\"", "nobody can ask for \"a..b\""),
            ("\"*.test\" = \"192.0.2.7\"", "nobody can ask for \"*.test\""),
            ("\"192.0.2.1\" = \"192.0.2.7\"", "nobody can ask for \"192.0.2.1\""),
            ("\"a.test\" = []", "line 5: \"a.test\" has no address"),
            ("\"a.test\" = [\"192.0.2.7\", \"::\"]", "nothing can be reached at ::"),
            ("\"a.test\" = \"224.0.0.1\"", "nothing can be reached at 224.0.0.1"),
            (
                "\"A.test\" = \"192.0.2.7\"\n\"a.test.\" = \"192.0.2.8\"",
                "line 6: \"a.test.\" is there",
            ),
        ] {
            let found = said(hosts);
            assert!(found.contains(why), "{hosts}: {found}");
        }
        assert_eq!(said("\"a_b.test\" = \"192.0.2.7\"\nlocalhost = [\"::1\"]"), "no errors");
    }
}
