use super::*;

fn manifest() -> Manifest {
    let studies = vec![("aerotcp".into(), "0123456789abcdef".into())];
    let builds = vec!["0011".into()];
    let host = Host { name: "one".into(), kernel: "6.1".into(), cores: 2, programs: [].into() };
    let (hosts, links) = (vec![host], Vec::new());
    Manifest { version: "0.1.0".into(), studies, seed: 1, quick: true, builds, hosts, links }
}

fn measured(ber: &str, value: f64) -> Measured {
    let row = Row {
        metric: "utilization".into(),
        unit: "ratio".into(),
        series: String::new(),
        x: None,
        run: 0,
        seed: 1,
        value,
        finished: true,
    };
    Measured {
        paper: "aerotcp".into(),
        grid: "files".into(),
        cell: Cell::of([("x", ber), ("protocol", "http/1.1")]),
        rows: vec![row],
    }
}

fn keep(folder: &Folder, measured: &Measured) {
    let value = measured.rows[0].value;
    let line = serde_json::json!({"paper": measured.paper, "grid": measured.grid,
    "cell": measured.cell.to_string(), "at": (value * 1e3) as u64, "links": [LinkMeasured {
        path: "radio".into(),
        direction: "forward".into(),
        delay_ms: Some(100.0 * value),
        rate_mbps: Some(2.0),
        filled: true,
        loss: value / 10.0,
        probes: 100,
    }]});
    folder.keep(measured, &line).unwrap();
}

#[test]
fn a_run_goes_on_where_it_was() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::start(place.path(), &manifest()).unwrap();
    let (done, open) = (measured("0.1", 0.8), measured("0.01", 0.9));
    keep(&folder, &done);
    folder.write_tables().unwrap();
    let again = Folder::start(place.path(), &manifest()).unwrap();
    assert_eq!(again.manifest().links[0].delay_ms, Some([80.0, 80.0]));
    assert_eq!(again.cell("aerotcp", "files", &done.cell).unwrap(), Some(done));
    assert_eq!(again.cell("aerotcp", "files", &open.cell).unwrap(), None);
    let other = Manifest { seed: 2, ..manifest() };
    let error = Folder::start(place.path(), &other).unwrap_err().to_string();
    assert!(error.contains("seed 1") && error.contains("another folder"), "{error}");
}

#[test]
fn another_build_goes_on_only_where_it_is_told_to_and_is_named() {
    let place = tempfile::tempdir().unwrap();
    let by = |build: &str| Manifest { builds: vec![build.into()], ..manifest() };
    Folder::start(place.path(), &manifest()).unwrap();
    let error = Folder::start(place.path(), &by("2233")).unwrap_err().to_string();
    assert!(error.contains("0011, not 2233") && error.contains("--mix-builds"), "{error}");
    let both = Folder::start_mixed(place.path(), &by("2233")).unwrap();
    assert_eq!(both.manifest().builds, ["0011", "2233"]);
    assert_eq!(Folder::start(place.path(), &by("2233")).unwrap().manifest(), both.manifest());
    // Merging shards of several builds lists all builds.
    let shard = |name: &str, build| Folder::start(&place.path().join(name), &by(build)).unwrap();
    let merged = place.path().join("merged");
    Folder::merge(&merged, &[shard("one", "44"), shard("two", "55")]).unwrap();
    assert_eq!(Folder::open(&merged).unwrap().manifest().builds, ["44", "55"]);
    // The same for machines.
    let mut elsewhere = by("55");
    elsewhere.hosts[0].name = "two".into();
    let further = Folder::start(&place.path().join("three"), &elsewhere).unwrap();
    Folder::merge(&merged, &[further]).unwrap();
    let hosts = Folder::open(&merged).unwrap().manifest().hosts.clone();
    assert_eq!(hosts.iter().map(|host| &host.name[..]).collect::<Vec<_>>(), ["one", "two"]);
    // A folder from before builds and machines were recorded.
    let text = fs::read_to_string(place.path().join(MANIFEST)).unwrap();
    let old: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut old = old.as_object().unwrap().clone();
    old.remove("builds");
    old.remove("hosts");
    fs::write(place.path().join(MANIFEST), serde_json::to_vec(&old).unwrap()).unwrap();
    let error = Folder::start(place.path(), &manifest()).unwrap_err().to_string();
    assert!(error.contains("an unknown one, not 0011"), "{error}");
    // A different run stays different for every build.
    let other = Manifest { seed: 2, ..by("66") };
    let error = Folder::start(place.path(), &other).unwrap_err().to_string();
    assert!(error.contains("seed 1") && !error.contains("--mix-builds"), "{error}");
}

#[test]
fn shards_become_the_run_they_are_parts_of() {
    let place = tempfile::tempdir().unwrap();
    let start = |name: &str| Folder::start(&place.path().join(name), &manifest()).unwrap();
    let (whole, one, two) = (start("whole"), start("one"), start("two"));
    // An imprecise JSON parser gets the last digit of this number wrong.
    let hard = 3.812_042_376_882_124_6;
    let all = [measured("0.001", hard), measured("0.01", 0.9), measured("0.1", 0.8)];
    all.iter().for_each(|cell| keep(&whole, cell));
    for folder in [&whole, &two] {
        let cell = folder.raw().join(Folder::cell_file("aerotcp", "files", &all[1].cell));
        for extension in ["0.har", "0.pcapng", "0.sqlog"] {
            write_below(&cell.with_extension(extension), extension.as_bytes()).unwrap();
        }
    }
    whole.write_tables().unwrap();
    // An incomplete file of a run that was stopped.
    let cell = two.raw().join(Folder::cell_file("aerotcp", "files", &all[0].cell));
    write_below(&cell.with_extension("pcapng.part"), b"").unwrap();
    keep(&one, &all[2]);
    keep(&one, &all[0]);
    keep(&two, &all[1]);
    let merged = place.path().join("merged");
    for _ in 0..2 {
        Folder::merge(&merged, &[two.clone(), one.clone()]).unwrap();
        assert_eq!(files(&merged), files(&place.path().join("whole")));
        assert_eq!(Folder::read_tables(&merged.join("tables")).unwrap(), all);
        assert_eq!(fs::read_to_string(merged.join(LOG)).unwrap().lines().count(), 3);
        let manifest = Folder::open(&merged).unwrap().manifest().clone();
        assert_eq!(manifest.links.len(), 3);
        assert_eq!(Folder::open(&merged).unwrap().measured_between().unwrap(), Some([800, 3812]));
    }
    keep(&two, &measured("0.1", 0.1));
    let error = Folder::merge(&place.path().join("other"), &[one, two]).unwrap_err();
    assert!(matches!(error, FolderError::Twice { .. }), "{error}");
}

/// Every file except the log, with its contents.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for path in entries(folder).unwrap() {
        let name = PathBuf::from(path.file_name().unwrap());
        if path.is_dir() {
            all.extend(files(&path).into_iter().map(|(file, bytes)| (name.join(file), bytes)));
        } else if name != Path::new(LOG) {
            all.push((name, fs::read(&path).unwrap()));
        }
    }
    all
}

#[test]
fn a_damaged_cell_is_named() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::start(place.path(), &manifest()).unwrap();
    let cell = measured("0.1", 0.8);
    keep(&folder, &cell);
    let path = place.path().join(Folder::cell_file("aerotcp", "files", &cell.cell));
    fs::write(&path, b"{").unwrap();
    let error = folder.measured().unwrap_err().to_string();
    assert!(error.contains("protocol=http%2F1.1,x=0.1.json"), "{error}");
}

#[test]
fn values_that_are_not_numbers_are_not_stored() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::start(place.path(), &manifest()).unwrap();
    let error = folder.keep(&measured("0.1", f64::NAN), &()).unwrap_err().to_string();
    assert!(error.contains("utilization of run 0 is NaN"), "{error}");
    assert_eq!(folder.measured().unwrap(), []);
}
