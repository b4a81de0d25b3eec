//! The gateways, as the programs they are, on the air and the ground host.

use std::net::SocketAddr;

use super::pair::{Pair, PairSpec, Transport};
use super::{ContenderError, Parts, Running, Stage};
use crate::emu::{AIR_CABIN, GROUND, GROUND_INTERNET};
use crate::workload::fetch::{Client, Route};
use crate::workload::origin::Congestion;

/// Where the air gateway takes SOCKS5 in the cabin. A client that asks a proxy cannot bypass the
/// gateways by mistake, and pays for it only with round trips inside the cabin.
const SOCKS_PORT: u16 = 1080;
const LINK_PORT: u16 = 4500;

/// Starts both.
pub(super) fn start(stage: &Stage<'_>, transport: Transport) -> Result<Running, ContenderError> {
    let socks5 = SocketAddr::new(AIR_CABIN.v4.into(), SOCKS_PORT);
    let peer = SocketAddr::new(GROUND.v4.into(), LINK_PORT);
    let spec = PairSpec {
        transport,
        allow: vec![format!("{}/24", GROUND_INTERNET.v4)],
        ..PairSpec::new(stage.profile, socks5, peer)
    };
    let program = stage.program.to_string_lossy();
    let (air, ground) = (stage.world.air.command(&program), stage.world.ground.command(&program));
    let pair = Pair::start(&spec, stage.folder, air, ground)?;
    let origin = stage.origin.address(Congestion::Cubic);
    let client = Client { route: Route::Socks5(socks5), origin, congestion: Congestion::Cubic };
    Ok(Running { client, parts: Parts::Gateways(pair) })
}
