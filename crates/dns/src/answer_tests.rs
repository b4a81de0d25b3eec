use super::*;
use crate::testing::{address, answer_with, denial, failure, key, name, query, query_with, soa};
use hickory_proto::op::{Edns, Message, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, NULL, opt::EdnsOption};
use hickory_proto::rr::{RData, RecordType};
use proptest::prelude::*;

const FRESH: Ages = Ages { age_s: 0, least_s: 0, most_s: u32::MAX, cap_s: u32::MAX, stale: false };

fn parsed(query: &[u8], message: &[u8]) -> Result<Answer, NotAnAnswer> {
    Answer::parse(&key(query), message)
}

#[test]
fn what_answers_say_and_for_how_long() {
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
fn only_whole_answers_to_the_question_are_taken() {
    let query = query("a.test.", RecordType::A);
    let good = address(&query, 300, 1);
    let other = crate::testing::query("b.test.", RecordType::A);
    assert_eq!(parsed(&other, &good), Err(NotAnAnswer::Mismatch));
    let other = crate::testing::query("a.test.", RecordType::AAAA);
    assert_eq!(parsed(&other, &good), Err(NotAnAnswer::Mismatch));
    assert_eq!(parsed(&query, &query), Err(NotAnAnswer::Mismatch));
    let cut = answer_with(&query, |message| message.metadata.truncation = true);
    assert_eq!(parsed(&query, &cut), Err(NotAnAnswer::Truncated));
    for short in 0..good.len() {
        assert!(parsed(&query, &good[..short]).is_err());
    }
}

#[test]
fn the_client_gets_its_own_id_spelling_and_flags() {
    let asked = query("a.test.", RecordType::A);
    let good = answer_with(&asked, |message| {
        message.metadata.authentic_data = true;
        message.metadata.authoritative = true;
        let full = address(&asked, 300, 7);
        message.add_answers(Message::from_vec(&full).unwrap().answers);
    });
    let answer = parsed(&asked, &good).unwrap();
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
fn what_does_not_fit_is_truncated() {
    let asked = query("big.test.", RecordType::NULL);
    let big = answer_with(&asked, |message| {
        let data = RData::NULL(NULL::with(vec![7; 600]));
        message.add_answer(hickory_proto::rr::Record::from_rdata(name("big.test."), 60, data));
    });
    let (answer, client) = (parsed(&asked, &big).unwrap(), Query::parse(&asked).unwrap());
    let cut = Message::from_vec(&answer.write(&client, Room::Packet(1232), &FRESH)).unwrap();
    assert!(cut.metadata.truncation && cut.answers.is_empty() && cut.queries.len() == 1);
    let whole = Message::from_vec(&answer.write(&client, Room::Stream, &FRESH)).unwrap();
    assert!(!whole.metadata.truncation && whole.answers.len() == 1);
}

#[test]
fn the_resolvers_own_edns_stays_behind() {
    let asked = query_with("a.test.", RecordType::A, |message| _ = message.set_edns(Edns::new()));
    let bad = answer_with(&asked, |message| {
        message.metadata.response_code = ResponseCode::BADVERS;
        let mut edns = Edns::new();
        edns.set_rcode_high(1);
        edns.options_mut().insert(EdnsOption::Unknown(15, vec![0, 9, b'x']));
        message.set_edns(edns);
    });
    let answer = parsed(&asked, &bad).unwrap();
    assert_eq!((answer.kind, answer.rcode(), answer.error), (Kind::Failure, 16, Some(9)));
    assert!(Message::from_vec(answer.message()).unwrap().edns.is_none());
    let written = answer.write(&Query::parse(&asked).unwrap(), Room::Stream, &FRESH);
    let read = Message::from_vec(&written).unwrap();
    assert_eq!(read.edns.map(|edns| edns.rcode_high()), Some(1));
    assert!(written.ends_with(&[0, 6, 0, 15, 0, 2, 0, 9]), "its reason is passed on");
}

#[test]
fn the_least_ttl_is_found() {
    let asked = query("no.test.", RecordType::A);
    assert_eq!(least_ttl(&denial(&asked, 900, 60)), Some(900));
    assert_eq!(least_ttl(&address(&asked, 7, 1)), Some(7));
    assert_eq!((least_ttl(&failure(&asked)), least_ttl(b"short")), (None, None));
}

#[test]
fn a_denial_counts_down() {
    let asked = query("no.test.", RecordType::A);
    let answer = parsed(&asked, &denial(&asked, 900, 60)).unwrap();
    let ages = Ages { age_s: 20, cap_s: 40, ..FRESH };
    let written = answer.write(&Query::parse(&asked).unwrap(), Room::Stream, &ages);
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

/// What libFuzzer found to break `fuzz::fuzz_message`: an answer whose number is not that of the question.
#[test]
fn an_answer_is_the_same_under_another_number() {
    let found = b"\x0a\0\x80\0\0\x01\0\x01\0\0\0\0\0\0\x4a\0\x01\x01\xd6\x0d\0\0\0\x02\0\0\x01\0\x01\0\0\0\
                  \0\0\0\x4a\0\x01\x01\xd6\x0d\0\0\0\x02\0\0\0\0\x0a\x28\0\0\0\0\0\0\0\0\0\x2b\0\0\xf5";
    crate::fuzz::fuzz_message(found);
    let asked = query("a.test.", RecordType::A);
    crate::fuzz::fuzz_message(&address(&asked, 60, 1));
}

proptest! {
    /// Another implementation reads the same records from what is written as from what came.
    #[test]
    fn records_pass_untouched(
        records in prop::collection::vec((data(), 1u32..100_000, 0u8..3), 0..12), age_s in 0u32..100_000,
    ) {
        let asked = query("a.test.", RecordType::ANY);
        let came = answer_with(&asked, |message| {
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
        let answer = parsed(&asked, &came).unwrap();
        let written = answer.write(&Query::parse(&asked).unwrap(), Room::Stream, &Ages { age_s, ..FRESH });
        let mut expected = Message::from_vec(&came).unwrap();
        expected.edns = None;
        for record in expected.answers.iter_mut().chain(&mut expected.authorities).chain(&mut expected.additionals) {
            record.ttl = record.ttl.saturating_sub(age_s);
        }
        prop_assert_eq!(Message::from_vec(&written).unwrap(), expected);
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        crate::fuzz::fuzz_message(&bytes);
    }
}
