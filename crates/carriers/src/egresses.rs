//! A hub's connections to its egresses.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bentpipe_anchor::egress::Egress;
use bentpipe_anchor::forward::{Egresses, OtherEgress, egress_id};
use bentpipe_anchor::leg::{Leg, StatedLeg};
use bentpipe_anchor::parts::EgressParts;
use bentpipe_config::{EgressConfig, EgressKind, GroundConfig, LegTransport};
use bentpipe_link::PublicKey;
use bentpipe_masque::{Client, ClientConfig, Socket};
use bentpipe_net::Inherited;
use tokio::sync::watch;

use crate::call::{any_address, resolve};
use crate::masque::{egress_config, proxy_config};
use crate::{TransportError, leg};

/// Creates the egress of this gateway, or continues that of the previous process.
pub fn own(
    config: &GroundConfig,
    inherited: &mut Inherited,
) -> Result<Arc<Egress>, TransportError> {
    let id = egress_id(config.link.private_key.public().as_bytes());
    let orphan_timeout = config.limits.orphan_timeout.into();
    match inherited.previous_state().map(EgressParts::decode) {
        Some(Ok(parts)) if parts.id == id => return Ok(Egress::from_parts(parts, orphan_timeout)),
        Some(Ok(_)) => tracing::warn!("the gateway has another key: its earlier flows end"),
        Some(Err(error)) => tracing::warn!(%error),
        None => {}
    }
    drop(inherited.take_handover());
    Egress::new(id, orphan_timeout).map_err(TransportError::Random)
}

/// Connects to the egresses of `config`, in tasks of the current runtime. A name is resolved until it
/// has an address.
pub fn others(config: &GroundConfig) -> Result<Arc<Egresses>, TransportError> {
    let connect = |egress: &EgressConfig| {
        let other = match &egress.kind {
            EgressKind::Gateway { transport, public_key } => {
                gateway(config, egress, *transport, *public_key)?
            }
            EgressKind::Proxy(proxy) => {
                let proxy = proxy.clone();
                let start = move |addresses: &[SocketAddr]| {
                    start_http(addresses, |at| proxy_config(&proxy, at)).map(Arc::new)
                };
                OtherEgress::proxy(once_resolved(egress, start))
            }
        };
        Ok(other.named(egress.peer.to_string()).with_sites(egress.sites.clone()))
    };
    let all = config.egresses.iter().map(connect).collect::<Result<_, TransportError>>()?;
    let egresses = Arc::new(Egresses::new(all, config.link.quic_in_order));
    Egresses::watch(&egresses);
    Ok(egresses)
}

fn gateway(
    config: &GroundConfig,
    egress: &EgressConfig,
    transport: LegTransport,
    key: PublicKey,
) -> Result<OtherEgress, TransportError> {
    // Errors of the file and the settings are reported now, not when the name is known.
    let counter = match transport {
        LegTransport::Masque => None,
        LegTransport::Link => Some(checked_counter(config, (egress, key))?),
    };
    let (hub, called) = (config.clone(), egress.clone());
    let start = move |addresses: &[SocketAddr]| start(&hub, (&called, key), addresses, counter);
    Ok(OtherEgress::new(key.as_bytes(), once_resolved(egress, start)))
}

/// Starts to call `egress` once its name is resolved, in a task of the current runtime.
fn once_resolved<T: Clone + Send + Sync + 'static>(
    egress: &EgressConfig,
    start: impl FnOnce(&[SocketAddr]) -> Result<T, TransportError> + Send + 'static,
) -> watch::Receiver<Option<T>> {
    let (found, leg) = watch::channel(None);
    let peer = egress.peer.clone();
    tokio::spawn(async move {
        let addresses = tokio::select! {
            addresses = resolve(&peer) => addresses,
            () = found.closed() => return,
        };
        match start(&addresses) {
            Ok(leg) => {
                // Held while somebody may use it.
                found.send_replace(Some(leg));
                found.closed().await;
            }
            Err(error) => tracing::error!(%peer, %error, "cannot reach the egress"),
        }
    });
    leg
}

/// First handshake counter for an egress that is called by the radio transport.
fn checked_counter(
    config: &GroundConfig,
    egress: (&EgressConfig, PublicKey),
) -> Result<u64, TransportError> {
    let counter = leg::claim(config)?;
    leg::egress_config(config, egress, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), counter)?;
    Ok(counter)
}

/// Starts to call a gateway: by the radio transport if there is a counter.
fn start(
    config: &GroundConfig,
    egress: (&EgressConfig, PublicKey),
    addresses: &[SocketAddr],
    counter: Option<u64>,
) -> Result<Arc<dyn Leg>, TransportError> {
    match counter {
        Some(counter) => {
            let air = leg::call(config, egress, addresses, counter)?;
            let own = config.link.private_key.public();
            Ok(Arc::new(StatedLeg::new(Arc::new(air), *own.as_bytes())))
        }
        None => Ok(Arc::new(start_http(addresses, |at| egress_config(config, &egress.1, at))?)),
    }
}

fn start_http(
    addresses: &[SocketAddr],
    config: impl FnOnce(SocketAddr) -> ClientConfig,
) -> Result<Client, TransportError> {
    let (any, addresses) = any_address(addresses);
    let socket = Socket::bind(any).map_err(bentpipe_masque::StartError::from)?;
    let mut client = config(addresses[0]);
    client.others = addresses[1..].to_vec();
    Ok(Client::connect(client, socket)?)
}
