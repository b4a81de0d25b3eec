//! masque
