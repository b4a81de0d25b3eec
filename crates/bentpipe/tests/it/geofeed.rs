//! `bentpipe geofeed`, as a process.

use std::fs;
use std::process::Command;

/// Configuration of a ground with `sources`.
fn geofeed(sources: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let (key, file) = (folder.path().join("ground.key"), folder.path().join("ground.toml"));
    let program = env!("CARGO_BIN_EXE_bentpipe");
    let made = Command::new(program).arg("keys").arg("--out").arg(&key).output().unwrap();
    assert!(made.status.success());
    let text = format!(
        "[link]\nprivate-key-file = \"ground.key\"\nlisten = \"[::]:4500\"\n\
         [dial]\nsources = [{sources}]\n"
    );
    fs::write(&file, text).unwrap();
    let output = Command::new(program).arg("geofeed").arg(&file).output().unwrap();
    let said = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn places_are_printed_as_rfc_8805_has_them() {
    let sources = "\"192.0.2.1\", \
                   { address = \"2001:db8::7\", country = \"US\", region = \"US-CA\" }, \
                   { address = \"192.0.2.2\", country = \"FR\", city = \"Paris\" }";
    let feed = "# prefix,country,region,city,\n\
                192.0.2.2/32,FR,,Paris,\n\
                2001:db8::7/128,US,US-CA,,\n";
    assert_eq!(geofeed(sources), (true, feed.to_owned()));
}

#[test]
fn a_ground_without_places_has_no_feed() {
    let (succeeds, said) = geofeed("\"192.0.2.1\"");
    assert!(!succeeds && said.contains("no address of sources under [dial] has a place"), "{said}");
}
