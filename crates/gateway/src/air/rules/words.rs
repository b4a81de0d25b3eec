//! Expressions of nftables rules, as the kernel wants them (linux/netfilter/nf_tables.h).

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, Expressions, Immediate, Meta, MetaKey, Operator, Payload,
    Register, Verdict, VerdictAttribute,
};

/// `NFPROTO_IPV4` and `NFPROTO_IPV6`.
pub const IPV4: u8 = 2;
pub const IPV6: u8 = 10;

/// The length of an interface's name with its final zero (`IFNAMSIZ`).
const NAME_BYTES: usize = 16;

/// Bases of `payload`: the header of IP and that of TCP or UDP.
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;

/// Kinds of local destinations (linux/rtnetlink.h): `RTN_LOCAL`, `RTN_BROADCAST`, `RTN_ANYCAST` and
/// `RTN_MULTICAST`.
pub const KINDS_OF_LOCAL: [u32; 4] = [2, 3, 4, 5];

/// Packets of a protocol family.
pub fn family(family: u8) -> Vec<Expressions> {
    vec![meta(MetaKey::Nfproto), compare(Operator::Equal, &[family])]
}

/// Packets of a protocol above IP.
pub fn protocol(protocol: u8) -> Vec<Expressions> {
    vec![meta(MetaKey::L4Proto), compare(Operator::Equal, &[protocol])]
}

/// Packets of any other protocol.
pub fn other_protocol(protocol: u8) -> Vec<Expressions> {
    vec![meta(MetaKey::L4Proto), compare(Operator::NotEqual, &[protocol])]
}

/// Packets that came in by an interface.
pub fn interface(name: &str) -> Vec<Expressions> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(NAME_BYTES, 0);
    vec![meta(MetaKey::Iifname), compare(Operator::Equal, &bytes)]
}

/// Packets to a network.
pub fn to_network(network: IpNet) -> Vec<Expressions> {
    let (of, offset) = if network.addr().is_ipv4() { (IPV4, 16) } else { (IPV6, 24) };
    let (address, mask) = (octets(network.network()), octets(network.netmask()));
    let length = address.len() as u32;
    let masked = Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(length),
        Bitwise::Mask(DataAttribute::Value(mask)),
        Bitwise::Xor(DataAttribute::Value(vec![0; address.len()])),
    ]);
    let rest =
        [payload(NETWORK_HEADER, offset, length), masked, compare(Operator::Equal, &address)];
    family(of).into_iter().chain(rest).collect()
}

/// UDP packets to a port.
pub fn to_udp_port(port: u16) -> Vec<Expressions> {
    let port_matches =
        [payload(TRANSPORT_HEADER, 2, 2), compare(Operator::Equal, &port.to_be_bytes())];
    protocol(crate::net::ip::UDP).into_iter().chain(port_matches).collect()
}

/// Packets whose destination is local in the given way.
pub fn to_kind(kind: u32) -> Vec<Expressions> {
    // NFT_FIB_RESULT_ADDRTYPE of NFTA_FIB_F_DADDR.
    vec![fib(3, 1 << 1), compare(Operator::Equal, &kind.to_ne_bytes())]
}

/// Packets to whose source no route leads by the interface they came in by.
pub fn from_elsewhere() -> Vec<Expressions> {
    // NFT_FIB_RESULT_OIF of NFTA_FIB_F_SADDR, NFTA_FIB_F_IIF and NFTA_FIB_F_PRESENT.
    vec![fib(1, 1 | 1 << 3 | 1 << 5), compare(Operator::Equal, &0_u32.to_ne_bytes())]
}

/// Hands packets to the socket at `address` and `port`. Goes on with the next rule if there is none.
pub fn tproxy(address: IpAddr, port: u16) -> Vec<Expressions> {
    let of = if address.is_ipv4() { IPV4 } else { IPV6 };
    vec![
        load(Register::Reg1, DataAttribute::Value(octets(address))),
        load(Register::Reg2, DataAttribute::Value(port.to_be_bytes().to_vec())),
        // NFTA_TPROXY_FAMILY, NFTA_TPROXY_REG_ADDR and NFTA_TPROXY_REG_PORT.
        other("tproxy", &[(1, of.into()), (2, Register::Reg1.into()), (3, Register::Reg2.into())]),
    ]
}

/// Marks packets.
pub fn set_mark(mark: u32) -> Vec<Expressions> {
    vec![
        load(Register::Reg1, DataAttribute::Value(mark.to_ne_bytes().to_vec())),
        Expressions::Meta(vec![Meta::Key(MetaKey::Mark), Meta::SourceRegister(Register::Reg1)]),
    ]
}

/// Copies packets to an NFLOG group.
pub fn log(group: u16) -> Expressions {
    // NFTA_LOG_GROUP.
    let group = DefaultNla::new(1, group.to_be_bytes().to_vec());
    Expressions::Other { expression_type: "log".into(), attributes: vec![group] }
}

/// Counts packets, for `nft list`.
pub fn count() -> Expressions {
    other("counter", &[])
}

/// Ends the rules for a packet, which goes on its way.
pub fn accept() -> Expressions {
    verdict(vec![VerdictAttribute::Code(Verdict::Other(1))])
}

/// Ends the packet.
pub fn discard() -> Expressions {
    verdict(vec![VerdictAttribute::Code(Verdict::Other(0))])
}

/// Ends the rules of this chain.
pub fn leave() -> Expressions {
    verdict(vec![VerdictAttribute::Code(Verdict::Return)])
}

/// Goes on with the rules of `chain`.
pub fn jump(chain: &str) -> Expressions {
    let chain = VerdictAttribute::Chain(chain.to_owned());
    verdict(vec![VerdictAttribute::Code(Verdict::Jump), chain])
}

fn meta(key: MetaKey) -> Expressions {
    Expressions::Meta(vec![Meta::Key(key), Meta::DestinationRegister(Register::Reg1)])
}

fn compare(how: Operator, with: &[u8]) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(how),
        Cmp::Data(DataAttribute::Value(with.to_vec())),
    ])
}

fn payload(base: u32, offset: u32, length: u32) -> Expressions {
    Expressions::Payload(vec![
        Payload::DestinationRegister(Register::Reg1),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(length),
    ])
}

fn fib(result: u32, flags: u32) -> Expressions {
    // NFTA_FIB_DREG, NFTA_FIB_RESULT and NFTA_FIB_FLAGS.
    other("fib", &[(1, Register::Reg1.into()), (2, result), (3, flags)])
}

fn load(register: Register, data: DataAttribute) -> Expressions {
    Expressions::Immediate(vec![Immediate::DestinationRegister(register), Immediate::Data(data)])
}

fn verdict(verdict: Vec<VerdictAttribute>) -> Expressions {
    load(Register::Verdict, DataAttribute::Verdict(verdict))
}

/// An expression that the crate has no type for.
fn other(name: &str, attributes: &[(u16, u32)]) -> Expressions {
    let attribute = |&(kind, value): &(u16, u32)| DefaultNla::new(kind, value.to_be_bytes().into());
    Expressions::Other {
        expression_type: name.to_owned(),
        attributes: attributes.iter().map(attribute).collect(),
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}
