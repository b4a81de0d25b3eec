//! Hosts reach each other.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use bentpipe_lab::emu::{AIR, CLIENT, GROUND, SERVER, SNAP_BYTES, Testbed};

use crate::links;

/// Number of segments: 10,500 bytes in datagrams of 1,000.
const SEGMENTS: u64 = 11;
/// Maximum number of checks for their arrival, 10 ms apart.
const TRIES: usize = 500;

pub fn datagrams() {
    let testbed = Testbed::new(&links::constant(1_000_000, 30, 0.0), None, 1).expect("a testbed");
    for (air, ground) in AIR.both().into_iter().zip(GROUND.both()) {
        let near = testbed.air.udp_socket(SocketAddr::new(air, 0)).expect("a socket");
        let far = testbed.ground.udp_socket(SocketAddr::new(ground, 0)).expect("a socket");
        far.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        near.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let began = Instant::now();
        near.send_to(b"ping", far.local_addr().expect("an address")).expect("sent");
        let mut buffer = [0; 16];
        let (bytes, from) = far.recv_from(&mut buffer).expect("the ping");
        far.send_to(&buffer[..bytes], from).expect("sent");
        assert_eq!(near.recv(&mut buffer).expect("the pong"), 4);
        // The reply never arrives sooner. The additional delay depends on this machine; `measured`
        // checks it over many packets.
        let rtt = began.elapsed();
        assert!(rtt.as_millis() >= 60, "{air}: {rtt:?}");
    }
}

pub fn segmented() {
    for link in [links::clean(), links::constant(50_000_000, 5, 0.0)] {
        let testbed = Testbed::new(&link, None, 1).expect("a testbed");
        for (air, ground) in AIR.both().into_iter().zip(GROUND.both()) {
            let near = testbed.air.udp_socket(SocketAddr::new(air, 0)).expect("a socket");
            let far = testbed.ground.udp_socket(SocketAddr::new(ground, 0)).expect("a socket");
            far.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
            setsockopt(&near, sockopt::UdpGsoSegment, &1000).expect("UDP segmentation");
            let payload: Vec<u8> = (0..10_500).map(|at| (at / 1000) as u8).collect();
            near.send_to(&payload, far.local_addr().expect("an address")).expect("sent");
            let mut buffer = [0; 2000];
            for number in 0..11 {
                let bytes = far.recv(&mut buffer).expect("a datagram");
                assert_eq!(bytes, if number < 10 { 1000 } else { 500 });
                assert!(buffer[..bytes].iter().all(|byte| *byte == number));
            }
        }
        let counters = testbed.radio_counters().expect("counters");
        assert_eq!(counters.return_.model.offered.packets, 22, "the model sees every datagram");
        assert_eq!(counters.unmodelled(), 0);
    }
}

/// A capture has every packet that the model saw, with its length, its first bytes and the end that
/// sent it. It has no packets from before or after.
pub fn captured() {
    let testbed = Testbed::new(&links::constant(50_000_000, 5, 0.2), None, 1).expect("a testbed");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("radio.pcapng");
    let near = testbed.air.udp_socket(SocketAddr::new(AIR.v4.into(), 0)).expect("a socket");
    let far = testbed.ground.udp_socket(SocketAddr::new(GROUND.v4.into(), 0)).expect("a socket");
    let to = far.local_addr().expect("an address");
    setsockopt(&near, sockopt::UdpGsoSegment, &1000).expect("UDP segmentation");
    let payload = [7; 10_500];
    let offered = || testbed.radio_counters().expect("counters").return_.model;
    let send = || {
        let wanted = offered().offered.packets + SEGMENTS;
        near.send_to(&payload, to).expect("sent");
        for _ in 0..TRIES {
            if offered().offered.packets >= wanted {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(offered().offered.packets, wanted);
    };
    send();
    let before = offered();
    let capture = testbed.capture(&path).expect("a capture");
    send();
    let after = offered();
    drop(capture);
    send();
    let mut pcap = PcapNgReader::new(File::open(&path).expect("a file")).expect("pcapng");
    let (mut lengths, mut lost, mut ends) = (Vec::new(), 0, Vec::new());
    while let Some(block) = pcap.next_block() {
        let packet = match block.expect("a block") {
            Block::EnhancedPacket(packet) => packet,
            Block::InterfaceStatistics(end) => {
                ends.push(end.into_owned().options);
                continue;
            }
            _ => continue,
        };
        assert_eq!((packet.interface_id, packet.data.len()), (0, SNAP_BYTES));
        // The headers of IPv4 and UDP, with the length in each.
        let field =
            |at: usize| u32::from(u16::from_be_bytes([packet.data[at], packet.data[at + 1]]));
        assert_eq!((packet.data[0], packet.data[9]), (0x45, 17));
        assert_eq!((field(2), field(24) + 20), (packet.original_len, packet.original_len));
        assert_eq!(packet.data[28..], [7; SNAP_BYTES - 28]);
        lengths.push(packet.original_len);
        lost += u64::from(!packet.options.is_empty());
    }
    assert_eq!(lengths, [[1028; 10].as_slice(), &[528]].concat());
    assert_eq!(lost, after.lost.packets - before.lost.packets);
    let of = |offered| {
        vec![InterfaceStatisticsOption::IsbIfRecv(offered), InterfaceStatisticsOption::IsbIfDrop(0)]
    };
    assert_eq!(ends, [of(SEGMENTS), of(0)]);
}

pub fn tcp() {
    let radio = links::constant(2_000_000, 20, 0.0);
    let path = links::constant(10_000_000, 10, 0.0);
    let testbed = Testbed::new(&radio, Some(&path), 1).expect("a testbed");
    for address in SERVER.both() {
        let listener =
            testbed.server.tcp_listener(SocketAddr::new(address, 80)).expect("a listener");
        let echo = thread::spawn(move || {
            let (mut stream, peer) = listener.accept().expect("a client");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("the request");
            stream.write_all(text.as_bytes()).expect("the answer");
            peer.ip()
        });
        let mut stream = connect(&testbed, address);
        stream.write_all(b"hello").expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("half closed");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert_eq!(answer, "hello");
        let seen = echo.join().expect("the echo");
        assert!(CLIENT.both().contains(&seen), "the client was seen as {seen}");
    }
}

pub fn bulk() {
    let link = links::constant(20_000_000, 10, 0.0);
    let seconds = transfer(&Testbed::new(&link, None, 1).expect("a testbed"), 4 << 20);
    let least = (4 << 20) as f64 * 8.0 / 20e6;
    assert!(seconds >= least, "4 MiB took {seconds:.2} s");
}

pub fn clean_bulk() {
    let testbed = Testbed::new(&links::clean(), Some(&links::clean()), 1).expect("a testbed");
    let seconds = transfer(&testbed, 256 << 20);
    println!("  256 MiB over two clean links: {:.2} Gbit/s", 2.147 / seconds);
    assert_eq!(testbed.radio_counters().expect("counters").unmodelled(), 0);
}

/// Transfers `bytes` numbered bytes from server to client. Returns the elapsed seconds.
fn transfer(testbed: &Testbed, bytes: usize) -> f64 {
    let pattern: Vec<u8> = (0..=250).cycle().take(251 * 4096).collect();
    let listener = testbed.server.tcp_listener(SocketAddr::new(SERVER.v4.into(), 80));
    let listener = listener.expect("a listener");
    let mut stream = connect(testbed, SERVER.v4.into());
    let sent = pattern.clone();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut left = bytes;
        while left > 0 {
            let now = left.min(sent.len());
            stream.write_all(&sent[..now]).expect("sent");
            left -= now;
        }
    });
    let began = Instant::now();
    let mut buffer = vec![0; 1 << 20];
    let mut received = 0;
    loop {
        let n = stream.read(&mut buffer).expect("bytes");
        if n == 0 {
            break;
        }
        let mut checked = 0;
        while checked < n {
            let at = (received + checked) % pattern.len();
            let now = (pattern.len() - at).min(n - checked);
            assert!(buffer[checked..checked + now] == pattern[at..at + now], "bytes changed");
            checked += now;
        }
        received += n;
    }
    server.join().expect("the server");
    assert_eq!(received, bytes);
    began.elapsed().as_secs_f64()
}

fn connect(testbed: &Testbed, address: IpAddr) -> TcpStream {
    let to = SocketAddr::new(address, 80);
    testbed.client.run(|| TcpStream::connect(to)).expect("a thread").expect("a connection")
}

pub fn command() {
    let testbed = Testbed::new(&links::clean(), None, 1).expect("a testbed");
    let mut read = testbed.client.command("cat");
    let output = read.arg("/proc/self/net/dev").output().expect("cat runs");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("cabin:"), "{table}");
}
