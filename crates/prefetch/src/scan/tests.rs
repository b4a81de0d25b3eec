use super::*;
use proptest::prelude::*;

fn html(page: &str) -> Vec<Item> {
    in_pieces(page.as_bytes(), &[])
}

/// Scans `page` in pieces, cut at `cuts`.
fn in_pieces(page: &[u8], cuts: &[usize]) -> Vec<Item> {
    let mut items = Vec::new();
    let mut scanner = HtmlScanner::new(&["image/webp"]);
    let mut from = 0;
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (page.len() + 1)).collect();
    cuts.sort_unstable();
    for cut in cuts.into_iter().chain([page.len()]) {
        scanner.push(&page[from..cut], &mut |item| items.push(item));
        from = cut;
    }
    scanner.finish(&mut |item| items.push(item));
    items
}

fn css(sheet: &str) -> Vec<ObjectRef> {
    let mut found = Vec::new();
    let mut scanner = CssScanner::default();
    scanner.push(sheet.as_bytes(), &mut |object| found.push(object));
    scanner.finish(&mut |object| found.push(object));
    found
}

/// Lists objects as `kind urgency url`.
fn shown(items: &[Item]) -> Vec<String> {
    let show = |item: &Item| match item {
        Item::Base(url) => format!("base {url}"),
        Item::Cookie => "cookie".to_owned(),
        Item::Object(ObjectRef { url, kind, urgency, .. }) => {
            format!("{kind:?} {} {url}", urgency.level())
        }
    };
    items.iter().map(show).collect()
}

fn of(page: &str) -> Vec<String> {
    shown(&html(page))
}

fn of_css(sheet: &str) -> Vec<String> {
    shown(&css(sheet).into_iter().map(Item::Object).collect::<Vec<_>>())
}

const PAGE: &str = r##"<!DOCTYPE html PUBLIC "-//W3C//DTD" "x"><html><head>
<!-- <img src="comment.png"> --><base href="/base/"><base href="/second/">
<link rel=stylesheet href=a.css?x=1&amp;y=2><link rel="alternate stylesheet" href=alt.css>
<link rel="stylesheet" media="print" href="print.css"><link rel="shortcut icon" href="i.ico">
<link rel=preload as=font href="f.woff2" crossorigin><link rel=preload as=fetch href=data.json>
<link rel="preload" as="image" href="big.jpg" imagesrcset="w.jpg 1280w, v.jpg 2000w" fetchpriority=high>
<link rel=modulepreload href=m.js><link rel=canonical href=https://elsewhere/>
<script src="block.js"></script><script async src="later.js"></script>
<script>var html = "<img src='in-script.png'>"; if (a<b && c>d) { x = "</scr" + "ipt>" }</script>
<script type="application/json" src="no.json"></script><script nomodule src=old.js></script>
<style>@import "imported.css"; body { background: url(bg.png) }</style>
</head><body><noscript><img src=never.png></noscript><textarea><img src=never.png></textarea>
<template><img src=never.png></template>
<img src="plain.png"><img loading=lazy src=never.png><IMG SRC='upper.png' src=second.png>
<img srcset="one.jpg 1x, two.jpg 2x" src=plain.jpg><img src="#"><img src="data:image/png;base64,AA==">
<picture><source type="image/avif" srcset=a.avif><source type="image/webp" srcset="b.webp">
<img src=never.jpg></picture><img src=after.jpg>
<picture><source media="(min-width: 600px)" srcset=never.jpg><img src=never.jpg></picture>
<video poster=poster.jpg src=never.mp4></video><input type=image src=button.png>
<svg><image href="in.svg"/></svg><div style="background:url(&quot;style.png&quot;)">&notin; &amp</div>
<script src=end.js></script><img src="unfinished"##;

#[test]
fn a_page_yields_the_requests_of_a_browser() {
    assert_eq!(
        of(PAGE),
        [
            "base /base/",
            "Style 1 a.css?x=1&y=2",
            "Icon 7 i.ico",
            "Font 4 f.woff2",
            "Image 4 w.jpg",
            "Module 3 m.js",
            "Script 2 block.js",
            "Script 3 later.js",
            "Style 1 imported.css",
            "Image 5 bg.png",
            "Image 5 plain.png",
            "Image 5 upper.png",
            "Image 5 one.jpg",
            "Image 5 b.webp",
            "Image 5 after.jpg",
            "Image 5 poster.jpg",
            "Image 5 button.png",
            "Image 5 in.svg",
            "Image 5 style.png",
            "Script 3 end.js",
        ]
    );
}

#[test]
fn a_pictures_source_gets_the_attributes_of_its_img() {
    let picture = |img: &str| {
        let page = format!("<picture><source srcset=a.png>{img}</picture><img src=b.png>");
        of(&page)
    };
    assert_eq!(picture("<img src=c.png fetchpriority=high>"), ["Image 4 a.png", "Image 5 b.png"]);
    assert_eq!(picture("<img src=c.png loading=lazy>"), ["Image 5 b.png"]);
    assert_eq!(picture(""), ["Image 5 b.png"], "nothing is shown without one");
}

#[test]
fn referrer_policies_are_reported_with_objects() {
    let page = "<img src=a><meta name=Referrer content=no-referrer><img src=b>\
                <script src=c referrerpolicy=origin></script><p style=\"x: url(d)\">\
                <picture><source srcset=e><img referrerpolicy=same-origin></picture>\
                <style>x { y: url(f) }</style><meta name=referrer content=nonsense><img src=g>\
                <template><meta name=referrer content=unsafe-url></template>\
                <img src=h referrerpolicy=nonsense><meta name=referrer content=always><img src=i>";
    use ReferrerPolicy::{NoReferrer, Origin, SameOrigin, UnsafeUrl};
    let told: Vec<_> = html(page)
        .into_iter()
        .map(|item| match item {
            Item::Object(ObjectRef { url, referrer, .. }) => (url, referrer),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        ("a", None),
        ("b", Some(NoReferrer)),
        ("c", Some(Origin)),
        ("d", Some(NoReferrer)),
        ("e", Some(SameOrigin)),
        ("f", Some(NoReferrer)),
        ("g", Some(NoReferrer)),
        ("h", Some(NoReferrer)),
        ("i", Some(UnsafeUrl)),
    ];
    assert_eq!(told, expected.map(|(url, policy)| (url.to_owned(), policy)));
}

#[test]
fn a_style_sheet_yields_its_imports_fonts_and_images() {
    let sheet = r#"@charset "utf-8"; @import url("x.css") screen; @import 'y.css';
@namespace url(http://www.w3.org/1999/xhtml);
/* url(comment.png) **/ a::before { content: "url(string.png)"; background: URL( bare.png ) }
@font-face { font-family: F; src: url(f.woff2) format("woff2"), url(f.ttf); }
@font-face { src: url('latin.woff2'); unicode-range: U+0000-00FF, U+0131; }
@font-face { src: url('greek.woff2'); unicode-range: U+0370-03FF }
@media print { body { background: url(paper.png) } }
@media screen, print { b { background: url(both.png) } }
@media not print { b { background: url(not.png) } }
b { cursor: url(hand.cur), auto; background: url("a\)b\000020c.png"), url(#id), url(data:x) }
c { background: url( "spaced.png" ) ; d: url(broken"#;
    assert_eq!(
        of_css(sheet),
        [
            "Style 1 x.css",
            "Style 1 y.css",
            "Image 5 bare.png",
            "Font 4 f.woff2",
            "Font 4 latin.woff2",
            "Image 5 both.png",
            "Image 5 not.png",
            "Image 5 a)b c.png",
            "Image 5 spaced.png",
            "Image 5 broken",
        ]
    );
}

#[test]
fn a_long_script_is_scanned_in_linear_time() {
    let page = format!("<script>{}</script><img src=x.png>", "a<b&&".repeat(100_000));
    assert_eq!(of(&page), ["Image 5 x.png"]);
    let cuts: Vec<usize> = (0..page.len()).step_by(1400).collect();
    assert_eq!(shown(&in_pieces(page.as_bytes(), &cuts)), ["Image 5 x.png"]);
}

#[test]
fn only_too_long_references_are_left_out() {
    let long = "x".repeat(MAX_URL_BYTES + 1);
    let huge = "y".repeat(100_000);
    let page = format!(
        "<img src={long}><img alt={huge} src=a.png><{huge} src=b.png><img style=\"{huge}\" src=c.png>\
         <style>a {{ b: url({long}); c: url(d.png) }}</style>"
    );
    assert_eq!(of(&page), ["Image 5 a.png", "Image 5 c.png", "Image 5 d.png"]);
}

#[test]
fn an_endless_token_ends_the_scan() {
    let comment =
        |bytes: usize| format!("<img src=a.png><!-->{}--><img src=b.png>", "<b>".repeat(bytes / 3));
    let found = |page: &str| {
        let cuts: Vec<usize> = (0..page.len()).step_by(1000).collect();
        shown(&in_pieces(page.as_bytes(), &cuts))
    };
    assert_eq!(found(&comment(300)).len(), 2);
    let long =
        format!("<img src=a.png><img src=\"{}\"><img src=b.png>", "x".repeat(MAX_TOKEN_BYTES));
    assert_eq!(found(&long), ["Image 5 a.png"]);
}

#[test]
fn deep_nesting_needs_no_memory() {
    let deep = |tag: &str| tag.repeat(100_000);
    let page = format!("{}<img src=a.png>", deep("<div><p><picture><svg><style></style>"));
    assert_eq!(of(&page), ["Image 5 a.png"]);
    let (open, closed) = (deep("<template>"), deep("</template>"));
    let page = format!("{open}<img src=hidden.png>{closed}{closed}<img src=b.png>");
    assert_eq!(of(&page), ["Image 5 b.png"]);
    let sheet = format!("{}{} x {{ y: url(c.png) }}", deep("@media all {"), deep("}"));
    assert_eq!(of_css(&sheet), ["Image 5 c.png"]);
}

#[test]
fn a_million_attributes_and_links_are_read_in_linear_time() {
    let page = format!("<img {} src=a.png>", "x=1 ".repeat(200_000));
    assert_eq!(of(&page), ["Image 5 a.png"]);
    let link = "<img src=a>";
    assert_eq!(of(&link.repeat(1_000_000)).len(), MAX_SCANNED_BYTES / link.len());
    // A `data:` URL is not a reference, however long, in a tag, a set or a style.
    let data = format!("data:image/png;base64,{}", "A".repeat(100_000));
    let page = format!(
        "<img src=\"{data}\"><img srcset=\"{data} 1x\"><p style=\"x: url({data})\"><img src=DATA:,x>"
    );
    assert_eq!(of(&page), Vec::<String>::new());
}

#[test]
fn bytes_beyond_the_limit_are_not_scanned() {
    let page = format!("{}<img src=far.png>", " ".repeat(MAX_SCANNED_BYTES));
    assert_eq!(of(&page), Vec::<String>::new());
}

/// Fragments of pages, in any order.
fn soup() -> impl Strategy<Value = String> {
    let bits = prop::sample::select(vec![
        "<",
        "<!",
        "<!--",
        "-->",
        "--",
        "</",
        ">",
        "\"",
        "'",
        "=",
        " ",
        "\r\n",
        "&amp;",
        "&",
        "&notit;",
        "&#x41;",
        "<script",
        "</script",
        "<style>",
        "</style>",
        "url(",
        ")",
        "@import ",
        "{",
        "}",
        ";",
        "<img src=",
        "a.png",
        "srcset",
        "<link rel=stylesheet href=",
        "<!DOCTYPE html",
        "<![CDATA[",
        "]]>",
        "<base href=x>",
        "\\",
        "@font-face",
        "src:",
        "é",
        "\0",
        "/",
        "<title>",
        "</title>",
        "x",
    ]);
    prop::collection::vec(bits, 0..60).prop_map(|bits| bits.concat())
}

proptest! {
    #[test]
    fn cuts_do_not_change_the_result(page in soup(), cuts in prop::collection::vec(any::<usize>(), 0..12)) {
        prop_assert_eq!(in_pieces(page.as_bytes(), &cuts), html(&page));
    }

    #[test]
    fn a_whole_page_may_come_byte_by_byte(at in 0..PAGE.len()) {
        let all: Vec<usize> = (0..PAGE.len()).collect();
        prop_assert_eq!(in_pieces(PAGE.as_bytes(), &all[at..]), html(PAGE));
    }

    #[test]
    fn cuts_of_a_style_sheet_do_not_change_the_result(sheet in soup(), cut in any::<usize>()) {
        let mut found = Vec::new();
        let mut scanner = CssScanner::default();
        let (head, tail) = sheet.as_bytes().split_at(cut % (sheet.len() + 1));
        for part in [head, tail] {
            scanner.push(part, &mut |object| found.push(object));
        }
        scanner.finish(&mut |object| found.push(object));
        prop_assert_eq!(found, css(&sheet));
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for item in in_pieces(&bytes, &[7, 20]) {
            if let Item::Object(object) = item {
                prop_assert!(is_reference(&object.url));
            }
        }
    }
}

#[test]
fn inline_scripts_are_scanned_for_imports_and_cookies() {
    let page = "<script type=module>import './a.js'; document.cookie = 'x'</script>\
                <script>import './b.js'</script><script type=module src=c.js>import './d.js'</script>\
                <script type='text/plain'>document.cookie = 'x'</script>\
                <template><script type=module>import './e.js'</script></template>\
                <script nomodule>document.cookie = 'x'</script>\
                <p>import './f.js'; document.cookie = 'x'</p>\
                <script>document.cookie = 'y'</script>";
    let all = ["Module 3 ./a.js", "cookie", "Module 3 c.js", "cookie"];
    assert_eq!(shown(&html(page)), all);
}
