//! Network interfaces of this machine.

use std::io;

use netlink_packet_core::NetlinkMessage;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use nix::sys::socket::SockProtocol;

use crate::netlink;

/// A network interface.
pub struct Link {
    pub index: u32,
    pub name: String,
    /// Index of the bridge or bond that the interface belongs to.
    pub above: Option<u32>,
    pub is_bridge: bool,
    /// `true` if something is connected.
    pub has_carrier: bool,
}

/// Returns all network interfaces.
pub fn links() -> io::Result<Vec<Link>> {
    let request = NetlinkMessage::from(RouteNetlinkMessage::GetLink(LinkMessage::default()));
    let listed = netlink::dump(SockProtocol::NetlinkRoute, request)?;
    let link = |message| {
        let RouteNetlinkMessage::NewLink(message) = message else { return None };
        let index = message.header.index;
        let has_carrier = message.header.flags.contains(LinkFlags::LowerUp);
        let (name, above, is_bridge) = Default::default();
        let mut link = Link { index, name, above, is_bridge, has_carrier };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::Controller(above) => link.above = Some(above),
                LinkAttribute::LinkInfo(infos) => {
                    link.is_bridge = infos.contains(&LinkInfo::Kind(InfoKind::Bridge));
                }
                _ => {}
            }
        }
        Some(link)
    };
    Ok(listed.into_iter().filter_map(link).collect())
}

/// Returns the indexes of those of `interfaces` that exist.
pub fn indexes(interfaces: &[&str]) -> Vec<u32> {
    let ours = |link: &Link| interfaces.contains(&link.name.as_str());
    links().unwrap_or_default().into_iter().filter(ours).map(|link| link.index).collect()
}
