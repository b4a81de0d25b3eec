//! Public networks and their providers.

use std::net::IpAddr;

use crate::address::{AddressCheck, AsTable, System, Witness};
use crate::orbit::Kind;
use crate::target::Family;

/// Maximum number of stays that are kept. An access that changes its address with every check fills them in 14 days.
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

impl Stay {
    fn family(&self) -> Family {
        Family::of(self.network)
    }
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
        let family = Family::of(network);
        let last = self.stays.iter_mut().rev().take_while(|stay| stay.session == session);
        if let Some(stay) = last
            .filter(|stay| stay.family() == family)
            .take(1)
            .find(|stay| !check.changed && stay.network == network)
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
        let provider = |family| {
            let before = |stay: &&Stay| {
                stay.session == session && stay.since_us <= since_us && stay.family() == family
            };
            self.stays.iter().rev().find(before)?.system.as_ref()?.provider()
        };
        let provider = provider(Family::V4).or_else(|| provider(Family::V6));
        provider.map_or(&[], |provider| &provider.kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(network: impl Into<IpAddr>, changed: bool) -> AddressCheck {
        let network = network.into();
        AddressCheck {
            family: Family::of(network),
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
        addresses.add(0, 20, 120, &AddressCheck { network: None, ..check([0u8; 4], false) });
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
    fn each_family_has_its_stays() {
        let (starlink, other) = ([98, 97, 12, 0], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0]);
        let mut addresses = Addresses::default();
        for at in [0, 10, 20] {
            addresses.add(0, at, 0, &check(starlink, false));
            addresses.add(0, at + 1, 0, &check(other, at == 20));
        }
        let seen: Vec<_> =
            addresses.stays.iter().map(|stay| (stay.family(), stay.checks)).collect();
        assert_eq!(seen, [(Family::V4, 3), (Family::V6, 2), (Family::V6, 1)]);
        assert_eq!(addresses.kinds(0, 30), [Kind::Low], "the provider of either family");
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
