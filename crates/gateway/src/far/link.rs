//! The radio transport behind the seam, and how the configs become its own.

use std::net::SocketAddr;

use bentpipe_link::io::{Air, Flow, Hub, Open as LinkOpen};
use bentpipe_link::{
    AirConfig as LinkAirConfig, Aircraft, HubConfig, LeaseMode, MIN_RESERVE_BYTES,
    OpenError as LinkError, ResetCode, Settings, SettingsError,
};
use futures_util::future::BoxFuture;

use super::{Arrivals, FarEnd, FarStream, Incoming, Open, OpenError};
use crate::config::{AirConfig, GroundConfig, LeaseSource};

/// Flows a session holds beyond what the gateway admits: those of either side that
/// the other has not seen end yet.
const FLOWS_ENDING: u32 = 64;

impl FarEnd for Air {
    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FarStream>, OpenError>> {
        let Open { target, class, passenger, first } = open;
        Box::pin(async move {
            match Air::open(self, LinkOpen { target, class, passenger, first }).await {
                Ok(flow) => Ok(Box::new(flow) as Box<dyn FarStream>),
                Err(LinkError::TooManyFlows(_)) => Err(OpenError::Full),
                Err(LinkError::Target(error)) => Err(OpenError::Target(error)),
                Err(error @ LinkError::NotConnected) => Err(OpenError::Down(error.to_string())),
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(Air::close(self))
    }
}

impl FarStream for Flow {
    fn reset(&mut self, code: ResetCode) {
        Flow::reset(self, code);
    }

    fn stop_reading(&mut self, code: ResetCode) {
        Flow::stop_reading(self, code);
    }

    fn reset_code(&self) -> Option<ResetCode> {
        Flow::reset_code(self)
    }
}

impl Arrivals for Hub {
    fn accept(&self) -> BoxFuture<'_, Option<Incoming>> {
        Box::pin(async move {
            let incoming = Hub::accept(self).await?;
            Some(Incoming {
                aircraft: *incoming.aircraft.as_bytes(),
                target: incoming.target,
                class: incoming.class,
                passenger: incoming.passenger,
                stream: Box::new(incoming.flow),
            })
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(Hub::close(self))
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Hub::local_addr(self)
    }
}

/// What [`Air::start`] needs, for a ground at `address` and a handshake counter
/// above every earlier one (see [`crate::air::counter::claim`]).
pub fn air_config(
    config: &AirConfig,
    address: SocketAddr,
    first_counter: u64,
) -> Result<LinkAirConfig, SettingsError> {
    let link = &config.link;
    let lease = match link.lease {
        LeaseSource::Static => LeaseMode::Static,
        LeaseSource::Granted => LeaseMode::Granted,
        LeaseSource::Modem => LeaseMode::Modem,
    };
    let settings = Settings { lease, ..settings(link.rate, config.limits.max_flows) };
    settings.check()?;
    Ok(LinkAirConfig {
        secret: link.private_key().clone(),
        hub: link.peer_public_key,
        address,
        settings,
        first_counter,
    })
}

/// What [`Hub::start`] needs.
pub fn hub_config(config: &GroundConfig) -> Result<HubConfig, SettingsError> {
    let mut aircraft = Vec::with_capacity(config.aircraft.len());
    for one in &config.aircraft {
        let settings = Settings { share: one.share(), ..settings(one.rate, one.max_flows) };
        settings.check()?;
        aircraft.push(Aircraft { key: one.key(), settings });
    }
    let secret = config.link.private_key().clone();
    Ok(HubConfig { secret, aircraft })
}

/// The transport's defaults, with room for as many flows as the gateway admits.
fn settings(rate: bentpipe_units::BitRate, max_flows: usize) -> Settings {
    let defaults = Settings::default();
    let max_flows = u32::try_from(max_flows).unwrap_or(u32::MAX).saturating_add(FLOWS_ENDING);
    // The reserve shrinks where many flows share the memory: half of it stays free to be lent to
    // the flows that fill the link.
    let share = defaults.receive_memory.bytes() / 2 / u64::from(max_flows);
    let reserve = share.min(defaults.flow_reserve.bytes()).max(MIN_RESERVE_BYTES);
    let flow_reserve = bentpipe_units::ByteSize::from_bytes(reserve);
    Settings { rate, max_flows, flow_reserve, ..defaults }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_hold_for_many_flows_and_refuse_too_many() {
        let rate = bentpipe_units::BitRate::from_bps(1_890_000);
        for flows in [1, 4096, 16_384, 100_000] {
            let settings = settings(rate, flows);
            assert_eq!(settings.check(), Ok(()), "{flows} flows");
            let reserved = u64::from(settings.max_flows) * settings.flow_reserve.bytes();
            assert!(reserved <= settings.receive_memory.bytes() / 2, "{flows} flows");
        }
        let error = settings(rate, 1_000_000).check().unwrap_err().to_string();
        assert!(error.contains("lower the flows"), "{error}");
    }
}
