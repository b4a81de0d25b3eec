//! Content that follows from the rule: markup that names the resources found in it, and noise up to
//! the length.

use std::fmt::Write as _;
use std::sync::OnceLock;

use bytes::Bytes;

use super::{Kind, Site};
use crate::workload::content::{bitmap_head, noise};

/// Bytes handed out at once.
const SLICE_BYTES: u64 = 64 << 10;

/// The shortest bitmap with a picture in it: a header, and one row.
const LEAST_IMAGE_BYTES: u64 = 54 + 4 * 64;

/// A body: something of its own at both ends and noise between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    head: Bytes,
    tail: Bytes,
    bytes: u64,
    noise: Noise,
    /// Key of the noise, so that no two bodies are alike.
    key: u64,
}

/// Filler of a body. A compressor saves at most 5 % on either kind, and on all bodies of a page
/// together. The bytes of a site are those that cross the network, where text is compressed
/// already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noise {
    Binary,
    /// Letters of [`letters`].
    Text,
}

impl Content {
    pub(super) fn of(site: &Site, number: usize) -> Self {
        let resource = &site.resources[number];
        let (mut head, mut tail, mut noise) = (Bytes::new(), Bytes::new(), Noise::Binary);
        match (&resource.recorded, resource.kind) {
            (Some(recorded), _) => head = recorded.body.clone(),
            (None, Kind::Image) => {
                let length = u32::try_from(resource.bytes).unwrap_or(u32::MAX);
                // What is shorter than a header is noise: a browser shows a broken picture.
                if u64::from(length) >= LEAST_IMAGE_BYTES {
                    head = bitmap_head(length);
                }
            }
            (None, Kind::Other) => {}
            (None, Kind::Document | Kind::Style | Kind::Script) => {
                let markup = markup(site, number);
                let left = resource.bytes.saturating_sub(markup.len() as u64);
                let (open, close) = match resource.kind {
                    Kind::Document => ("<!--", "-->"),
                    _ => ("/*", "*/"),
                };
                noise = Noise::Text;
                // A comment that does not fit is made of spaces.
                if left >= (open.len() + close.len()) as u64 {
                    (head, tail) = ((markup + open).into(), close.into());
                } else {
                    head = (markup + &" ".repeat(left as usize)).into();
                }
            }
        }
        let place = format!("{}{}", site.domains[resource.domain].name, site.path(number));
        Self { head, tail, bytes: resource.bytes, noise, key: hash(place.as_bytes()) }
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next bytes from `offset` on, at most 64 KiB of them; none at the end.
    pub fn slice(&self, offset: u64) -> Bytes {
        self.slice_of(offset, SLICE_BYTES)
    }

    fn slice_of(&self, offset: u64, most: u64) -> Bytes {
        let left = self.bytes.saturating_sub(offset).min(most) as usize;
        let own = self.head.len() as u64;
        if offset < own {
            let start = offset as usize;
            return self.head.slice(start..start + left.min(self.head.len() - start));
        }
        let tail_at = self.bytes.saturating_sub(self.tail.len() as u64);
        if offset >= tail_at {
            let start = (offset - tail_at).min(self.tail.len() as u64) as usize;
            return self.tail.slice(start..self.tail.len().min(start + left));
        }
        let left = left.min((tail_at - offset) as usize);
        let noise = noise(self.key, offset, left);
        match self.noise {
            Noise::Binary => noise.collect(),
            Noise::Text => {
                let letters = letters();
                noise.map(|byte| letters[usize::from(byte) % letters.len()]).collect()
            }
        }
    }

    /// Returns `true` if `received`, found at `offset`, is what belongs there.
    pub fn matches(&self, mut offset: u64, mut received: &[u8]) -> bool {
        while !received.is_empty() {
            let expected = self.slice_of(offset, SLICE_BYTES.min(received.len() as u64));
            let common = expected.len().min(received.len());
            if common == 0 || expected[..common] != received[..common] {
                return false;
            }
            offset += common as u64;
            received = &received[common..];
        }
        true
    }
}

/// Characters that end no comment and no string, in windows-1252.
fn letters() -> &'static [u8] {
    static LETTERS: OnceLock<Vec<u8>> = OnceLock::new();
    LETTERS.get_or_init(|| {
        let harmless = |byte: &u8| {
            byte.is_ascii_alphanumeric()
                || *byte >= 0x80
                || b"!#$%()+,.:;=?@[]^_{|}~ ".contains(byte)
        };
        (0..=u8::MAX).filter(harmless).collect()
    })
}

/// The fewest bytes that a resource made by the rule can have.
pub(super) fn least_bytes(site: &Site, number: usize) -> u64 {
    match site.resources[number].kind {
        Kind::Document | Kind::Style | Kind::Script => markup(site, number).len() as u64,
        Kind::Image => LEAST_IMAGE_BYTES,
        Kind::Other => 0,
    }
}

/// Markup that names the resources found in resource `number`.
fn markup(site: &Site, number: usize) -> String {
    let kind = site.resources[number].kind;
    // What a script asks for is relative to the document that runs it.
    let from = if kind == Kind::Script { 0 } else { number };
    let found = || site.found_in(number).map(|found| (found, reference(site, from, found)));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match kind {
        Kind::Document => document(site, number, &mut text),
        Kind::Style => {
            let layers: Vec<String> = found().map(|(_, url)| format!("url({url})")).collect();
            let layers = layers.join(",");
            match layers.is_empty() {
                true => Ok(()),
                false => writeln!(text, "#s{number}{{background:{layers}}}"),
            }
        }
        Kind::Script => found().try_for_each(|(found, url)| match site.resources[found].kind {
            Kind::Image => writeln!(text, "(new Image).src=\"{url}\";"),
            _ => writeln!(
                text,
                "document.head.appendChild(document.createElement(\"script\")).src=\"{url}\";"
            ),
        }),
        Kind::Image | Kind::Other => Ok(()),
    };
    text
}

/// HTML: what is found in it, and an element for each style sheet of the site to paint.
fn document(site: &Site, number: usize, text: &mut String) -> std::fmt::Result {
    let found = || site.found_in(number).map(|found| (found, reference(site, number, found)));
    writeln!(text, "<!doctype html><html lang=en><head><meta charset=windows-1252>")?;
    writeln!(text, "<title>{}</title><link rel=icon href=data:,>", site.name)?;
    for (found, url) in found() {
        match site.resources[found].kind {
            Kind::Style => writeln!(text, "<link rel=stylesheet href=\"{url}\">")?,
            Kind::Script => writeln!(text, "<script async src=\"{url}\"></script>")?,
            _ => {}
        }
    }
    writeln!(text, "</head><body>")?;
    for (style, _) in site.resources.iter().enumerate().filter(|(_, it)| it.kind == Kind::Style) {
        writeln!(text, "<p id=s{style}>&nbsp;</p>")?;
    }
    for (_, url) in found().filter(|(found, _)| site.resources[*found].kind == Kind::Image) {
        writeln!(text, "<img src=\"{url}\">")?;
    }
    Ok(())
}

/// The shortest way to write what `to` is called in `from`.
fn reference(site: &Site, from: usize, to: usize) -> String {
    let [from, there] = [from, to].map(|number| &site.resources[number]);
    if from.domain == there.domain && there.recorded.is_none() {
        // All paths that the rule makes are names in the folder of the visit.
        return there.path.trim_start_matches('/').into();
    }
    format!("//{}{}", site.domains[there.domain].name, site.path(to))
}

/// FNV-1a, 64 bits: only to spread the places in the noise.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
