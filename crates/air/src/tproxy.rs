//! Transparent interception: clients connect to the Internet and reach the gateway.
//!
//! nftables TPROXY redirects TCP connections received on the named interfaces to a listener on
//! loopback. The accepted socket's local address is the original destination. UDP is redirected to
//! separate sockets, see `udp.rs`. All other packets are copied to another socket, see
//! `capture.rs`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_net::interception::{Changes, Leads, NEW_SOURCES_PER_SECOND, Part, Rules, RulesError};
use bentpipe_net::{self as net, SocketError};
use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::capture::Capture;
use super::passengers::FlowPermit;
use super::services::Services;
use super::udp::Udp;
use crate::error::StartError;
use bentpipe_config::Tproxy;
use bentpipe_metering::counters::Counters;
use bentpipe_metering::rate_limited_log::RateLimitedLog;
use bentpipe_metering::refusals::{Holding, Limit};
use bentpipe_relay::reset_on_close;

/// Interval between checks of the rules if the kernel reports no change. It reports changes of
/// nftables, and none of policy routing to this socket.
const RESTORE_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum time between two checks.
const RESTORE_PAUSE: Duration = Duration::from_millis(100);

/// Probable cause, for the log.
const REMOVED: &str = "another program removed them, for example `nft flush ruleset` or a reload \
     of nftables.service";

/// Listeners, and the rules that redirect to them. Dropping removes the rules.
pub struct Transparent {
    // Fields drop in order, so the rules are removed before the listeners close.
    rules: Rules,
    listeners: Vec<TcpListener>,
    udp: Option<Udp>,
}

impl Transparent {
    /// Binds the listeners, then installs the rules.
    pub fn start(config: &Tproxy) -> Result<Self, StartError> {
        let mut listeners = vec![listen(Ipv4Addr::LOCALHOST.into(), config.port)?];
        let v6 = match net::without_ipv6() {
            None => {
                listeners.push(listen(Ipv6Addr::LOCALHOST.into(), config.port)?);
                true
            }
            Some(why) => {
                tracing::warn!("only IPv4 is intercepted: {why}");
                false
            }
        };
        let interfaces: Vec<&str> = config.interfaces.iter().map(String::as_str).collect();
        let mut udp = bind_udp(config.port, v6)?;
        if let Some(udp) = &mut udp {
            udp.capture = capture();
        }
        let mut leads = Leads {
            udp: udp.is_some(),
            others: udp.as_ref().is_some_and(|udp| udp.capture.is_some()),
            fail_closed: config.fail_closed,
        };
        let rules = match Rules::install(config.port, &interfaces, v6, leads) {
            Err(error @ RulesError::Refused { part: Some(Part::Log), .. }) if leads.others => {
                without_others(&error);
                leads.others = false;
                Rules::install(config.port, &interfaces, v6, leads)?
            }
            installed => installed?,
        };
        Ok(Self { rules, listeners, udp })
    }

    /// Takes the sockets for UDP; returns them only once.
    pub fn take_udp(&mut self) -> Option<Udp> {
        self.udp.take()
    }

    /// Restores the rules whenever another program has removed them. Never returns.
    pub async fn keep_rules(&self, counters: &Counters) {
        let log = RateLimitedLog::default();
        let mut changes = Changes::subscribe().inspect_err(|error| {
            tracing::warn!(%error, "the kernel does not report changes of nftables");
        });
        let mut dropped = 0;
        loop {
            self.count_new_sources(&mut dropped, counters);
            match self.rules.restore() {
                Ok(false) => {}
                Ok(true) => {
                    counters.rules_restored.add(1);
                    log.warn("the rules of interception are installed again", &REMOVED);
                }
                Err(error) => log.warn("the rules of interception are missing", &error),
            }
            // A pause, in case another program removes them each time.
            sleep(RESTORE_PAUSE).await;
            let changed = async {
                match &changes {
                    Ok(changes) => changes.changed().await,
                    Err(_) => std::future::pending().await,
                }
            };
            if let Ok(Err(error)) = timeout(RESTORE_INTERVAL, changed).await {
                changes = Err(error);
            }
        }
    }

    /// Counts the packets that the kernel dropped since the last call. It had dropped `before` then.
    fn count_new_sources(&self, before: &mut u64, counters: &Counters) {
        let Ok(now) = self.rules.dropped_new_sources() else { return };
        // A table that was installed again counts from zero.
        let new = now.checked_sub(*before).unwrap_or(now);
        *before = now;
        if new > 0 {
            let packets = usize::try_from(new).unwrap_or(usize::MAX);
            counters.refusals.refused_times(Limit::NewSources, new, || Holding {
                newcomer: "devices of the cabin, with packets from new source addresses".to_owned(),
                holds: packets,
                held: packets,
                most: NEW_SOURCES_PER_SECOND as usize,
                largest: None,
            });
        }
    }

    /// Listeners, one per address family.
    pub fn listeners(&self) -> impl Iterator<Item = &TcpListener> {
        self.listeners.iter()
    }
}

/// Binds the sockets for UDP. Returns `None` if this process may not send raw packets, which the
/// answers need.
fn bind_udp(port: u16, v6: bool) -> Result<Option<Udp>, StartError> {
    match Udp::bind(port, v6) {
        Ok(udp) => Ok(Some(udp)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(
                "UDP is not intercepted: that needs CAP_NET_RAW as well; add it to \
                 AmbientCapabilities in the systemd unit"
            );
            Ok(None)
        }
        Err(source) => {
            let address = (Ipv4Addr::LOCALHOST, port).into();
            Err(SocketError::Bind { what: "tproxy over UDP", address, source }.into())
        }
    }
}

/// Opens the capture of other protocols, if the kernel supports it.
fn capture() -> Option<Capture> {
    Capture::bind().inspect_err(|error| without_others(error)).ok()
}

fn without_others(error: &dyn std::fmt::Display) {
    tracing::warn!(
        %error,
        "ICMP echo and protocols other than TCP and UDP are not carried, nor refused: that needs a \
         kernel with NFLOG (nft_log, nfnetlink_log)"
    );
}

/// Binds to loopback, so that clients reach the listener only through the rules.
fn listen(ip: IpAddr, port: u16) -> Result<TcpListener, StartError> {
    let address = SocketAddr::new(ip, port);
    let bound = net::bind_tcp(address, |socket| match ip {
        IpAddr::V4(_) => socket.set_ip_transparent_v4(true),
        IpAddr::V6(_) => socket.set_ip_transparent_v6(true),
    });
    match bound.and_then(TcpListener::from_std) {
        Ok(listener) => Ok(listener),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            Err(RulesError::Permission.into())
        }
        Err(source) => Err(SocketError::Bind { what: "tproxy", address, source }.into()),
    }
}

/// Serves an intercepted connection, or carries it to its original destination.
pub(super) async fn serve(tcp: TcpStream, permit: FlowPermit, services: Arc<Services>) {
    let uplink = &services.uplink;
    let Ok(original) = tcp.local_addr() else { return };
    // Only a connection to the listener itself has a loopback address; dialling it would loop
    // forever.
    if original.ip().to_canonical().is_loopback() {
        uplink.garbage(&permit, "it connected to the interception port itself");
        reset_on_close(&tcp);
        return;
    }
    let resolver = services.intercepting().filter(|_| original.port() == bentpipe_dns::io::PORT);
    if let Some(resolver) = resolver {
        return resolver
            .serve_stream(tcp, bentpipe_resolver::By::Interception, permit.asker())
            .await;
    }
    match services.web.clone() {
        Some(web) if original.port() == bentpipe_web::PORT => {
            bentpipe_web::intercept::intercept(tcp, original, permit, uplink.clone(), web).await;
        }
        _ => services.carry(tcp, original.into(), permit.into(), Bytes::new()).await,
    }
}
