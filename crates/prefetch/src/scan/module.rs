//! Streaming ES modules: the specifiers of static `import` and `export … from`.
//!
//! A small part of the lexical grammar of ECMAScript (section 12), in one pass: comments, strings,
//! templates, words, and regular expressions as far as their quotes must not start strings. Dynamic
//! imports are left out, because a script decides if they run. Bare specifiers are left out,
//! because they need an import map.

use super::{Kind, ObjectRef, is_reference};
use crate::address::MAX_URL_BYTES;

/// Maximum number of bytes of a module that are scanned. Imports are at its beginning.
pub const MAX_MODULE_BYTES: usize = 1 << 20;

/// Maximum nesting of templates. A module with more is not scanned further.
const MAX_TEMPLATES: usize = 16;

/// Longest relevant word: `instanceof` has 10 letters.
const MAX_WORD_BYTES: usize = 10;

/// Words before an expression. A slash after them starts a regular expression.
const BEFORE_EXPRESSION: [&[u8]; 15] = [
    b"await",
    b"case",
    b"delete",
    b"do",
    b"else",
    b"extends",
    b"in",
    b"instanceof",
    b"new",
    b"of",
    b"return",
    b"throw",
    b"typeof",
    b"void",
    b"yield",
];

/// Finds the imports of a module in its bytes. Holds one URL, one word and 16 numbers: less than 3
/// KiB.
#[derive(Debug)]
pub struct ModuleScanner {
    at: At,
    /// Number of bytes that will still be scanned.
    left: usize,
    /// The word that is being read. An extra byte marks a longer one.
    word: Vec<u8>,
    /// `true` if the word is the name of a property.
    is_property: bool,
    last: Last,
    statement: Statement,
    /// A string that may be a specifier. An extra byte marks a longer one.
    text: Vec<u8>,
    /// Number of open blocks in each template substitution.
    templates: Vec<u32>,
}

/// Position of the next byte in the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Code,
    /// After a slash, which may start a regular expression.
    Slash {
        regex: bool,
    },
    LineComment,
    Comment,
    CommentStar,
    Quoted {
        quote: u8,
        escaped: bool,
    },
    Template {
        escaped: bool,
        dollar: bool,
    },
    Regex {
        escaped: bool,
        class: bool,
    },
    /// The rest is not scanned.
    Over,
}

/// The previous token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// An operand. A slash after it divides.
    Operand,
    Dot,
    /// A token that an expression follows.
    Operator,
}

/// The import or export that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statement {
    Other,
    /// After `import`.
    Import,
    /// After `export`.
    Export,
    /// In the names of either.
    Names,
    /// After `from`.
    From,
}

impl Default for ModuleScanner {
    fn default() -> Self {
        Self {
            at: At::Code,
            left: MAX_MODULE_BYTES,
            word: Vec::new(),
            is_property: false,
            last: Last::Operator,
            statement: Statement::Other,
            text: Vec::new(),
            templates: Vec::new(),
        }
    }
}

impl ModuleScanner {
    /// Scans the next bytes of the module, up to [`MAX_MODULE_BYTES`] in total.
    pub fn push(&mut self, bytes: &[u8], report: &mut dyn FnMut(ObjectRef)) {
        let bytes = &bytes[..bytes.len().min(self.left)];
        self.left -= bytes.len();
        for &byte in bytes {
            self.step(byte, report);
        }
    }

    fn step(&mut self, byte: u8, report: &mut dyn FnMut(ObjectRef)) {
        let is_line_end = matches!(byte, b'\n' | b'\r');
        match self.at {
            At::Code => self.code(byte),
            At::Slash { regex } => match byte {
                b'/' => self.at = At::LineComment,
                b'*' => self.at = At::Comment,
                _ if regex => {
                    self.token();
                    self.at = At::Regex { escaped: false, class: false };
                    self.step(byte, report);
                }
                _ => {
                    self.token();
                    (self.at, self.last) = (At::Code, Last::Operator);
                    self.code(byte);
                }
            },
            At::LineComment if is_line_end => self.at = At::Code,
            At::Comment if byte == b'*' => self.at = At::CommentStar,
            At::CommentStar if byte == b'/' => self.at = At::Code,
            At::CommentStar if byte != b'*' => self.at = At::Comment,
            At::LineComment | At::Comment | At::CommentStar | At::Over => {}
            At::Quoted { quote, escaped: false } if byte == quote => self.end_string(report),
            // A string cannot contain a line break.
            At::Quoted { escaped: false, .. } if is_line_end => {
                (self.at, self.statement) = (At::Code, Statement::Other);
            }
            At::Quoted { quote, escaped } => {
                if self.text.len() <= MAX_URL_BYTES {
                    self.text.push(byte);
                }
                self.at = At::Quoted { quote, escaped: !escaped && byte == b'\\' };
            }
            At::Template { escaped: false, .. } if byte == b'`' => self.operand(),
            At::Template { escaped: false, dollar: true } if byte == b'{' => {
                let is_deep = self.templates.len() >= MAX_TEMPLATES;
                self.templates.push(0);
                (self.at, self.last) = (At::Code, Last::Operator);
                if is_deep {
                    self.at = At::Over;
                }
            }
            At::Template { escaped, .. } => {
                let (is_backslash, dollar) = (byte == b'\\', byte == b'$' && !escaped);
                self.at = At::Template { escaped: !escaped && is_backslash, dollar };
            }
            // The slash was a division.
            At::Regex { .. } if is_line_end => (self.at, self.last) = (At::Code, Last::Operator),
            At::Regex { escaped: false, class: false } if byte == b'/' => self.operand(),
            At::Regex { escaped, class } => {
                let class = if escaped { class } else { byte == b'[' || class && byte != b']' };
                self.at = At::Regex { escaped: !escaped && byte == b'\\', class };
            }
        }
    }

    fn code(&mut self, byte: u8) {
        let is_of_word = byte.is_ascii_alphanumeric()
            || matches!(byte, b'_' | b'$' | b'#' | b'\\')
            || byte > 127;
        if is_of_word {
            if self.word.is_empty() {
                self.is_property = self.last == Last::Dot;
            }
            if self.word.len() <= MAX_WORD_BYTES {
                self.word.push(byte);
            }
            return;
        }
        self.end_word();
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b'\x0b' | b'\x0c' => {}
            b'/' => self.at = At::Slash { regex: self.last == Last::Operator },
            b'"' | b'\'' => {
                self.text.clear();
                self.at = At::Quoted { quote: byte, escaped: false };
            }
            b'`' => {
                self.token();
                self.at = At::Template { escaped: false, dollar: false };
            }
            _ => self.punctuator(byte),
        }
    }

    fn punctuator(&mut self, byte: u8) {
        self.statement = match (self.statement, byte) {
            (Statement::Import | Statement::Export, b'{' | b'*')
            | (Statement::Names | Statement::From, b'{' | b'}' | b'*' | b',') => Statement::Names,
            _ => Statement::Other,
        };
        self.last = match byte {
            b'.' => Last::Dot,
            b')' | b']' | b'}' => Last::Operand,
            _ => Last::Operator,
        };
        match (byte, self.templates.last_mut()) {
            (b'{', Some(open)) => *open = open.saturating_add(1),
            (b'}', Some(0)) => {
                self.templates.pop();
                self.at = At::Template { escaped: false, dollar: false };
            }
            (b'}', Some(open)) => *open -= 1,
            _ => {}
        }
    }

    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let is_keyword = !self.is_property;
        self.statement = match (&self.word[..], self.statement) {
            (b"import", _) if is_keyword => Statement::Import,
            (b"export", _) if is_keyword => Statement::Export,
            (b"from", Statement::Names) => Statement::From,
            (_, Statement::Import | Statement::Names | Statement::From) => Statement::Names,
            _ => Statement::Other,
        };
        let is_before = is_keyword && BEFORE_EXPRESSION.contains(&&self.word[..]);
        self.last = if is_before { Last::Operator } else { Last::Operand };
        self.word.clear();
    }

    /// Handles a string: a specifier, one of the names, or anything else.
    fn end_string(&mut self, report: &mut dyn FnMut(ObjectRef)) {
        if matches!(self.statement, Statement::Import | Statement::From)
            && let Ok(specifier) = std::str::from_utf8(&self.text)
            && is_followed(specifier)
        {
            report(ObjectRef::new(specifier, Kind::Module));
        }
        let is_name = self.statement == Statement::Names;
        self.operand();
        if is_name {
            self.statement = Statement::Names;
        }
    }

    /// Handles the end of an operand.
    fn operand(&mut self) {
        self.token();
        (self.at, self.last) = (At::Code, Last::Operand);
    }

    /// Handles a token that is not part of an import.
    fn token(&mut self) {
        self.statement = Statement::Other;
    }
}

/// Returns `true` for a specifier without escapes that does not need an import map.
fn is_followed(specifier: &str) -> bool {
    let begins = ["/", "./", "../", "http://", "https://"];
    begins.into_iter().any(|begin| specifier.starts_with(begin))
        && !specifier.contains('\\')
        && is_reference(specifier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scan(parts: &[&str]) -> Vec<String> {
        let (mut scanner, mut found) = (ModuleScanner::default(), Vec::new());
        for part in parts {
            scanner.push(part.as_bytes(), &mut |object| found.push(object.url));
        }
        found
    }

    #[test]
    fn static_imports_and_exports_are_found() {
        let module = r#"
            import "./effects.js"; import a from './a.js'; import * as b from "../b.js";
            import c, { d as e, "odd name" as f } from "/c.js" with { type: "json" };
            import from from "./from.js"; import defer * as g from "./g.js"
            export { h } from "./h.js"; export * from "./i.js"; export * as j from "https://cdn.test/j.js";
            /* import "./no.js" */ // import "./no.js"
            import/**/k/**/from/**/"./k.js";
        "#;
        let expected = [
            "./effects.js",
            "./a.js",
            "../b.js",
            "/c.js",
            "./from.js",
            "./g.js",
            "./h.js",
            "./i.js",
            "https://cdn.test/j.js",
            "./k.js",
        ];
        assert_eq!(scan(&[module]), expected);
        let minified = r#"import{a as b}from"./x.js";import"./y.js";var c=1;export{c as d};export{z}from"./z.js""#;
        assert_eq!(scan(&[minified]), ["./x.js", "./y.js", "./z.js"]);
    }

    #[test]
    fn lookalikes_of_imports_are_left_out() {
        for nothing in [
            r#"import "bare"; import x from "react/jsx"; import "data:text/javascript,1";"#,
            r#"import("./lazy.js"); import.meta.url + "./x.js"; a.import "./x.js""#,
            r#"const a = { import: "./x.js", export: "./y.js", from: "./z.js" };"#,
            r#"const s = 'import "./x.js"', t = `import "./y.js" ${"`"} import "./z.js"`;"#,
            "const r = /import \"/, q = x / 2; import y from z; from \"./x.js\"",
            r#"export const from = "./x.js"; export default "./y.js"; export { a }; "./z.js""#,
            r#"import "./un\u0041.js"; import "./open.js"#,
            "import \"./cut\n.js\"",
        ] {
            assert_eq!(scan(&[nothing]), [""; 0], "{nothing}");
        }
    }

    #[test]
    fn quotes_in_regular_expressions_and_templates_hide_no_imports() {
        for module in [
            "x = /[\"'/]`/g; import \"./a.js\"",
            "return /'/.test(x)\nimport \"./a.js\"",
            "y = a / b; z = c / d; import \"./a.js\"",
            "`${ { a: `${b}` } }'`; import \"./a.js\"",
            "`$${1}\\``; import \"./a.js\"",
            "x = \"\\\"\"; import \"./a.js\"",
        ] {
            assert_eq!(scan(&[module]), ["./a.js"], "{module}");
        }
    }

    #[test]
    fn endless_constructs_are_not_buffered() {
        let mut scanner = ModuleScanner::default();
        let mut found = 0;
        for hostile in ["`${", "import{", "import\"", "x".repeat(4096).as_str(), "/*", "\"\n"] {
            let bytes = hostile.repeat(2 * MAX_MODULE_BYTES / 6 / hostile.len());
            scanner.push(bytes.as_bytes(), &mut |_| found += 1);
            assert!(scanner.word.len() <= MAX_WORD_BYTES + 1);
            assert!(scanner.text.len() <= MAX_URL_BYTES + 1);
            assert!(scanner.templates.len() <= MAX_TEMPLATES + 1);
        }
        assert_eq!((found, scanner.left), (0, 0));
        let mut scanner = ModuleScanner::default();
        scanner.push(&vec![b' '; MAX_MODULE_BYTES], &mut |_| {});
        scanner.push(b"import \"./late.js\"", &mut |_| panic!("it is beyond the bound"));
    }

    proptest! {
        #[test]
        fn cuts_of_a_module_do_not_change_the_result(text in "[import{}*\"'`$/.js, a\n\\\\]{0,60}", at in 0usize..60) {
            let at = at.min(text.len());
            let module = format!("{text}\nimport \"./a.js\"");
            prop_assert_eq!(scan(&[&module[..at], &module[at..]]), scan(&[&module]));
        }
    }
}
