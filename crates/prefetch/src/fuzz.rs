//! Entry points for hostile bytes, used by fuzz targets and property tests.

use crate::scan::{CssScanner, HtmlScanner, Item, ModuleScanner};
use crate::wire::{FrameReader, Request, Unpacker, UpMessage, UpReader, WireError};

/// Maximum size of one unpacked input. In use the air gateway bounds a page's stream.
const MAX_UNPACKED_BYTES: usize = 8 << 20;

/// Scans `bytes` as a page, as a style sheet and as a module, whole and in two parts. The first
/// byte chooses the cut. Panics if the cut changes the result, or if too many objects are found.
pub fn scan(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let cut = usize::from(*cut).min(bytes.len());
    let pages = [0, cut].map(|cut| {
        let (mut scanner, mut items) = (HtmlScanner::new(&["image/avif"]), Vec::new());
        for part in [&bytes[..cut], &bytes[cut..]] {
            scanner.push(part, &mut |item| items.push(item));
        }
        scanner.finish(&mut |item| items.push(item));
        items
    });
    assert_eq!(pages[0], pages[1], "a cut shows");
    let sheets = [0, cut].map(|cut| {
        let (mut scanner, mut found) = (CssScanner::default(), Vec::new());
        for part in [&bytes[..cut], &bytes[cut..]] {
            scanner.push(part, &mut |object| found.push(object));
        }
        scanner.finish(&mut |object| found.push(object));
        found
    });
    assert_eq!(sheets[0], sheets[1], "a cut shows");
    let modules = [0, cut].map(|cut| {
        let (mut scanner, mut found) = (ModuleScanner::default(), Vec::new());
        for part in [&bytes[..cut], &bytes[cut..]] {
            scanner.push(part, &mut |object| found.push(object));
        }
        found
    });
    assert_eq!(modules[0], modules[1], "a cut shows");
    // The shortest import is `import"/"`.
    assert!(modules[0].len() <= bytes.len() / 9, "more than can be there");
    let objects = pages[0].iter().filter(|item| matches!(item, Item::Object(_))).count();
    // The shortest reference is `url(x)`.
    assert!(objects.max(sheets[0].len()) <= bytes.len() / 5 + 1, "more than can be there");
}

/// Parses `bytes` in both directions of the protocol. Panics if a parser breaks one of its
/// guarantees.
pub fn push(bytes: &[u8]) {
    let mut ups = Vec::new();
    if UpReader::default().push(bytes, &mut ups).is_ok()
        && let Some(UpMessage::Request(request)) = ups.first()
    {
        goes_and_comes(request);
    }
    // Random bytes are hardly ever a zstd frame with our dictionary.
    if let Ok(request) = Request::parse(bytes) {
        goes_and_comes(&request);
    }
    read_frames(bytes);
    // The result is the same as without an error: all earlier bytes were parsed.
    let _ = unpack(bytes);
}

fn goes_and_comes(request: &Request) {
    let again = request.encode().expect("what was read fits");
    let mut back = Vec::new();
    UpReader::default().push(&again, &mut back).expect("what was written can be read");
    let Some(UpMessage::Request(back)) = back.first() else {
        panic!("a request is something else")
    };
    assert_eq!(**back, *request, "a request changes on the way");
}

fn read_frames(bytes: &[u8]) {
    let mut frames = FrameReader::default();
    frames.push(bytes);
    let mut at = 0;
    while let Ok(Some(frame)) = frames.frame() {
        let mut again = Vec::new();
        frame.put(&mut again);
        assert!(bytes[at..].starts_with(&again), "a frame has two spellings");
        at += again.len();
    }
}

fn unpack(mut bytes: &[u8]) -> Result<(), WireError> {
    let (mut unpacker, mut frames, mut total) = (Unpacker::new()?, FrameReader::default(), 0);
    while total < MAX_UNPACKED_BYTES {
        let mut came = 0;
        let taken = unpacker.unpack(bytes, &mut |more| {
            came = more.len();
            frames.push(more);
        })?;
        bytes = &bytes[taken..];
        total += came;
        while frames.frame()?.is_some() {}
        if came == 0 && bytes.is_empty() {
            break;
        }
    }
    Ok(())
}
