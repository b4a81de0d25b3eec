//! HTTP/2 and HTTP/3: all requests to one domain on one connection, as many concurrently as it
//! accepts.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::connect::{Connection, IsUp, Sender};
use super::fetch::{Asking, Job};
use super::pool::Pool;

/// Event of the connection's keeper.
enum Event {
    Dialled(Result<Connection, String>),
    /// A dial has taken longer than [`super::Load::connect_retry`].
    Late(IsUp),
    /// A resource is complete or has failed.
    Done(usize),
}

struct Keeper {
    pool: Pool,
    waiting: VecDeque<Job>,
    connection: Option<Connection>,
    /// Requests in progress.
    busy: usize,
    dialling: usize,
    working: JoinSet<Event>,
}

/// Serves the requests to one domain until no more can follow.
pub(super) async fn run(pool: Pool, mut wanted: UnboundedReceiver<Job>) {
    let mut keeper = Keeper {
        pool,
        waiting: VecDeque::new(),
        connection: None,
        busy: 0,
        dialling: 0,
        working: JoinSet::new(),
    };
    loop {
        keeper.assign();
        tokio::select! {
            job = wanted.recv() => match job {
                Some(job) => keeper.waiting.push_back(job),
                None => return,
            },
            Some(event) = keeper.working.join_next() => match event {
                Ok(event) => keeper.hear(event),
                Err(broken) => std::panic::resume_unwind(broken.into_panic()),
            },
        }
    }
}

impl Keeper {
    /// Sends waiting requests as long as there is room, and makes sure that there is a connection.
    fn assign(&mut self) {
        if self.connection.as_ref().is_some_and(Connection::is_closed) {
            self.connection = None;
        }
        let Some(connection) = &mut self.connection else {
            if !self.waiting.is_empty() && self.dialling == 0 {
                self.dial();
            }
            return;
        };
        while self.busy < self.pool.dialer.max_streams
            && let Some(job) = self.waiting.pop_front()
        {
            let Some(mut sender) = connection.sender.again() else { return };
            self.busy += 1;
            let (dialer, number) = (self.pool.dialer.clone(), connection.number);
            let made = connection.made.take();
            self.working.spawn(async move {
                let asking = Asking { dialer: &dialer, connection: number, made };
                // A failure has already been recorded.
                let _ = asking.fetch(&mut sender, job).await;
                Event::Done(job.place)
            });
        }
    }

    fn dial(&mut self) {
        self.dialling += 1;
        let (dialer, domain, is_up) = (self.pool.dialer.clone(), self.pool.domain, IsUp::default());
        if let Some(retry) = dialer.connect_retry.filter(|_| !dialer.protocol.is_quic()) {
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
                // The first connection is used. Further attempts are closed when they come up.
                self.connection.get_or_insert(connection);
            }
            Event::Dialled(Err(why)) => {
                self.dialling -= 1;
                if self.dialling == 0 && self.connection.is_none() {
                    for job in self.waiting.drain(..) {
                        self.pool.dialer.tally.failed(job.place, why.clone());
                        let _ = self.pool.done.send(job.place);
                    }
                }
            }
            Event::Late(is_up) => {
                let has_room = self.dialling < self.pool.dialer.connections;
                if !is_up.load(Ordering::Relaxed) && self.connection.is_none() && has_room {
                    self.dial();
                }
            }
            Event::Done(place) => {
                self.busy -= 1;
                // The receiver is gone once the load is over.
                let _ = self.pool.done.send(place);
            }
        }
    }
}

impl Sender {
    /// Another sender for the same connection, if it carries many requests concurrently.
    fn again(&self) -> Option<Self> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(sender) => Some(Self::Http2(sender.clone())),
            Self::Http3(sender) => Some(Self::Http3(sender.clone())),
        }
    }
}
