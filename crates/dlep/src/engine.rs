//! Common part of both sides of a session: a state machine, its timers, its bytes in and out.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dlep_core::{CodecError, Message, StatusCode};
use dlep_fsm::events::EmittedEvent;
use dlep_fsm::{FsmAction, FsmEvent, TimerKind};

use crate::end_reason::EndReason;
use crate::timers::Timers;
use crate::wire::Inbox;

/// State machine of one side.
pub(crate) trait Machine {
    fn step(&mut self, event: FsmEvent) -> Vec<FsmAction>;
    /// Returns `true` if the session is up.
    fn is_up(&self) -> bool;
    /// Returns `true` if the session is coming up or up.
    fn is_alive(&self) -> bool;
}

/// State machine with its timers and buffers.
pub(crate) struct Engine<M> {
    pub machine: M,
    timers: Timers,
    inbox: Inbox,
    out: BytesMut,
    closed: bool,
    end_reason: Option<EndReason>,
    /// Events emitted by the machine; cleared after every step.
    pub emitted: VecDeque<EmittedEvent>,
}

impl<M: Machine> Engine<M> {
    pub fn new(machine: M) -> Self {
        Self {
            machine,
            timers: Timers::default(),
            inbox: Inbox::default(),
            out: BytesMut::new(),
            closed: false,
            end_reason: None,
            emitted: VecDeque::new(),
        }
    }

    /// Passes an event to the machine. `why` provides the reason if the event ends the session.
    pub fn step(
        &mut self,
        now: Duration,
        event: FsmEvent,
        why: impl FnOnce(StatusCode) -> EndReason,
    ) {
        let alive = self.machine.is_alive();
        let mut code = None;
        for action in self.machine.step(event) {
            match action {
                FsmAction::SendMessage(message) => {
                    code =
                        code.or(
                            EndReason::from_termination(&message).map(|end_reason| end_reason.code)
                        );
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
                FsmAction::Emit(event) => self.emitted.push_back(event),
                // Sessions have no signals.
                FsmAction::SendSignal { .. } => {}
            }
        }
        if alive && !self.machine.is_alive() && self.end_reason.is_none() {
            self.end_reason = Some(why(code.unwrap_or(StatusCode::SUCCESS)));
        }
    }

    fn send(&mut self, message: &Message) {
        // Encoding cannot fail: the machine checks the size of our requests, and answers to the
        // peer are short.
        if let Ok(bytes) = message.encode() {
            self.out.extend_from_slice(&bytes);
        }
    }

    /// Buffers bytes of the TCP stream. [`Engine::next`] returns the messages in them.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.closed {
            self.inbox.push(bytes);
        }
    }

    /// Returns the next received message.
    pub fn next(&mut self) -> Option<Result<Message, CodecError>> {
        if self.closed { None } else { self.inbox.next() }
    }

    /// Passes a message to the machine.
    pub fn message(&mut self, now: Duration, message: Message) {
        let copy = message.clone();
        self.step(now, FsmEvent::RecvMessage(message), |code| {
            EndReason::from_termination(&copy).unwrap_or_else(|| EndReason::refused(&copy, code))
        });
    }

    /// Ends the session because of a protocol error.
    pub fn refuse(&mut self, now: Duration, end_reason: EndReason) {
        self.step(now, FsmEvent::ProtocolError(end_reason.code), |_| end_reason);
    }

    /// Ends the session at this side's wish.
    pub fn shut_down(&mut self, now: Duration) {
        let reason = StatusCode::SHUTTING_DOWN;
        let why = |code| EndReason::ours(code, "this side is stopping");
        self.step(now, FsmEvent::AppShutdown { reason }, why);
    }

    /// Reports that the TCP connection is gone.
    pub fn disconnected(&mut self, now: Duration) {
        self.step(now, FsmEvent::TcpClosed, |code| {
            EndReason::theirs(code, "the connection was closed without a Session Termination")
        });
        self.close();
    }

    /// Handles timers due at `now`.
    pub fn advance(&mut self, now: Duration) {
        while let Some((id, kind)) = self.timers.take_due(now) {
            let why = |code| {
                let what = match kind {
                    TimerKind::HeartbeatMissed => "two heartbeat intervals passed in silence",
                    _ => "the peer did not answer in time",
                };
                EndReason::ours(code, what)
            };
            self.step(now, FsmEvent::TimerExpired(id, kind), why);
        }
    }

    /// Time at which [`Engine::advance`] must be called.
    pub fn next_due(&self) -> Option<Duration> {
        self.timers.next_due()
    }

    /// Takes the bytes to send.
    pub fn take_output(&mut self) -> Bytes {
        self.out.split().freeze()
    }

    /// Takes the reason for the end of the session, once.
    pub fn take_end_reason(&mut self) -> Option<EndReason> {
        self.end_reason.take()
    }

    /// Returns `true` if the connection must be closed after the output has been sent.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn close(&mut self) {
        self.closed = true;
        self.timers.clear();
        self.inbox.clear();
    }
}
