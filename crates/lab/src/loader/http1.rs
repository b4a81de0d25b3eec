//! HTTP/1.1: one request at a time on each of several connections, as in browsers' pools. A request
//! is bound to the first connection that becomes free, even if another was opened for it.

use super::Protocol;
use super::connect::Connection;
use super::pool::{self, Event, Pool};

/// Connections of HTTP/1.1 to one domain.
pub(super) struct Http1 {
    pool: Pool,
    idle: Vec<Connection>,
    /// Connections that are being opened, idle or busy.
    open: usize,
}

impl Http1 {
    pub fn new(pool: Pool) -> Self {
        Self { pool, idle: Vec::new(), open: 0 }
    }

    fn dial(&mut self) {
        self.open += 1;
        self.pool.dial();
    }
}

impl pool::Connections for Http1 {
    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn assign(&mut self) {
        // A free connection stays free until a request waits for it.
        while let Some(job) = self.pool.waiting.front().copied()
            && let Some(mut connection) = self.idle.pop()
        {
            if connection.is_closed() {
                self.open -= 1;
                continue;
            }
            self.pool.waiting.pop_front();
            let dialer = self.pool.dialer.clone();
            self.pool.working.spawn(async move {
                let done = connection.fetch(&dialer, job).await;
                let again = done.is_ok() && dialer.protocol != Protocol::Http1Close;
                Event::Done(job.place, again.then_some(connection))
            });
        }
        while self.pool.waiting.len() > self.pool.dialling
            && self.open < self.pool.dialer.connections
        {
            self.dial();
        }
    }

    fn dialled(&mut self, result: Result<Connection, String>) {
        self.pool.dialling -= 1;
        match result {
            Ok(connection) => self.idle.push(connection),
            Err(why) => {
                self.open -= 1;
                // The connection was opened for a request, unless it was a retry.
                if self.pool.waiting.len() > self.pool.dialling
                    && let Some(job) = self.pool.waiting.pop_front()
                {
                    self.pool.fail(job, why);
                }
            }
        }
    }

    fn late(&mut self) {
        if self.open < self.pool.dialer.connections {
            self.dial();
        }
    }

    fn over(&mut self, connection: Option<Connection>) {
        match connection {
            Some(connection) => self.idle.push(connection),
            None => self.open -= 1,
        }
    }
}
