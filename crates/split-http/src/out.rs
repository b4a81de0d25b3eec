//! Send queue of one page's stream, most urgent first.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use bentpipe_prefetch::plan::Promise;
use bentpipe_prefetch::scan::Urgency;
use bentpipe_prefetch::wire::{Frame, MAX_DATA_BYTES, Packer, WireError};
use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Queued bytes at which the gateway stops reading from origins. Each page in progress holds at
/// most this much here, and as much again from the last reads.
pub const MAX_QUEUED_BYTES: usize = 1 << 20;

/// Queued frames of one page's stream.
pub struct Out {
    /// Promises are sent before all other frames, so that each arrives before the content that
    /// refers to it.
    promises: VecDeque<Frame>,
    frames: BTreeMap<(Urgency, u16), VecDeque<Frame>>,
    queued_bytes: usize,
    packer: Option<Packer>,
    packed: Vec<u8>,
    written: usize,
    plain: Vec<u8>,
}

impl Out {
    pub fn new() -> Result<Self, WireError> {
        Ok(Self {
            promises: VecDeque::new(),
            frames: BTreeMap::new(),
            queued_bytes: 0,
            packer: Some(Packer::new()?),
            packed: Vec::new(),
            written: 0,
            plain: Vec::new(),
        })
    }

    pub fn promise(&mut self, promise: Promise) {
        self.promises.push_back(Frame::Promise(promise));
    }

    pub fn frame(&mut self, urgency: Urgency, id: u16, frame: Frame) {
        self.frames.entry((urgency, id)).or_default().push_back(frame);
    }

    /// Queues the object's bytes, in as many frames as necessary.
    pub fn data(&mut self, urgency: Urgency, id: u16, mut bytes: Bytes) {
        self.queued_bytes += bytes.len();
        while !bytes.is_empty() {
            let part = bytes.split_to(bytes.len().min(MAX_DATA_BYTES));
            self.frame(urgency, id, Frame::Data(id, part));
        }
    }

    /// Removes the queued frames of an object that is no longer wanted.
    pub fn forget(&mut self, urgency: Urgency, id: u16) -> Forgotten {
        let mut had_head = false;
        for frame in self.frames.remove(&(urgency, id)).into_iter().flatten() {
            match frame {
                Frame::Head(..) => had_head = true,
                Frame::Data(_, bytes) => self.queued_bytes -= bytes.len(),
                Frame::Promise(_) | Frame::End(..) => {}
            }
        }
        Forgotten { had_head }
    }

    /// Returns `true` if reading from origins should pause.
    pub fn is_full(&self) -> bool {
        self.queued_bytes >= MAX_QUEUED_BYTES
    }

    /// Returns `true` if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.promises.is_empty() && self.frames.is_empty() && self.written == self.packed.len()
    }

    /// Writes some queued bytes, or waits forever if there are none. Cancel-safe.
    pub async fn write(&mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if self.written == self.packed.len() {
            self.pack().map_err(io::Error::other)?;
        }
        if self.packed.is_empty() {
            return std::future::pending().await;
        }
        let written = to.write(&self.packed[self.written..]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.written += written;
        Ok(())
    }

    /// Ends the stream, after [`Out::is_empty`].
    pub async fn finish(&mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let mut packed = Vec::new();
        if let Some(packer) = self.packer.take() {
            packer.finish(&mut packed).map_err(io::Error::other)?;
        }
        to.write_all(&packed).await?;
        to.shutdown().await
    }

    /// Packs the most urgent frames, up to one block, so that frames that become urgent meanwhile
    /// need not wait.
    fn pack(&mut self) -> Result<(), WireError> {
        self.packed.clear();
        self.written = 0;
        self.plain.clear();
        while self.plain.len() < MAX_DATA_BYTES {
            let Some(frame) = self.pop() else { break };
            frame.put(&mut self.plain);
        }
        match &mut self.packer {
            // Flush each time; otherwise a page would wait until the packer's block is full.
            Some(packer) if !self.plain.is_empty() => {
                packer.pack(&self.plain, true, &mut self.packed)
            }
            _ => Ok(()),
        }
    }

    fn pop(&mut self) -> Option<Frame> {
        if let Some(promise) = self.promises.pop_front() {
            return Some(promise);
        }
        let mut first = self.frames.first_entry()?;
        let frame = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        if let Some(Frame::Data(_, bytes)) = &frame {
            self.queued_bytes -= bytes.len();
        }
        frame
    }
}

/// Frames that [`Out::forget`] removed.
pub struct Forgotten {
    /// `true` if the header was among them, so the air gateway has not received any of the object.
    pub had_head: bool,
}
