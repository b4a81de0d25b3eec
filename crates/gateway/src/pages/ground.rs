//! The ground's half: fetches a page, finds what it will ask for, fetches that, and sends all of it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_prefetch::address::Address;
use bentpipe_prefetch::judge;
use bentpipe_prefetch::plan::{Limits, Planner, Promise, Rules};
use bentpipe_prefetch::scan::{CssScanner, Found, HtmlScanner, Item, Kind, Urgency};
use bentpipe_prefetch::wire::{End, Frame, Head, PAGE, Request, Up, Ups};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadHalf};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

use super::fetch::{Ask, Coming, Failed, Origins, fetch};
use super::out::Out;
use super::pool::Pool;
use crate::counters::Counters;

/// How long the cabin may take to say which page it wants: the request travels with the stream's
/// opening.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);

/// A page's stream on which nothing can be written and nothing comes ends after this.
const STALL: Duration = Duration::from_secs(120);

/// How the ground's half works.
#[derive(Debug, Clone)]
pub struct GroundSettings {
    /// The bounds of each page.
    pub limits: Limits,
    /// Whose objects are fetched.
    pub rules: Rules,
    /// Pages at once; those beyond it are declined, and the cabin fetches them as ever.
    pub pages: usize,
}

/// The ground's half of Split HTTP.
pub struct GroundPages {
    settings: GroundSettings,
    pool: Pool,
    places: Semaphore,
    counters: Arc<Counters>,
}

impl GroundPages {
    /// A half without any page under way.
    pub fn new(settings: GroundSettings, counters: Arc<Counters>) -> Self {
        let places = Semaphore::new(settings.pages);
        Self { settings, pool: Pool::default(), places, counters }
    }

    /// Serves one page's stream to its end. Reading and writing fail as they do when the cabin has
    /// gone; then nothing is left of it.
    pub async fn serve<S>(&self, origins: &dyn Origins, stream: S) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let (mut from, mut to) = tokio::io::split(stream);
        let mut ups = Inbox::default();
        let request = timeout(REQUEST_PATIENCE, ups.request(&mut from)).await??;
        let Ok(_place) = self.places.try_acquire() else {
            let mut out = Out::new().map_err(io::Error::other)?;
            out.frame(Urgency::PAGE, PAGE, Frame::End(PAGE, End::Declined));
            while !out.is_empty() {
                out.write(&mut to).await?;
            }
            return out.finish(&mut to).await;
        };
        self.counters.pages.add(1);
        let mut session = Session::new(self, origins, *request)?;
        session.run(&mut from, &mut to, &mut ups).await?;
        session.out.finish(&mut to).await
    }
}

/// What comes up, as far as it is whole.
#[derive(Default)]
struct Inbox {
    ups: Ups,
    ready: Vec<Up>,
    is_over: bool,
}

impl Inbox {
    async fn request<S: AsyncRead>(&mut self, from: &mut ReadHalf<S>) -> io::Result<Box<Request>> {
        while self.ready.is_empty() {
            if self.is_over {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.read(from).await?;
        }
        match self.ready.remove(0) {
            Up::Request(request) => Ok(request),
            Up::Cancel(_) => Err(io::ErrorKind::InvalidData.into()), // a request comes first
        }
    }

    /// Reads some more. May be dropped half-way without loss.
    async fn read<S: AsyncRead>(&mut self, from: &mut ReadHalf<S>) -> io::Result<()> {
        let mut bytes = [0; 4096];
        let count = from.read(&mut bytes).await?;
        self.is_over = count == 0;
        self.ups.push(&bytes[..count], &mut self.ready).map_err(io::Error::other)
    }
}

/// What a fetch has come to.
enum Event {
    Answer(u16, Result<(response::Parts, Coming), Failed>),
    More(u16, Coming, Result<Option<Bytes>, Failed>),
}

/// An object, or the page, whose body is coming.
struct Live {
    urgency: Urgency,
    sheet: Option<CssScanner>,
}

struct Session<'a> {
    half: &'a GroundPages,
    origins: &'a dyn Origins,
    page: Address,
    headers: HeaderMap,
    began: Instant,
    planner: Planner,
    scanner: Option<HtmlScanner>,
    live: BTreeMap<u16, Live>,
    fetches: FuturesUnordered<BoxFuture<'a, Event>>,
    /// Bodies that are not read while too much waits for the link.
    parked: Vec<(u16, Coming)>,
    out: Out,
}

impl<'a> Session<'a> {
    fn new(half: &'a GroundPages, origins: &'a dyn Origins, request: Request) -> io::Result<Self> {
        let Request { page, headers, allowance_bytes, digest } = request;
        let limits = half.settings.limits.clone();
        let planner = Planner::new(page.clone(), digest, allowance_bytes.into(), limits);
        let ask = Ask { address: page.clone(), kind: None, headers: headers.clone(), page: None };
        let fetches = FuturesUnordered::new();
        fetches.push(answer(half, origins, PAGE, ask));
        Ok(Self {
            half,
            origins,
            page,
            headers,
            began: Instant::now(),
            planner,
            scanner: None,
            live: BTreeMap::new(),
            fetches,
            parked: Vec::new(),
            out: Out::new().map_err(io::Error::other)?,
        })
    }

    async fn run<S: AsyncRead + AsyncWrite>(
        &mut self,
        from: &mut ReadHalf<S>,
        to: &mut tokio::io::WriteHalf<S>,
        ups: &mut Inbox,
    ) -> io::Result<()> {
        let closing = self.began + self.half.settings.limits.time;
        let mut moved = Instant::now();
        while !(self.fetches.is_empty() && self.parked.is_empty() && self.out.is_empty()) {
            tokio::select! {
                Some(event) = self.fetches.next() => self.take(event),
                written = self.out.write(to) => written?,
                read = ups.read(from), if !ups.is_over => {
                    read?;
                    for up in std::mem::take(&mut ups.ready) {
                        if let Up::Cancel(id) = up {
                            self.cancel(id);
                        }
                    }
                }
                () = sleep_until(closing), if Instant::now() < closing => {}
                () = sleep_until(moved + STALL) => return Err(io::ErrorKind::TimedOut.into()),
            }
            moved = Instant::now();
            self.go_on();
        }
        Ok(())
    }

    /// Begins what may be begun, and gives up what may not any more.
    fn go_on(&mut self) {
        let elapsed = self.began.elapsed();
        while let Some(Promise { id, address, .. }) = self.planner.next_fetch(elapsed) {
            let (kind, page) = (self.planner.kind(id), Some(self.page.clone()));
            let ask = Ask { address, kind, headers: self.headers.clone(), page };
            self.fetches.push(answer(self.half, self.origins, id, ask));
        }
        for id in self.planner.given_up(elapsed) {
            self.end(id, Urgency::LEAST, End::Declined);
        }
        if !self.out.is_full() {
            for (id, coming) in std::mem::take(&mut self.parked) {
                self.fetches.push(more(self.half, id, coming));
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            // Cancelled while its origin was asked.
            Event::Answer(id, _) if id != PAGE && self.planner.is_over(id) => {}
            Event::Answer(id, Ok((head, coming))) => {
                let begun = if id == PAGE { self.begin_page(&head) } else { self.begin(id, &head) };
                if begun {
                    self.read_on(id, coming);
                }
            }
            Event::Answer(PAGE, Err(Failed)) => self.end(PAGE, Urgency::PAGE, End::Declined),
            Event::Answer(id, Err(Failed)) => self.decline(id),
            Event::More(id, coming, Ok(Some(bytes))) => {
                if self.bytes(id, bytes) {
                    self.read_on(id, coming);
                }
            }
            Event::More(id, _, Ok(None)) => self.finish(id, End::Complete),
            Event::More(id, _, Err(Failed)) => self.finish(id, End::Aborted),
        }
    }

    fn read_on(&mut self, id: u16, coming: Coming) {
        if self.out.is_full() {
            self.parked.push((id, coming));
        } else {
            self.fetches.push(more(self.half, id, coming));
        }
    }

    fn begin_page(&mut self, parts: &response::Parts) -> bool {
        let Some(head) = Head::of(parts.status, &parts.headers) else {
            self.end(PAGE, Urgency::PAGE, End::Declined);
            return false;
        };
        if judge::may_scan(parts.status, &parts.headers) && is_type(&parts.headers, "text/html") {
            let accept = self.headers.get(http::header::ACCEPT);
            let accept = accept.and_then(|value| value.to_str().ok()).unwrap_or_default();
            let newer = ["image/avif", "image/webp"].into_iter().filter(|it| accept.contains(it));
            self.scanner = Some(HtmlScanner::new(&newer.collect::<Vec<_>>()));
        }
        self.live.insert(PAGE, Live { urgency: Urgency::PAGE, sheet: None });
        self.out.frame(Urgency::PAGE, PAGE, Frame::Head(PAGE, Box::new(head)));
        true
    }

    fn begin(&mut self, id: u16, parts: &response::Parts) -> bool {
        let urgency = self.planner.answered(id, parts.status, &parts.headers);
        let head = Head::of(parts.status, &parts.headers);
        let (Ok(urgency), Some(head)) = (urgency, head) else {
            self.decline(id);
            return false;
        };
        let is_sheet =
            self.planner.kind(id) == Some(Kind::Style) && is_type(&parts.headers, "text/css");
        let sheet = is_sheet.then(CssScanner::default);
        self.live.insert(id, Live { urgency, sheet });
        self.out.frame(urgency, id, Frame::Head(id, Box::new(head)));
        true
    }

    /// Passes bytes on, after what was found in them is promised. `false` where no more are wanted.
    fn bytes(&mut self, id: u16, bytes: Bytes) -> bool {
        let Some(live) = self.live.get_mut(&id) else { return false };
        let urgency = live.urgency;
        if id != PAGE {
            if self.planner.came(id, bytes.len() as u64).is_err() {
                self.finish(id, End::Aborted);
                return false;
            }
            if let Some(mut sheet) = live.sheet.take() {
                let mut found = Vec::new();
                sheet.push(&bytes, &mut |object| found.push(object));
                live.sheet = Some(sheet);
                self.promise(&found, Some(id));
            }
        } else if let Some(mut scanner) = self.scanner.take() {
            let mut items = Vec::new();
            scanner.push(&bytes, &mut |item| items.push(item));
            self.scanner = Some(scanner);
            self.found(items);
        }
        self.half.counters.pages_bytes.add(bytes.len() as u64);
        self.out.data(urgency, id, bytes);
        true
    }

    /// The body is over.
    fn finish(&mut self, id: u16, end: End) {
        let Some(live) = self.live.remove(&id) else { return };
        if let Some(mut sheet) = live.sheet {
            let mut found = Vec::new();
            sheet.finish(&mut |object| found.push(object));
            self.promise(&found, Some(id));
        }
        if id == PAGE
            && let Some(mut scanner) = self.scanner.take()
        {
            let mut items = Vec::new();
            scanner.finish(&mut |item| items.push(item));
            self.found(items);
        }
        self.planner.over(id);
        self.end(id, live.urgency, end);
    }

    fn found(&mut self, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Base(url) => self.planner.set_base(&url),
                Item::Object(found) => self.promise(&[found], None),
            }
        }
    }

    fn promise(&mut self, found: &[Found], inside: Option<u16>) {
        for found in found {
            if let Ok(promise) = self.planner.found(found, inside, &self.half.settings.rules) {
                self.half.counters.objects_promised.add(1);
                self.out.promise(promise);
            }
        }
    }

    /// Nothing of the object will be sent.
    fn decline(&mut self, id: u16) {
        self.planner.over(id);
        self.half.counters.objects_declined.add(1);
        self.end(id, Urgency::LEAST, End::Declined);
    }

    /// The cabin does not want the object.
    fn cancel(&mut self, id: u16) {
        if usize::from(id) > self.planner.promised() {
            return;
        }
        if let Some(live) = self.live.remove(&id) {
            let forgotten = self.out.forget(live.urgency, id);
            let end = if forgotten.had_head { End::Declined } else { End::Aborted };
            self.planner.over(id);
            self.end(id, live.urgency, end);
        } else if !self.planner.is_over(id) {
            self.decline(id);
        }
        self.parked.retain(|(parked, _)| *parked != id);
    }

    fn end(&mut self, id: u16, urgency: Urgency, end: End) {
        self.out.frame(urgency, id, Frame::End(id, end));
    }
}

fn answer<'a>(
    half: &'a GroundPages,
    origins: &'a dyn Origins,
    id: u16,
    ask: Ask,
) -> BoxFuture<'a, Event> {
    Box::pin(async move { Event::Answer(id, fetch(origins, &half.pool, ask).await) })
}

fn more(half: &GroundPages, id: u16, mut coming: Coming) -> BoxFuture<'_, Event> {
    Box::pin(async move {
        let next = coming.next(&half.pool).await;
        Event::More(id, coming, next)
    })
}

fn is_type(headers: &HeaderMap, wanted: &str) -> bool {
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    said.split(';').next().unwrap_or_default().trim_ascii().eq_ignore_ascii_case(wanted)
}
