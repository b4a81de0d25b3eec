//! Reachability of the peer.

/// Reachability of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The peer answers.
    Up,
    /// The peer has been silent for a while. Flows wait until it answers again.
    Out,
    /// The peer has not answered yet, or has ended the session.
    Down,
}
