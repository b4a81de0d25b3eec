//! Streaming HTML: the WHATWG tokenizer of `html5gum`, with an emitter that keeps only references
//! to objects.
//!
//! The tokenizer takes a whole document and cannot stop inside a tag. So each run gets the bytes
//! after the last complete tag, as if they were a document. An incomplete tag yields nothing, and
//! is read again when more has arrived. The cost of a long tag is bounded: it is read again only
//! after it has grown by an eighth. The long text of scripts and style sheets has no tags and
//! bypasses the tokenizer.

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;

use bytes::{Buf, BytesMut};
use html5gum::{Emitter, Error, Reader, State, Tokenizer};

use super::tag::{Attribute, Page, Tag};
use super::{Item, MAX_SCANNED_BYTES, MAX_TOKEN_BYTES};

/// Maximum length of an attribute that is kept, bytes. A longer one is ignored.
const MAX_ATTRIBUTE_BYTES: usize = 16 << 10;

/// Longest relevant name of an element or attribute.
const MAX_NAME_BYTES: usize = 16;

/// Finds a page's objects in its bytes. Buffers incomplete tags: at most [`MAX_TOKEN_BYTES`],
/// usually a few hundred bytes.
#[derive(Debug)]
pub struct HtmlScanner {
    page: Page,
    mode: Mode,
    /// Bytes after the last complete tag. Removing bytes at the front is cheap.
    bytes: BytesMut,
    /// Minimum buffer length before the next attempt to read it.
    enough: usize,
    /// Number of bytes that will still be scanned.
    left: usize,
    found: VecDeque<Item>,
}

/// Mode of the next bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Markup,
    /// Text up to the end tag of this element.
    Text(&'static [u8]),
    /// The rest of the page is not scanned.
    Over,
}

impl Default for HtmlScanner {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl HtmlScanner {
    /// Creates a scanner for one page. `image_types` are the media types that the browser accepts
    /// in addition to those that every browser shows (`image/avif`, `image/webp`). They decide the
    /// source of a `<picture>`.
    pub fn new(image_types: &[&str]) -> Self {
        Self {
            page: Page::new(image_types),
            mode: Mode::Markup,
            bytes: BytesMut::new(),
            enough: 0,
            left: MAX_SCANNED_BYTES,
            found: VecDeque::new(),
        }
    }

    /// Scans the next bytes of the page, up to [`MAX_SCANNED_BYTES`] in total.
    pub fn push(&mut self, bytes: &[u8], report: &mut dyn FnMut(Item)) {
        let bytes = &bytes[..bytes.len().min(self.left)];
        self.left -= bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.read(false);
        if self.bytes.len() > MAX_TOKEN_BYTES {
            self.mode = Mode::Over;
        }
        self.found.drain(..).for_each(report);
    }

    /// Handles the end of the page.
    pub fn finish(&mut self, report: &mut dyn FnMut(Item)) {
        self.read(true);
        self.page.finish(&mut self.found);
        self.found.drain(..).for_each(report);
    }

    /// Reads the buffered bytes. If the document `is_whole`, reads all of them.
    fn read(&mut self, is_whole: bool) {
        loop {
            match self.mode {
                Mode::Markup if self.bytes.len() < self.enough && !is_whole => return,
                Mode::Markup => {
                    if !self.tags() {
                        return;
                    }
                }
                Mode::Text(name) => {
                    let end = end_of_text(&self.bytes, name);
                    let text = *end.as_ref().unwrap_or_else(|cut| cut);
                    self.page.text(&self.bytes[..text], &mut self.found);
                    self.bytes.advance(text);
                    if end.is_err() {
                        return;
                    }
                    (self.mode, self.enough) = (Mode::Markup, 0);
                }
                Mode::Over => {
                    self.bytes.clear();
                    return;
                }
            }
        }
    }

    /// Reads tags. Returns `true` after one that starts a text element, and `false` at the end of
    /// the buffer.
    fn tags(&mut self) -> bool {
        let at = Cell::new(0);
        let source = Source { bytes: &self.bytes, at: &at };
        let mut tokenizer = Tokenizer::new_with_emitter(source, Finder::default());
        let mut read = 0;
        let mut next = None;
        while let (None, Some(Ok(tag))) = (next, tokenizer.next()) {
            read = at.get();
            if tag.is_end {
                self.page.end(&tag.name, &mut self.found);
            } else {
                self.page.start(&tag, &mut self.found);
                next = text_after(&tag.name);
            }
        }
        drop(tokenizer);
        if let Some(mode) = next {
            self.bytes.advance(read);
            self.mode = mode;
            return true;
        }
        // Only text precedes the next tag.
        let text = self.bytes[read..].iter().position(|byte| *byte == b'<');
        self.bytes.advance(text.map_or(self.bytes.len(), |text| read + text));
        self.enough = self.bytes.len() + self.bytes.len() / 8;
        false
    }
}

/// Finds the end of an element's text, before its end tag. Returns `Err` with the length that
/// certainly is text if the end tag has not arrived.
fn end_of_text(bytes: &[u8], name: &[u8]) -> Result<usize, usize> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == b'<') {
        let at = from + at;
        let tag = &bytes[at..];
        let known = tag.len().min(name.len() + 2);
        let begins =
            known == 1 || tag[1] == b'/' && tag[2..known].eq_ignore_ascii_case(&name[..known - 2]);
        match tag.get(name.len() + 2) {
            None if begins => return Err(at),
            Some(b'\t' | b'\n' | b'\r' | b'\x0c' | b' ' | b'/' | b'>') if begins => return Ok(at),
            _ => from = at + 1,
        }
    }
    Err(bytes.len())
}

/// Reading mode after this start tag, if the content is not markup. The content of `noscript` is
/// text, because scripts run in the target browsers.
fn text_after(name: &[u8]) -> Option<Mode> {
    const TEXTS: [&[u8]; 9] = [
        b"script",
        b"style",
        b"title",
        b"textarea",
        b"iframe",
        b"xmp",
        b"noembed",
        b"noframes",
        b"noscript",
    ];
    if name == b"plaintext" {
        return Some(Mode::Over);
    }
    TEXTS.into_iter().find(|text| *text == name).map(Mode::Text)
}

/// A document in memory that records how far it was read.
struct Source<'a> {
    bytes: &'a [u8],
    at: &'a Cell<usize>,
}

impl<'a> Source<'a> {
    fn take(&self, count: usize) -> &'a [u8] {
        let from = self.at.get();
        self.at.set(from + count);
        &self.bytes[from..from + count]
    }

    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at.get()..]
    }
}

impl Reader for Source<'_> {
    type Error = Infallible;

    fn read_byte(&mut self) -> Result<Option<u8>, Infallible> {
        let next = self.rest().first().copied();
        self.take(next.iter().len());
        Ok(next)
    }

    fn try_read_string(&mut self, wanted: &[u8], case_sensitive: bool) -> Result<bool, Infallible> {
        let Some(next) = self.rest().get(..wanted.len()) else { return Ok(false) };
        let same = if case_sensitive { next == wanted } else { next.eq_ignore_ascii_case(wanted) };
        if same {
            self.take(wanted.len());
        }
        Ok(same)
    }

    fn read_until<'b>(
        &'b mut self,
        needle: &[u8],
        _: &'b mut [u8; 4],
    ) -> Result<Option<&'b [u8]>, Infallible> {
        let rest = self.rest();
        let until = rest.iter().position(|byte| needle.contains(byte)).unwrap_or(rest.len());
        // The tokenizer searches for one needle only.
        let bytes = self.take(until.max(1).min(rest.len()));
        Ok((!bytes.is_empty()).then_some(bytes))
    }
}

/// Collects one tag at a time.
#[derive(Debug, Default)]
struct Finder {
    tag: Tag,
    /// The attribute that is being read, if it is a relevant one.
    name: Vec<u8>,
    value: Vec<u8>,
    done: Option<Tag>,
}

impl Finder {
    /// Adds the finished attribute to the tag.
    fn end_attribute(&mut self) {
        let name = std::mem::take(&mut self.name);
        let value = std::mem::take(&mut self.value);
        let Some(attribute) = Attribute::named(&name) else { return };
        if value.len() <= MAX_ATTRIBUTE_BYTES {
            self.tag.put(attribute, String::from_utf8_lossy(&value).into_owned());
        }
    }
}

/// Appends at most `max` bytes in total plus one. The extra byte marks an overflow.
fn push_bounded(to: &mut Vec<u8>, more: &[u8], most: usize) {
    let room = (most + 1).saturating_sub(to.len());
    to.extend_from_slice(&more[..more.len().min(room)]);
}

impl Emitter for Finder {
    type Token = Tag;

    fn pop_token(&mut self) -> Option<Tag> {
        self.done.take()
    }

    fn init_start_tag(&mut self) {
        self.tag = Tag::default();
    }

    fn init_end_tag(&mut self) {
        self.tag = Tag::default();
        self.tag.is_end = true;
    }

    fn push_tag_name(&mut self, name: &[u8]) {
        push_bounded(&mut self.tag.name, name, MAX_NAME_BYTES);
    }

    fn init_attribute(&mut self) {
        self.end_attribute();
    }

    fn push_attribute_name(&mut self, name: &[u8]) {
        push_bounded(&mut self.name, name, MAX_NAME_BYTES);
    }

    fn push_attribute_value(&mut self, value: &[u8]) {
        if Attribute::named(&self.name).is_some() {
            push_bounded(&mut self.value, value, MAX_ATTRIBUTE_BYTES);
        }
    }

    fn emit_current_tag(&mut self) -> Option<State> {
        self.end_attribute();
        self.done = Some(std::mem::take(&mut self.tag));
        None
    }

    fn current_is_appropriate_end_tag_token(&mut self) -> bool {
        false // used in text elements only
    }

    fn should_emit_errors(&mut self) -> bool {
        false
    }

    fn set_last_start_tag(&mut self, _: Option<&[u8]>) {}
    fn emit_eof(&mut self) {}
    fn emit_error(&mut self, _: Error) {}
    fn emit_string(&mut self, _: &[u8]) {}
    fn init_comment(&mut self) {}
    fn push_comment(&mut self, _: &[u8]) {}
    fn emit_current_comment(&mut self) {}
    fn init_doctype(&mut self) {}
    fn push_doctype_name(&mut self, _: &[u8]) {}
    fn set_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn set_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn set_force_quirks(&mut self) {}
    fn emit_current_doctype(&mut self) {}
    fn set_self_closing(&mut self) {}
}
