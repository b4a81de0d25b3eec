//! A relay taken apart for the next process, and put together there.

use std::io;
use std::os::fd::AsFd;

use bentpipe_net::handover::LeftFlow;
use bentpipe_transport::FlowStream;
use bytes::{Buf, BufMut, TryGetError};
use tokio::net::TcpStream;

use crate::half::Half;
use crate::handover::Handover;
use crate::parts::{get, put};
use crate::{Outcome, Relay, reset_on_close};

impl Relay {
    /// Runs until the flow ends, or until the gateway hands it over together with `owner`. In the
    /// latter case there is no outcome.
    pub async fn run(mut self, handover: &Handover, owner: &[u8]) -> Option<Outcome> {
        let running = handover.running();
        tokio::select! {
            biased;
            () = handover.requested() => {}
            outcome = &mut self => return Some(outcome),
        }
        if let Some(left) = self.leave(owner) {
            handover.keep(left);
            return None;
        }
        drop(running);
        Some(self.await)
    }

    /// Takes the relay apart. `None` if its flow ends with this process.
    fn leave(&mut self, owner: &[u8]) -> Option<LeftFlow> {
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
    pub fn take((socket, state): LeftFlow) -> io::Result<Self> {
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
