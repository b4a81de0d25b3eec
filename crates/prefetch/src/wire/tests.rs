use super::*;
use crate::address::Address;
use crate::digest::CacheDigest;
use crate::fuzz;
use crate::plan::Promise;
use crate::scan::Urgency;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    lines.iter().map(pair).collect()
}

fn url(text: &str) -> Address {
    Address::parse(text).unwrap()
}

const CHROME: &str = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/156.0.0.0 Safari/537.36";
const ACCEPT: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,\
    image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7";

fn request() -> Request {
    let sent = headers(&[
        ("accept", ACCEPT),
        ("user-agent", CHROME),
        ("accept-language", "en-US,en;q=0.9"),
        ("cookie", "secret=1"),
        ("authorization", "Basic secret"),
    ]);
    let digest = CacheDigest::of([crate::digest::hash(&url("http://site.test/a.css"))]);
    Request::new(url("http://www.site.test/some/page"), &sent, 1 << 40, digest)
}

fn ups(parts: &[&[u8]]) -> Result<Vec<UpMessage>, WireError> {
    let (mut reader, mut out) = (UpReader::default(), Vec::new());
    parts.iter().try_for_each(|part| reader.push(part, &mut out))?;
    Ok(out)
}

#[test]
fn a_cache_condition_has_its_own_version() {
    let plain = request();
    let mut asks = plain.clone();
    asks.headers.insert("if-none-match", HeaderValue::from_static("\"1\""));
    asks.headers
        .insert("if-modified-since", HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
    let (plain, bytes) = (plain.encode().unwrap(), asks.encode().unwrap());
    assert_eq!((plain[0], bytes[0]), (VERSION, VERSION_CONDITIONAL));
    assert_eq!(ups(&[&bytes]), Ok(vec![UpMessage::Request(Box::new(asks))]));
    for (mut other, version) in [(bytes, VERSION), (plain.clone(), VERSION_CONDITIONAL), (plain, 4)]
    {
        other[0] = version;
        let wrong = if version == 4 { WireError::Version(4) } else { WireError::Malformed };
        assert_eq!(ups(&[&other]), Err(wrong), "version {version}");
    }
}

/// A stream with every kind of frame.
fn story() -> Vec<Frame> {
    let head = |lines| Box::new(Head::of(StatusCode::OK, &headers(lines)).unwrap());
    let promise = |id, path: &str| {
        let address = url("http://site.test/").join(path).unwrap();
        Frame::Promise(Promise { id, address, urgency: Urgency::new(5).unwrap() })
    };
    vec![
        Frame::Head(PAGE, head(&[("content-type", "text/html"), ("vary", "accept")])),
        promise(1, "a.css"),
        promise(2, "b.png"),
        Frame::Data(PAGE, Bytes::from_static(b"<link rel=stylesheet href=a.css><img src=b.png>")),
        Frame::Head(1, head(&[])),
        Frame::Data(1, Bytes::from(vec![b'x'; MAX_DATA_BYTES])),
        Frame::End(PAGE, End::Complete),
        Frame::End(1, End::Aborted),
        Frame::End(2, End::Declined),
    ]
}

fn bytes_of(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.put(&mut bytes));
    bytes
}

fn frames(bytes: &[u8]) -> Result<Vec<Frame>, WireError> {
    let mut reader = FrameReader::default();
    reader.push(bytes);
    let mut out = Vec::new();
    while let Some(frame) = reader.frame()? {
        out.push(frame);
    }
    Ok(out)
}

#[test]
fn a_first_request_is_short_and_has_no_secrets() {
    let bytes = request().encode().unwrap();
    assert!(bytes.len() < 100, "{} bytes", bytes.len());
    let all = ups(&[&bytes]).unwrap();
    let [UpMessage::Request(read)] = &all[..] else { panic!("one request") };
    assert_eq!(**read, request());
    assert_eq!(read.allowance_bytes, u32::MAX);
    assert!(!read.headers.contains_key("cookie") && !read.headers.contains_key("authorization"));
}

#[test]
fn only_cancellations_follow_a_request() {
    let encoded = request().encode().unwrap();
    let all = ups(&[
        &encoded[..9],
        &encoded[9..],
        &UpMessage::cancel(3)[..2],
        &UpMessage::cancel(3)[2..],
    ])
    .unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(all[1], UpMessage::Cancel(3));
    assert_eq!(ups(&[&UpMessage::cancel(3)]), Err(WireError::Version(2)));
    assert_eq!(ups(&[&encoded, &encoded]), Err(WireError::Malformed));
    assert_eq!(ups(&[&encoded, &UpMessage::cancel(0)]), Err(WireError::Malformed));
    assert_eq!(ups(&[&encoded, &UpMessage::cancel(u16::MAX)]), Err(WireError::Malformed));
    assert_eq!(ups(&[&[VERSION, 0, 1, 0]]), Err(WireError::Packed));
}

#[test]
fn a_request_that_unpacks_to_too_much_is_refused() {
    let mut packer = zstd::bulk::Compressor::new(3).unwrap();
    let packed = packer.compress(&vec![0; 100 * MAX_REQUEST_BYTES]).unwrap();
    let mut bytes = vec![VERSION];
    bytes.extend((packed.len() as u16).to_be_bytes());
    bytes.extend(packed);
    assert_eq!(ups(&[&bytes]), Err(WireError::Packed));
}

#[test]
fn a_stream_round_trips_and_every_prefix_waits() {
    let bytes = bytes_of(&story());
    assert_eq!(frames(&bytes), Ok(story()));
    for cut in (0..200).chain([bytes.len() - 1]) {
        let read = frames(&bytes[..cut]).unwrap();
        assert!(read.len() < story().len() && story().starts_with(&read), "cut at {cut}");
    }
}

#[test]
fn frames_in_a_wrong_order_are_refused() {
    let refused = |frames_: &[Frame]| frames(&bytes_of(frames_));
    let [page, promise_1, promise_2, _, head_1, data_1, .., end_2] = &story()[..] else { panic!() };
    for wrong in [
        vec![promise_2.clone()],
        vec![promise_1.clone(), promise_1.clone()],
        vec![head_1.clone()],
        vec![promise_1.clone(), data_1.clone()],
        vec![end_2.clone()],
        vec![page.clone(), page.clone()],
        vec![page.clone(), Frame::End(PAGE, End::Declined)],
        vec![page.clone(), Frame::End(PAGE, End::Complete), Frame::Data(PAGE, "x".into())],
        vec![Frame::End(PAGE, End::Complete)],
        vec![page.clone(), Frame::End(PAGE, End::Refused(Refusal::Busy))],
        vec![page.clone(), promise_1.clone(), Frame::End(1, End::Refused(Refusal::Name))],
    ] {
        assert_eq!(refused(&wrong), Err(WireError::Order), "{wrong:?}");
    }
}

#[test]
fn a_page_may_be_refused_for_a_while() {
    for (why, code) in [(Refusal::Name, 3), (Refusal::Busy, 4)] {
        let end = [Frame::End(PAGE, End::Refused(why))];
        assert_eq!(bytes_of(&end), [4, 0, 0, code]);
        assert_eq!(frames(&bytes_of(&end)).as_deref(), Ok(&end[..]));
    }
}

#[test]
fn malformed_frames_are_refused() {
    for wrong in [
        &b"\x00\x00\x00"[..],
        b"\x09\x00\x00",
        b"\x03\x00\x00\x00\x00",
        b"\x03\x00\x00\xff\xff",
        b"\x04\x00\x00\x05",
        b"\x04\x00\x00\x09",
        b"\x01\x00\x01\x08\x00\x0chttp://a.test/",
        b"\x01\x00\x01\x01\x00\x0dhttp://a.test",
        b"\x01\x00\x01\x01\xff\xff",
        b"\x02\x00\x00\x00\x64\x00",
        b"\x02\x00\x00\x00\xc8\xff",
        b"\x02\x00\x00\x00\xc8\x01\x01A\x00\x00",
        b"\x02\x00\x00\x00\xc8\x01\x0aconnection\x00\x05close",
    ] {
        assert!(frames(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn fields_of_one_name_follow_each_other() {
    let head = |names: &[u8]| {
        let mut bytes = vec![2, 0, 0, 0, 200, names.len() as u8];
        names.iter().for_each(|name| bytes.extend([1, *name, 0, 1, b'1']));
        frames(&bytes)
    };
    assert_eq!(head(b"ayyb").map(|frames| frames.len()), Ok(1));
    assert_eq!(head(b"ayby"), Err(WireError::Malformed), "it would have two spellings");
}

#[test]
fn headers_lose_hop_by_hop_fields_and_must_fit() {
    let sent = headers(&[
        ("connection", "Keep-Alive, X-Own"),
        ("keep-alive", "timeout=5"),
        ("x-own", "1"),
        ("transfer-encoding", "chunked"),
        ("etag", "\"1\""),
    ]);
    let head = Head::of(StatusCode::OK, &sent).unwrap();
    assert_eq!(head.headers, headers(&[("etag", "\"1\"")]));
    let long = HeaderValue::from_bytes(&[b'x'; MAX_HEAD_BYTES]).unwrap();
    let long = HeaderMap::from_iter([(HeaderName::from_static("x-long"), long)]);
    assert_eq!(Head::of(StatusCode::OK, &long), None);
    let many = (0..=MAX_HEAD_FIELDS).map(|n| {
        (
            HeaderName::from_bytes(format!("x-{n}").as_bytes()).unwrap(),
            HeaderValue::from_static("1"),
        )
    });
    assert_eq!(Head::of(StatusCode::OK, &many.collect()), None);
}

fn unpacked(packed: &[u8], part: usize) -> Result<Vec<u8>, WireError> {
    let (mut unpacker, mut out) = (Unpacker::new()?, Vec::new());
    for mut bytes in packed.chunks(part) {
        loop {
            let before = out.len();
            let taken = unpacker.unpack(bytes, &mut |more| out.extend_from_slice(more))?;
            bytes = &bytes[taken..];
            if bytes.is_empty() && out.len() == before {
                break;
            }
        }
    }
    Ok(out)
}

#[test]
fn text_is_packed_and_can_be_flushed() {
    let html = "<p class=\"story\">the same again and again</p>\n".repeat(500);
    let (mut packer, mut packed) = (Packer::new().unwrap(), Vec::new());
    packer.pack(html.as_bytes(), true, &mut packed).unwrap();
    assert!(packed.len() < html.len() / 20, "{} of {}", packed.len(), html.len());
    assert_eq!(unpacked(&packed, 100).unwrap(), html.as_bytes(), "flushed, so all is there");
    let first = packed.len();
    packer.pack(html.as_bytes(), true, &mut packed).unwrap();
    assert!(packed.len() - first < first, "what came before helps");
    packer.finish(&mut packed).unwrap();
    assert_eq!(unpacked(&packed, 7).unwrap().len(), 2 * html.len());
    packed.push(0);
    assert_eq!(unpacked(&packed, 1000), Err(WireError::Packed), "nothing follows the end");
}

proptest! {
    #[test]
    fn streams_survive_any_fragmentation(part in 1_usize..3000, flush: bool) {
        let (mut packer, mut packed) = (Packer::new().unwrap(), Vec::new());
        for frame in story() {
            packer.pack(&bytes_of(&[frame]), flush, &mut packed).unwrap();
        }
        packer.finish(&mut packed).unwrap();
        let plain = unpacked(&packed, part).unwrap();
        let (mut reader, mut read) = (FrameReader::default(), Vec::new());
        for bytes in plain.chunks(part) {
            reader.push(bytes);
            while let Some(frame) = reader.frame().unwrap() {
                read.push(frame);
            }
        }
        prop_assert!(reader.is_over());
        prop_assert_eq!(read, story());
    }

    #[test]
    fn no_bytes_panic_a_parser(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz::push(&bytes);
        fuzz::scan(&bytes);
    }

    #[test]
    fn damage_panics_no_parser(at in 0_usize..400, bit in 0_u8..8) {
        let mut bytes = bytes_of(&story());
        bytes[at] ^= 1_u8 << bit;
        fuzz::push(&bytes);
    }
}
