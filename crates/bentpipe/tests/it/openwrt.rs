//! The package for OpenWrt, with the shell, awk and tar of BusyBox: its translation of UCI, its service,
//! and its contents. OpenWrt's own part of a service (`/etc/rc.common`, procd) is replaced by a script that
//! prints what the service asks of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Settings of a village: tables, a sub-table, lists, and a table that may be repeated.
const VILLAGE: &str = r#"
package bentpipe

config link 'link'
	option private_key_file '/etc/bentpipe/air.key'
	option peer 'ground.example.net:4500'
	option peer_public_key 'AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='
	option learn_bytes "0 B"  # the plan is metered
	option keep_flows 'true'

config listen 'tproxy'
	option port '1081'
	list interfaces 'br-lan'
	list interfaces 'eth1.30'

config rule
	option name 'public services'
	list domain 'example.gov'
	list domain 'clinic.example'
	option class 'assured'

config rule
	option name 'the school'\''s "updates" C:\x'
	list domain 'update.example'
	option class 'lower-effort'

config classes 'lower_effort'
	option rate '0 kbit/s'
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn busybox(arguments: &[&str]) -> Output {
    Command::new("busybox").args(arguments).output().expect("scripts/setup.sh installs BusyBox")
}

/// Result of the translation: TOML, or the message.
fn translated(uci: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bentpipe");
    fs::write(&file, uci).unwrap();
    let program = root().join("deploy/openwrt/usr/lib/bentpipe/uci-to-toml");
    let output = busybox(&["awk", "-f", program.to_str().unwrap(), file.to_str().unwrap()]);
    let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    if output.status.success() {
        return Ok(out);
    }
    assert_eq!(out, "", "half of a configuration");
    Err(err.replace(file.to_str().unwrap(), "bentpipe").trim_end().to_owned())
}

#[test]
fn uci_becomes_the_same_settings_as_toml() {
    let toml = translated(VILLAGE).unwrap();
    let found: toml::Table = toml.parse().unwrap();
    let expected = toml::toml! {
        [link]
        private-key-file = "/etc/bentpipe/air.key"
        peer = "ground.example.net:4500"
        peer-public-key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
        learn-bytes = "0 B"
        keep-flows = true
        [listen]
        tproxy = { port = 1081, interfaces = ["br-lan", "eth1.30"] }
        [[rule]]
        name = "public services"
        domain = ["example.gov", "clinic.example"]
        class = "assured"
        [[rule]]
        name = "the school's \"updates\" C:\\x"
        domain = ["update.example"]
        class = "lower-effort"
        [classes.lower-effort]
        rate = "0 kbit/s"
    };
    assert_eq!(found, expected);
}

#[test]
fn an_error_in_uci_names_its_line() {
    for (uci, message) in [
        ("option peer 'x'", "bentpipe:1: a section has to begin before: config link 'link'"),
        (
            "config link 'link'\n\toption peer 'x",
            "bentpipe:2: the quote ' is not closed in this line",
        ),
        ("config link-1", "bentpipe:1: a name has letters, digits and _ only: link-1"),
        (
            "config link 'link'\n\toption peer",
            "bentpipe:2: write config TYPE ['NAME'], option NAME 'VALUE' or list NAME 'VALUE'",
        ),
    ] {
        assert_eq!(translated(uci), Err(message.to_owned()), "{uci}");
    }
}

/// A copy of the package's files, in which the service finds them and a program that only notes its
/// arguments.
struct Router(tempfile::TempDir);

impl Router {
    fn new(uci: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        let from = format!("{}/deploy/openwrt/.", root().display());
        assert!(busybox(&["cp", "-a", &from, &path]).status.success());
        fs::create_dir_all(folder.path().join("etc/bentpipe")).unwrap();
        fs::write(folder.path().join("etc/config/bentpipe"), uci).unwrap();
        let service = folder.path().join("etc/init.d/bentpipe");
        let text = fs::read_to_string(&service).unwrap();
        let text = text
            .replace("=/etc", &format!("={path}/etc"))
            .replace("=/var", &format!("={path}/var"))
            .replace("-f /usr", &format!("-f {path}/usr"))
            .replace("=/usr/bin/bentpipe", &format!("={}", env!("CARGO_BIN_EXE_bentpipe")));
        fs::write(service, text).unwrap();
        Self(folder)
    }

    /// Runs a function of the service. Returns what it asks of procd and what it logs, without the
    /// folder's name.
    fn call(&self, function: &str) -> (bool, String) {
        let script = format!(
            "for name in open_instance set_param close_instance add_reload_trigger; do\n\
             eval \"procd_$name() {{ echo $name \\\"\\$@\\\"; }}\"\n\
             done\n\
             logger() {{ echo \"log: $6\"; }}\n\
             start() {{ start_service; }}\n\
             . {}/etc/init.d/bentpipe\n\
             {function}",
            self.0.path().display()
        );
        let output = busybox(&["ash", "-uc", &script]);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap().replace(self.0.path().to_str().unwrap(), "");
        (output.status.success(), said.replace(env!("CARGO_BIN_EXE_bentpipe"), "bentpipe"))
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.path().join(file), text).unwrap();
    }
}

/// UCI whose key is in the router's folder.
fn with_key(router: &Router) -> String {
    let key = router.0.path().join("etc/bentpipe/air.key");
    let mut keys = Command::new(env!("CARGO_BIN_EXE_bentpipe"));
    assert!(keys.args(["keys", "--out"]).arg(&key).output().unwrap().status.success());
    VILLAGE.replace("/etc/bentpipe/air.key", key.to_str().unwrap())
}

fn with_other_port(router: &Router) -> String {
    let key = router.0.path().join("etc/bentpipe/air.key");
    let text = VILLAGE.replace("/etc/bentpipe/air.key", key.to_str().unwrap());
    text.replace("option port '1081'", "option port '1082'")
}

#[test]
fn the_service_runs_what_uci_says() {
    let router = Router::new("");
    router.write("etc/config/bentpipe", &with_key(&router));
    let (good, asked) = router.call("start_service");
    assert!(good, "{asked}");
    let lines: Vec<&str> = asked.lines().collect();
    assert_eq!(lines[0], "open_instance air");
    assert_eq!(lines[1], "set_param command bentpipe air --config /var/run/bentpipe/air.toml");
    assert!(lines.contains(&"set_param reload_signal HUP"), "{asked}");
    assert_eq!(lines.last(), Some(&"close_instance"));
    // A file of `bentpipe init air` goes before it.
    let toml = fs::read(router.0.path().join("var/run/bentpipe/air.toml")).unwrap();
    fs::write(router.0.path().join("etc/bentpipe/air.toml"), toml).unwrap();
    let (good, asked) = router.call("start_service");
    assert!(
        good && asked.contains("command bentpipe air --config /etc/bentpipe/air.toml\n"),
        "{asked}"
    );
}

#[test]
fn the_service_starts_nothing_on_a_mistake_and_logs_it() {
    let router = Router::new("config link 'link'\n\toption peer 'a\n");
    let (good, said) = router.call("start_service");
    assert!(!good);
    assert_eq!(said, "log: /etc/config/bentpipe:2: the quote ' is not closed in this line\n");
    // The configuration of a new package has no peer yet.
    let new = fs::read_to_string(root().join("deploy/openwrt/etc/config/bentpipe")).unwrap();
    router.write("etc/config/bentpipe", &new);
    let (good, said) = router.call("start_service");
    let message = "log: /var/run/bentpipe/air.toml.new, line 2: the setting \"peer\" is missing\n";
    assert!(!good && said.starts_with(message), "{said}");
    assert!(!said.contains("open_instance"), "{said}");
}

#[test]
fn a_reload_with_a_mistake_leaves_the_gateway_that_runs() {
    let router = Router::new("");
    router.write("etc/config/bentpipe", &with_key(&router));
    assert!(router.call("start_service").0);
    let translated = || fs::read(router.0.path().join("var/run/bentpipe/air.toml")).unwrap();
    let before = translated();
    router.write("etc/config/bentpipe", "config link 'link'\n\toption peer 'a\n");
    let (good, said) = router.call("reload_service");
    assert!(!good && !said.contains("open_instance"), "procd would end the gateway: {said}");
    assert_eq!(translated(), before, "a running gateway reads this at the next SIGHUP");
    router.write("etc/config/bentpipe", &with_other_port(&router));
    let (good, said) = router.call("reload_service");
    assert!(good && said.contains("open_instance air\n"), "{said}");
    assert_ne!(translated(), before);
}

#[test]
fn the_package_has_its_files_and_refuses_another_machine() {
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().to_str().unwrap();
    let script = root().join("scripts/ipk.sh");
    let built =
        Command::new(script).args(["/bin/true", "pdp11", "1.2.3", folder]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let unpack = "mkdir control data && tar -xzf bentpipe_1.2.3-1_pdp11.ipk && \
                  tar -C control -xzf control.tar.gz && tar -C data -xzf data.tar.gz && cat debian-binary";
    let mut shell = Command::new("busybox");
    shell.args(["ash", "-ec", unpack]).current_dir(out.path());
    assert_eq!(shell.output().unwrap().stdout, b"2.0\n");
    let file = |name: &str| out.path().join(name);
    for name in ["usr/bin/bentpipe", "etc/init.d/bentpipe", "usr/lib/bentpipe/uci-to-toml"] {
        assert!(file("data").join(name).is_file(), "{name}");
    }
    let control = fs::read_to_string(file("control/control")).unwrap();
    assert!(control.contains("Package: bentpipe\nVersion: 1.2.3-1\n"), "{control}");
    let conffiles = fs::read_to_string(file("control/conffiles")).unwrap();
    assert_eq!(conffiles, "/etc/config/bentpipe\n/etc/bentpipe/\n");
    let refused = busybox(&["env", "IPKG_INSTROOT=", file("control/preinst").to_str().unwrap()]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("this package is for pdp11"), "{said}");
}
