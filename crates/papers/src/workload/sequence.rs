//! `sequence`: the page's objects one after another on one connection, down or up.
//!
//! All are asked for, or sent, in one request. When a connection breaks, the rest is asked for on a
//! new one: the time goes on, the break is counted, and the run counts as failed. Damaged bytes end it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use bentpipe_results::Content;
use tokio::time::timeout;

use super::http::{Connection, HttpError};
use super::{Scope, WorkError};
use crate::figures::Transfer;
use crate::job::Value;
use crate::origin::Arrival;

/// Others are under way for so long before the transfer begins.
const OTHERS_FIRST: Duration = Duration::from_secs(20);
/// Before another connection is tried.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections that one run may lose; with the last of them it has failed, and waits for its deadline.
const MOST_RESETS: u32 = 1000;

/// One run.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Value>, WorkError> {
    let Some(Content::Objects { count, bytes }) = scope.job.page().map(|page| page.content) else {
        return Err(WorkError::cannot("a sequence of anything but objects"));
    };
    let (all, up) = (u64::from(count) * bytes, scope.job.is_up());
    let flows = scope.scene.changes.cross_flows.unwrap_or(0);
    let others = (flows > 0).then(|| scope.world.others(flows, !up)).transpose()?;
    if others.is_some() {
        std::thread::sleep(OTHERS_FIRST);
    }
    let deadline = scope.job.planned.deadline;
    let number = scope.number;
    let uploads = scope.origin.uploads.clone();
    let resets_before = scope.running.resets();
    let before = scope.look(up)?;
    let (resets, damage, arrival, began, end) = scope.in_client(async || {
        let (resets, arrival) = (Cell::new(0), Cell::default());
        // Before the connection: a handshake across the link is part of the transfer.
        let began = Instant::now();
        let work = async {
            if up { send(all, number, &resets).await } else { fetch(all, &resets, &arrival).await }
        };
        let (damage, end) = match timeout(deadline, work).await {
            Ok(Err(damage)) => (Some(damage.to_string()), began + deadline),
            _ => (None, Instant::now()),
        };
        let arrival = if up { uploads.of(number) } else { arrival.get() };
        (resets.get(), damage, arrival, began, end)
    })?;
    let after = scope.look(up)?;
    drop(others);
    let finished = damage.is_none() && arrival.bytes >= all;
    scope.failed = damage;
    let last = if finished { arrival.last.unwrap_or(end) } else { end };
    let seen = scope.running.resets() - resets_before;
    let offered = after.offered.packets - before.offered.packets;
    let transfer = Transfer {
        bytes: arrival.bytes,
        took: last - began,
        receiving: last - arrival.first.unwrap_or(last),
        offered_bytes: after.offered.bytes - before.offered.bytes,
        lost: (after.lost.packets - before.lost.packets) as f64 / offered.max(1) as f64,
        resets: resets.max(u32::try_from(seen).unwrap_or(u32::MAX)),
        finished,
    };
    Ok(transfer.values(scope.scene, up))
}

/// Downloads all of it, on as many connections as it takes.
async fn fetch(all: u64, resets: &Cell<u32>, arrival: &Cell<Arrival>) -> Result<(), HttpError> {
    persist(resets, async || Connection::open().await?.get(all, arrival).await).await
}

/// Uploads all of it: after a break the server says how much it has.
async fn send(all: u64, number: u64, resets: &Cell<u32>) -> Result<(), HttpError> {
    let once = async || {
        let mut connection = Connection::open().await?;
        let from = if resets.get() == 0 { 0 } else { connection.has(number).await? };
        if from >= all { Ok(()) } else { connection.put(all, from, number).await }
    };
    persist(resets, once).await
}

/// Tries again after every break, which is counted; after as many as one run may lose it waits for
/// ever. An error where the bytes are not those that were sent.
async fn persist(
    resets: &Cell<u32>,
    once: impl AsyncFn() -> Result<(), HttpError>,
) -> Result<(), HttpError> {
    loop {
        match once().await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_damage() => return Err(error),
            Err(_) => resets.set(resets.get() + 1),
        }
        if resets.get() >= MOST_RESETS {
            return std::future::pending().await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broke() -> HttpError {
        HttpError::Connect(std::io::ErrorKind::ConnectionReset.into())
    }

    #[tokio::test]
    async fn what_breaks_is_tried_again_and_counted() {
        let resets = Cell::new(0);
        let once = async || if resets.get() < 2 { Err(broke()) } else { Ok(()) };
        assert!(persist(&resets, once).await.is_ok());
        assert_eq!(resets.get(), 2);
    }

    #[tokio::test]
    async fn what_is_damaged_is_not_tried_again() {
        let (resets, tried) = (Cell::new(0), Cell::new(0));
        let once = async || {
            tried.set(tried.get() + 1);
            if tried.get() == 1 {
                return Err(broke());
            }
            Err(HttpError::Damaged { path: "/object/9".into(), at: 4 })
        };
        assert!(persist(&resets, once).await.unwrap_err().is_damage());
        assert_eq!((tried.get(), resets.get()), (2, 1));
    }
}
