//! A page of 60 objects on three levels, like real sites. The document names style sheets and
//! pictures; the style sheets name fonts and more pictures. A client cannot request an object
//! before it is named.

use bytes::Bytes;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::site::noise::bitmap_head;

/// Number of objects, without the document.
pub const OBJECTS: usize = STYLES + FONTS + IMAGES;
const STYLES: usize = 4;
const FONTS: usize = 6;
const IMAGES: usize = 50;
/// Number of pictures that the document names. Style sheets name the others.
const INLINE: usize = 25;

/// Lengths of pictures, repeated: 9 KB on average.
const IMAGE_BYTES: [u32; 10] =
    [3_000, 6_000, 10_000, 4_000, 8_000, 15_000, 5_000, 12_000, 20_000, 7_000];
/// Size of a compressed font with the letters of one script.
const FONT_BYTES: usize = 20_000;
/// Further CSS rules that name nothing. They are text and compress well.
const OTHER_RULES: usize = 120;

/// Response for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The complete body.
    pub body: Bytes,
    /// Value of the `Content-Type` header.
    pub kind: &'static str,
    /// Value of the `Cache-Control` header.
    pub keep: &'static str,
}

/// Path of a visit's document. Visits share no paths.
pub fn document(visit: &str) -> String {
    format!("/levels/{visit}/")
}

/// Paths of a visit, the document's first.
pub fn paths(visit: &str) -> impl Iterator<Item = String> {
    let of = |kind: &'static str, count: usize| (0..count).map(move |n| format!("{kind}{n}"));
    let names = of("style", STYLES).chain(of("font", FONTS)).chain(of("image", IMAGES));
    let document = document(visit);
    std::iter::once(document.clone()).chain(names.map(move |name| format!("{document}{name}")))
}

/// Total bytes of a visit.
pub fn bytes() -> u64 {
    paths("0").filter_map(|path| at(&path)).map(|answer| answer.body.len() as u64).sum()
}

/// Response for `path`, if it exists.
pub fn at(path: &str) -> Option<Answer> {
    let (visit, name) = path.strip_prefix("/levels/")?.split_once('/')?;
    let number = |kind: &str, most: usize| {
        name.strip_prefix(kind)?.parse().ok().filter(|number: &usize| *number < most)
    };
    let (body, kind) = if name.is_empty() {
        (html(visit).into(), "text/html; charset=utf-8")
    } else if let Some(number) = number("style", STYLES) {
        (css(number).into(), "text/css")
    } else if number("font", FONTS).is_some() {
        (noise(path, &[], FONT_BYTES), "font/woff2")
    } else {
        let length = IMAGE_BYTES[number("image", IMAGES)? % IMAGE_BYTES.len()];
        (noise(path, &bitmap_head(length), length as usize), "image/bmp")
    };
    // The document is revalidated each time, as usual on the web.
    let keep = if name.is_empty() { "no-cache" } else { "max-age=600" };
    Some(Answer { body, kind, keep })
}

fn html(visit: &str) -> String {
    let all = |numbers: std::ops::Range<usize>, line: fn(usize) -> String| {
        numbers.map(line).collect::<String>()
    };
    let sheets = all(0..STYLES, |n| format!("<link rel=\"stylesheet\" href=\"style{n}\">\n"));
    let page = include_str!("page.html").replace("</head>", &format!("{sheets}</head>"));
    let images = all(0..INLINE, |n| format!("<img src=\"image{n}\" alt=\"\">\n"));
    let tiles = all(INLINE..IMAGES, |n| format!("<div class=\"tile image{n}\"></div>\n"));
    let texts = all(0..FONTS, |n| format!("<p class=\"font{n}\">In a font of its own</p>\n"));
    let shown = format!("<p>visit {visit}: <b id=\"plt\">loading …</b></p>\n");
    [&page, &shown, &images, &tiles, &texts, "</body></html>\n"].concat()
}

fn css(sheet: usize) -> String {
    let own = |numbers: std::ops::Range<usize>| numbers.filter(move |n| n % STYLES == sheet);
    let fonts = own(0..FONTS).map(|n| {
        format!(
            "@font-face {{ font-family: \"F{n}\"; src: url(font{n}) format(\"woff2\"); }}\n\
             .font{n} {{ font-family: \"F{n}\", sans-serif; }}\n"
        )
    });
    let images =
        own(INLINE..IMAGES).map(|n| format!(".image{n} {{ background: url(\"image{n}\"); }}\n"));
    let others = (0..OTHER_RULES)
        .map(|n| format!(".s{sheet} .c{n} > a:hover {{ margin: {n}px; color: #{n:06x}; }}\n"));
    let first = ".tile { width: 64px; height: 64px }\n".to_owned();
    std::iter::once(first).chain(fonts).chain(images).chain(others).collect()
}

/// `head`, followed by noise specific to this path, so that objects do not compress with the help
/// of each other.
fn noise(path: &str, head: &[u8], bytes: usize) -> Bytes {
    let step = |seed: u64, byte: u8| seed.wrapping_mul(257).wrapping_add(byte.into());
    let mut body = vec![0; bytes];
    ChaCha8Rng::seed_from_u64(path.bytes().fold(0, step)).fill_bytes(&mut body);
    body[..head.len()].copy_from_slice(head);
    body.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_prefetch::scan::{CssScanner, HtmlScanner, Item};

    #[test]
    fn the_page_has_three_levels_and_names_all_of_its_objects() {
        let mut named = Vec::new();
        let page = at(&document("7")).unwrap();
        let mut scanner = HtmlScanner::new(&[]);
        let mut note = |item| match item {
            Item::Object(found) => named.push(found.url),
            Item::Base(url) => panic!("no base is named, but {url}"),
            Item::Cookie => panic!("no script sets a cookie"),
        };
        scanner.push(&page.body, &mut note);
        scanner.finish(&mut note);
        named.retain(|url| !url.starts_with("data:"));
        assert_eq!(named.len(), STYLES + INLINE, "the first level");
        for sheet in 0..STYLES {
            let sheet = at(&format!("/levels/7/style{sheet}")).unwrap();
            let mut scanner = CssScanner::default();
            scanner.push(&sheet.body, &mut |found| named.push(found.url));
            scanner.finish(&mut |found| named.push(found.url));
        }
        named.sort();
        named.dedup();
        let mut all: Vec<String> = paths("7").skip(1).collect();
        all.sort();
        let named: Vec<String> = named.iter().map(|name| format!("/levels/7/{name}")).collect();
        assert_eq!(named, all);
        assert_eq!(all.len(), OBJECTS);
        assert!(all.iter().all(|path| at(path).is_some()));
        assert!((550_000..700_000).contains(&bytes()), "{}", bytes());
    }

    #[test]
    fn visits_share_nothing() {
        let of = |path: &str| at(path).unwrap().body;
        assert_ne!(of("/levels/1/image3"), of("/levels/2/image3"));
        assert_eq!(of("/levels/1/image3"), of("/levels/1/image3"));
        for path in ["/levels/1", "/levels/1/image50", "/levels/1/x", "/image/1.bmp"] {
            assert_eq!(at(path), None, "{path}");
        }
    }
}
