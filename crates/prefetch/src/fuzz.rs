//! Entry points for hostile bytes, for the fuzz targets and property tests.

use bytes::Bytes;

use crate::scan::{CssScanner, HtmlScanner, Item, ModuleScanner};
use crate::wire::single::{
    Downs, End, HeadPacker, HeadUnpacker, MAX_CHUNK_BYTES, MAX_TEXT_BYTES, put_said,
};
use crate::wire::{Frames, Request, Unpacker, Up, Ups, WireError};

/// Unpacked bytes that one input may come to: what a page's stream may hold is bounded by the cabin.
const MOST_BYTES: usize = 8 << 20;

/// Scans `bytes` as a page, as a style sheet and as a module, whole and in two parts, the first byte saying where
/// they are cut. Panics when the cut shows, or when more is found than can be.
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
    // The shortest that is one is `import"/"`.
    assert!(modules[0].len() <= bytes.len() / 9, "more than can be there");
    let objects = pages[0].iter().filter(|item| matches!(item, Item::Object(_))).count();
    // The shortest that is one is `url(x)`.
    assert!(objects.max(sheets[0].len()) <= bytes.len() / 5 + 1, "more than can be there");
}

/// Reads `bytes` as each half reads the other's. Panics when a parser breaks a promise.
pub fn push(bytes: &[u8]) {
    let mut ups = Vec::new();
    if Ups::default().push(bytes, &mut ups).is_ok()
        && let Some(Up::Request(request)) = ups.first()
    {
        goes_and_comes(request);
    }
    // Few bytes that somebody makes up are a zstd frame with our dictionary.
    if let Ok(request) = Request::parse(bytes) {
        goes_and_comes(&request);
    }
    read_frames(bytes);
    // The outcome is the same as without an error: whatever came before it was read.
    let _ = unpack(bytes);
}

/// Reads `bytes` as the ground reads a single request, whole and in two parts, the first byte saying where
/// they are cut; and packs them as if they went to an origin; and reads them as the cabin reads what a site's
/// origin says. Panics when a cut shows, when more comes out
/// than may, or when what comes out of what was packed is something else.
pub fn single(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let (first, second) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    let whole = unpack_single(&[bytes]);
    assert_eq!(whole, unpack_single(&[first, second]), "a cut shows");
    let (mut packer, mut packed) = (HeadPacker::default(), Vec::new());
    packer.push(first, &mut packed);
    packer.push(second, &mut packed);
    packer.flush(&mut packed);
    assert_eq!(unpack_single(&[&packed]), (bytes.to_vec(), None), "bytes change on the way");
    let came = downs(&[bytes]);
    assert_eq!(came, downs(&[first, second]), "a cut shows");
    assert!(came.0.len() <= bytes.len(), "more comes out than went in");
    let mut said = Vec::new();
    put_said(bytes, &mut said);
    End::Whole.put(&mut said);
    let whole = (bytes.to_vec(), Ok(Some(End::Whole)));
    assert_eq!(downs(&[&said]), whole, "bytes change on the way down");
}

/// Bytes of an origin, and their end.
fn downs(parts: &[&[u8]]) -> (Vec<u8>, Result<Option<End>, WireError>) {
    let (mut downs, mut out) = (Downs::default(), Vec::new());
    for part in parts {
        let mut rest = Bytes::copy_from_slice(part);
        loop {
            match downs.take(&mut rest, usize::MAX) {
                Ok(said) if said.is_empty() => break,
                Ok(said) => out.extend(said),
                Err(error) => return (out, Err(error)),
            }
        }
        assert!(rest.is_empty() || downs.end().is_some(), "it does not go on");
    }
    (out, Ok(downs.end()))
}

/// Unpacked bytes, and the error that ended them.
fn unpack_single(parts: &[&[u8]]) -> (Vec<u8>, Option<WireError>) {
    let (mut unpacker, mut out) = (HeadUnpacker::default(), Vec::new());
    for part in parts {
        let mut rest = *part;
        while !rest.is_empty() && out.len() < MOST_BYTES {
            let before = out.len();
            let taken = match unpacker.unpack(rest, &mut out) {
                Ok(taken) => taken,
                Err(error) => {
                    // Half a head is none.
                    out.truncate(before);
                    return (out, Some(error));
                }
            };
            assert!(taken > 0, "it does not go on");
            assert!(out.len() - before <= MAX_TEXT_BYTES + MAX_CHUNK_BYTES, "more than may");
            rest = &rest[taken..];
        }
    }
    (out, None)
}

fn goes_and_comes(request: &Request) {
    let again = request.encode().expect("what was read fits");
    let mut back = Vec::new();
    Ups::default().push(&again, &mut back).expect("what was written can be read");
    let Some(Up::Request(back)) = back.first() else { panic!("a request is something else") };
    assert_eq!(**back, *request, "a request changes on the way");
}

fn read_frames(bytes: &[u8]) {
    let mut frames = Frames::default();
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
    let (mut unpacker, mut frames, mut total) = (Unpacker::new()?, Frames::default(), 0);
    while total < MOST_BYTES {
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
