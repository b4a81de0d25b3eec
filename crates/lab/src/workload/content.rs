//! Content of the origin: bytes that follow from the path, so that a client can verify every one of
//! them.

use bytes::Bytes;

use crate::site::noise::{bitmap_head, noise};

/// Announced length of an endless download: 12 hours at 200 Mbit/s.
pub const ENDLESS_BYTES: u64 = 1 << 40;

/// Maximum bytes per slice.
const SLICE_BYTES: u64 = 64 << 10;

/// Lengths of a page's inline objects, repeated if a page has more: 490 KB for 25.
const IMAGE_BYTES: [u64; 25] = [
    60_000, 5_000, 15_000, 5_000, 30_000, 15_000, 5_000, 10_000, 15_000, 5_000, 30_000, 5_000,
    80_000, 5_000, 15_000, 30_000, 5_000, 15_000, 5_000, 60_000, 15_000, 5_000, 30_000, 15_000,
    10_000,
];

/// An object with a path: a few specific bytes, then noise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    head: Bytes,
    bytes: u64,
    /// Value of the `Content-Type` header.
    pub kind: &'static str,
}

impl Object {
    /// Object at `path`, if it exists.
    pub fn at(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        let mut parts = path.strip_prefix('/')?.split('/');
        let object = match (parts.next()?, parts.next()) {
            ("object", Some(bytes)) => Self {
                head: Bytes::new(),
                bytes: bytes.parse().ok().filter(|bytes| *bytes <= ENDLESS_BYTES)?,
                kind: "application/octet-stream",
            },
            ("image", Some(number)) => image(number.strip_suffix(".bmp")?.parse().ok()?),
            ("page", Some(objects)) => page(objects.parse().ok().filter(|n| *n <= 200)?),
            ("", None) => page(25),
            _ => return None,
        };
        parts.next().is_none().then_some(object)
    }

    /// Length of the object.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next bytes from `offset` on. Empty at the end.
    pub fn slice(&self, offset: u64) -> Bytes {
        self.slice_of(offset, SLICE_BYTES)
    }

    fn slice_of(&self, offset: u64, most: u64) -> Bytes {
        let left = self.bytes.saturating_sub(offset).min(most) as usize;
        if let Some(own) = (self.head.len() as u64).checked_sub(offset).filter(|own| *own > 0) {
            let start = offset as usize;
            return self.head.slice(start..start + left.min(own as usize));
        }
        // Objects of other lengths have other noise.
        noise(self.bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15), offset, left).collect()
    }

    /// Returns `true` if `received` equals the content at `offset`.
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

/// Paths of a page's inline objects.
pub fn page_paths(objects: usize) -> impl Iterator<Item = String> {
    (0..objects).map(|number| format!("/image/{number}.bmp"))
}

/// Total bytes of a page.
pub fn page_bytes(objects: usize) -> u64 {
    page(objects).bytes + (0..objects).map(image_bytes).sum::<u64>()
}

fn image_bytes(number: usize) -> u64 {
    // The lengths differ slightly, so that no two images are equal.
    IMAGE_BYTES[number % IMAGE_BYTES.len()] + number as u64
}

/// A valid picture of noise, because browsers stop loading an image that they cannot decode. It is
/// uncompressed, so that its length can be chosen.
fn image(number: usize) -> Object {
    let bytes = image_bytes(number) as u32;
    Object { head: bitmap_head(bytes), bytes: bytes.into(), kind: "image/bmp" }
}

fn page(objects: usize) -> Object {
    let images: String =
        page_paths(objects).map(|path| format!("<img src=\"{path}\" alt=\"\">\n")).collect();
    let total_kb = (0..objects).map(image_bytes).sum::<u64>() / 1000;
    let html = format!(
        "{}<p>{objects} objects, {total_kb} KB, over an emulated satellite link: \
         <b id=\"plt\">loading …</b></p>\n{images}</body></html>\n",
        include_str!("page.html")
    );
    let head = Bytes::from(html);
    Object { bytes: head.len() as u64, head, kind: "text/html; charset=utf-8" }
}

/// Fraction that Split HTTP's compressor saves on consecutive `bodies`.
#[cfg(test)]
pub(crate) fn saved<'a>(bodies: impl IntoIterator<Item = &'a Vec<u8>>) -> f64 {
    let mut packer = bentpipe_prefetch::wire::Packer::new().unwrap();
    let (mut all, mut packed) = (0, Vec::new());
    for body in bodies {
        packer.pack(body, false, &mut packed).unwrap();
        all += body.len();
    }
    packer.finish(&mut packed).unwrap();
    1.0 - packed.len() as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::noise::BMP_HEADER_BYTES;

    fn whole(object: &Object) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < object.bytes() as usize {
            all.extend_from_slice(&object.slice(all.len() as u64));
        }
        all
    }

    #[test]
    fn objects_have_their_length_and_nobody_elses_bytes() {
        for path in ["/object/0", "/object/10000", "/object/1600000", "/image/3.bmp", "/page/25"] {
            let object = Object::at(path).unwrap();
            let mut all = whole(&object);
            assert_eq!(all.len() as u64, object.bytes(), "{path}");
            assert!(object.matches(0, &all), "{path}");
            if let Some(byte) = all.get_mut(7) {
                *byte ^= 1;
                assert!(!object.matches(0, &all), "{path}");
            }
            assert!(!object.matches(object.bytes(), b"more"), "{path}");
        }
        let (a, b) = (Object::at("/object/10000").unwrap(), Object::at("/object/10001").unwrap());
        assert_ne!(whole(&a)[..64], whole(&b)[..64]);
        for path in ["/object/x", "/object/1/2", "/image/1", "/page/999", "/other", "object/1"] {
            assert_eq!(Object::at(path), None, "{path}");
        }
    }

    #[test]
    fn all_bodies_of_a_page_together_pack_badly() {
        let paths: Vec<_> = std::iter::once("/page/200".into()).chain(page_paths(200)).collect();
        let bodies: Vec<_> = paths.iter().map(|path| whole(&Object::at(path).unwrap())).collect();
        let share = saved(&bodies);
        assert!(share < 0.05, "{share:.3} of the page is saved");
        // Check of the check: equal noise in every body would be found.
        let share = saved(std::iter::repeat_n(&bodies[1], 200));
        assert!(share > 0.9, "{share:.3}");
    }

    #[test]
    fn images_are_bitmaps_of_their_length() {
        for number in 0..30 {
            let object = Object::at(&format!("/image/{number}.bmp")).unwrap();
            let head = object.slice(0);
            assert_eq!(head.len() as u32, BMP_HEADER_BYTES);
            assert_eq!(&head[..2], b"BM");
            let field = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
            assert_eq!(u64::from(field(2)), object.bytes());
            assert!(4 * field(18) * field(22) + BMP_HEADER_BYTES <= field(2));
        }
        assert!((490_000..510_000).contains(&page_bytes(25)), "{}", page_bytes(25));
    }
}
