//! Rejects settings that no configured transport uses, because they would have no effect.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ConfigError;
use super::source::Source;
use bentpipe_transport::Transport;

/// A setting, and the transports that use it.
struct Setting {
    name: &'static str,
    of: &'static [Transport],
}

const fn setting(name: &'static str, of: &'static [Transport]) -> Setting {
    Setting { name, of }
}

const RADIO: &[Transport] = &[Transport::Link];
const DATAGRAMS: &[Transport] = &[Transport::Link, Transport::Masque];
const NOT_HTTP: &[Transport] = &[Transport::Link, Transport::AeroTcp];

/// Keys at the top of `ground.toml`.
const GROUND: &[Setting] = &[
    setting("beam", RADIO),
    setting("aerotcp", &[Transport::AeroTcp]),
    setting("masque", &[Transport::Masque]),
    setting("client", &[Transport::Masque]),
    setting("hub", DATAGRAMS),
    setting("egress", RADIO),
    setting("raw", DATAGRAMS),
];

/// Keys under `[link]` of `ground.toml`.
const GROUND_LINK: &[Setting] = &[
    setting("mtu", NOT_HTTP),
    setting("memory", RADIO),
    setting("dscp", RADIO),
    setting("coding", RADIO),
    setting("learn-bytes", RADIO),
    setting("quic-in-order", RADIO),
    setting("state-file", RADIO),
    setting("total-memory", RADIO),
    setting("session-lifetime", RADIO),
];

/// Keys under each `[[aircraft]]` of `ground.toml`.
const AIRCRAFT: &[Setting] = &[
    setting("mtu", NOT_HTTP),
    setting("memory", RADIO),
    setting("lease", RADIO),
    setting("weight", RADIO),
    setting("floor", RADIO),
    setting("return-rate", RADIO),
];

/// Keys at the top of `air.toml`.
const AIR: &[Setting] = &[setting("raw", DATAGRAMS), setting("hub", RADIO), setting("path", RADIO)];

/// Keys under `[link]` of `air.toml`. `[aerotcp]` is always allowed, because `--transport aerotcp`
/// can select that transport.
const AIR_LINK: &[Setting] = &[
    setting("mtu", NOT_HTTP),
    setting("memory", RADIO),
    setting("dscp", RADIO),
    setting("coding", RADIO),
    setting("learn-bytes", RADIO),
    setting("quic-in-order", RADIO),
    setting("lease", RADIO),
    setting("modem", RADIO),
    setting("state-file", NOT_HTTP),
];

/// Keys under each class of `[classes]`, in both files and in each `[[aircraft]]`.
const CLASS: &[Setting] = &[
    setting("rate", RADIO),
    setting("ceil", RADIO),
    setting("passenger-ceil", RADIO),
    setting("paths", RADIO),
    setting("metered", RADIO),
];

/// Keys under `[status]`: the other transports have no classes, passengers or flows.
const STATUS: &[Setting] = &[setting("detail", RADIO)];

/// Keys under `[preload]`.
const PRELOAD: &[Setting] = &[setting("class", RADIO)];

/// Rejects settings that have no effect at a ground gateway that serves only `served`.
pub fn at_ground(source: &Source<'_>, served: &[Transport]) -> Result<(), ConfigError> {
    let document = document(source)?;
    let tables = [(GROUND, vec![document.get_ref()])].into_iter();
    let tables = tables
        .chain([(GROUND_LINK, tables_at(document.get_ref(), "link"))])
        .chain([(AIRCRAFT, tables_at(document.get_ref(), "aircraft"))])
        .chain([(CLASS, classes(document.get_ref()))])
        .chain([(STATUS, tables_at(document.get_ref(), "status"))]);
    for (settings, tables) in tables {
        let Some((setting, key)) = idle(settings, &tables, served) else { continue };
        let names: Vec<_> = served.iter().map(|transport| transport.name()).collect();
        let why =
            format!("{:?} does nothing: only {} is served", setting.name, names.join(" and "));
        let serve = match setting.of[0] {
            Transport::AeroTcp => "AeroTCP: aerotcp-listen = \"[::]:4501\"",
            Transport::Masque => "HTTP/3: masque-listen = \"[::]:4433\"",
            _ => "the radio link: listen = \"[::]:4500\"",
        };
        let help = format!("leave it out, or serve {serve} under [link]");
        return Err(ConfigError::at(source, Some(key.span()), why, help));
    }
    Ok(())
}

/// Rejects settings that have no effect at an air gateway that uses `transport`. `chosen` is `true`
/// if the transport comes from the command line instead of the file.
pub fn at_air(source: &Source<'_>, transport: Transport, chosen: bool) -> Result<(), ConfigError> {
    let document = document(source)?;
    let (link, classes) = (tables_at(document.get_ref(), "link"), classes(document.get_ref()));
    let status = tables_at(document.get_ref(), "status");
    let preload = tables_at(document.get_ref(), "preload");
    let tables = [
        (AIR, vec![document.get_ref()]),
        (AIR_LINK, link),
        (CLASS, classes),
        (STATUS, status),
        (PRELOAD, preload),
    ];
    let found = tables.iter().find_map(|(settings, tables)| idle(settings, tables, &[transport]));
    let Some((setting, key)) = found else { return Ok(()) };
    let name = transport.name();
    let why = format!("{:?} does nothing: the transport is {name}", setting.name);
    let help = if chosen {
        format!("leave it out, or do without --transport {name}")
    } else {
        "leave it out, or write transport = \"link\"".to_owned()
    };
    Err(ConfigError::at(source, Some(key.span()), why, help))
}

/// Position of `key` in the table `name`.
pub fn place_of(
    source: &Source<'_>,
    name: &str,
    key: &str,
) -> Result<Option<std::ops::Range<usize>>, ConfigError> {
    let document = document(source)?;
    let tables = tables_at(document.get_ref(), name);
    let mut keys = tables.iter().flat_map(|table| table.keys());
    Ok(keys.find(|it| it.get_ref() == key).map(Spanned::span))
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;

/// First setting in the text that no transport in `used` supports.
fn idle<'a, 'i>(
    settings: &'static [Setting],
    tables: &[&'a DeTable<'i>],
    used: &[Transport],
) -> Option<(&'static Setting, &'a Key<'i>)> {
    let keys = tables.iter().flat_map(|table| table.keys());
    let found = keys.filter_map(|key| {
        let setting = settings.iter().find(|setting| setting.name == key.get_ref())?;
        let idle = setting.of.iter().all(|transport| !used.contains(transport));
        idle.then_some((setting, key))
    });
    found.min_by_key(|(_, key)| key.span().start)
}

/// Parsed text with the position of every key and value.
fn document<'a>(source: &Source<'a>) -> Result<Spanned<DeTable<'a>>, ConfigError> {
    DeTable::parse(source.text).map_err(|error| ConfigError::from_toml(source, &error))
}

/// The table called `name`, or all its elements if it is a list.
fn tables_at<'a, 'i>(document: &'a DeTable<'i>, name: &str) -> Vec<&'a DeTable<'i>> {
    match document.get(name).map(Spanned::get_ref) {
        Some(DeValue::Table(table)) => vec![table],
        Some(DeValue::Array(list)) => {
            list.iter().filter_map(|one| one.get_ref().as_table()).collect()
        }
        _ => Vec::new(),
    }
}

/// Tables of all classes, in the whole document.
fn classes<'a, 'i>(document: &'a DeTable<'i>) -> Vec<&'a DeTable<'i>> {
    let of = |table: &'a DeTable<'i>| {
        let classes = tables_at(table, "classes").into_iter();
        classes.flat_map(|classes| classes.values().filter_map(|one| one.get_ref().as_table()))
    };
    of(document).chain(tables_at(document, "aircraft").into_iter().flat_map(of)).collect()
}
