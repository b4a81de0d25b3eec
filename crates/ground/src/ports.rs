//! External ports: the kernel's supply, and the share that passengers may use.
//!
//! | part of `net.ipv4.ip_local_port_range` | of 28,232 (Linux's default) |
//! |---|---|
//! | reserved for the system, mainly for DNS | 4,096, or half of a range below 8,192 |
//! | ports shared by QUIC flows, an eighth of the rest | 3,017 |
//! | ports of one passenger each | 21,119 |
//!
//! These numbers apply to each address family, and to each address under `[dial] sources`.

use bentpipe_config::GroundConfig;

/// Maximum number of ports reserved for the system.
const MAX_RESERVED: usize = 4_096;

/// Divisor for the part of the ports that is shared.
const SHARED_PART: usize = 8;

/// Kernel file with the range of ephemeral ports, for both families.
const RANGE_FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Ephemeral port range of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    first: u16,
    last: u16,
}

/// Limits on the ports of one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Ports of one passenger each.
    pub own: usize,
    /// Ports shared by flows.
    pub shared: usize,
}

impl Range {
    /// The range of this network namespace; Linux's default if it cannot be read.
    pub fn of_kernel() -> Self {
        let read = std::fs::read_to_string(RANGE_FILE).ok();
        read.and_then(|text| Self::parse(&text)).unwrap_or(Self { first: 32_768, last: 60_999 })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut ports = text.split_ascii_whitespace().map(|port| port.parse().ok());
        let range = Self { first: ports.next()??, last: ports.next()?? };
        (range.first > 0 && range.first <= range.last).then_some(range)
    }

    /// Returns `true` if `port` is in the kernel's ephemeral range.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Number of ports.
    pub fn count(self) -> usize {
        usize::from(self.last - self.first) + 1
    }

    /// Limits for passengers on each address.
    pub fn budget(self) -> Budget {
        let open = self.count() - MAX_RESERVED.min(self.count() / 2);
        // Even a range of one port yields one port of each kind.
        let shared = (open / SHARED_PART).max(1);
        Budget { own: open.saturating_sub(shared).max(1), shared }
    }
}

/// Returns a warning if the aircraft of `config` may open more UDP flows than `range` has ports.
pub fn shortage(config: &GroundConfig, range: Range) -> Option<String> {
    let aircraft = config.aircraft.iter().map(|one| one.max_datagram_flows);
    let clients = config.clients.iter().map(|one| one.max_datagram_flows);
    let flows = aircraft.chain(clients).fold(0_usize, usize::saturating_add);
    let flows = flows.min(config.limits.udp.max_flows);
    let v4 = config.dial.sources.iter().filter(|it| it.ip.is_ipv4()).count().max(1);
    let Budget { own, shared } = range.budget();
    let ports = (own + shared) * v4;
    (flows > ports).then(|| {
        let Range { first, last } = range;
        format!(
            "passengers may open {flows} flows of UDP, and the kernel has {ports} ports for them \
             ({first} to {last}): beyond half of the ports, aircraft have shares; for more, \
             `sysctl net.ipv4.ip_local_port_range=\"10240 65535\"`, or several sources under [dial]"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_without_a_port_for_each_flow_is_reported() {
        let config = |sources: &str, max_flows: usize| {
            let text = format!(
                "[link]\nprivate-key-file = \"own.key\"\nlisten = \"[::]:4500\"\n\
                 [[aircraft]]\nname = \"D-A\"\nrate = \"1 Mbit/s\"\n\
                 public-key = \"AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\"\n\
                 max-datagram-flows = {max_flows}\n[dial]\nsources = [{sources}]\n"
            );
            let folder = tempfile::tempdir().unwrap();
            let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
            std::fs::write(folder.path().join("own.key"), key).unwrap();
            GroundConfig::parse(&folder.path().join("ground.toml"), &text).unwrap()
        };
        let range = Range { first: 32_768, last: 33_767 };
        let short = |sources, flows| shortage(&config(sources, flows), range);
        // Half of 1,000 ports is the system's, on each of two sources of one family.
        let two = "\"192.0.2.1\", \"192.0.2.2\"";
        assert_eq!(short(two, 1_000), None);
        let text = short(two, 1_001).unwrap();
        let start = "passengers may open 1001 flows of UDP, and the kernel has 1000 ports for them";
        assert!(text.starts_with(start), "{text}");
        assert!(short("", 501).is_some() && short("", 500).is_none());
        assert!(short("\"192.0.2.1\", \"2001:db8::1\"", 501).is_some(), "one IPv4 source");
    }

    #[test]
    fn passengers_leave_ports_to_the_system() {
        let budget = |text: &str| Range::parse(text).unwrap().budget();
        assert_eq!(budget("32768\t60999\n"), Budget { own: 21_119, shared: 3_017 });
        assert_eq!(budget("32768 33767"), Budget { own: 438, shared: 62 });
        assert_eq!(budget("40000 40000"), Budget { own: 1, shared: 1 });
        for wrong in ["", "1", "2 1", "0 9", "a b", "1 70000"] {
            assert_eq!(Range::parse(wrong), None, "{wrong}");
        }
    }
}
