//! Class claim: the class that a flow gets if its client's statement about the destination is true.

/// The longest name in a claim, bytes.
const MAX_NAME_BYTES: usize = 253;

/// A class that a client asks for if the flow's address is that of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The class.
    pub class: u8,
    /// The name.
    pub name: String,
}

impl Claim {
    /// The field's value, or `None` where the name cannot stand in one.
    pub(crate) fn write(&self) -> Option<String> {
        good(&self.name).then(|| format!("{} {}", self.class, self.name))
    }

    pub(crate) fn read(value: &str) -> Option<Self> {
        let (class, name) = value.split_once(' ')?;
        let class = class.parse().ok()?;
        good(name).then(|| Self { class, name: name.to_owned() })
    }
}

fn good(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_read_back() {
        let claim = Claim { class: 2, name: "www.gov.uk".into() };
        assert_eq!(claim.write().as_deref(), Some("2 www.gov.uk"));
        assert_eq!(Claim::read("2 www.gov.uk"), Some(claim.clone()));
        for wrong in ["", "2", "2 ", "256 a", "a b", "2 a b", "2 caf\u{e9}"] {
            assert_eq!(Claim::read(wrong), None, "{wrong}");
        }
        assert_eq!(Claim { name: "a b".into(), ..claim }.write(), None);
    }
}
