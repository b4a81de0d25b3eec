//! The requests to one domain, and the connections that are opened for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::connect::{Connection, Dialer, IsUp};
use super::fetch::Job;

/// Event of a pool.
pub(super) enum Event {
    Dialled(Result<Connection, String>),
    /// A dial has taken longer than [`super::Load::connect_retry`].
    Late(IsUp),
    /// A resource is complete or has failed. Its connection is included if it can be reused.
    Done(usize, Option<Connection>),
}

/// Waiting requests to one domain, or to the proxy, and work in progress.
pub(super) struct Pool {
    pub dialer: Arc<Dialer>,
    pub waiting: VecDeque<Job>,
    /// Number of connections that are being opened.
    pub dialling: usize,
    pub working: JoinSet<Event>,
    domain: usize,
    /// Receives each resource that is complete or has failed.
    done: mpsc::UnboundedSender<usize>,
}

/// Use of connections by a version of HTTP.
pub(super) trait Connections {
    fn pool(&mut self) -> &mut Pool;
    /// Assigns waiting requests to connections, and opens connections.
    fn assign(&mut self);
    fn dialled(&mut self, result: Result<Connection, String>);
    /// A dial is late.
    fn late(&mut self);
    /// A request is over.
    fn over(&mut self, connection: Option<Connection>);
}

impl Pool {
    pub fn new(dialer: Arc<Dialer>, domain: usize, done: mpsc::UnboundedSender<usize>) -> Self {
        let (waiting, working) = (VecDeque::new(), JoinSet::new());
        Self { dialer, waiting, dialling: 0, working, domain, done }
    }

    /// Opens a connection. Another attempt may follow if it takes long; QUIC repeats its own.
    pub fn dial(&mut self) {
        self.dialling += 1;
        let (dialer, domain, is_up) = (self.dialer.clone(), self.domain, IsUp::default());
        if let Some(retry) = dialer.connect_retry.filter(|_| !dialer.protocol.is_quic()) {
            let is_up = is_up.clone();
            self.working.spawn(async move {
                tokio::time::sleep(retry).await;
                Event::Late(is_up)
            });
        }
        self.working.spawn(async move { Event::Dialled(dialer.dial(domain, &is_up).await) });
    }

    /// Fails a request because no connection could be opened.
    pub fn fail(&self, job: Job, why: String) {
        self.dialer.tally.failed(job.place, why);
        self.tell(job.place);
    }

    fn tell(&self, place: usize) {
        // The receiver is gone once the load is over.
        let _ = self.done.send(place);
    }
}

/// Serves the requests to one domain until no more can follow.
pub(super) async fn serve(
    mut connections: impl Connections,
    mut wanted: mpsc::UnboundedReceiver<Job>,
) {
    loop {
        connections.assign();
        let pool = connections.pool();
        tokio::select! {
            job = wanted.recv() => match job {
                Some(job) => pool.waiting.push_back(job),
                None => return,
            },
            Some(event) = pool.working.join_next() => match event {
                Ok(Event::Dialled(result)) => connections.dialled(result),
                Ok(Event::Late(is_up)) if is_up.load(Ordering::Relaxed) => {}
                Ok(Event::Late(_)) => connections.late(),
                Ok(Event::Done(place, connection)) => {
                    pool.tell(place);
                    connections.over(connection);
                }
                Err(broken) => std::panic::resume_unwind(broken.into_panic()),
            },
        }
    }
}
