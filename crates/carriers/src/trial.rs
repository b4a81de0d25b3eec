//! One call to the ground, to see whether it answers, before a gateway runs.

use std::time::Duration;

use bentpipe_flow::Target;
use bentpipe_net::Inherited;
use tokio::time::{Instant, timeout};

use crate::TransportError;
use crate::call::{call, resolved};
use crate::handshake_counter::before_now;
use bentpipe_config::{AirConfig, Transport};
use bentpipe_transport::{Connector, Reach};

/// Outcome of a call that the ground answered.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// Time from the first packet until the link was up.
    pub up_after: Duration,
    /// Smoothed round trip.
    pub round_trip: Duration,
}

/// Reason why a call has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The ground's name has no address.
    #[error("the ground's name in {0} has no address: {1}")]
    Name(Target, String),
    /// The ground did not answer in time.
    #[error("no answer from the ground at {peer} within {} s", patience.as_secs())]
    Silent {
        /// Address of the ground.
        peer: Target,
        /// Time for which it was called.
        patience: Duration,
    },
    /// The transport of the configuration is not the radio transport.
    #[error("only the radio transport can be tried (transport = \"link\")")]
    Transport,
    /// The link cannot start.
    #[error(transparent)]
    Start(#[from] TransportError),
}

/// Calls the ground of `config` for at most `patience`, measures the round trip, and ends the session. A
/// gateway with the same key must not run.
pub async fn trial(config: &AirConfig, patience: Duration) -> Result<Trial, TrialError> {
    if config.link.transport != Transport::Link {
        return Err(TrialError::Transport);
    }
    let peer = &config.link.peer;
    let addresses = timeout(patience, resolved(peer)).await.unwrap_or_else(|_| Ok(Vec::new()));
    let addresses = match addresses {
        Ok(addresses) if addresses.is_empty() => {
            return Err(TrialError::Name(peer.clone(), "the name servers know none".to_owned()));
        }
        Ok(addresses) => addresses,
        Err(error) => return Err(TrialError::Name(peer.clone(), error.to_string())),
    };
    let began = Instant::now();
    let air = call(&mut Inherited::default(), config, &addresses, before_now())?;
    let mut reach = Connector::watch_reach(&air);
    let is_up = timeout(patience, reach.wait_for(|reach| *reach == Reach::Up)).await;
    if !is_up.is_ok_and(|up| up.is_ok()) {
        return Err(TrialError::Silent { peer: peer.clone(), patience });
    }
    let up_after = began.elapsed();
    let round_trip = air.round_trip().unwrap_or(up_after);
    air.close().await;
    Ok(Trial { up_after, round_trip })
}
