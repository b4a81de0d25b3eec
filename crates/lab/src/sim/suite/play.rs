//! Plays a scenario and checks the result.

use std::{net::IpAddr, sync::Arc, time::Duration};

use bentpipe_channel::LinkSpec;
use bentpipe_flow::ResetCode;
use futures_util::future::join_all;
use parking_lot::Mutex;
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
/// Port of the ground, and source port of the aircraft.
const PORTS: [u16; 2] = [4500, 40_000];
const GROUND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 2));
const AIR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 1));
const MOVED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 77, 1));

/// Hosts of a transport's ends.
pub struct Testbed {
    /// Socket of the ground.
    pub ground: Socket,
    /// Socket of the aircraft.
    pub air: Socket,
    aircraft: Node,
    digest: Arc<Mutex<Digest>>,
}

/// Report of a successful run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Virtual time of the run.
    pub took: Duration,
    /// Payload bytes that reached their readers.
    pub bytes: u64,
    /// Digest of all datagrams.
    pub digest: Digest,
}

impl Testbed {
    pub(super) fn new(link: &LinkSpec, seed: u64) -> Result<Self, String> {
        let wrong = |error: std::io::Error| format!("the simulated network: {error}");
        let net = Net::new(seed);
        let ground = net.node(GROUND).map_err(wrong)?;
        let aircraft = net.node(AIR).map_err(wrong)?;
        net.join(&ground, &aircraft, link);
        let digest = Arc::new(Mutex::new(Digest::of_contents()));
        let adding = digest.clone();
        net.on_event(move |event| {
            adding.lock().add(event);
        });
        Ok(Self {
            ground: ground.bind(PORTS[0]).map_err(wrong)?,
            air: aircraft.bind(PORTS[1]).map_err(wrong)?,
            aircraft,
            digest,
        })
    }
}

/// Plays `scenario` over the transport that `start` brings up, on its own virtual clock.
///
/// # Errors
///
/// A description of the fault.
pub fn run<T: Transport>(
    scenario: &Scenario,
    start: impl FnOnce(&Testbed, &Scenario) -> Result<T, String>,
) -> Result<Report, String> {
    in_virtual_time(async {
        let testbed = Testbed::new(&scenario.link_spec(), scenario.seed)?;
        let transport = start(&testbed, scenario)?;
        let began = tokio::time::Instant::now();
        let open = Mutex::new(Vec::new());
        let bytes = tokio::select! {
            biased;
            fault = watch(&transport) => Err(fault),
            bytes = timeout(scenario.deadline(), play(scenario, &testbed, &transport, &open)) => {
                bytes.unwrap_or_else(|_| {
                    let open = open.lock().join(", ");
                    Err(format!("it hangs after {:?}: {open}", scenario.deadline()))
                })
            }
        }?;
        let digest = *testbed.digest.lock();
        Ok(Report { took: began.elapsed(), bytes, digest })
    })
}

/// Runs `what` on a virtual clock, which jumps from timer to timer.
pub fn in_virtual_time<T>(what: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(what)
}

/// Returns once the ends themselves have a fault.
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
    testbed: &Testbed,
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
            // A number that is out of range or repeated shows up as a flow that never arrived.
            if let Some(sender) = tell.get_mut(usize::from(number)).and_then(Option::take) {
                let _ = sender.send(stream);
            }
        }
        std::future::pending().await
    };
    let moving = async {
        if let Some(at) = scenario.moves_at {
            sleep(at).await;
            // No other node has that address.
            let _ = testbed.aircraft.move_to(MOVED);
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

/// Descriptions of the flow ends that are still open.
type Open = Mutex<Vec<String>>;

struct Flow<'a> {
    number: u16,
    seed: u64,
    plan: &'a FlowPlan,
    open: &'a Open,
}

impl Flow<'_> {
    /// Plays the flow. Returns the number of bytes that reached their readers.
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
            // The receiver is gone if the flow has already reached the ground.
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

    /// Lists `end` among the open ends while it is played.
    async fn noted<T>(&self, end: &str, play: impl Future<Output = T>) -> T {
        let name = format!("{end} of flow {}", self.number);
        self.open.lock().push(name.clone());
        let ended = play.await;
        self.open.lock().retain(|other| *other != name);
        ended
    }

    /// Waits for the flow at the ground. Returns `None` if the flow ended at the air before it
    /// reached the ground.
    async fn await_far(
        &self,
        far: oneshot::Receiver<Box<dyn Stream>>,
        gone: oneshot::Receiver<bool>,
    ) -> Result<Option<Box<dyn Stream>>, String> {
        // Data that the air sent before it gave up may still be in flight, even through an outage.
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

/// Checks the result `end` of `plan` against the actions of its peer.
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
        return Ok(()); // later reads do not matter, as long as their bytes are right
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
