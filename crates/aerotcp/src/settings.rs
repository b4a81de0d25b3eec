//! Settings of one end: bandwidth and round trip of the satellite, and the paper's rules that
//! derive windows and buffers from them.

use std::fmt::Display;
use std::time::Duration;

use bentpipe_link::PublicKey;
use bentpipe_units::{BitRate, ByteSize};

/// Minimum congestion window in packets. With a single packet, no acknowledgement would ever be a
/// duplicate.
pub const MIN_WINDOW_PACKETS: u32 = 2;

/// Minimum size of a buffer in full packets, however short the link is.
pub const MIN_BUFFER_PACKETS: u64 = 8;

/// Memory guaranteed to each connection at each end. It is reserved in addition to
/// [`Settings::memory`]: 4,096 × 16 KiB × 2 directions = 128 MiB with 4,096 connections.
pub const RESERVE_BYTES: usize = 16 << 10;

/// Allowed buffer factors: two peak rate delay products at low error rates, three to four at high
/// ones (section V.B).
pub const BUFFER_FACTORS: std::ops::RangeInclusive<u32> = 2..=4;

/// Maximum number of rows in a table of windows.
pub const MAX_TABLE_ROWS: usize = 64;

/// Settings of one end of an association. Both ends may differ.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the peer in the log. If empty, its key is logged.
    pub peer_name: String,
    /// SatBW: sending rate of this end, counted in IP bytes.
    ///
    /// The paper deducts the headers and counts payload. Whole packets at the whole bandwidth give
    /// the same window.
    pub bandwidth: BitRate,
    /// SatRTT: round trip between the gateways.
    pub rtt: Duration,
    /// Division of the bandwidth (section V.C).
    pub window: Window,
    /// PR: maximum rate of one connection in either direction (section V.B). `None` if a lone
    /// connection may fill the link.
    pub peak_rate: Option<BitRate>,
    /// Buffers of the satellite connection in peak rate delay products, within [`BUFFER_FACTORS`].
    pub buffer_factor: u32,
    /// Largest IP packet on the link, headers included.
    pub mtu_bytes: usize,
    /// Maximum number of open connections.
    pub max_connections: u32,
    /// Memory of all connections in addition to [`RESERVE_BYTES`] each. One half is for sending,
    /// one for receiving.
    pub memory: ByteSize,
    /// Lifetime of packet keys.
    pub key_lifetime: Duration,
    /// Keep-alive interval of the air gateway, for NATs and firewalls on the path.
    pub keepalive: Duration,
}

/// Division of the satellite's bandwidth among the connections (section V.C).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Window {
    /// SatBW/N × SatRTT with a constant N. The paper's conservative choice of N is the maximum
    /// number of connections.
    Static {
        /// N.
        connections: u32,
    },
    /// SatBW/N × SatRTT with the number of open connections as N.
    Adaptive,
    /// Looked up when a connection begins, and constant for its lifetime.
    Table(Vec<Row>),
}

/// A row of [`Window::Table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Maximum number of open connections for which the row applies, the new one included. The last
    /// row applies to larger numbers.
    pub connections: u32,
    /// Bandwidth of the connection.
    pub bandwidth: BitRate,
}

/// Buffers of one connection (section V.B).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// SndBuf of the satellite connection: unacknowledged bytes. Writers block when it is full.
    pub send: usize,
    /// Receive buffer of the satellite connection, including packets out of order. The advertised
    /// window is its free part.
    pub receive: usize,
    /// Send buffer of the aircraft's TCP connection to the passenger. One product is enough for
    /// this short and clean path.
    pub aircraft_send: usize,
    /// RecBuf of the ground's TCP connection to the server: twice the required product, so that
    /// data is ready when the satellite connection has recovered.
    pub ground_receive: usize,
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The bandwidth is zero, so the link cannot send.
    #[error("the satellite's bandwidth is 0: give what this side may send, like \"4 Mbit/s\"")]
    NoBandwidth,
    /// The round trip is zero, so windows would be zero.
    #[error(
        "the round trip is 0: give the one between the gateways, like \"480 ms\"; the window is \
         made of it"
    )]
    NoRoundTrip,
    /// N of [`Window::Static`] is zero.
    #[error("a static window for 0 connections: give the most that will be open, like 10")]
    NoConnections,
    /// The peak rate is zero, so a connection could never send.
    #[error("the peak rate is 0: leave it out, or give what one connection may reach")]
    NoPeakRate,
    /// The factor is outside of the paper's range.
    #[error(
        "buffers of {0} peak rate delay products: the paper gives 2, and 3 to 4 at high error rates"
    )]
    BufferFactor(u32),
    /// The table is empty or too long.
    #[error("the table of windows has {0} rows: give between 1 and {MAX_TABLE_ROWS}")]
    TableRows(usize),
    /// The rows are out of order, or a bandwidth is zero.
    #[error(
        "the row for {0} connections is out of place: numbers of connections rise from row to \
         row, and every bandwidth is above 0"
    )]
    TableOrder(u32),
    /// The MTU is outside of the range for IP packets.
    #[error("an MTU of {0} bytes is out of range: give 1280 to 65535")]
    Mtu(usize),
    /// The maximum number of connections is zero.
    #[error("0 connections at most: give how many may be open at once")]
    NoneAllowed,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            peer_name: String::new(),
            bandwidth: BitRate::from_bps(1_000_000),
            rtt: Duration::from_millis(480),
            window: Window::Adaptive,
            peak_rate: None,
            buffer_factor: *BUFFER_FACTORS.start(),
            mtu_bytes: 1500,
            max_connections: 4096,
            memory: ByteSize::from_bytes(512 << 20),
            key_lifetime: Duration::from_secs(900),
            keepalive: Duration::from_secs(15),
        }
    }
}

impl Settings {
    /// Name of the peer with this key in the log.
    pub(crate) fn called<'a>(&'a self, key: &'a PublicKey) -> &'a dyn Display {
        if self.peer_name.is_empty() { key } else { &self.peer_name }
    }

    /// Checks the settings.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.bandwidth.bps() == 0 {
            return Err(SettingsError::NoBandwidth);
        }
        if self.rtt.is_zero() {
            return Err(SettingsError::NoRoundTrip);
        }
        if self.peak_rate.is_some_and(|rate| rate.bps() == 0) {
            return Err(SettingsError::NoPeakRate);
        }
        if !BUFFER_FACTORS.contains(&self.buffer_factor) {
            return Err(SettingsError::BufferFactor(self.buffer_factor));
        }
        if !(1280..=65_535).contains(&self.mtu_bytes) {
            return Err(SettingsError::Mtu(self.mtu_bytes));
        }
        if self.max_connections == 0 {
            return Err(SettingsError::NoneAllowed);
        }
        self.window.check()
    }

    /// Congestion window of a connection in packets, with `live` open connections (section V.C).
    /// For [`Window::Table`], `live` is the number when the connection began.
    ///
    /// The peak rate bounds every window (section V.B).
    pub fn window_packets(&self, live: u32) -> u32 {
        let share = self.window.share(self.bandwidth, live);
        let rate = self.peak_rate.map_or(share, |peak| share.min(peak));
        let packets = rate.bytes_in(self.rtt) / self.mtu_bytes as u64;
        u32::try_from(packets).unwrap_or(u32::MAX).max(MIN_WINDOW_PACKETS)
    }

    /// Buffers of a connection whose peer may send at `peer_bandwidth` (section V.B).
    pub fn buffers(&self, peer_bandwidth: BitRate) -> Buffers {
        let least = MIN_BUFFER_PACKETS * self.mtu_bytes as u64;
        let product = |bandwidth: BitRate, times: u32| {
            let rate = self.peak_rate.map_or(bandwidth, |peak| peak.min(bandwidth));
            let bytes = rate.bytes_in(self.rtt).saturating_mul(times.into());
            usize::try_from(bytes.clamp(least, self.memory.bytes().max(least)))
                .unwrap_or(usize::MAX)
        };
        Buffers {
            send: product(self.bandwidth, self.buffer_factor),
            receive: product(peer_bandwidth, self.buffer_factor),
            aircraft_send: product(peer_bandwidth, 1),
            ground_receive: product(self.bandwidth, 2),
        }
    }
}

impl Window {
    fn check(&self) -> Result<(), SettingsError> {
        match self {
            Self::Static { connections: 0 } => Err(SettingsError::NoConnections),
            Self::Static { .. } | Self::Adaptive => Ok(()),
            Self::Table(rows) if !(1..=MAX_TABLE_ROWS).contains(&rows.len()) => {
                Err(SettingsError::TableRows(rows.len()))
            }
            Self::Table(rows) => {
                let mut before = 0;
                for row in rows {
                    if row.connections <= before || row.bandwidth.bps() == 0 {
                        return Err(SettingsError::TableOrder(row.connections));
                    }
                    before = row.connections;
                }
                Ok(())
            }
        }
    }

    /// Bandwidth of one connection, with `live` open connections.
    fn share(&self, bandwidth: BitRate, live: u32) -> BitRate {
        let divided = |by: u32| BitRate::from_bps(bandwidth.bps() / u64::from(by.max(1)));
        match self {
            Self::Static { connections } => divided(*connections),
            Self::Adaptive => divided(live),
            Self::Table(rows) => {
                let row = rows.iter().find(|row| live <= row.connections).or(rows.last());
                row.map_or(bandwidth, |row| row.bandwidth)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The link of section VI: 4 Mbit/s, 480 ms.
    fn paper(window: Window) -> Settings {
        Settings {
            bandwidth: mbps(4),
            rtt: Duration::from_millis(480),
            window,
            ..Settings::default()
        }
    }

    fn mbps(rate: u64) -> BitRate {
        BitRate::from_bps(rate * 1_000_000)
    }

    #[test]
    fn windows_are_the_bandwidth_divided() {
        // 4 Mbit/s × 480 ms = 240,000 bytes = 160 packets.
        let settings = paper(Window::Static { connections: 10 });
        assert_eq!([1, 10, 20].map(|live| settings.window_packets(live)), [16; 3]);
        let settings = paper(Window::Adaptive);
        assert_eq!([0, 1, 4, 10].map(|live| settings.window_packets(live)), [160, 160, 40, 16]);
        assert_eq!(settings.window_packets(10_000), MIN_WINDOW_PACKETS);
        let row = |connections, rate| Row { connections, bandwidth: mbps(rate) };
        let settings = paper(Window::Table(vec![row(2, 2), row(8, 1)]));
        assert_eq!([1, 2, 3, 8, 9].map(|live| settings.window_packets(live)), [80, 80, 40, 40, 40]);
        let peak = Settings { peak_rate: Some(mbps(1)), ..paper(Window::Adaptive) };
        assert_eq!([1, 10].map(|live| peak.window_packets(live)), [40, 16]);
    }

    #[test]
    fn buffers_are_multiples_of_the_peak_rate_delay_product() {
        let settings = Settings { peak_rate: Some(mbps(1)), ..paper(Window::Adaptive) };
        let product = 60_000;
        let expected = Buffers {
            send: 2 * product,
            receive: 2 * product,
            aircraft_send: product,
            ground_receive: 2 * product,
        };
        assert_eq!(settings.buffers(mbps(4)), expected);
        let high = Settings { buffer_factor: 4, ..settings.clone() };
        let expected = Buffers { send: 4 * product, receive: 4 * product, ..expected };
        assert_eq!(high.buffers(mbps(4)), expected, "high error rates");
        // A direction that cannot reach the peak rate needs less.
        let narrow = BitRate::from_bps(250_000);
        assert_eq!(settings.buffers(narrow).receive, 30_000);
        assert_eq!(settings.buffers(narrow).aircraft_send, 15_000);
    }

    #[test]
    fn invalid_settings_have_reasons() {
        assert_eq!(Settings::default().check(), Ok(()));
        let why = |settings: Settings| settings.check().unwrap_err();
        let default = Settings::default;
        assert_eq!(why(Settings { bandwidth: mbps(0), ..default() }), SettingsError::NoBandwidth);
        assert_eq!(why(Settings { rtt: Duration::ZERO, ..default() }), SettingsError::NoRoundTrip);
        assert_eq!(why(paper(Window::Static { connections: 0 })), SettingsError::NoConnections);
        assert_eq!(why(paper(Window::Table(vec![]))), SettingsError::TableRows(0));
        let row = |connections| Row { connections, bandwidth: mbps(1) };
        let rows = Window::Table(vec![row(2), row(2)]);
        assert_eq!(why(paper(rows)), SettingsError::TableOrder(2));
        let error = why(Settings { buffer_factor: 5, ..default() }).to_string();
        assert!(error.contains("3 to 4 at high error rates"), "{error}");
        assert_eq!(
            why(Settings { peak_rate: Some(mbps(0)), ..default() }),
            SettingsError::NoPeakRate
        );
        assert_eq!(why(Settings { mtu_bytes: 576, ..default() }), SettingsError::Mtu(576));
        assert_eq!(why(Settings { max_connections: 0, ..default() }), SettingsError::NoneAllowed);
    }
}
