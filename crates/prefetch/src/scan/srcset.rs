//! Choice of an image from a `srcset`, like a browser makes it (HTML, "selecting an image source").
//!
//! The browser's window and screen are not known here. The scanner assumes one device pixel per CSS
//! pixel and a window of 1280 pixels: a usual laptop in a cabin.

use super::is_reference;

/// Assumed width of the window, CSS pixels.
const WINDOW_PIXELS: f64 = 1280.0;

/// Maximum number of candidates examined. Pages have about ten.
const MAX_CANDIDATES: usize = 64;

/// One image of a set.
struct Candidate<'a> {
    url: &'a str,
    /// Image pixels per CSS pixel.
    density: f64,
}

/// Chooses the image for the assumed screen from `set` and, if given, `plain`.
pub(super) fn choose<'a>(
    set: &'a str,
    sizes: Option<&str>,
    plain: Option<&'a str>,
) -> Option<&'a str> {
    let width = sizes.map_or(WINDOW_PIXELS, shown_pixels);
    let plain = plain.map(|url| Candidate { url, density: 1.0 });
    let candidates: Vec<Candidate<'_>> = Candidates(set)
        .take(MAX_CANDIDATES)
        .filter_map(|(url, by)| density(url, by, width))
        .collect();
    // The plain image is a candidate if the set has only densities.
    let plain = plain.filter(|_| !set.split_ascii_whitespace().any(is_width));
    let enough = |one: &&Candidate<'_>| one.density >= 1.0;
    let all = || candidates.iter().chain(&plain);
    let least = all().filter(enough).min_by(|a, b| a.density.total_cmp(&b.density));
    let chosen = least.or_else(|| all().max_by(|a, b| a.density.total_cmp(&b.density)))?;
    is_reference(chosen.url).then_some(chosen.url)
}

fn is_width(word: &str) -> bool {
    let word = word.trim_end_matches(',');
    word.strip_suffix('w').is_some_and(|digits| digits.parse::<u32>().is_ok())
}

fn density<'a>(url: &'a str, descriptor: &str, width: f64) -> Option<Candidate<'a>> {
    // HTML reserves a height beside the width, and tells readers to ignore it.
    let is_height = |word: &str| word.strip_suffix('h').is_some_and(|it| it.parse::<u32>().is_ok());
    let mut words = descriptor.split_ascii_whitespace().filter(|word| !is_height(word));
    let (first, None) = (words.next().unwrap_or_default(), words.next()) else { return None };
    let density = match first {
        "" => 1.0,
        by => match (by.strip_suffix('x'), by.strip_suffix('w')) {
            (Some(times), _) => times.parse::<f64>().ok()?,
            (_, Some(pixels)) => f64::from(pixels.parse::<u32>().ok()?) / width,
            _ => return None,
        },
    };
    (density.is_finite() && density > 0.0).then_some(Candidate { url, density })
}

/// Displayed width of the image according to `sizes`: its last entry, if that is in `px` or `vw`.
/// The other entries depend on the window.
fn shown_pixels(sizes: &str) -> f64 {
    let last = sizes.rsplit(',').next().unwrap_or_default().trim_ascii();
    let number = |unit: &str| last.strip_suffix(unit)?.trim_ascii().parse::<f64>().ok();
    let pixels = number("px").or_else(|| Some(number("vw")? / 100.0 * WINDOW_PIXELS));
    pixels.filter(|pixels| *pixels >= 1.0).unwrap_or(WINDOW_PIXELS)
}

/// Iterator over URLs and their descriptors. A comma inside a URL belongs to it.
struct Candidates<'a>(&'a str);

impl<'a> Iterator for Candidates<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
        let (url, rest) = rest.split_at(end);
        let bare = url.trim_end_matches(',');
        if bare.len() < url.len() {
            self.0 = rest;
            return Some((bare, ""));
        }
        let (descriptor, rest) = rest.split_once(',').unwrap_or((rest, ""));
        self.0 = rest;
        Some((url, descriptor.trim_ascii()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_smallest_sufficient_image_is_chosen() {
        let by_density = "a.png, b.png 1.5x, c.png 2x";
        assert_eq!(choose(by_density, None, Some("plain.png")), Some("a.png"));
        assert_eq!(choose("b.png 2x", None, Some("plain.png")), Some("plain.png"));
        let by_width = "s.jpg 320w, m.jpg 700w,l.jpg 1400w , xl.jpg 4000w";
        assert_eq!(choose(by_width, None, Some("plain.jpg")), Some("l.jpg"));
        assert_eq!(choose(by_width, Some("(max-width: 600px) 100vw, 50vw"), None), Some("m.jpg"));
        assert_eq!(choose(by_width, Some("300px"), None), Some("s.jpg"));
        assert_eq!(choose("s.jpg 320w 200h", None, Some("plain.jpg")), Some("s.jpg"));
        assert_eq!(choose("s.jpg 320w", None, None), Some("s.jpg"), "none is enough");
        assert_eq!(choose("a,b.png 1x,c.png 3x", None, None), Some("a,b.png"));
        assert_eq!(choose("data:image/png;base64,AA 1x", None, None), None);
        assert_eq!(choose(" , ,", None, None), None);
        assert_eq!(choose("a 0w, b infx, c -1x", None, None), None);
    }

    proptest! {
        #[test]
        fn any_srcset_is_survived(set in ".{0,80}", sizes in ".{0,30}") {
            if let Some(url) = choose(&set, Some(&sizes), None) {
                prop_assert!(set.contains(url));
            }
        }
    }
}
