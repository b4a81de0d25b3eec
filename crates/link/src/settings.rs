//! Settings of a session: every bound of the transport, with its cost.

use std::fmt::Display;
use std::time::Duration;

use bentpipe_schedule::{ClassSettings, PerClass};
use bentpipe_units::{BitRate, ByteSize};

use crate::Class;
use crate::lease::{LeaseMode, Share};
pub use crate::path_settings::PathSettings;
use crate::path_settings::check_path;
use crate::quota::PathQuota;
pub use crate::settings_error::{MIN_MTU_BYTES, MIN_RATE, SettingsError};
pub use crate::wire::header::MAX_PATHS;

/// Bounds and timers of one session. The defaults suit a terminal with 256 MiB to spare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of the peer in the log. If empty, the log has its key or its address.
    pub peer_name: String,
    /// Control of the sending rate within `rate`.
    pub control: Control,
    /// Rate that the operator lets this side use, in IP bytes: the lease itself with
    /// [`LeaseMode::Static`], and the cap of any other lease.
    pub rate: BitRate,
    /// Origin of the rate.
    pub lease: LeaseMode,
    /// With [`LeaseMode::Learned`]: bytes of padding that this side may send to learn the rate when
    /// the session begins, before anybody has data; 0 where bytes cost money.
    pub learn_bytes: ByteSize,
    /// At the ground: the aircraft's share of a beam.
    pub share: Share,
    /// Largest IP packet on the radio path, with its headers, as provisioned by the operator. It is
    /// never exceeded. It is in use once the path has shown that it carries it, one round trip
    /// after the start. On other paths, smaller packets are used.
    pub mtu_bytes: usize,
    /// Memory for received bytes that wait for their reader. With 4,096 flows of 64 KiB, half of
    /// the default is reserved; the other half is lent to flows that fill the link.
    pub receive_memory: ByteSize,
    /// Memory for unreported symbols and for bytes that wait to be sent, half each. Half of the
    /// latter is divided into equal shares, 16 KiB for each of 4,096 flows, so that no flow waits
    /// for another. The rest is lent, at most a quarter of it to one passenger.
    pub send_memory: ByteSize,
    /// Memory for symbols that repairs combine, beyond unreported ones: a quarter for each reliable
    /// lane in each direction. Each quarter of the default holds 2,796 symbols of 1,500 bytes. The
    /// datagram lane keeps 1,024 received symbols in addition, 1.5 MB.
    pub code_memory: ByteSize,
    /// Credit that every flow may always use. `max_flows` × this is reserved.
    pub flow_reserve: ByteSize,
    /// Maximum number of open flows in the session.
    pub max_flows: u32,
    /// Maximum unsent bytes of one flow; beyond it, its writer waits.
    pub flow_send_buffer: ByteSize,
    /// Idle time after which a flow is reset (RFC 5382, REQ-5: at least 2 h 4 min).
    pub flow_idle: Duration,
    /// Time after which a flow with unread bytes is reset, to free its memory.
    pub flow_unread: Duration,
    /// `true` if repair packets protect what this side sends; otherwise lost data is only
    /// retransmitted. The peer decides about its own sending.
    pub coding: bool,
    /// Limits of each class for what this side sends, in IP bytes of its packets: new data, and the
    /// repairs, retransmissions, headers and control that it causes. Also the memory of its waiting
    /// datagrams.
    pub classes: PerClass<ClassSettings>,
    /// Memory for received datagrams that wait for their reader.
    pub datagram_memory: ByteSize,
    /// Idle time after which a datagram flow is reset, as with a NAT's mapping (RFC 4787, REQ-5: at
    /// least 2 min, 5 recommended). Received datagrams keep it open too (REQ-6).
    pub datagram_idle: Duration,
    /// Time for which a datagram is useful.
    pub lifetimes: Lifetimes,
    /// Age at which packet keys are replaced.
    pub key_lifetime: Duration,
    /// Interval of packets from an idle air side, so that a NAT or firewall keeps the path open.
    pub keepalive: Duration,
    /// Minimum silence after an unanswered packet that counts as an outage. On long paths three round
    /// trips are longer.
    pub min_silence: Duration,
    /// At the ground: length of an outage that ends the session. Its flows end, its keys are erased
    /// and its memory is freed; the measurements of its path are kept.
    pub session_lifetime: Duration,
    /// Round trip assumed before the first measurement.
    pub initial_rtt: Duration,
    /// At the air: handshakes are 1.5 round trips apart in the first two minutes without an answer,
    /// because flows wait for a hub.
    pub calls_often: bool,
    /// The bytes of the first path cost money: see [`PathSettings::metered`].
    pub metered: bool,
    /// Quota of the first path: see [`PathSettings::quota`].
    pub quota: Option<PathQuota>,
    /// Name of the first path in the status.
    pub path_name: String,
    /// Paths besides the first, in the order of their numbers, 1 to 7. The peer has to know as many;
    /// otherwise only the first ones are used.
    pub paths: Vec<PathSettings>,
}

/// Time for which a datagram of each class is useful, from when it was handed over. Within it, the
/// datagram may wait to be sent, repairs protect it, and it is retransmitted if it would arrive in
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Operator's and network's classes, with calls: a listener's buffer beyond the usual delay.
    pub network: Duration,
    /// Interactive: one retransmission is in time at round trips up to some 600 ms.
    pub assured: Duration,
    /// Two or three round trips: the time after which QUIC or a tunnelled TCP retransmits over
    /// these links. Later datagrams are redundant copies.
    pub best_effort: Duration,
    /// Background: nobody waits, and a late datagram still saves its sender a retransmission.
    pub lower_effort: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            network: Duration::from_millis(250),
            assured: Duration::from_secs(1),
            best_effort: Duration::from_secs(3),
            lower_effort: Duration::from_secs(10),
        }
    }
}

impl Lifetimes {
    /// Lifetime in `class`.
    pub fn of(&self, class: Class) -> Duration {
        match class {
            Class::Operator | Class::Network => self.network,
            Class::Assured => self.assured,
            Class::BestEffort => self.best_effort,
            Class::LowerEffort => self.lower_effort,
        }
    }
}

/// Control of this side's sending rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Control {
    /// The rate is ours: packets are sent at it, and loss never lowers it.
    #[default]
    Leased,
    /// Other senders share the path: a congestion controller (CUBIC, RFC 9438) finds our part of
    /// the rate. It takes loss for congestion, so that it gets little of a link with losses of its
    /// own.
    Congestion,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            peer_name: String::new(),
            rate: BitRate::from_bps(1_000_000),
            control: Control::Leased,
            lease: LeaseMode::Static,
            learn_bytes: DEFAULT_LEARN_BYTES,
            share: Share::default(),
            mtu_bytes: 1500,
            receive_memory: ByteSize::from_bytes(512 << 20),
            send_memory: ByteSize::from_bytes(256 << 20),
            code_memory: ByteSize::from_bytes(16 << 20),
            flow_reserve: ByteSize::from_bytes(64 << 10),
            max_flows: 4096,
            flow_send_buffer: ByteSize::from_bytes(256 << 10),
            flow_idle: Duration::from_secs(2 * 3600 + 4 * 60),
            flow_unread: Duration::from_secs(600),
            coding: true,
            classes: PerClass::default(),
            datagram_memory: ByteSize::from_bytes(20 << 20),
            datagram_idle: Duration::from_secs(300),
            lifetimes: Lifetimes::default(),
            key_lifetime: Duration::from_secs(900),
            keepalive: Duration::from_secs(15),
            min_silence: Duration::from_secs(2),
            session_lifetime: DEFAULT_SESSION_LIFETIME,
            initial_rtt: Duration::from_secs(1),
            calls_often: false,
            metered: false,
            quota: None,
            path_name: String::new(),
            paths: Vec::new(),
        }
    }
}

/// Maximum rate, for a side whose operator sets none. No link is as fast.
pub const MAX_RATE: BitRate = BitRate::from_bps(100_000_000_000);

/// Minimum send memory in packets of the largest size; a lane's quarter is then four.
const MIN_SEND_PACKETS: u64 = 16;
/// Minimum datagram memory in datagrams of the largest size …
const MIN_DATAGRAMS: u64 = 30;
/// … and minimum memory of a class.
const MIN_CLASS_DATAGRAMS: u64 = 6;
/// Ten packets of 1,280 bytes, whose spacing is a first estimate, and a train of seven or more
/// full packets that confirms it. Both directions together stay below 64 KB.
pub const DEFAULT_LEARN_BYTES: ByteSize = ByteSize::from_bytes(24_000);
/// Longer than the outages that flows should survive: a quarter of an hour.
const DEFAULT_SESSION_LIFETIME: Duration = Duration::from_secs(900);
/// Minimum session lifetime in keep-alives of an idle aircraft, which covers their repetitions.
const MIN_LIFETIME_KEEPALIVES: u32 = 4;
/// Minimum session lifetime with the default keep-alives.
pub const MIN_SESSION_LIFETIME: Duration = Duration::from_secs(60);
/// Minimum idle limit; a shorter one would end flows that are in use.
const MIN_DATAGRAM_IDLE: Duration = Duration::from_secs(1);
/// Minimum memory for repairs in packets of the largest size. A lane's quarter at each end is then
/// 64 symbols, the length of a burst of 90 KB.
const MIN_CODE_PACKETS: u64 = 256;
/// Minimum credit of a flow; less would not fill a packet.
pub const MIN_RESERVE_BYTES: u64 = 1500;

impl Settings {
    /// Name of the peer in the log; `otherwise` if it has none.
    pub(crate) fn peer_label<'a>(&'a self, otherwise: &'a dyn Display) -> &'a dyn Display {
        if self.peer_name.is_empty() { otherwise } else { &self.peer_name }
    }

    /// Rate announced to the peer: zero if it is learned.
    pub(crate) fn announced_rate_bps(&self) -> u64 {
        if self.lease == LeaseMode::Learned { 0 } else { self.rate.bps() }
    }

    /// Returns `true` if the peer's reports can raise the sending rate.
    pub(crate) fn is_rate_reported(&self) -> bool {
        self.lease == LeaseMode::Learned || self.control == Control::Congestion
    }

    /// Maximum number of paths of the session.
    pub(crate) fn max_paths(&self) -> u8 {
        u8::try_from(1 + self.paths.len()).map_or(MAX_PATHS, |paths| paths.min(MAX_PATHS))
    }

    /// Quota of path `id`.
    pub(crate) fn quota_of(&self, id: u8) -> Option<&PathQuota> {
        match usize::from(id).checked_sub(1) {
            Some(at) => self.paths.get(at)?.quota.as_ref(),
            None => self.quota.as_ref(),
        }
    }

    /// Number of symbols of a lane that each of its ends keeps for repairs.
    pub(crate) fn coded_symbols(&self) -> usize {
        let quarter = self.code_memory.bytes() / 4 / self.mtu_bytes as u64;
        usize::try_from(quarter).unwrap_or(usize::MAX)
    }

    /// These settings of a session, with those of `new` that it can adopt while it runs. Buffers
    /// and the origin of the rate were agreed with the peer.
    pub(crate) fn adopting(&self, new: &Self) -> Self {
        let has_same_origin = (self.lease, self.control) == (new.lease, new.control);
        let fit = check_classes(&new.classes, self.mtu_bytes).is_ok();
        Self {
            peer_name: new.peer_name.clone(),
            rate: if has_same_origin { new.rate } else { self.rate },
            learn_bytes: new.learn_bytes,
            share: new.share,
            classes: if fit { new.classes } else { self.classes },
            session_lifetime: new.session_lifetime,
            ..self.clone()
        }
    }

    /// Checks the settings.
    pub fn check(&self) -> Result<(), SettingsError> {
        check_path(self.rate, self.mtu_bytes)?;
        if self.paths.len() >= MAX_PATHS.into() {
            return Err(SettingsError::TooManyPaths(1 + self.paths.len()));
        }
        self.paths.iter().try_for_each(PathSettings::check)?;
        let min = ByteSize::from_bytes(MIN_SEND_PACKETS * self.mtu_bytes as u64);
        if self.send_memory < min {
            let (memory, mtu) = (self.send_memory, self.mtu_bytes);
            return Err(SettingsError::SmallSendMemory { memory, mtu, min });
        }
        let min = ByteSize::from_bytes(MIN_DATAGRAMS * self.mtu_bytes as u64);
        if self.datagram_memory < min {
            let (memory, mtu) = (self.datagram_memory, self.mtu_bytes);
            return Err(SettingsError::SmallDatagramMemory { memory, mtu, min });
        }
        check_classes(&self.classes, self.mtu_bytes)?;
        if self.datagram_idle < MIN_DATAGRAM_IDLE {
            return Err(SettingsError::DatagramIdle(self.datagram_idle));
        }
        if self.session_lifetime < self.keepalive * MIN_LIFETIME_KEEPALIVES {
            return Err(SettingsError::SessionLifetime(self.session_lifetime));
        }
        let min = ByteSize::from_bytes(MIN_CODE_PACKETS * self.mtu_bytes as u64);
        if self.code_memory < min {
            let (memory, mtu) = (self.code_memory, self.mtu_bytes);
            return Err(SettingsError::SmallCodeMemory { memory, mtu, min });
        }
        if self.flow_send_buffer.bytes() == 0 {
            return Err(SettingsError::NoSendBuffer);
        }
        if !(MIN_RESERVE_BYTES..=u64::from(u32::MAX)).contains(&self.flow_reserve.bytes()) {
            return Err(SettingsError::Reserve(self.flow_reserve));
        }
        let needed = ByteSize::from_bytes(u64::from(self.max_flows) * self.flow_reserve.bytes());
        if needed > self.receive_memory {
            return Err(SettingsError::Overcommitted {
                flows: self.max_flows,
                reserve: self.flow_reserve,
                needed,
                memory: self.receive_memory,
            });
        }
        Ok(())
    }
}

/// Checks the settings of classes, for packets of `mtu` bytes.
pub(crate) fn check_classes(
    classes: &PerClass<ClassSettings>,
    mtu: usize,
) -> Result<(), SettingsError> {
    let min = ByteSize::from_bytes(MIN_CLASS_DATAGRAMS * mtu as u64);
    for (class, &ClassSettings { limits, memory, .. }) in classes.iter() {
        if memory < min {
            return Err(SettingsError::SmallClassMemory { class, memory, mtu, min });
        }
        let Some(ceil) = limits.ceil else { continue };
        if ceil.bps() == 0 {
            return Err(SettingsError::NoCeil(class));
        }
        if let Some(rate) = limits.rate.filter(|rate| *rate > ceil) {
            return Err(SettingsError::CeilBelowRate { class, rate, ceil });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_errors_state_the_reason() {
        assert_eq!(Settings::default().check(), Ok(()));
        let settings = Settings { max_flows: 100_000, ..Settings::default() };
        let error = settings.check().unwrap_err().to_string();
        assert!(error.contains("100000 flows") && error.contains("6.104 GiB"), "{error}");
        let tiny = ByteSize::from_bytes(1000);
        let settings = Settings { send_memory: tiny, ..Settings::default() };
        let error = settings.check().unwrap_err().to_string();
        assert!(error.contains("1500 bytes need at least"), "{error}");
        let settings = Settings { code_memory: tiny, ..Settings::default() };
        let error = settings.check().unwrap_err().to_string();
        assert!(error.contains("memory for repairs of 1000 B"), "{error}");
        let largest = Settings { mtu_bytes: 65_535, ..Settings::default() };
        assert_eq!(largest.check(), Ok(()), "the default is enough for every MTU");
        let settings = Settings { flow_reserve: tiny, ..Settings::default() };
        assert_eq!(settings.check(), Err(SettingsError::Reserve(tiny)));
        let settings =
            Settings { flow_send_buffer: ByteSize::from_bytes(0), ..Settings::default() };
        assert_eq!(settings.check(), Err(SettingsError::NoSendBuffer));
        let settings = Settings { datagram_memory: tiny, ..Settings::default() };
        let error = settings.check().unwrap_err().to_string();
        assert!(error.contains("a datagram memory of 1000 B"), "{error}");
        let datagram_idle = Duration::from_millis(900);
        let settings = Settings { datagram_idle, ..Settings::default() };
        assert_eq!(settings.check(), Err(SettingsError::DatagramIdle(datagram_idle)));
        let mut settings = Settings::default();
        let class = &mut settings.classes[Class::LowerEffort];
        class.limits.ceil = Some(BitRate::from_bps(0));
        assert_eq!(settings.check(), Err(SettingsError::NoCeil(Class::LowerEffort)));
        let class = &mut settings.classes[Class::LowerEffort];
        class.limits.ceil = Some(BitRate::from_bps(256_000));
        class.limits.rate = Some(BitRate::from_bps(300_000));
        let error = settings.check().unwrap_err().to_string();
        assert!(error.contains("lower-effort may count on 300 kbit/s"), "{error}");
        settings.classes[Class::LowerEffort] = ClassSettings { memory: tiny, ..Default::default() };
        let error = settings.check().unwrap_err().to_string();
        assert!(error.contains("the class lower-effort is too small"), "{error}");
        let rate = BitRate::from_bps(7_999);
        let settings = Settings { rate, ..Settings::default() };
        assert_eq!(settings.check(), Err(SettingsError::LowRate(rate)));
        let error = SettingsError::LowRate(rate).to_string();
        assert!(error.contains("from 8 kbit/s on"), "{error}");
        let settings = Settings { mtu_bytes: 576, ..Settings::default() };
        assert_eq!(settings.check(), Err(SettingsError::SmallMtu(576)));
    }
}
