//! Page load as in browsers over HTTP/1.1: the document, then its objects on several persistent
//! connections.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use futures_util::future::try_join_all;

use super::client::{Connection, HttpError};
use super::origin::Arrival;

/// Connections to one host, as in Chromium, Firefox and Safari.
pub const CONNECTIONS: usize = 6;

/// Loads `document`, then `objects` on one connection for each of `tallies`. Received bytes are
/// added to the tallies.
pub async fn load(
    document: &str,
    objects: impl Iterator<Item = String>,
    tallies: &[Cell<Arrival>],
) -> Result<(), HttpError> {
    let mut first = Connection::open().await?;
    first.fetch(document, &Cell::default(), tallies.first()).await?;
    let waiting = RefCell::new(objects.collect::<VecDeque<_>>());
    let first = RefCell::new(Some(first));
    let each = tallies.iter().map(async |tally| {
        let opened = first.borrow_mut().take();
        let mut connection = match opened {
            Some(connection) => connection,
            None => Connection::open().await?,
        };
        loop {
            let next = waiting.borrow_mut().pop_front();
            let Some(path) = next else { return Ok::<_, HttpError>(()) };
            connection.fetch(&path, &Cell::default(), Some(tally)).await?;
        }
    });
    try_join_all(each).await.map(drop)
}
