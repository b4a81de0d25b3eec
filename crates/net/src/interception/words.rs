//! Expressions of nftables rules in the kernel's format (linux/netfilter/nf_tables.h).

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED, Nla};
use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, ExpressionAttribute, Expressions, Immediate, Lookup, Meta,
    MetaKey, Operator, Payload, Register, Verdict, VerdictAttribute,
};

/// `NFPROTO_IPV4` and `NFPROTO_IPV6`.
pub const IPV4: u8 = 2;
pub const IPV6: u8 = 10;

/// Length of an interface name with its terminating zero (`IFNAMSIZ`).
const NAME_BYTES: usize = 16;

/// Bases of `payload`: the header of the link layer, of IP, and of TCP or UDP.
const LINK_HEADER: u32 = 0;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;

/// Type of interfaces with Ethernet headers (linux/if_arp.h).
const ARPHRD_ETHER: u16 = 1;

/// Registers of a key that begins with a hardware address, which takes two of 32 bits.
const KEY: Register = Register::Reg32_00;
const AFTER_HARDWARE: Register = Register::Reg32_02;

/// Types of local destinations (linux/rtnetlink.h): `RTN_LOCAL`, `RTN_BROADCAST`, `RTN_ANYCAST` and
/// `RTN_MULTICAST`.
pub const KINDS_OF_LOCAL: [u32; 4] = [2, 3, 4, 5];

/// Matches packets of a protocol family.
pub fn family(family: u8) -> Vec<Expressions> {
    vec![meta(MetaKey::Nfproto), compare(Operator::Equal, &[family])]
}

/// Matches packets of a transport protocol.
pub fn protocol(protocol: u8) -> Vec<Expressions> {
    vec![meta(MetaKey::L4Proto), compare(Operator::Equal, &[protocol])]
}

/// Matches packets of any other transport protocol.
pub fn other_protocol(protocol: u8) -> Vec<Expressions> {
    vec![meta(MetaKey::L4Proto), compare(Operator::NotEqual, &[protocol])]
}

/// Matches packets received on an interface.
pub fn interface(name: &str) -> Vec<Expressions> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(NAME_BYTES, 0);
    vec![meta(MetaKey::Iifname), compare(Operator::Equal, &bytes)]
}

/// Matches packets received on an interface with Ethernet headers.
pub fn over_ethernet() -> Vec<Expressions> {
    vec![meta(MetaKey::Iftype), compare(Operator::Equal, &ARPHRD_ETHER.to_ne_bytes())]
}

/// Loads the hardware address of the sender as a key, or as its beginning.
pub fn hardware_source() -> Vec<Expressions> {
    vec![payload_to(KEY, (LINK_HEADER, 6, 6))]
}

/// Appends the source address to a key that begins with a hardware address.
pub fn source_after_hardware(family: u8) -> Vec<Expressions> {
    let field = if family == IPV4 { (NETWORK_HEADER, 12, 4) } else { (NETWORK_HEADER, 8, 16) };
    vec![payload_to(AFTER_HARDWARE, field)]
}

/// Matches packets whose key is in the set.
pub fn is_in(set: &str) -> Expressions {
    Expressions::Lookup(vec![Lookup::Set(set.to_owned()), Lookup::SourceRegister(KEY)])
}

/// Adds the key to the set, or restarts its timeout. Does not match if the set is full.
pub fn refresh(set: &str, timeout_ms: u64) -> Expressions {
    Expressions::Other { expression_type: "dynset".into(), attributes: update(set, timeout_ms) }
}

/// Matches packets beyond a rate per second and a burst of their key. Does not match if the set is
/// full.
pub fn beyond_rate(set: &str, timeout_ms: u64, (per_second, burst): (u64, u32)) -> Expressions {
    // NFTA_LIMIT_RATE, NFTA_LIMIT_UNIT, NFTA_LIMIT_BURST, NFTA_LIMIT_TYPE (packets) and
    // NFTA_LIMIT_FLAGS (NFT_LIMIT_F_INV).
    let limit = Expressions::Other {
        expression_type: "limit".into(),
        attributes: vec![
            DefaultNla::new(1, per_second.to_be_bytes().into()),
            DefaultNla::new(2, 1_u64.to_be_bytes().into()),
            DefaultNla::new(3, burst.to_be_bytes().into()),
            DefaultNla::new(4, 0_u32.to_be_bytes().into()),
            DefaultNla::new(5, 1_u32.to_be_bytes().into()),
        ],
    };
    let limit = [ExpressionAttribute::Name("limit".into()), ExpressionAttribute::Data(limit)];
    let mut attributes = update(set, timeout_ms);
    // NFTA_DYNSET_EXPR.
    attributes.push(DefaultNla::new(7 | NLA_F_NESTED, emitted(&limit)));
    Expressions::Other { expression_type: "dynset".into(), attributes }
}

/// Attributes of an update of the key's element in a set.
fn update(set: &str, timeout_ms: u64) -> Vec<DefaultNla> {
    let name = [set.as_bytes(), &[0]].concat();
    // NFTA_DYNSET_SET_NAME, NFTA_DYNSET_OP (NFT_DYNSET_OP_UPDATE), NFTA_DYNSET_SREG_KEY and
    // NFTA_DYNSET_TIMEOUT.
    vec![
        DefaultNla::new(1, name),
        DefaultNla::new(3, 1_u32.to_be_bytes().into()),
        DefaultNla::new(4, u32::from(KEY).to_be_bytes().into()),
        DefaultNla::new(6, timeout_ms.to_be_bytes().into()),
    ]
}

fn emitted(attributes: &[impl Nla]) -> Vec<u8> {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    bytes
}

/// Matches packets to a network.
pub fn to_network(network: IpNet) -> Vec<Expressions> {
    let offset = if network.addr().is_ipv4() { 16 } else { 24 };
    in_network(network, offset, Operator::Equal)
}

/// Matches packets from a network.
pub fn from_network(network: IpNet) -> Vec<Expressions> {
    in_network(network, source_offset(network), Operator::Equal)
}

/// Matches packets of the network's family from outside of it.
pub fn from_outside(network: IpNet) -> Vec<Expressions> {
    in_network(network, source_offset(network), Operator::NotEqual)
}

/// Position of the source address in the IP header.
fn source_offset(network: IpNet) -> u32 {
    if network.addr().is_ipv4() { 12 } else { 8 }
}

/// Compares the address at `offset` in the IP header with a network.
fn in_network(network: IpNet, offset: u32, how: Operator) -> Vec<Expressions> {
    let of = if network.addr().is_ipv4() { IPV4 } else { IPV6 };
    let (address, mask) = (octets(network.network()), octets(network.netmask()));
    let length = address.len() as u32;
    let masked = Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(length),
        Bitwise::Mask(DataAttribute::Value(mask)),
        Bitwise::Xor(DataAttribute::Value(vec![0; address.len()])),
    ]);
    let rest = [payload(NETWORK_HEADER, offset, length), masked, compare(how, &address)];
    family(of).into_iter().chain(rest).collect()
}

/// Matches UDP packets to a port.
pub fn to_udp_port(port: u16) -> Vec<Expressions> {
    let port_matches =
        [payload(TRANSPORT_HEADER, 2, 2), compare(Operator::Equal, &port.to_be_bytes())];
    protocol(crate::ip::UDP).into_iter().chain(port_matches).collect()
}

/// Matches packets whose destination has this address type.
pub fn to_kind(kind: u32) -> Vec<Expressions> {
    // NFT_FIB_RESULT_ADDRTYPE of NFTA_FIB_F_DADDR.
    vec![fib(3, 1 << 1), compare(Operator::Equal, &kind.to_ne_bytes())]
}

/// Matches packets whose source has no route on the interface they arrived on.
pub fn from_elsewhere() -> Vec<Expressions> {
    // NFT_FIB_RESULT_OIF of NFTA_FIB_F_SADDR, NFTA_FIB_F_IIF and NFTA_FIB_F_PRESENT.
    vec![fib(1, 1 | 1 << 3 | 1 << 5), compare(Operator::Equal, &0_u32.to_ne_bytes())]
}

/// Hands packets to the socket at `address` and `port`. Continues with the next rule if there is no
/// such socket.
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

/// Accepts the packet and ends the evaluation of rules.
pub fn accept() -> Expressions {
    verdict(vec![VerdictAttribute::Code(Verdict::Other(1))])
}

/// Drops the packet.
pub fn discard() -> Expressions {
    verdict(vec![VerdictAttribute::Code(Verdict::Other(0))])
}

/// Returns from this chain.
pub fn leave() -> Expressions {
    verdict(vec![VerdictAttribute::Code(Verdict::Return)])
}

/// Continues with the rules of `chain`, then with the next rule of this chain.
pub fn jump(chain: &str) -> Expressions {
    to_chain(Verdict::Jump, chain)
}

/// Continues with the rules of `chain` instead of the rest of this chain.
pub fn goto(chain: &str) -> Expressions {
    to_chain(Verdict::Goto, chain)
}

fn to_chain(how: Verdict, chain: &str) -> Expressions {
    let chain = VerdictAttribute::Chain(chain.to_owned());
    verdict(vec![VerdictAttribute::Code(how), chain])
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
    payload_to(Register::Reg1, (base, offset, length))
}

/// Loads bytes of the packet: the base, the offset from there, and the length.
fn payload_to(register: Register, (base, offset, length): (u32, u32, u32)) -> Expressions {
    Expressions::Payload(vec![
        Payload::DestinationRegister(register),
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

/// Builds an expression that the netlink crate has no type for.
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
