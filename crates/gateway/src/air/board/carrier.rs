//! Questions to the ground, and what comes back.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};

use super::Board;
use super::streams::{Asked, MOST_STREAMS, Streams};
use super::way::{CLASS, NOBODY, Outgoing, Way, resolver};
use crate::dns::read_message;
use crate::far::Open;
use crate::far::datagram::Datagram;

/// Maximum time of an answer over a stream; the resolver gives up before.
const STREAM_WAIT: Duration = Duration::from_secs(15);

/// Polling interval of the link's state.
const LOOK: Duration = Duration::from_millis(250);

impl Board {
    /// Carries questions and answers, and minds the time; for ever. Nothing in here waits for the link
    /// while there is something else to be done.
    pub async fn carry(self: &Arc<Self>, asked: &mut mpsc::Receiver<Outgoing>) {
        let mut way = Way::new(&*self.far);
        let mut streams = Streams::default();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next = self.lock().next_tick();
            let due = async {
                match next {
                    Some(at) => sleep_until(self.clock.when(at)).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                question = asked.recv() => {
                    // The board, which asks, is alive as long as this is.
                    let Some(question) = question else { return };
                    way.take(question);
                }
                event = way.event() => {
                    if let Some(Ok(Datagram::Payload(message))) = event.as_deref().map(Datagram::parse) {
                        self.with(|front, now| front.answered(message, now));
                    } else if way.has_only_streams() {
                        self.with(|front, _| front.set_most_asks(MOST_STREAMS));
                    }
                }
                () = streams.next() => {}
                () = due => self.with(|front, now| front.tick(now)),
                () = self.changed.notified() => {}
                _ = looks.tick() => self.with(|front, now| front.set_up(self.is_up(), now)),
            }
            if !streams.is_empty() {
                let front = self.lock();
                streams.retain(|id| front.is_asking(id));
            }
            while let Some(Outgoing { id, message, .. }) = way.next_by_stream() {
                let Some(id) = id else { continue };
                match streams.ask(id, || self.ask_over_stream(id, message)) {
                    Asked::Now => self.with(|front, now| front.over_stream(id, now)),
                    Asked::Already => {}
                    Asked::Full => self.with(|front, now| front.not_sent(id, now)),
                }
            }
        }
    }

    /// Asks the question `id`, and gives its id when that is over.
    async fn ask_over_stream(&self, id: u16, message: Vec<u8>) -> u16 {
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
            let mut stream = self.far.open(open).await.ok()?;
            read_message(&mut stream).await.ok()?
        };
        let answer = timeout(STREAM_WAIT, asking).await.ok().flatten();
        self.with(|front, now| match answer {
            Some(answer) => front.answered(&answer, now),
            None => front.failed(id, now),
        });
        id
    }
}
