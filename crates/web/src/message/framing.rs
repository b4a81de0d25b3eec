//! RequestSanitizer framing of requests: a request that could be parsed in two ways is refused (RFC 9112
//! §2.2, §5, §6, §11.2). Pure: takes bytes and returns a verdict.

use http::StatusCode;

/// Maximum size of a request header, and of a trailer section, in bytes.
pub const MAX_HEAD_BYTES: usize = 32 * 1024;

/// Maximum number of fields in a request: hyper's default.
const MAX_FIELDS: usize = 100;

/// Maximum size of a chunk extension, bytes. Legitimate senders do not use them.
const MAX_EXTENSION_BYTES: usize = 256;

/// Reason for refusing a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The request is invalid, or could be parsed in two ways.
    Malformed(&'static str),
    /// The header is too long.
    TooLong,
}

impl Refusal {
    /// Status code of the refusal.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::TooLong => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        }
    }

    /// Description of the fault.
    pub fn why(self) -> &'static str {
        match self {
            Self::Malformed(why) => why,
            Self::TooLong => "the head of the request is longer than 32 KiB or 100 fields",
        }
    }
}

/// An unambiguous header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framed {
    /// Length in bytes, including its empty line and an optional empty line before it.
    pub bytes: usize,
    /// Framing of the following body.
    pub body: Length,
    /// `true` for CONNECT: the connection becomes a tunnel if the response accepts it.
    pub connect: bool,
}

/// Framing of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// A body of this many bytes.
    Known(u64),
    /// A chunked body.
    Chunked,
}

/// Parses the header at the start of `bytes`; `None` if it is incomplete.
pub fn head(bytes: &[u8]) -> Result<Option<Framed>, Refusal> {
    // One preceding empty line is tolerated (RFC 9112 §2.2).
    let before = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    let mut lines = Lines(&bytes[before..]);
    let Some(first) = lines.next_line()? else { return more(bytes) };
    let (connect, is_11) = request_line(first)?;
    let mut fields = Fields::default();
    loop {
        let Some(line) = lines.next_line()? else { return more(bytes) };
        if line.is_empty() {
            break;
        }
        fields.note(line)?;
    }
    let length = bytes.len() - lines.0.len();
    if length > MAX_HEAD_BYTES {
        return Err(Refusal::TooLong);
    }
    Ok(Some(Framed { bytes: length, body: fields.length(is_11)?, connect }))
}

fn more(bytes: &[u8]) -> Result<Option<Framed>, Refusal> {
    if bytes.len() >= MAX_HEAD_BYTES { Err(Refusal::TooLong) } else { Ok(None) }
}

/// Iterator over lines that end with CR LF and contain neither.
struct Lines<'a>(&'a [u8]);

impl<'a> Lines<'a> {
    fn next_line(&mut self) -> Result<Option<&'a [u8]>, Refusal> {
        let Some(at) = self.0.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)) else {
            return Ok(None);
        };
        match &self.0[at..] {
            [b'\r', b'\n', rest @ ..] => {
                let line = &self.0[..at];
                self.0 = rest;
                Ok(Some(line))
            }
            [b'\r'] => Ok(None),
            [b'\n', ..] => Err(Refusal::Malformed("a line ends with LF alone")),
            _ => Err(Refusal::Malformed("there is a bare CR or a NUL in the head")),
        }
    }
}

/// Returns whether the method is CONNECT, and whether the version is 1.1.
fn request_line(line: &[u8]) -> Result<(bool, bool), Refusal> {
    let wrong = Refusal::Malformed("the first line is not a method, an address and HTTP/1.1");
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(wrong);
    };
    let good =
        is_token(method) && !target.is_empty() && target.iter().all(|b| *b > b' ' && *b != 127);
    let is_11 = match version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        _ => return Err(wrong),
    };
    if good { Ok((method == b"CONNECT", is_11)) } else { Err(wrong) }
}

/// Returns the valid `head` with its target escaped according to RFC 3986, if that is necessary.
/// Some clients send bytes that must be escaped, with the same meaning.
pub fn escaped(head: &[u8]) -> Option<Vec<u8>> {
    let line = head.windows(2).skip(1).position(|window| window == b"\r\n")? + 1;
    let begin = head[..line].iter().position(|byte| *byte == b' ')? + 1;
    let end = head[..line].iter().rposition(|byte| *byte == b' ')?;
    let address = head.get(begin..end).filter(|address| address.iter().any(is_to_be_escaped))?;
    let mut escaped = head[..begin].to_vec();
    for byte in address {
        match byte {
            byte if is_to_be_escaped(byte) => escaped.extend(format!("%{byte:02X}").bytes()),
            byte => escaped.push(*byte),
        }
    }
    escaped.extend_from_slice(&head[end..]);
    Some(escaped)
}

fn is_to_be_escaped(byte: &u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | 128..)
}

/// Fields that affect the framing.
#[derive(Default)]
struct Fields {
    count: usize,
    hosts: usize,
    length: Option<u64>,
    chunked: bool,
}

impl Fields {
    fn note(&mut self, line: &[u8]) -> Result<(), Refusal> {
        self.count += 1;
        if self.count > MAX_FIELDS {
            return Err(Refusal::TooLong);
        }
        let bad = |why| Err(Refusal::Malformed(why));
        if matches!(line[0], b' ' | b'\t') {
            return bad("a field is folded over several lines");
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return bad("a field has no colon");
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if !is_token(name) {
            return bad("the name of a field is not a token");
        }
        if value.iter().any(|byte| *byte == 127 || (*byte < b' ' && *byte != b'\t')) {
            return bad("there is a control character in a field");
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            if self.length.is_some() {
                return bad("there is more than one Content-Length");
            }
            let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(value).ok().filter(|_| digits);
            let length = text.and_then(|text| text.parse().ok());
            // Above this, sums of lengths would overflow.
            let Some(length) = length.filter(|length| *length <= u64::MAX / 2) else {
                return bad("Content-Length is not one number");
            };
            self.length = Some(length);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return bad("Transfer-Encoding is something else than chunked");
            }
            self.chunked = true;
        } else if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
            if !is_host(value) {
                return bad("Host is not the name of a host");
            }
        }
        Ok(())
    }

    fn length(&self, is_11: bool) -> Result<Length, Refusal> {
        let bad = |why| Err(Refusal::Malformed(why));
        match (self.length, self.chunked) {
            (Some(_), true) => bad("there are both Content-Length and Transfer-Encoding"),
            (None, true) if !is_11 => bad("HTTP/1.0 has no Transfer-Encoding"),
            _ if self.hosts > 1 || (is_11 && self.hosts == 0) => {
                bad("there is not exactly one Host")
            }
            (None, true) => Ok(Length::Chunked),
            (length, false) => Ok(Length::Known(length.unwrap_or_default())),
        }
    }
}

/// Returns `true` if `bytes` is a token (RFC 9110 §5.6.2).
pub fn is_token(bytes: &[u8]) -> bool {
    let in_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(in_token)
}

/// Returns `true` for a name or an address, with an optional port (RFC 3986 §3.2.2, §3.2.3). An
/// empty value is allowed (RFC 9110 §7.2).
fn is_host(value: &[u8]) -> bool {
    let in_host = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte);
    value.iter().all(in_host)
}

/// Validates a chunked body and finds its end (RFC 9112 §7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    state: Chunk,
    /// Length of the trailer section so far.
    trailer_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    Size {
        size: u64,
        digits: u8,
    },
    Extension {
        size: u64,
        bytes: usize,
    },
    SizeEnd(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// At the start of a trailer line, or of the final empty line.
    Trailer,
    TrailerLine,
    TrailerLf,
    LastLf,
}

/// Progress in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Bytes that belong to the body.
    pub bytes: usize,
    /// `true` if the body ends there.
    pub ended: bool,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { state: Chunk::Size { size: 0, digits: 0 }, trailer_bytes: 0 }
    }
}

impl Chunks {
    /// Processes more bytes.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Read, Refusal> {
        let mut at = 0;
        while at < bytes.len() {
            if let Chunk::Data(left) = self.state {
                let step = left.min((bytes.len() - at) as u64);
                at += step as usize;
                self.state = if left == step { Chunk::DataCr } else { Chunk::Data(left - step) };
                continue;
            }
            let ended = self.state == Chunk::LastLf;
            self.step(bytes[at])?;
            at += 1;
            if ended {
                return Ok(Read { bytes: at, ended });
            }
        }
        Ok(Read { bytes: at, ended: false })
    }

    fn step(&mut self, byte: u8) -> Result<(), Refusal> {
        let bad = Err(Refusal::Malformed("the chunks of the body are malformed"));
        self.state = match (self.state, byte) {
            (Chunk::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                // 15 digits of 4 bits allow 2^60 bytes, which is always sufficient.
                if digits == 15 {
                    return bad;
                }
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                Chunk::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
            }
            (Chunk::Size { digits: 0, .. }, _) => return bad,
            (Chunk::Size { size, .. }, b'\r') => Chunk::SizeEnd(size),
            (Chunk::Size { size, .. }, b';') => Chunk::Extension { size, bytes: 0 },
            (Chunk::Extension { size, .. }, b'\r') => Chunk::SizeEnd(size),
            (Chunk::Extension { size, bytes }, b'\t' | b' '..=b'~')
                if bytes < MAX_EXTENSION_BYTES =>
            {
                Chunk::Extension { size, bytes: bytes + 1 }
            }
            (Chunk::SizeEnd(0), b'\n') => Chunk::Trailer,
            (Chunk::SizeEnd(size), b'\n') => Chunk::Data(size),
            (Chunk::DataCr, b'\r') => Chunk::DataLf,
            (Chunk::DataLf, b'\n') => Chunk::Size { size: 0, digits: 0 },
            (Chunk::Trailer, b'\r') => Chunk::LastLf,
            (Chunk::TrailerLine, b'\r') => Chunk::TrailerLf,
            (Chunk::TrailerLf, b'\n') => Chunk::Trailer,
            (Chunk::LastLf, b'\n') => Chunk::Trailer,
            (Chunk::Trailer, b' ' | b'\t') => return bad,
            (Chunk::Trailer | Chunk::TrailerLine, b'\t' | b' '..=b'~' | 128..)
                if self.trailer_bytes < MAX_HEAD_BYTES =>
            {
                self.trailer_bytes += 1;
                Chunk::TrailerLine
            }
            _ => return bad,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
