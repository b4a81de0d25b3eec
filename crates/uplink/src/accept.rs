//! Accepts clients, each with its permit and its own task.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_net::descriptors::{descriptor_limit, is_shortage};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::{TcpListener, TcpStream};

use super::passengers::FlowPermit;
use super::{Knows, Uplink};

/// Pause before accepting again when the system has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts clients from any address.
pub fn accept<'a, F>(
    listener: &'a TcpListener,
    uplink: &Arc<Uplink>,
    serve: impl Fn(TcpStream, FlowPermit) -> F + Send + 'a,
) -> impl Future<Output = ()> + Send + 'a
where
    F: Future<Output = ()> + Send + 'static,
{
    accept_from(listener, uplink, |_| true, serve)
}

/// Accepts clients forever. Every client that `admits` and the limits allow gets its own task.
///
/// A device that has just taken an address may connect before the kernel reports it as a neighbour.
/// Its connection waits briefly, so that it counts for the device. If too many wait already, it
/// counts for [`EVERYONE_ELSE`](super::passengers::EVERYONE_ELSE) at once. Otherwise a device
/// with many addresses could escape its limits by filling the places.
pub fn accept_from<'a, F>(
    listener: &'a TcpListener,
    uplink: &Arc<Uplink>,
    admits: impl Fn(IpAddr) -> bool + Send + Sync + 'a,
    serve: impl Fn(TcpStream, FlowPermit) -> F + Send + 'a,
) -> impl Future<Output = ()> + Send + 'a
where
    F: Future<Output = ()> + Send + 'static,
{
    let uplink = uplink.clone();
    async move {
        let mut unknown = FuturesUnordered::new();
        let host = uplink.clone();
        let begin = move |tcp: TcpStream, client: SocketAddr, knows: Knows| {
            if let Some(permit) = host.admit(&tcp, client, knows) {
                let over = permit.over();
                let serving = serve(tcp, permit);
                host.flows.spawn(async move {
                    over.run_until_cancelled_owned(serving).await;
                });
            }
        };
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some((tcp, client)) = unknown.next() => {
                    begin(tcp, client, Knows::Address);
                    continue;
                }
            };
            match accepted {
                Ok((tcp, client)) if !admits(client.ip()) => uplink.not_a_client(&tcp, client.ip()),
                Ok((tcp, client)) if uplink.is_unproven(client.ip()) => {
                    if let Ok(place) = uplink.unknown.clone().try_acquire_owned() {
                        let uplink = uplink.clone();
                        unknown.push(async move {
                            uplink.prove(client.ip()).await;
                            drop(place);
                            (tcp, client)
                        });
                    } else {
                        begin(tcp, client, Knows::Nothing);
                    }
                }
                Ok((tcp, client)) => begin(tcp, client, Knows::Address),
                Err(error) => {
                    if is_shortage(&error) {
                        uplink.counters.over_limit.add(1);
                        uplink.passengers.report_lack_of_descriptors(descriptor_limit());
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    } else if is_ours(&error) {
                        uplink.log.warn("cannot accept a client", &error);
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
    }
}

/// Returns `true` if accepting failed for lack of memory; otherwise the client has gone.
fn is_ours(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use futures_util::future::{BoxFuture, pending};
    use tokio::sync::{mpsc, watch};

    use super::super::identity::{Identity, Place};
    use super::super::passengers::EVERYONE_ELSE;
    use super::*;
    use bentpipe_config::AirConfig;
    use bentpipe_relay::flows::Flows;
    use bentpipe_transport::{
        Connector, FlowDatagrams, FlowStream, Open, OpenDatagrams, OpenError, Reach,
    };

    struct Unused;

    impl Connector for Unused {
        fn open(&self, _: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
            Box::pin(pending())
        }
        fn open_datagrams(
            &self,
            _: OpenDatagrams,
        ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
            Box::pin(pending())
        }
        fn watch_reach(&self) -> watch::Receiver<Reach> {
            watch::channel(Reach::Down).1
        }
    }

    /// Nobody answers the kernel.
    struct Nobody;

    impl Identity for Nobody {
        fn place(&self, _: IpAddr) -> Place {
            Place::Unproven
        }
        fn prove(&self, _: IpAddr) -> BoxFuture<'_, ()> {
            Box::pin(pending())
        }
    }

    #[tokio::test]
    async fn whoever_finds_no_place_to_wait_is_nobody_in_particular() {
        let folder = tempfile::tempdir().unwrap();
        let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        std::fs::write(folder.path().join("a.key"), key).unwrap();
        let text = format!(
            "[link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:4500\"\n\
             peer-public-key = \"{key}\"\nrate = \"1 Mbit/s\"\n\
             [listen]\nsocks5 = \"127.0.0.1:0\"\n"
        );
        let config = AirConfig::parse(&folder.path().join("air.toml"), &text).unwrap();
        let mut uplink = Uplink::new(&config, Arc::new(Unused), Flows::default());
        uplink.set_identity(Arc::new(Nobody));
        let uplink = Arc::new(uplink);
        let places = uplink.unknown.available_permits();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (served, mut numbers) = mpsc::unbounded_channel();
        let serve = move |_, permit: FlowPermit| {
            served.send(permit.number).unwrap();
            async {}
        };
        let clients = async {
            let mut waiting = Vec::new();
            for _ in 0..=places {
                waiting.push(TcpStream::connect(address).await.unwrap());
            }
            assert_eq!(numbers.recv().await, Some(EVERYONE_ELSE));
            assert!(numbers.try_recv().is_err(), "the others wait");
        };
        tokio::select! {
            () = accept(&listener, &uplink, serve) => unreachable!("it accepts for ever"),
            () = clients => {}
        }
        assert_eq!(uplink.counters.admitted_unproven.get(), 1);
    }
}
