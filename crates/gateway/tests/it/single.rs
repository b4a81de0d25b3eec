//! Single requests whose heads cross the link packed.

use bentpipe_gateway::far::{Claim, FarEnd, FarStream};
use bentpipe_link::io::Open;
use bentpipe_link::{Class, Host, ResetCode, Service, Target};
use bentpipe_prefetch::wire::single::{HeadPacker, VERSION_SINGLE};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bench::{Bench, LOOPBACK, closed_port, echo, read_all, soon, start, until};
use crate::site;
use crate::web::{Site, head, whole};

const BOTH: &str = "[http-cache]\n[split-http]";

fn ground() -> String {
    format!("{LOOPBACK}\n[split-http]")
}

/// As Chromium asks for pictures.
const FIELDS: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/156.0.0.0 Safari/537.36\r\n\
    Accept: image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8\r\n\
    Accept-Encoding: gzip, deflate\r\nAccept-Language: en-US,en;q=0.9\r\n";

/// Sends `request` by the proxy and reads what is answered until the end.
async fn ask(bench: &Bench, request: &str) -> String {
    let mut tcp = TcpStream::connect(bench.http).await.unwrap();
    tcp.write_all(request.as_bytes()).await.unwrap();
    String::from_utf8(read_all(&mut tcp).await.unwrap()).unwrap()
}

async fn get(bench: &Bench, port: u16, path: &str, fields: &str) -> String {
    let to = format!("origin.test:{port}");
    let request = format!(
        "GET http://{to}{path} HTTP/1.1\r\nHost: {to}\r\n{fields}Connection: close\r\n\r\n"
    );
    ask(bench, &request).await
}

fn is_single(open: &Open) -> bool {
    open.target.host == Host::Service(Service::Pages) && open.first[0] == VERSION_SINGLE
}

/// Flags of the flows opened so far: `true` for packed requests.
fn singles(bench: &Bench) -> Vec<bool> {
    bench.up.opened().iter().map(is_single).collect()
}

fn contains(bytes: &[u8], what: &str) -> bool {
    bytes.windows(what.len()).any(|window| window == what.as_bytes())
}

#[tokio::test]
async fn a_miss_crosses_packed_and_its_origin_is_asked_the_same() {
    let site = Site::start(|_| whole("Cache-Control: no-store\r\n", "hello")).await;
    let port = site.address.port();
    let cookie = "Cookie: session=c2Vzc2lvbi1vZi1zb21lYm9keQ\r\n";
    let fields = format!("{FIELDS}{cookie}");
    let mut opened = Vec::new();
    for air in ["[http-cache]", BOTH] {
        let bench = start(air, &ground());
        let answer = get(&bench, port, "/a.webp", &fields).await;
        assert!(answer.ends_with("hello"), "{answer}");
        opened.extend(bench.up.opened());
        let asked = site.asked.lock().unwrap().last().unwrap().len() as u64;
        let opening = 1 + 1 + 1 + "origin.test".len() as u64 + 2;
        let saved = asked + opening - opened.last().unwrap().first.len() as u64;
        let packs = u64::from(air == BOTH);
        assert_eq!(bench.air.http_heads_packed.get(), packs);
        assert_eq!(bench.air.http_head_bytes_saved.get(), packs * saved);
        assert_eq!(bench.air.to_far_bytes.get(), opened.last().unwrap().first.len() as u64);
    }
    let asked = site.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0], asked[1], "to the byte");
    let [plain, packed] = &opened[..] else { panic!("one flow each: {opened:?}") };
    assert_eq!(plain.first, asked[0].as_bytes());
    assert!(is_single(packed) && packed.first.len() * 2 < plain.first.len(), "{packed:?}");
    assert!(!contains(&packed.first, "Chrome/156"), "what is usual is packed");
    let value = "session=c2Vzc2lvbi1vZi1zb21lYm9keQ";
    assert!(contains(&packed.first, value), "and what is secret is not");
    assert_eq!((plain.class, plain.passenger), (packed.class, packed.passenger));
}

#[tokio::test]
async fn the_next_request_on_a_connection_is_packed_too() {
    let site = Site::start(|_| whole("Cache-Control: no-store\r\n", "hello")).await;
    let bench = start(BOTH, &ground());
    for number in 1..=3 {
        let answer = get(&bench, site.address.port(), &format!("/{number}.png"), FIELDS).await;
        assert!(answer.ends_with("hello"), "{answer}");
        until("it is packed", || bench.air.http_heads_packed.get() == number).await;
    }
    assert_eq!(bench.up.opened().len(), 1, "one connection");
    let asked = site.asked.lock().unwrap().clone();
    let paths = asked.iter().map(|head| head.split(' ').nth(1).unwrap()).collect::<Vec<_>>();
    assert_eq!(paths, ["/1.png", "/2.png", "/3.png"]);
    assert_eq!(asked[0].replace("/1.png", "/2.png"), asked[1]);
}

#[tokio::test]
async fn passengers_who_share_a_connection_to_a_site_share_no_compressor() {
    let origin = Site::start(|_| whole("Cache-Control: no-store\r\n", "hello")).await;
    let folder = tempfile::tempdir().unwrap();
    let root = site::certificate(folder.path(), "portal.test");
    let to = format!("origin = \"http://{}\"\n[split-http]", origin.address);
    let bench = start(&site::config(folder.path(), &to), &ground());
    let mut packed_bytes = Vec::new();
    for (number, passenger) in ["127.0.0.1", "127.0.0.2", "127.0.0.3"].into_iter().enumerate() {
        let before = bench.air.to_far_bytes.get();
        let asked = ("portal.test", "/some/picture.png");
        let answer = site::get_from(passenger, &bench, &root, asked).await;
        assert!(answer.ends_with("hello"), "{answer}");
        until("it is packed", || bench.air.http_heads_packed.get() == number as u64 + 1).await;
        packed_bytes.push(bench.air.to_far_bytes.get() - before);
    }
    assert_eq!(singles(&bench), [true], "one connection for all");
    let asked = origin.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|head| *head == asked[0]), "{asked:?}");
    // The first bears the opening: a byte, and where it leads.
    assert_eq!(packed_bytes[0] - packed_bytes[1], 1 + 7);
    assert_eq!(packed_bytes[1], packed_bytes[2], "the same request, and no shorter");
}

/// An origin that reads a request of `length` bytes behind its head, and then answers with them.
async fn reader(length: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let Some(head) = head(&mut tcp).await else { continue };
            let mut body = vec![0; if head.starts_with("POST") { length } else { 0 }];
            tcp.read_exact(&mut body).await.unwrap();
            let body = String::from_utf8(body).unwrap();
            tcp.write_all(whole("Connection: close\r\n", &body).as_bytes()).await.unwrap();
        }
    });
    address
}

/// More than a flow's credit.
const BODY_BYTES: usize = 300_000;

async fn post(bench: &Bench, port: u16) {
    let body: String = (0..BODY_BYTES).map(|n| char::from(b'a' + (n / 7 % 26) as u8)).collect();
    let request = format!(
        "POST http://origin.test:{port}/form HTTP/1.1\r\nHost: origin.test:{port}\r\n{FIELDS}\
         Connection: close\r\nContent-Length: {BODY_BYTES}\r\n\r\n{body}"
    );
    let answer = ask(bench, &request).await;
    assert!(answer.ends_with(&format!("\r\n\r\n{body}")), "{}", &answer[..200]);
}

#[tokio::test]
async fn what_cannot_be_sent_twice_is_packed_once_the_ground_is_known() {
    let port = reader(BODY_BYTES).await.port();
    for air in ["[split-http]", BOTH] {
        let bench = start(air, &ground());
        post(&bench, port).await;
        get(&bench, port, "/", FIELDS).await;
        post(&bench, port).await;
        assert_eq!(singles(&bench), [false, true, true], "{air}");
        assert_eq!(bench.air.http_heads_packed.get(), 2);
        let body_bytes = 2 * BODY_BYTES as u64;
        let overhead = bench.air.to_far_bytes.get() - body_bytes;
        assert!(overhead < 2000, "{overhead} bytes beside the bodies");
    }
}

#[tokio::test]
async fn an_older_ground_is_asked_once_and_nothing_fails() {
    let port = reader(BODY_BYTES).await.port();
    for air in ["[split-http]", BOTH] {
        // One without Split HTTP, and one that does not know such requests.
        for (ground, version) in [(LOOPBACK, None), (&ground()[..], Some(VERSION_SINGLE))] {
            let bench = start(air, ground);
            version.iter().for_each(|version| bench.up.break_off(*version));
            for _ in 0..2 {
                let answer = get(&bench, port, "/a.png", FIELDS).await;
                assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
            }
            post(&bench, port).await;
            assert_eq!(singles(&bench), [true, false, false, false], "{air}, {version:?}");
            let counters = &bench.air;
            let counted = (counters.http_heads_packed.get(), counters.http_head_bytes_saved.get());
            assert_eq!(counted, (0, 0), "it was not answered, and saved nothing");
        }
    }
}

#[tokio::test]
async fn a_ground_that_is_replaced_by_an_older_one_is_noticed() {
    let port = reader(BODY_BYTES).await.port();
    for air in ["[split-http]", BOTH] {
        let bench = start(air, &ground());
        get(&bench, port, "/a.png", FIELDS).await;
        bench.up.next_session();
        bench.up.break_off(VERSION_SINGLE);
        // What must not be sent twice is not the first to find out.
        post(&bench, port).await;
        assert_eq!(singles(&bench), [true, false], "{air}: one flow for it");
        let body_bytes = bench.air.to_far_bytes.get();
        assert!(body_bytes < BODY_BYTES as u64 + 2000, "{body_bytes} bytes: the body once");
        post(&bench, port).await;
        let answer = get(&bench, port, "/b.png", FIELDS).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        post(&bench, port).await;
        assert_eq!(singles(&bench), [true, false, false, true, false, false], "{air}");
    }
}

/// An origin that resets every connection as soon as something comes.
async fn resetter() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            // What is unread when it is closed makes it a reset.
            tcp.peek(&mut [0]).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn an_origin_that_breaks_off_is_not_taken_for_the_ground() {
    let (port, flaky) = (reader(BODY_BYTES).await.port(), resetter().await.port());
    for air in ["[split-http]", BOTH] {
        let bench = start(air, &ground());
        get(&bench, port, "/a.png", FIELDS).await;
        for _ in 0..2 {
            let answer = get(&bench, flaky, "/b.png", FIELDS).await;
            assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
            assert!(answer.contains("error=http_response_incomplete"), "{answer}");
        }
        assert_eq!(singles(&bench), [true, true, true], "{air}: asked once each, as ever");
        let answer = get(&bench, port, "/c.png", FIELDS).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        post(&bench, port).await;
        assert_eq!(singles(&bench), [true; 5], "{air}: others' are packed as before");
    }
}

#[tokio::test]
async fn where_no_reason_is_told_it_is_asked_for_plainly() {
    let (port, flaky) = (reader(BODY_BYTES).await.port(), resetter().await.port());
    for air in ["[split-http]", BOTH] {
        let bench = start(air, &ground());
        bench.up.tell_no_reasons();
        get(&bench, port, "/a.png", FIELDS).await;
        let answer = get(&bench, flaky, "/b.png", FIELDS).await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        post(&bench, port).await;
        assert_eq!(singles(&bench), [true, true, false, true], "{air}: no longer than that");
    }
}

#[tokio::test]
async fn the_grounds_policy_holds_for_packed_requests_too() {
    let site = Site::start(|_| whole("", "hello")).await;
    for air in ["[split-http]", BOTH] {
        let bench = start(air, "[split-http]");
        for _ in 0..2 {
            let answer = get(&bench, site.address.port(), "/a.png", FIELDS).await;
            assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
            assert!(answer.contains("error=destination_ip_prohibited"), "{answer}");
        }
        // It was the destination, and not the ground, that was refused.
        assert_eq!(singles(&bench), [true, false, true, false]);
        for private in ["10.0.0.1:80", "169.254.169.254:80", "[::1]:80", "[fd00::1]:80"] {
            let mut flow = open(&bench, &private.parse().unwrap(), b"").await;
            assert_eq!(ending(&mut flow).await, Some(ResetCode::Forbidden), "{private}");
        }
    }
    assert_eq!(site.asked.lock().unwrap().len(), 0);
}

/// A flow that begins as for packed requests to `target`, and with `packed`.
async fn open(bench: &Bench, target: &Target, packed: &[u8]) -> Box<dyn FarStream> {
    let mut first = vec![VERSION_SINGLE];
    target.encode(&mut first).unwrap();
    first.extend(packed);
    let service = Target { host: Host::Service(Service::Pages), port: 80 };
    let (class, passenger, claim) = (Class::default(), 1, None);
    let open = Open { target: service, class, passenger, claim, first: first.into() };
    bench.up.open(open).await.unwrap()
}

/// End of a flow that has nothing to say.
async fn ending(flow: &mut Box<dyn FarStream>) -> Option<ResetCode> {
    let mut said = Vec::new();
    let read = soon("its end", flow.read_to_end(&mut said)).await;
    assert_eq!(said, b"");
    assert!(read.is_err(), "a clean end would hide the failure");
    flow.reset_code()
}

#[tokio::test]
async fn services_are_not_reached_through_packed_requests() {
    let bench = start("", &ground());
    for service in Service::ALL {
        let target = Target { host: Host::Service(service), port: 80 };
        let mut flow = open(&bench, &target, b"").await;
        assert_eq!(ending(&mut flow).await, Some(ResetCode::Forbidden), "{service:?}");
        // Nor by the names that they have elsewhere.
        let named = Target { host: Host::Name(service.name().to_owned()), port: 80 };
        let mut flow = open(&bench, &named, b"").await;
        assert!(ending(&mut flow).await.is_some(), "{service:?}");
    }
    let mut flow = open(&bench, &closed_port().await.into(), b"").await;
    assert_eq!(ending(&mut flow).await, Some(ResetCode::Refused));
}

#[tokio::test]
async fn a_claim_is_verified_against_where_a_packed_request_goes() {
    let bench = start("", &ground());
    let target: Target = echo("127.0.0.1:0").await.into();
    let mut first = vec![VERSION_SINGLE];
    target.encode(&mut first).unwrap();
    first.extend(b"\x01\x00\x02hi");
    let claim = Claim::new("origin.test", Class::Assured).ok();
    let service = Target { host: Host::Service(Service::Pages), port: 80 };
    let (class, first) = (Class::default(), first.into());
    let open = Open { target: service, class, passenger: 1, claim, first };
    let mut flow = bench.up.open(open).await.unwrap();
    let mut back = [0; 2];
    soon("the echo", flow.read_exact(&mut back)).await.unwrap();
    let counted = (bench.ground.claims.get(), bench.ground.claims_held.get());
    assert_eq!((&back, counted), (b"hi", (1, 1)));
}

#[tokio::test]
async fn either_direction_ends_by_itself() {
    let bench = start("", &ground());
    let (mut packer, mut packed) = (HeadPacker::default(), Vec::new());
    let said = format!("GET / HTTP/1.1\r\n{FIELDS}\r\nand no head{}", "-".repeat(100_000));
    packer.push(said.as_bytes(), &mut packed);
    packer.flush(&mut packed);
    let flow = open(&bench, &echo("127.0.0.1:0").await.into(), &packed[..200]).await;
    let (mut from, mut to) = tokio::io::split(flow);
    // More than the flow's credit: it goes on as the other end reads.
    let writing = async {
        to.write_all(&packed[200..]).await.unwrap();
        to.shutdown().await.unwrap();
    };
    let mut back = Vec::new();
    let reading = soon("the echo", from.read_to_end(&mut back));
    let ((), read) = tokio::join!(writing, reading);
    read.unwrap();
    assert!(back == said.as_bytes(), "{} of {} bytes", back.len(), said.len());
}

#[tokio::test]
async fn hostile_bytes_break_their_flow_off_and_no_other() {
    let bench = start("", &ground());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().into();
    let bomb = [
        // A zstd frame of one block that repeats a byte 100,000 times.
        &[2, 0, 11, 0, 9, 0x80, 0xa0, 0x86, 0x01, 0, 0x03, 0x35, 0x0c, b'a'][..],
    ]
    .concat();
    for (hostile, reached) in [
        (&b"\x01\x00\x02ab\x07\x00\x01"[..], "ab"),
        (b"\x01\x00\x02ab\x02\xff\xff", "ab"),
        (b"\x01\x00\x02ab\x02\x00\x04\x00\x02xy", "ab"),
        // A head that comes to nothing.
        (b"\x01\x00\x02ab\x02\x00\x07\x00\x05\x20\x00\x01\x00\x00", "ab"),
        (&bomb, ""),
        // Its end comes in the middle of a chunk.
        (b"\x01\x00\x05ab", "ab"),
    ] {
        let mut flow = open(&bench, &target, hostile).await;
        let (mut tcp, _) = soon("a connection", listener.accept()).await.unwrap();
        flow.shutdown().await.unwrap();
        assert_eq!(ending(&mut flow).await, Some(ResetCode::Internal), "{hostile:?}");
        let mut said = Vec::new();
        let read = soon("its end", tcp.read_to_end(&mut said)).await;
        // A reset may overtake what is unread, and never looks like an end.
        assert!(read.is_err() && reached.as_bytes().starts_with(&said), "{read:?} {said:?}");
    }
    let service = Target { host: Host::Service(Service::Pages), port: 80 };
    for wrong in [&[VERSION_SINGLE, 9, 9, 9][..], &[VERSION_SINGLE, 3, 1, b' ', 0, 80]] {
        let first = wrong.to_vec().into();
        let class = Class::default();
        let open = Open { target: service.clone(), class, passenger: 1, claim: None, first };
        let mut flow = bench.up.open(open).await.unwrap();
        assert_eq!(ending(&mut flow).await, Some(ResetCode::Internal));
    }
}
