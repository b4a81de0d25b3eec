//! Uploads by the program to the program: cut by a proxy, killed at both ends, over TLS, and by hostile clients.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bentpipe_probe::clock::Moment;
use bentpipe_probe::random::Random;
use bentpipe_probe::rate::{Direction, Limit, RateCheck};
use bentpipe_probe::record::{Gap, Measurement, Record, Session, opened};
use bentpipe_probe::upload::{Batch, MAX_BODY, Receipt, batch_path, digest, session_path};
use bentpipe_probe_host::store::Writer;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bentpipe-probe");
const TOKEN: &str = "0123456789abcdef";

fn session(id: char) -> Session {
    Session {
        id: id.to_string().repeat(32),
        began: Moment { boot_us: 1, wall_us: 2 },
        software_version: "0".into(),
        platform: "p".into(),
        targets: Vec::new(),
        name_list: "n".into(),
    }
}

fn record(number: u64) -> Record {
    let mut random = Random::new(number);
    let failure = (0..800).map(|_| char::from(b' ' + (random.next_u64() % 95) as u8)).collect();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Record {
        number,
        began: Moment { boot_us: number, wall_us: now.as_micros() as i64 },
        clock_age_s: -1,
        runtime_us: 1_234_567,
        quiet: false,
        activity: None,
        concurrent: Vec::new(),
        measurement: Measurement::Gap(Gap { records: 1, failure }),
    }
}

/// Writes a session with so many records. It measured 100 Mbit/s up, so an upload takes 5 Mbit/s.
fn store(folder: &Path, id: char, records: u64) -> PathBuf {
    let path = folder.join("probe.sqlite");
    let mut writer = Writer::new(path.clone(), 1 << 30, session(id));
    let limit = Some(Limit::SlowLink { rate_bps: 100_000_000 });
    let (server, direction, trains, failure) = (None, Direction::Up, Vec::new(), None);
    let check = RateCheck { server, direction, limit, trains, failure };
    writer.push(Record { measurement: Measurement::Rate(Box::new(check)), ..record(1) });
    (2..=records).for_each(|number| writer.push(record(number)));
    assert!(writer.flush().trouble.is_none());
    path
}

/// A receiver, which dies with this value.
struct Origin {
    child: Child,
    address: SocketAddr,
}

impl Origin {
    fn start(folder: &Path, more: &[&str]) -> Self {
        let token = folder.join("token");
        fs::write(&token, format!("{TOKEN}\n")).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["origin", "--listen", "127.0.0.1:0", "--uploads"]);
        command.arg(folder.join("uploads")).arg("--upload-token-file").arg(token).args(more);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        Self { child, address: address.unwrap_or_else(|| panic!("{line}")).parse().unwrap() }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn upload(folder: &Path, to: &str, more: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("upload").arg(folder.join("probe.sqlite")).args(["--to", to, "--token-file"]);
    command.arg(folder.join("token")).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Numbers of the records of each session at the receiver, in their order, and the bytes of all batches.
fn received(folder: &Path) -> (BTreeMap<String, Vec<u64>>, u64) {
    let (mut found, mut bytes) = (BTreeMap::<String, Vec<u64>>::new(), 0);
    for session in fs::read_dir(folder.join("uploads")).unwrap() {
        let session = session.unwrap().path();
        if !session.is_dir() {
            continue;
        }
        let mut files: Vec<_> =
            fs::read_dir(session).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        for file in files {
            let body = fs::read(&file).unwrap();
            bytes += body.len() as u64;
            let text = String::from_utf8(zstd::decode_all(&body[..]).unwrap()).unwrap();
            for line in text.lines() {
                let (session, record) = opened(line).unwrap();
                found.entry(session).or_default().push(record.number);
            }
        }
    }
    (found, bytes)
}

/// A proxy whose connections break after a random number of bytes.
struct Proxy {
    address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
    sent: Arc<AtomicU64>,
    cuts: Arc<AtomicU64>,
}

impl Proxy {
    fn start(server: SocketAddr, mean: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Self {
            address,
            server: Arc::new(Mutex::new(server)),
            sent: Arc::default(),
            cuts: Arc::default(),
        };
        let (server, sent, cuts) = (proxy.server.clone(), proxy.sent.clone(), proxy.cuts.clone());
        std::thread::spawn(move || {
            let mut random = Random::new(1);
            for client in listener.incoming() {
                let client = client.unwrap();
                let Ok(server) = TcpStream::connect(*server.lock().unwrap()) else { continue };
                let left = (-(1.0 - random.unit()).ln() * mean as f64) as u64;
                let left = Arc::new(AtomicU64::new(left));
                for (from, to, count) in
                    [(&client, &server, Some(sent.clone())), (&server, &client, None)]
                {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (left, cuts) = (left.clone(), cuts.clone());
                    std::thread::spawn(move || forward(&from, &to, &left, count, &cuts));
                }
            }
        });
        proxy
    }
}

fn forward(
    mut from: &TcpStream,
    mut to: &TcpStream,
    left: &AtomicU64,
    count: Option<Arc<AtomicU64>>,
    cuts: &AtomicU64,
) {
    let mut buffer = [0; 1000];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if let Some(count) = &count {
            count.fetch_add(length as u64, Ordering::Relaxed);
        }
        let before = left.fetch_sub(length as u64, Ordering::Relaxed).cast_signed();
        let passed = before.clamp(0, length as i64) as usize;
        if to.write_all(&buffer[..passed]).is_err() || passed < length {
            cuts.fetch_add(1, Ordering::Relaxed);
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn each_record_arrives_once_over_cuts_and_kills() {
    const RECORDS: u64 = 2000;
    let folder = tempfile::tempdir().unwrap();
    store(folder.path(), 'a', RECORDS);
    let mut origin = Origin::start(folder.path(), &[]);
    let proxy = Proxy::start(origin.address, 480_000);
    let to = format!("http://{}/", proxy.address);
    let mut kills = 0;
    // The sender is killed three times, and the receiver once.
    for goal in [150_000, 300_000, 450_000] {
        let mut child = upload(folder.path(), &to, &["--yes"]).spawn().unwrap();
        while proxy.sent.load(Ordering::Relaxed) < goal && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(child.try_wait().unwrap().is_none(), "it has not ended before {goal}");
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        if goal == 300_000 {
            drop(origin);
            origin = Origin::start(folder.path(), &[]);
            *proxy.server.lock().unwrap() = origin.address;
            kills += 1;
        }
    }
    store(folder.path(), 'b', 10);
    let output = upload(folder.path(), &to, &["--yes"]).output().unwrap();
    assert!(output.status.success() && text(&output).contains("complete"), "{}", text(&output));
    let (found, bytes) = received(folder.path());
    let expected = |records| (1..=records).collect::<Vec<u64>>();
    let all = [("a".repeat(32), expected(RECORDS)), ("b".repeat(32), expected(10))];
    assert_eq!(found, BTreeMap::from(all));
    let (sent, cuts) = (proxy.sent.load(Ordering::Relaxed), proxy.cuts.load(Ordering::Relaxed));
    let ratio = sent as f64 / bytes as f64;
    println!("{bytes} bytes of batches, {sent} sent: {ratio:.3}; {cuts} cuts, {kills} kills");
    // Headers, and for each cut and each kill a batch.
    let waste = (cuts + kills) * (16 * 1024 + 1000);
    assert!(sent <= bytes + bytes / 30 + waste, "{sent} {bytes} {cuts}");
    let before = proxy.sent.load(Ordering::Relaxed);
    let output = upload(folder.path(), &to, &[]).output().unwrap();
    assert!(text(&output).contains("has all records"), "{}", text(&output));
    assert_eq!(proxy.sent.load(Ordering::Relaxed), before);
}

#[test]
fn nothing_is_sent_without_consent() {
    let folder = tempfile::tempdir().unwrap();
    let path = store(folder.path(), 'a', 5);
    fs::write(folder.path().join("token"), TOKEN).unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    nobody.set_nonblocking(true).unwrap();
    let to = format!("http://{}/", nobody.local_addr().unwrap());
    let before = fs::read(&path).unwrap();
    let output = upload(folder.path(), &to, &["--dry-run"]).output().unwrap();
    let shown = text(&output);
    assert!(output.status.success() && shown.contains("Nothing is sent"), "{shown}");
    assert!(
        shown.contains("rate               1") && shown.contains("gap                4"),
        "{shown}"
    );
    assert_eq!(fs::read(&path).unwrap(), before, "a dry run writes nothing");
    let output = upload(folder.path(), &to, &[]).output().unwrap();
    assert!(!output.status.success() && text(&output).contains("--yes"), "{}", text(&output));
    for to in ["http://192.0.2.1/", "https://user:secret@192.0.2.1/"] {
        let output = upload(folder.path(), to, &["--yes"]).output().unwrap();
        assert!(!output.status.success() && text(&output).contains("https://HOST/"));
    }
    assert!(nobody.accept().is_err(), "nobody connected");
}

#[test]
fn an_upload_under_tls() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path(), 'a', 30);
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let place = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let names = [certificate.to_str().unwrap(), key.to_str().unwrap()];
    let more = ["--tls-listen", &place, "--certificate", names[0], "--key", names[1]];
    let _origin = Origin::start(folder.path(), &more);
    let mut command = upload(folder.path(), &format!("https://{place}"), &["--yes"]);
    let output = command.env("SSL_CERT_FILE", &certificate).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(received(folder.path()).0["a".repeat(32).as_str()].len(), 30);
}

/// Sends a request, and returns the status with the body.
fn request(origin: &Origin, line: &str, token: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(origin.address).unwrap();
    let length = body.len();
    let fields = "host: x\r\nconnection: close\r\nauthorization: Bearer";
    write!(stream, "{line} HTTP/1.1\r\n{fields} {token}\r\ncontent-length: {length}\r\n\r\n")
        .unwrap();
    // The server may refuse before it has everything.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status.unwrap_or_default(), body.unwrap_or_default())
}

fn put(origin: &Origin, batch: &Batch) -> (u16, String) {
    request(origin, &format!("PUT /{}", batch_path(batch)), TOKEN, &batch.body)
}

fn files(folder: &TempDir) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.path().to_owned()];
    while let Some(next) = folders.pop() {
        for file in fs::read_dir(next).unwrap() {
            let path = file.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder.path()).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn hostile_requests_leave_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::start(folder.path(), &[]);
    let records: Vec<Record> = (1..=20).map(record).collect();
    let good = Batch::pack(&session('c'), &records[..10]).unwrap();
    let path = batch_path(&good);
    let before = files(&folder);
    assert_eq!(request(&origin, &format!("PUT /{path}"), "guess", &good.body).0, 401);
    let of = |body: Vec<u8>| Batch { digest: digest(&body), body, name: good.name.clone() };
    assert_eq!(put(&origin, &of(vec![7; MAX_BODY + 1])).0, 413);
    assert_eq!(put(&origin, &of(vec![7; 100])).0, 422, "not zstd");
    assert_eq!(put(&origin, &Batch { digest: "0".repeat(64), ..good.clone() }).0, 422);
    let bomb = zstd::bulk::compress(&vec![b'\n'; 200 << 20], 3).unwrap();
    assert!(bomb.len() < MAX_BODY);
    assert_eq!(put(&origin, &of(bomb)).0, 422, "a bomb");
    let mut other = good.clone();
    other.name.last += 1;
    assert_eq!(put(&origin, &other).0, 422, "another range");
    for path in [
        format!("PUT /records/../../etc/{}/{}", good.name, good.digest),
        format!("PUT /records/{}/../x/{}", good.name.session, good.digest),
        format!("PUT /records/{}/%2e%2e%2f/{}", good.name.session, good.digest),
        format!("DELETE /{path}"),
        "GET /records/".to_owned(),
        "GET /records/..".to_owned(),
        format!("PUT /{path}/x"),
    ] {
        assert_eq!(request(&origin, &path, TOKEN, b"").0, 400, "{path}");
    }
    // A client that goes away in the middle.
    let mut stream = TcpStream::connect(origin.address).unwrap();
    write!(stream, "PUT /{path} HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n").unwrap();
    stream.write_all(&good.body[..50]).unwrap();
    drop(stream);
    assert_eq!(files(&folder), before);

    let (status, first) = put(&origin, &good);
    let receipt: Receipt = serde_json::from_str(&first).unwrap();
    assert!(status == 200 && receipt.is_of(&good) && receipt.total == 10, "{first}");
    assert_eq!(put(&origin, &good), (200, first.clone()), "the same receipt again");
    let mut changed = records[..10].to_vec();
    changed[4].runtime_us += 1;
    assert_eq!(
        put(&origin, &Batch::pack(&session('c'), &changed).unwrap()).0,
        409,
        "another batch"
    );
    assert_eq!(
        put(&origin, &Batch::pack(&session('c'), &records[5..]).unwrap()).0,
        409,
        "an overlap"
    );
    let next = Batch::pack(&session('c'), &records[10..]).unwrap();
    let (_, second) = put(&origin, &next);
    assert_eq!(serde_json::from_str::<Receipt>(&second).unwrap().total, 20);
    drop(origin);
    // A kill left a file that is not complete.
    let part = folder
        .path()
        .join("uploads")
        .join(&good.name.session)
        .join("000000000021-000000000022-2.tmp");
    fs::write(&part, b"x").unwrap();
    let origin = Origin::start(folder.path(), &[]);
    assert!(!part.exists());
    assert_eq!(put(&origin, &good), (200, first), "the same receipt after a restart");
    let line = format!("GET /{}", session_path(&good.name.session));
    assert_eq!(request(&origin, &line, TOKEN, b""), (200, second));
}
