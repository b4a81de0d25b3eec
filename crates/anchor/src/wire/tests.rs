use super::*;
use crate::outgoing::Outgoing;
use proptest::prelude::*;

/// Sink that notes everything.
#[derive(Default)]
struct Noted {
    records: Vec<Control>,
    data: usize,
}

impl Sink for Noted {
    fn data(&mut self, bytes: usize) -> Result<usize, Malformed> {
        self.data += bytes;
        Ok(0)
    }

    fn control(&mut self, record: Control) -> Result<(), Malformed> {
        self.records.push(record);
        Ok(())
    }
}

fn ticket() -> impl Strategy<Value = Ticket> {
    any::<[u8; TICKET_BYTES]>().prop_map(Ticket::from)
}

fn control() -> impl Strategy<Value = Control> {
    prop_oneof![
        (any::<FlowId>(), any::<u32>(), "[a-z]{1,60}", any::<u16>()).prop_map(
            |(id, attempt, name, port)| {
                let host = bentpipe_flow::Host::Name(name);
                Control::Open { id, attempt, target: Target { host, port } }
            }
        ),
        (any::<FlowId>(), any::<u32>(), ticket(), any::<u64>()).prop_map(
            |(id, attempt, ticket, received)| Control::Resume { id, attempt, ticket, received }
        ),
        (any::<u64>(), any::<u64>(), ticket(), prop::option::of(0_u8..8)).prop_map(
            |(received, start, ticket, class)| Control::Accept { received, start, ticket, class }
        ),
        any::<u64>().prop_map(Control::Confirm),
        Just(Control::Fin),
        any::<u8>().prop_map(Control::Class),
        prop::sample::select(&ResetCode::ALL[..]).prop_map(Control::End),
        prop::sample::select(&ResetCode::ALL[..]).prop_map(Control::Stop),
        Just(Control::Watch),
        Just(Control::Directory),
    ]
}

/// Data with many marks, whole and in part.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(MARK[0]), Just(MARK[1]), any::<u8>()];
    prop::collection::vec(byte, 0..300)
}

proptest! {
    #[test]
    fn records_and_data_read_back_in_pieces_of_any_size(
        records in prop::collection::vec((control(), data()), 0..8),
        pieces in prop::collection::vec(1_usize..200, 1..20),
    ) {
        let (mut outgoing, mut bytes) = (Outgoing::default(), Vec::new());
        let mut written = Vec::<u8>::new();
        let mut sizes = pieces.iter().cycle();
        for (record, data) in &records {
            outgoing.queue(record);
            outgoing.write(data);
            written.extend(data);
            loop {
                let next = outgoing.output();
                if next.is_empty() {
                    break;
                }
                let count = next.len().min(*sizes.next().unwrap());
                bytes.extend(&next[..count]);
                outgoing.written(count);
            }
        }
        prop_assert_eq!(outgoing.unsent_bytes(), 0);
        let (mut decoder, mut noted) = (Decoder::default(), Noted::default());
        let mut read = Vec::<u8>::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            let mut piece = [decoder.left(), piece].concat();
            let kept = decoder.decode(&mut piece, &mut noted).unwrap();
            read.extend(&piece[..kept]);
            rest = after;
        }
        prop_assert!(decoder.is_between_records());
        prop_assert_eq!(read, written);
        prop_assert_eq!(noted.records, records.into_iter().map(|(it, _)| it).collect::<Vec<_>>());
    }

    #[test]
    fn no_bytes_panic(mut bytes in data()) {
        let mut decoder = Decoder::default();
        let _ = decoder.decode(&mut bytes, &mut Noted::default());
        let _ = Control::first(&bytes);
    }

    #[test]
    fn a_first_record_is_told_from_what_follows(record in control(), data in data()) {
        let mut bytes = Vec::new();
        record.put(&mut bytes);
        let length = bytes.len();
        for short in 0..length {
            prop_assert_eq!(Control::first(&bytes[..short]), Ok(None));
        }
        bytes.extend(data);
        prop_assert_eq!(Control::first(&bytes), Ok(Some((record, length))));
    }
}

#[test]
fn data_has_no_header_and_its_marks_have_one() {
    let encoded = |data: &[u8]| {
        let (mut outgoing, mut bytes) = (Outgoing::default(), Vec::new());
        outgoing.write(data);
        while !outgoing.output().is_empty() {
            let next = outgoing.output().to_vec();
            outgoing.written(next.len());
            bytes.extend(next);
        }
        bytes
    };
    assert_eq!(encoded(b"abc"), b"abc");
    assert_eq!(encoded(b"\xf7\xf7c"), b"\xf7\xf7c");
    assert_eq!(encoded(b"a\xf7\x1dc"), b"a\xf7\x1d\0c");
    assert_eq!(encoded(b"\xf7\xf7\x1d"), b"\xf7\xf7\x1d\0");
    assert_eq!(encoded(b"ab\xf7"), b"ab\xf7\x1d\x0a");
}

#[test]
fn unknown_and_endless_records_are_malformed() {
    for mut wrong in [b"\xf7\x1d\x0e".to_vec(), b"a\xf7\x1d\xff".to_vec()] {
        assert!(Decoder::default().decode(&mut wrong, &mut Noted::default()).is_err());
    }
    assert!(Control::first(b"a").is_err());
    let endless = [&MARK[..], &[1], &[0; 16], &[0; 4]].concat();
    assert_eq!(Control::first(&endless), Ok(None));
}
