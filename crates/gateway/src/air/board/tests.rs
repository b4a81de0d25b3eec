use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

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

/// A link that has nothing but streams, on which nothing comes.
#[derive(Default)]
struct OnlyStreams {
    /// Those that were opened, and those that are open.
    opened: AtomicUsize,
    open: Arc<AtomicUsize>,
}

/// A stream that is counted as long as it is there.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl FarEnd for OnlyStreams {
    fn open(&self, _: Open) -> BoxFuture<'_, Result<Box<dyn FarStream>, OpenError>> {
        self.opened.fetch_add(1, SeqCst);
        self.open.fetch_add(1, SeqCst);
        let counted = Counted(self.open.clone());
        Box::pin(async move {
            let _counted = counted;
            std::future::pending().await
        })
    }

    fn open_datagrams(
        &self,
        _: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FarDatagrams>, OpenError>> {
        Box::pin(async { Err(OpenError::Unsupported) })
    }

    fn reach(&self) -> Reach {
        Reach::Up
    }
}

impl OnlyStreams {
    /// Streams that were opened so far, and that are open.
    fn streams(&self) -> (usize, usize) {
        (self.opened.load(SeqCst), self.open.load(SeqCst))
    }
}

fn start(far: &Arc<Silent>, cache_file: Option<&std::path::Path>) -> (Arc<Board>, Serving) {
    start_over(far.clone(), cache_file)
}

fn start_over(far: Arc<dyn FarEnd>, cache_file: Option<&std::path::Path>) -> (Arc<Board>, Serving) {
    let mut config: AirDns = toml::from_str("listen = [\"127.0.0.1:0\"]").unwrap();
    config.cache_file = cache_file.map(Into::into);
    start_with(&config, far).unwrap()
}

fn start_with(config: &AirDns, far: Arc<dyn FarEnd>) -> Result<(Arc<Board>, Serving), StartError> {
    Board::start(config, Arc::new(Classes::new(Default::default())), far, Arc::default())
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
        let answer = board
            .ask(Source::Stream([10, 0, 0, 2].into()), question(name).into(), Room::Stream)
            .await;
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

#[tokio::test(start_paused = true)]
async fn a_question_has_one_stream_however_often_it_would_be_sent_again() {
    let far = Arc::<OnlyStreams>::default();
    let (board, mut serving) = start_over(far.clone(), None);
    let carried = board.clone();
    tokio::spawn(async move { carried.carry(&mut serving.asked).await });
    let ask =
        board.ask(Source::Stream([10, 0, 0, 2].into()), question("slow").into(), Room::Stream);
    let asked = async {
        // Where datagrams are lost it would have been sent three times more.
        tokio::time::sleep(Duration::from_millis(11_900)).await;
        far.streams()
    };
    let (answer, streams) = tokio::join!(ask, asked);
    assert_eq!((rcode(&answer.unwrap()), streams), (2, (1, 1)));
    tokio::time::sleep(LOOKED).await;
    assert_eq!(far.streams(), (1, 0), "it is over, and so is its stream");
    assert_eq!(board.counts().sent_again, 0);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_ends_for_another_gives_its_stream_back() {
    let far = Arc::<OnlyStreams>::default();
    let (board, mut serving) = start_over(far.clone(), None);
    let carried = board.clone();
    tokio::spawn(async move { carried.carry(&mut serving.asked).await });
    let ask = |client: u8, name: String| {
        let board = board.clone();
        tokio::spawn(async move {
            board
                .ask(
                    Source::Stream([10, 0, 0, client].into()),
                    question(&name).into(),
                    Room::Stream,
                )
                .await
        })
    };
    // It is known from the first that there are only streams; all of them are taken by two.
    let mut first = vec![ask(1, "first".into())];
    tokio::time::sleep(LOOKED).await;
    for n in 1..streams::MOST_STREAMS {
        first.push(ask(1 + (n % 2) as u8, format!("n{n}")));
    }
    tokio::time::sleep(LOOKED).await;
    let most = streams::MOST_STREAMS;
    assert_eq!(far.streams(), (most, most));
    let others: Vec<_> = (0..20).map(|n| ask(3, format!("other{n}"))).collect();
    tokio::time::sleep(LOOKED).await;
    assert_eq!(far.streams(), (most + 20, most), "as many have ended as have begun");
    assert!(others.iter().all(|other| !other.is_finished()), "none was told that there is no room");
    assert_eq!(first.iter().filter(|first| first.is_finished()).count(), 20);
}

/// Time after which every visible event has been seen.
const LOOKED: Duration = Duration::from_millis(300);

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
    let second = start_with(&config, far.clone());
    let error = second.err().unwrap().to_string();
    assert!(error.contains("another process") && error.contains("cache-file"), "{error}");
}

#[tokio::test]
async fn a_disk_that_takes_nothing_keeps_no_gateway_from_starting() {
    let far = Arc::<Silent>::default();
    // The file's lock cannot be made, as in a folder that is read-only; or no new file, as on a full disk.
    for in_the_way in ["dns.cache.lock", "dns.cache.new"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dns.cache");
        {
            let (board, mut serving) = start(&far, Some(&path));
            learn(&board, "early");
            serving.finish(&board).await;
        }
        let in_the_way = folder.path().join(in_the_way);
        let _ = std::fs::remove_file(&in_the_way);
        std::fs::create_dir_all(in_the_way.join("x")).unwrap();
        let (board, mut serving) = start(&far, Some(&path));
        assert_eq!(board.lock().kept().0, 1, "what is there is read");
        learn(&board, "late");
        serving.finish(&board).await;
        let count = || Records::of(&std::fs::read(&path).unwrap()).count();
        assert_eq!(count(), 1);
        std::fs::remove_dir_all(&in_the_way).unwrap();
        serving.finish(&board).await;
        assert_eq!(count(), 2, "and all is kept as soon as that can be");
    }
}

#[tokio::test(start_paused = true)]
async fn what_limits_refuse_is_counted() {
    let far = Arc::<Silent>::default();
    far.up.store(true, SeqCst);
    let (board, _serving) = start(&far, None);
    let from = Source::Stream([10, 0, 0, 1].into());
    let settings = Settings::default();
    let burst = settings.client_burst as u64;
    for n in 0..burst + 10 {
        let asked = question(&format!("n{n}"));
        board.query(from, &asked, Room::Stream, Box::new(|_| {}));
    }
    let refusals = &board.counters.refusals;
    assert_eq!(refusals.count_refused(Limit::DnsQuestions), 10);
    assert_eq!(refusals.count_evicted(Limit::DnsQuestions), 0);
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
