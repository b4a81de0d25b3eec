//! The bentpipe command.
fn main() {}
