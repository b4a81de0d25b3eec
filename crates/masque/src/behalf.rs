//! Flows that a hub forwards for an aircraft.

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::{AIRCRAFT_HEADER, auth::PublicKey};

/// Aircraft of a forwarded flow. Its hub asserts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behalf {
    /// Public key of the aircraft.
    pub aircraft: PublicKey,
    /// Counter of its session with the hub.
    pub session: u64,
}

impl Behalf {
    /// Aircraft of a request: the client itself, or the one that a hub names. `None` if another client
    /// names one, or the field is malformed.
    pub(crate) fn of(head: &http::Request<()>, client: PublicKey, is_hub: bool) -> Option<Self> {
        match head.headers().get(AIRCRAFT_HEADER) {
            None => Some(Self { aircraft: client, session: 0 }),
            Some(value) => value.to_str().ok().and_then(Self::read).filter(|_| is_hub),
        }
    }

    /// Value of the field.
    pub(crate) fn write(&self) -> String {
        format!("{} {}", BASE64_STANDARD.encode(self.aircraft), self.session)
    }

    /// Reads the value of the field.
    pub(crate) fn read(value: &str) -> Option<Self> {
        let (key, session) = value.split_once(' ')?;
        let aircraft = BASE64_STANDARD.decode(key).ok()?.try_into().ok()?;
        Some(Self { aircraft, session: session.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_reads_back() {
        let behalf = Behalf { aircraft: [7; 32], session: u64::MAX };
        assert_eq!(Behalf::read(&behalf.write()), Some(behalf));
        for wrong in ["", "AAAA 1", "7", " 1", "x y z"] {
            assert_eq!(Behalf::read(wrong), None, "{wrong:?}");
        }
    }
}
