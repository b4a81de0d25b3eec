//! Texts of the page, each for an enabled feature.

use bentpipe_config::{AirConfig, Detail, Site};

const SPLIT: &str = "<p><strong>It fetches whole pages ahead.</strong> When you open a page over \
unencrypted HTTP{or_ours} and your browser sends no login and no cookie with it, the gateway on the ground \
reads the page as it comes, finds the pictures and style sheets that it needs, and sends them along before \
your browser asks. It runs no scripts and shows no website who you are. What your browser does not ask for \
is thrown away. What it asks for itself over unencrypted HTTP{or_ours} is shortened for the way to the ground, and \
reaches the website whole.</p>";

const DNS: &str = "<p><strong>It answers names.</strong> Before your device can open a website it asks which \
address the name has. That question is answered on resolver{whoever}. Encrypted questions to a resolver of your \
own choice pass through as they are.</p>";

const INSTANT: &str = "<p><strong>It answers some names before it knows them</strong> ({pool}), with an address \
that works on resolver alone; the gateway on the ground then connects to the name.</p>";

const CACHE: &str = "<p><strong>Copies of public files</strong> that arrive over unencrypted HTTP (addresses \
that begin with <code>http://</code>){and_ours}, so that the next passenger who asks gets them at once. Only \
what a website lets everybody have is kept. Answers that set a cookie, that belong to a login, or that the \
website calls private are never kept, and neither is anything you send.</p>\n\
<p>Your browser shows where an answer came from: a copy carries the header <code>Cache-Status: bentpipe; \
hit</code>. Reloading the page asks the website again.</p>";

const PORTAL: &str = "<p><strong>What the operator has chosen for everybody</strong>: pages and films that \
were fetched at night and are here at once.</p>";

const NAMES: &str = "<p><strong>Answers to names</strong>, so that the next one who asks gets them at once. \
Who asked is not kept.</p>";

const INSTANT_KEPT: &str =
    "<p><strong>Which name each stand-in address means</strong>, and not for whom.</p>";

const SEES: &str = "<p>It sees which address each connection goes to, and the name that it begins with, as \
every network does. It needs that to carry it.</p>";

const COUNTS: &str =
    "<p>It counts how much each device sends and receives on each day, not what.</p>";

const SHOWS_DEVICES: &str = "<p>It shows its operator which devices use the link most at the moment. \
That is kept for some seconds.</p>";

const SHOWS_FLOWS: &str = "<p>It shows its operator which devices use the link most at the moment, and which \
servers they are connected to. That is kept for some seconds.</p>";

const NO_COPIES: &str = "<li>Use <code>https://</code> addresses. Nearly all websites have them, and browsers \
can be told to use nothing else. Of these nothing is kept{but_ours}.</li>";

const OWN_RESOLVER: &str = "<li>Let your device ask its names encrypted, of a resolver that you choose: \u{201c}Private DNS\u{201d} or \
\u{201c}Secure DNS\u{201d} in its settings.</li>";

/// Services beyond carrying traffic.
pub fn services(config: &AirConfig) -> String {
    let mut told = Vec::new();
    if config.split_http.is_some() {
        let read = names(config, |site| site.split_http);
        let ours = read.map(|names| format!(", or of the operator\u{2019}s own ({names}),"));
        told.push(SPLIT.replace("{or_ours}", &ours.unwrap_or_default()));
    }
    if let Some(dns) = &config.dns {
        let intercepts = dns.intercept && config.listen.tproxy.is_some();
        let whoever = if intercepts { ", whichever resolver your device asks" } else { "" };
        told.push(DNS.replace("{whoever}", whoever));
        if let Some(pool) = &dns.instant_names {
            told.push(INSTANT.replace("{pool}", &pool.to_string()));
        }
    }
    told.join("\n")
}

/// Data of passengers stored on board.
pub fn kept(config: &AirConfig) -> String {
    let mut told = Vec::new();
    if config.http_cache.is_some() {
        let ours = match names(config, |_| true) {
            Some(names) => format!(" or from the operator\u{2019}s own pages ({names})"),
            None => String::new(),
        };
        told.push(CACHE.replace("{and_ours}", &ours));
    }
    if config.preload.is_some() {
        told.push(PORTAL.to_owned());
    }
    if let Some(dns) = &config.dns {
        told.push(NAMES.to_owned());
        if dns.instant_names.is_some() {
            told.push(INSTANT_KEPT.to_owned());
        }
    }
    if told.is_empty() {
        return "<p>Nothing.</p>".to_owned();
    }
    told.join("\n")
}

/// Knowledge about passengers.
pub fn known(config: &AirConfig) -> String {
    let mut told = vec![SEES];
    if config.usage.is_some() {
        told.push(COUNTS);
    }
    match config.status.as_ref().map(|status| status.detail) {
        Some(Detail::Passengers) => told.push(SHOWS_DEVICES),
        Some(Detail::Flows) => told.push(SHOWS_FLOWS),
        Some(Detail::Classes) | None => {}
    }
    told.join("\n")
}

/// Encrypted connections that are terminated here, and their other readers.
pub fn except(config: &AirConfig) -> String {
    let but = |names| {
        format!(
            ", but those to the operator\u{2019}s own pages ({names}), whose certificates it has"
        )
    };
    let ours = names(config, |_| true).map(but).unwrap_or_default();
    if config.split_http.is_none() {
        return ours;
    }
    let too =
        |names| format!("; pages of {names} the operator\u{2019}s gateway on the ground reads too");
    ours + &names(config, |site| site.split_http).map(too).unwrap_or_default()
}

/// Instructions for opting out.
pub fn refuse(config: &AirConfig) -> String {
    let mut told = Vec::new();
    if config.http_cache.is_some() || config.split_http.is_some() {
        let ours =
            if config.sites.is_empty() { "" } else { ", but of the operator\u{2019}s own pages" };
        told.push(NO_COPIES.replace("{but_ours}", ours));
    }
    if config.dns.is_some() {
        told.push(OWN_RESOLVER.to_owned());
    }
    if told.is_empty() {
        return String::new();
    }
    format!("\n<h2>If you want none of this</h2>\n<ul>\n{}\n</ul>\n", told.join("\n"))
}

/// Contact for questions.
pub fn ask(config: &AirConfig) -> String {
    let contact = config.page.as_ref().and_then(|page| page.contact.as_deref());
    let heading = "<h2>Whom to ask</h2>";
    contact.map(|contact| format!("\n{heading}\n<p>{}</p>\n", escaped(contact))).unwrap_or_default()
}

/// Returns the names of the selected sites, which consist of letters, digits, hyphens and dots.
fn names(config: &AirConfig, meant: impl Fn(&Site) -> bool) -> Option<String> {
    let sites = config.sites.iter().filter(|site| meant(site));
    let names: Vec<_> = sites.map(|site| site.name.as_str()).collect();
    (!names.is_empty()).then(|| format!("<span class=\"names\">{}</span>", names.join(", ")))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::Page;
    use super::*;
    use std::path::Path;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn page(more: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("a.key", KEY);
        let made = rcgen::generate_simple_self_signed(vec!["portal.example".to_owned()]).unwrap();
        write("portal.pem", &made.cert.pem());
        write("portal.key", &made.signing_key.serialize_pem());
        let text = format!(
            "{more}\n[link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:4500\"\n\
             peer-public-key = \"{KEY}\"\nrate = \"1 Mbit/s\"\n\
             [listen]\ntproxy = {{ port = 1081, interfaces = [\"cabin0\"] }}\n"
        );
        let config = AirConfig::parse(&folder.path().join(Path::new("air.toml")), &text).unwrap();
        let Page(page) = Page::new(&config);
        String::from_utf8(page.to_vec()).unwrap()
    }

    /// Text that appears only if `table` is configured.
    const PARTS: [(&str, &str); 8] = [
        ("[http-cache]", "Copies of public files"),
        ("[split-http]", "It fetches whole pages ahead."),
        ("[dns]\ncache-file = \"names\"", "It answers names."),
        ("[dns.instant-names]\nv4 = \"100.64.0.0/10\"", "100.64.0.0/10"),
        ("[preload]\nmanifest = \"a\"", "chosen for everybody"),
        (
            "[[site]]\nname = \"portal.example\"\ncertificate = \"portal.pem\"\nkey = \"portal.key\"\nsplit-http = true\norigin = \"http://10.0.0.1\"",
            "portal.example",
        ),
        (
            "[status]\nfile = \"status.json\"\ndetail = \"flows\"",
            "which servers they are connected to",
        ),
        (
            "[page]\nlisten = \"127.0.0.1:0\"\ncontact = \"<crew> & co\"",
            "<p>&lt;crew&gt; &amp; co</p>",
        ),
    ];

    #[test]
    fn it_tells_of_what_is_switched_on_and_of_nothing_else() {
        let none = page("");
        assert!(none.contains("<p>Nothing.</p>") && !none.contains("If you want none of this"));
        for (table, says) in PARTS {
            assert!(!none.contains(says), "{table}");
        }
        let all = PARTS.map(|(table, _)| table).join("\n");
        let all = page(&all);
        for (table, says) in PARTS {
            assert!(all.contains(says), "{table}: {all}");
        }
        assert!(all.contains("HTTP, or of the operator\u{2019}s own (<span"), "{all}");
        assert!(all.contains("gateway on the ground reads too"), "{all}");
        for page in [none, all] {
            assert_eq!(page.matches('{').count(), FRAME_BRACES, "{page}");
        }
    }

    /// Braces of the style sheet; more would indicate a placeholder that was not replaced.
    const FRAME_BRACES: usize = 14;

    #[test]
    fn passengers_are_told_of_records() {
        assert!(page("[usage]\ndirectory = \".\"").contains("how much each device sends"));
        let devices = page("[status]\nfile = \"a\"\ndetail = \"passengers\"");
        assert!(devices.contains("which devices use the link most at the moment. "));
        let classes = page("[status]\nfile = \"a\"");
        assert!(!classes.contains("which devices"));
    }
}
