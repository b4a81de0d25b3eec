//! A call over UDP: small packets at a constant interval in both directions between client and server,
//! whose clocks are the same.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::time::{sleep, sleep_until, timeout};

use crate::emu::{EmuError, Host, SERVER, Service, be_punctual};
use crate::traffic::{DOWN, UP};

/// Interval between two packets of one direction.
const GAP: Duration = Duration::from_millis(20);
/// Payload of a packet: RTP with 20 ms of speech.
const PACKET_BYTES: usize = 180;
/// Number of the call, number of the packet, and time of sending in ns.
const HEAD_BYTES: usize = 16;
/// Time after the last packet for packets that are still in flight.
const AFTERWARDS: Duration = Duration::from_secs(3);
/// Time within which the server must answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval of packets that only ask for an answer, and of a look whether there was one.
const HELLO_GAP: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(5);
/// Number of a packet that only asks for an answer.
const HELLO: u32 = u32::MAX;
/// Port of the server.
const PORT: u16 = 8002;

/// Delay of each packet of one direction, if it arrived.
type Delays = Vec<Option<Duration>>;

/// Record that both ends keep.
struct Log {
    epoch: Instant,
    /// Number of the present call.
    call: u32,
    /// Number of the last call that the server answered.
    answered: u32,
    /// Towards the client, and from it.
    arrived: [Delays; 2],
}

/// Server of calls. Dropping it ends the server.
pub struct Phone {
    log: Arc<Mutex<Log>>,
    _service: Service,
}

impl Phone {
    /// Starts the server on `host`.
    pub fn start(host: &Host) -> Result<Self, EmuError> {
        let log = Log { epoch: Instant::now(), call: 0, answered: 0, arrived: Default::default() };
        let log = Arc::new(Mutex::new(log));
        let kept = log.clone();
        let service = Service::start(host, move || async move {
            be_punctual();
            // Callers notice that nobody answers.
            let _ = answer(&kept).await;
        })?;
        Ok(Self { log, _service: service })
    }

    /// Calls the server from the present host for `length`. Returns the delays of the packets towards
    /// the caller, and of those from it.
    pub async fn call(&self, length: Duration) -> io::Result<[Delays; 2]> {
        let packets = (length.as_nanos() / GAP.as_nanos()) as usize;
        let call = {
            let mut log = self.log.lock();
            log.call += 1;
            log.arrived = [(); 2].map(|()| vec![None; packets]);
            log.call
        };
        let to = SocketAddr::new(SERVER.v4.into(), PORT);
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        let speak = async {
            timeout(PATIENCE, greet(&socket, to, &self.log, call)).await??;
            speak(&socket, to, &self.log, call).await?;
            sleep(AFTERWARDS).await;
            Ok::<(), io::Error>(())
        };
        tokio::select! {
            spoken = speak => spoken,
            broken = hear(&socket, &self.log, DOWN, |_, _| ()) => broken,
        }?;
        Ok(std::mem::take(&mut self.log.lock().arrived))
    }
}

/// Asks for an answer until the server has given one.
async fn greet(socket: &UdpSocket, to: SocketAddr, log: &Mutex<Log>, call: u32) -> io::Result<()> {
    let answered = async {
        while log.lock().answered < call {
            sleep(LOOK).await;
        }
    };
    tokio::pin!(answered);
    loop {
        socket.send_to(&packet(log, call, HELLO), to).await?;
        if timeout(HELLO_GAP, answered.as_mut()).await.is_ok() {
            return Ok(());
        }
    }
}

/// Answers every call.
async fn answer(log: &Arc<Mutex<Log>>) -> io::Result<()> {
    let socket = Arc::new(UdpSocket::bind((SERVER.v4, PORT)).await?);
    let speaker = socket.clone();
    hear(&socket, log, UP, |call, from| {
        if std::mem::replace(&mut log.lock().answered, call) < call {
            let (socket, log) = (speaker.clone(), log.clone());
            tokio::spawn(async move { speak(&socket, from, &log, call).await });
        }
    })
    .await
}

/// Sends all packets of one direction, each when it is due.
async fn speak(socket: &UdpSocket, to: SocketAddr, log: &Mutex<Log>, call: u32) -> io::Result<()> {
    let (began, packets) = (tokio::time::Instant::now(), log.lock().arrived[UP].len() as u32);
    for number in 0..packets {
        sleep_until(began + GAP * number).await;
        socket.send_to(&packet(log, call, number), to).await?;
    }
    Ok(())
}

/// Records what arrives in direction `way`, and calls `heard` for each packet of the present call. Returns
/// only on a failure.
async fn hear(
    socket: &UdpSocket,
    log: &Mutex<Log>,
    way: usize,
    heard: impl Fn(u32, SocketAddr),
) -> io::Result<()> {
    let mut packet = [0; PACKET_BYTES];
    loop {
        let (bytes, from) = socket.recv_from(&mut packet).await?;
        let Some((call, number, sent_at)) = head(&packet[..bytes]) else { continue };
        if log.lock().take(way, call, number, sent_at) {
            heard(call, from);
        }
    }
}

impl Log {
    /// Records a packet. Returns `true` if it is of the present call.
    fn take(&mut self, way: usize, call: u32, number: u32, sent_at: Duration) -> bool {
        if call != self.call {
            return false;
        }
        let delay = self.epoch.elapsed().saturating_sub(sent_at);
        if let Some(arrived) = self.arrived[way].get_mut(number as usize) {
            arrived.get_or_insert(delay);
        }
        true
    }
}

fn packet(log: &Mutex<Log>, call: u32, number: u32) -> [u8; PACKET_BYTES] {
    let sent_at = log.lock().epoch.elapsed().as_nanos() as u64;
    let mut packet = [0; PACKET_BYTES];
    packet[..4].copy_from_slice(&call.to_be_bytes());
    packet[4..8].copy_from_slice(&number.to_be_bytes());
    packet[8..HEAD_BYTES].copy_from_slice(&sent_at.to_be_bytes());
    packet
}

/// Numbers of the call and of the packet, and its time of sending.
fn head(packet: &[u8]) -> Option<(u32, u32, Duration)> {
    let (call, rest) = packet.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let sent_at = Duration::from_nanos(u64::from_be_bytes(*rest.first_chunk()?));
    Some((u32::from_be_bytes(*call), u32::from_be_bytes(*number), sent_at))
}
