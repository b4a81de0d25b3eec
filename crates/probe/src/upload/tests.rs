//! Uploads in virtual time, over a link that breaks at any byte.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::Moment;
use crate::random::Random;
use crate::record::{Gap, Measurement, Record, Session};

/// Bytes of a request without its body, of an answer, and of a TCP and TLS handshake.
const HEADER: u64 = 300;
const ANSWER: u64 = 400;
const HANDSHAKE: u64 = 1000;

fn session() -> Session {
    Session {
        id: "5a".repeat(16),
        began: Moment { boot_us: 1, wall_us: 2 },
        software_version: "0".into(),
        platform: "p".into(),
        targets: Vec::new(),
        name_list: "n".into(),
    }
}

/// A record with so many characters that hardly compress.
fn record(number: u64, characters: usize) -> Record {
    let mut random = Random::new(number);
    let failure = (0..characters).map(|_| char::from(b' ' + (random.next_u64() % 95) as u8));
    Record {
        number,
        began: Moment { boot_us: number, wall_us: 3 },
        clock_age_s: -1,
        runtime_us: 7,
        quiet: false,
        activity: None,
        concurrent: Vec::new(),
        measurement: Measurement::Gap(Gap { records: 1, failure: failure.collect() }),
    }
}

/// The store: what it has, and its last receipt.
struct Store {
    records: Vec<Record>,
    last: u64,
    /// Batches by their first record, so that none is packed twice.
    packed: Vec<Batch>,
    /// Receipts until the process is killed before it stores one.
    receipts: u64,
}

impl Source for Store {
    type Error = ();

    fn next(&mut self) -> Result<Option<Batch>, ()> {
        let from = self.records.partition_point(|record| record.number <= self.last);
        let Some(first) = self.records.get(from) else { return Ok(None) };
        let known = self.packed.iter().find(|batch| batch.name.first == first.number);
        if let Some(batch) = known {
            return Ok(Some(batch.clone()));
        }
        let batch = Batch::pack(&session(), &self.records[from..]);
        self.packed.extend(batch.clone());
        Ok(batch)
    }

    fn acknowledge(&mut self, receipt: &Receipt) -> Result<(), ()> {
        self.receipts = self.receipts.checked_sub(1).ok_or(())?;
        self.last = self.last.max(receipt.name.last);
        Ok(())
    }
}

/// The receiver behind a link that breaks after a random number of bytes.
struct Line {
    random: Random,
    mean: f64,
    left: u64,
    is_open: bool,
    cuts: u64,
    requests: u64,
    sent: u64,
    held: Held,
    taken: Vec<Batch>,
    /// One batch in so many is cut when the receiver has it, and is stored during the next request. 0 is none.
    late_one_in: u64,
    /// Such a batch.
    late: Option<Batch>,
    paused: Duration,
}

impl Line {
    fn new(seed: u64, mean: f64, late_one_in: u64) -> Self {
        let mut line = Self {
            random: Random::new(seed),
            mean,
            left: 0,
            is_open: false,
            cuts: 0,
            requests: 0,
            sent: 0,
            held: Held::default(),
            taken: Vec::new(),
            late_one_in,
            late: None,
            paused: Duration::ZERO,
        };
        line.left = line.draw();
        line
    }

    fn draw(&mut self) -> u64 {
        (-self.mean * (1.0 - self.random.unit()).ln()) as u64
    }

    /// Carries bytes up or down, or breaks on the way.
    fn carry(&mut self, up: u64, down: u64) -> Result<(), Fault> {
        self.sent += up.min(self.left);
        match self.left.checked_sub(up + down) {
            Some(left) => self.left = left,
            None => {
                self.cuts += 1;
                (self.left, self.is_open) = (self.draw(), false);
                return Err(Fault::Lost("cut".into()));
            }
        }
        Ok(())
    }

    fn request(&mut self, body: u64) -> Result<(), Fault> {
        self.requests += 1;
        if !self.is_open {
            self.carry(HANDSHAKE, 0)?;
            self.is_open = true;
        }
        self.carry(HEADER + body, 0)
    }

    fn take(&mut self, batch: &Batch) -> Result<Receipt, Fault> {
        let total = match self.held.verdict(&batch.name, batch.body.len() as u64) {
            Verdict::Next { total } => {
                self.held.add(&batch.name, batch.body.len() as u64);
                self.taken.push(batch.clone());
                total
            }
            Verdict::There { total } if self.taken.contains(batch) => total,
            _ => return Err(Fault::Conflict),
        };
        let (name, sha256) = (batch.name.clone(), batch.digest.clone());
        Ok(Receipt { name, sha256, total })
    }
}

impl Receiver for Line {
    fn last(&mut self, session: &str) -> Result<Option<Receipt>, Fault> {
        self.request(0)?;
        let last = self.held.last(session).map(|(name, total)| {
            let sha256 = self.taken.last().expect("a batch").digest.clone();
            Receipt { name, sha256, total }
        });
        if let Some(late) = self.late.take() {
            self.take(&late)?;
        }
        self.carry(0, ANSWER).map(|()| last)
    }

    fn put(&mut self, batch: &Batch) -> Result<Receipt, Fault> {
        self.request(batch.body.len() as u64)?;
        if self.random.next_u64().is_multiple_of(self.late_one_in) {
            self.late = Some(batch.clone());
            self.cuts += 1;
            self.is_open = false;
            return Err(Fault::Lost("the answer is late".into()));
        }
        let receipt = self.take(batch)?;
        self.carry(0, ANSWER).map(|()| receipt)
    }

    fn pause(&mut self, time: Duration, _: &str) -> Result<(), Fault> {
        self.paused += time;
        // The user stops it now and then.
        match self.random.next_u64().is_multiple_of(16) {
            true => Err(Fault::Stopped),
            false => Ok(()),
        }
    }
}

/// Numbers of the records that a receiver has, in their order.
fn numbers(taken: &[Batch]) -> Vec<u64> {
    let mut numbers = Vec::new();
    for batch in taken {
        assert_eq!(batch.check(), Ok(()));
        let text = zstd::stream::decode_all(&batch.body[..]).unwrap();
        let lines = std::str::from_utf8(&text).unwrap().lines();
        numbers.extend(lines.map(|line| crate::record::opened(line).unwrap().1.number));
    }
    numbers
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn each_record_arrives_once(seed: u64, mean in 20_000.0..200_000.0, gap in 1_u64..5) {
        let mut store = Store { records: Vec::new(), last: 0, packed: Vec::new(), receipts: 0 };
        let mut line = Line::new(seed, mean, 8);
        let mut number = 0;
        // Each round is a process: it finds more records than the last one, and is killed, stopped or done.
        for round in 0.. {
            if round < 20 {
                (0..20).for_each(|_| { number += gap; store.records.push(record(number, 800)); });
                store.packed.clear();
            }
            store.receipts = if round < 40 { line.random.next_u64() % 4 } else { u64::MAX };
            let ended = run(&mut store, &mut line);
            prop_assert!(!matches!(ended, Err(End::Refused(_))), "{:?}", ended);
            if round >= 40 && ended.is_ok_and(|sent| !sent.stopped) {
                break;
            }
            prop_assert!(round < 1000, "it comes to an end");
        }
        let expected: Vec<u64> = store.records.iter().map(|record| record.number).collect();
        prop_assert_eq!(numbers(&line.taken), expected);
        let largest = line.taken.iter().map(|batch| batch.body.len()).max().unwrap() as u64;
        prop_assert!(largest <= 16 * 1024);
        let bodies: u64 = line.taken.iter().map(|batch| batch.body.len() as u64).sum();
        // A cut wastes at most one batch; the receiver refuses one more if it was not done.
        let bound = bodies + line.requests * HEADER + line.cuts * (2 * largest + HANDSHAKE) + HANDSHAKE;
        prop_assert!(line.sent <= bound, "{} > {bound}", line.sent);
    }
}

#[test]
fn a_cut_each_minute_costs_less_than_a_twentieth() {
    let records: Vec<Record> = (1..=1500).map(|number| record(number, 800)).collect();
    let mut packed = Vec::new();
    let (mut ratios, mut cuts) = (Vec::new(), 0);
    for seed in 0..100 {
        let mut store = Store { records: records.clone(), last: 0, packed, receipts: u64::MAX };
        // 60 s at 64 kbit/s.
        let mut line = Line::new(seed, 480_000.0, 0);
        while run(&mut store, &mut line).is_ok_and(|sent| sent.stopped) {}
        let bodies: u64 = line.taken.iter().map(|batch| batch.body.len() as u64).sum();
        assert!(bodies > 1_000_000, "{bodies}");
        ratios.push(line.sent as f64 / bodies as f64);
        (packed, cuts) = (store.packed, cuts + line.cuts);
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    println!("{} uploads, {cuts} cuts: {mean:.3} bytes sent per byte", ratios.len());
    assert!(cuts > 200 && mean <= 1.05, "{mean}");
}

#[test]
fn what_is_not_a_batch() {
    let records: Vec<Record> = (1..=9).map(|number| record(number, 20)).collect();
    let good = Batch::pack(&session(), &records).unwrap();
    assert_eq!((good.check(), good.name.records), (Ok(()), 9));
    assert_eq!(Name::parse(&good.name.session, &good.name.to_string()), Some(good.name.clone()));
    let with = |body: Vec<u8>| Batch { digest: digest(&body), body, ..good.clone() }.check();
    assert_eq!(Batch { digest: "0".repeat(64), ..good.clone() }.check(), Err(NotABatch::Digest));
    assert_eq!(with(good.body[1..].to_vec()), Err(NotABatch::Compression));
    assert_eq!(with(good.body[..good.body.len() - 1].to_vec()), Err(NotABatch::Compression));
    let bomb = zstd::bulk::compress(&vec![b'\n'; 100 << 20], 3).unwrap();
    assert!(bomb.len() < MAX_BODY, "{}", bomb.len());
    assert_eq!(with(bomb), Err(NotABatch::Compression));
    let text = |text: &str| with(zstd::bulk::compress(text.as_bytes(), 3).unwrap());
    for line in ["{}", "[]", "\n", "7", &"[".repeat(100_000)] {
        assert_eq!(text(line), Err(NotABatch::Line(1)), "{}", &line[..line.len().min(9)]);
    }
    assert_eq!(text(""), Err(NotABatch::Range));
    let lines = zstd::stream::decode_all(&good.body[..]).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    assert_eq!(text(&format!("{lines}{lines}")), Err(NotABatch::Line(10)), "twice");
    let other = lines.replacen(&good.name.session, &"7".repeat(32), 2);
    assert_eq!(text(&other), Err(NotABatch::Line(1)), "another session");
    let fewer = Batch::pack(&session(), &records[1..]).unwrap();
    assert_eq!(with(fewer.body), Err(NotABatch::Range));
}

#[test]
fn names_are_parts_of_paths() {
    let id = "5a".repeat(16);
    let id = id.as_str();
    assert!(Name::parse(id, "000000000001-000000000009-9").is_some());
    for (session, range) in [
        ("..", "000000000001-000000000009-9"),
        (&id[1..], "000000000001-000000000009-9"),
        (id, "1-9-9"),
        (id, "000000000009-000000000001-1"),
        (id, "000000000001-000000000009-10"),
        (id, "000000000001-000000000009-0"),
        (id, "000000000000-000000000009-9"),
        (id, "+00000000001-000000000009-9"),
        (id, "9999999999999-9999999999999-1"),
        (id, "../../etc/passwd"),
        (id, ""),
    ] {
        assert_eq!(Name::parse(session, range), None, "{session} {range}");
    }
}

#[test]
fn a_receiver_that_refuses_ends_the_upload() {
    struct Stubborn(Vec<Duration>, Fault);
    impl Receiver for Stubborn {
        fn last(&mut self, _: &str) -> Result<Option<Receipt>, Fault> {
            Ok(None)
        }
        fn put(&mut self, batch: &Batch) -> Result<Receipt, Fault> {
            let name = Name { last: batch.name.last + 1, ..batch.name.clone() };
            match &self.1 {
                Fault::Stopped => Ok(Receipt { name, sha256: batch.digest.clone(), total: 9 }),
                fault => Err(fault.clone()),
            }
        }
        fn pause(&mut self, time: Duration, _: &str) -> Result<(), Fault> {
            self.0.push(time);
            if self.0.len() < 12 { Ok(()) } else { Err(Fault::Stopped) }
        }
    }
    let mut store =
        Store { records: vec![record(1, 9)], last: 0, packed: Vec::new(), receipts: u64::MAX };
    let mut ended = |fault| {
        let mut receiver = Stubborn(Vec::new(), fault);
        (run(&mut store, &mut receiver), receiver.0)
    };
    assert!(
        matches!(ended(Fault::Refused("no".into())), (Err(End::Refused(why)), _) if why == "no")
    );
    assert!(matches!(ended(Fault::Stopped), (Err(End::Refused(_)), _)), "another batch's receipt");
    let (conflicts, pauses) = ended(Fault::Conflict);
    assert!(matches!(conflicts, Err(End::Refused(_))) && pauses.len() == 3);
    let (lost, pauses) = ended(Fault::Lost("cut".into()));
    assert!(lost.unwrap().stopped);
    let seconds: Vec<u64> = pauses.iter().map(Duration::as_secs).collect();
    assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
}
