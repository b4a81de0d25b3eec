//! A hub's statement about the aircraft of a flow, on a transport without fields.
//!
//! Every flow of a hub begins with it: the aircraft's public key (32 bytes), the counter of its session
//! (8) and the number of the passenger (4), in network order. On a stream it is followed by the flow's
//! own bytes. On a flow of datagrams it has a datagram of its own, with context id 8, which is repeated
//! until the egress confirms it by an empty one. A hub that states its own key speaks for itself.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_relay::layer::{DatagramLayer, LayeredDatagrams};
use bentpipe_transport::datagram::STATEMENT;
use bentpipe_transport::{Carried, DatagramError, FlowDatagrams, FlowStream, Incoming};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::registry::Caller;

/// Length of a statement.
const STATEMENT_BYTES: usize = 44;

/// Time within which the statement has to arrive. It usually comes with the opening.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Confirmation of a statement on a flow of datagrams.
const CONFIRMATION: [u8; 1] = [STATEMENT];

/// Origin of a flow, as its hub states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement {
    /// The aircraft and its session.
    pub caller: Caller,
    /// Number of the passenger on that aircraft.
    pub passenger: u32,
}

impl Statement {
    /// Appends the statement to `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.caller.aircraft);
        out.extend(self.caller.session.to_be_bytes());
        out.extend(self.passenger.to_be_bytes());
    }

    /// Statement in these bytes; `None` if their number is wrong.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (aircraft, rest) = bytes.split_first_chunk()?;
        let (session, passenger) = rest.split_first_chunk()?;
        let caller = Caller { aircraft: *aircraft, session: u64::from_be_bytes(*session) };
        Some(Self { caller, passenger: u32::from_be_bytes(passenger.try_into().ok()?) })
    }
}

/// Reads the statement of a flow that a hub opened. Returns the flow as one of the stated aircraft, or
/// as the hub's own if the hub states itself; `None` if it states nothing.
pub async fn stated(mut incoming: Incoming) -> Option<Incoming> {
    let read = match &mut incoming.carries {
        Carried::Stream(stream) => timeout(STATEMENT_TIMEOUT, on_stream(&mut **stream)).await,
        Carried::Datagrams { flow, .. } => timeout(STATEMENT_TIMEOUT, on_datagrams(&**flow)).await,
    };
    let statement = match read {
        Ok(Ok(statement)) => statement,
        Ok(Err(code)) => {
            incoming.carries.reset(code);
            return None;
        }
        Err(_) => {
            incoming.carries.reset(ResetCode::Timeout);
            return None;
        }
    };
    let Statement { caller: Caller { aircraft, session }, passenger } = statement;
    if aircraft == incoming.aircraft {
        // The transport has proven the key. A hub has streams of its own, and no other flows.
        if let Carried::Datagrams { flow, .. } = &incoming.carries {
            flow.reset(ResetCode::Forbidden);
            return None;
        }
        return Some(incoming);
    }
    let carries = match incoming.carries {
        Carried::Datagrams { protocol, source, is_gateway, flow } => {
            let flow = Box::new(LayeredDatagrams::new(flow, Stated));
            Carried::Datagrams { protocol, source, is_gateway, flow }
        }
        stream => stream,
    };
    Some(Incoming { aircraft, session, passenger, is_forwarded: true, carries, ..incoming })
}

async fn on_stream(stream: &mut dyn FlowStream) -> Result<Statement, ResetCode> {
    let mut bytes = [0; STATEMENT_BYTES];
    match stream.read_exact(&mut bytes).await {
        Ok(_) => Statement::read(&bytes).ok_or(ResetCode::Forbidden),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ResetCode::Forbidden),
        Err(_) => Err(stream.reset_code().unwrap_or(ResetCode::Lost)),
    }
}

/// Waits for the statement, and confirms it. Datagrams that overtake it are lost.
async fn on_datagrams(flow: &dyn FlowDatagrams) -> Result<Statement, ResetCode> {
    loop {
        let datagram = flow.receive().await?;
        let Some((&STATEMENT, bytes)) = datagram.split_first() else { continue };
        let statement = Statement::read(bytes).ok_or(ResetCode::Forbidden)?;
        let _ = flow.send(&CONFIRMATION);
        return Ok(statement);
    }
}

/// Layer of a flow of datagrams at the egress, whose statement is known.
struct Stated;

impl DatagramLayer for Stated {
    fn receive<'a>(
        &'a self,
        flow: &'a dyn FlowDatagrams,
    ) -> BoxFuture<'a, Result<Bytes, ResetCode>> {
        Box::pin(async {
            loop {
                let datagram = flow.receive().await?;
                if datagram.first() != Some(&STATEMENT) {
                    return Ok(datagram);
                }
                // The confirmation is under way, or lost.
                let _ = flow.send(&CONFIRMATION);
            }
        })
    }
}

/// Layer of a flow of datagrams at the hub. The statement goes before each datagram until it is
/// confirmed.
pub struct Stating {
    statement: Vec<u8>,
    is_confirmed: AtomicBool,
}

impl Stating {
    /// States this origin.
    pub fn new(stated: &Statement) -> Self {
        let mut statement = vec![STATEMENT];
        stated.put(&mut statement);
        Self { statement, is_confirmed: AtomicBool::new(false) }
    }
}

impl DatagramLayer for Stating {
    fn send(&self, flow: &dyn FlowDatagrams, datagram: &[u8]) -> Result<(), DatagramError> {
        if !self.is_confirmed.load(Ordering::Relaxed) {
            flow.send(&self.statement)?;
        }
        flow.send(datagram)
    }

    fn receive<'a>(
        &'a self,
        flow: &'a dyn FlowDatagrams,
    ) -> BoxFuture<'a, Result<Bytes, ResetCode>> {
        Box::pin(async {
            loop {
                let datagram = flow.receive().await?;
                if datagram.first() != Some(&STATEMENT) {
                    return Ok(datagram);
                }
                self.is_confirmed.store(true, Ordering::Relaxed);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_flow::Class;
    use tokio::sync::{Mutex, mpsc};

    /// One end of a flow that loses its first datagrams.
    struct Lossy {
        to: mpsc::UnboundedSender<Bytes>,
        from: Mutex<mpsc::UnboundedReceiver<Bytes>>,
        losses: parking_lot::Mutex<u32>,
    }

    impl Lossy {
        /// Both ends of a flow. Each loses this number of datagrams that it sends.
        fn pair(losses: [u32; 2]) -> [Box<Self>; 2] {
            let (a, at_b) = mpsc::unbounded_channel();
            let (b, at_a) = mpsc::unbounded_channel();
            let end = |to, from, losses| {
                let losses = parking_lot::Mutex::new(losses);
                Box::new(Self { to, from: Mutex::new(from), losses })
            };
            [end(a, at_a, losses[0]), end(b, at_b, losses[1])]
        }
    }

    impl FlowDatagrams for Lossy {
        fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
            let mut losses = self.losses.lock();
            match losses.checked_sub(1) {
                Some(left) => *losses = left,
                None => drop(self.to.send(Bytes::copy_from_slice(datagram))),
            }
            Ok(())
        }

        fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
            Box::pin(async move { self.from.lock().await.recv().await.ok_or(ResetCode::Lost) })
        }

        fn max_bytes(&self) -> usize {
            1200
        }

        fn reset(&self, _: ResetCode) {}
    }

    const ORIGIN: Statement =
        Statement { caller: Caller { aircraft: [7; 32], session: u64::MAX - 1 }, passenger: 9 };

    /// Flow of a hub at an egress.
    fn incoming(flow: Box<dyn FlowDatagrams>) -> Incoming {
        Incoming {
            aircraft: [1; 32],
            session: 1,
            is_forwarded: false,
            target: "192.0.2.1:9".parse().unwrap(),
            class: Class::BestEffort,
            passenger: 77,
            claim: None,
            dialler: None,
            carries: Carried::Datagrams { protocol: 17, source: 5_000, is_gateway: true, flow },
        }
    }

    #[test]
    fn a_statement_reads_back() {
        let mut bytes = Vec::new();
        ORIGIN.put(&mut bytes);
        assert_eq!(bytes.len(), STATEMENT_BYTES);
        assert_eq!(Statement::read(&bytes), Some(ORIGIN));
        assert_eq!(Statement::read(&bytes[1..]), None);
        bytes.push(0);
        assert_eq!(Statement::read(&bytes), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_statement_among_datagrams_is_repeated_until_it_is_confirmed() {
        // The first statement is lost, and so is its first confirmation.
        let [near, far] = Lossy::pair([1, 1]);
        let hub = Stating::new(&ORIGIN);
        for text in [&b"\0one"[..], b"\0two", b"\0three"] {
            hub.send(&*near, text).unwrap();
        }
        let stated = stated(incoming(far)).await.unwrap();
        let origin =
            (Caller { aircraft: stated.aircraft, session: stated.session }, stated.passenger);
        assert_eq!(origin, (ORIGIN.caller, ORIGIN.passenger));
        assert!(stated.is_forwarded);
        let Carried::Datagrams { flow, .. } = stated.carries else { panic!() };
        assert_eq!(
            flow.receive().await.unwrap(),
            b"\0two"[..],
            "the first came before a statement"
        );
        assert_eq!(flow.receive().await.unwrap(), b"\0three"[..]);
        flow.send(b"\0answer").unwrap();
        assert_eq!(hub.receive(&*near).await.unwrap(), b"\0answer"[..]);
        hub.send(&*near, b"\0four").unwrap();
        assert_eq!(flow.receive().await.unwrap(), b"\0four"[..]);
        assert!(hub.is_confirmed.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_states_itself_has_no_datagrams() {
        let [near, far] = Lossy::pair([0, 0]);
        let flow = incoming(far);
        let own = Caller { aircraft: flow.aircraft, session: 0 };
        let hub = Stating::new(&Statement { caller: own, passenger: 0 });
        hub.send(&*near, b"\0payload").unwrap();
        assert!(stated(flow).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_without_a_statement_is_refused() {
        let [near, far] = Lossy::pair([0, 0]);
        near.send(b"\0payload").unwrap();
        assert!(stated(incoming(far)).await.is_none(), "after a time");
        let [near, far] = Lossy::pair([0, 0]);
        near.send(&[8; STATEMENT_BYTES]).unwrap();
        assert!(stated(incoming(far)).await.is_none(), "it is a byte too short");
    }
}
