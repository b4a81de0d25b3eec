//! The leg between hub and egress over the radio transport.
//!
//! The egress's `listen` serves hubs like aircraft, and the hub calls it like a ground. Nobody knows the
//! rate of such a path, so both ends learn it.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_config::{EgressConfig, GroundConfig};
use bentpipe_link::io::Air;
use bentpipe_link::{
    AirConfig as LinkAirConfig, Aircraft, Class, LeaseMode, MAX_RATE, PublicKey, Settings,
    SettingsError,
};
use bentpipe_net::Inherited;

use crate::TransportError;
use crate::call::{any_address, plain_socket};
use crate::handshake_counter;
use crate::link::{datagram_idle, settings};

/// Silence after which a hub takes an egress for dead. Its flows end then, and new ones go elsewhere.
const SILENCE: Duration = Duration::from_millis(1_400);
/// Interval of the probes of an idle leg. The silence counts from the first unanswered one.
const KEEPALIVE: Duration = Duration::from_millis(100);
/// Silence after which an egress ends the session of a hub. The hub has ended its flows before.
const SESSION_LIFETIME: Duration = Duration::from_secs(5);
/// Time for which a flow may wait for its radio in addition to the lifetime of the radio's session,
/// which ends it.
const UNREAD_MARGIN: Duration = Duration::from_secs(60);
/// Credit that each flow has at least: 16 KiB × 16,384 flows are half of the default memory.
const MIN_FLOW_BYTES: u64 = 16 << 10;
/// Round trip assumed before the first measurement.
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// The hubs that an egress serves by the radio transport. A beam is divided over all of its sessions,
/// so that there are none with one.
pub fn hubs(config: &GroundConfig) -> Result<Vec<Aircraft>, SettingsError> {
    if config.beam.is_some() {
        return Ok(Vec::new());
    }
    let hub = |key: &PublicKey| {
        let settings = Settings { peer_name: format!("hub {key}"), ..leg_settings(config) };
        settings.check()?;
        Ok(Aircraft { key: *key, settings, highest_class: Class::Operator })
    };
    config.hubs.iter().map(hub).collect()
}

/// Configuration of a hub's call to `egress`, whose key is `hub`, at `address`.
pub fn egress_config(
    config: &GroundConfig,
    (egress, hub): (&EgressConfig, PublicKey),
    address: SocketAddr,
    first_counter: u64,
) -> Result<LinkAirConfig, SettingsError> {
    let settings = Settings { peer_name: egress.peer.to_string(), ..leg_settings(config) };
    settings.check()?;
    let secret = config.link.private_key.clone();
    Ok(LinkAirConfig { secret, hub, address, settings, first_counter })
}

/// Claims handshake counters for a call to an egress.
pub fn claim(config: &GroundConfig) -> Result<u64, TransportError> {
    Ok(handshake_counter::claim(&counter_file(config))?)
}

/// Calls an egress with its key, which is at one of `addresses`.
pub fn call(
    config: &GroundConfig,
    egress: (&EgressConfig, PublicKey),
    addresses: &[SocketAddr],
    first_counter: u64,
) -> Result<Air, TransportError> {
    let (any, addresses) = any_address(addresses);
    let settings = egress_config(config, egress, addresses[0], first_counter)?;
    let socket = plain_socket(&mut Inherited::default(), "egress", any)?;
    let air = Air::start(Box::new(socket), settings);
    air.also_at(addresses[1..].iter().copied());
    handshake_counter::renew(&air, &counter_file(config));
    Ok(air)
}

/// File of the counters, next to the addresses of the aircraft.
fn counter_file(config: &GroundConfig) -> std::path::PathBuf {
    let mut file = config.link.state_file.as_os_str().to_owned();
    file.push(".egress");
    file.into()
}

/// Settings of either end.
fn leg_settings(config: &GroundConfig) -> Settings {
    let link = &config.link;
    let flows = config.aircraft.iter().fold(0_usize, |sum, one| {
        sum.saturating_add(one.max_flows)
            .saturating_add(one.max_datagram_flows)
            .saturating_add(one.max_ip_flows)
    });
    let fit = link.memory.receive.bytes() / 2 / MIN_FLOW_BYTES;
    let flows = flows.min(usize::try_from(fit).unwrap_or(usize::MAX));
    Settings {
        lease: LeaseMode::Learned,
        learn_bytes: link.learn_bytes,
        coding: link.coding,
        datagram_idle: datagram_idle(config),
        flow_unread: link.session_lifetime.duration() + UNREAD_MARGIN,
        keepalive: KEEPALIVE,
        min_silence: SILENCE,
        session_lifetime: SESSION_LIFETIME,
        initial_rtt: INITIAL_RTT,
        calls_often: true,
        ..settings(MAX_RATE, link.mtu, link.memory, flows)
    }
}
