//! CSS as it streams: `@import`, `url()` and the first source of each `@font-face`.
//!
//! A small part of the tokenizer of CSS Syntax 3 (section 4): comments, strings, escapes, `url()`,
//! and enough of blocks to know fonts from images and what is for paper alone.

use super::{Found, Kind, is_reference};
use crate::address::MAX_URL_BYTES;

/// Blocks in blocks that are told apart; deeper ones count as rules.
const MAX_DEPTH: usize = 16;

/// The longest word that means anything to us: `unicode-range` has 13 letters.
const MAX_WORD_BYTES: usize = 24;

/// Finds a style sheet's objects in its bytes. Holds two URLs and the kinds of 16 blocks: under 5 KiB.
#[derive(Debug, Default)]
pub struct CssScanner {
    state: State,
    /// The blocks that are open, the innermost last, and how many more there are inside.
    blocks: Vec<Block>,
    deeper: u32,
    /// Kind of the innermost statement so far.
    rule: Rule,
    /// The property whose value is being read.
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
    /// Inside quotes; `url` when those are inside `url(`.
    Quoted {
        quote: u8,
        url: bool,
    },
    /// After `url(`, before anything of it.
    UrlStart,
    UrlBare,
    /// Rest before its `)`.
    UrlEnd,
    /// After a backslash, in a string or a URL.
    Escape {
        digits: u8,
        code: u32,
        back: Quoting,
    },
}

/// State to which an escape returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quoting {
    Plain,
    Bare,
    Quoted { quote: u8, url: bool },
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// A selector, a declaration, or an at-rule that says nothing to us.
    #[default]
    Other,
    Import,
    Namespace,
    FontFace,
    /// `@media print`, or one not known to be anything else yet.
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

/// An `@font-face` while its block is open.
#[derive(Debug, Default)]
struct Face {
    url: Option<String>,
    range: Vec<u8>,
}

impl CssScanner {
    /// A scanner of a `style` attribute: declarations without a block around them.
    pub(super) fn of_attribute() -> Self {
        Self { blocks: vec![Block::Rules], ..Self::default() }
    }

    /// Looks at the next bytes of the style sheet.
    pub fn push(&mut self, bytes: &[u8], report: &mut dyn FnMut(Found)) {
        for &byte in bytes {
            self.step(byte, report);
        }
    }

    /// The style sheet is over.
    pub fn finish(&mut self, report: &mut dyn FnMut(Found)) {
        // What ends a file ends what is open in it (CSS Syntax 3, section 5.4).
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

    fn step(&mut self, byte: u8, report: &mut dyn FnMut(Found)) {
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
                // A string does not go over the end of its line: the URL is broken.
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

    fn plain(&mut self, byte: u8, report: &mut dyn FnMut(Found)) {
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

    /// A word outside strings: it may say what the statement is.
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

    fn close(&mut self, report: &mut dyn FnMut(Found)) {
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

    /// A face without a range is needed where its family is; one with a range where the page has such
    /// characters, which is to be expected of those that begin with the first letters alone.
    fn end_face(&mut self, report: &mut dyn FnMut(Found)) {
        let face = std::mem::take(&mut self.face);
        let range = String::from_utf8_lossy(&face.range).trim().to_ascii_lowercase();
        let first = range.strip_prefix("u+").unwrap_or_default();
        let first = first.split(|c: char| !c.is_ascii_hexdigit()).next().unwrap_or_default();
        let is_basic = u32::from_str_radix(first, 16).is_ok_and(|first| first < 0x80);
        if let Some(url) = face.url.filter(|_| range.is_empty() || is_basic) {
            report(Found::new(url, Kind::Font));
        }
    }

    fn keep(&mut self, byte: u8) {
        // One byte too many tells that it is too long.
        if self.text.len() <= MAX_URL_BYTES {
            self.text.push(byte);
        }
    }

    fn end_string(&mut self, report: &mut dyn FnMut(Found)) {
        self.state = State::Plain;
        if self.rule == Rule::Import {
            self.end_url(report);
        }
        self.text.clear();
    }

    fn end_url(&mut self, report: &mut dyn FnMut(Found)) {
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
            // What follows it is a condition, and may be another URL's function.
            self.rule = Rule::Other;
            report(Found::new(url, Kind::Style));
        } else if self.blocks.last() == Some(&Block::FontFace) {
            if self.property == Property::Source && self.face.url.is_none() {
                self.face.url = Some(url);
            }
        } else if self.property != Property::Cursor {
            report(Found::new(url, Kind::Image));
        }
    }

    fn escape(&mut self, back: Quoting) {
        self.state = State::Escape { digits: 0, code: 0, back };
    }

    /// CSS Syntax 3, section 4.3.7: up to six hexadecimal digits and one space, or the byte itself.
    fn escaped(
        &mut self,
        byte: u8,
        (digits, code): (u8, u32),
        back: Quoting,
        report: &mut dyn FnMut(Found),
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
            // A line's end after a backslash is left out.
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
