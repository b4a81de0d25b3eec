//! An air gateway killed while writing its caches: afterwards its answers are correct, and little
//! is lost.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::gateway::{Gateway, PATIENCE};

/// Number of kills.
const ROUNDS: usize = 4;

/// Number of objects and names requested in each life before the kill, and again during it.
const OBJECTS: usize = 60;

fn keys(folder: &Path, file: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
    let output = command.args(["keys", "--out", file]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Body of a path: the same for every request, and different for other paths.
fn body(path: &str) -> String {
    let bytes = path.bytes().fold(7_usize, |sum, byte| sum * 31 % 9_000 + usize::from(byte));
    format!("what lies under {path}, ").repeat(1 + bytes / 20)
}

/// An origin that serves every path with cacheable responses.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for tcp in listener.incoming() {
            let mut tcp = BufReader::new(tcp.unwrap());
            std::thread::spawn(move || {
                loop {
                    let (mut first, mut line) = (String::new(), String::new());
                    if tcp.read_line(&mut first).unwrap_or(0) == 0 {
                        return;
                    }
                    while line != "\r\n" {
                        line.clear();
                        if tcp.read_line(&mut line).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let body = body(first.split(' ').nth(1).unwrap());
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    if tcp.get_mut().write_all((head + &body).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Address of the nth name.
fn address(n: usize) -> [u8; 4] {
    let n = n as u32 * 2_654_435 % 16_000_000;
    let [_, a, b, c] = n.to_be_bytes();
    [11, a, b, c]
}

/// A query for the A record of the nth name (RFC 1035 section 4.1).
fn query(n: usize) -> Vec<u8> {
    let name = format!("host-{n}");
    let mut message = (n as u16).to_be_bytes().to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    message.push(name.len() as u8);
    message.extend(name.as_bytes());
    message.extend(*b"\x07example\x00\x00\x01\x00\x01");
    message
}

/// A name server that knows all names, and the numbers of the names queried.
fn name_server() -> (SocketAddr, Arc<Mutex<HashSet<usize>>>) {
    let asked = Arc::<Mutex<HashSet<usize>>>::default();
    let heard = asked.clone();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let bound = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut said = [0; 1500];
        while let Ok((bytes, from)) = socket.recv_from(&mut said) {
            let question = said[12..].iter().position(|byte| *byte == 0).unwrap() + 12 + 5;
            let label =
                String::from_utf8_lossy(&said[13..13 + usize::from(said[12])]).to_lowercase();
            let n = label.strip_prefix("host-").and_then(|n| n.parse().ok());
            heard.lock().extend(n);
            let mut answer = said[..question.min(bytes)].to_vec();
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
            answer.extend(*b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x0e\x10\x00\x04");
            // Other queries (from Chromium and resolvers) get the first address.
            answer.extend(address(n.unwrap_or_default()));
            let _ = socket.send_to(&answer, from);
        }
    });
    (bound, asked)
}

/// Requests the nth object with these extra header fields. Returns whether it came from the cache,
/// or `None` without an answer. The content is checked.
fn get(proxy: SocketAddr, origin: SocketAddr, n: usize, fields: &str) -> Option<bool> {
    let (path, mut answer) = (format!("/{n}"), Vec::new());
    let mut tcp = TcpStream::connect(proxy).ok()?;
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "GET http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n{fields}\r\n"
    );
    tcp.write_all(request.as_bytes()).ok()?;
    tcp.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8(answer).unwrap();
    let (head, got) = answer.split_once("\r\n\r\n")?;
    // There may be no answer before the link is up, or if only the cache may answer.
    if !head.starts_with("HTTP/1.1 200 ") {
        return None;
    }
    assert_eq!(got, body(&path), "{head}");
    Some(head.contains("; hit"))
}

/// Returns `true` if the nth name was answered; the answer is checked.
fn resolve(resolver: SocketAddr, n: usize) -> bool {
    answered(resolver, n).is_some()
}

fn answered(resolver: SocketAddr, n: usize) -> Option<()> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket.send_to(&query(n), resolver).ok()?;
    let mut answer = [0; 1500];
    let bytes = socket.recv(&mut answer).ok()?;
    let answer = &answer[..bytes];
    // NOERROR, and the last record's data is the address (nothing follows it without EDNS).
    if answer[3] & 15 != 0 {
        return None;
    }
    assert_eq!(answer[..2], (n as u16).to_be_bytes());
    assert_eq!(answer[answer.len() - 4..], address(n), "name {n}");
    Some(())
}

/// Waits until `is_so`.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_in(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

fn configure(at: &Path, names: SocketAddr) {
    let (ground, air) = (keys(at, "ground.key"), keys(at, "air.key"));
    // An address of this process alone, and a port that the system does not assign: an assigned
    // port might be taken by another process before the ground gateway binds it.
    let link = SocketAddr::from((Ipv4Addr::from_bits(0x7f40_0000 | std::process::id()), 4500));
    let text = format!(
        "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"{link}\"\n\
         [[aircraft]]\nname = \"D-ABCD\"\npublic-key = \"{air}\"\nrate = \"50 Mbit/s\"\n\
         [dial]\nallow = [\"127.0.0.1/32\"]\n[dns]\nservers = [\"{names}\"]\n"
    );
    std::fs::write(at.join("ground.toml"), text).unwrap();
    let text = format!(
        "[link]\nprivate-key-file = \"air.key\"\npeer = \"{link}\"\n\
         peer-public-key = \"{ground}\"\nrate = \"50 Mbit/s\"\n\
         [listen]\nhttp-proxy = \"127.0.0.1:0\"\n\
         [http-cache]\ndirectory = \"http\"\ncache-status = true\n\
         [dns]\nlisten = [\"127.0.0.1:0\"]\ncache-file = \"dns.cache\"\n"
    );
    std::fs::write(at.join("air.toml"), text).unwrap();
}

fn files(at: &Path, kind: &str) -> HashSet<PathBuf> {
    let files = std::fs::read_dir(at.join("http")).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|it| it == kind)).collect()
}

#[test]
fn a_killed_gateway_answers_right_and_remembers() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (origin, (names, asked)) = (origin(), name_server());
    configure(at, names);
    let _ground = Gateway::start("ground", at);
    let mut kept = Vec::new();
    for round in 0..=ROUNDS {
        asked.lock().clear();
        let air = Gateway::start("air", at);
        let (proxy, resolver) = (air.serves("HTTP proxy"), air.serves("DNS"));
        // Objects written before the kill are cached, without the ground gateway.
        for n in &kept {
            let alone = "Cache-Control: only-if-cached\r\n";
            // The headers are read meanwhile.
            until("an object is here", || get(proxy, origin, *n, alone) == Some(true));
            until("a name is known", || resolve(resolver, *n));
            assert!(!asked.lock().contains(n), "name {n} was forgotten in round {round}");
        }
        if round == ROUNDS {
            break;
        }
        let first = 2 * round * OBJECTS;
        for n in first..first + OBJECTS {
            until("there is a link", || {
                get(proxy, origin, n, "").is_some() && resolve(resolver, n)
            });
            kept.push(n);
        }
        until("it is written", || files(at, "head").len() >= kept.len());
        until("its names are written", || {
            let journal = std::fs::read(at.join("dns.cache")).unwrap();
            kept.iter().all(|n| is_in(&journal, &query(*n)[12..]))
        });
        // These are being written when the gateway is killed, at a different moment each time.
        let asking = std::thread::spawn(move || {
            for n in first + OBJECTS..first + 2 * OBJECTS {
                // After the kill nobody answers.
                let _ = get(proxy, origin, n, "").is_some() && resolve(resolver, n);
            }
        });
        std::thread::sleep(Duration::from_millis(40 + 37 * round as u64));
        drop(air);
        asking.join().unwrap();
    }
    // Leftovers of the kills are gone: each header has its body, and there are no other files.
    let stems = |kind| -> HashSet<_> {
        files(at, kind).iter().map(|file| file.file_stem().unwrap().to_owned()).collect()
    };
    until("leftovers are removed", || {
        files(at, "tmp").is_empty() && stems("head") == stems("body")
    });
    assert!(stems("head").len() >= kept.len());
}
