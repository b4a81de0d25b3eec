//! Streaming CSS: `@import`, `url()` and the first source of each `@font-face`.
//!
//! A small part of the tokenizer of CSS Syntax 3 (section 4): comments, strings, escapes, `url()`,
//! and enough of blocks to tell fonts from images and to skip print styles.

use super::{Kind, ObjectRef, is_reference};
use crate::address::MAX_URL_BYTES;

/// Maximum depth of distinguished blocks. Deeper ones count as rules.
const MAX_DEPTH: usize = 16;

/// Longest relevant word: `unicode-range` has 13 letters.
const MAX_WORD_BYTES: usize = 24;

/// Finds the objects of a style sheet in its bytes. Holds two URLs and the kinds of 16 blocks: less
/// than 5 KiB.
#[derive(Debug, Default)]
pub struct CssScanner {
    state: State,
    /// Open blocks, the innermost last, and the number of deeper ones.
    blocks: Vec<Block>,
    deeper: u32,
    /// Kind of the innermost statement so far.
    rule: Rule,
    /// Property whose value is being read.
    property: Property,
    word: Vec<u8>,
    text: Vec<u8>,
    face: Face,
}

/// Position of the next byte in the syntax.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Plain,
    Slash,
    Comment,
    CommentStar,
    /// Inside quotes. `url` is `true` if the quotes are inside `url(`.
    Quoted {
        quote: u8,
        url: bool,
    },
    /// Directly after `url(`.
    UrlStart,
    UrlBare,
    /// Between the end of the URL and `)`.
    UrlEnd,
    /// After a backslash in a string or a URL.
    Escape {
        digits: u8,
        code: u32,
        back: Quoting,
    },
}

/// State to return to after an escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quoting {
    Plain,
    Bare,
    Quoted { quote: u8, url: bool },
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// A selector, a declaration, or an irrelevant at-rule.
    #[default]
    Other,
    Import,
    Namespace,
    FontFace,
    /// `@media print`, or a media rule that is not known to be anything else yet.
    Media {
        is_print: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Rules,
    FontFace,
    Print,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Property {
    #[default]
    Other,
    Source,
    Range,
    Cursor,
}

/// An open `@font-face`.
#[derive(Debug, Default)]
struct Face {
    url: Option<String>,
    range: Vec<u8>,
}

impl CssScanner {
    /// Creates a scanner of a `style` attribute: declarations without a block around them.
    pub(super) fn of_attribute() -> Self {
        Self { blocks: vec![Block::Rules], ..Self::default() }
    }

    /// Scans the next bytes of the style sheet.
    pub fn push(&mut self, bytes: &[u8], report: &mut dyn FnMut(ObjectRef)) {
        for &byte in bytes {
            self.step(byte, report);
        }
    }

    /// Handles the end of the style sheet.
    pub fn finish(&mut self, report: &mut dyn FnMut(ObjectRef)) {
        // The end of a file closes all open constructs (CSS Syntax 3, section 5.4).
        match self.state {
            State::UrlBare | State::UrlEnd | State::Quoted { url: true, .. } => {
                self.end_url(report)
            }
            State::Quoted { url: false, .. } => self.end_string(report),
            _ => {}
        }
        if self.blocks.last() == Some(&Block::FontFace) {
            self.end_face(report);
        }
        *self = Self::default();
    }

    fn step(&mut self, byte: u8, report: &mut dyn FnMut(ObjectRef)) {
        match self.state {
            State::Plain => self.plain(byte, report),
            State::Slash => {
                self.state = State::Plain;
                match byte {
                    b'*' => self.state = State::Comment,
                    _ => self.plain(byte, report),
                }
            }
            State::Comment if byte == b'*' => self.state = State::CommentStar,
            State::CommentStar if byte == b'/' => self.state = State::Plain,
            State::CommentStar if byte != b'*' => self.state = State::Comment,
            State::Comment | State::CommentStar => {}
            State::Quoted { quote, url } if byte == quote => {
                if url {
                    self.state = State::UrlEnd;
                } else {
                    self.end_string(report);
                }
            }
            State::Quoted { quote, url } => match byte {
                b'\\' => self.escape(Quoting::Quoted { quote, url }),
                // A string cannot contain a line break, so the URL is broken.
                b'\n' => self.state = State::Plain,
                _ => self.keep(byte),
            },
            State::UrlStart => match byte {
                b' ' | b'\t' | b'\n' | b'\r' | b'\x0c' => {}
                b'"' | b'\'' => self.state = State::Quoted { quote: byte, url: true },
                _ => {
                    self.state = State::UrlBare;
                    self.step(byte, report);
                }
            },
            State::UrlBare => match byte {
                b')' => self.end_url(report),
                b' ' | b'\t' | b'\n' | b'\r' | b'\x0c' => self.state = State::UrlEnd,
                b'\\' => self.escape(Quoting::Bare),
                _ => self.keep(byte),
            },
            State::UrlEnd => {
                if byte == b')' {
                    self.end_url(report);
                }
            }
            State::Escape { digits, code, back } => {
                self.escaped(byte, (digits, code), back, report)
            }
        }
    }

    fn plain(&mut self, byte: u8, report: &mut dyn FnMut(ObjectRef)) {
        let is_word =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'@') || byte > 127;
        if is_word {
            if self.word.len() <= MAX_WORD_BYTES {
                self.word.push(byte.to_ascii_lowercase());
            }
            self.range(byte);
            return;
        }
        let word = std::mem::take(&mut self.word);
        match byte {
            b'/' => self.state = State::Slash,
            b'\\' => self.escape(Quoting::Plain),
            b'"' | b'\'' => {
                self.text.clear();
                self.state = State::Quoted { quote: byte, url: false };
            }
            b'(' if word == b"url" => {
                self.text.clear();
                self.state = State::UrlStart;
            }
            b':' => self.property = property(&word),
            b'{' => {
                self.word_ended(&word);
                self.open();
            }
            b'}' => self.close(report),
            b';' => self.end_statement(),
            _ => self.range(byte),
        }
        if byte != b'{' {
            self.word_ended(&word);
        }
    }

    /// Handles a word outside strings. It may determine the kind of the statement.
    fn word_ended(&mut self, word: &[u8]) {
        self.rule = match word {
            b"@import" => Rule::Import,
            b"@namespace" => Rule::Namespace,
            b"@font-face" => Rule::FontFace,
            b"@media" => Rule::Media { is_print: false },
            b"print" if matches!(self.rule, Rule::Media { .. }) => Rule::Media { is_print: true },
            b"screen" | b"all" | b"not" if matches!(self.rule, Rule::Media { .. }) => Rule::Other,
            _ => return,
        };
    }

    fn range(&mut self, byte: u8) {
        if self.property == Property::Range && self.face.range.len() < MAX_WORD_BYTES {
            self.face.range.push(byte);
        }
    }

    fn open(&mut self) {
        let block = match self.rule {
            Rule::FontFace => Block::FontFace,
            Rule::Media { is_print: true } => Block::Print,
            _ => Block::Rules,
        };
        if self.blocks.len() < MAX_DEPTH {
            self.blocks.push(block);
        } else {
            self.deeper = self.deeper.saturating_add(1);
        }
        self.face = Face::default();
        self.end_statement();
    }

    fn close(&mut self, report: &mut dyn FnMut(ObjectRef)) {
        if self.deeper > 0 {
            self.deeper -= 1;
        } else if self.blocks.pop() == Some(Block::FontFace) {
            self.end_face(report);
        }
        self.end_statement();
    }

    fn end_statement(&mut self) {
        self.rule = Rule::Other;
        self.property = Property::Other;
    }

    /// Handles the end of an `@font-face`. A face without a range is needed if its family is. A
    /// face with a range is needed if the page has such characters, which is likely for those that
    /// start with the first letters.
    fn end_face(&mut self, report: &mut dyn FnMut(ObjectRef)) {
        let face = std::mem::take(&mut self.face);
        let range = String::from_utf8_lossy(&face.range).trim().to_ascii_lowercase();
        let first = range.strip_prefix("u+").unwrap_or_default();
        let first = first.split(|c: char| !c.is_ascii_hexdigit()).next().unwrap_or_default();
        let is_basic = u32::from_str_radix(first, 16).is_ok_and(|first| first < 0x80);
        if let Some(url) = face.url.filter(|_| range.is_empty() || is_basic) {
            report(ObjectRef::new(url, Kind::Font));
        }
    }

    fn keep(&mut self, byte: u8) {
        // An extra byte marks a URL that is too long.
        if self.text.len() <= MAX_URL_BYTES {
            self.text.push(byte);
        }
    }

    fn end_string(&mut self, report: &mut dyn FnMut(ObjectRef)) {
        self.state = State::Plain;
        if self.rule == Rule::Import {
            self.end_url(report);
        }
        self.text.clear();
    }

    fn end_url(&mut self, report: &mut dyn FnMut(ObjectRef)) {
        self.state = State::Plain;
        let text = std::mem::take(&mut self.text);
        let url = String::from_utf8_lossy(&text).trim_ascii().to_owned();
        if text.len() > MAX_URL_BYTES || !is_reference(&url) {
            return;
        }
        if self.blocks.contains(&Block::Print) || self.rule == Rule::Namespace {
            return;
        }
        if self.rule == Rule::Import {
            // A condition follows, which may contain the URL of another function.
            self.rule = Rule::Other;
            report(ObjectRef::new(url, Kind::Style));
        } else if self.blocks.last() == Some(&Block::FontFace) {
            if self.property == Property::Source && self.face.url.is_none() {
                self.face.url = Some(url);
            }
        } else if self.property != Property::Cursor {
            report(ObjectRef::new(url, Kind::Image));
        }
    }

    fn escape(&mut self, back: Quoting) {
        self.state = State::Escape { digits: 0, code: 0, back };
    }

    /// Handles an escape: up to six hexadecimal digits and one space, or one byte (CSS Syntax 3,
    /// section 4.3.7).
    fn escaped(
        &mut self,
        byte: u8,
        (digits, code): (u8, u32),
        back: Quoting,
        report: &mut dyn FnMut(ObjectRef),
    ) {
        let digit = char::from(byte).to_digit(16).filter(|_| digits < 6);
        if let Some(digit) = digit {
            self.state = State::Escape { digits: digits + 1, code: code << 4 | digit, back };
            return;
        }
        self.state = match back {
            Quoting::Plain => State::Plain,
            Quoting::Bare => State::UrlBare,
            Quoting::Quoted { quote, url } => State::Quoted { quote, url },
        };
        if digits == 0 {
            // A line break after a backslash is dropped.
            if byte != b'\n' && back != Quoting::Plain {
                self.keep(byte);
            }
            return;
        }
        if back != Quoting::Plain {
            let c =
                char::from_u32(code).filter(|c| *c != '\0').unwrap_or(char::REPLACEMENT_CHARACTER);
            let mut utf8 = [0; 4];
            c.encode_utf8(&mut utf8).bytes().for_each(|byte| self.keep(byte));
        }
        if !byte.is_ascii_whitespace() {
            self.step(byte, report);
        }
    }
}

fn property(word: &[u8]) -> Property {
    match word {
        b"src" => Property::Source,
        b"unicode-range" => Property::Range,
        b"cursor" => Property::Cursor,
        _ => Property::Other,
    }
}
