//! Who an endpoint is, whom it trusts, and what of it is encrypted.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use landfall_placement::{PathId, Peer};
use landfall_seal::{
    Expected, Fingerprint, HandshakeError, Proof, PublicKey, Role, SealConfig, Sealed, Secret,
    StaticKey, Trust, TrustAnybody,
};

use super::key_log::{self, KeyLogFile};

/// The engine of an endpoint.
pub(crate) type Engine = Sealed<stp_core::Endpoint>;

/// Where identity and known peers are, unless the environment says otherwise.
const STATE_VARIABLE: &str = "LANDFALL_STATE";

/// A key pair that stands for an endpoint. Others know it by its
/// [fingerprint](Self::fingerprint).
///
/// ```
/// use landfall::stp::Identity;
///
/// let identity = Identity::generate()?;
/// println!("I am {}", identity.fingerprint());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Identity(Arc<[u8; 32]>);

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint())
    }
}

impl Identity {
    /// A new one.
    ///
    /// # Errors
    /// The operating system gives no random bytes.
    pub fn generate() -> io::Result<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        Ok(Self(Arc::new(secret)))
    }

    /// The one in a file of 32 secret bytes, which is made, for its owner alone, if there is
    /// none.
    ///
    /// # Errors
    /// The file can be neither read nor made, or holds something else.
    pub fn load_or_create(path: &Path) -> io::Result<Self> {
        Self::load_or_make(path).map_err(|error| about(path, &error))
    }

    fn load_or_make(path: &Path) -> io::Result<Self> {
        match Self::load(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let identity = Self::generate()?;
        // Whole or not at all, and the first of several who make one wins.
        let name = format!("{}.{}", path.display(), identity.fingerprint());
        let made = PathBuf::from(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&made)?;
        let written = file.write_all(&*identity.0).and_then(|()| file.sync_all());
        let linked = written.and_then(|()| fs::hard_link(&made, path));
        fs::remove_file(&made)?;
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::load(path),
            other => other.map(|()| identity),
        }
    }

    fn load(path: &Path) -> io::Result<Self> {
        let mut secret = Vec::new();
        File::open(path)?.take(33).read_to_end(&mut secret)?;
        let secret = <[u8; 32]>::try_from(secret).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "it does not hold 32 bytes: remove it")
        })?;
        Ok(Self(Arc::new(secret)))
    }

    /// The one of this user: in `$LANDFALL_STATE`, or in `landfall` below `$XDG_STATE_HOME` or
    /// `~/.local/state`; made at first use.
    ///
    /// # Errors
    /// As [`load_or_create`](Self::load_or_create), or nothing says where it should be.
    pub fn of_user() -> io::Result<Self> {
        Self::load_or_create(&state_folder()?.join("identity"))
    }

    /// What others know it by.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.key().public().fingerprint()
    }

    fn key(&self) -> StaticKey {
        StaticKey::new(Secret::new(*self.0))
    }
}

/// An error that names its file: another user's, for example, is found by its name.
fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn state_folder() -> io::Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = variable(STATE_VARIABLE) {
        return Ok(folder.into());
    }
    let state = variable("XDG_STATE_HOME").map(PathBuf::from);
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    state.or_else(home).map(|state| state.join("landfall")).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("none of {STATE_VARIABLE}, XDG_STATE_HOME and HOME is set"),
        )
    })
}

/// Peers by address, with the keys that they showed first: who shows another one later is
/// refused.
#[derive(Clone, Debug)]
pub struct KnownPeers(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    file: Option<PathBuf>,
    peers: BTreeMap<String, Fingerprint>,
}

impl KnownPeers {
    /// Remembered as long as the process runs.
    #[must_use]
    pub fn in_memory() -> Self {
        Self(Arc::new(Mutex::new(Known::default())))
    }

    /// Remembered in a file: a line for each, with its address and the fingerprint of its key.
    ///
    /// # Errors
    /// The file can be neither read nor made, or a line of it makes no sense.
    pub fn in_file(path: &Path) -> io::Result<Self> {
        Self::read(path).map_err(|error| about(path, &error))
    }

    fn read(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other?,
        };
        let mut peers = BTreeMap::new();
        for (nth, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let entry = line.trim().split_once(' ');
            let entry = entry.and_then(|(peer, key)| Some((peer, key.trim().parse().ok()?)));
            let (peer, key) = entry.ok_or_else(|| {
                let what = format!("line {}: no peer and fingerprint", nth + 1);
                io::Error::new(io::ErrorKind::InvalidData, what)
            })?;
            peers.insert(peer.to_owned(), key);
        }
        Ok(Self(Arc::new(Mutex::new(Known { file: Some(path.to_owned()), peers }))))
    }

    /// Those of this user: beside [`Identity::of_user`].
    ///
    /// # Errors
    /// As [`in_file`](Self::in_file), or nothing says where it should be.
    pub fn of_user() -> io::Result<Self> {
        Self::in_file(&state_folder()?.join("known_peers"))
    }

    /// Is it the key that this peer showed first?
    fn check(&self, peer: Peer, key: Fingerprint) -> Result<(), HandshakeError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = peer.to_string();
        if let Some(first) = known.peers.get(&name) {
            return if *first == key { Ok(()) } else { Err(HandshakeError::WrongPeer(key)) };
        }
        if let Some(file) = &known.file {
            let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(file);
            // What cannot be written down is remembered all the same, for this time.
            let _ = opened.and_then(|mut file| writeln!(file, "{name} {key}"));
        }
        known.peers.insert(name, key);
        Ok(())
    }

    fn place(&self) -> Option<PathBuf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).file.clone()
    }
}

/// How an endpoint proves itself.
#[derive(Clone, Debug)]
enum Own {
    /// By the identity of the user, made at first use.
    OfUser,
    Identity(Identity),
    PresharedKey(Arc<[u8; 32]>),
    #[cfg(feature = "certificates")]
    Certificates(Arc<super::Certificates>),
    /// The same, as TLS is configured with them.
    #[cfg(feature = "certificates")]
    Tls(landfall_seal::Certificates, Option<Fingerprint>),
}

/// What a builder was told about encryption.
#[derive(Clone, Debug)]
pub(crate) struct Security {
    pub(crate) is_plain: bool,
    pub(crate) seals_loopback: bool,
    own: Own,
    known: Option<KnownPeers>,
    only: Option<Vec<Fingerprint>>,
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
            own: Own::OfUser,
            known: None,
            only: None,
            key_log: KeyLogging::default(),
        }
    }
}

impl Security {
    pub(crate) fn set_identity(&mut self, identity: Identity) {
        self.own = Own::Identity(identity);
    }

    pub(crate) fn set_preshared_key(&mut self, key: [u8; 32]) {
        self.own = Own::PresharedKey(Arc::new(key));
    }

    #[cfg(feature = "certificates")]
    pub(crate) fn set_certificates(&mut self, certificates: super::Certificates) {
        self.own = Own::Certificates(Arc::new(certificates));
    }

    pub(crate) fn set_known_peers(&mut self, known: KnownPeers) {
        self.known = Some(known);
    }

    pub(crate) fn set_only(&mut self, peers: Vec<Fingerprint>) {
        self.only = Some(peers);
    }

    pub(crate) fn set_key_log(&mut self, path: PathBuf) {
        self.key_log = KeyLogging::To(path);
    }

    /// Opens the key log, if there shall be one, once for all engines of an endpoint.
    ///
    /// # Errors
    /// Which file cannot be opened, and why.
    pub(crate) fn open_key_log(mut self) -> Result<Self, (PathBuf, io::Error)> {
        let path = match &self.key_log {
            KeyLogging::OfEnvironment => key_log::of_environment(),
            KeyLogging::To(path) => Some(path.clone()),
            KeyLogging::Open(_) => None,
        };
        if let Some(path) = path {
            let file = KeyLogFile::open(&path).map_err(|error| (path, error))?;
            self.key_log = KeyLogging::Open(file);
        }
        Ok(self)
    }

    /// Says who this is and who is known, once for all engines of an endpoint.
    pub(crate) fn resolve(mut self) -> io::Result<Self> {
        if matches!(self.own, Own::OfUser) {
            self.own = Own::Identity(Identity::of_user()?);
        }
        #[cfg(feature = "certificates")]
        if let Own::Certificates(certificates) = &self.own {
            let configs = certificates.configure().map_err(io::Error::other)?;
            self.own = Own::Tls(configs, certificates.fingerprint());
        }
        let has_keys = matches!(self.own, Own::Identity(_));
        if has_keys && self.known.is_none() && self.only.is_none() {
            self.known = Some(KnownPeers::of_user()?);
        }
        Ok(self)
    }

    /// What the endpoint is known by, if that is decided and not a pre-shared key.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        match &self.own {
            Own::Identity(identity) => Some(identity.fingerprint()),
            Own::OfUser | Own::PresharedKey(_) => None,
            #[cfg(feature = "certificates")]
            Own::Certificates(certificates) => certificates.fingerprint(),
            #[cfg(feature = "certificates")]
            Own::Tls(_, fingerprint) => *fingerprint,
        }
    }

    /// Where known peers are written down.
    pub(crate) fn place(&self) -> Option<PathBuf> {
        self.known.as_ref().and_then(KnownPeers::place)
    }

    /// The engine, sealed on all paths but these.
    pub(crate) fn seal(
        &self,
        engine: stp_core::Endpoint,
        plain_paths: Vec<PathId>,
    ) -> io::Result<Engine> {
        let proof = match &self.own {
            Own::OfUser => Proof::KeyPair(Identity::of_user()?.key()),
            Own::Identity(identity) => Proof::KeyPair(identity.key()),
            Own::PresharedKey(key) => Proof::PresharedKey(Secret::new(**key)),
            #[cfg(feature = "certificates")]
            Own::Certificates(certificates) => {
                Proof::Certificates(certificates.configure().map_err(io::Error::other)?)
            }
            #[cfg(feature = "certificates")]
            Own::Tls(configs, _) => Proof::Certificates(configs.clone()),
        };
        let connections = engine.config().connections;
        let config = SealConfig {
            context: b"stp".to_vec(),
            // Some are over, and late copies of their last packets may still come.
            most: connections.saturating_mul(2),
            plain_paths,
            plain_loopback: !self.seals_loopback,
            ..SealConfig::new(proof)
        };
        let trust: Box<dyn Trust> = if self.known.is_some() || self.only.is_some() {
            Box::new(Trusted { known: self.known.clone(), only: self.only.clone() })
        } else {
            Box::new(TrustAnybody)
        };
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        let mut engine = Sealed::new(engine, config, trust, seed);
        if let KeyLogging::Open(file) = &self.key_log {
            engine.log_keys(Box::new(file.clone()));
        }
        Ok(engine)
    }
}

/// Whom an endpoint trusts.
struct Trusted {
    known: Option<KnownPeers>,
    only: Option<Vec<Fingerprint>>,
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
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// It has a key or certificate with this fingerprint.
    pub(crate) pinned: Option<Fingerprint>,
    /// Its certificate is for this name.
    pub(crate) name: Option<Box<str>>,
}

impl Wanted {
    /// `is_own`: it is reached at this end's own address.
    pub(crate) fn as_expected(&self, is_own: bool) -> Expected<'_> {
        Expected { pinned: self.pinned, name: self.name.as_deref(), is_own }
    }
}

/// What to do about a handshake that failed.
pub(crate) fn advice(why: HandshakeError, known: Option<&Path>) -> String {
    match why {
        HandshakeError::Unfinished => "nobody answered the handshake: nobody is there, or the \
             endpoint there is built with `plaintext()` or proves itself in another way; build \
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
                 pass the new fingerprint to `connect_pinned`"
            )
        }
        #[cfg(feature = "certificates")]
        HandshakeError::Tls(why) => why.to_string(),
        other => format!("{other}: both ends need the same pre-shared key"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("landfall-security-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn an_identity_is_made_once_and_for_its_owner() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = folder("identity");
        let path = folder.join("below/identity");
        let made = Identity::load_or_create(&path).unwrap();
        let again = Identity::load_or_create(&path).unwrap();
        assert_eq!(made.fingerprint(), again.fingerprint());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::write(&path, b"short").unwrap();
        let error = Identity::load_or_create(&path).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("remove it") && said.contains(path.to_str().unwrap()), "{said}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_peer_that_shows_another_key_later_is_refused() {
        let folder = folder("known");
        let path = folder.join("known_peers");
        let [first, other] = [1, 2].map(|byte| PublicKey([byte; 32]).fingerprint());
        let peer = Peer::Socket("192.0.2.1:8181".parse().unwrap());
        let known = KnownPeers::in_file(&path).unwrap();
        assert_eq!(known.check(peer, first), Ok(()));
        assert_eq!(known.check(peer, other), Err(HandshakeError::WrongPeer(other)));
        // And by who reads the file later.
        let known = KnownPeers::in_file(&path).unwrap();
        assert_eq!(known.check(peer, first), Ok(()));
        assert_eq!(known.check(peer, other), Err(HandshakeError::WrongPeer(other)));
        assert!(advice(HandshakeError::WrongPeer(other), Some(&path)).contains("known_peers"));
        fs::write(&path, "what is this\n").unwrap();
        assert!(KnownPeers::in_file(&path).unwrap_err().to_string().contains("line 1"));
        fs::remove_dir_all(folder).unwrap();
    }
}
