//! Configuration of the radio transport.

use std::net::SocketAddr;
use std::num::NonZero;
use std::thread;
use std::time::Duration;

use bentpipe_link::{
    AirConfig as LinkAirConfig, Aircraft, Control, HubConfig, LeaseMode, MAX_PATHS, MAX_RATE,
    MIN_RESERVE_BYTES, PathQuota, PathSettings, Settings, SettingsError,
};
use bentpipe_units::{BitRate, ByteSize};

use crate::machine;
use bentpipe_config::{AirConfig, GroundConfig, LeaseSource, Memory, RadioPath};

/// Idle limit of datagram flows in the link. The gateways end idle flows earlier; this limit covers
/// flows that they have lost track of.
const IDLE_MARGIN: Duration = Duration::from_secs(60);

/// Flows of a session in addition to those that the gateway admits: flows whose end only one side
/// has seen.
const FLOWS_ENDING: u32 = 64;

/// Bytes that a flow may send before the peer's first credit, which takes a round trip. More would
/// not fill a link of up to 10 Mbit/s and 800 ms any sooner.
const MAX_RESERVE_BYTES: u64 = 1_000_000;

/// Configuration for [`bentpipe_link::io::Air::start`], for a ground at `address` and a handshake counter above every
/// earlier one (see [`crate::handshake_counter::claim`]).
pub fn air_config(
    config: &AirConfig,
    address: SocketAddr,
    first_counter: u64,
) -> Result<LinkAirConfig, SettingsError> {
    let link = &config.link;
    let (lease, control) = lease(link.lease);
    let learn_bytes = link.learn_bytes;
    let limits = &config.limits;
    let max_flows = limits.max_flows.saturating_add(limits.udp.max_flows);
    let max_flows = max_flows.saturating_add(limits.ip.max_flows);
    let settings = settings(link.rate, link.mtu, link.memory, max_flows);
    let classes = config.classes.settings();
    let datagram_idle = limits.udp.longest_idle().max(limits.ip.longest_idle()) + IDLE_MARGIN;
    let coding = link.coding;
    let settings =
        Settings { lease, learn_bytes, control, coding, classes, datagram_idle, ..settings };
    let mut settings = with_paths(settings, &config.paths);
    settings.calls_often = link.keep_flows || !config.hubs.is_empty();
    settings.check()?;
    Ok(LinkAirConfig {
        secret: link.private_key.clone(),
        hub: link.peer_public_key,
        address,
        settings,
        first_counter,
    })
}

/// Settings of a session with these radios; with none, it has one path.
fn with_paths(mut settings: Settings, paths: &[RadioPath]) -> Settings {
    let Some((first, further)) = paths.split_first() else { return settings };
    let (lease, control) = lease(first.lease);
    let path = |path: &RadioPath| PathSettings {
        name: path.name.clone(),
        rate: path.rate,
        lease: self::lease(path.lease).0,
        mtu_bytes: path.mtu,
        metered: path.metered,
        quota: None,
    };
    settings.paths = further.iter().map(path).collect();
    (settings.path_name, settings.rate) = (first.name.clone(), first.rate);
    (settings.lease, settings.control) = (lease, control);
    settings.metered = first.metered;
    // The largest that any of them carries.
    settings.mtu_bytes = paths.iter().map(|path| path.mtu).max().unwrap_or(settings.mtu_bytes);
    settings
}

/// Gives each path of a session its quota.
pub fn set_quotas(settings: &mut Settings, quotas: Vec<Option<PathQuota>>) {
    let mut quotas = quotas.into_iter();
    settings.quota = quotas.next().flatten();
    for (path, quota) in settings.paths.iter_mut().zip(quotas) {
        path.quota = quota;
    }
}

/// Divisor of the machine's memory for all sessions, if the file has no limit: half.
const PART_OF_MEMORY: u64 = 2;
/// Memory for all sessions if the machine's memory is unknown.
const UNKNOWN_MEMORY: ByteSize = ByteSize::from_bytes(2 << 30);

/// Maximum memory of all sessions of the ground.
pub fn total_memory(config: &GroundConfig) -> ByteSize {
    let part = |whole: ByteSize| ByteSize::from_bytes(whole.bytes() / PART_OF_MEMORY);
    let half = || machine::memory().map_or(UNKNOWN_MEMORY, part);
    config.link.total_memory.unwrap_or_else(half)
}

/// Number of shards for [`bentpipe_link::io::Hub::start_sharded`]: as many as processor cores. A beam is divided over
/// all sessions together, so that a hub with a beam has one shard.
pub fn shards(config: &GroundConfig) -> usize {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    if config.beam.is_some() { 1 } else { cores() }
}

/// Configuration for [`bentpipe_link::io::Hub::start_sharded`].
pub fn hub_config(config: &GroundConfig) -> Result<HubConfig, SettingsError> {
    let mut aircraft = Vec::with_capacity(config.aircraft.len());
    for one in &config.aircraft {
        let mtu = one.mtu.unwrap_or(config.link.mtu);
        let memory = one.memory.unwrap_or(config.link.memory);
        let max_flows = one.max_flows.saturating_add(one.max_datagram_flows);
        let max_flows = max_flows.saturating_add(one.max_ip_flows);
        let settings = settings(one.rate, mtu, memory, max_flows);
        let (lease, control) = lease(one.lease);
        let learn_bytes = config.link.learn_bytes;
        let classes = one.classes.settings();
        let datagram_idle = datagram_idle(config);
        let share = one.share;
        let peer_name = one.name.clone();
        let coding = config.link.coding;
        let session_lifetime = config.link.session_lifetime.into();
        let settings = Settings {
            peer_name,
            share,
            lease,
            learn_bytes,
            control,
            coding,
            classes,
            datagram_idle,
            session_lifetime,
            ..settings
        };
        let settings = Settings { paths: any_paths(&settings), ..settings };
        settings.check()?;
        let highest_class = one.highest_class;
        aircraft.push(Aircraft { key: one.key, settings, highest_class });
    }
    let secret = config.link.private_key.clone();
    Ok(HubConfig { secret, aircraft })
}

/// Idle limit of datagram flows at the ground.
pub(crate) fn datagram_idle(config: &GroundConfig) -> Duration {
    let (udp, ip) = (&config.limits.udp, &config.limits.ip);
    udp.longest_idle().max(ip.longest_idle()) + IDLE_MARGIN
}

/// Paths that an aircraft may add to its first one. Nothing is known of them here: their rates are
/// learned, or found by CUBIC if that is so on the first.
fn any_paths(settings: &Settings) -> Vec<PathSettings> {
    let lease = match settings.control {
        Control::Leased => LeaseMode::Learned,
        Control::Congestion => LeaseMode::Static,
    };
    let path = PathSettings {
        name: String::new(),
        rate: MAX_RATE,
        lease,
        mtu_bytes: settings.mtu_bytes,
        metered: false,
        quota: None,
    };
    vec![path; usize::from(MAX_PATHS) - 1]
}

/// Source of the rate and its control for the transport.
fn lease(source: LeaseSource) -> (LeaseMode, Control) {
    match source {
        LeaseSource::Learned => (LeaseMode::Learned, Control::Leased),
        LeaseSource::Static => (LeaseMode::Static, Control::Leased),
        LeaseSource::Granted => (LeaseMode::Granted, Control::Leased),
        LeaseSource::Modem => (LeaseMode::Modem, Control::Leased),
        LeaseSource::None => (LeaseMode::Static, Control::Congestion),
    }
}

/// Default settings of the transport, with room for all flows that the gateway admits.
pub(crate) fn settings(
    rate: BitRate,
    mtu_bytes: usize,
    memory: Memory,
    max_flows: usize,
) -> Settings {
    let defaults = Settings {
        mtu_bytes,
        receive_memory: memory.receive,
        send_memory: memory.send,
        code_memory: memory.code,
        ..Settings::default()
    };
    let max_flows = u32::try_from(max_flows).unwrap_or(u32::MAX).saturating_add(FLOWS_ENDING);
    // Half of the memory is reserved for flows; the other half is lent to flows that fill the link.
    let share = defaults.receive_memory.bytes() / 2 / u64::from(max_flows);
    let reserve = share.clamp(MIN_RESERVE_BYTES, MAX_RESERVE_BYTES);
    let flow_reserve = ByteSize::from_bytes(reserve);
    Settings { rate, max_flows, flow_reserve, ..defaults }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coding_memory_follows_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        std::fs::write(folder.path().join("air.key"), key).unwrap();
        let text = format!(
            "[link]\nprivate-key-file = \"air.key\"\npeer = \"hub.example.net:4500\"\n\
             peer-public-key = \"{key}\"\nrate = \"1 Mbit/s\"\nmemory = {{ code = \"2 MiB\" }}\n\
             [listen]\nsocks5 = \"127.0.0.1:1080\"\n"
        );
        let air = AirConfig::parse(&folder.path().join("air.toml"), &text).unwrap();
        let link = air_config(&air, ([127, 0, 0, 1], 1).into(), 0).unwrap();
        assert_eq!(link.settings.code_memory.bytes(), 2 << 20);
    }

    #[test]
    fn settings_hold_for_many_flows_and_refuse_too_many() {
        let rate = BitRate::from_bps(1_890_000);
        let settings = |rate, flows| settings(rate, 1500, Memory::default(), flows);
        for flows in [1, 4096, 16_384, 100_000] {
            let settings = settings(rate, flows);
            assert_eq!(settings.check(), Ok(()), "{flows} flows");
            let reserved = u64::from(settings.max_flows) * settings.flow_reserve.bytes();
            assert!(reserved <= settings.receive_memory.bytes() / 2, "{flows} flows");
        }
        let small = Memory { receive: ByteSize::from_bytes(1 << 20), ..Memory::default() };
        let error = super::settings(rate, 1500, small, 4096).check().unwrap_err().to_string();
        assert!(error.contains("raise the memory"), "{error}");
        let error = super::settings(rate, 576, Memory::default(), 1).check().unwrap_err();
        assert!(error.to_string().contains("at least 1280 bytes"), "{error}");
        let error = settings(rate, 1_000_000).check().unwrap_err().to_string();
        assert!(error.contains("lower the flows"), "{error}");
    }
}
