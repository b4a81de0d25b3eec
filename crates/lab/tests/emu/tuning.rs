//! Declared TCP settings of clients and servers take effect, as observed from outside.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use pcap_file::pcapng::{Block, PcapNgReader};

use bentpipe_lab::emu::Congestion;
use bentpipe_lab::emu::{GROUND, SERVER, Testbed, Tuning};

use crate::links;

/// Payload of a full segment with timestamps.
const SEGMENT_BYTES: usize = 1448;
/// Headers of such a segment: IPv4, and TCP with timestamps.
const HEADERS_BYTES: usize = 52;
/// Ends of the radio link in a capture.
const AIR_END: u32 = 0;
const GROUND_END: u32 = 1;
/// A timeout long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Measurements of a window before it counts as too small.
const MAX_BURSTS: u32 = 8;

fn address() -> SocketAddr {
    SocketAddr::new(SERVER.v4.into(), 80)
}

fn testbed(delay_ms: u64, server: Tuning, client: Tuning) -> (Testbed, TcpListener) {
    let testbed =
        Testbed::new(&links::constant(50_000_000, delay_ms, 0.0), None, 1).expect("a testbed");
    testbed.tune_server(&server).expect("the server's kernel takes it");
    testbed.tune_client(&client).expect("the client's kernel takes it");
    let listener = testbed.server.tcp_listener(address()).expect("a listener");
    (testbed, listener)
}

fn connect(testbed: &Testbed) -> TcpStream {
    testbed.client.run(|| TcpStream::connect(address())).expect("a thread").expect("connected")
}

/// Payload bytes of the large segments that leave the ground before the client's next packet leaves
/// the air, after the packets of `ask`. Only the order of the packets decides, and not a clock.
fn flight(testbed: &Testbed, ask: impl FnOnce()) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("flight.pcapng");
    let capture = testbed.capture(&path).expect("a capture");
    ask();
    drop(capture);
    let mut pcap = PcapNgReader::new(File::open(&path).expect("a file")).expect("pcapng");
    let mut bytes = 0;
    while let Some(block) = pcap.next_block() {
        let Block::EnhancedPacket(packet) = block.expect("a block") else { continue };
        let payload = (packet.original_len as usize).saturating_sub(HEADERS_BYTES);
        match packet.interface_id {
            // A SYN is longer only because of its options.
            GROUND_END if payload > SEGMENT_BYTES / 2 => bytes += payload,
            AIR_END if bytes > 0 => return bytes,
            _ => {}
        }
    }
    panic!("nobody acknowledged a segment");
}

/// Bytes that arrive in `length` or a little more, and the exact time.
fn burst(stream: &mut TcpStream, length: Duration) -> (usize, Duration) {
    let mut buffer = vec![0; 1 << 16];
    let (mut bytes, began) = (0, Instant::now());
    while began.elapsed() < length {
        bytes += stream.read(&mut buffer).expect("bytes");
    }
    (bytes, began.elapsed())
}

/// Sends 200 kB to the first client, waits for a byte from it, and sends them again.
fn serve_twice(listener: TcpListener) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        if stream.write_all(&[7; 200_000]).is_err() {
            return;
        }
        if stream.read_exact(&mut [0]).is_ok() {
            stream.write_all(&[7; 200_000]).expect("sent again");
            let _ = stream.read(&mut [0]);
        }
    })
}

fn read_part(stream: &mut TcpStream) {
    stream.read_exact(&mut vec![0; 200_000]).expect("all of a part");
}

pub fn initial_window() {
    for segments in [3, 10, 20] {
        let tuning = Tuning { initial_window: Some(segments), ..Tuning::default() };
        let (testbed, listener) = testbed(150, tuning, Tuning::default());
        let server = serve_twice(listener);
        let bytes = flight(&testbed, || read_part(&mut connect(&testbed)));
        assert_eq!(bytes, segments as usize * SEGMENT_BYTES);
        let _ = server.join();
    }
}

pub fn between_relays() {
    let testbed = Testbed::new(&links::constant(50_000_000, 150, 0.0), None, 1).expect("a testbed");
    let tuning = Tuning { initial_window: Some(3), ..Tuning::default() };
    testbed.tune_link(&tuning).expect("the kernels take it");
    let at = SocketAddr::new(GROUND.v4.into(), 80);
    let server = serve_twice(testbed.ground.tcp_listener(at).expect("a listener"));
    let bytes = flight(&testbed, || {
        let air = testbed.air.run(|| TcpStream::connect(at)).expect("a thread");
        read_part(&mut air.expect("connected"));
    });
    assert_eq!(bytes, 3 * SEGMENT_BYTES);
    let _ = server.join();
}

pub fn idle_restart() {
    let second = |restart| {
        let server = Tuning {
            slow_start_after_idle: Some(restart),
            initial_window: Some(10),
            congestion: Some(Congestion::Cubic),
            ..Tuning::default()
        };
        let (testbed, listener) = testbed(100, server, Tuning::default());
        let server = serve_twice(listener);
        let mut stream = connect(&testbed);
        read_part(&mut stream);
        // Wait longer than a retransmission timeout, after which the window restarts (RFC 5681).
        thread::sleep(Duration::from_secs(2));
        let bytes = flight(&testbed, || {
            stream.write_all(&[1]).expect("asked again");
            read_part(&mut stream);
        });
        drop(stream);
        let _ = server.join();
        bytes
    };
    assert_eq!(second(true), 10 * SEGMENT_BYTES);
    let kept = second(false);
    assert!(kept > 30 * SEGMENT_BYTES, "{kept} B at once");
}

pub fn congestion() {
    for wanted in [Congestion::Reno, Congestion::Cubic, Congestion::Bbr] {
        let tuning = Tuning { congestion: Some(wanted), ..Tuning::default() };
        let (testbed, listener) = testbed(5, tuning, tuning);
        let accepted = thread::spawn(move || listener.accept().expect("a client").0);
        let client = connect(&testbed);
        let server = accepted.join().expect("accepted");
        for stream in [&client, &server] {
            let name = getsockopt(stream, sockopt::TcpCongestion).expect("an option");
            assert_eq!(name.to_string_lossy().trim_end_matches('\0'), wanted.name());
        }
    }
}

pub fn windows() {
    let window = Tuning { receive_window_bytes: Some(65_536), ..Tuning::default() };
    let buffers = Tuning { buffer_bytes: Some(130_000), ..Tuning::default() };
    let large = Tuning { buffer_bytes: Some(6_000_000), ..Tuning::default() };
    // A hundred segments in flight would fill the link.
    for (server, client, up, bytes) in [
        (Tuning::default(), window, false, Some(65_536.0)),
        (window, window, true, Some(65_536.0)),
        (buffers, buffers, false, Some(130_000.0)),
        (buffers, buffers, true, Some(130_000.0)),
        (large, large, false, None),
    ] {
        let (testbed, listener) = testbed(100, server, client);
        let accepted = thread::spawn(move || listener.accept().expect("a client").0);
        let client = connect(&testbed);
        let server = accepted.join().expect("accepted");
        let (mut from, mut to) = if up { (client, server) } else { (server, client) };
        let sending = thread::spawn(move || while from.write_all(&[7; 65_536]).is_ok() {});
        burst(&mut to, Duration::from_secs(3));
        let (least, most) = bytes.map_or((260_000.0, f64::MAX), |it| (0.5 * it, 1.02 * it));
        let mut reached = false;
        for _ in 0..MAX_BURSTS {
            let (got, took) = burst(&mut to, Duration::from_secs(4));
            // Every round trip takes at least 200 ms, and carries at most the allowed bytes in
            // flight. A slow machine only makes round trips longer, so it gets several bursts.
            let each = got as f64 / (took.as_secs_f64() / 0.2 + 1.0);
            assert!(each < most, "{each} B a round trip, at most {most}");
            reached = each >= least;
            if reached {
                break;
            }
        }
        drop(to);
        let _ = sending.join();
        assert!(reached, "never {least} B a round trip");
    }
}

pub fn fast_open() {
    let takes = |allowed| {
        let tuning = Tuning { fast_open: Some(allowed), ..Tuning::default() };
        let (testbed, listener) = testbed(100, tuning, tuning);
        let server = thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a request");
                stream.write_all(&byte).expect("answered");
            }
        });
        let ask = || {
            let mut stream = open_fast(&testbed);
            stream.write_all(&[1]).expect("asked");
            stream.read_exact(&mut [0]).expect("answered");
        };
        ask(); // gets the cookie
        let before = counted(&testbed, "TCPFastOpenActive");
        ask();
        server.join().expect("the server");
        counted(&testbed, "TCPFastOpenActive") - before
    };
    assert_eq!(takes(true), 1, "the server took the request in the SYN");
    assert_eq!(takes(false), 0);
}

/// Value of a counter of the client's TCP.
fn counted(testbed: &Testbed, name: &str) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/netstat");
    let table = testbed.client.run(read).expect("a thread").expect("the counters");
    let mut lines = table.lines().filter(|line| line.starts_with("TcpExt:"));
    let [names, values] = [lines.next(), lines.next()].map(|line| line.expect("both lines"));
    let mut counters = names.split_whitespace().zip(values.split_whitespace());
    let (_, value) = counters.find(|(known, _)| *known == name).expect("the counter");
    value.parse().expect("a number")
}

/// Connects like a client that sends its request in the SYN if the host allows it.
fn open_fast(testbed: &Testbed) -> TcpStream {
    let open = || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        // The kernel refuses the option if the host does not allow it.
        let _ = setsockopt(&socket, sockopt::TcpFastOpenConnect, &true);
        socket.connect(&address().into())?;
        Ok::<_, std::io::Error>(socket.into())
    };
    testbed.client.run(open).expect("a thread").expect("connected")
}

pub fn others() {
    let (testbed, _listener) = testbed(20, Tuning::default(), Tuning::default());
    for towards_air in [true, false] {
        let start = |flows| testbed.others(flows, Congestion::Cubic, towards_air);
        let others = [3, 1].map(|flows| start(flows).expect("other users"));
        let counters = || {
            let counters = testbed.radio_counters().expect("counters");
            if towards_air { counters.forward } else { counters.return_ }
        };
        let (before, began) = (counters(), Instant::now());
        let bytes = || counters().others.offered.bytes - before.others.offered.bytes;
        while bytes() < 2_000_000 {
            assert!(began.elapsed() < PATIENCE, "{} B of others", bytes());
            thread::sleep(Duration::from_millis(20));
        }
        let after = counters();
        drop(others);
        assert_eq!(after.own().offered, before.own().offered, "nobody else sent anything");
    }
}
