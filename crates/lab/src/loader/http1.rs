//! HTTP/1.1: one request at a time on each of several connections, as in browsers' pools. A request
//! is bound to the first connection that becomes free, even if another was opened for it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::Protocol;
use super::connect::{Connection, IsUp};
use super::fetch::Job;
use super::pool::Pool;

/// Event of a pool.
enum Event {
    Dialled(Result<Connection, String>),
    /// A dial has taken longer than [`super::Load::connect_retry`].
    Late(IsUp),
    /// A resource is complete or has failed. Its connection is included if it can be reused.
    Done(usize, Option<Connection>),
}

struct Connections {
    pool: Pool,
    waiting: VecDeque<Job>,
    idle: Vec<Connection>,
    dialling: usize,
    /// Connections that are being opened, idle or busy.
    open: usize,
    working: JoinSet<Event>,
}

/// Serves the requests to one domain until no more can follow.
pub(super) async fn run(pool: Pool, mut wanted: UnboundedReceiver<Job>) {
    let mut connections = Connections {
        pool,
        waiting: VecDeque::new(),
        idle: Vec::new(),
        dialling: 0,
        open: 0,
        working: JoinSet::new(),
    };
    loop {
        connections.assign();
        tokio::select! {
            job = wanted.recv() => match job {
                Some(job) => connections.waiting.push_back(job),
                None => return,
            },
            Some(event) = connections.working.join_next() => match event {
                Ok(event) => connections.hear(event),
                Err(broken) => std::panic::resume_unwind(broken.into_panic()),
            },
        }
    }
}

impl Connections {
    /// Assigns waiting requests to free connections, and opens connections for the rest.
    fn assign(&mut self) {
        // A free connection stays free until a request waits for it.
        while let Some(job) = self.waiting.front().copied()
            && let Some(mut connection) = self.idle.pop()
        {
            if connection.is_closed() {
                self.open -= 1;
                continue;
            }
            self.waiting.pop_front();
            let dialer = self.pool.dialer.clone();
            self.working.spawn(async move {
                let done = connection.fetch(&dialer, job).await;
                let again = done.is_ok() && dialer.protocol != Protocol::Http1Close;
                Event::Done(job.place, again.then_some(connection))
            });
        }
        while self.waiting.len() > self.dialling && self.open < self.pool.dialer.connections {
            self.dial();
        }
    }

    fn dial(&mut self) {
        (self.dialling, self.open) = (self.dialling + 1, self.open + 1);
        let (dialer, domain, is_up) = (self.pool.dialer.clone(), self.pool.domain, IsUp::default());
        if let Some(retry) = dialer.connect_retry {
            let is_up = is_up.clone();
            self.working.spawn(async move {
                tokio::time::sleep(retry).await;
                Event::Late(is_up)
            });
        }
        self.working.spawn(async move { Event::Dialled(dialer.dial(domain, &is_up).await) });
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Dialled(Ok(connection)) => {
                self.dialling -= 1;
                self.idle.push(connection);
            }
            Event::Dialled(Err(why)) => {
                (self.dialling, self.open) = (self.dialling - 1, self.open - 1);
                // The connection was opened for a request, unless it was a retry.
                if self.waiting.len() > self.dialling
                    && let Some(job) = self.waiting.pop_front()
                {
                    self.pool.dialer.tally.failed(job.place, why);
                    let _ = self.pool.done.send(job.place);
                }
            }
            Event::Late(is_up) => {
                let has_room = self.open < self.pool.dialer.connections;
                if !is_up.load(Ordering::Relaxed) && has_room {
                    self.dial();
                }
            }
            Event::Done(place, connection) => {
                match connection {
                    Some(connection) => self.idle.push(connection),
                    None => self.open -= 1,
                }
                // The receiver is gone once the load is over.
                let _ = self.pool.done.send(place);
            }
        }
    }
}
