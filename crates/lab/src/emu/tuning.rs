//! TCP settings of one host, for every program on it. An experiment declares them for its clients
//! and servers.
//!
//! A setting of the kernel applies only to the host's namespace. A setting that the kernel does not
//! have is an attribute of the host's IPv4 routes. A socket takes its settings when it opens, so
//! tune a host before anything runs on it.

use std::fs;
use std::net::Ipv4Addr;

use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_core::DefaultNla;
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteMetric, RouteScope};

use super::congestion::Congestion;
use super::error::EmuError;
use super::host::Host;
use super::net::{Interface, configure, index_of};
use super::plan::{AIR, AIR_CABIN, CLIENT, GROUND, GROUND_INTERNET, SERVER};
use super::testbed::Testbed;

/// `RTAX_CC_ALGO` of linux/rtnetlink.h. Its value is a name.
const RTAX_CC_ALGO: u16 = 16;

/// Ratio of receive-buffer memory to window. From Linux 6.6 on the kernel estimates the payload
/// share of a buffer from the first full packet: 1448 of 2304 bytes for a packet of the emulated
/// links, rounded down to 160 of 256. It then derives every other bound of the window from that
/// share. Older kernels always assume half, which gives a window of 80 %.
const MEMORY_FOR_WINDOW: (u32, u32) = (8, 5);

/// TCP settings of a host; `None` leaves the kernel's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Congestion control, which overrides a program's choice.
    pub congestion: Option<Congestion>,
    /// Segments that may be sent before the first acknowledgement.
    pub initial_window: Option<u32>,
    /// `true` if TCP Fast Open (RFC 7413) is allowed, for clients that request it and for all
    /// listeners.
    pub fast_open: Option<bool>,
    /// `true` if the congestion window restarts after idle periods (RFC 5681, 4.1).
    pub slow_start_after_idle: Option<bool>,
    /// Payload that a connection buffers for its reader, which also limits the window. It is also
    /// half of a connection's send memory, as with `SO_SNDBUF`.
    pub buffer_bytes: Option<u32>,
    /// Maximum receive window.
    pub receive_window_bytes: Option<u32>,
}

impl Tuning {
    /// Maximum window that the host advertises.
    fn window(&self) -> Option<u32> {
        let both = [self.receive_window_bytes, self.buffer_bytes];
        both.into_iter().flatten().min()
    }

    /// Settings below /proc/sys/net/ipv4, with their values.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        if let Some(fast_open) = self.fast_open {
            // Clients that request it, servers, and every listener without a request.
            let bits = if fast_open { 0x1 | 0x2 | 0x400 } else { 0 };
            all.push(("tcp_fastopen", bits.to_string()));
        }
        if let Some(restart) = self.slow_start_after_idle {
            all.push(("tcp_slow_start_after_idle", u8::from(restart).to_string()));
        }
        if let Some(bytes) = self.buffer_bytes {
            let twice = bytes.saturating_mul(2);
            all.push(("tcp_wmem", format!("4096 {} {twice}", twice.min(131_072))));
        }
        if let Some(window) = self.window() {
            // The kernel's auto-tuning would change the window's bound along with the buffer.
            let memory = window.saturating_mul(MEMORY_FOR_WINDOW.0) / MEMORY_FOR_WINDOW.1;
            all.push(("tcp_moderate_rcvbuf", "0".into()));
            all.push(("tcp_rmem", format!("4096 {memory} {memory}")));
        }
        all
    }

    fn metrics(&self) -> Vec<RouteMetric> {
        let congestion = self.congestion.map(|congestion| {
            let name = format!("{}\0", congestion.name()).into_bytes();
            RouteMetric::Other(DefaultNla::new(RTAX_CC_ALGO, name))
        });
        let initial = self.initial_window.map(RouteMetric::InitCwnd);
        [congestion, initial, self.window().map(RouteMetric::Window)]
            .into_iter()
            .flatten()
            .collect()
    }
}

impl Testbed {
    /// Sets the TCP settings of the client.
    pub fn tune_client(&self, tuning: &Tuning) -> Result<(), EmuError> {
        tune(&self.client, tuning, &CLIENT.on("cabin"), AIR_CABIN.v4)
    }

    /// Sets the TCP settings of the server.
    pub fn tune_server(&self, tuning: &Tuning) -> Result<(), EmuError> {
        tune(&self.server, tuning, &SERVER.on("internet"), GROUND_INTERNET.v4)
    }

    /// Sets the TCP settings that the air and ground hosts use with each other over the radio link,
    /// for relays that run there. A setting that is not a route attribute applies to all TCP of
    /// both hosts.
    pub fn tune_link(&self, tuning: &Tuning) -> Result<(), EmuError> {
        for (host, own, other) in [(&self.air, AIR, GROUND), (&self.ground, GROUND, AIR)] {
            set(host, tuning)?;
            let between = |index| {
                vec![
                    RouteMessageBuilder::<Ipv4Addr>::new()
                        .destination_prefix(other.v4, 32)
                        .output_interface(index)
                        .pref_source(own.v4)
                        .scope(RouteScope::Link)
                        .build(),
                ]
            };
            lead(host, "radio", tuning, between)?;
        }
        Ok(())
    }
}

/// Applies the kernel's settings. Adds the rest as attributes to the routes through `interface` and
/// to everything beyond its `gateway`.
fn tune(
    host: &Host,
    tuning: &Tuning,
    interface: &Interface,
    gateway: Ipv4Addr,
) -> Result<(), EmuError> {
    set(host, tuning)?;
    let network = Ipv4Addr::from_bits(interface.v4.to_bits() & 0xffff_ff00);
    lead(host, interface.name, tuning, |index| {
        let near = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(network, 24)
            .output_interface(index)
            .pref_source(interface.v4)
            .scope(RouteScope::Link)
            .build();
        let far = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(Ipv4Addr::UNSPECIFIED, 0)
            .gateway(gateway)
            .build();
        vec![near, far]
    })
}

/// Applies the settings that the kernel has.
fn set(host: &Host, tuning: &Tuning) -> Result<(), EmuError> {
    host.run(|| {
        for (name, value) in tuning.settings() {
            let written = fs::write(format!("/proc/sys/net/ipv4/{name}"), &value);
            written
                .map_err(|error| host.failed(format!("set net.ipv4.{name} = {value}"), error))?;
        }
        Ok(())
    })?
}

/// Replaces the `routes` through the named interface by routes with the tuning's attributes.
fn lead(
    host: &Host,
    interface: &str,
    tuning: &Tuning,
    routes: impl FnOnce(u32) -> Vec<RouteMessage> + Send,
) -> Result<(), EmuError> {
    let metrics = tuning.metrics();
    if metrics.is_empty() {
        return Ok(());
    }
    let doing = format!("give its routes {metrics:?}");
    configure(host, &doing, async |netlink| {
        let index = index_of(&netlink, interface).await?;
        for mut route in routes(index) {
            route.attributes.push(RouteAttribute::Metrics(metrics.clone()));
            netlink.route().add(route).replace().execute().await?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrower_bound_is_the_window() {
        let buffers = Tuning { buffer_bytes: Some(130_000), ..Tuning::default() };
        assert_eq!(buffers.window(), Some(130_000));
        let both = Tuning { receive_window_bytes: Some(65_536), ..buffers };
        assert_eq!(both.window(), Some(65_536));
        let rmem = both.settings().into_iter().find(|(name, _)| *name == "tcp_rmem").unwrap();
        assert_eq!(rmem.1, "4096 104857 104857");
        assert!(Tuning::default().settings().is_empty() && Tuning::default().metrics().is_empty());
    }
}
