//! Keys and configuration files of the gateways.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use bentpipe_gateway::config::AirConfig;
use bentpipe_link::{PublicKey, SecretKey};
use rand::RngCore;

use crate::profile::Profile;
use crate::system::pair::write_private;

/// Arrangement of the roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roles {
    /// The hub dials, and the aircraft knows no other.
    One,
    /// The hub dials, and the aircraft has two hubs.
    Anchored,
    /// Two hubs, and egresses elsewhere.
    Apart,
}

/// Private keys of all gateways.
pub struct Keys {
    /// Key of the air gateway.
    pub air: SecretKey,
    /// Keys of the hubs.
    pub hubs: [SecretKey; 2],
    /// Keys of the egresses.
    pub egresses: [SecretKey; 2],
}

/// Contents of the files.
pub struct Files<'a> {
    /// The radio link.
    pub profile: &'a Profile,
    /// Arrangement of the roles.
    pub roles: Roles,
    /// Addresses of the hubs.
    pub hubs: [SocketAddr; 2],
    /// Addresses of the egresses.
    pub egresses: [SocketAddr; 2],
    /// SOCKS5 address of the air gateway.
    pub socks5: SocketAddr,
    /// Network that may be dialled.
    pub allow: &'a str,
}

impl Keys {
    /// Draws the keys.
    pub fn generate(rng: &mut impl RngCore) -> Self {
        let mut key = || SecretKey::generate(rng);
        Self { air: key(), hubs: [key(), key()], egresses: [key(), key()] }
    }
}

impl Files<'_> {
    /// Writes `air.toml`, `hub-0.toml`, `hub-1.toml`, `egress-0.toml`, `egress-1.toml` and their keys
    /// into `folder`.
    pub fn write(&self, folder: &Path, keys: &Keys) -> anyhow::Result<()> {
        let write = |name: &str, key: &SecretKey, text: &str| {
            write_private(&folder.join(format!("{name}.key")), &key.to_base64())?;
            write_private(&folder.join(format!("{name}.toml")), text)
        };
        let (up, down) = (&self.profile.link.return_, &self.profile.link.forward);
        let (up, down) = up.rate().zip(down.rate()).context("the link has no rate")?;
        write("air", &keys.air, &self.air(keys, &up.to_string()))?;
        for which in 0..2 {
            let (air, down) = (keys.air.public(), down.to_string());
            let (name, key) = (format!("hub-{which}"), &keys.hubs[which]);
            let listen = format!("listen = \"{}\"", self.hubs[which]);
            let egresses = match self.roles {
                Roles::Apart => self.list("egress", "public-key", &self.egresses, &keys.egresses),
                Roles::One | Roles::Anchored => String::new(),
            };
            write(&name, key, &(self.ground(&name, &listen, (&air, &down)) + &egresses))?;
            let (name, key) = (format!("egress-{which}"), &keys.egresses[which]);
            let listen = format!("masque-listen = \"{}\"", self.egresses[which]);
            let mut text = self.ground(&name, &listen, (&air, &down));
            for hub in &keys.hubs {
                let _ = write!(text, "[[hub]]\npublic-key = \"{}\"\n", hub.public());
            }
            write(&name, key, &text)?;
        }
        Ok(())
    }

    fn air(&self, keys: &Keys, rate: &str) -> String {
        let [first, second] =
            [0, 1].map(|hub| peer("peer-public-key", self.hubs[hub], &keys.hubs[hub].public()));
        let others = match self.roles {
            Roles::One => String::new(),
            Roles::Anchored | Roles::Apart => format!("[[hub]]\n{second}"),
        };
        let flows = 2 * super::bounds::FLOWS;
        format!(
            "[link]\nprivate-key-file = \"air.key\"\n{first}\
             rate = \"{rate}\"\n{others}\
             [listen]\nsocks5 = \"{}\"\nclients = [\"0.0.0.0/0\"]\n\
             [limits]\nmax-flows = {flows}\nmax-flows-per-passenger = {flows}\n\
             flows-per-second-per-passenger = {flows}\n",
            self.socks5
        )
    }

    fn ground(&self, name: &str, listen: &str, (air, rate): (&PublicKey, &str)) -> String {
        let flows = 2 * super::bounds::FLOWS;
        format!(
            "[link]\nprivate-key-file = \"{name}.key\"\n{listen}\n\
             [dial]\nallow = [\"{}\"]\n[dns]\nservers = [\"127.0.0.1\"]\n\
             [[aircraft]]\nname = \"lab\"\npublic-key = \"{air}\"\nrate = \"{rate}\"\n\
             max-flows = {flows}\nflows-per-second = {flows}\n",
            self.allow
        )
    }

    fn list(
        &self,
        table: &str,
        key: &str,
        peers: &[SocketAddr; 2],
        keys: &[SecretKey; 2],
    ) -> String {
        let each = peers.iter().zip(keys);
        each.map(|(at, secret)| format!("[[{table}]]\n{}", peer(key, *at, &secret.public())))
            .collect()
    }
}

fn peer(key_name: &str, address: SocketAddr, key: &PublicKey) -> String {
    format!("peer = \"{address}\"\n{key_name} = \"{key}\"\n")
}

/// The air's configuration for a call to each of its hubs.
pub fn of_each_hub(config: &AirConfig) -> Vec<AirConfig> {
    let mut all = vec![config.clone()];
    all.extend(config.hubs.iter().map(|hub| {
        let mut other = config.clone();
        (other.link.peer, other.link.peer_public_key) = (hub.peer.clone(), hub.public_key);
        other
    }));
    all
}
