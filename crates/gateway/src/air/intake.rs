//! What every listener does with a client once it knows where the client wants to go.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::{Class, Target};
use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::passengers::{Kind, Limit, Passengers, Ticket};
use crate::config::AirLimits;
use crate::counters::Counters;
use crate::far::{FarEnd, MAX_FIRST_BYTES, Open, OpenDatagrams};
use crate::flows::Flows;
use crate::net;
use crate::quiet::Quiet;
use crate::relay::{Outcome, Relay, reset_on_close};

/// How long a flow waits for the client's first bytes, so that they travel with
/// it. Only protocols in which the server speaks first lose this time.
const FIRST_BYTES_WAIT: Duration = Duration::from_millis(10);

/// What the listeners share.
pub struct Intake {
    pub far: Arc<dyn FarEnd>,
    pub limits: AirLimits,
    pub counters: Arc<Counters>,
    pub flows: Flows,
    pub quiet: Quiet,
    passengers: Arc<Passengers>,
}

impl Intake {
    pub fn new(far: Arc<dyn FarEnd>, limits: AirLimits, flows: Flows) -> Self {
        let udp = &limits.udp;
        let passengers = Passengers::new(
            Limit {
                all: limits.max_flows,
                each: limits.max_flows_per_passenger,
                each_per_second: None,
            },
            Limit {
                all: udp.max_flows,
                each: udp.max_flows_per_passenger,
                each_per_second: Some(udp.flows_per_second_per_passenger),
            },
        );
        let (counters, quiet) = Default::default();
        Self { far, limits, counters, flows, quiet, passengers }
    }

    /// Counts a client in, or resets it where a limit is reached.
    pub fn admit(&self, tcp: &TcpStream, client: SocketAddr) -> Option<Ticket> {
        self.counters.accepted.add(1);
        let ticket = self.passengers.admit(client.ip(), Kind::Streams);
        if ticket.is_none() {
            self.counters.over_limit.add(1);
            self.quiet.refused(client.ip(), "too many connections are open");
            reset_on_close(tcp);
            return None;
        }
        // Fails only when the client has already gone, which the next read tells.
        let _ = net::tune(tcp);
        ticket
    }

    /// Counts a flow of datagrams in, unless a limit is reached.
    pub fn admit_datagrams(&self, client: IpAddr) -> Option<Ticket> {
        let ticket = self.passengers.admit(client, Kind::Datagrams);
        if ticket.is_none() {
            self.counters.over_limit.add(1);
            self.quiet.refused(client, "too many flows of datagrams");
        }
        ticket
    }

    /// Notes a client that speaks no protocol of its listener.
    pub fn garbage(&self, ticket: &Ticket, why: &str) {
        self.counters.garbage.add(1);
        self.quiet.refused(ticket.client, why);
    }

    /// Notes a client without the right credentials.
    pub fn unauthorized(&self, ticket: &Ticket) {
        self.counters.unauthorized.add(1);
        self.quiet.refused(ticket.client, "wrong username or password");
    }

    /// What to ask the far end for.
    pub fn open(&self, target: Target, ticket: &Ticket, first: Bytes) -> Open {
        Open { target, class: Class::BestEffort, passenger: ticket.number, first }
    }

    /// The same for datagrams from the client's port `source`.
    pub fn open_datagrams(
        &self,
        target: Target,
        protocol: u8,
        source: u16,
        ticket: &Ticket,
    ) -> OpenDatagrams {
        let class = Class::BestEffort;
        OpenDatagrams { target, protocol, source, class, passenger: ticket.number }
    }

    /// Carries `tcp` to `target` until both are done; `read` was already read from it.
    pub async fn carry(&self, tcp: TcpStream, target: Target, ticket: &Ticket, read: Bytes) {
        let mut first = if read.is_empty() { first_bytes(&tcp).await } else { read };
        let pending = first.split_off(first.len().min(MAX_FIRST_BYTES));
        let open = self.open(target, ticket, first);
        let shown = open.target.to_string();
        self.counters.to_far_bytes.add(open.first.len() as u64);
        let far = match self.far.open(open).await {
            Ok(far) => far,
            Err(error) => {
                self.counters.count_reset(error.code());
                self.quiet.warn("cannot open a flow", &error);
                reset_on_close(&tcp);
                return;
            }
        };
        let limits = self.limits.relay();
        let relay = Relay::new(tcp, far, pending.into(), limits, self.counters.clone());
        if let Outcome::Reset(code) = relay.await {
            tracing::debug!(passenger = ticket.number, target = shown, %code, "flow reset");
        }
    }
}

/// What the client says within [`FIRST_BYTES_WAIT`]. An error or the end will
/// show again when the relay reads.
async fn first_bytes(tcp: &TcpStream) -> Bytes {
    let reading = async {
        // Readiness may be announced before there is anything to read.
        while tcp.readable().await.is_ok() {
            let mut first = BytesMut::with_capacity(MAX_FIRST_BYTES);
            match tcp.try_read_buf(&mut first) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A copy, so that a short hello does not hold the whole buffer.
                _ => return Bytes::copy_from_slice(&first),
            }
        }
        Bytes::new()
    };
    timeout(FIRST_BYTES_WAIT, reading).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    async fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn what_the_client_says_at_once_travels_first() {
        let (mut client, tcp) = sockets().await;
        client.write_all(b"hello").await.unwrap();
        assert_eq!(first_bytes(&tcp).await, "hello");
        client.shutdown().await.unwrap();
        assert_eq!(first_bytes(&tcp).await, "");
    }

    #[tokio::test]
    async fn a_silent_client_costs_ten_milliseconds() {
        let (_client, tcp) = sockets().await;
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        assert_eq!(first_bytes(&tcp).await, "");
        // Timers round up to the next millisecond.
        assert!(began.elapsed() <= FIRST_BYTES_WAIT + Duration::from_millis(1));
    }
}
