//! A hub's connections to its egresses.

use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_anchor::egress::Egress;
use bentpipe_anchor::forward::{Egresses, OtherEgress, egress_id};
use bentpipe_anchor::parts::EgressParts;
use bentpipe_config::{EgressConfig, GroundConfig};
use bentpipe_masque::{Client, Socket};
use bentpipe_net::Inherited;
use tokio::sync::watch;

use crate::TransportError;
use crate::call::{any_address, resolve};
use crate::masque::egress_config;

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
pub fn others(config: &GroundConfig) -> Arc<Egresses> {
    let connect = |egress: &EgressConfig| {
        let (found, client) = watch::channel(None);
        let (config, egress) = (config.clone(), egress.clone());
        let (key, name) = (*egress.public_key.as_bytes(), egress.peer.to_string());
        let sites = egress.sites.clone();
        tokio::spawn(async move {
            let addresses = tokio::select! {
                addresses = resolve(&egress.peer) => addresses,
                () = found.closed() => return,
            };
            match start(&config, &egress, &addresses) {
                Ok(client) => {
                    // Held while somebody may use it.
                    found.send_replace(Some(client));
                    found.closed().await;
                }
                Err(error) => {
                    tracing::error!(peer = %egress.peer, %error, "cannot reach the egress")
                }
            }
        });
        OtherEgress::new(&key, client).named(name).with_sites(sites)
    };
    let all = config.egresses.iter().map(connect).collect();
    let egresses = Arc::new(Egresses::new(all, config.link.quic_in_order));
    Egresses::watch(&egresses);
    egresses
}

fn start(
    config: &GroundConfig,
    egress: &EgressConfig,
    addresses: &[SocketAddr],
) -> Result<Client, TransportError> {
    let (any, addresses) = any_address(addresses);
    let socket = Socket::bind(any).map_err(bentpipe_masque::StartError::from)?;
    let mut client = egress_config(config, egress, addresses[0]);
    client.others = addresses[1..].to_vec();
    Ok(Client::connect(client, socket)?)
}
