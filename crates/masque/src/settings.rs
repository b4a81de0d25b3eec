//! The transport's settings and bounds, each with what it costs.

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

/// Transport settings of QUIC. The defaults suit a geostationary satellite of some 50 Mbit/s.
#[derive(Clone, Debug)]
pub struct Transport {
    /// The congestion controller.
    pub congestion: Congestion,
    /// Bytes that one connection may have in flight towards us before the flows are read. 16 MiB is
    /// 220 Mbit/s at 600 ms, and the most memory one client can hold here in received bytes.
    pub connection_window_bytes: u32,
    /// The same for one flow: 4 MiB is 55 Mbit/s at 600 ms; quinn's own default of 1.25 MB is 16.
    pub flow_window_bytes: u32,
    /// Bytes that one connection may hold written and not yet acknowledged.
    pub send_window_bytes: u64,
    /// Flows one client may have open at once. quinn keeps a table entry for each it allows,
    /// about 100 bytes: 1.6 MiB for 16,384.
    pub max_flows: u32,
    /// `true` to use QUIC DATAGRAM frames (RFC 9221). Without them datagrams travel on their flow's
    /// stream: in order, and again if they were lost.
    pub datagrams: bool,
    /// A connection on which nothing was heard for so long is given up: outages may last longer
    /// than a minute.
    pub idle_timeout: Duration,
    /// Keep-alive interval of an idle connection; a few times within `idle_timeout`, and often
    /// enough for the NATs on the path.
    pub keep_alive: Duration,
    /// The round trip assumed before one is measured; too little makes the handshake repeat itself.
    pub initial_rtt: Duration,
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
        }
    }
}

/// The streams a client may open before it has proved its key: one authentication and a few tries.
pub(crate) const UNPROVEN_STREAMS: u32 = 4;

/// Bytes that an unproven client may send before the server reads them; 256 such connections hold
/// 16 MiB.
pub(crate) const UNPROVEN_WINDOW_BYTES: u32 = 64 << 10;

/// Datagrams that wait within QUIC until they are handed to their flows, before its oldest go. They
/// are read at once, also of unproven connections.
const DATAGRAM_RECEIVE_BYTES: usize = 128 << 10;

/// Datagrams of one connection that wait for the congestion controller, before its oldest go: half
/// a second of 2 Mbit/s.
const DATAGRAM_SEND_BYTES: usize = 128 << 10;

/// The control stream, the two of QPACK and room for extensions' (RFC 9114 §6.2 wants 3 at least).
const UNI_STREAMS: u32 = 8;

impl Transport {
    /// Settings of a client: the server opens no bidirectional streams (RFC 9114 §6.1).
    pub(crate) fn client(&self) -> Result<Arc<TransportConfig>, SettingsError> {
        let mut config = self.common()?;
        config
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .receive_window(VarInt::from_u32(self.connection_window_bytes));
        Ok(Arc::new(config))
    }

    /// Settings of a server until the client has proved its key; the rest is opened then.
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

/// A setting QUIC cannot express.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Idle timeouts are below 2^62 ms.
    #[error("an idle timeout of {0:?} is too long for QUIC; give days at most")]
    IdleTimeout(Duration),
}
