//! Check of the files of a pair against each other.

use std::net::SocketAddr;

use bentpipe_flow::Host;
use bentpipe_gateway::config::{AirConfig, GroundConfig, LeaseSource, Transport};

/// Reason why a differing address is not a fault.
const FORWARDED: &str = "this works only if something on the way forwards it";

/// Disagreements of two files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Reasons why the pair cannot work.
    pub faults: Vec<String>,
    /// Settings of one side that have no effect without the other, and doubts.
    pub notes: Vec<String>,
    /// Name of the aircraft in the ground's file.
    pub name: Option<String>,
}

/// Compares the files of both gateways.
pub fn compare(air: &AirConfig, ground: &GroundConfig) -> Found {
    let mut found = Found::default();
    keys(air, ground, &mut found);
    addresses(air, ground, &mut found);
    leases(air, ground, &mut found);
    services(air, ground, &mut found);
    found
}

fn keys(air: &AirConfig, ground: &GroundConfig, found: &mut Found) {
    let (expected, own) = (air.link.peer_public_key, ground.link.private_key.public());
    if expected != own {
        found.faults.push(format!(
            "peer-public-key of the air gateway is {expected}, and the ground's key is {own}"
        ));
    }
    let key = air.link.private_key.public();
    match ground.aircraft.iter().find(|aircraft| aircraft.key == key) {
        Some(aircraft) => found.name = Some(aircraft.name.clone()),
        None => found.faults.push(format!(
            "no [[aircraft]] of the ground has the air gateway's key: write public-key = \"{key}\""
        )),
    }
}

fn addresses(air: &AirConfig, ground: &GroundConfig, found: &mut Found) {
    let (transport, peer) = (air.link.transport, &air.link.peer);
    let listens = ground.link.listens().into_iter().find(|(served, _)| *served == transport);
    let Some(address) = listens.and_then(|(_, address)| address) else {
        let key = transport.listen_key();
        found.faults.push(format!(
            "the air gateway uses the transport {:?}, and the ground has no {key} under [link]",
            transport.name()
        ));
        return;
    };
    if peer.port != address.port() {
        let other = |(served, at): &(Transport, Option<SocketAddr>)| {
            *served != transport && at.is_some_and(|at| at.port() == peer.port)
        };
        let port = address.port();
        match ground.link.listens().iter().find(|one| other(one)) {
            Some((served, _)) => found.faults.push(format!(
                "peer = \"{peer}\" is the port of the ground's {}; that of the transport {:?} is {port}",
                served.listen_key(),
                transport.name()
            )),
            None => found.notes.push(format!(
                "peer = \"{peer}\" has another port than the ground, which listens on {port}: {FORWARDED}"
            )),
        }
    }
    let ip = address.ip();
    if let Host::Ip(called) = peer.host
        && !ip.is_unspecified()
        && ip != called
    {
        found.notes.push(format!(
            "peer = \"{peer}\" is another address than the ground's {ip}: {FORWARDED}"
        ));
    }
}

fn leases(air: &AirConfig, ground: &GroundConfig, found: &mut Found) {
    if air.link.transport != Transport::Link {
        return;
    }
    let divides = ground.beam.as_ref().is_some_and(|beam| beam.return_.is_some());
    match (air.link.lease, divides) {
        (LeaseSource::Granted, false) => found.faults.push(
            "lease = \"granted\" at the air gateway needs a [beam] with `return` on the ground".into(),
        ),
        (LeaseSource::Granted, true) | (_, false) => {}
        (_, true) => found.notes.push(
            "the ground divides `return` of its [beam] among aircraft with lease = \"granted\", which \
             this one has not"
                .into(),
        ),
    }
    let aircraft = ground.aircraft.iter().find(|one| one.key == air.link.private_key.public());
    let mtu = aircraft.and_then(|one| one.mtu).unwrap_or(ground.link.mtu);
    if air.link.mtu != mtu {
        found.notes.push(format!(
            "mtu is {} at the air gateway and {mtu} on the ground: the path is provisioned for one of \
             them",
            air.link.mtu
        ));
    }
}

/// Compares what both files have to switch on.
fn services(air: &AirConfig, ground: &GroundConfig, found: &mut Found) {
    let sorted = |raw: &bentpipe_gateway::config::Raw| {
        let mut numbers: Vec<u8> = raw.protocols.iter().map(|protocol| protocol.0).collect();
        numbers.sort_unstable();
        numbers
    };
    let (here, there) = (sorted(&air.raw), sorted(&ground.raw));
    let missing: Vec<String> =
        here.iter().filter(|number| !there.contains(number)).map(u8::to_string).collect();
    if !missing.is_empty() {
        found.faults.push(format!(
            "the ground refuses the IP protocols {} of the air gateway: write them under [raw] there",
            missing.join(", ")
        ));
    }
    match (&air.split_http, &ground.split_http) {
        (Some(_), None) => found.faults.push(
            "[split-http] at the air gateway needs one on the ground, which refuses it now".into(),
        ),
        (None, Some(_)) => found
            .notes
            .push("the ground has [split-http], and the air gateway does not use it".into()),
        _ => {}
    }
    for site in air.sites.iter().filter(|site| site.split_http) {
        let name = site.name.as_str();
        if ground.sites.iter().all(|other| other.name.as_str() != name) {
            found
                .faults
                .push(format!("whole pages of {name} need a [[site]] of that name on the ground"));
        }
    }
    if air.aerotcp.as_ref().map(|it| it.rtt) != ground.aerotcp.as_ref().map(|it| it.rtt)
        && air.link.transport == Transport::AeroTcp
    {
        found.faults.push("rtt under [aerotcp] differs: both describe the same satellite".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_link::SecretKey;

    fn key(byte: u8) -> SecretKey {
        SecretKey::from_bytes([byte; 32])
    }

    /// Compares a good pair after these changes of the air gateway's and the ground's file.
    fn compared(air: &[(&str, &str)], ground: &[(&str, &str)]) -> Found {
        let folder = tempfile::tempdir().unwrap();
        for (name, byte) in [("air", 1), ("ground", 2)] {
            let file = folder.path().join(format!("{name}.key"));
            crate::keys::write(&file, &key(byte).to_base64()).unwrap();
        }
        let changed = |text: String, changes: &[(&str, &str)]| {
            changes.iter().fold(text, |text, (from, to)| {
                assert!(text.contains(from), "{from}");
                text.replace(from, to)
            })
        };
        let air = changed(
            format!(
                "[link]\nprivate-key-file = \"air.key\"\npeer = \"192.0.2.7:4500\"\n\
                 peer-public-key = \"{}\"\n[listen]\nsocks5 = \"127.0.0.1:1080\"\n",
                key(2).public()
            ),
            air,
        );
        let ground = changed(
            format!(
                "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"[::]:4500\"\n\
                 [[aircraft]]\nname = \"boat-1\"\npublic-key = \"{}\"\n",
                key(1).public()
            ),
            ground,
        );
        compare(
            &AirConfig::parse(&folder.path().join("air.toml"), &air).unwrap(),
            &GroundConfig::parse(&folder.path().join("ground.toml"), &ground).unwrap(),
        )
    }

    #[test]
    fn a_good_pair_has_no_faults() {
        let found = compared(&[], &[]);
        assert_eq!(found, Found { name: Some("boat-1".into()), ..Found::default() });
    }

    #[test]
    fn each_fault_is_found() {
        let (two, three) = (key(2).public().to_string(), key(3).public().to_string());
        let one = key(1).public().to_string();
        let listen = "[listen]\n";
        for (air, ground, why) in [
            (&[(&*two, &*three)][..], &[][..], "and the ground's key is"),
            (&[], &[(&*one, &*three)], &*format!("write public-key = \"{one}\"")),
            (
                &[],
                &[("listen = \"[::]:4500\"", "masque-listen = \"[::]:4500\"")],
                "the ground has no listen under [link]",
            ),
            (
                &[(":4500", ":4433")],
                &[("[[aircraft]]", "masque-listen = \"[::]:4433\"\n[[aircraft]]")],
                "is the port of the ground's masque-listen",
            ),
            (
                &[(listen, "lease = \"granted\"\nrate = \"1 Mbit/s\"\n[listen]\n")],
                &[],
                "needs a [beam]",
            ),
            (
                &[(listen, "[raw]\nprotocols = [\"esp\", 47]\n[listen]\n")],
                &[],
                "protocols 47, 50 of",
            ),
            (&[(listen, "[split-http]\n[listen]\n")], &[], "needs one on the ground"),
        ] {
            let found = compared(air, ground);
            assert_eq!(found.faults.len(), 1, "{why}: {found:?}");
            assert!(found.faults[0].contains(why), "{why}: {found:?}");
        }
    }

    #[test]
    fn doubts_are_notes() {
        let listen = "listen = \"[::]:4500\"";
        for (air, ground, why) in [
            (&[(":4500", ":4501")][..], &[][..], "another port"),
            (&[], &[(listen, "listen = \"192.0.2.8:4500\"")], "another address"),
            (&[("[listen]\n", "mtu = 1400\n[listen]\n")], &[], "mtu is 1400"),
            (&[], &[("[[aircraft]]", "[split-http]\n[[aircraft]]")], "does not use it"),
        ] {
            let found = compared(air, ground);
            assert!(found.faults.is_empty() && found.notes.len() == 1, "{why}: {found:?}");
            assert!(found.notes[0].contains(why), "{why}: {found:?}");
        }
    }
}
