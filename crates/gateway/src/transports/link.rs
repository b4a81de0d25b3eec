//! The radio transport behind the seam, and how the configs become its own.

use std::net::SocketAddr;
use std::num::NonZero;
use std::thread;
use std::time::Duration;

use bentpipe_flow::{ResetCode, Traffic};
use bentpipe_link::io::{
    self, Air, Arrived, DatagramFlow, Flow, Hub, IncomingDatagrams, SendError,
};
use bentpipe_link::{
    AirConfig as LinkAirConfig, Aircraft, Class, ClassSettings, Control, Flows, HubConfig,
    LeaseMode, MIN_RESERVE_BYTES, ModemRate, OpenError as LinkError, PerClass, PublicKey, Refused,
    Settings, SettingsError, SnapshotLimits,
};
use bentpipe_units::{BitRate, ByteSize};
use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::config::{AirConfig, GroundConfig, LeaseSource, Memory, Transport};
use crate::machine;
use crate::transport::{
    Acceptor, Carried, Connector, DatagramError, FlowDatagrams, FlowStream, Incoming, Open,
    OpenDatagrams, OpenError, Outages, Reach, Standing,
};

/// The gateways end idle flows of datagrams; the link's own limit is for what they have forgotten.
const IDLE_MARGIN: Duration = Duration::from_secs(60);

/// Flows a session holds beyond what the gateway admits: those of either side that
/// the other has not seen end yet.
const FLOWS_ENDING: u32 = 64;

/// Bytes that a flow may send before the first credit from the other side, a round trip later: more
/// fills no link of up to 10 Mbit/s and 800 ms any sooner.
const MAX_RESERVE_BYTES: u64 = 1_000_000;

impl From<LinkError> for OpenError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::TooManyFlows(_) => Self::Full,
            LinkError::Target(error) => Self::Target(error),
            LinkError::NotConnected => Self::Down(error.to_string()),
        }
    }
}

impl Connector for Air {
    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        Box::pin(async move { Ok(Box::new(Air::open(self, open).await?) as Box<dyn FlowStream>) })
    }

    fn open_datagrams(
        &self,
        open: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
        Box::pin(async move {
            let opened = Air::open_datagrams(self, open).await?;
            Ok(Box::new(opened) as Box<dyn FlowDatagrams>)
        })
    }

    fn modem_rate(&self, told: Option<ModemRate>) {
        self.set_modem_rate(told);
    }

    fn set_classes(&self, classes: PerClass<ClassSettings>) -> Result<(), SettingsError> {
        Air::set_classes(self, classes)
    }

    fn traffic(&self, most: SnapshotLimits) -> Option<Traffic> {
        Air::traffic(self, most)
    }

    fn reach(&self) -> Reach {
        match self.is_heard() {
            Some(true) => Reach::Up,
            Some(false) => Reach::Out,
            None => Reach::Down,
        }
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(Air::failed(self))
    }

    fn take_refused(&self) -> Refused {
        Air::take_refused(self)
    }

    fn pulse(&self) -> Option<u64> {
        Some(Air::pulse(self))
    }

    fn outages(&self) -> Outages {
        let (now, all) = Air::outages(self);
        Outages { now, all }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(Air::close(self))
    }
}

impl FlowStream for Flow {
    fn reset(&mut self, code: ResetCode) {
        Flow::reset(self, code);
    }

    fn stop_reading(&mut self, code: ResetCode) {
        Flow::stop_reading(self, code);
    }

    fn reset_code(&self) -> Option<ResetCode> {
        Flow::reset_code(self)
    }

    fn standing(&self) -> Standing {
        Standing { unheard: self.unheard(), unsent_bytes: self.unsent_bytes() }
    }

    fn confirm_class(&mut self, class: Class) {
        self.confirm(class);
    }

    fn demote(&mut self, class: Class) {
        Flow::demote(self, class);
    }

    fn class(&self) -> Option<Class> {
        self.confirmed()
    }
}

impl FlowDatagrams for DatagramFlow {
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        DatagramFlow::send(self, datagram).map_err(|error| match error {
            SendError::TooLarge { max } => DatagramError::TooLarge { max_bytes: max },
            SendError::Ended(_) => DatagramError::Ended,
        })
    }

    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        Box::pin(DatagramFlow::receive(self))
    }

    fn max_bytes(&self) -> usize {
        self.max_bytes()
    }

    fn provisioned_max_bytes(&self) -> usize {
        DatagramFlow::provisioned_max_bytes(self)
    }

    fn keep_order(&self) {
        DatagramFlow::keep_order(self);
    }

    fn reset(&self, code: ResetCode) {
        DatagramFlow::reset(self, code);
    }
}

impl From<IncomingDatagrams> for Incoming {
    fn from(incoming: IncomingDatagrams) -> Self {
        let IncomingDatagrams { aircraft, open, flow } = incoming;
        let OpenDatagrams { target, protocol, source, class, passenger } = open;
        let carries =
            Carried::Datagrams { protocol, source, is_gateway: true, flow: Box::new(flow) };
        let aircraft = *aircraft.as_bytes();
        Self { aircraft, target, class, passenger, claim: None, carries }
    }
}

impl<S: Flows> From<io::Incoming<S>> for Incoming
where
    io::Flow<S>: FlowStream,
{
    fn from(incoming: io::Incoming<S>) -> Self {
        let io::Incoming { aircraft, target, class, passenger, claim, flow } = incoming;
        let aircraft = *aircraft.as_bytes();
        Self { aircraft, target, class, passenger, claim, carries: Carried::Stream(Box::new(flow)) }
    }
}

impl Acceptor for Hub {
    fn accept(&self) -> BoxFuture<'_, Option<Incoming>> {
        Box::pin(async move {
            Some(match Hub::accept(self).await? {
                Arrived::Stream(incoming) => incoming.into(),
                Arrived::Datagrams(incoming) => incoming.into(),
            })
        })
    }

    fn set_classes(
        &self,
        aircraft: &PublicKey,
        classes: PerClass<ClassSettings>,
    ) -> Result<(), SettingsError> {
        Hub::set_classes(self, aircraft, classes)
    }

    fn traffic(&self, aircraft: &PublicKey, most: SnapshotLimits) -> Option<Traffic> {
        Hub::traffic(self, aircraft, most)
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(Hub::failed(self))
    }

    fn take_refused(&self) -> Refused {
        Hub::take_refused(self)
    }

    fn pulse(&self) -> Option<u64> {
        Some(Hub::pulse(self))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(Hub::close(self))
    }

    fn transport(&self) -> Transport {
        Transport::Link
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Hub::local_addr(self)
    }
}

/// Configuration for [`Air::start`], for a ground at `address` and a handshake counter above every
/// earlier one (see [`crate::transports::handshake_counter::claim`]).
pub fn air_config(
    config: &AirConfig,
    address: SocketAddr,
    first_counter: u64,
) -> Result<LinkAirConfig, SettingsError> {
    let link = &config.link;
    let (lease, control) = match link.lease {
        LeaseSource::Static => (LeaseMode::Static, Control::Leased),
        LeaseSource::Granted => (LeaseMode::Granted, Control::Leased),
        LeaseSource::Modem => (LeaseMode::Modem, Control::Leased),
        LeaseSource::None => (LeaseMode::Static, Control::Congestion),
    };
    let limits = &config.limits;
    let max_flows = limits.max_flows.saturating_add(limits.udp.max_flows);
    let max_flows = max_flows.saturating_add(limits.ip.max_flows);
    let settings = settings(link.rate, link.mtu, link.memory, max_flows);
    let classes = config.classes.settings();
    let datagram_idle = limits.udp.longest_idle().max(limits.ip.longest_idle()) + IDLE_MARGIN;
    let coding = link.coding;
    let settings = Settings { lease, control, coding, classes, datagram_idle, ..settings };
    settings.check()?;
    Ok(LinkAirConfig {
        secret: link.private_key().clone(),
        hub: link.peer_public_key(),
        address,
        settings,
        first_counter,
    })
}

/// The part of the machine's memory that all sessions may hold where the file does not say: half.
const PART_OF_MEMORY: u64 = 2;
/// The same where the machine does not say how much it has.
const UNKNOWN_MEMORY: ByteSize = ByteSize::from_bytes(2 << 30);

/// Memory that all sessions of the ground may hold together.
pub fn total_memory(config: &GroundConfig) -> ByteSize {
    let part = |whole: ByteSize| ByteSize::from_bytes(whole.bytes() / PART_OF_MEMORY);
    let half = || machine::memory().map_or(UNKNOWN_MEMORY, part);
    config.link.total_memory.unwrap_or_else(half)
}

/// Number of shards for [`Hub::start_sharded`]: as many as processor cores. A beam is divided over
/// all sessions together, so that a hub with a beam has one shard.
pub fn shards(config: &GroundConfig) -> usize {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    if config.beam().is_some() { 1 } else { cores() }
}

/// Configuration for [`Hub::start_sharded`].
pub fn hub_config(config: &GroundConfig) -> Result<HubConfig, SettingsError> {
    let mut aircraft = Vec::with_capacity(config.aircraft.len());
    for one in &config.aircraft {
        let mtu = one.mtu.unwrap_or(config.link.mtu);
        let memory = one.memory.unwrap_or(config.link.memory);
        let max_flows = one.max_flows.saturating_add(one.max_datagram_flows);
        let max_flows = max_flows.saturating_add(one.max_ip_flows);
        let settings = settings(one.rate, mtu, memory, max_flows);
        let control = if one.leased { Control::Leased } else { Control::Congestion };
        let classes = one.classes.settings();
        let (udp, ip) = (&config.limits.udp, &config.limits.ip);
        let datagram_idle = udp.longest_idle().max(ip.longest_idle()) + IDLE_MARGIN;
        let share = one.share();
        let peer_name = one.name.clone();
        let coding = config.link.coding;
        let session_lifetime = config.link.session_lifetime.into();
        let settings = Settings {
            peer_name,
            share,
            control,
            coding,
            classes,
            datagram_idle,
            session_lifetime,
            ..settings
        };
        settings.check()?;
        let highest_class = one.highest_class;
        aircraft.push(Aircraft { key: one.key(), settings, highest_class });
    }
    let secret = config.link.private_key().clone();
    Ok(HubConfig { secret, aircraft })
}

/// The transport's defaults, with room for as many flows as the gateway admits.
fn settings(rate: BitRate, mtu_bytes: usize, memory: Memory, max_flows: usize) -> Settings {
    let defaults = Settings {
        mtu_bytes,
        receive_memory: memory.receive,
        send_memory: memory.send,
        code_memory: memory.code,
        ..Settings::default()
    };
    let max_flows = u32::try_from(max_flows).unwrap_or(u32::MAX).saturating_add(FLOWS_ENDING);
    // Half of the memory is the flows' reserves; the other is lent to those that fill the link.
    let share = defaults.receive_memory.bytes() / 2 / u64::from(max_flows);
    let reserve = share.clamp(MIN_RESERVE_BYTES, MAX_RESERVE_BYTES);
    let flow_reserve = ByteSize::from_bytes(reserve);
    Settings { rate, max_flows, flow_reserve, ..defaults }
}

#[cfg(test)]
mod tests {
    use super::*;

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
