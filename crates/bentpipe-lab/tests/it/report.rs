//! The report in real Chromium, on desktop and phone screens, light and dark.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bentpipe_lab::browser::{self, Browser, Visit};
use bentpipe_results::{
    FigureKind, Folder, Manifest, Measured, Row, Study, number, unit_of, write_table,
};
use serde_json::{Value, json};

/// Library that draws figures, fetched by `make test`.
const VEGA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/vega/vega.js");

/// Folder for screenshots of the page.
const PICTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/report");

const LOOK: &str = include_str!("report/look.js");
const COLOURS: &str = include_str!("report/colours.js");

/// Records what the page writes to its console.
const LISTEN: &str = "globalThis.said = []; for (const how of ['log', 'info', 'warn', 'error']) { \
                      const tell = console[how]; \
                      console[how] = (...all) => { said.push(all.join(' ')); tell(...all); }; }";

/// Time limit for the whole test; a busy machine takes a minute.
const LONGEST: Duration = Duration::from_secs(420);
const LOADING: Duration = Duration::from_secs(60);

/// Number of runs of every cell; some cells have an unfinished run.
const RUNS: u32 = 3;

#[tokio::test]
async fn the_report_is_whole_readable_and_silent_on_any_screen() {
    if !is_possible() {
        return;
    }
    let at = tempfile::tempdir().unwrap();
    let results = at.path().join("results");
    fill(&results);
    open(&results, at.path(), "made-up").await;
}

/// Real values differ in length from generated ones.
#[tokio::test]
async fn the_report_of_the_reference_run_is_so_too() {
    if !is_possible() {
        return;
    }
    let at = tempfile::tempdir().unwrap();
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/reference");
    open(&reference, at.path(), "reference").await;
}

#[test]
fn the_committed_page_is_of_the_committed_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let at = tempfile::tempdir().unwrap();
    let page = at.path().join("results.md");
    let made = Command::new(env!("CARGO_BIN_EXE_bentpipe-lab"))
        .args(["report", "results/reference", "--markdown"])
        .arg(&page)
        .current_dir(&root)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let (now, committed) =
        (fs::read_to_string(&page), fs::read_to_string(root.join("docs/results.md")));
    let (now, committed) = (now.unwrap(), committed.unwrap());
    let differs = now.lines().zip(committed.lines()).find(|(now, then)| now != then);
    assert_eq!(differs, None, "bentpipe report results/reference --markdown docs/results.md");
    assert_eq!(now.lines().count(), committed.lines().count());
}

fn is_possible() -> bool {
    if browser::find().is_none() {
        println!("SKIPPED: no Chromium on the PATH; `scripts/setup.sh browser` installs one");
        return false;
    }
    if !Path::new(VEGA).exists() {
        println!("SKIPPED: no Vega for the figures; `scripts/setup.sh vega` fetches it");
        return false;
    }
    true
}

/// Makes the page of `results` in `folder`, and checks it; `name` prefixes the screenshots.
async fn open(results: &Path, folder: &Path, name: &str) {
    let page = folder.join("report.html");
    let report = Command::new(env!("CARGO_BIN_EXE_bentpipe-lab"))
        .args(["report".as_ref(), results.as_os_str(), "--out".as_ref(), page.as_os_str()])
        .args(["--vega", VEGA])
        .output()
        .expect("the program starts");
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    let look = look_at(&page, drawn(), folder, name);
    tokio::time::timeout(LONGEST, look).await.expect("it comes to an end");
}

/// Opens the page on both screens, and checks each in both colour schemes.
async fn look_at(page: &Path, drawn: usize, folder: &Path, name: &str) {
    let mut browser = Browser::start(Command::new("sh"), &[], folder).await.unwrap();
    let listen = json!({ "source": LISTEN });
    browser.call("Page.addScriptToEvaluateOnNewDocument", listen).await.unwrap();
    let url = format!("file://{}", page.display());
    for (width, schemes) in [(1280, ["light", "dark"]), (390, ["dark", "light"])] {
        let screen =
            json!({ "width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600 });
        browser.call("Emulation.setDeviceMetricsOverride", screen).await.unwrap();
        show_in(&mut browser, schemes[0]).await;
        let mut visit = browser.visit(&url, LOADING).await.unwrap();
        assert!(visit.loaded.is_some(), "{visit:?}");
        let look = LOOK.replace("WIDTH", &width.to_string());
        let found = browser.evaluate(&look).await.unwrap();
        let none: [&str; 0] = [];
        assert_eq!(found["faults"], json!(none), "{width} px, {}", schemes[0]);
        assert_eq!(found["figures"], json!(drawn), "{width} px");
        assert_eq!(found["said"], json!(none), "the console at {width} px");
        let mut papers = Vec::new();
        for scheme in schemes {
            show_in(&mut browser, scheme).await;
            let colours: Value = browser.evaluate(COLOURS).await.unwrap();
            assert_eq!(colours["faint"], json!(none), "{width} px, {scheme}");
            papers.push(colours["paper"].clone());
            picture(&mut browser, width, &format!("{name}-{width}-{scheme}")).await;
        }
        assert_ne!(papers[0], papers[1], "{schemes:?} look alike");
        browser.catch_up(&mut visit).await.unwrap();
        assert_quiet(&visit, &url);
    }
    browser.close().await.unwrap();
}

async fn show_in(browser: &mut Browser, scheme: &str) {
    let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
    browser.call("Emulation.setEmulatedMedia", media).await.unwrap();
}

/// Saves a screenshot to a file below [`PICTURES`], for people to inspect.
async fn picture(browser: &mut Browser, width: u32, name: &str) {
    let shot = browser.call("Page.captureScreenshot", json!({ "format": "png" })).await.unwrap();
    let png = BASE64_STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
    // The width in the header: RFC 2083, section 11.2.1.
    assert_eq!(png[16..20], width.to_be_bytes(), "{name}");
    fs::create_dir_all(PICTURES).unwrap();
    fs::write(Path::new(PICTURES).join(name).with_extension("png"), png).unwrap();
}

/// Asserts that the page requested only itself and caused no errors.
fn assert_quiet(visit: &Visit, url: &str) {
    let none: [&str; 0] = [];
    assert_eq!(visit.complaints, none);
    let asked: Vec<&str> =
        visit.record.requests().iter().map(|request| request.url.as_str()).collect();
    assert_eq!(asked, [url]);
}

/// Number of figures in a report with data for every section.
fn drawn() -> usize {
    let studies = Study::all().unwrap();
    let sections = studies.iter().flat_map(|study| &study.sections);
    sections.filter(|section| section.figure.kind != FigureKind::Table).count()
}

/// Creates a folder of results with data for every quick cell of every study.
fn fill(folder: &Path) {
    let studies = Study::all().unwrap();
    let named = studies.iter().map(|study| (study.name.clone(), "0123456789abcdef".to_owned()));
    let manifest = Manifest {
        version: "0.1.0".into(),
        builds: Vec::new(),
        hosts: Vec::new(),
        links: Vec::new(),
        studies: named.collect(),
        seed: 1,
        quick: true,
    };
    Folder::start(folder, &manifest).unwrap();
    let tables = folder.join("tables");
    fs::create_dir(&tables).unwrap();
    for study in &studies {
        for grid in &study.grids {
            let cells = grid.quick.iter().enumerate().map(|(place, planned)| Measured {
                paper: study.name.clone(),
                grid: grid.id.clone(),
                cell: planned.cell.clone(),
                rows: grid
                    .metrics
                    .iter()
                    .flat_map(|metric| rows(metric, place, planned.cell.on("x").is_none()))
                    .collect(),
            });
            let path = tables.join(format!("{}.{}.parquet", study.name, grid.id));
            write_table(&path, &cells.collect::<Vec<_>>()).unwrap();
        }
    }
}

/// Values of every run of a cell. Objects and connections get several values, at different places
/// if the cell has none.
fn rows(metric: &str, place: usize, has_places: bool) -> Vec<Row> {
    let unit = unit_of(metric).unwrap();
    let (series, points) = match metric {
        "block" | "wait" | "receive" => (12, 1),
        "rate" => (3, 30),
        _ => (1, 1),
    };
    let mut rows = Vec::new();
    for run in 0..RUNS {
        for (one, point) in (0..series).flat_map(|one| (0..points).map(move |point| (one, point))) {
            let some = 1.0 + ((place * 7 + one * 5 + point * 3 + run as usize) % 11) as f64;
            let value = match unit {
                "bit/s" => some * 150_000.0,
                "count" => some.floor(),
                "ratio" => some / 12.0,
                _ => some,
            };
            let is_one = series == 1;
            let at = (one + point) as f64 * 0.1;
            rows.push(Row {
                metric: metric.into(),
                unit: unit.into(),
                series: if is_one { String::new() } else { number(one as f64) },
                x: (has_places && !is_one).then_some(at),
                run,
                seed: 1,
                value,
                // Some page loads never finish.
                finished: !(metric == "plt" && place.is_multiple_of(13) && run > 0),
            });
        }
    }
    rows
}
