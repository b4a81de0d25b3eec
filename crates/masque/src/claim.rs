//! Field of a class claim: the class's number, a space and the name.

use bentpipe_flow::{Claim, Class};

/// Maximum length of a name in a claim, bytes.
const MAX_NAME_BYTES: usize = 253;

/// Returns the field's value, or `None` if the name is not valid in one.
pub fn write(claim: &Claim) -> Option<String> {
    good(claim.name()).then(|| format!("{} {}", claim.class.to_u8(), claim.name()))
}

/// Reads the field's value.
pub fn read(value: &str) -> Option<Claim> {
    let (class, name) = value.split_once(' ')?;
    let class = Class::from_u8(class.parse().ok()?)?;
    good(name).then(|| Claim::new(name, class).ok()).flatten()
}

fn good(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_round_trip() {
        let class = Class::from_u8(2).unwrap();
        let claim = Claim::new("www.gov.uk", class).unwrap();
        assert_eq!(write(&claim).as_deref(), Some("2 www.gov.uk"));
        assert_eq!(read("2 www.gov.uk"), Some(claim));
        for wrong in ["", "2", "2 ", "9 a", "256 a", "a b", "2 a b", "2 caf\u{e9}"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(write(&Claim::new("a b", class).unwrap()), None);
    }
}
