//! Bridges whose packets the kernel hands to the firewall too early.

use std::fs;
use std::path::Path;

/// Directory of the settings of `br_netfilter`, a kernel module that Docker loads.
const SETTINGS: &str = "/proc/sys/net/bridge";

/// Returns what to do if connections that come in by `interface` cannot be intercepted: the kernel
/// would run the rules on the bridge's ports, where no socket can get the packet.
pub fn note(interface: &str) -> Option<String> {
    note_of(interface, Path::new("/sys/class/net"), Path::new(SETTINGS))
}

fn note_of(interface: &str, interfaces: &Path, settings: &Path) -> Option<String> {
    if !interfaces.join(interface).join("bridge").exists() {
        return None;
    }
    let is_on = |name: &&&str| {
        fs::read_to_string(settings.join(name)).is_ok_and(|setting| setting.trim() != "0")
    };
    let on: Vec<String> = ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables"]
        .iter()
        .filter(is_on)
        .map(|name| format!("sysctl net.bridge.{name}=0"))
        .collect();
    (!on.is_empty()).then(|| {
        format!(
            "connections from the bridge {interface} are lost while br_netfilter is on: {}",
            on.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_under_br_netfilter_is_told() {
        let [interfaces, settings] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        fs::create_dir_all(interfaces.path().join("br-lan/bridge")).unwrap();
        fs::create_dir_all(interfaces.path().join("eth1")).unwrap();
        let note = |interface| note_of(interface, interfaces.path(), settings.path());
        assert_eq!(note("br-lan"), None, "there is no such module");
        let set = |value| {
            fs::write(settings.path().join("bridge-nf-call-iptables"), value).unwrap();
        };
        set("1\n");
        let said = note("br-lan").unwrap();
        assert!(said.ends_with(": sysctl net.bridge.bridge-nf-call-iptables=0"), "{said}");
        assert_eq!(note("eth1"), None);
        set("0\n");
        assert_eq!(note("br-lan"), None);
    }
}
