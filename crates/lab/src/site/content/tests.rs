use std::collections::BTreeSet;

use bentpipe_prefetch::scan::{CssScanner, HtmlScanner, Item};

use super::*;
use crate::site::Shape;
use crate::workload::content::saved;

fn whole(content: &Content) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let slice = content.slice(all.len() as u64);
        if slice.is_empty() {
            return all;
        }
        all.extend_from_slice(&slice);
    }
}

fn model(visit: u64) -> Site {
    let shape = Shape { connections: 173, kilobytes: 1481.8, requests: 110.11, domains: 32.89 };
    Site::model("huffington-post", &shape, 1, visit).unwrap()
}

#[test]
fn bodies_have_their_length_and_nobody_elses_bytes() {
    let mut seen = BTreeSet::new();
    for site in [model(1), model(2), Site::page(3, 2_000, 0), Site::page(1, 1, 0)] {
        for number in 0..site.resources.len() {
            let content = site.content(number);
            let mut all = whole(&content);
            assert_eq!(all.len() as u64, site.resources[number].bytes);
            assert!(content.matches(0, &all) && !content.matches(all.len() as u64, b"x"));
            assert!(seen.insert(all.clone()), "{} is another's", site.url("http", number));
            let middle = all.len() / 2;
            all[middle] ^= 1;
            assert!(!content.matches(0, &all));
        }
    }
}

/// URLs that a browser or Split HTTP finds in a document or style sheet.
fn scanned(site: &Site, number: usize) -> BTreeSet<String> {
    let own = site.url("http", number);
    let (folder, _) = own.rsplit_once('/').unwrap();
    let mut found = BTreeSet::new();
    let mut keep = |url: &str| {
        found.insert(match url.strip_prefix("//") {
            Some(rest) => format!("http://{rest}"),
            None => format!("{folder}/{url}"),
        });
    };
    let all = whole(&site.content(number));
    if site.resources[number].kind == Kind::Style {
        let mut scanner = CssScanner::default();
        for part in all.chunks(999) {
            scanner.push(part, &mut |found| keep(&found.url));
        }
        scanner.finish(&mut |found| keep(&found.url));
        return found;
    }
    let mut scanner = HtmlScanner::default();
    let mut see = |item| match item {
        Item::Object(found) => keep(&found.url),
        Item::Base(_) => panic!("the lab's documents have no base"),
        Item::Cookie => panic!("the lab's documents set no cookie by script"),
    };
    for part in all.chunks(999) {
        scanner.push(part, &mut see);
    }
    scanner.finish(&mut see);
    found
}

#[test]
fn scanners_find_what_the_graph_has() {
    for site in [model(u64::MAX), Site::page(500, 5_000, 77)] {
        for (number, resource) in site.resources.iter().enumerate() {
            if matches!(resource.kind, Kind::Document | Kind::Style) {
                let graph: BTreeSet<_> =
                    site.found_in(number).map(|found| site.url("http", found)).collect();
                assert_eq!(scanned(&site, number), graph, "{}", site.url("http", number));
            }
        }
    }
}

#[test]
fn scripts_ask_for_what_the_graph_has() {
    let site = model(5);
    let scripts = site.resources.iter().enumerate().filter(|(_, it)| it.kind == Kind::Script);
    let mut asked = 0;
    for (number, _) in scripts {
        let text = String::from_utf8_lossy(&whole(&site.content(number))).into_owned();
        for found in site.found_in(number) {
            assert!(text.contains(&format!("src=\"{}\";", reference(&site, 0, found))));
            asked += 1;
        }
    }
    assert!(asked > 0, "no script of the model leads anywhere");
}

#[test]
fn text_is_filled_with_what_ends_no_comment_and_packs_badly() {
    let site = model(1);
    let all = whole(&site.content(0));
    let (_, comment) = all.split_at(site.least_bytes(0) as usize);
    let inside = comment.strip_suffix(b"-->").unwrap();
    assert!(inside.iter().rposition(|byte| b"<>-&*/'\"\\".contains(byte)).is_none_or(|at| at < 40));
    let mut counts = [0_f64; 256];
    inside.iter().for_each(|byte| counts[usize::from(*byte)] += 1.0);
    let all = inside.len() as f64;
    let bits = |count: &f64| if *count > 0.0 { -(count / all) * (count / all).log2() } else { 0.0 };
    let entropy: f64 = counts.iter().map(bits).sum();
    assert!(entropy > 8.0 * 0.95, "{entropy} bits each");
}

#[test]
fn all_bodies_of_a_page_together_pack_badly() {
    for site in [Site::page(500, 5_000, 3), model(2)] {
        let bodies: Vec<_> =
            (0..site.resources.len()).map(|number| whole(&site.content(number))).collect();
        let share = saved(&bodies);
        assert!(share < 0.05, "{share:.3} of {} is saved", site.name);
        // Check of the check: equal noise in every body would be found.
        let share = saved(std::iter::repeat_n(&bodies[1], bodies.len()));
        assert!(share > 0.9, "{share:.3}");
    }
}

#[test]
fn a_page_is_its_document_and_its_objects() {
    let site = Site::page(500, 5_000, 9);
    assert_eq!(site.resources.len(), 501);
    assert!(site.resources[1..].iter().all(|it| it.bytes == 5_000 && it.after == Some(0)));
    // The document's size is our choice, at most 20 KB (experiments/rural-paws.toml).
    assert!(site.resources[0].bytes < 20_000, "{}", site.resources[0].bytes);
    assert!(Site::page(1, 1, 0).resources[0].bytes < 200);
    assert_ne!(site.path(7), site.visited(10).path(7));
    assert_eq!(site.resources[0].bytes, site.visited(1 << 60).resources[0].bytes);
}
