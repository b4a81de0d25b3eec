//! Private addresses, to which names of the Internet must not lead.
//!
//! A page on the Internet whose name leads to an address of the cabin's own network can talk to
//! services there as if they were its own server (DNS rebinding). Unbound's protection is called
//! `private-address`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::rr::RecordType;
use hickory_proto::serialize::binary::BinDecoder;

use crate::wire::{self, Record};

/// Returns `true` if `ip` belongs to a network that is not the Internet's:
///
/// - private (RFC 1918, RFC 4193)
/// - shared (RFC 6598)
/// - link-local or loopback
/// - unspecified, which many systems treat as loopback
///
/// An IPv6 address that represents an IPv4 address (mapped, compatible, 6to4, NAT64) counts as that
/// address.
pub fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_private_v4(ip),
        IpAddr::V6(ip) => is_private_v6(ip),
    }
}

fn is_private_v4(ip: Ipv4Addr) -> bool {
    let [first, second, ..] = ip.octets();
    let is_shared = first == 100 && second & 0xc0 == 64;
    first == 0 || is_shared || ip.is_private() || ip.is_loopback() || ip.is_link_local()
}

fn is_private_v6(ip: Ipv6Addr) -> bool {
    let pair = |high: u16, low: u16| {
        is_private_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
    };
    match ip.segments() {
        // IPv4-compatible addresses, including `::` and `::1`, and the NAT64 prefix.
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => pair(high, low),
        // NAT64 within one network (RFC 8215): always local.
        [0x64, 0xff9b, 1, ..] => true,
        [0x2002, high, low, ..] => pair(high, low),
        // Site-local addresses were replaced by unique local addresses (RFC 3879).
        [first, ..] => {
            ip.is_unique_local() || ip.is_unicast_link_local() || first & 0xffc0 == 0xfec0
        }
    }
}

/// Addresses in a record.
pub(crate) fn addresses_of(record: &Record<'_>) -> Vec<IpAddr> {
    match record.kind {
        RecordType::A => addresses::<4>(record.data),
        RecordType::AAAA => addresses::<16>(record.data),
        RecordType::HTTPS | RecordType::SVCB => hints(record.data).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Keys of the address hints among service parameters.
const IPV4_HINT: u16 = 4;
const IPV6_HINT: u16 = 6;

/// Address hints of a service record: a priority, a name without pointers, and parameters encoded
/// like EDNS options.
fn hints(data: &[u8]) -> Option<Vec<IpAddr>> {
    let mut rest = BinDecoder::new(data);
    rest.read_u16().ok()?;
    wire::plain_name(&mut rest).ok()?;
    let parameters = wire::options(data.get(rest.index()..)?);
    let hints = parameters.map(|(key, value)| match u16::from(key) {
        IPV4_HINT => addresses::<4>(value),
        IPV6_HINT => addresses::<16>(value),
        _ => Vec::new(),
    });
    Some(hints.flatten().collect())
}

/// Addresses of `N` bytes each, in sequence.
fn addresses<const N: usize>(data: &[u8]) -> Vec<IpAddr>
where
    IpAddr: From<[u8; N]>,
{
    data.as_chunks::<N>().0.iter().map(|bytes| IpAddr::from(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Answer;
    use crate::testing::{address, answer_with, key, query};
    use hickory_proto::rr::rdata::NULL;
    use hickory_proto::rr::{RData, Record as Written};

    #[test]
    fn private_addresses_are_recognized() {
        for private in [
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "169.254.169.254",
            "127.0.0.1",
            "0.0.0.0",
            "100.64.0.1",
            "::",
            "::1",
            "fd00::1",
            "fe80::1",
            "fec0::1",
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "2002:a00:1::",
        ] {
            assert!(is_private(private.parse().unwrap()), "{private}");
        }
        for public in [
            "9.9.9.9",
            "172.32.0.1",
            "100.128.0.1",
            "192.0.2.1",
            "2001:db8::1",
            "2620:fe::9",
            "64:ff9b::909:909",
            "2002:909:909::",
        ] {
            assert!(!is_private(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn addresses_are_found_in_all_records_that_clients_use() {
        let request = query("a.test.", RecordType::HTTPS);
        let find = |change: &dyn Fn(&mut hickory_proto::op::Message)| {
            let message = answer_with(&request, change);
            Answer::parse(&key(&request), &message).unwrap().find_address(is_private)
        };
        let raw = |kind: RecordType, data: &[u8]| {
            let data = RData::Unknown { code: kind, rdata: NULL::with(data.to_vec()) };
            Written::from_rdata(crate::testing::name("a.test."), 60, data)
        };
        // Priority 1, the name itself, ALPN, then hints: a public and a private one.
        let service = b"\0\x01\0\0\x01\0\x03\x02h2\0\x04\0\x08\x09\x09\x09\x09\x0a\0\0\x01";
        let private = Some(IpAddr::from([10, 0, 0, 1]));
        assert_eq!(find(&|it| _ = it.add_answer(raw(RecordType::HTTPS, service))), private);
        let hint = b"\0\x01\0\0\x06\0\x10\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07";
        let local = Some("fd00::7".parse().unwrap());
        assert_eq!(find(&|it| _ = it.add_additional(raw(RecordType::SVCB, hint))), local);
        let extra = [10, 0, 0, 1];
        assert_eq!(find(&|it| _ = it.add_additional(raw(RecordType::A, &extra))), private);
        assert_eq!(find(&|it| _ = it.add_answer(raw(RecordType::TXT, &extra))), None);
        assert_eq!(find(&|it| _ = it.add_answer(raw(RecordType::HTTPS, &service[..20]))), None);
        let request = query("a.test.", RecordType::A);
        let public = Answer::parse(&key(&request), &address(&request, 60, 1)).unwrap();
        assert_eq!(public.find_address(is_private), None);
    }
}
