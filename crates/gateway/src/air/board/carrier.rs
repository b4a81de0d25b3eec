//! Questions to the ground, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::{Class, Host, Service, Target};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};

use super::{Board, PORT};
use crate::dns::read_message;
use crate::far::datagram::Datagram;
use crate::far::{DatagramError, FarDatagrams, FarEnd, Open, OpenDatagrams, OpenError};
use crate::net::ip::UDP;

/// Names are what everything else waits for; the ground gives the class if it may.
const CLASS: Class = Class::Network;

/// The gateway's own flows are of no passenger: numbers of those begin above.
const NOBODY: u32 = 0;

/// How long an answer over a stream may take.
const STREAM_WAIT: Duration = Duration::from_secs(10);

/// Answers over streams that are awaited at once.
const MOST_STREAMS: usize = 64;

/// A question on its way.
pub struct Outgoing {
    /// Its id.
    pub id: u16,
    /// The message.
    pub message: Vec<u8>,
    /// Whether its answer does not fit into a datagram.
    pub over_stream: bool,
}

impl Board {
    /// Carries questions and answers, and minds the time; for ever.
    pub async fn carry(self: &Arc<Self>, far: &dyn FarEnd, asked: &mut mpsc::Receiver<Outgoing>) {
        let mut flow: Option<Box<dyn FarDatagrams>> = None;
        let mut streams = FuturesUnordered::new();
        loop {
            let next = self.lock().next_tick();
            let due = async {
                match next {
                    Some(at) => sleep_until(self.clock.when(at)).await,
                    None => std::future::pending().await,
                }
            };
            let came = async {
                match &flow {
                    Some(flow) => flow.receive().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                question = asked.recv() => {
                    // The board, which asks, is alive as long as this is.
                    let Some(question) = question else { return };
                    let sent = !question.over_stream
                        && send(far, &mut flow, &question.message).await;
                    if sent {
                        continue;
                    }
                    if streams.len() < MOST_STREAMS {
                        streams.push(self.ask_over_stream(far, question));
                    } else {
                        self.with(|front, now| front.failed(question.id, now));
                    }
                }
                datagram = came => match datagram {
                    Ok(datagram) => {
                        if let Ok(Datagram::Payload(message)) = Datagram::parse(&datagram) {
                            self.with(|front, now| front.answered(message, now));
                        }
                    }
                    // It was idle, or the link has gone: the next question opens another.
                    Err(_) => flow = None,
                },
                Some(()) = streams.next() => {}
                () = due => self.with(|front, now| front.tick(now)),
                () = self.changed.notified() => {}
            }
        }
    }

    async fn ask_over_stream(&self, far: &dyn FarEnd, question: Outgoing) {
        let Outgoing { id, message, .. } = question;
        let asking = async {
            // Fits: a question has at most 300 bytes.
            let first = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
            let open = Open {
                target: resolver(),
                class: CLASS,
                passenger: NOBODY,
                claim: None,
                first: Bytes::from(first),
            };
            let mut stream = far.open(open).await.ok()?;
            read_message(&mut stream).await.ok()?
        };
        let answer = timeout(STREAM_WAIT, asking).await.ok().flatten();
        self.with(|front, now| match answer {
            Some(answer) => front.answered(&answer, now),
            None => front.failed(id, now),
        });
    }
}

/// Sends a question by `flow`, which is opened where it is not. False where the transport has no
/// datagrams; what cannot be sent for another reason counts as lost.
async fn send(far: &dyn FarEnd, flow: &mut Option<Box<dyn FarDatagrams>>, message: &[u8]) -> bool {
    let mut datagram = BytesMut::new();
    Datagram::Payload(message).encode(&mut datagram);
    for _ in 0..2 {
        if flow.is_none() {
            let open = OpenDatagrams {
                target: resolver(),
                protocol: UDP,
                source: 0,
                class: CLASS,
                passenger: NOBODY,
            };
            match far.open_datagrams(open).await {
                Ok(opened) => *flow = Some(opened),
                Err(OpenError::Unsupported) => return false,
                Err(_) => return true,
            }
        }
        match flow.as_ref().map(|flow| flow.send(&datagram)) {
            Some(Err(DatagramError::Ended)) => *flow = None,
            _ => return true,
        }
    }
    true
}

fn resolver() -> Target {
    Target { host: Host::Service(Service::Resolver), port: PORT }
}
