use proptest::prelude::*;

use super::*;
use crate::site::Shape;

fn model() -> Site {
    let shape = Shape { connections: 14, kilobytes: 499.28, requests: 17.34, domains: 4.24 };
    Site::model("flickr", &shape, 1, 3).unwrap()
}

fn recorded() -> Site {
    let mut site = model();
    for resource in site.resources.iter_mut().skip(5) {
        resource.bytes = 3;
        resource.path.push_str("?a=b&c");
        resource.recorded = Some(Recorded {
            body: bytes::Bytes::from_static(b"\x00\xff!"),
            content_type: "image/webp".into(),
            content_encoding: Some("br".into()),
        });
    }
    site
}

#[test]
fn a_site_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    for site in [Site::page(3, 1000, 0), model(), recorded()] {
        site.write(folder.path()).unwrap();
        assert_eq!(Site::read(folder.path()).unwrap(), site);
    }
}

/// Writes `recorded`, changes its index, and reads the site. Returns the error.
fn read_changed(from: &str, to: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    recorded().write(folder.path()).unwrap();
    let path = folder.path().join(INDEX);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from}");
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
    Site::read(folder.path()).unwrap_err().to_string()
}

#[test]
fn special_files_are_refused_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    recorded().write(folder.path()).unwrap();
    let body = folder.path().join(BODIES).join("5");
    fs::remove_file(&body).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &body).unwrap();
    let error = Site::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("body/5: it is not a file"), "{error}");
}

#[test]
fn a_site_has_no_more_domains_than_there_are_sockets_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = model();
    while site.domains.len() <= MAX_DOMAINS {
        let name = format!("more{}.test", site.domains.len());
        site.domains.push(Domain { name, ..site.domains[0].clone() });
    }
    site.write(folder.path()).unwrap();
    let error = Site::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("257 domains"), "{error}");
}

#[test]
fn an_invalid_archive_is_refused_with_a_reason() {
    for (from, to, why) in [
        ("format = 1", "format = 2", "reads 1"),
        ("domain = 0", "domain = 9", "there is no domain 9"),
        ("after = 0", "after = 500", "which is not before it"),
        ("path = \"/\"", "path = \"//../\\u0000\"", "is not a path"),
        ("path = \"/4.bmp\"", "path = \"/\"", "stands here twice"),
        ("bytes = 3\n", "bytes = 4\n", "the index says 4"),
        ("bytes = 3\n", "bytes = 99999999999\n", "are taken"),
        ("name = \"d1.flickr.test\"", "name = \"d 1\"", "is not a name"),
        ("visit = 3", "vist = 3", "not an index of a site"),
    ] {
        let error = read_changed(from, to);
        assert!(error.contains(why), "{to}: {error}");
    }
}

#[test]
fn a_body_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    recorded().write(folder.path()).unwrap();
    fs::remove_file(folder.path().join(BODIES).join("7")).unwrap();
    let error = Site::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("body/7"), "{error}");
}

proptest! {
    /// An index with any few bytes changed gives a site or an error.
    #[test]
    fn no_index_breaks_the_reader(at in 0_usize..4000, put in proptest::collection::vec(any::<u8>(), 0..8)) {
        let folder = tempfile::tempdir().unwrap();
        model().write(folder.path()).unwrap();
        let path = folder.path().join(INDEX);
        let mut text = fs::read(&path).unwrap();
        let at = at % text.len();
        let end = (at + put.len()).min(text.len());
        text.splice(at..end, put);
        fs::write(&path, &text).unwrap();
        if let Ok(site) = Site::read(folder.path()) {
            for number in 0..site.resources.len() {
                prop_assert_eq!(site.content(number).bytes(), site.resources[number].bytes);
            }
        }
    }
}
