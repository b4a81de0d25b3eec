use super::split::split;
use super::*;
use crate::fuzz;
use crate::wire::WireError;
use bytes::Bytes;
use proptest::prelude::*;

/// Chromium's request for a picture in clear, as the cabin's half writes it; names are made up.
const PICTURE: &str = "GET /media/2026/11/harbour-at-dawn-1280x720.webp HTTP/1.1\r\n\
    host: pictures.harbour-times.test\r\n\
    user-agent: Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/156.0.0.0 Safari/537.36\r\n\
    accept: image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8\r\n\
    referer: http://www.harbour-times.test/news/2026/harbour\r\n\
    accept-encoding: gzip, deflate\r\naccept-language: en-US,en;q=0.9\r\nvia: 1.1 bentpipe\r\n\r\n";

/// Another browser and language, a version that the dictionary does not have, and a cookie.
const SCRIPT: &str = "GET /static/js/main.8f3ab2c1.js?v=77ab HTTP/1.1\r\nhost: shop.example.test\r\n\
    user-agent: Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:163.0) Gecko/20100101 Firefox/163.0\r\n\
    accept: */*\r\naccept-language: nl,en-US;q=0.7,en;q=0.3\r\naccept-encoding: gzip, deflate\r\n\
    referer: http://shop.example.test/basket?id=4711\r\n\
    cookie: session=c2Vzc2lvbi1vZi1zb21lYm9keQ; theme=dark\r\nvia: 1.1 bentpipe\r\n\r\n";

fn pack(parts: &[&[u8]]) -> Vec<u8> {
    let (mut packer, mut out) = (HeadPacker::default(), Vec::new());
    parts.iter().for_each(|part| packer.push(part, &mut out));
    packer.flush(&mut out);
    out
}

fn unpack(mut bytes: &[u8]) -> Result<Vec<u8>, WireError> {
    let (mut unpacker, mut out) = (HeadUnpacker::default(), Vec::new());
    while !bytes.is_empty() {
        let before = out.len();
        let taken = unpacker.unpack(bytes, &mut out)?;
        assert!(taken > 0 && out.len() - before <= MAX_TEXT_BYTES + MAX_CHUNK_BYTES);
        bytes = &bytes[taken..];
    }
    assert!(unpacker.is_between_chunks());
    Ok(out)
}

/// A chunk with this frame, magic number included, and nothing kept out.
fn chunk_of(frame: &[u8]) -> Vec<u8> {
    let frame = frame.strip_prefix(&MAGIC).unwrap();
    let length = frame.len() as u16;
    [&[HEAD][..], &(length + 2).to_be_bytes(), &length.to_be_bytes(), frame].concat()
}

#[test]
fn heads_are_a_fraction_of_what_they_were() {
    // Measured here; a change of the dictionary or of what is kept out of the compressor shows.
    for (name, head, bytes) in [("picture", PICTURE, 116), ("script", SCRIPT, 181)] {
        let packed = pack(&[head.as_bytes()]);
        assert_eq!(unpack(&packed).unwrap(), head.as_bytes());
        assert_eq!(packed.len(), bytes, "{name}, {} bytes", head.len());
    }
}

/// [`PICTURE`], packed by another writer: zstd at its strongest, with the same dictionary.
const PICTURE_PACKED: &str = "02006e00590000a50200d2c30d11a06f0037fb24f60f20bcb8db6baa3a190a20f45bf7c3ba087f5857ef3348\
    899f4c901721b16ae295a877aeaa5e97d2c689b782cdc5140800d1fbc1b9573ab925219bbc28d24a1c1126f0\
    08219fc1bc0200116e6577732f323032362f686172626f7572";

#[test]
fn what_was_packed_once_is_read_for_ever() {
    let digits = PICTURE_PACKED.as_bytes().chunks(2);
    let digits = digits.map(|pair| std::str::from_utf8(pair).unwrap());
    let packed: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    assert_eq!(unpack(&packed).as_deref(), Ok(PICTURE.as_bytes()), "the dictionary has changed");
}

#[test]
fn what_may_be_a_secret_is_not_in_the_compressor() {
    let head = SCRIPT.replace("via:", "Authorization: Basic eDp5\r\nX-Token: a\r\n folded\r\nvia:");
    let (text, kept) = split(head.as_bytes()).unwrap();
    let kept: Vec<_> = kept.iter().map(|piece| std::str::from_utf8(piece).unwrap()).collect();
    let cookie = "session=c2Vzc2lvbi1vZi1zb21lYm9keQ; theme=dark";
    assert_eq!(kept, ["v=77ab", "basket?id=4711", cookie, "Basic eDp5", "a", " folded"]);
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("referer: http://shop.example.test/\0\r\ncookie: \0\r\n"), "{text}");
    assert!(text.starts_with("GET /static/js/main.8f3ab2c1.js?\0 HTTP/1.1\r\n"), "{text}");
    for (field, open) in [
        ("COOKIE: a=b", "COOKIE: \0"),
        ("Proxy-Authorization:x", "Proxy-Authorization:\0"),
        ("Referer: http://me:word@site.test/a", "Referer: \0"),
        ("Referer: about:blank", "Referer: \0"),
        ("Referer: http://site.test", "Referer: \0"),
        ("Referer: http://site.test/", "Referer: http://site.test/"),
        ("Host: site.test", "Host: site.test"),
        ("none", "\0"),
        ("empty:", "empty:"),
        ("Cookie: a=b;\r\n c=d; e:f", "Cookie: \0\r\n\0"),
        ("Cookie: a=b;\r\n\tHost: c", "Cookie: \0\r\n\0"),
        ("Host: site.test\r\n accept: a", "Host: site.test\r\n\0"),
    ] {
        let head = format!("GET / HTTP/1.1\r\n{field}\r\n\r\n");
        let (text, _) = split(head.as_bytes()).unwrap();
        assert_eq!(text, format!("GET / HTTP/1.1\r\n{open}\r\n\r\n").as_bytes());
    }
    for (address, open) in [
        ("/basket;jsessionid=c2Vzc2lvbg", "/basket;\0"),
        ("/basket;jsessionid=c2Vzc2lvbg/next?a=b", "/basket;\0"),
        ("/basket?a=b;c=d", "/basket?\0"),
        ("/basket;", "/basket;"),
    ] {
        let head = format!("GET {address} HTTP/1.1\r\n\r\n");
        let (text, _) = split(head.as_bytes()).unwrap();
        assert_eq!(text, format!("GET {open} HTTP/1.1\r\n\r\n").as_bytes());
    }
    // The lengths that an onlooker sees do not tell whether a guess is right.
    let with = |path: &str| {
        let head = format!(
            "GET /{path} HTTP/1.1\r\nhost: a.test\r\nCookie: secret=0123456789abcdef\r\n\r\n"
        );
        pack(&[head.as_bytes()]).len()
    };
    assert_eq!(
        with("secret=0123456789abcdef").cmp(&with("0123456789abcdefsecret=")),
        std::cmp::Ordering::Equal
    );
}

#[test]
fn a_body_and_what_follows_it_cross_as_they_are() {
    let post = "POST /a HTTP/1.1\r\nhost: a.test\r\nuser-agent: curl/8.0\r\naccept: */*\r\n\
        content-length: 400\r\n\r\n";
    let body = "x".repeat(400) + PICTURE;
    let whole = format!("{post}{body}");
    let (at_once, in_two) = (pack(&[whole.as_bytes()]), pack(&[post.as_bytes(), body.as_bytes()]));
    for packed in [at_once, in_two] {
        assert_eq!(packed[0], HEAD);
        assert!(packed.ends_with(body.as_bytes()));
        assert_eq!(unpack(&packed).unwrap(), whole.as_bytes());
    }
    for head in [
        "GET / HTTP/1.1\r\nContent-Length: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let packed = pack(&[head.as_bytes(), PICTURE.as_bytes()]);
        assert!(packed.ends_with(PICTURE.as_bytes()), "{head}");
    }
}

#[test]
fn the_next_head_on_a_connection_is_packed_as_the_first_was() {
    let first = pack(&[SCRIPT.as_bytes()]);
    let both = pack(&[PICTURE.as_bytes(), SCRIPT.as_bytes()]);
    assert!(both.ends_with(&first), "nothing is learned from another request");
    let together = pack(&[[PICTURE, SCRIPT].concat().as_bytes()]);
    assert_eq!(together, both);
    assert_eq!(unpack(&both).unwrap(), [PICTURE, SCRIPT].concat().as_bytes());
    let mut packer = HeadPacker::default();
    packer.push([PICTURE, SCRIPT].concat().as_bytes(), &mut Vec::new());
    let saved = (PICTURE.len() + SCRIPT.len() - both.len()) as u64;
    assert_eq!((packer.take_saved(), packer.take_saved()), ((2, saved), (0, 0)));
}

#[test]
fn what_is_cut_short_or_too_long_crosses_as_it_is() {
    let (begin, end) = PICTURE.split_at(300);
    let mut packer = HeadPacker::default();
    let mut out = Vec::new();
    packer.push(begin.as_bytes(), &mut out);
    assert!(out.is_empty(), "it waits for the rest");
    packer.push(end.as_bytes(), &mut out);
    assert_eq!(out, pack(&[PICTURE.as_bytes()]));
    // What was flushed in the middle may go on with a secret.
    out.clear();
    packer.push(begin.as_bytes(), &mut out);
    packer.flush(&mut out);
    packer.push(end.as_bytes(), &mut out);
    assert!(out.ends_with(end.as_bytes()));
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "ab-".repeat(6000));
    assert!(pack(&[long.as_bytes()]).len() > long.len());
    // So does what no honest head is: it would come to more than the other end takes.
    let dull = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(6000));
    for head in [long, dull, "GET /\0 HTTP/1.1\r\n\r\n".to_owned()] {
        let packed = pack(&[head.as_bytes()]);
        assert_eq!((packed[0], unpack(&packed).as_deref()), (AS_IT_IS, Ok(head.as_bytes())));
    }
}

#[test]
fn a_head_of_more_than_16_kib_is_not_packed_though_it_comes_at_once() {
    // What is packed of it would do with less than a chunk.
    let of = |bytes: usize| {
        let accept: String = (0..300).map(|n| format!("text/{n},")).collect();
        let begin = format!("GET / HTTP/1.1\r\nhost: a.test\r\naccept: {accept}\r\ncookie: ");
        let cookie = "c".repeat(bytes - begin.len() - 4);
        format!("{begin}{cookie}\r\n\r\n")
    };
    let longest = pack(&[of(MAX_PACKED_HEAD_BYTES).as_bytes()]);
    assert_eq!(longest[0], HEAD);
    for bytes in [MAX_PACKED_HEAD_BYTES + 1, 17 << 10] {
        let head = of(bytes);
        for parts in [vec![head.as_bytes()], head.as_bytes().chunks(1000).collect()] {
            let packed = pack(&parts);
            assert_eq!((packed[0], unpack(&packed).as_deref()), (AS_IT_IS, Ok(head.as_bytes())));
        }
    }
}

#[test]
fn a_bomb_and_what_is_no_chunk_are_refused() {
    let frame = |text: &[u8]| zstd::bulk::compress(text, 3).unwrap();
    let bomb = chunk_of(&frame(&[b'a'; 1 << 20]));
    assert_eq!(unpack(&bomb), Err(WireError::Packed));
    // Few bytes that come to 8 KiB and no more are too many for their frame.
    assert_eq!(unpack(&chunk_of(&frame(&[b'a'; 4096]))), Err(WireError::Packed));
    assert_eq!(unpack(&chunk_of(&frame(b"plain"))).as_deref(), Ok(&b"plain"[..]));
    // One frame, and no second nor one to skip behind it.
    let skipped = [0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, b'x'];
    for more in [&frame(b"more")[..], &skipped] {
        let two = [&frame(b"plain"), more].concat();
        assert_eq!(unpack(&chunk_of(&two)), Err(WireError::Packed));
    }
    // A piece is missing, or one too many.
    assert_eq!(unpack(&chunk_of(&frame(b"a\0b"))), Err(WireError::Malformed));
    let mut more = chunk_of(&frame(b"ab"));
    more[2] += 1;
    more.push(0);
    assert_eq!(unpack(&more), Err(WireError::Malformed));
    // A head of nothing: so is a frame that is empty, and one that is all piece, of no bytes.
    assert_eq!(unpack(&[HEAD, 0, 7, 0, 5, 0x20, 0, 1, 0, 0]), Err(WireError::Malformed));
    let mut nothing = chunk_of(&frame(b"\0"));
    nothing[2] += 2;
    nothing.extend([0, 0]);
    assert_eq!(unpack(&nothing), Err(WireError::Malformed));
    for (wrong, error) in [
        (&[AS_IT_IS, 0, 0][..], WireError::Malformed),
        (&[0, 0, 1], WireError::Malformed),
        (&[3, 0, 1], WireError::Malformed),
        (&[HEAD, 0, 0], WireError::Malformed),
        (&[HEAD, 0x40, 1], WireError::Large),
        (&[AS_IT_IS, 0xff, 0xff], WireError::Large),
        (&[HEAD, 0, 4, 0, 2, 1, 2], WireError::Packed),
    ] {
        assert_eq!(unpack(wrong), Err(error), "{wrong:?}");
    }
}

#[test]
fn a_chunk_in_pieces_is_not_over_before_its_last_byte() {
    let packed = pack(&[PICTURE.as_bytes(), b"half a head"]);
    let (mut unpacker, mut out) = (HeadUnpacker::default(), Vec::new());
    let first = pack(&[PICTURE.as_bytes()]).len();
    for (at, byte) in packed.iter().enumerate() {
        assert_eq!(unpacker.is_between_chunks(), at == 0 || at == first, "at {at}");
        assert_eq!(unpacker.unpack(&[*byte], &mut out), Ok(1));
    }
    assert!(unpacker.is_between_chunks());
    assert_eq!(out, [PICTURE.as_bytes(), b"half a head"].concat());
}

fn heads() -> impl Strategy<Value = Vec<u8>> {
    let value = "[ -~]{0,60}";
    let field = prop_oneof![
        ("(host|accept|referer|cookie|x-[a-z]{1,5}|content-length)", value)
            .prop_map(|(name, value)| format!("{name}: {value}\r\n")),
        "[\\x00-\\x7f]{0,9}",
    ];
    ("(GET|HEAD|POST) /[!-~]{0,40} HTTP/1.1\r\n", prop::collection::vec(field, 0..8))
        .prop_map(|(line, fields)| (line + &fields.concat() + "\r\n").into_bytes())
}

#[test]
fn an_end_is_told_and_what_is_no_chunk_is_refused() {
    let take = |bytes: &[u8]| {
        let (mut downs, mut bytes) = (Downs::default(), Bytes::copy_from_slice(bytes));
        downs.take(&mut bytes, usize::MAX).map(|said| (said, downs.end()))
    };
    for (byte, end) in [End::Whole, End::Cut, End::NoSite, End::Tls].into_iter().enumerate() {
        let mut put = Vec::new();
        end.put(&mut put);
        assert_eq!(put, [3, 0, 1, byte as u8]);
        assert_eq!(take(&put), Ok((Bytes::new(), Some(end))));
        put.extend(b"more");
        assert_eq!(take(&put), Ok((Bytes::new(), Some(end))), "nothing follows it");
    }
    assert_eq!(take(b"\x01\x00\x02hi"), Ok((Bytes::from_static(b"hi"), None)));
    for wrong in
        [&b"\x00"[..], b"\x02\x00\x01", b"\x01\x00\x00", b"\x03\x00\x02", b"\x03\x00\x01\x04"]
    {
        assert_eq!(take(wrong), Err(WireError::Malformed), "{wrong:?}");
    }
    assert_eq!(take(b"\x01\x40\x01"), Err(WireError::Large));
}

proptest! {
    #[test]
    fn whatever_goes_up_comes_out(
        heads in prop::collection::vec(heads(), 0..5),
        more in prop::collection::vec(any::<u8>(), 0..300),
        cut in 0..2000usize,
    ) {
        let all = [heads.concat(), more].concat();
        let (first, second) = all.split_at(cut.min(all.len()));
        for parts in [&[&all[..]][..], &[first, second]] {
            prop_assert_eq!(unpack(&pack(parts)).unwrap(), &all[..]);
        }
    }

    #[test]
    fn hostile_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz::single(&bytes);
    }

    #[test]
    fn damaged_chunks_are_read_or_refused(at in 0..400usize, by in 1..=255u8) {
        let mut bytes = pack(&[PICTURE.as_bytes(), SCRIPT.as_bytes()]);
        let at = at % bytes.len();
        bytes[at] ^= by;
        fuzz::single(&bytes);
    }
}
