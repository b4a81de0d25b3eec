use super::*;
use crate::testing::{address, answer_with, denial, failure, key, name, query, query_with, soa};
use crate::wire::HEADER;
use hickory_proto::op::{Edns, Message};
use hickory_proto::rr::rdata::{CNAME, NULL, opt::EdnsOption};
use proptest::prelude::*;

const FRESH: Ages =
    Ages { age_s: 0, min_s: 0, max_s: u32::MAX, cap_s: u32::MAX, stale: false, is_exact: true };

#[test]
fn remaining_ttls_are_rounded_down_to_steps() {
    let shown = |left| Ages { is_exact: false, ..FRESH }.shown(left);
    let steps = [0, 1, 9, 10, 29, 30, 59, 60, 300, 319, 86_399].map(shown);
    assert_eq!(steps, [0, 1, 1, 10, 20, 30, 30, 60, 300, 300, 86_370]);
    assert_eq!(Ages { age_s: 17, cap_s: 40, is_exact: false, ..FRESH }.shown(300), 30);
    let stale = Ages { stale: true, cap_s: 25, is_exact: false, ..FRESH };
    assert_eq!(stale.shown(300), 25, "a stale TTL is not a remaining time");
    for left in 0..1000 {
        assert!(shown(left) <= left && (shown(left) > 0) == (left > 0), "{left}");
    }
}

#[test]
fn without_authentic_clears_ad() {
    let request = query_with("a.test.", RecordType::A, |it| it.metadata.authentic_data = true);
    let good = answer_with(&request, |message| message.metadata.authentic_data = true);
    let answer = parsed(&request, &good).unwrap();
    let client = Query::parse(&request).unwrap();
    let is_authentic = |answer: Answer| {
        let message = Message::from_vec(&answer.relay(&client, Room::Stream)).unwrap();
        message.metadata.authentic_data
    };
    assert!(is_authentic(answer.clone()) && !is_authentic(answer.without_authentic()));
}

fn parsed(query: &[u8], message: &[u8]) -> Result<Answer, AnswerError> {
    Answer::parse(&key(query), message)
}

#[test]
fn kinds_and_lifetimes_are_read() {
    let query = query("a.test.", RecordType::A);
    let of = |message: &[u8]| parsed(&query, message).map(|it| (it.kind, it.lifetime_s));
    assert_eq!(of(&address(&query, 300, 1)), Ok((Kind::Positive, 300)));
    assert_eq!(of(&address(&query, u32::MAX, 1)), Ok((Kind::Positive, 0)));
    assert_eq!(of(&denial(&query, 900, 60)), Ok((Kind::Negative, 60)));
    assert_eq!(of(&denial(&query, 30, 60)), Ok((Kind::Negative, 30)));
    assert_eq!(of(&answer_with(&query, |_| {})), Ok((Kind::Negative, 0)), "no SOA");
    assert_eq!(of(&failure(&query)), Ok((Kind::Failure, 0)));
    let alias = answer_with(&query, |message| {
        let to = RData::CNAME(CNAME(name("b.test.")));
        message.add_answer(hickory_proto::rr::Record::from_rdata(name("a.test."), 20, to));
        message.add_authority(hickory_proto::rr::Record::from_rdata(name("test."), 900, soa(60)));
    });
    assert_eq!(of(&alias), Ok((Kind::Negative, 20)), "an alias to nothing");
}

#[test]
fn only_complete_answers_to_the_question_are_accepted() {
    let query = query("a.test.", RecordType::A);
    let good = address(&query, 300, 1);
    let other = crate::testing::query("b.test.", RecordType::A);
    assert_eq!(parsed(&other, &good), Err(AnswerError::Mismatch));
    let other = crate::testing::query("a.test.", RecordType::AAAA);
    assert_eq!(parsed(&other, &good), Err(AnswerError::Mismatch));
    assert_eq!(parsed(&query, &query), Err(AnswerError::Mismatch));
    let cut = answer_with(&query, |message| message.metadata.truncation = true);
    assert_eq!(parsed(&query, &cut), Err(AnswerError::Truncated));
    for short in 0..good.len() {
        assert!(parsed(&query, &good[..short]).is_err());
    }
}

#[test]
fn the_client_gets_its_own_id_spelling_and_flags() {
    let request = query("a.test.", RecordType::A);
    let good = answer_with(&request, |message| {
        message.metadata.authentic_data = true;
        message.metadata.authoritative = true;
        let full = address(&request, 300, 7);
        message.add_answers(Message::from_vec(&full).unwrap().answers);
    });
    let answer = parsed(&request, &good).unwrap();
    let client = query_with("A.tEsT.", RecordType::A, |message| message.metadata.id = 99);
    let client = Query::parse(&client).unwrap();
    let ages = Ages { age_s: 100, ..FRESH };
    let written = answer.write(&client, Room::Packet(1232), &ages);
    let read = Message::from_vec(&written).unwrap();
    assert_eq!((read.metadata.id, read.answers[0].ttl), (99, 200));
    assert_eq!(read.queries[0].name().to_ascii(), "A.tEsT.");
    assert!(!read.metadata.authentic_data && !read.metadata.authoritative && read.edns.is_none());
    let aware = query_with("a.test.", RecordType::A, |message| {
        message.metadata.authentic_data = true;
        message.set_edns(Edns::new());
    });
    let aware = Query::parse(&aware).unwrap();
    let stale = Ages { age_s: 900, cap_s: 30, stale: true, ..FRESH };
    let written = answer.write(&aware, Room::Packet(1232), &stale);
    assert!(written.ends_with(&[0, 6, 0, 15, 0, 2, 0, 3]), "Stale Answer");
    let read = Message::from_vec(&written).unwrap();
    assert!(read.metadata.authentic_data && read.edns.is_some());
    assert_eq!(read.answers[0].ttl, 30);
    assert_eq!(answer.addresses(), ["192.0.2.7".parse::<IpAddr>().unwrap()]);
}

#[test]
fn large_answers_are_truncated() {
    let request = query("big.test.", RecordType::NULL);
    let big = answer_with(&request, |message| {
        let data = RData::NULL(NULL::with(vec![7; 600]));
        message.add_answer(hickory_proto::rr::Record::from_rdata(name("big.test."), 60, data));
    });
    let (answer, client) = (parsed(&request, &big).unwrap(), Query::parse(&request).unwrap());
    let cut = Message::from_vec(&answer.write(&client, Room::Packet(1232), &FRESH)).unwrap();
    assert!(cut.metadata.truncation && cut.answers.is_empty() && cut.queries.len() == 1);
    let whole = Message::from_vec(&answer.write(&client, Room::Stream, &FRESH)).unwrap();
    assert!(!whole.metadata.truncation && whole.answers.len() == 1);
}

#[test]
fn the_upstream_edns_is_replaced() {
    let request = query_with("a.test.", RecordType::A, |message| _ = message.set_edns(Edns::new()));
    let bad = answer_with(&request, |message| {
        message.metadata.response_code = ResponseCode::BADVERS;
        let mut edns = Edns::new();
        edns.set_rcode_high(1);
        edns.options_mut().insert(EdnsOption::Unknown(15, vec![0, 9, b'x']));
        message.set_edns(edns);
    });
    let answer = parsed(&request, &bad).unwrap();
    assert_eq!(
        (answer.kind, u16::from(answer.rcode()), answer.error),
        (Kind::Failure, 16, Some(9))
    );
    assert!(Message::from_vec(answer.message()).unwrap().edns.is_none());
    let written = answer.write(&Query::parse(&request).unwrap(), Room::Stream, &FRESH);
    let read = Message::from_vec(&written).unwrap();
    assert_eq!(read.edns.map(|edns| edns.rcode_high()), Some(1));
    assert!(written.ends_with(&[0, 6, 0, 15, 0, 2, 0, 9]), "the extended error is passed on");
}

#[test]
fn the_minimum_ttl_is_found() {
    let request = query("no.test.", RecordType::A);
    assert_eq!(min_ttl(&denial(&request, 900, 60)), Some(900));
    assert_eq!(min_ttl(&address(&request, 7, 1)), Some(7));
    assert_eq!((min_ttl(&failure(&request)), min_ttl(b"short")), (None, None));
}

#[test]
fn a_denial_counts_down() {
    let request = query("no.test.", RecordType::A);
    let answer = parsed(&request, &denial(&request, 900, 60)).unwrap();
    let ages = Ages { age_s: 20, cap_s: 40, ..FRESH };
    let written = answer.write(&Query::parse(&request).unwrap(), Room::Stream, &ages);
    let read = Message::from_vec(&written).unwrap();
    assert_eq!(
        (read.metadata.response_code, read.authorities[0].ttl),
        (ResponseCode::NXDomain, 40)
    );
}

fn data() -> impl Strategy<Value = RData> {
    use hickory_proto::rr::rdata::{AAAA, MX, TXT};
    prop_oneof![
        any::<[u8; 16]>().prop_map(|ip| RData::AAAA(AAAA(ip.into()))),
        prop::collection::vec("[ -~]{0,40}", 1..4).prop_map(|it| RData::TXT(TXT::new(it))),
        (any::<u16>(), "[a-z]{1,20}").prop_map(|(n, it)| RData::MX(MX::new(n, name(&it)))),
        (65_000u16..65_100, prop::collection::vec(any::<u8>(), 1..60)).prop_map(|(code, data)| {
            RData::Unknown { code: RecordType::from(code), rdata: NULL::with(data) }
        }),
    ]
}

/// The reason why messages are stored as bytes: `docs/decisions/0008-dns-messages.md`.
#[test]
fn records_that_hickory_would_change_are_unchanged() {
    let request = query("a.test.", RecordType::ANY);
    // An alias with an uncompressed name, and an SVCB record with unordered keys.
    let alias = &b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x08\x01b\x04test\0"[..];
    let broken = &b"\xc0\x0c\0\x40\0\x01\0\0\0\x3c\0\x0d\0\x01\0\0\x05\0\x01x\0\x03\0\0\0"[..];
    for (record, is_read) in [(alias, true), (broken, false)] {
        let mut received = [&request[..], record].concat();
        (received[2], received[7]) = (0x81, 1);
        let theirs = Message::from_vec(&received).ok().map(|it| it.to_vec().unwrap());
        assert_eq!((theirs.is_some(), theirs.as_ref() == Some(&received)), (is_read, false));
        let ours = parsed(&request, &received).unwrap();
        let ours = ours.write(&Query::parse(&request).unwrap(), Room::Stream, &FRESH);
        assert_eq!(ours[request.len()..], *record);
    }
}

/// Record of any type, unknown ones included, with any data. Records of one hop, which are only
/// allowed in the last section, and SOA records, whose data is read, are rarer.
fn raw_record() -> impl Strategy<Value = Vec<u8>> {
    let owner = prop_oneof![
        Just(b"\xc0\x0c".to_vec()),
        Just(b"\x00".to_vec()),
        "[a-zA-Z]{1,20}".prop_map(|it| [&[it.len() as u8], it.as_bytes(), b"\xc0\x0e"].concat()),
    ];
    let kind = prop_oneof![
        9 => prop::sample::select(vec![1u16, 2, 5, 28, 43, 46, 47, 48, 50, 64, 65, 257, 65_280]),
        9 => any::<u16>(),
        1 => prop::sample::select(vec![6u16, 24, 41, 250]),
    ];
    let data = prop::collection::vec(any::<u8>(), 0..40);
    (owner, kind, any::<u16>(), prop_oneof![0u32..1000, any::<u32>()], data).prop_map(
        |(owner, kind, class, ttl, data)| {
            let length = (data.len() as u16).to_be_bytes();
            let fixed =
                [&kind.to_be_bytes()[..], &class.to_be_bytes(), &ttl.to_be_bytes(), &length];
            [owner, fixed.concat(), data].concat()
        },
    )
}

/// Offsets of the TTLs in `message`, which has one question and is well formed; computed
/// independently of `wire`.
fn ttl_offsets(message: &[u8]) -> Vec<usize> {
    let count = |at: usize| usize::from(message[at]) << 8 | usize::from(message[at + 1]);
    let after_name = |mut at: usize| loop {
        match usize::from(message[at]) {
            0 => break at + 1,
            192.. => break at + 2,
            length => at += 1 + length,
        }
    };
    let mut at = after_name(12) + 4;
    let mut offsets = Vec::new();
    for _ in 0..count(6) + count(8) + count(10) {
        offsets.push(after_name(at) + 4);
        at = after_name(at) + 10 + count(after_name(at) + 8);
    }
    offsets
}

/// Input of libFuzzer that broke `fuzz::fuzz_message`: an answer whose id differs from the query's.
#[test]
fn an_answer_is_the_same_under_another_id() {
    let input = b"\x0a\0\x80\0\0\x01\0\x01\0\0\0\0\0\0\x4a\0\x01\x01\xd6\x0d\0\0\0\x02\0\0\x01\0\x01\0\0\0\
                  \0\0\0\x4a\0\x01\x01\xd6\x0d\0\0\0\x02\0\0\0\0\x0a\x28\0\0\0\0\0\0\0\0\0\x2b\0\0\xf5";
    crate::fuzz::fuzz_message(input);
    let request = query("a.test.", RecordType::A);
    crate::fuzz::fuzz_message(&address(&request, 60, 1));
}

proptest! {
    /// Another implementation reads the same records from the output as from the input.
    #[test]
    fn records_read_the_same_in_another_implementation(
        records in prop::collection::vec((data(), 1u32..100_000, 0u8..3), 0..12), age_s in 0u32..100_000,
    ) {
        let request = query("a.test.", RecordType::ANY);
        let received = answer_with(&request, |message| {
            for (data, ttl, section) in &records {
                let record = hickory_proto::rr::Record::from_rdata(name("x.a.test."), *ttl, data.clone());
                match section {
                    0 => message.add_answer(record),
                    1 => message.add_authority(record),
                    _ => message.add_additional(record),
                };
            }
            message.set_edns(Edns::new());
        });
        let answer = parsed(&request, &received).unwrap();
        let written = answer.write(&Query::parse(&request).unwrap(), Room::Stream, &Ages { age_s, ..FRESH });
        let mut expected = Message::from_vec(&received).unwrap();
        expected.edns = None;
        for record in expected.answers.iter_mut().chain(&mut expected.authorities).chain(&mut expected.additionals) {
            record.ttl = record.ttl.saturating_sub(age_s);
        }
        prop_assert_eq!(Message::from_vec(&written).unwrap(), expected);
    }

    /// Whatever the input, the output contains the same bytes except TTLs, after the question in
    /// the client's spelling.
    #[test]
    fn records_are_forwarded_byte_for_byte(
        records in prop::collection::vec(raw_record(), 0..8), authority in 0usize..8, additional in 0usize..8,
        age_s in 0u32..400, broken in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let request = query("a.TEST.", RecordType::ANY);
        let spelled = query("A.test.", RecordType::ANY);
        let (mut received, question_end) = (request.clone(), request.len());
        received[2] |= 0x80;
        received.extend(records.concat());
        let (answers, rest) = records.split_at(authority.min(records.len()));
        let authorities = additional.min(rest.len());
        for (at, count) in [(7, answers.len()), (9, authorities), (11, rest.len() - authorities)] {
            received[at] = count as u8;
        }
        for (at, byte) in broken {
            let at = at.index(received.len());
            received[at] = byte;
        }
        let Ok(answer) = parsed(&request, &received) else { return Ok(()) };
        let client = Query::parse(&spelled).unwrap();
        let written = answer.write(&client, Room::Stream, &Ages { age_s, ..FRESH });
        prop_assert_eq!(&written[HEADER..question_end], &spelled[HEADER..]);
        prop_assert!(written.len() <= received.len(), "the answer has grown");
        // Sections have their original end, unless a record of one hop and everything after it was
        // left out.
        let ttls = ttl_offsets(&written);
        prop_assert_eq!(&ttls, &ttl_offsets(&received)[..ttls.len()]);
        let mut expected = received[..written.len()].to_vec();
        expected[..question_end].copy_from_slice(&written[..question_end]);
        for at in ttls {
            let ttl = i32::from_be_bytes(received[at..at + 4].try_into().unwrap()).max(0) as u32;
            expected[at..at + 4].copy_from_slice(&ttl.saturating_sub(age_s).to_be_bytes());
        }
        prop_assert_eq!(written, expected);
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        crate::fuzz::fuzz_message(&bytes);
    }
}
