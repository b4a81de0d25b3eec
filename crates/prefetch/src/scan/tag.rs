//! Tags of a page, and the objects that they reference.

use std::collections::VecDeque;

use super::cookie::CookieScanner;
use super::css::CssScanner;
use super::module::ModuleScanner;
use super::{Item, Kind, ObjectRef, Urgency, is_reference, srcset};
use crate::referrer::ReferrerPolicy;

/// Attributes that matter to the scanner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attribute {
    As,
    Async,
    Content,
    Defer,
    Disabled,
    FetchPriority,
    Href,
    ImageSizes,
    ImageSrcset,
    Loading,
    Media,
    Name,
    NoModule,
    Poster,
    ReferrerPolicy,
    Rel,
    Sizes,
    Src,
    Srcset,
    Style,
    Type,
}

/// A tag with its relevant attributes.
#[derive(Debug, Default)]
pub(super) struct Tag {
    pub(super) name: Vec<u8>,
    pub(super) is_end: bool,
    attributes: Vec<(Attribute, String)>,
}

/// State of a page after the tags so far.
#[derive(Debug, Default)]
pub(super) struct Page {
    image_types: Vec<String>,
    is_past_head: bool,
    has_base: bool,
    /// Depth of `<template>` elements, whose content is not rendered.
    templates: u32,
    picture: Picture,
    /// Policy of the last `<meta name="referrer">`.
    referrer: Option<ReferrerPolicy>,
    /// Scanner of the open style element.
    style: Option<CssScanner>,
    /// Scanners of the open inline script: for cookies, and for imports if it is a module.
    script: Option<(CookieScanner, Option<ModuleScanner>)>,
}

/// Source that a `<picture>` will use.
#[derive(Debug, Default)]
enum Picture {
    /// Not inside a `<picture>`.
    #[default]
    Outside,
    /// No source has matched so far.
    Open,
    /// A source was chosen, or (`None`) none can be chosen. The `<img>` decides if and how it is
    /// requested.
    Settled(Option<String>),
}

impl Attribute {
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"as" => Self::As,
            b"async" => Self::Async,
            b"content" => Self::Content,
            b"defer" => Self::Defer,
            b"disabled" => Self::Disabled,
            b"fetchpriority" => Self::FetchPriority,
            b"href" | b"xlink:href" => Self::Href,
            b"imagesizes" => Self::ImageSizes,
            b"imagesrcset" => Self::ImageSrcset,
            b"loading" => Self::Loading,
            b"media" => Self::Media,
            b"name" => Self::Name,
            b"nomodule" => Self::NoModule,
            b"poster" => Self::Poster,
            b"referrerpolicy" => Self::ReferrerPolicy,
            b"rel" => Self::Rel,
            b"sizes" => Self::Sizes,
            b"src" => Self::Src,
            b"srcset" => Self::Srcset,
            b"style" => Self::Style,
            b"type" => Self::Type,
            _ => return None,
        })
    }
}

impl Tag {
    /// The first of several attributes with one name counts.
    pub(super) fn put(&mut self, attribute: Attribute, value: String) {
        if self.get(attribute).is_none() {
            self.attributes.push((attribute, value));
        }
    }

    fn get(&self, attribute: Attribute) -> Option<&str> {
        let (_, value) = self.attributes.iter().find(|(name, _)| *name == attribute)?;
        Some(value.trim_ascii())
    }

    fn is(&self, attribute: Attribute, value: &str) -> bool {
        self.get(attribute).is_some_and(|own| own.eq_ignore_ascii_case(value))
    }

    /// Value of the attribute, if it is a reference worth following.
    fn reference(&self, attribute: Attribute) -> Option<&str> {
        self.get(attribute).filter(|url| is_reference(url))
    }

    /// Applies the page's own priority and referrer hints.
    fn hinted(&self, mut found: ObjectRef) -> ObjectRef {
        found.referrer = self.get(Attribute::ReferrerPolicy).and_then(ReferrerPolicy::named);
        if self.is(Attribute::FetchPriority, "high") {
            found.urgency = found.urgency.raised();
        } else if self.is(Attribute::FetchPriority, "low") {
            found.urgency = found.urgency.lowered();
        }
        found
    }
}

impl Page {
    pub(super) fn new(image_types: &[&str]) -> Self {
        let image_types = image_types.iter().map(|kind| kind.to_ascii_lowercase()).collect();
        Self { image_types, ..Self::default() }
    }

    /// Handles a start tag.
    pub(super) fn start(&mut self, tag: &Tag, found: &mut VecDeque<Item>) {
        if tag.name == b"template" {
            self.templates = self.templates.saturating_add(1);
        }
        if self.templates > 0 {
            return;
        }
        if let Some(style) = tag.get(Attribute::Style) {
            let mut css = CssScanner::of_attribute();
            let referrer = self.referrer;
            let mut report = |object| found.push_back(item(object, referrer));
            css.push(style.as_bytes(), &mut report);
            css.finish(&mut report);
        }
        self.script = None;
        match &tag.name[..] {
            b"base" => self.base(tag, found),
            b"body" => self.is_past_head = true,
            b"style" if !is_print(tag) => self.style = Some(CssScanner::default()),
            b"picture" => self.picture = Picture::Open,
            b"source" => self.source(tag),
            b"meta" if tag.is(Attribute::Name, "referrer") => self.meta(tag),
            b"script" if tag.get(Attribute::Src).is_none() => {
                let module = is_module(tag).then(ModuleScanner::default);
                self.script = runs(tag).then(|| (CookieScanner::default(), module));
            }
            _ => {
                let object = self.object(tag).map(|object| tag.hinted(object));
                found.extend(object.map(|object| item(object, self.referrer)));
            }
        }
    }

    /// Handles an end tag.
    pub(super) fn end(&mut self, name: &[u8], found: &mut VecDeque<Item>) {
        match name {
            b"template" => self.templates = self.templates.saturating_sub(1),
            b"head" => self.is_past_head = true,
            b"picture" => self.picture = Picture::Outside,
            b"style" => self.finish(found),
            b"script" => self.script = None,
            _ => {}
        }
    }

    /// Handles text, possibly of a style element or a script.
    pub(super) fn text(&mut self, text: &[u8], found: &mut VecDeque<Item>) {
        let referrer = self.referrer;
        if let Some(style) = &mut self.style {
            style.push(text, &mut |object| found.push_back(item(object, referrer)));
        }
        let Some((cookie, module)) = &mut self.script else { return };
        // Byte by byte, so that the order of the results does not depend on how the text is split.
        for byte in text.chunks(1) {
            if cookie.push(byte) {
                found.push_back(Item::Cookie);
            }
            if let Some(module) = module {
                module.push(byte, &mut |object| found.push_back(item(object, referrer)));
            }
        }
    }

    /// Handles the end of the page, or of its style element.
    pub(super) fn finish(&mut self, found: &mut VecDeque<Item>) {
        if let Some(mut style) = self.style.take() {
            style.finish(&mut |object| found.push_back(item(object, self.referrer)));
        }
    }

    /// Applies a `<meta>`. An unknown value does not replace an earlier one.
    fn meta(&mut self, tag: &Tag) {
        let said = tag.get(Attribute::Content).and_then(ReferrerPolicy::in_meta);
        self.referrer = said.or(self.referrer);
    }

    fn base(&mut self, tag: &Tag, found: &mut VecDeque<Item>) {
        // The first base counts.
        if let (false, Some(url)) = (self.has_base, tag.get(Attribute::Href)) {
            self.has_base = true;
            found.push_back(Item::Base(url.to_owned()));
        }
    }

    fn object(&mut self, tag: &Tag) -> Option<ObjectRef> {
        match &tag.name[..] {
            b"link" => self.link(tag),
            b"script" => self.script(tag),
            b"img" => self.image(tag),
            b"image" => Some(ObjectRef::new(tag.reference(Attribute::Href)?, Kind::Image)),
            b"input" if tag.is(Attribute::Type, "image") => {
                Some(ObjectRef::new(tag.reference(Attribute::Src)?, Kind::Image))
            }
            b"video" => Some(ObjectRef::new(tag.reference(Attribute::Poster)?, Kind::Image)),
            _ => None,
        }
    }

    fn link(&self, tag: &Tag) -> Option<ObjectRef> {
        let rel = tag.get(Attribute::Rel)?;
        let has =
            |word: &str| rel.split_ascii_whitespace().any(|own| own.eq_ignore_ascii_case(word));
        if is_print(tag) || tag.get(Attribute::Disabled).is_some() {
            return None;
        }
        let kind = if has("stylesheet") && !has("alternate") {
            Kind::Style
        } else if has("modulepreload") {
            Kind::Module
        } else if has("preload") {
            preloaded(tag)?
        } else if has("icon") {
            Kind::Icon
        } else {
            return None;
        };
        if let (Kind::Image, Some(set)) = (kind, tag.get(Attribute::ImageSrcset)) {
            let sizes = tag.get(Attribute::ImageSizes);
            return Some(ObjectRef::new(srcset::choose(set, sizes, None)?, kind));
        }
        Some(ObjectRef::new(tag.reference(Attribute::Href)?, kind))
    }

    fn script(&self, tag: &Tag) -> Option<ObjectRef> {
        if !runs(tag) {
            return None;
        }
        let is_module = is_module(tag);
        let kind = if is_module { Kind::Module } else { Kind::Script };
        let mut found = ObjectRef::new(tag.reference(Attribute::Src)?, kind);
        let waits =
            is_module || tag.get(Attribute::Async).is_some() || tag.get(Attribute::Defer).is_some();
        if !self.is_past_head && !waits {
            found.urgency = Urgency(2);
        }
        Some(found)
    }

    fn image(&mut self, tag: &Tag) -> Option<ObjectRef> {
        let chosen = match &mut self.picture {
            Picture::Settled(chosen) => Some(chosen.take()),
            Picture::Outside | Picture::Open => None,
        };
        // Lazy images are requested when they come into view, if ever.
        if tag.is(Attribute::Loading, "lazy") {
            return None;
        }
        if let Some(chosen) = chosen {
            return Some(ObjectRef::new(chosen?, Kind::Image));
        }
        let plain = tag.reference(Attribute::Src);
        let url = match tag.get(Attribute::Srcset) {
            Some(set) => srcset::choose(set, tag.get(Attribute::Sizes), plain)?,
            None => plain?,
        };
        Some(ObjectRef::new(url, Kind::Image))
    }

    /// Chooses the first source that a browser would take. A source that depends on the window's
    /// size also settles the choice, because the size is unknown here.
    fn source(&mut self, tag: &Tag) {
        if !matches!(self.picture, Picture::Open) {
            return;
        }
        let is_shown = tag.get(Attribute::Type).is_none_or(|kind| self.shows(kind));
        let media = tag.get(Attribute::Media).unwrap_or_default();
        if !is_shown || media.eq_ignore_ascii_case("print") {
            return;
        }
        let Some(set) = tag.get(Attribute::Srcset) else { return };
        let is_for_all = media.is_empty() || media.eq_ignore_ascii_case("all");
        let chosen = || srcset::choose(set, tag.get(Attribute::Sizes), None).map(str::to_owned);
        self.picture = Picture::Settled(is_for_all.then(chosen).flatten());
    }

    fn shows(&self, kind: &str) -> bool {
        let kind = kind.split(';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let everywhere = ["image/jpeg", "image/png", "image/gif", "image/svg+xml", "image/bmp"];
        everywhere.contains(&&kind[..]) || self.image_types.contains(&kind)
    }
}

/// Builds the item of an object under the page's referrer policy.
fn item(mut found: ObjectRef, referrer: Option<ReferrerPolicy>) -> Item {
    found.referrer = found.referrer.or(referrer);
    Item::Object(found)
}

/// Returns `true` if a script is a module.
fn is_module(tag: &Tag) -> bool {
    tag.is(Attribute::Type, "module")
}

/// Returns `true` if browsers that support modules run the script.
fn runs(tag: &Tag) -> bool {
    let is_script = tag.get(Attribute::Type).is_none_or(|kind| {
        kind.is_empty() || is_module(tag) || kind.to_ascii_lowercase().ends_with("javascript")
    });
    is_script && tag.get(Attribute::NoModule).is_none()
}

/// Returns `true` if a style sheet is for print only.
fn is_print(tag: &Tag) -> bool {
    tag.is(Attribute::Media, "print")
}

fn preloaded(tag: &Tag) -> Option<Kind> {
    match &tag.get(Attribute::As)?.to_ascii_lowercase()[..] {
        "style" => Some(Kind::Style),
        "script" => Some(Kind::Script),
        "font" => Some(Kind::Font),
        "image" => Some(Kind::Image),
        _ => None,
    }
}
