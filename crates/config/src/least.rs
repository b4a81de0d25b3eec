//! Rejects values that parse but cannot work, for example limits of zero.

use bentpipe_flow::{Host, Target};
use bentpipe_link::{MIN_MTU_BYTES, MIN_RATE, MIN_SESSION_LIFETIME};
use bentpipe_units::{BitRate, ByteSize, Span};
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer};

use super::Placed;
use super::placed::placed_text;

/// Maximum length of an IP packet.
const MAX_MTU_BYTES: usize = 65_535;

/// Minimum memory for all sessions: two lanes' windows of 1 MiB for each of eight aircraft.
const MIN_TOTAL_MEMORY: ByteSize = ByteSize::from_bytes(16 << 20);

/// Minimum volume of a radio in a day: eight of the smallest parts that are reserved at once.
const MIN_DAILY_LIMIT: ByteSize = ByteSize::from_bytes(256 << 10);

/// A count of at least one.
pub fn one<'de, N, D>(from: D) -> Result<N, D::Error>
where
    N: Deserialize<'de> + PartialEq + From<u8>,
    D: Deserializer<'de>,
{
    let number = N::deserialize(from)?;
    if number == N::from(0) {
        return Err(D::Error::custom("0 would let nothing through: write 1 or more"));
    }
    Ok(number)
}

/// A rate at which the link works.
pub fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<BitRate, D::Error> {
    let rate = BitRate::deserialize(from)?;
    if rate < MIN_RATE {
        return Err(D::Error::custom(format!(
            "a rate of {rate} is too low: the link works from {MIN_RATE} on"
        )));
    }
    Ok(rate)
}

/// Maximum length of an IP packet, bytes.
pub fn mtu<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let mtu = usize::deserialize(from)?;
    if !(MIN_MTU_BYTES..=MAX_MTU_BYTES).contains(&mtu) {
        return Err(D::Error::custom(format!(
            "an mtu of {mtu} bytes is not one of an IP link: write {MIN_MTU_BYTES} to \
             {MAX_MTU_BYTES}, or leave it out for 1500"
        )));
    }
    Ok(mtu)
}

/// [`rate`] of one radio of several.
pub fn path_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<BitRate>, D::Error> {
    rate(from).map(Some)
}

/// [`mtu`] of one aircraft or one radio.
pub fn aircraft_mtu<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    mtu(from).map(Some)
}

/// Bytes that a radio may carry in a day.
pub fn daily_limit<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ByteSize>, D::Error> {
    let size = ByteSize::deserialize(from)?;
    if size < MIN_DAILY_LIMIT {
        return Err(D::Error::custom(format!(
            "{size} a day are soon used up by handshakes and keep-alives: write \"{MIN_DAILY_LIMIT}\" \
             or more, or leave the radio out"
        )));
    }
    Ok(Some(size))
}

/// A duration greater than zero.
pub fn moment<'de, D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
    let span = Span::deserialize(from)?;
    if span.duration().is_zero() {
        return Err(D::Error::custom(
            "no time at all would end everything at once: write \"10 s\", say",
        ));
    }
    Ok(span)
}

/// Silence after which a session ends; at least the minimum.
pub fn session_lifetime<'de, D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
    let span = Span::deserialize(from)?;
    if span.duration() < MIN_SESSION_LIFETIME {
        return Err(D::Error::custom(format!(
            "sessions that end after {span} of silence do not survive a short outage: write \
             \"1 min\" or more"
        )));
    }
    Ok(span)
}

/// Memory for all sessions.
pub fn total_memory<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ByteSize>, D::Error> {
    let size = ByteSize::deserialize(from)?;
    if size < MIN_TOTAL_MEMORY {
        return Err(D::Error::custom(format!(
            "{size} for all sessions is too little for one download over a satellite: write \
             \"{MIN_TOTAL_MEMORY}\" or more"
        )));
    }
    Ok(Some(size))
}

/// A non-empty list.
pub fn some<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let list = Vec::deserialize(from)?;
    if list.is_empty() {
        return Err(D::Error::custom(
            "an empty list does nothing: write what should be in it, or leave out its table",
        ));
    }
    Ok(list)
}

/// Maximum length of a proxy client's username or password, in bytes (RFC 1929).
const MAX_CREDENTIAL_BYTES: usize = 255;

/// Returns whether a proxy client can send `text` as a credential.
pub fn is_credential(text: &str) -> bool {
    (1..=MAX_CREDENTIAL_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// A username or password that a proxy client can send.
#[derive(schemars::JsonSchema)]
pub struct Credential(pub String);

impl<'de> Deserialize<'de> for Credential {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if !is_credential(&text) {
            let bytes = text.len();
            // The text is a secret and is not shown.
            return Err(D::Error::custom(format!(
                "{bytes} bytes that no client could say here: write 1 to {MAX_CREDENTIAL_BYTES} without \
                 control characters, or leave out auth to let everybody in"
            )));
        }
        Ok(Self(text))
    }
}

/// Maximum length of an aircraft's name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// A name that is safe to log: it contains no control characters, which could move a terminal's
/// cursor.
pub fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(D::Error::custom(format!(
            "{name:?} cannot be a name: write 1 to {MAX_NAME_BYTES} bytes without control characters"
        )));
    }
    Ok(name)
}

/// [`name`] with its position in the file.
pub fn placed_name<'de, D: Deserializer<'de>>(from: D) -> Result<Placed<String>, D::Error> {
    let placed = Placed::<String>::deserialize(from)?;
    placed.try_map(|name| self::name(name.into_deserializer()))
}

/// Target to which packets can be sent.
pub fn somewhere<'de, D: Deserializer<'de>>(from: D) -> Result<Target, D::Error> {
    reachable(super::from_text(from)?)
}

/// As [`somewhere`], with the position in the file.
pub fn placed_somewhere<'de, D: Deserializer<'de>>(from: D) -> Result<Placed<Target>, D::Error> {
    placed_text::<D, Target>(from)?.try_map(reachable)
}

fn reachable<E: Error>(target: Target) -> Result<Target, E> {
    let nowhere = matches!(target.host, Host::Ip(ip) if ip.is_unspecified());
    if target.port == 0 || nowhere {
        return Err(E::custom(format!(
            "nothing can be sent to {target}: write the address and port that the ground listens at"
        )));
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use crate::{AirConfig, GroundConfig};
    use std::path::Path;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    /// Error message for a file that lacks only the key, which is checked last.
    fn air(peer: &str, limits: &str) -> String {
        let text = format!(
            "[link]\nprivate-key-file = \"no.key\"\npeer = \"{peer}\"\npeer-public-key = \"{KEY}\"\n\
             rate = \"1 Mbit/s\"\n[listen]\nsocks5 = \"127.0.0.1:1080\"\n[limits]\n{limits}\n"
        );
        AirConfig::parse(Path::new("air.toml"), &text).unwrap_err().to_string()
    }

    fn ground(aircraft: &str, rest: &str) -> String {
        let text = format!(
            "[link]\nprivate-key-file = \"no.key\"\nlisten = \"[::]:4500\"\n[[aircraft]]\n{aircraft}\n\
             public-key = \"{KEY}\"\nrate = \"1 Mbit/s\"\n{rest}\n"
        );
        GroundConfig::parse(Path::new("ground.toml"), &text).unwrap_err().to_string()
    }

    #[test]
    fn limits_let_something_through() {
        for line in ["max-flows = 0", "max-flows-per-passenger = 0"] {
            let said = air("hub.example:4500", line);
            assert!(said.contains("line 9") && said.contains("write 1 or more"), "{said}");
        }
        for line in ["handshake-timeout", "idle-timeout", "stall-timeout", "answer-timeout"] {
            let said = air("hub.example:4500", &format!("{line} = \"0 s\""));
            assert!(said.contains("line 9") && said.contains("no time at all"), "{said}");
        }
        let drains_at_once = air("hub.example:4500", "drain-timeout = \"0 s\"");
        assert!(drains_at_once.contains("no.key"), "{drains_at_once}");
        for (aircraft, rest) in [
            ("name = \"D\"\nmax-flows = 0", ""),
            ("name = \"D\"\nflows-per-second = 0", ""),
            ("name = \"D\"", "[limits]\nmax-flows = 0"),
        ] {
            let said = ground(aircraft, rest);
            assert!(said.contains("write 1 or more"), "{said}");
        }
        let said = ground("name = \"D\"", "[dial]\nconnect-timeout = \"0 s\"");
        assert!(said.contains("no time at all"), "{said}");
    }

    #[test]
    fn clients_can_say_who_they_are() {
        let long = "x".repeat(256);
        for (name, password) in [("", "p"), ("n", ""), ("n", &*long), ("a\\nb", "p")] {
            let auth = format!(
                "answer-timeout = \"3 min\"\n[listen.auth]\nusername = \"{name}\"\npassword = \"{password}\""
            );
            let said = air("hub.example:4500", &auth);
            let line = if password == "p" { "line 11" } else { "line 12" };
            assert!(said.contains(line) && said.contains("no client could say"), "{said}");
        }
    }

    #[test]
    fn idle_times_pass_and_lists_hold_something() {
        for line in ["[limits.udp]\nidle-timeout", "[limits.udp]\ndns-idle-timeout"] {
            let said = air("hub.example:4500", &format!("{line} = \"0 s\""));
            assert!(said.contains("line 10") && said.contains("no time at all"), "{said}");
        }
        for line in ["idle-timeout", "raw-idle-timeout"] {
            let said = ground("name = \"D\"", &format!("[limits.ip]\n{line} = \"0 s\""));
            assert!(said.contains("line 9") && said.contains("no time at all"), "{said}");
        }
        let said = ground("name = \"D\"", "[raw]\nprotocols = []");
        assert!(said.contains("line 9") && said.contains("leave out its table"), "{said}");
    }

    #[test]
    fn the_peer_is_somewhere() {
        for peer in ["127.0.0.1:0", "0.0.0.0:4500", "[::]:4500", "hub.example:0"] {
            let said = air(peer, "");
            assert!(said.contains("line 3") && said.contains("nothing can be sent to"), "{said}");
        }
    }

    #[test]
    fn names_are_safe_to_show() {
        for name in ["", "a\\nb", "\\u001b[31m", &"n".repeat(65)] {
            let said = ground(&format!("name = \"{name}\""), "");
            assert!(said.contains("line 5") && said.contains("cannot be a name"), "{said}");
            assert!(!said.contains('\u{1b}'), "{said:?}");
        }
        assert!(ground(&format!("name = \"{}\"", "n".repeat(64)), "").contains("no.key"));
    }
}
