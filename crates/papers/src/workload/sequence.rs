//! `sequence`: the page's objects one after another on one connection, down or up.
//!
//! All are requested, or sent, in one request. If a connection breaks, the rest is requested on a
//! new one: the time continues, the break is counted, and the run counts as failed. The log has the
//! reason of the first break. Damaged bytes end the run.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use bentpipe_lab::emu::Congestion;
use bentpipe_lab::workload::client::{Connection, HttpError};
use bentpipe_lab::workload::origin::{Arrival, Uploads};
use bentpipe_results::{Content, Row};
use tokio::time::timeout;

use super::error::WorkError;
use super::scope::Scope;
use crate::figures::Transfer;

/// Time for which other users are active before the transfer starts.
const OTHERS_FIRST: Duration = Duration::from_secs(20);
/// Pause before another connection is tried.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of connections that one run may lose. After the last, the run has failed and
/// waits for its deadline.
const MAX_RESETS: u32 = 1000;

/// Broken connections of a run.
#[derive(Default)]
struct Broke {
    count: Cell<u32>,
    /// First failure.
    first: RefCell<Option<HttpError>>,
}

/// Performs one run.
pub fn run(scope: &mut Scope<'_>) -> Result<Vec<Row>, WorkError> {
    let Some(Content::Objects { count, bytes }) = scope.job.page().map(|page| page.content) else {
        return Err(WorkError::cannot("a sequence of anything but objects"));
    };
    let (all, up) = (u64::from(count) * bytes, scope.job.is_up());
    let flows = scope.scene.changes.cross_flows.unwrap_or(0);
    let others =
        (flows > 0).then(|| scope.testbed.others(flows, Congestion::Cubic, !up)).transpose()?;
    if others.is_some() {
        std::thread::sleep(OTHERS_FIRST);
    }
    let deadline = scope.job.planned.deadline;
    let number = scope.number;
    let uploads = scope.origin.uploads.clone();
    let resets_before = scope.running.resets();
    let before = scope.look(up)?;
    let (broke, damage, arrival, began, end) = scope.testbed.client.block_on(async || {
        let (broke, arrival) = (Broke::default(), Cell::default());
        // Before the connection, because a handshake across the link is part of the transfer.
        let began = Instant::now();
        let work = async {
            match up {
                true => send(Connection::open, all, number, &uploads, &broke).await,
                false => fetch(all, &broke, &arrival).await,
            }
        };
        let damage = match timeout(deadline, work).await {
            Ok(Err(damage)) => Some(damage),
            // The client may have seen another failure first, and continued.
            _ => uploads.damage(number).map(|at| damaged(all, at)),
        };
        let end = if damage.is_some() { began + deadline } else { Instant::now() };
        let arrival = if up { uploads.of(number) } else { arrival.get() };
        (broke, damage, arrival, began, end)
    })?;
    let after = scope.look(up)?;
    drop(others);
    let finished = damage.is_none() && arrival.bytes >= all;
    scope.failed = damage.map(|damage| damage.to_string()).or_else(|| broke.words());
    let last = if finished { arrival.last.unwrap_or(end) } else { end };
    let seen = scope.running.resets() - resets_before;
    let offered = after.offered.packets - before.offered.packets;
    let transfer = Transfer {
        bytes: arrival.bytes,
        took: last - began,
        receiving: last - arrival.first.unwrap_or(last),
        offered_bytes: after.offered.bytes - before.offered.bytes,
        lost: (after.lost.packets - before.lost.packets) as f64 / offered.max(1) as f64,
        resets: broke.count.get().max(u32::try_from(seen).unwrap_or(u32::MAX)),
        finished,
    };
    Ok(transfer.values(scope.scene, up))
}

impl Broke {
    fn add(&self, error: HttpError) {
        self.count.set(self.count.get() + 1);
        self.first.borrow_mut().get_or_insert(error);
    }

    /// Text for the log; `None` if no connection broke.
    fn words(&self) -> Option<String> {
        let first = self.first.borrow();
        let first = first.as_ref()?;
        Some(match self.count.get() {
            1 => format!("a connection broke: {first}"),
            count => format!("{count} connections broke, the first: {first}"),
        })
    }
}

/// Downloads everything, on as many connections as necessary.
async fn fetch(all: u64, broke: &Broke, arrival: &Cell<Arrival>) -> Result<(), HttpError> {
    persist(broke, async || Connection::open().await?.get(all, arrival).await).await
}

/// Uploads everything on connections that `open` creates. After a break, the server reports how
/// much it has. If the server found damaged bytes, the break is reported as that damage.
async fn send(
    open: impl AsyncFn() -> Result<Connection, HttpError>,
    all: u64,
    number: u64,
    uploads: &Uploads,
    broke: &Broke,
) -> Result<(), HttpError> {
    let once = async || {
        let mut connection = open().await?;
        let from = if broke.count.get() == 0 { 0 } else { connection.has(number).await? };
        if from >= all { Ok(()) } else { connection.put(all, from, number).await }
    };
    let judged = async || {
        let outcome = once().await;
        outcome.map_err(|error| uploads.damage(number).map_or(error, |at| damaged(all, at)))
    };
    persist(broke, judged).await
}

fn damaged(all: u64, at: u64) -> HttpError {
    HttpError::Damaged { path: format!("the upload of /object/{all}"), at }
}

/// Repeats `once` after every failure, which is recorded. After [`MAX_RESETS`] failures it waits
/// forever. Returns an error if the bytes are damaged.
async fn persist(
    broke: &Broke,
    once: impl AsyncFn() -> Result<(), HttpError>,
) -> Result<(), HttpError> {
    loop {
        match once().await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_damage() => return Err(error),
            Err(error) => broke.add(error),
        }
        if broke.count.get() >= MAX_RESETS {
            return std::future::pending().await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use socket2::SockRef;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use bentpipe_lab::emu::listen_here;
    use bentpipe_lab::workload::origin;

    fn reset() -> HttpError {
        HttpError::Connect(std::io::ErrorKind::ConnectionReset.into())
    }

    #[tokio::test(start_paused = true)]
    async fn broken_transfers_are_retried_and_noted() {
        let broke = Broke::default();
        assert_eq!(broke.words(), None);
        let once = async || match broke.count.get() {
            0 => Err(reset()),
            1 => Err(HttpError::Connect(std::io::ErrorKind::TimedOut.into())),
            _ => Ok(()),
        };
        assert!(persist(&broke, once).await.is_ok());
        let words = broke.words().unwrap();
        assert!(words.starts_with("2 connections broke, the first: cannot connect: "), "{words}");
        assert!(words.contains("reset"), "{words}");
    }

    #[tokio::test(start_paused = true)]
    async fn damaged_transfers_are_not_retried() {
        let (broke, tried) = (Broke::default(), Cell::new(0));
        let once = async || {
            tried.set(tried.get() + 1);
            if tried.get() == 1 {
                return Err(reset());
            }
            Err(HttpError::Damaged { path: "/object/9".into(), at: 4 })
        };
        assert!(persist(&broke, once).await.unwrap_err().is_damage());
        assert_eq!((tried.get(), broke.count.get()), (2, 1));
    }

    /// A gateway that changes a byte of the first client's data, and resets that client when the
    /// server responds, without passing the response on. Later clients are served correctly.
    async fn damage_one(listener: TcpListener, server: SocketAddr, mut at: usize) {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut behind = TcpStream::connect(server).await.unwrap();
        let (mut heard, mut said) = behind.split();
        let pass = async {
            let mut chunk = [0; 16 << 10];
            loop {
                let bytes = client.read(&mut chunk).await.unwrap();
                if let Some(byte) = chunk[..bytes].get_mut(at) {
                    *byte ^= 0xff;
                }
                at = at.wrapping_sub(bytes);
                if bytes == 0 || said.write_all(&chunk[..bytes]).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = pass => {}
            _ = heard.read_u8() => {}
        }
        SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        while let Ok((mut client, _)) = listener.accept().await {
            let mut behind = TcpStream::connect(server).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut behind).await;
        }
    }

    #[tokio::test]
    async fn an_upload_that_was_damaged_fails_as_such_though_its_client_saw_a_reset() {
        const BYTES: u64 = 4_000_000;
        let uploads = Uploads::default();
        let listener = listen_here("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let server = listener.local_addr().unwrap();
        tokio::spawn(origin::serve(listener, uploads.clone()));
        let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = gateway.local_addr().unwrap();
        tokio::spawn(damage_one(gateway, server, 1_000_000));
        let (broke, opened) = (Broke::default(), Cell::new(0));
        let open = async || {
            opened.set(opened.get() + 1);
            Connection::to(near).await
        };
        let sent = timeout(Duration::from_secs(60), send(open, BYTES, 7, &uploads, &broke));
        let error = sent.await.expect("it ends").unwrap_err();
        assert!(error.is_damage(), "{error}");
        assert_eq!((opened.get(), broke.count.get()), (1, 0));
        assert!(uploads.damage(7).unwrap() <= 1_000_000 && uploads.of(7).bytes < BYTES);
        // Another upload through the same gateway is intact.
        let open = async || Connection::to(near).await;
        send(open, BYTES, 8, &uploads, &broke).await.unwrap();
        assert_eq!((uploads.of(8).bytes, uploads.damage(8)), (BYTES, None));
    }
}
