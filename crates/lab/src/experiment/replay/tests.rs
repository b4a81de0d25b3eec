use super::*;
use crate::loader::Entry;
use crate::site::Shape;
use crate::system::BENTPIPE;

const DEADLINE: Duration = Duration::from_secs(120);

fn model() -> Site {
    let shape = Shape { connections: 9, kilobytes: 90.0, requests: 20.0, domains: 3.0 };
    Site::model("three", &shape, 7, 1).unwrap()
}

/// Runs `with` on a site that was written to disk and read again, over `mss`.
fn replayed<T>(with: impl FnOnce(&Choice<'_>) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    model().write(folder.path()).unwrap();
    let (site, profile) = (Site::read(folder.path()).unwrap(), Profile::named("mss").unwrap());
    let (protocol, deadline) = (sim::PROTOCOL, DEADLINE);
    with(&Choice { site: &site, profile: &profile, protocol, deadline })
}

#[test]
fn an_archive_in_virtual_time_comes_whole_and_the_same_each_time() {
    replayed(|choice| {
        let [first, again, other] = [1, 1, 2].map(|seed| sim::run(choice, seed).unwrap());
        assert_eq!((first.came, first.bytes), (choice.site.resources.len(), choice.site.bytes()));
        assert_eq!(first.failed, None);
        assert_eq!((first.plt, &first.har), (again.plt, &again.har));
        assert_ne!(first.plt, other.plt);
        // At least two round trips, one for the document and one for its objects, plus the time for
        // the bytes.
        let Sample::Finished(took) = first.plt else { panic!("{first:?}") };
        let least = choice.profile.forward_limit(choice.site.bytes()).unwrap();
        assert!(took > (least + choice.profile.rtt()).as_secs_f64(), "{took}");
        assert!(took < 30.0, "{took}");
        let found = Found { system: &BENTPIPE, loads: vec![first, other] };
        let rows = found.rows(choice, "sim", 1);
        assert_eq!((rows[0].metric.as_str(), rows[0].n), ("plt", 2));
        assert_eq!((rows[2].metric.as_str(), rows[2].mean), ("failed", Some(0.0)));
        let text = text(choice, &[found]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    });
}

#[test]
fn nothing_is_asked_for_before_it_is_found_and_six_at_once_of_a_domain() {
    replayed(|choice| {
        let har = sim::run(choice, 3).unwrap().har;
        assert_eq!(har["log"]["entries"].as_array().unwrap().len(), choice.site.resources.len());
        let load = Load::new(choice.site, sim::PROTOCOL, DEADLINE);
        let visit = sim::load(&load, choice, 3).unwrap();
        let asked = |entry: &Entry| entry.started + entry.block;
        let ended = |entry: &Entry| entry.started + entry.time();
        for entry in &visit.entries {
            let resource = &choice.site.resources[entry.resource];
            if let Some(after) = resource.after {
                assert_eq!(entry.started, ended(&visit.entries[after]), "{entry:?}");
            }
            let of_domain = |other: &&Entry| {
                choice.site.resources[other.resource].domain == resource.domain
                    && asked(other) <= asked(entry)
                    && ended(other) > asked(entry)
            };
            assert!(visit.entries.iter().filter(of_domain).count() <= load.connections);
        }
    });
}

#[test]
fn a_load_cut_off_by_the_deadline_has_no_page_load_time() {
    replayed(|choice| {
        let choice = Choice { deadline: Duration::from_millis(1500), ..*choice };
        let cut = sim::run(&choice, 1).unwrap();
        assert_eq!(cut.plt, Sample::Cut(1.5));
        assert!(cut.failed.is_some() && cut.came < choice.site.resources.len());
        let found = Found { system: &BENTPIPE, loads: vec![cut] };
        assert_eq!(found.rows(&choice, "sim", 1)[0].p50, None);
        assert!(text(&choice, &[found]).contains("> 1.50 s"));
    });
}

#[test]
fn a_domain_outside_the_lab_is_refused_with_what_to_do() {
    let mut site = model();
    assert_eq!(emu::check(&site, Protocol::Http3, false), Ok(()));
    assert_eq!(emu::check(&Site::page(1, 10, 0), Protocol::Http2, true), Ok(()));
    assert!(emu::check(&site, Protocol::Http3ZeroRtt, true).unwrap_err().contains("Chromium"));
    site.domains[1].address = [192, 0, 2, 1].into();
    let why = emu::check(&site, Protocol::Http2, false).unwrap_err();
    assert!(why.contains(&site.domains[1].name) && why.contains("198.19.0.0/16"), "{why}");
}
