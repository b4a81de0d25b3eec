use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use bentpipe_dns::journal::{Place, Record, Records};
use futures_util::future::BoxFuture;
use tokio::task::yield_now;

use super::*;
use crate::far::{FarDatagrams, FarStream, Open, OpenDatagrams, OpenError, Reach};

/// A link on which nothing comes, and that is there or not.
#[derive(Default)]
struct Silent {
    up: AtomicBool,
}

impl FarEnd for Silent {
    fn open(&self, _: Open) -> BoxFuture<'_, Result<Box<dyn FarStream>, OpenError>> {
        Box::pin(std::future::pending())
    }

    fn open_datagrams(
        &self,
        _: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FarDatagrams>, OpenError>> {
        Box::pin(std::future::pending())
    }

    fn reach(&self) -> Reach {
        if self.up.load(SeqCst) { Reach::Up } else { Reach::Out }
    }
}

fn start(far: &Arc<Silent>, cache_file: Option<&std::path::Path>) -> (Arc<Board>, Serving) {
    let mut config: AirDns = toml::from_str("listen = [\"127.0.0.1:0\"]").unwrap();
    config.cache_file = cache_file.map(Into::into);
    Board::start(&config, Arc::new(Classes::new(Default::default())), far.clone()).unwrap()
}

fn question(name: &str) -> Vec<u8> {
    let head = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, name.len() as u8];
    [&head[..], name.as_bytes(), &[0, 0, 1, 0, 1]].concat()
}

/// Makes `name` known, as if the ground had said it.
fn learn(board: &Board, name: &str) {
    let asked = question(name);
    let from = Source::Stream([10, 0, 0, 1].into());
    let mut front = board.lock();
    let now = board.clock.now();
    assert!(front.query((Box::new(|_| {}), from), &asked, Room::Stream, now).is_none());
    let Some(Action::Ask { message, .. }) = front.poll() else { panic!("it asks nothing") };
    let query = bentpipe_dns::Query::parse(&message).unwrap();
    front.answered(&query.addresses(&[[192, 0, 2, 1].into()], 300), now);
    while front.poll().is_some() {}
}

fn rcode(answer: &[u8]) -> u8 {
    answer[3] & 0xf
}

#[tokio::test(start_paused = true)]
async fn an_outage_keeps_nobody_waiting() {
    let far = Arc::<Silent>::default();
    let (board, mut serving) = start(&far, None);
    learn(&board, "known");
    let carried = board.clone();
    tokio::spawn(async move { carried.carry(&mut serving.asked).await });
    let ask = async |name: &str| {
        let began = Instant::now();
        let answer = board.ask([10, 0, 0, 2].into(), question(name).into(), Room::Stream).await;
        (rcode(&answer.unwrap()), began.elapsed())
    };
    // The flow that is being opened is waited for by nobody but the first who asks, and not for long.
    let (code, took) = ask("first").await;
    assert_eq!(code, 2);
    assert!(took <= Duration::from_millis(2250), "{took:?}");
    for n in 0..100 {
        assert_eq!(ask(&format!("n{n}")).await, (2, Duration::ZERO));
    }
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(ask("known").await, (0, Duration::ZERO), "stale");
    // It is noticed by the first question when the link is back.
    far.up.store(true, SeqCst);
    let (code, took) = ask("first").await;
    assert_eq!((code, took), (2, Duration::from_secs(12)), "the ground says nothing");
}

#[tokio::test]
async fn what_is_being_written_when_it_ends_is_neither_lost_nor_torn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dns.cache");
    let far = Arc::<Silent>::default();
    for round in 0..20 {
        let (board, mut serving) = start(&far, Some(&path));
        let keeper = serving.keeper.as_mut().unwrap();
        learn(&board, &format!("begun{round}"));
        tokio::select! {
            biased;
            () = keeper.keep(&board) => {}
            // After its first turn, when a thread has begun to write, or is about to.
            () = yield_now() => {}
        }
        learn(&board, &format!("last{round}"));
        serving.finish(&board).await;
        drop(serving);
        let bytes = Place::claim(&path).unwrap().read().unwrap();
        let is_answer = |record: &Record| matches!(record, Record::Answer { .. });
        assert_eq!(Records::of(&bytes).filter(is_answer).count(), 2 * (round + 1));
    }
}

#[tokio::test]
async fn a_journal_has_one_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dns.cache");
    let far = Arc::<Silent>::default();
    let (_board, _serving) = start(&far, Some(&path));
    let mut config: AirDns = toml::from_str("listen = [\"127.0.0.1:0\"]").unwrap();
    config.cache_file = Some(path);
    let second = Board::start(&config, Arc::new(Classes::new(Default::default())), far.clone());
    let error = second.err().unwrap().to_string();
    assert!(error.contains("another process") && error.contains("cache-file"), "{error}");
}

#[test]
fn every_count_is_explained() {
    let [status, page] =
        [include_str!("../../../../../docs/status.md"), include_str!("../../../../../docs/dns.md")];
    for (name, _) in Counts::default().all() {
        let row = format!("| `dns_{}` | ", name.replace('-', "_"));
        assert!(status.contains(&row), "docs/status.md lacks {row}");
        assert!(page.contains(&format!("`{name}`")), "docs/dns.md lacks {name}");
    }
}
