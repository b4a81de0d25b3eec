//! Declared TCP settings of clients and servers hold, seen from outside.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, setsockopt, sockopt};

use bentpipe_lab::emu::{GROUND, SERVER, Tuning, World};
use bentpipe_lab::workload::origin::Congestion;

use crate::links;

/// A segment's payload, with timestamps.
const SEGMENT_BYTES: usize = 1448;

fn address() -> SocketAddr {
    SocketAddr::new(SERVER.v4.into(), 80)
}

fn world(delay_ms: u64, server: Tuning, client: Tuning) -> (World, TcpListener) {
    let world = World::new(&links::constant(50_000_000, delay_ms, 0.0), None, 1).expect("a world");
    world.tune_server(&server).expect("the server's kernel takes it");
    world.tune_client(&client).expect("the client's kernel takes it");
    let listener = world.server.tcp_listener(address()).expect("a listener");
    (world, listener)
}

fn connect(world: &World) -> TcpStream {
    world.client.run(|| TcpStream::connect(address())).expect("a thread").expect("connected")
}

/// Bytes received within a time from the first byte on.
fn burst(stream: &mut TcpStream, length: Duration) -> usize {
    let mut buffer = vec![0; 1 << 16];
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let mut bytes = stream.read(&mut buffer).expect("the first bytes");
    let end = Instant::now() + length;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        stream.set_read_timeout(Some(left)).expect("a timeout");
        match stream.read(&mut buffer) {
            Ok(more) => bytes += more,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    bytes
}

/// Sends 200 kB to the first client, waits until it says one byte, and sends them again.
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

pub fn initial_window() {
    for segments in [3, 10, 20] {
        let tuning = Tuning { initial_window: Some(segments), ..Tuning::default() };
        let (world, listener) = world(150, tuning, Tuning::default());
        let server = serve_twice(listener);
        let mut stream = connect(&world);
        // The second flight begins a round trip after the first.
        let bytes = burst(&mut stream, Duration::from_millis(150));
        assert_eq!(bytes, segments as usize * SEGMENT_BYTES);
        drop(stream);
        let _ = server.join();
    }
}

pub fn between_relays() {
    let world = World::new(&links::constant(50_000_000, 150, 0.0), None, 1).expect("a world");
    let tuning = Tuning { initial_window: Some(3), ..Tuning::default() };
    world.tune_link(&tuning).expect("the kernels take it");
    let at = SocketAddr::new(GROUND.v4.into(), 80);
    let server = serve_twice(world.ground.tcp_listener(at).expect("a listener"));
    let air = world.air.run(|| TcpStream::connect(at)).expect("a thread");
    let mut stream = air.expect("connected");
    let bytes = burst(&mut stream, Duration::from_millis(150));
    assert_eq!(bytes, 3 * SEGMENT_BYTES);
    drop(stream);
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
        let (world, listener) = world(100, server, Tuning::default());
        let server = serve_twice(listener);
        let mut stream = connect(&world);
        stream.read_exact(&mut vec![0; 200_000]).expect("the first part");
        thread::sleep(Duration::from_secs(2));
        stream.write_all(&[1]).expect("asked again");
        let bytes = burst(&mut stream, Duration::from_millis(100));
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
        let (world, listener) = world(5, tuning, tuning);
        let accepted = thread::spawn(move || listener.accept().expect("a client").0);
        let client = connect(&world);
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
    // A hundred of them would fill the link.
    for (server, client, up, bytes) in [
        (Tuning::default(), window, false, Some(65_536.0)),
        (window, window, true, Some(65_536.0)),
        (buffers, buffers, false, Some(130_000.0)),
        (buffers, buffers, true, Some(130_000.0)),
        (large, large, false, None),
    ] {
        let (world, listener) = world(100, server, client);
        let accepted = thread::spawn(move || listener.accept().expect("a client").0);
        let client = connect(&world);
        let server = accepted.join().expect("accepted");
        let (mut from, mut to) = if up { (client, server) } else { (server, client) };
        let sending = thread::spawn(move || while from.write_all(&[7; 65_536]).is_ok() {});
        burst(&mut to, Duration::from_secs(3));
        let bps = 8.0 * burst(&mut to, Duration::from_secs(4)) as f64 / 4.0;
        drop(to);
        let _ = sending.join();
        match bytes {
            Some(bytes) => {
                let expected = 8.0 * bytes / 0.2;
                assert!((0.95..1.02).contains(&(bps / expected)), "{bps} of {expected} bit/s");
            }
            None => assert!(bps > 40e6, "{bps} bit/s through large buffers"),
        }
    }
}

pub fn fast_open() {
    let takes = |allowed| {
        let tuning = Tuning { fast_open: Some(allowed), ..Tuning::default() };
        let (world, listener) = world(100, tuning, tuning);
        let server = thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a request");
                stream.write_all(&byte).expect("answered");
            }
        });
        let ask = || {
            let began = Instant::now();
            let mut stream = open_fast(&world);
            stream.write_all(&[1]).expect("asked");
            stream.read_exact(&mut [0]).expect("answered");
            began.elapsed()
        };
        ask(); // brings the cookie
        let second = ask();
        server.join().expect("the server");
        second
    };
    let (with, without) = (takes(true), takes(false));
    assert!((200..290).contains(&with.as_millis()), "{with:?}");
    assert!((400..490).contains(&without.as_millis()), "{without:?}");
}

/// Connects as a client does that would send its request in the SYN if the host allows it.
fn open_fast(world: &World) -> TcpStream {
    let open = || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        // The kernel refuses the wish where the host does not allow it.
        let _ = setsockopt(&socket, sockopt::TcpFastOpenConnect, &true);
        socket.connect(&address().into())?;
        Ok::<_, std::io::Error>(socket.into())
    };
    world.client.run(open).expect("a thread").expect("connected")
}

pub fn others() {
    let (world, _listener) = world(20, Tuning::default(), Tuning::default());
    for towards_air in [true, false] {
        let others = world.others(3, towards_air).expect("other users");
        let before = world.radio_counters().expect("counters");
        thread::sleep(Duration::from_secs(2));
        let after = world.radio_counters().expect("counters");
        drop(others);
        let (after, before) = if towards_air {
            (after.forward, before.forward)
        } else {
            (after.return_, before.return_)
        };
        let bytes = after.others.offered.bytes - before.others.offered.bytes;
        assert!(bytes > 2_000_000, "{bytes} B of others");
        assert_eq!(after.own().offered, before.own().offered, "nobody else sent anything");
    }
}
