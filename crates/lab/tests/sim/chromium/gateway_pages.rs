//! Pages of the gateways in real Chromium: the operator's and the passengers'.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_flow::Traffic;
use bentpipe_gateway::config::{AirConfig, Detail, StatusConfig};
use bentpipe_gateway::counters::Counters;
use bentpipe_gateway::experience::{Exchanges, Group};
use bentpipe_gateway::status::{
    Gateway, LinkEntry, Moved, Names, PassengerEntry, Reporter, Session,
};
use bentpipe_lab::browser::{Browser, Visit, find};
use bentpipe_link::Class;
use serde_json::json;

use super::accessibility::{axe, faults};

/// Maximum duration of a visit, and of the wait for something in the page.
const DEADLINE: Duration = Duration::from_secs(60);

/// Number of aircraft that the operator's page of a ground gateway shows at most.
const AIRCRAFT: usize = 1_000;

/// Rows of the fleet at once.
const ROWS: usize = 50;

/// A name that would do harm if it were read as HTML.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// Widths and heights of a desk's screen and of a telephone's.
const SCREENS: [(u32, u32, bool); 2] = [(1280, 900, false), (390, 844, true)];

fn session(number: usize) -> Session {
    let name = if number == 5 { HOSTILE.to_owned() } else { format!("D-{number:04}") };
    let mut session = Session::of(Traffic::default(), Some(&name), &Names::default());
    session.interval_us = 1_000_000;
    session.classes[3].recent.sent_bytes = number as u64 * 1_000;
    let outage_us = if number % 100 == 7 { 65_000_000 } else { 0 };
    session.link = Some(LinkEntry {
        round_trip_us: 600_000 + number as u64,
        outage_us,
        judged_packets: 1_000,
        lost_packets: number as u64 % 60,
        mtu_bytes: 1_500,
        ..LinkEntry::default()
    });
    session.passengers = vec![PassengerEntry {
        passenger: 1,
        name: Some(HOSTILE.to_owned()),
        class: "best-effort".to_owned(),
        open_flows: 1,
        total: Moved { sent_bytes: 1_000_000, ..Moved::default() },
        recent: Moved::default(),
    }];
    session
}

/// Serves the operator's page of a gateway with these sessions at an address that no other test and no
/// other process of ours uses.
fn serve(gateway: Gateway, host: u8, sessions: Vec<Session>) -> SocketAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    let listen: SocketAddr = ([127, 1 + high % 254, low, host], 9466).into();
    let folder = tempfile::tempdir().unwrap();
    let config = StatusConfig {
        file: folder.path().join("status.json"),
        interval: "1 s".parse().unwrap(),
        detail: Detail::Passengers,
        listen: Some(listen),
        token: None,
    };
    let all = sessions.len();
    let counters = Arc::new(Counters::default());
    let group = Group { class: Class::BestEffort, rule: HOSTILE.into() };
    Exchanges::new(group, None, true).end(true, &counters.experience);
    let reporter = Reporter::new(&config, gateway, counters, move || all);
    tokio::spawn(async move {
        let _folder = folder;
        reporter.keep(move |_| sessions.clone()).await;
    });
    listen
}

/// Calls `check` on a screen, in light and dark.
async fn on_each_screen(browser: &mut Browser, mut check: impl AsyncFnMut(&mut Browser, &str)) {
    for (width, height, mobile) in SCREENS {
        for scheme in ["light", "dark"] {
            let screen = json!({
                "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile
            });
            browser.call("Emulation.setDeviceMetricsOverride", screen).await.unwrap();
            let media =
                json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            browser.call("Emulation.setEmulatedMedia", media).await.unwrap();
            check(browser, &format!("{width} pixels, {scheme}")).await;
        }
    }
}

/// Waits until `expression` is true in the page.
async fn wait(browser: &mut Browser, expression: &str) {
    let poll = format!(
        "new Promise(done => {{ const look = () => {expression} ? done(0) : setTimeout(look, 20); look(); }})"
    );
    let done = tokio::time::timeout(DEADLINE, browser.evaluate(&poll)).await;
    done.unwrap_or_else(|_| panic!("{expression} never became true")).unwrap();
}

/// Types `name` into the search of the fleet.
async fn search(browser: &mut Browser, name: &str) {
    let typed = format!(
        "(find => {{ find.value = '{name}'; find.dispatchEvent(new Event('input')); }})\
         (document.getElementById('find'))"
    );
    browser.evaluate(&typed).await.unwrap();
}

async fn check_page(browser: &mut Browser, visit: &mut Visit, axe: Option<&str>, screen: &str) {
    let wide = browser.evaluate("document.documentElement.scrollWidth - innerWidth").await.unwrap();
    assert!(wide.as_f64().unwrap() <= 0.0, "{screen}: {wide} pixels do not fit");
    assert_eq!(browser.evaluate("document.images.length").await.unwrap(), 0, "{screen}");
    if let Some(axe) = axe {
        assert_eq!(faults(browser, axe).await, [""; 0], "{screen}");
    }
    browser.catch_up(visit).await.unwrap();
    assert_eq!(visit.complaints, [""; 0], "{screen}");
}

/// Returns axe-core, and `false` without Chromium.
fn tools() -> Option<Option<String>> {
    if find().is_none() {
        println!("SKIPPED: no Chromium on the PATH; `scripts/setup.sh browser` installs one");
        return None;
    }
    let axe = axe();
    if axe.is_none() {
        println!("SKIPPED: accessibility was not checked; `scripts/setup.sh axe` fetches axe-core");
    }
    Some(axe)
}

async fn start(folder: &Path) -> Browser {
    let mut browser = Browser::start(Command::new("sh"), &[], folder).await.unwrap();
    // The pages' policy admits no script of others, which axe-core is.
    browser.call("Page.setBypassCSP", json!({ "enabled": true })).await.unwrap();
    browser
}

#[tokio::test]
async fn the_operators_page_shows_a_large_fleet_on_every_screen() {
    let Some(axe) = tools() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut browser = start(folder.path()).await;
    let ground = serve(Gateway::Ground, 1, (0..AIRCRAFT).map(session).collect());
    let air = serve(Gateway::Air, 2, vec![session(1)]);
    on_each_screen(&mut browser, async |browser, screen| {
        let mut visit = browser.visit(&format!("http://{ground}/"), DEADLINE).await.unwrap();
        assert_eq!(visit.failed, None, "{screen}");
        wait(browser, &format!("document.querySelectorAll('#fleet tbody tr').length == {ROWS}"))
            .await;
        check_page(browser, &mut visit, axe.as_deref(), screen).await;
        // Silent aircraft first, the busiest of them at the top; then what the operator asks for.
        let first = "document.querySelector('#fleet tbody').rows[0].textContent";
        assert!(browser.evaluate(first).await.unwrap().as_str().unwrap().contains("D-0907"));
        search(browser, "D-099").await;
        wait(browser, "document.querySelectorAll('#fleet tbody tr').length == 10").await;
        search(browser, "onerror").await;
        wait(browser, "document.querySelectorAll('#fleet tbody tr').length == 1").await;
        assert!(browser.evaluate(first).await.unwrap().as_str().unwrap().contains(HOSTILE));

        let mut visit = browser.visit(&format!("http://{air}/"), DEADLINE).await.unwrap();
        wait(browser, "document.querySelectorAll('#users tbody tr').length == 1").await;
        wait(browser, "document.querySelectorAll('#experience tbody tr').length == 1").await;
        let row = "[...document.querySelector('#experience tbody').rows[0].cells].map(cell => cell.textContent)";
        let row = browser.evaluate(row).await.unwrap();
        assert_eq!(row, json!(["best-effort", HOSTILE, "0.00", "–", "–", "1", "1"]), "{screen}");
        check_page(browser, &mut visit, axe.as_deref(), screen).await;
    })
    .await;
    browser.close().await.unwrap();
}

#[tokio::test]
async fn the_passengers_page_fits_every_screen() {
    let Some(axe) = tools() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("air.toml");
    std::fs::write(folder.path().join("air.key"), format!("{}=\n", "A".repeat(43))).unwrap();
    let key = "peer-public-key = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"";
    let text = format!(
        "[link]\nprivate-key-file = \"air.key\"\npeer = \"127.0.0.1:4500\"\n{key}\n\
         [listen]\nsocks5 = \"127.0.0.1:1080\"\n[http-cache]\nmemory = \"64 MiB\"\n"
    );
    let config = AirConfig::parse(&file, &text).unwrap();
    let page = folder.path().join("page.html");
    std::fs::write(&page, bentpipe_web::Page::new(&config).html()).unwrap();
    let mut browser = start(folder.path()).await;
    on_each_screen(&mut browser, async |browser, screen| {
        let url = format!("file://{}", page.display());
        let mut visit = browser.visit(&url, DEADLINE).await.unwrap();
        assert_eq!(visit.failed, None, "{screen}");
        check_page(browser, &mut visit, axe.as_deref(), screen).await;
    })
    .await;
    if let Some(axe) = axe {
        // A fault that has to be found.
        browser.evaluate("document.body.innerHTML = '<img src=x>'; 0").await.unwrap();
        assert_ne!(faults(&mut browser, &axe).await, [""; 0]);
    }
    browser.close().await.unwrap();
}
