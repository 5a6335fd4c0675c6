//! What a handshake hands over, and the record keys that become of it.

use crate::aead::{Aead, Suite};
use crate::record::{Direction, Opener, RecordConfig, ScheduledOpener, ScheduledSealer, Sealer};
use crate::secret::Secret;

/// Which end of a handshake this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Sends the first message.
    Initiator,
    /// Answers it.
    Responder,
}

impl Role {
    /// The other end.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Initiator => Self::Responder,
            Self::Responder => Self::Initiator,
        }
    }

    pub(crate) const fn direction(self) -> Direction {
        match self {
            Self::Initiator => Direction::ToResponder,
            Self::Responder => Direction::ToInitiator,
        }
    }
}

/// The shared secret of two ends, and which of them this one is.
///
/// Record keys are made once: [`records`](Self::records) takes the keys by value, so that no
/// two sealers count from zero with the same key.
///
/// ```
/// use landfall_seal::{Keys, RecordConfig, Role, Secret, Suite};
/// use landfall_seal::provider::Provider;
///
/// let keys = |role| Keys::new(Secret::new([7; 32]), role, Suite::Aes128Gcm);
/// let [data, control] = keys(Role::Initiator).fork(["data", "control"]);
/// let (mut sealer, opener) = data.records::<Provider>(&RecordConfig::default());
/// # drop((control, opener, sealer.slot(0).unwrap()));
/// ```
#[derive(Debug)]
pub struct Keys {
    secret: Secret,
    role: Role,
    suite: Suite,
}

impl Keys {
    /// The keys of an end. Both ends have the same secret and suite, and different roles.
    ///
    /// The secret must be fresh: nonces count from zero.
    #[must_use]
    pub const fn new(secret: Secret, role: Role, suite: Suite) -> Self {
        Self { secret, role, suite }
    }

    /// Which end this is.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// The suite that records are sealed with.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.suite
    }

    /// A secret that both ends can derive and nobody else: for another protocol, or to bind
    /// something to this connection.
    #[must_use]
    pub fn export(&self, label: &str, context: &[u8]) -> Secret {
        self.secret.derive("export", &[]).derive(label, context)
    }

    /// Independent keys, by name: for parts of a connection that seal by themselves.
    ///
    /// # Panics
    ///
    /// If two names are equal: their records would have the same nonces.
    #[must_use]
    pub fn fork<const N: usize>(self, names: [&str; N]) -> [Self; N] {
        let is_new = |(at, name)| !names[..at].contains(name);
        assert!(names.iter().enumerate().all(is_new), "each part has a name of its own");
        let parts = self.secret.derive("fork", &[]);
        names.map(|name| Self { secret: parts.derive(name, &[]), ..self })
    }

    /// The record keys of both directions.
    #[must_use]
    pub fn records<A: Aead>(self, config: &RecordConfig) -> (Sealer<A>, Opener<A>) {
        let traffic = |sender: Role| (self.traffic_secret(sender), sender.direction(), self.suite);
        let (own, theirs) = (traffic(self.role), traffic(self.role.peer()));
        (Sealer::new(own, config), Opener::new(theirs, config))
    }

    /// The same for one path, where the number of a record says which keys it has: the next come
    /// by themselves, and no generation is sent.
    #[must_use]
    pub fn scheduled_records<A: Aead>(self) -> (ScheduledSealer<A>, ScheduledOpener<A>) {
        let (sealer, opener) = self.records(&RecordConfig::default());
        (ScheduledSealer::new(sealer), ScheduledOpener::new(opener))
    }

    /// What the record keys of what this role sends are derived of, the first generation.
    pub(crate) fn traffic_secret(&self, sender: Role) -> Secret {
        self.secret.derive("records", &[sender.direction() as u8])
    }
}
