//! I/O of one proxy: one task owns the proxy and the link, and one task serves the near side of
//! each flow.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bentpipe_gateway::relay::reset_on_close;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::half::{Bounds, Event, Half, MAX_FLOWS};
use crate::system::intercept::Interception;

/// Bytes per read from a connection.
const CHUNK_BYTES: usize = 16 << 10;
/// Messages that may wait for the proxy. With their bytes they take 128 KiB beyond its buffer.
const MAX_WORDS: usize = 8;
const MAX_DATAGRAM_BYTES: usize = 1500;

/// Message from a flow's task to the proxy.
enum Word {
    Accepted(TcpStream, SocketAddrV4),
    Took(u32, Bytes),
    Handed(u32, usize),
    Ended(u32),
    Broke(u32),
}

/// Message from the proxy to a flow's task.
enum Told {
    Bytes(Bytes),
    End,
    Reset,
}

/// Stop signal to the sources, with the time of its last change.
#[derive(Debug, Clone, Copy)]
struct Signal {
    stop: bool,
    since: Instant,
}

/// Runs one proxy: the air's with interception, the ground's without. Each datagram on `link` comes
/// from the other proxy. `distance` is the round trip to the near side. `resets` counts the flows
/// that were reset because the buffer was full.
pub async fn run(
    cabin: Option<Interception>,
    link: UdpSocket,
    bounds: Bounds,
    distance: Duration,
    resets: Arc<AtomicU64>,
) {
    let (say, words) = mpsc::channel(MAX_WORDS);
    let (signal, _) = watch::channel(Signal { stop: false, since: Instant::now() });
    let proxy = Proxy {
        half: Half::new(bounds),
        began: Instant::now(),
        near: HashMap::new(),
        next_flow: 1,
        say: say.clone(),
        signal,
        distance,
        resets,
    };
    tokio::select! {
        () = accept(cabin, say) => {}
        () = proxy.serve(link, words) => {}
    }
}

async fn accept(cabin: Option<Interception>, say: mpsc::Sender<Word>) {
    let Some(cabin) = cabin else { return pending().await };
    while let Ok((tcp, target)) = cabin.accept().await {
        if say.send(Word::Accepted(tcp, target)).await.is_err() {
            return;
        }
    }
}

struct Proxy {
    half: Half,
    began: Instant,
    near: HashMap<u32, mpsc::UnboundedSender<Told>>,
    next_flow: u32,
    say: mpsc::Sender<Word>,
    signal: watch::Sender<Signal>,
    distance: Duration,
    resets: Arc<AtomicU64>,
}

impl Proxy {
    async fn serve(mut self, link: UdpSocket, mut words: mpsc::Receiver<Word>) {
        let mut datagram = [0; MAX_DATAGRAM_BYTES];
        loop {
            while let Some(datagram) = self.half.transmit(self.now()) {
                // A datagram that the socket refuses counts as lost on the link.
                let _ = link.send(&datagram).await;
            }
            self.tell();
            let due = self.half.timeout_at().map(|at| self.began + at);
            let timeout = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                received = link.recv(&mut datagram) => {
                    // An error means that the other proxy's port is closed.
                    let bytes = received.unwrap_or(0);
                    self.half.datagram(&datagram[..bytes], self.now());
                }
                Some(word) = words.recv() => self.hear(word),
                () = timeout => self.half.timeout(self.now()),
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn hear(&mut self, word: Word) {
        match word {
            Word::Accepted(tcp, _) if self.near.len() >= MAX_FLOWS => reset_on_close(&tcp),
            Word::Accepted(tcp, target) => {
                let flow = self.next_flow;
                self.next_flow += 1;
                self.half.open(flow, target);
                let near = self.near(flow);
                tokio::spawn(near.carry(tcp));
            }
            Word::Took(flow, bytes) => self.half.took(flow, bytes),
            Word::Handed(flow, bytes) => self.half.handed(flow, bytes, self.now()),
            Word::Ended(flow) => self.half.near_ended(flow),
            Word::Broke(flow) => {
                self.near.remove(&flow);
                self.half.broke(flow);
            }
        }
    }

    /// Delivers the proxy's events to the flows' tasks.
    fn tell(&mut self) {
        while let Some(event) = self.half.next_event() {
            // A task that has ended has already reported that its connection broke.
            match event {
                Event::Open(flow, target) => {
                    let near = self.near(flow);
                    tokio::spawn(near.reach(target));
                }
                Event::Bytes(flow, bytes) => {
                    let _ = self.near.get(&flow).map(|near| near.send(Told::Bytes(bytes)));
                }
                Event::End(flow) => {
                    let _ = self.near.get(&flow).map(|near| near.send(Told::End));
                }
                Event::Reset(flow) => {
                    let _ = self.near.remove(&flow).map(|near| near.send(Told::Reset));
                }
            }
        }
        self.near.retain(|_, near| !near.is_closed());
        self.resets.store(self.half.resets(), Ordering::Relaxed);
        let stop = self.half.stopped();
        self.signal.send_if_modified(|signal| {
            let is_new = signal.stop != stop;
            if is_new {
                *signal = Signal { stop, since: Instant::now() };
            }
            is_new
        });
    }

    fn near(&mut self, flow: u32) -> Near {
        let distance = self.distance;
        let (tell, told) = mpsc::unbounded_channel();
        self.near.insert(flow, tell);
        Near { flow, told, say: self.say.clone(), signal: self.signal.subscribe(), distance }
    }
}

/// Near side of a flow. The flow's window bounds the bytes that wait to be written.
struct Near {
    flow: u32,
    told: mpsc::UnboundedReceiver<Told>,
    say: mpsc::Sender<Word>,
    signal: watch::Receiver<Signal>,
    /// Round trip to the other end of the connection. A stop signal takes effect after this time.
    distance: Duration,
}

/// Reason why a direction ended early.
enum Broken {
    /// The proxy reset the flow.
    Told,
    /// The connection failed.
    Connection,
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self::Connection
    }
}

impl Near {
    /// Connects to the target and carries the flow.
    async fn reach(self, target: SocketAddrV4) {
        match TcpStream::connect(target).await {
            Ok(tcp) => self.carry(tcp).await,
            Err(_) => drop(self.say.send(Word::Broke(self.flow)).await),
        }
    }

    async fn carry(self, mut tcp: TcpStream) {
        // A failure to disable Nagle's algorithm only adds delay.
        let _ = tcp.set_nodelay(true);
        let Self { flow, told, say, signal, distance } = self;
        let (read, write) = tcp.split();
        let taking = take(read, flow, &say, signal, distance);
        let handing = hand(write, flow, &say, told);
        if let Err(broken) = tokio::try_join!(taking, handing) {
            if let Broken::Connection = broken {
                let _ = say.send(Word::Broke(flow)).await;
            }
            reset_on_close(&tcp);
        }
    }
}

/// Reads from the near side as fast as data arrives, except while the stop signal is in effect.
async fn take(
    mut read: ReadHalf<'_>,
    flow: u32,
    say: &mpsc::Sender<Word>,
    mut signal: watch::Receiver<Signal>,
    distance: Duration,
) -> Result<(), Broken> {
    loop {
        let Signal { stop, since } = *signal.borrow_and_update();
        let heard_at = since + distance;
        let is_heard = heard_at <= Instant::now();
        let flows = stop != is_heard;
        let mut bytes = BytesMut::with_capacity(CHUNK_BYTES);
        tokio::select! {
            count = read.read_buf(&mut bytes), if flows => {
                if count? == 0 {
                    let _ = say.send(Word::Ended(flow)).await;
                    return Ok(());
                }
                if say.send(Word::Took(flow, bytes.freeze())).await.is_err() {
                    return Err(Broken::Told);
                }
            }
            changed = signal.changed() => changed.map_err(|_| Broken::Told)?,
            () = sleep_until(heard_at), if !is_heard => {}
        }
    }
}

/// Writes received bytes to the near side.
async fn hand(
    mut write: WriteHalf<'_>,
    flow: u32,
    say: &mpsc::Sender<Word>,
    mut told: mpsc::UnboundedReceiver<Told>,
) -> Result<(), Broken> {
    loop {
        match told.recv().await {
            Some(Told::Bytes(bytes)) => {
                write.write_all(&bytes).await?;
                let _ = say.send(Word::Handed(flow, bytes.len())).await;
            }
            Some(Told::End) => return Ok(write.shutdown().await?),
            Some(Told::Reset) | None => return Err(Broken::Told),
        }
    }
}
