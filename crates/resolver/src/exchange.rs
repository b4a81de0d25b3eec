//! Exchange of queries and answers with the ground's resolver.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::resolver::Resolver;
use super::streams::{MAX_STREAMS, Streams};
use super::upstream::{CLASS, Query, UpstreamFlow, resolver_target};
use bentpipe_dns::io::{MAX_ANSWER_BYTES, read_message};
use bentpipe_transport::datagram::Datagram;
use bentpipe_transport::{Open, reach_changed};
use bentpipe_uplink::passengers::GATEWAY;

/// Time limit for an answer over a stream; the resolver gives up earlier.
const STREAM_WAIT: Duration = Duration::from_secs(15);

/// Waits until `time`; for ever if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

impl Resolver {
    /// Exchanges queries and answers, and runs timers. Never returns. No branch waits for the link
    /// while other work is pending.
    pub async fn carry(self: &Arc<Self>, asked: &mut mpsc::Receiver<Query>) {
        let mut upstream = UpstreamFlow::new(&*self.connector);
        let mut streams = Streams::default();
        let mut reach = self.connector.watch_reach();
        reach.mark_changed();
        loop {
            let next = self.lock().next_tick();
            let due = at(next.map(|at| self.clock.when(at)));
            let intolerable = at(self.tolerates_until());
            tokio::select! {
                question = asked.recv() => {
                    // The board owns the sender, and lives as long as this task.
                    let Some(question) = question else { return };
                    upstream.take(question);
                }
                event = upstream.event() => {
                    if let Some(Ok(Datagram::Payload(message))) = event.as_deref().map(Datagram::parse) {
                        self.with(|core, now| core.on_answer(message, now));
                    } else if upstream.has_only_streams() {
                        self.with(|core, _| core.set_max_pending(MAX_STREAMS));
                    }
                }
                () = streams.next() => {}
                () = due => self.with(|core, now| core.tick(now)),
                () = self.changed.notified() => {}
                () = reach_changed(&mut reach) => self.look(),
                () = intolerable => self.look(),
            }
            if !streams.is_empty() {
                let core = self.lock();
                streams.retain(|id| core.is_pending(id));
            }
            while let Some(Query { id, message, .. }) = upstream.next_by_stream() {
                let Some(id) = id else { continue };
                if !streams.has_room_for(id) {
                    self.with(|core, now| core.on_streams_full(id, now));
                    let core = self.lock();
                    streams.retain(|id| core.is_pending(id));
                }
                // The query itself may have ended.
                if self.lock().is_pending(id)
                    && streams.ask(id, || self.ask_over_stream(id, message))
                {
                    self.with(|core, now| core.over_stream(id, now));
                }
            }
        }
    }

    /// Notes the state of the link.
    fn look(&self) {
        self.with(|core, now| core.set_reachable(self.is_up(), now));
    }

    /// Sends query `id` over a stream. Returns the ID when the query has ended.
    async fn ask_over_stream(&self, id: u16, message: Vec<u8>) -> u16 {
        let asking = async {
            // Cannot truncate: a query has at most 300 bytes.
            let first = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
            let open = Open {
                target: resolver_target(),
                class: CLASS,
                passenger: GATEWAY,
                claim: None,
                first: Bytes::from(first),
            };
            let mut stream = self.connector.open(open).await.ok()?;
            read_message(&mut stream, MAX_ANSWER_BYTES).await.ok()?
        };
        let answer = timeout(STREAM_WAIT, asking).await.ok().flatten();
        self.with(|core, now| match answer {
            Some(answer) => core.on_answer(&answer, now),
            None => core.on_stream_failed(id, now),
        });
        id
    }
}
