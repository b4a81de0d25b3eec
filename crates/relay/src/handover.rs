//! Relays that go on in the next process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_transport::FlowStream;
use bytes::{Buf, BufMut, TryGetError};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::half::Half;
use crate::{Outcome, Relay, reset_on_close};

/// Maximum wait for all relays to stop. Each needs one turn of its task.
const PATIENCE: Duration = Duration::from_millis(500);

/// Gives a descriptor to the service manager, for the next process.
pub type Store = Arc<dyn Fn(OwnedFd) -> io::Result<()> + Send + Sync>;

/// Leaves flows and the `gateway`'s state with the service manager by `store`.
pub fn leave(gateway: Vec<u8>, flows: Vec<(OwnedFd, Vec<u8>)>, store: &Store) {
    let handover = bentpipe_net::Handover { gateway, flows };
    match handover.pack().and_then(|(packed, flows)| store(packed).map(|()| flows)) {
        Ok(flows) => tracing::info!(flows, "left for the next process"),
        Err(error) => tracing::error!(%error, "nothing is left for the next process"),
    }
}

/// A request to all relays of a gateway to stop, and what they leave for the next process.
#[derive(Clone, Default)]
pub struct Handover {
    relays: TaskTracker,
    requested: CancellationToken,
    left: Arc<Mutex<Vec<(OwnedFd, Vec<u8>)>>>,
}

impl Handover {
    /// Stops all relays whose flows can go on in the next process. Returns their sockets, each with
    /// its state. The other relays go on.
    pub async fn collect(&self) -> Vec<(OwnedFd, Vec<u8>)> {
        self.requested.cancel();
        self.relays.close();
        if timeout(PATIENCE, self.relays.wait()).await.is_err() {
            tracing::warn!(relays = self.relays.len(), "some flows do not stop and are reset");
        }
        std::mem::take(&mut *self.left.lock())
    }
}

impl Relay {
    /// Runs until the flow ends, or until the gateway hands it over together with `owner`. In the
    /// latter case there is no outcome.
    pub async fn run(mut self, handover: &Handover, owner: &[u8]) -> Option<Outcome> {
        let running = handover.relays.token();
        tokio::select! {
            biased;
            () = handover.requested.cancelled() => {}
            outcome = &mut self => return Some(outcome),
        }
        if let Some(left) = self.leave(owner) {
            handover.left.lock().push(left);
            return None;
        }
        drop(running);
        Some(self.await)
    }

    /// Takes the relay apart. `None` if its flow ends with this process.
    fn leave(&mut self, owner: &[u8]) -> Option<(OwnedFd, Vec<u8>)> {
        let socket = self.tcp.as_fd().try_clone_to_owned();
        let socket = socket.inspect_err(|error| tracing::warn!(%error, "a flow is reset")).ok()?;
        let flow = self.flow.hand_over()?;
        // If nobody takes the socket over, its peer must not see a clean end.
        reset_on_close(&self.tcp);
        self.ended = true;
        self.counters.handed_over.add(1);
        let mut state = Vec::new();
        put(&mut state, owner);
        self.to_flow.put(&mut state);
        self.to_tcp.put(&mut state);
        state.put_u8(u8::from(self.answered));
        state.extend(flow);
        Some((socket, state))
    }
}

/// A relay that the previous process has left.
pub struct Left {
    socket: TcpStream,
    to_flow: Half,
    to_tcp: Half,
    answered: bool,
    /// Description of the owner, by the gateway.
    pub owner: Vec<u8>,
    /// State of the flow.
    pub flow: Vec<u8>,
}

impl Left {
    /// Reads what a relay has left. Must be called within a tokio runtime.
    pub fn take((socket, state): (OwnedFd, Vec<u8>)) -> io::Result<Self> {
        let socket = std::net::TcpStream::from(socket);
        socket.set_nonblocking(true)?;
        let socket = TcpStream::from_std(socket)?;
        let mut rest = &state[..];
        let mut read = || {
            let owner = get(&mut rest)?;
            let (to_flow, to_tcp) = (Half::get(&mut rest)?, Half::get(&mut rest)?);
            Ok::<_, TryGetError>((owner, to_flow, to_tcp, rest.try_get_u8()? != 0))
        };
        let (owner, to_flow, to_tcp, answered) = read().map_err(io::Error::other)?;
        Ok(Self { socket, to_flow, to_tcp, answered, owner, flow: rest.to_vec() })
    }

    /// The socket of the local TCP connection.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Goes on as `relay` says about everything but the state of its two directions.
    pub fn resume(
        self,
        flow: Box<dyn FlowStream>,
        relay: impl FnOnce(TcpStream, Box<dyn FlowStream>) -> Relay,
    ) -> Relay {
        bentpipe_net::close_cleanly(&self.socket);
        let mut relay = relay(self.socket, flow);
        relay.to_flow = self.to_flow;
        relay.to_tcp = self.to_tcp;
        relay.answered = self.answered;
        relay
    }
}

pub(crate) fn put(state: &mut Vec<u8>, bytes: &[u8]) {
    state.put_u32(bytes.len() as u32);
    state.extend(bytes);
}

pub(crate) fn get(rest: &mut &[u8]) -> Result<Vec<u8>, TryGetError> {
    let requested = rest.try_get_u32()? as usize;
    let (bytes, after) =
        rest.split_at_checked(requested).ok_or(TryGetError { requested, available: rest.len() })?;
    *rest = after;
    Ok(bytes.to_vec())
}
