//! One end of a flow, which acts by its plan.

use std::io;

use bentpipe_flow::ResetCode;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::Notify,
    time::sleep,
};

use super::bytes::Content;
use super::{Break, SidePlan, Stream};

/// Bytes per read.
const READ_BYTES: usize = 16 << 10;

/// Result of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Bytes read, all of them verified.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// End of the reading direction.
    pub reading: Half,
    /// End of the writing direction.
    pub writing: Half,
}

/// Result of one direction of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// The direction reached its end.
    Finished,
    /// The peer, or the transport, reset it.
    Reset(Option<ResetCode>),
    /// This end abandoned it.
    Broken,
}

/// First wrong byte that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the byte at offset {0} is not the one that was sent there")]
pub struct WrongByte(u64);

#[derive(Default)]
struct Progress {
    read: u64,
    written: u64,
    wrong: Option<WrongByte>,
}

/// Plays `plan` on `stream`, to which `already` bytes have been written.
pub async fn play(
    stream: Box<dyn Stream>,
    plan: &SidePlan,
    sends: Content,
    expects: Content,
    already: u64,
) -> Result<End, WrongByte> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (mut read, mut written) = (Progress::default(), already);
    let ended = Notify::new();
    let up_to = match plan.breaks {
        Some(Break::Reset(after, _) | Break::Drop(after)) => after.max(already),
        Some(Break::Leave) | None => plan.bytes,
    };
    let finishes = plan.breaks.is_none() || plan.breaks == Some(Break::Leave);
    let reading = read_all(&mut reader, plan, expects, &mut read, &ended);
    let writing = async {
        write_up_to(&mut writer, plan, sends, &mut written, up_to).await?;
        if !finishes {
            return Ok(());
        }
        if plan.ends_last && plan.breaks.is_none() {
            ended.notified().await;
        }
        writer.shutdown().await
    };
    let (reading, writing) = if plan.breaks.is_some() {
        tokio::pin!(reading);
        tokio::pin!(writing);
        let mut was_read = None;
        let written = loop {
            tokio::select! {
                biased;
                written = &mut writing => break written,
                end = &mut reading, if was_read.is_none() => was_read = Some(end),
            }
        };
        (was_read, written)
    } else {
        let (reading, writing) = tokio::join!(reading, writing);
        (Some(reading), writing)
    };
    read.written = written;
    let mut stream = reader.unsplit(writer);
    let end = End {
        read: read.read,
        written: read.written,
        reading: half(reading, &*stream),
        writing: half(Some(writing), &*stream),
    };
    if let Some(Break::Reset(_, code)) = plan.breaks {
        stream.reset(code);
    }
    read.wrong.map_or(Ok(end), Err)
}

fn half(ended: Option<io::Result<()>>, stream: &dyn Stream) -> Half {
    match ended {
        None => Half::Broken,
        Some(Ok(())) => Half::Finished,
        Some(Err(_)) => Half::Reset(stream.reset_code()),
    }
}

async fn read_all(
    reader: &mut (impl AsyncRead + Unpin),
    plan: &SidePlan,
    expects: Content,
    progress: &mut Progress,
    ended: &Notify,
) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut pauses = plan.pauses.iter().peekable();
    let end = loop {
        while let Some((_, long)) = pauses.next_if(|(at, _)| *at <= progress.read) {
            sleep(*long).await;
        }
        match reader.read(&mut buffer).await {
            Ok(0) => break Ok(()),
            Ok(taken) => {
                let differs = expects.differs(progress.read, &buffer[..taken]).map(WrongByte);
                progress.wrong = progress.wrong.or(differs);
                progress.read += taken as u64;
            }
            Err(error) => break Err(error),
        }
    };
    ended.notify_one();
    end
}

async fn write_up_to(
    writer: &mut (impl AsyncWrite + Unpin),
    plan: &SidePlan,
    sends: Content,
    written: &mut u64,
    up_to: u64,
) -> io::Result<()> {
    let mut buffer = vec![0; plan.write_bytes];
    while *written < up_to {
        let len = (up_to - *written).min(buffer.len() as u64) as usize;
        sends.fill(*written, &mut buffer[..len]);
        *written += writer.write(&buffer[..len]).await? as u64;
    }
    // Data buffered in the stream must be sent before the flow is ended.
    writer.flush().await
}
