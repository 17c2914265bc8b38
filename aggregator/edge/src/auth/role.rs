//! Roles: the permissions of a token.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use thiserror::Error;

/// What somebody may do with a token. One token can have several roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Sees experiments, estimates, exports, the audit log and metrics, and changes nothing.
    Viewer,
    /// Sees what a viewer sees, and creates and changes experiments.
    Experimenter,
    /// Asks data sets and sessions, and sees its own debits only.
    Analyst,
    /// Registers data sets with their budgets, opens sessions, sees all debits.
    Custodian,
    /// Hands in the batches of a relay that shuffles, and nothing else.
    Relay,
    /// May do everything, and alone delete experiments.
    Administrator,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 6] = [
        Self::Viewer,
        Self::Experimenter,
        Self::Analyst,
        Self::Custodian,
        Self::Relay,
        Self::Administrator,
    ];

    /// The role's name in a tokens file, on the command line and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Experimenter => "experimenter",
            Self::Analyst => "analyst",
            Self::Custodian => "custodian",
            Self::Relay => "relay",
            Self::Administrator => "administrator",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or(RoleError)
    }
}

/// The roles of one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// Every role: those of a token made before there were roles.
    pub const ALL: Self = Self(u8::MAX);

    /// Whether this role is included, as every role is in an administrator's.
    pub fn have(self, role: Role) -> bool {
        self.0 & (role.bit() | Role::Administrator.bit()) != 0
    }

    /// The roles that both have.
    pub(super) fn and(self, other: Self) -> Self {
        let shared = |role: &Role| self.have(*role) && other.have(*role);
        Role::ALL.into_iter().filter(shared).collect()
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        Self(roles.into_iter().fold(0, |bits, role| bits | role.bit()))
    }
}

/// The names, separated by commas, as in a tokens file.
impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.have(Role::Administrator) {
            return f.write_str(Role::Administrator.name());
        }
        let names = Role::ALL.into_iter().filter(|role| self.have(*role)).map(Role::name);
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Roles {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        text.split(',').map(str::parse::<Role>).collect()
    }
}

/// The error for a name that no role has.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("roles are viewer, experimenter, analyst, custodian, relay and administrator")]
pub struct RoleError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_as_they_are_written() {
        for role in Role::ALL {
            let roles = [role].into_iter().collect::<Roles>();
            assert_eq!(roles.to_string().parse(), Ok(roles));
            assert_eq!(role.to_possible_value().unwrap().get_name(), role.name());
            let others = Role::ALL.into_iter().filter(|other| *other != role);
            let is_administrator = role == Role::Administrator;
            assert!(others.into_iter().all(|other| roles.have(other) == is_administrator));
        }
        let two: Roles = "viewer,analyst".parse().unwrap();
        assert_eq!(two.to_string(), "viewer,analyst");
        assert!(two.have(Role::Viewer) && two.have(Role::Analyst) && !two.have(Role::Custodian));
        for wrong in ["", "viewer,", "Viewer", "viewer analyst", "all"] {
            assert_eq!(wrong.parse::<Roles>(), Err(RoleError), "{wrong:?}");
        }
    }

    #[test]
    fn what_two_have_in_common_is_what_both_may_do() {
        let roles = |text: &str| text.parse::<Roles>().unwrap();
        assert_eq!(roles("viewer,analyst").and(roles("analyst")), roles("analyst"));
        assert_eq!(roles("administrator").and(roles("analyst")), roles("analyst"));
        assert!(!Role::ALL.into_iter().any(|r| roles("viewer").and(roles("analyst")).have(r)));
        assert!(Roles::ALL.and(Roles::ALL).have(Role::Administrator));
    }
}
