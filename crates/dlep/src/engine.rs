//! Common part of both ends of a session: a state machine, its timers, its bytes in and out.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dlep_core::{CodecError, Message, StatusCode};
use dlep_fsm::events::EmittedEvent;
use dlep_fsm::{FsmAction, FsmEvent, TimerKind};

use crate::ending::Ending;
use crate::timers::Timers;
use crate::wire::Inbox;

/// One end's transitions.
pub(crate) trait Machine {
    fn step(&mut self, event: FsmEvent) -> Vec<FsmAction>;
    /// Returns `true` if the session is up.
    fn is_up(&self) -> bool;
    /// Returns `true` if the session is coming up or up, rather than ending or over.
    fn is_alive(&self) -> bool;
}

/// A state machine with its surroundings.
pub(crate) struct Engine<M> {
    pub machine: M,
    timers: Timers,
    inbox: Inbox,
    out: BytesMut,
    closed: bool,
    ending: Option<Ending>,
    /// Output events of the machine; taken after every step.
    pub said: VecDeque<EmittedEvent>,
}

impl<M: Machine> Engine<M> {
    pub fn new(machine: M) -> Self {
        Self {
            machine,
            timers: Timers::default(),
            inbox: Inbox::default(),
            out: BytesMut::new(),
            closed: false,
            ending: None,
            said: VecDeque::new(),
        }
    }

    /// Hands the machine an event. `why` is told should it end the session.
    pub fn step(&mut self, now: Duration, event: FsmEvent, why: impl FnOnce(StatusCode) -> Ending) {
        let alive = self.machine.is_alive();
        let mut code = None;
        for action in self.machine.step(event) {
            match action {
                FsmAction::SendMessage(message) => {
                    code = code.or(Ending::told(&message).map(|ending| ending.code));
                    self.send(&message);
                }
                FsmAction::StartTimer { id, kind, duration, periodic } => {
                    self.timers.set(id, kind, now, duration, periodic);
                }
                FsmAction::CancelTimer(id) => self.timers.cancel(id),
                FsmAction::ResetHeartbeat { timer_id, missed_deadline } => {
                    let kind = TimerKind::HeartbeatMissed;
                    self.timers.set(timer_id, kind, now, missed_deadline, false);
                }
                FsmAction::CloseTcp => self.close(),
                FsmAction::Emit(EmittedEvent::SessionDown(down)) => code = code.or(Some(down)),
                FsmAction::Emit(event) => self.said.push_back(event),
                // Sessions have no signals.
                FsmAction::SendSignal { .. } => {}
            }
        }
        if alive && !self.machine.is_alive() && self.ending.is_none() {
            self.ending = Some(why(code.unwrap_or(StatusCode::SUCCESS)));
        }
    }

    fn send(&mut self, message: &Message) {
        // What the machines build is within the limits of a message; it has checked what we asked
        // for, and what answers the peer is short.
        if let Ok(bytes) = message.encode() {
            self.out.extend_from_slice(&bytes);
        }
    }

    /// Takes bytes of the TCP stream. [`Engine::next`] gives the messages in them.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.closed {
            self.inbox.push(bytes);
        }
    }

    /// The next message that has come.
    pub fn next(&mut self) -> Option<Result<Message, CodecError>> {
        if self.closed { None } else { self.inbox.next() }
    }

    /// Hands the machine a message.
    pub fn message(&mut self, now: Duration, message: Message) {
        let kept = message.clone();
        self.step(now, FsmEvent::RecvMessage(message), |code| {
            Ending::told(&kept).unwrap_or_else(|| Ending::refused(&kept, code))
        });
    }

    /// Ends the session because of what came.
    pub fn refuse(&mut self, now: Duration, ending: Ending) {
        self.step(now, FsmEvent::ProtocolError(ending.code), |_| ending);
    }

    /// Ends the session because this end wants to.
    pub fn shut_down(&mut self, now: Duration) {
        let reason = StatusCode::SHUTTING_DOWN;
        let why = |code| Ending::ours(code, "this end is stopping");
        self.step(now, FsmEvent::AppShutdown { reason }, why);
    }

    /// The TCP connection is gone.
    pub fn disconnected(&mut self, now: Duration) {
        self.step(now, FsmEvent::TcpClosed, |code| {
            Ending::theirs(code, "the connection was closed without a word")
        });
        self.close();
    }

    /// Does what is due at `now`.
    pub fn advance(&mut self, now: Duration) {
        while let Some((id, kind)) = self.timers.take_due(now) {
            let why = |code| {
                let what = match kind {
                    TimerKind::HeartbeatMissed => "two heartbeat intervals passed in silence",
                    _ => "the other end did not answer in time",
                };
                Ending::ours(code, what)
            };
            self.step(now, FsmEvent::TimerExpired(id, kind), why);
        }
    }

    /// Time at which [`Engine::advance`] has something to do.
    pub fn next_due(&self) -> Option<Duration> {
        self.timers.next_due()
    }

    /// The bytes to send.
    pub fn take_output(&mut self) -> Bytes {
        self.out.split().freeze()
    }

    /// Returns the reason for the session's end, once.
    pub fn take_ending(&mut self) -> Option<Ending> {
        self.ending.take()
    }

    /// Returns `true` if the connection is to be closed after the output has been sent.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn close(&mut self) {
        self.closed = true;
        self.timers.clear();
        self.inbox.clear();
    }
}
