//! Properties of a flow that are known when its class is decided.

use std::net::IpAddr;
use std::time::Duration;

use bentpipe_flow::{Host, Target};
use bentpipe_schedule::Dscp;

use super::{EncryptedHello, Mac, Name, NameTable, Protocol, Visible};

/// Properties of a flow that rules depend on.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Destination address; absent if the client gave a name that the ground gateway resolves.
    pub address: Option<IpAddr>,
    /// Destination port; 0 if the protocol has no ports.
    pub port: u16,
    /// IP protocol.
    pub protocol: Protocol,
    /// DSCP set by the client, if known.
    pub dscp: Dscp,
    /// Address of the client.
    pub passenger: IpAddr,
    /// Device of the client, if known.
    pub mac: Option<Mac>,
    /// Name of the destination, and its certainty.
    pub named: Named,
}

/// Certainty of a flow's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// The name is absent or encrypted.
    Unknown,
    /// The client states this name, but it is not known whether the address belongs to it.
    Claimed(Name),
    /// The name and the address are known to agree.
    Agreed(Name),
    /// The client states no name; our resolver returned the address for all of these names.
    AnyOf(Vec<Name>),
}

impl Named {
    /// Returns the name of a flow of `protocol` to `target`, whose client showed `visible`.
    ///
    /// - A target that *is* a name agrees regardless of `visible`, because the ground gateway
    ///   resolves it.
    /// - A TCP flow without a visible name is unknown, because the client may hide the name.
    /// - A flow of another protocol has all names of its address.
    pub fn of(
        target: &Target,
        protocol: Protocol,
        visible: Visible,
        ech: EncryptedHello,
        table: &NameTable,
        now: Duration,
    ) -> Self {
        let address = match &target.host {
            Host::Name(name) => return name.parse().map_or(Self::Unknown, Self::Agreed),
            Host::Ip(address) => *address,
            Host::Service(_) => return Self::Unknown,
        };
        let name = match visible {
            Visible::Name(name) => name,
            Visible::Outer(name) if ech == EncryptedHello::OuterName => name,
            Visible::Nothing if protocol != Protocol::Tcp => {
                return Self::AnyOf(table.names_of(address, now));
            }
            Visible::Nothing | Visible::Partial | Visible::Outer(_) => return Self::Unknown,
        };
        if table.agrees(&name, address, now) { Self::Agreed(name) } else { Self::Claimed(name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_sure_as_what_is_known() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let now = Duration::ZERO;
        let mut table = NameTable::default();
        let gov = name("www.gov.uk");
        table.learn(&gov, &["192.0.2.1".parse().unwrap()], Duration::from_secs(300), now);
        let of = |target: &str, protocol, visible, ech| {
            Named::of(&target.parse().unwrap(), protocol, visible, ech, &table, now)
        };
        let (tcp, udp, hidden) = (Protocol::Tcp, Protocol::Udp, EncryptedHello::Unknown);
        let says = || Visible::Name(gov.clone());
        assert_eq!(of("192.0.2.1:443", tcp, says(), hidden), Named::Agreed(gov.clone()));
        assert_eq!(of("192.0.2.2:443", tcp, says(), hidden), Named::Claimed(gov.clone()));
        let other = Named::Agreed(name("other.test"));
        assert_eq!(of("other.test:443", tcp, says(), hidden), other, "the target decides");
        assert_eq!(of("192.0.2.1:443", tcp, Visible::Nothing, hidden), Named::Unknown);
        assert_eq!(
            of("192.0.2.1:443", udp, Visible::Nothing, hidden),
            Named::AnyOf(vec![gov.clone()])
        );
        let outer = || Visible::Outer(gov.clone());
        assert_eq!(of("192.0.2.1:443", tcp, outer(), hidden), Named::Unknown);
        let shown = EncryptedHello::OuterName;
        assert_eq!(of("192.0.2.1:443", tcp, outer(), shown), Named::Agreed(gov.clone()));
        assert_eq!(of("192.0.2.2:443", tcp, outer(), shown), Named::Claimed(gov.clone()));
    }
}
