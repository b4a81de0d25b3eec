//! Settings and bounds of the transport, each with its cost.

use std::{sync::Arc, time::Duration};

use quinn::{IdleTimeout, TransportConfig, VarInt, congestion};

/// Congestion controller of quinn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438), quinn's default.
    #[default]
    Cubic,
    /// NewReno (RFC 9002 §7).
    NewReno,
    /// quinn's BBR, which its authors call experimental.
    Bbr,
}

/// QUIC transport settings. The defaults suit a geostationary satellite with about 50 Mbit/s.
#[derive(Clone, Debug)]
pub struct Transport {
    /// Congestion controller.
    pub congestion: Congestion,
    /// Bytes that a peer may send on one connection before the flows are read. 16 MiB is 220 Mbit/s
    /// at 600 ms, and the most memory that one client's received bytes can use.
    pub connection_window_bytes: u32,
    /// The same for one flow. 4 MiB is 55 Mbit/s at 600 ms; quinn's default of 1.25 MB is 16
    /// Mbit/s.
    pub flow_window_bytes: u32,
    /// Bytes of one connection that are written but not acknowledged.
    pub send_window_bytes: u64,
    /// Maximum number of open flows of a client. quinn keeps a table entry of about 100 bytes for
    /// each: 1.6 MiB for 16,384.
    pub max_flows: u32,
    /// `true` to use QUIC DATAGRAM frames (RFC 9221). Without them datagrams travel on their flow's
    /// stream: in order and retransmitted.
    pub datagrams: bool,
    /// Maximum silence of a connection. Outages may last longer than a minute.
    pub idle_timeout: Duration,
    /// Keep-alive interval of an idle connection. It should be a fraction of `idle_timeout`, and
    /// short enough for the NATs on the path.
    pub keep_alive: Duration,
    /// Round-trip time before the first measurement. A too small value makes the handshake
    /// retransmit.
    pub initial_rtt: Duration,
    /// Packets after which an earlier one counts as lost (RFC 9002, section 6.1.1). A path that
    /// reorders needs more than the default of three.
    pub packet_threshold: u32,
}

impl Default for Transport {
    fn default() -> Transport {
        Transport {
            congestion: Congestion::Cubic,
            connection_window_bytes: 16 << 20,
            flow_window_bytes: 4 << 20,
            send_window_bytes: 16 << 20,
            max_flows: 16_384,
            datagrams: true,
            idle_timeout: Duration::from_secs(180),
            keep_alive: Duration::from_secs(15),
            initial_rtt: Duration::from_millis(700),
            packet_threshold: 3,
        }
    }
}

/// Maximum number of flows of a hub, for all its aircraft.
const MAX_HUB_FLOWS: u32 = 65_536;

/// Bytes that a hub may send before they are read, for all its aircraft.
const HUB_WINDOW_BYTES: u32 = 1 << 30;

/// Maximum number of streams of an unproven client: one authentication and a few tries.
pub(crate) const UNPROVEN_STREAMS: u32 = 4;

/// Bytes that an unproven client may send before the server reads them: 64 KiB × 256 connections =
/// 16 MiB.
pub(crate) const UNPROVEN_WINDOW_BYTES: u32 = 64 << 10;

/// Size of quinn's buffer for received datagrams, bytes. When it is full, the oldest go. Datagrams
/// are read at once, also on unproven connections.
const DATAGRAM_RECEIVE_BYTES: usize = 128 << 10;

/// Size of quinn's buffer for datagrams that wait for the congestion controller, bytes: half a
/// second of 2 Mbit/s. When it is full, the oldest go.
const DATAGRAM_SEND_BYTES: usize = 128 << 10;

/// Maximum number of unidirectional streams: the control stream, two of QPACK, and room for
/// extensions. RFC 9114 §6.2 requires at least 3.
const UNI_STREAMS: u32 = 8;

impl Transport {
    /// Settings of a client. The server opens no bidirectional streams (RFC 9114 §6.1).
    pub(crate) fn client(&self) -> Result<Arc<TransportConfig>, SettingsError> {
        let mut config = self.common()?;
        config
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .receive_window(VarInt::from_u32(self.connection_window_bytes));
        Ok(Arc::new(config))
    }

    /// Maximum number of flows of a proven client, and its window. A hub brings the flows of many
    /// aircraft, and no aircraft may block the others.
    pub(crate) fn of_client(&self, is_hub: bool) -> (u32, u32) {
        match is_hub {
            true => (MAX_HUB_FLOWS, HUB_WINDOW_BYTES),
            false => (self.max_flows, self.connection_window_bytes),
        }
    }

    /// Settings of a server until the client has proved its key. The limits are raised then.
    pub(crate) fn server(&self) -> Result<Arc<TransportConfig>, SettingsError> {
        let mut config = self.common()?;
        config
            .max_concurrent_bidi_streams(VarInt::from_u32(UNPROVEN_STREAMS))
            .receive_window(VarInt::from_u32(UNPROVEN_WINDOW_BYTES));
        Ok(Arc::new(config))
    }

    fn common(&self) -> Result<TransportConfig, SettingsError> {
        let idle = IdleTimeout::try_from(self.idle_timeout)
            .map_err(|_| SettingsError::IdleTimeout(self.idle_timeout))?;
        let mut config = TransportConfig::default();
        config
            .stream_receive_window(VarInt::from_u32(self.flow_window_bytes))
            .send_window(self.send_window_bytes)
            .max_concurrent_uni_streams(VarInt::from_u32(UNI_STREAMS))
            .max_idle_timeout(Some(idle))
            .keep_alive_interval(Some(self.keep_alive))
            .initial_rtt(self.initial_rtt)
            .packet_threshold(self.packet_threshold)
            .datagram_receive_buffer_size(self.datagrams.then_some(DATAGRAM_RECEIVE_BYTES))
            .datagram_send_buffer_size(DATAGRAM_SEND_BYTES)
            .congestion_controller_factory(match self.congestion {
                Congestion::Cubic => Arc::new(congestion::CubicConfig::default()),
                Congestion::NewReno => Arc::new(congestion::NewRenoConfig::default()),
                Congestion::Bbr => Arc::new(congestion::BbrConfig::default()),
            });
        Ok(config)
    }
}

/// A setting that QUIC cannot express.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The idle timeout must be below 2^62 ms.
    #[error("an idle timeout of {0:?} is too long for QUIC; give days at most")]
    IdleTimeout(Duration),
}
