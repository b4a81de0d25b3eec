//! HTTP/2 and HTTP/3: all requests to one domain on one connection, as many concurrently as it
//! accepts.

use super::connect::{Connection, Sender};
use super::fetch::Asking;
use super::pool::{self, Event, Pool};

/// The connection of HTTP/2 or HTTP/3 to one domain.
pub(super) struct Multiplexed {
    pool: Pool,
    connection: Option<Connection>,
    /// Requests in progress.
    busy: usize,
}

impl Multiplexed {
    pub fn new(pool: Pool) -> Self {
        Self { pool, connection: None, busy: 0 }
    }
}

impl pool::Connections for Multiplexed {
    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn assign(&mut self) {
        if self.connection.as_ref().is_some_and(Connection::is_closed) {
            self.connection = None;
        }
        let Some(connection) = &mut self.connection else {
            if !self.pool.waiting.is_empty() && self.pool.dialling == 0 {
                self.pool.dial();
            }
            return;
        };
        while self.busy < self.pool.dialer.max_streams
            && let Some(job) = self.pool.waiting.pop_front()
        {
            let Some(mut sender) = connection.sender.again() else { return };
            self.busy += 1;
            let (dialer, number) = (self.pool.dialer.clone(), connection.number);
            let made = connection.made.take();
            self.pool.working.spawn(async move {
                let asking = Asking { dialer: &dialer, connection: number, made };
                // A failure has already been recorded.
                let _ = asking.fetch(&mut sender, job).await;
                Event::Done(job.place, None)
            });
        }
    }

    fn dialled(&mut self, result: Result<Connection, String>) {
        self.pool.dialling -= 1;
        match result {
            // The first connection is used. Further attempts are closed when they come up.
            Ok(connection) => {
                self.connection.get_or_insert(connection);
            }
            Err(why) if self.pool.dialling == 0 && self.connection.is_none() => {
                for job in std::mem::take(&mut self.pool.waiting) {
                    self.pool.fail(job, why.clone());
                }
            }
            Err(_) => {}
        }
    }

    fn late(&mut self) {
        let has_room = self.pool.dialling < self.pool.dialer.connections;
        if self.connection.is_none() && has_room {
            self.pool.dial();
        }
    }

    fn over(&mut self, _: Option<Connection>) {
        self.busy -= 1;
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
