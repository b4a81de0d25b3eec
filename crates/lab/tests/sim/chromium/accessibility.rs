//! Faults of accessibility in a page, found by axe-core in Chromium.

use std::path::{Path, PathBuf};

use bentpipe_lab::browser::Browser;
use serde_json::Value;

/// axe-core as `scripts/setup.sh axe` installs it; `None` without it.
pub fn axe() -> Option<String> {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/axe/axe.js");
    std::fs::read_to_string(file).ok()
}

/// Faults of the present page that axe-core calls serious or critical.
pub async fn faults(browser: &mut Browser, axe: &str) -> Vec<String> {
    browser.evaluate(&format!("{axe};0")).await.unwrap();
    let found = browser.evaluate("axe.run().then(result => result.violations)").await.unwrap();
    let is_serious =
        |fault: &&Value| ["serious", "critical"].contains(&fault["impact"].as_str().unwrap());
    let found = found.as_array().expect("axe-core returns a list").iter();
    found
        .filter(is_serious)
        .map(|fault| format!("{}: {}", fault["id"], fault["nodes"][0]["html"]))
        .collect()
}
