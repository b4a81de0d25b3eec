//! Configuration files of the gateways under attack. All limits have their defaults; only memory is
//! configured.

use std::net::Ipv4Addr;

use bentpipe_link::SecretKey;
use bentpipe_units::BitRate;

use super::Attack;
use crate::emu::{AIR_CABIN, DEVICE_INTERFACE, GROUND, SERVER};
use crate::profile::Profile;

/// Names of the gateways' status files.
pub const STATUS_FILES: [&str; 2] = ["air-status.json", "ground-status.json"];
/// Port of the origin behind the operator's own site.
pub const ORIGIN_PORT: u16 = 8081;
/// Name of the operator's own site.
pub const SITE_NAME: &str = "site.test";

/// Network of the fake-IP addresses: a /15.
pub const INSTANT_NETWORK: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);

const MIB: u64 = 1 << 20;
/// Memory of a session at either end, for `[link.memory]`.
const RECEIVE_MIB: u64 = 128;
const SEND_MIB: u64 = 64;
const CODE_MIB: u64 = 16;
/// Memory of a session for datagrams, which is not configurable.
const DATAGRAMS_MIB: u64 = 20;
/// Memory of the air's HTTP cache, and of its DNS cache, from the file.
const CACHE_MIB: u64 = 64;
const NAMES_MIB: u64 = 16;
/// Default maximum of an aircraft's TCP and UDP flows together.
const FLOWS: u64 = 2 * 4096;
/// Memory of a flow in addition to the session's: the buffers of a relay, of a request, and of TLS.
const FLOW_KIB: u64 = 24;
/// Memory of the program itself, with its threads and its allocator.
const PROGRAM_MIB: u64 = 64;

/// Upper bound of the resident memory of the air and of the ground:
///
/// | | air | ground |
/// |---|---|---|
/// | session: received, to send, repair packets, datagrams | 228 MiB | 228 MiB |
/// | HTTP cache and DNS cache | 80 MiB | |
/// | 8,192 flows × 24 KiB | 192 MiB | 192 MiB |
/// | program | 64 MiB | 64 MiB |
pub const BOUND_BYTES: [u64; 2] = {
    let session = RECEIVE_MIB + SEND_MIB + CODE_MIB + DATAGRAMS_MIB;
    let both = (session + PROGRAM_MIB) * MIB + FLOWS * FLOW_KIB * 1024;
    [both + (CACHE_MIB + NAMES_MIB) * MIB, both]
};

/// Private keys of both gateways.
pub struct Keys {
    /// Key of the air gateway.
    pub air: SecretKey,
    /// Key of the ground gateway.
    pub ground: SecretKey,
}

/// Configuration file of the air gateway.
pub fn air(attack: Attack, profile: &Profile, keys: &Keys) -> String {
    let instant = if attack == Attack::InstantPool {
        format!("cache-file = \"names\"\n[dns.instant-names]\nv4 = \"{INSTANT_NETWORK}/15\"\n")
    } else {
        String::new()
    };
    format!(
        "[link]\nprivate-key-file = \"air.key\"\npeer = \"{}:4500\"\npeer-public-key = \"{}\"\n\
         rate = \"{} bit/s\"\n{}\n\
         [listen]\ntproxy = {{ port = 1081, interfaces = [\"cabin\", \"{DEVICE_INTERFACE}\"] }}\n\n\
         [http-cache]\nmemory = \"{CACHE_MIB} MiB\"\n\n\
         [[site]]\nname = \"{SITE_NAME}\"\ncertificate = \"site.pem\"\nkey = \"site.key\"\n\
         origin = \"http://{}:{ORIGIN_PORT}\"\n\n\
         {}\n[dns]\nlisten = [\"{}:53\"]\nmemory = \"{NAMES_MIB} MiB\"\n{instant}",
        GROUND.v4,
        keys.ground.public(),
        rate(profile.link.return_.rate()),
        memory(),
        SERVER.v4,
        status(0),
        AIR_CABIN.v4,
    )
}

/// Configuration file of the ground gateway.
pub fn ground(profile: &Profile, keys: &Keys) -> String {
    format!(
        "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"{}:4500\"\n{}\n\
         [[aircraft]]\nname = \"lab\"\npublic-key = \"{}\"\nrate = \"{} bit/s\"\n\n\
         [dial]\nallow = [\"{}/32\", \"{}/128\"]\n\n{}\n[dns]\nservers = [\"{}\"]\n",
        GROUND.v4,
        memory(),
        keys.air.public(),
        rate(profile.link.forward.rate()),
        SERVER.v4,
        SERVER.v6,
        status(1),
        SERVER.v4,
    )
}

fn memory() -> String {
    format!(
        "memory = {{ receive = \"{RECEIVE_MIB} MiB\", send = \"{SEND_MIB} MiB\", code = \"{CODE_MIB} MiB\" }}\n"
    )
}

fn status(gateway: usize) -> String {
    format!("[status]\nfile = \"{}\"\ninterval = \"1 s\"\n", STATUS_FILES[gateway])
}

/// Rate in bit/s. The command accepts only links with a rate.
fn rate(rate: Option<BitRate>) -> u64 {
    rate.map_or(1, BitRate::bps)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::system::pair::new_key;
    use bentpipe_gateway::config::{AirConfig, GroundConfig};

    #[test]
    fn the_gateways_take_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys { air: new_key().unwrap(), ground: new_key().unwrap() };
        let made = rcgen::generate_simple_self_signed([SITE_NAME.to_owned()]).unwrap();
        for (name, text) in [
            ("air.key", keys.air.to_base64()),
            ("ground.key", keys.ground.to_base64()),
            ("site.pem", made.cert.pem()),
            ("site.key", made.signing_key.serialize_pem()),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let profile = Profile::named(crate::experiment::attacks::DEFAULT_PROFILE).unwrap();
        for attack in Attack::ALL {
            let text = air(attack, &profile, &keys);
            let air = AirConfig::parse(&folder.path().join("air.toml"), &text).unwrap();
            let names = air.dns.unwrap().instant_names;
            assert_eq!(names.is_some(), attack == Attack::InstantPool);
        }
        let text = ground(&profile, &keys);
        GroundConfig::parse(&folder.path().join("ground.toml"), &text).unwrap();
    }
}
