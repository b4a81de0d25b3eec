//! Name visible in a client's first bytes.

use super::Name;

/// Name visible in the first bytes of a TCP flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visible {
    /// No name, and more bytes will not reveal one.
    Nothing,
    /// Start of a message that may still contain a name.
    Partial,
    /// Name in a ClientHello or an HTTP request.
    Name(Name),
    /// Outer name of a ClientHello that contains, or pretends to contain, an encrypted hello
    /// (Encrypted Client Hello, RFC 9849). Browsers send that extension with random content to
    /// every server (GREASE), and an intermediary cannot distinguish the two.
    Outer(Name),
}

/// Treatment of the visible name in a ClientHello that contains an encrypted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EncryptedHello {
    /// Ignores the name: the flow has none.
    #[default]
    Unknown,
    /// Uses the name as in any other hello: it must still agree with the address.
    OuterName,
}
