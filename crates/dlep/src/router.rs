//! Router side of a session.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use dlep_core::{DataItem, Message, MessageType, StatusCode};
use dlep_fsm::events::DestinationAddrs;
use dlep_fsm::session_router::{RouterSessionFsm, RouterSessionState};
use dlep_fsm::{FsmAction, FsmEvent, SessionConfig};

use crate::end_reason::EndReason;
use crate::engine::{Engine, Machine};
use crate::rates::{self, Rates};
use crate::{INITIALIZATION_TIMEOUT, MAX_ADDRESSES, MAX_DESTINATIONS, TERMINATION_TIMEOUT};

/// Settings of a router.
#[derive(Debug, Clone)]
pub struct RouterSettings {
    /// Router's description of itself (section 13.4).
    pub description: String,
    /// Heartbeat interval (section 13.5), at least one second.
    pub heartbeat: Duration,
}

impl Default for RouterSettings {
    fn default() -> Self {
        let description = concat!("bentpipe ", env!("CARGO_PKG_VERSION")).to_owned();
        Self { description, heartbeat: crate::DEFAULT_HEARTBEAT }
    }
}

/// Event of a router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouterEvent {
    /// The session is up.
    Up {
        /// Modem's description of itself.
        modem: String,
        /// Heartbeat interval of the modem. Silence for two intervals ends the session.
        heartbeat: Duration,
    },
    /// The modem's rates changed. `None` until the modem has reported a transmit rate above zero,
    /// because modems report all zeros if they do not know their rates.
    Rates(Option<Rates>),
    /// The session is ending, and its rates are no longer valid.
    Ended(EndReason),
}

/// Router side of one session, for one TCP connection.
pub struct Router {
    engine: Engine<RouterSessionFsm>,
    events: VecDeque<RouterEvent>,
    modem: String,
    up: bool,
    rates: Option<Rates>,
}

impl Machine for RouterSessionFsm {
    fn step(&mut self, event: FsmEvent) -> Vec<FsmAction> {
        self.step(event)
    }

    fn is_up(&self) -> bool {
        self.state == RouterSessionState::InSession
    }

    fn is_alive(&self) -> bool {
        matches!(self.state, RouterSessionState::SessionInitPending | RouterSessionState::InSession)
    }
}

impl Router {
    /// Starts a session on a TCP connection established at `now`. The first message is ready to be
    /// sent (section 7.2).
    pub fn new(settings: &RouterSettings, now: Duration) -> Self {
        let machine = RouterSessionFsm::with_config(SessionConfig {
            peer_description: settings.description.clone(),
            heartbeat_interval_ms: settings.heartbeat.as_millis().try_into().unwrap_or(u32::MAX),
            session_init_timeout: INITIALIZATION_TIMEOUT,
            termination_timeout: Some(TERMINATION_TIMEOUT),
            ..SessionConfig::default()
        });
        let mut router = Self {
            engine: Engine::new(machine),
            events: VecDeque::new(),
            modem: String::new(),
            up: false,
            rates: None,
        };
        let never = |code| EndReason::ours(code, "the session could not begin");
        router.engine.step(now, FsmEvent::TcpConnected, never);
        router
    }

    /// Processes bytes from the modem. Send [`Router::take_output`] before reading more, which
    /// bounds the output buffer.
    pub fn receive(&mut self, now: Duration, bytes: &[u8]) {
        self.engine.push(bytes);
        while let Some(message) = self.engine.next() {
            match message {
                Ok(message) => self.message(now, message),
                Err(error) => self.engine.refuse(now, EndReason::unreadable(&error)),
            }
            self.update_events();
        }
    }

    fn message(&mut self, now: Duration, message: Message) {
        if let Some(reason) = self.bound_exceeded(&message) {
            return self.engine.refuse(now, reason);
        }
        if message.message_type == MessageType::SESSION_INITIALIZATION_RESPONSE
            && let Some(description) = message.data_items.iter().find_map(|item| match item {
                DataItem::PeerType { description, .. } => Some(description),
                _ => None,
            })
        {
            self.modem = crate::sanitize(description);
        }
        self.engine.message(now, message);
        let stored_addresses = self.stored_addresses();
        if stored_addresses > MAX_ADDRESSES {
            let detail =
                format!("{stored_addresses} addresses are announced, {MAX_ADDRESSES} are kept");
            self.engine.refuse(now, EndReason::ours(StatusCode::INVALID_DATA, detail));
        }
    }

    /// Returns a reason to end the session if the message would exceed a memory bound.
    fn bound_exceeded(&self, message: &Message) -> Option<EndReason> {
        let refuse = |detail| Some(EndReason::ours(StatusCode::INVALID_DATA, detail));
        let destinations = self.engine.machine.destinations.len();
        if message.message_type == MessageType::DESTINATION_UP && destinations >= MAX_DESTINATIONS {
            return refuse(format!("more destinations than the {MAX_DESTINATIONS} that are kept"));
        }
        let items = message.data_items.len();
        // Besides addresses, a message has at most one item of each kind.
        if items > MAX_ADDRESSES + 32 {
            let name = crate::wire::name(message.message_type);
            return refuse(format!("a {name} has {items} data items, far too many"));
        }
        None
    }

    /// Number of addresses stored for the modem and its destinations.
    fn stored_addresses(&self) -> usize {
        let count = |addrs: &DestinationAddrs| {
            addrs.v4.len() + addrs.v6.len() + addrs.v4_subnets.len() + addrs.v6_subnets.len()
        };
        let machine = &self.engine.machine;
        let destinations = machine.destinations.values().map(|d| count(&d.addrs));
        count(&machine.peer_addresses) + destinations.sum::<usize>()
    }

    /// Converts state changes to events.
    fn update_events(&mut self) {
        // The state of the machine already contains everything that it emits.
        self.engine.emitted.clear();
        let machine = &self.engine.machine;
        if !self.up && machine.is_up() {
            self.up = true;
            let heartbeat = machine.peer_heartbeat_interval.unwrap_or(Duration::MAX);
            self.events.push_back(RouterEvent::Up { modem: self.modem.clone(), heartbeat });
        }
        if machine.is_up() {
            let up = machine.destinations.iter().filter(|(_, destination)| destination.up);
            let reported = rates::of(
                &machine.session_metrics,
                up.map(|(mac, destination)| (mac, &destination.metrics)),
            );
            // Once a rate has been reported, zero means zero.
            let is_known = self.rates.is_some() || reported.transmit_bps > 0;
            if is_known && self.rates != Some(reported) {
                self.rates = Some(reported);
                self.push_rates();
            }
        }
        if let Some(reason) = self.engine.take_end_reason() {
            self.rates = None;
            self.events.push_back(RouterEvent::Ended(reason));
        }
    }

    /// Queues the rates. They replace a queued older report.
    fn push_rates(&mut self) {
        if let Some(RouterEvent::Rates(newest)) = self.events.back_mut() {
            *newest = self.rates;
        } else {
            self.events.push_back(RouterEvent::Rates(self.rates));
        }
    }

    /// Reports that the modem closed the connection, or that it broke.
    pub fn disconnected(&mut self, now: Duration) {
        self.engine.disconnected(now);
        self.update_events();
    }

    /// Ends the session in order (section 7.4).
    pub fn shut_down(&mut self, now: Duration) {
        self.engine.shut_down(now);
        self.update_events();
    }

    /// Handles timers due at `now`.
    pub fn advance(&mut self, now: Duration) {
        self.engine.advance(now);
        self.update_events();
    }

    /// Time at which [`Router::advance`] must be called.
    pub fn next_due(&self) -> Option<Duration> {
        self.engine.next_due()
    }

    /// Takes the bytes to send; empty if there are none.
    pub fn take_output(&mut self) -> Bytes {
        self.engine.take_output()
    }

    /// Returns the next event. At most four are queued between two calls of [`Router::advance`].
    pub fn poll_event(&mut self) -> Option<RouterEvent> {
        self.events.pop_front()
    }

    /// Returns `true` if the connection must be closed after the output has been sent.
    pub fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }
}
