//! Keys and configuration files of the gateways.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use bentpipe_gateway::config::AirConfig;
use bentpipe_link::{PublicKey, SecretKey};
use bentpipe_units::BitRate;
use rand::RngCore;

use crate::profile::Profile;
use crate::system::pair::write_private;

/// Name of the server in virtual time.
pub const SERVER_NAME: &str = "server.test";

/// Arrangement of the roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roles {
    /// The hub dials, and the aircraft knows no other.
    One,
    /// The hub dials, and the aircraft has two hubs.
    Anchored,
    /// Two hubs, and egresses elsewhere.
    Apart,
    /// The hub dials, the aircraft know no other, and their flows outlive restarts.
    Kept,
}

/// Private keys of all gateways.
pub struct Keys {
    /// Keys of the air gateways.
    pub airs: Vec<SecretKey>,
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
    /// SOCKS5 address of the first air gateway. The next ones have the next ports.
    pub socks5: SocketAddr,
    /// Network that may be dialled.
    pub allow: &'a str,
}

impl Keys {
    /// Draws the keys of this number of aircraft, and of the others.
    pub fn generate(aircraft: usize, rng: &mut impl RngCore) -> Self {
        let mut key = || SecretKey::generate(rng);
        let airs = (0..aircraft).map(|_| key()).collect();
        Self { airs, hubs: [key(), key()], egresses: [key(), key()] }
    }
}

impl Files<'_> {
    /// Writes `air-0.toml` and the next ones, `hub-0.toml`, `hub-1.toml`, `egress-0.toml`, `egress-1.toml` and their keys
    /// into `folder`.
    pub fn write(&self, folder: &Path, keys: &Keys) -> anyhow::Result<()> {
        let write = |name: &str, key: &SecretKey, text: &str| {
            write_private(&folder.join(format!("{name}.key")), &key.to_base64())?;
            write_private(&folder.join(format!("{name}.toml")), text)
        };
        let (up, down) = (&self.profile.link.return_, &self.profile.link.forward);
        let (up, down) = up.rate().zip(down.rate()).context("the link has no rate")?;
        let share = |rate: BitRate| BitRate::from_bps(rate.bps() / keys.airs.len() as u64);
        let (up, down) = (share(up).to_string(), share(down).to_string());
        for (number, key) in keys.airs.iter().enumerate() {
            write(&format!("air-{number}"), key, &self.air(number, keys, &up))?;
        }
        for which in 0..2 {
            let (name, key) = (format!("hub-{which}"), &keys.hubs[which]);
            let listen = format!("listen = \"{}\"", self.hubs[which]);
            let egresses = match self.roles {
                Roles::Apart => self.egresses(keys),
                Roles::One | Roles::Anchored | Roles::Kept => String::new(),
            };
            write(&name, key, &(self.ground(&name, &listen, (keys, &down)) + &egresses))?;
            let (name, key) = (format!("egress-{which}"), &keys.egresses[which]);
            let listen = format!("masque-listen = \"{}\"", self.egresses[which]);
            let mut text = self.ground(&name, &listen, (keys, &down));
            for hub in &keys.hubs {
                let _ = write!(text, "[[hub]]\npublic-key = \"{}\"\n", hub.public());
            }
            write(&name, key, &text)?;
        }
        Ok(())
    }

    fn air(&self, number: usize, keys: &Keys, rate: &str) -> String {
        let [first, second] =
            [0, 1].map(|hub| peer("peer-public-key", self.hubs[hub], &keys.hubs[hub].public()));
        let others = match self.roles {
            Roles::One => String::new(),
            Roles::Kept => "keep-flows = true\n".into(),
            Roles::Anchored | Roles::Apart => format!("[[hub]]\n{second}"),
        };
        let flows = 2 * super::bounds::FLOWS;
        format!(
            "[link]\nprivate-key-file = \"air-{number}.key\"\n{first}\
             rate = \"{rate}\"\n{others}\
             [listen]\nsocks5 = \"{}\"\nclients = [\"0.0.0.0/0\"]\n\
             [limits]\nmax-flows = {flows}\nmax-flows-per-passenger = {flows}\n\
             flows-per-second-per-passenger = {flows}\n",
            SocketAddr::new(self.socks5.ip(), self.socks5.port() + number as u16)
        )
    }

    fn ground(&self, name: &str, listen: &str, (keys, rate): (&Keys, &str)) -> String {
        let flows = 2 * super::bounds::FLOWS;
        let mut text = format!(
            "[link]\nprivate-key-file = \"{name}.key\"\n{listen}\n\
             [dial]\nallow = [\"{}\"]\n[dns]\nservers = [\"127.0.0.1\"]\n",
            self.allow
        );
        for (number, air) in keys.airs.iter().enumerate() {
            let _ = write!(
                text,
                "[[aircraft]]\nname = \"lab-{number}\"\npublic-key = \"{}\"\nrate = \"{rate}\"\n\
                 max-flows = {flows}\nflows-per-second = {flows}\n",
                air.public()
            );
        }
        text
    }

    /// The egresses of a hub. The first one is preferred, and not the one with the shorter dials.
    fn egresses(&self, keys: &Keys) -> String {
        let sites = format!("sites = [\"{SERVER_NAME}\", \"{}\"]\n", self.allow);
        let peer = |number: usize| {
            peer("public-key", self.egresses[number], &keys.egresses[number].public())
        };
        format!("[[egress]]\n{}{sites}[[egress]]\n{}", peer(0), peer(1))
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
