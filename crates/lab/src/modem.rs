//! A modem that speaks DLEP (RFC 8175) and has no radio. A test, a person or a profile sets what it
//! reports.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_channel::LinkSpec;
use bentpipe_dlep::{
    DISCOVERY_IPV4_GROUP, DISCOVERY_IPV6_GROUP, MacAddress, Modem, ModemDiscovery, ModemEvent,
    ModemSettings, Rates,
};
use bentpipe_gateway::rate::segment::{self, DiscoverySocket};
use bentpipe_units::BitRate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

/// Maximum concurrent routers.
const MAX_SESSIONS: usize = 8;

/// Maximum time for which a router may leave the modem's messages unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Polling interval of a modem that follows a profile. It is the maximum delay of a reported
/// change.
pub const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Description that the modem sends.
const DESCRIPTION: &str = "bentpipe simulated modem";

/// Settings of a modem.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address on which it accepts sessions. It must be a specific address, not the unspecified
    /// one.
    pub listen: SocketAddr,
    /// Interface and port on which routers can discover it.
    pub discovery: Option<(String, u16)>,
    /// Heartbeat interval, at least a second.
    pub heartbeat: Duration,
    /// Initial metrics of its link.
    pub rates: Rates,
}

/// State that a modem reports.
#[derive(Debug, Clone)]
struct State {
    session: Rates,
    destinations: BTreeMap<MacAddress, Rates>,
    mute: bool,
    stopping: bool,
}

/// A running modem. Dropping it acts like a power failure: its sockets close without a message.
pub struct SimulatedModem {
    address: SocketAddr,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

impl SimulatedModem {
    /// Starts a modem in the current runtime.
    pub fn start(settings: &Settings) -> io::Result<Self> {
        let listener = listen(settings.listen)?;
        let address = listener.local_addr()?;
        let (state, told) = watch::channel(State {
            session: settings.rates,
            destinations: BTreeMap::new(),
            mute: false,
            stopping: false,
        });
        let mut sockets = Vec::new();
        if let Some((interface, port)) = &settings.discovery {
            let v4 = DiscoverySocket::bind_v4(interface, *port, Some(DISCOVERY_IPV4_GROUP))?;
            let port = v4.local_addr()?.port();
            sockets.push(v4);
            // If there is no IPv6, IPv4 is enough.
            let v6 = DiscoverySocket::bind_v6(interface, port, Some(DISCOVERY_IPV6_GROUP));
            sockets.extend(v6);
        }
        let heartbeat = settings.heartbeat;
        let task = tokio::spawn(async move {
            let mut tasks = JoinSet::new();
            for socket in sockets {
                tasks.spawn(offer(socket, address));
            }
            serve(&listener, heartbeat, &told).await;
        });
        Ok(Self { address, state, task })
    }

    /// Address on which it accepts sessions.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the metrics of the whole session.
    pub fn set(&self, rates: Rates) {
        self.state.send_modify(|state| state.session = rates);
    }

    /// Sets the metrics of a destination, or takes the destination down.
    pub fn set_destination(&self, mac: MacAddress, rates: Option<Rates>) {
        self.state.send_modify(|state| {
            match rates {
                Some(rates) => state.destinations.insert(mac, rates),
                None => state.destinations.remove(&mac),
            };
        });
    }

    /// Stops its messages, or resumes them. Its connections stay open.
    pub fn mute(&self, mute: bool) {
        self.state.send_modify(|state| state.mute = mute);
    }

    /// Reports the capacity of `link` as time passes, as the modem on board, which sends on the
    /// return link. Never ends.
    pub async fn follow(&self, link: &LinkSpec) {
        let start = Instant::now();
        let mut ticks = tokio::time::interval(REPORT_INTERVAL);
        loop {
            ticks.tick().await;
            let now = rates_at(link, start.elapsed());
            if self.state.borrow().session != now {
                self.set(now);
            }
        }
    }

    /// Shuts the modem down in order: it terminates its sessions and closes.
    pub async fn close(mut self) {
        self.state.send_modify(|state| state.stopping = true);
        // Fails only if the task panicked, which was reported then.
        let _ = (&mut self.task).await;
    }
}

impl Drop for SimulatedModem {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Metrics that a modem on board reports for `link` at time `at`. A direction without a limit gets
/// a rate of 10 Gbit/s, like the fastest Ethernet port of a modem.
pub fn rates_at(link: &LinkSpec, at: Duration) -> Rates {
    let bps = |rate: Option<BitRate>| rate.map_or(10_000_000_000, BitRate::bps);
    Rates {
        transmit_bps: bps(link.return_.rate_at(at)),
        receive_bps: bps(link.forward.rate_at(at)),
        latency: link.rtt() / 2,
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    segment::keep_to_segment(&socket, address.is_ipv4())?;
    socket.bind(address)?;
    socket.listen(8)
}

/// Answers peer discovery.
async fn offer(socket: DiscoverySocket, point: SocketAddr) {
    let mut offerer = ModemDiscovery::new(DESCRIPTION, point);
    while let Ok((signal, ttl, from)) = socket.receive().await {
        if let Some(answer) = offerer.receive(&signal, ttl, from) {
            tracing::info!(%from, "a router looks for a modem");
            // A router repeats its request if the answer is lost.
            let _ = socket.send(&answer, from).await;
        }
    }
}

/// Accepts sessions until the modem has to stop and all sessions have ended.
async fn serve(listener: &TcpListener, heartbeat: Duration, told: &watch::Receiver<State>) {
    let mut sessions = JoinSet::new();
    let mut stopping = told.clone();
    loop {
        tokio::select! {
            accepted = listener.accept(), if sessions.len() < MAX_SESSIONS => {
                if let Ok((tcp, router)) = accepted {
                    tracing::info!(%router, "a router has connected");
                    sessions.spawn(session(tcp, heartbeat, told.clone()));
                }
            }
            Some(_) = sessions.join_next() => {}
            _ = stopping.wait_for(|state| state.stopping) => break,
        }
    }
    while sessions.join_next().await.is_some() {}
}

async fn session(mut tcp: TcpStream, heartbeat: Duration, mut told: watch::Receiver<State>) {
    let start = Instant::now();
    let mut said = told.borrow_and_update().clone();
    let description = DESCRIPTION.to_owned();
    let settings = ModemSettings { description, heartbeat, rates: said.session };
    let mut modem = Modem::new(&settings, Duration::ZERO);
    for (mac, rates) in &said.destinations {
        modem.set_destination(Duration::ZERO, *mac, *rates);
    }
    if said.stopping {
        modem.shut_down(Duration::ZERO);
    }
    let mut buffer = vec![0; 16 << 10];
    loop {
        let out = modem.take_output();
        if !out.is_empty() && !said.mute {
            let written = timeout(WRITE_TIMEOUT, tcp.write_all(&out)).await;
            if !matches!(written, Ok(Ok(()))) {
                modem.disconnected(start.elapsed());
            }
        }
        while let Some(event) = modem.poll_event() {
            match event {
                ModemEvent::Up => tracing::info!("the router is in session"),
                ModemEvent::Ended(ending) => tracing::info!("the session has ended: {ending}"),
            }
        }
        if modem.is_closed() {
            return;
        }
        let due = start + modem.next_due().unwrap_or(start.elapsed() + Duration::from_secs(1));
        tokio::select! {
            read = tcp.read(&mut buffer) => match read {
                Ok(0) | Err(_) => modem.disconnected(start.elapsed()),
                Ok(bytes) => modem.receive(start.elapsed(), &buffer[..bytes]),
            },
            () = sleep_until(due) => modem.advance(start.elapsed()),
            Ok(()) = told.changed() => {
                let new = told.borrow_and_update().clone();
                tell(&mut modem, start.elapsed(), &said, &new);
                said = new;
            }
        }
    }
}

/// Sends a router the changes from `old` to `new`.
fn tell(modem: &mut Modem, now: Duration, old: &State, new: &State) {
    if old.session != new.session {
        modem.set_session(now, new.session);
    }
    for (mac, rates) in &new.destinations {
        if old.destinations.get(mac) != Some(rates) {
            modem.set_destination(now, *mac, *rates);
        }
    }
    for mac in old.destinations.keys().filter(|mac| !new.destinations.contains_key(mac)) {
        modem.drop_destination(now, *mac);
    }
    if new.stopping {
        modem.shut_down(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modem_on_board_sends_on_the_return_link() {
        let link: LinkSpec = toml::from_str(
            r#"forward = { rate = "20 Mbit/s", delay = "300 ms" }
            [return]
            delay = "300 ms"
            rate = { series = { steps = [["0 s", "4 Mbit/s"], ["60 s", "1 Mbit/s"]] } }"#,
        )
        .unwrap();
        let at = |s| rates_at(&link, Duration::from_secs(s));
        assert_eq!((at(59).transmit_bps, at(60).transmit_bps), (4_000_000, 1_000_000));
        assert_eq!((at(0).receive_bps, at(0).latency), (20_000_000, Duration::from_millis(300)));
    }
}
