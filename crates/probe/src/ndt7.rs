//! ndt7, version 0.11.0: goodput of one TCP connection for ten seconds, over WebSocket.
//!
//! The protocol is that of [M-Lab](https://github.com/m-lab/ndt-server/blob/main/spec/ndt7-protocol.md). Names of
//! fields are the protocol's own.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::random::Random;
use crate::rate::Direction;

/// WebSocket subprotocol.
pub const SUBPROTOCOL: &str = "net.measurementlab.ndt.v7";

/// Length of a test from the end of the handshake on.
pub const LENGTH: Duration = Duration::from_secs(10);

/// Time after which a test may be cut.
pub const MAX_LENGTH: Duration = Duration::from_secs(13);

/// Interval of measurement messages. The protocol allows ten a second.
pub const INTERVAL: Duration = Duration::from_millis(250);

/// Smallest, first and largest binary message.
pub const MIN_MESSAGE: usize = 1 << 10;
const FIRST_MESSAGE: usize = 1 << 13;
/// Largest binary message, in bytes.
pub const MAX_MESSAGE: usize = 1 << 24;

/// Largest binary message that is sent. Larger ones save little, and the receiver keeps each in memory.
pub const MAX_SENT_MESSAGE: usize = 1 << 19;

/// Longest measurement message that is read.
const MAX_TEXT: usize = 1 << 14;

/// Maximum number of samples of a test: one each 250 ms.
pub const MAX_SAMPLES: usize = 64;

/// Mean, shortest and longest time between two tests of the public service, in seconds.
const MEAN_S: f64 = 21_600.0;
const MIN_S: f64 = 2160.0;
const MAX_S: f64 = 54_000.0;

/// Path of a test.
pub fn path(direction: Direction) -> &'static str {
    match direction {
        Direction::Down => "/ndt/v7/download",
        Direction::Up => "/ndt/v7/upload",
    }
}

/// The time between two tests of the public service, as its operator asks.
fn public_wait(random: &mut Random) -> Duration {
    let drawn = -MEAN_S * (1.0 - random.unit()).ln();
    Duration::from_secs_f64(drawn.clamp(MIN_S, MAX_S))
}

/// The time until the next test of the public service, at the wall clock `now_us`, if the last one was at `last_us`. It
/// is drawn from the time of the last test, so that a restart does not draw another one. A clock that was set back makes
/// nothing longer than the longest wait.
pub fn public_wait_since(last_us: i64, now_us: i64) -> Duration {
    let passed = Duration::from_micros(u64::try_from(now_us.saturating_sub(last_us)).unwrap_or(0));
    public_wait(&mut Random::new(last_us.cast_unsigned())).saturating_sub(passed)
}

/// Size of the next binary message, after `sent` bytes with messages of `size`: it doubles while it is below a
/// sixteenth of them.
pub fn next_size(size: usize, sent: u64) -> usize {
    match size {
        0 => FIRST_MESSAGE,
        size if size < MAX_SENT_MESSAGE && (size as u64) < sent / 16 => size * 2,
        size => size,
    }
}

/// A measurement message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Message {
    /// Measurement of the application.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_info: Option<AppInfo>,
    /// The connection as the server sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_info: Option<ConnectionInfo>,
    /// Author of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Name of the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<String>,
    /// Measurement of the kernel.
    #[serde(rename = "TCPInfo", skip_serializing_if = "Option::is_none")]
    pub tcp_info: Option<TcpInfo>,
}

impl Message {
    /// Reads a message. Other fields are left out.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        serde_json::from_str(text).ok()
    }
}

/// Measurement of the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AppInfo {
    /// Time since the handshake in microseconds.
    pub elapsed_time: i64,
    /// Bytes sent or received.
    pub num_bytes: i64,
}

/// The connection as the server sees it. Its identifier and the client's address are read and not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ConnectionInfo {
    /// Client's address and port.
    pub client: String,
    /// Server's address and port.
    pub server: String,
}

/// Measurement of the kernel; times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TcpInfo {
    /// Time with data to send.
    pub busy_time: i64,
    /// Bytes that the other side acknowledged.
    pub bytes_acked: i64,
    /// Bytes that were acknowledged.
    pub bytes_received: i64,
    /// Bytes sent, with those sent again.
    pub bytes_sent: i64,
    /// Bytes sent again.
    pub bytes_retrans: i64,
    /// Time since the handshake.
    pub elapsed_time: i64,
    /// Smallest round-trip time.
    #[serde(rename = "MinRTT")]
    pub min_rtt: i64,
    /// Smoothed round-trip time.
    #[serde(rename = "RTT")]
    pub rtt: i64,
    /// Its deviation.
    #[serde(rename = "RTTVar")]
    pub rtt_var: i64,
    /// Time limited by the receiver's window.
    pub r_wnd_limited: i64,
    /// Time limited by the sender's buffer.
    pub snd_buf_limited: i64,
}

/// A test of one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ndt7 {
    /// Server: its name or address.
    pub server: String,
    /// Set for the public service.
    pub public: bool,
    /// Address of the server.
    pub address: Option<SocketAddr>,
    /// Direction.
    pub direction: Direction,
    /// Time from the begin to the end of the WebSocket handshake in microseconds.
    pub handshake_us: Option<u64>,
    /// Bytes received by the probe, or handed to the kernel, over the time since the handshake in microseconds.
    pub samples: Vec<(u64, u64)>,
    /// The server's last message. Of an upload it tells what arrived.
    pub server_app: Option<AppInfo>,
    /// The server's kernel. In flight it may see a proxy on the ground.
    pub server_tcp: Option<TcpInfo>,
    /// The probe's own kernel. In flight it may see a proxy in the cabin.
    pub own_tcp: Option<TcpInfo>,
    /// The failure in OONI's manner. A test that was cut has one, and its samples.
    pub failure: Option<String>,
}

impl Ndt7 {
    /// A test that has not begun.
    pub fn new(server: String, direction: Direction) -> Self {
        Self {
            server,
            public: false,
            address: None,
            direction,
            handshake_us: None,
            samples: Vec::new(),
            server_app: None,
            server_tcp: None,
            own_tcp: None,
            failure: None,
        }
    }

    /// Goodput in bits per second, by the receiver if it is known. `None` for less than a second of data.
    pub fn goodput_bps(&self) -> Option<u64> {
        let own = self.samples.last().copied();
        let reported = self.server_app.and_then(|app| {
            Some((u64::try_from(app.elapsed_time).ok()?, u64::try_from(app.num_bytes).ok()?))
        });
        let (elapsed_us, bytes) = match self.direction {
            Direction::Down => own?,
            Direction::Up => reported.or(own)?,
        };
        (elapsed_us >= 1_000_000 && bytes > 0).then(|| {
            u64::try_from(u128::from(bytes) * 8_000_000 / u128::from(elapsed_us))
                .unwrap_or(u64::MAX)
        })
    }

    /// Notes the server's message.
    pub fn note(&mut self, message: &Message) {
        self.server_app = message.app_info.or(self.server_app);
        self.server_tcp = message.tcp_info.or(self.server_tcp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_protocols_names() {
        // The example of the specification, with a field of a newer kernel.
        let text = r#"{"AppInfo":{"ElapsedTime":1234,"NumBytes":5678},"ConnectionInfo":{"Client":"1.2.3.4:5678",
            "Server":"[::1]:2345","UUID":"x","StartTime":"2019-07-16T15:26:05-04:00"},"Origin":"server",
            "Test":"download","TCPInfo":{"BusyTime":1,"BytesAcked":2,"BytesReceived":3,"BytesSent":4,
            "BytesRetrans":5,"ElapsedTime":6,"MinRTT":7,"RTT":8,"RTTVar":9,"RWndLimited":10,"SndBufLimited":11,
            "State":1}}"#;
        let message = Message::parse(text).unwrap();
        let tcp = message.tcp_info.unwrap();
        assert_eq!(
            (tcp.min_rtt, tcp.rtt_var, tcp.r_wnd_limited, tcp.snd_buf_limited),
            (7, 9, 10, 11)
        );
        assert_eq!(message.connection_info.as_ref().unwrap().server, "[::1]:2345");
        let again = serde_json::to_string(&message).unwrap();
        assert_eq!(Message::parse(&again), Some(message));
        for name in
            ["\"TCPInfo\"", "\"MinRTT\"", "\"RWndLimited\"", "\"SndBufLimited\"", "\"NumBytes\""]
        {
            assert!(again.contains(name), "{name}: {again}");
        }
        assert_eq!(Message::parse("{}"), Some(Message::default()));
        assert!(Message::parse("[").is_none() && Message::parse(&" ".repeat(20_000)).is_none());
    }

    #[test]
    fn goodput_is_that_of_the_receiver() {
        let mut test = Ndt7::new("s".into(), Direction::Up);
        assert_eq!(test.goodput_bps(), None);
        test.samples.push((10_000_000, 2_000_000));
        assert_eq!(test.goodput_bps(), Some(1_600_000));
        let app_info = Some(AppInfo { elapsed_time: 10_000_000, num_bytes: 1_250_000 });
        test.note(&Message { app_info, ..Message::default() });
        assert_eq!(test.goodput_bps(), Some(1_000_000));
        assert_eq!(
            Ndt7 { direction: Direction::Down, ..test.clone() }.goodput_bps(),
            Some(1_600_000)
        );
        let app_info = Some(AppInfo { elapsed_time: -1, num_bytes: i64::MAX });
        test.note(&Message { app_info, ..Message::default() });
        assert_eq!(test.goodput_bps(), Some(1_600_000));
    }

    #[test]
    fn sizes_double_for_fast_clients() {
        let (mut size, mut sent) = (0, 0);
        let mut sizes = Vec::new();
        for _ in 0..2000 {
            size = next_size(size, sent);
            sent += size as u64;
            sizes.push(size);
        }
        assert_eq!((sizes[0], sizes[16], sizes[18]), (8192, 8192, 16_384));
        assert_eq!(sizes.last(), Some(&MAX_SENT_MESSAGE));
        assert!(sizes.iter().all(|size| size.is_power_of_two()));
    }

    #[test]
    fn the_public_service_is_used_as_its_operator_asks() {
        // Each test is a little more than the shortest wait after the one before.
        let waits: Vec<f64> = (0..20_000)
            .map(|test| 2_200_000_000 * test)
            .map(|last_us| public_wait_since(last_us, last_us).as_secs_f64())
            .collect();
        assert!(waits.iter().all(|wait| (MIN_S..=MAX_S).contains(wait)));
        // Of the exponential distribution: e^-0.1 above the minimum, and the mean of the clamped one.
        let shortest = waits.iter().filter(|wait| **wait == MIN_S).count() as f64 / 20_000.0;
        assert!((shortest - 0.0952).abs() < 0.01, "{shortest}");
        let minute = 60_000_000;
        let since = |passed| public_wait_since(minute, minute + passed);
        assert_eq!(since(-minute), since(0), "the clock was set back");
        assert_eq!(since(0), since(minute) + Duration::from_secs(60));
        assert_eq!(since(1000 * minute), Duration::ZERO);
        let mean = waits.iter().sum::<f64>() / 20_000.0;
        let expected = MIN_S + MEAN_S * ((-MIN_S / MEAN_S).exp() - (-MAX_S / MEAN_S).exp());
        assert!((mean / expected - 1.0).abs() < 0.02, "{mean} {expected}");
    }

    #[test]
    fn restarts_do_not_change_the_time_of_the_next_public_test() {
        let last_us = 1_780_000_000_000_000;
        let due = |at_us| at_us + public_wait_since(last_us, at_us).as_micros() as i64;
        // A restart each 20 s, within the shortest wait.
        let found: Vec<i64> = (0..100).map(|restart| due(last_us + restart * 20_000_000)).collect();
        assert!(found.iter().all(|due| *due == found[0]), "{found:?}");
        assert!(found[0] >= last_us + 2_160_000_000);
    }
}
