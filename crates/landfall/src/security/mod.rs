//! Who an end is, whom it trusts, and what of it is encrypted: the same for all protocols.
//!
//! | file | what it is |
//! | --- | --- |
//! | `identity` | the key pair of a user, in a file |
//! | `known_peers` | trust on first use, in a file |
//! | `certificates` | certificates and raw public keys (feature `certificates`) |
//! | `key_log` | keys written down, for captures to be opened with |
//!
//! What does not live here: records and handshakes (`landfall-seal`), and what is carried.

#[cfg(feature = "certificates")]
mod certificates;
mod identity;
mod key_log;
mod known_peers;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use landfall_placement::{PathId, Peer};
#[cfg(any(feature = "clan", feature = "stp"))]
use landfall_seal::Expected;
use landfall_seal::{
    Fingerprint, HandshakeError, HandshakeUnits, PeerIdentity, Proof, PublicKey, Role, SealConfig,
    Sealed, Secret, Trust,
};

#[cfg(feature = "certificates")]
pub use certificates::Certificates;
pub use identity::{Identity, read_preshared_key};
use key_log::KeyLogFile;
pub use known_peers::KnownPeers;

use crate::runtime::{Reach, locked};

/// What is carried: its name, which both ends must mean, how many associations an engine needs at
/// most, and whether peers may begin some.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    context: &'static [u8],
    most: usize,
    answers: bool,
    units: HandshakeUnits,
}

impl Carried {
    pub(crate) const fn new(context: &'static [u8], most: usize) -> Self {
        Self { context, most, answers: true, units: HandshakeUnits::Usual }
    }

    /// Of an end that nobody calls.
    #[cfg(feature = "defrag")]
    pub(crate) const fn calling(context: &'static [u8], most: usize) -> Self {
        Self { answers: false, ..Self::new(context, most) }
    }

    /// By frames that are short.
    #[cfg(feature = "defrag")]
    pub(crate) const fn in_short_frames(self) -> Self {
        Self { units: HandshakeUnits::Short, ..self }
    }
}

/// Why an end cannot be built that encrypts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecurityError {
    /// The identity or the known peers cannot be read or made, or the certificates cannot be used.
    #[error(
        "cannot encrypt: {0}. Set LANDFALL_STATE to a folder for the identity and known peers, \
         pass them to the builder (`identity`, `known_peers`), use `preshared_key`, or build \
         with `plaintext`"
    )]
    Identity(#[source] io::Error),
    /// The key log cannot be opened.
    #[error(
        "cannot write keys to {}: {source}. Name another file in LANDFALL_KEYLOG or in the \
         builder's `key_log`, or none",
        file.display()
    )]
    KeyLog {
        /// Which file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// How an endpoint proves itself.
#[derive(Clone, Debug)]
enum Credential {
    /// By the identity of the user, made at first use.
    OfUser,
    Identity(Identity),
    PresharedKey(Arc<[u8; 32]>),
    #[cfg(feature = "certificates")]
    Certificates(Arc<Certificates>),
    /// The same, as TLS is configured with them.
    #[cfg(feature = "certificates")]
    Tls(landfall_seal::Certificates, Option<Fingerprint>),
}

/// What a builder was told about encryption.
#[derive(Clone, Debug)]
pub(crate) struct Security {
    pub(crate) is_plain: bool,
    pub(crate) seals_loopback: bool,
    own: Credential,
    known: Option<KnownPeers>,
    only: Option<Vec<Fingerprint>>,
    names: Names,
    key_log: KeyLogging,
}

/// Where keys are written down.
#[derive(Clone, Debug, Default)]
enum KeyLogging {
    /// Where the environment says, if it does.
    #[default]
    OfEnvironment,
    To(PathBuf),
    Open(KeyLogFile),
}

impl Default for Security {
    fn default() -> Self {
        Self {
            is_plain: false,
            seals_loopback: false,
            own: Credential::OfUser,
            known: None,
            only: None,
            names: Names::default(),
            key_log: KeyLogging::default(),
        }
    }
}

impl Security {
    pub(crate) fn set_identity(&mut self, identity: Identity) {
        self.own = Credential::Identity(identity);
    }

    pub(crate) fn set_preshared_key(&mut self, key: [u8; 32]) {
        self.own = Credential::PresharedKey(Arc::new(key));
    }

    #[cfg(feature = "certificates")]
    pub(crate) fn set_certificates(&mut self, certificates: Certificates) {
        self.own = Credential::Certificates(Arc::new(certificates));
    }

    pub(crate) fn set_known_peers(&mut self, known: KnownPeers) {
        self.known = Some(known);
    }

    pub(crate) fn set_only(&mut self, peers: Vec<Fingerprint>) {
        self.only = Some(peers);
    }

    /// Only who has this key may call itself so.
    #[cfg(feature = "clan")]
    pub(crate) fn set_name(&mut self, name: u32, key: Fingerprint) {
        locked(&self.names).insert(name, key);
    }

    pub(crate) fn set_key_log(&mut self, path: PathBuf) {
        self.key_log = KeyLogging::To(path);
    }

    /// Opens the key log, if there shall be one, once for all engines of an endpoint.
    ///
    /// # Errors
    /// Which file cannot be opened, and why.
    fn open_key_log(mut self) -> Result<Self, SecurityError> {
        let path = match &self.key_log {
            KeyLogging::OfEnvironment => key_log::of_environment(),
            KeyLogging::To(path) => Some(path.clone()),
            KeyLogging::Open(_) => None,
        };
        if let Some(path) = path {
            let file = KeyLogFile::open(&path);
            let file = file.map_err(|source| SecurityError::KeyLog { file: path, source })?;
            self.key_log = KeyLogging::Open(file);
        }
        Ok(self)
    }

    /// Is anything encrypted where paths get so far?
    pub(crate) fn seals(&self, mut reaches: impl Iterator<Item = Reach>) -> bool {
        let leaves = |reach| match reach {
            Reach::Process => false,
            Reach::Host => self.seals_loopback,
            Reach::Network => true,
        };
        !self.is_plain && reaches.any(leaves)
    }

    /// Says who this is, who is known and where keys are written down, once for all engines of
    /// an endpoint.
    ///
    /// # Errors
    /// A file cannot be read or made.
    pub(crate) fn ready(self) -> Result<Self, SecurityError> {
        self.resolve().map_err(SecurityError::Identity)?.open_key_log()
    }

    /// Says who this is and who is known.
    fn resolve(mut self) -> io::Result<Self> {
        if matches!(self.own, Credential::OfUser) {
            self.own = Credential::Identity(Identity::of_user()?);
        }
        #[cfg(feature = "certificates")]
        if let Credential::Certificates(certificates) = &self.own {
            let configs = certificates.configure().map_err(io::Error::other)?;
            self.own = Credential::Tls(configs, certificates.fingerprint());
        }
        let has_keys = matches!(self.own, Credential::Identity(_));
        if has_keys && self.known.is_none() && self.only.is_none() {
            self.known = Some(KnownPeers::of_user()?);
        }
        Ok(self)
    }

    /// What the endpoint is known by, if that is decided and not a pre-shared key.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        match &self.own {
            Credential::Identity(identity) => Some(identity.fingerprint()),
            Credential::OfUser | Credential::PresharedKey(_) => None,
            #[cfg(feature = "certificates")]
            Credential::Certificates(certificates) => certificates.fingerprint(),
            #[cfg(feature = "certificates")]
            Credential::Tls(_, fingerprint) => *fingerprint,
        }
    }

    /// Where known peers are written down.
    pub(crate) fn place(&self) -> Option<PathBuf> {
        self.known.as_ref().and_then(KnownPeers::place)
    }

    /// Seals an engine where anything of it leaves the host, on all paths but those that stay in
    /// the process. The paths get so far, in the order of their numbers.
    ///
    /// # Errors
    /// A file cannot be read or made.
    pub(crate) fn around<E>(
        self,
        engine: E,
        carried: Carried,
        reaches: &[Reach],
    ) -> Result<(Sealed<E>, Self), SecurityError> {
        if !self.seals(reaches.iter().copied()) {
            return Ok((Sealed::plain(engine), self));
        }
        let security = self.ready()?;
        let stays = |(_, reach): &(u16, &Reach)| **reach == Reach::Process;
        let plain = (0..).zip(reaches).filter(stays).map(|(nth, _)| PathId(nth)).collect();
        let engine = security.seal(engine, carried, plain).map_err(SecurityError::Identity)?;
        Ok((engine, security))
    }

    /// The engine, sealed on all paths but these.
    fn seal<E>(
        &self,
        engine: E,
        carried: Carried,
        plain_paths: Vec<PathId>,
    ) -> io::Result<Sealed<E>> {
        let proof = match &self.own {
            Credential::OfUser => Proof::KeyPair(Identity::of_user()?.key()),
            Credential::Identity(identity) => Proof::KeyPair(identity.key()),
            Credential::PresharedKey(key) => Proof::PresharedKey(Secret::new(**key)),
            #[cfg(feature = "certificates")]
            Credential::Certificates(certificates) => {
                Proof::Certificates(certificates.configure().map_err(io::Error::other)?)
            }
            #[cfg(feature = "certificates")]
            Credential::Tls(configs, _) => Proof::Certificates(configs.clone()),
        };
        let mut config = SealConfig {
            context: carried.context.to_vec(),
            // Some are over, and late copies of their last packets may still come.
            most: carried.most.saturating_mul(2),
            plain_paths,
            plain_loopback: !self.seals_loopback,
            handshake_units: carried.units,
            ..SealConfig::new(proof)
        };
        if !carried.answers {
            config.half_open = 0;
        }
        let (known, only, names) = (self.known.clone(), self.only.clone(), Arc::clone(&self.names));
        let trust = Box::new(Trusted { known, only, names });
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        let mut engine = Sealed::new(engine, config, trust, seed);
        if let KeyLogging::Open(file) = &self.key_log {
            engine.log_keys(Box::new(file.clone()));
        }
        Ok(engine)
    }
}

/// What peers call themselves, with the key of who said so first: the same for all engines.
type Names = Arc<Mutex<BTreeMap<u32, Fingerprint>>>;

/// Whom an endpoint trusts.
struct Trusted {
    known: Option<KnownPeers>,
    only: Option<Vec<Fingerprint>>,
    /// As many as the engine has names: hosts of CLAN have 16,384.
    names: Names,
}

impl Trust for Trusted {
    fn check(&mut self, role: Role, remote: Peer, key: PublicKey) -> Result<(), HandshakeError> {
        let fingerprint = key.fingerprint();
        if self.only.as_ref().is_some_and(|only| !only.contains(&fingerprint)) {
            return Err(HandshakeError::WrongPeer(fingerprint));
        }
        match &self.known {
            // Addresses of those who come change, and say nothing.
            Some(known) if role == Role::Initiator => known.check(remote, fingerprint),
            _ => Ok(()),
        }
    }

    /// Who has shown a key keeps a name, for as long as the engine lives. Those who share a key
    /// are all the same.
    fn check_name(
        &mut self,
        identity: Option<PeerIdentity>,
        name: u32,
    ) -> Result<(), HandshakeError> {
        let key = match identity {
            Some(PeerIdentity::PublicKey(key)) => Some(key.fingerprint()),
            #[cfg(feature = "certificates")]
            Some(PeerIdentity::Certificate(shown)) => Some(shown),
            _ => None,
        };
        let mut names = locked(&self.names);
        match (names.get(&name), key) {
            (None, None) => Ok(()),
            (None, Some(key)) => {
                names.insert(name, key);
                Ok(())
            }
            (Some(first), Some(key)) if *first == key => Ok(()),
            (Some(_), Some(key)) => Err(HandshakeError::WrongPeer(key)),
            (Some(_), None) => Err(HandshakeError::NotProven),
        }
    }

    /// Who is known by an issuer is not remembered.
    fn check_certificate(
        &mut self,
        _: Role,
        _: Peer,
        shown: Option<Fingerprint>,
    ) -> Result<(), HandshakeError> {
        match (&self.only, shown) {
            (Some(only), Some(shown)) if !only.contains(&shown) => {
                Err(HandshakeError::WrongPeer(shown))
            }
            (Some(_), None) => Err(HandshakeError::NotProven),
            _ => Ok(()),
        }
    }
}

/// Who the peer of a connection has to be.
#[cfg(any(feature = "clan", feature = "stp"))]
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// It has a key or certificate with this fingerprint.
    pub(crate) pinned: Option<Fingerprint>,
    /// Its certificate is for this name.
    pub(crate) name: Option<Box<str>>,
}

#[cfg(any(feature = "clan", feature = "stp"))]
impl Wanted {
    /// `is_own`: it is reached at this end's own address.
    pub(crate) fn as_expected(&self, is_own: bool) -> Expected<'_> {
        Expected { pinned: self.pinned, name: self.name.as_deref(), is_own }
    }
}

/// What to do about a handshake that failed. `pin` is the call that takes a fingerprint.
pub(crate) fn advice(why: HandshakeError, known: Option<&Path>, pin: &str) -> String {
    match why {
        HandshakeError::Unfinished => "nobody answered the handshake: nobody is there, or the \
             end there is built with `plaintext()` or proves itself in another way; build \
             both alike"
            .to_owned(),
        HandshakeError::WrongPeer(key) => {
            let place = known.map_or_else(
                || "the list of those that may be".to_owned(),
                |place| place.display().to_string(),
            );
            format!(
                "it showed the key {key}, another one than before or than was expected: somebody \
                 may be in between. If it was changed on purpose, change its line in {place}, or \
                 pass the new fingerprint to {pin}"
            )
        }
        #[cfg(feature = "certificates")]
        HandshakeError::Tls(why) => why.to_string(),
        other => format!("{other}: both ends need the same pre-shared key"),
    }
}

/// A folder that is not there yet.
#[cfg(test)]
fn folder_of_test(name: &str) -> PathBuf {
    let name = format!("landfall-security-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[cfg(test)]
mod tests {
    use landfall_seal::PublicKey;

    use super::*;

    #[test]
    fn a_name_stays_with_the_key_that_had_it_first() {
        let keys = [1, 2].map(|byte| PublicKey([byte; 32]));
        let [first, other] = keys.map(|key| Some(PeerIdentity::PublicKey(key)));
        let mut trusted = Trusted { known: None, only: None, names: Names::default() };
        let wrong = Err(HandshakeError::WrongPeer(keys[1].fingerprint()));
        assert_eq!(trusted.check_name(first, 7), Ok(()));
        assert_eq!(trusted.check_name(first, 7), Ok(()));
        assert_eq!(trusted.check_name(other, 7), wrong);
        assert_eq!(trusted.check_name(other, 8), Ok(()));
        assert_eq!(
            trusted.check_name(first, 8),
            Err(HandshakeError::WrongPeer(keys[0].fingerprint()))
        );
        // Who has proven nothing of its own has the names that nobody has.
        assert_eq!(trusted.check_name(None, 7), Err(HandshakeError::NotProven));
        let shared = Some(PeerIdentity::PresharedKey);
        assert_eq!(trusted.check_name(shared, 7), Err(HandshakeError::NotProven));
        assert_eq!(trusted.check_name(shared, 9), Ok(()));
    }
}
