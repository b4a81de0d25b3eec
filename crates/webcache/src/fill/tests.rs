use super::*;
use futures_util::FutureExt;

async fn next(reader: &mut FillReader) -> Option<Result<Bytes, OriginError>> {
    poll_fn(|cx| Pin::new(&mut *reader).poll_next(cx)).await
}

async fn rest(reader: &mut FillReader) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = next(reader).await {
        all.extend(bytes.unwrap());
    }
    all
}

#[tokio::test]
async fn readers_may_join_at_any_time() {
    let fill = Arc::new(Fill::default());
    let mut before = fill.read(0, None).unwrap();
    assert!(next(&mut before).now_or_never().is_none());
    fill.push(b"hello ").await;
    assert_eq!(next(&mut before).await.unwrap().unwrap(), "hello ");
    let mut amid = fill.read(0, None).unwrap();
    fill.push(b"world").await;
    fill.finish(Ok(()));
    assert_eq!(rest(&mut before).await, b"world");
    assert_eq!(rest(&mut amid).await, b"hello world");
    assert_eq!(rest(&mut fill.read(4, Some(6)).unwrap()).await, b"o w");
    assert_eq!(fill.whole().unwrap(), "hello world");
}

#[tokio::test]
async fn single_bytes_share_a_segment() {
    let fill = Fill::default();
    for _ in 0..SEGMENT_BYTES + 1 {
        fill.push(b"x").await;
    }
    let state = fill.state();
    assert_eq!((state.full.len(), state.last.len()), (1, 1));
}

#[tokio::test]
async fn an_unstored_body_waits_for_its_slowest_reader() {
    let fill = Arc::new(Fill::default());
    let mut reader = fill.read(0, None).unwrap();
    fill.forget_what_is_read();
    let piece = vec![1; SEGMENT_BYTES];
    let mut pushed = 0;
    while fill.push(&piece).now_or_never().is_some() {
        pushed += 1;
    }
    assert_eq!(pushed, WINDOW_BYTES / SEGMENT_BYTES as u64);
    assert!(fill.read(0, None).is_none(), "nobody may begin now");
    next(&mut reader).await;
    assert!(fill.push(&piece).now_or_never().is_some());
    assert!(fill.state().full.len() <= pushed as usize + 1);
    drop(reader);
    for _ in 0..100 {
        fill.push(&piece).now_or_never().unwrap();
    }
    assert!(fill.state().full.len() <= 2, "nobody reads: nothing is kept");
    assert!(fill.whole().is_none());
}

/// Reads everything. Returns the number of bytes before the end (`Ok`) or before an error (`Err`).
async fn drain(mut reader: FillReader) -> Result<u64, u64> {
    let mut bytes = 0;
    while let Some(next) = next(&mut reader).await {
        bytes += next.map_err(|_| bytes)?.len() as u64;
    }
    Ok(bytes)
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_dropped_after_delaying_others_for_five_seconds() {
    let fill = Arc::new(Fill::default());
    let mut slow = fill.read(0, None).unwrap();
    let fast = [fill.read(0, None).unwrap(), fill.read(0, None).unwrap()];
    fill.forget_what_is_read();
    let fast = fast.map(|reader| tokio::spawn(drain(reader)));
    let began = Instant::now();
    for _ in 0..100 {
        fill.push(&vec![1; SEGMENT_BYTES]).await;
        // The slow reader reads a little, so that it is never idle.
        if began.elapsed() < MAX_READER_DELAY / 2 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            next(&mut slow).await;
        }
    }
    fill.finish(Ok(()));
    for reader in fast {
        assert_eq!(reader.await.unwrap(), Ok(100 * SEGMENT_BYTES as u64));
    }
    assert!(began.elapsed() <= MAX_READER_DELAY * 2, "{:?}", began.elapsed());
    assert!(matches!(next(&mut slow).await, Some(Err(OriginError::Stalled))));
    assert!(fill.buffered_bytes() <= WINDOW_BYTES + 2 * SEGMENT_BYTES as u64);
}

#[tokio::test(start_paused = true)]
async fn a_lone_reader_may_be_slow() {
    let fill = Arc::new(Fill::default());
    let mut reader = fill.read(0, None).unwrap();
    fill.forget_what_is_read();
    let writer = fill.clone();
    let writing = tokio::spawn(async move {
        for _ in 0..40 {
            writer.push(&vec![1; SEGMENT_BYTES]).await;
        }
        writer.finish(Ok(()));
    });
    for _ in 0..40 {
        tokio::time::sleep(MAX_READER_DELAY * 2).await;
        assert_eq!(next(&mut reader).await.unwrap().unwrap().len(), SEGMENT_BYTES);
    }
    assert!(next(&mut reader).await.is_none());
    writing.await.unwrap();
}

#[tokio::test]
async fn a_failure_reaches_all_readers() {
    let fill = Arc::new(Fill::default());
    let mut reader = fill.read(0, None).unwrap();
    fill.push(b"x").await;
    fill.finish(Err(OriginError::Offline));
    assert_eq!(next(&mut reader).await.unwrap().unwrap(), "x");
    assert!(matches!(next(&mut reader).await, Some(Err(OriginError::Offline))));
    assert!(fill.whole().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_a_later_range_delays_nobody() {
    let fill = Arc::new(Fill::default());
    let range = tokio::spawn(drain(fill.read(1_000_000, Some(1_000_009)).unwrap()));
    let head = tokio::spawn(drain(fill.read(0, None).unwrap()));
    fill.push(b"first").await;
    fill.forget_what_is_read();
    let piece = vec![1; SEGMENT_BYTES];
    for _ in 0..40 {
        timeout(DELAY_CHECK_INTERVAL, fill.push(&piece)).await.expect("nobody is behind for long");
    }
    fill.finish(Ok(()));
    assert_eq!(range.await.unwrap(), Ok(10));
    assert!(head.await.unwrap().is_ok());
}
