//! Attacks with tickets: stolen, replayed, forged, of another flow, and expired.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bentpipe_anchor::acceptor::AnchorAcceptor;
use bentpipe_anchor::egress::Egress;
use bentpipe_anchor::forward::{Egresses, egress_id};
use bentpipe_anchor::ticket::{FlowId, TICKET_BYTES, TICKET_LIFETIME, Ticket};
use bentpipe_anchor::wire::Control;
use bentpipe_channel::{DirectionSpec, LinkSpec};
use bentpipe_flow::{ResetCode, Service};
use bentpipe_gateway::transport::Acceptor;
use bentpipe_masque::{
    Behalf, Client, ClientConfig, Flow, SecretKey, Server, ServerConfig, public_key,
};
use bentpipe_units::Ratio;
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep, timeout};

use super::bounds::INTERNET_RTT;
use crate::experiment::findings::Findings;
use crate::experiment::virtual_link::virtually;
use crate::sim::net::{Net, Node};

const PORT: u16 = 4433;
const AIRCRAFT: [u8; 32] = [1; 32];
const THIEF: [u8; 32] = [2; 32];
/// Number of the aircraft's session.
const SESSION: u64 = 5;
/// Time for which flows wait for their air: longer than a ticket holds.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Maximum time for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Class and passenger of all flows.
const OF: (u8, u32) = (2, 1);

/// Answer of the egress to the first record of a carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Accepted([u8; TICKET_BYTES]),
    /// Reset with this code, after this time.
    Refused(u8, Duration),
}

/// Plays the attacks against a real egress.
pub fn play(seed: u64, findings: &mut Findings) -> anyhow::Result<()> {
    let (refused, owner) = virtually(attack(seed))?;
    let admitted = refused.iter().filter(|it| matches!(it, Answer::Accepted(_))).count();
    findings.at_least("attacks", refused.len() as f64, 7.0);
    findings.at_most("attacks admitted", admitted as f64, 0.0);
    let different: BTreeSet<_> = refused.iter().collect();
    findings.at_most("different answers", different.len() as f64, 1.0);
    let kept_out = owner.iter().filter(|it| !matches!(it, Answer::Accepted(_))).count();
    findings.at_most("carriers of the owner refused", kept_out as f64, 0.0);
    Ok(())
}

/// Returns the answers to the attacks, and those to the owner's carriers between them.
async fn attack(seed: u64) -> anyhow::Result<(Vec<Answer>, Vec<Answer>)> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let (hub_key, egress_key) = (SecretKey::new(rng.random()), SecretKey::new(rng.random()));
    let net = Net::new(rng.random());
    let (hub, egress) = (net.node([10, 0, 0, 1].into())?, net.node([10, 0, 0, 2].into())?);
    let way = DirectionSpec::fixed(None, INTERNET_RTT / 2, Ratio::ZERO);
    net.join(&hub, &egress, &LinkSpec { forward: way.clone(), return_: way });
    let address = start(&egress, &hub_key, &egress_key, rng.random())?;
    let server_key = public_key(&egress_key);
    let settings = ClientConfig::new(address, server_key, hub_key);
    let client = Client::connect(settings.clone(), hub.bind(0)?.quic(rng.random()))?;
    timeout(PATIENCE, client.connected()).await.context("no connection to the egress")?;

    let (id, other_id): (FlowId, FlowId) = (rng.random(), rng.random());
    let (mut refused, mut owner) = (Vec::new(), Vec::new());
    let ours = Carriers { client: &client, aircraft: AIRCRAFT, session: SESSION };
    let (flow, opened) = ours.begin(&open(id)).await;
    let (other_flow, other_opened) = ours.begin(&open(other_id)).await;
    let (Answer::Accepted(ticket), Answer::Accepted(other)) = (opened, other_opened) else {
        bail!("the egress does not open flows");
    };
    let thief = Carriers { client: &client, aircraft: THIEF, session: SESSION + 1 };
    let mut forged = ticket;
    forged[TICKET_BYTES - 1] ^= 1;
    let later = Carriers { session: SESSION - 1, ..ours };
    for (by, record) in [
        // The ticket of another aircraft.
        (&thief, resume(id, 1, ticket)),
        // A recording of the first record.
        (&ours, open(id)),
        (&ours, resume(id, 0, ticket)),
        (&ours, resume(id, 1, forged)),
        // A ticket of another flow, and of no flow.
        (&ours, resume(id, 1, other)),
        (&ours, resume(rng.random(), 1, ticket)),
        // A session before the one in which the ticket was issued.
        (&later, resume(id, 1, ticket)),
    ] {
        refused.push(by.begin(&record).await.1);
    }
    // Nothing of this has moved the flow. A ticket holds in later sessions too.
    let next = Carriers { session: SESSION + 1, ..ours };
    let (moved, answer) = next.begin(&resume(id, 1, ticket)).await;
    owner.push(answer);
    refused.push(next.begin(&resume(id, 1, ticket)).await.1);
    drop((flow, other_flow, moved));
    client.close().await;
    drop(client);

    sleep(TICKET_LIFETIME - PATIENCE).await;
    let client = Client::connect(settings, hub.bind(0)?.quic(rng.random()))?;
    timeout(PATIENCE / 2, client.connected()).await.context("no connection to the egress")?;
    let next = Carriers { client: &client, aircraft: AIRCRAFT, session: SESSION + 1 };
    let (moved, answer) = next.begin(&resume(other_id, 1, other)).await;
    owner.push(answer);
    sleep(2 * PATIENCE).await;
    refused.push(next.begin(&resume(id, 2, ticket)).await.1);
    drop(moved);
    Ok((refused, owner))
}

/// Starts an egress that keeps its flows open.
fn start(
    node: &Node,
    hub: &SecretKey,
    own: &SecretKey,
    seed: u64,
) -> anyhow::Result<std::net::SocketAddr> {
    let mut settings = ServerConfig::new(own.clone(), HashSet::from([AIRCRAFT, THIEF]));
    settings.hubs = HashSet::from([public_key(hub)]);
    let socket = node.bind(PORT)?;
    let address = socket.local_addr();
    let server = Server::start(settings, socket.quic(seed))?;
    let egress = Egress::new(egress_id(&public_key(own)), ORPHAN_TIMEOUT)?;
    let acceptor = AnchorAcceptor::new(Arc::new(server), egress, Arc::new(Egresses::default()));
    tokio::spawn(async move {
        while let Some(incoming) = acceptor.accept().await {
            let bentpipe_gateway::transport::Carried::Stream(mut flow) = incoming.carries else {
                continue;
            };
            flow.connected();
            tokio::spawn(
                async move { while flow.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {} },
            );
        }
    });
    Ok(address)
}

/// Carriers that a hub forwards for an aircraft.
#[derive(Clone, Copy)]
struct Carriers<'a> {
    client: &'a Client,
    aircraft: [u8; 32],
    session: u64,
}

impl Carriers<'_> {
    /// Begins a carrier with `record`. Returns it with the egress's answer.
    async fn begin(&self, record: &Control) -> (Flow, Answer) {
        let mut first = Vec::new();
        record.put(&mut first);
        let began = Instant::now();
        let behalf = Behalf { aircraft: self.aircraft, session: self.session };
        let to = format!("{}:0", Service::Anchor.name());
        let mut flow = self.client.forward(&to, OF, None, &behalf, Bytes::from(first));
        let answer = match timeout(PATIENCE, accepted(&mut flow)).await {
            Ok(Some(ticket)) => Answer::Accepted(*ticket.as_bytes()),
            Ok(None) => {
                let code = flow.reset_code().unwrap_or(ResetCode::Internal);
                Answer::Refused(code.to_u8(), began.elapsed())
            }
            Err(_) => Answer::Refused(ResetCode::Timeout.to_u8(), PATIENCE),
        };
        (flow, answer)
    }
}

/// Reads the acceptance. `None` if the carrier ends before it.
async fn accepted(flow: &mut Flow) -> Option<Ticket> {
    let mut read = Vec::new();
    loop {
        match Control::first(&read).ok()? {
            Some((Control::Accept { ticket, .. }, _)) => return Some(ticket),
            Some(_) => return None,
            None => {}
        }
        flow.read_buf(&mut read).await.ok().filter(|count| *count > 0)?;
    }
}

fn open(id: FlowId) -> Control {
    let target = "server.test:80".parse().expect("the target is well formed");
    Control::Open { id, attempt: 0, target }
}

fn resume(id: FlowId, attempt: u32, ticket: [u8; TICKET_BYTES]) -> Control {
    Control::Resume { id, attempt, ticket: Ticket::from(ticket), received: 0 }
}
