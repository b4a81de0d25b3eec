//! A run: threads, store, screen.

use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use bentpipe_probe::clock::{ClockWatch, Moment};
use bentpipe_probe::dns::names::NameList;
use bentpipe_probe::live::Live;
use bentpipe_probe::ndt7::public_wait_since;
use bentpipe_probe::ping;
use bentpipe_probe::record::{Gap, Measurement, Network, Session, SessionTarget};
use bentpipe_probe::recorder::Recorder;
use bentpipe_probe::target::{MAX_TARGETS, Target};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use url::Url;

use crate::address::Servers;
use crate::args::Run;
use crate::error::Error;
use crate::event::{Event, Events};
use crate::ndt7::Server;
use crate::screen::Screen;
use crate::store::{self, Writer};
use crate::{clock, lane, network, pinger, random};

/// Interval of commits, and of the table.
const TICK: Duration = Duration::from_secs(1);

/// Wait for a message, after which signals are looked at.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// Measures until the time is over or a signal comes.
pub fn run(args: &Run) -> Result<(), Error> {
    // Blocked before any thread starts, so that only the session takes them.
    let signals = signals()?;
    let network = network::look();
    let targets = targets(args, &network)?;
    let plan = plan(args, targets.clone())?;
    let start = clock::now();
    let session = session(start, &targets, &plan.names.id)?;
    let place = args.store.clone().or_else(store::default_place);
    let place = place.ok_or_else(|| {
        Error::Arguments(
            "neither XDG_DATA_HOME nor HOME is set: name the file for the records with --store"
                .into(),
        )
    })?;
    let writer = Writer::new(place, args.store_limit.bytes(), session);
    let (events, receiver) = Events::new();
    let start_boot = Duration::from_micros(start.boot_us);
    let mut run = Running::new(args, start, network, &targets, writer, events.clone());
    // The threads are not waited for: a lookup may last 10 s, and nothing of theirs needs an orderly end.
    let (seed, own) = (plan.seed, events.clone());
    spawn("pings", move || pinger::run(&targets, start_boot, ping::INTERVAL, seed, &own))?;
    let own = events.clone();
    spawn("lane", move || lane::run(&plan, start_boot, &own))?;
    let result = run.until_the_end(args.length(), &receiver, &signals);
    events.stop();
    result
}

/// State of the session's own thread.
struct Running {
    start: Moment,
    recorder: Recorder,
    live: Live,
    screen: Screen,
    heading: String,
    writer: Writer,
    watch: ClockWatch,
    network: Network,
    events: Events,
    troubled: bool,
}

impl Running {
    fn new(
        args: &Run,
        start: Moment,
        network: Network,
        targets: &[Target],
        writer: Writer,
        events: Events,
    ) -> Self {
        let heading = format!("bentpipe probe  records: {}  Ctrl-C ends", writer.path().display());
        let mut run = Self {
            start,
            recorder: Recorder::new(start.boot_us),
            live: Live::new(start.boot_us, targets),
            screen: Screen::new(args.quiet),
            heading,
            writer,
            watch: ClockWatch::default(),
            network,
            events,
            troubled: false,
        };
        run.recorder.set_clock(clock::state());
        let first = Measurement::Network(run.network.clone());
        run.record(start, 0, None, first);
        run
    }

    fn until_the_end(
        &mut self,
        length: Option<Duration>,
        receiver: &Receiver<Event>,
        signals: &SignalFd,
    ) -> Result<(), Error> {
        self.screen.begin(&self.heading).map_err(output)?;
        let mut next_tick = self.start.boot_us;
        let end = length.map_or(u64::MAX, |length| {
            self.start.boot_us.saturating_add(bentpipe_probe::micros(length))
        });
        loop {
            match receiver.recv_timeout(MAX_WAIT) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = clock::now();
            if now.boot_us >= next_tick {
                next_tick = now.boot_us + bentpipe_probe::micros(TICK);
                if !self.tick(now)? {
                    break;
                }
            }
            if now.boot_us >= end || signals.read_signal().is_ok_and(|signal| signal.is_some()) {
                break;
            }
        }
        receiver.try_iter().for_each(|event| self.take(event));
        self.tick(clock::now())?;
        match self.writer.unstored() {
            0 => Ok(()),
            records => Err(Error::Unstored { records, path: self.writer.path().to_owned() }),
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Begin(activity, at) => self.recorder.begin(activity, at),
            Event::End(activity, at) => self.recorder.end(activity, at),
            Event::Measured { began, runtime_us, own, measurement } => {
                self.record(began, runtime_us, own, measurement);
            }
        }
    }

    fn record(
        &mut self,
        began: Moment,
        runtime_us: u64,
        own: Option<bentpipe_probe::recorder::Activity>,
        measurement: Measurement,
    ) {
        let record = self.recorder.record(began, runtime_us, own, measurement);
        self.live.add(&record);
        self.writer.push(record);
    }

    /// Commits, looks at clocks and network, and shows the table. Returns `false` if nobody reads it.
    fn tick(&mut self, now: Moment) -> Result<bool, Error> {
        for event in self.watch.observe(clock::reading()) {
            self.record(now, 0, None, Measurement::Clock(event));
        }
        self.recorder.set_clock(clock::state());
        let network = network::look();
        if network != self.network {
            self.network = network.clone();
            self.record(now, 0, None, Measurement::Network(network));
        }
        self.note_gap(now, self.events.take_dropped(), "queue_full");
        let flushed = self.writer.flush();
        let lost = self.writer.take_lost();
        self.note_gap(now, lost, "store_unavailable");
        self.tell(flushed.trouble.map(|trouble| trouble.to_string()));
        let since_s = now.boot_us.saturating_sub(self.start.boot_us) / 1_000_000;
        self.screen.show(&mut self.live, &self.heading, now, since_s).map_err(output)
    }

    fn note_gap(&mut self, now: Moment, records: u64, failure: &str) {
        if records > 0 {
            let gap = Gap { records, failure: failure.into() };
            self.record(now, 0, None, Measurement::Gap(gap));
        }
    }

    /// Says that records cannot be stored, and that they can again. Standard error has it in every mode, once.
    fn tell(&mut self, trouble: Option<String>) {
        let shown = !matches!(self.screen, Screen::Terminal);
        match &trouble {
            Some(trouble) if !self.troubled && shown => {
                eprintln!("bentpipe probe: records wait in memory: {trouble}");
            }
            None if self.troubled && shown => eprintln!("bentpipe probe: records are stored again"),
            _ => {}
        }
        self.troubled = trouble.is_some();
        let waiting = self.writer.pending();
        self.live.set_notice(
            trouble.map(|trouble| format!("{waiting} records wait in memory: {trouble}")),
        );
    }
}

fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let thread = std::thread::Builder::new().name(name.into());
    thread
        .spawn(work)
        .map(drop)
        .map_err(|source| Error::System { what: "starting a thread", source })
}

fn output(source: std::io::Error) -> Error {
    Error::Output { what: "the table".into(), source }
}

fn signals() -> Result<SignalFd, Error> {
    let mut set = SigSet::empty();
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .for_each(|signal| set.add(signal));
    let system = |what| move |errno: nix::Error| Error::System { what, source: errno.into() };
    set.thread_block().map_err(system("blocking signals"))?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(system("signalfd"))
}

fn targets(args: &Run, network: &Network) -> Result<Vec<Target>, Error> {
    let targets = if args.targets.is_empty() {
        network::usual_targets(network)
    } else {
        args.targets.clone()
    };
    if targets.len() > MAX_TARGETS {
        let count = targets.len();
        return Err(Error::Arguments(format!(
            "{count} targets are too many: name at most {MAX_TARGETS}"
        )));
    }
    for (index, target) in targets.iter().enumerate() {
        if targets[..index].iter().any(|other| other.name == target.name) {
            let name = &target.name;
            return Err(Error::Arguments(format!(
                "two targets are called `{name}`: write NAME=ADDRESS for one of them"
            )));
        }
    }
    Ok(targets)
}

fn plan(args: &Run, targets: Vec<Target>) -> Result<lane::Plan, Error> {
    let names = match &args.names {
        None => NameList::built_in(),
        Some(file) => {
            let fault = |why: String| Error::Names { file: file.clone(), why };
            let text = fs::read_to_string(file).map_err(|error| fault(error.to_string()))?;
            NameList::parse(&file.display().to_string(), &text)
                .map_err(|error| fault(error.to_string()))?
        }
    };
    let portal_url = in_the_clear("--portal-url", &args.portal_url)?;
    let portal_api =
        args.portal_api.as_ref().map(|url| under_tls("--portal-api", url)).transpose()?;
    let page = in_the_clear("--address-url", &args.address_url)?;
    let address_servers = Servers { stun: args.stun_server.clone(), page };
    let seed = u64::from_be_bytes(random::bytes().map_err(no_random)?);
    let resolvers = args.resolvers.clone();
    let origin = args.origin.as_ref().map(|url| in_the_clear("--origin", url)).transpose()?;
    let ndt7_wait = match &args.ndt7 {
        Some(Server::Public) => public_wait(args),
        _ => Duration::ZERO,
    };
    Ok(lane::Plan {
        targets,
        names,
        resolvers,
        portal_url,
        portal_api,
        origin,
        ndt7: args.ndt7.clone(),
        ndt7_wait,
        epb: args.epb,
        gpsd: args.gpsd,
        address_servers,
        seed,
    })
}

/// The time until the first test of the public service: a restart does not shorten its schedule.
fn public_wait(args: &Run) -> Duration {
    let place = args.store.clone().or_else(store::default_place);
    let last_us = place.and_then(|place| store::last_public_test(&place));
    last_us.map_or(Duration::ZERO, |last_us| public_wait_since(last_us, clock::now().wall_us))
}

/// A URL that the light client can fetch.
fn in_the_clear(option: &str, text: &str) -> Result<Url, Error> {
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "http" && url.has_host());
    url.ok_or_else(|| {
        Error::Arguments(format!(
            "{option} {text}: write an address that begins with http://, because portals and proxies cannot answer for \
             https"
        ))
    })
}

/// A URL of a server that must prove its name.
fn under_tls(option: &str, text: &str) -> Result<Url, Error> {
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "https" && url.has_host());
    let fault = || format!("{option} {text}: write an address that begins with https://");
    url.ok_or_else(|| Error::Arguments(fault()))
}

fn session(began: Moment, targets: &[Target], name_list: &str) -> Result<Session, Error> {
    let id: [u8; 16] = random::bytes().map_err(no_random)?;
    let target = |target: &Target| SessionTarget {
        name: target.name.clone(),
        address: target.address,
        side: target.side,
    };
    Ok(Session {
        id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
        began,
        software_version: env!("CARGO_PKG_VERSION").into(),
        platform: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        targets: targets.iter().map(target).collect(),
        name_list: name_list.into(),
    })
}

fn no_random(source: std::io::Error) -> Error {
    Error::System { what: "getrandom", source }
}
