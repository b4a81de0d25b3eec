//! Public networks and their providers.

use std::net::IpAddr;

use crate::address::{AddressCheck, AsTable, System, Witness};
use crate::orbit::Kind;

/// Most stays that are kept. An access that changes its address with every check fills them in 14 days.
const MAX_STAYS: usize = 10_000;

/// Checks of the public address.
#[derive(Debug, Default)]
pub struct Addresses {
    /// Stays, in order of time.
    pub stays: Vec<Stay>,
    /// Checks without an answer.
    pub failed: u64,
    /// Table that replaces the built-in one.
    table: Option<AsTable>,
}

/// A time with one public address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    /// Number of the session.
    pub session: usize,
    /// Time of the first check since the start of the session, in microseconds.
    pub since_us: u64,
    /// Wall clock at the first and the last check, in microseconds since 1970.
    pub wall_us: (i64, i64),
    /// Network of the address.
    pub network: IpAddr,
    /// Autonomous system and provider.
    pub system: Option<System>,
    /// Method of the first check.
    pub method: Witness,
    /// Checks.
    pub checks: u64,
}

impl Addresses {
    /// Sets the table by which networks are looked up again, instead of the built-in one.
    pub fn set_table(&mut self, table: AsTable) {
        self.table = Some(table);
    }

    pub(super) fn add(
        &mut self,
        session: usize,
        since_us: u64,
        wall_us: i64,
        check: &AddressCheck,
    ) {
        let Some(network) = check.network else {
            self.failed += 1;
            return;
        };
        if let Some(stay) = self
            .stays
            .last_mut()
            .filter(|stay| !check.changed && stay.session == session && stay.network == network)
        {
            stay.wall_us.1 = wall_us;
            stay.checks += 1;
            return;
        }
        if self.stays.len() == MAX_STAYS {
            return;
        }
        let system = match &self.table {
            Some(table) => table.find(network),
            None => check.system.clone(),
        };
        let (method, wall_us) = (check.method, (wall_us, wall_us));
        self.stays.push(Stay { session, since_us, wall_us, network, system, method, checks: 1 });
    }

    /// Kinds of access that the provider of that time sells; empty if that is not known.
    pub(super) fn kinds(&self, session: usize, since_us: u64) -> &[Kind] {
        let before = |stay: &&Stay| stay.session == session && stay.since_us <= since_us;
        let stay = self.stays.iter().rev().find(before);
        let provider = stay.and_then(|stay| stay.system.as_ref()?.provider());
        provider.map_or(&[], |provider| &provider.kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(network: [u8; 4], changed: bool) -> AddressCheck {
        let network = IpAddr::from(network);
        AddressCheck {
            method: Witness::Stun,
            server: "stun".into(),
            network: Some(network),
            changed,
            system: AsTable::built_in().find(network),
            failure: None,
        }
    }

    #[test]
    fn a_change_begins_a_stay() {
        let mut addresses = Addresses::default();
        addresses.add(0, 0, 100, &check([98, 97, 12, 0], false));
        addresses.add(0, 10, 110, &check([98, 97, 12, 0], false));
        addresses.add(0, 20, 120, &AddressCheck { network: None, ..check([0; 4], false) });
        addresses.add(0, 30, 130, &check([98, 97, 12, 0], true));
        addresses.add(0, 40, 140, &check([203, 0, 113, 0], true));
        let seen: Vec<_> =
            addresses.stays.iter().map(|stay| (stay.since_us, stay.wall_us, stay.checks)).collect();
        assert_eq!(seen, [(0, (100, 110), 2), (30, (130, 130), 1), (40, (140, 140), 1)]);
        assert_eq!(addresses.failed, 1);
        assert_eq!(addresses.kinds(0, 35), [Kind::Low], "Starlink until the last change");
        assert!(addresses.kinds(0, 40).is_empty() && addresses.kinds(1, 35).is_empty());
    }

    #[test]
    fn a_table_of_the_user_is_looked_up_again() {
        let mut addresses = Addresses::default();
        addresses.set_table(AsTable::parse("mine", "203.0.113.0\t203.0.113.255\t3320").unwrap());
        addresses.add(0, 0, 0, &check([203, 0, 113, 0], false));
        let system = addresses.stays[0].system.clone().unwrap();
        assert_eq!((system.asn, system.table.as_str()), (3320, "mine"));
    }
}
