//! Known properties of a flow when its class is decided.

use std::net::IpAddr;
use std::time::Duration;

use bentpipe_link::{Host, Target};
use bentpipe_schedule::Dscp;

use super::{EncryptedHello, Mac, Name, NameTable, Protocol, Visible};

/// Names of one address that are looked at: an address with more is everybody's.
pub const MAX_NAMES_CONSIDERED: usize = 32;

/// A flow, as the rules see it.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Destination address; absent if the client named it and the ground resolves the name.
    pub address: Option<IpAddr>,
    /// The port there; 0 where the protocol has none.
    pub port: u16,
    /// Protocol.
    pub protocol: Protocol,
    /// Mark of the client, if known.
    pub dscp: Dscp,
    /// The client's address.
    pub passenger: IpAddr,
    /// The client's device, where it is known.
    pub mac: Option<Mac>,
    /// Name.
    pub named: Named,
}

/// Certainty of a flow's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// There is none, or it is encrypted.
    Unknown,
    /// The client says this name, and nothing yet says that its address is the name's.
    Claimed(Name),
    /// The name and the address agree.
    Agreed(Name),
    /// The client says nothing, and our resolver answered the address for all of these.
    AnyOf(Vec<Name>),
}

impl Named {
    /// The name of a flow of `protocol` to `target`, on which the client said `visible`.
    ///
    /// A target that *is* a name is the one that the ground resolves, so it agrees whatever else
    /// the client says. A TCP flow whose client says nothing has no name: it may hide one. A flow of
    /// any other protocol has the names of its address.
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
