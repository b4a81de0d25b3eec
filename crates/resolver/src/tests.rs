use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bentpipe_dns::journal::{JournalLock, Record, Records};
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::Instant;

use std::sync::Arc;
use std::time::Duration;

use super::resolver::*;
use super::*;
use crate::error::StartError;
use bentpipe_config::AirDns;
use bentpipe_dns::{Action, Counts, Room, Settings, Source};
use bentpipe_metering::refusals::Limit;
use bentpipe_transport::Connector;
use bentpipe_transport::{FlowDatagrams, FlowStream, Open, OpenDatagrams, OpenError, Reach};
use bentpipe_uplink::classes::Classes;
use bentpipe_uplink::passengers::EVERYONE_ELSE;

/// A silent link that can be up or down.
struct Silent {
    reach: watch::Sender<Reach>,
}

impl Default for Silent {
    fn default() -> Self {
        Self { reach: watch::Sender::new(Reach::Out) }
    }
}

impl Connector for Silent {
    fn open(&self, _: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        Box::pin(std::future::pending())
    }

    fn open_datagrams(
        &self,
        _: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
        Box::pin(std::future::pending())
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }
}

/// A silent link that has only streams.
#[derive(Default)]
struct OnlyStreams {
    /// Streams opened so far, and streams open now.
    opened: AtomicUsize,
    open: Arc<AtomicUsize>,
}

/// A stream that is counted while it exists.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Connector for OnlyStreams {
    fn open(&self, open: Open) -> BoxFuture<'_, Result<Box<dyn FlowStream>, OpenError>> {
        assert_ne!(open.passenger, EVERYONE_ELSE, "invented sources would share its turns");
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
        open: OpenDatagrams,
    ) -> BoxFuture<'_, Result<Box<dyn FlowDatagrams>, OpenError>> {
        assert_ne!(open.passenger, EVERYONE_ELSE, "invented sources would share its turns");
        Box::pin(async { Err(OpenError::Unsupported) })
    }

    fn watch_reach(&self) -> watch::Receiver<Reach> {
        watch::channel(Reach::Up).1
    }
}

impl OnlyStreams {
    /// Number of streams opened so far, and open now.
    fn streams(&self) -> (usize, usize) {
        (self.opened.load(SeqCst), self.open.load(SeqCst))
    }
}

fn start(
    connector: &Arc<Silent>,
    cache_file: Option<&std::path::Path>,
) -> (Arc<Resolver>, Serving) {
    start_over(connector.clone(), cache_file)
}

fn start_over(
    connector: Arc<dyn Connector>,
    cache_file: Option<&std::path::Path>,
) -> (Arc<Resolver>, Serving) {
    start_with(&listening(cache_file), connector).unwrap()
}

fn listening(cache_file: Option<&std::path::Path>) -> AirDns {
    AirDns {
        listen: vec![([127, 0, 0, 1], 0).into()],
        cache_file: cache_file.map(Into::into),
        ..AirDns::default()
    }
}

fn start_with(
    config: &AirDns,
    connector: Arc<dyn Connector>,
) -> Result<(Arc<Resolver>, Serving), StartError> {
    Serving::start(config, Arc::new(Classes::new(Default::default())), connector, Arc::default())
}

fn question(name: &str) -> Vec<u8> {
    let head = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, name.len() as u8];
    [&head[..], name.as_bytes(), &[0, 0, 1, 0, 1]].concat()
}

/// Makes `name` known by an answer of the ground's resolver.
fn learn(resolver: &Resolver, name: &str) {
    let asked = question(name);
    let from = Source::Stream([10, 0, 0, 1].into());
    let mut core = resolver.lock();
    let now = resolver.clock.now();
    assert!(core.query((Box::new(|_| {}), from), &asked, Room::Stream, now).is_none());
    let Some(Action::Query { message, .. }) = core.poll() else { panic!("it asks nothing") };
    let query = bentpipe_dns::Query::parse(&message).unwrap();
    core.on_answer(&query.addresses(&[[192, 0, 2, 1].into()], 300), now);
    while core.poll().is_some() {}
}

fn rcode(answer: &[u8]) -> u8 {
    answer[3] & 0xf
}

#[tokio::test(start_paused = true)]
async fn an_outage_keeps_nobody_waiting() {
    let connector = Arc::<Silent>::default();
    let (resolver, mut serving) = start(&connector, None);
    learn(&resolver, "known");
    let carried = resolver.clone();
    tokio::spawn(async move { carried.carry(&mut serving.asked).await });
    let ask = async |name: &str| {
        let began = Instant::now();
        let answer = resolver
            .ask(Source::Stream([10, 0, 0, 2].into()), question(name).into(), Room::Stream)
            .await;
        (rcode(&answer.unwrap()), began.elapsed())
    };
    // Only the first query waits for the flow being opened, and only briefly.
    let (code, took) = ask("first").await;
    assert_eq!(code, 2);
    assert!(took <= Duration::from_millis(2250), "{took:?}");
    for n in 0..100 {
        assert_eq!(ask(&format!("n{n}")).await, (2, Duration::ZERO));
    }
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(ask("known").await, (0, Duration::ZERO), "stale");
    // The first query after the link's return notices it.
    connector.reach.send_replace(Reach::Up);
    let (code, took) = ask("first").await;
    assert_eq!((code, took), (2, Duration::from_secs(12)), "the ground says nothing");
}

#[tokio::test(start_paused = true)]
async fn a_question_has_one_stream_however_often_it_would_be_sent_again() {
    let connector = Arc::<OnlyStreams>::default();
    let (resolver, mut serving) = start_over(connector.clone(), None);
    let carried = resolver.clone();
    tokio::spawn(async move { carried.carry(&mut serving.asked).await });
    let ask =
        resolver.ask(Source::Stream([10, 0, 0, 2].into()), question("slow").into(), Room::Stream);
    let asked = async {
        // With datagrams, it would have been repeated three times.
        tokio::time::sleep(Duration::from_millis(11_900)).await;
        connector.streams()
    };
    let (answer, streams) = tokio::join!(ask, asked);
    assert_eq!((rcode(&answer.unwrap()), streams), (2, (1, 1)));
    tokio::time::sleep(LOOKED).await;
    assert_eq!(connector.streams(), (1, 0), "it is over, and so is its stream");
    assert_eq!(resolver.counts().sent_again, 0);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_ends_for_another_gives_its_stream_back() {
    let connector = Arc::<OnlyStreams>::default();
    let (resolver, mut serving) = start_over(connector.clone(), None);
    let carried = resolver.clone();
    tokio::spawn(async move { carried.carry(&mut serving.asked).await });
    let ask = |client: u8, name: String| {
        let resolver = resolver.clone();
        tokio::spawn(async move {
            resolver
                .ask(
                    Source::Stream([10, 0, 0, client].into()),
                    question(&name).into(),
                    Room::Stream,
                )
                .await
        })
    };
    // The first query reveals that there are only streams; two askers occupy all of them.
    let mut first = vec![ask(1, "first".into())];
    tokio::time::sleep(LOOKED).await;
    for n in 1..streams::MAX_STREAMS {
        first.push(ask(1 + (n % 2) as u8, format!("n{n}")));
    }
    tokio::time::sleep(LOOKED).await;
    let most = streams::MAX_STREAMS;
    assert_eq!(connector.streams(), (most, most));
    let others: Vec<_> = (0..20).map(|n| ask(3, format!("other{n}"))).collect();
    tokio::time::sleep(LOOKED).await;
    assert_eq!(connector.streams(), (most + 20, most), "as many have ended as have begun");
    assert!(others.iter().all(|other| !other.is_finished()), "none was told that there is no room");
    assert_eq!(first.iter().filter(|first| first.is_finished()).count(), 20);
}

/// Time after which all visible events have been seen.
const LOOKED: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_journal_write_at_the_end_is_neither_lost_nor_torn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dns.cache");
    let connector = Arc::<Silent>::default();
    for round in 0..20 {
        let (resolver, mut serving) = start(&connector, Some(&path));
        let journal = serving.journal.as_mut().unwrap();
        learn(&resolver, &format!("begun{round}"));
        tokio::select! {
            biased;
            () = journal.keep(&resolver) => {}
            // After its first turn, when a thread is writing or about to write.
            () = yield_now() => {}
        }
        learn(&resolver, &format!("last{round}"));
        serving.finish(&resolver).await;
        drop(serving);
        let bytes = JournalLock::acquire(&path).unwrap().read().unwrap();
        let is_answer = |record: &Record| matches!(record, Record::Answer { .. });
        assert_eq!(Records::of(&bytes).filter(is_answer).count(), 2 * (round + 1));
    }
}

#[tokio::test]
async fn a_journal_has_one_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dns.cache");
    let connector = Arc::<Silent>::default();
    let (_board, _serving) = start(&connector, Some(&path));
    let second = start_with(&listening(Some(&path)), connector.clone());
    let error = second.err().unwrap().to_string();
    assert!(error.contains("another process") && error.contains("cache-file"), "{error}");
}

#[tokio::test]
async fn a_disk_that_takes_nothing_keeps_no_gateway_from_starting() {
    let connector = Arc::<Silent>::default();
    // The lock file cannot be created, as in a read-only folder; or the new file cannot, as on a
    // full disk.
    for in_the_way in ["dns.cache.lock", "dns.cache.new"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dns.cache");
        {
            let (resolver, mut serving) = start(&connector, Some(&path));
            learn(&resolver, "early");
            serving.finish(&resolver).await;
        }
        let in_the_way = folder.path().join(in_the_way);
        let _ = std::fs::remove_file(&in_the_way);
        std::fs::create_dir_all(in_the_way.join("x")).unwrap();
        let (resolver, mut serving) = start(&connector, Some(&path));
        assert_eq!(resolver.lock().cached().0, 1, "what is there is read");
        learn(&resolver, "late");
        serving.finish(&resolver).await;
        let count = || Records::of(&std::fs::read(&path).unwrap()).count();
        assert_eq!(count(), 1);
        std::fs::remove_dir_all(&in_the_way).unwrap();
        serving.finish(&resolver).await;
        assert_eq!(count(), 2, "and all is kept as soon as that can be");
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_by_limits_are_counted() {
    let connector = Arc::<Silent>::default();
    connector.reach.send_replace(Reach::Up);
    let (resolver, _serving) = start(&connector, None);
    let from = Source::Stream([10, 0, 0, 1].into());
    let settings = Settings::default();
    let burst = settings.client_burst;
    for n in 0..burst + 10 {
        let asked = question(&format!("n{n}"));
        resolver.query(from, &asked, Room::Stream, Box::new(|_| {}));
    }
    let refusals = &resolver.counters.refusals;
    assert_eq!(refusals.count_refused(Limit::DnsQuestions), 10);
    assert_eq!(refusals.count_evicted(Limit::DnsQuestions), 0);
}

#[test]
fn every_counter_is_documented() {
    let [status, page] =
        [include_str!("../../../docs/status.md"), include_str!("../../../docs/dns.md")];
    for (name, _) in Counts::default().all() {
        let row = format!("| `dns_{}` | ", name.replace('-', "_"));
        assert!(status.contains(&row), "docs/status.md lacks {row}");
        assert!(page.contains(&format!("`{name}`")), "docs/dns.md lacks {name}");
    }
}
