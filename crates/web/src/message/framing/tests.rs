use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Result<Option<Framed>, Refusal> {
    head(text.as_bytes())
}

fn body(fields: &str) -> Option<Length> {
    let text = format!("POST / HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n\r\n");
    read(&text).ok().map(|framed| framed.expect("it is complete").body)
}

#[test]
fn one_meaning_is_taken() {
    let get = "GET /a?b HTTP/1.1\r\nHost: a.test:80\r\nAccept: */*\r\n\r\n";
    let framed = Framed { bytes: get.len(), body: Length::Known(0), connect: false };
    assert_eq!(read(get), Ok(Some(framed)));
    assert_eq!(read(&format!("{get}GET")), Ok(Some(framed)));
    assert_eq!(read(&format!("\r\n{get}")), Ok(Some(Framed { bytes: get.len() + 2, ..framed })));
    assert!(read("GET / HTTP/1.0\r\n\r\n").unwrap().is_some());
    assert!(read("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n").unwrap().unwrap().connect);
    assert_eq!(body("Content-Length: 5"), Some(Length::Known(5)));
    assert_eq!(body("transfer-encoding:\tCHUNKED "), Some(Length::Chunked));
    for cut in 0..get.len() {
        assert_eq!(read(&get[..cut]), Ok(None), "{cut}");
    }
}

#[test]
fn two_meanings_are_refused() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length:",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        "X: a\r\n Transfer-Encoding: chunked",
        "X: a\r\n\tb",
        "X: a\nTransfer-Encoding: chunked",
        "X: a\rTransfer-Encoding: chunked",
        "X: a\0b",
        "X: a\u{b}b",
        "X",
        ": a",
        "X Y: a",
        "Host: b.test",
        "\u{e9}: a",
    ] {
        assert_eq!(body(fields), None, "{fields:?}");
    }
}

#[test]
fn first_lines_and_hosts() {
    for wrong in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET /\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\nHost: b\r\n\r\n",
    ] {
        assert!(matches!(read(wrong), Err(Refusal::Malformed(_))), "{wrong:?}");
    }
}

#[test]
fn long_heads_are_refused_with_431() {
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(MAX_HEAD_BYTES));
    for text in [long.clone(), format!("{long}\r\n\r\n"), "a".repeat(MAX_HEAD_BYTES)] {
        assert_eq!(read(&text), Err(Refusal::TooLong));
    }
    let many = "X: a\r\n".repeat(MAX_FIELDS);
    assert_eq!(read(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n")), Err(Refusal::TooLong));
}

fn chunks(text: &str) -> Result<Read, Refusal> {
    Chunks::default().read(text.as_bytes())
}

#[test]
fn chunked_bodies_end_where_they_say() {
    for (text, rest) in [
        ("0\r\n\r\n", "GET"),
        ("5\r\nhello\r\n0\r\n\r\n", ""),
        ("5;a=\"b\"\r\nhello\r\n00\r\nX: y\r\nZ: w\r\n\r\n", "POST"),
        ("A\r\n0\r\n\r\n67890\r\n0\r\n\r\n", "x"),
    ] {
        let whole = format!("{text}{rest}");
        assert_eq!(chunks(&whole), Ok(Read { bytes: text.len(), ended: true }), "{text:?}");
        let mut slowly = Chunks::default();
        for (at, byte) in text.bytes().enumerate() {
            let ended = at + 1 == text.len();
            assert_eq!(slowly.read(&[byte]), Ok(Read { bytes: 1, ended }), "{text:?} at {at}");
        }
    }
}

#[test]
fn an_invalid_chunk_is_refused() {
    for wrong in [
        "\r\n",
        "x\r\n",
        " 5\r\n",
        "5 \r\n",
        "0x5\r\n",
        "-1\r\n",
        "5\nhello",
        "5\rhello",
        "5\r\nhello0\r\n",
        "5\r\nhelloX\r\n0\r\n",
        "5\r\nhello\n0\r\n",
        "5;a\nb\r\n",
        "1000000000000000\r\n",
        "0\r\n X: folded\r\n\r\n",
        "0\r\nX: y\n\r\n",
    ] {
        assert!(chunks(wrong).is_err(), "{wrong:?}");
    }
    assert!(chunks(&format!("5;{}", "a".repeat(300))).is_err());
    assert!(chunks(&format!("0\r\nX: {}", "a".repeat(MAX_HEAD_BYTES))).is_err());
}

proptest! {
    #[test]
    fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = head(&bytes);
        let _ = Chunks::default().read(&bytes);
    }

    /// hyper's parser agrees on every accepted header.
    #[test]
    fn accepted_chunk_sizes_match_httparse(
        fields in prop::collection::vec(("[a-zA-Z-]{1,10}", "[ -~]{0,12}"), 0..6)
    ) {
        let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let text = format!("GET /x HTTP/1.1\r\nHost: a\r\n{lines}\r\nrest");
        if let Ok(Some(framed)) = read(&text) {
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let mut request = httparse::Request::new(&mut headers);
            let parsed = request.parse(text.as_bytes()).unwrap();
            prop_assert_eq!(parsed, httparse::Status::Complete(framed.bytes));
            prop_assert_eq!(request.headers.len(), fields.len() + 1);
        }
    }
}
