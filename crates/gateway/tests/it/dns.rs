//! The on-board resolver and the ground's resolver over the real transports, with a name server.

mod encrypted;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_gateway::air::{Air, ResolverHandle};
use bentpipe_net::{Inherited, listen_tcp};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::{A, NULL, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::bench::{echo, echoes, expect_reset, socks_client, soon, until};
use crate::tproxy::{as_root, new_network};
use crate::transports::{
    Configs, Ends, configs_with, over_aerotcp, over_http3, over_link, start_ground,
};

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

pub fn query(text: &str, kind: RecordType) -> Message {
    let mut message = Message::new(0x4242, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(text), kind));
    message
}

/// Builds the name server's answer.
fn answer(asked: &Message, over_tcp: bool) -> Message {
    let mut answer = Message::response(asked.metadata.id, OpCode::Query);
    answer.add_queries(asked.queries.clone());
    answer.metadata.recursion_available = true;
    let (owner, kind) = (asked.queries[0].name().clone(), asked.queries[0].query_type());
    let record = |data| Record::from_rdata(owner.clone(), 300, data);
    let mut edns = Edns::new();
    if owner == name("failing.test.") {
        answer.metadata.response_code = ResponseCode::ServFail;
        edns.options_mut().insert(EdnsOption::Unknown(15, vec![0, 0]));
        answer.set_edns(edns);
        return answer;
    }
    match kind {
        RecordType::A => answer.add_answer(record(RData::A(A([127, 0, 0, 1].into())))),
        RecordType::TXT if !over_tcp => {
            answer.metadata.truncation = true;
            &mut answer
        }
        RecordType::TXT => {
            let texts = (0..30).map(|n| format!("{n:0100}")).collect();
            answer.add_answer(record(RData::TXT(TXT::new(texts))))
        }
        code => {
            let rdata = NULL::with(vec![0xc0, 0x0c, 1, 2, 3]);
            answer.add_answer(record(RData::Unknown { code, rdata }))
        }
    };
    answer.set_edns(edns);
    answer
}

/// A name server on loopback, and the number of its queries. Before it answers about `liar.test.`,
/// it sends forged answers; it delays answers about `slow.test.`.
pub async fn name_server() -> (SocketAddr, Arc<AtomicUsize>) {
    // The port assigned for UDP may be taken for TCP.
    let (udp, tcp) = loop {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        match TcpListener::bind(udp.local_addr().unwrap()).await {
            Ok(tcp) => break (udp, tcp),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse),
        }
    };
    let address = udp.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = udp.recv_from(&mut buffer).await {
            let asked = Message::from_vec(&buffer[..length]).unwrap();
            let is_first = count.fetch_add(1, SeqCst) == 0;
            if is_first && asked.queries[0].name() == &name("slow.test.") {
                // Longer than one server is queried alone.
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
            let answer = answer(&asked, false);
            if asked.queries[0].name() == &name("liar.test.") {
                let mut forged = answer.clone();
                forged.answers[0].data = RData::A(A([127, 6, 6, 6].into()));
                let mut other = forged.clone();
                forged.metadata.id ^= 1;
                other.queries[0].set_name(name("lier.test."));
                for forged in [forged.to_vec().unwrap(), other.to_vec().unwrap(), b"?".to_vec()] {
                    udp.send_to(&forged, from).await.unwrap();
                }
            }
            udp.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
        }
    });
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = tcp.accept().await {
            tokio::spawn(async move {
                while let Some(asked) = read(&mut tcp).await {
                    write(&mut tcp, &answer(&asked, true)).await;
                }
            });
        }
    });
    (address, asked)
}

pub async fn read(tcp: &mut TcpStream) -> Option<Message> {
    let length = tcp.read_u16().await.ok()?;
    let mut message = vec![0; length.into()];
    tcp.read_exact(&mut message).await.unwrap();
    Some(Message::from_vec(&message).unwrap())
}

pub async fn write(tcp: &mut TcpStream, message: &Message) {
    let bytes = message.to_vec().unwrap();
    tcp.write_all(&[&(bytes.len() as u16).to_be_bytes(), &bytes[..]].concat()).await.unwrap();
}

/// Both gateways and the name server.
struct Cabin {
    resolver: SocketAddr,
    socks: SocketAddr,
    counts: ResolverHandle,
    asked: Arc<AtomicUsize>,
    air: Arc<bentpipe_gateway::counters::Counters>,
    stop: tokio::sync::oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

const LISTEN: &str = "listen = [\"127.0.0.1:0\"]";

async fn start(dns: &str, ground: &str, over: impl Fn(&Configs) -> Ends) -> Cabin {
    let mut configs = configs_with(&format!("dns = {{ {dns} }}"), ground);
    let (server, asked) = name_server().await;
    configs.ground.dns.servers = vec![server.to_string().parse().unwrap()];
    let (connector, acceptor) = over(&configs);
    start_ground(&configs, acceptor);
    let gateway = Air::bind(&configs.air, &mut Inherited::default(), connector).unwrap();
    let (resolver, socks) = (gateway.dns_addrs()[0], gateway.socks5_addr().unwrap());
    let (counts, air) = (gateway.resolver().unwrap(), gateway.counters());
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(gateway.serve(async { drop(stopped.await) }));
    Cabin { resolver, socks, counts, asked, air, stop, task }
}

/// A client that repeats its query until it is answered, as usual.
async fn ask(resolver: SocketAddr, question: &Message) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(resolver).await.unwrap();
    let bytes = question.to_vec().unwrap();
    let mut buffer = [0; 4096];
    soon("an answer", async {
        loop {
            socket.send(&bytes).await.unwrap();
            let wait = Duration::from_secs(2);
            let came = tokio::time::timeout(wait, socket.recv(&mut buffer)).await;
            let Ok(Ok(length)) = came else { continue };
            let answer = Message::from_vec(&buffer[..length]).unwrap();
            assert_eq!(answer.metadata.id, question.metadata.id);
            // The link may not have been up yet.
            if answer.metadata.response_code != ResponseCode::ServFail {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
}

fn ips(message: &Message) -> Vec<IpAddr> {
    message.answers.iter().filter_map(|record| record.data.ip_addr()).collect()
}

async fn resolves(over: impl Fn(&Configs) -> Ends) {
    let cabin = start(LISTEN, "", over).await;
    let a = query("Www.A.test.", RecordType::A);
    let first = ask(cabin.resolver, &a).await;
    assert_eq!(ips(&first), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(first.queries[0].name().to_ascii(), "Www.A.test.");
    let asked = cabin.asked.load(SeqCst);
    assert_eq!(ips(&ask(cabin.resolver, &a).await), ips(&first));
    // On a slow machine the client repeats its query.
    let hits = cabin.counts.counts().hits;
    assert!(cabin.asked.load(SeqCst) == asked && hits >= 1, "{hits}");
    // An unknown type whose bytes look like a compression pointer passes unchanged.
    let odd = query("odd.test.", RecordType::from(65_280));
    let answer = ask(cabin.resolver, &odd).await;
    let RData::Unknown { rdata, .. } = &answer.answers[0].data else { panic!("{answer}") };
    assert_eq!(rdata.anything[..], [0xc0, 0x0c, 1, 2, 3]);
    // An answer too large for datagrams crosses by a stream, and the client must use TCP too.
    let big = query("big.test.", RecordType::TXT);
    let cut = ask(cabin.resolver, &big).await;
    assert!(cut.metadata.truncation && cut.answers.is_empty());
    let mut tcp = TcpStream::connect(cabin.resolver).await.unwrap();
    for question in [&big, &a, &query("new.test.", RecordType::A)] {
        write(&mut tcp, question).await;
        let whole = soon("an answer", read(&mut tcp)).await.unwrap();
        assert!(!whole.metadata.truncation && whole.answers.len() == 1);
        assert_eq!(whole.queries, question.queries);
    }
}

#[tokio::test]
async fn a_slow_name_server_is_waited_for() {
    let cabin = start(LISTEN, "", over_link).await;
    let answer = ask(cabin.resolver, &query("slow.test.", RecordType::A)).await;
    assert_eq!(answer.answers.len(), 1);
    // The client and the air gateway have repeated it, but it counts as one query.
    let counts = cabin.counts.counts();
    assert_eq!((counts.missed, counts.unanswered), (1, 0), "{counts:?}");
}

#[tokio::test]
async fn names_cross_by_the_radio_transport() {
    resolves(over_link).await;
}

#[tokio::test]
async fn names_cross_by_http3() {
    resolves(over_http3).await;
}

#[tokio::test]
async fn names_cross_by_aerotcp() {
    resolves(over_aerotcp).await;
}

#[test]
fn a_wildcard_listener_takes_both_families_under_any_sysctl() {
    as_root("dns::a_wildcard_listener_takes_both_families_under_any_sysctl", || {
        new_network();
        std::fs::write("/proc/sys/net/ipv6/bindv6only", "1").unwrap();
        let listener = listen_tcp("a test", "[::]:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::net::TcpStream::connect(("127.0.0.1", port)).expect("IPv4 is taken");
        std::net::TcpStream::connect(("::1", port)).expect("IPv6 is taken");
    });
}

#[tokio::test]
async fn forged_answers_do_not_count() {
    let cabin = start(LISTEN, "", over_link).await;
    let answer = ask(cabin.resolver, &query("liar.test.", RecordType::A)).await;
    assert_eq!(ips(&answer), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
}

#[tokio::test]
async fn a_failure_is_remembered_whatever_a_name_server_says_of_it() {
    let cabin = start(LISTEN, "", over_link).await;
    // After this, the link is up.
    ask(cabin.resolver, &query("up.test.", RecordType::A)).await;
    let mut tcp = TcpStream::connect(cabin.resolver).await.unwrap();
    let mut asked = Vec::new();
    for _ in 0..2 {
        write(&mut tcp, &query("failing.test.", RecordType::A)).await;
        let answer = soon("an answer", read(&mut tcp)).await.unwrap();
        assert_eq!(answer.metadata.response_code, ResponseCode::ServFail);
        asked.push(cabin.asked.load(SeqCst));
    }
    assert_eq!((asked[0], cabin.counts.counts().failed), (asked[1], 1));
}

#[tokio::test]
async fn the_table_of_hosts_answers_too() {
    let ground = "hosts = { \"table.test\" = [\"192.0.2.7\", \"2001:db8::7\"] }";
    let cabin = start(LISTEN, ground, over_link).await;
    for (kind, ip) in [(RecordType::A, "192.0.2.7"), (RecordType::AAAA, "2001:db8::7")] {
        let answer = ask(cabin.resolver, &query("Table.Test.", kind)).await;
        assert_eq!(ips(&answer), [ip.parse::<IpAddr>().unwrap()]);
    }
    assert_eq!(cabin.asked.load(SeqCst), 0);
}

#[tokio::test]
async fn no_passenger_reaches_the_resolver_itself() {
    for over in [over_link, over_http3, over_aerotcp] {
        let cabin = start(LISTEN, "", over).await;
        // The gateway itself gets answers, so the link is up.
        ask(cabin.resolver, &query("a.test.", RecordType::A)).await;
        let mut tcp = TcpStream::connect(cabin.socks).await.unwrap();
        let host = b"resolver.bentpipe.invalid";
        let request = [&[5, 1, 0, 5, 1, 0, 3, host.len() as u8][..], host, &[0, 53]].concat();
        tcp.write_all(&request).await.unwrap();
        until("it was refused", || {
            [ResetCode::NameNotFound, ResetCode::Forbidden, ResetCode::Unreachable]
                .iter()
                .any(|code| cabin.air.resets(*code) == 1)
        })
        .await;
    }
}

#[tokio::test]
async fn cached_answers_survive_a_restart_and_are_served_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dns.cache");
    let dns = format!("{LISTEN}, cache-file = \"{}\"", file.display());
    let cabin = start(&dns, "", over_link).await;
    let first = ask(cabin.resolver, &query("a.test.", RecordType::A)).await;
    cabin.stop.send(()).unwrap();
    soon("the end", cabin.task).await.unwrap();
    let again = start(&dns, "", over_link).await;
    assert_eq!(ips(&ask(again.resolver, &query("a.test.", RecordType::A)).await), ips(&first));
    assert_eq!(again.asked.load(SeqCst), 0);
    assert!(again.counts.counts().hits >= 1);
    again.stop.send(()).unwrap();
    soon("the end", again.task).await.unwrap();
    // The gateway starts even with a damaged file.
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let third = start(&dns, "", over_link).await;
    assert_eq!(ips(&ask(third.resolver, &query("a.test.", RecordType::A)).await), ips(&first));
    assert_eq!(third.asked.load(SeqCst), 1);
}

#[tokio::test]
async fn instant_names_are_opened_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let dns = format!(
        "{LISTEN}, cache-file = \"{}\", instant-names = {{ v4 = \"100.64.0.0/10\" }}",
        folder.path().join("dns.cache").display()
    );
    // The policy would permit dialling an address of the pool.
    let ground = "hosts = { \"www.origin.example\" = \"127.0.0.1\" }";
    let cabin = start(&dns, ground, over_link).await;
    let answer = ask(cabin.resolver, &query("www.origin.example.", RecordType::A)).await;
    let [IpAddr::V4(ip)] = ips(&answer)[..] else { panic!("{answer}") };
    assert_eq!((ip.octets()[0], ip.octets()[1] & 0xc0), (100, 64));
    assert_eq!(cabin.counts.counts().instant, 1);
    let origin = echo("127.0.0.1:0").await;
    echoes(socks_client(cabin.socks, (ip, origin.port()).into()).await, b"by name").await;
    // An address without a name leads nowhere.
    let other = (std::net::Ipv4Addr::from_bits(ip.to_bits() + 1), origin.port()).into();
    let mut nowhere = socks_client(cabin.socks, other).await;
    expect_reset(&mut nowhere).await;
    assert_eq!(
        cabin.air.resets(ResetCode::NameNotFound) + cabin.air.resets(ResetCode::Unreachable),
        1
    );
}

#[tokio::test]
async fn an_aircraft_that_begins_is_sent_what_it_used_to_ask_for() {
    let mut configs = configs_with(&format!("dns = {{ {LISTEN} }}"), "");
    let (server, asked) = name_server().await;
    configs.ground.dns.servers = vec![server.to_string().parse().unwrap()];
    configs.ground.dns.push_rate = Some("8 Mbit/s".parse().unwrap());
    let (connector, acceptor) = over_link(&configs);
    start_ground(&configs, acceptor);
    let first = Air::bind(&configs.air, &mut Inherited::default(), connector.clone()).unwrap();
    let resolver = first.dns_addrs()[0];
    let serving = tokio::spawn(first.serve(std::future::pending()));
    for name in ["a.test.", "b.test."] {
        ask(resolver, &query(name, RecordType::A)).await;
    }
    serving.abort();
    // The same aircraft with an empty cache.
    let again = configs_with(&format!("dns = {{ {LISTEN}, warm-start = \"64 KiB\" }}"), "");
    let second = Air::bind(&again.air, &mut Inherited::default(), connector).unwrap();
    let (resolver, counts) = (second.dns_addrs()[0], second.resolver().unwrap());
    tokio::spawn(second.serve(std::future::pending()));
    until("both are here", || counts.counts().pushed == 2).await;
    let asked = (asked.load(SeqCst), asked);
    for name in ["a.test.", "b.test."] {
        let answer = ask(resolver, &query(name, RecordType::A)).await;
        assert_eq!(ips(&answer), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
    }
    let counts = counts.counts();
    assert_eq!((counts.push_used, counts.missed), (2, 0), "{counts:?}");
    assert!(counts.hits >= 2, "{counts:?}");
    assert_eq!(asked.1.load(SeqCst), asked.0, "nothing more was asked");
}
