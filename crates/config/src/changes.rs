//! The difference between two configurations of a ground gateway, for a reload.

use std::collections::{BTreeMap, BTreeSet};

use bentpipe_link::PublicKey;

use super::{AircraftConfig, GroundConfig};

/// Maximum number of aircraft that a line names.
const MAX_NAMED: usize = 3;

/// Tables that a reload applies as a whole.
const APPLIED: [&str; 4] = ["aircraft", "beam", "classes", "hosts"];

/// Keys of `[link]` that are defaults of each aircraft, or apply to all sessions.
const APPLIED_LINK: [&str; 6] =
    ["mtu", "memory", "coding", "learn-bytes", "session-lifetime", "total-memory"];

/// Effects of a reload on the fleet, and settings that it cannot change.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Number of new keys.
    pub added: usize,
    /// Number of keys that are gone.
    pub removed: usize,
    /// Number of aircraft with the same key and other settings.
    pub changed: usize,
    /// Settings that wait, one line each.
    pub waiting: Vec<String>,
}

impl GroundConfig {
    /// Compares this configuration, which is in use, with `new`. Returns an error if `new` cannot be
    /// in use before a restart.
    pub fn changes(&self, new: &Self) -> Result<Changes, String> {
        let shared = |config: &Self| {
            config.beam.map(|it| (it.forward.is_some(), it.return_.is_some())).unwrap_or_default()
        };
        if shared(self) != shared(new) {
            return Err(
                "a direction of [beam] begins or ends to be shared, and the leases of all \
                        sessions depend on that: restart the gateway, or leave [beam] as it was"
                    .to_owned(),
            );
        }
        let by_key = |config: &Self| -> BTreeMap<PublicKey, AircraftConfig> {
            config.aircraft.iter().map(|one| (one.key, one.clone())).collect()
        };
        let (before, now) = (by_key(self), by_key(new));
        let both: Vec<_> =
            before.iter().filter_map(|(key, one)| Some((one, now.get(key)?))).collect();
        let mut waiting = self.waiting(new);
        waiting.extend(self.waiting_for_sessions(new, &both));
        Ok(Changes {
            added: now.len() - both.len(),
            removed: before.len() - both.len(),
            changed: both.iter().filter(|(before, now)| before != now).count(),
            waiting,
        })
    }

    /// Notes that `new` is in use as far as a reload can be, so that the next one is compared with
    /// that.
    pub fn adopt(&mut self, new: &Self) {
        self.aircraft = new.aircraft.clone();
        self.beam = new.beam;
        self.link.mtu = new.link.mtu;
        self.link.memory = new.link.memory;
        self.link.coding = new.link.coding;
    }

    /// Settings that wait for a restart.
    fn waiting(&self, new: &Self) -> Vec<String> {
        let waits = |what: String| {
            format!("{what}: the file has another value now, which counts after a restart")
        };
        let mut lines: Vec<String> = differing(&self.written, &new.written)
            .into_iter()
            .filter(|(table, _)| !APPLIED.contains(&table.as_str()))
            .filter(|(table, key)| {
                table != "link" || !key.as_deref().is_some_and(|key| APPLIED_LINK.contains(&key))
            })
            .map(|(table, key)| match key {
                Some(key) => waits(format!("{key} under [{table}]")),
                None => waits(format!("[[{table}]]")),
            })
            .collect();
        if self.link.private_key.public() != new.link.private_key.public() {
            lines.push(
                "the private key of this gateway: the file has another one now, which counts after \
                 a restart"
                    .to_owned(),
            );
        }
        lines
    }

    /// Settings that wait for the next session of their aircraft.
    fn waiting_for_sessions(
        &self,
        new: &Self,
        both: &[(&AircraftConfig, &AircraftConfig)],
    ) -> Vec<String> {
        type Differs<'a> = dyn Fn(&AircraftConfig, &AircraftConfig) -> bool + 'a;
        let mtu = |config: &Self, one: &AircraftConfig| one.mtu.unwrap_or(config.link.mtu);
        let memory = |config: &Self, one: &AircraftConfig| one.memory.unwrap_or(config.link.memory);
        let flows = |one: &AircraftConfig| {
            one.max_flows.saturating_add(one.max_datagram_flows).saturating_add(one.max_ip_flows)
        };
        let settings: [(&str, &Differs<'_>); 5] = [
            ("lease", &|a, b| a.lease != b.lease),
            ("mtu", &|a, b| mtu(self, a) != mtu(new, b)),
            ("memory", &|a, b| memory(self, a) != memory(new, b)),
            ("room for more flows", &|a, b| flows(a) < flows(b)),
            ("coding", &|_, _| self.link.coding != new.link.coding),
        ];
        let line = |(what, differs): (&str, &Differs<'_>)| {
            let whose: Vec<&str> = both
                .iter()
                .filter(|(before, now)| differs(before, now))
                .map(|(_, now)| now.name.as_str())
                .collect();
            let named = whose.iter().take(MAX_NAMED).map(|name| format!("{name:?}"));
            let named = named.collect::<Vec<_>>().join(", ");
            let others = match whose.len().saturating_sub(MAX_NAMED) {
                0 => String::new(),
                more => format!(" and {more} others"),
            };
            (!whose.is_empty())
                .then(|| format!("{what} of {named}{others}: counts from the next session"))
        };
        settings.into_iter().filter_map(line).collect()
    }
}

/// Tables with their keys whose values differ; without a key for an array of tables.
fn differing(before: &toml::Table, now: &toml::Table) -> BTreeSet<(String, Option<String>)> {
    let mut found = BTreeSet::new();
    for name in keys(before, now) {
        let [before, now] = [before, now].map(|it| it.get(&name));
        if before == now {
            continue;
        }
        let tables = [before, now].map(|it| it.map(|it| it.as_table()));
        if tables.contains(&Some(None)) {
            found.insert((name, None));
            continue;
        }
        let empty = toml::Table::new();
        let [before, now] = tables.map(|it| it.flatten().unwrap_or(&empty));
        let differ = keys(before, now).into_iter().filter(|key| before.get(key) != now.get(key));
        found.extend(differ.map(|key| (name.clone(), Some(key))));
    }
    found
}

fn keys(a: &toml::Table, b: &toml::Table) -> BTreeSet<String> {
    a.keys().chain(b.keys()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const OTHER: &str = "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn parse(text: &str) -> GroundConfig {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.key"), KEY).unwrap();
        let link = "private-key-file = 'a.key'\nlisten = '[::]:4500'\n";
        let text = text.replace("[link]\n", &format!("[link]\n{link}"));
        GroundConfig::parse(&folder.path().join("ground.toml"), &text).unwrap()
    }

    fn craft(name: &str, key: &str, more: &str) -> String {
        format!("[[aircraft]]\nname = '{name}'\npublic-key = '{key}'\n{more}\n")
    }

    #[test]
    fn the_same_file_changes_nothing() {
        let config = parse(&format!("[link]\n{}", craft("a", KEY, "rate = '1 Mbit/s'")));
        assert_eq!(config.changes(&config), Ok(Changes::default()));
    }

    #[test]
    fn aircraft_are_told_apart_by_their_keys() {
        let before = parse(&format!("[link]\n{}", craft("a", KEY, "rate = '1 Mbit/s'")));
        let rated = parse(&format!("[link]\n{}", craft("a", KEY, "rate = '2 Mbit/s'")));
        let changes = before.changes(&rated).unwrap();
        assert_eq!((changes.changed, changes.waiting), (1, Vec::new()));
        let keyed = parse(&format!("[link]\n{}", craft("a", OTHER, "rate = '1 Mbit/s'")));
        let changes = before.changes(&keyed).unwrap();
        assert_eq!((changes.added, changes.removed, changes.changed), (1, 1, 0));
    }

    #[test]
    fn each_setting_that_waits_has_a_line() {
        let before = parse(&format!("[link]\n{}", craft("a", KEY, "rate = '1 Mbit/s'")));
        let after = parse(&format!(
            "[link]\nmtu = 1400\ndscp = false\nsession-lifetime = '5 min'\n{}\
             [dial]\nconnect-timeout = '9 s'\n[hosts]\n'a.example' = '192.0.2.1'\n",
            craft("a", KEY, "lease = 'learned'\nrate = '1 Mbit/s'"),
        ));
        let waiting = before.changes(&after).unwrap().waiting;
        let starts = [
            "connect-timeout under [dial]: the file has another value",
            "dscp under [link]: the file has another value",
            "lease of \"a\": counts from the next session",
            "mtu of \"a\": counts from the next session",
        ];
        assert_eq!(waiting.len(), starts.len(), "{waiting:?}");
        for (line, start) in waiting.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
        // What waits for a restart still does at the next reload; sessions are told once.
        let mut in_use = before;
        in_use.adopt(&after);
        assert_eq!(in_use.changes(&after).unwrap().waiting, waiting[..2]);
    }

    #[test]
    fn a_beam_neither_begins_nor_ends_and_its_rate_may_change() {
        let of = |beam: &str| parse(&format!("[link]\n{beam}{}", craft("a", KEY, "")));
        let (none, one) = (of(""), of("[beam]\nforward = '8 Mbit/s'\n"));
        assert!(none.changes(&one).unwrap_err().contains("restart the gateway"));
        assert!(one.changes(&none).is_err());
        let faster = of("[beam]\nforward = '9 Mbit/s'\n");
        assert_eq!(one.changes(&faster), Ok(Changes::default()));
    }
}
