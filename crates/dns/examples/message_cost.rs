//! Cost of a message: `cargo run --release -p bentpipe-dns --example message_cost`.
//!
//! Prints the time of a cache hit, from the bytes of the query to the bytes of the answer. The
//! baseline is hickory-proto: it decodes query and answer into records and encodes the answer. Then
//! prints the time to read a query of 64 KiB built to be slow. Each value is the best of several
//! alternating rounds.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bentpipe_dns::{Action, Asker, Query, Resolver, Room, Settings, Source};
use hickory_proto::op::{self, Edns, Message, MessageType, OpCode};
use hickory_proto::rr::rdata::CNAME;
use hickory_proto::rr::{Name, RData, Record, RecordType};

const NOW: Duration = Duration::from_secs(1_800_000_000);
const FROM: ((), Source) =
    ((), Source::Stream(Asker::Address(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST))));
const ROUNDS: u32 = 15;

fn main() {
    println!("{:36} {:>10} {:>10} {:>7}", "", "here", "hickory", "ratio");
    for addresses in [1, 8] {
        let (query, answer) = messages(addresses);
        let mut resolver = warmed(&query, &answer);
        let records = Message::from_vec(&answer).expect("it is one").answers;
        let mut ours = || {
            black_box(resolver.query(FROM, black_box(&query), Room::Packet(1232), NOW));
        };
        let theirs = || {
            let request = Message::from_vec(black_box(&query)).expect("it is one");
            let mut answer = Message::response(request.metadata.id, OpCode::Query);
            answer.queries = request.queries;
            answer.answers.clone_from(&records);
            answer.answers.iter_mut().for_each(|record| _ = record.decrement_ttl(1));
            answer.set_edns(Edns::new());
            black_box(answer.to_vec().expect("it fits"));
        };
        show(&format!("hit of {} records", addresses + 1), 20_000, &mut ours, theirs);
    }
    let slow = slow_query();
    let ours = || _ = black_box(Query::parse(black_box(&slow)).is_ok());
    let theirs = || _ = black_box(Message::from_vec(black_box(&slow)).is_ok());
    assert!(Query::parse(&slow).is_ok() && Message::from_vec(&slow).is_ok(), "it parses");
    show(&format!("query of {} bytes", slow.len()), 5, ours, theirs);
}

fn show(what: &str, times: u32, mut ours: impl FnMut(), mut theirs: impl FnMut()) {
    let mut best = [f64::MAX; 2];
    for _ in 0..ROUNDS {
        best[0] = best[0].min(nanoseconds(times, &mut ours));
        best[1] = best[1].min(nanoseconds(times, &mut theirs));
    }
    let [ours, theirs] = best;
    println!("{what:36} {ours:7.0} ns {theirs:7.0} ns {:7.2}", theirs / ours);
}

#[allow(clippy::disallowed_methods, reason = "this measures real time")]
fn nanoseconds(times: u32, work: &mut impl FnMut()) -> f64 {
    let began = Instant::now();
    (0..times).for_each(|_| work());
    began.elapsed().as_nanos() as f64 / f64::from(times)
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).expect("it is one")
}

/// Typical query of a phone, and its answer: an alias and `addresses` addresses.
fn messages(addresses: u8) -> (Vec<u8>, Vec<u8>) {
    let (alias, real) = (name("www.images.example.com."), name("edge-17.cdn.example.net."));
    let mut query = Message::new(7, MessageType::Query, OpCode::Query);
    query.metadata.recursion_desired = true;
    query.add_query(op::Query::query(alias.clone(), RecordType::A));
    query.set_edns(Edns::new());
    let mut answer = query.clone().into_response();
    answer.add_answer(Record::from_rdata(alias, 300, RData::CNAME(CNAME(real.clone()))));
    for n in 0..addresses {
        let ip = IpAddr::from([192, 0, 2, n]);
        answer.add_answer(Record::from_rdata(real.clone(), 300, ip.into()));
    }
    [query, answer].map(|it| it.to_vec().expect("it fits")).into()
}

/// Resolver that has the answer in its cache.
fn warmed(query: &[u8], answer: &[u8]) -> Resolver<()> {
    let settings =
        Settings { client_per_second: 1 << 40, client_burst: 1 << 40, ..Settings::default() };
    let mut resolver = Resolver::new(settings, false, [7; 16]);
    assert!(resolver.query(FROM, query, Room::Packet(1232), NOW).is_none(), "it is not cached yet");
    while let Some(action) = resolver.poll() {
        let Action::Query { id, .. } = action else { continue };
        let mut answer = answer.to_vec();
        answer[..2].copy_from_slice(&id.to_be_bytes());
        resolver.on_answer(&answer, NOW);
    }
    assert!(resolver.query(FROM, query, Room::Packet(1232), NOW).is_some(), "it is cached");
    resolver
}

/// Longest possible query, whose additional records all point to the longest possible name.
fn slow_query() -> Vec<u8> {
    let mut message = [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\0\0\x01\0\x01"].concat();
    let at = message.len() as u16;
    message.extend(b"\x01a".repeat(126));
    message.extend(b"\0\0\x0a\0\x01\0\0\0\0\0\x01x");
    let mut count = 1u16;
    while message.len() + 13 < usize::from(u16::MAX) {
        message.extend((0xc000 | at).to_be_bytes());
        message.extend(b"\0\x0a\0\x01\0\0\0\0\0\x01x");
        count += 1;
    }
    message[10..12].copy_from_slice(&count.to_be_bytes());
    message
}
