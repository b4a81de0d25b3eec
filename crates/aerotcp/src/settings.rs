//! Settings of one end: the satellite's bandwidth and round trip, and the paper's rules that derive
//! windows and buffers from them.

use std::fmt::Display;
use std::time::Duration;

use bentpipe_link::PublicKey;
use bentpipe_units::{BitRate, ByteSize};

/// A connection may always have so many packets under way: with one alone, no acknowledgement
/// would ever be a duplicate.
pub const LEAST_WINDOW_PACKETS: u32 = 2;

/// A buffer holds at least so many full packets, however short the link.
pub const LEAST_BUFFER_PACKETS: u64 = 8;

/// Memory guaranteed to a connection at each end, whatever the others hold. `max_connections` of
/// these are set aside beyond [`Settings::memory`]: 4,096 × 16 KiB × 2 directions = 128 MiB.
pub const RESERVE_BYTES: usize = 16 << 10;

/// Section V.B: two peak rate delay products at low error rates, three to four at high ones.
pub const BUFFER_FACTORS: std::ops::RangeInclusive<u32> = 2..=4;

/// Most rows that a table of windows may have.
pub const MAX_TABLE_ROWS: usize = 64;

/// Settings of one end of an association. The two ends may differ.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the peer in the log; empty: its key.
    pub peer_name: String,
    /// SatBW: what this end may send, counted in IP bytes.
    ///
    /// The paper deducts the headers and counts payload; whole packets at the whole bandwidth make
    /// the same window.
    pub bandwidth: BitRate,
    /// SatRTT: the round trip between the gateways.
    pub rtt: Duration,
    /// Division of the bandwidth (section V.C).
    pub window: Window,
    /// PR: the most that one connection may reach in either direction (section V.B); absent where
    /// a lone connection may fill the link.
    pub peak_rate: Option<BitRate>,
    /// Buffers of the satellite connection, in peak rate delay products: one of
    /// [`BUFFER_FACTORS`].
    pub buffer_factor: u32,
    /// Largest IP packet on the link, headers included.
    pub mtu_bytes: usize,
    /// Connections at once.
    pub max_connections: u32,
    /// Memory of all connections together beyond [`RESERVE_BYTES`] each: one half for sending, one
    /// for receiving.
    pub memory: ByteSize,
    /// Packet keys are replaced after this.
    pub key_lifetime: Duration,
    /// The air's end sends something this often, so that a NAT or firewall keeps the way open.
    pub keepalive: Duration,
}

/// Division of the satellite's bandwidth among the connections (section V.C).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Window {
    /// The same for all: SatBW/N × SatRTT. The paper's conservative choice of N is the most there
    /// will be.
    Static {
        /// N.
        connections: u32,
    },
    /// SatBW/N × SatRTT with the connections that are open now as N.
    Adaptive,
    /// Looked up when a connection begins, and kept while it lasts.
    Table(Vec<Row>),
}

/// A row of [`Window::Table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The row is for a connection that finds at most so many open, itself included. More than the
    /// last row says take the last row.
    pub connections: u32,
    /// Bandwidth given to it.
    pub bandwidth: BitRate,
}

/// The buffers of one connection, by the rules of section V.B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// SndBuf of the satellite connection: what is not acknowledged yet. Its writer blocks at it.
    pub send: usize,
    /// The receive buffer of the satellite connection, where packets that are out of order wait
    /// too; the advertised window is what is free of it.
    pub receive: usize,
    /// The send buffer of the aircraft's own TCP connection to the passenger: one product is
    /// enough, for a short and clean way.
    pub aircraft_send: usize,
    /// RecBuf of the ground's own TCP connection to the server: twice the one product it needs, so
    /// that there is a backlog to send when the satellite connection has recovered.
    pub ground_receive: usize,
}

/// A setting that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A link without a rate cannot send.
    #[error("the satellite's bandwidth is 0: give what this side may send, like \"4 Mbit/s\"")]
    NoBandwidth,
    /// A window is a rate times this.
    #[error(
        "the round trip is 0: give the one between the gateways, like \"480 ms\"; the window is \
         made of it"
    )]
    NoRoundTrip,
    /// SatBW/0.
    #[error("a static window for 0 connections: give the most that will be open, like 10")]
    NoConnections,
    /// A connection could never send.
    #[error("the peak rate is 0: leave it out, or give what one connection may reach")]
    NoPeakRate,
    /// Outside the paper's range.
    #[error(
        "buffers of {0} peak rate delay products: the paper gives 2, and 3 to 4 at high error rates"
    )]
    BufferFactor(u32),
    /// Nothing to look up.
    #[error("the table of windows has {0} rows: give between 1 and {MAX_TABLE_ROWS}")]
    TableRows(usize),
    /// Rows out of order, or a bandwidth of nothing.
    #[error(
        "the row for {0} connections is out of place: numbers of connections rise from row to \
         row, and every bandwidth is above 0"
    )]
    TableOrder(u32),
    /// Outside what an IP packet may be.
    #[error("an MTU of {0} bytes is out of range: give 1280 to 65535")]
    Mtu(usize),
    /// Nobody could open one.
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

    /// Refuses what cannot work.
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

    /// The window of a connection in packets, while `live` are open (section V.C). For
    /// [`Window::Table`], `live` is as it was when the connection began.
    ///
    /// No connection gets more than its peak rate (section V.B).
    pub fn window_packets(&self, live: u32) -> u32 {
        let share = self.window.share(self.bandwidth, live);
        let rate = self.peak_rate.map_or(share, |peak| share.min(peak));
        let packets = rate.bytes_in(self.rtt) / self.mtu_bytes as u64;
        u32::try_from(packets).unwrap_or(u32::MAX).max(LEAST_WINDOW_PACKETS)
    }

    /// The buffers of a connection whose other end may send `peer_bandwidth` (section V.B).
    pub fn buffers(&self, peer_bandwidth: BitRate) -> Buffers {
        let least = LEAST_BUFFER_PACKETS * self.mtu_bytes as u64;
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

    /// The bandwidth of one connection, while `live` are open.
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
        assert_eq!(settings.window_packets(10_000), LEAST_WINDOW_PACKETS);
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
    fn what_cannot_work_says_why() {
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
