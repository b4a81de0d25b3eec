//! Configuration of AeroTCP.

use std::net::SocketAddr;

use bentpipe_aerotcp::{
    AirConfig as AeroAirConfig, Aircraft, GroundConfig as AeroGroundConfig, Row, Settings,
    SettingsError, Window,
};
use bentpipe_units::BitRate;

use bentpipe_config::{AeroTcp, AirConfig, GroundConfig, WindowKind};

/// Connections of an association in addition to those that the gateway admits: connections whose
/// end only one side has seen.
const CONNECTIONS_ENDING: u32 = 64;

/// Reason why AeroTCP cannot start with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AeroTcpError {
    /// AeroTCP is the transport, but the satellite is not described.
    #[error(
        "the table [aerotcp] is missing: AeroTCP has to be told of the satellite; write [aerotcp] \
         with rtt = \"480 ms\", the round trip between the gateways"
    )]
    NoTable,
    /// The window is static, but its size is missing.
    #[error(
        "[aerotcp] has a static window and no connections: write connections = 10, the most that \
         will be open, or window = \"adaptive\""
    )]
    NoConnections,
    /// A setting applies to another kind of window, and would have no effect.
    #[error("[aerotcp] has {setting:?}, which is for window = {kind:?}: remove one of them")]
    OtherWindow {
        /// The setting.
        setting: &'static str,
        /// Its purpose.
        kind: &'static str,
    },
    /// A number is out of range.
    #[error("[aerotcp]: {0}")]
    Settings(#[from] SettingsError),
}

/// Configuration for [`bentpipe_aerotcp::io::Air::start`], for a ground at `address` and a handshake counter above every
/// earlier one (see [`crate::handshake_counter::claim`]).
pub fn air_config(
    config: &AirConfig,
    address: SocketAddr,
    first_counter: u64,
) -> Result<AeroAirConfig, AeroTcpError> {
    let link = &config.link;
    Ok(AeroAirConfig {
        secret: link.private_key.clone(),
        ground: link.peer_public_key,
        address,
        settings: settings(config.aerotcp.as_ref(), link.rate, link.mtu, config.limits.max_flows)?,
        first_counter,
    })
}

/// Configuration for [`bentpipe_aerotcp::io::Ground::start`].
pub fn ground_config(config: &GroundConfig) -> Result<AeroGroundConfig, AeroTcpError> {
    let mut aircraft = Vec::with_capacity(config.aircraft.len());
    for one in &config.aircraft {
        let mtu = one.mtu.unwrap_or(config.link.mtu);
        let settings = settings(config.aerotcp.as_ref(), one.rate, mtu, one.max_flows)?;
        let settings = Settings { peer_name: one.name.clone(), ..settings };
        aircraft.push(Aircraft { key: one.key, settings });
    }
    if config.aerotcp.is_none() {
        return Err(AeroTcpError::NoTable);
    }
    Ok(AeroGroundConfig { secret: config.link.private_key.clone(), aircraft })
}

/// The table's settings for a side that may send `rate` in packets of at most `mtu_bytes`.
fn settings(
    table: Option<&AeroTcp>,
    rate: BitRate,
    mtu_bytes: usize,
    max_flows: usize,
) -> Result<Settings, AeroTcpError> {
    let table = table.ok_or(AeroTcpError::NoTable)?;
    let max_flows = u32::try_from(max_flows).unwrap_or(u32::MAX);
    let settings = Settings {
        bandwidth: table.satellite_bandwidth.unwrap_or(rate),
        rtt: table.rtt.into(),
        window: window(table)?,
        peak_rate: table.peak_rate,
        buffer_factor: table.buffer_factor,
        memory: table.memory,
        mtu_bytes,
        max_connections: max_flows.saturating_add(CONNECTIONS_ENDING),
        ..Settings::default()
    };
    settings.check()?;
    Ok(settings)
}

fn window(table: &AeroTcp) -> Result<Window, AeroTcpError> {
    let other = |setting, kind| Err(AeroTcpError::OtherWindow { setting, kind });
    if table.window != WindowKind::Static && table.connections.is_some() {
        return other("connections", "static");
    }
    if table.window != WindowKind::Table && !table.table.is_empty() {
        return other("table", "table");
    }
    let row = |row: &bentpipe_config::TableRow| Row {
        connections: row.connections,
        bandwidth: row.bandwidth,
    };
    Ok(match table.window {
        WindowKind::Static => {
            let connections = table.connections.ok_or(AeroTcpError::NoConnections)?;
            Window::Static { connections }
        }
        WindowKind::Adaptive => Window::Adaptive,
        WindowKind::Table => Window::Table(table.table.iter().map(row).collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn read(text: &str) -> Result<Settings, String> {
        let table: AeroTcp = toml::from_str(text).map_err(|error| error.to_string())?;
        let rate = BitRate::from_bps(4_000_000);
        settings(Some(&table), rate, 1400, 100).map_err(|error| error.to_string())
    }

    #[test]
    fn every_setting_reaches_the_transport() {
        let settings = read("rtt = '480 ms'").unwrap();
        assert_eq!(settings.rtt, Duration::from_millis(480));
        assert_eq!((settings.window, settings.bandwidth.bps()), (Window::Adaptive, 4_000_000));
        let settings = read(
            "rtt = '480 ms'\nwindow = 'static'\nconnections = 10\nsatellite-bandwidth = '8 Mbit/s'\n\
             peak-rate = '400 kbit/s'\nbuffer-factor = 3\nmemory = '1 MiB'",
        )
        .unwrap();
        assert_eq!(settings.window, Window::Static { connections: 10 });
        assert_eq!(settings.bandwidth.bps(), 8_000_000);
        assert_eq!(settings.peak_rate.map(BitRate::bps), Some(400_000));
        assert_eq!((settings.buffer_factor, settings.memory.bytes()), (3, 1 << 20));
        assert_eq!(
            (settings.max_connections, settings.mtu_bytes),
            (100 + CONNECTIONS_ENDING, 1400)
        );
        let settings = read(
            "rtt = '480 ms'\nwindow = 'table'\ntable = [{ connections = 4, bandwidth = '1 Mbit/s' }]",
        );
        let row = Row { connections: 4, bandwidth: BitRate::from_bps(1_000_000) };
        assert_eq!(settings.unwrap().window, Window::Table(vec![row]));
    }

    #[test]
    fn missing_and_useless_settings_are_errors() {
        let why = |text: &str| read(text).unwrap_err();
        assert!(why("window = 'adaptive'").contains("rtt"));
        assert!(why("rtt = '480 ms'\nwindow = 'static'").contains("write connections = 10"));
        assert!(why("rtt = '480 ms'\nconnections = 10").contains("for window = \"static\""));
        assert!(why("rtt = '480 ms'\nwindow = 'table'").contains("0 rows"));
        let row = "table = [{ connections = 4, bandwidth = '1 Mbit/s' }]";
        assert!(why(&format!("rtt = '480 ms'\n{row}")).contains("for window = \"table\""));
        assert!(why("rtt = '480 ms'\nbuffer-factor = 9").contains("3 to 4"));
        assert!(why("rtt = '480 ms'\nwindow = 'fixed'").contains("fixed"));
        let none = settings(None, BitRate::from_bps(1), 1500, 1).unwrap_err().to_string();
        assert!(none.contains("write [aerotcp]"), "{none}");
    }
}
