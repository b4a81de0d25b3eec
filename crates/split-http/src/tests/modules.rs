//! Modules that import modules.

use super::*;

const SCRIPT: &[(&str, &str)] = &[("content-type", "text/javascript; charset=utf-8")];

#[tokio::test(start_paused = true)]
async fn imports_of_modules_are_pushed_with_the_page() {
    let page = "<script type=module src=main.js></script>\
                <script type=module>import './inline.js'; import 'bare';</script>\
                <script src=classic.js></script>\
                <link rel=modulepreload href=preloaded.js>";
    let site = Site::default()
        .with("/", HTML, page)
        .with("/main.js", SCRIPT, "import {a} from './lib/a.js';import 'http://cdn.test/x.js'")
        .with("/lib/a.js", SCRIPT, "export * from './b.js'")
        .with("/lib/b.js", SCRIPT, "export const b = 1;")
        .with("/inline.js", SCRIPT, "")
        .with("/preloaded.js", SCRIPT, "import '/deep.js'")
        .with("/deep.js", &[("content-type", "text/plain")], "import '/no.js'")
        // A classic script has no imports.
        .with("/classic.js", SCRIPT, "import './no.js'");
    let bench = bench(site);
    whole(bench.page("/").await.unwrap().1).await.unwrap();
    let all =
        ["main.js", "lib/a.js", "lib/b.js", "inline.js", "preloaded.js", "deep.js", "classic.js"];
    for path in all {
        assert!(bench.object(path).await.is_some(), "{path}");
    }
    assert_eq!(bench.site.asked().len(), 1 + all.len());
    let referers = bench.site.referers.lock().clone();
    let told = |path: &str| referers.iter().find(|(of, _)| of == path).map(|(_, told)| &told[..]);
    assert_eq!(told("/lib/b.js"), Some("http://site.test/lib/a.js"), "the module imports it");
    assert_eq!(told("/inline.js"), Some("http://site.test/"));
}
