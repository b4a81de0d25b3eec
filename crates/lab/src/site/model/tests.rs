use super::*;

/// Table I. Its numbers of requests and domains are rounded in the model.
const TABLE: [(&str, u32, f64, f64, f64); 7] = [
    ("wikipedia", 17, 111.13, 18.97, 3.00),
    ("reddit", 41, 371.42, 51.44, 14.72),
    ("flickr", 14, 499.28, 17.34, 4.24),
    ("slashdot", 50, 712.62, 48.76, 10.84),
    ("bbc", 88, 950.73, 85.01, 12.00),
    ("microsoft", 58, 1176.25, 52.43, 9.56),
    ("huffington-post", 173, 1481.80, 110.11, 32.89),
];

fn shape(row: (&str, u32, f64, f64, f64)) -> Shape {
    Shape { connections: row.1, kilobytes: row.2, requests: row.3, domains: row.4 }
}

#[test]
fn models_have_the_sums_of_table_1() {
    for row in TABLE {
        let site = Site::model(row.0, &shape(row), 1, 0).unwrap();
        assert_eq!(site.bytes(), (row.2 * 1000.0).round() as u64, "{}", row.0);
        assert_eq!(site.resources.len(), row.3.round() as usize, "{}", row.0);
        assert_eq!(site.domains.len(), row.4.round() as usize, "{}", row.0);
        // Each domain is used, and each address belongs to one domain.
        for (number, domain) in site.domains.iter().enumerate() {
            assert!(site.resources.iter().any(|it| it.domain == number), "{}", domain.name);
            assert_eq!(site.domains.iter().filter(|it| it.address == domain.address).count(), 1);
        }
        for (number, resource) in site.resources.iter().enumerate().skip(1) {
            let after = resource.after.unwrap();
            assert!(after < number);
            assert!(matches!(
                site.resources[after].kind,
                Kind::Document | Kind::Script | Kind::Style
            ));
        }
        let deep = site.resources.iter().filter(|it| it.after.is_some_and(|it| it > 0)).count();
        let share = deep as f64 / site.resources.len() as f64;
        assert!((0.1..0.35).contains(&share), "{}: {share} is found late", row.0);
    }
}

#[test]
fn some_objects_are_long_and_many_are_short() {
    let site = Site::model("bbc", &shape(TABLE[4]), 1, 0).unwrap();
    let mut bytes: Vec<u64> = site.resources.iter().map(|it| it.bytes).collect();
    bytes.sort_unstable();
    let tenth: u64 = bytes[bytes.len() * 9 / 10..].iter().sum();
    let share = tenth as f64 / site.bytes() as f64;
    assert!((0.3..0.7).contains(&share), "the longest tenth has {share}");
}

#[test]
fn a_seed_is_a_site() {
    let of = |seed| Site::model("reddit", &shape(TABLE[1]), seed, 0).unwrap();
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn sums_that_nothing_fits_are_refused() {
    let shape = Shape { connections: 6, kilobytes: 2.0, requests: 30.0, domains: 3.0 };
    let error = Site::model("tiny", &shape, 1, 0).unwrap_err().to_string();
    assert!(error.contains("30 requests") && error.contains("2000"), "{error}");
}

#[test]
fn any_shape_gives_a_site_or_a_reason() {
    for requests in [0.0, 1.0, 2.0, 7.0, 40.0, 5_000.0] {
        for domains in [0.0, 1.0, 2.0, 7.0, 300.0] {
            for connections in [0, 1, 6, 500] {
                let shape = Shape { connections, kilobytes: 5_000.0, requests, domains };
                let site = Site::model("any", &shape, 3, 0).unwrap();
                assert_eq!(site.bytes(), 5_000_000, "{shape:?}");
                let expected = (requests.max(1.0) as usize).min(MAX_RESOURCES);
                assert_eq!(site.resources.len(), expected, "{shape:?}");
            }
        }
    }
}
