//! DSCP of UDP: the resulting class, marks on both sides, and the limit on a passenger in the
//! network class.

use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use bentpipe_link::{Class, Dscp};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::bench::{Bench, LOOPBACK, soon, start, start_with, until};
use crate::udp::{Client, echo, head};

/// Marks the packets of a socket, and requests the marks of received packets.
pub fn mark(socket: &impl std::os::fd::AsFd, dscp: Dscp, v6: bool) {
    let (sender, field) = (socket2::SockRef::from(socket), u32::from(dscp.traffic_class(0)));
    if v6 {
        sender.set_tclass_v6(field).unwrap();
        setsockopt(&socket.as_fd(), sockopt::Ipv6RecvTClass, &true).unwrap();
    } else {
        sender.set_tos_v4(field).unwrap();
        setsockopt(&socket.as_fd(), sockopt::IpRecvTos, &true).unwrap();
    }
}

/// The next packet, its sender, and its mark.
pub fn receive(socket: &impl AsRawFd, flags: MsgFlags) -> nix::Result<(Vec<u8>, SocketAddr, Dscp)> {
    let (mut buffer, mut control) = ([0; 2048], nix::cmsg_space!(i32, i32));
    let mut slices = [IoSliceMut::new(&mut buffer)];
    let got =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
    let field = got.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4Tos(field) => Some(field),
        ControlMessageOwned::Ipv6TClass(field) => u8::try_from(field).ok(),
        _ => None,
    });
    let from = got.address.expect("somebody sent it");
    let from = from.as_sockaddr_in().map(|from| SocketAddr::from((from.ip(), from.port())));
    let from =
        from.or_else(|| got.address?.as_sockaddr_in6().map(|from| SocketAddr::V6((*from).into())));
    let (bytes, dscp) = (got.bytes, Dscp::from_traffic_class(field.expect("it was asked for")));
    Ok((buffer[..bytes].to_vec(), from.expect("an address"), dscp))
}

async fn next(socket: &UdpSocket) -> (Vec<u8>, SocketAddr, Dscp) {
    soon("a packet", async {
        loop {
            socket.readable().await.unwrap();
            let got = || receive(socket, MsgFlags::MSG_DONTWAIT).map_err(Into::into);
            if let Ok(got) = socket.try_io(Interest::READABLE, got) {
                return got;
            }
        }
    })
    .await
}

/// A client with marked packets.
async fn client(bench: &Bench, dscp: Dscp) -> Client {
    let client = Client::of(bench.socks).await;
    mark(&client.udp, dscp, false);
    client
}

const POLICY: &str = "rule = [{ dscp = 'EF', class = 'network' }]\n\
                      trusted = { passenger = '127.0.0.1', highest-class = 'assured' }";

#[tokio::test]
async fn marks_are_set_towards_both_sides() {
    let bench = start(POLICY, LOOPBACK);
    // AF43 is trusted, and packets of its class have one mark; CS6 is above the trusted limit.
    let wanted = [("EF", "EF"), ("AF43", "AF42"), ("CS6", "AF42"), ("LE", "LE"), ("AF11", "DF")];
    for (sent, expected) in wanted {
        let client = client(&bench, sent.parse().unwrap()).await;
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let origin = UdpSocket::bind(any).await.unwrap();
            let to = origin.local_addr().unwrap();
            mark(&origin, Dscp::DF, to.is_ipv6());
            client.send(&head(to), b"?").await;
            let (_, from, dscp) = next(&origin).await;
            assert_eq!(dscp.to_string(), expected, "{sent} towards {to}");
            origin.send_to(b"!", from).await.unwrap();
            let (_, _, dscp) = next(&client.udp).await;
            assert_eq!(dscp.to_string(), expected, "{sent} back from {to}");
        }
    }
}

#[tokio::test]
async fn rules_are_about_udp_too() {
    let rules = "default-class = 'lower-effort'\nrule = [\
        { protocol = 'tcp', class = 'network' },\
        { passenger = '10.0.0.0/8', class = 'network' },\
        { dscp = 'AF31', protocol = 'udp', class = 'assured' },\
        { prefix = '192.0.2.0/24', class = 'best-effort' },\
        { port = '5004-5005', class = 'network' },\
        { passenger = '127.0.0.1', port = 5006, class = 'assured' },\
        { domain = 'gov.uk', class = 'assured' }]";
    let bench = start_with(rules, "", |air| {
        let learn = |name: &str, address: &str| {
            let (name, address) = (name.parse().unwrap(), address.parse().unwrap());
            air.learn(&name, &[address], Duration::from_secs(300));
        };
        learn("www.gov.uk", "198.51.100.7");
        learn("www.gov.uk", "198.51.100.8");
        learn("shop.test", "198.51.100.8");
    });
    let (plain, marked) =
        (client(&bench, Dscp::DF).await, client(&bench, "AF31".parse().unwrap()).await);
    let mut name = b"\0\0\0\x03\x0awww.gov.uk".to_vec();
    name.extend(443u16.to_be_bytes());
    let to = |address: &str| head(address.parse().unwrap());
    let cases = [
        (&plain, to("203.0.113.1:5000"), Class::LowerEffort),
        (&marked, to("203.0.113.1:5000"), Class::Assured),
        (&plain, to("192.0.2.9:5004"), Class::BestEffort),
        (&plain, to("203.0.113.1:5005"), Class::Network),
        (&plain, to("203.0.113.1:5006"), Class::Assured),
        (&plain, to("198.51.100.7:443"), Class::Assured),
        (&plain, to("198.51.100.8:443"), Class::LowerEffort),
        (&plain, name, Class::Assured),
    ];
    for (at, (client, head, class)) in cases.into_iter().enumerate() {
        client.send(&head, b"x").await;
        until("it was asked for", || bench.up.opened_datagrams().len() > at).await;
        assert_eq!(bench.up.opened_datagrams()[at].class, class, "case {at}");
    }
}

/// Urgent traffic is limited for each passenger in both directions; other traffic is not.
#[tokio::test]
async fn the_network_class_is_policed() {
    const PACKETS: u64 = 100;
    let ceil = "classes = { network = { passenger-ceil = '8 kbit/s' } }";
    for (air, ground) in [(ceil, ""), ("", ceil)] {
        let bench = start(&format!("{POLICY}\n{air}"), &format!("{LOOPBACK}\n{ground}"));
        let to = head(echo("127.0.0.1:0").await);
        let urgent = client(&bench, Dscp::EF).await;
        let began = tokio::time::Instant::now();
        // One at a time, so that no socket buffer overflows.
        for sent in 1..=PACKETS {
            urgent.send(&to, &[0; 500]).await;
            let (here, there) = (&bench.air, &bench.ground);
            until("its fate", || {
                let dropped = here.datagrams_policed.get() + there.datagrams_policed.get();
                here.datagrams_from_link.get() + dropped == sent
            })
            .await;
        }
        let passed = bench.air.datagrams_from_link.get();
        // The burst of 7,500 bytes, and a kilobyte for every second of the test.
        let most = 15 + 2 * (began.elapsed().as_secs() + 1);
        assert!((14..=most).contains(&passed), "{passed} passed");
        let policed = [bench.air.datagrams_policed.get(), bench.ground.datagrams_policed.get()];
        let wanted = [u64::from(!air.is_empty()), u64::from(air.is_empty())];
        assert_eq!(policed, wanted.map(|one| one * (PACKETS - passed)));
        let plain = client(&bench, Dscp::DF).await;
        for _ in 0..PACKETS {
            plain.echoes(&to, &[0; 500]).await;
        }
    }
}
