//! Both streams of one end of a flow, over the carrier in use.

use std::io;
use std::mem::take;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bentpipe_flow::ResetCode;
use bentpipe_net::BufferSizes;
use bentpipe_transport::Standing;
use bytes::BytesMut;
use tokio::io::ReadBuf;
use tokio::time::{Instant, Sleep, sleep};

use crate::budget::{Account, FREE_UNCONFIRMED_BYTES, FREE_UNREAD_BYTES};
use crate::carrier::{Broken, Carrier, SCRATCH_BYTES};
use crate::chunks::Chunks;
use crate::end::End;
use crate::incoming::Occasion;
use crate::outgoing::MAX_UNCONFIRMED_BYTES;
use crate::parts::StreamParts;
use crate::wire::MIN_ROOM_BYTES;

/// Time until memory is asked for again.
const MEMORY_RETRY: Duration = Duration::from_millis(200);

/// Both streams of one end of a flow.
///
/// If the carrier breaks, the current task is woken, so that the owner of the streams finds another
/// one.
pub struct Streams {
    /// Charge for the bytes that are kept.
    account: Account,
    /// The end.
    pub end: End,
    /// Carrier in use.
    pub carrier: Option<Carrier>,
    /// Time of the loss of the last carrier.
    detached_since: Option<Instant>,
    /// Outages of earlier carriers, and times without a carrier.
    unheard: Duration,
    /// Data that was read ahead of the user.
    pub unread: Chunks,
    /// Reason for the end of the flow.
    pub ended: Option<ResetCode>,
    /// `true` if something was received that may concern the other half.
    pub has_news: bool,
    /// `true` once a later carrier was begun: the end of the present one says nothing about the flow,
    /// because the egress may have refused it as late.
    pub is_leaving: bool,
    /// `true` if memory was refused since the last look.
    is_refused: bool,
    retry: Option<Pin<Box<Sleep>>>,
}

impl Streams {
    /// Creates the streams of a new flow.
    pub fn new(account: Account) -> Self {
        let mut streams = Self::continued(StreamParts::default(), account);
        streams.detached_since = None;
        streams
    }

    /// Continues streams without a carrier.
    pub fn continued(parts: StreamParts, account: Account) -> Self {
        let StreamParts { end, unread, unheard, ended } = parts;
        let mut ahead = Chunks::default();
        ahead.extend(&unread);
        let mut streams = Self {
            account,
            end,
            carrier: None,
            detached_since: Some(Instant::now()),
            unheard,
            unread: ahead,
            ended,
            has_news: false,
            is_leaving: false,
            is_refused: false,
            retry: None,
        };
        streams.settle();
        streams
    }

    /// Takes the streams off their carrier, which is given up.
    pub fn take_parts(&mut self) -> StreamParts {
        let unheard = self.unheard();
        if let Some(carrier) = self.carrier.take() {
            carrier.give_up();
        }
        self.end.outgoing.detach();
        let (end, ahead) = (take(&mut self.end), take(&mut self.unread));
        let mut unread = BytesMut::with_capacity(ahead.len());
        ahead.parts().for_each(|part| unread.extend_from_slice(part));
        self.settle();
        StreamParts { end, unread, unheard, ended: self.ended }
    }

    /// Corrects the charge to what is kept now.
    pub fn settle(&mut self) {
        let unconfirmed = self.end.outgoing.unconfirmed_bytes();
        self.account.settle(
            unconfirmed.saturating_sub(FREE_UNCONFIRMED_BYTES)
                + self.unread.len().saturating_sub(FREE_UNREAD_BYTES),
        );
    }

    /// Takes as many of the user's bytes as there is room and memory for.
    pub fn take_bytes(&mut self, bytes: &[u8]) -> usize {
        let free = FREE_UNCONFIRMED_BYTES.saturating_sub(self.end.outgoing.unconfirmed_bytes());
        let wanted = bytes.len().saturating_sub(free);
        let charged = self.account.charge(wanted);
        self.is_refused |= charged < wanted;
        let room = bytes.len().min(free + charged);
        let taken = if room == 0 { 0 } else { self.end.outgoing.write(&bytes[..room]) };
        self.settle();
        taken
    }

    /// Returns `true` if there is memory for data ahead of the user. As far as the share of memory
    /// permits, there is room for everything that the peer may have unconfirmed, so that the peer's
    /// confirmations come through.
    fn may_read_ahead(&mut self) -> bool {
        let next = self.unread.len() + SCRATCH_BYTES;
        if next <= FREE_UNREAD_BYTES {
            return true;
        }
        if next > MAX_UNCONFIRMED_BYTES + SCRATCH_BYTES {
            return false;
        }
        let is_granted = self.account.charge(SCRATCH_BYTES) == SCRATCH_BYTES;
        self.is_refused |= !is_granted;
        is_granted
    }

    /// Uses `carrier` from now on, and gives up the previous one.
    pub fn attach(&mut self, carrier: Carrier) {
        self.detach();
        if let Some(since) = self.detached_since.take() {
            self.unheard += since.elapsed();
        }
        self.carrier = Some(carrier);
    }

    /// Gives up the carrier.
    fn detach(&mut self) {
        if let Some(carrier) = self.carrier.take() {
            self.unheard += carrier.stream().standing().unheard;
            self.detached_since = Some(Instant::now());
            carrier.give_up();
        }
    }

    /// Time without a carrier and without an answer from the peer, so far.
    pub fn unheard(&self) -> Duration {
        let of_carrier = self.carrier.as_ref().map(|it| it.stream().standing().unheard);
        let detached = self.detached_since.map(|since| since.elapsed());
        self.unheard + of_carrier.unwrap_or_default() + detached.unwrap_or_default()
    }

    /// Time without a carrier since the last one.
    pub fn detached(&self) -> Option<Duration> {
        self.detached_since.map(|since| since.elapsed())
    }

    /// Returns `true` if nothing more will happen.
    pub fn is_over(&self) -> bool {
        self.ended.is_some() || self.end.is_done()
    }

    fn broke(&mut self, cx: &mut Context<'_>, broken: Broken) {
        self.has_news = true;
        cx.waker().wake_by_ref();
        if self.end.is_done() {
            self.carrier = None;
            return;
        }
        match broken {
            Broken::Ended(code) if !self.is_leaving => self.ended = Some(code),
            _ => {
                self.detach();
                self.end.outgoing.detach();
            }
        }
    }

    fn error(&self) -> Option<io::Error> {
        self.ended.map(|code| io::Error::new(io::ErrorKind::ConnectionReset, code))
    }

    /// Sends what there is. Returns `true` if the carrier has all of it.
    pub fn send(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(carrier) = &mut self.carrier else { return true };
        match carrier.poll_send(cx, &mut self.end) {
            Poll::Pending => return false,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(broken)) => self.broke(cx, broken),
        }
        true
    }

    /// Receives records for a writer that waits for one. Data before them is kept for the reader.
    fn read_ahead(&mut self, cx: &mut Context<'_>) {
        let mut scratch = [0; SCRATCH_BYTES];
        while self.carrier.is_some() && self.may_read_ahead() {
            let Some(carrier) = &mut self.carrier else { return };
            let mut buffer = ReadBuf::new(&mut scratch);
            match carrier.poll_receive(cx, &mut self.end, &mut buffer) {
                Poll::Pending => return,
                Poll::Ready(polled) => {
                    self.unread.extend(buffer.filled());
                    self.has_news = true;
                    if let Err(broken) = polled {
                        return self.broke(cx, broken);
                    }
                }
            }
        }
    }

    /// Wakes the task later if memory was refused, because other flows release memory without notice.
    fn wait_for_memory(&mut self, cx: &mut Context<'_>) {
        if !take(&mut self.is_refused) {
            return;
        }
        let retry = self.retry.get_or_insert_with(|| Box::pin(sleep(MEMORY_RETRY)));
        if retry.as_mut().poll(cx).is_ready() {
            self.retry = None;
            cx.waker().wake_by_ref();
        }
    }

    /// Reads data for the user. Pending without a carrier.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let mut is_dry = false;
        while buffer.filled().len() == before && buffer.remaining() > 0 {
            if !self.unread.is_empty() {
                while buffer.remaining() > 0 && !self.unread.is_empty() {
                    let some = self.unread.from(0);
                    let count = some.len().min(buffer.remaining());
                    buffer.put_slice(&some[..count]);
                    self.unread.take(count);
                }
                // A writer may read ahead again.
                self.has_news = true;
                break;
            }
            if self.end.reads_no_more() {
                break;
            }
            if let Some(error) = self.error() {
                return Poll::Ready(Err(error));
            }
            let Some(carrier) = &mut self.carrier else { return Poll::Pending };
            let polled = match buffer.remaining() < MIN_ROOM_BYTES {
                true => {
                    let mut scratch = [0; MIN_ROOM_BYTES];
                    let mut aside = ReadBuf::new(&mut scratch);
                    let polled = carrier.poll_receive(cx, &mut self.end, &mut aside);
                    self.unread.extend(aside.filled());
                    polled
                }
                false => carrier.poll_receive(cx, &mut self.end, buffer),
            };
            match polled {
                Poll::Pending => {
                    is_dry = true;
                    break;
                }
                Poll::Ready(Ok(())) => self.has_news = true,
                Poll::Ready(Err(broken)) => self.broke(cx, broken),
            }
        }
        let occasion = if is_dry { Occasion::Dry } else { Occasion::More };
        self.end.confirm(occasion, self.unread.len());
        self.send(cx);
        self.settle();
        if is_dry { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Takes bytes of the user.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut taken = self.take_bytes(bytes);
        if taken > 0 {
            self.end.confirm(Occasion::Data, self.unread.len());
        }
        self.send(cx);
        if taken == 0 {
            // A confirmation makes room, and so does a carrier that has everything.
            self.read_ahead(cx);
            taken = self.take_bytes(bytes);
            self.send(cx);
        }
        if let Some(error) = self.error() {
            return Poll::Ready(Err(error));
        }
        if let Some(code) = self.end.outgoing.stopped() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, code)));
        }
        if taken > 0 || bytes.is_empty() {
            return Poll::Ready(Ok(taken));
        }
        self.wait_for_memory(cx);
        Poll::Pending
    }

    /// Ends the user's stream. Ready once the peer has confirmed all of it.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end.outgoing.finish();
        self.send(cx);
        self.read_ahead(cx);
        self.end.confirm(Occasion::Dry, self.unread.len());
        self.settle();
        if self.send(cx) && self.end.outgoing.is_confirmed() {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = self.error() {
            return Poll::Ready(Err(error));
        }
        self.wait_for_memory(cx);
        Poll::Pending
    }

    /// Reason for the end of the flow, or for which the peer reads no more.
    pub fn reset_code(&self) -> Option<ResetCode> {
        self.ended.or(self.end.outgoing.stopped())
    }

    /// State of the flow.
    pub fn standing(&self) -> Standing {
        let of_carrier = self.carrier.as_ref().map(|it| it.stream().standing()).unwrap_or_default();
        Standing {
            unheard: self.unheard(),
            unsent_bytes: of_carrier.unsent_bytes + self.end.outgoing.unsent_bytes(),
            unopened: of_carrier.unopened,
        }
    }

    /// Sizes of the buffers of the user's TCP connection.
    pub fn local_buffers(&self) -> BufferSizes {
        self.carrier.as_ref().map(|it| it.stream().local_buffers()).unwrap_or_default()
    }
}
