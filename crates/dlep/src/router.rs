//! The router's end of a session.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use dlep_core::{DataItem, Message, MessageType, StatusCode};
use dlep_fsm::events::DestinationAddrs;
use dlep_fsm::session_router::{RouterSessionFsm, RouterSessionState};
use dlep_fsm::{FsmAction, FsmEvent, SessionConfig};

use crate::ending::Ending;
use crate::engine::{Engine, Machine};
use crate::rates::{self, Rates};
use crate::{INITIALIZATION_TIMEOUT, MAX_ADDRESSES, MAX_DESTINATIONS, TERMINATION_TIMEOUT};

/// Announcement of a router.
#[derive(Debug, Clone)]
pub struct RouterSettings {
    /// Router's description of itself (section 13.4).
    pub description: String,
    /// Heartbeat interval (section 13.5); less than a second becomes a second.
    pub heartbeat: Duration,
}

impl Default for RouterSettings {
    fn default() -> Self {
        let description = concat!("bentpipe ", env!("CARGO_PKG_VERSION")).to_owned();
        Self { description, heartbeat: crate::DEFAULT_HEARTBEAT }
    }
}

/// Event at a router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouterEvent {
    /// The session is up.
    Up {
        /// Modem's description of itself.
        modem: String,
        /// The modem's heartbeat interval: two of them in silence end the session.
        heartbeat: Duration,
    },
    /// The reduced figures of the modem have changed. `None` until the modem has named a transmit
    /// rate: zero in all places is how modems say that they do not know.
    Rates(Option<Rates>),
    /// The session is ending; its rates hold no longer.
    Ended(Ending),
}

/// The router's end of one session, from the TCP connection's coming up to its closing.
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
    /// A session on a TCP connection that came up at `now`; its first message is ready to be sent
    /// (section 7.2).
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
        let never = |code| Ending::ours(code, "the session could not begin");
        router.engine.step(now, FsmEvent::TcpConnected, never);
        router
    }

    /// Takes bytes from the modem. Send [`Router::take_output`] before reading more: that bounds
    /// what is kept.
    pub fn receive(&mut self, now: Duration, bytes: &[u8]) {
        self.engine.push(bytes);
        while let Some(message) = self.engine.next() {
            match message {
                Ok(message) => self.message(now, message),
                Err(error) => self.engine.refuse(now, Ending::unreadable(&error)),
            }
            self.notice();
        }
    }

    fn message(&mut self, now: Duration, message: Message) {
        if let Some(ending) = self.excess(&message) {
            return self.engine.refuse(now, ending);
        }
        if message.message_type == MessageType::SESSION_INITIALIZATION_RESPONSE
            && let Some(description) = message.data_items.iter().find_map(|item| match item {
                DataItem::PeerType { description, .. } => Some(description),
                _ => None,
            })
        {
            self.modem = crate::readable(description);
        }
        self.engine.message(now, message);
        let remembered = self.remembered();
        if remembered > MAX_ADDRESSES {
            let detail = format!("{remembered} addresses are announced, {MAX_ADDRESSES} are kept");
            self.engine.refuse(now, Ending::ours(StatusCode::INVALID_DATA, detail));
        }
    }

    /// Checks for a message that would exceed a memory bound.
    fn excess(&self, message: &Message) -> Option<Ending> {
        let refuse = |detail| Some(Ending::ours(StatusCode::INVALID_DATA, detail));
        let known = self.engine.machine.destinations.len();
        if message.message_type == MessageType::DESTINATION_UP && known >= MAX_DESTINATIONS {
            return refuse(format!("more destinations than the {MAX_DESTINATIONS} that are kept"));
        }
        let items = message.data_items.len();
        // Beside addresses a message has at most one item of each other kind.
        if items > MAX_ADDRESSES + 32 {
            let name = crate::wire::name(message.message_type);
            return refuse(format!("a {name} has {items} data items, far too many"));
        }
        None
    }

    /// Addresses kept for the modem and its destinations.
    fn remembered(&self) -> usize {
        let count = |addrs: &DestinationAddrs| {
            addrs.v4.len() + addrs.v6.len() + addrs.v4_subnets.len() + addrs.v6_subnets.len()
        };
        let machine = &self.engine.machine;
        let destinations = machine.destinations.values().map(|d| count(&d.addrs));
        count(&machine.peer_addresses) + destinations.sum::<usize>()
    }

    /// Turns what changed into events.
    fn notice(&mut self) {
        // What the machine says can all be read off its state.
        self.engine.said.clear();
        let machine = &self.engine.machine;
        if !self.up && machine.is_up() {
            self.up = true;
            let heartbeat = machine.peer_heartbeat_interval.unwrap_or(Duration::MAX);
            self.events.push_back(RouterEvent::Up { modem: self.modem.clone(), heartbeat });
        }
        if machine.is_up() {
            let up = machine.destinations.iter().filter(|(_, destination)| destination.up);
            let found =
                rates::of(&machine.session_metrics, up.map(|(mac, known)| (mac, &known.metrics)));
            // Once a rate was named, zero means zero.
            let known = self.rates.is_some() || found.transmit_bps > 0;
            if known && self.rates != Some(found) {
                self.rates = Some(found);
                self.push_rates();
            }
        }
        if let Some(ending) = self.engine.take_ending() {
            self.rates = None;
            self.events.push_back(RouterEvent::Ended(ending));
        }
    }

    /// Only the newest rates matter.
    fn push_rates(&mut self) {
        if let Some(RouterEvent::Rates(newest)) = self.events.back_mut() {
            *newest = self.rates;
        } else {
            self.events.push_back(RouterEvent::Rates(self.rates));
        }
    }

    /// The modem has closed the connection, or it broke.
    pub fn disconnected(&mut self, now: Duration) {
        self.engine.disconnected(now);
        self.notice();
    }

    /// Ends the session in order (section 7.4).
    pub fn shut_down(&mut self, now: Duration) {
        self.engine.shut_down(now);
        self.notice();
    }

    /// Does what is due at `now`.
    pub fn advance(&mut self, now: Duration) {
        self.engine.advance(now);
        self.notice();
    }

    /// Time at which [`Router::advance`] has something to do.
    pub fn next_due(&self) -> Option<Duration> {
        self.engine.next_due()
    }

    /// The bytes to send; empty when there is nothing.
    pub fn take_output(&mut self) -> Bytes {
        self.engine.take_output()
    }

    /// Returns the next event: at most four between two calls of [`Router::advance`].
    pub fn poll_event(&mut self) -> Option<RouterEvent> {
        self.events.pop_front()
    }

    /// Returns `true` if the connection is to be closed after the output has been sent.
    pub fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }
}
