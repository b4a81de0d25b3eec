//! Transparent interception: clients connect to the Internet and find the gateway.
//!
//! nftables TPROXY leads every TCP connection that comes in by the named
//! interfaces to a listener on loopback. The accepted socket's own address is
//! where the client wanted to go. UDP goes to sockets beside it, see `udp.rs`, and all other packets
//! are copied to one more, see `capture.rs`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream};

use super::board;
use super::capture::Capture;
use super::intake::Intake;
use super::passengers::Ticket;
use super::rules::{Leads, Part, Rules, RulesError};
use super::udp::Udp;
use super::web;
use crate::config::Tproxy;
use crate::net::{self, StartError};
use crate::relay::reset_on_close;

/// The listeners and the rules that lead to them; dropping it removes the rules.
pub struct Transparent {
    // Fields drop in order: no connection is led to a listener that has gone.
    _rules: Rules,
    listeners: Vec<TcpListener>,
    udp: Option<Udp>,
}

impl Transparent {
    /// Binds the listeners, then puts the rules in force.
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
        let interfaces: Vec<&str> =
            config.interfaces.iter().map(|name| name.get_ref().as_str()).collect();
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
        Ok(Self { _rules: rules, listeners, udp })
    }

    /// The sockets for UDP; once.
    pub fn take_udp(&mut self) -> Option<Udp> {
        self.udp.take()
    }

    /// One per address family.
    pub fn listeners(&self) -> impl Iterator<Item = &TcpListener> {
        self.listeners.iter()
    }
}

/// The sockets for UDP, or none where this process may send no raw packets: the answers need them.
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
            Err(StartError::Bind { what: "tproxy over UDP", address, source })
        }
    }
}

/// Capture of protocols other than TCP and UDP, on kernels that can give them.
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

/// Bound to loopback, so that no client reaches the listener except by the rules.
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
        Err(source) => Err(StartError::Bind { what: "tproxy", address, source }),
    }
}

/// Carries an intercepted connection to where the client meant it to go.
pub(super) async fn serve(tcp: TcpStream, ticket: Ticket, intake: Arc<Intake>) {
    let Ok(original) = tcp.local_addr() else { return };
    // Only a connection made to the listener itself ends at loopback; dialling on
    // would come back here for ever.
    if original.ip().to_canonical().is_loopback() {
        intake.garbage(&ticket, "it connected to the interception port itself");
        reset_on_close(&tcp);
        return;
    }
    let board = intake.intercepting().filter(|_| original.port() == board::PORT);
    if let Some(board) = board {
        return board.serve_stream(tcp, board::By::Interception, ticket.client).await;
    }
    match intake.web.clone() {
        Some(web) if original.port() == web::PORT => {
            web::intercept(tcp, original, ticket, intake, web).await;
        }
        _ => web::carry(tcp, original.into(), ticket.into(), intake, Bytes::new()).await,
    }
}
