//! Plays a scenario and judges it.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bentpipe_channel::LinkSpec;
use bentpipe_link::ResetCode;
use futures_util::future::join_all;
use tokio::{
    sync::oneshot,
    time::{sleep, sleep_until, timeout},
};

use super::bytes::Content;
use super::side::{self, End, Half};
use super::{Break, FlowPlan, Scenario, SidePlan, Stream, Transport};
use crate::sim::net::{Net, Node, Socket};
use crate::sim::trace::Digest;

/// Interval of the checks of both ends' memory.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Port of the ground, and port from which the aircraft calls.
const PORTS: [u16; 2] = [4500, 40_000];
const GROUND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 2));
const AIR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 1));
const MOVED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 77, 1));

/// Hosts of a transport's ends.
pub struct World {
    /// The ground's socket.
    pub ground: Socket,
    /// The aircraft's.
    pub air: Socket,
    aircraft: Node,
    digest: Arc<Mutex<Digest>>,
}

/// A run that went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The virtual time it took.
    pub took: Duration,
    /// Payload that reached its reader.
    pub bytes: u64,
    /// Every datagram, byte for byte.
    pub digest: Digest,
}

impl World {
    pub(super) fn new(link: &LinkSpec, seed: u64) -> Result<Self, String> {
        let wrong = |error: std::io::Error| format!("the simulated network: {error}");
        let net = Net::new(seed);
        let ground = net.node(GROUND).map_err(wrong)?;
        let aircraft = net.node(AIR).map_err(wrong)?;
        net.join(&ground, &aircraft, link);
        let digest = Arc::new(Mutex::new(Digest::of_contents()));
        let adding = digest.clone();
        net.on_event(move |event| {
            if let Ok(mut digest) = adding.lock() {
                digest.add(event);
            }
        });
        Ok(Self {
            ground: ground.bind(PORTS[0]).map_err(wrong)?,
            air: aircraft.bind(PORTS[1]).map_err(wrong)?,
            aircraft,
            digest,
        })
    }
}

/// Plays `scenario` over the transport that `start` brings up, in virtual time of its own.
///
/// # Errors
///
/// What went wrong, in words.
pub fn run<T: Transport>(
    scenario: &Scenario,
    start: impl FnOnce(&World, &Scenario) -> Result<T, String>,
) -> Result<Report, String> {
    in_virtual_time(async {
        let world = World::new(&scenario.link_spec(), scenario.seed)?;
        let transport = start(&world, scenario)?;
        let began = tokio::time::Instant::now();
        let open = Mutex::new(Vec::new());
        let bytes = tokio::select! {
            biased;
            fault = watch(&transport) => Err(fault),
            bytes = timeout(scenario.deadline(), play(scenario, &world, &transport, &open)) => {
                bytes.unwrap_or_else(|_| {
                    let open = open.lock().map(|open| open.join(", ")).unwrap_or_default();
                    Err(format!("it hangs after {:?}: {open}", scenario.deadline()))
                })
            }
        }?;
        let digest = world.digest.lock().map(|digest| *digest);
        let digest = digest.map_err(|_| "the trace was lost to a panic".to_owned())?;
        Ok(Report { took: began.elapsed(), bytes, digest })
    })
}

/// Runs `what` on a clock of its own that jumps from timer to timer.
pub fn in_virtual_time<T>(what: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(what)
}

/// Returns once something is wrong with the ends themselves.
async fn watch(transport: &impl Transport) -> String {
    loop {
        if let Some(fault) = transport.fault() {
            return fault;
        }
        sleep(LOOK_INTERVAL).await;
    }
}

async fn play(
    scenario: &Scenario,
    world: &World,
    transport: &impl Transport,
    open: &Open,
) -> Result<u64, String> {
    let (mut tell, mut told) = (Vec::new(), Vec::new());
    for _ in &scenario.flows {
        let (sender, receiver) = oneshot::channel();
        tell.push(Some(sender));
        told.push(receiver);
    }
    let dispatch = async {
        while let Some((number, stream)) = transport.accept().await {
            // A number out of range or twice is seen as a flow that never came.
            if let Some(sender) = tell.get_mut(usize::from(number)).and_then(Option::take) {
                let _ = sender.send(stream);
            }
        }
        std::future::pending().await
    };
    let moving = async {
        if let Some(at) = scenario.moves_at {
            sleep(at).await;
            // Nobody else has that address.
            let _ = world.aircraft.move_to(MOVED);
        }
        std::future::pending().await
    };
    let flows = scenario.flows.iter().zip(told).enumerate().map(|(number, (plan, far))| {
        let flow = Flow { number: number as u16, seed: scenario.seed, plan, open };
        async move { flow.play(transport, far).await.map_err(|why| format!("flow {number}: {why}")) }
    });
    tokio::select! {
        biased;
        ends = join_all(flows) => ends.into_iter().sum(),
        never = dispatch => never,
        never = moving => never,
    }
}

/// The ends of flows that are not over yet, in words.
type Open = Mutex<Vec<String>>;

struct Flow<'a> {
    number: u16,
    seed: u64,
    plan: &'a FlowPlan,
    open: &'a Open,
}

impl Flow<'_> {
    /// Returns how many bytes reached their readers.
    async fn play(
        &self,
        transport: &impl Transport,
        far: oneshot::Receiver<Box<dyn Stream>>,
    ) -> Result<u64, String> {
        let up = Content::new(self.seed, self.number, true);
        let down = Content::new(self.seed, self.number, false);
        let near = async {
            let opens_at = tokio::time::Instant::now() + self.plan.opens_at;
            sleep_until(opens_at).await;
            let mut first = vec![0; self.plan.first_bytes as usize];
            up.fill(0, &mut first);
            let stream = transport.open(self.number, first.into()).await?;
            let end = side::play(stream, &self.plan.air, up, down, self.plan.first_bytes).await;
            end.map_err(|wrong| at("the air", wrong))
        };
        let (gone, is_gone) = oneshot::channel();
        let near = async {
            let end = self.noted("the air", near).await;
            let broke = self.plan.air.breaks.is_some_and(|breaks| breaks != Break::Leave);
            let lost = end.as_ref().map_or(true, |end| matches!(end.reading, Half::Reset(_)));
            // Nobody listens where the flow has reached the ground already.
            let _ = gone.send(broke || lost);
            end
        };
        let ground = async {
            let Some(stream) = self.await_far(far, is_gone).await? else { return Ok(None) };
            let end = side::play(stream, &self.plan.ground, down, up, 0).await;
            end.map(Some).map_err(|wrong| at("the ground", wrong))
        };
        let (air, ground) = tokio::join!(near, self.noted("the ground", ground));
        self.judge(air?, ground?, &|code| transport.heard_as(code))
    }

    /// Keeps `end` among those that are open while it is played.
    async fn noted<T>(&self, end: &str, play: impl Future<Output = T>) -> T {
        let name = format!("{end} of flow {}", self.number);
        if let Ok(mut open) = self.open.lock() {
            open.push(name.clone());
        }
        let ended = play.await;
        if let Ok(mut open) = self.open.lock() {
            open.retain(|other| *other != name);
        }
        ended
    }

    /// The flow at the ground; `None` when it was over at the air before the ground could hear of it.
    async fn await_far(
        &self,
        far: oneshot::Receiver<Box<dyn Stream>>,
        gone: oneshot::Receiver<bool>,
    ) -> Result<Option<Box<dyn Stream>>, String> {
        // What was sent before the air broke off may still be under way, through an outage even.
        const PATIENCE: Duration = Duration::from_secs(90);
        let hopeless = async {
            if !gone.await.unwrap_or(false) {
                std::future::pending::<()>().await;
            }
            sleep(PATIENCE).await;
        };
        tokio::select! {
            biased;
            stream = far => stream.map(Some).map_err(|_| "no flow comes in any more".into()),
            () = hopeless => Ok(None),
        }
    }

    fn judge(
        &self,
        air: End,
        ground: Option<End>,
        heard_as: &dyn Fn(ResetCode) -> ResetCode,
    ) -> Result<u64, String> {
        let FlowPlan { air: air_plan, ground: ground_plan, .. } = self.plan;
        let broke = air_plan.breaks.is_some_and(|breaks| breaks != Break::Leave);
        let ground = match ground {
            Some(ground) => ground,
            None if broke => return Ok(air.read),
            None => return Err(format!("it never came to the ground, and at the air {air:?}")),
        };
        check(air, air_plan, ground_plan, ground, heard_as).map_err(|why| at("the air", why))?;
        check(ground, ground_plan, air_plan, air, heard_as).map_err(|why| at("the ground", why))?;
        Ok(air.read + ground.read)
    }
}

fn at(end: &str, why: impl std::fmt::Display) -> String {
    format!("{end}: {why}")
}

/// Checks the `end` that followed `plan` against its peer's actions.
fn check(
    end: End,
    plan: &SidePlan,
    peers: &SidePlan,
    peer: End,
    heard_as: &dyn Fn(ResetCode) -> ResetCode,
) -> Result<(), String> {
    if end.read > peer.written {
        return Err(format!("{} bytes were read of {}", end.read, peer.written));
    }
    if plan.breaks.is_some() {
        return Ok(()); // what it reads after that is of no interest, as long as it is right
    }
    let reset = match peers.breaks {
        None | Some(Break::Leave) => None,
        Some(Break::Reset(_, code)) => Some(heard_as(code)),
        Some(Break::Drop(_)) => Some(heard_as(ResetCode::Aborted)),
    };
    let reading = reset.map_or(Half::Finished, |code| Half::Reset(Some(code)));
    if end.reading != reading {
        return Err(format!("reading ended as {:?}, not as {reading:?}; {end:?}", end.reading));
    }
    if reset.is_none() && end.read != peers.bytes {
        return Err(format!("{} bytes were read of {}", end.read, peers.bytes));
    }
    let whole = end.writing == Half::Finished && end.written == plan.bytes;
    let cut = peers.breaks.is_some() && matches!(end.writing, Half::Reset(_));
    if !whole && !cut {
        return Err(format!("writing ended as {:?}; {end:?}", end.writing));
    }
    Ok(())
}
