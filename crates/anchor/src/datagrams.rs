//! The air's half of a datagram flow: it is opened again through the next hub.
//!
//! The air draws a number for each flow and sends it in a datagram. The egress keeps the flow's external
//! port, and gives it to the flow with that number in a later session. Datagrams under way are lost, as
//! any may be.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_transport::datagram::Datagram;
use bentpipe_transport::{DatagramError, FlowDatagrams, OpenDatagrams, OpenError};
use bytes::Bytes;
use futures_util::future::{BoxFuture, pending};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::air::MAX_DETACHED;
use crate::current::{Hub, Present};

/// Time between attempts through the same hub.
const RETRY: Duration = Duration::from_millis(500);

/// Age from which a flow counts as accepted by its egress. A younger one that is lost was refused.
const MIN_ACCEPTED: Duration = Duration::from_secs(5);

/// Time until the flow's number is sent again, because it may have been lost.
const NUMBER_REPEAT: Duration = Duration::from_secs(1);

/// Time for which the flow through the hub before may still bring datagrams: until the egress has had
/// every repetition of the number. Then it is given up, so that a hub that stops need not wait for it.
const MAX_PREVIOUS: Duration = Duration::from_secs(5);

/// Times that the number is sent through the first hub: before the first datagram, and once again.
const NUMBERS_AT_FIRST: u32 = 2;

/// Times that the number is sent through a later hub.
const NUMBERS_LATER: u32 = 4;

type Flow = Arc<dyn FlowDatagrams>;

/// A datagram flow at the air.
pub struct AirDatagrams {
    present: Arc<Present>,
    open: OpenDatagrams,
    number: u64,
    state: Mutex<State>,
}

#[derive(Clone)]
struct State {
    flow: Flow,
    /// Change that brought the flow's hub.
    generation: u64,
    /// Flow through the hub before, which may still bring datagrams. Its egress ends it, or this end
    /// at the time given.
    previous: Option<(Flow, Instant)>,
    keeps_order: bool,
    /// Times that the number is still to be sent, and the next time.
    numbers: (u32, Instant),
    opened_at: Instant,
    /// `true` from the loss of the flow until another replaces it.
    is_lost: bool,
    /// Time at which the last accepted flow was lost.
    lost_at: Instant,
    /// Reason for the end, if this end gave it.
    ended: Option<ResetCode>,
}

/// Event at a flow.
enum Event {
    Received(Bytes),
    Ended(ResetCode),
    PreviousEnded,
    Changed,
    NumberDue,
}

impl AirDatagrams {
    /// Opens a flow through the present hub.
    pub async fn open(present: Arc<Present>, open: OpenDatagrams) -> Result<Self, OpenError> {
        let mut number = [0; 8];
        getrandom::fill(&mut number).map_err(|error| OpenError::Down(error.to_string()))?;
        let number = u64::from_be_bytes(number);
        let Hub { generation, hub } = present.get();
        let flow: Flow = hub.open_datagrams(open.clone()).await?.into();
        let now = Instant::now();
        let state = State {
            flow,
            generation,
            previous: None,
            keeps_order: false,
            numbers: (NUMBERS_AT_FIRST, now),
            opened_at: now,
            is_lost: false,
            lost_at: now,
            ended: None,
        };
        let this = Self { present, open, number, state: Mutex::new(state) };
        this.send_number();
        Ok(this)
    }

    /// Sends the flow's number. Later calls repeat it, because a datagram may be lost.
    fn send_number(&self) {
        let mut state = self.state.lock();
        let _ = state.flow.send(&Datagram::Number(self.number).encoded());
        state.numbers = (state.numbers.0.saturating_sub(1), Instant::now() + NUMBER_REPEAT);
    }

    /// Notes the loss of the flow in use, once. [`Self::next_datagram`] may be dropped before another
    /// flow replaces it, and start again.
    fn lost(&self) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_lost, true) {
            return;
        }
        if state.opened_at.elapsed() >= MIN_ACCEPTED {
            state.lost_at = Instant::now();
        }
    }

    fn flow(&self) -> Flow {
        self.state.lock().flow.clone()
    }

    /// Opens the flow again through the present hub. Returns the reason of its end if no hub takes it
    /// in time.
    async fn reopen(&self) -> Result<(), ResetCode> {
        let deadline = self.state.lock().lost_at + MAX_DETACHED;
        let mut hubs = self.present.watch();
        loop {
            if Instant::now() >= deadline {
                return Err(ResetCode::Lost);
            }
            let Hub { generation, hub } = hubs.borrow_and_update().clone();
            match timeout_at(deadline, hub.open_datagrams(self.open.clone())).await {
                Ok(Ok(flow)) => return self.replace(flow.into(), generation),
                Ok(Err(OpenError::Full)) => return Err(ResetCode::Limit),
                Ok(Err(error)) => tracing::debug!(%error, "no hub for a flow of datagrams"),
                Err(_) => return Err(ResetCode::Lost),
            }
            tokio::select! {
                () = sleep(RETRY) => {}
                _ = hubs.changed() => {}
            }
        }
    }

    fn replace(&self, flow: Flow, generation: u64) -> Result<(), ResetCode> {
        let mut state = self.state.lock();
        if let Some(code) = state.ended {
            flow.reset(code);
            return Err(code);
        }
        if state.keeps_order {
            flow.keep_order();
        }
        let now = Instant::now();
        (state.generation, state.opened_at, state.is_lost) = (generation, now, false);
        state.numbers = (NUMBERS_LATER, now);
        let before = std::mem::replace(&mut state.flow, flow);
        if let Some((oldest, _)) = state.previous.replace((before, now + MAX_PREVIOUS)) {
            give_up(&oldest);
        }
        drop(state);
        self.send_number();
        Ok(())
    }

    async fn next_event(&self, hubs: &mut watch::Receiver<Hub>) -> Event {
        let State { flow, generation, previous, numbers, .. } = self.state.lock().clone();
        tokio::select! {
            biased;
            received = flow.receive() => match received {
                Ok(datagram) => Event::Received(datagram),
                Err(code) => Event::Ended(code),
            },
            received = previous_receive(previous.as_ref()) => match received {
                Ok(datagram) => Event::Received(datagram),
                Err(_) => Event::PreviousEnded,
            },
            () = changed(hubs, generation) => Event::Changed,
            () = sleep_until(numbers.1), if numbers.0 > 0 => Event::NumberDue,
        }
    }

    async fn next_datagram(&self) -> Result<Bytes, ResetCode> {
        let mut hubs = self.present.watch();
        loop {
            match self.next_event(&mut hubs).await {
                Event::Received(datagram) => return Ok(datagram),
                Event::PreviousEnded => {
                    if let Some((previous, _)) = self.state.lock().previous.take() {
                        give_up(&previous);
                    }
                }
                Event::NumberDue => self.send_number(),
                Event::Changed => {
                    self.lost();
                    self.reopen().await?;
                }
                Event::Ended(ResetCode::Lost) if self.state.lock().ended.is_none() => {
                    self.lost();
                    let opened_at = self.state.lock().opened_at;
                    sleep_until(opened_at + RETRY).await;
                    self.reopen().await?;
                }
                Event::Ended(code) => return Err(code),
            }
        }
    }
}

/// Ends a flow that goes on with another hub.
fn give_up(flow: &Flow) {
    flow.reset(ResetCode::Lost);
}

/// Waits until the present hub is another than that of change `generation`.
async fn changed(hubs: &mut watch::Receiver<Hub>, generation: u64) {
    if hubs.wait_for(|hub| hub.generation != generation).await.is_err() {
        // The gateway ends.
        pending().await
    }
}

/// Receives from the flow through the hub before, until it is given up.
async fn previous_receive(previous: Option<&(Flow, Instant)>) -> Result<Bytes, ResetCode> {
    match previous {
        Some((flow, until)) => {
            timeout_at(*until, flow.receive()).await.unwrap_or(Err(ResetCode::Timeout))
        }
        None => pending().await,
    }
}

impl FlowDatagrams for AirDatagrams {
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        match self.flow().send(datagram) {
            // It is lost on the way to the next hub.
            Err(DatagramError::Ended) if self.state.lock().ended.is_none() => Ok(()),
            sent => sent,
        }
    }

    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        Box::pin(self.next_datagram())
    }

    fn max_bytes(&self) -> usize {
        self.flow().max_bytes()
    }

    fn provisioned_max_bytes(&self) -> usize {
        self.flow().provisioned_max_bytes()
    }

    fn keep_order(&self) {
        let mut state = self.state.lock();
        state.keeps_order = true;
        state.flow.keep_order();
    }

    fn reset(&self, code: ResetCode) {
        let mut state = self.state.lock();
        state.ended = Some(code);
        state.flow.reset(code);
        if let Some((previous, _)) = state.previous.take() {
            previous.reset(code);
        }
    }
}
