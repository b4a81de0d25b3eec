//! Padding of answers on encrypted transports (RFC 7830), so that their length reveals little about
//! the name.

use hickory_proto::rr::RecordType;
use hickory_proto::rr::rdata::opt::EdnsCode;

use crate::wire::{self, Record};

/// Block size of padded answers (RFC 8467 section 4.1).
const BLOCK: usize = 468;

/// Returns `true` if `query` requests a padded answer. Pad the answer only if it crosses encrypted
/// (RFC 7830 section 4).
pub fn wants_padding(query: &[u8]) -> bool {
    opt(query).is_some_and(|opt| wire::options(opt.data).any(|(code, _)| code == EdnsCode::Padding))
}

/// Pads `answer`, which a [`Resolver`](crate::Resolver) has written: its OPT record is the last.
pub fn pad(answer: &mut Vec<u8>) {
    let Some(opt) = opt(answer).filter(|opt| opt.end() == answer.len()) else { return };
    let (data_at, length) = (opt.data_at, opt.data.len());
    let with_option = answer.len() + 4;
    let target = with_option.next_multiple_of(BLOCK).min(usize::from(u16::MAX));
    let Some(padding) = target.checked_sub(with_option) else { return };
    let longer = (length + 4 + padding) as u16;
    answer[data_at - 2..data_at].copy_from_slice(&longer.to_be_bytes());
    answer.extend(u16::from(EdnsCode::Padding).to_be_bytes());
    answer.extend((padding as u16).to_be_bytes());
    answer.resize(target, 0);
}

/// OPT record of `message`.
fn opt(message: &[u8]) -> Option<Record<'_>> {
    let (header, mut rest) = wire::header(message).ok()?;
    for _ in 0..header.counts.queries {
        wire::skip_question(&mut rest).ok()?;
    }
    let counts = [header.counts.answers, header.counts.authorities, header.counts.additionals];
    for _ in 0..counts.map(u32::from).iter().sum() {
        let record = Record::read(&mut rest).ok()?;
        if record.kind == RecordType::OPT {
            return Some(record);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{address, query, query_with};
    use crate::{Answer, Query, Room};
    use hickory_proto::op::{Edns, Message};
    use hickory_proto::rr::RecordType;
    use hickory_proto::rr::rdata::opt::EdnsOption;
    use proptest::prelude::*;

    fn padded_query(name: &str, padding: usize) -> Vec<u8> {
        query_with(name, RecordType::A, |message| {
            let mut edns = Edns::new();
            edns.options_mut().insert(EdnsOption::Unknown(10, vec![7; 8]));
            edns.options_mut()
                .insert(EdnsOption::Unknown(EdnsCode::Padding.into(), vec![0; padding]));
            message.set_edns(edns);
        })
    }

    #[test]
    fn padded_queries_get_padded_answers() {
        assert!(
            wants_padding(&padded_query("a.test.", 0))
                && wants_padding(&padded_query("a.test.", 90))
        );
        let edns = query_with("a.test.", RecordType::A, |it| _ = it.set_edns(Edns::new()));
        assert!(!wants_padding(&edns) && !wants_padding(&query("a.test.", RecordType::A)));
        let mut lengths = Vec::new();
        for name in ["a.test.", "a-much-longer-name.with-more-labels.test."] {
            let query = padded_query(name, 5);
            let query = Query::parse(&query).unwrap();
            let answer =
                Answer::parse(&query.key, &address(&padded_query(name, 5), 300, 1)).unwrap();
            let plain = answer.relay(&query, Room::Stream);
            let mut padded = plain.clone();
            pad(&mut padded);
            let [plain, read] = [&plain, &padded].map(|it| Message::from_vec(it).unwrap());
            assert_eq!((read.answers, read.queries), (plain.answers, plain.queries));
            assert!(read.edns.is_some() && wants_padding(&padded));
            lengths.push(padded.len());
        }
        assert_eq!(lengths, [BLOCK, BLOCK]);
    }

    #[test]
    fn answers_without_edns_are_unchanged() {
        let plain = query("a.test.", RecordType::A);
        let mut same = plain.clone();
        pad(&mut same);
        assert_eq!(same, plain, "no EDNS");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            wants_padding(&bytes);
            let before = bytes.clone();
            pad(&mut bytes);
            prop_assert!(bytes.len() == before.len() || bytes.len() % BLOCK == 0);
        }
    }
}
