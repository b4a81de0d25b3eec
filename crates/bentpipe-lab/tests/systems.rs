//! Every system under test between real kernels: data arrives intact in both directions on any
//! port, and client and server need no changes.
//!
//! `cargo test -p bentpipe -p bentpipe-lab-command --test systems -- NAME` runs the tests whose names contain NAME.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use bentpipe_channel::{DirectionSpec, LinkSpec};
use bentpipe_lab::emu::{self, SERVER, Testbed};
use bentpipe_lab::profile::Profile;
use bentpipe_lab::system::{
    self, BENTPIPE_SERVICES, KCPTUN, PEP_FIXED, PEP_HTTP, Running, Stage, SystemError,
    SystemUnderTest,
};

const MEGABYTE: usize = 1_000_000;
/// Two arbitrary ports.
const PORTS: [u16; 2] = [443, 65_000];
/// Number of parallel testbeds; each carries up to 10 Mbit/s.
const AT_ONCE: usize = 8;
/// The gateways and kcptun take a moment until they carry data.
const PATIENCE: Duration = Duration::from_secs(60);

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("a_megabyte_each_way_to_any_port_by_every_system", every_system),
    ("a_page_brings_its_objects_through_cabin_services", services),
    ("pep_fixed_carries_what_a_near_source_sends", near_source),
    ("pep_fixed_resets_what_a_far_source_overfills", far_source),
    ("wrong_settings_say_what_to_write", settings),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted: Vec<_> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    if let Err(missing) = emu::enter() {
        println!("SKIPPED: the emulator cannot run here: {missing}");
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for (name, test) in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let began = Instant::now();
        let passed = catch_unwind(AssertUnwindSafe(test)).is_ok();
        failed += u32::from(!passed);
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("test {name} ... {verdict} ({:.1} s)", began.elapsed().as_secs_f64());
    }
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The program with the gateways, which lies beside the one with the lab.
fn gateways() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_bentpipe-lab")).with_file_name("bentpipe");
    assert!(program.exists(), "{} is missing: `cargo build --bin bentpipe`", program.display());
    program
}

/// The example of the report: 10 Mbit/s, 540 ms.
fn profile() -> Profile {
    Profile::named("netforecast").unwrap()
}

fn start<'a>(
    system: &dyn SystemUnderTest,
    testbed: &'a Testbed,
    folder: &'a Path,
    settings: &str,
) -> Result<Box<dyn Running>, SystemError> {
    system.start(&Stage {
        testbed,
        profile: &profile(),
        beside: &[],
        folder,
        program: &gateways(),
        hosts: &[("site.test".into(), IpAddr::from(SERVER.v4))],
        settings: &settings.parse().unwrap(),
    })
}

/// Bytes that depend on their position.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8 ^ (at / 65_536) as u8).collect()
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER.v4.into(), port)
}

/// Runs `serve` for each connection to `port` of the server, until the process ends.
fn listen(testbed: &Testbed, port: u16, serve: impl Fn(TcpStream) + Send + Clone + 'static) {
    let listener: TcpListener = testbed.server.tcp_listener(at(port)).unwrap();
    thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(tcp));
        }
    });
}

fn connect(testbed: &Testbed, port: u16) -> std::io::Result<TcpStream> {
    let tcp = testbed.client.run(|| TcpStream::connect(at(port))).unwrap()?;
    tcp.set_read_timeout(Some(PATIENCE))?;
    Ok(tcp)
}

fn every_system() {
    for some in system::all().chunks(AT_ONCE) {
        thread::scope(|scope| {
            for system in some {
                scope.spawn(move || one_system(*system));
            }
        });
    }
}

fn one_system(system: &dyn SystemUnderTest) {
    let began = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let testbed = Testbed::new(&profile().link, None, 1).unwrap();
    for port in PORTS {
        listen(&testbed, port, echo_megabyte);
    }
    let mut running = match start(system, &testbed, folder.path(), "") {
        Ok(running) => running,
        Err(error @ SystemError::Missing { .. }) => {
            assert!(system.name() == KCPTUN.name(), "{error}");
            return println!("SKIPPED: {error}");
        }
        Err(error) => panic!("{system}: {error}"),
    };
    for port in PORTS {
        let began = Instant::now();
        let came = loop {
            match megabyte(&testbed, port) {
                Ok(came) => break came,
                Err(_) if system.starts_cold() && began.elapsed() < PATIENCE => {
                    thread::sleep(Duration::from_millis(200));
                }
                Err(error) => panic!("{system}: {error}{}", running.said()),
            }
        };
        assert!(came == pattern(MEGABYTE), "{system}: {} bytes came", came.len());
    }
    running.check().unwrap();
    assert_eq!(running.resets(), 0, "{system}");
    println!("  {system}: {:.1} s", began.elapsed().as_secs_f64());
}

/// Echoes a megabyte once all of it has arrived.
fn echo_megabyte(mut tcp: TcpStream) {
    let mut bytes = vec![0; MEGABYTE];
    if tcp.read_exact(&mut bytes).is_ok() {
        // The client detects missing data.
        let _ = tcp.write_all(&bytes);
    }
}

fn megabyte(testbed: &Testbed, port: u16) -> std::io::Result<Vec<u8>> {
    let mut tcp = connect(testbed, port)?;
    tcp.write_all(&pattern(MEGABYTE))?;
    let mut came = Vec::new();
    tcp.read_to_end(&mut came)?;
    Ok(came)
}

/// The ground gateway requests a page's objects before the client does, with every transport.
fn services() {
    let systems: [&dyn SystemUnderTest; 2] = [&BENTPIPE_SERVICES, &PEP_HTTP];
    for system in systems {
        let folder = tempfile::tempdir().unwrap();
        let testbed = Testbed::new(&profile().link, None, 1).unwrap();
        let (tell, asked) = mpsc::channel();
        listen(&testbed, 80, move |tcp| serve_page(tcp, &tell));
        let running = start(system, &testbed, folder.path(), "").unwrap();
        let began = Instant::now();
        while !get(&testbed, "/").is_ok_and(|page| page.ends_with("</html>")) {
            assert!(began.elapsed() < PATIENCE, "{system}: no page{}", running.said());
            thread::sleep(Duration::from_millis(200));
        }
        // The client has requested only the page.
        let mut paths = Vec::new();
        while !paths.contains(&"/picture".to_owned()) {
            let path = asked.recv_timeout(PATIENCE);
            paths.push(path.unwrap_or_else(|_| panic!("{system}: {paths:?} were asked for")));
        }
        assert!(get(&testbed, "/picture").unwrap().ends_with(&"p".repeat(5000)), "{system}");
    }
}

fn serve_page(mut tcp: TcpStream, asked: &mpsc::Sender<String>) {
    let mut head = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(bytes @ 1..) = tcp.read(&mut chunk) {
        head.extend_from_slice(&chunk[..bytes]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
        let (kind, body) = if path == "/" {
            ("text/html", "<html><body><img src=\"/picture\"></body></html>".to_owned())
        } else {
            ("image/png", "p".repeat(5000))
        };
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncache-control: max-age=600\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        if asked.send(path).is_err() || tcp.write_all(answer.as_bytes()).is_err() {
            return;
        }
        head.clear();
    }
}

fn get(testbed: &Testbed, path: &str) -> std::io::Result<String> {
    let mut tcp = connect(testbed, 80)?;
    let accept = if path == "/" { "text/html" } else { "image/*" };
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: site.test\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
    );
    tcp.write_all(request.as_bytes())?;
    let mut answer = String::new();
    tcp.read_to_string(&mut answer)?;
    Ok(answer)
}

fn path(delay: &str) -> LinkSpec {
    let direction = format!("rate = '200 Mbit/s'\ndelay = '{delay}'");
    let direction: DirectionSpec = toml::from_str(&direction).unwrap();
    LinkSpec { forward: direction.clone(), return_: direction }
}

/// More data than the buffer holds, from a source that is soon told to stop.
fn near_source() {
    let (came, resets) = download(&path("1 ms"), 6 * MEGABYTE, "");
    assert_eq!((came.expect("all of it"), resets), (6 * MEGABYTE, 0));
}

/// The same from a source that is told a tenth of a second later.
fn far_source() {
    let (came, resets) = download(&path("50 ms"), 10 * MEGABYTE, "");
    let error = came.expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(resets, 1);
    // With a larger reserve for data in flight, there is no reset.
    let reserve = "pep-reserve-bytes = 3_000_000";
    let (came, resets) = download(&path("50 ms"), 6 * MEGABYTE, reserve);
    assert_eq!((came.expect("all of it"), resets), (6 * MEGABYTE, 0));
}

fn download(path: &LinkSpec, bytes: usize, settings: &str) -> (std::io::Result<usize>, u64) {
    let folder = tempfile::tempdir().unwrap();
    let testbed = Testbed::new(&profile().link, Some(path), 1).unwrap();
    let serve = move |mut tcp: TcpStream| {
        let mut ask = [0; 1];
        // The client detects missing data.
        let _ = tcp.read_exact(&mut ask).and_then(|()| tcp.write_all(&pattern(bytes)));
    };
    listen(&testbed, 8080, serve);
    let running = start(&PEP_FIXED, &testbed, folder.path(), settings).unwrap();
    let mut tcp = connect(&testbed, 8080).unwrap();
    tcp.write_all(b"?").unwrap();
    let mut came = Vec::new();
    let ended = tcp.read_to_end(&mut came);
    assert!(pattern(bytes).starts_with(&came), "damaged within {} bytes", came.len());
    (ended, running.resets())
}

fn settings() {
    let folder = tempfile::tempdir().unwrap();
    let testbed = Testbed::new(&profile().link, None, 1).unwrap();
    for wrong in ["0", "-1", "'much'"] {
        let settings = format!("pep-buffer-bytes = {wrong}");
        let error = start(&PEP_FIXED, &testbed, folder.path(), &settings).err().unwrap();
        assert!(error.to_string().contains("pep-buffer-bytes = 4_000_000"), "{error}");
    }
    let settings = "pep-buffer-bytes = 100_000";
    let error = start(&PEP_FIXED, &testbed, folder.path(), settings).err().unwrap();
    assert!(error.to_string().starts_with("pep-reserve-bytes = 250000 leaves"), "{error}");
}
