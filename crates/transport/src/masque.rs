//! HTTP/3 CONNECT and CONNECT-UDP behind the seam.

use std::net::SocketAddr;

use bentpipe_flow::{Host, ResetCode, Service, Target, TargetError};
use bentpipe_link::{Class, FlowRefusals, FlowsRefused, Refused};
use bentpipe_masque::{Client, DatagramFlow, Flow, Incoming as Request, Payload, Server};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::{
    Acceptor, Carried, Connector, DatagramError, Fleet, FlowDatagrams, FlowStream, Incoming, Open,
    OpenDatagrams, OpenError, Reach, Transport,
};

impl Connector for Client {
    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        let authority = match authority(&open.target) {
            Ok(authority) => authority,
            Err(error) => return Box::pin(std::future::ready(Err(error.into()))),
        };
        let (class, claim) = (open.class.to_u8(), open.claim.as_ref());
        let flow = self.open_claiming(&authority, class, open.passenger, claim, open.first);
        Box::pin(async move { Ok(Box::new(flow) as Box<dyn FlowStream>) })
    }

    fn open_datagrams(
        &self,
        open: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
        let authority = match authority(&open.target) {
            Ok(authority) => authority,
            Err(error) => return Box::pin(std::future::ready(Err(error.into()))),
        };
        let class = open.class.to_u8();
        let flow = Client::open_datagrams(
            self,
            &authority,
            open.protocol,
            open.source,
            class,
            open.passenger,
        );
        Box::pin(async move { Ok(Box::new(flow) as Box<dyn FlowDatagrams>) })
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        Client::watch_reach(self)
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(Client::failed(self))
    }

    fn pulse(&self) -> Option<u64> {
        Some(Client::pulse(self))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(Client::close(self))
    }
}

impl FlowStream for Flow {
    fn reset(&mut self, code: ResetCode) {
        Flow::reset(self, code);
    }

    fn stop_reading(&mut self, code: ResetCode) {
        Flow::stop_reading(self, code);
    }

    fn reset_code(&self) -> Option<ResetCode> {
        Flow::reset_code(self)
    }

    fn connected(&mut self) {
        self.accept();
    }

    fn confirm_class(&mut self, class: Class) {
        Flow::confirm_class(self, class.to_u8());
    }

    fn class(&self) -> Option<Class> {
        Class::from_u8(Flow::class(self)?)
    }
}

impl FlowDatagrams for DatagramFlow {
    fn send(&self, datagram: &[u8]) -> Result<(), DatagramError> {
        DatagramFlow::send(self, datagram).map_err(|error| match error {
            bentpipe_masque::DatagramError::TooLarge { most } => {
                DatagramError::TooLarge { max_bytes: most }
            }
            bentpipe_masque::DatagramError::Ended(_) => DatagramError::Ended,
        })
    }

    fn receive(&self) -> BoxFuture<'_, Result<Bytes, ResetCode>> {
        Box::pin(DatagramFlow::receive(self))
    }

    fn max_bytes(&self) -> usize {
        self.max_bytes()
    }

    fn reset(&self, code: ResetCode) {
        DatagramFlow::reset(self, code);
    }

    fn connected(&self) {
        self.accept();
    }
}

impl Acceptor for Server {
    fn accept(&self) -> BoxFuture<'_, Option<Incoming>> {
        Box::pin(async move {
            loop {
                let request = Server::accept(self).await?;
                match target(&request.authority, request.is_gateway) {
                    Ok(target) => return Some(incoming(request, target)),
                    Err(_) => drop(tokio::spawn(request.refuse(ResetCode::NameNotFound))),
                }
            }
        })
    }

    fn set_fleet(&self, fleet: &Fleet) -> bool {
        self.set_clients(fleet.aircraft.iter().map(|one| *one.key.as_bytes()).collect());
        true
    }

    fn transport(&self) -> Transport {
        Transport::Masque
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Server::local_addr(self).ok()
    }

    /// Connections without a proof, and requests of standard clients beyond their limits.
    fn take_refused(&self) -> Refused {
        let refused = Server::take_refused(self);
        let requests = Server::take_refused_requests(self);
        let count = requests.iter().map(|one| one.count).sum();
        let busiest = requests.into_iter().max_by_key(|one| one.count);
        let flows = busiest.map(|one| FlowsRefused {
            session: one.client,
            flows: FlowRefusals {
                refused: count,
                held: one.held as usize,
                max: one.max as usize,
                ..FlowRefusals::default()
            },
        });
        let (handshakes, busiest) = (refused.count, refused.busiest());
        Refused { handshakes, busiest, flows, ..Refused::default() }
    }

    fn failed(&self) -> BoxFuture<'_, ()> {
        Box::pin(Server::failed(self))
    }

    fn pulse(&self) -> Option<u64> {
        Some(Server::pulse(self))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(Server::close(self))
    }
}

/// Authority of `target` in a request. Services of the ground have names here, which nobody else
/// can use.
fn authority(target: &Target) -> Result<String, TargetError> {
    match &target.host {
        Host::Name(name) if Service::named(name).is_some() => Err(TargetError::Name(name.clone())),
        _ => Ok(target.to_string()),
    }
}

/// Target of `authority`; services only for a gateway of ours.
fn target(authority: &str, is_gateway: bool) -> Result<Target, TargetError> {
    let target: Target = authority.parse()?;
    let service = target.host.name().and_then(Service::named);
    Ok(match service {
        Some(service) if is_gateway => Target { host: Host::Service(service), ..target },
        _ => target,
    })
}

fn incoming(request: Request, target: Target) -> Incoming {
    let (aircraft, session, passenger) = (request.client, request.session, request.passenger);
    let class = Class::from_u8(request.class).unwrap_or_default();
    let is_forwarded = request.is_forwarded;
    let claim = request.claim.clone();
    let carries = match request.payload {
        Payload::Stream => Carried::Stream(Box::new(request.into_stream())),
        Payload::Datagrams { protocol, source } => {
            let is_gateway = request.is_gateway;
            let flow = Box::new(request.into_datagrams());
            Carried::Datagrams { protocol, source, is_gateway, flow }
        }
    };
    let dialler = None;
    Incoming { aircraft, session, is_forwarded, target, class, passenger, claim, dialler, carries }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gateways_may_request_services() {
        let resolver = Target { host: Host::Service(Service::Resolver), port: 53 };
        let asked = authority(&resolver).unwrap();
        assert_eq!(target(&asked, true), Ok(resolver));
        let name = target(&asked, false).unwrap();
        assert!(matches!(name.host, Host::Name(_)), "a standard client asks for a name: {name:?}");
        // What a passenger writes is a name, and does not travel.
        assert!(authority(&name).is_err());
        let other: Target = "Resolver.Bentpipe.INVALID.:80".parse().unwrap();
        assert!(authority(&other).is_err());
        let plain: Target = "www.gov.uk:443".parse().unwrap();
        assert_eq!(target(&authority(&plain).unwrap(), true), Ok(plain));
    }
}
