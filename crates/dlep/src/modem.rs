//! Modem side of a session, for simulators.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use dlep_core::{LinkMetrics, MacAddress};
use dlep_fsm::events::DestinationAddrs;
use dlep_fsm::session_modem::{ModemSessionFsm, ModemSessionState};
use dlep_fsm::{FsmAction, FsmEvent, SessionConfig};

use crate::end_reason::EndReason;
use crate::engine::{Engine, Machine};
use crate::{INITIALIZATION_TIMEOUT, MAX_DESTINATIONS, Rates, StatusCode, TERMINATION_TIMEOUT};

/// Settings of a modem.
#[derive(Debug, Clone)]
pub struct ModemSettings {
    /// Modem's description of itself (section 13.4).
    pub description: String,
    /// Heartbeat interval (section 13.5), at least one second.
    pub heartbeat: Duration,
    /// Session-wide rates at the start.
    pub rates: Rates,
}

/// Event of a modem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModemEvent {
    /// The session is up.
    Up,
    /// The session is ending.
    Ended(EndReason),
}

/// Modem side of one session, for one TCP connection.
pub struct Modem {
    engine: Engine<ModemSessionFsm>,
    events: VecDeque<ModemEvent>,
    up: bool,
    /// Session-wide rates to send after the last update is answered (section 8: one at a time).
    session: Option<Rates>,
    /// Rates to send per destination, at most [`MAX_DESTINATIONS`]; `None` withdraws it.
    destinations: BTreeMap<MacAddress, Option<Rates>>,
}

impl Machine for ModemSessionFsm {
    fn step(&mut self, event: FsmEvent) -> Vec<FsmAction> {
        self.step(event)
    }

    fn is_up(&self) -> bool {
        self.state == ModemSessionState::InSession
    }

    fn is_alive(&self) -> bool {
        matches!(self.state, ModemSessionState::AwaitingSessionInit | ModemSessionState::InSession)
    }
}

/// Converts rates to metrics. Maximum rates equal the current ones, as section 13.14 requires at
/// least that.
fn metrics(rates: Rates) -> LinkMetrics {
    LinkMetrics {
        max_data_rate_rx_bps: rates.receive_bps,
        max_data_rate_tx_bps: rates.transmit_bps,
        current_data_rate_rx_bps: rates.receive_bps,
        current_data_rate_tx_bps: rates.transmit_bps,
        latency: rates.latency,
        ..LinkMetrics::default()
    }
}

impl Modem {
    /// Starts a session on a TCP connection that a router opened at `now`.
    pub fn new(settings: &ModemSettings, now: Duration) -> Self {
        let machine = ModemSessionFsm::with_config(SessionConfig {
            peer_description: settings.description.clone(),
            initial_metrics: metrics(settings.rates),
            heartbeat_interval_ms: settings.heartbeat.as_millis().try_into().unwrap_or(u32::MAX),
            session_init_timeout: INITIALIZATION_TIMEOUT,
            termination_timeout: Some(TERMINATION_TIMEOUT),
            ..SessionConfig::default()
        });
        let mut modem = Self {
            engine: Engine::new(machine),
            events: VecDeque::new(),
            up: false,
            session: None,
            destinations: BTreeMap::new(),
        };
        let never = |code| EndReason::ours(code, "the session could not begin");
        modem.engine.step(now, FsmEvent::TcpAccepted, never);
        modem
    }

    /// Processes bytes from the router.
    pub fn receive(&mut self, now: Duration, bytes: &[u8]) {
        self.engine.push(bytes);
        while let Some(message) = self.engine.next() {
            match message {
                Ok(message) => self.engine.message(now, message),
                Err(error) => self.engine.refuse(now, EndReason::unreadable(&error)),
            }
            self.update(now);
        }
    }

    /// Sends new session-wide rates (section 12.7), now or when the router has answered the last
    /// ones. Newer rates replace waiting ones.
    pub fn set_session(&mut self, now: Duration, rates: Rates) {
        self.session = Some(rates);
        self.update(now);
    }

    /// Brings a destination up (section 12.11) or updates its rates (section 12.17). Destinations
    /// waiting beyond [`MAX_DESTINATIONS`] are dropped.
    pub fn set_destination(&mut self, now: Duration, mac: MacAddress, rates: Rates) {
        self.queue_destination(now, mac, Some(rates));
    }

    /// Takes a destination down (section 12.15).
    pub fn drop_destination(&mut self, now: Duration, mac: MacAddress) {
        self.queue_destination(now, mac, None);
    }

    fn queue_destination(&mut self, now: Duration, mac: MacAddress, rates: Option<Rates>) {
        if self.destinations.len() < MAX_DESTINATIONS || self.destinations.contains_key(&mac) {
            self.destinations.insert(mac, rates);
        }
        self.update(now);
    }

    /// Sends waiting updates as far as earlier requests were answered, and converts state changes
    /// to events.
    fn update(&mut self, now: Duration) {
        self.engine.emitted.clear();
        if !self.up && self.engine.machine.is_up() {
            self.up = true;
            self.events.push_back(ModemEvent::Up);
        }
        if self.engine.machine.is_up() {
            self.send_updates(now);
        }
        if let Some(reason) = self.engine.take_end_reason() {
            self.events.push_back(ModemEvent::Ended(reason));
        }
    }

    fn send_updates(&mut self, now: Duration) {
        let never = |code| EndReason::ours(code, "the modem's own figures were refused");
        if !self.engine.machine.tx.session_busy()
            && let Some(rates) = self.session.take()
        {
            let event = FsmEvent::AppSessionUpdate { metrics: metrics(rates) };
            self.engine.step(now, event, never);
        }
        let machine = &self.engine.machine;
        let free = |mac: &MacAddress| !machine.tx.destination_busy(mac);
        let ready: Vec<_> = self.destinations.keys().filter(|mac| free(mac)).copied().collect();
        for mac in ready {
            let known = self.engine.machine.destinations.contains_key(&mac);
            let event = match (self.destinations.remove(&mac).flatten().map(metrics), known) {
                (Some(metrics), true) => FsmEvent::AppUpdateMetrics { mac, metrics },
                (Some(metrics), false) => {
                    FsmEvent::AppAddDestination { mac, metrics, addrs: DestinationAddrs::default() }
                }
                (None, true) => FsmEvent::AppDropDestination { mac, reason: StatusCode::SUCCESS },
                (None, false) => continue,
            };
            self.engine.step(now, event, never);
        }
    }

    /// Reports that the router closed the connection, or that it broke.
    pub fn disconnected(&mut self, now: Duration) {
        self.engine.disconnected(now);
        self.update(now);
    }

    /// Ends the session in order (section 7.4).
    pub fn shut_down(&mut self, now: Duration) {
        self.engine.shut_down(now);
        self.update(now);
    }

    /// Handles timers due at `now`.
    pub fn advance(&mut self, now: Duration) {
        self.engine.advance(now);
        self.update(now);
    }

    /// Time at which [`Modem::advance`] must be called.
    pub fn next_due(&self) -> Option<Duration> {
        self.engine.next_due()
    }

    /// Takes the bytes to send; empty if there are none.
    pub fn take_output(&mut self) -> Bytes {
        self.engine.take_output()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ModemEvent> {
        self.events.pop_front()
    }

    /// Returns `true` if the connection must be closed after the output has been sent.
    pub fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }
}
