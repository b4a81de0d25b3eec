//! One page in the ground gateway: fetched, scanned, and sent with the objects it refers to.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bentpipe_prefetch::plan::{Planner, Promise};
use bentpipe_prefetch::pushable::{self, MAX_DOCUMENT_BYTES, is_download, is_type};
use bentpipe_prefetch::scan::{
    CssScanner, HtmlScanner, Item, Kind, ModuleScanner, ObjectRef, Urgency,
};
use bentpipe_prefetch::wire::{End, Frame, Head, PAGE, Request, UpMessage};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use http::{HeaderMap, response};
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf};
use tokio::time::{Instant, sleep_until};

use super::fetch::{Ask, Coming, Failed, ForPage, Origins, fetch};
use super::ground::GroundPages;
use super::inbox::Inbox;
use super::out::Out;
use super::quota::Slot;

/// Time after which a page's stream ends if nothing can be written and nothing arrives.
const STALL: Duration = Duration::from_secs(120);

/// Event of a fetch.
enum Event {
    Answer(u16, Result<(response::Parts, Coming), Failed>),
    More(u16, Coming, Result<Option<Bytes>, Failed>),
}

/// An object or the page, while its body is arriving.
struct Live {
    urgency: Urgency,
    scanner: Option<Scanner>,
}

/// Finds references in an object that is being sent.
enum Scanner {
    Sheet(CssScanner),
    Module(ModuleScanner),
}

impl Scanner {
    /// Creates the scanner for an object of this kind, if its response has matching header fields.
    fn of(kind: Option<Kind>, headers: &HeaderMap) -> Option<Self> {
        match kind? {
            Kind::Style if is_type(headers, "text/css") => Some(Self::Sheet(Default::default())),
            Kind::Module if pushable::is_script(headers) => Some(Self::Module(Default::default())),
            _ => None,
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Vec<ObjectRef> {
        let mut found = Vec::new();
        match self {
            Self::Sheet(sheet) => sheet.push(bytes, &mut |object| found.push(object)),
            Self::Module(module) => module.push(bytes, &mut |object| found.push(object)),
        }
        found
    }

    fn finish(self) -> Vec<ObjectRef> {
        let mut found = Vec::new();
        if let Self::Sheet(mut sheet) = self {
            sheet.finish(&mut |object| found.push(object));
        }
        found
    }
}

/// One page's stream, in the ground gateway.
pub struct Session<'a> {
    half: &'a GroundPages,
    origins: &'a dyn Origins,
    headers: HeaderMap,
    /// Urgency of the page; its objects are never more urgent.
    urgency: Urgency,
    page_bytes: u64,
    began: Instant,
    /// Time at which unsent bytes are discarded; absent for a download.
    until: Option<Instant>,
    /// Slot of this page or download.
    place: Slot,
    planner: Planner,
    scanner: Option<HtmlScanner>,
    live: BTreeMap<u16, Live>,
    fetches: FuturesUnordered<BoxFuture<'a, Event>>,
    /// Bodies whose reading is paused while the send queue is full.
    parked: Vec<(u16, Coming)>,
    pub out: Out,
}

impl<'a> Session<'a> {
    /// Starts to fetch the page.
    pub fn new(
        half: &'a GroundPages,
        origins: &'a dyn Origins,
        request: Request,
        place: Slot,
    ) -> io::Result<Self> {
        let Request { page, headers, allowance_bytes, digest } = request;
        let limits = half.settings.limits.clone();
        let planner = Planner::new(page.clone(), digest, allowance_bytes.into(), limits);
        let urgency = pushable::urgency(&headers).unwrap_or(Urgency::PAGE);
        let ask = Ask { address: page, headers: headers.clone(), object: None };
        let fetches = FuturesUnordered::new();
        let began = Instant::now();
        fetches.push(answer(half, origins, PAGE, ask));
        Ok(Self {
            half,
            origins,
            headers,
            urgency,
            page_bytes: 0,
            began,
            until: Some(began + half.settings.longest),
            place,
            planner,
            scanner: None,
            live: BTreeMap::new(),
            fetches,
            parked: Vec::new(),
            out: Out::new().map_err(io::Error::other)?,
        })
    }

    /// Fetches and sends until everything is sent.
    pub async fn run<S: AsyncRead>(
        &mut self,
        from: &mut ReadHalf<S>,
        to: &mut (impl AsyncWrite + Unpin),
        ups: &mut Inbox,
    ) -> io::Result<()> {
        let closing = self.began + self.half.settings.limits.time;
        let mut moved = Instant::now();
        while !(self.fetches.is_empty() && self.parked.is_empty() && self.out.is_empty()) {
            let until = match self.until {
                Some(until) => until.min(moved + STALL),
                // The air gateway disconnects a reader that does not read.
                None => moved + self.half.settings.idle,
            };
            tokio::select! {
                Some(event) = self.fetches.next() => self.take(event),
                written = self.out.write(to) => written?,
                read = ups.read(from), if !ups.is_over => {
                    read?;
                    for up in std::mem::take(&mut ups.ready) {
                        if let UpMessage::Cancel(id) = up {
                            self.cancel(id);
                        }
                    }
                }
                () = sleep_until(closing), if Instant::now() < closing => {}
                () = sleep_until(until) => return Err(io::ErrorKind::TimedOut.into()),
            }
            moved = Instant::now();
            self.go_on();
        }
        Ok(())
    }

    /// Starts pending fetches, and abandons those that are too late.
    fn go_on(&mut self) {
        let elapsed = self.began.elapsed();
        while let Some(Promise { id, address, urgency }) = self.planner.next_fetch(elapsed) {
            // Every found object has a kind.
            let Some(kind) = self.planner.kind(id) else { continue };
            let referer = self.planner.referer(id);
            let urgency = urgency.max(self.urgency);
            let object = Some(ForPage { referer, kind, urgency });
            let ask = Ask { address, headers: self.headers.clone(), object };
            self.fetches.push(answer(self.half, self.origins, id, ask));
        }
        for id in self.planner.abandoned(elapsed) {
            self.half.counters.objects_declined.add(1);
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
            // Cancelled while waiting for its origin.
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

    fn read_on(&mut self, id: u16, mut coming: Coming) {
        if id == PAGE && self.is_download() {
            coming.be_patient(self.half.settings.idle);
        }
        if self.out.is_full() {
            self.parked.push((id, coming));
        } else {
            self.fetches.push(more(self.half, id, coming));
        }
    }

    fn begin_page(&mut self, parts: &response::Parts) -> bool {
        let is_html = is_type(&parts.headers, "text/html");
        let head = Head::of(parts.status, &parts.headers);
        let Some(head) = head else {
            self.end(PAGE, Urgency::PAGE, End::Declined);
            return false;
        };
        self.planner.page_answered(&parts.headers);
        if is_download(parts.status, &parts.headers) {
            self.pass_on();
        } else if is_html && pushable::may_scan(parts.status, &parts.headers) {
            let accept = self.headers.get(http::header::ACCEPT);
            let accept = accept.and_then(|value| value.to_str().ok()).unwrap_or_default();
            let newer = ["image/avif", "image/webp"].into_iter().filter(|it| accept.contains(it));
            self.scanner = Some(HtmlScanner::new(&newer.collect::<Vec<_>>()));
        }
        self.live.insert(PAGE, Live { urgency: self.urgency, scanner: None });
        self.out.frame(self.urgency, PAGE, Frame::Head(PAGE, Box::new(head)));
        true
    }

    /// Turns the page into a download: without a time limit, without scanning, and in a download
    /// slot.
    fn pass_on(&mut self) {
        (self.scanner, self.until) = (None, None);
        self.place.leave_to_pages();
        self.half.counters.downloads.add(1);
    }

    /// Returns `true` if the page has become a download, which has no time limit.
    pub fn is_download(&self) -> bool {
        self.until.is_none()
    }

    fn begin(&mut self, id: u16, parts: &response::Parts) -> bool {
        let urgency = self.planner.answered(id, parts.status, &parts.headers);
        let head = Head::of(parts.status, &parts.headers);
        let (Ok(urgency), Some(head)) = (urgency, head) else {
            self.decline(id);
            return false;
        };
        // The header counts towards the limits, because an object may consist of little else.
        if self.planner.received(id, head.bytes()).is_err() {
            self.decline(id);
            return false;
        }
        let urgency = urgency.max(self.urgency);
        let scanner = Scanner::of(self.planner.kind(id), &parts.headers);
        self.live.insert(id, Live { urgency, scanner });
        self.out.frame(urgency, id, Frame::Head(id, Box::new(head)));
        true
    }

    /// Promises the objects found in `bytes`, then queues `bytes`. Returns `false` if no more are
    /// wanted.
    fn bytes(&mut self, id: u16, bytes: Bytes) -> bool {
        let Some(live) = self.live.get_mut(&id) else { return false };
        let urgency = live.urgency;
        if id != PAGE {
            if self.planner.received(id, bytes.len() as u64).is_err() {
                self.finish(id, End::Aborted);
                return false;
            }
            let found = live.scanner.as_mut().map(|scanner| scanner.push(&bytes));
            self.promise(&found.unwrap_or_default(), Some(id));
        } else {
            self.page_bytes += bytes.len() as u64;
            if self.page_bytes > MAX_DOCUMENT_BYTES && !self.is_download() {
                self.pass_on();
            }
        }
        if id == PAGE
            && let Some(mut scanner) = self.scanner.take()
        {
            let mut items = Vec::new();
            scanner.push(&bytes, &mut |item| items.push(item));
            self.scanner = Some(scanner);
            self.found(items);
        }
        let counters = &self.half.counters;
        let of_download = id == PAGE && self.is_download();
        let counter = if of_download { &counters.downloads_bytes } else { &counters.pages_bytes };
        counter.add(bytes.len() as u64);
        self.out.data(urgency, id, bytes);
        true
    }

    /// Handles the end of a body.
    fn finish(&mut self, id: u16, end: End) {
        let Some(live) = self.live.remove(&id) else { return };
        if let Some(scanner) = live.scanner {
            self.promise(&scanner.finish(), Some(id));
        }
        if id == PAGE
            && let Some(mut scanner) = self.scanner.take()
        {
            let mut items = Vec::new();
            scanner.finish(&mut |item| items.push(item));
            self.found(items);
        }
        self.planner.finish(id);
        self.end(id, live.urgency, end);
    }

    fn found(&mut self, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Base(url) => self.planner.set_base(&url),
                Item::Object(found) => self.promise(&[found], None),
                Item::Cookie => self.planner.page_sets_cookie(),
            }
        }
    }

    fn promise(&mut self, found: &[ObjectRef], inside: Option<u16>) {
        for found in found {
            if let Ok(promise) = self.planner.found(found, inside, &self.half.settings.rules) {
                self.half.counters.objects_promised.add(1);
                self.out.promise(promise);
            }
        }
    }

    /// Declines an object: nothing of it will be sent.
    fn decline(&mut self, id: u16) {
        self.planner.finish(id);
        self.half.counters.objects_declined.add(1);
        self.end(id, Urgency::LEAST, End::Declined);
    }

    /// Handles the air gateway's cancellation of an object.
    fn cancel(&mut self, id: u16) {
        if usize::from(id) > self.planner.promised() {
            return;
        }
        if !self.planner.is_over(id) {
            self.half.counters.objects_cancelled.add(1);
        }
        if let Some(live) = self.live.remove(&id) {
            let forgotten = self.out.forget(live.urgency, id);
            let end = if forgotten.had_head { End::Declined } else { End::Aborted };
            self.planner.finish(id);
            self.end(id, live.urgency, end);
        } else if !self.planner.is_over(id) {
            self.planner.finish(id);
            self.end(id, Urgency::LEAST, End::Declined);
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
